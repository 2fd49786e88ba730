//! Which datagrams share a train, and which routes take none.
//!
//! A train is one send of several datagrams of equal length (the last may be shorter) that the
//! kernel or the network card cuts apart (UDP_SEGMENT). It costs one walk through the network
//! stack instead of one a datagram.

use crate::datagram::Route;

/// Datagrams in a train. Kernels before 6.9 allow 64 and count the headers against the last one's
/// bytes, so 64 full datagrams are refused there.
pub const TRAIN_SEGMENTS_MAX: usize = 63;
/// Bytes in a train; the kernel takes 65,507 by IPv4.
pub const TRAIN_LEN_MAX: usize = 65_000;

/// Refused trains in a row after which none is tried for a while: nothing on this host takes them.
const REFUSALS_MAX: u32 = 16;
/// Trains held back then, before one is tried again.
const PAUSE: u32 = 100_000;
/// Routes whose limit is remembered.
const LIMITS: usize = 64;
/// Trains held back by a limit before one is tried again: a path may have become wider.
const RETRY_AFTER: u32 = 1000;

/// Whether datagrams are sent in trains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Segmentation {
    /// Where the kernel takes them.
    On,
    /// Every datagram is sent singly.
    Off,
}

/// Datagrams of one route that are sent together, in a chain.
#[derive(Clone, Copy, Debug)]
pub(super) struct Train {
    pub(super) route: Route,
    /// Indexes of the first and the last datagram in the chain.
    pub(super) first: u32,
    pub(super) last: u32,
    pub(super) count: u32,
    /// Length of every datagram but the last.
    pub(super) size: usize,
    len: usize,
    closed: bool,
    pub(super) sending: Sending,
}

/// How the datagrams of a train are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sending {
    /// All at once.
    Together,
    /// One after another, for a limit that is known.
    Singly,
    /// One after another, since the kernel has just refused the train.
    Refused,
}

impl Train {
    /// A train of one datagram.
    pub(super) const fn new(route: Route, index: u32, len: usize) -> Self {
        Self {
            route,
            first: index,
            last: index,
            count: 1,
            size: len,
            len,
            // An empty datagram would vanish among others.
            closed: len == 0,
            sending: Sending::Together,
        }
    }

    /// Whether a datagram of `len` bytes may be hung on.
    pub(super) const fn takes(&self, len: usize) -> bool {
        !self.closed
            && len > 0
            && len <= self.size
            && self.len + len <= TRAIN_LEN_MAX
            && (self.count as usize) < TRAIN_SEGMENTS_MAX
    }

    /// Hangs datagram `index` on.
    pub(super) const fn append(&mut self, index: u32, len: usize) {
        self.last = index;
        self.count += 1;
        self.len += len;
        self.closed = len < self.size;
    }
}

/// A route that has refused trains of datagrams of `size` bytes or more.
#[derive(Clone, Copy)]
struct Limit {
    digest: u64,
    size: usize,
    /// Trains to hold back before the limit is forgotten.
    left: u32,
}

/// What the kernel has told about trains.
///
/// A segment must fit the path whole, and the paths differ: a limit is kept for each route (in a
/// small table where a newer one takes an older one's place), so that one client behind a narrow
/// link, or one that forges reports of such a link, does not slow the others.
pub(super) struct TrainLimits {
    segmentation: Segmentation,
    limits: [Option<Limit>; LIMITS],
    /// Limits in the table, to spare the look-up in the usual case of none.
    in_force: usize,
    /// Trains refused since one was taken.
    refusals: u32,
    /// Trains to hold back before one is tried again, whatever the route.
    pause: u32,
}

impl TrainLimits {
    pub(super) const fn new(segmentation: Segmentation) -> Self {
        Self { segmentation, limits: [None; LIMITS], in_force: 0, refusals: 0, pause: 0 }
    }

    pub(super) const fn segmentation(&self) -> Segmentation {
        self.segmentation
    }

    /// Whether a train of `size`-byte datagrams may be tried on the route with this digest.
    pub(super) fn allow(&mut self, digest: u64, size: usize) -> bool {
        if self.segmentation == Segmentation::Off {
            return false;
        }
        if self.pause > 0 {
            self.pause -= 1;
            return false;
        }
        if self.in_force == 0 {
            return true;
        }
        let entry = &mut self.limits[slot(digest)];
        match entry {
            Some(limit) if limit.digest == digest && size >= limit.size => {
                limit.left -= 1;
                if limit.left == 0 {
                    *entry = None;
                    self.in_force -= 1;
                }
                false
            }
            _ => true,
        }
    }

    /// The kernel has taken a train.
    pub(super) const fn accepted(&mut self) {
        self.refusals = 0;
    }

    /// The kernel has refused a train of `size`-byte datagrams, but takes them singly.
    pub(super) fn refused(&mut self, digest: u64, size: usize) {
        self.refusals += 1;
        if self.refusals >= REFUSALS_MAX {
            self.pause = PAUSE;
            // One more refusal after the pause is enough for the next one.
            self.refusals -= 1;
        }
        let limit = Limit { digest, size, left: RETRY_AFTER };
        if self.limits[slot(digest)].replace(limit).is_none() {
            self.in_force += 1;
        }
    }
}

const fn slot(digest: u64) -> usize {
    // The multiplication that made the digest leaves its best bits on top.
    (digest >> (u64::BITS - LIMITS.trailing_zeros())) as usize
}
