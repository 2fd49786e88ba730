//! From clients: opened, or wrapped for the server, and sent on.

use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;

use adit_acl::{Decision, Route as ListedRoute};
use adit_handshake::parse_udp_header;
use adit_observe::UserCounters;
use adit_shadowsocks::{
    Method, OpenedPacket, PACKET_HEAD_MAX, PACKET_HEADROOM, PACKET_TAILROOM, PacketHead,
    PacketReject, RelayKey, ServerKey, ServerSession,
};
use adit_sys::datagram::{Family, Route};
use adit_sys::net::Peer;
use adit_wire::{Target, TargetBuf};

use crate::clients::is_refused;
use crate::core::Core;
use crate::guard::Transport;
use crate::redirect::{Astray, check};
use crate::role::{Inbound, Redirect, Role, RoleKind, Upstream};
use crate::slab::Key;
use crate::token::Token;
use crate::udp::choice::choose;
use crate::udp::sessions::{Codec, Name, Session};
use crate::udp::waiting::For;
use crate::udp::{At, Known, Tools, Udp, env, note_reject};

/// A datagram of a client, in the inbox.
pub(super) struct Incoming {
    /// The way back.
    pub(super) reply: Route,
    pub(super) source: SocketAddr,
    /// Where it was going, when the firewall gave it to us.
    pub(super) destination: Option<SocketAddr>,
    /// Its slot, and where in the slot it lies.
    pub(super) index: usize,
    pub(super) range: Range<usize>,
}

/// A client whose payload goes through a server.
pub(super) struct Sender {
    /// Where it was heard.
    pub(super) listener: Key,
    pub(super) role: Arc<Role>,
    /// The way back.
    pub(super) reply: Route,
    pub(super) source: SocketAddr,
    pub(super) unix_s: u64,
}

impl Incoming {
    /// A part of it, as a part of the slot.
    const fn part(&self, part: &Range<usize>) -> Range<usize> {
        self.range.start + part.start..self.range.start + part.end
    }
}

impl Udp {
    /// Takes one datagram of a client.
    pub(super) fn on_request(&mut self, tools: &mut Tools<'_>, at: &At, incoming: &Incoming) {
        match &at.role.kind {
            RoleKind::Server { key, .. } => {
                let peer = Peer::Internet(incoming.source);
                if !is_refused(tools.core, &at.role, peer) {
                    self.relay_to_target(tools, at, key, incoming);
                }
            }
            RoleKind::Client { inbound, .. } => self.relay_to_server(tools, at, inbound, incoming),
            RoleKind::Hop { key, .. } => self.relay_to_next(tools, at, key, incoming),
        }
    }

    pub(super) fn find(&mut self, name: Name) -> Option<Key> {
        if let Some((last, key)) = self.last
            && last == name
        {
            return Some(key);
        }
        let key = self.sessions.find(&name)?;
        self.last = Some((name, key));
        Some(key)
    }

    fn relay_to_target(
        &mut self,
        tools: &mut Tools<'_>,
        at: &At,
        server_key: &ServerKey,
        incoming: &Incoming,
    ) {
        let &Incoming { reply, source, index, ref range, .. } = incoming;
        let packet = &self.inbox.slot(index)[range.clone()];
        let head = match server_key.peek(packet) {
            Ok(head) => head,
            Err(reject) => return note_reject(tools.core, source, reject),
        };
        let name = head.session.map_or(Name::Source(at.key, source), Name::Id);
        let opened = match self.find(name) {
            Some(key) => self.open_known(tools, at, server_key, key, &head, incoming),
            None => self.open_first(tools, at, server_key, name, &head, incoming),
        };
        let (key, opened) = match opened {
            Ok(Some(opened)) => opened,
            // Counted where it was decided.
            Ok(None) => return,
            Err(reject) => return note_reject(tools.core, source, reject),
        };
        let Some(session) = self.sessions.get_mut(key) else { return };
        session.reply = reply;
        let len = opened.payload.len();
        count_user(session, |user| {
            user.datagrams_up.inc();
            user.bytes_up.add(len as u64);
        });
        session.role.count_in(range.len());
        tools.core.counters.datagrams_up.inc();
        tools.core.counters.datagram_bytes_up.add(len as u64);
        let payload = incoming.part(&opened.payload);
        self.send_to_target(tools, key, &opened.target, index, payload);
    }

