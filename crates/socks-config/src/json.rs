//! JSON objects on one line, members in the order in which they are added.

use std::fmt::Write;

/// An object while it is written.
pub(crate) struct Object(String);

impl Object {
    pub(crate) fn new() -> Self {
        Self("{".into())
    }

    /// A member whose value is JSON already.
    pub(crate) fn raw(mut self, name: &str, value: &str) -> Self {
        if self.0.len() > 1 {
            self.0.push(',');
        }
        let _infallible = write!(self.0, "{}:{value}", quote(name));
        self
    }

    pub(crate) fn text(self, name: &str, value: &str) -> Self {
        let value = quote(value);
        self.raw(name, &value)
    }

    pub(crate) fn texts(self, name: &str, values: &[String]) -> Self {
        let values: Vec<String> = values.iter().map(|value| quote(value)).collect();
        self.raw(name, &format!("[{}]", values.join(",")))
    }

    pub(crate) fn bool(self, name: &str, value: bool) -> Self {
        self.raw(name, if value { "true" } else { "false" })
    }

    pub(crate) fn finish(mut self) -> String {
        self.0.push('}');
        self.0
    }
}

/// A text as a JSON string.
pub(crate) fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            c if c.is_control() => {
                let _infallible = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}
