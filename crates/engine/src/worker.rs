//! One worker: one thread, one poll, its listeners and flows. It shares nothing that changes
//! with another worker but the replay stores.
//!
//! A turn of the loop: wait, take the events in order, give flows with work left their next
//! budget, fire deadlines, read commands. Nothing in it blocks or allocates.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use adit_crypto::Rng;
use adit_observe::{FlowCounters, Throttle, log};
use adit_resolver::{Hosts, Resolver, Settings};
use adit_sys::Errno;
use adit_sys::net::{self, OutboundOptions, Peer};
use adit_sys::poll::{Events, Interest, Poll, Waker};
use arrayvec::ArrayVec;

use crate::clients;
use crate::core::{Core, SCRATCH_LEN};
use crate::crew::Crew;
use crate::flow::{Flow, Next};
use crate::guard::Transport;
use crate::judges::Judges;
use crate::listeners::{Listener, Listeners};
use crate::names::{Finished, Names, Tools, Waiter};
use crate::pool::{BLOCK_LEN, Pool};
use crate::probe::{ProbePlan, Prober};
use crate::receipt::Receipt;
use crate::ring::Ring;
use crate::role::Role;
use crate::slab::{Key, Slab};
use crate::token::{Part, Token};
use crate::udp::{self, Udp};
use crate::wheel::{TICK, Tick, Wheel, ticks};

/// Connections taken from one listener before others get their turn.
const ACCEPTS_PER_TURN: usize = 64;
/// Pause of all listeners when descriptors or flow slots have run out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Lines about peers' faults that may go out at once; then one a second.
const PEER_FAULT_LINES: u32 = 20;

/// Looks for more to do before a worker sleeps, at most: about 5 us.
const LINGER_ROUNDS_MAX: u32 = 8;
/// Bytes of connections in one turn after which more are likely to be on their way.
const BULK: u64 = 64 << 10;

/// Flows that are ended at once when the pool is used up, and how often that may happen.
const RELIEF_FLOWS: usize = 32;
const RELIEF_INTERVAL: Duration = Duration::from_millis(100);

/// What a listener is known by, across reloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ListenerId(pub u32);

/// An order to a worker.
pub enum Command {
    /// Serve one more listener.
    Listen(ListenerId, OwnedFd, Arc<Role>),
    /// Serve one more listener of datagrams.
    ListenDatagrams(ListenerId, OwnedFd, Arc<Role>),
    /// Serve a listener's new connections by another role.
    Assign(ListenerId, Arc<Role>),
    /// Close a listener; its connections go on.
    Unlisten(ListenerId),
    /// Close a listener and reset its connections.
    Close(ListenerId),
    /// Give this back, now that what was ordered before is done.
    Confirm(Receipt),
    /// Resolve names by these from here on.
    Resolve(Arc<Settings>, Arc<Hosts>),
    /// Probe these servers from here on, in place of others; for one worker of a process.
    Probe(Option<Arc<ProbePlan>>),
    /// Close every listener and end when the last connection has, or at the given time.
    Drain(Instant),
}

/// How much a worker reserves. All of it is virtual until used.
#[derive(Clone, Copy, Debug)]
pub struct Capacity {
    /// Connections at once.
    pub flows: usize,
    /// Bytes in flight at once that slow readers leave waiting.
    pub buffer_bytes: usize,
    /// Names kept in the cache.
    pub names: usize,
    /// Datagram sessions at once.
    pub sessions: usize,
}

/// The end of a worker that other threads hold.
pub struct Handle {
    commands: Sender<Command>,
    waker: Arc<Waker>,
    counters: Arc<FlowCounters>,
}

impl Handle {
    /// Gives the worker an order; it acts on it with its next turn. Orders to a worker that has
    /// ended go nowhere.
    pub fn send(&self, command: Command) {
        if self.commands.send(command).is_ok() {
            self.waker.wake();
        }
    }

    /// The worker's counters.
    pub fn counters(&self) -> &Arc<FlowCounters> {
        &self.counters
    }
}

