//! The load generator: clients on one side, targets on the other.
//!
//! Every client can also connect straight to the target ([`Entry::Direct`]), which shows what the
//! machine does without a proxy and lets the generator be tested on its own.

pub(crate) mod association;
pub(crate) mod batch;
pub(crate) mod datagrams;
pub(crate) mod echo;
pub(crate) mod pattern;
pub(crate) mod setups;
pub(crate) mod socks;
pub(crate) mod stream;
pub(crate) mod udp_echo;

use std::net::{Ipv4Addr, SocketAddr};

/// How a client reaches its destination.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Entry {
    /// By a plain connection.
    Direct,
    /// Through the SOCKS5 server at this address.
    Socks5(SocketAddr),
    /// Through a program at this address that passes all it gets to one target.
    Tunnel(SocketAddr),
}

impl Entry {
    /// Where a client that wants `destination` connects or sends to at first.
    pub(crate) fn first_hop(self, destination: Destination) -> SocketAddr {
        match (self, destination) {
            (Self::Socks5(local) | Self::Tunnel(local), _) => local,
            (Self::Direct, Destination::Ip(addr)) => addr,
            (Self::Direct, Destination::Localhost(port)) => {
                SocketAddr::from((Ipv4Addr::LOCALHOST, port))
            }
        }
    }
}

/// How a client names its destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Destination {
    /// By address.
    Ip(SocketAddr),
    /// As `localhost`, with this port; the proxy resolves it.
    Localhost(u16),
}

/// Which way the bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// The client writes.
    Up,
    /// The target writes.
    Down,
}

impl Direction {
    /// The directions that a word on the command line stands for.
    pub(crate) fn from_word(word: &str) -> Option<Vec<Self>> {
        match word {
            "up" => Some(vec![Self::Up]),
            "down" => Some(vec![Self::Down]),
            "both" => Some(vec![Self::Up, Self::Down]),
            _ => None,
        }
    }

    /// Its word in options and reports.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Down => "down",
        }
    }
}
