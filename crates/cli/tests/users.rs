//! Several users on a port, several ports, and relays in between, for TCP and UDP.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::collections::HashSet;
use std::io::Write;
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::path::PathBuf;

use adit_system_tests::{
    Association, DatagramTarget, Ending, Process, Scratch, Target, Wire, ending, eventually,
    read_exactly, reserve, socks5,
};
use rustix::process::Signal;

const METHODS: [&str; 2] = ["2022-blake3-aes-128-gcm", "2022-blake3-aes-256-gcm"];

/// A key of one letter, as long as the method wants it.
fn key(method: &str, letter: char) -> String {
    // Base64: three equal letters make four characters, and what is left at the end others.
    let (three, one, two) = match letter {
        'a' => ("YWFh", "YQ==", "YWE="),
        'b' => ("YmJi", "Yg==", "YmI="),
        'c' => ("Y2Nj", "Yw==", "Y2M="),
        'p' => ("cHBw", "cA==", "cHA="),
        'r' => ("cnJy", "cg==", "cnI="),
        's' => ("c3Nz", "cw==", "c3M="),
        _ => ("enp6", "eg==", "eno="),
    };
    match method {
        "2022-blake3-aes-128-gcm" => three.repeat(5) + one,
        _ => three.repeat(10) + two,
    }
}

/// A server by a file that may change.
struct Server {
    process: Process,
    scratch: Scratch,
}

impl Server {
    fn start(text: &str, args: &[&str]) -> Self {
        let scratch = Scratch::new();
        let file: PathBuf = scratch.write("s.json", text);
        let base = ["-c", file.to_str().unwrap(), "-u"];
        let process = Process::start("ss-server", base.iter().chain(args));
        process.wait_for("worker");
        Self { process, scratch }
    }

    fn reload(&self, text: &str) {
        let reloaded = "configuration reloaded";
        let before = self.process.text().matches(reloaded).count();
        self.scratch.write("s.json", text);
        self.process.signal(Signal::HUP);
        self.process.wait_for_more(reloaded, before + 1);
    }
}

/// A client with one password.
struct Client {
    process: Process,
    port: u16,
}

impl Client {
    fn start(server_port: u16, method: &str, password: &str) -> Self {
        let port = reserve();
        let (server_port, text) = (server_port.to_string(), port.to_string());
        let args = ["-s", "127.0.0.1", "-p", &server_port, "-l", &text, "-m", method];
        let process = Process::start("ss-local", args.iter().chain(&["-k", password, "-u"]));
        process.wait_for("worker");
        Self { process, port }
    }

    fn stream(&self, target: &Target) -> TcpStream {
        let mut stream = socks5(self.port, "127.0.0.1", target.port());
        stream.write_all(b"hello").unwrap();
        stream
    }

    fn served(&self, target: &Target) -> TcpStream {
        let stream = self.stream(target);
        assert_eq!(read_exactly(&stream, 5), b"hello");
        stream
    }

    fn associate(&self) -> Association {
        Association::at(self.port)
    }
}

fn still_works(mut stream: &TcpStream) {
    stream.write_all(b"still").unwrap();
    assert_eq!(read_exactly(stream, 5), b"still");
}

fn with_users(method: &str, port: u16, users: &[(&str, char)]) -> String {
    let users: Vec<_> = users
        .iter()
        .map(|(name, letter)| {
            format!(r#"{{"name": "{name}", "password": "{}"}}"#, key(method, *letter))
        })
        .collect();
    format!(
        r#"{{"server": "127.0.0.1", "server_port": {port}, "method": "{method}",
            "password": "{}", "users": [{}]}}"#,
        key(method, 'p'),
        users.join(", ")
    )
}

fn of_user(method: &str, letter: char) -> String {
    format!("{}:{}", key(method, 'p'), key(method, letter))
}

/// A number in the line about a user.
fn number(line: &str, name: &str) -> u64 {
    let word = line.split_ascii_whitespace().find_map(|w| w.strip_prefix(name)?.strip_prefix('='));
    word.unwrap_or_else(|| panic!("no {name}: {line}")).parse().unwrap()
}

