//! Files as they are found in public, in Dante's language: each line gets its verdict, and what is
//! understood does what Dante does.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use adit_policy::{
    Access, Command, Destination, Method, Prefix, ProxyProtocol, Request, Stage, WeekTime,
};
use adit_socks_config::{
    Compiled, Config, Environment, External, Files, Import, Language, ListenAt, Prefer, Rotation,
    Verdict, import, load,
};

#[derive(Debug)]
struct One<'a>(&'a str);

impl Files for One<'_> {
    fn read(&self, _path: &Path) -> io::Result<Vec<u8>> {
        Ok(self.0.as_bytes().to_vec())
    }

    fn canonical(&self, path: &Path) -> io::Result<PathBuf> {
        Ok(path.to_path_buf())
    }

    fn list(&self, _directory: &Path) -> io::Result<Vec<String>> {
        Ok(Vec::new())
    }
}

fn read(text: &str) -> Import {
    import(Path::new("/etc/sockd.conf"), &One(text))
}

fn config(text: &str) -> Config {
    let import = read(text);
    import.result.unwrap_or_else(|found| panic!("{found:#?}")).config
}

fn compiled(config: &Config) -> Compiled {
    let environment = Environment {
        interface: &|name| (name == "eth0").then(|| vec![Prefix::parse("192.0.2.1/24").unwrap()]),
        countries: None,
    };
    config.policy(&environment).unwrap_or_else(|found| panic!("{found:#?}"))
}

fn passes(compiled: &Compiled, method: Method, command: Command, to: &str, port: u16) -> bool {
    let request = Request {
        from: "10.0.0.9:40000".parse().unwrap(),
        user: None,
        method,
        command,
        proxy_protocol: ProxyProtocol::Socks5,
        port,
        time: WeekTime::of_local_seconds(0),
    };
    compiled.policy.judge(&request, Destination::Addr(to.parse().unwrap(), None)).is_pass()
}

/// One line of a file in short: its verdict and its keyword.
fn short(import: &Import) -> Vec<String> {
    let sign = |verdict| match verdict {
        Verdict::Understood => '+',
        Verdict::Ignored => '~',
        Verdict::Refused => '!',
    };
    import
        .notes
        .iter()
        .map(|note| format!("{}{}{}", note.line, sign(note.verdict), note.keyword))
        .collect()
}

/// The commonest kind: one address, passwords, everything open, the methods mixed up.
const PASSWORDS: &str = "\
logoutput: stderr
internal: 0.0.0.0 port = 1080
external: eth0

socksmethod: username
clientmethod: none
user.privileged: root
user.notprivileged: nobody
userlist: /etc/adit/users

client pass {
        from: 0.0.0.0/0 to: 0.0.0.0/0
        log: error connect disconnect
}
client block {
        from: 0.0.0.0/0 to: 0.0.0.0/0
        log: connect error
}
socks pass {
        from: 0.0.0.0/0 to: 0.0.0.0/0
        command: bind connect udpassociate
        log: error connect disconnect
        socksmethod: username
}
socks pass {
        from: 0.0.0.0/0 to: 0.0.0.0/0
        command: bindreply udpreply
}
";

#[test]
fn a_file_with_passwords() {
    let import = read(PASSWORDS);
    assert!(
        import.notes.iter().all(|note| note.verdict != Verdict::Refused),
        "{:#?}",
        import.notes
    );
    let config = import.result.unwrap().config;
    assert_eq!(config.auth.methods, [Method::Username], "clientmethod is another matter");
    assert_eq!(config.externals, [External::Interface("eth0".into())]);
    assert_eq!(config.run_as.as_deref(), Some("nobody"));
    let compiled = compiled(&config);
    assert_eq!(compiled.warnings.len(), 1, "the client block: {:?}", compiled.warnings);
    assert!(compiled.warnings[0].contains("/etc/sockd.conf:line 15"));
    assert!(passes(&compiled, Method::Username, Command::Connect, "9.9.9.9", 443));
    assert!(passes(&compiled, Method::Username, Command::Bind, "9.9.9.9", 443));
    assert!(passes(&compiled, Method::None, Command::UdpReply, "10.0.0.9", 443));
    assert!(!passes(&compiled, Method::None, Command::Connect, "9.9.9.9", 443));
    assert!(!passes(&compiled, Method::Username, Command::Connect, "127.0.0.1", 443));
}

#[test]
fn every_line_has_its_verdict() {
    let import = read(PASSWORDS);
    assert_eq!(
        short(&import)[..12],
        [
            "1+logoutput",
            "2+internal",
            "3+external",
            "5+socksmethod",
            "6+clientmethod",
            "7~user.privileged",
            "8+user.notprivileged",
            "9+userlist",
            "11+client pass",
            "12+from",
            "12+to",
            "13~log",
        ]
    );
    assert_eq!(
        import.notes[5].to_string().split(": ").take(3).collect::<Vec<_>>(),
        ["line 7", "user.privileged", "safely ignored"]
    );
}

