//! In-place AEAD, key derivation, single-block AES, randomness and secrets.
//!
//! The base layer of every codec. Two backends share one API: `aws-lc` (default) calls AWS-LC and
//! is the fast one; `small` is pure Rust for targets without a C compiler or with a tight size
//! budget. When both features are on, `aws-lc` is used. The reduced-round ChaCha ciphers come from
//! RustCrypto in both.
//!
//! Contract: every type is inline, so that it lives in a slab without owning heap memory; no call
//! allocates, the C code included, once [`prepare_thread`] ran on the thread. Sealing and opening
//! work in the caller's buffer and add no copy. A wrong key or nonce length is caller misuse and
//! panics; what a peer sends can only end in [`OpenError`].
//!
//! Secrets are wiped when dropped. A move leaves the old bytes behind until the stack is reused, as
//! everywhere in Rust: keys are built where they are kept.
//!
//! Cost on one x86-64 core with AES-NI (AWS-LC): AES-256-GCM key 160 ns, record of 2 bytes 125 ns,
//! of 16 KiB 4.8 us; ChaCha20-Poly1305 37 ns, 195 ns and 7.9 us; HKDF-SHA1 500 ns; BLAKE3 subkey
//! 340 ns.
//!
//! On x86-64 with VAES but without AVX-512 AES-GCM comes from ring, see the module `vaes`.
//!
//! `unsafe` lives in the modules `aws_lc`, `sha_ni` and `vaes` alone. Not here: record framing, salts and replay windows.

#[cfg(not(any(feature = "aws-lc", feature = "small")))]
compile_error!("adit-crypto needs a backend: enable the feature `aws-lc` or `small`");

mod acceleration;
mod aead;
#[cfg(feature = "aws-lc")]
mod aws_lc;
mod block;
mod kdf;
mod random;
mod rust_crypto;
mod secret;
#[cfg(all(feature = "aws-lc", target_arch = "x86_64"))]
mod sha_ni;
#[cfg(feature = "aws-lc")]
mod short_hkdf;
#[cfg(any(test, not(feature = "aws-lc")))]
mod small;
#[cfg(all(feature = "aws-lc", target_arch = "x86_64"))]
mod vaes;
#[cfg(test)]
mod vectors;

#[cfg(feature = "aws-lc")]
use aws_lc as backend;
#[cfg(not(feature = "aws-lc"))]
use small as backend;

pub use acceleration::acceleration;
pub use aead::{Aead, AeadKey, KEY_LEN_MAX, NONCE_LEN_MAX, NonceCounter, OpenError, TAG_LEN};
pub use block::{BLOCK_LEN, BlockKey};
pub use kdf::{blake3_derive_key, blake3_identity, evp_bytes_to_key_md5, hkdf_sha1};
pub use random::{Rng, RngError};
pub use secret::Secret;

/// Allocates what the backend keeps for each thread, so that later calls allocate nothing.
///
/// AWS-LC records failures in an error queue that it allocates at the first failure in a thread;
/// without this call the first forged record would be the one that allocates. [`Rng::new`] does it
/// too, for a generator that is made on the thread that uses it.
pub fn prepare_thread() {
    backend::prepare_thread();
}
