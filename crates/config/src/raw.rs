//! Settings as given, each with its origin, before anything is checked across settings.
//!
//! Options and files both end up here. [`Raw::over`] lays one source over another; what the
//! command line says beats the file, setting by setting. Single values are already well-formed.

use std::net::IpAddr;
use std::num::NonZeroU16;
use std::path::PathBuf;
use std::time::Duration;

use adit_shadowsocks::Method;

use crate::config::{AddressOrder, Interception, LogLevel, Mode, Protocol, ReplayPolicy};
use crate::diagnostic::{At, Origin};
use crate::endpoint::{Endpoint, Host};
use crate::plugin::RawPlugin;
use crate::secret::{Password, Secret};
use crate::value::Nameservers;

/// Everything one source says.
#[derive(Clone, Debug, Default)]
pub(crate) struct Raw {
    /// The server described by top-level keys or options.
    pub(crate) server: RawServer,
    /// Ports of the server at the top, each with its password.
    pub(crate) port_passwords: Vec<(At<u16>, At<Secret>)>,
    /// Entries of `servers`, without the disabled ones.
    pub(crate) servers: Vec<RawServer>,
    /// The local listener described by top-level keys or options.
    pub(crate) local: RawLocal,
    /// Entries of `locals`, without the disabled ones.
    pub(crate) locals: Vec<RawLocal>,
    pub(crate) sockets: RawSockets,
    pub(crate) mode: Option<At<Mode>>,
    pub(crate) address_order: Option<AddressOrder>,
    pub(crate) nameservers: Option<Nameservers>,
    pub(crate) dns_cache_size: Option<u32>,
    pub(crate) user: Option<Box<str>>,
    pub(crate) nofile: Option<u32>,
    pub(crate) pid_file: Option<PathBuf>,
    pub(crate) daemonize: bool,
    pub(crate) workers: Option<NonZeroU16>,
    pub(crate) log_level: Option<LogLevel>,
    pub(crate) log_without_time: Option<bool>,
    pub(crate) replay_policy: Option<ReplayPolicy>,
    pub(crate) udp_timeout: Option<Duration>,
    pub(crate) udp_sessions_max: Option<u32>,
    pub(crate) block_private: Option<bool>,
    /// Limits of one client; 0 is none.
    pub(crate) connections_per_client: Option<u32>,
    pub(crate) sessions_per_client: Option<u32>,
    pub(crate) printable_salt: Option<bool>,
    /// Country database of the access control lists.
    pub(crate) geoip_database: Option<At<PathBuf>>,
    pub(crate) balancer: RawBalancer,
    pub(crate) online: RawOnline,
    pub(crate) manager: RawManager,
}

/// How several servers are looked after.
#[derive(Clone, Debug, Default)]
pub(crate) struct RawBalancer {
    pub(crate) max_server_rtt: Option<Duration>,
    pub(crate) check_interval: Option<Duration>,
    pub(crate) check_best_interval: Option<Duration>,
}

/// A subscription.
#[derive(Clone, Debug, Default)]
pub(crate) struct RawOnline {
    /// Where it is; a secret.
    pub(crate) url: Option<At<Password>>,
    pub(crate) update_interval: Option<Duration>,
    pub(crate) allowed_plugins: Vec<Box<str>>,
    pub(crate) cache_file: Option<PathBuf>,
}

/// Settings of a manager, and the address of one.
#[derive(Clone, Debug, Default)]
pub(crate) struct RawManager {
    pub(crate) address: Option<At<ManagerHost>>,
    pub(crate) port: Option<At<u16>>,
    pub(crate) workdir: Option<PathBuf>,
    pub(crate) state_file: Option<PathBuf>,
}

/// Where a manager is, as given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ManagerHost {
    /// A host with a port of its own or none.
    Host(Host, Option<u16>),
    /// The absolute path of a Unix socket.
    Unix(PathBuf),
}

/// One server: to connect to on a client, to listen on on a server.
#[derive(Clone, Debug, Default)]
pub(crate) struct RawServer {
    pub(crate) origin: Option<Origin>,
    /// Hosts, each with a port of its own or none.
    pub(crate) hosts: Vec<At<(Host, Option<u16>)>>,
    pub(crate) port: Option<At<u16>>,
    pub(crate) secret: Option<At<Secret>>,
    pub(crate) method: Option<At<Method>>,
    pub(crate) users: Vec<RawUser>,
    /// Next hops of a relay; they have a host, a port, a secret and a name at most.
    pub(crate) destinations: Vec<Self>,
    pub(crate) mode: Option<At<Mode>>,
    pub(crate) name: Option<Box<str>>,
    pub(crate) id: Option<Box<str>>,
    pub(crate) tcp_weight: Option<f32>,
    pub(crate) udp_weight: Option<f32>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) disabled: bool,
    pub(crate) outbound: RawOutbound,
    pub(crate) plugin: RawPlugin,
    /// Its access control list; at the top that of everything.
    pub(crate) acl: Option<At<PathBuf>>,
}

