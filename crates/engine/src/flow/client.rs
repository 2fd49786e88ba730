//! The client role up to the relay: greeting, choice of a server, answer.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use adit_acl::{Decision, Route};
use adit_handshake::{
    Body, Command, Failure, Forward, Protocol, REPLY_LEN_MAX, Reason, Request, Step, rewrite_head,
};
use adit_observe::log;
use adit_resolver::Outcome;
use adit_sys::net::{self, Io};
use adit_wire::{Host, TargetBuf};

use crate::core::Core;
use crate::flow::relay::Relay;
use crate::flow::{After, Flow, Next, READS_PER_STEP, State, Way};
use crate::guard::Transport;
use crate::health::Health;
use crate::role::{RoleKind, UpstreamHost};

/// Read at once while a client greets: its longest message and some early payload.
const GREETING_READ: usize = 32 * 1024;

/// Servers that one connection tries at most.
const SERVERS_TRIED_MAX: usize = 10;

impl Flow {
    pub(crate) fn read_greeting(&mut self, core: &mut Core) -> Next {
        for _ in 0..READS_PER_STEP {
            if !self.client.readable {
                return Next::Wait;
            }
            let kept = core.pool.pop_into(&mut self.up.input, &mut core.scratch);
            let filled = match self.client.read(&mut core.scratch[kept..kept + GREETING_READ]) {
                Io::Moved(n) => kept + n,
                Io::Blocked => kept,
                Io::End | Io::Failed(_) => return Next::Close,
            };
            let State::Greeting(handshake) = &mut self.state else { return Next::Wait };
            let mut reply_buf = [0; REPLY_LEN_MAX];
            match handshake.advance(&core.scratch[..filled], &mut reply_buf) {
                Step::More { consumed, reply } => {
                    if !self.reply(&reply_buf[..reply]) {
                        return Next::Reset;
                    }
                    if !core.keep_unproven(&mut self.up.input, consumed..filled) {
                        return Next::Reset;
                    }
                }
                Step::Request(request) => {
                    if !self.reply(&reply_buf[..request.reply]) {
                        return Next::Reset;
                    }
                    return self.on_request(core, &request, filled);
                }
                Step::Refuse { reply, reason, .. } => {
                    core.counters.refused.inc();
                    if reason == Reason::UdpDisabled {
                        core.log_peer_fault(format_args!("{}: {reason}", self.peer));
                    } else {
                        log::debug!("{}: {reason}", self.peer);
                    }
                    return self.answer_and_end(core, &reply_buf[..reply]);
                }
            }
        }
        Next::Again
    }

    /// Sends a few bytes that a fresh connection always has room for.
    fn reply(&mut self, bytes: &[u8]) -> bool {
        bytes.is_empty() || self.client.write(bytes) == Io::Moved(bytes.len())
    }

    fn on_request(&mut self, core: &mut Core, request: &Request, filled: usize) -> Next {
        log::debug!("{}: {} {:?}", self.peer, request.protocol.as_label(), request.target);
        let (protocol, body) = match request.command {
            Command::Connect | Command::Forward(_) if self.role.servers().is_empty() => {
                core.log_peer_fault(format_args!(
                    "{}: connection refused: TCP is off (\"mode\": \"tcp_and_udp\" turns it on)",
                    self.peer
                ));
                return self.refuse(core, request.protocol, Failure::CommandUnsupported);
            }
            Command::Connect => {
                if !core.keep_unproven(&mut self.up.input, request.consumed..filled) {
                    return self.refuse(core, request.protocol, Failure::General);
                }
                (request.protocol, None)
            }
            Command::Forward(forward) => {
                match self.take_forward(core, forward, request.consumed, filled) {
                    Ok(body) => (request.protocol, Some(body)),
                    Err(failure) => return self.refuse(core, request.protocol, failure),
                }
            }
            Command::UdpAssociate => return self.associate(core, request.protocol),
        };
        self.choose_way(core, request.target, Some(protocol), body)
    }

