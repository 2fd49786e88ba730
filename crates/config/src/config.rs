//! The validated configuration: what the programs run on.
//!
//! Everything here is legal: keys have been derived, ports are not zero, a client has a server,
//! a server has a listener. Building one goes through options and files (`raw`) and one
//! validating step; [`Config::reload`] repeats both with the same sources.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::num::{NonZeroU16, NonZeroU32};
use std::path::{Path, PathBuf};
use std::time::Duration;

use adit_shadowsocks::{ClientKey, RelayKey, ServerKey};

use crate::acl::AccessList;
use crate::endpoint::Endpoint;
use crate::manager::{ManagerAddress, ManagerOptions};
use crate::online::Online;
use crate::plugin::Plugin;
use crate::program::Invoked;
use crate::raw::Raw;
use crate::source::Sources;

/// Limit for handshakes and connects when none is configured.
pub const TIMEOUT_DEFAULT: Duration = Duration::from_secs(60);
/// Least time after which a silent connection ends, as in the C server.
pub const IDLE_TIMEOUT_MIN: Duration = Duration::from_secs(86400);
/// Idle time before keep-alive probes when none is configured, as in the Rust programs.
pub const KEEP_ALIVE_DEFAULT: Duration = Duration::from_secs(15);

/// Time after which a silent UDP session ends when none is configured, as in the Rust programs.
pub const UDP_TIMEOUT_DEFAULT: Duration = Duration::from_secs(300);
/// Least time after which a silent UDP session ends in the dialect of the C programs, where it
/// follows the timeout.
pub const UDP_TIMEOUT_MIN: Duration = Duration::from_secs(10);
/// UDP sessions of one worker when no number is configured.
pub const UDP_SESSIONS_DEFAULT: u32 = 4096;

/// Firewall mark of a redirector's connections to its servers where none is configured, so that
/// rules can tell them from what they redirect.
pub const REDIR_MARK: u32 = 0xAD17;

/// A complete, legal configuration.
#[derive(Clone, Debug)]
pub struct Config {
    /// Under which name and option dialect the program runs.
    pub invoked: Invoked,
    /// Client or server, with its listeners.
    pub role: Role,
    /// Options of sockets, for the whole process.
    pub sockets: SocketOptions,
    /// Limit for a handshake or connect, without a per-server value.
    pub timeout: Duration,
    /// Which address family is tried first.
    pub address_order: AddressOrder,
    /// Name servers; `None` follows `/etc/resolv.conf`.
    pub nameservers: Option<Vec<SocketAddr>>,
    /// Answers kept by the resolver; `None` leaves it to the resolver.
    pub dns_cache_size: Option<u32>,
    /// User to become after the listeners are open.
    pub user: Option<Box<str>>,
    /// Limit of open files to set.
    pub nofile: Option<u32>,
    /// File to write the process id to.
    pub pid_file: Option<PathBuf>,
    /// Whether to go to the background.
    pub daemonize: bool,
    /// Worker threads; `None` is one per core.
    pub workers: Option<NonZeroU16>,
    /// How much to log.
    pub log_level: LogLevel,
    /// Whether log lines carry the time.
    pub log_time: bool,
    /// What a repeated salt causes.
    pub replay_policy: ReplayPolicy,
    /// Limits of UDP sessions.
    pub udp: UdpOptions,
    /// What clients may not do.
    pub protection: Protection,
    /// How a client looks after several servers.
    pub balancer: Balancer,
    /// Where a client gets more servers from.
    pub online: Option<Online>,
    /// True when a password stands on the command line, where every user of the system sees it.
    pub secrets_on_argv: bool,
    /// What makes it a manager: its ports come and go by request.
    pub manager: Option<ManagerOptions>,
    /// The manager to which a server reports the traffic of its ports.
    pub report_to: Option<ManagerAddress>,
    /// Things to tell the user once, each a complete line.
    pub warnings: Vec<String>,
    pub(crate) sources: Sources,
    /// The settings that this follows from, kept where the servers of a subscription are added.
    pub(crate) merged: Option<Box<Raw>>,
}

/// Client or server.
#[derive(Clone, Debug)]
pub enum Role {
    /// Takes local connections and relays them through one of the servers.
    Client {
        /// At least one, or one of `unix_locals`.
        locals: Vec<LocalListener>,
        /// Listeners on Unix sockets.
        unix_locals: Vec<UnixLocal>,
        /// At least one, or a subscription that has not been fetched yet.
        servers: Vec<RemoteServer>,
        /// Options of the sockets towards targets that are reached without a server.
        direct: OutboundOptions,
    },
    /// Takes Shadowsocks connections and relays them to their targets.
    Server {
        /// At least one, except in a manager.
        listeners: Vec<ServerListener>,
    },
}

