//! What rules say, one case a line; and which rules are refused.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::sync::Arc;

use adit_policy::{
    Accepted, Access, Asked, ByteRate, Cause, Command, Commands, Destination, EachKey, EachLimits,
    HostPattern, Hosts, Method, Methods, NameVerdict, Place, Policy, Ports, Prefix, ProxyProtocol,
    ProxyProtocols, Replies, Request, RuleError, RuleSpec, Stage, Verdict, WeekTime, WeekTimes,
    Weekday,
};

/// Addresses and names, separated by blanks.
fn hosts(text: &str) -> Option<Hosts> {
    let mut hosts = Hosts::default();
    for word in text.split(' ') {
        match Prefix::parse(word) {
            Ok(prefix) => hosts.prefixes.push(prefix),
            Err(_) => hosts.names.push(HostPattern::parse(word).unwrap()),
        }
    }
    Some(hosts)
}

fn rule(stage: Stage, access: Access, change: impl FnOnce(&mut RuleSpec)) -> RuleSpec {
    let mut rule = RuleSpec::new(stage, access, Place { file: Arc::from("t"), line: 0 });
    change(&mut rule);
    rule
}

fn pass(change: impl FnOnce(&mut RuleSpec)) -> RuleSpec {
    rule(Stage::Socks, Access::Pass, change)
}

fn block(change: impl FnOnce(&mut RuleSpec)) -> RuleSpec {
    rule(Stage::Socks, Access::Block, change)
}

fn compile(mut rules: Vec<RuleSpec>) -> Result<Policy, Vec<RuleError>> {
    for (line, rule) in (1..).zip(&mut rules) {
        rule.place.line = line;
    }
    Policy::new(rules, Methods::ALL, Replies::Implied)
        .map_err(|found| found.into_iter().map(|mistake| mistake.error).collect())
}

fn request(command: Command) -> Request<'static> {
    Request {
        from: "192.0.2.1:50000".parse().unwrap(),
        user: None,
        method: Method::None,
        command,
        proxy_protocol: ProxyProtocol::Socks5,
        port: 443,
        time: WeekTime::new(Weekday::Monday, 12, 0).unwrap(),
    }
}

/// A verdict in short: `+2` passes by the rule in line 2, `-` by default, `!1` is protected from it.
fn shorten(policy: &Policy, verdict: Verdict) -> String {
    let line = |id| policy.rule(id).unwrap().place.line;
    match (verdict.access, verdict.cause) {
        (Access::Pass, Cause::Rule(id)) => format!("+{}", line(id)),
        (Access::Block, Cause::Rule(id)) => format!("-{}", line(id)),
        (Access::Pass, Cause::Default) => "+".into(),
        (Access::Block, Cause::Default) => "-".into(),
        (_, Cause::Protected(id)) => format!("!{}", line(id)),
    }
}

/// Asks for `host`, as clients do; `host@address` is a name and what it resolved to.
fn ask(policy: &Policy, request: &Request<'_>, host: &str) -> String {
    if let Some((name, addr)) = host.split_once('@') {
        let Some(Asked::Name(name)) = Asked::read(name) else { panic!("{host}") };
        let destination = Destination::Addr(addr.parse().unwrap(), Some(&name));
        return shorten(policy, policy.judge(request, destination));
    }
    match Asked::read(host).unwrap() {
        Asked::Addr(addr) => shorten(policy, policy.judge(request, Destination::Addr(addr, None))),
        Asked::Name(name) => match policy.judge_name(request, &name) {
            NameVerdict::Resolve => "?".into(),
            NameVerdict::Refused(verdict) => shorten(policy, verdict),
        },
    }
}

fn check(rules: Vec<RuleSpec>, cases: &[(&str, &str)]) {
    let policy = compile(rules).unwrap();
    for (host, expected) in cases {
        assert_eq!(ask(&policy, &request(Command::Connect), host), *expected, "{host}");
    }
}

#[test]
fn without_rules_nothing_passes() {
    check(vec![], &[("192.0.2.7", "-"), ("example.com", "-")]);
    let policy = compile(vec![]).unwrap();
    let accepted = Accepted {
        client: "192.0.2.1:1".parse().unwrap(),
        local: "192.0.2.2:1080".parse().unwrap(),
        time: WeekTime::of_local_seconds(0),
    };
    assert_eq!(shorten(&policy, policy.admit(&accepted)), "-");
    assert!(!policy.could_pass(&request(Command::UdpAssociate)));
}