#[test]
fn users_of_a_port_are_counted_apart() {
    for method in METHODS {
        let port = reserve();
        let users = [("anna", 'a'), ("ben", 'b')];
        let server = Server::start(&with_users(method, port, &users), &["--workers", "2"]);
        let line = server.process.wait_for(&format!("listening on 127.0.0.1:{port}"));
        assert!(line.contains("2 users"), "{line}");
        let (stream, datagram) = (Target::echo(), DatagramTarget::echo());
        let [anna, ben] = ['a', 'b'].map(|l| Client::start(port, method, &of_user(method, l)));
        let open: Vec<_> = (0..3).map(|_| anna.served(&stream)).collect();
        let _one = ben.served(&stream);
        let application = ben.associate();
        for _ in 0..7 {
            application.round_trip(datagram.address(), &[0; 100]);
        }
        anna.associate().round_trip(datagram.address(), &[0; 50]);
        // Connections are counted when the relay begins, bytes as they move.
        let anna = server.process.report("user anna");
        let ben = server.process.report("user ben");
        let found = |line: &str| {
            ["connections", "sessions", "bytes_up", "bytes_down", "datagrams_up", "datagrams_down"]
                .map(|name| number(line, name))
        };
        assert_eq!(found(&anna), [3, 1, 65, 65, 1, 1], "{method}: {anna}");
        assert_eq!(found(&ben), [1, 1, 705, 705, 7, 7], "{method}: {ben}");
        drop(open);
        // The port's key alone opens nothing, nor does a user's, nor another's.
        let other = format!("{}:{}", key(method, 'p'), key(method, 'z'));
        for wrong in [key(method, 'p'), key(method, 'a'), other] {
            let client = Client::start(port, method, &wrong);
            assert_ne!(ending(&client.stream(&stream)).1, Ending::Open, "{method}");
            let application = client.associate();
            let rejected = server.process.counter("datagrams_rejected");
            application.send_to(datagram.address(), b"let me in");
            server.process.wait_for_counter("datagrams_rejected", rejected + 1);
            assert_eq!(application.poke(), None);
        }
        assert_eq!(stream.connections(), 4);
        assert_eq!(datagram.count(), 8);
        assert_eq!(server.process.counter("sessions"), 2, "{method}");
    }
}

#[test]
fn a_reload_adds_one_user_and_removes_another() {
    for method in METHODS {
        let port = reserve();
        let text = with_users(method, port, &[("anna", 'a'), ("ben", 'b')]);
        let server = Server::start(&text, &["--workers", "2"]);
        let (stream, datagram) = (Target::echo(), DatagramTarget::echo());
        let [anna, ben] = ['a', 'b'].map(|l| Client::start(port, method, &of_user(method, l)));
        let (annas, bens) = (anna.served(&stream), ben.served(&stream));
        let (annas_udp, bens_udp) = (anna.associate(), ben.associate());
        annas_udp.round_trip(datagram.address(), b"anna");
        bens_udp.round_trip(datagram.address(), b"ben");
        // In another order and under another name: it is the key that counts.
        server.reload(&with_users(method, port, &[("carl", 'c'), ("benjamin", 'b')]));
        assert_ne!(ending(&annas).1, Ending::Open, "{method}: the connection ends");
        still_works(&bens);
        annas_udp.send_to(datagram.address(), b"anna again");
        server.process.wait_for_counter("datagrams_rejected", 1);
        bens_udp.round_trip(datagram.address(), b"ben again");
        assert_eq!(annas_udp.poke(), None, "{method}");
        // Nor is the way back open.
        let arrivals = datagram.arrivals();
        datagram.send(b"unasked", arrivals[0].source);
        datagram.send(b"unasked", arrivals[1].source);
        assert_eq!(bens_udp.receive(), (datagram.address(), b"unasked".to_vec()));
        assert_eq!(annas_udp.poke(), None, "{method}");
        assert_eq!(arrivals[2].source, arrivals[1].source, "{method}: the session goes on");
        assert_eq!(server.process.counter("sessions_open"), 1);
        // A new connection of hers is refused, his and the new one's are served.
        assert_ne!(ending(&anna.stream(&stream)).1, Ending::Open);
        ben.served(&stream);
        let carl = Client::start(port, method, &of_user(method, 'c'));
        carl.served(&stream);
        carl.associate().round_trip(datagram.address(), b"carl");
        let line = server.process.report("user benjamin");
        assert_eq!(number(&line, "datagrams_up"), 2, "counting goes on: {line}");
        assert_eq!(number(&server.process.report("user carl"), "datagrams_up"), 1);
        // A connection keeps the users that it began with; with the last of these she is gone.
        drop(bens);
        eventually("nothing is said of her", || {
            let before = server.process.text().matches("user anna").count();
            server.process.report("user carl");
            (server.process.text().matches("user anna").count() == before).then_some(())
        });
        // And back: what a session of hers had sent is no use.
        server.reload(&text);
        annas_udp.round_trip(datagram.address(), b"anna is back");
        anna.served(&stream);
    }
}

