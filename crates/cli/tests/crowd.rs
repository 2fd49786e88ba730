//! Crowds that hold what everybody needs. In a file of its own, and one after the other, because
//! they use much of what the kernel has for all sockets together.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::io::Write;
use std::sync::Mutex;
use std::time::Duration;

use adit_system_tests::{
    Pair, Target, connect, connect_narrow, eventually, raise_descriptor_limit, read_exactly,
    send_pattern, socks5_over,
};

/// Readers that never read.
const STALLED: usize = 2500;
const MIB: usize = 1 << 20;
const METHOD: &str = "aes-256-gcm";

static ALONE: Mutex<()> = Mutex::new(());

/// Those who never read what they asked for must not use up what everybody needs.
#[test]
#[ignore = "fills the kernel's memory for TCP, which other tests need"]
fn many_readers_that_stall_do_not_stop_the_others() {
    let _alone = ALONE.lock();
    if raise_descriptor_limit() < 4 * STALLED as u64 {
        println!("not enough open files for this attack, here or in the programs");
        return;
    }
    let pair = Pair::with_args(METHOD, &["--workers", "1"], &["--workers", "1"]);
    let echo = Target::echo();
    let mut early = pair.open(echo.port());
    early.write_all(b"early").unwrap();
    assert_eq!(read_exactly(&early, 5), b"early");
    let bulk = Target::serve(|stream| {
        // Ends with an error when the test is over.
        let _ = send_pattern(&stream, 4 * MIB, |_| {});
    });
    let stalled: Vec<_> = (0..STALLED)
        .map(|_| {
            let stream = connect_narrow(pair.local_port);
            assert_eq!(socks5_over(&stream, "127.0.0.1", bulk.port()), 0);
            stream
        })
        .collect();
    eventually("memory is as full as it gets", || {
        let before = (pair.local.memory_kib(), pair.server.memory_kib());
        std::thread::sleep(Duration::from_millis(500));
        (before == (pair.local.memory_kib(), pair.server.memory_kib())).then_some(())
    });
    early.write_all(b"still").unwrap();
    assert_eq!(read_exactly(&early, 5), b"still", "an open connection goes on");
    let mut late = pair.open(echo.port());
    late.write_all(b"new").unwrap();
    assert_eq!(read_exactly(&late, 3), b"new", "a new one is served");
    drop(stalled);
}

/// Requests that never come to their end must not use up what everybody needs.
#[test]
fn many_unfinished_requests_do_not_stop_the_others() {
    let _alone = ALONE.lock();
    // Two buffers each: as many as 64 MiB have.
    const UNFINISHED: usize = 8300;
    if raise_descriptor_limit() < 3 * UNFINISHED as u64 / 2 {
        println!("not enough open files for this attack, here or in the program");
        return;
    }
    let pair = Pair::with_args(METHOD, &[], &["--workers", "1"]);
    let echo = Target::echo();
    let mut early = pair.open(echo.port());
    early.write_all(b"early").unwrap();
    assert_eq!(read_exactly(&early, 5), b"early");
    let head = format!("GET http://127.0.0.1/ HTTP/1.1\r\nX: {}", "x".repeat(8000));
    let unfinished: Vec<_> = (0..UNFINISHED)
        .map(|_| {
            let mut stream = connect(pair.local_port);
            stream.write_all(head.as_bytes()).unwrap();
            stream
        })
        .collect();
    early.write_all(b"still").unwrap();
    assert_eq!(read_exactly(&early, 5), b"still", "an open connection goes on");
    let mut late = pair.open(echo.port());
    late.write_all(b"new").unwrap();
    assert_eq!(read_exactly(&late, 3), b"new", "a new one is served");
    drop(unfinished);
}
