//! The server role up to the relay: reading the request and finding its target.

use std::net::SocketAddr;

use adit_acl::{Admission, Decision};
use adit_observe::log;
use adit_shadowsocks::{Accepted, Method, Reaction, Reject};
use adit_sys::net::Io;
use adit_wire::Host;

use crate::core::{Core, unix_s};
use crate::flow::{After, Flow, Next, READS_PER_STEP, State};
use crate::guard::Blocked;
use crate::role::RoleKind;

impl Flow {
    pub(crate) fn read_request(&mut self, core: &mut Core) -> Next {
        let role = std::sync::Arc::clone(&self.role);
        let RoleKind::Server { key, .. } = &role.kind else { return Next::Close };
        for _ in 0..READS_PER_STEP {
            if !self.client.readable {
                return Next::Wait;
            }
            let State::Request(handshake, early) = &mut self.state else { return Next::Wait };
            let (kept_early, rest) = core.scratch.split_at_mut(early.len());
            kept_early.copy_from_slice(early);
            let kept = early.len() + core.pool.pop_into(&mut self.up.input, rest);
            early.clear();
            let filled = match self.client.read(&mut core.scratch[kept..]) {
                Io::Moved(n) => {
                    let n32 = u32::try_from(n).unwrap_or(u32::MAX);
                    self.request_len = self.request_len.saturating_add(n32);
                    kept + n
                }
                Io::Blocked => {
                    // What was kept is kept on; a 2022 request must not be judged by nothing.
                    let rest = early.try_extend_from_slice(&core.scratch[..kept]).is_err();
                    if rest && !core.keep_unproven(&mut self.up.input, 0..kept) {
                        return Next::Reset;
                    }
                    return Next::Wait;
                }
                Io::End | Io::Failed(_) => return Next::Close,
            };
            let mut at = 0;
            let buf = &mut core.scratch[..filled];
            match handshake.advance(key, unix_s(), role.replay.as_deref(), buf, &mut at) {
                // Without a key nobody gets beyond this many bytes.
                Ok(None) if early.try_extend_from_slice(&core.scratch[at..filled]).is_ok() => {}
                Ok(accepted) => {
                    if !core.keep_unproven(&mut self.up.input, at..filled) {
                        return Next::Reset;
                    }
                    if let Some(accepted) = accepted {
                        return self.on_accepted(core, accepted);
                    }
                }
                Err(reject) => return self.on_reject(core, key.method(), reject),
            }
        }
        Next::Again
    }

    fn on_accepted(&mut self, core: &mut Core, accepted: Accepted) -> Next {
        log::debug!("{}: connect to {:?}", self.peer, accepted.target);
        let Accepted { opener, target, payload, request_salt, user } = accepted;
        self.user = user;
        self.role.count_in(self.request_len as usize);
        if core.pool.push(&mut self.up.output, &core.scratch[payload]).is_err() {
            core.counters.buffers_exhausted.inc();
            return Next::Reset;
        }
        self.up.input_unopened = !self.up.input.is_empty();
        let host = target.target().host;
        let decision = match self.role.acl() {
            None => Decision::Known(Admission::Admitted),
            Some(acl) => core.judges.admit(acl, host),
        };
        let by_address = decision == Decision::NeedsAddresses;
        let after = After::Server { target, opener, request_salt, user, by_address };
        if decision == Decision::Known(Admission::Refused) {
            return self.on_blocked(core, &after, Blocked::Listed);
        }
        match host {
            Host::Ip(ip) => {
                let port = target.target().port;
                self.dial_addr(core, after, SocketAddr::new(ip, port))
            }
            Host::Name(name) => self.dial_name(core, after, name),
        }
    }

    /// The peer is a probe, a replay or misconfigured: behave the same whatever it did.
    pub(crate) fn on_reject(&mut self, core: &mut Core, method: Method, reject: Reject) -> Next {
        core.counters.rejected.inc();
        core.log_peer_fault(format_args!("{}: {reject}", self.peer));
        match reject.reaction(method) {
            Reaction::Reset => Next::Reset,
            Reaction::Drain => self.start_draining(core, self.handshake_by),
        }
    }
}
