//! The client side of SOCKS5 without authentication (RFC 1928), as far as measurements need it.
//!
//! Sent the way real clients do: greeting, wait, request, wait; nothing is sent ahead.

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::Duration;

use super::{Destination, Entry};

/// The greeting: version 5, one method, no authentication.
pub(crate) const GREETING: [u8; 3] = [5, 1, 0];
/// The only good answer to [`GREETING`].
pub(crate) const METHOD_REPLY: [u8; 2] = [5, 0];
/// Longest reply to a request: one with a domain name of 255 bytes.
pub(crate) const REPLY_LEN_MAX: usize = 4 + 1 + 255 + 2;
/// Longest that one step of a blocking set-up, or one later read or write, may take.
const STEP_TIMEOUT: Duration = Duration::from_secs(10);

/// A CONNECT request.
pub(crate) fn request(destination: &Destination) -> Vec<u8> {
    with_address(&[5, 1, 0], destination)
}

/// What precedes the payload of a datagram to, or from, the destination.
pub(crate) fn datagram_header(destination: &Destination) -> Vec<u8> {
    with_address(&[0, 0, 0], destination)
}

fn with_address(start: &[u8; 3], destination: &Destination) -> Vec<u8> {
    let mut bytes = start.to_vec();
    let port = match destination {
        Destination::Ip(addr) => {
            match addr.ip() {
                IpAddr::V4(ip) => {
                    bytes.push(1);
                    bytes.extend(ip.octets());
                }
                IpAddr::V6(ip) => {
                    bytes.push(4);
                    bytes.extend(ip.octets());
                }
            }
            addr.port()
        }
        Destination::Localhost(port) => {
            let name = b"localhost";
            bytes.extend([3, name.len() as u8]);
            bytes.extend(name);
            *port
        }
    };
    bytes.extend(port.to_be_bytes());
    bytes
}

/// Length of the reply that starts with `bytes`; `None` while that cannot be told.
///
/// # Errors
/// When the reply is a refusal or no SOCKS5 reply.
pub(crate) fn reply_len(bytes: &[u8]) -> io::Result<Option<usize>> {
    let &[version, code, reserved, kind, ref rest @ ..] = bytes else {
        return Ok(None);
    };
    if version != 5 || reserved != 0 {
        return Err(io::Error::other("no SOCKS5 reply"));
    }
    if code != 0 {
        return Err(io::Error::other(format!("SOCKS5 reply {code}")));
    }
    match kind {
        1 => Ok(Some(4 + 4 + 2)),
        4 => Ok(Some(4 + 16 + 2)),
        3 => Ok(rest.first().map(|&len| 4 + 1 + usize::from(len) + 2)),
        _ => Err(io::Error::other("unknown address type in a SOCKS5 reply")),
    }
}

/// Opens a blocking connection to the destination. Reads and writes on it time out.
pub(crate) fn open(entry: Entry, destination: &Destination) -> io::Result<TcpStream> {
    let mut stream = connect(entry.first_hop(*destination))?;
    if matches!(entry, Entry::Socks5(_)) {
        negotiate(&mut stream, &request(destination))?;
    }
    Ok(stream)
}

/// Asks for a UDP association; the connection that holds it, and where its datagrams go.
pub(crate) fn associate(local: SocketAddr) -> io::Result<(TcpStream, SocketAddr)> {
    // The client's own address is left open, as by clients that do not know it yet.
    let unspecified = Destination::Ip(SocketAddr::from(([0, 0, 0, 0], 0)));
    let mut stream = connect(local)?;
    let reply = negotiate(&mut stream, &with_address(&[5, 3, 0], &unspecified))?;
    let mut relay = bound_address(&reply)
        .ok_or_else(|| io::Error::other("the SOCKS5 server gives no address for datagrams"))?;
    if relay.ip().is_unspecified() {
        relay.set_ip(local.ip());
    }
    Ok((stream, relay))
}

fn connect(to: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&to, STEP_TIMEOUT)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(STEP_TIMEOUT))?;
    stream.set_write_timeout(Some(STEP_TIMEOUT))?;
    Ok(stream)
}

