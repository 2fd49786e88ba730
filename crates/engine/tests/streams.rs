//! One worker with real sockets: what a server refuses, hops, UDP ASSOCIATE, and reloads.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use adit_engine::clients::ClientTable;
use adit_engine::crew::Crew;
use adit_engine::guard::{Guard, OwnListeners, Transport};
use adit_engine::health::Servers;
use adit_engine::receipt::Receipts;
use adit_engine::role::{
    Associate, Datagrams, Inbound, Limits, NextHop, Role, RoleKind, Upstream, UpstreamHost,
};
use adit_engine::worker::{Capacity, Command, Handle, ListenerId, Worker};
use adit_handshake::Policy;
use adit_observe::{Counter, FlowCounters, PortCounters, UserCounters};
use adit_resolver::{Hosts, Order, Settings};
use adit_shadowsocks::{ClientKey, Method, RelayKey, ServerKey};
use adit_sys::datagram::DatagramOptions;
use adit_sys::net::{self, OutboundOptions, PortSharing, StreamOptions, UnixOptions};
use adit_sys::poll::{Events, Interest, Poll, Waker};

const METHOD: Method = Method::Blake3Aes128Gcm;
const HOP: &str = "AAAAAAAAAAAAAAAAAAAAAA==";
const PORT: &str = "AQEBAQEBAQEBAQEBAQEBAQ==";
const ALICE: &str = "AgICAgICAgICAgICAgICAg==";
const BOB: &str = "AwMDAwMDAwMDAwMDAwMDAw==";

/// A worker on a thread of its own.
struct Rig {
    handle: Handle,
    thread: thread::JoinHandle<()>,
    next_id: u32,
}

impl Rig {
    fn new() -> Self {
        let crew = Crew::new(1).unwrap();
        let capacity = Capacity { flows: 64, buffer_bytes: 4 << 20, names: 16, sessions: 16 };
        let hosts = Hosts::parse(b"127.0.0.1 inside.test both.test\n203.0.113.1 both.test\n");
        let (worker, handle) = Worker::new(
            0,
            crew,
            capacity,
            Arc::new(Settings::default()),
            Arc::new(hosts),
            OutboundOptions::default(),
        )
        .unwrap();
        Self { handle, thread: thread::spawn(|| worker.run().unwrap()), next_id: 0 }
    }

    fn listen(&mut self, kind: RoleKind) -> (ListenerId, SocketAddr) {
        self.listen_as(Role { clients: None, ..role(kind) })
    }

    fn listen_as(&mut self, role: Role) -> (ListenerId, SocketAddr) {
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let fd = net::listen(any, PortSharing::Exclusive, false, &StreamOptions::PLAIN).unwrap();
        let addr = net::local_addr(&fd).unwrap();
        let id = ListenerId(self.next_id);
        self.next_id += 1;
        self.handle.send(Command::Listen(id, fd, Arc::new(role)));
        (id, addr)
    }

    /// A SOCKS client of the server at `server`.
    fn client(&mut self, server: SocketAddr, keys: &str) -> SocketAddr {
        self.listen(client(server, keys, None)).1
    }

    fn assign(&self, id: ListenerId, kind: RoleKind) {
        self.handle.send(Command::Assign(id, Arc::new(role(kind))));
    }

