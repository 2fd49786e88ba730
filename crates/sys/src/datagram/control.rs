//! Control messages: packet information, original destinations and segment sizes.
//!
//! A control message is `length | level | type | data`, where the length is a native word that
//! covers itself, and the next message starts at the next word boundary. This is the kernel's own
//! layout, read and written with slices.

use std::ffi::c_int;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::datagram::{Family, LocalAddress, address};

const WORD: usize = size_of::<usize>();
/// Length word, level and type, before the data.
const HEAD_LEN: usize = (WORD + 2 * size_of::<c_int>()).next_multiple_of(WORD);
/// Room for everything one datagram is sent with: `in6_pktinfo` and a segment size.
const SEND_LEN: usize = space(20) + space(2);

const fn space(data_len: usize) -> usize {
    HEAD_LEN + data_len.next_multiple_of(WORD)
}

/// What the control messages of a received datagram say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Ancillary {
    /// The address of ours that the datagram reached.
    pub(super) local: Option<LocalAddress>,
    /// Length of the segments of a train.
    pub(super) segment: Option<usize>,
    /// Where the datagram was going, for a transparent listener.
    pub(super) destination: Option<SocketAddr>,
}

impl Ancillary {
    /// Reads control messages; those it does not know and those cut short are passed over.
    pub(super) fn parse(mut bytes: &[u8]) -> Self {
        let mut found = Self::default();
        while let Some((level, kind, data, rest)) = split(bytes) {
            match (level, kind) {
                (libc::SOL_UDP, libc::UDP_GRO) => {
                    let size = data.first_chunk().map(|b| c_int::from_ne_bytes(*b));
                    found.segment = size.and_then(|s| usize::try_from(s).ok()).filter(|&s| s > 0);
                }
                // An IPv6 socket gives both forms for a datagram by IPv4. This one comes first
                // and is the better: it has an address of ours even for a broadcast.
                (libc::IPPROTO_IP, libc::IP_PKTINFO) => found.local = packet_info_v4(data),
                (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) if found.local.is_none() => {
                    found.local = packet_info_v6(data);
                }
                // The same structure for both: it says its family itself.
                (libc::IPPROTO_IP, libc::IP_ORIGDSTADDR)
                | (libc::IPPROTO_IPV6, libc::IPV6_ORIGDSTADDR) => {
                    found.destination = address::decode(data).map(|(addr, _)| addr);
                }
                _ => {}
            }
            bytes = rest;
        }
        found
    }
}

/// Splits the first control message off: level, type, data and the rest.
fn split(bytes: &[u8]) -> Option<(c_int, c_int, &[u8], &[u8])> {
    let (len, head) = bytes.split_first_chunk::<WORD>()?;
    let len = usize::from_ne_bytes(*len);
    let (level, head) = head.split_first_chunk()?;
    let kind = head.first_chunk()?;
    let data = bytes.get(HEAD_LEN..len)?;
    let rest = bytes.get(len.checked_next_multiple_of(WORD)?..).unwrap_or_default();
    Some((c_int::from_ne_bytes(*level), c_int::from_ne_bytes(*kind), data, rest))
}

/// `in_pktinfo`: interface, the address to reply from, the destination in the packet.
fn packet_info_v4(data: &[u8]) -> Option<LocalAddress> {
    let (interface, data) = data.split_first_chunk()?;
    let ip = Ipv4Addr::from(*data.first_chunk::<4>()?);
    local(ip.into(), u32::from_ne_bytes(*interface))
}

/// `in6_pktinfo`: the destination in the packet, interface.
fn packet_info_v6(data: &[u8]) -> Option<LocalAddress> {
    let (ip, data) = data.split_first_chunk::<16>()?;
    let ip = Ipv6Addr::from(*ip).to_canonical();
    local(ip, u32::from_ne_bytes(*data.first_chunk()?))
}

/// Only an address that a reply can leave from.
fn local(ip: IpAddr, interface: u32) -> Option<LocalAddress> {
    let usable = !ip.is_unspecified() && !ip.is_multicast();
    usable.then_some(LocalAddress { ip, interface })
}

