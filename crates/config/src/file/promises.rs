//! What the documentation promises of every option and key: it is there, and has an effect or is
//! refused with what to write instead; and no option of another family is missing.

use std::collections::BTreeMap;

use super::{Action, Key, keys};
use crate::config::{Config, Role};
use crate::flags::{self, Flag, table};
use crate::program::{Dialect, Invoked, PROGRAMS, Program};
use crate::source::Sources;
use crate::source::tests::load;

const PAGE: &str = include_str!("../../../../docs/shadowsocks.md");

/// The options of shadowsocks-libev 3.3.5 (`getopt_long`), of shadowsocks-c, and of
/// shadowsocks-rust 1.25 (`--help`).
const OTHERS: [(&str, &str); 11] = [
    (
        "ss-local",
        "-f -s -p -l -k -t -m -i -c -b -a -n -h -u -U -v -6 -A --reuse-port --fast-open --no-delay \
         --acl --mtu --mptcp --plugin --plugin-opts --password --key --help",
    ),
    (
        "ss-server",
        "-f -s -p -l -k -t -m -b -c -i -d -a -n -h -u -U -v -6 -A --fast-open --reuse-port --no-delay \
         --acl --manager-address --mtu --mptcp --plugin --plugin-opts --password --key --help \
         --nftables-sets",
    ),
    (
        "ss-tunnel",
        "-f -s -p -l -k -t -m -i -c -b -L -a -n -h -u -U -v -6 -A --fast-open --mtu --no-delay --mptcp \
         --plugin --plugin-opts --reuse-port --password --key --help",
    ),
    (
        "ss-redir",
        "-f -s -p -l -k -t -m -c -b -a -n -h -u -U -T -v -6 -A --fast-open --mtu --mptcp --plugin \
         --plugin-opts --reuse-port --no-delay --password --key --help",
    ),
    (
        "ss-manager",
        "-f -s -p -b -l -k -t -m -c -i -d -a -n -D -6 -h -u -U -v -A --fast-open --no-delay \
         --reuse-port --acl --manager-address --executable --mtu --mptcp --plugin --plugin-opts \
         --password --workdir --help",
    ),
    (
        "ss-local ss-tunnel ss-redir",
        "--server --server-port --listen-port --tcp-incoming-sndbuf --tcp-incoming-rcvbuf \
         --tcp-outgoing-sndbuf --tcp-outgoing-rcvbuf",
    ),
    ("ss-local", "--server-url --printable-salt --interface"),
    (
        "ss-local ss-server ss-tunnel ss-redir ss-manager",
        "--config --cipher --password --timeout --user --pid-file --verbose --udp --udp-only \
         --tcp-only --ipv4-first --ipv6-first --version --listen-address --help -V",
    ),
    (
        "ss-server",
        "--listen-port --outbound-address --interface --nameserver --tcp-incoming-sndbuf \
         --tcp-incoming-rcvbuf --tcp-outgoing-sndbuf --tcp-outgoing-rcvbuf",
    ),
    (
        "sslocal ssserver ssmanager",
        "-c --config -m --encrypt-method --timeout --plugin --plugin-mode --plugin-opts --acl --dns \
         --dns-cache-size --tcp-no-delay --no-delay --tcp-fast-open --fast-open --tcp-keep-alive \
         --tcp-multipath --mptcp --udp-timeout --udp-max-associations --inbound-send-buffer-size \
         --inbound-recv-buffer-size --outbound-send-buffer-size --outbound-recv-buffer-size \
         --outbound-bind-addr --outbound-bind-interface -6 -u -U -v --log-without-time --log-config \
         -d --daemonize --daemonize-pid -n --nofile --outbound-fwmark --outbound-user-cookie \
         --single-threaded --worker-threads -a --user -h --help -V --version",
    ),
    (
        "sslocal",
        "-b --local-addr --protocol --udp-bind-addr --udp-associate-addr -s --server-addr -k \
         --password --server-url -f --forward-addr --tcp-redir --udp-redir --local-dns-addr \
         --remote-dns-addr --tun-interface-name --tun-interface-address --tun-interface-destination \
         --tun-device-fd-from-path --online-config-url --online-config-update-interval \
         --online-config-allowed-plugin",
    ),
];

