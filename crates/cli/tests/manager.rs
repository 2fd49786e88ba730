//! `ss-manager`: ports that come, are used, counted and go; what it keeps; whom it answers.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use adit_system_tests::{
    Asker, Association, DatagramTarget, Ending, Expected, Process, Scratch, Target, connect,
    ending, eventually, poke, read_exactly, reserve, send_pattern, socks5,
};
use rustix::process::Signal;

const METHOD: &str = "aes-256-gcm";

/// A manager on a Unix socket in a directory of its own.
struct Manager {
    process: Process,
    scratch: Scratch,
}

impl Manager {
    fn start(args: &[&str]) -> Self {
        Self::start_in(Scratch::new(), args)
    }

    fn start_in(scratch: Scratch, args: &[&str]) -> Self {
        let socket = scratch.file("m");
        let base = ["-s", "127.0.0.1", "-m", METHOD, "--manager-address", socket.to_str().unwrap()];
        let process = Process::start("ss-manager", base.iter().chain(args));
        process.wait_for("worker");
        Self { process, scratch }
    }

    fn socket(&self) -> PathBuf {
        self.scratch.file("m")
    }

    fn asker(&self) -> Asker {
        Asker::at_path(&self.socket())
    }

    /// Starts another one in the same directory, after this one was killed.
    fn restart(self, args: &[&str]) -> Self {
        let Self { mut process, scratch } = self;
        process.signal(Signal::KILL);
        eventually("it dies", || (!process.is_alive()).then_some(()));
        drop(process);
        Self::start_in(scratch, args)
    }
}

fn add(port: u16, password: &str) -> String {
    format!(r#"add: {{"server_port":{port},"password":"{password}"}}"#)
}

fn remove(port: u16) -> String {
    format!(r#"remove: {{"server_port":{port}}}"#)
}

/// A client of a port.
struct Client {
    _process: Process,
    port: u16,
}

impl Client {
    fn of(server: u16, password: &str) -> Self {
        let (port, server) = (reserve(), server.to_string());
        let own = port.to_string();
        let process = Process::start(
            "ss-local",
            ["-s", "127.0.0.1", "-p", &server, "-l", &own, "-k", password, "-m", METHOD, "-u"],
        );
        process.wait_for("worker");
        Self { _process: process, port }
    }

    fn open(&self, target: &Target) -> TcpStream {
        socks5(self.port, "127.0.0.1", target.port())
    }

    /// Makes sure that the port serves it.
    fn is_served(&self, target: &Target) {
        echoes(&mut self.open(target), b"served");
    }
}

fn echoes(stream: &mut TcpStream, words: &[u8]) {
    stream.write_all(words).unwrap();
    assert_eq!(read_exactly(stream, words.len()), words);
}

/// A wire between a client and a port that counts the bytes of both directions.
fn counting_wire(port: u16) -> (Target, Arc<AtomicU64>) {
    let count = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&count);
    let wire = Target::serve(move |client| {
        let server = connect(port);
        let copy = |mut from: &TcpStream, mut to: &TcpStream| {
            let mut buf = [0; 8192];
            while let Ok(n) = from.read(&mut buf) {
                if n == 0 || to.write_all(&buf[..n]).is_err() {
                    break;
                }
                counter.fetch_add(n as u64, Ordering::SeqCst);
            }
            // The other end may be gone already.
            let _ = to.shutdown(std::net::Shutdown::Write);
        };
        thread::scope(|scope| {
            scope.spawn(|| copy(&client, &server));
            copy(&server, &client);
        });
    });
    (wire, count)
}

#[test]
fn a_port_is_added_used_counted_and_removed() {
    let udp = reserve();
    let scratch = Scratch::new();
    let path = scratch.file("m");
    let by_port = format!("127.0.0.1:{udp}");
    for address in [path.to_str().unwrap(), &by_port] {
        let args = ["-s", "127.0.0.1", "-m", METHOD, "-u", "--manager-address", address];
        let process = Process::start("ss-manager", args);
        process.wait_for("worker");
        let asker = if address == by_port { Asker::at_port(udp) } else { Asker::at_path(&path) };
        assert_eq!(asker.ask("ping"), "stat: {}");
        let port = reserve();
        assert_eq!(asker.ask(&add(port, "x")), "ok");
        let list = format!(
            "[\n\t{{\"server_port\":\"{port}\",\"password\":\"x\",\"method\":\"{METHOD}\"}}\n]"
        );
        assert_eq!(asker.ask("list"), list);
        assert_eq!(asker.traffic(port), Some(0));

        // Every byte that passes the encrypted side, and nothing else.
        let echo = Target::echo();
        let (wire, count) = counting_wire(port);
        let client = Client::of(wire.port(), "x");
        let mut stream = client.open(&echo);
        for len in [1, 100, 70_000] {
            echoes(&mut stream, &vec![7; len]);
        }
        drop(stream);
        let passed = eventually("both count the same", || {
            let traffic = asker.traffic(port)?;
            (traffic > 140_000 && traffic == count.load(Ordering::SeqCst)).then_some(traffic)
        });

        // A salt, an address and a tag around each datagram, both ways.
        let target = DatagramTarget::echo();
        let association = Association::at(Client::of(port, "x").port);
        drop(association);
        let client = Client::of(port, "x");
        let association = Association::at(client.port);
        for _ in 0..3 {
            association.round_trip(target.address(), &[7; 500]);
        }
        let datagrams = 3 * 2 * (32 + 7 + 500 + 16);
        eventually("datagrams are counted", || {
            (asker.traffic(port)? == passed + datagrams).then_some(())
        });

        let mut stream = client.open(&echo);
        echoes(&mut stream, b"to the end");
        let report = process.report(&format!("port {port}, from a request"));
        assert!(report.contains("bytes_in=") && report.contains("reported=0"), "{report}");
        assert_eq!(asker.ask(&remove(port)), "ok");
        assert_ne!(ending(&stream).1, Ending::Open, "its connections end with it");
        let refused = TcpStream::connect(("127.0.0.1", port)).unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused, "when ok is said");
        assert_eq!(asker.ask("ping"), "stat: {}");
        assert_eq!(asker.ask(&remove(port)), "ok", "also when nothing is there");
        // At once again, and from 0.
        assert_eq!(asker.ask(&add(port, "x")), "ok");
        assert_eq!(asker.traffic(port), Some(0));
        client.is_served(&echo);
    }
}

