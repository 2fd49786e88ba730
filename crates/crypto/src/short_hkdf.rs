//! HKDF-SHA1 (RFC 5869) for short inputs, over AWS-LC's SHA-1 compression function.
//!
//! SIP004 derives a key for every datagram and for each half of a connection, so this is its
//! hottest computation besides the cipher. Salt, key and info are shorter than a block there; what
//! HMAC needs then is known beforehand: two compressions to key it, and two for each message. A
//! 32-byte key takes ten of them, 0.5 us; the general function, which knows neither lengths nor
//! what it has hashed already, takes 0.8 us for the same. Where the processor hashes by itself it is
//! done in registers, see `sha_ni`.

use crate::backend::Sha1;

/// Bytes that SHA-1 takes at once.
pub(crate) const BLOCK_LEN: usize = 64;
/// Bytes of a digest.
pub(crate) const DIGEST_LEN: usize = 20;
/// Longest message behind a keyed block that needs one block more: padding takes 9 bytes.
const MESSAGE_MAX: usize = BLOCK_LEN - 9;

/// Whether [`derive()`] can serve inputs of these lengths.
pub(crate) const fn fits(key: &[u8], salt: &[u8], info: &[u8]) -> bool {
    salt.len() <= BLOCK_LEN && key.len() <= MESSAGE_MAX && DIGEST_LEN + info.len() < MESSAGE_MAX
}

/// Fills `out`, 5,100 bytes at most; the inputs fit.
pub(crate) fn derive(key: &[u8], salt: &[u8], info: &[u8], out: &mut [u8]) {
    #[cfg(target_arch = "x86_64")]
    if crate::sha_ni::derive(key, salt, info, out) {
        return;
    }
    derive_by_calls(key, salt, info, out);
}

fn derive_by_calls(key: &[u8], salt: &[u8], info: &[u8], out: &mut [u8]) {
    let mut extracted = Hmac::new(salt).digest(&[key]);
    let hmac = Hmac::new(&extracted);
    let mut last = [0; DIGEST_LEN];
    let mut previous: &[u8] = &[];
    let mut counter = 0u8;
    for chunk in out.chunks_mut(DIGEST_LEN) {
        counter += 1;
        let digest = hmac.digest(&[previous, info, &[counter]]);
        chunk.copy_from_slice(&digest[..chunk.len()]);
        last = digest;
        previous = &last;
    }
    wipe(&mut last);
    wipe(&mut extracted);
}

/// Overwrites what nobody needs any more. `zeroize` does it byte by byte, which would take longer than
/// hashing them does.
pub(crate) fn wipe(bytes: &mut [u8]) {
    bytes.fill(0);
    // So that the compiler has to write them.
    std::hint::black_box(bytes);
}

/// HMAC-SHA1 with its key hashed in: both passes begin with a block of the key alone.
struct Hmac {
    inner: Sha1,
    outer: Sha1,
}

impl Hmac {
    fn new(key: &[u8]) -> Self {
        let mut block = [0; BLOCK_LEN];
        block[..key.len()].copy_from_slice(key);
        block.iter_mut().for_each(|byte| *byte ^= 0x36);
        let mut inner = Sha1::new();
        inner.compress(&block);
        block.iter_mut().for_each(|byte| *byte ^= 0x36 ^ 0x5c);
        let mut outer = Sha1::new();
        outer.compress(&block);
        wipe(&mut block);
        Self { inner, outer }
    }

    /// The digest of a message in parts, [`MESSAGE_MAX`] bytes together at most.
    fn digest(&self, parts: &[&[u8]]) -> [u8; DIGEST_LEN] {
        let inner = finish(&self.inner, parts);
        finish(&self.outer, &[&inner])
    }
}

/// Ends a hash that has taken one block with a message that fits into another.
fn finish(keyed: &Sha1, parts: &[&[u8]]) -> [u8; DIGEST_LEN] {
    let mut block = [0; BLOCK_LEN];
    let mut len = 0;
    for part in parts {
        block[len..len + part.len()].copy_from_slice(part);
        len += part.len();
    }
    block[len] = 0x80;
    let bits = 8 * (BLOCK_LEN + len) as u64;
    block[BLOCK_LEN - 8..].copy_from_slice(&bits.to_be_bytes());
    let mut hash = keyed.clone();
    hash.compress(&block);
    wipe(&mut block);
    hash.digest()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn agrees_with_the_general_function(
            key in proptest::collection::vec(any::<u8>(), 0..=MESSAGE_MAX),
            salt in proptest::collection::vec(any::<u8>(), 0..=BLOCK_LEN),
            info in proptest::collection::vec(any::<u8>(), 0..MESSAGE_MAX - DIGEST_LEN),
            len in 0..200usize,
        ) {
            prop_assert!(fits(&key, &salt, &info));
            let (mut ours, mut general) = (vec![0; len], vec![0; len]);
            derive(&key, &salt, &info, &mut ours);
            crate::backend::general_hkdf_sha1(&key, &salt, &info, &mut general);
            prop_assert_eq!(&ours, &general);
            ours.fill(0);
            derive_by_calls(&key, &salt, &info, &mut ours);
            prop_assert_eq!(&ours, &general);
            hkdf::Hkdf::<sha1::Sha1>::new(Some(&salt), &key).expand(&info, &mut general).unwrap();
            prop_assert_eq!(&ours, &general);
        }
    }

    #[test]
    fn longer_inputs_do_not_fit() {
        let bytes = [0; BLOCK_LEN + 1];
        assert!(!fits(&bytes[..=MESSAGE_MAX], &[], &[]));
        assert!(!fits(&[], &bytes, &[]));
        assert!(!fits(&[], &[], &bytes[..MESSAGE_MAX - DIGEST_LEN]));
    }
}
