//! Stream sockets, non-blocking and close-on-exec.
//!
//! Reads and writes return [`Io`]: the engine must tell "would block" from an end and from a
//! failure on every call, and an `io::Error` for the common case would say it less clearly.

mod intercept;
pub(crate) mod unix;

use std::fmt;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{self as rx, AddressFamily, SocketFlags, SocketType, sockopt};

use crate::datagram::Family;
use crate::ffi;

pub(crate) use intercept::allow_foreign;
pub use intercept::{Takes, mark_available, original_destination, transparent_available};
pub use unix::{UnixOptions, listen_unix};

/// Connections waiting to be accepted, per listener.
const BACKLOG: i32 = 1024;
/// Fast open requests waiting to be accepted, per listener.
const FAST_OPEN_QUEUE: i32 = 1024;
/// Unanswered keepalive probes before a connection is dead.
const KEEPALIVE_PROBES: u32 = 4;

/// Send buffer of a connection over loopback, bytes (the kernel doubles it for its own overhead).
/// There is no distance to fill, and what waits in a larger one only falls out of the cache before
/// the other side reads it: 28 % more CPU per byte. Elsewhere the kernel sizes it by need.
const LOOPBACK_SEND_BUFFER: usize = 128 << 10;

/// What a read or write came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Io {
    /// This many bytes moved, at least one.
    Moved(usize),
    /// Nothing to read, or no room to write, until the socket is ready again.
    Blocked,
    /// The peer has finished sending (reads only).
    End,
    /// The connection is broken.
    Failed(Errno),
}

impl Io {
    fn read(result: Result<usize, Errno>) -> Self {
        match result {
            Ok(0) => Self::End,
            other => Self::write(other),
        }
    }

    fn write(result: Result<usize, Errno>) -> Self {
        match result {
            Ok(n) => Self::Moved(n),
            Err(Errno::AGAIN | Errno::INTR) => Self::Blocked,
            Err(e) => Self::Failed(e),
        }
    }
}

/// Reads into one buffer.
pub fn read(fd: impl AsFd, buf: &mut [u8]) -> Io {
    Io::read(rustix::io::read(fd, buf))
}

/// Reads into several buffers in order.
pub fn read_vectored(fd: impl AsFd, bufs: &mut [IoSliceMut<'_>]) -> Io {
    Io::read(rustix::io::readv(fd, bufs))
}

/// Writes from one buffer.
pub fn write(fd: impl AsFd, buf: &[u8]) -> Io {
    Io::write(rx::send(fd, buf, rx::SendFlags::NOSIGNAL))
}

/// Writes from several buffers in order.
pub fn write_vectored(fd: impl AsFd, bufs: &[IoSlice<'_>]) -> Io {
    Io::write(rustix::io::writev(fd, bufs))
}

/// Options of connections, the same for those accepted and those opened.
#[derive(Clone, Debug, PartialEq)]
pub struct StreamOptions {
    /// Send small writes at once (TCP_NODELAY).
    pub no_delay: bool,
    /// Idle time after which the peer is probed, and the gap between probes; `None` never.
    pub keepalive: Option<Duration>,
    /// Send buffer, bytes; `None` leaves it to the kernel, which sizes it by need.
    pub send_buffer: Option<usize>,
    /// Receive buffer, bytes; `None` leaves it to the kernel.
    pub recv_buffer: Option<usize>,
    /// Multipath TCP where the kernel has it.
    pub multipath: bool,
    /// TCP fast open where the kernel has it.
    pub fast_open: bool,
}

impl StreamOptions {
    /// Small writes at once, and everything else as the kernel has it.
    pub const PLAIN: Self = Self {
        no_delay: true,
        keepalive: None,
        send_buffer: None,
        recv_buffer: None,
        multipath: false,
        fast_open: false,
    };
}

/// Options of connections we open.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OutboundOptions {
    /// Source address for IPv4 destinations.
    pub bind_v4: Option<std::net::Ipv4Addr>,
    /// Source address for IPv6 destinations.
    pub bind_v6: Option<std::net::Ipv6Addr>,
    /// Network interface (SO_BINDTODEVICE).
    pub interface: Option<String>,
    /// Firewall mark (SO_MARK); needs CAP_NET_ADMIN.
    pub mark: Option<u32>,
}

/// How a listener shares its port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortSharing {
    /// The port must be free: a second program on it is an error.
    Exclusive,
    /// Several listeners of ours take turns (SO_REUSEPORT).
    Shared,
}

