use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;
use crate::message::Ignored;
use crate::name::NameError;
use crate::reply_builder::{Answer, answer, error, negative, referral, truncated};

const MS: Duration = Duration::from_millis(1);

/// A lookup with the engine's part around it, under virtual time.
struct Bench {
    settings: Settings,
    lookup: Lookup,
    now: Instant,
    seed: u64,
}

/// A query as it left, without its TCP prefix.
#[derive(Clone, Debug)]
struct Sent {
    to: Transmit,
    bytes: Vec<u8>,
}

impl Sent {
    fn name(&self) -> String {
        let mut text = String::new();
        let mut rest = &self.bytes[12..];
        while rest[0] != 0 {
            let (label, tail) = rest[1..].split_at(rest[0].into());
            text += &String::from_utf8(label.to_ascii_lowercase()).unwrap();
            text.push('.');
            rest = tail;
        }
        text
    }

    /// The question's type: 1 or 28.
    fn rtype(&self) -> u8 {
        let end = 12 + self.name().len() + 1;
        self.bytes[end + 1]
    }

    fn has_edns(&self) -> bool {
        self.bytes[11] == 1
    }
}

impl Bench {
    fn new(resolv_conf: &str, name: &str) -> Self {
        Self::seeded(resolv_conf, name, 1)
    }

    fn seeded(resolv_conf: &str, name: &str, seed: u64) -> Self {
        let settings = Settings::from_resolv_conf(resolv_conf.as_bytes());
        let now = Instant::now();
        let mut seed = seed;
        let lookup = Lookup::start(&settings, name, now, &mut || next_random(&mut seed));
        Self { settings, lookup, now, seed }
    }

    fn sends(&mut self) -> Vec<Sent> {
        let mut sends = Vec::new();
        let mut out = [0; TRANSMIT_LEN_MAX];
        while let Some(to) = self.lookup.transmit(&mut out, &mut || next_random(&mut self.seed)) {
            let mut bytes = out[..to.len].to_vec();
            if to.transport == Transport::Tcp {
                let prefix: Vec<u8> = bytes.drain(..2).collect();
                assert_eq!(usize::from(u16::from_be_bytes([prefix[0], prefix[1]])), bytes.len());
            }
            sends.push(Sent { to, bytes });
        }
        sends
    }

    /// The pair of queries that opens an attempt: AAAA and A.
    fn pair(&mut self) -> [Sent; 2] {
        let [aaaa, a] = <[Sent; 2]>::try_from(self.sends()).unwrap();
        assert_eq!((aaaa.rtype(), a.rtype()), (28, 1));
        assert_eq!((aaaa.to.attempt, aaaa.to.server), (a.to.attempt, a.to.server));
        assert_ne!(aaaa.bytes[..2], a.bytes[..2]);
        [aaaa, a]
    }

    fn reply(&mut self, to: &Sent, bytes: &[u8]) -> Result<(), Ignored> {
        self.lookup.handle_message(&self.settings, self.now, to.to.server, to.to.transport, bytes)
    }

