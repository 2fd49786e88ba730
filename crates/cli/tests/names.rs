//! Targets by name: the hosts table, name servers that fail in every way, several addresses.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::collections::HashSet;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use adit_system_tests::{
    Answer, Dns, Ending, Pair, Target, ending, eventually, read_exactly, reserve, reset, socks5,
};

const METHOD: &str = "2022-blake3-aes-256-gcm";
const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

fn pair(nameservers: &str, more: &[&str]) -> Pair {
    Pair::with_args(METHOD, &[&["-d", nameservers, "--workers", "1"], more].concat(), &[])
}

fn works(mut stream: TcpStream) {
    stream.write_all(b"hello").unwrap();
    assert_eq!(read_exactly(&stream, 5), b"hello");
}

#[test]
fn the_hosts_table_comes_first() {
    let dns = Dns::serve(|_| Answer::NoSuchName);
    let pair = pair(&dns.address(), &[]);
    let echo = Target::echo();
    works(socks5(pair.local_port, "localhost", echo.port()));
    assert!(dns.questions().iter().all(|q| q.name != "localhost"));
}

#[test]
fn names_are_asked_for_and_kept() {
    let dns = Dns::serve(|_| Answer::Addresses(vec![LOOPBACK]));
    let pair = pair(&dns.address(), &[]);
    let echo = Target::echo();
    for name in ["a.test", "A.Test", "a.test"] {
        works(socks5(pair.local_port, name, echo.port()));
    }
    let questions = dns.questions();
    assert!(questions.iter().all(|q| q.name == "a.test" && !q.is_tcp), "{questions:?}");
    assert!(questions.len() <= 2, "one A and one AAAA question do: {questions:?}");
}

#[test]
fn a_name_that_does_not_exist_resets_the_client() {
    let dns = Dns::serve(|_| Answer::NoSuchName);
    let pair = pair(&dns.address(), &[]);
    let client = socks5(pair.local_port, "nowhere.test", 80);
    assert_eq!(ending(&client), (vec![], Ending::Reset));
}

#[test]
fn a_truncated_answer_is_asked_for_over_tcp() {
    let dns = Dns::serve(|q| match q.is_tcp {
        true => Answer::Addresses(vec![LOOPBACK]),
        false => Answer::Truncated,
    });
    let pair = pair(&dns.address(), &[]);
    let echo = Target::echo();
    works(socks5(pair.local_port, "long.test", echo.port()));
    assert!(dns.questions().iter().any(|q| q.is_tcp));
}

#[test]
fn a_slow_answer_is_waited_for() {
    let dns = Dns::serve(|_| Answer::After(Duration::from_millis(800), vec![LOOPBACK]));
    let pair = pair(&dns.address(), &[]);
    let echo = Target::echo();
    works(socks5(pair.local_port, "slow.test", echo.port()));
}

#[test]
fn the_next_server_is_asked_when_one_is_dead_or_mute() {
    let second = Dns::serve(|_| Answer::Addresses(vec![LOOPBACK]));
    let mute = Dns::serve(|_| Answer::Silence);
    let echo = Target::echo();
    let dead = format!("127.0.0.1:{}", reserve());
    for first in [dead, mute.address()] {
        let pair = pair(&format!("{first},{}", second.address()), &[]);
        works(socks5(pair.local_port, "b.test", echo.port()));
    }
}

#[test]
fn a_name_without_aaaa_or_without_an_answer_for_it_works() {
    // Some servers never answer AAAA questions.
    for silent in [false, true] {
        let dns = Dns::serve(move |q| match (q.is_aaaa, silent) {
            (true, true) => Answer::Silence,
            _ => Answer::Addresses(vec![LOOPBACK]),
        });
        let pair = pair(&dns.address(), &[]);
        let echo = Target::echo();
        works(socks5(pair.local_port, "v4.test", echo.port()));
    }
}

/// A listener on `::1` that takes no connection: its queue is full, so that a connect hangs.
fn black_hole(port: u16) -> Option<(OwnedFd, Vec<TcpStream>)> {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, listen, socket_with, sockopt};
    let address = SocketAddr::from((Ipv6Addr::LOCALHOST, port));
    let flags = SocketFlags::CLOEXEC;
    let fd = socket_with(AddressFamily::INET6, SocketType::STREAM, flags, None).ok()?;
    sockopt::set_ipv6_v6only(&fd, true).ok()?;
    bind(&fd, &address).ok()?;
    listen(&fd, 0).ok()?;
    let mut filling = Vec::new();
    while let Ok(stream) = TcpStream::connect_timeout(&address, Duration::from_millis(200)) {
        filling.push(stream);
        assert!(filling.len() < 100, "a queue of length 0 fills up");
    }
    Some((fd, filling))
}

