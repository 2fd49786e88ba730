//! The life of the process.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt::Write as _;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use adit_config::manager::ManagerAddress;
use adit_config::{Config, Diagnostic, LogLevel};
use adit_engine::crew::Crew;
use adit_engine::guard::Transport;
use adit_engine::worker::{Capacity, Command, Handle, Worker};
use adit_observe::{FlowCounters, init_log, log};
use adit_sys::poll::{Events, Interest, Poll};
use adit_sys::process::{self, Daemon};
use adit_sys::signal::{Signal, Signals};
use adit_sys::{datagram, net};

use crate::listeners::{Change, ListenOptions, Listeners, Scope, Wanted};
use crate::manager::{self, Desk, Hands, ManagedPorts, Rebased};
use crate::names::NameFiles;
use crate::opening::{OpenError, Opening};
use crate::plugin::{self, Plugins};
use crate::redir;
use crate::reporter::Reporter;
use crate::roles::{self, Stores};
use crate::subscription::{Arrival, Subscriptions, servers};

/// Exit status after an orderly end.
pub const EXIT_OK: u8 = 0;
/// Exit status when something failed at run time.
pub const EXIT_FAILURE: u8 = 1;
/// Exit status for a wrong command line or configuration.
pub const EXIT_CONFIG: u8 = 2;

/// Open connections get this long to end after the first SIGTERM.
const DRAIN_LIMIT: Duration = Duration::from_secs(5);
/// How often the resolver's files are looked at.
const FILES_INTERVAL: Duration = Duration::from_secs(3);
/// Connections of one worker at most.
const FLOWS_MAX: u64 = 65_536;
/// Descriptors kept for listeners, logs, look-ups and the like.
const DESCRIPTORS_RESERVED: u64 = 64;
/// Bytes that slow readers may leave waiting, per worker; touched only as they do.
const BUFFER_BYTES: usize = 64 << 20;
/// Names kept by each worker, when the configuration does not say.
const NAMES_DEFAULT: u32 = 1024;
/// A worker's stack. Its deepest frame is a few kilobytes of parsing.
const STACK_LEN: usize = 256 << 10;

/// What ended a run early.
struct Failed {
    code: u8,
    text: String,
}

impl Failed {
    fn runtime(text: impl Into<String>) -> Self {
        Self { code: EXIT_FAILURE, text: text.into() }
    }

    /// Listeners or plugins are not ready.
    fn opening(error: &OpenError) -> Self {
        let code = if matches!(error, OpenError::Stopped) { EXIT_OK } else { EXIT_FAILURE };
        Self { code, text: error.to_string() }
    }

    fn config(lines: Vec<String>) -> Self {
        Self { code: EXIT_CONFIG, text: lines.join("; ") }
    }
}

/// Runs a program until it is told to stop; returns its exit status.
///
/// Several configurations run side by side in one process; what belongs to the process (workers,
/// user, limits, resolver) is taken from the first.
///
/// # Panics
/// When there is no configuration.
pub fn run(configs: Vec<Config>) -> u8 {
    let first = configs.first().expect("a program has a configuration");
    init_log(level(first.log_level), first.log_time);
    let started = with_subscriptions(configs)
        .and_then(|(configs, subscriptions)| Supervisor::start(configs, subscriptions));
    match started.and_then(Supervisor::serve) {
        Ok(()) => EXIT_OK,
        Err(failed) => {
            if failed.code == EXIT_OK {
                log::info!("{}", failed.text);
            } else {
                log::error!("{}", failed.text);
            }
            failed.code
        }
    }
}

/// Before anything else is begun: a client without a server cannot run.
fn with_subscriptions(mut configs: Vec<Config>) -> Result<(Vec<Config>, Subscriptions), Failed> {
    let subscriptions = Subscriptions::start(&mut configs).map_err(Failed::runtime)?;
    Ok((configs, subscriptions))
}

struct Supervisor {
    /// Never empty; the first speaks for the process.
    configs: Vec<Config>,
    subscriptions: Subscriptions,
    stores: Stores,
    crew: Arc<Crew>,
    listeners: Listeners,
    names: NameFiles,
    handles: Vec<Handle>,
    threads: Vec<JoinHandle<io::Result<()>>>,
    signals: SignalQueue,
    plugins: Plugins,
    poll: Poll,
    /// The ports of a manager, and where requests for them come in.
    manager: Option<(ManagedPorts, Desk)>,
    /// What tells a manager elsewhere.
    reporter: Option<Reporter>,
}