/// Spellings from before 1.4, blocks on one line, ports in every form.
const OLD: &str = "\
# an old one
errorlog: /var/log/sockd.errlog
logoutput: syslog/daemon /var/log/sockd.log
debug: 0
internal:127.0.0.1 port=1080
internal : lo port 1081
internal: ::1
internal.protocol: ipv4
internal: eth0 port eq socks
external.protocol: ipv4
external: 192.0.2.1
external: 192.0.2.2
external.rotation: same-same
method: none
user.libwrap: nobody
client pass { from: 10.0.0.0/8 port 1-65535 to: 0/0 method: none }
pass { from: 10.0.0.0/8 to: .example.com port = https protocol: tcp log: connect }
block { from: 0/0 to: 0/0 port lt 1024 } pass { from: 0/0 to: 0/0 }
";

#[test]
fn old_spellings() {
    let import = read(OLD);
    assert!(
        import.notes.iter().all(|note| note.verdict != Verdict::Refused),
        "{:#?}",
        import.notes
    );
    assert!(short(&import).contains(&"2~errorlog".into()));
    let config = import.result.unwrap().config;
    assert_eq!(config.listeners.len(), 4);
    assert_eq!(config.listeners[0].at, ListenAt::Addr("127.0.0.1:1080".parse().unwrap()));
    assert_eq!(config.listeners[2].at, ListenAt::Addr("[::1]:1080".parse().unwrap()));
    assert!(
        matches!(&config.listeners[1].at, ListenAt::Interface { name, port: 1081, families } if name == "lo" && families.v6)
    );
    assert!(
        matches!(&config.listeners[3].at, ListenAt::Interface { name, port: 1080, families } if name == "eth0" && !families.v6)
    );
    assert_eq!((config.externals.len(), config.rotation), (2, Rotation::SameSame));
    assert_eq!(config.dns.prefer, Prefer::Ipv4Only);
    assert_eq!(config.log.file.as_deref(), Some("/var/log/sockd.log"));
    assert!(config.log.syslog.is_some() && !config.log.stdout);
    assert_eq!((config.timeouts.handshake.as_secs(), config.timeouts.udp), (30, None));
    let compiled = compiled(&config);
    assert_eq!(compiled.policy.rules(Stage::Socks).count(), 3);
    assert!(!passes(&compiled, Method::None, Command::Connect, "9.9.9.9", 443));
    assert!(passes(&compiled, Method::None, Command::Connect, "9.9.9.9", 8443));
    assert!(passes(&compiled, Method::None, Command::Bind, "9.9.9.9", 8443), "every command");
}

#[test]
fn a_rule_in_the_shadow_takes_no_neighbour_with_it() {
    let config = config(
        "internal: 127.0.0.1\nsocksmethod: none\n\
         socks pass { from: 0/0 to: 10.0.0.0/8 }\n\
         socks block { from: 0/0 to: 10.1.0.0/16 } socks block { from: 0/0 to: 11.0.0.0/8 }\n\
         socks pass { from: 0/0 to: 0/0 }\n",
    );
    let compiled = compiled(&config);
    assert_eq!((compiled.warnings.len(), compiled.policy.rule_count()), (1, 3));
    assert!(!passes(&compiled, Method::None, Command::Connect, "11.1.1.1", 443));
    assert!(passes(&compiled, Method::None, Command::Connect, "12.1.1.1", 443));
}

/// Limits that the manual promises.
const LIMITS: &str = "\
internal: 10.0.0.1 port = 1080
external: 10.0.0.1
socksmethod: none
timeout.connect: 7
timeout.negotiate: 8
timeout.io: 600
timeout.io.udp: 120
child.maxrequests: 100
client pass { from: 0/0 to: 0/0
  session.max: 100 session.throttle: 10/2
  session.state.key: from
  session.state.max: 3
  session.inheritable: no }
socks pass { from: eth0 to: 0/0 user: ann bob socksmethod: username }
socks pass { from: 0/0 to: 0/0 bandwidth: 10240 udp.portrange: 40000-40010
  proxyprotocol: socks_v5
  session.state.throttle: 5/1 }
";

