//! The sending half: plaintext to records, in place.
//!
//! The caller lays memory out as `head gap | payload | tail gap`, reads payload straight into
//! the middle, and the sealer fills both gaps. Records that follow each other in memory make one
//! run for one `write`, so sealing copies nothing:
//!
//! ```text
//! | len 2 + tag 16 | payload | tag 16 | len 2 + tag 16 | payload | tag 16 | …
//! ```
//!
//! The first record of a stream has a larger head: salt, identity headers, fixed header and the
//! target address all go in front of the first payload, and so out in one segment with it.
//!
//! Cost per record: two AEAD calls (2 bytes, payload), no copy.

use adit_crypto::{
    AeadKey, BlockKey, NonceCounter, Rng, Secret, TAG_LEN, blake3_derive_key, hkdf_sha1,
};
use zeroize::Zeroize;

use crate::{ClientKey, Env, Method, SALT_LEN_MAX};

/// BLAKE3 context of session keys (SIP022).
pub(crate) const CONTEXT_SESSION: &str = "shadowsocks 2022 session subkey";
/// BLAKE3 context of identity header keys (SIP023).
pub(crate) const CONTEXT_IDENTITY: &str = "shadowsocks 2022 identity subkey";
/// HKDF info of SIP004 session keys.
const INFO_SIP004: &[u8] = b"ss-subkey";
/// Stream type of a 2022 request.
pub(crate) const TYPE_REQUEST: u8 = 0;
/// Stream type of a 2022 response.
pub(crate) const TYPE_RESPONSE: u8 = 1;
/// Type, time and length of a 2022 request's fixed header.
pub(crate) const REQUEST_FIXED_LEN: usize = 1 + 8 + 2;
/// Length header and its tag in front of every later record.
pub(crate) const LENGTH_LEN: usize = 2 + TAG_LEN;
/// A printable beginning of a salt has 6 to 12 bytes, as in shadowsocks-c: six printable bytes
/// are what a censor's classifier was seen to let pass (Wu et al., USENIX Security 2023).
const PRINTABLE_LEN_MIN: u32 = 6;
const PRINTABLE_LEN_SPAN: u32 = 7;
/// Most padding of a request without payload (SIP022; at least 1 byte is needed).
const PADDING_MAX: u32 = 900;

/// Tail gap behind every payload: the tag.
pub const RECORD_TAIL: usize = TAG_LEN;
/// No head of any record is longer: salt, identity headers, fixed header, address, padding length.
pub const RECORD_HEAD_MAX: usize = SALT_LEN_MAX
    + crate::key::IDENTITY_HEADERS_MAX * 16
    + REQUEST_FIXED_LEN
    + TAG_LEN
    + adit_wire::TARGET_LEN_MAX
    + 2;
/// Bytes behind the head that a first record without payload may fill: padding and tag.
pub const PADDED_LEN_MAX: usize = PADDING_MAX as usize + TAG_LEN;

/// Seals one direction of a stream.
pub struct Sealer(Cipher);

/// What a first record takes from outside, apart from keys and payload.
pub(crate) struct FirstRecord {
    /// As many bytes count as the method's salt has.
    pub(crate) salt: [u8; SALT_LEN_MAX],
    pub(crate) unix_s: u64,
    /// Only a 2022 request has any.
    pub(crate) padding_len: usize,
}

/// The key and nonce of one direction; [`Method::None`] has neither.
pub(crate) struct Cipher {
    pub(crate) method: Method,
    pub(crate) nonce: NonceCounter,
    key: Option<AeadKey>,
}

impl Cipher {
    pub(crate) fn new(method: Method, key: &Secret, salt: &[u8]) -> Self {
        Self { method, nonce: NonceCounter::new(), key: session_key(method, key, salt) }
    }

    pub(crate) fn seal(&mut self, buf: &mut [u8]) {
        let Some(key) = &self.key else { return };
        let (plaintext, tag) =
            buf.split_last_chunk_mut::<TAG_LEN>().expect("a record has a tag gap");
        let mut nonce = [0; adit_crypto::NONCE_LEN_MAX];
        let nonce = self.nonce.next(key.aead(), &mut nonce);
        key.seal_in_place(nonce, &[], plaintext, tag);
    }

    pub(crate) fn open(&mut self, buf: &mut [u8]) -> Result<(), adit_crypto::OpenError> {
        let Some(key) = &self.key else { return Ok(()) };
        let (ciphertext, tag) =
            buf.split_last_chunk_mut::<TAG_LEN>().ok_or(adit_crypto::OpenError)?;
        let mut nonce = [0; adit_crypto::NONCE_LEN_MAX];
        let nonce = self.nonce.next(key.aead(), &mut nonce);
        key.open_in_place(nonce, &[], ciphertext, tag)
    }
}

