//! How many connections and datagram sessions each client address has, over all workers.
//!
//! IPv6 clients are counted by /64, the least that a network gets, because one host has all of
//! those addresses. Clients on a unix socket have no address and no limit.
//!
//! One table serves the process for as long as it lives, and its limits change with a reload: so
//! what began under the old ones counts against the new. Without a limit there is a count all the
//! same.
//!
//! The memory is reserved at creation and touched as clients come; nothing allocates after that.
//! A table that is full refuses clients it does not know. A count costs a hash under a random key,
//! an uncontended lock and one or two cache lines, once when a connection or session begins and
//! once when it ends.

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use adit_acl::Admission;
use adit_sys::net::{self, Peer};

use crate::core::Core;
use crate::role::{Role, RoleKind};

/// Parts of a large table, each with a lock of its own, so that workers seldom meet.
const SHARDS: usize = 64;
/// Clients for which parts would be too small to fill evenly.
const SHARDED_FROM: usize = 16 * 1024;

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Connection = 0,
    Session = 1,
}

/// Why a client is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusal {
    /// It has this many.
    Limit(u32),
    /// No room for one more client.
    Full,
}

/// Stands for no limit: no client gets that far.
const UNLIMITED: u32 = u32::MAX;

/// The counts of all clients.
pub struct ClientTable {
    shards: Box<[Mutex<Shard>]>,
    hasher: RandomState,
    /// By kind.
    limits: [AtomicU32; 2],
}

/// Open addressing with linear probing: a client is in its home slot, or behind it with no gap in
/// between. Slots without counts are free.
#[repr(align(64))]
struct Shard {
    clients: Box<[u64]>,
    /// Of each slot, by kind.
    counts: Box<[[u32; 2]]>,
    used: usize,
}

impl ClientTable {
    /// Makes room for `capacity` clients at once.
    pub fn new(capacity: usize, max_connections: Option<u32>, max_sessions: Option<u32>) -> Self {
        let shards = if capacity < SHARDED_FROM { 1 } else { SHARDS };
        // At most half full, so that runs stay short and no shard fills before the whole.
        let slots = (2 * capacity.div_ceil(shards)).next_power_of_two().max(4);
        let shards = (0..shards).map(|_| Mutex::new(Shard::new(slots))).collect();
        let table = Self { shards, hasher: RandomState::new(), limits: Default::default() };
        table.set_limits(max_connections, max_sessions);
        table
    }

    /// Sets how much each client may have from here on.
    pub fn set_limits(&self, max_connections: Option<u32>, max_sessions: Option<u32>) {
        for (limit, value) in self.limits.iter().zip([max_connections, max_sessions]) {
            limit.store(value.unwrap_or(UNLIMITED), Ordering::Relaxed);
        }
    }

    /// Counts a connection of `ip`; false when it has as many as it may, or the table is full.
    /// Every true is followed by one [`ClientTable::end_connection`].
    #[must_use]
    pub fn try_connection(&self, ip: IpAddr) -> bool {
        self.begin(Kind::Connection, ip).is_ok()
    }

    /// A connection of `ip` has ended. One that was never counted changes nothing, unless it has
    /// others that were.
    pub fn end_connection(&self, ip: IpAddr) {
        self.end(Kind::Connection, ip);
    }

    /// As [`ClientTable::try_connection`] for a datagram session.
    #[must_use]
    pub fn try_session(&self, ip: IpAddr) -> bool {
        self.begin(Kind::Session, ip).is_ok()
    }

    /// A datagram session of `ip` has ended.
    pub fn end_session(&self, ip: IpAddr) {
        self.end(Kind::Session, ip);
    }

    fn begin(&self, kind: Kind, ip: IpAddr) -> Result<(), Refusal> {
        let limit = self.limits[kind as usize].load(Ordering::Relaxed);
        let client = client_of(ip);
        let (mut shard, hash) = self.shard(client);
        match shard.begin(client, hash, kind, limit) {
            // Goes uncounted, where no limit asks for it.
            Err(Refusal::Full) if limit == UNLIMITED => Ok(()),
            begun => begun,
        }
    }

    fn end(&self, kind: Kind, ip: IpAddr) {
        let client = client_of(ip);
        let (mut shard, hash) = self.shard(client);
        shard.end(client, hash, kind, |client| self.hash(client));
    }

    /// The shard of a client, and what it finds the client by.
    fn shard(&self, client: u64) -> (MutexGuard<'_, Shard>, usize) {
        let hash = self.hash(client);
        // The upper half; slots go by the lower.
        let shard = &self.shards[(hash >> (usize::BITS / 2)) % self.shards.len()];
        // A worker that panicked left counts that are whole, and ends the process anyway.
        (shard.lock().unwrap_or_else(PoisonError::into_inner), hash)
    }

