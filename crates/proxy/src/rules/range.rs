//! Ranges of addresses, and those that no proxy is for.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// `ADDRESS/LENGTH`, or an address alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IpRange {
    ip: IpAddr,
    len: u8,
}

/// Ranges that are not reachable from everywhere, by the registries of RFC 6890 (IANA IPv4 and IPv6
/// Special-Purpose Address Registry, 2025) and groups. What embeds IPv4 for a translator
/// (64:ff9b::/96, 2002::/16) is not among them.
pub(super) const RESERVED: [&str; 25] = [
    "0.0.0.0/8",
    "10.0.0.0/8",
    "100.64.0.0/10",
    "127.0.0.0/8",
    "169.254.0.0/16",
    "172.16.0.0/12",
    "192.0.0.0/24",
    "192.0.2.0/24",
    "192.88.99.0/24",
    "192.168.0.0/16",
    "198.18.0.0/15",
    "198.51.100.0/24",
    "203.0.113.0/24",
    "224.0.0.0/4",
    "240.0.0.0/4",
    "::/127",
    "::ffff:0:0/96",
    "64:ff9b:1::/48",
    "100::/64",
    "2001:db8::/32",
    "3fff::/20",
    "5f00::/16",
    "fc00::/7",
    "fe80::/10",
    "ff00::/8",
];

impl IpRange {
    pub(super) const fn is_ipv4(&self) -> bool {
        self.ip.is_ipv4()
    }
}

impl FromStr for IpRange {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const HOW: &str = "write an IP address, or a range such as 10.0.0.0/8 or fd00::/8";
        let (ip, len) = match text.split_once('/') {
            Some((ip, len)) => (ip, Some(len)),
            None => (text, None),
        };
        let ip: IpAddr = ip.parse().map_err(|_| HOW)?;
        let max = if ip.is_ipv4() { 32 } else { 128 };
        let len = match len {
            None => max,
            Some(len) if len.bytes().all(|b| b.is_ascii_digit()) => {
                len.parse().ok().filter(|len| *len <= max).ok_or(HOW)?
            }
            Some(_) => return Err(HOW),
        };
        // Bits behind the length say nothing.
        let ip = match ip {
            IpAddr::V4(ip) => {
                let mask = u32::MAX.checked_shl(u32::from(32 - len)).unwrap_or(0);
                IpAddr::V4(Ipv4Addr::from_bits(ip.to_bits() & mask))
            }
            IpAddr::V6(ip) => {
                let mask = u128::MAX.checked_shl(u32::from(128 - len)).unwrap_or(0);
                IpAddr::V6(Ipv6Addr::from_bits(ip.to_bits() & mask))
            }
        };
        Ok(Self { ip, len })
    }
}

impl fmt::Display for IpRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.ip, self.len)
    }
}
