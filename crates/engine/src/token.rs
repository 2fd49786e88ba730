//! What a readiness event belongs to, packed into epoll's 64 bits.

use adit_sys::datagram::Family;

use crate::slab::Key;

/// Connects that one flow has in flight at most.
pub(crate) const ATTEMPTS_MAX: usize = 3;

/// A socket of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// The accepted connection.
    Client,
    /// A connection being opened or opened, by its number among the attempts.
    Remote(u8),
}

/// The owner of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Token {
    /// The worker's command queue.
    Commands,
    /// A listener.
    Listener(Key),
    /// A name look-up's socket.
    Lookup(Key),
    /// A flow's socket.
    Flow(Part, Key),
    /// A listener for datagrams.
    Datagrams(Key),
    /// A datagram session's socket towards its targets or its server.
    Upstream(Family, Key),
    /// A socket that answers redirected datagrams; it is written to only.
    Reply(Key),
    /// A probe's socket, by its number among those under way.
    Probe(Key),
}

const KIND_COMMANDS: u64 = 0;
const KIND_LISTENER: u64 = 1;
const KIND_LOOKUP: u64 = 2;
const KIND_CLIENT: u64 = 3;
const KIND_DATAGRAMS: u64 = 4;
const KIND_UPSTREAM_V4: u64 = 5;
const KIND_UPSTREAM_V6: u64 = 6;
const KIND_REPLY: u64 = 7;
const KIND_PROBE: u64 = 8;
/// The last, because the attempts count on from it.
const KIND_REMOTE: u64 = 9;

impl Token {
    pub(crate) const fn flow(part: Part, key: Key) -> Self {
        Self::Flow(part, key)
    }
}

/// kind (8 bits) | generation (24) | index (32)
impl From<Token> for u64 {
    fn from(token: Token) -> Self {
        let (kind, key) = match token {
            Token::Commands => (KIND_COMMANDS, Key { index: 0, generation: 0 }),
            Token::Listener(key) => (KIND_LISTENER, key),
            Token::Lookup(key) => (KIND_LOOKUP, key),
            Token::Datagrams(key) => (KIND_DATAGRAMS, key),
            Token::Upstream(Family::V4, key) => (KIND_UPSTREAM_V4, key),
            Token::Upstream(Family::V6, key) => (KIND_UPSTREAM_V6, key),
            Token::Reply(key) => (KIND_REPLY, key),
            Token::Probe(key) => (KIND_PROBE, key),
            Token::Flow(Part::Client, key) => (KIND_CLIENT, key),
            Token::Flow(Part::Remote(n), key) => (KIND_REMOTE + Self::from(n), key),
        };
        kind << 56 | Self::from(key.generation) << 32 | Self::from(key.index)
    }
}

impl From<u64> for Token {
    fn from(packed: u64) -> Self {
        #[allow(clippy::cast_possible_truncation, reason = "each field is masked to its width")]
        let (kind, generation, index) =
            ((packed >> 56) as u8, (packed >> 32) as u32 & 0xFF_FFFF, packed as u32);
        let key = Key { index, generation };
        match u64::from(kind) {
            KIND_COMMANDS => Self::Commands,
            KIND_LISTENER => Self::Listener(key),
            KIND_LOOKUP => Self::Lookup(key),
            KIND_CLIENT => Self::Flow(Part::Client, key),
            KIND_DATAGRAMS => Self::Datagrams(key),
            KIND_UPSTREAM_V4 => Self::Upstream(Family::V4, key),
            KIND_UPSTREAM_V6 => Self::Upstream(Family::V6, key),
            KIND_REPLY => Self::Reply(key),
            KIND_PROBE => Self::Probe(key),
            n => Self::Flow(Part::Remote(u8::try_from(n - KIND_REMOTE).unwrap_or(u8::MAX)), key),
        }
    }
}
