//! Single rules of SIP022 and SIP023 for datagrams, with packets forged by the right key.

use adit_wire::AddressError;

use super::packets::{client, open_first, open_next, reply_packet, request_packet, source};
use super::*;
use crate::fuzz::keys;
use crate::fuzz::packet::{Side, forge};
use crate::packet::sip022::Ids;
use crate::{ClientSession, PacketReject, ServerSession};

const CLIENT: [u8; 8] = *b"client-1";
/// 8.8.8.8:53
const ADDRESS: &[u8] = b"\x01\x08\x08\x08\x08\x00\x35";

fn body(kind: u8, unix_s: u64, client: &[u8], padding: &[u8], rest: &[u8]) -> Vec<u8> {
    let len = (padding.len() as u16).to_be_bytes();
    [&[kind][..], &unix_s.to_be_bytes(), client, &len, padding, rest].concat()
}

fn request(key: &ClientKey, id: u64, unix_s: u64, kind: u8, rest: &[u8]) -> Vec<u8> {
    forge(key, Side::Client, Ids::new(CLIENT, id), &body(kind, unix_s, &[], &[0; 3], rest))
}

fn reply(key: &ClientKey, server: u8, id: u64, unix_s: u64) -> Vec<u8> {
    let rest = [ADDRESS, b"pong"].concat();
    forge(key, Side::Server, Ids::new([server; 8], id), &body(1, unix_s, &CLIENT, &[], &rest))
}

#[test]
fn the_clock_may_be_off_by_30_seconds() {
    for method in ciphers_2022() {
        let (client_key, server_key) = keys(method, true);
        let rest = [ADDRESS, b"ping"].concat();
        for (unix_s, difference_s) in [
            (NOW - 30, 0),
            (NOW + 30, 0),
            (NOW - 31, -31),
            (NOW + 31, 31),
            (0, -(NOW as i64)),
            (u64::MAX, i64::MAX),
        ] {
            let opened =
                open_first(&server_key, &mut request(&client_key, 5, unix_s, 0, &rest), None);
            let mut session = ClientSession::with_id(&client_key, CLIENT);
            let replied = session.open(&client_key, &mut reply(&client_key, 9, 5, unix_s), NOW);
            if difference_s == 0 {
                opened.unwrap();
                replied.unwrap();
            } else {
                let expected = Some(PacketReject::ClockSkew { difference_s });
                assert_eq!(opened.err(), expected);
                assert_eq!(replied.err(), expected);
            }
        }
    }
}

#[test]
fn malformed_bodies_of_the_right_key_change_nothing() {
    for method in ciphers_2022() {
        let (client_key, server_key) = keys(method, true);
        let good = [ADDRESS, b"ping"].concat();
        let (mut session, _) =
            open_first(&server_key, &mut request(&client_key, 1, NOW, 0, &good), None).unwrap();
        let too_much = [&body(0, NOW, &[], &[], &[])[..9], &[0xff, 0xff], ADDRESS].concat();
        let head_only = body(0, NOW, &[], &[], &[]);
        for (body, expected) in [
            (body(1, NOW, &[], &[], &good), PacketReject::WrongType(1)),
            (body(7, NOW, &[], &[], &good), PacketReject::WrongType(7)),
            (too_much, PacketReject::BadPadding),
            (head_only, PacketReject::BadAddress(AddressError::Incomplete)),
            (
                body(0, NOW, &[], &[], b"\x05abc"),
                PacketReject::BadAddress(AddressError::AddressType(5)),
            ),
            (
                body(0, NOW, &[], &[], b"\x03\0\0\x35"),
                PacketReject::BadAddress(AddressError::EmptyName),
            ),
        ] {
            let packet = forge(&client_key, Side::Client, Ids::new(CLIENT, 2), &body);
            let first = open_first(&server_key, &mut packet.clone(), None);
            assert_eq!(first.err(), Some(expected));
            let next = open_next(&server_key, &mut session, &mut packet.clone());
            assert_eq!(next.err(), Some(expected));
            assert_eq!(session.remains().and_then(|r| r.highest), Some(1));
        }
        open_next(&server_key, &mut session, &mut request(&client_key, 2, NOW, 0, &good)).unwrap();
    }
}

#[test]
fn replays_are_refused_whatever_came_between() {
    for method in ciphers_2022() {
        let (client_key, server_key) = keys(method, true);
        let mut client = client(&client_key);
        let packets: Vec<_> =
            (0..300).map(|_| request_packet(&client_key, &mut client, b"x")).collect();
        let (mut server, _) = open_first(&server_key, &mut packets[0].clone(), None).unwrap();
        for packet in &packets[1..] {
            open_next(&server_key, &mut server, &mut packet.clone()).unwrap();
        }
        for packet in &packets {
            let error = open_next(&server_key, &mut server, &mut packet.clone()).unwrap_err();
            assert_eq!(error, PacketReject::Replayed);
        }
    }
}