/// The control messages of a datagram or a train to send.
#[derive(Clone, Copy, Debug)]
pub(super) struct ControlBuf {
    bytes: [u8; SEND_LEN],
    len: usize,
}

impl ControlBuf {
    /// None yet.
    pub(super) const fn new() -> Self {
        Self { bytes: [0; SEND_LEN], len: 0 }
    }

    /// Source address of the datagram, on a socket of `family`.
    pub(super) fn push_source(&mut self, from: LocalAddress, family: Family) {
        match (from.ip.to_canonical(), family) {
            (IpAddr::V4(ip), _) => {
                // The interface is left to the routes.
                let mut info = [0; 12];
                info[4..8].copy_from_slice(&ip.octets());
                self.push(libc::IPPROTO_IP, libc::IP_PKTINFO, &info);
            }
            (IpAddr::V6(ip), Family::V6) => {
                let interface = if ip.is_unicast_link_local() { from.interface } else { 0 };
                let mut info = [0; 20];
                info[..16].copy_from_slice(&ip.octets());
                info[16..].copy_from_slice(&interface.to_ne_bytes());
                self.push(libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, &info);
            }
            // An IPv4 socket has no IPv6 source address; the kernel refuses the destination too.
            (IpAddr::V6(_), Family::V4) => {}
        }
    }

    /// Length of the segments of a train.
    pub(super) fn push_segment(&mut self, size: usize) {
        let size = u16::try_from(size).expect("a train is shorter than 64 KiB");
        self.push(libc::SOL_UDP, libc::UDP_SEGMENT, &size.to_ne_bytes());
    }

    fn push(&mut self, level: c_int, kind: c_int, data: &[u8]) {
        let out = &mut self.bytes[self.len..self.len + space(data.len())];
        out[..WORD].copy_from_slice(&(HEAD_LEN + data.len()).to_ne_bytes());
        out[WORD..WORD + 4].copy_from_slice(&level.to_ne_bytes());
        out[WORD + 4..WORD + 8].copy_from_slice(&kind.to_ne_bytes());
        out[HEAD_LEN..HEAD_LEN + data.len()].copy_from_slice(data);
        self.len += space(data.len());
    }

    /// The bytes for the kernel.
    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(level: c_int, kind: c_int, data: &[u8]) -> Vec<u8> {
        let mut bytes = (HEAD_LEN + data.len()).to_ne_bytes().to_vec();
        bytes.extend(level.to_ne_bytes());
        bytes.extend(kind.to_ne_bytes());
        bytes.resize(HEAD_LEN, 0);
        bytes.extend(data);
        bytes.resize(bytes.len().next_multiple_of(WORD), 0);
        bytes
    }

    fn info_v4(interface: i32, ours: [u8; 4], destination: [u8; 4]) -> Vec<u8> {
        [interface.to_ne_bytes(), ours, destination].concat()
    }

    #[test]
    fn reads_what_the_kernel_sends() {
        let v4 = message(0, libc::IP_PKTINFO, &info_v4(3, [10, 0, 0, 1], [10, 0, 0, 255]));
        let mapped = Ipv4Addr::new(10, 0, 0, 255).to_ipv6_mapped().octets();
        let v6 = [&mapped[..], &3_u32.to_ne_bytes()].concat();
        let v6 = message(41, libc::IPV6_PKTINFO, &v6);
        let gro = message(17, libc::UDP_GRO, &1200_i32.to_ne_bytes());
        let unknown = message(1, 99, &[1, 2, 3]);
        let ours = LocalAddress { ip: Ipv4Addr::new(10, 0, 0, 1).into(), interface: 3 };
        let all = Ancillary { local: Some(ours), segment: Some(1200), destination: None };
        assert_eq!(Ancillary::parse(&[&*unknown, &v4, &v6, &gro].concat()), all);
        assert_eq!(Ancillary::parse(&[&*v6, &gro, &v4].concat()), all);
        let there = LocalAddress { ip: Ipv4Addr::new(10, 0, 0, 255).into(), interface: 3 };
        assert_eq!(Ancillary::parse(&v6).local, Some(there));
        assert_eq!(Ancillary::parse(b""), Ancillary::default());
    }

