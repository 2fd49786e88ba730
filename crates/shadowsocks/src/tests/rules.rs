//! Single rules of SIP004, SIP022 and SIP023, with streams forged by the right key.

use std::sync::Mutex;

use adit_crypto::Secret;
use adit_wire::{AddressError, TARGET_LEN_MAX};

use super::*;
use crate::fuzz::{Reader, chunk, keys};
use crate::seal::{Cipher, TYPE_REQUEST, TYPE_RESPONSE};
use crate::{ClientHandshake, Reaction, Reject, ReplaySet, ServerHandshake};

const SALT: [u8; SALT_LEN_MAX] = [0x77; SALT_LEN_MAX];
/// 8.8.8.8:53
const ADDRESS: &[u8] = b"\x01\x08\x08\x08\x08\x00\x35";

/// A stream that starts with the salt, and the cipher that goes on with it.
fn forged(method: Method, session: &Secret) -> (Cipher, Vec<u8>) {
    let salt = &SALT[..method.salt_len()];
    (Cipher::new(method, session, salt), salt.to_vec())
}

/// A SIP004 request of these records.
fn sip004(key: &ClientKey, records: &[&[u8]]) -> Vec<u8> {
    let (mut cipher, mut stream) = forged(key.method(), key.session());
    for payload in records {
        crate::fuzz::record(&mut cipher, payload, &mut stream);
    }
    stream
}

/// A 2022 request with this type, time and variable header.
fn sip022(key: &ClientKey, stream_type: u8, unix_s: u64, variable: &[u8]) -> Vec<u8> {
    let (mut cipher, mut stream) = forged(key.method(), key.session());
    let len = (variable.len() as u16).to_be_bytes();
    let fixed = [&[stream_type][..], &unix_s.to_be_bytes(), &len].concat();
    chunk(&mut cipher, &fixed, &mut stream);
    chunk(&mut cipher, variable, &mut stream);
    stream
}

fn variable(padding: &[u8], payload: &[u8]) -> Vec<u8> {
    [ADDRESS, &(padding.len() as u16).to_be_bytes(), padding, payload].concat()
}

fn read<'a>(key: &'a ServerKey, stream: &[u8]) -> (Reader<'a>, Result<(), Reject>) {
    let mut reader = Reader::server(key, NOW, None);
    let end = reader.feed(stream);
    (reader, end)
}

#[test]
fn an_address_may_span_records() {
    let name = [b'n'; 255];
    let long = [&[3, 255][..], &name, &[1, 187]].concat();
    assert_eq!(long.len(), TARGET_LEN_MAX);
    for method in ciphers_sip004() {
        let (client_key, server_key) = keys(method, false);
        for address in [ADDRESS, &long] {
            for cut in 1..address.len() {
                let (one, two) = address.split_at(cut);
                let two = [two, b"payload"].concat();
                let (reader, end) = read(&server_key, &sip004(&client_key, &[one, &two, b" more"]));
                assert_eq!(end, Ok(()));
                assert_eq!(reader.request.as_ref().unwrap().0.as_bytes(), address);
                assert_eq!(reader.plain, b"payload more", "cut at {cut}");
            }
            let bytes: Vec<&[u8]> = address.chunks(1).collect();
            let stream = sip004(&client_key, &bytes);
            let (reader, end) = read(&server_key, &stream);
            assert_eq!((end, reader.is_open(), reader.at_end()), (Ok(()), true, true));
            let mut by_bytes = Reader::server(&server_key, NOW, None);
            by_bytes.feed_all(stream.chunks(1)).unwrap();
            assert_eq!(by_bytes.request.unwrap().0.as_bytes(), address);
        }
    }
}

#[test]
fn a_bad_address_is_refused() {
    for (address, error) in [
        (&b"\x02\x08\x08\x08\x08\x00\x35"[..], AddressError::AddressType(2)),
        (b"\x11\x08\x08\x08\x08\x00\x35", AddressError::AddressType(0x11)),
        (b"\x03\x00\x00\x50", AddressError::EmptyName),
        (b"\x03\x03a b\x00\x50", AddressError::NameBytes),
    ] {
        let expected = Err(Reject::Address(error));
        for method in ciphers_sip004() {
            let (client_key, server_key) = keys(method, false);
            assert_eq!(read(&server_key, &sip004(&client_key, &[address])).1, expected);
        }
        for method in ciphers_2022() {
            let (client_key, server_key) = keys(method, false);
            let header = [address, b"\x00\x01\x00x"].concat();
            let stream = sip022(&client_key, TYPE_REQUEST, NOW, &header);
            assert_eq!(read(&server_key, &stream).1, expected);
        }
        let (_, server_key) = keys(Method::None, false);
        assert_eq!(read(&server_key, address).1, expected);
    }
}

