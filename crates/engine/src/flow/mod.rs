//! One connection through a worker, from accept to close.
//!
//! ```text
//! client role: Greeting ─► Resolving ─► Dialing ─► Relay (the header waits for first payload)
//!                  ├──► Associated (datagrams have a port of their own; held until the peer ends)
//! server role: Request  ─► Resolving ─► Dialing ─► Relay
//!                  ├────────────┴──► Draining (nothing more to say, read until the peer ends)
//! hop role:    Peeling  ─► Resolving ─► Dialing ─► Relay (nothing is opened or sealed)
//! ```
//!
//! A flow is driven by events, by its one deadline and by the ready queue. Each step returns
//! whether the flow lives on; ending it is the worker's business ([`Flow::close`]).

mod client;
mod dial;
mod direction;
mod hop;
mod redirect;
mod relay;
mod server;

use std::os::fd::OwnedFd;
use std::sync::Arc;

use adit_handshake::{Handshake, Policy, Protocol};
use adit_observe::log;
use adit_resolver::Outcome;
use adit_shadowsocks::{Accepted, Opener, SALT_LEN_MAX, ServerHandshake};
use adit_sys::net::{self, Peer};
use adit_sys::poll::Ready;
use adit_wire::TargetBuf;
use arrayvec::ArrayVec;

use crate::core::Core;
use crate::flow::dial::Dial;
use crate::flow::direction::Direction;
use crate::flow::relay::Relay;
use crate::names::Waiter;
use crate::role::{Inbound, Role, RoleKind};
use crate::slab::Key;
use crate::token::{Part, Token};
use crate::wheel::{Tick, ticks};
use crate::worker::ListenerId;

/// How long a refused client is read from after its answer, so that the answer is not overtaken
/// by a reset.
const LINGER: std::time::Duration = std::time::Duration::from_secs(2);

/// A server that has not sent a byte for so long did not answer.
const SILENCE: std::time::Duration = std::time::Duration::from_secs(5);

/// Bytes of a request that are kept in the flow: a salt and an unopened length header (50 bytes) or
/// less is all that a peer without the key can make a server keep.
const EARLY_MAX: usize = 64;

/// Whether a flow goes on after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Next {
    /// It waits for its next event or deadline.
    Wait,
    /// It has more to do and goes on the ready queue.
    Again,
    /// It ends; sockets close in an orderly way.
    Close,
    /// It ends, and both peers see a reset.
    Reset,
}

/// A connected socket and what is known of its readiness (edges are only told once).
pub(crate) struct Socket {
    pub(crate) fd: OwnedFd,
    pub(crate) readable: bool,
    pub(crate) writable: bool,
    /// The peer has shut its side: a short read does not mean that nothing more will come.
    pub(crate) hang_up: bool,
    /// The poll tells when there is room to write: not before a write has found too little.
    watches_room: bool,
}

impl Socket {
    /// A connected socket.
    const fn new(fd: OwnedFd) -> Self {
        Self { fd, readable: false, writable: true, hang_up: false, watches_room: false }
    }

    /// The socket of a connect that the poll has been watching.
    const fn of_attempt(fd: OwnedFd, ready: Ready) -> Self {
        let mut socket = Self::new(fd);
        socket.watches_room = true;
        socket.note(ready);
        socket
    }

    /// Has the poll tell when there is room, once that is not known to be the case.
    fn watch_room(&mut self, core: &Core, token: Token) -> std::io::Result<()> {
        if !self.writable && !self.watches_room {
            core.poll.watch_room(&self.fd, token.into())?;
            self.watches_room = true;
        }
        Ok(())
    }

    const fn note(&mut self, ready: Ready) {
        self.readable |= ready.readable;
        self.writable |= ready.writable;
        self.hang_up |= ready.hang_up;
    }

    /// Reads into `buf`; clears readiness when the kernel has no more.
    fn read(&mut self, buf: &mut [u8]) -> net::Io {
        let io = net::read(&self.fd, buf);
        self.note_read(io, buf.len());
        io
    }

    const fn note_read(&mut self, io: net::Io, asked: usize) {
        match io {
            // On a stream a short read has emptied the queue, unless an end follows it.
            net::Io::Moved(n) if n < asked && !self.hang_up => self.readable = false,
            net::Io::Blocked => self.readable = false,
            _ => {}
        }
    }

