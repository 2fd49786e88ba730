//! Packets sent again, clients that move, servers that start anew.
//!
//! Programs run with two workers here. The kernel gives each source port to one of them, so what
//! may depend on the worker is tried from several ports.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::collections::HashSet;
use std::net::{SocketAddr, UdpSocket};

use adit_system_tests::{
    Association, DatagramTarget, Pair, Process, Scratch, Wire, eventually, password, reserve,
};

const SIP004: [&str; 2] = ["aes-256-gcm", "chacha20-ietf-poly1305"];
const SIP022: [&str; 3] =
    ["2022-blake3-aes-128-gcm", "2022-blake3-aes-256-gcm", "2022-blake3-chacha20-poly1305"];
const TWO: [&str; 2] = ["--workers", "2"];
/// Ports enough that both workers get some: the odds against are 1 in 2^23.
const TRIES: usize = 24;

struct Rig {
    pair: Pair,
    wire: Wire,
    target: DatagramTarget,
    application: Association,
}

impl Rig {
    fn new(method: &str) -> Self {
        let (pair, wire) = Pair::with_wire(method, &TWO, &TWO);
        let application = pair.associate();
        Self { pair, wire, target: DatagramTarget::echo(), application }
    }

    fn round_trip(&self, payload: &[u8]) {
        self.application.round_trip(self.target.address(), payload);
    }

    /// What a server has refused so far, for whatever reason.
    fn refused(&self) -> u64 {
        self.pair.server.counter("datagrams_replayed")
            + self.pair.server.counter("datagrams_rejected")
    }

    fn wait_refused(&self, count: u64) {
        eventually("the server refuses them", || (self.refused() >= count).then_some(()));
    }

    fn server(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.pair.server_port))
    }
}

#[test]
fn a_replayed_packet_reaches_no_target_and_moves_no_client() {
    for method in SIP004.into_iter().chain(SIP022) {
        let rig = Rig::new(method);
        for n in 0..5 {
            rig.round_trip(&[n]);
        }
        let captures = rig.wire.ups();
        assert_eq!(captures.len(), 5);
        let mut played = 0;
        // From the same address, in and out of order.
        for packet in captures.iter().rev().chain(&captures) {
            rig.wire.send_up(packet);
            played += 1;
        }
        // From others, of both workers.
        let sockets: Vec<_> = (0..TRIES).map(|_| UdpSocket::bind("127.0.0.1:0").unwrap()).collect();
        for socket in &sockets {
            for packet in [&captures[0], &captures[4]] {
                socket.send_to(packet, rig.server()).unwrap();
                played += 1;
            }
        }
        rig.wait_refused(played);
        assert_eq!(rig.target.count(), 5, "{method}: the target sees nothing of it");
        // What the target sends goes to the true client.
        let source = rig.target.arrivals()[0].source;
        rig.target.send(b"unasked", source);
        assert_eq!(rig.application.receive(), (rig.target.address(), b"unasked".to_vec()));
        rig.round_trip(b"next");
        for socket in &sockets {
            socket.set_nonblocking(true).unwrap();
            assert!(socket.recv(&mut [0; 10]).is_err(), "{method}: nothing for the attacker");
        }
        assert_eq!(rig.pair.server.counter("sessions"), 1, "{method}");
        assert_eq!(rig.pair.server.counter("datagrams_replayed"), played, "{method}");
    }
}

/// Its packets are good for a while longer, but not once more.
#[test]
fn a_session_that_has_ended_stays_ended() {
    for method in SIP004.into_iter().chain(SIP022) {
        let args = ["--workers", "2", "--udp-timeout", "1"];
        let (pair, wire) = Pair::with_wire(method, &args, &[]);
        let target = DatagramTarget::echo();
        let application = pair.associate();
        for n in 0..3 {
            application.round_trip(target.address(), &[n]);
        }
        pair.server.wait_for_counter("sessions_idle", 1);
        let captures = wire.ups();
        let server = SocketAddr::from(([127, 0, 0, 1], pair.server_port));
        for _ in 0..TRIES {
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            for packet in &captures {
                socket.send_to(packet, server).unwrap();
            }
        }
        let played = (TRIES * captures.len()) as u64;
        pair.server.wait_for_counter("datagrams_replayed", played);
        assert_eq!(target.count(), 3, "{method}");
        assert_eq!(pair.server.counter("sessions"), 1, "{method}");
        // The true client goes on.
        application.round_trip(target.address(), b"again");
        assert_eq!(pair.server.counter("sessions"), 2, "{method}");
    }
}

