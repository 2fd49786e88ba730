//! A relay in front of servers (SIP023): takes off one identity header and sends the rest on.
//!
//! A relay has a key of its own and knows the keys of its next hops; it authenticates nothing and
//! reads no content, which is sealed with the user's key. Replies pass unchanged. The first
//! identity header of a stream is checked under a key that salt and relay key give; that of a
//! packet is bound to the packet's ids. A prober without the relay's key hits a next hop with
//! probability 2^-128.
//!
//! Cost: a stream two key derivations' worth once, a packet two block decryptions, one encryption
//! and a binary search over the next hops.

use std::ops::Range;
use std::sync::Arc;

use adit_crypto::{BlockKey, Secret, TAG_LEN, blake3_identity};

use super::sip022::{self, HEADER_LEN, Ids};
use super::{PacketReject, SessionId};
use crate::key::{KeyError, decode_psk};
use crate::seal::{REQUEST_FIXED_LEN, identity_key};
use crate::{Method, Reject};

/// What a relay needs: its own key and those of its next hops.
#[derive(Clone)]
pub struct RelayKey {
    method: Method,
    key: Secret,
    /// Sorted by `identity`.
    hops: Vec<Hop>,
    /// Follows from the keys: the relay's own, then those of `hops`.
    blocks: Arc<[BlockKey]>,
}

#[derive(Clone, Copy, PartialEq)]
struct Hop {
    /// `BLAKE3(key)[0..16]`
    identity: [u8; 16],
    /// Place in the configuration.
    index: u16,
}

impl PartialEq for RelayKey {
    fn eq(&self, other: &Self) -> bool {
        // An identity stands for its key.
        self.method == other.method && self.key == other.key && self.hops == other.hops
    }
}

/// The first bytes of a stream whose identity header was taken off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peeled {
    /// Index of the next hop among the keys given to [`RelayKey::parse`].
    pub next: u16,
    /// The bytes to send on.
    pub forward: Range<usize>,
}

/// A packet whose identity header was taken off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeeledPacket {
    /// Index of the next hop among the keys given to [`RelayKey::parse`].
    pub next: u16,
    /// The session, for the caller's table: a claim, as in [`PacketHead`](super::PacketHead).
    pub session: SessionId,
    /// The bytes to send on.
    pub forward: Range<usize>,
}

impl RelayKey {
    /// Reads the relay's `password` and those of its next hops, one key each, for a 2022 AES
    /// method.
    ///
    /// # Errors
    /// Says what is wrong without repeating any of the secret.
    pub fn parse<'a>(
        method: Method,
        password: &str,
        next: impl IntoIterator<Item = &'a str>,
    ) -> Result<Self, KeyError> {
        if !method.supports_identity() {
            return Err(KeyError::NoIdentity);
        }
        let key = one_psk(method, password)?;
        let mut hops = Vec::new();
        for (index, password) in next.into_iter().enumerate() {
            let key = one_psk(method, password)?;
            let identity = blake3_identity(key.as_bytes());
            let index = u16::try_from(index).map_err(|_| KeyError::TooManyHops)?;
            hops.push((Hop { identity, index }, key));
        }
        hops.sort_by_key(|(hop, _)| hop.identity);
        if hops.windows(2).any(|pair| pair[0].0.identity == pair[1].0.identity) {
            return Err(KeyError::DuplicateHop);
        }
        let keys = [&key].into_iter().chain(hops.iter().map(|(_, key)| key));
        let blocks = keys.map(|key| BlockKey::new(key.as_bytes())).collect();
        let hops = hops.into_iter().map(|(hop, _)| hop).collect();
        Ok(Self { method, key, hops, blocks })
    }

    /// The method, which all hops share.
    pub const fn method(&self) -> Method {
        self.method
    }

    /// Number of next hops.
    pub const fn hops(&self) -> usize {
        self.hops.len()
    }

    /// Takes the identity header off the beginning of a stream, in place: the salt moves up.
    ///
    /// `first` is what the first `read` returned; a request has to bring salt, identity header and
    /// fixed header in one segment (SIP022).
    ///
    /// # Errors
    /// The peer misbehaved and `first` is unchanged; [`Reject::reaction`] says what to do.
    pub fn peel(&self, first: &mut [u8]) -> Result<Peeled, Reject> {
        let salt_len = self.method.salt_len();
        let expected = salt_len + 16 + REQUEST_FIXED_LEN + TAG_LEN;
        let actual = first.len();
        if actual < expected {
            return Err(Reject::ShortFirstSegment { expected, actual });
        }
        let (salt, rest) = first.split_at(salt_len);
        let mut identity = *rest.first_chunk().ok_or(Reject::HeaderLength)?;
        identity_key(&self.key, salt).decrypt_block(&mut identity);
        let at = self.hop(&identity).ok_or(Reject::UnknownUser)?;
        first.copy_within(..salt_len, 16);
        Ok(Peeled { next: self.hops[at].index, forward: 16..actual })
    }

    /// Takes the identity header off a packet, in place: the separate header, encrypted for the
    /// next hop, takes its place.
    ///
    /// # Errors
    /// The packet is to be dropped; it is unchanged.
    pub fn peel_packet(&self, packet: &mut [u8]) -> Result<PeeledPacket, PacketReject> {
        let len = packet.len();
        if len < HEADER_LEN + 16 + sip022::REQUEST_HEAD_LEN + TAG_LEN {
            return Err(PacketReject::TooShort);
        }
        let (header, rest) =
            packet.split_first_chunk_mut::<HEADER_LEN>().ok_or(PacketReject::TooShort)?;
        let header_of_next = rest.first_chunk_mut::<16>().ok_or(PacketReject::TooShort)?;
        let own = &self.blocks[0];
        let mut ids = *header;
        own.decrypt_block(&mut ids);
        let mut identity = *header_of_next;
        own.decrypt_block(&mut identity);
        let session = Ids::from_bytes(ids);
        session.mask(&mut identity);
        let at = self.hop(&identity).ok_or(PacketReject::UnknownUser)?;
        *header_of_next = ids;
        self.blocks[at + 1].encrypt_block(header_of_next);
        let session = SessionId { id: session.session(), identity };
        Ok(PeeledPacket { next: self.hops[at].index, session, forward: HEADER_LEN..len })
    }

    fn hop(&self, identity: &[u8; 16]) -> Option<usize> {
        // As for users: the order of hashes of secrets tells nothing.
        self.hops.binary_search_by(|hop| hop.identity.cmp(identity)).ok()
    }
}

fn one_psk(method: Method, password: &str) -> Result<Secret, KeyError> {
    if password.is_empty() {
        return Err(KeyError::Empty);
    }
    if password.contains(':') {
        return Err(KeyError::OneKey);
    }
    decode_psk(method, password)
}