#[test]
fn addresses_and_names_meet() {
    check(
        vec![
            block(|rule| rule.to = hosts(".ads.example 203.0.113.0/24")),
            pass(|rule| rule.to = hosts("10.0.0.0/8")),
            block(|rule| rule.to = hosts("www.example.com")),
            pass(|_| {}),
        ],
        &[
            ("a.ads.example", "-1"),
            ("A.ADS.Example.", "-1"),
            ("ads.example", "-1"),
            ("noads.example", "?"),
            // The second rule may let it pass: only the address tells.
            ("www.example.com", "?"),
            ("www.example.com@10.1.1.1", "+2"),
            ("www.example.com@192.0.2.9", "-3"),
            ("www.example.com@203.0.113.9", "-1"),
            ("example.com@192.0.2.9", "+4"),
            ("203.0.113.9", "-1"),
            ("::ffff:203.0.113.9", "-1"),
            ("::203.0.113.9", "-1"),
            ("203.0.113.9.", "-1"),
            ("10.0.0.1", "+2"),
            ("2001:db8::1", "+4"),
        ],
    );
}

#[test]
fn a_name_that_no_address_saves_is_refused_before_it_is_looked_up() {
    check(
        vec![
            block(|rule| rule.to = hosts("10.0.0.0/8")),
            block(|rule| rule.to = hosts(".example.com")),
            pass(|rule| rule.to = hosts(".example.org")),
        ],
        // Whether the first or the second rule blocks is not known.
        &[("www.example.com", "-"), ("www.example.org", "?"), ("example.net", "-")],
    );
    check(
        vec![
            block(|rule| rule.to = hosts("example.com")),
            pass(|rule| rule.to = hosts("10.0.0.0/8")),
        ],
        &[("example.com", "-1"), ("example.org", "?"), ("example.org@10.0.0.1", "+2")],
    );
}

#[test]
fn protected_destinations_have_to_be_named() {
    check(
        vec![pass(|_| {})],
        &[
            ("127.0.0.1", "!1"),
            ("0.0.0.0", "!1"),
            ("[::]", "!1"),
            ("::1", "!1"),
            ("::ffff:127.0.0.1", "!1"),
            ("::ffff:0.0.0.0", "!1"),
            ("169.254.169.254", "!1"),
            ("fe80::1%eth0", "!1"),
            ("fd00:ec2::254", "!1"),
            ("64:ff9b::7f00:1", "!1"),
            ("localhost", "?"),
            ("localhost@127.0.0.1", "!1"),
            ("rebound.example@169.254.169.254", "!1"),
            ("192.168.1.1", "+1"),
        ],
    );
    for to in ["0.0.0.0/0", "0.0.0.0/0 ::/0", "0.0.0.0/1", "160.0.0.0/3 0.0.0.0/0", ".example"] {
        let policy = compile(vec![pass(|rule| rule.to = hosts(to))]).unwrap();
        let verdict = ask(&policy, &request(Command::Connect), "inside.example@127.0.0.1");
        assert_eq!(verdict, "!1", "{to}");
    }
}

#[test]
fn rules_name_what_is_protected() {
    let rules = || {
        vec![
            pass(|_| {}),
            pass(|rule| rule.to = hosts("127.0.0.0/8 ::1")),
            pass(|rule| rule.to = hosts("169.254.0.0/16")),
        ]
    };
    check(
        rules(),
        &[
            ("127.0.0.1", "+2"),
            ("0.0.0.0", "+2"),
            ("::1", "+2"),
            ("localhost@127.0.0.1", "+2"),
            ("169.254.1.1", "+3"),
            // A range of its own in a larger one that is named.
            ("169.254.169.254", "!1"),
            ("64:ff9b::7f00:1", "!1"),
            ("192.0.2.1", "+1"),
        ],
    );
    check(
        vec![pass(|rule| rule.to = hosts("169.254.169.254/32"))],
        &[("169.254.169.254", "+1"), ("169.254.169.253", "-")],
    );
    check(
        vec![pass(|rule| rule.to = hosts("localhost 10.0.0.0/8"))],
        &[
            ("localhost@127.0.0.1", "+1"),
            ("localhost@169.254.169.254", "!1"),
            ("127.0.0.1", "-"),
            ("x.example@127.0.0.1", "-"),
        ],
    );
    check(
        vec![
            block(|rule| rule.to = hosts("127.0.0.1")),
            pass(|rule| rule.to = hosts("127.0.0.0/8")),
        ],
        &[("127.0.0.1", "-1"), ("0.0.0.0", "-1"), ("127.0.0.2", "+2")],
    );
}