const RUST_SERVERS: [(&str, &str); 2] = [
    (
        "ssserver",
        "-b --bind-addr --outbound-proxy -s --server-addr -k --password --server-url --manager-addr \
         --manager-address",
    ),
    (
        "ssmanager",
        "-b -s --server-host --manager-addr --manager-address --manager-server-mode \
         --manager-server-working-directory",
    ),
];

#[test]
fn no_option_of_another_family_is_missing() {
    for (programs, options) in OTHERS.into_iter().chain(RUST_SERVERS) {
        for name in programs.split(' ') {
            let invoked = Invoked::by_name(name).unwrap();
            let known: Vec<_> = flags_of(invoked).flat_map(names).collect();
            for option in options.split_ascii_whitespace() {
                assert!(known.iter().any(|known| known == option), "{name} {option}");
            }
        }
    }
}

fn flags_of(invoked: Invoked) -> impl Iterator<Item = &'static Flag> {
    table(invoked.program, invoked.dialect)
}

/// Every spelling of an option.
fn names(flag: &Flag) -> Vec<String> {
    let short = flag.short.map(|short| format!("-{short}"));
    short.into_iter().chain(flag.long().map(ToOwned::to_owned)).collect()
}

/// What the page calls what becomes of an option or key.
fn verdict(text: &str) -> &'static str {
    let said = ["refused", "warning"].into_iter().find(|word| text.starts_with(word));
    said.unwrap_or("has an effect")
}

/// The rows of the table below a heading, without its head.
fn rows(heading: &str) -> impl Iterator<Item = Vec<&'static str>> {
    let section = PAGE.split(&format!("\n## {heading}\n")).nth(1).expect(heading);
    let section = section.split("\n## ").next().unwrap_or_default();
    let cells = |line: &'static str| line.trim_matches('|').split(" | ").map(str::trim).collect();
    section.lines().filter(|line| line.starts_with('|')).skip(2).map(cells)
}

/// What stands in backticks.
fn quoted(text: &'static str) -> impl Iterator<Item = &'static str> {
    text.split('`').skip(1).step_by(2)
}

#[test]
fn the_page_has_every_option_of_every_program() {
    let sections = [
        ("Options of shadowsocks-libev and shadowsocks-c", Dialect::Libev),
        ("Options of shadowsocks-rust", Dialect::Rust),
    ];
    for (heading, dialect) in sections {
        let mut documented = BTreeMap::new();
        for row in rows(heading) {
            let [options, letters, here] = row[..] else { panic!("{row:?}") };
            for option in quoted(options) {
                // The value is named behind it.
                let option = option.split(' ').next().unwrap_or(option);
                for letter in letters.split(' ') {
                    let key = (letter.to_owned(), option.to_owned());
                    let before = documented.insert(key, verdict(here));
                    assert_eq!(before, None, "{option} of {letter} stands there twice");
                }
            }
        }
        let mut there = BTreeMap::new();
        for invoked in PROGRAMS.into_iter().filter(|p| p.dialect == dialect) {
            let letter = match invoked.program {
                Program::Local => "L",
                Program::Server => "S",
                Program::Tunnel => "T",
                Program::Redir => "R",
                Program::Manager => "M",
            };
            for flag in flags_of(invoked) {
                let what = match flag.action {
                    flags::Action::Refuse(_) => "refused",
                    flags::Action::Warn(_) => "warning",
                    _ => "has an effect",
                };
                there.extend(names(flag).into_iter().map(|n| ((letter.to_owned(), n), what)));
            }
        }
        for (key, what) in &documented {
            assert_eq!(there.get(key), Some(what), "{key:?} is on the page");
        }
        for (key, what) in &there {
            assert_eq!(documented.get(key), Some(what), "{key:?} is in the table of options");
        }
    }
}

/// The keys of an object and of those in it, with their parents.
fn keys_below(table: &'static [Key], parent: &str, into: &mut Vec<(String, &'static Key)>) {
    for key in table {
        for name in key.names() {
            let path = format!("{parent}{name}");
            if let Action::Scope(inner) = key.action {
                keys_below(inner, &format!("{path}."), into);
            } else {
                into.push((path, key));
            }
        }
    }
}

