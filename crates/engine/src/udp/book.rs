//! Which worker has which 2022 session, for all workers of a process.
//!
//! The kernel spreads datagrams over workers by source address, and a 2022 session may change its
//! address: a worker that meets a session it does not have looks here before it believes in a new
//! one. Were each worker to keep its own counsel, a captured packet played back from an address of
//! another worker would find a fresh window and be taken for new.
//!
//! A session that ended within the last minute leaves what refuses its packets and lets it go on: its
//! time stamps are good for that long. Packets of known sessions do not come here.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use adit_shadowsocks::{CLOCK_SKEW_MAX_S, Remains, SessionId};

/// A packet is good until this long after it was made, by clocks that differ as far as allowed.
const MEMORY_S: u64 = 2 * CLOCK_SKEW_MAX_S;
/// Parts with a lock each.
const SHARDS: usize = 16;

/// What is known about a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Known {
    /// Nothing: it may begin.
    New,
    /// It has ended a moment ago, and this is left of it.
    Ended(Option<Remains>),
    /// This worker has it.
    At(u16),
}

enum Entry {
    At(u16),
    Ended { remains: Option<Remains>, until_s: u64 },
}

struct Shard {
    entries: HashMap<SessionId, Entry>,
    /// Ended sessions in the order in which they are forgotten.
    ended: VecDeque<(u64, SessionId)>,
    /// Most entries, half of what the table has room for.
    limit: usize,
}

/// The sessions of all workers.
pub struct SessionBook {
    shards: [Mutex<Shard>; SHARDS],
    epoch: Instant,
}

impl SessionBook {
    /// Reserves room for `sessions` that are open, and four times as many that have ended: more
    /// within a minute push the oldest of them out.
    pub fn new(sessions: usize) -> Self {
        // Ids are random, so shards fill alike; a quarter more for the ones that do not.
        let limit = 5 * (sessions / SHARDS + sessions / SHARDS / 4 + 16);
        let shard = || {
            Mutex::new(Shard {
                entries: HashMap::with_capacity(2 * limit),
                ended: VecDeque::with_capacity(limit),
                limit,
            })
        };
        Self { shards: std::array::from_fn(|_| shard()), epoch: Instant::now() }
    }

    /// Looks a session up.
    pub(crate) fn look(&self, id: SessionId, now: Instant) -> Known {
        let mut shard = self.shard(id);
        shard.forget(self.seconds(now));
        match shard.entries.get(&id) {
            None => Known::New,
            Some(Entry::At(worker)) => Known::At(*worker),
            Some(Entry::Ended { remains, .. }) => Known::Ended(*remains),
        }
    }

    /// Notes that `worker` has begun a session; false when another has it, or there is no room.
    #[must_use]
    pub(crate) fn begin(&self, id: SessionId, worker: u16, now: Instant) -> bool {
        let mut shard = self.shard(id);
        shard.forget(self.seconds(now));
        if let Some(Entry::At(_)) = shard.entries.get(&id) {
            return false;
        }
        if shard.entries.len() >= shard.limit && !shard.forget_one() {
            return false;
        }
        shard.entries.insert(id, Entry::At(worker));
        true
    }

    /// Notes that a session has ended, with what is left of it.
    pub(crate) fn end(&self, id: SessionId, remains: Option<Remains>, now: Instant) {
        let until_s = self.seconds(now) + MEMORY_S;
        let mut shard = self.shard(id);
        if shard.ended.len() == shard.ended.capacity() {
            shard.forget_one();
        }
        shard.entries.insert(id, Entry::Ended { remains, until_s });
        shard.ended.push_back((until_s, id));
    }

    fn shard(&self, id: SessionId) -> MutexGuard<'_, Shard> {
        let shard = &self.shards[usize::from(id.id()[0]) % SHARDS];
        // A worker that panicked ends the process.
        shard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn seconds(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.epoch).as_secs()
    }
}

impl Shard {
    /// Drops what has been remembered for long enough.
    fn forget(&mut self, now_s: u64) {
        while self.ended.front().is_some_and(|(until_s, _)| *until_s < now_s) {
            self.forget_one();
        }
    }

    /// Drops the oldest session that has ended; false when there is none.
    fn forget_one(&mut self) -> bool {
        let Some((due_s, id)) = self.ended.pop_front() else { return false };
        // It may have begun again since, and ended again.
        let is_due = matches!(self.entries.get(&id), Some(Entry::Ended { until_s, .. }) if *until_s == due_s);
        if is_due {
            self.entries.remove(&id);
        }
        true
    }
}

#[cfg(test)]
mod tests;
