//! Datagrams received, several by one call.
//!
//! Each of the [`SLOTS`] has room for the largest datagram or train, with headroom before it and
//! tailroom behind it so that a codec can wrap what came in where it lies. The memory is asked for
//! once and comes from the kernel as it is first written to: a process that never sees more than
//! one small datagram at a time has two pages of it.

use std::net::SocketAddr;
use std::ops::Range;
use std::os::fd::AsFd;

use rustix::io::Errno;

use crate::datagram::control::Ancillary;
use crate::datagram::{Family, LocalAddress, Route, address};
use crate::ffi;
use crate::ffi::message::ReceiveHeaders;

/// Messages that one call receives at most.
pub const SLOTS: usize = 32;
/// Room of a slot for a message; no datagram and no train is longer (the length of an IP packet
/// is 16 bits wide).
pub const PAYLOAD_ROOM: usize = 1 << 16;
/// Errors of earlier sends (ICMP answers) passed over by one call, so that a host that sends them
/// without end cannot hold the worker.
const IGNORED_MAX: u32 = 8;

/// What one [`Inbox::receive`] came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// Messages in the inbox; 0 when there were none.
    pub messages: usize,
    /// Errors of earlier sends that the socket reported instead: a port or host unreachable.
    pub ignored: u32,
}

/// Reusable memory for messages received.
pub struct Inbox {
    memory: Box<[u8]>,
    headers: ReceiveHeaders,
    headroom: usize,
    stride: usize,
    messages: usize,
    /// Counts the calls that overwrote the slots, so that a stale [`Place`] is found out.
    generation: u64,
}

/// A message received: one datagram, or a train of them from one sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    start: usize,
    len: usize,
    segment: Option<usize>,
    /// Where it came from (IPv4-mapped addresses as IPv4).
    pub source: SocketAddr,
    /// The family of the socket it came in by, which a reply needs.
    pub family: Family,
    /// Which of our addresses it reached, for a listener.
    pub local: Option<LocalAddress>,
    /// Where it was going, at a transparent listener.
    pub destination: Option<SocketAddr>,
    /// It was longer than the slot and the rest is lost: drop it and count it.
    pub truncated: bool,
}

/// Bytes in an [`Inbox`], by position; valid until it receives again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub(super) start: usize,
    pub(super) len: usize,
    pub(super) generation: u64,
}

impl Inbox {
    /// Asks for the memory; `headroom` and `tailroom` are kept free around every message.
    pub fn new(headroom: usize, tailroom: usize) -> Self {
        // Whole cache lines, so that slots do not share one.
        let stride = (headroom + PAYLOAD_ROOM + tailroom).next_multiple_of(64);
        let mut memory = vec![0; SLOTS * stride].into_boxed_slice();
        ffi::keep_small_pages(&mut memory);
        let headers = ReceiveHeaders::new(SLOTS);
        Self { memory, headers, headroom, stride, messages: 0, generation: 0 }
    }

    /// Receives what is waiting on an internet datagram socket, over what was received before.
    ///
    /// # Errors
    /// The socket is broken or the kernel is out of memory. A socket with nothing to read, and the
    /// report of a datagram that did not arrive, are no errors.
    pub fn receive(&mut self, fd: impl AsFd) -> Result<Received, Errno> {
        self.generation += 1;
        self.messages = 0;
        let mut received = Received::default();
        let payloads = self.headroom..self.headroom + PAYLOAD_ROOM;
        loop {
            let slots = self.memory.chunks_exact_mut(self.stride);
            let slots = slots.map(|slot| &mut slot[payloads.clone()]);
            match self.headers.receive(fd.as_fd(), slots) {
                Ok(messages) => {
                    self.messages = messages;
                    received.messages = messages;
                    return Ok(received);
                }
                Err(Errno::AGAIN) => return Ok(received),
                Err(Errno::INTR) => {}
                Err(error) if is_report(error) => {
                    received.ignored += 1;
                    if received.ignored == IGNORED_MAX {
                        return Ok(received);
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Messages that the last call received.
    pub fn len(&self) -> usize {
        self.messages
    }

    /// Whether the last call received nothing.
    pub fn is_empty(&self) -> bool {
        self.messages == 0
    }

    /// What is known about message `index` of the last call.
    ///
    /// # Panics
    /// When there is no such message, or it came from another socket than an internet one.
    pub fn message(&self, index: usize) -> Message {
        assert!(index < self.messages, "message {index} of {}", self.messages);
        let (source, family) = address::decode(self.headers.name(index))
            .expect("the kernel names the sender of every internet datagram");
        let Ancillary { local, segment, destination } =
            Ancillary::parse(self.headers.control(index));
        let len = self.headers.len(index);
        Message {
            start: self.headroom,
            len,
            segment: segment.filter(|&size| size < len),
            source,
            family,
            local,
            destination,
            truncated: self.headers.is_truncated(index),
        }
    }

    /// The slot of message `index`: headroom, [`PAYLOAD_ROOM`] bytes, tailroom. The message is at
    /// [`Message::range`].
    ///
    /// # Panics
    /// When `index` is not below [`SLOTS`].
    pub fn slot(&mut self, index: usize) -> &mut [u8] {
        let start = index * self.stride;
        &mut self.memory[start..start + self.stride]
    }

    /// Names `range` of slot `index` for [`super::Outbox::push_received`].
    ///
    /// # Panics
    /// When the range is not inside the slot.
    pub fn place(&self, index: usize, range: Range<usize>) -> Place {
        assert!(index < SLOTS && range.start <= range.end && range.end <= self.stride);
        let start = index * self.stride + range.start;
        Place { start, len: range.len(), generation: self.generation }
    }

    /// The bytes from `start` on.
    pub(super) fn bytes(&self, start: usize, len: usize) -> &[u8] {
        &self.memory[start..start + len]
    }

    pub(super) fn generation(&self) -> u64 {
        self.generation
    }
}

impl Message {
    /// Where the message lies in its slot.
    pub fn range(&self) -> Range<usize> {
        self.start..self.start + self.len
    }

    /// Length of each datagram of a train but the last, which may be shorter; `None` for a single
    /// datagram.
    pub const fn segment(&self) -> Option<usize> {
        self.segment
    }

    /// Where the datagrams lie in the slot: one, perhaps empty, or those of a train.
    pub fn datagrams(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        let end = self.start + self.len;
        let size = self.segment.unwrap_or(self.len).max(1);
        let count = self.len.div_ceil(size).max(1);
        let start = self.start;
        (0..count).map(move |n| start + n * size..end.min(start + (n + 1) * size))
    }

    /// The way back to the sender, over the socket it came in by, from the address it reached.
    pub const fn reply(&self, socket: u64) -> Route {
        Route::to(socket, self.family, self.source).with_source(self.local)
    }
}

/// Whether an error tells what became of an earlier datagram rather than of this call: an ICMP
/// answer that the kernel keeps for a connected socket.
pub(super) fn is_report(error: Errno) -> bool {
    matches!(
        error,
        Errno::CONNREFUSED
            | Errno::HOSTUNREACH
            | Errno::NETUNREACH
            | Errno::HOSTDOWN
            | Errno::NONET
            | Errno::PROTO
            | Errno::NOPROTOOPT
            | Errno::OPNOTSUPP
            | Errno::ACCESS
    )
}
