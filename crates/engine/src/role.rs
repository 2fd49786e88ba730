//! What a listener does with its connections: immutable once made, swapped whole on reload. What
//! changes beneath is the health of a client's servers, and which of them is in use.
//!
//! A flow keeps the role it began with for as long as it lives, so a reload never changes the
//! rules under an open connection.

use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use adit_acl::Acl;
use adit_handshake::Policy;
use adit_observe::{PortCounters, UserCounters};
use adit_resolver::Order;
use adit_shadowsocks::{ClientKey, RelayKey, ReplaySet, ServerKey};
use adit_sys::datagram::DatagramOptions;
use adit_sys::net::{OutboundOptions, StreamOptions};
use adit_wire::TargetBuf;

use crate::clients::ClientTable;
use crate::guard::Guard;
use crate::health::{Health, Servers};
use crate::udp::{PacketSalts, SessionBook};

/// The job of one listener.
pub struct Role {
    /// What it speaks on which side.
    pub kind: RoleKind,
    /// Time limits of its flows.
    pub limits: Limits,
    /// Options of the connections it opens.
    pub stream: StreamOptions,
    /// Which address family is tried first.
    pub order: Order,
    /// Salts of streams seen on this side; `None` when the check is switched off.
    pub replay: Option<Arc<Mutex<ReplaySet>>>,
    /// How many connections and sessions each client address has; `None` without such limits.
    pub clients: Option<Arc<ClientTable>>,
    /// Traffic of the port, where somebody wants to know it (servers and hops only).
    pub port: Option<Arc<PortCounters>>,
    /// What a datagram listener needs besides; streams do not look at it.
    pub datagrams: Datagrams,
}

/// What a role says about datagrams.
pub struct Datagrams {
    /// A session without a datagram either way for this long ends.
    pub idle: Duration,
    /// Options of the sockets that sessions open.
    pub options: DatagramOptions,
    /// Salts of SIP004 datagrams seen on this side; `None` when the check is switched off.
    pub salts: Option<Arc<PacketSalts>>,
    /// Which worker has which 2022 session (servers only).
    pub book: Option<Arc<SessionBook>>,
}

/// The two ends of a Shadowsocks stream.
pub enum RoleKind {
    /// Takes local connections and sends them through a server.
    Client {
        /// How a connection says where it wants to go.
        inbound: Inbound,
        /// The servers, not all of weight 0. Without any, a stream listener only takes requests
        /// for associations.
        servers: Servers,
        /// What goes straight to its target; `None` when all goes through a server.
        direct: Option<Direct>,
    },
    /// Takes Shadowsocks streams and connects them to their targets.
    Server {
        /// Key and users of the port.
        key: ServerKey,
        /// Traffic of each user of the key, in the key's order.
        users: Vec<Arc<UserCounters>>,
        /// Source of the connections to targets.
        outbound: OutboundOptions,
        /// DSCP (0 to 63) of connections to these target ports, sorted by port.
        dscp: Vec<(u16, u8)>,
        /// Destinations that are refused.
        guard: Arc<Guard>,
        /// Destinations, and clients, that are refused besides.
        acl: Option<Arc<Acl>>,
        /// Clients come by their own addresses. Behind a plugin they do not, and the list says
        /// nothing about them.
        sees_clients: bool,
    },
    /// Takes Shadowsocks streams and packets, peels one identity header (SIP023) and passes the
    /// rest on, unread, to the server that the header names.
    Hop {
        /// The key of this hop and the identities of the next.
        key: RelayKey,
        /// Where each identity leads, in the key's order.
        next: Vec<NextHop>,
        /// Source of the connections to them.
        outbound: OutboundOptions,
    },
}

/// How a client reaches the targets that it does not send to a server.
pub struct Direct {
    /// Which these are.
    pub acl: Arc<Acl>,
    /// Source of the connections to them.
    pub outbound: OutboundOptions,
    /// Those among them that are refused: our own listeners.
    pub guard: Arc<Guard>,
}

/// A server behind a hop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NextHop {
    /// Its name in logs.
    pub name: Box<str>,
    /// Its host.
    pub host: UpstreamHost,
    /// Its port.
    pub port: u16,
}

/// How a local connection says where it wants to go.
#[expect(clippy::large_enum_variant, reason = "a handful exist, made at start and shared")]
pub enum Inbound {
    /// It asks, in SOCKS or HTTP.
    Proxy {
        /// Which protocols are served.
        policy: Policy,
        /// Where SOCKS5 clients are told to send their datagrams; `None` refuses them.
        associate: Option<Associate>,
    },
    /// It does not: all go to one target.
    Tunnel(TargetBuf),
    /// It does not, and the kernel knows: the firewall took it off its way and gave it to us.
    Redirect(Redirect),
}

