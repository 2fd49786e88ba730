//! `ss-local` with a subscription: from the first answer to the last, and everything a provider may
//! do in between.

#![cfg(feature = "aws-lc")]
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use adit_system_tests::{
    Expected, Process, Provider, SECRET, Scratch, Served, Target, eventually, program,
    read_exactly, reserve, send_pattern, socks5,
};
use rustix::process::Signal;

const METHOD: &str = "2022-blake3-aes-128-gcm";
const KEY: &str = "MDEyMzQ1Njc4OWFiY2RlZg==";

/// A server of ours.
fn server() -> (Process, u16) {
    let port = reserve();
    let process = server_on(port);
    (process, port)
}

fn server_on(port: u16) -> Process {
    let text = port.to_string();
    let args = ["-s", "127.0.0.1", "-p", &text, "-k", KEY, "-m", METHOD];
    let server = Process::start("ss-server", args);
    server.wait_for(&format!("listening on 127.0.0.1:{port}"));
    server
}

/// A SIP008 document with these servers.
fn document(ports: &[u16]) -> Served {
    let servers: Vec<String> = ports
        .iter()
        .map(|port| {
            format!(
                r#"{{"id": "id-{port}", "remarks": "server {port}", "server": "127.0.0.1",
                "server_port": {port}, "password": "{KEY}", "method": "{METHOD}"}}"#
            )
        })
        .collect();
    Served::Body(format!(
        r#"{{"version": 1, "servers": [{}], "bytes_used": 2048, "bytes_remaining": 1048576}}"#,
        servers.join(",")
    ))
}

/// A client with a subscription.
fn local(url: &str, more: &[&str]) -> (Process, u16) {
    let port = reserve();
    let text = port.to_string();
    let base = ["-l", &text, "--online-config-url", url];
    (Process::start("ss-local", base.iter().chain(more)), port)
}

/// A request through the client and back.
fn ping(socks: u16, echo: &Target) -> TcpStream {
    let mut stream = socks5(socks, "127.0.0.1", echo.port());
    stream.write_all(b"ping").unwrap();
    assert_eq!(read_exactly(&stream, 4), b"ping");
    stream
}

#[test]
fn begins_with_the_servers_of_its_provider_and_tells_nobody_where_they_are() {
    let (_server, port) = server();
    let provider = Provider::start(document(&[port]));
    let echo = Target::echo();
    let (local, socks) = local(&provider.url(), &["-v"]);
    local.wait_for("subscription: 1 server; version 1; 2.0 KiB used, 1.0 MiB left");
    local.wait_for("listening on");
    ping(socks, &echo);
    let seen = std::fs::read(format!("/proc/{}/cmdline", local.id())).unwrap();
    assert!(!String::from_utf8_lossy(&seen).contains(SECRET), "ps shows no address");
    local.signal(Signal::TERM);
    let exit = local.wait();
    assert_eq!(exit.code, Some(0), "{}", exit.text);
    assert!(!exit.text.contains(SECRET), "{}", exit.text);
}

#[test]
fn changes_servers_while_a_stream_runs_and_loses_no_byte() {
    const LEN: usize = 24 << 20;
    let (first, second) = (server(), server());
    let provider = Provider::start(document(&[first.1]));
    let (local, socks) = local(&provider.url(), &[]);
    local.wait_for("listening on");
    let echo = Target::echo();
    let open = socks5(socks, "127.0.0.1", echo.port());
    let reader = open.try_clone().unwrap();
    let reader = std::thread::spawn(move || {
        let mut expected = Expected::default();
        let mut buf = vec![0; 64 * 1024];
        while expected.len() < LEN {
            let n = (&reader).read(&mut buf).unwrap();
            assert!(n > 0, "the stream ended after {} bytes", expected.len());
            expected.take(&buf[..n]);
        }
    });
    let mut sets = [vec![first.1, second.1], vec![second.1], vec![first.1], vec![second.1]]
        .into_iter()
        .zip(["1 new, 0 changed, 0 gone", "0 new, 0 changed, 1 gone", "1 new, 0 changed, 1 gone"])
        .map(|(set, said)| (set, said.to_owned()));
    send_pattern(&open, LEN, |sent| {
        if sent >= LEN / 4
            && let Some((set, said)) = sets.next()
        {
            provider.set(document(&set));
            local.signal(Signal::HUP);
            local.wait_for(&said);
        }
    })
    .unwrap();
    assert!(sets.next().is_none(), "all changes were made");
    reader.join().unwrap();
    // A new connection goes by the new set.
    let before = first.0.counter("accepted");
    ping(socks, &echo);
    assert!(first.0.counter("accepted") > before);
}

