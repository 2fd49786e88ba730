//! Statements of `sockd.conf`: settings, which end with their line, and blocks.
//!
//! Blanks around `:` and `=` do not matter, so `internal:eth0` and `internal : eth0` are the same.

use crate::lex::{Token, lines, split_braces};

/// A statement.
#[derive(Debug)]
pub(super) enum Item<'a> {
    Setting {
        keyword: String,
        values: Vec<&'a str>,
        line: u32,
    },
    /// The words before `{`, in lower case, and everything between the braces.
    Block {
        head: Vec<String>,
        body: Vec<Token<'a>>,
        line: u32,
    },
    /// What could not be read.
    Broken {
        line: u32,
        message: &'static str,
    },
}

const HEADS: [&str; 7] = ["client", "hostid", "socks", "pass", "block", "route", "monitor"];

pub(super) fn items(text: &str) -> Vec<Item<'_>> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut items = Vec::new();
    let mut lines = lines(text).peekable();
    while let Some((line, content)) = lines.next() {
        let mut tokens = Vec::new();
        split_braces(content, line, &mut tokens);
        let Some(first) = tokens.first() else { continue };
        if !HEADS.contains(&first.text.to_ascii_lowercase().as_str()) {
            let (keyword, values) = setting(&tokens);
            items.push(Item::Setting { keyword, values, line });
            continue;
        }
        while !is_closed(&tokens) {
            let Some((number, content)) = lines.next() else { break };
            split_braces(content, number, &mut tokens);
        }
        blocks(&tokens, line, &mut items);
    }
    items
}

fn is_closed(tokens: &[Token<'_>]) -> bool {
    let count = |brace| tokens.iter().filter(|token| token.text == brace).count();
    count("{") > 0 && count("{") <= count("}")
}

/// One or more blocks on the same lines.
fn blocks<'a>(mut tokens: &[Token<'a>], line: u32, items: &mut Vec<Item<'a>>) {
    while let Some(first) = tokens.first() {
        let line = if items.is_empty() { line } else { first.line };
        let broken = |message| Item::Broken { line, message };
        let Some(open) = tokens.iter().position(|token| token.text == "{") else {
            items
                .push(broken("words that begin no statement; a rule has its conditions in braces"));
            return;
        };
        let Some(close) = tokens.iter().position(|token| token.text == "}") else {
            items.push(broken("the block has no \"}\" at its end"));
            return;
        };
        if close < open || tokens[open + 1..close].iter().any(|token| token.text == "{") {
            items.push(broken("braces that do not match"));
            return;
        }
        let head = tokens[..open].iter().map(|token| token.text.to_ascii_lowercase()).collect();
        items.push(Item::Block { head, body: tokens[open + 1..close].to_vec(), line });
        tokens = &tokens[close + 1..];
    }
}

/// A keyword and its values, wherever the colon is.
fn setting<'a>(tokens: &[Token<'a>]) -> (String, Vec<&'a str>) {
    let mut words = tokens.iter().map(|token| token.text);
    let first = words.next().unwrap_or_default();
    let (keyword, glued) = first.split_once(':').unwrap_or((first, ""));
    let glued = Some(glued).filter(|glued| !glued.is_empty());
    let mut values: Vec<&str> = glued.into_iter().chain(words).collect();
    if values.first() == Some(&":") {
        values.remove(0);
    }
    (keyword.to_ascii_lowercase(), values)
}

/// A condition of a rule.
pub(super) struct Condition<'a> {
    pub(super) key: String,
    pub(super) values: Vec<&'a str>,
    pub(super) line: u32,
}

/// Splits a body at its keys; words before the first are a condition without a key.
pub(super) fn conditions<'a>(body: &[Token<'a>], known: &[&str]) -> Vec<Condition<'a>> {
    let mut found: Vec<Condition<'a>> = Vec::new();
    let mut tokens = body.iter().peekable();
    while let Some(token) = tokens.next() {
        let (word, glued) = token.text.split_once(':').unwrap_or((token.text, ""));
        let key = word.to_ascii_lowercase();
        let has_colon =
            token.text.contains(':') || tokens.peek().is_some_and(|next| next.text == ":");
        // An address in IPv6 has colons too.
        let is_key = has_colon && (known.contains(&key.as_str()) || is_new_key(token.text));
        if is_key {
            let glued = Some(glued).filter(|glued| !glued.is_empty());
            found.push(Condition { key, values: glued.into_iter().collect(), line: token.line });
            tokens.next_if(|next| next.text == ":");
        } else if let Some(last) = found.last_mut() {
            last.values.push(token.text);
        } else {
            found.push(Condition { key, values: Vec::new(), line: token.line });
        }
    }
    found
}

/// A word with a colon at its end that is neither `port:` nor an address.
fn is_new_key(text: &str) -> bool {
    let word = text.strip_suffix(':').unwrap_or_default();
    !word.is_empty() && !word.contains(':') && !word.eq_ignore_ascii_case("port")
}