    #[expect(clippy::cast_possible_truncation, reason = "any bits of a hash do")]
    fn hash(&self, client: u64) -> usize {
        self.hasher.hash_one(client) as usize
    }
}

impl Shard {
    fn new(slots: usize) -> Self {
        // Zeroed pages, which take no memory until they are touched.
        let clients = vec![0; slots].into_boxed_slice();
        let counts = vec![[0; 2]; slots].into_boxed_slice();
        Self { clients, counts, used: 0 }
    }

    /// The slot of a client, or the free one where it goes.
    fn slot(&self, client: u64, hash: usize) -> usize {
        let mask = self.clients.len() - 1;
        let mut at = hash & mask;
        // Ends: an eighth of the slots is always free.
        while self.counts[at] != [0; 2] && self.clients[at] != client {
            at = (at + 1) & mask;
        }
        at
    }

    fn begin(&mut self, client: u64, hash: usize, kind: Kind, limit: u32) -> Result<(), Refusal> {
        let slots = self.clients.len();
        let at = self.slot(client, hash);
        let counts = &mut self.counts[at];
        let count = counts[kind as usize];
        if count >= limit {
            return Err(Refusal::Limit(limit));
        }
        if *counts == [0; 2] {
            if self.used == slots - slots.div_ceil(8) {
                return Err(Refusal::Full);
            }
            self.used += 1;
            self.clients[at] = client;
        }
        counts[kind as usize] = count + 1;
        Ok(())
    }

    fn end(&mut self, client: u64, hash: usize, kind: Kind, hash_of: impl Fn(u64) -> usize) {
        let at = self.slot(client, hash);
        let counts = &mut self.counts[at];
        if counts[kind as usize] == 0 {
            // Begun before there was a table, or while it was full.
            return;
        }
        counts[kind as usize] -= 1;
        if *counts == [0; 2] {
            self.used -= 1;
            self.close_gap(at, hash_of);
        }
    }

    /// Moves clients behind a slot that has become free forward, those that may lie there.
    fn close_gap(&mut self, mut gap: usize, hash_of: impl Fn(u64) -> usize) {
        let mask = self.clients.len() - 1;
        let mut at = gap;
        loop {
            at = (at + 1) & mask;
            if self.counts[at] == [0; 2] {
                return;
            }
            let client = self.clients[at];
            let from_home = at.wrapping_sub(hash_of(client)) & mask;
            if from_home >= at.wrapping_sub(gap) & mask {
                self.clients[gap] = client;
                self.counts[gap] = std::mem::take(&mut self.counts[at]);
                gap = at;
            }
        }
    }
}

/// Whom an address is counted as: an IPv6 address as the upper half of it, an IPv4 address as a
/// prefix of the reserved block 0000::/8 (RFC 4291 §2.4), from which nobody sends.
fn client_of(ip: IpAddr) -> u64 {
    match ip.to_canonical() {
        IpAddr::V4(ip) => 1 << 32 | u64::from(ip.to_bits()),
        IpAddr::V6(ip) => (ip.to_bits() >> 64) as u64,
    }
}

/// Counts a connection that was accepted, or has its close tell the client with a reset that it
/// has too many. What is admitted is ended by [`Flow::close`](crate::flow::Flow::close).
#[must_use]
pub(crate) fn admit(core: &mut Core, role: &Role, peer: Peer, fd: &OwnedFd) -> bool {
    if is_refused(core, role, peer) {
        net::reset_on_close(fd);
        return false;
    }
    let (Some(table), Some(addr)) = (&role.clients, peer.address()) else { return true };
    let Err(refusal) = table.begin(Kind::Connection, addr.ip()) else { return true };
    core.counters.client_limit.inc();
    match refusal {
        Refusal::Limit(limit) => core.log_peer_fault(format_args!(
            "{peer}: refused: this address has {limit} connections, the most a client may have"
        )),
        Refusal::Full => core
            .log_peer_fault(format_args!("{peer}: refused: the table of client addresses is full")),
    }
    net::reset_on_close(fd);
    false
}

/// Whether a server's access control list refuses a client. Says so, and counts it.
pub(crate) fn is_refused(core: &mut Core, role: &Role, peer: Peer) -> bool {
    let RoleKind::Server { acl: Some(acl), sees_clients: true, .. } = &role.kind else {
        return false;
    };
    let Some(addr) = peer.address() else { return false };
    let refused = acl.admit_client(addr.ip()) == Admission::Refused;
    if refused {
        core.counters.clients_refused.inc();
        core.log_peer_fault(format_args!("{peer}: refused: access control list"));
    }
    refused
}

#[cfg(test)]
mod tests;
