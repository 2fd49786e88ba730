//! How the servers of a client do, and which of them the next connection gets.
//!
//! Flows and datagram sessions tell what they met, [`probe`](crate::probe) measures, and a pick
//! reads. All of it is atomics in an [`Arc`](std::sync::Arc) that roles, workers and reloads
//! share: a pick takes no lock, allocates nothing, and touches the state of one server as long as
//! that one is well.
//!
//! * **Latency** is the smoothed time that a TCP connect takes. The time to the first byte of an
//!   answer is not used: it is mostly that of the target.
//! * **A connect that fails** marks its server at once. It is left alone for 2 s, doubled with each
//!   failure in a row up to a minute; a connect that works, a probe's for one, clears the mark.
//! * **A server that takes connections and ends them, or stays silent, without one byte of an
//!   answer** may be well: targets fail too. Only the fourth in a row, each for another target and
//!   none answered in between, marks it; only an answer clears that mark. When it is over, one
//!   connection is let through as a trial.
//! * **Datagrams** have no connects. A server is marked when four sessions got nothing, over
//!   3 s at least, and nobody else got anything either. Where TCP to the same server fails, its
//!   datagrams count as lost too, unless some were answered in the last 10 s.
//! * **The choice** stays with a server until it is marked, or another one is better by a quarter
//!   and by 5 ms: a client that changes servers without need changes its address for the world.
//!
//! Times are milliseconds since the value was made. Stores race and may lose to each other: a
//! count may be off by one, and the next event mends it.

use std::fmt;
use std::ops::Deref;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::time::{Duration, Instant};

use crate::guard::Transport;
use crate::role::Upstream;

/// How long a server is left alone after its first failure; doubled with each in a row.
const PAUSE_FIRST_MS: u64 = 2_000;
/// The longest that a server is left alone.
const PAUSE_MAX_MS: u64 = 60_000;
/// Connections, or datagram sessions, without an answer in a row that mark a server.
const UNANSWERED_MAX: u32 = 4;
/// Datagram sessions must have been without an answer for so long.
const SILENCE_MS: u64 = 3_000;
/// Answers to datagrams speak for a server, whatever its TCP does, for so long.
const ANSWER_SPEAKS_MS: u64 = 10_000;
/// How often it is asked whether another server has become better.
const REVIEW_MS: u64 = 5_000;
/// A better server takes over when it is better by this, and by a quarter.
const LEAD_US: u64 = 5_000;
/// A server whose latency is not known yet competes with this.
const LATENCY_UNKNOWN_US: u32 = 200_000;
/// With others to choose from, a connect may take four times the usual, and a second more for a
/// lost segment. The least and the most of that; the latter too when nothing is usual yet.
const CONNECT_LEAST: Duration = Duration::from_secs(2);
const CONNECT_MOST: Duration = Duration::from_secs(3);

/// No server.
const NOBODY: u32 = u32::MAX;

/// A reason to leave a server alone for a while.
#[derive(Default)]
struct Mark {
    /// Until when; 0 when it is not set.
    until_ms: AtomicU64,
    /// How often in a row.
    strikes: AtomicU32,
}

impl Mark {
    /// Sets it for a time that grows with each time in a row; false when it was set already.
    fn set(&self, now_ms: u64) -> bool {
        let until = self.until_ms.load(Relaxed);
        // Connections that failed together are one failure.
        if until > now_ms {
            return false;
        }
        let strikes = self.strikes.load(Relaxed).min(16);
        let pause = (PAUSE_FIRST_MS << strikes).min(PAUSE_MAX_MS);
        let set = self.until_ms.compare_exchange(until, now_ms + pause, Relaxed, Relaxed).is_ok();
        if set {
            self.strikes.store(strikes + 1, Relaxed);
        }
        set
    }

    /// Takes the one trial that there is after the pause: the next one comes after another.
    fn try_again(&self, now_ms: u64) -> bool {
        self.until_ms.load(Relaxed) <= now_ms && self.set(now_ms)
    }

