//! Sends datagrams through an association and checks every echo: one thread, batches.
//!
//! A payload is a number, the slot that waits for its echo, and bytes that depend on the number. An
//! echo with other bytes, from elsewhere, twice, or of something never sent ends the run with an
//! error: a datagram may be lost, but not damaged. One that has not come back in time is lost,
//! also when it comes later.
//!
//! Cost per datagram: one copy to fill and one comparison to check; per batch: one system call to
//! send, one to receive, one to wait when nothing may be sent, and one look at the clock.

use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use adit_sys::datagram::{Inbox, Outbox};

use super::association::Association;
use super::batch::{self, BATCH_LEN};
use super::pattern::Pattern;
use super::setups::Limit;
use crate::error::{Context, Error};
use crate::stats::Histogram;

/// Number and slot.
const TAG_LEN: usize = 8 + 4;
/// Places in the pattern at which the bytes of a payload can begin.
const STARTS: usize = 4096;
/// How often to look at the clock, and for lost datagrams.
const NAP: Duration = Duration::from_millis(20);
/// Longest payload of an earlier run that may still come.
const LATE_LEN_MAX: usize = 2048;
/// Number of a slot that waits for nothing that could come in time.
const NO_NUMBER: u64 = u64::MAX;

/// When the next datagram may be sent.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Pace {
    /// When fewer than so many are on their way. A lost one is replaced.
    Window(usize),
    /// At once, unless it would be so many ahead of the newest whose echo has come: what was sent
    /// before that one and has not come is not waited for.
    Ahead(usize),
}

/// What to do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// When to send.
    pub(crate) pace: Pace,
    /// When to stop.
    pub(crate) limit: Limit,
    /// Bytes of payload, of which number and slot take 12.
    pub(crate) payload_len: usize,
    /// A datagram that has not come back after this time is lost.
    pub(crate) patience: Duration,
    /// So many lost ones end the run.
    pub(crate) lost_max: u64,
}

/// What happened.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// Datagrams sent.
    pub(crate) sent: u64,
    /// Echoes that came back in time, those after the end of sending included.
    pub(crate) echoes: u64,
    /// Echoes until the end of sending.
    pub(crate) echoes_while_sending: u64,
    /// How long datagrams were sent.
    pub(crate) sending: Duration,
    /// Of the sent ones, those for which the generator's own socket had no room.
    pub(crate) dropped: u64,
    /// Whether echoes came that had been given up.
    pub(crate) late: bool,
    /// Times from sending to the echo, in microseconds.
    pub(crate) latencies: Histogram,
}

impl Outcome {
    /// Datagrams whose echo did not come in time.
    pub(crate) const fn lost(&self) -> u64 {
        self.sent - self.echoes
    }
}

/// Carries out a plan on the calling thread.
pub(crate) fn run(association: &mut Association, plan: Plan) -> Result<Outcome, Error> {
    Driver::new(association, plan).run().context(|| "datagrams failed".to_owned())
}

struct Driver<'a> {
    association: &'a mut Association,
    plan: Plan,
    payloads: Payloads,
    inbox: Inbox,
    outbox: Outbox,
    ledger: Ledger,
}

impl<'a> Driver<'a> {
    fn new(association: &'a mut Association, plan: Plan) -> Self {
        let ledger = Ledger::new(plan, association.next);
        let payloads = Payloads::new(plan.payload_len, association.next);
        Self { association, plan, payloads, inbox: batch::inbox(), outbox: batch::outbox(), ledger }
    }

    fn run(mut self) -> io::Result<Outcome> {
        let begun = Instant::now();
        let mut now = begun;
        while !self.is_over(now - begun) {
            self.ledger.sweep(now);
            self.send(now)?;
            now = self.receive(self.room() > 0)?;
        }
        self.ledger.outcome.sending = now - begun;
        self.ledger.outcome.echoes_while_sending = self.ledger.outcome.echoes;
        // Whatever comes after this is late.
        let end = now + self.plan.patience;
        while now < end && self.ledger.outcome.lost() > self.ledger.given_up {
            now = self.receive(false)?;
        }
        Ok(self.ledger.outcome)
    }

