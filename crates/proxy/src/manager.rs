//! The ports of a manager: what requests change, count and keep. The protocol itself is
//! [`adit_config::manager`].
//!
//! All ports are listeners of this process. A request touches the listeners of its port and no
//! other: workers get orders about these alone, and an order costs them a look at their connections
//! at most.
//!
//! Requests are taken in batches. What a batch changes is opened first, told to the workers, written
//! to the state file, and then, when every worker has said that it serves what it was told to, all
//! its answers go out. So `ok` means that the port is served, or closed with its connections, and
//! that it is kept. While workers are at it no further request is read; they wait in the kernel's
//! queue, as they do for a manager that answers one after the other.
//!
//! Nothing here waits for anybody: an answer that its receiver does not take at once is dropped, as
//! datagrams are.

mod address;
mod state;

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use adit_config::Config;
use adit_config::manager::{Answer, ManagedPort, NewPort, REQUEST_LEN_MAX, Reply, Request};
use adit_engine::receipt::Receipts;
use adit_engine::worker::{Command, Handle};
use adit_observe::{Throttle, log};
use adit_shadowsocks::Method;
use adit_sys::control::{ControlAddress, ControlSocket};
use adit_sys::poll::Waker;

use crate::listeners::{Change, ListenError, Listeners, Scope, Standing, Wanted, within_limit};
use crate::roles::{self, Stores};
use crate::supervisor::listen_options;

pub(crate) use address::{bind, destination};
pub(crate) use state::StateFile;

/// Requests of one batch.
const BATCH: usize = 64;
/// How often kept ports are tried again that could not be opened, and a state file that could not
/// be written.
const RETRY_INTERVAL: Duration = Duration::from_secs(3);
/// Lines about bad requests that may go out at once; then one a second.
const BAD_REQUEST_LINES: u32 = 20;

/// What a manager changes.
pub(crate) struct Hands<'a> {
    pub(crate) listeners: &'a mut Listeners,
    pub(crate) workers: &'a [Handle],
    pub(crate) stores: &'a Stores,
}

/// A port that is served.
struct Port {
    served: ManagedPort,
    /// The request that it comes from; `None` for a port of the configuration.
    request: Option<NewPort>,
    /// What another server process has reported for it.
    reported: u64,
}

/// The ports by number.
type Ports = BTreeMap<u16, Port>;

/// The ports of a manager and what is known of them.
pub(crate) struct ManagedPorts {
    /// The configuration without listeners.
    base: Config,
    ports: Ports,
    /// Kept ports that cannot be opened for now.
    shut: BTreeMap<u16, NewPort>,
    state: Option<StateFile>,
    /// What requests of this batch have changed is to be kept.
    changed: bool,
    /// The state file could not be written.
    unsaved: bool,
    retry_at: Instant,
    bad_requests: Throttle,
}

/// What a reload makes of the ports, prepared but not in force.
pub(crate) struct Rebased {
    base: Config,
    ports: Ports,
    pub(crate) changes: Vec<Change>,
}

/// The socket, and the answers that wait for workers.
pub(crate) struct Desk {
    socket: ControlSocket,
    receipts: Receipts,
    waker: Arc<Waker>,
    /// Workers have been asked to confirm.
    waits: bool,
    answers: Vec<(ControlAddress, Reply)>,
    /// One byte more than a request has shows one that is too long.
    buf: Box<[u8]>,
}

impl ManagedPorts {
    /// The ports of the configuration and those that were kept; none is open.
    ///
    /// # Errors
    /// The state file is damaged, or a port in it is none that can be served.
    pub(crate) fn load(config: &Config) -> Result<Self, Vec<String>> {
        let manager = config.manager.as_ref().expect("a manager has its settings");
        let state =
            manager.state_file.clone().map(|path| StateFile::new(path, manager.workdir.clone()));
        let mut this = Self {
            base: config.without_listeners(),
            ports: of_file(config),
            shut: BTreeMap::new(),
            changed: false,
            unsaved: false,
            retry_at: Instant::now(),
            bad_requests: Throttle::new(BAD_REQUEST_LINES),
            state: None,
        };
        if let Some(state) = state {
            let kept = state.read()?;
            for new in kept {
                let number = new.port;
                let served = this.base.managed_port(&new).map_err(|why| {
                    vec![format!("{}: port {number}: {why}", state.path().display())]
                })?;
                this.ports.insert(number, Port { served, request: Some(new), reported: 0 });
            }
            this.state = Some(state);
        }
        Ok(this)
    }

