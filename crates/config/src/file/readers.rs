//! Readers of keys that hold more than one plain value, or that no option has.

use super::keys::{DESTINATION, LOCAL, LOCAL_ENTRY, SERVER, SERVER_ENTRY, USER};
use super::{Field, Key, Reader, field};
use crate::config::Interception;
use crate::diagnostic::At;
use crate::endpoint;
use crate::json::Node;
use crate::raw::{Raw, RawLocal, RawServer, RawUser};
use crate::secret::Secret;
use crate::setting::{DNS, HOSTS_MAX, OUTBOUND_ADDRESS, PLUGIN};
use crate::value;

/// Entries of `servers`, `locals`, `destinations` or `port_password` taken at most.
const ENTRIES_MAX: usize = 1024;
/// Users of one port taken at most.
const USERS_MAX: usize = 65536;
/// Arguments of a plugin taken at most.
const PLUGIN_ARGS_MAX: usize = 256;
/// Entries of `dscp` taken at most, as in the C programs.
const DSCP_MAX: usize = 64;
/// What to say about a key beside the password made from it.
const BESIDE_KEY: &str = "has no effect beside \"key\"; remove one of them";

pub(super) fn servers(r: &mut Reader<'_>, raw: &mut Raw, f: &Field<'_>) {
    entries(r, f, ENTRIES_MAX, &[SERVER, SERVER_ENTRY], &mut |_, entry| {
        if !entry.server.disabled {
            raw.servers.push(std::mem::take(&mut entry.server));
        }
    });
}

pub(super) fn locals(r: &mut Reader<'_>, raw: &mut Raw, f: &Field<'_>) {
    entries(r, f, ENTRIES_MAX, &[LOCAL, LOCAL_ENTRY], &mut |_, entry| {
        if !entry.local.disabled {
            raw.locals.push(std::mem::take(&mut entry.local));
        }
    });
}

pub(super) fn destinations(r: &mut Reader<'_>, raw: &mut Raw, f: &Field<'_>) {
    entries(r, f, ENTRIES_MAX, &[DESTINATION], &mut |_, entry| {
        raw.server.destinations.push(std::mem::take(&mut entry.server));
    });
}

pub(super) fn users(r: &mut Reader<'_>, raw: &mut Raw, f: &Field<'_>) {
    entries(r, f, USERS_MAX, &[USER], &mut |r, entry| {
        let RawServer { name, secret, origin, .. } = &mut entry.server;
        let Some(origin) = origin.take() else { return };
        match (name.take(), secret.take()) {
            (None, _) => r.findings.error(origin, "the user has no \"name\"; write one"),
            (Some(name), Some(At { value: Secret::Password(password), origin: at })) => {
                let password = At::new(password, at);
                raw.server.users.push(RawUser { name, password, origin });
            }
            _ => r.findings.error(origin, "the user has no \"password\"; write a key in base64"),
        }
    });
}

