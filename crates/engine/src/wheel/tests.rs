use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

/// Every index that fires on the way to `now`.
fn fired(wheel: &mut Wheel, now: Tick) -> Vec<u32> {
    std::iter::from_fn(|| wheel.expired(now)).collect()
}

#[test]
fn durations_round_up_to_ticks() {
    for (ms, expected) in [(0, 0), (1, 1), (8, 1), (9, 2), (16, 2), (1000, 125)] {
        assert_eq!(ticks(Duration::from_millis(ms)), expected, "{ms} ms");
    }
    assert!(ticks(Duration::MAX) > REACH);
    assert_eq!(TICK, Duration::from_millis(8));
}

#[test]
fn a_fraction_of_a_tick_is_a_tick() {
    // Rounded down, a deadline would fire before its time.
    assert_eq!(ticks(Duration::from_micros(8001)), 2);
    assert_eq!(ticks(Duration::from_nanos(1)), 1);
}

#[test]
fn an_empty_wheel_has_nothing_to_fire() {
    let mut wheel = Wheel::with_capacity(4);
    assert_eq!((wheel.next_in(0), wheel.expired(1 << 30)), (None, None));
    wheel.cancel(0);
    wheel.cancel(100);
    wheel.set(2, (1 << 30) + 5);
    wheel.cancel(2);
    wheel.cancel(2);
    assert_eq!((wheel.next_in(0), wheel.expired(1 << 31)), (None, None));
}

/// Deadlines around every boundary of the levels, from several starts.
#[test]
fn deadlines_fire_at_their_tick() {
    let boundaries = [1, 2, 63, 64, 65, 127, 128, 4095, 4096, 4097, 262_143, 262_144, 262_145];
    for start in [0, 1, 63, 64, 4095, 4096, 100_000, 262_143, (1 << 24) - 1, 1 << 24, 1 << 40] {
        for distance in boundaries.into_iter().chain([REACH - 1, REACH]) {
            let mut wheel = Wheel::with_capacity(1);
            assert_eq!(wheel.expired(start), None);
            wheel.now = start;
            wheel.set(0, start + distance);
            assert!(wheel.next_in(start).is_some_and(|d| (1..=distance).contains(&d)));
            assert_eq!(
                fired(&mut wheel, start + distance - 1),
                [],
                "{distance} from {start}: early"
            );
            assert_eq!(fired(&mut wheel, start + distance), [0], "{distance} from {start}: late");
            assert_eq!(wheel.next_in(start + distance), None);
        }
    }
}

#[test]
fn a_passed_deadline_fires_with_the_next_tick() {
    let mut wheel = Wheel::with_capacity(2);
    wheel.set(1, 500);
    assert_eq!(fired(&mut wheel, 500), [1]);
    for at in [0, 499, 500] {
        wheel.set(1, at);
        assert_eq!(wheel.next_in(wheel.now), Some(1));
        let now = wheel.now;
        assert_eq!(fired(&mut wheel, now), []);
        assert_eq!(fired(&mut wheel, now + 1), [1]);
    }
}

#[test]
fn a_deadline_out_of_reach_fires_early() {
    let mut wheel = Wheel::with_capacity(1);
    wheel.set(0, u64::MAX);
    assert_eq!(fired(&mut wheel, REACH - 1), []);
    assert_eq!(fired(&mut wheel, REACH), [0]);
}

#[test]
fn a_new_deadline_replaces_the_old() {
    let mut wheel = Wheel::with_capacity(4);
    for index in 0..4 {
        wheel.set(index, 10);
    }
    wheel.set(1, 20);
    wheel.set(2, 5);
    wheel.cancel(3);
    assert_eq!(fired(&mut wheel, 9), [2]);
    assert_eq!(fired(&mut wheel, 19), [0]);
    assert_eq!(fired(&mut wheel, 20), [1]);
    assert_eq!(wheel.next_in(20), None);
}