/// From one key to users: whoever had the port's key is out.
#[test]
fn a_reload_can_change_the_key_of_a_port() {
    for method in ["aes-256-gcm", METHODS[1]] {
        let port = reserve();
        let with = |password: &str| {
            format!(
                r#"{{"server": "127.0.0.1", "server_port": {port}, "method": "{method}", "password": "{password}"}}"#
            )
        };
        let [old, new] = [key(method, 'a'), key(method, 'b')];
        let server = Server::start(&with(&old), &[]);
        let datagram = DatagramTarget::echo();
        let before = Client::start(port, method, &old);
        let application = before.associate();
        application.round_trip(datagram.address(), b"before");
        server.reload(&with(&new));
        application.send_to(datagram.address(), b"void");
        server.process.wait_for_counter("datagrams_rejected", 1);
        assert_eq!(datagram.count(), 1, "{method}");
        let after = Client::start(port, method, &new);
        after.associate().round_trip(datagram.address(), b"after");
        assert_eq!(server.process.counter("sessions_open"), 1, "{method}");
    }
}

#[test]
fn ports_with_passwords_of_their_own_come_and_go() {
    let method = "chacha20-ietf-poly1305";
    let [first, second, third] = std::array::from_fn(|_| reserve());
    let with = |ports: &[(u16, &str)]| {
        let ports: Vec<_> = ports.iter().map(|(p, key)| format!(r#""{p}": "{key}""#)).collect();
        format!(
            r#"{{"server": "127.0.0.1", "method": "{method}", "port_password": {{{}}}}}"#,
            ports.join(", ")
        )
    };
    let server = Server::start(&with(&[(first, "one"), (second, "two")]), &["--workers", "2"]);
    let (stream, datagram) = (Target::echo(), DatagramTarget::echo());
    let [one, two] = [(first, "one"), (second, "two")].map(|(p, k)| Client::start(p, method, k));
    let open = [&one, &two].map(|client| client.served(&stream));
    let applications = [&one, &two].map(Client::associate);
    applications.iter().for_each(|a| a.round_trip(datagram.address(), b"hello"));
    // The password of one port is none of another.
    let crossed = Client::start(first, method, "two");
    crossed.associate().send_to(datagram.address(), b"crossed");
    server.process.wait_for_counter("datagrams_rejected", 1);
    assert_eq!(datagram.count(), 2);

    server.reload(&with(&[(second, "two"), (third, "three")]));
    // Connections go on, as a reload that removes a listener leaves them; datagrams do not.
    open.iter().for_each(still_works);
    applications[1].round_trip(datagram.address(), b"still");
    let closed = |port: u16| {
        let stream = TcpStream::connect(("127.0.0.1", port));
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect(("127.0.0.1", port)).unwrap();
        socket.set_read_timeout(Some(std::time::Duration::from_millis(100))).unwrap();
        socket.send(b"x").unwrap();
        let refused = std::io::ErrorKind::ConnectionRefused;
        stream.is_err() && socket.recv(&mut [0; 9]).is_err_and(|e| e.kind() == refused)
    };
    eventually("the removed port closes", || closed(first).then_some(()));
    assert_eq!(server.process.counter("sessions_open"), 1);
    let three = Client::start(third, method, "three");
    three.served(&stream);
    three.associate().round_trip(datagram.address(), b"third");
}

/// `"destinations"` of a relay.
fn relay(method: &str, port: u16, own: char, next: &[(&str, u16, char)]) -> String {
    let next: Vec<_> = next
        .iter()
        .map(|(name, port, letter)| {
            format!(
                r#"{{"name": "{name}", "server": "127.0.0.1", "server_port": {port}, "password": "{}"}}"#,
                key(method, *letter)
            )
        })
        .collect();
    format!(
        r#"{{"server": "127.0.0.1", "server_port": {port}, "method": "{method}",
            "password": "{}", "destinations": [{}]}}"#,
        key(method, own),
        next.join(", ")
    )
}