impl Sealer {
    /// Head gap of a request's first record for a target of `target_len` encoded bytes.
    pub fn request_head_len(key: &ClientKey, target_len: usize) -> usize {
        let method = key.method();
        match method {
            Method::None => target_len,
            _ if method.is_2022() => {
                let identities = key.identity_headers().len() * 16;
                method.salt_len() + identities + REQUEST_FIXED_LEN + TAG_LEN + target_len + 2
            }
            _ => method.salt_len() + LENGTH_LEN + target_len,
        }
    }

    /// Largest payload of a request's first record.
    pub fn request_payload_max(key: &ClientKey, target_len: usize) -> usize {
        key.method().record_payload_max() - target_len - if key.method().is_2022() { 2 } else { 0 }
    }

    /// Starts a request: `buf` is the head gap, `payload_len` bytes of payload, and room for the
    /// tail. Without payload a 2022 request is padded, so `buf` needs [`PADDED_LEN_MAX`] bytes
    /// behind the head.
    ///
    /// Returns the sealer, the salt, and how many bytes of `buf` to send, in one write.
    ///
    /// # Panics
    /// When `buf` is too short, or `payload_len` exceeds [`Sealer::request_payload_max`].
    pub fn request(
        key: &ClientKey,
        target: &[u8],
        env: &mut Env<'_>,
        buf: &mut [u8],
        payload_len: usize,
    ) -> (Self, [u8; SALT_LEN_MAX], usize) {
        let method = key.method();
        let salt = draw_salt(key, env.rng);
        let padding_len = if method.is_2022() && payload_len == 0 {
            1 + env.rng.below(PADDING_MAX) as usize
        } else {
            0
        };
        let first = FirstRecord { salt, unix_s: env.unix_s, padding_len };
        let (sealer, len) = Self::request_with(key, target, &first, buf, payload_len);
        (sealer, salt, len)
    }

    /// [`Sealer::request`] with everything that is drawn or read given.
    pub(crate) fn request_with(
        key: &ClientKey,
        target: &[u8],
        first: &FirstRecord,
        buf: &mut [u8],
        payload_len: usize,
    ) -> (Self, usize) {
        assert!(payload_len <= Self::request_payload_max(key, target.len()), "payload too long");
        let method = key.method();
        let salt = &first.salt[..method.salt_len()];
        let mut cipher = Cipher::new(method, key.session(), salt);
        buf[..salt.len()].copy_from_slice(salt);
        let len = if method == Method::None {
            buf[..target.len()].copy_from_slice(target);
            target.len() + payload_len
        } else if method.is_2022() {
            request_2022(&mut cipher, key, target, first, buf, payload_len)
        } else {
            let at = salt.len();
            let body = &mut buf[at..];
            let body_len = target.len() + payload_len;
            body[LENGTH_LEN..LENGTH_LEN + target.len()].copy_from_slice(target);
            at + seal_record(&mut cipher, body, body_len)
        };
        (Self(cipher), len)
    }

    /// Head gap of a response's first record.
    pub const fn response_head_len(method: Method) -> usize {
        match method {
            Method::None => 0,
            _ if method.is_2022() => 2 * method.salt_len() + REQUEST_FIXED_LEN + TAG_LEN,
            _ => method.salt_len() + LENGTH_LEN,
        }
    }

    /// Starts a response: `buf` is the head gap, `payload_len` (at least 1) bytes of payload and
    /// the tail gap. `session` is the key that [`Accepted::session`](crate::Accepted::session)
    /// found, `request_salt` the salt it came with.
    ///
    /// # Panics
    /// When `buf` is too short or the payload longer than a record may be.
    pub fn response(
        method: Method,
        session: &Secret,
        request_salt: &[u8],
        env: &mut Env<'_>,
        buf: &mut [u8],
        payload_len: usize,
    ) -> (Self, usize) {
        let mut salt = [0; SALT_LEN_MAX];
        env.rng.fill(&mut salt[..method.salt_len()]);
        let first = FirstRecord { salt, unix_s: env.unix_s, padding_len: 0 };
        Self::response_with(method, session, request_salt, &first, buf, payload_len)
    }

    /// [`Sealer::response`] with everything that is drawn or read given.
    pub(crate) fn response_with(
        method: Method,
        session: &Secret,
        request_salt: &[u8],
        first: &FirstRecord,
        buf: &mut [u8],
        payload_len: usize,
    ) -> (Self, usize) {
        let salt = &first.salt[..method.salt_len()];
        buf[..salt.len()].copy_from_slice(salt);
        let mut cipher = Cipher::new(method, session, salt);
        let at = salt.len();
        let len = if method == Method::None {
            payload_len
        } else if method.is_2022() {
            let head_len = REQUEST_FIXED_LEN + at + TAG_LEN;
            let (head, body) = buf[at..].split_at_mut(head_len);
            head[0] = TYPE_RESPONSE;
            head[1..9].copy_from_slice(&first.unix_s.to_be_bytes());
            head[9..9 + at].copy_from_slice(&request_salt[..at]);
            head[9 + at..11 + at].copy_from_slice(&length_bytes(method, payload_len));
            cipher.seal(head);
            cipher.seal(&mut body[..payload_len + TAG_LEN]);
            at + head_len + payload_len + TAG_LEN
        } else {
            at + seal_record(&mut cipher, &mut buf[at..], payload_len)
        };
        (Self(cipher), len)
    }

