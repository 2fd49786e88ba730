//! RustCrypto ciphers: the shared in-place calls, and the reduced-round ChaCha family.
//!
//! AWS-LC has no ChaCha with 8 or 12 rounds, so that these come from here in every build. A key is
//! 32 bytes and is expanded again for each record. They are the slow ciphers of this crate.

use chacha20poly1305::aead::array::Array;
use chacha20poly1305::aead::consts::U16;
use chacha20poly1305::aead::{AeadInOut, Key, KeyInit, Nonce};
use chacha20poly1305::{ChaCha8Poly1305, ChaCha12Poly1305, XChaCha8Poly1305, XChaCha12Poly1305};

use crate::{Aead, OpenError, TAG_LEN};

/// A reduced-round cipher with its key; the key is wiped on drop.
pub(crate) enum ReducedRound {
    ChaCha8(ChaCha8Poly1305),
    ChaCha12(ChaCha12Poly1305),
    XChaCha8(XChaCha8Poly1305),
    XChaCha12(XChaCha12Poly1305),
}

impl ReducedRound {
    /// The cipher for `aead`, or `None` when `aead` has all its rounds.
    pub(crate) fn new(aead: Aead, key: &[u8]) -> Option<Self> {
        Some(match aead {
            Aead::ChaCha8Poly1305 => Self::ChaCha8(keyed(key)),
            Aead::ChaCha12Poly1305 => Self::ChaCha12(keyed(key)),
            Aead::XChaCha8Poly1305 => Self::XChaCha8(keyed(key)),
            Aead::XChaCha12Poly1305 => Self::XChaCha12(keyed(key)),
            Aead::Aes128Gcm
            | Aead::Aes192Gcm
            | Aead::Aes256Gcm
            | Aead::ChaCha20Poly1305
            | Aead::XChaCha20Poly1305 => return None,
        })
    }

    pub(crate) fn seal_in_place(
        &self,
        nonce: &[u8],
        aad: &[u8],
        plaintext: &mut [u8],
        tag: &mut [u8; TAG_LEN],
    ) {
        match self {
            Self::ChaCha8(cipher) => seal(cipher, nonce, aad, plaintext, tag),
            Self::ChaCha12(cipher) => seal(cipher, nonce, aad, plaintext, tag),
            Self::XChaCha8(cipher) => seal(cipher, nonce, aad, plaintext, tag),
            Self::XChaCha12(cipher) => seal(cipher, nonce, aad, plaintext, tag),
        }
    }

    pub(crate) fn open_in_place(
        &self,
        nonce: &[u8],
        aad: &[u8],
        ciphertext: &mut [u8],
        tag: &[u8; TAG_LEN],
    ) -> Result<(), OpenError> {
        match self {
            Self::ChaCha8(cipher) => open(cipher, nonce, aad, ciphertext, tag),
            Self::ChaCha12(cipher) => open(cipher, nonce, aad, ciphertext, tag),
            Self::XChaCha8(cipher) => open(cipher, nonce, aad, ciphertext, tag),
            Self::XChaCha12(cipher) => open(cipher, nonce, aad, ciphertext, tag),
        }
    }

    pub(crate) fn aead(&self) -> Aead {
        match self {
            Self::ChaCha8(_) => Aead::ChaCha8Poly1305,
            Self::ChaCha12(_) => Aead::ChaCha12Poly1305,
            Self::XChaCha8(_) => Aead::XChaCha8Poly1305,
            Self::XChaCha12(_) => Aead::XChaCha12Poly1305,
        }
    }
}

/// Keys a cipher without a copy of the key on the stack.
///
/// # Panics
/// When `key` does not have the cipher's length.
pub(crate) fn keyed<C: KeyInit>(key: &[u8]) -> C {
    C::new(<&Key<C>>::try_from(key).expect("the caller checked the key length"))
}

/// Seals in place with any cipher that has a 16-byte tag.
///
/// # Panics
/// When `nonce` does not have the cipher's length or `plaintext` is too long for the cipher.
pub(crate) fn seal<C: AeadInOut<TagSize = U16>>(
    cipher: &C,
    nonce: &[u8],
    aad: &[u8],
    plaintext: &mut [u8],
    tag: &mut [u8; TAG_LEN],
) {
    *tag = cipher
        .encrypt_inout_detached(sized_nonce::<C>(nonce), aad, plaintext.into())
        .expect("plaintext is longer than the cipher allows")
        .into();
}

/// Opens in place with any cipher that has a 16-byte tag; zeroes the data when it is refused.
///
/// # Panics
/// When `nonce` does not have the cipher's length.
pub(crate) fn open<C: AeadInOut<TagSize = U16>>(
    cipher: &C,
    nonce: &[u8],
    aad: &[u8],
    ciphertext: &mut [u8],
    tag: &[u8; TAG_LEN],
) -> Result<(), OpenError> {
    let tag: &Array<u8, U16> = tag.into();
    cipher
        .decrypt_inout_detached(sized_nonce::<C>(nonce), aad, (&mut *ciphertext).into(), tag)
        .map_err(|_| {
            // As AWS-LC does, so that both backends leave the same bytes behind.
            ciphertext.fill(0);
            OpenError
        })
}

fn sized_nonce<C: AeadInOut>(nonce: &[u8]) -> &Nonce<C> {
    nonce.try_into().expect("the caller checked the nonce length")
}
