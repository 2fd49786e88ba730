//! Managers: addresses, state, ports of the file; and servers that report to one.

use super::*;
use crate::manager::{ManagerAddress, ManagerOptions};
use crate::source::tests::load_with;

fn options(line: &str, file: Option<&str>) -> ManagerOptions {
    ok("ss-manager", line, file).manager.expect("a manager")
}

fn home(name: &str) -> Option<String> {
    (name == "HOME").then(|| "/home/u".to_owned())
}

#[test]
fn a_manager_needs_an_address_and_no_port() {
    for (program, line, file, expected) in [
        ("ss-manager", "--manager-address 127.0.0.1:8839", "{}", "127.0.0.1:8839 (UDP)"),
        ("ss-manager", "--manager-address /run/m.sock", "{}", "/run/m.sock"),
        ("ss-manager", "--manager-address unix:/run/m.sock", "{}", "/run/m.sock"),
        ("ss-manager", "", r#"{"manager_address": "[::1]:1"}"#, "[::1]:1 (UDP)"),
        ("ss-manager", "", r#"{"manager_address": "::1", "manager_port": 7}"#, "[::1]:7 (UDP)"),
        ("ss-manager", "", r#"{"manager_address": "a:7", "manager_port": "7"}"#, "a:7 (UDP)"),
        ("ssmanager", "--manager-addr localhost:6001", "{}", "localhost:6001 (UDP)"),
        (
            "ssmanager",
            "--manager-address /run/m",
            r#"{"manager_address": "a", "manager_port": 1}"#,
            "/run/m",
        ),
    ] {
        let config = ok(program, line, Some(file));
        let manager = config.manager.as_ref().expect("a manager");
        assert_eq!(manager.address.to_string(), expected, "{line} {file}");
        assert_eq!((manager.ports.len(), servers(&config).len()), (0, 0));
        assert_eq!(manager.state_file, None);
        let warned = config.warnings.iter().any(|w| w.contains("WHOEVER"));
        assert_eq!(warned, expected.starts_with("a:"), "{:?}", config.warnings);
    }
    let config = load_with("ss-manager", "-v", None, &home).unwrap();
    let address = config.manager.unwrap().address;
    assert_eq!(address, ManagerAddress::Unix("/home/u/.ss-manager.socks".into()));
    assert!(error("ss-manager", "-v", None).contains("--manager-address"));
    let found = load_with("ssmanager", "-v", None, &home).unwrap_err().join("\n");
    assert!(found.contains("--manager-addr,"), "{found}");
    for (file, message) in [
        (r#"{"manager_address": "127.0.0.1"}"#, "needs a port; write HOST:PORT"),
        (r#"{"manager_port": 1}"#, "has no address; write \"manager_address\""),
        (r#"{"manager_address": "/run/m", "manager_port": 1}"#, "a Unix socket has no port"),
        (r#"{"manager_address": "a:1", "manager_port": 2}"#, "the address has another port"),
        (r#"{"manager_address": "a:0"}"#, "key \"manager_address\""),
        (r#"{"manager_address": "/run/"}"#, "path of a Unix socket"),
        (r#"{"manager_address": 1}"#, "expected a string"),
    ] {
        let found = error("ss-manager", "", Some(file));
        assert!(found.contains(message), "{file}: {found}");
        assert_eq!(found.lines().count(), 1, "{found}");
    }
    let long = format!("--manager-address /{}", "x".repeat(120));
    assert!(error("ss-manager", &long, None).contains("107 bytes"));
}

#[test]
fn an_address_that_others_reach_is_warned_about() {
    for address in ["0.0.0.0:1", "192.0.2.1:1", "[::]:1", "manager.example:1"] {
        let config = ok("ss-manager", &format!("--manager-address {address}"), None);
        assert!(config.warnings[0].contains("WHOEVER REACHES THIS ADDRESS"), "{address}");
    }
    for address in ["127.0.0.2:1", "[::1]:1", "localhost:1", "/m"] {
        let config = ok("ss-manager", &format!("--manager-address {address}"), None);
        assert_eq!(config.warnings, [""; 0], "{address}");
    }
}

#[test]
fn ports_of_the_file_are_served_from_the_start() {
    let file = r#"{"server": "192.0.2.1", "manager_address": "/m", "method": "aes-256-gcm",
        "local_port": 1080, "port_password": {"8001": "a", "8002": "b"}}"#;
    let config = ok("ss-manager", "-u", Some(file));
    assert_eq!(servers(&config), ["192.0.2.1:8001 aes-256-gcm", "192.0.2.1:8002 aes-256-gcm"]);
    let manager = config.manager.as_ref().unwrap();
    let ports: Vec<_> =
        manager.ports.iter().map(|port| (port.port, port.listeners.len())).collect();
    assert_eq!(ports, [(8001, 1), (8002, 1)]);
    assert!(manager.ports[0].listeners[0].mode.udp());

    // Entries at the same port are one port.
    let file = r#"{"manager_address": "/m", "servers": [
        {"server": "192.0.2.1", "server_port": 1, "password": "a", "method": "aes-256-gcm"},
        {"server": "192.0.2.2", "server_port": 1, "password": "b", "method": "aes-256-gcm"},
        {"server": "192.0.2.1", "server_port": 2, "password": "c", "method": "aes-256-gcm"}]}"#;
    let manager = ok("ssmanager", "", Some(file)).manager.unwrap();
    let ports: Vec<_> =
        manager.ports.iter().map(|port| (port.port, port.listeners.len())).collect();
    assert_eq!(ports, [(1, 2), (2, 1)]);

    let file = r#"{"manager_address": "/m", "server": "::1", "server_port": 9, "password": "a"}"#;
    let config = ok("ss-manager", "", Some(file));
    assert_eq!(servers(&config), ["[::1]:9 chacha20-ietf-poly1305"]);
    let found = error("ss-manager", "", Some(r#"{"manager_address": "/m", "server_port": 9}"#));
    assert!(found.contains("missing required argument --password"), "{found}");
}

#[test]
fn a_password_of_no_port_is_told() {
    for (line, file) in [
        ("-k hunter2", r#"{"manager_address": "/m"}"#),
        ("", r#"{"manager_address": "/m", "password": "hunter2"}"#),
    ] {
        let config = ok("ss-manager", line, Some(file));
        assert!(config.warnings[0].contains("has no effect: each port"), "{:?}", config.warnings);
        assert_eq!(config.secrets_on_argv, !line.is_empty());
    }
    let env = |name: &str| (name == "SS_SERVER_PASSWORD").then(|| "x".to_owned());
    let file = Some(r#"{"manager_address": "/m"}"#);
    assert_eq!(load_with("ss-manager", "", file, &env).unwrap().warnings, [""; 0]);
}

#[test]
fn state_is_kept_where_it_is_asked_for() {
    let line = "--manager-address /m -D /var/lib/m";
    let manager = options(line, None);
    assert_eq!(manager.state_file.as_deref(), Some("/var/lib/m/ports.json".as_ref()));
    assert_eq!(manager.workdir.as_deref(), Some("/var/lib/m".as_ref()));
    let manager = options(&format!("{line} --state-file /x"), None);
    assert_eq!(manager.state_file.as_deref(), Some("/x".as_ref()));
    let file = r#"{"manager_address": "/m", "state_file": "/y", "workdir": "/w"}"#;
    assert_eq!(options("", Some(file)).state_file.as_deref(), Some("/y".as_ref()));
    let file = r#"{"manager_address": "/m", "workdir": "w"}"#;
    let state = options("", Some(file)).state_file.unwrap();
    assert!(state.is_absolute() && state.ends_with("w/ports.json"), "{state:?}");
    let config = ok("ss-server", "-k x -p 1", Some(r#"{"workdir": "/w", "state_file": "/y"}"#));
    assert!(config.warnings.iter().all(|w| w.contains("has an effect in ss-manager only")));
    assert_eq!(config.warnings.len(), 2);
}

#[test]
fn options_of_other_managers_are_answered() {
    let line = "--manager-address /m --executable /usr/bin/ss-server";
    let config = ok("ss-manager", line, None);
    assert!(config.warnings[0].contains("all ports are served by this process"));
    let line = "--manager-addr /m --manager-server-mode builtin --server-host 192.0.2.1";
    assert_eq!(ok("ssmanager", line, None).warnings, [""; 0]);
    let line = "--manager-addr /m --manager-server-working-directory /w";
    assert!(ok("ssmanager", line, None).warnings[0].contains("--state-file"));
    for (program, line, message) in [
        ("ssmanager", "--manager-addr /m --manager-server-mode standalone", "write builtin"),
        ("ssmanager", "--manager-addr /m --manager-server-mode x", "write builtin"),
        ("ss-manager", "-p 1", "port_password"),
        ("ss-manager", "-l 1", "no local port"),
    ] {
        assert!(error(program, line, None).contains(message), "{line}");
    }
}

#[test]
fn a_server_reports_where_it_is_told_to() {
    for (program, line, file) in [
        ("ss-server", "-k x -p 1 --manager-address 127.0.0.1:7", "{}"),
        ("ssserver", "-k x -s 0.0.0.0:1 -m aes-256-gcm --manager-addr 127.0.0.1:7", "{}"),
        ("ss-server", "-k x -p 1", r#"{"manager_address": "127.0.0.1", "manager_port": 7}"#),
    ] {
        let config = ok(program, line, Some(file));
        assert!(config.manager.is_none());
        assert_eq!(config.report_to.unwrap().to_string(), "127.0.0.1:7 (UDP)", "{line}");
    }
    let config = ok("ss-local", "-s h:1 -k x -l 1", Some(r#"{"manager_address": "/m"}"#));
    assert!(config.warnings[0].contains("no effect on a client") && config.report_to.is_none());
    assert_eq!(ok("ss-server", "-k x -p 1", None).report_to, None);
}
