//! The AWS-LC backend: the only module of this crate with `unsafe`.
//!
//! It exposes the safe pieces that the rest of the crate calls and keeps every raw pointer inside.
//! AWS-LC copes with any length given here; lengths that it would refuse are checked by the
//! callers, so that a refusal means forged data on open and a bug anywhere else.
//!
//! # What a bitwise move may do to `EVP_AEAD_CTX`
//! Read in aws-lc-sys 0.47.0 (`cipher/e_aes.c`, `cipher_extra/e_chacha20poly1305.c`,
//! `cipher/aead.c`, `modes/internal.h`): `aead` points to a static method table. The AES-GCM state
//! is an `AES_KEY` and a `GCM128_KEY` (table, function pointers, flags), the ChaCha20 state is the
//! key. None has a pointer into itself or to the heap, AWS-LC's own copy of these contexts is a
//! `memcpy` (`aead_ctx_copy_state_trivial`), and none uses `state_offset`, the field with which
//! other AEADs remember the address modulo 16. [`Cipher`] has an alignment of 16 nevertheless, so
//! that no move changes that.
//!
//! # Wiping
//! `EVP_AEAD_CTX_cleanup` wipes nothing for these AEADs; [`Cipher`] clears its own storage.

#![allow(unsafe_code, reason = "FFI: AWS-LC has no allocation-free safe wrapper")]

use std::mem::MaybeUninit;
use std::ptr;

use aws_lc_sys::{
    AES_KEY, AES_decrypt, AES_encrypt, AES_set_decrypt_key, AES_set_encrypt_key, ERR_clear_error,
    EVP_AEAD, EVP_AEAD_CTX, EVP_AEAD_CTX_cleanup, EVP_AEAD_CTX_init, EVP_AEAD_CTX_open_gather,
    EVP_AEAD_CTX_seal_scatter, EVP_aead_aes_128_gcm, EVP_aead_aes_192_gcm, EVP_aead_aes_256_gcm,
    EVP_aead_chacha20_poly1305, EVP_aead_xchacha20_poly1305, EVP_sha1, HKDF, OPENSSL_cleanse,
    SHA_CTX, SHA1_Init, SHA1_Transform,
};
use zeroize::Zeroize;

use crate::{Aead, BLOCK_LEN, OpenError, TAG_LEN, short_hkdf};

/// Allocates the error queue of this thread; a refused record would do it otherwise.
pub(crate) fn prepare_thread() {
    // SAFETY: takes no argument and touches only the calling thread's queue.
    unsafe { ERR_clear_error() }
}

/// A cipher with its expanded key, wiped on drop.
#[repr(C, align(16))]
pub(crate) struct Cipher {
    /// Initialised for `aead` from construction to drop.
    ctx: EVP_AEAD_CTX,
    aead: Aead,
}

// SAFETY: the raw pointer in `ctx` is to a static, constant method table. The state has no thread
// affinity (see the module docs).
unsafe impl Send for Cipher {}

// SAFETY: seal and open take a `const` context, and `openssl/aead.h` lists these five AEADs as safe
// to use from several threads on one context.
unsafe impl Sync for Cipher {}

impl Cipher {
    /// Expands a key whose length was checked, for a cipher that has all its rounds.
    pub(crate) fn new(aead: Aead, key: &[u8]) -> Self {
        let method = method(aead);
        let mut ctx = MaybeUninit::<EVP_AEAD_CTX>::zeroed();
        // SAFETY: `ctx` is writable memory of the right type and is all zero, as a fresh context
        // has to be; `method` is a static table; `key` is readable for the length given; a null
        // engine is the documented default. Nothing of these is kept but `method`.
        let ok = unsafe {
            EVP_AEAD_CTX_init(
                ctx.as_mut_ptr(),
                method,
                key.as_ptr(),
                key.len(),
                TAG_LEN,
                ptr::null_mut(),
            )
        };
        assert_eq!(ok, 1, "AWS-LC takes a key of the right length");
        // SAFETY: all bytes were zeroed, which is valid for every field (null pointer, integers, a
        // union of plain data), and the call above left valid values in them.
        let ctx = unsafe { ctx.assume_init() };
        Self { ctx, aead }
    }

