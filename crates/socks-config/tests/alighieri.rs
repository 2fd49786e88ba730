//! Alighieri's language with our extensions: values, defaults, includes, rules, and what is said
//! about mistakes.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use adit_policy::{
    Accepted, Command, Commands, Destination, Method, Prefix, ProxyProtocol, Request, WeekTime,
};
use adit_socks_config::{
    Advertised, Config, Environment, External, Files, Finding, Language, ListenAt, Loaded,
    LogFormat, Prefer, Rotation, check_json, load, metadata_json,
};

/// Files in memory; a name that ends in `/` in a path is a directory.
#[derive(Debug, Default)]
struct Memory(BTreeMap<PathBuf, String>);

impl Files for Memory {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let text = self.0.get(path).ok_or(io::ErrorKind::NotFound)?;
        Ok(text.clone().into_bytes())
    }

    fn canonical(&self, path: &Path) -> io::Result<PathBuf> {
        let mut clean = PathBuf::new();
        for part in path.components() {
            match part.as_os_str().to_str() {
                Some("..") => drop(clean.pop()),
                Some(".") => {}
                _ => clean.push(part),
            }
        }
        if self.0.contains_key(&clean) { Ok(clean) } else { Err(io::ErrorKind::NotFound.into()) }
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<String>> {
        let names = self.0.keys().filter(|path| path.parent() == Some(directory));
        Ok(names.map(|path| path.file_name().unwrap().to_str().unwrap().to_owned()).collect())
    }
}

fn files(texts: &[(&str, &str)]) -> Memory {
    Memory(texts.iter().map(|(name, text)| (PathBuf::from(name), (*text).to_owned())).collect())
}

fn load_all(texts: &[(&str, &str)]) -> Result<Loaded, Vec<Finding>> {
    load(Path::new(texts[0].0), Language::Adit, &files(texts))
}

fn config(text: &str) -> Config {
    load_all(&[("/etc/t.conf", text)]).unwrap_or_else(|found| panic!("{text}: {found:#?}")).config
}

fn errors(text: &str) -> Vec<String> {
    let found = load_all(&[("t.conf", text)]);
    found.err().unwrap_or_default().iter().map(ToString::to_string).collect()
}

/// With the one setting that is required.
fn with(text: &str) -> String {
    format!("internal: 127.0.0.1:1080\n{text}\n")
}

fn environment() -> Environment<'static> {
    Environment {
        interface: &|name| match name {
            "eth0" => Some(vec![Prefix::parse("192.0.2.1/24").unwrap()]),
            "lo" => Some(vec![Prefix::parse("127.0.0.1/8").unwrap()]),
            _ => None,
        },
        countries: None,
    }
}

#[test]
fn the_smallest_file_gives_the_defaults() {
    let config = config("internal: 127.0.0.1:1080");
    assert_eq!(config.listeners[0].at, ListenAt::Addr("127.0.0.1:1080".parse().unwrap()));
    assert_eq!((config.externals, config.rotation), (vec![External::Any], Rotation::None));
    assert_eq!(config.auth.methods, [Method::None]);
    assert_eq!(config.auth.cache, Some(Duration::from_secs(300)));
    let times = config.timeouts;
    assert_eq!((times.connect.as_secs(), times.handshake.as_secs(), times.io), (30, 10, None));
    assert_eq!((times.udp.unwrap().as_secs(), times.drain.as_secs()), (60, 10));
    assert!(times.keepalive.is_some() && times.write_stall.is_some());
    assert!(config.udp.strict_reply && !config.udp.rebind && config.udp.ports.is_none());
    assert_eq!(config.connections_max, 1024);
    assert!(config.log.stdout && !config.log.stderr && config.log.file.is_none());
    assert_eq!((config.log.rotate_size, config.log.rotate_keep), (10 << 20, 5));
    assert_eq!((config.dns.prefer, config.dns.try_all), (Prefer::System, false));
    assert!(config.dns.deny.is_empty() && config.dns.cache.is_none());
    assert_eq!(config.dns.timeout.as_secs(), 5);
    assert!(config.metrics.is_none() && config.proxy_peers.is_none() && config.rules.is_empty());
}

