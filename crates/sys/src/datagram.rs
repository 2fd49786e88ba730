//! UDP sockets, and datagrams received and sent many at a time.
//!
//! A worker has one [`Inbox`] and one [`Outbox`]. It receives from a socket into the inbox, works
//! on the bytes in place, puts what is to be sent into the outbox (by reference to the inbox, or
//! built in the outbox's own memory) and flushes it before it receives again:
//!
//! ```text
//! inbox.receive(listener) -> message(i), slot(i) -> outbox.push_received(inbox.place(i, range), route)
//!                                                   outbox.reserve(len), outbox.push_reserved(range, route)
//!                            outbox.flush(&inbox, |token| descriptor of that socket)
//! ```
//!
//! Cost of a datagram on the way through, besides the kernel's own: 1/32 of a receiving call (less
//! where the kernel hands over trains), a scan of up to 32 words for a train to join, 16 bytes of
//! piece, and its share of one sending call for each socket.
//!
//! Fragmentation is left to the kernel. IPv4 sockets leave "don't fragment" clear
//! (`IP_PMTUDISC_DONT`): a datagram larger than the path is split here or by a router, and is never
//! refused with EMSGSIZE nor lost in a network that drops the reports of too large packets. That
//! does not touch trains: the kernel checks a train's segment size against the path and refuses it
//! (EINVAL or EMSGSIZE) rather than fragment it, whatever this option says, and the outbox sends
//! its datagrams singly then. `IP_PMTUDISC_OMIT`, which would also ignore what routers report, is
//! not used because the kernel could not split for a narrow path any more. IPv6 keeps its default,
//! which splits here for the path known; routers never do.
//!
//! Invariants: nothing allocates after construction; every queue is bounded, and what does not fit
//! is refused to the caller or dropped and counted.

pub(crate) mod address;
mod control;
mod inbox;
mod outbox;
mod queue;
mod route;
mod socket;
mod train;
mod transparent;

pub use inbox::{Inbox, Message, PAYLOAD_ROOM, Place, Received, SLOTS};
pub use outbox::{ARENA_LEN, Flushed, Full, Outbox};
pub use queue::DATAGRAMS_MAX;
pub use route::{Family, LocalAddress, Route};
pub use socket::{
    DatagramOptions, LISTENER_BUFFER, bind, coalescing_available, connect, is_local_address, open,
    segmentation_available,
};
pub use train::{Segmentation, TRAIN_LEN_MAX, TRAIN_SEGMENTS_MAX};
pub use transparent::{bind_transparent, open_as};

#[cfg(test)]
mod tests;
