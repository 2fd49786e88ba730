//! Where a datagram goes, and from which of our addresses.

use std::net::{IpAddr, SocketAddr};

/// The family of a socket. An IPv6 socket may carry IPv4 too, in IPv4-mapped form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Family {
    /// `AF_INET`.
    V4,
    /// `AF_INET6`.
    V6,
}

impl Family {
    /// The family of sockets for `ip`.
    pub const fn of(ip: IpAddr) -> Self {
        match ip {
            IpAddr::V4(_) => Self::V4,
            IpAddr::V6(_) => Self::V6,
        }
    }
}

/// One of this host's addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LocalAddress {
    /// The address; never IPv4-mapped when it came out of a message.
    pub ip: IpAddr,
    /// Index of the interface the datagram came in by; 0 when not known. Replies leave by the
    /// route to their destination, not by this interface, save from IPv6 link-local addresses,
    /// which mean nothing without one.
    pub interface: u32,
}

/// Where a datagram goes: the socket, and on it the destination and our source address.
///
/// Datagrams of one route keep their order. They travel in one system call, and in trains where
/// their sizes allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// The caller's name for the socket, turned into a descriptor when the outbox is flushed.
    pub socket: u64,
    /// The family of the socket.
    pub family: Family,
    /// Destination; `None` for a connected socket.
    pub to: Option<SocketAddr>,
    /// Source address; `None` leaves it to the socket and the routes.
    pub from: Option<LocalAddress>,
}

impl Route {
    /// To the peer of a connected socket.
    pub const fn connected(socket: u64, family: Family) -> Self {
        Self { socket, family, to: None, from: None }
    }

    /// To `to`, from the address that the kernel chooses.
    pub const fn to(socket: u64, family: Family, to: SocketAddr) -> Self {
        Self { socket, family, to: Some(to), from: None }
    }

    /// The same route from one of our addresses.
    pub const fn with_source(mut self, from: Option<LocalAddress>) -> Self {
        self.from = from;
        self
    }

    /// A word that is equal for equal routes and mostly differs for others.
    pub(super) fn digest(&self) -> u64 {
        // An odd number without a pattern (2^64 divided by the golden ratio).
        const MIX: u64 = 0x9e37_79b9_7f4a_7c15;
        let mut digest = self.socket;
        let mut mix = |word: u64| digest = (digest.rotate_left(29) ^ word).wrapping_mul(MIX);
        if let Some(to) = self.to {
            mix(to.port().into());
            mix_ip(to.ip(), &mut mix);
        }
        if let Some(from) = self.from {
            mix_ip(from.ip, &mut mix);
        }
        digest
    }
}

fn mix_ip(ip: IpAddr, mix: &mut impl FnMut(u64)) {
    match ip {
        IpAddr::V4(ip) => mix(ip.to_bits().into()),
        IpAddr::V6(ip) => {
            let bits = ip.to_bits();
            mix((bits >> 64) as u64);
            mix(bits as u64);
        }
    }
}