/// Walks an array of objects, each of which is read into settings of its own.
fn entries(
    r: &mut Reader<'_>,
    f: &Field<'_>,
    entries_max: usize,
    tables: &[&'static [Key]],
    each: &mut dyn FnMut(&mut Reader<'_>, &mut Raw),
) {
    let items = r.array(f);
    if items.len() > entries_max {
        return r.error(f, format!("more than {entries_max} entries"));
    }
    for (index, item) in items.iter().enumerate() {
        let key = format!("{}[{index}]", f.path());
        let origin = r.origin(item.position, Some(key.clone()));
        let Node::Object(members) = &item.node else {
            let message = format!("expected an object, found {}", item.node.kind());
            r.findings.error(origin, message);
            continue;
        };
        let mut entry = Raw {
            server: RawServer { origin: Some(origin), ..RawServer::default() },
            local: RawLocal { origin: Some(origin), ..RawLocal::default() },
            ..Raw::default()
        };
        r.scope(tables, &mut entry, members, &format!("{key}."));
        each(r, &mut entry);
    }
}

pub(super) fn port_passwords(r: &mut Reader<'_>, raw: &mut Raw, f: &Field<'_>) {
    let members = r.object(f);
    if members.len() > ENTRIES_MAX {
        return r.error(f, format!("more than {ENTRIES_MAX} entries"));
    }
    for member in members {
        let field = field(member, "port_password.");
        let origin = r.origin_of(&field);
        let port = r.take(&field, value::port(value::whole(field.name)));
        let Some((port, password)) = port.zip(r.password(&field)) else { continue };
        if raw.port_passwords.iter().any(|(known, _)| known.value == port) {
            r.error(&field, "the port is given more than once; remove one");
        }
        let password = At::new(Secret::Password(password), origin);
        raw.port_passwords.push((At::new(port, origin), password));
    }
}

pub(super) fn hosts(r: &mut Reader<'_>, raw: &mut Raw, f: &Field<'_>) {
    let one = std::slice::from_ref(f.value);
    let items = if matches!(f.value.node, Node::Array(_)) { r.array(f) } else { one };
    if items.len() > HOSTS_MAX {
        return r.error(f, "more than 10 servers; write them as \"servers\"");
    }
    for item in items {
        let Node::Text(text) = &item.node else {
            return r.wrong_type(f, "a string or an array of strings");
        };
        let parsed = endpoint::split(text).map_err(|e| format!("invalid server endpoint; {e}"));
        let origin = r.origin(item.position, Some(f.path()));
        if let Some(host) = r.findings.take(origin, parsed) {
            raw.server.hosts.push(At::new(host, origin));
        }
    }
}

pub(super) fn password(r: &mut Reader<'_>, raw: &mut Raw, f: &Field<'_>) {
    let origin = r.origin_of(f);
    let secret = &mut raw.server.secret;
    // A raw key beside it wins, as in the C programs.
    if matches!(secret, Some(At { value: Secret::Key(_), .. })) {
        r.warn(f, BESIDE_KEY);
    } else if let Some(password) = r.password(f) {
        *secret = Some(At::new(Secret::Password(password), origin));
    }
}

pub(super) fn key(r: &mut Reader<'_>, raw: &mut Raw, f: &Field<'_>) {
    let origin = r.origin_of(f);
    if matches!(&f.value.node, Node::Text(text) if text.is_empty()) {
        return;
    }
    if let Some(key) = r.password(f) {
        if let Some(password) = &raw.server.secret {
            r.findings.warn(password.origin, BESIDE_KEY);
        }
        raw.server.secret = Some(At::new(Secret::Key(key), origin));
    }
}

/// The name of a plugin. Unlike other texts an empty one says something: none, whatever the level
/// above has.
pub(super) fn plugin(r: &mut Reader<'_>, raw: &mut Raw, f: &Field<'_>) {
    if matches!(&f.value.node, Node::Text(text) if text.is_empty()) {
        let origin = r.origin_of(f);
        raw.server.plugin.program = Some(At::new("".into(), origin));
    } else {
        r.set(PLUGIN, raw, f);
    }
}

pub(super) fn plugin_args(r: &mut Reader<'_>, raw: &mut Raw, f: &Field<'_>) {
    let items = r.array(f);
    if items.len() > PLUGIN_ARGS_MAX {
        return r.error(f, format!("more than {PLUGIN_ARGS_MAX} arguments"));
    }
    let mut args = Vec::with_capacity(items.len());
    for item in items {
        match &item.node {
            Node::Text(text) if !text.contains('\0') => args.push(text.as_str().into()),
            _ => return r.wrong_type(f, "an array of strings"),
        }
    }
    if !args.is_empty() {
        let origin = r.origin_of(f);
        raw.server.plugin.args = Some(At::new(args, origin));
    }
}

pub(super) fn name(r: &mut Reader<'_>, raw: &mut Raw, f: &Field<'_>) {
    raw.server.name = r.text(f).map(Into::into);
}

/// A source address whose family the key names.
pub(super) fn bind(r: &mut Reader<'_>, raw: &mut Raw, f: &Field<'_>) {
    let family = f.name == "local_ipv4_address";
    if let Some(Ok(ip)) = r.text(f).map(value::ip)
        && ip.is_ipv4() != family
    {
        return r.error(f, "is an address of the other family");
    }
    r.set(OUTBOUND_ADDRESS, raw, f);
}

pub(super) fn allowed_plugins(r: &mut Reader<'_>, raw: &mut Raw, f: &Field<'_>) {
    for item in r.array(f) {
        let Node::Text(name) = &item.node else {
            return r.wrong_type(f, "an array of strings");
        };
        raw.online.allowed_plugins.push(name.as_str().into());
    }
}

pub(super) fn allow_fragmentation(r: &mut Reader<'_>, _: &mut Raw, f: &Field<'_>) {
    if r.boolean(f) == Some(false) {
        let text = "datagrams of any size pass, and the kernel fragments them; write true";
        r.error(f, text);
    }
}

pub(super) fn tproxy(r: &mut Reader<'_>, raw: &mut Raw, f: &Field<'_>) {
    let origin = r.origin_of(f);
    if r.boolean(f) == Some(true) {
        raw.local.tcp_redir = Some(At::new(Interception::Tproxy, origin));
    }
}

pub(super) fn fixed_version(r: &mut Reader<'_>, _: &mut Raw, f: &Field<'_>) {
    if f.number() != Some(1) {
        r.error(f, "unknown version of the format; write 1");
    }
}

pub(super) fn runtime_mode(r: &mut Reader<'_>, raw: &mut Raw, f: &Field<'_>) {
    match r.text(f) {
        Some("single_thread") => raw.workers = Some(std::num::NonZeroU16::MIN),
        Some("multi_thread") | None => {}
        Some(_) => r.error(f, "write \"single_thread\" or \"multi_thread\""),
    }
}

pub(super) fn weight(r: &mut Reader<'_>, f: &Field<'_>) -> Option<f32> {
    let weight = match f.value.node {
        Node::Integer(0) => Some(0.0),
        Node::Integer(1) => Some(1.0),
        Node::Float(weight) => Some(weight).filter(|weight| (0.0..=1.0).contains(weight)),
        _ => None,
    };
    #[expect(clippy::cast_possible_truncation, reason = "a weight needs no more precision")]
    let weight = weight.map(|weight| weight as f32).ok_or("write a weight from 0 to 1");
    r.take(f, weight)
}

pub(super) fn dns(r: &mut Reader<'_>, raw: &mut Raw, f: &Field<'_>) {
    if matches!(f.value.node, Node::Object(_)) {
        let text = "resolver objects are not in this version; write \"system\" or IP addresses";
        return r.error(f, text);
    }
    r.set(DNS, raw, f);
}

pub(super) fn dscp(r: &mut Reader<'_>, raw: &mut Raw, f: &Field<'_>) {
    let members = r.object(f);
    if members.len() > DSCP_MAX {
        return r.error(f, "more than 64 entries");
    }
    for member in members {
        let field = field(member, "dscp.");
        let class = match &field.value.node {
            Node::Integer(number) => value::dscp(&number.to_string()),
            Node::Text(text) => value::dscp(text),
            _ => Err("expected a string such as \"EF\"".into()),
        };
        let class = r.take(&field, class);
        let port = r.take(&field, value::port(value::whole(field.name)));
        raw.sockets.dscp.extend(port.zip(class));
    }
    raw.sockets.dscp.sort_unstable();
    raw.sockets.dscp.dedup_by_key(|entry| entry.0);
}
