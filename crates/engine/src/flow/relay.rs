//! The relay: plaintext on one side, records on the other, both directions at once. A hop relays
//! with neither: what it reads goes out as it is.
//!
//! Cost of one turn of a busy direction, 128 KiB: sealing is one `readv`, 16 AEAD calls and one
//! `write`; opening is one `read`, 16 AEAD calls and one `writev`. Nothing is copied in between,
//! except a record's cut-off tail (8 KiB on average) and what a slow sink did not take. A turn
//! that reads less than it asked for ends with it: no extra call to learn that the queue is empty.

use std::io::{IoSlice, IoSliceMut};
use std::num::NonZeroU32;
use std::ops::Range;
use std::sync::PoisonError;

use adit_handshake::Body;
use adit_observe::{UserCounters, log};
use adit_shadowsocks::{
    Accepted, ClientHandshake, Env, Method, Opener, PADDED_LEN_MAX, Reject, SALT_LEN_MAX, Sealer,
};
use adit_sys::net::{self, Io, Peer};
use adit_wire::TargetBuf;
use arrayvec::ArrayVec;

use crate::core::{Core, SCRATCH_LEN, SLOTS_MAX, record_payload, unix_s};
use crate::flow::direction::{Broken, Direction};
use crate::flow::{Flow, Next, READS_PER_STEP, Socket, State};
use crate::role::{Role, RoleKind};
use crate::wheel::{Tick, ticks};

/// Payloads gathered into one vectored write.
const PIECES_MAX: usize = 64;
/// Room behind the last slot for the padding of a request without payload.
const PADDING_ROOM: usize = PADDED_LEN_MAX;

/// The sending half of the encrypted side.
#[expect(clippy::large_enum_variant, reason = "the large variant is the one that lasts")]
enum Sealing {
    /// A client that has not sent its request header yet.
    Request { target: TargetBuf },
    /// A server that has not sent its response header yet.
    Response { request_salt: [u8; SALT_LEN_MAX], user: Option<u16> },
    /// Past the header.
    Records(Sealer),
    /// A hop, or a client without a server, which passes on what it reads.
    Raw,
}

/// The receiving half of the encrypted side.
enum Opening {
    /// A client that has not seen the response header yet.
    Response(ClientHandshake),
    /// Past the header.
    Records(Opener),
    /// A hop, or a client without a server, which passes on what it reads.
    Raw,
}

/// Both directions of a flow that is connected.
pub(crate) struct Relay {
    sealing: Sealing,
    opening: Opening,
    /// A forwarded HTTP request ends where its body does, whatever the client sends after it.
    body: Option<Body>,
    /// The client of a forwarded request has ended its side.
    client_ended: bool,
    /// Send the request header even without payload.
    pub(crate) send_head: bool,
    /// Tells the target of a client's flow from others, while nobody was told of a lack of answers.
    unanswered: Option<NonZeroU32>,
}

/// How a pump stopped.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pumped {
    /// Nothing to do until a socket is ready.
    Idle,
    /// There is more, and others wait.
    Budget,
    /// The pool has no room for what a read may bring.
    NoBuffers,
}

/// Which payload ranges of the scratch the next records get.
type Slots = ArrayVec<Range<usize>, SLOTS_MAX>;

impl Relay {
    pub(crate) fn client(target: TargetBuf, body: Option<Body>) -> Self {
        Self {
            sealing: Sealing::Request { target },
            // Replaced once the request is out; nothing can arrive before.
            opening: Opening::Response(ClientHandshake::new([0; SALT_LEN_MAX])),
            body,
            client_ended: false,
            send_head: false,
            unanswered: Some(tag(&target)),
        }
    }

    pub(crate) const fn server(
        opener: Opener,
        request_salt: [u8; SALT_LEN_MAX],
        user: Option<u16>,
    ) -> Self {
        Self {
            sealing: Sealing::Response { request_salt, user },
            opening: Opening::Records(opener),
            body: None,
            client_ended: false,
            send_head: false,
            unanswered: None,
        }
    }

    pub(crate) const fn hop() -> Self {
        Self {
            sealing: Sealing::Raw,
            opening: Opening::Raw,
            body: None,
            client_ended: false,
            send_head: false,
            unanswered: None,
        }
    }

    /// Of a client that reaches its target without a server.
    pub(crate) fn direct(body: Option<Body>) -> Self {
        let mut relay = Self::hop();
        relay.body = body;
        relay
    }