    /// Opens everything. A port of the configuration that cannot be opened is an error; one that
    /// was kept is tried again later.
    pub(crate) fn open_all(
        &mut self,
        listeners: &Listeners,
        stores: &Stores,
        workers: usize,
    ) -> Result<Vec<Change>, ListenError> {
        let mut changes = Vec::new();
        let mut shut = Vec::new();
        for (&number, port) in &self.ports {
            match prepare(&self.base, &port.served, Standing::Replaced, listeners, stores, workers)
            {
                Ok(change) => changes.push(change),
                Err(e) if port.request.is_some() => {
                    log::error!("port {number} is kept but cannot be opened: {e}; trying again");
                    shut.push(number);
                }
                Err(e) => return Err(e),
            }
        }
        for number in shut {
            self.shut_for_now(number, stores);
        }
        within_limit(&changes)?;
        Ok(changes)
    }

    fn shut_for_now(&mut self, number: u16, stores: &Stores) {
        stores.take_port(number);
        if let Some(Port { request: Some(new), .. }) = self.ports.remove(&number) {
            self.shut.insert(number, new);
        }
    }

    /// What the ports are with another configuration: its own ports as it says, and those of
    /// requests, which win, with what it says of all ports.
    pub(crate) fn rebase(
        &self,
        config: &Config,
        listeners: &Listeners,
        stores: &Stores,
        workers: usize,
    ) -> Result<Rebased, Vec<String>> {
        let base = config.without_listeners();
        let mut ports = of_file(config);
        for (&number, port) in &self.ports {
            let Some(new) = &port.request else { continue };
            let served = base
                .managed_port(new)
                .map_err(|why| vec![format!("port {number}, which was added by request: {why}")])?;
            let request = Some(new.clone());
            if ports.insert(number, Port { served, request, reported: 0 }).is_some() {
                log::warn!("port {number} stays as a request has it, not as the file says");
            }
        }
        for (number, port) in &mut ports {
            port.reported = self.ports.get(number).map_or(0, |known| known.reported);
        }
        let mut changes = Vec::new();
        let gone = self.ports.keys().filter(|number| !ports.contains_key(number));
        changes.extend(gone.map(|number| listeners.without(*number)));
        for port in ports.values() {
            let change = prepare(&base, &port.served, Standing::Kept, listeners, stores, workers);
            changes.push(change.map_err(|e| vec![e.to_string()])?);
        }
        within_limit(&changes).map_err(|e| vec![e.to_string()])?;
        Ok(Rebased { base, ports, changes })
    }

    /// Goes on with what a reload has made.
    pub(crate) fn adopt(&mut self, rebased: Rebased) {
        self.base = rebased.base;
        self.ports = rebased.ports;
    }

    /// Gives each line of a report on ports.
    pub(crate) fn report(&self, stores: &Stores, mut each: impl FnMut(&str)) {
        for (port, counters) in stores.port_traffic() {
            let Some(known) = self.ports.get(&port) else { continue };
            let from = if known.request.is_some() { "a request" } else { "the configuration" };
            each(&format!(
                "port {port}, from {from}: bytes_in={} bytes_out={} reported={}",
                counters.bytes_in.value(),
                counters.bytes_out.value(),
                known.reported
            ));
        }
        self.shut.keys().for_each(|port| each(&format!("port {port}: cannot be opened for now")));
    }

    /// When [`ManagedPorts::retry`] may have something to do.
    pub(crate) fn retry_at(&self) -> Option<Instant> {
        (self.unsaved || !self.shut.is_empty()).then_some(self.retry_at)
    }

    /// Tries again what did not work; says whether workers were told something.
    fn retry(&mut self, now: Instant, hands: &mut Hands<'_>) -> bool {
        if self.retry_at().is_none_or(|at| now < at) {
            return false;
        }
        self.retry_at = now + RETRY_INTERVAL;
        let mut opened = false;
        for (number, new) in std::mem::take(&mut self.shut) {
            match self.open(new.clone(), hands) {
                Ok(()) => opened = true,
                // Said when it was tried first.
                Err(_) => drop(self.shut.insert(number, new)),
            }
        }
        if self.unsaved {
            self.save();
        }
        opened
    }

