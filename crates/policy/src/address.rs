//! Addresses as rules compare them, and sets of them.
//!
//! An address is compared as a 128-bit number, IPv4 in its IPv4-mapped form, so that a set holds
//! both families in one sorted array. `0.0.0.0/0` is all of IPv4 and no IPv6; `::/0` is all of
//! IPv6, and [`Prefix::bounds`] leaves the mapped block out of it.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// `::ffff:0:0`, the first IPv4-mapped address (RFC 4291 §2.5.5.2).
const MAPPED_FIRST: u128 = 0xffff_0000_0000;
const MAPPED_LAST: u128 = 0xffff_ffff_ffff;

/// The address that a connection to `ip` reaches on Linux; judge and dial this one.
///
/// IPv4-mapped (RFC 4291 §2.5.5.2) and IPv4-compatible (§2.5.5.1) addresses are the IPv4 address
/// in them; `0.0.0.0` and `::` are this host's loopback.
pub const fn reached(ip: IpAddr) -> IpAddr {
    let folded = match ip {
        IpAddr::V4(v4) => IpAddr::V4(v4),
        IpAddr::V6(v6) => fold(v6),
    };
    match folded {
        IpAddr::V4(v4) if v4.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(v6) if v6.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        other => other,
    }
}

const fn fold(ip: Ipv6Addr) -> IpAddr {
    let bits = ip.to_bits();
    // `::` and `::1` are addresses of their own.
    if bits > 1 && bits <= u32::MAX as u128 {
        #[expect(clippy::cast_possible_truncation, reason = "compared with u32::MAX above")]
        return IpAddr::V4(Ipv4Addr::from_bits(bits as u32));
    }
    IpAddr::V6(ip).to_canonical()
}

/// The number that an address is compared as; IPv4-mapped IPv6 and IPv4 are the same.
pub const fn number(ip: IpAddr) -> u128 {
    match ip {
        IpAddr::V4(ip) => MAPPED_FIRST | ip.to_bits() as u128,
        IpAddr::V6(ip) => ip.to_bits(),
    }
}

/// An address and how many of its leading bits count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Prefix {
    addr: IpAddr,
    len: u8,
}

/// Why a text is no [`Prefix`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PrefixError {
    /// The part before `/` is no address.
    Address,
    /// The part after `/` is no number, or larger than the address has bits.
    Len,
}

impl fmt::Display for PrefixError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Address => "not an address; write 192.0.2.0/24, 192.0.2.1 or 2001:db8::/32",
            Self::Len => "the number after / is from 0 to 32 for IPv4 and to 128 for IPv6",
        })
    }
}

impl std::error::Error for PrefixError {}

impl Prefix {
    /// All of IPv4.
    pub const V4: Self = Self { addr: IpAddr::V4(Ipv4Addr::UNSPECIFIED), len: 0 };
    /// All of IPv6.
    pub const V6: Self = Self { addr: IpAddr::V6(Ipv6Addr::UNSPECIFIED), len: 0 };

    /// A prefix of `len` bits; `None` if `addr` has fewer. Bits of `addr` after it do not matter,
    /// and a prefix of IPv4-mapped addresses is one of IPv4.
    pub fn new(addr: IpAddr, len: u8) -> Option<Self> {
        match addr {
            IpAddr::V4(v4) => {
                let mask = u32::MAX.checked_shl(32_u32.checked_sub(len.into())?).unwrap_or(0);
                Some(Self { addr: Ipv4Addr::from_bits(v4.to_bits() & mask).into(), len })
            }
            IpAddr::V6(v6) => match (v6.to_ipv4_mapped(), len.checked_sub(96)) {
                (Some(v4), Some(len)) => Self::new(v4.into(), len),
                _ => {
                    let mask = u128::MAX.checked_shl(128_u32.checked_sub(len.into())?).unwrap_or(0);
                    Some(Self { addr: Ipv6Addr::from_bits(v6.to_bits() & mask).into(), len })
                }
            },
        }
    }

    /// One address.
    pub fn host(addr: IpAddr) -> Self {
        let addr = addr.to_canonical();
        Self { addr, len: if addr.is_ipv4() { 32 } else { 128 } }
    }

