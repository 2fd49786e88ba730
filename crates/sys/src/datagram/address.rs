//! Socket addresses as the kernel writes them (`sockaddr_in`, `sockaddr_in6`).

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use crate::datagram::Family;
use crate::ffi::message::NAME_LEN;

/// Length of `sockaddr_in`.
const V4_LEN: usize = 16;
/// Length of `sockaddr_in6`.
const V6_LEN: usize = 28;
const _: () = assert!(V6_LEN == NAME_LEN);

const AF_INET: [u8; 2] = (libc::AF_INET as libc::sa_family_t).to_ne_bytes();
const AF_INET6: [u8; 2] = (libc::AF_INET6 as libc::sa_family_t).to_ne_bytes();

/// Writes `addr` for a socket of `family` to the start of `out` and returns its length. An IPv4
/// address for an IPv6 socket is written IPv4-mapped; the other way round there is no form, and
/// the kernel refuses what this writes.
pub(super) fn encode(addr: SocketAddr, family: Family, out: &mut [u8; NAME_LEN]) -> usize {
    let v6 = match (addr, family) {
        (SocketAddr::V4(v4), Family::V4) => {
            out[..2].copy_from_slice(&AF_INET);
            out[2..4].copy_from_slice(&v4.port().to_be_bytes());
            out[4..8].copy_from_slice(&v4.ip().octets());
            out[8..V4_LEN].fill(0);
            return V4_LEN;
        }
        (SocketAddr::V4(v4), Family::V6) => {
            SocketAddrV6::new(v4.ip().to_ipv6_mapped(), v4.port(), 0, 0)
        }
        (SocketAddr::V6(v6), _) => v6,
    };
    out[..2].copy_from_slice(&AF_INET6);
    out[2..4].copy_from_slice(&v6.port().to_be_bytes());
    out[4..8].copy_from_slice(&v6.flowinfo().to_ne_bytes());
    out[8..24].copy_from_slice(&v6.ip().octets());
    out[24..V6_LEN].copy_from_slice(&v6.scope_id().to_ne_bytes());
    V6_LEN
}

/// Reads an address with the family of the socket that gave it; IPv4-mapped addresses come out as
/// IPv4.
pub(crate) fn decode(name: &[u8]) -> Option<(SocketAddr, Family)> {
    let (family, rest) = name.split_first_chunk::<2>()?;
    let (port, rest) = rest.split_first_chunk::<2>()?;
    let port = u16::from_be_bytes(*port);
    if *family == AF_INET {
        let octets = rest.first_chunk::<4>()?;
        let addr = SocketAddrV4::new(Ipv4Addr::from(*octets), port);
        return Some((addr.into(), Family::V4));
    }
    if *family != AF_INET6 {
        return None;
    }
    let (flow, rest) = rest.split_first_chunk::<4>()?;
    let (octets, rest) = rest.split_first_chunk::<16>()?;
    let scope = rest.first_chunk::<4>()?;
    let ip = Ipv6Addr::from(*octets);
    let addr = match ip.to_ipv4_mapped() {
        Some(v4) => SocketAddrV4::new(v4, port).into(),
        None => {
            let (flow, scope) = (u32::from_ne_bytes(*flow), u32::from_ne_bytes(*scope));
            SocketAddrV6::new(ip, port, flow, scope).into()
        }
    };
    Some((addr, Family::V6))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_come_back_as_they_went() {
        let cases = [
            ("127.0.0.1:53", Family::V4, 16),
            ("127.0.0.1:53", Family::V6, 28),
            ("[2001:db8::1]:65535", Family::V6, 28),
            ("[fe80::1%7]:1", Family::V6, 28),
        ];
        for (text, family, expected) in cases {
            let addr: SocketAddr = text.parse().unwrap();
            let mut bytes = [0xee; NAME_LEN];
            let len = encode(addr, family, &mut bytes);
            assert_eq!(len, expected);
            assert_eq!(decode(&bytes[..len]), Some((addr, family)));
        }
    }

    #[test]
    fn mapped_addresses_come_out_as_ipv4() {
        let mut bytes = [0; NAME_LEN];
        let len = encode("[::ffff:10.1.2.3]:7".parse().unwrap(), Family::V6, &mut bytes);
        assert_eq!(decode(&bytes[..len]), Some(("10.1.2.3:7".parse().unwrap(), Family::V6)));
    }

    #[test]
    fn short_and_foreign_names_are_none() {
        let mut bytes = [0; NAME_LEN];
        for (text, family) in [("1.2.3.4:5", Family::V4), ("[::1]:5", Family::V6)] {
            let needed = match encode(text.parse().unwrap(), family, &mut bytes) {
                // The padding at the end of sockaddr_in says nothing.
                V4_LEN => 8,
                len => len,
            };
            for len in 0..needed {
                assert_eq!(decode(&bytes[..len]), None);
            }
        }
        bytes[..2].copy_from_slice(&(libc::AF_UNIX as libc::sa_family_t).to_ne_bytes());
        assert_eq!(decode(&bytes), None);
    }
}
