//! The client side of SOCKS5 without authentication (RFC 1928): greeting, wait, request, wait; and
//! the header of its datagrams.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};

use crate::failure::Failure;
use crate::target::Host;

/// Asks the SOCKS5 server at the other end for a connection.
pub(crate) fn connect(stream: &mut TcpStream, host: Host, port: u16) -> Result<(), Failure> {
    let bound = negotiate(stream, &request(host, port));
    bound.map_err(Failure::io("connect through SOCKS5")).map(drop)
}

/// Asks the SOCKS5 server at the other end for an association, which lasts as long as the
/// connection, and returns where it takes datagrams.
pub(crate) fn associate(stream: &mut TcpStream) -> Result<SocketAddr, Failure> {
    let bound = negotiate(stream, &[5, 3, 0, 1, 0, 0, 0, 0, 0, 0]);
    match bound.map_err(Failure::io("associate through SOCKS5"))? {
        Address::Ip(address) => Ok(address),
        name @ Address::Name(..) => Err(Failure::new(format!("association at {name}"))),
    }
}

/// A datagram to a target: header and payload.
pub(crate) fn datagram(host: Host, port: u16, payload: &[u8]) -> Vec<u8> {
    let mut datagram = vec![0, 0, 0];
    push_address(&mut datagram, host, port);
    datagram.extend(payload);
    datagram
}

/// Takes a datagram apart: where it is from, and its payload.
pub(crate) fn parse(mut datagram: &[u8]) -> Result<(Address, &[u8]), Failure> {
    let address = (|| {
        let mut head = [0; 3];
        datagram.read_exact(&mut head)?;
        if head != [0, 0, 0] {
            return Err(io::Error::other(format!("head {head:?}")));
        }
        Address::read(&mut datagram)
    })();
    Ok((address.map_err(Failure::io("read the header of a datagram"))?, datagram))
}

/// An address as a SOCKS5 server writes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Address {
    /// Of either family.
    Ip(SocketAddr),
    /// A name with a port.
    Name(String, u16),
}

impl Address {
    fn read(from: &mut impl Read) -> io::Result<Self> {
        let [kind] = read(from)?;
        let ip = match kind {
            1 => IpAddr::from(read::<4>(from)?),
            4 => IpAddr::from(read::<16>(from)?),
            3 => {
                let [len] = read(from)?;
                let mut name = vec![0; len.into()];
                from.read_exact(&mut name)?;
                let port = u16::from_be_bytes(read(from)?);
                return Ok(Self::Name(String::from_utf8_lossy(&name).into_owned(), port));
            }
            _ => return Err(io::Error::other(format!("address of type {kind}"))),
        };
        Ok(Self::Ip(SocketAddr::new(ip, u16::from_be_bytes(read(from)?))))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(address) => address.fmt(f),
            Self::Name(name, port) => write!(f, "{name}:{port}"),
        }
    }
}

fn read<const N: usize>(from: &mut impl Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    from.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn negotiate(stream: &mut (impl Read + Write), request: &[u8]) -> io::Result<Address> {
    stream.write_all(&[5, 1, 0])?;
    let method = read(stream)?;
    if method != [5, 0] {
        return Err(io::Error::other(format!("method reply {method:?}")));
    }
    stream.write_all(request)?;
    let head = read(stream)?;
    if head != [5, 0, 0] {
        return Err(io::Error::other(format!("reply {head:?}")));
    }
    Address::read(stream)
}

fn request(host: Host, port: u16) -> Vec<u8> {
    let mut request = vec![5, 1, 0];
    push_address(&mut request, host, port);
    request
}

fn push_address(to: &mut Vec<u8>, host: Host, port: u16) {
    match host {
        Host::Ipv4 => {
            to.push(1);
            to.extend(Ipv4Addr::LOCALHOST.octets());
        }
        Host::Ipv6 => {
            to.push(4);
            to.extend(Ipv6Addr::LOCALHOST.octets());
        }
        Host::Name => to.extend(b"\x03\x09localhost"),
    }
    to.extend(port.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encodes_each_kind_of_host() {
        assert_eq!(request(Host::Ipv4, 258), [5, 1, 0, 1, 127, 0, 0, 1, 1, 2]);
        assert_eq!(request(Host::Name, 80), b"\x05\x01\x00\x03\x09localhost\x00\x50");
        assert_eq!(request(Host::Ipv6, 1).len(), 4 + 16 + 2);
    }

    #[test]
    fn takes_apart_what_it_makes() {
        for host in Host::ALL {
            let whole = datagram(host, 258, b"payload");
            let (address, payload) = parse(&whole).unwrap();
            assert_eq!((address.to_string(), payload), (host.with_port(258), &b"payload"[..]));
            for len in 0..whole.len() - payload.len() {
                parse(&whole[..len]).unwrap_err();
            }
        }
        parse(&[0, 0, 1, 1, 127, 0, 0, 1, 0, 1]).unwrap_err();
        parse(&[0, 0, 0, 2, 127, 0, 0, 1, 0, 1]).unwrap_err();
    }
}
