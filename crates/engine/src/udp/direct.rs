//! Datagrams of a client that go to their targets without a server, as its access control list says.
//!
//! They have a session of their own beside the one that goes through a server: it talks to targets as
//! a server's session does, and to the application as a client's. Where only a name's addresses tell
//! which way is right, datagrams wait in the direct session and change over if need be.

use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;

use adit_acl::{Admission, Decision, Route as ListedRoute};
use adit_resolver::{AddrList, Outcome};
use adit_wire::{Host, TargetBuf};

use crate::core::Core;
use crate::role::{Role, RoleKind};
use crate::slab::Key;
use crate::udp::inbound::{Incoming, Sender};
use crate::udp::resolve::Way;
use crate::udp::sessions::{Codec, Name, Session};
use crate::udp::{At, Tools, Udp};

/// What an access control list says about a target before its name is looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Judgement {
    /// The session may send to it.
    Fine,
    /// Its addresses decide.
    ByAddress,
    /// It is refused.
    Refused,
}

/// Judges a target of a session.
pub(super) fn judge(core: &mut Core, session: &Session, host: Host<'_>) -> Judgement {
    let Some(acl) = session.role.acl() else { return Judgement::Fine };
    if let Codec::Direct = session.codec {
        return match core.judges.route(acl, host) {
            Decision::Known(_) => Judgement::Fine,
            Decision::NeedsAddresses => Judgement::ByAddress,
        };
    }
    match core.judges.admit(acl, host) {
        Decision::Known(Admission::Admitted) => Judgement::Fine,
        Decision::Known(Admission::Refused) => Judgement::Refused,
        Decision::NeedsAddresses => Judgement::ByAddress,
    }
}

impl Udp {
    /// Sends a datagram of a client to its target, at `payload` of its slot.
    pub(super) fn relay_direct(
        &mut self,
        tools: &mut Tools<'_>,
        at: &At,
        incoming: &Incoming,
        target: &TargetBuf,
        payload: Range<usize>,
    ) {
        let &Incoming { reply, source, index, .. } = incoming;
        let core = &mut *tools.core;
        let name = Name::Direct(at.key, source);
        let key = match self.find(name) {
            Some(key) => {
                self.sessions.touch(key, core.tick, true);
                key
            }
            None => {
                let role = Arc::clone(&at.role);
                let session = Session::new(name, at.key, role, Codec::Direct, reply, source);
                let Some(key) = self.begin(core, session) else { return };
                key
            }
        };
        let Some(session) = self.sessions.get_mut(key) else { return };
        session.reply = reply;
        core.counters.datagrams_up.inc();
        core.counters.datagram_bytes_up.add(payload.len() as u64);
        self.send_to_target(tools, key, target, index, payload);
    }

    /// Sends a payload of a direct session through a server after all.
    pub(super) fn change_over(
        &mut self,
        tools: &mut Tools<'_>,
        key: Key,
        target: &TargetBuf,
        index: usize,
        payload: Range<usize>,
        unix_s: u64,
    ) {
        let Some(session) = self.sessions.get(key) else { return };
        let sender = Sender {
            listener: session.listener,
            role: Arc::clone(&session.role),
            reply: session.reply,
            source: session.began_at,
            unix_s,
        };
        self.send_through_server(tools, &sender, target, index, payload);
    }

    /// Hands what a target sent to a direct session to its client.
    pub(super) fn give_reply(
        &mut self,
        tools: &mut Tools<'_>,
        key: Key,
        source: SocketAddr,
        index: usize,
        range: Range<usize>,
    ) {
        let source = adit_wire::Target::from(source).into();
        self.give(tools, key, &source, index, range.start, range);
    }

    /// Which way a session's datagrams for `target` go, now that the name was looked up.
    pub(super) fn way_to(
        &mut self,
        core: &mut Core,
        key: Key,
        target: &TargetBuf,
        outcome: &Outcome,
    ) -> Way {
        let Some(session) = self.sessions.get(key) else { return Way::Nowhere };
        let role = Arc::clone(&session.role);
        let is_direct = matches!(session.codec, Codec::Direct);
        let by_address = judge(core, session, target.target().host) == Judgement::ByAddress;
        let Outcome::Found { addrs, .. } = outcome else {
            // A server may know it.
            if is_direct && by_address {
                return Way::ThroughServer;
            }
            core.counters.resolve_failed.inc();
            return Way::Nowhere;
        };
        let allowed = match role.acl() {
            Some(acl) if by_address && is_direct => {
                if acl.route_addrs(addrs.as_slice()) == ListedRoute::Proxied {
                    return Way::ThroughServer;
                }
                *addrs
            }
            Some(acl) if by_address => {
                let mut allowed = AddrList::new();
                acl.admitted(addrs.as_slice()).for_each(|ip| {
                    allowed.push(ip);
                });
                if allowed.is_empty() {
                    note_listed(core, &role, target);
                    return Way::Nowhere;
                }
                allowed
            }
            _ => *addrs,
        };
        self.choose(core, &role, &allowed).map_or(Way::Nowhere, Way::To)
    }
}

/// Counts a target that a server's access control list refuses, and says so at a bounded rate.
pub(super) fn note_listed(core: &mut Core, role: &Role, target: &TargetBuf) {
    debug_assert!(matches!(role.kind, RoleKind::Server { .. }), "only servers refuse");
    core.counters.blocked.inc();
    core.log_peer_fault(format_args!(
        "datagram to {} dropped: access control list",
        target.target()
    ));
}
