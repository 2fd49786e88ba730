//! Configuration files and command lines of every program.

use std::ffi::OsString;
use std::path::Path;

use serde_json::{Value, json};

use crate::account::Account;
use crate::programs::Program;

/// Timeout of programs that take one, in seconds.
const TIMEOUT_S: u32 = 60;
/// An MTU that gives shadowsocks-libev room for every packet.
///
/// It has room for twice (MTU - 95) bytes, salt and tag included. Its default of 2,794 bytes cuts
/// off what is longer, silently from an application, and by dropping the packet from the other
/// program (seen with 3.3.5: with 32-byte salts, 2,739 bytes pass to and from an IPv4 address, 2,727
/// to and from an IPv6 one).
const LIBEV_MTU: u32 = 32_900;

/// Where a relay leads to: a loopback port, and the first key of who listens there.
pub(crate) struct Destination {
    /// Port of the next program.
    pub(crate) port: u16,
    /// Its own password.
    pub(crate) password: String,
}

/// The file of a server that listens on loopback `port`.
pub(crate) fn server(program: Program, account: &Account, port: u16) -> Value {
    let Account { method, server_password, .. } = account;
    let users: Vec<Value> = account
        .users
        .iter()
        .map(|(name, password)| json!({ "name": name, "password": password }))
        .collect();
    match program {
        Program::SingBox => {
            let mut inbound = sing_box_inbound(method, server_password, port);
            if !users.is_empty() {
                inbound["users"] = users.into();
            }
            sing_box(&inbound, &json!({ "type": "direct" }))
        }
        Program::Adit | Program::Libev | Program::Rust => {
            let mut server = shadowsocks(program, method, server_password, port);
            if let Some(guise) = account.guise {
                server["plugin"] = "obfs-server".into();
                server["plugin_opts"] = format!("obfs={}", guise.name()).into();
            }
            if users.is_empty() {
                return server;
            }
            server["users"] = users.into();
            json!({ "servers": [server] })
        }
    }
}

/// The file of a relay (SIP023) that listens on loopback `port`.
pub(crate) fn relay(
    program: Program,
    method: &str,
    password: &str,
    port: u16,
    destinations: &[Destination],
) -> Value {
    let listed = destinations.iter().enumerate().map(|(number, to)| {
        json!({
            "name": format!("destination {number}"),
            "server": "127.0.0.1",
            "server_port": to.port,
            "password": to.password,
        })
    });
    let listed = Value::from_iter(listed);
    match program {
        Program::SingBox => {
            let mut inbound = sing_box_inbound(method, password, port);
            inbound["destinations"] = listed;
            sing_box(&inbound, &json!({ "type": "direct" }))
        }
        Program::Adit | Program::Libev | Program::Rust => {
            let mut relay = shadowsocks(program, method, password, port);
            relay["destinations"] = listed;
            relay
        }
    }
}

/// The file of a client with SOCKS5 on loopback `local_port` and its server on `server_port`.
pub(crate) fn client(
    program: Program,
    account: &Account,
    server_port: u16,
    local_port: u16,
) -> Value {
    let Account { method, client_password, .. } = account;
    match program {
        Program::SingBox => sing_box(
            &json!({ "type": "socks", "listen": "127.0.0.1", "listen_port": local_port }),
            &json!({
                "type": "shadowsocks",
                "server": "127.0.0.1",
                "server_port": server_port,
                "method": method,
                "password": client_password,
            }),
        ),
        Program::Adit | Program::Libev | Program::Rust => {
            let mut client = shadowsocks(program, method, client_password, server_port);
            client["local_address"] = "127.0.0.1".into();
            client["local_port"] = local_port.into();
            if let Some(guise) = account.guise {
                client["plugin"] = "obfs-local".into();
                client["plugin_opts"] =
                    format!("obfs={};obfs-host=www.example.com", guise.name()).into();
            }
            client
        }
    }
}

/// The file of a tunnel from loopback `local_port` to `port` of `host`.
pub(crate) fn tunnel(
    program: Program,
    account: &Account,
    server_port: u16,
    local_port: u16,
    (host, port): (&str, u16),
) -> Value {
    let mut document = client(program, account, server_port, local_port);
    match program {
        Program::Adit | Program::Libev => {
            let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
            document["tunnel_address"] = format!("{host}:{port}").into();
        }
        Program::Rust => {
            let local = ["local_address", "local_port"].map(|key| document[key].take());
            document["locals"] = json!([{
                "local_address": local[0],
                "local_port": local[1],
                "protocol": "tunnel",
                "mode": "tcp_and_udp",
                "forward_address": host,
                "forward_port": port,
            }]);
        }
        Program::SingBox => {
            let inbound = &mut document["inbounds"][0];
            inbound["type"] = "direct".into();
            inbound["override_address"] = host.into();
            inbound["override_port"] = port.into();
        }
    }
    document
}

/// Arguments that make `program` run with a configuration file and say what it does.
pub(crate) fn arguments(program: Program, file: &Path) -> Vec<OsString> {
    match program {
        Program::SingBox => vec!["run".into(), "-c".into(), file.into()],
        Program::Adit | Program::Libev | Program::Rust => {
            vec!["-c".into(), file.into(), "-v".into()]
        }
    }
}

/// What all files about a server on loopback `port` have in common.
///
/// Without `local_address`: to a server that is the source of outgoing connections.
fn shadowsocks(program: Program, method: &str, password: &str, port: u16) -> Value {
    let mut document = json!({
        "server": "127.0.0.1",
        "server_port": port,
        "method": method,
        "password": password,
        "mode": "tcp_and_udp",
        "timeout": TIMEOUT_S,
    });
    if program == Program::Libev {
        document["mtu"] = LIBEV_MTU.into();
    }
    document
}

/// The same of sing-box, which serves TCP and UDP unless it is told one of them.
fn sing_box_inbound(method: &str, password: &str, port: u16) -> Value {
    json!({
        "type": "shadowsocks",
        "listen": "127.0.0.1",
        "listen_port": port,
        "method": method,
        "password": password,
    })
}

/// sing-box has one file for both roles; names are resolved as the system does.
fn sing_box(inbound: &Value, outbound: &Value) -> Value {
    json!({
        "log": { "level": "debug" },
        "dns": { "servers": [{ "type": "local", "tag": "system" }] },
        "inbounds": [inbound],
        "outbounds": [outbound],
        "route": { "default_domain_resolver": "system" },
    })
}