    /// Carries out a request; says whether workers were told something.
    fn serve(
        &mut self,
        datagram: &[u8],
        from: &ControlAddress,
        hands: &mut Hands<'_>,
        answers: &mut Vec<(ControlAddress, Reply)>,
    ) -> bool {
        let dialect = self.base.invoked.dialect;
        let mut answer = |reply: Reply| answers.push((from.clone(), reply));
        let outcome = match Request::parse(datagram) {
            Ok(Request::Add(new)) => self.add(*new, hands),
            Ok(Request::Remove(port)) => self.remove(port, hands),
            Ok(Request::List) => {
                let ports = self.ports.values().map(|port| &port.served);
                Reply::list(dialect, ports).into_iter().for_each(answer);
                return false;
            }
            Ok(Request::Ping) => {
                Reply::traffic(dialect, self.traffic(hands.stores)).into_iter().for_each(answer);
                return false;
            }
            Ok(Request::Stat(ports)) => {
                for (number, bytes) in ports {
                    if let Some(port) = self.ports.get_mut(&number) {
                        port.reported = bytes;
                    }
                }
                return false;
            }
            Err(bad) => {
                self.complain(format_args!("bad request of {from}: {bad}"));
                Answer::Bad(bad)
            }
        };
        outcome.reply(dialect).into_iter().for_each(&mut answer);
        outcome == Answer::Done
    }

    fn add(&mut self, new: NewPort, hands: &mut Hands<'_>) -> Answer {
        let number = new.port;
        match self.open(new, hands) {
            Ok(()) => {
                self.changed = true;
                Answer::Done
            }
            Err(Failure::Refused(why)) => {
                log::warn!("port {number} is not added: {why}");
                Answer::Refused(why)
            }
            Err(Failure::Listen(e)) => {
                log::warn!("port {number} is not added: {e}");
                Answer::PortTaken
            }
        }
    }

    /// Opens a port in place of the one with its number, which stays when that does not work.
    fn open(&mut self, new: NewPort, hands: &mut Hands<'_>) -> Result<(), Failure> {
        let number = new.port;
        let served = self.base.managed_port(&new).map_err(Failure::Refused)?;
        let before = hands.stores.take_port(number);
        let workers = hands.workers.len();
        let (listeners, stores) = (&mut *hands.listeners, hands.stores);
        let change = prepare(&self.base, &served, Standing::Replaced, listeners, stores, workers)
            .map_err(|e| {
            stores.put_port(number, before);
            Failure::Listen(e)
        })?;
        change.lines.iter().for_each(|line| log::info!("{line}"));
        listeners.apply(change, hands.workers, stores.own());
        if served.method() == Method::None {
            log::warn!(
                "port {number}: method \"none\" DOES NOT ENCRYPT AND LETS EVERYONE IN; use it only \
                 inside another tunnel"
            );
        }
        self.shut.remove(&number);
        self.ports.insert(number, Port { served, request: Some(new), reported: 0 });
        Ok(())
    }

    fn remove(&mut self, number: u16, hands: &mut Hands<'_>) -> Answer {
        let was_kept = match self.ports.remove(&number) {
            Some(port) => {
                let change = hands.listeners.without(number);
                hands.listeners.apply(change, hands.workers, hands.stores.own());
                hands.stores.take_port(number);
                log::info!("port {number} is removed");
                port.request.is_some()
            }
            None => self.shut.remove(&number).is_some(),
        };
        self.changed |= was_kept;
        Answer::Done
    }

    /// Bytes of each port: what passed here, and what another process has reported.
    fn traffic(&self, stores: &Stores) -> Vec<(u16, u64)> {
        let own: BTreeMap<_, _> = stores.port_traffic().into_iter().collect();
        let total = |(number, port): (&u16, &Port)| {
            let here = own.get(number).map_or(0, |counters| counters.total());
            (*number, here.saturating_add(port.reported))
        };
        self.ports.iter().map(total).collect()
    }

