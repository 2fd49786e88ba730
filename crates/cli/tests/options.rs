//! Options of listeners and sockets: Unix sockets, modes, salts, and what the kernel is told.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use adit_system_tests::{
    Association, DatagramTarget, Ending, PATIENCE, Pair, Process, Scratch, Target, ending,
    eventually, password, program, read_exactly, reserve, socks5, socks5_reply,
};
use rustix::net::{getpeername, getsockname, sockopt};
use rustix::process::Signal;

const SIP004: &str = "aes-256-gcm";
const SIP022: &str = "2022-blake3-aes-256-gcm";

fn served(mut stream: &TcpStream) {
    stream.write_all(b"hello").unwrap();
    assert_eq!(read_exactly(stream, 5), b"hello");
}

fn start(program: &str, args: &[&str]) -> Process {
    let base = ["-m", SIP022, "-k", password(SIP022)];
    let process = Process::start(program, base.iter().chain(args));
    process.wait_for("worker");
    process
}

/// Connects to a port through a proxy at a path.
fn through(path: &Path, port: u16) -> UnixStream {
    let mut stream = UnixStream::connect(path).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let port = port.to_be_bytes();
    stream.write_all(&[&[5, 1, 0, 5, 1, 0, 1, 127, 0, 0, 1][..], &port].concat()).unwrap();
    let mut reply = [0; 12];
    stream.read_exact(&mut reply).unwrap();
    assert_eq!(reply[..4], [5, 0, 5, 0]);
    stream
}

fn echoes(mut stream: &UnixStream, bytes: &[u8]) {
    let mut writer = stream.try_clone().unwrap();
    let sent = bytes.to_vec();
    let sender = std::thread::spawn(move || writer.write_all(&sent).unwrap());
    let mut back = vec![0; bytes.len()];
    stream.read_exact(&mut back).unwrap();
    assert!(back == bytes, "{} bytes differ", bytes.len());
    sender.join().unwrap();
}

#[test]
fn a_unix_socket_serves_and_goes_with_the_program() {
    let scratch = Scratch::new();
    let pair = Pair::start(SIP022);
    let echo = Target::echo();
    let server_port = pair.server_port.to_string();
    for (name, prefix) in [("plain.sock", ""), ("prefixed.sock", "unix:")] {
        let path = scratch.file(name);
        // Left behind by a process that was killed.
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        let address = format!("{prefix}{}", path.display());
        let args = ["-s", "127.0.0.1", "-p", &server_port, "-b", &address, "--workers", "2"];
        let local = start("ss-local", &args);
        let line = local.wait_for("listening on");
        assert!(line.contains(path.to_str().unwrap()) && line.contains("tcp_only"), "{line}");
        let open: Vec<_> = (0..20).map(|_| through(&path, echo.port())).collect();
        let bulk = adit_system_tests::bytes_at(0, 1_000_000);
        open.iter().for_each(|stream| echoes(stream, b"hello"));
        echoes(&open[0], bulk);
        open[0].shutdown(Shutdown::Write).unwrap();
        assert_eq!((&open[0]).read(&mut [0; 9]).unwrap(), 0, "an end comes back as an end");
        // HTTP as well, and no UDP.
        let mut http = UnixStream::connect(&path).unwrap();
        let to = echo.address();
        http.write_all(format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n\r\n").as_bytes()).unwrap();
        let mut head = [0; 12];
        http.read_exact(&mut head).unwrap();
        assert_eq!(&head, b"HTTP/1.1 200");
        let mut udp = UnixStream::connect(&path).unwrap();
        udp.write_all(&[5, 1, 0, 5, 3, 0, 1, 0, 0, 0, 0, 0, 0]).unwrap();
        let mut reply = [0; 4];
        udp.read_exact(&mut reply).unwrap();
        assert_eq!(reply[3], 7);
        drop((open, http, udp));
        local.signal(Signal::TERM);
        assert_eq!(local.wait().code, Some(0));
        assert!(!path.exists(), "the file goes with the program");
    }
}

#[test]
fn a_path_that_another_program_has_taken_over_is_left_to_it() {
    let scratch = Scratch::new();
    let path = scratch.file("socket");
    let args = ["-s", "127.0.0.1", "-p", "8388", "-b", path.to_str().unwrap()];
    let local = start("ss-local", &args);
    std::fs::remove_file(&path).unwrap();
    let _other = UnixListener::bind(&path).unwrap();
    local.signal(Signal::TERM);
    assert_eq!(local.wait().code, Some(0));
    UnixStream::connect(&path).unwrap();
}

#[test]
fn a_path_that_is_taken_is_left_alone() {
    let scratch = Scratch::new();
    let file = scratch.write("file", "precious");
    let socket = scratch.file("socket");
    let _other = UnixListener::bind(&socket).unwrap();
    let long = scratch.file(&"x".repeat(120));
    let base = ["-s", "127.0.0.1", "-p", "8388", "-m", SIP022, "-k", password(SIP022), "-b"];
    for (path, words) in [
        (&file, "not a socket"),
        (&socket, "another program"),
        (&long, "107 bytes"),
        (&scratch.file("none/socket"), "No such file"),
    ] {
        let exit = Process::run("ss-local", base.iter().chain(&[path.to_str().unwrap()]));
        assert!(matches!(exit.code, Some(1 | 2)), "{}", exit.text);
        assert!(exit.text.contains(words), "{}", exit.text);
    }
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "precious");
    UnixStream::connect(&socket).unwrap();
    // UDP needs an address.
    let args = [scratch.file("udp").to_str().unwrap().to_owned(), "-u".to_owned()];
    let exit = Process::run("ss-local", base.map(str::to_owned).iter().chain(&args));
    assert_eq!(exit.code, Some(2), "{}", exit.text);
    assert!(exit.text.contains("Unix socket relays TCP only"), "{}", exit.text);
}

