//! Configuration files for each program: the same method, password and loopback ports for all.

use std::ffi::OsString;
use std::path::Path;

use serde_json::{Value, json};

use crate::error::Error;
use crate::generator::Destination;
use crate::intercept::SERVER_MARK;
use crate::peers::Program;
use crate::scratch::random_bytes;

/// Idle timeout given to programs that take one, in seconds; longer than any measurement.
const TIMEOUT_S: u32 = 600;

/// What the local end takes from its clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Inbound {
    /// Whatever they ask for by SOCKS5.
    #[default]
    Socks5,
    /// What they send, for this one target.
    Tunnel(Destination),
    /// What the firewall gives it.
    Redirected(Interception),
}

/// How the firewall gives a redirector its connections; datagrams come by TPROXY.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interception {
    /// By REDIRECT.
    Redirect,
    /// By TPROXY.
    Tproxy,
}

impl Inbound {
    /// Host and port of the one target.
    fn forward(self) -> Option<(String, u16)> {
        match self {
            Self::Socks5 | Self::Redirected(_) => None,
            Self::Tunnel(Destination::Ip(addr)) => Some((addr.ip().to_string(), addr.port())),
            Self::Tunnel(Destination::Localhost(port)) => Some(("localhost".to_owned(), port)),
        }
    }
}

/// What both ends of a pair agree on.
pub(crate) struct Agreement<'a> {
    /// Cipher name.
    pub(crate) method: &'a str,
    /// Password, or base64 key for the 2022 methods.
    pub(crate) password: &'a str,
    /// Where the server listens on 127.0.0.1.
    pub(crate) server_port: u16,
    /// Where the local end listens on 127.0.0.1.
    pub(crate) local_port: u16,
    /// Whether datagrams are relayed as well.
    pub(crate) udp: bool,
    /// What the local end takes.
    pub(crate) inbound: Inbound,
    /// The access control list of both ends; ours only.
    pub(crate) acl: Option<&'a Path>,
}

impl Agreement<'_> {
    /// The server's and the local end's configuration files.
    pub(crate) fn documents(&self, program: Program) -> [String; 2] {
        match program {
            Program::SingBox => [self.sing_box_server(), self.sing_box_local()],
            Program::Adit
            | Program::Libev
            | Program::Rust
            | Program::RustSingle
            | Program::Direct => [self.plain_server(), self.plain_local(program)],
        }
        .map(|document| document.to_string())
    }

    /// The server's file in the form that shadowsocks-libev made common.
    ///
    /// Without `local_address`: to a server that is the address to bind before each connection to a
    /// target, which costs a search for a port that grows with every TIME_WAIT there is.
    fn plain_server(&self) -> Value {
        let mut server = json!({
            "server": "127.0.0.1",
            "server_port": self.server_port,
            "password": self.password,
            "method": self.method,
            "mode": self.mode(),
            "timeout": TIMEOUT_S,
        });
        if let Inbound::Redirected(_) = self.inbound {
            server["outbound_fwmark"] = json!(SERVER_MARK);
        }
        self.add_list(&mut server);
        server
    }

    fn add_list(&self, document: &mut Value) {
        if let Some(acl) = self.acl {
            document["acl"] = json!(acl);
        }
    }

    /// The local end's file in the same form; only shadowsocks-rust reads a fixed target from it.
    fn plain_local(&self, program: Program) -> Value {
        let mut local = json!({
            "server": "127.0.0.1",
            "server_port": self.server_port,
            "local_address": "127.0.0.1",
            "local_port": self.local_port,
            "password": self.password,
            "method": self.method,
            "mode": self.mode(),
            "timeout": TIMEOUT_S,
        });
        let forward = self.inbound.forward();
        if let (Program::Rust | Program::RustSingle, Some((host, port))) = (program, forward) {
            // One of "locals" can have a target, the only one outside of them cannot.
            local["locals"] = json!([{
                "protocol": "tunnel",
                "mode": self.mode(),
                "local_address": local["local_address"].take(),
                "local_port": local["local_port"].take(),
                "forward_address": host,
                "forward_port": port,
            }]);
        }
        self.add_list(&mut local);
        local
    }

    const fn mode(&self) -> &'static str {
        if self.udp { "tcp_and_udp" } else { "tcp_only" }
    }

    fn sing_box_server(&self) -> Value {
        let mut inbound = json!({
            "type": "shadowsocks",
            "listen": "127.0.0.1",
            "listen_port": self.server_port,
            "method": self.method,
            "password": self.password,
        });
        // Both is what it does when nothing is said.
        if !self.udp {
            inbound["network"] = json!("tcp");
        }
        json!({
            "log": { "disabled": true },
            "inbounds": [inbound],
            "outbounds": [{ "type": "direct" }],
        })
    }

    fn sing_box_local(&self) -> Value {
        let mut inbound = json!({
            "type": "socks",
            "listen": "127.0.0.1",
            "listen_port": self.local_port,
        });
        if let Some((host, port)) = self.inbound.forward() {
            inbound["type"] = json!("direct");
            inbound["override_address"] = json!(host);
            inbound["override_port"] = json!(port);
        }
        json!({
            "log": { "disabled": true },
            "inbounds": [inbound],
            "outbounds": [{
                "type": "shadowsocks",
                "server": "127.0.0.1",
                "server_port": self.server_port,
                "method": self.method,
                "password": self.password,
            }],
        })
    }
}

