//! The program `adit`: one command to a working proxy, keys, links, checks.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use adit_system_tests::{
    Ending, Process, Scratch, Target, config, ending, program, read_exactly, reserve, socks5,
};
use rustix::process::Signal;

/// Output of a run with words on its standard input; its status must be 0.
fn adit(args: &[&str], input: &str) -> String {
    let mut child = Command::new(program("adit"))
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

/// The value of a string key in a JSON text of ours.
fn value_of(text: &str, key: &str) -> String {
    let (_, rest) = text.split_once(&format!("\"{key}\"")).unwrap();
    rest.split('"').nth(1).unwrap().to_owned()
}

#[test]
fn up_serves_with_a_key_that_is_kept() {
    let scratch = Scratch::new();
    let (port, local_port) = (reserve(), reserve());
    let (port_text, local_text) = (port.to_string(), local_port.to_string());
    let mut links = Vec::new();
    for run in 0..2 {
        let mut command = Command::new(program("adit"));
        command
            .args(["up", "--port", &port_text, "--local-port", &local_text])
            .args(["--host", "proxy.example", "--allow-private"])
            .env("XDG_CONFIG_HOME", scratch.path());
        let up = Process::spawn("adit up", command);
        let link = up.wait_for("ss://");
        up.wait_for(&format!("listening on 127.0.0.1:{local_port}"));
        up.wait_for("worker");
        let echo = Target::echo();
        let mut client = socks5(local_port, "127.0.0.1", echo.port());
        client.write_all(b"hello").unwrap();
        assert_eq!(read_exactly(&client, 5), b"hello");
        client.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(ending(&client), (vec![], Ending::Fin));
        assert_eq!(up.text().contains("made a new key"), run == 0);
        up.signal(Signal::INT);
        assert_eq!(up.wait().code, Some(0));
        links.push(link);
    }
    let file = scratch.file("adit/up.json");
    let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode();
    assert_eq!(mode(&file) & 0o777, 0o600);
    assert_eq!(mode(file.parent().unwrap()) & 0o777, 0o700);
    assert_eq!(links[0], links[1], "the key is kept");
    let key = value_of(&std::fs::read_to_string(&file).unwrap(), "password");
    let decoded = adit(&["url", "decode", "-"], &links[0]);
    assert_eq!(value_of(&decoded, "password"), key);
    assert!(decoded.contains("proxy.example") && decoded.contains(&port_text), "{decoded}");
    let leftovers = std::fs::read_dir(scratch.file("adit")).unwrap().count();
    assert_eq!(leftovers, 1);
}

#[test]
fn up_tells_of_a_taken_port() {
    let scratch = Scratch::new();
    let taken = std::net::TcpListener::bind("0.0.0.0:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let mut command = Command::new(program("adit"));
    let local = reserve().to_string();
    command
        .args(["up", "--port", &port, "--local-port", &local])
        .env("XDG_CONFIG_HOME", scratch.path());
    let exit = Process::spawn("adit up", command).wait();
    assert_eq!(exit.code, Some(1), "{}", exit.text);
    assert!(exit.text.contains("cannot listen"), "{}", exit.text);
}

#[test]
fn keys_are_fresh_and_fit_their_method() {
    for (method, len) in
        [("2022-blake3-aes-128-gcm", 24), ("2022-blake3-aes-256-gcm", 44), ("aes-256-gcm", 44)]
    {
        let (one, two) = (adit(&["key", method], ""), adit(&["key", method], ""));
        assert_eq!(one.trim().len(), len, "{method}");
        assert_ne!(one, two);
    }
    assert_eq!(Process::run("adit", ["key", "rc4-md5"]).code, Some(2));
}

#[test]
fn links_go_both_ways() {
    let scratch = Scratch::new();
    let file = scratch.write("c.json", &config("2022-blake3-aes-256-gcm", 8388, 1080));
    let file = file.to_str().unwrap();
    let link = adit(&["url", "encode", "--host", "h.example", file], "");
    assert!(link.starts_with("ss://"), "{link}");
    let by_argument = adit(&["url", "decode", link.trim()], "");
    assert_eq!(by_argument, adit(&["url", "decode", "-"], &link));
    let decoded = scratch.write("d.json", &by_argument);
    assert_eq!(adit(&["url", "encode", decoded.to_str().unwrap()], ""), link);
    let image = adit(&["url", "qr", "-"], &link);
    assert!(image.lines().count() > 15, "{image}");
    assert_eq!(image, adit(&["url", "qr", link.trim()], ""));
    for bad in ["ss://", "http://x", "ss://!!!@h:1", "", "ss://YWVzLTI1Ni1nY206eA@h:99999"] {
        assert_eq!(Process::run("adit", ["url", "decode", bad]).code, Some(2), "{bad}");
    }
}

#[test]
fn a_file_is_checked_with_the_place_of_each_fault() {
    let scratch = Scratch::new();
    let good = scratch.write("good.json", &config("aes-256-gcm", 8388, 1080));
    assert!(adit(&["check", good.to_str().unwrap()], "").contains("ok"));
    let text = "{\n  \"server\": \"127.0.0.1\",\n  \"server_port\": 70000,\n  \"method\": \"rc4-md5\",\n  \"password\": \"hunter2\"\n}";
    let bad = scratch.write("bad.json", text);
    let exit = Process::run("adit", ["check".as_ref(), bad.as_os_str()]);
    assert_eq!(exit.code, Some(2));
    for place in [":3:", ":4:", "server_port", "method"] {
        assert!(exit.text.contains(place), "{place} in {}", exit.text);
    }
    assert!(!exit.text.contains("hunter2"), "{}", exit.text);
    assert_eq!(Process::run("adit", ["check", "/nonexistent.json"]).code, Some(2));
}

/// Everything that prints and ends, with the file it needs.
fn printing(file: &str) -> [Vec<&str>; 10] {
    [
        vec!["help"],
        vec!["version"],
        vec!["man", "ss-server"],
        vec!["key"],
        vec!["key", "--help"],
        vec!["check", file],
        vec!["url", "encode", "--host", "h.example", file],
        vec!["url", "qr", "--host", "h.example", file],
        vec!["ss-server", "--help"],
        vec!["bench", "--help"],
    ]
}

#[test]
fn a_reader_that_has_gone_is_no_failure() {
    let scratch = Scratch::new();
    let file = scratch.write("c.json", &config("aes-256-gcm", 8388, 1080));
    for args in printing(file.to_str().unwrap()) {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = Command::new(program("adit")).args(&args).stdout(writer).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), &*errors), (Some(0), ""), "{args:?}");
    }
    // Nobody to complain to either.
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let status = Command::new(program("adit")).arg("fly").stderr(writer).status().unwrap();
    assert_eq!(status.code(), Some(2));
}

