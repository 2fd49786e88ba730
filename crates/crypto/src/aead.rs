//! Authenticated encryption in the caller's buffer, and the counter nonce of stream codecs.
//!
//! [`AeadKey`] is an enum over the backends and one match per record picks the cipher. A record
//! costs what the cipher costs: no copy of the data and no allocation. Opening writes to the
//! buffer before the tag is checked, so a refused buffer is zeroed and its content is lost.

use std::fmt;

#[cfg(all(feature = "aws-lc", target_arch = "x86_64"))]
use crate::vaes;
use crate::{backend, rust_crypto};

/// Length of the authentication tag of every cipher here.
pub const TAG_LEN: usize = 16;
/// Longest key of any cipher here.
pub const KEY_LEN_MAX: usize = 32;
/// Longest nonce of any cipher here.
pub const NONCE_LEN_MAX: usize = 24;

/// An authenticated cipher.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Aead {
    /// AES-128-GCM (NIST SP 800-38D), 12-byte nonce.
    Aes128Gcm,
    /// AES-192-GCM (NIST SP 800-38D), 12-byte nonce.
    Aes192Gcm,
    /// AES-256-GCM (NIST SP 800-38D), 12-byte nonce.
    Aes256Gcm,
    /// ChaCha20-Poly1305 (RFC 8439), 12-byte nonce.
    ChaCha20Poly1305,
    /// XChaCha20-Poly1305 (draft-irtf-cfrg-xchacha), 24-byte nonce.
    XChaCha20Poly1305,
    /// ChaCha12-Poly1305: RFC 8439 with 12 rounds.
    ChaCha12Poly1305,
    /// ChaCha8-Poly1305: RFC 8439 with 8 rounds.
    ChaCha8Poly1305,
    /// XChaCha12-Poly1305: draft-irtf-cfrg-xchacha with 12 rounds.
    XChaCha12Poly1305,
    /// XChaCha8-Poly1305: draft-irtf-cfrg-xchacha with 8 rounds.
    XChaCha8Poly1305,
}

impl Aead {
    /// Length of the key in bytes.
    pub const fn key_len(self) -> usize {
        match self {
            Self::Aes128Gcm => 16,
            Self::Aes192Gcm => 24,
            Self::Aes256Gcm
            | Self::ChaCha20Poly1305
            | Self::XChaCha20Poly1305
            | Self::ChaCha12Poly1305
            | Self::ChaCha8Poly1305
            | Self::XChaCha12Poly1305
            | Self::XChaCha8Poly1305 => 32,
        }
    }

    /// Length of the nonce in bytes.
    pub const fn nonce_len(self) -> usize {
        match self {
            Self::Aes128Gcm
            | Self::Aes192Gcm
            | Self::Aes256Gcm
            | Self::ChaCha20Poly1305
            | Self::ChaCha12Poly1305
            | Self::ChaCha8Poly1305 => 12,
            Self::XChaCha20Poly1305 | Self::XChaCha12Poly1305 | Self::XChaCha8Poly1305 => 24,
        }
    }
}

/// Authentication failed: the key, the nonce, the associated data, the data or the tag is not the
/// one that was sealed. Peer's fault; nothing tells which it was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OpenError;

impl OpenError {
    /// A stable word for metrics and logs.
    pub const fn as_label(self) -> &'static str {
        "aead_open"
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("authentication failed")
    }
}

impl std::error::Error for OpenError {}

/// A cipher with its expanded key: inline, `Send` and `Sync`, wiped on drop.
///
/// It has no `Debug` and no `Clone`, so that key material has one place.
pub struct AeadKey(Cipher);

#[allow(clippy::large_enum_variant, reason = "a key is inline by contract, whatever its cipher")]
enum Cipher {
    #[cfg(all(feature = "aws-lc", target_arch = "x86_64"))]
    Vaes(vaes::Cipher),
    Backend(backend::Cipher),
    ReducedRound(rust_crypto::ReducedRound),
}

// A TCP flow holds two of these; a new AWS-LC must not grow the slab unnoticed.
#[cfg(feature = "aws-lc")]
const _: () = assert!(size_of::<AeadKey>() <= 608);

