//! An echo target: one thread, one epoll, any number of connections.
//!
//! Contract: answers every byte and closes when the client does. Cost per set-up: accept, one read,
//! one write, one read that sees the end, close; no allocation unless a client does not read. It
//! must never be the slow part of a measurement.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token, Waker};

use crate::error::{Context, Error};

/// Tokens from here up are connections; below are listeners.
const FIRST_CONNECTION: usize = 64;
/// Token of the waker, the last one below the connections.
const WAKE: Token = Token(FIRST_CONNECTION - 1);
/// How often a port may turn out to be taken on the second loopback address.
const PORT_ATTEMPTS: usize = 20;

/// A running echo target; stopped when dropped.
pub(crate) struct EchoTarget {
    addrs: Vec<SocketAddr>,
    stop: Arc<AtomicBool>,
    waker: Waker,
    thread: Option<JoinHandle<()>>,
}

impl EchoTarget {
    /// Listens on a free port of each of `count` loopback addresses (127.0.2.1 and up).
    ///
    /// Several addresses keep a proxy's outgoing connections from running out of ports: a
    /// TIME_WAIT holds a port for one pair of addresses only.
    pub(crate) fn on_many_addresses(count: u8) -> Result<Self, Error> {
        let listeners = (1..=count.min(FIRST_CONNECTION as u8 - 2))
            .map(|host| TcpListener::bind(SocketAddr::from(([127, 0, 2, host], 0))))
            .collect::<io::Result<Vec<_>>>();
        Self::start(listeners.context(|| "cannot listen on loopback".to_owned())?)
    }

    /// Listens on one port of 127.0.0.1, and of ::1 where there is one, so that `localhost` is
    /// right whichever address it becomes.
    pub(crate) fn on_localhost() -> Result<Self, Error> {
        let context = || "cannot listen on localhost".to_owned();
        for _ in 0..PORT_ATTEMPTS {
            let any_port = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
            let first = TcpListener::bind(any_port).context(context)?;
            let port = first.local_addr().context(context)?.port();
            match TcpListener::bind(SocketAddr::from((Ipv6Addr::LOCALHOST, port))) {
                Ok(second) => return Self::start(vec![first, second]),
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
                // No IPv6 on this machine.
                Err(_) => return Self::start(vec![first]),
            }
        }
        Err(Error::Run("no port is free on both localhosts".to_owned()))
    }

    fn start(mut listeners: Vec<TcpListener>) -> Result<Self, Error> {
        let context = || "cannot start the echo target".to_owned();
        let poll = Poll::new().context(context)?;
        let mut addrs = Vec::new();
        for (index, listener) in listeners.iter_mut().enumerate() {
            addrs.push(listener.local_addr().context(context)?);
            let registered = poll.registry().register(listener, Token(index), Interest::READABLE);
            registered.context(context)?;
        }
        let waker = Waker::new(poll.registry(), WAKE).context(context)?;
        let stop = Arc::new(AtomicBool::new(false));
        let mut server = Server {
            poll,
            listeners,
            connections: Vec::new(),
            free: Vec::new(),
            buffer: vec![0; 16 * 1024],
        };
        let stopped = Arc::clone(&stop);
        let thread = std::thread::Builder::new().name("echo".to_owned()).spawn(move || {
            if let Err(error) = server.run(&stopped) {
                crate::report::note(&format!("the echo target failed: {error}"));
            }
        });
        Ok(Self { addrs, stop, waker, thread: Some(thread.context(context)?) })
    }

    /// The addresses it listens on with IPv4.
    pub(crate) fn addrs(&self) -> impl Iterator<Item = SocketAddr> {
        self.addrs.iter().copied().filter(|addr| matches!(addr.ip(), IpAddr::V4(_)))
    }
}

impl Drop for EchoTarget {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Err(error) = self.waker.wake() {
            crate::report::note(&format!("cannot stop the echo target: {error}"));
        } else if self.thread.take().is_some_and(|t| t.join().is_err()) {
            crate::report::note("the echo target panicked");
        }
    }
}