#[test]
fn every_setting_is_read() {
    let config = config(&with(
        "external: 192.0.2.1 2001:db8::/64 eth1 ::ffff:192.0.2.9\nexternal.rotation: random
protocols: socks5 http
proxy.protocol: 10.0.0.0/8 ::1
socksmethod: username none username
userlist: /etc/my  users
auth.cache.ttl: off
group: staff ann bob
connect.timeout: 5
handshaketimeout 6
iotimeout: 7
writestalltimeout: 8
tcp.keepalive: 0
bind.timeout: 9
bind.portrange: 30000 - 30010
udptimeout: 0
udpportrange: 40000
udp.strictreply: no
udp.rebind: on
udp.advertise: relay.example.com
shutdown.draintimeout: 0
reload.endsessions: yes
maxconnections: 5000
user: proxy
logoutput: stderr file syslog/local3
logfile: /var/log/x y.log
logformat: JSON
logrotate.size: 1_000 k
logrotate.age: 86400
logrotate.keep: 0
dns.prefer: v6
dns.tryall: 1
dns.deny: loopback doc
dns.cachettl: 60
dns.timeout: 3600
metrics.listen: 127.0.0.1 port = 9100
ratelimit.connections: 20/60
ratelimit.authfailurerate: 5 / 300
ratelimit.concurrent: 100
ratelimit.bytes: 1m/1
ratelimit.user.concurrentconnections: 2
ratelimit.listener.byterate: 1g/1
ratelimit.entries: 1000
quota.user.day: 1g
quota.client.month: 2g
quota.file: /var/lib/adit/quota
egress: direct",
    ));
    assert_eq!(config.externals.len(), 4);
    assert_eq!(config.externals[3], External::Addr("192.0.2.9".parse().unwrap()));
    assert_eq!(config.rotation, Rotation::Random);
    assert!(!config.protocols.contains(ProxyProtocol::Socks4));
    assert!(config.proxy_peers.as_ref().unwrap().contains("10.1.1.1".parse().unwrap()));
    assert_eq!(config.auth.methods, [Method::Username, Method::None]);
    assert_eq!(config.auth.userlist.as_deref(), Some("/etc/my users"));
    assert_eq!(config.auth.cache, None);
    let times = config.timeouts;
    assert_eq!((times.connect.as_secs(), times.handshake.as_secs()), (5, 6));
    assert_eq!(times.io, Some(Duration::from_secs(7)));
    assert_eq!(times.write_stall, Some(Duration::from_secs(8)));
    assert_eq!((times.keepalive, times.udp, times.bind.as_secs()), (None, None, 9));
    assert_eq!((config.bind_ports, config.udp.ports), (Some((30000, 30010)), Some((40000, 40000))));
    assert!(!config.udp.strict_reply && config.udp.rebind && config.end_sessions);
    assert_eq!(config.udp.advertise, Some(Advertised::Name("relay.example.com".into())));
    assert_eq!((config.connections_max, config.run_as.as_deref()), (5000, Some("proxy")));
    assert!(config.log.stderr && !config.log.stdout && config.log.syslog.unwrap().0 == 19);
    assert_eq!(config.log.file.as_deref(), Some("/var/log/x y.log"));
    assert_eq!((config.log.format, config.log.rotate_size), (LogFormat::Json, 1_024_000));
    assert_eq!((config.log.rotate_keep, config.log.rotate_age.unwrap().as_secs()), (0, 86_400));
    assert_eq!((config.dns.prefer, config.dns.try_all), (Prefer::Ipv6, true));
    assert!(config.dns.deny.contains("192.0.2.1".parse().unwrap()));
    assert_eq!(config.metrics, Some("127.0.0.1:9100".parse().unwrap()));
    check_limits(&config);
}

fn check_limits(config: &Config) {
    let limits = config.limits;
    assert_eq!(limits.client.sessions_rate.unwrap().to_string(), "20/60");
    assert_eq!(limits.client.failures_rate.unwrap().to_string(), "5/300");
    assert_eq!((limits.client.sessions_max, limits.user.sessions_max), (Some(100), Some(2)));
    assert_eq!(limits.client.bandwidth.unwrap().to_string(), "1048576/1");
    assert_eq!(limits.listener.bandwidth.unwrap().bytes(), 1 << 30);
    assert_eq!(limits.user_quota.day_bytes, Some(1 << 30));
    assert_eq!(limits.client_quota.month_bytes, Some(2 << 30));
    assert_eq!(config.limit_entries, 1000);
}

