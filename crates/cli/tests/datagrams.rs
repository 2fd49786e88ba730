//! Datagrams through the programs: sizes, families, addresses, names, and their end.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

use adit_system_tests::{
    Answer, Association, DatagramTarget, Dns, Ending, PATIENCE, Pair, Process, Target, ending,
    eventually, header, password, read_exactly, reserve, socks5,
};

const METHODS: [&str; 7] = [
    "none",
    "aes-128-gcm",
    "aes-256-gcm",
    "chacha20-ietf-poly1305",
    "2022-blake3-aes-128-gcm",
    "2022-blake3-aes-256-gcm",
    "2022-blake3-chacha20-poly1305",
];
/// One of each kind of session: found by address and by id.
const KINDS: [&str; 2] = ["aes-256-gcm", "2022-blake3-aes-256-gcm"];
const SIP022: &str = KINDS[1];
const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

fn pair(method: &str) -> Pair {
    Pair::with_args(method, &["-u"], &["-u"])
}

fn v6(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv6Addr::LOCALHOST, port))
}

fn payload(len: usize) -> Vec<u8> {
    adit_system_tests::bytes_at(len, len.max(1))[..len].to_vec()
}

/// A client or a server with options of its own, listening.
fn start(program: &str, method: &str, args: &[&str]) -> Process {
    let base = ["-m", method, "-k", password(method)];
    let process = Process::start(program, base.iter().chain(args));
    process.wait_for("listening on");
    process.wait_for("worker");
    process
}

#[test]
fn datagrams_of_every_size_come_back() {
    for method in METHODS {
        let pair = pair(method);
        let target = DatagramTarget::echo();
        let application = pair.associate();
        for len in [0, 1, 1472, 9000, 65_000] {
            application.round_trip(target.address(), &payload(len));
        }
        let arrivals = target.arrivals();
        let lens: Vec<_> = arrivals.iter().map(|a| a.payload.len()).collect();
        assert_eq!(lens, [0, 1, 1472, 9000, 65_000], "{method}");
        // What does not fit once it is wrapped is dropped, and only that.
        if method != "none" {
            application.send_to(target.address(), &payload(65_490));
            application.round_trip(target.address(), b"next");
            assert_eq!(pair.local.counter("datagrams_too_long"), 1, "{method}");
        }
    }
}

#[test]
fn bursts_of_equal_datagrams_keep_their_bounds() {
    // The kernel joins them to trains and cuts trains up again, on every socket on the way.
    for method in ["none", "chacha20-ietf-poly1305", "2022-blake3-aes-128-gcm"] {
        let pair = pair(method);
        let target = DatagramTarget::echo();
        let application = pair.associate();
        let mut sent = 0;
        for burst in 0..20_usize {
            let len = [1200, 300, 0, 1][burst % 4];
            for n in 0..30_u8 {
                application.send_to(target.address(), &[&vec![n; len][..], &[n]].concat());
            }
            for n in 0..30_u8 {
                let (source, back) = application.receive();
                assert_eq!(source, target.address());
                assert!(back.len() == len + 1 && back.iter().all(|b| *b == n), "{method}: {n}");
            }
            sent += 30;
        }
        assert_eq!(target.count(), sent);
    }
}

#[test]
fn both_families_of_targets_are_served() {
    for method in KINDS {
        let pair = pair(method);
        let application = pair.associate();
        let target = DatagramTarget::echo_on(v6(0));
        let other = DatagramTarget::echo();
        for len in [0, 1, 1472, 9000, 65_000] {
            application.round_trip(target.address(), &payload(len));
        }
        application.round_trip(other.address(), b"by IPv4");
        application.round_trip(target.address(), b"by IPv6");
        // A mapped address is the IPv4 address that it stands for, and comes back as such.
        application.send("::ffff:127.0.0.1", other.port(), b"mapped");
        assert_eq!(application.receive(), (other.address(), b"mapped".to_vec()));
    }
}

