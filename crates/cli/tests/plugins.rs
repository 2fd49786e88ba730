//! Plugins (SIP003): what they are told, what goes through them, and that none outlives us.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::fs::Permissions;
use std::io::Write;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;

use adit_system_tests::{
    Association, DatagramTarget, Process, Scratch, Target, TestPlugin, is_running, password,
    read_exactly, reserve, serve_as_plugin, socks5, socks5_reply, wait_gone,
};
use rustix::process::{Pid, Signal, kill_process};

const METHOD: &str = "2022-blake3-aes-128-gcm";

/// Not a test of its own: plugins are this program, started again for this function.
#[test]
fn plugin_program() {
    serve_as_plugin();
}

fn plugin(scratch: &Scratch) -> TestPlugin {
    TestPlugin::new(scratch, "plugin_program", "")
}

/// Keys of a file for both ends, without braces.
fn keys(port: u16, more: &str) -> String {
    let password = password(METHOD);
    format!(
        r#""server": "127.0.0.1", "server_port": {port}, "method": "{METHOD}",
           "password": "{password}"{more}"#
    )
}

/// Keys about a plugin.
fn with(plugin: &TestPlugin, options: &str) -> String {
    let options = plugin.options(options);
    format!(r#", "plugin": "{}", "plugin_opts": "{options}""#, plugin.program())
}

fn start(scratch: &Scratch, name: &str, file: &str, keys: &str) -> Process {
    let file = scratch.write(file, &format!("{{{keys}}}"));
    Process::start(name, ["-c".as_ref(), file.as_os_str()])
}

fn server(scratch: &Scratch, port: u16, more: &str) -> Process {
    start(scratch, "ss-server", "server.json", &keys(port, more))
}

fn local(scratch: &Scratch, port: u16, socks: u16, more: &str) -> Process {
    let more = format!(r#", "local_port": {socks}{more}"#);
    start(scratch, "ss-local", "local.json", &keys(port, &more))
}

/// Both ends behind plugins, with options for each.
struct Plugged {
    server: Process,
    local: Process,
    server_plugin: TestPlugin,
    local_plugin: TestPlugin,
    server_port: u16,
    socks: u16,
    /// Of the server.
    scratch: Scratch,
    _local_scratch: Scratch,
}

impl Plugged {
    fn start(options: &str, more: &str) -> Self {
        let (scratch, local_scratch) = (Scratch::new(), Scratch::new());
        let (server_port, socks) = (reserve(), reserve());
        let (server_plugin, local_plugin) = (plugin(&scratch), plugin(&local_scratch));
        let keys = with(&server_plugin, &format!("server;{options}")) + more;
        let server = server(&scratch, server_port, &keys);
        let keys = with(&local_plugin, options) + more;
        let local = local(&local_scratch, server_port, socks, &keys);
        server.wait_for("ss-server 0");
        local.wait_for("ss-local 0");
        Self {
            server,
            local,
            server_plugin,
            local_plugin,
            server_port,
            socks,
            scratch,
            _local_scratch: local_scratch,
        }
    }

    fn echoes(&self) {
        let echo = Target::echo();
        echoes_by(self.socks, &echo);
    }
}

fn echoes_by(socks: u16, echo: &Target) {
    let mut stream = socks5(socks, "127.0.0.1", echo.port());
    stream.write_all(b"through plugins").unwrap();
    assert_eq!(read_exactly(&stream, 15), b"through plugins");
}

fn kill(process: u32) {
    kill_process(Pid::from_raw(i32::try_from(process).unwrap()).unwrap(), Signal::KILL).unwrap();
}

#[test]
fn tcp_goes_through_and_udp_beside() {
    let pair = Plugged::start("key=hunter2", r#", "mode": "tcp_and_udp""#);
    let port = pair.server_port;
    pair.local.wait_for("UDP directly to the server");
    pair.server.wait_for("UDP directly");
    pair.server.wait_for(&format!("listening on 127.0.0.1:{port} (UDP)"));
    pair.echoes();
    let target = DatagramTarget::echo();
    Association::at(pair.socks).round_trip(target.address(), b"beside");

    let (server, local) = (pair.server_plugin.start(0), pair.local_plugin.start(0));
    for started in [&server, &local] {
        assert_eq!(started.remote, format!("127.0.0.1:{port}"));
        assert!(started.local.starts_with("127.0.0.1:"));
        assert_eq!((started.descriptors, started.args, started.leaked), (3, 0, false));
        let group = std::fs::read_to_string(format!("/proc/{}/stat", started.process)).unwrap();
        let group = group.rsplit_once(')').unwrap().1.split(' ').nth(3).unwrap().to_owned();
        assert_eq!(group, started.process.to_string(), "it leads a group");
    }
    for (process, started) in [(&pair.server, &server), (&pair.local, &local)] {
        let text = process.text();
        assert!(text.contains(&started.local), "the start-up line names the address: {text}");
        assert!(!text.contains("hunter2") && !process.proc("cmdline").contains("hunter2"));
    }
    // Without the plugins' guise the server understands nothing: TCP does go through them.
    let scratch = Scratch::new();
    let socks = reserve();
    let plain = self::local(&scratch, port, socks, "");
    plain.wait_for("listening on");
    let echo = Target::echo();
    let mut stream = socks5(socks, "127.0.0.1", echo.port());
    // The write may fail, since the server may have gone already.
    let _ = stream.write_all(b"hello");
    adit_system_tests::ending(&stream);
    assert_eq!(echo.connections(), 0);
}

#[test]
fn udp_goes_through_on_request() {
    for (mode, options) in [("tcp_and_udp", "udp"), ("udp_only", "udp-only")] {
        let more = format!(r#", "mode": "tcp_and_udp", "plugin_mode": "{mode}""#);
        let pair = Plugged::start(options, &more);
        pair.local.wait_for("UDP through it");
        let target = DatagramTarget::echo();
        let application = Association::at(pair.socks);
        application.round_trip(target.address(), b"through plugins");
        application.round_trip(target.address(), &[7; 9000]);
        pair.echoes();
        assert_eq!(pair.server.counter("datagrams_up"), 2);
        if mode == "udp_only" {
            pair.local.wait_for("TCP directly to the server");
        }
    }
}

#[test]
fn a_tunnel_and_the_other_dialect_have_plugins_too() {
    let scratch = Scratch::new();
    let plugin = plugin(&scratch);
    let (port, listen) = (reserve().to_string(), reserve());
    let echo = Target::echo();
    let options = plugin.options("server");
    let address = format!("127.0.0.1:{port}");
    let common = ["-k", password(METHOD), "-m", METHOD, "--plugin", plugin.program()];
    let own = ["-s", &address, "--plugin-opts", &options, "--plugin-mode", "tcp_only"];
    let args: Vec<_> =
        ["ssserver"].iter().chain(&common).chain(&own).map(ToString::to_string).collect();
    let server = Process::start("adit", args);
    server.wait_for("ssserver 0");
    let (text, target) = (listen.to_string(), format!("127.0.0.1:{}", echo.port()));
    let options = plugin.options("key=hunter2");
    let own =
        ["-s", "127.0.0.1", "-p", &port, "-l", &text, "-L", &target, "--plugin-opts", &options];
    let tunnel = Process::start("ss-tunnel", common.iter().chain(&own));
    tunnel.wait_for("ss-tunnel 0");
    let mut stream = adit_system_tests::connect(listen);
    stream.write_all(b"ping").unwrap();
    assert_eq!(read_exactly(&stream, 4), b"ping");
    assert!(!tunnel.proc("cmdline").contains("hunter2"), "the options are hidden from ps");
}

#[test]
fn nobody_is_served_before_the_plugin_listens() {
    let scratch = Scratch::new();
    let plugin = plugin(&scratch);
    let go = scratch.file("go");
    let keys = with(&plugin, &format!("await={}", go.display()));
    let socks = reserve();
    let local = local(&scratch, reserve(), socks, &keys);
    plugin.start(0);
    // The port is not there, so that nobody's connection is lost.
    drop(TcpListener::bind(("127.0.0.1", socks)).unwrap());
    assert!(!local.text().contains("listening"), "{}", local.text());
    std::fs::write(go, "").unwrap();
    local.wait_for(&format!("listening on 127.0.0.1:{socks}"));
}

#[test]
fn a_plugin_that_never_listens_is_given_up() {
    let scratch = Scratch::new();
    let plugin = plugin(&scratch);
    let local = local(&scratch, reserve(), reserve(), &with(&plugin, "never"));
    let started = plugin.start(0);
    let exit = local.wait();
    assert_eq!(exit.code, Some(1), "{}", exit.text);
    let words = format!("does not listen at {} after 10 s", started.local);
    assert!(exit.text.contains(&words), "{}", exit.text);
    wait_gone(started.process);
}

#[test]
fn a_stop_while_plugins_start_is_heard() {
    let scratch = Scratch::new();
    let plugin = plugin(&scratch);
    let local = local(&scratch, reserve(), reserve(), &with(&plugin, "never"));
    let started = plugin.start(0);
    local.signal(Signal::TERM);
    let exit = local.wait();
    assert_eq!(exit.code, Some(0), "{}", exit.text);
    assert!(exit.text.contains("stopped while plugins were starting"), "{}", exit.text);
    wait_gone(started.process);
}

#[test]
fn a_plugin_that_cannot_start_is_told_with_its_words() {
    let scratch = Scratch::new();
    let plugin = plugin(&scratch);
    for client in [true, false] {
        let keys = with(&plugin, "exit=3");
        let process = if client {
            local(&scratch, reserve(), reserve(), &keys)
        } else {
            server(&scratch, reserve(), &keys)
        };
        let exit = process.wait();
        assert_eq!(exit.code, Some(1), "{}", exit.text);
        for words in ["has ended before it was ready", "exit status: 3", "cannot do that"] {
            assert!(exit.text.contains(words), "{words}: {}", exit.text);
        }
    }
    assert_eq!(plugin.starts().len(), 2, "its port was free, so another would not help");
    let missing = r#", "plugin": "no-such-plugin""#;
    let exit = local(&scratch, reserve(), reserve(), missing).wait();
    assert_eq!(exit.code, Some(1), "{}", exit.text);
    assert!(exit.text.contains("there is no such program in PATH"), "{}", exit.text);
    let interpreter = scratch.write("interpreter", "#!/no/such/interpreter\n");
    std::fs::set_permissions(&interpreter, Permissions::from_mode(0o755)).unwrap();
    for (path, words) in [
        (scratch.write("data", "#!/bin/sh\n"), "chmod +x"),
        (interpreter, "the interpreter that it names"),
        (scratch.file("nowhere"), "a program that is there"),
    ] {
        let keys = format!(r#", "plugin": "{}""#, path.display());
        let exit = local(&scratch, reserve(), reserve(), &keys).wait();
        assert_eq!(exit.code, Some(1), "{}", exit.text);
        assert!(exit.text.contains(words), "{words}: {}", exit.text);
    }
}

#[test]
fn a_plugin_that_goes_to_the_background_is_told_to_stay() {
    let scratch = Scratch::new();
    let plugin = plugin(&scratch);
    let file = scratch.file("background");
    let keys = with(&plugin, &format!("background={}", file.display()));
    let exit = local(&scratch, reserve(), reserve(), &keys).wait();
    kill(std::fs::read_to_string(file).unwrap().parse().unwrap());
    assert_eq!(exit.code, Some(1), "{}", exit.text);
    assert!(exit.text.contains("a plugin stays in the foreground"), "{}", exit.text);
    assert_eq!(plugin.starts().len(), 1, "no further port is tried, which leaves one more behind");
}

#[test]
fn a_plugin_that_says_too_much_does_not_fill_the_log() {
    let scratch = Scratch::new();
    let plugin = plugin(&scratch);
    let local = local(&scratch, reserve(), reserve(), &with(&plugin, "flood"));
    local.wait_for("ss-local 0");
    // One a second more, on a slow machine.
    let lines = local.text().matches("test-plugin: line ").count();
    assert!((100..1000).contains(&lines), "{lines} of 5000 lines");
}

#[test]
fn a_plugin_that_dies_ends_the_program() {
    for client in [true, false] {
        let pair = Plugged::start("child", "");
        pair.echoes();
        let Plugged { server, local, server_plugin, local_plugin, .. } = pair;
        let (process, plugin, _other) =
            if client { (local, local_plugin, server) } else { (server, server_plugin, local) };
        let started = plugin.start(0);
        kill(started.process);
        let exit = process.wait();
        assert_eq!(exit.code, Some(1), "{}", exit.text);
        assert!(exit.text.contains("has ended: signal: 9 (SIGKILL)"), "{}", exit.text);
        assert!(exit.text.contains("ERROR stopped, because a plugin"), "{}", exit.text);
        wait_gone(started.child.unwrap());
    }
}

#[test]
fn a_stop_ends_plugins_with_what_they_started() {
    let pair = Plugged::start("child", "");
    let Plugged { server, local, server_plugin, local_plugin, .. } = pair;
    for (process, plugin) in [(local, local_plugin), (server, server_plugin)] {
        let started = plugin.start(0);
        assert!(is_running(started.process) && is_running(started.child.unwrap()));
        process.signal(Signal::TERM);
        let exit = process.wait();
        assert_eq!(exit.code, Some(0), "{}", exit.text);
        assert!(!exit.text.contains("killed"), "it ends by itself: {}", exit.text);
        // They are gone when we are, not some time later.
        assert!(!is_running(started.process));
        wait_gone(started.child.unwrap());
    }
}

#[test]
fn a_plugin_that_ignores_sigterm_is_killed() {
    let scratch = Scratch::new();
    let plugin = TestPlugin::new(&scratch, "plugin_program", "trap '' TERM");
    let local = local(&scratch, reserve(), reserve(), &with(&plugin, "child"));
    local.wait_for("ss-local 0");
    let started = plugin.start(0);
    local.signal(Signal::TERM);
    let exit = local.wait();
    assert_eq!(exit.code, Some(0), "{}", exit.text);
    assert!(exit.text.contains("has not ended within 1.5s; killed"), "{}", exit.text);
    assert!(!is_running(started.process));
    wait_gone(started.child.unwrap());
}

#[test]
fn plugins_do_not_outlive_a_program_that_is_killed() {
    let pair = Plugged::start("child", "");
    let Plugged { server, local, server_plugin, local_plugin, .. } = pair;
    for (process, plugin) in [(local, local_plugin), (server, server_plugin)] {
        let started = plugin.start(0);
        assert!(is_running(started.process));
        process.signal(Signal::KILL);
        assert_eq!(process.wait().code, None);
        wait_gone(started.process);
        wait_gone(started.child.unwrap());
    }
}

#[test]
fn a_start_that_fails_later_leaves_no_plugin() {
    let scratch = Scratch::new();
    let plugin = plugin(&scratch);
    let taken = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let socks = taken.local_addr().unwrap().port();
    let exit = local(&scratch, reserve(), socks, &with(&plugin, "")).wait();
    assert_eq!(exit.code, Some(1), "{}", exit.text);
    assert!(exit.text.contains("cannot listen on"), "{}", exit.text);
    wait_gone(plugin.start(0).process);
}

#[test]
fn a_port_that_others_take_first_is_replaced() {
    let scratch = Scratch::new();
    let plugin = plugin(&scratch);
    let robbed = scratch.file("robbed");
    let keys = with(&plugin, &format!("robbed={}", robbed.display()));
    let local = local(&scratch, reserve(), reserve(), &keys);
    local.wait_for("another program has taken port");
    local.wait_for("ss-local 0");
    let stranger: u32 = std::fs::read_to_string(robbed).unwrap().parse().unwrap();
    assert!(is_running(stranger), "it has its port still, and we are not connected to it");
    kill(stranger);
    let (first, second) = (plugin.start(0), plugin.start(1));
    assert_ne!(first.local, second.local);
    assert!(local.text().contains(&second.local));
}

#[test]
fn words_of_a_plugin_are_passed_on_tamely() {
    let scratch = Scratch::new();
    let plugin = plugin(&scratch);
    let local = local(&scratch, reserve(), reserve(), &with(&plugin, "babble"));
    let long = local.wait_for("very long");
    assert!(long.contains("test-plugin: very long xxx"), "{long}");
    assert!(long.len() < 1200, "{} bytes", long.len());
    assert!(local.wait_for("red").contains("red  [31m text"));
}

#[test]
fn a_reload_replaces_what_has_changed_and_nothing_else() {
    let pair = Plugged::start("", "");
    let first = pair.server_plugin.start(0);
    let write = |options: &str| {
        let keys = keys(pair.server_port, &with(&pair.server_plugin, options));
        pair.scratch.write("server.json", &format!("{{{keys}}}"));
        pair.server.signal(Signal::HUP);
    };
    // Nothing new: the plugin stays.
    write("server;");
    pair.server.wait_for_more("configuration reloaded", 1);
    assert_eq!(pair.server_plugin.starts().len(), 1);
    pair.echoes();
    // Other options: another process, at the same port.
    write("server;new");
    pair.server.wait_for_more("configuration reloaded", 2);
    let second = pair.server_plugin.start(1);
    wait_gone(first.process);
    pair.echoes();
    // Options that do not work: the plugin before is started again.
    write("server;exit=9");
    pair.server.wait_for("reload failed");
    let third = pair.server_plugin.start(3);
    wait_gone(second.process);
    assert_eq!(third.local, second.local);
    pair.echoes();
    // No plugin any more: the port is ours, and speaks plainly.
    let plain = keys(pair.server_port, "");
    pair.scratch.write("server.json", &format!("{{{plain}}}"));
    pair.server.signal(Signal::HUP);
    pair.server.wait_for_more("configuration reloaded", 3);
    wait_gone(third.process);
    let scratch = Scratch::new();
    let socks = reserve();
    let local = local(&scratch, pair.server_port, socks, "");
    local.wait_for("ss-local 0");
    echoes_by(socks, &Target::echo());
    // A plugin where there is none needs a restart.
    write("server");
    pair.server.wait_for("restart the program to put a plugin in front of it");
    echoes_by(socks, &Target::echo());
}

#[test]
fn a_reload_of_a_client_begins_before_it_ends() {
    let pair = Plugged::start("", "");
    let scratch = Scratch::new();
    let plugin = plugin(&scratch);
    let socks = reserve();
    let local = local(&scratch, pair.server_port, socks, &with(&plugin, ""));
    local.wait_for("ss-local 0");
    let first = plugin.start(0);
    let write = |options: &str| {
        let more = format!(r#", "local_port": {socks}{}"#, with(&plugin, options));
        scratch.write("local.json", &format!("{{{}}}", keys(pair.server_port, &more)));
        local.signal(Signal::HUP);
    };
    let echo = Target::echo();
    write("exit=9");
    local.wait_for("reload failed");
    assert!(is_running(first.process), "the plugin in force was left alone");
    echoes_by(socks, &echo);
    write("new");
    local.wait_for("configuration reloaded");
    assert_ne!(plugin.start(2).local, first.local);
    wait_gone(first.process);
    echoes_by(socks, &echo);
}

#[test]
fn clients_behind_a_plugin_are_not_counted_as_one() {
    let pair = Plugged::start("", r#", "max_connections_per_client": 1"#);
    pair.server.wait_for("\"max_connections_per_client\" does not count what it carries");
    let echo = Target::echo();
    // The limit of the client's own side is for the client's clients.
    let scratch = Scratch::new();
    let plugin = plugin(&scratch);
    let socks = reserve();
    let local = local(&scratch, pair.server_port, socks, &with(&plugin, ""));
    local.wait_for("ss-local 0");
    let streams: Vec<_> = (0..3)
        .map(|_| {
            let mut stream = socks5(socks, "127.0.0.1", echo.port());
            stream.write_all(b"hello").unwrap();
            assert_eq!(read_exactly(&stream, 5), b"hello");
            stream
        })
        .collect();
    assert_eq!(pair.server.counter("client_limit"), 0);
    drop(streams);
}

/// A client that is sent to the server behind a plugin could drive it in circles.
#[test]
fn neither_end_of_a_plugin_is_a_target() {
    let pair = Plugged::start("", "");
    let inner = pair.server_plugin.start(0).local;
    let inner: u16 = inner.rsplit_once(':').unwrap().1.parse().unwrap();
    for port in [inner, pair.server_port] {
        let (mut stream, _) = socks5_reply(pair.socks, "127.0.0.1", port);
        // The write may fail, since the server may have refused already.
        let _ = stream.write_all(b"hello");
        pair.server.wait_for(&format!("127.0.0.1:{port} refused: a listener of this program"));
    }
}
