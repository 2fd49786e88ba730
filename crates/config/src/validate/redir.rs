//! Redirectors: listeners for what the firewall gives us.

use super::Check;
use crate::config::{
    Interception, LocalKind, LocalListener, OutboundOptions, Protocol, REDIR_MARK,
};
use crate::diagnostic::At;
use crate::program::Program;
use crate::raw::{Raw, RawLocal};

impl Check<'_> {
    /// The protocol of a listener, as far as the program has it; `None` with an error when not.
    pub(super) fn protocol(&mut self, local: &RawLocal) -> Option<Protocol> {
        let (own, text) = match self.invoked.program {
            Program::Tunnel => {
                (Protocol::Tunnel, "ss-tunnel has tunnels only; write \"tunnel\" or use ss-local")
            }
            Program::Redir => {
                (Protocol::Redir, "ss-redir has redirectors only; write \"redir\" or use ss-local")
            }
            _ => return Some(local.protocol.as_ref().map_or(Protocol::Socks, |at| at.value)),
        };
        match &local.protocol {
            Some(At { value, origin }) if *value != own => {
                self.findings.error(*origin, text);
                None
            }
            _ => Some(own),
        }
    }

    /// What is particular to a redirector. What is said at the top is said for all.
    pub(super) fn redirector(local: &RawLocal, raw: &Raw) -> LocalKind {
        let tcp = local.tcp_redir.as_ref().or(raw.local.tcp_redir.as_ref());
        LocalKind::Redir { tcp: tcp.map_or(Interception::Redirect, |at| at.value) }
    }

    /// Refuses settings of redirectors at a listener that is none.
    pub(super) fn no_redirector(&mut self, local: &RawLocal) {
        let settings = [local.tcp_redir.as_ref(), local.udp_redir.as_ref()];
        for setting in settings.into_iter().flatten() {
            let text = "is for redirectors only; write \"redir\" as the protocol or remove it";
            self.findings.error(setting.origin, text);
        }
    }

    /// Says that settings at the top are of no use where no listener of the list is a redirector.
    pub(super) fn unused_redir(&mut self, raw: &Raw, locals: &[LocalListener]) {
        let used = locals.iter().any(|local| matches!(local.kind, LocalKind::Redir { .. }));
        if used || raw.local.is_listener() || raw.locals.is_empty() {
            return;
        }
        let settings = [raw.local.tcp_redir.as_ref(), raw.local.udp_redir.as_ref()];
        for setting in settings.into_iter().flatten() {
            self.findings.warn(setting.origin, "has no effect: no listener is a redirector");
        }
    }
}

/// Marks the connections that a redirector opens, so that firewall rules can tell them from those
/// that they redirect.
pub(super) fn mark<'a>(
    locals: &[LocalListener],
    opened: impl Iterator<Item = &'a mut OutboundOptions>,
) {
    if locals.iter().any(|local| matches!(local.kind, LocalKind::Redir { .. })) {
        for options in opened {
            options.fwmark.get_or_insert(REDIR_MARK);
        }
    }
}
