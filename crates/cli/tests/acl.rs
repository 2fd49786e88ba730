//! Access control lists: what a client sends which way, and what a server refuses.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;

use adit_system_tests::{
    Answer, Association, DatagramTarget, Dns, Ending, Pair, Process, Scratch, Target, connect,
    ending, password, read_exactly, reserve, socks5,
};
use rustix::process::Signal;

const METHODS: [&str; 2] = ["aes-256-gcm", "2022-blake3-aes-256-gcm"];
const ONE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const TWO: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));

fn names() -> Dns {
    Dns::serve(|question| match question.name.as_str() {
        "at-two.test" => Answer::Addresses(vec![TWO]),
        "both.test" => Answer::Addresses(vec![TWO, ONE]),
        name if name.starts_with("no") => Answer::NoSuchName,
        _ => Answer::Addresses(vec![ONE]),
    })
}

/// A target of connections and one of datagrams at the same port of both addresses, as an echo.
struct Targets {
    port: u16,
    _streams: [Target; 2],
    _datagrams: [DatagramTarget; 2],
}

impl Targets {
    fn start() -> Self {
        let port = reserve();
        let at = |ip| SocketAddr::new(ip, port);
        let stream = |ip| {
            Target::serve_on(at(ip), |mut stream: TcpStream| {
                let mut buf = [0; 4096];
                while let Ok(n) = stream.read(&mut buf) {
                    if n == 0 || stream.write_all(&buf[..n]).is_err() {
                        return;
                    }
                }
            })
        };
        Self {
            port,
            _streams: [ONE, TWO].map(stream),
            _datagrams: [ONE, TWO].map(|ip| DatagramTarget::echo_on(at(ip))),
        }
    }
}

fn served(mut stream: &TcpStream) {
    stream.write_all(b"hello").unwrap();
    assert_eq!(read_exactly(stream, 5), b"hello");
}

fn answered(application: &Association, host: &str, port: u16) {
    application.send(host, port, b"hello");
    assert_eq!(application.receive().1, b"hello", "{host}");
}

fn with_acl<'a>(args: &[&'a str], acl: &'a Path) -> Vec<&'a str> {
    [args, &["--acl", acl.to_str().unwrap()]].concat()
}

#[test]
fn a_client_sends_each_target_its_way() {
    let scratch = Scratch::new();
    let acl = scratch.write(
        "acl",
        "# what goes where\n[proxy_all]\n[bypass_list]\n||direct.test\n127.0.0.2/32\n\
         (^|\\.)by-[a-z]+\\.test$\n[proxy_list]\n|but.direct.test\n",
    );
    let dns = names();
    for method in METHODS {
        let targets = Targets::start();
        let address = dns.address();
        let local = with_acl(&["-u", "--nameserver", &address], &acl);
        let pair = Pair::with_args(method, &["-u", "-d", &address], &local);
        for (host, is_direct) in [
            ("direct.test", true),
            ("a.direct.test", true),
            ("but.direct.test", false),
            ("by-name.test", true),
            ("at-two.test", true),
            ("127.0.0.2", true),
            ("::ffff:127.0.0.2", true),
            ("127.0.0.1", false),
            ("other.test", false),
        ] {
            let before = (pair.server.counter("relayed"), pair.server.counter("datagrams_up"));
            let stream = socks5(pair.local_port, host, targets.port);
            served(&stream);
            answered(&pair.associate(), host, targets.port);
            let through = u64::from(!is_direct);
            assert_eq!(pair.server.counter("relayed"), before.0 + through, "{method}: {host}");
            assert_eq!(pair.server.counter("datagrams_up"), before.1 + through, "{host}");
        }
        // What cannot be looked up here is the server's to know, or not.
        let before = pair.server.counter("resolve_failed");
        assert_ne!(ending(&socks5(pair.local_port, "nowhere.test", targets.port)).1, Ending::Open);
        pair.server.wait_for_counter("resolve_failed", before + 1);
    }
}

#[test]
fn a_client_forwards_http_requests_without_a_server() {
    let scratch = Scratch::new();
    let acl = scratch.write("acl", "[bypass_all]\n");
    let targets = Targets::start();
    // There is no server.
    let (server, local) = (reserve().to_string(), reserve());
    let port = local.to_string();
    let args = ["-s", "127.0.0.1", "-p", &server, "-l", &port, "-m", METHODS[0], "-k", "x", "-u"];
    let process = Process::start("ss-local", with_acl(&args, &acl));
    process.wait_for("worker");
    let mut stream = connect(local);
    let to = targets.port;
    let request = format!(
        "POST http://127.0.0.1:{to}/a HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nbody"
    );
    stream.write_all(request.as_bytes()).unwrap();
    assert_eq!(read_exactly(&stream, 16), b"POST /a HTTP/1.1");
    served(&socks5(local, "127.0.0.1", to));
    let application = Association::at(local);
    answered(&application, "127.0.0.1", to);
    // A target that is not there is an answer of its own, and our own listener is none.
    let nobody = reserve();
    for refused in [nobody, local] {
        let (_, code) = adit_system_tests::socks5_reply(local, "127.0.0.1", refused);
        assert_ne!(code, 0, "{refused}");
    }
    assert_eq!(process.counter("blocked"), 1);
}

