//! `ss-redir` and `adit redir rules`, with real rules in networks of a test's own.
//!
//! Three hosts in a row: a client behind a router, which runs ss-redir, and somewhere else, where the
//! server and the targets are. There is a way without the proxy too, so that whatever is not
//! redirected arrives as well; targets tell whom they see, and what came through the proxy comes
//! from the server's host itself.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::process::{Command, Stdio};
use std::time::Duration;

use adit_system_tests::{
    Answer, DatagramTarget, Dns, Inside, Namespace, PATIENCE, Process, Scratch, Target, ending,
    eventually, raise_descriptor_limit,
};

const FAR: [&str; 2] = ["9.9.9.9", "2620:fe::9"];
const ROUTER: [&str; 2] = ["10.9.0.1", "fd09::1"];
const SERVER: [&str; 2] = ["10.9.0.2", "fd09::2"];
const CLIENT: [&str; 2] = ["192.168.7.2", "fd07::2"];
const PORT: u16 = 7777;
const REDIR_PORT: u16 = 1088;

/// The three hosts.
struct Net {
    client: Namespace,
    router: Namespace,
    far: Namespace,
    scratch: Scratch,
}

impl Net {
    fn new() -> Self {
        let (client, router, far) = (Namespace::new(), Namespace::new(), Namespace::new());
        router.link("wan", &["10.9.0.1/24", "fd09::1/64"], &far, &["10.9.0.2/24", "fd09::2/64"]);
        router.link(
            "lan",
            &["192.168.7.1/24", "fd07::1/64"],
            &client,
            &["192.168.7.2/24", "fd07::2/64"],
        );
        far.addresses("lo", &["9.9.9.9/32", "2620:fe::9/128"]);
        router.gateways(&SERVER);
        client.gateways(&["192.168.7.1", "fd07::1"]);
        far.run("ip route add 192.168.7.0/24 via 10.9.0.1");
        far.run("ip -6 route add fd07::/64 via fd09::1");
        router.forward();
        Self { client, router, far, scratch: Scratch::new() }
    }

    /// Starts the server, and ss-redir with further lines in its file.
    fn start(&self, more: &str) -> Programs {
        self.start_with(SERVER[0], SERVER[0], more)
    }

    /// As [`Net::start`], with the server at another address, and by a name of its own.
    fn start_with(&self, server: &str, name: &str, more: &str) -> Programs {
        let file = self.scratch.write(
            "redir.json",
            &format!(
                r#"{{"server": "{name}", "server_port": 8388, "password": "x", "method": "aes-256-gcm",
"local_port": {REDIR_PORT}, "mode": "tcp_and_udp", {more}}}"#
            ),
        );
        let server = ["-s", server, "-p", "8388", "-k", "x", "-m", "aes-256-gcm", "-u"];
        let server = self.far.start("ss-server", server);
        server.wait_for("worker");
        let file = file.to_str().unwrap().to_owned();
        let redir = self.router.start("ss-redir", ["-c", &file, "--nofile", "20000"]);
        redir.wait_for("own connections carry the firewall mark");
        Programs { file, server, redir }
    }

    /// Targets on a port of each far address.
    fn targets(&self, ips: [&str; 2], port: u16) -> [Both<'_>; 2] {
        ips.map(|ip| {
            let address = SocketAddr::new(ip.parse().unwrap(), port);
            Both {
                tcp: self.far.with(|| tells_whom_it_sees(address)),
                udp: self.far.with(|| DatagramTarget::echo_on(address)),
            }
        })
    }

    /// Everything that rules are made of, on the router.
    fn state(&self) -> String {
        let parts = ["nft list ruleset", "ip -4 rule", "ip -6 rule"].map(|c| self.router.run(c));
        let routes = ["-4", "-6"].map(|family| {
            let all = self.router.run(&format!("ip {family} route show table all"));
            // The kernel's own entries come and go with neighbours.
            all.lines().filter(|line| !line.contains("proto kernel")).collect::<Vec<_>>().join("\n")
        });
        [&parts[..], &routes].concat().join("\n--\n")
    }
}

struct Programs {
    file: String,
    server: Process,
    redir: Process,
}

struct Both<'a> {
    tcp: Inside<'a, Target>,
    udp: Inside<'a, DatagramTarget>,
}

