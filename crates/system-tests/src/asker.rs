//! A client of a manager.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};

use crate::{PATIENCE, Scratch};

/// Asks a manager over UDP or over a Unix socket.
pub struct Asker(Kind);

enum Kind {
    Internet(UdpSocket),
    /// With the directory of its own socket.
    Unix(UnixDatagram, Scratch),
}

impl Asker {
    /// A client of the manager at a UDP port of loopback.
    ///
    /// # Panics
    /// When there is no socket to be had.
    pub fn at_port(port: u16) -> Self {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("bind a UDP socket");
        socket.connect(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).expect("connect it");
        socket.set_read_timeout(Some(PATIENCE)).expect("set a time limit");
        Self(Kind::Internet(socket))
    }

    /// A client of the manager at a path.
    ///
    /// # Panics
    /// When nobody is there.
    pub fn at_path(path: &Path) -> Self {
        let scratch = Scratch::new();
        let socket = UnixDatagram::bind(scratch.file("asker")).expect("bind a Unix socket");
        socket.connect(path).expect("connect to a manager");
        socket.set_read_timeout(Some(PATIENCE)).expect("set a time limit");
        Self(Kind::Unix(socket, scratch))
    }

    /// The path of its own socket, if it has one.
    pub fn path(&self) -> Option<PathBuf> {
        match &self.0 {
            Kind::Internet(_) => None,
            Kind::Unix(_, scratch) => Some(scratch.file("asker")),
        }
    }

    /// Sends a datagram.
    ///
    /// # Errors
    /// It is too long, or the manager is gone.
    pub fn try_tell(&self, bytes: &[u8]) -> std::io::Result<usize> {
        match &self.0 {
            Kind::Internet(socket) => socket.send(bytes),
            Kind::Unix(socket, _) => socket.send(bytes),
        }
    }

    /// Sends a request.
    ///
    /// # Panics
    /// When that fails.
    pub fn tell(&self, request: &str) {
        self.try_tell(request.as_bytes()).expect("send to a manager");
    }

    /// The next answer.
    ///
    /// # Panics
    /// When none comes.
    pub fn hear(&self) -> String {
        let mut buf = vec![0; 1 << 16];
        let received = match &self.0 {
            Kind::Internet(socket) => socket.recv(&mut buf),
            Kind::Unix(socket, _) => socket.recv(&mut buf),
        };
        buf.truncate(received.expect("an answer of a manager"));
        String::from_utf8(buf).expect("an answer is text")
    }

    /// Sends a request and waits for its answer.
    ///
    /// # Panics
    /// When none comes.
    pub fn ask(&self, request: &str) -> String {
        self.tell(request);
        self.hear()
    }

    /// What a manager has counted for a port, in bytes; `None` for a port that it does not have.
    ///
    /// # Panics
    /// When it does not answer.
    pub fn traffic(&self, port: u16) -> Option<u64> {
        let answer = self.ask("ping");
        let items = answer.trim().strip_prefix("stat: {").and_then(|rest| rest.strip_suffix('}'));
        let items = items.unwrap_or_else(|| panic!("no answer to ping: {answer}"));
        let name = format!("\"{port}\":");
        let bytes = items.split(',').find_map(|item| item.strip_prefix(&name))?;
        Some(bytes.parse().expect("a number of bytes"))
    }
}