/// Tokens of the control plane's poll. It looks at everything whenever it wakes.
const SIGNALS: u64 = 0;
const REQUESTS: u64 = 1;
const CONFIRMED: u64 = 2;
const SAID: u64 = 3;

/// The signals that have arrived, in order; one may be looked for without losing the others.
struct SignalQueue {
    signals: Signals,
    put_off: RefCell<VecDeque<Signal>>,
}

impl SignalQueue {
    /// Takes the next signal.
    fn next(&self) -> Option<Signal> {
        self.put_off.borrow_mut().pop_front().or_else(|| self.signals.next())
    }

    /// Whether the program has been told to end, which stays to be taken.
    fn has_stop(&self) -> bool {
        let mut put_off = self.put_off.borrow_mut();
        put_off.extend(std::iter::from_fn(|| self.signals.next()));
        put_off.contains(&Signal::Stop)
    }

    /// Whether signals wait to be taken that the descriptor does not tell of any more.
    fn has_put_off(&self) -> bool {
        !self.put_off.borrow().is_empty()
    }
}

impl Supervisor {
    fn start(configs: Vec<Config>, subscriptions: Subscriptions) -> Result<Self, Failed> {
        configs.iter().flat_map(|c| &c.warnings).for_each(|w| log::warn!("{w}"));
        let config = &configs[0];
        let daemon = if config.daemonize {
            let started = Daemon::start();
            Some(
                started
                    .map_err(|e| Failed::runtime(format!("cannot go to the background: {e}")))?,
            )
        } else {
            None
        };
        let signals = Signals::take_over()
            .map_err(|e| Failed::runtime(format!("cannot take over signals: {e}")))?;
        let poll = Poll::new().map_err(|e| Failed::runtime(format!("epoll: {e}")))?;
        poll.add(&signals, SIGNALS, Interest::Level)
            .map_err(|e| Failed::runtime(format!("epoll: {e}")))?;
        let signals = SignalQueue { signals, put_off: RefCell::default() };
        let descriptors = descriptor_limit(config)?;
        let worker_count = worker_count(config);

        let sessions = sessions_max(config, descriptors, worker_count);
        let stores = Stores::new(sessions * worker_count);
        let mut plugins = Plugins::new(config.user.clone(), Arc::clone(stores.own()))
            .map_err(|e| Failed::runtime(format!("epoll: {e}")))?;
        poll.add(&plugins, SAID, Interest::Level)
            .map_err(|e| Failed::runtime(format!("epoll: {e}")))?;
        let crew = Crew::new(u16::try_from(worker_count).unwrap_or(u16::MAX))
            .map_err(|e| Failed::runtime(format!("eventfd: {e}")))?;
        let listeners = Listeners::default();
        let (ports, changes) = {
            let mut opening = Opening {
                stores: &stores,
                listeners: &listeners,
                plugins: &mut plugins,
                stopped: &|| signals.has_stop(),
            };
            open_all(&configs, &mut opening, worker_count)?
        };
        if let Some(path) = &config.pid_file {
            write_pid(path)?;
        }
        if let Some(user) = &config.user {
            let redirects = configs.iter().any(redir::redirects);
            redir::become_user(user, redirects)
                .map_err(|e| Failed::runtime(format!("cannot become user {user}: {e}")))?;
        }
        let manager = ports.map(|ports| open_desk(config, ports, &poll, &stores)).transpose()?;
        let reporter = reporter(&configs, &stores).map_err(Failed::runtime)?;
        let names = NameFiles::read(config.nameservers.as_deref());
        let this = Self {
            configs,
            subscriptions,
            stores,
            crew,
            listeners,
            names,
            handles: Vec::new(),
            threads: Vec::new(),
            signals,
            plugins,
            poll,
            manager,
            reporter,
        };
        this.begin(changes, descriptors, worker_count, daemon)
    }

