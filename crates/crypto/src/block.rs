//! One block of AES, for the headers that Shadowsocks 2022 encrypts on their own.
//!
//! A bare block cipher hides nothing but one unrepeated block. Every input here has a session id
//! and a packet counter, or is a hash; anything else belongs under [`AeadKey`](crate::AeadKey).

use crate::backend;

/// Length of an AES block.
pub const BLOCK_LEN: usize = 16;

/// An AES-128 or AES-256 key, expanded for both directions: inline, `Send`, wiped on drop.
pub struct BlockKey(backend::Block);

impl BlockKey {
    /// Expands a key of 16 or 32 bytes.
    ///
    /// # Panics
    /// When `key` has another length.
    pub fn new(key: &[u8]) -> Self {
        assert!(matches!(key.len(), 16 | 32), "AES key length");
        Self(backend::Block::new(key))
    }

    /// Encrypts one block in place.
    #[inline]
    pub fn encrypt_block(&self, block: &mut [u8; BLOCK_LEN]) {
        self.0.encrypt(block);
    }

    /// Decrypts one block in place.
    #[inline]
    pub fn decrypt_block(&self, block: &mut [u8; BLOCK_LEN]) {
        self.0.decrypt(block);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vectors::{self, hex};

    /// FIPS 197, appendices C.1 and C.3.
    #[test]
    fn matches_fips_197() {
        let plain = hex("00112233445566778899aabbccddeeff");
        for (key_len, expected) in
            [(16_u8, "69c4e0d86a7b0430d8cdb78070b4c55a"), (32, "8ea2b7ca516745bfeafc49904b496089")]
        {
            let key = BlockKey::new(&(0..key_len).collect::<Vec<_>>());
            let mut block: [u8; BLOCK_LEN] = plain.as_slice().try_into().unwrap();
            key.encrypt_block(&mut block);
            assert_eq!(block.as_slice(), hex(expected));
            key.decrypt_block(&mut block);
            assert_eq!(block.as_slice(), plain);
        }
    }

    #[test]
    fn encrypts_separate_headers_of_the_vectors() {
        let mut seen = 0;
        for case in vectors::cases("sip022_udp") {
            let Some(encrypted) = case["encrypted_separate_header"].as_str() else {
                continue;
            };
            // With identity headers the first PSK of the chain encrypts the header instead.
            if case["identity_headers"].is_array() {
                continue;
            }
            let key = BlockKey::new(&vectors::bytes(&case, "psk_hex"));
            let plain = vectors::bytes(&case, "separate_header");
            let mut block: [u8; BLOCK_LEN] = plain.as_slice().try_into().unwrap();
            key.encrypt_block(&mut block);
            assert_eq!(block.as_slice(), hex(encrypted), "{}", case["name"]);
            key.decrypt_block(&mut block);
            assert_eq!(block.as_slice(), plain, "{}", case["name"]);
            seen += 1;
        }
        assert!(seen >= 8, "{seen}");
    }

    #[test]
    #[should_panic(expected = "AES key length")]
    fn refuses_a_key_of_24_bytes() {
        BlockKey::new(&[0; 24]);
    }
}
