use std::collections::HashMap;

use proptest::prelude::*;

use super::*;

#[test]
fn a_full_slab_gives_the_value_back() {
    let mut slab = Slab::with_capacity(2);
    let capacity = slab.capacity();
    let keys: Vec<Key> = (0..capacity).map(|n| slab.insert(n).unwrap()).collect();
    assert_eq!(slab.insert(99), Err(99));
    assert_eq!(slab.len(), capacity);
    assert_eq!(slab.remove(keys[0]), Some(0));
    let key = slab.insert(99).unwrap();
    assert_eq!(key, Key { index: 0, generation: 1 });
    assert_eq!(slab.capacity(), capacity, "never grows");
}

#[test]
fn no_capacity_holds_nothing() {
    let mut slab = Slab::with_capacity(0);
    assert_eq!(slab.insert(1), Err(1));
    assert!(slab.is_empty());
    assert_eq!(slab.get(Key { index: 0, generation: 0 }), None);
    assert_eq!(slab.keys().count(), 0);
}

#[test]
fn a_stale_key_finds_nothing() {
    let mut slab = Slab::with_capacity(4);
    let old = slab.insert("old").unwrap();
    assert_eq!(slab.remove(old), Some("old"));
    assert_eq!((slab.remove(old), slab.get(old), slab.key_at(old.index)), (None, None, None));
    let new = slab.insert("new").unwrap();
    assert_eq!(new.index, old.index);
    assert_eq!(slab.get_mut(old), None);
    assert_eq!((slab.remove(old), slab.get(old)), (None, None));
    assert_eq!(slab.key_at(old.index), Some(new));
    assert_eq!(slab.get(new), Some(&"new"));
    assert_eq!(slab.get(Key { index: 3, generation: 0 }), None, "never used");
    assert_eq!(slab.get(Key { index: u32::MAX, generation: 0 }), None, "out of range");
}

#[test]
fn generations_wrap_at_24_bits() {
    let mut slab = Slab::with_capacity(1);
    let first = slab.insert(0).unwrap();
    slab.slots[0].generation = GENERATION_MASK;
    assert_eq!(slab.get(first), None);
    let last = slab.key_at(0).unwrap();
    assert_eq!(last.generation, GENERATION_MASK);
    assert_eq!(slab.remove(last), Some(0));
    let next = slab.insert(1).unwrap();
    assert_eq!(next.generation, 0);
    assert_eq!(slab.get(last), None);
}

#[test]
fn the_slot_freed_last_is_used_first() {
    let mut slab = Slab::with_capacity(8);
    let keys: Vec<Key> = (0..5).map(|n| slab.insert(n).unwrap()).collect();
    for n in [1, 4, 2] {
        slab.remove(keys[n]);
    }
    let indexes: Vec<u32> = (0..4).map(|n| slab.insert(n).unwrap().index).collect();
    assert_eq!(indexes, [2, 4, 1, 5], "warm memory first, fresh memory last");
}

proptest! {
    #[test]
    fn agrees_with_a_map(steps in prop::collection::vec((0..5_u8, any::<prop::sample::Index>()), 0..400)) {
        let mut slab = Slab::with_capacity(16);
        let capacity = slab.capacity();
        let mut model = HashMap::new();
        // Every key ever given out; those not in the model are stale.
        let mut given: Vec<Key> = Vec::new();
        for (n, (kind, at)) in steps.into_iter().enumerate() {
            if kind < 3 || given.is_empty() {
                match slab.insert(n) {
                    Ok(key) => {
                        prop_assert!(!given.contains(&key), "a key was given twice");
                        given.push(key);
                        model.insert((key.index, key.generation), n);
                    }
                    Err(back) => prop_assert_eq!((back, model.len()), (n, capacity)),
                }
            } else {
                let key = given[at.index(given.len())];
                let id = (key.index, key.generation);
                prop_assert_eq!(slab.get(key), model.get(&id));
                if let Some(value) = slab.get_mut(key) {
                    *value += 1000;
                    *model.get_mut(&id).unwrap() += 1000;
                }
                if kind == 4 {
                    prop_assert_eq!(slab.remove(key), model.remove(&id));
                }
            }
            prop_assert_eq!(slab.len(), model.len());
            prop_assert_eq!(slab.is_empty(), model.is_empty());
        }
        let mut keys: Vec<_> = slab.keys().map(|k| (k.index, k.generation)).collect();
        let mut expected: Vec<_> = model.keys().copied().collect();
        keys.sort_unstable();
        expected.sort_unstable();
        prop_assert_eq!(keys, expected);
        for key in given {
            prop_assert_eq!(slab.get(key), model.get(&(key.index, key.generation)));
        }
    }
}