    fn is_over(&self, elapsed: Duration) -> bool {
        let enough = match self.plan.limit {
            Limit::Time(limit) => elapsed >= limit,
            Limit::Count(count) => self.ledger.outcome.sent >= count,
        };
        enough || self.ledger.given_up >= self.plan.lost_max
    }

    /// How many datagrams may be sent at present.
    fn room(&self) -> usize {
        let left = match self.plan.limit {
            Limit::Time(_) => usize::MAX,
            Limit::Count(count) => (count - self.ledger.outcome.sent) as usize,
        };
        self.ledger.room().min(left)
    }

    fn send(&mut self, now: Instant) -> io::Result<()> {
        for _ in 0..self.room().min(BATCH_LEN) {
            let Some((number, slot)) = self.ledger.begin(now) else {
                break;
            };
            self.association.next = number + 1;
            let header = &self.association.header;
            let len = header.len() + self.payloads.len;
            let room = self.outbox.reserve(len);
            let bytes = room.map_err(|_full| io::Error::other("an outbox holds too little"))?;
            bytes[..header.len()].copy_from_slice(header);
            self.payloads.fill(&mut bytes[header.len()..], number, slot);
            self.outbox.push_reserved(0..len, &self.association.route);
        }
        if self.outbox.is_empty() {
            return Ok(());
        }
        let socket = &self.association.socket;
        let flushed = self.outbox.flush(&self.inbox, |_| Some(socket.as_fd()));
        self.ledger.outcome.dropped += batch::dropped(flushed)?;
        Ok(())
    }

    /// Takes what has come, and waits a little for it unless in a hurry; the time afterwards.
    fn receive(&mut self, in_a_hurry: bool) -> io::Result<Instant> {
        if !in_a_hurry {
            batch::wait(&self.association.socket, NAP)?;
        }
        if self.inbox.receive(&self.association.socket)?.ignored > 0 {
            return Err(io::Error::from(io::ErrorKind::ConnectionRefused));
        }
        let now = Instant::now();
        for index in 0..self.inbox.len() {
            let range = self.inbox.message(index).range();
            let payload = self.association.payload(&self.inbox.slot(index)[range]);
            let payload =
                payload.ok_or_else(|| io::Error::other("an echo claims to come from elsewhere"))?;
            let tag = self.payloads.check(payload);
            let (number, slot) = tag.ok_or_else(|| io::Error::other("an echo is damaged"))?;
            self.ledger.settle(number, slot, now)?;
        }
        Ok(now)
    }
}

/// What is on its way.
struct Ledger {
    pace: Pace,
    patience: Duration,
    slots: Vec<Slot>,
    /// Slots that may be used, with a window.
    free: Vec<usize>,
    /// Number of the next datagram.
    next: u64,
    /// Up to which number nothing is waited for, without a window.
    settled: u64,
    /// Datagrams known to be lost.
    given_up: u64,
    last_echo: Instant,
    last_sweep: Instant,
    outcome: Outcome,
}

/// Where one datagram is waited for.
#[derive(Clone, Copy)]
struct Slot {
    number: u64,
    sent: Instant,
    waiting: bool,
}

impl Ledger {
    fn new(plan: Plan, next: u64) -> Self {
        let now = Instant::now();
        let slots = match plan.pace {
            Pace::Window(window) => window,
            // So that an echo that was overtaken still finds its slot.
            Pace::Ahead(ahead) => 2 * ahead,
        };
        let longest = plan.patience + 2 * NAP;
        Self {
            pace: plan.pace,
            patience: plan.patience,
            slots: vec![Slot { number: NO_NUMBER, sent: now, waiting: false }; slots],
            free: (0..slots).rev().collect(),
            next,
            settled: next,
            given_up: 0,
            last_echo: now,
            last_sweep: now,
            outcome: Outcome {
                sent: 0,
                echoes: 0,
                echoes_while_sending: 0,
                sending: Duration::ZERO,
                dropped: 0,
                late: false,
                latencies: Histogram::new(longest.as_micros() as usize),
            },
        }
    }