/// Whoever has several addresses is answered from the one that was reached.
#[test]
fn replies_leave_from_the_address_that_was_reached() {
    let second = Ipv4Addr::new(127, 0, 0, 2);
    for method in KINDS {
        for any in ["0.0.0.0", "::"] {
            let (server_port, port) = (reserve().to_string(), reserve());
            let text = port.to_string();
            let _server = start("ss-server", method, &["-s", any, "-p", &server_port, "-u"]);
            // Its socket is connected to this address, and hears nobody else.
            let local = ["-s", "127.0.0.3", "-p", &server_port, "-b", any, "-l", &text, "-u"];
            let _local = start("ss-local", method, &local);
            let target = DatagramTarget::echo();
            for ip in [Ipv4Addr::LOCALHOST, second] {
                let application = Association::open(SocketAddr::from((ip, port)));
                assert_eq!(application.relay(), SocketAddr::from((ip, port)), "BND.ADDR");
                application.round_trip(target.address(), b"hello");
                application.round_trip(target.address(), &payload(30_000));
            }
            if any == "::" {
                let application = Association::open(v6(port));
                assert_eq!(application.relay(), v6(port), "BND.ADDR");
                application.round_trip(target.address(), b"hello");
            }
        }
    }
}

#[test]
fn a_server_is_reached_by_ipv6() {
    for method in KINDS {
        let (server_port, port) = (reserve().to_string(), reserve().to_string());
        let _server = start("ss-server", method, &["-s", "::1", "-p", &server_port, "-u"]);
        let local = ["-s", "::1", "-p", &server_port, "-l", &port, "-u"];
        let _local = start("ss-local", method, &local);
        let target = DatagramTarget::echo();
        Association::at(port.parse().unwrap()).round_trip(target.address(), b"hello");
    }
}

#[test]
fn an_association_is_told_the_configured_address() {
    let (socks, udp) = (reserve(), reserve());
    let args = ["--server-addr", "127.0.0.1:8388", "--local-addr", &format!("127.0.0.1:{socks}")];
    let more = ["--udp-bind-addr", &format!("127.0.0.2:{udp}"), "-U"];
    let base = ["-m", SIP022, "-k", password(SIP022), "--udp-associate-addr", "192.0.2.7"];
    let mut command = std::process::Command::new(adit_system_tests::program("adit"));
    command.arg("sslocal").args(args).args(more).args(base.map(|a| match a {
        "-m" => "--encrypt-method",
        other => other,
    }));
    let local = Process::spawn("sslocal", command);
    local.wait_for(&format!("listening on 127.0.0.1:{socks}"));
    local.wait_for(&format!("listening on 127.0.0.2:{udp} (UDP)"));
    let (_control, answer) = Association::ask(SocketAddr::from(([127, 0, 0, 1], socks)));
    assert_eq!(answer, Ok(SocketAddr::from(([192, 0, 2, 7], udp))));
}

#[test]
fn an_association_is_refused_where_udp_is_off() {
    let pair = Pair::start(SIP022);
    let (control, answer) = Association::ask(SocketAddr::new(LOOPBACK, pair.local_port));
    assert_eq!(answer, Err(7));
    assert_eq!(ending(&control).1, Ending::Fin);
    let line = pair.local.wait_for("UDP");
    assert!(line.contains("WARN") && line.contains("\"mode\""), "{line}");
    // The kernel tells that nobody listens there.
    let stray = UdpSocket::bind("127.0.0.1:0").unwrap();
    stray.connect(("127.0.0.1", pair.local_port)).unwrap();
    stray.send(b"x").unwrap();
    stray.set_read_timeout(Some(PATIENCE)).unwrap();
    let refused = stray.recv(&mut [0; 10]).unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
}

#[test]
fn a_session_outlives_the_connection_that_asked_for_it() {
    for method in KINDS {
        let pair = pair(method);
        let target = DatagramTarget::echo();
        let mut application = pair.associate();
        application.round_trip(target.address(), b"before");
        let before = pair.local.descriptors();
        application.control = None;
        eventually("the connection is gone", || (pair.local.descriptors() < before).then_some(()));
        application.round_trip(target.address(), b"after");
        let arrivals = target.arrivals();
        assert_eq!(arrivals[0].source, arrivals[1].source, "the same session");
        Association::without_control(application.relay()).round_trip(target.address(), b"unasked");
    }
}

