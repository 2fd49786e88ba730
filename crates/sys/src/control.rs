//! Datagram sockets of the control plane: requests to a manager, reports to one.
//!
//! Off the data path, one datagram at a time. No call blocks: what cannot be sent at once is an
//! error, whose consequences are the caller's affair.

use std::fmt;
use std::fs::{self, File, Permissions};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{SocketAddr as UnixAddr, UnixDatagram};
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::net::{self as rx, SocketAddrUnix, SocketType};

use crate::net::unix;

/// Permissions of a socket's file: its owner's alone, since who reaches it gives orders.
const PERMISSIONS: u32 = 0o600;

/// A datagram socket.
#[derive(Debug)]
pub struct ControlSocket(Kind);

#[derive(Debug)]
enum Kind {
    Internet(UdpSocket),
    /// With the file that was made for it, if it has a path.
    Unix(UnixDatagram, Option<OwnFile>),
}

/// A file that is ours for as long as its numbers are the same.
#[derive(Debug)]
struct OwnFile {
    path: PathBuf,
    device: u64,
    inode: u64,
}

/// The other end of a datagram.
#[derive(Clone, Debug)]
pub enum ControlAddress {
    /// A UDP port.
    Internet(SocketAddr),
    /// A Unix socket with or without a name; without one it cannot be answered.
    Unix(UnixAddr),
}

impl ControlSocket {
    /// Binds a UDP port.
    ///
    /// # Errors
    /// The address is in use, not ours, or not permitted.
    pub fn bind_internet(addr: SocketAddr) -> io::Result<Self> {
        let socket = UdpSocket::bind(addr)?;
        socket.set_nonblocking(true)?;
        Ok(Self(Kind::Internet(socket)))
    }

    /// Binds a path, for the owner of the process alone. A socket that an earlier process left
    /// there is removed, once it is certain that nobody has it open; anything else is left alone.
    ///
    /// # Errors
    /// Another program has it, the path is taken by something else, too long (107 bytes) or not
    /// permitted.
    pub fn bind_unix(path: &Path) -> io::Result<Self> {
        let addr = unix::address(path)?;
        let fd = unix::socket(SocketType::DGRAM)?;
        // The kernel makes the file with the permissions of the socket, so that there is no moment
        // in which others may send to it.
        let file = File::from(fd);
        file.set_permissions(Permissions::from_mode(PERMISSIONS))?;
        unix::bind(&file, path, &addr, SocketType::DGRAM)?;
        let about = fs::symlink_metadata(path)?;
        let own = OwnFile { path: path.to_owned(), device: about.dev(), inode: about.ino() };
        let socket = UnixDatagram::from(std::os::fd::OwnedFd::from(file));
        Ok(Self(Kind::Unix(socket, Some(own))))
    }

    /// A socket that sends to `addr` and addresses like it, from a port or a name that the kernel
    /// picks. Such a name is no path: it leaves no file behind, and nobody can be in its place.
    ///
    /// # Errors
    /// Out of descriptors, or the family is not there.
    pub fn towards(addr: &ControlAddress) -> io::Result<Self> {
        match addr {
            ControlAddress::Internet(SocketAddr::V4(_)) => {
                Self::bind_internet((Ipv4Addr::UNSPECIFIED, 0).into())
            }
            ControlAddress::Internet(SocketAddr::V6(_)) => {
                Self::bind_internet((Ipv6Addr::UNSPECIFIED, 0).into())
            }
            ControlAddress::Unix(_) => {
                let fd = unix::socket(SocketType::DGRAM)?;
                rx::bind(&fd, &SocketAddrUnix::new_unnamed())?;
                Ok(Self(Kind::Unix(UnixDatagram::from(fd), None)))
            }
        }
    }

    /// The next datagram, cut off if it is longer than `buf`; `None` when there is none.
    ///
    /// # Errors
    /// The socket has failed.
    pub fn receive(&self, buf: &mut [u8]) -> io::Result<Option<(usize, ControlAddress)>> {
        let received = match &self.0 {
            Kind::Internet(socket) => {
                socket.recv_from(buf).map(|(n, addr)| (n, ControlAddress::Internet(addr)))
            }
            Kind::Unix(socket, _) => {
                socket.recv_from(buf).map(|(n, addr)| (n, ControlAddress::Unix(addr)))
            }
        };
        match received {
            Ok(received) => Ok(Some(received)),
            Err(e)
                if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) =>
            {
                Ok(None)
            }
            Err(e) => Err(e),
        }
    }

    /// Sends a datagram, or does not: there is no waiting.
    ///
    /// # Errors
    /// `WouldBlock` when the other end does not read; the other end is gone, or has no name; the
    /// datagram is too long.
    pub fn send(&self, bytes: &[u8], to: &ControlAddress) -> io::Result<()> {
        let sent = match (&self.0, to) {
            (Kind::Internet(socket), ControlAddress::Internet(addr)) => socket.send_to(bytes, addr),
            (Kind::Unix(socket, _), ControlAddress::Unix(addr)) => {
                if addr.is_unnamed() {
                    let text = "the sender has no name to answer to";
                    return Err(io::Error::new(io::ErrorKind::AddrNotAvailable, text));
                }
                socket.send_to_addr(bytes, addr)
            }
            _ => return Err(Errno::AFNOSUPPORT.into()),
        };
        sent.map(|_| ())
    }

    /// Where it is bound, if that is a UDP port.
    ///
    /// # Errors
    /// The socket has failed.
    pub fn internet_addr(&self) -> io::Result<Option<SocketAddr>> {
        match &self.0 {
            Kind::Internet(socket) => socket.local_addr().map(Some),
            Kind::Unix(..) => Ok(None),
        }
    }
}

