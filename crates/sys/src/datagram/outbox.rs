//! Datagrams to send, collected and sent by as few calls as possible.
//!
//! Datagrams of a route become trains (see [`super::TRAIN_SEGMENTS_MAX`]) also when others come
//! between them; those of a socket become one `sendmmsg`. The bytes are never copied: they lie in
//! the inbox they came in by, or in the arena here, where a codec builds them in place. The arena
//! is filled from its end downwards, because a packet is built around its payload from the back:
//! what was reserved for a head and not used is the next one's room.
//!
//! Sockets are named by the caller's tokens, and turned into descriptors at the flush: a socket
//! that was closed in between is no longer there, and a descriptor that another file has got
//! since cannot be met.

use std::ops::Range;
use std::os::fd::BorrowedFd;

use rustix::io::Errno;

use crate::datagram::control::ControlBuf;
use crate::datagram::inbox::is_report;
use crate::datagram::queue::{Area, Cursor, DATAGRAMS_MAX, Datagram, Queue, Unit};
use crate::datagram::train::{Sending, TrainLimits};
use crate::datagram::{Inbox, Place, Route, Segmentation, address, segmentation_available};
use crate::ffi;
use crate::ffi::message::{NAME_LEN, SendHeaders};

/// Bytes of datagrams that an outbox holds in its own memory.
pub const ARENA_LEN: usize = 512 << 10;

/// Messages in one call.
const BATCH: usize = 64;

/// There is no room: flush, then try again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// What became of the datagrams of one or more flushes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flushed {
    /// Datagrams the kernel took.
    pub sent: u64,
    /// Datagrams thrown away because the socket's buffer was full or the socket was gone.
    pub dropped: u64,
    /// Datagrams that are too long for UDP or for the way they should have gone.
    pub too_long: u64,
    /// Datagrams the kernel refused for another reason: no route, a firewall.
    pub failed: u64,
    /// The last of those reasons.
    pub error: Option<Errno>,
    /// The token of a socket that will send nothing more: the interface that it is bound to is
    /// gone, and one that comes by the same name is another one to the kernel.
    pub dead: Option<u64>,
    /// Sending calls.
    pub calls: u64,
}

/// Reusable memory for datagrams to send.
pub struct Outbox {
    arena: Box<[u8]>,
    /// The arena is free below this.
    free: usize,
    /// Length of the reservation that ends at `free`.
    reserved: usize,
    queue: Queue,
    headers: SendHeaders,
    limits: TrainLimits,
    /// Which of the inbox's receptions the datagrams in it belong to, while there are any.
    generation: Option<u64>,
}

impl Outbox {
    /// Asks for the memory; it comes from the kernel as it is first written to. Without
    /// segmentation in the kernel it is off.
    pub fn new(segmentation: Segmentation) -> Self {
        // A kernel that does not know trains would take one for a single long datagram.
        let segmentation = match segmentation {
            Segmentation::On if segmentation_available().is_ok() => Segmentation::On,
            _ => Segmentation::Off,
        };
        let mut arena = vec![0; ARENA_LEN].into_boxed_slice();
        ffi::keep_small_pages(&mut arena);
        Self {
            arena,
            free: ARENA_LEN,
            reserved: 0,
            queue: Queue::new(),
            headers: SendHeaders::new(BATCH, DATAGRAMS_MAX),
            limits: TrainLimits::new(segmentation),
            generation: None,
        }
    }

    /// Whether trains are sent.
    pub const fn segmentation(&self) -> Segmentation {
        self.limits.segmentation()
    }

    /// Whether nothing waits to be sent.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// How many datagrams wait to be sent.
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// Room of `len` bytes to build a datagram in, with its parts around the payload. It is free
    /// again at the next call of this unless [`Outbox::push_reserved`] keeps a part of it.
    ///
    /// Build towards the end of it: what is left free at the start is given out again, what is
    /// left at the end is lost until the flush.
    ///
    /// # Errors
    /// There is no room.
    pub fn reserve(&mut self, len: usize) -> Result<&mut [u8], Full> {
        if len > self.free || self.queue.is_full() {
            return Err(Full);
        }
        self.reserved = len;
        Ok(&mut self.arena[self.free - len..self.free])
    }

    /// Takes `range` of what was last reserved as a datagram for `route`.
    ///
    /// # Panics
    /// When the range is not inside the reservation.
    pub fn push_reserved(&mut self, range: Range<usize>, route: &Route) {
        assert!(range.start <= range.end && range.end <= self.reserved, "inside the reservation");
        let start = self.free - self.reserved + range.start;
        self.free = start;
        self.reserved = 0;
        self.queue.push(Area::Arena, start, range.len(), route);
    }

    /// Takes bytes in the inbox as a datagram for `route`. Flush before the inbox receives again.
    ///
    /// # Errors
    /// There is no room.
    ///
    /// # Panics
    /// When the inbox has received since it gave the place, or since the last datagram here.
    pub fn push_received(&mut self, place: Place, route: &Route) -> Result<(), Full> {
        if self.queue.is_full() {
            return Err(Full);
        }
        let generation = *self.generation.get_or_insert(place.generation);
        assert_eq!(generation, place.generation, "flushed before the inbox receives again");
        self.queue.push(Area::Inbox, place.start, place.len, route);
        Ok(())
    }

