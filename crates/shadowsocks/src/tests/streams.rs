//! Properties of whole streams, for every method.

use std::sync::Mutex;

use proptest::prelude::*;

use super::*;
use crate::fuzz::{self, Reader, keys, split};
use crate::{Reject, ReplaySet};

/// A request with `first` in its first record and `later` behind it; and the salt.
fn request_stream(
    key: &ClientKey,
    first: &[u8],
    later: &[Vec<u8>],
) -> (Vec<u8>, [u8; SALT_LEN_MAX]) {
    let (mut sealer, salt, mut stream) = request(key, target().as_bytes(), first);
    for payload in later {
        stream.extend(record(&mut sealer, payload));
    }
    (stream, salt)
}

fn response_stream(
    key: &ServerKey,
    user: Option<u16>,
    salt: &[u8; SALT_LEN_MAX],
    payloads: &[Vec<u8>],
) -> Vec<u8> {
    let (mut sealer, mut stream) = response(key, user, salt, &payloads[0]);
    for payload in &payloads[1..] {
        stream.extend(record(&mut sealer, payload));
    }
    stream
}

/// What the first segment of a request must have.
fn first_len(method: Method, users: bool) -> usize {
    if !method.is_2022() {
        return 0;
    }
    let users = users && method.supports_identity();
    method.salt_len() + if users { 16 } else { 0 } + 11 + TAG_LEN
}

fn methods() -> impl Strategy<Value = Method> {
    prop::sample::select(METHODS.to_vec())
}

