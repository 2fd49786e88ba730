//! Measures how far away a client's servers are, and whether they can be reached.
//!
//! One worker connects to each server by TCP once in a while and closes the connection again; how
//! long that takes is what [`Health`] learns. It is a plain connect to the server itself, and no
//! request through it: that would need a third party, which would hear from every client at all
//! times, and would measure the third party along. What a connect does not tell, a wrong password
//! for one, the connections of applications do.
//!
//! A server that is marked is probed when its pause is over. With nobody connecting, probes become
//! rare, down to one a minute; with many servers, so that there are ten a second. Nothing blocks; nothing allocates but a new plan.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use adit_observe::log;
use adit_resolver::{AddrList, Order, Outcome};
use adit_sys::net::{self, FirstSender, OutboundOptions, StreamOptions};
use adit_sys::poll::{Interest, Ready};

use crate::core::Core;
use crate::health::Health;
use crate::names::{Asked, Waiter};
use crate::role::UpstreamHost;
use crate::slab::{Key, Slab};
use crate::token::Token;
use crate::wheel::{Tick, ticks};

/// Probes under way at once.
const PROBES_MAX: usize = 16;
/// With nobody connecting, the time between probes grows to this.
const INTERVAL_IDLE: Duration = Duration::from_secs(60);
/// Ten probes a second at most, however many servers there are.
const GAP: Duration = Duration::from_millis(100);
/// How often servers are looked at while somebody connects: one that was marked by a connection
/// is then probed soon after its pause.
const LOOK: Duration = Duration::from_secs(1);
/// Somebody connects: within so long.
const ACTIVE: Duration = Duration::from_secs(30);

/// What is probed and how often.
pub struct ProbePlan {
    /// The servers.
    pub targets: Vec<ProbeTarget>,
    /// Time between two probes of a server.
    pub interval: Duration,
    /// The same for the server that was used last; as `interval` without it.
    pub best_interval: Option<Duration>,
    /// A server that takes longer cannot be reached.
    pub limit: Duration,
}

/// A server to be probed.
pub struct ProbeTarget {
    /// Its host.
    pub host: UpstreamHost,
    /// Its port.
    pub port: u16,
    /// Which address family is tried first.
    pub order: Order,
    /// Source of the connections to it.
    pub outbound: OutboundOptions,
    /// Who is told.
    pub health: Arc<Health>,
}

/// A probe under way.
struct Running {
    target: usize,
    /// The addresses, and how many of them were tried.
    addrs: AddrList,
    tried: usize,
    fd: Option<OwnedFd>,
    started_us: u32,
    by: Tick,
}

/// The probes of one process.
pub(crate) struct Prober {
    plan: Arc<ProbePlan>,
    /// When each target is probed next, while nothing is wrong with it.
    due: Vec<Tick>,
    running: Slab<Running>,
    /// When there may be something to do.
    next: Tick,
}

const NEVER: Tick = Tick::MAX;

impl Prober {
    pub(crate) fn new(plan: Arc<ProbePlan>) -> Self {
        let due = vec![0; plan.targets.len()];
        Self { plan, due, running: Slab::with_capacity(PROBES_MAX), next: 0 }
    }

    /// Ends what is under way, before another plan.
    pub(crate) fn end(&mut self, core: &mut Core) {
        for key in self.running.keys().collect::<Vec<_>>() {
            core.names.forget(Waiter::Probe(key), &mut core.pool);
            self.running.remove(key);
        }
    }

    /// Ticks until [`Prober::on_tick`] may have something to do.
    pub(crate) fn next_in(&self, tick: Tick) -> Tick {
        self.next.saturating_sub(tick)
    }

    /// Starts probes that are due and ends those that take too long.
    pub(crate) fn on_tick(&mut self, core: &mut Core) {
        let tick = core.tick;
        if tick < self.next {
            return;
        }
        let mut next = NEVER;
        while let Some(key) = self.overdue(tick, &mut next) {
            self.fail(core, key);
        }
        let last = self.last_picked(core.now);
        for target in 0..self.due.len() {
            let due = self.due_at(core, target);
            if due > tick {
                next = next.min(due);
            } else if self.running.len() == PROBES_MAX {
                // One that ends makes room and says so.
                break;
            } else {
                let interval = self.interval(core.now, target, last);
                self.start(core, target, interval);
                next = next.min(tick + ticks(self.plan.limit));
            }
        }
        let is_active = last.is_some_and(|(_, at)| core.now.duration_since(at) < ACTIVE);
        if is_active {
            next = next.min(tick + ticks(LOOK));
        }
        // A probe that ended at once asks for another look.
        self.next = next.max(tick + 1);
    }

    /// A probe's socket is ready.
    pub(crate) fn on_ready(&mut self, core: &mut Core, key: Key, ready: Ready) {
        let Some(running) = self.running.get_mut(key) else { return };
        let Some(fd) = running.fd.take_if(|_| ready.writable) else { return };
        match net::connect_result(&fd) {
            Ok(()) => {
                let took = core.now_us().wrapping_sub(running.started_us);
                let health = Arc::clone(&self.plan.targets[running.target].health);
                let change = health.connected(Some(Duration::from_micros(took.into())));
                core.log_change(&health, change, "");
                self.finish(core, key);
            }
            Err(e) => {
                log::debug!("probe: {e}");
                self.connect(core, key);
            }
        }
    }

