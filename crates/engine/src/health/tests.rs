//! What marks a server, how long, and which one is picked.

use super::*;
use crate::role::UpstreamHost;
use adit_shadowsocks::{ClientKey, Method};
use adit_sys::net::OutboundOptions;
use std::sync::Arc;

const TCP: Transport = Transport::Stream;
const UDP: Transport = Transport::Datagram;

fn server(weight: u16) -> Upstream {
    Upstream {
        behind_plugin: false,
        host: UpstreamHost::Name("h".into()),
        port: 1,
        key: ClientKey::parse(Method::None, "").unwrap(),
        outbound: OutboundOptions::default(),
        connect: Duration::from_secs(10),
        weight,
        health: Arc::new(Health::new("h")),
    }
}

fn servers(weights: &[u16]) -> Servers {
    weights.iter().map(|weight| server(*weight)).collect()
}

fn after(ms: u64) -> Instant {
    // The values under test were made a moment ago.
    Instant::now() + Duration::from_millis(ms)
}

fn latency(servers: &Servers, at: usize, ms: u64) {
    assert_eq!(servers[at].health.connected(Some(Duration::from_millis(ms))), Change::None);
}

#[test]
fn a_failed_connect_marks_at_once_and_a_good_one_clears() {
    let health = Health::new("h");
    assert_eq!(health.unreachable(after(0)), Change::Down);
    assert_eq!(health.unreachable(after(1)), Change::None, "told once");
    assert!(health.standing(TCP, health.ms(after(0))) == Standing::Down);
    assert!(health.standing(TCP, health.ms(after(1_000_000))) == Standing::Down, "until a probe");
    assert_eq!(health.connected(None), Change::Up);
    assert_eq!(health.connected(None), Change::None);
    assert!(health.standing(TCP, health.ms(after(0))) == Standing::Well);
}

#[test]
fn pauses_double_up_to_a_minute_and_failures_together_count_once() {
    let health = Health::new("h");
    let mut now = after(0);
    for seconds in [2, 4, 8, 16, 32, 60, 60] {
        for _ in 0..5 {
            let _ = health.unreachable(now);
        }
        let pause = health.probe_at().unwrap() - now;
        assert!(
            pause.abs_diff(Duration::from_secs(seconds)) < Duration::from_millis(50),
            "{pause:?}"
        );
        now += pause + Duration::from_millis(10);
    }
    let _ = health.connected(None);
    let _ = health.unreachable(now);
    let pause = health.probe_at().unwrap() - now;
    assert!(pause <= Duration::from_secs(2), "it begins anew: {pause:?}");
}

#[test]
fn silence_marks_after_four_targets_in_a_row() {
    let health = Health::new("h");
    for _ in 0..100 {
        assert_eq!(health.unanswered(after(0), 1), Change::None, "one target counts once");
    }
    assert_eq!(health.unanswered(after(0), 2), Change::None);
    assert_eq!(health.unanswered(after(0), 3), Change::None);
    let _ = health.answered(after(0));
    for target in [4, 5, 6] {
        assert_eq!(health.unanswered(after(0), target), Change::None);
    }
    assert_eq!(health.unanswered(after(0), 7), Change::Down);
    assert_eq!(health.connected(None), Change::None, "a connect says nothing about it");
    assert!(health.standing(TCP, health.ms(after(100))) == Standing::Down);
    assert!(health.standing(TCP, health.ms(after(2_100))) == Standing::Trial);
    assert_eq!(health.answered(after(2_200)), Change::Up);
}

#[test]
fn datagram_sessions_mark_after_a_while_without_any_answer() {
    let health = Health::new("h");
    for _ in 0..10 {
        assert_eq!(health.session_waits(after(0)), Change::None, "they had no time yet");
    }
    assert_eq!(health.session_waits(after(2_900)), Change::None);
    let _ = health.session_answered(after(2_950), None);
    assert_eq!(health.session_waits(after(3_500)), Change::None, "somebody was answered");
    for _ in 0..3 {
        let _ = health.session_waits(after(3_500));
    }
    assert_eq!(health.session_waits(after(6_600)), Change::Down);
    assert!(health.standing(TCP, health.ms(after(6_600))) == Standing::Well);
    assert_eq!(health.session_answered(after(6_700), None), Change::Up);
    assert_eq!(health.session_refused(after(6_800)), Change::Down, "nobody listens there");
}

#[test]
fn datagrams_follow_tcp_unless_they_are_answered() {
    let health = Health::new("h");
    let _ = health.unreachable(after(0));
    assert!(health.standing(UDP, health.ms(after(0))) == Standing::Down);
    let _ = health.session_answered(after(2_000), None);
    assert!(health.standing(UDP, health.ms(after(3_000))) == Standing::Well);
    assert!(health.standing(UDP, health.ms(after(13_000))) == Standing::Down);
}

#[test]
fn picks_the_fastest_and_stays_with_it() {
    let servers = servers(&[1000, 1000, 1000]);
    for (at, ms) in [(0, 90), (1, 40), (2, 60)] {
        latency(&servers, at, ms);
    }
    for random in 0..10 {
        assert_eq!(servers.pick(TCP, after(0), random), 1);
    }
    // A little better is not enough, and nothing is looked at before its time.
    for _ in 0..50 {
        latency(&servers, 2, 35);
    }
    assert_eq!(servers.pick(TCP, after(6_000), 0), 1);
    for _ in 0..50 {
        latency(&servers, 2, 20);
    }
    assert_eq!(servers.pick(TCP, after(7_000), 0), 1);
    assert_eq!(servers.pick(TCP, after(12_000), 0), 2);
}

