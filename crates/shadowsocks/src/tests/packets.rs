//! Datagrams of both sides: round trips, bits and lengths, order and repetition.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use adit_crypto::Rng;
use proptest::prelude::{ProptestConfig, Strategy, any, prop, prop_assert, proptest};

use super::*;
use crate::fuzz::{self, keys};
use crate::{
    ClientSession, OpenedPacket, OpenedReply, PACKET_HEAD_MAX, PACKET_HEADROOM, PACKET_TAILROOM,
    PacketReject, Remains, ServerSession, SessionExhausted,
};

pub(super) fn source() -> SocketAddr {
    "[2001:db8::7]:53".parse().unwrap()
}

/// A payload with room around it, and where it is.
pub(super) fn roomy(payload: &[u8]) -> (Vec<u8>, std::ops::Range<usize>) {
    let buf = [&vec![0xee; PACKET_HEADROOM], payload, &[0xee; PACKET_TAILROOM]].concat();
    (buf, PACKET_HEADROOM..PACKET_HEADROOM + payload.len())
}

pub(super) fn request_packet(
    key: &ClientKey,
    session: &mut ClientSession,
    payload: &[u8],
) -> Vec<u8> {
    let mut rng = rng();
    let mut env = Env { unix_s: NOW, rng: &mut rng };
    let (mut buf, at) = roomy(payload);
    let range = session.seal(key, &mut buf, at, &target(), &mut env).unwrap();
    assert!(buf[..range.start].iter().all(|&b| b == 0xee), "wrote before the packet");
    buf[range].to_vec()
}

pub(super) fn reply_packet(
    key: &ServerKey,
    session: &mut ServerSession,
    payload: &[u8],
) -> Vec<u8> {
    let mut rng = rng();
    let mut env = Env { unix_s: NOW, rng: &mut rng };
    let (mut buf, at) = roomy(payload);
    let range = session.seal(key, &mut buf, at, source(), &mut env).unwrap();
    assert!(buf[..range.start].iter().all(|&b| b == 0xee), "wrote before the packet");
    buf[range].to_vec()
}

pub(super) fn open_first(
    key: &ServerKey,
    packet: &mut [u8],
    remains: Option<Remains>,
) -> Result<(ServerSession, OpenedPacket), PacketReject> {
    let mut rng = rng();
    let before = packet.to_vec();
    let head = key.peek(packet)?;
    assert_eq!(packet, before, "peek leaves the packet as it is");
    let mut env = Env { unix_s: NOW, rng: &mut rng };
    ServerSession::open_first(key, &head, packet, remains, &mut env)
}

/// Opens a packet in a known session, as an engine does: one that names another is not offered.
pub(super) fn open_next(
    key: &ServerKey,
    session: &mut ServerSession,
    packet: &mut [u8],
) -> Result<OpenedPacket, PacketReject> {
    let head = key.peek(packet)?;
    session.open(key, &head, packet, NOW)
}

fn rng() -> Rng {
    Rng::new().unwrap()
}

pub(super) fn client(key: &ClientKey) -> ClientSession {
    ClientSession::new(key, &mut rng())
}

fn overhead(key: &ClientKey, reply: bool, address_len: usize) -> usize {
    let method = key.method();
    match method {
        Method::None => address_len,
        _ if !method.is_2022() => method.salt_len() + address_len + 16,
        _ => {
            let outer = if method.supports_identity() { 16 } else { 24 + 16 };
            let head = if reply { 19 } else { 11 + 16 * key.identity_headers().len() };
            outer + head + address_len + 16
        }
    }
}

fn assert_round_trip(method: Method, users: bool, len: usize) {
    let (client_key, server_key) = keys(method, users);
    let payload = pattern(len);
    let mut client = client(&client_key);
    let mut packet = request_packet(&client_key, &mut client, &payload);
    let least = overhead(&client_key, false, target().as_bytes().len());
    if len > 0 || !method.is_2022() {
        assert_eq!(packet.len(), least + len, "{method}");
    } else {
        assert!((least + 1..=least + 900).contains(&packet.len()), "{method}");
    }
    let (mut server, opened) = open_first(&server_key, &mut packet, None).unwrap();
    assert_eq!(opened.target, target());
    assert_eq!(&packet[opened.payload], payload);
    assert_eq!(opened.salt.len(), if method.is_2022() { 0 } else { method.salt_len() });
    assert_eq!(server.user().is_some(), !server_key.users().is_empty());
    assert_eq!(server.id().map(|id| id.id()), client.id());
    assert_eq!(server.remains().is_some(), method.is_2022());

    let mut packet = reply_packet(&server_key, &mut server, &payload);
    if len > 0 || !method.is_2022() {
        assert_eq!(packet.len(), overhead(&client_key, true, 19) + len, "{method}");
    }
    let opened = client.open(&client_key, &mut packet, NOW).unwrap();
    let OpenedReply { source: from, address, payload: at, salt } = opened;
    assert_eq!(from.target(), Target::from(source()));
    assert_eq!(&packet[address.clone()], from.as_bytes());
    assert_eq!((address.end, &packet[at.clone()]), (at.start, payload.as_slice()));
    assert_eq!(salt.len(), if method.is_2022() { 0 } else { method.salt_len() });
}

