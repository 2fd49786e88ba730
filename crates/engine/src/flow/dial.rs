//! Connecting to one of several addresses, after RFC 8305 (Happy Eyeballs).
//!
//! The first address gets 250 ms for itself; then, or as soon as it fails, the next one is tried
//! beside it. The first to connect wins and the others are closed. At most three are under way.
//!
//! A server dials only what its [`Guard`] lets through, and judges each address, whatever name it
//! came from. A target without one ends as a target that refuses connections does.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::time::Duration;

use adit_acl::{Acl, Admission};
use adit_handshake::Failure;
use adit_observe::log;
use adit_resolver::{AddrList, Outcome};
use adit_sys::Errno;
use adit_sys::net::{self, Connecting, FirstSender, OutboundOptions};
use adit_sys::poll::Ready;

use crate::core::Core;
use crate::flow::relay::Relay;
use crate::flow::{After, Flow, Next, Socket, State, Way};
use crate::guard::{Blocked, Guard, Transport};
use crate::names::{Asked, Waiter};
use crate::role::{Role, RoleKind};
use crate::token::{ATTEMPTS_MAX, Part};
use crate::wheel::{Tick, ticks};

/// Head start of an address before the next is tried (RFC 8305 §5).
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);

/// Connects under way for one flow.
pub(crate) struct Dial {
    addrs: AddrList,
    next: u8,
    port: u16,
    attempts: [Option<OwnedFd>; ATTEMPTS_MAX],
    /// When each was started, µs since the worker was; it wraps after an hour.
    started_us: [u32; ATTEMPTS_MAX],
    /// When all of it is given up.
    by: Tick,
    /// Why the last attempt failed.
    error: Option<Errno>,
}

impl Dial {
    fn next_addr(&mut self) -> Option<SocketAddr> {
        let ip: IpAddr = *self.addrs.as_slice().get(usize::from(self.next))?;
        self.next += 1;
        Some(SocketAddr::new(ip, self.port))
    }

    fn has_next(&self) -> bool {
        usize::from(self.next) < self.addrs.as_slice().len()
    }

    fn in_flight(&self) -> bool {
        self.attempts.iter().any(Option::is_some)
    }
}

impl Flow {
    pub(crate) fn dial_addr(&mut self, core: &mut Core, after: After, addr: SocketAddr) -> Next {
        let mut addrs = AddrList::default();
        addrs.push(addr.ip());
        self.dial(core, after, addrs, addr.port())
    }

    pub(crate) fn dial_name(&mut self, core: &mut Core, after: After, name: &str) -> Next {
        let Core { names, rng, counters, now, .. } = core;
        match names.ask(*now, name, Waiter::Flow(self.key), rng, counters) {
            Asked::Known(outcome) => self.dial_outcome(core, after, &outcome),
            Asked::Pending => {
                self.state = State::Resolving(after);
                Next::Wait
            }
            Asked::Refused => {
                log::debug!("{}: too many names are being resolved", self.peer);
                core.counters.resolve_failed.inc();
                self.fail_after(core, &after, Failure::General)
            }
        }
    }

    /// Goes on with what the resolver found.
    pub(crate) fn dial_outcome(
        &mut self,
        core: &mut Core,
        after: After,
        outcome: &Outcome,
    ) -> Next {
        if let After::Client { target, protocol, body, way: Way::Unknown } = after {
            return self.choose_way_by_address(core, (target, protocol, body), outcome);
        }
        if let Outcome::Found { addrs, .. } = outcome {
            let port = match (&after, &self.role.kind) {
                (After::Server { target, .. }, _)
                | (After::Client { target, way: Way::Direct, .. }, _) => target.target().port,
                (_, RoleKind::Hop { next, .. }) => next[usize::from(self.server)].port,
                _ => self.role.servers()[usize::from(self.server)].port,
            };
            let addrs = addrs.ordered(self.role.order);
            return self.dial(core, after, addrs, port);
        }
        core.counters.resolve_failed.inc();
        log::debug!("{}: name not resolved: {outcome:?}", self.peer);
        self.on_dial_failed(core, after, Failure::NameNotFound)
    }

