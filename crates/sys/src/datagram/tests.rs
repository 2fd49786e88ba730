use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::net::sockopt;

use super::*;
use crate::net::{OutboundOptions, PortSharing, local_addr};

const TOKEN: u64 = 7;
const HEADROOM: usize = 100;
const TAILROOM: usize = 16;

fn listener(addr: &str, options: &DatagramOptions) -> (OwnedFd, SocketAddr) {
    let fd = bind(addr.parse().unwrap(), PortSharing::Exclusive, false, options).unwrap();
    let addr = local_addr(&fd).unwrap();
    (fd, addr)
}

fn plain(addr: &str) -> (UdpSocket, SocketAddr) {
    let socket = UdpSocket::bind(addr).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let addr = socket.local_addr().unwrap();
    (socket, addr)
}

fn upstream() -> OwnedFd {
    open(Family::V4, &OutboundOptions::default(), &DatagramOptions::default()).unwrap()
}

fn coalescing() -> DatagramOptions {
    DatagramOptions { coalesce: true, ..DatagramOptions::default() }
}

/// The bytes of datagram `n`, which tell it from others.
fn payload(n: usize, len: usize) -> Vec<u8> {
    (0..len).map(|i| (n * 31 + i * 7 + i / 256) as u8).collect()
}

fn inbox() -> Inbox {
    Inbox::new(HEADROOM, TAILROOM)
}

/// Builds a datagram in the outbox, payload behind some room for a head, as a codec would.
fn push(outbox: &mut Outbox, bytes: &[u8], route: &Route) {
    let room = outbox.reserve(64 + bytes.len() + 16).unwrap();
    room[64..64 + bytes.len()].copy_from_slice(bytes);
    outbox.push_reserved(64..64 + bytes.len(), route);
}

/// Flushes to one socket and checks that everything went.
fn flush(outbox: &mut Outbox, fd: &OwnedFd, sent: u64) -> Flushed {
    let flushed = outbox.flush(&inbox(), |token| {
        assert_eq!(token, TOKEN);
        Some(fd.as_fd())
    });
    assert_eq!(flushed, Flushed { sent, calls: flushed.calls, ..Flushed::default() });
    assert!(outbox.is_empty());
    flushed
}

/// Receives until `count` datagrams are there; also how many messages they came in.
fn receive(fd: &OwnedFd, count: usize) -> (Vec<(SocketAddr, Vec<u8>)>, usize) {
    let mut inbox = inbox();
    let (mut datagrams, mut messages) = (Vec::new(), 0);
    while datagrams.len() < count {
        wait(fd);
        messages += inbox.receive(fd).unwrap().messages;
        for index in 0..inbox.len() {
            let message = inbox.message(index);
            assert!(!message.truncated);
            for range in message.datagrams() {
                datagrams.push((message.source, inbox.slot(index)[range].to_vec()));
            }
        }
    }
    (datagrams, messages)
}

/// Waits until the socket has something to read.
fn wait(fd: &OwnedFd) {
    let poll = crate::poll::Poll::new().unwrap();
    poll.add(fd, 0, crate::poll::Interest::Level).unwrap();
    let mut events = crate::poll::Events::new();
    poll.wait(&mut events, Some(Duration::from_secs(5))).unwrap();
    assert_eq!(events.iter().count(), 1, "nothing came");
}

fn received(socket: &UdpSocket) -> Vec<u8> {
    let mut buf = vec![0; 1 << 16];
    let len = socket.recv(&mut buf).unwrap();
    buf.truncate(len);
    buf
}