    /// Starts the workers, puts what was opened in force, and says that it works.
    fn begin(
        mut self,
        changes: Vec<Change>,
        descriptors: u64,
        worker_count: usize,
        daemon: Option<Daemon>,
    ) -> Result<Self, Failed> {
        for number in 0..worker_count {
            self.start_worker(number, descriptors, worker_count)?;
        }
        for change in changes {
            for line in &change.lines {
                log::info!("{line}");
            }
            self.listeners.apply(change, &self.handles, self.stores.own());
        }
        self.send_probes();
        log::info!(
            "{} {}: {} worker{}, {}, up to {} connections",
            self.configs[0].invoked.name,
            env!("CARGO_PKG_VERSION"),
            worker_count,
            if worker_count == 1 { "" } else { "s" },
            adit_crypto::acceleration(),
            descriptors / 2,
        );
        self.log_kernel_options();
        self.configs.iter().for_each(redir::log_mark);
        if let Some(daemon) = daemon {
            daemon.ready().map_err(|e| Failed::runtime(format!("cannot detach: {e}")))?;
        }
        notify(&[sd_notify::NotifyState::Ready]);
        if let Err(e) = process::release_start_code() {
            log::debug!("start-up code stays resident: {e}");
        }
        Ok(self)
    }

    /// Says whether the kernel has what the configuration asks for; without it plain TCP is used.
    fn log_kernel_options(&self) {
        let sockets = &self.configs[0].sockets;
        let asked = [
            (
                sockets.fast_open,
                "TCP fast open",
                net::fast_open_available as fn() -> io::Result<()>,
            ),
            (sockets.mptcp, "multipath TCP", net::multipath_available),
        ];
        if self.configs.iter().flat_map(roles::binds).any(|(_, t)| t == Transport::Datagram) {
            for (name, available) in [
                ("UDP segmentation", datagram::segmentation_available as fn() -> io::Result<()>),
                ("UDP coalescing", datagram::coalescing_available),
            ] {
                match available() {
                    Ok(()) => log::debug!("{name}: on"),
                    Err(e) => log::info!("{name}: not available here ({e}); datagrams go singly"),
                }
            }
        }
        for (_, name, available) in asked.into_iter().filter(|(wanted, ..)| *wanted) {
            match available() {
                Ok(()) => log::info!("{name}: on"),
                Err(e) => log::info!("{name}: not available here ({e}); plain TCP is used"),
            }
        }
    }

    fn start_worker(
        &mut self,
        number: usize,
        descriptors: u64,
        workers: usize,
    ) -> Result<(), Failed> {
        let flows = (descriptors.saturating_sub(DESCRIPTORS_RESERVED) / 2).clamp(16, FLOWS_MAX);
        let capacity = Capacity {
            // The kernel does not spread connections evenly, so each worker may take them all.
            flows: usize::try_from(flows).unwrap_or(usize::MAX),
            buffer_bytes: BUFFER_BYTES,
            names: self.configs[0].dns_cache_size.unwrap_or(NAMES_DEFAULT) as usize,
            sessions: sessions_max(&self.configs[0], descriptors, workers),
        };
        let (worker, handle) = Worker::new(
            u16::try_from(number).unwrap_or(u16::MAX),
            Arc::clone(&self.crew),
            capacity,
            Arc::clone(&self.names.settings),
            Arc::clone(&self.names.hosts),
            roles::resolver_outbound(&self.configs[0]),
        )
        .map_err(|e| Failed::runtime(format!("cannot start worker {number} of {workers}: {e}")))?;
        let thread = thread::Builder::new()
            .name(format!("worker-{number}"))
            .stack_size(STACK_LEN)
            .spawn(move || worker.run())
            .map_err(|e| Failed::runtime(format!("cannot start worker {number}: {e}")))?;
        self.handles.push(handle);
        self.threads.push(thread);
        Ok(())
    }

