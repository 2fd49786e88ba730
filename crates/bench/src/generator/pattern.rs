//! Payload whose every byte depends on its position, so that loss, repetition and reordering show.
//!
//! Word *n* of a stream is splitmix64 of `seed + n`. Filling or checking costs about as much as
//! copying, yet the timed passes do not pay even that: they send the same buffer again and again,
//! and a separate pass with this pattern checks the path in every round.

/// Length of a pattern word.
const WORD: usize = 8;

/// Produces or checks a pattern piece by piece.
#[derive(Clone, Debug)]
pub(crate) struct Pattern {
    seed: u64,
    position: u64,
}

impl Pattern {
    /// The pattern of `seed` from its start.
    pub(crate) const fn new(seed: u64) -> Self {
        Self { seed, position: 0 }
    }

    /// Fills `out` with the next bytes.
    pub(crate) fn fill(&mut self, out: &mut [u8]) {
        self.each(out.len(), |at, bytes| {
            out[at..at + bytes.len()].copy_from_slice(bytes);
            true
        });
    }

    /// Whether `bytes` are the next bytes.
    pub(crate) fn check(&mut self, bytes: &[u8]) -> bool {
        self.each(bytes.len(), |at, expected| bytes[at..at + expected.len()] == *expected)
    }

    /// Hands out the next `len` bytes in pieces with their offset until `piece` says no.
    fn each(&mut self, len: usize, mut piece: impl FnMut(usize, &[u8]) -> bool) -> bool {
        let mut at = 0;
        while at < len {
            let word = self.word(self.position / WORD as u64).to_le_bytes();
            let skip = (self.position % WORD as u64) as usize;
            let take = (WORD - skip).min(len - at);
            if !piece(at, &word[skip..skip + take]) {
                return false;
            }
            at += take;
            self.position += take as u64;
        }
        true
    }

    const fn word(&self, index: u64) -> u64 {
        let mut z =
            self.seed.wrapping_add(index.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_split_gives_the_same_bytes() {
        let mut whole = [0; 1000];
        Pattern::new(7).fill(&mut whole);
        for step in [1, 3, 8, 13, 999] {
            let mut pieces = Pattern::new(7);
            assert!(whole.chunks(step).all(|piece| pieces.check(piece)));
        }
    }

    #[test]
    fn notices_damage_shift_and_another_seed() {
        let mut whole = [0; 100];
        Pattern::new(7).fill(&mut whole);
        assert!(!Pattern::new(8).check(&whole));
        assert!(!Pattern::new(7).check(&whole[1..]));
        whole[50] ^= 1;
        assert!(!Pattern::new(7).check(&whole));
    }
}