    fn wait_for(&self, what: &str, counter: impl Fn(&FlowCounters) -> &Counter, value: u64) {
        let until = Instant::now() + Duration::from_secs(10);
        while counter(self.handle.counters()).value() != value {
            assert!(
                Instant::now() < until,
                "{what} stays {}",
                counter(self.handle.counters()).value()
            );
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// Ends the worker, which takes its connections along.
    fn end(self) {
        self.handle.send(Command::Drain(Instant::now()));
        self.thread.join().unwrap();
    }
}

fn role(kind: RoleKind) -> Role {
    let long = Duration::from_secs(60);
    Role {
        kind,
        limits: Limits {
            handshake: long,
            connect: long,
            idle: long,
            half_closed_idle: long,
            first_payload: Duration::from_millis(20),
        },
        stream: StreamOptions::PLAIN,
        order: Order::System,
        replay: None,
        clients: None,
        port: None,
        datagrams: Datagrams {
            idle: long,
            options: DatagramOptions::default(),
            salts: None,
            book: None,
        },
    }
}

fn client(server: SocketAddr, keys: &str, associate: Option<Associate>) -> RoleKind {
    RoleKind::Client {
        inbound: Inbound::Proxy {
            policy: Policy { socks4: true, socks5: true, http: true, udp: true },
            associate,
        },
        servers: Servers::from(vec![Upstream {
            host: UpstreamHost::Ip(server.ip()),
            port: server.port(),
            key: ClientKey::parse(METHOD, keys).unwrap(),
            outbound: OutboundOptions::default(),
            connect: Duration::from_secs(5),
            weight: 1000,
            behind_plugin: false,
            health: Arc::default(),
        }]),
        direct: None,
    }
}

fn server(port: &str, users: &[(&str, &str)], guard: Guard) -> RoleKind {
    RoleKind::Server {
        key: ServerKey::parse(METHOD, port, users.iter().copied()).unwrap(),
        users: users.iter().map(|_| Arc::new(UserCounters::default())).collect(),
        outbound: OutboundOptions::default(),
        dscp: Vec::new(),
        guard: Arc::new(guard),
        acl: None,
        sees_clients: true,
    }
}

fn hop(next: &[(&str, SocketAddr)]) -> RoleKind {
    RoleKind::Hop {
        key: RelayKey::parse(METHOD, HOP, next.iter().map(|(key, _)| *key)).unwrap(),
        next: next
            .iter()
            .map(|(_, addr)| NextHop {
                name: "next".into(),
                host: UpstreamHost::Ip(addr.ip()),
                port: addr.port(),
            })
            .collect(),
        outbound: OutboundOptions::default(),
    }
}

/// A target that sends back what it reads, with an end for an end.
fn echo() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            thread::spawn(move || {
                let mut reader = stream.try_clone().unwrap();
                // The other end decides how it ends.
                let _ = std::io::copy(&mut reader, &mut stream);
                let _ = stream.shutdown(Shutdown::Write);
            });
        }
    });
    addr
}

fn dial(addr: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(addr).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    stream
}

/// Asks a SOCKS5 proxy and returns the code and the address of its answer.
fn ask(stream: &mut (impl Read + Write), command: u8, target: &[u8]) -> (u8, SocketAddr) {
    stream.write_all(&[5, 1, 0]).unwrap();
    stream.write_all(&[&[5, command, 0], target].concat()).unwrap();
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!((&answer[..3], answer[5]), (&[5, 0, 5][..], 1));
    let ip = IpAddr::from([answer[6], answer[7], answer[8], answer[9]]);
    (answer[3], SocketAddr::new(ip, u16::from_be_bytes([answer[10], answer[11]])))
}

fn by_ip(addr: SocketAddr) -> Vec<u8> {
    let IpAddr::V4(ip) = addr.ip() else { panic!("{addr} is IPv6") };
    [&[1][..], &ip.octets(), &addr.port().to_be_bytes()].concat()
}

fn by_name(name: &str, port: u16) -> Vec<u8> {
    [&[3, name.len() as u8][..], name.as_bytes(), &port.to_be_bytes()].concat()
}

fn connect(proxy: SocketAddr, target: &[u8]) -> TcpStream {
    let mut stream = dial(proxy);
    assert_eq!(ask(&mut stream, 1, target).0, 0);
    stream
}

fn passes(stream: &mut TcpStream, bytes: &[u8]) {
    stream.write_all(bytes).unwrap();
    let mut back = vec![0; bytes.len()];
    stream.read_exact(&mut back).unwrap();
    assert!(back == bytes);
}

fn is_reset(stream: &mut TcpStream) -> bool {
    // A reset is told once, to whoever asks first.
    if let Err(e) = stream.write_all(b"hello") {
        return matches!(e.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe);
    }
    loop {
        match stream.read(&mut [0; 64]) {
            Ok(0) => return false,
            Ok(_) => {}
            Err(e) => return e.kind() == ErrorKind::ConnectionReset,
        }
    }
}

