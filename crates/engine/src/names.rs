//! The sockets under the resolver: who waits for which name, and how queries travel.
//!
//! Each attempt of a lookup has a fresh UDP socket, connected to its name server: a new source
//! port every time makes answers hard to forge, and an ICMP refusal is told at once. Truncated
//! answers are asked for again over TCP. Nothing here allocates after start.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use adit_crypto::Rng;
use adit_observe::FlowCounters;
use adit_resolver::{
    Hosts, Lookup, Outcome, Resolver, Settings, TRANSMIT_LEN_MAX, Transmit, Transport,
};
use adit_sys::net::{self, Connecting, FirstSender, Io, OutboundOptions, StreamOptions};
use adit_sys::poll::{Interest, Poll};
use arrayvec::ArrayString;

use crate::pool::{Chain, Pool};
use crate::slab::{Key, Slab};
use crate::token::Token;
use crate::wheel::{Tick, Wheel, ticks};

/// Names being resolved at once, per worker.
const LOOKUPS_MAX: usize = 256;
/// Who wait for names at once, per worker.
const WAITERS_MAX: usize = 4096;
/// Longest name that is asked for (the SOCKS address form holds no longer one).
const NAME_LEN_MAX: usize = 255;

/// Who waits for a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waiter {
    /// A connection.
    Flow(Key),
    /// A queue of datagrams.
    Datagrams(Key),
    /// A probe of a server.
    Probe(Key),
}

/// What came of asking for a name.
#[expect(clippy::large_enum_variant, reason = "lives for one match; there is no heap")]
pub(crate) enum Asked {
    /// Known already.
    Known(Outcome),
    /// The one who asked will be told.
    Pending,
    /// Too much is being resolved already.
    Refused,
}

/// A lookup that has ended; its waiters are to be told.
pub(crate) struct Finished {
    lookup: Key,
    pub(crate) outcome: Outcome,
}

/// A TCP connection to a name server.
struct Stream {
    fd: OwnedFd,
    attempt: u16,
    server: SocketAddr,
    connected: bool,
    output: Chain,
    input: Chain,
}

struct Running {
    lookup: Lookup,
    /// The settings it began with.
    settings: Arc<Settings>,
    name: ArrayString<NAME_LEN_MAX>,
    /// Whether its first queries went out.
    driven: bool,
    datagram: Option<(OwnedFd, u16, SocketAddr)>,
    stream: Option<Stream>,
}

/// What a lookup needs to move.
pub(crate) struct Tools<'a> {
    pub(crate) poll: &'a Poll,
    pub(crate) pool: &'a mut Pool,
    pub(crate) scratch: &'a mut [u8],
    pub(crate) rng: &'a mut Rng,
    pub(crate) now: Instant,
    pub(crate) epoch: Instant,
}

/// The names of one worker.
pub(crate) struct Names {
    resolver: Resolver,
    running: Slab<Running>,
    /// Lookup and who waits for it, in no order; scanned when a lookup ends.
    waiters: Vec<(Key, Waiter)>,
    wheel: Wheel,
    /// Lookups that were started and not driven yet.
    started: bool,
    /// Where queries leave from.
    outbound: OutboundOptions,
}

impl Names {
    pub(crate) fn new(resolver: Resolver, outbound: OutboundOptions) -> Self {
        Self {
            resolver,
            running: Slab::with_capacity(LOOKUPS_MAX),
            waiters: Vec::with_capacity(WAITERS_MAX),
            wheel: Wheel::with_capacity(LOOKUPS_MAX),
            started: false,
            outbound,
        }
    }

    pub(crate) fn replace(&mut self, settings: Arc<Settings>, hosts: Arc<Hosts>) {
        self.resolver.replace_settings(settings);
        self.resolver.replace_hosts(hosts);
    }

    /// What is known about a name without asking anybody.
    pub(crate) fn known(&mut self, now: Instant, name: &str) -> Option<Outcome> {
        self.resolver.lookup_local(now, name).map(|answer| answer.outcome)
    }

    /// Asks for a name on somebody's behalf. A new lookup sends nothing yet; see
    /// [`Names::drive_started`].
    pub(crate) fn ask(
        &mut self,
        now: Instant,
        name: &str,
        waiter: Waiter,
        rng: &mut Rng,
        counters: &FlowCounters,
    ) -> Asked {
        if let Some(answer) = self.resolver.lookup_local(now, name) {
            return Asked::Known(answer.outcome);
        }
        if self.waiters.len() == WAITERS_MAX {
            return Asked::Refused;
        }
        let known = self
            .running
            .keys()
            .find(|&key| self.running.get(key).is_some_and(|r| r.name.eq_ignore_ascii_case(name)));
        let key = match known {
            Some(key) => key,
            None => {
                let Ok(stored) = ArrayString::from(name) else { return Asked::Refused };
                let lookup = self.resolver.start(now, name, &mut || rng.u64());
                let settings = Arc::clone(self.resolver.settings());
                let running = Running {
                    lookup,
                    settings,
                    name: stored,
                    driven: false,
                    datagram: None,
                    stream: None,
                };
                let Ok(key) = self.running.insert(running) else { return Asked::Refused };
                counters.lookups.inc();
                // Due at once: the worker drives it before it sleeps.
                self.wheel.set(key.index, 0);
                self.started = true;
                key
            }
        };
        self.waiters.push((key, waiter));
        Asked::Pending
    }

