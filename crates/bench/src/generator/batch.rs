//! Batches of datagrams for the generator and its target: memory, buffers, waiting.
//!
//! The batches are those of `adit-sys`, one system call for many datagrams and no allocation for
//! any. Without trains (GSO): a generator that sends in trains would spare the measured programs
//! most of what receiving costs, which no real crowd of clients does.

use std::io;
use std::net::UdpSocket;
use std::time::Duration;

use adit_sys::datagram::{Flushed, Inbox, Outbox, Segmentation};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt;

/// Most datagrams that are collected before they are sent.
pub(crate) const BATCH_LEN: usize = 64;
/// Room for what arrives while its thread does something else.
const SOCKET_BUFFER_LEN: usize = 4 << 20;
/// Free space before each datagram received. It is not used: it shifts the slots against each
/// other, which would otherwise compete for the same lines of the cache.
const HEADROOM: usize = 640;

/// Memory for datagrams received.
pub(crate) fn inbox() -> Inbox {
    Inbox::new(HEADROOM, 0)
}

/// Memory for datagrams to send.
pub(crate) fn outbox() -> Outbox {
    Outbox::new(Segmentation::Off)
}

/// Makes a socket fit for batches: non-blocking, with as large a buffer as this process may have.
pub(crate) fn prepare(socket: &UdpSocket) -> io::Result<()> {
    socket.set_nonblocking(true)?;
    // Beyond the system's limit for those who may.
    if sockopt::set_socket_recv_buffer_size_force(socket, SOCKET_BUFFER_LEN).is_err() {
        sockopt::set_socket_recv_buffer_size(socket, SOCKET_BUFFER_LEN)?;
    }
    Ok(())
}

/// Waits until the socket has a datagram, but not longer than `patience`.
pub(crate) fn wait(socket: &UdpSocket, patience: Duration) -> io::Result<()> {
    let timeout = Timespec::try_from(patience).map_err(io::Error::other)?;
    match poll(&mut [PollFd::new(socket, PollFlags::IN)], Some(&timeout)) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Datagrams for which the kernel had no room; that it refuses others is an error.
pub(crate) fn dropped(flushed: Flushed) -> io::Result<u64> {
    match flushed {
        Flushed { error: Some(error), .. } => Err(error.into()),
        Flushed { too_long: 0, failed: 0, dropped, .. } => Ok(dropped),
        Flushed { .. } => Err(io::Error::other("the kernel refused a datagram")),
    }
}
