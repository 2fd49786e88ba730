//! Connections through a client and a server: how they end, stall, share and break.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use adit_system_tests::{
    Ending, Expected, PATIENCE, Pair, Process, Scratch, Target, config, connect, ending,
    eventually, http_status, poke, read_exactly, reserve, reset, send_pattern, socks5_reply,
};

/// No encryption, and one method of each edition.
const METHODS: [&str; 3] = ["none", "aes-256-gcm", "2022-blake3-aes-256-gcm"];
const MIB: usize = 1 << 20;

fn take<T>(from: &Receiver<T>) -> T {
    from.recv_timeout(PATIENCE).expect("the target did its part")
}

/// Reads the pattern to an end; returns how many bytes came and how it ended.
fn drain(stream: &mut TcpStream) -> (usize, Ending) {
    let mut expected = Expected::default();
    let mut buf = vec![0; 256 * 1024];
    loop {
        match stream.read(&mut buf) {
            Ok(0) => return (expected.len(), Ending::Fin),
            Ok(n) => expected.take(&buf[..n]),
            Err(_) => return (expected.len(), Ending::Reset),
        }
    }
}

#[test]
fn a_client_that_ends_first_gets_the_whole_answer() {
    for method in METHODS {
        let pair = Pair::start(method);
        let target = Target::serve(|mut stream| {
            let got = drain(&mut stream);
            assert_eq!(got, (3 * MIB, Ending::Fin));
            send_pattern(&stream, 2 * MIB, |_| {}).unwrap();
        });
        let mut client = pair.open(target.port());
        send_pattern(&client, 3 * MIB, |_| {}).unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        assert_eq!(drain(&mut client), (2 * MIB, Ending::Fin), "{method}");
    }
}

#[test]
fn a_client_that_ends_without_a_byte_is_heard() {
    for method in METHODS {
        let pair = Pair::start(method);
        let target = Target::serve(|mut stream| {
            assert_eq!(drain(&mut stream), (0, Ending::Fin));
            send_pattern(&stream, 1000, |_| {}).unwrap();
        });
        let mut client = pair.open(target.port());
        client.shutdown(Shutdown::Write).unwrap();
        assert_eq!(drain(&mut client), (1000, Ending::Fin), "{method}");
    }
}

#[test]
fn a_target_that_ends_first_goes_on_reading() {
    for method in METHODS {
        let pair = Pair::start(method);
        let (sender, report) = channel();
        let target = Target::serve(move |mut stream| {
            send_pattern(&stream, MIB, |_| {}).unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
            sender.send(drain(&mut stream)).unwrap();
        });
        let mut client = pair.open(target.port());
        assert_eq!(drain(&mut client), (MIB, Ending::Fin), "{method}");
        send_pattern(&client, 2 * MIB, |_| {}).unwrap();
        drop(client);
        assert_eq!(take(&report), (2 * MIB, Ending::Fin), "{method}");
    }
}

#[test]
fn a_target_that_ends_without_a_byte_is_heard() {
    for method in METHODS {
        let pair = Pair::start(method);
        let target = Target::serve(drop);
        let mut client = pair.open(target.port());
        assert_eq!(drain(&mut client), (0, Ending::Fin), "{method}");
    }
}

#[test]
fn the_tail_arrives_when_either_end_closes_at_once() {
    for method in METHODS {
        let pair = Pair::start(method);
        let target = Target::serve(|stream| send_pattern(&stream, MIB, |_| {}).unwrap());
        let mut client = pair.open(target.port());
        assert_eq!(drain(&mut client), (MIB, Ending::Fin), "{method}");

        let (sender, report) = channel();
        let target = Target::serve(move |mut s| sender.send(drain(&mut s)).unwrap());
        let client = pair.open(target.port());
        send_pattern(&client, MIB, |_| {}).unwrap();
        drop(client);
        assert_eq!(take(&report), (MIB, Ending::Fin), "{method}");
    }
}

