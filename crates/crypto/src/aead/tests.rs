use proptest::prelude::*;

use super::*;
use crate::vectors::{self, bytes, hex, text};

const ALL: [Aead; 9] = [
    Aead::Aes128Gcm,
    Aead::Aes192Gcm,
    Aead::Aes256Gcm,
    Aead::ChaCha20Poly1305,
    Aead::XChaCha20Poly1305,
    Aead::ChaCha12Poly1305,
    Aead::ChaCha8Poly1305,
    Aead::XChaCha12Poly1305,
    Aead::XChaCha8Poly1305,
];

/// Seals `plain` and expects `sealed` (ciphertext and tag), then opens it again.
fn check(key: &AeadKey, nonce: &[u8], aad: &[u8], plain: &[u8], sealed: &[u8]) {
    let (cipher, expected_tag) = sealed.split_last_chunk::<TAG_LEN>().unwrap();
    let mut data = plain.to_vec();
    let mut tag = [0; TAG_LEN];
    key.seal_in_place(nonce, aad, &mut data, &mut tag);
    assert_eq!(data, cipher, "{:?}", key.aead());
    assert_eq!(tag, *expected_tag, "{:?}", key.aead());
    assert_eq!(key.open_in_place(nonce, aad, &mut data, &tag), Ok(()));
    assert_eq!(data, plain, "{:?}", key.aead());
}

/// McGrew and Viega, "The Galois/Counter Mode of Operation", test cases 4, 10 and 16.
#[test]
fn aes_gcm_matches_its_specification() {
    let key = hex("feffe9928665731c6d6a8f9467308308feffe9928665731c6d6a8f9467308308");
    let nonce = hex("cafebabefacedbaddecaf888");
    let aad = hex("feedfacedeadbeeffeedfacedeadbeefabaddad2");
    let plain = hex("d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a721c3c0c95956\
                     809532fcf0e2449a6b525b16aedf5aa0de657ba637b39");
    for (aead, sealed) in [
        (
            Aead::Aes128Gcm,
            "42831ec2217774244b7221b784d0d49ce3aa212f2c02a4e035c17e2329aca12e21d514b25466931c7d8f6a5a\
             ac84aa051ba30b396a0aac973d58e0915bc94fbc3221a5db94fae95ae7121a47",
        ),
        (
            Aead::Aes192Gcm,
            "3980ca0b3c00e841eb06fac4872a2757859e1ceaa6efd984628593b40ca1e19c7d773d00c144c525ac619d18\
             c84a3f4718e2448b2fe324d9ccda27102519498e80f1478f37ba55bd6d27618c",
        ),
        (
            Aead::Aes256Gcm,
            "522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa8cb08e48590dbb3da7b08b10\
             56828838c5f61e6393ba7a0abcc9f66276fc6ece0f4e1768cddf8853bb2d551b",
        ),
    ] {
        let key = AeadKey::new(aead, &key[..aead.key_len()]);
        check(&key, &nonce, &aad, &plain, &hex(sealed));
    }
}

/// RFC 8439 §2.8.2 and draft-irtf-cfrg-xchacha-03 §A.3.1, which share all but the nonce.
#[test]
fn chacha20_poly1305_matches_its_specifications() {
    let key: Vec<u8> = (0x80..0xa0).collect();
    let aad = hex("50515253c0c1c2c3c4c5c6c7");
    let plain = b"Ladies and Gentlemen of the class of '99: If I could offer you only one tip for \
                  the future, sunscreen would be it.";
    for (aead, nonce, sealed) in [
        (
            Aead::ChaCha20Poly1305,
            "070000004041424344454647",
            "d31a8d34648e60db7b86afbc53ef7ec2a4aded51296e08fea9e2b5a736ee62d63dbea45e8ca9671282fafb69\
             da92728b1a71de0a9e060b2905d6a5b67ecd3b3692ddbd7f2d778b8c9803aee328091b58fab324e4fad67594\
             5585808b4831d7bc3ff4def08e4b7a9de576d26586cec64b61161ae10b594f09e26a7e902ecbd0600691",
        ),
        (
            Aead::XChaCha20Poly1305,
            "404142434445464748494a4b4c4d4e4f5051525354555657",
            "bd6d179d3e83d43b9576579493c0e939572a1700252bfaccbed2902c21396cbb731c7f1b0b4aa6440bf3a82f\
             4eda7e39ae64c6708c54c216cb96b72e1213b4522f8c9ba40db5d945b11b69b982c1bb9e3f3fac2bc369488f\
             76b2383565d3fff921f9664c97637da9768812f615c68b13b52ec0875924c1c7987947deafd8780acf49",
        ),
    ] {
        check(&AeadKey::new(aead, &key), &hex(nonce), &aad, plain, &hex(sealed));
    }
}

