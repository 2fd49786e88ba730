//! The salts of SIP004 datagrams, for all workers of a process.
//!
//! A SIP004 packet has nothing that tells it from a copy but its salt. A worker asks after it has
//! opened a packet, and notes those of its own packets: both directions share a key, so a packet
//! played back to its sender would open.
//!
//! Cost: a hash of the salt, an uncontended lock, one cache line. A line holds the last eight salts
//! that fell to it, the newest first. The lines fill alike, so a store made for `n` salts remembers
//! about the last `n`, some a little longer and some less. (The exact store of streams would touch
//! up to twenty lines, a third of all the time a datagram takes.)

use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, PoisonError};

/// Parts with a lock each: workers ask for every datagram.
const SHARDS: usize = 16;
/// Salts in a cache line.
const WAYS: usize = 8;

/// As many hashes as a cache line holds; 0 for none.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line([u64; WAYS]);

/// Salts seen lately.
pub struct PacketSalts {
    shards: [Mutex<Box<[Line]>>; SHARDS],
    hasher: RandomState,
}

impl PacketSalts {
    /// Reserves room for about `count` salts, 8 bytes each, touched as they come.
    pub fn new(count: usize) -> Self {
        let lines = (count / SHARDS / WAYS).next_power_of_two();
        let shard = || Mutex::new(vec![Line([0; WAYS]); lines].into_boxed_slice());
        Self { shards: std::array::from_fn(|_| shard()), hasher: RandomState::new() }
    }

    /// Notes a salt; false when it is among those noted. An empty one, of a method without salts,
    /// is always new.
    pub(super) fn is_new(&self, salt: &[u8]) -> bool {
        if salt.is_empty() {
            return true;
        }
        // Zero marks a free place.
        let tag = self.hasher.hash_one(salt).max(1);
        let [shard, rest @ ..] = tag.to_le_bytes();
        // A worker that panicked ends the process.
        let mut lines =
            self.shards[usize::from(shard) % SHARDS].lock().unwrap_or_else(PoisonError::into_inner);
        let [a, b, c, ..] = rest;
        let at = u32::from_le_bytes([a, b, c, 0]) as usize & (lines.len() - 1);
        let Line(tags) = &mut lines[at];
        if tags.contains(&tag) {
            return false;
        }
        let [a, b, c, d, e, f, g, _] = *tags;
        *tags = [tag, a, b, c, d, e, f, g];
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn salt(n: u32) -> [u8; 32] {
        let mut salt = [0; 32];
        salt[..4].copy_from_slice(&n.to_le_bytes());
        salt
    }

    #[test]
    fn a_salt_is_new_once() {
        let salts = PacketSalts::new(1 << 12);
        for n in 0..500 {
            assert!(salts.is_new(&salt(n)), "{n}");
            assert!(!salts.is_new(&salt(n)), "{n}");
        }
        assert!((0..500).all(|n| !salts.is_new(&salt(n))));
    }

    #[test]
    fn the_newest_are_remembered_and_the_oldest_make_room() {
        let count = 1 << 14;
        let salts = PacketSalts::new(count);
        let total = 4 * u32::try_from(count).unwrap();
        assert!((0..total).all(|n| salts.is_new(&salt(n))), "no two of them are alike");
        let newest = total - u32::try_from(count / 4).unwrap()..total;
        let missed = newest.clone().filter(|&n| salts.is_new(&salt(n))).count();
        // A line that eight newer ones have fallen to meanwhile has lost it.
        assert!(missed < newest.len() / 50, "{missed} of {} forgotten early", newest.len());
        assert!(salts.is_new(&salt(0)), "the oldest is forgotten");
    }

    #[test]
    fn methods_without_salts_have_nothing_to_repeat() {
        let salts = PacketSalts::new(16);
        assert!(salts.is_new(&[]) && salts.is_new(&[]));
    }
}
