use data_encoding::{BASE64, BASE64_NOPAD, BASE64URL, BASE64URL_NOPAD};

use super::*;
use crate::{IDENTITY_HEADERS_MAX, KeyError};

fn psk(method: Method, seed: u8) -> Vec<u8> {
    // fb ff makes the alphabets differ, whatever the length.
    let mut key = vec![seed; method.key_len()];
    key[..3].copy_from_slice(&[0xfb, 0xff, seed]);
    key
}

fn encoded(method: Method, seed: u8) -> String {
    BASE64.encode(&psk(method, seed))
}

#[track_caller]
fn client_error(method: Method, password: &str) -> KeyError {
    let error = ClientKey::parse(method, password).err().unwrap();
    assert!(!error.to_string().is_empty());
    error
}

#[track_caller]
fn server_error(method: Method, password: &str, users: &[(&str, &str)]) -> KeyError {
    ServerKey::parse(method, password, users.iter().copied()).err().unwrap()
}

#[test]
fn both_alphabets_padded_or_not_are_one_key() {
    for method in ciphers_2022() {
        let key = psk(method, 9);
        let expected = ClientKey::parse(method, &BASE64.encode(&key)).unwrap();
        assert_eq!(expected.session().as_bytes(), key);
        assert_eq!(expected.method(), method);
        assert_eq!(expected.identity_headers().len(), 0);
        assert_ne!(BASE64.encode(&key), BASE64URL.encode(&key));
        for text in
            [BASE64_NOPAD.encode(&key), BASE64URL.encode(&key), BASE64URL_NOPAD.encode(&key)]
        {
            assert!(ClientKey::parse(method, &text).unwrap() == expected, "{text}");
            let server = ServerKey::parse(method, &text, []).unwrap();
            assert_eq!(server.identity().as_bytes(), key);
            assert_eq!(server.method(), method);
            assert!(server.users().is_empty());
        }
    }
}

#[test]
fn keys_of_another_length_are_refused_with_both_lengths() {
    for method in ciphers_2022() {
        let expected = method.key_len();
        for actual in [1, 15, 16, 17, 24, 31, 32, 33, 64].into_iter().filter(|&n| n != expected) {
            let text = BASE64.encode(&vec![7; actual]);
            let error = KeyError::Length { expected, actual };
            assert_eq!(client_error(method, &text), error);
            assert_eq!(server_error(method, &text, &[]), error);
            assert!(error.to_string().contains(&format!("{actual} bytes")));
            assert!(error.to_string().contains(&format!("exactly {expected};")));
        }
        assert_eq!(client_error(method, "===="), KeyError::Length { expected, actual: 0 });
    }
}

#[test]
fn text_that_is_not_base64_is_refused() {
    for method in ciphers_2022() {
        for text in ["foobar!", "pass word", "ключ", "QUJD RA==", "A", "-+", "=AAA", "AB=CD"] {
            assert_eq!(client_error(method, text), KeyError::NotBase64, "{text}");
            assert_eq!(server_error(method, text, &[]), KeyError::NotBase64, "{text}");
        }
        assert_eq!(client_error(method, ""), KeyError::Empty);
        assert_eq!(server_error(method, "", &[]), KeyError::Empty);
    }
}

#[test]
fn joined_keys_make_identity_headers() {
    for method in ciphers_2022() {
        let keys: Vec<String> = (1..=3).map(|seed| encoded(method, seed)).collect();
        let joined = keys.join(":");
        if !method.supports_identity() {
            assert_eq!(client_error(method, &joined), KeyError::NoIdentity);
            continue;
        }
        let key = ClientKey::parse(method, &joined).unwrap();
        assert_eq!(key.session().as_bytes(), psk(method, 3));
        let headers: Vec<_> = key.identity_headers().collect();
        assert_eq!(headers.len(), 2);
        for (i, (identity, hidden)) in headers.into_iter().enumerate() {
            assert_eq!(identity.as_bytes(), psk(method, i as u8 + 1));
            assert_eq!(*hidden, adit_crypto::blake3_identity(&psk(method, i as u8 + 2)));
        }
        let expected = method.key_len();
        for empty in [":", "::"] {
            assert_eq!(client_error(method, empty), KeyError::Length { expected, actual: 0 });
        }
        let trailing = format!("{joined}:");
        assert_eq!(client_error(method, &trailing), KeyError::Length { expected, actual: 0 });
        // An end point peels one header; it has one key.
        assert_eq!(server_error(method, &joined, &[]), KeyError::OneKey);
        let users = [("a", joined.as_str())];
        assert_eq!(server_error(method, &encoded(method, 1), &users), KeyError::OneKey);
    }
}

