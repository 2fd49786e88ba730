//! Percent-encoding of URI parts (RFC 3986 §2.1).

use super::LinkError;

/// Decodes escapes; a `+` stays a `+`, because keys in base64 hold it.
pub(super) fn decode(text: &str) -> Result<String, LinkError> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let (digits, tail) = rest.split_first_chunk::<2>().ok_or(LinkError::Percent)?;
        out.push(digit(digits[0])? * 16 + digit(digits[1])?);
        rest = tail;
    }
    String::from_utf8(out).map_err(|_| LinkError::Percent)
}

/// Encodes everything but the unreserved characters.
pub(super) fn encode(text: &str) -> String {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(byte.into());
        } else {
            out.push('%');
            out.push(HEX[usize::from(byte >> 4)].into());
            out.push(HEX[usize::from(byte & 15)].into());
        }
    }
    out
}

fn digit(byte: u8) -> Result<u8, LinkError> {
    let digit = char::from(byte).to_digit(16).ok_or(LinkError::Percent)?;
    u8::try_from(digit).map_err(|_| LinkError::Percent)
}
