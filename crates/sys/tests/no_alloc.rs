//! Counts heap allocations of datagrams: none once the inbox and the outbox are made.

#![allow(clippy::unwrap_used, reason = "the functions here are a test's")]

use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};

use adit_counting_allocator::allocations;
use adit_sys::datagram::{
    DatagramOptions, Family, Inbox, Outbox, Route, Segmentation, bind, connect, open,
};
use adit_sys::net::{OutboundOptions, PortSharing, local_addr};

const DATAGRAMS: u64 = 10_000;
/// Datagrams in a round: a few trains, which any receive buffer holds.
const ROUND: usize = 25;

/// Receives `count` datagrams and answers each with its own bytes.
fn echo(inbox: &mut Inbox, outbox: &mut Outbox, fd: &OwnedFd, count: usize) {
    let mut seen = 0;
    while seen < count {
        inbox.receive(fd).unwrap();
        for index in 0..inbox.len() {
            let message = inbox.message(index);
            for range in message.datagrams() {
                let place = inbox.place(index, range);
                outbox.push_received(place, &message.reply(0)).unwrap();
                seen += 1;
            }
        }
        outbox.flush(inbox, |_| Some(fd.as_fd()));
    }
}

fn rounds(inbox: &mut Inbox, outbox: &mut Outbox, server: &OwnedFd, client: (&OwnedFd, Route)) {
    let (fd, route) = client;
    let mut back = 0;
    while back < DATAGRAMS {
        for n in 0..ROUND {
            // Equal lengths and others, so that there are trains and single datagrams.
            let len = if n % 5 == 4 { 90 * n } else { 700 };
            outbox.reserve(len).unwrap().fill(n as u8);
            outbox.push_reserved(0..len, &route);
        }
        let flushed = outbox.flush(inbox, |_| Some(fd.as_fd()));
        assert_eq!((flushed.sent, flushed.error), (ROUND as u64, None));
        echo(inbox, outbox, server, ROUND);
        let mut seen = 0;
        while seen < ROUND {
            inbox.receive(fd).unwrap();
            seen += (0..inbox.len()).map(|n| inbox.message(n).datagrams().count()).sum::<usize>();
        }
        back += ROUND as u64;
    }
}

#[test]
fn datagrams_allocate_nothing_once_the_memory_is_there() {
    let options = DatagramOptions { coalesce: true, ..DatagramOptions::default() };
    let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
    let server = bind(any, PortSharing::Exclusive, false, &options).unwrap();
    let to = local_addr(&server).unwrap();
    let unconnected = open(Family::V4, &OutboundOptions::default(), &options).unwrap();
    let connected = connect(to, &OutboundOptions::default(), &options).unwrap();
    let clients = [
        (&unconnected, Route::to(0, Family::V4, to)),
        (&connected, Route::connected(0, Family::V4)),
    ];
    for segmentation in [Segmentation::On, Segmentation::Off] {
        let mut inbox = Inbox::new(1300, 16);
        let mut outbox = Outbox::new(segmentation);
        for client in clients {
            let count = allocations(|| rounds(&mut inbox, &mut outbox, &server, client));
            assert_eq!(count, 0, "{segmentation:?}");
        }
    }
    assert_eq!(allocations(|| drop(std::hint::black_box(Box::new(1)))), 1, "the counter counts");
}
