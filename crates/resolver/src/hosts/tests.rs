use proptest::prelude::*;

use super::*;

fn text(list: Option<AddrList>) -> String {
    let Some(list) = list else {
        return "-".to_owned();
    };
    list.iter().map(|addr| addr.to_string()).collect::<Vec<_>>().join(" ")
}

#[test]
fn reads_files_as_they_occur() {
    let file = b"\xef\xbb\xbf# comment\r\n\
        192.0.2.1\tAlpha.Example alpha  # trailing\r\n\
        \r\n\
        2001:db8::1 alpha\n\
        192.0.2.2 alpha\n\
        192.0.2.1 alpha\n\
        0.0.0.0 ads.example.\n\
        ::ffff:192.0.2.5 mapped\n\
        not-an-address x\n\
        192.0.2.3\n\
        192.0.2.4 good b@d also_good\n\
        fe80::1%lo0 scoped\n\
        192.0.2.6 last";
    let hosts = Hosts::parse(file);
    for (name, wanted) in [
        ("alpha", "192.0.2.1 2001:db8::1 192.0.2.2"),
        ("ALPHA.example.", "192.0.2.1"),
        ("ads.example", "0.0.0.0"),
        ("mapped", "192.0.2.5"),
        ("good", "192.0.2.4"),
        ("also_good", "192.0.2.4"),
        ("last", "192.0.2.6"),
        ("x", "-"),
        ("scoped", "-"),
        ("alph", "-"),
        ("alphaa", "-"),
        ("", "-"),
        ("b@d", "-"),
    ] {
        assert_eq!(text(hosts.lookup(name)), wanted, "{name}");
    }
    assert_eq!((hosts.bad_lines(), hosts.len(), hosts.is_cut()), (4, 7, false));
}

#[test]
fn localhost_is_loopback_whatever_the_file_says() {
    for (file, name, wanted) in [
        ("", "localhost", "127.0.0.1 ::1"),
        ("", "LocalHost.", "127.0.0.1 ::1"),
        ("", "a.b.localhost", "127.0.0.1 ::1"),
        ("127.0.0.1 localhost\n", "localhost", "127.0.0.1"),
        ("::1 localhost\n127.0.0.1 localhost\n", "localhost", "::1 127.0.0.1"),
        ("192.0.2.1 localhost\n", "localhost", "127.0.0.1 ::1"),
        ("127.0.0.2 x.localhost\n", "x.localhost", "127.0.0.2"),
        ("", "notlocalhost", "-"),
        ("", "localhost.example", "-"),
    ] {
        assert_eq!(text(Hosts::parse(file.as_bytes()).lookup(name)), wanted, "{file:?} {name}");
    }
}

#[test]
fn addresses_per_name_are_bounded() {
    let file: String = (0..100).map(|i| format!("10.0.0.{i} many\n")).collect();
    assert_eq!(Hosts::parse(file.as_bytes()).lookup("many").unwrap().len(), 16);
}

#[test]
fn long_files_are_cut_at_a_line() {
    let mut file = b"192.0.2.1 first\n".to_vec();
    file.resize(HOSTS_BYTES_MAX - 10, b'\n');
    file.extend_from_slice(b"192.0.2.2 second\n");
    let hosts = Hosts::parse(&file);
    assert!(hosts.is_cut());
    assert_eq!(text(hosts.lookup("first")), "192.0.2.1");
    assert_eq!((hosts.lookup("second"), hosts.bad_lines()), (None, 0));
}

proptest! {
    #[test]
    fn any_bytes_parse(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let hosts = Hosts::parse(&bytes);
        prop_assert!(hosts.lookup("localhost").is_some());
    }

    #[test]
    fn agrees_with_a_linear_search(
        lines in proptest::collection::vec((0..20u8, 0..30u8), 0..60),
        ask in 0..30u8,
    ) {
        let file: String = lines.iter().map(|(a, n)| format!("10.0.0.{a} host{n}\n")).collect();
        let wanted: AddrList = lines.iter().filter(|(_, n)| *n == ask)
            .map(|(a, _)| IpAddr::from([10, 0, 0, *a])).collect();
        let got = Hosts::parse(file.as_bytes()).lookup(&format!("host{ask}"));
        prop_assert_eq!(got.unwrap_or_default(), wanted);
    }
}