/// All keys, with the list in whose entries they stand; empty at the top.
fn all_keys() -> Vec<(&'static str, String, &'static Key)> {
    let tables: [(&str, &[Key]); 9] = [
        ("", keys::TOP),
        ("", keys::SERVER),
        ("", keys::LOCAL),
        ("servers", keys::SERVER),
        ("servers", keys::SERVER_ENTRY),
        ("locals", keys::LOCAL),
        ("locals", keys::LOCAL_ENTRY),
        ("destinations", keys::DESTINATION),
        ("users", keys::USER),
    ];
    let mut all = Vec::new();
    for (list, table) in tables {
        let mut found = Vec::new();
        keys_below(table, "", &mut found);
        all.extend(found.into_iter().map(|(path, key)| (list, path, key)));
    }
    all
}

#[test]
fn the_page_has_every_key() {
    let rows: Vec<_> = rows("Keys of configuration files").collect();
    let bare = |said: &'static str| said.trim_end_matches("[]");
    let documented: Vec<_> = rows.iter().flat_map(|row| quoted(row[0])).map(bare).collect();
    let there = all_keys();
    let leaf = |path: &str| path.rsplit('.').next().unwrap_or(path).to_owned();
    for (_, path, key) in &there {
        let spelt = documented.iter().any(|said| *said == path || *said == leaf(path));
        assert!(spelt, "{path} is not on the page");
        let about = rows.iter().find(|row| quoted(row[0]).any(|said| said == path));
        let Some([.., here]) = about.map(Vec::as_slice) else { continue };
        if matches!(key.action, Action::Refuse(_)) {
            assert!(here.contains("refused"), "{path}: {here}");
        }
    }
    for said in documented {
        let scope = |key: &Key| key.names().any(|known| known == said);
        let known = there.iter().any(|(_, path, _)| path == said || leaf(path) == said)
            || keys::TOP.iter().any(scope);
        assert!(known, "{said} is on the page and is no key");
    }
}

/// A configuration as text in which every setting shows, secrets aside.
fn shown(program: &str, line: &str, file: Option<&str>) -> String {
    let mut config = match load(program, line, file) {
        Ok(config) => config,
        Err(errors) => return format!("refused: {}", errors.join("\n")),
    };
    // How the settings came about is not what they do.
    config.sources = Sources::file_only(config.invoked, "".into());
    config.merged = None;
    format!("{config:#?}\n{}", servers(&config))
}

fn servers(config: &Config) -> String {
    let mut text = String::new();
    let mut say = |line: String| text.push_str(&line);
    match &config.role {
        Role::Client { servers, .. } => servers.iter().for_each(|s| {
            say(format!(
                "{:?} {:?} {:?} {} {} {:?} {:?} {:?} {}\n",
                s.name,
                s.id,
                s.mode,
                s.tcp_weight,
                s.udp_weight,
                s.timeout,
                s.outbound,
                s.plugin,
                s.key.clone().with_printable_salt().is_ok_and(|printable| printable == s.key)
            ));
            let plugin = s.plugin.as_ref();
            say(format!("{:?}\n", plugin.map(|p| (p.options.is_some(), p.args.len()))));
        }),
        Role::Server { listeners } => listeners.iter().for_each(|s| {
            say(format!(
                "{:?} {:?} {:?} {:?} {:?} {:?} {:?} {:?} {:?}\n",
                s.key.users().iter().map(|user| user.name()).collect::<Vec<_>>(),
                s.name,
                s.id,
                s.mode,
                s.timeout,
                s.outbound,
                s.plugin,
                s.acl,
                s.relay.as_ref().map(|relay| &relay.destinations)
            ));
            let plugin = s.plugin.as_ref();
            say(format!("{:?}\n", plugin.map(|p| (p.options.is_some(), p.args.len()))));
        }),
    }
    text
}

