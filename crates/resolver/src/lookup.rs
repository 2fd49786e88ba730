//! One name being resolved: search list, both families, retries, TCP, deadlines.
//!
//! Shape: a lookup tries *candidates* (the name as it is, and with each search domain) one after
//! the other. Each candidate is asked in *attempts*: one nameserver, one fresh socket, the A and
//! AAAA questions side by side. Whatever a question has learnt stays; a new attempt repeats only
//! the questions that are open.
//!
//! The engine calls [`Lookup::transmit`] until it returns `None` after the start and after every
//! message, failure or timeout, then waits for one of these or for [`Lookup::next_deadline`].
//! It opens a fresh connected UDP socket whenever [`Transmit::attempt`] changes and closes the
//! older ones, so that each attempt has its own source port. It passes the same [`Settings`] to
//! every call; others are harmless and change only what comes next.
//!
//! When one family has addresses, the other gets [`RESOLUTION_DELAY`] more (RFC 8305 §3; both
//! ways, since there is one outcome and not a stream of them). An outcome that lacks a family's
//! answer may be kept for [`PARTIAL_TTL_MAX_S`] only.
//!
//! Against forged replies: connected sockets with fresh ports, random ids, random case in names,
//! exact match of the question; several wrong ids in one attempt move its open questions to TCP.
//! A server that does not return the case as sent is asked once more in lower case, with a new
//! port and new ids.
//!
//! Bounds: [`LOOKUP_TIMEOUT`] overall; attempts per candidate are `attempts` times the number of
//! nameservers, plus at most two per lookup for servers that dislike EDNS0 or mixed case.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use crate::addresses::AddrList;
use crate::message::{
    self, Edns, Ignored, MESSAGE_LEN_MAX, QUERY_LEN_MAX, Question, RecordType, Reply, WireName,
};
use crate::name::Name;
use crate::outcome::{Failure, Outcome};
use crate::settings::Settings;

/// Longest time a lookup takes, whatever the settings say.
pub const LOOKUP_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the slower family is waited for once the other has addresses (RFC 8305 §3).
pub const RESOLUTION_DELAY: Duration = Duration::from_millis(50);
/// Longest time, in seconds, that addresses may be kept when one family did not answer.
pub const PARTIAL_TTL_MAX_S: u32 = 10;
/// Bytes that [`Lookup::transmit`] needs: the longest query and its TCP length prefix.
pub const TRANSMIT_LEN_MAX: usize = 2 + QUERY_LEN_MAX;

/// Shortest wait for one attempt when the overall time is shared by many.
const ATTEMPT_TIMEOUT_MIN: Duration = Duration::from_secs(1);
/// Wrong ids from the asked server in one attempt before its questions move to TCP.
const NEAR_MISSES_MAX: u8 = 8;

/// How a message travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// One message per datagram.
    Udp,
    /// Messages with a 2-byte length before each.
    Tcp,
}

/// Where to send the bytes that [`Lookup::transmit`] wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// The nameserver.
    pub server: SocketAddr,
    /// How; for TCP the bytes start with the length prefix.
    pub transport: Transport,
    /// Number of the attempt, from 1. Each has its own UDP socket, and its own TCP connection.
    pub attempt: u16,
    /// Number of bytes written.
    pub len: usize,
}

/// What a question has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// To be sent in this attempt.
    Ready,
    /// Sent in this attempt.
    Sent,
    /// This attempt's server cannot answer; the next one may.
    Failed(Failure),
    /// Addresses are in [`Inquiry::addrs`].
    Found,
    NoSuchName,
    NoAddress,
    /// The settings turn this family off.
    Off,
}

/// The search for one family's addresses.
#[derive(Clone, Copy)]
struct Inquiry {
    rtype: RecordType,
    step: Step,
    transport: Transport,
    id: u16,
    ttl_s: u32,
    addrs: AddrList,
}

/// How the letters of the name are sent.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Case {
    /// To be mixed before the attempt's first query.
    Unmixed,
    Mixed,
    /// A server changed the case: lower case for the rest of the lookup.
    Plain,
}

/// How the lookup ended; numbers are seconds a negative answer may be kept.
#[derive(Clone, Copy)]
enum End {
    Found,
    NoSuchName(u32),
    NoAddress(u32),
    Failed(Failure),
}