    /// Writes as much of `buf` as fits.
    fn write(&mut self, buf: &[u8]) -> net::Io {
        let io = net::write(&self.fd, buf);
        self.note_write(io, buf.len());
        io
    }

    const fn note_write(&mut self, io: net::Io, asked: usize) {
        match io {
            net::Io::Moved(n) if n < asked => self.writable = false,
            net::Io::Blocked => self.writable = false,
            _ => {}
        }
    }
}

/// What a flow does after its connect.
#[expect(clippy::large_enum_variant, reason = "a flow is large anyway, and a box is a heap call")]
pub(crate) enum After {
    /// Answer the client, and send the request header or what the client has sent.
    Client {
        target: TargetBuf,
        protocol: Option<Protocol>,
        body: Option<adit_handshake::Body>,
        way: Way,
    },
    /// Relay what the client has sent.
    Server {
        target: TargetBuf,
        opener: Opener,
        request_salt: [u8; SALT_LEN_MAX],
        user: Option<u16>,
        /// The access control list decides by address.
        by_address: bool,
    },
    /// Relay what the client has sent, as it is.
    Hop,
}

/// How a client reaches a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// Through a server.
    Server,
    /// By itself.
    Direct,
    /// Its addresses will tell.
    Unknown,
}

pub(crate) enum State {
    Greeting(Handshake),
    /// A SOCKS5 client holds the connection for as long as it sends datagrams.
    Associated,
    /// With the bytes of a message too short to be worth a block.
    Request(ServerHandshake, ArrayVec<u8, EARLY_MAX>),
    /// A hop waits for the first segment.
    Peeling,
    Resolving(After),
    Dialing(Dial, After),
    Relay(Relay),
    Draining,
    /// Between two states; never seen by an event.
    Moving,
}

/// One connection.
pub(crate) struct Flow {
    pub(crate) key: Key,
    pub(crate) role: Arc<Role>,
    /// Who accepted it.
    listener: ListenerId,
    pub(crate) peer: Peer,
    client: Socket,
    remote: Option<Socket>,
    /// Which attempt became the remote; events of others are stale.
    remote_part: u8,
    /// Client to remote.
    up: Direction,
    /// Remote to client.
    down: Direction,
    state: State,
    /// The tick by which the flow must relay.
    handshake_by: Tick,
    /// The tick of the last byte.
    active_at: Tick,
    /// When the opened connection is to be probed for life from; most end before, and setting it
    /// takes four calls. (Accepted connections inherit it from their listener for nothing.)
    keepalive_at: Option<Tick>,
    /// In the ready queue.
    pub(crate) queued: bool,
    /// Index of the server or next hop in use, and how many servers were tried.
    server: u16,
    servers_tried: u16,
    /// Index among the users of a server's key, once it is known whose flow this is.
    user: Option<u16>,
    /// Bytes of a request that are read but not counted yet: it has not authenticated.
    request_len: u32,
}

// What an idle connection costs us in each process; the kernel's part comes on top.
const _: () = assert!(size_of::<Flow>() <= 1900);

impl Flow {
    /// The state of a connection that [`admit`](crate::clients::admit) has let in.
    pub(crate) fn new(
        role: Arc<Role>,
        listener: ListenerId,
        fd: OwnedFd,
        peer: Peer,
        core: &mut Core,
    ) -> Self {
        let state = match &role.kind {
            RoleKind::Client { inbound: Inbound::Proxy { policy, associate }, .. } => {
                let policy = Policy { udp: associate.is_some(), ..*policy };
                State::Greeting(Handshake::new(policy))
            }
            RoleKind::Client { inbound: Inbound::Tunnel(_) | Inbound::Redirect(_), .. } => {
                State::Moving
            }
            RoleKind::Server { .. } => State::Request(ServerHandshake::new(), ArrayVec::new()),
            RoleKind::Hop { .. } => State::Peeling,
        };
        let mut limit = ticks(role.limits.handshake);
        if matches!(role.kind, RoleKind::Server { .. } | RoleKind::Hop { .. }) {
            // A fixed limit is itself a sign, and one that some probes met and others did not told
            // how far each had got: one random limit a connection, whatever it sends.
            limit += u64::from(core.rng.below(u32::try_from(limit / 4).unwrap_or(u32::MAX).max(1)));
        }
        let handshake_by = core.tick + limit;
        Self {
            key: Key { index: 0, generation: 0 },
            role,
            listener,
            peer,
            client: Socket::new(fd),
            remote: None,
            remote_part: 0,
            up: Direction::NEW,
            down: Direction::NEW,
            state,
            handshake_by,
            active_at: core.tick,
            keepalive_at: None,
            queued: false,
            server: 0,
            servers_tried: 0,
            user: None,
            request_len: 0,
        }
    }

