//! Recursive descent over the characters of one document.
//!
//! The recursion is bounded by [`DEPTH_MAX`]; the cursor only moves forward. Names alone are
//! compared with those before them, up to [`MEMBERS_MAX`] in an object.

use zeroize::Zeroizing;

use super::{DEPTH_MAX, Document, Error, MEMBERS_MAX, Member, Node, Value};
use crate::diagnostic::Position;

/// Cursor over the rest of the text.
pub(super) struct Parser<'a> {
    rest: &'a str,
    position: Position,
    depth: usize,
    duplicates: Vec<(Position, String)>,
}

impl<'a> Parser<'a> {
    pub(super) const fn new(text: &'a str) -> Self {
        Self { rest: text, position: Position::START, depth: 0, duplicates: Vec::new() }
    }

    /// The whole text as one value.
    pub(super) fn document(mut self) -> Result<Document, Error> {
        // A BOM is not a column of its own in any editor.
        if let Some(rest) = self.rest.strip_prefix('\u{feff}') {
            self.rest = rest;
        }
        self.skip_blank()?;
        if self.rest.is_empty() {
            return Err(Error::Empty);
        }
        let root = self.value()?;
        self.skip_blank()?;
        if !self.rest.is_empty() {
            return Err(self.syntax("text after the end of the document; remove it"));
        }
        Ok(Document { root, duplicates: self.duplicates })
    }

    const fn syntax(&self, what: &'static str) -> Error {
        Error::Syntax(self.position, what)
    }

    fn peek(&self) -> Option<char> {
        self.rest.chars().next()
    }

    fn bump(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.rest = &self.rest[c.len_utf8()..];
        self.position = self.position.past(c);
        Some(c)
    }

    fn eat(&mut self, wanted: char) -> bool {
        let found = self.peek() == Some(wanted);
        if found {
            self.bump();
        }
        found
    }

    /// Skips white space and both kinds of comments.
    fn skip_blank(&mut self) -> Result<(), Error> {
        loop {
            if self.rest.starts_with("//") {
                while self.peek().is_some_and(|c| c != '\n') {
                    self.bump();
                }
            } else if self.rest.starts_with("/*") {
                let start = self.position;
                self.bump();
                self.bump();
                while !self.rest.starts_with("*/") {
                    if self.bump().is_none() {
                        return Err(Error::Syntax(start, "comment is not closed; add \"*/\""));
                    }
                }
                self.bump();
                self.bump();
            } else if self.peek().is_some_and(|c| c.is_whitespace() || c == '\u{feff}') {
                self.bump();
            } else {
                return Ok(());
            }
        }
    }

    fn value(&mut self) -> Result<Value, Error> {
        let position = self.position;
        let node = match self.peek() {
            Some('{') => self.nested(Self::object)?,
            Some('[') => self.nested(Self::array)?,
            Some(quote @ ('"' | '\'')) => Node::Text(self.text(quote)?),
            Some('+' | '-' | '.' | '0'..='9') => self.number()?,
            Some(c) if is_name_start(c) => self.word()?,
            _ => return Err(self.syntax("expected a value")),
        };
        Ok(Value { position, node })
    }

    fn nested(&mut self, read: fn(&mut Self) -> Result<Node, Error>) -> Result<Node, Error> {
        if self.depth == DEPTH_MAX {
            return Err(Error::TooDeep(self.position));
        }
        self.depth += 1;
        self.bump();
        let node = read(self)?;
        self.depth -= 1;
        Ok(node)
    }

    fn array(&mut self) -> Result<Node, Error> {
        let mut items = Vec::new();
        loop {
            self.skip_blank()?;
            if self.eat(']') {
                return Ok(Node::Array(items));
            }
            items.push(self.value()?);
            self.skip_blank()?;
            if !self.eat(',') && self.peek() != Some(']') {
                return Err(self.syntax("expected \",\" or \"]\" after an array item"));
            }
        }
    }

    fn object(&mut self) -> Result<Node, Error> {
        let mut members: Vec<Member> = Vec::new();
        loop {
            self.skip_blank()?;
            if self.eat('}') {
                return Ok(Node::Object(members));
            }
            let member = self.member()?;
            if let Some(known) = members.iter_mut().find(|known| known.name == member.name) {
                self.duplicates.push((member.position, member.name.clone()));
                *known = member;
            } else if members.len() == MEMBERS_MAX {
                return Err(Error::Syntax(member.position, "more than 2048 names in one object"));
            } else {
                members.push(member);
            }
            self.skip_blank()?;
            if !self.eat(',') && self.peek() != Some('}') {
                return Err(self.syntax("expected \",\" or \"}\" after a value"));
            }
        }
    }

    fn member(&mut self) -> Result<Member, Error> {
        let position = self.position;
        let name = match self.peek() {
            Some(quote @ ('"' | '\'')) => self.text(quote)?.to_string(),
            Some(c) if is_name_start(c) => self.name().to_owned(),
            _ => return Err(self.syntax("expected a key in quotes")),
        };
        self.skip_blank()?;
        if !self.eat(':') {
            return Err(self.syntax("expected \":\" after a key"));
        }
        self.skip_blank()?;
        Ok(Member { name, position, value: self.value()? })
    }