#[test]
fn a_dead_address_gives_way_to_a_live_one() {
    let echo = Target::echo();
    let hole = black_hole(echo.port());
    // Without IPv6 on this host the address is unreachable, which is worth a test as well.
    for (what, dead) in [
        ("a connect that hangs", Ipv6Addr::LOCALHOST),
        ("a network out of reach", "100::1".parse().unwrap()),
    ] {
        let dns = Dns::serve(move |_| Answer::Addresses(vec![dead.into(), LOOPBACK]));
        let pair = pair(&dns.address(), &["-6", "-t", "20"]);
        let client = socks5(pair.local_port, "two.test", echo.port());
        println!("{what}");
        works(client);
    }
    drop(hole);
    let dns = Dns::serve(|_| Answer::Addresses(vec![Ipv6Addr::LOCALHOST.into(), LOOPBACK]));
    let pair = pair(&dns.address(), &["-6"]);
    works(socks5(pair.local_port, "refused.test", echo.port()));
}

#[test]
fn clients_that_leave_during_a_lookup_leave_nothing_behind() {
    let answering = Arc::new(AtomicBool::new(false));
    let gate = Arc::clone(&answering);
    let dns = Dns::serve(move |q| {
        if gate.load(Ordering::Relaxed) || q.name.starts_with("good") {
            Answer::Addresses(vec![LOOPBACK])
        } else {
            Answer::Silence
        }
    });
    let mut pair = pair(&dns.address(), &[]);
    let echo = Target::echo();
    works(socks5(pair.local_port, "good0.test", echo.port()));
    let before = pair.server.descriptors();
    for n in 0..1000 {
        let mut client = socks5(pair.local_port, &format!("mute{}.test", n % 3), echo.port());
        client.write_all(b"x").unwrap();
        reset(client);
    }
    works(socks5(pair.local_port, "good1.test", echo.port()));
    eventually("lookups and connections go", || {
        (pair.server.descriptors() <= before).then_some(())
    });
    answering.store(true, Ordering::Relaxed);
    assert!(pair.server.is_alive());
    works(socks5(pair.local_port, "good2.test", echo.port()));
}

/// Waiting for a name is no privilege of those who are still there.
#[test]
fn waiters_that_have_left_keep_no_place() {
    let dns = Dns::serve(|q| match q.name.starts_with("good") {
        true => Answer::Addresses(vec![LOOPBACK]),
        false => Answer::Silence,
    });
    let pair = pair(&dns.address(), &[]);
    let echo = Target::echo();
    for _ in 0..5000 {
        let mut client = socks5(pair.local_port, "mute.test", echo.port());
        client.write_all(b"x").unwrap();
        reset(client);
    }
    works(socks5(pair.local_port, "good.test", echo.port()));
}

#[test]
fn many_connections_to_one_name_share_a_lookup() {
    let dns = Dns::serve(|_| Answer::After(Duration::from_millis(500), vec![LOOPBACK]));
    let pair = pair(&dns.address(), &[]);
    let echo = Target::echo();
    let mut clients: Vec<_> =
        (0..100).map(|_| socks5(pair.local_port, "shared.test", echo.port())).collect();
    for client in &mut clients {
        client.write_all(b"hello").unwrap();
    }
    for client in &clients {
        assert_eq!(read_exactly(client, 5), b"hello");
    }
    let questions = dns.questions();
    let distinct: HashSet<_> = questions.iter().map(|q| (q.name.clone(), q.is_aaaa)).collect();
    // A retry may add a few on a busy machine; a lookup a connection would be 200.
    assert!(questions.len() <= 2 * distinct.len() + 2, "{} questions", questions.len());
}

#[test]
fn a_client_finds_its_server_by_name() {
    let dns = Dns::serve(|_| Answer::Addresses(vec![LOOPBACK]));
    let pair = Pair::start(METHOD);
    let port = reserve();
    let (server_port, local_port) = (pair.server_port.to_string(), port.to_string());
    let args = [
        "-s",
        "server.test",
        "-p",
        &server_port,
        "-l",
        &local_port,
        "-m",
        METHOD,
        "-k",
        adit_system_tests::password(METHOD),
        "-d",
        &dns.address(),
    ];
    let local = adit_system_tests::Process::start("ss-local", args);
    local.wait_for("listening on");
    // The name of the target means nothing to anybody here, and is not the client's to resolve.
    let client = socks5(port, "target.invalid", 80);
    assert_ne!(ending(&client).1, Ending::Open);
    let names: Vec<_> = dns.questions().into_iter().map(|q| q.name).collect();
    assert!(
        names.iter().all(|n| n == "server.test"),
        "targets are the server's business: {names:?}"
    );
}
