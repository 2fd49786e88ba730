//! AES-GCM for x86-64 processors that have VAES and no AVX-512, by ring.
//!
//! AWS-LC's wide AES-GCM code needs AVX-512; without it the library falls back to one block an
//! instruction. ring has code for 256-bit VAES, which many processors have and AVX-512 they have
//! not (and some virtual machines hide AVX-512). Measured on such a machine, 2026-11: a record of
//! 16,383 bytes takes 2.5 µs here and 4.7 µs there, 2 bytes take 105 and 134 ns. Where AVX-512 is
//! there, AWS-LC is twice as fast as ring.
//!
//! ring keeps no heap memory in a key and does not wipe it; this module does.

#![allow(unsafe_code, reason = "wiping needs storage that may be left without a valid value")]

use std::mem::MaybeUninit;

use ring::aead::{AES_128_GCM, AES_256_GCM, Aad, LessSafeKey, Nonce, Tag, UnboundKey};
use zeroize::Zeroize;

use crate::{Aead, OpenError, TAG_LEN};

/// Whether this processor is of the kind that this module is for.
pub(crate) fn is_best() -> bool {
    use std::arch::is_x86_feature_detected as has;
    has!("vaes") && has!("vpclmulqdq") && has!("avx2") && !has!("avx512bw")
}

/// A cipher with its expanded key, wiped on drop.
pub(crate) struct Cipher {
    /// Initialised from construction to drop.
    key: MaybeUninit<LessSafeKey>,
    aead: Aead,
}

impl Cipher {
    /// Expands a key whose length was checked; `None` when the cipher is not AES-GCM with a key
    /// size that ring has.
    pub(crate) fn new(aead: Aead, key: &[u8]) -> Option<Self> {
        let algorithm = match aead {
            Aead::Aes128Gcm => &AES_128_GCM,
            Aead::Aes256Gcm => &AES_256_GCM,
            _ => return None,
        };
        let key = LessSafeKey::new(UnboundKey::new(algorithm, key).ok()?);
        Some(Self { key: MaybeUninit::new(key), aead })
    }

    fn key(&self) -> &LessSafeKey {
        // SAFETY: initialised by `new`, and only `drop` takes that away.
        unsafe { self.key.assume_init_ref() }
    }

    #[inline]
    pub(crate) fn seal_in_place(
        &self,
        nonce: &[u8],
        aad: &[u8],
        plaintext: &mut [u8],
        tag: &mut [u8; TAG_LEN],
    ) {
        let sealed = nonce_of(nonce).and_then(|nonce| {
            self.key().seal_in_place_separate_tag(nonce, Aad::from(aad), plaintext).ok()
        });
        let sealed = sealed.expect("plaintext is longer than the cipher allows");
        tag.copy_from_slice(sealed.as_ref());
    }

    #[inline]
    pub(crate) fn open_in_place(
        &self,
        nonce: &[u8],
        aad: &[u8],
        ciphertext: &mut [u8],
        tag: &[u8; TAG_LEN],
    ) -> Result<(), OpenError> {
        let nonce = nonce_of(nonce).ok_or(OpenError)?;
        let tag = Tag::from(*tag);
        self.key()
            .open_in_place_separate_tag(nonce, Aad::from(aad), tag, ciphertext, 0..)
            .map(drop)
            .map_err(|_| OpenError)
    }

    #[inline]
    pub(crate) const fn aead(&self) -> Aead {
        self.aead
    }
}

impl Drop for Cipher {
    fn drop(&mut self) {
        // A ring key owns nothing, so nothing is lost by not dropping it.
        const { assert!(!std::mem::needs_drop::<LessSafeKey>()) };
        self.key.zeroize();
    }
}

fn nonce_of(nonce: &[u8]) -> Option<Nonce> {
    Nonce::try_assume_unique_for_key(nonce).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::aws_lc;

    proptest! {
        #[test]
        fn agrees_with_aws_lc(
            key in any::<[u8; 32]>(),
            nonce in any::<[u8; 12]>(),
            plaintext in proptest::collection::vec(any::<u8>(), 0..3000),
            aad in proptest::collection::vec(any::<u8>(), 0..40),
            flip in any::<usize>(),
        ) {
            for aead in [Aead::Aes128Gcm, Aead::Aes256Gcm] {
                let key = &key[..aead.key_len()];
                let (ours, theirs) = (Cipher::new(aead, key).unwrap(), aws_lc::Cipher::new(aead, key));
                let (mut a, mut b) = (plaintext.clone(), plaintext.clone());
                let (mut tag_a, mut tag_b) = ([0; TAG_LEN], [0; TAG_LEN]);
                ours.seal_in_place(&nonce, &aad, &mut a, &mut tag_a);
                theirs.seal_in_place(&nonce, &aad, &mut b, &mut tag_b);
                prop_assert_eq!((&a, tag_a), (&b, tag_b));
                prop_assert_eq!(ours.open_in_place(&nonce, &aad, &mut a, &tag_a), Ok(()));
                prop_assert_eq!(&a, &plaintext);
                tag_b[flip % TAG_LEN] ^= 1 << (flip / TAG_LEN % 8);
                prop_assert_eq!(ours.open_in_place(&nonce, &aad, &mut b, &tag_b), Err(OpenError));
                prop_assert!(b.iter().all(|byte| *byte == 0));
            }
        }
    }
}
