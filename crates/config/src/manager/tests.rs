//! Requests and answers of both dialects, and the state file.

use std::path::Path;

use proptest::prelude::*;

use super::reply::REPLY_LEN_MAX;
use super::*;
use crate::config::Config;
use crate::json;
use crate::plugin::Plugin;
use crate::program::Dialect::{self, Libev, Rust};
use crate::source::tests::load;

fn manager(line: &str, file: Option<&str>) -> Config {
    manager_at("127.0.0.1:1", line, file)
}

fn manager_at(address: &str, line: &str, file: Option<&str>) -> Config {
    load("ss-manager", &format!("--manager-address {address} {line}"), file).unwrap()
}

fn bad(text: &str) -> BadRequest {
    Request::parse(text.as_bytes()).expect_err(text)
}

fn add(text: &str) -> NewPort {
    match Request::parse(text.as_bytes()) {
        Ok(Request::Add(new)) => *new,
        other => panic!("{text}: {other:?}"),
    }
}

fn reply(answer: &Answer, dialect: Dialect) -> Option<String> {
    answer.reply(dialect).map(|reply| String::from_utf8(reply.as_bytes().to_vec()).unwrap())
}

#[test]
fn reads_every_form_of_a_request() {
    for text in [
        r#"add: {"server_port":8001,"password":"x"}"#,
        r#"add: {"server_port":"8001","password":"x"}"#,
        r#"add:{"server_port":8001,"password":"x"}"#,
        r#"add {"server_port":8001,"password":"x"}"#,
        r#"add{"server_port":8001,"password":"x"}"#,
        "  \t\nadd : \n {\"server_port\" : 8001 , \"password\" : \"x\"}\n\0\0",
        r#"add: {"unknown":[1,{"a":null}],"server_port":8001,"also":1.5,"password":"x","z":{}}"#,
        r#"add: {"server_port":8001,"password":"first","password":"x","method":null}"#,
        r#"add: {"server_port":8001,"password":"x","mode":"","plugin":"","plugin_opts":""}"#,
    ] {
        let new = add(text);
        assert_eq!((new.port, new.password.as_str()), (8001, "x"), "{text}");
        assert_eq!((new.method, new.mode), (None, None), "{text}");
        assert_eq!(new.extras, PortExtras::default(), "{text}");
    }
    for text in ["list", "list:", " list\n", "list: {}", "list\0"] {
        assert!(matches!(Request::parse(text.as_bytes()), Ok(Request::List)), "{text}");
    }
    for text in ["ping", "ping:", "ping: ", "\r\nping\r\n"] {
        assert!(matches!(Request::parse(text.as_bytes()), Ok(Request::Ping)), "{text}");
    }
    for text in [r#"remove: {"server_port":1}"#, r#"remove:{"server_port":"1","x":2}"#] {
        assert!(matches!(Request::parse(text.as_bytes()), Ok(Request::Remove(1))), "{text}");
    }
    // With the NUL that the C server sends.
    let stat = Request::parse(b"stat: {\"8001\":11370,\"8002\":9223372036854775807}\0");
    let Ok(Request::Stat(ports)) = stat else { panic!("{stat:?}") };
    assert_eq!(ports, [(8001, 11370), (8002, i64::MAX.unsigned_abs())]);
    assert!(matches!(Request::parse(b"stat: {}"), Ok(Request::Stat(ports)) if ports.is_empty()));
}

#[test]
fn reads_all_that_a_port_may_say() {
    let new = add(r#"add: {"server_port":8001,"password":"k","method":"2022-blake3-aes-128-gcm",
        "mode":"tcp_and_udp","fast_open":true,"no_delay":false,"plugin":"p","plugin_opts":"o",
        "plugin_mode":"tcp_only","acl":"/a","users":[{"name":"u","password":"v","more":1}]}"#);
    assert_eq!(new.method, Some(Method::Blake3Aes128Gcm));
    assert_eq!(
        (new.mode, new.fast_open, new.no_delay),
        (Some(Mode::TcpAndUdp), Some(true), Some(false))
    );
    assert_eq!(&*new.users[0].0, "u");
    assert_eq!(new.users[0].1.as_str(), "v");
    let extras = PortExtras {
        plugin: Some("p".into()),
        plugin_opts: Some(Password::new("o")),
        plugin_mode: Some(Mode::TcpOnly),
        acl: Some("/a".into()),
    };
    assert_eq!(new.extras, extras);
}

