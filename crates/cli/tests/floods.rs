//! Floods of datagrams. One after the other, because each uses up what the kernel or the programs
//! have for all.
//!
//! A flood goes out in portions that a socket's queue holds, each followed by a round trip of an
//! honest session: however slow the machine, nothing may be lost that the programs did not lose.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use adit_system_tests::{
    Association, DatagramTarget, Pair, Process, eventually, header, raise_descriptor_limit,
};

const SIP004: &str = "chacha20-ietf-poly1305";
const SIP022: &str = "2022-blake3-aes-128-gcm";

static ALONE: Mutex<()> = Mutex::new(());

/// A small generator for a reproducible attack.
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, n: usize) -> usize {
        (self.roll() >> 11) as usize % n
    }

    fn junk(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.roll().to_le_bytes()[2]).collect()
    }
}

/// The most descriptors that the programs may have.
fn descriptors_max(process: &Process) -> u64 {
    let limits = process.proc("limits");
    let line = limits.lines().find(|l| l.starts_with("Max open files")).unwrap();
    line.split_ascii_whitespace().nth(3).unwrap().parse().unwrap()
}

/// One datagram from each of many ports, beside a session that talks all the time.
#[test]
fn one_datagram_from_each_of_many_ports() {
    const PORTS: usize = 20_000;
    const PORTION: usize = 40;
    let _alone = ALONE.lock();
    raise_descriptor_limit();
    for method in [SIP004, SIP022] {
        let pair = Pair::with_args(method, &["-u"], &["-u"]);
        let target = DatagramTarget::echo();
        let live = pair.associate();
        live.round_trip(target.address(), b"first");
        live.round_trip(target.address(), b"second");
        let source = target.arrivals()[0].source;
        let before = (pair.local.memory_kib(), pair.server.memory_kib());
        let relay = SocketAddr::from((Ipv4Addr::LOCALHOST, pair.local_port));
        // A quiet session is more than a port scan: it has talked twice and is silent for 200 ms.
        let quiet = pair.associate();
        quiet.round_trip(target.address(), b"first");
        quiet.round_trip(target.address(), b"second");
        let mut quiet_since = Instant::now();
        let flood = DatagramTarget::echo();
        let datagram = [&header("127.0.0.1", flood.port())[..], b"flood"].concat();
        let mut most = (0, 0);
        for n in 0..PORTS {
            // More addresses than one, for a port may come again.
            let ip = Ipv4Addr::new(127, 0, 1, u8::try_from(n % 200).unwrap());
            let socket = UdpSocket::bind((ip, 0)).unwrap();
            socket.send_to(&datagram, relay).unwrap();
            if n % PORTION == 0 {
                live.round_trip(target.address(), &n.to_le_bytes());
                if quiet_since.elapsed() > Duration::from_millis(200) {
                    quiet.round_trip(target.address(), b"quiet");
                    quiet_since = Instant::now();
                }
            }
            if n % 500 == 0 {
                let open = (pair.local.descriptors(), pair.server.descriptors());
                most = (most.0.max(open.0), most.1.max(open.1));
            }
        }
        live.round_trip(target.address(), b"last");
        quiet.round_trip(target.address(), b"last");
        let arrivals = target.arrivals();
        assert!(
            arrivals
                .iter()
                .filter(|a| a.payload == b"last" || a.payload == b"second")
                .any(|a| a.source == source),
            "the live session is the one that it was"
        );
        let last = arrivals.iter().rev().find(|a| a.source == source).unwrap();
        assert_eq!(last.payload, b"last", "{method}: the session was never replaced");
        for (process, before, most) in
            [(&pair.local, before.0, most.0), (&pair.server, before.1, most.1)]
        {
            let after = process.memory_kib();
            assert!(after < before + 40 * 1024, "{method}: {before} KiB, then {after} KiB");
            let limit = descriptors_max(process);
            assert!((most as u64) < limit / 2, "{method}: {most} of {limit} descriptors");
            assert!(process.counter("sessions") > PORTS as u64 * 9 / 10, "each had a session");
            assert!(process.counter("sessions_open") <= 8192);
        }
        // Every one of them is served while it is there.
        assert!(flood.count() > PORTS * 9 / 10, "{method}: {} arrived", flood.count());
    }
}