    /// Takes it back; says whether it was set.
    fn clear(&self) -> bool {
        if self.until_ms.load(Relaxed) == 0 {
            return false;
        }
        self.strikes.store(0, Relaxed);
        self.until_ms.swap(0, Relaxed) != 0
    }

    fn is_set(&self) -> bool {
        self.until_ms.load(Relaxed) != 0
    }

    fn has_passed(&self, now_ms: u64) -> bool {
        self.until_ms.load(Relaxed) <= now_ms
    }
}

/// What one transport knows of a server.
#[derive(Default)]
struct Line {
    /// No answers.
    silent: Mark,
    /// Smoothed latency, µs; 0 when it is not known.
    latency_us: AtomicU32,
    /// Connections or sessions without an answer since the last one that had some.
    unanswered: AtomicU32,
    /// When the first of them was.
    unanswered_since_ms: AtomicU64,
    /// Where the last of them went, so that one target that is down counts once.
    last_target: AtomicU32,
    /// When something was answered, and when the server was picked.
    answered_ms: AtomicU64,
    picked_ms: AtomicU64,
    /// For the report.
    failures: AtomicU64,
}

/// How a server does.
pub struct Health {
    name: Box<str>,
    epoch: Instant,
    /// Connects fail.
    unreachable: Mark,
    tcp: Line,
    udp: Line,
}

/// What changed by an event; for one line in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Change {
    /// Nothing that anybody needs to know.
    None,
    /// The server is left alone from here on.
    Down,
    /// The server is used again.
    Up,
}

impl Default for Health {
    fn default() -> Self {
        Self::new("")
    }
}