#[test]
fn a_guarded_server_refuses_private_targets_however_they_are_named() {
    let mut rig = Rig::new();
    let target = echo();
    let guard = Guard { block_private: true, ..Guard::default() };
    let (_, guarded) = rig.listen(server(PORT, &[], guard));
    let proxy = rig.client(guarded, PORT);
    let names =
        [by_ip(target), by_name("inside.test", target.port()), by_name("127.0.0.1", target.port())];
    for (n, target) in names.iter().enumerate() {
        assert!(is_reset(&mut connect(proxy, target)));
        rig.wait_for("blocked", |c| &c.blocked, n as u64 + 1);
    }
    assert_eq!(rig.handle.counters().dial_failed.value(), 0);
    rig.end();
}

#[test]
fn a_server_never_dials_its_own_listeners_and_private_targets_only_if_allowed() {
    let mut rig = Rig::new();
    let target = echo();
    let own = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let listeners = OwnListeners::default();
    listeners.add(Transport::Stream, own);
    listeners.add(Transport::Datagram, target);
    let guard = Guard { block_private: false, own: Arc::new(listeners) };
    let (_, guarded) = rig.listen(server(PORT, &[], guard));
    let proxy = rig.client(guarded, PORT);
    passes(&mut connect(proxy, &by_ip(target)), b"allowed");
    passes(&mut connect(proxy, &by_name("inside.test", target.port())), b"allowed");
    assert!(is_reset(&mut connect(proxy, &by_ip(own))));
    let unspecified = SocketAddr::from((Ipv4Addr::UNSPECIFIED, own.port()));
    assert!(is_reset(&mut connect(proxy, &by_ip(unspecified))));
    rig.wait_for("blocked", |c| &c.blocked, 2);
    rig.end();
}

#[test]
fn a_client_address_has_a_limit_and_gets_its_place_back() {
    let mut rig = Rig::new();
    let target = echo();
    let (_, open) = rig.listen(server(PORT, &[], Guard::default()));
    let table = Arc::new(ClientTable::new(16, Some(2), None));
    let limited = Role { clients: Some(Arc::clone(&table)), ..role(client(open, PORT, None)) };
    let (_, proxy) = rig.listen_as(limited);
    let mut first = connect(proxy, &by_ip(target));
    let mut second = connect(proxy, &by_ip(target));
    assert!(is_reset(&mut dial(proxy)));
    rig.wait_for("client_limit", |c| &c.client_limit, 1);
    passes(&mut first, b"still there");
    passes(&mut second, b"still there");
    drop(first);
    // Two ends of two connections a relay.
    rig.wait_for("open", |c| &c.open, 2);
    let mut third = connect(proxy, &by_ip(target));
    passes(&mut third, b"in its place");
    drop((second, third));
    rig.wait_for("open", |c| &c.open, 0);
    assert!(table.try_connection(Ipv4Addr::LOCALHOST.into()));
    assert!(table.try_connection(Ipv4Addr::LOCALHOST.into()));
    assert!(!table.try_connection(Ipv4Addr::LOCALHOST.into()));
    rig.end();
}

