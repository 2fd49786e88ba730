//! A table of fixed size, keyed by whom is counted. When it is full, the entry that was used
//! longest ago makes room, if it may.
//!
//! Memory is reserved once. A look-up is one keyed hash and, at a load of at most a half, a
//! probe or two. Clients choose their addresses, so the hash has a secret in it.

/// Whom something is counted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Subject {
    /// A client, by [`client_key`](super::client_key).
    Client(u128),
    /// A user, by a keyed hash of the name that is the same all over the process.
    User(u128),
    /// A rule, by its number.
    Rule(u32),
    /// A listener, by its number.
    Listener(u32),
    /// A client under a rule: keys as above.
    RuleClient(u32, u128),
    /// A user under a rule: keys as above.
    RuleUser(u32, u128),
}

impl Subject {
    const fn parts(self) -> (u128, u64) {
        match self {
            Self::Client(key) => (key, 1 << 32),
            Self::User(key) => (key, 2 << 32),
            Self::Rule(number) => (0, 3 << 32 | number as u64),
            Self::Listener(number) => (0, 4 << 32 | number as u64),
            Self::RuleClient(number, key) => (key, 5 << 32 | number as u64),
            Self::RuleUser(number, key) => (key, 6 << 32 | number as u64),
        }
    }
}

/// No entry.
const NIL: u32 = u32::MAX;
/// Entries that are asked to make room before a newcomer is turned away.
const EVICTIONS_TRIED: usize = 8;

#[derive(Debug)]
struct Entry<V> {
    subject: Subject,
    value: V,
    /// Neighbours in the order of use.
    newer: u32,
    older: u32,
}

/// A map of fixed size from [`Subject`] to `V`.
#[derive(Debug)]
pub struct Table<V> {
    entries: Vec<Entry<V>>,
    capacity: usize,
    /// Entry numbers; a power of two, at least twice the capacity.
    index: Box<[u32]>,
    seed: [u64; 2],
    newest: u32,
    oldest: u32,
}

impl<V> Table<V> {
    /// A table of at most `capacity` entries (1 to 2^24 are taken; others are clamped). `seed` is
    /// random and secret.
    pub fn new(capacity: usize, seed: [u64; 2]) -> Self {
        let capacity = capacity.clamp(1, 1 << 24);
        Self {
            entries: Vec::with_capacity(capacity),
            capacity,
            index: vec![NIL; (capacity * 2).next_power_of_two()].into(),
            seed,
            newest: NIL,
            oldest: NIL,
        }
    }

    /// How many entries there are.
    pub const fn len(&self) -> usize {
        self.entries.len()
    }

    /// True if there is none.
    pub const fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The entry of `subject`, without counting as a use.
    pub fn peek(&self, subject: Subject) -> Option<&V> {
        let at = self.find(subject)?;
        self.entries.get(at as usize).map(|entry| &entry.value)
    }

    /// The entry of `subject`, which counts as a use.
    pub fn find_mut(&mut self, subject: Subject) -> Option<&mut V> {
        let at = self.find(subject)?;
        self.touch(at);
        self.entries.get_mut(at as usize).map(|entry| &mut entry.value)
    }

    /// The entry of `subject`, which is made by `new` if there is none. If the table is full, the
    /// entry used longest ago that is `idle` makes room; `None` if none of the oldest few is.
    pub fn entry(
        &mut self,
        subject: Subject,
        new: impl FnOnce() -> V,
        mut idle: impl FnMut(&mut V) -> bool,
    ) -> Option<&mut V> {
        if let Some(at) = self.find(subject) {
            self.touch(at);
            return self.entries.get_mut(at as usize).map(|entry| &mut entry.value);
        }
        let at = if self.entries.len() < self.capacity {
            let at = number(self.entries.len());
            self.entries.push(Entry { subject, value: new(), newer: NIL, older: NIL });
            at
        } else {
            let at = self.evictable(&mut idle)?;
            self.unlink(at);
            self.unindex(at);
            *self.at_mut(at) = Entry { subject, value: new(), newer: NIL, older: NIL };
            at
        };
        self.link_newest(at);
        self.insert_index(subject, at);
        self.entries.get_mut(at as usize).map(|entry| &mut entry.value)
    }

    /// Every entry.
    pub fn iter(&self) -> impl Iterator<Item = (Subject, &V)> {
        self.entries.iter().map(|entry| (entry.subject, &entry.value))
    }

    fn evictable(&mut self, idle: &mut impl FnMut(&mut V) -> bool) -> Option<u32> {
        let mut at = self.oldest;
        for _ in 0..EVICTIONS_TRIED {
            let entry = self.entries.get_mut(at as usize)?;
            if idle(&mut entry.value) {
                return Some(at);
            }
            at = entry.newer;
        }
        None
    }

    fn slot(&self, subject: Subject) -> usize {
        let (key, kind) = subject.parts();
        #[expect(clippy::cast_possible_truncation, reason = "both halves are mixed in")]
        let (low, high) = (key as u64, (key >> 64) as u64);
        let [first, second] = self.seed;
        // Two rounds of a folded multiplication, each with half of the secret.
        let mixed = fold(fold(low ^ first, high ^ second) ^ kind, first.rotate_left(32) ^ second);
        #[expect(clippy::cast_possible_truncation, reason = "masked to the index")]
        return mixed as usize & (self.index.len() - 1);
    }

    fn next_slot(&self, slot: usize) -> usize {
        (slot + 1) & (self.index.len() - 1)
    }

