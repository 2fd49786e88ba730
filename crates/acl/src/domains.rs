//! Domains of all lists in one hash table, probed once for each label of a name.
//!
//! The hash runs from the end of a name to its start, so that every suffix is hashed in one pass
//! and the last match is the most specific. Names come from the network but the table is fixed by
//! the file: nobody but its author can make long chains.

use crate::acl::List;

/// How a domain rule covers its domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cover {
    /// The host of exactly this name.
    Host,
    /// The domain and everything below it.
    Tree,
    /// Everything below the domain.
    Below,
}

/// Lists with a rule for a name, as bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lists(u16);

impl Lists {
    /// True if a rule of `list` matched.
    pub(crate) const fn has(self, list: List) -> bool {
        self.0 & (1 << list as u16) != 0
    }
}

/// Bits of an entry: four lists each for `|host`, `||domain` itself, and below `||domain`.
const HOST_SHIFT: u16 = 0;
const SELF_SHIFT: u16 = 4;
const BELOW_SHIFT: u16 = 8;
const LISTS_MASK: u16 = 0xf;

#[derive(Clone, Copy, Debug)]
struct Entry {
    start: u32,
    len: u8,
    bits: u16,
}

/// Domains, first collected and then indexed.
#[derive(Debug, Default)]
pub(crate) struct Domains {
    /// The text of all domains, one after the other.
    text: Vec<u8>,
    entries: Vec<Entry>,
    /// Open addressing: an index into `entries` plus 1, or 0. A power of two, at most half full.
    slots: Box<[u32]>,
    /// What any entry has: look-ups for lists without domains end at once.
    all: u16,
}

impl Domains {
    /// Adds a rule. `domain` is lower case and at most 253 bytes long.
    pub(crate) fn push(&mut self, list: List, cover: Cover, domain: &str) {
        let bits = match cover {
            Cover::Host => 1 << HOST_SHIFT,
            Cover::Tree => 1 << SELF_SHIFT | 1 << BELOW_SHIFT,
            Cover::Below => 1 << BELOW_SHIFT,
        } << list as u16;
        let (Ok(start), Ok(len)) = (u32::try_from(self.text.len()), u8::try_from(domain.len()))
        else {
            unreachable!("files and domains have a longest length");
        };
        self.text.extend_from_slice(domain.as_bytes());
        self.entries.push(Entry { start, len, bits });
        self.all |= bits;
    }

    /// Indexes what was collected; nothing is found before.
    pub(crate) fn finish(&mut self) {
        self.text.shrink_to_fit();
        let mut slots = vec![0u32; (self.entries.len() * 2).next_power_of_two()];
        let entries = std::mem::take(&mut self.entries);
        for entry in entries {
            let domain = self.domain(entry);
            let hash = domain.iter().rev().fold(HASH_START, |hash, &byte| step(hash, byte));
            let mut at = fold(hash);
            loop {
                at &= slots.len() - 1;
                match slots[at].checked_sub(1).map(|index| index as usize) {
                    None => {
                        self.entries.push(entry);
                        slots[at] = self.entries.len() as u32;
                        break;
                    }
                    Some(index) if self.domain(self.entries[index]) == domain => {
                        self.entries[index].bits |= entry.bits;
                        break;
                    }
                    Some(_) => at += 1,
                }
            }
        }
        self.entries.shrink_to_fit();
        self.slots = slots.into_boxed_slice();
    }

    /// The lists whose rule for `name` is the most specific, among `wanted`.
    pub(crate) fn find(&self, name: &str, wanted: &[List]) -> Lists {
        if !self.concern(wanted) {
            return Lists::default();
        }
        let wanted = mask(wanted);
        let mut best = 0;
        let name = name.as_bytes();
        let mut hash = HASH_START;
        for (at, &byte) in name.iter().enumerate().rev() {
            hash = step(hash, byte);
            let is_whole = at == 0;
            if !is_whole && name[at - 1] != b'.' {
                continue;
            }
            let bits = self.bits(hash, &name[at..]);
            let lists = if !is_whole {
                bits >> BELOW_SHIFT & wanted
            } else if bits >> HOST_SHIFT & wanted != 0 {
                bits >> HOST_SHIFT & wanted
            } else {
                bits >> SELF_SHIFT & wanted
            } & LISTS_MASK;
            if lists != 0 {
                best = lists;
            }
        }
        Lists(best)
    }

    /// True if one of `lists` has a domain.
    pub(crate) fn concern(&self, lists: &[List]) -> bool {
        (self.all | self.all >> SELF_SHIFT | self.all >> BELOW_SHIFT) & mask(lists) != 0
    }

    /// Different domains.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    fn bits(&self, hash: u64, domain: &[u8]) -> u16 {
        let mut at = fold(hash);
        loop {
            at &= self.slots.len().wrapping_sub(1);
            let Some(index) = self.slots.get(at).and_then(|slot| slot.checked_sub(1)) else {
                return 0;
            };
            let entry = self.entries[index as usize];
            if self.domain(entry) == domain {
                return entry.bits;
            }
            at += 1;
        }
    }

    fn domain(&self, entry: Entry) -> &[u8] {
        &self.text[entry.start as usize..][..usize::from(entry.len)]
    }
}

fn mask(lists: &[List]) -> u16 {
    lists.iter().fold(0, |bits, &list| bits | 1 << list as u16)
}

/// FNV-1a, 64 bits.
const HASH_START: u64 = 0xcbf2_9ce4_8422_2325;

const fn step(hash: u64, byte: u8) -> u64 {
    (hash ^ byte as u64).wrapping_mul(0x100_0000_01b3)
}

/// The low bits of FNV are its weakest.
const fn fold(hash: u64) -> usize {
    (hash ^ hash >> 32) as usize
}