    /// An unquoted name; the caller saw its first character.
    fn name(&mut self) -> &'a str {
        let text = self.rest;
        while self.peek().is_some_and(|c| is_name_start(c) || c.is_numeric()) {
            self.bump();
        }
        &text[..text.len() - self.rest.len()]
    }

    fn word(&mut self) -> Result<Node, Error> {
        let position = self.position;
        Ok(match self.name() {
            "null" => Node::Null,
            "true" => Node::Bool(true),
            "false" => Node::Bool(false),
            "Infinity" => Node::Float(f64::INFINITY),
            "NaN" => Node::Float(f64::NAN),
            _ => {
                let what = "bare word; put text in quotes, or write true, false or null";
                return Err(Error::Syntax(position, what));
            }
        })
    }

    fn number(&mut self) -> Result<Node, Error> {
        let position = self.position;
        let malformed = Error::Syntax(position, "malformed number");
        let negative = match self.peek() {
            Some('-') => self.bump().is_some(),
            Some('+') => self.bump().is_none(),
            _ => false,
        };
        let text = self.rest;
        while self.peek().is_some_and(|c| c.is_ascii_alphanumeric() || c == '.') {
            // The sign of an exponent belongs to the number; in hexadecimal "e" is a digit.
            let exponent = matches!(self.bump(), Some('e' | 'E')) && !is_hex(text);
            if exponent && matches!(self.peek(), Some('+' | '-')) {
                self.bump();
            }
        }
        let text = &text[..text.len() - self.rest.len()];
        let sign = if negative { -1 } else { 1 };
        if text == "Infinity" {
            return Ok(Node::Float(if negative { f64::NEG_INFINITY } else { f64::INFINITY }));
        }
        if text == "NaN" {
            return Ok(Node::Float(f64::NAN));
        }
        if is_hex(text) {
            let digits = &text[2..];
            if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
                return Err(malformed);
            }
            let value = i64::from_str_radix(digits, 16).map_err(|_| malformed)?;
            return Ok(Node::Integer(sign * value));
        }
        if text.len() > 1 && text.starts_with('0') && text.as_bytes()[1].is_ascii_digit() {
            let what = "number with a leading zero; remove the zero, or put it in quotes";
            return Err(Error::Syntax(position, what));
        }
        // `parse` also knows words such as "inf"; a number starts with a digit or a point.
        if !text.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
            return Err(malformed);
        }
        if let Ok(value) = text.parse::<i64>() {
            return Ok(Node::Integer(sign * value));
        }
        let value = decimal(text).ok_or(malformed)?;
        Ok(Node::Float(if negative { -value } else { value }))
    }

    fn text(&mut self, quote: char) -> Result<Zeroizing<String>, Error> {
        let start = self.position;
        self.bump();
        let mut text = Zeroizing::new(String::new());
        loop {
            match self.bump() {
                None | Some('\n' | '\r') => {
                    return Err(Error::Syntax(start, "string is not closed on its line"));
                }
                Some('\\') => self.escape(&mut text)?,
                Some(c) if c == quote => return Ok(text),
                Some(c) => text.push(c),
            }
        }
    }

    fn escape(&mut self, text: &mut String) -> Result<(), Error> {
        let at = self.position;
        let c = self.bump().ok_or(Error::Syntax(at, "string ends in an escape"))?;
        text.push(match c {
            'b' => '\u{8}',
            'f' => '\u{c}',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'v' => '\u{b}',
            '0' => '\0',
            // A line that goes on in the next one.
            '\n' | '\u{2028}' | '\u{2029}' => return Ok(()),
            '\r' => {
                self.eat('\n');
                return Ok(());
            }
            'x' => {
                let code = self.hex(2)?;
                char::from_u32(code).ok_or(Error::Syntax(at, "unknown character in an escape"))?
            }
            'u' => self.unicode(at)?,
            '1'..='9' => return Err(Error::Syntax(at, "unknown escape in a string")),
            other => other,
        });
        Ok(())
    }

    fn unicode(&mut self, at: Position) -> Result<char, Error> {
        let lone = Error::Syntax(at, "half of a surrogate pair in an escape");
        let high = self.hex(4)?;
        let code = if (0xd800..0xdc00).contains(&high) {
            if !(self.eat('\\') && self.eat('u')) {
                return Err(lone);
            }
            let low = self.hex(4)?;
            if !(0xdc00..0xe000).contains(&low) {
                return Err(lone);
            }
            0x1_0000 + ((high - 0xd800) << 10) + (low - 0xdc00)
        } else {
            high
        };
        char::from_u32(code).ok_or(lone)
    }

    fn hex(&mut self, digits: usize) -> Result<u32, Error> {
        let mut code = 0;
        for _ in 0..digits {
            let at = self.position;
            let digit = self.bump().and_then(|c| c.to_digit(16));
            let digit = digit.ok_or(Error::Syntax(at, "expected a hexadecimal digit"))?;
            code = code * 16 + digit;
        }
        Ok(code)
    }
}

fn is_name_start(c: char) -> bool {
    c.is_alphabetic() || c == '_' || c == '$'
}

/// A decimal number such as `0.25`, `.5`, `5.` or `1e-3`.
///
/// Exact for up to 15 digits and powers of ten up to 22, which is more than any key here needs, and
/// close beyond that. (The parser of the standard library is exact for all, with 14 KB of tables.)
fn decimal(text: &str) -> Option<f64> {
    let (digits, exponent) = match text.find(['e', 'E']) {
        Some(at) => (&text[..at], text[at + 1..].parse().ok()?),
        None => (text, 0i32),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let mut power = exponent.checked_sub(i32::try_from(fraction.len()).ok()?)?;
    let mut digits = 0u128;
    for digit in whole.bytes().chain(fraction.bytes()) {
        let digit = char::from(digit).to_digit(10)?;
        match digits.checked_mul(10) {
            Some(more) if power < i32::MAX => digits = more.saturating_add(digit.into()),
            // Too small to count.
            _ => power = power.checked_add(1)?,
        }
    }
    let value = digits as f64;
    let scale = 10f64.powi(power.saturating_abs());
    Some(if power < 0 { value / scale } else { value * scale })
}

fn is_hex(text: &str) -> bool {
    text.starts_with("0x") || text.starts_with("0X")
}