/// Arguments that make `program` run with a configuration file, as the end that takes `inbound`.
pub(crate) fn arguments(
    program: Program,
    file: &Path,
    workers: Option<usize>,
    inbound: Inbound,
) -> Vec<OsString> {
    let mut args: Vec<OsString> = Vec::new();
    if program == Program::SingBox {
        args.push("run".into());
    }
    args.push("-c".into());
    args.push(file.into());
    match program {
        Program::RustSingle => args.push("--single-threaded".into()),
        Program::Adit => {
            if let Some(workers) = workers {
                args.push("--workers".into());
                args.push(workers.to_string().into());
            }
        }
        Program::Libev | Program::Rust | Program::SingBox | Program::Direct => {}
    }
    if let Inbound::Redirected(Interception::Tproxy) = inbound {
        args.push("-T".into());
    }
    if let Some((host, port)) = inbound.forward() {
        let target = format!("{host}:{port}");
        match program {
            Program::Adit | Program::Libev => args.extend(["-L".into(), target.into()]),
            // Their files say it.
            Program::Rust | Program::RustSingle | Program::SingBox | Program::Direct => {}
        }
    }
    args
}

/// A fresh password that `method` accepts: the 2022 methods want base64 of exactly one key.
pub(crate) fn password(method: &str) -> Result<String, Error> {
    let len = if method == "2022-blake3-aes-128-gcm" { 16 } else { 32 };
    Ok(base64(&random_bytes(len)?))
}

