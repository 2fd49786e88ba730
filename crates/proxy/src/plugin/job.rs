//! What plugins are for: which server, which transports, at which addresses.

use std::fmt;
use std::net::SocketAddr;

use adit_config::{Config, Endpoint, Mode, Plugin, Role};
use adit_engine::guard::Transport;

/// At which end of the wire a plugin stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// Between us and a server: it listens on loopback.
    Client,
    /// Between clients and us: it listens at our public address, and we on loopback.
    Server,
}

/// One plugin that a configuration asks for.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub(crate) side: Side,
    pub(crate) plugin: Plugin,
    /// The Shadowsocks server: where the plugin connects to, or on a server listens.
    pub(crate) remote: Endpoint,
    /// What goes through the plugin: what it is configured for, as far as it is relayed.
    pub(crate) carries: Mode,
    /// What is relayed at all. The rest goes without the plugin.
    relays: Mode,
}

/// What a plugin finds in its environment, all but its options (SIP003).
pub(crate) struct Environment {
    variables: [(&'static str, String); 4],
}

/// Variables that no plugin gets from our own environment: those of SIP003, which would be someone
/// else's, the password, and what systemd tells its service alone.
pub(crate) const NOT_INHERITED: &[&str] = &[
    "SS_REMOTE_HOST",
    "SS_REMOTE_PORT",
    "SS_LOCAL_HOST",
    "SS_LOCAL_PORT",
    OPTIONS,
    "SS_SERVER_PASSWORD",
    "NOTIFY_SOCKET",
    "WATCHDOG_PID",
    "WATCHDOG_USEC",
];

/// Where a plugin finds its options.
const OPTIONS: &str = "SS_PLUGIN_OPTIONS";

impl Job {
    /// Whether a plugin that runs for `self` does all that `other` asks for.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.is_for(other.side, &other.remote, &other.plugin) && self.carries == other.carries
    }

    /// Whether this is the plugin of a server.
    pub(crate) fn is_for(&self, side: Side, remote: &Endpoint, plugin: &Plugin) -> bool {
        self.side == side && self.remote == *remote && self.plugin == *plugin
    }

    pub(crate) const fn carries(&self, transport: Transport) -> bool {
        match transport {
            Transport::Stream => self.carries.tcp(),
            Transport::Datagram => self.carries.udp(),
        }
    }

    /// What goes through it.
    pub(crate) fn transports(&self) -> impl Iterator<Item = Transport> {
        [Transport::Stream, Transport::Datagram].into_iter().filter(|t| self.carries(*t))
    }

    /// The port of ours that it stands in front of, if it does.
    pub(crate) fn serves(&self) -> Option<u16> {
        (self.side == Side::Server).then_some(self.remote.port)
    }

    /// What goes which way, for the start-up line. `local` is the address on loopback.
    pub(crate) fn ways(&self, local: SocketAddr) -> String {
        let way = |name: &str, relayed: bool, carried: bool| match (relayed, carried) {
            (true, true) => Some(format!("{name} through it ({local})")),
            (true, false) => Some(match self.side {
                Side::Client => format!("{name} directly to the server"),
                Side::Server => format!("{name} directly"),
            }),
            (false, _) => None,
        };
        let tcp = way("TCP", self.relays.tcp(), self.carries.tcp());
        let udp = way("UDP", self.relays.udp(), self.carries.udp());
        [tcp, udp].into_iter().flatten().collect::<Vec<_>>().join(", ")
    }

    /// The environment for a plugin whose address on loopback is `local`.
    pub(crate) fn environment(&self, local: SocketAddr) -> Environment {
        Environment {
            variables: [
                ("SS_REMOTE_HOST", self.remote.host.to_string()),
                ("SS_REMOTE_PORT", self.remote.port.to_string()),
                ("SS_LOCAL_HOST", local.ip().to_string()),
                ("SS_LOCAL_PORT", local.port().to_string()),
            ],
        }
    }
}

impl fmt::Display for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = match self.side {
            Side::Client => "for",
            Side::Server => "at",
        };
        write!(f, "plugin {} {place} {}", self.plugin.name(), self.remote)
    }
}

impl Environment {
    /// All variables. Without options there is no variable for them.
    pub(crate) fn with_options<'a>(&'a self, plugin: &'a Plugin) -> Vec<(&'static str, &'a str)> {
        let options = plugin.options.as_ref().map(|options| (OPTIONS, options.as_str()));
        self.variables.iter().map(|(name, value)| (*name, &**value)).chain(options).collect()
    }
}

/// The plugins that a configuration asks for, each once.
pub(crate) fn jobs(config: &Config) -> Vec<Job> {
    let mut jobs: Vec<Job> = Vec::new();
    let mut add = |job: Job| {
        if !jobs.iter().any(|known| known.is_same(&job)) {
            jobs.push(job);
        }
    };
    match &config.role {
        Role::Client { locals, unix_locals, servers, .. } => {
            let tcp = !unix_locals.is_empty() || locals.iter().any(|local| local.mode.tcp());
            let udp = locals.iter().any(|local| local.mode.udp());
            let Some(wanted) = Mode::of(tcp, udp) else { return jobs };
            for server in servers {
                let relays = server.mode.and(wanted);
                let job = job(Side::Client, server.plugin.as_ref(), &server.endpoint, relays);
                job.into_iter().for_each(&mut add);
            }
        }
        Role::Server { listeners } => {
            for listener in listeners {
                let (plugin, relays) = (listener.plugin.as_ref(), Some(listener.mode));
                job(Side::Server, plugin, &listener.bind, relays).into_iter().for_each(&mut add);
            }
        }
    }
    jobs
}

/// The plugin of a server that relays so much; none where it would have nothing to do.
fn job(
    side: Side,
    plugin: Option<&Plugin>,
    remote: &Endpoint,
    relays: Option<Mode>,
) -> Option<Job> {
    let (plugin, relays) = plugin.zip(relays)?;
    let carries = plugin.mode.and(relays)?;
    Some(Job { side, plugin: plugin.clone(), remote: remote.clone(), carries, relays })
}

/// Which plugins stand where, for whoever connects and listens. Immutable; a reload makes another.
#[derive(Default)]
pub(crate) struct Plugged {
    places: Vec<(Job, SocketAddr)>,
}

impl Plugged {
    pub(crate) const fn new(places: Vec<(Job, SocketAddr)>) -> Self {
        Self { places }
    }

    /// The address on loopback that takes the place of a server's for one transport, where a
    /// plugin carries it.
    pub(crate) fn instead(
        &self,
        side: Side,
        remote: &Endpoint,
        plugin: Option<&Plugin>,
        transport: Transport,
    ) -> Option<SocketAddr> {
        let plugin = plugin?;
        let mut places = self.places.iter();
        let found =
            places.find(|(job, _)| job.is_for(side, remote, plugin) && job.carries(transport));
        found.map(|(_, local)| *local)
    }
}