    /// The name of a server has been resolved, or not.
    pub(crate) fn on_resolved(&mut self, core: &mut Core, key: Key, outcome: &Outcome) {
        let Some(running) = self.running.get_mut(key) else { return };
        if let Outcome::Found { addrs, .. } = outcome {
            running.addrs = addrs.ordered(self.plan.targets[running.target].order);
        }
        self.connect(core, key);
    }

    fn start(&mut self, core: &mut Core, at: usize, interval: Duration) {
        let plan = Arc::clone(&self.plan);
        let target = &plan.targets[at];
        let by = core.tick + ticks(plan.limit);
        let running =
            Running { target: at, addrs: AddrList::new(), tried: 0, fd: None, started_us: 0, by };
        let Ok(key) = self.running.insert(running) else { return };
        // A tenth more or less, so that clients and servers do not fall into step.
        let tenth = u32::try_from(interval.as_millis() / 10).unwrap_or(u32::MAX).max(1);
        let jitter = Duration::from_millis(core.rng.below(2 * tenth).into());
        let pause = (interval - Duration::from_millis(tenth.into())).saturating_add(jitter);
        self.due[at] = core.tick + ticks(pause).max(1);
        match &target.host {
            UpstreamHost::Ip(ip) => {
                if let Some(running) = self.running.get_mut(key) {
                    running.addrs.push(*ip);
                }
                self.connect(core, key);
            }
            UpstreamHost::Name(name) => {
                let Core { names, rng, counters, now, .. } = core;
                match names.ask(*now, name, Waiter::Probe(key), rng, counters) {
                    Asked::Known(outcome) => self.on_resolved(core, key, &outcome),
                    Asked::Pending => {}
                    // Busy: that says nothing about the server.
                    Asked::Refused => self.finish(core, key),
                }
            }
        }
    }

    /// Connects to the next address; without one the server cannot be reached.
    fn connect(&mut self, core: &mut Core, key: Key) {
        let plan = Arc::clone(&self.plan);
        while let Some(running) = self.running.get_mut(key) {
            let target = &plan.targets[running.target];
            let Some(ip) = running.addrs.as_slice().get(running.tried).copied() else {
                return self.fail(core, key);
            };
            running.tried += 1;
            let addr = SocketAddr::new(ip, target.port);
            let started =
                net::connect(addr, &StreamOptions::PLAIN, &target.outbound, None, FirstSender::Us)
                    .and_then(|connecting| {
                        // One that is there already is told of as writable.
                        let fd = connecting.into_fd();
                        core.poll.add(&fd, Token::Probe(key).into(), Interest::Stream)?;
                        Ok(fd)
                    });
            match started {
                Ok(fd) => {
                    running.fd = Some(fd);
                    running.started_us = core.now_us();
                    return;
                }
                Err(e) => log::debug!("probe of {addr}: {e}"),
            }
        }
    }

    fn fail(&mut self, core: &mut Core, key: Key) {
        let Some(running) = self.running.get(key) else { return };
        let health = Arc::clone(&self.plan.targets[running.target].health);
        let change = health.unreachable(core.now);
        core.log_change(&health, change, "cannot be reached");
        self.finish(core, key);
    }

    fn finish(&mut self, core: &mut Core, key: Key) {
        core.names.forget(Waiter::Probe(key), &mut core.pool);
        self.running.remove(key);
        self.next = core.tick;
    }

    /// A probe that has taken too long; `next` learns when others have.
    fn overdue(&self, tick: Tick, next: &mut Tick) -> Option<Key> {
        for key in self.running.keys() {
            let by = self.running.get(key).map_or(NEVER, |running| running.by);
            if by <= tick {
                return Some(key);
            }
            *next = (*next).min(by);
        }
        None
    }

    /// When a target is to be probed.
    fn due_at(&self, core: &Core, target: usize) -> Tick {
        let is_running = self
            .running
            .keys()
            .any(|key| self.running.get(key).is_some_and(|r| r.target == target));
        if is_running {
            return NEVER;
        }
        match self.plan.targets[target].health.probe_at() {
            Some(at) => ticks(at.saturating_duration_since(core.epoch)),
            None => self.due[target],
        }
    }

    /// Which server was picked last, and when.
    fn last_picked(&self, now: Instant) -> Option<(usize, Instant)> {
        let picked = self.plan.targets.iter().map(|target| target.health.picked_at());
        let last = picked.enumerate().max_by_key(|(_, at)| *at)?;
        Some((last.0, last.1.min(now)))
    }

    /// Time until the next probe of a target.
    fn interval(&self, now: Instant, target: usize, last: Option<(usize, Instant)>) -> Duration {
        let idle = last.map_or(Duration::ZERO, |(_, at)| now.duration_since(at));
        let best = self.plan.best_interval.filter(|_| last.is_some_and(|(at, _)| at == target));
        let gap = GAP * u32::try_from(self.due.len()).unwrap_or(u32::MAX);
        let interval = best.unwrap_or_else(|| self.plan.interval.max(gap));
        (idle / 2).clamp(interval, INTERVAL_IDLE.max(interval))
    }
}