#[test]
fn an_answer_that_changes_nothing_is_told_and_not_put_in_force() {
    let (_server, port) = server();
    let provider = Provider::start(document(&[port]));
    let (local, _) = local(&provider.url(), &["--online-config-update-interval", "1"]);
    local.wait_for_more("subscription: 1 server, nothing new", 2);
    assert_eq!(local.text().matches("listening on").count(), 1, "{}", local.text());
}

#[test]
fn a_bad_answer_leaves_everything_as_it_was() {
    let (_server, port) = server();
    let provider = Provider::start(document(&[port]));
    let (local, socks) = local(&provider.url(), &[]);
    local.wait_for("listening on");
    let echo = Target::echo();
    let mut open = ping(socks, &echo);
    let cut = "HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n{\"version\": 1, \"servers\": [{";
    let body = |text: &str| Served::Body(text.to_owned());
    let mut failures = 0;
    for (reply, says) in [
        (Served::Status(404), "status 404"),
        (Served::Status(503), "status 503"),
        (body(""), "it is empty"),
        (body("<html>log in</html>"), "a web page"),
        (body("garbage"), "neither a SIP008 document"),
        (body("{\"version\": 1, \"servers\": []}"), "no server in it can be used"),
        (body("{\"version\": 9, \"servers\": []}"), "another version"),
        (body("{\"version\": 1, \"servers\": [{\"server\": \"a\""), "subscription:1:"),
        (Served::Raw(cut.as_bytes().to_vec()), "cut off"),
        (Served::Endless, "longer than 1 MiB"),
        (Served::Redirect("/again".to_owned()), "more than 5 times"),
        (Served::Redirect("http://192.0.2.1/".to_owned()), "not https"),
    ] {
        provider.set(reply);
        local.signal(Signal::HUP);
        failures += 1;
        let line = local.wait_for_more("subscription not updated: ", failures);
        assert!(line.contains(says) && line.contains("the servers stay"), "{says}: {line}");
        ping(socks, &echo);
    }
    open.write_all(b"still").unwrap();
    assert_eq!(read_exactly(&open, 5), b"still");
    assert!(!local.text().contains(SECRET), "{}", local.text());
    provider.set(document(&[port]));
    local.signal(Signal::HUP);
    local.wait_for("subscription: 1 server, nothing new");
}

#[test]
fn serves_while_a_provider_is_slow_and_takes_the_helper_along_when_killed() {
    let (_server, port) = server();
    let provider = Provider::start(Served::Silence);
    let link = format!("ss://{METHOD}:{}@127.0.0.1:{port}", KEY.replace('=', "%3D"));
    for signal in [Signal::KILL, Signal::TERM] {
        let before = provider.requests().len();
        let (local, socks) = local(&provider.url(), &["--server-url", &link]);
        local.wait_for("listening on");
        provider.wait_for(before + 1);
        ping(socks, &Target::echo());
        let helper = eventually("the helper runs", || children(local.id()).first().copied());
        let seen = std::fs::read(format!("/proc/{helper}/cmdline")).unwrap();
        assert!(seen.ends_with(b"adit\0fetch\0"), "{}", String::from_utf8_lossy(&seen));
        local.signal(signal);
        local.wait();
        eventually("the helper ends", || (!is_running(helper)).then_some(()));
    }
}

/// Processes that one has started.
fn children(parent: u32) -> Vec<u32> {
    let processes = std::fs::read_dir("/proc").unwrap().filter_map(|entry| {
        let id: u32 = entry.ok()?.file_name().to_str()?.parse().ok()?;
        (stat(id)?.1 == parent).then_some(id)
    });
    processes.collect()
}

fn is_running(id: u32) -> bool {
    stat(id).is_some_and(|(state, _)| state != "Z")
}

/// State and parent of a process.
fn stat(id: u32) -> Option<(String, u32)> {
    let text = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    let mut fields = text.rsplit_once(')')?.1.split_ascii_whitespace();
    Some((fields.next()?.to_owned(), fields.next()?.parse().ok()?))
}

#[test]
fn leaves_out_what_it_may_not_run_and_what_it_cannot_use() {
    let (_server, port) = server();
    let Served::Body(good) = document(&[port]) else { unreachable!() };
    let more = r#""servers": [{"server": "127.0.0.1", "server_port": 1, "password": "hunter2",
        "method": "aes-256-gcm", "plugin": "/bin/sh", "plugin_opts": "-c hunter2"},
        {"server": "127.0.0.1", "server_port": 1, "password": "hunter2", "method": "rc4"},"#;
    let provider = Provider::start(Served::Body(good.replace("\"servers\": [", more)));
    let (local, socks) = local(&provider.url(), &[]);
    local.wait_for("key \"servers[0]\": the plugin of this server is not allowed");
    local.wait_for("key \"servers[1].method\": this stream cipher is not authenticated");
    local.wait_for("subscription: 1 server, 2 left out");
    local.wait_for("listening on");
    ping(socks, &Target::echo());
    assert!(!local.text().contains("hunter2"), "{}", local.text());
}

