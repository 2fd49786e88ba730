//! Known answers for datagrams, byte for byte in both directions.

use adit_wire::Target;
use serde_json::Value;

use super::packets::open_first;
use super::vectors::{bytes, cases, method, text};
use super::*;
use crate::packet::sip004;
use crate::packet::sip022::{BodyHead, Direction, Ids, Seal};
use crate::{ClientSession, PACKET_TAILROOM, PacketReject, RelayKey};

fn session_id(case: &Value, field: &str) -> [u8; 8] {
    bytes(case, field).try_into().unwrap()
}

fn is_request(case: &Value) -> bool {
    case["server_session_id"].is_null()
}

fn packet_id(case: &Value) -> u64 {
    case["packet_id"].as_u64().unwrap()
}

/// The client's key, and the server's it ends at: with the user where there is an identity.
fn case_keys(case: &Value) -> (ClientKey, ServerKey) {
    let method = method(case);
    let field = case["password_field"].as_str().unwrap_or_else(|| text(case, "psk"));
    let client = ClientKey::parse(method, field).unwrap();
    let keys: Vec<&str> = field.split(':').collect();
    let server = match keys.as_slice() {
        [.., port, user] => ServerKey::parse(method, port, [("user", *user)]),
        _ => ServerKey::parse(method, field, []),
    };
    (client, server.unwrap())
}

#[test]
fn sip004_packets_are_sealed_byte_for_byte_and_read_back() {
    for case in cases("sip004_udp", 20) {
        let method = method(&case);
        let client_key = ClientKey::parse(method, text(&case, "password")).unwrap();
        let server_key = ServerKey::parse(method, text(&case, "password"), []).unwrap();
        let (address, payload) = (bytes(&case, "address"), bytes(&case, "payload"));
        let salt = bytes(&case, "salt");
        let head_len = salt.len() + address.len();
        let mut buf = [&vec![0; head_len], payload.as_slice(), &[0; PACKET_TAILROOM]].concat();
        let at = head_len..head_len + payload.len();
        let key = client_key.session();
        let range = sip004::seal_with(method, key, &salt, &address, &mut buf, at);
        let mut packet = bytes(&case, "packet");
        assert_eq!(buf[range], packet, "{method} {}", text(&case, "name"));

        if text(&case, "name").starts_with("request") {
            let (_, opened) = open_first(&server_key, &mut packet, None).unwrap();
            assert_eq!(opened.target.as_bytes(), address);
            assert_eq!((&packet[opened.payload], &packet[opened.salt]), (&payload[..], &salt[..]));
        } else {
            let mut session = ClientSession::new(&client_key, &mut Rng::new().unwrap());
            let opened = session.open(&client_key, &mut packet, NOW).unwrap();
            assert_eq!(&packet[opened.address], address);
            assert_eq!((&packet[opened.payload], &packet[opened.salt]), (&payload[..], &salt[..]));
        }
    }
}

/// Seals a case with the ids and keys that a session hands out, in the padding it asks for.
fn seal_case(case: &Value, ids: Ids, mut seal: Seal<'_>) -> Vec<u8> {
    if let Seal::ChaCha { nonce, .. } = &mut seal {
        *nonce = bytes(case, "nonce").try_into().unwrap();
    }
    let body = bytes(case, "body");
    // A ChaCha body of the vectors starts with the ids.
    let body = if matches!(seal, Seal::ChaCha { .. }) { &body[16..] } else { &body[..] };
    let direction = if is_request(case) {
        Direction::Request
    } else {
        Direction::Response { client_session: session_id(case, "client_session_id") }
    };
    let (address, payload) = (bytes(case, "address"), bytes(case, "payload"));
    let padding_at = direction.head_len();
    let padding_len = body.len() - padding_at - address.len() - payload.len();
    let head = BodyHead { direction, unix_s: NOW, padding_len, address: &address };
    let head_len = seal.outer_len() + head.len();
    let mut buf = [&vec![0; head_len], payload.as_slice(), &[0; PACKET_TAILROOM]].concat();
    if padding_len == 0 {
        let range = seal.seal(ids, &head, &mut buf, &(head_len..head_len + payload.len()));
        return buf[range].to_vec();
    }
    // We pad with zeros and these do not.
    let at = seal.outer_len();
    head.write(&mut buf[at..]);
    let padding = at + padding_at..at + padding_at + padding_len;
    assert!(buf[padding.clone()].iter().all(|&b| b == 0));
    buf[padding].copy_from_slice(&body[padding_at..padding_at + padding_len]);
    assert_eq!(&buf[at..at + body.len()], body, "{}", text(case, "name"));
    seal.protect(ids, &mut buf);
    buf
}

fn check_request(case: &Value) {
    let (client_key, server_key) = case_keys(case);
    let id = session_id(case, "client_session_id");
    let mut session = ClientSession::with_id(&client_key, id);
    let state = session.0.as_mut().unwrap();
    state.next_packet_id = packet_id(case);
    let (ids, seal) = state.next_seal(&client_key, &mut Rng::new().unwrap()).unwrap();
    let mut packet = bytes(case, "packet");
    assert_eq!(seal_case(case, ids, seal), packet, "{}", text(case, "name"));

    let mut at = 0;
    if let Some(relayed) = case["after_first_relay"].as_str() {
        let field: Vec<&str> = text(case, "password_field").split(':').collect();
        let relay = RelayKey::parse(method(case), field[0], [field[1]]).unwrap();
        let peeled = relay.peel_packet(&mut packet).unwrap();
        assert_eq!((peeled.next, peeled.session.id()), (0, id));
        assert_eq!(packet[peeled.forward.clone()], vectors::hex(relayed));
        at = peeled.forward.start;
    }
    let packet = &mut packet[at..];
    let (session, opened) = open_first(&server_key, packet, None).unwrap();
    assert_eq!(opened.target.as_bytes(), bytes(case, "address"));
    assert_eq!(packet[opened.payload], bytes(case, "payload"));
    assert_eq!(session.user(), (!server_key.users().is_empty()).then_some(0));
    assert_eq!(session.id().unwrap().id(), id);
    assert_eq!(session.remains().and_then(|r| r.highest), Some(packet_id(case)));
}