/// draft-strombergson-chacha-test-vectors, TC1 with a 256-bit key, second keystream block: with an
/// all-zero key and nonce it is what encrypts the first 64 bytes. The tags and the extended nonces
/// are checked by the shared vectors.
#[test]
fn reduced_round_chacha_matches_published_keystream() {
    for (aead, keystream) in [
        (
            Aead::ChaCha12Poly1305,
            "0bd58841203e74fe86fc71338ce0173dc628ebb719bdcbcc151585214cc089b4\
             42258dcda14cf111c602b8971b8cc843e91e46ca905151c02744a6b017e69316",
        ),
        (
            Aead::ChaCha8Poly1305,
            "d2aefa0deaa5c151bf0adb6c01f2a5adc0fd581259f9a2aadcf20f8fd566a26b\
             5032ec38bbc5da98ee0c6f568b872a65a08abf251deb21bb4b56e5d8821e68aa",
        ),
    ] {
        let mut data = [0; 64];
        AeadKey::new(aead, &[0; 32]).seal_in_place(&[0; 12], &[], &mut data, &mut [0; TAG_LEN]);
        assert_eq!(data.as_slice(), hex(keystream), "{aead:?}");
    }
}

fn stream_aead(method: &str) -> Aead {
    match method.strip_prefix("2022-blake3-").unwrap_or(method) {
        "aes-128-gcm" => Aead::Aes128Gcm,
        "aes-192-gcm" => Aead::Aes192Gcm,
        "aes-256-gcm" => Aead::Aes256Gcm,
        "chacha20-ietf-poly1305" | "chacha20-poly1305" => Aead::ChaCha20Poly1305,
        "xchacha20-ietf-poly1305" => Aead::XChaCha20Poly1305,
        "chacha8-poly1305" => Aead::ChaCha8Poly1305,
        "chacha12-poly1305" => Aead::ChaCha12Poly1305,
        other => panic!("unknown method {other}"),
    }
}

#[test]
fn seals_and_opens_every_call_of_the_sip022_tcp_vectors() {
    let mut calls = 0;
    for case in vectors::cases("sip022_tcp") {
        let aead = stream_aead(text(&case, "method"));
        let key = AeadKey::new(aead, &bytes(&case, "session_subkey"));
        let mut counter = NonceCounter::new();
        for call in case["aead_calls"].as_array().into_iter().flatten() {
            let nonce = bytes(call, "nonce");
            assert_eq!(counter.next(aead, &mut [0; NONCE_LEN_MAX]), nonce);
            check(&key, &nonce, &[], &bytes(call, "plaintext"), &bytes(call, "ciphertext"));
            calls += 1;
        }
    }
    assert!(calls >= 60, "{calls}");
}

#[test]
fn seals_and_opens_every_chunk_of_the_sip004_tcp_vectors() {
    let mut chunks = 0;
    for case in vectors::cases("sip004_tcp") {
        let aead = stream_aead(text(&case, "method"));
        let key = AeadKey::new(aead, &bytes(&case, "subkey"));
        let mut counter = NonceCounter::new();
        for chunk in case["chunks"].as_array().into_iter().flatten() {
            let payload = bytes(chunk, "payload");
            let len = u16::try_from(payload.len()).unwrap().to_be_bytes();
            for (nonce, plain, sealed) in [
                ("length_nonce", len.as_slice(), "length_ct"),
                ("payload_nonce", payload.as_slice(), "payload_ct"),
            ] {
                let nonce = bytes(chunk, nonce);
                assert_eq!(counter.next(aead, &mut [0; NONCE_LEN_MAX]), nonce);
                check(&key, &nonce, &[], plain, &bytes(chunk, sealed));
            }
            chunks += 1;
        }
    }
    assert!(chunks >= 25, "{chunks}");
}