    /// Reads `ADDRESS/LEN` or `ADDRESS`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Self, PrefixError> {
        let Some((addr, len)) = text.split_once('/') else {
            return Ok(Self::host(text.parse().map_err(|_| PrefixError::Address)?));
        };
        let addr: IpAddr = addr.parse().map_err(|_| PrefixError::Address)?;
        let is_number = !len.is_empty() && len.bytes().all(|byte| byte.is_ascii_digit());
        let len = len.parse().ok().filter(|_| is_number).ok_or(PrefixError::Len)?;
        Self::new(addr, len).ok_or(PrefixError::Len)
    }

    /// The first address.
    pub const fn addr(self) -> IpAddr {
        self.addr
    }

    /// How many leading bits count: up to 32 for IPv4, to 128 for IPv6.
    #[expect(clippy::len_without_is_empty, reason = "a prefix is never empty")]
    pub const fn len(self) -> u8 {
        self.len
    }

    /// True if `addr` is in it; IPv4-mapped addresses count as IPv4.
    pub fn contains(self, addr: IpAddr) -> bool {
        let number = number(addr.to_canonical());
        let is_family = addr.to_canonical().is_ipv4() == self.addr.is_ipv4();
        let (first, last) = self.bounds();
        is_family && first <= number && number <= last
    }

    /// First and last number, both inclusive. For a prefix of IPv6 that is short enough to hold
    /// the IPv4-mapped block these are its ends, and [`SetBuilder::add_prefix`] leaves the block out.
    pub fn bounds(self) -> (u128, u128) {
        let bits = if self.addr.is_ipv4() { 32 } else { 128 };
        let host = u32::from(bits - self.len);
        let first = number(self.addr);
        let rest = 1u128.checked_shl(host).map_or(u128::MAX, |size| size - 1);
        (first, first | rest)
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.addr, self.len)
    }
}

/// Ranges while they are collected.
#[derive(Clone, Debug, Default)]
pub struct SetBuilder(Vec<(u128, u128)>);

impl SetBuilder {
    /// Adds numbers from `first` to `last`, both inclusive; nothing if they are the wrong way round.
    pub fn add_range(&mut self, first: u128, last: u128) {
        if first <= last {
            self.0.push((first, last));
        }
    }

    /// Adds the addresses of one family that `prefix` holds.
    pub fn add_prefix(&mut self, prefix: Prefix) {
        let (first, last) = prefix.bounds();
        if prefix.addr.is_ipv6() && first < MAPPED_FIRST && last > MAPPED_LAST {
            self.add_range(first, MAPPED_FIRST - 1);
            self.add_range(MAPPED_LAST + 1, last);
        } else {
            self.add_range(first, last);
        }
    }

    /// Adds everything in `set`.
    pub fn add_set(&mut self, set: &AddressSet) {
        self.0.extend_from_slice(&set.0);
    }

    /// Sorts and merges what was collected.
    pub fn finish(mut self) -> AddressSet {
        self.0.sort_unstable();
        self.0.dedup_by(|next, kept| {
            let joins = next.0 <= kept.1.saturating_add(1);
            if joins {
                kept.1 = kept.1.max(next.1);
            }
            joins
        });
        AddressSet(self.0.into_boxed_slice())
    }
}

/// A set of addresses: sorted ranges, no two of which touch. Immutable.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AddressSet(Box<[(u128, u128)]>);

impl AddressSet {
    /// The addresses of both families.
    pub fn all() -> Self {
        Self(Box::new([(0, u128::MAX)]))
    }

    /// The addresses in any of `prefixes`.
    pub fn of_prefixes(prefixes: impl IntoIterator<Item = Prefix>) -> Self {
        let mut builder = SetBuilder::default();
        prefixes.into_iter().for_each(|prefix| builder.add_prefix(prefix));
        builder.finish()
    }

    /// True if `addr` is in it. One binary search.
    pub fn contains(&self, addr: IpAddr) -> bool {
        self.contains_number(number(addr))
    }

    pub(crate) fn contains_number(&self, number: u128) -> bool {
        // Most rules have one range or two.
        let after = if self.0.len() <= 4 {
            self.0.iter().take_while(|&&(first, _)| first <= number).count()
        } else {
            self.0.partition_point(|&(first, _)| first <= number)
        };
        after.checked_sub(1).and_then(|i| self.0.get(i)).is_some_and(|&(_, last)| number <= last)
    }

    /// True if no address is in it.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// True if every address is in it.
    pub fn is_all(&self) -> bool {
        *self.0 == [(0, u128::MAX)]
    }

    /// True if one whole family is in it.
    pub fn holds_family(&self) -> bool {
        [Prefix::V4, Prefix::V6].iter().any(|&family| Self::of_prefixes([family]).is_subset(self))
    }

