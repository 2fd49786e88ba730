//! What an expression says, as far as that can be told without searching with it.
//!
//! Most expressions of existing files are domains in other words, `(^|\.)example\.com$` above all.
//! [`Pattern::domains`] finds those, so that they cost a hash probe instead of a search. For the
//! others [`Pattern::literals`] finds text that a host must contain to match.
//!
//! This reads the syntax of `regex-lite` and has to agree with it: `tests/model.rs` and the fuzz
//! target `acl_parse` compare the results with searches. Whatever is unclear is
//! [`Node::Class`] or [`Node::Look`], which are never rewritten. Case does not matter to any host,
//! so literals are lower case whatever the flags say.

use crate::domains::Cover;
use crate::mistake::MistakeKind;
use crate::rule::is_domain;

/// Groups in groups.
const DEPTH_MAX: u32 = 24;
/// Strings that one expression is expanded to.
const STRINGS_MAX: usize = 256;
/// Largest number in `{}`. A label has 63 characters, a name 253.
const REPEAT_MAX: u32 = 255;

/// A part of an expression.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Node {
    /// This character, in lower case.
    Byte(u8),
    /// One character out of some.
    Class(Class),
    /// `^`.
    Start,
    /// `$`.
    End,
    /// Another condition that takes no characters.
    Look,
    /// One after the other; none if empty.
    Concat(Vec<Self>),
    /// One of these.
    Alternatives(Vec<Self>),
    /// So many times; without a maximum any number of times.
    Repeat(Box<Self>, u32, Option<u32>),
}

/// Kinds of classes that rewriting knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    /// Whatever a host may have: `.`, `[^/]`.
    Any,
    /// Whatever a label may have: `[^.]`.
    Label,
    /// Any other.
    Other,
}

/// An expression, read.
#[derive(Debug)]
pub(crate) struct Pattern {
    root: Node,
    /// Where groups that would be captured start: after these `(` belongs `?:`.
    #[cfg(feature = "regex")]
    captures: Vec<usize>,
}

impl Pattern {
    /// Reads `text`, which is printable ASCII.
    pub(crate) fn parse(text: &str) -> Result<Self, MistakeKind> {
        let mut reader = Reader { text: text.as_bytes(), at: 0, captures: Vec::new() };
        let root = reader.alternatives(0)?;
        if reader.at < text.len() {
            return Err(MistakeKind::BadExpression);
        }
        Ok(Self {
            root,
            #[cfg(feature = "regex")]
            captures: reader.captures,
        })
    }

    /// The same domains as rules, if the expression says nothing else.
    pub(crate) fn domains(&self) -> Option<Vec<(Cover, String)>> {
        let branches = match &self.root {
            Node::Alternatives(branches) => branches.as_slice(),
            root => std::slice::from_ref(root),
        };
        let mut domains = Vec::new();
        for branch in branches {
            let (cover, strings) = branch_domains(branch)?;
            for string in strings {
                let string = String::from_utf8(string).ok()?;
                // From `\.?$`: names have no final dot when they are compared.
                if string.ends_with('.') {
                    continue;
                }
                if !is_domain(&string) {
                    return None;
                }
                domains.push((cover, string));
            }
        }
        Some(domains).filter(|domains| !domains.is_empty())
    }

    /// Text of which a host has some, or none if a host may match without any.
    #[cfg(any(feature = "regex", test))]
    pub(crate) fn literals(&self) -> Option<Vec<Vec<u8>>> {
        literals(&self.root)
    }

    /// How deep the engine's list of branches to explore can become while it searches: no state is
    /// explored twice in a step, so all branches of all states are a bound.
    #[cfg(feature = "regex")]
    pub(crate) fn branches(&self) -> u32 {
        branches(&self.root).saturating_add(1)
    }

    /// The expression `text` that this was read from, with groups that are not captured.
    #[cfg(feature = "regex")]
    pub(crate) fn without_captures(&self, text: &str) -> String {
        let mut rewritten = String::with_capacity(text.len() + self.captures.len() * 2);
        let mut from = 0;
        for &at in &self.captures {
            rewritten.push_str(&text[from..at]);
            rewritten.push_str("?:");
            from = at;
        }
        rewritten.push_str(&text[from..]);
        rewritten
    }
}

/// A recursive-descent parser.
#[derive(Debug)]
struct Reader<'a> {
    text: &'a [u8],
    at: usize,
    captures: Vec<usize>,
}

