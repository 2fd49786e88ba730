use std::collections::{HashSet, VecDeque};

use proptest::prelude::*;

use super::*;

fn salt(n: u64) -> [u8; 32] {
    let mut salt = [0x5a; 32];
    salt[..8].copy_from_slice(&n.to_le_bytes());
    salt
}

/// Salts that a generation of `entries` holds before it is full.
fn room(entries: usize) -> usize {
    let generation = Generation::new(entries);
    let mut room = 0;
    let mut table_len = FIRST_TABLE;
    while 2 * table_len - FIRST_TABLE <= generation.slots.len() {
        room += Generation::fill_max(table_len);
        table_len *= 2;
    }
    room
}

#[test]
fn a_salt_is_fresh_once() {
    for mut set in [ReplaySet::by_count(100), ReplaySet::by_age(100, 60)] {
        assert!(set.is_empty());
        assert_eq!(set.check_and_insert(&salt(1), 0), Verdict::Fresh);
        assert_eq!(set.check_and_insert(&salt(2), 0), Verdict::Fresh);
        assert_eq!(set.check_and_insert(&salt(1), 0), Verdict::Seen);
        assert_eq!(set.check_and_insert(&salt(1)[..16], 0), Verdict::Fresh, "another length");
        assert_eq!(set.len(), 3);
    }
}

#[test]
fn by_count_remembers_the_last_entries_and_forgets_older_ones() {
    for entries in [0, 1, 700, 768, 769, 2304, 2305, 10_000] {
        let mut set = ReplaySet::by_count(entries);
        let room = room(entries);
        assert!(room >= entries && room < 2 * entries + 1600, "{entries}: {room}");
        let total = 3 * room as u64 + 17;
        for n in 0..total {
            assert_eq!(set.check_and_insert(&salt(n), 0), Verdict::Fresh, "{n} of {entries}");
            assert!(set.len() <= 2 * room);
            if n + 1 >= entries as u64 && n % 97 == 0 {
                let oldest = n + 1 - entries as u64;
                let probed = set.check_and_insert(&salt(oldest.min(n)), 0);
                assert_eq!(probed, Verdict::Seen, "{oldest} after {n} of {entries}");
            }
        }
        assert_eq!(set.check_and_insert(&salt(0), 0), Verdict::Fresh, "two generations ago");
    }
}

#[test]
fn tables_grow_at_three_quarters_and_all_are_searched() {
    let mut set = ReplaySet::by_count(20_000);
    let mut boundaries = Vec::new();
    let mut table_len = FIRST_TABLE;
    for n in 0..20_000 {
        assert_eq!(set.check_and_insert(&salt(n), 0), Verdict::Fresh);
        let grown = set.generations[0].table_len;
        if grown != table_len {
            assert_eq!(grown, 2 * table_len);
            boundaries.push(n);
            table_len = grown;
        }
    }
    assert_eq!(boundaries, [768, 768 + 1536, 768 + 1536 + 3072, 768 + 1536 + 3072 + 6144]);
    assert!((0..20_000).all(|n| set.check_and_insert(&salt(n), 0) == Verdict::Seen));
    assert_eq!(set.len(), 20_000);
    assert!(set.generations[1].slots.iter().all(|&slot| slot == 0), "the other generation");
}

#[test]
fn a_wiped_generation_is_like_new() {
    let mut set = ReplaySet::by_count(3000);
    let room = room(3000) as u64;
    for n in 0..2 * room + 1 {
        set.check_and_insert(&salt(n), 0);
    }
    // The first generation was wiped for the last salt.
    let current = &set.generations[set.current];
    assert_eq!((set.current, current.len, current.table_len), (0, 1, FIRST_TABLE));
    assert_eq!(current.slots.iter().filter(|&&slot| slot != 0).count(), 1);
}

/// A process that serves little touches little: the rest stays the zero page of the system.
#[test]
fn a_few_salts_touch_the_first_table_only() {
    let mut set = ReplaySet::by_count(1_000_000);
    for n in 0..700 {
        set.check_and_insert(&salt(n), 0);
    }
    let [used, other] = &set.generations;
    assert!(used.slots.len() >= 1_000_000 && other.slots.len() == used.slots.len());
    assert_eq!(used.table_len, FIRST_TABLE);
    assert_eq!(other.len, 0);
    assert!(used.slots[FIRST_TABLE..].iter().all(|&slot| slot == 0));
    assert_eq!(used.slots[..FIRST_TABLE].iter().filter(|&&slot| slot != 0).count(), 700);
    // 2 generations of 16-byte slots.
    assert!(2 * 16 * used.slots.len() <= 96 << 20, "{}", used.slots.len());
}