#[test]
fn identity_headers_have_a_limit() {
    let method = Method::Blake3Aes256Gcm;
    let joined = |n: usize| vec![encoded(method, 1); n].join(":");
    let longest = ClientKey::parse(method, &joined(IDENTITY_HEADERS_MAX + 1)).unwrap();
    assert_eq!(longest.identity_headers().len(), IDENTITY_HEADERS_MAX);
    assert_eq!(Sealer::request_head_len(&longest, adit_wire::TARGET_LEN_MAX), RECORD_HEAD_MAX);
    let error = client_error(method, &joined(IDENTITY_HEADERS_MAX + 2));
    assert_eq!(error, KeyError::TooManyIdentities);
}

#[test]
fn users_are_found_by_the_hash_of_their_key() {
    for method in ciphers_2022() {
        let names = ["anna", "ben", "carla", "dirk", "ewa"];
        let keys: Vec<String> = (10..15).map(|seed| encoded(method, seed)).collect();
        let users: Vec<(&str, &str)> =
            names.into_iter().zip(keys.iter().map(String::as_str)).collect();
        let server = ServerKey::parse(method, &encoded(method, 1), users.iter().copied());
        if !method.supports_identity() {
            assert!(server.err() == Some(KeyError::NoIdentity));
            continue;
        }
        let server = server.unwrap();
        assert_eq!(server.users().len(), 5);
        for (seed, name) in (10..).zip(names) {
            let key = psk(method, seed);
            let index = server.user_by_header(&adit_crypto::blake3_identity(&key)).unwrap();
            assert_eq!(server.users()[index].name(), name);
            assert_eq!(server.user(index).unwrap().session().as_bytes(), key);
            let session = Accepted::session(&server, u16::try_from(index).ok());
            assert_eq!(session.as_bytes(), key);
        }
        assert_eq!(server.user_by_header(&[0; 16]), None);
        assert!(server.user(5).is_none());
        assert_eq!(Accepted::session(&server, None).as_bytes(), psk(method, 1));
    }
}

#[test]
fn two_users_with_one_key_are_refused() {
    let method = Method::Blake3Aes128Gcm;
    let (key, other) = (encoded(method, 5), encoded(method, 6));
    let url = BASE64URL_NOPAD.encode(&psk(method, 5));
    let users = [("a", key.as_str()), ("b", &other), ("c", &url)];
    assert_eq!(server_error(method, &encoded(method, 1), &users), KeyError::DuplicateUser);
    let error = server_error(method, &encoded(method, 1), &[("a", "foobar!")]);
    assert_eq!(error, KeyError::NotBase64);
}

#[test]
fn a_flow_can_number_every_user() {
    let method = Method::Blake3Aes128Gcm;
    let keys: Vec<String> = (0..=1_u128 << 16).map(|n| BASE64.encode(&n.to_be_bytes())).collect();
    let parse = |n: usize| {
        ServerKey::parse(method, &encoded(method, 1), keys[..n].iter().map(|k| ("u", k.as_str())))
    };
    assert_eq!(parse(1 << 16).unwrap().users().len(), 1 << 16);
    assert!(parse((1 << 16) + 1).err() == Some(KeyError::TooManyUsers));
}