#[test]
fn packets_of_all_lengths_make_the_round_trip() {
    for method in METHODS {
        for users in [false, true] {
            for len in [0, 1, 15, 16, 17, 1200, 1472, 9000, 65_000] {
                assert_round_trip(method, users, len);
            }
        }
    }
}

fn methods() -> impl Strategy<Value = Method> {
    prop::sample::select(&METHODS[..])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn round_trips(method in methods(), users: bool, len in 0_usize..65_000) {
        assert_round_trip(method, users, len);
    }

    #[test]
    fn junk_is_refused_and_never_panics(
        method in methods(), users: bool, junk in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        let (client_key, server_key) = keys(method, users);
        let mut other = junk.clone();
        let opened = open_first(&server_key, &mut other, None);
        let mut other = junk;
        let reply = client(&client_key).open(&client_key, &mut other, NOW);
        if method != Method::None {
            prop_assert!(opened.is_err() && reply.is_err());
        }
    }

    #[test]
    fn fuzz_bodies_hold(
        mut data in prop::collection::vec(any::<u8>(), 4..400), selector: u8, flags: u8, good: bool,
    ) {
        data[0] = selector;
        data[2] = flags;
        if good && data.len() > 16 {
            // No padding and an address.
            data[4..14].copy_from_slice(b"\0\0\x01\x01\x02\x03\x04\x00\x35x");
        }
        fuzz::packet_server(&data);
        fuzz::packet_client(&data);
        fuzz::packet_relay(&data);
    }
}

/// Every bit of a packet, for every method with a key, in a first packet and in a known session.
#[test]
fn every_single_bit_is_authenticated() {
    for method in ciphers() {
        let (client_key, server_key) = keys(method, true);
        let mut client = client(&client_key);
        let mut first = request_packet(&client_key, &mut client, b"hi");
        let (mut server, _) = open_first(&server_key, &mut first, None).unwrap();
        let packet = request_packet(&client_key, &mut client, b"there");
        for bit in 0..8 * packet.len() {
            let mut flipped = packet.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(open_first(&server_key, &mut flipped.clone(), None).is_err(), "{method} {bit}");
            assert!(open_next(&server_key, &mut server, &mut flipped).is_err(), "{method} {bit}");
        }
        let reply = reply_packet(&server_key, &mut server, b"yes");
        for bit in 0..8 * reply.len() {
            let mut flipped = reply.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let error = client.open(&client_key, &mut flipped, NOW).unwrap_err();
            assert_eq!(error, PacketReject::NotAuthentic, "{method} {bit}");
        }
        // None of the refused ones took the place of the honest ones.
        open_next(&server_key, &mut server, &mut packet.clone()).unwrap();
        client.open(&client_key, &mut reply.clone(), NOW).unwrap();
    }
}

#[test]
fn every_truncation_is_refused() {
    for method in METHODS {
        let (client_key, server_key) = keys(method, true);
        let mut client = client(&client_key);
        let packet = request_packet(&client_key, &mut client, b"");
        let (mut server, _) = open_first(&server_key, &mut packet.clone(), None).unwrap();
        let second = request_packet(&client_key, &mut client, b"");
        let reply = reply_packet(&server_key, &mut server, b"");
        for len in 0..packet.len() {
            assert!(open_first(&server_key, &mut packet[..len].to_vec(), None).is_err());
        }
        for len in 0..second.len() {
            let cut = &mut second[..len].to_vec();
            assert!(open_next(&server_key, &mut server, cut).is_err(), "{method} {len}");
        }
        for len in 0..reply.len() {
            let cut = &mut reply[..len].to_vec();
            assert!(client.open(&client_key, cut, NOW).is_err(), "{method} {len}");
        }
    }
}

/// A fixed sequence of pseudo-random numbers.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % n
    }
}

/// Packets lost, repeated and out of order: each is taken once, and the ones in reach are.
#[test]
fn a_bad_path_neither_repeats_nor_loses_packets_in_reach() {
    for method in ciphers_2022() {
        let (client_key, server_key) = keys(method, true);
        let mut client = client(&client_key);
        let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
        let mut first = request_packet(&client_key, &mut client, b"first");
        let (mut server, _) = open_first(&server_key, &mut first, None).unwrap();
        let requests = sent(4000, |n| request_packet(&client_key, &mut client, &n));
        let replies = sent(4000, |n| reply_packet(&server_key, &mut server, &n));
        // Ids of requests are one higher than their number here: `first` had 0.
        deliver(&requests, &mut dice, |packet| {
            open_next(&server_key, &mut server, packet).map(|opened| opened.payload)
        });
        deliver(&replies, &mut dice, |packet| {
            client.open(&client_key, packet, NOW).map(|opened| opened.payload)
        });
    }
}