#[test]
fn peers_without_the_key_are_not_counted() {
    let manager = Manager::start(&[]);
    let asker = manager.asker();
    let port = reserve();
    assert_eq!(asker.ask(&add(port, "x")), "ok");
    let mut probe = connect(port);
    probe.write_all(&[0x55; 5000]).unwrap();
    manager.process.wait_for("authentication failed");
    assert_eq!(asker.traffic(port), Some(0));
}

#[test]
fn another_password_ends_what_began_with_the_old_one() {
    let manager = Manager::start(&[]);
    let asker = manager.asker();
    let (port, other) = (reserve(), reserve());
    for port in [port, other] {
        assert_eq!(asker.ask(&add(port, "old")), "ok");
    }
    let echo = Target::echo();
    let (old, bystander) = (Client::of(port, "old"), Client::of(other, "old"));
    let mut stream = old.open(&echo);
    let mut beside = bystander.open(&echo);
    echoes(&mut stream, b"hello");
    echoes(&mut beside, b"hello");
    assert_eq!(asker.ask(&add(port, "new")), "ok");
    assert_eq!(asker.traffic(port), Some(0), "another port, another count");
    assert_ne!(ending(&stream).1, Ending::Open);
    echoes(&mut beside, b"still here");
    // From the answer on every connection meets the new key.
    let new = Client::of(port, "new");
    for _ in 0..20 {
        echoes(&mut new.open(&echo), b"new");
    }
    let mut stream = old.open(&echo);
    stream.write_all(b"hello").unwrap();
    manager.process.wait_for("authentication failed");
    assert_eq!(poke(&stream), (vec![], Ending::Open), "the old key is void");
    assert!(asker.traffic(other).unwrap() > 0);
}

