//! From targets and servers: sealed, or opened, and sent to the client.

use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;

use adit_handshake::UDP_HEADER_PREFIX;
use adit_shadowsocks::{
    OpenedReply, PACKET_HEAD_MAX, PACKET_HEADROOM, PACKET_TAILROOM, PacketReject,
};
use adit_wire::TargetBuf;

use crate::role::{Inbound, RoleKind};
use crate::slab::Key;
use crate::udp::inbound::{count_user, remember_own};
use crate::udp::sessions::{Codec, Session};
use crate::udp::{Tools, Udp, env, note_reject};

impl Udp {
    /// Takes one datagram that reached a session's socket, at `range` of slot `index`.
    pub(super) fn on_reply(
        &mut self,
        tools: &mut Tools<'_>,
        key: Key,
        source: SocketAddr,
        index: usize,
        range: Range<usize>,
        unix_s: u64,
    ) {
        let Some(session) = self.sessions.get(key) else { return };
        match session.codec {
            Codec::Server(_) => self.seal_reply(tools, key, source, index, range, unix_s),
            Codec::Client(..) => {
                if let Err(reject) = self.open_reply(tools, key, index, range, unix_s) {
                    note_reject(tools.core, source, reject);
                }
            }
            Codec::Direct => self.give_reply(tools, key, source, index, range),
            Codec::Hop(_) => {
                let route = session.reply;
                session.role.count_out(range.len());
                count_down(tools, range.len());
                self.push_received(tools, index, range, &route);
            }
        }
    }

    /// Seals what a target sent, for the client.
    fn seal_reply(
        &mut self,
        tools: &mut Tools<'_>,
        key: Key,
        source: SocketAddr,
        index: usize,
        range: Range<usize>,
        unix_s: u64,
    ) {
        let head_room = if range.is_empty() { PACKET_HEADROOM } else { PACKET_HEAD_MAX };
        let len = head_room + range.len() + PACKET_TAILROOM;
        if self.outbox.reserve(len).is_err() {
            self.flush(tools);
        }
        let Self { sessions, inbox, outbox, .. } = self;
        let Some(session) = sessions.get_mut(key) else { return };
        let Session { role, codec: Codec::Server(codec), reply, .. } = session else { return };
        let RoleKind::Server { key: server_key, .. } = &role.kind else { return };
        let Ok(room) = outbox.reserve(len) else { return };
        let place = head_room..head_room + range.len();
        room[place.clone()].copy_from_slice(&inbox.slot(index)[range.clone()]);
        let core = &mut *tools.core;
        match codec.seal(server_key, room, place, source, &mut env(core, unix_s)) {
            Ok(packet) => {
                remember_own(role, server_key.method(), &room[packet.clone()]);
                role.count_out(packet.len());
                outbox.push_reserved(packet, reply);
                count_user(session, |user| {
                    user.datagrams_down.inc();
                    user.bytes_down.add(range.len() as u64);
                });
                count_down(tools, range.len());
            }
            // After 2^64 datagrams; the client's next one begins another session.
            Err(_) => self.end(core, key),
        }
    }

    /// Opens what a server sent and hands it to the client, in the form that the client speaks.
    fn open_reply(
        &mut self,
        tools: &mut Tools<'_>,
        key: Key,
        index: usize,
        range: Range<usize>,
        unix_s: u64,
    ) -> Result<(), PacketReject> {
        let Some(session) = self.sessions.get_mut(key) else { return Ok(()) };
        let Session { role, codec: Codec::Client(codec, turn), debt, .. } = session else {
            return Ok(());
        };
        let RoleKind::Client { servers, .. } = &role.kind else { return Ok(()) };
        let client_key = &servers[usize::from(*turn)].key;
        let slot = self.inbox.slot(index);
        let packet = &mut slot[range.clone()];
        let OpenedReply { source, payload, salt, .. } = codec.open(client_key, packet, unix_s)?;
        let health = &servers[usize::from(*turn)].health;
        if let Some(salts) = &role.datagrams.salts
            && !salts.is_new(&packet[salt])
        {
            return Err(PacketReject::Replayed);
        }
        let payload = range.start + payload.start..range.start + payload.end;
        if let Some(waited) = debt.settle(tools.core.tick) {
            let change = health.session_answered(tools.core.now, waited);
            tools.core.log_change(health, change, "");
        }
        self.give(tools, key, &source, index, range.start, payload);
        Ok(())
    }

    /// Hands what `source` sent to the client of a session, in the form that the client speaks: a
    /// payload in the inbox, with the bytes from `free` on before it to write in.
    pub(super) fn give(
        &mut self,
        tools: &mut Tools<'_>,
        key: Key,
        source: &TargetBuf,
        index: usize,
        free: usize,
        payload: Range<usize>,
    ) {
        let Some(Session { role, reply, .. }) = self.sessions.get(key) else { return };
        let RoleKind::Client { inbound, .. } = &role.kind else { return };
        let route = *reply;
        let has_header = match inbound {
            Inbound::Proxy { .. } => true,
            Inbound::Tunnel(_) => false,
            Inbound::Redirect(redirect) => {
                let (role, mark) = (Arc::clone(role), redirect.reply_mark);
                let Some(client) = route.to else { return };
                let (ends, len) = ((source, client), payload.len());
                if self.send_as(tools, ends, (mark, &role.datagrams.options), index, payload) {
                    count_down(tools, len);
                }
                return;
            }
        };
        count_down(tools, payload.len());
        if !has_header {
            return self.push_received(tools, index, payload, &route);
        }
        // The header goes where the packet's head was. That of `none` has none: there the bytes
        // before may belong to the datagram before, in a train.
        let address = source.as_bytes();
        let header_len = UDP_HEADER_PREFIX.len() + address.len();
        if payload.start - free >= header_len {
            let start = payload.start - header_len;
            let slot = self.inbox.slot(index);
            let (prefix, rest) = slot[start..payload.start].split_at_mut(UDP_HEADER_PREFIX.len());
            prefix.copy_from_slice(&UDP_HEADER_PREFIX);
            rest.copy_from_slice(address);
            return self.push_received(tools, index, start..payload.end, &route);
        }
        let len = header_len + payload.len();
        if self.outbox.reserve(len).is_err() {
            self.flush(tools);
        }
        let Ok(room) = self.outbox.reserve(len) else { return };
        let (head, rest) = room.split_at_mut(header_len);
        let (prefix, host) = head.split_at_mut(UDP_HEADER_PREFIX.len());
        prefix.copy_from_slice(&UDP_HEADER_PREFIX);
        host.copy_from_slice(address);
        rest.copy_from_slice(&self.inbox.slot(index)[payload]);
        self.outbox.push_reserved(0..len, &route);
    }
}

pub(super) fn count_down(tools: &Tools<'_>, len: usize) {
    tools.core.counters.datagrams_down.inc();
    tools.core.counters.datagram_bytes_down.add(len as u64);
}