    /// Waits for signals and file changes until told to stop.
    fn serve(mut self) -> Result<(), Failed> {
        let mut events = Events::new();
        loop {
            if let Err(e) = self.poll.wait(&mut events, Some(self.patience())) {
                return Err(Failed::runtime(format!("epoll: {e}")));
            }
            while let Some(signal) = self.signals.next() {
                match signal {
                    Signal::Stop => return self.drain(),
                    Signal::Reload => {
                        if let Err(failed) = self.reload() {
                            return self.drain().and(Err(failed));
                        }
                    }
                    Signal::Report => self.report(),
                    // Looked at below: a signal may stand for several.
                    Signal::Child => {}
                }
            }
            self.plugins.forward_output();
            let ended = self.plugins.take_ended();
            ended.iter().for_each(|ended| log::error!("{}", ended.line));
            if let Some((ports, _)) = &mut self.manager {
                ended.into_iter().for_each(|ended| ports.lose(ended.job));
            } else if !ended.is_empty() {
                self.drain()?;
                return Err(Failed::runtime("stopped, because a plugin has ended"));
            }
            if self.threads.iter().any(JoinHandle::is_finished) {
                return Err(Failed::runtime("a worker has ended by itself"));
            }
            if let Some(arrival) = self.subscriptions.step(&self.poll) {
                self.on_answer(arrival)?;
            }
            self.step_manager();
            if let Some(reporter) = &mut self.reporter {
                reporter.step(Instant::now(), &self.stores);
            }
            if self.names.refresh() {
                log::info!("resolver files have changed and were read again");
                self.send_names();
            }
        }
    }

    /// A provider has answered: its servers take the place of those of its last answer.
    ///
    /// Fails only when the servers before them need a plugin that does not start any more.
    fn on_answer(&mut self, Arrival { config: at, answer }: Arrival) -> Result<(), Failed> {
        let put = self.configs[at]
            .subscribed(&answer)
            .map_err(|why| Unchanged::Wrong(vec![why]))
            .and_then(|read| {
                let before = servers(&self.configs[at]);
                self.subscriptions.report(at, &read, before);
                if before != servers(&read.config) {
                    let mut configs = self.configs.clone();
                    configs[at] = read.config;
                    self.put_in_force(configs)?;
                }
                Ok(())
            });
        match put {
            Ok(()) => self.subscriptions.settle(at, Some(answer), ""),
            Err(Unchanged::Lost(failed)) => return Err(failed),
            Err(Unchanged::Wrong(lines)) => {
                self.subscriptions.settle(at, None, &lines.join("; "));
            }
            Err(Unchanged::Refused(why)) => self.subscriptions.settle(at, None, &why),
            // The signal is taken next.
            Err(Unchanged::Stopped) => {}
        }
        Ok(())
    }

    /// How long to wait for something to happen.
    fn patience(&self) -> Duration {
        // Read while a plugin was starting for a request, or an answer of a provider.
        if self.signals.has_put_off() {
            return Duration::ZERO;
        }
        let now = Instant::now();
        let retry = self.manager.as_ref().filter(|(_, desk)| !desk.waits());
        let retry = retry.and_then(|(ports, _)| ports.retry_at());
        let report = self.reporter.as_ref().map(|reporter| reporter.due(now));
        let fetch = self.subscriptions.due(now);
        let due = retry.into_iter().chain(report).chain(fetch).min();
        due.map_or(FILES_INTERVAL, |due| due.saturating_duration_since(now).min(FILES_INTERVAL))
    }

    /// Lets a manager go on: requests, answers, what has to be tried again.
    fn step_manager(&mut self) {
        let Some((ports, desk)) = &mut self.manager else { return };
        let waited = desk.waits();
        let mut hands = Hands {
            listeners: &mut self.listeners,
            workers: &self.handles,
            stores: &self.stores,
            plugins: &mut self.plugins,
            stopped: &|| self.signals.has_stop(),
        };
        desk.step(ports, &mut hands);
        // While it waits for workers, a request that is there must not keep the poll awake.
        if desk.waits() != waited
            && let Err(e) = self.poll.set_listening(desk.requests(), REQUESTS, !desk.waits())
        {
            log::error!("epoll: {e}");
        }
    }

    fn send_names(&self) {
        for handle in &self.handles {
            let settings = Arc::clone(&self.names.settings);
            handle.send(Command::Resolve(settings, Arc::clone(&self.names.hosts)));
        }
    }

