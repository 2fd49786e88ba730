//! Tables of files and verdicts, in both programs' syntax, and the examples of `docs/acl.md`.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::net::IpAddr;

use adit_acl::{
    Acl, Admission, Counts, Decision, FILE_LEN_MAX, GEO_SETTING, LINE_LEN_MAX, MISTAKES_MAX,
    Mistake, MistakeKind, Remark, Route, Side,
};
use adit_wire::Host;

const DOCUMENTATION: &str = include_str!("../../../docs/acl.md");

fn parse(text: &str) -> Acl {
    Acl::parse(text.as_bytes(), None).unwrap_or_else(|mistakes| {
        let mistakes: Vec<String> = mistakes.iter().map(Mistake::to_string).collect();
        panic!("{text}\n{}", mistakes.join("\n"))
    })
}

/// Who is asked, about what, with what outcome: a line such as `client  example.com  proxied`.
fn check(text: &str, line: &str) {
    let mut words = line.split_whitespace();
    let (who, what) = (words.next().unwrap(), words.next().unwrap());
    let expected = words.collect::<Vec<_>>().join(" ");
    let acl = parse(text);
    let mut memory = acl.memory();
    let mut judge = acl.judge(&mut memory);
    let route = |decision| match decision {
        Decision::Known(Route::Proxied) => "proxied",
        Decision::Known(Route::Direct) => "direct",
        Decision::NeedsAddresses => "needs addresses",
    };
    let admission = |decision| match decision {
        Decision::Known(Admission::Admitted) => "admitted",
        Decision::Known(Admission::Refused) => "refused",
        Decision::NeedsAddresses => "needs addresses",
    };
    let outcome = match who {
        "client" => {
            let outcome = route(judge.route_name(what));
            let host = Host::parse(what.as_bytes()).unwrap();
            assert_eq!(route(judge.route(host)), outcome, "{what} as a host");
            outcome
        }
        "server" => {
            let outcome = admission(judge.admit_name(what));
            let host = Host::parse(what.as_bytes()).unwrap();
            assert_eq!(admission(judge.admit(host)), outcome, "{what} as a host");
            outcome
        }
        "from" => admission(Decision::Known(acl.admit_client(what.parse().unwrap()))),
        _ => panic!("who is {who}?"),
    };
    assert_eq!(outcome, expected, "{line}\nby\n{text}");
}

fn check_all(text: &str, lines: &[&str]) {
    lines.iter().for_each(|line| check(text, line));
}

/// The bodies of fenced blocks of a language.
fn blocks(language: &str) -> Vec<&'static str> {
    let fence = format!("```{language}\n");
    DOCUMENTATION.split(&fence).skip(1).map(|rest| rest.split_once("```").unwrap().0).collect()
}

#[cfg(feature = "regex")]
#[test]
fn examples_of_the_documentation_hold() {
    let (files, verdicts) = (blocks("acl"), blocks("verdicts"));
    assert_eq!(files.len(), verdicts.len());
    assert!(files.len() >= 6);
    for (file, verdicts) in files.iter().zip(verdicts) {
        assert!(!verdicts.trim().is_empty());
        verdicts.lines().for_each(|line| check(file, line));
    }
    assert!(DOCUMENTATION.contains(&format!("`{GEO_SETTING}`")));
    assert!(
        DOCUMENTATION.contains(&format!("{LINE_LEN_MAX} bytes, files {} MiB", FILE_LEN_MAX >> 20))
    );
    assert!(DOCUMENTATION.contains(&format!("at most {} such", adit_acl::EXPRESSIONS_MAX)));
}

#[test]
fn a_mode_line_works_alone() {
    for (text, route, client) in [
        ("[bypass_all]", "direct", "refused"),
        ("[reject_all]", "direct", "refused"),
        ("[proxy_all]", "proxied", "admitted"),
        ("[accept_all]", "proxied", "admitted"),
        ("", "proxied", "admitted"),
    ] {
        for what in ["example.com", "192.0.2.1", "[2001:db8::1]"] {
            check(text, &format!("client {what} {route}"));
        }
        check(text, &format!("from 192.0.2.1 {client}"));
        let expected = if route == "direct" { Route::Direct } else { Route::Proxied };
        assert_eq!(parse(text).only_route(), Some(expected));
    }
    check_all("[outbound_block_all]", &["server example.com refused", "server ::1 refused"]);
    check_all("[outbound_allow_all]", &["server example.com admitted", "server ::1 admitted"]);
    assert_eq!(parse("[outbound_block_all]").only_admission(), Some(Admission::Refused));
}

