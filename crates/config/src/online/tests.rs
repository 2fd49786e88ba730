//! Answers of providers, good, odd and hostile; addresses of subscriptions.

use proptest::prelude::*;

use super::*;
use crate::config::{Mode, Role};
use crate::source::Invocation;

const BASE: &str = r#"{"local_port": 1080, "timeout": 7, "outbound_fwmark": 5,
    "password": "the user's own", "method": "aes-128-gcm",
    "online_config": {"config_url": "https://example.com/secret-token", "allowed_plugins": ["good-plugin"]}}"#;

/// The configuration of a client with a subscription.
fn config() -> Config {
    let report = crate::check::check_bytes(
        Path::new("c.json"),
        BASE.as_bytes(),
        Some(crate::program::Program::Local),
        &|name| (name == "HOME").then(|| "environment".to_owned()),
    );
    let report = report.unwrap_or_else(|e| panic!("{e:?}"));
    assert_eq!(report.warnings, []);
    report.config
}

fn servers(config: &Config) -> &[RemoteServer] {
    let Role::Client { servers, .. } = &config.role else { panic!("a client") };
    servers
}

fn subscribed(answer: &str) -> Result<Subscribed, String> {
    config().subscribed(answer.as_bytes())
}

fn endpoints(read: &Subscribed) -> Vec<String> {
    servers(&read.config).iter().map(|server| server.endpoint.to_string()).collect()
}

#[test]
fn reads_the_document_of_the_specification() {
    let read = subscribed(
        r#"{
    "version": 1,
    "servers": [
        {"id": "27b8a625-4f4b-4428-9f0f-8a2317db7c79", "remarks": "Name of the server",
         "server": "example.com", "server_port": 8388, "password": "example",
         "method": "chacha20-ietf-poly1305"},
        {"id": "7842c068-c667-41f2-8f7d-04feece3cb67", "remarks": "Second", "server": "2001:db8::1",
         "server_port": 8389, "password": "example", "method": "aes-256-gcm",
         "plugin": "", "plugin_opts": ""}
    ],
    "bytes_used": 274877906944, "bytes_remaining": 824633720832, "username": "ignored",
    "group": {"also": ["ignored"]}
}"#,
    )
    .unwrap();
    assert_eq!(endpoints(&read), ["example.com:8388", "[2001:db8::1]:8389"]);
    let first = &servers(&read.config)[0];
    assert_eq!(first.identity(), "27b8a625-4f4b-4428-9f0f-8a2317db7c79");
    assert_eq!(first.name.as_deref(), Some("Name of the server"));
    assert_eq!(first.mode, Mode::TcpAndUdp);
    // How servers are reached is the user's to say.
    assert_eq!((first.timeout.as_secs(), first.outbound.fwmark), (7, Some(5)));
    assert_eq!(
        read.about,
        About {
            servers: 2,
            left_out: 0,
            version: Some(1),
            bytes_used: Some(274_877_906_944),
            bytes_remaining: Some(824_633_720_832),
        }
    );
    assert!(read.warnings.is_empty(), "{:?}", read.warnings);
}

#[test]
fn reads_every_form_that_providers_use() {
    let link = "ss://YWVzLTEyOC1nY206dGVzdA@192.0.2.1:8888#A";
    let packed = data_encoding::BASE64.encode(format!("{link}\n{link}2\n").as_bytes());
    let one = r#"{"server": "192.0.2.1", "server_port": "8888", "password": "x", "method": "aes-128-gcm"}"#;
    let bare = r#"{"server": "192.0.2.1", "server_port": 8888, "password": "x", "method": "aes-128-gcm", "prefix": "\u0016\u0003\u0001"}"#;
    for (answer, count) in [
        (link.to_owned(), 1),
        (format!("{link}\r\n\r\n{link}\r\n"), 2),
        (packed, 2),
        (format!("\u{feff} {bare}"), 1),
        (format!("[{one}, {one}]"), 2),
        (format!("{{\"version\": 1, \"servers\": [{one}]}}"), 1),
        (format!("{{\"servers\": [{one},],}}"), 1),
    ] {
        let read = subscribed(&answer).unwrap_or_else(|e| panic!("{answer}: {e}"));
        assert_eq!(endpoints(&read), vec!["192.0.2.1:8888"; count], "{answer}");
        assert_eq!(read.about.servers, count);
        assert!(read.warnings.is_empty(), "{:?}", read.warnings);
    }
}