    fn find(&self, subject: Subject) -> Option<u32> {
        let mut slot = self.slot(subject);
        loop {
            let &at = self.index.get(slot)?;
            if self.entries.get(at as usize)?.subject == subject {
                return Some(at);
            }
            slot = self.next_slot(slot);
        }
    }

    fn insert_index(&mut self, subject: Subject, at: u32) {
        let mut slot = self.slot(subject);
        while self.index_at(slot) != NIL {
            slot = self.next_slot(slot);
        }
        self.set_index(slot, at);
    }

    /// Takes an entry out of the index, and moves up those that stand behind it because of it.
    fn unindex(&mut self, at: u32) {
        let mut hole = self.slot(self.at(at).subject);
        while self.index_at(hole) != at {
            hole = self.next_slot(hole);
        }
        let mut slot = self.next_slot(hole);
        while self.index_at(slot) != NIL {
            let home = self.slot(self.at(self.index_at(slot)).subject);
            let mask = self.index.len() - 1;
            let is_behind_hole =
                (slot.wrapping_sub(home) & mask) >= (slot.wrapping_sub(hole) & mask);
            if is_behind_hole {
                self.set_index(hole, self.index_at(slot));
                hole = slot;
            }
            slot = self.next_slot(slot);
        }
        self.set_index(hole, NIL);
    }

    fn index_at(&self, slot: usize) -> u32 {
        self.index.get(slot).copied().expect("slots are masked to the index")
    }

    fn set_index(&mut self, slot: usize, at: u32) {
        *self.index.get_mut(slot).expect("slots are masked to the index") = at;
    }

    fn at(&self, at: u32) -> &Entry<V> {
        self.entries.get(at as usize).expect("the index and the list name entries that exist")
    }

    fn at_mut(&mut self, at: u32) -> &mut Entry<V> {
        self.entries.get_mut(at as usize).expect("the index and the list name entries that exist")
    }

    fn touch(&mut self, at: u32) {
        if self.newest != at {
            self.unlink(at);
            self.link_newest(at);
        }
    }

    fn unlink(&mut self, at: u32) {
        let (newer, older) = (self.at(at).newer, self.at(at).older);
        match newer {
            NIL => self.newest = older,
            newer => self.at_mut(newer).older = older,
        }
        match older {
            NIL => self.oldest = newer,
            older => self.at_mut(older).newer = newer,
        }
    }

    fn link_newest(&mut self, at: u32) {
        let before = std::mem::replace(&mut self.newest, at);
        let entry = self.at_mut(at);
        entry.newer = NIL;
        entry.older = before;
        match before {
            NIL => self.oldest = at,
            before => self.at_mut(before).newer = at,
        }
    }
}

fn number(index: usize) -> u32 {
    // The capacity is at most 2^24.
    u32::try_from(index).unwrap_or(NIL)
}

const fn fold(a: u64, b: u64) -> u64 {
    // An odd constant keeps a zero on one side from hiding the other.
    let product = (a as u128 | 1) * ((b ^ 0x9e37_79b9_7f4a_7c15) as u128 | 1);
    #[expect(clippy::cast_possible_truncation, reason = "both halves are folded in")]
    return (product as u64) ^ ((product >> 64) as u64) ^ a.rotate_left(17);
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    fn subject(key: u8) -> Subject {
        match key % 3 {
            0 => Subject::Client(u128::from(key) << 64),
            1 => Subject::User(u128::from(key)),
            _ => Subject::Rule(u32::from(key)),
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]

        /// The same as a list in the order of use.
        #[test]
        fn behaves_like_a_list(
            capacity in 1usize..12,
            steps in prop::collection::vec((any::<u8>(), any::<bool>(), any::<bool>()), 1..200),
        ) {
            let mut table = Table::new(capacity, [7, 11]);
            // Newest at the back; `true` for an entry that may not go.
            let mut model: VecDeque<(Subject, bool)> = VecDeque::new();
            for (key, makes, is_busy) in steps {
                let subject = subject(key % 24);
                let known = model.iter().position(|entry| entry.0 == subject);
                if !makes {
                    let found = table.find_mut(subject).copied();
                    prop_assert_eq!(found, known.map(|at| model[at].1));
                    if let Some(entry) = known.and_then(|at| model.remove(at)) {
                        model.push_back(entry);
                    }
                    continue;
                }
                let made = table.entry(subject, || is_busy, |busy| !*busy).copied();
                let expected = if let Some(at) = known {
                    let entry = model.remove(at).unwrap();
                    model.push_back(entry);
                    Some(entry.1)
                } else {
                    let room = if model.len() < capacity {
                        true
                    } else {
                        let idle = model.iter().take(EVICTIONS_TRIED).position(|entry| !entry.1);
                        idle.map(|at| model.remove(at)).is_some()
                    };
                    room.then(|| model.push_back((subject, is_busy))).map(|()| is_busy)
                };
                prop_assert_eq!(made, expected);
                prop_assert_eq!(table.len(), model.len());
                for (subject, busy) in &model {
                    prop_assert_eq!(table.peek(*subject), Some(busy));
                }
            }
        }
    }

    #[test]
    fn neighbouring_addresses_spread() {
        let mut table = Table::new(1 << 12, [0x0123_4567_89ab_cdef, 0xfedc_ba98_7654_3210]);
        for i in 0..1u128 << 12 {
            table.entry(Subject::Client(0xffff_0a00_0000 + i), || (), |()| false).unwrap();
        }
        let mut longest = 0;
        let mut run = 0;
        for slot in &table.index {
            run = if *slot == NIL { 0 } else { run + 1 };
            longest = longest.max(run);
        }
        // A random hash at this load has a longest run of about forty.
        assert!(longest < 150, "{longest}");
    }
}