#[test]
fn a_hop_passes_streams_to_the_server_that_is_named() {
    let mut rig = Rig::new();
    let target = echo();
    let (_, plain) = rig.listen(server(ALICE, &[], Guard::default()));
    let (_, shared) = rig.listen(server(PORT, &[("bob", BOB)], Guard::default()));
    let (_, relay) = rig.listen(hop(&[(PORT, shared), (ALICE, plain)]));
    let bytes: Vec<u8> = (0..3_000_000_u32).map(|n| ((n * 7) >> 3) as u8).collect();
    for keys in [format!("{HOP}:{ALICE}"), format!("{HOP}:{PORT}:{BOB}")] {
        let proxy = rig.client(relay, &keys);
        let mut stream = connect(proxy, &by_ip(target));
        passes(&mut stream, b"small");
        let mut reader = stream.try_clone().unwrap();
        let expected = bytes.clone();
        let reads = thread::spawn(move || {
            let mut back = Vec::new();
            reader.read_to_end(&mut back).unwrap();
            assert!(back == expected);
        });
        stream.write_all(&bytes).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        reads.join().unwrap();
    }
    rig.wait_for("open", |c| &c.open, 0);
    assert_eq!(rig.handle.counters().rejected.value(), 0);
    // Nobody that the hop knows; its key alone; a key that the server behind it does not know.
    for keys in [format!("{HOP}:{BOB}"), HOP.to_owned(), format!("{HOP}:{PORT}:{ALICE}")] {
        let proxy = rig.client(relay, &keys);
        assert!(is_reset(&mut connect(proxy, &by_ip(target))));
    }
    rig.wait_for("rejected", |c| &c.rejected, 3);
    let mut probe = dial(relay);
    probe.write_all(&[0; 58]).unwrap();
    assert!(is_reset(&mut probe));
    rig.end();
}

#[test]
fn a_hop_whose_next_one_is_down_resets() {
    let mut rig = Rig::new();
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (_, relay) = rig.listen(hop(&[(PORT, closed)]));
    let proxy = rig.client(relay, &format!("{HOP}:{PORT}"));
    assert!(is_reset(&mut connect(proxy, &by_ip(closed))));
    rig.wait_for("dial_failed", |c| &c.dial_failed, 1);
    rig.end();
}

#[test]
fn an_association_names_the_datagram_port_and_lasts_until_its_client_ends() {
    let mut rig = Rig::new();
    let nowhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 9));
    let cases = [(None, Ipv4Addr::LOCALHOST), (Some([192, 0, 2, 5].into()), [192, 0, 2, 5].into())];
    for (host, expected) in cases {
        let (_, proxy) = rig.listen(client(nowhere, PORT, Some(Associate { host, port: 4321 })));
        let mut stream = dial(proxy);
        assert_eq!(ask(&mut stream, 3, &[1, 0, 0, 0, 0, 0, 0]), (0, (expected, 4321).into()));
        stream.write_all(&vec![7; 100_000]).unwrap();
        stream.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        let silent = stream.read(&mut [0; 1]).unwrap_err();
        assert!(matches!(silent.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut));
        assert_eq!(rig.handle.counters().open.value(), 1);
        drop(stream);
        rig.wait_for("open", |c| &c.open, 0);
    }
    assert_eq!(rig.handle.counters().dial_failed.value(), 0);
    rig.end();
}

#[test]
fn without_a_datagram_port_an_association_is_refused() {
    let mut rig = Rig::new();
    let proxy = rig.client(SocketAddr::from((Ipv4Addr::LOCALHOST, 9)), PORT);
    let mut stream = dial(proxy);
    assert_eq!(ask(&mut stream, 3, &[1, 0, 0, 0, 0, 0, 0]).0, 7);
    assert_eq!(stream.read(&mut [0; 1]).unwrap(), 0);
    assert_eq!(rig.handle.counters().refused.value(), 1);
    rig.end();
}

#[test]
fn a_new_datagram_port_ends_associations_of_the_old() {
    let mut rig = Rig::new();
    let nowhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 9));
    let at = |port| client(nowhere, PORT, Some(Associate { host: None, port }));
    let (id, proxy) = rig.listen(at(1));
    let mut stream = dial(proxy);
    assert_eq!(ask(&mut stream, 3, &[1, 0, 0, 0, 0, 0, 0]).0, 0);
    rig.assign(id, at(1));
    let mut later = dial(proxy);
    assert_eq!(ask(&mut later, 3, &[1, 0, 0, 0, 0, 0, 0]).0, 0);
    assert_eq!(rig.handle.counters().open.value(), 2);
    rig.assign(id, at(2));
    assert!(is_reset(&mut stream) && is_reset(&mut later));
    rig.end();
}

