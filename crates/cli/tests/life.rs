//! The life of a process: start, starvation, reload, end; and what it lets others see.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::io::Write;
use std::net::TcpListener;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use adit_system_tests::{
    Ending, PATIENCE, Pair, Process, Scratch, Target, config, connect, ending, eventually, program,
    read_exactly, reserve,
};
use rustix::process::{Pid, Signal, kill_process};

const METHOD: &str = "aes-256-gcm";

/// A server with options of its own.
fn server(args: &[&str]) -> (Process, u16) {
    let port = reserve();
    let text = port.to_string();
    let base = ["-s", "127.0.0.1", "-p", &text, "-k", "x", "-m", METHOD];
    let server = Process::start("ss-server", base.iter().chain(args));
    server.wait_for(&format!("listening on 127.0.0.1:{port}"));
    (server, port)
}

#[test]
fn stops_in_order_with_connections_open() {
    for signal in [Signal::TERM, Signal::INT] {
        let pair = Pair::start(METHOD);
        let echo = Target::echo();
        let mut client = pair.open(echo.port());
        client.write_all(b"hello").unwrap();
        assert_eq!(read_exactly(&client, 5), b"hello");
        let Pair { server, local, .. } = pair;
        local.signal(signal);
        local.wait_for("stopping");
        // What is open goes on while the drain lasts.
        client.write_all(b"still").unwrap();
        assert_eq!(read_exactly(&client, 5), b"still");
        server.signal(signal);
        for process in [local, server] {
            let exit = process.wait();
            assert_eq!(exit.code, Some(0), "{}", exit.text);
            assert!(exit.text.contains("stopped"), "{}", exit.text);
        }
    }
}

#[test]
fn stops_as_soon_as_the_last_connection_ends() {
    let pair = Pair::start(METHOD);
    let echo = Target::echo();
    let client = pair.open(echo.port());
    pair.local.signal(Signal::TERM);
    pair.local.wait_for("stopping");
    drop(client);
    let start = Instant::now();
    assert_eq!(pair.local.wait().code, Some(0));
    assert!(start.elapsed() < Duration::from_secs(4), "waits for nobody");
}

#[test]
fn a_second_signal_ends_at_once() {
    let pair = Pair::start(METHOD);
    let echo = Target::echo();
    let _client = pair.open(echo.port());
    pair.local.signal(Signal::TERM);
    pair.local.wait_for("stopping");
    let start = Instant::now();
    pair.local.signal(Signal::TERM);
    assert_eq!(pair.local.wait().code, Some(0));
    assert!(start.elapsed() < Duration::from_secs(4), "the drain of 5 s is cut short");
}

