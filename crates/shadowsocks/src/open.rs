//! The receiving half: records to plaintext, in place.

use std::ops::Range;

use adit_crypto::TAG_LEN;

use crate::seal::{Cipher, LENGTH_LEN};
use crate::{Method, Reject};

/// Empty records in a row that are skipped before the stream is refused: they cost the sender
/// 34 bytes each and mean nothing.
const EMPTY_RECORDS_MAX: u8 = 64;

/// Opens one direction of a stream.
pub struct Opener {
    pub(crate) cipher: Cipher,
    /// Payload length from an opened length header whose payload is still to come.
    pending_len: Option<u16>,
    empty_records: u8,
}

impl Opener {
    pub(crate) const fn new(cipher: Cipher) -> Self {
        Self { cipher, pending_len: None, empty_records: 0 }
    }

    /// As [`Opener::new`], where the handshake already told the first record's length.
    pub(crate) const fn with_length(cipher: Cipher, len: u16) -> Self {
        Self { cipher, pending_len: Some(len), empty_records: 0 }
    }

    /// Opens the next record of `buf[*at..]` in place and moves `at` past what it consumed.
    ///
    /// Returns where the payload is, never an empty range, or `None` when more bytes are needed;
    /// `at` may have moved past a length header all the same, and the bytes from it on must be
    /// presented again with more behind them.
    ///
    /// # Errors
    /// The stream is broken for good; the caller stops using it.
    pub fn open(&mut self, buf: &mut [u8], at: &mut usize) -> Result<Option<Range<usize>>, Reject> {
        if self.cipher.method == Method::None {
            let range = *at..buf.len();
            *at = buf.len();
            return Ok((!range.is_empty()).then_some(range));
        }
        loop {
            let len = match self.pending_len {
                Some(len) => len,
                None => {
                    let Some(head) = buf.get_mut(*at..*at + LENGTH_LEN) else { return Ok(None) };
                    let len = self.open_length(head)?;
                    *at += LENGTH_LEN;
                    self.pending_len = Some(len);
                    len
                }
            };
            let len = usize::from(len);
            let Some(record) = buf.get_mut(*at..*at + len + TAG_LEN) else { return Ok(None) };
            self.cipher.open(record)?;
            self.pending_len = None;
            let payload = *at..*at + len;
            *at += len + TAG_LEN;
            if !payload.is_empty() {
                self.empty_records = 0;
                return Ok(Some(payload));
            }
            self.empty_records += 1;
            if self.empty_records > EMPTY_RECORDS_MAX {
                return Err(Reject::EmptyRecords);
            }
        }
    }

    /// Whether the stream stands between two records, where an end is a clean one, given that
    /// no unopened bytes are left over.
    pub const fn at_boundary(&self) -> bool {
        self.pending_len.is_none()
    }

    fn open_length(&mut self, head: &mut [u8]) -> Result<u16, Reject> {
        self.cipher.open(head)?;
        let len = u16::from_be_bytes([head[0], head[1]]);
        if usize::from(len) > self.cipher.method.record_payload_max() {
            return Err(Reject::RecordLength(len));
        }
        Ok(len)
    }
}