#[test]
fn payloads_of_every_size_pass_both_ways() {
    for addr in ["127.0.0.1:0", "[::1]:0"] {
        let (fd, to) = listener(addr, &coalescing());
        let (client, client_addr) = plain(addr);
        let mut inbox = inbox();
        let mut outbox = Outbox::new(Segmentation::On);
        for (n, len) in [0, 1, 1200, 65_000, 65_507].into_iter().enumerate() {
            let bytes = payload(n, len);
            client.send_to(&bytes, to).unwrap();
            wait(&fd);
            assert_eq!(inbox.receive(&fd), Ok(Received { messages: 1, ignored: 0 }));
            let message = inbox.message(0);
            assert_eq!((message.source, message.segment()), (client_addr, None));
            assert_eq!(message.range(), HEADROOM..HEADROOM + len);
            assert_eq!(message.datagrams().collect::<Vec<_>>(), [message.range()]);
            assert_eq!(inbox.slot(0)[message.range()], bytes);

            // Wrapped in place and sent back.
            let wrapped = HEADROOM - usize::from(len < 65_000)..message.range().end;
            inbox.slot(0)[HEADROOM - 1] = 0xee;
            let place = inbox.place(0, wrapped.clone());
            outbox.push_received(place, &message.reply(TOKEN)).unwrap();
            let flushed = outbox.flush(&inbox, |_| Some(fd.as_fd()));
            assert_eq!(flushed, Flushed { sent: 1, calls: 1, ..Flushed::default() });
            assert_eq!(received(&client), inbox.slot(0)[wrapped]);
        }
        assert_eq!(inbox.receive(&fd), Ok(Received::default()));
        assert!(inbox.is_empty());
    }
}

#[test]
fn a_train_arrives_whole_and_in_order() {
    let (fd, to) = listener("127.0.0.1:0", &coalescing());
    let (from, lens) = (upstream(), [vec![1000; 64], vec![77]].concat());
    let mut outbox = Outbox::new(Segmentation::On);
    let route = Route::to(TOKEN, Family::V4, to);
    for (n, &len) in lens.iter().enumerate() {
        push(&mut outbox, &payload(n, len), &route);
    }
    let flushed = flush(&mut outbox, &from, 65);
    assert_eq!(flushed.calls, 1);
    let (datagrams, messages) = receive(&fd, 65);
    for (n, (_, bytes)) in datagrams.iter().enumerate() {
        assert_eq!(*bytes, payload(n, lens[n]));
    }
    // 63 and the last two.
    assert_eq!((datagrams.len(), messages), (65, 2));
}

#[test]
fn a_socket_that_does_not_coalesce_gets_single_datagrams() {
    let (fd, to) = listener("127.0.0.1:0", &DatagramOptions::default());
    let from = upstream();
    let mut outbox = Outbox::new(Segmentation::On);
    for n in 0..20 {
        push(&mut outbox, &payload(n, 500), &Route::to(TOKEN, Family::V4, to));
    }
    flush(&mut outbox, &from, 20);
    let (datagrams, messages) = receive(&fd, 20);
    assert_eq!(messages, 20);
    assert!((0..20).all(|n| datagrams[n].1 == payload(n, 500)));
}

/// Lengths that open, fill and close trains, with empty datagrams between.
fn mixed_lens() -> Vec<usize> {
    let cycle = [1200, 1200, 1200, 3, 1200, 0, 0, 40, 40, 41, 1, 1, 9000, 9000, 9000, 20];
    cycle.into_iter().cycle().take(90).collect()
}

/// Sends the mixed lengths to three destinations in turns and checks what arrives.
fn mixed(segmentation: Segmentation) -> u64 {
    let listeners = [0; 3].map(|_| listener("127.0.0.1:0", &coalescing()));
    let from = upstream();
    let mut outbox = Outbox::new(segmentation);
    let lens = mixed_lens();
    for (n, &len) in lens.iter().enumerate() {
        for (_, to) in &listeners {
            push(&mut outbox, &payload(n, len), &Route::to(TOKEN, Family::V4, *to));
        }
    }
    let flushed = flush(&mut outbox, &from, 3 * lens.len() as u64);
    for (fd, _) in &listeners {
        let (datagrams, _) = receive(fd, lens.len());
        for (n, (_, bytes)) in datagrams.iter().enumerate() {
            assert_eq!(*bytes, payload(n, lens[n]), "datagram {n}");
        }
    }
    flushed.calls
}

#[test]
fn mixed_destinations_keep_their_order() {
    assert!(mixed(Segmentation::On) <= 3, "trains of different destinations share calls");
}

#[test]
fn without_segmentation_the_same_bytes_arrive() {
    assert_eq!(Outbox::new(Segmentation::Off).segmentation(), Segmentation::Off);
    assert!(mixed(Segmentation::Off) >= 270 / 64);
}

