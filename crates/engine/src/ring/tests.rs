use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;

const fn key(index: u32) -> Key {
    Key { index, generation: index ^ 7 }
}

#[test]
fn keys_come_out_in_order_round_and_round() {
    let mut ring = Ring::with_capacity(3);
    let capacity = ring.keys.capacity() as u32;
    assert!(ring.is_empty() && ring.pop().is_none());
    for turn in 0..10 {
        for n in 0..capacity {
            ring.push(key(turn * 100 + n));
        }
        assert_eq!(ring.len(), capacity as usize);
        for n in 0..capacity {
            assert_eq!(ring.pop(), Some(key(turn * 100 + n)));
        }
        assert!(ring.is_empty() && ring.pop().is_none());
        // Shifts the head for the next turn.
        ring.push(key(1));
        assert_eq!(ring.pop(), Some(key(1)));
    }
}

#[test]
#[should_panic(expected = "a ring holds each flow once")]
fn an_overflow_is_caller_misuse() {
    let mut ring = Ring::with_capacity(0);
    for n in 0..=ring.keys.capacity() as u32 {
        ring.push(key(n));
    }
}

proptest! {
    #[test]
    fn agrees_with_a_queue(steps in prop::collection::vec(any::<bool>(), 0..300)) {
        let mut ring = Ring::with_capacity(7);
        let capacity = ring.keys.capacity();
        let mut model = VecDeque::new();
        for (n, push) in (0..).zip(steps) {
            if push && model.len() < capacity {
                ring.push(key(n));
                model.push_back(key(n));
            } else {
                prop_assert_eq!(ring.pop(), model.pop_front());
            }
            prop_assert_eq!((ring.len(), ring.is_empty()), (model.len(), model.is_empty()));
        }
        prop_assert_eq!(ring.keys.capacity(), capacity, "never grows");
    }
}