#[test]
fn sip004_and_none_have_no_users_and_any_pass_phrase() {
    for method in ciphers_sip004().chain([Method::None]) {
        let server = ServerKey::parse(method, "a:b =pass phrase:", []).unwrap();
        let client = ClientKey::parse(method, "a:b =pass phrase:").unwrap();
        assert!(server.identity() == client.session());
        assert_eq!(client.session().len(), method.key_len());
        assert_eq!(server_error(method, "x", &[("a", "b")]), KeyError::NoIdentity);
    }
    assert!(ClientKey::parse(Method::None, "").is_ok());
    assert!(ServerKey::parse(Method::None, "", []).is_ok());
}

#[test]
fn raw_keys_are_for_sip004_and_cut_to_length() {
    for method in ciphers_sip004() {
        let expected = method.key_len();
        let bytes = pattern(expected + 5);
        let key = ClientKey::from_raw(method, &BASE64URL.encode(&bytes)).unwrap();
        assert_eq!(key.session().as_bytes(), &bytes[..expected]);
        let server = ServerKey::from_raw(method, &BASE64.encode(&bytes[..expected])).unwrap();
        assert!(server.identity() == key.session());
        let short = BASE64.encode(&bytes[..expected - 1]);
        let error = KeyError::Length { expected, actual: expected - 1 };
        assert!(ClientKey::from_raw(method, &short).err() == Some(error));
        assert!(ServerKey::from_raw(method, &short).err() == Some(error));
        assert!(ClientKey::from_raw(method, "foobar!").err() == Some(KeyError::NotBase64));
    }
    for method in ciphers_2022() {
        let key = encoded(method, 1);
        assert!(ClientKey::from_raw(method, &key).err() == Some(KeyError::RawKeyFor2022));
        assert!(ServerKey::from_raw(method, &key).err() == Some(KeyError::RawKeyFor2022));
    }
}

#[test]
fn a_printable_salt_begins_with_6_to_12_characters() {
    for method in METHODS {
        let password = if method.is_2022() { encoded(method, 9) } else { "secret".to_owned() };
        let plain = ClientKey::parse(method, &password).unwrap();
        let printable = plain.clone().with_printable_salt();
        if !matches!(method, Method::ChaCha20IetfPoly1305 | Method::Aes256Gcm) {
            assert_eq!(printable.err(), Some(KeyError::PrintableSalt), "{method}");
            continue;
        }
        let printable = printable.unwrap();
        assert!(printable != plain);
        let mut lens = [0; SALT_LEN_MAX + 1];
        let mut characters = std::collections::BTreeSet::<u8>::new();
        for _ in 0..2000 {
            let (_, salt, stream) = request(&printable, target().as_bytes(), b"x");
            assert_eq!(stream[..SALT_LEN_MAX], salt);
            let is_printable = |b: &&u8| (b' '..=b'~').contains(*b);
            lens[salt.iter().take_while(is_printable).count()] += 1;
            characters.extend(&salt[..6]);
            let server_key = ServerKey::parse(method, &password, []).unwrap();
            let mut reader = crate::fuzz::Reader::server(&server_key, NOW, None);
            reader.feed(&stream).unwrap();
        }
        assert_eq!(lens[..6], [0; 6], "at least six");
        assert!(lens[6..=12].iter().all(|&n| n > 50), "{lens:?}");
        assert_eq!(characters.len(), 95);
        // Without, and for datagrams, a salt is any bytes.
        let mut unprintable = 0;
        for _ in 0..100 {
            let (_, salt, _) = request(&plain, target().as_bytes(), b"x");
            unprintable += usize::from(salt[..6].iter().any(|b| !(b' '..=b'~').contains(b)));
            let mut session = crate::ClientSession::new(&printable, &mut Rng::new().unwrap());
            let packet = packets::request_packet(&printable, &mut session, b"x");
            unprintable += usize::from(packet[..6].iter().any(|b| !(b' '..=b'~').contains(b)));
        }
        assert!(unprintable > 180);
    }
}