#[test]
fn sleeping_as_told_meets_every_deadline() {
    let mut wheel = Wheel::with_capacity(4);
    for (index, at) in [(0, 3), (1, 64), (2, 4200), (3, 270_000)] {
        wheel.set(index, at);
    }
    let (mut now, mut wakes) = (0, 0);
    let mut seen = Vec::new();
    while let Some(wait) = wheel.next_in(now) {
        assert!(wait > 0, "a busy loop");
        now += wait;
        wakes += 1;
        seen.extend(fired(&mut wheel, now).into_iter().map(|index| (index, now)));
    }
    assert_eq!(seen, [(0, 3), (1, 64), (2, 4200), (3, 270_000)]);
    assert!(wakes <= 10, "{wakes} wakes for 4 deadlines");
}

#[derive(Debug, Clone)]
enum Step {
    Set(u32, u64),
    Cancel(u32),
    Advance(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let distance = || prop_oneof![0..3_u64, 0..70_u64, 0..5000_u64, 0..300_000_u64, 0..2 * REACH];
    prop_oneof![
        4 => (0..12_u32, distance()).prop_map(|(index, at)| Step::Set(index, at)),
        1 => (0..12_u32).prop_map(Step::Cancel),
        4 => distance().prop_map(Step::Advance),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// Each deadline fires at its tick when the wheel is asked then, else at the first asking
    /// after; and the wait that it names never oversleeps one.
    #[test]
    fn agrees_with_a_sorted_list(steps in prop::collection::vec(step(), 0..150)) {
        let mut wheel = Wheel::with_capacity(12);
        let mut model: BTreeMap<u32, Tick> = BTreeMap::new();
        let mut now = 0;
        for step in steps {
            match step {
                Step::Set(index, distance) => {
                    // Some lie in the past.
                    let at = (now + distance).saturating_sub(1);
                    wheel.set(index, at);
                    model.insert(index, at.clamp(now + 1, now + REACH));
                }
                Step::Cancel(index) => {
                    wheel.cancel(index);
                    model.remove(&index);
                }
                Step::Advance(by) => {
                    // In two parts: first to one tick before what fires next.
                    let first = model.values().min().map_or(now, |&at| (at - 1).min(now + by));
                    prop_assert_eq!(fired(&mut wheel, first), []);
                    now += by;
                    let mut out = fired(&mut wheel, now);
                    let mut expected: Vec<u32> =
                        model.iter().filter(|&(_, &at)| at <= now).map(|(&index, _)| index).collect();
                    model.retain(|_, at| *at > now);
                    out.sort_unstable();
                    expected.sort_unstable();
                    prop_assert_eq!(out, expected);
                    prop_assert_eq!(wheel.now, now);
                }
            }
            match (wheel.next_in(now), model.values().min()) {
                (None, None) => {}
                (Some(wait), Some(&at)) => prop_assert!((1..=at - now).contains(&wait), "{wait} {at}"),
                other => prop_assert!(false, "{other:?}"),
            }
        }
    }

    /// Firing order follows the deadlines, and setting again from a firing works.
    #[test]
    fn fires_in_order_and_can_be_set_again(
        deadlines in prop::collection::vec(1..10_000_u64, 1..40), again in 1..200_u64,
    ) {
        let mut wheel = Wheel::with_capacity(deadlines.len());
        for (index, &at) in (0..).zip(&deadlines) {
            wheel.set(index, at);
        }
        let mut last = 0;
        let mut count = 0;
        while let Some(index) = wheel.expired(20_000) {
            count += 1;
            prop_assert!(wheel.now >= last, "backwards");
            last = wheel.now;
            if count <= deadlines.len() && wheel.now == deadlines[index as usize] {
                wheel.set(index, wheel.now + again);
            }
        }
        prop_assert!(count >= deadlines.len());
        prop_assert_eq!(wheel.next_in(20_000), None);
    }
}