/// A target that says who its peer is, and sends back what it gets.
fn tells_whom_it_sees(address: SocketAddr) -> Target {
    Target::serve_on(address, |mut stream| {
        let ip = stream.peer_addr().map(|peer| peer.ip().to_string()).unwrap_or_default();
        // A connection that breaks is the business of the test at its other end.
        let _ = stream.write_all(ip.as_bytes());
        let _ = io::copy(&mut &stream, &mut &stream);
    })
}

/// Whom a target sees when a host connects to it; all that is sent comes back.
fn seen_by_tcp(host: &Namespace, target: SocketAddr) -> IpAddr {
    host.enter(|| {
        let mut stream = TcpStream::connect_timeout(&target, PATIENCE).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(b"/hello").unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text.strip_suffix("/hello").expect("it comes back").parse().unwrap()
    })
}

/// Whom a target sees when a host sends it a datagram, which comes back from the target's address.
fn seen_by_udp(host: &Namespace, target: &DatagramTarget) -> IpAddr {
    host.enter(|| {
        let socket = udp_socket(target.address());
        socket.send_to(b"hello", target.address()).unwrap();
        let mut buf = [0; 64];
        let (len, from) = receive(&socket, &mut buf).expect("an answer comes");
        assert_eq!((&buf[..len], from), (&b"hello"[..], target.address()));
    });
    target.arrivals().last().unwrap().source.ip()
}

