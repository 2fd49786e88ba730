use super::*;
use crate::reply::tests::assert_complete_response;
use crate::tests::{ALL, advance, refusal, request};
use crate::{Body, Request, Step};

#[track_caller]
fn accepted(text: &str) -> Request {
    let (request, reply) = request(text.as_bytes());
    assert_eq!(reply, b"");
    request
}

#[track_caller]
fn refused(input: &[u8]) -> (HttpFault, usize) {
    let (reason, consumed, reply) = refusal(input);
    let Reason::Http(fault) = reason else { panic!("{reason:?}") };
    assert_complete_response(&reply, fault.status()[..3].parse().unwrap());
    assert!(reply.ends_with(format!("{fault}\n").as_bytes()));
    (fault, consumed)
}

/// Checks the fault of a request line, and that it is told when that line ends.
#[track_caller]
fn refuses_line(line: &str, fault: HttpFault) {
    let input = format!("{line}\r\nHost: a\r\n\r\n");
    assert_eq!(refused(input.as_bytes()), (fault, line.len() + 2), "{line}");
}

#[test]
fn reads_connect() {
    let cases = [
        ("CONNECT a.example:443 HTTP/1.1\r\nHost: a.example:443\r\n\r\n", "a.example:443"),
        ("CONNECT a.example:443 HTTP/1.1\r\n\r\n", "a.example:443"),
        ("CONNECT a.example:443 HTTP/1.0\r\nUser-Agent: x\r\n\r\n", "a.example:443"),
        ("CONNECT 10.0.0.1:22 HTTP/1.1\r\n\r\n", "10.0.0.1:22"),
        ("CONNECT [2001:db8::1]:8443 HTTP/1.1\r\n\r\n", "[2001:db8::1]:8443"),
        ("CONNECT [::ffff:10.0.0.1]:80 HTTP/1.1\r\n\r\n", "10.0.0.1:80"),
        ("CONNECT a_b.example:00443 HTTP/1.1\r\n\r\n", "a_b.example:443"),
        ("CONNECT a:65535 HTTP/1.1\r\nHost: other\r\n\r\n", "a:65535"),
        ("CONNECT a:1 HTTP/1.1\r\nContent-Length: 0\r\nProxy-Connection: x\r\n\r\n", "a:1"),
        ("CONNECT a:1 HTTP/1.1\r\nProxy-Authorization: Basic eDp5\r\n\r\n", "a:1"),
        ("CONNECT a:1 HTTP/1.1\r\nX:\r\nY: \t\r\nZ: caf\u{e9}\r\n\r\n", "a:1"),
    ];
    for (text, target) in cases {
        let request = accepted(text);
        assert_eq!(request.target.target().to_string(), target);
        assert_eq!(request.command, Command::Connect);
        assert_eq!(request.protocol, Protocol::HttpConnect);
    }
}

#[test]
fn reads_requests_to_forward() {
    let cases = [
        ("GET http://a.example/x HTTP/1.1\r\nHost: a.example\r\n\r\n", "a.example:80"),
        ("GET http://a.example HTTP/1.1\r\n\r\n", "a.example:80"),
        ("GET http://a.example?q=http://b/ HTTP/1.1\r\n\r\n", "a.example:80"),
        ("GET HTTP://a.example:8080/ HTTP/1.0\r\nHost: other\r\n\r\n", "a.example:8080"),
        ("GET http://a.example:/ HTTP/1.1\r\n\r\n", "a.example:80"),
        ("GET http://[::1]/ HTTP/1.1\r\n\r\n", "[::1]:80"),
        ("GET http://[::1]:81/a@b:c HTTP/1.1\r\n\r\n", "[::1]:81"),
        ("GET /x HTTP/1.1\r\nHost: a.example:81\r\n\r\n", "a.example:81"),
        ("GET / HTTP/1.0\r\nhOST:\t a.example \r\n\r\n", "a.example:80"),
        ("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", "a:80"),
        ("OPTIONS http://a HTTP/1.1\r\n\r\n", "a:80"),
        ("M-SEARCH http://a/ HTTP/1.1\r\n\r\n", "a:80"),
        ("get http://a/ HTTP/1.1\r\n\r\n", "a:80"),
    ];
    for (text, target) in cases {
        let request = accepted(text);
        assert_eq!(request.target.target().to_string(), target);
        let forward = Forward { head_len: text.len(), body: Body::None };
        assert_eq!(request.command, Command::Forward(forward));
        assert_eq!(request.protocol, Protocol::HttpForward);
    }
    let head = accepted("HEAD http://a/ HTTP/1.1\r\n\r\n");
    assert_eq!(head.protocol, Protocol::HttpForwardHead);
}