    /// Decides whether the target is reached through a server, and sets out for it.
    pub(crate) fn choose_way(
        &mut self,
        core: &mut Core,
        target: TargetBuf,
        protocol: Option<Protocol>,
        body: Option<Body>,
    ) -> Next {
        let host = target.target().host;
        let way = match self.role.direct() {
            None => Way::Server,
            Some(direct) => match core.judges.route(&direct.acl, host) {
                Decision::Known(Route::Proxied) => Way::Server,
                Decision::Known(Route::Direct) => Way::Direct,
                Decision::NeedsAddresses => Way::Unknown,
            },
        };
        let after = After::Client { target, protocol, body, way };
        match (way, host) {
            (Way::Server, _) => self.choose_server(core, after),
            (_, Host::Ip(ip)) => {
                let port = target.target().port;
                self.dial_addr(core, after, SocketAddr::new(ip, port))
            }
            (_, Host::Name(name)) => self.dial_name(core, after, name),
        }
    }

    /// The target's addresses are known, or not to be had: goes on as they tell. A name that cannot
    /// be looked up here goes through a server, which may know it.
    pub(crate) fn choose_way_by_address(
        &mut self,
        core: &mut Core,
        (target, protocol, body): (TargetBuf, Option<Protocol>, Option<Body>),
        outcome: &Outcome,
    ) -> Next {
        let is_direct = match (outcome, self.role.direct()) {
            (Outcome::Found { addrs, .. }, Some(direct)) => {
                direct.acl.route_addrs(addrs.as_slice()) == Route::Direct
            }
            _ => false,
        };
        let way = if is_direct { Way::Direct } else { Way::Server };
        let after = After::Client { target, protocol, body, way };
        if is_direct {
            self.dial_outcome(core, after, outcome)
        } else {
            self.choose_server(core, after)
        }
    }

    /// Tells a SOCKS5 client where its datagrams go and holds the connection, by whose end the
    /// client says that it has sent the last.
    fn associate(&mut self, core: &mut Core, protocol: Protocol) -> Next {
        let associate = match &self.role.kind {
            RoleKind::Client { inbound, .. } => inbound.associate(),
            RoleKind::Server { .. } | RoleKind::Hop { .. } => None,
        };
        let Some(associate) = associate else {
            return self.refuse(core, protocol, Failure::CommandUnsupported);
        };
        let ip = associate.host.unwrap_or_else(|| {
            // Where the client reached us; on a unix socket it is on this host.
            let local = net::local_addr(&self.client.fd);
            local.map_or(IpAddr::V4(Ipv4Addr::LOCALHOST), |local| local.ip())
        });
        let mut reply = [0; REPLY_LEN_MAX];
        let len = protocol.success(SocketAddr::new(ip, associate.port), &mut reply);
        if !self.reply(&reply[..len]) {
            return Next::Reset;
        }
        self.state = State::Associated;
        core.wheel.cancel(self.key.index);
        self.drain(core)
    }

    /// Puts the rewritten head of a forwarded request, and what came of its body, in the input.
    fn take_forward(
        &mut self,
        core: &mut Core,
        forward: Forward,
        consumed: usize,
        filled: usize,
    ) -> Result<Body, Failure> {
        let Core { scratch, pool, .. } = core;
        let (input, rewritten) = scratch.split_at_mut(2 * GREETING_READ);
        let head = &input[consumed - forward.head_len..consumed];
        let mut body = forward.body;
        let len = rewrite_head(head, rewritten).map_err(|_| Failure::General)?;
        let behind = &input[consumed..filled];
        let mine = body.take(behind).map_err(|_| Failure::General)?;
        pool.push(&mut self.up.input, &rewritten[..len]).map_err(|_| Failure::General)?;
        pool.push(&mut self.up.input, &behind[..mine]).map_err(|_| Failure::General)?;
        self.up.source_ended = body.is_complete();
        Ok(body)
    }

    fn refuse(&mut self, core: &mut Core, protocol: Protocol, failure: Failure) -> Next {
        core.counters.refused.inc();
        let mut reply = [0; REPLY_LEN_MAX];
        let len = protocol.failure(failure, &mut reply);
        self.answer_and_end(core, &reply[..len])
    }