#[test]
fn empty_records_are_skipped_and_bounded() {
    for method in ciphers_sip004() {
        let (client_key, server_key) = keys(method, false);
        for place in 0..3 {
            for count in [1, 64, 65] {
                let mut records: Vec<&[u8]> = vec![ADDRESS, b"a", b"b"];
                records.splice(place..place, std::iter::repeat_n(&b""[..], count));
                let (reader, end) = read(&server_key, &sip004(&client_key, &records));
                if count > 64 {
                    assert_eq!(end, Err(Reject::EmptyRecords), "{count} at {place}");
                } else {
                    assert_eq!((end, reader.plain.as_slice()), (Ok(()), &b"ab"[..]));
                }
            }
        }
        // The bound is for a run, not for a stream.
        let mut records: Vec<&[u8]> = vec![ADDRESS];
        for _ in 0..5 {
            records.extend(std::iter::repeat_n(&b""[..], 60));
            records.push(b"x");
        }
        let (reader, end) = read(&server_key, &sip004(&client_key, &records));
        assert_eq!((end, reader.plain.as_slice()), (Ok(()), &b"xxxxx"[..]));
    }
    for method in ciphers_2022() {
        let (client_key, server_key) = keys(method, false);
        let (mut sealer, _, mut stream) = request(&client_key, ADDRESS, b"a");
        for _ in 0..64 {
            stream.extend(record(&mut sealer, b""));
        }
        stream.extend(record(&mut sealer, b"b"));
        let (reader, end) = read(&server_key, &stream);
        assert_eq!((end, reader.plain.as_slice()), (Ok(()), &b"ab"[..]));
        for _ in 0..65 {
            stream.extend(record(&mut sealer, b""));
        }
        assert_eq!(read(&server_key, &stream).1, Err(Reject::EmptyRecords));
    }
}

#[test]
fn record_lengths_have_their_limit() {
    for method in ciphers_sip004() {
        let (client_key, server_key) = keys(method, false);
        for len in [0x3FFF_u16, 0x4000, 0x8000, 0xC001, 0xFFFF] {
            for place in [0, 1] {
                let (mut cipher, mut stream) = forged(method, client_key.session());
                if place == 1 {
                    crate::fuzz::record(&mut cipher, ADDRESS, &mut stream);
                }
                chunk(&mut cipher, &len.to_be_bytes(), &mut stream);
                let expected = if len > 0x3FFF { Err(Reject::RecordLength(len)) } else { Ok(()) };
                assert_eq!(read(&server_key, &stream).1, expected, "{len:#06x}");
            }
        }
    }
}

#[test]
fn a_2022_request_brings_its_fixed_header_at_once() {
    for method in ciphers_2022() {
        for users in [false, true] {
            let (client_key, server_key) = keys(method, users);
            let (_, _, stream) = request(&client_key, ADDRESS, b"payload");
            let identities = 16 * client_key.identity_headers().len();
            let expected = method.salt_len() + identities + 27;
            for actual in 0..expected {
                let (reader, end) = read(&server_key, &stream[..actual]);
                assert_eq!(end, Err(Reject::ShortFirstSegment { expected, actual }), "{method}");
                assert!(reader.request.is_none());
            }
            let mut reader = Reader::server(&server_key, NOW, None);
            reader.feed(&stream[..expected]).unwrap();
            assert!(!reader.is_open() && reader.kept.is_empty());
            reader.feed_all(stream[expected..].chunks(3)).unwrap();
            assert_eq!(reader.plain, b"payload");
        }
    }
    let error = Reject::ShortFirstSegment { expected: 59, actual: 3 };
    assert_eq!(error.reaction(Method::Blake3Aes256Gcm), Reaction::Reset);
}