    /// Reads the configuration again; whatever is wrong with it, the old one stays in force.
    ///
    /// Fails only when the old configuration needs a plugin that does not start any more.
    fn reload(&mut self) -> Result<(), Failed> {
        notify(&[sd_notify::NotifyState::Reloading]);
        match self.try_reload() {
            Ok(()) => log::info!("configuration reloaded"),
            Err(Unchanged::Lost(failed)) => return Err(failed),
            Err(Unchanged::Wrong(lines)) => {
                lines.iter().for_each(|line| log::error!("{line}"));
                log::error!("reload failed; the old configuration stays in force");
                self.stores.forget_unused();
            }
            Err(Unchanged::Refused(text)) => {
                log::error!("{text}");
                log::error!("reload failed; the old configuration stays in force");
                self.stores.forget_unused();
            }
            // The signal is taken next.
            Err(Unchanged::Stopped) => {}
        }
        notify(&[sd_notify::NotifyState::Ready]);
        Ok(())
    }

    fn try_reload(&mut self) -> Result<(), Unchanged> {
        let env = |name: &str| std::env::var(name).ok();
        let text = |found: Vec<_>| found.iter().map(Diagnostic::to_string).collect::<Vec<_>>();
        let configs: Result<Vec<_>, _> = self.configs.iter().map(|c| c.reload(&env)).collect();
        let mut configs = configs.map_err(|found| Unchanged::Wrong(text(found)))?;
        self.subscriptions.apply(&mut configs).map_err(|e| Unchanged::Wrong(vec![e]))?;
        self.put_in_force(configs)?;
        self.configs.iter().flat_map(|c| &c.warnings).for_each(|w| log::warn!("{w}"));
        self.subscriptions.reload(&self.configs);
        Ok(())
    }

    /// Has the listeners and workers go by other configurations; an error leaves all as it was, but
    /// for [`Unchanged::Lost`].
    fn put_in_force(&mut self, configs: Vec<Config>) -> Result<(), Unchanged> {
        // Made first, since it is given up more easily than what follows.
        let reporter = if report_to(&configs) == report_to(&self.configs) {
            None
        } else {
            Some(reporter(&configs, &self.stores).map_err(Unchanged::Refused)?)
        };
        let (changes, plugged, rebased) = match self.open_again(&configs) {
            Ok(opened) => opened,
            Err(unchanged) => {
                let reporter = reporter.flatten();
                reporter.into_iter().for_each(|reporter| reporter.leave(&self.stores));
                return Err(unchanged);
            }
        };
        let config = &configs[0];
        for line in changes.iter().flat_map(|change| &change.lines) {
            log::info!("{line}");
        }
        if worker_count(config) != self.handles.len() {
            log::warn!("the number of workers changes only with a restart");
        }
        if is_moved(config, &self.configs[0]) {
            log::warn!("the manager's address and its state file change only with a restart");
        }
        for change in changes {
            self.listeners.apply(change, &self.handles, self.stores.own());
        }
        self.plugins.apply(plugged);
        if let (Some((ports, _)), Some(rebased)) = (&mut self.manager, rebased) {
            ports.adopt(rebased);
        }
        if let Some(reporter) = reporter
            && let Some(before) = std::mem::replace(&mut self.reporter, reporter)
        {
            before.leave(&self.stores);
        }
        self.stores.forget_unused();
        self.stores.healths.retain(&configs);
        init_log(level(config.log_level), config.log_time);
        if config.nameservers != self.configs[0].nameservers {
            self.names = NameFiles::read(config.nameservers.as_deref());
            self.send_names();
        }
        self.configs = configs;
        self.send_probes();
        Ok(())
    }

    /// Opens what configurations ask for, beside what is open.
    fn open_again(&mut self, configs: &[Config]) -> Result<Opened, Unchanged> {
        let workers = self.handles.len();
        let mut opening = Opening {
            stores: &self.stores,
            listeners: &self.listeners,
            plugins: &mut self.plugins,
            stopped: &|| self.signals.has_stop(),
        };
        if let Some((ports, _)) = &self.manager {
            let rebased = ports.rebase(&configs[0]).map_err(Unchanged::Wrong)?;
            let (changes, plugged) = rebased.open(&mut opening, workers)?;
            return Ok((changes, plugged, Some(rebased)));
        }
        let (change, plugged) = open_listeners(configs, &mut opening, workers)?;
        Ok((vec![change], plugged, None))
    }

    /// One worker measures the servers for all.
    fn send_probes(&self) {
        if let Some(handle) = self.handles.first() {
            handle.send(Command::Probe(self.stores.healths.plan(&self.configs)));
        }
    }

