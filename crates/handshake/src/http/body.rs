//! Counts which bytes behind a head belong to the request (RFC 9112 §6 and §7.1).
//!
//! The body passes unchanged; only its end is looked for, over any split. Bytes behind the end are
//! another request, which was not checked and must not reach the origin. Chunk framing is read
//! strictly: a size line or a trailer line that two parsers could read differently is an error.

use core::fmt;

/// Longest chunk extension; RFC 9112 §7.1.1 asks for a limit.
const EXTENSION_LEN_MAX: u16 = 256;
/// Longest trailer section, its empty line not included.
const TRAILER_LEN_MAX: u16 = 8192;
/// A size of 16 digits fills 64 bits.
const SIZE_DIGITS_MAX: u8 = 16;

/// What is still to come of a request's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// The request has no body.
    None,
    /// So many bytes.
    Length(u64),
    /// Chunks up to the last one and its trailer.
    Chunked(Chunked),
}

/// Where in a chunked body the next byte is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunked(State);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// In the digits of a chunk size.
    Size { size: u64, digits: u8 },
    /// In a chunk extension of `len` bytes so far.
    Extension { size: u64, len: u16 },
    /// Behind the CR of a size line.
    SizeCr { size: u64 },
    /// In chunk data, with `left` bytes to come.
    Data { left: u64 },
    /// Behind chunk data.
    DataEnd,
    /// Behind the CR that follows chunk data.
    DataCr,
    /// At the start of a trailer line; `len` bytes of trailer were seen.
    TrailerStart { len: u16 },
    /// In the name of a trailer line.
    TrailerName { len: u16 },
    /// In the value of a trailer line.
    TrailerValue { len: u16 },
    /// Behind the CR of a trailer line.
    TrailerCr { len: u16 },
    /// Behind the CR of the empty line that ends the body.
    LastCr,
    /// Behind the body.
    Done,
}

/// Why a chunked body is malformed; always the client's fault, and the flow must end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BodyError {
    /// A chunk size that is no hexadecimal number of 1 to 16 digits.
    Size,
    /// A chunk extension with a control character, or longer than 256 bytes.
    Extension,
    /// A line or chunk that does not end with CRLF.
    LineEnd,
    /// A trailer line that is no header field, or a trailer longer than 8 KiB.
    Trailer,
}

impl BodyError {
    /// A stable word for metrics and logs.
    pub const fn as_label(self) -> &'static str {
        match self {
            Self::Size => "http_chunk_size",
            Self::Extension => "http_chunk_extension",
            Self::LineEnd => "http_chunk_line_end",
            Self::Trailer => "http_chunk_trailer",
        }
    }
}

impl fmt::Display for BodyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Size => "chunk size is malformed",
            Self::Extension => "chunk extension is malformed or too long",
            Self::LineEnd => "chunk framing lacks a CRLF",
            Self::Trailer => "trailer is malformed or too long",
        })
    }
}

impl core::error::Error for BodyError {}

impl Body {
    /// A chunked body at its start.
    pub(crate) const fn chunked() -> Self {
        Self::Chunked(Chunked(State::Size { size: 0, digits: 0 }))
    }

    /// Counts how many bytes at the start of `bytes` belong to the body, and takes them as sent.
    ///
    /// Less than all of them means that the body ends there.
    ///
    /// # Errors
    /// [`BodyError`] when chunk framing is malformed; none of `bytes` should be sent then, and the
    /// body must not be used again.
    pub fn take(&mut self, bytes: &[u8]) -> Result<usize, BodyError> {
        match self {
            Self::None => Ok(0),
            Self::Length(left) => Ok(take_counted(left, bytes)),
            Self::Chunked(chunked) => chunked.take(bytes),
        }
    }

    /// Whether nothing more is to come.
    pub const fn is_complete(&self) -> bool {
        matches!(self, Self::None | Self::Length(0) | Self::Chunked(Chunked(State::Done)))
    }
}

/// Takes up to `left` of `bytes`.
fn take_counted(left: &mut u64, bytes: &[u8]) -> usize {
    let taken = usize::try_from(*left).map_or(bytes.len(), |left| left.min(bytes.len()));
    *left -= taken as u64;
    taken
}