/// A stream through one port loses nothing while 500 others come, are used and go.
#[test]
fn many_ports_come_and_go_beside_a_running_stream() {
    const PORTS: usize = 500;
    const LEN: usize = 24 << 20;
    let manager = Manager::start(&["--workers", "2", "-u"]);
    let asker = manager.asker();
    let kept = reserve();
    assert_eq!(asker.ask(&add(kept, "kept")), "ok");
    let (started, done) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let received = Arc::clone(&started);
    let complete = Arc::clone(&done);
    let sink = Target::serve(move |mut stream| {
        let mut expected = Expected::default();
        let mut buf = vec![0; 64 * 1024];
        while let Ok(n) = stream.read(&mut buf) {
            if n == 0 {
                break;
            }
            expected.take(&buf[..n]);
            received.store(expected.len() as u64, Ordering::SeqCst);
        }
        complete.store(expected.len() as u64, Ordering::SeqCst);
    });
    let client = Client::of(kept, "kept");
    let stream = client.open(&sink);
    let ports: Vec<u16> = (0..PORTS).map(|_| reserve()).collect();
    let halfway = Arc::new(AtomicU64::new(0));
    let gate = Arc::clone(&halfway);
    let sender = thread::spawn(move || {
        send_pattern(&stream, LEN, |sent| {
            // The second half goes out when all ports are there, so that both were at work.
            while sent >= LEN / 2 && gate.load(Ordering::SeqCst) == 0 {
                thread::yield_now();
            }
        })
        .unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        stream
    });
    eventually("the stream runs", || (started.load(Ordering::SeqCst) > 0).then_some(()));
    let echo = Target::echo();
    for (at, &port) in ports.iter().enumerate() {
        assert_eq!(asker.ask(&add(port, "many")), "ok", "port {at}");
        if at % 100 == 7 {
            echoes(&mut Client::of(port, "many").open(&echo), b"one of many");
        }
    }
    let answer = asker.ask("ping");
    assert_eq!(answer.matches(':').count(), 1 + 1 + PORTS, "{answer}");
    halfway.store(1, Ordering::SeqCst);
    for (at, &port) in ports.iter().enumerate() {
        assert_eq!(asker.ask(&remove(port)), "ok", "port {at}");
    }
    let _stream = sender.join().unwrap();
    eventually("all has come", || (done.load(Ordering::SeqCst) == LEN as u64).then_some(()));
    assert!(asker.traffic(kept).unwrap() > LEN as u64);
    assert_eq!(asker.ask("ping").matches(':').count(), 2, "one port is left");
    let refused = ports.iter().all(|&port| TcpStream::connect(("127.0.0.1", port)).is_err());
    assert!(refused, "none of them is open");
}

/// Requests that are all there before the first is answered: in order, one answer each.
#[test]
fn requests_in_a_row_are_answered_in_order() {
    let udp = reserve();
    let address = format!("127.0.0.1:{udp}");
    let args = ["-s", "127.0.0.1", "-m", METHOD, "--manager-address", &address];
    let manager = Process::start("ss-manager", args);
    manager.wait_for("worker");
    let asker = Asker::at_port(udp);
    let port = reserve();
    for _ in 0..10 {
        asker.tell(&add(port, "x"));
        asker.tell("ping");
        asker.tell(&remove(port));
        asker.tell("ping");
    }
    for _ in 0..10 {
        let there = format!("stat: {{\"{port}\":0}}");
        assert_eq!([(); 4].map(|()| asker.hear()), ["ok", &there, "ok", "stat: {}"]);
    }
}