    fn dial(&mut self, core: &mut Core, after: After, mut addrs: AddrList, port: u16) -> Next {
        let (guard, acl) = match (&after, &self.role.kind) {
            (After::Server { by_address, .. }, RoleKind::Server { guard, acl, .. }) => {
                (Some(guard), acl.as_deref().filter(|_| *by_address))
            }
            (After::Client { way: Way::Direct, .. }, RoleKind::Client { direct, .. }) => {
                (direct.as_ref().map(|direct| &direct.guard), None)
            }
            _ => (None, None),
        };
        if let Some(guard) = guard
            && let Err(blocked) = retain_allowed(guard, acl, &mut addrs, port)
        {
            return self.on_blocked(core, &after, blocked);
        }
        let limit = match &after {
            After::Client { way: Way::Server, .. } => self.connect_limit(core),
            After::Client { .. } | After::Server { .. } | After::Hop => self.role.limits.connect,
        };
        let by = (core.tick + ticks(limit)).min(self.handshake_by);
        let attempts = [const { None }; ATTEMPTS_MAX];
        let started_us = [0; ATTEMPTS_MAX];
        let dial = Dial { addrs, next: 0, port, attempts, started_us, by, error: None };
        self.state = State::Dialing(dial, after);
        self.try_next_addr(core)
    }

    /// No address of the target may be dialled.
    pub(crate) fn on_blocked(&mut self, core: &mut Core, after: &After, blocked: Blocked) -> Next {
        core.counters.blocked.inc();
        if let After::Server { target, .. } | After::Client { target, .. } = after {
            core.log_peer_fault(format_args!(
                "{}: {} refused: {blocked}",
                self.peer,
                target.target()
            ));
        }
        self.fail_after(core, after, Failure::NotAllowed)
    }

    /// Starts an attempt on the next address; ends the dial when there is none and none is left.
    fn try_next_addr(&mut self, core: &mut Core) -> Next {
        let State::Dialing(dial, after) = &mut self.state else { return Next::Wait };
        // Servers and hops get their first bytes from us, a target only if the client had some.
        let first_sender = match after {
            After::Server { .. } if self.up.output.is_empty() => FirstSender::Peer,
            After::Client { way: Way::Direct, .. } if self.up.input.is_empty() => FirstSender::Peer,
            After::Client { .. } | After::Server { .. } | After::Hop => FirstSender::Us,
        };
        while let Some(slot) = dial.attempts.iter().position(Option::is_none) {
            let Some(addr) = dial.next_addr() else { break };
            let n = u8::try_from(slot).expect("there are three attempts");
            let (outbound, dscp) = source_of(&self.role, after, self.server, addr.port());
            let began = core.now_us();
            let started = net::connect(addr, &self.role.stream, outbound, dscp, first_sender)
                .and_then(|connecting| {
                    core.watch_connecting(connecting, self.key, Part::Remote(n))
                });
            match started {
                Ok(Connecting::Connected(fd)) => {
                    let took = core.now_us().wrapping_sub(began);
                    return self.on_connected(core, n, Socket::new(fd), took);
                }
                Ok(Connecting::UnderWay(fd)) => {
                    dial.attempts[slot] = Some(fd);
                    dial.started_us[slot] = began;
                    break;
                }
                Err(e) => {
                    log::debug!("{}: connect to {addr}: {e}", self.peer);
                    dial.error = Errno::from_io_error(&e);
                }
            }
        }
        if !dial.in_flight() {
            return self.end_dial(core);
        }
        let more = dial.has_next() && dial.attempts.iter().any(Option::is_none);
        let due = if more { dial.by.min(core.tick + ticks(ATTEMPT_DELAY)) } else { dial.by };
        core.wheel.set(self.key.index, due);
        Next::Wait
    }

    /// The head start is over, or the whole dial.
    pub(crate) fn on_dial_deadline(&mut self, core: &mut Core) -> Next {
        let State::Dialing(dial, _) = &mut self.state else { return Next::Wait };
        if core.tick >= dial.by {
            dial.error = Some(Errno::TIMEDOUT);
            return self.end_dial(core);
        }
        self.try_next_addr(core)
    }

    /// An attempt has connected or failed.
    pub(crate) fn on_attempt_ready(&mut self, core: &mut Core, n: u8, ready: Ready) -> Next {
        let State::Dialing(dial, _) = &mut self.state else { return Next::Wait };
        let Some(attempt) = dial.attempts.get_mut(usize::from(n)) else { return Next::Wait };
        let Some(fd) = attempt.take_if(|_| ready.writable) else { return Next::Wait };
        // Writable alone is success; only with a hang-up is there an error to ask for.
        if ready.hang_up
            && let Err(e) = net::connect_result(&fd)
        {
            log::debug!("{}: connect: {e}", self.peer);
            dial.error = Some(e);
            return self.try_next_addr(core);
        }
        let took = core.now_us().wrapping_sub(dial.started_us[usize::from(n)]);
        self.on_connected(core, n, Socket::of_attempt(fd, ready), took)
    }

