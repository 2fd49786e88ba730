//! Datagrams of a worker: from a listener to the sockets of sessions, and back.
//!
//! ```text
//! listener ─► Inbox ─► open, in place ─► Outbox ─► the session's socket ─► target or server
//! listener ◄─ Outbox ◄─ seal, in the outbox ◄─ Inbox ◄─ the session's socket
//! ```
//!
//! Cost of a datagram in a known session, besides the AEAD pass and the kernel's own: a share of
//! one receiving and one sending call (1/32 and less, with trains 1/63 of that), one look-up in a
//! hash table when the datagram before was of another session, a few comparisons. Nothing
//! allocates once the first listener is there. What arrives in small portions for many sessions is
//! sealed into the outbox and sent together when all events of a turn have been seen.
//!
//! A session has one socket a family towards targets, so that a target answers to the same port
//! whatever the session talked to before (endpoint-independent mapping, "full cone"). Whatever
//! reaches such a socket goes to the session's client.
//!
//! Nothing here ends a session or a worker for what a peer sent: bad datagrams are counted and
//! dropped.

mod book;
mod choice;
mod direct;
mod inbound;
mod outbound;
mod resolve;
mod salts;
mod sessions;
mod transparent;
mod waiting;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use adit_observe::log;
use adit_shadowsocks::{Env, PACKET_HEADROOM, PACKET_TAILROOM, PacketReject};
use adit_sys::Errno;
use adit_sys::datagram::{self, Family, Inbox, Outbox, Route, Segmentation};
use adit_sys::poll::Interest;

pub(crate) use book::Known;
pub use book::SessionBook;
pub use salts::PacketSalts;

use crate::core::{Core, unix_s};
use crate::crew::Parcels;
use crate::listeners::Listeners;
use crate::role::{Inbound, Role, RoleKind};
use crate::slab::Key;
use crate::token::Token;
use crate::udp::inbound::Incoming;
use crate::udp::sessions::{Codec, Name, Session, Sessions};
use crate::udp::transparent::ReplySockets;
use crate::udp::waiting::Queues;
use crate::wheel::Tick;
use crate::worker::ListenerId;

/// Receiving calls for one socket before others get their turn.
const ROUNDS: usize = 4;
/// Datagrams in the outbox that are sent without waiting for more. A call costs as much as a few
/// datagrams do; without this the next program stands still while a whole turn is worked off.
const HAND_ON: usize = 24;

/// The datagram side of a worker.
pub(crate) struct Udp {
    sessions: Sessions,
    inbox: Inbox,
    outbox: Outbox,
    queues: Queues,
    /// The outbox refers to bytes in the inbox: it has to go out before the next reception.
    in_place: bool,
    /// The session of the last datagram from a client; the next one is often of the same.
    last: Option<(Name, Key)>,
    /// Whether IPv6 targets can be reached, and when that was found out.
    v6_routed: Option<(bool, Tick)>,
    parcels: Parcels,
    /// Made when the first listener of redirected datagrams comes.
    replies: Option<Box<ReplySockets>>,
}

/// What the datagram side borrows from its worker.
pub(crate) struct Tools<'a> {
    pub(crate) core: &'a mut Core,
    pub(crate) listeners: &'a Listeners,
}

/// A listener at work.
struct At {
    key: Key,
    id: ListenerId,
    role: Arc<Role>,
    unix_s: u64,
}

impl Udp {
    /// Reserves the memory for `sessions` sessions.
    pub(crate) fn new(sessions: usize) -> Self {
        Self {
            sessions: Sessions::with_capacity(sessions),
            inbox: Inbox::new(PACKET_HEADROOM, PACKET_TAILROOM),
            outbox: Outbox::new(Segmentation::On),
            queues: Queues::new(),
            in_place: false,
            last: None,
            v6_routed: None,
            parcels: Parcels::new(),
            replies: None,
        }
    }

    /// Makes ready for what a role needs.
    pub(crate) fn prepare(&mut self, role: &Role) {
        if let RoleKind::Client { inbound: Inbound::Redirect(_), .. } = &role.kind {
            self.prepare_replies();
        }
    }

