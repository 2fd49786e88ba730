//! The settings that options and keys of files have in common.
//!
//! A [`Setting`] knows where a value goes and how its text or number is read. The tables of
//! options (`flags`) and keys (`file`) only say how it is spelt, so that both mean the same.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::config::{AddressOrder, Interception, Mode};
use crate::diagnostic::{At, Origin};
use crate::endpoint::{self, Endpoint, EndpointError, Host};
use crate::link::Link;
use crate::online;
use crate::plugin::{self, RawPlugin};
use crate::raw::{Bind, Raw, RawServer};
use crate::secret::{Password, Secret};
use crate::value::{self, Complaint, Nameservers};

/// Servers given at most, as in the C programs.
pub(crate) const HOSTS_MAX: usize = 10;
/// UDP sessions of one worker at most; each takes memory when the program starts.
const SESSIONS_MAX: u32 = 1 << 20;

/// What to say about the path of a server program.
pub(crate) const NO_EXECUTABLE: &str =
    "has no effect: all ports are served by this process; remove it";
/// What to say about a working directory of server programs.
pub(crate) const NO_SERVER_DIRECTORY: &str = "has no effect: all ports are served by this process; \
                                              to keep ports across restarts write --state-file";
/// What to say about the local DNS server.
pub(crate) const NO_DNS_SERVER: &str = "the local DNS server is not in this version; remove it";
/// What to say about TUN interfaces.
pub(crate) const NO_TUN: &str = "TUN interfaces are not in this version; remove it";
/// What to say about proxies towards targets.
pub(crate) const NO_PROXY: &str = "proxies towards the targets are not in this version; remove it";
/// What to say about targets in a client.
pub(crate) const NO_TARGETS: &str =
    "has no effect on a client: it is the server that refuses targets; write it there";
/// What to say about nftables sets.
pub(crate) const NO_NFTABLES: &str = "nftables sets are not in this version; remove it";
/// What to say about a largest packet.
pub(crate) const NO_MTU: &str = "is not needed: datagrams of any size pass, and the kernel \
                                 fragments those that are larger than the path allows; remove it";

/// A value of one source: an option, or a key of a file.
pub(crate) struct Given<'a> {
    /// Its text; empty for an option that takes none.
    pub(crate) value: &'a str,
    /// Where it stood.
    pub(crate) origin: Origin,
}

type Outcome = Result<(), Complaint>;