#[test]
fn reads_body_framing() {
    let cases = [
        ("Content-Length: 0\r\n", Body::Length(0)),
        ("content-length:18446744073709551615\r\n", Body::Length(u64::MAX)),
        ("Transfer-Encoding: chunked\r\n", Body::chunked()),
        ("TRANSFER-ENCODING: Chunked\r\nExpect: 100-continue\r\n", Body::chunked()),
    ];
    for (fields, body) in cases {
        let text = format!("POST http://a/ HTTP/1.1\r\n{fields}\r\n");
        let forward = Forward { head_len: text.len(), body };
        assert_eq!(accepted(&text).command, Command::Forward(forward), "{fields}");
    }
}

#[test]
fn refuses_malformed_request_lines() {
    use HttpFault::{Authority, RequestLine, Scheme, UserInfo, Version};
    let cases = [
        ("SSH-2.0-OpenSSH_9.9", RequestLine),
        ("GET", RequestLine),
        ("GET http://a/", RequestLine),
        ("GET  http://a/ HTTP/1.1", RequestLine),
        ("GET http://a/ HTTP/1.1 ", RequestLine),
        ("GET http://a/ b HTTP/1.1", RequestLine),
        ("GET http://a/\tb HTTP/1.1", RequestLine),
        ("GET\thttp://a/ HTTP/1.1", RequestLine),
        ("G(T http://a/ HTTP/1.1", RequestLine),
        ("GET http://a/#f HTTP/1.1", RequestLine),
        ("GET a.example HTTP/1.1", RequestLine),
        ("GET http:/a HTTP/1.1", RequestLine),
        ("GET * HTTP/1.1", RequestLine),
        ("GET http://a/ http/1.1", RequestLine),
        ("GET http://a/ HTTP/1.10", RequestLine),
        ("GET http://a/ HTTP/2.0", Version),
        ("PRI * HTTP/2.0", Version),
        ("GET http://a/ HTTP/1.2", Version),
        ("GET http://a/ HTTP/0.9", Version),
        ("GET https://a/ HTTP/1.1", Scheme),
        ("GET ftp://a/ HTTP/1.1", Scheme),
        ("GET http:///x HTTP/1.1", Authority),
        ("GET http://:80/ HTTP/1.1", Authority),
        ("GET http://a:0/ HTTP/1.1", Authority),
        ("GET http://a:65536/ HTTP/1.1", Authority),
        ("GET http://a:+80/ HTTP/1.1", Authority),
        ("GET http://a:8:0/ HTTP/1.1", Authority),
        ("GET http://a%2e/ HTTP/1.1", Authority),
        ("GET http://a\\b/ HTTP/1.1", Authority),
        ("GET http://[::1/ HTTP/1.1", Authority),
        ("GET http://[::1]x/ HTTP/1.1", Authority),
        ("GET http://[1.2.3.4]/ HTTP/1.1", Authority),
        ("GET http://::1/ HTTP/1.1", Authority),
        ("GET http://user@a/ HTTP/1.1", UserInfo),
        ("GET http://user:pw@a:80/ HTTP/1.1", UserInfo),
        ("CONNECT a.example HTTP/1.1", Authority),
        ("CONNECT a.example: HTTP/1.1", Authority),
        ("CONNECT [::1] HTTP/1.1", Authority),
        ("CONNECT :443 HTTP/1.1", Authority),
        ("CONNECT ::1:443 HTTP/1.1", Authority),
        ("CONNECT u@a:443 HTTP/1.1", UserInfo),
        ("CONNECT http://a:443/ HTTP/1.1", Authority),
        ("CONNECT /x HTTP/1.1", Authority),
        ("connect a:443 HTTP/1.1", RequestLine),
    ];
    for (line, fault) in cases {
        refuses_line(line, fault);
    }
    let long = format!("CONNECT {}:443 HTTP/1.1", "a".repeat(256));
    refuses_line(&long, Authority);
}

#[test]
fn refuses_malformed_fields() {
    use HttpFault::{Authority, ConnectionOptions, Field, HostMissing, HostRepeated, UserInfo};
    let most = format!("Connection: {}\r\n", "a,".repeat(32));
    let too_many = format!("Connection: {}\r\n", "a,".repeat(33));
    let cases = [
        ("http://a/", " folded: x\r\n", Field),
        ("http://a/", "X: a\r\n\tfolded\r\n", Field),
        ("http://a/", "X : a\r\n", Field),
        ("http://a/", "X\r\n", Field),
        ("http://a/", ": x\r\n", Field),
        ("http://a/", "X(: x\r\n", Field),
        ("http://a/", "Content-Length : 5\r\n", Field),
        ("/", "", HostMissing),
        ("/", "Host:\r\n", Authority),
        ("/", "Host: a b\r\n", Authority),
        ("/", "Host: a/b\r\n", Authority),
        ("/", "Host: a, b\r\n", Authority),
        ("/", "Host: u@a\r\n", UserInfo),
        ("/", "Host: a\r\nHost: a\r\n", HostRepeated),
        ("http://a/", "Host: a\r\nhost: b\r\n", HostRepeated),
        ("http://a/", &too_many, ConnectionOptions),
    ];
    for (target, fields, fault) in cases {
        let text = format!("POST {target} HTTP/1.1\r\n{fields}\r\n");
        assert_eq!(refused(text.as_bytes()), (fault, text.len()), "{text}");
    }
    accepted(&format!("GET http://a/ HTTP/1.1\r\n{most}\r\n"));
}

