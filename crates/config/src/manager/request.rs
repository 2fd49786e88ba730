//! Reads requests.

use adit_shadowsocks::Method;

use super::{NewPort, PortExtras, REQUEST_LEN_MAX};
use crate::config::Mode;
use crate::diagnostic::Position;
use crate::json::{self, Member, Node, Value};
use crate::secret::Password;
use crate::value;

/// Users of one port at most; a request has no room for more.
const USERS_MAX: usize = 4096;

/// What a manager is asked for.
#[derive(Clone, Debug)]
pub enum Request {
    /// Serve a port, in place of the one with this number, if there is one.
    Add(Box<NewPort>),
    /// Serve this port no longer.
    Remove(u16),
    /// Tell the ports and their passwords.
    List,
    /// Tell the traffic of the ports.
    Ping,
    /// Note what servers have counted for these ports since they started.
    Stat(Vec<(u16, u64)>),
}

/// The kinds of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// `add`
    Add,
    /// `remove`
    Remove,
    /// `list`
    List,
    /// `ping`
    Ping,
    /// `stat`
    Stat,
}

/// Why a datagram is no request that can be served. The texts hold nothing of the datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BadRequest {
    /// It names no known command, is too long or is no text.
    Unknown(&'static str),
    /// What follows the command is missing or not of the form that it has.
    Malformed {
        /// The command.
        command: Command,
        /// What is wrong, with its place.
        why: String,
    },
    /// A method that is not known or not supported.
    Method {
        /// The name, for the answer to the sender.
        name: String,
        /// What to use instead.
        why: String,
    },
}

/// What is wrong with an object, and where.
pub(super) struct Fault {
    pub(super) position: Position,
    pub(super) key: Option<String>,
    pub(super) text: String,
    /// The name of the method, if that is what is wrong.
    pub(super) method: Option<String>,
}

impl Request {
    /// Reads a datagram.
    ///
    /// # Errors
    /// Why it is no request.
    pub fn parse(datagram: &[u8]) -> Result<Self, BadRequest> {
        if datagram.len() > REQUEST_LEN_MAX {
            return Err(BadRequest::Unknown("longer than any request"));
        }
        let text = std::str::from_utf8(datagram).map_err(|_| BadRequest::Unknown("not text"))?;
        // The C server sends the NUL that ends its string.
        let text = text.trim_matches(|c: char| c.is_ascii_whitespace() || c == '\0');
        let end = text.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(text.len());
        let (word, rest) = text.split_at(end);
        let command = Command::named(word).ok_or(BadRequest::Unknown("no known command"))?;
        let rest = rest.trim_start();
        let rest = rest.strip_prefix(':').unwrap_or(rest).trim_start();
        match command {
            // Whatever follows has no meaning, as in the C manager.
            Command::List => Ok(Self::List),
            Command::Ping => Ok(Self::Ping),
            _ => Self::with_object(command, rest),
        }
    }

    fn with_object(command: Command, text: &str) -> Result<Self, BadRequest> {
        let malformed = |why: String| BadRequest::Malformed { command, why };
        let document = json::parse(text.as_bytes()).map_err(|e| {
            let place = e.position().map(|at| format!("{at}: ")).unwrap_or_default();
            malformed(format!("{place}{e}"))
        })?;
        let members = object(&document.root).map_err(|fault| fault.into_bad(command))?;
        let request = match command {
            Command::Add => new_port(members, document.root.position).map(|p| Self::Add(p.into())),
            Command::Remove => required_port(members, document.root.position).map(Self::Remove),
            _ => members.iter().map(stat).collect::<Result<_, _>>().map(Self::Stat),
        };
        request.map_err(|fault| fault.into_bad(command))
    }
}

impl Command {
    /// The word that a request begins with.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Add => "add",
            Self::Remove => "remove",
            Self::List => "list",
            Self::Ping => "ping",
            Self::Stat => "stat",
        }
    }

    fn named(word: &str) -> Option<Self> {
        let all = [Self::Add, Self::Remove, Self::List, Self::Ping, Self::Stat];
        all.into_iter().find(|command| command.as_str() == word)
    }
}

impl std::fmt::Display for BadRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unknown(why) => f.write_str(why),
            Self::Malformed { command, why } => write!(f, "{}: {why}", command.as_str()),
            Self::Method { why, .. } => write!(f, "add: key \"method\": {why}"),
        }
    }
}

impl std::error::Error for BadRequest {}

impl Fault {
    fn at(position: Position, text: impl Into<String>) -> Self {
        Self { position, key: None, text: text.into(), method: None }
    }

    fn of(member: &Member, text: impl Into<String>) -> Self {
        let key = Some(member.name.clone());
        Self { position: member.value.position, key, text: text.into(), method: None }
    }