    #[test]
    fn original_destinations_of_both_families() {
        let mut v4 = (libc::AF_INET as libc::sa_family_t).to_ne_bytes().to_vec();
        v4.extend([0, 53, 8, 8, 4, 4, 0, 0, 0, 0, 0, 0, 0, 0]);
        let mut v6 = (libc::AF_INET6 as libc::sa_family_t).to_ne_bytes().to_vec();
        v6.extend([0x01, 0xBB, 0, 0, 0, 0]);
        v6.extend("2001:db8::5".parse::<Ipv6Addr>().unwrap().octets());
        v6.extend([0; 4]);
        let mut mapped = v6.clone();
        mapped[8..24].copy_from_slice(&Ipv4Addr::new(9, 9, 9, 9).to_ipv6_mapped().octets());
        let gro = message(17, libc::UDP_GRO, &1200_i32.to_ne_bytes());
        for (level, kind, data, expected) in [
            (libc::IPPROTO_IP, libc::IP_ORIGDSTADDR, &v4, "8.8.4.4:53"),
            (libc::IPPROTO_IPV6, libc::IPV6_ORIGDSTADDR, &v6, "[2001:db8::5]:443"),
            (libc::IPPROTO_IPV6, libc::IPV6_ORIGDSTADDR, &mapped, "9.9.9.9:443"),
        ] {
            let destination = message(level, kind, data);
            for bytes in [[&gro[..], &destination].concat(), [&destination[..], &gro].concat()] {
                let found = Ancillary::parse(&bytes);
                assert_eq!(found.destination, Some(expected.parse().unwrap()));
                assert_eq!(found.segment, Some(1200));
            }
            // One that is cut short is none.
            assert_eq!(Ancillary::parse(&message(level, kind, &data[..7])).destination, None);
        }
        // Both together fit what is reserved for a datagram.
        let both = message(libc::IPPROTO_IPV6, libc::IPV6_ORIGDSTADDR, &v6).len()
            + message(libc::IPPROTO_IP, libc::IP_ORIGDSTADDR, &v4).len();
        assert!(both + gro.len() <= crate::ffi::message::CONTROL_LEN);
    }

    #[test]
    fn addresses_no_reply_can_leave_from_are_none() {
        for ip in [[0, 0, 0, 0], [224, 0, 0, 1]] {
            let bytes = message(0, libc::IP_PKTINFO, &info_v4(3, ip, ip));
            assert_eq!(Ancillary::parse(&bytes).local, None);
        }
        let multicast = [&"ff02::1".parse::<Ipv6Addr>().unwrap().octets()[..], &[1, 0, 0, 0]];
        let bytes = message(41, libc::IPV6_PKTINFO, &multicast.concat());
        assert_eq!(Ancillary::parse(&bytes).local, None);
    }

    #[test]
    fn damage_does_not_panic() {
        let whole = [
            message(17, libc::UDP_GRO, &1200_i32.to_ne_bytes()),
            message(0, libc::IP_PKTINFO, &info_v4(3, [10, 0, 0, 1], [10, 0, 0, 1])),
        ]
        .concat();
        for len in 0..whole.len() {
            Ancillary::parse(&whole[..len]);
            for byte in [0, 1, 15, 16, 17, 0x7f, 0xff] {
                let mut bytes = whole.clone();
                bytes[len] = byte;
                Ancillary::parse(&bytes);
            }
        }
        Ancillary::parse(&[0xff; 128]);
        Ancillary::parse(&[0; 128]);
    }

    #[test]
    fn writes_what_it_reads() {
        let from = LocalAddress { ip: "fe80::1".parse().unwrap(), interface: 5 };
        let mut control = ControlBuf::new();
        control.push_source(from, Family::V6);
        control.push_segment(1200);
        assert_eq!(Ancillary::parse(control.as_bytes()).local, Some(from));
        let (level, kind, data, rest) = split(&control.as_bytes()[space(20)..]).unwrap();
        assert_eq!((level, kind), (libc::SOL_UDP, libc::UDP_SEGMENT));
        assert_eq!((data, rest.len()), (&1200_u16.to_ne_bytes()[..], 0));
    }
}