#[test]
fn a_reset_of_the_target_reaches_the_client() {
    for method in METHODS {
        let pair = Pair::start(method);
        let target = Target::serve(|mut stream| {
            stream.write_all(b"some").unwrap();
            read_exactly(&stream, 2);
            reset(stream);
        });
        let mut client = pair.open(target.port());
        assert_eq!(read_exactly(&client, 4), b"some");
        client.write_all(b"go").unwrap();
        assert_eq!(ending(&client), (vec![], Ending::Reset), "{method}");

        let target = Target::serve(reset);
        assert_eq!(ending(&pair.open(target.port())), (vec![], Ending::Reset), "{method}, at once");
    }
}

#[test]
fn a_reset_of_the_client_reaches_the_target() {
    for method in METHODS {
        let pair = Pair::start(method);
        let (sender, report) = channel();
        let target = Target::serve(move |mut stream| {
            stream.write_all(b"some").unwrap();
            sender.send(ending(&stream)).unwrap();
        });
        let mut client = pair.open(target.port());
        client.write_all(b"here").unwrap();
        assert_eq!(read_exactly(&client, 4), b"some");
        reset(client);
        let (bytes, end) = take(&report);
        assert!(b"here".starts_with(&bytes), "{bytes:?}");
        assert_eq!(end, Ending::Reset, "{method}");
    }
}

/// Nobody waits for a target that does not read when its client is gone for good.
#[test]
fn a_reset_of_the_client_reaches_a_target_that_stalls() {
    let pair = Pair::start("aes-256-gcm");
    let (release, held) = channel::<()>();
    let held = std::sync::Mutex::new(held);
    let target = Target::serve(move |stream| {
        // Reads nothing until the test is over.
        let _ = held.lock().unwrap().recv_timeout(PATIENCE * 2);
        drop(stream);
    });
    let before = (pair.local.descriptors(), pair.server.descriptors());
    let client = pair.open(target.port());
    client.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
    assert!(send_pattern(&client, 64 * MIB, |_| {}).is_err(), "the target stalls");
    reset(client);
    eventually("both programs let go of the connection", || {
        (pair.local.descriptors() <= before.0 && pair.server.descriptors() <= before.1)
            .then_some(())
    });
    drop(release);
}

#[test]
fn a_refused_target_resets_the_client() {
    for method in METHODS {
        let pair = Pair::start(method);
        let client = pair.open(reserve());
        assert_eq!(ending(&client), (vec![], Ending::Reset), "{method}");
    }
}

#[test]
fn a_dead_server_is_told_in_the_words_of_each_protocol() {
    let scratch = Scratch::new();
    let port = reserve();
    let file = scratch.write("c.json", &config("aes-256-gcm", reserve(), port));
    let local = Process::start("ss-local", ["-c".as_ref(), file.as_os_str()]);
    local.wait_for("listening on");
    let (client, reply) = socks5_reply(port, "192.0.2.1", 80);
    assert_eq!(reply, 5);
    assert_eq!(ending(&client), (vec![], Ending::Fin));

    for request in [
        "CONNECT example.com:443 HTTP/1.1\r\nHost: example.com:443\r\n\r\n",
        "GET http://example.com/ HTTP/1.1\r\nHost: example.com\r\n\r\n",
    ] {
        let mut client = connect(port);
        client.write_all(request.as_bytes()).unwrap();
        assert_eq!(http_status(&client), 502, "{request}");
        assert_eq!(ending(&client).1, Ending::Fin);
    }

    let mut client = connect(port);
    client.write_all(b"\x04\x01\0\x50\xC0\0\x02\x01user\0").unwrap();
    assert_eq!(read_exactly(&client, 2), [0, 91]);
    assert_eq!(ending(&client).1, Ending::Fin);
}

