//! The pieces of 2022 packets, for both sides: ids, body, and how AES and ChaCha protect them.
//!
//! With AES the two ids make one block, encrypted on its own, and the body's nonce is the block's
//! last 12 bytes: unique as long as a session uses each packet id once. With ChaCha the ids are
//! the first bytes under the AEAD, whose nonce is random.

use std::ops::Range;

use adit_crypto::{AeadKey, BLOCK_LEN, BlockKey, NONCE_LEN_MAX, Rng, TAG_LEN};

use super::{PacketReject, SessionExhausted, frame};
use crate::seal::{TYPE_REQUEST, TYPE_RESPONSE};
use crate::server::clock_difference;

/// Session id and packet id.
pub(crate) const HEADER_LEN: usize = BLOCK_LEN;
/// Nonce of a ChaCha packet.
pub(crate) const NONCE_LEN: usize = NONCE_LEN_MAX;
/// Type, time and padding length.
pub(crate) const REQUEST_HEAD_LEN: usize = 1 + 8 + 2;
/// Type, time, the client's session id and padding length.
pub(crate) const RESPONSE_HEAD_LEN: usize = REQUEST_HEAD_LEN + 8;
/// Most padding, as for streams; SIP022 leaves packets to the sender.
pub(crate) const PADDING_MAX: usize = 900;
/// No padding makes a packet longer than fits the smallest MTU of IPv6 with its headers
/// (RFC 8200 section 5): 1280 - 40 - 8.
const PADDED_PACKET_MAX: usize = 1232;

/// Session id and packet id, as they are on the wire.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ids([u8; HEADER_LEN]);

impl Ids {
    pub(crate) fn new(session: [u8; 8], packet: u64) -> Self {
        let mut bytes = [0; HEADER_LEN];
        bytes[..8].copy_from_slice(&session);
        bytes[8..].copy_from_slice(&packet.to_be_bytes());
        Self(bytes)
    }

    pub(crate) const fn from_bytes(bytes: [u8; HEADER_LEN]) -> Self {
        Self(bytes)
    }

    pub(crate) fn session(&self) -> [u8; 8] {
        *self.0.first_chunk().expect("16 bytes")
    }

    pub(crate) fn packet(&self) -> u64 {
        u64::from_be_bytes(*self.0.last_chunk().expect("16 bytes"))
    }

    /// Hides an identity behind the ids, or brings it out again.
    pub(crate) fn mask(&self, identity: &mut [u8; 16]) {
        for (byte, mask) in identity.iter_mut().zip(self.0) {
            *byte ^= mask;
        }
    }

    fn nonce(&self) -> &[u8] {
        &self.0[4..]
    }
}

/// Draws a session id that is neither zero, which other programs take for none, nor `other`.
pub(crate) fn draw_session_id(rng: &mut Rng, other: [u8; 8]) -> [u8; 8] {
    loop {
        let id = rng.u64().to_be_bytes();
        if id != [0; 8] && id != other {
            return id;
        }
    }
}

/// Hands out the packet ids of a session, from 0. The last id of all is never used: no receiver
/// takes it.
pub(crate) const fn take_packet_id(next: &mut u64) -> Result<u64, SessionExhausted> {
    let id = *next;
    if id == u64::MAX {
        return Err(SessionExhausted);
    }
    *next = id + 1;
    Ok(id)
}

/// Which way a packet goes.
#[derive(Clone, Copy)]
pub(crate) enum Direction {
    Request,
    Response { client_session: [u8; 8] },
}

impl Direction {
    pub(crate) const fn head_len(self) -> usize {
        match self {
            Self::Request => REQUEST_HEAD_LEN,
            Self::Response { .. } => RESPONSE_HEAD_LEN,
        }
    }
}

/// What a body has before its payload.
pub(crate) struct BodyHead<'a> {
    pub(crate) direction: Direction,
    pub(crate) unix_s: u64,
    pub(crate) padding_len: usize,
    pub(crate) address: &'a [u8],
}

