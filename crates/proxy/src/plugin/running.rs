//! One plugin's process: what it says, whether it lives, and its end.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::ExitStatus;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use adit_engine::guard::{OwnListeners, Transport};
use adit_observe::{Throttle, log};
use adit_sys::child::{Child, End, Rights, Start, effective_user};
use adit_sys::net::{self, Io};
use adit_sys::poll::{Events, Interest, Poll};

use super::find::find;
use super::job::{Job, NOT_INHERITED, Side};
use super::start::Surroundings;
use crate::listeners::{ListenError, addresses};

/// How long plugins have to end after SIGTERM.
const GRACE: Duration = Duration::from_millis(1500);
/// How often it is looked whether something has happened that nobody tells.
pub(super) const INTERVAL: Duration = Duration::from_millis(10);
/// Longest line of a plugin that is passed on, in bytes; the rest of it is dropped.
const LINE_MAX: usize = 1024;
/// Lines that are remembered, to be told when it ends.
const LAST_LINES: usize = 3;
/// Lines of a plugin that may go to the log at once; then one a second. Some write one for each
/// connection, which is then one that strangers can cause.
const LINES_AT_ONCE: u32 = 200;
/// Bytes taken from a plugin at once; one that says more waits for its next turn.
const READ_MAX: usize = 16 << 10;

/// A plugin's process; killed with its group, and reaped, when dropped.
pub(crate) struct Running {
    pub(crate) job: Job,
    /// Its address on loopback, or ours, where it is the plugin of a server.
    pub(crate) local: SocketAddr,
    child: Child,
    /// What it says; `None` once it has closed that.
    output: Option<OwnedFd>,
    line: Vec<u8>,
    last: VecDeque<String>,
    throttle: Throttle,
    /// Kept for what its end does.
    _entrance: Entrance,
}

/// Where a plugin takes traffic, which no client may send there by way of us; taken back when
/// dropped.
struct Entrance {
    own: Arc<OwnListeners>,
    places: Vec<(Transport, SocketAddr)>,
}

impl Running {
    /// Starts a plugin that listens, or connects, at `local`.
    pub(crate) fn start(
        job: Job,
        local: SocketAddr,
        with: &Surroundings<'_>,
    ) -> Result<Self, String> {
        let cannot = |error: &dyn std::fmt::Display| format!("{job} cannot be started: {error}");
        let program = &job.plugin.program;
        let (path, current) = (std::env::var_os("PATH"), std::env::current_dir().ok());
        let path = find(program, path.as_deref(), current.as_deref(), effective_user())
            .map_err(|e| cannot(&e))?;
        let environment = job.environment(local);
        let start = Start {
            path: &path,
            name: program,
            args: &job.plugin.args,
            set: &environment.with_options(&job.plugin),
            unset: NOT_INHERITED,
            user: with.user,
            rights: match job.side {
                Side::Client => Rights::Plain,
                // It listens in place of us, who open our ports before we change users.
                Side::Server => Rights::LowPorts,
            },
        };
        let entrance = Entrance::of(&job, local, with.own).map_err(|e| cannot(&e))?;
        let keeper = with.keeper.ok_or_else(|| cannot(&"there is no keeper"))?;
        let (child, output) =
            Child::start(&start, keeper).map_err(|e| cannot(&why_not(&path, &e)))?;
        with.poll.add(&output, 0, Interest::Level).map_err(|e| cannot(&e))?;
        Ok(Self {
            job,
            local,
            child,
            output: Some(output),
            line: Vec::new(),
            last: VecDeque::new(),
            throttle: Throttle::new(LINES_AT_ONCE),
            _entrance: entrance,
        })
    }

    /// What it is for, and its address on loopback.
    pub(crate) fn place(&self) -> (Job, SocketAddr) {
        (self.job.clone(), self.local)
    }

    /// The number of its process group.
    pub(crate) fn group(&self) -> u32 {
        self.child.id()
    }