#[test]
fn clocks_may_differ_by_30_seconds() {
    for method in ciphers_2022() {
        let (client_key, server_key) = keys(method, false);
        let header = variable(b"", b"x");
        for (theirs, ours, expected) in [
            (NOW, NOW, Ok(())),
            (NOW - 30, NOW, Ok(())),
            (NOW + 30, NOW, Ok(())),
            (NOW - 31, NOW, Err(Reject::Clock(-31))),
            (NOW + 31, NOW, Err(Reject::Clock(31))),
            (0, 30, Ok(())),
            (0, 31, Err(Reject::Clock(-31))),
            (0, NOW, Err(Reject::Clock(-1_700_000_000))),
            (u64::MAX, NOW, Err(Reject::Clock(i64::MAX))),
            (u64::MAX, u64::MAX, Ok(())),
            (u64::MAX, u64::MAX - 31, Err(Reject::Clock(31))),
            (0, u64::MAX, Err(Reject::Clock(i64::MIN))),
        ] {
            let stream = sip022(&client_key, TYPE_REQUEST, theirs, &header);
            let mut server = Reader::server(&server_key, ours, None);
            assert_eq!(server.feed(&stream), expected, "{theirs} at {ours}");

            let (mut cipher, mut stream) = forged(method, client_key.session());
            let salt = &[5; SALT_LEN_MAX][..method.salt_len()];
            let fixed = [&[TYPE_RESPONSE][..], &theirs.to_be_bytes(), salt, &[0, 1]].concat();
            chunk(&mut cipher, &fixed, &mut stream);
            chunk(&mut cipher, b"x", &mut stream);
            let mut client = Reader::client(&client_key, [5; SALT_LEN_MAX], ours, None);
            assert_eq!(client.feed(&stream), expected, "{theirs} at {ours}");
        }
    }
    assert!(Reject::Clock(-31).to_string().contains("off by -31 s"));
    assert!(Reject::Clock(31).to_string().contains("off by +31 s"));
}

#[test]
fn stream_types_are_told_apart() {
    for method in ciphers_2022() {
        let (client_key, server_key) = keys(method, false);
        for stream_type in 1..=255 {
            let stream = sip022(&client_key, stream_type, NOW, &variable(b"p", b""));
            assert_eq!(read(&server_key, &stream).1, Err(Reject::StreamType(stream_type)));
        }
        // Our own request sent back to us.
        let (_, salt, stream) = request(&client_key, ADDRESS, &[7; 100]);
        let mut client = Reader::client(&client_key, salt, NOW, None);
        assert!(client.feed(&stream).is_err());
        assert!(client.plain.is_empty());
        // And our answer as a request.
        let (_, stream) = response(&server_key, None, &salt, &[7; 100]);
        assert!(read(&server_key, &stream).1.is_err());
    }
}

#[test]
fn a_sip004_request_sent_back_is_no_response() {
    for method in ciphers_sip004() {
        let (client_key, _) = keys(method, false);
        let (_, salt, stream) = request(&client_key, ADDRESS, b"secret");
        let mut client = Reader::client(&client_key, salt, NOW, None);
        assert_eq!(client.feed(&stream), Err(Reject::Replay));
        assert!(client.plain.is_empty());
    }
}

#[test]
fn the_response_must_be_for_this_request() {
    for method in ciphers_2022() {
        let (client_key, server_key) = keys(method, false);
        let (_, stream) = response(&server_key, None, &[1; SALT_LEN_MAX], b"answer");
        for at in 0..method.salt_len() {
            let mut salt = [1; SALT_LEN_MAX];
            salt[at] ^= 0x10;
            let mut client = Reader::client(&client_key, salt, NOW, None);
            assert_eq!(client.feed(&stream), Err(Reject::ForeignRequestSalt));
        }
    }
}

