//! Every block with its first and last address and the neighbours on both sides.

use super::*;

/// Why a connection to `ip` is refused, or `None`.
fn refusal(guard: &Guard, ip: &str) -> Option<Blocked> {
    let ip = ip.parse().expect("an address");
    guard.check(SocketAddr::new(ip, 443), Transport::Stream).err()
}

/// A guard of a process that listens at these addresses.
fn at(streams: &[&str], datagrams: &[&str]) -> Guard {
    let own = OwnListeners::default();
    for (transport, addrs) in [(Transport::Stream, streams), (Transport::Datagram, datagrams)] {
        addrs.iter().for_each(|addr| own.add(transport, addr.parse().unwrap()));
    }
    Guard { block_private: false, own: Arc::new(own) }
}

/// First and last address of each private block, and what lies next to it on the internet.
const BLOCKS: [(&str, &str, &str, &str); 19] = [
    ("", "0.0.0.0", "0.255.255.255", "1.0.0.0"),
    ("9.255.255.255", "10.0.0.0", "10.255.255.255", "11.0.0.0"),
    ("100.63.255.255", "100.64.0.0", "100.127.255.255", "100.128.0.0"),
    ("126.255.255.255", "127.0.0.0", "127.255.255.255", "128.0.0.0"),
    ("168.63.129.15", "168.63.129.16", "168.63.129.16", "168.63.129.17"),
    ("169.253.255.255", "169.254.0.0", "169.254.255.255", "169.255.0.0"),
    ("172.15.255.255", "172.16.0.0", "172.31.255.255", "172.32.0.0"),
    ("191.255.255.255", "192.0.0.0", "192.0.0.255", "192.0.1.0"),
    ("192.167.255.255", "192.168.0.0", "192.168.255.255", "192.169.0.0"),
    ("198.17.255.255", "198.18.0.0", "198.19.255.255", "198.20.0.0"),
    ("223.255.255.255", "224.0.0.0", "239.255.255.255", ""),
    ("", "240.0.0.0", "255.255.255.255", ""),
    ("", "::", "::1", ""),
    (
        "2001:1:ffff:ffff:ffff:ffff:ffff:ffff",
        "2001:2::",
        "2001:2:0:ffff:ffff:ffff:ffff:ffff",
        "2001:2:1::",
    ),
    (
        "fbff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
        "fc00::",
        "fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
        "fe00::",
    ),
    (
        "fe7f:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
        "fe80::",
        "febf:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
        "",
    ),
    ("", "fec0::", "feff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", ""),
    ("", "ff00::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", ""),
    // Clouds' metadata between the ends of their blocks.
    ("", "169.254.169.254", "100.100.100.200", ""),
];

#[test]
fn private_blocks_are_refused_and_their_neighbours_not() {
    let guard = Guard { block_private: true, ..Guard::default() };
    for (before, first, last, after) in BLOCKS {
        for inside in [first, last] {
            assert_eq!(refusal(&guard, inside), Some(Blocked::Private), "{inside}");
        }
        for outside in [before, after].into_iter().filter(|ip| !ip.is_empty()) {
            assert_eq!(refusal(&guard, outside), None, "{outside}");
        }
    }
    for metadata in ["fd00:ec2::254", "fd20:ce::254", "192.0.0.192"] {
        assert_eq!(refusal(&guard, metadata), Some(Blocked::Private), "{metadata}");
    }
    for public in ["8.8.8.8", "2606:4700::1111", "192.0.2.1", "2001:db8::1", "192.88.99.1"] {
        assert_eq!(refusal(&guard, public), None, "{public}");
    }
}

#[test]
fn the_operator_may_allow_private_addresses() {
    let guard = Guard::default();
    for (_, first, last, _) in BLOCKS {
        assert_eq!(refusal(&guard, first), None);
        assert_eq!(refusal(&guard, last), None);
    }
}

#[test]
fn embedded_addresses_are_judged_in_every_form() {
    let guard = Guard { block_private: true, ..Guard::default() };
    let cases = [
        ("10.1.2.3", Some(Blocked::Private)),
        ("127.0.0.1", Some(Blocked::Private)),
        ("169.254.169.254", Some(Blocked::Private)),
        ("255.255.255.255", Some(Blocked::Private)),
        ("8.8.4.4", None),
        ("172.32.0.1", None),
    ];
    for (text, expected) in cases {
        let v4: Ipv4Addr = text.parse().unwrap();
        let [a, b, c, d] = v4.octets().map(u32::from);
        let (high, low) = (a << 8 | b, c << 8 | d);
        let forms = [
            format!("::{text}"),
            format!("::ffff:{text}"),
            format!("::ffff:0:{text}"),
            format!("64:ff9b::{text}"),
            format!("64:ff9b:1::{text}"),
            format!("64:ff9b:1:7:8:9:{text}"),
            format!("2002:{high:x}:{low:x}::1"),
            format!("2001:0:808:808::{:x}:{:x}", 0xffff - high, 0xffff - low),
        ];
        for form in forms {
            assert_eq!(refusal(&guard, &form), expected, "{form}");
        }
        // The prefixes next to these mean something else.
        for form in [
            format!("::fffe:{text}"),
            format!("::1:0:{text}"),
            format!("64:ff9a::{text}"),
            format!("64:ff9b:2::{text}"),
            format!("64:ff9b:0:1::{text}"),
            format!("2001:1::{:x}:{:x}", 0xffff - high, 0xffff - low),
            format!("2003:{high:x}:{low:x}::1"),
        ] {
            assert_eq!(refusal(&guard, &form), None, "{form}");
        }
    }
}