    /// Drives lookups that were started since the last call; returns one that has ended.
    pub(crate) fn drive_started(&mut self, tools: &mut Tools<'_>) -> Option<Finished> {
        if !std::mem::take(&mut self.started) {
            return None;
        }
        let fresh =
            self.running.keys().find(|&key| self.running.get(key).is_some_and(|r| !r.driven))?;
        // There may be more.
        self.started = true;
        self.drive(fresh, tools)
    }

    /// Whether [`Names::drive_started`] has more to do.
    pub(crate) const fn has_started(&self) -> bool {
        self.started
    }

    /// Takes a socket event of a lookup.
    pub(crate) fn on_ready(&mut self, key: Key, tools: &mut Tools<'_>) -> Option<Finished> {
        let running = self.running.get_mut(key)?;
        running.read_datagrams(tools);
        running.move_stream(tools);
        self.drive(key, tools)
    }

    /// Drives one lookup whose deadline has passed; call until `None`.
    pub(crate) fn on_tick(&mut self, tick: Tick, tools: &mut Tools<'_>) -> Option<Finished> {
        while let Some(index) = self.wheel.expired(tick) {
            let Some(key) = self.running.key_at(index) else { continue };
            if let Some(running) = self.running.get_mut(key) {
                let settings = Arc::clone(&running.settings);
                running.lookup.handle_timeout(&settings, tools.now);
            }
            let finished = self.drive(key, tools);
            if finished.is_some() {
                return finished;
            }
        }
        None
    }

    /// Ticks until [`Names::on_tick`] has something to do.
    pub(crate) fn next_in(&self, tick: Tick) -> Option<Tick> {
        self.wheel.next_in(tick)
    }

    /// The next one who waits for a finished lookup.
    pub(crate) fn next_waiter(&mut self, finished: &Finished) -> Option<Waiter> {
        let at = self.waiters.iter().position(|(lookup, _)| *lookup == finished.lookup)?;
        Some(self.waiters.swap_remove(at).1)
    }

    /// Takes somebody off the waiting list; a lookup that nobody waits for ends with it.
    pub(crate) fn forget(&mut self, waiter: Waiter, pool: &mut Pool) {
        let Some(at) = self.waiters.iter().position(|(_, other)| *other == waiter) else { return };
        let (lookup, _) = self.waiters.swap_remove(at);
        if self.waiters.iter().any(|(other, _)| *other == lookup) {
            return;
        }
        if let Some(mut running) = self.running.remove(lookup) {
            self.wheel.cancel(lookup.index);
            running.drop_stream(pool);
        }
    }

    /// Sends what the lookup wants sent, and ends or re-arms it.
    fn drive(&mut self, key: Key, tools: &mut Tools<'_>) -> Option<Finished> {
        let running = self.running.get_mut(key)?;
        running.driven = true;
        running.send_all(key, tools, &self.outbound);
        if let Some(outcome) = running.lookup.outcome() {
            self.wheel.cancel(key.index);
            let mut running = self.running.remove(key)?;
            running.drop_stream(tools.pool);
            self.resolver.remember(tools.now, &running.name, &outcome);
            return Some(Finished { lookup: key, outcome });
        }
        let due = running.lookup.next_deadline().unwrap_or(tools.now);
        self.wheel.set(key.index, ticks(due.saturating_duration_since(tools.epoch)));
        None
    }
}

impl Running {
    fn send_all(&mut self, key: Key, tools: &mut Tools<'_>, outbound: &OutboundOptions) {
        let mut query = [0; TRANSMIT_LEN_MAX];
        while let Some(transmit) = self.lookup.transmit(&mut query, &mut || tools.rng.u64()) {
            let bytes = &query[..transmit.len];
            let sent = match transmit.transport {
                Transport::Udp => self.send_datagram(key, &transmit, bytes, tools, outbound),
                Transport::Tcp => self.send_stream(key, &transmit, bytes, tools, outbound),
            };
            if !sent {
                let settings = Arc::clone(&self.settings);
                self.lookup.handle_unreachable(&settings, tools.now, transmit.attempt);
            }
        }
    }

