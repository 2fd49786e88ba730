use proptest::prelude::*;
use serde_json::Value;

use super::*;

const VECTORS: &str =
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/vectors/shadowsocks.json"));

fn cases(name: &str) -> Vec<Value> {
    let mut file: Value = serde_json::from_str(VECTORS).unwrap();
    let Value::Array(cases) = file[name].take() else { panic!("no list of vectors named {name}") };
    assert!(!cases.is_empty());
    cases
}

fn hex(case: &Value) -> Vec<u8> {
    let text = case["hex"].as_str().unwrap();
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap())
        .collect()
}

fn domain(name: &[u8], port: u16) -> Vec<u8> {
    let len = u8::try_from(name.len()).unwrap();
    [&[ATYP_DOMAIN, len], name, &port.to_be_bytes()].concat()
}

#[track_caller]
fn parsed(bytes: &[u8]) -> Target<'_> {
    let (target, used) = Target::parse(bytes).unwrap();
    assert_eq!(used, bytes.len());
    target
}

#[test]
fn parses_and_encodes_every_address_vector() {
    for case in cases("address") {
        let bytes = hex(&case);
        let text = case["text"].as_str().unwrap();
        let target = parsed(&bytes);
        match text.strip_suffix(" : 65535") {
            Some(_) => {
                assert_eq!(target, Target { host: Host::Name(&"a".repeat(255)), port: 65535 });
                assert_eq!(bytes.len(), TARGET_LEN_MAX);
            }
            None => assert_eq!(target.to_string(), text),
        }
        let mut out = [0; TARGET_LEN_MAX];
        let len = target.encode(&mut out);
        assert_eq!(out[..len], bytes, "{text}");
        assert_eq!(TargetBuf::from(target).as_bytes(), bytes);
        let followed = [bytes.as_slice(), b"payload"].concat();
        assert_eq!(Target::parse(&followed), Ok((target, bytes.len())));
        fuzz::address(&followed);
    }
}

#[test]
fn refuses_every_invalid_vector() {
    for case in cases("address_invalid") {
        let bytes = hex(&case);
        let why = case["why"].as_str().unwrap();
        let expected = match bytes.as_slice() {
            [t @ (0 | 2 | 0x11), ..] => AddressError::AddressType(*t),
            [3, 0, ..] => AddressError::EmptyName,
            _ => AddressError::Incomplete,
        };
        assert_eq!(Target::parse(&bytes), Err(expected), "{why}");
        fuzz::address(&bytes);
    }
}

#[test]
fn prefixes_are_incomplete() {
    for bytes in [
        vec![1, 192, 0, 2, 1, 1, 187],
        domain(b"example.com", 443),
        domain(&[b'a'; 255], 0),
        [&[4][..], &[0x20; 16], &[0, 80]].concat(),
    ] {
        for len in 0..bytes.len() {
            assert_eq!(Target::parse(&bytes[..len]), Err(AddressError::Incomplete), "{len}");
        }
        assert!(Target::parse(&bytes).is_ok());
    }
}

#[test]
fn every_other_address_type_is_refused_whatever_follows() {
    for atyp in (0..=255_u8).filter(|t| ![ATYP_IPV4, ATYP_DOMAIN, ATYP_IPV6].contains(t)) {
        for len in [1, 7, 300] {
            let bytes = vec![atyp; len];
            assert_eq!(Target::parse(&bytes), Err(AddressError::AddressType(atyp)));
        }
    }
}

#[test]
fn ipv4_mapped_addresses_become_ipv4() {
    let mapped = "::ffff:192.0.2.1".parse::<Ipv6Addr>().unwrap();
    let wire = [&[ATYP_IPV6][..], &mapped.octets(), &[0, 80]].concat();
    let expected = Target { host: Host::Ip([192, 0, 2, 1].into()), port: 80 };
    assert_eq!(parsed(&wire), expected);
    assert_eq!(TargetBuf::from(expected).as_bytes(), [1, 192, 0, 2, 1, 0, 80]);
    assert_eq!(Target::from(SocketAddr::new(mapped.into(), 80)), expected);
    assert_eq!(unmapped(mapped.into()), IpAddr::from([192, 0, 2, 1]));
    // Only the mapped prefix means an IPv4 address.
    for other in ["::192.0.2.1", "64:ff9b::192.0.2.1", "::1", "::"] {
        let ip: IpAddr = other.parse().unwrap();
        assert_eq!(unmapped(ip), ip);
    }
}