    /// A listener has datagrams.
    pub(crate) fn on_listener(&mut self, tools: &mut Tools<'_>, key: Key) {
        let Some(listener) = tools.listeners.get(key) else { return };
        let at = At { key, id: listener.id, role: Arc::clone(&listener.role), unix_s: unix_s() };
        for _ in 0..ROUNDS {
            let messages = self.receive(tools, &listener.fd);
            for index in 0..messages {
                let message = self.inbox.message(index);
                if message.truncated {
                    tools.core.counters.datagrams_too_long.inc();
                    continue;
                }
                let reply = message.reply(Token::Datagrams(key).into());
                let (source, destination) = (message.source, message.destination);
                for range in message.datagrams() {
                    let incoming = Incoming { reply, source, destination, index, range };
                    self.on_request(tools, &at, &incoming);
                    self.hand_on(tools);
                }
            }
            if messages < datagram::SLOTS {
                break;
            }
        }
        // What clients sent lies in the inbox, which the next event needs.
        self.flush(tools);
    }

    /// A session's socket has datagrams.
    pub(crate) fn on_upstream(&mut self, tools: &mut Tools<'_>, key: Key, family: Family) {
        for _ in 0..ROUNDS {
            if self.in_place {
                self.flush(tools);
            }
            let Some(session) = self.sessions.get(key) else { return };
            let Some(fd) = session.socket(family) else { return };
            let before = tools.core.counters.icmp_errors.value();
            let messages = receive(&mut self.inbox, tools.core, fd);
            if tools.core.counters.icmp_errors.value() != before {
                choice::note_refused(tools.core, session);
            }
            let unix_s = unix_s();
            for index in 0..messages {
                let message = self.inbox.message(index);
                if message.truncated {
                    tools.core.counters.datagrams_too_long.inc();
                    continue;
                }
                for range in message.datagrams() {
                    self.on_reply(tools, key, message.source, index, range, unix_s);
                    self.hand_on(tools);
                }
            }
            if messages > 0 {
                self.sessions.touch(key, tools.core.tick, false);
            }
            if messages < datagram::SLOTS {
                return;
            }
        }
    }

    /// Datagrams that other workers got for sessions of ours.
    pub(crate) fn on_parcels(&mut self, tools: &mut Tools<'_>) {
        let mut parcels = std::mem::replace(&mut self.parcels, Parcels::EMPTY);
        tools.core.crew.take(tools.core.worker, &mut parcels);
        for (parcel, bytes) in parcels.iter() {
            let Some(key) = tools.listeners.find(parcel.listener) else { continue };
            let Some(listener) = tools.listeners.get(key) else { continue };
            let role = Arc::clone(&listener.role);
            let at = At { key, id: parcel.listener, role, unix_s: unix_s() };
            let Some(source) = parcel.reply.to else { continue };
            let reply = Route { socket: Token::Datagrams(key).into(), ..parcel.reply };
            // Into an inbox that nothing refers to.
            self.flush(tools);
            let range = PACKET_HEADROOM..PACKET_HEADROOM + bytes.len();
            self.inbox.slot(0)[range.clone()].copy_from_slice(bytes);
            let incoming = Incoming { reply, source, destination: None, index: 0, range };
            self.on_request(tools, &at, &incoming);
        }
        self.flush(tools);
        self.parcels = parcels;
    }

    /// Ends sessions that have been silent for their limit.
    pub(crate) fn on_tick(&mut self, tools: &mut Tools<'_>) {
        while let Some(key) = self.sessions.expired(tools.core.tick) {
            tools.core.counters.sessions_idle.inc();
            self.end(tools.core, key);
        }
        self.close_idle_replies(tools);
    }

    /// Ticks until [`Udp::on_tick`] may have something to do.
    pub(crate) fn next_in(&self, tick: Tick) -> Option<Tick> {
        let replies = self.replies.as_deref().and_then(|replies| replies.next_in(tick));
        [self.sessions.next_in(tick), replies].into_iter().flatten().min()
    }

    /// Ends the sessions of a listener that is no longer there.
    pub(crate) fn on_unlisten(&mut self, core: &mut Core, listener: Key) {
        self.end_where(core, |session| session.listener == listener);
    }

