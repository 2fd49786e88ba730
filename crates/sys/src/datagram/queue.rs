//! Datagrams waiting to be sent, in trains, in the order that their routes ask for.

use crate::datagram::Route;
use crate::datagram::train::Train;

/// Datagrams that an outbox holds.
pub const DATAGRAMS_MAX: usize = 512;

/// Trains looked at, from the newest back, for one that a datagram can join: what one call
/// receives from as many senders as it has slots.
const LOOK_BACK: usize = 32;

/// Datagrams waiting, in trains.
pub(super) struct Queue {
    datagrams: Vec<Datagram>,
    trains: Vec<Train>,
    /// [`Route::digest`] of each train.
    digests: Vec<u64>,
    /// Positions of the trains, those of one socket side by side; filled by [`Queue::sort`].
    order: Vec<u32>,
}

/// Bytes to send.
#[derive(Clone, Copy)]
pub(super) struct Datagram {
    pub(super) area: Area,
    pub(super) start: usize,
    pub(super) len: usize,
    /// The next one of its train; meaningless for the last.
    next: u32,
}

/// Whose memory the bytes lie in.
#[derive(Clone, Copy)]
pub(super) enum Area {
    Arena,
    Inbox,
}

/// How far the sending has come.
#[derive(Clone, Copy)]
pub(super) struct Cursor {
    /// Which train, in sorted order.
    pub(super) at: usize,
    /// The datagram to go on with, and how many of its train are left with it.
    pub(super) datagram: u32,
    pub(super) left: u32,
}

/// One message of a call: so many datagrams of one train from the cursor on.
#[derive(Clone, Copy)]
pub(super) struct Unit {
    pub(super) from: Cursor,
    pub(super) count: u32,
}

impl Queue {
    pub(super) fn new() -> Self {
        Self {
            datagrams: Vec::with_capacity(DATAGRAMS_MAX),
            trains: Vec::with_capacity(DATAGRAMS_MAX),
            digests: Vec::with_capacity(DATAGRAMS_MAX),
            order: Vec::with_capacity(DATAGRAMS_MAX),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.datagrams.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.datagrams.len()
    }

    pub(super) fn is_full(&self) -> bool {
        self.datagrams.len() == DATAGRAMS_MAX
    }

    pub(super) fn clear(&mut self) {
        self.datagrams.clear();
        self.trains.clear();
        self.digests.clear();
        self.order.clear();
    }

    /// Adds a datagram to the newest train of its route, or as a train of its own behind it: a
    /// route keeps its order. The caller has checked that there is room.
    pub(super) fn push(&mut self, area: Area, start: usize, len: usize, route: &Route) {
        let index = self.datagrams.len() as u32;
        self.datagrams.push(Datagram { area, start, len, next: index });
        let digest = route.digest();
        let oldest = self.trains.len().saturating_sub(LOOK_BACK);
        let newest = self.digests[oldest..].iter().rposition(|&d| d == digest);
        if let Some(train) = newest.map(|n| &mut self.trains[oldest + n])
            && train.takes(len)
            && train.route == *route
        {
            self.datagrams[train.last as usize].next = index;
            train.append(index, len);
            return;
        }
        self.trains.push(Train::new(*route, index, len));
        self.digests.push(digest);
    }

    /// Puts the trains of each socket side by side, in the order in which they came.
    pub(super) fn sort(&mut self) {
        let trains = &self.trains;
        self.order.clear();
        self.order.extend(0..trains.len() as u32);
        self.order.sort_unstable_by_key(|&train| (trains[train as usize].route.socket, train));
    }

    /// Number of trains in sorted order.
    pub(super) fn sorted_len(&self) -> usize {
        self.order.len()
    }

    /// Train `at` in sorted order.
    pub(super) fn train(&self, at: usize) -> &Train {
        &self.trains[self.order[at] as usize]
    }

    /// Train `at` in sorted order, with the digest of its route.
    pub(super) fn train_mut(&mut self, at: usize) -> (&mut Train, u64) {
        let index = self.order[at] as usize;
        (&mut self.trains[index], self.digests[index])
    }

    /// The first datagram of train `at`; behind the last train, the end.
    pub(super) fn cursor(&self, at: usize) -> Cursor {
        match self.order.get(at) {
            Some(&index) => {
                let train = &self.trains[index as usize];
                Cursor { at, datagram: train.first, left: train.count }
            }
            None => Cursor { at, datagram: 0, left: 0 },
        }
    }

    /// What follows a unit.
    pub(super) fn after(&self, unit: Unit) -> Cursor {
        let Unit { from, count } = unit;
        if from.left == count {
            return self.cursor(from.at + 1);
        }
        let last = self.chain(unit).last().expect("a unit has a datagram");
        Cursor { at: from.at, datagram: last.next, left: from.left - count }
    }

    /// The datagrams of a unit.
    pub(super) fn chain(&self, unit: Unit) -> impl Iterator<Item = &Datagram> {
        let mut index = unit.from.datagram;
        (0..unit.count).map(move |_| {
            let datagram = &self.datagrams[index as usize];
            index = datagram.next;
            datagram
        })
    }

    /// Datagrams from the cursor up to train `end` in sorted order.
    pub(super) fn waiting(&self, from: Cursor, end: usize) -> u64 {
        let rest = (from.at + 1..end).map(|at| u64::from(self.train(at).count));
        u64::from(from.left) + rest.sum::<u64>()
    }
}