/// The state of one lookup; inline, without heap memory.
pub struct Lookup {
    name: Name,
    /// The candidate as it is sent.
    wire: WireName,
    /// AAAA, then A.
    inquiries: [Inquiry; 2],
    server: SocketAddr,
    deadline: Instant,
    attempt_deadline: Instant,
    /// When to stop waiting for the second family.
    settle_at: Option<Instant>,
    end: Option<End>,
    /// Last failure of a candidate that the search went on after.
    failure: Option<Failure>,
    /// Shortest time the negative answers seen so far may be kept.
    negative_ttl_s: u32,
    /// Whether a candidate existed without addresses.
    has_empty_name: bool,
    ignored: u32,
    attempt: u16,
    candidate: u8,
    /// Attempts used up for this candidate.
    tries: u8,
    server_index: u8,
    near_misses: u8,
    edns: Edns,
    case: Case,
}

impl Lookup {
    /// Starts a lookup for `name`; one that cannot be asked for has its outcome at once.
    ///
    /// Names that need no query (IP literals, hosts, `localhost`) are the business of
    /// [`crate::Resolver::lookup_local`].
    pub fn start(
        settings: &Settings,
        name: &str,
        now: Instant,
        random: &mut dyn FnMut() -> u64,
    ) -> Self {
        match Name::parse(name) {
            Ok(name) => {
                let mut lookup = Self::new(settings, name, now);
                if settings.rotate() {
                    // Truncation is meant: any 8 bits do.
                    lookup.server_index = random() as u8 % lookup.servers(settings);
                }
                lookup.start_candidate(settings, now);
                lookup
            }
            Err(error) => {
                let nobody = Name::parse("invalid").expect("a valid name");
                let mut lookup = Self::new(settings, nobody, now);
                lookup.end = Some(End::Failed(Failure::Name(error)));
                lookup
            }
        }
    }

    /// Writes the next query to `out` and says where to send it; `None` when there is none.
    ///
    /// # Panics
    /// When `out` is shorter than [`TRANSMIT_LEN_MAX`].
    pub fn transmit(
        &mut self,
        out: &mut [u8],
        random: &mut dyn FnMut() -> u64,
    ) -> Option<Transmit> {
        if self.end.is_some() {
            return None;
        }
        let turn = self.inquiries.iter().position(|inquiry| inquiry.step == Step::Ready)?;
        if self.case == Case::Unmixed {
            self.wire.mix_case(random);
            self.case = Case::Mixed;
        }
        let other_id = self.inquiries[1 - turn].id;
        let inquiry = &mut self.inquiries[turn];
        // Truncation is meant: any 16 bits do. The two ids differ so that a reply has one owner.
        inquiry.id = random() as u16;
        if inquiry.id == other_id {
            inquiry.id = !other_id;
        }
        inquiry.step = Step::Sent;
        let prefix = match inquiry.transport {
            Transport::Udp => 0,
            Transport::Tcp => 2,
        };
        let query = &mut out[prefix..TRANSMIT_LEN_MAX];
        let len = message::write_query(query, inquiry.id, &self.wire, inquiry.rtype, self.edns);
        if inquiry.transport == Transport::Tcp {
            let len = u16::try_from(len).expect("a query is below 300 bytes");
            out[..2].copy_from_slice(&len.to_be_bytes());
        }
        Some(Transmit {
            server: self.server,
            transport: inquiry.transport,
            attempt: self.attempt,
            len: prefix + len,
        })
    }

    /// Takes a message (without the TCP length prefix) that came from `from`.
    ///
    /// # Errors
    /// Why the message did not count. Nothing is wrong with the lookup; it waits on.
    pub fn handle_message(
        &mut self,
        settings: &Settings,
        now: Instant,
        from: SocketAddr,
        transport: Transport,
        bytes: &[u8],
    ) -> Result<(), Ignored> {
        let result = self.accept(settings, now, from, transport, bytes);
        if result.is_err() {
            self.ignored = self.ignored.saturating_add(1);
        }
        result
    }

    /// Goes on to the next nameserver because `attempt` cannot reach its own: ICMP refused it,
    /// TCP failed or was closed early, or no socket was to be had. Older attempts do not count.
    pub fn handle_unreachable(&mut self, settings: &Settings, now: Instant, attempt: u16) {
        if self.end.is_none() && attempt == self.attempt {
            if self.has_addrs() {
                // Answers of one family are worth more than another round.
                self.end = Some(End::Found);
                return;
            }
            self.next_server(settings, now, Failure::Unreachable);
        }
    }

