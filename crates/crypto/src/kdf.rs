//! Key derivation: what turns a password or a pre-shared key and a salt into a cipher key.
//!
//! [`evp_bytes_to_key_md5`] and [`hkdf_sha1`] serve SIP004, the BLAKE3 pair serves SIP022 and
//! SIP023. The caller owns every output and wipes it; intermediate state is wiped here.

use md5::{Digest, Md5};
use zeroize::Zeroize;

use crate::backend;

/// Longest output of HKDF with a 20-byte digest (RFC 5869 §2.3).
const HKDF_SHA1_LEN_MAX: usize = 255 * 20;

/// HKDF-SHA1 (RFC 5869), extract and expand: fills `out` from `key`.
///
/// # Panics
/// When `out` is longer than 5,100 bytes.
pub fn hkdf_sha1(key: &[u8], salt: &[u8], info: &[u8], out: &mut [u8]) {
    assert!(out.len() <= HKDF_SHA1_LEN_MAX, "HKDF output length");
    backend::hkdf_sha1(key, salt, info, out);
}

/// OpenSSL's `EVP_BytesToKey` with MD5, one iteration and no salt: fills `out` from `password`.
///
/// It stretches nothing: whoever has one record can try passwords at the speed of MD5. It exists
/// because SIP004 defines it, and runs when configuration is read.
pub fn evp_bytes_to_key_md5(password: &[u8], out: &mut [u8]) {
    let mut digest = [0; 16];
    for (index, chunk) in out.chunks_mut(digest.len()).enumerate() {
        let mut md5 = Md5::new();
        if index > 0 {
            md5.update(digest);
        }
        md5.update(password);
        md5.finalize_into((&mut digest).into());
        chunk.copy_from_slice(&digest[..chunk.len()]);
    }
    digest.zeroize();
}

/// BLAKE3 in its key derivation mode: fills `out` from the concatenated parts of `material`.
pub fn blake3_derive_key(context: &str, material: &[&[u8]], out: &mut [u8]) {
    let mut hasher = blake3::Hasher::new_derive_key(context);
    for part in material {
        hasher.update(part);
    }
    let mut reader = hasher.finalize_xof();
    reader.fill(out);
    reader.zeroize();
    hasher.zeroize();
}

/// The name under which a server finds a pre-shared key: the first 16 bytes of its plain BLAKE3
/// hash (SIP023).
pub fn blake3_identity(psk: &[u8]) -> [u8; 16] {
    let hash = blake3::hash(psk);
    *hash.as_bytes().first_chunk().expect("a hash has 32 bytes")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vectors::{self, bytes, hex};

    /// RFC 5869, appendices A.4 and A.6 (empty salt and info).
    #[test]
    fn hkdf_sha1_matches_rfc_5869() {
        let mut out = [0; 42];
        hkdf_sha1(
            &[0x0b; 11],
            &hex("000102030405060708090a0b0c"),
            &hex("f0f1f2f3f4f5f6f7f8f9"),
            &mut out,
        );
        assert_eq!(
            out.as_slice(),
            hex(
                "085a01ea1b10f36933068b56efa5ad81a4f14b822f5b091568a9cdd4f155fda2c22e422478d305f3f896"
            )
        );
        hkdf_sha1(&[0x0b; 22], &[], &[], &mut out);
        assert_eq!(
            out.as_slice(),
            hex(
                "0ac1af7002b3d761d1e55298da9d0506b9ae52057220a306e07b6b87e8df21d0ea00033de03984d34918"
            )
        );
    }

    #[test]
    fn hkdf_sha1_fills_5100_bytes_and_no_more() {
        let mut out = vec![0; HKDF_SHA1_LEN_MAX];
        hkdf_sha1(b"key", b"salt", b"info", &mut out);
        assert!(out[HKDF_SHA1_LEN_MAX - 20..].iter().any(|&b| b != 0));
    }

    #[test]
    #[should_panic(expected = "HKDF output length")]
    fn hkdf_sha1_refuses_5101_bytes() {
        hkdf_sha1(b"key", b"salt", b"info", &mut [0; HKDF_SHA1_LEN_MAX + 1]);
    }

    #[test]
    fn hkdf_sha1_matches_the_vectors() {
        let cases = vectors::cases("hkdf_sha1");
        assert!(!cases.is_empty());
        for case in cases {
            let expected = bytes(&case, "subkey");
            let mut out = vec![0; expected.len()];
            hkdf_sha1(
                &bytes(&case, "key"),
                &bytes(&case, "salt"),
                &bytes(&case, "info_hex"),
                &mut out,
            );
            assert_eq!(out, expected, "{}", case["method"]);
        }
    }

    #[test]
    fn sip004_passwords_and_salts_lead_to_the_subkeys() {
        let cases = vectors::cases("sip004_tcp");
        assert!(!cases.is_empty());
        for case in cases {
            let mut key = bytes(&case, "key");
            let expected_key = key.clone();
            evp_bytes_to_key_md5(vectors::text(&case, "password").as_bytes(), &mut key);
            assert_eq!(key, expected_key, "{}", case["method"]);
            let mut subkey = vec![0; key.len()];
            hkdf_sha1(&key, &bytes(&case, "salt"), b"ss-subkey", &mut subkey);
            assert_eq!(subkey, bytes(&case, "subkey"), "{}", case["method"]);
        }
    }

    #[test]
    fn evp_bytes_to_key_matches_the_vectors() {
        let cases = vectors::cases("evp_bytes_to_key_md5");
        assert!(!cases.is_empty());
        for case in cases {
            let mut key = bytes(&case, "key");
            let expected = key.clone();
            assert_eq!(Some(key.len() as u64), case["key_len"].as_u64());
            key.fill(0);
            evp_bytes_to_key_md5(&bytes(&case, "password_hex"), &mut key);
            assert_eq!(key, expected, "{}", case["password"]);
        }
    }

    #[test]
    fn blake3_derive_key_matches_the_vectors_however_the_material_is_split() {
        let cases = vectors::cases("blake3_derive_key");
        assert!(!cases.is_empty());
        for case in cases {
            let material = bytes(&case, "material");
            let expected = bytes(&case, "out");
            for cut in 0..=material.len() {
                let (psk, salt) = material.split_at(cut);
                let mut out = vec![0; expected.len()];
                blake3_derive_key(vectors::text(&case, "context"), &[psk, salt], &mut out);
                assert_eq!(out, expected, "{}", case["method"]);
            }
        }
    }

    /// The first 16 bytes of the published BLAKE3 vector for an empty input.
    #[test]
    fn blake3_identity_is_the_plain_hash() {
        assert_eq!(blake3_identity(&[]).as_slice(), hex("af1349b9f5f9a1a6a0404dea36dcc949"));
    }
}
