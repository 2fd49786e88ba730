//! The sliding window over packet ids: each id of a session is accepted once.
//!
//! A ring of 64-bit blocks, one bit for each id (the scheme of RFC 6479): moving on to a higher id
//! clears whole blocks and shifts nothing. Ids start anywhere and come in any order; an id more
//! than 1,984 behind the highest one is refused, whether it was seen or not.
//!
//! Cost: one cache line and a few instructions; 264 bytes for each session. 1,984 ids behind the
//! highest are 2 ms of traffic at a million packets a second, far beyond what paths reorder by.

const BLOCKS: usize = 32;

/// Which packet ids of a session were accepted.
#[derive(Clone)]
pub struct PacketWindow(Ring<BLOCKS>);

impl Default for PacketWindow {
    fn default() -> Self {
        Self::new()
    }
}

impl PacketWindow {
    /// Nothing was accepted.
    pub const fn new() -> Self {
        Self(Ring::new())
    }

    /// For a session that comes back after it was forgotten: `highest` and all ids below it are
    /// refused.
    pub const fn resume_after(highest: u64) -> Self {
        Self(Ring::resume_after(highest))
    }

    /// Whether [`PacketWindow::accept`] would take this id; changes nothing.
    ///
    /// `u64::MAX` is never taken: no id could follow it.
    #[inline]
    pub const fn check(&self, id: u64) -> bool {
        self.0.check(id)
    }

    /// Takes an id that is new and not too far behind. Only a packet that passed every other
    /// check may come here (SIP022), or a forger could move the window.
    #[inline]
    pub fn accept(&mut self, id: u64) -> bool {
        self.0.accept(id)
    }

    /// The highest id that was accepted.
    pub const fn highest(&self) -> Option<u64> {
        self.0.highest()
    }
}

#[derive(Clone)]
struct Ring<const N: usize> {
    highest: u64,
    /// Bit `id % 64` of block `id / 64 % N`. The blocks of ids above `highest` hold ids that have
    /// fallen out of the window, and are cleared when `highest` reaches them.
    blocks: [u64; N],
}

impl<const N: usize> Ring<N> {
    /// The block of the highest id is only partly in use.
    const BEHIND_MAX: u64 = (N as u64 - 1) * 64;

    const fn new() -> Self {
        Self { highest: 0, blocks: [0; N] }
    }

    const fn resume_after(highest: u64) -> Self {
        let mut blocks = [u64::MAX; N];
        blocks[Self::block(highest)] = u64::MAX >> (63 - highest % 64);
        Self { highest, blocks }
    }

    const fn block(id: u64) -> usize {
        (id / 64 % N as u64) as usize
    }

    const fn check(&self, id: u64) -> bool {
        if id > self.highest {
            return id != u64::MAX;
        }
        self.highest - id <= Self::BEHIND_MAX && self.blocks[Self::block(id)] >> (id % 64) & 1 == 0
    }

    fn accept(&mut self, id: u64) -> bool {
        if !self.check(id) {
            return false;
        }
        if id > self.highest {
            let steps = (id / 64 - self.highest / 64).min(N as u64);
            for step in 1..=steps {
                self.blocks[Self::block(self.highest + step * 64)] = 0;
            }
            self.highest = id;
        }
        self.blocks[Self::block(id)] |= 1 << (id % 64);
        true
    }

    const fn highest(&self) -> Option<u64> {
        // Id 0 is the one that the initial value of `highest` does not tell from none.
        if self.highest == 0 && self.blocks[0] & 1 == 0 { None } else { Some(self.highest) }
    }
}

#[cfg(test)]
mod tests;
