//! Free ports that stay free until a program under test takes them, for TCP and UDP.
//!
//! They are none of those that the kernel gives to whoever asks for any port: nobody gets one by
//! accident, however many sockets other tests have open. And each has a connection in TIME_WAIT:
//! whoever looks for a port the way it is done here passes it by, while a program can bind it with
//! SO_REUSEADDR, as ours do.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU16, Ordering};

use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with};

/// Below are ports of well-known services.
const FIRST: u16 = 10_000;

/// A port that nobody else will be given for a minute.
///
/// # Panics
/// When there is none.
pub fn reserve() -> u16 {
    static NEXT: OnceLock<AtomicU16> = OnceLock::new();
    let (first, count) = range();
    // Test programs that run at the same time begin at different places.
    let start =
        || AtomicU16::new(u16::try_from(RandomState::new().hash_one(0) & 0x3FFF).unwrap_or(0));
    let next = NEXT.get_or_init(start);
    for _ in 0..count {
        let port = first + next.fetch_add(1, Ordering::Relaxed) % count;
        if occupy(port).is_ok() {
            return port;
        }
    }
    panic!("no port is free");
}

/// The first port that the kernel gives to nobody, and how many there are.
fn range() -> (u16, u16) {
    let text = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range");
    let text = text.unwrap_or_default();
    let given: Vec<u16> = text.split_ascii_whitespace().filter_map(|n| n.parse().ok()).collect();
    match given[..] {
        [low, _] if low > FIRST + 1000 => (FIRST, low - FIRST),
        [_, high] if high < u16::MAX - 1000 => (high + 1, u16::MAX - high),
        // The kernel gives all of them, or does not say.
        _ => (FIRST, 20_000),
    }
}

/// Leaves a connection in TIME_WAIT at a port that is free.
fn occupy(port: u16) -> io::Result<()> {
    let address = SocketAddr::from((Ipv4Addr::UNSPECIFIED, port));
    // Without SO_REUSEADDR, so that what others have reserved counts as taken.
    let probe = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    bind(&probe, &address)?;
    drop(probe);
    UdpSocket::bind(address)?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
    let outgoing = TcpStream::connect(listener.local_addr()?)?;
    let (accepted, _) = listener.accept()?;
    // The end that closes first keeps TIME_WAIT, and the reservation with it.
    drop(accepted);
    drop(outgoing);
    Ok(())
}
