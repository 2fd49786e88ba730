//! Subscriptions at run time: fetched at the start, after an interval, and on SIGHUP.
//!
//! Everything here runs on the control plane and waits for nothing but the first answer of a client
//! that has no server at all. An answer that cannot be fetched or used changes nothing: the servers
//! in use stay, and the next attempt comes sooner than the interval says. Answers are read by
//! `adit_config`, and put in force by the supervisor as a reload is.

mod fetch;

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use adit_config::{About, Config, Online, RemoteServer, Role, Subscribed};
use adit_crypto::Rng;
use adit_observe::log;
use adit_sys::poll::{Interest, Poll};
use adit_sys::private;
use zeroize::Zeroizing;

use fetch::Fetch;

/// Attempts of a first fetch that nothing goes on without, and the pauses between them.
const FIRST_PAUSES: [Duration; 3] =
    [Duration::ZERO, Duration::from_secs(1), Duration::from_secs(4)];
/// No further first attempt is made after this: whoever starts us waits.
const FIRST_LIMIT: Duration = Duration::from_secs(40);
/// The pause after the first failure in a row; doubled with each up to the interval.
const RETRY: Duration = Duration::from_secs(60);
/// Bytes of a cached answer at most.
const CACHE_MAX: u64 = 1 << 20;
/// What the descriptor of a fetch is watched as.
const TOKEN: u64 = 0x5b5c;

/// The subscriptions of a process, one a configuration at most.
pub(crate) struct Subscriptions {
    /// In the order of the configurations.
    all: Vec<Option<Subscription>>,
    rng: Option<Rng>,
}

struct Subscription {
    online: Online,
    /// The last good answer.
    answer: Option<Zeroizing<Vec<u8>>>,
    fetch: Option<Fetch>,
    due: Instant,
    /// In a row.
    failures: u32,
    /// What was left out of the last good answer, which is told once.
    left_out: Vec<String>,
}

/// An answer that has come.
pub(crate) struct Arrival {
    /// Whose it is.
    pub(crate) config: usize,
    pub(crate) answer: Zeroizing<Vec<u8>>,
}

impl Subscriptions {
    /// Gives each configuration with a subscription its servers: those of the cache, or, where there
    /// are none at all, those of a first fetch.
    ///
    /// # Errors
    /// There is no server to begin with.
    pub(crate) fn start(configs: &mut [Config]) -> Result<Self, String> {
        let mut all = Vec::new();
        for config in configs {
            let Some(online) = config.online.clone() else {
                all.push(None);
                continue;
            };
            let mut this = Subscription::new(online);
            if let Some(cached) = this.cached(config) {
                *config = cached;
            } else if servers(config).is_empty() {
                *config = this.first(config)?;
            }
            all.push(Some(this));
        }
        Ok(Self { all, rng: Rng::new().ok() })
    }

    /// When [`Subscriptions::step`] has something to do, if nothing comes before.
    pub(crate) fn due(&self, now: Instant) -> Option<Instant> {
        let due = |this: &Subscription| match &this.fetch {
            Some(fetch) => fetch.due(now),
            None => this.due,
        };
        self.all.iter().flatten().map(due).min()
    }

    /// Starts fetches that are due; returns an answer that has come.
    pub(crate) fn step(&mut self, poll: &Poll) -> Option<Arrival> {
        let now = Instant::now();
        for config in 0..self.all.len() {
            let jitter = self.rng.as_mut().map_or(0, |rng| rng.below(200));
            let Some(this) = &mut self.all[config] else { continue };
            if let Some(fetch) = &mut this.fetch {
                let Some(outcome) = fetch.step(now) else { continue };
                this.fetch = None;
                match outcome {
                    Ok(answer) => return Some(Arrival { config, answer }),
                    Err(reason) => this.failed(&reason, now, jitter),
                }
            } else if this.due <= now {
                // A user was changed to before anything came here.
                match Fetch::start(&this.online.url, None, now) {
                    Ok(fetch) => {
                        // Without it the answer is found when the fetch should be over.
                        if let Err(e) = watch(poll, &fetch) {
                            log::debug!("epoll: {e}");
                        }
                        this.fetch = Some(fetch);
                    }
                    Err(reason) => this.failed(&reason, now, jitter),
                }
            }
        }
        None
    }