#[test]
fn a_2022_session_follows_its_client_to_another_port() {
    for method in SIP022 {
        let rig = Rig::new(method);
        rig.round_trip(b"first");
        let mut ports = HashSet::from([rig.wire.client_port()]);
        for n in 0..TRIES {
            rig.wire.rebind();
            ports.insert(rig.wire.client_port());
            for _ in 0..3 {
                rig.round_trip(&[n.to_le_bytes()[0]]);
                let last = rig.wire.downs().pop().unwrap();
                assert_eq!(last.port, rig.wire.client_port(), "{method}: replies follow");
            }
        }
        assert_eq!(ports.len(), TRIES + 1);
        let sources: HashSet<_> = rig.target.arrivals().iter().map(|a| a.source).collect();
        assert_eq!(sources.len(), 1, "{method}: the target sees one port");
        assert_eq!(rig.pair.server.counter("sessions"), 1, "{method}");
        let passed = rig.pair.server.counter("datagrams_forwarded");
        assert!(passed > 0, "{method}: the worker that has the session is not always met");
        // An old packet from an old place moves nothing.
        let old = rig.wire.ups()[0].clone();
        UdpSocket::bind("127.0.0.1:0").unwrap().send_to(&old, rig.server()).unwrap();
        rig.wait_refused(1);
        rig.target.send(b"unasked", *sources.iter().next().unwrap());
        assert_eq!(rig.application.receive().1, b"unasked");
    }
}

/// SIP004 has nothing but the address: whoever moves begins another session.
#[test]
fn a_sip004_client_that_moves_goes_on_with_another_session() {
    let rig = Rig::new(SIP004[0]);
    rig.round_trip(b"first");
    rig.wire.rebind();
    rig.round_trip(b"second");
    let last = rig.wire.downs().pop().unwrap();
    assert_eq!(last.port, rig.wire.client_port());
    assert_eq!(rig.pair.server.counter("sessions"), 2);
}

#[test]
fn replayed_replies_reach_no_application() {
    for method in SIP004.into_iter().chain(SIP022) {
        let rig = Rig::new(method);
        for n in 0..5 {
            rig.round_trip(&[n]);
        }
        let replies = rig.wire.downs();
        assert_eq!(replies.len(), 5);
        for reply in replies.iter().rev().chain(&replies) {
            rig.wire.send_down(&reply.packet);
        }
        // And a client's packet, which opens under the same key.
        let own = rig.wire.ups();
        own.iter().for_each(|packet| rig.wire.send_down(packet));
        eventually("the client refuses them", || {
            let refused = rig.pair.local.counter("datagrams_replayed")
                + rig.pair.local.counter("datagrams_rejected");
            (refused >= 15).then_some(())
        });
        assert_eq!(rig.application.poke(), None, "{method}");
        // A server's packet sent to the server is none of its own either.
        for reply in &replies {
            rig.wire.send_up(&reply.packet);
        }
        rig.wait_refused(5);
        assert_eq!(rig.target.count(), 5, "{method}");
        rig.round_trip(b"next");
    }
}

#[test]
fn a_server_that_was_restarted_is_believed() {
    for method in SIP004.into_iter().chain(SIP022) {
        let mut rig = Rig::new(method);
        for n in 0..5 {
            rig.round_trip(&[n]);
        }
        let old = rig.wire.downs();
        rig.pair.server.signal(rustix::process::Signal::KILL);
        eventually("the server is gone", || (!rig.pair.server.is_alive()).then_some(()));
        rig.pair.restart_server_with(&["-u", "--workers", "2"]);
        rig.pair.server.wait_for("(UDP)");
        for n in 0..5 {
            rig.round_trip(&[n]);
        }
        // What the first server had said stays said.
        old.iter().for_each(|reply| rig.wire.send_down(&reply.packet));
        rig.pair.local.wait_for_counter("datagrams_replayed", 5);
        assert_eq!(rig.application.poke(), None, "{method}");
        rig.round_trip(b"next");
        assert_eq!(rig.pair.local.counter("sessions"), 1, "{method}");
    }
}

