//! Associations through a relay of our own that does one thing wrong.

use super::*;
use std::thread;

const LENS: Lens = Lens { upload: 3, download: 1200 };

/// Runs an exchange through a tunnel that passes each datagram from the target as what `mangle`
/// makes of its number and its bytes, and every one to the target as it is; returns the failure.
fn exchange(mangle: impl Fn(usize, &[u8]) -> Vec<Vec<u8>> + Sync) -> Option<String> {
    let target = DatagramTarget::open(Host::Ipv4).unwrap();
    let [near, far] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
    far.connect(("127.0.0.1", target.port())).unwrap();
    let mut association = Association::new(near.local_addr().unwrap(), Wrapping::Tunnel).unwrap();
    let client = association.socket.local_addr().unwrap();
    // An empty datagram of somebody else ends a thread.
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut buffer = [0; 2000];
            while let Ok((len @ 1.., _)) = near.recv_from(&mut buffer) {
                far.send(&buffer[..len]).unwrap();
            }
        });
        scope.spawn(|| {
            let mut buffer = [0; 2000];
            for number in 0.. {
                let Ok(len @ 1..) = far.recv(&mut buffer) else { break };
                for datagram in mangle(number, &buffer[..len]) {
                    near.send_to(&datagram, client).unwrap();
                }
            }
        });
        let outcome = association.exchange(&target, LENS);
        UdpSocket::bind("127.0.0.1:0").unwrap().send_to(&[], near.local_addr().unwrap()).unwrap();
        target.send(0, far.local_addr().unwrap(), &[]).unwrap();
        outcome.err().map(|failure| failure.to_string())
    })
}

#[test]
fn forgives_a_loss() {
    assert_eq!(exchange(|_, datagram| vec![datagram.to_vec()]), None);
    let mangle = |number, datagram: &[u8]| vec![datagram.to_vec(); usize::from(number != 0)];
    assert_eq!(exchange(mangle), None);
}

#[test]
fn finds_a_wrong_byte() {
    let mangle = |number, datagram: &[u8]| {
        let mut datagram = datagram.to_vec();
        datagram[1100] ^= u8::from(number == 5);
        vec![datagram]
    };
    let words = exchange(mangle).unwrap();
    assert_eq!(words, "client: 1200 bytes instead of 1200, wrong at offset 1100");
}

#[test]
fn finds_what_is_missing_and_what_is_too_much() {
    let words = exchange(|_, datagram| vec![datagram[..1199].to_vec()]).unwrap();
    assert_eq!(words, "client: 1199 bytes instead of 1200, wrong at offset 1199");
    let words = exchange(|_, datagram| vec![[datagram, &[0]].concat()]).unwrap();
    assert_eq!(words, "client: 1201 bytes instead of 1200, wrong at offset 1200");
}

#[test]
fn finds_what_comes_twice() {
    let twice = |number, datagram: &[u8]| vec![datagram.to_vec(); 1 + usize::from(number == 2)];
    let words = exchange(twice).unwrap();
    assert_eq!(words, "client: 1200 bytes came twice");
}

#[test]
fn finds_a_wrong_source() {
    let relay = UdpSocket::bind("127.0.0.1:0").unwrap();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let association = Association::new(relay.local_addr().unwrap(), Wrapping::Tunnel).unwrap();
    let control = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let control = TcpStream::connect(control.local_addr().unwrap()).unwrap();
    let wrapping = Wrapping::Socks5 { _control: control, named: Named::Name };
    let association = Association { wrapping, ..association };
    let arrived = socket.local_addr().unwrap();
    let name = |port| Some(Address::Name("localhost".to_owned(), port));
    let check = |source, host| association.check_source(source, host, arrived);
    check(name(arrived.port()), Host::Name).unwrap();
    check(name(arrived.port()), Host::Ipv4).unwrap_err();
    check(name(relay.local_addr().unwrap().port()), Host::Name).unwrap_err();
    check(Some(Address::Ip(arrived)), Host::Ipv4).unwrap();
    check(Some(Address::Ip(arrived)), Host::Name).unwrap_err();
    check(Some(Address::Ip(relay.local_addr().unwrap())), Host::Ipv4).unwrap_err();
}
