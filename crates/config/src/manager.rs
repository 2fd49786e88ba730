//! The manager: its protocol, its ports, and what it keeps across restarts. No sockets, no clock.
//!
//! A request is a datagram, `command[:] [JSON object]`; every datagram is answered, or not, by
//! itself. Two dialects of the answers exist, and the name a program is started under picks one:
//! `ss-manager` answers as shadowsocks-libev does, `ssmanager` as shadowsocks-rust does. Requests
//! of both are read the same way, by rules that take what either takes:
//!
//! * blanks and NULs around the request, a colon behind any command, none or some blanks behind
//!   the colon;
//! * ports as numbers or in quotes; keys that are not known are ignored, in any order;
//! * up to [`REQUEST_LEN_MAX`] bytes.
//!
//! A request that cannot be read is told to the log and, where the dialect has words for it, to the
//! sender, and changes nothing. No message holds anything of a request but the names of its keys
//! and, towards the sender alone, the name of an unknown method.
//!
//! | module | holds |
//! |---|---|
//! | `request` | datagrams into [`Request`]s |
//! | `reply` | answers into datagrams |
//! | `ports` | ports of the file and of requests into listeners |
//! | `state` | the file that keeps ports |

mod ports;
mod reply;
mod request;
mod state;

use std::fmt;
use std::path::PathBuf;

use adit_shadowsocks::Method;

use crate::acl::AccessList;
use crate::config::{Mode, OutboundOptions, ServerListener};
use crate::endpoint::Endpoint;
use crate::raw::Raw;
use crate::secret::{Password, Secret};

pub(crate) use ports::template;
pub use reply::{Answer, Reply, report};
pub use request::{BadRequest, Command, Request};
pub(crate) use state::read_back;
pub use state::{StateText, read_state, state_text};

/// Longest request, bytes: the largest UDP payload over IPv4.
pub const REQUEST_LEN_MAX: usize = 65_507;

/// Where a manager takes requests, or a server sends reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ManagerAddress {
    /// At a UDP port.
    Internet(Endpoint),
    /// At the absolute path of a Unix datagram socket.
    Unix(PathBuf),
}

impl fmt::Display for ManagerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Internet(endpoint) => write!(f, "{endpoint} (UDP)"),
            Self::Unix(path) => path.display().fmt(f),
        }
    }
}

/// What a manager needs besides what a server needs.
#[derive(Clone, Debug)]
pub struct ManagerOptions {
    /// Clients and targets that are refused at every port.
    pub acl: Option<AccessList>,
    /// Where it takes requests.
    pub address: ManagerAddress,
    /// The file that keeps the ports of requests across restarts, absolute; `None` keeps none.
    pub state_file: Option<PathBuf>,
    /// A directory that is made for the file above, if it is not there.
    pub workdir: Option<PathBuf>,
    /// Options of outgoing sockets, where a port does not say otherwise.
    pub outbound: OutboundOptions,
    /// The ports of the configuration, each number once.
    pub ports: Vec<ManagedPort>,
    /// What a port has that does not say otherwise.
    pub(crate) template: Raw,
}

/// A port as an `add` request, or an entry of the state file, asks for it.
#[derive(Clone)]
pub struct NewPort {
    /// Its number.
    pub port: u16,
    /// Its password, or the keys of a 2022 method.
    pub(crate) password: Password,
    /// Its method; `None` takes the manager's.
    pub(crate) method: Option<Method>,
    /// What it relays; `None` takes the manager's.
    pub(crate) mode: Option<Mode>,
    /// Its users (2022 AES methods), by name and key.
    pub(crate) users: Vec<(Box<str>, Password)>,
    /// TCP fast open; `None` takes the manager's.
    pub(crate) fast_open: Option<bool>,
    /// `TCP_NODELAY`; `None` takes the manager's.
    pub(crate) no_delay: Option<bool>,
    /// Rules and a plugin of its own.
    pub(crate) extras: PortExtras,
}

/// What a request says about plugins and access control, as it stood there; `None` says nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PortExtras {
    /// `plugin`: name or path of the program.
    pub plugin: Option<Box<str>>,
    /// `plugin_opts`, which may hold secrets.
    pub plugin_opts: Option<Password>,
    /// `plugin_mode`: what of the traffic goes through the plugin.
    pub plugin_mode: Option<Mode>,
    /// `acl`: path of a file of rules.
    pub acl: Option<Box<str>>,
}

/// A port that can be served.
#[derive(Clone)]
pub struct ManagedPort {
    /// Its number.
    pub port: u16,
    /// Where it listens, all at this port.
    pub listeners: Vec<ServerListener>,
    /// TCP fast open; `None` takes the manager's.
    pub(crate) fast_open: Option<bool>,
    /// `TCP_NODELAY`; `None` takes the manager's.
    pub(crate) no_delay: Option<bool>,
    /// What `list` shows.
    pub(crate) secret: Option<Secret>,
    pub(crate) method: Method,
    pub(crate) users: Vec<(Box<str>, Password)>,
}

// Neither shows a password.
impl fmt::Debug for NewPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NewPort({} {:?} users={})", self.port, self.method, self.users.len())
    }
}

impl fmt::Debug for ManagedPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ManagedPort({} {})", self.port, self.method)
    }
}

#[cfg(test)]
mod tests;
