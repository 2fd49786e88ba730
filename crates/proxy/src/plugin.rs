//! Plugins (SIP003): programs that carry the traffic between a client and a server in another
//! guise, started, watched and ended by us.
//!
//! * Each job of a configuration (`job`) has one process, which leads a group of its own. It finds
//!   its addresses and options in its environment; its command line has only what `plugin_args`
//!   says. What it says goes to our log, line by line.
//! * `start` starts plugins and waits until they listen, `running` has their processes, `find` finds
//!   their programs, `owner` tells who listens at a port.
//! * [`Plugins`] knows those in force. A reload is a [`Change`]: plugins that are new are started
//!   first, what stays is left alone, and the old ones end when the new configuration is in force. Only
//!   a server's plugin has to end before the next can have its port; it is started again when the
//!   change fails.
//! * A plugin that ends by itself is told by [`Plugins::take_ended`]; what follows is the caller's
//!   decision.
//!
//! Changes have a [`Scope`]: plugins of other ports stay as they are.
//!
//! A plugin runs as the configured user and is started before we become that user; that of a server
//! may listen at ports below 1024 all the same, as we do.

mod find;
mod job;
mod owner;
mod running;
mod start;

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use adit_config::{Config, Role};
use adit_engine::guard::{OwnListeners, Transport};
use adit_sys::child::Keeper;
use adit_sys::poll::Poll;

use crate::listeners::Scope;

pub(crate) use job::{Job, Plugged, Side};
pub(crate) use start::StartError;

use job::jobs;
use running::{Running, stop};
use start::{Held, Surroundings, hold_port, start_all};

/// The plugins of the process, ended and reaped when dropped.
pub(crate) struct Plugins {
    /// Ready when one of them has said something.
    poll: Poll,
    running: Vec<Running>,
    /// Ends them when we are killed; there is one once there is a plugin.
    keeper: Option<Keeper>,
    user: Option<Box<str>>,
    /// Is told where they take traffic.
    own: Arc<OwnListeners>,
}

/// A plugin that has ended by itself.
pub(crate) struct Ended {
    pub(crate) job: Job,
    /// How, as a line for the log.
    pub(crate) line: String,
}

/// What a configuration changes, begun and not in force.
pub(crate) struct Change {
    /// Whose plugins it is about.
    scope: Scope,
    /// Those in force that stay, by their groups.
    kept: Vec<u32>,
    started: Vec<Running>,
    /// Plugins of servers that are to be started once our listeners behind them are open.
    servers: Vec<(Job, Held)>,
    /// Ended already, because their ports are wanted.
    displaced: Vec<(Job, SocketAddr)>,
    /// Where all of them stand, also those that it is not about.
    places: Vec<(Job, SocketAddr)>,
}

impl Plugins {
    /// None yet. All will run as `user`, or else as we do; where they take traffic, no client of
    /// ours may send any: `own` is told.
    ///
    /// # Errors
    /// Out of descriptors.
    pub(crate) fn new(user: Option<Box<str>>, own: Arc<OwnListeners>) -> io::Result<Self> {
        Ok(Self { poll: Poll::new()?, running: Vec::new(), keeper: None, user, own })
    }

    /// Starts the plugins of clients that `configs` ask for and that do not run yet, takes ports for
    /// our listeners behind those of servers, and ends plugins in the way of new listeners. Only
    /// plugins in `scope` are looked at, and `configs` ask for no other.
    ///
    /// # Errors
    /// Nothing has changed then.
    pub(crate) fn prepare(
        &mut self,
        scope: Scope,
        configs: &[Config],
        stopped: &dyn Fn() -> bool,
    ) -> Result<Change, StartError> {
        let mut wanted: Vec<Job> = Vec::new();
        for job in configs.iter().flat_map(jobs) {
            if !wanted.iter().any(|known| known.is_same(&job)) {
                wanted.push(job);
            }
        }
        if self.keeper.is_none() && !wanted.is_empty() {
            let keeper = Keeper::start(self.user.as_deref());
            self.keeper = Some(
                keeper
                    .map_err(|e| StartError::Failed(format!("plugins cannot be started: {e}")))?,
            );
        }
        let (mut kept, mut clients, mut servers) = (vec![], vec![], vec![]);
        let others = self.running.iter().filter(|running| !scope.has(running.job.serves()));
        let mut places: Vec<_> = others.map(Running::place).collect();
        for job in wanted {
            if let Some(running) = self.running.iter().find(|running| running.job.is_same(&job)) {
                kept.push(running.group());
                places.push((job, running.local));
            } else if job.side == Side::Client {
                clients.push((job, None));
            } else {
                let held = hold_port(&job).map_err(|e| {
                    StartError::Failed(format!("{job}: no port is free on loopback: {e}"))
                })?;
                places.push((job.clone(), held.addr));
                servers.push((job, held));
            }
        }
        let started = start_all(clients, &self.surroundings(stopped))?;
        places.extend(started.iter().map(|running| (running.job.clone(), running.local)));
        let displaced = self.make_way(scope, configs, &kept);
        Ok(Change { scope, kept, started, servers, displaced, places })
    }

