//! From a validated configuration to what the engine runs.

use std::cell::{OnceCell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use adit_config::{
    AccessList, AddressOrder, Config, Endpoint, Host, LocalKind, LocalListener, Mode, RemoteServer,
    ReplayPolicy, Role as ConfigRole, ServerListener,
};
use adit_engine::clients::ClientTable;
use adit_engine::guard::{Guard, OwnListeners, Transport};
use adit_engine::role::{
    Associate, Datagrams, Direct, Inbound, Limits, NextHop, Role, RoleKind, Upstream, UpstreamHost,
};
use adit_engine::udp::{PacketSalts, SessionBook};
use adit_handshake::Policy;
use adit_observe::{PortCounters, UserCounters};
use adit_resolver::Order;
use adit_shadowsocks::{CLOCK_SKEW_MAX_S, Method, ReplaySet, ServerKey};
use adit_sys::datagram::DatagramOptions;
use adit_sys::net::{OutboundOptions, StreamOptions, Takes};
use adit_wire::TargetBuf;

use crate::health::Healths;
use crate::listeners::{Bind, Wanted};
use crate::plugin::{Plugged, Side};
use crate::redir;

/// Salts remembered by a SIP004 server, as many as libev does.
const SERVER_SALTS: usize = 1_000_000;
/// Salts remembered by a SIP004 client for what servers send.
const CLIENT_SALTS: usize = 10_000;
/// Salts of SIP004 datagrams remembered by either, sent and received, 1 MiB: the last seconds of a
/// busy port, the last hours of a quiet one. More would not fit into the cache next to a core.
const PACKET_SALTS: usize = 1 << 17;
/// A 2022 salt must be remembered for as long as its time stamp is good on either side of now.
const SALT_LIFETIME_S: u64 = 2 * CLOCK_SKEW_MAX_S;
/// Clients that a table with limits has room for.
const CLIENTS_MAX: usize = 1 << 16;
/// Buffers of the sockets of UDP sessions, bytes: a burst of a hundred full-size datagrams fills
/// the kernel's default.
const SESSION_BUFFER: usize = 1 << 20;

/// A half-closed connection without a byte for this long has been forgotten by its peer.
const HALF_CLOSED_IDLE: Duration = Duration::from_secs(15 * 60);
/// A server that does not answer within this time will not (libev: min(10, timeout)).
const CONNECT_LIMIT: Duration = Duration::from_secs(10);
/// How long a client has to send the bytes that leave with the request header.
const FIRST_PAYLOAD_WAIT: Duration = Duration::from_millis(50);

/// What the roles of a process share, made when a role first needs it; it outlives every reload.
pub(crate) struct Stores {
    server: OnceCell<Arc<Mutex<ReplaySet>>>,
    server_2022: OnceCell<Arc<Mutex<ReplaySet>>>,
    client: OnceCell<Arc<Mutex<ReplaySet>>>,
    server_packets: OnceCell<Arc<PacketSalts>>,
    client_packets: OnceCell<Arc<PacketSalts>>,
    book: OnceCell<Arc<SessionBook>>,
    /// Datagram sessions of all workers at most.
    sessions: usize,
    clients: OnceCell<Arc<ClientTable>>,
    pub(crate) healths: Healths,
    /// Where plugins stand between us and others.
    plugged: RefCell<Arc<Plugged>>,
    /// With what they are called in reports.
    users: RefCell<HashMap<UserId, (String, Arc<UserCounters>)>>,
    /// Where somebody wants to know it: the traffic of ports, by number.
    ports: RefCell<BTreeMap<u16, Arc<PortCounters>>>,
    /// Where the process listens.
    own: Arc<OwnListeners>,
}

/// The port and the key of a user.
type UserId = (String, [u8; 16]);

impl Stores {
    /// For workers that have so many datagram sessions together.
    pub(crate) fn new(sessions: usize) -> Self {
        Self {
            server: OnceCell::new(),
            server_2022: OnceCell::new(),
            client: OnceCell::new(),
            server_packets: OnceCell::new(),
            client_packets: OnceCell::new(),
            book: OnceCell::new(),
            sessions,
            clients: OnceCell::new(),
            healths: Healths::default(),
            plugged: RefCell::default(),
            users: RefCell::new(HashMap::new()),
            ports: RefCell::new(BTreeMap::new()),
            own: Arc::default(),
        }
    }

    fn for_server(&self, policy: ReplayPolicy, method: Method) -> Option<Arc<Mutex<ReplaySet>>> {
        let store = if method.is_2022() { &self.server_2022 } else { &self.server };
        let make = || {
            Arc::new(Mutex::new(if method.is_2022() {
                ReplaySet::by_age(SERVER_SALTS, SALT_LIFETIME_S)
            } else {
                ReplaySet::by_count(SERVER_SALTS)
            }))
        };
        (policy != ReplayPolicy::Ignore).then(|| Arc::clone(store.get_or_init(make)))
    }

    fn for_client(&self, policy: ReplayPolicy) -> Option<Arc<Mutex<ReplaySet>>> {
        let make = || Arc::new(Mutex::new(ReplaySet::by_count(CLIENT_SALTS)));
        (policy != ReplayPolicy::Ignore).then(|| Arc::clone(self.client.get_or_init(make)))
    }

    /// The salts of datagrams, where a key comes from its salt.
    fn packet_salts(
        &self,
        policy: ReplayPolicy,
        is_server: bool,
        mut methods: impl Iterator<Item = Method>,
    ) -> Option<Arc<PacketSalts>> {
        let store = if is_server { &self.server_packets } else { &self.client_packets };
        let make = || Arc::new(PacketSalts::new(PACKET_SALTS));
        let keyed_by_salt = methods.any(|m| !m.is_2022() && m != Method::None);
        (keyed_by_salt && policy != ReplayPolicy::Ignore)
            .then(|| Arc::clone(store.get_or_init(make)))
    }

    fn book(&self, method: Method) -> Option<Arc<SessionBook>> {
        let make = || Arc::new(SessionBook::new(self.sessions));
        method.is_2022().then(|| Arc::clone(self.book.get_or_init(make)))
    }

    /// The counts of clients, where there are limits. They stay when limits change.
    fn clients(&self, config: &Config) -> Option<Arc<ClientTable>> {
        let protection = config.protection;
        let limits = [protection.connections_per_client, protection.sessions_per_client]
            .map(|limit| limit.map(NonZeroU32::get));
        if limits == [None, None] && self.clients.get().is_none() {
            return None;
        }
        let table =
            self.clients.get_or_init(|| Arc::new(ClientTable::new(CLIENTS_MAX, None, None)));
        table.set_limits(limits[0], limits[1]);
        Some(Arc::clone(table))
    }

    /// Where plugins stand.
    pub(crate) fn plugged(&self) -> Arc<Plugged> {
        Arc::clone(&self.plugged.borrow())
    }

    /// Has roles that are made from here on go by these plugins.
    pub(crate) fn plug(&self, plugged: Arc<Plugged>) {
        self.plugged.replace(plugged);
    }

    /// Forgets users and ports that no role knows any more.
    pub(crate) fn forget_unused(&self) {
        self.users.borrow_mut().retain(|_, (_, counters)| Arc::strong_count(counters) > 1);
        self.ports.borrow_mut().retain(|_, counters| Arc::strong_count(counters) > 1);
    }

    /// Where the process listens, as far as it has been told.
    pub(crate) const fn own(&self) -> &Arc<OwnListeners> {
        &self.own
    }

    /// The traffic of ports, in order.
    pub(crate) fn port_traffic(&self) -> Vec<(u16, Arc<PortCounters>)> {
        self.ports.borrow().iter().map(|(port, c)| (*port, Arc::clone(c))).collect()
    }

    /// Takes the counters of a port out, so that its next role counts from 0.
    pub(crate) fn take_port(&self, port: u16) -> Option<Arc<PortCounters>> {
        self.ports.borrow_mut().remove(&port)
    }

    /// Undoes [`Stores::take_port`].
    pub(crate) fn put_port(&self, port: u16, counters: Option<Arc<PortCounters>>) {
        let mut ports = self.ports.borrow_mut();
        match counters {
            Some(counters) => ports.insert(port, counters),
            None => ports.remove(&port),
        };
    }

    /// The traffic of a port, where somebody wants to know it.
    fn port(&self, config: &Config, port: u16) -> Option<Arc<PortCounters>> {
        let wanted = config.manager.is_some() || config.report_to.is_some();
        wanted.then(|| Arc::clone(self.ports.borrow_mut().entry(port).or_default()))
    }

    /// Gives each line of a report on users; ports and users in order.
    pub(crate) fn report_users(&self, mut each: impl FnMut(&str)) {
        let mut lines: Vec<_> = self
            .users
            .borrow()
            .values()
            .filter(|(_, counters)| Arc::strong_count(counters) > 1)
            .map(|(name, c)| {
                format!(
                    "{name}: connections={} sessions={} bytes_up={} bytes_down={} \
                     datagrams_up={} datagrams_down={}",
                    c.connections.value(),
                    c.sessions.value(),
                    c.bytes_up.value(),
                    c.bytes_down.value(),
                    c.datagrams_up.value(),
                    c.datagrams_down.value(),
                )
            })
            .collect();
        lines.sort_unstable();
        lines.iter().for_each(|line| each(line));
    }

    /// The traffic of a port's users, in the order of its key.
    fn users(&self, bind: &Endpoint, key: &ServerKey) -> Vec<Arc<UserCounters>> {
        let mut known = self.users.borrow_mut();
        let of = |user: &adit_shadowsocks::UserKey| (bind.to_string(), *user.identity());
        let counters = |user: &adit_shadowsocks::UserKey| {
            let (name, counters) = known.entry(of(user)).or_default();
            *name = format!("user {} of {bind}", user.name());
            Arc::clone(counters)
        };
        key.users().iter().map(counters).collect()
    }
}

/// Where a configuration listens.
pub(crate) fn binds(config: &Config) -> Vec<(Bind, Transport)> {
    let bind = |endpoint: &Endpoint, transport| (Bind::Internet(endpoint.clone()), transport);
    match &config.role {
        ConfigRole::Client { locals, .. } => locals
            .iter()
            .flat_map(|local| local_transports(local).map(move |t| (local, t)))
            .map(|(local, transport)| match transport {
                Transport::Stream => bind(&local.bind, transport),
                Transport::Datagram => bind(&local.udp_bind, transport),
            })
            .collect(),
        ConfigRole::Server { listeners } => listeners
            .iter()
            .flat_map(|listener| transports(listener.mode).map(move |t| (listener, t)))
            .map(|(listener, transport)| bind(&listener.bind, transport))
            .collect(),
    }
}

/// Every listener that the configuration asks for, with its role.
pub(crate) fn wanted(config: &Config, stores: &Stores) -> Vec<Wanted> {
    match &config.role {
        ConfigRole::Client { locals, unix_locals, .. } => {
            let mut wanted = Vec::new();
            for local in locals {
                let associate = local.mode.udp().then_some(Associate {
                    host: local.udp_associate.map(|addr| addr.ip()),
                    port: local.udp_associate.map_or(local.udp_bind.port, |addr| addr.port()),
                });
                for transport in local_transports(local) {
                    let bind = match transport {
                        Transport::Stream => &local.bind,
                        Transport::Datagram => &local.udp_bind,
                    };
                    let inbound = inbound(&local.kind, associate, config, stores);
                    let direct = direct(config, local.acl.as_ref(), stores);
                    let role = client_role(config, inbound, direct, stores, local.mode, transport);
                    let about = about_local(config, &local.kind, transport);
                    wanted.push(Wanted {
                        bind: Bind::Internet(bind.clone()),
                        transport,
                        takes: redir::takes(&local.kind, transport),
                        role: Arc::new(role),
                        serves: Some(bind.port),
                        about: format!("{about}, {}{}", local.mode.as_str(), about_acl(&local.acl)),
                    });
                }
            }
            wanted.extend(unix_locals.iter().map(|local| Wanted {
                bind: Bind::Unix(PathBuf::clone(&local.path)),
                transport: Transport::Stream,
                takes: Takes::Own,
                role: Arc::new(client_role(
                    config,
                    inbound(&local.kind, None, config, stores),
                    direct(config, local.acl.as_ref(), stores),
                    stores,
                    Mode::TcpOnly,
                    Transport::Stream,
                )),
                serves: None,
                about: format!(
                    "{}, tcp_only{}",
                    about_local(config, &local.kind, Transport::Stream),
                    about_acl(&local.acl)
                ),
            }));
            wanted
        }
        ConfigRole::Server { listeners } => {
            let guard = Arc::new(guard(config, stores));
            let plugged = stores.plugged();
            let one = |listener: &ServerListener, transport| {
                let mut role = server_role(config, listener, stores, &guard);
                let (mut bind, mut about) = (listener.bind.clone(), about_server(listener));
                let plugin = listener.plugin.as_ref();
                if let Some(local) = plugged.instead(Side::Server, &bind, plugin, transport) {
                    // All clients come from the plugin's address: a limit would be one for all.
                    role.clients = None;
                    if let RoleKind::Server { sees_clients, .. } = &mut role.kind {
                        *sees_clients = false;
                    }
                    about = format!("{about}, behind the plugin at {bind}");
                    bind = Host::Ip(local.ip()).with_port(local.port());
                }
                Wanted {
                    bind: Bind::Internet(bind),
                    transport,
                    takes: Takes::Own,
                    role: Arc::new(role),
                    serves: Some(listener.bind.port),
                    about,
                }
            };
            let all = listeners.iter().flat_map(|l| transports(l.mode).map(move |t| (l, t)));
            all.map(|(listener, transport)| one(listener, transport)).collect()
        }
    }
}

fn transports(mode: Mode) -> impl Iterator<Item = Transport> {
    let tcp = mode.tcp().then_some(Transport::Stream);
    tcp.into_iter().chain(mode.udp().then_some(Transport::Datagram))
}

/// A SOCKS client asks for its association over TCP, also where nothing else is relayed by TCP.
fn local_transports(local: &LocalListener) -> impl Iterator<Item = Transport> {
    let asks = local.kind == LocalKind::Socks && !local.mode.tcp();
    asks.then_some(Transport::Stream).into_iter().chain(transports(local.mode))
}

fn guard(config: &Config, stores: &Stores) -> Guard {
    Guard { block_private: config.protection.block_private, ..own_listeners(stores) }
}

/// Refuses our own listeners and nothing else.
pub(crate) fn own_listeners(stores: &Stores) -> Guard {
    Guard { block_private: false, own: Arc::clone(&stores.own) }
}

fn about_server(listener: &ServerListener) -> String {
    let users = listener.key.users().len();
    let about = match (&listener.relay, users) {
        (Some(relay), _) => format!(", relay to {} servers", relay.destinations.len()),
        (None, 0) => String::new(),
        (None, users) => format!(", {users} users"),
    };
    let acl = about_acl(&listener.acl);
    format!("{}{about}, {}{acl}", listener.key.method(), listener.mode.as_str())
}

fn about_acl(acl: &Option<AccessList>) -> String {
    acl.as_ref().map_or_else(String::new, |acl| format!(", by {}", acl.path.display()))
}

fn server_role(
    config: &Config,
    listener: &ServerListener,
    stores: &Stores,
    guard: &Arc<Guard>,
) -> Role {
    let method = listener.key.method();
    let kind = match &listener.relay {
        None => RoleKind::Server {
            key: listener.key.clone(),
            users: stores.users(&listener.bind, &listener.key),
            outbound: outbound(&listener.outbound),
            dscp: config.sockets.dscp.clone(),
            guard: Arc::clone(guard),
            acl: listener.acl.as_ref().map(|list| Arc::clone(&list.rules)),
            sees_clients: true,
        },
        Some(relay) => RoleKind::Hop {
            key: relay.key.clone(),
            next: relay
                .destinations
                .iter()
                .map(|next| NextHop {
                    name: next.name.clone(),
                    host: upstream_host(&next.endpoint.host),
                    port: next.endpoint.port,
                })
                .collect(),
            outbound: outbound(&listener.outbound),
        },
    };
    let sockets = &config.sockets;
    Role {
        kind,
        limits: limits(config, listener.timeout),
        stream: outgoing(config),
        order: order(config),
        replay: stores.for_server(config.replay_policy, method),
        clients: stores.clients(config),
        port: stores.port(config, listener.bind.port),
        datagrams: Datagrams {
            idle: config.udp.timeout,
            options: session_options(sockets.outgoing_sndbuf, sockets.outgoing_rcvbuf),
            salts: stores.packet_salts(config.replay_policy, true, [method].into_iter()),
            book: stores.book(method),
        },
    }
}

/// How a local listener learns where its clients want to go.
fn inbound(
    kind: &LocalKind,
    associate: Option<Associate>,
    config: &Config,
    stores: &Stores,
) -> Inbound {
    let udp = associate.is_some();
    match kind {
        // One port serves all: clients tell by their first byte what they speak.
        LocalKind::Socks => Inbound::Proxy {
            policy: Policy { socks4: true, socks5: true, http: true, udp },
            associate,
        },
        LocalKind::Http => Inbound::Proxy {
            policy: Policy { socks4: false, socks5: false, http: true, udp: false },
            associate: None,
        },
        LocalKind::Tunnel { target } => Inbound::Tunnel(TargetBuf::from(target.target())),
        LocalKind::Redir { tcp } => Inbound::Redirect(redir::inbound(*tcp, config, stores)),
    }
}

/// How a client reaches what its access control list sends straight to its target.
fn direct(config: &Config, acl: Option<&AccessList>, stores: &Stores) -> Option<Direct> {
    let ConfigRole::Client { direct, .. } = &config.role else { return None };
    acl.map(|list| Direct {
        acl: Arc::clone(&list.rules),
        outbound: outbound(direct),
        guard: Arc::new(own_listeners(stores)),
    })
}

fn client_role(
    config: &Config,
    inbound: Inbound,
    direct: Option<Direct>,
    stores: &Stores,
    mode: Mode,
    transport: Transport,
) -> Role {
    let ConfigRole::Client { servers, .. } = &config.role else {
        unreachable!("a local listener comes with a client's configuration")
    };
    let usable = servers.iter().filter(|server| match transport {
        Transport::Stream => mode.tcp() && server.mode.tcp(),
        Transport::Datagram => server.mode.udp(),
    });
    let methods = servers.iter().map(|server| server.key.method());
    let sockets = &config.sockets;
    Role {
        kind: RoleKind::Client {
            inbound,
            servers: usable.map(|server| upstream(server, transport, stores)).collect(),
            direct,
        },
        limits: limits(config, config.timeout),
        stream: outgoing(config),
        order: order(config),
        replay: stores.for_client(config.replay_policy),
        clients: stores.clients(config),
        port: None,
        datagrams: Datagrams {
            idle: config.udp.timeout,
            options: session_options(sockets.outgoing_sndbuf, sockets.outgoing_rcvbuf),
            salts: stores.packet_salts(config.replay_policy, false, methods),
            book: None,
        },
    }
}

fn upstream(server: &RemoteServer, transport: Transport, stores: &Stores) -> Upstream {
    let RemoteServer { endpoint, plugin, .. } = server;
    let plugged = stores.plugged();
    let local = plugged.instead(Side::Client, endpoint, plugin.as_ref(), transport);
    let (host, port, outbound) = match local {
        // Source address and interface are for the way out, which is the plugin's.
        Some(local) => (UpstreamHost::Ip(local.ip()), local.port(), OutboundOptions::default()),
        None => (upstream_host(&endpoint.host), endpoint.port, outbound(&server.outbound)),
    };
    Upstream {
        host,
        port,
        key: server.key.clone(),
        outbound,
        connect: server.timeout.min(CONNECT_LIMIT),
        weight: weight(match transport {
            Transport::Stream => server.tcp_weight,
            Transport::Datagram => server.udp_weight,
        }),
        behind_plugin: local.is_some(),
        health: stores.healths.of(server),
    }
}

pub(crate) fn upstream_host(host: &Host) -> UpstreamHost {
    match host {
        Host::Ip(ip) => UpstreamHost::Ip(*ip),
        Host::Name(name) => UpstreamHost::Name(name.clone()),
    }
}

/// Options of the sockets that UDP sessions open.
fn session_options(send: Option<u32>, recv: Option<u32>) -> DatagramOptions {
    DatagramOptions {
        send_buffer: Some(send.map_or(SESSION_BUFFER, |bytes| bytes as usize)),
        recv_buffer: Some(recv.map_or(SESSION_BUFFER, |bytes| bytes as usize)),
        coalesce: true,
        dscp: None,
    }
}

/// Options of datagram listeners.
pub(crate) fn datagram_incoming(config: &Config) -> DatagramOptions {
    let sockets = &config.sockets;
    DatagramOptions {
        send_buffer: sockets.incoming_sndbuf.map(|bytes| bytes as usize),
        recv_buffer: sockets.incoming_rcvbuf.map(|bytes| bytes as usize),
        coalesce: true,
        dscp: None,
    }
}

/// A weight of 0 to 1 in thousandths; whatever is above 0 stays above it.
fn weight(share: f32) -> u16 {
    let thousandths = (share.clamp(0.0, 1.0) * 1000.0).ceil();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped above")]
    let thousandths = thousandths as u16;
    thousandths
}

fn about_local(config: &Config, kind: &LocalKind, transport: Transport) -> String {
    let ConfigRole::Client { servers, .. } = &config.role else { return String::new() };
    let via = match servers.as_slice() {
        [one] => match &one.plugin {
            None => format!("via {} ({})", one.endpoint, one.key.method()),
            Some(plugin) => {
                format!("via {} ({}, plugin {})", one.endpoint, one.key.method(), plugin.name())
            }
        },
        many => format!("via {} servers", many.len()),
    };
    match kind {
        LocalKind::Socks => format!("SOCKS5, SOCKS4a and HTTP proxy {via}"),
        LocalKind::Http => format!("HTTP proxy {via}"),
        LocalKind::Tunnel { target } => format!("tunnel to {target} {via}"),
        LocalKind::Redir { tcp } => format!("{} {via}", redir::about(*tcp, transport)),
    }
}

fn limits(config: &Config, timeout: Duration) -> Limits {
    let idle = config.idle_timeout();
    Limits {
        handshake: timeout,
        connect: timeout.min(CONNECT_LIMIT),
        idle,
        half_closed_idle: HALF_CLOSED_IDLE.min(idle),
        first_payload: FIRST_PAYLOAD_WAIT,
    }
}

pub(crate) const fn order(config: &Config) -> Order {
    match config.address_order {
        AddressOrder::System => Order::System,
        AddressOrder::Ipv4First => Order::Ipv4First,
        AddressOrder::Ipv6First => Order::Ipv6First,
    }
}

fn outgoing(config: &Config) -> StreamOptions {
    let sockets = &config.sockets;
    stream_options(config, sockets.outgoing_sndbuf, sockets.outgoing_rcvbuf)
}

/// Options of listeners, which accepted connections inherit.
pub(crate) fn incoming(config: &Config) -> StreamOptions {
    let sockets = &config.sockets;
    stream_options(config, sockets.incoming_sndbuf, sockets.incoming_rcvbuf)
}

fn stream_options(config: &Config, send: Option<u32>, recv: Option<u32>) -> StreamOptions {
    let sockets = &config.sockets;
    StreamOptions {
        no_delay: sockets.no_delay,
        keepalive: (!sockets.keep_alive.is_zero()).then_some(sockets.keep_alive),
        send_buffer: send.map(|b| b as usize),
        recv_buffer: recv.map(|b| b as usize),
        multipath: sockets.mptcp,
        fast_open: sockets.fast_open,
    }
}

pub(crate) fn outbound(options: &adit_config::OutboundOptions) -> OutboundOptions {
    OutboundOptions {
        bind_v4: options.bind_v4,
        bind_v6: options.bind_v6,
        interface: options.interface.as_deref().map(Into::into),
        mark: redir::usable_mark(options.fwmark),
    }
}

/// How DNS queries leave: as connections to targets do, or to the first server.
pub(crate) fn resolver_outbound(config: &Config) -> OutboundOptions {
    let options = match &config.role {
        // A subscription may not have brought a server yet; a mark is the same everywhere.
        ConfigRole::Client { servers, direct, .. } => {
            Some(servers.first().map_or(direct, |server| &server.outbound))
        }
        ConfigRole::Server { .. } if config.manager.is_some() => {
            config.manager.as_ref().map(|manager| &manager.outbound)
        }
        ConfigRole::Server { listeners } => listeners.first().map(|l| &l.outbound),
    };
    options.map(outbound).unwrap_or_default()
}

/// Whether an address stands for every address of its family.
pub(crate) const fn is_wildcard(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_unspecified(),
        IpAddr::V6(ip) => ip.is_unspecified(),
    }
}
