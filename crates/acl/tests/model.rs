//! Random rules and names against slow matchers that do what the documentation says, word by word.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use adit_acl::{Acl, Admission, Decision, Route};
use proptest::prelude::{
    Just, ProptestConfig, Strategy, any, prop, prop_assert_eq, prop_oneof, proptest,
};

fn name() -> impl Strategy<Value = String> {
    let label = prop::sample::select(vec!["a", "b", "ab", "com", "google", "x-1", "cn"]);
    prop::collection::vec(label, 1..5).prop_map(|labels| labels.join("."))
}

#[cfg(feature = "regex")]
proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    /// Pieces of expressions in any order: what is rewritten, indexed or left alone matches what a
    /// plain search matches.
    #[test]
    fn expressions_match_what_a_search_matches(
        lines in prop::collection::vec(prop::collection::vec(prop::sample::select(vec![
            "^", "$", r"(^|\.)", r"(?:^|\.)", r"\.", ".", ".*", "[ab]", "(a|b)", "(", ")", "(?:", "|", "?",
            "*", "+", "{2}", "{0,1}", "[^.]+", r"([^/]+\.)*", r"(.*\.)?", r"\b", "a", "b", "ab", "google",
            "com", r"\.com$", "(?i)", "A", r"[^.]", "(?-i:", r"\w",
        ]), 1..7), 1..4),
        names in prop::collection::vec(name(), 1..8),
    ) {
        let lines: Vec<String> = lines.into_iter().map(|pieces| pieces.concat()).collect();
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        adit_acl::fuzz::compare(&lines, &names);
    }
}

#[cfg(feature = "regex")]
#[test]
fn the_comparison_compares() {
    let compared =
        adit_acl::fuzz::compare(&["goo[g]le", "||a.com", "(", "10.0.0.0/8"], &["google"]);
    assert_eq!(compared, 2);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    /// The most specific domain rule of either list wins, `|host` before `||host`; between equals
    /// the proxy list, and on a server the block list.
    #[test]
    fn the_most_specific_domain_rule_wins(
        rules in prop::collection::vec((any::<bool>(), any::<bool>(), name()), 0..12),
        names in prop::collection::vec(name(), 1..12),
        is_direct in any::<bool>(),
    ) {
        let of_list = |wanted: bool| -> String {
            let rules = rules.iter().filter(|&&(is_first, ..)| is_first == wanted);
            rules.map(|(_, is_tree, name)| format!("{}{name}\n", if *is_tree { "||" } else { "|" })).collect()
        };
        let (first, second) = (of_list(true), of_list(false));
        let modes = if is_direct { "[bypass_all]\n[outbound_allow_all]\n" } else { "[outbound_block_all]\n" };
        let text = format!(
            "{modes}[proxy_list]\n{first}[bypass_list]\n{second}[outbound_block_list]\n{first}\
             [outbound_allow_list]\n{second}"
        );
        let acl = Acl::parse(text.as_bytes(), None).unwrap();
        let mut memory = acl.memory();
        let mut judge = acl.judge(&mut memory);
        for name in &names {
            let best = rules
                .iter()
                .filter(|(_, is_tree, rule)| {
                    name == rule || *is_tree && name.ends_with(&format!(".{rule}"))
                })
                .max_by_key(|(is_first, is_tree, rule)| (rule.len(), !is_tree, *is_first))
                .map(|&(is_first, ..)| is_first);
            let route = if best.unwrap_or(!is_direct) { Route::Proxied } else { Route::Direct };
            let admission =
                if best.unwrap_or(!is_direct) { Admission::Refused } else { Admission::Admitted };
            prop_assert_eq!(judge.route_name(name), Decision::Known(route), "{} by {}", name, text);
            prop_assert_eq!(judge.admit_name(name), Decision::Known(admission), "{} by {}", name, text);
        }
    }

    /// Prefixes near each other and near the ends: the same as testing one after the other.
    #[test]
    fn addresses_are_in_the_prefixes_that_hold_them(
        rules in prop::collection::vec((any::<bool>(), addr(), 0u32..=128), 0..24),
        addrs in prop::collection::vec(addr(), 1..24),
        is_direct in any::<bool>(),
    ) {
        let rules: Vec<(bool, IpAddr, u32)> = rules
            .into_iter()
            .map(|(is_proxy, addr, len)| (is_proxy, addr, if addr.is_ipv4() { len % 33 } else { len }))
            .collect();
        let mut text = String::from(if is_direct { "[bypass_all]\n" } else { "" });
        for (is_proxy, addr, len) in &rules {
            text += if *is_proxy { "[proxy_list]\n" } else { "[bypass_list]\n" };
            text += &format!("{addr}/{len}\n");
        }
        let acl = Acl::parse(text.as_bytes(), None).unwrap();
        let default = if is_direct { Route::Direct } else { Route::Proxied };
        for addr in addrs.iter().chain(rules.iter().map(|(_, addr, _)| addr)) {
            let holds = |wanted: bool| {
                rules.iter().any(|&(is_proxy, prefix, len)| is_proxy == wanted && is_in(*addr, prefix, len))
            };
            let expected = match (holds(false), holds(true)) {
                (true, _) => Route::Direct,
                (_, true) => Route::Proxied,
                _ => default,
            };
            prop_assert_eq!(acl.route_addr(*addr), expected, "{} by {}", addr, text);
        }
    }
}

/// Addresses of which many share long prefixes, IPv4-mapped ones among them.
fn addr() -> impl Strategy<Value = IpAddr> {
    let bits = prop_oneof![
        Just(0u32),
        Just(u32::MAX),
        0u32..8,
        Just(0x0a00_0000),
        Just(0x0aff_ffff),
        any::<u32>()
    ];
    (bits, 0u8..5).prop_map(|(bits, form)| match form {
        0 | 1 => IpAddr::V4(Ipv4Addr::from_bits(bits)),
        2 => IpAddr::V6(Ipv4Addr::from_bits(bits).to_ipv6_mapped()),
        3 => IpAddr::V6(Ipv6Addr::from_bits(u128::from(bits))),
        _ => IpAddr::V6(Ipv6Addr::from_bits(u128::from(bits) << 96 | u128::from(bits))),
    })
}

/// As documented: families are told apart after unmapping, but for prefixes longer than `/95` that
/// are mapped IPv4 themselves.
fn is_in(addr: IpAddr, prefix: IpAddr, len: u32) -> bool {
    match (addr.to_canonical(), prefix) {
        (IpAddr::V4(addr), IpAddr::V4(prefix)) => {
            (addr.to_bits() ^ prefix.to_bits()).checked_shr(32 - len).unwrap_or(0) == 0
        }
        (IpAddr::V4(addr), IpAddr::V6(prefix)) => prefix
            .to_ipv4_mapped()
            .is_some_and(|v4| len >= 96 && is_in(addr.into(), v4.into(), len - 96)),
        (IpAddr::V6(addr), IpAddr::V6(prefix)) => {
            (addr.to_bits() ^ prefix.to_bits()).checked_shr(128 - len).unwrap_or(0) == 0
        }
        (IpAddr::V6(_), IpAddr::V4(_)) => false,
    }
}
