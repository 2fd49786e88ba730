//! What a server refuses to its users, and how much it gives to one client.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream, UdpSocket};

use adit_system_tests::{
    Answer, Association, DatagramTarget, Dns, Ending, Pair, Process, Scratch, Target, ending,
    eventually, password, poke, read_exactly, reserve, socks5, socks5_over,
};
use rustix::process::Signal;

const SIP004: &str = "aes-256-gcm";
const SIP022: &str = "2022-blake3-aes-256-gcm";
const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// Every way to write an address that is none of the internet.
const PRIVATE: [&str; 15] = [
    "127.0.0.1",
    "127.255.0.9",
    "0.0.0.0",
    "10.0.0.1",
    "172.16.0.1",
    "192.168.0.1",
    "100.100.100.200",
    "169.254.169.254",
    "::1",
    "::",
    "fd00::1",
    "fe80::1",
    "::ffff:127.0.0.1",
    "::ffff:10.0.0.1",
    "64:ff9b::169.254.169.254",
];

fn served(mut stream: &TcpStream) {
    stream.write_all(b"hello").unwrap();
    assert_eq!(read_exactly(stream, 5), b"hello");
}

/// Starts one program on loopback ports, with a key that fits.
fn start(program: &str, method: &str, args: &[&str]) -> Process {
    let base = ["-m", method, "-k", password(method)];
    let process = Process::start(program, base.iter().chain(args));
    process.wait_for("worker");
    process
}

#[test]
fn private_targets_are_refused() {
    let dns = Dns::serve(|q| match q.name.as_str() {
        "inside.test" => Answer::Addresses(vec![LOOPBACK, "::1".parse().unwrap()]),
        "metadata.test" => Answer::Addresses(vec!["169.254.169.254".parse().unwrap()]),
        "mapped.test" => Answer::Addresses(vec!["::ffff:127.0.0.1".parse().unwrap()]),
        _ => Answer::NoSuchName,
    });
    for method in [SIP004, SIP022] {
        // Name servers are the operator's own, private or not.
        let args = ["-u", "--block-private", "--workers", "1", "-d", &dns.address()];
        let pair = Pair::with_args(method, &args, &["-u"]);
        let (stream, datagram) = (Target::echo(), DatagramTarget::echo());
        let application = pair.associate();
        let names = ["localhost", "inside.test", "metadata.test", "mapped.test"];
        let mut refused = 0;
        for host in PRIVATE.into_iter().chain(names) {
            let client = socks5(pair.local_port, host, stream.port());
            assert_eq!(ending(&client), (vec![], Ending::Reset), "{method}: {host}");
            application.send(host, datagram.port(), b"let me in");
            refused += 2;
            pair.server.wait_for_counter("blocked", refused);
        }
        assert_eq!(pair.server.counter("blocked"), refused, "each is counted once");
        assert_eq!((stream.connections(), datagram.count()), (0, 0), "{method}");
        assert_eq!(application.poke(), None);
        // What was asked for and why it was refused, in words for people.
        let to = |port: u16| format!("127.0.0.1:{port} refused: private address");
        pair.server.wait_for(&to(stream.port()));
        let dropped = format!("datagram to 127.0.0.1:{} dropped: private address", datagram.port());
        pair.server.wait_for(&dropped);
        assert!(!pair.server.text().contains("Target {"), "{}", pair.server.text());
    }
}

/// A name with one address inside and one outside leads outside.
#[test]
fn of_a_names_addresses_the_public_ones_are_used() {
    let public = Ipv4Addr::new(192, 0, 2, 1);
    let dns = Dns::serve(move |_| Answer::Addresses(vec![LOOPBACK, public.into()]));
    let args = ["-u", "--block-private", "-d", &dns.address(), "-t", "2"];
    let pair = Pair::with_args(SIP022, &args, &["-u"]);
    let stream = Target::echo();
    let client = socks5(pair.local_port, "both.test", stream.port());
    assert_ne!(ending(&client).1, Ending::Open, "nobody is at the other one");
    assert_eq!(stream.connections(), 0);
    assert_eq!(pair.server.counter("dial_failed"), 1, "and yet it was tried");
    assert_eq!(pair.server.counter("blocked"), 0);
}