/// The state of one worker. Make it on any thread, [`run`](Worker::run) it on its own.
pub struct Worker {
    flows: Slab<Flow>,
    listeners: Listeners,
    /// Made when the first datagram listener comes.
    udp: Option<Box<Udp>>,
    sessions_max: usize,
    prober: Option<Box<Prober>>,
    commands: Receiver<Command>,
    waker: Arc<Waker>,
    core: Core,
    /// How often to look for more datagrams before sleeping.
    linger_rounds: u32,
    /// Listeners are paused until this tick.
    paused_until: Option<Tick>,
    /// No flow is ended for its buffers before this tick.
    relieve_at: Tick,
    /// Give up on open connections at this time.
    drain_by: Option<Instant>,
}

impl Worker {
    /// Reserves all the memory worker `number` of the crew will use.
    ///
    /// # Errors
    /// Out of descriptors, or no random numbers to be had.
    pub fn new(
        number: u16,
        crew: Arc<Crew>,
        capacity: Capacity,
        settings: Arc<Settings>,
        hosts: Arc<Hosts>,
        outbound: OutboundOptions,
    ) -> io::Result<(Self, Handle)> {
        let poll = Poll::new()?;
        let waker = Arc::clone(crew.waker(number));
        poll.add(&*waker, Token::Commands.into(), Interest::Level)?;
        let (sender, commands) = channel();
        let counters = Arc::new(FlowCounters::default());
        let cache = adit_resolver::Cache::new(capacity.names);
        let now = Instant::now();
        let core = Core {
            poll,
            wheel: Wheel::with_capacity(capacity.flows),
            pool: Pool::new(capacity.buffer_bytes / BLOCK_LEN),
            scratch: vec![0; SCRATCH_LEN].into_boxed_slice(),
            rng: Rng::new().map_err(|e| io::Error::other(e.as_label()))?,
            judges: Judges::default(),
            names: Names::new(Resolver::new(settings, hosts, cache), outbound),
            counters: Arc::clone(&counters),
            crew,
            worker: number,
            // Twice the flows: a flow that ends leaves its entry behind until the next turn.
            ready: Ring::with_capacity(2 * capacity.flows),
            starved: false,
            reject_log: Throttle::new(PEER_FAULT_LINES),
            epoch: now,
            now,
            tick: 0,
        };
        let worker = Self {
            flows: Slab::with_capacity(capacity.flows),
            listeners: Listeners::new(),
            udp: None,
            sessions_max: capacity.sessions,
            prober: None,
            commands,
            waker: Arc::clone(&waker),
            core,
            linger_rounds: 1,
            paused_until: None,
            relieve_at: 0,
            drain_by: None,
        };
        Ok((worker, Handle { commands: sender, waker, counters }))
    }

    /// Serves until drained.
    ///
    /// # Errors
    /// Only when the poll itself breaks.
    pub fn run(mut self) -> io::Result<()> {
        adit_crypto::prepare_thread();
        let mut events = Events::new();
        let mut linger = false;
        loop {
            self.wait(&mut events, linger)?;
            linger = false;
            let moved = self.moved();
            for ready in events.iter() {
                match Token::from(ready.token) {
                    Token::Commands => {
                        self.take_commands();
                        self.with_udp(|udp, tools| udp.on_parcels(tools));
                    }
                    Token::Datagrams(key) => {
                        linger = true;
                        self.with_udp(|udp, tools| udp.on_listener(tools, key));
                    }
                    Token::Upstream(family, key) => {
                        linger = true;
                        self.with_udp(|udp, tools| udp.on_upstream(tools, key, family));
                    }
                    // Registered for nothing.
                    Token::Reply(_) => {}
                    Token::Listener(key) => self.accept(key),
                    Token::Lookup(key) => {
                        let finished = self.names_step(|names, tools| names.on_ready(key, tools));
                        self.tell_waiters(finished);
                    }
                    Token::Probe(key) => {
                        self.with_prober(|prober, core| prober.on_ready(core, key, ready));
                    }
                    Token::Flow(part, key) => {
                        self.with_flow(key, |flow, core| flow.on_ready(core, part, ready));
                    }
                }
            }
            self.run_ready();
            linger |= self.moved().wrapping_sub(moved) >= BULK;
            self.fire_deadlines();
            self.with_udp(|udp, tools| udp.flush(tools));
            self.relieve_pool();
            if self.is_drained() {
                return Ok(());
            }
        }
    }

    /// Bytes that connections have moved so far.
    fn moved(&self) -> u64 {
        let counters = &self.core.counters;
        counters.bytes_up.value().wrapping_add(counters.bytes_down.value())
    }

