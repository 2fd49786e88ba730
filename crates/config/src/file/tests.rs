//! Keys of every program: what is read, what is refused, what gets a warning, and where.

use std::time::Duration;

use crate::check::check_bytes;
use crate::config::{
    AddressOrder, Config, LocalKind, LogLevel, OutboundOptions, Protection, ReplayPolicy, Role,
    UDP_SESSIONS_DEFAULT,
};
use crate::program::Program;
use crate::source::tests::load;

/// A client's file with `keys` added.
fn client(keys: &str) -> String {
    format!(
        r#"{{"server": "h", "server_port": 1, "local_port": 1080, "password": "hunter2",{keys}}}"#
    )
}

/// A server's file with `keys` added.
fn server(keys: &str) -> String {
    format!(r#"{{"server": "0.0.0.0", "server_port": 8388, "password": "hunter2",{keys}}}"#)
}

fn outbound(config: &Config) -> &OutboundOptions {
    match &config.role {
        Role::Client { servers, .. } => &servers[0].outbound,
        Role::Server { listeners } => &listeners[0].outbound,
    }
}

fn read(program: &str, text: &str) -> Config {
    load(program, "", Some(text)).unwrap_or_else(|e| panic!("{text}: {e:?}"))
}

fn errors(program: &str, text: &str) -> String {
    let text = load(program, "", Some(text)).expect_err(text).join("\n");
    assert!(!text.contains("hunter2"), "{text}");
    text
}

#[test]
fn targets_are_refused_by_servers_alone() {
    for (text, expected) in [("true", true), ("false", false)] {
        let config = read("ss-server", &server(&format!(r#""block_private": {text}"#)));
        assert_eq!(config.protection.block_private, expected);
        assert_eq!(config.warnings, [""; 0]);
    }
    let text = errors("ss-server", &server(r#""block_private": 1"#));
    assert!(text.contains("expected true or false"), "{text}");
    for program in ["ss-local", "ss-redir"] {
        let warnings = read(program, &client(r#""block_private": true"#)).warnings;
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        assert!(warnings[0].contains(r#"key "block_private": has no effect on a client"#));
    }
}

#[test]
fn reads_the_settings_of_a_process() {
    type Check = fn(&Config) -> bool;
    let checks: [(&str, Check); 39] = [
        (r#""timeout": 5"#, |c| c.timeout == Duration::from_secs(5)),
        (r#""timeout": "5""#, |c| c.timeout == Duration::from_secs(5)),
        (r#""timeout": null"#, |c| c.timeout == Duration::from_secs(60)),
        (r#""user": "nobody""#, |c| c.user.as_deref() == Some("nobody")),
        (r#""user": """#, |c| c.user.is_none()),
        (r#""nofile": 0x400"#, |c| c.nofile == Some(1024)),
        (r#""fast_open": true"#, |c| c.sockets.fast_open),
        (r#""reuse_port": true"#, |c| c.sockets.reuse_port),
        (r#""no_delay": true"#, |c| c.sockets.no_delay),
        (r#""mptcp": true"#, |c| c.sockets.mptcp),
        (r#""ipv6_only": true"#, |c| c.sockets.ipv6_only),
        (r#""ipv6_first": true"#, |c| c.address_order == AddressOrder::Ipv6First),
        (r#""ipv6_first": false"#, |c| c.address_order == AddressOrder::System),
        (r#""keep_alive": 5"#, |c| c.sockets.keep_alive == Duration::from_secs(5)),
        (r#""nameserver": "1.1.1.1""#, |c| c.nameservers.as_ref().is_some_and(|n| n.len() == 1)),
        (r#""dns": "quad9""#, |c| c.nameservers.as_ref().is_some_and(|n| n.len() == 4)),
        (r#""dns": "system""#, |c| c.nameservers.is_none()),
        (r#""dns_cache_size": 9"#, |c| c.dns_cache_size == Some(9)),
        (r#""workers": 3"#, |c| c.workers.map(u16::from) == Some(3)),
        (r#""runtime": {"mode": "single_thread", "worker_count": 4}"#, |c| {
            c.workers.map(u16::from) == Some(1)
        }),
        (r#""runtime": {"mode": "multi_thread", "worker_count": 4}"#, |c| {
            c.workers.map(u16::from) == Some(4)
        }),
        (r#""log": {"level": 1, "format": {"without_time": true}}"#, |c| {
            c.log_level == LogLevel::Debug && !c.log_time
        }),
        (r#""security": {"replay_attack": {"policy": "reject"}}"#, |c| {
            c.replay_policy == ReplayPolicy::Reject
        }),
        (r#""tcp_incoming_sndbuf": 20000, "tcp_outgoing_rcvbuf": "30000""#, |c| {
            c.sockets.incoming_sndbuf == Some(20000) && c.sockets.outgoing_rcvbuf == Some(30000)
        }),
        (r#""tcp_incoming_rcvbuf": 0, "tcp_outgoing_sndbuf": 16383"#, |c| {
            c.sockets.incoming_rcvbuf.is_none() && c.sockets.outgoing_sndbuf == Some(16383)
        }),
        (r#""udp_timeout": 5"#, |c| c.udp.timeout == Duration::from_secs(5)),
        (r#""udp_timeout": "5", "timeout": 7"#, |c| c.udp.timeout == Duration::from_secs(5)),
        (r#""timeout": 7"#, |c| c.udp.timeout == Duration::from_secs(10)),
        (r#""timeout": 600"#, |c| c.udp.timeout == Duration::from_secs(600)),
        (r#""udp_max_associations": 5"#, |c| c.udp.sessions_max == 5),
        (r#""version": 1"#, |c| c.udp.sessions_max == UDP_SESSIONS_DEFAULT),
        (r#""max_connections_per_client": 5"#, |c| {
            c.protection.connections_per_client.map(u32::from) == Some(5)
        }),
        (r#""max_sessions_per_client": "6""#, |c| {
            c.protection.sessions_per_client.map(u32::from) == Some(6)
        }),
        (r#""max_sessions_per_client": 0, "max_connections_per_client": 0"#, |c| {
            c.protection == Protection::default()
        }),
        (r#""fwmark": 5"#, |c| outbound(c).fwmark == Some(5)),
        (r#""outbound_fwmark": 5, "outbound_udp_allow_fragmentation": true"#, |c| {
            outbound(c).fwmark == Some(5)
        }),
        (r#""interface": "eth0", "outbound_bind_addr": "10.0.0.1""#, |c| {
            outbound(c).interface.as_deref() == Some("eth0") && outbound(c).bind_v4.is_some()
        }),
        (r#""mode": "tcp_only", "version": 1, "bytes_used": 5, "bytes_remaining": 5"#, |_| true),
        // Everything that is written to mean "none".
        (
            r#""plugin": "", "plugin_opts": null, "acl": "", "mode": null, "use_syslog": false,
               "tcp_tproxy": false, "dscp": {}, "online_config": {}, "manager_address": null"#,
            |_| true,
        ),
    ];
    for (keys, check) in checks {
        let tunnel = client(&format!("{keys}, \"tunnel_address\": \"h:1\""));
        for (program, text) in
            [("ss-local", client(keys)), ("ss-server", server(keys)), ("ss-tunnel", tunnel)]
        {
            let config = read(program, &text);
            assert!(check(&config), "{program} {keys}");
            assert_eq!(config.warnings, [""; 0], "{program} {keys}");
        }
    }
}

#[test]
fn reads_json_as_people_write_it() {
    for text in [
        "\u{feff}{\"server\":\"h\",\"server_port\":\"1\",\"local_port\":\"1080\",\"password\":\"x\",}",
        "// ss\n{server: ['h',], server_port: 0x1, local_port: 1080, password: 'x' /* ! */}",
        r#"{"server":"h:1","local_port":1080,"password":"x","method":null}"#,
    ] {
        let config = read("ss-local", text);
        let Role::Client { locals, servers, .. } = &config.role else { panic!("a client") };
        assert_eq!(locals[0].bind.to_string(), "127.0.0.1:1080");
        assert_eq!(locals[0].kind, LocalKind::Socks);
        assert_eq!(servers[0].endpoint.to_string(), "h:1");
        assert_eq!(servers[0].key.method().name(), "chacha20-ietf-poly1305");
        assert_eq!(config.warnings, [""; 0]);
    }
}

#[test]
fn reads_how_several_servers_are_looked_after() {
    let keys =
        r#""balancer": {"max_server_rtt": 2, "check_interval": 20, "check_best_interval": 3}"#;
    let config = load("ss-local", "", Some(&client(keys))).unwrap();
    let balancer = config.balancer;
    assert_eq!(balancer.max_server_rtt.as_secs(), 2);
    assert_eq!(balancer.check_interval.as_secs(), 20);
    assert_eq!(balancer.check_best_interval.map(|d| d.as_secs()), Some(3));
    let default = load("ss-local", "", Some(&client(r#""balancer": {}"#))).unwrap();
    assert_eq!(default.balancer, crate::config::Balancer::default());
    let found = errors("ss-local", &client(r#""balancer": {"check_interval": 0}"#));
    assert!(found.contains("key \"balancer.check_interval\""), "{found}");
    let found = errors("ss-local", &client(r#""online_config": {"config_url": "hunter2"}"#));
    assert!(found.contains("key \"online_config.config_url\": write an address"), "{found}");
    assert!(!found.contains("hunter2"), "{found}");
    let config = load("ss-server", "", Some(&server(r#""balancer": {"check_interval": 5}"#)));
    let warnings = config.unwrap().warnings;
    assert!(warnings[0].contains("no effect on a server"), "{warnings:?}");
}

#[test]
fn refuses_what_is_not_there_with_its_place() {
    for (program, keys) in [
        ("ss-local", r#""auth": true"#),
        ("ss-local", r#""use_syslog": true"#),
        ("ss-server", r#""nftables_sets": "x""#),
        ("ss-local", r#""outbound_proxy": "socks5://hunter2""#),
        ("ss-local", r#""outbound_user_cookie": 5"#),
        ("ss-local", r#""protocol": "dns""#),
        ("ss-local", r#""socks5_auth_config_path": "x""#),
        ("ss-local", r#""http_auth_config_path": "x""#),
        ("ss-local", r#""launchd_tcp_socket_name": "x""#),
        ("ss-local", r#""local_dns_address": "x""#),
        ("ss-local", r#""tun_interface_name": "x""#),
        ("ss-local", r#""dns": "google_tls""#),
        ("ss-local", r#""dns": {"name_servers": []}"#),
    ] {
        let text = if program == "ss-local" { client(keys) } else { server(keys) };
        let found = errors(program, &text);
        let key = keys.split('"').nth(1).unwrap();
        let column = text.find(keys).unwrap() + 1;
        let place = format!("c.json:1:{column}: key \"{key}\": ");
        let removed = key == "auth" || key == "use_syslog" || key.contains("cookie");
        let refusal = found.contains("not in this version") || found.contains("macOS") || removed;
        assert!(found.starts_with(&place) && refusal, "{keys}: {found}");
    }
    for (keys, place) in [
        (r#""log": {"writers": ["console"]}"#, "log.writers"),
        (r#""log": {"config_path": "x"}"#, "log.config_path"),
        (r#""locals": [{"local_port": 2, "protocol": "tun"}]"#, "locals[0].protocol"),
        (r#""servers": [{"server": "h", "outbound_proxy": "x"}]"#, "servers[0].outbound_proxy"),
    ] {
        let found = errors("ss-local", &client(keys));
        assert!(found.contains(&format!("key \"{place}\": ")), "{keys}: {found}");
    }
}

#[test]
fn wrong_values_are_named_with_their_place() {
    for (keys, message) in [
        (r#""server_port": 0"#, "key \"server_port\": the port must be a number from 1 to 65535"),
        (r#""server_port": "http""#, "1 to 65535"),
        (r#""server_port": 8388.5"#, "1 to 65535"),
        (r#""local_port": true"#, "1 to 65535"),
        (r#""timeout": "soon""#, "positive integer"),
        (r#""fast_open": "true""#, "expected true or false, found a string"),
        (r#""fast_open": 1"#, "expected true or false, found a number"),
        (r#""password": 123456"#, "expected a string, found a number"),
        (r#""password": """#, "key \"password\": the password is empty"),
        (r#""method": "rc4-md5""#, "aes-256-gcm"),
        (r#""method": "hunter2""#, "unknown method"),
        (r#""server": 5"#, "expected a string or an array of strings, found a number"),
        (r#""server": "host:bad""#, "invalid server endpoint"),
        (r#""server": ["h", "[::1"]"#, "invalid server endpoint"),
        (r#""server": ["1","2","3","4","5","6","7","8","9","10","11"]"#, "more than 10"),
        (r#""mode": "tcp""#, "unknown mode"),
        (r#""nameserver": "dns.example""#, "IP addresses"),
        (r#""interface": "a/b""#, "name of an interface"),
        (r#""outbound_bind_addr": "example.com""#, "write an IP address"),
        (r#""outbound_fwmark": -1"#, "4294967295"),
        (r#""log": 5"#, "expected an object, found a number"),
        (r#""runtime": {"mode": "fast"}"#, "single_thread"),
        (r#""security": {"replay_attack": {"policy": "x"}}"#, "default, ignore or reject"),
        (r#""version": 2"#, "write 1"),
        (r#""servers": {}"#, "expected an array, found an object"),
        (r#""servers": [5]"#, "key \"servers[0]\": expected an object, found a number"),
        (r#""servers": [{"server": "h", "tcp_weight": 2}]"#, "from 0 to 1"),
        (r#""keep_alive": 0"#, "1 to 32767"),
        (r#""nofile": 0"#, "positive integer"),
        (r#""udp_timeout": 0"#, "positive integer"),
        (r#""udp_max_associations": 0"#, "from 1 to 1048576"),
        (r#""udp_max_associations": 1048577"#, "from 1 to 1048576"),
        (r#""max_sessions_per_client": -1"#, "integer from 0"),
        (r#""outbound_udp_allow_fragmentation": false"#, "the kernel fragments them; write true"),
        (r#""local_address": "unix:x""#, "the whole path"),
        (r#""local_address": "./x.sock""#, "the whole path"),
        (r#""local_address": "/run/""#, "the whole path"),
        (r#""local_udp_address": "/run/x""#, "Unix socket is not possible here"),
        (r#""udp_associate_address": "a:b""#, "1 to 65535"),
        (r#""udp_associate_address": "a""#, "a name is not possible"),
        (r#""servers": [{"server": "h", "udp_weight": 2}]"#, "from 0 to 1"),
        (r#""servers": [{"server": "h", "mode": "udp"}]"#, "key \"servers[0].mode\": unknown mode"),
        (r#""locals": [{"local_port": 2, "mode": "udp"}]"#, "key \"locals[0].mode\": unknown mode"),
    ] {
        let found = errors("ss-local", &client(keys));
        assert!(found.contains(message), "{keys}: {found}");
        assert!(found.starts_with("c.json:1:"), "{keys}: {found}");
    }
    for (keys, message) in [
        (r#""dscp": {"80": "XX"}"#, "key \"dscp.80\": write a DSCP class"),
        (r#""dscp": {"http": "EF"}"#, "1 to 65535"),
        (r#""dscp": ["EF"]"#, "expected an object"),
        (r#""local_ipv4_address": "::1""#, "other family"),
        (r#""local_ipv6_address": "1.2.3.4""#, "other family"),
        (r#""users": [{"name": "a"}]"#, "the user has no \"password\""),
        (r#""users": [{"password": "hunter2"}]"#, "the user has no \"name\""),
        (r#""users": ["a"]"#, "expected an object"),
        (r#""port_password": {"x": "hunter2"}"#, "key \"port_password.x\": the port must be"),
        (r#""port_password": {"1": 5}"#, "key \"port_password.1\": expected a string"),
        (r#""port_password": {"1": "hunter2", "1": "b"}"#, "the port is given more than once"),
        (r#""port_password": {"1": "hunter2", "01": "b"}"#, "the port is given more than once"),
        (r#""destinations": {}"#, "expected an array"),
        (r#""servers": [{"server": "h", "destinations": [5]}]"#, "servers[0].destinations[0]"),
    ] {
        let found = errors("ss-server", &server(keys));
        assert!(found.contains(message), "{keys}: {found}");
    }
    assert!(errors("ss-local", "[]").contains("c.json:1:1: expected an object"));
    assert!(errors("ss-local", "{\n  \"server\": \"h\",\n  oops\n}").starts_with("c.json:4:1: "));
    assert!(errors("ss-local", "").starts_with("c.json: is empty"));
}

#[test]
fn reports_all_errors_at_once() {
    let text = "{\n \"server\": \"a:b\",\n \"server_port\": 0,\n \"fast_open\": 1,\n \"x\": 1}";
    let found = load("ss-local", "", Some(text)).unwrap_err();
    for place in ["c.json:2:", "c.json:3:", "c.json:4:"] {
        assert!(found.iter().any(|e| e.starts_with(place)), "{place} {found:?}");
    }
}

#[test]
fn warns_about_what_has_no_effect() {
    for (program, keys, message) in [
        ("ss-local", r#""servr": "x""#, "unknown key, ignored; did you mean \"server\"?"),
        ("ss-local", r#""fastopen": true"#, "did you mean \"fast_open\"?"),
        ("ss-local", r#""_comment": "x""#, "unknown key, ignored; remove it"),
        ("ss-local", r#""log": {"levle": 1}"#, "key \"log.levle\": unknown key"),
        ("ss-local", r#""udp_mtu": 5"#, "datagrams of any size pass"),
        ("ss-server", r#""mtu": 1400"#, "datagrams of any size pass"),
        ("ss-local", r#""local_udp_port": 5"#, "where no UDP is relayed"),
        ("ss-local", r#""local_udp_address": "::1""#, "where no UDP is relayed"),
        ("ss-local", r#""udp_associate_address": "::1""#, "where no UDP is relayed"),
        ("ss-local", r#""local_address": "/run/x.sock""#, "beside a Unix socket"),
        ("ss-local", r#""port_password": {"1": "hunter2"}"#, "on a client"),
        ("ss-local", r#""destinations": [{"server": "h"}]"#, "on a client"),
        ("ss-server", r#""printable_salt": true"#, "ss-local only"),
        ("ss-server", r#""local_udp_port": 5"#, "on a server"),
        ("ss-local", r#""plugin_opts": "x""#, "without \"plugin\""),
        ("ss-local", r#""plugin_mode": "tcp_only""#, "without \"plugin\""),
        ("ss-local", r#""plugin_args": ["x"]"#, "without \"plugin\""),
        ("ss-local", r#""users": [{"name": "a", "password": "b"}]"#, "on a client"),
        ("ss-local", r#""dscp": {"80": "EF"}"#, "on a client"),
        ("ss-local", r#""tunnel_address": "h:1""#, "ss-tunnel only"),
        ("ss-server", r#""local_port": 1080"#, "on a server"),
        ("ss-server", r#""protocol": "socks""#, "on a server"),
        ("ss-server", r#""locals": [{"local_port": 5}]"#, "on a server"),
        ("ss-server", r#""local_address": "127.0.0.1""#, "loopback address has no effect"),
        (
            "ssserver",
            r#""method": "aes-128-gcm", "local_address": "10.0.0.1""#,
            "outbound_bind_addr",
        ),
        ("ss-local", r#""tcp_incoming_sndbuf": 4096"#, "below 16383"),
        (
            "ss-local",
            r#""key": "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA""#,
            "key \"password\": has no effect beside",
        ),
        ("ss-local", r#""user": "a", "user": "b""#, "more than once"),
        ("ss-local", r#""method": "none""#, "DOES NOT ENCRYPT"),
        ("ss-local", r#""method": "plain""#, "DOES NOT ENCRYPT"),
    ] {
        let text = if program == "ss-local" { client(keys) } else { server(keys) };
        let warnings = read(program, &text).warnings;
        assert_eq!(warnings.len(), 1, "{keys}: {warnings:?}");
        assert!(warnings[0].contains(message), "{keys}: {warnings:?}");
        assert!(warnings[0].starts_with("c.json:1:"), "{keys}: {warnings:?}");
        assert!(!warnings[0].contains("hunter2"), "{warnings:?}");
    }
}

#[test]
fn a_file_of_the_wrong_kind_does_not_flood() {
    let keys: String = (0..1000).map(|i| format!("\"zz{i}\": 1,")).collect();
    let warnings = read("ss-local", &client(&keys)).warnings;
    assert_eq!(warnings.len(), super::UNKNOWN_MAX);
}

#[test]
fn guesses_the_program() {
    let program = |text: &str| {
        let report = check_bytes("c.json".as_ref(), text.as_bytes(), None, &|_| None);
        report.unwrap_or_else(|e| panic!("{text}: {e:?}")).program
    };
    assert_eq!(program(&client("")), Program::Local);
    assert_eq!(program(&server("")), Program::Server);
    assert_eq!(program(&server(r#""local_port": 1080"#)), Program::Server);
    assert_eq!(program(&client(r#""tunnel_address": "h:1""#)), Program::Tunnel);
    let locals =
        r#"{"servers": [{"server": "h:1", "password": "x"}], "locals": [{"local_port": 1}]}"#;
    assert_eq!(program(locals), Program::Local);
    let listed = r#"{"server": ["[::0]", "0.0.0.0"], "server_port": 1, "password": "x"}"#;
    assert_eq!(program(listed), Program::Server);
    let junk = check_bytes("c.json".as_ref(), b"[1]", None, &|_| None).unwrap_err();
    assert_eq!(junk[0].to_string(), "c.json:1:1: expected an object, { ... }");
    assert_eq!(check_bytes("c.json".as_ref(), b"{", None, &|_| None).unwrap_err().len(), 1);
}
