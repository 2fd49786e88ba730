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
//! Nothing here waits for a client: an answer that its receiver does not take at once is dropped, as
//! datagrams are. A request about a port with a plugin does wait for the plugin, until it listens or
//! has ended, and other requests with it; connections do not.
//!
//! A port whose plugin ends by itself is closed, and the manager goes on. It is kept all the same, and
//! comes back when it is added again or the process starts anew; by itself it is not tried again, so
//! that a plugin that never gets ready does not hold up requests for ever.

mod address;
mod state;

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use adit_config::manager::{Answer, ManagedPort, NewPort, REQUEST_LEN_MAX, Reply, Request};
use adit_config::{Config, Role};
use adit_engine::receipt::Receipts;
use adit_engine::worker::{Command, Handle};
use adit_observe::{Throttle, log};
use adit_shadowsocks::Method;
use adit_sys::control::{ControlAddress, ControlSocket};
use adit_sys::poll::Waker;

use crate::listeners::{Change, ListenOptions, Listeners, Scope, Standing, within_limit};
use crate::opening::{OpenError, Opening};
use crate::plugin::{self, Job, Plugins};
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
    pub(crate) plugins: &'a mut Plugins,
    /// Whether the program has been told to end.
    pub(crate) stopped: &'a dyn Fn() -> bool,
}

/// A port that is served.
struct Port {
    served: ManagedPort,
    /// The request that it comes from; `None` for a port of the configuration.
    request: Option<NewPort>,
    /// What another server process has reported for it.
    reported: u64,
}

/// A port that is kept but not served.
struct Shut {
    new: NewPort,
    /// It is tried again.
    retried: bool,
}

/// The ports by number.
type Ports = BTreeMap<u16, Port>;

/// The ports of a manager and what is known of them.
pub(crate) struct ManagedPorts {
    /// The configuration without listeners.
    base: Config,
    ports: Ports,
    /// Kept ports that cannot be opened for now.
    shut: BTreeMap<u16, Shut>,
    /// Plugins that have ended by themselves, whose ports are to be closed.
    lost: Vec<Job>,
    /// Workers have been told something besides what requests ask for.
    told: bool,
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
    /// Ports that there are no more.
    gone: Vec<u16>,
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
            lost: Vec::new(),
            told: false,
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
    /// was kept may be tried again later.
    pub(crate) fn open_all(
        &mut self,
        opening: &mut Opening<'_>,
        workers: usize,
    ) -> Result<Vec<Change>, OpenError> {
        let mut changes = Vec::new();
        let mut shut = Vec::new();
        for (&number, port) in &self.ports {
            match open_port(&self.base, &port.served, opening, workers) {
                Ok((change, plugged)) => {
                    opening.plugins.apply(plugged);
                    changes.push(change);
                }
                Err(e) if port.request.is_some() && !matches!(e, OpenError::Stopped) => {
                    let then = if has_plugin(&port.served) {
                        "add it again, or restart the program"
                    } else {
                        "trying again"
                    };
                    log::error!("port {number} is kept but cannot be opened: {e}; {then}");
                    shut.push(number);
                }
                Err(e) => return Err(e),
            }
        }
        for number in shut {
            self.shut(number, opening.stores);
        }
        within_limit(&changes)?;
        Ok(changes)
    }

    /// Takes out a port that is served no longer, but kept if it was.
    fn shut(&mut self, number: u16, stores: &Stores) {
        stores.take_port(number);
        if let Some(Port { request: Some(new), served, .. }) = self.ports.remove(&number) {
            self.shut.insert(number, Shut { new, retried: !has_plugin(&served) });
        }
    }

    /// What the ports are with another configuration: its own ports as it says, and those of
    /// requests, which win, with what it says of all ports.
    pub(crate) fn rebase(&self, config: &Config) -> Result<Rebased, Vec<String>> {
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
        let gone = self.ports.keys().filter(|number| !ports.contains_key(number));
        let gone = gone.copied().collect();
        Ok(Rebased { base, ports, gone })
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
        for (port, shut) in &self.shut {
            let how = if shut.retried {
                "cannot be opened for now"
            } else {
                "closed, because its plugin does not run"
            };
            each(&format!("port {port}: {how}"));
        }
    }

    /// When [`ManagedPorts::retry`] may have something to do.
    pub(crate) fn retry_at(&self) -> Option<Instant> {
        let retries = self.shut.values().any(|shut| shut.retried);
        (self.unsaved || retries).then_some(self.retry_at)
    }

    /// Tries again what did not work; says whether workers were told something.
    fn retry(&mut self, now: Instant, hands: &mut Hands<'_>) -> bool {
        if self.retry_at().is_none_or(|at| now < at) {
            return false;
        }
        self.retry_at = now + RETRY_INTERVAL;
        let mut opened = false;
        let again = self.shut.values().filter(|shut| shut.retried);
        for new in again.map(|shut| shut.new.clone()).collect::<Vec<_>>() {
            // Why not was said when it was tried first; it stays where it is then.
            opened |= self.open(new, hands).is_ok();
        }
        if self.unsaved {
            self.save();
        }
        opened
    }