#[test]
fn a_local_nat64_prefix_of_unknown_length_is_refused() {
    let guard = Guard { block_private: true, ..Guard::default() };
    // 10.1.2.3 behind prefixes of 48, 56 and 64 bits (RFC 6052 §2.2).
    for ip in ["64:ff9b:1:a01:2:300::", "64:ff9b:1:ff0a:1:203::", "64:ff9b:1:ffff:a:102:300:0"] {
        assert_eq!(refusal(&guard, ip), Some(Blocked::Private), "{ip}");
    }
}

#[test]
fn own_listeners_are_refused_by_transport_and_port() {
    let guard = at(&["192.0.2.7:8388", "[2001:db8::7]:8388"], &["192.0.2.7:8389"]);
    let check = |addr: &str, transport| guard.check(addr.parse().unwrap(), transport);
    let own = Err(Blocked::OwnListener);
    assert_eq!(check("192.0.2.7:8388", Transport::Stream), own);
    assert_eq!(check("[::ffff:192.0.2.7]:8388", Transport::Stream), own);
    assert_eq!(check("[2001:db8::7]:8388", Transport::Stream), own);
    assert_eq!(check("192.0.2.7:8389", Transport::Datagram), own);
    for (addr, transport) in [
        ("192.0.2.7:8388", Transport::Datagram),
        ("192.0.2.7:8389", Transport::Stream),
        ("192.0.2.8:8388", Transport::Stream),
        ("127.0.0.1:8388", Transport::Stream),
        ("0.0.0.0:8388", Transport::Stream),
        ("[2001:db8::8]:8388", Transport::Stream),
    ] {
        assert_eq!(check(addr, transport), Ok(()), "{addr}");
    }
}

#[test]
fn unspecified_destinations_mean_loopback() {
    let guard = at(&["127.0.0.1:1", "[::1]:2"], &[]);
    let check = |addr: &str| guard.check(addr.parse().unwrap(), Transport::Stream);
    for addr in ["0.0.0.0:1", "[::ffff:0.0.0.0]:1", "[::]:2"] {
        assert_eq!(check(addr), Err(Blocked::OwnListener), "{addr}");
    }
    for addr in ["127.0.0.2:1", "[::]:1", "0.0.0.0:2", "[::1]:1"] {
        assert_eq!(check(addr), Ok(()), "{addr}");
    }
}

#[test]
fn wildcard_listeners_have_every_address_of_the_host() {
    let check = |listener: &str, addr: &str| {
        at(&[], &[listener]).check(addr.parse().unwrap(), Transport::Datagram)
    };
    for addr in ["127.0.0.1:53", "127.9.9.9:53", "0.0.0.0:53"] {
        assert_eq!(check("0.0.0.0:53", addr), Err(Blocked::OwnListener), "{addr}");
        assert_eq!(check("[::]:53", addr), Err(Blocked::OwnListener), "{addr}");
    }
    for addr in ["[::1]:53", "[::]:53"] {
        assert_eq!(check("[::]:53", addr), Err(Blocked::OwnListener), "{addr}");
        assert_eq!(check("0.0.0.0:53", addr), Ok(()), "{addr}");
    }
    for addr in ["192.0.2.1:53", "[2001:db8::1]:53", "127.0.0.1:54"] {
        assert_eq!(check("[::]:53", addr), Ok(()), "{addr}");
        assert_eq!(check("0.0.0.0:53", addr), Ok(()), "{addr}");
    }
}

/// A group or a link-local address may lead back to us; at other ports they are the user's affair.
#[test]
fn groups_and_link_local_addresses_are_refused_at_our_ports() {
    let guard = at(&[], &["0.0.0.0:53", "[::]:54"]);
    let check = |addr: &str| guard.check(addr.parse().unwrap(), Transport::Datagram);
    for addr in [
        "224.0.0.1:53",
        "224.0.0.251:53",
        "239.255.255.255:53",
        "[ff01::1]:54",
        "[ff02::1]:54",
        "[ff05::1]:54",
        "[fe80::1]:54",
        "224.0.0.1:54",
    ] {
        assert_eq!(check(addr), Err(Blocked::OwnListener), "{addr}");
    }
    for addr in ["224.0.0.1:55", "[ff02::1]:53", "[fe80::1]:55", "[2001:db8::1]:54"] {
        assert_eq!(check(addr), Ok(()), "{addr}");
    }
}

#[test]
fn reasons_have_words() {
    for reason in [Blocked::Private, Blocked::OwnListener] {
        assert!(!reason.as_label().contains(' ') && !reason.to_string().is_empty());
    }
}
