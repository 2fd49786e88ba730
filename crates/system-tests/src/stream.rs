//! The test's own ends of connections.

use std::io::{ErrorKind, Read};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use crate::PATIENCE;

/// How a stream ended, as its reader sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ending {
    /// An orderly end.
    Fin,
    /// A reset.
    Reset,
    /// It had not ended.
    Open,
}

/// Connects to a loopback port; reads and writes give up after [`PATIENCE`].
///
/// # Panics
/// When nothing listens there.
pub fn connect(port: u16) -> TcpStream {
    let stream = TcpStream::connect(SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    patient(stream.expect("connect to a program under test"))
}

/// As [`connect`], with the smallest receive buffer there is: what the test does not read waits
/// in the program under test, and not in the kernel.
///
/// # Panics
/// When nothing listens there.
pub fn connect_narrow(port: u16) -> TcpStream {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, socket_with, sockopt};
    let flags = SocketFlags::CLOEXEC;
    let fd = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None);
    let fd = fd.expect("make a socket");
    // It counts from the handshake on.
    sockopt::set_socket_recv_buffer_size(&fd, 1).expect("set an option");
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    connect(&fd, &address).expect("connect to a program under test");
    patient(TcpStream::from(fd))
}

/// Gives a stream its time limits.
pub(crate) fn patient(stream: TcpStream) -> TcpStream {
    stream.set_read_timeout(Some(PATIENCE)).expect("set a time limit");
    stream.set_write_timeout(Some(PATIENCE)).expect("set a time limit");
    stream.set_nodelay(true).expect("set an option");
    stream
}

/// Reads to the end, which must come.
pub fn ending(stream: &TcpStream) -> (Vec<u8>, Ending) {
    read_on(stream)
}

/// What has come by this moment, without waiting.
///
/// # Panics
/// When the stream cannot be made non-blocking.
pub fn poke(stream: &TcpStream) -> (Vec<u8>, Ending) {
    stream.set_nonblocking(true).expect("set an option");
    let found = read_on(stream);
    stream.set_nonblocking(false).expect("set an option");
    found
}

fn read_on(mut stream: &TcpStream) -> (Vec<u8>, Ending) {
    let mut all = Vec::new();
    let mut buf = vec![0; 64 * 1024];
    loop {
        match stream.read(&mut buf) {
            Ok(0) => return (all, Ending::Fin),
            Ok(n) => all.extend_from_slice(&buf[..n]),
            Err(e) => match e.kind() {
                ErrorKind::WouldBlock | ErrorKind::TimedOut => return (all, Ending::Open),
                ErrorKind::Interrupted => {}
                ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => return (all, Ending::Reset),
                _ => panic!("reading failed: {e}"),
            },
        }
    }
}

/// Reads exactly so many bytes.
///
/// # Panics
/// When they do not come.
pub fn read_exactly(mut stream: &TcpStream, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    if let Err(e) = stream.read_exact(&mut bytes) {
        panic!("expected {len} bytes: {e}");
    }
    bytes
}

/// Closes a stream with a reset.
///
/// # Panics
/// When the option cannot be set.
pub fn reset(stream: TcpStream) {
    rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).expect("set SO_LINGER");
    drop(stream);
}