#[test]
fn a_unix_socket_serves_without_limits() {
    let mut rig = Rig::new();
    let target = echo();
    let (_, open) = rig.listen(server(PORT, &[], Guard::default()));
    let path = std::env::temp_dir().join(format!("adit-engine-{}.sock", std::process::id()));
    let table = Arc::new(ClientTable::new(16, Some(0), Some(0)));
    let associate = Some(Associate { host: None, port: 77 });
    let local = Role { clients: Some(table), ..role(client(open, PORT, associate)) };
    let fd = net::listen_unix(&path, &UnixOptions::default()).unwrap();
    rig.handle.send(Command::Listen(ListenerId(1000), fd, Arc::new(local)));
    let mut stream = unix(&path);
    assert_eq!(ask(&mut stream, 1, &by_ip(target)).0, 0);
    stream.write_all(b"hello").unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut back = Vec::new();
    stream.read_to_end(&mut back).unwrap();
    assert_eq!(back, b"hello");
    let mut stream = unix(&path);
    let at = SocketAddr::from((Ipv4Addr::LOCALHOST, 77));
    assert_eq!(ask(&mut stream, 3, &[1, 0, 0, 0, 0, 0, 0]), (0, at));
    std::fs::remove_file(&path).unwrap();
    rig.end();
}

fn unix(path: &Path) -> UnixStream {
    let stream = UnixStream::connect(path).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    stream
}

#[test]
fn users_are_counted_and_a_reload_ends_those_who_are_gone() {
    let mut rig = Rig::new();
    let target = echo();
    let both = server(PORT, &[("alice", ALICE), ("bob", BOB)], Guard::default());
    let RoleKind::Server { key, users, .. } = &both else { unreachable!() };
    let counters_of = |name| {
        let at = key.users().iter().position(|user| user.name() == name).unwrap();
        Arc::clone(&users[at])
    };
    let (alice, bob) = (counters_of("alice"), counters_of("bob"));
    let (id, port) = rig.listen(both);
    let alices = rig.client(port, &format!("{PORT}:{ALICE}"));
    let bobs = rig.client(port, &format!("{PORT}:{BOB}"));
    let mut of_alice = connect(alices, &by_ip(target));
    let mut of_bob = connect(bobs, &by_ip(target));
    passes(&mut of_alice, &[1; 1000]);
    passes(&mut of_bob, &vec![2; 300_000]);
    passes(&mut of_bob, &[3; 1]);
    let sums = |c: &UserCounters| (c.connections.value(), c.bytes_up.value(), c.bytes_down.value());
    assert_eq!(sums(&alice), (1, 1000, 1000));
    assert_eq!(sums(&bob), (1, 300_001, 300_001));

    // A user more changes nothing for the others.
    let carol = "BAQEBAQEBAQEBAQEBAQEBA==";
    rig.assign(id, server(PORT, &[("b", BOB), ("carol", carol), ("a", ALICE)], Guard::default()));
    passes(&mut connect(rig.client(port, &format!("{PORT}:{carol}")), &by_ip(target)), b"new");
    passes(&mut of_alice, b"still");
    passes(&mut of_bob, b"still");
    rig.assign(id, server(PORT, &[("alice", ALICE)], Guard::default()));
    assert!(is_reset(&mut of_bob));
    passes(&mut of_alice, b"still");
    // A port without users takes the port's key alone.
    rig.assign(id, server(PORT, &[], Guard::default()));
    assert!(is_reset(&mut of_alice));
    let ports = rig.client(port, PORT);
    let mut of_port = connect(ports, &by_ip(target));
    passes(&mut of_port, b"in");
    rig.assign(id, server(PORT, &[], Guard { block_private: true, ..Guard::default() }));
    assert!(is_reset(&mut connect(ports, &by_ip(target))));
    passes(&mut of_port, b"still");
    rig.assign(id, server(ALICE, &[], Guard::default()));
    assert!(is_reset(&mut of_port));
    rig.end();
}