/// What a program needs, in its dialect.
fn needed(name: &str) -> &'static str {
    match name {
        "ss-server" => "-s 192.0.2.1 -p 8388 -k x -m aes-256-gcm",
        "ss-tunnel" => "-s 192.0.2.1 -p 8388 -k x -m aes-256-gcm -l 1080 -L 192.0.2.9:9",
        "ss-manager" => "-m aes-256-gcm --manager-address 127.0.0.1:6001",
        "sslocal" => "-s 192.0.2.1:8388 -k x -m aes-256-gcm -b 127.0.0.1:1080",
        "ssserver" => "-s 192.0.2.1:8388 -k x -m aes-256-gcm",
        "ssmanager" => "-m aes-256-gcm --manager-addr 127.0.0.1:6001",
        _ => "-s 192.0.2.1 -p 8388 -k x -m aes-256-gcm -l 1080",
    }
}

/// A value that is no default, and what has to be there for the option to matter.
fn value_of(flag: &Flag) -> (&'static str, &'static str) {
    let name = flag.long().next().unwrap_or_default();
    match name {
        "--server" | "--server-addr" => ("192.0.2.77:77", ""),
        "--listen-address" | "--server-host" if flag.value == Some("HOST") => ("192.0.2.77", ""),
        "--listen-address" if flag.value == Some("HOST[:PORT]") => ("192.0.2.77:77", ""),
        "--server-url" => ("ss://aes-128-gcm:pw@192.0.2.77:9", ""),
        "--online-config-url" => ("https://192.0.2.77/", ""),
        "--online-config-update-interval" => ("77", "--online-config-url https://192.0.2.77/"),
        "--online-config-allowed-plugin" => ("p", "--online-config-url https://192.0.2.77/"),
        "--online-config-cache-file" => ("/c", "--online-config-url https://192.0.2.77/"),
        "--listen-address" | "--outbound-address" | "--outbound-bind-addr" => ("192.0.2.77", ""),
        "--local-addr" | "--manager-address" | "--manager-addr" => ("192.0.2.77:77", ""),
        "--udp-bind-addr" | "--udp-associate-addr" => ("192.0.2.77:77", "-U"),
        "--forward-addr" => ("192.0.2.77:77", "--protocol tunnel"),
        "--destination" => ("192.0.2.77:77", ""),
        "--protocol" => ("http", ""),
        "--tcp-redir" => ("tproxy", "--protocol redir"),
        "--udp-redir" => ("tproxy", "--protocol socks -U"),
        "--cipher" | "--encrypt-method" => ("aes-128-gcm", ""),
        "--nameserver" | "--dns" => ("192.0.2.77", ""),
        "--plugin" => ("obfs", ""),
        "--plugin-opts" => ("a=b", "--plugin obfs"),
        "--plugin-mode" => ("tcp_and_udp", "--plugin obfs"),
        "--interface" | "--outbound-bind-interface" => ("eth7", ""),
        "--user" => ("nobody", ""),
        "--acl" | "--geoip-database" => ("/there/is/none", ""),
        "--pid-file" | "--state-file" | "--workdir" | "--daemonize-pid" => ("/p", ""),
        "--manager-server-mode" => ("standalone", ""),
        _ if flag.value.is_some() => ("20077", ""),
        _ => ("", ""),
    }
}