#[test]
fn a_reader_that_stalls_costs_no_memory_and_nobody_else() {
    const LEN: usize = 256 * MIB;
    let pair = Pair::start("2022-blake3-aes-256-gcm");
    let sent = Arc::new(AtomicUsize::new(0));
    let progress = Arc::clone(&sent);
    let bulk = Target::serve(move |stream| {
        send_pattern(&stream, LEN, |n| progress.store(n, Ordering::Relaxed)).unwrap();
    });
    let echo = Target::echo();
    let round_trip = || {
        let mut client = pair.open(echo.port());
        send_pattern(&client, MIB / 2, |_| {}).unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        assert_eq!(drain(&mut client), (MIB / 2, Ending::Fin));
    };
    for _ in 0..4 {
        round_trip();
    }
    let before = (pair.local.memory_kib(), pair.server.memory_kib());

    let mut client = pair.open(bulk.port());
    let mut last = 0;
    let mut still_since = Instant::now();
    eventually("the sender stalls", || {
        let n = sent.load(Ordering::Relaxed);
        if n != last || n == 0 {
            (last, still_since) = (n, Instant::now());
        }
        (still_since.elapsed() > Duration::from_secs(1)).then_some(())
    });
    assert!(last < LEN / 2, "back pressure reaches the sender");
    for _ in 0..20 {
        round_trip();
    }
    let after = (pair.local.memory_kib(), pair.server.memory_kib());
    assert!(after.0 < before.0 + 8192, "ss-local: {} KiB, then {} KiB", before.0, after.0);
    assert!(after.1 < before.1 + 8192, "ss-server: {} KiB, then {} KiB", before.1, after.1);
    assert_eq!(drain(&mut client), (LEN, Ending::Fin));
}

#[test]
fn bulk_does_not_starve_a_conversation() {
    let pair = Pair::with_args("aes-256-gcm", &["--workers", "1"], &["--workers", "1"]);
    let stop = Arc::new(AtomicBool::new(false));
    let stopping = Arc::clone(&stop);
    let bulk = Target::serve(move |stream| {
        while !stopping.load(Ordering::Relaxed) && send_pattern(&stream, MIB, |_| {}).is_ok() {}
    });
    let moved = Arc::new(AtomicUsize::new(0));
    let readers: Vec<_> = (0..8)
        .map(|_| {
            let (mut client, moved) = (pair.open(bulk.port()), Arc::clone(&moved));
            std::thread::spawn(move || {
                let mut buf = vec![0; 256 * 1024];
                while let Ok(n @ 1..) = client.read(&mut buf) {
                    moved.fetch_add(n, Ordering::Relaxed);
                }
            })
        })
        .collect();
    let echo = Target::echo();
    let mut client = pair.open(echo.port());
    let mut rounds = 0;
    eventually("a good deal of bulk has moved", || {
        client.write_all(b"ping").unwrap();
        assert_eq!(read_exactly(&client, 4), b"ping");
        rounds += 1;
        (moved.load(Ordering::Relaxed) > 128 * MIB).then_some(())
    });
    stop.store(true, Ordering::Relaxed);
    readers.into_iter().for_each(|r| r.join().unwrap());
    assert!(rounds >= 10, "{rounds} round trips beside 128 MiB of bulk");
}

#[test]
fn a_killed_server_ends_its_connections_and_can_come_back() {
    let mut pair = Pair::start("2022-blake3-aes-256-gcm");
    let bulk = Target::serve(|stream| while send_pattern(&stream, MIB, |_| {}).is_ok() {});
    let mut client = pair.open(bulk.port());
    let mut buf = vec![0; MIB];
    client.read_exact(&mut buf).unwrap();
    pair.server.signal(rustix::process::Signal::KILL);
    // The kernel ends the sockets of a killed process with a FIN where nothing lies unread, and
    // a Shadowsocks stream has no end of its own: a cut between two records looks whole.
    read_to_any_end(&mut client);
    assert!(pair.local.is_alive());
    // Of what a killed process had open its listener is closed last.
    eventually("the server is gone", || (!pair.server.is_alive()).then_some(()));
    let (_, reply) = socks5_reply(pair.local_port, "127.0.0.1", bulk.port());
    assert_eq!(reply, 5);

    pair.restart_server();
    let echo = Target::echo();
    let mut client = pair.open(echo.port());
    client.write_all(b"again").unwrap();
    assert_eq!(read_exactly(&client, 5), b"again");
    assert_eq!(poke(&client), (vec![], Ending::Open));
}

fn read_to_any_end(stream: &mut TcpStream) {
    let mut buf = vec![0; 256 * 1024];
    while let Ok(1..) = stream.read(&mut buf) {}
}