/// Standard base64 with padding (RFC 4648 §4).
fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let mut padded = [0; 4];
        padded[1..=group.len()].copy_from_slice(group);
        let word = u32::from_be_bytes(padded);
        for digit in 0..4 {
            if digit > group.len() {
                text.push('=');
            } else {
                let index = (word >> (18 - 6 * digit)) & 63;
                text.push(char::from(ALPHABET[index as usize]));
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agreement(udp: bool, inbound: Inbound) -> Agreement<'static> {
        Agreement {
            method: "aes-256-gcm",
            password: "p",
            server_port: 1,
            local_port: 2,
            udp,
            inbound,
            acl: None,
        }
    }

    fn tunnel() -> Inbound {
        Inbound::Tunnel(Destination::Localhost(53))
    }

    #[test]
    fn tells_every_program_its_one_target() {
        let words = |program| arguments(program, Path::new("f"), None, tunnel());
        assert_eq!(words(Program::Libev), ["-c", "f", "-L", "localhost:53"]);
        assert_eq!(words(Program::Rust), ["-c", "f"]);
        let local = |program| -> Value {
            let [_, local] = agreement(true, tunnel()).documents(program);
            serde_json::from_str(&local).unwrap()
        };
        assert_eq!(local(Program::Libev).get("locals"), None);
        let rust = local(Program::Rust);
        assert_eq!(rust["locals"][0]["local_port"], 2);
        assert_eq!(rust["locals"][0]["forward_port"], 53);
        assert!(rust["local_port"].is_null());
        let local = local(Program::SingBox);
        assert_eq!(local["inbounds"][0]["type"], "direct");
        assert_eq!(local["inbounds"][0]["override_port"], 53);
    }

    #[test]
    fn asks_for_datagrams_when_they_are_wanted() {
        for program in [Program::Adit, Program::Libev, Program::Rust] {
            for document in agreement(true, Inbound::Socks5).documents(program) {
                assert!(document.contains("tcp_and_udp"), "{program:?}");
            }
        }
        let server = |udp| agreement(udp, Inbound::Socks5).documents(Program::SingBox)[0].clone();
        assert!(server(false).contains("network") && !server(true).contains("network"));
    }

    #[test]
    fn tells_a_redirector_and_its_server_how() {
        let redirected = Inbound::Redirected(Interception::Tproxy);
        assert_eq!(arguments(Program::Adit, Path::new("f"), None, redirected), ["-c", "f", "-T"]);
        let redirected = Inbound::Redirected(Interception::Redirect);
        assert_eq!(arguments(Program::Adit, Path::new("f"), None, redirected), ["-c", "f"]);
        let mut agreement = agreement(true, redirected);
        agreement.acl = Some(Path::new("/list"));
        let [server, local] = agreement.documents(Program::Adit);
        let read = |text: &str| serde_json::from_str::<Value>(text).unwrap();
        assert_eq!(read(&server)["outbound_fwmark"], SERVER_MARK);
        assert!(read(&local)["outbound_fwmark"].is_null());
        assert_eq!(
            (&read(&server)["acl"], &read(&local)["acl"]),
            (&json!("/list"), &json!("/list"))
        );
    }

    #[test]
    fn encodes_the_rfc_4648_examples() {
        let pairs =
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")];
        for (plain, encoded) in pairs {
            assert_eq!(base64(plain.as_bytes()), encoded);
        }
    }

    #[test]
    fn keys_have_the_length_of_their_method() {
        assert_eq!(password("2022-blake3-aes-128-gcm").unwrap().len(), 24);
        assert_eq!(password("2022-blake3-aes-256-gcm").unwrap().len(), 44);
    }

    #[test]
    fn passes_workers_to_ours_alone() {
        let words = |program| arguments(program, Path::new("f"), Some(2), Inbound::Socks5);
        assert_eq!(words(Program::Adit), ["-c", "f", "--workers", "2"]);
        assert_eq!(words(Program::Libev), ["-c", "f"]);
        assert_eq!(words(Program::RustSingle), ["-c", "f", "--single-threaded"]);
        assert_eq!(words(Program::SingBox), ["run", "-c", "f"]);
    }

    #[test]
    fn writes_the_libev_keys() {
        let agreement = agreement(false, Inbound::Socks5);
        let documents = agreement.documents(Program::Adit);
        let [server, local] = documents.map(|text| serde_json::from_str::<Value>(&text).unwrap());
        for value in [&server, &local] {
            assert_eq!(value["server_port"], 1);
            assert_eq!(value["method"], "aes-256-gcm");
            assert_eq!(value["mode"], "tcp_only");
        }
        assert_eq!(local["local_port"], 2);
        assert_eq!(server.get("local_address"), None);
    }
}