#[test]
fn lengths_inside_the_variable_header_must_fit() {
    for method in ciphers_2022() {
        let (client_key, server_key) = keys(method, false);
        let whole = variable(b"pad", b"");
        for len in 0..whole.len() {
            let stream = sip022(&client_key, TYPE_REQUEST, NOW, &whole[..len]);
            let end = read(&server_key, &stream).1;
            assert_eq!(end, Err(Reject::HeaderLength), "{len}");
        }
        for (header, expected) in [
            (variable(b"", b""), Err(Reject::NoPadding)),
            (variable(b"p", b""), Ok(&b""[..])),
            (variable(b"", b"x"), Ok(b"x")),
            (variable(&[0; 900], b""), Ok(b"")),
            (variable(&[0; 5000], b"xyz"), Ok(b"xyz")),
        ] {
            let (reader, end) = read(&server_key, &sip022(&client_key, TYPE_REQUEST, NOW, &header));
            assert_eq!(end.map(|()| reader.plain.as_slice()), expected);
        }
        let largest = variable(&[], &pattern(0xFFFF - ADDRESS.len() - 2));
        assert_eq!(largest.len(), 0xFFFF);
        let (reader, end) = read(&server_key, &sip022(&client_key, TYPE_REQUEST, NOW, &largest));
        assert_eq!((end, reader.plain.len()), (Ok(()), 0xFFFF - 9));
    }
}

#[test]
fn a_request_has_payload_or_1_to_900_bytes_of_padding() {
    for method in ciphers_2022() {
        let (key, _) = keys(method, false);
        let head = Sealer::request_head_len(&key, ADDRESS.len());
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..500 {
            let flight = request(&key, ADDRESS, b"").2;
            let padding = flight.len() - head - TAG_LEN;
            assert!((1..=900).contains(&padding), "{padding}");
            assert!(flight.len() - head <= PADDED_LEN_MAX);
            seen.insert(padding);
        }
        assert!(seen.len() > 100, "padding is drawn at random");
        assert_eq!(request(&key, ADDRESS, b"x").2.len(), head + 1 + TAG_LEN);
    }
    for method in ciphers_sip004() {
        let (key, _) = keys(method, false);
        let head = Sealer::request_head_len(&key, ADDRESS.len());
        assert_eq!(request(&key, ADDRESS, b"").2.len(), head + TAG_LEN);
    }
}

#[test]
fn salts_are_drawn_anew() {
    for method in ciphers() {
        let (key, server_key) = keys(method, false);
        let (_, one, flight) = request(&key, ADDRESS, b"x");
        let (_, two, _) = request(&key, ADDRESS, b"x");
        assert_ne!(one, two);
        assert_eq!(flight[..method.salt_len()], one[..method.salt_len()]);
        assert!(one[method.salt_len()..].iter().all(|&b| b == 0));
        let (_, response) = response(&server_key, None, &one, b"x");
        assert_ne!(response[..method.salt_len()], one[..method.salt_len()]);
    }
}

#[test]
fn a_first_flight_is_accepted_once() {
    for method in ciphers() {
        let (client_key, server_key) = keys(method, true);
        let replay = Mutex::new(ReplaySet::by_age(100, 60));
        let (_, _, stream) = request(&client_key, ADDRESS, b"payload");
        let feed = |stream: &[u8]| Reader::server(&server_key, NOW, Some(&replay)).feed(stream);
        // Tampered with where nothing is authenticated yet: the salt stays good.
        let fixed_end = stream.len().min(method.salt_len() + 18);
        for at in method.salt_len()..fixed_end {
            let mut tampered = stream.clone();
            tampered[at] ^= 1;
            assert!(feed(&tampered).is_err());
            assert!(replay.lock().unwrap().is_empty(), "{method}: byte {at} burned the salt");
        }
        assert_eq!(feed(&stream), Ok(()), "{method}");
        assert_eq!(feed(&stream), Err(Reject::Replay), "{method}");
        // Another flight with new salt is another matter.
        assert_eq!(feed(&request(&client_key, ADDRESS, b"payload").2), Ok(()));
        assert_eq!(replay.lock().unwrap().len(), 2);
    }
}

