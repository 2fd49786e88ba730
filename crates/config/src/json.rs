//! JSON with positions: the union of what the Shadowsocks programs read.
//!
//! One grammar covers strict JSON, the relaxed form of the C programs (UTF-8 BOM, trailing commas)
//! and JSON5 (comments, single quotes, unquoted keys, hexadecimal and signed numbers). Every value
//! knows its line and column, so that whatever is wrong with it later can be shown in place.
//!
//! Invariants: input is at most [`SIZE_MAX`] bytes and [`DEPTH_MAX`] levels deep; an object has at
//! most [`MEMBERS_MAX`] names, each once (the last one wins, the earlier ones are reported in
//! [`Document::duplicates`]); an error never quotes the input, because what follows a misplaced quote may be a password.

mod parser;

use zeroize::Zeroizing;

use crate::diagnostic::Position;

/// Largest document read, in bytes. The C programs stop at 128 KiB; subscriptions are larger.
pub(crate) const SIZE_MAX: usize = 1 << 20;
/// Deepest nesting read; the formats themselves need six levels.
pub(crate) const DEPTH_MAX: usize = 64;

/// Names in one object at most: each is compared with all before it.
pub(crate) const MEMBERS_MAX: usize = 2048;

/// A parsed document.
#[derive(Debug)]
pub(crate) struct Document {
    /// The outermost value.
    pub(crate) root: Value,
    /// Names that came again in the same object, with the place of the later occurrence.
    pub(crate) duplicates: Vec<(Position, String)>,
}

/// A value and where it starts.
#[derive(Debug)]
pub(crate) struct Value {
    /// First character of the value.
    pub(crate) position: Position,
    /// What it is.
    pub(crate) node: Node,
}

/// The kinds of values.
pub(crate) enum Node {
    /// `null`: every format reads it as "not set".
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A whole number that fits.
    Integer(i64),
    /// Any other number, infinities and not-a-number included.
    Float(f64),
    /// Text; wiped on drop because it may be a password.
    Text(Zeroizing<String>),
    /// A list.
    Array(Vec<Value>),
    /// Members in the order of the file.
    Object(Vec<Member>),
}

/// One `name: value` of an object.
#[derive(Debug)]
pub(crate) struct Member {
    /// The name.
    pub(crate) name: String,
    /// First character of the name.
    pub(crate) position: Position,
    /// The value.
    pub(crate) value: Value,
}

/// Why a document cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub(crate) enum Error {
    /// Longer than [`SIZE_MAX`].
    TooLong,
    /// Nothing but white space.
    Empty,
    /// Bytes that are not UTF-8.
    NotUtf8(Position),
    /// Deeper than [`DEPTH_MAX`].
    TooDeep(Position),
    /// A rule of the grammar is broken; the text says which.
    Syntax(Position, &'static str),
}

impl Error {
    /// Where reading stopped, when it stopped at a place.
    pub(crate) const fn position(self) -> Option<Position> {
        match self {
            Self::TooLong | Self::Empty => None,
            Self::NotUtf8(at) | Self::TooDeep(at) | Self::Syntax(at, _) => Some(at),
        }
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::TooLong => "larger than 1 MiB, which no configuration is",
            Self::Empty => "is empty; write a JSON object, { ... }",
            Self::NotUtf8(_) => "is not UTF-8 text; save the file as UTF-8",
            Self::TooDeep(_) => "nested deeper than 64 levels",
            Self::Syntax(_, what) => what,
        })
    }
}

impl std::error::Error for Error {}

/// Reads a document.
///
/// # Errors
/// The first thing that no accepted grammar allows, with its position.
pub(crate) fn parse(bytes: &[u8]) -> Result<Document, Error> {
    parse_up_to(bytes, SIZE_MAX)
}

/// As [`parse`], for a document of at most `size_max` bytes.
///
/// # Errors
/// As [`parse`].
pub(crate) fn parse_up_to(bytes: &[u8], size_max: usize) -> Result<Document, Error> {
    if bytes.len() > size_max {
        return Err(Error::TooLong);
    }
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(e) => {
            let valid = String::from_utf8_lossy(&bytes[..e.valid_up_to()]);
            return Err(Error::NotUtf8(Position::START.after(&valid)));
        }
    };
    parser::Parser::new(text).document()
}

/// A text as a JSON string, for documents that are written.
pub(crate) fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            c if c.is_control() => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

impl Node {
    /// The kind in words, for messages.
    pub(crate) const fn kind(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "a boolean",
            Self::Integer(_) | Self::Float(_) => "a number",
            Self::Text(_) => "a string",
            Self::Array(_) => "an array",
            Self::Object(_) => "an object",
        }
    }

    /// True for the values that mean "nothing is configured here": `null`, `false`, empty text
    /// and empty containers.
    pub(crate) fn is_unset(&self) -> bool {
        match self {
            Self::Null | Self::Bool(false) => true,
            Self::Text(text) => text.is_empty(),
            Self::Array(items) => items.is_empty(),
            Self::Object(members) => members.is_empty(),
            Self::Bool(true) | Self::Integer(_) | Self::Float(_) => false,
        }
    }
}

// Only the kind: a value may be a password.
impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.kind())
    }
}

#[cfg(test)]
mod tests;
