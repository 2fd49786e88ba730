//! SIP008 documents: what a provider may say, and nothing beyond it.

use super::Reader;
use super::keys::{SERVER, SERVER_ENTRY};
use crate::diagnostic::{Findings, Position};
use crate::json::{self, Member, Node, Value};
use crate::online::{About, PLACE, SERVERS_MAX};
use crate::program::Program;
use crate::raw::{Raw, RawServer};

/// Keys of a server that a provider decides about. Every other one is ignored, as SIP008 says.
const KEYS: [&str; 11] = [
    "id",
    "remarks",
    "name",
    "server",
    "address",
    "server_port",
    "port",
    "password",
    "method",
    "plugin",
    "plugin_opts",
];

/// What a document says.
pub(crate) struct Subscription {
    pub(crate) about: About,
    /// Its servers, each with what was found wrong with it.
    pub(crate) entries: Vec<(SubscribedEntry, Findings)>,
}

/// A server of a document.
pub(crate) struct SubscribedEntry {
    pub(crate) server: RawServer,
    /// The plugin that it needs.
    pub(crate) plugin: Option<Box<str>>,
    /// Where it stands, for messages.
    pub(crate) place: String,
}

/// Reads a SIP008 document, the servers of one as a bare array, or one server as an object.
///
/// # Errors
/// Why it is none, in words that hold nothing of it.
pub(crate) fn read_subscription(bytes: &[u8], program: Program) -> Result<Subscription, String> {
    let document = json::parse(bytes).map_err(|e| match e.position() {
        Some(at) => format!("{PLACE}:{at}: {e}"),
        None => format!("it {e}"),
    })?;
    let mut about = About::default();
    let members = match document.root.node {
        Node::Array(items) => return Ok(Subscription { about, entries: entries(items, program)? }),
        Node::Object(members) => members,
        _ => return Err("it is no JSON object".to_owned()),
    };
    let number = |name: &str| {
        members.iter().find(|member| member.name == name).map(|member| match member.value.node {
            Node::Integer(number) => Some(number),
            _ => None,
        })
    };
    about.version = match number("version") {
        None => None,
        Some(Some(1)) => Some(1),
        Some(_) => return Err("it has another version of the format than 1".to_owned()),
    };
    let bytes = |name: &str| number(name).flatten().and_then(|n| u64::try_from(n).ok());
    (about.bytes_used, about.bytes_remaining) = (bytes("bytes_used"), bytes("bytes_remaining"));
    if !members.iter().any(|member| member.name == "servers") {
        if !members.iter().any(|member| member.name == "server") {
            return Err("it has no \"servers\"".to_owned());
        }
        let entry = entry(members, "", document.root.position, program);
        return Ok(Subscription { about, entries: vec![entry] });
    }
    // The last one counts, as everywhere.
    let servers = members.into_iter().rev().find(|member| member.name == "servers");
    let Some(Node::Array(items)) = servers.map(|member| member.value.node) else {
        return Err("\"servers\" is no array".to_owned());
    };
    Ok(Subscription { about, entries: entries(items, program)? })
}

fn entries(
    items: Vec<Value>,
    program: Program,
) -> Result<Vec<(SubscribedEntry, Findings)>, String> {
    if items.len() > SERVERS_MAX {
        return Err(format!("it has more than {SERVERS_MAX} servers"));
    }
    let read = |(index, item): (usize, Value)| {
        let parent = format!("servers[{index}].");
        let members = match item.node {
            Node::Object(members) => members,
            // Says that everything is missing.
            _ => Vec::new(),
        };
        entry(members, &parent, item.position, program)
    };
    Ok(items.into_iter().enumerate().map(read).collect())
}

fn entry(
    mut members: Vec<Member>,
    parent: &str,
    position: Position,
    program: Program,
) -> (SubscribedEntry, Findings) {
    let mut findings = Findings::of_file(PLACE.as_ref());
    let plugin = members.iter().find_map(|member| match &member.value.node {
        Node::Text(text) if member.name == "plugin" && !text.is_empty() => {
            Some(text.as_str().into())
        }
        _ => None,
    });
    members.retain(|member| {
        KEYS.contains(&member.name.as_str())
            && (plugin.is_some() || !member.name.starts_with("plugin"))
    });
    let key = parent.strip_suffix('.').unwrap_or(parent);
    let place = match key {
        "" => format!("{PLACE}:{position}"),
        key => format!("{PLACE}:{position}: key \"{key}\""),
    };
    let origin = findings.place(position, Some(key.to_owned()).filter(|key| !key.is_empty()));
    let mut raw = Raw {
        server: RawServer { origin: Some(origin), ..RawServer::default() },
        ..Raw::default()
    };
    // A provider learns nothing of the environment.
    let env = |_: &str| None;
    let mut reader = Reader { program, env: &env, findings: &mut findings, unknown: 0 };
    reader.scope(&[SERVER, SERVER_ENTRY], &mut raw, &members, parent);
    (SubscribedEntry { server: raw.server, plugin, place }, findings)
}