fn payloads() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let len = prop_oneof![1..40_usize, 1..2000_usize, Just(0x3FFF_usize)];
    prop::collection::vec(len.prop_map(pattern), 1..8)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn round_trips_however_it_is_split(
        method in methods(), users: bool, first_payload_len in 0..2000_usize, later in payloads(),
        seed: u8,
    ) {
        let (client_key, server_key) = keys(method, users);
        let first = pattern(first_payload_len);
        let (stream, salt) = request_stream(&client_key, &first, &later);
        let mut server = Reader::server(&server_key, NOW, None);
        server.feed_all(split(seed, first_len(method, users), &stream)).unwrap();
        let (asked, user, request_salt) = server.request.as_ref().unwrap();
        prop_assert_eq!(*asked, target());
        prop_assert_eq!(user.is_some(), users && method.supports_identity());
        prop_assert_eq!(*request_salt, salt);
        prop_assert_eq!(&server.plain, &[first, later.concat()].concat());
        prop_assert!(server.at_end());

        let stream = response_stream(&server_key, *user, request_salt, &later);
        let mut client = Reader::client(&client_key, salt, NOW, None);
        prop_assert!(client.at_end());
        client.feed_all(split(seed, 0, &stream)).unwrap();
        prop_assert_eq!(&client.plain, &later.concat());
        prop_assert!(client.at_end());
    }

    #[test]
    fn a_flipped_bit_is_refused_and_opens_nothing_wrong(
        method in methods(), users: bool, later in payloads(), at: prop::sample::Index, bit in 0..8_u8,
        seed: u8,
    ) {
        prop_assume!(method != Method::None);
        let (client_key, server_key) = keys(method, users);
        let (mut stream, salt) = request_stream(&client_key, b"first", &later);
        let sent = [b"first".to_vec(), later.concat()].concat();
        let mut echoed = response_stream(&server_key, None, &salt, &later);
        let flipped = at.index(stream.len());
        stream[flipped] ^= 1 << bit;
        let at = at.index(echoed.len());
        echoed[at] ^= 1 << bit;

        let mut server = Reader::server(&server_key, NOW, None);
        let end = server.feed_all(split(seed, first_len(method, users), &stream));
        prop_assert!(matches!(end, Err(Reject::Authentication | Reject::UnknownUser)), "{:?}", end);
        prop_assert!(sent.starts_with(&server.plain));
        prop_assert!(server.request.as_ref().is_none_or(|r| r.0 == target()));

        let (client_key, _) = keys(method, false);
        let mut client = Reader::client(&client_key, salt, NOW, None);
        let end = client.feed_all(split(seed, 0, &echoed));
        prop_assert_eq!(end, Err(Reject::Authentication));
        prop_assert!(later.concat().starts_with(&client.plain));
    }

    #[test]
    fn a_cut_stream_waits_and_is_not_a_clean_end(
        method in methods(), later in payloads(), at: prop::sample::Index, seed: u8,
    ) {
        prop_assume!(method != Method::None);
        let (client_key, server_key) = keys(method, false);
        let (stream, salt) = request_stream(&client_key, b"first", &later);
        let least = first_len(method, false);
        let len = least + at.index(stream.len() - least);
        let mut server = Reader::server(&server_key, NOW, None);
        server.feed_all(split(seed, least, &stream[..len])).unwrap();
        let mut full = Reader::server(&server_key, NOW, None);
        full.feed(&stream).unwrap();
        prop_assert!(full.plain.starts_with(&server.plain));
        // A clean end is only where a record ended.
        if server.at_end() {
            prop_assert!(server.plain.len() < full.plain.len());
            let whole: Vec<usize> = later.iter().scan(5, |sum, p| {
                let before = *sum;
                *sum += p.len();
                Some(before)
            }).collect();
            prop_assert!(whole.contains(&server.plain.len()));
        }

        let stream = response_stream(&server_key, None, &salt, &later);
        let mut client = Reader::client(&client_key, salt, NOW, None);
        client.feed_all(split(seed, 0, &stream[..at.index(stream.len())])).unwrap();
        prop_assert!(later.concat().starts_with(&client.plain));
    }

    #[test]
    fn junk_is_refused_and_never_panics(
        method in methods(), users: bool, junk in prop::collection::vec(any::<u8>(), 0..2000), seed: u8,
    ) {
        prop_assume!(method != Method::None);
        let (client_key, server_key) = keys(method, users);
        let replay = Mutex::new(ReplaySet::by_count(10));
        let mut server = Reader::server(&server_key, NOW, Some(&replay));
        let end = server.feed_all(split(seed, first_len(method, users), &junk));
        let needed = method.salt_len() + 18;
        prop_assert!(end.is_err() || junk.len() < needed, "{:?}", end);
        prop_assert!(server.plain.is_empty() && server.request.is_none());
        let mut client = Reader::client(&client_key, [1; SALT_LEN_MAX], NOW, Some(&replay));
        let _ = client.feed_all(split(seed, 0, &junk));
        prop_assert!(client.plain.is_empty());
        prop_assert!(replay.into_inner().unwrap().is_empty(), "junk burned a salt");
    }

    #[test]
    fn fuzz_bodies_hold(mut data in prop::collection::vec(any::<u8>(), 0..600), selector: u8, flags: u8) {
        if data.len() > 3 {
            data[0] = selector;
            data[2] = flags;
        }
        fuzz::server(&data);
        fuzz::client(&data);
        fuzz::opener(&data);
    }
}

/// Every bit of a short stream, for every method with a key: none can change unnoticed.
#[test]
fn every_single_bit_is_authenticated() {
    for method in ciphers() {
        let (client_key, server_key) = keys(method, true);
        let (stream, salt) = request_stream(&client_key, b"hi", &[b"there".to_vec()]);
        let answer =
            response_stream(&server_key, server_user(&server_key), &salt, &[b"yes".to_vec()]);
        for bit in 0..8 * stream.len() {
            let mut flipped = stream.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let mut server = Reader::server(&server_key, NOW, None);
            let end = server.feed(&flipped);
            let expected =
                if client_key.identity_headers().len() > 0 && bit / 8 < method.salt_len() + 16 {
                    Reject::UnknownUser
                } else {
                    Reject::Authentication
                };
            assert_eq!(end, Err(expected), "{method} bit {bit}");
            assert!(b"hithere".starts_with(&server.plain));
        }
        for bit in 0..8 * answer.len() {
            let mut flipped = answer.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let mut client = Reader::client(&client_key, salt, NOW, None);
            assert_eq!(client.feed(&flipped), Err(Reject::Authentication), "{method} bit {bit}");
            assert!(client.plain.is_empty());
        }
    }
}

