//! The sessions of one worker: found by name, ended by silence or to make room.
//!
//! Room is made where it is missed least: first among sessions that have sent one datagram only,
//! the oldest first, then among the others, the one silent for longest. So a flood of one datagram
//! from each of many ports (or many one-shot questions) turns over its own kind and leaves
//! conversations alone.
//!
//! Invariant: a session is in the index under its name, in one of the two queues and in the wheel
//! for as long as it is in the slab.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use adit_shadowsocks::{ClientSession, ServerSession, SessionId};
use adit_sys::datagram::{Family, Route};

use crate::clients::ClientTable;
use crate::role::Role;
use crate::slab::{Key, Slab};
use crate::udp::choice::Debt;
use crate::wheel::{Tick, Wheel, ticks};

/// What a session is found by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Name {
    /// The listener and the client's address, where the protocol has nothing better.
    Source(Key, SocketAddr),
    /// The id that a 2022 client drew: it may come from another address, and to another listener
    /// with the same keys.
    Id(SessionId),
    /// The listener, the client's address and the next hop. A hop cannot tell a replayed packet from
    /// a fresh one, so one that comes from elsewhere gets a session of its own instead of the first
    /// one's replies.
    Hop(Key, SocketAddr, u16),
    /// The listener and the client's address, for what goes to its target without a server.
    Direct(Key, SocketAddr),
}

/// What a session does with its datagrams.
#[expect(clippy::large_enum_variant, reason = "lives in a slab; the large ones are the usual ones")]
pub(super) enum Codec {
    /// Opens what clients send and seals what targets answer.
    Server(ServerSession),
    /// The reverse, through the server of this index.
    Client(ClientSession, u16),
    /// Neither: passes packets on to the next hop of this index.
    Hop(u16),
    /// Neither: a client's payloads go to their targets.
    Direct,
}

/// One client's datagrams, both ways.
pub(super) struct Session {
    pub(super) name: Name,
    /// The listener that it was last heard at.
    pub(super) listener: Key,
    pub(super) role: Arc<Role>,
    pub(super) codec: Codec,
    /// The way back to the client.
    pub(super) reply: Route,
    /// The client's address when the session began.
    pub(super) began_at: SocketAddr,
    /// Where it is counted under that address.
    pub(super) counted: Option<Arc<ClientTable>>,
    /// Sockets towards targets, one a family; of a client or hop the one to its server.
    pub(super) upstream: [Option<OwnedFd>; 2],
    /// The server that `upstream` is connected to, and when that was last looked up.
    pub(super) server: Option<(SocketAddr, Tick)>,
    /// Names that datagrams of this session wait for.
    pub(super) waiting: u32,
    /// What the server of a client's session owes.
    pub(super) debt: Debt,
    /// The tick of the last datagram.
    active_at: Tick,
    /// The neighbours in its queue.
    older: u32,
    newer: u32,
    proven: bool,
}

const NONE: u32 = u32::MAX;

/// A queue by age, threaded through the sessions.
#[derive(Clone, Copy)]
struct Queue {
    oldest: u32,
    newest: u32,
}

impl Queue {
    const EMPTY: Self = Self { oldest: NONE, newest: NONE };
}

/// The sessions of one worker.
pub(super) struct Sessions {
    slab: Slab<Session>,
    index: HashMap<Name, Key>,
    wheel: Wheel,
    /// Of sessions with one datagram, and of the others.
    queues: [Queue; 2],
}

impl Session {
    pub(super) fn new(
        name: Name,
        listener: Key,
        role: Arc<Role>,
        codec: Codec,
        reply: Route,
        source: SocketAddr,
    ) -> Self {
        Self {
            name,
            listener,
            role,
            codec,
            reply,
            began_at: source,
            counted: None,
            upstream: [None, None],
            server: None,
            waiting: 0,
            debt: Debt::default(),
            active_at: 0,
            older: NONE,
            newer: NONE,
            proven: false,
        }
    }

    pub(super) fn socket(&self, family: Family) -> Option<BorrowedFd<'_>> {
        self.upstream[slot(family)].as_ref().map(AsFd::as_fd)
    }
}

/// Where a session keeps its socket of a family.
pub(super) const fn slot(family: Family) -> usize {
    match family {
        Family::V4 => 0,
        Family::V6 => 1,
    }
}