    /// How many more may be on their way.
    fn room(&self) -> usize {
        match self.pace {
            Pace::Window(_) => self.free.len(),
            Pace::Ahead(ahead) => ahead.saturating_sub((self.next - self.settled) as usize),
        }
    }

    /// Notes that a datagram is sent; its number and slot.
    fn begin(&mut self, now: Instant) -> Option<(u64, usize)> {
        let number = self.next;
        let slot = match self.pace {
            Pace::Window(_) => self.free.pop()?,
            Pace::Ahead(_) => (number % self.slots.len() as u64) as usize,
        };
        self.slots[slot] = Slot { number, sent: now, waiting: true };
        self.next += 1;
        self.outcome.sent += 1;
        Some((number, slot))
    }

    /// Notes that an echo has come.
    fn settle(&mut self, number: u64, index: usize, now: Instant) -> io::Result<()> {
        if number >= self.next {
            return Err(io::Error::other("an echo of what was not sent"));
        }
        let Some(slot) = self.slots.get_mut(index).filter(|slot| slot.number == number) else {
            self.outcome.late = true;
            return Ok(());
        };
        if !slot.waiting {
            return Err(io::Error::other("an echo came twice"));
        }
        slot.waiting = false;
        self.outcome.echoes += 1;
        self.outcome.latencies.add((now - slot.sent).as_micros() as usize);
        match self.pace {
            Pace::Window(_) => self.free.push(index),
            Pace::Ahead(_) => self.settled = self.settled.max(number + 1),
        }
        self.last_echo = now;
        Ok(())
    }

    /// Gives up what has been on its way for too long.
    fn sweep(&mut self, now: Instant) {
        if now - self.last_sweep < NAP {
            return;
        }
        self.last_sweep = now;
        match self.pace {
            Pace::Window(_) => {
                for (index, slot) in self.slots.iter_mut().enumerate() {
                    if slot.waiting && now - slot.sent > self.patience {
                        (slot.waiting, slot.number) = (false, NO_NUMBER);
                        self.given_up += 1;
                        self.free.push(index);
                    }
                }
            }
            Pace::Ahead(_) if now - self.last_echo > self.patience => {
                self.settled = self.next;
                self.last_echo = now;
            }
            Pace::Ahead(_) => {}
        }
    }
}

/// Makes payloads of one length, and checks them.
struct Payloads {
    len: usize,
    /// Lower numbers are of earlier runs, whose payloads may have had another length.
    first: u64,
    pattern: Vec<u8>,
}

impl Payloads {
    fn new(len: usize, first: u64) -> Self {
        let mut pattern = vec![0; STARTS + len.max(LATE_LEN_MAX)];
        Pattern::new(0x0064_6174_6167_7261).fill(&mut pattern);
        Self { len, first, pattern }
    }

    /// Writes the payload of a datagram over all of `bytes`.
    fn fill(&self, bytes: &mut [u8], number: u64, slot: usize) {
        let (tag, body) = bytes.split_at_mut(TAG_LEN);
        tag[..8].copy_from_slice(&number.to_be_bytes());
        tag[8..].copy_from_slice(&(slot as u32).to_be_bytes());
        body.copy_from_slice(&self.body(number)[..body.len()]);
    }

    /// Number and slot of a payload, if all of it is right.
    fn check(&self, payload: &[u8]) -> Option<(u64, usize)> {
        let (number, rest) = payload.split_first_chunk::<8>()?;
        let (slot, body) = rest.split_first_chunk::<4>()?;
        let number = u64::from_be_bytes(*number);
        let right = (payload.len() == self.len || number < self.first)
            && self.body(number).starts_with(body);
        right.then(|| (number, u32::from_be_bytes(*slot) as usize))
    }

    /// The part of the pattern that a payload begins with; that of its neighbours is elsewhere.
    fn body(&self, number: u64) -> &[u8] {
        let start = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - STARTS.ilog2());
        &self.pattern[start as usize..]
    }
}

#[cfg(test)]
mod tests;
