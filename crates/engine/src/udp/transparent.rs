//! Answers to redirected datagrams: each goes out by a socket that has the address of whom the
//! client wrote to.
//!
//! Such a socket serves every client that hears from that address, so a worker needs one for each
//! address that answers and not for each session. They are kept for a minute, at most [`SOCKETS_MAX`]
//! of them (both as shadowsocks-rust has it); the one not used for longest makes room. Nothing here
//! allocates once the first redirecting listener is there.
//!
//! The address is what the server says. One that no host on the way can have (loopback, multicast,
//! port 0) is refused: it would let a server speak as a program of this host.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use adit_sys::datagram::{DatagramOptions, Family, Route, open_as};
use adit_wire::{Host, TargetBuf};

use crate::core::Core;
use crate::slab::{Key, Slab};
use crate::token::Token;
use crate::udp::{Tools, Udp, is_out_of_descriptors};
use crate::wheel::{Tick, ticks};

/// Sockets of one worker.
pub(super) const SOCKETS_MAX: usize = 256;
/// A socket that was not used for this long is closed.
const IDLE: Duration = Duration::from_secs(60);

const NONE: u32 = u32::MAX;

/// What a socket is found by: its address and its firewall mark.
type Name = (SocketAddr, Option<u32>);

struct ReplySocket {
    name: Name,
    fd: OwnedFd,
    used_at: Tick,
    /// The neighbours in the order of use.
    older: u32,
    newer: u32,
}

/// The sockets of one worker, in the order of their last use.
///
/// Invariant: a socket is in the index under its name and in the order for as long as it is in the
/// slab.
pub(super) struct ReplySockets {
    slab: Slab<ReplySocket>,
    index: HashMap<Name, Key>,
    oldest: u32,
    newest: u32,
}

impl ReplySockets {
    pub(super) fn new() -> Self {
        Self {
            slab: Slab::with_capacity(SOCKETS_MAX),
            // Twice the room, so that it never grows for the traces of removed entries.
            index: HashMap::with_capacity(2 * SOCKETS_MAX),
            oldest: NONE,
            newest: NONE,
        }
    }

    pub(super) fn socket(&self, key: Key) -> Option<BorrowedFd<'_>> {
        self.slab.get(key).map(|socket| socket.fd.as_fd())
    }

    fn is_full(&self) -> bool {
        self.slab.len() == self.slab.capacity()
    }

    /// The socket of a name, which counts as a use.
    fn find(&mut self, name: &Name, tick: Tick) -> Option<Key> {
        let newest = self.slab.key_at(self.newest);
        let of_name = |key: &Key| self.slab.get(*key).is_some_and(|socket| socket.name == *name);
        let key = match newest.filter(of_name) {
            Some(key) => key,
            None => *self.index.get(name)?,
        };
        self.slab.get_mut(key)?.used_at = tick;
        if self.newest != key.index {
            self.unlink(key.index);
            self.link(key.index);
        }
        Some(key)
    }

    /// Puts a socket in; `None` when there is no room.
    fn insert(&mut self, name: Name, fd: OwnedFd, tick: Tick) -> Option<Key> {
        let socket = ReplySocket { name, fd, used_at: tick, older: NONE, newer: NONE };
        let key = self.slab.insert(socket).ok()?;
        self.index.insert(name, key);
        self.link(key.index);
        Some(key)
    }

    /// Closes the socket that was not used for longest; false when there is none.
    fn remove_oldest(&mut self) -> bool {
        let Some(key) = self.slab.key_at(self.oldest) else { return false };
        self.unlink(key.index);
        if let Some(socket) = self.slab.remove(key) {
            self.index.remove(&socket.name);
        }
        true
    }

    /// Ticks until the oldest is due, if there is one.
    pub(super) fn next_in(&self, tick: Tick) -> Option<Tick> {
        let oldest = self.at(self.oldest)?;
        Some((oldest.used_at + ticks(IDLE)).saturating_sub(tick))
    }

    fn at(&self, index: u32) -> Option<&ReplySocket> {
        self.slab.get(self.slab.key_at(index)?)
    }

    fn at_mut(&mut self, index: u32) -> Option<&mut ReplySocket> {
        let key = self.slab.key_at(index)?;
        self.slab.get_mut(key)
    }

    /// Appends a socket as the newest.
    fn link(&mut self, index: u32) {
        let newest = self.newest;
        if let Some(socket) = self.at_mut(index) {
            (socket.older, socket.newer) = (newest, NONE);
        }
        match self.at_mut(newest) {
            Some(before) => before.newer = index,
            None => self.oldest = index,
        }
        self.newest = index;
    }

    fn unlink(&mut self, index: u32) {
        let Some(&ReplySocket { older, newer, .. }) = self.at(index) else { return };
        match self.at_mut(older) {
            Some(before) => before.newer = newer,
            None => self.oldest = newer,
        }
        match self.at_mut(newer) {
            Some(behind) => behind.older = older,
            None => self.newest = older,
        }
    }
}