    #[inline]
    pub(crate) fn seal_in_place(
        &self,
        nonce: &[u8],
        aad: &[u8],
        plaintext: &mut [u8],
        tag: &mut [u8; TAG_LEN],
    ) {
        let len = plaintext.len();
        let data = plaintext.as_mut_ptr();
        let mut tag_len = 0;
        // SAFETY: `self.ctx` is initialised. `data` is readable and writable for `len` bytes, input
        // and output are the same pointer, as the contract for in-place use asks. `tag` is writable
        // for TAG_LEN bytes and, being a separate `&mut`, overlaps nothing. `nonce` and `aad` are
        // readable for the lengths given. There is no extra input: null and 0.
        let ok = unsafe {
            EVP_AEAD_CTX_seal_scatter(
                &raw const self.ctx,
                data,
                tag.as_mut_ptr(),
                &raw mut tag_len,
                TAG_LEN,
                nonce.as_ptr(),
                nonce.len(),
                data,
                len,
                ptr::null(),
                0,
                aad.as_ptr(),
                aad.len(),
            )
        };
        assert!(ok == 1 && tag_len == TAG_LEN, "plaintext is longer than the cipher allows");
    }

    #[inline]
    pub(crate) fn open_in_place(
        &self,
        nonce: &[u8],
        aad: &[u8],
        ciphertext: &mut [u8],
        tag: &[u8; TAG_LEN],
    ) -> Result<(), OpenError> {
        let len = ciphertext.len();
        let data = ciphertext.as_mut_ptr();
        // SAFETY: `self.ctx` is initialised. `data` is readable and writable for `len` bytes, input
        // and output are the same pointer, as the contract for in-place use asks. `tag`, `nonce`
        // and `aad` are readable for the lengths given.
        let ok = unsafe {
            EVP_AEAD_CTX_open_gather(
                &raw const self.ctx,
                data,
                nonce.as_ptr(),
                nonce.len(),
                data,
                len,
                tag.as_ptr(),
                TAG_LEN,
                aad.as_ptr(),
                aad.len(),
            )
        };
        if ok == 1 { Ok(()) } else { Err(OpenError) }
    }

    #[inline]
    pub(crate) fn aead(&self) -> Aead {
        self.aead
    }
}

impl Drop for Cipher {
    fn drop(&mut self) {
        // SAFETY: `ctx` is initialised and is not used again after this call.
        unsafe { EVP_AEAD_CTX_cleanup(&raw mut self.ctx) };
        // SAFETY: `ctx` is writable for its size, and all zero is a valid value of it.
        unsafe { OPENSSL_cleanse((&raw mut self.ctx).cast(), size_of::<EVP_AEAD_CTX>()) };
    }
}

/// The method table of a cipher that has all its rounds.
fn method(aead: Aead) -> *const EVP_AEAD {
    match aead {
        // SAFETY: takes no argument and returns a static table; so do the others below.
        Aead::Aes128Gcm => unsafe { EVP_aead_aes_128_gcm() },
        // SAFETY: as above.
        Aead::Aes192Gcm => unsafe { EVP_aead_aes_192_gcm() },
        // SAFETY: as above.
        Aead::Aes256Gcm => unsafe { EVP_aead_aes_256_gcm() },
        // SAFETY: as above.
        Aead::ChaCha20Poly1305 => unsafe { EVP_aead_chacha20_poly1305() },
        // SAFETY: as above.
        Aead::XChaCha20Poly1305 => unsafe { EVP_aead_xchacha20_poly1305() },
        Aead::ChaCha8Poly1305
        | Aead::ChaCha12Poly1305
        | Aead::XChaCha8Poly1305
        | Aead::XChaCha12Poly1305 => unreachable!("reduced-round ciphers are not the backend's"),
    }
}

/// AES in both directions, wiped on drop.
pub(crate) struct Block {
    encrypt: AES_KEY,
    decrypt: AES_KEY,
}