#[test]
fn the_command_line_wins_and_a_reload_changes_it() {
    let scratch = Scratch::new();
    let (server_port, port) = (reserve(), reserve());
    let text = |block: bool| {
        let base = adit_system_tests::config(SIP022, server_port, port);
        base.replacen('{', &format!(r#"{{"mode": "tcp_and_udp", "block_private": {block}, "#), 1)
    };
    let file = scratch.write("c.json", &text(true));
    let file = file.to_str().unwrap();
    let (stream, datagram) = (Target::echo(), DatagramTarget::echo());
    let local = Process::start("ss-local", ["-c", file]);
    local.wait_for("worker");
    {
        let server = Process::start("ss-server", ["-c", file, "--allow-private"]);
        server.wait_for("worker");
        served(&socks5(port, "127.0.0.1", stream.port()));
    }
    let server = Process::start("ss-server", ["-c", file]);
    server.wait_for("worker");
    let refused = socks5(port, "127.0.0.1", stream.port());
    assert_eq!(ending(&refused).1, Ending::Reset);
    let application = Association::at(port);
    application.send_to(datagram.address(), b"refused");
    server.wait_for_counter("blocked", 2);
    let reload = |block: bool, count: usize| {
        scratch.write("c.json", &text(block));
        server.signal(Signal::HUP);
        server.wait_for_more("configuration reloaded", count);
    };
    reload(false, 1);
    let open = socks5(port, "127.0.0.1", stream.port());
    served(&open);
    application.round_trip(datagram.address(), b"allowed");
    // A session goes by the rules of the day, a connection by those that it began with.
    reload(true, 2);
    application.send_to(datagram.address(), b"refused");
    server.wait_for_counter("blocked", 3);
    served(&open);
    assert_eq!(datagram.count(), 1);
}

/// `adit up` lets nobody into the house that it runs in.
#[test]
fn up_blocks_private_targets() {
    let scratch = Scratch::new();
    let (port, local_port) = (reserve().to_string(), reserve());
    let text = local_port.to_string();
    let mut command = std::process::Command::new(adit_system_tests::program("adit"));
    command.args(["up", "--port", &port, "--local-port", &text]);
    let up = Process::spawn("adit up", {
        command.env("XDG_CONFIG_HOME", scratch.path());
        command
    });
    up.wait_for("worker");
    let stream = Target::echo();
    assert_eq!(ending(&socks5(local_port, "127.0.0.1", stream.port())).1, Ending::Reset);
    assert_eq!(stream.connections(), 0);
}

/// An address of this host that is not loopback.
fn own_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    socket.connect("192.0.2.1:9").ok()?;
    let ip = socket.local_addr().unwrap().ip();
    (!ip.is_loopback() && !ip.is_unspecified()).then_some(ip)
}

/// A connection to oneself would go round for as long as there are descriptors.
#[test]
fn own_listeners_are_never_dialled() {
    for method in [SIP004, SIP022] {
        for any in ["127.0.0.1", "0.0.0.0", "::"] {
            let [server_port, sibling, port] = std::array::from_fn(|_| reserve());
            let scratch = Scratch::new();
            let entry = |port: u16| {
                let key = password(method);
                format!(
                    r#"{{"server": "{any}", "server_port": {port}, "method": "{method}", "password": "{key}"}}"#
                )
            };
            let text = |entries: &[u16]| {
                let entries: Vec<_> = entries.iter().map(|port| entry(*port)).collect();
                format!(r#"{{"mode": "tcp_and_udp", "servers": [{}]}}"#, entries.join(", "))
            };
            let file = scratch.write("s.json", &text(&[server_port]));
            let args = ["-c", file.to_str().unwrap(), "--workers", "1"];
            let mut server = Process::start("ss-server", args);
            server.wait_for("worker");
            let (text_port, text_server) = (port.to_string(), server_port.to_string());
            let to_server = if any == "::" { "::1" } else { "127.0.0.1" };
            let local = ["-s", to_server, "-p", &text_server, "-l", &text_port, "-u"];
            let _local = start("ss-local", method, &local);
            let application = Association::at(port);
            let mut hosts =
                vec!["127.0.0.1".to_owned(), "0.0.0.0".to_owned(), "localhost".to_owned()];
            hosts.push("::ffff:127.0.0.1".to_owned());
            if any != "127.0.0.1" {
                hosts.push("127.0.0.77".to_owned());
                hosts.extend(own_address().map(|ip| ip.to_string()));
            }
            if any == "::" {
                hosts.extend(["::1".to_owned(), "::".to_owned()]);
            }
            let mut blocked = 0;
            let mut refuses = |server: &Process, port_there: u16| {
                for host in &hosts {
                    let client = socks5(port, host, port_there);
                    assert_eq!(ending(&client).1, Ending::Reset, "{any}: {host}");
                    application.send(host, port_there, b"to yourself");
                    blocked += 2;
                    server.wait_for_counter("blocked", blocked);
                }
            };
            refuses(&server, server_port);
            server.wait_for("a listener of this program");
            // Other programs' ports are open, the same port at another address too.
            let (stream, datagram) = (Target::echo(), DatagramTarget::echo());
            served(&socks5(port, "127.0.0.1", stream.port()));
            application.round_trip(datagram.address(), b"hello");
            if any == "127.0.0.1" {
                let twin = SocketAddr::from(([127, 0, 0, 2], server_port));
                let stream = Target::serve_on(twin, |stream| {
                    drop(std::io::copy(&mut &stream, &mut &stream))
                });
                let datagram = DatagramTarget::echo_on(twin);
                served(&socks5(port, "127.0.0.2", stream.port()));
                application.round_trip(datagram.address(), b"hello");
            }
            // What a reload adds is ours as well, for sessions that were there before too.
            scratch.write("s.json", &text(&[server_port, sibling]));
            server.signal(Signal::HUP);
            server.wait_for("configuration reloaded");
            refuses(&server, sibling);
            refuses(&server, server_port);
            assert!(server.is_alive());
        }
    }
}

/// Listeners of TCP and of UDP do not meet.
#[test]
fn a_port_of_one_kind_is_open_for_the_other() {
    let (server_port, port) = (reserve(), reserve().to_string());
    let text = server_port.to_string();
    let _server = start("ss-server", SIP022, &["-s", "127.0.0.1", "-p", &text, "-U"]);
    let datagrams = ["-s", "127.0.0.1", "-p", &text, "-l", &port, "-u"];
    let _local = start("ss-local", SIP022, &datagrams);
    let application = Association::at(port.parse().unwrap());
    application.send("127.0.0.1", server_port, b"to yourself");
    application.round_trip(DatagramTarget::echo().address(), b"hello");
}

#[test]
fn connections_of_one_client_are_limited() {
    let limit = ["--max-connections-per-client", "3"];
    for limited in ["ss-server", "ss-local"] {
        let (server_args, local_args) = match limited {
            "ss-server" => (&limit[..], &[][..]),
            _ => (&[][..], &limit[..]),
        };
        let pair = Pair::with_args(SIP022, server_args, local_args);
        let process = if limited == "ss-server" { &pair.server } else { &pair.local };
        let stream = Target::echo();
        let mut open: Vec<_> = (0..3).map(|_| pair.open(stream.port())).collect();
        open.iter().for_each(served);
        for n in 1..=5 {
            match limited {
                "ss-server" => {
                    assert_eq!(ending(&pair.open(stream.port())).1, Ending::Reset);
                }
                _ => assert_eq!(
                    ending(&adit_system_tests::connect(pair.local_port)),
                    (vec![], Ending::Reset)
                ),
            }
            assert_eq!(process.counter("client_limit"), n, "{limited}");
        }
        let line = process.wait_for("refused");
        assert!(line.contains("127.0.0.1:") && line.contains("3 connections"), "{line}");
        open.iter().for_each(served);
        // Freed with every kind of end.
        drop(open.pop());
        adit_system_tests::reset(open.pop().unwrap());
        eventually("two are free again", || {
            let open = pair.server.counter("open") + pair.local.counter("open");
            (open == 2).then_some(())
        });
        let again: Vec<_> = (0..2).map(|_| pair.open(stream.port())).collect();
        again.iter().for_each(served);
        served(&open[0]);
        if limited == "ss-local" {
            // Another address is another client.
            let other = SocketAddr::from(([127, 0, 0, 2], 0));
            let other = connect_from(other, pair.local_port);
            assert_eq!(socks5_over(&other, "127.0.0.1", stream.port()), 0);
            served(&other);
        }
    }
}

/// A loopback connection from an address of one's own.
fn connect_from(source: SocketAddr, port: u16) -> TcpStream {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with};
    let fd = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None);
    let fd = fd.unwrap();
    bind(&fd, &source).unwrap();
    connect(&fd, &SocketAddr::from(([127, 0, 0, 1], port))).unwrap();
    TcpStream::from(fd)
}