#[test]
fn each_socket_takes_one_call() {
    let (fd, to) = listener("127.0.0.1:0", &coalescing());
    let sockets = [upstream(), upstream(), upstream()];
    let mut outbox = Outbox::new(Segmentation::On);
    for n in 0..30 {
        for token in [2, 0, 1] {
            push(&mut outbox, &payload(n, 100 + n % 7), &Route::to(token, Family::V4, to));
        }
    }
    let flushed = outbox.flush(&inbox(), |token| Some(sockets[token as usize].as_fd()));
    assert_eq!(flushed, Flushed { sent: 90, calls: 3, ..Flushed::default() });
    let (datagrams, _) = receive(&fd, 90);
    for socket in &sockets {
        let port = local_addr(socket).unwrap().port();
        let from = datagrams.iter().filter(|(source, _)| source.port() == port);
        let expected: Vec<_> = (0..30).map(|n| payload(n, 100 + n % 7)).collect();
        assert_eq!(from.map(|(_, bytes)| bytes.clone()).collect::<Vec<_>>(), expected);
    }
}

#[test]
fn a_train_that_the_path_refuses_is_sent_singly() {
    // The loopback device takes 65,536 bytes at once, so no segment is too long for it. A socket
    // that sends without checksums has its trains refused in the same way (EINVAL).
    let (fd, to) = listener("127.0.0.1:0", &coalescing());
    let from = upstream();
    crate::ffi::set_int(from.as_fd(), libc::SOL_SOCKET, libc::SO_NO_CHECK, 1).unwrap();
    let mut outbox = Outbox::new(Segmentation::On);
    let route = Route::to(TOKEN, Family::V4, to);
    for (round, calls) in [(0, 2), (1, 1), (2, 1)] {
        for n in 0..10 {
            push(&mut outbox, &payload(n, 600), &route);
        }
        // The refusal is one call, and it is remembered.
        assert_eq!(flush(&mut outbox, &from, 10).calls, calls, "round {round}");
        let (datagrams, messages) = receive(&fd, 10);
        assert_eq!(messages, 10);
        assert!((0..10).all(|n| datagrams[n].1 == payload(n, 600)));
    }
    // Shorter ones are tried again: the limit may have been the length.
    for n in 0..10 {
        push(&mut outbox, &payload(n, 500), &route);
    }
    assert_eq!(flush(&mut outbox, &from, 10).calls, 2);
    receive(&fd, 10);
}

#[test]
fn replies_leave_from_the_address_that_was_reached() {
    for (bound, ours, client) in [
        ("0.0.0.0:0", "127.0.0.2", "127.0.0.1:0"),
        ("[::]:0", "127.0.0.2", "127.0.0.1:0"),
        ("[::]:0", "::1", "[::1]:0"),
        ("127.0.0.3:0", "127.0.0.3", "127.0.0.1:0"),
    ] {
        let (fd, addr) = listener(bound, &coalescing());
        let (client, client_addr) = plain(client);
        let reached = SocketAddr::new(ours.parse().unwrap(), addr.port());
        client.connect(reached).unwrap();
        client.send(b"ping").unwrap();
        wait(&fd);
        let mut inbox = inbox();
        assert_eq!(inbox.receive(&fd).unwrap().messages, 1);
        let message = inbox.message(0);
        assert_eq!(message.source, client_addr);
        assert_eq!(message.local.unwrap().ip, reached.ip());
        assert_ne!(message.local.unwrap().interface, 0);

        let mut outbox = Outbox::new(Segmentation::On);
        for n in 0..3 {
            push(&mut outbox, &payload(n, 300), &message.reply(TOKEN));
        }
        flush(&mut outbox, &fd, 3);
        // A connected socket takes nothing from another address.
        assert!((0..3).all(|n| received(&client) == payload(n, 300)), "{bound} {ours}");
    }
}

#[test]
fn an_ipv6_only_listener_leaves_ipv4_to_another() {
    let any: SocketAddr = "[::]:0".parse().unwrap();
    let options = DatagramOptions::default();
    let v6 = bind(any, PortSharing::Exclusive, true, &options).unwrap();
    let port = local_addr(&v6).unwrap().port();
    let v4 = bind(
        SocketAddr::new("0.0.0.0".parse().unwrap(), port),
        PortSharing::Exclusive,
        false,
        &options,
    );
    v4.unwrap();
}