    fn open_known(
        &mut self,
        tools: &Tools<'_>,
        at: &At,
        server_key: &ServerKey,
        key: Key,
        head: &PacketHead,
        incoming: &Incoming,
    ) -> Result<Option<(Key, OpenedPacket)>, PacketReject> {
        let Some(session) = self.sessions.get_mut(key) else { return Ok(None) };
        let Codec::Server(codec) = &mut session.codec else {
            return Err(PacketReject::ForeignSession);
        };
        // Heard at another listener than before: that is the same server only with the same keys.
        let moves = !Arc::ptr_eq(&session.role, &at.role);
        if moves && !session.role.has_same_keys(&at.role) {
            return Err(PacketReject::ForeignSession);
        }
        let packet = &mut self.inbox.slot(incoming.index)[incoming.range.clone()];
        let opened = codec.open(server_key, head, packet, at.unix_s)?;
        if moves {
            session.role = Arc::clone(&at.role);
        }
        session.listener = at.key;
        check_salt(at, &packet[opened.salt.clone()])?;
        self.sessions.touch(key, tools.core.tick, true);
        Ok(Some((key, opened)))
    }

    /// Opens a packet of a session that this worker does not have.
    fn open_first(
        &mut self,
        tools: &mut Tools<'_>,
        at: &At,
        server_key: &ServerKey,
        name: Name,
        head: &PacketHead,
        incoming: &Incoming,
    ) -> Result<Option<(Key, OpenedPacket)>, PacketReject> {
        let &Incoming { reply, source, index, ref range, .. } = incoming;
        let core = &mut *tools.core;
        let packet = &mut self.inbox.slot(index)[range.clone()];
        let book = at.role.datagrams.book.as_deref();
        let remains = match (head.session, book) {
            (Some(id), Some(book)) => match book.look(id, core.now) {
                Known::New => None,
                Known::Ended(remains) => remains,
                // Ours, and yet not found: it ended this moment.
                Known::At(worker) if worker == core.worker => return Err(PacketReject::Replayed),
                Known::At(worker) => {
                    if core.crew.forward(worker, at.id, reply, packet) {
                        core.counters.datagrams_forwarded.inc();
                    } else {
                        core.counters.datagrams_dropped.inc();
                    }
                    return Ok(None);
                }
            },
            _ => None,
        };
        let mut env = env(core, at.unix_s);
        let (codec, opened) =
            ServerSession::open_first(server_key, head, packet, remains, &mut env)?;
        check_salt(at, &packet[opened.salt.clone()])?;
        let role = Arc::clone(&at.role);
        let session = Session::new(name, at.key, role, Codec::Server(codec), reply, source);
        let Some(key) = self.begin(core, session) else { return Ok(None) };
        if let (Some(id), Some(book)) = (head.session, book)
            && !book.begin(id, core.worker, core.now)
        {
            // Another worker began it this moment, or the book is full of open sessions.
            self.take_back(core, key);
            core.counters.datagrams_dropped.inc();
            return Ok(None);
        }
        if let Some(session) = self.sessions.get(key) {
            count_user(session, |user| user.sessions.inc());
        }
        Ok(Some((key, opened)))
    }

    fn relay_to_server(
        &mut self,
        tools: &mut Tools<'_>,
        at: &At,
        inbound: &Inbound,
        incoming: &Incoming,
    ) {
        let &Incoming { reply, source, index, ref range, .. } = incoming;
        let core = &mut *tools.core;
        let (target, header_len) = match inbound {
            Inbound::Tunnel(target) => (*target, 0),
            Inbound::Redirect(redirect) => {
                match destination(core, redirect, at.role.servers(), incoming) {
                    Some(target) => (target, 0),
                    None => return,
                }
            }
            Inbound::Proxy { .. } => {
                match parse_udp_header(&self.inbox.slot(index)[range.clone()]) {
                    Ok(header) => header,
                    Err(reject) => {
                        core.counters.datagrams_rejected.inc();
                        core.log_peer_fault(format_args!("{source}: datagram dropped: {reject}"));
                        return;
                    }
                }
            }
        };
        let payload = range.start + header_len..range.end;
        if let Some(direct) = at.role.direct()
            && core.judges.route(&direct.acl, target.target().host)
                != Decision::Known(ListedRoute::Proxied)
        {
            return self.relay_direct(tools, at, incoming, &target, payload);
        }
        core.counters.datagrams_up.inc();
        core.counters.datagram_bytes_up.add(payload.len() as u64);
        let role = Arc::clone(&at.role);
        let sender = Sender { listener: at.key, role, reply, source, unix_s: at.unix_s };
        self.send_through_server(tools, &sender, &target, index, payload);
    }

