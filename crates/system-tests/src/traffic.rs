//! Bytes that differ at every offset, made once and compared in slices, so that a quarter of a
//! gigabyte costs no time in a debug build.

use std::io::Write;
use std::net::TcpStream;
use std::sync::OnceLock;

/// A prime, so that no buffer size of ours divides it.
const PERIOD: usize = 1_000_003;

fn block() -> &'static [u8] {
    static BLOCK: OnceLock<Vec<u8>> = OnceLock::new();
    BLOCK.get_or_init(|| {
        let mut state = 0x9E37_79B9_7F4A_7C15_u64;
        let mut step = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()[3]
        };
        (0..PERIOD).map(|_| step()).collect()
    })
}

/// Up to `max` bytes of the pattern from `offset` on; never none.
pub fn bytes_at(offset: usize, max: usize) -> &'static [u8] {
    let rest = &block()[offset % PERIOD..];
    &rest[..rest.len().min(max)]
}

/// Sends the first `len` bytes of the pattern; `sent` hears of each write.
///
/// # Errors
/// As writing to the stream.
pub fn send_pattern(
    mut stream: &TcpStream,
    len: usize,
    mut sent: impl FnMut(usize),
) -> std::io::Result<()> {
    let mut at = 0;
    while at < len {
        let bytes = bytes_at(at, (len - at).min(256 * 1024));
        stream.write_all(bytes)?;
        at += bytes.len();
        sent(at);
    }
    Ok(())
}

/// A reader of the pattern that compares every byte.
#[derive(Default)]
pub struct Expected {
    at: usize,
}

impl Expected {
    /// Takes the next bytes.
    ///
    /// # Panics
    /// When they are not those of the pattern.
    pub fn take(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let expected = bytes_at(self.at, bytes.len());
            assert!(bytes.starts_with(expected), "bytes from {} on are wrong", self.at);
            bytes = &bytes[expected.len()..];
            self.at += expected.len();
        }
    }

    /// How many have been taken.
    pub const fn len(&self) -> usize {
        self.at
    }

    /// Whether none has been taken.
    pub const fn is_empty(&self) -> bool {
        self.at == 0
    }
}
