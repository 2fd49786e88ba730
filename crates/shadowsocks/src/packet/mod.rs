//! Datagrams: each is sealed and opened on its own, in place.
//!
//! The caller keeps [`PACKET_HEADROOM`] bytes free before a payload and [`PACKET_TAILROOM`] after
//! it; sealing writes head, address and tag around the payload and tells where the packet lies.
//! Opening tells where address and payload lie; they always touch, so that a SOCKS5 reply is made
//! by three zero bytes before the address. Nothing is copied or allocated.
//!
//! ```text
//! SIP004         salt | E( address | payload ) tag
//! 2022 AES       B( session id | packet id ) | [B( identity ) …] | E( head | padding | address | payload ) tag
//! 2022 ChaCha    nonce 24 | E( session id | packet id | head | padding | address | payload ) tag
//! none           address | payload
//! ```
//!
//! `B` is one AES block, `head` is type, time, the client's session id in a reply, padding length.
//!
//! A server looks before it opens: [`ServerKey::peek`](crate::ServerKey::peek) reads which session
//! a packet names without touching it, so that it can go to the worker that has the session. What
//! `peek` tells is a claim until [`ServerSession::open`] or [`ServerSession::open_first`] succeeds.
//! Windows, sessions and the user change in the last step of a success alone.
//!
//! Cost of a datagram besides the AEAD pass over it: 2022 AES one AES block in a known session, two
//! with users, no key setup (a session's first: a BLAKE3 subkey and a key setup, 0.5 us, for each
//! direction); 2022 ChaCha one HChaCha and one ChaCha block more for `peek`; SIP004 an HKDF and a
//! key setup, 0.8 to 1 us, for every datagram, because its subkeys are per packet. In all for
//! 1,200 bytes on one core of a shared EPYC machine, seal and peek with open: 2022 AES 0.45 and
//! 0.55 us, 2022 ChaCha20 1.4 and 1.7 us, the reduced rounds (RustCrypto) 3 and 4.5 us, AES-GCM
//! of SIP004 1.6 and 1.6 us. A server session takes 1.5 KiB, a client's 1.8 KiB.
//!
//! Not here: the tables that find sessions and the store of SIP004 salts. Both directions of SIP004
//! share a key, so that store takes the salts of what was sealed as well, against reflection.

mod client;
mod reject;
mod relay;
mod server;
pub(crate) mod sip004;
pub(crate) mod sip022;
mod window;

use std::fmt;
use std::ops::Range;

use adit_crypto::{Aead, AeadKey, BlockKey, Secret, TAG_LEN};
use adit_wire::{TARGET_LEN_MAX, Target, TargetBuf};

use crate::key::IDENTITY_HEADERS_MAX;
use crate::{Method, SALT_LEN_MAX};

pub use client::{ClientSession, OpenedReply};
pub use reject::{PacketReject, SessionExhausted};
pub use relay::{Peeled, PeeledPacket, RelayKey};
pub use server::{OpenedPacket, PacketHead, Remains, ServerSession};
pub use window::PacketWindow;

/// No head of a packet with a payload is longer: separate header, identity headers, body head and
/// address of a 2022 request.
pub const PACKET_HEAD_MAX: usize = sip022::HEADER_LEN
    + IDENTITY_HEADERS_MAX * 16
    + sip022::REQUEST_HEAD_LEN
    + TARGET_LEN_MAX
    // One byte of padding, in case there is no payload.
    + 1;
/// Bytes before a payload that sealing may write: the longest head with the longest padding. With
/// fewer, down to [`PACKET_HEAD_MAX`], an empty payload gets less padding.
pub const PACKET_HEADROOM: usize = PACKET_HEAD_MAX - 1 + sip022::PADDING_MAX;
/// Bytes behind a payload that sealing may write: the tag.
pub const PACKET_TAILROOM: usize = TAG_LEN;

const _: () = assert!(
    PACKET_HEAD_MAX
        > sip022::NONCE_LEN + sip022::HEADER_LEN + sip022::RESPONSE_HEAD_LEN + TARGET_LEN_MAX
        && PACKET_HEAD_MAX > SALT_LEN_MAX + TARGET_LEN_MAX
);

/// Names a 2022 session: the id that the client drew, and on a port with users whose it is, so
/// that no user can take the id of another's session.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId {
    id: [u8; 8],
    /// `BLAKE3(user's key)[0..16]`; zero without users.
    identity: [u8; 16],
}

impl SessionId {
    /// The client's part, as it is on the wire.
    pub const fn id(&self) -> [u8; 8] {
        self.id
    }
}

impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The other part would tell the user.
        write!(f, "SessionId({:016x})", u64::from_be_bytes(self.id))
    }
}

/// What datagrams need of the configured keys, expanded when they are read.
pub(crate) enum PacketKeys {
    /// SIP004 and none: a packet's key comes from its salt.
    PerPacket,
    /// 2022 with AES: one block key for each configured key. A server's own, then its users'; a
    /// client's identity keys, outermost first, then its own.
    Blocks(Box<[BlockKey]>),
    /// 2022 with ChaCha: the key itself seals all packets.
    Body(Box<AeadKey>),
}

impl PacketKeys {
    /// Expands `keys`, in the order that [`PacketKeys::Blocks`] keeps.
    pub(crate) fn new<'k>(
        method: Method,
        mut keys: impl DoubleEndedIterator<Item = &'k Secret>,
    ) -> Self {
        if method.supports_identity() {
            return Self::Blocks(keys.map(|key| BlockKey::new(key.as_bytes())).collect());
        }
        match (packet_aead(method), keys.next_back()) {
            (Some(aead), Some(key)) => Self::Body(Box::new(AeadKey::new(aead, key.as_bytes()))),
            _ => Self::PerPacket,
        }
    }
}

/// The AEAD whose key is the configured one.
const fn packet_aead(method: Method) -> Option<Aead> {
    match method {
        Method::Blake3ChaCha20Poly1305 => Some(Aead::XChaCha20Poly1305),
        Method::Blake3ChaCha12Poly1305 => Some(Aead::XChaCha12Poly1305),
        Method::Blake3ChaCha8Poly1305 => Some(Aead::XChaCha8Poly1305),
        _ => None,
    }
}

/// Where the packet around `payload` lies.
///
/// # Panics
/// When the caller kept too few bytes free.
fn frame(buf: &[u8], payload: &Range<usize>, head_len: usize, tail_len: usize) -> Range<usize> {
    let start =
        payload.start.checked_sub(head_len).expect("PACKET_HEAD_MAX bytes before a payload");
    let end = payload.end + tail_len;
    assert!(end <= buf.len(), "PACKET_TAILROOM bytes behind a payload");
    start..end
}

/// Reads the address at the start of `plain`, a range of `packet`: the address, where its bytes
/// are, and where the payload is.
fn read_address(
    packet: &[u8],
    plain: Range<usize>,
) -> Result<(TargetBuf, Range<usize>, Range<usize>), PacketReject> {
    let (target, used) = Target::parse(&packet[plain.clone()]).map_err(PacketReject::BadAddress)?;
    let payload_at = plain.start + used;
    Ok((target.into(), plain.start..payload_at, payload_at..plain.end))
}