impl Reader<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn take(&mut self, wanted: &[u8]) -> bool {
        let is_next = self.text[self.at..].starts_with(wanted);
        if is_next {
            self.at += wanted.len();
        }
        is_next
    }

    /// Up to `)` or the end.
    fn alternatives(&mut self, depth: u32) -> Result<Node, MistakeKind> {
        if depth > DEPTH_MAX {
            return Err(MistakeKind::ExpressionTooLarge);
        }
        let mut branches = vec![self.concat(depth)?];
        while self.take(b"|") {
            branches.push(self.concat(depth)?);
        }
        let only = if branches.len() == 1 { branches.pop() } else { None };
        Ok(only.unwrap_or(Node::Alternatives(branches)))
    }

    /// Up to `|`, `)` or the end.
    fn concat(&mut self, depth: u32) -> Result<Node, MistakeKind> {
        let mut nodes = Vec::new();
        while let Some(byte) = self.peek().filter(|byte| !matches!(byte, b'|' | b')')) {
            self.at += 1;
            let node = match byte {
                b'(' => match self.group(depth)? {
                    Some(node) => node,
                    // Flags take nothing and cannot be repeated.
                    None => continue,
                },
                b'[' => Node::Class(self.class()?),
                b'\\' => self.escape()?,
                b'.' => Node::Class(Class::Any),
                b'^' => Node::Start,
                b'$' => Node::End,
                b'*' | b'+' | b'?' | b'{' => return Err(MistakeKind::BadExpression),
                b' ' | b'\t' | b'#' => return Err(MistakeKind::BlankInExpression),
                byte => Node::Byte(byte.to_ascii_lowercase()),
            };
            nodes.push(self.repeats(node)?);
        }
        let only = if nodes.len() == 1 { nodes.pop() } else { None };
        Ok(only.unwrap_or(Node::Concat(nodes)))
    }

    /// The repetitions after `node`, if any.
    fn repeats(&mut self, mut node: Node) -> Result<Node, MistakeKind> {
        let mut stacked = 0;
        while let Some(byte) = self.peek() {
            let (min, max) = match byte {
                b'*' => (0, None),
                b'+' => (1, None),
                b'?' => (0, Some(1)),
                b'{' => self.counts()?,
                _ => break,
            };
            if byte != b'{' {
                self.at += 1;
            }
            // Whether it is greedy changes what is matched, not whether.
            self.take(b"?");
            stacked += 1;
            if stacked > DEPTH_MAX {
                return Err(MistakeKind::ExpressionTooLarge);
            }
            node = Node::Repeat(Box::new(node), min, max);
        }
        Ok(node)
    }

    /// `{2}`, `{2,}` or `{2,3}`; stops after the brace.
    fn counts(&mut self) -> Result<(u32, Option<u32>), MistakeKind> {
        let len = self.text[self.at..].iter().position(|&byte| byte == b'}');
        let len = len.ok_or(MistakeKind::BadExpression)?;
        let inner = &self.text[self.at + 1..self.at + len];
        self.at += len + 1;
        let inner = std::str::from_utf8(inner).map_err(|_| MistakeKind::BadExpression)?;
        let number = |text: &str| match text.parse::<u32>() {
            _ if !text.bytes().all(|byte| byte.is_ascii_digit()) => Err(MistakeKind::BadExpression),
            Ok(number) if number <= REPEAT_MAX => Ok(number),
            Ok(_) => Err(MistakeKind::ExpressionTooLarge),
            Err(_) => Err(MistakeKind::BadExpression),
        };
        let (min, max) = match inner.split_once(',') {
            None => number(inner).map(|count| (count, Some(count)))?,
            Some((min, "")) => (number(min)?, None),
            Some((min, max)) => (number(min)?, Some(number(max)?)),
        };
        if max.is_some_and(|max| max < min) {
            return Err(MistakeKind::BadExpression);
        }
        Ok((min, max))
    }

    /// After `(`; none for flags that hold for the rest of the group around them.
    fn group(&mut self, depth: u32) -> Result<Option<Node>, MistakeKind> {
        if [b"?=", b"?!"].iter().any(|look| self.take(*look))
            || [b"?<=", b"?<!"].iter().any(|look| self.take(*look))
        {
            return Err(MistakeKind::LookAround);
        }
        if self.take(b"?P<") || self.take(b"?<") {
            let len = self.text[self.at..].iter().position(|&byte| byte == b'>');
            self.at += len.ok_or(MistakeKind::BadExpression)? + 1;
        } else if self.take(b"?") {
            let is_flag = |byte: &u8| matches!(byte, b'i' | b's' | b'm' | b'U' | b'-');
            let len = self.text[self.at..].iter().take_while(|byte| is_flag(byte)).count();
            self.at += len;
            if len > 0 && self.take(b")") {
                return Ok(None);
            }
            if !self.take(b":") {
                return Err(MistakeKind::BadExpression);
            }
        } else {
            self.captures.push(self.at);
        }
        let node = self.alternatives(depth + 1)?;
        if self.take(b")") { Ok(Some(node)) } else { Err(MistakeKind::BadExpression) }
    }

    /// After `[`.
    fn class(&mut self) -> Result<Class, MistakeKind> {
        let start = self.at;
        self.take(b"^");
        // These stand for themselves at the start.
        if !self.take(b"]") {
            while self.take(b"-") {}
        }
        loop {
            let byte = self.peek().ok_or(MistakeKind::BadExpression)?;
            if self.take(b"[:") {
                let rest = &self.text[self.at..];
                let len = rest.windows(2).position(|end| end == b":]");
                self.at += len.ok_or(MistakeKind::BadExpression)? + 2;
                continue;
            }
            self.at += 1;
            match byte {
                b']' => break,
                b'\\' => self.at += usize::from(self.peek().is_some()),
                // The engine refuses these; a literal one is written with a backslash.
                b'[' => return Err(MistakeKind::BadExpression),
                _ => {}
            }
        }
        Ok(match &self.text[start..self.at - 1] {
            b"^/" | b"^:" => Class::Any,
            b"^." | b"^\\." => Class::Label,
            _ => Class::Other,
        })
    }

    /// After `\`.
    fn escape(&mut self) -> Result<Node, MistakeKind> {
        let byte = self.peek().ok_or(MistakeKind::BadExpression)?;
        self.at += 1;
        Ok(match byte {
            b'A' => Node::Start,
            b'z' => Node::End,
            b'<' | b'>' | b'B' => Node::Look,
            b'b' => {
                // `\b{start}`, but not `\b{2}`.
                if self.text.get(self.at..self.at + 2).is_some_and(|next| {
                    next[0] == b'{' && (next[1].is_ascii_alphabetic() || next[1] == b'-')
                }) {
                    self.skip_braces()?;
                }
                Node::Look
            }
            b'x' | b'u' | b'U' => {
                if self.peek() == Some(b'{') {
                    self.skip_braces()?;
                } else {
                    self.at += match byte {
                        b'x' => 2,
                        b'u' => 4,
                        _ => 8,
                    };
                    if self.at > self.text.len() {
                        return Err(MistakeKind::BadExpression);
                    }
                }
                Node::Class(Class::Other)
            }
            b'd' | b'D' | b's' | b'S' | b'w' | b'W' | b'a' | b'f' | b't' | b'n' | b'r' | b'v' => {
                Node::Class(Class::Other)
            }
            b' ' | b'#' => return Err(MistakeKind::BlankInExpression),
            byte if byte.is_ascii_punctuation() => Node::Byte(byte),
            _ => return Err(MistakeKind::BadExpression),
        })
    }

    fn skip_braces(&mut self) -> Result<(), MistakeKind> {
        let len = self.text[self.at..].iter().position(|&byte| byte == b'}');
        self.at += len.ok_or(MistakeKind::BadExpression)? + 1;
        Ok(())
    }
}