#[test]
fn a_reload_moves_a_unix_socket() {
    let scratch = Scratch::new();
    let pair = Pair::start(SIP022);
    let echo = Target::echo();
    let [old, kept, new] = ["old", "kept", "new"].map(|name| scratch.file(name));
    let write = |paths: &[&Path]| {
        let locals: Vec<_> =
            paths.iter().map(|p| format!(r#"{{"local_address": "{}"}}"#, p.display())).collect();
        let text = format!(
            r#"{{"server": "127.0.0.1", "server_port": {}, "method": "{SIP022}", "password": "{}",
                "locals": [{}]}}"#,
            pair.server_port,
            password(SIP022),
            locals.join(", ")
        );
        scratch.write("c.json", &text)
    };
    let file = write(&[&old, &kept]);
    let local = Process::start("ss-local", ["-c", file.to_str().unwrap()]);
    local.wait_for("worker");
    let open = [&old, &kept].map(|path| through(path, echo.port()));
    write(&[&kept, &new]);
    local.signal(Signal::HUP);
    local.wait_for("configuration reloaded");
    open.iter().for_each(|stream| echoes(stream, b"still"));
    for path in [&kept, &new] {
        echoes(&through(path, echo.port()), b"hello");
    }
    eventually("the old one goes", || {
        (!old.exists() && UnixStream::connect(&old).is_err()).then_some(())
    });
    local.signal(Signal::TERM);
    drop(open);
    assert_eq!(local.wait().code, Some(0));
    assert!(!kept.exists() && !new.exists());
}

/// What listens at a loopback port: TCP, UDP.
fn open(port: u16) -> (bool, bool) {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let tcp = TcpStream::connect(address).is_ok();
    // Whoever holds a port keeps others from it.
    let udp = UdpSocket::bind(address).is_err();
    (tcp, udp)
}