    /// Puts into words what an answer says and changes; `before` are the servers until now.
    pub(crate) fn report(&mut self, config: usize, read: &Subscribed, before: &[RemoteServer]) {
        if let Some(Some(this)) = self.all.get_mut(config) {
            this.report(read, Some(before));
        }
    }

    /// The answer is in force, or could not be.
    pub(crate) fn settle(&mut self, config: usize, answer: Option<Zeroizing<Vec<u8>>>, why: &str) {
        let now = Instant::now();
        let jitter = self.rng.as_mut().map_or(0, |rng| rng.below(200));
        let Some(Some(this)) = self.all.get_mut(config) else { return };
        match answer {
            Some(answer) => this.succeeded(answer, now, jitter),
            None => this.failed(why, now, jitter),
        }
    }

    /// Adds the servers of the last answers to configurations that were just read.
    ///
    /// # Errors
    /// One of them has no server.
    pub(crate) fn apply(&self, configs: &mut [Config]) -> Result<(), String> {
        for (at, config) in configs.iter_mut().enumerate() {
            if config.online.is_none() {
                continue;
            }
            let known = self.all.get(at).and_then(Option::as_ref);
            if let Some(answer) = known.and_then(|this| this.answer.as_ref()) {
                *config = config.subscribed(answer)?.config;
            } else if servers(config).is_empty() {
                return Err("the subscription is new and nothing has come of it yet; restart, or \
                            leave a server in the file for now"
                    .to_owned());
            }
        }
        Ok(())
    }

    /// Goes by new configurations, and fetches at once.
    pub(crate) fn reload(&mut self, configs: &[Config]) {
        let mut old = std::mem::take(&mut self.all).into_iter();
        for config in configs {
            let old = old.next().flatten();
            self.all.push(config.online.clone().map(|online| {
                let mut this = Subscription::new(online);
                if let Some(old) = old {
                    this.answer = old.answer;
                    // One under way may have begun before what the user knows to be new.
                    drop(old.fetch);
                }
                this
            }));
        }
    }
}

impl Subscription {
    fn new(online: Online) -> Self {
        Self {
            online,
            answer: None,
            fetch: None,
            due: Instant::now(),
            failures: 0,
            left_out: Vec::new(),
        }
    }

    /// The configuration with the servers of the cache.
    fn cached(&mut self, config: &Config) -> Option<Config> {
        let path = self.online.cache_file.clone()?;
        let answer = match read_cache(&path) {
            Ok(answer) => answer?,
            Err(e) => {
                log::warn!("{}: {e}; going on without it", path.display());
                return None;
            }
        };
        match config.subscribed(&answer) {
            Ok(Subscribed { config, about, .. }) => {
                log::info!("{}: {} servers of an earlier answer", path.display(), about.servers);
                self.answer = Some(answer);
                Some(config)
            }
            Err(e) => {
                log::warn!("{}: {e}; going on without it", path.display());
                None
            }
        }
    }

    /// Fetches, waiting for the answer: there is nothing to run on without it.
    fn first(&mut self, config: &Config) -> Result<Config, String> {
        let start = Instant::now();
        let mut reason = String::new();
        for pause in FIRST_PAUSES {
            if !reason.is_empty() {
                if start.elapsed() > FIRST_LIMIT {
                    break;
                }
                log::warn!("subscription: {reason}; trying again");
                thread::sleep(pause);
            }
            let answer = match wait(Fetch::start(
                &self.online.url,
                config.user.as_deref(),
                Instant::now(),
            )?)? {
                Ok(answer) => answer,
                Err(e) => {
                    reason = e;
                    continue;
                }
            };
            let read = config.subscribed(&answer).map_err(|e| no_server(&e))?;
            self.report(&read, None);
            self.succeeded(answer, Instant::now(), 100);
            return Ok(read.config);
        }
        Err(no_server(&reason))
    }

    fn report(&mut self, read: &Subscribed, before: Option<&[RemoteServer]>) {
        if self.left_out != read.warnings {
            read.warnings.iter().for_each(|line| log::warn!("{line}"));
            self.left_out.clone_from(&read.warnings);
        }
        let About { servers: count, left_out, version, bytes_used, bytes_remaining } = read.about;
        let mut line = format!("subscription: {count} server{}", if count == 1 { "" } else { "s" });
        if left_out > 0 {
            line.push_str(&format!(", {left_out} left out"));
        }
        if let Some(before) = before {
            line.push_str(&difference(before, servers(&read.config)));
        }
        if let Some(version) = version {
            line.push_str(&format!("; version {version}"));
        }
        if let Some(used) = bytes_used {
            line.push_str(&format!("; {} used", bytes(used)));
        }
        if let (Some(left), Some(_)) = (bytes_remaining, bytes_used) {
            line.push_str(&format!(", {} left", bytes(left)));
        }
        log::info!("{line}");
    }

