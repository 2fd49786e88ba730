//! Servers with many ports in one process, and relays in front of servers.

use super::*;
use crate::source::tests::load_with;

const THIRD16: &str = "ICEiIyQlJicoKSorLC0uLw==";

#[test]
fn each_port_has_its_password() {
    let file = r#"{"server": ["0.0.0.0", "::"], "method": "aes-256-gcm", "mode": "tcp_and_udp",
        "port_password": {"8001": "a", "8002": "b"}, "timeout": 7}"#;
    let config = ok("ss-server", "", Some(file));
    let expected = ["0.0.0.0:8001", "[::]:8001", "0.0.0.0:8002", "[::]:8002"];
    assert_eq!(servers(&config), expected.map(|bind| format!("{bind} aes-256-gcm")));
    let Role::Server { listeners } = &config.role else { panic!("a server") };
    assert!(listeners[0].key == listeners[1].key && listeners[0].key != listeners[2].key);
    assert!(listeners.iter().all(|l| l.mode.udp() && l.timeout.as_secs() == 7));

    // As libev's manager has it: no host is every host.
    let config = ok("ss-server", "", Some(r#"{"port_password": {"8001": "a"}}"#));
    assert_eq!(servers(&config), ["0.0.0.0:8001 chacha20-ietf-poly1305"]);
    // The variable that fills in a password is not one beside the ports.
    let env = |name: &str| (name == "SS_SERVER_PASSWORD").then(|| "x".to_owned());
    let config = load_with("ss-server", "", Some(file), &env).unwrap();
    assert_eq!(config.warnings, [""; 0]);
    let config = ok("ss-server", "-k x", Some(file));
    assert!(config.warnings[0].contains("option --password: has no effect beside"));
}

#[test]
fn ports_do_not_mix_with_other_ways_to_write_them() {
    for (program, line, keys, message) in [
        ("ss-server", "", r#""server_port": 1,"#, "key \"server_port\": ports are those of"),
        ("ss-server", "-p 1", "", "option --listen-port: ports are those of"),
        ("ss-server", "-s ::1", r#""server": "h:1","#, ""),
        ("ss-server", "", r#""server": "h:1","#, "key \"server\": ports are those of"),
        ("ss-server", "", r#""users": [{"name": "a", "password": "hunter2"}],"#, "share one port"),
        ("ss-server", "", r#""servers": [{"server": "0.0.0.0:7"}],"#, "--listen-address"),
        ("ssserver", "", r#""method": "none","#, "--server-addr"),
    ] {
        let file = format!(r#"{{{keys} "port_password": {{"7": "hunter2"}}}}"#);
        if message.is_empty() {
            ok(program, line, Some(&file));
        } else {
            let found = error(program, line, Some(&file));
            assert!(found.contains(message), "{keys} {line}: {found}");
        }
    }
}

fn relay(method: &str, keys: &str, destinations: &str) -> String {
    format!(
        r#"{{"server": "::", "server_port": 1, "method": "{method}", "password": "{KEY16}",
            {keys} "destinations": [{destinations}]}}"#
    )
}

#[test]
fn a_relay_has_next_hops() {
    let hops = format!(
        r#"{{"name": "first", "server": "a.example", "server_port": 8080, "password": "{OTHER16}"}},
           {{"address": "192.0.2.1", "port": "81", "password": "{THIRD16}"}}"#
    );
    let config = ok("ss-server", "", Some(&relay("2022-blake3-aes-128-gcm", "", &hops)));
    assert_eq!(config.warnings, [""; 0]);
    let Role::Server { listeners } = &config.role else { panic!("a server") };
    let relay = listeners[0].relay.as_ref().unwrap();
    assert_eq!((relay.key.hops(), relay.destinations.len()), (2, 2));
    let shown: Vec<_> =
        relay.destinations.iter().map(|hop| format!("{} {}", hop.name, hop.endpoint)).collect();
    assert_eq!(shown, ["first a.example:8080", "192.0.2.1:81 192.0.2.1:81"]);
    assert!(ok("ss-server", "-p 1 -k x", None).secrets_on_argv);
}

#[test]
fn a_relay_says_what_is_for_its_destinations() {
    let hop = format!(r#"{{"server": "h:1", "password": "{OTHER16}"}}"#);
    let with =
        |keys| ok("ss-server", "", Some(&relay("2022-blake3-aes-128-gcm", keys, &hop))).warnings;
    for (keys, name) in
        [(r#""block_private": true,"#, "block_private"), (r#""dscp": {"443": "EF"},"#, "dscp")]
    {
        let warnings = with(keys);
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        assert!(warnings[0].contains(&format!("\"{name}\" has no effect on a relay")));
    }
    assert_eq!(with(r#""block_private": false,"#), [""; 0]);
}

#[test]
fn wrong_relays_are_errors() {
    let method = "2022-blake3-aes-128-gcm";
    let good = format!(r#"{{"server": "h:1", "password": "{OTHER16}"}}"#);
    let users = format!(r#""users": [{{"name": "a", "password": "{OTHER16}"}}],"#);
    for (method, keys, hops, message) in [
        ("aes-128-gcm", "", good.clone(), "destinations[0]\": a relay needs 2022-blake3-aes"),
        (method, &*users, good.clone(), "write \"users\" or \"destinations\""),
        (method, "", format!("{good}, {good}"), "the same key"),
        (method, "", r#"{"server": "h:1"}"#.to_owned(), "destinations[0]\": missing required"),
        (method, "", format!(r#"{{"password": "{OTHER16}"}}"#), "missing required argument"),
        (method, "", format!(r#"{{"server": "h", "password": "{OTHER16}"}}"#), "needs a port"),
        (
            method,
            "",
            r#"{"server": "h:1", "password": "hunter2"}"#.to_owned(),
            "key \"destinations[0].password\": ",
        ),
        (
            method,
            "",
            format!(r#"{{"server": "h:1", "password": "{OTHER16}:{THIRD16}"}}"#),
            "one key",
        ),
    ] {
        let found = error("ss-server", "", Some(&relay(method, keys, &hops)));
        assert!(found.contains(message), "{hops}: {found}");
    }
}

#[test]
fn entries_inherit_next_hops_with_the_key_only() {
    let file = format!(
        r#"{{"method": "2022-blake3-aes-128-gcm", "password": "{KEY16}",
            "destinations": [{{"server": "h:1", "password": "{OTHER16}"}}],
            "servers": [{{"server": "0.0.0.0:1"}}, {{"server": "0.0.0.0:2", "password": "{THIRD16}"}}]}}"#
    );
    let config = ok("ss-server", "", Some(&file));
    let Role::Server { listeners } = &config.role else { panic!("a server") };
    let relays: Vec<_> = listeners.iter().map(|l| l.relay.is_some()).collect();
    assert_eq!(relays, [true, false]);
}