#[test]
fn limits_are_taken_over() {
    let text = LIMITS.replace("socksmethod: none\n", "socksmethod: none username\nuserlist: u\n");
    let config = config(&text);
    let times = config.timeouts;
    assert_eq!((times.connect.as_secs(), times.handshake.as_secs()), (7, 8));
    assert_eq!(
        (times.io, times.udp),
        (Some(Duration::from_secs(600)), Some(Duration::from_secs(120)))
    );
    assert_eq!(config.udp.ports, Some((40000, 40010)));
    let compiled = compiled(&config);
    let (_, client) = compiled.policy.rules(Stage::Client).next().unwrap();
    assert_eq!(client.access, Access::Pass);
    assert_eq!(client.limits.sessions_max, Some(100));
    assert_eq!(client.limits.sessions_rate.unwrap().to_string(), "10/2");
    assert_eq!(client.limits.each.unwrap().sessions_max, Some(3));
    let (_, last) = compiled.policy.rules(Stage::Socks).nth(1).unwrap();
    assert_eq!(last.limits.bandwidth.unwrap().to_string(), "10240/1");
    assert_eq!(last.limits.each.unwrap().sessions_rate.unwrap().to_string(), "5/1");
    // A method in a rule that is offered to nobody.
    let found = read(LIMITS).result.unwrap().config;
    let environment = Environment { interface: &|_| None, countries: None };
    assert!(found.policy(&environment).unwrap_err()[0].to_string().contains("socksmethod"));
}

#[test]
fn what_is_not_served_is_refused_with_what_to_do() {
    let base = "internal: 127.0.0.1\nsocksmethod: none\n";
    for (line, keyword, words) in [
        ("socksmethod: pam.username", "socksmethod", "PAM"),
        ("socksmethod: gssapi none", "socksmethod", "gssapi is not served"),
        ("clientmethod: rfc931", "clientmethod", "socksmethod"),
        ("external.rotation: route", "external.rotation", "same-same"),
        ("internal: 127.0.0.1 1080", "internal", "port = 1080"),
        ("internal: my.long.host.name.example", "internal", "neither"),
        ("srchost: nodnsmismatch", "srchost", "addresses"),
        ("cpu.schedule.io: rr/1", "cpu.schedule.io", "systemd"),
        ("internal.tcp.so_keepalive: 1", "internal.tcp.so_keepalive", "socket options"),
        ("gssapi.keytab: x", "gssapi.keytab", "username"),
        ("username: bob", "username", "userlist"),
        ("intrenal: eth0", "intrenal", "did you mean \"internal\""),
        ("route { from: 0/0 to: 0/0 via: 10.0.0.1 port = 1080 }", "route", "forwarding"),
        ("monitor { from: 0/0 }", "monitor", "metrics"),
        ("hostid pass { }", "hostid", "client"),
        ("client pass { from: 0/0 to: 0/0 socksmethod: username }", "socksmethod", "socks rule"),
        ("client pass { from: 0/0 to: 0/0 user: bob }", "user", "socks rule"),
        ("client pass { from: 0/0 to: 0/0 protocol: udp }", "protocol", "TCP"),
        ("socks pass { from: 0/0 to: 0/0 group: staff }", "group", "user:"),
        ("socks pass { from: 0/0 to: 0/0 redirect: 1.1.1.1 }", "redirect", "rewritten"),
        ("socks pass { from: 0/0 to: 0/0 pam.servicename: x }", "pam.servicename", "username"),
        ("socks pass { from: 0/0 to: 0/0 timeout.io: 5 }", "timeout.io", "outside of rules"),
        ("socks pass { from: 0/0 to: 10.0.0.0/40 }", "to", "from 0 to 32"),
        ("socks pass { from: 0/0 too: 10.0.0.0/8 }", "too", "did you mean \"to:\""),
        ("session.max: 5", "session.max", "rule"),
        ("logoutput: printer", "logoutput", "stdout"),
    ] {
        let import = read(&format!("{base}{line}\n"));
        let note = import.notes.iter().find(|note| note.verdict == Verdict::Refused);
        let note = note.unwrap_or_else(|| panic!("{line}: {:#?}", import.notes));
        assert_eq!((note.line, note.keyword.as_str()), (3, keyword), "{line}");
        assert!(note.remark.contains(words), "{line}: {note}");
        let found = import.result.unwrap_err();
        let text = found[0].to_string();
        assert!(text.starts_with("configuration error: /etc/sockd.conf:line 3: "), "{text}");
    }
}

#[test]
fn blocks_that_are_broken_are_errors() {
    let base = "internal: 127.0.0.1\nsocksmethod: none\n";
    for text in [
        "socks pass {",
        "socks pass",
        "socks pass } {",
        "socks pass { { } }",
        "client pass { } what",
    ] {
        let found = read(&format!("{base}{text}")).result;
        assert!(found.is_err(), "{text}");
    }
}

#[test]
fn without_a_method_nothing_is_open() {
    let found = read("internal: 127.0.0.1\nclientmethod: none\n").result.unwrap_err();
    assert!(found[0].to_string().contains("no \"socksmethod\""));
}

#[test]
fn the_language_goes_by_the_name_of_the_file() {
    assert_eq!(Language::of_path(Path::new("/etc/danted.conf")), Language::Dante);
    assert_eq!(Language::of_path(Path::new("sockd.conf")), Language::Dante);
    assert_eq!(Language::of_path(Path::new("/etc/adit/socks.conf")), Language::Adit);
    assert!(load(Path::new("sockd.conf"), Language::Dante, &One(OLD)).is_ok());
}