/// A user of a shared port.
#[derive(Clone, Debug)]
pub(crate) struct RawUser {
    pub(crate) name: Box<str>,
    pub(crate) password: At<Password>,
    pub(crate) origin: Origin,
}

/// Options of outgoing sockets.
#[derive(Clone, Debug, Default)]
pub(crate) struct RawOutbound {
    pub(crate) fwmark: Option<u32>,
    pub(crate) interface: Option<Box<str>>,
    pub(crate) bind: Vec<At<IpAddr>>,
}

/// One local listener.
#[derive(Clone, Debug, Default)]
pub(crate) struct RawLocal {
    pub(crate) origin: Option<Origin>,
    pub(crate) address: Option<At<Bind>>,
    pub(crate) port: Option<At<u16>>,
    pub(crate) udp_address: Option<At<Host>>,
    pub(crate) udp_port: Option<At<u16>>,
    /// What is told to those who ask for an association.
    pub(crate) udp_associate: Option<At<(IpAddr, Option<u16>)>>,
    pub(crate) mode: Option<At<Mode>>,
    pub(crate) protocol: Option<At<Protocol>>,
    /// Target in one piece.
    pub(crate) target: Option<At<Endpoint>>,
    /// Target in two pieces.
    pub(crate) forward_address: Option<At<Host>>,
    pub(crate) forward_port: Option<At<u16>>,
    pub(crate) tcp_redir: Option<At<Interception>>,
    pub(crate) udp_redir: Option<At<Interception>>,
    /// Its access control list, where it has one of its own.
    pub(crate) acl: Option<At<PathBuf>>,
    pub(crate) disabled: bool,
}

/// What a local listener is bound to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Bind {
    Host(Host),
    /// The absolute path of a Unix socket.
    Unix(PathBuf),
}

/// Options of all sockets.
#[derive(Clone, Debug, Default)]
pub(crate) struct RawSockets {
    pub(crate) reuse_port: Option<bool>,
    pub(crate) no_delay: Option<bool>,
    pub(crate) fast_open: Option<bool>,
    pub(crate) mptcp: Option<bool>,
    pub(crate) ipv6_only: Option<bool>,
    pub(crate) keep_alive: Option<Duration>,
    pub(crate) incoming_sndbuf: Option<At<u32>>,
    pub(crate) incoming_rcvbuf: Option<At<u32>>,
    pub(crate) outgoing_sndbuf: Option<At<u32>>,
    pub(crate) outgoing_rcvbuf: Option<At<u32>>,
    pub(crate) dscp: Vec<(u16, u8)>,
}

impl Raw {
    /// Lays this source over `base`. Hosts given here replace all servers of `base`, and a
    /// listener given here replaces all its listeners; other server options go into every
    /// remaining entry.
    pub(crate) fn over(self, base: Self) -> Self {
        let (mut servers, mut locals) = (base.servers, base.locals);
        let mut base_server = base.server;
        // Links stand for servers as hosts do.
        if self.server.hosts.is_empty() && self.servers.is_empty() {
            for entry in &mut servers {
                let top = RawServer { hosts: Vec::new(), ..self.server.clone() };
                *entry = top.over(std::mem::take(entry));
            }
        } else {
            base_server.hosts.clear();
            if !self.servers.is_empty() {
                // Nor is the plugin there for them.
                base_server.plugin = RawPlugin::default();
            }
            servers = self.servers;
        }
        if self.local.is_listener() {
            locals = self.locals;
        }
        // A mode given here is the mode of everything.
        if self.mode.is_some() {
            servers.iter_mut().for_each(|entry| entry.mode = None);
            locals.iter_mut().for_each(|entry| entry.mode = None);
        }
        Self {
            servers,
            locals,
            port_passwords: first_filled(self.port_passwords, base.port_passwords),
            server: self.server.over(base_server),
            local: self.local.over(base.local),
            sockets: self.sockets.over(base.sockets),
            mode: self.mode.or(base.mode),
            address_order: self.address_order.or(base.address_order),
            nameservers: self.nameservers.or(base.nameservers),
            dns_cache_size: self.dns_cache_size.or(base.dns_cache_size),
            user: self.user.or(base.user),
            nofile: self.nofile.or(base.nofile),
            pid_file: self.pid_file.or(base.pid_file),
            daemonize: self.daemonize || base.daemonize,
            workers: self.workers.or(base.workers),
            log_level: self.log_level.or(base.log_level),
            log_without_time: self.log_without_time.or(base.log_without_time),
            replay_policy: self.replay_policy.or(base.replay_policy),
            udp_timeout: self.udp_timeout.or(base.udp_timeout),
            udp_sessions_max: self.udp_sessions_max.or(base.udp_sessions_max),
            block_private: self.block_private.or(base.block_private),
            connections_per_client: self.connections_per_client.or(base.connections_per_client),
            sessions_per_client: self.sessions_per_client.or(base.sessions_per_client),
            printable_salt: self.printable_salt.or(base.printable_salt),
            geoip_database: self.geoip_database.or(base.geoip_database),
            // No option sets it.
            balancer: base.balancer,
            online: self.online.over(base.online),
            manager: self.manager.over(base.manager),
        }
    }
}

