//! The life of the process.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt::Write as _;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use adit_config::{Config, Diagnostic, LogLevel};
use adit_engine::crew::Crew;
use adit_engine::guard::Transport;
use adit_engine::worker::{Capacity, Command, Handle, Worker};
use adit_observe::{FlowCounters, init_log, log};
use adit_sys::poll::{Events, Interest, Poll};
use adit_sys::process::{self, Daemon};
use adit_sys::signal::{Signal, Signals};
use adit_sys::{datagram, net};

use crate::listeners::{self, Bind, ListenError, ListenOptions, Listeners, Wanted};
use crate::names::NameFiles;
use crate::plugin::{self, Plugins, StartError};
use crate::redir;
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

    /// Plugins are not ready.
    fn plugins(error: StartError) -> Self {
        match error {
            StartError::Stopped => {
                Self { code: EXIT_OK, text: "stopped while plugins were starting".to_owned() }
            }
            StartError::Failed(text) => Self::runtime(text),
        }
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
}

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
        poll.add(&signals, 0, Interest::Level)
            .map_err(|e| Failed::runtime(format!("epoll: {e}")))?;
        let signals = SignalQueue { signals, put_off: RefCell::default() };
        let mut plugins = Plugins::new(config.user.clone())
            .map_err(|e| Failed::runtime(format!("epoll: {e}")))?;
        poll.add(&plugins, 0, Interest::Level)
            .map_err(|e| Failed::runtime(format!("epoll: {e}")))?;
        let descriptors = descriptor_limit(config)?;
        let worker_count = worker_count(config);

        let sessions = sessions_max(config, descriptors, worker_count);
        let stores = Stores::new(sessions * worker_count);
        let crew = Crew::new(u16::try_from(worker_count).unwrap_or(u16::MAX))
            .map_err(|e| Failed::runtime(format!("eventfd: {e}")))?;
        let mut listeners = Listeners::default();
        let mut opening = Opening {
            stores: &stores,
            listeners: &listeners,
            plugins: &mut plugins,
            signals: &signals,
        };
        let (change, plugged) = opening.open(&configs, worker_count).map_err(Unchanged::failed)?;
        plugins.apply(plugged);
        if let Some(path) = &config.pid_file {
            write_pid(path)?;
        }
        if let Some(user) = &config.user {
            let redirects = configs.iter().any(redir::redirects);
            redir::become_user(user, redirects)
                .map_err(|e| Failed::runtime(format!("cannot become user {user}: {e}")))?;
        }
        let names = NameFiles::read(config.nameservers.as_deref());
        let mut this = Self {
            configs,
            subscriptions,
            stores,
            crew,
            listeners: Listeners::default(),
            names,
            handles: Vec::new(),
            threads: Vec::new(),
            signals,
            plugins,
            poll,
        };
        for number in 0..worker_count {
            this.start_worker(number, descriptors, worker_count)?;
        }
        for line in &change.lines {
            log::info!("{line}");
        }
        listeners.apply(change, &this.handles);
        this.listeners = listeners;
        this.send_probes();
        log::info!(
            "{} {}: {} worker{}, {}, up to {} connections",
            this.configs[0].invoked.name,
            env!("CARGO_PKG_VERSION"),
            worker_count,
            if worker_count == 1 { "" } else { "s" },
            adit_crypto::acceleration(),
            descriptors / 2,
        );
        this.log_kernel_options();
        this.configs.iter().for_each(redir::log_mark);
        if let Some(daemon) = daemon {
            daemon.ready().map_err(|e| Failed::runtime(format!("cannot detach: {e}")))?;
        }
        notify(&[sd_notify::NotifyState::Ready]);
        if let Err(e) = process::release_start_code() {
            log::debug!("start-up code stays resident: {e}");
        }
        Ok(this)
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
            if let Err(e) = self.poll.wait(&mut events, Some(self.timeout())) {
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
            if !ended.is_empty() {
                ended.iter().for_each(|line| log::error!("{line}"));
                return self
                    .drain()
                    .and(Err(Failed::runtime("stopped, because a plugin has ended")));
            }
            if self.threads.iter().any(JoinHandle::is_finished) {
                return Err(Failed::runtime("a worker has ended by itself"));
            }
            if let Some(arrival) = self.subscriptions.step(&self.poll) {
                self.on_answer(arrival)?;
            }
            if self.names.refresh() {
                log::info!("resolver files have changed and were read again");
                self.send_names();
            }
        }
    }

    fn timeout(&self) -> Duration {
        let now = Instant::now();
        let due = self.subscriptions.due(now).map(|due| due.saturating_duration_since(now));
        due.map_or(FILES_INTERVAL, |due| due.min(FILES_INTERVAL))
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
            Err(why) => self.subscriptions.settle(at, None, &why.failed().text),
        }
        Ok(())
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
            }
            Err(Unchanged::Refused(failed)) => {
                log::error!("{}", failed.text);
                log::error!("reload failed; the old configuration stays in force");
            }
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
        let config = &configs[0];
        let mut opening = Opening {
            stores: &self.stores,
            listeners: &self.listeners,
            plugins: &mut self.plugins,
            signals: &self.signals,
        };
        let (change, plugged) = opening.open(&configs, self.handles.len())?;
        for line in &change.lines {
            log::info!("{line}");
        }
        if worker_count(config) != self.handles.len() {
            log::warn!("the number of workers changes only with a restart");
        }
        self.listeners.apply(change, &self.handles);
        self.plugins.apply(plugged);
        self.stores.forget_users();
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
    }

    /// Closes the listeners and lets open connections end; a second signal ends them at once.
    fn drain(mut self) -> Result<(), Failed> {
        log::info!("stopping: open connections get {} s to end", DRAIN_LIMIT.as_secs());
        notify(&[sd_notify::NotifyState::Stopping]);
        let by = Instant::now() + DRAIN_LIMIT;
        self.handles.iter().for_each(|h| h.send(Command::Drain(by)));
        let mut events = Events::new();
        while !self.threads.iter().all(JoinHandle::is_finished) {
            if self.poll.wait(&mut events, Some(Duration::from_millis(20))).is_err() {
                break;
            }
            // Connections may need the plugins until the last of them has ended.
            self.plugins.forward_output();
            self.plugins.take_ended().iter().for_each(|line| log::warn!("{line}"));
            if std::iter::from_fn(|| self.signals.next()).any(|signal| signal == Signal::Stop) {
                break;
            }
        }
        self.plugins.stop();
        if let Some(path) = &self.configs[0].pid_file {
            remove_pid(path);
        }
        self.listeners.clean_up();
        log::info!("stopped");
        Ok(())
    }
}