    /// Writes the state file, where there is one.
    pub(crate) fn save(&mut self) {
        let Some(state) = &mut self.state else { return };
        let open = self.ports.values().filter_map(|port| port.request.as_ref());
        self.unsaved = !state.write(open.chain(self.shut.values()));
        self.retry_at = Instant::now() + RETRY_INTERVAL;
    }

    /// Writes a line that whoever reaches the manager can cause.
    fn complain(&mut self, line: fmt::Arguments<'_>) {
        match self.bad_requests.allow(Instant::now()) {
            None => {}
            Some(0) => log::warn!("manager: {line}"),
            Some(held_back) => log::warn!("manager: {line} ({held_back} such lines held back)"),
        }
    }
}

/// Why a port is not opened.
enum Failure {
    Refused(String),
    Listen(ListenError),
}

impl Desk {
    /// Takes the place of a manager at `socket`.
    pub(crate) fn new(socket: ControlSocket) -> io::Result<Self> {
        let waker = Arc::new(Waker::new()?);
        Ok(Self {
            socket,
            receipts: Receipts::new(Arc::clone(&waker)),
            waker,
            waits: false,
            answers: Vec::new(),
            buf: vec![0; REQUEST_LEN_MAX + 1].into_boxed_slice(),
        })
    }

    /// The UDP port that requests come to, if it is one.
    pub(crate) fn internet_addr(&self) -> Option<SocketAddr> {
        self.socket.internet_addr().ok().flatten()
    }

    /// The descriptor that is readable when workers have confirmed.
    pub(crate) fn confirmed(&self) -> BorrowedFd<'_> {
        self.waker.as_fd()
    }

    /// The descriptor that is readable when there are requests.
    pub(crate) fn requests(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Whether requests are to wait.
    pub(crate) const fn waits(&self) -> bool {
        self.waits
    }

    /// Goes on as far as that is possible.
    pub(crate) fn step(&mut self, ports: &mut ManagedPorts, hands: &mut Hands<'_>) {
        self.waker.clear();
        if self.waits {
            if !self.receipts.are_in() {
                return;
            }
            self.waits = false;
            hands.listeners.closed();
            hands.stores.forget_unused();
            self.answer(ports);
        }
        let mut told = ports.retry(Instant::now(), hands);
        for _ in 0..BATCH {
            match self.socket.receive(&mut self.buf) {
                Ok(Some((len, from))) => {
                    let datagram = &mut self.buf[..len];
                    told |= ports.serve(datagram, &from, hands, &mut self.answers);
                    // It may have held a password.
                    datagram.fill(0);
                }
                Ok(None) => break,
                Err(e) => {
                    ports.complain(format_args!("requests cannot be received: {e}"));
                    break;
                }
            }
        }
        if std::mem::take(&mut ports.changed) {
            ports.save();
        }
        if told {
            self.waits = true;
            hands
                .workers
                .iter()
                .for_each(|worker| worker.send(Command::Confirm(self.receipts.issue())));
        } else {
            self.answer(ports);
        }
    }

    fn answer(&mut self, ports: &mut ManagedPorts) {
        for (to, reply) in self.answers.drain(..) {
            match self.socket.send(reply.as_bytes(), &to) {
                Ok(()) => {}
                // Its user wonders why nothing comes.
                Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
                    ports.complain(format_args!(
                        "{to} gets no answer: {e}; this process has to be able to write it"
                    ))
                }
                Err(e) => log::debug!("manager: {to} does not take its answer: {e}"),
            }
        }
    }
}

/// The ports of a configuration.
fn of_file(config: &Config) -> Ports {
    let ports = config.manager.iter().flat_map(|manager| &manager.ports);
    ports
        .map(|served| (served.port, Port { served: served.clone(), request: None, reported: 0 }))
        .collect()
}

/// Opens what a port needs.
fn prepare(
    base: &Config,
    port: &ManagedPort,
    standing: Standing,
    listeners: &Listeners,
    stores: &Stores,
    workers: usize,
) -> Result<Change, ListenError> {
    let config = base.for_port(port);
    let wanted: Vec<Wanted> = roles::wanted(&config, stores);
    let options = listen_options(&config);
    listeners.prepare_within(Scope::Port(port.port), standing, &wanted, &options, workers)
}