fn udp_socket(target: SocketAddr) -> UdpSocket {
    let any = if target.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = UdpSocket::bind(any).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

/// The next datagram. A socket with a time limit is interrupted by whatever stops the process.
fn receive(socket: &UdpSocket, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
    loop {
        match socket.recv_from(buf) {
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            received => return received,
        }
    }
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// The way things take that are redirected, and how far they get.
fn goes_through_the_proxy(by: &str) {
    let net = Net::new();
    let programs = net.start(&format!(r#""local_address": "::", "tcp_redir": "{by}""#));
    let file = &programs.file;
    net.router.run(&format!("adit redir rules apply -c {file} --interface lan"));
    for target in &net.targets(FAR, PORT) {
        let address = target.tcp.address();
        for host in [&net.router, &net.client] {
            // The server is on the target's host, and so its connections come from there.
            assert_eq!(seen_by_tcp(host, address), address.ip(), "{by} {address}");
            assert_eq!(seen_by_udp(host, &target.udp), address.ip(), "{by} {address}");
        }
    }
    assert_eq!(programs.redir.counter("blocked"), 0);
    // A service of the router answers strangers, although its answers go to no private address.
    let service = net.router.with(|| tells_whom_it_sees("[::]:22".parse().unwrap()));
    net.far.run("ip route change 10.9.0.0/24 dev wan src 9.9.9.9");
    let found = seen_by_tcp(&net.far, SocketAddr::new(ip(ROUTER[0]), 22));
    assert_eq!(found.to_canonical(), ip(FAR[0]));
    drop(service);
    // Without rules everything goes its own way.
    net.router.run("adit redir rules remove");
    for (target, (own, client)) in
        net.targets(FAR, PORT + 1).iter().zip(ROUTER.into_iter().zip(CLIENT))
    {
        assert_eq!(seen_by_tcp(&net.router, target.tcp.address()), ip(own));
        assert_eq!(seen_by_udp(&net.client, &target.udp), ip(client));
    }
}

#[test]
#[ignore = "needs root, nft and ip"]
fn connections_by_redirect_and_datagrams_come_through() {
    goes_through_the_proxy("redirect");
}

#[test]
#[ignore = "needs root, nft and ip"]
fn connections_by_tproxy_and_datagrams_come_through() {
    goes_through_the_proxy("tproxy");
}

#[test]
#[ignore = "needs root, nft and ip"]
fn a_listener_on_loopback_serves_its_own_host() {
    for by in ["redirect", "tproxy"] {
        let net = Net::new();
        let programs = net.start(&format!(r#""local_address": "127.0.0.1", "tcp_redir": "{by}""#));
        let (ok, said) =
            net.router.attempt(&format!("adit redir rules apply -c {}", programs.file), "");
        assert!(ok && said.contains("IPv6 connections are left alone"), "{said}");
        let [v4, v6] = net.targets(FAR, PORT);
        assert_eq!(seen_by_tcp(&net.router, v4.tcp.address()), ip(FAR[0]), "{by}");
        assert_eq!(seen_by_udp(&net.router, &v4.udp), ip(FAR[0]), "{by}");
        assert_eq!(seen_by_tcp(&net.router, v6.tcp.address()), ip(ROUTER[1]), "{by}");
    }
}

#[test]
#[ignore = "needs root, nft and ip"]
fn what_is_to_be_left_alone_is() {
    for by in ["redirect", "tproxy"] {
        let net = Net::new();
        net.far.addresses("lo", &["9.9.9.10/32", "9.9.9.11/32"]);
        let more = format!(r#""local_address": "::", "tcp_redir": "{by}""#);
        let programs = net.start_with("9.9.9.11", "9.9.9.11", &more);
        net.router.run(&format!(
            "adit redir rules apply -c {} --interface lan --bypass 9.9.9.10 --bypass 2620:fe::/112 \
             --tcp-ports 7777,8000-8010 --udp-ports 7777 --skip-uid nobody",
            programs.file
        ));
        let hosts = [(&net.router, ROUTER), (&net.client, CLIENT)];
        // Private ranges; a named address and a named range; the server itself.
        for ips in [SERVER, ["9.9.9.10", FAR[1]], ["9.9.9.11", FAR[1]]] {
            let targets = net.targets(ips, PORT);
            for (host, own) in &hosts {
                for (target, own) in targets.iter().zip(own) {
                    assert_eq!(seen_by_tcp(host, target.tcp.address()), ip(own), "{by} {own}");
                    assert_eq!(seen_by_udp(host, &target.udp), ip(own), "{by} {own}");
                }
            }
        }
        // An address of the router's own that is not private.
        net.router.addresses("lo", &["1.2.3.4/32"]);
        let own = SocketAddr::new(ip("1.2.3.4"), PORT);
        let service = net.router.with(|| tells_whom_it_sees(own));
        assert_eq!(seen_by_tcp(&net.router, own), own.ip(), "{by}");
        assert_eq!(seen_by_tcp(&net.client, own), ip(CLIENT[0]), "{by}");
        drop(service);
        // Other ports.
        let [others, _] = net.targets(FAR, 8011);
        for (host, own) in &hosts {
            assert_eq!(seen_by_tcp(host, others.tcp.address()), ip(own[0]));
            assert_eq!(seen_by_udp(host, &others.udp), ip(own[0]));
        }
        let [asked, _] = net.targets(FAR, PORT);
        assert_eq!(seen_by_tcp(&net.router, asked.tcp.address()), ip(FAR[0]));
        // Other users.
        let connect = "bash -c exec<>/dev/tcp/9.9.9.9/7777;head${IFS}-c7";
        let nobody = "setpriv --reuid=nobody --regid=nogroup --clear-groups";
        assert_eq!(net.router.run(connect), FAR[0], "{by}");
        assert_eq!(net.router.run(&format!("{nobody} {connect}")), ROUTER[0][..7], "{by}");
    }
}

/// Rules outlive the program, so that nothing goes round it meanwhile; and what was open before
/// they came goes on where that is possible.
#[test]
#[ignore = "needs root, nft and ip"]
fn nothing_goes_round_a_program_that_has_ended() {
    for by in ["redirect", "tproxy"] {
        let net = Net::new();
        let programs = net.start(&format!(r#""local_address": "::", "tcp_redir": "{by}""#));
        let targets = net.targets(FAR, PORT);
        let address = targets[0].tcp.address();
        let mut early = net.router.enter(|| TcpStream::connect(address).unwrap());
        early.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut buf = [0; 8];
        early.read_exact(&mut buf).unwrap();
        assert_eq!(&buf, ROUTER[0].as_bytes());
        net.router.run(&format!("adit redir rules apply -c {} --interface lan", programs.file));
        let _ = early.write_all(b"on");
        let rest = early.read_exact(&mut buf[..2]);
        assert_eq!(rest.is_ok(), by == "redirect", "{rest:?}");
        drop(programs);
        for host in [&net.router, &net.client] {
            for target in &targets {
                let address = target.tcp.address();
                let before = target.tcp.connections();
                // Refused, or never answered; how long one waits for that is no matter.
                let limit = Duration::from_millis(200);
                assert!(host.enter(|| TcpStream::connect_timeout(&address, limit).is_err()));
                seen_by_tcp(&net.far, address);
                assert_eq!(target.tcp.connections(), before + 1, "{by}");
                host.enter(|| udp_socket(address).send_to(b"lost", address).unwrap());
                // What is sent later, from nearby, arrives, and this does not.
                seen_by_udp(&net.far, &target.udp);
                let arrivals = target.udp.arrivals();
                assert!(arrivals.iter().all(|arrival| arrival.payload == b"hello"), "{by}");
            }
        }
    }
}

/// Neither the server's address nor that of the name server is left out by these rules, which are
/// made for another server: what ss-redir sends itself is known by its mark alone.
#[test]
#[ignore = "needs root, nft and ip"]
fn the_mark_alone_keeps_own_traffic_out() {
    const OTHER: &str = "-s 1.1.1.1 -p 1 -k x -m aes-256-gcm -b :: -l 1088 -u";
    for (by, option) in [("redirect", ""), ("tproxy", "-T")] {
        let net = Net::new();
        let dns = net.far.with(|| {
            Dns::serve_at(ip(FAR[0]), |question| match question.name.as_str() {
                "server.test" => Answer::Addresses(vec![ip(FAR[0])]),
                _ => Answer::NoSuchName,
            })
        });
        net.router.run(&format!("adit redir rules apply {OTHER} {option}"));
        let programs = net.start_with(
            FAR[0],
            "server.test",
            &format!(
                r#""local_address": "::", "tcp_redir": "{by}", "nameserver": "{}""#,
                dns.address()
            ),
        );
        for target in &net.targets(FAR, PORT) {
            let address = target.tcp.address();
            assert_eq!(seen_by_tcp(&net.router, address), address.ip(), "{by}");
            assert_eq!(seen_by_udp(&net.router, &target.udp), address.ip(), "{by}");
        }
        assert!(dns.questions().iter().any(|question| question.name == "server.test"));
        assert_eq!(programs.redir.counter("blocked"), 0);
    }
}

/// Rules that give a redirector's own traffic back to it.
#[test]
#[ignore = "needs root, nft and ip"]
fn what_goes_in_circles_ends_at_once() {
    for by in ["redirect", "tproxy"] {
        let net = Net::new();
        let programs = net.start(&format!(r#""local_address": "::", "tcp_redir": "{by}""#));
        net.router.run(&format!("adit redir rules apply -c {}", programs.file));
        let [target, _] = net.targets(FAR, PORT);
        // By its own port.
        let direct = net.router.enter(|| {
            let stream = TcpStream::connect(("127.0.0.1", REDIR_PORT)).unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            ending(&stream).0
        });
        assert!(direct.is_empty());
        assert_eq!(programs.redir.counter("blocked"), 1, "{by}");
        assert_eq!(seen_by_tcp(&net.router, target.tcp.address()), ip(FAR[0]));
        // Nothing is left out any more.
        net.router.run("nft flush chain inet adit_redir leave_out");
        net.router.run("nft add rule inet adit_redir leave_out oifname lo accept");
        net.router.enter(|| {
            let mut stream = TcpStream::connect(target.tcp.address()).unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            // It may be reset by now.
            let _ = stream.write_all(b"x");
            assert!(ending(&stream).0.is_empty());
            let socket = udp_socket(target.udp.address());
            socket.send_to(b"x", target.udp.address()).unwrap();
        });
        // The connection and the datagram came back once each, and not again.
        programs.redir.wait_for("would go in circles");
        eventually("both have been stopped", || {
            (programs.redir.counter("blocked") >= 3).then_some(())
        });
        let blocked = programs.redir.counter("blocked");
        assert!(blocked < 20, "{by}: {blocked}");
        // The rules come back whole.
        net.router.run(&format!("adit redir rules apply -c {}", programs.file));
        assert_eq!(seen_by_tcp(&net.router, target.tcp.address()), ip(FAR[0]), "{by}");
        assert_eq!(seen_by_udp(&net.router, &target.udp), ip(FAR[0]), "{by}");
    }
}

/// A server is marked when sessions have gone without an answer for three seconds; those of a redirector
/// get theirs.
#[test]
#[ignore = "needs root, nft and ip"]
fn redirected_answers_speak_for_the_server() {
    let net = Net::new();
    let programs = net.start(r#""local_address": "::""#);
    net.router.run(&format!("adit redir rules apply -c {}", programs.file));
    let [target, _] = net.targets(FAR, PORT);
    for _ in 0..8 {
        assert_eq!(seen_by_udp(&net.router, &target.udp), ip(FAR[0]));
        std::thread::sleep(Duration::from_millis(500));
    }
    let text = programs.redir.text();
    assert!(!text.contains("does not answer datagrams"), "{text}");
}

/// The interface that a session's socket is bound to goes away, and another comes by its name.
#[test]
#[ignore = "needs root, nft and ip"]
fn sessions_go_on_when_an_interface_comes_again() {
    let net = Net::new();
    let link = || {
        net.router.link("vpn", &["10.8.0.1/24"], &net.far, &["10.8.0.2/24"]);
        net.router.run("ip route add 9.9.9.9 via 10.8.0.2 dev vpn");
        net.far.run("ip route replace 10.9.0.1 via 10.8.0.1");
    };
    link();
    let more = r#""local_address": "::", "outbound_bind_interface": "vpn""#;
    let programs = net.start_with("9.9.9.9", "9.9.9.9", more);
    net.router.run(&format!("adit redir rules apply -c {}", programs.file));
    net.far.addresses("lo", &["9.9.9.10/32"]);
    let target = net.far.with(|| DatagramTarget::echo_on(SocketAddr::new(ip("9.9.9.10"), PORT)));
    net.router.enter(|| {
        let socket = udp_socket(target.address());
        echo(&socket, target.address(), 0);
        net.router.run("ip link delete vpn");
        // Nothing comes through, and the socket learns why.
        socket.send_to(b"lost", target.address()).unwrap();
        programs.redir.wait_for_counter("datagrams_dropped", 1);
        link();
        socket.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        let mut buf = [0; 16];
        eventually("an answer comes again", || {
            socket.send_to(b"again", target.address()).unwrap();
            let (len, from) = receive(&socket, &mut buf).ok()?;
            assert_eq!((&buf[..len], from), (&b"again"[..], target.address()));
            Some(())
        });
    });
}

#[test]
#[ignore = "needs root, nft and ip"]
fn thousands_of_flows_at_once() {
    const FLOWS: usize = 2000;
    /// More than a worker has sockets for answers.
    const TARGETS: u16 = 300;
    assert!(raise_descriptor_limit() > 3 * FLOWS as u64, "open files are limited to too few");
    for by in ["redirect", "tproxy"] {
        let net = Net::new();
        let programs =
            net.start(&format!(r#""local_address": "::", "tcp_redir": "{by}", "workers": 1"#));
        net.router.run(&format!("adit redir rules apply -c {} --interface lan", programs.file));
        let [target, _] = net.targets(FAR, PORT);
        let address = target.tcp.address();
        for host in [&net.router, &net.client] {
            let mut streams = host.enter(|| {
                let open = |_| {
                    let stream = TcpStream::connect(address).unwrap();
                    stream.set_read_timeout(Some(PATIENCE)).unwrap();
                    stream
                };
                (0..FLOWS / 2).map(open).collect::<Vec<_>>()
            });
            for (number, stream) in streams.iter_mut().enumerate() {
                stream.write_all(format!("{number:05}").as_bytes()).unwrap();
            }
            for (number, stream) in streams.iter_mut().enumerate() {
                let mut buf = [0; 12];
                stream.read_exact(&mut buf).unwrap();
                assert_eq!(buf, *format!("9.9.9.9{number:05}").as_bytes(), "{by}");
            }
            let sockets: Vec<UdpSocket> =
                host.enter(|| (0..FLOWS / 2).map(|_| udp_socket(address)).collect());
            for (number, socket) in sockets.iter().enumerate() {
                echo(socket, address, number);
            }
            assert_eq!(programs.redir.counter("reply_sockets_open"), 1, "one for one target");
        }
        let many: Vec<_> = (10_000..10_000 + TARGETS)
            .map(|port| net.far.with(|| DatagramTarget::echo_on(SocketAddr::new(ip(FAR[0]), port))))
            .collect();
        let socket = net.router.enter(|| udp_socket(address));
        for _ in 0..2 {
            for (number, target) in many.iter().enumerate() {
                echo(&socket, target.address(), number);
            }
        }
        assert_eq!(programs.redir.counter("reply_sockets_open"), 256);
        assert_eq!(programs.redir.counter("reply_sockets_failed"), 0);
        assert_eq!(programs.server.counter("blocked"), 0);
    }
}

/// Sends a number, which has to come back from where it was sent.
fn echo(socket: &UdpSocket, target: SocketAddr, number: usize) {
    let text = number.to_string();
    socket.send_to(text.as_bytes(), target).unwrap();
    let mut buf = [0; 16];
    let (len, from) = receive(socket, &mut buf).expect("an answer comes");
    assert_eq!((&buf[..len], from), (text.as_bytes(), target));
}

#[test]
#[ignore = "needs root, nft and ip"]
fn applying_again_changes_nothing_and_removing_leaves_nothing() {
    let net = Net::new();
    // What is there of others stays.
    net.router.attempt("nft -f -", "table inet other { chain c { counter; }; }");
    net.router.run("ip rule add pref 1088 fwmark 0x1 lookup 100");
    let before = net.state();
    let args = "-s 9.9.9.9 -p 1 -k x -m aes-256-gcm -b :: -l 1088";
    net.router.run(&format!("adit redir rules apply {args} -T -u --interface lan"));
    let once = net.state();
    assert!(once.contains("adit_redir") && once.contains("lookup 44312"), "{once}");
    net.router.run(&format!("adit redir rules apply {args} -T -u --interface lan"));
    assert_eq!(net.state(), once);
    // What is printed is what is applied, but for the routes.
    let printed = net.router.run(&format!("adit redir rules print {args} -T -u --interface lan"));
    let rules = net.router.run("nft list table inet adit_redir");
    net.router.run("nft delete table inet adit_redir");
    let (ok, said) = net.router.attempt("nft -f -", &printed);
    assert!(ok, "{said}");
    assert_eq!(net.router.run("nft list table inet adit_redir"), rules);
    for line in printed.lines().filter_map(|line| line.strip_prefix("#   ")) {
        let (ok, said) = net.router.attempt(line, "");
        assert!(ok || said.contains("File exists"), "{line}: {said}");
    }
    assert_eq!(net.state(), once);
    // Without TPROXY no routes are needed.
    net.router.run(&format!("adit redir rules apply {args}"));
    assert!(!net.state().contains("44312"), "{}", net.state());
    net.router.run(&format!("adit redir rules apply {args} -T -u"));
    for _ in 0..2 {
        net.router.run("adit redir rules remove");
        assert_eq!(net.state(), before);
    }
}

#[test]
#[ignore = "needs root, nft and ip"]
fn a_failure_changes_nothing_and_says_what_to_do() {
    let net = Net::new();
    let before = net.state();
    let args = "-s 9.9.9.9 -p 1 -k x -m aes-256-gcm -b :: -l 1088 -u";
    for action in ["remove".to_owned(), format!("apply {args}")] {
        let (ok, said) = net.router.attempt(
            &format!(
                "setpriv --bounding-set=-net_admin --inh-caps=-net_admin adit redir rules {action}"
            ),
            "",
        );
        assert!(!ok && said.contains("need root or CAP_NET_ADMIN"), "{said}");
    }
    // A user whom nobody knows: nft refuses, and the routes made before go again.
    let (ok, said) =
        net.router.attempt(&format!("adit redir rules apply {args} --skip-uid no-such-user"), "");
    assert!(!ok && said.contains("nft refuses the rules"), "{said}");
    assert_eq!(net.state(), before);
}

/// What is wrong with a command line is said without any rights.
#[test]
fn wrong_words_are_refused() {
    let good = ["-s", "9.9.9.9", "-p", "1", "-k", "x", "-m", "aes-256-gcm", "-l", "1088"];
    for (words, said) in [
        (&["redir"][..], "write adit redir rules print, apply or remove"),
        (&["redir", "rules"], "write adit redir rules print, apply or remove"),
        (&["redir", "rules", "flush"], "write adit redir rules print, apply or remove"),
        (&["redir", "rules", "remove", "-c", "f.json"], "remove takes no options"),
        (&["redir", "rules", "print", "--interface", "lan"], "listen on 0.0.0.0 or ::"),
        (&["redir", "rules", "print", "--tcp-ports", "0"], "write ports and ranges of ports"),
        (&["redir", "rules", "print", "--nonsense"], "--nonsense"),
        (&["redir", "rules", "print", "--program", "ss-server"], "takes no redirected traffic"),
    ] {
        let more = if words.contains(&"print") { &good[..] } else { &[] };
        let more = if words.contains(&"ss-server") { &more[..8] } else { more };
        let done = Process::run("adit", words.iter().chain(more));
        assert_eq!(done.code, Some(2), "{words:?}: {}", done.text);
        assert!(done.text.contains(said), "{words:?}: {}", done.text);
    }
    let missing = Command::new(adit_system_tests::program("adit"))
        .args(["redir", "rules", "print", "-c", "/nonexistent.json"])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert_eq!(missing.status.code(), Some(2));
}
