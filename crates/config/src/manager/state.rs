//! The file that keeps ports across restarts: a JSON object with a version and an array of what
//! `add` requests said, one port a line.

use std::path::Path;

use zeroize::Zeroizing;

use super::request::{Fault, new_port, object};
use super::{NewPort, PortExtras};
use crate::diagnostic::{Diagnostic, Findings, Position};
use crate::json::{self, Member, Node, quote};
use crate::source::read_up_to;

/// Longest file, bytes: more than as many ports as there can be, with as many users as fit into
/// their requests.
const LEN_MAX: usize = 1 << 29;
/// The format that is written and read.
const VERSION: i64 = 1;

/// The text of a state file. It holds passwords, and is wiped when dropped.
pub struct StateText(Zeroizing<String>);

impl StateText {
    /// The bytes of the file.
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

/// The text that keeps `ports`.
pub fn state_text<'p>(ports: impl IntoIterator<Item = &'p NewPort>) -> StateText {
    let items: Vec<_> = ports.into_iter().map(|port| Zeroizing::new(item(port))).collect();
    let len: usize = items.iter().map(|item| item.len() + 2).sum();
    // All at once: text that moves leaves an unwiped copy behind.
    let mut text = Zeroizing::new(String::with_capacity(len + 64));
    text.push_str("{\"version\":1,\"ports\":[");
    for (index, item) in items.iter().enumerate() {
        text.push_str(if index == 0 { "\n" } else { ",\n" });
        text.push_str(item);
    }
    text.push_str("\n]}\n");
    StateText(text)
}

/// Reads the ports that are kept in the file at `path`; none where there is no file.
///
/// # Errors
/// It cannot be read, or is damaged; with line, column and key.
pub fn read_state(path: &Path) -> Result<Vec<NewPort>, Vec<Diagnostic>> {
    if matches!(path.try_exists(), Ok(false)) {
        return Ok(Vec::new());
    }
    let bytes = read_up_to(path, LEN_MAX)?;
    let mut findings = Findings::of_file(path);
    parse(&bytes).map_err(|fault| {
        let origin = findings.place(fault.position, fault.key);
        let text = fault.text;
        findings.error(origin, format!("{text}; mend it, or move the file away to start anew"));
        findings.errors()
    })
}

/// The ports of a text, if it is whole.
pub(crate) fn read_back(bytes: &[u8]) -> Option<Vec<NewPort>> {
    parse(bytes).ok()
}

pub(super) fn parse(bytes: &[u8]) -> Result<Vec<NewPort>, Fault> {
    let fault = |position, text: String| Fault { position, key: None, text, method: None };
    let document = json::parse_up_to(bytes, LEN_MAX)
        .map_err(|e| fault(e.position().unwrap_or(Position::START), e.to_string()))?;
    let members = object(&document.root)?;
    let find = |name: &str| {
        let found = members.iter().find(|member| member.name == name);
        found.ok_or_else(|| fault(document.root.position, format!("\"{name}\" is missing")))
    };
    let version: &Member = find("version")?;
    if !matches!(version.value.node, Node::Integer(VERSION)) {
        let text = "is not a version that this program knows".to_owned();
        let key = Some(version.name.clone());
        return Err(Fault { key, ..fault(version.value.position, text) });
    }
    let ports = find("ports")?;
    let Node::Array(items) = &ports.value.node else {
        let text = format!("expected an array, found {}", ports.value.node.kind());
        return Err(Fault { key: Some(ports.name.clone()), ..fault(ports.value.position, text) });
    };
    let mut found: Vec<NewPort> = Vec::with_capacity(items.len());
    for item in items {
        let port = new_port(object(item)?, item.position)?;
        if found.iter().any(|other| other.port == port.port) {
            return Err(fault(item.position, "the port is there more than once".to_owned()));
        }
        found.push(port);
    }
    Ok(found)
}

/// A port, as a request would say it.
fn item(new: &NewPort) -> String {
    let NewPort { port, password, method, mode, users, fast_open, no_delay, extras } = new;
    let PortExtras { plugin, plugin_opts, plugin_mode, acl } = extras;
    let mut members = vec![
        format!("\"server_port\":{port}"),
        format!("\"password\":{}", quote(password.as_str())),
    ];
    let mut add = |name: &str, value: String| members.push(format!("\"{name}\":{value}"));
    for (name, value) in [
        ("method", method.map(|method| method.to_string())),
        ("mode", mode.map(|mode| mode.as_str().to_owned())),
        ("plugin", plugin.as_deref().map(str::to_owned)),
        ("plugin_opts", plugin_opts.as_ref().map(|options| options.as_str().to_owned())),
        ("plugin_mode", plugin_mode.map(|mode| mode.as_str().to_owned())),
        ("acl", acl.as_deref().map(str::to_owned)),
    ] {
        if let Some(value) = value {
            add(name, quote(&value));
        }
    }
    for (name, value) in [("fast_open", fast_open), ("no_delay", no_delay)] {
        if let Some(value) = value {
            add(name, value.to_string());
        }
    }
    if !users.is_empty() {
        let users = users.iter().map(|(name, password)| {
            format!("{{\"name\":{},\"password\":{}}}", quote(name), quote(password.as_str()))
        });
        add("users", format!("[{}]", users.collect::<Vec<_>>().join(",")));
    }
    format!("{{{}}}", members.join(","))
}

impl std::fmt::Debug for StateText {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "StateText({} bytes)", self.0.len())
    }
}