fn plain(method: &str, port: u16, own: char) -> String {
    let key = key(method, own);
    format!(
        r#"{{"server": "127.0.0.1", "server_port": {port}, "method": "{method}", "password": "{key}"}}"#
    )
}

#[test]
fn a_relay_leads_to_the_server_that_the_key_names() {
    for method in METHODS {
        let [hop, single, shared] = std::array::from_fn(|_| reserve());
        let next = [("single", single, 's'), ("shared", shared, 'p')];
        let relay = Server::start(&relay(method, hop, 'r', &next), &["--workers", "2"]);
        let line = relay.process.wait_for(&format!("listening on 127.0.0.1:{hop}"));
        assert!(line.contains("relay to 2 servers"), "{line}");
        let to_single = Server::start(&plain(method, single, 's'), &[]);
        let users = [("anna", 'a'), ("ben", 'b')];
        let to_shared = Server::start(&with_users(method, shared, &users), &[]);
        let (stream, datagram) = (Target::echo(), DatagramTarget::echo());
        let keys =
            |letters: &str| letters.chars().map(|l| key(method, l)).collect::<Vec<_>>().join(":");
        for (letters, server) in [("rs", &to_single), ("rpa", &to_shared), ("rpb", &to_shared)] {
            let client = Client::start(hop, method, &keys(letters));
            let open = client.served(&stream);
            still_works(&open);
            let before = server.process.counter("datagrams_up");
            let application = client.associate();
            for len in [0, 1, 1400, 9000, 60_000] {
                application.round_trip(datagram.address(), &vec![7; len]);
            }
            assert_eq!(server.process.counter("datagrams_up"), before + 5, "{method}: {letters}");
        }
        let line = to_shared.process.report("user ben");
        assert_eq!(number(&line, "datagrams_up"), 5, "{line}");
        assert_eq!(relay.process.counter("sessions"), 3);

        // Whom the relay does not know gets the reaction that a stranger gets anywhere.
        let (served, arrived) = (stream.connections(), datagram.count());
        for letters in ["rz", "zs", "r", "s", "ra"] {
            let client = Client::start(hop, method, &keys(letters));
            let application = client.associate();
            let rejected = relay.process.counter("datagrams_rejected");
            application.send_to(datagram.address(), b"let me in");
            relay.process.wait_for_counter("datagrams_rejected", rejected + 1);
            assert_eq!(application.poke(), None, "{letters}");
            let refused = relay.process.counter("rejected");
            assert_eq!(ending(&client.stream(&stream)), (vec![], Ending::Reset), "{letters}");
            assert_eq!(relay.process.counter("rejected"), refused + 1, "{letters}");
        }
        // The relay knows the hop, and the server behind it refuses the user.
        let client = Client::start(hop, method, &keys("rpz"));
        assert_ne!(ending(&client.stream(&stream)).1, Ending::Open);
        client.associate().send_to(datagram.address(), b"let me in");
        to_shared.process.wait_for_counter("datagrams_rejected", 1);
        assert_eq!((stream.connections(), datagram.count()), (served, arrived));
        // Next hops that are away are told to nobody but the log.
        drop(to_single);
        let client = Client::start(hop, method, &keys("rs"));
        assert_ne!(ending(&client.stream(&stream)).1, Ending::Open);
        relay.process.wait_for("no connection to next hop single");
    }
}