#[test]
fn a_reload_changes_ports_and_passwords_and_keeps_connections() {
    let scratch = Scratch::new();
    let (old, kept, new, socks) = (reserve(), reserve(), reserve(), reserve());
    let ports = |ports: &[(u16, &str)]| {
        let servers: Vec<_> = ports
            .iter()
            .map(|(port, key)| {
                format!(
                    r#"{{"server": "127.0.0.1", "server_port": {port}, "method": "{METHOD}", "password": "{key}"}}"#
                )
            })
            .collect();
        format!(r#"{{"servers": [{}]}}"#, servers.join(", "))
    };
    let file = scratch.write("s.json", &ports(&[(old, "correct horse"), (kept, "correct horse")]));
    let server = Process::start("ss-server", ["-c".as_ref(), file.as_os_str()]);
    server.wait_for(&format!("listening on 127.0.0.1:{kept}"));
    let client = |port: u16, key: &str, socks: u16| {
        let (port, socks) = (port.to_string(), socks.to_string());
        let local = Process::start(
            "ss-local",
            ["-s", "127.0.0.1", "-p", &port, "-l", &socks, "-k", key, "-m", METHOD],
        );
        local.wait_for("listening on");
        local
    };
    let echo = Target::echo();
    let via = |socks: u16| {
        let mut stream = adit_system_tests::socks5(socks, "127.0.0.1", echo.port());
        stream.write_all(b"ping").unwrap();
        stream
    };
    let _local = client(old, "correct horse", socks);
    let mut open = via(socks);
    assert_eq!(read_exactly(&open, 4), b"ping");

    scratch.write("s.json", &ports(&[(kept, "battery staple"), (new, "correct horse")]));
    server.signal(Signal::HUP);
    server.wait_for("configuration reloaded");
    open.write_all(b"kept").unwrap();
    assert_eq!(read_exactly(&open, 4), b"kept", "an open connection goes on");
    let closed = eventually("the old port closes", || {
        std::net::TcpStream::connect(("127.0.0.1", old)).err()
    });
    assert_eq!(closed.kind(), std::io::ErrorKind::ConnectionRefused);
    for (port, key) in [(kept, "battery staple"), (new, "correct horse")] {
        let socks = reserve();
        let _local = client(port, key, socks);
        assert_eq!(read_exactly(&via(socks), 4), b"ping", "{key}");
    }
    let socks = reserve();
    let _local = client(kept, "correct horse", socks);
    let stream = via(socks);
    server.wait_for("authentication failed");
    stream.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    assert_eq!(ending(&stream), (vec![], Ending::Open), "the old password is void");

    // A broken file changes nothing and is told with its place.
    scratch.write("s.json", "{\n  \"server\": \"127.0.0.1\",\n  \"server_port\": eight\n}");
    server.signal(Signal::HUP);
    server.wait_for("old configuration stays in force");
    let place = format!("{}:3:", file.display());
    let text = server.text();
    assert!(text.contains(&place), "{place} in {text}");
    open.write_all(b"more").unwrap();
    assert_eq!(read_exactly(&open, 4), b"more");
    let socks = reserve();
    let _local = client(new, "correct horse", socks);
    assert_eq!(read_exactly(&via(socks), 4), b"ping");

    // A port that somebody else has changes nothing either.
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken_port = taken.local_addr().unwrap().port();
    scratch.write("s.json", &ports(&[(taken_port, "x")]));
    server.signal(Signal::HUP);
    server.wait_for_more("old configuration stays in force", 2);
    assert_eq!(read_exactly(&via(socks), 4), b"ping");
}

/// From one address to all of them: the port is the program's own, so it can't be in the way.
#[test]
fn a_reload_can_widen_an_address() {
    let scratch = Scratch::new();
    let port = reserve();
    let text = config(METHOD, port, 0)
        .replace(", \"local_address\": \"127.0.0.1\", \"local_port\": 0", "");
    let text = text.replace(",\n\"password\"", ", \"password\"");
    let file = scratch.write("s.json", &text);
    let server = Process::start("ss-server", ["-c".as_ref(), file.as_os_str()]);
    server.wait_for("listening on 127.0.0.1");
    scratch.write("s.json", &text.replace("\"127.0.0.1\"", "\"0.0.0.0\""));
    server.signal(Signal::HUP);
    server.wait_for("reload");
    assert!(server.text().contains("configuration reloaded"), "{}", server.text());
}

#[test]
fn a_taken_port_is_an_error_for_one_worker_and_for_several() {
    for workers in ["1", "3"] {
        let (_first, port) = server(&["--workers", workers]);
        let port = port.to_string();
        let exit = Process::run(
            "ss-server",
            ["-s", "127.0.0.1", "-p", &port, "-k", "x", "-m", METHOD, "--workers", workers],
        );
        assert_eq!(exit.code, Some(1), "{}", exit.text);
        let place = format!("cannot listen on 127.0.0.1:{port}");
        assert!(exit.text.contains(&place), "{}", exit.text);
    }
}

#[test]
fn a_daemon_writes_its_id_and_removes_it_at_the_end() {
    let scratch = Scratch::new();
    let (file, port) = (scratch.file("pid"), reserve());
    let text = port.to_string();
    let path = file.to_str().unwrap();
    let exit = Process::run(
        "ss-server",
        ["-s", "127.0.0.1", "-p", &text, "-k", "x", "-m", METHOD, "-f", path],
    );
    assert_eq!(exit.code, Some(0), "{}", exit.text);
    // The parent's exit says that the port is open and the file written.
    let id: i32 = std::fs::read_to_string(&file).unwrap().trim().parse().unwrap();
    drop(connect(port));
    let command = std::fs::read_to_string(format!("/proc/{id}/comm")).unwrap();
    assert_eq!(command.trim(), "ss-server");
    kill_process(Pid::from_raw(id).unwrap(), Signal::TERM).unwrap();
    eventually("the file goes", || (!file.exists()).then_some(()));
    eventually("the port closes", || std::net::TcpStream::connect(("127.0.0.1", port)).err());
}

#[test]
fn a_daemon_that_cannot_start_says_so() {
    let taken = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let text = taken.local_addr().unwrap().port().to_string();
    let scratch = Scratch::new();
    let pid = scratch.file("pid");
    let base = ["-s", "127.0.0.1", "-k", "x", "-m", METHOD];
    let with = |more: &[&str]| Process::run("ss-server", base.iter().chain(more));
    let exit = with(&["-p", &text, "-f", pid.to_str().unwrap()]);
    assert_eq!(exit.code, Some(1), "{}", exit.text);
    assert!(exit.text.contains("cannot listen"), "{}", exit.text);
    assert!(!pid.exists());

    let free = reserve().to_string();
    for file in ["/dev/full", "/nonexistent/pid"] {
        let exit = with(&["-p", &free, "-f", file]);
        assert_eq!(exit.code, Some(1), "{}", exit.text);
        assert!(exit.text.contains("pid file"), "{}", exit.text);
    }
}

/// Whoever started after us and wrote its own id keeps it.
#[test]
fn a_pid_file_of_somebody_else_stays() {
    let scratch = Scratch::new();
    let (file, port) = (scratch.file("pid"), reserve().to_string());
    let path = file.to_str().unwrap();
    let args = ["-s", "127.0.0.1", "-p", &port, "-k", "x", "-m", METHOD, "-f", path];
    assert_eq!(Process::run("ss-server", args).code, Some(0));
    let id: i32 = std::fs::read_to_string(&file).unwrap().trim().parse().unwrap();
    std::fs::write(&file, "1\n").unwrap();
    kill_process(Pid::from_raw(id).unwrap(), Signal::TERM).unwrap();
    eventually("the daemon ends", || {
        let gone = std::fs::read_to_string(format!("/proc/{id}/stat"));
        gone.map_or(true, |s| s.contains(") Z ")).then_some(())
    });
    assert!(file.exists());
}

#[test]
fn wrong_settings_exit_2_with_advice() {
    let port = reserve().to_string();
    for (args, words) in [
        (&["-m", "aes-256-gmc", "-k", "x"][..], "aes-256-gcm"),
        (&["-m", "aes-256-cfb", "-k", "x"], "\"aes-256-gcm\""),
        (&["-m", "chacha20-ietf", "-k", "x"], "\"chacha20-ietf-poly1305\""),
        (&["-m", "rc4-md5", "-k", "x"], "\"aes-256-gcm\""),
        (&["-m", METHOD], "password"),
        (&["-m", "2022-blake3-aes-256-gcm", "-k", "c2hvcnQ="], "32"),
        (&["-m", METHOD, "-k", "x", "--no-such-option"], "--help"),
        (&["-c", "/nonexistent/file.json"], "/nonexistent/file.json"),
    ] {
        let base = ["-s", "127.0.0.1", "-p", &port];
        let exit = Process::run("ss-server", base.iter().chain(args));
        assert_eq!(exit.code, Some(2), "{args:?}: {}", exit.text);
        assert!(exit.text.contains(words), "{args:?}: {}", exit.text);
        assert!(!exit.text.contains("c2hvcnQ="), "{}", exit.text);
    }
}

#[test]
fn a_password_shows_nowhere() {
    const SECRET: &str = "hunter2-a-secret";
    for form in [&["-k", SECRET][..], &["-khunter2-a-secret"], &["--password", SECRET]] {
        let (server, port) = server(&[form, &["-v", "-v"]].concat());
        let mut stream = connect(port);
        stream.write_all(&[7; 300]).unwrap();
        server.wait_for("authentication failed");
        assert!(!server.proc("cmdline").contains("hunter2"), "{form:?}");
        server.signal(Signal::HUP);
        server.wait_for("configuration reloaded");
        server.signal(Signal::USR1);
        server.wait_for("counters:");
        server.signal(Signal::TERM);
        let exit = server.wait();
        assert!(!exit.text.contains("hunter2"), "{}", exit.text);
    }
    let exit = Process::run("ss-server", ["-m", SECRET, "-k", SECRET, SECRET, "-p", SECRET]);
    assert_eq!(exit.code, Some(2));
    assert!(!exit.text.contains("hunter2"), "{}", exit.text);
}

#[test]
fn systemd_hears_of_start_reload_and_stop() {
    let scratch = Scratch::new();
    let path = scratch.file("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let hear = || {
        let mut buf = [0; 1000];
        let len = socket.recv(&mut buf).expect("a word to systemd");
        String::from_utf8_lossy(&buf[..len]).into_owned()
    };
    let port = reserve().to_string();
    let mut command = Command::new(program("ss-server"));
    command
        .args(["-s", "127.0.0.1", "-p", &port, "-k", "x", "-m", METHOD])
        .env("NOTIFY_SOCKET", &path);
    let server = Process::spawn("ss-server", command);
    assert!(hear().contains("READY=1"));
    server.signal(Signal::HUP);
    assert!(hear().contains("RELOADING=1"));
    assert!(hear().contains("READY=1"));
    server.signal(Signal::TERM);
    assert!(hear().contains("STOPPING=1"));
    assert_eq!(server.wait().code, Some(0));
}

#[test]
fn a_start_tells_what_runs() {
    let (server, port) = server(&["--workers", "2"]);
    let line = server.wait_for("2 workers");
    assert!(line.contains("ss-server 0.") && line.contains("connections"), "{line}");
    let line = server.wait_for("listening on");
    assert!(line.contains(&format!("127.0.0.1:{port}: {METHOD}")), "{line}");
}

#[test]
fn another_user_is_become_or_refused() {
    let port = reserve().to_string();
    let args = ["-s", "127.0.0.1", "-p", &port, "-k", "x", "-m", METHOD, "-a"];
    let exit = Process::run("ss-server", args.iter().chain(&["no-such-user-here"]));
    assert_eq!(exit.code, Some(1), "{}", exit.text);
    assert!(exit.text.contains("cannot become user no-such-user-here"), "{}", exit.text);

    let process = Process::start("ss-server", args.iter().chain(&["nobody"]));
    if !rustix::process::getuid().is_root() {
        let exit = process.wait();
        assert_eq!(exit.code, Some(1), "{}", exit.text);
        assert!(exit.text.contains("cannot become user nobody"), "{}", exit.text);
        return;
    }
    process.wait_for("worker");
    let status = process.proc("status");
    let field = |name: &str| {
        let line = status.lines().find_map(|l| l.strip_prefix(name)).unwrap();
        line.split_ascii_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    let nobody = |file: &str, at: usize| {
        let text = std::fs::read_to_string(file).unwrap();
        let line = text.lines().find(|l| l.starts_with("nobody:")).unwrap().to_owned();
        line.split(':').nth(at).unwrap().to_owned()
    };
    assert_eq!(field("Uid:"), vec![nobody("/etc/passwd", 2); 4]);
    let group = nobody("/etc/passwd", 3);
    assert_eq!(field("Gid:"), vec![group.clone(); 4]);
    assert!(field("Groups:").iter().all(|g| *g == group), "root's groups are given up");
    assert_eq!(field("CapEff:"), ["0000000000000000"]);
}

/// With hardly a descriptor the programs wait, without spinning, and serve again later.
#[test]
fn a_program_out_of_descriptors_waits_and_recovers() {
    for starved in ["ss-server", "ss-local"] {
        let limit: &[&str] = &["-n", "64", "--workers", "1"];
        let (server_args, local_args) =
            if starved == "ss-server" { (limit, &[][..]) } else { (&[][..], limit) };
        let mut pair = Pair::with_args(METHOD, server_args, local_args);
        let echo = Target::echo();
        let port = if starved == "ss-server" { pair.server_port } else { pair.local_port };
        let streams: Vec<_> = (0..100).map(|_| connect(port)).collect();
        let process = if starved == "ss-server" { &mut pair.server } else { &mut pair.local };
        process.wait_for("new connections wait");
        let before = process.cpu_ticks();
        std::thread::sleep(Duration::from_secs(1));
        let used = process.cpu_ticks() - before;
        assert!(process.is_alive());
        assert!(used < 30, "{starved} used {used} ticks of processor time to wait for a second");
        drop(streams);
        let mut client = pair.open(echo.port());
        client.write_all(b"back").unwrap();
        assert_eq!(read_exactly(&client, 4), b"back", "{starved}");
    }
}

/// Descriptors, which run out long before memory does, come back after every kind of end.
#[test]
fn no_descriptor_is_left_behind() {
    let pair = Pair::start(METHOD);
    let echo = Target::echo();
    let resetting = Target::serve(adit_system_tests::reset);
    let closing = Target::serve(drop);
    drop(pair.open(echo.port()));
    let base = eventually("both are idle", || {
        let now = (pair.local.descriptors(), pair.server.descriptors());
        std::thread::sleep(Duration::from_millis(50));
        (now == (pair.local.descriptors(), pair.server.descriptors())).then_some(now)
    });
    for round in 0..50 {
        let mut client = pair.open(echo.port());
        client.write_all(b"x").unwrap();
        if round % 2 == 0 {
            adit_system_tests::reset(client);
        }
        for target in [&resetting, &closing] {
            ending(&pair.open(target.port()));
        }
        drop(connect(pair.local_port));
        drop(connect(pair.server_port));
        let mut bad = connect(pair.server_port);
        bad.write_all(&[9; 300]).unwrap();
    }
    eventually("every descriptor is back", || {
        let now = (pair.local.descriptors(), pair.server.descriptors());
        (now.0 <= base.0 && now.1 <= base.1).then_some(())
    });
    for process in [&pair.local, &pair.server] {
        process.signal(Signal::USR1);
        let line = process.wait_for("counters:");
        assert!(line.contains(" open=0 ") && line.contains(" buffers_exhausted=0"), "{line}");
    }
}

#[test]
fn a_tunnel_serves_one_target() {
    let pair = Pair::start(METHOD);
    let (echo, port) = (Target::echo(), reserve());
    let (target, server) = (format!("127.0.0.1:{}", echo.port()), pair.server_port.to_string());
    let local = port.to_string();
    let tunnel = Process::start(
        "ss-tunnel",
        [
            "-s",
            "127.0.0.1",
            "-p",
            &server,
            "-l",
            &local,
            "-L",
            &target,
            "-m",
            METHOD,
            "-k",
            adit_system_tests::password(METHOD),
        ],
    );
    tunnel.wait_for("listening on");
    let mut client = connect(port);
    client.write_all(b"hello").unwrap();
    assert_eq!(read_exactly(&client, 5), b"hello");
    drop(pair);
    assert_eq!(ending(&connect(port)), (vec![], Ending::Reset), "without a server");
}

#[test]
fn a_directory_is_no_configuration() {
    let exit = Process::run("ss-server", ["-c".as_ref(), Path::new("/tmp").as_os_str()]);
    assert_eq!(exit.code, Some(2), "{}", exit.text);
    assert!(exit.text.contains("/tmp"), "{}", exit.text);
}
