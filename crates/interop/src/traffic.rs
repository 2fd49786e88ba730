//! Seeded bytes: sent by one end, made again and compared by the other.
//!
//! Comparing every byte finds more than comparing hashes does: it says where the first wrong byte
//! is, which tells a lost record from a repeated or a swapped one.

use std::io::{self, ErrorKind, Read, Write};

use crate::failure::Failure;

/// Bytes per write and per read; odd, so that the borders of records move through the data.
const PIECE: usize = 60_007;

/// An endless stream of bytes that depends on a seed alone.
pub(crate) struct Stream {
    bytes: blake3::OutputReader,
    sent: u64,
}

impl Stream {
    /// The stream of a seed.
    pub(crate) fn new(seed: &str) -> Self {
        Self { bytes: blake3::Hasher::new().update(seed.as_bytes()).finalize_xof(), sent: 0 }
    }

    /// Sends the next `len` bytes.
    pub(crate) fn send(&mut self, to: &mut impl Write, len: u64) -> Result<(), Failure> {
        let mut piece = vec![0; PIECE];
        let mut left = len;
        while left > 0 {
            let now = left.min(PIECE as u64) as usize;
            self.bytes.fill(&mut piece[..now]);
            let sent = to.write_all(&piece[..now]);
            sent.map_err(Failure::io(format!("send at offset {}", self.sent)))?;
            self.sent += now as u64;
            left -= now as u64;
        }
        Ok(())
    }

    /// Receives `len` bytes that must be the next ones.
    pub(crate) fn receive(&mut self, from: &mut impl Read, len: u64) -> Result<(), Failure> {
        let (mut piece, mut wanted) = (vec![0; PIECE], vec![0; PIECE]);
        let mut left = len;
        while left > 0 {
            let room = left.min(PIECE as u64) as usize;
            let at = self.sent;
            let got = match from.read(&mut piece[..room]) {
                Ok(0) => {
                    let end = at + left;
                    return Err(Failure::new(format!("end of stream at {at} of {end} bytes")));
                }
                Ok(got) => got,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(Failure::io(format!("receive at offset {at}"))(error)),
            };
            self.bytes.fill(&mut wanted[..got]);
            // Whole slices first: byte by byte is slow in an unoptimised build.
            if piece[..got] != wanted[..got] {
                let same = piece.iter().zip(&wanted).take_while(|(got, wanted)| got == wanted);
                let offset = at + same.count() as u64;
                return Err(Failure::new(format!("wrong byte at offset {offset}")));
            }
            self.sent += got as u64;
            left -= got as u64;
        }
        Ok(())
    }
}

/// Makes sure that the stream ends here.
pub(crate) fn receive_end(from: &mut impl Read) -> Result<(), Failure> {
    let mut byte = [0];
    loop {
        match from.read(&mut byte) {
            Ok(0) => return Ok(()),
            Ok(_) => return Err(Failure::new("more bytes after the last one")),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(Failure::io("receive the end of the stream")(error)),
        }
    }
}

/// Reads until nothing more comes, by an end or a reset, and says how many bytes came.
pub(crate) fn drain(from: &mut impl Read) -> Result<u64, Failure> {
    match io::copy(from, &mut io::sink()) {
        Ok(len) => Ok(len),
        Err(error) if error.kind() == ErrorKind::ConnectionReset => Ok(0),
        Err(error) => Err(Failure::io("receive the end of the stream")(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(seed: &str, len: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        Stream::new(seed).send(&mut bytes, len).unwrap();
        bytes
    }

    #[test]
    fn takes_what_was_sent_in_any_pieces() {
        let sent = bytes("a", 200_000);
        let mut stream = Stream::new("a");
        let mut from = &sent[..];
        stream.receive(&mut from, 1).unwrap();
        stream.receive(&mut from, 199_999).unwrap();
        receive_end(&mut from).unwrap();
    }

    #[test]
    fn finds_the_first_wrong_byte() {
        let mut sent = bytes("a", 100_000);
        sent[70_000] ^= 1;
        let failure = Stream::new("a").receive(&mut &sent[..], 100_000).unwrap_err();
        assert_eq!(failure.to_string(), "wrong byte at offset 70000");
    }

    #[test]
    fn finds_what_is_missing_and_what_is_too_much() {
        let sent = bytes("a", 10);
        let failure = Stream::new("a").receive(&mut &sent[..], 11).unwrap_err();
        assert_eq!(failure.to_string(), "end of stream at 10 of 11 bytes");
        assert!(receive_end(&mut &sent[..]).is_err());
        assert!(Stream::new("b").receive(&mut &sent[..], 10).is_err());
    }
}