#[test]
fn what_is_no_datagram_of_an_association_is_dropped() {
    let pair = pair(SIP022);
    let target = DatagramTarget::echo();
    let application = pair.associate();
    let good = header("127.0.0.1", target.port());
    let with = |at: usize, byte: u8| {
        let mut bad = [&good[..], b"bad"].concat();
        bad[at] = byte;
        bad
    };
    let nameless = [&[0, 0, 0, 3, 0][..], &target.port().to_be_bytes(), b"bad"].concat();
    let cut_name = [&[0, 0, 0, 3, 200][..], b"bad"].concat();
    let bad_name = [&[0, 0, 0, 3, 3, b'a', 0, b'b'][..], &target.port().to_be_bytes()].concat();
    let mut count = 0;
    for bad in [
        vec![],
        vec![0],
        vec![0, 0, 0],
        good[..good.len() - 1].to_vec(),
        with(0, 1),
        with(1, 1),
        with(2, 1),
        with(2, 0x80),
        with(2, 0xFF),
        with(3, 0),
        with(3, 2),
        with(3, 0xFF),
        nameless,
        cut_name,
        bad_name,
    ] {
        application.send_raw(&bad);
        count += 1;
    }
    application.round_trip(target.address(), b"good");
    assert_eq!(target.count(), 1);
    // All came by one socket, so that one worker dealt with them in order.
    assert_eq!(pair.local.counter("datagrams_rejected"), count);
    assert_eq!(pair.local.counter("sessions"), 1);
}

/// Whoever knows a session's port can send to its client (a "full cone").
#[test]
fn a_third_party_reaches_the_client_by_the_sessions_port() {
    for method in METHODS {
        let pair = pair(method);
        let [first, second] = [DatagramTarget::echo(), DatagramTarget::echo()];
        let application = pair.associate();
        application.round_trip(first.address(), b"one");
        application.round_trip(second.address(), b"two");
        let source = first.arrivals()[0].source;
        assert_eq!(second.arrivals()[0].source, source, "one port towards all targets");
        let third = DatagramTarget::echo();
        for len in [5, 0, 9000] {
            third.send(&payload(len), source);
            assert_eq!(application.receive(), (third.address(), payload(len)), "{method}");
        }
        // Others have sessions of their own.
        let other = pair.associate();
        other.round_trip(first.address(), b"three");
        assert_ne!(first.arrivals()[1].source, source);
    }
}

#[test]
fn a_target_that_refuses_harms_nobody() {
    for method in KINDS {
        let pair = Pair::with_args(method, &["-u", "--workers", "1"], &["-u"]);
        let target = DatagramTarget::echo();
        let application = pair.associate();
        for _ in 0..20 {
            application.send("127.0.0.1", reserve(), b"nobody");
            application.send("::1", reserve(), b"nobody");
            application.round_trip(target.address(), b"somebody");
        }
        application.round_trip(target.address(), b"still");
        assert_eq!(pair.server.counter("sessions"), 1);
    }
}

/// The same between client and server: what is lost while the server is away is all that is lost.
#[test]
fn a_server_that_is_away_is_found_again() {
    for method in KINDS {
        let mut pair = pair(method);
        let target = DatagramTarget::echo();
        let application = pair.associate();
        application.round_trip(target.address(), b"before");
        pair.server.signal(rustix::process::Signal::KILL);
        eventually("the server is gone", || (!pair.server.is_alive()).then_some(()));
        for _ in 0..5 {
            application.send_to(target.address(), b"lost");
        }
        pair.local.wait_for_counter("icmp_errors", 1);
        pair.restart_server_with(&["-u"]);
        pair.server.wait_for("(UDP)");
        application.round_trip(target.address(), b"after");
        assert_eq!(pair.local.counter("sessions"), 1);
    }
}

