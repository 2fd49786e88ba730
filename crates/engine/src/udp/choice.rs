//! Which server a client's session uses, and when it moves to another one.
//!
//! Datagrams have no connects that fail. What counts is whether answers come: a session whose
//! server owes it one for [`PATIENCE`] says so, and when that server is marked, for it or for
//! others, the session goes on as a new one through another server. A session that gets answers
//! stays where it is, whatever happens to other sessions of the same server.

use std::sync::Arc;
use std::time::Duration;

use adit_shadowsocks::ClientSession;

use crate::core::Core;
use crate::guard::Transport;
use crate::role::Role;
use crate::slab::Key;
use crate::udp::Udp;
use crate::udp::sessions::{Codec, Session};
use crate::wheel::{TICK, Tick, ticks};

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(3);

/// The answer that the server of a client's session owes.
#[derive(Default)]
pub(super) struct Debt {
    /// Since when.
    since: Option<Tick>,
    /// Whether it has ever given one.
    was_answered: bool,
    /// Whether its health was told of the wait.
    told: bool,
}

impl Debt {
    /// An answer came. When one was due: the time that it took, if it was the first.
    pub(super) fn settle(&mut self, tick: Tick) -> Option<Option<Duration>> {
        let since = self.since.take()?;
        let waited = TICK * u32::try_from(tick.saturating_sub(since)).unwrap_or(u32::MAX);
        let first = (!self.was_answered).then_some(waited);
        (self.was_answered, self.told) = (true, false);
        Some(first)
    }
}

/// The beginning of a session through the best server; not through `failed`, if there is another.
pub(super) fn choose(core: &mut Core, role: &Role, failed: Option<u16>) -> Option<Codec> {
    let servers = role.choice()?;
    let random = core.rng.below(u32::MAX);
    let turn = match failed {
        Some(failed) if servers.len() > 1 => {
            servers.pick_after(failed.into(), Transport::Datagram, core.now, random)
        }
        _ => servers.pick(Transport::Datagram, core.now, random),
    };
    let codec = ClientSession::new(&servers.get(turn)?.key, &mut core.rng);
    Some(Codec::Client(codec, u16::try_from(turn).ok()?))
}

impl Udp {
    /// A client's session is about to send: notes that an answer is due, and moves it when its
    /// server has not given one and is known to fail.
    pub(super) fn expect_answer(&mut self, core: &mut Core, key: Key) {
        let Some(session) = self.sessions.get_mut(key) else { return };
        let Some(since) = session.debt.since else {
            session.debt.since = Some(core.tick);
            if !session.debt.was_answered {
                note_waiting(core, session);
            }
            return;
        };
        if core.tick.saturating_sub(since) < ticks(PATIENCE) {
            return;
        }
        if !session.debt.told {
            session.debt.told = true;
            note_waiting(core, session);
        }
        let Codec::Client(_, turn) = session.codec else { return };
        let role = Arc::clone(&session.role);
        let Some(servers) = role.choice() else { return };
        let is_down = servers.len() > 1
            && servers[usize::from(turn)].health.is_down_for_datagrams(core.now)
            && servers.has_other(turn.into(), Transport::Datagram, core.now);
        if is_down && let Some(codec) = choose(core, &role, Some(turn)) {
            self.restart(core, key, codec);
        }
    }

    /// Goes on through another server, as a session that has just begun.
    fn restart(&mut self, core: &mut Core, key: Key, codec: Codec) {
        // What waits for the old server's address has waited too long to be sent.
        self.forget_waiting(core, key);
        let Some(session) = self.sessions.get_mut(key) else { return };
        session.codec = codec;
        session.upstream = [None, None];
        session.server = None;
        session.debt = Debt { since: Some(core.tick), ..Debt::default() };
        note_waiting(core, session);
    }
}

/// Tells a server's health that one more session has no answer.
fn note_waiting(core: &mut Core, session: &Session) {
    let Codec::Client(_, turn) = session.codec else { return };
    let Some(server) = session.role.servers().get(usize::from(turn)) else { return };
    let change = server.health.session_waits(core.now);
    core.log_change(&server.health, change, "does not answer datagrams");
}

/// The host of a client's server, or one on the way, sends errors in place of answers.
pub(super) fn note_refused(core: &mut Core, session: &Session) {
    let Codec::Client(_, turn) = session.codec else { return };
    let Some(server) = session.role.servers().get(usize::from(turn)) else { return };
    let change = server.health.session_refused(core.now);
    core.log_change(&server.health, change, "refuses datagrams");
}
