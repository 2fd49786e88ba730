//! What applications meet at the proxy port: the protocols, spoken well, oddly and badly.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::io::Write;
use std::net::{Shutdown, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use adit_system_tests::{
    Ending, PATIENCE, Pair, Target, connect, ending, http_status, read_exactly,
};

const METHOD: &str = "2022-blake3-aes-128-gcm";

/// SOCKS5 greeting and request for a loopback port.
fn socks5_bytes(port: u16) -> Vec<u8> {
    let mut bytes = vec![5, 1, 0, 5, 1, 0, 1, 127, 0, 0, 1];
    bytes.extend_from_slice(&port.to_be_bytes());
    bytes
}

#[test]
fn a_greeting_may_come_byte_by_byte() {
    let pair = Pair::start(METHOD);
    let echo = Target::echo();
    let mut client = connect(pair.local_port);
    for byte in socks5_bytes(echo.port()) {
        client.write_all(&[byte]).unwrap();
    }
    assert_eq!(read_exactly(&client, 4), [5, 0, 5, 0]);
    read_exactly(&client, 8);
    client.write_all(b"hello").unwrap();
    assert_eq!(read_exactly(&client, 5), b"hello");
}

#[test]
fn everything_may_come_in_one_segment() {
    let pair = Pair::start(METHOD);
    let echo = Target::echo();
    let (host, port) = ("127.0.0.1", echo.port());
    let socks4 = [&[4, 1][..], &port.to_be_bytes(), &[127, 0, 0, 1, b'u', 0]].concat();
    let socks4a =
        [&[4, 1][..], &port.to_be_bytes(), &[0, 0, 0, 1, 0], host.as_bytes(), &[0]].concat();
    let http = format!("CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n");
    for (name, request, answer_len) in [
        ("SOCKS5", socks5_bytes(port), 2 + 10),
        ("SOCKS4", socks4, 8),
        ("SOCKS4a", socks4a, 8),
        ("HTTP", http.into_bytes(), 0),
    ] {
        // Early payload of more than one read of a greeting, and an end right behind it.
        let payload: Vec<u8> = (0..100_000_u32).map(|n| n.to_le_bytes()[1]).collect();
        let mut client = connect(pair.local_port);
        let mut writer = client.try_clone().unwrap();
        let all = [request, payload.clone()].concat();
        let sender = std::thread::spawn(move || {
            writer.write_all(&all).unwrap();
            writer.shutdown(Shutdown::Write).unwrap();
        });
        if answer_len == 0 {
            assert_eq!(http_status(&client), 200);
        } else {
            read_exactly(&client, answer_len);
        }
        let (bytes, end) = ending(&client);
        assert!(bytes == payload, "{name}: {} of {} bytes", bytes.len(), payload.len());
        assert_eq!(end, Ending::Fin, "{name}");
        sender.join().unwrap();
        client.flush().unwrap();
    }
}

/// Each is answered in full, however much nonsense lies behind it, and then ended in order.
#[test]
fn malformed_requests_get_their_answer_before_the_end() {
    let pair = Pair::start(METHOD);
    let socks: [(&str, &[u8], &[u8]); 8] = [
        ("no acceptable method", &[5, 1, 2], &[5, 0xFF]),
        ("no method at all", &[5, 0], &[5, 0xFF]),
        ("BIND", &[5, 1, 0, 5, 2, 0, 1, 1, 2, 3, 4, 0, 80], &[5, 0, 5, 7]),
        ("UDP ASSOCIATE", &[5, 1, 0, 5, 3, 0, 1, 0, 0, 0, 0, 0, 0], &[5, 0, 5, 7]),
        ("address type 5", &[5, 1, 0, 5, 1, 0, 5, 1, 2, 3, 4, 0, 80], &[5, 0, 5, 8]),
        ("an empty name", &[5, 1, 0, 5, 1, 0, 3, 0, 0, 80], &[5, 0, 5]),
        ("SOCKS4 BIND", &[4, 2, 0, 80, 1, 2, 3, 4, 0], &[0, 91]),
        ("another version", &[5, 1, 0, 4, 1, 0, 1, 1, 2, 3, 4, 0, 80], &[5, 0]),
    ];
    for (name, request, answer) in socks {
        for junk in [0, 20_000] {
            let mut client = connect(pair.local_port);
            client.write_all(&[request, &vec![0x55; junk]].concat()).unwrap();
            let (bytes, end) = ending(&client);
            assert!(bytes.starts_with(answer), "{name} and {junk} bytes: {bytes:?}");
            assert_eq!(end, Ending::Fin, "{name} and {junk} bytes");
        }
    }
    let long = format!("GET http://127.0.0.1/ HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(100_000));
    for request in [
        "GET / HTTP/1.1\r\n\r\n",
        "CONNECT 127.0.0.1 HTTP/1.1\r\n\r\n",
        "CONNECT 127.0.0.1:99999 HTTP/1.1\r\n\r\n",
        "GET http:///x HTTP/1.1\r\n\r\n",
        "GET ftp://127.0.0.1/ HTTP/1.1\r\n\r\n",
        "GET http://127.0.0.1/ HTTP/3.0\r\n\r\n",
        "GET\r\n\r\n",
        "POST http://127.0.0.1/ HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        "POST http://127.0.0.1/ HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\nhello",
        "POST http://127.0.0.1/ HTTP/1.1\r\nContent-Length: -5\r\n\r\nhello",
        "GET http://127.0.0.1/ HTTP/1.1\r\nbad header\r\n\r\n",
        "POST http://127.0.0.1/ HTTP/1.1\r\nContent-Length : 5\r\n\r\nhello",
        "POST http://127.0.0.1/ HTTP/1.1\r\nContent-Length: 5, 6\r\n\r\nhello",
        "POST http://127.0.0.1/ HTTP/1.1\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        "POST http://127.0.0.1/ HTTP/1.0\r\nTransfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n",
        "GET http://127.0.0.1/ HTTP/1.1\r\nX: a\0b\r\n\r\n",
        "GET http://127.0.0.1/ HTTP/1.1\r\n folded: x\r\n\r\n",
        "GET http://127.0.0.1/a b HTTP/1.1\r\n\r\n",
        &long,
    ] {
        let mut client = connect(pair.local_port);
        let mut writer = client.try_clone().unwrap();
        let bytes = request.as_bytes().to_vec();
        // The writer may find the reader gone, once the request is refused.
        let sender = std::thread::spawn(move || writer.write_all(&bytes));
        let shown: String = request.chars().take(60).collect();
        let status = http_status(&client);
        assert!((400..=505).contains(&status), "{shown:?}: {status}");
        assert_eq!(ending(&client).1, Ending::Fin, "{shown:?}");
        let _ = sender.join().unwrap();
        client.flush().unwrap();
    }
    for first in [0, 1, 6, 22, 128, 255] {
        let mut client = connect(pair.local_port);
        client.write_all(&[first; 50]).unwrap();
        let (bytes, _) = ending(&client);
        assert!(bytes.is_empty(), "{first}: {bytes:?}");
    }
}

#[test]
fn udp_associate_is_refused_and_logged() {
    let pair = Pair::start(METHOD);
    let mut client = connect(pair.local_port);
    client.write_all(&[5, 1, 0, 5, 3, 0, 1, 0, 0, 0, 0, 0, 0]).unwrap();
    assert_eq!(read_exactly(&client, 4), [5, 0, 5, 7]);
    pair.local.wait_for("UDP ASSOCIATE refused");
}

/// A target that reports everything it reads until an end, answering once it has seen `until`.
fn origin(until: &'static str) -> (Target, Receiver<(String, Ending)>) {
    let (sender, report) = channel();
    let target = Target::serve(move |mut stream| {
        let mut all = Vec::new();
        while !until.is_empty() && !String::from_utf8_lossy(&all).contains(until) {
            all.extend_from_slice(&read_exactly(&stream, 1));
        }
        if !until.is_empty() {
            let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok";
            stream.write_all(answer).unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
        }
        let (rest, end) = ending(&stream);
        all.extend_from_slice(&rest);
        // The test may be over.
        let _ = sender.send((String::from_utf8_lossy(&all).into_owned(), end));
    });
    (target, report)
}

fn forward(pair: &Pair, port: u16, rest: &str) -> TcpStream {
    let mut client = connect(pair.local_port);
    let request = format!("POST http://127.0.0.1:{port}/a?b HTTP/1.1\r\nHost: wrong\r\n{rest}");
    client.write_all(request.as_bytes()).unwrap();
    client
}

#[test]
fn a_forwarded_request_ends_where_its_body_does() {
    let pair = Pair::start(METHOD);
    for (rest, until) in [
        ("Content-Length: 11\r\n\r\nhello-thereGET http://127.0.0.1/leak", "hello-there"),
        (
            "Transfer-Encoding: chunked\r\n\r\n6\r\nhello-\r\n5;x=y\r\nthere\r\n0\r\n\r\nGET leak",
            "0\r\n\r\n",
        ),
    ] {
        let (target, report) = origin(until);
        let client = forward(&pair, target.port(), rest);
        assert_eq!(http_status(&client), 200);
        assert_eq!(ending(&client), (b"ok".to_vec(), Ending::Fin), "{rest}");
        drop(client);
        let (seen, _) = report.recv_timeout(PATIENCE).unwrap();
        assert!(seen.starts_with("POST /a?b HTTP/1.1\r\n"), "{seen}");
        assert!(seen.ends_with(until) && !seen.contains("leak"), "{seen}");
    }
}

/// An origin that waits for the rest of a body hears that the client has given up.
#[test]
fn a_forwarded_body_that_breaks_off_is_heard_at_the_origin() {
    let pair = Pair::start(METHOD);
    let (sender, report) = channel();
    let target = Target::serve(move |stream| {
        let mut seen = Vec::new();
        while !seen.ends_with(b"hello") {
            seen.extend(read_exactly(&stream, 1));
        }
        // The test may be over; so below.
        let _ = sender.send(Ending::Open);
        let _ = sender.send(ending(&stream).1);
    });
    let client = forward(&pair, target.port(), "Content-Length: 1000\r\n\r\nhello");
    report.recv_timeout(PATIENCE).expect("the origin sees the part that came");
    drop(client);
    let end = report.recv_timeout(PATIENCE).expect("the origin sees an end");
    assert_ne!(end, Ending::Open);
}

/// An origin may keep its side open whatever it was told; a client that has gone is no reason to.
#[test]
fn a_forwarded_request_ends_with_its_client() {
    let pair = Pair::start(METHOD);
    let (sender, report) = channel();
    let target = Target::serve(move |mut stream| {
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").unwrap();
        let (_, end) = ending(&stream);
        // The test may be over.
        let _ = sender.send(end);
    });
    let mut client = connect(pair.local_port);
    let request = format!("GET http://127.0.0.1:{}/ HTTP/1.1\r\n\r\n", target.port());
    client.write_all(request.as_bytes()).unwrap();
    assert_eq!(http_status(&client), 200);
    assert_eq!(read_exactly(&client, 2), b"ok");
    drop(client);
    let end = report.recv_timeout(PATIENCE).expect("the origin sees an end");
    assert_ne!(end, Ending::Open);
}

#[test]
fn a_client_that_dawdles_is_cut_off() {
    let pair = Pair::with_args(METHOD, &["-t", "2"], &["-t", "2"]);
    let start = Instant::now();
    let silent = connect(pair.local_port);
    let mut partial = connect(pair.local_port);
    partial.write_all(&[5, 3, 0]).unwrap();
    let mut head = connect(pair.local_port);
    head.write_all(b"GET http://127.0.0.1/ HTTP/1.1\r\nHost:").unwrap();
    let at_server = connect(pair.server_port);
    let mut dripping = connect(pair.local_port);
    dripping.write_all(&[5, 255]).unwrap();
    let reader = dripping.try_clone().unwrap();
    let drip = std::thread::spawn(move || {
        let mut sent = 0;
        while dripping.write_all(&[2]).is_ok() && sent < 100 {
            sent += 1;
            std::thread::sleep(Duration::from_millis(300));
        }
        sent
    });
    for (what, stream) in [
        ("silent", &silent),
        ("partial", &partial),
        ("half a head", &head),
        ("silent at the server", &at_server),
        ("dripping", &reader),
    ] {
        assert_ne!(ending(stream).1, Ending::Open, "{what}");
        assert!(start.elapsed() > Duration::from_millis(1900), "{what}: too early");
    }
    // Thirty seconds of drips; the limit is two.
    assert!(drip.join().unwrap() < 60, "each byte buys more time");
}

/// The limit covers the greeting, not what comes after.
#[test]
fn a_quiet_connection_outlives_the_handshake_limit() {
    let pair = Pair::with_args(METHOD, &["-t", "1"], &["-t", "1"]);
    let echo = Target::echo();
    let mut client = pair.open(echo.port());
    client.write_all(b"one").unwrap();
    assert_eq!(read_exactly(&client, 3), b"one");
    // The limits of newer connections pass while this one is quiet.
    let silent = [connect(pair.local_port), connect(pair.server_port)];
    assert!(silent.iter().all(|s| ending(s).1 != Ending::Open));
    client.write_all(b"two").unwrap();
    assert_eq!(read_exactly(&client, 3), b"two");
}