/// When places are used up, whoever has sent one datagram makes room before those who converse,
/// however long these have been silent.
#[test]
fn passers_by_make_room_before_conversations() {
    let _alone = ALONE.lock();
    for method in [SIP004, SIP022] {
        let args = ["-u", "--workers", "1", "--udp-max-associations", "20"];
        let pair = Pair::with_args(method, &args, &args);
        let target = DatagramTarget::echo();
        let conversation = pair.associate();
        conversation.round_trip(target.address(), b"first");
        conversation.round_trip(target.address(), b"second");
        let relay = SocketAddr::from((Ipv4Addr::LOCALHOST, pair.local_port));
        // All at once, so that no two have a port in common.
        let passers_by: Vec<_> = (0..200).map(|_| Association::without_control(relay)).collect();
        for (n, application) in passers_by.iter().enumerate() {
            application.round_trip(target.address(), &n.to_le_bytes());
        }
        conversation.round_trip(target.address(), b"third");
        let arrivals = target.arrivals();
        assert_eq!(arrivals.last().unwrap().source, arrivals[0].source, "{method}");
        for process in [&pair.local, &pair.server] {
            assert_eq!(process.counter("sessions_open"), 20, "{method}");
        }
        assert_eq!(pair.local.counter("sessions"), 201, "{method}");
        // The port of one that ended may come again while the server still has its session.
        assert!((195..=201).contains(&pair.server.counter("sessions")), "{method}");
    }
}

/// With hardly a descriptor new sessions take those of old ones.
#[test]
fn sessions_share_few_descriptors() {
    let _alone = ALONE.lock();
    for method in [SIP004, SIP022] {
        let args = ["-u", "--workers", "1", "-n", "128"];
        let mut pair = Pair::with_args(method, &args, &args);
        let target = DatagramTarget::echo();
        let relay = SocketAddr::from((Ipv4Addr::LOCALHOST, pair.local_port));
        // Connections hold what there is.
        let stalled: Vec<_> =
            (0..150).map(|_| adit_system_tests::connect(pair.local_port)).collect();
        for n in 0..500_u32 {
            Association::without_control(relay).round_trip(target.address(), &n.to_le_bytes());
        }
        assert!(pair.server.is_alive() && pair.local.is_alive());
        drop(stalled);
    }
}