    /// Writes the counters to the log.
    fn report(&self) {
        let mut line = String::from("counters:");
        let workers = self.handles.iter().map(|h| &**h.counters());
        FlowCounters::sum(workers, |name, value| {
            // Writing to a string does not fail.
            let _ = write!(line, " {name}={value}");
        });
        log::info!("{line}");
        self.stores.healths.report(&self.configs, |line| log::info!("{line}"));
        self.stores.report_users(|line| log::info!("{line}"));
        if let Some((ports, _)) = &self.manager {
            ports.report(&self.stores, |line| log::info!("{line}"));
        }
    }

    /// Closes the listeners and lets open connections end; a second signal ends them at once.
    fn drain(mut self) -> Result<(), Failed> {
        log::info!("stopping: open connections get {} s to end", DRAIN_LIMIT.as_secs());
        notify(&[sd_notify::NotifyState::Stopping]);
        // No request is taken any more; a socket's file goes with it.
        self.manager = None;
        let by = Instant::now() + DRAIN_LIMIT;
        self.handles.iter().for_each(|h| h.send(Command::Drain(by)));
        let mut events = Events::new();
        while !self.threads.iter().all(JoinHandle::is_finished) {
            if self.poll.wait(&mut events, Some(Duration::from_millis(20))).is_err() {
                break;
            }
            // Connections may need the plugins until the last of them has ended.
            self.plugins.forward_output();
            self.plugins.take_ended().iter().for_each(|ended| log::warn!("{}", ended.line));
            if std::iter::from_fn(|| self.signals.next()).any(|signal| signal == Signal::Stop) {
                break;
            }
        }
        self.plugins.stop(Scope::All);
        if let Some(path) = &self.configs[0].pid_file {
            remove_pid(path);
        }
        self.listeners.clean_up();
        if let Some(reporter) = self.reporter {
            reporter.finish(&self.stores);
        }
        log::info!("stopped");
        Ok(())
    }
}

/// What a reload has opened.
type Opened = (Vec<Change>, plugin::Change, Option<Rebased>);

/// Why a configuration has not come into force.
enum Unchanged {
    /// It is wrong; these are the findings.
    Wrong(Vec<String>),
    /// It cannot be at present.
    Refused(String),
    /// The program has been told to end.
    Stopped,
    /// It cannot be, and neither can the one before it any more.
    Lost(Failed),
}

impl From<OpenError> for Unchanged {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::Stopped => Self::Stopped,
            OpenError::Lost(..) => Self::Lost(Failed::opening(&error)),
            OpenError::Listen(_) | OpenError::Refused(_) => Self::Refused(error.to_string()),
        }
    }
}

fn wanted(configs: &[Config], stores: &Stores) -> Vec<Wanted> {
    configs.iter().flat_map(|config| roles::wanted(config, stores)).collect()
}

/// Opens every listener with its plugins, without effect on workers so far.
fn open_all(
    configs: &[Config],
    opening: &mut Opening<'_>,
    workers: usize,
) -> Result<(Option<ManagedPorts>, Vec<Change>), Failed> {
    let config = &configs[0];
    if config.manager.is_some() {
        let mut ports = ManagedPorts::load(config).map_err(Failed::config)?;
        let changes = ports.open_all(opening, workers).map_err(|e| Failed::opening(&e))?;
        return Ok((Some(ports), changes));
    }
    let opened = open_listeners(configs, opening, workers).map_err(|e| Failed::opening(&e))?;
    let (change, plugged) = opened;
    opening.plugins.apply(plugged);
    Ok((None, vec![change]))
}

/// Opens the listeners of configurations with their plugins.
fn open_listeners(
    configs: &[Config],
    opening: &mut Opening<'_>,
    workers: usize,
) -> Result<(Change, plugin::Change), OpenError> {
    let stores = opening.stores;
    opening.open(Scope::All, configs, |listeners, held| {
        let options = ListenOptions { held: held.to_vec(), ..listen_options(&configs[0]) };
        listeners.prepare(&wanted(configs, stores), &options, workers)
    })
}

