//! Ports for programs that cannot be told "any free port".
//!
//! A program listens with TCP and UDP on one number, so both have to be free. Linux hands the ports
//! of one range to those who ask for any port, and every datagram socket of every test does; a port
//! outside of that range is taken only by somebody who names it. Tests, of one process or of
//! several, claim a number by the name of an abstract Unix socket: one socket at most has a name,
//! and names belong to a network namespace, as ports do.
//!
//! A connection in TIME_WAIT is no good as a claim: when a machine has many, Linux keeps no more.

use std::fs;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::ops::RangeInclusive;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use crate::failure::Failure;

/// The ports that Linux hands out.
const HANDED_OUT: &str = "/proc/sys/net/ipv4/ip_local_port_range";
/// Ports below are for programs of root.
const LOWEST: u16 = 1024;
/// How often a port is drawn.
const DRAWS: usize = 10_000;

/// A loopback port for TCP and UDP, given to nobody else before it is dropped.
pub(crate) struct Port {
    number: u16,
    _claim: UnixDatagram,
}

impl Port {
    /// Finds a free port.
    ///
    /// # Errors
    /// When there is none.
    pub(crate) fn reserve() -> Result<Self, Failure> {
        let handed_out = handed_out()?;
        for _ in 0..DRAWS {
            let drawn = RandomState::new().build_hasher().finish() as u16;
            if drawn < LOWEST || handed_out.contains(&drawn) {
                continue;
            }
            match Self::claim(drawn) {
                Ok(port) => return Ok(port),
                Err(error) if error.kind() == ErrorKind::AddrInUse => {}
                Err(error) => return Err(Failure::io("reserve a port")(error)),
            }
        }
        Err(Failure::new(format!("no free port outside of {HANDED_OUT}")))
    }

    /// Its number.
    pub(crate) fn number(&self) -> u16 {
        self.number
    }

    fn claim(number: u16) -> io::Result<Self> {
        let name = format!("adit-interop-port-{number}");
        let claim = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(name)?)?;
        TcpListener::bind((Ipv4Addr::LOCALHOST, number))?;
        UdpSocket::bind((Ipv4Addr::LOCALHOST, number))?;
        Ok(Self { number, _claim: claim })
    }
}

fn handed_out() -> Result<RangeInclusive<u16>, Failure> {
    let text = fs::read_to_string(HANDED_OUT);
    let text = text.map_err(Failure::io(format!("read {HANDED_OUT}")))?;
    let mut ports = text.split_ascii_whitespace().map(str::parse);
    match (ports.next(), ports.next()) {
        (Some(Ok(first)), Some(Ok(last))) => Ok(first..=last),
        _ => Err(Failure::new(format!("{HANDED_OUT} has no two ports: {text}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gives_no_port_twice_and_lets_it_be_bound() {
        let port = Port::reserve().unwrap();
        let number = port.number();
        let refused = |number| Port::claim(number).err().map(|error| error.kind());
        assert_eq!(refused(number), Some(ErrorKind::AddrInUse));
        let tcp = TcpListener::bind((Ipv4Addr::LOCALHOST, number)).unwrap();
        let udp = UdpSocket::bind((Ipv4Addr::LOCALHOST, number)).unwrap();
        drop(port);
        assert_eq!(refused(number), Some(ErrorKind::AddrInUse));
        drop(tcp);
        assert_eq!(refused(number), Some(ErrorKind::AddrInUse));
        drop(udp);
        assert_eq!(refused(number), None);
    }

    #[test]
    fn gives_no_port_that_linux_hands_out() {
        let handed_out = handed_out().unwrap();
        assert!((0..20).all(|_| !handed_out.contains(&Port::reserve().unwrap().number())));
    }
}
