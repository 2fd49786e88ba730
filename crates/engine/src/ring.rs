//! A queue of flow keys that holds each flow at most once, of fixed size.

use crate::slab::Key;

/// Flows that have work left after their budget, or that wait for buffers.
pub struct Ring {
    keys: Vec<Key>,
    head: usize,
    len: usize,
}

impl Ring {
    /// Reserves room for `capacity` keys, at least 1.
    pub fn with_capacity(capacity: usize) -> Self {
        Self { keys: Vec::with_capacity(capacity.max(1)), head: 0, len: 0 }
    }

    /// Appends a key. The caller keeps a flag per flow, so that no flow is in twice and the ring
    /// can't overflow.
    ///
    /// # Panics
    /// When it overflows.
    pub fn push(&mut self, key: Key) {
        let capacity = self.keys.capacity();
        assert!(self.len < capacity, "a ring holds each flow once");
        let at = (self.head + self.len) % capacity;
        // Slots fill in order the first time round, so `at` is never past the end.
        if at == self.keys.len() {
            self.keys.push(key);
        } else {
            self.keys[at] = key;
        }
        self.len += 1;
    }

    /// Takes the oldest key.
    pub fn pop(&mut self) -> Option<Key> {
        if self.len == 0 {
            return None;
        }
        let key = self.keys[self.head];
        self.head = (self.head + 1) % self.keys.capacity();
        self.len -= 1;
        Some(key)
    }

    /// Keys in the queue.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether the queue is empty.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }
}

#[cfg(test)]
mod tests;