/// What a redirector needs to know.
pub struct Redirect {
    /// How connections get here; datagrams come by TPROXY in any case.
    pub by: Interception,
    /// What is nobody's destination: our own listeners.
    pub guard: Arc<Guard>,
    /// Mark (SO_MARK) of the sockets that answer the clients' datagrams.
    pub reply_mark: Option<u32>,
}

/// How the firewall gives us a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interception {
    /// By REDIRECT or DNAT: its destination was changed, and connection tracking remembers it.
    Redirect,
    /// By TPROXY: nothing was changed, and our socket has the destination as its address.
    Tproxy,
}

impl Inbound {
    /// Whether datagrams of one are understood by the other.
    pub(crate) fn speaks_as(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Proxy { .. }, Self::Proxy { .. }) => true,
            (Self::Tunnel(a), Self::Tunnel(b)) => a == b,
            (Self::Redirect(_), Self::Redirect(_)) => true,
            _ => false,
        }
    }

    /// Where SOCKS5 clients send their datagrams, if they may.
    pub(crate) const fn associate(&self) -> Option<Associate> {
        match self {
            Self::Proxy { associate, .. } => *associate,
            Self::Tunnel(_) | Self::Redirect(_) => None,
        }
    }
}

/// The address in the answer to UDP ASSOCIATE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Associate {
    /// The host; `None` names the address at which the client reached us.
    pub host: Option<IpAddr>,
    /// The port of the datagram listener.
    pub port: u16,
}

/// A Shadowsocks server as seen by a client.
pub struct Upstream {
    /// Its host.
    pub host: UpstreamHost,
    /// Its port.
    pub port: u16,
    /// Method and keys.
    pub key: ClientKey,
    /// Source of the connections to it.
    pub outbound: OutboundOptions,
    /// Longest time that a connect to it may take.
    pub connect: Duration,
    /// How much it is preferred, in thousandths: with 500 it has to be twice as fast to be chosen.
    /// 0 is a spare that is used only when no other can be.
    pub weight: u16,
    /// What is connected to is a plugin on this host, which says nothing about the server.
    pub behind_plugin: bool,
    /// How it does; shared with every other role that uses the same server.
    pub health: Arc<Health>,
}

impl Upstream {
    /// Whether a session with one goes on with the other.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.host == other.host && self.port == other.port && self.key == other.key
    }
}

/// The host of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UpstreamHost {
    /// An address.
    Ip(IpAddr),
    /// A name, resolved for each connection (from the cache while its record lives).
    Name(Box<str>),
}

/// Time limits of a flow.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// From accept until the flow relays: greeting, names and connects together.
    pub handshake: Duration,
    /// One connect to a target with all its addresses.
    pub connect: Duration,
    /// Without a byte either way.
    pub idle: Duration,
    /// As `idle`, once one direction has ended.
    pub half_closed_idle: Duration,
    /// How long a client waits for the first bytes that go out with the request header.
    pub first_payload: Duration,
}

impl Role {
    /// The access control list it goes by.
    pub(crate) const fn acl(&self) -> Option<&Arc<Acl>> {
        match &self.kind {
            RoleKind::Client { direct: Some(direct), .. } => Some(&direct.acl),
            RoleKind::Server { acl, .. } => acl.as_ref(),
            RoleKind::Client { direct: None, .. } | RoleKind::Hop { .. } => None,
        }
    }

    /// How a client reaches what goes straight to its target.
    pub(crate) const fn direct(&self) -> Option<&Direct> {
        match &self.kind {
            RoleKind::Client { direct, .. } => direct.as_ref(),
            RoleKind::Server { .. } | RoleKind::Hop { .. } => None,
        }
    }

    /// Counts bytes of a client's stream or packet.
    pub(crate) fn count_in(&self, len: usize) {
        if let Some(port) = &self.port {
            port.bytes_in.add(len as u64);
        }
    }

    /// Counts bytes of a stream or packet to a client.
    pub(crate) fn count_out(&self, len: usize) {
        if let Some(port) = &self.port {
            port.bytes_out.add(len as u64);
        }
    }

    /// Whether two servers accept the same clients.
    pub(crate) fn has_same_keys(&self, other: &Self) -> bool {
        match (&self.kind, &other.kind) {
            (RoleKind::Server { key, .. }, RoleKind::Server { key: other, .. }) => key == other,
            _ => false,
        }
    }

    /// The servers of a client role.
    pub(crate) fn servers(&self) -> &[Upstream] {
        self.choice().map_or(&[], |servers| servers)
    }

    /// The servers of a client role, to choose from.
    pub(crate) const fn choice(&self) -> Option<&Servers> {
        match &self.kind {
            RoleKind::Client { servers, .. } => Some(servers),
            RoleKind::Server { .. } | RoleKind::Hop { .. } => None,
        }
    }
}
