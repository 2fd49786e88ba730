use std::net::{Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;

use super::*;

pub(crate) const ALL: Policy = Policy { socks4: true, socks5: true, http: true, udp: true };
const NONE: Policy = Policy { socks4: false, socks5: false, http: false, udp: false };

/// The step for a whole input with the bytes it answers.
pub(crate) fn advance(policy: Policy, input: &[u8]) -> (Step, Vec<u8>) {
    let mut out = [0xee; REPLY_LEN_MAX];
    let step = Handshake::new(policy).advance(input, &mut out);
    let reply = match step {
        Step::More { reply, .. } | Step::Refuse { reply, .. } => reply,
        Step::Request(request) => request.reply,
    };
    assert!(out[reply..].iter().all(|&b| b == 0xee), "wrote behind its answer");
    (step, out[..reply].to_vec())
}

/// Checks that `input` is a request of exactly its own length, whatever follows, that each of its
/// prefixes needs more, and gives the request with the answer sent before it.
#[track_caller]
pub(crate) fn request(input: &[u8]) -> (Request, Vec<u8>) {
    for len in 0..input.len() {
        let (step, _) = advance(ALL, &input[..len]);
        assert!(matches!(step, Step::More { .. }), "{step:?} after {len} bytes of {input:?}");
    }
    let (Step::Request(request), reply) = advance(ALL, input) else {
        panic!("{:?} for {input:?}", advance(ALL, input).0)
    };
    assert_eq!(request.consumed, input.len());
    let with_payload = [input, b"payload\0\r\n\r\n"].concat();
    assert_eq!(advance(ALL, &with_payload), (Step::Request(request), reply.clone()));
    (request, reply)
}

/// The reason `input` is refused for, with the count of consumed bytes and the answer.
#[track_caller]
pub(crate) fn refusal(input: &[u8]) -> (Reason, usize, Vec<u8>) {
    let (step, reply) = advance(ALL, input);
    let Step::Refuse { consumed, reason, .. } = step else { panic!("{step:?} for {input:?}") };
    for len in 0..consumed {
        let (step, _) = advance(ALL, &input[..len]);
        assert!(matches!(step, Step::More { .. }), "{step:?} after {len} bytes of {input:?}");
    }
    assert_eq!(advance(ALL, &input[..consumed]), (step, reply.clone()), "looked ahead");
    (reason, consumed, reply)
}

#[test]
fn state_is_small() {
    assert!(size_of::<Handshake>() <= 16, "{}", size_of::<Handshake>());
    assert!(size_of::<Body>() <= 24, "{}", size_of::<Body>());
}

#[test]
fn needs_more_of_nothing() {
    assert_eq!(advance(ALL, b""), (Step::More { consumed: 0, reply: 0 }, vec![]));
}

#[test]
fn refuses_other_protocols_without_an_answer() {
    for first in (0..=255_u8).filter(|b| !matches!(b, 4 | 5) && !b.is_ascii_alphabetic()) {
        for policy in [ALL, NONE] {
            let (step, reply) = advance(policy, &[first, 1, 0]);
            let reason = Reason::UnknownProtocol;
            assert_eq!(step, Step::Refuse { consumed: 1, reply: 0, reason });
            assert_eq!(reply, b"");
        }
    }
    // A TLS client hello is one of them.
    assert_eq!(refusal(&[0x16, 3, 1]).0, Reason::UnknownProtocol);
}

#[test]
fn refuses_disabled_protocols_in_their_own_words() {
    let http = b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nContent-Length: 33\r\n\
        Connection: close\r\n\r\nHTTP is not served on this port.\n";
    let cases: [(&[u8], Policy, &[u8]); 3] = [
        (
            &[4, 1, 0, 80, 1, 2, 3, 4, 0],
            Policy { socks4: false, ..ALL },
            &[0, 91, 0, 0, 0, 0, 0, 0],
        ),
        (&[5, 1, 0], Policy { socks5: false, ..ALL }, &[5, 0xff]),
        (b"GET http://a/ HTTP/1.1\r\n\r\n", Policy { http: false, ..ALL }, http),
    ];
    for (input, policy, answer) in cases {
        for policy in [policy, NONE] {
            let (step, reply) = advance(policy, input);
            let reason = Reason::ProtocolDisabled;
            assert_eq!(step, Step::Refuse { consumed: 1, reply: answer.len(), reason });
            assert_eq!(reply, answer);
        }
        assert!(matches!(advance(ALL, input).0, Step::Request(_) | Step::More { .. }));
    }
}

#[test]
#[should_panic(expected = "out holds at least REPLY_LEN_MAX bytes")]
fn panics_when_the_output_is_too_short() {
    Handshake::new(ALL).advance(b"", &mut [0; REPLY_LEN_MAX - 1]);
}

#[test]
#[should_panic(expected = "a finished handshake is not advanced")]
fn panics_when_advanced_after_the_end() {
    let mut machine = Handshake::new(ALL);
    let mut out = [0; REPLY_LEN_MAX];
    machine.advance(&[0], &mut out);
    machine.advance(&[0], &mut out);
}

#[test]
fn labels_are_distinct() {
    let reasons = [
        Reason::UnknownProtocol,
        Reason::ProtocolDisabled,
        Reason::NoMethod,
        Reason::Version,
        Reason::Command(2),
        Reason::UdpDisabled,
        Reason::AddressType(2),
        Reason::Name,
        Reason::UserId,
        Reason::Http(HttpFault::Framing),
    ];
    let mut labels: Vec<_> = reasons.iter().map(|r| r.as_label()).collect();
    labels.sort_unstable();
    labels.dedup();
    assert_eq!(labels.len(), reasons.len());
    assert_eq!(Reason::Command(2).to_string(), "command 0x02 is not served");
    assert_eq!(
        Reason::UdpDisabled.to_string(),
        "UDP ASSOCIATE refused: UDP is off (\"mode\": \"tcp_and_udp\" turns it on)"
    );
    assert_eq!(Reason::Http(HttpFault::Framing).to_string(), HttpFault::Framing.to_string());
}

/// Bytes near to valid handshakes, where junk alone would not go.
fn near_valid() -> impl Strategy<Value = Vec<u8>> {
    let addresses = prop_oneof![
        any::<Ipv4Addr>().prop_map(|ip| [&[1][..], &ip.octets()].concat()),
        any::<Ipv6Addr>().prop_map(|ip| [&[4][..], &ip.octets()].concat()),
        proptest::collection::vec(prop_oneof![b'a'..=b'z', any::<u8>()], 0..255)
            .prop_map(|name| { [&[3, u8::try_from(name.len()).unwrap()][..], &name].concat() }),
    ];
    let socks5 = (proptest::collection::vec(0..4_u8, 0..6), 0..5_u8, addresses).prop_map(
        |(methods, command, address)| {
            let count = u8::try_from(methods.len()).unwrap();
            [&[5, count][..], &methods, &[5, command, 0], &address, &[1, 187]].concat()
        },
    );
    let text = || proptest::collection::vec(prop_oneof![20 => 1..=255_u8, 1 => Just(0)], 0..300);
    let socks4 =
        (0..4_u8, 0..2_u8, 0..2_u8, text(), text()).prop_map(|(command, a, d, user, name)| {
            [&[4, command, 0, 80, a, 0, 0, d][..], &user, &[0], &name, &[0]].concat()
        });
    let lines = prop_oneof![
        Just("Host: b.example\r\n"),
        Just("Connection: x-a, te\r\n"),
        Just("X-A: 1\r\n"),
        Just("Content-Length: 5\r\n"),
        Just("Transfer-Encoding: chunked\r\n"),
        Just("Proxy-Authorization: Basic eDp5\r\n"),
        Just("close: x\r\n"),
        Just(" folded\r\n"),
        Just("A : b\r\n"),
        Just("Bare: lf\n"),
        "[A-Za-z-]{1,9}:[ -~\t]{0,20}\r\n".prop_map(|line| &*line.leak()),
    ];
    let first = prop_oneof![
        Just("CONNECT a.example:443 HTTP/1.1\r\n"),
        Just("CONNECT [::1]:443 HTTP/1.0\r\n"),
        Just("GET http://a.example/ HTTP/1.1\r\n"),
        Just("HEAD http://a?q HTTP/1.0\r\n"),
        Just("OPTIONS http://a:81 HTTP/1.1\r\n"),
        Just("POST /path HTTP/1.1\r\n"),
        "[A-Z]{1,7} [!-~]{1,30} HTTP/1.[01]\r\n".prop_map(|line| &*line.leak()),
    ];
    let http = (first, proptest::collection::vec(lines, 0..6))
        .prop_map(|(first, lines)| [first, &lines.concat(), "\r\n"].concat().into_bytes());
    (prop_oneof![socks5, socks4, http], proptest::collection::vec(any::<u8>(), 0..40))
        .prop_map(|(handshake, payload)| [handshake, payload].concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn split_does_not_matter(seed in any::<u8>(), bytes in near_valid()) {
        fuzz::handshake(&[&[0, seed][..], &bytes].concat());
    }

    #[test]
    fn damage_does_not_panic(
        seed in any::<[u8; 2]>(), mut bytes in near_valid(), at in any::<usize>(), with in any::<u8>(),
    ) {
        let at = at % bytes.len();
        bytes[at] = with;
        fuzz::handshake(&[&seed[..], &bytes].concat());
        fuzz::forward(&[&seed[..], &bytes].concat());
        // Behind a greeting the request is a datagram's header but for the first bytes.
        let from = bytes.len().min(seed[0].into());
        fuzz::udp(&[&UDP_HEADER_PREFIX[..], &bytes[from..]].concat());
    }

    #[test]
    fn junk_does_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        fuzz::handshake(&bytes);
        fuzz::forward(&bytes);
        fuzz::udp(&bytes);
        fuzz::udp(&[&UDP_HEADER_PREFIX[..], &bytes].concat());
    }

    #[test]
    fn single_bytes_give_what_the_whole_gives(bytes in near_valid()) {
        let (whole, whole_reply) = advance(ALL, &bytes);
        let mut machine = Handshake::new(ALL);
        let mut out = [0; REPLY_LEN_MAX];
        let (mut start, mut replies) = (0, Vec::new());
        for end in 1..=bytes.len() {
            let (consumed, reply, done) = match machine.advance(&bytes[start..end], &mut out) {
                Step::More { consumed, reply } => (consumed, reply, false),
                Step::Request(r) => (r.consumed, r.reply, true),
                Step::Refuse { consumed, reply, .. } => (consumed, reply, true),
            };
            start += consumed;
            replies.extend_from_slice(&out[..reply]);
            if done {
                break;
            }
        }
        let consumed = match whole {
            Step::More { consumed, .. } | Step::Refuse { consumed, .. } => consumed,
            Step::Request(request) => request.consumed,
        };
        prop_assert_eq!(start, consumed);
        prop_assert_eq!(replies, whole_reply);
    }
}
