//! Destinations that a rule must name before it lets anybody reach them: this host, its link, and
//! what clouds tell the machines that ask from inside.
//!
//! Everything here is a range of addresses, so that rules are compiled against it with set
//! operations. Two embeddings of IPv4 in IPv6 put their bits where no range can follow (Teredo, and
//! local NAT64 prefixes): they are protected as a whole.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::LazyLock;

use crate::address::{AddressSet, Prefix, number};

/// Why a destination is protected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Protection {
    /// This host.
    Loopback,
    /// The network it is attached to, without a router between.
    LinkLocal,
    /// What a cloud answers to its machines: credentials, keys, user data.
    Metadata,
    /// An IPv6 address that a translator or a tunnel may turn into one of these.
    Embedded,
}

impl Protection {
    /// A stable word for metrics and logs.
    pub const fn as_label(self) -> &'static str {
        match self {
            Self::Loopback => "loopback",
            Self::LinkLocal => "link_local",
            Self::Metadata => "metadata",
            Self::Embedded => "embedded",
        }
    }
}

const fn v4(a: u8, b: u8, c: u8, d: u8, len: u8) -> (u32, u8) {
    (Ipv4Addr::new(a, b, c, d).to_bits(), len)
}

/// Blocks of IPv4: first address and length of the prefix.
const V4: [((u32, u8), Protection); 9] = [
    // "This network" (RFC 1122 §3.2.1.3); 0.0.0.0 itself is loopback on Linux.
    (v4(0, 0, 0, 0, 8), Protection::Loopback),
    (v4(127, 0, 0, 0, 8), Protection::Loopback),
    (v4(169, 254, 0, 0, 16), Protection::LinkLocal),
    // Amazon, Google, Azure, DigitalOcean and many others.
    (v4(169, 254, 169, 254, 32), Protection::Metadata),
    // Credentials of Amazon's containers (ECS, and EKS Pod Identity).
    (v4(169, 254, 170, 2, 32), Protection::Metadata),
    (v4(169, 254, 170, 23, 32), Protection::Metadata),
    // Alibaba.
    (v4(100, 100, 100, 200, 32), Protection::Metadata),
    // Azure's host agent: public by its number, answered by the machine underneath.
    (v4(168, 63, 129, 16, 32), Protection::Metadata),
    // Oracle.
    (v4(192, 0, 0, 192, 32), Protection::Metadata),
];

const fn v6(segments: [u16; 8], len: u8) -> (u128, u8) {
    let [a, b, c, d, e, f, g, h] = segments;
    (Ipv6Addr::new(a, b, c, d, e, f, g, h).to_bits(), len)
}

const V6: [((u128, u8), Protection); 8] = [
    // Unspecified and loopback (RFC 4291 §2.5.2, §2.5.3).
    (v6([0, 0, 0, 0, 0, 0, 0, 0], 127), Protection::Loopback),
    (v6([0xfe80, 0, 0, 0, 0, 0, 0, 0], 10), Protection::LinkLocal),
    // Amazon: instances, and EKS Pod Identity.
    (v6([0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254], 128), Protection::Metadata),
    (v6([0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x23], 128), Protection::Metadata),
    // Google.
    (v6([0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254], 128), Protection::Metadata),
    // NAT64 with a local prefix, which may end at any of several lengths (RFC 8215).
    (v6([0x64, 0xff9b, 1, 0, 0, 0, 0, 0], 48), Protection::Embedded),
    // Teredo (RFC 4380): the address inverted at the end. Nobody serves it any more.
    (v6([0x2001, 0, 0, 0, 0, 0, 0, 0], 32), Protection::Embedded),
    // Site-local is withdrawn (RFC 3879); equipment that still has it is on this site.
    (v6([0xfec0, 0, 0, 0, 0, 0, 0, 0], 10), Protection::LinkLocal),
];

/// Prefixes of IPv6 in front of an IPv4 address, with their length: IPv4-compatible (RFC 4291
/// §2.5.5.1), translated (RFC 2765), NAT64 (RFC 6052 §2.1), 6to4 (RFC 3056 §2).
const EMBEDDINGS: [(u128, u8); 4] = [
    v6([0, 0, 0, 0, 0, 0, 0, 0], 96),
    v6([0, 0, 0, 0, 0xffff, 0, 0, 0], 96),
    v6([0x64, 0xff9b, 0, 0, 0, 0, 0, 0], 96),
    v6([0x2002, 0, 0, 0, 0, 0, 0, 0], 16),
];