#[test]
fn a_port_that_is_taken_is_not_available() {
    let manager = Manager::start(&[]);
    let asker = manager.asker();
    let taken = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = taken.local_addr().unwrap().port();
    assert_eq!(asker.ask(&add(port, "x")), "port is not available");
    assert_eq!(asker.ask("ping"), "stat: {}");
    drop(taken);
    assert_eq!(asker.ask(&add(port, "x")), "ok");

    // What replaces a port has to be possible, or the old one stays.
    let port = reserve();
    let _udp = UdpSocket::bind(("127.0.0.1", port)).unwrap();
    assert_eq!(asker.ask(&add(port, "x")), "ok");
    let client = Client::of(port, "x");
    let echo = Target::echo();
    let mut stream = client.open(&echo);
    echoes(&mut stream, b"hello");
    let both = format!(r#"add: {{"server_port":{port},"password":"y","mode":"tcp_and_udp"}}"#);
    assert_eq!(asker.ask(&both), "port is not available");
    echoes(&mut stream, b"as before");
    client.is_served(&echo);
    assert!(asker.traffic(port).unwrap() > 0, "its count goes on");
}

#[test]
fn nonsense_changes_nothing() {
    let manager = Manager::start(&[]);
    let asker = manager.asker();
    let port = reserve();
    assert_eq!(asker.ask(&add(port, "x")), "ok");
    let list = asker.ask("list");
    for request in [
        "add",
        "add: {",
        "add: []",
        "add: {\"server_port\":1}",
        "remove",
        "remove: {}",
        "add: {\"server_port\":70000,\"password\":\"hunter2\"}",
        "add: {\"server_port\":7,\"password\":\"hunter2\",\"method\":\"rc4-md5\"}",
        "add: {\"server_port\":7,\"password\":\"hunter2\",\"plugin\":\"obfsproxy\"}",
        "add: {\"server_port\":7,\"password\":\"hunter2\",\"acl\":\"/etc/passwd\"}",
        "add: {\"server_port\":7,\"password\":\"hunter2\",\"method\":\"2022-blake3-aes-128-gcm\"}",
    ] {
        assert_eq!(asker.ask(request), "err", "{request}");
    }
    for request in
        [&b""[..], b"foo", b"\0", b"{}", b"stat: {", b"stat: {\"1\":2}", b"\xff\xfe", b"ping\xff"]
    {
        asker.try_tell(request).unwrap();
        // Of the two the second alone is answered.
        assert_eq!(asker.ask("list"), list, "{request:?}");
    }
    let mut oversized = b"ping ".to_vec();
    oversized.resize(80_000, b' ');
    asker.try_tell(&oversized).unwrap();
    assert_eq!(asker.ask("list"), list);
    let text = manager.process.text();
    assert!(text.contains("bad request") && !text.contains("hunter2"), "{text}");
    assert!(text.contains("obfsproxy") && text.contains("access control"), "{text}");
}

#[test]
fn nobody_waits_for_a_client_that_does_not_listen() {
    let manager = Manager::start(&[]);
    let asker = manager.asker();
    // Never reads; its queue holds a few answers.
    let deaf = manager.asker();
    // Is gone when it is answered.
    let gone = manager.asker();
    // Has no name to answer to.
    let nameless = UnixDatagram::unbound().unwrap();
    for _ in 0..300 {
        deaf.tell("ping");
        gone.tell("ping");
        nameless.send_to(b"ping", manager.socket()).unwrap();
    }
    let path = gone.path().unwrap();
    drop(gone);
    assert!(!path.exists());
    assert_eq!(asker.ask("ping"), "stat: {}");
    assert_eq!(asker.ask(&add(reserve(), "x")), "ok");
}

#[test]
fn the_socket_is_its_owners_and_never_anothers() {
    let manager = Manager::start(&[]);
    let path = manager.socket();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    // A second one leaves the first alone.
    let second = Process::run("ss-manager", ["--manager-address", path.to_str().unwrap()]);
    assert_eq!(second.code, Some(1), "{}", second.text);
    assert!(second.text.contains("another program has that socket"), "{}", second.text);
    assert_eq!(manager.asker().ask("ping"), "stat: {}");
    // One that was killed leaves its file, which the next replaces.
    let manager = manager.restart(&[]);
    assert_eq!(manager.asker().ask("ping"), "stat: {}");
    // One that stops takes it along.
    manager.process.signal(Signal::TERM);
    let Manager { process, scratch: _scratch } = manager;
    assert_eq!(process.wait().code, Some(0));
    assert!(!path.exists());
}

#[test]
fn ports_are_kept_across_restarts_when_asked() {
    let scratch = Scratch::new();
    let state = scratch.file("state.json");
    let args = ["--state-file", state.to_str().unwrap()];
    let manager = Manager::start(&args);
    let asker = manager.asker();
    let (kept, dropped, replaced) = (reserve(), reserve(), reserve());
    for port in [kept, dropped, replaced] {
        assert_eq!(asker.ask(&add(port, "x")), "ok");
    }
    let users = r#""method":"2022-blake3-aes-128-gcm","mode":"tcp_and_udp","users":[{"name":"a","password":"EBESExQVFhcYGRobHB0eHw=="}]"#;
    let request = format!(
        r#"add: {{"server_port":{replaced},"password":"AAECAwQFBgcICQoLDA0ODw==",{users}}}"#
    );
    assert_eq!(asker.ask(&request), "ok");
    assert_eq!(asker.ask(&remove(dropped)), "ok");
    let list = asker.ask("list");
    assert_eq!(fs::metadata(&state).unwrap().permissions().mode() & 0o777, 0o600);
    let manager = manager.restart(&args);
    let asker = manager.asker();
    assert_eq!(asker.ask("list"), list);
    manager
        .process
        .wait_for(&format!("127.0.0.1:{replaced} (UDP): 2022-blake3-aes-128-gcm, 1 user"));
    let echo = Target::echo();
    Client::of(kept, "x").is_served(&echo);
    // Without being asked nothing is kept.
    let manager = manager.restart(&[]);
    assert_eq!(manager.asker().ask("ping"), "stat: {}");
}

#[test]
fn a_work_directory_keeps_ports_too() {
    let scratch = Scratch::new();
    let workdir = scratch.file("work");
    let args = ["-D", workdir.to_str().unwrap()];
    let manager = Manager::start(&args);
    let port = reserve();
    assert_eq!(manager.asker().ask(&add(port, "x")), "ok");
    assert_eq!(fs::metadata(&workdir).unwrap().permissions().mode() & 0o777, 0o700);
    assert!(fs::read_to_string(workdir.join("ports.json")).unwrap().contains(&port.to_string()));
    let manager = manager.restart(&args);
    assert_eq!(manager.asker().traffic(port), Some(0));
}

#[test]
fn a_state_file_that_cannot_be_written_stops_nobody() {
    let scratch = Scratch::new();
    let dir = scratch.file("dir");
    fs::create_dir(&dir).unwrap();
    let state = dir.join("state.json");
    let args = ["--state-file", state.to_str().unwrap()];
    let manager = Manager::start(&args);
    let asker = manager.asker();
    // As a full disk: no new file can be made.
    fs::remove_dir_all(&dir).unwrap();
    let port = reserve();
    assert_eq!(asker.ask(&add(port, "x")), "ok");
    manager.process.wait_for("cannot keep ports in");
    Client::of(port, "x").is_served(&Target::echo());
    fs::create_dir(&dir).unwrap();
    manager.process.wait_for("ports are kept in");
    assert!(fs::read_to_string(&state).unwrap().contains(&port.to_string()));
    let left: Vec<_> = fs::read_dir(&dir).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left, ["state.json"]);
}

