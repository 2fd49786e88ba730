use std::collections::HashMap;
use std::net::IpAddr;

use proptest::prelude::*;

use super::*;
use crate::name::NameError;

fn name(text: &str) -> Name {
    Name::parse(text).unwrap()
}

fn found(last: u8, ttl_s: u32) -> Outcome {
    Outcome::Found { addrs: std::iter::once(IpAddr::from([10, 0, 0, last])).collect(), ttl_s }
}

const fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

#[test]
fn keeps_each_outcome_for_its_bounded_time() {
    let now = Instant::now();
    for (outcome, kept_s) in [
        (found(1, 0), 1),
        (found(1, 60), 60),
        (found(1, 1_000_000), 3600),
        (Outcome::NoSuchName { ttl_s: 0 }, 0),
        (Outcome::NoSuchName { ttl_s: 7 }, 7),
        (Outcome::NoAddress { ttl_s: 86_400 }, 300),
        (Outcome::Failed(Failure::Timeout), 2),
        (Outcome::Failed(Failure::Name(NameError::Label)), 0),
        (Outcome::Found { addrs: AddrList::new(), ttl_s: 60 }, 0),
    ] {
        let mut cache = Cache::new(4);
        cache.insert(now, &name("a"), &outcome);
        let last = (now + secs(kept_s)).checked_sub(Duration::from_millis(1)).unwrap();
        assert_eq!(cache.lookup(last, &name("a")).is_some(), kept_s > 0, "{outcome:?}");
        assert_eq!(cache.lookup(now + secs(kept_s), &name("a")), None, "{outcome:?}");
        assert_eq!(cache.len(), 0);
    }
}

#[test]
fn failure_does_not_replace_good_addresses() {
    let now = Instant::now();
    let mut cache = Cache::new(4);
    cache.insert(now, &name("a"), &found(1, 10));
    cache.insert(now, &name("a"), &Outcome::Failed(Failure::Timeout));
    assert_eq!(cache.lookup(now, &name("a")), Some(found(1, 10)));
    cache.insert(now + secs(10), &name("a"), &Outcome::Failed(Failure::Timeout));
    let later = cache.lookup(now + secs(11), &name("a"));
    assert_eq!(later, Some(Outcome::Failed(Failure::Timeout)));
}

#[test]
fn evicts_the_least_recently_used() {
    let now = Instant::now();
    let mut cache = Cache::new(2);
    cache.insert(now, &name("a"), &found(1, 60));
    cache.insert(now, &name("b"), &found(2, 60));
    assert!(cache.lookup(now, &name("a")).is_some());
    cache.insert(now, &name("c"), &found(3, 60));
    assert_eq!(cache.lookup(now, &name("b")), None);
    assert!(cache.lookup(now, &name("a")).is_some() && cache.lookup(now, &name("c")).is_some());
    assert_eq!(cache.stats(), CacheStats { hits: 3, misses: 1, evictions: 1 });
}

#[test]
fn capacity_zero_keeps_nothing() {
    let now = Instant::now();
    let mut cache = Cache::new(0);
    cache.insert(now, &name("a"), &found(1, 60));
    assert_eq!(cache.lookup(now, &name("a")), None);
    cache.clear_negative();
}

/// The naive reference: a map, and a list of names from least to most recently used.
#[derive(Default)]
struct Model {
    map: HashMap<String, (Outcome, Instant)>,
    order: Vec<String>,
}

impl Model {
    fn touch(&mut self, key: &str) {
        self.order.retain(|k| k != key);
        self.order.push(key.to_owned());
    }

    fn forget(&mut self, key: &str) {
        self.map.remove(key);
        self.order.retain(|k| k != key);
    }

    fn lookup(&mut self, now: Instant, key: &str) -> Option<Outcome> {
        let &(outcome, expires) = self.map.get(key)?;
        if expires <= now {
            self.forget(key);
            return None;
        }
        self.touch(key);
        let left = u32::try_from(expires.duration_since(now).as_millis().div_ceil(1000)).unwrap();
        Some(match outcome {
            Outcome::Found { addrs, .. } => Outcome::Found { addrs, ttl_s: left },
            Outcome::NoSuchName { .. } => Outcome::NoSuchName { ttl_s: left },
            other => other,
        })
    }

    fn insert(&mut self, now: Instant, capacity: usize, key: &str, outcome: Outcome) {
        let ttl = match outcome {
            Outcome::Found { ttl_s, .. } => ttl_s.clamp(1, 3600),
            Outcome::NoSuchName { ttl_s: 0 } => return,
            Outcome::NoSuchName { ttl_s } => ttl_s.min(300),
            _ => 2,
        };
        if let Some((old, expires)) = self.map.get(key) {
            let good = matches!(old, Outcome::Found { .. }) && *expires > now;
            if good && matches!(outcome, Outcome::Failed(_)) {
                return;
            }
        } else if self.map.len() == capacity {
            let oldest = self.order[0].clone();
            self.forget(&oldest);
        }
        self.map.insert(key.to_owned(), (outcome, now + secs(ttl.into())));
        self.touch(key);
    }
}

#[derive(Clone, Debug)]
enum Op {
    Lookup(u8),
    Insert(u8, u8, u32),
    Advance(u16),
    ClearNegative,
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        6 => (0..24u8).prop_map(Op::Lookup),
        6 => (0..24u8, 0..6u8, 0..400u32).prop_map(|(k, v, ttl)| Op::Insert(k, v, ttl)),
        2 => (0..60_000u16).prop_map(Op::Advance),
        1 => Just(Op::ClearNegative),
    ];
    proptest::collection::vec(op, 0..300)
}

proptest! {
    #[test]
    fn behaves_like_the_naive_reference(capacity in 1usize..12, ops in ops()) {
        let mut now = Instant::now();
        let mut cache = Cache::new(capacity);
        let mut model = Model::default();
        for op in ops {
            match op {
                Op::Lookup(k) => {
                    let key = format!("n{k}");
                    prop_assert_eq!(cache.lookup(now, &name(&key)), model.lookup(now, &key));
                }
                Op::Insert(k, v, ttl_s) => {
                    let key = format!("n{k}");
                    let outcome = match v {
                        0 => Outcome::Failed(Failure::Timeout),
                        1 => Outcome::NoSuchName { ttl_s },
                        v => found(v, ttl_s),
                    };
                    cache.insert(now, &name(&key), &outcome);
                    model.insert(now, capacity, &key, outcome);
                }
                Op::Advance(ms) => now += Duration::from_millis(ms.into()),
                Op::ClearNegative => {
                    cache.clear_negative();
                    let gone: Vec<_> = model.order.iter()
                        .filter(|k| !matches!(model.map[*k].0, Outcome::Found { .. }))
                        .cloned().collect();
                    gone.iter().for_each(|k| model.forget(k));
                }
            }
            prop_assert_eq!(cache.len(), model.map.len());
            prop_assert!(cache.len() <= capacity);
        }
    }
}
