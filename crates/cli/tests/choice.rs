//! Several servers: which one is used, and what becomes of connections when one fails.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use adit_system_tests::{
    Association, DatagramTarget, Ending, Process, Scratch, Target, eventually, password, poke,
    read_exactly, reserve, socks5_reply,
};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, listen, socket_with};

const METHOD: &str = "2022-blake3-aes-128-gcm";
const OTHER_KEY: &str = "ZmVkY2JhOTg3NjU0MzIxMA==";

fn server_on(port: u16, key: &str) -> Process {
    let text = port.to_string();
    let args = ["-s", "127.0.0.1", "-p", &text, "-k", key, "-m", METHOD, "-u"];
    let server = Process::start("ss-server", args);
    server.wait_for(&format!("listening on 127.0.0.1:{port} (UDP)"));
    server
}

/// A client of several servers, which it probes every second.
fn local(scratch: &Scratch, ports: &[u16]) -> (Process, u16) {
    local_with(scratch, &ports.iter().map(|port| (*port, 1)).collect::<Vec<_>>())
}

/// The same with weights: one of 0 is used only when the others fail.
fn local_with(scratch: &Scratch, servers: &[(u16, u8)]) -> (Process, u16) {
    let socks = reserve();
    let servers: Vec<String> = servers
        .iter()
        .map(|(port, weight)| {
            format!(
                r#"{{"server": "127.0.0.1", "server_port": {port}, "method": "{METHOD}",
                "password": "{}", "tcp_weight": {weight}, "udp_weight": {weight}}}"#,
                password(METHOD)
            )
        })
        .collect();
    let text = format!(
        r#"{{"servers": [{}], "local_port": {socks}, "mode": "tcp_and_udp",
        "balancer": {{"check_interval": 1, "max_server_rtt": 2}}}}"#,
        servers.join(",")
    );
    let file = scratch.write("local.json", &text);
    let local = Process::start("ss-local", ["-c".as_ref(), file.as_os_str()]);
    local.wait_for("listening on");
    (local, socks)
}

/// A request through the client; whether it was answered.
fn try_ping(socks: u16, port: u16) -> bool {
    let (mut stream, reply) = socks5_reply(socks, "127.0.0.1", port);
    if reply != 0 || stream.write_all(b"ping").is_err() {
        return false;
    }
    let mut got = Vec::new();
    eventually("an answer or an end", || {
        let (bytes, ending) = poke(&stream);
        got.extend(bytes);
        (got.len() >= 4 || ending != Ending::Open).then_some(())
    });
    got == b"ping"
}

#[test]
fn a_server_that_ends_is_left_at_once_and_used_again_when_it_is_back() {
    let scratch = Scratch::new();
    let ports = [reserve(), reserve()];
    let mut servers = ports.map(|port| Some(server_on(port, password(METHOD))));
    let (local, socks) = local(&scratch, &ports);
    let echo = Target::echo();
    assert!(try_ping(socks, echo.port()));
    let relayed = |server: &Option<Process>| server.as_ref().unwrap().counter("relayed");
    let used = usize::from(relayed(&servers[1]) > relayed(&servers[0]));
    servers[used] = None;
    for _ in 0..20 {
        assert!(try_ping(socks, echo.port()), "no connection fails for the application");
    }
    local.wait_for("cannot be reached");
    let down = local.report(&format!("server 127.0.0.1:{}: ", ports[used]));
    assert!(down.contains("tcp=down"), "{down}");
    let up = local.report(&format!("server 127.0.0.1:{}: ", ports[1 - used]));
    assert!(up.contains("tcp=up") && up.contains("tcp_latency_ms="), "{up}");
    servers[used] = Some(server_on(ports[used], password(METHOD)));
    local.wait_for("is back");
    servers[1 - used] = None;
    for _ in 0..20 {
        assert!(try_ping(socks, echo.port()), "the one that is back is used");
    }
    assert!(relayed(&servers[used]) >= 20);
}

/// A listener on loopback that takes no more connections: whoever connects hears nothing.
struct BlackHole {
    _listener: OwnedFd,
    _queue: Vec<TcpStream>,
}

impl BlackHole {
    fn on(port: u16) -> Self {
        let flags = SocketFlags::CLOEXEC;
        let listener = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None).unwrap();
        rustix::net::sockopt::set_socket_reuseaddr(&listener, true).unwrap();
        let addr = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        bind(&listener, &addr).unwrap();
        listen(&listener, 0).unwrap();
        let mut queue = Vec::new();
        while let Ok(stream) = TcpStream::connect_timeout(&addr, Duration::from_millis(200)) {
            queue.push(stream);
            assert!(queue.len() < 100, "the queue fills");
        }
        Self { _listener: listener, _queue: queue }
    }
}

