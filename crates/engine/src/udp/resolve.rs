//! Where datagrams go: addresses for names, off the fast path, and sockets for addresses.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use adit_observe::log;
use adit_resolver::{AddrList, Outcome};
use adit_shadowsocks::PACKET_HEADROOM;
use adit_sys::datagram::{self, Family, Route};
use adit_sys::net::OutboundOptions;
use adit_wire::{Host, TargetBuf};

use crate::core::{Core, unix_s};
use crate::guard::{Guard, Transport};
use crate::names::{Asked, Waiter};
use crate::role::{Role, RoleKind, UpstreamHost};
use crate::slab::Key;
use crate::token::Token;
use crate::udp::direct::{Judgement, judge, note_listed};
use crate::udp::inbound::{split_waiting, upstream_route};
use crate::udp::sessions::Codec;
use crate::udp::waiting::{For, QUEUES_PER_SESSION};
use crate::udp::{Tools, Udp};
use crate::wheel::ticks;

/// A session asks again where its server is after this long: servers move.
const SERVER_CHECK: Duration = Duration::from_secs(30);
/// How long it is believed that IPv6 can be used, or not.
const V6_CHECK: Duration = Duration::from_secs(10);
/// A documentation address (RFC 3849): asking for the route to it sends nothing.
const V6_ANYWHERE: SocketAddr =
    SocketAddr::new(IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1)), 9);

impl Udp {
    /// Sends a payload in the inbox to a target of a server's session.
    pub(super) fn send_to_target(
        &mut self,
        tools: &mut Tools<'_>,
        key: Key,
        target: &TargetBuf,
        index: usize,
        payload: Range<usize>,
    ) {
        let parsed = target.target();
        let Some(session) = self.sessions.get(key) else { return };
        if judge(tools.core, session, parsed.host) == Judgement::Refused {
            let role = Arc::clone(&session.role);
            return note_listed(tools.core, &role, target);
        }
        let way = match parsed.host {
            Host::Ip(ip) => Way::To(ip),
            Host::Name(name) => match self.find_name(tools, key, target, name) {
                Found::Now(way) => way,
                Found::Later(queue) => {
                    let payload = &self.inbox.slot(index)[payload];
                    let pool = &mut tools.core.pool;
                    if !self.queues.push(queue, pool, target.as_bytes(), payload) {
                        tools.core.counters.datagrams_dropped.inc();
                    }
                    return;
                }
            },
        };
        match way {
            Way::To(ip) => {
                let addr = SocketAddr::new(ip, parsed.port);
                if let Some(route) = self.route_to(tools.core, key, addr) {
                    self.push_received(tools, index, payload, &route);
                }
            }
            Way::ThroughServer => self.change_over(tools, key, target, index, payload, unix_s()),
            Way::Nowhere => tools.core.counters.datagrams_dropped.inc(),
        }
    }

    /// The address of a name, if it is known; else the queue of those that wait for it.
    fn find_name(
        &mut self,
        tools: &mut Tools<'_>,
        key: Key,
        target: &TargetBuf,
        name: &str,
    ) -> Found {
        let what = For::Target(*target);
        let Some(session) = self.sessions.get(key) else { return Found::Now(Way::Nowhere) };
        if session.waiting > 0
            && let Some(queue) = self.queues.find(key, &what)
        {
            return Found::Later(queue);
        }
        match self.ask(tools.core, key, what, name) {
            Some(Ok(outcome)) => Found::Now(self.way_to(tools.core, key, target, &outcome)),
            Some(Err(queue)) => Found::Later(queue),
            None => Found::Now(Way::Nowhere),
        }
    }

    /// Asks for a name: what is known, or a queue to wait in, or nothing when too much waits.
    fn ask(
        &mut self,
        core: &mut Core,
        key: Key,
        what: For,
        name: &str,
    ) -> Option<Result<Outcome, Key>> {
        let has_share =
            self.sessions.get(key).is_some_and(|session| session.waiting < QUEUES_PER_SESSION);
        let queue = if has_share { self.queues.open(key, what) } else { None };
        let Some(queue) = queue else {
            log::debug!("too many names are being resolved");
            core.counters.resolve_failed.inc();
            return None;
        };
        let Core { names, rng, counters, now, .. } = core;
        let asked = names.ask(*now, name, Waiter::Datagrams(queue), rng, counters);
        match asked {
            Asked::Pending => {
                if let Some(session) = self.sessions.get_mut(key) {
                    session.waiting += 1;
                }
                return Some(Err(queue));
            }
            Asked::Known(outcome) => {
                self.queues.close(queue);
                return Some(Ok(outcome));
            }
            Asked::Refused => {}
        }
        self.queues.close(queue);
        counters.resolve_failed.inc();
        None
    }

