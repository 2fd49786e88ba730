//! Header of the datagrams of a SOCKS5 association (`RSV RSV | FRAG | ATYP | address | port`).
//!
//! A datagram is whole or not at all, so one that is cut short is refused like any other fault;
//! there is nothing to wait for. Fragments (RFC 1928 §7 lets a relay drop them) are refused: no
//! client in use sends any. The reserved bytes must be zero, which tells stray datagrams from
//! those of an association. Replies have the same header, with the address they came from.

use core::fmt;

use adit_wire::{AddressError, TARGET_LEN_MAX, Target, TargetBuf};

/// The bytes before the address of a datagram that is no fragment.
pub const UDP_HEADER_PREFIX: [u8; 3] = [0; 3];
/// Longest header.
pub const UDP_HEADER_LEN_MAX: usize = UDP_HEADER_PREFIX.len() + TARGET_LEN_MAX;

/// Why a client's datagram is dropped; always the client's fault, and never answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum UdpReject {
    /// It ends inside the header.
    TooShort,
    /// The reserved bytes are not zero.
    Reserved,
    /// It is a fragment, with this number.
    Fragment(u8),
    /// An address type other than 1, 3 and 4.
    AddressType(u8),
    /// A host name that is empty or no name.
    Name,
}

impl UdpReject {
    /// A stable word for metrics and logs.
    pub const fn as_label(self) -> &'static str {
        match self {
            Self::TooShort => "socks_udp_short",
            Self::Reserved => "socks_udp_reserved",
            Self::Fragment(_) => "socks_udp_fragment",
            Self::AddressType(_) => "socks_udp_address_type",
            Self::Name => "socks_udp_name",
        }
    }
}

impl fmt::Display for UdpReject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooShort => f.write_str("datagram ends inside the SOCKS header"),
            Self::Reserved => f.write_str("reserved bytes of the SOCKS header are not zero"),
            Self::Fragment(number) => write!(f, "fragment {number} is not served"),
            Self::AddressType(atyp) => write!(f, "unknown address type {atyp:#04x}"),
            Self::Name => f.write_str("host name is empty or malformed"),
        }
    }
}

impl core::error::Error for UdpReject {}

/// Reads the header of a client's datagram: where it goes, and at which byte its payload starts.
///
/// # Errors
/// What is wrong with it.
pub fn parse_udp_header(datagram: &[u8]) -> Result<(TargetBuf, usize), UdpReject> {
    let (&[high, low, fragment], address) =
        datagram.split_first_chunk().ok_or(UdpReject::TooShort)?;
    if (high, low) != (0, 0) {
        return Err(UdpReject::Reserved);
    }
    if fragment != 0 {
        return Err(UdpReject::Fragment(fragment));
    }
    let (target, len) = Target::parse(address).map_err(|error| match error {
        AddressError::Incomplete => UdpReject::TooShort,
        AddressError::AddressType(atyp) => UdpReject::AddressType(atyp),
        _ => UdpReject::Name,
    })?;
    Ok((TargetBuf::from(target), UDP_HEADER_PREFIX.len() + len))
}

/// Writes the header of a reply from `source` (or of a client's datagram to it) to the start of
/// `out` and returns its length, [`UDP_HEADER_LEN_MAX`] at most.
///
/// # Panics
/// When `out` is too short.
pub fn encode_udp_header(source: Target<'_>, out: &mut [u8]) -> usize {
    let (prefix, address) = out
        .split_first_chunk_mut()
        .expect("out holds the header, the caller's side of the contract");
    *prefix = UDP_HEADER_PREFIX;
    UDP_HEADER_PREFIX.len() + source.encode(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_where_a_datagram_goes() {
        let longest = [&[0, 0, 0, 3, 255][..], &[b'n'; 255], &[0, 53]].concat();
        let name = format!("{}:53", "n".repeat(255));
        let mapped = b"\0\0\0\x04\0\0\0\0\0\0\0\0\0\0\xff\xff\x7f\0\0\x01\0\x35";
        let cases: [(&[u8], &str); 6] = [
            (b"\0\0\0\x01\x7f\0\0\x01\0\x35", "127.0.0.1:53"),
            (b"\0\0\0\x04\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01\0\x35", "[::1]:53"),
            (mapped, "127.0.0.1:53"),
            (b"\0\0\0\x03\x09localhost\0\x35", "localhost:53"),
            // A name that is an address is that address.
            (b"\0\0\0\x03\x09127.0.0.1\0\x35", "127.0.0.1:53"),
            (&longest, &name),
        ];
        for (header, expected) in cases {
            for payload in [&b""[..], b"payload"] {
                let (target, len) = parse_udp_header(&[header, payload].concat()).unwrap();
                assert_eq!((target.target().to_string().as_str(), len), (expected, header.len()));
            }
            for len in 0..header.len() {
                assert_eq!(parse_udp_header(&header[..len]), Err(UdpReject::TooShort));
            }
            let mut out = [0xee; UDP_HEADER_LEN_MAX];
            let (target, _) = parse_udp_header(header).unwrap();
            let len = encode_udp_header(target.target(), &mut out);
            assert_eq!(parse_udp_header(&out[..len]), Ok((target, len)));
            assert!(out[len..].iter().all(|&byte| byte == 0xee));
        }
        assert_eq!(longest.len(), UDP_HEADER_LEN_MAX);
    }

    #[test]
    fn refuses_what_is_no_datagram_of_an_association() {
        let cases: [(&[u8], UdpReject); 9] = [
            (b"\x01\0\0\x01\x7f\0\0\x01\0\x35", UdpReject::Reserved),
            (b"\0\x01\0\x01\x7f\0\0\x01\0\x35", UdpReject::Reserved),
            (b"\0\0\x01\x01\x7f\0\0\x01\0\x35", UdpReject::Fragment(1)),
            (b"\0\0\x80", UdpReject::Fragment(0x80)),
            (b"\0\0\0\x02\x7f\0\0\x01\0\x35", UdpReject::AddressType(2)),
            (b"\0\0\0\x11", UdpReject::AddressType(0x11)),
            (b"\0\0\0\x03\0\0\x35", UdpReject::Name),
            (b"\0\0\0\x03\x03a b\0\x35", UdpReject::Name),
            (b"\0\0\0\x03\x02\xff\xfe\0\x35", UdpReject::Name),
        ];
        for (datagram, reject) in cases {
            assert_eq!(parse_udp_header(datagram), Err(reject), "{datagram:?}");
        }
        // The one that panicked a server elsewhere: a name without a port.
        assert_eq!(parse_udp_header(b"\0\0\0\x03\x01a"), Err(UdpReject::TooShort));
    }

    #[test]
    fn labels_are_distinct() {
        let rejects = [
            UdpReject::TooShort,
            UdpReject::Reserved,
            UdpReject::Fragment(1),
            UdpReject::AddressType(2),
            UdpReject::Name,
        ];
        let mut labels: Vec<_> = rejects.iter().map(|r| r.as_label()).collect();
        labels.sort_unstable();
        labels.dedup();
        assert_eq!(labels.len(), rejects.len());
        assert_eq!(UdpReject::Fragment(3).to_string(), "fragment 3 is not served");
    }
}