/// The address in a whole reply, unless it is a name.
fn bound_address(reply: &[u8]) -> Option<SocketAddr> {
    let (ip, port): (IpAddr, &[u8]) = match reply.get(3..)? {
        [1, rest @ ..] => {
            let (ip, port) = rest.split_first_chunk::<4>()?;
            ((*ip).into(), port)
        }
        [4, rest @ ..] => {
            let (ip, port) = rest.split_first_chunk::<16>()?;
            ((*ip).into(), port)
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip, u16::from_be_bytes(port.try_into().ok()?)))
}

/// Carries out the method selection and one request; the server's reply to it.
fn negotiate(stream: &mut TcpStream, request: &[u8]) -> io::Result<Vec<u8>> {
    stream.write_all(&GREETING)?;
    let mut method = [0; METHOD_REPLY.len()];
    stream.read_exact(&mut method)?;
    if method != METHOD_REPLY {
        return Err(io::Error::other("SOCKS5 server wants authentication"));
    }
    stream.write_all(request)?;
    // Five bytes tell the length of every reply, and every reply is longer.
    let mut reply = [0; REPLY_LEN_MAX];
    stream.read_exact(&mut reply[..5])?;
    let len = reply_len(&reply[..5])?.ok_or_else(|| io::Error::other("no SOCKS5 reply"))?;
    stream.read_exact(&mut reply[5..len])?;
    Ok(reply[..len].to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv6Addr;

    #[test]
    fn encodes_each_kind_of_destination() {
        let v4 = Destination::Ip(SocketAddr::from(([127, 0, 0, 1], 258)));
        assert_eq!(request(&v4), [5, 1, 0, 1, 127, 0, 0, 1, 1, 2]);
        let v6 = Destination::Ip(SocketAddr::from((Ipv6Addr::LOCALHOST, 1)));
        assert_eq!(request(&v6).len(), 4 + 16 + 2);
        let name = request(&Destination::Localhost(80));
        assert_eq!(name[..5], [5, 1, 0, 3, 9]);
        assert_eq!(name[5..], *b"localhost\0P");
    }

    #[test]
    fn heads_datagrams_like_requests() {
        let v4 = Destination::Ip(SocketAddr::from(([127, 0, 0, 1], 258)));
        assert_eq!(datagram_header(&v4), [0, 0, 0, 1, 127, 0, 0, 1, 1, 2]);
    }

    #[test]
    fn reads_the_address_of_a_reply() {
        let v4 = [5, 0, 0, 1, 127, 0, 0, 1, 1, 2];
        assert_eq!(bound_address(&v4), Some(SocketAddr::from(([127, 0, 0, 1], 258))));
        let v6 = [&[5, 0, 0, 4][..], &Ipv6Addr::LOCALHOST.octets(), &[0, 7]].concat();
        assert_eq!(bound_address(&v6), Some(SocketAddr::from((Ipv6Addr::LOCALHOST, 7))));
        assert_eq!(bound_address(&[5, 0, 0, 3, 1, b'a', 0, 7]), None);
        assert_eq!(bound_address(&v4[..9]), None);
    }

    #[test]
    fn measures_replies_of_each_kind() {
        assert_eq!(reply_len(&[5, 0, 0]).unwrap(), None);
        assert_eq!(reply_len(&[5, 0, 0, 1]).unwrap(), Some(10));
        assert_eq!(reply_len(&[5, 0, 0, 4]).unwrap(), Some(22));
        assert_eq!(reply_len(&[5, 0, 0, 3]).unwrap(), None);
        assert_eq!(reply_len(&[5, 0, 0, 3, 255]).unwrap(), Some(REPLY_LEN_MAX));
    }

    #[test]
    fn refuses_refusals_and_junk() {
        for bytes in [[5, 5, 0, 1], [4, 0, 0, 1], [5, 0, 1, 1], [5, 0, 0, 2]] {
            assert!(reply_len(&bytes).is_err(), "{bytes:?}");
        }
    }
}
