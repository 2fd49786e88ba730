//! The host that datagrams are relayed to.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};

use crate::failure::Failure;
use crate::target::{Host, PORT_TRIES};

/// A host with a port, on every address that it is known by.
pub(crate) struct DatagramTarget {
    host: Host,
    port: u16,
    sockets: Vec<Bound>,
}

struct Bound {
    socket: UdpSocket,
    address: SocketAddr,
    /// Another port of the same address.
    neighbour: UdpSocket,
}

/// A datagram that has arrived.
pub(crate) struct Arrival {
    /// The address that it was sent to.
    pub(crate) to: SocketAddr,
    /// Where it came from.
    pub(crate) from: SocketAddr,
    /// Bytes at the start of the buffer.
    pub(crate) len: usize,
}

impl DatagramTarget {
    /// Opens a port on every address that `host` may stand for.
    ///
    /// # Errors
    /// When this machine lacks an address or a port.
    pub(crate) fn open(host: Host) -> Result<Self, Failure> {
        let bind = |port| match host {
            Host::Ipv4 => Ok(vec![Bound::new((Ipv4Addr::LOCALHOST, port).into())?]),
            Host::Ipv6 => Ok(vec![Bound::new((Ipv6Addr::LOCALHOST, port).into())?]),
            Host::Name => {
                let v4 = Bound::new((Ipv4Addr::LOCALHOST, port).into())?;
                let v6 = Bound::new((Ipv6Addr::LOCALHOST, v4.address.port()).into())?;
                Ok(vec![v4, v6])
            }
        };
        let mut tries = 0;
        let opened: std::io::Result<_> = loop {
            tries += 1;
            let sockets = bind(0);
            if sockets.is_ok() || tries == PORT_TRIES {
                break sockets;
            }
        };
        let sockets = opened.map_err(Failure::io(format!("open a UDP port as {host:?}")))?;
        Ok(Self { host, port: sockets[0].address.port(), sockets })
    }

    /// How clients name it.
    pub(crate) fn host(&self) -> Host {
        self.host
    }

    /// Its port.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// The sockets, to wait for; in the order of their numbers.
    pub(crate) fn sockets(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.sockets.iter().map(|bound| bound.socket.as_fd())
    }

    /// Receives a datagram that waits on the socket with this number.
    pub(crate) fn receive(&self, socket: usize, buffer: &mut [u8]) -> Result<Arrival, Failure> {
        let bound = &self.sockets[socket];
        let received = bound.socket.recv_from(buffer);
        let (len, from) = received.map_err(Failure::io("receive as the target"))?;
        Ok(Arrival { to: bound.address, from, len })
    }

    /// Sends a datagram from the address with this number.
    pub(crate) fn send(
        &self,
        socket: usize,
        to: SocketAddr,
        payload: &[u8],
    ) -> Result<(), Failure> {
        send(&self.sockets[socket].socket, to, payload)
    }

    /// Sends a datagram from another port of the address with this number, and returns that
    /// address with port.
    pub(crate) fn send_as_neighbour(
        &self,
        socket: usize,
        to: SocketAddr,
        payload: &[u8],
    ) -> Result<SocketAddr, Failure> {
        let neighbour = &self.sockets[socket].neighbour;
        send(neighbour, to, payload)?;
        neighbour.local_addr().map_err(Failure::io("ask for a neighbour's port"))
    }
}

impl Bound {
    fn new(address: SocketAddr) -> std::io::Result<Self> {
        let socket = UdpSocket::bind(address)?;
        let address = socket.local_addr()?;
        let neighbour = UdpSocket::bind((address.ip(), 0))?;
        Ok(Self { socket, address, neighbour })
    }
}

fn send(socket: &UdpSocket, to: SocketAddr, payload: &[u8]) -> Result<(), Failure> {
    let sent = socket.send_to(payload, to);
    sent.map_err(Failure::io(format!("send {} bytes as the target", payload.len()))).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::readiness::first_readable;
    use std::time::{Duration, Instant};

    #[test]
    fn receives_on_every_address_of_a_name() {
        let target = DatagramTarget::open(Host::Name).unwrap();
        for (number, ip) in ["127.0.0.1", "::1"].into_iter().enumerate() {
            let ip: std::net::IpAddr = ip.parse().unwrap();
            let socket = UdpSocket::bind((ip, 0)).unwrap();
            socket.send_to(b"four", (ip, target.port())).unwrap();
            let deadline = Instant::now() + Duration::from_secs(20);
            assert_eq!(first_readable(target.sockets(), deadline).unwrap(), Some(number));
            let arrival = target.receive(number, &mut [0; 10]).unwrap();
            assert_eq!((arrival.to.ip(), arrival.len), (ip, 4));
            assert_eq!(arrival.from, socket.local_addr().unwrap());
        }
    }
}