    /// Starts the plugins of servers, whose way to us is open by now.
    ///
    /// # Errors
    /// One is not ready; give the change up.
    pub(crate) fn start_servers(
        &self,
        change: &mut Change,
        stopped: &dyn Fn() -> bool,
    ) -> Result<(), StartError> {
        let jobs = std::mem::take(&mut change.servers).into_iter();
        let jobs = jobs.map(|(job, held)| (job, Some(held.addr))).collect();
        change.started.extend(start_all(jobs, &self.surroundings(stopped))?);
        Ok(())
    }

    /// Puts a change in force and ends the plugins that are no longer wanted.
    pub(crate) fn apply(&mut self, change: Change) {
        let running = std::mem::take(&mut self.running).into_iter();
        let (kept, removed): (Vec<_>, Vec<_>) = running.partition(|running| {
            !change.scope.has(running.job.serves()) || change.kept.contains(&running.group())
        });
        self.running = kept;
        self.running.extend(change.started);
        stop(removed, &self.poll);
    }

    /// Gives a change up: ends what it has started, and starts again what it has ended.
    ///
    /// # Errors
    /// What was in force cannot be started again.
    pub(crate) fn abandon(
        &mut self,
        change: Change,
        stopped: &dyn Fn() -> bool,
    ) -> Result<(), StartError> {
        stop(change.started, &self.poll);
        let again = change.displaced.into_iter().map(|(job, local)| (job, Some(local))).collect();
        let again = start_all(again, &self.surroundings(stopped))?;
        self.running.extend(again);
        Ok(())
    }

    /// Passes on to the log what plugins have said.
    pub(crate) fn forward_output(&mut self) {
        self.running.iter_mut().for_each(Running::forward_output);
    }

    /// Takes out the plugins that have ended by themselves.
    pub(crate) fn take_ended(&mut self) -> Vec<Ended> {
        let running = std::mem::take(&mut self.running).into_iter();
        let (ended, running): (Vec<_>, Vec<_>) = running.partition(Running::has_ended);
        self.running = running;
        let tell = |ended: Running| {
            let job = ended.job.clone();
            let line = format!("{job} has ended: {}", ended.bury());
            Ended { job, line }
        };
        ended.into_iter().map(tell).collect()
    }

    /// Where those stand that run.
    pub(crate) fn plugged(&self) -> Plugged {
        Plugged::new(self.running.iter().map(Running::place).collect())
    }

    /// Whether a plugin that does this runs.
    pub(crate) fn has(&self, job: &Job) -> bool {
        self.running.iter().any(|running| running.job.is_same(job))
    }

    /// Ends those in `scope`.
    pub(crate) fn stop(&mut self, scope: Scope) {
        let running = std::mem::take(&mut self.running).into_iter();
        let (meant, others): (Vec<_>, Vec<_>) =
            running.partition(|running| scope.has(running.job.serves()));
        self.running = others;
        stop(meant, &self.poll);
    }

    /// Ends plugins of servers that are not wanted any more and whose ports are.
    fn make_way(
        &mut self,
        scope: Scope,
        configs: &[Config],
        kept: &[u32],
    ) -> Vec<(Job, SocketAddr)> {
        let ports: Vec<u16> = configs
            .iter()
            .filter_map(|config| match &config.role {
                Role::Server { listeners } => Some(listeners),
                Role::Client { .. } => None,
            })
            .flatten()
            .map(|listener| listener.bind.port)
            .collect();
        let is_in_the_way = |running: &Running| {
            let serves = running.job.serves();
            serves.is_some_and(|port| ports.contains(&port))
                && scope.has(serves)
                && !kept.contains(&running.group())
        };
        let running = std::mem::take(&mut self.running).into_iter();
        let (displaced, running): (Vec<_>, Vec<_>) = running.partition(is_in_the_way);
        self.running = running;
        let places = displaced.iter().map(Running::place).collect();
        stop(displaced, &self.poll);
        places
    }

    fn surroundings<'a>(&'a self, stopped: &'a dyn Fn() -> bool) -> Surroundings<'a> {
        Surroundings {
            poll: &self.poll,
            keeper: self.keeper.as_ref(),
            user: self.user.as_deref(),
            own: &self.own,
            stopped,
        }
    }
}

/// Readable when a plugin has said something.
impl AsFd for Plugins {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.poll.as_fd()
    }
}

impl Drop for Plugins {
    fn drop(&mut self) {
        self.stop(Scope::All);
    }
}

impl Change {
    /// Where all plugins stand when the change is in force.
    pub(crate) fn plugged(&self) -> Plugged {
        Plugged::new(self.places.clone())
    }

    /// Ports on loopback that are held for our listeners.
    pub(crate) fn held(&self) -> Vec<SocketAddr> {
        self.servers.iter().map(|(_, held)| held.addr).collect()
    }

    /// Plugins that are to take the place of a listener, with what each carries.
    pub(crate) fn arriving(&self) -> impl Iterator<Item = (&Job, Transport)> {
        let with_job = |job| Job::transports(job).map(move |transport| (job, transport));
        self.servers.iter().flat_map(move |(job, _)| with_job(job))
    }
}

#[cfg(test)]
mod tests;