fn server_user(key: &ServerKey) -> Option<u16> {
    (!key.users().is_empty()).then_some(0)
}

/// One byte at a time behind what must come at once.
#[test]
fn byte_by_byte_reads_the_same() {
    for method in METHODS {
        for users in [false, true] {
            let (client_key, server_key) = keys(method, users);
            let later = [pattern(3), pattern(300)];
            let (stream, salt) = request_stream(&client_key, b"first", &later);
            let (head, rest) = stream.split_at(first_len(method, users));
            let mut server = Reader::server(&server_key, NOW, None);
            if !head.is_empty() {
                server.feed(head).unwrap();
            }
            server.feed_all(rest.chunks(1)).unwrap();
            assert_eq!(server.plain, [b"first".to_vec(), later.concat()].concat(), "{method}");
            assert!(server.at_end());

            let user = server.request.as_ref().and_then(|r| r.1);
            let stream = response_stream(&server_key, user, &salt, &later);
            let mut client = Reader::client(&client_key, salt, NOW, None);
            client.feed_all(stream.chunks(1)).unwrap();
            assert_eq!(client.plain, later.concat(), "{method}");
        }
    }
}

#[test]
fn the_wrong_password_or_method_is_refused() {
    for method in ciphers() {
        let (client_key, _) = keys(method, false);
        let (stream, salt) = request_stream(&client_key, b"first", &[]);
        for other in ciphers() {
            let (_, other_server) = keys(other, false);
            let same_cipher = other.is_2022() == method.is_2022() && other.aead() == method.aead();
            let mut server = Reader::server(&other_server, NOW, None);
            let end = server.feed(&stream);
            assert_eq!(end == Ok(()) && server.is_open(), same_cipher, "{method} as {other}");
            let answer = response_stream(&other_server, None, &salt, &[pattern(200)]);
            let mut client = Reader::client(&client_key, salt, NOW, None);
            let end = client.feed(&answer);
            assert_eq!(end == Ok(()) && client.is_open(), same_cipher, "{other} as {method}");
        }
        let password = if method.is_2022() {
            data_encoding::BASE64.encode(&vec![1; method.key_len()])
        } else {
            "wrong".to_owned()
        };
        let wrong = ServerKey::parse(method, &password, []).unwrap();
        let mut server = Reader::server(&wrong, NOW, None);
        assert_eq!(server.feed(&stream), Err(Reject::Authentication));
    }
}

#[test]
fn largest_records_round_trip_and_run_together_in_memory() {
    for method in METHODS {
        let (client_key, server_key) = keys(method, false);
        let max = method.record_payload_max();
        let target = target();
        let first = pattern(Sealer::request_payload_max(&client_key, target.as_bytes().len()));
        let (mut sealer, _, flight) = request(&client_key, target.as_bytes(), &first);
        // Two records laid out behind each other are sealed where they lie.
        let (head, tail) = (sealer.head_len(), Sealer::tail_len(method));
        let mut run = vec![0xee; 2 * (head + max + tail)];
        let at = head + max + tail;
        run[head..head + max].copy_from_slice(&pattern(max));
        run[at + head..at + head + 5].copy_from_slice(b"later");
        assert_eq!(sealer.seal(&mut run, max), at);
        let len = at + sealer.seal(&mut run[at..], 5);
        let stream = [&flight, &run[..len]].concat();
        let mut server = Reader::server(&server_key, NOW, None);
        server.feed(&stream).unwrap();
        assert_eq!(server.plain, [first, pattern(max), b"later".to_vec()].concat(), "{method}");
    }
}