#[test]
fn sessions_of_one_client_are_limited() {
    let limit = ["-u", "--max-sessions-per-client", "3", "--udp-timeout", "2"];
    for method in [SIP004, SIP022] {
        for limited in ["ss-server", "ss-local"] {
            let others = ["-u"];
            let (server_args, local_args) = match limited {
                "ss-server" => (&limit[..], &others[..]),
                _ => (&others[..], &limit[..]),
            };
            let pair = Pair::with_args(method, server_args, local_args);
            let process = if limited == "ss-server" { &pair.server } else { &pair.local };
            let target = DatagramTarget::echo();
            let relay = SocketAddr::new(LOOPBACK, pair.local_port);
            let all: Vec<_> = (0..5).map(|_| Association::without_control(relay)).collect();
            for application in &all[..3] {
                application.round_trip(target.address(), b"in time");
            }
            for application in &all[3..] {
                application.send_to(target.address(), b"too late");
            }
            process.wait_for_counter("client_limit", 2);
            if limited == "ss-local" {
                let other = IpAddr::from([127, 0, 0, 2]);
                Association::from(other, relay).round_trip(target.address(), b"another");
            }
            let line = process.wait_for("too many sessions");
            assert!(line.contains("127.0.0.1:"), "{line}");
            assert_eq!(target.arrivals().iter().filter(|a| a.payload == b"too late").count(), 0);
            process.wait_for_counter("sessions_idle", 3);
            all[4].round_trip(target.address(), b"freed");
            let open = process.counter("sessions_open");
            assert!(open <= 2, "{method} {limited}: {open}");
        }
    }
}

