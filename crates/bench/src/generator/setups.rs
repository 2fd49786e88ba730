//! Sets up connections as fast as the other side allows: one thread, one epoll.
//!
//! Each of `concurrency` workers loops: connect, SOCKS5 greeting, wait, request, wait, send 8
//! bytes, wait for their echo, close. A set-up is timed from before the connect to the last byte
//! of the echo, because a Shadowsocks client answers the request before its server has dialled.
//!
//! Closing is a plain close, as clients do it, so each connection leaves a TIME_WAIT on every hop.
//! The client sockets are deliberately not bound to various source addresses to spread them: Linux
//! keeps a port that `bind` chose from every unbound `connect` until its TIME_WAIT ends, whatever
//! the address, and the measured programs would have to search among the ports that are left.
//! Unbound sockets share ports between hops, and on loopback Linux uses them again after a second
//! or two (`net.ipv4.tcp_tw_reuse` 2, the default): enough for some 14,000 set-ups per second. The
//! target has several addresses, so its hop has several times as many.
//!
//! A set-up that the end of the run cuts short is neither a success nor a failure. After a failure
//! the worker goes on at once.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};

use super::{Destination, Entry, socks};
use crate::error::{Context, Error};

/// Bytes echoed in each set-up: the set-up's number.
const PAYLOAD_LEN: usize = 8;
/// A set-up that takes longer has failed.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Failures without any success after which a run is pointless.
const HOPELESS: u64 = 1000;

/// When a run is over.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Limit {
    /// After this time.
    Time(Duration),
    /// When this many set-ups have been started and have ended.
    Count(u64),
}

/// What to do.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// How to reach the destinations.
    pub(crate) entry: Entry,
    /// Destinations, used in turn; IPv4 ones when direct.
    pub(crate) destinations: Vec<Destination>,
    /// Set-ups in flight.
    pub(crate) concurrency: usize,
    /// When to stop.
    pub(crate) limit: Limit,
}

/// What happened.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outcome {
    /// Set-up times in microseconds, sorted.
    pub(crate) latencies_us: Vec<u32>,
    /// Failures by cause.
    pub(crate) failures: BTreeMap<String, u64>,
    /// How long the run took.
    pub(crate) elapsed: Duration,
}

impl Outcome {
    /// Set-ups that worked.
    pub(crate) fn completed(&self) -> usize {
        self.latencies_us.len()
    }

    /// Set-ups that failed.
    pub(crate) fn failed(&self) -> u64 {
        self.failures.values().sum()
    }

    /// The failures in words.
    pub(crate) fn failures_in_words(&self) -> String {
        let words: Vec<String> =
            self.failures.iter().map(|(cause, count)| format!("{count} × {cause}")).collect();
        words.join(", ")
    }
}

/// Carries out a plan on the calling thread.
pub(crate) fn run(plan: &Plan) -> Result<Outcome, Error> {
    let context = || "cannot run the connection generator".to_owned();
    let poll = Poll::new().context(context)?;
    let requests = plan.destinations.iter().map(socks::request).collect();
    let mut driver = Driver { plan, poll, requests, started: 0, outcome: Outcome::default() };
    driver.run().context(context)
}

struct Driver<'a> {
    plan: &'a Plan,
    poll: Poll,
    requests: Vec<Vec<u8>>,
    /// Set-ups started so far; the number of the next one.
    started: u64,
    outcome: Outcome,
}

/// One set-up under way.
struct Setup {
    stream: TcpStream,
    number: u64,
    begun: Instant,
    stage: Stage,
    received: [u8; socks::REPLY_LEN_MAX],
    filled: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Connecting,
    AwaitingMethod,
    AwaitingReply,
    AwaitingEcho,
    Done,
}

