//! Shadowsocks stream and datagram codecs, AEAD (SIP004) and 2022 (SIP022, SIP023) editions.
//!
//! Sans-IO: bytes, the wall clock in seconds and a random generator go in; bytes, targets and
//! errors come out. Nothing here opens a socket, reads a clock or allocates once keys are loaded.
//!
//! * [`Method`] names a cipher, [`ClientKey`] and [`ServerKey`] hold what was configured for it.
//! * [`Sealer`] turns plaintext into records in place; [`Opener`] does the reverse.
//! * [`ServerHandshake`] and [`ClientHandshake`] read the first bytes of a stream, check them
//!   and hand over an [`Opener`].
//! * [`ServerSession`] and [`ClientSession`] seal and open datagrams, each on its own.
//! * [`RelayKey`] finds the next hop of a stream or datagram behind an identity header.
//! * [`ReplaySet`] remembers salts, and only those of streams that authenticated.
//!
//! What to do with a peer that fails is named by [`Reject::reaction`], because the outward
//! behaviour must not tell a prober why it failed.

#![forbid(unsafe_code)]

mod client;
mod key;
mod method;
mod open;
mod packet;
mod reject;
mod replay;
mod seal;
mod server;

#[doc(hidden)]
pub mod fuzz;
#[cfg(test)]
mod tests;

pub use client::{ClientHandshake, Response};
pub use key::{ClientKey, IDENTITY_HEADERS_MAX, KeyError, ServerKey, UserKey};
pub use method::{Method, MethodError};
pub use open::Opener;
pub use packet::{
    ClientSession, OpenedPacket, OpenedReply, PACKET_HEAD_MAX, PACKET_HEADROOM, PACKET_TAILROOM,
    PacketHead, PacketReject, PacketWindow, Peeled, PeeledPacket, RelayKey, Remains, ServerSession,
    SessionExhausted, SessionId,
};
pub use reject::{Reaction, Reject};
pub use replay::{ReplaySet, Verdict};
pub use seal::{PADDED_LEN_MAX, RECORD_HEAD_MAX, RECORD_TAIL, Sealer};
pub use server::{Accepted, ServerHandshake};

use adit_crypto::Rng;

/// Longest salt of any method, bytes.
pub const SALT_LEN_MAX: usize = 32;
/// Largest difference between a 2022 peer's clock and ours, seconds (SIP022).
pub const CLOCK_SKEW_MAX_S: u64 = 30;

/// What a codec may know of the world: the wall clock and randomness, passed in by the engine.
pub struct Env<'a> {
    /// Seconds since the Unix epoch.
    pub unix_s: u64,
    /// The worker's random generator.
    pub rng: &'a mut Rng,
}
