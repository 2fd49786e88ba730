//! Sockets for datagrams between two other hosts (TPROXY): the listener that takes what clients
//! send to anybody, and those that answer in the name of whom it was sent to.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};

use rustix::net::{self as rx, sockopt};

use crate::datagram::socket::{Buffer, apply, finish_listener, set_buffer, socket};
use crate::datagram::{DatagramOptions, Family};
use crate::ffi;
use crate::net::{PortSharing, allow_foreign};

/// Receive buffer of a socket that nothing is read from, bytes: the kernel makes it the least it
/// allows.
const UNREAD_BUFFER: usize = 1;

/// Opens a listener that takes datagrams to any address, and learns where each was going
/// ([`super::Message::destination`]). IPv6 listeners take IPv4 too unless `v6_only`.
///
/// # Errors
/// The address is in use or not ours, or this process may not (CAP_NET_ADMIN).
pub fn bind_transparent(
    addr: SocketAddr,
    sharing: PortSharing,
    v6_only: bool,
    options: &DatagramOptions,
) -> io::Result<OwnedFd> {
    let family = Family::of(addr.ip());
    let fd = socket(family)?;
    if sharing == PortSharing::Shared {
        share_with_answers(&fd)?;
    }
    allow_foreign(&fd, family)?;
    if family == Family::V6 {
        sockopt::set_ipv6_v6only(&fd, v6_only)?;
        ffi::set_int(fd.as_fd(), libc::IPPROTO_IPV6, libc::IPV6_RECVORIGDSTADDR, 1)?;
    }
    // Without it a datagram by IPv4 would come without its destination.
    if family == Family::V4 || !v6_only {
        ffi::set_int(fd.as_fd(), libc::IPPROTO_IP, libc::IP_RECVORIGDSTADDR, 1)?;
    }
    finish_listener(fd, addr, options)
}

/// Opens a socket that sends as `addr`, which is another host's. Nothing is to be read from it:
/// what is sent to `addr` goes to a listener.
///
/// # Errors
/// `AddrInUse` when a socket of this host has the port for every address and does not share it;
/// this process may not (CAP_NET_ADMIN); or out of descriptors.
pub fn open_as(
    addr: SocketAddr,
    mark: Option<u32>,
    options: &DatagramOptions,
) -> io::Result<OwnedFd> {
    let family = Family::of(addr.ip());
    let fd = socket(family)?;
    share_with_answers(&fd)?;
    allow_foreign(&fd, family)?;
    if family == Family::V6 {
        sockopt::set_ipv6_v6only(&fd, true)?;
    }
    if let Some(mark) = mark {
        ffi::set_bytes(fd.as_fd(), libc::SOL_SOCKET, libc::SO_MARK, &mark.to_ne_bytes())?;
    }
    let options = DatagramOptions { coalesce: false, ..options.clone() };
    apply(&fd, family, &options)?;
    set_buffer(&fd, Buffer::Send, options.send_buffer)?;
    sockopt::set_socket_recv_buffer_size(&fd, UNREAD_BUFFER)?;
    rx::bind(&fd, &addr)?;
    Ok(fd)
}

/// Lets a listener and sockets that answer have the same port, whichever comes first: a client may
/// well talk to a host at the port that we listen on here. SO_REUSEPORT alone would do that among
/// sockets of one user, and the listener may have been opened by another (option `user`).
fn share_with_answers(fd: &OwnedFd) -> io::Result<()> {
    sockopt::set_socket_reuseaddr(fd, true)?;
    sockopt::set_socket_reuseport(fd, true)?;
    Ok(())
}
