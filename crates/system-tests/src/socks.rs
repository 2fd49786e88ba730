//! The client side of SOCKS5 and HTTP, as applications speak it.

use std::io::{Read, Write};
use std::net::{IpAddr, TcpStream};

use crate::stream::{connect, read_exactly};

/// Connects through a proxy to a host, address or name.
///
/// # Panics
/// When the proxy refuses.
pub fn socks5(proxy: u16, host: &str, port: u16) -> TcpStream {
    let (stream, reply) = socks5_reply(proxy, host, port);
    assert_eq!(reply, 0, "SOCKS5 reply");
    stream
}

/// As [`socks5`], with the proxy's REP field.
///
/// # Panics
/// When the proxy does not answer.
pub fn socks5_reply(proxy: u16, host: &str, port: u16) -> (TcpStream, u8) {
    let stream = connect(proxy);
    let reply = socks5_over(&stream, host, port);
    (stream, reply)
}

/// Asks over a connection to a proxy; returns the REP field.
///
/// # Panics
/// When the proxy does not answer.
pub fn socks5_over(mut stream: &TcpStream, host: &str, port: u16) -> u8 {
    stream.write_all(&[5, 1, 0]).expect("greet a proxy");
    assert_eq!(read_exactly(stream, 2), [5, 0]);
    let mut request = vec![5, 1, 0];
    match host.parse::<IpAddr>() {
        Ok(IpAddr::V4(ip)) => {
            request.push(1);
            request.extend_from_slice(&ip.octets());
        }
        Ok(IpAddr::V6(ip)) => {
            request.push(4);
            request.extend_from_slice(&ip.octets());
        }
        Err(_) => {
            request.extend_from_slice(&[3, u8::try_from(host.len()).expect("a short name")]);
            request.extend_from_slice(host.as_bytes());
        }
    }
    request.extend_from_slice(&port.to_be_bytes());
    stream.write_all(&request).expect("ask a proxy");
    let head = read_exactly(stream, 4);
    assert_eq!((head[0], head[2]), (5, 0), "a SOCKS5 reply");
    let bound = if head[3] == 4 { 18 } else { 6 };
    read_exactly(stream, bound);
    head[1]
}

/// Reads an HTTP response head; returns its status.
///
/// # Panics
/// When none comes.
pub fn http_status(mut stream: &TcpStream) -> u16 {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).expect("an HTTP response head");
        head.push(byte[0]);
    }
    let text = String::from_utf8_lossy(&head);
    let status = text.split(' ').nth(1).and_then(|s| s.parse().ok());
    status.unwrap_or_else(|| panic!("no HTTP response: {text:?}"))
}