#[test]
fn a_reload_keeps_streams_of_hops_that_stay() {
    let mut rig = Rig::new();
    let target = echo();
    let (_, first) = rig.listen(server(PORT, &[], Guard::default()));
    let (_, second) = rig.listen(server(ALICE, &[], Guard::default()));
    let (id, relay) = rig.listen(hop(&[(PORT, first)]));
    let proxy = rig.client(relay, &format!("{HOP}:{PORT}"));
    let mut stream = connect(proxy, &by_ip(target));
    passes(&mut stream, b"one");
    rig.assign(id, hop(&[(ALICE, second), (PORT, first)]));
    let other = rig.client(relay, &format!("{HOP}:{ALICE}"));
    let mut later = connect(other, &by_ip(target));
    passes(&mut later, b"two");
    passes(&mut stream, b"one");
    rig.assign(id, hop(&[(ALICE, second)]));
    assert!(is_reset(&mut stream));
    passes(&mut later, b"two");
    rig.end();
}

#[test]
fn a_listener_closes_with_its_connections_and_no_others() {
    let mut rig = Rig::new();
    let target = echo();
    let (first_id, first) = rig.listen(server(PORT, &[], Guard::default()));
    let (_, second) = rig.listen(server(PORT, &[], Guard::default()));
    let mut ends = connect(rig.client(first, PORT), &by_ip(target));
    let mut stays = connect(rig.client(second, PORT), &by_ip(target));
    passes(&mut ends, b"one");
    passes(&mut stays, b"two");
    let waker = Arc::new(Waker::new().unwrap());
    let receipts = Receipts::new(Arc::clone(&waker));
    let poll = Poll::new().unwrap();
    poll.add(&*waker, 0, Interest::Level).unwrap();
    rig.handle.send(Command::Close(first_id));
    rig.handle.send(Command::Confirm(receipts.issue()));
    let mut events = Events::new();
    while !receipts.are_in() {
        poll.wait(&mut events, Some(Duration::from_secs(10))).unwrap();
    }
    // All of it is done by now.
    assert_eq!(TcpStream::connect(first).unwrap_err().kind(), ErrorKind::ConnectionRefused);
    assert!(is_reset(&mut ends));
    passes(&mut stays, b"still");
    // An id that is gone is nobody's.
    rig.handle.send(Command::Close(first_id));
    passes(&mut stays, b"still");
    rig.end();
}

/// A server counts what is on the wire; so does a hop, which takes 16 bytes of a stream off.
#[test]
fn the_encrypted_side_of_a_port_is_counted() {
    let mut rig = Rig::new();
    let target = echo();
    let [at_server, at_hop] = [(); 2].map(|()| Arc::new(PortCounters::default()));
    let counted =
        |kind, port: &Arc<PortCounters>| Role { port: Some(Arc::clone(port)), ..role(kind) };
    let (_, end) = rig.listen_as(counted(server(PORT, &[], Guard::default()), &at_server));
    let (_, relay) = rig.listen_as(counted(hop(&[(PORT, end)]), &at_hop));
    let proxy = rig.client(relay, &format!("{HOP}:{PORT}"));
    let mut payload = 0;
    for len in [1, 1000, 300_000] {
        let mut stream = connect(proxy, &by_ip(target));
        passes(&mut stream, &vec![7; len]);
        payload += len as u64;
    }
    // What is on the way out is counted when it has been written, and the last has been read.
    assert_eq!(at_hop.bytes_in.value(), at_server.bytes_in.value() + 3 * 16);
    assert_eq!(at_hop.bytes_out.value(), at_server.bytes_out.value());
    for counted in [at_server.bytes_in.value(), at_server.bytes_out.value()] {
        // Salts, headers, up to 900 bytes of padding, and 34 bytes a record of at least 16 KiB.
        assert!((payload + 3 * 60..payload + payload / 100 + 3 * 1100).contains(&counted));
    }
    // Nobody else is.
    let before = at_server.total() + at_hop.total();
    assert!(is_reset(&mut {
        let mut probe = dial(end);
        probe.write_all(&[0x55; 1000]).unwrap();
        probe
    }));
    assert_eq!(at_server.total() + at_hop.total(), before);
    rig.end();
}