#[test]
fn a_sip004_salt_counts_only_with_its_first_payload() {
    for method in ciphers_sip004() {
        let (client_key, server_key) = keys(method, false);
        let replay = Mutex::new(ReplaySet::by_count(100));
        let (_, _, stream) = request(&client_key, ADDRESS, b"payload");
        let mut tampered = stream.clone();
        *tampered.last_mut().unwrap() ^= 1;
        let feed = |stream: &[u8]| Reader::server(&server_key, NOW, Some(&replay)).feed(stream);
        assert_eq!(feed(&tampered), Err(Reject::Authentication));
        assert_eq!(feed(&stream[..stream.len() - 1]), Ok(()), "waits");
        assert!(replay.lock().unwrap().is_empty());
        assert_eq!(feed(&stream), Ok(()));
        assert_eq!(feed(&stream), Err(Reject::Replay));

        // A response is checked by the client in the same way.
        let replay = Mutex::new(ReplaySet::by_count(100));
        let (_, stream) = response(&server_key, None, &[0; SALT_LEN_MAX], b"answer");
        let feed = |stream: &[u8]| {
            Reader::client(&client_key, [9; SALT_LEN_MAX], NOW, Some(&replay)).feed(stream)
        };
        let mut tampered = stream.clone();
        *tampered.last_mut().unwrap() ^= 1;
        assert_eq!(feed(&tampered), Err(Reject::Authentication));
        assert_eq!(feed(&stream), Ok(()));
        assert_eq!(feed(&stream), Err(Reject::Replay));
    }
}

#[test]
fn a_2022_time_fault_does_not_burn_the_salt() {
    for method in ciphers_2022() {
        let (client_key, server_key) = keys(method, false);
        let replay = Mutex::new(ReplaySet::by_age(100, 60));
        let old = sip022(&client_key, TYPE_REQUEST, NOW - 31, &variable(b"", b"x"));
        let good = sip022(&client_key, TYPE_REQUEST, NOW, &variable(b"", b"x"));
        let feed = |stream: &[u8]| Reader::server(&server_key, NOW, Some(&replay)).feed(stream);
        assert_eq!(feed(&old), Err(Reject::Clock(-31)));
        assert_eq!(feed(&good), Ok(()));
        // Two connections at a time: the salt is taken when the fixed header is read.
        assert_eq!(feed(&good), Err(Reject::Replay));
    }
}

#[test]
fn a_full_store_refuses_new_2022_streams() {
    let (client_key, server_key) = keys(Method::Blake3Aes128Gcm, false);
    let replay = Mutex::new(ReplaySet::by_age(1, 60));
    let feed = |at| {
        let mut rng = Rng::new().unwrap();
        let mut env = Env { unix_s: at, rng: &mut rng };
        let mut buf = [0; 128];
        let head = Sealer::request_head_len(&client_key, ADDRESS.len());
        buf[head] = b'x';
        let (_, _, len) = Sealer::request(&client_key, ADDRESS, &mut env, &mut buf, 1);
        Reader::server(&server_key, at, Some(&replay)).feed(&buf[..len])
    };
    assert!((0..2000).any(|_| feed(NOW) != Ok(())), "never full");
    assert_eq!(feed(NOW), Err(Reject::ReplayFull));
    assert_eq!(feed(NOW + 60), Err(Reject::ReplayFull));
    assert_eq!(feed(NOW + 61), Ok(()));
}

#[test]
fn each_user_is_told_apart_and_answered_with_their_key() {
    for method in ciphers_2022().filter(|m| m.supports_identity()) {
        let encode = |seed| data_encoding::BASE64.encode(&vec![seed; method.key_len()]);
        let (server_psk, names) = (encode(1), ["anna", "ben", "carla", "dirk"]);
        let psks = [10, 11, 12, 13].map(encode);
        let users = names.into_iter().zip(psks.iter().map(String::as_str));
        let server_key = ServerKey::parse(method, &server_psk, users).unwrap();
        for (name, psk) in names.into_iter().zip(&psks) {
            let client_key = ClientKey::parse(method, &format!("{server_psk}:{psk}")).unwrap();
            let (_, salt, stream) = request(&client_key, ADDRESS, b"hi");
            let (reader, end) = read(&server_key, &stream);
            assert_eq!(end, Ok(()));
            let user = reader.request.as_ref().unwrap().1;
            assert_eq!(server_key.users()[usize::from(user.unwrap())].name(), name);
            let (_, answer) = response(&server_key, user, &salt, b"ho");
            let mut client = Reader::client(&client_key, salt, NOW, None);
            client.feed(&answer).unwrap();
            assert_eq!(client.plain, b"ho");
            // Nobody else reads it, nor does the server's own key.
            for other in psks.iter().filter(|p| *p != psk).chain([&server_psk]) {
                let other = ClientKey::parse(method, &format!("{server_psk}:{other}")).unwrap();
                let mut client = Reader::client(&other, salt, NOW, None);
                assert_eq!(client.feed(&answer), Err(Reject::Authentication));
            }
        }
        for (password, expected) in [
            (format!("{server_psk}:{}", encode(99)), Reject::UnknownUser),
            (format!("{}:{}", encode(99), psks[0]), Reject::UnknownUser),
            (format!("{server_psk}:{server_psk}"), Reject::UnknownUser),
            (server_psk.clone(), Reject::UnknownUser),
            (psks[0].clone(), Reject::UnknownUser),
        ] {
            let client_key = ClientKey::parse(method, &password).unwrap();
            let (_, _, stream) = request(&client_key, ADDRESS, &[0; 64]);
            assert_eq!(read(&server_key, &stream).1, Err(expected));
        }
        // A port with one user takes no identity header.
        let alone = ServerKey::parse(method, &server_psk, []).unwrap();
        let client_key = ClientKey::parse(method, &format!("{server_psk}:{}", psks[0])).unwrap();
        let (_, _, stream) = request(&client_key, ADDRESS, &[0; 64]);
        assert_eq!(read(&alone, &stream).1, Err(Reject::Authentication));
    }
}

