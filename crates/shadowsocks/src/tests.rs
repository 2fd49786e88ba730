//! Streams built and read the way an engine does it.

mod key;
mod method;
mod packet_rules;
mod packet_vectors;
mod packets;
mod relay;
mod rules;
mod streams;
mod vectors;

use adit_crypto::{Rng, TAG_LEN};
use adit_wire::{Target, TargetBuf};

use crate::seal::FirstRecord;
use crate::{
    Accepted, ClientKey, Env, Method, PADDED_LEN_MAX, RECORD_HEAD_MAX, RECORD_TAIL, SALT_LEN_MAX,
    Sealer, ServerKey,
};

/// The clock of both ends.
const NOW: u64 = 1_700_000_000;
const METHODS: [Method; 11] = Method::ALL;

fn ciphers() -> impl Iterator<Item = Method> {
    METHODS.into_iter().filter(|&m| m != Method::None)
}

fn ciphers_2022() -> impl Iterator<Item = Method> {
    METHODS.into_iter().filter(|m| m.is_2022())
}

fn ciphers_sip004() -> impl Iterator<Item = Method> {
    ciphers().filter(|m| !m.is_2022())
}

/// The encoded target that most tests ask for.
fn target() -> TargetBuf {
    Target::parse(b"\x03\x0bexample.com\x01\xbb").unwrap().0.into()
}

/// Bytes that differ from their neighbours.
fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 + 3) as u8).collect()
}

/// A request's first flight, drawn at random.
fn request(
    key: &ClientKey,
    target: &[u8],
    payload: &[u8],
) -> (Sealer, [u8; SALT_LEN_MAX], Vec<u8>) {
    let mut rng = Rng::new().unwrap();
    let head = Sealer::request_head_len(key, target.len());
    assert!(head <= RECORD_HEAD_MAX);
    let mut buf = laid_out(head, payload);
    let mut env = Env { unix_s: NOW, rng: &mut rng };
    let (sealer, salt, len) = Sealer::request(key, target, &mut env, &mut buf, payload.len());
    buf.truncate(len);
    (sealer, salt, buf)
}

/// A request's first flight with everything given.
fn request_with(
    key: &ClientKey,
    target: &[u8],
    first: &FirstRecord,
    payload: &[u8],
) -> (Sealer, Vec<u8>) {
    let mut buf = laid_out(Sealer::request_head_len(key, target.len()), payload);
    let (sealer, len) = Sealer::request_with(key, target, first, &mut buf, payload.len());
    buf.truncate(len);
    (sealer, buf)
}

/// A response's first flight, drawn at random.
fn response(
    key: &ServerKey,
    user: Option<u16>,
    request_salt: &[u8; SALT_LEN_MAX],
    payload: &[u8],
) -> (Sealer, Vec<u8>) {
    let mut rng = Rng::new().unwrap();
    let head = Sealer::response_head_len(key.method());
    assert!(head <= RECORD_HEAD_MAX);
    let mut buf = laid_out(head, payload);
    let mut env = Env { unix_s: NOW, rng: &mut rng };
    let session = Accepted::session(key, user);
    let (sealer, len) =
        Sealer::response(key.method(), session, request_salt, &mut env, &mut buf, payload.len());
    assert_eq!(len, head + payload.len() + Sealer::tail_len(key.method()));
    buf.truncate(len);
    (sealer, buf)
}

/// One later record.
fn record(sealer: &mut Sealer, payload: &[u8]) -> Vec<u8> {
    let mut buf = [&vec![0xee; sealer.head_len()], payload, &[0xee; RECORD_TAIL]].concat();
    let len = sealer.seal(&mut buf, payload.len());
    buf.truncate(len);
    buf
}

fn laid_out(head: usize, payload: &[u8]) -> Vec<u8> {
    let tail = PADDED_LEN_MAX.max(payload.len() + TAG_LEN) - payload.len();
    [&vec![0xee; head], payload, &vec![0xee; tail]].concat()
}