/// A listener of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalListener {
    /// Address to listen on for TCP; a name means all its addresses.
    pub bind: Endpoint,
    /// Address to take datagrams on, meant only when `mode` has UDP; `bind` unless configured.
    pub udp_bind: Endpoint,
    /// Address told to those who ask for a UDP association; `None` tells the one in use.
    pub udp_associate: Option<SocketAddr>,
    /// What is relayed: what the configuration asks for and at least one server may be used for.
    pub mode: Mode,
    /// What is spoken there.
    pub kind: LocalKind,
    /// What goes straight to its target.
    pub acl: Option<AccessList>,
}

/// A listener of a client on a Unix stream socket; it relays TCP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnixLocal {
    /// Where the socket is made.
    pub path: PathBuf,
    /// What is spoken there.
    pub kind: LocalKind,
    /// What goes straight to its target.
    pub acl: Option<AccessList>,
}

/// What is relayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Connections.
    TcpOnly,
    /// Connections and datagrams.
    TcpAndUdp,
    /// Datagrams.
    UdpOnly,
}

/// What a client's listener speaks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LocalKind {
    /// SOCKS.
    Socks,
    /// HTTP proxy.
    Http,
    /// Nothing: every connection goes to one target.
    Tunnel {
        /// The target; a name is resolved by the server.
        target: Endpoint,
    },
    /// Nothing: the firewall sends what was on its way elsewhere.
    Redir {
        /// How it does so with connections. Datagrams come by TPROXY in any case.
        tcp: Interception,
    },
}

/// How the firewall gives a redirector its connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interception {
    /// By REDIRECT, which changes their destination.
    Redirect,
    /// By TPROXY, which changes nothing and needs CAP_NET_ADMIN.
    Tproxy,
}

impl Interception {
    /// As it is written in files and rules.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Redirect => "redirect",
            Self::Tproxy => "tproxy",
        }
    }
}

/// A server that a client may use.
#[derive(Clone, PartialEq)]
pub struct RemoteServer {
    /// Its address.
    pub endpoint: Endpoint,
    /// Method and keys, and whether salts begin with printable bytes.
    pub key: ClientKey,
    /// What people call it.
    pub name: Option<Box<str>>,
    /// Its stable identity in a subscription.
    pub id: Option<Box<str>>,
    /// What it may be used for.
    pub mode: Mode,
    /// How much it is preferred for connections, 0 to 1: with 0.5 it has to be twice as fast as
    /// one with 1. 0 makes it a spare.
    pub tcp_weight: f32,
    /// The same for UDP sessions.
    pub udp_weight: f32,
    /// Limit for a handshake or connect.
    pub timeout: Duration,
    /// Options of the sockets towards it.
    pub outbound: OutboundOptions,
    /// What carries some or all of it.
    pub plugin: Option<Plugin>,
}

/// A listener of a server.
#[derive(Clone)]
pub struct ServerListener {
    /// Address to listen on; a name means all its addresses.
    pub bind: Endpoint,
    /// Method, keys and users; of a relay the method and its own key.
    pub key: ServerKey,
    /// Makes the listener a relay (SIP023), which has no users and reaches no targets itself.
    pub relay: Option<Relay>,
    /// What is relayed.
    pub mode: Mode,
    /// What people call it.
    pub name: Option<Box<str>>,
    /// Its stable identity in a subscription.
    pub id: Option<Box<str>>,
    /// Limit for a handshake or connect.
    pub timeout: Duration,
    /// Options of the sockets towards targets.
    pub outbound: OutboundOptions,
    /// Clients and targets that are refused.
    pub acl: Option<AccessList>,
    /// What listens at `bind` in place of us, for some or all of it.
    pub plugin: Option<Plugin>,
}

/// What a relay forwards to. The method is an AES method of the 2022 edition.
#[derive(Clone)]
pub struct Relay {
    /// The relay's own key and those of `destinations`.
    pub key: RelayKey,
    /// At least one, in the order of `key`.
    pub destinations: Vec<Destination>,
}

/// A next hop of a relay, found by the key that a request's identity header names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Destination {
    /// What people call it; its address unless it is named.
    pub name: Box<str>,
    /// Its address.
    pub endpoint: Endpoint,
}

/// Limits of UDP sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UdpOptions {
    /// Time after which a silent session ends.
    pub timeout: Duration,
    /// Sessions of one worker at most, at least one; the oldest makes room for a new one.
    pub sessions_max: u32,
}

/// How a client looks after several servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Balancer {
    /// A server that takes longer to connect to counts as one that cannot be reached.
    pub max_server_rtt: Duration,
    /// Time between two probes of a server.
    pub check_interval: Duration,
    /// The same for the server in use; as `check_interval` without it.
    pub check_best_interval: Option<Duration>,
}

impl Default for Balancer {
    /// As in the Rust programs.
    fn default() -> Self {
        Self {
            max_server_rtt: Duration::from_secs(5),
            check_interval: Duration::from_secs(10),
            check_best_interval: None,
        }
    }
}

/// What clients may not do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Protection {
    /// Targets that are private, loopback, link-local or cloud metadata are refused, after their
    /// names have been resolved.
    pub block_private: bool,
    /// TCP connections of one client address at most; `None` sets no limit.
    pub connections_per_client: Option<NonZeroU32>,
    /// UDP sessions of one client address at most; `None` sets no limit.
    pub sessions_per_client: Option<NonZeroU32>,
}