impl Health {
    /// Of a server nothing is known about. `name` is for the log.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            epoch: Instant::now(),
            unreachable: Mark::default(),
            tcp: Line::default(),
            udp: Line::default(),
        }
    }

    /// What the server is called in the log.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A connect worked, after this time where it is known.
    pub fn connected(&self, latency: Option<Duration>) -> Change {
        if let Some(latency) = latency {
            smooth(&self.tcp.latency_us, latency);
        }
        if self.unreachable.clear() { Change::Up } else { Change::None }
    }

    /// A connect failed.
    pub fn unreachable(&self, now: Instant) -> Change {
        self.tcp.failures.fetch_add(1, Relaxed);
        let first = !self.unreachable.is_set();
        if self.unreachable.set(self.ms(now)) && first { Change::Down } else { Change::None }
    }

    /// A connection got its first bytes.
    pub fn answered(&self, now: Instant) -> Change {
        self.tcp.answered(self.ms(now))
    }

    /// A connection for `target` (any number that tells targets apart) ended, or waited for long,
    /// without a byte of an answer.
    pub fn unanswered(&self, now: Instant, target: u32) -> Change {
        // 0 is what the field begins with.
        let target = target.max(1);
        self.tcp.failures.fetch_add(1, Relaxed);
        if self.tcp.last_target.swap(target, Relaxed) == target {
            return Change::None;
        }
        self.tcp.unanswered(self.ms(now), 0)
    }

    /// A datagram session began, or one without an answer goes on without one.
    pub fn session_waits(&self, now: Instant) -> Change {
        self.udp.unanswered(self.ms(now), SILENCE_MS)
    }

    /// A session got a datagram; the first one after this time, where it is the first.
    pub fn session_answered(&self, now: Instant, latency: Option<Duration>) -> Change {
        if let Some(latency) = latency {
            smooth(&self.udp.latency_us, latency);
        }
        self.udp.answered(self.ms(now))
    }

    /// The server's host told that nobody takes its datagrams.
    pub fn session_refused(&self, now: Instant) -> Change {
        self.udp.failures.fetch_add(1, Relaxed);
        let first = !self.udp.silent.is_set();
        if self.udp.silent.set(self.ms(now)) && first { Change::Down } else { Change::None }
    }

    /// Whether new datagrams should go elsewhere.
    pub(crate) fn is_down_for_datagrams(&self, now: Instant) -> bool {
        self.standing(Transport::Datagram, self.ms(now)) != Standing::Well
    }

    /// When a probe should find out whether the server can be reached again; `None` when nothing
    /// is wrong with it.
    pub(crate) fn probe_at(&self) -> Option<Instant> {
        let until = self.unreachable.until_ms.load(Relaxed);
        (until != 0).then(|| self.epoch + Duration::from_millis(until))
    }

    /// When the server was last picked.
    pub(crate) fn picked_at(&self) -> Instant {
        let ms = self.tcp.picked_ms.load(Relaxed).max(self.udp.picked_ms.load(Relaxed));
        self.epoch + Duration::from_millis(ms)
    }

    /// The longest that a connect may take where other servers wait for their chance.
    pub(crate) fn patience(&self) -> Duration {
        let latency = Duration::from_micros(self.tcp.latency_us.load(Relaxed).into());
        if latency.is_zero() {
            return CONNECT_MOST;
        }
        (4 * latency + Duration::from_secs(1)).max(CONNECT_LEAST)
    }

    /// One line about it: state, latency and failures of both transports.
    pub fn report(&self, now: Instant) -> impl fmt::Display {
        Report { health: self, now_ms: self.ms(now) }
    }

    fn ms(&self, now: Instant) -> u64 {
        let since = now.saturating_duration_since(self.epoch).as_millis();
        // 0 stands for "not set".
        u64::try_from(since).unwrap_or(u64::MAX / 2).max(1)
    }

    const fn line(&self, transport: Transport) -> &Line {
        match transport {
            Transport::Stream => &self.tcp,
            Transport::Datagram => &self.udp,
        }
    }

    fn standing(&self, transport: Transport, now_ms: u64) -> Standing {
        let line = self.line(transport);
        let reachable = !self.unreachable.is_set()
            || transport == Transport::Datagram
                && now_ms.saturating_sub(line.answered_ms.load(Relaxed)) < ANSWER_SPEAKS_MS
                && line.answered_ms.load(Relaxed) != 0;
        if !reachable {
            Standing::Down
        } else if !line.silent.is_set() {
            Standing::Well
        } else if line.silent.has_passed(now_ms) {
            Standing::Trial
        } else {
            Standing::Down
        }
    }

    /// Smaller is better.
    fn score(&self, transport: Transport, weight: u16) -> u64 {
        let known = |line: &Line| Some(line.latency_us.load(Relaxed)).filter(|us| *us != 0);
        // The way is the same for both; a probe measures it better than an answer from afar.
        let latency = match transport {
            Transport::Stream => known(&self.tcp),
            Transport::Datagram => known(&self.tcp).or_else(|| known(&self.udp)),
        };
        let latency = u64::from(latency.unwrap_or(LATENCY_UNKNOWN_US));
        // Weights are thousandths. A spare comes behind everybody.
        match weight {
            0 => u64::MAX / 2 + latency,
            _ => latency * 1000 / u64::from(weight),
        }
    }

    fn note_pick(&self, transport: Transport, now_ms: u64) {
        let picked = &self.line(transport).picked_ms;
        // Once a second is enough, and leaves the line in every core's cache.
        if now_ms.saturating_sub(picked.load(Relaxed)) >= 1000 {
            picked.store(now_ms, Relaxed);
        }
    }
}

impl Line {
    fn answered(&self, now_ms: u64) -> Change {
        if self.unanswered.load(Relaxed) != 0 {
            self.unanswered.store(0, Relaxed);
        }
        if now_ms.saturating_sub(self.answered_ms.load(Relaxed)) >= 1000 {
            self.answered_ms.store(now_ms, Relaxed);
        }
        if self.silent.clear() { Change::Up } else { Change::None }
    }