#[test]
fn ip_literals_in_names_become_addresses() {
    for (name, ip) in [
        ("127.0.0.1", "127.0.0.1"),
        ("::1", "::1"),
        ("[::1]", "::1"),
        ("2001:db8::1", "2001:db8::1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("[::ffff:10.0.0.1]", "10.0.0.1"),
        ("0:0:0:0:0:ffff:a00:1", "10.0.0.1"),
    ] {
        let ip: IpAddr = ip.parse().unwrap();
        let wire = domain(name.as_bytes(), 53);
        assert_eq!(parsed(&wire), Target { host: Host::Ip(ip), port: 53 }, "{name}");
    }
    // These only look like addresses; resolving them is not this crate's business.
    for name in ["127.1", "0x7f.0.0.1", "1.2.3.4.5", "256.0.0.1", "1.2.3.4."] {
        assert_eq!(parsed(&domain(name.as_bytes(), 1)).host, Host::Name(name));
    }
}

#[test]
fn names_with_bytes_that_no_name_has_are_refused() {
    for name in [
        &b"a b"[..],
        b" ",
        b"a\0b",
        b"a\nb",
        b"a\r\nHost: b",
        b"\x7f",
        b"a\tb",
        b"\xff",
        b"a\xc0\x80",
        "a\u{a0}b".as_bytes(),
        "a\u{2028}b".as_bytes(),
        b"[]",
        b"[example.com]",
        b"[1.2.3.4]",
        b"[[::1]]",
    ] {
        let error = Err(AddressError::NameBytes);
        assert_eq!(Target::parse(&domain(name, 80)).map(|_| ()), error, "{name:?}");
        assert_eq!(Host::parse(name).map(|_| ()), error, "{name:?}");
    }
    assert_eq!(Host::parse(b""), Err(AddressError::EmptyName));
    assert_eq!(Host::parse(&[b'a'; 256]), Err(AddressError::NameBytes));
    // A lone bracket is odd but harmless: no resolver finds it.
    assert_eq!(Host::parse(b"[::1"), Ok(Host::Name("[::1")));
    assert_eq!(Host::parse("пример.рф".as_bytes()), Ok(Host::Name("пример.рф")));
}

#[test]
fn a_bad_name_waits_for_its_port() {
    // A refusal after fewer bytes would tell a prober where the parser looked.
    let wire = domain(b"a b", 80);
    assert_eq!(Target::parse(&wire[..wire.len() - 1]), Err(AddressError::Incomplete));
    assert_eq!(Target::parse(&wire), Err(AddressError::NameBytes));
}

#[test]
fn displays_as_host_and_port() {
    for (text, wire) in [
        ("192.0.2.1:443", vec![1, 192, 0, 2, 1, 1, 187]),
        ("[::1]:80", [&[4][..], &Ipv6Addr::LOCALHOST.octets(), &[0, 80]].concat()),
        ("example.com:0", domain(b"example.com", 0)),
    ] {
        let target = parsed(&wire);
        assert_eq!(target.to_string(), text);
        assert_eq!(format!("{:?}", TargetBuf::from(target)), format!("{target:?}"));
    }
}

#[test]
fn errors_have_labels_and_texts_of_their_own() {
    let errors = [
        AddressError::Incomplete,
        AddressError::AddressType(16),
        AddressError::EmptyName,
        AddressError::NameBytes,
    ];
    for (i, error) in errors.iter().enumerate() {
        for other in &errors[..i] {
            assert_ne!(error.as_label(), other.as_label());
            assert_ne!(error.to_string(), other.to_string());
        }
    }
    assert_eq!(AddressError::AddressType(16).to_string(), "unknown address type 0x10");
}

#[test]
#[should_panic(expected = "range end index 7 out of range")]
fn a_short_buffer_is_caller_misuse() {
    Target::from(SocketAddr::from(([1, 2, 3, 4], 5))).encode(&mut [0; 6]);
}

fn target() -> impl Strategy<Value = (Host<'static>, u16)> {
    let ip = prop_oneof![
        any::<[u8; 4]>().prop_map(IpAddr::from),
        any::<[u8; 16]>().prop_map(IpAddr::from),
    ];
    let host = prop_oneof![
        ip.prop_map(|ip| Host::Ip(unmapped(ip))),
        "[a-z0-9.-]{1,254}x".prop_map(|name| Host::Name(name.leak())),
    ];
    (host, any::<u16>())
}

proptest! {
    #[test]
    fn round_trips((host, port) in target(), behind: [u8; 3]) {
        let target = Target { host, port };
        let owned = TargetBuf::from(target);
        prop_assert_eq!(owned.target(), target);
        fuzz::address(&[owned.as_bytes(), &behind].concat());
    }

    #[test]
    fn holds_for_any_bytes(mut bytes in prop::collection::vec(any::<u8>(), 0..300), atyp in 0..6_u8) {
        fuzz::address(&bytes);
        if let Some(first) = bytes.first_mut() {
            *first = atyp;
        }
        fuzz::address(&bytes);
    }

    #[test]
    fn holds_for_any_text(text in "\\PC{0,40}|[0-9a-f:.\\[\\]]{0,40}") {
        fuzz::address(text.as_bytes());
        if (1..256).contains(&text.len()) {
            fuzz::address(&domain(text.as_bytes(), 1));
        }
    }
}
