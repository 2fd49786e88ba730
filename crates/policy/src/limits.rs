//! Counting what clients, users, rules and listeners use, and when it is enough.
//!
//! State machines that know no clock: `now_ms` is milliseconds since any fixed moment, the same for
//! all calls, and never goes back (a step back counts as no time at all). Memory is reserved when a
//! [`Meter`] is made; nothing grows, nothing allocates after that. Nothing here locks either: a
//! worker has a meter of its own, or the caller puts one behind a lock.

mod bucket;
mod meter;
mod quota;
mod table;

use std::fmt;
use std::net::IpAddr;

pub use bucket::{Bucket, Grant};
pub use meter::{Meter, MeterLimits, Refusal};
pub use quota::{Allowance, Calendar, QuotaBook, QuotaFileError, Spent, Usage};
pub use table::{Subject, Table};

/// So many events in so many seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rate {
    count: u32,
    seconds: u32,
}

impl Rate {
    /// `count` events in `seconds`; `None` if either is 0.
    pub const fn new(count: u32, seconds: u32) -> Option<Self> {
        if count == 0 || seconds == 0 { None } else { Some(Self { count, seconds }) }
    }

    /// Events.
    pub const fn count(self) -> u32 {
        self.count
    }

    /// In so many seconds.
    pub const fn seconds(self) -> u32 {
        self.seconds
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.count, self.seconds)
    }
}

/// So many bytes in so many seconds; the bytes may also come at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ByteRate {
    bytes: u64,
    seconds: u32,
}

impl ByteRate {
    /// `bytes` in `seconds`; `None` if either is 0.
    pub const fn new(bytes: u64, seconds: u32) -> Option<Self> {
        if bytes == 0 || seconds == 0 { None } else { Some(Self { bytes, seconds }) }
    }

    /// Bytes; the burst as well.
    pub const fn bytes(self) -> u64 {
        self.bytes
    }

    /// In so many seconds.
    pub const fn seconds(self) -> u32 {
        self.seconds
    }
}

impl fmt::Display for ByteRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.bytes, self.seconds)
    }
}

/// The number that a client is counted by: its IPv4 address, or the /64 of its IPv6 address, which
/// is what a household or a machine is given.
pub fn client_key(addr: IpAddr) -> u128 {
    match addr.to_canonical() {
        IpAddr::V4(addr) => crate::address::number(addr.into()),
        IpAddr::V6(addr) => addr.to_bits() >> 64 << 64,
    }
}