#[test]
fn tells_what_is_wrong_without_what_was_sent() {
    let object = |text: &str| format!("add: {{\"server_port\":1,\"password\":\"hunter2\",{text}}}");
    for (text, why) in [
        ("add", "is empty"),
        ("add:", "is empty"),
        ("add: {", "1:2"),
        ("add: [\"hunter2\"]", "expected an object, found an array"),
        ("add: \"hunter2\"", "expected an object, found a string"),
        ("add: {\"server_port\":1}", "\"password\" is missing"),
        ("add: {\"server_port\":1,\"password\":null}", "\"password\" is missing"),
        ("add: {\"password\":\"hunter2\"}", "\"server_port\" is missing"),
        ("add: {\"server_port\":1,\"password\":7}", "key \"password\": expected a string"),
        ("remove: {}", "\"server_port\" is missing"),
        ("remove", "is empty"),
        ("stat: {\"hunter2\":1}", "1:2: the port must be"),
        ("stat: {\"1\":-1}", "below 0"),
        ("stat: {\"1\":\"x\"}", "expected a number of bytes"),
        ("stat: {\"1\":1.5}", "expected a number of bytes"),
        (&object("\"mode\":\"hunter2\""), "key \"mode\": unknown mode"),
        (&object("\"mode\":1"), "key \"mode\": expected a string"),
        (&object("\"fast_open\":1"), "key \"fast_open\": expected true or false"),
        (&object("\"users\":{}"), "key \"users\": expected an array"),
        (&object("\"users\":[{\"name\":\"a\"}]"), "the user has no \"password\""),
        (&object("\"users\":[{\"password\":\"hunter2\"}]"), "the user has no \"name\""),
        (&object("\"users\":[1]"), "expected an object"),
    ] {
        let found = bad(text);
        assert!(matches!(found, BadRequest::Malformed { .. }), "{text}: {found:?}");
        let words = found.to_string();
        assert!(words.contains(why) && !words.contains("hunter2"), "{text}: {words}");
    }
    for port in ["0", "65536", "-1", "1.5", "\"\"", "\"x\"", "true", "[]", "99999999999999999999"] {
        let found = bad(&format!("remove: {{\"server_port\":{port}}}")).to_string();
        assert!(found.contains("1 to 65535"), "{port}: {found}");
    }
    for text in
        ["", " ", "\0", "foo", "addx: {}", "Add: {}", "{\"add\":1}", ":", "pingpong", "ad d"]
    {
        assert!(matches!(bad(text), BadRequest::Unknown(_)), "{text}");
    }
    assert_eq!(Request::parse(b"ping\xff").unwrap_err(), BadRequest::Unknown("not text"));
    let mut long = b"ping".to_vec();
    long.resize(REQUEST_LEN_MAX, b' ');
    assert!(Request::parse(&long).is_ok());
    long.push(b' ');
    assert!(matches!(Request::parse(&long), Err(BadRequest::Unknown(_))));
}

#[test]
fn answers_in_the_words_of_each_dialect() {
    let malformed = |command| BadRequest::Malformed { command, why: String::new() };
    let method = BadRequest::Method { name: "rc4\"x".to_owned(), why: String::new() };
    let unknown = BadRequest::Unknown("");
    for (answer, libev, rust) in [
        (Answer::Done, Some("ok"), Some("ok\n")),
        (Answer::PortTaken, Some("port is not available"), Some("port is not available\n")),
        (Answer::Refused("why".to_owned()), Some("err"), Some("invalid server: why\n")),
        (Answer::Bad(malformed(Command::Add)), Some("err"), None),
        (Answer::Bad(malformed(Command::Remove)), Some("err"), None),
        (Answer::Bad(malformed(Command::Stat)), None, None),
        (Answer::Bad(method), Some("err"), Some("unrecognized method \"rc4\\\"x\"\n")),
        (Answer::Bad(unknown), None, None),
    ] {
        assert_eq!(reply(&answer, Libev).as_deref(), libev, "{answer:?}");
        assert_eq!(reply(&answer, Rust).as_deref(), rust, "{answer:?}");
    }
}

fn served(config: &Config, texts: &[&str]) -> Vec<ManagedPort> {
    texts.iter().map(|text| config.managed_port(&add(text)).unwrap()).collect()
}

fn texts(replies: Vec<Reply>) -> Vec<String> {
    replies.iter().map(|r| String::from_utf8(r.as_bytes().to_vec()).unwrap()).collect()
}