    /// Begins, once the flow has its key; its client socket is watched only after that.
    pub(crate) fn start(&mut self, core: &mut Core) -> Next {
        core.wheel.set(self.key.index, self.handshake_by);
        match &self.role.kind {
            RoleKind::Client { inbound: Inbound::Tunnel(target), .. } => {
                let target = *target;
                self.choose_way(core, target, None, None)
            }
            RoleKind::Client { inbound: Inbound::Redirect(_), .. } => self.start_redirected(core),
            RoleKind::Client { inbound: Inbound::Proxy { .. }, .. } => {
                // A local client greets as soon as it can: its greeting is mostly there.
                self.client.readable = true;
                self.step(core)
            }
            // A server's clients first ask their own where to go.
            RoleKind::Server { .. } | RoleKind::Hop { .. } => Next::Wait,
        }
    }

    /// Has the poll tell of room to write where it has run out.
    pub(crate) fn watch_room(&mut self, core: &Core) -> std::io::Result<()> {
        self.client.watch_room(core, Token::flow(Part::Client, self.key))?;
        match &mut self.remote {
            Some(remote) => {
                remote.watch_room(core, Token::flow(Part::Remote(self.remote_part), self.key))
            }
            None => Ok(()),
        }
    }

    /// Takes an event for one of the flow's sockets.
    pub(crate) fn on_ready(&mut self, core: &mut Core, part: Part, ready: Ready) -> Next {
        match part {
            Part::Client => {
                self.client.note(ready);
                // Nobody is left to answer: give up what is under way.
                if ready.failed && net::connect_result(&self.client.fd).is_err() {
                    return Next::Reset;
                }
            }
            Part::Remote(n) => {
                if let State::Dialing(..) = self.state {
                    return self.on_attempt_ready(core, n, ready);
                }
                match &mut self.remote {
                    Some(remote) if n == self.remote_part => {
                        remote.note(ready);
                        // While the client takes nothing, nothing is read that would tell.
                        if ready.failed && net::connect_result(&remote.fd).is_err() {
                            self.note_unanswered(core);
                            return Next::Reset;
                        }
                    }
                    _ => return Next::Wait,
                }
            }
        }
        self.step(core)
    }

    /// Bytes of the pool that the flow holds.
    pub(crate) const fn held(&self) -> usize {
        self.up.held() + self.down.held()
    }

    /// When the flow last moved a byte.
    pub(crate) const fn active_at(&self) -> Tick {
        self.active_at
    }

    /// The listener that accepted the flow.
    pub(crate) const fn listener(&self) -> ListenerId {
        self.listener
    }

    /// Whether the flow goes on when its listener gets another role. It does so by the role it
    /// began with, unless it could not begin by the new one: its key, or its user, is gone.
    pub(crate) fn outlives(&self, new: &Role) -> bool {
        match (&self.role.kind, &new.kind) {
            (RoleKind::Client { inbound, .. }, RoleKind::Client { inbound: new_inbound, .. }) => {
                // Its end tells the client that the port for its datagrams is another one.
                !matches!(self.state, State::Associated)
                    || inbound.associate() == new_inbound.associate()
            }
            (RoleKind::Server { key, .. }, RoleKind::Server { key: new_key, .. }) => {
                if key.method() != new_key.method() {
                    return false;
                }
                if let State::Request(..) = self.state {
                    // Whoever it is would still be let in by the old keys.
                    return key == new_key;
                }
                match self.user.and_then(|user| key.users().get(usize::from(user))) {
                    Some(user) => new_key.user_by_identity(user.identity()).is_some(),
                    None => {
                        new_key.users().is_empty()
                            && Accepted::session(key, None) == Accepted::session(new_key, None)
                    }
                }
            }
            (
                RoleKind::Hop { key, next, .. },
                RoleKind::Hop { key: new_key, next: new_next, .. },
            ) => {
                // A hop authenticates nobody: while the next one is still served, that one decides.
                key == new_key
                    || key.method() == new_key.method()
                        && !matches!(self.state, State::Peeling)
                        && next
                            .get(usize::from(self.server))
                            .is_some_and(|hop| new_next.contains(hop))
            }
            _ => false,
        }
    }

