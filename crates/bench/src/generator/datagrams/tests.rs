use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};

use super::*;
use crate::generator::udp_echo::UdpEchoTarget;
use crate::generator::{Destination, Entry};

const PATIENCE: Duration = Duration::from_secs(10);

fn plan(pace: Pace, limit: Limit) -> Plan {
    Plan { pace, limit, payload_len: 512, patience: PATIENCE, lost_max: 1 }
}

fn run_directly(plan: Plan) -> Outcome {
    let target = UdpEchoTarget::on_localhost().unwrap();
    let destination = Destination::Ip(target.addr());
    let mut association = Association::open(Entry::Direct, destination).unwrap();
    // Twice, so that the second run finds the numbers where the first left them.
    run(&mut association, plan).unwrap();
    run(&mut association, plan).unwrap()
}

#[test]
fn every_datagram_of_a_window_comes_back() {
    for window in [1, 64, 200] {
        let outcome = run_directly(plan(Pace::Window(window), Limit::Count(1001)));
        assert_eq!((outcome.sent, outcome.echoes, outcome.lost()), (1001, 1001, 0));
        assert!(outcome.latencies.percentile(50) > 0 && !outcome.late);
    }
}

/// A SOCKS5 server that grants one association with the relay at `relay`, on any address.
fn grant_one_association(relay: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let (mut client, _) = listener.accept().unwrap();
        let mut bytes = [0; 10];
        client.read_exact(&mut bytes[..3]).unwrap();
        client.write_all(&[5, 0]).unwrap();
        client.read_exact(&mut bytes).unwrap();
        assert_eq!(bytes, [5, 3, 0, 1, 0, 0, 0, 0, 0, 0]);
        let port = relay.port().to_be_bytes();
        client.write_all(&[5, 0, 0, 1, 0, 0, 0, 0, port[0], port[1]]).unwrap();
        // Until the client closes.
        assert_eq!(client.read(&mut bytes).unwrap(), 0);
    });
    addr
}

#[test]
fn goes_where_the_association_is_granted_and_checks_the_source() {
    // An echo of the whole datagram is what a relay would make of an echo of its payload.
    let relay = UdpEchoTarget::on_localhost().unwrap();
    for destination in [Destination::Localhost(9), Destination::Ip(relay.addr())] {
        let local = Entry::Socks5(grant_one_association(relay.addr()));
        let mut association = Association::open(local, destination).unwrap();
        let outcome = run(&mut association, plan(Pace::Window(8), Limit::Count(100))).unwrap();
        assert_eq!(outcome.lost(), 0);
        association.header[9] ^= 1;
        let error = run(&mut association, plan(Pace::Window(1), Limit::Count(1))).unwrap_err();
        assert!(error.to_string().contains("elsewhere"), "{error}");
    }
}

#[test]
fn a_blast_ends_by_time() {
    let time = Duration::from_millis(50);
    let mut plan = plan(Pace::Ahead(2048), Limit::Time(time));
    plan.lost_max = u64::MAX;
    plan.patience = Duration::from_millis(100);
    let outcome = run_directly(plan);
    assert!(outcome.sending >= time);
    assert!(outcome.echoes > 0 && outcome.echoes_while_sending <= outcome.echoes);
}

#[test]
fn a_target_that_swallows_everything_ends_the_run() {
    let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let destination = Destination::Ip(silent.local_addr().unwrap());
    let mut association = Association::open(Entry::Direct, destination).unwrap();
    let mut plan = plan(Pace::Window(1), Limit::Count(1000));
    (plan.patience, plan.lost_max) = (Duration::from_millis(1), 3);
    let outcome = run(&mut association, plan).unwrap();
    assert_eq!((outcome.echoes, outcome.lost()), (0, outcome.sent));
    assert!((3..=4).contains(&outcome.sent), "{}", outcome.sent);
}

#[test]
fn a_target_that_has_gone_is_an_error() {
    let addr = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut association = Association::open(Entry::Direct, Destination::Ip(addr)).unwrap();
    assert!(run(&mut association, plan(Pace::Window(4), Limit::Count(10))).is_err());
}

#[test]
fn checks_every_byte_of_a_payload() {
    let payloads = Payloads::new(100, 50);
    let mut bytes = [0; 100];
    payloads.fill(&mut bytes, 77, 5);
    assert_eq!(payloads.check(&bytes), Some((77, 5)));
    assert_eq!(payloads.check(&bytes[..99]), None);
    for at in (0..8).chain(TAG_LEN..100) {
        let mut wrong = bytes;
        wrong[at] ^= 1;
        assert_eq!(payloads.check(&wrong), None, "byte {at}");
    }
    // Of an earlier run, with longer payloads.
    let earlier = Payloads::new(200, 0);
    let mut bytes = [0; 200];
    earlier.fill(&mut bytes, 49, 5);
    assert_eq!(payloads.check(&bytes), Some((49, 5)));
    earlier.fill(&mut bytes, 50, 5);
    assert_eq!(payloads.check(&bytes), None);
}

#[test]
fn replaces_what_is_lost_and_refuses_what_comes_twice() {
    let mut plan = plan(Pace::Window(2), Limit::Count(10));
    plan.patience = Duration::from_millis(200);
    let mut ledger = Ledger::new(plan, 40);
    let begun = Instant::now();
    let (first, slot) = ledger.begin(begun).unwrap();
    let (second, other_slot) = ledger.begin(begun).unwrap();
    assert_eq!((first, second), (40, 41));
    assert!(ledger.begin(begun).is_none());

    ledger.settle(second, other_slot, begun).unwrap();
    assert!(ledger.settle(second, other_slot, begun).is_err(), "twice");
    assert!(ledger.settle(42, slot, begun).is_err(), "not sent yet");
    ledger.sweep(begun + Duration::from_millis(300));
    assert_eq!((ledger.given_up, ledger.room()), (1, 2));
    assert!(!ledger.outcome.late);
    ledger.settle(first, slot, begun).unwrap();
    assert!(ledger.outcome.late);
    assert_eq!((ledger.outcome.echoes, ledger.outcome.lost()), (1, 1));
}

#[test]
fn a_blast_waits_for_the_newest_only() {
    let mut ledger = Ledger::new(plan(Pace::Ahead(3), Limit::Count(10)), 7);
    let begun = Instant::now();
    let sent: Vec<(u64, usize)> = (0..3).map(|_| ledger.begin(begun).unwrap()).collect();
    assert_eq!(ledger.room(), 0);
    ledger.settle(sent[1].0, sent[1].1, begun).unwrap();
    assert_eq!(ledger.room(), 2);
    ledger.settle(sent[0].0, sent[0].1, begun).unwrap();
    assert_eq!((ledger.room(), ledger.outcome.echoes), (2, 2));
    ledger.sweep(begun + 2 * PATIENCE);
    assert_eq!(ledger.room(), 3);
}