impl Block {
    /// Expands a key whose length is known to be 16 or 32 bytes.
    pub(crate) fn new(key: &[u8]) -> Self {
        let bits = if key.len() == 16 { 128 } else { 256 };
        assert_eq!(key.len() * 8, bits as usize, "AES key length");
        let empty = AES_KEY { rd_key: [0; 60], rounds: 0 };
        let mut keyed = Self { encrypt: empty, decrypt: empty };
        // SAFETY: `key` is readable for `bits` bits and `encrypt` is writable; both are used during
        // the call only.
        let ok = unsafe { AES_set_encrypt_key(key.as_ptr(), bits, &raw mut keyed.encrypt) };
        assert_eq!(ok, 0, "AWS-LC takes an AES key of the right length");
        // SAFETY: as above, with `decrypt`.
        let ok = unsafe { AES_set_decrypt_key(key.as_ptr(), bits, &raw mut keyed.decrypt) };
        assert_eq!(ok, 0, "AWS-LC takes an AES key of the right length");
        keyed
    }

    #[inline]
    pub(crate) fn encrypt(&self, block: &mut [u8; BLOCK_LEN]) {
        let data = block.as_mut_ptr();
        // SAFETY: `data` is readable and writable for one block, and input and output may be the
        // same pointer; the key was expanded for encryption.
        unsafe { AES_encrypt(data, data, &raw const self.encrypt) }
    }

    #[inline]
    pub(crate) fn decrypt(&self, block: &mut [u8; BLOCK_LEN]) {
        let data = block.as_mut_ptr();
        // SAFETY: `data` is readable and writable for one block, and input and output may be the
        // same pointer; the key was expanded for decryption.
        unsafe { AES_decrypt(data, data, &raw const self.decrypt) }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        self.encrypt.rd_key.zeroize();
        self.decrypt.rd_key.zeroize();
    }
}

/// HKDF-SHA1 (RFC 5869); lengths were checked.
pub(crate) fn hkdf_sha1(key: &[u8], salt: &[u8], info: &[u8], out: &mut [u8]) {
    if short_hkdf::fits(key, salt, info) {
        short_hkdf::derive(key, salt, info, out);
    } else {
        general_hkdf_sha1(key, salt, info, out);
    }
}

/// The state of a SHA-1 hash, wiped on drop.
#[derive(Clone)]
pub(crate) struct Sha1(SHA_CTX);

impl Sha1 {
    pub(crate) fn new() -> Self {
        let mut ctx = MaybeUninit::<SHA_CTX>::zeroed();
        // SAFETY: the pointer is to memory of the right type; the call cannot fail.
        unsafe { SHA1_Init(ctx.as_mut_ptr()) };
        // SAFETY: numbers and bytes only, all zeroed and then initialised.
        Self(unsafe { ctx.assume_init() })
    }

    /// Takes one block.
    pub(crate) fn compress(&mut self, block: &[u8; 64]) {
        // SAFETY: the state is initialised and the pointer covers the 64 bytes that are read.
        unsafe { SHA1_Transform(&raw mut self.0, block.as_ptr()) }
    }

    /// The state as a digest: that of the message whose padding has been taken too.
    pub(crate) fn digest(&self) -> [u8; 20] {
        let mut digest = [0; 20];
        for (bytes, word) in digest.chunks_exact_mut(4).zip(self.0.h) {
            bytes.copy_from_slice(&word.to_be_bytes());
        }
        digest
    }
}

impl Drop for Sha1 {
    fn drop(&mut self) {
        // The rest was never used.
        self.0.h.zeroize();
    }
}

/// HKDF-SHA1 of any inputs.
pub(crate) fn general_hkdf_sha1(key: &[u8], salt: &[u8], info: &[u8], out: &mut [u8]) {
    // SAFETY: takes no argument and returns a static table.
    let digest = unsafe { EVP_sha1() };
    // SAFETY: `out` is writable and the inputs are readable for the lengths given; `out` is a
    // separate `&mut` and overlaps none of them; `digest` is a static table.
    let ok = unsafe {
        HKDF(
            out.as_mut_ptr(),
            out.len(),
            digest,
            key.as_ptr(),
            key.len(),
            salt.as_ptr(),
            salt.len(),
            info.as_ptr(),
            info.len(),
        )
    };
    assert_eq!(ok, 1, "HKDF fails on its output length only, which the caller checked");
}

#[cfg(test)]
mod tests;