    /// Whether bytes pass as they are.
    const fn is_raw(&self) -> bool {
        matches!(self.sealing, Sealing::Raw)
    }

    /// Whether a client's request is out and nothing of the response is in.
    pub(crate) const fn awaits_answer(&self) -> bool {
        matches!(self.opening, Opening::Response(_)) && !self.awaits_first_payload()
    }

    /// The target of a request that got no answer, once.
    pub(crate) fn take_unanswered(&mut self) -> Option<u32> {
        if self.awaits_answer() { self.unanswered.take().map(NonZeroU32::get) } else { None }
    }

    /// Whether the request header still waits for payload to go with it.
    pub(crate) const fn awaits_first_payload(&self) -> bool {
        matches!(self.sealing, Sealing::Request { .. })
    }

    /// Moves bytes from the plain side to the encrypted one.
    fn pump_seal(
        &mut self,
        core: &mut Core,
        end: &End<'_>,
        dir: &mut Direction,
        plain: &mut Socket,
        cipher: &mut Socket,
    ) -> Result<Pumped, Broken> {
        for _ in 0..READS_PER_STEP {
            if !dir.flush(&mut core.pool, cipher)? {
                return Ok(Pumped::Idle);
            }
            let bare_head = self.awaits_first_payload() && (self.send_head || dir.source_ended);
            let can_read = plain.readable && !dir.source_ended;
            if dir.input.is_empty() && !can_read && !bare_head {
                if dir.source_ended {
                    self.finish_seal(core, dir, plain, cipher, end.other_finished)?;
                }
                return Ok(Pumped::Idle);
            }
            let Some(window) = core.read_window(dir.window) else {
                return Ok(Pumped::NoBuffers);
            };
            let slots = self.slots(end, window);
            let payload_len = self.fill(core, &slots, dir, plain)?;
            if payload_len > 0 || (bare_head && !can_read) {
                let run_len = self.seal(core, end, &slots, payload_len);
                dir.write(&mut core.pool, cipher, &core.scratch[..run_len])?;
                end.count_sealed(core, payload_len);
                end.role.count_out(run_len);
            }
        }
        Ok(Pumped::Budget)
    }

    /// The source of the sealing direction has ended: tell the other end.
    fn finish_seal(
        &mut self,
        core: &mut Core,
        dir: &mut Direction,
        plain: &mut Socket,
        cipher: &Socket,
        other_finished: bool,
    ) -> Result<(), Broken> {
        // A forwarded request ends where its body does. The origin was told to close after its
        // answer; to end our side as well makes some servers give up on it, so that waits until
        // the client itself ends.
        if self.body.is_some() && !self.client_ended {
            self.client_ended = discard(core, plain)?;
            if !self.client_ended {
                return Ok(());
            }
        }
        dir.finish(cipher, other_finished)
    }

    /// Whether the client of a forwarded request has nothing more to say that counts.
    const fn is_asked(&self, up: &Direction) -> bool {
        self.body.is_some() && up.source_ended && up.held() == 0
    }

    /// Lays out the records that a read of at most `window` bytes fills.
    fn slots(&self, end: &End<'_>, window: usize) -> Slots {
        let record_max = record_payload(end.method.is_2022());
        let later_head = if end.method == Method::None { 0 } else { 18 };
        let (mut head, mut payload_max) = match &self.sealing {
            Sealing::Request { target } => {
                let len = target.as_bytes().len();
                let key = end.client_key();
                let max = Sealer::request_payload_max(key, len);
                (Sealer::request_head_len(key, len), max.min(record_max))
            }
            Sealing::Response { .. } => (Sealer::response_head_len(end.method), record_max),
            Sealing::Records(_) | Sealing::Raw => (later_head, record_max),
        };
        let mut left = window;
        let mut at = 0;
        let mut slots = Slots::new();
        while left > 0 && !slots.is_full() {
            let start = at + head;
            let stop = start + payload_max.min(left);
            at = stop + Sealer::tail_len(end.method);
            if at + PADDING_ROOM > SCRATCH_LEN {
                break;
            }
            left -= stop - start;
            slots.push(start..stop);
            (head, payload_max) = (later_head, record_max);
        }
        slots
    }

