use std::ffi::OsString;

use adit_config::{Invocation, REDIR_MARK};

use super::*;

/// The configuration of a command line, which has a method and a password besides.
fn config(args: &str) -> Config {
    let args = args.split_ascii_whitespace().chain(["-k", "x", "-m", "aes-256-gcm"]);
    match Config::from_args("ss-redir", args.map(OsString::from), &|_| None) {
        Ok(Invocation::Run(config)) => *config,
        other => panic!("{other:?}"),
    }
}

/// Knows one name.
fn names(name: &str) -> io::Result<Vec<IpAddr>> {
    let ips = match name {
        "server.example" => ["9.9.9.9", "2620:fe::9"],
        "lo.example" => ["127.0.0.1", "::1"],
        _ => return Err(io::Error::other("no such name")),
    };
    Ok(ips.iter().filter_map(|ip| ip.parse().ok()).collect())
}

fn rules(args: &str, scope: Scope) -> Result<Rules, String> {
    Rules::new(&config(args), scope, &mut names)
}

fn forwarded() -> Scope {
    Scope { interfaces: vec!["lan".to_owned()], ..Scope::default() }
}

/// The rules of a chain, without those that every chain has.
fn chain(script: &str, name: &str) -> Vec<String> {
    let Some((_, body)) = script.split_once(&format!("chain {name} {{\n")) else { return vec![] };
    let (body, _) = body.split_once("\n\t}").unwrap();
    body.lines()
        .map(|line| line.trim().to_owned())
        .filter(|line| !line.starts_with("type "))
        .collect()
}

#[test]
fn connections_by_redirect_and_datagrams_by_tproxy() {
    let rules = rules("-s 9.9.9.9 -p 1 -b :: -l 1088 -u", forwarded()).unwrap();
    let script = rules.script();
    let redirect = [
        "jump leave_out",
        "tcp flags & (fin | syn | rst | ack) != syn accept",
        "meta nfproto ipv4 meta l4proto tcp redirect to :1088",
        "meta nfproto ipv6 meta l4proto tcp redirect to :1088",
    ];
    assert_eq!(chain(&script, "redirect_own"), redirect);
    let others = ["iifname != { \"lan\" } accept"];
    assert_eq!(chain(&script, "redirect_forwarded"), [&others, &redirect[..]].concat());
    assert_eq!(
        chain(&script, "mark_own"),
        [
            "jump leave_out",
            "meta nfproto ipv4 meta l4proto udp meta mark set 0xad18",
            "meta nfproto ipv6 meta l4proto udp meta mark set 0xad18",
        ]
    );
    assert_eq!(
        chain(&script, "divert"),
        [
            "iifname \"lo\" meta mark 0xad18 meta nfproto ipv4 meta l4proto udp tproxy ip to \
             127.0.0.1:1088 accept",
            "iifname \"lo\" meta mark 0xad18 meta nfproto ipv6 meta l4proto udp tproxy ip6 to \
             [::1]:1088 accept",
            "iifname != { \"lan\" } accept",
            "jump leave_out",
            "meta nfproto ipv4 meta l4proto udp meta mark set 0xad18 tproxy ip to 127.0.0.1:1088 \
             accept",
            "meta nfproto ipv6 meta l4proto udp meta mark set 0xad18 tproxy ip6 to [::1]:1088 \
             accept",
        ]
    );
    assert!(rules.remarks.is_empty(), "{:?}", rules.remarks);
    assert!(FAMILIES.iter().all(|family| rules.needs_delivery(*family)));
}

