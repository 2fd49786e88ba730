//! Random rules and requests against a matcher that does what the documentation says, word by word.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use adit_policy::{
    Accepted, Access, Asked, Command, Commands, Destination, HostPattern, Hosts, Method, Methods,
    NameVerdict, Place, Policy, Ports, Prefix, ProxyProtocol, ProxyProtocols, Replies, Request,
    RuleError, RuleSpec, Stage, Verdict, WeekTime, WeekTimes, Weekday, protection, reached,
};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

const ADDRS: [&str; 16] = [
    "10.0.0.1",
    "10.1.2.3",
    "192.0.2.1",
    "127.0.0.1",
    "0.0.0.0",
    "169.254.169.254",
    "169.254.1.1",
    "::1",
    "::",
    "::ffff:10.0.0.1",
    "::ffff:127.0.0.1",
    "::10.1.2.3",
    "2001:db8::1",
    "2001:db8:1::1",
    "fe80::1",
    "64:ff9b::7f00:1",
];
const PREFIXES: [&str; 17] = [
    "0.0.0.0/0",
    "::/0",
    "10.0.0.0/8",
    "10.0.0.0/16",
    "10.0.0.1",
    "127.0.0.0/8",
    "127.0.0.1",
    "169.254.0.0/16",
    "169.254.169.254",
    "169.254.169.0/24",
    "::1",
    "2001:db8::/32",
    "::ffff:10.0.0.0/104",
    "128.0.0.0/1",
    "fe80::/10",
    "64:ff9b::/96",
    "64:ff9b::7f00:1",
];
const NAMES: [&str; 7] =
    ["example.com", ".example.com", "www.example.com", "localhost", ".org", "a.org", ".localhost"];
const ASKED: [&str; 7] =
    ["example.com", "www.example.com", "localhost", "a.org", "b.a.org", "x.localhost", "net"];
const USERS: [&str; 3] = ["ann", "bob", "eve"];

fn addr() -> impl Strategy<Value = IpAddr> {
    prop_oneof![
        6 => prop::sample::select(&ADDRS[..]).prop_map(|text| text.parse().unwrap()),
        1 => any::<u32>().prop_map(|bits| Ipv4Addr::from_bits(bits).into()),
        1 => any::<u128>().prop_map(|bits| Ipv6Addr::from_bits(bits).into()),
    ]
}

fn hosts(with_names: bool) -> impl Strategy<Value = Option<Hosts>> {
    let prefixes = prop::collection::vec(prop::sample::select(&PREFIXES[..]), 0..3);
    let names = prop::collection::vec(prop::sample::select(&NAMES[..]), 0..2);
    prop::option::of((prefixes, names).prop_map(move |(prefixes, names)| {
        Hosts {
            prefixes: prefixes.into_iter().map(|text| Prefix::parse(text).unwrap()).collect(),
            names: names
                .into_iter()
                .filter(|_| with_names)
                .map(|text| HostPattern::parse(text).unwrap())
                .collect(),
            ..Hosts::default()
        }
    }))
}

fn ports() -> impl Strategy<Value = Ports> {
    prop::sample::select(vec![
        (0, 65535),
        (0, 65535),
        (0, 65535),
        (80, 443),
        (443, 443),
        (444, 65535),
    ])
    .prop_map(|(first, last)| Ports::range(first, last))
}

fn subset<T: Copy + std::fmt::Debug + 'static>(
    items: &'static [T],
) -> impl Strategy<Value = Option<Vec<T>>> {
    prop::option::weighted(0.3, prop::sample::subsequence(items, 1..=items.len()))
}

fn rule() -> impl Strategy<Value = RuleSpec> {
    let who = (hosts(false), ports(), subset(&USERS), subset(Method::ALL));
    let what = (hosts(true), ports(), subset(Command::ALL), subset(ProxyProtocol::ALL));
    let rest = (
        any::<bool>(),
        prop::bool::weighted(0.25),
        prop::bool::weighted(0.2),
        0u16..1440,
        0u16..1440,
    );
    (who, what, rest).prop_map(|(who, what, (passes, is_client, is_timed, start, end))| {
        let stage = if is_client { Stage::Client } else { Stage::Socks };
        let access = if passes { Access::Pass } else { Access::Block };
        let mut rule = RuleSpec::new(stage, access, Place { file: Arc::from(""), line: 0 });
        (rule.from, rule.from_ports) = (who.0, who.1);
        (rule.to, rule.to_ports) = (what.0, what.1);
        if is_timed {
            rule.times = WeekTimes::new(&[Weekday::Monday, Weekday::Sunday], start, end);
        }
        if is_client {
            let names = rule.to.as_mut().map(|to| &mut to.names);
            names.into_iter().for_each(Vec::clear);
        } else {
            rule.users =
                who.2.map(|users| users.into_iter().map(|user| user.as_bytes().into()).collect());
            rule.methods = who.3.map(|methods| Methods::of(&methods));
            rule.commands = what.2.map(|commands| Commands::of(&commands));
            rule.proxy_protocols = what.3.map(|protocols| ProxyProtocols::of(&protocols));
        }
        rule
    })
}

