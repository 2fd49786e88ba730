//! The one step from settings as given to a legal [`Config`].
//!
//! All findings are collected, so that a user sees every mistake at once. Servers and listeners
//! have files of their own; here is what belongs to the process.

mod links;
mod locals;
mod manager;
mod redir;
mod servers;

use std::num::NonZeroU32;
use std::time::Duration;

use crate::acl::AccessLists;
use crate::config::{
    Balancer, Config, KEEP_ALIVE_DEFAULT, Protection, RemoteServer, Role, SocketOptions,
    TIMEOUT_DEFAULT, UDP_SESSIONS_DEFAULT, UDP_TIMEOUT_DEFAULT, UDP_TIMEOUT_MIN, UdpOptions,
};
use crate::diagnostic::{At, Findings, Origin};
use crate::file::Lookup;
use crate::manager::ManagerOptions;
use crate::online::{Online, UPDATE_INTERVAL_DEFAULT};
use crate::program::{Dialect, Invoked, Program};
use crate::raw::{Raw, RawServer, RawSockets};
use crate::source::Sources;
use crate::value::{Nameservers, SOCKET_BUFFER_MIN};

pub(crate) use links::links;
pub(crate) use manager::listeners_of;

/// Checks `raw`, to whose servers those of a subscription are added; `None` when `findings` has an
/// error.
pub(crate) fn validate(
    raw: Raw,
    sources: Sources,
    env: Lookup<'_>,
    subscribed: Vec<RemoteServer>,
    findings: &mut Findings,
) -> Option<Config> {
    let invoked = sources.invoked;
    // What is missing is missing in the file, if there is one.
    let origin = sources.origin();
    let acls = AccessLists::new(raw.geoip_database.clone());
    let mut check = Check { invoked, origin, findings, acls };
    let mut manager = None;
    let mut report_to = None;
    let role = if invoked.program == Program::Manager {
        manager = check.manager(&raw, env);
        let ports = manager.iter().flat_map(|manager: &ManagerOptions| &manager.ports);
        Role::Server { listeners: ports.flat_map(|port| port.listeners.clone()).collect() }
    } else if invoked.program == Program::Server {
        if let Some(url) = &raw.online.url {
            check.findings.error(url.origin, "a server has no subscription; write an ss:// link");
        }
        report_to = check.manager_address(&raw);
        Role::Server { listeners: check.listeners(&raw) }
    } else {
        let mut servers = check.remote_servers(&raw);
        servers.extend(subscribed);
        let (locals, unix_locals) = check.locals(&raw, &servers);
        check.usable(&locals, &unix_locals, &servers);
        let mut direct = servers::outbound(&raw.server.outbound);
        redir::mark(&locals, servers.iter_mut().map(|s| &mut s.outbound).chain([&mut direct]));
        Role::Client { locals, unix_locals, servers, direct }
    };
    if let Some(origin) = check.acls.is_idle() {
        let text =
            "the database has no effect without an access control list; write \"acl\" (--acl)";
        check.findings.warn(origin, text);
    }
    let (balancer, online) = (balancer(&raw), online(&raw, check.origin, check.findings));
    let merged = online.is_some().then(|| Box::new(raw.clone()));
    let sockets = check.sockets(raw.sockets);
    if !findings.is_usable() {
        return None;
    }
    let has_secrets = sources.has_secrets;
    let timeout = raw.server.timeout.unwrap_or(TIMEOUT_DEFAULT);
    Some(Config {
        invoked,
        role,
        sockets,
        timeout,
        address_order: raw.address_order.unwrap_or_default(),
        nameservers: match raw.nameservers {
            None | Some(Nameservers::System) => None,
            Some(Nameservers::Listed(list)) => Some(list),
        },
        dns_cache_size: raw.dns_cache_size,
        user: raw.user,
        nofile: raw.nofile,
        pid_file: raw.pid_file,
        daemonize: raw.daemonize,
        workers: raw.workers,
        log_level: raw.log_level.unwrap_or_default(),
        log_time: raw.log_without_time != Some(true),
        replay_policy: raw.replay_policy.unwrap_or_default(),
        udp: UdpOptions {
            timeout: raw.udp_timeout.unwrap_or_else(|| udp_timeout(invoked.dialect, timeout)),
            sessions_max: raw.udp_sessions_max.unwrap_or(UDP_SESSIONS_DEFAULT),
        },
        protection: Protection {
            block_private: raw.block_private == Some(true),
            connections_per_client: raw.connections_per_client.and_then(NonZeroU32::new),
            sessions_per_client: raw.sessions_per_client.and_then(NonZeroU32::new),
        },
        balancer,
        online,
        merged,
        secrets_on_argv: has_secrets,
        manager,
        report_to,
        warnings: findings.warnings().iter().map(ToString::to_string).collect(),
        sources,
    })
}

