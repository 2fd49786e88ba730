use std::net::SocketAddr;

use adit_wire::Target;

use super::*;

const SESSION: Key = Key { index: 3, generation: 1 };

fn target(name: &str, port: u16) -> For {
    let mut bytes = vec![3, u8::try_from(name.len()).unwrap()];
    bytes.extend_from_slice(name.as_bytes());
    bytes.extend_from_slice(&port.to_be_bytes());
    For::Target(Target::parse(&bytes).unwrap().0.into())
}

fn queue(queues: &mut Queues) -> Key {
    queues.open(SESSION, For::Server).unwrap()
}

#[test]
fn datagrams_come_out_as_they_went_in() {
    let (mut queues, mut pool) = (Queues::new(), Pool::new(256));
    let key = queue(&mut queues);
    let sent: [(&[u8], Vec<u8>); 4] =
        [(b"head", vec![1; 10]), (b"", vec![]), (b"", vec![2; 9000]), (b"address", vec![])];
    for (head, payload) in &sent {
        assert!(queues.push(key, &mut pool, head, payload));
    }
    let mut waiting = queues.close(key).unwrap();
    let mut buf = vec![0; LEN_MAX];
    for (head, payload) in &sent {
        let len = waiting.next(&mut pool, &mut buf).unwrap();
        assert_eq!(buf[..len], [head, &payload[..]].concat());
    }
    assert_eq!(waiting.next(&mut pool, &mut buf), None);
    assert_eq!((waiting.discard(&mut pool), pool.in_use()), (0, 0));
}

#[test]
fn the_longest_datagram_waits_and_a_longer_one_does_not() {
    let (mut queues, mut pool) = (Queues::new(), Pool::new(256));
    let key = queue(&mut queues);
    let payload = vec![7; LEN_MAX];
    assert!(!queues.push(key, &mut pool, b"x", &payload));
    assert!(queues.push(key, &mut pool, b"x", &payload[1..]));
    let mut waiting = queues.close(key).unwrap();
    let mut buf = vec![0; LEN_MAX];
    assert_eq!(waiting.next(&mut pool, &mut buf), Some(LEN_MAX));
}

#[test]
fn a_queue_is_bounded_in_datagrams_and_bytes() {
    let (mut queues, mut pool) = (Queues::new(), Pool::new(256));
    let key = queue(&mut queues);
    let taken = (0..100).filter(|_| queues.push(key, &mut pool, &[], &[0; 10])).count();
    assert_eq!(taken, DATAGRAMS_MAX as usize);
    let left = queues.close(key).unwrap().discard(&mut pool);
    assert_eq!((left, pool.in_use()), (DATAGRAMS_MAX, 0));
    let key = queue(&mut queues);
    let payload = vec![0; 20_000];
    let taken = (0..100).filter(|_| queues.push(key, &mut pool, &[], &payload)).count();
    assert_eq!(taken, 4, "80 KiB");
    queues.close(key).unwrap().discard(&mut pool);
}

#[test]
fn three_quarters_of_the_pool_are_left_alone() {
    let (mut queues, mut pool) = (Queues::new(), Pool::new(40));
    let key = queue(&mut queues);
    let taken = (0..32).filter(|_| queues.push(key, &mut pool, &[], &[0; 4000])).count();
    assert!((8..=11).contains(&taken), "{taken} blocks of 40");
    queues.close(key).unwrap().discard(&mut pool);
}

#[test]
fn a_queue_is_found_by_session_and_name_whatever_the_port() {
    let mut queues = Queues::new();
    let first = queues.open(SESSION, target("a.example", 53)).unwrap();
    let second = queues.open(SESSION, target("b.example", 53)).unwrap();
    let server = queues.open(SESSION, For::Server).unwrap();
    assert_eq!(queues.find(SESSION, &target("a.example", 443)), Some(first));
    assert_eq!(queues.find(SESSION, &target("b.example", 53)), Some(second));
    assert_eq!(queues.find(SESSION, &For::Server), Some(server));
    assert_eq!(queues.find(SESSION, &target("c.example", 53)), None);
    let other = Key { index: 3, generation: 2 };
    assert_eq!(queues.find(other, &For::Server), None);
    assert_eq!(queues.of(other), None);
    let literal: For = For::Target(Target::from(SocketAddr::from(([1, 2, 3, 4], 5))).into());
    assert_eq!(queues.find(SESSION, &literal), None);
}