/// Opens a listener. IPv6 listeners take IPv4 too unless `v6_only`.
///
/// # Errors
/// The address is in use, not ours, or not permitted.
pub fn listen(
    addr: SocketAddr,
    sharing: PortSharing,
    v6_only: bool,
    options: &StreamOptions,
) -> io::Result<OwnedFd> {
    listen_as(Takes::Own, addr, sharing, v6_only, options)
}

/// As [`listen`], for connections to other hosts as well.
///
/// # Errors
/// As for [`listen`], and where that is not permitted.
pub fn listen_as(
    takes: Takes,
    addr: SocketAddr,
    sharing: PortSharing,
    v6_only: bool,
    options: &StreamOptions,
) -> io::Result<OwnedFd> {
    let fd = stream_socket(addr, options.multipath)?;
    if takes == Takes::Any {
        allow_foreign(&fd, Family::of(addr.ip()))?;
    }
    // Without it a restart fails for a minute while old connections time out.
    sockopt::set_socket_reuseaddr(&fd, true)?;
    if sharing == PortSharing::Shared {
        sockopt::set_socket_reuseport(&fd, true)?;
    }
    if addr.is_ipv6() {
        sockopt::set_ipv6_v6only(&fd, v6_only)?;
    }
    // Accepted connections inherit these, so they cost nothing per connection.
    apply(&fd, addr, options)?;
    delay_acknowledgements(&fd)?;
    if let Some(idle) = options.keepalive {
        keep_alive(&fd, idle)?;
    }
    rx::bind(&fd, &addr)?;
    if options.fast_open {
        // A kernel without it serves plain connects; the start-up line says which it is.
        let _ = ffi::set_int(fd.as_fd(), libc::IPPROTO_TCP, libc::TCP_FASTOPEN, FAST_OPEN_QUEUE);
    }
    rx::listen(&fd, BACKLOG)?;
    Ok(fd)
}

/// Takes a port of `ip` that nobody has, without listening there: listeners of ours that share the
/// port ([`PortSharing::Shared`]) can be opened while this is held, and nobody else's.
///
/// # Errors
/// No port is free, or the address is not ours.
pub fn hold_port(ip: IpAddr) -> io::Result<(OwnedFd, SocketAddr)> {
    let addr = SocketAddr::new(ip, 0);
    let fd = stream_socket(addr, false)?;
    sockopt::set_socket_reuseaddr(&fd, true)?;
    sockopt::set_socket_reuseport(&fd, true)?;
    // For port 0 the kernel passes over ports that are shared already.
    rx::bind(&fd, &addr)?;
    let addr =
        SocketAddr::try_from(rx::getsockname(&fd)?).map_err(|_| io::ErrorKind::InvalidData)?;
    Ok((fd, addr))
}

/// Whether this kernel gives us TCP fast open, and if not why.
///
/// # Errors
/// Why not; plain connects serve the same peers.
pub fn fast_open_available() -> io::Result<()> {
    let fd = rx::socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    ffi::set_int(fd.as_fd(), libc::IPPROTO_TCP, libc::TCP_FASTOPEN_CONNECT, 1)
}

/// Whether this kernel gives us multipath TCP, and if not why.
///
/// # Errors
/// Why not; plain TCP serves the same peers.
pub fn multipath_available() -> io::Result<()> {
    let mptcp = Some(rx::ipproto::MPTCP);
    rx::socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, mptcp)?;
    Ok(())
}

/// Who has the first bytes for a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirstSender {
    /// We have, at once: they go out with the last packet of the handshake, or with fast open the
    /// first.
    Us,
    /// The peer may have, and must hear that we are there.
    Peer,
}

/// The other end of an accepted connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// A host (IPv4-mapped addresses as IPv4).
    Internet(SocketAddr),
    /// A process of this host.
    Unix,
}

impl Peer {
    /// Its address, if it has one.
    pub const fn address(self) -> Option<SocketAddr> {
        match self {
            Self::Internet(addr) => Some(addr),
            Self::Unix => None,
        }
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Internet(addr) => addr.fmt(f),
            Self::Unix => f.pad("unix socket"),
        }
    }
}