    fn succeeded(&mut self, answer: Zeroizing<Vec<u8>>, now: Instant, jitter: u32) {
        self.failures = 0;
        self.due = now + jittered(self.online.update_interval, jitter);
        if self.answer.as_ref() == Some(&answer) {
            return;
        }
        if let Some(path) = &self.online.cache_file
            && let Err(e) = private::replace(path, &answer)
        {
            log::warn!("{}: {e}; the answer is not kept", path.display());
        }
        self.answer = Some(answer);
    }

    fn failed(&mut self, reason: &str, now: Instant, jitter: u32) {
        let interval = self.online.update_interval;
        let pause = RETRY.saturating_mul(1 << self.failures.min(16)).min(interval);
        self.failures += 1;
        self.due = now + jittered(pause, jitter);
        log::warn!(
            "subscription not updated: {reason}; the servers stay as they are, next attempt in {} s",
            pause.as_secs()
        );
    }
}

/// The servers of a client.
pub(crate) fn servers(config: &Config) -> &[RemoteServer] {
    match &config.role {
        Role::Client { servers, .. } => servers,
        Role::Server { .. } => &[],
    }
}

/// How two sets of servers differ, by their identities.
fn difference(before: &[RemoteServer], after: &[RemoteServer]) -> String {
    let same = |a: &RemoteServer, all: &[RemoteServer]| {
        let identity = a.identity();
        all.iter().find(|b| b.identity() == identity).map(|b| a == b)
    };
    let new = after.iter().filter(|s| same(s, before).is_none()).count();
    let changed = after.iter().filter(|s| same(s, before) == Some(false)).count();
    let gone = before.iter().filter(|s| same(s, after).is_none()).count();
    if (new, changed, gone) == (0, 0, 0) {
        return ", nothing new".to_owned();
    }
    format!(" ({new} new, {changed} changed, {gone} gone)")
}

/// A number of bytes, for people.
fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut tenths = u128::from(count) * 10;
    let mut unit = "bytes";
    for next in UNITS {
        if tenths < 10 * 1024 {
            break;
        }
        (tenths, unit) = (tenths / 1024, next);
    }
    if unit == "bytes" {
        format!("{count} bytes")
    } else {
        format!("{}.{} {unit}", tenths / 10, tenths % 10)
    }
}

/// A tenth less to a tenth more; `jitter` is below 200.
fn jittered(time: Duration, jitter: u32) -> Duration {
    time.saturating_mul(900 + jitter) / 1000
}

fn no_server(reason: &str) -> String {
    format!("no server to begin with: subscription: {reason}")
}

/// Waits for a fetch to end.
fn wait(mut fetch: Fetch) -> Result<fetch::Outcome, String> {
    let broken = |e: io::Error| format!("epoll: {e}");
    let poll = Poll::new().map_err(broken)?;
    watch(&poll, &fetch).map_err(broken)?;
    let mut events = adit_sys::poll::Events::new();
    loop {
        let now = Instant::now();
        if let Some(outcome) = fetch.step(now) {
            return Ok(outcome);
        }
        let left = fetch.due(now).saturating_duration_since(now);
        poll.wait(&mut events, Some(left)).map_err(broken)?;
    }
}

fn watch(poll: &Poll, fetch: &Fetch) -> io::Result<()> {
    fetch.output().map_or(Ok(()), |output| poll.add(output, TOKEN, Interest::Level))
}

fn read_cache(path: &Path) -> io::Result<Option<Zeroizing<Vec<u8>>>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(e),
    };
    let mut answer = Zeroizing::new(Vec::with_capacity(CACHE_MAX as usize + 1));
    file.take(CACHE_MAX + 1).read_to_end(&mut answer)?;
    if answer.len() as u64 > CACHE_MAX {
        return Err(io::Error::other("is longer than 1 MiB"));
    }
    Ok(Some(answer))
}

#[cfg(test)]
mod tests;