#[test]
fn each_mode_opens_its_ports_and_says_so() {
    let base = ["-m", SIP022, "-k", password(SIP022)];
    for (mode, flag, expected) in [
        ("tcp_only", None, (true, false)),
        ("tcp_only", Some("--tcp-only"), (true, false)),
        ("tcp_and_udp", Some("-u"), (true, true)),
        ("udp_only", Some("-U"), (false, true)),
    ] {
        for name in ["ss-server", "ss-local", "ss-tunnel"] {
            let port = reserve();
            let text = port.to_string();
            let more: &[&str] = match name {
                "ss-server" => &["-s", "127.0.0.1", "-p", &text],
                "ss-local" => &["-s", "127.0.0.1", "-p", "8388", "-l", &text],
                _ => &["-s", "127.0.0.1", "-p", "8388", "-l", &text, "-L", "127.0.0.1:53"],
            };
            // By flag, and by key.
            let scratch = Scratch::new();
            let file = scratch.write("m.json", &format!(r#"{{"mode": "{mode}"}}"#));
            let by_key = ["-c", file.to_str().unwrap()];
            let by_flag: Vec<_> = flag.into_iter().collect();
            for how in [&by_flag[..], &by_key] {
                let process = Process::start(name, base.iter().chain(more).chain(how));
                // An association is asked for by TCP.
                let expected = (expected.0 || name == "ss-local", expected.1);
                process.wait_for("worker");
                assert_eq!(open(port), expected, "{name} {how:?}");
                let said = process.text();
                let lines: Vec<_> = said.lines().filter(|l| l.contains("listening on")).collect();
                let (tcp, udp) = expected;
                assert_eq!(lines.len(), usize::from(tcp) + usize::from(udp), "{lines:?}");
                let with_udp = lines.iter().filter(|line| line.contains(" (UDP): ")).count();
                assert_eq!(with_udp, usize::from(udp), "{lines:?}");
                assert!(lines.iter().all(|line| line.ends_with(mode)), "{lines:?}");
            }
        }
    }
}

#[test]
fn short_flags_mean_what_the_programs_name_says() {
    let scratch = Scratch::new();
    let cases = [
        ("ss-server", "-u", "tcp_and_udp"),
        ("ss-server", "-U", "udp_only"),
        ("ssserver", "-u", "udp_only"),
        ("ssserver", "-U", "tcp_and_udp"),
        ("ss-local", "-u", "tcp_and_udp"),
        ("ss-local", "-U", "udp_only"),
        ("sslocal", "-u", "udp_only"),
        ("sslocal", "-U", "tcp_and_udp"),
    ];
    for (name, flag, mode) in cases {
        let ours = if name.ends_with("local") { "ss-local" } else { "ss-server" };
        let path = scratch.file(name);
        if !path.exists() {
            std::os::unix::fs::symlink(program(ours), &path).unwrap();
        }
        let port = reserve();
        let (text, own) = (port.to_string(), format!("127.0.0.1:{port}"));
        let key = password(SIP022);
        let args: &[&str] = match name {
            "ss-server" => &["-s", "127.0.0.1", "-p", &text, "-k", key, "-m", SIP022],
            "ss-local" => &["-s", "127.0.0.1", "-p", "8388", "-l", &text, "-k", key, "-m", SIP022],
            "ssserver" => &["-s", &own, "-k", key, "-m", SIP022],
            _ => &["-s", "127.0.0.1:8388", "-b", &own, "-k", key, "-m", SIP022],
        };
        let mut command = Command::new(&path);
        command.args(args).arg(flag);
        let process = Process::spawn(name, command);
        process.wait_for("worker");
        let line = process.wait_for("listening on");
        assert!(line.ends_with(mode), "{name} {flag}: {line}");
        let asks = name.ends_with("local");
        assert_eq!(open(port), (asks || mode != "udp_only", true), "{name} {flag}");
    }
}

#[test]
fn where_udp_alone_is_relayed_connections_ask_for_associations_alone() {
    let pair = Pair::with_args(SIP022, &["-U"], &["-U"]);
    pair.associate().round_trip(DatagramTarget::echo().address(), b"hello");
    let stream = Target::echo();
    let (client, reply) = socks5_reply(pair.local_port, "127.0.0.1", stream.port());
    assert_eq!((reply, ending(&client).1), (7, Ending::Fin));
    let mut http = adit_system_tests::connect(pair.local_port);
    let to = stream.address();
    http.write_all(format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n\r\n").as_bytes()).unwrap();
    let (answer, end) = ending(&http);
    assert!(!answer.starts_with(b"HTTP/1.1 200") && end != Ending::Open);
    assert_eq!(stream.connections(), 0);
}

/// The first bytes that a client sends to its server.
fn salts(args: &[&str], method: &str, count: usize) -> Vec<Vec<u8>> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let server_port = listener.local_addr().unwrap().port().to_string();
    let port = reserve();
    let text = port.to_string();
    let base = ["-s", "127.0.0.1", "-p", &server_port, "-l", &text, "-m", method, "-k", "x"];
    let local = Process::start("ss-local", base.iter().chain(args));
    local.wait_for("worker");
    let one = |_| {
        let mut client = socks5(port, "192.0.2.1", 80);
        client.write_all(b"hello").unwrap();
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut salt = vec![0; 32];
        stream.read_exact(&mut salt).unwrap();
        salt
    };
    (0..count).map(one).collect()
}

/// How many characters there are before the first byte that is none.
fn printable(salt: &[u8]) -> usize {
    salt.iter().take_while(|byte| (b' '..=b'~').contains(byte)).count()
}

#[test]
fn salts_begin_with_printable_characters_where_that_is_asked_for() {
    for method in ["aes-256-gcm", "chacha20-ietf-poly1305"] {
        let with = salts(&["--printable-salt"], method, 60);
        assert!(with.iter().all(|salt| printable(salt) >= 6), "{with:02x?}");
        // 6 to 12, and random behind: one more is printable by chance, not always.
        assert!(with.iter().any(|salt| printable(salt) < 12), "{with:02x?}");
        assert!(with.iter().any(|salt| printable(salt) > 6), "{with:02x?}");
        assert!(with.iter().all(|salt| printable(salt) < 32), "{with:02x?}");
        let without = salts(&[], method, 20);
        assert!(without.iter().any(|salt| printable(salt) < 6), "{without:02x?}");
        let pair = Pair::with_args(method, &[], &["--printable-salt"]);
        for _ in 0..10 {
            served(&pair.open(Target::echo().port()));
        }
    }
    for method in ["aes-128-gcm", SIP022] {
        let args = ["-s", "127.0.0.1", "-p", "8388", "-l", "1080", "-m", method];
        let key = ["-k", password(method), "--printable-salt"];
        let exit = Process::run("ss-local", args.iter().chain(&key));
        assert_eq!(exit.code, Some(2), "{}", exit.text);
        assert!(exit.text.contains("aes-256-gcm"), "{}", exit.text);
    }
}

fn address(fd: &OwnedFd) -> Option<SocketAddr> {
    getsockname(fd).ok()?.try_into().ok()
}

fn peer(fd: &OwnedFd) -> Option<SocketAddr> {
    getpeername(fd).ok()??.try_into().ok()
}

/// The sockets of a program, by what they are for.
struct Sockets {
    listeners: Vec<OwnedFd>,
    accepted: Vec<OwnedFd>,
    outgoing: Vec<OwnedFd>,
    datagram_listeners: Vec<OwnedFd>,
    sessions: Vec<OwnedFd>,
}

impl Sockets {
    /// Of a program that listens on a port, or `None` where the kernel shows no sockets.
    fn of(process: &Process, port: u16) -> Option<Self> {
        let mut all = Self {
            listeners: vec![],
            accepted: vec![],
            outgoing: vec![],
            datagram_listeners: vec![],
            sessions: vec![],
        };
        for fd in process.sockets()? {
            let Some(local) = address(&fd) else { continue };
            let is_datagram = sockopt::socket_type(&fd).unwrap() == rustix::net::SocketType::DGRAM;
            let place = match (is_datagram, local.port() == port, peer(&fd)) {
                (true, true, _) => &mut all.datagram_listeners,
                (true, false, _) => &mut all.sessions,
                (false, true, None) => &mut all.listeners,
                (false, true, Some(_)) => &mut all.accepted,
                (false, false, Some(_)) => &mut all.outgoing,
                (false, false, None) => continue,
            };
            place.push(fd);
        }
        Some(all)
    }
}

/// Client, server and tunnel with the same options, and a connection and a session through each.
struct Rig {
    server: Process,
    local: Process,
    tunnel: Process,
    ports: [u16; 3],
    stream: Target,
    datagram: DatagramTarget,
}

impl Rig {
    fn start(args: &[&str]) -> Self {
        let (stream, datagram) = loop {
            let stream = Target::echo();
            if UdpSocket::bind(stream.address()).is_ok() {
                let address = stream.address();
                break (stream, DatagramTarget::echo_on(address));
            }
        };
        let ports = std::array::from_fn(|_| reserve());
        let [server, local, tunnel] = ports.map(|port: u16| port.to_string());
        let to = stream.address().to_string();
        let common = [&["-u", "--workers", "1"], args].concat();
        let start = |name, more: &[&str]| start(name, &[more, &common].concat());
        Self {
            server: start("ss-server", &["-s", "127.0.0.1", "-p", &server]),
            local: start("ss-local", &["-s", "127.0.0.1", "-p", &server, "-l", &local]),
            tunnel: start(
                "ss-tunnel",
                &["-s", "127.0.0.1", "-p", &server, "-l", &tunnel, "-L", &to],
            ),
            ports,
            stream,
            datagram,
        }
    }

    /// A connection and a session through the proxy, and through the tunnel.
    fn converse(&self) -> (Vec<TcpStream>, Association, UdpSocket) {
        let [_, local, tunnel] = self.ports;
        let streams = vec![
            socks5(local, "127.0.0.1", self.stream.port()),
            adit_system_tests::connect(tunnel),
        ];
        streams.iter().for_each(served);
        let application = Association::at(local);
        application.round_trip(self.datagram.address(), &vec![7; 20_000]);
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect(("127.0.0.1", tunnel)).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.send(b"hello").unwrap();
        let mut back = [0; 9];
        assert_eq!(socket.recv(&mut back).unwrap(), 5);
        (streams, application, socket)
    }

    fn programs(&self) -> [(&Process, u16); 3] {
        let [server, local, tunnel] = self.ports;
        [(&self.server, server), (&self.local, local), (&self.tunnel, tunnel)]
    }
}

#[test]
fn socket_options_reach_the_kernel() {
    let rig = Rig::start(&[
        "--no-delay",
        "--keep-alive",
        "1",
        "--tcp-incoming-sndbuf",
        "31000",
        "--tcp-incoming-rcvbuf",
        "32000",
        "--tcp-outgoing-sndbuf",
        "33000",
        "--tcp-outgoing-rcvbuf",
        "34000",
    ]);
    let _open = rig.converse();
    for (process, port) in rig.programs() {
        let Some(sockets) = Sockets::of(process, port) else {
            println!("this kernel shows no sockets of other processes");
            return;
        };
        let Sockets { listeners, accepted, outgoing, datagram_listeners, sessions } = &sockets;
        assert!(!accepted.is_empty() && !outgoing.is_empty(), "{port}");
        assert!(!sessions.is_empty() && !datagram_listeners.is_empty(), "{port}");
        // The kernel doubles sizes, for its own overhead.
        let sizes = |fd: &OwnedFd| {
            (
                sockopt::socket_send_buffer_size(fd).unwrap() / 2,
                sockopt::socket_recv_buffer_size(fd).unwrap() / 2,
            )
        };
        for fd in listeners.iter().chain(accepted) {
            assert_eq!(sizes(fd), (31_000, 32_000), "{port}");
            assert!(sockopt::tcp_nodelay(fd).unwrap());
            assert!(sockopt::socket_keepalive(fd).unwrap());
            assert_eq!(sockopt::tcp_keepidle(fd).unwrap(), Duration::from_secs(1));
        }
        for fd in outgoing {
            assert_eq!(sizes(fd), (33_000, 34_000), "{port}");
            assert!(sockopt::tcp_nodelay(fd).unwrap());
        }
        datagram_listeners.iter().for_each(|fd| assert_eq!(sizes(fd), (31_000, 32_000), "{port}"));
        sessions.iter().for_each(|fd| assert_eq!(sizes(fd), (33_000, 34_000), "{port}"));
        drop(sockets);
        eventually("outgoing connections are probed as well", || {
            let outgoing = Sockets::of(process, port)?.outgoing;
            outgoing.iter().all(|fd| sockopt::socket_keepalive(fd).unwrap()).then_some(())
        });
    }
}

#[test]
fn sockets_without_options_are_as_documented() {
    let rig = Rig::start(&[]);
    let _open = rig.converse();
    for (process, port) in rig.programs() {
        let Some(sockets) = Sockets::of(process, port) else { return };
        for fd in sockets.accepted.iter().chain(&sockets.outgoing) {
            assert!(sockopt::tcp_nodelay(fd).unwrap(), "on unless it is false");
        }
        for fd in &sockets.accepted {
            assert_eq!(sockopt::tcp_keepidle(fd).unwrap(), Duration::from_secs(15));
        }
    }
    // Off by the file alone.
    let scratch = Scratch::new();
    let file = scratch.write("n.json", r#"{"no_delay": false}"#);
    let rig = Rig::start(&["-c", file.to_str().unwrap()]);
    let _open = rig.converse();
    for (process, port) in rig.programs() {
        let Some(sockets) = Sockets::of(process, port) else { return };
        for fd in sockets.accepted.iter().chain(&sockets.outgoing) {
            assert!(!sockopt::tcp_nodelay(fd).unwrap(), "{port}");
        }
    }
}

#[test]
fn sizes_that_are_too_small_have_no_effect() {
    let rig = Rig::start(&["--tcp-incoming-sndbuf", "16382", "--tcp-outgoing-rcvbuf", "100"]);
    for (process, port) in rig.programs() {
        process.wait_for("tcp-incoming-sndbuf");
        process.wait_for("tcp-outgoing-rcvbuf");
        let Some(sockets) = Sockets::of(process, port) else { return };
        for fd in &sockets.listeners {
            assert!(sockopt::socket_send_buffer_size(fd).unwrap() > 40_000);
        }
    }
    rig.converse();
}

#[test]
fn multipath_and_fast_open_serve_and_say_what_the_kernel_has() {
    let rig = Rig::start(&["--mptcp", "--fast-open"]);
    for _ in 0..3 {
        rig.converse();
    }
    let _open = rig.converse();
    for (process, port) in rig.programs() {
        process.wait_for("TCP fast open: ");
        let line = process.wait_for("multipath TCP: ");
        if !line.ends_with(": on") {
            println!("{line}");
            continue;
        }
        let Some(sockets) = Sockets::of(process, port) else { return };
        let is_multipath = |fd: &OwnedFd| {
            sockopt::socket_protocol(fd).unwrap() == Some(rustix::net::ipproto::MPTCP)
        };
        assert!(sockets.listeners.iter().all(is_multipath), "{port}");
        assert!(sockets.outgoing.iter().all(is_multipath), "{port}");
    }
    // A server that is not there is told as ever, though the connect seems to succeed at once.
    let dead = reserve().to_string();
    let port = reserve();
    let text = port.to_string();
    let args = ["-s", "127.0.0.1", "-p", &dead, "-l", &text, "--fast-open"];
    let _local = start("ss-local", &args);
    for _ in 0..2 {
        let (client, reply) = socks5_reply(port, "192.0.2.1", 80);
        if reply == 0 {
            assert_ne!(ending(&client).1, Ending::Open);
        }
    }
    // And so is a target.
    let client = socks5(rig.ports[1], "127.0.0.1", reserve());
    (&client).write_all(b"hello").unwrap();
    assert_eq!(ending(&client).1, Ending::Reset);
}

/// With fast open a kernel that knows the other end connects when there is something to send. (By
/// default Linux accepts no fast open: for this to try it, `net.ipv4.tcp_fastopen` has to be 3.)
#[test]
fn a_target_that_speaks_first_is_heard_with_fast_open() {
    let banner = Target::serve(|mut stream| {
        stream.write_all(b"banner").unwrap();
        // Whatever comes, or the end.
        let _ = stream.read(&mut [0; 9]);
    });
    let [first, second, entrance, port] = std::array::from_fn(|_| reserve().to_string());
    let base = ["-s", "127.0.0.1", "-p"];
    let with = |name, args: &[&str]| start(name, &[&base[..], args].concat());
    // The target that the first server connects to is a tunnel, whose listener has fast open.
    let _second = with("ss-server", &[&second]);
    let to = banner.address().to_string();
    let _tunnel = with("ss-tunnel", &[&second, "-l", &entrance, "-L", &to, "--fast-open"]);
    let _first = with("ss-server", &[&first, "--fast-open"]);
    let _local = with("ss-local", &[&first, "-l", &port, "--fast-open"]);
    for speaks in [true, true, true, false, false] {
        let mut client = socks5(port.parse().unwrap(), "127.0.0.1", entrance.parse().unwrap());
        if speaks {
            client.write_all(b"hello").unwrap();
        }
        assert_eq!(read_exactly(&client, 6), b"banner");
    }
}

/// A target that speaks first begins when it has our acknowledgement, which the kernel may put off
/// for 200 ms when it takes us for the one to speak.
#[test]
fn a_target_that_speaks_first_is_acknowledged_at_once() {
    let pair = Pair::with_args(SIP022, &["--workers", "1"], &[]);
    let banner = Target::serve(|mut stream| {
        stream.write_all(b"banner").unwrap();
        let _ = stream.read(&mut [0; 9]);
    });
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    assert_eq!(read_exactly(&pair.open(banner.port()), 6), b"banner");
    let _client = pair.open(silent.local_addr().unwrap().port());
    let _held = silent.accept().unwrap();
    let Some(sockets) = Sockets::of(&pair.server, pair.server_port) else { return };
    let to_target = |fd: &&OwnedFd| peer(fd) == silent.local_addr().ok();
    let fd = sockets.outgoing.iter().find(to_target).unwrap();
    assert!(sockopt::tcp_quickack(fd).unwrap());
}

#[test]
fn source_addresses_are_used_for_both_transports() {
    let source = Ipv4Addr::new(127, 0, 0, 9);
    let rig = Rig::start(&["--outbound-address", "127.0.0.9", "--outbound-address", "::1"]);
    let _open = rig.converse();
    let arrivals = rig.datagram.arrivals();
    assert!(arrivals.iter().all(|a| a.source.ip() == source), "{arrivals:?}");
    for (process, port) in rig.programs() {
        let Some(sockets) = Sockets::of(process, port) else { return };
        for fd in sockets.outgoing.iter().chain(&sockets.sessions) {
            assert_eq!(address(fd).unwrap().ip(), source, "{port}");
        }
        assert!(!sockets.outgoing.is_empty() && !sockets.sessions.is_empty());
    }
    // By -b on a server; and one that this host does not have is an error for each that asks.
    let port = reserve().to_string();
    let server = start("ss-server", &["-s", "127.0.0.1", "-p", &port, "-b", "203.0.113.99", "-u"]);
    let local_port = reserve();
    let text = local_port.to_string();
    let _local = start("ss-local", &["-s", "127.0.0.1", "-p", &port, "-l", &text, "-u"]);
    let client = socks5(local_port, "127.0.0.1", rig.stream.port());
    assert_eq!(ending(&client).1, Ending::Reset);
    let application = Association::at(local_port);
    application.send_to(rig.datagram.address(), b"hello");
    server.wait_for("no socket for a UDP session");
    assert_eq!(application.poke(), None);
}

#[test]
fn interfaces_are_used_for_both_transports() {
    // Allowed to everybody since Linux 5.7.
    let rig = Rig::start(&["-i", "lo"]);
    rig.converse();
    let missing = Rig::start(&[]);
    let [server_port, ..] = missing.ports;
    let (text_server, port) = (server_port.to_string(), reserve());
    let text = port.to_string();
    let args = ["-s", "127.0.0.1", "-p", &text_server, "-l", &text, "-u", "-i", "nosuch0"];
    let local = start("ss-local", &args);
    let (_, reply) = socks5_reply(port, "127.0.0.1", rig.stream.port());
    assert_ne!(reply, 0);
    let application = Association::at(port);
    application.send_to(rig.datagram.address(), b"hello");
    local.wait_for("no socket for a UDP session");
    assert_eq!(application.poke(), None);
}

#[test]
fn marks_are_set_for_both_transports() {
    let rig = Rig::start(&["--fwmark", "0x2a"]);
    if !rustix::process::getuid().is_root() {
        println!("not root: marks are not allowed");
        return;
    }
    let _open = rig.converse();
    // The kernel tells marks to those who ask by netlink, as ss does where it is installed.
    let Ok(output) = Command::new("ss").args(["-Htunaep"]).output() else {
        println!("no ss here");
        return;
    };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    for (process, port) in rig.programs() {
        let own = format!("pid={},", process.id());
        let is_outgoing = |line: &&str| {
            let local = line.split_ascii_whitespace().nth(4).unwrap_or_default();
            line.contains(&own) && !local.ends_with(&format!(":{port}"))
        };
        let outgoing: Vec<_> = text.lines().filter(is_outgoing).collect();
        for transport in ["tcp", "udp"] {
            assert!(outgoing.iter().any(|l| l.starts_with(transport)), "{port}: {text}");
        }
        assert!(outgoing.iter().all(|line| line.contains("fwmark:0x2a")), "{outgoing:#?}");
    }
}

#[test]
fn server_and_client_settings_of_one_server_among_several() {
    // A server for UDP alone beside one for TCP alone: each gets what it may be used for.
    let ports: [u16; 3] = std::array::from_fn(|_| reserve());
    let entry = |port: u16, mode: &str, method: &str| {
        let key = password(method);
        format!(
            r#"{{"server": "127.0.0.1", "server_port": {port}, "method": "{method}", "password": "{key}", "mode": "{mode}"}}"#
        )
    };
    let scratch = Scratch::new();
    let [tcp, udp, port] = ports;
    let text = format!(
        r#"{{"mode": "tcp_and_udp", "local_port": {port}, "servers": [{}, {}]}}"#,
        entry(tcp, "tcp_only", SIP004),
        entry(udp, "udp_only", SIP022)
    );
    let file = scratch.write("b.json", &text);
    let file = file.to_str().unwrap();
    let server = Process::start("ss-server", ["-c", file]);
    server.wait_for("worker");
    assert_eq!((open(tcp), open(udp)), ((true, false), (false, true)));
    let local = Process::start("ss-local", ["-c", file]);
    local.wait_for("worker");
    let (stream, datagram) = (Target::echo(), DatagramTarget::echo());
    for _ in 0..10 {
        served(&socks5(port, "127.0.0.1", stream.port()));
        Association::at(port).round_trip(datagram.address(), b"hello");
    }
}

/// As shadowsocks-libev's files have it for both families.
#[test]
fn both_wildcards_share_a_port() {
    let (stream, datagram) = (Target::echo(), DatagramTarget::echo());
    for hosts in [r#""[::0]", "0.0.0.0""#, r#""0.0.0.0", "::""#] {
        let port = reserve();
        let key = password(SIP022);
        let scratch = Scratch::new();
        let write = |hosts: &str| {
            let text = format!(
                r#"{{"server": [{hosts}], "server_port": {port}, "method": "{SIP022}",
                    "password": "{key}", "mode": "tcp_and_udp"}}"#
            );
            scratch.write("both.json", &text)
        };
        let file = write(hosts);
        let server = Process::start("ss-server", ["-c", file.to_str().unwrap()]);
        server.wait_for("worker");
        let is_served = || {
            for by in ["127.0.0.1", "::1"] {
                let (local_port, server_port) = (reserve(), port.to_string());
                let own = local_port.to_string();
                let _local = start("ss-local", &["-s", by, "-p", &server_port, "-l", &own, "-u"]);
                served(&socks5(local_port, "127.0.0.1", stream.port()));
                Association::at(local_port).round_trip(datagram.address(), b"hello");
            }
        };
        is_served();
        // Alone, `::` takes both, and leaves IPv4 to the other one when that is back.
        let lists = [r#""::""#, r#""::", "0.0.0.0""#, r#""::""#];
        for (number, hosts) in (1..).zip(lists) {
            write(hosts);
            server.signal(Signal::HUP);
            server.wait_for_more("configuration reloaded", number);
            is_served();
        }
    }
}