    /// Goes on with whatever the state can do.
    pub(crate) fn step(&mut self, core: &mut Core) -> Next {
        match self.state {
            State::Greeting(_) => self.read_greeting(core),
            State::Request(..) => self.read_request(core),
            State::Peeling => self.read_first_segment(core),
            State::Resolving(_) | State::Dialing(..) | State::Moving => Next::Wait,
            State::Relay(_) => self.relay(core),
            State::Draining | State::Associated => self.drain(core),
        }
    }

    /// The deadline has come: either it is real, or the flow was active and it moves on.
    pub(crate) fn on_deadline(&mut self, core: &mut Core) -> Next {
        match &self.state {
            State::Relay(_) => self.on_relay_deadline(core),
            State::Dialing(..) if core.tick < self.handshake_by => self.on_dial_deadline(core),
            State::Draining => Next::Close,
            // Lives as long as its client wants; keepalive finds those that are gone.
            State::Associated => Next::Wait,
            _ => {
                core.counters.handshake_timeout.inc();
                log::debug!("{}: handshake not finished in time", self.peer);
                self.fail(core, adit_handshake::Failure::TimedOut)
            }
        }
    }

    /// A name this flow waits for has been resolved, or not.
    pub(crate) fn on_resolved(&mut self, core: &mut Core, outcome: &Outcome) -> Next {
        match std::mem::replace(&mut self.state, State::Moving) {
            State::Resolving(after) => self.dial_outcome(core, after, outcome),
            other => {
                self.state = other;
                Next::Wait
            }
        }
    }

    /// Gives buffers and the client's place back, and ends the sockets the way `next` says. Called
    /// once; the caller drops the flow.
    pub(crate) fn close(&mut self, core: &mut Core, next: Next) {
        // The client gave up: after this long it is not the one to blame.
        if core.tick.saturating_sub(self.active_at) >= ticks(SILENCE) {
            self.note_unanswered(core);
        }
        self.up.release(&mut core.pool);
        self.down.release(&mut core.pool);
        core.wheel.cancel(self.key.index);
        if let (Some(clients), Some(addr)) = (&self.role.clients, self.peer.address()) {
            clients.end_connection(addr.ip());
        }
        if let State::Resolving(_) = self.state {
            core.names.forget(Waiter::Flow(self.key), &mut core.pool);
        }
        if next == Next::Reset {
            core.counters.reset.inc();
            net::reset_on_close(&self.client.fd);
            if let Some(remote) = &self.remote {
                net::reset_on_close(&remote.fd);
            }
        }
    }

    /// The accepted socket, to be watched.
    pub(crate) const fn client_fd(&self) -> &OwnedFd {
        &self.client.fd
    }

    /// Reads and discards until the peer ends, without a sign of what it did wrong.
    fn start_draining(&mut self, core: &mut Core, until: Tick) -> Next {
        self.up.release(&mut core.pool);
        self.down.release(&mut core.pool);
        self.remote = None;
        self.state = State::Draining;
        core.wheel.set(self.key.index, until);
        self.drain(core)
    }

    fn drain(&mut self, core: &mut Core) -> Next {
        for _ in 0..READS_PER_STEP {
            if !self.client.readable {
                return Next::Wait;
            }
            match self.client.read(&mut core.scratch) {
                net::Io::Moved(_) | net::Io::Blocked => {}
                net::Io::End => return Next::Close,
                net::Io::Failed(_) => return Next::Reset,
            }
        }
        Next::Again
    }

    /// Sends a last answer, ends our side and waits for the client to end its own.
    fn answer_and_end(&mut self, core: &mut Core, answer: &[u8]) -> Next {
        if !answer.is_empty() {
            // A client that can't take a few bytes has lost its answer.
            match self.client.write(answer) {
                net::Io::Moved(n) if n == answer.len() => {}
                _ => return Next::Reset,
            }
        }
        if net::finish_writing(&self.client.fd).is_err() {
            return Next::Close;
        }
        let until = core.tick + ticks(LINGER);
        self.start_draining(core, until)
    }
}

/// Reads a flow may make before others get their turn: half a megabyte.
const READS_PER_STEP: usize = 4;
