//! Attacks on a server from outside, and on a client by a false server.
//!
//! A server with one worker takes events in order, so that a round trip of an honest client is a
//! barrier: what was sent before it began has been dealt with when it ends. No attack is waited
//! for longer than that.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::collections::HashMap;
use std::io::Write;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use adit_system_tests::{
    Ending, Forger, Keys, PATIENCE, Pair, Process, Scratch, Target, config, connect, ending,
    eventually, poke, read_exactly, request, reserve, socks5,
};
use rustix::process::Signal;

const SIP004: &str = "aes-256-gcm";
const SIP022: &str = "2022-blake3-aes-256-gcm";
/// Salt, fixed header and tag of a 2022 request: what its first segment must hold.
const HEADER_2022: usize = 32 + 11 + 16;
const BATCH: usize = 100;

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

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    Junk,
    Truncated,
    Replayed,
    Flipped,
}

const KINDS: [Kind; 4] = [Kind::Junk, Kind::Truncated, Kind::Replayed, Kind::Flipped];

/// Makes attacks from real flights to one target.
struct Attacker {
    keys: Keys,
    target: SocketAddr,
    /// A flight that the server has served.
    used: Vec<u8>,
    dice: Dice,
}

impl Attacker {
    /// Sends one honest flight and keeps it.
    fn new(method: &str, server_port: u16, target: SocketAddr) -> Self {
        let keys = Keys::new(method);
        let used = request(&keys, target, b"ping");
        let mut stream = connect(server_port);
        stream.write_all(&used).unwrap();
        assert!(!read_exactly(&stream, 1).is_empty(), "the honest flight is served");
        Self { keys, target, used, dice: Dice(0x2545_F491_4F6C_DD1D) }
    }

    fn attack(&mut self, kind: Kind) -> Vec<u8> {
        match kind {
            Kind::Junk => {
                let len = 1 + self.dice.below(2000);
                self.dice.junk(len)
            }
            // A fresh flight cut inside its first 50 (SIP004) bytes is an honest beginning, and
            // has to be treated as junk of that length is; 2022 tells by the first segment.
            Kind::Truncated if self.keys.method.is_2022() => {
                let len = 1 + self.dice.below(self.used.len() - 1);
                self.used[..len].to_vec()
            }
            Kind::Truncated => {
                let flight = request(&self.keys, self.target, b"ping");
                flight[..1 + self.dice.below(flight.len() - 1)].to_vec()
            }
            Kind::Replayed => self.used.clone(),
            Kind::Flipped => {
                let mut flight = request(&self.keys, self.target, b"ping");
                let at = self.dice.below(flight.len());
                flight[at] ^= 1 << self.dice.below(8);
                flight
            }
        }
    }
}

/// An honest round trip.
fn barrier(pair: &Pair, echo: &Target) {
    let mut client = pair.open(echo.port());
    client.write_all(b"honest").unwrap();
    assert_eq!(read_exactly(&client, 6), b"honest");
}

fn withstands(method: &str, expected: Ending) {
    let mut pair = Pair::with_args(method, &["--workers", "1"], &[]);
    let echo = Target::echo();
    let forbidden = Target::echo();
    let mut attacker = Attacker::new(method, pair.server_port, forbidden.address());
    let served = forbidden.connections();
    let mut memory = 0;
    for batch in 0..100 {
        let streams: Vec<(Kind, usize, TcpStream)> = (0..BATCH)
            .map(|n| {
                let kind = KINDS[n % KINDS.len()];
                let bytes = attacker.attack(kind);
                let mut stream = connect(pair.server_port);
                stream.write_all(&bytes).unwrap();
                (kind, bytes.len(), stream)
            })
            .collect();
        barrier(&pair, &echo);
        for (kind, len, stream) in &streams {
            let seen = poke(stream);
            assert_eq!(seen, (vec![], expected), "{kind:?} of {len} bytes, batch {batch}");
        }
        drop(streams);
        if batch == 4 {
            memory = pair.server.memory_kib();
        }
    }
    barrier(&pair, &echo);
    let now = pair.server.memory_kib();
    assert!(now < memory + 8192, "memory grew from {memory} to {now} KiB");
    assert_eq!(forbidden.connections(), served, "no attack reaches a target");
    assert!(pair.server.is_alive());
}

#[test]
fn ten_thousand_attacks_on_2017_hear_nothing() {
    withstands(SIP004, Ending::Open);
}

