//! Datagrams that wait for a name: a target's, or a server's.
//!
//! For each session and name one queue, so that the order towards a target is kept: while a name
//! is being resolved, every datagram for it goes to the end of its queue. Bounded by the number of
//! queues, by datagrams and bytes in each, and by the worker's pool of blocks.

use adit_wire::TargetBuf;

use crate::pool::{Chain, Pool};
use crate::slab::{Key, Slab};

/// Names waited for at once, per worker: half of the look-ups it can have under way, so that names
/// which nobody answers for leave connections theirs.
const QUEUES_MAX: usize = 128;
/// Names that one session waits for at once.
pub(super) const QUEUES_PER_SESSION: u32 = 8;
/// Datagrams that wait for one name at most.
const DATAGRAMS_MAX: u32 = 32;
/// Bytes that wait for one name at most: the largest datagram and some.
const BYTES_MAX: usize = 80 * 1024;

/// Longest datagram that may wait, its target included: what UDP carries. A longer one could not be
/// sent to a server, and would not fit where it is taken out again.
const LEN_MAX: usize = 65_507;

/// Length of a datagram in a queue.
const PREFIX_LEN: usize = 4;

/// What is being resolved.
#[expect(clippy::large_enum_variant, reason = "targets are the usual ones; there is no heap")]
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum For {
    /// The host of a target; ports may differ from datagram to datagram.
    Target(TargetBuf),
    /// The host of the session's server.
    Server,
}

/// Datagrams of one session that wait for one name.
pub(super) struct Waiting {
    pub(super) session: Key,
    pub(super) what: For,
    /// Each with its length before it.
    chain: Chain,
    count: u32,
}

/// All that wait, of one worker.
pub(super) struct Queues(Slab<Waiting>);

impl Queues {
    pub(super) fn new() -> Self {
        Self(Slab::with_capacity(QUEUES_MAX))
    }

    /// Opens a queue.
    pub(super) fn open(&mut self, session: Key, what: For) -> Option<Key> {
        self.0.insert(Waiting { session, what, chain: Chain::EMPTY, count: 0 }).ok()
    }

    /// The queue of a session for a name, whatever its port.
    pub(super) fn find(&self, session: Key, what: &For) -> Option<Key> {
        self.0.keys().find(|&key| {
            self.0.get(key).is_some_and(|w| w.session == session && same_name(&w.what, what))
        })
    }

    /// Any queue of a session.
    pub(super) fn of(&self, session: Key) -> Option<Key> {
        self.0.keys().find(|&key| self.0.get(key).is_some_and(|w| w.session == session))
    }

    /// Appends a datagram in two parts; false when there is no room.
    #[must_use]
    pub(super) fn push(&mut self, key: Key, pool: &mut Pool, head: &[u8], payload: &[u8]) -> bool {
        let Some(waiting) = self.0.get_mut(key) else { return false };
        let len = head.len() + payload.len();
        let bytes = waiting.chain.len() + PREFIX_LEN + len;
        // Three quarters of the pool stay with connections.
        let has_room = pool.room() > pool.capacity() / 4 * 3;
        let is_full = waiting.count == DATAGRAMS_MAX || bytes > BYTES_MAX || !has_room;
        if is_full || len > LEN_MAX {
            return false;
        }
        let prefix = u32::try_from(len).unwrap_or(u32::MAX).to_ne_bytes();
        // The check above leaves more room than a datagram needs.
        let fits = [&prefix[..], head, payload]
            .iter()
            .all(|part| pool.push(&mut waiting.chain, part).is_ok());
        waiting.count += 1;
        fits
    }

    /// Closes a queue and hands it over; [`Waiting::next`] takes the datagrams out.
    pub(super) fn close(&mut self, key: Key) -> Option<Waiting> {
        self.0.remove(key)
    }
}

impl Waiting {
    /// Takes the next datagram into `buf`, which holds the largest; returns its length.
    pub(super) fn next(&mut self, pool: &mut Pool, buf: &mut [u8]) -> Option<usize> {
        let mut prefix = [0; PREFIX_LEN];
        if pool.pop_into(&mut self.chain, &mut prefix) < PREFIX_LEN {
            return None;
        }
        self.count -= 1;
        let len = u32::from_ne_bytes(prefix) as usize;
        Some(pool.pop_into(&mut self.chain, &mut buf[..len]))
    }

    /// Gives the blocks back; returns how many datagrams were still waiting.
    pub(super) fn discard(mut self, pool: &mut Pool) -> u32 {
        pool.clear(&mut self.chain);
        self.count
    }
}

fn same_name(a: &For, b: &For) -> bool {
    match (a, b) {
        (For::Server, For::Server) => true,
        (For::Target(a), For::Target(b)) => a.target().host == b.target().host,
        _ => false,
    }
}

#[cfg(test)]
mod tests;
