//! Host names: checked once, lower-cased, held inline.
//!
//! A [`Name`] is the text form, at most 253 bytes of labels and an optional final dot. The dot
//! is kept, because `host.` and `host` are different questions as soon as a search list exists.
//! Labels hold letters, digits, `-` and `_` only. Names in other scripts are refused rather than
//! sent raw: a server answers for the `xn--` form, and guessing a mapping here could reach
//! another host than the one the caller shows to its user.

use std::fmt;

/// Longest name in text form without the final dot (RFC 1035 §2.3.4: 255 bytes on the wire).
pub const NAME_LEN_MAX: usize = 253;
const LABEL_LEN_MAX: usize = 63;

/// Why text is not a host name. The caller's client sent it: refuse the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum NameError {
    /// No characters, or only a dot.
    Empty,
    /// More than 253 bytes.
    TooLong,
    /// A label of no characters or of more than 63.
    Label,
    /// An ASCII character other than a letter, a digit, `-`, `_` and the dot.
    Character,
    /// A character outside ASCII: international names must come in their `xn--` form.
    NonAscii,
}

impl NameError {
    /// A stable word for metrics and logs.
    pub const fn as_label(self) -> &'static str {
        match self {
            Self::Empty => "name_empty",
            Self::TooLong => "name_too_long",
            Self::Label => "name_label",
            Self::Character => "name_character",
            Self::NonAscii => "name_non_ascii",
        }
    }
}

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Empty => "host name is empty",
            Self::TooLong => "host name is longer than 253 bytes",
            Self::Label => "host name has an empty label or one longer than 63 bytes",
            Self::Character => "host name has a character that host names do not have",
            Self::NonAscii => "host name is not ASCII; give international names in xn-- form",
        })
    }
}

impl std::error::Error for NameError {}

/// A checked, lower-cased host name without heap memory.
#[derive(Clone, Copy)]
pub struct Name {
    /// Bytes in use, the final dot included.
    len: u8,
    bytes: [u8; NAME_LEN_MAX + 1],
}

impl Name {
    /// Checks and lower-cases `text`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Self, NameError> {
        Self::parse_bytes(text.as_bytes())
    }

    pub(crate) fn parse_bytes(text: &[u8]) -> Result<Self, NameError> {
        let host = text.strip_suffix(b".").unwrap_or(text);
        if host.is_empty() {
            return Err(NameError::Empty);
        }
        if !host.is_ascii() {
            return Err(NameError::NonAscii);
        }
        if host.len() > NAME_LEN_MAX {
            return Err(NameError::TooLong);
        }
        for label in host.split(|&byte| byte == b'.') {
            if label.is_empty() || label.len() > LABEL_LEN_MAX {
                return Err(NameError::Label);
            }
            if !label.iter().all(|&b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_') {
                return Err(NameError::Character);
            }
        }
        let mut bytes = [0; NAME_LEN_MAX + 1];
        bytes[..text.len()].copy_from_slice(text);
        bytes.make_ascii_lowercase();
        let len = u8::try_from(text.len()).map_err(|_| NameError::TooLong)?;
        Ok(Self { len, bytes })
    }

    /// The name as given, lower-cased, with its final dot if it had one.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len.into()]
    }

    /// The same as text.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(self.as_bytes()).expect("a Name is ASCII")
    }

    /// The name without a final dot.
    pub fn host(&self) -> &[u8] {
        let bytes = self.as_bytes();
        bytes.strip_suffix(b".").unwrap_or(bytes)
    }

    /// Whether the name had a final dot, which keeps the search list out.
    pub fn is_absolute(&self) -> bool {
        self.as_bytes().ends_with(b".")
    }

    /// Dots inside the name; what `ndots` is compared with.
    pub(crate) fn dots(&self) -> usize {
        self.host().iter().filter(|&&byte| byte == b'.').count()
    }
}

impl PartialEq for Name {
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for Name {}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_names_as_they_occur() {
        for (text, host, absolute, dots) in [
            ("Example.COM", "example.com", false, 1),
            ("example.com.", "example.com", true, 1),
            ("_dmarc.x-y", "_dmarc.x-y", false, 1),
            ("a", "a", false, 0),
            ("-odd.example", "-odd.example", false, 1),
            ("xn--bcher-kva.example", "xn--bcher-kva.example", false, 1),
        ] {
            let name = Name::parse(text).unwrap();
            assert_eq!(name.host(), host.as_bytes());
            assert_eq!((name.is_absolute(), name.dots()), (absolute, dots), "{text}");
        }
    }

    #[test]
    fn refuses_what_no_server_can_answer() {
        let label64 = "a".repeat(64);
        for (text, error) in [
            ("", NameError::Empty),
            (".", NameError::Empty),
            ("..", NameError::Label),
            ("a..b", NameError::Label),
            (".a", NameError::Label),
            (label64.as_str(), NameError::Label),
            ("a b", NameError::Character),
            ("a\0b", NameError::Character),
            ("a/b", NameError::Character),
            ("bücher.example", NameError::NonAscii),
        ] {
            assert_eq!(Name::parse(text).unwrap_err(), error, "{text:?}");
        }
    }

    #[test]
    fn length_limit_counts_without_the_final_dot() {
        let longest = format!("{}b", "a.".repeat(126));
        assert_eq!(longest.len(), NAME_LEN_MAX);
        assert!(Name::parse(&longest).is_ok());
        assert!(Name::parse(&format!("{longest}.")).is_ok());
        assert_eq!(Name::parse(&format!("{longest}c")).unwrap_err(), NameError::TooLong);
        assert_eq!(Name::parse(&"x".repeat(5000)).unwrap_err(), NameError::TooLong);
    }
}