    /// Puts plaintext into the slots: what waits in the input first, else one read.
    fn fill(
        &mut self,
        core: &mut Core,
        slots: &Slots,
        dir: &mut Direction,
        plain: &mut Socket,
    ) -> Result<usize, Broken> {
        if !dir.input.is_empty() {
            let mut filled = 0;
            for slot in slots {
                filled += core.pool.pop_into(&mut dir.input, &mut core.scratch[slot.clone()]);
            }
            return Ok(filled);
        }
        if !plain.readable || dir.source_ended {
            return Ok(0);
        }
        match read_slots(&mut core.scratch, slots, plain) {
            Io::Moved(n) => self.limit_to_body(core, slots, dir, n),
            Io::Blocked => Ok(0),
            // Cut off inside its body: the origin must not take it for a whole request.
            Io::End if self.body.is_some() => Err(Broken),
            Io::End => {
                dir.source_ended = true;
                Ok(0)
            }
            Io::Failed(_) => Err(Broken),
        }
    }

    /// Cuts what was read to the body of a forwarded HTTP request.
    fn limit_to_body(
        &mut self,
        core: &Core,
        slots: &Slots,
        dir: &mut Direction,
        read: usize,
    ) -> Result<usize, Broken> {
        let Some(body) = &mut self.body else { return Ok(read) };
        let mut left = read;
        let mut granted = 0;
        for slot in slots {
            let take = left.min(slot.len());
            left -= take;
            let bytes = &core.scratch[slot.start..slot.start + take];
            let mine = body.take(bytes).map_err(|e| {
                log::debug!("HTTP request body: {e}");
                Broken
            })?;
            granted += mine;
            if mine < take {
                break;
            }
        }
        dir.source_ended |= body.is_complete();
        Ok(granted)
    }

    /// Seals `payload_len` bytes that lie in the slots; returns the length of the run.
    fn seal(&mut self, core: &mut Core, end: &End<'_>, slots: &Slots, payload_len: usize) -> usize {
        let Core { scratch, rng, .. } = core;
        let mut left = payload_len;
        let mut at = 0;
        for slot in slots {
            let take = left.min(slot.len());
            let buf = &mut scratch[at..];
            at += match &mut self.sealing {
                Sealing::Records(sealer) => sealer.seal(buf, take),
                Sealing::Raw => take,
                Sealing::Request { target } => {
                    let mut env = Env { unix_s: unix_s(), rng };
                    let (sealer, salt, len) =
                        Sealer::request(end.client_key(), target.as_bytes(), &mut env, buf, take);
                    end.remember_own(&salt);
                    self.sealing = Sealing::Records(sealer);
                    self.opening = Opening::Response(ClientHandshake::new(salt));
                    len
                }
                Sealing::Response { request_salt, user } => {
                    let mut env = Env { unix_s: unix_s(), rng };
                    let session = Accepted::session(end.server_key(), *user);
                    let (sealer, len) =
                        Sealer::response(end.method, session, request_salt, &mut env, buf, take);
                    end.remember_own(buf);
                    self.sealing = Sealing::Records(sealer);
                    len
                }
            };
            left -= take;
            if left == 0 {
                break;
            }
        }
        at
    }

    /// Moves bytes from the encrypted side to the plain one.
    fn pump_open(
        &mut self,
        core: &mut Core,
        end: &End<'_>,
        dir: &mut Direction,
        cipher: &mut Socket,
        plain: &mut Socket,
    ) -> Result<Pumped, Broken> {
        for _ in 0..READS_PER_STEP {
            if !dir.flush(&mut core.pool, plain)? {
                return Ok(Pumped::Idle);
            }
            let can_read = cipher.readable && !dir.source_ended;
            if !can_read && !dir.input_unopened {
                if dir.source_ended {
                    dir.finish(plain, end.other_finished)?;
                }
                return Ok(Pumped::Idle);
            }
            let Some(window) = core.read_window(dir.window) else {
                return Ok(Pumped::NoBuffers);
            };
            let kept = core.pool.pop_into(&mut dir.input, &mut core.scratch);
            let filled = if std::mem::take(&mut dir.input_unopened) {
                kept
            } else {
                let read = self.read_records(core, dir, cipher, kept..kept + window)?;
                end.role.count_in(read);
                kept + read
            };
            self.open_run(core, end, dir, plain, filled)?;
        }
        Ok(Pumped::Budget)
    }