#[test]
fn modes_are_switches_that_leave_the_list_alone() {
    check_all(
        "[proxy_list]\n|a.example\n[bypass_all]\n|b.example\n",
        &["client a.example proxied", "client b.example proxied", "client c.example direct"],
    );
    check_all(
        "|a.example\n[proxy_all]\n",
        &["client a.example direct", "client b.example proxied"],
    );
    // The last switch counts.
    check("[bypass_all]\n[proxy_all]", "client a.example proxied");
}

#[test]
fn aliases_mean_the_same_section() {
    for (list, outcome) in [
        ("bypass_list", "direct"),
        ("black_list", "direct"),
        ("proxy_list", "proxied"),
        ("white_list", "proxied"),
        ("BLACK_list", "direct"),
    ] {
        check(&format!("[{list}]\n|a.example\n192.0.2.1"), &format!("client a.example {outcome}"));
        check(
            &format!("[bypass_all]\n[{list}]\n192.0.2.1"),
            &format!("client 192.0.2.1 {outcome}"),
        );
    }
}

#[test]
fn tolerates_what_editors_and_people_leave_behind() {
    let text = "\u{feff}[bypass_all]\r\n# Kommentar: ä\r\n  \t\r\n  # another\r\n\r\n[proxy_list] # names\r\n  \
                ||a.example\t# ä\r\n192.0.2.0/24 # lan\r\n2001:db8::/32\t#\r\n|b.example.\r\n";
    check_all(
        text,
        &[
            "client www.a.example proxied",
            "client b.example proxied",
            "client 192.0.2.9 proxied",
            "client 2001:db8::9 proxied",
            "client 192.0.3.9 direct",
        ],
    );
    assert_eq!(parse(text).counts(), Counts { domains: 2, ranges: 2, expressions: 0 });
}

#[test]
fn reads_every_form_of_rule() {
    for (rule, matching, other) in [
        ("||a.example", "www.a.example", "xa.example"),
        ("||a.example", "a.example", "example"),
        ("||.a.example.", "a.example", "b.example"),
        ("suffix:a.example", "www.a.example", "xa.example"),
        ("SUFFIX:A.Example", "www.a.example", "xa.example"),
        ("|a.example", "a.example", "www.a.example"),
        ("|=a.example", "a.example", "www.a.example"),
        ("full:a.example", "A.EXAMPLE.", "www.a.example"),
        ("||cn", "a.cn", "cn.example"),
        ("|_srv.a-b.example", "_srv.a-b.example", "srv.a-b.example"),
        (r"(^|\.)a\.example$", "www.a.example", "xa.example"),
        (r"^a\.example$", "a.example", "www.a.example"),
        (r"\.a\.example$", "www.a.example", "a.example"),
        ("||xn--bcher-kva.example", "www.xn--bcher-kva.example", "buecher.example"),
    ] {
        let text = format!("[bypass_all]\n[proxy_list]\n{rule}");
        check_all(
            &text,
            &[&format!("client {matching} proxied"), &format!("client {other} direct")],
        );
        let text = format!("[outbound_block_list]\n{rule}");
        check_all(
            &text,
            &[&format!("server {matching} refused"), &format!("server {other} admitted")],
        );
    }
    for (rule, matching, other) in [
        ("192.0.2.1", "192.0.2.1", "192.0.2.2"),
        ("192.0.2.1", "::ffff:192.0.2.1", "::ffff:192.0.2.2"),
        ("192.0.2.1", "[::ffff:192.0.2.1]", "[2001:db8::1]"),
        ("::ffff:192.0.2.1", "192.0.2.1", "192.0.2.2"),
        ("::ffff:192.0.2.0/120", "192.0.2.255", "192.0.3.0"),
        ("10.9.0.32/16", "10.9.255.255", "10.10.0.0"),
        ("0.0.0.0/0", "255.255.255.255", "::1"),
        ("::/0", "ffff::1", "192.0.2.1"),
        ("2001:db8::/32", "[2001:DB8:ffff::]", "2001:db9::"),
        ("[2001:db8::1]", "2001:db8::1", "2001:db8::2"),
        ("|192.0.2.1", "192.0.2.1", "192.0.2.2"),
        ("||[2001:db8::1]", "2001:db8::1", "2001:db8::2"),
        ("192.0.2.0/31", "192.0.2.1", "192.0.2.2"),
        ("0.0.0.0/32", "0.0.0.0", "0.0.0.1"),
        (
            "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
            "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
            "::",
        ),
    ] {
        let text = format!("[bypass_all]\n[proxy_list]\n{rule}");
        check_all(
            &text,
            &[&format!("client {matching} proxied"), &format!("client {other} direct")],
        );
        let text = format!("[reject_all]\n[white_list]\n{rule}");
        let bare = |addr: &str| addr.trim_matches(['[', ']']).to_owned();
        check_all(
            &text,
            &[
                &format!("from {} admitted", bare(matching)),
                &format!("from {} refused", bare(other)),
            ],
        );
    }
}

