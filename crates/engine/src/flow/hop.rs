//! The hop role up to the relay (SIP023): the first segment names the next hop, and everything goes
//! there as it is, less one identity header.
//!
//! A hop can tell by the first segment alone whether the client knows its key, as a 2022 server
//! can; it reads no further and opens nothing. There is no guard here: the next hops are the
//! operator's own, private or not, and each header names one at most, so that nothing goes round.

use std::net::SocketAddr;

use adit_handshake::Failure;
use adit_observe::log;
use adit_sys::net::Io;

use crate::core::Core;
use crate::flow::{After, Flow, Next};
use crate::role::{RoleKind, UpstreamHost};

/// Most of a first segment to read: a request header with its first payload. What follows stays in
/// the kernel until the next hop is connected.
const FIRST_SEGMENT: usize = 32 * 1024;

impl Flow {
    pub(crate) fn read_first_segment(&mut self, core: &mut Core) -> Next {
        if !self.client.readable {
            return Next::Wait;
        }
        let role = std::sync::Arc::clone(&self.role);
        let RoleKind::Hop { key, next, .. } = &role.kind else { return Next::Close };
        let filled = match self.client.read(&mut core.scratch[..FIRST_SEGMENT]) {
            Io::Moved(n) => n,
            Io::Blocked => return Next::Wait,
            Io::End | Io::Failed(_) => return Next::Close,
        };
        let peeled = match key.peel(&mut core.scratch[..filled]) {
            Ok(peeled) => peeled,
            Err(reject) => return self.on_reject(core, key.method(), reject),
        };
        role.count_in(filled);
        if !core.keep_unproven(&mut self.up.input, peeled.forward) {
            return Next::Reset;
        }
        self.up.input_unopened = true;
        self.server = peeled.next;
        let hop = &next[usize::from(peeled.next)];
        log::debug!("{}: to next hop {}", self.peer, hop.name);
        match &hop.host {
            UpstreamHost::Ip(ip) => {
                self.dial_addr(core, After::Hop, SocketAddr::new(*ip, hop.port))
            }
            UpstreamHost::Name(name) => self.dial_name(core, After::Hop, name),
        }
    }

    /// Says that a next hop is not to be had.
    pub(crate) fn on_hop_failed(&self, core: &mut Core, failure: Failure) {
        let RoleKind::Hop { next, .. } = &self.role.kind else { return };
        let Some(hop) = next.get(usize::from(self.server)) else { return };
        core.log_peer_fault(format_args!(
            "no connection to next hop {}: {}",
            hop.name,
            failure.as_label()
        ));
    }
}
