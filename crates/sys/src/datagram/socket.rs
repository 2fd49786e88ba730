//! Sockets for datagrams: listeners, and those towards other hosts.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{self as rx, AddressFamily, SocketFlags, SocketType, sockopt};

use crate::datagram::Family;
use crate::ffi;
use crate::net::{OutboundOptions, PortSharing, bind_outbound, set_dscp};

/// What a listener asks for as its buffers, in bytes, when its options do not say otherwise and
/// the system does not give more: a burst of about 1,800 full-size datagrams (the kernel counts 2,304 bytes for each), or 60 trains.
/// It is a limit, not a reservation: an empty buffer takes no memory.
pub const LISTENER_BUFFER: usize = 4 << 20;

/// Options of datagram sockets.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DatagramOptions {
    /// Send buffer, bytes; `None` is [`LISTENER_BUFFER`] for a listener, else the kernel's default.
    pub send_buffer: Option<usize>,
    /// Receive buffer, bytes; `None` as for the send buffer.
    pub recv_buffer: Option<usize>,
    /// Take trains of datagrams from the kernel in one piece (UDP_GRO) where it has that.
    pub coalesce: bool,
    /// Differentiated services code point of what is sent.
    pub dscp: Option<u8>,
}

/// Opens a listener that learns which of our addresses each datagram reached. IPv6 listeners take
/// IPv4 too unless `v6_only`.
///
/// # Errors
/// The address is in use, not ours, or not permitted.
pub fn bind(
    addr: SocketAddr,
    sharing: PortSharing,
    v6_only: bool,
    options: &DatagramOptions,
) -> io::Result<OwnedFd> {
    let family = Family::of(addr.ip());
    let fd = socket(family)?;
    // No SO_REUSEADDR: for datagrams it would let a second program take the port over.
    if sharing == PortSharing::Shared {
        sockopt::set_socket_reuseport(&fd, true)?;
    }
    if family == Family::V6 {
        sockopt::set_ipv6_v6only(&fd, v6_only)?;
        ffi::set_int(fd.as_fd(), libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, 1)?;
    }
    if family == Family::V4 || !v6_only {
        ffi::set_int(fd.as_fd(), libc::IPPROTO_IP, libc::IP_PKTINFO, 1)?;
    }
    finish_listener(fd, addr, options)
}

/// Gives a listener the options that all have, and its address.
pub(super) fn finish_listener(
    fd: OwnedFd,
    addr: SocketAddr,
    options: &DatagramOptions,
) -> io::Result<OwnedFd> {
    apply(&fd, Family::of(addr.ip()), options)?;
    let send = sockopt::socket_send_buffer_size(&fd)?;
    set_buffer(&fd, Buffer::Send, options.send_buffer.or_else(|| listener_buffer(send)))?;
    let recv = sockopt::socket_recv_buffer_size(&fd)?;
    set_buffer(&fd, Buffer::Receive, options.recv_buffer.or_else(|| listener_buffer(recv)))?;
    rx::bind(&fd, &addr)?;
    Ok(fd)
}

/// Opens a socket to send to any address of one family; the kernel gives it a port of its own
/// when it first sends. An IPv6 one takes no IPv4.
///
/// # Errors
/// The source address is not ours, an option is not permitted, or out of descriptors.
pub fn open(
    family: Family,
    outbound: &OutboundOptions,
    options: &DatagramOptions,
) -> io::Result<OwnedFd> {
    let fd = socket(family)?;
    let any: IpAddr = match family {
        Family::V4 => Ipv4Addr::UNSPECIFIED.into(),
        Family::V6 => Ipv6Addr::UNSPECIFIED.into(),
    };
    if family == Family::V6 {
        sockopt::set_ipv6_v6only(&fd, true)?;
    }
    apply(&fd, family, options)?;
    set_buffer(&fd, Buffer::Send, options.send_buffer)?;
    set_buffer(&fd, Buffer::Receive, options.recv_buffer)?;
    bind_outbound(&fd, any, outbound)?;
    Ok(fd)
}