impl BodyHead<'_> {
    pub(crate) const fn len(&self) -> usize {
        self.direction.head_len() + self.padding_len + self.address.len()
    }

    /// Adds padding to a packet without payload, whose head is `outer_len` bytes longer than this
    /// and has `room` bytes before the payload.
    pub(crate) fn pad(&mut self, outer_len: usize, room: usize, rng: &mut Rng) {
        let head_len = outer_len + self.len();
        let most = PADDING_MAX
            .min(PADDED_PACKET_MAX.saturating_sub(head_len + TAG_LEN))
            .min(room.saturating_sub(head_len));
        if most > 0 {
            let most = u32::try_from(most).expect("at most PADDING_MAX");
            self.padding_len = 1 + rng.below(most) as usize;
        }
    }

    /// Writes the head to the start of `body`.
    pub(crate) fn write(&self, body: &mut [u8]) {
        let (head, rest) = body.split_at_mut(self.direction.head_len());
        head[1..9].copy_from_slice(&self.unix_s.to_be_bytes());
        head[0] = match self.direction {
            Direction::Request => TYPE_REQUEST,
            Direction::Response { client_session } => {
                head[9..17].copy_from_slice(&client_session);
                TYPE_RESPONSE
            }
        };
        let padding_len = u16::try_from(self.padding_len).expect("at most PADDING_MAX");
        let (_, len) = head.split_last_chunk_mut::<2>().expect("a head ends with a length");
        *len = padding_len.to_be_bytes();
        let (padding, rest) = rest.split_at_mut(self.padding_len);
        padding.fill(0);
        rest[..self.address.len()].copy_from_slice(self.address);
    }
}

/// Checks an authenticated body, the range `plain` of `packet`; returns the range of address and
/// payload.
pub(crate) fn read_body(
    packet: &[u8],
    plain: Range<usize>,
    direction: Direction,
    unix_s: u64,
) -> Result<Range<usize>, PacketReject> {
    let (head, rest) = packet[plain.clone()]
        .split_at_checked(direction.head_len())
        .ok_or(PacketReject::TooShort)?;
    let expected = match direction {
        Direction::Request => TYPE_REQUEST,
        Direction::Response { .. } => TYPE_RESPONSE,
    };
    if head[0] != expected {
        return Err(PacketReject::WrongType(head[0]));
    }
    if let Some(difference_s) = clock_difference(&head[1..9], unix_s) {
        return Err(PacketReject::ClockSkew { difference_s });
    }
    if let Direction::Response { client_session } = direction
        && head[9..17] != client_session
    {
        return Err(PacketReject::ForeignSession);
    }
    let len = head.last_chunk::<2>().ok_or(PacketReject::TooShort)?;
    let padding_len = usize::from(u16::from_be_bytes(*len));
    if padding_len > rest.len() {
        return Err(PacketReject::BadPadding);
    }
    Ok(plain.start + head.len() + padding_len..plain.end)
}

/// The keys that one packet is sealed with.
pub(crate) enum Seal<'a> {
    Aes {
        /// Of the separate header.
        header_key: &'a BlockKey,
        /// Of the identity headers, outermost first.
        identity_keys: &'a [BlockKey],
        /// What each identity header hides.
        identities: &'a [[u8; 16]],
        body_key: &'a AeadKey,
    },
    ChaCha {
        nonce: [u8; NONCE_LEN],
        body_key: &'a AeadKey,
    },
}