    /// Moves the sessions of a listener to a new role. Those of clients go on as they began; those
    /// of a user who is no longer there end.
    pub(crate) fn on_assign(&mut self, core: &mut Core, listener: Key, role: &Arc<Role>) {
        self.last = None;
        for key in self.sessions.keys().collect::<Vec<_>>() {
            let Some(session) = self.sessions.get_mut(key) else { continue };
            if session.listener != listener {
                continue;
            }
            let goes_on = match (&mut session.codec, &session.role.kind, &role.kind) {
                (
                    Codec::Server(codec),
                    RoleKind::Server { key: from, .. },
                    RoleKind::Server { key: to, .. },
                ) => {
                    let goes_on = codec.move_to(from, to);
                    if goes_on {
                        session.role = Arc::clone(role);
                    }
                    goes_on
                }
                (
                    Codec::Client(_, turn),
                    RoleKind::Client { inbound: from, servers: old, .. },
                    RoleKind::Client { inbound: to, servers: new, .. },
                ) => {
                    // A server that is no longer there may have ended; the next datagram begins
                    // anew through one that is.
                    let moved = old.get(usize::from(*turn)).and_then(|used| {
                        let at = new.iter().position(|server| server.is_same(used))?;
                        u16::try_from(at).ok()
                    });
                    let goes_on = moved.filter(|_| from.speaks_as(to));
                    if let Some(at) = goes_on {
                        *turn = at;
                        session.role = Arc::clone(role);
                    }
                    goes_on.is_some()
                }
                (
                    Codec::Direct,
                    RoleKind::Client { inbound: from, .. },
                    RoleKind::Client { inbound: to, direct: Some(_), .. },
                ) => {
                    let goes_on = from.speaks_as(to);
                    if goes_on {
                        session.role = Arc::clone(role);
                    }
                    goes_on
                }
                (Codec::Hop(_), RoleKind::Hop { key: from, .. }, RoleKind::Hop { key: to, .. }) => {
                    from == to
                }
                _ => false,
            };
            if !goes_on {
                self.end(core, key);
            }
        }
    }

    /// Ends every session.
    pub(crate) fn end_all(&mut self, core: &mut Core) {
        self.end_where(core, |_| true);
    }

    /// Sends what waits in the outbox.
    pub(crate) fn flush(&mut self, tools: &Tools<'_>) {
        self.in_place = false;
        if self.outbox.is_empty() {
            return;
        }
        let Self { sessions, inbox, outbox, replies, .. } = self;
        let replies = replies.as_deref();
        let flushed =
            outbox.flush(inbox, |token| socket(tools.listeners, sessions, replies, token));
        let counters = &tools.core.counters;
        counters.datagrams_dropped.add(flushed.dropped + flushed.failed);
        counters.datagrams_too_long.add(flushed.too_long);
        if let Some(error) = flushed.error {
            log::debug!("{} datagrams not sent: {error}", flushed.failed);
        }
        if let Some(Token::Upstream(family, key)) = flushed.dead.map(Token::from)
            && let Some(session) = self.sessions.get_mut(key)
        {
            // The next datagram opens another one.
            session.upstream[sessions::slot(family)] = None;
            session.server = None;
        }
    }

    /// Sends what waits in the outbox once it is worth a call: whoever gets it can begin on another
    /// core, while this one goes on with what has come.
    fn hand_on(&mut self, tools: &Tools<'_>) {
        if self.outbox.len() >= HAND_ON {
            self.flush(tools);
        }
    }

    /// Receives over what the inbox holds, which is sent before if need be.
    fn receive(&mut self, tools: &mut Tools<'_>, fd: &OwnedFd) -> usize {
        if self.in_place {
            self.flush(tools);
        }
        receive(&mut self.inbox, tools.core, fd.as_fd())
    }

    fn end_where(&mut self, core: &mut Core, which: impl Fn(&Session) -> bool) {
        // Off the hot path: a reload, or the end.
        for key in self.sessions.keys().collect::<Vec<_>>() {
            if self.sessions.get(key).is_some_and(&which) {
                self.end(core, key);
            }
        }
    }

    /// Ends a session. What is in the outbox for it is dropped with the next flush.
    fn end(&mut self, core: &mut Core, key: Key) {
        let Some(session) = self.take_back(core, key) else { return };
        if let (Codec::Server(codec), Some(book)) = (&session.codec, &session.role.datagrams.book)
            && let Some(id) = codec.id()
        {
            book.end(id, codec.remains(), core.now);
        }
    }