#[test]
fn listeners_may_be_many() {
    let config = config(
        "internal: 10.0.0.1 port = 1080 name=lan advertise=203.0.113.7\n\
         internal: eth0:1081 protocols=socks5,http\ninternal [::]:0\ninternal: br-lan.5 port = 1",
    );
    assert_eq!(config.listeners.len(), 4);
    let [first, second, ..] = &config.listeners[..] else { panic!() };
    assert_eq!(first.name.as_deref(), Some("lan"));
    assert_eq!(first.advertise, Some(Advertised::Addr("203.0.113.7".parse().unwrap())));
    assert!(matches!(&second.at, ListenAt::Interface { name, port: 1081, .. } if name == "eth0"));
    assert!(!second.protocols.unwrap().contains(ProxyProtocol::Socks4));
    assert!(
        matches!(&config.listeners[3].at, ListenAt::Interface { name, .. } if name == "br-lan.5")
    );
}

#[test]
fn the_last_of_a_setting_counts_unless_it_is_a_list() {
    let config = config(&with(
        "iotimeout: 5\niotimeout: 6\nsocksmethod: none\nlogformat: json\nlogformat: text",
    ));
    assert_eq!(config.timeouts.io, Some(Duration::from_secs(6)));
    assert_eq!(config.log.format, LogFormat::Text);
}

#[test]
fn clientmethod_never_touches_the_methods() {
    let config = config(&with("socksmethod: username\nuserlist: u\nclientmethod: none"));
    assert_eq!(config.auth.methods, [Method::Username]);
    assert!(errors(&with("clientmethod: username"))[0].contains("socksmethod"));
}