/// Where a value goes and how it is read.
#[derive(Clone, Copy)]
pub(crate) enum Setting {
    /// True as an option, a boolean in a file.
    Switch(fn(&mut Raw) -> &mut Option<bool>),
    /// A number of at least 0.
    Count(fn(&mut Raw) -> &mut Option<u32>),
    /// A number of at least 1.
    Positive(fn(&mut Raw) -> &mut Option<u32>),
    /// Seconds, at least 1.
    Seconds(fn(&mut Raw) -> &mut Option<Duration>),
    /// The size of a socket's buffer.
    Buffer(fn(&mut Raw) -> &mut Option<At<u32>>),
    /// A port.
    Port(fn(&mut Raw) -> &mut Option<At<u16>>),
    /// Another number.
    Number(fn(&mut Raw, Option<i64>) -> Outcome),
    /// A host without a port.
    Host(fn(&mut Raw) -> &mut Option<At<Host>>),
    /// A host with a port.
    Endpoint(fn(&mut Raw) -> &mut Option<At<Endpoint>>),
    /// What is relayed.
    Mode(fn(&mut Raw) -> &mut Option<At<Mode>>),
    /// Another text.
    Text(fn(&mut Raw, Given<'_>) -> Outcome),
}

impl Setting {
    /// Sets it from the text of an option.
    pub(crate) fn set(self, raw: &mut Raw, given: Given<'_>) -> Outcome {
        let Given { value, origin } = given;
        match self {
            Self::Switch(slot) => *slot(raw) = Some(true),
            Self::Host(slot) => *slot(raw) = Some(At::new(Host::parse(value)?, origin)),
            Self::Endpoint(slot) => *slot(raw) = Some(At::new(Endpoint::parse(value)?, origin)),
            Self::Mode(slot) => *slot(raw) = Some(At::new(value::mode(value)?, origin)),
            Self::Text(set) => set(raw, Given { value, origin })?,
            _ => self.set_number(raw, value::whole(value), origin)?,
        }
        Ok(())
    }

    /// Whether it is a number.
    pub(crate) const fn is_number(self) -> bool {
        use Setting::{Buffer, Count, Number, Port, Positive, Seconds};
        matches!(self, Count(_) | Positive(_) | Seconds(_) | Buffer(_) | Port(_) | Number(_))
    }

    /// Sets it from a number, if it is one.
    pub(crate) fn set_number(self, raw: &mut Raw, number: Option<i64>, origin: Origin) -> Outcome {
        match self {
            Self::Count(slot) => *slot(raw) = Some(value::not_negative(number)?),
            Self::Positive(slot) => *slot(raw) = Some(value::positive(number)?),
            Self::Seconds(slot) => {
                *slot(raw) = Some(Duration::from_secs(value::positive(number)?.into()));
            }
            Self::Buffer(slot) => {
                *slot(raw) = Some(At::new(value::not_negative(number)?, origin));
            }
            Self::Port(slot) => *slot(raw) = Some(At::new(value::port(number)?, origin)),
            Self::Number(set) => set(raw, number)?,
            Self::Switch(_) | Self::Host(_) | Self::Endpoint(_) | Self::Mode(_) | Self::Text(_) => {
            }
        }
        Ok(())
    }
}

/// Adds a server, or on a server an address to listen on.
pub(crate) const SERVER: Setting = Setting::Text(server);
/// As [`SERVER`], with a port.
pub(crate) const SERVER_WITH_PORT: Setting = Setting::Text(|raw, given| {
    if matches!(endpoint::split(given.value), Ok((_, None))) {
        return Err("each server needs a port; write HOST:PORT, or [IPv6]:PORT".into());
    }
    server(raw, given)
});
pub(crate) const SERVER_PORT: Setting = Setting::Port(|raw| &mut raw.server.port);
pub(crate) const SERVER_URL: Setting = Setting::Text(server_url);
pub(crate) const ONLINE_URL: Setting = Setting::Text(|raw, given| {
    let url = online::url(given.value)?;
    raw.online.url = Some(At::new(url, given.origin));
    Ok(())
});
pub(crate) const ONLINE_INTERVAL: Setting = Setting::Seconds(|raw| &mut raw.online.update_interval);
pub(crate) const ONLINE_PLUGIN: Setting = Setting::Text(|raw, given| {
    raw.online.allowed_plugins.push(given.value.into());
    Ok(())
});
pub(crate) const ONLINE_CACHE: Setting = Setting::Text(|raw, given| {
    let path = Path::new(given.value);
    // The same file wherever the process is when it is read again.
    raw.online.cache_file = Some(std::path::absolute(path).unwrap_or_else(|_| path.into()));
    Ok(())
});
pub(crate) const ACL: Setting = Setting::Text(|raw, given| {
    raw.server.acl = Some(path_of(given));
    Ok(())
});
pub(crate) const LOCAL_ACL: Setting = Setting::Text(|raw, given| {
    raw.local.acl = Some(path_of(given));
    Ok(())
});
pub(crate) const GEOIP_DATABASE: Setting = Setting::Text(|raw, given| {
    raw.geoip_database = Some(path_of(given));
    Ok(())
});
pub(crate) const MAX_SERVER_RTT: Setting = Setting::Seconds(|raw| &mut raw.balancer.max_server_rtt);
pub(crate) const CHECK_INTERVAL: Setting = Setting::Seconds(|raw| &mut raw.balancer.check_interval);
pub(crate) const CHECK_BEST_INTERVAL: Setting =
    Setting::Seconds(|raw| &mut raw.balancer.check_best_interval);
pub(crate) const PASSWORD: Setting = Setting::Text(|raw, given| {
    raw.server.secret = Some(At::new(Secret::Password(Password::new(given.value)), given.origin));
    Ok(())
});
pub(crate) const KEY: Setting = Setting::Text(|raw, given| {
    raw.server.secret = Some(At::new(Secret::Key(Password::new(given.value)), given.origin));
    Ok(())
});
pub(crate) const METHOD: Setting = Setting::Text(|raw, given| {
    raw.server.method = Some(At::new(method_named(given.value)?, given.origin));
    Ok(())
});
pub(crate) const PLUGIN: Setting = Setting::Text(|raw, given| {
    raw.server.plugin.program = Some(At::new(plugin::program(given.value)?, given.origin));
    Ok(())
});
pub(crate) const PLUGIN_OPTIONS: Setting = Setting::Text(|raw, given| {
    raw.server.plugin.options = Some(At::new(plugin::options(given.value)?, given.origin));
    Ok(())
});
pub(crate) const PLUGIN_MODE: Setting = Setting::Mode(|raw| &mut raw.server.plugin.mode);
pub(crate) const TIMEOUT: Setting = Setting::Seconds(|raw| &mut raw.server.timeout);

pub(crate) const LOCAL_PORT: Setting = Setting::Port(|raw| &mut raw.local.port);
pub(crate) const LOCAL_ADDRESS: Setting = Setting::Text(|raw, given| {
    raw.local.address = Some(At::new(value::bind(given.value)?, given.origin));
    Ok(())
});
pub(crate) const LOCAL_ENDPOINT: Setting = Setting::Text(|raw, given| {
    if value::is_unix(given.value) {
        return LOCAL_ADDRESS.set(raw, given);
    }
    let Endpoint { host, port } = Endpoint::parse(given.value)?;
    raw.local.address = Some(At::new(Bind::Host(host), given.origin));
    raw.local.port = Some(At::new(port, given.origin));
    Ok(())
});
pub(crate) const UDP_ADDRESS: Setting = Setting::Host(|raw| &mut raw.local.udp_address);
pub(crate) const UDP_PORT: Setting = Setting::Port(|raw| &mut raw.local.udp_port);
pub(crate) const UDP_ENDPOINT: Setting = Setting::Text(|raw, given| {
    let Endpoint { host, port } = Endpoint::parse(given.value)?;
    raw.local.udp_address = Some(At::new(host, given.origin));
    raw.local.udp_port = Some(At::new(port, given.origin));
    Ok(())
});
pub(crate) const UDP_ASSOCIATE: Setting = Setting::Text(|raw, given| {
    let (host, port) = endpoint::split(given.value)?;
    let ip = host.ip().ok_or(EndpointError::NotAddress)?;
    raw.local.udp_associate = Some(At::new((ip, port), given.origin));
    Ok(())
});
pub(crate) const PROTOCOL: Setting = Setting::Text(|raw, given| {
    raw.local.protocol = Some(At::new(value::protocol(given.value)?, given.origin));
    Ok(())
});
pub(crate) const TARGET: Setting = Setting::Endpoint(|raw| &mut raw.local.target);
pub(crate) const FORWARD_ADDRESS: Setting = Setting::Host(|raw| &mut raw.local.forward_address);
pub(crate) const FORWARD_PORT: Setting = Setting::Port(|raw| &mut raw.local.forward_port);

pub(crate) const TCP_REDIR: Setting = Setting::Text(|raw, given| {
    raw.local.tcp_redir = Some(At::new(value::tcp_redir(given.value)?, given.origin));
    Ok(())
});
pub(crate) const UDP_REDIR: Setting = Setting::Text(|raw, given| {
    raw.local.udp_redir = Some(At::new(value::udp_redir(given.value)?, given.origin));
    Ok(())
});
/// The option of the C programs.
pub(crate) const TPROXY: Setting = Setting::Text(|raw, given| {
    raw.local.tcp_redir = Some(At::new(Interception::Tproxy, given.origin));
    Ok(())
});

pub(crate) const MODE: Setting = Setting::Mode(|raw| &mut raw.mode);
pub(crate) const SERVER_MODE: Setting = Setting::Mode(|raw| &mut raw.server.mode);
pub(crate) const LOCAL_MODE: Setting = Setting::Mode(|raw| &mut raw.local.mode);
pub(crate) const TCP_ONLY: Setting = Setting::Text(|raw, given| mode(raw, given, Mode::TcpOnly));
pub(crate) const TCP_AND_UDP: Setting =
    Setting::Text(|raw, given| mode(raw, given, Mode::TcpAndUdp));
pub(crate) const UDP_ONLY: Setting = Setting::Text(|raw, given| mode(raw, given, Mode::UdpOnly));
pub(crate) const UDP_TIMEOUT: Setting = Setting::Seconds(|raw| &mut raw.udp_timeout);
pub(crate) const UDP_SESSIONS: Setting = Setting::Number(|raw, number| {
    let number = value::positive(number).ok().filter(|&number| number <= SESSIONS_MAX);
    raw.udp_sessions_max = Some(number.ok_or("write a number from 1 to 1048576")?);
    Ok(())
});

pub(crate) const BLOCK_PRIVATE: Setting = Setting::Switch(|raw| &mut raw.block_private);
pub(crate) const ALLOW_PRIVATE: Setting = Setting::Text(|raw, _| {
    raw.block_private = Some(false);
    Ok(())
});
pub(crate) const CONNECTIONS_PER_CLIENT: Setting =
    Setting::Count(|raw| &mut raw.connections_per_client);
pub(crate) const SESSIONS_PER_CLIENT: Setting = Setting::Count(|raw| &mut raw.sessions_per_client);
pub(crate) const PRINTABLE_SALT: Setting = Setting::Switch(|raw| &mut raw.printable_salt);

pub(crate) const USER: Setting = Setting::Text(|raw, given| {
    raw.user = Some(value::user(given.value)?);
    Ok(())
});
pub(crate) const NOFILE: Setting = Setting::Positive(|raw| &mut raw.nofile);
pub(crate) const WORKERS: Setting = Setting::Number(|raw, number| {
    raw.workers = Some(value::workers(number)?);
    Ok(())
});
pub(crate) const SINGLE_THREADED: Setting = Setting::Text(|raw, _| {
    raw.workers = Some(std::num::NonZeroU16::MIN);
    Ok(())
});
pub(crate) const NAMESERVER: Setting = Setting::Text(|raw, given| {
    raw.nameservers = Some(Nameservers::Listed(value::nameservers(given.value)?));
    Ok(())
});
pub(crate) const DNS: Setting = Setting::Text(|raw, given| {
    raw.nameservers = Some(value::dns(given.value)?);
    Ok(())
});
pub(crate) const DNS_CACHE_SIZE: Setting = Setting::Count(|raw| &mut raw.dns_cache_size);
pub(crate) const REPLAY_POLICY: Setting = Setting::Text(|raw, given| {
    raw.replay_policy = Some(value::replay_policy(given.value)?);
    Ok(())
});
pub(crate) const IPV4_FIRST: Setting = Setting::Text(|raw, _| {
    raw.address_order = Some(AddressOrder::Ipv4First);
    Ok(())
});
pub(crate) const IPV6_FIRST: Setting = Setting::Text(|raw, _| {
    raw.address_order = Some(AddressOrder::Ipv6First);
    Ok(())
});
pub(crate) const VERBOSE: Setting = Setting::Text(|raw, _| {
    raw.log_level = Some(raw.log_level.unwrap_or_default().next());
    Ok(())
});
pub(crate) const LOG_WITHOUT_TIME: Setting = Setting::Switch(|raw| &mut raw.log_without_time);
pub(crate) const DAEMONIZE: Setting = Setting::Text(|raw, _| {
    raw.daemonize = true;
    Ok(())
});

pub(crate) const REUSE_PORT: Setting = Setting::Switch(|raw| &mut raw.sockets.reuse_port);
pub(crate) const NO_DELAY: Setting = Setting::Switch(|raw| &mut raw.sockets.no_delay);
pub(crate) const FAST_OPEN: Setting = Setting::Switch(|raw| &mut raw.sockets.fast_open);
pub(crate) const MPTCP: Setting = Setting::Switch(|raw| &mut raw.sockets.mptcp);
pub(crate) const IPV6_ONLY: Setting = Setting::Switch(|raw| &mut raw.sockets.ipv6_only);
pub(crate) const KEEP_ALIVE: Setting = Setting::Number(|raw, number| {
    raw.sockets.keep_alive = Some(value::keep_alive(number)?);
    Ok(())
});
pub(crate) const INCOMING_SNDBUF: Setting = Setting::Buffer(|raw| &mut raw.sockets.incoming_sndbuf);
pub(crate) const INCOMING_RCVBUF: Setting = Setting::Buffer(|raw| &mut raw.sockets.incoming_rcvbuf);
pub(crate) const OUTGOING_SNDBUF: Setting = Setting::Buffer(|raw| &mut raw.sockets.outgoing_sndbuf);
pub(crate) const OUTGOING_RCVBUF: Setting = Setting::Buffer(|raw| &mut raw.sockets.outgoing_rcvbuf);
pub(crate) const INTERFACE: Setting = Setting::Text(|raw, given| {
    raw.server.outbound.interface = Some(value::interface(given.value)?);
    Ok(())
});
/// One source address a family; a later one replaces an earlier one.
pub(crate) const OUTBOUND_ADDRESS: Setting = Setting::Text(|raw, given| {
    let ip = value::ip(given.value)?;
    let bind = &mut raw.server.outbound.bind;
    bind.retain(|known| known.value.is_ipv4() != ip.is_ipv4());
    bind.push(At::new(ip, given.origin));
    Ok(())
});
/// A mark in a file.
pub(crate) const FWMARK: Setting = Setting::Number(|raw, number| {
    raw.server.outbound.fwmark = Some(value::fwmark(number)?);
    Ok(())
});
/// A mark on a command line.
pub(crate) const FWMARK_TEXT: Setting = Setting::Text(|raw, given| {
    raw.server.outbound.fwmark = Some(value::fwmark_text(given.value)?);
    Ok(())
});
/// Where a manager is: a path, or a host with or without a port.
pub(crate) const MANAGER_ADDRESS: Setting = Setting::Text(|raw, given| {
    raw.manager.address = Some(At::new(value::manager_host(given.value)?, given.origin));
    Ok(())
});
pub(crate) const MANAGER_PORT: Setting = Setting::Port(|raw| &mut raw.manager.port);
pub(crate) const MANAGER_SERVER_MODE: Setting = Setting::Text(|_, given| match given.value {
    "builtin" => Ok(()),
    "standalone" => Err("all ports are served by this process; write builtin".into()),
    _ => Err("write builtin".into()),
});
pub(crate) const WORKDIR: Setting = Setting::Text(|raw, given| {
    raw.manager.workdir = Some(given.value.into());
    Ok(())
});
pub(crate) const STATE_FILE: Setting = Setting::Text(|raw, given| {
    raw.manager.state_file = Some(given.value.into());
    Ok(())
});
/// What is done anyway.
pub(crate) const AS_IT_IS: Setting = Setting::Text(|_, _| Ok(()));

fn server(raw: &mut Raw, given: Given<'_>) -> Outcome {
    if raw.server.hosts.len() == HOSTS_MAX {
        return Err("more than 10 servers; write them as \"servers\" in a file".into());
    }
    let host = endpoint::split(given.value).map_err(|e| format!("invalid server endpoint; {e}"))?;
    raw.server.hosts.push(At::new(host, given.origin));
    Ok(())
}

/// A path that names the same file wherever the process is when it is read again.
fn path_of(given: Given<'_>) -> At<PathBuf> {
    let path = Path::new(given.value);
    At::new(std::path::absolute(path).unwrap_or_else(|_| path.into()), given.origin)
}

fn server_url(raw: &mut Raw, given: Given<'_>) -> Outcome {
    if online::is_dynamic_key(given.value) {
        return ONLINE_URL.set(raw, given);
    }
    if raw.servers.len() == HOSTS_MAX {
        return Err("more than 10 links; write the servers as \"servers\" in a file".into());
    }
    let mut server = server_of_link(Link::parse(given.value)?, given.origin)?;
    if server.plugin.wanted().is_none() {
        // --plugin may still name one.
        server.plugin = RawPlugin::default();
    }
    raw.servers.push(server);
    Ok(())
}

/// The server of a link, complete in itself.
pub(crate) fn server_of_link(link: Link, origin: Origin) -> Result<RawServer, Complaint> {
    // The link is the whole server: a file's plugin is not for it.
    let mut plugin =
        RawPlugin { program: Some(At::new("".into(), origin)), ..RawPlugin::default() };
    if let Some(given) = link.plugin {
        plugin.program = Some(At::new(plugin::program(&given.name)?, origin));
        let options = given.options.as_deref().map(plugin::options).transpose()?;
        plugin.options = options.map(|options| At::new(options, origin));
    }
    Ok(RawServer {
        plugin,
        origin: Some(origin),
        hosts: vec![At::new((link.endpoint.host, Some(link.endpoint.port)), origin)],
        method: Some(At::new(method_named(&link.method)?, origin)),
        secret: Some(At::new(Secret::Password(link.password), origin)),
        name: link.tag.map(Into::into),
        ..RawServer::default()
    })
}

fn mode(raw: &mut Raw, given: Given<'_>, mode: Mode) -> Outcome {
    raw.mode = Some(At::new(mode, given.origin));
    Ok(())
}

fn method_named(name: &str) -> Result<adit_shadowsocks::Method, Complaint> {
    Ok(adit_shadowsocks::Method::from_name(name)?)
}
