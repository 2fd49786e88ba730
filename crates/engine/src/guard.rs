//! Destinations that a server refuses, so that its users reach the internet and not the server's
//! own network.
//!
//! Two rules. Listeners of this process are refused always: a stream that comes back in through
//! our own front door goes round until descriptors run out. Private addresses are refused unless
//! the operator allows them.
//!
//! A check looks at an address, never at a name: names are checked by what they resolve to, so a
//! record that points inside is caught, whoever wrote it. IPv6 addresses that a translator or
//! tunnel would turn into an IPv4 address are judged by that one as well.
//!
//! Not here: address blocks that lead nowhere (documentation, discard-only), since nobody is
//! reached through them; and our public address behind somebody else's NAT, which no host can know.

mod own;

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use adit_sys::datagram::is_local_address;

pub use own::OwnListeners;

/// What is to be sent to an address; listeners of the two do not meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// A connection.
    Stream,
    /// A datagram.
    Datagram,
}

/// Why an address is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Blocked {
    /// It is not an address of the internet.
    Private,
    /// We listen there.
    OwnListener,
    /// The access control list has it.
    Listed,
}

impl Blocked {
    /// A stable word for metrics and logs.
    pub const fn as_label(self) -> &'static str {
        match self {
            Self::Private => "private",
            Self::OwnListener => "own_listener",
            Self::Listed => "access_control_list",
        }
    }
}

impl fmt::Display for Blocked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Private => "private address",
            Self::OwnListener => "a listener of this program, or its manager",
            Self::Listed => "access control list",
        })
    }
}

/// The rules.
#[derive(Clone, Debug, Default)]
pub struct Guard {
    /// Whether private addresses are refused.
    pub block_private: bool,
    /// Where this process takes connections and datagrams.
    pub own: Arc<OwnListeners>,
}

impl Guard {
    /// Whether something may be sent to `addr`. Costs a few comparisons; only where the port is
    /// one of ours, and the answer not plain, is the kernel asked about the address.
    ///
    /// # Errors
    /// Why not.
    pub fn check(&self, addr: SocketAddr, transport: Transport) -> Result<(), Blocked> {
        if self.block_private && is_private(addr.ip()) {
            return Err(Blocked::Private);
        }
        if self.own.any(transport, addr.port(), |listener| reaches(addr.ip(), listener)) {
            return Err(Blocked::OwnListener);
        }
        Ok(())
    }
}

/// Whether what is sent to `to` arrives at a listener on `listener`, ports being equal.
fn reaches(to: IpAddr, listener: IpAddr) -> bool {
    let (to, listener) = (destination(to), listener.to_canonical());
    if to == listener {
        return true;
    }
    let takes_family = match listener {
        IpAddr::V4(_) => to.is_ipv4(),
        // Takes IPv4 as well. Where it was told not to, this refuses an address of this host that
        // another program may serve; to let a loop through would be worse.
        IpAddr::V6(_) => true,
    };
    takes_family && listener.is_unspecified() && may_be_ours(to)
}

/// Whether this host may take what is sent to `ip`. Of multicast groups and link-local addresses
/// nobody can say without an interface; at a port of ours they are nobody's target.
fn may_be_ours(ip: IpAddr) -> bool {
    let is_link_local = matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local());
    ip.is_loopback() || ip.is_multicast() || is_link_local || is_local_address(ip)
}

/// Where the kernel sends what is sent to `ip`: unspecified addresses mean this host.
fn destination(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED) => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(Ipv6Addr::UNSPECIFIED) => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    }
}

/// Whether `ip` leads into this host, its network or its provider's rather than to the internet.
fn is_private(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => is_private_v4(ip),
        IpAddr::V6(ip) => is_private_v6(ip) || embeds_private(ip),
    }
}

const fn v4(a: u8, b: u8, c: u8, d: u8) -> u32 {
    Ipv4Addr::new(a, b, c, d).to_bits()
}