    /// Reads into a range of the scratch behind what is kept of an unfinished record; returns how
    /// many bytes came.
    fn read_records(
        &self,
        core: &mut Core,
        dir: &mut Direction,
        cipher: &mut Socket,
        range: Range<usize>,
    ) -> Result<usize, Broken> {
        let kept = range.start;
        match cipher.read(&mut core.scratch[kept..range.end.min(SCRATCH_LEN)]) {
            Io::Moved(n) => Ok(n),
            Io::Blocked => Ok(0),
            Io::End if kept == 0 && self.opening_at_boundary() => {
                dir.source_ended = true;
                Ok(0)
            }
            // Cut off inside a record: the reader must not take it for a clean end.
            Io::End | Io::Failed(_) => Err(Broken),
        }
    }

    const fn opening_at_boundary(&self) -> bool {
        match &self.opening {
            Opening::Response(handshake) => handshake.is_untouched(),
            Opening::Records(opener) => opener.at_boundary(),
            Opening::Raw => true,
        }
    }

    /// Opens every whole record of `scratch[..filled]`, writes the payloads and keeps the rest.
    fn open_run(
        &mut self,
        core: &mut Core,
        end: &End<'_>,
        dir: &mut Direction,
        plain: &mut Socket,
        filled: usize,
    ) -> Result<(), Broken> {
        let mut at = 0;
        let mut opened = 0;
        loop {
            let mut payloads = ArrayVec::<Range<usize>, PIECES_MAX>::new();
            let buf = &mut core.scratch[..filled];
            while !payloads.is_full() {
                match self.open_next(end, buf, &mut at) {
                    Ok(Some(payload)) => payloads.push(payload),
                    Ok(None) => break,
                    Err(reject) => {
                        core.counters.rejected.inc();
                        core.log_peer_fault(format_args!("{}: {reject}", end.peer));
                        return Err(Broken);
                    }
                }
            }
            if payloads.is_empty() {
                break;
            }
            opened += payloads.iter().map(ExactSizeIterator::len).sum::<usize>();
            let pieces: ArrayVec<IoSlice<'_>, PIECES_MAX> =
                payloads.iter().map(|p| IoSlice::new(&core.scratch[p.clone()])).collect();
            dir.write_pieces(&mut core.pool, plain, &pieces)?;
        }
        core.pool.push(&mut dir.input, &core.scratch[at..filled])?;
        end.count_opened(core, opened);
        Ok(())
    }

    /// The next payload that is not empty.
    fn open_next(
        &mut self,
        end: &End<'_>,
        buf: &mut [u8],
        at: &mut usize,
    ) -> Result<Option<Range<usize>>, Reject> {
        if let Opening::Response(handshake) = &mut self.opening {
            let replay = end.role.replay.as_deref();
            let response = handshake.advance(end.client_key(), unix_s(), replay, buf, at)?;
            let Some(response) = response else { return Ok(None) };
            self.opening = Opening::Records(response.opener);
            if !response.payload.is_empty() {
                return Ok(Some(response.payload));
            }
        }
        match &mut self.opening {
            Opening::Records(opener) => opener.open(buf, at),
            Opening::Raw => {
                let rest = std::mem::replace(at, buf.len())..buf.len();
                Ok((!rest.is_empty()).then_some(rest))
            }
            Opening::Response(_) => Ok(None),
        }
    }
}

/// A number that tells targets apart, most of the time (FNV-1a).
fn tag(target: &TargetBuf) -> NonZeroU32 {
    let hash = target
        .as_bytes()
        .iter()
        .fold(0x811c_9dc5, |hash: u32, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193));
    NonZeroU32::new(hash).unwrap_or(NonZeroU32::MIN)
}

/// The counters of a user, where traffic is counted by user.
fn user_counters(role: &Role, user: Option<u16>) -> Option<&UserCounters> {
    match &role.kind {
        RoleKind::Server { users, .. } => users.get(usize::from(user?)).map(|user| &**user),
        RoleKind::Client { .. } | RoleKind::Hop { .. } => None,
    }
}

/// Reads and drops what a client sends beyond its request; says whether it has ended its side.
fn discard(core: &mut Core, plain: &mut Socket) -> Result<bool, Broken> {
    for _ in 0..READS_PER_STEP {
        if !plain.readable {
            return Ok(false);
        }
        match plain.read(&mut core.scratch) {
            Io::Moved(_) | Io::Blocked => {}
            Io::End => return Ok(true),
            Io::Failed(_) => return Err(Broken),
        }
    }
    // A client that floods gets no more of our time: what it sends stays in the kernel.
    Ok(false)
}