/// Opens the socket of a manager.
fn open_desk(
    config: &Config,
    mut ports: ManagedPorts,
    poll: &Poll,
    stores: &Stores,
) -> Result<(ManagedPorts, Desk), Failed> {
    let address = &config.manager.as_ref().expect("a manager has its settings").address;
    let open = || {
        let desk = Desk::new(manager::bind(address)?)?;
        poll.add(desk.requests(), REQUESTS, Interest::Level)?;
        poll.add(desk.confirmed(), CONFIRMED, Interest::Level)?;
        Ok::<_, io::Error>(desk)
    };
    let desk =
        open().map_err(|e| Failed::runtime(format!("cannot take requests at {address}: {e}")))?;
    // Or a client of a port could give orders through it, as if it were here.
    if let Some(addr) = desk.internet_addr() {
        stores.own().add(Transport::Datagram, addr);
    }
    // Now, by the user that we have become, so that a file that cannot be kept is known at once.
    ports.save();
    log::info!("manager at {address}");
    Ok((ports, desk))
}

/// The manager to report to.
fn report_to(configs: &[Config]) -> Option<&ManagerAddress> {
    configs.iter().find_map(|config| config.report_to.as_ref())
}

fn reporter(configs: &[Config], stores: &Stores) -> Result<Option<Reporter>, String> {
    let Some(address) = report_to(configs) else { return Ok(None) };
    let reporter = Reporter::new(address, stores);
    reporter.map(Some).map_err(|e| format!("cannot report to the manager at {address}: {e}"))
}

/// Whether a manager's own place would be another one.
fn is_moved(new: &Config, old: &Config) -> bool {
    let place = |config: &Config| {
        config.manager.as_ref().map(|m| (m.address.clone(), m.state_file.clone()))
    };
    place(new) != place(old)
}

/// Datagram sessions of one worker: as configured, as far as descriptors go.
fn sessions_max(config: &Config, descriptors: u64, workers: usize) -> usize {
    // A session has one socket, or two where it talks by both families. Half of the descriptors
    // stay with connections.
    let share = descriptors.saturating_sub(DESCRIPTORS_RESERVED) / 4;
    let share = usize::try_from(share).unwrap_or(usize::MAX) / workers.max(1);
    (config.udp.sessions_max as usize).min(share.max(16))
}

pub(crate) fn listen_options(config: &Config) -> ListenOptions {
    ListenOptions {
        stream: roles::incoming(config),
        datagram: roles::datagram_incoming(config),
        v6_only: config.sockets.ipv6_only,
        reuse_port: config.sockets.reuse_port,
        held: Vec::new(),
    }
}

fn worker_count(config: &Config) -> usize {
    match config.workers {
        Some(count) => count.get().into(),
        None => thread::available_parallelism().map_or(1, Into::into),
    }
}

fn descriptor_limit(config: &Config) -> Result<u64, Failed> {
    match config.nofile {
        None => Ok(process::raise_descriptor_limit()),
        Some(count) => {
            process::set_descriptor_limit(count.into()).map_err(|e| {
                Failed::runtime(format!("cannot set the limit of open files to {count}: {e}"))
            })?;
            Ok(process::descriptor_limit())
        }
    }
}

fn write_pid(path: &Path) -> Result<(), Failed> {
    std::fs::write(path, format!("{}\n", std::process::id()))
        .map_err(|e| Failed::runtime(format!("cannot write the pid file {}: {e}", path.display())))
}

/// Removes the pid file if it still is ours: a later start may have written another id there, and
/// a path such as /dev/null is not ours at all.
fn remove_pid(path: &Path) {
    let is_file = std::fs::symlink_metadata(path).is_ok_and(|about| about.is_file());
    let ours = || {
        std::fs::read_to_string(path)
            .is_ok_and(|text| text.trim() == std::process::id().to_string())
    };
    if is_file && ours() {
        // The user that we became may have no right to; the next start overwrites it.
        let _ = std::fs::remove_file(path);
    }
}

/// Tells systemd, where it listens.
fn notify(states: &[sd_notify::NotifyState<'_>]) {
    if let Err(e) = sd_notify::notify(states) {
        log::debug!("sd_notify: {e}");
    }
}

const fn level(level: LogLevel) -> log::LevelFilter {
    match level {
        LogLevel::Info => log::LevelFilter::Info,
        LogLevel::Debug => log::LevelFilter::Debug,
        LogLevel::Trace => log::LevelFilter::Trace,
    }
}