#[test]
fn every_condition_counts() {
    use Command::{Bind, Connect, UdpAssociate};
    let base = request(Connect);
    let monday = WeekTimes::new(&[Weekday::Monday], 0, 0).unwrap();
    let cases: [(RuleSpec, Request<'_>, Request<'_>); 9] = [
        (
            pass(|r| r.from = hosts("192.0.2.0/24")),
            base,
            Request { from: "192.0.3.1:1".parse().unwrap(), ..base },
        ),
        (
            pass(|r| r.from = hosts("192.0.2.0/24")),
            Request { from: "[::ffff:192.0.2.9]:1".parse().unwrap(), ..base },
            Request { from: "[::192.0.2.9]:1".parse().unwrap(), ..base },
        ),
        (
            pass(|r| r.from_ports = Ports::range(1024, 65535)),
            base,
            Request { from: "192.0.2.1:1023".parse().unwrap(), ..base },
        ),
        (pass(|r| r.to_ports = Ports::range(443, 443)), base, Request { port: 442, ..base }),
        (pass(|r| r.commands = Some(Commands::of(&[Connect, UdpAssociate]))), base, request(Bind)),
        (
            pass(|r| r.methods = Some(Methods::of(&[Method::Username]))),
            Request { method: Method::Username, ..base },
            base,
        ),
        (
            pass(|r| r.proxy_protocols = Some(ProxyProtocols::of(&[ProxyProtocol::Socks5]))),
            base,
            Request { proxy_protocol: ProxyProtocol::Http, ..base },
        ),
        (
            pass(|r| r.users = Some(vec![(*b"zoe").into(), (*b"ann").into()])),
            Request { user: Some(b"ann"), method: Method::Username, ..base },
            Request { user: Some(b"anna"), method: Method::Username, ..base },
        ),
        (
            pass(|r| r.times = Some(monday)),
            base,
            Request { time: WeekTime::new(Weekday::Sunday, 23, 59).unwrap(), ..base },
        ),
    ];
    for (number, (rule, yes, no)) in cases.into_iter().enumerate() {
        let policy = compile(vec![rule]).unwrap();
        assert_eq!(ask(&policy, &yes, "198.51.100.1"), "+1", "case {number}");
        assert_eq!(ask(&policy, &no, "198.51.100.1"), "-", "case {number}");
    }
}

#[test]
fn a_user_selector_needs_a_user() {
    let policy = compile(vec![pass(|r| r.users = Some(vec![(*b"ann").into()]))]).unwrap();
    assert_eq!(ask(&policy, &request(Command::Connect), "198.51.100.1"), "-");
}

#[test]
fn clients_are_judged_by_addresses_and_time() {
    let client = |access, change: fn(&mut RuleSpec)| rule(Stage::Client, access, change);
    let policy = compile(vec![
        client(Access::Block, |rule| rule.from = hosts("10.1.0.0/16")),
        client(Access::Pass, |rule| {
            rule.from = hosts("10.0.0.0/8 ::1");
            rule.to = hosts("127.0.0.0/8");
            rule.to_ports = Ports::range(1080, 1080);
        }),
    ])
    .unwrap();
    for (from, to, expected) in [
        ("10.1.2.3:9", "127.0.0.1:1080", "-1"),
        ("10.2.2.3:9", "127.0.0.1:1080", "+2"),
        ("[::ffff:10.2.2.3]:9", "[::ffff:127.0.0.1]:1080", "+2"),
        ("10.2.2.3:9", "127.0.0.1:1081", "-"),
        ("10.2.2.3:9", "192.0.2.1:1080", "-"),
        ("192.0.2.3:9", "127.0.0.1:1080", "-"),
    ] {
        let accepted = Accepted {
            client: from.parse().unwrap(),
            local: to.parse().unwrap(),
            time: WeekTime::of_local_seconds(0),
        };
        assert_eq!(shorten(&policy, policy.admit(&accepted)), expected, "{from} {to}");
    }
}