impl RawOnline {
    fn over(self, base: Self) -> Self {
        Self {
            url: self.url.or(base.url),
            update_interval: self.update_interval.or(base.update_interval),
            allowed_plugins: first_filled(self.allowed_plugins, base.allowed_plugins),
            cache_file: self.cache_file.or(base.cache_file),
        }
    }
}

impl RawServer {
    /// Lays this one over `base`; also how an entry inherits what the top level says.
    pub(crate) fn over(self, base: Self) -> Self {
        Self {
            origin: self.origin.or(base.origin),
            hosts: first_filled(self.hosts, base.hosts),
            port: self.port.or(base.port),
            secret: self.secret.or(base.secret),
            method: self.method.or(base.method),
            users: first_filled(self.users, base.users),
            destinations: first_filled(self.destinations, base.destinations),
            mode: self.mode.or(base.mode),
            name: self.name.or(base.name),
            id: self.id.or(base.id),
            tcp_weight: self.tcp_weight.or(base.tcp_weight),
            udp_weight: self.udp_weight.or(base.udp_weight),
            timeout: self.timeout.or(base.timeout),
            disabled: self.disabled || base.disabled,
            outbound: RawOutbound {
                fwmark: self.outbound.fwmark.or(base.outbound.fwmark),
                interface: self.outbound.interface.or(base.outbound.interface),
                bind: first_filled(self.outbound.bind, base.outbound.bind),
            },
            plugin: self.plugin.over(base.plugin),
            acl: self.acl.or(base.acl),
        }
    }
}

impl RawLocal {
    /// Whether this says where to listen, and not only what entries of a list inherit.
    pub(crate) fn is_listener(&self) -> bool {
        self.port.is_some() || matches!(&self.address, Some(At { value: Bind::Unix(_), .. }))
    }

    fn over(self, base: Self) -> Self {
        // The two forms of a target are one setting: a new one in either form hides the other.
        let retargeted = self.target.is_some() || self.forward_address.is_some();
        let base = if retargeted {
            Self { target: None, forward_address: None, forward_port: None, ..base }
        } else {
            base
        };
        Self {
            origin: self.origin.or(base.origin),
            address: self.address.or(base.address),
            port: self.port.or(base.port),
            udp_address: self.udp_address.or(base.udp_address),
            udp_port: self.udp_port.or(base.udp_port),
            udp_associate: self.udp_associate.or(base.udp_associate),
            mode: self.mode.or(base.mode),
            protocol: self.protocol.or(base.protocol),
            target: self.target.or(base.target),
            forward_address: self.forward_address.or(base.forward_address),
            forward_port: self.forward_port.or(base.forward_port),
            tcp_redir: self.tcp_redir.or(base.tcp_redir),
            udp_redir: self.udp_redir.or(base.udp_redir),
            acl: self.acl.or(base.acl),
            disabled: self.disabled || base.disabled,
        }
    }
}

impl RawManager {
    fn over(self, base: Self) -> Self {
        // A new address hides the port of the old one.
        let port = if self.address.is_some() { None } else { base.port };
        Self {
            address: self.address.or(base.address),
            port: self.port.or(port),
            workdir: self.workdir.or(base.workdir),
            state_file: self.state_file.or(base.state_file),
        }
    }
}

impl RawSockets {
    fn over(self, base: Self) -> Self {
        Self {
            reuse_port: self.reuse_port.or(base.reuse_port),
            no_delay: self.no_delay.or(base.no_delay),
            fast_open: self.fast_open.or(base.fast_open),
            mptcp: self.mptcp.or(base.mptcp),
            ipv6_only: self.ipv6_only.or(base.ipv6_only),
            keep_alive: self.keep_alive.or(base.keep_alive),
            incoming_sndbuf: self.incoming_sndbuf.or(base.incoming_sndbuf),
            incoming_rcvbuf: self.incoming_rcvbuf.or(base.incoming_rcvbuf),
            outgoing_sndbuf: self.outgoing_sndbuf.or(base.outgoing_sndbuf),
            outgoing_rcvbuf: self.outgoing_rcvbuf.or(base.outgoing_rcvbuf),
            dscp: first_filled(self.dscp, base.dscp),
        }
    }
}

fn first_filled<T>(first: Vec<T>, second: Vec<T>) -> Vec<T> {
    if first.is_empty() { second } else { first }
}
