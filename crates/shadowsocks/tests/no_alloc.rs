//! Counts heap allocations of streams and datagrams: none once keys are loaded and the thread is prepared.

#![allow(clippy::unwrap_used, reason = "the functions here are a test's")]

use std::sync::Mutex;

use adit_counting_allocator::allocations;
use adit_crypto::Rng;
use adit_shadowsocks::{
    Accepted, ClientHandshake, ClientKey, ClientSession, Env, Method, PACKET_HEADROOM,
    PACKET_TAILROOM, PADDED_LEN_MAX, PacketReject, RECORD_HEAD_MAX, RECORD_TAIL, Reject, RelayKey,
    ReplaySet, Sealer, ServerHandshake, ServerKey, ServerSession, Verdict,
};
use adit_wire::{Target, TargetBuf};

const NOW: u64 = 1_700_000_000;
const RECORDS: usize = 1000;
const PAYLOAD_LEN: usize = 600;
const TARGET: &[u8] = b"\x03\x0bexample.com\x01\xbb";
const PSKS: [&str; 2] =
    ["ERYbICUqLzQ5PkNITVJXXA==", "ERYbICUqLzQ5PkNITVJXXGFma3B1en+EiY6TmJ2ip6w="];
const USER_PSKS: [&str; 2] =
    ["UVZbYGVqb3R5foOIjZKXnA==", "UVZbYGVqb3R5foOIjZKXnKGmq7C1ur/Eyc7T2N3i5+w="];

fn keys(method: Method) -> (ClientKey, ServerKey) {
    let long = usize::from(method.key_len() == 32);
    if !method.supports_identity() {
        let client = ClientKey::parse(method, PSKS[long]).unwrap();
        return (client, ServerKey::parse(method, PSKS[long], []).unwrap());
    }
    let client = ClientKey::parse(method, &format!("{}:{}", PSKS[long], USER_PSKS[long])).unwrap();
    let server = ServerKey::parse(method, PSKS[long], [("user", USER_PSKS[long])]).unwrap();
    (client, server)
}

/// A request with its first payload, the response, and records in both directions.
fn run(
    client_key: &ClientKey,
    server_key: &ServerKey,
    replay: &Mutex<ReplaySet>,
    rng: &mut Rng,
    buf: &mut [u8],
    payload_len: usize,
) {
    let method = client_key.method();
    let mut env = Env { unix_s: NOW, rng };
    let (mut request, salt, len) = Sealer::request(client_key, TARGET, &mut env, buf, payload_len);
    let mut at = 0;
    let mut handshake = ServerHandshake::new();
    let accepted = handshake
        .advance(server_key, NOW, Some(replay), &mut buf[..len], &mut at)
        .unwrap()
        .expect("a whole request");
    assert_eq!((at, accepted.payload.len()), (len, payload_len));
    assert_eq!(accepted.target.as_bytes(), TARGET);

    let session = Accepted::session(server_key, accepted.user);
    let (mut response, len) =
        Sealer::response(method, session, &accepted.request_salt, &mut env, buf, PAYLOAD_LEN);
    let mut at = 0;
    let mut handshake = ClientHandshake::new(salt);
    let mut answer = handshake
        .advance(client_key, NOW, Some(replay), &mut buf[..len], &mut at)
        .unwrap()
        .expect("a whole response");
    if answer.payload.is_empty() {
        answer.payload = answer.opener.open(&mut buf[..len], &mut at).unwrap().unwrap();
    }
    assert_eq!((at, answer.payload.len()), (len, PAYLOAD_LEN));

    let mut opener = accepted.opener;
    for _ in 0..RECORDS {
        for (sealer, opener) in [(&mut request, &mut opener), (&mut response, &mut answer.opener)] {
            let len = sealer.seal(buf, PAYLOAD_LEN);
            let mut at = 0;
            let payload = opener.open(&mut buf[..len], &mut at).unwrap().unwrap();
            assert_eq!((at, payload.len()), (len, PAYLOAD_LEN));
        }
    }
    if method != Method::None {
        let len = request.seal(buf, PAYLOAD_LEN);
        buf[len - 1] ^= 1;
        assert_eq!(opener.open(&mut buf[..len], &mut 0), Err(Reject::Authentication));
    }
}