#[test]
fn mistakes_name_their_line_and_what_to_write() {
    for (text, line, words) in [
        ("iotimeout: 5s", 2, "number from 0"),
        ("iotimeout: 5 6", 2, "\"6\" follows"),
        ("iotimeout:", 2, "missing"),
        ("intrnal: 127.0.0.1:1", 2, "did you mean \"internal\""),
        ("internal:127.0.0.1:1", 2, "blank behind \"internal:\""),
        ("internal: 127.0.0.1 port=1080", 2, "write 127.0.0.1:1080"),
        ("internal: 127.0.0.1", 2, "write 127.0.0.1:1080"),
        ("internal: 127.0.0.1:1081 colour=red", 2, "no option"),
        ("internal: 127.0.0.1:1080", 2, "again"),
        ("internal: 127.0.0.1:1081 advertise=0.0.0.0", 2, "unspecified"),
        ("egress: rdp", 2, "only direct"),
        ("external: 2001:db8::/64", 2, "rotation: random"),
        ("external: 0.0.0.0 192.0.2.1", 2, "leave it out"),
        ("external.rotation: random", 2, "needs external"),
        ("external.rotation: route", 2, "same-same"),
        ("proxyprotocol: 0/0", 2, "\"0/0\""),
        ("socksmethod: username", 2, "userlist"),
        ("socksmethod: pam.username", 2, "PAM"),
        ("socksmethod: gssapi", 2, "gssapi is not served"),
        ("socksmethod: weather", 2, "none, username"),
        ("socksmethod:", 2, "one or more"),
        ("tls.certfile: /x", 2, "TLS terminator"),
        ("tls.acme.domain: example.com", 2, "TLS terminator"),
        ("metrics.listen: 0.0.0.0:9100", 2, "loopback"),
        ("logoutput: file", 2, "logfile"),
        ("logoutput: syslog/weather", 2, "facility"),
        ("logoutput: printer", 2, "stdout"),
        ("dns.deny: everything", 2, "private"),
        ("maxconnections: 0", 2, "from 1"),
        ("udp.portrange: 0-5", 2, "from 1 to 65535"),
        ("ratelimit.bytes: 1.5m/1", 2, "SIZE/SECONDS"),
        ("group: staff", 2, "no members"),
        ("group: a b\ngroup: a c", 3, "again"),
        ("pass {\n}", 2, "socks pass {"),
        ("client allow { }", 2, "client pass {"),
        ("socks pass { user: }", 2, "one or more users"),
        ("socks pass {\n  to: 10.0.0.0/33\n}", 2, "line 3: to: \"10.0.0.0/33\""),
        ("socks pass { weather: fine }", 2, "no selector"),
        ("socks pass { usr: ann }", 2, "did you mean \"user\""),
        ("socks pass { 10.0.0.0/8 }", 2, "before any selector"),
        ("socks pass { command: }", 2, "one or more"),
        ("socks pass { method: }", 2, "one or more"),
        ("socks pass { protocol: }", 2, "one or more"),
        ("socks pass { protocol: udp command: connect }", 2, "exclude"),
        ("client pass { protocol: udp }", 2, "never matches"),
        ("socks pass { group: nobody }", 2, "no group \"nobody\""),
        ("socks pass { to: 0/0 }", 2, "::/0"),
        ("socks block { bandwidth: 1m/1 }", 2, "no session"),
        ("socks pass { bandwidth.key: user }", 2, "needs bandwidth"),
        ("socks pass { session.state.key: user }", 2, "session.state.max"),
        ("quota.file: x\nsocks pass { quota.day: 1g }", 3, "socks pass NAME"),
    ] {
        let found = errors(&with(text));
        assert!(!found.is_empty(), "{text}");
        let start = format!("configuration error: t.conf:line {line}: ");
        assert!(
            found.iter().any(|it| it.starts_with(&start) && it.contains(words)),
            "{text}: {found:?}"
        );
    }
    for (text, words) in [
        ("", "no \"internal\""),
        ("internal: 127.0.0.1:1\nquota.user.day: 1g", "quota.file"),
        ("internal: 127.0.0.1:1\nsocks pass { to: geoip:NL }", "geoip.database"),
    ] {
        let found = errors(text);
        assert!(found.len() == 1 && found[0].starts_with("configuration error: "), "{found:?}");
        assert!(found[0].contains(words), "{found:?}");
    }
}

#[test]
fn all_mistakes_are_reported_at_once() {
    let found = errors("iotimeout: x\n\nudptimeout: y\nsocks pass {\n} z\ninternal: nowhere");
    assert_eq!(found.len(), 5, "{found:?}");
    let many = "weather: fine\n".repeat(1000);
    assert_eq!(errors(&many).len(), 100);
}

