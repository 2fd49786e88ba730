//! A fixed number of slots, reserved at start and touched only as they are used.
//!
//! A key holds a generation, so that an event that was fetched for a flow that has ended since
//! finds nothing instead of the flow that has taken its place.

/// Names one value of a [`Slab`] for as long as it lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    /// Slot number, below the capacity.
    pub index: u32,
    /// How often the slot has been reused, modulo 2^24.
    pub generation: u32,
}

/// Bits of a generation, what is left of a token beside an index and a kind.
const GENERATION_MASK: u32 = (1 << 24) - 1;

struct Slot<T> {
    generation: u32,
    value: Option<T>,
}

/// Values in slots with stable numbers.
pub struct Slab<T> {
    slots: Vec<Slot<T>>,
    /// Free slot numbers, the one freed last on top: its memory is warm.
    free: Vec<u32>,
    len: usize,
}

impl<T> Slab<T> {
    /// Reserves room for `capacity` values; the memory is not touched.
    pub fn with_capacity(capacity: usize) -> Self {
        Self { slots: Vec::with_capacity(capacity), free: Vec::with_capacity(capacity), len: 0 }
    }

    /// Puts a value in and returns its key, or gives it back when the slab is full.
    pub fn insert(&mut self, value: T) -> Result<Key, T> {
        let index = match self.free.pop() {
            Some(index) => index,
            None if self.slots.len() < self.slots.capacity() => {
                self.slots.push(Slot { generation: 0, value: None });
                (self.slots.len() - 1) as u32
            }
            None => return Err(value),
        };
        let slot = &mut self.slots[index as usize];
        slot.value = Some(value);
        self.len += 1;
        Ok(Key { index, generation: slot.generation })
    }

    /// The value of a key that is still alive.
    pub fn get(&self, key: Key) -> Option<&T> {
        let slot = self.slots.get(key.index as usize)?;
        if slot.generation == key.generation { slot.value.as_ref() } else { None }
    }

    /// The value of a key that is still alive, to change it.
    pub fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        let slot = self.slots.get_mut(key.index as usize)?;
        if slot.generation == key.generation { slot.value.as_mut() } else { None }
    }

    /// The key of the value in a slot.
    pub fn key_at(&self, index: u32) -> Option<Key> {
        let slot = self.slots.get(index as usize)?;
        slot.value.as_ref()?;
        Some(Key { index, generation: slot.generation })
    }

    /// Takes a value out.
    pub fn remove(&mut self, key: Key) -> Option<T> {
        let slot = self.slots.get_mut(key.index as usize)?;
        if slot.generation != key.generation {
            return None;
        }
        let value = slot.value.take()?;
        slot.generation = (slot.generation + 1) & GENERATION_MASK;
        self.free.push(key.index);
        self.len -= 1;
        Some(value)
    }

    /// Number of values.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no value.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How many values fit.
    pub const fn capacity(&self) -> usize {
        self.slots.capacity()
    }

    /// The keys of all values, for work off the hot path.
    pub fn keys(&self) -> impl Iterator<Item = Key> {
        (0..u32::try_from(self.slots.len()).unwrap_or(u32::MAX)).filter_map(|i| self.key_at(i))
    }
}

#[cfg(test)]
mod tests;