impl Driver<'_> {
    fn run(&mut self) -> io::Result<Outcome> {
        let begun = Instant::now();
        let mut workers: Vec<Option<Setup>> = Vec::new();
        for index in 0..self.plan.concurrency {
            workers.push(self.begin(index, begun)?);
        }
        let mut events = Events::with_capacity(self.plan.concurrency.max(8));
        let mut last_sweep = begun;
        while workers.iter().any(Option::is_some) && !self.hopeless() {
            let patience = Some(Duration::from_millis(50));
            match self.poll.poll(&mut events, patience) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                outcome => outcome?,
            }
            for event in &events {
                let index = event.token().0;
                let Some(setup) = &mut workers[index] else {
                    continue;
                };
                let step = setup.advance(self.plan.entry, &self.requests);
                if self.judge(setup, step) {
                    workers[index] = self.begin(index, begun)?;
                }
            }
            let now = Instant::now();
            if now - last_sweep > Duration::from_millis(100) {
                last_sweep = now;
                self.expire(&mut workers, begun, now)?;
            }
            if matches!(self.plan.limit, Limit::Time(limit) if now - begun >= limit) {
                break;
            }
        }
        let mut outcome = std::mem::take(&mut self.outcome);
        outcome.elapsed = begun.elapsed();
        outcome.latencies_us.sort_unstable();
        Ok(outcome)
    }

    fn hopeless(&self) -> bool {
        self.outcome.latencies_us.is_empty() && self.outcome.failed() >= HOPELESS
    }

    /// Starts the next set-up, if the limit leaves one. One that cannot even start has failed.
    fn begin(&mut self, index: usize, run_begun: Instant) -> io::Result<Option<Setup>> {
        loop {
            let over = match self.plan.limit {
                Limit::Time(limit) => run_begun.elapsed() >= limit,
                Limit::Count(count) => self.started >= count,
            };
            if over || self.hopeless() {
                return Ok(None);
            }
            let number = self.started;
            self.started += 1;
            let begun = Instant::now();
            let mut stream = match connect(self.first_hop(number)) {
                Ok(stream) => stream,
                Err(error) => {
                    self.fail(&error);
                    continue;
                }
            };
            self.poll.registry().register(
                &mut stream,
                Token(index),
                Interest::READABLE | Interest::WRITABLE,
            )?;
            return Ok(Some(Setup {
                stream,
                number,
                begun,
                stage: Stage::Connecting,
                received: [0; socks::REPLY_LEN_MAX],
                filled: 0,
            }));
        }
    }

    fn first_hop(&self, number: u64) -> SocketAddr {
        let turn = number % self.plan.destinations.len() as u64;
        self.plan.entry.first_hop(self.plan.destinations[turn as usize])
    }

    /// Records the end of a set-up; whether it has ended.
    fn judge(&mut self, setup: &Setup, step: io::Result<()>) -> bool {
        match step {
            Ok(()) if setup.stage == Stage::Done => {
                let micros = setup.begun.elapsed().as_micros();
                let micros = u32::try_from(micros).unwrap_or(u32::MAX);
                self.outcome.latencies_us.push(micros);
                true
            }
            Ok(()) => false,
            Err(error) => {
                self.fail(&error);
                true
            }
        }
    }

    fn fail(&mut self, error: &io::Error) {
        *self.outcome.failures.entry(error.to_string()).or_default() += 1;
    }

    fn expire(
        &mut self,
        workers: &mut [Option<Setup>],
        run_begun: Instant,
        now: Instant,
    ) -> io::Result<()> {
        for (index, worker) in workers.iter_mut().enumerate() {
            let Some(setup) = worker.take_if(|setup| now - setup.begun > TIMEOUT) else {
                continue;
            };
            self.fail(&io::Error::other(format!("timed out: {:?}", setup.stage)));
            drop(setup);
            *worker = self.begin(index, run_begun)?;
        }
        Ok(())
    }
}

