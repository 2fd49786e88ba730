//! The server that connections are relayed to.

use std::net::{Ipv4Addr, Ipv6Addr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use crate::failure::Failure;
use crate::readiness::first_readable;

/// How long a connection may take to arrive.
const ACCEPT_TIMEOUT: Duration = Duration::from_secs(20);
/// How often a port that is free for both address families is looked for.
pub(crate) const PORT_TRIES: usize = 50;

/// How a client names the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Host {
    /// As 127.0.0.1.
    Ipv4,
    /// As ::1.
    Ipv6,
    /// As `localhost`, which the server looks up and may take for either address.
    Name,
}

impl Host {
    /// Every way.
    pub(crate) const ALL: [Self; 3] = [Self::Ipv4, Self::Ipv6, Self::Name];

    /// As in configuration files.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Ipv4 => "127.0.0.1",
            Self::Ipv6 => "::1",
            Self::Name => "localhost",
        }
    }

    /// `host:port` as people write it.
    pub(crate) fn with_port(self, port: u16) -> String {
        match self {
            Self::Ipv4 | Self::Name => format!("{}:{port}", self.name()),
            Self::Ipv6 => format!("[{}]:{port}", self.name()),
        }
    }
}

/// A listening server for one connection.
pub(crate) struct Target {
    port: u16,
    listeners: Vec<TcpListener>,
}

impl Target {
    /// Listens on every address that `host` may stand for.
    ///
    /// # Errors
    /// When this machine lacks an address or a port.
    pub(crate) fn listen(host: Host) -> Result<Self, Failure> {
        let listener = match host {
            Host::Ipv4 => TcpListener::bind((Ipv4Addr::LOCALHOST, 0)),
            Host::Ipv6 => TcpListener::bind((Ipv6Addr::LOCALHOST, 0)),
            Host::Name => return Self::listen_twice(),
        };
        let listener = listener.map_err(Failure::io(format!("listen as {host:?}")))?;
        let address = listener.local_addr().map_err(Failure::io("ask for a target's port"))?;
        Ok(Self { port: address.port(), listeners: vec![listener] })
    }

    fn listen_twice() -> Result<Self, Failure> {
        let io = || Failure::io("listen as localhost");
        let mut tries = 0;
        loop {
            let v4 = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(io())?;
            let port = v4.local_addr().map_err(io())?.port();
            tries += 1;
            match TcpListener::bind((Ipv6Addr::LOCALHOST, port)) {
                Ok(v6) => return Ok(Self { port, listeners: vec![v4, v6] }),
                Err(error) if tries == PORT_TRIES => return Err(io()(error)),
                Err(_) => {}
            }
        }
    }

    /// Its port.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Waits for the connection.
    pub(crate) fn accept(&self) -> Result<TcpStream, Failure> {
        let accepted = self.accept_within(ACCEPT_TIMEOUT)?;
        accepted.ok_or_else(|| Failure::new("no connection arrived"))
    }

    /// Takes a connection that has arrived already, if there is one.
    pub(crate) fn accept_waiting(&self) -> Result<Option<TcpStream>, Failure> {
        self.accept_within(Duration::ZERO)
    }

    fn accept_within(&self, timeout: Duration) -> Result<Option<TcpStream>, Failure> {
        let ready =
            first_readable(self.listeners.iter().map(AsFd::as_fd), Instant::now() + timeout)?;
        let Some(listener) = ready.and_then(|index| self.listeners.get(index)) else {
            return Ok(None);
        };
        let (stream, _) = listener.accept().map_err(Failure::io("accept a connection"))?;
        Ok(Some(stream))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_on_every_address_of_a_name() {
        for address in ["127.0.0.1", "::1"] {
            let target = Target::listen(Host::Name).unwrap();
            assert!(target.accept_waiting().unwrap().is_none());
            let address: std::net::IpAddr = address.parse().unwrap();
            let _stream = TcpStream::connect((address, target.port())).unwrap();
            target.accept().unwrap();
        }
    }
}
