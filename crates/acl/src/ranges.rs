//! Sets of addresses as disjoint sorted ranges.
//!
//! IPv4 is kept in its IPv4-mapped IPv6 form, so that a rule of either family matches an address
//! written in the other. A prefix that only happens to contain the mapped addresses, such as
//! `::/0`, means IPv6: [`Ranges::push`] cuts the mapped block out of it.

use std::net::IpAddr;

/// `::ffff:0:0`, the first IPv4-mapped address (RFC 4291 §2.5.5.2).
const MAPPED_FIRST: u128 = 0xffff_0000_0000;
const MAPPED_LAST: u128 = 0xffff_ffff_ffff;

/// The number that an address is compared as.
pub(crate) fn number(addr: IpAddr) -> u128 {
    match addr {
        IpAddr::V4(addr) => MAPPED_FIRST | u128::from(addr.to_bits()),
        IpAddr::V6(addr) => addr.to_bits(),
    }
}

/// Ranges while they are collected.
#[derive(Debug, Default)]
pub(crate) struct Ranges(Vec<(u128, u128)>);

impl Ranges {
    /// Adds `first` to `last`, both inclusive.
    pub(crate) fn push(&mut self, first: u128, last: u128) {
        if first < MAPPED_FIRST && last >= MAPPED_FIRST
            || first <= MAPPED_LAST && last > MAPPED_LAST
        {
            if first < MAPPED_FIRST {
                self.0.push((first, MAPPED_FIRST - 1));
            }
            if last > MAPPED_LAST {
                self.0.push((MAPPED_LAST + 1, last));
            }
        } else {
            self.0.push((first, last));
        }
    }

    /// Sorts and merges what was collected.
    pub(crate) fn finish(mut self) -> AddressSet {
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

/// A set of addresses. Sorted; no two ranges touch.
#[derive(Debug, Default)]
pub(crate) struct AddressSet(Box<[(u128, u128)]>);

impl AddressSet {
    /// True if one of the ranges holds `addr`.
    pub(crate) fn contains(&self, addr: IpAddr) -> bool {
        let number = number(addr);
        let after = self.0.partition_point(|&(first, _)| first <= number);
        after.checked_sub(1).and_then(|i| self.0.get(i)).is_some_and(|&(_, last)| number <= last)
    }

    /// True if no address is in it.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Ranges after merging.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}