#[test]
fn what_is_left_out() {
    let bypass = ["1.2.3.4", "2400::/12", "10.1.2.3/8"].map(|range| range.parse().unwrap());
    let scope = Scope {
        bypass: bypass.into(),
        skip_users: vec!["proxy".to_owned(), "65534".to_owned()],
        ..Scope::default()
    };
    let script = rules("-s server.example -p 1 -l 1088 --fwmark 7", scope).unwrap().script();
    assert_eq!(
        chain(&script, "leave_out"),
        [
            "meta mark { 0x7 } accept comment \"ss-redir's own\"",
            "ct direction reply accept comment \"answers of services here\"",
            "fib daddr type { local, anycast, broadcast, multicast } accept",
            "ip daddr @bypass4 accept",
            "ip6 daddr @bypass6 accept",
            "ip daddr @servers4 accept",
            "ip6 daddr @servers6 accept",
        ]
    );
    assert_eq!(
        chain(&script, "redirect_own")[..2],
        ["meta skuid { \"proxy\", 65534 } accept", "jump leave_out"]
    );
    let set = |name: &str| -> Vec<String> {
        let (_, body) = script.split_once(&format!("set {name} {{")).unwrap();
        let (_, body) = body.split_once("elements = {").unwrap();
        let (body, _) = body.split_once('}').unwrap();
        body.split(',').map(|e| e.trim().to_owned()).filter(|e| !e.is_empty()).collect()
    };
    assert_eq!(set("servers4"), ["9.9.9.9"]);
    assert_eq!(set("servers6"), ["2620:fe::9"]);
    for range in ["1.2.3.4/32", "10.0.0.0/8", "192.168.0.0/16", "127.0.0.0/8", "224.0.0.0/4"] {
        assert!(set("bypass4").contains(&range.to_owned()), "{range}");
    }
    for range in ["2400::/12", "fc00::/7", "fe80::/10", "::/127", "ff00::/8"] {
        assert!(set("bypass6").contains(&range.to_owned()), "{range}");
    }
    let default = rules("-s 9.9.9.9 -p 1 -l 1088", Scope::default()).unwrap().script();
    assert!(default.contains(&format!("meta mark {{ {REDIR_MARK:#x} }} accept")), "{default}");
    assert!(!default.contains("servers6"), "no empty sets");
}

/// Listener, ways as "family transport by address"; TCP and UDP.
#[test]
fn what_a_listener_gets() {
    let redirect = "redirect to :1088";
    for (args, expected) in [
        ("-b ::", &[("4 tcp", redirect), ("6 tcp", redirect)][..]),
        ("-b 0.0.0.0", &[("4 tcp", redirect)]),
        ("-b 127.0.0.1", &[("4 tcp", "dnat ip to 127.0.0.1:1088")]),
        ("-b ::1", &[("6 tcp", "dnat ip6 to [::1]:1088")]),
        ("-b ::ffff:127.0.0.1", &[("4 tcp", "dnat ip to 127.0.0.1:1088")]),
        (
            "-b lo.example",
            &[("4 tcp", "dnat ip to 127.0.0.1:1088"), ("6 tcp", "dnat ip6 to [::1]:1088")],
        ),
        ("-b :: -U", &[]),
    ] {
        let rules = rules(&format!("-s 9.9.9.9 -p 1 -l 1088 {args}"), Scope::default()).unwrap();
        let expected: Vec<String> = expected
            .iter()
            .map(|(what, to)| {
                let (family, transport) = what.split_once(' ').unwrap();
                format!("meta nfproto ipv{family} meta l4proto {transport} {to}")
            })
            .collect();
        let found = chain(&rules.script(), "redirect_own");
        assert_eq!(found.get(2..).unwrap_or_default(), expected, "{args}");
    }
}

#[test]
fn one_family_alone_is_remarked_on() {
    for (args, words) in [
        ("-b 127.0.0.1", &["IPv6 connections are left alone"][..]),
        ("-b ::1 -u", &["IPv4 connections are left alone", "IPv4 datagrams are left alone"]),
        ("-b :: -u", &[]),
    ] {
        let rules = rules(&format!("-s 9.9.9.9 -p 1 -l 1088 {args}"), Scope::default()).unwrap();
        assert_eq!(rules.remarks.len(), words.len(), "{args}: {:?}", rules.remarks);
        for (remark, words) in rules.remarks.iter().zip(words) {
            assert!(remark.contains(words), "{remark}");
            assert!(rules.script().contains(&format!("# Note: {remark}")), "{args}");
        }
    }
}

#[test]
fn tproxy_alone_needs_no_nat_and_redirect_no_routes() {
    let tproxy = rules("-s 9.9.9.9 -p 1 -b :: -l 1088 -T -u", Scope::default()).unwrap();
    let script = tproxy.script();
    assert!(!script.contains("type nat"), "{script}");
    assert!(script.contains("#   ip -6 rule add pref 1088 fwmark 0xad18 lookup 44312"), "{script}");
    assert!(
        script.contains("#   ip -4 route replace local default dev lo table 44312 proto static")
    );
    let redirect = rules("-s 9.9.9.9 -p 1 -b :: -l 1088", Scope::default()).unwrap();
    assert!(!FAMILIES.iter().any(|family| redirect.needs_delivery(*family)));
    let script = redirect.script();
    assert!(!script.contains("tproxy") && !script.contains("ip -4 rule"), "{script}");
}

