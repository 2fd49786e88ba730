//! Counts heap allocations: none in a look-up, not even in the first; and loads 100,000 rules.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use adit_acl::{Acl, Admission, Decision, Route};
use adit_counting_allocator::allocations;

/// 50,000 domains and 50,000 prefixes in `[proxy_list]`, none of which touch.
fn large() -> String {
    let mut text = String::from("[bypass_all]\n[outbound_block_all]\n[proxy_list]\n");
    for i in 0..50_000u32 {
        writeln!(text, "||host{i}.example{}.com", i % 7).unwrap();
        match i % 2 {
            0 => writeln!(text, "{}/32", Ipv4Addr::from_bits(i << 4)).unwrap(),
            _ => writeln!(text, "{}/64", Ipv6Addr::from_bits(0x2001 << 112 | u128::from(i) << 68))
                .unwrap(),
        }
    }
    text
}

#[test]
fn large_lists_find_every_rule_without_allocating() {
    let acl = Acl::parse(large().as_bytes(), None).unwrap();
    assert_eq!((acl.counts().domains, acl.counts().ranges), (50_000, 50_000));
    let names: Vec<(String, String)> = (0..50_000)
        .map(|i| {
            (
                format!("www.Host{i}.example{}.com.", i % 7),
                format!("host{i}.example{}.com", (i + 1) % 7),
            )
        })
        .collect();
    let mut memory = acl.memory();
    let mut judge = acl.judge(&mut memory);
    let count = allocations(|| {
        for (listed, other) in &names {
            assert_eq!(judge.route_name(listed), Decision::Known(Route::Proxied));
            assert_eq!(judge.route_name(other), Decision::NeedsAddresses);
            assert_eq!(judge.admit_name(listed), Decision::Known(Admission::Refused));
        }
        for i in 0..50_000u32 {
            let addr = |low| match i % 2 {
                0 => IpAddr::V4(Ipv4Addr::from_bits(i << 4 | low)),
                _ => IpAddr::V6(Ipv6Addr::from_bits(
                    0x2001 << 112 | u128::from(i) << 68 | u128::from(low) << 64,
                )),
            };
            assert_eq!(acl.route_addr(addr(0)), Route::Proxied);
            assert_eq!(acl.route_addr(addr(1)), Route::Direct);
            assert_eq!(acl.route_addrs(&[addr(1), addr(0)]), Route::Proxied);
            assert_eq!(acl.admitted(&[addr(0)]).next(), None);
        }
    });
    assert_eq!(count, 0);
}

/// Expressions with branches in branches, whose searches need the most memory, and names that get
/// far in them.
#[cfg(feature = "regex")]
#[test]
fn expressions_do_not_allocate_even_in_the_first_search() {
    let mut text = String::from("[bypass_all]\n[proxy_list]\n");
    for i in 0..300 {
        writeln!(text, "tracker{i}[a-z]*\\.(net|org)$").unwrap();
    }
    let nested = format!("^{}x$", "(a?|b*|c+|(d|e)?)*".repeat(12));
    let wide = format!(
        "({})+y$",
        (b'a'..=b'z').map(char::from).map(String::from).collect::<Vec<_>>().join("|")
    );
    let deep = format!("{}a{}z$", "(".repeat(20), "|b?)*".repeat(20));
    let counted = "^(a{0,3}b{0,3}){0,30}q$";
    for rule in
        [nested.as_str(), &wide, &deep, counted, r"^[0-9]+(-[0-9]+)*$", r"(^|\.)ad\d{1,4}\."]
    {
        writeln!(text, "{rule}").unwrap();
    }
    let acl = Acl::parse(text.as_bytes(), None).unwrap();
    assert_eq!(acl.counts().expressions, 306);
    let mut names = vec![
        ("a".repeat(60) + "x", true),
        ("abcde".repeat(12) + "w", false),
        ("aaabbb".repeat(10) + "q", true),
        ("b".repeat(50) + "z", true),
        ("thequickbrownfoxy".to_owned(), true),
        ("1-2-3-4".to_owned(), true),
        ("www.ad77.example".to_owned(), true),
        ("www.example.com".to_owned(), false),
        ("a\0\0.com".to_owned(), false),
        ("\0\0".to_owned(), false),
    ];
    names.extend((0..300).map(|i| (format!("a.tracker{i}abc.net"), true)));
    names.extend((0..300).map(|i| (format!("a.tracker{i}abc.info"), false)));
    for (name, is_match) in &names {
        // Memory for each: the first search of every expression is under test.
        let mut memory = acl.memory();
        let mut judge = acl.judge(&mut memory);
        let mut decision = None;
        assert_eq!(allocations(|| decision = Some(judge.route_name(name))), 0, "{name:?}");
        let expected = if *is_match { Route::Proxied } else { Route::Direct };
        assert_eq!(decision, Some(Decision::Known(expected)), "{name:?}");
    }
    let mut memory = acl.memory();
    let mut judge = acl.judge(&mut memory);
    let count = allocations(|| {
        for (name, _) in &names {
            std::hint::black_box(judge.route_name(name));
        }
    });
    assert_eq!(count, 0);
}

/// Judges of one list work side by side.
#[test]
fn judges_of_one_list_share_it_between_threads() {
    let acl = Arc::new(
        Acl::parse(b"[bypass_all]\n[proxy_list]\n||a.example\n192.0.2.0/24\n", None).unwrap(),
    );
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let acl = Arc::clone(&acl);
            std::thread::spawn(move || {
                let mut memory = acl.memory();
                let mut judge = acl.judge(&mut memory);
                allocations(|| {
                    for _ in 0..1000 {
                        assert_eq!(
                            judge.route_name("www.a.example"),
                            Decision::Known(Route::Proxied)
                        );
                    }
                })
            })
        })
        .collect();
    for thread in threads {
        assert_eq!(thread.join().unwrap(), 0);
    }
}
