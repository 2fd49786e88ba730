//! The backend against the pure-Rust one, and what it leaves behind.

use proptest::prelude::*;

use super::*;
use crate::small;

const ALL: [Aead; 5] = [
    Aead::Aes128Gcm,
    Aead::Aes192Gcm,
    Aead::Aes256Gcm,
    Aead::ChaCha20Poly1305,
    Aead::XChaCha20Poly1305,
];

/// Sizes around the unit boundaries of the vector code: blocks, strides and whole records.
fn len() -> impl Strategy<Value = usize> {
    prop_oneof![
        0..=66_usize,
        200..=300_usize,
        700..=1100_usize,
        16_300..=16_500_usize,
        65_400..=65_551_usize,
    ]
}

proptest! {
    #[test]
    fn ciphers_agree_with_the_oracle(
        aead in proptest::sample::select(ALL.as_slice()),
        key in any::<[u8; 32]>(),
        nonce in any::<[u8; 24]>(),
        aad in proptest::collection::vec(any::<u8>(), 0..70),
        len in len(),
        misaligned in 0..64_usize,
    ) {
        let key = &key[..aead.key_len()];
        let nonce = &nonce[..aead.nonce_len()];
        let plain: Vec<u8> = (0..misaligned + len).map(|n| (n * 7 % 251) as u8).collect();
        let (ours, oracle) = (Cipher::new(aead, key), small::Cipher::new(aead, key));
        prop_assert_eq!(ours.aead(), oracle.aead());

        let (mut data, mut expected) = (plain.clone(), plain.clone());
        let (mut tag, mut expected_tag) = ([0; TAG_LEN], [0; TAG_LEN]);
        ours.seal_in_place(nonce, &aad, &mut data[misaligned..], &mut tag);
        oracle.seal_in_place(nonce, &aad, &mut expected[misaligned..], &mut expected_tag);
        prop_assert!(data == expected);
        prop_assert_eq!(tag, expected_tag);

        prop_assert_eq!(ours.open_in_place(nonce, &aad, &mut data[misaligned..], &tag), Ok(()));
        prop_assert_eq!(oracle.open_in_place(nonce, &aad, &mut expected[misaligned..], &tag), Ok(()));
        prop_assert!(data == plain);
        prop_assert!(expected == plain);
    }

    #[test]
    fn blocks_agree_with_the_oracle(
        key in any::<[u8; 32]>(),
        key_len in prop_oneof![Just(16_usize), Just(32)],
        block in any::<[u8; BLOCK_LEN]>(),
    ) {
        let (ours, oracle) = (Block::new(&key[..key_len]), small::Block::new(&key[..key_len]));
        let (mut data, mut expected) = (block, block);
        ours.encrypt(&mut data);
        oracle.encrypt(&mut expected);
        prop_assert_eq!(data, expected);
        ours.decrypt(&mut data);
        oracle.decrypt(&mut expected);
        prop_assert_eq!(data, block);
        prop_assert_eq!(expected, block);
    }

    #[test]
    fn hkdf_agrees_with_the_oracle(
        key in proptest::collection::vec(any::<u8>(), 0..100),
        salt in proptest::collection::vec(any::<u8>(), 0..100),
        info in proptest::collection::vec(any::<u8>(), 0..30),
        len in 0..200_usize,
    ) {
        let (mut out, mut expected) = (vec![0; len], vec![0; len]);
        hkdf_sha1(&key, &salt, &info, &mut out);
        small::hkdf_sha1(&key, &salt, &info, &mut expected);
        prop_assert_eq!(out, expected);
    }
}

#[test]
fn dropping_a_cipher_wipes_its_state() {
    for aead in ALL {
        let key: Vec<u8> = (1..=aead.key_len() as u8).collect();
        let mut storage = MaybeUninit::new(Cipher::new(aead, &key));
        // SAFETY: `storage` holds an initialised value.
        let state = unsafe { &raw const (*storage.as_ptr()).ctx.state };
        let state = state.cast::<[u8; 564]>();
        // SAFETY: the state is 564 bytes, all of them initialised: they were zeroed at the start.
        let before = unsafe { state.read_volatile() };
        assert!(before.windows(16).any(|window| window == &key[..16]), "{aead:?}");
        // SAFETY: `storage` holds an initialised value that is dropped once.
        unsafe { storage.assume_init_drop() };
        // SAFETY: as above; the storage is still ours.
        let after = unsafe { state.read_volatile() };
        assert_eq!(after, [0; 564], "{aead:?}");
    }
}

#[test]
fn dropping_a_block_key_wipes_both_directions() {
    let mut storage = MaybeUninit::new(Block::new(&[7; 32]));
    // SAFETY: `storage` holds an initialised value that is dropped once.
    unsafe { storage.assume_init_drop() };
    // SAFETY: the storage is still ours, and the fields are plain integers.
    let block = unsafe { storage.assume_init_ref() };
    assert_eq!(block.encrypt.rd_key, [0; 60]);
    assert_eq!(block.decrypt.rd_key, [0; 60]);
}