impl Sessions {
    /// Reserves room for `capacity` sessions.
    pub(super) fn with_capacity(capacity: usize) -> Self {
        Self {
            slab: Slab::with_capacity(capacity),
            // A table at most half full never grows: it cleans itself up in place.
            index: HashMap::with_capacity(2 * capacity),
            wheel: Wheel::with_capacity(capacity),
            queues: [Queue::EMPTY; 2],
        }
    }

    pub(super) fn find(&self, name: &Name) -> Option<Key> {
        self.index.get(name).copied()
    }

    pub(super) fn get(&self, key: Key) -> Option<&Session> {
        self.slab.get(key)
    }

    pub(super) fn get_mut(&mut self, key: Key) -> Option<&mut Session> {
        self.slab.get_mut(key)
    }

    pub(super) fn is_full(&self) -> bool {
        self.slab.len() == self.slab.capacity()
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = Key> {
        self.slab.keys()
    }

    /// Puts a session in; `None` when there is no room.
    pub(super) fn insert(&mut self, mut session: Session, tick: Tick) -> Option<Key> {
        session.active_at = tick;
        let (name, idle) = (session.name, session.role.datagrams.idle);
        let key = self.slab.insert(session).ok()?;
        self.index.insert(name, key);
        self.wheel.set(key.index, tick + ticks(idle));
        self.link(key.index);
        Some(key)
    }

    /// Takes a session out.
    pub(super) fn remove(&mut self, key: Key) -> Option<Session> {
        self.slab.get(key)?;
        self.unlink(key.index);
        self.wheel.cancel(key.index);
        let session = self.slab.remove(key)?;
        self.index.remove(&session.name);
        Some(session)
    }

    /// Notes a datagram of the session. One from its client shows that it is more than a
    /// one-datagram affair.
    pub(super) fn touch(&mut self, key: Key, tick: Tick, from_client: bool) {
        let Some(session) = self.slab.get_mut(key) else { return };
        let proves = from_client && !session.proven;
        // Its place among the others changes no more often than the clock does.
        if session.active_at == tick && !proves {
            return;
        }
        session.active_at = tick;
        self.unlink(key.index);
        if let Some(session) = self.slab.get_mut(key) {
            session.proven |= from_client;
        }
        self.link(key.index);
    }

    /// The session to end when room is needed; not `spared`.
    pub(super) fn oldest(&self, spared: Option<Key>) -> Option<Key> {
        let spared = spared.map_or(NONE, |key| key.index);
        for queue in &self.queues {
            let mut index = queue.oldest;
            if index == spared && index != NONE {
                index = self.at(index)?.newer;
            }
            if index != NONE {
                return self.slab.key_at(index);
            }
        }
        None
    }

    /// The next session that has been silent for its limit; call until `None`.
    pub(super) fn expired(&mut self, tick: Tick) -> Option<Key> {
        while let Some(index) = self.wheel.expired(tick) {
            let Some(key) = self.slab.key_at(index) else { continue };
            let Some(session) = self.slab.get(key) else { continue };
            let due = session.active_at + ticks(session.role.datagrams.idle);
            if due <= tick {
                return Some(key);
            }
            self.wheel.set(index, due);
        }
        None
    }

    /// Ticks until [`Sessions::expired`] may have something.
    pub(super) fn next_in(&self, tick: Tick) -> Option<Tick> {
        self.wheel.next_in(tick)
    }

    fn at(&self, index: u32) -> Option<&Session> {
        self.slab.get(self.slab.key_at(index)?)
    }

    fn at_mut(&mut self, index: u32) -> Option<&mut Session> {
        let key = self.slab.key_at(index)?;
        self.slab.get_mut(key)
    }

    /// Appends a session to the queue it belongs to.
    fn link(&mut self, index: u32) {
        let Some(proven) = self.at(index).map(|s| s.proven) else { return };
        let queue = usize::from(proven);
        let newest = self.queues[queue].newest;
        if let Some(session) = self.at_mut(index) {
            (session.older, session.newer) = (newest, NONE);
        }
        match self.at_mut(newest) {
            Some(before) => before.newer = index,
            None => self.queues[queue].oldest = index,
        }
        self.queues[queue].newest = index;
    }

    fn unlink(&mut self, index: u32) {
        let Some(session) = self.at(index) else { return };
        let (older, newer, queue) = (session.older, session.newer, usize::from(session.proven));
        match self.at_mut(older) {
            Some(before) => before.newer = newer,
            None => self.queues[queue].oldest = newer,
        }
        match self.at_mut(newer) {
            Some(behind) => behind.older = older,
            None => self.queues[queue].newest = older,
        }
    }
}

#[cfg(test)]
mod tests;
