use std::collections::BTreeSet;

use proptest::prelude::*;
use serde_json::Value;

use super::*;

fn table(name: &str) -> Vec<(u64, bool)> {
    let file =
        include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/vectors/shadowsocks.json"));
    let file: Value = serde_json::from_str(file).unwrap();
    let steps = file["sliding_window"][name].as_array().unwrap();
    steps.iter().map(|s| (s[0].as_u64().unwrap(), s[1].as_bool().unwrap())).collect()
}

/// The rules of the window, without its tricks.
struct Naive {
    seen: BTreeSet<u64>,
    behind_max: u64,
}

impl Naive {
    fn accept(&mut self, id: u64) -> bool {
        let highest = self.seen.last().copied().unwrap_or(0);
        let is_near = highest.saturating_sub(id) <= self.behind_max;
        id != u64::MAX && is_near && self.seen.insert(id)
    }
}

#[test]
fn follows_the_vectors() {
    let mut window = PacketWindow::new();
    for (id, accepted) in table("small") {
        assert_eq!(window.check(id), accepted, "{id}");
        assert_eq!(window.accept(id), accepted, "{id}");
    }
    let mut ring = Ring::<128>::new();
    for (id, accepted) in table("rust_8128") {
        assert_eq!(ring.accept(id), accepted, "{id}");
    }
}

#[test]
fn reaches_1984_ids_back() {
    let mut window = PacketWindow::new();
    assert!(window.accept(10_000));
    assert!(!window.accept(10_000 - 1985));
    assert!(window.accept(10_000 - 1984));
    assert!(!window.accept(10_000 - 1984));
    assert_eq!(window.highest(), Some(10_000));
}

#[test]
fn starts_anywhere_and_ends_before_the_last_id() {
    for start in [0, 1, 63, 64, 1 << 40, u64::MAX - 1] {
        let mut window = PacketWindow::new();
        assert_eq!(window.highest(), None);
        assert!(window.accept(start) && !window.accept(start));
        assert_eq!(window.highest(), Some(start));
        assert!(!window.check(u64::MAX) && !window.accept(u64::MAX));
    }
}

#[test]
fn a_resumed_window_refuses_all_up_to_the_highest() {
    for highest in [0, 1, 62, 63, 64, 65, 1983, 1984, 5000, u64::MAX - 2] {
        let mut window = PacketWindow::resume_after(highest);
        assert_eq!(window.highest(), Some(highest));
        for behind in 0..3000.min(highest) {
            assert!(!window.check(highest - behind), "{highest} {behind}");
        }
        assert!(!window.check(0));
        assert!(window.accept(highest + 1));
        assert!(!window.accept(highest) && !window.accept(highest + 1));
    }
    assert!(!PacketWindow::resume_after(u64::MAX).check(u64::MAX));
}

#[test]
fn a_resumed_window_lets_new_ids_come_out_of_order() {
    let mut window = PacketWindow::resume_after(1000);
    for id in [1100, 1001, 1063, 1064, 1024, 1023] {
        assert!(window.accept(id), "{id}");
        assert!(!window.accept(id), "{id}");
    }
    assert!(!window.accept(1000) && !window.accept(999));
}

proptest! {
    #[test]
    fn agrees_with_the_naive_window(
        start in prop_oneof![Just(0), any::<u64>(), Just(u64::MAX - 5000)],
        steps in prop::collection::vec((-2200_i64..300, 0_u8..30), 1..600),
    ) {
        let mut window = PacketWindow::new();
        let mut naive = Naive { seen: BTreeSet::new(), behind_max: 1984 };
        let mut highest = start;
        for (step, far) in steps {
            let step = if far == 0 { step * 40 } else { step };
            let id = highest.saturating_add_signed(step);
            let checked = window.check(id);
            prop_assert_eq!(checked, window.accept(id));
            prop_assert_eq!(checked, naive.accept(id), "{}", id);
            prop_assert_eq!(window.highest(), naive.seen.last().copied());
            highest = naive.seen.last().copied().unwrap_or(start);
        }
    }
}