/// What a request gets: `+` or `-` and the name of the rule.
fn ask(config: &Config, change: impl FnOnce(&mut Request<'static>), addr: &str) -> String {
    let policy = config.policy(&environment()).unwrap_or_else(|found| panic!("{found:#?}")).policy;
    let mut request = Request {
        from: "10.0.0.9:40000".parse().unwrap(),
        user: None,
        method: Method::None,
        command: Command::Connect,
        proxy_protocol: ProxyProtocol::Socks5,
        port: 443,
        time: WeekTime::of_local_seconds(0),
    };
    change(&mut request);
    let verdict = policy.judge(&request, Destination::Addr(addr.parse().unwrap(), None));
    let sign = if verdict.is_pass() { '+' } else { '-' };
    let name =
        verdict.rule().and_then(|id| policy.rule(id)).and_then(|rule| rule.name.map(str::to_owned));
    format!("{sign}{}", name.unwrap_or_default())
}

#[test]
fn rules_mean_what_they_say() {
    let config = config(&with(
        "socksmethod: username none\nuserlist: u\ngroup: staff ann bob\n\
         socks block ads { to: 203.0.113.0/24 198.51.100.0/24 port ge 80 }\n\
         socks pass \"lan\" { from: interface:eth0 to: interface:eth0 }\n\
         socks pass staff { group: staff user: eve to: 10.0.0.0/8 command: connect bind }\n\
         socks pass later { from: interface:wg9 to: 192.168.0.0/16 }\n\
         socks pass night { time: mon-sun 22:00-06:00 to: 8.8.8.0/24 }\n\
         socks pass own { to: 127.0.0.0/8 port = 8080 proxyprotocol: socks5 }\n\
         socks pass rest { from: 10.0.0.0/8 to: 0.0.0.0/0 port 443 protocol: tcp log: connect }\n",
    ));
    let plain = |_: &mut Request<'static>| {};
    let user = |name: &'static str| {
        move |request: &mut Request<'static>| {
            request.user = Some(name.as_bytes());
            request.method = Method::Username;
        }
    };
    assert_eq!(ask(&config, plain, "203.0.113.1"), "-ads");
    assert_eq!(ask(&config, |request| request.port = 79, "203.0.113.1"), "-");
    assert_eq!(
        ask(&config, |request| request.from.set_ip([192, 0, 2, 77].into()), "192.0.2.5"),
        "+lan"
    );
    assert_eq!(ask(&config, user("bob"), "10.1.1.1"), "+staff");
    assert_eq!(ask(&config, user("eve"), "10.1.1.1"), "+staff");
    assert_eq!(ask(&config, user("dan"), "10.1.1.1"), "+rest");
    assert_eq!(ask(&config, |request| request.port = 80, "10.1.1.1"), "-");
    assert_eq!(
        ask(&config, |request| request.time = WeekTime::of_local_seconds(23 * 3600), "8.8.8.8"),
        "+night"
    );
    assert_eq!(ask(&config, plain, "8.8.8.8"), "+night", "midnight");
    assert_eq!(
        ask(&config, |request| request.time = WeekTime::of_local_seconds(12 * 3600), "8.8.8.8"),
        "+rest"
    );
    assert_eq!(ask(&config, |request| request.port = 8080, "127.0.0.1"), "+own");
    assert_eq!(ask(&config, plain, "127.0.0.1"), "-", "rest does not name it");
    assert_eq!(ask(&config, |request| request.command = Command::UdpAssociate, "9.9.9.9"), "-");
    assert_eq!(config.rule_interfaces(), ["eth0", "wg9"]);
}

#[test]
fn bind_is_off_unless_a_rule_says_its_name() {
    let bind = |request: &mut Request<'static>| request.command = Command::Bind;
    assert_eq!(ask(&config(&with("socks pass a { }")), bind, "9.9.9.9"), "-");
    assert_eq!(ask(&config(&with("socks pass a { command: bind }")), bind, "9.9.9.9"), "+a");
    assert!(Commands::REQUESTS.contains(Command::Bind));
    let reply = |request: &mut Request<'static>| request.command = Command::UdpReply;
    assert_eq!(ask(&config(&with("socks pass a { }")), reply, "9.9.9.9"), "+", "needs no rule");
}

#[test]
fn rules_that_never_match_are_errors_with_their_place() {
    let refused = |text: &str| -> Vec<String> {
        let config = config(&with(text));
        let found = config.policy(&environment()).map(|_| ()).unwrap_err();
        found.iter().map(ToString::to_string).collect()
    };
    for (text, line, words) in [
        ("client pass { method: none }", 2, "\"method\" is not known yet"),
        ("client pass { user: ann }", 2, "\"user\" is not known yet"),
        ("client pass { command: connect }", 2, "\"command\" is not known yet"),
        ("client pass { to: example.com }", 2, "no name"),
        ("socks pass { from: example.com }", 2, "no name"),
        ("client pass { bandwidth: 1m/1 }", 2, "bandwidth"),
        ("socks pass { to: 1.1.1.1 port lt 0 }", 2, "to port"),
        ("socks pass { method: username }", 2, "socksmethod"),
        ("socks pass { }\n\nsocks block { to: .example.com }", 4, "/etc/t.conf:line 2 decides"),
        ("client pass { }\nclient block { from: 10.0.0.0/8 }", 3, "/etc/t.conf:line 2 decides"),
    ] {
        let found = refused(text);
        let start = format!("configuration error: /etc/t.conf:line {line}: ");
        assert!(found.len() == 1 && found[0].starts_with(&start), "{text}: {found:?}");
        assert!(found[0].contains(words), "{text}: {found:?}");
    }
}

