use std::time::Duration;

use adit_crypto::Rng;
use adit_shadowsocks::{ClientKey, ClientSession, Env, Method, PACKET_HEADROOM, ServerKey};

use super::*;

/// Ids as clients draw them.
fn ids(count: usize) -> Vec<SessionId> {
    let mut rng = Rng::new().unwrap();
    let psk = "AAECAwQFBgcICQoLDA0ODw==";
    let client = ClientKey::parse(Method::Blake3Aes128Gcm, psk).unwrap();
    let server = ServerKey::parse(Method::Blake3Aes128Gcm, psk, []).unwrap();
    (0..count)
        .map(|_| {
            let mut buf = vec![0; PACKET_HEADROOM + 64];
            let target = adit_wire::Target::from(std::net::SocketAddr::from(([1, 2, 3, 4], 5)));
            let mut env = Env { unix_s: 0, rng: &mut rng };
            let mut session = ClientSession::new(&client, env.rng);
            let payload = PACKET_HEADROOM..PACKET_HEADROOM + 1;
            let packet =
                session.seal(&client, &mut buf, payload, &target.into(), &mut env).unwrap();
            server.peek(&buf[packet]).unwrap().session.unwrap()
        })
        .collect()
}

#[test]
fn a_session_has_one_worker() {
    let book = SessionBook::new(64);
    let now = book.epoch;
    let id = ids(1)[0];
    assert_eq!(book.look(id, now), Known::New);
    assert!(book.begin(id, 1, now));
    assert_eq!(book.look(id, now), Known::At(1));
    assert!(!book.begin(id, 0, now), "another worker has it");
    assert!(!book.begin(id, 1, now), "nor does the same one begin it twice");
}

#[test]
fn an_ended_session_leaves_its_highest_id_for_a_minute() {
    let book = SessionBook::new(64);
    let now = book.epoch;
    let id = ids(1)[0];
    assert!(book.begin(id, 0, now));
    book.end(id, None, now);
    let later = now + Duration::from_secs(MEMORY_S);
    assert_eq!(book.look(id, later), Known::Ended(None));
    assert_eq!(book.look(id, later + Duration::from_secs(1)), Known::New);
}

#[test]
fn a_session_that_began_again_is_not_forgotten_by_its_earlier_end() {
    let book = SessionBook::new(64);
    let now = book.epoch;
    let id = ids(1)[0];
    assert!(book.begin(id, 0, now));
    book.end(id, None, now);
    assert!(book.begin(id, 2, now + Duration::from_secs(30)));
    let later = now + Duration::from_secs(MEMORY_S + 1);
    assert_eq!(book.look(id, later), Known::At(2));
}

#[test]
fn ended_sessions_make_room_and_open_ones_do_not() {
    let book = SessionBook::new(16);
    let now = book.epoch;
    let all = ids(4096);
    let mut open = 0;
    for &id in &all {
        if book.begin(id, 0, now) {
            open += 1;
        }
    }
    assert!((16..4096).contains(&open), "{open} sessions fit into room for 16 and reserve");
    for &id in &all {
        if book.look(id, now) == Known::At(0) {
            book.end(id, None, now);
        }
    }
    let fresh = ids(1)[0];
    assert!(book.begin(fresh, 0, now));
}