fn balancer(raw: &Raw) -> Balancer {
    let default = Balancer::default();
    Balancer {
        max_server_rtt: raw.balancer.max_server_rtt.unwrap_or(default.max_server_rtt),
        check_interval: raw.balancer.check_interval.unwrap_or(default.check_interval),
        check_best_interval: raw.balancer.check_best_interval,
    }
}

/// The subscription, if there is one.
fn online(raw: &Raw, origin: Origin, findings: &mut Findings) -> Option<Online> {
    let given = &raw.online;
    let Some(url) = &given.url else {
        let is_alone = given.update_interval.is_some()
            || given.cache_file.is_some()
            || !given.allowed_plugins.is_empty();
        if is_alone {
            let text = "the settings of a subscription have no effect without its address; write \
                        --online-config-url, or \"config_url\" in \"online_config\"";
            findings.warn(origin, text);
        }
        return None;
    };
    Some(Online {
        url: url.value.clone(),
        update_interval: given.update_interval.unwrap_or(UPDATE_INTERVAL_DEFAULT),
        cache_file: given.cache_file.clone(),
        allowed_plugins: given.allowed_plugins.clone(),
    })
}

/// A server of a subscription, which inherits from `base`; with several addresses there are
/// several.
pub(crate) fn subscribed_server(
    server: RawServer,
    base: &Raw,
    invoked: Invoked,
    findings: &mut Findings,
) -> Vec<RemoteServer> {
    let raw = Raw { servers: vec![server], ..base.clone() };
    let acls = AccessLists::default();
    Check { invoked, origin: Origin::File, findings, acls }.remote_servers(&raw)
}

/// Sessions end with the timeout in the C programs, where it is not very short.
fn udp_timeout(dialect: Dialect, timeout: Duration) -> Duration {
    match dialect {
        Dialect::Libev => timeout.max(UDP_TIMEOUT_MIN),
        Dialect::Rust => UDP_TIMEOUT_DEFAULT,
    }
}

/// What the checks share.
pub(crate) struct Check<'a> {
    pub(crate) invoked: Invoked,
    /// Where something that is not there is missing.
    origin: Origin,
    pub(crate) findings: &'a mut Findings,
    acls: AccessLists,
}

/// Names of the settings a program cannot do without.
#[derive(Clone, Copy)]
enum Required {
    Server,
    ServerPort,
    Password,
    Method,
    LocalPort,
    Target,
    ManagerAddress,
}

impl Required {
    /// The keys that can give it.
    const fn keys(self) -> &'static [&'static str] {
        match self {
            Self::Server => &["server", "address"],
            Self::ServerPort => &["server_port", "port"],
            Self::Password => &["password", "key"],
            Self::Method => &["method"],
            Self::LocalPort => &["local_port"],
            Self::Target => &["tunnel_address", "forward_address", "forward_port"],
            Self::ManagerAddress => &["manager_address", "manager_port"],
        }
    }
}