#[test]
fn a_session_that_was_given_up_does_not_take_its_packets_again() {
    for method in ciphers_2022() {
        let (client_key, server_key) = keys(method, true);
        let mut client = client(&client_key);
        let packets: Vec<_> =
            (0..5).map(|_| request_packet(&client_key, &mut client, b"x")).collect();
        let (mut server, _) = open_first(&server_key, &mut packets[0].clone(), None).unwrap();
        open_next(&server_key, &mut server, &mut packets[3].clone()).unwrap();
        let mut before = reply_packet(&server_key, &mut server, b"before");
        client.open(&client_key, &mut before, NOW).unwrap();
        let remains = server.remains();
        for old in &packets[..4] {
            let error = open_first(&server_key, &mut old.clone(), remains).err();
            assert_eq!(error, Some(PacketReject::Replayed));
        }
        let (mut server, _) = open_first(&server_key, &mut packets[4].clone(), remains).unwrap();
        for old in &packets {
            let error = open_next(&server_key, &mut server, &mut old.clone()).unwrap_err();
            assert_eq!(error, PacketReject::Replayed);
        }
        // To the client it is the same server session, however often that happens.
        for _ in 0..4 {
            let mut packet = request_packet(&client_key, &mut client, b"y");
            let remains = server.remains();
            server = open_first(&server_key, &mut packet, remains).unwrap().0;
            let mut after = reply_packet(&server_key, &mut server, b"after");
            client.open(&client_key, &mut after, NOW).unwrap();
        }
    }
}

#[test]
fn a_client_keeps_two_server_sessions_and_a_third_after_a_minute() {
    for method in ciphers_2022() {
        let (key, _) = keys(method, true);
        let mut session = ClientSession::with_id(&key, CLIENT);
        let mut open =
            |server, id, now| session.open(&key, &mut reply(&key, server, id, now), now).map(drop);
        open(1, 0, NOW).unwrap();
        open(2, 0, NOW + 10).unwrap();
        // Late ones of the old session still come, each once.
        open(1, 2, NOW + 20).unwrap();
        open(1, 1, NOW + 20).unwrap();
        assert_eq!(open(1, 2, NOW + 20), Err(PacketReject::Replayed));
        open(2, 1, NOW + 20).unwrap();
        assert_eq!(open(2, 0, NOW + 20), Err(PacketReject::Replayed));
        assert_eq!(open(3, 0, NOW + 79), Err(PacketReject::TooManySessions));
        open(2, 3, NOW + 79).unwrap();
        open(3, 0, NOW + 80).unwrap();
        // The first is forgotten, the second is the old one.
        assert_eq!(open(1, 9, NOW + 80), Err(PacketReject::TooManySessions));
        open(2, 2, NOW + 80).unwrap();
        open(3, 1, NOW + 80).unwrap();
    }
}

#[test]
fn replies_for_others_and_reflected_requests_are_refused() {
    for method in ciphers_2022() {
        let (client_key, server_key) = keys(method, false);
        let mut one = client(&client_key);
        let mut other = client(&client_key);
        assert_ne!(one.id(), other.id());
        let mut packet = request_packet(&client_key, &mut one, b"x");
        let mut reflected = packet.clone();
        let (mut server, _) = open_first(&server_key, &mut packet, None).unwrap();
        let reply = reply_packet(&server_key, &mut server, b"y");
        let error = other.open(&client_key, &mut reply.clone(), NOW).unwrap_err();
        assert_eq!(error, PacketReject::ForeignSession);
        let long = request_packet(&client_key, &mut one, b"long enough to be a reply");
        let error = one.open(&client_key, &mut long.clone(), NOW).unwrap_err();
        assert_eq!(error, PacketReject::WrongType(0));
        assert!(one.open(&client_key, &mut reflected, NOW).is_err());
        let error = open_first(&server_key, &mut reply.clone(), None).err();
        assert_eq!(error, Some(PacketReject::WrongType(1)));
        // None of it kept the honest one out.
        one.open(&client_key, &mut reply.clone(), NOW).unwrap();
    }
}