    /// Goes on with the first attempt that has connected, in so many microseconds; the others are
    /// closed.
    fn on_connected(&mut self, core: &mut Core, n: u8, remote: Socket, took_us: u32) -> Next {
        self.remote = Some(remote);
        self.remote_part = n;
        let State::Dialing(_, after) = std::mem::replace(&mut self.state, State::Moving) else {
            return Next::Wait;
        };
        match after {
            After::Client { protocol, body, way: Way::Direct | Way::Unknown, .. } => {
                self.on_way_connected(core, protocol, Relay::direct(body))
            }
            After::Client { target, protocol, body, way: Way::Server } => {
                // With fast open a connect is done before anything was sent.
                let server = &self.role.servers()[usize::from(self.server)];
                // A plugin is near, wherever the server is.
                if !self.role.stream.fast_open && !server.behind_plugin {
                    let took = Duration::from_micros(took_us.into());
                    core.log_change(&server.health, server.health.connected(Some(took)), "");
                }
                self.on_way_connected(core, protocol, Relay::client(target, body))
            }
            After::Server { opener, request_salt, user, .. } => {
                self.start_relay(core, Relay::server(opener, request_salt, user))
            }
            After::Hop => self.start_relay(core, Relay::hop()),
        }
    }

    fn end_dial(&mut self, core: &mut Core) -> Next {
        let State::Dialing(dial, after) = std::mem::replace(&mut self.state, State::Moving) else {
            return Next::Wait;
        };
        core.counters.dial_failed.inc();
        self.on_dial_failed(core, after, failure_of(dial.error))
    }

    /// Another server gets its chance; with none left the client is told.
    fn on_dial_failed(&mut self, core: &mut Core, after: After, failure: Failure) -> Next {
        if matches!(after, After::Client { way: Way::Server, .. }) {
            self.note_unreachable(core);
            if self.has_other_server() {
                return self.choose_server(core, after);
            }
        }
        match after {
            After::Client { way: Way::Server, .. } => core.log_peer_fault(format_args!(
                "no connection to any server: {}",
                failure.as_label()
            )),
            After::Hop => self.on_hop_failed(core, failure),
            // Users choose targets, and choose wrong ones.
            After::Client { .. } | After::Server { .. } => {}
        }
        self.fail_after(core, &after, failure)
    }
}

/// Leaves out the addresses that are refused; an error when that leaves none.
fn retain_allowed(
    guard: &Guard,
    acl: Option<&Acl>,
    addrs: &mut AddrList,
    port: u16,
) -> Result<(), Blocked> {
    let mut allowed = AddrList::new();
    let mut refused = None;
    for ip in addrs.iter() {
        match guard.check(SocketAddr::new(ip, port), Transport::Stream) {
            Ok(()) if acl.is_some_and(|acl| acl.admit_addr(ip) == Admission::Refused) => {
                refused = Some(Blocked::Listed);
            }
            Ok(()) => {
                allowed.push(ip);
            }
            Err(blocked) => refused = Some(blocked),
        }
    }
    match refused {
        Some(blocked) if allowed.is_empty() => Err(blocked),
        _ => {
            *addrs = allowed;
            Ok(())
        }
    }
}

/// How connections to this server, or to a target on this port, leave.
fn source_of<'a>(
    role: &'a Role,
    after: &After,
    server: u16,
    port: u16,
) -> (&'a OutboundOptions, Option<u8>) {
    match &role.kind {
        RoleKind::Client { servers, direct, .. } => match (after, direct) {
            (After::Client { way: Way::Direct, .. }, Some(direct)) => (&direct.outbound, None),
            _ => (&servers[usize::from(server)].outbound, None),
        },
        RoleKind::Server { outbound, dscp, .. } => {
            let mark = dscp.binary_search_by_key(&port, |(p, _)| *p).ok().map(|at| dscp[at].1);
            (outbound, mark)
        }
        RoleKind::Hop { outbound, .. } => (outbound, None),
    }
}

fn failure_of(error: Option<Errno>) -> Failure {
    match error {
        Some(Errno::CONNREFUSED) => Failure::ConnectionRefused,
        Some(Errno::TIMEDOUT) => Failure::TimedOut,
        Some(Errno::NETUNREACH) => Failure::NetworkUnreachable,
        Some(Errno::HOSTUNREACH) => Failure::HostUnreachable,
        Some(Errno::AFNOSUPPORT) => Failure::AddressFamily,
        _ => Failure::General,
    }
}
