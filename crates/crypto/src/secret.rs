//! A short secret that hides and wipes itself: a pre-shared key, a master key, a derived subkey.
//!
//! It prints as `Secret(..)`, compares in constant time and is zeroed on drop. Lengths are public.

use std::fmt;

use subtle::ConstantTimeEq;
use zeroize::{Zeroize, ZeroizeOnDrop};

use crate::KEY_LEN_MAX;

/// Up to 32 bytes of key material, inline.
#[derive(Clone)]
pub struct Secret {
    /// Zero from `len` on, so that equality can look at all of it.
    bytes: [u8; KEY_LEN_MAX],
    len: u8,
}

impl Secret {
    /// Copies `bytes`; the caller wipes its own copy.
    ///
    /// # Panics
    /// When `bytes` is longer than [`KEY_LEN_MAX`].
    pub fn new(bytes: &[u8]) -> Self {
        assert!(bytes.len() <= KEY_LEN_MAX, "secret length");
        let mut secret = Self { bytes: [0; KEY_LEN_MAX], len: bytes.len() as u8 };
        secret.bytes[..bytes.len()].copy_from_slice(bytes);
        secret
    }

    /// The secret itself; do not log or keep it.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len()]
    }

    /// Number of bytes.
    pub fn len(&self) -> usize {
        self.len.into()
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl Zeroize for Secret {
    fn zeroize(&mut self) {
        self.bytes.zeroize();
        self.len.zeroize();
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        self.zeroize();
    }
}

impl ZeroizeOnDrop for Secret {}

impl PartialEq for Secret {
    fn eq(&self, other: &Self) -> bool {
        let same = self.bytes.ct_eq(&other.bytes) & self.len.ct_eq(&other.len);
        same.into()
    }
}

impl Eq for Secret {}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_shows_nothing() {
        assert_eq!(format!("{:?}", Secret::new(b"hunter2")), "Secret(..)");
        assert_eq!(format!("{:#?}", Secret::new(&[])), "Secret(..)");
    }

    #[test]
    fn compares_content_and_length() {
        let secret = Secret::new(b"abc");
        assert_eq!(secret, secret.clone());
        assert_ne!(secret, Secret::new(b"abd"));
        assert_ne!(secret, Secret::new(b"abc\0"));
        assert_ne!(secret, Secret::new(b"ab"));
    }

    #[test]
    fn holds_0_to_32_bytes() {
        for len in 0..=KEY_LEN_MAX {
            let bytes = vec![7; len];
            let secret = Secret::new(&bytes);
            assert_eq!(secret.as_bytes(), bytes);
            assert_eq!(secret.len(), len);
            assert_eq!(secret.is_empty(), len == 0);
        }
    }

    #[test]
    #[should_panic(expected = "secret length")]
    fn refuses_33_bytes() {
        Secret::new(&[0; 33]);
    }

    #[test]
    fn wiping_leaves_no_byte() {
        let mut secret = Secret::new(&[0xaa; 32]);
        secret.zeroize();
        assert_eq!(secret.bytes, [0; 32]);
        assert_eq!(secret.len, 0);
    }

    #[test]
    #[allow(unsafe_code, reason = "looks at the storage of a dropped value")]
    fn dropping_wipes_the_storage() {
        let mut storage = std::mem::MaybeUninit::new(Secret::new(&[0xaa; 32]));
        // SAFETY: `storage` holds an initialised value that is dropped once.
        unsafe { storage.assume_init_drop() };
        let bytes = storage.as_ptr().cast::<[u8; size_of::<Secret>()]>();
        // SAFETY: a Secret is 33 bytes without padding, all initialised, and they are still ours.
        let bytes = unsafe { bytes.read_volatile() };
        assert_eq!(bytes, [0; size_of::<Secret>()]);
    }
}