    /// A plugin has ended by itself.
    pub(crate) fn lose(&mut self, job: Job) {
        self.lost.push(job);
    }

    /// Closes the ports of plugins that have ended.
    fn close_lost(&mut self, hands: &mut Hands<'_>) {
        for job in std::mem::take(&mut self.lost) {
            let number = job.remote.port;
            // A reload may have started it anew.
            if self.ports.contains_key(&number) && !hands.plugins.has(&job) {
                self.close_without_plugin(number, hands);
            }
        }
    }

    fn close_without_plugin(&mut self, number: u16, hands: &mut Hands<'_>) {
        log::error!(
            "port {number} is closed, because its plugin has ended; add it again, or restart the \
             program"
        );
        close(number, hands);
        self.shut(number, hands.stores);
        self.told = true;
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
            Err(Failure::Open(e)) => {
                log::warn!("port {number} is not added: {e}");
                if matches!(e, OpenError::Lost(..)) {
                    self.close_without_plugin(number, hands);
                }
                match e {
                    OpenError::Listen(_) => Answer::PortTaken,
                    _ => Answer::Refused(e.to_string()),
                }
            }
        }
    }

    /// Opens a port in place of the one with its number, which stays when that does not work.
    fn open(&mut self, new: NewPort, hands: &mut Hands<'_>) -> Result<(), Failure> {
        let number = new.port;
        let served = self.base.managed_port(&new).map_err(Failure::Refused)?;
        let before = hands.stores.take_port(number);
        let (stores, workers) = (hands.stores, hands.workers);
        let opened = open_port(&self.base, &served, &mut hands.opening(), workers.len());
        let (change, plugged) = opened.map_err(|e| {
            stores.put_port(number, before);
            Failure::Open(e)
        })?;
        change.lines.iter().for_each(|line| log::info!("{line}"));
        hands.listeners.apply(change, workers, stores.own());
        hands.plugins.apply(plugged);
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
                close(number, hands);
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
        let shut = self.shut.values().map(|shut| &shut.new);
        self.unsaved = !state.write(open.chain(shut));
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
    Open(OpenError),
}

impl Hands<'_> {
    fn opening(&mut self) -> Opening<'_> {
        Opening {
            stores: self.stores,
            listeners: self.listeners,
            plugins: self.plugins,
            stopped: self.stopped,
        }
    }
}

impl Rebased {
    /// Opens what is new; nothing is in force.
    pub(crate) fn open(
        &self,
        opening: &mut Opening<'_>,
        workers: usize,
    ) -> Result<(Vec<Change>, plugin::Change), OpenError> {
        let mut config = self.base.without_listeners();
        let all = self.ports.values().flat_map(|port| port.served.listeners.iter().cloned());
        config.role = Role::Server { listeners: all.collect() };
        let stores = opening.stores;
        opening.open(Scope::All, std::slice::from_ref(&config), |listeners, held| {
            let mut changes: Vec<_> =
                self.gone.iter().map(|number| listeners.without(*number)).collect();
            for port in self.ports.values() {
                let config = self.base.for_port(&port.served);
                let wanted = roles::wanted(&config, stores);
                let options = options(&config, held);
                let scope = Scope::Port(port.served.port);
                let kept = Standing::Kept;
                changes.push(listeners.prepare_within(scope, kept, &wanted, &options, workers)?);
            }
            within_limit(&changes)?;
            Ok(changes)
        })
    }
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
        ports.close_lost(hands);
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
        if told | std::mem::take(&mut ports.told) {
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

/// Opens what a port needs, in place of what serves it.
fn open_port(
    base: &Config,
    port: &ManagedPort,
    opening: &mut Opening<'_>,
    workers: usize,
) -> Result<(Change, plugin::Change), OpenError> {
    let (config, scope) = (base.for_port(port), Scope::Port(port.port));
    let stores = opening.stores;
    opening.open(scope, std::slice::from_ref(&config), |listeners, held| {
        let wanted = roles::wanted(&config, stores);
        let options = options(&config, held);
        listeners.prepare_within(scope, Standing::Replaced, &wanted, &options, workers)
    })
}

/// Closes a port with its connections and its plugin.
fn close(number: u16, hands: &mut Hands<'_>) {
    let change = hands.listeners.without(number);
    hands.listeners.apply(change, hands.workers, hands.stores.own());
    hands.plugins.stop(Scope::Port(number));
    hands.stores.plug(Arc::new(hands.plugins.plugged()));
}

fn options(config: &Config, held: &[SocketAddr]) -> ListenOptions {
    ListenOptions { held: held.to_vec(), ..listen_options(config) }
}

fn has_plugin(port: &ManagedPort) -> bool {
    port.listeners.iter().any(|listener| listener.plugin.is_some())
}