#[test]
fn datagrams_to_a_slow_name_keep_their_order_and_delay_nobody() {
    let slow = Duration::from_millis(700);
    let dns = Dns::serve(move |q| match q.name.as_str() {
        "slow.test" => Answer::After(slow, vec![LOOPBACK]),
        "fast.test" => Answer::Addresses(vec![LOOPBACK]),
        _ => Answer::NoSuchName,
    });
    for method in KINDS {
        let pair = Pair::with_args(method, &["-u", "-d", &dns.address()], &["-u"]);
        let [by_name, by_address] = [DatagramTarget::echo(), DatagramTarget::echo()];
        let application = pair.associate();
        for n in 0..25 {
            application.send("slow.test", by_name.port(), &[n]);
        }
        application.round_trip(by_address.address(), b"at once");
        application.send("fast.test", by_address.port(), b"soon");
        assert_eq!(application.receive(), (by_address.address(), b"soon".to_vec()));
        assert_eq!(by_name.count(), 0, "the name is not known yet");
        for n in 0..25 {
            assert_eq!(application.receive(), (by_name.address(), vec![n]));
        }
        let order: Vec<_> = by_name.arrivals().iter().map(|a| a.payload[0]).collect();
        assert!(order.iter().copied().eq(0..25), "{method}: {order:?}");
        let sources = [&by_name, &by_address].map(|t| t.arrivals()[0].source);
        assert_eq!(sources[0], sources[1], "one session");
    }
}

#[test]
fn a_name_that_never_resolves_holds_little() {
    let dns = Dns::serve(|q| match q.name.starts_with("good") {
        true => Answer::Addresses(vec![LOOPBACK]),
        false => Answer::Silence,
    });
    let args = ["-u", "-d", &dns.address(), "--workers", "1"];
    let pair = Pair::with_args(SIP022, &args, &["-u", "--workers", "1"]);
    let target = DatagramTarget::echo();
    let application = pair.associate();
    application.round_trip(target.address(), b"first");
    let before = pair.server.memory_kib();
    let bulk = payload(1400);
    for n in 0..1000 {
        application.send("mute.test", target.port(), &bulk);
        if n % 50 == 0 {
            application.round_trip(target.address(), b"beside it");
        }
    }
    // More names than a worker waits for at once.
    for n in 0..600 {
        application.send(&format!("mute{n}.test"), target.port(), &bulk);
        if n % 50 == 0 {
            application.round_trip(target.address(), b"beside them");
        }
    }
    application.round_trip(target.address(), b"behind them");
    let dropped = pair.server.counter("datagrams_dropped");
    assert!(dropped >= 1000 - 32 + 600 - 256, "{dropped} dropped");
    let after = pair.server.memory_kib();
    assert!(after < before + 4096, "{before} KiB, then {after} KiB");
    eventually("a good name finds room again", || {
        application.send("good.test", target.port(), b"named");
        std::thread::sleep(Duration::from_millis(100));
        application.poke()
    });
    pair.server.wait_for_counter("datagrams_dropped", 1600);
}

/// A session has a share of the look-ups, and all sessions together half of them.
#[test]
fn names_that_never_resolve_leave_look_ups_to_others() {
    let dns = Dns::serve(|q| match q.name.starts_with("good") {
        true => Answer::Addresses(vec![LOOPBACK]),
        false => Answer::Silence,
    });
    let args = ["-u", "-d", &dns.address(), "--workers", "1"];
    let pair = Pair::with_args(SIP022, &args, &["-u", "--workers", "1"]);
    let target = DatagramTarget::echo();
    let hog = pair.associate();
    hog.round_trip(target.address(), b"first");
    for n in 0..300 {
        hog.send(&format!("mute{n}.test"), target.port(), b"x");
    }
    hog.round_trip(target.address(), b"they are all there");
    let lookups = pair.server.counter("lookups");
    assert!(lookups <= 8, "{lookups} look-ups for one session");
    for n in 0..5 {
        let other = pair.associate();
        other.send(&format!("good{n}.test"), target.port(), b"named");
        assert_eq!(other.receive(), (target.address(), b"named".to_vec()));
        // A connection's name finds its place as well.
        let echo = Target::echo();
        let mut stream = socks5(pair.local_port, &format!("good-tcp{n}.test"), echo.port());
        stream.write_all(b"by TCP").unwrap();
        assert_eq!(read_exactly(&stream, 6), b"by TCP");
    }
}