#[test]
fn a_server_that_swallows_connections_costs_seconds_once() {
    let scratch = Scratch::new();
    let ports = [reserve(), reserve()];
    let _hole = BlackHole::on(ports[0]);
    let _server = server_on(ports[1], password(METHOD));
    let (local, socks) = local_with(&scratch, &[(ports[0], 1), (ports[1], 0)]);
    let echo = Target::echo();
    // The application sees a delay and nothing else.
    assert!(try_ping(socks, echo.port()));
    local.wait_for("cannot be reached");
    for _ in 0..10 {
        assert!(try_ping(socks, echo.port()));
    }
    let line = local.report(&format!("server 127.0.0.1:{}: ", ports[0]));
    assert!(line.contains("tcp=down"), "{line}");
}

#[test]
fn a_server_with_another_key_is_left_after_a_few_connections() {
    let scratch = Scratch::new();
    let ports = [reserve(), reserve()];
    let _wrong = server_on(ports[0], OTHER_KEY);
    let right = server_on(ports[1], password(METHOD));
    let (local, socks) = local_with(&scratch, &[(ports[0], 1), (ports[1], 0)]);
    let targets: Vec<Target> = (0..8).map(|_| Target::echo()).collect();
    let mut failed = Vec::new();
    for (at, target) in targets.iter().cycle().take(48).enumerate() {
        if !try_ping(socks, target.port()) {
            failed.push(at);
        }
    }
    local.wait_for("does not answer");
    assert!(failed.starts_with(&[0, 1, 2, 3]), "the fourth one marks it: {failed:?}");
    // One trial after each pause of 2 s and more.
    assert!(failed.len() < 12, "{failed:?}");
    assert_eq!(right.counter("relayed"), 48 - failed.len() as u64);
}

#[test]
fn all_servers_are_tried_when_none_can_be_reached() {
    let scratch = Scratch::new();
    let ports = [reserve(), reserve(), reserve()];
    let (local, socks) = local(&scratch, &ports);
    let echo = Target::echo();
    let (_, reply) = socks5_reply(socks, "127.0.0.1", echo.port());
    assert_eq!(reply, 5, "connection refused");
    local.wait_for_more("cannot be reached", 3);
    // The first one to come is found by the next connection, without waiting for a probe.
    let _server = server_on(ports[2], password(METHOD));
    assert!(try_ping(socks, echo.port()));
}

#[test]
fn a_datagram_session_moves_on_when_its_server_ends() {
    let scratch = Scratch::new();
    let ports = [reserve(), reserve()];
    let mut servers = ports.map(|port| Some(server_on(port, password(METHOD))));
    let (local, socks) = local(&scratch, &ports);
    let target = DatagramTarget::echo();
    let association = Association::at(socks);
    association.round_trip(target.address(), b"first");
    let used =
        servers.iter().position(|server| server.as_ref().unwrap().counter("sessions") > 0).unwrap();
    servers[used] = None;
    let start = Instant::now();
    eventually("an answer through the other server", || {
        association.send_to(target.address(), b"again");
        std::thread::sleep(Duration::from_millis(100));
        association.poke()
    });
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    assert_eq!(servers[1 - used].as_ref().unwrap().counter("sessions_open"), 1);
    let line = local.report(&format!("server 127.0.0.1:{}: ", ports[used]));
    assert!(line.contains("udp=down") || line.contains("udp=trial"), "{line}");
}

#[test]
fn datagram_sessions_leave_a_server_that_swallows_them() {
    let scratch = Scratch::new();
    let ports = [reserve(), reserve()];
    // Connections to it work, so that nothing but missing answers tells.
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, ports[0]));
    let _streams = Target::serve_on(address, |_| {});
    let swallowed = UdpSocket::bind(address).unwrap();
    let _server = server_on(ports[1], password(METHOD));
    let (local, socks) = local_with(&scratch, &[(ports[0], 1), (ports[1], 0)]);
    let target = DatagramTarget::echo();
    let associations: Vec<Association> = (0..4).map(|_| Association::at(socks)).collect();
    let mut answered = [false; 4];
    eventually("every session is answered through the other server", || {
        for (association, answered) in associations.iter().zip(&mut answered) {
            if !*answered {
                association.send_to(target.address(), b"hello");
                std::thread::sleep(Duration::from_millis(50));
                *answered = association.poke().is_some();
            }
        }
        answered.iter().all(|answered| *answered).then_some(())
    });
    local.wait_for("does not answer datagrams");
    let mut buf = [0; 2048];
    assert!(swallowed.recv(&mut buf).unwrap() > 0, "it was tried first");
    let line = local.report(&format!("server 127.0.0.1:{}: ", ports[0]));
    assert!(line.contains("tcp=up") && !line.contains("udp=up"), "{line}");
}

#[test]
fn one_server_is_not_probed() {
    let scratch = Scratch::new();
    let port = reserve();
    let server = server_on(port, password(METHOD));
    let (local, socks) = local(&scratch, &[port]);
    let echo = Target::echo();
    assert!(try_ping(socks, echo.port()));
    // Longer than the interval of probes.
    std::thread::sleep(Duration::from_millis(2500));
    assert_eq!(server.counter("accepted"), 1);
    assert!(!local.text().contains("server 127.0.0.1"), "{}", local.text());
    let mut stream = socks5_reply(socks, "127.0.0.1", echo.port()).0;
    stream.write_all(b"x").unwrap();
    assert_eq!(read_exactly(&stream, 1), b"x");
}