#[cfg(feature = "regex")]
#[test]
fn expressions_search_in_the_name_without_regard_to_case() {
    for (rule, matching, other) in [
        ("google", "www.GOOGLE.example", "goggle.example"),
        ("GOOGLE", "google.example", "goggle.example"),
        (r"a\.example$", "xa.example", "a.example.org"),
        ("^ad[0-9]+", "ad7.example", "ad.example"),
        (r"^\D+$", "example.com", "example7.com"),
        (r"^[A-Z]{5}\.example$", "abcde.example", "abcdef.example"),
        (r"(foo|bar)\d\.", "bar1.example", "barx.example"),
        (r"^[0-9.-]+$", "1.2.3.4.5", "1.a"),
        (r"(?-i)Google", "www.google.example", "goggle.example"),
        ("example.com", "notexample.community", "example-org"),
    ] {
        let text = format!("[bypass_all]\n[proxy_list]\n{rule}");
        check_all(
            &text,
            &[&format!(
                "client {matching} {}",
                if rule.starts_with("(?-i)") { "direct" } else { "proxied" }
            )],
        );
        check(&text, &format!("client {other} direct"));
    }
}

#[test]
fn odd_names_are_judged_by_the_default() {
    let acl = parse("[bypass_all]\n[proxy_list]\n||a\n");
    let mut memory = acl.memory();
    let mut judge = acl.judge(&mut memory);
    let long = format!("{}a", "a.".repeat(200));
    for name in ["", ".", "...", "a\0", "ä.a", "a b.a ", &long] {
        assert_eq!(judge.route_name(name), Decision::Known(Route::Direct), "{name:?}");
    }
    assert_eq!(judge.route_name("b.a..."), Decision::Known(Route::Proxied));
}

#[test]
fn a_name_needs_addresses_only_if_they_can_matter() {
    let relevant = "192.0.2.0/24\n";
    for (text, outcome) in [
        (format!("[bypass_list]\n{relevant}"), "needs addresses"),
        (format!("[proxy_list]\n{relevant}"), "proxied"),
        (format!("[bypass_all]\n[proxy_list]\n{relevant}"), "needs addresses"),
        (format!("[bypass_all]\n[bypass_list]\n{relevant}"), "direct"),
        (format!("[outbound_block_list]\n{relevant}"), "proxied"),
    ] {
        check(&text, &format!("client a.example {outcome}"));
    }
    for (text, outcome) in [
        (format!("[outbound_block_list]\n{relevant}"), "needs addresses"),
        (format!("[outbound_allow_list]\n{relevant}"), "admitted"),
        (format!("[outbound_block_all]\n[outbound_allow_list]\n{relevant}"), "needs addresses"),
        (format!("[outbound_block_all]\n[outbound_block_list]\n{relevant}"), "refused"),
        (format!("[black_list]\n{relevant}"), "admitted"),
    ] {
        check(&text, &format!("server a.example {outcome}"));
    }
    // A rule that names the host is final.
    check(
        &format!("[bypass_list]\n{relevant}[proxy_list]\n||a.example"),
        "client a.example proxied",
    );
}