#[test]
fn listeners_share_a_port_only_when_asked() {
    let options = DatagramOptions::default();
    for (sharing, twice) in [(PortSharing::Shared, true), (PortSharing::Exclusive, false)] {
        let first = bind("127.0.0.1:0".parse().unwrap(), sharing, false, &options).unwrap();
        let addr = local_addr(&first).unwrap();
        assert_eq!(bind(addr, sharing, false, &options).is_ok(), twice);
    }
}

#[test]
fn a_connected_socket_reports_a_dead_port_without_an_error() {
    let (gone, addr) = plain("127.0.0.1:0");
    drop(gone);
    let fd = connect(addr, &OutboundOptions::default(), &DatagramOptions::default()).unwrap();
    let mut outbox = Outbox::new(Segmentation::On);
    let route = Route::connected(TOKEN, Family::V4);
    push(&mut outbox, b"one", &route);
    flush(&mut outbox, &fd, 1);
    wait(&fd);
    assert_eq!(inbox().receive(&fd), Ok(Received { messages: 0, ignored: 1 }));

    // A report that a send meets is not that datagram's own end.
    push(&mut outbox, b"two", &route);
    flush(&mut outbox, &fd, 1);
    wait(&fd);
    push(&mut outbox, b"three", &route);
    assert_eq!(flush(&mut outbox, &fd, 1).calls, 2);

    let listening = UdpSocket::bind(addr).unwrap();
    listening.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    wait(&fd);
    for n in 0..2 {
        push(&mut outbox, &payload(n, 10), &route);
    }
    flush(&mut outbox, &fd, 2);
    assert_eq!([received(&listening), received(&listening)], [payload(0, 10), payload(1, 10)]);
}

#[test]
fn what_cannot_go_is_counted_and_the_rest_goes() {
    let (client, to) = plain("127.0.0.1:0");
    let fd = upstream();
    let mut outbox = Outbox::new(Segmentation::On);
    let route = Route::to(TOKEN, Family::V4, to);
    let foreign = Route::to(TOKEN, Family::V4, "[::1]:9".parse().unwrap());
    let not_ours = LocalAddress { ip: "192.0.2.1".parse().unwrap(), interface: 0 };
    let port_zero = Route::to(TOKEN, Family::V4, "127.0.0.1:0".parse().unwrap());
    let gone = Route::to(TOKEN + 1, Family::V4, to);
    push(&mut outbox, b"first", &route);
    push(&mut outbox, &payload(0, 65_508), &route);
    push(&mut outbox, b"x", &foreign);
    for _ in 0..3 {
        push(&mut outbox, b"y", &route.with_source(Some(not_ours)));
    }
    push(&mut outbox, b"z", &port_zero);
    push(&mut outbox, b"gone", &gone);
    push(&mut outbox, b"last", &route);
    let flushed = outbox.flush(&inbox(), |token| (token == TOKEN).then(|| fd.as_fd()));
    assert_eq!((flushed.sent, flushed.too_long, flushed.failed, flushed.dropped), (2, 1, 5, 1));
    assert!(flushed.error.is_some());
    assert_eq!([received(&client), received(&client)], [b"first".to_vec(), b"last".to_vec()]);
    // None of it was the fault of a train.
    for n in 0..2 {
        push(&mut outbox, &payload(n, 20), &route);
    }
    assert_eq!(flush(&mut outbox, &fd, 2).calls, 1);
}

#[test]
fn a_full_outbox_says_so_and_has_room_again() {
    let (client, to) = plain("127.0.0.1:0");
    let fd = upstream();
    let mut outbox = Outbox::new(Segmentation::On);
    let route = Route::to(TOKEN, Family::V4, to);
    let mut big = 0;
    while let Ok(room) = outbox.reserve(60_000) {
        room.fill(1);
        // The head's room is given out again.
        outbox.push_reserved(50_000..60_000, &route);
        big += 1;
    }
    assert_eq!(big, (ARENA_LEN - 50_000) / 10_000);
    outbox.flush(&inbox(), |_| None);
    for _ in 0..DATAGRAMS_MAX {
        push(&mut outbox, b"", &route);
    }
    assert_eq!(outbox.reserve(1), Err(Full));
    let place = inbox().place(0, 0..1);
    assert_eq!(outbox.push_received(place, &route), Err(Full));
    assert_eq!(outbox.flush(&inbox(), |_| None).dropped, DATAGRAMS_MAX as u64);
    assert!(outbox.reserve(ARENA_LEN).is_ok());
    push(&mut outbox, b"ok", &route);
    flush(&mut outbox, &fd, 1);
    assert_eq!(received(&client), b"ok");
}