#[derive(Clone, Debug)]
struct Question {
    from: SocketAddr,
    user: Option<&'static str>,
    command: Command,
    proxy_protocol: ProxyProtocol,
    port: u16,
    time: WeekTime,
    addr: IpAddr,
    name: Option<&'static str>,
}

fn question() -> impl Strategy<Value = Question> {
    let who = (
        addr(),
        prop::sample::select(vec![1u16, 80, 443, 500]),
        prop::option::of(prop::sample::select(&USERS[..])),
    );
    let what = (
        prop::sample::select(Command::ALL),
        prop::sample::select(ProxyProtocol::ALL),
        prop::sample::select(vec![80u16, 442, 443, 444]),
        0i64..604_800,
    );
    (who, what, addr(), prop::option::of(prop::sample::select(&ASKED[..]))).prop_map(
        |((from, from_port, user), (command, proxy_protocol, port, seconds), addr, name)| {
            Question {
                from: SocketAddr::new(from, from_port),
                user,
                command,
                proxy_protocol,
                port,
                time: WeekTime::of_local_seconds(seconds),
                addr,
                name,
            }
        },
    )
}

impl Question {
    fn request(&self) -> Request<'_> {
        Request {
            from: self.from,
            user: self.user.map(str::as_bytes),
            method: if self.user.is_some() { Method::Username } else { Method::None },
            command: self.command,
            proxy_protocol: self.proxy_protocol,
            port: self.port,
            time: self.time,
        }
    }
}

fn in_hosts(hosts: Option<&Hosts>, addr: IpAddr, name: Option<&str>) -> bool {
    hosts.is_none_or(|hosts| {
        hosts.prefixes.iter().any(|prefix| prefix.contains(addr))
            || name.is_some_and(|name| hosts.names.iter().any(|pattern| is_name(pattern, name)))
    })
}

fn is_name(pattern: &HostPattern, name: &str) -> bool {
    let pattern = pattern.to_string();
    match pattern.strip_prefix('.') {
        Some(domain) => name == domain || name.ends_with(&pattern),
        None => name == pattern,
    }
}

/// The protected range that is meant by a prefix holds it, and no other one holds the address.
fn names_protected(rule: &RuleSpec, addr: IpAddr, name: Option<&str>) -> bool {
    let Some(to) = &rule.to else { return false };
    let by_prefix = to.prefixes.iter().any(|prefix| {
        let same =
            protection(prefix.addr()).is_some() && protection(prefix.addr()) == protection(addr);
        let is_inside = |text: &str| {
            let range = Prefix::parse(text).unwrap();
            range.len() <= prefix.len() && range.contains(prefix.addr())
        };
        let inside = [
            "0.0.0.0/8",
            "127.0.0.0/8",
            "169.254.0.0/16",
            "::/127",
            "fe80::/10",
            "64:ff9b::7f00:0/104",
        ]
        .iter()
        .any(|range| is_inside(range));
        prefix.contains(addr) && same && inside
    });
    let by_name = addr.is_loopback()
        && name.is_some_and(|name| {
            name.ends_with("localhost")
                && to.names.iter().any(|pattern| {
                    pattern.to_string().ends_with("localhost") && is_name(pattern, name)
                })
        });
    by_prefix || by_name
}

fn fulfils(rule: &RuleSpec, question: &Question) -> bool {
    let request = question.request();
    in_hosts(rule.from.as_ref(), question.from.ip().to_canonical(), None)
        && rule.from_ports.contains(question.from.port())
        && rule.to_ports.contains(question.port)
        && rule.commands.is_none_or(|set| set.contains(request.command))
        && rule.proxy_protocols.is_none_or(|set| set.contains(request.proxy_protocol))
        && rule.methods.is_none_or(|set| set.contains(request.method))
        && rule.users.as_ref().is_none_or(|users| {
            question.user.is_some_and(|user| users.iter().any(|known| **known == *user.as_bytes()))
        })
        && rule.times.as_ref().is_none_or(|times| times.contains(question.time))
}

/// The line of the rule that decides, and what it says.
fn judged(
    rules: &[RuleSpec],
    question: &Question,
    name: Option<&str>,
    addr: IpAddr,
) -> Option<(u32, Access)> {
    let is_request = Commands::REQUESTS.contains(question.command);
    let addr = if is_request { reached(addr) } else { addr.to_canonical() };
    rules
        .iter()
        .filter(|rule| rule.stage == Stage::Socks && fulfils(rule, question))
        .find(|rule| {
            in_hosts(rule.to.as_ref(), addr, name)
                && (rule.access == Access::Block
                    || !is_request
                    || protection(addr).is_none()
                    || names_protected(rule, addr, name))
        })
        .map(|rule| (rule.place.line, rule.access))
}

