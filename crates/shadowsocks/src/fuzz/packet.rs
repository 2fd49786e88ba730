//! Bodies of the datagram targets: a packet is honest junk, or forged with the right key so that
//! the parsers behind the authentication are reached, and then flipped or not.

use std::ops::Range;

use adit_crypto::{Rng, TAG_LEN};
use adit_wire::TargetBuf;

use super::{NOW, flip, keys, method};
use crate::packet::sip022::{Ids, NONCE_LEN, Seal};
use crate::packet::{PacketKeys, sip004};
use crate::seal::{TYPE_REQUEST, TYPE_RESPONSE, session_key};
use crate::{
    ClientKey, ClientSession, Env, Method, PACKET_HEADROOM, PACKET_TAILROOM, PacketReject,
    RelayKey, SALT_LEN_MAX, ServerSession,
};

/// The id of every client session here.
const CLIENT: [u8; 8] = [0x5a; 8];

/// Which side a forged packet pretends to come from.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Side {
    Client,
    Server,
}

/// Seals `body`, be it anything at all, with the right keys.
pub(crate) fn forge(key: &ClientKey, side: Side, ids: Ids, body: &[u8]) -> Vec<u8> {
    let method = key.method();
    let session = session_key(method, key.session(), &ids.session());
    let seal = match (key.packet_keys(), &session) {
        (PacketKeys::Blocks(blocks), Some(body_key)) => {
            let (header_key, identities) = match side {
                Side::Client => (&blocks[0], key.identities()),
                Side::Server => (&blocks[blocks.len() - 1], &[][..]),
            };
            Seal::Aes { header_key, identity_keys: blocks, identities, body_key }
        }
        (PacketKeys::Body(body_key), _) => {
            Seal::ChaCha { nonce: [ids.packet() as u8; NONCE_LEN], body_key }
        }
        _ => {
            let salt = [ids.packet() as u8; SALT_LEN_MAX];
            let salt = &salt[..method.salt_len()];
            let mut packet = [salt, body, &[0; TAG_LEN]].concat();
            let payload = salt.len()..salt.len() + body.len();
            let range = sip004::seal_with(method, key.session(), salt, &[], &mut packet, payload);
            packet.truncate(range.end);
            return packet;
        }
    };
    let mut packet = vec![0; seal.outer_len()];
    packet.extend_from_slice(body);
    packet.extend_from_slice(&[0; TAG_LEN]);
    seal.protect(ids, &mut packet);
    packet
}

/// What the input makes of a packet: the bytes, and whether somebody with the key sealed them.
struct Drawn {
    packet: Vec<u8>,
    honest: bool,
}

fn draw(key: &ClientKey, side: Side, [_, seed, flags, at]: [u8; 4], rest: &[u8]) -> Drawn {
    if flags & 2 == 0 {
        return Drawn { packet: rest.to_vec(), honest: key.method() == Method::None };
    }
    let mut body = Vec::new();
    // With or without a good beginning.
    if key.method().is_2022() && flags & 64 == 0 {
        body.push(if side == Side::Client { TYPE_REQUEST } else { TYPE_RESPONSE });
        let skew = (at.cast_signed() / 4).into();
        body.extend_from_slice(&NOW.saturating_add_signed(skew).to_be_bytes());
        if side == Side::Server {
            body.extend_from_slice(&CLIENT);
        }
    }
    body.extend_from_slice(rest);
    let session = if side == Side::Client { CLIENT } else { [seed; 8] };
    let mut packet = forge(key, side, Ids::new(session, u64::from(seed) << 56 | 7), &body);
    let flipped = flip(flags, at, seed, &mut packet);
    Drawn { packet, honest: !flipped || key.method() == Method::None }
}

