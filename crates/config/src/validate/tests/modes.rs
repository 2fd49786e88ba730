//! What is relayed: modes of listeners and servers, where datagrams go, Unix sockets.

use super::*;
use crate::config::{Mode, RemoteServer};

/// `bind mode` of each listener, or the path of a Unix socket.
fn modes(config: &Config) -> Vec<String> {
    match &config.role {
        Role::Client { locals, unix_locals, .. } => {
            let unix = unix_locals.iter().map(|local| local.path.display().to_string());
            let locals =
                locals.iter().map(|local| format!("{} {}", local.bind, local.mode.as_str()));
            locals.chain(unix).collect()
        }
        Role::Server { listeners } => {
            listeners.iter().map(|l| format!("{} {}", l.bind, l.mode.as_str())).collect()
        }
    }
}

fn remote(config: &Config) -> &[RemoteServer] {
    let Role::Client { servers, .. } = &config.role else { panic!("a client") };
    servers
}

#[test]
fn options_decide_over_the_file() {
    let file = r#"{"server": "h", "server_port": 1, "local_port": 2, "password": "x",
        "method": "aes-128-gcm" MODE}"#;
    let listen = "-s 127.0.0.1:2 -b 127.0.0.1";
    for (program, line, key, expected) in [
        ("ss-local", "", "", "tcp_only"),
        ("ss-local", "", r#", "mode": "tcp_and_udp""#, "tcp_and_udp"),
        ("ss-local", "", r#", "mode": "udp_only""#, "udp_only"),
        ("ss-local", "-u", "", "tcp_and_udp"),
        ("ss-local", "-U", "", "udp_only"),
        ("ss-local", "--tcp-only", r#", "mode": "tcp_and_udp""#, "tcp_only"),
        ("ss-local", "-U -u", r#", "mode": "tcp_only""#, "tcp_and_udp"),
        ("sslocal", "", "", "tcp_only"),
        ("sslocal", "-u", "", "udp_only"),
        ("sslocal", "-U", r#", "mode": "tcp_only""#, "tcp_and_udp"),
        ("ss-server", listen, "", "tcp_only"),
        ("ss-server", listen, r#", "mode": "tcp_and_udp""#, "tcp_and_udp"),
        ("ss-server", &format!("-U {listen}"), "", "udp_only"),
        ("ssserver", "-s 127.0.0.1:2 -u", "", "udp_only"),
        ("ssserver", "-s 127.0.0.1:2 -U", "", "tcp_and_udp"),
    ] {
        let config = ok(program, line, Some(&file.replace(" MODE", key)));
        assert_eq!(modes(&config), [format!("127.0.0.1:2 {expected}")], "{program} {line} {key}");
    }
}

#[test]
fn a_listener_relays_what_it_wants_and_a_server_may() {
    let both = r#"{"server": "a:1", "password": "x"}"#;
    let tcp = r#"{"server": "t:1", "password": "x", "mode": "tcp_only"}"#;
    let udp = r#"{"server": "u:1", "password": "x", "mode": "udp_only"}"#;
    for (top, servers, local, expected, warned) in [
        ("", both, "", "tcp_only", ""),
        (r#""mode": "tcp_and_udp","#, both, "", "tcp_and_udp", ""),
        ("", both, r#", "mode": "tcp_and_udp""#, "tcp_and_udp", ""),
        (r#""mode": "tcp_and_udp","#, both, r#", "mode": "udp_only""#, "udp_only", ""),
        ("", &format!("{tcp}, {udp}"), r#", "mode": "tcp_and_udp""#, "tcp_and_udp", ""),
        ("", tcp, r#", "mode": "tcp_and_udp""#, "tcp_only", "for one half of it"),
        ("", udp, r#", "mode": "tcp_and_udp""#, "udp_only", "for one half of it"),
        (r#""mode": "tcp_and_udp","#, both, r#", "protocol": "http""#, "tcp_only", ""),
        ("", both, r#", "protocol": "http", "mode": "tcp_and_udp""#, "tcp_only", "HTTP proxy"),
    ] {
        let file =
            format!(r#"{{{top} "servers": [{servers}], "locals": [{{"local_port": 1{local}}}]}}"#);
        let config = ok("ss-local", "", Some(&file));
        assert_eq!(modes(&config), [format!("127.0.0.1:1 {expected}")], "{file}");
        assert_eq!(config.warnings.len(), usize::from(!warned.is_empty()), "{file}");
        assert!(config.warnings.iter().all(|w| w.contains(warned)), "{:?}", config.warnings);
    }
    let listed = format!(r#"{{"servers": [{both}, {tcp}, {udp}], "local_port": 1}}"#);
    let config = ok("ss-local", "", Some(&listed));
    let found: Vec<_> = remote(&config).iter().map(|server| server.mode).collect();
    assert_eq!(found, [Mode::TcpAndUdp, Mode::TcpOnly, Mode::UdpOnly]);
    // The command line speaks for every entry.
    let config = ok("ss-local", "-u", Some(&listed));
    assert!(remote(&config).iter().all(|server| server.mode == Mode::TcpAndUdp));
}

#[test]
fn impossible_modes_are_errors() {
    let file = |server: &str, local: &str| {
        format!(
            r#"{{"servers": [{{"server": "h:1", "password": "hunter2", {server}}}],
                "locals": [{{"local_port": 1, {local}}}]}}"#
        )
    };
    for (server, local, message) in [
        (r#""mode": "tcp_only""#, r#""mode": "udp_only""#, "key \"locals[0].mode\": no server may"),
        (r#""mode": "udp_only""#, r#""mode": "tcp_only""#, "key \"locals[0].mode\": no server may"),
        (r#""mode": "udp_only""#, "", "key \"locals[0].local_port\": no server may"),
        ("", r#""mode": "udp_only", "protocol": "http""#, "an HTTP proxy relays TCP only"),
        ("", r#""mode": "tcp_and_udp", "local_address": "/x""#, "a Unix socket relays TCP only"),
        ("", r#""mode": "udp_only", "local_address": "/x""#, "a Unix socket relays TCP only"),
        (r#""mode": "udp_only""#, r#""local_address": "/x""#, "no server may be used for it"),
        (r#""tcp_weight": 0"#, "", "every server has \"tcp_weight\" 0"),
        (r#""udp_weight": 0"#, r#""mode": "tcp_and_udp""#, "every server has \"udp_weight\" 0"),
    ] {
        let found = error("ss-local", "", Some(&file(server, local)));
        assert!(found.contains(message), "{server} {local}: {found}");
    }
    // A weight counts for what is relayed only.
    ok("ss-local", "", Some(&file(r#""udp_weight": 0"#, "")));
    ok("ss-local", "", Some(&file(r#""tcp_weight": 0"#, r#""mode": "udp_only""#)));
}

#[test]
fn datagrams_have_an_address_of_their_own() {
    let line = "-s h:1 -k x -m none -b 127.0.0.1:1 -U --udp-bind-addr [::1]:2 \
                --udp-associate-addr 192.0.2.1";
    let config = ok("sslocal", line, None);
    let Role::Client { locals, .. } = &config.role else { panic!("a client") };
    assert_eq!(locals[0].udp_bind.to_string(), "[::1]:2");
    assert_eq!(locals[0].udp_associate.unwrap().to_string(), "192.0.2.1:2");

    let file = r#"{"server": "h:1", "password": "x", "mode": "tcp_and_udp", "locals": [
        {"local_port": 1}, {"local_port": 2, "local_udp_port": 3},
        {"local_address": "::1", "local_port": 4, "local_udp_address": "10.0.0.1"}]}"#;
    let config = ok("ss-local", "", Some(file));
    let Role::Client { locals, .. } = &config.role else { panic!("a client") };
    let binds: Vec<_> = locals.iter().map(|local| local.udp_bind.to_string()).collect();
    assert_eq!(binds, ["127.0.0.1:1", "127.0.0.1:3", "10.0.0.1:4"]);
    let found = error("ss-local", "", Some(&file.replace('3', "1")));
    assert!(found.contains("listens on UDP 127.0.0.1:1 a second time"), "{found}");
}

#[test]
fn a_client_listens_on_unix_sockets() {
    let config = ok("ss-local", "-s h:1 -k x -b /run/ss.sock", None);
    assert_eq!(modes(&config), ["/run/ss.sock"]);
    let config = ok("sslocal", "-s h:1 -k x -m none -b unix:/run/ss.sock", None);
    assert_eq!(modes(&config), ["/run/ss.sock"]);
    let file = r#"{"server": "h:1", "password": "x", "mode": "tcp_and_udp", "locals": [
        {"local_address": "/run/a"}, {"local_address": "unix:/run/b", "protocol": "http"},
        {"local_port": 1}]}"#;
    let config = ok("ss-local", "", Some(file));
    assert_eq!(modes(&config), ["127.0.0.1:1 tcp_and_udp", "/run/a", "/run/b"]);
    assert_eq!(config.warnings, [""; 0]);
    assert!(error("ss-local", "-b /run/c", Some(file)).contains("a Unix socket relays TCP only"));
    assert_eq!(modes(&ok("ss-local", "-b /run/c --tcp-only", Some(file))), ["/run/c"]);
    let twice = file.replace("unix:/run/b", "/run/a");
    assert!(error("ss-local", "", Some(&twice)).contains("listens on /run/a a second time"));
    let server = r#"{"server": "::", "server_port": 1, "password": "x", "local_address": "/x"}"#;
    assert!(error("ss-server", "", Some(server)).contains("write an IP address"));
}

#[test]
fn printable_salts_have_their_methods() {
    for method in ["chacha20-ietf-poly1305", "aes-256-gcm"] {
        let line = format!("-s h:1 -l 1 -k x -m {method}");
        let printable = ok("ss-local", &format!("{line} --printable-salt"), None);
        assert!(remote(&printable)[0].key != remote(&ok("ss-local", &line, None))[0].key);
    }
    for method in ["aes-128-gcm", "xchacha20-ietf-poly1305", "none"] {
        let line = format!("-s h:1 -l 1 -k hunter2 -m {method} --printable-salt");
        assert!(error("ss-local", &line, None).starts_with("option --cipher: "), "{method}");
    }
}

#[test]
fn silent_sessions_end_as_in_each_family() {
    for (program, line, seconds) in [
        ("ss-local", "-s h:1 -l 1 -k x", 60),
        ("ss-local", "-s h:1 -l 1 -k x -t 5", 10),
        ("ss-server", "-p 1 -k x -t 600", 600),
        ("ss-server", "-p 1 -k x -t 600 --udp-timeout 1", 1),
        ("ssserver", "-s h:1 -k x -m none --timeout 5", 300),
        ("sslocal", "-s h:1 -b h:1 -k x -m none --udp-timeout 5", 5),
    ] {
        assert_eq!(ok(program, line, None).udp.timeout.as_secs(), seconds, "{program} {line}");
    }
}