#[test]
fn addresses_of_a_name_decide() {
    let addrs =
        |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<IpAddr>>();
    let (inside, outside, both) =
        (addrs(&["192.0.2.1"]), addrs(&["198.51.100.1"]), addrs(&["198.51.100.1", "192.0.2.1"]));

    let acl = parse("[bypass_list]\n192.0.2.0/24\n");
    assert_eq!(acl.route_addrs(&inside), Route::Direct);
    assert_eq!(acl.route_addrs(&outside), Route::Proxied);
    assert_eq!(acl.route_addrs(&both), Route::Direct);
    assert_eq!(acl.route_addrs(&[]), Route::Proxied);

    let acl = parse("[bypass_all]\n[proxy_list]\n192.0.2.0/24\n[bypass_list]\n192.0.2.128/25\n");
    assert_eq!(acl.route_addrs(&inside), Route::Proxied);
    assert_eq!(acl.route_addrs(&both), Route::Proxied);
    assert_eq!(acl.route_addrs(&addrs(&["192.0.2.200"])), Route::Direct);
    assert_eq!(acl.route_addrs(&[]), Route::Direct);

    let acl = parse("[outbound_block_list]\n192.0.2.0/24\n");
    assert_eq!(acl.admitted(&both).collect::<Vec<_>>(), outside);
    assert_eq!(acl.admitted(&inside).count(), 0);
    let acl = parse("[outbound_block_all]\n[outbound_allow_list]\n192.0.2.0/24\n");
    assert_eq!(acl.admitted(&both).collect::<Vec<_>>(), inside);
}

#[test]
fn bypass_and_block_come_first_for_addresses() {
    check_all(
        "[proxy_list]\n10.0.0.0/8\n[bypass_list]\n10.1.0.0/16\n",
        &["client 10.1.2.3 direct", "client 10.2.2.3 proxied", "from 10.1.2.3 refused"],
    );
    check(
        "[reject_all]\n[white_list]\n10.0.0.0/8\n[black_list]\n10.1.0.0/16\n",
        "from 10.1.0.1 refused",
    );
    check(
        "[outbound_allow_list]\n10.1.0.0/16\n[outbound_block_list]\n10.0.0.0/8\n",
        "server 10.1.0.1 refused",
    );
}

#[cfg(feature = "regex")]
#[test]
fn domains_come_before_expressions() {
    check_all(
        "[proxy_list]\ngoogle\n[bypass_list]\n||google.cn\nmaps\n",
        &[
            "client www.google.cn direct",
            "client google.example proxied",
            "client maps.google.example proxied",
            "client maps.example direct",
        ],
    );
    check(
        "[outbound_allow_list]\nmaps\n[outbound_block_list]\ngoogle\n",
        "server maps.google.example refused",
    );
}

#[test]
fn remarks_on_rules_that_do_nothing_on_one_side() {
    let acl = parse(
        "# 1\n[outbound_block_list]\n||a.example\n[black_list]\n192.0.2.1\n||b.example\n|c.example\n",
    );
    assert_eq!(acl.remark(Side::Client), Some(Remark::Outbound { line: 2 }));
    assert_eq!(acl.remark(Side::Server), Some(Remark::ClientNames { line: 6 }));
    assert!(acl.remark(Side::Server).unwrap().to_string().starts_with("line 6: "));
    let acl = parse("192.0.2.1\n");
    assert_eq!((acl.remark(Side::Client), acl.remark(Side::Server)), (None, None));
}

fn mistakes(text: &[u8]) -> Vec<Mistake> {
    let parsed = Acl::parse(text, None);
    parsed.map(|_| ()).expect_err(&String::from_utf8_lossy(&text[..text.len().min(99)]))
}