#[test]
fn none_is_an_address_and_plain_bytes() {
    let (client_key, server_key) = keys(Method::None, false);
    let (mut sealer, _, stream) = request(&client_key, ADDRESS, b"payload");
    assert_eq!(stream, [ADDRESS, b"payload"].concat());
    assert_eq!(record(&mut sealer, b"more"), b"more");
    let replay = Mutex::new(ReplaySet::by_count(1));
    for _ in 0..2 {
        let mut server = Reader::server(&server_key, NOW, Some(&replay));
        server.feed_all(stream.chunks(1)).unwrap();
        assert_eq!(server.plain, b"payload");
    }
    assert!(replay.lock().unwrap().is_empty());
    let (_, answer) = response(&server_key, None, &SALT, b"answer");
    assert_eq!(answer, b"answer");
}

#[test]
fn a_client_knows_whether_a_response_began() {
    for method in METHODS {
        let (client_key, server_key) = keys(method, false);
        let (_, answer) = response(&server_key, None, &SALT, b"answer");
        let mut handshake = ClientHandshake::new(SALT);
        assert!(handshake.is_untouched());
        let mut at = 0;
        let mut answer = answer;
        let response = handshake.advance(&client_key, NOW, None, &mut answer, &mut at).unwrap();
        assert!(response.is_some() && at > 0);
        assert!(!handshake.is_untouched(), "{method}");
        assert!(handshake.advance(&client_key, NOW, None, &mut answer, &mut at).unwrap().is_none());
    }
}

#[test]
fn a_server_handshake_is_over_once() {
    for method in METHODS {
        let (client_key, server_key) = keys(method, false);
        let (_, _, mut stream) = request(&client_key, ADDRESS, b"payload");
        let mut handshake = ServerHandshake::default();
        let mut at = 0;
        let accepted = handshake.advance(&server_key, NOW, None, &mut stream, &mut at).unwrap();
        assert!(accepted.is_some());
        assert_eq!(at, stream.len());
        let again = handshake.advance(&server_key, NOW, None, &mut stream, &mut at).unwrap();
        assert!(again.is_none());
    }
}

#[test]
fn failures_of_one_method_look_alike() {
    let errors = [
        Reject::Authentication,
        Reject::UnknownUser,
        Reject::Replay,
        Reject::ReplayFull,
        Reject::Clock(31),
        Reject::StreamType(1),
        Reject::ForeignRequestSalt,
        Reject::ShortFirstSegment { expected: 59, actual: 3 },
        Reject::NoPadding,
        Reject::HeaderLength,
        Reject::RecordLength(0x4000),
        Reject::EmptyRecords,
        Reject::Address(AddressError::EmptyName),
    ];
    for (i, error) in errors.iter().enumerate() {
        for method in METHODS {
            let expected = if method.is_2022() { Reaction::Reset } else { Reaction::Drain };
            assert_eq!(error.reaction(method), expected);
        }
        assert!(!error.to_string().is_empty());
        assert!(errors[..i].iter().all(|other| other.as_label() != error.as_label()));
    }
}