/// One vectored read into the payload gaps.
fn read_slots(scratch: &mut [u8], slots: &Slots, plain: &mut Socket) -> Io {
    let mut gaps = ArrayVec::<IoSliceMut<'_>, SLOTS_MAX>::new();
    let mut rest = scratch;
    let mut at = 0;
    let mut asked = 0;
    for slot in slots {
        let (_, behind) = rest.split_at_mut(slot.start - at);
        let (gap, behind) = behind.split_at_mut(slot.len());
        asked += gap.len();
        gaps.push(IoSliceMut::new(gap));
        at = slot.end;
        rest = behind;
    }
    let io = net::read_vectored(&plain.fd, &mut gaps);
    plain.note_read(io, asked);
    io
}

/// What the pumps need to know of the flow besides its sockets.
struct End<'a> {
    role: &'a Role,
    server: u16,
    method: Method,
    peer: Peer,
    /// Whose traffic this is, on a server's port with users.
    user: Option<&'a UserCounters>,
    /// Whether the direction that is not being pumped has ended.
    other_finished: bool,
}

impl<'a> End<'a> {
    fn client_key(&self) -> &'a adit_shadowsocks::ClientKey {
        &self.role.servers()[usize::from(self.server)].key
    }

    fn server_key(&self) -> &'a adit_shadowsocks::ServerKey {
        match &self.role.kind {
            RoleKind::Server { key, .. } => key,
            RoleKind::Client { .. } | RoleKind::Hop { .. } => {
                unreachable!("only a server sends responses")
            }
        }
    }

    /// Remembers the salt at the start of what we sent. SIP004 keys both directions alike, so a
    /// recorded stream of ours would authenticate when it is played back to us; 2022 tells the
    /// directions apart.
    fn remember_own(&self, sent: &[u8]) {
        if self.method.is_2022() || self.method == Method::None {
            return;
        }
        if let Some(replay) = &self.role.replay {
            // A worker that panicked left a set that is whole, and ends the process anyway.
            let mut set = replay.lock().unwrap_or_else(PoisonError::into_inner);
            // A fresh random salt is new, and there is nobody to refuse if it were not.
            set.check_and_insert(&sent[..self.method.salt_len()], unix_s());
        }
    }

    fn count_sealed(&self, core: &Core, len: usize) {
        if matches!(self.role.kind, RoleKind::Client { .. }) {
            core.counters.bytes_up.add(len as u64);
            return;
        }
        core.counters.bytes_down.add(len as u64);
        if let Some(user) = self.user {
            user.bytes_down.add(len as u64);
        }
    }

    fn count_opened(&self, core: &Core, len: usize) {
        if matches!(self.role.kind, RoleKind::Client { .. }) {
            core.counters.bytes_down.add(len as u64);
            return;
        }
        core.counters.bytes_up.add(len as u64);
        if let Some(user) = self.user {
            user.bytes_up.add(len as u64);
        }
    }
}

impl Flow {
    /// Starts relaying.
    pub(crate) fn start_relay(&mut self, core: &mut Core, relay: Relay) -> Next {
        let limits = self.role.limits;
        self.active_at = core.tick;
        self.keepalive_at = self.role.stream.keepalive.map(|idle| core.tick + ticks(idle));
        let due = if relay.awaits_first_payload() {
            core.tick + ticks(limits.first_payload)
        } else {
            self.next_check(core.tick + ticks(limits.idle))
        };
        self.state = State::Relay(relay);
        core.counters.relayed.inc();
        if let RoleKind::Server { .. } = &self.role.kind {
            // What came with the request was opened by the handshake.
            let opened = self.up.output.len() as u64;
            core.counters.bytes_up.add(opened);
            if let Some(user) = user_counters(&self.role, self.user) {
                user.connections.inc();
                user.bytes_up.add(opened);
            }
        }
        core.wheel.set(self.key.index, due);
        self.relay(core)
    }