impl Check<'_> {
    /// Records that a setting is missing, at the entry it is missing in.
    fn missing(&mut self, entry: Option<Origin>, what: Required) {
        if self.is_wrong(entry, what) {
            return;
        }
        let (flag, key) = self.spelling(what);
        let message =
            format!("missing required argument {flag}, or key \"{key}\" in the configuration file");
        self.findings.error(entry.unwrap_or(self.origin), message);
    }

    /// Whether the setting is there, in the entry or above it, and was found wrong: that it is
    /// missing as well would mislead.
    fn is_wrong(&self, entry: Option<Origin>, what: Required) -> bool {
        let parent = entry.and_then(|entry| self.findings.key(entry));
        let parent = parent.map(|key| format!("{key}.")).unwrap_or_default();
        self.findings
            .wrong_keys()
            .any(|key| what.keys().contains(&key.strip_prefix(&*parent).unwrap_or(key)))
    }

    const fn spelling(&self, what: Required) -> (&'static str, &'static str) {
        let rust = matches!(self.invoked.dialect, Dialect::Rust);
        let server = !self.invoked.program.is_client();
        match what {
            Required::ManagerAddress if rust => ("--manager-addr", "manager_address"),
            Required::ManagerAddress => ("--manager-address", "manager_address"),
            Required::Server if rust => ("--server-addr", "server"),
            Required::Server if server => ("--listen-address", "server"),
            Required::Server => ("--server", "server"),
            Required::ServerPort if rust => ("--server-addr", "server_port"),
            Required::ServerPort if server => ("--listen-port", "server_port"),
            Required::ServerPort => ("--server-port", "server_port"),
            Required::Password => ("--password", "password"),
            Required::Method if rust => ("--encrypt-method", "method"),
            Required::Method => ("--cipher", "method"),
            Required::LocalPort if rust => ("--local-addr", "local_port"),
            Required::LocalPort => ("--listen-port", "local_port"),
            Required::Target if rust => ("--forward-addr", "forward_address"),
            Required::Target => ("--destination", "tunnel_address"),
        }
    }

    fn sockets(&mut self, raw: RawSockets) -> SocketOptions {
        SocketOptions {
            reuse_port: raw.reuse_port.unwrap_or_default(),
            no_delay: raw.no_delay.unwrap_or(true),
            fast_open: raw.fast_open.unwrap_or_default(),
            mptcp: raw.mptcp.unwrap_or_default(),
            ipv6_only: raw.ipv6_only.unwrap_or_default(),
            keep_alive: raw.keep_alive.unwrap_or(KEEP_ALIVE_DEFAULT),
            incoming_sndbuf: self.buffer(raw.incoming_sndbuf),
            incoming_rcvbuf: self.buffer(raw.incoming_rcvbuf),
            outgoing_sndbuf: self.buffer(raw.outgoing_sndbuf),
            outgoing_rcvbuf: self.buffer(raw.outgoing_rcvbuf),
            dscp: raw.dscp,
        }
    }

    /// A buffer size; 0 leaves it to the system.
    fn buffer(&mut self, size: Option<At<u32>>) -> Option<u32> {
        let At { value, origin } = size.filter(|size| size.value != 0)?;
        if value < SOCKET_BUFFER_MIN && self.invoked.dialect == Dialect::Libev {
            self.findings.warn(origin, "has no effect below 16383 bytes; write more or remove it");
            return None;
        }
        Some(value)
    }

    /// Records a second listener on the same address: with port reuse it would be bound all the
    /// same and take every other connection.
    fn unique(&mut self, seen: &mut Vec<String>, bind: String, origin: Option<Origin>) {
        if seen.contains(&bind) {
            let origin = origin.unwrap_or(self.origin);
            self.findings.error(origin, format!("listens on {bind} a second time; remove one"));
        }
        seen.push(bind);
    }
}

#[cfg(test)]
mod tests;