    fn send_datagram(
        &mut self,
        key: Key,
        transmit: &Transmit,
        bytes: &[u8],
        tools: &Tools<'_>,
        outbound: &OutboundOptions,
    ) -> bool {
        if self.datagram.as_ref().is_none_or(|(_, attempt, _)| *attempt != transmit.attempt) {
            let opened = net::connect_datagram(transmit.server, outbound)
                .and_then(|fd| watch(tools.poll, &fd, key, Interest::Level).map(|()| fd));
            let Ok(fd) = opened else { return false };
            self.datagram = Some((fd, transmit.attempt, transmit.server));
        }
        match &self.datagram {
            Some((fd, ..)) => !matches!(net::write(fd, bytes), Io::Failed(_)),
            None => false,
        }
    }

    fn send_stream(
        &mut self,
        key: Key,
        transmit: &Transmit,
        bytes: &[u8],
        tools: &mut Tools<'_>,
        outbound: &OutboundOptions,
    ) -> bool {
        if self.stream.as_ref().is_none_or(|s| s.attempt != transmit.attempt) {
            self.drop_stream(tools.pool);
            let opened = net::connect(
                transmit.server,
                &StreamOptions::PLAIN,
                outbound,
                None,
                FirstSender::Us,
            )
            .map(Connecting::into_fd)
            .and_then(|fd| watch(tools.poll, &fd, key, Interest::Stream).map(|()| fd));
            let Ok(fd) = opened else { return false };
            self.stream = Some(Stream {
                fd,
                attempt: transmit.attempt,
                server: transmit.server,
                connected: false,
                output: Chain::EMPTY,
                input: Chain::EMPTY,
            });
        }
        let Some(stream) = &mut self.stream else { return false };
        if tools.pool.push(&mut stream.output, bytes).is_err() {
            return false;
        }
        !stream.connected || stream.flush(tools)
    }

    fn read_datagrams(&mut self, tools: &mut Tools<'_>) {
        while let Some((fd, attempt, server)) = &self.datagram {
            let (attempt, server) = (*attempt, *server);
            match net::read(fd, tools.scratch) {
                Io::Moved(n) => {
                    let bytes = &tools.scratch[..n];
                    // What does not count is counted by the lookup itself.
                    let _ = self.lookup.handle_message(
                        &self.settings,
                        tools.now,
                        server,
                        Transport::Udp,
                        bytes,
                    );
                }
                // An empty datagram is no message.
                Io::End => {}
                Io::Blocked => return,
                Io::Failed(_) => {
                    self.datagram = None;
                    self.lookup.handle_unreachable(&self.settings, tools.now, attempt);
                }
            }
        }
    }

    fn move_stream(&mut self, tools: &mut Tools<'_>) {
        let Some(stream) = &mut self.stream else { return };
        let mut alive = stream.connected || net::connect_result(&stream.fd).is_ok();
        if alive && !stream.connected {
            stream.connected = true;
        }
        alive = alive && stream.flush(tools);
        while alive {
            let kept = tools.pool.pop_into(&mut stream.input, tools.scratch);
            let filled = match net::read(&stream.fd, &mut tools.scratch[kept..]) {
                Io::Moved(n) => kept + n,
                Io::Blocked => {
                    alive = tools.pool.push(&mut stream.input, &tools.scratch[..kept]).is_ok();
                    break;
                }
                Io::End | Io::Failed(_) => {
                    alive = false;
                    break;
                }
            };
            let mut rest = &tools.scratch[..filled];
            while let Some((message, behind)) = split_message(rest) {
                // What does not count is counted by the lookup itself.
                let _ = self.lookup.handle_message(
                    &self.settings,
                    tools.now,
                    stream.server,
                    Transport::Tcp,
                    message,
                );
                rest = behind;
            }
            alive = tools.pool.push(&mut stream.input, rest).is_ok();
        }
        if !alive {
            let attempt = stream.attempt;
            self.drop_stream(tools.pool);
            self.lookup.handle_unreachable(&self.settings, tools.now, attempt);
        }
    }

    fn drop_stream(&mut self, pool: &mut Pool) {
        if let Some(mut stream) = self.stream.take() {
            pool.clear(&mut stream.output);
            pool.clear(&mut stream.input);
        }
    }
}

impl Stream {
    /// Writes waiting queries; false when the connection is broken.
    fn flush(&mut self, tools: &mut Tools<'_>) -> bool {
        while !self.output.is_empty() {
            let mut slices = [std::io::IoSlice::new(&[]); 4];
            let count = tools.pool.slices(&self.output, &mut slices);
            match net::write_vectored(&self.fd, &slices[..count]) {
                Io::Moved(n) => tools.pool.consume(&mut self.output, n),
                Io::Blocked => return true,
                Io::End | Io::Failed(_) => return false,
            }
        }
        true
    }
}

/// The first length-prefixed message and what follows it.
fn split_message(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, rest) = bytes.split_first_chunk::<2>()?;
    rest.split_at_checked(usize::from(u16::from_be_bytes(*len)))
}

fn watch(poll: &Poll, fd: &OwnedFd, key: Key, interest: Interest) -> std::io::Result<()> {
    poll.add(fd, Token::Lookup(key).into(), interest)
}