#[test]
fn a_client_finds_its_server_by_name() {
    let dns = Dns::serve(|_| Answer::After(Duration::from_millis(300), vec![LOOPBACK]));
    for method in KINDS {
        let pair = pair(method);
        let (server_port, port) = (pair.server_port.to_string(), reserve());
        let text = port.to_string();
        let args = ["-s", "server.test", "-p", &server_port, "-l", &text, "-d", &dns.address()];
        let local = start("ss-local", method, &[&args[..], &["-u"]].concat());
        let target = DatagramTarget::echo();
        let application = Association::at(port);
        for n in 0..20 {
            application.send_to(target.address(), &[n]);
        }
        for n in 0..20 {
            assert_eq!(application.receive(), (target.address(), vec![n]));
        }
        assert_eq!(local.counter("datagrams_dropped"), 0);
    }
    assert!(dns.questions().iter().all(|q| q.name == "server.test"));
}

#[test]
fn silent_sessions_end_and_give_back_their_sockets() {
    for method in KINDS {
        let args = ["-u", "--udp-timeout", "1"];
        let pair = Pair::with_args(method, &args, &args);
        let target = DatagramTarget::echo();
        let before = (pair.local.descriptors(), pair.server.descriptors());
        let relay = SocketAddr::new(LOOPBACK, pair.local_port);
        let applications: Vec<_> = (0..60).map(|_| Association::without_control(relay)).collect();
        applications.iter().for_each(|a| a.send_to(target.address(), b"hello"));
        pair.server.wait_for_counter("sessions", 60);
        pair.local.wait_for_counter("sessions_idle", 60);
        pair.server.wait_for_counter("sessions_idle", 60);
        let after = (pair.local.descriptors(), pair.server.descriptors());
        assert!(after.0 <= before.0 && after.1 <= before.1, "{before:?}, then {after:?}");
        assert_eq!(pair.server.counter("sessions_open"), 0);
        // Afterwards another session begins.
        while applications[0].poke().is_some() {}
        applications[0].round_trip(target.address(), b"again");
    }
}

/// Either direction keeps a session alive.
#[test]
fn a_session_that_only_listens_lives_on() {
    let args = ["-u", "--udp-timeout", "3"];
    let pair = Pair::with_args(SIP022, &args, &args);
    let target = DatagramTarget::echo();
    let application = pair.associate();
    application.round_trip(target.address(), b"first");
    let source = target.arrivals()[0].source;
    for n in 0..12 {
        std::thread::sleep(Duration::from_millis(400));
        target.send(&[n], source);
        assert_eq!(application.receive(), (target.address(), vec![n]));
    }
    assert_eq!(pair.server.counter("sessions_idle"), 0);
}

#[test]
fn a_tunnel_carries_datagrams_to_its_target() {
    for method in METHODS {
        let pair = pair(method);
        let target = DatagramTarget::echo();
        let (server_port, port) = (pair.server_port.to_string(), reserve().to_string());
        let to = target.address().to_string();
        let args = ["-s", "127.0.0.1", "-p", &server_port, "-l", &port, "-L", &to, "-U"];
        let tunnel = start("ss-tunnel", method, &args);
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect(format!("127.0.0.1:{port}")).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut buf = vec![0; 70_000];
        for len in [0, 1, 1472, 9000, 65_000] {
            socket.send(&payload(len)).unwrap();
            let n = socket.recv(&mut buf).unwrap();
            assert!(buf[..n] == payload(len), "{method}: {n} of {len} bytes");
        }
        let line = tunnel.wait_for("listening on");
        assert!(line.contains("(UDP)") && line.contains("udp_only"), "{line}");
        let refused = TcpStream::connect(format!("127.0.0.1:{port}")).unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
    }
}