/// Accepts one connection of a [`listen`] or [`listen_unix`] socket.
///
/// # Errors
/// `WouldBlock` when there is none; out of descriptors; or the connection died in the queue.
pub fn accept(listener: impl AsFd) -> Result<(OwnedFd, Peer), Errno> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let (fd, addr) = rx::acceptfrom_with(listener, flags)?;
    let addr = addr.ok_or(Errno::CONNABORTED)?;
    if addr.address_family() == AddressFamily::UNIX {
        return Ok((fd, Peer::Unix));
    }
    let addr = SocketAddr::try_from(addr).map_err(|_| Errno::CONNABORTED)?;
    Ok((fd, Peer::Internet(SocketAddr::new(addr.ip().to_canonical(), addr.port()))))
}

/// A connect that has not failed.
#[derive(Debug)]
pub enum Connecting {
    /// The connection is there (with fast open: its first bytes will make it).
    Connected(OwnedFd),
    /// The socket turns writable when the connect has ended, see [`connect_result`].
    UnderWay(OwnedFd),
}

impl Connecting {
    /// The socket; it is writable when the connection is there.
    pub fn into_fd(self) -> OwnedFd {
        match self {
            Self::Connected(fd) | Self::UnderWay(fd) => fd,
        }
    }
}

/// Starts to connect. Over loopback the other end has usually answered before the call returns,
/// which saves waiting for it to be told.
///
/// Keepalive is not set up here: most connections end before they need it, see [`keep_alive`].
///
/// # Errors
/// The attempt failed at once.
pub fn connect(
    addr: SocketAddr,
    options: &StreamOptions,
    outbound: &OutboundOptions,
    dscp: Option<u8>,
    first_sender: FirstSender,
) -> io::Result<Connecting> {
    let fd = stream_socket(addr, options.multipath)?;
    apply(&fd, addr, options)?;
    if first_sender == FirstSender::Us {
        delay_acknowledgements(&fd)?;
    }
    if let Some(dscp) = dscp {
        set_dscp(&fd, Family::of(addr.ip()), dscp)?;
    }
    bind_outbound(&fd, addr.ip(), outbound)?;
    // It sends nothing at all until there are bytes.
    if options.fast_open && first_sender == FirstSender::Us {
        // Refused by old kernels; a plain connect follows then.
        let _ = ffi::set_int(fd.as_fd(), libc::IPPROTO_TCP, libc::TCP_FASTOPEN_CONNECT, 1);
    }
    let mut connected = rx::connect(&fd, &addr);
    if connected == Err(Errno::INPROGRESS) && addr.ip().is_loopback() {
        // The answer came while the socket was locked, and has been taken in since.
        connected = rx::connect(&fd, &addr);
    }
    match connected {
        Ok(()) => Ok(Connecting::Connected(fd)),
        Err(Errno::INPROGRESS | Errno::ALREADY) => Ok(Connecting::UnderWay(fd)),
        Err(e) => Err(e.into()),
    }
}

/// Has the peer probed after `idle` without a packet, and at that interval from then on.
///
/// # Errors
/// The connection is gone.
pub fn keep_alive(fd: impl AsFd, idle: Duration) -> Result<(), Errno> {
    let fd = fd.as_fd();
    unless_missing(sockopt::set_tcp_keepidle(fd, idle))?;
    unless_missing(sockopt::set_tcp_keepintvl(fd, idle))?;
    unless_missing(sockopt::set_tcp_keepcnt(fd, KEEPALIVE_PROBES))?;
    sockopt::set_socket_keepalive(fd, true)
}

/// Sets the differentiated services code point of what a socket of `family` sends.
///
/// # Errors
/// The socket is of another family.
pub fn set_dscp(fd: impl AsFd, family: Family, dscp: u8) -> Result<(), Errno> {
    // The upper six bits of the traffic class (RFC 2474). An IPv6 socket uses the first one for
    // what it sends by IPv4.
    let class = dscp << 2;
    sockopt::set_ip_tos(&fd, class)?;
    match family {
        Family::V4 => Ok(()),
        Family::V6 => sockopt::set_ipv6_tclass(&fd, class.into()),
    }
}

/// How a connect ended, asked once the socket is writable.
///
/// # Errors
/// Why it failed.
pub fn connect_result(fd: impl AsFd) -> Result<(), Errno> {
    sockopt::socket_error(fd)?
}

/// Finishes our writing side: the peer reads an end.
///
/// # Errors
/// The connection is gone.
pub fn finish_writing(fd: impl AsFd) -> Result<(), Errno> {
    rx::shutdown(fd, rx::Shutdown::Write)
}

