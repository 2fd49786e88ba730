//! Connections that the firewall gave us: the kernel knows where they were going.

use std::net::SocketAddr;
use std::sync::Arc;

use adit_observe::log;
use adit_sys::net;
use adit_wire::Target;

use crate::core::Core;
use crate::flow::{Flow, Next};
use crate::guard::Transport;
use crate::redirect::{Astray, check};
use crate::role::{Inbound, Interception, RoleKind};

impl Flow {
    /// Finds out where the connection was going and connects to a server for it; nobody is there to
    /// be told a failure, so one is a reset.
    pub(super) fn start_redirected(&mut self, core: &mut Core) -> Next {
        let role = Arc::clone(&self.role);
        let RoleKind::Client { inbound: Inbound::Redirect(redirect), servers, .. } = &role.kind
        else {
            return Next::Close;
        };
        // Listeners of this kind are never at a path.
        let Some(source) = self.peer.address() else { return Next::Close };
        let checked = self.destination(redirect.by, source).and_then(|destination| {
            let names = (&mut core.names, core.now);
            check((redirect, servers), names, source, destination, Transport::Stream)?;
            Ok(destination)
        });
        match checked {
            Ok(destination) => {
                log::debug!("{source}: redirected, to {destination}");
                let target = Target::from(destination).into();
                self.choose_way(core, target, None, None)
            }
            Err(astray) => {
                match astray {
                    Astray::NoDestination(_) => core.counters.refused.inc(),
                    Astray::OwnListener | Astray::OwnServer => core.counters.blocked.inc(),
                }
                core.log_peer_fault(format_args!("{source}: connection closed: {astray}"));
                Next::Reset
            }
        }
    }

    fn destination(&self, by: Interception, source: SocketAddr) -> Result<SocketAddr, Astray> {
        let found = match by {
            Interception::Redirect => net::original_destination(&self.client.fd, source.ip()),
            Interception::Tproxy => net::local_addr(&self.client.fd),
        };
        found.map_err(|e| Astray::NoDestination(Some(e)))
    }
}
