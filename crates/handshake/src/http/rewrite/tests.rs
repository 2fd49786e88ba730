use super::*;

#[expect(clippy::unwrap_in_result, reason = "the error is the one under test")]
fn rewrite(head: &str) -> Result<String, HttpFault> {
    let mut out = vec![0; head.len() + REWRITE_GROWTH_MAX];
    let len = rewrite_head(head.as_bytes(), &mut out)?;
    out.truncate(len);
    Ok(String::from_utf8(out).expect("the cases here are UTF-8"))
}

#[test]
fn rewrites_targets() {
    let cases = [
        ("GET http://a.example/x?y=z HTTP/1.1", "GET /x?y=z HTTP/1.1", "a.example"),
        ("GET http://a.example HTTP/1.1", "GET / HTTP/1.1", "a.example"),
        ("GET http://a.example?q HTTP/1.1", "GET /?q HTTP/1.1", "a.example"),
        ("PUT HTTP://a.example:81/ HTTP/1.0", "PUT / HTTP/1.0", "a.example:81"),
        ("GET http://[::1]:81//x HTTP/1.1", "GET //x HTTP/1.1", "[::1]:81"),
        ("OPTIONS http://a HTTP/1.1", "OPTIONS * HTTP/1.1", "a"),
        ("OPTIONS http://a/ HTTP/1.1", "OPTIONS / HTTP/1.1", "a"),
        ("OPTIONS http://a?q HTTP/1.1", "OPTIONS /?q HTTP/1.1", "a"),
        ("brew http://a/ HTTP/1.1", "brew / HTTP/1.1", "a"),
    ];
    for (line, rewritten, host) in cases {
        for own_host in ["", "Host: other.example\r\n"] {
            let head = format!("{line}\r\n{own_host}Accept: */*\r\n\r\n");
            let expected =
                format!("{rewritten}\r\nHost: {host}\r\nAccept: */*\r\nConnection: close\r\n\r\n");
            assert_eq!(rewrite(&head).unwrap(), expected);
        }
    }
}

#[test]
fn keeps_host_of_origin_form() {
    for line in ["GET /x HTTP/1.1", "OPTIONS * HTTP/1.1"] {
        let head = format!("{line}\r\nA: b\r\nHOST:  a.example:81\r\n\r\n");
        let expected =
            format!("{line}\r\nA: b\r\nHOST:  a.example:81\r\nConnection: close\r\n\r\n");
        assert_eq!(rewrite(&head).unwrap(), expected);
    }
}

#[test]
fn drops_what_ends_at_the_proxy() {
    let head = "POST http://a/ HTTP/1.1\r\n\
        X-Keep: 1\r\n\
        Connection: keep-alive, X-Named ,,\r\n\
        x-named: 2\r\n\
        PROXY-CONNECTION: keep-alive\r\n\
        Keep-Alive: timeout=5\r\n\
        Proxy-Authenticate: Basic\r\n\
        Proxy-Authorization: Basic c2VjcmV0\r\n\
        TE: trailers\r\n\
        Upgrade: websocket\r\n\
        X-Also: 3\r\n\
        connection: x-also\r\n\
        Authorization: Basic b3JpZ2lu\r\n\
        Expect: 100-continue\r\n\
        Trailer: X-T\r\n\
        Transfer-Encoding: chunked\r\n\r\n";
    let expected = "POST / HTTP/1.1\r\n\
        Host: a\r\n\
        X-Keep: 1\r\n\
        Authorization: Basic b3JpZ2lu\r\n\
        Expect: 100-continue\r\n\
        Trailer: X-T\r\n\
        Transfer-Encoding: chunked\r\n\
        Connection: close\r\n\r\n";
    assert_eq!(rewrite(head).unwrap(), expected);
}

#[test]
fn never_drops_framing_or_host() {
    let head = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\
        Connection: content-length, host, transfer-encoding\r\n\r\n";
    let expected = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nConnection: close\r\n\r\n";
    assert_eq!(rewrite(head).unwrap(), expected);
}

#[test]
fn passes_values_byte_for_byte() {
    let head = b"GET / HTTP/1.1\r\nHost: a\r\nX:  \xff\xfe\t \r\n\r\n";
    let mut out = vec![0; head.len() + REWRITE_GROWTH_MAX];
    let len = rewrite_head(head, &mut out).unwrap();
    let expected = b"GET / HTTP/1.1\r\nHost: a\r\nX:  \xff\xfe\t \r\nConnection: close\r\n\r\n";
    assert_eq!(out[..len], expected[..]);
}

#[test]
fn grows_no_more_than_it_says() {
    for head in [
        "GET http://a HTTP/1.1\r\n\r\n",
        "GET http://a?b HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1\r\nHost:a\r\n\r\n",
    ] {
        let grown = rewrite(head).unwrap().len() - head.len();
        assert!(grown <= 21, "{grown}");
    }
    const { assert!(REWRITE_GROWTH_MAX >= 21) };
}

#[test]
fn refuses_what_is_not_one_head() {
    let cases = [
        ("", HttpFault::NotForwardable),
        ("GET / HTTP/1.1\r\nHost: a\r\n", HttpFault::NotForwardable),
        ("GET / HTTP/1.1\r\nHost: a\r\n\r\nx", HttpFault::NotForwardable),
        ("CONNECT a:443 HTTP/1.1\r\n\r\n", HttpFault::NotForwardable),
        ("\r\n", HttpFault::RequestLine),
        ("GET / HTTP/1.1\n\n", HttpFault::Control),
        ("GET / HTTP/1.1\r\n\r\n", HttpFault::HostMissing),
    ];
    for (head, fault) in cases {
        assert_eq!(rewrite(head), Err(fault), "{head:?}");
    }
}

#[test]
#[should_panic(expected = "out holds the head and its growth")]
fn panics_when_the_output_is_too_short() {
    let head = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    assert_eq!(rewrite_head(head, &mut [0; 40]), Ok(0));
}
