//! A bounded cache of lookup outcomes: open addressing over a slab, with an exact LRU list.
//!
//! All memory is reserved by [`Cache::new`]; lookup and insert touch one or two cache lines of
//! the index, one entry, and its list neighbours. The index hash is keyed (SipHash with random
//! keys), so that a client who picks names cannot pick collisions.
//!
//! How long an outcome stays: addresses for their TTL, at least 1 s (a TTL of 0 still serves the
//! burst that asked for it) and at most 1 h (an address that moved is found again even if its
//! owner forgot to lower the TTL); "no" for the SOA's time up to 300 s (RFC 2308 §5), and not at
//! all when the server gave none; failures for 2 s (RFC 9520 §3.2 asks for at least 1 s), which
//! keeps a dead nameserver from holding every new flow for the whole lookup timeout. A failure
//! never replaces addresses that are still good.

use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::BuildHasher;
use std::time::{Duration, Instant};

use crate::addresses::AddrList;
use crate::name::Name;
use crate::outcome::{Failure, Outcome};

/// Shortest time an address is kept, in seconds.
pub const POSITIVE_TTL_MIN_S: u32 = 1;
/// Longest time an address is kept, in seconds.
pub const POSITIVE_TTL_MAX_S: u32 = 3600;
/// Longest time a "no" is kept, in seconds.
pub const NEGATIVE_TTL_MAX_S: u32 = 300;
/// Time a failure is kept, in seconds.
pub const FAILURE_TTL_S: u32 = 2;

const NONE: u32 = u32::MAX;

/// What the cache counted since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStats {
    /// Lookups answered.
    pub hits: u64,
    /// Lookups not answered.
    pub misses: u64,
    /// Entries that were still good and made room for others.
    pub evictions: u64,
}

/// Outcomes by name, at most as many as it was made for.
pub struct Cache {
    hasher: RandomState,
    capacity: usize,
    /// Entry numbers by hash, linear probing; at most half full. Length is a power of two.
    index: Box<[u32]>,
    /// Grows to `capacity` within memory reserved at construction.
    entries: Vec<Entry>,
    /// Most recently used entry.
    newest: u32,
    /// Least recently used entry.
    oldest: u32,
    /// Vacant entries, chained through `older`.
    vacant: u32,
    len: usize,
    stats: CacheStats,
}

struct Entry {
    hash: u64,
    expires: Instant,
    newer: u32,
    older: u32,
    value: Value,
    name: Name,
}

#[allow(
    clippy::large_enum_variant,
    reason = "addresses are held inline: nothing here may allocate"
)]
#[derive(Clone, Copy)]
enum Value {
    Found(AddrList),
    NoSuchName,
    NoAddress,
    Failed(Failure),
}

impl Cache {
    /// Reserves a cache for `capacity` names; 0 keeps nothing.
    ///
    /// # Panics
    /// When `capacity` is over 2^24.
    pub fn new(capacity: usize) -> Self {
        assert!(capacity <= 1 << 24, "a cache holds at most 2^24 names");
        Self {
            hasher: RandomState::new(),
            capacity,
            index: vec![NONE; (capacity * 2).next_power_of_two()].into_boxed_slice(),
            entries: Vec::with_capacity(capacity),
            newest: NONE,
            oldest: NONE,
            vacant: NONE,
            len: 0,
            stats: CacheStats::default(),
        }
    }

    /// The outcome kept for `name`, with the time it has left.
    pub fn lookup(&mut self, now: Instant, name: &Name) -> Option<Outcome> {
        let hash = self.hasher.hash_one(name.as_bytes());
        let Some(number) = self.find(hash, name) else {
            self.stats.misses += 1;
            return None;
        };
        let entry = &self.entries[number as usize];
        let (left, value) = (entry.expires.saturating_duration_since(now), entry.value);
        if left.is_zero() {
            self.remove(number);
            self.stats.misses += 1;
            return None;
        }
        self.unlink(number);
        self.link_newest(number);
        self.stats.hits += 1;
        Some(value.outcome(left))
    }

    /// Keeps `outcome` for `name` if it may be kept, in place of what is there.
    pub fn insert(&mut self, now: Instant, name: &Name, outcome: &Outcome) {
        let Some((value, ttl_s)) = Value::kept(outcome) else {
            return;
        };
        if self.capacity == 0 {
            return;
        }
        let expires = now + Duration::from_secs(ttl_s.into());
        let hash = self.hasher.hash_one(name.as_bytes());
        if let Some(number) = self.find(hash, name) {
            let entry = &mut self.entries[number as usize];
            let holds_good = matches!(entry.value, Value::Found(_)) && entry.expires > now;
            if matches!(value, Value::Failed(_)) && holds_good {
                return;
            }
            entry.value = value;
            entry.expires = expires;
            self.unlink(number);
            self.link_newest(number);
            return;
        }
        if self.len == self.capacity {
            if self.entries[self.oldest as usize].expires > now {
                self.stats.evictions += 1;
            }
            self.remove(self.oldest);
        }
        let entry = Entry { hash, expires, newer: NONE, older: NONE, value, name: *name };
        let number = self.place(entry);
        self.index_insert(hash, number);
        self.link_newest(number);
        self.len += 1;
    }