    fn into_bad(self, command: Command) -> BadRequest {
        let Self { position, key, text, method } = self;
        if let Some(name) = method {
            return BadRequest::Method { name, why: text };
        }
        // A key may be anything, a password in the wrong place too, so only ours are shown.
        let key = key.map(|key| format!("key \"{key}\": ")).unwrap_or_default();
        BadRequest::Malformed { command, why: format!("{position}: {key}{text}") }
    }
}

/// Reads a port from an object; unknown keys are ignored.
pub(super) fn new_port(members: &[Member], position: Position) -> Result<NewPort, Fault> {
    let mut new = NewPort {
        port: required_port(members, position)?,
        password: match find(members, "password") {
            None => return Err(Fault::at(position, "\"password\" is missing")),
            Some(member) => Password::new(text(member)?),
        },
        method: None,
        mode: None,
        users: Vec::new(),
        fast_open: None,
        no_delay: None,
        extras: PortExtras::default(),
    };
    for member in members.iter().filter(|member| !matches!(member.value.node, Node::Null)) {
        match member.name.as_str() {
            "method" => new.method = Some(method(member)?),
            "mode" => new.mode = mode(member)?,
            "users" => new.users = users(member)?,
            "fast_open" => new.fast_open = Some(boolean(member)?),
            "no_delay" => new.no_delay = Some(boolean(member)?),
            "plugin" => new.extras.plugin = filled(member)?,
            "plugin_opts" => new.extras.plugin_opts = filled(member)?.map(Password::new),
            "plugin_mode" => new.extras.plugin_mode = mode(member)?,
            "acl" => new.extras.acl = filled(member)?,
            _ => {}
        }
    }
    Ok(new)
}

pub(super) fn object(value: &Value) -> Result<&[Member], Fault> {
    match &value.node {
        Node::Object(members) => Ok(members),
        other => {
            let text = format!("expected an object, found {}", other.kind());
            Err(Fault::at(value.position, text))
        }
    }
}

fn required_port(members: &[Member], position: Position) -> Result<u16, Fault> {
    let member = find(members, "server_port")
        .ok_or_else(|| Fault::at(position, "\"server_port\" is missing"))?;
    let number = match &member.value.node {
        Node::Integer(number) => Some(*number),
        Node::Text(text) => value::whole(text.trim()),
        _ => None,
    };
    value::port(number).map_err(|e| Fault::of(member, e.to_string()))
}

/// The value of a key that is there and not `null`.
fn find<'a>(members: &'a [Member], name: &str) -> Option<&'a Member> {
    members.iter().find(|m| m.name == name && !matches!(m.value.node, Node::Null))
}

fn text(member: &Member) -> Result<&str, Fault> {
    match &member.value.node {
        Node::Text(text) => Ok(text),
        other => Err(Fault::of(member, format!("expected a string, found {}", other.kind()))),
    }
}

fn filled(member: &Member) -> Result<Option<Box<str>>, Fault> {
    Ok(Some(text(member)?).filter(|text| !text.is_empty()).map(Into::into))
}

fn boolean(member: &Member) -> Result<bool, Fault> {
    match member.value.node {
        Node::Bool(value) => Ok(value),
        ref other => {
            Err(Fault::of(member, format!("expected true or false, found {}", other.kind())))
        }
    }
}

fn mode(member: &Member) -> Result<Option<Mode>, Fault> {
    let text = Some(text(member)?).filter(|text| !text.is_empty());
    text.map(value::mode).transpose().map_err(|e| Fault::of(member, e.to_string()))
}

fn method(member: &Member) -> Result<Method, Fault> {
    let name = text(member)?;
    Method::from_name(name)
        .map_err(|e| Fault { method: Some(name.to_owned()), ..Fault::of(member, e.to_string()) })
}

fn users(member: &Member) -> Result<Vec<(Box<str>, Password)>, Fault> {
    let Node::Array(items) = &member.value.node else {
        let found = member.value.node.kind();
        return Err(Fault::of(member, format!("expected an array, found {found}")));
    };
    if items.len() > USERS_MAX {
        return Err(Fault::of(member, "more than 4096 users"));
    }
    let user = |item: &Value| {
        let members = object(item)?;
        let missing = |name: &str| Fault::at(item.position, format!("the user has no \"{name}\""));
        let name = text(find(members, "name").ok_or_else(|| missing("name"))?)?;
        let password = text(find(members, "password").ok_or_else(|| missing("password"))?)?;
        Ok((name.into(), Password::new(password)))
    };
    items.iter().map(user).collect()
}

/// One port of a report.
fn stat(member: &Member) -> Result<(u16, u64), Fault> {
    let wrong = |text: &str| Fault::at(member.position, text);
    let port = value::port(value::whole(member.name.trim()));
    let port = port.map_err(|e| wrong(&e.to_string()))?;
    match member.value.node {
        Node::Integer(bytes) => match u64::try_from(bytes) {
            Ok(bytes) => Ok((port, bytes)),
            Err(_) => Err(wrong("a traffic below 0")),
        },
        ref other => Err(wrong(&format!("expected a number of bytes, found {}", other.kind()))),
    }
}