/// Blocks of addresses: the first, and how many leading bits all of them share.
const PRIVATE_V4: [(u32, u32); 12] = [
    // "This network" (RFC 1122 §3.2.1.3); 0.0.0.0 itself is loopback on Linux.
    (v4(0, 0, 0, 0), 8),
    // Private networks (RFC 1918), and two more below.
    (v4(10, 0, 0, 0), 8),
    // Between a provider and its customers (RFC 6598): their devices, and 100.100.100.200, the
    // instance metadata of Alibaba's cloud.
    (v4(100, 64, 0, 0), 10),
    // Loopback (RFC 1122 §3.2.1.3).
    (v4(127, 0, 0, 0), 8),
    // The host agent of Azure: public by its number, answered by the machine underneath.
    (v4(168, 63, 129, 16), 32),
    // Link-local (RFC 3927), with 169.254.169.254, the instance metadata of most clouds.
    (v4(169, 254, 0, 0), 16),
    (v4(172, 16, 0, 0), 12),
    // IETF assignments (RFC 6890): DS-Lite, NAT64 discovery, and in Oracle's cloud the instance
    // metadata. Its two anycast addresses (PCP, TURN) mean a box of the local network.
    (v4(192, 0, 0, 0), 24),
    (v4(192, 168, 0, 0), 16),
    // Benchmarks of network devices (RFC 2544): no internet route has it, and proxies of the same
    // host make up addresses from it.
    (v4(198, 18, 0, 0), 15),
    // Multicast (RFC 5771).
    (v4(224, 0, 0, 0), 4),
    // Reserved (RFC 1112 §4), with the broadcast address. Linux routes the rest like any other
    // address, and some large networks use it inside.
    (v4(240, 0, 0, 0), 4),
];

fn is_private_v4(ip: Ipv4Addr) -> bool {
    PRIVATE_V4.iter().any(|&(block, len)| (ip.to_bits() ^ block) >> (32 - len) == 0)
}

const fn v6(a: u16, b: u16, c: u16) -> u128 {
    Ipv6Addr::new(a, b, c, 0, 0, 0, 0, 0).to_bits()
}

const PRIVATE_V6: [(u128, u32); 7] = [
    // Unspecified, which is loopback on Linux (RFC 4291 §2.5.2), and loopback (§2.5.3).
    (0, 128),
    (1, 128),
    // Benchmarks, as 198.18.0.0/15 (RFC 5180).
    (v6(0x2001, 2, 0), 48),
    // Unique local (RFC 4193), with the instance metadata of Amazon (fd00:ec2::254) and Google.
    (v6(0xfc00, 0, 0), 7),
    // Link-local (RFC 4291 §2.5.6), and site-local, which is withdrawn and still in use (RFC 3879).
    (v6(0xfe80, 0, 0), 10),
    (v6(0xfec0, 0, 0), 10),
    // Multicast (RFC 4291 §2.7).
    (v6(0xff00, 0, 0), 8),
];

fn is_private_v6(ip: Ipv6Addr) -> bool {
    PRIVATE_V6.iter().any(|&(block, len)| (ip.to_bits() ^ block) >> (128 - len) == 0)
}

/// Whether `ip` stands for an IPv4 address that is private.
fn embeds_private(ip: Ipv6Addr) -> bool {
    let bits = ip.to_bits();
    // The IPv4 address that begins `at` bits into the other.
    #[expect(clippy::cast_possible_truncation, reason = "32 bits of it are wanted")]
    let embedded = |at: u32| Ipv4Addr::from_bits((bits >> (96 - at)) as u32);
    let last = embedded(96);
    match ip.segments() {
        // IPv4-compatible (RFC 4291 §2.5.5.1), mapped (§2.5.5.2), and translated (RFC 2765).
        [0, 0, 0, 0, 0, 0 | 0xffff, ..] | [0, 0, 0, 0, 0xffff, 0, ..] => is_private_v4(last),
        // NAT64 with the well-known prefix (RFC 6052 §2.1).
        [0x64, 0xff9b, 0, 0, 0, 0, ..] => is_private_v4(last),
        // NAT64 with a local prefix (RFC 8215), which may end anywhere from here to bit 96. Three
        // zero bytes at the end are a shorter prefix, or else an address that no host should have.
        [0x64, 0xff9b, 1, ..] => is_private_v4(last) || bits.trailing_zeros() >= 24,
        // Teredo (RFC 4380 §4): the client's address, inverted.
        [0x2001, 0, ..] => is_private_v4(Ipv4Addr::from_bits(!last.to_bits())),
        // 6to4 (RFC 3056 §2).
        [0x2002, ..] => is_private_v4(embedded(16)),
        _ => false,
    }
}

#[cfg(test)]
mod tests;
