//! Configurations as a whole: public examples, layering, keys, addresses.

mod managers;
mod modes;
mod ports;
mod redir;

use std::time::Duration;

use crate::config::{Config, LocalKind, Role};
use crate::source::tests::load;

const KEY16: &str = "AAECAwQFBgcICQoLDA0ODw==";
const OTHER16: &str = "EBESExQVFhcYGRobHB0eHw==";

fn ok(program: &str, line: &str, file: Option<&str>) -> Config {
    load(program, line, file).unwrap_or_else(|e| panic!("{program} {line}: {e:?}"))
}

fn error(program: &str, line: &str, file: Option<&str>) -> String {
    let text = load(program, line, file).expect_err(line).join("\n");
    assert!(!text.contains("hunter2"), "{text}");
    text
}

/// Servers of a client or listeners of a server, `address method` each.
fn servers(config: &Config) -> Vec<String> {
    match &config.role {
        Role::Client { servers, .. } => {
            servers.iter().map(|s| format!("{} {}", s.endpoint, s.key.method())).collect()
        }
        Role::Server { listeners } => {
            listeners.iter().map(|s| format!("{} {}", s.bind, s.key.method())).collect()
        }
    }
}

fn locals(config: &Config) -> Vec<String> {
    let Role::Client { locals, .. } = &config.role else { panic!("a client") };
    let show = |kind: &LocalKind| match kind {
        LocalKind::Socks => "socks".to_owned(),
        LocalKind::Http => "http".to_owned(),
        LocalKind::Tunnel { target } => format!("-> {target}"),
        LocalKind::Redir { tcp } => format!("redir by {}", tcp.as_str()),
    };
    locals.iter().map(|l| format!("{} {}", l.bind, show(&l.kind))).collect()
}

#[test]
fn the_packaged_example_works_on_both_ends() {
    let file = r#"{
        "server":["::1", "127.0.0.1"],
        "mode":"tcp_only",
        "server_port":8388,
        "local_port":1080,
        "password":"barfoo!",
        "timeout":86400,
        "method":"chacha20-ietf-poly1305"
    }"#;
    let expected = ["[::1]:8388 chacha20-ietf-poly1305", "127.0.0.1:8388 chacha20-ietf-poly1305"];
    let client = ok("ss-local", "", Some(file));
    assert_eq!(servers(&client), expected);
    assert_eq!(locals(&client), ["127.0.0.1:1080 socks"]);
    assert_eq!(client.warnings, [""; 0]);
    let server = ok("ss-server", "", Some(file));
    assert_eq!(servers(&server), expected);
    assert_eq!(server.idle_timeout(), Duration::from_secs(86400));
    assert_eq!(server.warnings.len(), 1, "local_port is for clients");
}

#[test]
fn the_extended_example_works() {
    let file = r#"{
        // three servers, one of them off
        "servers": [
            {"server": "192.0.2.1", "server_port": 8388, "method": "aes-256-gcm", "password": "a",
             "remarks": "first", "id": "u-1", "tcp_weight": 0.5, "timeout": 7},
            {"address": "2001:db8::1", "port": 8389, "method": "2022-blake3-aes-128-gcm",
             "password": "AAECAwQFBgcICQoLDA0ODw==:EBESExQVFhcYGRobHB0eHw==", "name": "second",
             "outbound_fwmark": 5, "outbound_bind_interface": "wg0"},
            {"server": "off", "server_port": 1, "method": "aes-256-gcm", "password": "c", "disabled": true},
        ],
        "locals": [
            {"local_address": "127.0.0.1", "local_port": 1080},
            {"local_address": "::1", "local_port": 3128, "protocol": "http", "mode": "tcp_only"},
            {"local_port": 5353, "protocol": "tunnel", "forward_address": "dns.example", "forward_port": 53},
            {"local_port": 9, "disabled": true},
        ],
        "outbound_bind_addr": "10.0.0.1", "timeout": 20,
    }"#;
    for program in ["sslocal", "ss-local"] {
        let config = ok(program, "", Some(file));
        assert_eq!(
            servers(&config),
            ["192.0.2.1:8388 aes-256-gcm", "[2001:db8::1]:8389 2022-blake3-aes-128-gcm"]
        );
        assert_eq!(
            locals(&config),
            ["127.0.0.1:1080 socks", "[::1]:3128 http", "127.0.0.1:5353 -> dns.example:53"]
        );
        let Role::Client { servers, .. } = &config.role else { panic!("a client") };
        assert_eq!(servers[0].name.as_deref(), Some("first"));
        assert_eq!(servers[0].id.as_deref(), Some("u-1"));
        assert_eq!((servers[0].tcp_weight, servers[1].tcp_weight), (0.5, 1.0));
        let seconds = [servers[0].timeout.as_secs(), servers[1].timeout.as_secs()];
        assert_eq!(seconds, [7, 20]);
        assert_eq!(servers[1].outbound.fwmark, Some(5));
        assert_eq!(servers[1].outbound.interface.as_deref(), Some("wg0"));
        assert_eq!(servers[0].outbound.interface, None);
        assert!(servers.iter().all(|s| s.outbound.bind_v4.is_some()));
        assert_eq!(config.warnings, [""; 0]);
    }
}