#[test]
#[should_panic(expected = "flushed before the inbox receives again")]
fn bytes_that_were_received_over_are_never_sent() {
    let (fd, to) = listener("127.0.0.1:0", &coalescing());
    let mut inbox = inbox();
    let mut outbox = Outbox::new(Segmentation::On);
    let place = inbox.place(0, 0..1);
    outbox.push_received(place, &Route::to(TOKEN, Family::V4, to)).unwrap();
    inbox.receive(&fd).unwrap();
    outbox.flush(&inbox, |_| Some(fd.as_fd()));
}

#[test]
fn options_reach_the_socket() {
    let fd = listener("[::]:0", &DatagramOptions { dscp: Some(46), ..coalescing() }).0;
    assert_eq!(sockopt::ip_tos(&fd).unwrap(), 46 << 2);
    assert_eq!(sockopt::ipv6_tclass(&fd).unwrap(), 46 << 2);
    // The kernel doubles what it is asked for, and a process without rights gets less.
    let default = sockopt::socket_recv_buffer_size(upstream()).unwrap();
    assert!(sockopt::socket_recv_buffer_size(&fd).unwrap() >= default);
    let small = DatagramOptions {
        send_buffer: Some(20_000),
        recv_buffer: Some(30_000),
        ..DatagramOptions::default()
    };
    let fd = listener("127.0.0.1:0", &small).0;
    assert_eq!(sockopt::socket_send_buffer_size(&fd).unwrap(), 40_000);
    assert_eq!(sockopt::socket_recv_buffer_size(&fd).unwrap(), 60_000);

    let outbound = OutboundOptions {
        bind_v4: Some("127.0.0.9".parse().unwrap()),
        interface: Some("lo".to_owned()),
        ..OutboundOptions::default()
    };
    let (client, to) = plain("127.0.0.1:0");
    let fd = open(Family::V4, &outbound, &DatagramOptions::default()).unwrap();
    let mut outbox = Outbox::new(Segmentation::On);
    push(&mut outbox, b"hello", &Route::to(TOKEN, Family::V4, to));
    flush(&mut outbox, &fd, 1);
    let source = client.recv_from(&mut [0; 9]).unwrap().1;
    assert_eq!(source.ip().to_string(), "127.0.0.9");
}

#[test]
fn this_kernel_has_trains() {
    segmentation_available().unwrap();
    coalescing_available().unwrap();
}

#[test]
fn tells_own_addresses_from_others() {
    for own in ["127.0.0.1", "127.8.9.10", "::1", "::ffff:127.0.0.1", "0.0.0.0", "::"] {
        assert!(is_local_address(own.parse().unwrap()), "{own}");
    }
    for other in ["192.0.2.1", "2001:db8::1", "224.0.0.1", "255.255.255.255", "ff02::1", "fe80::9"]
    {
        assert!(!is_local_address(other.parse().unwrap()), "{other}");
    }
}

#[test]
fn limits_are_kept_by_route_and_end() {
    let mut limits = train::TrainLimits::new(Segmentation::On);
    limits.refused(1, 1300);
    assert!(limits.allow(1, 1299));
    assert!(limits.allow(2, 1400));
    let held_back = (0..10_000).take_while(|_| !limits.allow(1, 1300)).count();
    assert_eq!(held_back, 1000);
    assert!(limits.allow(1, 1400));
}

#[test]
fn trains_pause_where_every_route_refuses_them() {
    let mut limits = train::TrainLimits::new(Segmentation::On);
    let digest = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for n in 0..15 {
        assert!(limits.allow(digest(n), 1000));
        limits.refused(digest(n), 1000);
    }
    limits.accepted();
    assert!(limits.allow(digest(99), 1000));
    for n in 0..16 {
        limits.refused(digest(n), 1000);
    }
    let held_back = (0..1_000_000).take_while(|_| !limits.allow(digest(99), 1000)).count();
    assert_eq!(held_back, 100_000);
    limits.refused(digest(99), 1000);
    assert!(!limits.allow(digest(98), 1000));
}