    /// Moves what can be moved in both directions.
    pub(crate) fn relay(&mut self, core: &mut Core) -> Next {
        let Self { role, client, remote, up, down, state, .. } = self;
        let (State::Relay(relay), Some(remote)) = (state, remote) else { return Next::Close };
        let was_half_closed = up.source_ended || down.source_ended;
        let method = match &role.kind {
            // As bare as what passes through.
            _ if relay.is_raw() => Method::None,
            RoleKind::Client { servers, .. } => servers[usize::from(self.server)].key.method(),
            RoleKind::Server { key, .. } => key.method(),
            RoleKind::Hop { .. } => Method::None,
        };
        let is_client = matches!(role.kind, RoleKind::Client { .. });
        let (plain, cipher, seal_dir, open_dir) =
            if is_client { (client, remote, up, down) } else { (remote, client, down, up) };
        let mut end = End {
            role,
            server: self.server,
            method,
            peer: self.peer,
            user: user_counters(role, self.user),
            other_finished: open_dir.finished,
        };
        let sealed = relay.pump_seal(core, &end, seal_dir, plain, cipher);
        end.other_finished = seal_dir.finished;
        let was_waiting = relay.unanswered.is_some() && relay.awaits_answer();
        let opened = relay.pump_open(core, &end, open_dir, cipher, plain);
        if was_waiting {
            self.note_answer(core, sealed.is_ok() && opened.is_err());
        }
        let (Ok(sealed), Ok(opened)) = (sealed, opened) else { return Next::Reset };
        let State::Relay(relay) = &self.state else { return Next::Close };
        let up_done = self.up.finished || relay.is_asked(&self.up);
        if up_done && self.down.finished {
            return Next::Close;
        }
        let moved = [&mut self.up, &mut self.down].map(|dir| std::mem::take(&mut dir.moved));
        if moved != [false, false] {
            self.active_at = core.tick;
        }
        if !was_half_closed && (self.up.source_ended || self.down.source_ended) {
            let due = core.tick + ticks(self.role.limits.half_closed_idle);
            core.wheel.set(self.key.index, self.next_check(due));
        }
        match (sealed, opened) {
            (Pumped::Budget, _) | (_, Pumped::Budget) => Next::Again,
            (Pumped::NoBuffers, _) | (_, Pumped::NoBuffers) => {
                core.counters.buffers_exhausted.inc();
                core.starved = true;
                // Looked at again with the next tick, when others may have given blocks back.
                core.wheel.set(self.key.index, core.tick + 1);
                Next::Wait
            }
            (Pumped::Idle, Pumped::Idle) => Next::Wait,
        }
    }

    /// Tells the server's health what came of waiting for its first bytes.
    fn note_answer(&mut self, core: &mut Core, broke: bool) {
        let State::Relay(relay) = &mut self.state else { return };
        if relay.awaits_answer() {
            // An end that follows the client's own says nothing.
            if broke || self.down.source_ended && !self.up.source_ended {
                self.note_unanswered(core);
            }
            return;
        }
        relay.unanswered = None;
        let health = self.server_health();
        core.log_change(health, health.answered(core.now), "");
    }

    /// When to look at the flow next, given its idle limit.
    fn next_check(&self, idle_due: Tick) -> Tick {
        self.keepalive_at.map_or(idle_due, |at| at.min(idle_due))
    }

    /// The deadline of a relaying flow: the wait for first payload, for buffers, or for a byte.
    pub(crate) fn on_relay_deadline(&mut self, core: &mut Core) -> Next {
        let State::Relay(relay) = &mut self.state else { return Next::Wait };
        let limits = self.role.limits;
        if relay.awaits_first_payload() {
            relay.send_head = true;
            core.wheel.set(self.key.index, self.next_check(core.tick + ticks(limits.idle)));
            return self.relay(core);
        }
        if self.keepalive_at.is_some_and(|at| at <= core.tick) {
            self.keepalive_at = None;
            if let (Some(idle), Some(remote)) = (self.role.stream.keepalive, &self.remote) {
                // A socket that has failed says so by itself.
                let _ = net::keep_alive(&remote.fd, idle);
            }
        }
        let half_closed = self.up.source_ended || self.down.source_ended;
        let idle = ticks(if half_closed { limits.half_closed_idle } else { limits.idle });
        let due = self.active_at + idle;
        if core.tick >= due {
            core.counters.idle_timeout.inc();
            log::debug!("{}: idle limit reached", self.peer);
            return Next::Close;
        }
        core.wheel.set(self.key.index, self.next_check(due));
        self.relay(core)
    }
}
