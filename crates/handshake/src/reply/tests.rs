use super::*;
use crate::HttpFault;

const FAILURES: [Failure; 9] = [
    Failure::General,
    Failure::NotAllowed,
    Failure::NetworkUnreachable,
    Failure::HostUnreachable,
    Failure::NameNotFound,
    Failure::ConnectionRefused,
    Failure::TimedOut,
    Failure::CommandUnsupported,
    Failure::AddressFamily,
];

fn success(protocol: Protocol, bound: &str) -> Vec<u8> {
    let mut out = [0; REPLY_LEN_MAX];
    let len = protocol.success(bound.parse().unwrap(), &mut out);
    out[..len].to_vec()
}

fn failure(protocol: Protocol, kind: Failure) -> Vec<u8> {
    let mut out = [0; REPLY_LEN_MAX];
    let len = protocol.failure(kind, &mut out);
    out[..len].to_vec()
}

#[test]
fn words_success() {
    let v4 = "10.1.2.3:443";
    let mapped = "[::ffff:10.1.2.3]:443";
    let v6 = "[2001:db8::1]:443";
    let v6_octets = b"\x20\x01\x0d\xb8\0\0\0\0\0\0\0\0\0\0\0\x01";
    let cases: [(Protocol, &str, Vec<u8>); 9] = [
        (Protocol::Socks4, v4, vec![0, 0x5a, 1, 187, 10, 1, 2, 3]),
        (Protocol::Socks4, mapped, vec![0, 0x5a, 1, 187, 10, 1, 2, 3]),
        (Protocol::Socks4, v6, vec![0, 0x5a, 1, 187, 0, 0, 0, 0]),
        (Protocol::Socks5, v4, vec![5, 0, 0, 1, 10, 1, 2, 3, 1, 187]),
        (Protocol::Socks5, mapped, vec![5, 0, 0, 1, 10, 1, 2, 3, 1, 187]),
        (Protocol::Socks5, v6, [&[5, 0, 0, 4][..], v6_octets, &[1, 187]].concat()),
        (Protocol::HttpConnect, v4, b"HTTP/1.1 200 Connection established\r\n\r\n".to_vec()),
        (Protocol::HttpForward, v4, vec![]),
        (Protocol::HttpForwardHead, v4, vec![]),
    ];
    for (protocol, bound, answer) in cases {
        assert_eq!(success(protocol, bound), answer, "{protocol:?} {bound}");
    }
}

#[test]
fn words_failure_for_socks() {
    let reps = [1, 2, 3, 4, 4, 5, 4, 7, 8];
    for (kind, rep) in FAILURES.into_iter().zip(reps) {
        assert_eq!(failure(Protocol::Socks5, kind), [5, rep, 0, 1, 0, 0, 0, 0, 0, 0], "{kind:?}");
        assert_eq!(failure(Protocol::Socks4, kind), [0, 0x5b, 0, 0, 0, 0, 0, 0], "{kind:?}");
    }
}

#[test]
fn words_failure_for_http() {
    let head = "HTTP/1.1 403 Forbidden\r\nContent-Type: text/plain\r\nContent-Length: 43\r\n\
        Connection: close\r\n\r\n";
    let body = "The proxy does not allow this destination.\n";
    let whole = format!("{head}{body}").into_bytes();
    assert_eq!(body.len(), 43);
    assert_eq!(failure(Protocol::HttpConnect, Failure::NotAllowed), whole);
    assert_eq!(failure(Protocol::HttpForward, Failure::NotAllowed), whole);
    assert_eq!(failure(Protocol::HttpForwardHead, Failure::NotAllowed), head.as_bytes());
    let statuses = [502, 403, 502, 502, 502, 502, 504, 501, 502];
    for (kind, status) in FAILURES.into_iter().zip(statuses) {
        assert_complete_response(&failure(Protocol::HttpConnect, kind), status);
    }
}

/// Checks that a response has the status and the length it says.
pub(crate) fn assert_complete_response(response: &[u8], status: u16) {
    let text = std::str::from_utf8(response).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{text}");
    assert!(head.contains(&format!("\r\nContent-Length: {}\r\n", body.len())), "{text}");
    assert!(head.ends_with("\r\nConnection: close"), "{text}");
    assert!(body.ends_with(".\n") && body.lines().count() == 1, "{text}");
}

#[test]
fn longest_answer_fits() {
    let longest =
        FAILURES.into_iter().map(|kind| failure(Protocol::HttpForward, kind).len()).max().unwrap();
    let mut out = [0; REPLY_LEN_MAX];
    let mut refusal = Out::new(&mut out);
    refusal.http("431 Request Header Fields Too Large", &HttpFault::Control.to_string());
    assert!(longest.max(refusal.len()) <= REPLY_LEN_MAX / 2, "{longest} {}", refusal.len());
}

#[test]
#[should_panic(expected = "out holds at least REPLY_LEN_MAX bytes")]
fn panics_when_the_output_is_too_short() {
    Protocol::Socks4.failure(Failure::General, &mut [0; 8]);
}

#[test]
fn labels_are_distinct() {
    let mut labels = FAILURES.map(Failure::as_label).to_vec();
    labels.sort_unstable();
    labels.dedup();
    assert_eq!(labels.len(), FAILURES.len());
}