    /// Head gap of every later record.
    pub const fn head_len(&self) -> usize {
        match self.0.method {
            Method::None => 0,
            _ => LENGTH_LEN,
        }
    }

    /// Tail gap of a record of this method.
    pub const fn tail_len(method: Method) -> usize {
        match method {
            Method::None => 0,
            _ => RECORD_TAIL,
        }
    }

    /// Seals one later record in `buf`: head gap, payload, tail gap. Returns its length.
    ///
    /// # Panics
    /// When `buf` is too short or the payload longer than a record may be.
    pub fn seal(&mut self, buf: &mut [u8], payload_len: usize) -> usize {
        if self.0.method == Method::None {
            return payload_len;
        }
        seal_record(&mut self.0, buf, payload_len)
    }
}

/// Fills in `length | tag | payload | tag` around a payload that is in place.
fn seal_record(cipher: &mut Cipher, buf: &mut [u8], payload_len: usize) -> usize {
    let (head, body) = buf.split_at_mut(LENGTH_LEN);
    head[..2].copy_from_slice(&length_bytes(cipher.method, payload_len));
    cipher.seal(head);
    cipher.seal(&mut body[..payload_len + TAG_LEN]);
    LENGTH_LEN + payload_len + TAG_LEN
}

/// Everything behind the salt of a 2022 request; returns the length of the whole first flight.
fn request_2022(
    cipher: &mut Cipher,
    key: &ClientKey,
    target: &[u8],
    first: &FirstRecord,
    buf: &mut [u8],
    payload_len: usize,
) -> usize {
    let (salt, mut rest) = buf.split_at_mut(cipher.method.salt_len());
    let mut at = salt.len();
    for (identity, hidden) in key.identity_headers() {
        let (header, behind) = rest.split_first_chunk_mut::<16>().expect("the head gap fits");
        *header = *hidden;
        identity_key(identity, salt).encrypt_block(header);
        rest = behind;
        at += 16;
    }
    let padding_len = first.padding_len;
    let variable_len = target.len() + 2 + padding_len + payload_len;
    let (fixed, variable) = rest.split_at_mut(REQUEST_FIXED_LEN + TAG_LEN);
    fixed[0] = TYPE_REQUEST;
    fixed[1..9].copy_from_slice(&first.unix_s.to_be_bytes());
    fixed[9..11].copy_from_slice(&length_bytes(cipher.method, variable_len));
    cipher.seal(fixed);
    let (address, behind) = variable.split_at_mut(target.len());
    address.copy_from_slice(target);
    behind[..2].copy_from_slice(&length_bytes(cipher.method, padding_len));
    behind[2..2 + padding_len].fill(0);
    cipher.seal(&mut variable[..variable_len + TAG_LEN]);
    at + REQUEST_FIXED_LEN + TAG_LEN + variable_len + TAG_LEN
}

/// The key of one direction of a stream, or of a packet or packet session; none for
/// [`Method::None`].
pub(crate) fn session_key(method: Method, key: &Secret, salt: &[u8]) -> Option<AeadKey> {
    let aead = method.aead()?;
    let mut subkey = [0; adit_crypto::KEY_LEN_MAX];
    let subkey = &mut subkey[..method.key_len()];
    if method.is_2022() {
        blake3_derive_key(CONTEXT_SESSION, &[key.as_bytes(), salt], subkey);
    } else {
        hkdf_sha1(key.as_bytes(), salt, INFO_SIP004, subkey);
    }
    let aead_key = AeadKey::new(aead, subkey);
    subkey.zeroize();
    Some(aead_key)
}

/// A client's salt: random, with a printable beginning where that is asked for.
fn draw_salt(key: &ClientKey, rng: &mut Rng) -> [u8; SALT_LEN_MAX] {
    let mut salt = [0; SALT_LEN_MAX];
    rng.fill(&mut salt[..key.method().salt_len()]);
    if key.has_printable_salt() {
        let len = PRINTABLE_LEN_MIN + rng.below(PRINTABLE_LEN_SPAN);
        for byte in &mut salt[..len as usize] {
            *byte = b' ' + u8::try_from(rng.below(95)).expect("95 characters are printable");
        }
    }
    salt
}

/// The AES key of one identity header (SIP023).
pub(crate) fn identity_key(psk: &Secret, salt: &[u8]) -> BlockKey {
    let mut subkey = [0; adit_crypto::KEY_LEN_MAX];
    let subkey = &mut subkey[..psk.len()];
    blake3_derive_key(CONTEXT_IDENTITY, &[psk.as_bytes(), salt], subkey);
    let key = BlockKey::new(subkey);
    subkey.zeroize();
    key
}

fn length_bytes(method: Method, len: usize) -> [u8; 2] {
    assert!(len <= method.record_payload_max(), "a record payload fits its length field");
    u16::try_from(len).expect("no record payload exceeds 65535 bytes").to_be_bytes()
}