#[test]
fn a_full_disk_is_a_failure() {
    let scratch = Scratch::new();
    let file = scratch.write("c.json", &config("aes-256-gcm", 8388, 1080));
    for args in printing(file.to_str().unwrap()) {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = Command::new(program("adit")).args(&args).stdout(full).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{args:?}: {errors}");
        assert!(errors.contains("cannot write to standard output"), "{args:?}: {errors}");
    }
}

#[test]
fn check_tells_of_users_where_there_are_some() {
    let scratch = Scratch::new();
    let file = |users: &str| {
        let text = format!(
            r#"{{"server": "::", "server_port": 1, "method": "2022-blake3-aes-128-gcm",
                "password": "AAECAwQFBgcICQoLDA0ODw==", "users": [{users}]}}"#
        );
        scratch.write("users.json", &text)
    };
    let user = r#"{"name": "a", "password": "EBESExQVFhcYGRobHB0eHw=="}"#;
    let other = r#"{"name": "b", "password": "ICEiIyQlJicoKSorLC0uLw=="}"#;
    for (users, said) in [
        (String::new(), "gcm, tcp_only)\n"),
        (user.to_owned(), "gcm, 1 user, tcp_only)\n"),
        (format!("{user}, {other}"), "gcm, 2 users, tcp_only)\n"),
    ] {
        let file = file(&users);
        let text = adit(&["check", file.to_str().unwrap()], "");
        assert!(text.contains(said), "{text}");
    }
}

#[test]
fn configurations_of_the_socks_server_are_checked() {
    let scratch = Scratch::new();
    let good = "internal: 127.0.0.1:1080\nsocksmethod: none\nclient pass { from: 127.0.0.0/8 }\n\
                socks pass { to: 0.0.0.0/0 port = 443 }\n";
    let dante = "logoutput: syslog\ninternal: eth0 port = 1080\nexternal: eth0\nclientmethod: none\n\
                 socksmethod: none\nclient pass { from: 0/0 to: 0/0 }\n\
                 socks pass { from: 0/0 to: 0/0 command: connect }\n";
    let (broken, refused) =
        (good.replace("443", "4x3"), format!("{dante}srchost: nodnsmismatch\n"));
    let geo = good.replace("0.0.0.0/0", "geoip:CH");
    let missing = format!("geoip.database: {}\n{geo}", scratch.path().join("none").display());
    let long = "# a line\n".repeat(1 << 19);
    let cases = [
        ("good.conf", good, &["--check"][..], 0, "good.conf: ok"),
        ("good.conf", good, &["--check", "--json"], 0, r#"{"ok":true"#),
        ("broken.conf", &broken, &["--check"], 1, "broken.conf:line 4:"),
        ("broken.conf", &broken, &["--check", "--json"], 1, r#"{"ok":false"#),
        ("geo.conf", &geo, &["--check"], 1, "needs geoip.database"),
        ("missing.conf", &missing, &["--check"], 1, "geoip.database: cannot read"),
        ("long.conf", &long, &["--check"], 1, "4 MiB"),
        ("none/x.conf", "", &["--check"], 1, "No such file"),
        ("sockd.conf", dante, &["--check"], 0, "sockd.conf: ok"),
        ("sockd.conf", dante, &["import-dante"], 0, "line 5: socksmethod: understood"),
        ("danted.conf", &refused, &["import-dante"], 1, "line 8: srchost: not supported"),
        ("danted.conf", &refused, &["--check"], 1, "danted.conf:line 8:"),
        ("good.conf", good, &["--chek"], 2, "invalid option"),
        ("good.conf", good, &[], 2, "the server itself is not in this version"),
    ];
    for (name, text, words, code, said) in cases {
        let path = scratch.path().join(name);
        if !text.is_empty() {
            std::fs::write(&path, text).unwrap();
        }
        let output = Command::new(program("adit")).arg("socks").args(words).arg(&path).output();
        let output = output.unwrap();
        let all = [output.stdout, output.stderr].concat();
        let all = String::from_utf8_lossy(&all);
        assert_eq!(output.status.code(), Some(code), "{words:?} {name}: {all}");
        assert!(all.contains(said), "{words:?} {name}: {all}");
    }
    let metadata = adit(&["socks", "config", "metadata", "--json"], "");
    assert!(metadata.contains(r#"{"name":"internal","reload":"live""#), "{metadata}");
}