/// Options of sockets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SocketOptions {
    /// `SO_REUSEPORT`, so that another process may listen on the same port.
    pub reuse_port: bool,
    /// `TCP_NODELAY` for the whole life of a connection.
    pub no_delay: bool,
    /// TCP fast open on listeners and outgoing connections.
    pub fast_open: bool,
    /// Multipath TCP.
    pub mptcp: bool,
    /// `IPV6_V6ONLY` on listeners, so that `::` does not serve IPv4.
    pub ipv6_only: bool,
    /// Idle time before keep-alive probes.
    pub keep_alive: Duration,
    /// `SO_SNDBUF` of accepted connections, bytes.
    pub incoming_sndbuf: Option<u32>,
    /// `SO_RCVBUF` of accepted connections, bytes.
    pub incoming_rcvbuf: Option<u32>,
    /// `SO_SNDBUF` of outgoing connections, bytes.
    pub outgoing_sndbuf: Option<u32>,
    /// `SO_RCVBUF` of outgoing connections, bytes.
    pub outgoing_rcvbuf: Option<u32>,
    /// DSCP value (0 to 63) by target port, sorted by port; connections of a server to that port.
    pub dscp: Vec<(u16, u8)>,
}

/// Options of outgoing sockets that may differ from server to server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OutboundOptions {
    /// `SO_MARK`.
    pub fwmark: Option<u32>,
    /// `SO_BINDTODEVICE`.
    pub interface: Option<Box<str>>,
    /// Source address towards IPv4; never the unspecified address.
    pub bind_v4: Option<Ipv4Addr>,
    /// Source address towards IPv6; never the unspecified address.
    pub bind_v6: Option<Ipv6Addr>,
}

/// What a listener of a client speaks, as configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Socks,
    Http,
    Tunnel,
    Redir,
}

/// Which address family is tried first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AddressOrder {
    /// As the resolver sorts them.
    #[default]
    System,
    /// IPv4 first.
    Ipv4First,
    /// IPv6 first.
    Ipv6First,
}

/// How much to log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    /// Start, stop and what needs attention.
    #[default]
    Info,
    /// One `-v`: also per connection.
    Debug,
    /// Two or more `-v`.
    Trace,
}

/// What a repeated salt causes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReplayPolicy {
    /// The program's choice for the method.
    #[default]
    Default,
    /// Nothing.
    Ignore,
    /// The connection is refused.
    Reject,
}

impl Config {
    /// The file that was read, if any.
    pub fn file(&self) -> Option<&Path> {
        self.sources.file.as_deref()
    }

    /// Time after which a silent connection ends.
    pub fn idle_timeout(&self) -> Duration {
        self.timeout.max(IDLE_TIMEOUT_MIN)
    }
}

impl LogLevel {
    /// The level that logs more.
    pub(crate) const fn next(self) -> Self {
        match self {
            Self::Info => Self::Debug,
            Self::Debug | Self::Trace => Self::Trace,
        }
    }
}

impl Mode {
    /// Whether connections are relayed.
    pub const fn tcp(self) -> bool {
        !matches!(self, Self::UdpOnly)
    }

    /// Whether datagrams are relayed.
    pub const fn udp(self) -> bool {
        !matches!(self, Self::TcpOnly)
    }

    /// The mode as it is written in files.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::TcpOnly => "tcp_only",
            Self::TcpAndUdp => "tcp_and_udp",
            Self::UdpOnly => "udp_only",
        }
    }

    /// What is relayed by this mode and another; `None` for nothing.
    pub const fn and(self, other: Self) -> Option<Self> {
        Self::of(self.tcp() && other.tcp(), self.udp() && other.udp())
    }

    /// The mode that relays this much; `None` for nothing.
    pub const fn of(tcp: bool, udp: bool) -> Option<Self> {
        match (tcp, udp) {
            (true, true) => Some(Self::TcpAndUdp),
            (true, false) => Some(Self::TcpOnly),
            (false, true) => Some(Self::UdpOnly),
            (false, false) => None,
        }
    }
}

impl RemoteServer {
    /// What makes it the same server after a reload: its id, or else its address and method.
    pub fn identity(&self) -> String {
        match &self.id {
            Some(id) => id.to_string(),
            None => format!("{} {}", self.endpoint, self.key.method()),
        }
    }
}

impl OutboundOptions {
    /// The source address for connections to `target`, if one is configured for its family.
    pub fn bind_for(&self, target: IpAddr) -> Option<IpAddr> {
        match target {
            IpAddr::V4(_) => self.bind_v4.map(IpAddr::V4),
            IpAddr::V6(_) => self.bind_v6.map(IpAddr::V6),
        }
    }
}

impl std::fmt::Debug for RemoteServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RemoteServer({} {})", self.endpoint, self.key.method())
    }
}

impl std::fmt::Debug for ServerListener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let users = self.key.users().len();
        write!(f, "ServerListener({} {} users={users})", self.bind, self.key.method())
    }
}
