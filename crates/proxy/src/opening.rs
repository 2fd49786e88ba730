//! Opening listeners together with the plugins in front of them and behind them: both are ready, or
//! everything is as it was.
//!
//! The order is forced by who needs whom: plugins of clients are started first, because roles name
//! their addresses; then our listeners are opened; then plugins of servers are started, which connect
//! to these. What is open by then is not in force yet: the caller tells the workers.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use adit_config::Config;

use crate::listeners::{ListenError, Listeners, Scope, addresses};
use crate::plugin::{self, Plugins, StartError};
use crate::roles::Stores;

/// What opening works with.
pub(crate) struct Opening<'a> {
    pub(crate) stores: &'a Stores,
    pub(crate) listeners: &'a Listeners,
    pub(crate) plugins: &'a mut Plugins,
    /// Whether the program has been told to end.
    pub(crate) stopped: &'a dyn Fn() -> bool,
}

/// Why something is not open.
#[derive(Debug)]
pub(crate) enum OpenError {
    /// The program was told to end meanwhile.
    Stopped,
    /// A listener cannot be opened.
    Listen(ListenError),
    /// It cannot be done at present; this is why.
    Refused(String),
    /// It cannot be done, and a plugin that was in its way does not start any more.
    Lost(Box<Self>, String),
}

impl Opening<'_> {
    /// Opens what configurations ask for, beside what is open, by `prepare`, which is told the TCP
    /// ports that are held for it. Only what serves a port in `scope` is changed. An error leaves
    /// everything as it was, if it can.
    pub(crate) fn open<T>(
        &mut self,
        scope: Scope,
        configs: &[Config],
        prepare: impl FnOnce(&Listeners, &[SocketAddr]) -> Result<T, ListenError>,
    ) -> Result<(T, plugin::Change), OpenError> {
        let before = self.stores.plugged();
        let plugged = self.plugins.prepare(scope, configs, self.stopped)?;
        let (opened, plugged) = self.open_with(scope, plugged, prepare);
        match opened {
            Ok(opened) => Ok((opened, plugged)),
            Err(error) => {
                self.stores.plug(before);
                Err(match self.plugins.abandon(plugged, self.stopped) {
                    Ok(()) => error,
                    Err(lost) => OpenError::lost(error, lost),
                })
            }
        }
    }

    fn open_with<T>(
        &self,
        scope: Scope,
        mut plugged: plugin::Change,
        prepare: impl FnOnce(&Listeners, &[SocketAddr]) -> Result<T, ListenError>,
    ) -> (Result<T, OpenError>, plugin::Change) {
        let opened = || -> Result<T, OpenError> {
            for (job, transport) in plugged.arriving() {
                let addrs = addresses(&job.remote)?;
                if addrs.iter().any(|addr| self.listeners.takes(*addr, transport)) {
                    let instead = match scope {
                        Scope::All => "restart the program",
                        Scope::Port(_) => "remove the port first",
                    };
                    return Err(OpenError::Refused(format!(
                        "{job}: the port is served without a plugin at present; {instead} to put a \
                         plugin in front of it"
                    )));
                }
            }
            self.stores.plug(Arc::new(plugged.plugged()));
            Ok(prepare(self.listeners, &plugged.held())?)
        };
        let opened = opened().and_then(|opened| {
            self.plugins.start_servers(&mut plugged, self.stopped)?;
            Ok(opened)
        });
        (opened, plugged)
    }
}

impl OpenError {
    /// `error`, after which what was there could not be had again.
    pub(crate) fn lost(error: Self, again: StartError) -> Self {
        match again {
            StartError::Stopped => Self::Stopped,
            StartError::Failed(text) => Self::Lost(Box::new(error), text),
        }
    }
}

impl From<ListenError> for OpenError {
    fn from(error: ListenError) -> Self {
        Self::Listen(error)
    }
}

impl From<StartError> for OpenError {
    fn from(error: StartError) -> Self {
        match error {
            StartError::Stopped => Self::Stopped,
            StartError::Failed(text) => Self::Refused(text),
        }
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stopped => f.write_str("stopped while plugins were starting"),
            Self::Listen(error) => error.fmt(f),
            Self::Refused(text) => f.write_str(text),
            Self::Lost(error, text) => write!(f, "{error}; and what was there is lost: {text}"),
        }
    }
}
