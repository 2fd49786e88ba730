//! Deadlines of flows: four wheels of 64 slots, each turning 64 times slower than the one before.
//!
//! One deadline per flow index. Setting and cancelling is a list splice; nothing is touched when
//! a flow moves bytes, because the engine only notes the time then and looks again when the old
//! deadline fires. Reach: 64^4 ticks of 8 ms, 37 hours; later deadlines fire early and are set
//! again by their owner.

use std::time::Duration;

/// Length of a tick.
pub const TICK: Duration = Duration::from_millis(TICK_MS);
const TICK_MS: u64 = 8;
const TICKS_PER_S: u64 = 1000 / TICK_MS;
const SLOT_BITS: u32 = 6;
const SLOTS: usize = 1 << SLOT_BITS;
const LEVELS: usize = 4;
/// Ticks that the top level reaches ahead.
const REACH: u64 = (1 << (SLOT_BITS * LEVELS as u32)) - 1;
const NONE: u32 = u32::MAX;

/// A point in time, counted in ticks since the worker started. It does not wrap in the life of
/// any machine.
pub type Tick = u64;

/// Ticks in a duration, rounded up.
pub fn ticks(duration: Duration) -> Tick {
    let part = u64::from(duration.subsec_nanos()).div_ceil(TICK_MS * 1_000_000);
    duration.as_secs().saturating_mul(TICKS_PER_S).saturating_add(part).min(u64::MAX / 2)
}

#[derive(Clone, Copy)]
struct Node {
    next: u32,
    /// The node before, or a slot number with [`IN_SLOT`] set for the first of a slot.
    prev: u32,
    at: Tick,
}

/// Marks `prev` as a slot number.
const IN_SLOT: u32 = 1 << 31;

/// The wheels.
pub struct Wheel {
    nodes: Vec<Node>,
    heads: [u32; SLOTS * LEVELS],
    /// For each level, which slots are not empty.
    occupied: [u64; LEVELS],
    now: Tick,
}

impl Wheel {
    /// Reserves nodes for flow indexes below `capacity`.
    pub fn with_capacity(capacity: usize) -> Self {
        Self {
            nodes: Vec::with_capacity(capacity),
            heads: [NONE; SLOTS * LEVELS],
            occupied: [0; LEVELS],
            now: 0,
        }
    }

    /// Sets the deadline of `index`, replacing the one it has. A deadline that has passed fires
    /// with the next tick.
    pub fn set(&mut self, index: u32, at: Tick) {
        self.cancel(index);
        while self.nodes.len() <= index as usize {
            self.nodes.push(Node { next: NONE, prev: NONE, at: 0 });
        }
        let at = at.clamp(self.now + 1, self.now + REACH);
        self.nodes[index as usize].at = at;
        self.link(index);
    }

    /// Takes the deadline of `index` away, if it has one.
    pub fn cancel(&mut self, index: u32) {
        let Some(&Node { next, prev, .. }) = self.nodes.get(index as usize) else { return };
        if prev == NONE {
            return;
        }
        if next != NONE {
            self.nodes[next as usize].prev = prev;
        }
        if prev & IN_SLOT != 0 {
            let slot = (prev & !IN_SLOT) as usize;
            self.heads[slot] = next;
            if next == NONE {
                self.occupied[slot / SLOTS] &= !(1 << (slot % SLOTS));
            }
        } else {
            self.nodes[prev as usize].next = next;
        }
        self.nodes[index as usize].prev = NONE;
    }

    /// Moves on to `now` and returns one index whose deadline has passed; call until `None`.
    pub fn expired(&mut self, now: Tick) -> Option<u32> {
        loop {
            let first = self.heads[slot_of(self.now, 0)];
            if first != NONE && self.nodes[first as usize].at <= self.now {
                self.cancel(first);
                return Some(first);
            }
            if self.now >= now {
                return None;
            }
            self.now = self.next_stop(now);
            self.cascade();
        }
    }

    /// Ticks from `now` until something may fire; `None` when no deadline is set.
    ///
    /// It may be early, when a slower wheel has to hand its slot down first.
    pub fn next_in(&self, now: Tick) -> Option<Tick> {
        let stop = self.next_stop(Tick::MAX);
        (stop != Tick::MAX).then(|| stop.saturating_sub(now))
    }

    /// The first tick after this one, and not after `limit`, at which a slot that is not empty
    /// fires or cascades.
    fn next_stop(&self, limit: Tick) -> Tick {
        let mut stop = limit;
        for level in 0..LEVELS {
            let occupied = self.occupied[level];
            if occupied == 0 {
                continue;
            }
            let shift = SLOT_BITS * level as u32;
            let current = self.now >> shift;
            // The slot of the current period is behind us: on this level it means a full turn.
            let ahead =
                occupied.rotate_right(((current + 1) % SLOTS as u64) as u32).trailing_zeros();
            stop = stop.min((current + 1 + u64::from(ahead)) << shift);
        }
        stop
    }

    /// Hands the slots that begin at this tick down to faster wheels.
    fn cascade(&mut self) {
        for level in (1..LEVELS).rev() {
            if self.now & ((1 << (SLOT_BITS * level as u32)) - 1) != 0 {
                continue;
            }
            let slot = slot_of(self.now, level);
            while self.heads[slot] != NONE {
                let index = self.heads[slot];
                self.cancel(index);
                self.link(index);
            }
        }
    }

    fn link(&mut self, index: u32) {
        let at = self.nodes[index as usize].at;
        let distance = at - self.now.min(at);
        let level = (0..LEVELS - 1)
            .find(|&level| distance < 1 << (SLOT_BITS * (level as u32 + 1)))
            .unwrap_or(LEVELS - 1);
        let slot = slot_of(at, level);
        let next = self.heads[slot];
        if next != NONE {
            self.nodes[next as usize].prev = index;
        }
        let node = &mut self.nodes[index as usize];
        node.next = next;
        node.prev = IN_SLOT | slot as u32;
        self.heads[slot] = index;
        self.occupied[level] |= 1 << (slot % SLOTS);
    }
}

const fn slot_of(at: Tick, level: usize) -> usize {
    level * SLOTS + ((at >> (SLOT_BITS as usize * level)) as usize) % SLOTS
}

#[cfg(test)]
mod tests;
