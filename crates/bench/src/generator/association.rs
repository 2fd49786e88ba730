//! A UDP association: a socket for datagrams, and what surrounds their payload on the way.
//!
//! Invariants: the socket is connected, so that only the relay (or the target itself) is heard; the
//! SOCKS5 connection that holds the association stays open as long as the value lives.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};

use adit_sys::datagram::{Family, Route};

use super::{Destination, Entry, batch, socks};

/// A client's way to one destination.
pub(crate) struct Association {
    /// Where datagrams leave and echoes arrive.
    pub(crate) socket: UdpSocket,
    /// The way of every datagram that is sent.
    pub(crate) route: Route,
    /// What precedes each payload that is sent.
    pub(crate) header: Vec<u8>,
    /// Number of the next datagram; never used twice.
    pub(crate) next: u64,
    /// What may precede the payload of an echo.
    reply_headers: Vec<Vec<u8>>,
    /// Closing it ends the association at the SOCKS5 server.
    _control: Option<TcpStream>,
}

impl Association {
    /// Sets up the way to `destination`, which is asked for by SOCKS5 where that is spoken.
    pub(crate) fn open(entry: Entry, destination: Destination) -> io::Result<Self> {
        let (control, relay, header, reply_headers) = match entry {
            Entry::Socks5(local) => {
                let (control, relay) = socks::associate(local)?;
                let header = socks::datagram_header(&destination);
                (Some(control), relay, header, reply_headers(destination))
            }
            Entry::Direct | Entry::Tunnel(_) => {
                (None, entry.first_hop(destination), Vec::new(), vec![Vec::new()])
            }
        };
        let any_port: SocketAddr = match relay {
            SocketAddr::V4(_) => (Ipv4Addr::LOCALHOST, 0).into(),
            SocketAddr::V6(_) => (Ipv6Addr::LOCALHOST, 0).into(),
        };
        let socket = UdpSocket::bind(any_port)?;
        socket.connect(relay)?;
        batch::prepare(&socket)?;
        let route = Route::connected(0, Family::of(relay.ip()));
        Ok(Self { socket, route, header, next: 0, reply_headers, _control: control })
    }

    /// The payload of an echo; `None` when the echo claims to come from elsewhere.
    pub(crate) fn payload<'a>(&self, echo: &'a [u8]) -> Option<&'a [u8]> {
        self.reply_headers.iter().find_map(|header| echo.strip_prefix(header.as_slice()))
    }
}

/// The headers that tell the truth about an echo. A name may stay one, or become an address.
fn reply_headers(destination: Destination) -> Vec<Vec<u8>> {
    let mut sources = vec![destination];
    if let Destination::Localhost(port) = destination {
        sources.push(Destination::Ip((Ipv4Addr::LOCALHOST, port).into()));
        sources.push(Destination::Ip((Ipv6Addr::LOCALHOST, port).into()));
    }
    sources.iter().map(socks::datagram_header).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn association(reply_headers: Vec<Vec<u8>>) -> Association {
        Association {
            socket: UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap(),
            route: Route::connected(0, Family::V4),
            header: Vec::new(),
            next: 0,
            reply_headers,
            _control: None,
        }
    }

    #[test]
    fn believes_the_target_alone() {
        let target = Destination::Ip(SocketAddr::from(([127, 0, 0, 1], 7)));
        let association = association(reply_headers(target));
        let echo = [0, 0, 0, 1, 127, 0, 0, 1, 0, 7, b'x'];
        assert_eq!(association.payload(&echo), Some(&b"x"[..]));
        for at in 0..10 {
            let mut wrong = echo;
            wrong[at] ^= 1;
            assert_eq!(association.payload(&wrong), None, "byte {at}");
        }
        assert_eq!(association.payload(&echo[..9]), None);
    }

    #[test]
    fn lets_a_name_become_an_address() {
        let association = association(reply_headers(Destination::Localhost(7)));
        for source in [
            Destination::Localhost(7),
            Destination::Ip((Ipv4Addr::LOCALHOST, 7).into()),
            Destination::Ip((Ipv6Addr::LOCALHOST, 7).into()),
        ] {
            assert_eq!(association.payload(&socks::datagram_header(&source)), Some(&b""[..]));
        }
        let elsewhere = socks::datagram_header(&Destination::Localhost(8));
        assert_eq!(association.payload(&elsewhere), None);
    }
}
