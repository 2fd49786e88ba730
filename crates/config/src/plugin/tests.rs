//! Plugins: names, inheritance, links.

use std::ffi::OsString;

use crate::check::check_bytes;
use crate::config::{Config, Mode, Role};
use crate::link::Link;
use crate::source::Invocation;
use crate::{Plugin, Program};

fn report(text: &str, program: Program) -> Result<crate::Report, String> {
    check_bytes("c.json".as_ref(), text.as_bytes(), Some(program), &|_| None)
        .map_err(|found| found.iter().map(|d| format!("{d}\n")).collect())
}

fn client(keys: &str) -> String {
    format!(
        r#"{{"server": "h", "server_port": 1, "local_port": 1080, "password": "x",
"mode": "tcp_and_udp", {keys}}}"#
    )
}

fn server(keys: &str) -> String {
    format!(r#"{{"server": "0.0.0.0", "server_port": 1, "password": "x", {keys}}}"#)
}

/// What is said of the plugins of a client's servers: name, options, arguments and mode.
fn plugins(config: &Config) -> Vec<String> {
    let said = |plugin: Option<&Plugin>| match plugin {
        None => "none".to_owned(),
        Some(plugin) => format!(
            "{} {} {:?} {}",
            plugin.program,
            plugin.options.as_ref().map_or("-", |options| options.as_str()),
            plugin.args,
            plugin.mode.as_str()
        ),
    };
    match &config.role {
        Role::Client { servers, .. } => servers.iter().map(|s| said(s.plugin.as_ref())).collect(),
        Role::Server { listeners } => listeners.iter().map(|l| said(l.plugin.as_ref())).collect(),
    }
}

#[test]
fn reads_plugins_of_every_server() {
    for (keys, expected) in [
        (r#""plugin": "p""#, vec!["p - [] tcp_only"]),
        (r#""plugin": "p", "plugin_opts": """#, vec!["p - [] tcp_only"]),
        (r#""plugin": "p", "plugin_opts": "a;b=\\;c""#, vec!["p a;b=\\;c [] tcp_only"]),
        (
            r#""plugin": "/a b/p", "plugin_args": ["-x", ""], "plugin_mode": "udp_only""#,
            vec!["/a b/p - [\"-x\", \"\"] udp_only"],
        ),
        (r#""plugin": "p", "plugin_mode": "tcp_and_udp""#, vec!["p - [] tcp_and_udp"]),
        (r#""plugin": "", "plugin_opts": "", "plugin_args": []"#, vec!["none"]),
        (r#""plugin": null"#, vec!["none"]),
        // Entries take over what the top level says, all of one plugin or none of it.
        (
            r#""plugin": "p", "plugin_opts": "o", "plugin_args": ["a"], "servers": [
                {"server": "a"}, {"server": "b", "plugin": ""},
                {"server": "c", "plugin": "q"}, {"server": "d", "plugin_opts": "own"},
                {"server": "e", "plugin": "p", "plugin_mode": "tcp_and_udp"}]"#,
            vec![
                "p o [\"a\"] tcp_only",
                "p o [\"a\"] tcp_only",
                "none",
                "q - [] tcp_only",
                "p own [\"a\"] tcp_only",
                "p o [\"a\"] tcp_and_udp",
            ],
        ),
    ] {
        let report =
            report(&client(keys), Program::Local).unwrap_or_else(|e| panic!("{keys}: {e}"));
        assert_eq!(plugins(&report.config), expected, "{keys}");
    }
}

#[test]
fn says_what_is_wrong_with_a_plugin() {
    for (keys, message) in [
        (r#""plugin": "obfsproxy""#, "key \"plugin\": obfsproxy is started in a way of its own"),
        (r#""plugin": "/usr/bin/obfsproxy3""#, "obfs-local"),
        (r#""plugin": "hunter2/""#, "write the name of a program"),
        (r#""plugin": "obfs-local;hunter2""#, "goes into \"plugin_opts\""),
        (r#""plugin": "obfs-local --hunter2""#, "goes into \"plugin_opts\""),
        (r#""plugin": 5"#, "expected a string"),
        (r#""plugin": "p", "plugin_opts": 5"#, "expected a string"),
        (r#""plugin": "p", "plugin_opts": "a\u0000hunter2""#, "a NUL character"),
        (r#""plugin": "p", "plugin_args": "hunter2""#, "expected an array"),
        (r#""plugin": "p", "plugin_args": [5]"#, "an array of strings"),
        (r#""plugin": "p", "plugin_mode": "hunter2""#, "unknown mode"),
        (r#""servers": [{"server": "h", "plugin": "obfsproxy"}]"#, "key \"servers[0].plugin\": "),
    ] {
        let found = report(&client(keys), Program::Local).map(drop).expect_err(keys);
        assert!(found.contains(message), "{keys}: {found}");
        assert!(!found.contains("hunter2"), "{found}");
    }
}

#[test]
fn warns_once_about_what_a_plugin_cannot_do() {
    for (is_client, keys, message) in [
        (
            true,
            r#""plugin": "p", "plugin_mode": "udp_only", "servers": [
            {"server": "a", "mode": "tcp_only"}]"#,
            "has nothing to do",
        ),
        (true, r#""plugin": "p", "outbound_fwmark": 5, "servers": [{"server": "a"}]"#, "firewall"),
        (true, r#""plugin": "p", "interface": "eth0""#, "the plugin connects by itself"),
        (
            false,
            r#""plugin": "p", "max_connections_per_client": 5"#,
            "\"max_connections_per_client\"",
        ),
        (
            false,
            r#""plugin": "p", "plugin_mode": "tcp_and_udp", "mode": "tcp_and_udp",
            "max_sessions_per_client": 5"#,
            "\"max_sessions_per_client\"",
        ),
        (
            true,
            r#""plugin": "", "plugin_opts": "hunter2", "servers": [{"server": "a"}]"#,
            "without \"plugin\"",
        ),
    ] {
        let (text, program) = if is_client {
            (client(keys), Program::Local)
        } else {
            (server(keys), Program::Server)
        };
        let report = report(&text, program).unwrap_or_else(|e| panic!("{keys}: {e}"));
        let warnings: Vec<_> = report.warnings.iter().map(ToString::to_string).collect();
        assert_eq!(warnings.len(), 1, "{keys}: {warnings:?}");
        assert!(warnings[0].contains(message), "{keys}: {warnings:?}");
        assert!(!warnings[0].contains("hunter2"), "{warnings:?}");
    }
    // What has no limit, or is not carried, needs no warning.
    for keys in [
        r#""plugin": "p", "max_connections_per_client": 0"#,
        r#""plugin": "p", "mode": "tcp_and_udp", "max_sessions_per_client": 5"#,
    ] {
        let report = report(&server(keys), Program::Server).unwrap_or_else(|e| panic!("{e}"));
        assert!(report.warnings.is_empty(), "{keys}: {:?}", report.warnings);
    }
}

#[test]
fn options_of_a_command_line_come_first() {
    let run = |line: &str, file: &str| {
        let path = std::env::temp_dir().join(format!("adit-plugin-{}.json", std::process::id()));
        std::fs::write(&path, client(file)).expect("write a file");
        let file = ["-c".into(), path.clone().into_os_string()];
        let args = file.into_iter().chain(line.split_whitespace().map(OsString::from));
        let config = match Config::from_args("ss-local", args, &|_| None) {
            Ok(Invocation::Run(config)) => config,
            other => panic!("{line}: {other:?}"),
        };
        std::fs::remove_file(path).expect("remove a file");
        (plugins(&config).join(", "), config.secrets_on_argv)
    };
    for (line, file, expected, hides) in [
        ("--plugin q", r#""plugin": "p", "plugin_opts": "o""#, "q - [] tcp_only", false),
        ("--plugin p", r#""plugin": "p", "plugin_opts": "o""#, "p o [] tcp_only", false),
        ("--plugin p", r#""plugin_opts": "o""#, "p o [] tcp_only", false),
        ("--plugin-opts x", r#""plugin": "p", "plugin_opts": "o""#, "p x [] tcp_only", true),
        ("--plugin-mode tcp_and_udp", r#""plugin": "p""#, "p - [] tcp_and_udp", false),
        ("--plugin=", r#""plugin": "p""#, "none", false),
        (
            "--server-url ss://aes-128-gcm:x@h:1/?plugin=q%3Bk%3Dv",
            r#""plugin": "p", "plugin_opts": "o""#,
            "q k=v [] tcp_only",
            true,
        ),
        // A link is the whole server.
        ("--server-url ss://aes-128-gcm:x@h:1", r#""plugin": "p""#, "none", true),
        (
            "--plugin q --server-url ss://aes-128-gcm:x@h:1",
            r#""plugin": "p""#,
            "q - [] tcp_only",
            true,
        ),
    ] {
        assert_eq!(run(line, file), (expected.to_owned(), hides), "{line} over {file}");
    }
}

#[test]
fn links_carry_the_plugin_of_a_client() {
    let path = std::env::temp_dir().join(format!("adit-plugin-link-{}.json", std::process::id()));
    let links = |text: &str| {
        std::fs::write(&path, text).expect("write a file");
        let found = crate::links_of_file(&path, None, &|_| None);
        found.map_err(|found| found.iter().map(|d| format!("{d}\n")).collect::<String>())
    };
    let file = client(r#""method": "aes-128-gcm", "plugin": "my-p", "plugin_opts": "a=b;c""#);
    let found = links(&file).expect("a link");
    assert_eq!(found[0].encode(), "ss://YWVzLTEyOC1nY206eA@h:1/?plugin=my-p%3Ba%3Db%3Bc");
    let json = Link::parse(&found[0].encode()).expect("a link").to_json();
    let report = report(&json, Program::Local).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(plugins(&report.config), ["my-p a=b;c [] tcp_only"]);
    for (text, message) in [
        (client(r#""plugin": "p", "plugin_args": ["x"]"#), "no place for arguments"),
        (client(r#""plugin": "p", "plugin_mode": "tcp_and_udp""#), "carries TCP only"),
        (server(r#""plugin": "p""#).replace("0.0.0.0", "1.2.3.4"), "from a client's file"),
    ] {
        let found = links(&text).map(drop).expect_err("no link says that");
        assert!(found.contains(message), "{text}: {found}");
    }
    std::fs::remove_file(&path).expect("remove a file");
}

#[test]
fn reads_sip008_documents() {
    let text = r#"{"version": 1, "local_port": 1080, "servers": [
        {"id": "27b8a625-4f4b-4428-9f0f-8a2317db7c79", "remarks": "a", "server": "a",
         "server_port": 1, "password": "x", "method": "aes-128-gcm", "plugin": "obfs-local",
         "plugin_opts": "obfs=http"},
        {"id": "7842c068-c667-41f2-8f7d-04feece3cb67", "remarks": "b", "server": "b",
         "server_port": 1, "password": "x", "method": "aes-128-gcm", "plugin": "",
         "plugin_opts": ""}]}"#;
    let report = report(text, Program::Local).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(plugins(&report.config), ["obfs-local obfs=http [] tcp_only", "none"]);
    assert!(report.warnings.is_empty(), "{:?}", report.warnings);
}

#[test]
fn nothing_shows_options_or_arguments() {
    let keys = r#""plugin": "p", "plugin_opts": "hunter2", "plugin_args": ["hunter2"]"#;
    let report = report(&client(keys), Program::Local).unwrap_or_else(|e| panic!("{e}"));
    let Role::Client { servers, .. } = &report.config.role else { panic!("a client") };
    let plugin = servers[0].plugin.as_ref().expect("it has one");
    assert_eq!(plugin.mode, Mode::TcpOnly);
    assert!(!format!("{plugin:?} {:?}", report.config).contains("hunter2"));
}
