//! Credentials that were found right a moment ago, so that the next connection of the same user
//! need not wait for a hash.
//!
//! An entry is a keyed hash (BLAKE3 with a key drawn at start) of name and password, and when it
//! ends: nothing in memory can be guessed against without the key. Failures are not kept, so a
//! password that was set a moment ago works at once. Memory is reserved at start; four entries
//! share a place, and the one that ends first makes room.
//!
//! Cost: one BLAKE3 of 2 to 514 bytes, below 2 us, and one cache line or two.

use std::fmt;

use zeroize::Zeroizing;

/// Entries that share a place.
const WAYS: usize = 4;

#[derive(Clone, Copy, Default)]
struct Entry {
    tag: [u8; 16],
    /// 0 is an entry that was never used.
    ends_ms: u64,
}

/// A key that hashes of one process are made with. Wiped when dropped.
pub struct TagKey(Zeroizing<[u8; 32]>);

impl fmt::Debug for TagKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TagKey(hidden)")
    }
}

impl TagKey {
    /// Takes random bytes.
    pub fn new(random: [u8; 32]) -> Self {
        Self(Zeroizing::new(random))
    }

    /// The number of a user for limits and quotas, the same as long as the key is.
    pub fn user(&self, name: &[u8]) -> u128 {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        hasher.update(b"user").update(name);
        u128::from_le_bytes(first_half(&hasher))
    }

    /// A hash of name and password. The length in front keeps `a`, `bc` and `ab`, `c` apart.
    fn credential(&self, name: &[u8], password: &[u8]) -> [u8; 16] {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        hasher
            .update(b"pass")
            .update(&(name.len() as u64).to_le_bytes())
            .update(name)
            .update(password);
        first_half(&hasher)
    }
}

fn first_half(hasher: &blake3::Hasher) -> [u8; 16] {
    let mut out = [0; 16];
    hasher.finalize_xof().fill(&mut out);
    out
}

/// Credentials that were right. `now_ms` is milliseconds since any fixed moment.
pub struct Verified {
    key: TagKey,
    entries: Box<[[Entry; WAYS]]>,
    ttl_ms: u64,
}

impl fmt::Debug for Verified {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Verified").field("ttl_ms", &self.ttl_ms).finish_non_exhaustive()
    }
}

impl Verified {
    /// Room for about `capacity` credentials (4 to 2^20 are taken; others are clamped), each kept
    /// for `ttl_ms`; 0 keeps none.
    pub fn new(capacity: usize, ttl_ms: u64, key: TagKey) -> Self {
        let places = (capacity.clamp(WAYS, 1 << 20) / WAYS).next_power_of_two();
        Self { key, entries: vec![[Entry::default(); WAYS]; places].into(), ttl_ms }
    }

    /// True if this name and password were found right, and not too long ago.
    pub fn knows(&self, name: &[u8], password: &[u8], now_ms: u64) -> bool {
        if self.ttl_ms == 0 {
            return false;
        }
        let tag = self.key.credential(name, password);
        // Only who has the key can aim at a tag, so the comparison need not hide where it ends.
        self.entries[self.place(&tag)]
            .iter()
            .any(|entry| now_ms < entry.ends_ms && entry.tag == tag)
    }

    /// Remembers a name and a password that were found right.
    pub fn remember(&mut self, name: &[u8], password: &[u8], now_ms: u64) {
        if self.ttl_ms == 0 {
            return;
        }
        let tag = self.key.credential(name, password);
        let place = self.place(&tag);
        let entry = Entry { tag, ends_ms: now_ms.saturating_add(self.ttl_ms) };
        let ways = &mut self.entries[place];
        let known = ways.iter().position(|known| known.tag == tag);
        let first_to_end = (0..WAYS).min_by_key(|&way| ways[way].ends_ms);
        if let Some(way) = known.or(first_to_end) {
            ways[way] = entry;
        }
    }

    /// Forgets everything, as a reload does.
    pub fn clear(&mut self) {
        self.entries.fill([Entry::default(); WAYS]);
    }

    /// Changes how long new entries are kept; what is there stays as long as it was to.
    pub const fn set_ttl_ms(&mut self, ttl_ms: u64) {
        self.ttl_ms = ttl_ms;
    }

    fn place(&self, tag: &[u8; 16]) -> usize {
        let [a, b, c, d, ..] = *tag;
        u32::from_le_bytes([a, b, c, d]) as usize & (self.entries.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache(capacity: usize, ttl_ms: u64) -> Verified {
        Verified::new(capacity, ttl_ms, TagKey::new([9; 32]))
    }

    #[test]
    fn knows_what_was_right_until_it_ends() {
        let mut cache = cache(64, 1000);
        assert!(!cache.knows(b"ann", b"secret", 0), "an empty entry knows nobody");
        cache.remember(b"ann", b"secret", 500);
        for (name, password, now, is) in [
            (&b"ann"[..], &b"secret"[..], 500, true),
            (b"ann", b"secret", 1499, true),
            (b"ann", b"secret", 1500, false),
            (b"ann", b"secre", 500, false),
            (b"an", b"nsecret", 500, false),
            (b"bob", b"secret", 500, false),
            (b"", b"", 500, false),
        ] {
            assert_eq!(cache.knows(name, password, now), is, "{name:?} {password:?} {now}");
        }
        cache.remember(b"ann", b"secret", 1000);
        assert!(cache.knows(b"ann", b"secret", 1999), "kept anew");
        cache.clear();
        assert!(!cache.knows(b"ann", b"secret", 1000));
    }

    #[test]
    fn without_a_time_to_live_it_keeps_nothing() {
        let mut cache = cache(64, 0);
        cache.remember(b"ann", b"secret", 0);
        assert!(!cache.knows(b"ann", b"secret", 0));
        cache.set_ttl_ms(10);
        cache.remember(b"ann", b"secret", 5);
        cache.set_ttl_ms(0);
        assert!(!cache.knows(b"ann", b"secret", 5));
    }

    #[test]
    fn the_first_to_end_makes_room() {
        let mut cache = cache(4, 1000);
        for (user, now) in [(1u8, 40), (2, 10), (3, 30), (4, 20)] {
            cache.remember(&[user], b"x", now);
        }
        cache.remember(&[5], b"x", 50);
        let known: Vec<u8> = (1..=5).filter(|&user| cache.knows(&[user], b"x", 60)).collect();
        assert_eq!(known, [1, 3, 4, 5]);
    }

    #[test]
    fn keys_keep_processes_apart() {
        let [first, second] = [[1; 32], [2; 32]].map(TagKey::new);
        assert_eq!(first.user(b"ann"), first.user(b"ann"));
        assert_ne!(first.user(b"ann"), second.user(b"ann"));
        assert_ne!(first.user(b"ann"), first.user(b"bob"));
        assert_eq!(format!("{first:?}"), "TagKey(hidden)");
    }
}