    /// A name that datagrams wait for has been resolved, or not.
    pub(crate) fn on_resolved(&mut self, tools: &mut Tools<'_>, queue: Key, outcome: &Outcome) {
        let Some(mut waiting) = self.queues.close(queue) else { return };
        let key = waiting.session;
        let Some(session) = self.sessions.get_mut(key) else {
            waiting.discard(&mut tools.core.pool);
            return;
        };
        session.waiting = session.waiting.saturating_sub(1);
        let role = Arc::clone(&session.role);
        let way = match &waiting.what {
            For::Target(target) => self.way_to(tools.core, key, target, outcome),
            For::Server => {
                let ip = self.choose_found(tools.core, &role, outcome);
                if ip.is_none() {
                    tools.core.counters.resolve_failed.inc();
                }
                let reached = self.connect_to_server(tools.core, key, ip);
                if reached { Way::ThroughServer } else { Way::Nowhere }
            }
        };
        if way != Way::Nowhere {
            let unix_s = unix_s();
            // The inbox may hold what the outbox refers to.
            self.flush(tools);
            let start = PACKET_HEADROOM;
            while let Some(len) =
                waiting.next(&mut tools.core.pool, &mut self.inbox.slot(0)[start..])
            {
                self.send_waiting(tools, key, way, start..start + len, unix_s);
                self.flush(tools);
            }
        }
        let left = waiting.discard(&mut tools.core.pool);
        tools.core.counters.datagrams_dropped.add(left.into());
    }

    /// Sends a datagram that has waited and lies in slot 0.
    fn send_waiting(
        &mut self,
        tools: &mut Tools<'_>,
        key: Key,
        way: Way,
        range: Range<usize>,
        unix_s: u64,
    ) {
        let Some(session) = self.sessions.get(key) else { return };
        if let Codec::Hop(_) = session.codec {
            if let Some((server, _)) = session.server {
                self.push_received(tools, 0, range, &upstream_route(key, server));
            }
            return;
        }
        let is_direct = matches!(session.codec, Codec::Direct);
        let Some((target, head_len)) = split_waiting(&self.inbox.slot(0)[range.clone()]) else {
            return;
        };
        let payload = range.start + head_len..range.end;
        let ip = match way {
            Way::To(ip) => ip,
            Way::ThroughServer if is_direct => {
                return self.change_over(tools, key, &target, 0, payload, unix_s);
            }
            Way::ThroughServer => {
                return self.seal_to_server(tools, unix_s, key, &target, 0, payload);
            }
            Way::Nowhere => return,
        };
        let addr = SocketAddr::new(ip, target.target().port);
        if let Some(route) = self.route_to(tools.core, key, addr) {
            self.push_received(tools, 0, payload, &route);
        }
    }

    /// Takes the datagrams of a session out of every queue.
    pub(super) fn forget_waiting(&mut self, core: &mut Core, key: Key) {
        let Some(session) = self.sessions.get_mut(key) else { return };
        if std::mem::take(&mut session.waiting) == 0 {
            return;
        }
        while let Some(queue) = self.queues.of(key) {
            core.names.forget(Waiter::Datagrams(queue), &mut core.pool);
            if let Some(waiting) = self.queues.close(queue) {
                let left = waiting.discard(&mut core.pool);
                core.counters.datagrams_dropped.add(left.into());
            }
        }
    }

    /// The way from a session that talks to targets to one of them: allowed, and with a socket for it.
    fn route_to(&mut self, core: &mut Core, key: Key, addr: SocketAddr) -> Option<Route> {
        let session = self.sessions.get(key)?;
        let (guard, _) = to_targets(&session.role)?;
        if let Err(blocked) = guard.check(addr, Transport::Datagram) {
            core.counters.blocked.inc();
            let client = session.began_at;
            core.log_peer_fault(format_args!("{client}: datagram to {addr} dropped: {blocked}"));
            return None;
        }
        let family = Family::of(addr.ip());
        if session.socket(family).is_none() {
            let open = |role: &Role| match to_targets(role) {
                Some((_, outbound)) => datagram::open(family, outbound, &role.datagrams.options),
                None => Err(std::io::ErrorKind::InvalidInput.into()),
            };
            if !self.open_socket(core, key, family, open) {
                core.counters.datagrams_dropped.inc();
                return None;
            }
        }
        Some(Route::to(Token::Upstream(family, key).into(), family, addr))
    }