#[test]
fn reports_every_kind_of_mistake() {
    use MistakeKind::*;

    let long = "a".repeat(LINE_LEN_MAX + 1);
    for (rule, kind) in [
        ("[bypass]", UnknownSection),
        ("[proxy_list", UnknownSection),
        ("[]", UnknownSection),
        (long.as_str(), LineTooLong),
        ("||bücher.example", NotAscii),
        ("b\u{1}", NotAscii),
        ("||", BadDomain),
        ("||.", BadDomain),
        ("|a..example", BadDomain),
        ("||a b.example", BadDomain),
        ("|a/b", BadDomain),
        ("|*.example", BadDomain),
        ("full:", BadDomain),
        ("suffix:a_b.*", BadDomain),
        ("||[a]", BadDomain),
        ("192.0.2", BadAddress),
        ("192.0.2.256", BadAddress),
        ("192.0.2.01", BadAddress),
        ("192.0.2.1.", BadAddress),
        ("10.0.0/8", BadAddress),
        ("2001:db8::1::", BadAddress),
        ("fe80::1%eth0", BadAddress),
        ("10.0.0.0/33", BadPrefixLength),
        ("10.0.0.0/", BadPrefixLength),
        ("10.0.0.0/+8", BadPrefixLength),
        ("10.0.0.0/8/9", BadPrefixLength),
        ("10.0.0.0/255.0.0.0", BadPrefixLength),
        ("::1/129", BadPrefixLength),
        ("::1/99999999999999999999", BadPrefixLength),
        ("|=a..example", BadDomain),
        ("@@||a.example", UnknownForm),
        ("geosite:cn", UnknownForm),
        ("domain:a.example", UnknownForm),
        ("*.a.example", Wildcard),
        ("(a", BadExpression),
        ("a(?!b)", LookAround),
        ("a b", BlankInExpression),
        ("a#b", BlankInExpression),
        ("a{300}", ExpressionTooLarge),
        ("geoip:CHN", BadCountry),
        ("geoip:", BadCountry),
    ] {
        let found = mistakes(format!("\n{rule}\n").as_bytes());
        assert_eq!(found.len(), 1, "{rule}");
        assert_eq!((found[0].line(), found[0].kind()), (2, kind), "{rule}");
        let message = found[0].to_string();
        assert!(message.starts_with("line 2: \""), "{message}");
        assert!(message.len() < 600, "{message}");
    }
    assert_eq!(mistakes(b"\xff\xfe[\0")[0].kind(), Utf16);
    assert_eq!(mistakes(&vec![b'\n'; FILE_LEN_MAX + 1])[0].kind(), FileTooLong);
    let country = &mistakes(b"geoip:cn")[0];
    let expected = if cfg!(feature = "geoip") { NoDatabase } else { CountriesLeftOut };
    assert_eq!(country.kind(), expected);
    if cfg!(feature = "geoip") {
        assert!(country.to_string().contains(GEO_SETTING));
    }
    assert_eq!(country.to_string().find("\"geoip:CN\""), Some("line 1: ".len()));
}

#[test]
fn says_so_if_there_are_no_expressions_in_this_build() {
    let parsed = Acl::parse(b"google\n", None);
    if cfg!(feature = "regex") {
        assert!(parsed.is_ok());
    } else {
        assert_eq!(parsed.expect_err("a mistake")[0].kind(), MistakeKind::ExpressionsLeftOut);
    }
}

#[cfg(feature = "regex")]
#[test]
fn bounds_the_memory_of_expressions() {
    for rule in [r"(([a-z]{1,60}\.){1,60}x){1,60}y", r"[a-z]{255}{255}x", &"a?b".repeat(340)] {
        let found = Acl::parse(rule.as_bytes(), None).map(|_| ());
        if let Err(found) = found {
            assert_eq!(found[0].kind(), MistakeKind::ExpressionTooLarge, "{rule}");
        }
    }
    let many: String = (0..=adit_acl::EXPRESSIONS_MAX).map(|i| format!("x{i}\n")).collect();
    let found = mistakes(many.as_bytes());
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].kind(), MistakeKind::TooManyExpressions);
    assert_eq!(mistakes(b"[a-z]{255}{255}x")[0].kind(), MistakeKind::ExpressionTooLarge);
}

#[test]
fn reports_all_mistakes_in_order_up_to_a_bound() {
    let found = mistakes(b"[nope]\n||ok.example\n10.0.0.0/40\ngeoip:CN\n(\n");
    let lines: Vec<u32> = found.iter().map(Mistake::line).collect();
    assert_eq!(lines, [1, 3, 4, 5]);

    let exactly = mistakes("(\n".repeat(MISTAKES_MAX).as_bytes());
    assert_eq!(exactly.len(), MISTAKES_MAX);
    assert_eq!(exactly.last().unwrap().kind(), MistakeKind::BadExpression);

    let more = mistakes("(\n".repeat(MISTAKES_MAX + 1).as_bytes());
    assert_eq!(more.len(), MISTAKES_MAX);
    assert_eq!(more.last().unwrap().kind(), MistakeKind::MoreMistakes);
    let countries = mistakes("geoip:CN\n".repeat(1000).as_bytes());
    assert_eq!(countries.len(), MISTAKES_MAX);
}

#[test]
fn never_repeats_a_long_or_unprintable_line() {
    let message = mistakes(&[b'\x1b'; 900])[0].to_string();
    assert!(
        message.len() < 500 && message.bytes().all(|byte| (b' '..=b'~').contains(&byte)),
        "{message}"
    );
}