/// One protected range.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Range {
    pub(crate) first: u128,
    pub(crate) last: u128,
    pub(crate) why: Protection,
}

/// All ranges; they overlap, the more particular ones come first.
pub(crate) static RANGES: LazyLock<Box<[Range]>> = LazyLock::new(ranges);

/// The union of [`RANGES`].
pub(crate) static ALL: LazyLock<AddressSet> = LazyLock::new(|| {
    let mut builder = crate::address::SetBuilder::default();
    RANGES.iter().for_each(|range| builder.add_range(range.first, range.last));
    builder.finish()
});

/// The addresses of this host, which the name `localhost` stands for (RFC 6761 §6.3).
pub(crate) fn is_loopback(addr: IpAddr) -> bool {
    addr.is_loopback()
}

/// Why `addr` is protected, if it is. A few dozen comparisons: for the words of a log line.
pub fn protection(addr: IpAddr) -> Option<Protection> {
    let number = number(crate::address::reached(addr));
    RANGES.iter().find(|range| range.first <= number && number <= range.last).map(|range| range.why)
}

fn ranges() -> Box<[Range]> {
    let of = |prefix: Option<Prefix>, why| {
        let (first, last) = prefix.expect("lengths in the tables fit").bounds();
        Range { first, last, why }
    };
    let mut ranges: Vec<Range> = Vec::new();
    for ((bits, len), why) in V4 {
        ranges.push(of(Prefix::new(Ipv4Addr::from_bits(bits).into(), len), why));
        for (embedding, at) in EMBEDDINGS {
            let inner = u128::from(bits) << (96 - at);
            let addr = Ipv6Addr::from_bits(embedding | inner);
            ranges.push(of(Prefix::new(addr.into(), at + len), Protection::Embedded));
        }
    }
    for ((bits, len), why) in V6 {
        ranges.push(of(Prefix::new(Ipv6Addr::from_bits(bits).into(), len), why));
    }
    ranges.sort_by_key(|range| range.last - range.first);
    ranges.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knows_what_is_protected() {
        for (text, why) in [
            ("127.0.0.1", Some(Protection::Loopback)),
            ("127.255.255.255", Some(Protection::Loopback)),
            ("0.0.0.0", Some(Protection::Loopback)),
            ("0.1.2.3", Some(Protection::Loopback)),
            ("::", Some(Protection::Loopback)),
            ("::1", Some(Protection::Loopback)),
            ("::ffff:127.0.0.1", Some(Protection::Loopback)),
            ("::127.0.0.1", Some(Protection::Loopback)),
            ("169.254.1.1", Some(Protection::LinkLocal)),
            ("169.254.169.254", Some(Protection::Metadata)),
            ("::ffff:169.254.169.254", Some(Protection::Metadata)),
            ("fe80::1", Some(Protection::LinkLocal)),
            ("fd00:ec2::254", Some(Protection::Metadata)),
            ("100.100.100.200", Some(Protection::Metadata)),
            ("64:ff9b::7f00:1", Some(Protection::Embedded)),
            ("64:ff9b::a9fe:a9fe", Some(Protection::Embedded)),
            ("64:ff9b:1::a9fe:a9fe", Some(Protection::Embedded)),
            ("2002:7f00:1::1", Some(Protection::Embedded)),
            ("::ffff:0:127.0.0.1", Some(Protection::Embedded)),
            ("128.0.0.1", None),
            ("10.0.0.1", None),
            ("192.168.1.1", None),
            ("1.0.0.0", None),
            ("64:ff9b::808:808", None),
            ("2002:808:808::1", None),
            ("2001:db8::1", None),
            ("fd00::1", None),
            ("255.255.255.255", None),
        ] {
            let addr = text.parse().unwrap();
            assert_eq!(protection(addr), why, "{text}");
            assert_eq!(ALL.contains(crate::address::reached(addr)), why.is_some(), "{text}");
        }
    }
}