#[test]
fn reads_lists_of_links() {
    let (_server, port) = server();
    let link = format!("ss://{METHOD}:{}@127.0.0.1:{port}#A", KEY.replace('=', "%3D"));
    let list = data_encoding::BASE64.encode(format!("{link}\nvmess://x\n").as_bytes());
    let provider = Provider::start(Served::Body(list));
    let (local, socks) = local(&provider.url(), &[]);
    local.wait_for("subscription: 1 server, 1 left out");
    local.wait_for("listening on");
    ping(socks, &Target::echo());
}

#[test]
fn without_any_server_it_ends_and_says_why() {
    let nobody = format!("http://127.0.0.1:{}/{SECRET}", reserve());
    let exit = local(&nobody, &[]).0.wait();
    assert_eq!(exit.code, Some(1), "{}", exit.text);
    assert_eq!(exit.text.matches("trying again").count(), 2, "{}", exit.text);
    assert!(exit.text.contains("no server to begin with: subscription: "), "{}", exit.text);
    assert!(!exit.text.contains(SECRET) && !exit.text.contains("listening"), "{}", exit.text);

    let provider = Provider::start(Served::Body("garbage".to_owned()));
    let exit = local(&provider.url(), &[]).0.wait();
    assert_eq!(exit.code, Some(1), "{}", exit.text);
    assert!(exit.text.contains("neither a SIP008 document"), "{}", exit.text);
}

#[test]
fn says_which_program_is_missing() {
    let scratch = Scratch::new();
    let alone = scratch.file("ss-local");
    std::fs::copy(program("ss-local"), &alone).unwrap();
    let mut command = Command::new(&alone);
    command.args(["-l", &reserve().to_string(), "--online-config-url", "https://h.invalid/"]);
    command.env("PATH", scratch.path());
    let exit = Process::spawn("ss-local", command).wait();
    assert_eq!(exit.code, Some(1), "{}", exit.text);
    assert!(exit.text.contains("install it beside this program"), "{}", exit.text);
}

#[test]
fn a_cache_makes_a_start_possible_without_the_provider() {
    let scratch = Scratch::new();
    let cache = scratch.file("cache.json");
    let more = ["--online-config-cache-file", cache.to_str().unwrap()];
    let (_server, port) = server();
    let provider = Provider::start(document(&[port]));
    let url = provider.url();
    let (first, _) = local(&url, &more);
    first.wait_for("listening on");
    let about = std::fs::metadata(&cache).unwrap();
    assert_eq!(about.permissions().mode() & 0o777, 0o600);
    drop((first, provider));

    let (second, socks) = local(&url, &more);
    second.wait_for("cache.json: 1 servers of an earlier answer");
    second.wait_for("listening on");
    second.wait_for("subscription not updated: ");
    ping(socks, &Target::echo());

    std::fs::write(&cache, "garbage").unwrap();
    let exit = local(&url, &more).0.wait();
    assert_eq!(exit.code, Some(1), "{}", exit.text);
    assert!(exit.text.contains("cache.json: it is neither"), "{}", exit.text);
}

#[test]
fn a_reload_brings_a_subscription_beside_the_servers_of_the_file() {
    let scratch = Scratch::new();
    let (first, second) = (server(), server());
    let provider = Provider::start(document(&[second.1]));
    let socks = reserve();
    let text = |more: &str| {
        format!(
            r#"{{"server": "127.0.0.1", "server_port": {}, "password": "{KEY}", "method": "{METHOD}", "local_port": {socks}{more}}}"#,
            first.1
        )
    };
    let file = scratch.write("c.json", &text(""));
    let local = Process::start("ss-local", [Path::new("-c"), &file]);
    local.wait_for("listening on");
    let online = format!(r#", "online_config": {{"config_url": "{}"}}"#, provider.url());
    scratch.write("c.json", &text(&online));
    local.signal(Signal::HUP);
    local.wait_for("subscription: 1 server (1 new, 0 changed, 0 gone)");
    local.wait_for("via 2 servers");
    local.report(&format!("server 127.0.0.1:{} (server {}): tcp=", second.1, second.1));
    local.report(&format!("server 127.0.0.1:{}: tcp=", first.1));
    // And away again.
    scratch.write("c.json", &text(""));
    local.signal(Signal::HUP);
    local.wait_for_more("configuration reloaded", 2);
    ping(socks, &Target::echo());
    assert!(!local.text().contains(SECRET), "{}", local.text());
}
