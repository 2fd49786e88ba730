//! A short list of addresses held inline, and the order in which to try them.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};

/// Addresses that an [`AddrList`] holds; more are of no use to a dial that is bounded in time.
pub const ADDRESSES_MAX: usize = 16;

/// Which family a dial tries first.
///
/// Every order interleaves the families (RFC 8305 §4, First Address Family Count 1), so that a
/// family without a route costs one attempt and not one per address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// The user did not say: IPv6 first when there are both (RFC 6724, RFC 8305). Apart from
    /// [`Order::Ipv6First`] so that the engine can put IPv4 first on a host without an IPv6 route.
    #[default]
    System,
    /// IPv6 first.
    Ipv6First,
    /// IPv4 first.
    Ipv4First,
}

/// Up to [`ADDRESSES_MAX`] different addresses, in order.
///
/// IPv4-mapped IPv6 addresses are held as the IPv4 address they reach, so policy sees one form.
#[derive(Clone, Copy)]
pub struct AddrList {
    len: u8,
    addrs: [IpAddr; ADDRESSES_MAX],
}

impl AddrList {
    /// An empty list.
    pub const fn new() -> Self {
        Self { len: 0, addrs: [IpAddr::V4(Ipv4Addr::UNSPECIFIED); ADDRESSES_MAX] }
    }

    /// Adds `addr` unless the list is full or has it; says whether it was added.
    pub fn push(&mut self, addr: IpAddr) -> bool {
        let addr = addr.to_canonical();
        if self.as_slice().contains(&addr) {
            return false;
        }
        let Some(slot) = self.addrs.get_mut(usize::from(self.len)) else {
            return false;
        };
        *slot = addr;
        self.len += 1;
        true
    }

    /// The addresses.
    pub fn as_slice(&self) -> &[IpAddr] {
        &self.addrs[..self.len.into()]
    }

    /// The addresses by value.
    pub fn iter(&self) -> impl Iterator<Item = IpAddr> + '_ {
        self.as_slice().iter().copied()
    }

    /// Number of addresses.
    pub const fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The same addresses with the families taking turns; each family keeps its own order.
    pub fn ordered(&self, order: Order) -> Self {
        let v6 = self.iter().filter(IpAddr::is_ipv6);
        let v4 = self.iter().filter(IpAddr::is_ipv4);
        match order {
            Order::System | Order::Ipv6First => Self::interleaved(v6, v4),
            Order::Ipv4First => Self::interleaved(v4, v6),
        }
    }

    /// Takes one from `first`, one from `second`, and so on until both end or the list is full.
    pub(crate) fn interleaved(
        mut first: impl Iterator<Item = IpAddr>,
        mut second: impl Iterator<Item = IpAddr>,
    ) -> Self {
        let mut list = Self::new();
        loop {
            let (a, b) = (first.next(), second.next());
            if a.is_none() && b.is_none() {
                return list;
            }
            for addr in a.into_iter().chain(b) {
                list.push(addr);
            }
        }
    }
}

impl Default for AddrList {
    fn default() -> Self {
        Self::new()
    }
}

impl PartialEq for AddrList {
    fn eq(&self, other: &Self) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl Eq for AddrList {}

impl fmt::Debug for AddrList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_slice().fmt(f)
    }
}

impl FromIterator<IpAddr> for AddrList {
    /// Keeps the first [`ADDRESSES_MAX`] different addresses.
    fn from_iter<I: IntoIterator<Item = IpAddr>>(addrs: I) -> Self {
        let mut list = Self::new();
        for addr in addrs {
            list.push(addr);
        }
        list
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(text: &str) -> AddrList {
        text.split(' ').filter(|t| !t.is_empty()).map(|t| t.parse().unwrap()).collect()
    }

    #[test]
    fn orders_interleave_the_families() {
        for (given, order, wanted) in [
            ("1.1.1.1 2.2.2.2 3.3.3.3 ::1 ::2", Order::System, "::1 1.1.1.1 ::2 2.2.2.2 3.3.3.3"),
            ("1.1.1.1 ::1", Order::Ipv6First, "::1 1.1.1.1"),
            ("::1 ::2 ::3 1.1.1.1", Order::Ipv4First, "1.1.1.1 ::1 ::2 ::3"),
            ("1.1.1.1 2.2.2.2", Order::Ipv6First, "1.1.1.1 2.2.2.2"),
            ("::1", Order::Ipv4First, "::1"),
            ("", Order::System, ""),
        ] {
            assert_eq!(list(given).ordered(order), list(wanted), "{given} {order:?}");
        }
    }

    #[test]
    fn drops_doubles_and_overflow() {
        let mut many: AddrList = (0..40).map(|i| IpAddr::from([10, 0, 0, i])).collect();
        assert_eq!(many.len(), ADDRESSES_MAX);
        assert!(!many.push(IpAddr::from([10, 0, 1, 0])));
        assert_eq!(list("1.1.1.1 1.1.1.1 ::ffff:1.1.1.1"), list("1.1.1.1"));
    }
}