fn sent(count: u32, mut seal: impl FnMut([u8; 4]) -> Vec<u8>) -> Vec<Vec<u8>> {
    (0..count).map(|n| seal(n.to_be_bytes())).collect()
}

fn deliver(
    packets: &[Vec<u8>],
    dice: &mut Dice,
    mut open: impl FnMut(&mut [u8]) -> Result<std::ops::Range<usize>, PacketReject>,
) {
    let mut seen = BTreeSet::<usize>::new();
    let mut at = 0;
    for _ in 0..2 * packets.len() {
        // Mostly forward, with jumps back and forth.
        let jump = match dice.below(400) {
            0 => dice.below(2500) as isize - 2400,
            1..40 => dice.below(100) as isize,
            40..100 => -(dice.below(20) as isize),
            _ => 1,
        };
        at = (at as isize + jump).clamp(0, packets.len() as isize - 1) as usize;
        let highest = seen.last().copied().unwrap_or(0);
        let is_new = highest.saturating_sub(at) <= 1984 && !seen.contains(&at);
        let mut packet = packets[at].clone();
        match open(&mut packet) {
            Ok(payload) => {
                assert!(is_new, "took {at} again, or from out of reach");
                assert_eq!(&packet[payload], (at as u32).to_be_bytes());
                seen.insert(at);
            }
            Err(error) => {
                assert!(!is_new, "lost {at}: {error}");
                assert_eq!(error, PacketReject::Replayed);
            }
        }
    }
    assert!(seen.len() > packets.len() / 4);
}

#[test]
fn packet_ids_run_out_without_a_wrap() {
    for method in ciphers_2022() {
        let (client_key, server_key) = keys(method, true);
        let mut client = client(&client_key);
        let mut rng = rng();
        let mut first = request_packet(&client_key, &mut client, b"x");
        let (mut server, _) = open_first(&server_key, &mut first, None).unwrap();
        client.0.as_mut().unwrap().next_packet_id = u64::MAX - 1;
        server.0.as_mut().unwrap().next_packet_id = u64::MAX - 1;
        let mut last = request_packet(&client_key, &mut client, b"last");
        open_next(&server_key, &mut server, &mut last).unwrap();
        let mut last = reply_packet(&server_key, &mut server, b"last");
        client.open(&client_key, &mut last, NOW).unwrap();
        for _ in 0..2 {
            let mut env = Env { unix_s: NOW, rng: &mut rng };
            let (mut buf, at) = roomy(b"x");
            let end = client.seal(&client_key, &mut buf, at.clone(), &target(), &mut env);
            assert_eq!(end, Err(SessionExhausted));
            let end = server.seal(&server_key, &mut buf, at, source(), &mut env);
            assert_eq!(end, Err(SessionExhausted));
        }
    }
}

#[test]
fn padding_keeps_to_the_room_and_the_least_mtu() {
    let mut rng = rng();
    let mut env = Env { unix_s: NOW, rng: &mut rng };
    let long: TargetBuf =
        Target::parse(&[&[3, 255][..], &[b'n'; 255], &[0, 53]].concat()).unwrap().0.into();
    for method in ciphers_2022() {
        let psk = "ERYbICUqLzQ5PkNITVJXXGFma3B1en+EiY6TmJ2ip6w=";
        let psk = if method.key_len() == 32 { psk } else { "ERYbICUqLzQ5PkNITVJXXA==" };
        let chain =
            if method.supports_identity() { format!("{psk}:").repeat(8) } else { String::new() };
        let key = ClientKey::parse(method, &format!("{chain}{psk}")).unwrap();
        let mut session = client(&key);
        let mut lens = BTreeSet::new();
        for target in [target(), long] {
            for room in [PACKET_HEADROOM, PACKET_HEAD_MAX] {
                for _ in 0..200 {
                    let mut buf = vec![0; room + PACKET_TAILROOM];
                    let range =
                        session.seal(&key, &mut buf, room..room, &target, &mut env).unwrap();
                    let padding = range.len() - overhead(&key, false, target.as_bytes().len());
                    assert!(
                        (1..=900).contains(&padding) && range.len() <= 1232,
                        "{method} {padding}"
                    );
                    lens.insert(range.len());
                }
            }
        }
        assert!(lens.len() > 100, "{method}: padding hardly varies");
    }
}