#[test]
fn an_association_needs_some_rule_that_could_let_a_datagram_through() {
    let udp = request(Command::UdpAssociate);
    for (rules, expected) in [
        // The report behind this: a rule about loopback refused every association.
        (vec![block(|rule| rule.to = hosts("127.0.0.0/8")), pass(|_| {})], true),
        (vec![block(|rule| rule.to_ports = Ports::range(0, 1023)), pass(|_| {})], true),
        (vec![pass(|rule| rule.to_ports = Ports::range(53, 53))], true),
        (vec![pass(|rule| rule.to = hosts(".example.com"))], true),
        (vec![pass(|rule| rule.commands = Some(Commands::of(&[Command::Connect])))], false),
        (vec![pass(|rule| rule.from = hosts("10.0.0.0/8"))], false),
        (
            vec![
                block(|rule| rule.commands = Some(Commands::UDP)),
                pass(|rule| rule.to = hosts("10.0.0.0/8")),
            ],
            false,
        ),
    ] {
        assert_eq!(compile(rules).unwrap().could_pass(&udp), expected);
    }
}

#[test]
fn bind_waits_for_anyone_only_where_everyone_may_come() {
    let bind = request(Command::Bind);
    for (to, expected) in [
        ("0.0.0.0/0", "+1"),
        ("0.0.0.0/0 ::/0", "+1"),
        ("::/0", "+1"),
        ("10.0.0.0/8", "-"),
        ("a.example", "-"),
    ] {
        let policy = compile(vec![pass(|rule| rule.to = hosts(to))]).unwrap();
        assert_eq!(shorten(&policy, policy.judge(&bind, Destination::Anyone)), expected, "{to}");
    }
    let policy =
        compile(vec![pass(|rule| rule.commands = Some(Commands::of(&[Command::Connect])))])
            .unwrap();
    assert!(!policy.serves(Command::Bind) && policy.serves(Command::Connect));
}

#[test]
fn replies_need_rules_where_they_are_judged() {
    let reply = Request { from: "198.51.100.1:53".parse().unwrap(), ..request(Command::UdpReply) };
    let to_client = Destination::Addr("127.0.0.1".parse().unwrap(), None);
    let only_requests =
        || vec![pass(|rule| rule.commands = Some(Commands::of(&[Command::UdpAssociate])))];
    for (rules, replies, expected) in [
        (only_requests(), Replies::Implied, "+"),
        (only_requests(), Replies::Judged, "-"),
        (vec![pass(|_| {})], Replies::Judged, "+1"),
        (vec![block(|rule| rule.commands = Some(Commands::UDP))], Replies::Implied, "-0"),
    ] {
        let mut rules = rules;
        rules.iter_mut().for_each(|rule| rule.place.line = u32::from(rule.access == Access::Pass));
        let policy = Policy::new(rules, Methods::ALL, replies).unwrap();
        assert_eq!(shorten(&policy, policy.judge(&reply, to_client)), expected);
    }
}

#[test]
fn refuses_rules_that_never_match() {
    type Change = fn(&mut RuleSpec);
    let client: [(Change, RuleError); 6] = [
        (|r| r.methods = Some(Methods::ALL), RuleError::UnknownAtStage("method")),
        (|r| r.commands = Some(Commands::ALL), RuleError::UnknownAtStage("command")),
        (|r| r.users = Some(vec![(*b"a").into()]), RuleError::UnknownAtStage("user")),
        (
            |r| r.proxy_protocols = Some(ProxyProtocols::ALL),
            RuleError::UnknownAtStage("proxyprotocol"),
        ),
        (|r| r.to = hosts("example.com"), RuleError::NameOfClient("to")),
        (|r| r.limits.bandwidth = ByteRate::new(1, 1), RuleError::LimitAtStage("bandwidth")),
    ];
    for (change, error) in client {
        assert_eq!(compile(vec![rule(Stage::Client, Access::Pass, change)]).unwrap_err(), [error]);
    }
    let each = |r: &mut RuleSpec| {
        r.limits.each =
            Some(EachLimits { key: EachKey::User, sessions_max: Some(1), sessions_rate: None });
    };
    assert!(compile(vec![rule(Stage::Client, Access::Pass, each)]).is_err());
    let socks: [(Change, RuleError); 9] = [
        (|r| r.from = hosts("example.com"), RuleError::NameOfClient("from")),
        (|r| r.to = Some(Hosts::default()), RuleError::Empty("to")),
        (|r| r.to_ports = Ports::range(2, 1), RuleError::Empty("to port")),
        (|r| r.commands = Some(Commands::NONE), RuleError::Empty("command")),
        (|r| r.users = Some(vec![]), RuleError::Empty("user")),
        (
            |r| {
                r.commands = Some(Commands::UDP);
                r.proxy_protocols = Some(ProxyProtocols::of(&[ProxyProtocol::Socks4]));
            },
            RuleError::Contradiction("command", "proxyprotocol"),
        ),
        (
            |r| {
                r.commands = Some(Commands::of(&[Command::Bind]));
                r.proxy_protocols = Some(ProxyProtocols::of(&[ProxyProtocol::Http]));
            },
            RuleError::Contradiction("command", "proxyprotocol"),
        ),
        (
            |r| {
                r.methods = Some(Methods::of(&[Method::None]));
                r.users = Some(vec![(*b"a").into()]);
            },
            RuleError::Contradiction("method", "user"),
        ),
        (|r| r.times = WeekTimes::new(&[], 0, 0), RuleError::Empty("time")),
    ];
    for (change, error) in socks {
        assert_eq!(compile(vec![pass(change)]).unwrap_err(), [error]);
    }
    let named = vec![pass(|r| r.methods = Some(Methods::of(&[Method::Username])))];
    let found = Policy::new(named, Methods::of(&[Method::None]), Replies::Implied).unwrap_err();
    assert_eq!(found[0].error, RuleError::NotOffered);
}

