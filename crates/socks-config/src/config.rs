//! The configuration that both languages are read into.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use adit_policy::limits::{Allowance, MeterLimits};
use adit_policy::{AddressSet, Methods, Prefix, ProxyProtocols, Replies};

use crate::Language;
use crate::rule::Rule;

/// Where connections are accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListenAt {
    /// An address; port 0 is any free one.
    Addr(SocketAddr),
    /// Every address of an interface, which may not exist yet.
    Interface {
        /// Its name.
        name: String,
        /// The port.
        port: u16,
        /// Which families of its addresses.
        families: Families,
    },
}

/// Families of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Families {
    /// IPv4.
    pub v4: bool,
    /// IPv6.
    pub v6: bool,
}

impl Families {
    /// Both.
    pub const BOTH: Self = Self { v4: true, v6: true };
}

/// One `internal`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener {
    /// Where.
    pub at: ListenAt,
    /// Its name in logs and metrics.
    pub name: Option<String>,
    /// What BND.ADDR says for UDP, if not the address that a client came in by.
    pub advertise: Option<Advertised>,
    /// Protocols that it serves, if not those of the whole configuration.
    pub protocols: Option<ProxyProtocols>,
}

/// An address that clients are told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Advertised {
    /// This one.
    Addr(IpAddr),
    /// One of the addresses of this name, looked up for every association.
    Name(String),
}

/// One `external`: what outgoing sockets are bound to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum External {
    /// Whatever the system chooses.
    Any,
    /// An address, for targets of its family.
    Addr(IpAddr),
    /// Any address of a prefix, drawn anew for each connection or fixed for each user.
    Prefix(Prefix),
    /// The addresses of an interface, which may not exist yet.
    Interface(String),
}

/// How one of several external addresses is chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Rotation {
    /// The first of the target's family.
    #[default]
    None,
    /// The address that the client came in by.
    SameSame,
    /// One after the other.
    RoundRobin,
    /// At random; in a prefix any address of it.
    Random,
    /// Always the same one for a user (a client's address for those without).
    User,
}

/// Which addresses of names are used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Prefer {
    /// In the resolver's order.
    #[default]
    System,
    /// IPv4 first.
    Ipv4,
    /// IPv6 first.
    Ipv6,
    /// IPv4 alone.
    Ipv4Only,
    /// IPv6 alone.
    Ipv6Only,
}

/// Names and addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dns {
    /// Order and choice of addresses.
    pub prefer: Prefer,
    /// Whether CONNECT tries every address.
    pub try_all: bool,
    /// Addresses that no request may lead to, whatever the rules say. Compare what a request
    /// [reaches](adit_policy::reached), and the zero address as it was asked for.
    pub deny: AddressSet,
    /// How long addresses of names are kept, if longer than their own time.
    pub cache: Option<Duration>,
    /// Time for one name.
    pub timeout: Duration,
}

/// How clients prove who they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Auth {
    /// Methods in the order in which the server prefers them.
    pub methods: Vec<adit_policy::Method>,
    /// File of users, as written.
    pub userlist: Option<String>,
    /// Program and arguments that judge credentials; instead of the file.
    pub command: Vec<String>,
    /// How long a verified credential is taken without another look.
    pub cache: Option<Duration>,
}

impl Auth {
    /// The methods as a set.
    pub fn offered(&self) -> Methods {
        Methods::of(&self.methods)
    }
}

/// Limits of time. `None` is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// One connect to one address.
    pub connect: Duration,
    /// From accept to the end of the request, PROXY header and login included.
    pub handshake: Duration,
    /// A relay without a byte in either direction.
    pub io: Option<Duration>,
    /// Bytes that a peer does not take.
    pub write_stall: Option<Duration>,
    /// Silence before the kernel asks whether a peer is still there.
    pub keepalive: Option<Duration>,
    /// An association without a datagram that was let through.
    pub udp: Option<Duration>,
    /// BIND without a peer.
    pub bind: Duration,
    /// What is left to connections when the program stops.
    pub drain: Duration,
}

/// Ports and addresses of associations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Udp {
    /// Ports towards clients, both ends inclusive; `None` is any.
    pub ports: Option<(u16, u16)>,
    /// Whether answers have to come from the port that was asked.
    pub strict_reply: bool,
    /// Whether a client may go on from another port of its address.
    pub rebind: bool,
    /// What BND.ADDR says, for listeners without one of their own.
    pub advertise: Option<Advertised>,
}

/// Where log lines go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Log {
    /// Standard output.
    pub stdout: bool,
    /// Standard error.
    pub stderr: bool,
    /// Syslog, with this facility.
    pub syslog: Option<Facility>,
    /// A file.
    pub file: Option<String>,
    /// How lines look.
    pub format: LogFormat,
    /// Bytes after which the file is put aside.
    pub rotate_size: u64,
    /// Age after which it is.
    pub rotate_age: Option<Duration>,
    /// How many old files are kept.
    pub rotate_keep: u32,
    /// Whether more is said than usual (`debug` of Dante).
    pub debug: bool,
}

/// A facility of syslog (RFC 5424 §6.2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Facility(pub u8);

/// How log lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// Limits for everybody of a kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// For each client address.
    pub client: MeterLimits,
    /// For each user.
    pub user: MeterLimits,
    /// For each listener.
    pub listener: MeterLimits,
    /// Traffic of each client address.
    pub client_quota: Allowance,
    /// Traffic of each user.
    pub user_quota: Allowance,
    /// Traffic of each listener.
    pub listener_quota: Allowance,
}

/// One configuration, legal as a whole.
#[derive(Clone, Debug)]
pub struct Config {
    /// The language that it was written in.
    pub language: Language,
    /// At least one.
    pub listeners: Vec<Listener>,
    /// At least one; [`External::Any`] stands alone.
    pub externals: Vec<External>,
    /// How one of [`Config::externals`] is chosen.
    pub rotation: Rotation,
    /// Protocols of listeners that do not say.
    pub protocols: ProxyProtocols,
    /// Peers that have to send a PROXY header; all others are dropped then.
    pub proxy_peers: Option<AddressSet>,
    /// How clients prove who they are.
    pub auth: Auth,
    /// Limits of time.
    pub timeouts: Timeouts,
    /// Associations.
    pub udp: Udp,
    /// Ports of BIND, both ends inclusive; `None` is any.
    pub bind_ports: Option<(u16, u16)>,
    /// Names and addresses.
    pub dns: Dns,
    /// Connections at once.
    pub connections_max: u32,
    /// The user to run as.
    pub run_as: Option<String>,
    /// Whether a reload ends sessions whose user or rule is gone.
    pub end_sessions: bool,
    /// Log lines.
    pub log: Log,
    /// The endpoint of metrics.
    pub metrics: Option<SocketAddr>,
    /// File of countries.
    pub geoip_database: Option<String>,
    /// Limits for everybody of a kind.
    pub limits: Limits,
    /// Entries of each table that counts.
    pub limit_entries: u32,
    /// Where quotas are kept.
    pub quota_file: Option<String>,
    /// Whether what comes back needs rules of its own.
    pub replies: Replies,
    /// Rules of both stages in their order.
    pub rules: Vec<Rule>,
}
