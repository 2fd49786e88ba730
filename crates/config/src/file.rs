//! Configuration files: the keys of every known program, put into [`Raw`].
//!
//! `keys` holds one table per kind of object, `readers` what is neither a plain value nor a
//! setting that an option has as well; [`Reader`] walks a document, looks each key up and reports what is unknown, duplicated, of the wrong type
//! or without effect. A key that belongs to another program (`local_port` on a server) gets a
//! warning: shared templates have them.

mod keys;
mod readers;
mod subscription;

use std::borrow::Cow;
use std::fmt;

use crate::diagnostic::{Findings, Origin, Position};
use crate::json::{self, Member, Node, Value};
use crate::names::Names;
use crate::program::Program;
use crate::raw::Raw;
use crate::secret::Password;
use crate::setting::{Given, Setting};
use crate::suggest::nearest;
use crate::value;

pub(crate) use subscription::{SubscribedEntry, read_subscription};

/// Unknown keys reported one by one; a file of the wrong kind has thousands.
const UNKNOWN_MAX: usize = 20;

/// Looks up an environment variable.
pub(crate) type Lookup<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Reads the bytes of a configuration file; `None` when they are not a JSON object, in which
/// case `findings` says why.
pub(crate) fn read(
    bytes: &[u8],
    program: Program,
    env: Lookup<'_>,
    findings: &mut Findings,
) -> Option<Raw> {
    let document = parse(bytes, findings)?;
    let mut reader = Reader { program, env, findings, unknown: 0 };
    for (position, name) in &document.duplicates {
        let origin = reader.origin(*position, Some(name.clone()));
        // A name that is a port says what the port does.
        if value::whole(name).is_some() {
            reader.findings.error(origin, "the port is given more than once; remove one");
        } else {
            reader.findings.warn(origin, "is given more than once; the last one counts");
        }
    }
    let Node::Object(members) = &document.root.node else {
        let origin = reader.origin(document.root.position, None);
        reader.findings.error(origin, "expected an object, { ... }");
        return None;
    };
    let mut raw = Raw::default();
    reader.scope(&[keys::TOP, keys::SERVER, keys::LOCAL], &mut raw, members, "");
    Some(raw)
}

/// Guesses the program that a file is for.
pub(crate) fn guess(bytes: &[u8], findings: &mut Findings) -> Option<Program> {
    let document = parse(bytes, findings)?;
    let Node::Object(members) = &document.root.node else { return Some(Program::Server) };
    let has = |name: &str| members.iter().any(|m| m.name == name && !m.value.node.is_unset());
    let everywhere = |value: &Value| match &value.node {
        Node::Text(text) => matches!(text.as_str(), "0.0.0.0" | "::" | "[::]" | "::0" | "[::0]"),
        _ => false,
    };
    let listens = members.iter().any(|m| {
        m.name == "server"
            && match &m.value.node {
                Node::Array(items) => items.iter().any(everywhere),
                _ => everywhere(&m.value),
            }
    });
    // A server with these reports to a manager; without a port of its own it is the manager.
    let manages = has("manager_address") && !has("server_port") && !has("servers");
    Some(if has("tunnel_address") {
        Program::Tunnel
    } else if has("tcp_tproxy") {
        Program::Redir
    } else if has("locals") {
        Program::Local
    } else if has("workdir") || has("state_file") || manages {
        Program::Manager
    } else if listens || has("users") || has("destinations") || has("port_password") {
        Program::Server
    } else if has("local_port") {
        Program::Local
    } else {
        Program::Server
    })
}

fn parse(bytes: &[u8], findings: &mut Findings) -> Option<json::Document> {
    json::parse(bytes)
        .map_err(|e| {
            let origin = e.position().map_or(Origin::File, |at| findings.place(at, None));
            findings.error(origin, e.to_string());
        })
        .ok()
}

/// What reading needs to know besides the document.
struct Reader<'a> {
    program: Program,
    env: Lookup<'a>,
    findings: &'a mut Findings,
    unknown: usize,
}

/// A key with its value and its place.
struct Field<'a> {
    /// Keys above it, such as `servers[0].`.
    parent: &'a str,
    name: &'a str,
    value: &'a Value,
    /// Place of the key, or of the item in an array.
    position: Position,
}