#[test]
fn ten_thousand_attacks_on_2022_are_reset_at_once() {
    withstands(SIP022, Ending::Reset);
}

/// A prober that ends its side, or that waits, learns as little whatever it had sent.
#[test]
fn the_end_of_a_connection_tells_nothing_in_2017() {
    let pair = Pair::with_args(SIP004, &["--workers", "1", "-t", "2"], &[]);
    let echo = Target::echo();
    let mut attacker = Attacker::new(SIP004, pair.server_port, echo.address());
    let mut attacks = |n: usize| -> Vec<(String, Vec<u8>)> {
        (0..n)
            .flat_map(|_| {
                let junk = |len| (format!("{len} bytes of junk"), Dice(77).junk(len));
                let mut all: Vec<_> = [1, 31, 32, 49, 50, 51, 300].map(junk).into();
                all.push(("a replay".into(), attacker.attack(Kind::Replayed)));
                let mut flipped = request(&attacker.keys, attacker.target, b"ping");
                flipped[55] ^= 4;
                all.push(("a bit flipped".into(), flipped));
                all
            })
            .collect()
    };
    for (what, bytes) in attacks(1) {
        let mut stream = connect(pair.server_port);
        stream.write_all(&bytes).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        assert_eq!(ending(&stream), (vec![], Ending::Fin), "{what}, then an end");
    }

    let threads: Vec<_> = attacks(16)
        .into_iter()
        .map(|(what, bytes)| {
            let mut stream = connect(pair.server_port);
            let start = Instant::now();
            stream.write_all(&bytes).unwrap();
            std::thread::spawn(move || {
                let (said, end) = ending(&stream);
                (what, said, end, start.elapsed())
            })
        })
        .collect();
    let mut spans: HashMap<String, (Duration, Duration)> = HashMap::new();
    for thread in threads {
        let (what, said, end, took) = thread.join().unwrap();
        assert_eq!((said, end), (vec![], Ending::Fin), "{what}, then nothing");
        let span = spans.entry(what).or_insert((took, took));
        *span = (span.0.min(took), span.1.max(took));
    }
    // The limit is drawn from half a second for each connection. Sixteen draws lie far apart,
    // unless some kinds of attack meet a fixed limit, by which a prober tells them from others.
    for (what, (first, last)) in &spans {
        assert!(*last - *first > Duration::from_millis(60), "{what}: {first:?} to {last:?}");
    }
}

#[test]
fn a_2022_header_in_pieces_is_reset() {
    let pair = Pair::with_args(SIP022, &["--workers", "1"], &[]);
    let echo = Target::echo();
    let keys = Keys::new(SIP022);
    for len in [1, 16, 31, 32, HEADER_2022 - 1] {
        let flight = request(&keys, echo.address(), b"ping");
        let mut stream = connect(pair.server_port);
        stream.write_all(&flight[..len]).unwrap();
        assert_eq!(ending(&stream), (vec![], Ending::Reset), "{len} bytes");
    }
    // A whole fixed header is an honest beginning: the rest may come later.
    let flight = request(&keys, echo.address(), b"ping");
    let mut stream = connect(pair.server_port);
    stream.write_all(&flight[..HEADER_2022]).unwrap();
    barrier(&pair, &echo);
    assert_eq!(poke(&stream), (vec![], Ending::Open));
    stream.write_all(&flight[HEADER_2022..]).unwrap();
    assert!(!read_exactly(&stream, 1).is_empty());
}

#[test]
fn a_2017_flight_may_come_byte_by_byte() {
    let pair = Pair::start(SIP004);
    let echo = Target::echo();
    let mut stream = connect(pair.server_port);
    for byte in request(&Keys::new(SIP004), echo.address(), b"ping") {
        stream.write_all(&[byte]).unwrap();
    }
    assert!(!read_exactly(&stream, 32 + 18 + 4 + 16).is_empty());
}

