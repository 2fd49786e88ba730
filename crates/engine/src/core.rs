//! What a worker lends to the flow it is working on.

use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use adit_crypto::Rng;
use adit_observe::{FlowCounters, Throttle, log};
use adit_shadowsocks::{RECORD_HEAD_MAX, RECORD_TAIL};
use adit_sys::net::Connecting;
use adit_sys::poll::{Interest, Poll};

use crate::crew::Crew;
use crate::health::{Change, Health};
use crate::judges::Judges;
use crate::names::Names;
use crate::pool::{Chain, Pool};
use crate::ring::Ring;
use crate::slab::Key;
use crate::token::{Part, Token};
use crate::wheel::{TICK, Tick, Wheel};

/// Payload of the records we send. SIP004 allows 16,383. 2022 allows 65,535; half of that halves
/// what a receiver has to keep of a record that is cut off.
pub(crate) const fn record_payload(is_2022: bool) -> usize {
    if is_2022 { 32_704 } else { 0x3FFF }
}

/// Slots that one vectored read fills.
pub(crate) const SLOTS_MAX: usize = 8;

/// The worker's one large buffer: eight SIP004 records, or four of 2022, a tenth of the cache
/// next to a core. 32 KiB was slower; between 64 and 128 KiB the runs showed no difference.
pub(crate) const SCRATCH_LEN: usize =
    SLOTS_MAX * (0x3FFF + 18 + RECORD_TAIL) + RECORD_HEAD_MAX + 1024;

const _: () =
    assert!(SCRATCH_LEN >= 4 * (record_payload(true) + 18 + RECORD_TAIL) + RECORD_HEAD_MAX);
// The longest record with its length header fits behind itself minus one byte, or a stream could
// stall with a tail that leaves no room to read.
const _: () = assert!(SCRATCH_LEN > 2 * (0xFFFF + RECORD_TAIL) - 1);

/// The share of the pool's room that one read may fill: the fuller the pool, the less a flow may
/// add to it, so that stalled readers cannot use it up at a stroke.
const READ_SHARE: usize = 8;

/// The least that a read may bring; with less room than for that the flow waits.
const READ_MIN: usize = 16 * 1024;

/// The shared tools of one worker.
pub(crate) struct Core {
    pub(crate) poll: Poll,
    pub(crate) wheel: Wheel,
    pub(crate) pool: Pool,
    pub(crate) scratch: Box<[u8]>,
    pub(crate) rng: Rng,
    pub(crate) names: Names,
    pub(crate) judges: Judges,
    pub(crate) counters: Arc<FlowCounters>,
    /// The workers of the process, and which of them this is.
    pub(crate) crew: Arc<Crew>,
    pub(crate) worker: u16,
    /// Flows that have more to do than their budget allowed.
    pub(crate) ready: Ring,
    /// A flow found the pool without room for a read.
    pub(crate) starved: bool,
    pub(crate) reject_log: Throttle,
    /// When the worker started: tick 0.
    pub(crate) epoch: Instant,
    /// The time at which the events in hand were fetched.
    pub(crate) now: Instant,
    pub(crate) tick: Tick,
}

impl Core {
    /// Reads the clock, once per batch of events.
    pub(crate) fn update_time(&mut self) {
        self.now = Instant::now();
        let elapsed = self.now.saturating_duration_since(self.epoch);
        self.tick = u64::try_from(elapsed.as_millis() / TICK.as_millis()).unwrap_or(u64::MAX / 2);
    }

    /// The time in microseconds, to be subtracted from one another: it wraps after an hour.
    pub(crate) fn now_us(&self) -> u32 {
        let elapsed = self.now.saturating_duration_since(self.epoch);
        #[expect(clippy::cast_possible_truncation, reason = "it is meant to wrap")]
        let wrapped = elapsed.as_micros() as u32;
        wrapped
    }

    /// Says what became of a server, which a failing network can cause often.
    pub(crate) fn log_change(&mut self, health: &Health, change: Change, why: &str) {
        match change {
            Change::None => {}
            Change::Down => self.log_peer_fault(format_args!("server {} {why}", health.name())),
            Change::Up => self.log_peer_fault(format_args!("server {} is back", health.name())),
        }
    }

    /// Registers a flow's socket.
    pub(crate) fn watch(
        &self,
        fd: impl AsFd,
        key: Key,
        part: Part,
        interest: Interest,
    ) -> std::io::Result<()> {
        self.poll.add(fd, Token::flow(part, key).into(), interest)
    }

    /// Registers the socket of a connect.
    pub(crate) fn watch_connecting(
        &self,
        connecting: Connecting,
        key: Key,
        part: Part,
    ) -> std::io::Result<Connecting> {
        match &connecting {
            Connecting::Connected(fd) => self.watch(fd, key, part, Interest::Arrivals)?,
            Connecting::UnderWay(fd) => self.watch(fd, key, part, Interest::Stream)?,
        }
        Ok(connecting)
    }

    /// How many bytes a flow may read when it wants `wanted`: all of it may have to wait in the
    /// pool. `None` when there is no room.
    pub(crate) fn read_window(&self, wanted: u32) -> Option<usize> {
        let share = self.pool.room() / READ_SHARE;
        (share >= READ_MIN).then(|| share.min(wanted as usize))
    }

    /// Keeps what a peer that has not proved anything sent of an unfinished message. Such peers
    /// get half of the pool together; false when that is used up.
    #[must_use]
    pub(crate) fn keep_unproven(&mut self, chain: &mut Chain, range: Range<usize>) -> bool {
        let bytes = &self.scratch[range];
        let has_room = bytes.is_empty() || self.pool.room() > self.pool.capacity() / 2;
        let kept = has_room && self.pool.push(chain, bytes).is_ok();
        if !kept {
            self.counters.buffers_exhausted.inc();
        }
        kept
    }

    /// Writes a line that a peer can cause, at a bounded rate.
    pub(crate) fn log_peer_fault(&mut self, line: std::fmt::Arguments<'_>) {
        if !log::log_enabled!(log::Level::Warn) {
            return;
        }
        match self.reject_log.allow(self.now) {
            None => {}
            Some(0) => log::warn!("{line}"),
            Some(held_back) => log::warn!("{line} ({held_back} such lines held back)"),
        }
    }
}

/// Seconds since the Unix epoch; a clock before it counts as 0.
pub(crate) fn unix_s() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |d| d.as_secs())
}