    /// Waits for events. After a turn with datagrams or many bytes it lets others run and looks again, a
    /// few times over: while more are on their way, to sleep and be woken for each few of them costs
    /// more than they do. Where that finds nothing the next try is a shorter one.
    fn wait(&mut self, events: &mut Events, linger: bool) -> io::Result<()> {
        let mut found = false;
        if linger {
            let mut rounds = self.linger_rounds;
            while rounds > 0 && !found {
                rounds -= 1;
                std::thread::yield_now();
                self.core.poll.wait(events, Some(Duration::ZERO))?;
                found = !events.is_empty();
            }
            let next = if found { 2 * self.linger_rounds } else { self.linger_rounds / 2 };
            self.linger_rounds = next.clamp(1, LINGER_ROUNDS_MAX);
        }
        if !found {
            let timeout = self.timeout();
            self.core.poll.wait(events, timeout)?;
        }
        self.core.update_time();
        Ok(())
    }

    fn timeout(&self) -> Option<Duration> {
        if !self.core.ready.is_empty() {
            return Some(Duration::ZERO);
        }
        let tick = self.core.tick;
        let drain = self.drain_by.map(|by| ticks(by.saturating_duration_since(self.core.now)));
        [
            self.core.wheel.next_in(tick),
            self.core.names.next_in(tick),
            self.udp.as_ref().and_then(|udp| udp.next_in(tick)),
            self.paused_until.map(|until| until.saturating_sub(tick)),
            self.prober.as_ref().map(|prober| prober.next_in(tick)),
            drain,
        ]
        .into_iter()
        .flatten()
        .min()
        .map(|ticks| TICK * u32::try_from(ticks.max(1)).unwrap_or(u32::MAX))
    }

    /// Lets a flow take one step and carries out what it decides.
    fn with_flow(&mut self, key: Key, step: impl FnOnce(&mut Flow, &mut Core) -> Next) {
        let Some(flow) = self.flows.get_mut(key) else { return };
        let mut next = step(flow, &mut self.core);
        if matches!(next, Next::Wait | Next::Again)
            && let Err(e) = flow.watch_room(&self.core)
        {
            log::error!("epoll: {e}");
            next = Next::Reset;
        }
        match next {
            Next::Wait => {}
            Next::Again => {
                if !flow.queued {
                    flow.queued = true;
                    self.core.ready.push(key);
                }
            }
            Next::Close | Next::Reset => {
                flow.close(&mut self.core, next);
                self.flows.remove(key);
                self.core.counters.open.sub(1);
            }
        }
    }