/// The domains that one branch matches, without their final dots and with how they are covered.
fn branch_domains(branch: &Node) -> Option<(Cover, Vec<Vec<u8>>)> {
    let mut nodes = Vec::new();
    flatten(branch, &mut nodes);
    let mut nodes = nodes.as_slice();
    let mut has_end = false;
    while let [rest @ .., Node::End] = nodes {
        nodes = rest;
        has_end = true;
    }
    if !has_end {
        return None;
    }
    if let [first, rest @ ..] = nodes
        && is_start_or_dot(first)
    {
        return Some((Cover::Tree, strings(rest)?));
    }
    if let [Node::Start, first, rest @ ..] = nodes
        && is_labels(first)
    {
        return Some((Cover::Tree, strings(rest)?));
    }
    let is_anything = |node: &Node| matches!(node, Node::Repeat(node, 0 | 1, None) if **node == Node::Class(Class::Any));
    match nodes {
        [Node::Start, first, rest @ ..] if is_anything(first) => nodes = rest,
        [Node::Start, rest @ ..] => return Some((Cover::Host, strings(rest)?)),
        [first, rest @ ..] if is_anything(first) => nodes = rest,
        _ => {}
    }
    // No host starts with a dot, so something is before it.
    let strings: Option<Vec<_>> = strings(nodes)?
        .into_iter()
        .map(|string| string.strip_prefix(b".").map(<[u8]>::to_vec))
        .collect();
    Some((Cover::Below, strings?))
}

/// The nodes of a sequence, groups dissolved.
fn flatten<'a>(node: &'a Node, into: &mut Vec<&'a Node>) {
    match node {
        Node::Concat(nodes) => nodes.iter().for_each(|node| flatten(node, into)),
        Node::Repeat(node, 1, Some(1)) => flatten(node, into),
        node => into.push(node),
    }
}

/// `(^|\.)`.
fn is_start_or_dot(node: &Node) -> bool {
    const DOT: Node = Node::Byte(b'.');
    matches!(node, Node::Alternatives(nodes)
        if *nodes == [Node::Start, DOT] || *nodes == [DOT, Node::Start])
}