#[test]
fn a_marked_server_is_left_at_once_and_used_again() {
    let servers = servers(&[1000, 1000]);
    latency(&servers, 0, 10);
    latency(&servers, 1, 100);
    assert_eq!(servers.pick(TCP, after(0), 0), 0);
    let _ = servers[0].health.unreachable(after(1));
    assert_eq!(servers.pick(TCP, after(2), 0), 1);
    assert!(!servers.has_other(1, TCP, after(2)));
    assert!(servers.has_other(0, TCP, after(2)));
    let _ = servers[0].health.connected(Some(Duration::from_millis(10)));
    assert_eq!(servers.pick(TCP, after(10_000), 0), 0);
}

#[test]
fn with_all_of_them_marked_every_one_gets_its_turn() {
    let servers = servers(&[1000, 1000, 1000]);
    for server in &*servers {
        let _ = server.health.unreachable(after(0));
    }
    let first = servers.pick(TCP, after(1), 7);
    let second = servers.pick_after(first, TCP, after(1), 7);
    let third = servers.pick_after(second, TCP, after(1), 7);
    let mut seen = [first, second, third];
    seen.sort_unstable();
    assert_eq!(seen, [0, 1, 2]);
}

#[test]
fn a_silent_server_gets_one_trial_a_pause() {
    let servers = servers(&[1000, 1000]);
    latency(&servers, 0, 10);
    latency(&servers, 1, 100);
    assert_eq!(servers.pick(TCP, after(0), 0), 0);
    for target in 1..=4 {
        let _ = servers[0].health.unanswered(after(0), target);
    }
    assert_eq!(servers.pick(TCP, after(100), 0), 1);
    // Better than the other, and its pause is over: one connection finds out.
    let picks: Vec<_> = (0..20).map(|n| servers.pick(TCP, after(6_000 + n), 0)).collect();
    assert_eq!(picks.iter().filter(|at| **at == 0).count(), 1, "{picks:?}");
    // The next pause is twice as long.
    let picks: Vec<_> = (0..20).map(|n| servers.pick(TCP, after(8_500 + n), 0)).collect();
    assert!(!picks.contains(&0), "{picks:?}");
    assert_eq!(servers[0].health.answered(after(8_600)), Change::Up);
    assert_eq!(servers.pick(TCP, after(20_000), 0), 0);
}

#[test]
fn weights_make_servers_preferred_and_spares_last() {
    let servers = servers(&[500, 1000, 0]);
    latency(&servers, 0, 60);
    latency(&servers, 1, 100);
    latency(&servers, 2, 1);
    assert_eq!(servers.pick(TCP, after(0), 0), 1, "60 ms at half weight are 120 ms");
    let _ = servers[1].health.unreachable(after(1));
    assert_eq!(servers.pick(TCP, after(2), 0), 0);
    let _ = servers[0].health.unreachable(after(3));
    assert_eq!(servers.pick(TCP, after(4), 0), 2);
}

#[test]
fn equals_are_spread_over_clients() {
    let mut seen = [false; 3];
    for random in 0..3 {
        seen[servers(&[1000, 1000, 1000]).pick(TCP, after(0), random)] = true;
    }
    assert_eq!(seen, [true; 3]);
    assert_eq!(servers(&[1000]).pick(TCP, after(0), 5), 0);
}

#[test]
fn a_reload_keeps_the_server_in_use() {
    let old = servers(&[1000, 1000]);
    latency(&old, 0, 44);
    latency(&old, 1, 41);
    let _ = old[1].health.unreachable(after(0));
    assert_eq!(old.pick(TCP, after(1_000), 0), 0);
    let _ = old[1].health.connected(None);
    // The other one is better by less than what is worth a change.
    let new: Servers = old
        .iter()
        .rev()
        .map(|from| Upstream { health: Arc::clone(&from.health), ..server(from.weight) })
        .collect();
    assert_eq!(new.pick(TCP, after(2_000), 0), 1);
}

#[test]
fn patience_follows_the_latency() {
    let health = Health::new("h");
    assert_eq!(health.patience(), CONNECT_MOST);
    let _ = health.connected(Some(Duration::from_millis(20)));
    assert_eq!(health.patience(), CONNECT_LEAST);
    let health = Health::new("h");
    let _ = health.connected(Some(Duration::from_millis(600)));
    assert_eq!(health.patience(), Duration::from_millis(3_400));
}

#[test]
fn reports_in_one_line() {
    let health = Health::new("a.example:1 (A)");
    let _ = health.connected(Some(Duration::from_micros(12_345)));
    let line = health.report(after(0)).to_string();
    assert_eq!(
        line,
        "a.example:1 (A): tcp=up tcp_latency_ms=12.3 tcp_failures=0 udp=up udp_failures=0"
    );
    let _ = health.unreachable(after(0));
    let line = health.report(after(0)).to_string();
    assert!(line.contains("tcp=down") && line.contains("tcp_failures=1"), "{line}");
}
