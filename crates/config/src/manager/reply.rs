//! Writes answers in the words of each dialect.
//!
//! What does not fit into one datagram goes into several, each of which is complete by itself: an
//! array, or a `stat: {…}`. The C manager cuts its text wherever its buffer ends.

use std::fmt::Write;

use zeroize::Zeroizing;

use super::{BadRequest, Command, ManagedPort};
use crate::json::quote;
use crate::program::Dialect;
use crate::secret::Secret;

/// Longest datagram of an answer, bytes, unless one port alone takes more: what clients of the C
/// manager have room for.
pub(super) const REPLY_LEN_MAX: usize = 32_767;

/// One datagram for the sender of a request. It may hold passwords, and is wiped when dropped.
#[derive(Clone, PartialEq, Eq)]
pub struct Reply(Zeroizing<String>);

/// How a request that changes something went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It is done.
    Done,
    /// It could not be read.
    Bad(BadRequest),
    /// It was read, but what it asks for is not possible; the text says why.
    Refused(String),
    /// The port cannot be bound.
    PortTaken,
}

impl Reply {
    fn new(text: String) -> Self {
        Self(Zeroizing::new(text))
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }

    /// The datagrams that tell the traffic of ports, in bytes.
    pub fn traffic(dialect: Dialect, ports: impl IntoIterator<Item = (u16, u64)>) -> Vec<Self> {
        let items = ports.into_iter().map(|(port, bytes)| stat_item(port, bytes));
        split(items, "stat: {", ",", &format!("}}{}", line_end(dialect)))
    }

    /// The datagrams that list ports with their passwords.
    pub fn list<'p>(
        dialect: Dialect,
        ports: impl IntoIterator<Item = &'p ManagedPort>,
    ) -> Vec<Self> {
        let items = ports.into_iter().map(|port| list_item(dialect, port));
        match dialect {
            Dialect::Libev => split(items, "[", ",", "\n]"),
            Dialect::Rust => split(items, "[", ",", "]\n"),
        }
    }
}

// It may hold passwords.
impl std::fmt::Debug for Reply {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Reply({} bytes)", self.0.len())
    }
}

impl Answer {
    /// The datagram that says so, if the dialect has words for it.
    pub fn reply(&self, dialect: Dialect) -> Option<Reply> {
        let text = match (dialect, self) {
            (_, Self::Done) => "ok".to_owned(),
            (_, Self::PortTaken) => "port is not available".to_owned(),
            (_, Self::Bad(BadRequest::Unknown(_))) => return None,
            // Nobody waits for an answer to a report.
            (_, Self::Bad(BadRequest::Malformed { command: Command::Stat, .. })) => return None,
            (Dialect::Libev, Self::Bad(_) | Self::Refused(_)) => "err".to_owned(),
            (Dialect::Rust, Self::Bad(BadRequest::Malformed { .. })) => return None,
            (Dialect::Rust, Self::Bad(BadRequest::Method { name, .. })) => {
                format!("unrecognized method \"{}\"", name.escape_debug())
            }
            (Dialect::Rust, Self::Refused(why)) => format!("invalid server: {why}"),
        };
        Some(Reply::new(text + line_end(dialect)))
    }
}

/// The datagram in which a server reports the traffic of a port, in bytes since its start.
pub fn report(port: u16, bytes: u64) -> String {
    format!("stat: {{{}}}", stat_item(port, bytes))
}

const fn line_end(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::Libev => "",
        Dialect::Rust => "\n",
    }
}

fn stat_item(port: u16, bytes: u64) -> String {
    format!("\"{port}\":{bytes}")
}

fn list_item(dialect: Dialect, port: &ManagedPort) -> String {
    let secret = match &port.secret {
        None => "",
        Some(Secret::Password(text) | Secret::Key(text)) => text.as_str(),
    };
    let (number, secret) = (port.port, quote(secret));
    match dialect {
        Dialect::Libev => format!(
            "\n\t{{\"server_port\":\"{number}\",\"password\":{secret},\"method\":\"{}\"}}",
            port.method
        ),
        Dialect::Rust => {
            let mut text = format!("{{\"server_port\":{number},\"password\":{secret}");
            if !port.users.is_empty() {
                let users = port.users.iter().map(|(name, password)| {
                    let (name, password) = (quote(name), quote(password.as_str()));
                    format!("{{\"name\":{name},\"password\":{password}}}")
                });
                let users: Vec<_> = users.collect();
                let _infallible = write!(text, ",\"users\":[{}]", users.join(","));
            }
            text + "}"
        }
    }
}

/// Packs items into as few datagrams as it takes, in order; at least one.
fn split(items: impl Iterator<Item = String>, open: &str, between: &str, end: &str) -> Vec<Reply> {
    let mut replies = Vec::new();
    // All at once: text that moves leaves an unwiped copy behind.
    let begin = || {
        let mut text = String::with_capacity(REPLY_LEN_MAX);
        text.push_str(open);
        text
    };
    let mut text = begin();
    for item in items.map(Zeroizing::new) {
        let is_first = text.len() == open.len();
        if !is_first && text.len() + between.len() + item.len() + end.len() > REPLY_LEN_MAX {
            text.push_str(end);
            replies.push(Reply::new(std::mem::replace(&mut text, begin())));
        } else if !is_first {
            text.push_str(between);
        }
        text.push_str(&item);
    }
    text.push_str(end);
    replies.push(Reply::new(text));
    replies
}