/// Request packets, read by a server, which answers what it accepts.
pub fn packet_server(data: &[u8]) {
    let Some((&prefix, rest)) = data.split_first_chunk() else { return };
    let (client_key, key) = keys(method(prefix[0]), prefix[2] & 1 != 0);
    let Drawn { packet, honest } = draw(&client_key, Side::Client, prefix, rest);
    let Ok(mut rng) = Rng::new() else { return };
    let mut env = Env { unix_s: NOW, rng: &mut rng };
    let Ok(head) = key.peek(&packet) else { return };
    let mut bytes = packet.clone();
    let first = ServerSession::open_first(&key, &head, &mut bytes, None, &mut env);
    let Ok((mut session, opened)) = first else { return };
    assert!(honest, "a packet that nobody sealed");
    check_ranges(&bytes, &opened.payload, None, &opened.target);
    assert_eq!(session.id(), head.session);

    let again = session.open(&key, &head, &mut packet.clone(), NOW);
    let resumed = session.remains().map(|remains| {
        let packet = &mut packet.clone();
        ServerSession::open_first(&key, &head, packet, Some(remains), &mut env).map(drop)
    });
    if key.method().is_2022() {
        assert_eq!(again.err(), Some(PacketReject::Replayed));
        assert_eq!(resumed, Some(Err(PacketReject::Replayed)));
    } else {
        assert_eq!(again.map(|o| o.payload), Ok(opened.payload));
    }

    let mut buf = [&[0xee; PACKET_HEADROOM][..], rest, &[0xee; PACKET_TAILROOM]].concat();
    let payload = PACKET_HEADROOM..PACKET_HEADROOM + rest.len();
    let source = ([1, 2, 3, 4], 5).into();
    let reply = session.seal(&key, &mut buf, payload, source, &mut env).expect("the first id");
    let mut client = match session.id() {
        Some(id) => ClientSession::with_id(&client_key, id.id()),
        None => ClientSession::new(&client_key, env.rng),
    };
    let reply = &mut buf[reply];
    let opened = client.open(&client_key, reply, NOW).expect("an honest reply");
    assert_eq!(&reply[opened.payload], rest, "a reply of other content");
}

/// Reply packets, read by a client; the input as for [`packet_server`].
pub fn packet_client(data: &[u8]) {
    let Some((&prefix, rest)) = data.split_first_chunk() else { return };
    let (key, _) = keys(method(prefix[0]), prefix[2] & 1 != 0);
    let Drawn { mut packet, honest } = draw(&key, Side::Server, prefix, rest);
    let Ok(mut rng) = Rng::new() else { return };
    let mut session = if key.method().is_2022() {
        ClientSession::with_id(&key, CLIENT)
    } else {
        ClientSession::new(&key, &mut rng)
    };
    let mut bytes = packet.clone();
    let Ok(opened) = session.open(&key, &mut bytes, NOW) else { return };
    assert!(honest, "a packet that nobody sealed");
    check_ranges(&bytes, &opened.payload, Some(&opened.address), &opened.source);
    let again = session.open(&key, &mut packet, NOW);
    if key.method().is_2022() {
        assert_eq!(again.err(), Some(PacketReject::Replayed));
    } else {
        assert_eq!(again.map(|o| o.payload), Ok(opened.payload));
    }
}

/// Packets and first bytes of streams at a relay.
pub fn packet_relay(data: &[u8]) {
    let Some((&prefix, rest)) = data.split_first_chunk() else { return };
    let method = if prefix[0] & 1 == 0 { Method::Blake3Aes128Gcm } else { Method::Blake3Aes256Gcm };
    let (password, user) = super::PASSWORDS[usize::from(method.key_len() == 32)];
    let relay = RelayKey::parse(method, password, [user]).expect("the keys above fit");
    let (client_key, _) = keys(method, true);
    let Drawn { packet, honest } = draw(&client_key, Side::Client, prefix, rest);

    let mut stream = packet.clone();
    match relay.peel(&mut stream) {
        Err(_) => assert_eq!(stream, packet, "changed and refused"),
        // Identity headers of packets and streams are under different keys.
        Ok(peeled) => panic!("a stream that nobody sealed: {peeled:?}"),
    }

    let mut bytes = packet.clone();
    let Ok(peeled) = relay.peel_packet(&mut bytes) else {
        assert_eq!(bytes, packet, "changed and refused");
        return;
    };
    assert_eq!((peeled.next, peeled.forward.clone()), (0, 16..packet.len()));
    if prefix[2] & 2 == 0 {
        panic!("a packet that nobody sealed");
    }
    // Behind the relay stands a server with the user's key alone.
    let last = crate::ServerKey::parse(method, user, []).expect("the keys above fit");
    let forward = &mut bytes[peeled.forward];
    let head = last.peek(forward).expect("long enough for a relay");
    assert_eq!(head.session.map(|s| s.id()), Some(peeled.session.id()));
    let Ok(mut rng) = Rng::new() else { return };
    let mut env = Env { unix_s: NOW, rng: &mut rng };
    let opened = ServerSession::open_first(&last, &head, forward, None, &mut env);
    assert!(honest || opened.is_err(), "a packet that nobody sealed");
}

fn check_ranges(
    packet: &[u8],
    payload: &Range<usize>,
    address: Option<&Range<usize>>,
    target: &TargetBuf,
) {
    assert!(payload.start <= payload.end && payload.end <= packet.len());
    assert!(target.as_bytes().len() <= adit_wire::TARGET_LEN_MAX);
    let Some(address) = address else { return };
    assert_eq!(address.end, payload.start, "address and payload touch");
    let (parsed, used) = adit_wire::Target::parse(&packet[address.clone()]).expect("checked");
    assert_eq!((parsed, used), (target.target(), address.len()));
}
