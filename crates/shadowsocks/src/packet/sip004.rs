//! SIP004 packets, and those of `none`: salt, address and payload, without any state.

use std::ops::Range;

use adit_crypto::{AeadKey, NONCE_LEN_MAX, Rng, Secret, TAG_LEN};

use super::{PacketReject, frame};
use crate::seal::session_key;
use crate::{Method, SALT_LEN_MAX};

/// A packet that authenticated, or one of `none`.
pub(crate) struct Opened {
    pub(crate) salt: Range<usize>,
    /// Address and payload.
    pub(crate) plain: Range<usize>,
}

/// Whether a packet could have an address and a tag.
pub(crate) const fn check_len(method: Method, len: usize) -> Result<(), PacketReject> {
    let least = match method {
        Method::None => 1,
        _ => method.salt_len() + TAG_LEN + 1,
    };
    if len < least { Err(PacketReject::TooShort) } else { Ok(()) }
}

/// Seals the payload under a fresh salt.
pub(crate) fn seal(
    method: Method,
    key: &Secret,
    address: &[u8],
    buf: &mut [u8],
    payload: Range<usize>,
    rng: &mut Rng,
) -> Range<usize> {
    let mut salt = [0; SALT_LEN_MAX];
    let salt = &mut salt[..method.salt_len()];
    rng.fill(salt);
    seal_with(method, key, salt, address, buf, payload)
}

/// [`seal`] with the salt given.
pub(crate) fn seal_with(
    method: Method,
    key: &Secret,
    salt: &[u8],
    address: &[u8],
    buf: &mut [u8],
    payload: Range<usize>,
) -> Range<usize> {
    let aead_key = session_key(method, key, salt);
    let tail_len = if aead_key.is_some() { TAG_LEN } else { 0 };
    let range = frame(buf, &payload, salt.len() + address.len(), tail_len);
    let (head, plain) = buf[range.clone()].split_at_mut(salt.len());
    head.copy_from_slice(salt);
    plain[..address.len()].copy_from_slice(address);
    if let Some(aead_key) = aead_key {
        let (plain, tag) = plain.split_last_chunk_mut().expect("the frame has a tag");
        aead_key.seal_in_place(nonce(&aead_key), &[], plain, tag);
    }
    range
}

/// Opens a packet in place.
pub(crate) fn open(
    method: Method,
    key: &Secret,
    packet: &mut [u8],
) -> Result<Opened, PacketReject> {
    check_len(method, packet.len())?;
    let (salt, sealed) =
        packet.split_at_mut_checked(method.salt_len()).ok_or(PacketReject::TooShort)?;
    let Some(aead_key) = session_key(method, key, salt) else {
        return Ok(Opened { salt: 0..0, plain: 0..packet.len() });
    };
    let (plain, tag) = sealed.split_last_chunk_mut::<TAG_LEN>().ok_or(PacketReject::TooShort)?;
    aead_key.open_in_place(nonce(&aead_key), &[], plain, tag)?;
    Ok(Opened { salt: 0..salt.len(), plain: salt.len()..salt.len() + plain.len() })
}

/// A key seals one packet, under nonce zero.
fn nonce(key: &AeadKey) -> &'static [u8] {
    &[0; NONCE_LEN_MAX][..key.aead().nonce_len()]
}