impl AsFd for ControlSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.0 {
            Kind::Internet(socket) => socket.as_fd(),
            Kind::Unix(socket, _) => socket.as_fd(),
        }
    }
}

impl ControlAddress {
    /// The address of a Unix socket.
    ///
    /// # Errors
    /// The path is too long.
    pub fn of_path(path: &Path) -> io::Result<Self> {
        UnixAddr::from_pathname(path).map(Self::Unix)
    }
}

impl fmt::Display for ControlAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Internet(addr) => addr.fmt(f),
            Self::Unix(addr) => match addr.as_pathname() {
                Some(path) => path.display().fmt(f),
                None => f.write_str("a unix socket without a path"),
            },
        }
    }
}

impl Drop for OwnFile {
    /// Removes the file if it still is the one that was made: a later process may have put its own
    /// in the place. While the socket is open no other file can have its numbers.
    fn drop(&mut self) {
        let ours = fs::symlink_metadata(&self.path)
            .is_ok_and(|about| (about.dev(), about.ino()) == (self.device, self.inode));
        if ours {
            // The user that we became may have no right to; the next start replaces it.
            let _ = fs::remove_file(&self.path);
        }
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        // Before the socket itself is closed.
        if let Kind::Unix(_, file) = &mut self.0 {
            file.take();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    /// A directory of its own, removed with the value.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let name = format!("adit-control-{}-{name}", std::process::id());
            let dir = std::env::temp_dir().join(name);
            fs::create_dir_all(&dir).unwrap();
            Self(dir)
        }

        fn file(&self, name: &str) -> PathBuf {
            self.0.join(name)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.0).unwrap();
        }
    }

    fn exchange(server: &ControlSocket, to: &ControlAddress) {
        let client = ControlSocket::towards(to).unwrap();
        client.send(b"hello", to).unwrap();
        let mut buf = [0; 16];
        let (n, from) = server.receive(&mut buf).unwrap().expect("it is there at once");
        assert_eq!(&buf[..n], b"hello");
        server.send(b"and back", &from).unwrap();
        let (n, _) = client.receive(&mut buf).unwrap().expect("it is there at once");
        assert_eq!(&buf[..n], b"and back");
        assert!(server.receive(&mut buf).unwrap().is_none());
    }

    #[test]
    fn exchanges_datagrams_of_both_kinds() {
        let scratch = Scratch::new("exchange");
        let path = scratch.file("s");
        let server = ControlSocket::bind_unix(&path).unwrap();
        exchange(&server, &ControlAddress::of_path(&path).unwrap());
        let server = ControlSocket::bind_internet((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        let addr = server.internet_addr().unwrap().unwrap();
        exchange(&server, &ControlAddress::Internet(addr));
    }

    #[test]
    fn a_path_is_its_owners_and_goes_with_the_socket() {
        let scratch = Scratch::new("owner");
        let path = scratch.file("s");
        let server = ControlSocket::bind_unix(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        drop(server);
        assert!(!path.exists());
    }

    #[test]
    fn a_successors_file_is_left_alone() {
        let scratch = Scratch::new("successor");
        let path = scratch.file("s");
        let server = ControlSocket::bind_unix(&path).unwrap();
        fs::remove_file(&path).unwrap();
        let successor = ControlSocket::bind_unix(&path).unwrap();
        drop(server);
        assert!(path.exists());
        drop(successor);
        assert!(!path.exists());
    }

    #[test]
    fn replaces_what_a_dead_process_left_and_nothing_else() {
        let scratch = Scratch::new("stale");
        let path = scratch.file("s");
        drop(UnixDatagram::bind(&path).unwrap());
        assert!(path.exists());
        let live = ControlSocket::bind_unix(&path).unwrap();
        let refusal = || {
            let error = ControlSocket::bind_unix(&path).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
            error.to_string()
        };
        assert_eq!(refusal(), "another program has that socket");
        exchange(&live, &ControlAddress::of_path(&path).unwrap());
        drop(live);

        let streams = UnixListener::bind(&path).unwrap();
        assert_eq!(refusal(), "another program listens for streams there");
        drop(streams);
        fs::remove_file(&path).unwrap();
        fs::write(&path, "precious").unwrap();
        assert_eq!(refusal(), "there is a file of that name, and it is not a socket");
        assert_eq!(fs::read(&path).unwrap(), b"precious");
    }

    #[test]
    fn sends_to_nobody_without_waiting() {
        let scratch = Scratch::new("nobody");
        let path = scratch.file("s");
        let server = ControlSocket::bind_unix(&path).unwrap();
        let client = UnixDatagram::unbound().unwrap();
        client.send_to(b"x", &path).unwrap();
        let mut buf = [0; 4];
        let (_, nameless) = server.receive(&mut buf).unwrap().unwrap();
        let error = server.send(b"y", &nameless).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrNotAvailable);
        // One that does not read fills up.
        let deaf = scratch.file("deaf");
        let _deaf = UnixDatagram::bind(&deaf).unwrap();
        let to = ControlAddress::of_path(&deaf).unwrap();
        let full = (0..100_000).find_map(|_| server.send(&[0; 1000], &to).err());
        assert_eq!(full.map(|e| e.kind()), Some(io::ErrorKind::WouldBlock));
    }
}