#[test]
fn a_server_shares_a_port_between_users() {
    let file = |users: &str| {
        format!(
            r#"{{"server": "::", "server_port": 1, "method": "2022-blake3-aes-128-gcm",
               "password": "{KEY16}",
               "users": [{users}]}}"#
        )
    };
    let config =
        ok("ssserver", "", Some(&file(&format!(r#"{{"name": "a", "password": "{OTHER16}"}}"#))));
    let Role::Server { listeners } = &config.role else { panic!("a server") };
    assert_eq!(listeners[0].key.users()[0].name(), "a");

    for (users, message) in [
        (r#"{"name": "a", "password": "hunter2"}"#.to_owned(), "key \"users[0].password\": "),
        (
            format!(
                r#"{{"name": "a", "password": "{OTHER16}"}}, {{"name": "a", "password": "{KEY16}"}}"#
            ),
            "key \"users[1]\": two users have this name",
        ),
        (
            format!(
                r#"{{"name": "a", "password": "{OTHER16}"}}, {{"name": "b", "password": "{OTHER16}"}}"#
            ),
            "key \"users[1].password\": two users have the same key",
        ),
    ] {
        let found = error("ssserver", "", Some(&file(&users)));
        assert!(found.contains(message), "{found}");
    }
    let old = file(&format!(r#"{{"name": "a", "password": "{OTHER16}"}}"#))
        .replace("2022-blake3-aes-128-gcm", "aes-128-gcm");
    let found = error("ssserver", "", Some(&old));
    assert!(found.contains("key \"users[0].password\": ") && found.contains("2022"), "{found}");
}

#[test]
fn wrong_key_lengths_are_named_without_the_key() {
    let file = r#"{"server": "h", "server_port": 1, "local_port": 2,
        "method": "2022-blake3-aes-256-gcm",
        "password": "AAECAwQFBgcICQoLDA0ODw=="}"#;
    for program in ["ss-local", "ss-server"] {
        let found = error(program, "", Some(file));
        assert!(found.starts_with("c.json:3:9: key \"password\": "), "{found}");
        assert!(found.contains("16 bytes") && found.contains("exactly 32"), "{found}");
        assert!(!found.contains("AAEC"), "{found}");
    }
    let found = error("ss-local", "-s h:1 -l 1 -m aes-256-gcm --key QUJD", None);
    assert!(found.starts_with("option --key: ") && found.contains("3 bytes"), "{found}");
    let found = error("ss-local", "-s h:1 -l 1 -m 2022-blake3-aes-128-gcm -k hunter2:x", None);
    assert!(found.starts_with("option --password: "), "{found}");
    // A raw key is longer than the method needs: cut to length, as the C programs do.
    ok(
        "ss-local",
        &format!("-s h:1 -l 1 -m aes-128-gcm --key {KEY16}AAAA").replace("==A", "A"),
        None,
    );
}

#[test]
fn the_command_line_beats_the_file() {
    let file = r#"{"server": "h", "server_port": 1, "local_port": 2, "local_address": "::1",
        "password": "x", "method": "aes-128-gcm", "timeout": 5, "ipv6_first": true,
        "nameserver": "1.1.1.1", "mode": "tcp_and_udp", "no_delay": true, "workers": 2}"#;
    let line = "-s g -p 3 -l 4 -b 127.0.0.2 -m aes-256-gcm -t 6 --ipv4-first -d 9.9.9.9 --tcp-only \
                --workers 8";
    let config = ok("ss-local", line, Some(file));
    assert_eq!(servers(&config), ["g:3 aes-256-gcm"]);
    assert_eq!(locals(&config), ["127.0.0.2:4 socks"]);
    assert_eq!(config.timeout, Duration::from_secs(6));
    assert_eq!(config.address_order, crate::config::AddressOrder::Ipv4First);
    assert_eq!(config.nameservers.unwrap()[0].to_string(), "9.9.9.9:53");
    assert!(config.sockets.no_delay);
    assert_eq!(config.workers.map(u16::from), Some(8));

    let list = r#"{"servers": [{"server": "a:1", "method": "aes-128-gcm", "password": "x"},
                               {"server": "b:2", "method": "aes-192-gcm", "password": "y"}],
                   "locals": [{"local_port": 5}]}"#;
    let config = ok("ss-local", "-m aes-256-gcm", Some(list));
    assert_eq!(servers(&config), ["a:1 aes-256-gcm", "b:2 aes-256-gcm"]);
    let config = ok("ss-local", "-s c:3 -k z -l 6", Some(list));
    assert_eq!(servers(&config), ["c:3 chacha20-ietf-poly1305"]);
    assert_eq!(locals(&config), ["127.0.0.1:6 socks"]);
}

#[test]
fn entries_inherit_from_the_top_level() {
    let file = r#"{"server": "a", "server_port": 1, "password": "x", "method": "aes-128-gcm",
        "servers": [{"server": "b"}, {"server": "c:2", "method": "aes-256-gcm"}]}"#;
    let config = ok("ss-server", "", Some(file));
    assert_eq!(servers(&config), ["a:1 aes-128-gcm", "b:1 aes-128-gcm", "c:2 aes-256-gcm"]);
}

#[test]
fn what_is_missing_is_missing_at_its_place() {
    let list = "{\"servers\": [\n {\"server\": \"h:1\"}], \"local_port\": 1}";
    let found = error("sslocal", "", Some(list));
    assert!(
        found.starts_with("c.json:2:2: key \"servers[0]\": missing required argument"),
        "{found}"
    );
    let found =
        error("ss-local", "", Some("{\"servers\": [{\"password\": \"x\"}], local_port: 1}"));
    assert!(found.contains("\"servers[0]\": missing required argument --server,"), "{found}");
    let found = error("ss-local", "", Some("{}"));
    assert!(found.starts_with("c.json: missing required argument"), "{found}");
    let found = error(
        "ss-local",
        "",
        Some("{\"server\":\"h:1\",\"password\":\"x\",\"local_address\":\"::1\"}"),
    );
    assert!(found.contains("--listen-port, or key \"local_port\""), "{found}");
}

#[test]
fn what_is_wrong_is_not_missing_as_well() {
    for (program, file, wrong) in [
        (
            "ss-local",
            r#"{"server": "h", "server_port": 70000, "local_port": 1, "password": "x"}"#,
            1,
        ),
        ("ss-server", r#"{"server": ["h", "g"], "server_port": "x", "password": "x"}"#, 1),
        ("ss-local", r#"{"server": "h:1", "local_port": 0, "password": "x"}"#, 1),
        ("ss-local", r#"{"server": "[::1", "local_port": 1, "password": "x"}"#, 1),
        ("ss-server", r#"{"server_port": 1, "password": 5}"#, 1),
        ("ss-server", r#"{"server_port": 1, "method": "aes", "password": "x"}"#, 1),
        ("ssserver", r#"{"server": "h:1", "method": "aes", "password": "x"}"#, 1),
        (
            "ss-tunnel",
            r#"{"server": "h:1", "local_port": 1, "tunnel_address": "h", "password": "x"}"#,
            1,
        ),
        (
            "ss-local",
            r#"{"servers": [{"address": "h", "port": 0, "password": "x"},
                            {"address": "h", "password": "x"}], "local_port": 1}"#,
            2,
        ),
        (
            "ss-local",
            r#"{"servers": [{"server": "h"}], "server_port": 0, "local_port": 1,
                         "password": "x"}"#,
            1,
        ),
    ] {
        let found = load(program, "", Some(file)).expect_err(file);
        assert_eq!(found.len(), wrong, "{file}: {found:#?}");
    }
}

#[test]
fn a_server_has_one_key() {
    let file = format!(
        r#"{{"server": "::", "server_port": 1, "method": "2022-blake3-aes-128-gcm",
            "password": "{KEY16}:{OTHER16}"}}"#
    );
    let found = error("ss-server", "", Some(&file));
    assert!(found.contains("key \"password\": ") && found.contains("one key"), "{found}");
}

#[test]
fn the_same_address_twice_is_an_error() {
    let found = error("ss-server", "-s 0.0.0.0 -s 0.0.0.0:8388 -p 8388 -k hunter2", None);
    assert!(found.contains("listens on 0.0.0.0:8388 a second time"), "{found}");
    let file = r#"{"server":"h:1","password":"x","local_port":1,"locals":[{"local_port":1}]}"#;
    assert!(error("ss-local", "", Some(file)).contains("a second time"));
    // Both families on one port are two listeners.
    let pair = ok("ss-server", "-s [::0] -s 0.0.0.0 -p 8388 -k x", None);
    assert_eq!(servers(&pair).len(), 2);
}

#[test]
fn a_c_server_listens_everywhere_by_default() {
    let config = ok("ss-server", "-p 8388 -k x", None);
    assert_eq!(servers(&config), ["0.0.0.0:8388 chacha20-ietf-poly1305"]);
}

#[test]
fn source_addresses_follow_the_family() {
    let sources = |program, line, keys: &str| {
        let file = format!(r#"{{"server": "::", "server_port": 1, "password": "x",{keys}}}"#);
        let config = ok(program, line, Some(&file));
        let Role::Server { listeners } = &config.role else { panic!("a server") };
        let outbound = listeners[0].outbound.clone();
        format!("{:?} {:?}", outbound.bind_v4, outbound.bind_v6)
    };
    for (line, keys, expected) in [
        ("", "", "None None"),
        ("", r#""local_address": "127.0.0.1""#, "None None"),
        ("", r#""local_address": "0.0.0.0""#, "None None"),
        ("", r#""local_address": "10.0.0.1""#, "Some(10.0.0.1) None"),
        ("", r#""local_address": "2001:db8::1""#, "None Some(2001:db8::1)"),
        ("-b 10.0.0.2", r#""local_address": "10.0.0.1""#, "Some(10.0.0.2) None"),
        ("-b 127.0.0.1 -b ::1", "", "Some(127.0.0.1) Some(::1)"),
        (
            "",
            r#""local_ipv4_address": "10.0.0.3", "local_ipv6_address": "::3""#,
            "Some(10.0.0.3) Some(::3)",
        ),
        ("", r#""outbound_bind_addr": "::4""#, "None Some(::4)"),
        ("-b 0.0.0.0", "", "None None"),
    ] {
        assert_eq!(sources("ss-server", line, keys), expected, "{line} {keys}");
    }
    let rust = r#""method": "aes-128-gcm", "local_address": "10.0.0.1""#;
    assert_eq!(sources("ssserver", "", rust), "None None");
    let bad = r#"{"server": "::", "server_port": 1, "password": "x", "local_address": "h"}"#;
    assert!(error("ss-server", "", Some(bad)).contains("write an IP address"));
}

#[test]
fn tunnels_have_a_target() {
    let config = ok("ss-tunnel", "-s h:1 -k x -l 53 -L [2001:db8::1]:53", None);
    assert_eq!(locals(&config), ["127.0.0.1:53 -> [2001:db8::1]:53"]);
    let file = r#"{"server":"h:1","password":"x","local_port":53,"tunnel_address":"d.example:53"}"#;
    assert_eq!(locals(&ok("ss-tunnel", "", Some(file))), ["127.0.0.1:53 -> d.example:53"]);
    assert_eq!(locals(&ok("ss-tunnel", "-L e:1", Some(file))), ["127.0.0.1:53 -> e:1"]);
    let rust = "-s h:1 -k x -m aes-128-gcm -b [::1]:53 --protocol tunnel -f d:53";
    assert_eq!(locals(&ok("sslocal", rust, None)), ["[::1]:53 -> d:53"]);
    for (program, line, message) in [
        ("sslocal", "-s h:1 -k x -m none -b [::1]:53 -f d:53", "is for tunnels only"),
        ("sslocal", "-s h:1 -k x -m none -b [::1]:53 --protocol tunnel", "--forward-addr"),
    ] {
        assert!(error(program, line, None).contains(message), "{line}");
    }
    let http = r#"{"server":"h:1","password":"x","local_port":53,"protocol":"http"}"#;
    assert!(error("ss-tunnel", "-L d:1", Some(http)).contains("tunnels only"));
    let half = r#"{"server":"h:1","password":"x","local_port":53,"protocol":"tunnel","forward_address":"h"}"#;
    assert!(error("ss-local", "", Some(half)).contains("\"forward_port\" is missing"));
}

#[test]
fn links_configure_a_client() {
    let config = ok(
        "ss-local",
        "-l 1080 --server-url ss://YWVzLTEyOC1nY206dGVzdA@192.168.100.1:8888#Example1",
        None,
    );
    assert_eq!(servers(&config), ["192.168.100.1:8888 aes-128-gcm"]);
    assert!(config.secrets_on_argv);
    let Role::Client { servers, .. } = &config.role else { panic!("a client") };
    assert_eq!(servers[0].name.as_deref(), Some("Example1"));
}

#[test]
fn no_encryption_needs_no_password_and_a_warning() {
    let config = ok("ss-server", "-p 1 -m none", None);
    assert!(config.warnings[0].contains("DOES NOT ENCRYPT"), "{:?}", config.warnings);
    assert!(ok("sslocal", "-s h:1 -m plain -b [::1]:1", None).warnings.len() == 1);
}

#[test]
fn weights_leave_a_server() {
    let file =
        r#"{"servers": [{"server": "a:1", "tcp_weight": 0, "password": "x"}], "local_port": 1}"#;
    assert!(error("ss-local", "", Some(file)).contains("tcp_weight"));
}
