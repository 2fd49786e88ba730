//! Relays in front of servers: streams and datagrams, one hop after another.

use super::packets::{client, open_first, open_next, reply_packet, request_packet};
use super::*;
use crate::fuzz::Reader;
use crate::{KeyError, PacketReject, Reject, RelayKey};

/// Keys of both lengths: relay, relay, port, user.
fn psks(method: Method) -> [String; 4] {
    [1, 2, 3, 4].map(|seed: u8| {
        let key: Vec<u8> = (0..method.key_len()).map(|i| seed * 50 + i as u8).collect();
        data_encoding::BASE64.encode(&key)
    })
}

fn relayed() -> impl Iterator<Item = Method> {
    METHODS.into_iter().filter(|m| m.supports_identity())
}

#[test]
fn a_stream_passes_two_relays_to_a_user() {
    for method in relayed() {
        let [outer, inner, port, user] = psks(method);
        let client_key =
            ClientKey::parse(method, &format!("{outer}:{inner}:{port}:{user}")).unwrap();
        let first = RelayKey::parse(method, &outer, [port.as_str(), &inner]).unwrap();
        let second = RelayKey::parse(method, &inner, [port.as_str()]).unwrap();
        let server_key = ServerKey::parse(method, &port, [("u", user.as_str())]).unwrap();
        assert_eq!((first.method(), first.hops(), second.hops()), (method, 2, 1));

        let (_, salt, mut stream) = request(&client_key, target().as_bytes(), b"hello");
        let peeled = first.peel(&mut stream).unwrap();
        assert_eq!((peeled.next, peeled.forward.clone()), (1, 16..stream.len()));
        let mut stream = stream[peeled.forward].to_vec();
        let peeled = second.peel(&mut stream).unwrap();
        assert_eq!(peeled.next, 0);
        let stream = &stream[peeled.forward];
        assert_eq!(stream[..method.salt_len()], salt[..method.salt_len()]);
        let mut reader = Reader::server(&server_key, NOW, None);
        reader.feed(stream).unwrap();
        assert_eq!(reader.plain, b"hello");
        assert_eq!(reader.request.unwrap().1, Some(0));
    }
}

#[test]
fn packets_pass_two_relays_and_replies_none() {
    for method in relayed() {
        let [outer, inner, port, user] = psks(method);
        let client_key =
            ClientKey::parse(method, &format!("{outer}:{inner}:{port}:{user}")).unwrap();
        let first = RelayKey::parse(method, &outer, [inner.as_str(), &user]).unwrap();
        let second = RelayKey::parse(method, &inner, [user.as_str(), &port]).unwrap();
        let server_key = ServerKey::parse(method, &port, [("u", user.as_str())]).unwrap();
        let mut client = client(&client_key);
        let mut server = None;
        for payload in [&b"one"[..], b"", b"three"] {
            let mut packet = request_packet(&client_key, &mut client, payload);
            let peeled = first.peel_packet(&mut packet).unwrap();
            assert_eq!(peeled.next, 0);
            assert_eq!(Some(peeled.session.id()), client.id());
            let packet = &mut packet[peeled.forward];
            let peeled = second.peel_packet(packet).unwrap();
            assert_eq!((peeled.next, Some(peeled.session.id())), (1, client.id()));
            let packet = &mut packet[peeled.forward];
            let opened = match &mut server {
                None => {
                    let (session, opened) = open_first(&server_key, packet, None).unwrap();
                    server = Some(session);
                    opened
                }
                Some(session) => open_next(&server_key, session, packet).unwrap(),
            };
            assert_eq!(&packet[opened.payload], payload);
        }
        let mut server = server.unwrap();
        let mut reply = reply_packet(&server_key, &mut server, b"back");
        let opened = client.open(&client_key, &mut reply, NOW).unwrap();
        assert_eq!(&reply[opened.payload], b"back");
    }
}

#[test]
fn what_names_no_hop_is_refused_and_left_alone() {
    for method in relayed() {
        let [outer, inner, port, user] = psks(method);
        let client_key = ClientKey::parse(method, &format!("{outer}:{user}")).unwrap();
        let relays = [
            RelayKey::parse(method, &outer, [inner.as_str(), &port]).unwrap(),
            RelayKey::parse(method, &inner, [user.as_str()]).unwrap(),
            RelayKey::parse(method, &outer, []).unwrap(),
        ];
        let (_, _, stream) = request(&client_key, target().as_bytes(), b"hello");
        let packet = request_packet(&client_key, &mut client(&client_key), b"hello");
        for relay in &relays {
            let mut bytes = stream.clone();
            assert_eq!(relay.peel(&mut bytes), Err(Reject::UnknownUser));
            assert_eq!(bytes, stream);
            let mut bytes = packet.clone();
            assert_eq!(relay.peel_packet(&mut bytes), Err(PacketReject::UnknownUser));
            assert_eq!(bytes, packet);
        }
        // The right relay, with any bit of the header wrong, or too little behind it.
        let relay = RelayKey::parse(method, &outer, [user.as_str()]).unwrap();
        for bit in 0..8 * 32 {
            let mut bytes = packet.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(relay.peel_packet(&mut bytes), Err(PacketReject::UnknownUser));
        }
        for bit in 0..8 * (method.salt_len() + 16) {
            let mut bytes = stream.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(relay.peel(&mut bytes), Err(Reject::UnknownUser));
        }
        let expected = method.salt_len() + 16 + 27;
        for actual in 0..expected {
            let end = relay.peel(&mut stream[..actual].to_vec());
            assert_eq!(end, Err(Reject::ShortFirstSegment { expected, actual }));
        }
        relay.peel(&mut stream[..expected].to_vec()).unwrap();
        for len in 0..59 {
            let end = relay.peel_packet(&mut packet[..len].to_vec());
            assert_eq!(end, Err(PacketReject::TooShort));
        }
    }
}

#[test]
fn keys_that_no_relay_can_have_are_refused() {
    for method in METHODS {
        let error = |key: &str, next: &[&str]| {
            RelayKey::parse(method, key, next.iter().copied()).err().unwrap()
        };
        if !method.supports_identity() {
            assert_eq!(error("x", &[]), KeyError::NoIdentity);
            continue;
        }
        let [a, b, c, _] = psks(method);
        assert_eq!(error("", &[&a]), KeyError::Empty);
        assert_eq!(error(&a, &[""]), KeyError::Empty);
        assert_eq!(error(&a, &[&format!("{b}:{c}")]), KeyError::OneKey);
        assert_eq!(error(&format!("{b}:{c}"), &[&a]), KeyError::OneKey);
        assert_eq!(error(&a, &[&b, &c, &b]), KeyError::DuplicateHop);
        assert_eq!(error("!", &[&b]), KeyError::NotBase64);
        assert!(!KeyError::DuplicateHop.to_string().contains(&b));
        assert!(!KeyError::TooManyHops.to_string().is_empty());
        let one = RelayKey::parse(method, &a, [b.as_str(), &c]).unwrap();
        assert!(one == one.clone());
        assert!(one != RelayKey::parse(method, &a, [c.as_str(), &b]).unwrap());
        assert!(one != RelayKey::parse(method, &b, [b.as_str(), &c]).unwrap());
    }
}