#[test]
fn a_damaged_state_file_is_not_overwritten() {
    let scratch = Scratch::new();
    let damaged = "{\"version\":1,\"ports\":[\n{\"server_port\":8001,\"password\":\"hunter2";
    let state = scratch.write("state.json", damaged);
    let socket = scratch.file("m");
    let args =
        ["--manager-address", socket.to_str().unwrap(), "--state-file", state.to_str().unwrap()];
    let exit = Process::run("ss-manager", args);
    assert_eq!(exit.code, Some(2), "{}", exit.text);
    assert!(exit.text.contains("state.json:2:") && !exit.text.contains("hunter2"), "{}", exit.text);
    assert_eq!(fs::read_to_string(&state).unwrap(), damaged);
    assert!(!socket.exists());
}

/// What was kept comes back when the port is free again, and is not forgotten before.
#[test]
fn a_kept_port_that_is_taken_is_tried_again() {
    let scratch = Scratch::new();
    let state = scratch.file("state.json");
    let args = ["--state-file", state.to_str().unwrap()];
    let manager = Manager::start(&args);
    let (port, other) = (reserve(), reserve());
    assert_eq!(manager.asker().ask(&add(port, "x")), "ok");
    let Manager { process, scratch: own } = manager;
    process.signal(Signal::TERM);
    assert_eq!(process.wait().code, Some(0));
    let taken = TcpListener::bind(("127.0.0.1", port)).unwrap();
    let manager = Manager::start_in(own, &args);
    manager.process.wait_for(&format!("port {port} is kept but cannot be opened"));
    let asker = manager.asker();
    assert_eq!(asker.ask("ping"), "stat: {}");
    assert_eq!(asker.ask(&add(other, "x")), "ok");
    assert!(fs::read_to_string(&state).unwrap().contains(&port.to_string()));
    drop(taken);
    eventually("it is open", || asker.traffic(port));
    Client::of(port, "x").is_served(&Target::echo());
}