    /// Makes sure that a client's or hop's session has its server; false while that is not known.
    /// Then a queue is open for what has to wait, or the server cannot be reached.
    pub(super) fn reach_server(&mut self, tools: &mut Tools<'_>, key: Key) -> bool {
        let core = &mut *tools.core;
        let Some(session) = self.sessions.get_mut(key) else { return false };
        let known = session.server;
        if let Some((_, checked)) = known
            && core.tick.saturating_sub(checked) < ticks(SERVER_CHECK)
        {
            return true;
        }
        if session.waiting > 0 {
            return known.is_some();
        }
        let role = Arc::clone(&session.role);
        let Some((host, _, _)) = server_of(&role, &session.codec) else { return false };
        match host {
            UpstreamHost::Ip(ip) => self.connect_to_server(core, key, Some(*ip)),
            UpstreamHost::Name(name) => match self.ask(core, key, For::Server, name) {
                Some(Ok(outcome)) => {
                    let ip = self.choose_found(core, &role, &outcome);
                    self.connect_to_server(core, key, ip)
                }
                // A server that was reached before goes on being used until better is known.
                _ => known.is_some(),
            },
        }
    }

    /// Connects a session to its server, unless it is already.
    fn connect_to_server(&mut self, core: &mut Core, key: Key, ip: Option<IpAddr>) -> bool {
        let tick = core.tick;
        let Some(session) = self.sessions.get_mut(key) else { return false };
        let role = Arc::clone(&session.role);
        let Some((_, port, outbound)) = server_of(&role, &session.codec) else { return false };
        let Some(ip) = ip else {
            // The name does not resolve at present; the address that it had may still do.
            if let Some((_, checked)) = &mut session.server {
                *checked = tick;
            }
            return session.server.is_some();
        };
        let addr = SocketAddr::new(ip, port);
        if let Some((known, checked)) = &mut session.server
            && *known == addr
        {
            *checked = tick;
            return true;
        }
        session.upstream = [None, None];
        session.server = None;
        let open = |role: &Role| datagram::connect(addr, outbound, &role.datagrams.options);
        if !self.open_socket(core, key, Family::of(ip), open) {
            return false;
        }
        if let Some(session) = self.sessions.get_mut(key) {
            session.server = Some((addr, tick));
        }
        true
    }

    /// The address to use of those that a name has, if it has any.
    fn choose_found(&mut self, core: &Core, role: &Role, outcome: &Outcome) -> Option<IpAddr> {
        let Outcome::Found { addrs, .. } = outcome else {
            log::debug!("name not resolved: {outcome:?}");
            return None;
        };
        self.choose(core, role, addrs)
    }

    /// The address to use of several.
    pub(super) fn choose(&mut self, core: &Core, role: &Role, addrs: &AddrList) -> Option<IpAddr> {
        let addrs: AddrList = addrs.ordered(role.order);
        let first = *addrs.as_slice().first()?;
        if first.is_ipv4() {
            return Some(first);
        }
        let other = addrs.as_slice().iter().copied().find(IpAddr::is_ipv4);
        // A datagram gets no answer that would tell to try the other family.
        match other {
            Some(other) if !self.is_v6_routed(core) => Some(other),
            _ => Some(first),
        }
    }

    /// Whether this host knows a way to IPv6 addresses, asked once in a while, and by an address
    /// that no client chooses.
    fn is_v6_routed(&mut self, core: &Core) -> bool {
        match self.v6_routed {
            Some((routed, checked)) if core.tick.saturating_sub(checked) < ticks(V6_CHECK) => {
                routed
            }
            _ => {
                let options = datagram::DatagramOptions::default();
                let routed =
                    datagram::connect(V6_ANYWHERE, &OutboundOptions::default(), &options).is_ok();
                self.v6_routed = Some((routed, core.tick));
                routed
            }
        }
    }
}

/// How a datagram goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// To its target, which is there.
    To(IpAddr),
    /// To a server.
    ThroughServer,
    /// It does not.
    Nowhere,
}

/// What came of looking for a target's name.
enum Found {
    Now(Way),
    /// In this queue.
    Later(Key),
}

/// How a role reaches targets, if it does so itself.
fn to_targets(role: &Role) -> Option<(&Guard, &OutboundOptions)> {
    match &role.kind {
        RoleKind::Server { guard, outbound, .. } => Some((guard, outbound)),
        RoleKind::Client { direct, .. } => {
            direct.as_ref().map(|direct| (&*direct.guard, &direct.outbound))
        }
        RoleKind::Hop { .. } => None,
    }
}

/// Host, port and source of the connection to a session's server.
fn server_of<'a>(
    role: &'a Role,
    codec: &Codec,
) -> Option<(&'a UpstreamHost, u16, &'a OutboundOptions)> {
    match (&role.kind, codec) {
        (RoleKind::Client { servers, .. }, Codec::Client(_, turn)) => {
            let server = servers.get(usize::from(*turn))?;
            Some((&server.host, server.port, &server.outbound))
        }
        (RoleKind::Hop { next, outbound, .. }, Codec::Hop(at)) => {
            let next = next.get(usize::from(*at))?;
            Some((&next.host, next.port, outbound))
        }
        _ => None,
    }
}