/// Makes the coming close a reset.
pub fn reset_on_close(fd: impl AsFd) {
    // A socket that has failed already closes without it.
    let _ = sockopt::set_socket_linger(fd, Some(Duration::ZERO));
}

/// Our address on this socket (IPv4-mapped addresses as IPv4).
///
/// # Errors
/// Not an internet socket.
pub fn local_addr(fd: impl AsFd) -> Result<SocketAddr, Errno> {
    let addr = SocketAddr::try_from(rx::getsockname(fd)?)?;
    Ok(SocketAddr::new(addr.ip().to_canonical(), addr.port()))
}

/// A datagram socket connected to `addr`, from a fresh source port.
///
/// # Errors
/// No route, or out of descriptors.
pub fn connect_datagram(addr: SocketAddr, outbound: &OutboundOptions) -> io::Result<OwnedFd> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let fd = rx::socket_with(family(addr), SocketType::DGRAM, flags, None)?;
    bind_outbound(&fd, addr.ip(), outbound)?;
    rx::connect(&fd, &addr)?;
    Ok(fd)
}

fn family(addr: SocketAddr) -> AddressFamily {
    if addr.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 }
}

fn stream_socket(addr: SocketAddr, multipath: bool) -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    if multipath {
        // A kernel without MPTCP refuses the protocol; plain TCP serves the same peers.
        let mptcp = Some(rx::ipproto::MPTCP);
        if let Ok(fd) = rx::socket_with(family(addr), SocketType::STREAM, flags, mptcp) {
            return Ok(fd);
        }
    }
    rx::socket_with(family(addr), SocketType::STREAM, flags, None)
}

/// Starts with delayed acknowledgements instead of the kernel's first sixteen immediate ones: a
/// proxy answers what it reads, and the answer carries the acknowledgement. Four packets fewer
/// per proxied connection, 7 % of its CPU time. Delays the end of a connect's handshake as well,
/// by up to 200 ms.
fn delay_acknowledgements(fd: &OwnedFd) -> Result<(), Errno> {
    unless_missing(sockopt::set_tcp_quickack(fd, false))
}

fn apply(fd: &OwnedFd, addr: SocketAddr, options: &StreamOptions) -> Result<(), Errno> {
    if options.no_delay {
        sockopt::set_tcp_nodelay(fd, true)?;
    }
    let loopback = addr.ip().to_canonical().is_loopback().then_some(LOOPBACK_SEND_BUFFER);
    if let Some(bytes) = options.send_buffer.or(loopback) {
        sockopt::set_socket_send_buffer_size(fd, bytes)?;
    }
    if let Some(bytes) = options.recv_buffer {
        sockopt::set_socket_recv_buffer_size(fd, bytes)?;
    }
    Ok(())
}

/// Goes without an option that a multipath socket lacks where a plain one has it: Linux 6.18 gives
/// those no TCP_QUICKACK, kernels before 6.13 no times of keepalive. Each only tunes.
fn unless_missing(set: Result<(), Errno>) -> Result<(), Errno> {
    match set {
        Err(Errno::NOPROTOOPT | Errno::OPNOTSUPP) => Ok(()),
        other => other,
    }
}

pub(crate) fn bind_outbound(
    fd: &OwnedFd,
    to: IpAddr,
    outbound: &OutboundOptions,
) -> io::Result<()> {
    if let Some(mark) = outbound.mark {
        ffi::set_bytes(fd.as_fd(), libc::SOL_SOCKET, libc::SO_MARK, &mark.to_ne_bytes())?;
    }
    if let Some(interface) = &outbound.interface {
        let name = interface.as_bytes();
        ffi::set_bytes(fd.as_fd(), libc::SOL_SOCKET, libc::SO_BINDTODEVICE, name)?;
    }
    let source: Option<IpAddr> = match to {
        IpAddr::V4(_) => outbound.bind_v4.map(Into::into),
        IpAddr::V6(_) => outbound.bind_v6.map(Into::into),
    };
    if let Some(source) = source {
        // The port is chosen at connect, by destination: else each connection would use up one
        // of 28,000 ports until TIME_WAIT ends.
        ffi::set_int(fd.as_fd(), libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT, 1)?;
        rx::bind(fd, &SocketAddr::new(source, 0))?;
    }
    Ok(())
}
