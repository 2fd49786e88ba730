//! The store of salts that were already used.
//!
//! Two generations of exact entries: when the current one is full (SIP004) or old (2022), the
//! other is wiped and takes over, so a salt is remembered for at least one whole generation.
//! A generation is a run of open-addressed tables, each twice the one before, in one block that
//! is reserved at start and touched only as salts arrive: a fresh process pays nothing, and
//! memory follows the number of salts. (A Bloom filter touches twenty random pages per salt.)
//!
//! An entry is a 128-bit keyed hash of the salt: two salts collide with probability 2^-88 at a
//! million entries, and nobody outside the process can aim for it.
//!
//! Cost of a check: two SipHash of 32 bytes and one cache line per table in use, at most 22.

use std::hash::{BuildHasher, RandomState};

/// Slots of a generation's first table.
const FIRST_TABLE: usize = 1 << 10;

/// What the store says of a salt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// New; it is remembered from here on.
    Fresh,
    /// Seen before.
    Seen,
    /// The generation is full and not old enough to give up: refuse.
    Full,
}

/// Remembers salts of authenticated streams.
pub struct ReplaySet {
    hashers: [RandomState; 2],
    generations: [Generation; 2],
    current: usize,
    /// Seconds a generation must live before it may be given up; 0 turns over by count alone.
    lifetime_s: u64,
    /// When the current generation began, Unix seconds; set by the first check.
    began_s: Option<u64>,
}

impl ReplaySet {
    /// A store for SIP004: at least the last `entries` salts are remembered.
    pub fn by_count(entries: usize) -> Self {
        Self::new(entries, 0)
    }

    /// A store for the 2022 edition: each salt is remembered for `lifetime_s` seconds or more;
    /// more than `entries` within that time are refused.
    pub fn by_age(entries: usize, lifetime_s: u64) -> Self {
        Self::new(entries, lifetime_s)
    }

    fn new(entries: usize, lifetime_s: u64) -> Self {
        Self {
            hashers: [RandomState::new(), RandomState::new()],
            generations: [Generation::new(entries), Generation::new(entries)],
            current: 0,
            lifetime_s,
            began_s: None,
        }
    }

    /// Checks a salt and remembers it if it is new, as one step.
    pub fn check_and_insert(&mut self, salt: &[u8], unix_s: u64) -> Verdict {
        self.age(unix_s);
        let tag = self.tag(salt);
        if self.generations.iter().any(|g| g.contains(tag)) {
            return Verdict::Seen;
        }
        if !self.generations[self.current].insert(tag) {
            if self.lifetime_s > 0 {
                return Verdict::Full;
            }
            self.turn_over();
            let inserted = self.generations[self.current].insert(tag);
            assert!(inserted, "a wiped generation has room");
        }
        Verdict::Fresh
    }

    /// Number of salts remembered.
    pub fn len(&self) -> usize {
        self.generations.iter().map(|g| g.len).sum()
    }

    /// Whether no salt is remembered.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn age(&mut self, unix_s: u64) {
        if self.lifetime_s == 0 {
            return;
        }
        let began_s = *self.began_s.get_or_insert(unix_s);
        // A clock set back must not make salts live for ever, nor forget them early.
        if unix_s < began_s {
            self.began_s = Some(unix_s);
        } else if unix_s - began_s > self.lifetime_s {
            self.turn_over();
            self.began_s = Some(unix_s);
        }
    }

    fn turn_over(&mut self) {
        self.current ^= 1;
        self.generations[self.current].wipe();
    }

    fn tag(&self, salt: &[u8]) -> u128 {
        let [high, low] = [&self.hashers[0], &self.hashers[1]].map(|h| h.hash_one(salt));
        // Zero marks an empty slot.
        (u128::from(high) << 64 | u128::from(low)).max(1)
    }
}

struct Generation {
    /// All tables end to end: `FIRST_TABLE`, twice that, and so on. Zeroed memory from the
    /// system, so that a table costs nothing before it is used.
    slots: Vec<u128>,
    /// The table that takes new tags: slots `[table_len - FIRST_TABLE, 2 * table_len - FIRST_TABLE)`.
    table_len: usize,
    /// Tags in that table.
    table_fill: usize,
    len: usize,
}

impl Generation {
    fn new(entries: usize) -> Self {
        let mut last = FIRST_TABLE;
        let mut room = Self::fill_max(last);
        while room < entries {
            last *= 2;
            room += Self::fill_max(last);
        }
        Self {
            slots: vec![0; 2 * last - FIRST_TABLE],
            table_len: FIRST_TABLE,
            table_fill: 0,
            len: 0,
        }
    }

    const fn fill_max(table_len: usize) -> usize {
        table_len / 4 * 3
    }

    fn contains(&self, tag: u128) -> bool {
        let mut table_len = FIRST_TABLE;
        while table_len <= self.table_len {
            if self.slots[self.find(tag, table_len)] == tag {
                return true;
            }
            table_len *= 2;
        }
        false
    }

    /// False when every table is full.
    fn insert(&mut self, tag: u128) -> bool {
        if self.table_fill == Self::fill_max(self.table_len) {
            if 2 * self.table_len - FIRST_TABLE == self.slots.len() {
                return false;
            }
            self.table_len *= 2;
            self.table_fill = 0;
        }
        let slot = self.find(tag, self.table_len);
        self.slots[slot] = tag;
        self.table_fill += 1;
        self.len += 1;
        true
    }

    /// The slot that holds `tag`, or the empty one where it would go. A table is never more than
    /// three quarters full, so the walk ends.
    fn find(&self, tag: u128, table_len: usize) -> usize {
        let table = table_len - FIRST_TABLE;
        let mask = table_len - 1;
        #[allow(clippy::cast_possible_truncation, reason = "the mask keeps the low bits only")]
        let mut at = tag as usize & mask;
        loop {
            let found = self.slots[table + at];
            if found == tag || found == 0 {
                return table + at;
            }
            at = (at + 1) & mask;
        }
    }

    fn wipe(&mut self) {
        let used = 2 * self.table_len - FIRST_TABLE;
        self.slots[..used].fill(0);
        self.table_len = FIRST_TABLE;
        self.table_fill = 0;
        self.len = 0;
    }
}

#[cfg(test)]
mod tests;