#[test]
fn quirks_of_the_language() {
    // A repeated selector replaces the earlier one; the colon may be left out.
    let twice = config(&with("socks pass a { to: 1.0.0.0/8 to 2.0.0.0/8 }"));
    assert_eq!(
        (ask(&twice, |_| {}, "1.1.1.1"), ask(&twice, |_| {}, "2.1.1.1")),
        ("-".into(), "+a".into())
    );
    // Our selectors need their colon, so that a host may be called like one.
    let host = config(&with("socks pass a { to: time user }"));
    assert_eq!(host.rules.len(), 1);
    // Blocks over several lines, with comments.
    let spread = config(&with("SOCKS Pass # x\n a\n{ to: # y\n 1.0.0.0/8 port\n = 443 }"));
    assert_eq!(ask(&spread, |_| {}, "1.1.1.1"), "+a");
    assert_eq!(config("internal 127.0.0.1:1").listeners.len(), 1);
}

#[test]
fn clients_are_admitted_by_their_rules() {
    let config = config(&with(
        "client block { from: 10.0.0.5 }\nclient pass lan { from: 10.0.0.0/8 to: 127.0.0.1 }",
    ));
    let policy = config.policy(&environment()).unwrap().policy;
    let admit = |client: &str| {
        let accepted = Accepted {
            client: client.parse().unwrap(),
            local: "127.0.0.1:1080".parse().unwrap(),
            time: WeekTime::of_local_seconds(0),
        };
        policy.admit(&accepted).is_pass()
    };
    assert!(admit("10.0.0.6:1") && !admit("10.0.0.5:1") && !admit("11.0.0.1:1"));
}

#[test]
fn includes_stand_where_they_are_written() {
    let texts = [
        (
            "/etc/a.conf",
            "internal: 127.0.0.1:1\niotimeout: 1\ninclude: rules/*.conf\ninclude sub/b.conf\nmaxconnections: 7",
        ),
        ("/etc/rules/20-b.conf", "socks pass b { to: 2.0.0.0/8 }"),
        ("/etc/rules/10-a.conf", "# x\n\nsocks pass a { to: 1.0.0.0/8 }"),
        ("/etc/rules/skip.txt", "weather: fine"),
        ("/etc/rules/.hidden.conf", "weather: fine"),
        ("/etc/sub/b.conf", "iotimeout: 2\ninclude: ../c.conf"),
        ("/etc/c.conf", "udptimeout: 3"),
    ];
    let loaded = load_all(&texts).unwrap();
    let config = &loaded.config;
    assert_eq!((config.timeouts.io, config.connections_max), (Some(Duration::from_secs(2)), 7));
    assert_eq!(config.timeouts.udp, Some(Duration::from_secs(3)));
    let compiled = config.policy(&environment()).unwrap();
    let places: Vec<String> = compiled
        .policy
        .rules(adit_policy::Stage::Socks)
        .map(|(_, rule)| rule.place.to_string())
        .collect();
    assert_eq!(places, ["/etc/rules/10-a.conf:line 3", "/etc/rules/20-b.conf:line 1"]);
    assert_eq!(loaded.sources.declared.len(), 5);
    assert_eq!(loaded.sources.declared[4], "/etc/sub/../c.conf");
    assert_eq!(loaded.sources.canonical[4], "/etc/c.conf");
    assert_eq!(loaded.sources.declared_patterns, ["/etc/rules/*.conf"]);
}