fn check_reply(case: &Value) {
    let (mut client_key, mut server_key) = case_keys(case);
    if text(case, "name").contains("identity-header user") {
        // The port's key has no part in replies.
        let port = if client_key.method().key_len() == 16 {
            "kZaboKWqr7S5vsPIzdLX3A=="
        } else {
            "kZaboKWqr7S5vsPIzdLX3OHm6/D1+v8ECQ4TGB0iJyw="
        };
        let user = text(case, "psk");
        client_key = ClientKey::parse(method(case), &format!("{port}:{user}")).unwrap();
        server_key = ServerKey::parse(method(case), port, [("user", user)]).unwrap();
    }
    let id = session_id(case, "client_session_id");
    let mut client = ClientSession::with_id(&client_key, id);
    let mut first = packets::request_packet(&client_key, &mut client, b"x");
    let (mut server, _) = open_first(&server_key, &mut first, None).unwrap();
    let state = server.0.as_mut().unwrap();
    state.own_id = session_id(case, "server_session_id");
    state.next_packet_id = packet_id(case);
    let (ids, seal) = state.next_seal(&server_key, &mut Rng::new().unwrap()).unwrap();
    let mut packet = bytes(case, "packet");
    assert_eq!(seal_case(case, ids, seal), packet, "{}", text(case, "name"));

    let opened = client.open(&client_key, &mut packet, NOW).unwrap();
    assert_eq!(opened.source.as_bytes(), bytes(case, "address"));
    assert_eq!(packet[opened.address], bytes(case, "address"));
    assert_eq!(packet[opened.payload], bytes(case, "payload"));
    // The same without padding goes through the whole of `seal`.
    let address = bytes(case, "address");
    let target = Target::parse(&address).unwrap().0;
    let adit_wire::Host::Ip(ip) = target.host else { panic!("the source of a reply") };
    let mut rng = Rng::new().unwrap();
    let mut env = Env { unix_s: NOW, rng: &mut rng };
    let (mut buf, at) = packets::roomy(&bytes(case, "payload"));
    server.0.as_mut().unwrap().next_packet_id = packet_id(case);
    let source = (ip, target.port).into();
    let range = server.seal(&server_key, &mut buf, at, source, &mut env).unwrap();
    if !text(case, "name").contains("padding") && method(case).supports_identity() {
        assert_eq!(buf[range], bytes(case, "packet"));
    }
}

#[test]
fn sip022_packets_are_sealed_byte_for_byte_and_read_back() {
    for case in cases("sip022_udp", 26) {
        if is_request(&case) {
            check_request(&case);
        } else {
            check_reply(&case);
        }
    }
}

#[test]
fn sip022_faults_are_refused_and_leave_the_window_alone() {
    for case in cases("sip022_udp_negative", 10) {
        let (client_key, server_key) = case_keys(&case);
        let name = text(&case, "name");
        let check = |error: PacketReject| match name {
            "timestamp 31 s old" => {
                assert_eq!(error, PacketReject::ClockSkew { difference_s: -31 });
            }
            "server type sent to server" => assert_eq!(error, PacketReject::WrongType(1)),
            _ => assert_eq!(
                error,
                PacketReject::BadAddress(adit_wire::AddressError::Incomplete),
                "{name}"
            ),
        };
        check(open_first(&server_key, &mut bytes(&case, "packet"), None).err().unwrap());

        let mut client =
            ClientSession::with_id(&client_key, session_id(&case, "client_session_id"));
        let mut first = packets::request_packet(&client_key, &mut client, b"x");
        let (mut server, _) = open_first(&server_key, &mut first, None).unwrap();
        for _ in 0..2 {
            let packet = &mut bytes(&case, "packet");
            check(packets::open_next(&server_key, &mut server, packet).unwrap_err());
            assert_eq!(server.remains().and_then(|r| r.highest), Some(0));
        }
        client.0.as_mut().unwrap().next_packet_id = packet_id(&case);
        let mut packet = packets::request_packet(&client_key, &mut client, b"x");
        packets::open_next(&server_key, &mut server, &mut packet).unwrap();
    }
}

#[test]
fn a_whole_request_without_drawn_bytes_is_the_vector() {
    for case in cases("sip022_udp", 26) {
        if !is_request(&case) || text(&case, "name").contains("5 bytes padding") {
            continue;
        }
        let (client_key, _) = case_keys(&case);
        if !client_key.method().supports_identity() {
            continue;
        }
        let id = session_id(&case, "client_session_id");
        let mut session = ClientSession::with_id(&client_key, id);
        let address = bytes(&case, "address");
        let target = Target::parse(&address).unwrap().0.into();
        let mut rng = Rng::new().unwrap();
        let mut env = Env { unix_s: NOW, rng: &mut rng };
        let (mut buf, at) = packets::roomy(&bytes(&case, "payload"));
        let range = session.seal(&client_key, &mut buf, at, &target, &mut env).unwrap();
        assert_eq!(buf[range], bytes(&case, "packet"), "{}", text(&case, "name"));
    }
}