#[test]
fn a_reload_changes_the_ports_of_the_file_alone() {
    let scratch = Scratch::new();
    let file = |ports: &[(u16, &str)], method: &str| {
        let ports: Vec<_> = ports.iter().map(|(p, k)| format!("\"{p}\": \"{k}\"")).collect();
        let ports = ports.join(", ");
        scratch
            .write("m.json", &format!(r#"{{"port_password": {{{ports}}}, "method": "{method}"}}"#))
    };
    let (gone, stays, fresh, requested) = (reserve(), reserve(), reserve(), reserve());
    let path = file(&[(gone, "a"), (stays, "b")], METHOD);
    let socket = scratch.file("m");
    let manager = Process::start(
        "ss-manager",
        [
            "-s",
            "127.0.0.1",
            "--manager-address",
            socket.to_str().unwrap(),
            "-c",
            path.to_str().unwrap(),
        ],
    );
    manager.wait_for("worker");
    let asker = Asker::at_path(&socket);
    assert_eq!(asker.ask(&add(requested, "c")), "ok");
    let echo = Target::echo();
    let clients = [(gone, "a"), (stays, "b"), (requested, "c")].map(|(p, k)| Client::of(p, k));
    let mut streams = clients.each_ref().map(|client| client.open(&echo));
    streams.iter_mut().for_each(|stream| echoes(stream, b"hello"));
    let counted = asker.traffic(stays).unwrap();
    assert!(counted > 0);

    file(&[(stays, "b"), (fresh, "d"), (requested, "other")], METHOD);
    manager.signal(Signal::HUP);
    manager.wait_for("configuration reloaded");
    manager.wait_for("stays as a request has it");
    echoes(&mut streams[1], b"goes on");
    echoes(&mut streams[2], b"goes on");
    assert_ne!(ending(&streams[0]).1, Ending::Open, "a port that is gone ends");
    eventually("the count goes on", || (asker.traffic(stays)? > counted).then_some(()));
    assert_eq!(asker.traffic(gone), None);
    Client::of(fresh, "d").is_served(&echo);
    // The request's password counts.
    clients[2].is_served(&echo);
    let report = manager.report(&format!("port {fresh}"));
    assert!(report.contains("from the configuration"), "{report}");

    // A file that cannot be served leaves everything as it was.
    let taken = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = taken.local_addr().unwrap().port();
    file(&[(port, "e")], METHOD);
    manager.signal(Signal::HUP);
    manager.wait_for("reload failed");
    assert!(asker.traffic(fresh).is_some() && asker.traffic(port).is_none());
    echoes(&mut streams[1], b"still");
    // A port of the file can be taken away, and another put in its place.
    assert_eq!(asker.ask(&remove(stays)), "ok");
    assert_eq!(asker.ask(&add(fresh, "e")), "ok");
    Client::of(fresh, "e").is_served(&echo);
}

#[test]
fn the_rust_dialect_has_its_own_words() {
    let scratch = Scratch::new();
    let socket = scratch.file("m");
    let args = ["ssmanager", "--manager-addr", socket.to_str().unwrap(), "-s", "127.0.0.1", "-U"];
    let manager = Process::start("adit", args);
    manager.wait_for("worker");
    let asker = Asker::at_path(&socket);
    assert_eq!(asker.ask("ping\n"), "stat: {}\n");
    assert_eq!(asker.ask("list"), "[]\n");
    let port = reserve();
    assert_eq!(asker.ask(&add(port, "x")), "ok\n");
    let list = format!("[{{\"server_port\":{port},\"password\":\"x\"}}]\n");
    assert_eq!(asker.ask("list"), list);
    let method = format!(r#"add: {{"server_port":{port},"password":"x","method":"foo"}}"#);
    assert_eq!(asker.ask(&method), "unrecognized method \"foo\"\n");
    asker.tell("add: {");
    assert_eq!(asker.ask("ping"), format!("stat: {{\"{port}\":0}}\n"), "no word about nonsense");
    let client = Process::start(
        "ss-local",
        ["-s", "127.0.0.1", "-p", &port.to_string(), "-l", &reserve().to_string(), "-k", "x"],
    );
    client.wait_for("worker");
    assert_eq!(asker.ask(&remove(port)), "ok\n");
}

#[test]
fn a_server_reports_to_a_manager() {
    let udp = reserve();
    let scratch = Scratch::new();
    let path = scratch.file("m");
    let by_port = format!("127.0.0.1:{udp}");
    for address in [path.to_str().unwrap(), &by_port] {
        // The manager comes later than the server, which is no reason for that to end.
        let port = reserve();
        let number = port.to_string();
        let server = Process::start(
            "ss-server",
            [
                "-s",
                "127.0.0.2",
                "-p",
                &number,
                "-k",
                "x",
                "-m",
                METHOD,
                "--manager-address",
                address,
            ],
        );
        server.wait_for("worker");
        let args = ["-s", "127.0.0.1", "-m", METHOD, "--manager-address", address];
        let manager = Process::start("ss-manager", args);
        manager.wait_for("worker");
        let asker = if address == by_port { Asker::at_port(udp) } else { Asker::at_path(&path) };
        assert_eq!(asker.ask(&add(port, "own")), "ok");
        let own = reserve();
        let own_text = own.to_string();
        let local = Process::start(
            "ss-local",
            ["-s", "127.0.0.2", "-p", &number, "-l", &own_text, "-k", "x", "-m", METHOD],
        );
        local.wait_for("worker");
        let echo = Target::echo();
        let mut stream = socks5(own, "127.0.0.1", echo.port());
        echoes(&mut stream, &[7; 10_000]);
        let first = eventually("a report every 5 s", || {
            asker.traffic(port).filter(|bytes| *bytes > 20_000)
        });
        echoes(&mut stream, &[7; 10_000]);
        drop(stream);
        // The last report comes with the end.
        server.signal(Signal::TERM);
        let exit = server.wait();
        assert_eq!(exit.code, Some(0), "{}", exit.text);
        assert!(asker.traffic(port).unwrap() > first + 20_000);
        let report = manager.report(&format!("port {port}"));
        assert!(report.contains("bytes_in=0") && !report.contains("reported=0"), "{report}");
        // What passes here is added.
        let before = asker.traffic(port).unwrap();
        Client::of(port, "own").is_served(&echo);
        assert!(asker.traffic(port).unwrap() > before);
        assert_eq!(asker.ask(&add(port, "own")), "ok");
        assert_eq!(asker.traffic(port), Some(0), "a port that is added anew counts from 0");
    }
}

#[test]
fn a_server_goes_on_without_its_manager() {
    let scratch = Scratch::new();
    let nowhere = scratch.file("nobody");
    let (port, address) = (reserve(), nowhere.to_str().unwrap());
    let server = Process::start(
        "ss-server",
        [
            "-s",
            "127.0.0.1",
            "-p",
            &port.to_string(),
            "-k",
            "x",
            "-m",
            METHOD,
            "--manager-address",
            address,
        ],
    );
    server.wait_for("takes no reports");
    Client::of(port, "x").is_served(&Target::echo());
    server.signal(Signal::TERM);
    assert_eq!(server.wait().code, Some(0));
    let left = fs::read_dir(scratch.path()).unwrap().count();
    assert_eq!(left, 0, "nothing is left in the file system");
}

#[test]
fn ports_listen_on_every_address_that_is_given() {
    let manager = Manager::start(&["-s", "127.0.0.3"]);
    let asker = manager.asker();
    let port = reserve();
    assert_eq!(asker.ask(&add(port, "x")), "ok");
    for host in [Ipv4Addr::new(127, 0, 0, 1), Ipv4Addr::new(127, 0, 0, 3)] {
        drop(TcpStream::connect((host, port)).unwrap());
    }
    assert!(TcpStream::connect((Ipv4Addr::new(127, 0, 0, 2), port)).is_err());
    // Taken on one of them is taken.
    let other = reserve();
    let _taken = TcpListener::bind((Ipv4Addr::new(127, 0, 0, 3), other)).unwrap();
    assert_eq!(asker.ask(&add(other, "x")), "port is not available");
    assert!(TcpStream::connect((Ipv4Addr::LOCALHOST, other)).is_err(), "half a port is none");
}

/// No client of one port gets through it to another, added before or after.
#[test]
fn ports_are_no_targets_of_each_other() {
    let manager = Manager::start(&[]);
    let asker = manager.asker();
    let (early, late) = (reserve(), reserve());
    assert_eq!(asker.ask(&add(early, "x")), "ok");
    let client = Client::of(early, "x");
    assert_eq!(asker.ask(&add(late, "x")), "ok");
    for port in [early, late] {
        let mut stream = socks5(client.port, "127.0.0.1", port);
        stream.write_all(b"hello").unwrap();
        manager.process.wait_for(&format!("127.0.0.1:{port} refused"));
    }
    // What is no listener any more may be a target.
    assert_eq!(asker.ask(&remove(late)), "ok");
    let echo = Target::serve_on((Ipv4Addr::LOCALHOST, late).into(), |stream| {
        let _ = std::io::copy(&mut &stream, &mut &stream);
    });
    client.is_served(&echo);
}

#[test]
fn an_address_that_others_reach_is_warned_about_loudly() {
    let port = reserve();
    let manager = Process::start("ss-manager", ["--manager-address", &format!("0.0.0.0:{port}")]);
    manager.wait_for("WHOEVER REACHES THIS ADDRESS");
    manager.wait_for("worker");
    assert_eq!(Asker::at_port(port).ask("ping"), "stat: {}");
}

#[test]
fn check_says_what_a_manager_would_do() {
    let scratch = Scratch::new();
    let text = r#"{"manager_address": "/run/m", "port_password": {"8001": "a"}, "server": "::1"}"#;
    let file = scratch.write("m.json", text);
    let exit = Process::run("adit", ["check".as_ref(), file.as_os_str()]);
    assert_eq!(exit.code, Some(0), "{}", exit.text);
    assert!(exit.text.contains("takes requests at /run/m"), "{}", exit.text);
    assert!(exit.text.contains("serves [::1]:8001"), "{}", exit.text);
    assert!(Path::new(&file).exists());
}

/// Who has a port does not have the manager: datagrams through the port do not reach it.
#[test]
fn a_manager_is_no_target_of_its_clients() {
    let udp = reserve();
    let by_port = format!("127.0.0.1:{udp}");
    let args = ["-s", "127.0.0.1", "-m", METHOD, "-u", "--manager-address", &by_port];
    let manager = Process::start("ss-manager", args);
    manager.wait_for("worker");
    let asker = Asker::at_port(udp);
    let (port, reported) = (reserve(), reserve());
    assert_eq!(asker.ask(&add(port, "x")), "ok");
    let server = Process::start(
        "ss-server",
        [
            "-s",
            "127.0.0.1",
            "-p",
            &reported.to_string(),
            "-k",
            "x",
            "-m",
            METHOD,
            "-u",
            "--manager-address",
            &by_port,
        ],
    );
    server.wait_for("worker");
    for (server, port) in [(&manager, port), (&server, reported)] {
        let client = Client::of(port, "x");
        let association = Association::at(client.port);
        for (count, host) in ["127.0.0.1", "0.0.0.0", "localhost"].into_iter().enumerate() {
            association.send(host, udp, remove(port).as_bytes());
            server.wait_for_counter("blocked", count as u64 + 1);
        }
    }
    assert!(asker.ask("ping").contains(&port.to_string()));
}

#[test]
fn the_list_of_the_manager_is_that_of_every_port() {
    let scratch = Scratch::new();
    let echo = Target::echo();
    let list = scratch.write("list.acl", "[outbound_block_list]\n127.0.0.2\n");
    let manager = Manager::start(&["--acl", list.to_str().unwrap()]);
    let port = reserve();
    assert_eq!(manager.asker().ask(&add(port, "x")), "ok");
    let client = Client::of(port, "x");
    client.is_served(&echo);
    let refused = socks5(client.port, "127.0.0.2", echo.port());
    (&refused).write_all(b"hello").unwrap();
    assert_eq!(ending(&refused).1, Ending::Reset);
    // And of those that were there: a reload reads it again.
    scratch.write("list.acl", "[outbound_block_list]\n127.0.0.1\n");
    manager.process.signal(Signal::HUP);
    manager.process.wait_for("configuration reloaded");
    let refused = client.open(&echo);
    (&refused).write_all(b"hello").unwrap();
    assert_eq!(ending(&refused).1, Ending::Reset);
    assert_eq!(echo.connections(), 1);
}
