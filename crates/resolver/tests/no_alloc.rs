//! Counts heap allocations: none after construction.

use std::cell::Cell;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use adit_counting_allocator::allocations;
use adit_resolver::{
    Answer, Cache, Hosts, Lookup, Outcome, Resolver, Settings, Source, TRANSMIT_LEN_MAX, Transport,
};

fn random() -> u64 {
    thread_local! {
        static STATE: Cell<u64> = const { Cell::new(1) };
    }
    let next = STATE.get().wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
    STATE.set(next);
    next >> 16
}

/// Writes a reply to `query` into `out`: one address of the type asked for, or a code.
fn write_reply(query: &[u8], rcode: u8, out: &mut [u8; 512]) -> usize {
    let question_len = query[12..].iter().position(|&byte| byte == 0).expect("a name ends") + 1 + 4;
    let mut len = 12 + question_len;
    out[..len].copy_from_slice(&query[..len]);
    out[2..12].copy_from_slice(&[0x81, 0x80 | rcode, 0, 1, 0, 0, 0, 0, 0, 0]);
    if rcode == 0 {
        out[7] = 1;
        let data: &[u8] = match query[len - 3] {
            28 => &[0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7],
            _ => &[192, 0, 2, 7],
        };
        let head = [0xc0, 12, 0, query[len - 3], 0, 1, 0, 0, 0, 60, 0, data.len() as u8];
        out[len..len + 12].copy_from_slice(&head);
        out[len + 12..len + 12 + data.len()].copy_from_slice(data);
        len += 12 + data.len();
    }
    len
}

/// Drives a lookup to its end: the first attempt times out, the search candidate does not exist.
fn run(settings: &Settings, name: &str, mut now: Instant) -> Outcome {
    let mut lookup = Lookup::start(settings, name, now, &mut random);
    let mut query = [0; TRANSMIT_LEN_MAX];
    let mut reply = [0; 512];
    loop {
        while let Some(to) = lookup.transmit(&mut query, &mut random) {
            if to.attempt == 1 {
                continue;
            }
            let start = if to.transport == Transport::Tcp { 2 } else { 0 };
            let rcode = if to.attempt == 2 { 3 } else { 0 };
            let mut len = write_reply(&query[start..to.len], rcode, &mut reply);
            if to.attempt == 3 && to.transport == Transport::Udp {
                reply[2] |= 2;
                len = len.min(512);
            }
            let taken =
                lookup.handle_message(settings, now, to.server, to.transport, &reply[..len]);
            assert_eq!(taken, Ok(()));
            assert!(
                lookup.handle_message(settings, now, to.server, to.transport, &[1; 40]).is_err()
            );
        }
        match lookup.next_deadline() {
            Some(deadline) => now = deadline,
            None => return lookup.outcome().expect("no deadline, so an outcome"),
        }
        lookup.handle_timeout(settings, now);
    }
}

#[test]
fn nothing_allocates_after_construction() {
    let settings = Arc::new(Settings::from_resolv_conf(
        b"nameserver 192.0.2.1\nnameserver 192.0.2.2\nsearch a.example\noptions timeout:1 rotate\n",
    ));
    let hosts = Arc::new(Hosts::parse(b"10.0.0.7 printer\n"));
    let mut resolver = Resolver::new(Arc::clone(&settings), hosts, Cache::new(64));
    let names: Vec<String> = (0..500).map(|i| format!("host{i}")).collect();
    let now = Instant::now();

    let wanted: [IpAddr; 2] = ["2001:db8::7".parse().unwrap(), "192.0.2.7".parse().unwrap()];
    let count = allocations(|| {
        for name in &names {
            assert_eq!(resolver.lookup_local(now, name), None);
            let outcome = run(&settings, name, now);
            assert!(matches!(outcome, Outcome::Found { addrs, .. } if addrs.as_slice() == wanted));
            resolver.remember(now, name, &outcome);
            let hit = resolver.lookup_local(now, name).unwrap();
            assert_eq!(hit, Answer { outcome, source: Source::Cache });
        }
    });
    assert_eq!(count, 0, "lookups and cache");

    let count = allocations(|| {
        for (name, source) in [
            ("Printer.", Source::Hosts),
            ("x.localhost", Source::Hosts),
            ("192.0.2.1", Source::Literal),
            ("[2001:db8::1]", Source::Literal),
            ("not a name", Source::Check),
        ] {
            assert_eq!(resolver.lookup_local(now, name).unwrap().source, source);
        }
        resolver.remember(now, "no", &Outcome::NoSuchName { ttl_s: 60 });
        resolver.replace_settings(Arc::clone(&settings));
    });
    assert_eq!(count, 0, "local answers");
    assert_eq!(allocations(|| drop(std::hint::black_box(Box::new(1)))), 1, "the counter counts");
}