impl Seal<'_> {
    /// Bytes before the body head.
    pub(crate) const fn outer_len(&self) -> usize {
        match self {
            Self::Aes { identities, .. } => HEADER_LEN + 16 * identities.len(),
            Self::ChaCha { .. } => NONCE_LEN + HEADER_LEN,
        }
    }

    /// Seals a packet around its payload; returns where it lies.
    pub(crate) fn seal(
        &self,
        ids: Ids,
        head: &BodyHead<'_>,
        buf: &mut [u8],
        payload: &Range<usize>,
    ) -> Range<usize> {
        let outer_len = self.outer_len();
        let range = frame(buf, payload, outer_len + head.len(), TAG_LEN);
        let packet = &mut buf[range.clone()];
        head.write(&mut packet[outer_len..]);
        self.protect(ids, packet);
        range
    }

    /// Encrypts a packet whose body is in place.
    pub(crate) fn protect(&self, ids: Ids, packet: &mut [u8]) {
        match self {
            Self::Aes { header_key, identity_keys, identities, body_key } => {
                let (outer, sealed) = packet.split_at_mut(self.outer_len());
                let (header, rest) =
                    outer.split_first_chunk_mut().expect("the frame has a separate header");
                *header = ids.0;
                header_key.encrypt_block(header);
                let (headers, _) = rest.as_chunks_mut::<16>();
                let keys = identity_keys.iter().zip(*identities);
                for (header, (key, identity)) in headers.iter_mut().zip(keys) {
                    *header = *identity;
                    ids.mask(header);
                    key.encrypt_block(header);
                }
                let (body, tag) = sealed.split_last_chunk_mut().expect("the frame has a tag");
                body_key.seal_in_place(ids.nonce(), &[], body, tag);
            }
            Self::ChaCha { nonce, body_key } => {
                let (head, sealed) = packet.split_first_chunk_mut().expect("the frame has a nonce");
                *head = *nonce;
                let (plain, tag) = sealed.split_last_chunk_mut().expect("the frame has a tag");
                plain[..HEADER_LEN].copy_from_slice(&ids.0);
                body_key.seal_in_place(nonce, &[], plain, tag);
            }
        }
    }
}

/// Decrypts the body of an AES packet, which starts at `at`; returns its range.
pub(crate) fn open_aes(
    packet: &mut [u8],
    at: usize,
    ids: &Ids,
    body_key: &AeadKey,
) -> Result<Range<usize>, PacketReject> {
    let (body, tag) = packet
        .get_mut(at..)
        .and_then(|sealed| sealed.split_last_chunk_mut::<TAG_LEN>())
        .ok_or(PacketReject::TooShort)?;
    body_key.open_in_place(ids.nonce(), &[], body, tag)?;
    Ok(at..at + body.len())
}

/// Decrypts a ChaCha packet; returns its ids and the range of its body.
pub(crate) fn open_chacha(
    packet: &mut [u8],
    body_key: &AeadKey,
) -> Result<(Ids, Range<usize>), PacketReject> {
    let (nonce, sealed) =
        packet.split_first_chunk_mut::<NONCE_LEN>().ok_or(PacketReject::TooShort)?;
    let (plain, tag) = sealed.split_last_chunk_mut::<TAG_LEN>().ok_or(PacketReject::TooShort)?;
    body_key.open_in_place(nonce, &[], plain, tag)?;
    let (ids, body) = plain.split_first_chunk().ok_or(PacketReject::TooShort)?;
    let at = NONCE_LEN + HEADER_LEN;
    Ok((Ids(*ids), at..at + body.len()))
}

/// Reads the ids of a ChaCha packet and leaves it as it is.
///
/// Sealing zeros yields the key stream, which the ids are encrypted with. Neither it nor the tag
/// leaves this function, so that the nonce is not used twice in any way that matters.
pub(crate) fn peek_chacha(packet: &[u8], body_key: &AeadKey) -> Option<Ids> {
    let (nonce, sealed) = packet.split_first_chunk::<NONCE_LEN>()?;
    let hidden = sealed.first_chunk::<HEADER_LEN>()?;
    let mut ids = [0; HEADER_LEN];
    body_key.seal_in_place(nonce, &[], &mut ids, &mut [0; TAG_LEN]);
    for (byte, hidden) in ids.iter_mut().zip(hidden) {
        *byte ^= hidden;
    }
    Some(Ids(ids))
}