impl AeadKey {
    /// Expands `key` for `aead`.
    ///
    /// # Panics
    /// When `key` does not have [`Aead::key_len`] bytes.
    pub fn new(aead: Aead, key: &[u8]) -> Self {
        assert_eq!(key.len(), aead.key_len(), "key length of {aead:?}");
        #[cfg(all(feature = "aws-lc", target_arch = "x86_64"))]
        if vaes::is_best()
            && let Some(cipher) = vaes::Cipher::new(aead, key)
        {
            return Self(Cipher::Vaes(cipher));
        }
        match rust_crypto::ReducedRound::new(aead, key) {
            Some(cipher) => Self(Cipher::ReducedRound(cipher)),
            None => Self(Cipher::Backend(backend::Cipher::new(aead, key))),
        }
    }

    /// Encrypts `plaintext` in place and writes the tag over it and `aad` to `tag`.
    ///
    /// # Panics
    /// When `nonce` does not have [`Aead::nonce_len`] bytes, or `plaintext` is longer than one
    /// call of the cipher may be (64 GiB).
    #[inline]
    pub fn seal_in_place(
        &self,
        nonce: &[u8],
        aad: &[u8],
        plaintext: &mut [u8],
        tag: &mut [u8; TAG_LEN],
    ) {
        self.check_nonce(nonce);
        match &self.0 {
            #[cfg(all(feature = "aws-lc", target_arch = "x86_64"))]
            Cipher::Vaes(cipher) => cipher.seal_in_place(nonce, aad, plaintext, tag),
            Cipher::Backend(cipher) => cipher.seal_in_place(nonce, aad, plaintext, tag),
            Cipher::ReducedRound(cipher) => cipher.seal_in_place(nonce, aad, plaintext, tag),
        }
    }

    /// Checks `tag` over `ciphertext` and `aad`, and decrypts `ciphertext` in place.
    ///
    /// # Errors
    /// [`OpenError`] when authentication fails; `ciphertext` is all zero then.
    ///
    /// # Panics
    /// When `nonce` does not have [`Aead::nonce_len`] bytes.
    #[inline]
    pub fn open_in_place(
        &self,
        nonce: &[u8],
        aad: &[u8],
        ciphertext: &mut [u8],
        tag: &[u8; TAG_LEN],
    ) -> Result<(), OpenError> {
        self.check_nonce(nonce);
        match &self.0 {
            #[cfg(all(feature = "aws-lc", target_arch = "x86_64"))]
            Cipher::Vaes(cipher) => cipher.open_in_place(nonce, aad, ciphertext, tag),
            Cipher::Backend(cipher) => cipher.open_in_place(nonce, aad, ciphertext, tag),
            Cipher::ReducedRound(cipher) => cipher.open_in_place(nonce, aad, ciphertext, tag),
        }
    }

    /// The cipher this key is for.
    #[inline]
    pub fn aead(&self) -> Aead {
        match &self.0 {
            #[cfg(all(feature = "aws-lc", target_arch = "x86_64"))]
            Cipher::Vaes(cipher) => cipher.aead(),
            Cipher::Backend(cipher) => cipher.aead(),
            Cipher::ReducedRound(cipher) => cipher.aead(),
        }
    }

    #[inline]
    fn check_nonce(&self, nonce: &[u8]) {
        assert_eq!(nonce.len(), self.aead().nonce_len(), "nonce length");
    }
}

/// A little-endian counter nonce that starts at zero, one per key and direction.
///
/// It is not `Clone`: two counters on one key would repeat a nonce.
#[derive(Debug, Default)]
pub struct NonceCounter {
    /// The value that the following call hands out.
    next: u64,
}

impl NonceCounter {
    /// A counter at zero.
    pub const fn new() -> Self {
        Self { next: 0 }
    }

    /// Writes the current value to the start of `buf`, in the length that `aead` takes, and steps
    /// to the following one.
    ///
    /// # Panics
    /// After 2^64 - 1 calls, which no flow reaches: at 100 million records a second that takes
    /// 5,800 years.
    #[inline]
    pub fn next<'a>(&mut self, aead: Aead, buf: &'a mut [u8; NONCE_LEN_MAX]) -> &'a [u8] {
        let following = self.next.checked_add(1).expect("no flow seals 2^64 records");
        *buf = [0; NONCE_LEN_MAX];
        buf[..8].copy_from_slice(&self.next.to_le_bytes());
        self.next = following;
        &buf[..aead.nonce_len()]
    }
}

#[cfg(test)]
mod tests;