    /// Does what is due at `now`; harmless when called early or twice.
    pub fn handle_timeout(&mut self, settings: &Settings, now: Instant) {
        if self.end.is_some() {
            return;
        }
        let is_settled = self.settle_at.is_some_and(|at| at <= now);
        if self.has_addrs() && (is_settled || self.attempt_deadline <= now) {
            self.end = Some(End::Found);
        } else if self.deadline <= now {
            self.end = Some(End::Failed(Failure::Timeout));
        } else if self.attempt_deadline <= now {
            self.next_server(settings, now, Failure::Timeout);
        }
    }

    /// When [`Lookup::handle_timeout`] is due; `None` after the end.
    pub fn next_deadline(&self) -> Option<Instant> {
        if self.end.is_some() {
            return None;
        }
        // An attempt never outlasts the lookup.
        let settle_at = self.settle_at.unwrap_or(self.attempt_deadline);
        Some(settle_at.min(self.attempt_deadline))
    }

    /// The outcome, once there is one.
    pub fn outcome(&self) -> Option<Outcome> {
        Some(match self.end? {
            End::Found => self.found(),
            End::NoSuchName(ttl_s) => Outcome::NoSuchName { ttl_s },
            End::NoAddress(ttl_s) => Outcome::NoAddress { ttl_s },
            End::Failed(failure) => Outcome::Failed(failure),
        })
    }

    /// Messages that did not count so far.
    pub const fn ignored(&self) -> u32 {
        self.ignored
    }

    /// The current attempt: messages and failures of older ones are of no use.
    pub const fn attempt(&self) -> u16 {
        self.attempt
    }

    fn new(settings: &Settings, name: Name, now: Instant) -> Self {
        let inquiry = |rtype| Inquiry {
            rtype,
            step: Step::Ready,
            transport: Transport::Udp,
            id: 0,
            ttl_s: 0,
            addrs: AddrList::new(),
        };
        Self {
            name,
            wire: WireName::joined(&name, None).expect("a name fits its wire form"),
            inquiries: [inquiry(RecordType::Aaaa), inquiry(RecordType::A)],
            server: settings.nameservers()[0],
            deadline: now + LOOKUP_TIMEOUT,
            attempt_deadline: now,
            settle_at: None,
            end: None,
            failure: None,
            negative_ttl_s: u32::MAX,
            has_empty_name: false,
            ignored: 0,
            attempt: 0,
            candidate: 0,
            tries: 0,
            server_index: 0,
            near_misses: 0,
            edns: Edns::Offered,
            case: Case::Unmixed,
        }
    }

    fn accept(
        &mut self,
        settings: &Settings,
        now: Instant,
        from: SocketAddr,
        transport: Transport,
        bytes: &[u8],
    ) -> Result<(), Ignored> {
        if self.end.is_some() {
            return Err(Ignored::Ended);
        }
        if !is_same_server(from, self.server) {
            return Err(Ignored::Server);
        }
        if bytes.len() > MESSAGE_LEN_MAX {
            return Err(Ignored::TooLong);
        }
        let id = message::id(bytes).ok_or(Ignored::Malformed)?;
        let turn = self.turn_of(now, settings, id, transport)?;
        let inquiry = &self.inquiries[turn];
        let question = Question {
            name: &self.wire,
            rtype: inquiry.rtype,
            edns: self.edns,
            transport,
            exact_case: self.case == Case::Mixed && transport == Transport::Udp,
        };
        match message::parse_reply(bytes, question) {
            Ok(reply) => {
                self.apply(settings, now, turn, reply);
                Ok(())
            }
            Err(Ignored::Case) => {
                self.case = Case::Plain;
                self.start_attempt(settings, now);
                Err(Ignored::Case)
            }
            Err(ignored) => Err(ignored),
        }
    }

    /// The open question that a message with this id answers.
    fn turn_of(
        &mut self,
        now: Instant,
        settings: &Settings,
        id: u16,
        transport: Transport,
    ) -> Result<usize, Ignored> {
        let is_owner = |inquiry: &Inquiry| inquiry.id == id && inquiry.transport == transport;
        let is_sent = |inquiry: &Inquiry| inquiry.step == Step::Sent;
        if let Some(turn) = self.inquiries.iter().position(|i| is_sent(i) && is_owner(i)) {
            return Ok(turn);
        }
        if self.inquiries.iter().any(|i| !is_sent(i) && is_owner(i)) {
            return Err(Ignored::Duplicate);
        }
        self.near_misses = self.near_misses.saturating_add(1);
        if self.near_misses == NEAR_MISSES_MAX && transport == Transport::Udp {
            for turn in 0..self.inquiries.len() {
                if self.inquiries[turn].step == Step::Sent {
                    self.move_to_tcp(settings, now, turn);
                }
            }
        }
        Err(Ignored::Id)
    }