#[test]
fn lists_ports_in_the_form_of_each_dialect() {
    let config = manager("-m aes-256-gcm", None);
    assert_eq!(texts(Reply::list(Libev, [])), ["[\n]"]);
    assert_eq!(texts(Reply::list(Rust, [])), ["[]\n"]);
    let ports = served(
        &config,
        &[
            r#"add: {"server_port":8001,"password":"a\"b\\c\u0007"}"#,
            r#"add: {"server_port":8002,"password":"AAECAwQFBgcICQoLDA0ODw==",
                "method":"2022-blake3-aes-128-gcm",
                "users":[{"name":"u","password":"EBESExQVFhcYGRobHB0eHw=="}]}"#,
        ],
    );
    assert_eq!(
        texts(Reply::list(Libev, &ports)),
        ["[\n\t{\"server_port\":\"8001\",\"password\":\"a\\\"b\\\\c\\u0007\",\"method\":\
          \"aes-256-gcm\"},\n\t{\"server_port\":\"8002\",\"password\":\"AAECAwQFBgcICQoLDA0ODw==\",\
          \"method\":\"2022-blake3-aes-128-gcm\"}\n]"]
    );
    assert_eq!(
        texts(Reply::list(Rust, &ports)),
        ["[{\"server_port\":8001,\"password\":\"a\\\"b\\\\c\\u0007\"},{\"server_port\":8002,\
          \"password\":\"AAECAwQFBgcICQoLDA0ODw==\",\"users\":[{\"name\":\"u\",\"password\":\
          \"EBESExQVFhcYGRobHB0eHw==\"}]}]\n"]
    );
}

#[test]
fn tells_traffic_in_the_form_of_each_dialect() {
    assert_eq!(texts(Reply::traffic(Libev, [])), ["stat: {}"]);
    assert_eq!(texts(Reply::traffic(Rust, [])), ["stat: {}\n"]);
    let ports = [(8001, 11370), (8002, u64::MAX)];
    let text = "stat: {\"8001\":11370,\"8002\":18446744073709551615}";
    assert_eq!(texts(Reply::traffic(Libev, ports)), [text]);
    assert_eq!(texts(Reply::traffic(Rust, ports)), [format!("{text}\n")]);
    assert_eq!(report(8388, 1234), "stat: {\"8388\":1234}");
}

