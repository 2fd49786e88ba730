//! Lines, settings and rule blocks of Alighieri's language.

use std::sync::Arc;

use adit_policy::{Access, Place, Stage};

use crate::finding::{Findings, place};
use crate::value::shown;

/// A token and its line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token<'a> {
    pub(crate) text: &'a str,
    pub(crate) line: u32,
}

/// What a file is made of.
#[derive(Debug)]
pub(crate) enum Item<'a> {
    /// A keyword, as written without its colon and in lower case, and its values.
    Setting { keyword: String, values: Vec<&'a str>, place: Place },
    /// A rule.
    Block(Block<'a>),
}

/// A rule: how it begins, and what is between its braces.
#[derive(Debug)]
pub(crate) struct Block<'a> {
    pub(crate) stage: Stage,
    pub(crate) access: Access,
    pub(crate) name: Option<&'a str>,
    pub(crate) body: Vec<Token<'a>>,
    pub(crate) place: Place,
}

/// Lines without comments, with their numbers.
pub(crate) fn lines(text: &str) -> impl Iterator<Item = (u32, &str)> {
    let bare = |line: &'_ str| -> usize { line.find('#').unwrap_or(line.len()) };
    (1..).zip(text.split('\n')).map(move |(number, line)| (number, &line[..bare(line)]))
}

/// Splits `{` and `}` from their neighbours.
pub(crate) fn split_braces<'a>(line: &'a str, number: u32, out: &mut Vec<Token<'a>>) {
    for mut word in line.split_whitespace() {
        while let Some(at) = word.find(['{', '}']) {
            let (before, brace) = (&word[..at], &word[at..=at]);
            if !before.is_empty() {
                out.push(Token { text: before, line: number });
            }
            out.push(Token { text: brace, line: number });
            word = &word[at + 1..];
        }
        if !word.is_empty() {
            out.push(Token { text: word, line: number });
        }
    }
}

/// Reads a text into its items. What is wrong goes to `findings`, and reading goes on behind it.
pub(crate) fn items<'a>(text: &'a str, file: &Arc<str>, findings: &mut Findings) -> Vec<Item<'a>> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut items = Vec::new();
    let mut lines = lines(text);
    while let Some((number, line)) = lines.next() {
        let mut words = line.split_whitespace();
        let Some(first) = words.next() else { continue };
        let at = place(file, number);
        if let Some((stage, access)) = block_start(first, words.clone().next()) {
            match block(stage, access, line, at.clone(), &mut lines) {
                Ok(block) => items.push(Item::Block(block)),
                Err(message) => findings.error(Some(&at), message),
            }
            continue;
        }
        let keyword = first.trim_end_matches(':').to_ascii_lowercase();
        items.push(Item::Setting { keyword, values: words.collect(), place: at });
    }
    items
}

fn block_start(first: &str, second: Option<&str>) -> Option<(Stage, Access)> {
    let stage = match first.to_ascii_lowercase().as_str() {
        "client" => Stage::Client,
        "socks" => Stage::Socks,
        _ => return None,
    };
    let verdict = second?.split('{').next().unwrap_or_default();
    let access = match verdict.to_ascii_lowercase().as_str() {
        "pass" => Access::Pass,
        "block" => Access::Block,
        _ => return None,
    };
    Some((stage, access))
}

fn block<'a>(
    stage: Stage,
    access: Access,
    first: &'a str,
    at: Place,
    lines: &mut impl Iterator<Item = (u32, &'a str)>,
) -> Result<Block<'a>, String> {
    let mut tokens = Vec::new();
    let mut read = 0;
    let mut depth = 0u32;
    let mut opened = false;
    split_braces(first, at.line, &mut tokens);
    loop {
        while let Some(token) = tokens.get(read) {
            read += 1;
            match token.text {
                "{" => {
                    depth += 1;
                    opened = true;
                }
                "}" if depth == 0 => return Err("\"}\" without a \"{\" before it".into()),
                "}" => depth -= 1,
                _ => {}
            }
            if opened && depth == 0 {
                return head(stage, access, at, &tokens, read);
            }
        }
        let Some((number, line)) = lines.next() else {
            return Err("the rule has no \"}\" at its end".into());
        };
        split_braces(line, number, &mut tokens);
    }
}

