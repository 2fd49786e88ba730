use crate::tests::{refusal, request};
use crate::{Command, Protocol, Reason};

const REJECTED: [u8; 8] = [0, 0x5b, 0, 0, 0, 0, 0, 0];

#[test]
fn reads_requests() {
    let longest = [&[4, 1, 0, 80, 10, 0, 0, 1][..], &[b'u'; 255], &[0]].concat();
    let longest_name =
        [&[4, 1, 0, 80, 0, 0, 0, 255][..], &[b'u'; 255], &[0], &[b'n'; 255], &[0]].concat();
    let name = format!("{}:80", "n".repeat(255));
    let cases: [(&[u8], &str); 10] = [
        (b"\x04\x01\x01\xbb\x7f\0\0\x01\0", "127.0.0.1:443"),
        (b"\x04\x01\x01\xbb\x7f\0\0\x01bob\0", "127.0.0.1:443"),
        (b"\x04\x01\x01\xbb\x7f\0\0\x01\xff\xfe\0", "127.0.0.1:443"),
        (b"\x04\x01\0\x50\0\0\0\x01u\0localhost\0", "localhost:80"),
        (b"\x04\x01\0\x50\0\0\0\x01\x00127.0.0.1\0", "127.0.0.1:80"),
        (b"\x04\x01\0\x50\0\0\0\x01\0::1\0", "[::1]:80"),
        // 0.0.0.0 is an address, and so is anything with another byte set.
        (b"\x04\x01\0\0\0\0\0\0\0", "0.0.0.0:0"),
        (b"\x04\x01\0\x50\0\0\x01\x01\0", "0.0.1.1:80"),
        (&longest, "10.0.0.1:80"),
        (&longest_name, &name),
    ];
    for (input, target) in cases {
        let (request, reply) = request(input);
        assert_eq!(request.target.target().to_string(), target);
        assert_eq!(request.command, Command::Connect);
        assert_eq!(request.protocol, Protocol::Socks4);
        assert_eq!(reply, b"");
    }
}

#[test]
fn rejects_with_eight_bytes() {
    let user = [&[4, 1, 0, 80, 10, 0, 0, 1][..], &[b'u'; 256], &[0]].concat();
    let name = [&[4, 1, 0, 80, 0, 0, 0, 1][..], b"u\0", &[0xff; 300]].concat();
    let cases: [(&[u8], Reason, usize); 9] = [
        (b"\x04\x00", Reason::Command(0), 2),
        (b"\x04\x02\x01\xbb\x7f\0\0\x01\0", Reason::Command(2), 2),
        (b"\x04\x03\x01\xbb\x7f\0\0\x01\0", Reason::Command(3), 2),
        (b"\x04\xff", Reason::Command(255), 2),
        (&user, Reason::UserId, 8 + 256),
        (&name, Reason::Name, 10 + 256),
        (b"\x04\x01\0\x50\0\0\0\x01\0\0", Reason::Name, 10),
        (b"\x04\x01\0\x50\0\0\0\x01\0a b\0", Reason::Name, 13),
        (b"\x04\x01\0\x50\0\0\0\x01\0\xff\xfe\0", Reason::Name, 12),
    ];
    for (input, reason, consumed) in cases {
        assert_eq!(refusal(input), (reason, consumed, REJECTED.to_vec()));
    }
}