/// The whole body under the pre-shared key with a 24-byte nonce: 20, 12 and 8 rounds.
#[test]
fn opens_and_seals_the_extended_nonce_packets_of_the_sip022_udp_vectors() {
    let mut packets = 0;
    for case in vectors::cases("sip022_udp") {
        let aead = match text(&case, "method") {
            "2022-blake3-chacha20-poly1305" => Aead::XChaCha20Poly1305,
            "2022-blake3-chacha12-poly1305" => Aead::XChaCha12Poly1305,
            "2022-blake3-chacha8-poly1305" => Aead::XChaCha8Poly1305,
            _ => continue,
        };
        let key = AeadKey::new(aead, &bytes(&case, "psk_hex"));
        let packet = bytes(&case, "packet");
        let (nonce, sealed) = packet.split_at(aead.nonce_len());
        assert_eq!(nonce, bytes(&case, "nonce"));
        check(&key, nonce, &[], &bytes(&case, "body"), sealed);
        packets += 1;
    }
    assert!(packets >= 12, "{packets}");
}

#[test]
fn opens_and_seals_the_bodies_of_the_sip022_udp_vectors() {
    let mut packets = 0;
    for case in vectors::cases("sip022_udp") {
        let Some(sealed) = case["body_ct"].as_str() else {
            continue;
        };
        let key = AeadKey::new(stream_aead(text(&case, "method")), &bytes(&case, "session_subkey"));
        check(&key, &bytes(&case, "body_nonce"), &[], &bytes(&case, "body"), &hex(sealed));
        packets += 1;
    }
    assert!(packets >= 8, "{packets}");
}

#[test]
fn a_refused_record_is_zeroed() {
    for aead in ALL {
        let key = AeadKey::new(aead, &vec![1; aead.key_len()]);
        let nonce = vec![2; aead.nonce_len()];
        for len in [0, 1, 15, 16, 17, 255, 256, 257, 16 * 1024] {
            let mut data = vec![0x55; len];
            let opened = key.open_in_place(&nonce, &[], &mut data, &[0; TAG_LEN]);
            assert_eq!(opened, Err(OpenError), "{aead:?}");
            assert_eq!(data, vec![0; len], "{aead:?}");
        }
    }
}

#[test]
fn keys_survive_moves() {
    let nonce = [9; NONCE_LEN_MAX];
    let seal = |key: &AeadKey, data: &mut [u8]| {
        let mut tag = [0; TAG_LEN];
        key.seal_in_place(&nonce[..key.aead().nonce_len()], b"aad", data, &mut tag);
        tag
    };
    for aead in ALL {
        let secrets: Vec<Vec<u8>> = (0..40_u8).map(|n| vec![n; aead.key_len()]).collect();
        let expected: Vec<_> = secrets
            .iter()
            .map(|secret| {
                let mut data = [3; 1000];
                let tag = seal(&AeadKey::new(aead, secret), &mut data);
                (data, tag)
            })
            .collect();

        // Grows from one by doubling: every key is moved several times.
        let mut keys: Vec<AeadKey> = Vec::with_capacity(1);
        for secret in &secrets {
            keys.push(AeadKey::new(aead, secret));
        }
        // Out of the vector, through odd addresses around a byte, and back in the other order.
        let mut moved: Vec<(u8, Option<AeadKey>)> =
            keys.into_iter().map(|key| (0, Some(key))).collect();
        let len = moved.len();
        for index in 0..len / 2 {
            let (left, right) = moved.split_at_mut(len / 2);
            std::mem::swap(&mut left[index].1, &mut right[len / 2 - 1 - index].1);
        }
        let mut boxed: Vec<Box<AeadKey>> =
            moved.into_iter().filter_map(|(_, key)| key.map(Box::new)).collect();
        boxed.reverse();

        for (key, (sealed, tag)) in boxed.iter().zip(&expected) {
            let mut data = [3; 1000];
            assert_eq!(seal(key, &mut data), *tag, "{aead:?}");
            assert_eq!(data, *sealed, "{aead:?}");
            let nonce = &nonce[..aead.nonce_len()];
            assert_eq!(key.open_in_place(nonce, b"aad", &mut data, tag), Ok(()));
            assert_eq!(data, [3; 1000], "{aead:?}");
        }
    }
}

#[test]
fn one_key_serves_several_threads() {
    for aead in ALL {
        let key = AeadKey::new(aead, &vec![1; aead.key_len()]);
        let sealed = || {
            let mut data = [3; 5000];
            let mut tag = [0; TAG_LEN];
            for _ in 0..20 {
                key.seal_in_place(&vec![2; aead.nonce_len()], &[], &mut data, &mut tag);
            }
            (data, tag)
        };
        let expected = sealed();
        std::thread::scope(|scope| {
            let threads = [(); 3].map(|()| scope.spawn(sealed));
            for thread in threads {
                assert_eq!(thread.join().unwrap(), expected);
            }
        });
    }
}