/// Noise and damaged captures, from many ports and from the session's own address.
#[test]
fn garbage_costs_nobody_anything() {
    const ROUNDS: usize = 4000;
    const PORTION: usize = 50;
    let _alone = ALONE.lock();
    for method in [SIP004, SIP022, "2022-blake3-chacha20-poly1305"] {
        let (mut pair, wire) = Pair::with_wire(method, &[], &[]);
        let target = DatagramTarget::echo();
        let live = pair.associate();
        for len in [1, 100, 1000] {
            live.round_trip(target.address(), &vec![7; len]);
        }
        let captures = wire.ups();
        let server = SocketAddr::from((Ipv4Addr::LOCALHOST, pair.server_port));
        let sockets: Vec<_> = (0..8).map(|_| UdpSocket::bind("127.0.0.1:0").unwrap()).collect();
        let mut dice = Dice(0x2545_F491_4F6C_DD1D);
        let memory = |pair: &Pair| (pair.local.memory_kib(), pair.server.memory_kib());
        let mut settled = (0, 0);
        let descriptors = (pair.local.descriptors(), pair.server.descriptors());
        let rounds = if method == SIP022 { ROUNDS } else { ROUNDS / 8 };
        let junk = dice.junk(4096);
        for round in 0..rounds {
            for n in 0..PORTION {
                let capture = &captures[dice.below(captures.len())];
                let packet = match n % 4 {
                    0 => {
                        let start = dice.below(2000);
                        junk[start..start + dice.below(1500)].to_vec()
                    }
                    1 => capture[..dice.below(capture.len())].to_vec(),
                    _ => {
                        let mut flipped = capture.clone();
                        flipped[dice.below(capture.len())] ^= 1 << dice.below(8);
                        flipped
                    }
                };
                match n % 10 {
                    0 => wire.send_up(&packet),
                    at => drop(sockets[at % sockets.len()].send_to(&packet, server).unwrap()),
                }
            }
            // Towards the client and its application port as well.
            wire.send_down(&junk[..dice.below(600)]);
            let mut down = captures[0].clone();
            down[dice.below(captures[0].len())] ^= 1;
            wire.send_down(&down);
            live.send_raw(&junk[4..4 + dice.below(300)]);
            live.round_trip(target.address(), &round.to_le_bytes());
            if round == rounds / 4 {
                settled = memory(&pair);
            }
        }
        let after = memory(&pair);
        assert!(after.0 < settled.0 + 2048, "{method}: ss-local {settled:?}, then {after:?}");
        assert!(after.1 < settled.1 + 2048, "{method}: ss-server {settled:?}, then {after:?}");
        assert!(pair.server.is_alive() && pair.local.is_alive());
        assert_eq!((pair.local.descriptors(), pair.server.descriptors()), descriptors, "{method}");
        assert_eq!(target.count(), 3 + rounds, "{method}: nothing else reached the target");
        assert_eq!(pair.server.counter("sessions"), 1, "{method}");
        // A packet whose number is used up is refused before it is opened.
        let refused = ["datagrams_rejected", "datagrams_replayed"];
        let refused: u64 = refused.iter().map(|name| pair.server.counter(name)).sum();
        // The worker without the session may be behind, and the kernel have dropped what it had no
        // room for; what comes by the wire is in the queue that the round trips go through.
        let sent = (rounds * PORTION) as u64;
        assert!((sent / 10..=sent).contains(&refused), "{method}: {refused} of {sent} refused");
        let lines = pair.server.text().lines().count();
        assert!(lines < 1000, "{method}: {lines} lines in the log");
    }
}

/// Datagrams of one byte and of none, to every port.
#[test]
fn the_shortest_datagrams() {
    let _alone = ALONE.lock();
    for method in [SIP004, SIP022, "2022-blake3-chacha20-poly1305", "none"] {
        let (pair, wire) = Pair::with_wire(method, &["--workers", "1"], &["--workers", "1"]);
        let target = DatagramTarget::echo();
        let live = pair.associate();
        live.round_trip(target.address(), b"first");
        for byte in 0..=255 {
            for packet in [&[byte][..], &[]] {
                wire.send_up(packet);
                wire.send_down(packet);
                live.send_raw(packet);
            }
            live.round_trip(target.address(), &[byte]);
        }
        assert_eq!(target.count(), 257);
        for process in [&pair.server, &pair.local] {
            assert_eq!(process.counter("sessions"), 1, "{method}");
            assert!(process.counter("datagrams_rejected") >= 512, "{method}");
        }
    }
}

/// A port whose queue overflows goes on as soon as it does not.
#[test]
fn an_overflowing_queue_recovers() {
    let _alone = ALONE.lock();
    let mut pair = Pair::with_args(SIP022, &["-u"], &["-u"]);
    let target = DatagramTarget::echo();
    let live = pair.associate();
    live.round_trip(target.address(), b"first");
    let sockets: Vec<_> = (0..4).map(|_| UdpSocket::bind("127.0.0.1:0").unwrap()).collect();
    for port in [pair.server_port, pair.local_port] {
        let to = SocketAddr::from((IpAddr::from(Ipv4Addr::LOCALHOST), port));
        for n in 0..50_000_usize {
            // Sends fail where the kernel has no room; that is the point.
            let _ = sockets[n % sockets.len()].send_to(&[0xA5; 200], to);
        }
    }
    eventually("a round trip works again", || {
        live.send_to(target.address(), b"again");
        std::thread::sleep(Duration::from_millis(50));
        live.poke()
    });
    assert!(pair.server.is_alive() && pair.local.is_alive());
}
