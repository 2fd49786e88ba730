use std::time::Duration;

use adit_resolver::Order;
use adit_shadowsocks::{Method, RelayKey};
use adit_sys::datagram::DatagramOptions;
use adit_sys::net::{OutboundOptions, StreamOptions};

use super::*;
use crate::role::{Datagrams, Limits, RoleKind};

const LISTENER: Key = Key { index: 0, generation: 0 };
const IDLE: Duration = Duration::from_secs(10);

/// A role whose sessions need no keys.
fn role() -> Arc<Role> {
    let psk = "AAECAwQFBgcICQoLDA0ODw==";
    let limit = Duration::from_secs(1);
    Arc::new(Role {
        kind: RoleKind::Hop {
            key: RelayKey::parse(Method::Blake3Aes128Gcm, psk, []).unwrap(),
            next: Vec::new(),
            outbound: OutboundOptions::default(),
        },
        limits: Limits {
            handshake: limit,
            connect: limit,
            idle: limit,
            half_closed_idle: limit,
            first_payload: limit,
        },
        stream: StreamOptions::PLAIN,
        order: Order::System,
        replay: None,
        clients: None,
        port: None,
        datagrams: Datagrams {
            idle: IDLE,
            options: DatagramOptions::default(),
            salts: None,
            book: None,
        },
    })
}

fn name(port: u16) -> Name {
    let source = SocketAddr::from(([127, 0, 0, 1], port));
    Name::Source(LISTENER, source)
}

fn insert(sessions: &mut Sessions, role: &Arc<Role>, port: u16, tick: Tick) -> Key {
    let source = SocketAddr::from(([127, 0, 0, 1], port));
    let reply = Route::to(0, Family::V4, source);
    let session =
        Session::new(name(port), LISTENER, Arc::clone(role), Codec::Hop(0), reply, source);
    sessions.insert(session, tick).unwrap()
}

#[test]
fn a_full_table_refuses_and_a_removed_session_is_not_found() {
    let (role, mut sessions) = (role(), Sessions::with_capacity(2));
    let first = insert(&mut sessions, &role, 1, 0);
    insert(&mut sessions, &role, 2, 0);
    assert!(sessions.is_full());
    assert_eq!(sessions.find(&name(1)), Some(first));
    assert!(sessions.remove(first).is_some() && sessions.remove(first).is_none());
    assert_eq!(sessions.find(&name(1)), None);
    assert!(!sessions.is_full());
}

#[test]
fn one_datagram_affairs_make_room_first_then_the_longest_silent() {
    let (role, mut sessions) = (role(), Sessions::with_capacity(8));
    let keys: Vec<_> = (0..6).map(|port| insert(&mut sessions, &role, port, 0)).collect();
    // 1 and 3 talk on, 3 more lately; 2 is only answered, which proves nothing about its client.
    sessions.touch(keys[1], 1, true);
    sessions.touch(keys[3], 1, true);
    sessions.touch(keys[1], 2, true);
    sessions.touch(keys[3], 3, true);
    sessions.touch(keys[2], 3, false);
    let mut order = Vec::new();
    while let Some(key) = sessions.oldest(None) {
        sessions.remove(key);
        order.push(keys.iter().position(|k| *k == key).unwrap());
    }
    assert_eq!(order, [0, 4, 5, 2, 1, 3]);
}

#[test]
fn the_spared_session_is_never_the_one_to_go() {
    let (role, mut sessions) = (role(), Sessions::with_capacity(4));
    let key = insert(&mut sessions, &role, 1, 0);
    assert_eq!(sessions.oldest(Some(key)), None);
    let other = insert(&mut sessions, &role, 2, 0);
    assert_eq!(sessions.oldest(Some(key)), Some(other));
    assert_eq!(sessions.oldest(Some(other)), Some(key));
    sessions.touch(other, 1, true);
    assert_eq!(sessions.oldest(Some(key)), Some(other), "also when it is in the other queue");
}

#[test]
fn silence_ends_a_session_and_a_datagram_puts_it_off() {
    let (role, mut sessions) = (role(), Sessions::with_capacity(4));
    let silent = insert(&mut sessions, &role, 1, 0);
    let talking = insert(&mut sessions, &role, 2, 0);
    let limit = ticks(IDLE);
    sessions.touch(talking, limit / 2, false);
    assert_eq!(sessions.expired(limit - 1), None);
    assert_eq!(sessions.expired(limit + 1), Some(silent));
    sessions.remove(silent);
    assert_eq!(sessions.expired(limit + limit / 2 - 1), None);
    assert_eq!(sessions.expired(limit + limit / 2 + 1), Some(talking));
}

#[test]
fn the_queues_agree_with_a_model() {
    let (role, mut sessions) = (role(), Sessions::with_capacity(16));
    let mut model: Vec<(Key, u16, bool)> = Vec::new();
    let mut seed = 0x9E37_79B9_7F4A_7C15u64;
    for step in 0..20_000u64 {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        let port = u16::try_from(seed % 24).unwrap();
        let at = model.iter().position(|(_, p, _)| *p == port);
        match (at, seed >> 60) {
            (None, _) => {
                if sessions.is_full() {
                    let expected = model
                        .iter()
                        .find(|(.., proven)| !proven)
                        .or_else(|| model.first())
                        .unwrap()
                        .0;
                    assert_eq!(sessions.oldest(None), Some(expected), "step {step}");
                    sessions.remove(expected);
                    model.retain(|(key, ..)| *key != expected);
                }
                model.push((insert(&mut sessions, &role, port, step), port, false));
            }
            (Some(at), 0..3) => {
                sessions.remove(model.remove(at).0);
            }
            (Some(at), way) => {
                let (key, port, proven) = model.remove(at);
                sessions.touch(key, step, way % 2 == 0);
                model.push((key, port, proven || way % 2 == 0));
            }
        }
    }
}
