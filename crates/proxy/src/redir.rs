//! What a process needs besides when the firewall gives it other hosts' traffic: transparent
//! listeners, a mark on its own connections, and the rights for both.

use std::io;
use std::sync::Arc;

use adit_config::{Config, LocalKind, REDIR_MARK, Role as ConfigRole};
use adit_engine::guard::Transport;
use adit_engine::role::{Interception, Redirect};
use adit_observe::log;
use adit_sys::net::{self, Takes};
use adit_sys::process;

use crate::roles::{Stores, own_listeners};

/// Whose addresses a listener answers for.
pub(crate) const fn takes(kind: &LocalKind, transport: Transport) -> Takes {
    match (kind, transport) {
        (LocalKind::Redir { tcp: adit_config::Interception::Tproxy }, Transport::Stream)
        | (LocalKind::Redir { .. }, Transport::Datagram) => Takes::Any,
        _ => Takes::Own,
    }
}

/// What a redirecting listener goes by.
pub(crate) fn inbound(
    tcp: adit_config::Interception,
    config: &Config,
    stores: &Stores,
) -> Redirect {
    Redirect {
        by: match tcp {
            adit_config::Interception::Redirect => Interception::Redirect,
            adit_config::Interception::Tproxy => Interception::Tproxy,
        },
        guard: Arc::new(own_listeners(stores)),
        reply_mark: usable_mark(mark(config)),
    }
}

/// For the start-up line.
pub(crate) const fn about(tcp: adit_config::Interception, transport: Transport) -> &'static str {
    match (tcp, transport) {
        (adit_config::Interception::Redirect, Transport::Stream) => "redirector (REDIRECT)",
        (adit_config::Interception::Tproxy, _) | (_, Transport::Datagram) => "redirector (TPROXY)",
    }
}

/// Whether a process has listeners for redirected traffic.
pub(crate) fn redirects(config: &Config) -> bool {
    match &config.role {
        ConfigRole::Client { locals, .. } => {
            locals.iter().any(|local| matches!(local.kind, LocalKind::Redir { .. }))
        }
        ConfigRole::Server { .. } => false,
    }
}

/// Becomes another user, who keeps the right to transparent sockets and marks where the process
/// needs it: both are made for each connection.
pub(crate) fn become_user(user: &str, redirects: bool) -> io::Result<()> {
    if redirects { process::become_user_keeping_network(user) } else { process::become_user(user) }
}

/// The mark as far as this process may set it. The one that nobody has asked for is done without
/// where it may not (REDIRECT needs no rights otherwise); one that was asked for fails loudly.
pub(crate) fn usable_mark(mark: Option<u32>) -> Option<u32> {
    mark.filter(|&mark| mark != REDIR_MARK || net::mark_available().is_ok())
}

/// Says how firewall rules can tell our own connections.
pub(crate) fn log_mark(config: &Config) {
    let Some(mark) = mark(config).filter(|_| redirects(config)) else { return };
    match net::mark_available() {
        Ok(()) => log::info!("own connections carry the firewall mark {mark:#x}"),
        Err(e) => log::warn!(
            "own connections carry no firewall mark ({e}; this needs root or CAP_NET_ADMIN): the \
             rules must leave out the servers or this program's user (adit redir rules --skip-uid)"
        ),
    }
}

/// The mark of a redirector's connections.
fn mark(config: &Config) -> Option<u32> {
    match &config.role {
        ConfigRole::Client { servers, direct, .. } => {
            servers.first().map_or(direct, |server| &server.outbound).fwmark
        }
        ConfigRole::Server { .. } => None,
    }
}