#[test]
fn a_replay_is_refused_and_a_reload_does_not_forget() {
    for (method, expected) in [(SIP004, Ending::Open), (SIP022, Ending::Reset)] {
        let pair = Pair::with_args(method, &["--workers", "1"], &[]);
        let (echo, target) = (Target::echo(), Target::echo());
        let flight = request(&Keys::new(method), target.address(), b"ping");
        let mut first = connect(pair.server_port);
        first.write_all(&flight).unwrap();
        assert!(!read_exactly(&first, 1).is_empty());
        for round in ["before a reload", "after a reload"] {
            let mut again = connect(pair.server_port);
            again.write_all(&flight).unwrap();
            barrier(&pair, &echo);
            assert_eq!(poke(&again), (vec![], expected), "{method} {round}");
            assert_eq!(target.connections(), 1, "{method} {round}");
            if round.starts_with("before") {
                pair.server.signal(Signal::HUP);
                pair.server.wait_for("configuration reloaded");
            }
        }
    }
}

/// An `ss-local` whose server is the test, and the listener that it connects to.
struct Victim {
    local: Process,
    port: u16,
    listener: TcpListener,
    _scratch: Scratch,
}

impl Victim {
    fn new(method: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (scratch, port) = (Scratch::new(), reserve());
        let text = config(method, listener.local_addr().unwrap().port(), port);
        let file = scratch.write("c.json", &text);
        let local = Process::start("ss-local", ["-c".as_ref(), file.as_os_str()]);
        local.wait_for("listening on");
        Self { local, port, listener, _scratch: scratch }
    }

    /// An application's connection and what the server gets of it, with the request's salt.
    fn open(&self, salt_len: usize) -> (TcpStream, TcpStream, Vec<u8>) {
        let mut client = socks5(self.port, "192.0.2.7", 80);
        client.write_all(b"hello").unwrap();
        let (server, _) = self.listener.accept().unwrap();
        server.set_read_timeout(Some(PATIENCE)).unwrap();
        let salt = read_exactly(&server, salt_len);
        (client, server, salt)
    }
}

#[test]
fn a_false_answer_resets_the_client() {
    for method in [SIP004, SIP022] {
        let victim = Victim::new(method);
        let forger = Forger::new(method);
        let (client, mut server, salt) = victim.open(forger.salt_len());
        let honest = forger.response(&salt, b"welcome");
        server.write_all(&honest).unwrap();
        assert_eq!(read_exactly(&client, 7), b"welcome", "{method}: the forger knows its trade");

        let mut flipped = forger.response(&salt, b"welcome");
        flipped[40] ^= 1;
        let mut attacks = vec![
            ("junk", Dice(5).junk(500)),
            ("an old answer", honest),
            ("a bit flipped", flipped),
        ];
        if method == SIP022 {
            attacks.push(("an answer to somebody else", forger.response(&[7; 32], b"welcome")));
        }
        for (what, bytes) in attacks {
            let (client, mut server, _) = victim.open(forger.salt_len());
            server.write_all(&bytes).unwrap();
            assert_eq!(ending(&client), (vec![], Ending::Reset), "{method}: {what}");
        }
    }
}

#[test]
fn an_answer_cut_off_inside_a_record_is_no_end() {
    for method in [SIP004, SIP022] {
        let mut victim = Victim::new(method);
        let forger = Forger::new(method);
        let whole = forger.response(&[7; 32], b"welcome").len();
        for len in [1, 31, 33, 60, whole - 1] {
            let (client, mut server, salt) = victim.open(forger.salt_len());
            let answer = forger.response(&salt, b"welcome");
            server.write_all(&answer[..len]).unwrap();
            server.shutdown(Shutdown::Write).unwrap();
            assert_eq!(ending(&client), (vec![], Ending::Reset), "{method}: {len} of {whole}");
        }
        assert!(victim.local.is_alive());
    }
}

#[test]
fn a_wrong_password_is_silent_or_reset_and_logged_once_in_a_while() {
    for (method, expected) in [(SIP004, Ending::Open), (SIP022, Ending::Reset)] {
        let pair = Pair::with_args(method, &["--workers", "1"], &[]);
        let echo = Target::echo();
        let streams: Vec<_> = (0..200)
            .map(|n| {
                let mut stream = connect(pair.server_port);
                stream.write_all(&Dice(n + 1).junk(400)).unwrap();
                stream
            })
            .collect();
        barrier(&pair, &echo);
        assert!(streams.iter().all(|s| poke(s) == (vec![], expected)));
        pair.server.wait_for("authentication failed");
        let lines = eventually("lines come", || {
            let count = pair.server.text().matches("authentication failed").count();
            (count > 0).then_some(count)
        });
        assert!(lines < 60, "{lines} lines for 200 probes fill a disk");
    }
}