    fn answer(&mut self, to: &Sent, answers: &[Answer<'_>]) {
        let bytes = answer(&to.bytes, answers);
        assert_eq!(self.reply(to, &bytes), Ok(()));
    }

    fn error(&mut self, to: &Sent, rcode: u8) {
        assert_eq!(self.reply(to, &error(&to.bytes, rcode)), Ok(()));
    }

    fn negative(&mut self, to: &Sent, rcode: u8, ttl_s: u32) {
        assert_eq!(self.reply(to, &negative(&to.bytes, rcode, &[], (ttl_s, ttl_s))), Ok(()));
    }

    fn unreachable(&mut self) {
        let attempt = self.lookup.attempt();
        self.lookup.handle_unreachable(&self.settings, self.now, attempt);
    }

    /// Lets time pass up to the next deadline and returns how long that was.
    fn wait(&mut self) -> Duration {
        let deadline = self.lookup.next_deadline().expect("the lookup waits");
        let waited = deadline.saturating_duration_since(self.now);
        self.now += waited;
        self.lookup.handle_timeout(&self.settings, self.now);
        waited
    }

    fn outcome(&self) -> Outcome {
        assert_eq!(self.lookup.next_deadline(), None);
        self.lookup.outcome().expect("the lookup has ended")
    }
}

fn next_random(seed: &mut u64) -> u64 {
    // SplitMix64.
    *seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *seed;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn found(text: &str, ttl_s: u32) -> Outcome {
    Outcome::Found { addrs: text.split(' ').map(|t| t.parse().unwrap()).collect(), ttl_s }
}

const ONE: &str = "nameserver 192.0.2.1\n";
const TWO: &str = "nameserver 192.0.2.1\nnameserver 192.0.2.2\n";

#[test]
fn state_is_small() {
    assert!(size_of::<Lookup>() <= 1536, "{}", size_of::<Lookup>());
}

#[test]
fn both_families_answer() {
    let mut bench = Bench::new(ONE, "WWW.example");
    let [aaaa, a] = bench.pair();
    assert_eq!((a.name().as_str(), a.has_edns()), ("www.example.", true));
    assert_eq!((a.to.attempt, a.to.transport), (1, Transport::Udp));
    bench.answer(&a, &[("www.example", 60, "192.0.2.7"), ("www.example", 60, "192.0.2.8")]);
    assert_eq!(bench.lookup.outcome(), None);
    bench.answer(&aaaa, &[("www.example", 30, "2001:db8::7")]);
    assert_eq!(bench.outcome(), found("2001:db8::7 192.0.2.7 192.0.2.8", 30));
    assert!(bench.sends().is_empty());
    let late = answer(&a.bytes, &[]);
    assert_eq!(bench.reply(&a, &late), Err(Ignored::Ended));
}

#[test]
fn slower_family_gets_the_resolution_delay() {
    for first in [0, 1] {
        let mut bench = Bench::new(ONE, "www.example");
        let pair = bench.pair();
        bench.now += 300 * MS;
        let addr = ["2001:db8::7", "192.0.2.7"][first];
        bench.answer(&pair[first], &[("www.example", 600, addr)]);
        bench.lookup.handle_timeout(&bench.settings, bench.now + 49 * MS);
        assert_eq!(bench.lookup.outcome(), None);
        assert_eq!(bench.wait(), RESOLUTION_DELAY);
        assert_eq!(bench.outcome(), found(addr, PARTIAL_TTL_MAX_S));
    }
}

#[test]
fn one_family_with_addresses_is_enough() {
    type Fail = fn(&mut Bench, &Sent);
    let fails: [(Fail, u32); 4] = [
        (|bench, sent| bench.negative(sent, 0, 60), 600),
        (|bench, sent| bench.negative(sent, 3, 60), 600),
        (|bench, sent| bench.error(sent, 2), PARTIAL_TTL_MAX_S),
        (|bench, sent| bench.error(sent, 5), PARTIAL_TTL_MAX_S),
    ];
    for (fail, ttl_s) in fails {
        for fail_first in [true, false] {
            let mut bench = Bench::new(TWO, "www.example");
            let [aaaa, a] = bench.pair();
            if fail_first {
                fail(&mut bench, &aaaa);
            }
            bench.answer(&a, &[("www.example", 600, "192.0.2.7")]);
            if !fail_first {
                fail(&mut bench, &aaaa);
            }
            assert_eq!(bench.outcome(), found("192.0.2.7", ttl_s));
        }
    }
}

#[test]
fn negative_answers_end_the_lookup() {
    for (rcodes, wanted) in [
        ([3, 3], Outcome::NoSuchName { ttl_s: 20 }),
        ([0, 0], Outcome::NoAddress { ttl_s: 20 }),
        ([0, 3], Outcome::NoAddress { ttl_s: 20 }),
    ] {
        let mut bench = Bench::new(ONE, "www.example");
        let [aaaa, a] = bench.pair();
        bench.negative(&a, rcodes[0], 40);
        bench.negative(&aaaa, rcodes[1], 20);
        assert_eq!(bench.outcome(), wanted);
    }
}

#[test]
fn candidates_follow_ndots_and_the_search_list() {
    let search = "search a.example b.example\n";
    for (conf, name, wanted) in [
        ("", "host", vec!["host."]),
        (search, "host", vec!["host.a.example.", "host.b.example.", "host."]),
        (search, "host.x", vec!["host.x.", "host.x.a.example.", "host.x.b.example."]),
        (search, "host.", vec!["host."]),
        (search, "host.x.", vec!["host.x."]),
        ("search a.example\noptions ndots:3\n", "h.x.y", vec!["h.x.y.a.example.", "h.x.y."]),
        ("search a.example\noptions ndots:0\n", "h", vec!["h.", "h.a.example."]),
        ("domain a.example\n", "h", vec!["h.a.example.", "h."]),
        ("search .\n", "h", vec!["h."]),
    ] {
        let mut bench = Bench::new(&format!("{ONE}{conf}"), name);
        let mut names = Vec::new();
        while bench.lookup.outcome().is_none() {
            let [aaaa, a] = bench.pair();
            names.push(a.name());
            bench.negative(&aaaa, 3, 60);
            bench.negative(&a, 3, 60);
        }
        assert_eq!(names, wanted, "{conf:?} {name}");
        assert_eq!(bench.outcome(), Outcome::NoSuchName { ttl_s: 60 });
    }
}

#[test]
fn search_candidates_that_are_too_long_are_left_out() {
    let name = format!("{}b", "a.".repeat(123));
    let mut bench = Bench::new(&format!("{ONE}search long.example\noptions ndots:15"), &name);
    let [_, a] = bench.pair();
    assert_eq!(a.name(), format!("{name}."));
    let mut bench = Bench::new(&format!("{ONE}search {name}"), "too-long");
    let [_, a] = bench.pair();
    assert_eq!(a.name(), "too-long.");
}

#[test]
fn search_goes_on_after_empty_names_and_server_failures() {
    let mut bench = Bench::new(&format!("{ONE}search a.example\noptions attempts:1"), "host");
    let [aaaa, a] = bench.pair();
    bench.negative(&aaaa, 0, 60);
    bench.negative(&a, 0, 60);
    let [aaaa, a] = bench.pair();
    assert_eq!((a.name().as_str(), a.to.attempt), ("host.", 2));
    bench.negative(&aaaa, 3, 30);
    bench.negative(&a, 3, 30);
    assert_eq!(bench.outcome(), Outcome::NoAddress { ttl_s: 30 });

    let mut bench = Bench::new(&format!("{ONE}search a.example\noptions attempts:1"), "host");
    let [aaaa, a] = bench.pair();
    bench.error(&aaaa, 2);
    bench.error(&a, 2);
    let [aaaa, a] = bench.pair();
    bench.negative(&aaaa, 3, 30);
    bench.negative(&a, 3, 30);
    assert_eq!(bench.outcome(), Outcome::Failed(Failure::ServerFailure));
}

#[test]
fn server_failures_go_to_the_next_server_at_once() {
    type Replier = fn(&[u8]) -> Vec<u8>;
    let replies: [Replier; 3] = [|q| error(q, 2), |q| error(q, 5), referral];
    for reply in replies {
        let mut bench = Bench::new(TWO, "www.example");
        let [aaaa, a] = bench.pair();
        bench.negative(&aaaa, 0, 60);
        let bytes = reply(&a.bytes);
        assert_eq!(bench.reply(&a, &bytes), Ok(()));
        // Only the open question is asked again.
        let sends = bench.sends();
        assert_eq!(sends.len(), 1);
        assert_eq!((sends[0].rtype(), sends[0].to.attempt), (1, 2));
        assert_eq!(sends[0].to.server.to_string(), "192.0.2.2:53");
        bench.answer(&sends[0], &[("www.example", 60, "192.0.2.7")]);
        assert_eq!(bench.outcome(), found("192.0.2.7", 60));
    }
}

#[test]
fn servers_take_turns_until_attempts_are_used_up() {
    let mut bench = Bench::new(TWO, "www.example");
    let mut seen = Vec::new();
    while bench.lookup.outcome().is_none() {
        let [aaaa, a] = bench.pair();
        seen.push((a.to.attempt, a.to.server.to_string()));
        bench.error(&a, 2);
        bench.error(&aaaa, 2);
    }
    let (one, two) = ("192.0.2.1:53".to_owned(), "192.0.2.2:53".to_owned());
    assert_eq!(seen, [(1, one.clone()), (2, two.clone()), (3, one), (4, two)]);
    assert_eq!(bench.outcome(), Outcome::Failed(Failure::ServerFailure));
}

#[test]
fn silence_ends_within_the_overall_time() {
    for (conf, waits) in [
        (ONE.to_owned(), vec![5000; 2]),
        (format!("{ONE}options timeout:1 attempts:5"), vec![1000; 5]),
        (format!("{ONE}options timeout:30 attempts:1"), vec![10_000]),
        (TWO.to_owned(), vec![2500; 4]),
        (format!("{TWO}options attempts:5"), vec![1000; 10]),
        (format!("{TWO}nameserver 192.0.2.3\noptions attempts:5"), vec![1000; 10]),
    ] {
        let mut bench = Bench::new(&conf, "www.example");
        let mut seen = Vec::new();
        while bench.lookup.outcome().is_none() {
            bench.pair();
            seen.push(bench.wait().as_millis());
        }
        assert_eq!(seen, waits, "{conf}");
        assert_eq!(bench.outcome(), Outcome::Failed(Failure::Timeout));
    }
}

#[test]
fn silence_about_one_candidate_stops_the_search() {
    // Another name must not take the place of one that nobody could tell us about.
    let mut bench =
        Bench::new(&format!("{ONE}search a.example\noptions timeout:1 attempts:1"), "host");
    bench.pair();
    bench.wait();
    assert_eq!(bench.outcome(), Outcome::Failed(Failure::Timeout));
}

#[test]
fn missing_name_in_one_family_counts_when_the_other_stays_silent() {
    let mut bench = Bench::new(&format!("{ONE}options timeout:1"), "www.example");
    let [aaaa, _] = bench.pair();
    bench.negative(&aaaa, 3, 60);
    bench.wait();
    assert_eq!(bench.sends().len(), 1);
    bench.wait();
    assert_eq!(bench.outcome(), Outcome::NoSuchName { ttl_s: 60 });
}

#[test]
fn unreachable_servers_are_passed_at_once() {
    let mut bench = Bench::new(TWO, "www.example");
    let start = bench.now;
    bench.pair();
    bench.unreachable();
    let [_, a] = bench.pair();
    assert_eq!(a.to.server.to_string(), "192.0.2.2:53");
    // A late report about the first attempt changes nothing.
    bench.lookup.handle_unreachable(&bench.settings, bench.now, 1);
    assert!(bench.sends().is_empty());
    for _ in 0..3 {
        bench.unreachable();
        bench.sends();
    }
    assert_eq!(bench.now, start);
    assert_eq!(bench.outcome(), Outcome::Failed(Failure::Unreachable));
}

#[test]
fn truncated_answers_move_that_question_to_tcp() {
    let mut bench = Bench::new(ONE, "www.example");
    let [aaaa, a] = bench.pair();
    assert_eq!(bench.reply(&a, &truncated(&a.bytes)), Ok(()));
    let sends = bench.sends();
    assert_eq!(sends.len(), 1);
    let tcp = &sends[0];
    assert_eq!((tcp.rtype(), tcp.to.transport, tcp.to.attempt), (1, Transport::Tcp, 1));
    // The answer must come over TCP and may not be forged over UDP.
    let bytes = answer(&tcp.bytes, &[("www.example", 60, "192.0.2.7")]);
    let over_udp = Sent { to: Transmit { transport: Transport::Udp, ..tcp.to }, ..tcp.clone() };
    assert_eq!(bench.reply(&over_udp, &bytes), Err(Ignored::Id));
    bench.negative(&aaaa, 0, 60);
    assert_eq!(bench.reply(tcp, &bytes), Ok(()));
    assert_eq!(bench.outcome(), found("192.0.2.7", 60));
}

#[test]
fn failing_tcp_goes_to_the_next_server() {
    let mut bench = Bench::new(TWO, "www.example");
    let [aaaa, a] = bench.pair();
    bench.negative(&aaaa, 0, 60);
    assert_eq!(bench.reply(&a, &truncated(&a.bytes)), Ok(()));
    assert_eq!(bench.sends()[0].to.transport, Transport::Tcp);
    bench.unreachable();
    let sends = bench.sends();
    assert_eq!(sends[0].to.transport, Transport::Udp);
    assert_eq!(sends[0].to.server.to_string(), "192.0.2.2:53");
}

#[test]
fn servers_without_edns_are_asked_without_it() {
    for rcode in [1, 4] {
        let mut bench = Bench::new(TWO, "www.example");
        let [aaaa, a] = bench.pair();
        bench.error(&a, rcode);
        let [aaaa2, a2] = bench.pair();
        assert_eq!((a2.to.attempt, a2.to.server, a2.has_edns()), (2, a.to.server, false));
        let stale = error(&aaaa.bytes, rcode);
        assert_eq!(bench.reply(&aaaa, &stale), Err(Ignored::Id));
        bench.answer(&a2, &[("www.example", 60, "192.0.2.7")]);
        bench.negative(&aaaa2, 0, 60);
        assert_eq!(bench.outcome(), found("192.0.2.7", 60));
    }
}

#[test]
fn servers_that_change_the_case_are_asked_in_lower_case() {
    let mut bench = Bench::new(ONE, "www.example");
    let [_, a] = bench.pair();
    let mut bytes = answer(&a.bytes, &[("www.example", 60, "192.0.2.7")]);
    bytes[12..25].make_ascii_lowercase();
    assert_ne!(bytes[12..25], a.bytes[12..25]);
    assert_eq!(bench.reply(&a, &bytes), Err(Ignored::Case));
    let [aaaa2, a2] = bench.pair();
    assert_eq!((a2.to.attempt, a2.to.server), (2, a.to.server));
    assert_eq!(&a2.bytes[12..25], b"\x03www\x07example\0");
    bench.negative(&aaaa2, 0, 60);
    let mut bytes = answer(&a2.bytes, &[("www.example", 60, "192.0.2.7")]);
    bytes[12..25].make_ascii_uppercase();
    assert_eq!(bench.reply(&a2, &bytes), Ok(()));
    assert_eq!(bench.outcome(), found("192.0.2.7", 60));
}

#[test]
fn forged_messages_are_ignored_and_counted() {
    let mut bench = Bench::new(TWO, "www.example");
    let [aaaa, a] = bench.pair();
    let evil = answer(&a.bytes, &[("www.example", 60, "192.0.2.66")]);
    let mut wrong_id = evil.clone();
    wrong_id[0] ^= 0x40;
    assert_eq!(bench.reply(&a, &wrong_id), Err(Ignored::Id));
    let mut wrong_name = evil.clone();
    wrong_name[13] ^= 1;
    assert_eq!(bench.reply(&a, &wrong_name), Err(Ignored::Question));
    let mut wrong_type = answer(&aaaa.bytes, &[("www.example", 60, "2001:db8::66")]);
    wrong_type[..2].copy_from_slice(&a.bytes[..2]);
    assert_eq!(bench.reply(&a, &wrong_type), Err(Ignored::Question));
    let other = SocketAddr::from(([192, 0, 2, 2], 53));
    let from_other = Sent { to: Transmit { server: other, ..a.to }, ..a.clone() };
    assert_eq!(bench.reply(&from_other, &evil), Err(Ignored::Server));
    let query = a.bytes.clone();
    assert_eq!(bench.reply(&a, &query), Err(Ignored::NotResponse));
    assert_eq!(bench.reply(&a, &[]), Err(Ignored::Malformed));
    assert_eq!(bench.reply(&a, &vec![0; MESSAGE_LEN_MAX + 1]), Err(Ignored::TooLong));
    assert_eq!((bench.lookup.ignored(), bench.sends().len()), (7, 0));
    bench.negative(&aaaa, 0, 60);
    let again = negative(&aaaa.bytes, 0, &[], (60, 60));
    assert_eq!(bench.reply(&aaaa, &again), Err(Ignored::Duplicate));
    bench.answer(&a, &[("www.example", 60, "192.0.2.7")]);
    assert_eq!(bench.outcome(), found("192.0.2.7", 60));
}

#[test]
fn guessing_at_ids_moves_the_questions_to_tcp() {
    let mut bench = Bench::new(ONE, "www.example");
    let [_, a] = bench.pair();
    let mut bytes = answer(&a.bytes, &[("www.example", 60, "192.0.2.66")]);
    for guess in 0..NEAR_MISSES_MAX {
        bytes[..2].copy_from_slice(&[a.bytes[0] ^ 0x80, guess]);
        assert_eq!(bench.reply(&a, &bytes), Err(Ignored::Id));
    }
    let [aaaa, a2] = bench.pair();
    assert_eq!((a2.to.transport, a2.to.attempt), (Transport::Tcp, 1));
    bench.negative(&aaaa, 0, 60);
    bench.answer(&a2, &[("www.example", 60, "192.0.2.7")]);
    assert_eq!(bench.outcome(), found("192.0.2.7", 60));
}

#[test]
fn replies_of_a_link_local_server_match_by_scope() {
    let server: SocketAddr = "[fe80::1%3]:53".parse().unwrap();
    assert!(is_same_server(server, server));
    assert!(!is_same_server("[fe80::1%4]:53".parse().unwrap(), server));
    let global: SocketAddr = "[2001:db8::1]:53".parse().unwrap();
    assert!(is_same_server("[2001:db8::1%9]:53".parse().unwrap(), global));
    assert!(!is_same_server("[2001:db8::1]:54".parse().unwrap(), global));
}

#[test]
fn options_change_transport_families_and_first_server() {
    let mut bench = Bench::new(&format!("{ONE}options use-vc"), "www.example");
    assert_eq!(bench.pair()[0].to.transport, Transport::Tcp);
    let mut bench = Bench::new(&format!("{ONE}options no-aaaa"), "www.example");
    let sends = bench.sends();
    assert_eq!((sends.len(), sends[0].rtype()), (1, 1));
    bench.answer(&sends[0], &[("www.example", 600, "192.0.2.7")]);
    assert_eq!(bench.outcome(), found("192.0.2.7", 600));
    let conf = format!("{TWO}options rotate");
    let firsts: Vec<_> =
        (0..32).map(|seed| Bench::seeded(&conf, "a", seed).pair()[0].to.server).collect();
    assert!(firsts.iter().any(|server| *server != firsts[0]));
}

#[test]
fn names_that_cannot_be_asked_for_fail_at_once() {
    let mut bench = Bench::new(ONE, "bücher.example");
    assert!(bench.sends().is_empty());
    assert_eq!(bench.outcome(), Outcome::Failed(Failure::Name(NameError::NonAscii)));
}

#[test]
fn attempts_have_fresh_ids_and_fresh_case() {
    let mut bench = Bench::new(ONE, "a-name-with-many-letters.example");
    let [_, first] = bench.pair();
    bench.wait();
    let [_, second] = bench.pair();
    assert_ne!(first.bytes[..2], second.bytes[..2]);
    assert_ne!(first.bytes[12..], second.bytes[12..]);
    assert_eq!(first.name(), second.name());
}

#[test]
fn settings_may_change_under_a_lookup() {
    let mut bench = Bench::new(&format!("{TWO}search a.example b.example"), "host");
    bench.pair();
    bench.unreachable();
    bench.settings = Settings::default();
    let mut steps = 0;
    while bench.lookup.outcome().is_none() {
        bench.sends();
        bench.wait();
        steps += 1;
        assert!(steps < 20);
    }
}

/// A nameserver behind a network that loses, delays, doubles and forges; everything follows from
/// the seed. Returns the outcome and how long it took.
fn run_lossy(seed: u64, loss_percent: u64) -> (Outcome, Duration, u32) {
    let conf = format!("{TWO}search a.example\noptions timeout:1 attempts:3");
    let mut bench = Bench::seeded(&conf, "host", seed);
    let start = bench.now;
    let mut net = seed ^ 0xdead_beef;
    let mut wire: VecDeque<(Instant, Sent, Vec<u8>)> = VecDeque::new();
    let mut attempts = 0;
    for _ in 0..2000 {
        for sent in bench.sends() {
            attempts = sent.to.attempt.into();
            if next_random(&mut net) % 100 < loss_percent {
                continue;
            }
            let reply = match (next_random(&mut net) % 10, sent.to.transport) {
                (0, _) => error(&sent.bytes, 2),
                (1, Transport::Udp) => truncated(&sent.bytes),
                (2, _) => error(&sent.bytes, 1),
                (3, _) => {
                    let mut bad = answer(&sent.bytes, &[]);
                    bad[0] ^= 1;
                    bad
                }
                _ if sent.name() != "host." => negative(&sent.bytes, 3, &[], (60, 60)),
                _ if sent.rtype() == 28 => answer(&sent.bytes, &[("host", 60, "2001:db8::1")]),
                _ => answer(&sent.bytes, &[("host", 60, "192.0.2.7")]),
            };
            for _ in 0..1 + next_random(&mut net) % 2 {
                let delay = u32::try_from(next_random(&mut net) % 200).unwrap() * MS;
                wire.push_back((bench.now + delay, sent.clone(), reply.clone()));
            }
        }
        let Some(deadline) = bench.lookup.next_deadline() else {
            return (bench.outcome(), bench.now - start, attempts);
        };
        assert!(deadline <= start + LOOKUP_TIMEOUT);
        wire.make_contiguous().sort_by_key(|(at, ..)| *at);
        match wire.pop_front_if(|(at, ..)| *at <= deadline) {
            Some((at, sent, reply)) => {
                bench.now = bench.now.max(at);
                let _ = bench.reply(&sent, &reply);
            }
            None => {
                bench.wait();
            }
        }
    }
    panic!("seed {seed}: the lookup does not end");
}

#[test]
fn lookups_end_within_bounds_on_a_bad_network() {
    let mut found = [0; 4];
    for (count, loss) in found.iter_mut().zip([0, 20, 50, 95]) {
        for seed in 0..300 {
            let (outcome, took, attempts) = run_lossy(seed, loss);
            assert!(took <= LOOKUP_TIMEOUT, "seed {seed}");
            assert!(attempts <= 2 * 6 + 2, "seed {seed}: {attempts}");
            if let Outcome::Found { addrs, .. } = outcome {
                assert!(!addrs.is_empty());
                *count += 1;
            }
        }
    }
    assert!(found[0] > 290 && found[1] > 270 && found[3] < 100, "{found:?}");
}

proptest! {
    #[test]
    fn junk_never_panics_and_never_ends_a_lookup(
        pieces in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..80), 0..20),
    ) {
        let mut bench = Bench::new(ONE, "www.example");
        let [_, a] = bench.pair();
        for mut piece in pieces {
            if piece.len() > 2 {
                piece[..2].copy_from_slice(&a.bytes[..2]);
            }
            let _ = bench.reply(&a, &piece);
        }
        let is_found = matches!(bench.lookup.outcome(), Some(Outcome::Found { .. }));
        prop_assert!(!is_found);
    }

    #[test]
    fn fuzz_bodies_hold_on_random_data(data in proptest::collection::vec(any::<u8>(), 0..600)) {
        crate::fuzz::lookup(Instant::now(), &data);
        crate::fuzz::resolv_conf(&data);
        crate::fuzz::hosts(&data);
    }
}