    /// Whether it has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.child.has_ended()
    }

    /// Whether it has ended and says that all went well.
    pub(crate) fn has_succeeded(&self) -> bool {
        self.child.has_succeeded()
    }

    /// Passes on to the log what it has said.
    pub(crate) fn forward_output(&mut self) {
        let mut bytes = [0; 4096];
        let mut left = READ_MAX;
        while let Some(output) = self.output.as_ref().filter(|_| left > 0) {
            match net::read(output, &mut bytes) {
                Io::Moved(n) => {
                    left = left.saturating_sub(n);
                    self.take(&bytes[..n]);
                }
                Io::Blocked => return,
                Io::End | Io::Failed(_) => {
                    self.end_line();
                    // Closing it ends its registration; at its end it would be ready for ever.
                    self.output = None;
                }
            }
        }
    }

    /// Puts an end to what has ended by itself; returns in what way, and its last words.
    pub(crate) fn bury(mut self) -> String {
        let status = match self.child.reap() {
            Ok(status) => status_text(status),
            Err(e) => e.to_string(),
        };
        self.forward_output();
        self.end_line();
        if self.last.is_empty() {
            return status;
        }
        let last: Vec<_> = self.last.iter().map(String::as_str).collect();
        format!("{status}; its last words: {}", last.join(" | "))
    }

    fn take(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            if byte == b'\n' {
                self.end_line();
            } else if self.line.len() < LINE_MAX {
                self.line.push(byte);
            }
        }
    }

    fn end_line(&mut self) {
        let text = String::from_utf8_lossy(&self.line);
        // A log is read on terminals.
        let text: String =
            text.trim().chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        self.line.clear();
        if text.is_empty() {
            return;
        }
        let name = self.job.plugin.name();
        match self.throttle.allow(Instant::now()) {
            None => {}
            Some(0) => log::info!("{name}: {text}"),
            Some(held) => log::info!("{name}: {text} (+{held} lines held back)"),
        }
        if self.last.len() == LAST_LINES {
            self.last.pop_front();
        }
        self.last.push_back(text);
    }
}

impl Entrance {
    fn of(job: &Job, local: SocketAddr, own: &Arc<OwnListeners>) -> Result<Self, ListenError> {
        let addrs = match job.side {
            Side::Client => vec![local],
            Side::Server => addresses(&job.remote)?,
        };
        let at = |transport| addrs.iter().map(move |addr| (transport, *addr));
        let places: Vec<_> = job.transports().flat_map(at).collect();
        places.iter().for_each(|(transport, addr)| own.add(*transport, *addr));
        Ok(Self { own: Arc::clone(own), places })
    }
}

impl Drop for Entrance {
    fn drop(&mut self) {
        self.places.iter().for_each(|(transport, addr)| self.own.remove(*transport, *addr));
    }
}

/// Ends plugins side by side: they are asked to, and killed if they have not within the grace.
pub(crate) fn stop(mut plugins: Vec<Running>, poll: &Poll) {
    if plugins.is_empty() {
        return;
    }
    plugins.iter().for_each(|plugin| plugin.child.end_group(End::Ask));
    let by = Instant::now() + GRACE;
    loop {
        plugins.iter_mut().for_each(Running::forward_output);
        if plugins.iter().all(Running::has_ended) {
            break;
        }
        if Instant::now() >= by {
            for plugin in plugins.iter().filter(|plugin| !plugin.has_ended()) {
                log::warn!("{} has not ended within {GRACE:?}; killed", plugin.job);
            }
            break;
        }
        pause(poll);
    }
    for plugin in plugins {
        let job = plugin.job.clone();
        log::debug!("{job} stopped: {}", plugin.bury());
    }
}

/// Waits until a plugin has said something, or for a moment: that one has ended, or listens, has
/// no event that reaches here.
pub(super) fn pause(poll: &Poll) {
    if poll.wait(&mut Events::new(), Some(INTERVAL)).is_err() {
        thread::sleep(INTERVAL);
    }
}

/// Why a file was not run, and what to do.
fn why_not(path: &Path, error: &io::Error) -> String {
    let what = match error.kind() {
        io::ErrorKind::NotFound if path.exists() => {
            "the interpreter that it names, or its loader, is not there; install that"
        }
        io::ErrorKind::NotFound => "write the path of a program that is there",
        io::ErrorKind::PermissionDenied => {
            "it has to be a file that the user it runs as may execute (chmod +x)"
        }
        _ => return error.to_string(),
    };
    format!("{error}; {what}")
}

fn status_text(status: ExitStatus) -> String {
    // "exit status: 1", "signal: 9 (SIGKILL)".
    status.to_string()
}