#[test]
fn refuses_ambiguous_framing() {
    use HttpFault::{Framing, TransferCoding};
    let cases = [
        ("Content-Length:\r\n", Framing),
        ("Content-Length: -1\r\n", Framing),
        ("Content-Length: +1\r\n", Framing),
        ("Content-Length: 0x5\r\n", Framing),
        ("Content-Length: 5 5\r\n", Framing),
        ("Content-Length: 5, 5\r\n", Framing),
        ("Content-Length: 18446744073709551616\r\n", Framing),
        ("Content-Length: 5\r\nContent-Length: 5\r\n", Framing),
        ("Content-Length: 5\r\nContent-Length: 6\r\n", Framing),
        ("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", Framing),
        ("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", Framing),
        ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", Framing),
        ("Transfer-Encoding: gzip, chunked\r\n", TransferCoding),
        ("Transfer-Encoding: xchunked\r\n", TransferCoding),
        ("Transfer-Encoding: identity\r\n", TransferCoding),
        ("Transfer-Encoding:\r\n", TransferCoding),
    ];
    for (fields, fault) in cases {
        let text = format!("POST http://a/ HTTP/1.1\r\n{fields}\r\n");
        assert_eq!(refused(text.as_bytes()), (fault, text.len()), "{text}");
    }
    let old = "POST http://a/ HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert_eq!(refused(old.as_bytes()).0, Framing);
}

#[test]
fn refuses_connect_with_a_body() {
    for field in ["Content-Length: 1", "Transfer-Encoding: chunked"] {
        let text = format!("CONNECT a:443 HTTP/1.1\r\n{field}\r\n\r\n");
        assert_eq!(refused(text.as_bytes()).0, HttpFault::ConnectBody);
    }
    let both = "CONNECT a:1 HTTP/1.1\r\nContent-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert_eq!(refused(both.as_bytes()).0, HttpFault::Framing);
}

#[test]
fn refuses_control_bytes_at_once() {
    let cases: [(&[u8], usize); 9] = [
        (b"GET http://a/ HTTP/1.1\n\n", 23),
        (b"GET http://a/ HTTP/1.1\r\nHost: a\n\r\n", 32),
        (b"GET http://a/ HTTP/1.1\r\nHost: a\r\n\n", 34),
        (b"GET http://a/ HTTP/1.1\rX", 24),
        (b"GET http://a/ HTTP/1.1\r\r\n", 24),
        (b"GET http://a/ HTTP/1.1\r\nX: a\rb\r\n\r\n", 30),
        (b"G\0", 2),
        (b"GET http://a/ HTTP/1.1\r\nX: a\0b\r\n\r\n", 29),
        (b"GET /\x7f", 6),
    ];
    for (input, consumed) in cases {
        assert_eq!(refused(input), (HttpFault::Control, consumed));
    }
}

#[test]
fn bounds_the_head() {
    let first = "GET http://a/ HTTP/1.1\r\nX: ";
    let padding = HEAD_LEN_MAX - first.len() - 4;
    let longest = format!("{first}{}\r\n\r\n", "x".repeat(padding));
    assert_eq!(longest.len(), HEAD_LEN_MAX);
    assert!(matches!(advance(ALL, longest.as_bytes()).0, Step::Request(_)));
    let (step, _) = advance(ALL, &longest.as_bytes()[..HEAD_LEN_MAX - 1]);
    assert_eq!(step, Step::More { consumed: 0, reply: 0 });

    let longer = format!("{first}{}\r\n\r\n", "x".repeat(padding + 1));
    let endless = vec![b'A'; 3 * HEAD_LEN_MAX];
    for input in [longer.as_bytes(), &endless] {
        let (step, reply) = advance(ALL, input);
        let reason = Reason::Http(HttpFault::HeadTooLong);
        assert_eq!(step, Step::Refuse { consumed: HEAD_LEN_MAX, reply: reply.len(), reason });
        assert_complete_response(&reply, 431);
    }
}

#[test]
fn tells_https_users_what_to_do() {
    let (_, _, reply) = refusal(b"GET https://a/ HTTP/1.1\r\n\r\n");
    let text = "HTTP/1.1 501 Not Implemented\r\nContent-Type: text/plain\r\nContent-Length: 64\r\n\
        Connection: close\r\n\r\n\
        Only http:// targets are forwarded; use CONNECT for all others.\n";
    assert_eq!(reply, text.as_bytes());
}

#[test]
fn names_no_credentials_in_debug() {
    let text = b"GET http://a/ HTTP/1.1\r\nProxy-Authorization: Basic c2VjcmV0\r\n\r\n";
    assert!(!format!("{:?}", advance(ALL, text).0).contains("c2VjcmV0"));
}