    fn unanswered(&self, now_ms: u64, least_ms: u64) -> Change {
        let before = self.unanswered.fetch_add(1, Relaxed);
        if before == 0 {
            self.unanswered_since_ms.store(now_ms, Relaxed);
        }
        let lasts = now_ms.saturating_sub(self.unanswered_since_ms.load(Relaxed));
        if before + 1 < UNANSWERED_MAX || lasts < least_ms {
            return Change::None;
        }
        let first = !self.silent.is_set();
        if self.silent.set(now_ms) && first { Change::Down } else { Change::None }
    }
}

/// Whether a server may be picked.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Standing {
    Well,
    /// Once, to see.
    Trial,
    Down,
}

/// Takes a new value in by an eighth, after the first one whole.
fn smooth(slot: &AtomicU32, latency: Duration) {
    let new = u32::try_from(latency.as_micros()).unwrap_or(u32::MAX).max(1);
    let old = slot.load(Relaxed);
    let smoothed = if old == 0 {
        new
    } else {
        u32::try_from((u64::from(old) * 7 + u64::from(new)) / 8).unwrap_or(u32::MAX).max(1)
    };
    slot.store(smoothed, Relaxed);
}

struct Report<'a> {
    health: &'a Health,
    now_ms: u64,
}

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { health, now_ms } = self;
        f.write_str(&health.name)?;
        for (name, transport) in [("tcp", Transport::Stream), ("udp", Transport::Datagram)] {
            let line = health.line(transport);
            let state = match health.standing(transport, *now_ms) {
                Standing::Well => "up",
                Standing::Trial => "trial",
                Standing::Down => "down",
            };
            let latency_us = line.latency_us.load(Relaxed);
            let failures = line.failures.load(Relaxed);
            write!(f, "{} {name}={state}", if name == "tcp" { ":" } else { "" })?;
            if latency_us != 0 {
                let (ms, tenths) = (latency_us / 1000, latency_us % 1000 / 100);
                write!(f, " {name}_latency_ms={ms}.{tenths}")?;
            }
            write!(f, " {name}_failures={failures}")?;
        }
        Ok(())
    }
}

/// The servers of a role and the choice among them.
pub struct Servers {
    all: Vec<Upstream>,
    /// Index of the server in use; [`NOBODY`] before the first.
    chosen: AtomicU32,
    /// When to ask whether another one is better, by the clock of the first server.
    review_at_ms: AtomicU64,
}

impl FromIterator<Upstream> for Servers {
    fn from_iter<I: IntoIterator<Item = Upstream>>(servers: I) -> Self {
        Self::from(servers.into_iter().collect::<Vec<_>>())
    }
}

impl From<Vec<Upstream>> for Servers {
    fn from(all: Vec<Upstream>) -> Self {
        Self { all, chosen: AtomicU32::new(NOBODY), review_at_ms: AtomicU64::new(0) }
    }
}

impl Deref for Servers {
    type Target = [Upstream];

    fn deref(&self) -> &[Upstream] {
        &self.all
    }
}

impl Servers {
    /// The server for a new connection or session: the one in use as long as it is well.
    ///
    /// Cost: five loads. Once in 5 s, and when that server is marked, a look at all of them.
    pub(crate) fn pick(&self, transport: Transport, now: Instant, random: u32) -> usize {
        let Some(first) = self.all.first().filter(|_| self.all.len() > 1) else { return 0 };
        let at = self.chosen.load(Relaxed) as usize;
        let review_at = self.review_at_ms.load(Relaxed);
        let now_ms = first.health.ms(now);
        let chosen = self.all.get(at).filter(|server| {
            now_ms < review_at
                && server.health.standing(transport, server.health.ms(now)) == Standing::Well
        });
        let at = match chosen {
            Some(_) => at,
            None => {
                self.review_at_ms.store(now_ms + REVIEW_MS, Relaxed);
                self.choose(transport, now, random, None)
            }
        };
        if let Some(server) = self.all.get(at) {
            server.health.note_pick(transport, server.health.ms(now));
        }
        at
    }

