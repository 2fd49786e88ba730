//! Connections and datagrams that were on their way elsewhere and that the firewall gave to us.
//!
//! Two ways: REDIRECT (or DNAT) rewrites the destination, which connection tracking remembers;
//! TPROXY rewrites nothing, and a socket that may take other hosts' addresses (`IP_TRANSPARENT`)
//! has the destination as its own address. Constants are those of the kernel's
//! `linux/netfilter_ipv4.h`, `linux/netfilter_ipv6/ip6_tables.h`, `linux/in.h` and `linux/in6.h`.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;

use rustix::io::Errno;
use rustix::net::{self as rx, AddressFamily, SocketFlags, SocketType};

use crate::datagram::{Family, address};
use crate::ffi;
use crate::ffi::message::NAME_LEN;

/// `SO_ORIGINAL_DST` and `IP6T_SO_ORIGINAL_DST`.
const ORIGINAL_DST: libc::c_int = 80;

/// Whose addresses a listener answers for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Takes {
    /// This host's.
    Own,
    /// Every host's, as TPROXY rules ask for; needs CAP_NET_ADMIN (or CAP_NET_RAW).
    Any,
}

/// Where an accepted connection was going before REDIRECT or DNAT changed that (IPv4-mapped
/// addresses as IPv4). `peer` is its other end, whose family decides which tables are asked.
///
/// # Errors
/// `NOENT` when nothing changed it, `NOPROTOOPT` when the kernel does not track connections.
pub fn original_destination(fd: impl AsFd, peer: IpAddr) -> Result<SocketAddr, Errno> {
    let level = match Family::of(peer.to_canonical()) {
        Family::V4 => libc::IPPROTO_IP,
        Family::V6 => libc::IPPROTO_IPV6,
    };
    let mut name = [0; NAME_LEN];
    let len = ffi::read_option(fd.as_fd(), level, ORIGINAL_DST, &mut name)?;
    let decoded = name.get(..len).and_then(address::decode);
    decoded.map(|(addr, _)| addr).ok_or(Errno::AFNOSUPPORT)
}

/// Whether this process may take other hosts' addresses, and if not why.
///
/// # Errors
/// Why not.
pub fn transparent_available() -> io::Result<()> {
    allow_foreign(probe()?, Family::V4)
}

/// Whether this process may mark what it sends (SO_MARK), and if not why.
///
/// # Errors
/// Why not.
pub fn mark_available() -> io::Result<()> {
    ffi::set_bytes(probe()?.as_fd(), libc::SOL_SOCKET, libc::SO_MARK, &1_u32.to_ne_bytes())
}

fn probe() -> Result<rustix::fd::OwnedFd, Errno> {
    rx::socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)
}

/// Lets a socket that is not bound yet have addresses of other hosts. An IPv6 one that takes IPv4
/// too needs both options.
pub(crate) fn allow_foreign(fd: impl AsFd, family: Family) -> io::Result<()> {
    let fd = fd.as_fd();
    if family == Family::V6 {
        ffi::set_int(fd, libc::IPPROTO_IPV6, libc::IPV6_TRANSPARENT, 1)?;
    }
    ffi::set_int(fd, libc::IPPROTO_IP, libc::IP_TRANSPARENT, 1)
}