/// A packet for another port of the same key and process is a replay too.
#[test]
fn a_packet_played_to_a_sibling_port_is_refused() {
    for method in SIP004.into_iter().chain(SIP022) {
        let scratch = Scratch::new();
        let [first, second, socks] = std::array::from_fn(|_| reserve());
        let entry = |port: u16| {
            let key = password(method);
            format!(
                r#"{{"server": "127.0.0.1", "server_port": {port}, "method": "{method}", "password": "{key}"}}"#
            )
        };
        let text = format!(
            r#"{{"mode": "tcp_and_udp", "servers": [{}, {}]}}"#,
            entry(first),
            entry(second)
        );
        let file = scratch.write("s.json", &text);
        let args = ["-c", file.to_str().unwrap(), "--workers", "2"];
        let server = Process::start("ss-server", args);
        server.wait_for("worker");
        let wire = Wire::to(SocketAddr::from(([127, 0, 0, 1], first)));
        let (port, local_port) = (wire.port().to_string(), socks.to_string());
        let key = password(method);
        let args =
            ["-s", "127.0.0.1", "-p", &port, "-l", &local_port, "-m", method, "-k", key, "-u"];
        let local = Process::start("ss-local", args);
        local.wait_for("worker");
        let target = DatagramTarget::echo();
        let application = Association::at(socks);
        application.round_trip(target.address(), b"once");
        let packet = wire.ups().pop().unwrap();
        for _ in 0..TRIES {
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            socket.send_to(&packet, ("127.0.0.1", second)).unwrap();
        }
        eventually("they are refused", || {
            let refused = server.counter("datagrams_replayed")
                + server.counter("datagrams_rejected")
                + server.counter("datagrams_dropped");
            (refused >= TRIES as u64).then_some(())
        });
        application.round_trip(target.address(), b"twice");
        assert_eq!(target.count(), 2, "{method}");
    }
}

/// A client refuses the third server session within a minute, so one that made room has to come
/// back as what it was.
#[test]
fn sessions_that_make_room_for_each_other_are_all_answered() {
    for method in SIP022 {
        let args = ["--workers", "1", "--udp-max-associations", "2"];
        let (pair, _wire) = Pair::with_wire(method, &args, &[]);
        let target = DatagramTarget::echo();
        let applications: Vec<_> = (0..3).map(|_| pair.associate()).collect();
        for round in 0..5 {
            for application in &applications {
                application.round_trip(target.address(), &[round]);
            }
        }
        assert!(pair.server.counter("sessions_evicted") >= 12, "{method}");
        assert_eq!(pair.local.counter("datagrams_rejected"), 0, "{method}");
    }
}

/// As from IPv4 to IPv6 when a host changes its network.
#[test]
fn a_2022_session_goes_on_at_another_listener_with_its_key() {
    for method in SIP022 {
        let (port, local_port) = (reserve(), reserve());
        let scratch = Scratch::new();
        let text = format!(
            r#"{{"server": ["127.0.0.1", "::1"], "server_port": {port}, "mode": "udp_only",
                "method": "{method}", "password": "{}"}}"#,
            password(method)
        );
        let file = scratch.write("server.json", &text);
        let server = Process::start("ss-server", ["-c", file.to_str().unwrap(), "--workers", "2"]);
        server.wait_for("up to");
        // The client sends to us, and we pass on as it pleases us.
        let middle = UdpSocket::bind("127.0.0.1:0").unwrap();
        let (middle_port, listen) =
            (middle.local_addr().unwrap().port().to_string(), local_port.to_string());
        let args = ["-s", "127.0.0.1", "-p", &middle_port, "-l", &listen, "-u", "-m", method];
        let local =
            Process::start("ss-local", args.iter().chain(&["-k", password(method)]).copied());
        local.wait_for("up to");
        let application = Association::at(local_port);
        let target = DatagramTarget::echo();
        let ways = [
            (UdpSocket::bind("127.0.0.1:0").unwrap(), SocketAddr::from(([127, 0, 0, 1], port))),
            (UdpSocket::bind("[::1]:0").unwrap(), format!("[::1]:{port}").parse().unwrap()),
        ];
        for n in 0..6 {
            application.send_to(target.address(), &[n]);
            let mut buf = [0; 2048];
            let (len, client) = middle.recv_from(&mut buf).unwrap();
            let (socket, address) = &ways[usize::from(n) % 2];
            socket.set_read_timeout(Some(std::time::Duration::from_secs(20))).unwrap();
            socket.send_to(&buf[..len], address).unwrap();
            let len = socket.recv(&mut buf).unwrap();
            middle.send_to(&buf[..len], client).unwrap();
            assert_eq!(application.receive(), (target.address(), vec![n]), "{method}");
        }
        let sources: HashSet<_> = target.arrivals().iter().map(|a| a.source).collect();
        assert_eq!(sources.len(), 1, "{method}: the target sees one session");
        assert_eq!(server.counter("sessions"), 1, "{method}");
    }
}
