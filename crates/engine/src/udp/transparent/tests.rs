use std::net::UdpSocket;

use super::*;

fn name(n: usize) -> Name {
    let n = u16::try_from(n).unwrap();
    (SocketAddr::from(([192, 0, 2, 1], 1000 + n)), None)
}

/// Any descriptor: what it is bound to makes no difference here.
fn descriptor() -> OwnedFd {
    UdpSocket::bind("127.0.0.1:0").unwrap().into()
}

/// Names from the oldest to the newest, which must agree with the index and the slab.
fn order(sockets: &ReplySockets) -> Vec<Name> {
    let mut order = Vec::new();
    let mut index = sockets.oldest;
    while let Some(socket) = sockets.at(index) {
        assert_eq!(sockets.index.get(&socket.name).map(|key| key.index), Some(index));
        order.push(socket.name);
        index = socket.newer;
    }
    assert_eq!((order.len(), order.len()), (sockets.slab.len(), sockets.index.len()));
    order
}

#[test]
fn a_use_makes_a_socket_the_newest() {
    let mut sockets = ReplySockets::new();
    for n in 0..3 {
        sockets.insert(name(n), descriptor(), 0).unwrap();
    }
    assert!(sockets.find(&name(0), 5).is_some());
    assert_eq!(sockets.find(&name(7), 5), None);
    assert_eq!(order(&sockets), [name(1), name(2), name(0)]);
    assert!(sockets.find(&name(0), 6).is_some(), "found as the newest");
    assert!(sockets.find(&name(2), 6).is_some());
    assert_eq!(order(&sockets), [name(1), name(0), name(2)]);
    assert!(sockets.remove_oldest());
    assert_eq!(order(&sockets), [name(0), name(2)]);
    assert_eq!(sockets.find(&name(1), 6), None);
}

#[test]
fn marks_tell_sockets_of_one_address_apart() {
    let mut sockets = ReplySockets::new();
    let (plain, marked) = (name(1), (name(1).0, Some(7)));
    let first = sockets.insert(plain, descriptor(), 0).unwrap();
    assert_eq!(sockets.find(&marked, 0), None);
    let second = sockets.insert(marked, descriptor(), 0).unwrap();
    assert_ne!(first, second);
    assert_eq!((sockets.find(&plain, 0), sockets.find(&marked, 0)), (Some(first), Some(second)));
}

#[test]
fn the_number_is_bounded_and_the_memory_does_not_grow() {
    let mut sockets = ReplySockets::new();
    let room = sockets.index.capacity();
    for n in 0..20 * SOCKETS_MAX {
        if sockets.is_full() {
            assert!(sockets.remove_oldest());
        }
        let name = (SocketAddr::from(([192, 0, 2, 1], 1 + (n % 60_000) as u16)), None);
        sockets.insert(name, descriptor(), n as Tick).unwrap();
        assert!(sockets.slab.len() <= SOCKETS_MAX);
    }
    assert_eq!(order(&sockets).len(), SOCKETS_MAX);
    // Less it may say: traces of removed entries count as taken.
    assert!(sockets.index.capacity() <= room);
    assert!(sockets.insert(name(0), descriptor(), 0).is_none(), "no room");
}

#[test]
fn the_oldest_says_when_it_is_due() {
    let mut sockets = ReplySockets::new();
    assert_eq!(sockets.next_in(0), None);
    assert!(!sockets.remove_oldest());
    sockets.insert(name(0), descriptor(), 10).unwrap();
    sockets.insert(name(1), descriptor(), 20).unwrap();
    assert_eq!(sockets.next_in(10), Some(ticks(IDLE)));
    assert_eq!(sockets.next_in(10 + ticks(IDLE)), Some(0));
    assert_eq!(sockets.next_in(30 + ticks(IDLE)), Some(0));
    sockets.find(&name(0), 25).unwrap();
    assert_eq!(sockets.next_in(20), Some(ticks(IDLE)), "the other one is the oldest");
}

#[test]
fn nobody_answers_from_where_no_host_is() {
    for ip in [
        "0.0.0.0",
        "127.0.0.1",
        "127.9.9.9",
        "224.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "ff02::1",
    ] {
        assert!(!may_answer(ip.parse().unwrap()), "{ip}");
    }
    for ip in ["8.8.8.8", "10.0.0.1", "2001:db8::1", "fd00::1"] {
        assert!(may_answer(ip.parse().unwrap()), "{ip}");
    }
}