fn connect(to: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(to)?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

impl Setup {
    /// Goes as far as the socket allows; `stage` tells how far.
    fn advance(&mut self, entry: Entry, requests: &[Vec<u8>]) -> io::Result<()> {
        let payload = self.number.to_le_bytes();
        loop {
            match self.stage {
                Stage::Connecting => {
                    if !self.is_connected()? {
                        return Ok(());
                    }
                    if matches!(entry, Entry::Socks5(_)) {
                        self.send(&socks::GREETING, Stage::AwaitingMethod)?;
                    } else {
                        self.send(&payload, Stage::AwaitingEcho)?;
                    }
                }
                Stage::AwaitingMethod => {
                    let want = socks::METHOD_REPLY;
                    if !self.receive(want.len())? {
                        return Ok(());
                    }
                    if !self.received.starts_with(&want) {
                        return Err(io::Error::other("SOCKS5 server wants authentication"));
                    }
                    let turn = self.number % requests.len() as u64;
                    self.send(&requests[turn as usize], Stage::AwaitingReply)?;
                }
                Stage::AwaitingReply => {
                    if !self.receive(5)? {
                        return Ok(());
                    }
                    let len = socks::reply_len(&self.received[..self.filled])?;
                    if !self.receive(len.unwrap_or(socks::REPLY_LEN_MAX))? {
                        return Ok(());
                    }
                    self.send(&payload, Stage::AwaitingEcho)?;
                }
                Stage::AwaitingEcho => {
                    if !self.receive(PAYLOAD_LEN)? {
                        return Ok(());
                    }
                    if !self.received.starts_with(&payload) {
                        return Err(io::Error::other("the echo is wrong"));
                    }
                    self.stage = Stage::Done;
                }
                Stage::Done => return Ok(()),
            }
        }
    }

    fn is_connected(&self) -> io::Result<bool> {
        if let Some(error) = self.stream.take_error()? {
            return Err(error);
        }
        match self.stream.peer_addr() {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Sends a few bytes, for which an idle socket always has room.
    fn send(&mut self, bytes: &[u8], next: Stage) -> io::Result<()> {
        if self.stream.write(bytes)? != bytes.len() {
            return Err(io::Error::other("a few bytes did not fit"));
        }
        self.stage = next;
        self.filled = 0;
        Ok(())
    }

    /// Whether the first `len` bytes of the answer are here, reading no further than that.
    fn receive(&mut self, len: usize) -> io::Result<bool> {
        while self.filled < len {
            match self.stream.read(&mut self.received[self.filled..len]) {
                Ok(0) => {
                    let text = format!("closed: {:?}", self.stage);
                    return Err(io::Error::other(text));
                }
                Ok(read) => self.filled += read,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generator::echo::EchoTarget;

    fn direct(target: &EchoTarget, limit: Limit) -> Plan {
        Plan {
            entry: Entry::Direct,
            destinations: target.addrs().map(Destination::Ip).collect(),
            concurrency: 5,
            limit,
        }
    }

    #[test]
    fn makes_exactly_as_many_as_asked() {
        let target = EchoTarget::on_many_addresses(2).unwrap();
        let outcome = run(&direct(&target, Limit::Count(123))).unwrap();
        assert_eq!(outcome.completed(), 123);
        assert_eq!(outcome.failed(), 0, "{}", outcome.failures_in_words());
        assert!(outcome.latencies_us.is_sorted());
    }

    #[test]
    fn stops_when_time_is_up() {
        let target = EchoTarget::on_many_addresses(1).unwrap();
        let limit = Limit::Time(Duration::from_millis(50));
        let outcome = run(&direct(&target, limit)).unwrap();
        assert!(outcome.completed() > 0);
        assert!(outcome.elapsed >= Duration::from_millis(50));
    }

    #[test]
    fn gives_up_on_a_closed_port() {
        let target = EchoTarget::on_many_addresses(1).unwrap();
        let plan = direct(&target, Limit::Time(Duration::from_secs(60)));
        drop(target);
        let outcome = run(&plan).unwrap();
        assert_eq!(outcome.completed(), 0);
        assert!(outcome.failed() >= HOPELESS);
    }

    #[test]
    fn reports_a_server_that_is_no_socks5_server() {
        let target = EchoTarget::on_many_addresses(1).unwrap();
        let plan = Plan {
            entry: Entry::Socks5(target.addrs().next().unwrap()),
            ..direct(&target, Limit::Count(3))
        };
        let outcome = run(&plan).unwrap();
        assert_eq!(outcome.completed(), 0);
        assert_eq!(outcome.failures_in_words(), "3 × SOCKS5 server wants authentication");
    }
}