/// Why a configuration has not come into force.
enum Unchanged {
    /// It is wrong; these are the findings.
    Wrong(Vec<String>),
    /// It cannot be at present.
    Refused(Failed),
    /// It cannot be, and neither can the one before it any more.
    Lost(Failed),
}

impl Unchanged {
    fn failed(self) -> Failed {
        match self {
            Self::Wrong(lines) => Failed::runtime(lines.join("; ")),
            Self::Refused(failed) | Self::Lost(failed) => failed,
        }
    }
}

/// What opening listeners and starting plugins works with.
struct Opening<'a> {
    stores: &'a Stores,
    listeners: &'a Listeners,
    plugins: &'a mut Plugins,
    signals: &'a SignalQueue,
}

impl Opening<'_> {
    /// Opens what configurations ask for, beside what is open; an error leaves everything as it
    /// was, if it can.
    fn open(
        &mut self,
        configs: &[Config],
        workers: usize,
    ) -> Result<(listeners::Change, plugin::Change), Unchanged> {
        let stopped = || self.signals.has_stop();
        let before = self.stores.plugged();
        let plugged = self.plugins.prepare(configs, &stopped);
        let plugged = plugged.map_err(|e| Unchanged::Refused(Failed::plugins(e)))?;
        self.open_with(configs, workers, plugged).map_err(|(failed, plugged)| {
            self.stores.plug(before);
            match self.plugins.abandon(plugged, &stopped) {
                Ok(()) => Unchanged::Refused(failed),
                Err(e) => {
                    log::error!("{}", failed.text);
                    Unchanged::Lost(Failed::plugins(e))
                }
            }
        })
    }

    fn open_with(
        &self,
        configs: &[Config],
        workers: usize,
        mut plugged: plugin::Change,
    ) -> Result<(listeners::Change, plugin::Change), (Failed, plugin::Change)> {
        let opened = || -> Result<listeners::Change, Failed> {
            let runtime = |e: ListenError| Failed::runtime(e.to_string());
            for (job, transport) in plugged.arriving() {
                let addrs = listeners::addresses(&job.remote).map_err(runtime)?;
                if addrs.iter().any(|addr| self.listeners.takes(*addr, transport)) {
                    return Err(Failed::runtime(format!(
                        "{job}: the port is served without a plugin at present; restart the \
                         program to put a plugin in front of it"
                    )));
                }
            }
            self.stores.plug(Arc::new(plugged.plugged()));
            let wanted = wanted(configs, self.stores).map_err(runtime)?;
            let options = ListenOptions { held: plugged.held(), ..listen_options(&configs[0]) };
            self.listeners.prepare(&wanted, &options, workers).map_err(runtime)
        };
        match opened() {
            Err(failed) => Err((failed, plugged)),
            Ok(change) => {
                let stopped = || self.signals.has_stop();
                match self.plugins.start_servers(&mut plugged, &stopped) {
                    Ok(()) => Ok((change, plugged)),
                    Err(error) => Err((Failed::plugins(error), plugged)),
                }
            }
        }
    }
}

fn wanted(configs: &[Config], stores: &Stores) -> Result<Vec<Wanted>, ListenError> {
    let mut own = Vec::new();
    for (bind, transport) in configs.iter().flat_map(roles::binds) {
        if let Bind::Internet(endpoint) = bind {
            let addrs = listeners::addresses(&endpoint)?.into_iter();
            own.extend(addrs.map(|addr| (addr, transport)));
        }
    }
    own.extend(stores.plugged().addresses());
    Ok(configs.iter().flat_map(|config| roles::wanted(config, stores, &own)).collect())
}

/// Datagram sessions of one worker: as configured, as far as descriptors go.
fn sessions_max(config: &Config, descriptors: u64, workers: usize) -> usize {
    // A session has one socket, or two where it talks by both families. Half of the descriptors
    // stay with connections.
    let share = descriptors.saturating_sub(DESCRIPTORS_RESERVED) / 4;
    let share = usize::try_from(share).unwrap_or(usize::MAX) / workers.max(1);
    (config.udp.sessions_max as usize).min(share.max(16))
}

fn listen_options(config: &Config) -> ListenOptions {
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