struct Server {
    poll: Poll,
    listeners: Vec<TcpListener>,
    connections: Vec<Option<Connection>>,
    free: Vec<usize>,
    buffer: Vec<u8>,
}

struct Connection {
    stream: TcpStream,
    /// Read but not yet written back; empty unless the client is slow.
    pending: Vec<u8>,
}

impl Server {
    fn run(&mut self, stop: &AtomicBool) -> io::Result<()> {
        let mut events = Events::with_capacity(1024);
        while !stop.load(Ordering::Acquire) {
            match self.poll.poll(&mut events, None) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                outcome => outcome?,
            }
            for event in &events {
                match event.token() {
                    WAKE => {}
                    Token(index) if index < FIRST_CONNECTION => self.accept(index)?,
                    Token(index) => self.serve(index - FIRST_CONNECTION),
                }
            }
        }
        Ok(())
    }

    fn accept(&mut self, listener: usize) -> io::Result<()> {
        loop {
            let mut stream = match self.listeners[listener].accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                // The client gave up between its SYN and our accept.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
                Err(error) => return Err(error),
            };
            stream.set_nodelay(true)?;
            let slot = self.free.pop().unwrap_or_else(|| {
                self.connections.push(None);
                self.connections.len() - 1
            });
            self.poll.registry().register(
                &mut stream,
                Token(FIRST_CONNECTION + slot),
                Interest::READABLE | Interest::WRITABLE,
            )?;
            self.connections[slot] = Some(Connection { stream, pending: Vec::new() });
        }
    }

    /// Moves what can be moved on a connection, and closes it at its end or on any error.
    fn serve(&mut self, slot: usize) {
        let Some(Some(connection)) = self.connections.get_mut(slot) else {
            return;
        };
        match connection.pump(&mut self.buffer) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            // The end, or a reset, which is an end as well: the client checks its own bytes.
            Ok(()) | Err(_) => {
                self.connections[slot] = None;
                self.free.push(slot);
            }
        }
    }
}

impl Connection {
    /// Echoes until the socket would block (an error of that kind) or the client ends (`Ok`).
    fn pump(&mut self, buffer: &mut [u8]) -> io::Result<()> {
        loop {
            while !self.pending.is_empty() {
                let written = self.stream.write(&self.pending)?;
                self.pending.drain(..written);
            }
            let len = self.stream.read(buffer)?;
            if len == 0 {
                return Ok(());
            }
            let mut rest = &buffer[..len];
            while !rest.is_empty() {
                match self.stream.write(rest) {
                    Ok(written) => rest = &rest[written..],
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        self.pending.extend_from_slice(rest);
                        return Err(error);
                    }
                    Err(error) => return Err(error),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Shutdown, TcpStream};

    #[test]
    fn answers_on_every_address() {
        let target = EchoTarget::on_many_addresses(3).unwrap();
        assert_eq!(target.addrs().count(), 3);
        for addr in target.addrs() {
            let mut stream = TcpStream::connect(addr).unwrap();
            stream.write_all(b"hello").unwrap();
            let mut answer = [0; 5];
            stream.read_exact(&mut answer).unwrap();
            assert_eq!(&answer, b"hello");
        }
    }

    #[test]
    fn keeps_what_a_slow_reader_has_not_taken() {
        const LEN: usize = 8 << 20;
        let target = EchoTarget::on_localhost().unwrap();
        let stream = TcpStream::connect(target.addrs().next().unwrap()).unwrap();
        let mut writer = stream.try_clone().unwrap();
        let writing = std::thread::spawn(move || {
            let mut bytes = vec![0; LEN];
            crate::generator::pattern::Pattern::new(1).fill(&mut bytes);
            writer.write_all(&bytes).unwrap();
            bytes
        });
        let mut got = vec![0; LEN];
        (&stream).read_exact(&mut got).unwrap();
        assert!(writing.join().unwrap() == got);
        stream.shutdown(Shutdown::Write).unwrap();
        assert_eq!((&stream).read(&mut got).unwrap(), 0);
    }
}