    /// True if `other` has every address of this set.
    pub fn is_subset(&self, other: &Self) -> bool {
        // Ranges of a set do not touch, so one of ours lies in one of theirs or not at all.
        self.0.iter().all(|&(first, last)| {
            let after = other.0.partition_point(|&(theirs, _)| theirs <= first);
            after.checked_sub(1).and_then(|i| other.0.get(i)).is_some_and(|&(_, end)| last <= end)
        })
    }

    /// The addresses that `other` does not have.
    #[must_use]
    pub fn minus(&self, other: &Self) -> Self {
        let mut builder = SetBuilder::default();
        for &(first, last) in &self.0 {
            let mut next = Some(first);
            for &(from, to) in &other.0 {
                let Some(start) = next.filter(|&start| start <= last && from <= last) else {
                    break;
                };
                if to < start {
                    continue;
                }
                if let Some(before) = from.checked_sub(1) {
                    builder.add_range(start, before);
                }
                next = to.checked_add(1);
            }
            if let Some(start) = next {
                builder.add_range(start, last);
            }
        }
        builder.finish()
    }

    /// The addresses that are in both.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        self.minus(&self.minus(other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(text: &str) -> Prefix {
        Prefix::parse(text).unwrap()
    }

    #[test]
    fn folds_to_what_is_reached() {
        for (asked, reaches) in [
            ("0.0.0.0", "127.0.0.1"),
            ("::", "::1"),
            ("::1", "::1"),
            ("::ffff:0.0.0.0", "127.0.0.1"),
            ("::ffff:127.0.0.1", "127.0.0.1"),
            ("::127.0.0.1", "127.0.0.1"),
            ("::2", "0.0.0.2"),
            ("192.0.2.1", "192.0.2.1"),
            ("2001:db8::1", "2001:db8::1"),
        ] {
            assert_eq!(reached(asked.parse().unwrap()), reaches.parse::<IpAddr>().unwrap());
        }
    }

    #[test]
    fn reads_prefixes() {
        for (text, shown) in [
            ("10.1.2.3/8", "10.0.0.0/8"),
            ("0.0.0.0/0", "0.0.0.0/0"),
            ("192.0.2.1", "192.0.2.1/32"),
            ("::/0", "::/0"),
            ("2001:db8::1", "2001:db8::1/128"),
            ("::ffff:10.0.0.0/104", "10.0.0.0/8"),
            ("::ffff:0:0/96", "0.0.0.0/0"),
        ] {
            assert_eq!(prefix(text).to_string(), shown);
        }
        for text in
            ["", "/8", "10.0.0.0/33", "10.0.0.0/", "::/129", "10.0.0.0/+8", "0/0", "10/8", "a"]
        {
            assert!(Prefix::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn families_do_not_mix() {
        let v4 = AddressSet::of_prefixes([Prefix::V4]);
        let v6 = AddressSet::of_prefixes([Prefix::V6]);
        for text in ["0.0.0.0", "255.255.255.255", "::ffff:1.2.3.4"] {
            let addr = text.parse().unwrap();
            assert!(v4.contains(addr) && !v6.contains(addr), "{text}");
            assert!(Prefix::V4.contains(addr) && !Prefix::V6.contains(addr), "{text}");
        }
        for text in ["::", "::1", "ffff::", "2001:db8::"] {
            let addr = text.parse().unwrap();
            assert!(!v4.contains(addr) && v6.contains(addr), "{text}");
        }
        assert!(AddressSet::of_prefixes([Prefix::V4, Prefix::V6]).is_all());
        assert!(v4.holds_family() && v6.holds_family() && !v4.is_all());
    }

    #[test]
    fn sets_subtract_and_compare() {
        let set = |texts: &[&str]| AddressSet::of_prefixes(texts.iter().map(|text| prefix(text)));
        let all = AddressSet::all();
        let hole = all.minus(&set(&["10.0.0.0/8", "::1"]));
        assert!(!hole.contains("10.0.0.1".parse().unwrap()));
        assert!(hole.contains("11.0.0.0".parse().unwrap()));
        assert!(hole.contains("::2".parse().unwrap()) && hole.contains("::".parse().unwrap()));
        assert!(hole.is_subset(&all) && !all.is_subset(&hole));
        assert_eq!(all.minus(&hole), set(&["10.0.0.0/8", "::1"]));
        assert_eq!(all.and(&hole), hole);
        assert!(all.minus(&all).is_empty());
        assert_eq!(
            set(&["10.0.0.0/8"]).minus(&set(&["9.0.0.0/8", "11.0.0.0/8"])),
            set(&["10.0.0.0/8"])
        );
        assert!(set(&["10.0.0.0/9", "10.128.0.0/9"]) == set(&["10.0.0.0/8"]));
    }
}