#[test]
fn refuses_answers_without_a_server_and_says_why() {
    let deep = format!("{{\"servers\": {}", "[".repeat(100));
    let many = format!("{{\"servers\": [{}]}}", vec!["{}"; SERVERS_MAX + 1].join(","));
    let large = format!("{{\"servers\": [{}]}}", " ".repeat(1 << 20));
    for (answer, says) in [
        ("", "empty"),
        ("  \n", "empty"),
        ("<!DOCTYPE html><html>", "web page"),
        ("hunter2", "neither a SIP008 document nor a list"),
        ("{", "subscription:1:2"),
        (r#"{"version": 1, "servers": [{"password": "hunter2"#, "subscription:1:"),
        ("{}", "no \"servers\""),
        (r#"{"error": {"message": "hunter2"}}"#, "no \"servers\""),
        (r#"{"version": 2, "servers": []}"#, "another version"),
        (r#"{"version": "1", "servers": []}"#, "another version"),
        (r#"{"version": 1, "servers": []}"#, "no server in it can be used"),
        (r#"{"version": 1, "servers": {}}"#, "no array"),
        (r#"{"servers": ["hunter2", null, 5]}"#, "no server in it can be used"),
        ("vmess://hunter2\ntrojan://hunter2\n", "links are of another protocol"),
        ("ss://cmM0LW1kNTpodW50ZXIy@192.0.2.1:1", "was removed; write"),
        (&deep, "nested deeper"),
        (&many, "more than 1024 servers"),
        (&large, "larger than 1 MiB"),
    ] {
        let error = subscribed(answer).expect_err(answer);
        assert!(error.contains(says), "{answer:.60}: {error}");
        assert!(!error.contains("hunter2"), "{error}");
    }
    assert!(config().subscribed(b"\xff\xfe").expect_err("no text").contains("not text"));
}

#[test]
fn leaves_out_what_cannot_be_used_and_takes_the_rest() {
    let answer = r#"{"version": 1, "servers": [
    {"server": "a.example", "server_port": 1, "password": "hunter2", "method": "aes-256-gcm"},
    {"server": "b.example", "server_port": 2, "password": "hunter2", "method": "rc4-md5"},
    {"server": "c.example", "server_port": 70000, "password": "hunter2", "method": "aes-256-gcm"},
    {"server_port": 4, "password": "hunter2", "method": "aes-256-gcm"},
    {"server": "e.example", "server_port": 5, "method": "aes-256-gcm"},
    {"server": "f.example", "server_port": 6, "password": "hunter2"},
    {"server": "g.example", "server_port": 7, "password": "hunter2", "method": "2022-blake3-aes-128-gcm"},
    {"server": "h.example", "server_port": 8, "password": "hunter2", "method": "aes-256-gcm", "plugin": "evil", "plugin_opts": "hunter2"},
    {"server": "/i", "server_port": 9, "password": "hunter2", "method": "aes-256-gcm"},
    "hunter2"
]}"#;
    let read = subscribed(answer).unwrap();
    assert_eq!(endpoints(&read), ["a.example:1"]);
    assert_eq!((read.about.servers, read.about.left_out), (1, 9));
    let said = read.warnings.join("\n");
    for says in [
        "subscription:3:",
        "key \"servers[1].method\": this stream cipher is not authenticated",
        "key \"servers[2].server_port\"",
        "key \"servers[3]\"",
        "key \"servers[4]\": missing required argument",
        "key \"servers[5]\": has no \"method\"",
        "key \"servers[6].password\"",
        "key \"servers[7]\": the plugin of this server is not allowed",
        "key \"servers[8].server\"",
        "key \"servers[9]\"",
    ] {
        assert!(said.contains(says), "{says}: {said}");
    }
    assert!(!said.contains("hunter2"), "{said}");
    assert_eq!(read.warnings.len(), 9);
}

#[test]
fn a_provider_decides_about_servers_only() {
    let answer = r#"{"version": 1, "local_port": 1, "user": "root", "acl": "/etc/passwd",
    "servers": [{"server": "a.example", "server_port": 1, "method": "aes-256-gcm",
        "password": "${HOME}", "outbound_fwmark": 9, "outbound_bind_interface": "eth9",
        "outbound_bind_addr": "192.0.2.1", "mode": "tcp_only", "tcp_weight": 0, "timeout": 1,
        "disabled": true, "users": [], "acl": "/etc/passwd", "key": "AAAA"}]}"#;
    let read = subscribed(answer).unwrap();
    let [server] = servers(&read.config) else { panic!("one server") };
    assert_eq!((server.mode, server.tcp_weight), (Mode::TcpAndUdp, 1.0));
    assert_eq!((server.outbound.fwmark, &server.outbound.interface), (Some(5), &None));
    assert_eq!(server.timeout.as_secs(), 7);
    let literal = adit_shadowsocks::ClientKey::parse(server.key.method(), "${HOME}").unwrap();
    assert!(server.key == literal, "no variable of the environment goes to a provider's server");
    let Role::Client { locals, .. } = &read.config.role else { panic!("a client") };
    assert_eq!(locals[0].bind.port, 1080);
    assert_eq!(read.config.user, None);
}

#[test]
fn another_answer_takes_the_place_of_the_last_one() {
    let mut own = BASE.replacen('{', r#"{"server": "own.example", "server_port": 9,"#, 1);
    own.insert(0, ' ');
    let report =
        crate::check::check_bytes(Path::new("c.json"), own.as_bytes(), None, &|_| None).unwrap();
    let config = report.config;
    assert_eq!(servers(&config).len(), 1);
    let link = |host: &str| format!("ss://YWVzLTEyOC1nY206dGVzdA@{host}:1");
    let first = config.subscribed(link("a.example").as_bytes()).unwrap();
    assert_eq!(endpoints(&first), ["own.example:9", "a.example:1"]);
    let second = first.config.subscribed(link("b.example").as_bytes()).unwrap();
    assert_eq!(endpoints(&second), ["own.example:9", "b.example:1"]);
}

#[test]
fn checks_addresses_and_repeats_none() {
    for (text, taken) in [
        ("https://example.com/hunter2", "https://example.com/hunter2"),
        (" HTTPS://example.com:8443/a?b=c#name ", "https://example.com:8443/a?b=c"),
        ("ssconf://example.com/hunter2#Outline", "https://example.com/hunter2"),
        ("https://user:hunter2@example.com/", "https://user:hunter2@example.com/"),
        ("http://127.0.0.1:80/x", "http://127.0.0.1:80/x"),
        ("http://[::1]:80/x", "http://[::1]:80/x"),
        ("http://localhost/x", "http://localhost/x"),
    ] {
        assert_eq!(subscription_url(text).unwrap().as_str(), taken);
    }
    let long = format!("https://example.com/{}", "a".repeat(URL_LEN_MAX));
    for (text, says) in [
        ("", "begins with https://"),
        ("hunter2", "begins with https://"),
        ("ftp://hunter2/", "begins with https://"),
        ("file:///hunter2", "has no host"),
        ("ss://hunter2@h:1", "--server-url"),
        ("http://hunter2.example/", "anybody on the way"),
        ("http://127.0.0.1.hunter2.example/", "anybody on the way"),
        ("http://localhost@hunter2.example/", "anybody on the way"),
        ("https:///hunter2", "has no host"),
        ("https://?hunter2", "has no host"),
        ("https://example.com/hunter2 b", "%XX"),
        ("https://example.com/hunter2\nHost: x", "%XX"),
        ("https://bücher.example/hunter2", "%XX"),
        (&long, "longer than 4096"),
    ] {
        let error = subscription_url(text).expect_err(text);
        assert!(error.contains(says), "{text:.60}: {error}");
        assert!(!error.contains("hunter2"), "{error}");
    }
}

#[test]
fn follows_redirects_to_https_only() {
    let from = Password::new("https://a.example:444/x/y?z=/q");
    for (to, taken) in [
        ("https://b.example/1", "https://b.example/1"),
        ("//b.example/1", "https://b.example/1"),
        ("/1?u=http://c/", "https://a.example:444/1?u=http://c/"),
        ("1", "https://a.example:444/x/1"),
    ] {
        assert_eq!(redirected(&from, to).unwrap().as_str(), taken);
    }
    for to in ["http://b.example/", "http://127.0.0.1/", "ftp://x/", "https://", "/a b"] {
        redirected(&from, to).expect_err(to);
    }
    let plain = Password::new("http://127.0.0.1:1");
    assert_eq!(redirected(&plain, "a").unwrap().as_str(), "http://127.0.0.1:1/a");
    assert_eq!(redirected(&plain, "https://b.example").unwrap().as_str(), "https://b.example");
    redirected(&plain, "http://b.example/").expect_err("not this machine");
}

#[test]
fn options_and_keys_say_the_same() {
    let run = |name: &str, args: &str| {
        let args = args.split_ascii_whitespace().map(Into::into);
        match Config::from_args(name, args, &|_| None) {
            Ok(Invocation::Run(config)) => Ok(*config),
            Ok(_) => panic!("runs"),
            Err(e) => Err(e.to_string()),
        }
    };
    for (name, local) in
        [("ss-local", "-l 1"), ("sslocal", "-b 127.0.0.1:1"), ("ss-tunnel", "-l 1 -L h:1")]
    {
        let more = "--online-config-url https://h/hunter2 --online-config-update-interval 5 \
                    --online-config-allowed-plugin a --online-config-allowed-plugin b \
                    --online-config-cache-file /c";
        let config = run(name, &format!("{local} {more}")).unwrap();
        let online = config.online.as_ref().unwrap();
        assert_eq!(online.url.as_str(), "https://h/hunter2");
        assert_eq!(online.update_interval.as_secs(), 5);
        assert_eq!(online.allowed_plugins, ["a".into(), "b".into()]);
        assert_eq!(online.cache_file.as_deref(), Some(Path::new("/c")));
        assert!(config.secrets_on_argv);
        assert!(!format!("{config:?}").contains("hunter2"));
        let config = run(name, &format!("{local} --server-url ssconf://h/hunter2")).unwrap();
        assert_eq!(config.online.unwrap().url.as_str(), "https://h/hunter2");
        let links = "--server-url ss://aes-128-gcm:a@h:1 --server-url ss://aes-256-gcm:b@i:2#B";
        let config = run(name, &format!("{local} {links}")).unwrap();
        let hosts: Vec<_> = servers(&config).iter().map(|s| s.endpoint.to_string()).collect();
        assert_eq!(hosts, ["h:1", "i:2"]);
        assert_eq!(servers(&config)[1].name.as_deref(), Some("B"));
        let error = run(name, &format!("{local} --online-config-url http://hunter2.example/"));
        let error = error.unwrap_err();
        assert!(error.contains("--online-config-url") && !error.contains("hunter2"), "{error}");
        let ssr = run(name, &format!("{local} --server-url ssr://hunter2")).unwrap_err();
        assert!(ssr.contains("ask for a Shadowsocks link"), "{ssr}");
    }
    let server = run("ssserver", "--server-url ssconf://h/hunter2").unwrap_err();
    assert!(server.contains("a server has no subscription"), "{server}");
    let alone = run("ss-local", "-l 1 -s h -p 1 -k x --online-config-update-interval 5").unwrap();
    assert!(
        alone.warnings.iter().any(|w| w.contains("without its address")),
        "{:?}",
        alone.warnings
    );
}

#[test]
fn a_link_on_the_command_line_stands_for_the_servers_of_a_file() {
    let file = r#"{"server": "own.example", "server_port": 9, "password": "x", "method": "aes-128-gcm", "local_port": 1}"#;
    let line = "--server-url ss://aes-256-gcm:b@i:2";
    let config = crate::source::tests::load("ss-local", line, Some(file)).unwrap();
    let hosts: Vec<_> = servers(&config).iter().map(|s| s.endpoint.to_string()).collect();
    assert_eq!(hosts, ["i:2"]);
}

proptest! {
    #[test]
    fn junk_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        crate::fuzz::subscription(&bytes);
    }

    #[test]
    fn near_documents_never_panic(
        text in r#"(\{|\[|"servers"|"server"|"id"|"version"|:|,|1|"x"|\}|\]|null| ){0,40}"#,
    ) {
        crate::fuzz::subscription(text.as_bytes());
    }
}