/// Why an answer goes no further.
enum Unsendable {
    /// Its sender is named by a domain, or is nobody that a client can have written to.
    Sender,
    /// Its sender and the client do not speak the same protocol.
    Family,
    /// There is no socket for it; said where that was found out.
    Socket,
}

impl Udp {
    /// Makes ready for listeners of redirected datagrams.
    pub(crate) fn prepare_replies(&mut self) {
        self.replies.get_or_insert_with(|| Box::new(ReplySockets::new()));
    }

    /// Sends a payload in the inbox to a client, in the name of `sender`; false when it is dropped.
    pub(super) fn send_as(
        &mut self,
        tools: &mut Tools<'_>,
        (sender, client): (&TargetBuf, SocketAddr),
        (mark, options): (Option<u32>, &DatagramOptions),
        index: usize,
        payload: Range<usize>,
    ) -> bool {
        let route = self.route_as(tools, sender, client, (mark, options));
        match route {
            Ok(route) => {
                self.push_received(tools, index, payload, &route);
                true
            }
            Err(Unsendable::Sender) => {
                tools.core.counters.datagrams_rejected.inc();
                let sender = sender.target();
                tools.core.log_peer_fault(format_args!(
                    "{client}: answer of {sender} dropped: not the address of a host"
                ));
                false
            }
            Err(Unsendable::Family) => {
                tools.core.counters.datagrams_rejected.inc();
                let sender = sender.target();
                tools.core.log_peer_fault(format_args!(
                    "{client}: answer of {sender} dropped: of the other address family"
                ));
                false
            }
            Err(Unsendable::Socket) => {
                tools.core.counters.datagrams_dropped.inc();
                false
            }
        }
    }

    fn route_as(
        &mut self,
        tools: &mut Tools<'_>,
        sender: &TargetBuf,
        client: SocketAddr,
        (mark, options): (Option<u32>, &DatagramOptions),
    ) -> Result<Route, Unsendable> {
        let parsed = sender.target();
        let Host::Ip(ip) = parsed.host else { return Err(Unsendable::Sender) };
        if parsed.port == 0 || !may_answer(ip) {
            return Err(Unsendable::Sender);
        }
        let family = Family::of(client.ip());
        if Family::of(ip) != family {
            return Err(Unsendable::Family);
        }
        let name = (SocketAddr::new(ip, parsed.port), mark);
        let key = self.reply_socket(tools, name, options).ok_or(Unsendable::Socket)?;
        Ok(Route::to(Token::Reply(key).into(), family, client))
    }

    /// The socket that has an address, opened if need be.
    fn reply_socket(
        &mut self,
        tools: &mut Tools<'_>,
        name: Name,
        options: &DatagramOptions,
    ) -> Option<Key> {
        let tick = tools.core.tick;
        let replies = self.replies.as_deref_mut()?;
        if let Some(key) = replies.find(&name, tick) {
            return Some(key);
        }
        if replies.is_full() {
            self.close_oldest_reply(tools);
        }
        let (addr, mark) = name;
        let mut opened = open_as(addr, mark, options);
        if opened.as_ref().is_err_and(is_out_of_descriptors) && self.close_oldest_reply(tools) {
            opened = open_as(addr, mark, options);
        }
        let core = &mut *tools.core;
        match opened {
            Ok(fd) => {
                core.counters.reply_sockets.inc();
                core.counters.reply_sockets_open.inc();
                self.replies.as_deref_mut()?.insert(name, fd, tick)
            }
            Err(e) => {
                core.counters.reply_sockets_failed.inc();
                say_why(core, addr, &e);
                None
            }
        }
    }

    /// Closes the socket that was not used for longest; false when there is none.
    fn close_oldest_reply(&mut self, tools: &Tools<'_>) -> bool {
        // Something may wait in the outbox that was to leave by it.
        self.flush(tools);
        let closed = self.replies.as_deref_mut().is_some_and(ReplySockets::remove_oldest);
        if closed {
            tools.core.counters.reply_sockets_open.sub(1);
        }
        closed
    }

    /// Closes the sockets that were not used for their limit.
    pub(super) fn close_idle_replies(&mut self, tools: &Tools<'_>) {
        let tick = tools.core.tick;
        while self.replies.as_deref().and_then(|replies| replies.next_in(tick)) == Some(0) {
            self.close_oldest_reply(tools);
        }
    }
}

/// Whether a client can have written to the address, and a socket here may have it.
fn may_answer(ip: IpAddr) -> bool {
    !(ip.is_unspecified() || ip.is_loopback() || ip.is_multicast() || ip == Ipv4Addr::BROADCAST)
}

fn say_why(core: &mut Core, addr: SocketAddr, error: &std::io::Error) {
    let hint = match error.kind() {
        std::io::ErrorKind::AddrInUse => {
            "; a program here listens at this port on every address: have it listen on one address"
        }
        std::io::ErrorKind::PermissionDenied => "; this needs root or CAP_NET_ADMIN",
        _ => "",
    };
    core.log_peer_fault(format_args!("cannot answer as {addr}: {error}{hint}"));
}

#[cfg(test)]
mod tests;
