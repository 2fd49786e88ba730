use crate::tests::{ALL, advance, refusal, request};
use crate::{Command, Handshake, Policy, Protocol, REPLY_LEN_MAX, Reason, Step};

const GREETING: &[u8] = &[5, 1, 0];

fn after_greeting(request: &[u8]) -> Vec<u8> {
    [GREETING, request].concat()
}

#[test]
fn chooses_no_authentication() {
    let most = [&[5, 255][..], &[0x80; 254], &[0]].concat();
    for greeting in [GREETING, &[5, 2, 2, 0], &[5, 3, 0, 1, 2], &[5, 2, 0, 0], &most] {
        for len in 0..greeting.len() {
            let (step, reply) = advance(ALL, &greeting[..len]);
            assert_eq!((step, reply), (Step::More { consumed: 0, reply: 0 }, vec![]));
        }
        let (step, reply) = advance(ALL, greeting);
        assert_eq!(step, Step::More { consumed: greeting.len(), reply: 2 });
        assert_eq!(reply, [5, 0]);
    }
}

#[test]
fn refuses_greetings_without_an_acceptable_method() {
    for greeting in [&[5, 0][..], &[5, 1, 0xff], &[5, 2, 1, 2], &[5, 1, 2]] {
        let refused = (Reason::NoMethod, greeting.len(), vec![5, 0xff]);
        assert_eq!(refusal(greeting), refused);
        assert_eq!(refusal(&[greeting, &[5, 1, 0]].concat()), refused);
    }
}

#[test]
fn reads_requests_behind_the_greeting() {
    let longest = [&[5, 1, 0, 3, 255][..], &[b'n'; 255], &[0, 80]].concat();
    let name = format!("{}:80", "n".repeat(255));
    let mapped = b"\x05\x01\0\x04\0\0\0\0\0\0\0\0\0\0\xff\xff\x7f\0\0\x01\0\x50";
    let cases: [(&[u8], Command, &str); 9] = [
        (b"\x05\x01\0\x01\x7f\0\0\x01\x01\xbb", Command::Connect, "127.0.0.1:443"),
        // RSV is not looked at.
        (b"\x05\x01\x01\x01\x7f\0\0\x01\x01\xbb", Command::Connect, "127.0.0.1:443"),
        (b"\x05\x01\0\x03\x09localhost\0\x50", Command::Connect, "localhost:80"),
        (b"\x05\x01\0\x03\x09127.0.0.1\0\x50", Command::Connect, "127.0.0.1:80"),
        (b"\x05\x01\0\x04\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01\0\x50", Command::Connect, "[::1]:80"),
        (mapped, Command::Connect, "127.0.0.1:80"),
        (b"\x05\x01\0\x01\xff\xff\xff\xff\0\0", Command::Connect, "255.255.255.255:0"),
        (b"\x05\x03\0\x01\0\0\0\0\0\0", Command::UdpAssociate, "0.0.0.0:0"),
        (&longest, Command::Connect, &name),
    ];
    for (input, command, target) in cases {
        let (request, reply) = request(&after_greeting(input));
        assert_eq!(request.target.target().to_string(), target);
        assert_eq!(request.command, command);
        assert_eq!(request.protocol, Protocol::Socks5);
        assert_eq!(reply, [5, 0]);
    }
}

#[test]
fn refuses_requests_with_ten_bytes() {
    let cases: [(&[u8], u8, Reason, usize); 13] = [
        (&[4, 1, 0, 1], 1, Reason::Version, 1),
        (&[1, 5], 1, Reason::Version, 1),
        // BIND and commands that do not exist.
        (b"\x05\x02\0\x01\0\0\0\0\0\0", 7, Reason::Command(2), 2),
        (&[5, 0], 7, Reason::Command(0), 2),
        (&[5, 4], 7, Reason::Command(4), 2),
        (&[5, 0xf0], 7, Reason::Command(0xf0), 2),
        (b"\x05\x01\0\x02\0\0\0\0\0\0", 8, Reason::AddressType(2), 4),
        (&[5, 1, 0, 0], 8, Reason::AddressType(0), 4),
        (&[5, 3, 0, 0x11], 8, Reason::AddressType(0x11), 4),
        (b"\x05\x01\0\x03\0\0\x50", 4, Reason::Name, 5),
        (b"\x05\x01\0\x03\x03\xff\xfe\xfd\0\x50", 4, Reason::Name, 10),
        (b"\x05\x01\0\x03\x03a\0b\0\x50", 4, Reason::Name, 10),
        (b"\x05\x01\0\x03\x03a b\0\x50payload", 4, Reason::Name, 10),
    ];
    for (input, rep, reason, consumed) in cases {
        let answer = vec![5, 0, 5, rep, 0, 1, 0, 0, 0, 0, 0, 0];
        assert_eq!(refusal(&after_greeting(input)), (reason, GREETING.len() + consumed, answer));
    }
}

#[test]
fn answers_one_byte_at_a_time() {
    let mut machine = Handshake::new(ALL);
    let mut out = [0; REPLY_LEN_MAX];
    for (len, expected) in [(1, (0, 0)), (2, (0, 0)), (3, (3, 2))] {
        let (consumed, reply) = expected;
        assert_eq!(machine.advance(&GREETING[..len], &mut out), Step::More { consumed, reply });
    }
    assert_eq!(out[..2], [5, 0]);
    let input = b"\x05\x01\0\x03\x01a\0\x50";
    for len in 0..input.len() {
        let step = machine.advance(&input[..len], &mut out);
        assert_eq!(step, Step::More { consumed: 0, reply: 0 });
    }
    let Step::Request(request) = machine.advance(input, &mut out) else { panic!("not a request") };
    assert_eq!((request.consumed, request.reply), (input.len(), 0));
}

#[test]
fn associates_only_where_udp_is_on() {
    let input = after_greeting(b"\x05\x03\0\x01\x7f\0\0\x01\x04\x38");
    let (request, _) = request(&input);
    assert_eq!(request.command, Command::UdpAssociate);
    assert_eq!(request.target.target().to_string(), "127.0.0.1:1080");

    let policy = Policy { udp: false, ..ALL };
    let (step, reply) = advance(policy, &input);
    let (consumed, reason) = (GREETING.len() + 2, Reason::UdpDisabled);
    assert_eq!(step, Step::Refuse { consumed, reply: 12, reason });
    assert_eq!(reply, [5, 0, 5, 7, 0, 1, 0, 0, 0, 0, 0, 0]);
    let connect = after_greeting(b"\x05\x01\0\x01\x7f\0\0\x01\x04\x38");
    assert!(matches!(advance(policy, &connect).0, Step::Request(_)));
}

#[test]
fn tells_where_the_relay_is() {
    let cases: [(&str, &[u8]); 3] = [
        ("192.0.2.1:5353", &[5, 0, 0, 1, 192, 0, 2, 1, 0x14, 0xe9]),
        ("[::ffff:192.0.2.1]:5353", &[5, 0, 0, 1, 192, 0, 2, 1, 0x14, 0xe9]),
        ("[::1]:1", &[5, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1]),
    ];
    for (bound, expected) in cases {
        let mut out = [0; REPLY_LEN_MAX];
        let len = Protocol::Socks5.success(bound.parse().unwrap(), &mut out);
        assert_eq!(out[..len], *expected);
    }
}
