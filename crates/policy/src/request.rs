//! What is judged: commands, methods, protocols and requests.

use std::net::{IpAddr, SocketAddr};

use crate::host::Name;
use crate::week::WeekTime;

/// What a client wants, or what comes back for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Command {
    /// A connection to a target; HTTP requests are this too.
    Connect,
    /// A connection from a target.
    Bind,
    /// The connection that arrives for a [`Command::Bind`]: from the peer, to the client.
    BindReply,
    /// A datagram to a target.
    UdpAssociate,
    /// A datagram from a target, to the client.
    UdpReply,
}

/// How a client proved who it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Method {
    /// Not at all.
    None,
    /// By a user name and a password.
    Username,
}

/// The protocol that a client speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ProxyProtocol {
    /// SOCKS4 and SOCKS4a.
    Socks4,
    /// SOCKS5.
    Socks5,
    /// HTTP CONNECT and forwarded HTTP requests.
    Http,
}

macro_rules! set {
    ($(#[$doc:meta])* $set:ident of $item:ident: $($variant:ident = $word:literal),+) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        pub struct $set(u8);

        impl $set {
            /// Every one.
            pub const ALL: Self = Self(0 $(| 1 << $item::$variant as u8)+);
            /// None at all.
            pub const NONE: Self = Self(0);

            /// These.
            pub fn of(items: &[$item]) -> Self {
                Self(items.iter().fold(0, |bits, &item| bits | 1 << item as u8))
            }

            /// This set and `item`.
            #[must_use]
            pub const fn with(self, item: $item) -> Self {
                Self(self.0 | 1 << item as u8)
            }

            /// Those that are in one of the two.
            #[must_use]
            pub const fn or(self, other: Self) -> Self {
                Self(self.0 | other.0)
            }

            /// Those that are in both.
            #[must_use]
            pub const fn and(self, other: Self) -> Self {
                Self(self.0 & other.0)
            }

            /// True if `item` is in it.
            pub const fn contains(self, item: $item) -> bool {
                self.0 & 1 << item as u8 != 0
            }

            /// True if nothing is in it.
            pub const fn is_empty(self) -> bool {
                self.0 == 0
            }

            /// True if `other` has all of them.
            pub const fn is_subset(self, other: Self) -> bool {
                self.0 & !other.0 == 0
            }
        }

        impl $item {
            /// The word that rules, metrics and logs use.
            pub const fn as_label(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }

            /// Every one.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];
        }
    };
}

set! {
    /// Some commands.
    Commands of Command: Connect = "connect", Bind = "bind", BindReply = "bindreply",
    UdpAssociate = "udpassociate", UdpReply = "udpreply"
}
set! {
    /// Some methods.
    Methods of Method: None = "none", Username = "username"
}
set! {
    /// Some protocols.
    ProxyProtocols of ProxyProtocol: Socks4 = "socks_v4", Socks5 = "socks_v5", Http = "http"
}

impl Commands {
    /// Those that travel over TCP.
    pub const TCP: Self = Self(
        1 << Command::Connect as u8 | 1 << Command::Bind as u8 | 1 << Command::BindReply as u8,
    );
    /// Those that travel over UDP.
    pub const UDP: Self = Self(1 << Command::UdpAssociate as u8 | 1 << Command::UdpReply as u8);
    /// Those that a client asks for; the others are answers that come for it.
    pub const REQUESTS: Self = Self(
        1 << Command::Connect as u8 | 1 << Command::Bind as u8 | 1 << Command::UdpAssociate as u8,
    );
}

/// A connection that has been accepted, before anything was read from it.
#[derive(Clone, Copy, Debug)]
pub struct Accepted {
    /// The client; that of the PROXY header where there is one.
    pub client: SocketAddr,
    /// The address that accepted it.
    pub local: SocketAddr,
    /// When, in local time.
    pub time: WeekTime,
}

/// Who asks, what for, and how.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Where it comes from: the client, or for a reply the remote peer.
    pub from: SocketAddr,
    /// The user, once authenticated.
    pub user: Option<&'a [u8]>,
    /// How the client authenticated.
    pub method: Method,
    /// What is wanted.
    pub command: Command,
    /// The protocol that carries it.
    pub proxy_protocol: ProxyProtocol,
    /// Port of the destination.
    pub port: u16,
    /// When, in local time.
    pub time: WeekTime,
}

/// Where a request leads.
#[derive(Clone, Copy, Debug)]
pub enum Destination<'a> {
    /// An address, and the name it was found by if the client asked for one.
    Addr(IpAddr, Option<&'a Name>),
    /// Whoever comes: the zero address in BIND (RFC 1928 §4). Only rules whose `to` leaves out no
    /// address of a family match it.
    Anyone,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_hold_what_they_are_told() {
        let set = Commands::of(&[Command::Connect, Command::UdpReply]);
        assert!(set.contains(Command::Connect) && !set.contains(Command::Bind));
        assert!(set.is_subset(Commands::ALL) && !Commands::ALL.is_subset(set));
        assert_eq!(set.and(Commands::UDP), Commands::NONE.with(Command::UdpReply));
        assert!(Commands::TCP.and(Commands::UDP).is_empty());
        for &command in Command::ALL {
            assert!(Commands::TCP.contains(command) != Commands::UDP.contains(command));
        }
    }
}