/// Every datagram is an answer by itself, and together they have every port once and in order.
#[test]
fn splits_long_answers_into_complete_ones() {
    for dialect in [Libev, Rust] {
        // As long as those of a busy port.
        let bytes = |port| u64::from(port) << 40;
        let ports = (1..=u16::MAX).map(|port| (port, bytes(port)));
        let replies = texts(Reply::traffic(dialect, ports));
        assert!(replies.len() > 10);
        let mut next = 1;
        for reply in &replies {
            assert!(reply.len() <= REPLY_LEN_MAX);
            let Ok(Request::Stat(found)) = Request::parse(reply.as_bytes()) else {
                panic!("{reply}")
            };
            for found in found {
                assert_eq!(found, (next, bytes(next)));
                next = next.wrapping_add(1);
            }
        }
        assert_eq!(next, 0, "all ports are there");

        let config = manager("", None);
        let one = config.managed_port(&add(r#"add: {"server_port":1,"password":"x"}"#)).unwrap();
        let long = "y".repeat(3000);
        let ports: Vec<_> = (1..=1000)
            .map(|port| ManagedPort {
                port,
                secret: Some(Secret::Password(Password::new(if port == 7 { &*long } else { "x" }))),
                ..one.clone()
            })
            .collect();
        let mut seen = Vec::new();
        let replies = texts(Reply::list(dialect, &ports));
        assert!(replies.len() > 1);
        for reply in replies {
            assert!(reply.len() <= REPLY_LEN_MAX);
            let document: serde_json::Value = serde_json::from_str(&reply).unwrap();
            for item in document.as_array().unwrap() {
                let port = &item["server_port"];
                let text = port.as_str().and_then(|text| text.parse().ok());
                seen.push(text.or(port.as_u64()).unwrap());
            }
        }
        assert_eq!(seen, (1..=1000).collect::<Vec<_>>());
    }
}

#[test]
fn a_port_has_what_the_manager_says_unless_it_says_otherwise() {
    let file = r#"{"server": ["192.0.2.1", "::1"], "method": "aes-128-gcm", "timeout": 7,
        "mode": "tcp_and_udp", "fast_open": true, "outbound_fwmark": 9}"#;
    let config = manager("", Some(file));
    let port = &served(&config, &[r#"add: {"server_port":8001,"password":"x"}"#])[0];
    let binds: Vec<_> = port.listeners.iter().map(|l| l.bind.to_string()).collect();
    assert_eq!(binds, ["192.0.2.1:8001", "[::1]:8001"]);
    let first = &port.listeners[0];
    assert_eq!(first.key.method(), Method::Aes128Gcm);
    assert_eq!((first.mode, first.timeout.as_secs()), (Mode::TcpAndUdp, 7));
    assert_eq!(first.outbound.fwmark, Some(9));
    let alone = config.for_port(port);
    assert!(alone.sockets.fast_open && alone.sockets.no_delay);

    let port = &served(
        &config,
        &[r#"add: {"server_port":8001,"password":"x","method":"aes-256-gcm","mode":"udp_only",
            "fast_open":false,"no_delay":false}"#],
    )[0];
    assert_eq!(port.method(), Method::Aes256Gcm);
    assert_eq!(port.listeners[0].mode, Mode::UdpOnly);
    let alone = config.for_port(port);
    assert!(!alone.sockets.fast_open && !alone.sockets.no_delay);
}

#[test]
fn refuses_ports_that_cannot_be_served() {
    let config = manager_at("/run/manager", "", None);
    for (text, why) in [
        (r#""password":"""#, "the password is empty"),
        (r#""password":"hunter2","method":"2022-blake3-aes-128-gcm""#, "base64"),
        (r#""password":"hunter2","users":[{"name":"a","password":"b"}]"#, "user"),
        (r#""password":"hunter2","plugin":"p q""#, "write the plugin's name alone"),
        (r#""password":"hunter2","plugin":"obfsproxy""#, "obfsproxy"),
        (r#""password":"hunter2","plugin_opts":"hunter2""#, "has no effect without \"plugin\""),
        (r#""password":"hunter2","plugin_mode":"tcp_only""#, "has no effect without \"plugin\""),
        (
            r#""password":"hunter2","plugin":"p","plugin_mode":"udp_only","mode":"tcp_only""#,
            "has nothing to do",
        ),
        (r#""password":"hunter2","acl":"/etc/acl""#, "access control"),
    ] {
        let new = add(&format!("add: {{\"server_port\":8001,{text}}}"));
        let found = config.managed_port(&new).expect_err(text);
        assert!(found.contains(why) && !found.contains("hunter2"), "{text}: {found}");
        assert_eq!(found.lines().count(), 1, "{found}");
    }
}

#[test]
fn plugins_of_requests_are_those_that_the_sender_may_run() {
    let (udp, unix) = ("127.0.0.1:1", "/run/manager");
    let with = |address: &str, line: &str, text: &str| {
        let new = add(&format!("add: {{\"server_port\":1,\"password\":\"x\"{text}}}"));
        manager_at(address, line, None)
            .managed_port(&new)
            .map(|port| port.listeners[0].plugin.clone())
    };
    let plugin = |program: &str, options: Option<&str>, mode| {
        let (program, options) = (program.into(), options.map(Password::new));
        Some(Plugin { program, options, args: Vec::new(), mode })
    };
    let asked =
        r#","plugin":"p","plugin_opts":"o","plugin_mode":"tcp_and_udp","mode":"tcp_and_udp""#;
    // Whoever writes to a Unix socket of ours is our user, or above it.
    assert_eq!(with(unix, "", asked), Ok(plugin("p", Some("o"), Mode::TcpAndUdp)));
    assert_eq!(with(unix, "", ""), Ok(None));
    // At a UDP port it may be anybody; what the manager's user has configured can be run.
    let refused = with(udp, "", asked).expect_err("a program of the sender's choice");
    assert!(refused.contains("may name no program"), "{refused}");
    let other = with(udp, "--plugin q", asked).expect_err("another program");
    assert!(other.contains("may name no program"), "{other}");
    let configured = |text| with(udp, "--plugin p --plugin-opts of-all", text);
    assert_eq!(configured(""), Ok(plugin("p", Some("of-all"), Mode::TcpOnly)));
    assert_eq!(configured(r#","plugin_opts":"o""#), Ok(plugin("p", Some("o"), Mode::TcpOnly)));
    assert_eq!(configured(asked), Ok(plugin("p", Some("o"), Mode::TcpAndUdp)));
}

fn parsed(text: &StateText) -> Vec<NewPort> {
    state::parse(text.as_bytes()).unwrap_or_else(|fault| panic!("{}", fault.text))
}

#[test]
fn keeps_ports_as_requests_would_say_them() {
    let all = add(
        r#"add: {"server_port":8001,"password":"a\"\\\n","method":"aes-256-gcm","mode":"udp_only",
        "fast_open":true,"no_delay":false,"plugin":"p","plugin_opts":"a;b","plugin_mode":"tcp_only",
        "acl":"/a","users":[{"name":"u\"","password":"v"},{"name":"w","password":"x"}]}"#,
    );
    let bare = add(r#"add: {"server_port":65535,"password":""}"#);
    let text = state_text([&all, &bare]);
    let again = parsed(&text);
    assert_eq!(state_text(&again).as_bytes(), text.as_bytes());
    assert_eq!((again[0].port, again[0].password.as_str()), (8001, "a\"\\\n"));
    assert_eq!((again[0].mode, again[0].no_delay), (Some(Mode::UdpOnly), Some(false)));
    assert_eq!((again[0].users.len(), &again[0].extras), (2, &all.extras));
    assert_eq!((again[1].port, again[1].method), (65535, None));
    assert_eq!(parsed(&state_text([])).len(), 0);
    // One port a line.
    assert_eq!(text.as_bytes().split(|b| *b == b'\n').count(), 5);
}

#[test]
fn a_damaged_state_file_is_told_with_its_place() {
    let dir = std::env::temp_dir().join(format!("adit-state-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let path = dir.join("ports.json");
    assert_eq!(read_state(&path).unwrap().len(), 0, "no file keeps no ports");
    for (text, place) in [
        ("", "1:1: is empty"),
        ("[]", "1:1: expected an object"),
        ("{\"version\":1}", "1:1: \"ports\" is missing"),
        ("{\"ports\":[]}", "\"version\" is missing"),
        ("{\"version\":2,\"ports\":[]}", "1:12: key \"version\": is not a version"),
        ("{\"version\":1,\"ports\":{}}", "key \"ports\": expected an array"),
        ("{\"version\":1,\"ports\":[\n{\"server_port\":1}]}", "2:1: \"password\" is missing"),
        ("{\"version\":1,\"ports\":[\n{\"server_port\":1,\"password\":\"hunter2\"", "2:"),
        (
            "{\"version\":1,\"ports\":[\n{\"server_port\":1,\"password\":\"a\"},\n\
             {\"server_port\":1,\"password\":\"hunter2\"}]}",
            "3:1: the port is there more than once",
        ),
    ] {
        std::fs::write(&path, text).unwrap();
        let found = read_state(&path).unwrap_err();
        let words = found[0].to_string();
        assert!(words.contains("ports.json:"), "{words}");
        assert!(words.contains(place) && !words.contains("hunter2"), "{text}: {words}");
        assert!(words.contains("move the file away"), "{words}");
    }
    std::fs::remove_dir_all(&dir).unwrap();
    assert!(read_state(Path::new("/proc/self/mem")).is_err(), "not to be read is no empty file");
}

proptest! {
    #[test]
    fn junk_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
        crate::fuzz::manager_request(&bytes);
    }

    #[test]
    fn nearly_requests_never_panic(
        command in "(add|remove|stat|ping|list)[: ]{0,2}",
        object in r#"\{?("(server_port|password|users|mode|1)":?("|[0-9]|\[|\{|null|\}|,){0,3},?){0,4}\}?"#,
    ) {
        crate::fuzz::manager_request(format!("{command}{object}").as_bytes());
    }

    /// Whatever texts a port has, the file brings them back.
    #[test]
    fn the_state_file_brings_back_any_text(
        password in "\\PC{0,20}|[\\x00-\\x1f\"\\\\]{0,8}",
        name in "\\PC{0,20}",
        port in 1_u16..,
    ) {
        let mut new = add(r#"add: {"server_port":1,"password":"x"}"#);
        new.port = port;
        new.password = Password::new(password.as_str());
        new.users = vec![(name.as_str().into(), Password::new("k"))];
        let again = parsed(&state_text([&new]));
        prop_assert_eq!(again[0].port, port);
        prop_assert_eq!(again[0].password.as_str(), password.as_str());
        prop_assert_eq!(&*again[0].users[0].0, name.as_str());
    }

    /// What is written as JSON is JSON to others too.
    #[test]
    fn texts_are_quoted_as_json(text in "\\PC{0,20}|[\\x00-\\x7f]{0,20}") {
        let read: String = serde_json::from_str(&json::quote(&text)).unwrap();
        prop_assert_eq!(read, text);
    }
}