#[test]
fn a_server_refuses_targets_by_name_and_by_address() {
    let scratch = Scratch::new();
    let acl = scratch.write(
        "acl",
        "[outbound_block_list]\n||blocked.test\n127.0.0.2\n[outbound_allow_list]\n|fine.blocked.test\n",
    );
    let dns = names();
    for method in METHODS {
        let targets = Targets::start();
        let address = dns.address();
        let server = with_acl(&["-u", "-d", &address], &acl);
        let pair = Pair::with_args(method, &server, &["-u"]);
        for host in ["127.0.0.1", "free.test", "fine.blocked.test", "both.test"] {
            served(&socks5(pair.local_port, host, targets.port));
            answered(&pair.associate(), host, targets.port);
        }
        assert_eq!(pair.server.counter("blocked"), 0);
        let application = pair.associate();
        let mut refused = 0;
        for host in ["blocked.test", "a.blocked.test", "127.0.0.2", "at-two.test"] {
            let client = socks5(pair.local_port, host, targets.port);
            assert_eq!(ending(&client), (vec![], Ending::Reset), "{method}: {host}");
            application.send(host, targets.port, b"let me in");
            refused += 2;
            pair.server.wait_for_counter("blocked", refused);
        }
        assert_eq!(application.poke(), None);
        pair.server.wait_for("refused: access control list");
    }
}

#[test]
fn a_server_refuses_clients() {
    let scratch = Scratch::new();
    let acl = scratch.write("acl", "[accept_all]\n[black_list]\n127.0.0.3\n");
    let targets = Targets::start();
    for method in METHODS {
        let pair = Pair::with_args(method, &with_acl(&["-u"], &acl), &["-u"]);
        served(&socks5(pair.local_port, "127.0.0.1", targets.port));
        let (server, port) = (pair.server_port.to_string(), reserve());
        let local = port.to_string();
        let args = ["-s", "127.0.0.1", "-p", &server, "-l", &local, "-m", method, "-u"];
        let key = ["-k", password(method), "--outbound-address", "127.0.0.3"];
        let stranger = Process::start("ss-local", args.into_iter().chain(key));
        stranger.wait_for("worker");
        let client = socks5(port, "127.0.0.1", targets.port);
        assert_ne!(ending(&client).1, Ending::Open, "{method}");
        let application = Association::at(port);
        application.send("127.0.0.1", targets.port, b"let me in");
        pair.server.wait_for_counter("clients_refused", 2);
        assert_eq!(application.poke(), None);
        served(&socks5(pair.local_port, "127.0.0.1", targets.port));
    }
}

#[test]
fn a_mode_line_alone_is_a_list() {
    let scratch = Scratch::new();
    let nobody = scratch.write("nobody", "[reject_all]\n");
    let pair = Pair::with_args(METHODS[0], &with_acl(&["-u"], &nobody), &["-u"]);
    let targets = Targets::start();
    assert_ne!(ending(&socks5(pair.local_port, "127.0.0.1", targets.port)).1, Ending::Open);
    pair.server.wait_for_counter("clients_refused", 1);
    let nothing =
        scratch.write("nothing", "[outbound_block_all]\n[outbound_allow_list]\n127.0.0.1\n");
    let pair = Pair::with_args(METHODS[0], &with_acl(&["-u"], &nothing), &["-u"]);
    served(&socks5(pair.local_port, "127.0.0.1", targets.port));
    assert_eq!(ending(&socks5(pair.local_port, "127.0.0.2", targets.port)).1, Ending::Reset);
}

#[test]
fn mistakes_are_reported_with_their_lines() {
    let scratch = Scratch::new();
    let args = ["-s", "127.0.0.1", "-p", "8388", "-l", "1080", "-m", METHODS[0], "-k", "x"];
    for (text, words) in [
        ("[bypass_list]\n10.0.0.0/8\n10.0.0.0/33\n(unclosed\n", vec!["line 3:", "line 4:"]),
        ("[no_such_list]\n", vec!["line 1:"]),
        ("[bypass_list]\ngeoip:CN\n", vec!["line 2:", "geoip_database"]),
    ] {
        let acl = scratch.write("acl", text);
        let exit = Process::run("ss-local", with_acl(&args, &acl));
        assert_eq!(exit.code, Some(2), "{}", exit.text);
        for word in words {
            assert!(exit.text.contains(word), "{word}: {}", exit.text);
        }
    }
    let missing = scratch.file("missing");
    let exit = Process::run("ss-local", with_acl(&args, &missing));
    assert_eq!(exit.code, Some(2), "{}", exit.text);
    assert!(exit.text.contains("No such file"), "{}", exit.text);
}

#[test]
fn a_reload_reads_the_list_again_unless_it_has_mistakes() {
    let scratch = Scratch::new();
    let acl = scratch.write("acl", "[proxy_all]\n");
    let targets = Targets::start();
    let pair = Pair::with_args(METHODS[1], &["-u"], &with_acl(&["-u"], &acl));
    let application = pair.associate();
    let old = socks5(pair.local_port, "127.0.0.1", targets.port);
    served(&old);
    answered(&application, "127.0.0.1", targets.port);
    assert_eq!((pair.server.counter("relayed"), pair.server.counter("datagrams_up")), (1, 1));
    for (text, line, relayed) in [
        ("[bypass_all]\n", "reloaded", 1),
        ("(broken\n", "line 1", 1),
        ("[proxy_all]\n", "reloaded", 2),
    ] {
        scratch.write("acl", text);
        let seen = pair.local.text().matches(line).count();
        pair.local.signal(Signal::HUP);
        pair.local.wait_for_more(line, seen + 1);
        served(&old);
        served(&socks5(pair.local_port, "127.0.0.1", targets.port));
        answered(&application, "127.0.0.1", targets.port);
        let counted = (pair.server.counter("relayed"), pair.server.counter("datagrams_up"));
        assert_eq!(counted, (relayed, relayed), "{text}");
    }
}