    /// Takes a session out, as if it had not been.
    fn take_back(&mut self, core: &mut Core, key: Key) -> Option<Session> {
        self.forget_waiting(core, key);
        let session = self.sessions.remove(key)?;
        self.last = None;
        core.counters.sessions_open.sub(1);
        if let Some(clients) = &session.counted {
            clients.end_session(session.began_at.ip());
        }
        Some(session)
    }

    /// Puts a new session in, at the expense of the one that is missed least when all places are
    /// taken; `None` when the client has as many as it may.
    fn begin(&mut self, core: &mut Core, mut session: Session) -> Option<Key> {
        let source = session.began_at;
        if let Some(clients) = &session.role.clients {
            if !clients.try_session(source.ip()) {
                core.counters.client_limit.inc();
                core.log_peer_fault(format_args!("{source}: datagram dropped: too many sessions"));
                return None;
            }
            session.counted = Some(Arc::clone(clients));
        }
        if self.sessions.is_full() {
            self.make_room(core, None);
        }
        core.counters.sessions.inc();
        core.counters.sessions_open.inc();
        let key = self.sessions.insert(session, core.tick);
        debug_assert!(key.is_some(), "room was made");
        key
    }

    /// Ends the session that is missed least; false when there is none but the spared one.
    fn make_room(&mut self, core: &mut Core, spared: Option<Key>) -> bool {
        let Some(oldest) = self.sessions.oldest(spared) else { return false };
        core.counters.sessions_evicted.inc();
        self.end(core, oldest);
        true
    }

    /// Opens a socket for a session; with descriptors used up, another session gives its own.
    fn open_socket(
        &mut self,
        core: &mut Core,
        key: Key,
        family: Family,
        open: impl Fn(&Role) -> std::io::Result<OwnedFd>,
    ) -> bool {
        let Some(role) = self.sessions.get(key).map(|s| Arc::clone(&s.role)) else { return false };
        let mut opened = open(&role);
        if opened.as_ref().is_err_and(is_out_of_descriptors) && self.make_room(core, Some(key)) {
            opened = open(&role);
        }
        let watched = opened.and_then(|fd| {
            core.poll.add(&fd, Token::Upstream(family, key).into(), Interest::Level)?;
            Ok(fd)
        });
        match watched {
            Ok(fd) => {
                if let Some(session) = self.sessions.get_mut(key) {
                    session.upstream[sessions::slot(family)] = Some(fd);
                }
                true
            }
            Err(e) => {
                core.log_peer_fault(format_args!("no socket for a UDP session: {e}"));
                false
            }
        }
    }
}

/// The descriptor that a route's token stands for.
fn socket<'fd>(
    listeners: &'fd Listeners,
    sessions: &'fd Sessions,
    replies: Option<&'fd ReplySockets>,
    token: u64,
) -> Option<BorrowedFd<'fd>> {
    match Token::from(token) {
        Token::Datagrams(key) => listeners.get(key).map(|listener| listener.fd.as_fd()),
        Token::Upstream(family, key) => sessions.get(key)?.socket(family),
        Token::Reply(key) => replies?.socket(key),
        _ => None,
    }
}

fn receive(inbox: &mut Inbox, core: &mut Core, fd: BorrowedFd<'_>) -> usize {
    match inbox.receive(fd) {
        Ok(received) => {
            core.counters.icmp_errors.add(received.ignored.into());
            received.messages
        }
        Err(e) => {
            core.log_peer_fault(format_args!("receiving datagrams: {e}"));
            0
        }
    }
}

fn is_out_of_descriptors(error: &std::io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS))
}

/// What sealing needs.
const fn env(core: &mut Core, unix_s: u64) -> Env<'_> {
    Env { unix_s, rng: &mut core.rng }
}

/// Counts a packet that a codec refused, and says why at a bounded rate.
fn note_reject(core: &mut Core, source: std::net::SocketAddr, reject: PacketReject) {
    if reject == PacketReject::Replayed {
        core.counters.datagrams_replayed.inc();
    } else {
        core.counters.datagrams_rejected.inc();
    }
    core.log_peer_fault(format_args!("{source}: datagram dropped: {reject}"));
}