    /// Sends a payload in the inbox to a target through a server, in the client's session for that.
    pub(super) fn send_through_server(
        &mut self,
        tools: &mut Tools<'_>,
        sender: &Sender,
        target: &TargetBuf,
        index: usize,
        payload: Range<usize>,
    ) {
        let &Sender { listener, ref role, reply, source, unix_s } = sender;
        let core = &mut *tools.core;
        let name = Name::Source(listener, source);
        let key = match self.find(name) {
            Some(key) => {
                self.sessions.touch(key, core.tick, true);
                key
            }
            None => {
                let Some(codec) = choose(core, role, None) else { return };
                let session = Session::new(name, listener, Arc::clone(role), codec, reply, source);
                let Some(key) = self.begin(core, session) else { return };
                key
            }
        };
        self.expect_answer(core, key);
        let Some(session) = self.sessions.get_mut(key) else { return };
        session.reply = reply;
        if !self.reach_server(tools, key) {
            let payload = &self.inbox.slot(index)[payload];
            let fits = self.queues.find(key, &For::Server).is_some_and(|queue| {
                self.queues.push(queue, &mut tools.core.pool, target.as_bytes(), payload)
            });
            if !fits {
                tools.core.counters.datagrams_dropped.inc();
            }
            return;
        }
        self.seal_to_server(tools, unix_s, key, target, index, payload);
    }

    /// Seals a payload that lies in the inbox for the session's server, which can be reached.
    pub(super) fn seal_to_server(
        &mut self,
        tools: &mut Tools<'_>,
        unix_s: u64,
        key: Key,
        target: &TargetBuf,
        index: usize,
        payload: Range<usize>,
    ) {
        let head_room = if payload.is_empty() { PACKET_HEADROOM } else { PACKET_HEAD_MAX };
        let len = head_room + payload.len() + PACKET_TAILROOM;
        if self.outbox.reserve(len).is_err() {
            self.flush(tools);
        }
        let Self { sessions, inbox, outbox, .. } = self;
        let Some(session) = sessions.get_mut(key) else { return };
        let Some((server, _)) = session.server else { return };
        let Session { role, codec: Codec::Client(codec, turn), .. } = session else { return };
        let client_key = &role.servers()[usize::from(*turn)].key;
        let Ok(room) = outbox.reserve(len) else { return };
        let place = head_room..head_room + payload.len();
        room[place.clone()].copy_from_slice(&inbox.slot(index)[payload]);
        let core = &mut *tools.core;
        match codec.seal(client_key, room, place, target, &mut env(core, unix_s)) {
            Ok(packet) => {
                remember_own(role, client_key.method(), &room[packet.clone()]);
                outbox.push_reserved(packet, &upstream_route(key, server));
            }
            // After 2^64 datagrams; the next one begins another session.
            Err(_) => self.end(core, key),
        }
    }