    fn apply(&mut self, settings: &Settings, now: Instant, turn: usize, reply: Reply) {
        let inquiry = &mut self.inquiries[turn];
        match reply {
            Reply::Truncated => return self.move_to_tcp(settings, now, turn),
            Reply::EdnsUnknown => {
                self.edns = Edns::Absent;
                return self.start_attempt(settings, now);
            }
            Reply::Found { addrs, ttl_s } => {
                inquiry.addrs = addrs;
                inquiry.ttl_s = ttl_s;
                inquiry.step = Step::Found;
            }
            Reply::NoSuchName { ttl_s } => {
                inquiry.ttl_s = ttl_s;
                inquiry.step = Step::NoSuchName;
            }
            Reply::NoAddress { ttl_s } => {
                inquiry.ttl_s = ttl_s;
                inquiry.step = Step::NoAddress;
            }
            Reply::Failed(failure) => inquiry.step = Step::Failed(failure),
        }
        self.settle(settings, now);
    }

    /// Draws the conclusion from what the questions have come to.
    fn settle(&mut self, settings: &Settings, now: Instant) {
        let steps = self.inquiries.map(|inquiry| inquiry.step);
        let is_waiting = steps.iter().any(|step| matches!(step, Step::Ready | Step::Sent));
        if is_waiting {
            if self.has_addrs() && self.settle_at.is_none() {
                self.settle_at = Some(now + RESOLUTION_DELAY);
            }
        } else if self.has_addrs() {
            self.end = Some(End::Found);
        } else {
            let failure = steps.iter().find_map(|step| match step {
                Step::Failed(failure) => Some(*failure),
                _ => None,
            });
            match failure {
                Some(failure) => self.next_server(settings, now, failure),
                None => self.next_candidate(settings, now, None),
            }
        }
    }

    /// Asks the next nameserver, or ends the candidate when all had their turns.
    fn next_server(&mut self, settings: &Settings, now: Instant, failure: Failure) {
        if self.deadline <= now {
            self.end = Some(End::Failed(failure));
            return;
        }
        let servers = self.servers(settings);
        self.tries += 1;
        self.server_index = (self.server_index + 1) % servers;
        if self.tries < servers * settings.attempts() {
            return self.start_attempt(settings, now);
        }
        let is_missing = self.inquiries.iter().any(|i| i.step == Step::NoSuchName);
        match failure {
            // A name that does not exist for one family exists for none (RFC 8020).
            _ if is_missing => self.next_candidate(settings, now, None),
            // The name's own servers may be broken; those of the next candidate need not be.
            Failure::ServerFailure | Failure::Refused | Failure::BadAnswer => {
                self.next_candidate(settings, now, Some(failure));
            }
            Failure::Timeout | Failure::Unreachable | Failure::Name(_) => {
                self.end = Some(End::Failed(failure));
            }
        }
    }

    /// Notes how the candidate ended and starts the next, or ends the lookup.
    fn next_candidate(&mut self, settings: &Settings, now: Instant, failure: Option<Failure>) {
        match failure {
            Some(_) => self.failure = failure,
            None => {
                for inquiry in &self.inquiries {
                    let is_no = matches!(inquiry.step, Step::NoSuchName | Step::NoAddress);
                    if is_no {
                        self.negative_ttl_s = self.negative_ttl_s.min(inquiry.ttl_s);
                    }
                    self.has_empty_name |= inquiry.step == Step::NoAddress;
                }
            }
        }
        self.candidate += 1;
        self.start_candidate(settings, now);
    }

    fn start_candidate(&mut self, settings: &Settings, now: Instant) {
        while let Some(suffix) = self.suffix(settings) {
            if let Some(wire) = WireName::joined(&self.name, suffix) {
                self.wire = wire;
                self.tries = 0;
                for inquiry in &mut self.inquiries {
                    inquiry.step = Step::Ready;
                    inquiry.addrs = AddrList::new();
                    if inquiry.rtype == RecordType::Aaaa && !settings.aaaa() {
                        inquiry.step = Step::Off;
                    }
                }
                return self.start_attempt(settings, now);
            }
            self.candidate += 1;
        }
        self.end = Some(match self.failure {
            Some(failure) => End::Failed(failure),
            None if self.has_empty_name => End::NoAddress(self.negative_ttl_s),
            None => End::NoSuchName(self.negative_ttl_s),
        });
    }

