use proptest::prelude::*;

use super::*;

fn servers(settings: &Settings) -> Vec<String> {
    settings.nameservers().iter().map(ToString::to_string).collect()
}

fn search(settings: &Settings) -> Vec<String> {
    settings.search().iter().map(ToString::to_string).collect()
}

#[test]
fn reads_nameservers_in_every_form() {
    for (text, wanted) in [
        ("", "127.0.0.1:53"),
        ("nameserver 192.0.2.1", "192.0.2.1:53"),
        ("nameserver\t192.0.2.1\t\r\n", "192.0.2.1:53"),
        ("\u{feff}nameserver 192.0.2.1\n", "192.0.2.1:53"),
        ("  nameserver 192.0.2.1 # home\n", "192.0.2.1:53"),
        ("nameserver 2001:db8::1", "[2001:db8::1]:53"),
        ("nameserver [2001:db8::1]", "[2001:db8::1]:53"),
        ("nameserver [2001:db8::1]:5353", "[2001:db8::1]:5353"),
        ("nameserver 192.0.2.1:5353", "192.0.2.1:5353"),
        ("nameserver fe80::1%3", "[fe80::1%3]:53"),
        ("nameserver [fe80::1%3]:54", "[fe80::1%3]:54"),
        ("nameserver 0.0.0.0", "127.0.0.1:53"),
        ("nameserver ::", "[::1]:53"),
        ("#nameserver 192.0.2.1\n;nameserver 192.0.2.2\n", "127.0.0.1:53"),
        ("nameserver 192.0.2.1\nnameserver 192.0.2.1\n", "192.0.2.1:53"),
        ("nameservers 192.0.2.1\nsortlist 10.0.0.0/8\n", "127.0.0.1:53"),
    ] {
        let settings = Settings::from_resolv_conf(text.as_bytes());
        assert_eq!(servers(&settings), [wanted], "{text:?}");
        assert_eq!(settings.warnings(), [], "{text:?}");
    }
}

#[test]
fn unusable_nameservers_leave_a_warning_and_the_rest_in_force() {
    for (word, error) in [
        ("", NameserverError::Address),
        ("dns.example", NameserverError::Address),
        ("192.0.2.1#53", NameserverError::Address),
        ("[::1", NameserverError::Address),
        ("[::1]x", NameserverError::Address),
        ("192.0.2.1:0", NameserverError::Port),
        ("192.0.2.1:65536", NameserverError::Port),
        ("fe80::1%eth0", NameserverError::Interface),
        ("fe80::1%0", NameserverError::Interface),
        ("192.0.2.1%1", NameserverError::Address),
    ] {
        let text = format!("\nnameserver {word}\nnameserver 192.0.2.9\n");
        let settings = Settings::from_resolv_conf(text.as_bytes());
        assert_eq!(servers(&settings), ["192.0.2.9:53"], "{word}");
        let kind = WarningKind::Nameserver(error);
        assert_eq!(settings.warnings(), [Warning { line: 2, kind }], "{word}");
    }
}

#[test]
fn interface_names_are_looked_up_when_asked() {
    let text = b"nameserver fe80::1%eth0\nnameserver fe80::2%none\n";
    let mut index = |name: &str| (name == "eth0").then_some(7);
    let settings = Settings::from_resolv_conf_scoped(text, &mut index);
    assert_eq!(servers(&settings), ["[fe80::1%7]:53"]);
    assert_eq!(settings.warnings().len(), 1);
}

#[test]
fn last_of_domain_and_search_wins() {
    for (text, wanted) in [
        ("domain A.example\n", vec!["a.example"]),
        ("domain a.example b.example\n", vec!["a.example"]),
        ("search a.example b.example # c.example\n", vec!["a.example", "b.example"]),
        ("search a.example\ndomain b.example\n", vec!["b.example"]),
        ("domain b.example\nsearch\ta.example\tc.\n", vec!["a.example", "c."]),
        ("search .\n", vec![]),
        ("search a.example\nsearch\n", vec![]),
    ] {
        let settings = Settings::from_resolv_conf(text.as_bytes());
        assert_eq!(search(&settings), wanted, "{text:?}");
        assert_eq!(settings.warnings(), []);
    }
    let settings = Settings::from_resolv_conf(b"search a..b ok\xff ok\n");
    assert_eq!(search(&settings), ["ok"]);
    let bad = Warning { line: 1, kind: WarningKind::SearchDomain };
    assert_eq!(settings.warnings(), [bad, bad]);
}