#[test]
fn by_age_remembers_for_the_lifetime_and_forgets_after_two() {
    let mut set = ReplaySet::by_age(1000, 60);
    assert_eq!(set.check_and_insert(&salt(1), 1000), Verdict::Fresh);
    assert_eq!(set.check_and_insert(&salt(2), 1060), Verdict::Fresh);
    assert_eq!(set.check_and_insert(&salt(1), 1060), Verdict::Seen);
    // Turns over; what came in the second before is remembered on.
    assert_eq!(set.check_and_insert(&salt(3), 1061), Verdict::Fresh);
    assert_eq!(set.check_and_insert(&salt(2), 1121), Verdict::Seen);
    assert_eq!(set.check_and_insert(&salt(1), 1121), Verdict::Seen);
    assert_eq!(set.check_and_insert(&salt(1), 1122), Verdict::Fresh);
    assert_eq!(set.check_and_insert(&salt(3), 1122), Verdict::Seen);
    // A long silence is one turn, not two.
    assert_eq!(set.check_and_insert(&salt(3), 1_000_000), Verdict::Fresh);
    assert_eq!(set.check_and_insert(&salt(1), 1_000_000), Verdict::Seen);
}

#[test]
fn by_age_refuses_when_full_until_it_turns_over() {
    let mut set = ReplaySet::by_age(700, 60);
    let room = room(700) as u64;
    for n in 0..room {
        assert_eq!(set.check_and_insert(&salt(n), 500), Verdict::Fresh);
    }
    for at in [500, 530, 560] {
        assert_eq!(set.check_and_insert(&salt(room), at), Verdict::Full);
        assert_eq!(set.check_and_insert(&salt(0), at), Verdict::Seen, "a replay is told first");
    }
    assert_eq!(set.len() as u64, room);
    assert_eq!(set.check_and_insert(&salt(room), 561), Verdict::Fresh);
    assert_eq!(set.check_and_insert(&salt(0), 561), Verdict::Seen);
}

#[test]
fn a_clock_set_back_neither_forgets_nor_keeps_for_ever() {
    let mut set = ReplaySet::by_age(1000, 60);
    assert_eq!(set.check_and_insert(&salt(1), 10_000), Verdict::Fresh);
    assert_eq!(set.check_and_insert(&salt(1), 50), Verdict::Seen);
    assert_eq!(set.check_and_insert(&salt(2), 110), Verdict::Fresh);
    assert_eq!(set.check_and_insert(&salt(1), 110), Verdict::Seen);
    set.check_and_insert(&salt(3), 111);
    set.check_and_insert(&salt(4), 172);
    assert_eq!(set.check_and_insert(&salt(1), 172), Verdict::Fresh);
    for at in [0, u64::MAX, 0, u64::MAX] {
        set.check_and_insert(&salt(9), at);
    }
}

#[test]
fn an_empty_salt_and_a_long_one_are_salts_too() {
    let mut set = ReplaySet::by_count(10);
    assert_eq!(set.check_and_insert(&[], 0), Verdict::Fresh);
    assert_eq!(set.check_and_insert(&[], 0), Verdict::Seen);
    assert_eq!(set.check_and_insert(&[0; 100], 0), Verdict::Fresh);
}

proptest! {
    /// Never forgets what it must remember, never remembers what it was not told.
    #[test]
    fn by_count_agrees_with_a_model(draws in prop::collection::vec(0..3000_u64, 0..5000)) {
        let mut set = ReplaySet::by_count(700);
        let room = room(700);
        let (mut generation, mut before) = (HashSet::new(), HashSet::new());
        for n in draws {
            let expected = if generation.contains(&n) || before.contains(&n) {
                Verdict::Seen
            } else {
                if generation.len() == room {
                    before = std::mem::take(&mut generation);
                }
                generation.insert(n);
                Verdict::Fresh
            };
            prop_assert_eq!(set.check_and_insert(&salt(n), 7), expected);
            prop_assert_eq!(set.len(), generation.len() + before.len());
        }
    }

    #[test]
    fn by_age_keeps_each_salt_for_its_lifetime(
        steps in prop::collection::vec((0..400_u64, 0..40_u64), 0..400),
    ) {
        let mut set = ReplaySet::by_age(2000, 60);
        let mut now = 1_000_000;
        let mut inserted: VecDeque<(u64, u64)> = VecDeque::new();
        for (n, step) in steps {
            now += step;
            let last = inserted.iter().rev().find(|&&(m, _)| m == n).map(|&(_, at)| now - at);
            match set.check_and_insert(&salt(n), now) {
                Verdict::Fresh => {
                    prop_assert!(last.is_none_or(|age| age > 60), "{:?} forgotten", last);
                    inserted.push_back((n, now));
                }
                Verdict::Seen => prop_assert!(last.is_some(), "never told"),
                Verdict::Full => prop_assert!(false, "there is room"),
            }
        }
    }
}