#[test]
fn users_have_sessions_of_their_own_under_one_id() {
    for (method, port, users) in [
        (
            Method::Blake3Aes128Gcm,
            "ERYbICUqLzQ5PkNITVJXXA==",
            ["UVZbYGVqb3R5foOIjZKXnA==", "kZaboKWqr7S5vsPIzdLX3A=="],
        ),
        (
            Method::Blake3Aes256Gcm,
            "ERYbICUqLzQ5PkNITVJXXGFma3B1en+EiY6TmJ2ip6w=",
            [
                "UVZbYGVqb3R5foOIjZKXnKGmq7C1ur/Eyc7T2N3i5+w=",
                "kZaboKWqr7S5vsPIzdLX3OHm6/D1+v8ECQ4TGB0iJyw=",
            ],
        ),
    ] {
        let server_key =
            ServerKey::parse(method, port, [("a", users[0]), ("b", users[1])]).unwrap();
        let mut sessions = Vec::new();
        for (name, user) in [("a", users[0]), ("b", users[1])] {
            let key = ClientKey::parse(method, &format!("{port}:{user}")).unwrap();
            let mut client = ClientSession::with_id(&key, CLIENT);
            let mut packet = request_packet(&key, &mut client, b"x");
            let (server, _) = open_first(&server_key, &mut packet, None).unwrap();
            let user = &server_key.users()[usize::from(server.user().unwrap())];
            assert_eq!(user.name(), name);
            assert_eq!(server_key.user_by_identity(user.identity()), server.user());
            let next = request_packet(&key, &mut client, b"x");
            sessions.push((key, client, server, next));
        }
        let [mut one, mut two] = <[_; 2]>::try_from(sessions).ok().unwrap();
        assert_ne!(one.2.id(), two.2.id());
        // A caller that mixed them up is told, and nothing is opened.
        let error = open_next(&server_key, &mut one.2, &mut two.3.clone()).unwrap_err();
        assert_eq!(error, PacketReject::ForeignSession);
        // Keys of neither user, or of the port alone.
        let stranger = ClientKey::parse(method, &format!("{port}:{port}")).unwrap();
        let mut packet = request_packet(&stranger, &mut client(&stranger), b"x");
        assert_eq!(
            open_first(&server_key, &mut packet, None).err(),
            Some(PacketReject::UnknownUser)
        );
        let alone = ClientKey::parse(method, port).unwrap();
        let mut packet = request_packet(&alone, &mut client(&alone), &[7; 100]);
        assert_eq!(
            open_first(&server_key, &mut packet, None).err(),
            Some(PacketReject::UnknownUser)
        );

        // A reload with other users around moves the one and ends the other.
        let added = "3WZbYGVqb3R5foOIjZKXnA==";
        let added = if method.key_len() == 16 { added } else { port };
        let reloaded =
            ServerKey::parse(method, port, [("c", added), ("a again", users[0])]).unwrap();
        assert!(one.2.move_to(&server_key, &reloaded));
        let moved = usize::from(one.2.user().unwrap());
        assert_eq!(reloaded.users()[moved].name(), "a again");
        open_next(&reloaded, &mut one.2, &mut one.3.clone()).unwrap();
        let mut reply = reply_packet(&reloaded, &mut one.2, b"y");
        one.1.open(&one.0, &mut reply, NOW).unwrap();
        assert!(!two.2.move_to(&server_key, &reloaded));
        let without_users = ServerKey::parse(method, port, []).unwrap();
        assert!(!one.2.move_to(&reloaded, &without_users));
    }
}

#[test]
fn sessions_without_users_stay_with_their_key() {
    for method in METHODS {
        let (client_key, server_key) = keys(method, false);
        let mut packet = request_packet(&client_key, &mut client(&client_key), b"x");
        let (mut session, _) = open_first(&server_key, &mut packet, None).unwrap();
        assert!(session.move_to(&server_key, &server_key.clone()));
        let other = if method.is_2022() {
            ServerKey::parse(method, &data_encoding::BASE64.encode(&vec![3; method.key_len()]), [])
        } else {
            ServerKey::parse(method, "another", [])
        };
        let other = other.unwrap();
        assert_eq!(session.move_to(&server_key, &other), method == Method::None);
        let elsewhere = if method == Method::None { Method::Aes128Gcm } else { Method::None };
        let elsewhere = ServerKey::parse(elsewhere, "x", []).unwrap();
        assert!(!session.move_to(&server_key, &elsewhere));
    }
}