    fn relay_to_next(
        &mut self,
        tools: &mut Tools<'_>,
        at: &At,
        relay_key: &RelayKey,
        incoming: &Incoming,
    ) {
        let &Incoming { reply, source, index, ref range, .. } = incoming;
        let core = &mut *tools.core;
        let peeled = match relay_key.peel_packet(&mut self.inbox.slot(index)[range.clone()]) {
            Ok(peeled) => peeled,
            Err(reject) => return note_reject(core, source, reject),
        };
        let name = Name::Hop(at.key, source, peeled.next);
        let key = match self.find(name) {
            Some(key) => {
                self.sessions.touch(key, core.tick, true);
                key
            }
            None => {
                let codec = Codec::Hop(peeled.next);
                let session =
                    Session::new(name, at.key, Arc::clone(&at.role), codec, reply, source);
                let Some(key) = self.begin(core, session) else { return };
                key
            }
        };
        let Some(session) = self.sessions.get_mut(key) else { return };
        session.reply = reply;
        session.role.count_in(range.len());
        let packet = incoming.part(&peeled.forward);
        core.counters.datagrams_up.inc();
        core.counters.datagram_bytes_up.add(packet.len() as u64);
        if self.reach_server(tools, key) {
            let server = self.sessions.get(key).and_then(|s| s.server);
            if let Some((server, _)) = server {
                self.push_received(tools, index, packet, &upstream_route(key, server));
            }
            return;
        }
        let packet = &self.inbox.slot(index)[packet];
        let fits = self
            .queues
            .find(key, &For::Server)
            .is_some_and(|queue| self.queues.push(queue, &mut tools.core.pool, &[], packet));
        if !fits {
            tools.core.counters.datagrams_dropped.inc();
        }
    }

    /// Sends a part of the inbox on, where it lies.
    pub(super) fn push_received(
        &mut self,
        tools: &Tools<'_>,
        index: usize,
        range: Range<usize>,
        route: &Route,
    ) {
        let place = self.inbox.place(index, range);
        if self.outbox.push_received(place, route).is_err() {
            self.flush(tools);
            // An empty outbox has room.
            if self.outbox.push_received(place, route).is_err() {
                return tools.core.counters.datagrams_dropped.inc();
            }
        }
        self.in_place = true;
    }
}

/// Where a redirected datagram was going, if it may go on.
fn destination(
    core: &mut Core,
    redirect: &Redirect,
    servers: &[Upstream],
    incoming: &Incoming,
) -> Option<TargetBuf> {
    let source = incoming.source;
    let astray = match incoming.destination {
        None => Astray::NoDestination(None),
        Some(destination) => {
            let names = (&mut core.names, core.now);
            match check((redirect, servers), names, source, destination, Transport::Datagram) {
                Ok(()) => return Some(Target::from(destination).into()),
                Err(astray) => astray,
            }
        }
    };
    match astray {
        Astray::NoDestination(_) => core.counters.datagrams_rejected.inc(),
        Astray::OwnListener | Astray::OwnServer => core.counters.blocked.inc(),
    }
    core.log_peer_fault(format_args!("{source}: datagram dropped: {astray}"));
    None
}

/// The way to the server of a session.
pub(super) fn upstream_route(key: Key, server: SocketAddr) -> Route {
    let family = Family::of(server.ip());
    Route::connected(Token::Upstream(family, key).into(), family)
}

/// Whether a SIP004 packet is no copy; the salt is empty for other methods.
fn check_salt(at: &At, salt: &[u8]) -> Result<(), PacketReject> {
    match &at.role.datagrams.salts {
        Some(salts) if !salts.is_new(salt) => Err(PacketReject::Replayed),
        _ => Ok(()),
    }
}

/// Remembers the salt of a SIP004 packet of ours, which would open if it were sent back.
pub(super) fn remember_own(role: &Role, method: Method, packet: &[u8]) {
    if method.is_2022() || method == Method::None {
        return;
    }
    if let Some(salts) = &role.datagrams.salts {
        // A fresh random salt; there is nobody to refuse if it were not.
        let _ = salts.is_new(&packet[..method.salt_len()]);
    }
}

/// Counts for the user of a session, on a port that has several.
pub(super) fn count_user(session: &Session, count: impl FnOnce(&UserCounters)) {
    if let (Codec::Server(codec), RoleKind::Server { users, .. }) =
        (&session.codec, &session.role.kind)
        && let Some(user) = codec.user()
        && let Some(user) = users.get(usize::from(user))
    {
        count(user);
    }
}

/// The address and the payload of a datagram that waited.
pub(super) fn split_waiting(bytes: &[u8]) -> Option<(TargetBuf, usize)> {
    let (target, len) = Target::parse(bytes).ok()?;
    Some((target.into(), len))
}