impl Chunked {
    fn take(&mut self, bytes: &[u8]) -> Result<usize, BodyError> {
        let mut taken = 0;
        while let Some(rest @ [byte, ..]) = bytes.get(taken..) {
            match &mut self.0 {
                State::Done => break,
                State::Data { left } => {
                    taken += take_counted(left, rest);
                    if *left == 0 {
                        self.0 = State::DataEnd;
                    }
                }
                framing => {
                    *framing = framing.after(*byte)?;
                    taken += 1;
                }
            }
        }
        Ok(taken)
    }
}

impl State {
    /// The state behind one byte of framing.
    fn after(self, byte: u8) -> Result<Self, BodyError> {
        match self {
            Self::Size { size, digits } => after_size_byte(size, digits, byte),
            Self::Extension { size, .. } if byte == b'\r' => Ok(Self::SizeCr { size }),
            Self::Extension { size, len } => {
                if len == EXTENSION_LEN_MAX || is_control(byte) {
                    return Err(BodyError::Extension);
                }
                Ok(Self::Extension { size, len: len + 1 })
            }
            Self::SizeCr { size: 0 } => line_feed(byte, Self::TrailerStart { len: 0 }),
            Self::SizeCr { size } => line_feed(byte, Self::Data { left: size }),
            Self::DataEnd if byte == b'\r' => Ok(Self::DataCr),
            Self::DataEnd => Err(BodyError::LineEnd),
            Self::DataCr => line_feed(byte, Self::Size { size: 0, digits: 0 }),
            Self::TrailerStart { .. } if byte == b'\r' => Ok(Self::LastCr),
            Self::TrailerStart { len } => match byte {
                b':' => Err(BodyError::Trailer),
                _ => after_trailer_name(len, byte),
            },
            Self::TrailerName { len } => after_trailer_name(len, byte),
            Self::TrailerValue { len } => {
                if byte == b'\r' {
                    return Ok(Self::TrailerCr { len });
                }
                if is_control(byte) {
                    return Err(BodyError::Trailer);
                }
                Ok(Self::TrailerValue { len: longer_trailer(len)? })
            }
            Self::TrailerCr { len } => line_feed(byte, Self::TrailerStart { len }),
            Self::LastCr => line_feed(byte, Self::Done),
            // Data and what follows the body are not framing; they stay as they are.
            Self::Data { .. } | Self::Done => Ok(self),
        }
    }
}

fn after_size_byte(size: u64, digits: u8, byte: u8) -> Result<State, BodyError> {
    let digit = match byte {
        b'0'..=b'9' => byte - b'0',
        b'a'..=b'f' => byte - b'a' + 10,
        b'A'..=b'F' => byte - b'A' + 10,
        b';' if digits > 0 => return Ok(State::Extension { size, len: 0 }),
        b'\r' if digits > 0 => return Ok(State::SizeCr { size }),
        _ => return Err(BodyError::Size),
    };
    if digits == SIZE_DIGITS_MAX {
        return Err(BodyError::Size);
    }
    Ok(State::Size { size: size << 4 | u64::from(digit), digits: digits + 1 })
}

fn after_trailer_name(len: u16, byte: u8) -> Result<State, BodyError> {
    let len = longer_trailer(len)?;
    match byte {
        b':' => Ok(State::TrailerValue { len }),
        _ if super::head::is_token(&[byte]) => Ok(State::TrailerName { len }),
        _ => Err(BodyError::Trailer),
    }
}

fn longer_trailer(len: u16) -> Result<u16, BodyError> {
    if len == TRAILER_LEN_MAX { Err(BodyError::Trailer) } else { Ok(len + 1) }
}

fn line_feed(byte: u8, next: State) -> Result<State, BodyError> {
    if byte == b'\n' { Ok(next) } else { Err(BodyError::LineEnd) }
}

const fn is_control(byte: u8) -> bool {
    byte.is_ascii_control() && byte != b'\t'
}

#[cfg(test)]
mod tests;
