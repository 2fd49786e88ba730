//! Bodies of the fuzz targets, and the slow matcher that they and `tests/model.rs` compare with;
//! `fuzz/` calls them with one line each.

use std::net::IpAddr;
#[cfg(feature = "geoip")]
use std::net::Ipv6Addr;

#[cfg(feature = "regex")]
use crate::acl::Route;
use crate::acl::{Acl, Decision};

use crate::mistake::MISTAKES_MAX;

/// Names that are looked up whatever the data says.
const NAMES: [&str; 6] = ["a.com", "www.a.com", "a-b.example.com", "com", "127.0.0.1", "[::1]"];

/// Parses `data` as a file, looks up every word of it, and compares its rules with a slow matcher.
pub fn acl_parse(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let words = text.split(|c: char| !(c.is_alphanumeric() || matches!(c, '.' | '-' | ':')));
    match Acl::parse(data, None) {
        Ok(acl) => {
            let mut memory = acl.memory();
            let mut judge = acl.judge(&mut memory);
            for name in words.clone().take(64).chain(NAMES) {
                let is_addr = |name: &str| name.parse::<IpAddr>().is_ok();
                let route = judge.route_name(name);
                let admission = judge.admit_name(name);
                assert_eq!(judge.route_name(&name.to_ascii_uppercase()), route, "case");
                if is_addr(name) {
                    assert_ne!(route, Decision::NeedsAddresses);
                    assert_ne!(admission, Decision::NeedsAddresses);
                }
            }
        }
        Err(mistakes) => {
            assert!((1..=MISTAKES_MAX).contains(&mistakes.len()));
            assert!(mistakes.is_sorted_by_key(|mistake| mistake.line()));
            assert!(mistakes.iter().all(|mistake| mistake.to_string().len() < 1000));
        }
    }
    #[cfg(feature = "regex")]
    {
        let names: Vec<&str> = words.take(8).chain(NAMES).collect();
        for rule in text.lines().take(16) {
            compare(&[rule], &names);
        }
        compare(&text.lines().take(16).collect::<Vec<_>>(), &names);
    }
}

/// Checks that a list of these rules matches those of `names` that any rule alone matches. Lines
/// that are no rules for names are left out, and names that no host has. Returns how many rules
/// were left.
///
/// # Panics
/// On a difference.
#[cfg(feature = "regex")]
pub fn compare(lines: &[&str], names: &[&str]) -> usize {
    use crate::rule::{Rule, is_domain};

    let with_header = |lines: &[&str]| format!("[bypass_all]\n[proxy_list]\n{}", lines.join("\n"));
    let rules: Vec<&str> = lines
        .iter()
        .map(|line| line.trim_ascii())
        .filter(|line| !line.is_empty() && !line.starts_with('[') && !line.contains('#'))
        .filter(|line| matches!(Rule::parse(line), Ok(Rule::Domain(..) | Rule::Expression(_))))
        .filter(|line| Acl::parse(with_header(&[*line]).as_bytes(), None).is_ok())
        .collect();
    let acl = Acl::parse(with_header(&rules).as_bytes(), None).expect("each rule is one alone");
    let mut memory = acl.memory();
    let mut judge = acl.judge(&mut memory);
    for name in names {
        let name = name.to_ascii_lowercase();
        if !is_domain(&name) {
            continue;
        }
        let is_match = rules.iter().any(|rule| matches_slowly(rule, &name));
        let expected = if is_match { Route::Proxied } else { Route::Direct };
        assert_eq!(judge.route_name(&name), Decision::Known(expected), "{name} by {rules:?}");
    }
    rules.len()
}

/// Matches one rule as its text says, without any of this crate's shortcuts.
#[cfg(feature = "regex")]
fn matches_slowly(rule: &str, name: &str) -> bool {
    use crate::domains::Cover;
    use crate::rule::Rule;

    match Rule::parse(rule) {
        Ok(Rule::Domain(cover, domain)) => {
            let domain = domain.to_ascii_lowercase();
            let is_below = name.strip_suffix(&domain).is_some_and(|rest| rest.ends_with('.'));
            (cover != Cover::Below && name == domain) || (cover != Cover::Host && is_below)
        }
        Ok(Rule::Expression(text)) => regex_lite::RegexBuilder::new(text)
            .case_insensitive(true)
            .build()
            .is_ok_and(|regex| regex.is_match(name)),
        _ => false,
    }
}

/// Reads `data` as a database of countries: as a whole file if its first byte is even, else as
/// tree and records below good metadata. Every range that is found must be found again by address.
#[cfg(feature = "geoip")]
pub fn acl_geo(data: &[u8]) {
    use crate::geo::GeoDatabase;

    let file = match data {
        [kind, nodes, rest @ ..] if kind & 1 == 1 => {
            let record_bits = [24, 28, 32][usize::from(kind >> 1) % 3];
            let ip_version = if kind & 0x80 == 0 { 4 } else { 6 };
            let mut file = rest.to_vec();
            file.extend_from_slice(&metadata(u32::from(*nodes), record_bits, ip_version));
            file
        }
        _ => data.to_vec(),
    };
    let Ok(database) = GeoDatabase::from_bytes(file) else {
        return;
    };
    for addr in ["0.0.0.0", "1.2.3.4", "::", "2001:db8::1", "255.255.255.255"] {
        let _ = database.country(addr.parse().expect("an address"));
    }
    let mut found = Vec::new();
    let walked = database.walk(&mut |country, first, last| {
        if found.len() < 1000 {
            found.push((country, first, last));
        }
    });
    if walked.is_err() {
        return;
    }
    for (country, first, last) in found {
        assert!(first <= last);
        let ends = [first, last].map(Ipv6Addr::from_bits);
        // A leaf above the IPv4 tree has mapped addresses in it that are not its own.
        if ends.iter().all(|addr| addr.to_ipv4_mapped().is_some())
            || ends.iter().all(|addr| addr.to_ipv4_mapped().is_none())
        {
            for addr in ends {
                assert_eq!(database.country(IpAddr::V6(addr)), Ok(Some(country)), "{addr}");
            }
        }
    }
}

/// The end of a file: marker and metadata.
#[cfg(feature = "geoip")]
pub fn metadata(node_count: u32, record_bits: u16, ip_version: u16) -> Vec<u8> {
    let mut bytes = b"\xab\xcd\xefMaxMind.com\xe4".to_vec();
    let text = |key: &str| {
        let len = u8::try_from(key.len()).unwrap_or(u8::MAX);
        let mut head = if len < 29 { vec![0x40 | len] } else { vec![0x5d, len - 29] };
        head.extend_from_slice(key.as_bytes());
        head
    };
    for (key, value) in [
        ("binary_format_major_version", vec![0xa1, 2]),
        ("node_count", [&[0xc4][..], &node_count.to_be_bytes()].concat()),
        ("record_size", [&[0xa2][..], &record_bits.to_be_bytes()].concat()),
        ("ip_version", [&[0xa2][..], &ip_version.to_be_bytes()].concat()),
    ] {
        bytes.extend(text(key));
        bytes.extend(value);
    }
    bytes
}