    /// The server to try after `failed`, which has been marked.
    pub(crate) fn pick_after(
        &self,
        failed: usize,
        transport: Transport,
        now: Instant,
        random: u32,
    ) -> usize {
        let next = self.choose(transport, now, random, Some(failed));
        let health = &self.all[next].health;
        // With all of them down every one gets its turn.
        if health.standing(transport, health.ms(now)) == Standing::Down {
            return (failed + 1) % self.all.len();
        }
        next
    }

    /// Whether a server other than `at` could be used.
    pub(crate) fn has_other(&self, at: usize, transport: Transport, now: Instant) -> bool {
        self.all.iter().enumerate().any(|(other, server)| {
            other != at
                && server.health.standing(transport, server.health.ms(now)) != Standing::Down
        })
    }

    /// Looks at all servers and takes the best; the one in use stays unless it is clearly worse.
    fn choose(
        &self,
        transport: Transport,
        now: Instant,
        random: u32,
        spared: Option<usize>,
    ) -> usize {
        let current = self.current(transport).filter(|at| Some(*at) != spared);
        for trials in [true, false] {
            let (standing, score, at) = self.best(transport, now, random, spared, trials);
            if let Some(current) = current
                && self.is_as_good(current, transport, now, (standing, score))
            {
                self.chosen.store(u32::try_from(current).unwrap_or(NOBODY), Relaxed);
                return current;
            }
            let health = &self.all[at].health;
            if standing != Standing::Trial {
                self.chosen.store(u32::try_from(at).unwrap_or(NOBODY), Relaxed);
                return at;
            }
            // One connection goes there, the others stay where they are until it is answered.
            if health.line(transport).silent.try_again(health.ms(now)) {
                return at;
            }
        }
        // Only without servers.
        0
    }

    /// The server in use: the choice, or what was in use before a reload.
    fn current(&self, transport: Transport) -> Option<usize> {
        let at = self.chosen.load(Relaxed);
        if at != NOBODY {
            return usize::try_from(at).ok().filter(|at| *at < self.all.len());
        }
        let picked = |server: &Upstream| {
            let ms = server.health.line(transport).picked_ms.load(Relaxed);
            (ms != 0).then(|| server.health.epoch + Duration::from_millis(ms))
        };
        let all = self.all.iter().enumerate();
        all.filter_map(|(at, server)| Some((picked(server)?, at))).max().map(|(_, at)| at)
    }

    /// The best server by standing and score, with what makes it that. `trials` says whether one
    /// that is marked, and whose pause is over, may be it.
    fn best(
        &self,
        transport: Transport,
        now: Instant,
        random: u32,
        spared: Option<usize>,
        trials: bool,
    ) -> (Standing, u64, usize) {
        let count = self.all.len();
        // Equals are taken in turn from a random place on, so that clients spread.
        let start = random as usize % count.max(1);
        let rank = |at: usize| {
            let Upstream { health, weight, .. } = &self.all[at];
            let standing = health.standing(transport, health.ms(now));
            let is_down = match standing {
                Standing::Well => false,
                Standing::Trial => !trials,
                Standing::Down => true,
            };
            (is_down, health.score(transport, *weight), standing, at)
        };
        (start..count)
            .chain(0..start)
            .filter(|at| Some(*at) != spared)
            .map(rank)
            .min_by_key(|(is_down, score, ..)| (*is_down, *score))
            .map_or((Standing::Down, u64::MAX, 0), |(is_down, score, standing, at)| {
                (if is_down { Standing::Down } else { standing }, score, at)
            })
    }

    /// Whether the server in use is not clearly worse than the best.
    fn is_as_good(
        &self,
        at: usize,
        transport: Transport,
        now: Instant,
        (standing, score): (Standing, u64),
    ) -> bool {
        let Upstream { health, weight, .. } = &self.all[at];
        let own = health.score(transport, *weight);
        let is_well = health.standing(transport, health.ms(now)) == Standing::Well;
        let is_near = own <= score.saturating_add(LEAD_US) || own / 4 * 3 <= score;
        (is_well || standing == Standing::Down) && is_near
    }
}

#[cfg(test)]
mod tests;