#[test]
fn includes_that_fail_say_where() {
    let case = |texts: &[(&str, &str)]| -> Vec<String> {
        load_all(texts).unwrap_err().iter().map(ToString::to_string).collect()
    };
    for (texts, start, words) in [
        (
            vec![("/a", "internal: 127.0.0.1:1\ninclude: b")],
            "configuration error: /a:line 2: include: ",
            "not found",
        ),
        (
            vec![("/a", "internal: 127.0.0.1:1\ninclude: x/*")],
            "configuration error: /a:line 2: include: ",
            "no file matches",
        ),
        (
            vec![("/a", "internal: 127.0.0.1:1\ninclude: */x")],
            "configuration error: /a:line 2: include: ",
            "last part",
        ),
        (
            vec![("/a", "internal: 127.0.0.1:1\ninclude: b"), ("/b", "\ninclude: a")],
            "configuration error: /b:line 2: include: ",
            "cycle",
        ),
        (
            vec![("/a", "internal: 127.0.0.1:1\n\ninclude: b"), ("/b", "#\nweather: fine")],
            "configuration error: /b:line 2: ",
            "unknown",
        ),
        (
            vec![("/a", "internal: 127.0.0.1:1\ninclude: b\nweather: fine"), ("/b", "#")],
            "configuration error: /a:line 3: ",
            "unknown",
        ),
        (
            vec![("/a", "internal: 127.0.0.1:1\nsocks pass {\ninclude: b }"), ("/b", "")],
            "configuration error: /a:line 2: ",
            "no selector",
        ),
    ] {
        let found = case(&texts);
        assert!(found[0].starts_with(start) && found[0].contains(words), "{found:?}");
    }
    assert!(load(Path::new("/none"), Language::Adit, &Memory::default()).is_err());
    // The same file twice is fine.
    let twice = [("/a", "internal: 127.0.0.1:1\ninclude: b\ninclude: b"), ("/b", "iotimeout: 4")];
    assert!(load_all(&twice).is_ok());
}

#[test]
fn warnings_are_no_errors() {
    let loaded = load_all(&[("/a", "internal: 0.0.0.0:1080")]).unwrap();
    assert_eq!(loaded.warnings.len(), 3, "{:?}", loaded.warnings);
    let loaded = load_all(&[("/a", "internal: 127.0.0.1:1080\nclient pass { }\nsocks pass { }")]);
    assert!(loaded.unwrap().warnings.is_empty());
}

#[test]
fn reports_are_json_in_the_known_form() {
    let text = "internal: 127.0.0.1:1080\nuserlist: a\"b\nlogfile: /l";
    let json = check_json("/a", &load_all(&[("/a", text)]));
    assert!(!json.contains('\n'));
    let value: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(value["ok"], true);
    assert_eq!((&value["listen"], &value["userlist"]), (&"127.0.0.1:1080".into(), &"a\"b".into()));
    assert_eq!(value["declared_config_sources"][0], "/a");
    let order = [
        "ok",
        "path",
        "message",
        "listen",
        "acme",
        "acme_cache",
        "log_file",
        "userlist",
        "declared_config_sources",
        "canonical_config_sources",
        "declared_config_include_patterns",
        "canonical_config_include_patterns",
    ];
    let at: Vec<usize> =
        order.iter().map(|key| json.find(&format!("\"{key}\":")).unwrap()).collect();
    assert!(at.is_sorted() && value.as_object().unwrap().len() == order.len());

    let json = check_json("/a", &load_all(&[("/a", "weather: fine")]));
    let value: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(value["ok"], false);
    assert!(value["error"].as_str().unwrap().starts_with("configuration error: /a:line 1: "));
    assert_eq!(value.as_object().unwrap().len(), 3);

    let value: serde_json::Value = serde_json::from_str(&metadata_json()).unwrap();
    assert_eq!(value["version"], 1);
    let settings = value["settings"].as_array().unwrap();
    for (name, reload) in [
        ("iotimeout", "live"),
        ("logoutput", "restart"),
        ("include", "live"),
        ("client", "live"),
        ("socks", "live"),
    ] {
        let found = settings.iter().find(|setting| setting["name"] == name).unwrap();
        assert_eq!(found["reload"], reload, "{name}");
    }
}

#[test]
fn countries_come_from_the_database() {
    let text = with("geoip.database: /x.mmdb\nsocks pass { to: geoip:NL }");
    let config = config(&text);
    assert!(config.names_countries());
    let found = config.policy(&environment()).map(|_| ()).unwrap_err();
    assert!(found[0].to_string().contains("geoip.database"), "{found:?}");
}

#[test]
fn examples_of_the_documentation_load() {
    let docs = include_str!("../../../docs/socks.md");
    let examples: Vec<&str> =
        docs.split("```socks\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    assert_eq!(examples.len(), 2);
    for example in examples {
        config(example).policy(&environment()).unwrap();
    }
}