/// After `^`: any number of labels with their dots, such as `(.*\.)?` and `([^.]+\.)*`.
fn is_labels(node: &Node) -> bool {
    let Node::Repeat(labels, 0, times) = node else {
        return false;
    };
    let Node::Concat(labels) = &**labels else {
        return false;
    };
    let [Node::Repeat(class, 0 | 1, None), Node::Byte(b'.')] = labels.as_slice() else {
        return false;
    };
    // `[^.]` once is one label, not any number of them.
    matches!(
        (&**class, times),
        (Node::Class(Class::Any), None | Some(1)) | (Node::Class(Class::Label), None)
    )
}

/// All strings that a sequence matches, if it is nothing but strings and there are few.
fn strings(nodes: &[&Node]) -> Option<Vec<Vec<u8>>> {
    let mut all = vec![Vec::new()];
    for node in nodes {
        let next = node_strings(node)?;
        if all.len() * next.len() > STRINGS_MAX {
            return None;
        }
        all = all
            .iter()
            .flat_map(|start| next.iter().map(move |end| [start.as_slice(), end].concat()))
            .collect();
    }
    Some(all)
}

fn node_strings(node: &Node) -> Option<Vec<Vec<u8>>> {
    match node {
        Node::Byte(byte) => Some(vec![vec![*byte]]),
        Node::Concat(nodes) => strings(&nodes.iter().collect::<Vec<_>>()),
        Node::Alternatives(nodes) => {
            let mut all = Vec::new();
            for node in nodes {
                all.append(&mut node_strings(node)?);
                if all.len() > STRINGS_MAX {
                    return None;
                }
            }
            Some(all)
        }
        Node::Repeat(node, 0, Some(1)) => {
            let mut all = node_strings(node)?;
            all.push(Vec::new());
            Some(all)
        }
        Node::Repeat(node, 1, Some(1)) => node_strings(node),
        Node::Class(_) | Node::Start | Node::End | Node::Look | Node::Repeat(..) => None,
    }
}

/// Text of which every match has some; the longest that is easy to see.
#[cfg(any(feature = "regex", test))]
fn literals(node: &Node) -> Option<Vec<Vec<u8>>> {
    match node {
        Node::Byte(byte) => Some(vec![vec![*byte]]),
        Node::Concat(_) => {
            let mut nodes = Vec::new();
            flatten(node, &mut nodes);
            let mut best: Option<Vec<Vec<u8>>> = None;
            let mut run = Vec::new();
            for node in nodes {
                let found = match node {
                    Node::Byte(byte) => {
                        run.push(*byte);
                        continue;
                    }
                    // These take no characters, so what is around them is together.
                    Node::Start | Node::End | Node::Look => continue,
                    node => literals(node),
                };
                best = longer(best, Some(vec![std::mem::take(&mut run)]));
                best = longer(best, found);
            }
            longer(best, Some(vec![run]))
        }
        Node::Alternatives(nodes) => {
            let mut all = Vec::new();
            for node in nodes {
                all.append(&mut literals(node)?);
            }
            Some(all).filter(|all| all.len() <= STRINGS_MAX)
        }
        Node::Repeat(node, 1.., _) => literals(node),
        Node::Class(_) | Node::Start | Node::End | Node::Look | Node::Repeat(..) => None,
    }
}

/// The one whose shortest text is longer.
#[cfg(any(feature = "regex", test))]
fn longer(one: Option<Vec<Vec<u8>>>, other: Option<Vec<Vec<u8>>>) -> Option<Vec<Vec<u8>>> {
    let shortest = |texts: &Option<Vec<Vec<u8>>>| {
        texts.as_ref().and_then(|texts| texts.iter().map(Vec::len).min()).unwrap_or(0)
    };
    if shortest(&other) > shortest(&one) { other } else { one }
}

/// Branches of all states that the engine makes from `node`.
#[cfg(feature = "regex")]
fn branches(node: &Node) -> u32 {
    match node {
        Node::Byte(_) | Node::Class(_) | Node::Start | Node::End | Node::Look => 0,
        Node::Concat(nodes) => nodes.iter().map(branches).fold(0, u32::saturating_add),
        Node::Alternatives(nodes) => {
            let own = u32::try_from(nodes.len()).unwrap_or(u32::MAX);
            nodes.iter().map(branches).fold(own, u32::saturating_add)
        }
        Node::Repeat(node, min, max) => {
            // One more copy than the minimum stands for "any number of times".
            let copies = max.unwrap_or(min.saturating_add(1)).max(1);
            branches(node).saturating_add(2).saturating_mul(copies)
        }
    }
}

#[cfg(test)]
mod tests;