/// Which programs a key is for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum For {
    Any,
    Client,
    Server,
    Local,
    Tunnel,
    Redir,
    Manager,
}

/// Keys of one kind of object. What is read from an entry of a list goes into a [`Raw`] of its own
/// first.
struct Key {
    /// Names, joined by `|`.
    names: &'static str,
    programs: For,
    action: Action,
}

/// What a key does.
#[derive(Clone, Copy)]
enum Action {
    /// Sets something that has an option as well.
    Set(Setting),
    /// Is read.
    Read(fn(&mut Reader<'_>, &mut Raw, &Field<'_>)),
    /// Is an object with keys of its own.
    Scope(&'static [Key]),
    /// Is refused when it holds anything; the text says what to write.
    Refuse(&'static str),
    /// Holds something that takes no effect; the text says why.
    Warn(&'static str),
    /// Is information for people and other programs.
    Quiet,
}

impl Key {
    const fn new(names: &'static str, action: Action) -> Self {
        Self { names, programs: For::Any, action }
    }

    const fn set(names: &'static str, setting: Setting) -> Self {
        Self::new(names, Action::Set(setting))
    }

    const fn read(names: &'static str, read: fn(&mut Reader<'_>, &mut Raw, &Field<'_>)) -> Self {
        Self::new(names, Action::Read(read))
    }

    const fn only(mut self, programs: For) -> Self {
        self.programs = programs;
        self
    }

    const fn names(&self) -> Names {
        Names::of(self.names)
    }
}

impl For {
    const fn has(self, program: Program) -> bool {
        match self {
            Self::Any => true,
            Self::Client => program.is_client(),
            // A manager is a server of many ports.
            Self::Server => !program.is_client(),
            Self::Local => matches!(program, Program::Local),
            Self::Tunnel => matches!(program, Program::Tunnel),
            Self::Redir => matches!(program, Program::Redir),
            Self::Manager => matches!(program, Program::Manager),
        }
    }

    const fn no_effect(self) -> &'static str {
        match self {
            Self::Any | Self::Client => "has no effect on a server",
            Self::Server => "has no effect on a client",
            Self::Local => "has an effect in ss-local only",
            Self::Tunnel => "has an effect in ss-tunnel only",
            Self::Redir => "has an effect in ss-redir only",
            Self::Manager => "has an effect in ss-manager only",
        }
    }
}

impl Field<'_> {
    /// The key with its parents.
    fn path(&self) -> String {
        format!("{}{}", self.parent, self.name)
    }

    /// A whole number, which may be in quotes.
    fn number(&self) -> Option<i64> {
        match &self.value.node {
            Node::Integer(number) => Some(*number),
            Node::Text(text) => value::whole(text.trim()),
            _ => None,
        }
    }
}

impl Reader<'_> {
    fn origin(&mut self, position: Position, key: Option<String>) -> Origin {
        self.findings.place(position, key)
    }

    fn origin_of(&mut self, field: &Field<'_>) -> Origin {
        self.origin(field.position, Some(field.path()))
    }

    fn error(&mut self, field: &Field<'_>, message: impl Into<String>) {
        let origin = self.origin_of(field);
        self.findings.error(origin, message);
    }

    fn warn(&mut self, field: &Field<'_>, message: impl Into<String>) {
        let origin = self.origin_of(field);
        self.findings.warn(origin, message);
    }

    /// Unpacks a value that was read; a complaint is recorded at the field.
    fn take<T, E: fmt::Display>(&mut self, field: &Field<'_>, result: Result<T, E>) -> Option<T> {
        result.map_err(|e| self.error(field, e.to_string())).ok()
    }

    fn wrong_type(&mut self, field: &Field<'_>, expected: &str) {
        let found = field.value.node.kind();
        self.error(field, format!("expected {expected}, found {found}"));
    }