#[test]
fn refuses_rules_in_the_shadow_of_others() {
    type Pair = (RuleSpec, RuleSpec);
    let shadowed: [Pair; 8] = [
        (pass(|_| {}), pass(|r| r.to = hosts("10.0.0.0/8"))),
        (pass(|_| {}), block(|r| r.to = hosts("www.example.com"))),
        (block(|_| {}), pass(|r| r.to = hosts("127.0.0.1"))),
        (pass(|r| r.to = hosts("10.0.0.0/8 11.0.0.0/8")), block(|r| r.to = hosts("10.0.0.0/7"))),
        (pass(|r| r.to = hosts(".example.com")), pass(|r| r.to = hosts("a.b.example.com"))),
        (pass(|r| r.to = hosts("127.0.0.0/8")), pass(|r| r.to = hosts("127.0.0.1"))),
        (pass(|r| r.from_ports = Ports::range(1, 9)), pass(|r| r.from_ports = Ports::range(2, 3))),
        (
            block(|r| r.users = Some(vec![(*b"a").into(), (*b"b").into()])),
            pass(|r| r.users = Some(vec![(*b"b").into()])),
        ),
    ];
    for (number, (first, second)) in shadowed.into_iter().enumerate() {
        let found = compile(vec![first, second]).unwrap_err();
        assert!(
            matches!(&found[..], [RuleError::Shadowed(place)] if place.line == 1),
            "case {number}"
        );
    }
    let apart: [Pair; 8] = [
        (pass(|r| r.to = hosts("10.0.0.0/8")), pass(|_| {})),
        // Passed over for what the second one names.
        (pass(|_| {}), pass(|r| r.to = hosts("127.0.0.0/8"))),
        (pass(|_| {}), pass(|r| r.to = hosts("169.254.0.0/16"))),
        (pass(|r| r.to = hosts("0.0.0.0/0")), block(|r| r.to = hosts("example.com"))),
        (pass(|r| r.commands = Some(Commands::TCP)), pass(|_| {})),
        (pass(|r| r.to = hosts("example.com")), pass(|r| r.to = hosts(".example.com"))),
        (
            pass(|r| r.users = Some(vec![(*b"a").into()])),
            pass(|r| r.users = Some(vec![(*b"b").into()])),
        ),
        (
            pass(|r| r.to = Some(Hosts { is_pending: true, ..Hosts::default() })),
            pass(|r| r.to = Some(Hosts { is_pending: true, ..Hosts::default() })),
        ),
    ];
    for (number, (first, second)) in apart.into_iter().enumerate() {
        assert!(compile(vec![first, second]).is_ok(), "case {number}");
    }
    let client = |change: fn(&mut RuleSpec)| rule(Stage::Client, Access::Pass, change);
    assert!(compile(vec![client(|_| {}), client(|r| r.to = hosts("127.0.0.1"))]).is_err());
    assert!(compile(vec![client(|_| {}), pass(|_| {})]).is_ok(), "stages do not meet");
}