/// Ports for the managers, and the opposite of what some options say.
fn file_for(invoked: Invoked) -> String {
    let own = match invoked.program {
        Program::Manager => r#""port_password": {"8001": "x"}, "block_private": true,"#,
        Program::Server => r#""block_private": true,"#,
        _ => "",
    };
    format!(r#"{{{own} "mode": "tcp_and_udp", "no_delay": false}}"#)
}

#[test]
fn every_option_has_an_effect_or_says_why_not() {
    // The first three are looked at by tests of their own. The last one is what is done anyway.
    let apart = ["--password", "--key", "--config", "--outbound-udp-allow-fragmentation"];
    let mut idle = Vec::new();
    for invoked in PROGRAMS {
        for flag in flags_of(invoked) {
            let name = flag.long().next().unwrap_or_default();
            if apart.contains(&name)
                || matches!(flag.action, flags::Action::Help | flags::Action::Version)
            {
                continue;
            }
            let (value, beside) = value_of(flag);
            let base = format!("{} {beside}", needed(invoked.name));
            let file = file_for(invoked);
            let ports = r#"{"port_password": {"8001": "x"}}"#;
            let plain = if invoked.program == Program::Manager { ports } else { "{}" };
            for spelling in names(flag) {
                let line = format!("{base} {spelling} {value}");
                let line = line.trim_end();
                let effect = [plain, &file].into_iter().any(|file| {
                    let before = shown(invoked.name, &base, Some(file));
                    before != shown(invoked.name, line, Some(file))
                });
                if !effect {
                    idle.push(format!("{} {line}", invoked.name));
                }
                if let flags::Action::Refuse(_) = flag.action {
                    let text = shown(invoked.name, line, None);
                    let says = ["write ", "use ", "remove ", "its own address"];
                    assert!(text.starts_with("refused: option "), "{line}: {text}");
                    assert!(says.iter().any(|hint| text.contains(hint)), "{line}: {text}");
                }
            }
        }
    }
    assert!(idle.is_empty(), "these change nothing: {idle:#?}");
}

/// A value that is no default, as it is written in a file, and keys that have to stand beside it.
fn written(list: &str, path: &str) -> (&'static str, &'static [(&'static str, &'static str)]) {
    const SERVER: &str = r#"[{"server": "192.0.2.77", "server_port": 77, "password": "x"}]"#;
    const SHARED: &[(&str, &str)] = &[
        ("method", r#""2022-blake3-aes-128-gcm""#),
        ("password", r#""EBESExQVFhcYGRobHB0eHw==""#),
    ];
    let leaf = path.rsplit('.').next().unwrap_or(path);
    match leaf {
        "policy" => (r#""ignore""#, &[]),
        "mode" if path == "runtime.mode" => (r#""single_thread""#, &[]),
        "mode" if list == "servers" => (r#""udp_only""#, &[]),
        "mode" => (r#""tcp_and_udp""#, &[]),
        "plugin_mode" => (r#""tcp_and_udp""#, &[("plugin", r#""obfs""#)]),
        "plugin_opts" => (r#""a=b""#, &[("plugin", r#""obfs""#)]),
        "plugin_args" => (r#"["a"]"#, &[("plugin", r#""obfs""#)]),
        "servers" | "shadowsocks" => (SERVER, &[]),
        "locals" => (r#"[{"local_port": 77}]"#, &[]),
        "destinations" => (
            r#"[{"server": "192.0.2.77", "server_port": 77, "password": "AAECAwQFBgcICQoLDA0ODw=="}]"#,
            SHARED,
        ),
        "users" => (r#"[{"name": "u", "password": "AAECAwQFBgcICQoLDA0ODw=="}]"#, SHARED),
        "port_password" => (r#"{"77": "y"}"#, &[]),
        "dscp" => (r#"{"77": "EF"}"#, &[]),
        "ipv6_first" | "ipv6_only" | "reuse_port" | "fast_open" | "mptcp" | "block_private"
        | "printable_salt" | "tcp_tproxy" | "use_syslog" | "without_time" | "disabled" => {
            ("true", &[])
        }
        "no_delay" | "outbound_udp_allow_fragmentation" => ("false", &[]),
        "writers" | "allowed_plugins" => {
            (r#"["x"]"#, &[("config_url", r#""https://192.0.2.77/""#)])
        }
        "update_interval" => ("77", &[("config_url", r#""https://192.0.2.77/""#)]),
        "cache_file" => (r#""/c""#, &[("config_url", r#""https://192.0.2.77/""#)]),
        "config_url" => (r#""https://192.0.2.77/""#, &[]),
        "method" => (r#""aes-128-gcm""#, &[]),
        "protocol" => (r#""http""#, &[]),
        "forward_address" => {
            (r#""192.0.2.77""#, &[("protocol", r#""tunnel""#), ("forward_port", "7")])
        }
        "forward_port" => {
            ("77", &[("protocol", r#""tunnel""#), ("forward_address", r#""192.0.2.7""#)])
        }
        "tcp_redir" => (r#""tproxy""#, &[("protocol", r#""redir""#)]),
        "udp_redir" => (r#""tproxy""#, &[]),
        "tunnel_address" => (r#""192.0.2.77:77""#, &[]),
        "local_udp_address" | "local_udp_port" | "udp_associate_address" => (
            if leaf == "local_udp_port" { "77" } else { r#""192.0.2.77""# },
            &[("mode", r#""tcp_and_udp""#)],
        ),
        "manager_port" => ("77", &[("manager_address", r#""192.0.2.7""#)]),
        "tcp_weight" | "udp_weight" => ("0.5", &[]),
        "version" => ("2", &[]),
        "level" => ("2", &[]),
        "local_ipv6_address" => (r#""2001:db8::77""#, &[]),
        "outbound_proxy" => (r#""socks5://192.0.2.77:1""#, &[]),
        _ if leaf.ends_with("address") || leaf == "server" || leaf == "nameserver" => {
            (r#""192.0.2.77""#, &[])
        }
        "dns" | "outbound_bind_addr" => (r#""192.0.2.77""#, &[]),
        _ if leaf.ends_with("port")
            || leaf.ends_with("mark")
            || leaf.ends_with("buf")
            || leaf.ends_with("mtu")
            || leaf.ends_with("timeout")
            || leaf.ends_with("rtt")
            || leaf.ends_with("interval")
            || leaf.ends_with("size")
            || leaf.starts_with("max_") =>
        {
            ("20077", &[])
        }
        "nofile" | "udp_max_associations" | "keep_alive" | "workers" | "worker_count" => {
            ("777", &[])
        }
        _ => (r#""some""#, &[]),
    }
}

/// A file with everything a program needs, `more` in front, and one list.
fn document(invoked: Invoked, list: &str, more: &[(String, String)]) -> String {
    let pair = |(name, value): &(&str, &str)| (name.to_string(), value.to_string());
    let client: &[(&str, &str)] = match invoked.program {
        Program::Tunnel => &[("local_port", "1080"), ("tunnel_address", r#""192.0.2.9:9""#)],
        Program::Manager => &[("manager_address", r#""127.0.0.1:6001""#)],
        Program::Server => &[],
        _ => &[("local_port", "1080")],
    };
    let one_server = [
        ("server", r#""192.0.2.1""#),
        ("server_port", "8388"),
        ("password", r#""x""#),
        ("method", r#""aes-256-gcm""#),
    ];
    let fill = |needed: &[(&str, &str)], given: &[(String, String)]| {
        let mut all = given.to_vec();
        for pair in needed.iter().map(pair) {
            let other = |name: &str| match name {
                "server" => "address",
                "server_port" => "port",
                _ => "",
            };
            let has =
                |name: &str| all.iter().any(|(known, _)| known == name || known == other(name));
            if !has(&pair.0) {
                all.push(pair);
            }
        }
        nested(&all)
    };
    let top = |own: &[(&str, &str)]| own.iter().map(pair).collect::<Vec<_>>();
    match list {
        "" => fill(&[&one_server[..], client].concat(), more),
        "servers" => {
            let entry = fill(&one_server, more);
            fill(client, &[("servers".to_owned(), format!("[{entry}]"))])
        }
        "locals" => {
            let entry = fill(&[("local_port", "1080")], more);
            let mut own = top(&one_server);
            own.push(("locals".to_owned(), format!("[{entry}]")));
            if invoked.program == Program::Tunnel {
                own.extend(top(&client[1..]));
            } else if invoked.program == Program::Manager {
                own.extend(top(client));
            }
            nested(&own)
        }
        _ => {
            let key = r#""AAECAwQFBgcICQoLDA0ODw==""#;
            let entry = if list == "users" {
                fill(&[("name", r#""u""#), ("password", key)], more)
            } else {
                fill(&[("server", r#""192.0.2.7""#), ("server_port", "7"), ("password", key)], more)
            };
            let mut own = top(&[
                ("server", r#""192.0.2.1""#),
                ("server_port", "8388"),
                ("password", r#""EBESExQVFhcYGRobHB0eHw==""#),
                ("method", r#""2022-blake3-aes-128-gcm""#),
            ]);
            own.push((list.to_owned(), format!("[{entry}]")));
            own.extend(top(client));
            nested(&own)
        }
    }
}

/// An object; what has dots in its name goes into objects of their own.
fn nested(pairs: &[(String, String)]) -> String {
    let mut fields = Vec::new();
    let mut inner: BTreeMap<&str, Vec<(String, String)>> = BTreeMap::new();
    for (name, value) in pairs {
        match name.split_once('.') {
            None => fields.push(format!("\"{name}\": {value}")),
            Some((scope, rest)) => {
                inner.entry(scope).or_default().push((rest.to_owned(), value.clone()));
            }
        }
    }
    fields.extend(inner.iter().map(|(scope, pairs)| format!("\"{scope}\": {}", nested(pairs))));
    format!("{{{}}}", fields.join(", "))
}

#[test]
fn every_key_has_an_effect_or_says_why_not() {
    // Secrets are looked at by tests of their own; figures of an account are for people.
    let apart = ["password", "key", "bytes_used", "bytes_remaining"];
    let mut idle = Vec::new();
    for invoked in PROGRAMS {
        for (list, path, key) in all_keys() {
            let is_server = !invoked.program.is_client();
            if apart.contains(&path.as_str())
                // Lists of another program's are warned of as a whole.
                || (list == "locals" && is_server)
                || (path.starts_with("online_config.") && is_server)
                || (["users", "destinations"].contains(&list) && !is_server)
            {
                continue;
            }
            let (value, beside) = written(list, &path);
            let parent = path.rsplit_once('.').map_or(String::new(), |(p, _)| format!("{p}."));
            let beside: Vec<_> = beside
                .iter()
                .filter(|(name, _)| *name != path)
                // The other client programs have a protocol of their own.
                .filter(|(name, _)| *name != "protocol" || invoked.program == Program::Local)
                .map(|(name, value)| (format!("{parent}{name}"), (*value).to_owned()))
                .collect();
            let with = |value: &str| {
                let mut more = beside.clone();
                more.push((path.clone(), value.to_owned()));
                document(invoked, list, &more)
            };
            let file = with(value);
            let before = document(invoked, list, &beside);
            let (old, new) =
                (shown(invoked.name, "", Some(&before)), shown(invoked.name, "", Some(&file)));
            if old == new {
                idle.push(format!("{} {list} {path}: {file}", invoked.name));
            }
            if let Action::Refuse(_) = key.action {
                let place = format!("key \"{}", if list.is_empty() { "" } else { list });
                assert!(new.contains("c.json:1:") && new.contains(&place), "{path}: {new}");
                let says = ["write ", "use ", "remove "];
                assert!(says.iter().any(|hint| new.contains(hint)), "{path}: {new}");
            }
        }
    }
    assert!(idle.is_empty(), "these change nothing: {idle:#?}");
}