    /// Text that is not empty; the empty text means "not set", as generated files have it.
    fn text<'v>(&mut self, field: &Field<'v>) -> Option<&'v str> {
        let Node::Text(text) = &field.value.node else {
            self.wrong_type(field, "a string");
            return None;
        };
        Some(text.as_str()).filter(|text| !text.is_empty())
    }

    fn boolean(&mut self, field: &Field<'_>) -> Option<bool> {
        let Node::Bool(value) = field.value.node else {
            self.wrong_type(field, "true or false");
            return None;
        };
        Some(value)
    }

    fn object<'v>(&mut self, field: &Field<'v>) -> &'v [Member] {
        let Node::Object(members) = &field.value.node else {
            self.wrong_type(field, "an object");
            return &[];
        };
        members
    }

    fn array<'v>(&mut self, field: &Field<'v>) -> &'v [Value] {
        let Node::Array(items) = &field.value.node else {
            self.wrong_type(field, "an array");
            return &[];
        };
        items
    }

    /// A password, where `${NAME}` stands for an environment variable.
    fn password(&mut self, field: &Field<'_>) -> Option<Password> {
        let Node::Text(text) = &field.value.node else {
            self.wrong_type(field, "a string");
            return None;
        };
        if let Some(name) = text.strip_prefix("${").and_then(|t| t.strip_suffix('}')) {
            if let Some(value) = (self.env)(name) {
                return Some(Password::new(value));
            }
            // The name is not shown: it is the password, if the user meant it so.
            self.warn(field, "has the form ${NAME} but no such variable is set; taken as it is");
        }
        Some(Password::new(text.as_str()))
    }

    /// Reads an object all of whose keys are in one of `tables`.
    fn scope(
        &mut self,
        tables: &[&'static [Key]],
        into: &mut Raw,
        members: &[Member],
        parent: &str,
    ) {
        for member in members {
            let field = field(member, parent);
            let keys = || tables.iter().flat_map(|table| table.iter());
            match keys().find(|key| key.names().any(|name| name == field.name)) {
                Some(key) => self.apply(key, into, &field),
                None => self.unknown(&field, &mut keys().flat_map(Key::names)),
            }
        }
    }

    fn apply(&mut self, key: &'static Key, into: &mut Raw, field: &Field<'_>) {
        let node = &field.value.node;
        if matches!(node, Node::Null) {
            return;
        }
        if !key.programs.has(self.program) {
            if !node.is_unset() {
                self.warn(field, key.programs.no_effect());
            }
            return;
        }
        match key.action {
            Action::Set(setting) => self.set(setting, into, field),
            Action::Read(read) => read(self, into, field),
            Action::Scope(table) => {
                let members = self.object(field);
                self.scope(&[table], into, members, &format!("{}.", field.path()));
            }
            Action::Refuse(message) if !node.is_unset() => self.error(field, message),
            Action::Warn(message) if !node.is_unset() => self.warn(field, message),
            Action::Refuse(_) | Action::Warn(_) | Action::Quiet => {}
        }
    }

    fn set(&mut self, setting: Setting, into: &mut Raw, field: &Field<'_>) {
        let origin = self.origin_of(field);
        let done = if let Setting::Switch(slot) = setting {
            *slot(into) = self.boolean(field);
            Ok(())
        } else if setting.is_number() {
            setting.set_number(into, field.number(), origin)
        } else {
            let Some(value) = self.text(field) else { return };
            setting.set(into, Given { value, origin })
        };
        self.take(field, done);
    }

    fn unknown(&mut self, field: &Field<'_>, known: &mut dyn Iterator<Item = &'static str>) {
        self.unknown += 1;
        if self.unknown > UNKNOWN_MAX {
            return;
        }
        let message: Cow<'_, str> = if self.unknown == UNKNOWN_MAX {
            "unknown key, ignored, and so are further ones".into()
        } else if let Some(close) = nearest(field.name, known) {
            format!("unknown key, ignored; did you mean \"{close}\"?").into()
        } else {
            "unknown key, ignored; remove it".into()
        };
        self.warn(field, message);
    }
}

fn field<'a>(member: &'a Member, parent: &'a str) -> Field<'a> {
    Field { parent, name: &member.name, value: &member.value, position: member.position }
}

#[cfg(test)]
mod promises;
#[cfg(test)]
mod tests;