#[test]
fn options_are_bounded_and_unknown_ones_ignored() {
    for (text, ndots, timeout_s, attempts) in [
        ("options edns0 trust-ad foo:bar", 1, 5, 2),
        ("options ndots:5 timeout:1 attempts:3", 5, 1, 3),
        ("options ndots:99 timeout:99 attempts:99", 15, 30, 5),
        ("options ndots:0 timeout:0 attempts:0", 0, 1, 1),
        ("options ndots:99999999999999999999", 15, 5, 2),
        ("options\tndots:2\noptions timeout:3", 2, 3, 2),
    ] {
        let settings = Settings::from_resolv_conf(text.as_bytes());
        let seen = (settings.ndots(), settings.timeout().as_secs(), settings.attempts());
        assert_eq!(seen, (ndots, timeout_s, attempts), "{text}");
        assert_eq!(settings.warnings(), [], "{text}");
        assert!(!settings.rotate() && !settings.tcp_only() && settings.aaaa());
    }
    let settings =
        Settings::from_resolv_conf(b"options rotate use-vc no-aaaa ndots:x timeout: attempts");
    assert!(settings.rotate() && settings.tcp_only() && !settings.aaaa());
    assert_eq!(settings.warnings(), [Warning { line: 1, kind: WarningKind::OptionValue }; 3]);
    assert_eq!(settings.ndots(), 1);
}

#[test]
fn lists_are_bounded() {
    let many: String = (0..200).map(|i| format!("nameserver 10.0.0.{i}\n")).collect();
    let settings = Settings::from_resolv_conf(many.as_bytes());
    assert_eq!(settings.nameservers().len(), NAMESERVERS_MAX);
    assert_eq!(settings.warnings().len(), WARNINGS_MAX);
    let many: String = (0..200).map(|i| format!(" d{i}.example")).collect();
    let settings = Settings::from_resolv_conf(format!("search{many}\n").as_bytes());
    assert_eq!(settings.search().len(), SEARCH_MAX);
    assert_eq!(settings.warnings().len(), 1);
}

#[test]
fn override_replaces_the_nameservers() {
    let settings = Settings::from_resolv_conf(b"nameserver 192.0.2.1\nsearch a.example\n");
    let list = parse_nameservers("192.0.2.7, [2001:db8::7]:5353,192.0.2.8:54").unwrap();
    let changed = settings.clone().with_nameservers(&list);
    assert_eq!(servers(&changed), ["192.0.2.7:53", "[2001:db8::7]:5353", "192.0.2.8:54"]);
    assert_eq!(search(&changed), ["a.example"]);
    assert_eq!(settings.clone().with_nameservers(&[]), settings);
    assert_eq!(parse_nameservers(" , "), Err(NameserverError::Count));
    assert_eq!(parse_nameservers("192.0.2.1,x"), Err(NameserverError::Address));
    assert_eq!(parse_nameservers(&["192.0.2.1"; 9].join(",")), Err(NameserverError::Count));
}

proptest! {
    #[test]
    fn any_bytes_give_usable_settings(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let settings = Settings::from_resolv_conf(&bytes);
        prop_assert!(!settings.nameservers().is_empty());
    }

    #[test]
    fn any_words_give_usable_settings(
        text in "((nameserver|search|domain|options|[a-z]{1,4})[ \t]([0-9a-f:.%\\[\\]#;]{0,12}[ ]?){0,4}\r?\n){0,8}",
    ) {
        let settings = Settings::from_resolv_conf(text.as_bytes());
        prop_assert!((1..=NAMESERVERS_MAX).contains(&settings.nameservers().len()));
    }
}