#[test]
fn ports_and_forwarded_traffic_alone() {
    let scope = Scope {
        own: false,
        tcp_ports: vec![80..=80, 8000..=8999],
        udp_ports: vec![443..=443],
        ..forwarded()
    };
    let script = rules("-s 9.9.9.9 -p 1 -b 0.0.0.0 -l 1088 -u", scope).unwrap().script();
    assert!(!script.contains("hook output") && !script.contains("\"lo\""), "{script}");
    assert_eq!(
        chain(&script, "redirect_forwarded").last().unwrap(),
        "meta nfproto ipv4 meta l4proto tcp th dport { 80, 8000-8999 } redirect to :1088"
    );
    assert_eq!(
        chain(&script, "divert").last().unwrap(),
        "meta nfproto ipv4 meta l4proto udp th dport { 443 } meta mark set 0xad18 tproxy ip to \
         127.0.0.1:1088 accept"
    );
}

#[test]
fn a_name_that_is_unknown_is_no_matter_with_a_mark() {
    let found = rules("-s nowhere.example -p 1 -b :: -l 1088", Scope::default()).unwrap();
    assert!(found.remarks[0].contains("nowhere.example cannot be looked up"), "{found:?}");
    assert!(!found.script().contains("servers4"));
    let args = "-s nowhere.example -p 1 -b :: -l 1088 --plugin obfs-local";
    let error = rules(args, Scope::default()).unwrap_err();
    assert!(error.contains("its plugin's connections carry no mark"), "{error}");
}

/// Its servers are not known here; the mark is that of all of them.
#[test]
fn a_subscription_needs_no_server() {
    let args = "-b :: -l 1088 --online-config-url https://provider.example/secret";
    let rules = rules(args, Scope::default()).unwrap();
    assert!(rules.remarks[0].contains("fetched without a mark"), "{rules:?}");
    let script = rules.script();
    assert!(script.contains("meta mark { 0xad17 } accept") && !script.contains("secret"));
}

#[test]
fn what_cannot_be_done_is_refused() {
    let ports = Scope { udp_ports: vec![53..=53], ..Scope::default() };
    let nothing = Scope { own: false, ..Scope::default() };
    for (args, scope, words) in [
        ("-b 127.0.0.1", forwarded(), "listen on 0.0.0.0 or ::"),
        ("-b :: --fwmark 0xad18", Scope::default(), "write another as fwmark"),
        ("-b ::", ports, "--udp-ports has no effect"),
        ("-b ::", nothing, "name an --interface"),
        ("-b nowhere.example", Scope::default(), "write an IP"),
    ] {
        let error = rules(&format!("-s 9.9.9.9 -p 1 -l 1088 {args}"), scope).unwrap_err();
        assert!(error.contains(words), "{args}: {error}");
    }
    // TPROXY reaches loopback.
    assert!(rules("-s 9.9.9.9 -p 1 -l 1088 -T", forwarded()).is_ok());
}

#[test]
fn ranges_are_read_and_cut_to_their_length() {
    for (text, expected) in [
        ("10.1.2.3/8", "10.0.0.0/8"),
        ("1.2.3.4", "1.2.3.4/32"),
        ("0.0.0.0/0", "0.0.0.0/0"),
        ("2001:db8::1/32", "2001:db8::/32"),
        ("::/0", "::/0"),
        ("fd00::1", "fd00::1/128"),
    ] {
        assert_eq!(text.parse::<IpRange>().map(|range| range.to_string()).as_deref(), Ok(expected));
    }
    for wrong in ["", "/8", "10.0.0.0/33", "::/129", "10.0.0.0/+8", "10.0.0.0/", "a/8", "10.0.0/8"]
    {
        assert!(wrong.parse::<IpRange>().is_err(), "{wrong}");
    }
    for range in range::RESERVED {
        let parsed: IpRange = range.parse().unwrap();
        // The mapped range is written in two ways.
        assert!(parsed.to_string() == range || range.starts_with("::ffff"), "{range}");
    }
}