    /// Gives a client its failure, or resets where there is no way to say it.
    pub(crate) fn fail(&mut self, core: &mut Core, failure: Failure) -> Next {
        match std::mem::replace(&mut self.state, State::Moving) {
            State::Resolving(after) | State::Dialing(_, after) => {
                self.fail_after(core, &after, failure)
            }
            // Nothing was asked yet, so there is nothing to answer; a Shadowsocks peer must not
            // learn how far it got.
            _ => Next::Close,
        }
    }

    pub(crate) fn fail_after(&mut self, core: &mut Core, after: &After, failure: Failure) -> Next {
        match after {
            After::Client { protocol: Some(protocol), .. } => self.refuse(core, *protocol, failure),
            After::Client { protocol: None, .. } | After::Server { .. } | After::Hop => Next::Reset,
        }
    }

    /// Picks a server, or another one after the last that failed, and connects to it.
    pub(crate) fn choose_server(&mut self, core: &mut Core, after: After) -> Next {
        let role = std::sync::Arc::clone(&self.role);
        let Some(servers) = role.choice() else { return Next::Close };
        let turn = if servers.len() == 1 {
            0
        } else {
            let random = core.rng.below(u32::MAX);
            let failed = usize::from(self.server);
            match self.servers_tried {
                0 => servers.pick(Transport::Stream, core.now, random),
                _ => servers.pick_after(failed, Transport::Stream, core.now, random),
            }
        };
        self.server = u16::try_from(turn).expect("fewer servers than 65,536 are configured");
        self.servers_tried += 1;
        let server = &servers[turn];
        match &server.host {
            UpstreamHost::Ip(ip) => self.dial_addr(core, after, SocketAddr::new(*ip, server.port)),
            UpstreamHost::Name(name) => self.dial_name(core, after, name),
        }
    }

    /// Whether another server can be tried after a failure.
    pub(crate) fn has_other_server(&self) -> bool {
        let count = self.role.servers().len().min(SERVERS_TRIED_MAX);
        usize::from(self.servers_tried) < count
    }

    /// The longest that a connect to the server in use may take. While others could be used, one
    /// that is far slower than usual is as good as failed.
    pub(crate) fn connect_limit(&self, core: &Core) -> Duration {
        let at = usize::from(self.server);
        let server = &self.role.servers()[at];
        let has_other = self.has_other_server()
            && self
                .role
                .choice()
                .is_some_and(|servers| servers.has_other(at, Transport::Stream, core.now));
        if has_other { server.connect.min(server.health.patience()) } else { server.connect }
    }

    /// The health of the server in use.
    pub(crate) fn server_health(&self) -> &Health {
        &self.role.servers()[usize::from(self.server)].health
    }

    /// The server in use could not be reached.
    pub(crate) fn note_unreachable(&self, core: &mut Core) {
        let change = self.server_health().unreachable(core.now);
        core.log_change(self.server_health(), change, "cannot be reached");
    }

    /// The server has ended the connection, or stayed silent for long, without a byte of an answer.
    /// It is told once a connection.
    pub(crate) fn note_unanswered(&mut self, core: &mut Core) {
        let State::Relay(relay) = &mut self.state else { return };
        let Some(target) = relay.take_unanswered() else { return };
        let change = self.server_health().unanswered(core.now, target);
        core.log_change(self.server_health(), change, "does not answer");
    }

    /// The server, or the target itself, is connected: answer the client and relay.
    pub(crate) fn on_way_connected(
        &mut self,
        core: &mut Core,
        protocol: Option<Protocol>,
        relay: Relay,
    ) -> Next {
        if let Some(protocol) = protocol {
            let bound = match &self.remote {
                Some(remote) if protocol == Protocol::Socks5 => net::local_addr(&remote.fd).ok(),
                _ => None,
            };
            let bound = bound.unwrap_or_else(|| SocketAddr::from(([0, 0, 0, 0], 0)));
            let mut reply = [0; REPLY_LEN_MAX];
            let len = protocol.success(bound, &mut reply);
            if !self.reply(&reply[..len]) {
                return Next::Reset;
            }
        }
        self.start_relay(core, relay)
    }
}