    /// The search domain of the current candidate, `Some(None)` for the name as it is, `None`
    /// after the last candidate. The order is that of libc's `res_search`.
    fn suffix<'a>(&self, settings: &'a Settings) -> Option<Option<&'a Name>> {
        let search = if self.name.is_absolute() { &[] } else { settings.search() };
        let candidate = usize::from(self.candidate);
        let as_is_at = if self.name.dots() >= settings.ndots().into() { 0 } else { search.len() };
        if candidate == as_is_at {
            Some(None)
        } else {
            let index = if candidate > as_is_at { candidate - 1 } else { candidate };
            search.get(index).map(Some)
        }
    }

    fn start_attempt(&mut self, settings: &Settings, now: Instant) {
        self.attempt += 1;
        self.near_misses = 0;
        self.server =
            settings.nameservers()[usize::from(self.server_index % self.servers(settings))];
        self.extend_attempt(settings, now);
        match self.case {
            Case::Plain => self.wire.lower_case(),
            Case::Unmixed | Case::Mixed => self.case = Case::Unmixed,
        }
        for inquiry in &mut self.inquiries {
            if matches!(inquiry.step, Step::Ready | Step::Sent | Step::Failed(_)) {
                inquiry.step = Step::Ready;
                inquiry.transport =
                    if settings.tcp_only() { Transport::Tcp } else { Transport::Udp };
            }
        }
    }

    fn move_to_tcp(&mut self, settings: &Settings, now: Instant, turn: usize) {
        let inquiry = &mut self.inquiries[turn];
        inquiry.transport = Transport::Tcp;
        inquiry.step = Step::Ready;
        self.extend_attempt(settings, now);
    }

    /// Gives the attempt its time from `now`: what the settings say, but so much less that every
    /// nameserver gets its turns before the lookup's deadline.
    fn extend_attempt(&mut self, settings: &Settings, now: Instant) {
        let turns = u32::from(self.servers(settings)) * u32::from(settings.attempts());
        let share = (LOOKUP_TIMEOUT / turns).max(ATTEMPT_TIMEOUT_MIN);
        self.attempt_deadline = (now + settings.timeout().min(share)).min(self.deadline);
    }

    fn servers(&self, settings: &Settings) -> u8 {
        u8::try_from(settings.nameservers().len()).expect("settings hold 1 to 8 nameservers")
    }

    fn has_addrs(&self) -> bool {
        self.inquiries.iter().any(|inquiry| inquiry.step == Step::Found)
    }

    fn found(&self) -> Outcome {
        let addrs_of = |inquiry: &Inquiry| match inquiry.step {
            Step::Found => inquiry.addrs,
            _ => AddrList::new(),
        };
        let [v6, v4] = [addrs_of(&self.inquiries[0]), addrs_of(&self.inquiries[1])];
        let mut ttl_s = u32::MAX;
        for inquiry in &self.inquiries {
            match inquiry.step {
                Step::Found => ttl_s = ttl_s.min(inquiry.ttl_s),
                Step::NoSuchName | Step::NoAddress | Step::Off => {}
                Step::Ready | Step::Sent | Step::Failed(_) => ttl_s = ttl_s.min(PARTIAL_TTL_MAX_S),
            }
        }
        Outcome::Found { addrs: AddrList::interleaved(v6.iter(), v4.iter()), ttl_s }
    }
}

/// Compares what identifies a server: flow labels and the scopes of global addresses do not.
fn is_same_server(from: SocketAddr, server: SocketAddr) -> bool {
    let scope = |addr: SocketAddr| match addr {
        SocketAddr::V6(v6) if v6.ip().is_unicast_link_local() => v6.scope_id(),
        _ => 0,
    };
    let ip = |addr: SocketAddr| -> IpAddr { addr.ip().to_canonical() };
    ip(from) == ip(server) && from.port() == server.port() && scope(from) == scope(server)
}

impl std::fmt::Debug for Lookup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The name stays out: it is what a user visits.
        f.debug_struct("Lookup")
            .field("attempt", &self.attempt)
            .field("candidate", &self.candidate)
            .field("steps", &self.inquiries.map(|inquiry| inquiry.step))
            .field("has_ended", &self.end.is_some())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