#[test]
fn relays_stand_in_a_row() {
    let method = METHODS[0];
    let [first, second, last] = std::array::from_fn(|_| reserve());
    let _first = Server::start(&relay(method, first, 'r', &[("second", second, 'c')]), &[]);
    let _second = Server::start(&relay(method, second, 'c', &[("last", last, 's')]), &[]);
    let _last = Server::start(&plain(method, last, 's'), &[]);
    let password = ["r", "c", "s"].map(|l| key(method, l.chars().next().unwrap())).join(":");
    let client = Client::start(first, method, &password);
    let (stream, datagram) = (Target::echo(), DatagramTarget::echo());
    still_works(&client.served(&stream));
    let application = client.associate();
    for len in [0, 1, 1400, 9000, 60_000] {
        application.round_trip(datagram.address(), &vec![7; len]);
    }
    assert!(client.process.text().contains("via"), "{}", client.process.text());
}

/// What holds without a relay holds behind one: clients that move are followed, and nothing is
/// served twice.
#[test]
fn sessions_behind_a_relay_move_and_are_not_replayed() {
    for method in METHODS {
        let [hop, last] = std::array::from_fn(|_| reserve());
        let two = ["--workers", "2"];
        let relay = Server::start(&relay(method, hop, 'r', &[("last", last, 's')]), &two);
        let server = Server::start(&plain(method, last, 's'), &two);
        let wire = Wire::to(SocketAddr::from(([127, 0, 0, 1], hop)));
        let client = Client::start(
            wire.port(),
            method,
            &format!("{}:{}", key(method, 'r'), key(method, 's')),
        );
        let datagram = DatagramTarget::echo();
        let application = client.associate();
        for _ in 0..16 {
            application.round_trip(datagram.address(), b"hello");
            wire.rebind();
        }
        let sources: HashSet<_> = datagram.arrivals().iter().map(|a| a.source).collect();
        assert_eq!(sources.len(), 1, "{method}: the target sees one port");
        application.round_trip(datagram.address(), b"settled");
        let captures = wire.ups();
        let sockets: Vec<_> = (0..16).map(|_| UdpSocket::bind("127.0.0.1:0").unwrap()).collect();
        for (socket, capture) in sockets.iter().zip(&captures) {
            socket.send_to(capture, ("127.0.0.1", hop)).unwrap();
        }
        server.process.wait_for_counter("datagrams_replayed", 16);
        assert_eq!(datagram.count(), 17, "{method}");
        datagram.send(b"unasked", *sources.iter().next().unwrap());
        assert_eq!(application.receive().1, b"unasked");
        for socket in &sockets {
            socket.set_nonblocking(true).unwrap();
            assert!(socket.recv(&mut [0; 9]).is_err(), "{method}: nothing for the attacker");
        }
        assert_eq!(server.process.counter("sessions"), 1);
        assert!(relay.process.counter("sessions") > 16);
    }
}

/// Every port is two listeners at each address; the program says so instead of serving some of them.
#[test]
fn more_ports_than_listeners_are_refused() {
    let ports: Vec<_> = (20_000..20_700).map(|port| format!("\"{port}\": \"x\"")).collect();
    let scratch = Scratch::new();
    let file = scratch.write(
        "many.json",
        &format!(
            r#"{{"server": ["127.0.0.1", "127.0.0.2", "127.0.0.3"], "method": "aes-256-gcm",
                "mode": "tcp_and_udp", "port_password": {{{}}}}}"#,
            ports.join(", ")
        ),
    );
    let exit = Process::run("ss-server", ["-c", file.to_str().unwrap()]);
    assert_eq!(exit.code, Some(1), "{}", exit.text);
    assert!(exit.text.contains("cannot listen on 4200 addresses"), "{}", exit.text);
    assert!(exit.text.contains("4096 listeners at most"), "{}", exit.text);
}