#[test]
#[should_panic(expected = "key length of Aes256Gcm")]
fn a_short_key_is_caller_misuse() {
    AeadKey::new(Aead::Aes256Gcm, &[0; 16]);
}

#[test]
#[should_panic(expected = "nonce length")]
fn a_long_nonce_is_caller_misuse_on_seal() {
    let key = AeadKey::new(Aead::Aes128Gcm, &[0; 16]);
    key.seal_in_place(&[0; 24], &[], &mut [], &mut [0; TAG_LEN]);
}

#[test]
#[should_panic(expected = "nonce length")]
fn a_short_nonce_is_caller_misuse_on_open() {
    let key = AeadKey::new(Aead::XChaCha8Poly1305, &[0; 32]);
    let _ = key.open_in_place(&[0; 12], &[], &mut [], &[0; TAG_LEN]);
}

#[test]
fn the_counter_is_little_endian_and_carries() {
    let mut buf = [0xff; NONCE_LEN_MAX];
    let mut counter = NonceCounter::new();
    for expected in 0..=300_u64 {
        let nonce = counter.next(Aead::Aes128Gcm, &mut buf);
        assert_eq!(nonce[..8], expected.to_le_bytes());
        assert_eq!(nonce[8..], [0; 4]);
    }
    for (value, expected) in [
        (0xff_u64, "ff00000000000000"),
        (0x100, "0001000000000000"),
        (0xffff_ffff, "ffffffff00000000"),
        (0x1_0000_0000, "0000000001000000"),
        (u64::MAX - 1, "feffffffffffffff"),
    ] {
        counter.next = value;
        let nonce = counter.next(Aead::XChaCha20Poly1305, &mut buf);
        assert_eq!(nonce[..8], hex(expected));
        assert_eq!(nonce[8..], [0; 16]);
    }
}

#[test]
#[should_panic(expected = "2^64 records")]
fn the_counter_never_wraps() {
    let mut counter = NonceCounter { next: u64::MAX };
    counter.next(Aead::Aes128Gcm, &mut [0; NONCE_LEN_MAX]);
}

/// A cipher, a key and nonce of its length, associated data and a plaintext.
fn record() -> impl Strategy<Value = (Aead, Vec<u8>, Vec<u8>, Vec<u8>, Vec<u8>)> {
    (
        proptest::sample::select(ALL.as_slice()),
        any::<[u8; KEY_LEN_MAX]>(),
        any::<[u8; NONCE_LEN_MAX]>(),
        proptest::collection::vec(any::<u8>(), 0..40),
        proptest::collection::vec(any::<u8>(), 0..1200),
    )
        .prop_map(|(aead, key, nonce, aad, plain)| {
            let key = key[..aead.key_len()].to_vec();
            let nonce = nonce[..aead.nonce_len()].to_vec();
            (aead, key, nonce, aad, plain)
        })
}

proptest! {
    #[test]
    fn any_flipped_bit_is_refused(
        (aead, key, nonce, aad, mut data) in record(),
        at in any::<proptest::sample::Index>(),
        bit in 0..8_u8,
    ) {
        let mut tag = [0; TAG_LEN];
        AeadKey::new(aead, &key).seal_in_place(&nonce, &aad, &mut data, &mut tag);

        let mut parts = [key, nonce, aad, data, tag.to_vec()];
        let total = parts.iter().map(Vec::len).sum();
        let mut at = at.index(total);
        for part in &mut parts {
            if let Some(byte) = part.get_mut(at) {
                *byte ^= 1 << bit;
                break;
            }
            at -= part.len();
        }
        let [key, nonce, aad, mut data, tag] = parts;
        let tag: [u8; TAG_LEN] = tag.try_into().unwrap();
        let opened = AeadKey::new(aead, &key).open_in_place(&nonce, &aad, &mut data, &tag);
        prop_assert_eq!(opened, Err(OpenError));
        prop_assert!(data.iter().all(|&byte| byte == 0));
    }

    #[test]
    fn what_was_sealed_opens((aead, key, nonce, aad, plain) in record()) {
        let key = AeadKey::new(aead, &key);
        prop_assert_eq!(key.aead(), aead);
        let mut data = plain.clone();
        let mut tag = [0; TAG_LEN];
        key.seal_in_place(&nonce, &aad, &mut data, &mut tag);
        prop_assert_eq!(key.open_in_place(&nonce, &aad, &mut data, &tag), Ok(()));
        prop_assert_eq!(data, plain);
    }
}