    /// Sends everything that waits. `socket` gives the descriptor for a route's token, or `None`
    /// when that socket is gone. Nothing is left: what does not go is dropped and counted.
    ///
    /// # Panics
    /// When the inbox has received since a datagram in it was pushed.
    pub fn flush<'fd>(
        &mut self,
        inbox: &Inbox,
        mut socket: impl FnMut(u64) -> Option<BorrowedFd<'fd>>,
    ) -> Flushed {
        let mut flushed = Flushed::default();
        if let Some(generation) = self.generation.take() {
            let current = inbox.generation();
            assert_eq!(generation, current, "flushed before the inbox receives again");
        }
        self.queue.sort();
        let trains = self.queue.sorted_len();
        let mut start = 0;
        while start < trains {
            let token = self.queue.train(start).route.socket;
            let others = (start..trains).find(|&at| self.queue.train(at).route.socket != token);
            let end = others.unwrap_or(trains);
            match socket(token) {
                Some(fd) => {
                    let failed = flushed.failed;
                    self.send(fd, start..end, inbox, &mut flushed);
                    if flushed.failed > failed && flushed.error == Some(Errno::NODEV) {
                        flushed.dead = Some(token);
                    }
                }
                None => flushed.dropped += self.queue.waiting(self.queue.cursor(start), end),
            }
            start = end;
        }
        self.queue.clear();
        self.free = ARENA_LEN;
        self.reserved = 0;
        flushed
    }

    /// Sends the trains of one socket.
    fn send(
        &mut self,
        fd: BorrowedFd<'_>,
        trains: Range<usize>,
        inbox: &Inbox,
        flushed: &mut Flushed,
    ) {
        let end = trains.end;
        let mut cursor = self.queue.cursor(trains.start);
        // Whether the call that begins at the cursor has already been told of an earlier datagram.
        let mut told = false;
        while cursor.at < end {
            let mut units = [Unit { from: cursor, count: 0 }; BATCH];
            let result = self.send_batch(fd, cursor, end, inbox, &mut units);
            flushed.calls += 1;
            let first = units[0];
            match result {
                Ok(sent) => {
                    for &unit in &units[..sent] {
                        self.note_sent(unit);
                        flushed.sent += u64::from(unit.count);
                        cursor = self.queue.after(unit);
                    }
                    told = false;
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN | Errno::NOBUFS | Errno::NOMEM) => {
                    flushed.dropped += self.queue.waiting(cursor, end);
                    return;
                }
                Err(error) if is_report(error) && !told => told = true,
                Err(error) if first.count > 1 && refuses_trains(error) => {
                    self.queue.train_mut(cursor.at).0.sending = Sending::Refused;
                }
                Err(error) => {
                    let lost = u64::from(first.count);
                    if error == Errno::MSGSIZE {
                        flushed.too_long += lost;
                    } else {
                        flushed.failed += lost;
                        flushed.error = Some(error);
                    }
                    cursor = self.queue.after(first);
                    told = false;
                }
            }
        }
    }

    /// Makes one call with as many messages as fit, noted in `units`; returns how many went.
    fn send_batch(
        &mut self,
        fd: BorrowedFd<'_>,
        from: Cursor,
        end: usize,
        inbox: &Inbox,
        units: &mut [Unit; BATCH],
    ) -> Result<usize, Errno> {
        let Self { arena, queue, headers, limits, .. } = self;
        let mut batch = headers.start();
        let mut cursor = from;
        while cursor.at < end {
            let (train, digest) = queue.train_mut(cursor.at);
            let is_whole = cursor.left == train.count && train.count > 1;
            if is_whole && train.sending == Sending::Together && !limits.allow(digest, train.size) {
                train.sending = Sending::Singly;
            }
            let count = if train.sending == Sending::Together { cursor.left } else { 1 };
            if !batch.has_room(count as usize) {
                break;
            }
            let Route { family, to, from, .. } = train.route;
            let mut name = [0; NAME_LEN];
            let name_len = to.map_or(0, |to| address::encode(to, family, &mut name));
            let mut control = ControlBuf::new();
            if let Some(from) = from {
                control.push_source(from, family);
            }
            if count > 1 {
                control.push_segment(train.size);
            }
            let unit = Unit { from: cursor, count };
            let pieces = queue.chain(unit).map(|&Datagram { area, start, len, .. }| match area {
                Area::Arena => &arena[start..start + len],
                Area::Inbox => inbox.bytes(start, len),
            });
            units[batch.len()] = unit;
            batch.push(&name[..name_len], control.as_bytes(), pieces);
            cursor = queue.after(unit);
        }
        batch.send(fd)
    }

    /// Learns from a message that went.
    fn note_sent(&mut self, unit: Unit) {
        if unit.count > 1 {
            self.limits.accepted();
            return;
        }
        let (train, digest) = self.queue.train_mut(unit.from.at);
        // Only now is it known that the train was at fault and not its destination.
        if train.sending == Sending::Refused {
            train.sending = Sending::Singly;
            self.limits.refused(digest, train.size);
        }
    }
}

/// Whether the kernel may take the datagrams of a train singly that it has refused with `error`:
/// the segment does not fit the path (EINVAL, EMSGSIZE since 6.14), or the path cannot cut trains
/// apart (EIO: IPsec, or no checksum offload).
const fn refuses_trains(error: Errno) -> bool {
    matches!(
        error,
        Errno::IO | Errno::INVAL | Errno::MSGSIZE | Errno::NOPROTOOPT | Errno::OPNOTSUPP
    )
}