#[test]
fn sources_are_canonical_in_the_value_and_in_the_packet() {
    for method in METHODS {
        let (key, server_key) = keys(method, true);
        // A server of ours turns a mapped address into IPv4.
        let mut client = ClientSession::new(&key, &mut Rng::new().unwrap());
        let mut packet = request_packet(&key, &mut client, b"x");
        let (mut server, _) = open_first(&server_key, &mut packet, None).unwrap();
        let mut rng = Rng::new().unwrap();
        let mut env = Env { unix_s: NOW, rng: &mut rng };
        let (mut buf, at) = packets::roomy(b"pong");
        let mapped = "[::ffff:1.2.3.4]:53".parse().unwrap();
        let range = server.seal(&server_key, &mut buf, at, mapped, &mut env).unwrap();
        let packet = &mut buf[range];
        let opened = client.open(&key, packet, NOW).unwrap();
        assert_eq!(packet[opened.address], *b"\x01\x01\x02\x03\x04\x00\x35");

        // Others do not, or send text.
        for wire in [
            &b"\x04\0\0\0\0\0\0\0\0\0\0\xff\xff\x01\x02\x03\x04\x00\x35"[..],
            b"\x03\x071.2.3.4\x00\x35",
        ] {
            let rest = [wire, b"pong"].concat();
            let body = if method.is_2022() { body(1, NOW, &CLIENT, &[], &rest) } else { rest };
            let mut packet = forge(&key, Side::Server, Ids::new([3; 8], 0), &body);
            let mut session = if method.is_2022() {
                ClientSession::with_id(&key, CLIENT)
            } else {
                ClientSession::new(&key, &mut Rng::new().unwrap())
            };
            let opened = session.open(&key, &mut packet, NOW).unwrap();
            assert_eq!(opened.source.target().to_string(), "1.2.3.4:53");
            assert_eq!(opened.address.end, opened.payload.start);
            assert_eq!(packet[opened.address], *b"\x01\x01\x02\x03\x04\x00\x35");
            assert_eq!(&packet[opened.payload], b"pong");
            if !method.is_2022() {
                let salt = vec![0; method.salt_len()];
                assert_eq!(packet[opened.salt], salt, "the salt is left whole");
            }
        }
    }
}

#[test]
fn sip004_salts_and_2022_session_ids_are_fresh() {
    let mut seen = std::collections::BTreeSet::new();
    for method in ciphers() {
        let (client_key, server_key) = keys(method, true);
        for _ in 0..20 {
            let mut client = client(&client_key);
            let mut packet = request_packet(&client_key, &mut client, b"x");
            let outer = packet[..method.salt_len().min(16)].to_vec();
            assert!(seen.insert(outer));
            let (mut server, opened) = open_first(&server_key, &mut packet, None).unwrap();
            assert_eq!(opened.salt, 0..if method.is_2022() { 0 } else { method.salt_len() });
            let reply = reply_packet(&server_key, &mut server, b"x");
            assert!(seen.insert(reply[..method.salt_len().min(16)].to_vec()));
            if let Some(state) = &server.0 {
                assert_ne!(state.own_id, [0; 8]);
                assert_ne!(Some(state.own_id), client.id());
            }
        }
    }
}

#[test]
fn none_carries_the_address_and_the_payload_alone() {
    let (client_key, server_key) = keys(Method::None, false);
    let mut session = client(&client_key);
    let packet = request_packet(&client_key, &mut session, b"ping");
    assert_eq!(packet, [target().as_bytes(), b"ping"].concat());
    let (mut server, opened) = open_first(&server_key, &mut packet.clone(), None).unwrap();
    assert_eq!(
        (server.id(), server.user(), server.remains().and_then(|r| r.highest)),
        (None, None, None)
    );
    assert_eq!(&packet[opened.payload], b"ping");
    let mut reply = reply_packet(&server_key, &mut server, b"");
    assert_eq!(reply.len(), 19);
    assert_eq!(session.open(&client_key, &mut reply, NOW).unwrap().payload, 19..19);
    assert_eq!(source().port(), 53);
    assert_eq!(open_first(&server_key, &mut [], None).err(), Some(PacketReject::TooShort));
}

#[test]
fn errors_have_labels_and_texts_of_their_own() {
    let all = [
        PacketReject::TooShort,
        PacketReject::UnknownUser,
        PacketReject::NotAuthentic,
        PacketReject::WrongType(9),
        PacketReject::ClockSkew { difference_s: -38 },
        PacketReject::Replayed,
        PacketReject::BadPadding,
        PacketReject::BadAddress(AddressError::EmptyName),
        PacketReject::ForeignSession,
        PacketReject::TooManySessions,
    ];
    let labels: std::collections::BTreeSet<_> = all.iter().map(|e| e.as_label()).collect();
    let texts: std::collections::BTreeSet<_> = all.iter().map(ToString::to_string).collect();
    assert_eq!((labels.len(), texts.len()), (all.len(), all.len()));
    assert!(all[4].to_string().contains("-38 s"));
    assert!(!crate::SessionExhausted.to_string().is_empty());
    assert_eq!(crate::SessionExhausted.as_label(), "session_exhausted");
}

#[test]
fn a_session_id_prints_no_user() {
    let (client_key, server_key) = keys(Method::Blake3Aes128Gcm, true);
    let mut session = ClientSession::with_id(&client_key, CLIENT);
    let mut packet = request_packet(&client_key, &mut session, b"x");
    let (server, _): (ServerSession, _) = open_first(&server_key, &mut packet, None).unwrap();
    assert_eq!(format!("{:?}", server.id().unwrap()), "SessionId(636c69656e742d31)");
}
