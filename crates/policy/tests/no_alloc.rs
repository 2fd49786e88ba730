//! Counts heap allocations: none in a judgement, and none in counting, however full a table is.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
#![allow(unsafe_code, reason = "a counting allocator is a GlobalAlloc, which is an unsafe trait")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use adit_policy::limits::{
    ByteRate, Calendar, Meter, MeterLimits, QuotaBook, Rate, Subject, client_key,
};
use adit_policy::{
    Accepted, Access, AddressSet, Asked, Command, Destination, HostPattern, Hosts, Method, Methods,
    Place, Policy, Prefix, ProxyProtocol, Replies, Request, RuleSpec, SetBuilder, Stage, WeekTime,
};

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

fn count() {
    // After thread-local storage is gone nothing is under test.
    let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
}

// SAFETY: every call goes to `System` unchanged; counting touches only a const-initialised cell.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller keeps `alloc`'s contract, which is passed on unchanged.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: `ptr` came from `System` with this layout, since all of our calls go there.
        unsafe { System.dealloc(ptr, layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count();
        // SAFETY: as for `dealloc`; `new_size` is the caller's, who keeps `realloc`'s contract.
        unsafe { System.realloc(ptr, layout, new_size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn allocations(work: impl FnOnce()) -> u64 {
    let before = ALLOCATIONS.get();
    work();
    ALLOCATIONS.get() - before
}

#[test]
fn the_counter_counts() {
    assert_eq!(allocations(|| drop(black_box(Box::new(1)))), 1);
}

/// Forty rules of every kind, of which none matches but the last.
fn policy() -> Policy {
    let mut country = SetBuilder::default();
    for i in 0..20_000u32 {
        country.add_prefix(Prefix::host(Ipv4Addr::from_bits(0xc000_0000 + i * 2).into()));
    }
    let country = Arc::new(country.finish());
    let place = Place { file: Arc::from("t"), line: 1 };
    let mut rules = vec![RuleSpec::new(Stage::Client, Access::Pass, place.clone())];
    for i in 0..40u8 {
        let mut rule = RuleSpec::new(Stage::Socks, Access::Block, place.clone());
        match i % 4 {
            0 => rule.users = Some(vec![format!("user{i}").into_bytes().into()]),
            1 => {
                let names = vec![HostPattern::parse(&format!(".d{i}.example")).unwrap()];
                rule.to = Some(Hosts { names, ..Hosts::default() });
            }
            2 => {
                let prefixes = vec![Prefix::new(IpAddr::from([10, i, 0, 0]), 16).unwrap()];
                rule.to = Some(Hosts { prefixes, ..Hosts::default() });
            }
            _ => {
                rule.to = Some(Hosts { countries: vec![Arc::clone(&country)], ..Hosts::default() });
                rule.from_ports = adit_policy::Ports::range(i.into(), i.into());
            }
        }
        rules.push(rule);
    }
    rules.push(RuleSpec::new(Stage::Socks, Access::Pass, place));
    Policy::new(rules, Methods::ALL, Replies::Implied).unwrap()
}

#[test]
fn judging_allocates_nothing_from_the_first_time_on() {
    let policy = policy();
    let request = Request {
        from: "192.0.2.1:50000".parse().unwrap(),
        user: Some(b"user99"),
        method: Method::Username,
        command: Command::Connect,
        proxy_protocol: ProxyProtocol::Socks5,
        port: 443,
        time: WeekTime::of_local_seconds(0),
    };
    let accepted = Accepted {
        client: request.from,
        local: "192.0.2.9:1080".parse().unwrap(),
        time: request.time,
    };
    let count = allocations(|| {
        assert!(policy.admit(&accepted).is_pass());
        for host in ["www.Example.com.", "198.51.100.9", "127.0.0.1", "2001:db8::1"] {
            match Asked::read(host).unwrap() {
                Asked::Addr(addr) => {
                    let verdict = policy.judge(&request, Destination::Addr(addr, None));
                    assert_eq!(verdict.is_pass(), !addr.is_loopback());
                }
                Asked::Name(name) => {
                    let _ = black_box(policy.judge_name(&request, &name));
                    let addr = [198, 51, 100, 9].into();
                    assert!(policy.judge(&request, Destination::Addr(addr, Some(&name))).is_pass());
                }
            }
        }
        assert!(policy.could_pass(&request));
    });
    assert_eq!(count, 0);
    assert!(AddressSet::all().is_all());
}

#[test]
fn counting_allocates_nothing_when_a_table_is_full() {
    let limits = MeterLimits {
        sessions_rate: Rate::new(10, 1),
        sessions_max: Some(5),
        failures_rate: Rate::new(5, 1),
        bandwidth: ByteRate::new(1 << 20, 1),
    };
    let mut meter = Meter::new(limits, 64, [1, 2]);
    let mut book = QuotaBook::new(64, [1, 2]);
    let count = allocations(|| {
        for i in 0..5000u32 {
            let now = u64::from(i) * 100;
            let key = client_key(Ipv4Addr::from_bits(i).into());
            let subject = Subject::Client(key);
            meter.begin(subject, now).unwrap();
            meter.fail(subject, now);
            let _ = black_box(meter.grant(subject, 1000, now));
            let _ = black_box(meter.admit(subject, 1000, now));
            meter.end(subject);
            let today = Calendar::of_local_seconds(i64::from(i) * 86_400);
            let _ = black_box(book.charge(u128::from(i % 70), 10, today));
        }
    });
    assert_eq!(count, 0);
    assert_eq!(meter.len(), 64);
}