/// Opens a socket that is connected to `addr`: it takes datagrams from there only, and hears when
/// nobody listens there.
///
/// # Errors
/// As for [`open`], or there is no route.
pub fn connect(
    addr: SocketAddr,
    outbound: &OutboundOptions,
    options: &DatagramOptions,
) -> io::Result<OwnedFd> {
    let fd = open(Family::of(addr.ip()), outbound, options)?;
    rx::connect(&fd, &addr)?;
    Ok(fd)
}

/// Whether this kernel sends trains of datagrams in one piece (UDP_SEGMENT), and if not why.
///
/// # Errors
/// Why not; datagrams are sent singly then.
pub fn segmentation_available() -> io::Result<()> {
    ffi::set_int(socket(Family::V4)?.as_fd(), libc::SOL_UDP, libc::UDP_SEGMENT, 0)
}

/// Whether this kernel hands over trains of datagrams in one piece (UDP_GRO), and if not why.
///
/// # Errors
/// Why not; datagrams are received singly then.
pub fn coalescing_available() -> io::Result<()> {
    ffi::set_int(socket(Family::V4)?.as_fd(), libc::SOL_UDP, libc::UDP_GRO, 1)
}

/// Whether `ip` is an address of this host (unspecified addresses, which reach it, included).
///
/// Where the host may bind to addresses it does not have (`ip_nonlocal_bind`) every address looks
/// like one. Of an IPv6 link-local address nothing is known without its interface: not ours.
pub fn is_local_address(ip: IpAddr) -> bool {
    let ip = ip.to_canonical();
    // The kernel binds to these though nobody owns them.
    if ip.is_multicast() || ip == Ipv4Addr::BROADCAST {
        return false;
    }
    socket(Family::of(ip)).and_then(|fd| rx::bind(&fd, &SocketAddr::new(ip, 0))).is_ok()
}

pub(super) fn socket(family: Family) -> Result<OwnedFd, Errno> {
    let family = match family {
        Family::V4 => AddressFamily::INET,
        Family::V6 => AddressFamily::INET6,
    };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    rx::socket_with(family, SocketType::DGRAM, flags, None)
}

pub(super) fn apply(fd: &OwnedFd, family: Family, options: &DatagramOptions) -> io::Result<()> {
    // See the module documentation. An IPv6 socket that carries IPv4 has this option too.
    let never = libc::IP_PMTUDISC_DONT;
    ffi::set_int(fd.as_fd(), libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, never)?;
    if options.coalesce {
        // A kernel without it gives single datagrams; the start-up line says which it is.
        let _ = ffi::set_int(fd.as_fd(), libc::SOL_UDP, libc::UDP_GRO, 1);
    }
    if let Some(dscp) = options.dscp {
        set_dscp(fd, family, dscp)?;
    }
    Ok(())
}

/// What to ask for where the options do not say; `default` is what the system gives.
fn listener_buffer(default: usize) -> Option<usize> {
    // The kernel doubles what it is asked for, to have room for its own.
    (default < 2 * LISTENER_BUFFER).then_some(LISTENER_BUFFER)
}

#[derive(Clone, Copy)]
pub(super) enum Buffer {
    Send,
    Receive,
}

/// Sets the size of a buffer, beyond the system's limit where this process may.
pub(super) fn set_buffer(fd: &OwnedFd, which: Buffer, bytes: Option<usize>) -> io::Result<()> {
    let Some(bytes) = bytes else { return Ok(()) };
    let force = match which {
        Buffer::Send => libc::SO_SNDBUFFORCE,
        Buffer::Receive => libc::SO_RCVBUFFORCE,
    };
    let forced = i32::try_from(bytes).unwrap_or(i32::MAX);
    if ffi::set_int(fd.as_fd(), libc::SOL_SOCKET, force, forced).is_ok() {
        return Ok(());
    }
    match which {
        Buffer::Send => sockopt::set_socket_send_buffer_size(fd, bytes)?,
        Buffer::Receive => sockopt::set_socket_recv_buffer_size(fd, bytes)?,
    }
    Ok(())
}