    /// Forgets every entry that holds no address.
    pub fn clear_negative(&mut self) {
        let mut number = self.newest;
        while number != NONE {
            let entry = &self.entries[number as usize];
            let older = entry.older;
            if !matches!(entry.value, Value::Found(_)) {
                self.remove(number);
            }
            number = older;
        }
    }

    /// Number of entries, expired ones included until something finds them.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no entries.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Number of entries it was made for.
    pub const fn capacity(&self) -> usize {
        self.capacity
    }

    /// Counters since it was made.
    pub const fn stats(&self) -> CacheStats {
        self.stats
    }

    fn home(&self, hash: u64) -> usize {
        // Truncation is meant: the mask keeps fewer bits than any usize has.
        hash as usize & (self.index.len() - 1)
    }

    fn find(&self, hash: u64, name: &Name) -> Option<u32> {
        let mask = self.index.len() - 1;
        let mut at = self.home(hash);
        // Ends at a free place: the index is at most half full. With capacity 0 it is all free.
        while self.index[at] != NONE {
            let entry = &self.entries[self.index[at] as usize];
            if entry.hash == hash && entry.name == *name {
                return Some(self.index[at]);
            }
            at = (at + 1) & mask;
        }
        None
    }

    fn index_insert(&mut self, hash: u64, number: u32) {
        let mask = self.index.len() - 1;
        let mut at = self.home(hash);
        while self.index[at] != NONE {
            at = (at + 1) & mask;
        }
        self.index[at] = number;
    }

    /// Frees the place of `number` and moves later entries of the run back (no tombstones).
    fn index_remove(&mut self, number: u32) {
        let mask = self.index.len() - 1;
        let mut hole = self.home(self.entries[number as usize].hash);
        while self.index[hole] != number {
            hole = (hole + 1) & mask;
        }
        let mut at = hole;
        loop {
            at = (at + 1) & mask;
            let next = self.index[at];
            if next == NONE {
                break;
            }
            let home = self.home(self.entries[next as usize].hash);
            // It may move when the hole lies between its home and where it is, cyclically.
            if (at.wrapping_sub(home) & mask) >= (at.wrapping_sub(hole) & mask) {
                self.index[hole] = next;
                hole = at;
            }
        }
        self.index[hole] = NONE;
    }

    fn place(&mut self, entry: Entry) -> u32 {
        if self.vacant == NONE {
            self.entries.push(entry);
            return u32::try_from(self.entries.len() - 1).expect("at most 2^24 entries");
        }
        let number = self.vacant;
        let slot = &mut self.entries[number as usize];
        self.vacant = slot.older;
        *slot = entry;
        number
    }

    fn remove(&mut self, number: u32) {
        self.index_remove(number);
        self.unlink(number);
        self.entries[number as usize].older = self.vacant;
        self.vacant = number;
        self.len -= 1;
    }

    fn unlink(&mut self, number: u32) {
        let Entry { newer, older, .. } = self.entries[number as usize];
        match newer {
            NONE => self.newest = older,
            newer => self.entries[newer as usize].older = older,
        }
        match older {
            NONE => self.oldest = newer,
            older => self.entries[older as usize].newer = newer,
        }
    }

    fn link_newest(&mut self, number: u32) {
        let before = self.newest;
        let entry = &mut self.entries[number as usize];
        entry.newer = NONE;
        entry.older = before;
        match before {
            NONE => self.oldest = number,
            before => self.entries[before as usize].newer = number,
        }
        self.newest = number;
    }
}

impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Names stay out: they are what users visit.
        f.debug_struct("Cache")
            .field("capacity", &self.capacity)
            .field("len", &self.len)
            .field("stats", &self.stats)
            .finish_non_exhaustive()
    }
}

impl Value {
    /// What to keep of `outcome` and for how many seconds.
    fn kept(outcome: &Outcome) -> Option<(Self, u32)> {
        match *outcome {
            Outcome::Found { addrs, ttl_s } => {
                let ttl_s = ttl_s.clamp(POSITIVE_TTL_MIN_S, POSITIVE_TTL_MAX_S);
                (!addrs.is_empty()).then_some((Self::Found(addrs), ttl_s))
            }
            Outcome::NoSuchName { ttl_s: 0 } | Outcome::NoAddress { ttl_s: 0 } => None,
            Outcome::NoSuchName { ttl_s } => {
                Some((Self::NoSuchName, ttl_s.min(NEGATIVE_TTL_MAX_S)))
            }
            Outcome::NoAddress { ttl_s } => Some((Self::NoAddress, ttl_s.min(NEGATIVE_TTL_MAX_S))),
            Outcome::Failed(Failure::Name(_)) => None,
            Outcome::Failed(failure) => Some((Self::Failed(failure), FAILURE_TTL_S)),
        }
    }

    fn outcome(self, left: Duration) -> Outcome {
        // Rounded up: an answer that is still good never says 0.
        let ttl_s = left.as_millis().div_ceil(1000).try_into().unwrap_or(u32::MAX).max(1);
        match self {
            Self::Found(addrs) => Outcome::Found { addrs, ttl_s },
            Self::NoSuchName => Outcome::NoSuchName { ttl_s },
            Self::NoAddress => Outcome::NoAddress { ttl_s },
            Self::Failed(failure) => Outcome::Failed(failure),
        }
    }
}

#[cfg(test)]
mod tests;