/// Everything before `{` and everything in the braces; `end` is the number of tokens up to `}`.
fn head<'a>(
    stage: Stage,
    access: Access,
    place: Place,
    tokens: &[Token<'a>],
    end: usize,
) -> Result<Block<'a>, String> {
    if let Some(extra) = tokens.get(end) {
        return Err(format!(
            "\"{}\" follows the closing brace; write it on a new line",
            shown(extra.text)
        ));
    }
    let open = tokens.iter().position(|token| token.text == "{").unwrap_or(end);
    let name = match &tokens[2..open] {
        [] => None,
        [name] => Some(unquoted(name.text)?),
        [_, extra, ..] => {
            return Err(format!(
                "a rule's name is one word, and \"{}\" follows it",
                shown(extra.text)
            ));
        }
    };
    let body = &tokens[open + 1..end - 1];
    if body.iter().any(|token| token.text == "{") {
        return Err("a rule has no braces inside".into());
    }
    Ok(Block { stage, access, name, body: body.to_vec(), place })
}

fn unquoted(name: &str) -> Result<&str, String> {
    let bare = name.strip_prefix('"').map_or(Some(name), |name| name.strip_suffix('"'));
    match bare {
        Some("") => Err("the rule's name is empty; write a word, or leave it out".into()),
        Some(bare) if !bare.contains('"') => Ok(bare),
        _ => Err("a rule's name has a \" at both ends or at none, and no blank inside".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> (Vec<String>, Vec<String>) {
        let mut findings = Findings::default();
        let file: Arc<str> = "f".into();
        let items = items(text, &file, &mut findings);
        let shown = items
            .iter()
            .map(|item| match item {
                Item::Setting { keyword, values, place } => {
                    format!("{}:{keyword}={}", place.line, values.join(","))
                }
                Item::Block(block) => {
                    let body: Vec<&str> = block.body.iter().map(|token| token.text).collect();
                    format!(
                        "{}:{} {} {}[{}]",
                        block.place.line,
                        block.stage.as_label(),
                        block.access.as_label(),
                        block.name.unwrap_or(""),
                        body.join(" ")
                    )
                }
            })
            .collect();
        (shown, findings.into_parts().0.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn reads_settings() {
        let text =
            "\u{feff}# a\r\n\r\nInternal: 127.0.0.1:1080 # b\n  userlist:: /a#b\nx\ninternal:1\n";
        assert_eq!(
            read(text).0,
            ["3:internal=127.0.0.1:1080", "4:userlist=/a", "5:x=", "6:internal:1="]
        );
    }

    #[test]
    fn reads_blocks() {
        for (text, expected) in [
            ("client pass { }", "1:client pass []"),
            ("CLIENT Pass{from: 0.0.0.0/0}", "1:client pass [from: 0.0.0.0/0]"),
            ("socks block ads {\n to: .a # {\n}\n", "1:socks block ads[to: .a]"),
            ("socks pass \"n\"\n\n{ log:x\n}", "1:socks pass n[log:x]"),
        ] {
            let (items, errors) = read(text);
            assert_eq!((items, errors), (vec![expected.to_owned()], vec![]), "{text}");
        }
    }

    #[test]
    fn refuses_broken_blocks() {
        for (text, words) in [
            ("socks pass {", "no \"}\""),
            ("\nsocks pass { } x", "follows the closing"),
            ("socks pass a b { }", "one word"),
            ("socks pass \"\" { }", "empty"),
            ("socks pass \"a { }", "both ends"),
            ("socks pass { { } }", "inside"),
            ("socks pass }", "without"),
        ] {
            let (items, errors) = read(text);
            assert!(items.is_empty(), "{text}");
            assert!(errors[0].contains(words), "{text}: {errors:?}");
            assert!(errors[0].starts_with("configuration error: f:line "), "{errors:?}");
        }
        // Not a block: a keyword that is not known, or not in the right form.
        assert_eq!(read("client pass{").1.len(), 1);
        assert_eq!(read("client allow { }").0, ["1:client=allow,{,}"]);
    }
}