#[test]
fn streams_allocate_nothing_once_keys_are_loaded() {
    let mut rng = Rng::new().unwrap();
    let mut buf = vec![0; RECORD_HEAD_MAX + PAYLOAD_LEN.max(PADDED_LEN_MAX) + RECORD_TAIL];
    let replay = Mutex::new(ReplaySet::by_age(1000, 60));
    for method in Method::ALL {
        let (client_key, server_key) = keys(method);
        let count = allocations(|| {
            for len in [0, PAYLOAD_LEN] {
                run(&client_key, &server_key, &replay, &mut rng, &mut buf, len);
            }
        });
        assert_eq!(count, 0, "{method}");
    }
    assert_eq!(allocations(|| drop(std::hint::black_box(Box::new(1)))), 1, "the counter counts");
}

/// Sessions on both sides, datagrams both ways, a replay, a forgery and a relay.
fn run_datagrams(
    client_key: &ClientKey,
    server_key: &ServerKey,
    relay: Option<&RelayKey>,
    rng: &mut Rng,
    buf: &mut [u8],
    target: &TargetBuf,
) {
    let mut client = ClientSession::new(client_key, rng);
    let mut server: Option<ServerSession> = None;
    let mut env = Env { unix_s: NOW, rng };
    for n in 0..RECORDS {
        let len = if n % 10 == 0 { 0 } else { PAYLOAD_LEN };
        let payload = PACKET_HEADROOM..PACKET_HEADROOM + len;
        let range = client.seal(client_key, buf, payload.clone(), target, &mut env).unwrap();
        if let Some(relay) = relay {
            // It names a user and no hop of this relay.
            assert!(relay.peel_packet(&mut buf[range.clone()]).is_err());
        }
        let packet = &mut buf[range.clone()];
        let head = server_key.peek(packet).unwrap();
        let opened = match &mut server {
            Some(session) => session.open(server_key, &head, packet, NOW).unwrap(),
            None => {
                let first = ServerSession::open_first(server_key, &head, packet, None, &mut env);
                let (session, opened) = first.unwrap();
                server = Some(session);
                opened
            }
        };
        assert_eq!((opened.payload.len(), opened.target), (len, *target));
        let session = server.as_mut().unwrap();
        if client_key.method().is_2022() {
            let again = session.open(server_key, &head, packet, NOW);
            assert_eq!(again.err(), Some(PacketReject::Replayed));
        }
        let source = ([192, 0, 2, 1], 53).into();
        let range = session.seal(server_key, buf, payload.clone(), source, &mut env).unwrap();
        let opened = client.open(client_key, &mut buf[range], NOW).unwrap();
        assert_eq!(opened.payload.len(), len);
        if client_key.method() != Method::None {
            let range = session.seal(server_key, buf, payload, source, &mut env).unwrap();
            buf[range.end - 1] ^= 1;
            let forged = client.open(client_key, &mut buf[range], NOW);
            assert_eq!(forged.err(), Some(PacketReject::NotAuthentic));
        }
    }
}

#[test]
fn datagrams_allocate_nothing_once_keys_are_loaded() {
    let mut rng = Rng::new().unwrap();
    let mut buf = vec![0; PACKET_HEADROOM + PAYLOAD_LEN + PACKET_TAILROOM];
    let target = Target::parse(TARGET).unwrap().0.into();
    for method in Method::ALL {
        let (client_key, server_key) = keys(method);
        let psk = PSKS[usize::from(method.key_len() == 32)];
        let relay = RelayKey::parse(method, psk, [psk]).ok();
        let count = allocations(|| {
            let relay = relay.as_ref();
            run_datagrams(&client_key, &server_key, relay, &mut rng, &mut buf, &target);
        });
        assert_eq!(count, 0, "{method}");
    }
}

#[test]
fn stores_allocate_nothing_as_they_grow_and_turn_over() {
    for mut set in [ReplaySet::by_count(5000), ReplaySet::by_age(20_000, 60)] {
        let count = allocations(|| {
            for n in 0..20_000_u64 {
                assert_eq!(set.check_and_insert(&n.to_le_bytes(), NOW + n / 100), Verdict::Fresh);
            }
        });
        assert_eq!(count, 0);
    }
}