/// Limits come, go and come again with reloads; nobody pays for what has ended in between.
#[test]
fn limits_follow_a_reload() {
    let scratch = Scratch::new();
    let (server_port, port) = (reserve(), reserve());
    let text = |limit: u32| {
        let base = adit_system_tests::config(SIP022, server_port, port);
        let more = format!(
            r#"{{"mode": "tcp_and_udp", "udp_timeout": 1, "max_sessions_per_client": {limit},
                "max_connections_per_client": {limit}, "#
        );
        base.replacen('{', &more, 1)
    };
    let file = scratch.write("c.json", &text(2));
    let file = file.to_str().unwrap();
    let server = Process::start("ss-server", ["-c", file]);
    let local = ["-s", "127.0.0.1", "-p", &server_port.to_string(), "-l", &port.to_string(), "-u"];
    let _local = start("ss-local", SIP022, &local);
    server.wait_for("worker");
    let (stream, target) = (Target::echo(), DatagramTarget::echo());
    let mut reloads = 0;
    let mut reload = |limit: u32| {
        scratch.write("c.json", &text(limit));
        server.signal(Signal::HUP);
        reloads += 1;
        server.wait_for_more("configuration reloaded", reloads);
    };
    let mut ended = 0;
    let mut sessions_end = |server: &Process, count: u64| {
        ended += count;
        server.wait_for_counter("sessions_idle", ended);
    };
    let relay = SocketAddr::new(LOOPBACK, port);
    let some = |count: usize| {
        let all: Vec<_> = (0..count).map(|_| Association::without_control(relay)).collect();
        all.iter().for_each(|a| a.round_trip(target.address(), b"hello"));
    };
    some(2);
    let open: Vec<_> = (0..2).map(|_| socks5(port, "127.0.0.1", stream.port())).collect();
    open.iter().for_each(served);
    // Off: what is counted ends uncounted.
    reload(0);
    sessions_end(&server, 2);
    drop(open);
    eventually("connections end", || (server.counter("open") == 0).then_some(()));
    some(3);
    sessions_end(&server, 3);
    // On, the same as before.
    reload(2);
    some(2);
    let open: Vec<_> = (0..2).map(|_| socks5(port, "127.0.0.1", stream.port())).collect();
    open.iter().for_each(served);
    sessions_end(&server, 2);
    // Wider, then narrower again, with nothing open.
    reload(4);
    some(4);
    sessions_end(&server, 4);
    reload(2);
    some(2);
    assert_eq!(server.counter("client_limit"), 0);
    assert_eq!(poke(&open[0]), (vec![], Ending::Open));
}