    /// Lets the datagram side take a step, where there is one.
    fn with_udp(&mut self, step: impl FnOnce(&mut Udp, &mut udp::Tools<'_>)) {
        if let Some(udp) = &mut self.udp {
            step(udp, &mut udp::Tools { core: &mut self.core, listeners: &self.listeners });
        }
    }

    /// Lets the probes take a step, where there are any.
    fn with_prober(&mut self, step: impl FnOnce(&mut Prober, &mut Core)) {
        if let Some(prober) = &mut self.prober {
            step(prober, &mut self.core);
        }
    }

    /// Gives each flow that is queued at this point one more budget.
    fn run_ready(&mut self) {
        for _ in 0..self.core.ready.len() {
            let Some(key) = self.core.ready.pop() else { break };
            self.with_flow(key, |flow, core| {
                flow.queued = false;
                flow.step(core)
            });
        }
    }

    fn fire_deadlines(&mut self) {
        let tick = self.core.tick;
        while let Some(index) = self.core.wheel.expired(tick) {
            if let Some(key) = self.flows.key_at(index) {
                self.with_flow(key, Flow::on_deadline);
            }
        }
        self.with_udp(|udp, tools| udp.on_tick(tools));
        self.with_prober(Prober::on_tick);
        loop {
            let finished = self.names_step(Names::drive_started);
            if finished.is_none() && !self.core.names.has_started() {
                break;
            }
            self.tell_waiters(finished);
        }
        while let Some(finished) = self.names_step(|names, tools| names.on_tick(tick, tools)) {
            self.tell_waiters(Some(finished));
        }
        if self.paused_until.is_some_and(|until| until <= tick) {
            self.paused_until = None;
            self.set_listening(true);
        }
    }

    /// With the pool used up, ends the flows that hold most of it and have moved nothing for
    /// longest: a few peers that never read must not stop everybody else.
    fn relieve_pool(&mut self) {
        let tick = self.core.tick;
        if !std::mem::take(&mut self.core.starved) || tick < self.relieve_at {
            return;
        }
        self.relieve_at = tick + ticks(RELIEF_INTERVAL);
        let mut worst = ArrayVec::<(u64, Key), RELIEF_FLOWS>::new();
        for key in self.flows.keys() {
            let Some(flow) = self.flows.get(key) else { continue };
            let idle = tick.saturating_sub(flow.active_at()) + 1;
            let weight = (flow.held() as u64).saturating_mul(idle);
            let place = worst.partition_point(|(other, _)| *other >= weight);
            if weight > 0 && place < RELIEF_FLOWS {
                if worst.is_full() {
                    worst.pop();
                }
                worst.insert(place, (weight, key));
            }
        }
        self.core.log_peer_fault(format_args!(
            "buffers are used up: ending {} connections whose peers do not read",
            worst.len()
        ));
        for (_, key) in worst {
            self.core.counters.buffers_reclaimed.inc();
            self.with_flow(key, |_, _| Next::Reset);
        }
    }

    fn names_step(
        &mut self,
        step: impl FnOnce(&mut Names, &mut Tools<'_>) -> Option<Finished>,
    ) -> Option<Finished> {
        let Core { names, poll, pool, scratch, rng, now, epoch, .. } = &mut self.core;
        let mut tools = Tools { poll, pool, scratch, rng, now: *now, epoch: *epoch };
        step(names, &mut tools)
    }

    fn tell_waiters(&mut self, finished: Option<Finished>) {
        let Some(finished) = finished else { return };
        while let Some(waiter) = self.core.names.next_waiter(&finished) {
            let outcome = &finished.outcome;
            match waiter {
                Waiter::Flow(key) => {
                    self.with_flow(key, |flow, core| flow.on_resolved(core, outcome))
                }
                Waiter::Datagrams(key) => {
                    self.with_udp(|udp, tools| udp.on_resolved(tools, key, outcome));
                }
                Waiter::Probe(key) => {
                    self.with_prober(|prober, core| prober.on_resolved(core, key, outcome));
                }
            }
        }
    }

    fn accept(&mut self, key: Key) {
        for _ in 0..ACCEPTS_PER_TURN {
            let Some(listener) = self.listeners.get(key) else { return };
            if self.flows.len() == self.flows.capacity() {
                self.pause_accepting("every connection slot is in use");
                return;
            }
            match net::accept(&listener.fd) {
                Ok((fd, peer)) => {
                    let (role, id) = (Arc::clone(&listener.role), listener.id);
                    if clients::admit(&mut self.core, &role, peer, &fd) {
                        self.start_flow(role, id, fd, peer);
                    }
                }
                Err(Errno::AGAIN) => return,
                // The peer has given up before we got to it, or a network fault of its own.
                Err(Errno::CONNABORTED | Errno::INTR | Errno::PROTO | Errno::PERM) => {}
                Err(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => {
                    self.pause_accepting("out of file descriptors (raise nofile)");
                    return;
                }
                Err(e) => {
                    log::error!("accept: {e}");
                    self.pause_accepting("accept fails");
                    return;
                }
            }
        }
    }

    fn start_flow(&mut self, role: Arc<Role>, listener: ListenerId, fd: OwnedFd, peer: Peer) {
        let flow = Flow::new(role, listener, fd, peer, &mut self.core);
        // The caller has checked that there is room.
        let Ok(key) = self.flows.insert(flow) else { return };
        self.core.counters.accepted.inc();
        self.core.counters.open.inc();
        self.with_flow(key, |flow, core| {
            flow.key = key;
            // What the first step reads the poll need not tell of.
            let next = flow.start(core);
            if matches!(next, Next::Close | Next::Reset) {
                return next;
            }
            match core.watch(flow.client_fd(), key, Part::Client, Interest::Arrivals) {
                Ok(()) => next,
                Err(e) => {
                    log::error!("epoll: {e}");
                    Next::Close
                }
            }
        });
    }

    /// Stops accepting for a moment: to try again at once would spin.
    fn pause_accepting(&mut self, why: &str) {
        self.core.counters.accept_paused.inc();
        self.core.log_peer_fault(format_args!("new connections wait: {why}"));
        if self.paused_until.is_none() {
            self.set_listening(false);
        }
        self.paused_until = Some(self.core.tick + ticks(ACCEPT_PAUSE));
    }

    fn set_listening(&self, on: bool) {
        for key in self.listeners.keys() {
            if let Some(listener) = self.listeners.get(key)
                && listener.transport == Transport::Stream
                && let Err(e) =
                    self.core.poll.set_listening(&listener.fd, Token::Listener(key).into(), on)
            {
                log::error!("epoll: {e}");
            }
        }
    }

    fn take_commands(&mut self) {
        self.waker.clear();
        while let Ok(command) = self.commands.try_recv() {
            match command {
                Command::Listen(id, fd, role) => self.listen(id, fd, role, Transport::Stream),
                Command::ListenDatagrams(id, fd, role) => {
                    self.listen(id, fd, role, Transport::Datagram);
                }
                Command::Assign(id, role) => self.assign(id, role),
                Command::Unlisten(id) => self.unlisten(id),
                Command::Close(id) => {
                    self.unlisten(id);
                    self.reset_where(|flow| flow.listener() == id);
                }
                Command::Confirm(receipt) => drop(receipt),
                Command::Resolve(settings, hosts) => self.core.names.replace(settings, hosts),
                Command::Probe(plan) => {
                    self.with_prober(Prober::end);
                    self.prober = plan.map(|plan| Box::new(Prober::new(plan)));
                }
                Command::Drain(by) => {
                    self.with_prober(Prober::end);
                    self.prober = None;
                    let keys = self.listeners.keys();
                    for key in keys.collect::<Vec<_>>() {
                        self.listeners.remove(key);
                    }
                    if let Some(udp) = &mut self.udp {
                        udp.end_all(&mut self.core);
                    }
                    self.drain_by = Some(by);
                }
            }
        }
    }

    /// Gives a listener a new role. Connections go on by the role they began with, except those
    /// of users who are gone.
    fn assign(&mut self, id: ListenerId, role: Arc<Role>) {
        let Some(key) = self.listeners.find(id) else { return };
        self.core.judges.prepare(role.acl());
        if let Some(udp) = &mut self.udp {
            udp.prepare(&role);
            udp.on_assign(&mut self.core, key, &role);
        }
        self.reset_where(|flow| flow.listener() == id && !flow.outlives(&role));
        if let Some(listener) = self.listeners.get_mut(key) {
            listener.role = role;
        }
    }

    fn listen(&mut self, id: ListenerId, fd: OwnedFd, role: Arc<Role>, transport: Transport) {
        self.core.judges.prepare(role.acl());
        if transport == Transport::Datagram && self.udp.is_none() {
            self.udp = Some(Box::new(Udp::new(self.sessions_max)));
        }
        if let Some(udp) = &mut self.udp {
            udp.prepare(&role);
        }
        let Ok(key) = self.listeners.insert(Listener { id, fd, role, transport }) else {
            log::error!("more than {LISTENERS_MAX} listeners");
            return;
        };
        let token = match transport {
            Transport::Stream => Token::Listener(key),
            Transport::Datagram => Token::Datagrams(key),
        };
        if let Some(listener) = self.listeners.get(key)
            && let Err(e) = self.core.poll.add(&listener.fd, token.into(), Interest::Level)
        {
            log::error!("epoll: {e}");
            self.listeners.remove(key);
        }
    }

    fn unlisten(&mut self, id: ListenerId) {
        let Some(key) = self.listeners.find(id) else { return };
        self.listeners.remove(key);
        if let Some(udp) = &mut self.udp {
            udp.on_unlisten(&mut self.core, key);
        }
    }

    /// Resets connections. Off the hot path: a reload, or the end of a listener.
    fn reset_where(&mut self, which: impl Fn(&Flow) -> bool) {
        let ending = self.flows.keys().filter(|&key| self.flows.get(key).is_some_and(&which));
        for key in ending.collect::<Vec<_>>() {
            self.with_flow(key, |_, _| Next::Reset);
        }
    }

    fn is_drained(&self) -> bool {
        self.drain_by.is_some_and(|by| self.flows.is_empty() || self.core.now >= by)
    }
}

/// Listeners of one worker: TCP and UDP at 2,000 ports. What is not used takes no memory.
pub const LISTENERS_MAX: usize = 4096;