fn admitted(rules: &[RuleSpec], question: &Question) -> Option<(u32, Access)> {
    rules
        .iter()
        .filter(|rule| rule.stage == Stage::Client)
        .find(|rule| {
            in_hosts(rule.from.as_ref(), question.from.ip().to_canonical(), None)
                && rule.from_ports.contains(question.from.port())
                && in_hosts(rule.to.as_ref(), question.addr.to_canonical(), None)
                && rule.to_ports.contains(question.port)
                && rule.times.as_ref().is_none_or(|times| times.contains(question.time))
        })
        .map(|rule| (rule.place.line, rule.access))
}

/// The line of a rule in the shadow of others, and all rules that were there.
type Shadowed = (u32, Vec<RuleSpec>);

/// Compiles; rules that are refused are left out, as their author would do.
fn compile(mut rules: Vec<RuleSpec>) -> (Policy, Vec<RuleSpec>, Vec<Shadowed>) {
    for (line, rule) in (1..).zip(&mut rules) {
        rule.place.line = line;
    }
    let mut shadowed = Vec::new();
    loop {
        match Policy::new(rules.clone(), Methods::ALL, Replies::Judged) {
            Ok(policy) => return (policy, rules, shadowed),
            Err(mistakes) => {
                for mistake in &mistakes {
                    if matches!(mistake.error, RuleError::Shadowed(_)) {
                        shadowed.push((mistake.place.line, rules.clone()));
                    }
                }
                rules.retain(|rule| mistakes.iter().all(|mistake| mistake.place != rule.place));
            }
        }
    }
}

fn said(policy: &Policy, verdict: Verdict) -> Option<(u32, Access)> {
    let rule = verdict.rule().map(|id| (policy.rule(id).unwrap().place.line, verdict.access));
    assert!(rule.is_some() || !verdict.is_pass());
    rule
}

fn runner(cases: u32) -> TestRunner {
    let seed = *b"rules of a SOCKS server, a model";
    TestRunner::new_with_rng(
        Config { cases, failure_persistence: None, ..Config::default() },
        TestRng::from_seed(RngAlgorithm::ChaCha, &seed),
    )
}

#[test]
fn rules_say_what_the_model_says() {
    let rules = prop::collection::vec(rule(), 0..12);
    let questions = prop::collection::vec(question(), 1..40);
    runner(1500)
        .run(&(rules, questions), |(rules, questions)| {
            let (policy, rules, _) = compile(rules);
            for question in &questions {
                let request = question.request();
                let asked = question.name.and_then(Asked::read);
                let name = match &asked {
                    Some(Asked::Name(name)) => Some(name),
                    _ => None,
                };
                let verdict = policy.judge(&request, Destination::Addr(question.addr, name));
                let expected = judged(&rules, question, question.name, question.addr);
                prop_assert_eq!(said(&policy, verdict), expected, "{:?} by {:#?}", question, rules);

                let accepted = Accepted {
                    client: question.from,
                    local: SocketAddr::new(question.addr, question.port),
                    time: question.time,
                };
                prop_assert_eq!(said(&policy, policy.admit(&accepted)), admitted(&rules, question));

                // A name that is refused before it is looked up is refused at every address.
                if let Some(name) = name
                    && let NameVerdict::Refused(early) = policy.judge_name(&request, name)
                {
                    prop_assert!(!verdict.is_pass(), "{:?} by {:#?}", question, rules);
                    if let Some(rule) = early.rule() {
                        prop_assert_eq!(verdict.rule(), Some(rule));
                    }
                }
                if verdict.is_pass() {
                    prop_assert!(policy.could_pass(&request));
                }
            }
            Ok(())
        })
        .unwrap();
}

#[test]
fn a_rule_in_the_shadow_decides_nothing() {
    let rules = prop::collection::vec(rule(), 2..14);
    let questions = prop::collection::vec(question(), 1..60);
    let counted = std::cell::Cell::new(0u32);
    runner(1500)
        .run(&(rules, questions), |(rules, questions)| {
            let (_, _, shadowed) = compile(rules);
            for (line, all) in shadowed {
                counted.set(counted.get() + 1);
                // To block what passes nowhere changes nothing.
                let is_served = |command| {
                    all.iter().any(|rule| {
                        rule.access == Access::Pass
                            && rule.stage == Stage::Socks
                            && rule.commands.is_none_or(|set| set.contains(command))
                    })
                };
                for question in questions.iter().filter(|question| is_served(question.command)) {
                    // A name that leads to a protected address is not worth a rule of its own below
                    // one that passes everything else: that is a rule in the wrong place.
                    let is_protected = protection(question.addr).is_some();
                    let name = question.name.filter(|_| !is_protected);
                    let judged = judged(&all, question, name, question.addr);
                    prop_assert!(judged.is_none_or(|(decided, _)| decided != line));
                    let admitted = admitted(&all, question);
                    prop_assert!(admitted.is_none_or(|(decided, _)| decided != line));
                }
            }
            Ok(())
        })
        .unwrap();
    let found = counted.get();
    assert!(found > 500, "only {found} rules were in the shadow: the test says nothing");
}
