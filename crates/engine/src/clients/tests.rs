use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;

use super::*;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[test]
fn connections_and_sessions_have_limits_of_their_own() {
    let table = ClientTable::new(10, Some(2), Some(1));
    let client = ip("192.0.2.1");
    assert!(table.try_connection(client));
    assert!(table.try_connection(client));
    assert!(!table.try_connection(client));
    assert!(table.try_session(client));
    assert!(!table.try_session(client));
    assert!(table.try_connection(ip("192.0.2.2")));
    table.end_connection(client);
    assert!(table.try_connection(client));
    assert!(!table.try_connection(client));
    assert!(!table.try_session(client));
    table.end_session(client);
    assert!(table.try_session(client));
}

#[test]
fn without_a_limit_nobody_is_refused() {
    let table = ClientTable::new(1, None, Some(0));
    let clients = || (0..100).map(|n| IpAddr::from(Ipv4Addr::from_bits(n)));
    assert!(clients().all(|client| table.try_connection(client)));
    assert!(!table.try_session(ip("192.0.2.1")));
    // Most found the table full and went uncounted.
    clients().for_each(|client| table.end_connection(client));
    assert_eq!(table.shards[0].lock().unwrap().used, 0);
}

#[test]
fn a_new_limit_counts_what_began_under_the_old() {
    let table = ClientTable::new(10, None, None);
    let client = ip("192.0.2.1");
    assert!((0..5).all(|_| table.try_connection(client)));
    table.set_limits(Some(3), None);
    assert!(!table.try_connection(client));
    (0..3).for_each(|_| table.end_connection(client));
    assert!(table.try_connection(client));
    assert!(!table.try_connection(client));
    table.set_limits(None, Some(0));
    assert!(table.try_connection(client));
}

#[test]
fn a_client_has_one_count_whatever_the_form_of_its_address() {
    let table = ClientTable::new(10, Some(1), None);
    for (first, same) in [
        ("192.0.2.1", "::ffff:192.0.2.1"),
        ("2001:db8:1:2::1", "2001:db8:1:2:ffff:ffff:ffff:ffff"),
        ("::1", "::2"),
    ] {
        assert!(table.try_connection(ip(first)));
        assert!(!table.try_connection(ip(same)));
    }
    for other in ["192.0.2.2", "2001:db8:1:3::1", "2001:db8:1:1:ffff:ffff:ffff:ffff", "0.0.0.0"] {
        assert!(table.try_connection(ip(other)), "{other}");
    }
}

#[test]
fn a_full_table_refuses_strangers_only() {
    for capacity in [0, 1, 7, 1000] {
        let table = ClientTable::new(capacity, Some(2), None);
        let clients = (0..).map(|n| IpAddr::from(Ipv4Addr::from_bits(n)));
        let admitted: Vec<_> = clients.take_while(|&c| table.try_connection(c)).collect();
        assert!(admitted.len() >= capacity && admitted.len() < 4 * capacity.max(1));
        assert!(admitted.iter().all(|&c| table.try_connection(c)));
        let stranger = ip("2001:db8::1");
        assert_eq!(table.begin(Kind::Connection, stranger), Err(Refusal::Full));
        table.end_connection(admitted[0]);
        assert_eq!(table.begin(Kind::Connection, stranger), Err(Refusal::Full));
        table.end_connection(admitted[0]);
        assert_eq!(table.begin(Kind::Connection, stranger), Ok(()));
    }
}

#[test]
fn a_sharded_table_holds_what_it_was_made_for() {
    let table = ClientTable::new(2 * SHARDED_FROM, Some(1), None);
    assert_eq!(table.shards.len(), SHARDS);
    let clients = || (0..2 * SHARDED_FROM as u128).map(|n| IpAddr::from(Ipv6Addr::from(n << 64)));
    assert!(clients().all(|client| table.try_connection(client)));
    assert!(!clients().any(|client| table.try_connection(client)));
    clients().for_each(|client| table.end_connection(client));
    assert!(table.shards.iter().all(|shard| shard.lock().unwrap().used == 0));
}

#[test]
fn workers_share_the_counts() {
    let table = ClientTable::new(64, Some(1000), None);
    let admitted: usize = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| (0..500).filter(|_| table.try_connection(ip("192.0.2.1"))).count())
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(admitted, 1000);
}

#[test]
fn the_end_of_what_was_not_counted_is_nothing() {
    let table = ClientTable::new(1, Some(1), Some(1));
    let client = ip("192.0.2.1");
    table.end_connection(client);
    assert!(table.try_session(client));
    table.end_connection(client);
    assert!(table.try_connection(client));
    assert!(!table.try_connection(client) && !table.try_session(client));
}

proptest! {
    /// Against a plain map, with few clients in few slots, so that runs meet and wrap.
    #[test]
    fn counts_as_a_map_does(steps in proptest::collection::vec((0u32..12, 0usize..2, any::<bool>()), 0..400)) {
        let table = ClientTable::new(7, Some(3), Some(2));
        let limits = [3, 2];
        let mut model = BTreeMap::<u32, [u32; 2]>::new();
        for (client, kind, begins) in steps {
            let addr = IpAddr::from(Ipv4Addr::from_bits(client));
            let kinds = [Kind::Connection, Kind::Session];
            let counts = model.entry(client).or_default();
            if begins {
                let expected = if counts[kind] == limits[kind] {
                    Err(Refusal::Limit(limits[kind]))
                } else {
                    counts[kind] += 1;
                    Ok(())
                };
                prop_assert_eq!(table.begin(kinds[kind], addr), expected);
            } else if counts[kind] > 0 {
                counts[kind] -= 1;
                table.end(kinds[kind], addr);
            }
            model.retain(|_, counts| *counts != [0; 2]);
            prop_assert_eq!(table.shards[0].lock().unwrap().used, model.len());
        }
    }
}
