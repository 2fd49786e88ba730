//! Stream listeners at a path of this host, and what all sockets with a path need.

use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::Path;

use rustix::io::Errno;
use rustix::net::{self as rx, AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use super::BACKLOG;

/// Options of a listener at a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnixOptions {
    /// Permission bits of the socket's file, for example `0o660`; `None` leaves them to the umask.
    pub permissions: Option<u32>,
}

/// Opens a listener at `path`. A socket that an earlier process left there is removed, once it is
/// certain that nobody listens on it; anything else there is left alone.
///
/// # Errors
/// Another program listens there, the path is taken by something else, too long (107 bytes) or not
/// permitted.
pub fn listen_unix(path: &Path, options: &UnixOptions) -> io::Result<OwnedFd> {
    let addr = address(path)?;
    let fd = socket(SocketType::STREAM)?;
    bind(&fd, path, &addr, SocketType::STREAM)?;
    if let Some(mode) = options.permissions {
        // Before it listens: until then nobody can connect.
        fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
    }
    rx::listen(&fd, BACKLOG)?;
    Ok(fd)
}

/// The address of a path.
pub(crate) fn address(path: &Path) -> io::Result<SocketAddrUnix> {
    SocketAddrUnix::new(path).map_err(|error| match error {
        Errno::NAMETOOLONG => io::Error::new(
            io::ErrorKind::InvalidInput,
            "the path of a socket has 107 bytes at most",
        ),
        other => other.into(),
    })
}

/// Binds a socket to a path, in place of one that nobody has open any more.
pub(crate) fn bind(
    fd: impl AsFd,
    path: &Path,
    addr: &SocketAddrUnix,
    kind: SocketType,
) -> io::Result<()> {
    match rx::bind(&fd, addr) {
        Ok(()) => Ok(()),
        Err(Errno::ADDRINUSE) => {
            remove_stale(path, addr, kind)?;
            Ok(rx::bind(&fd, addr)?)
        }
        Err(error) => Err(error.into()),
    }
}

/// Removes the file of a socket that nobody has open.
fn remove_stale(path: &Path, addr: &SocketAddrUnix, kind: SocketType) -> io::Result<()> {
    let in_use = |text| Err(io::Error::new(io::ErrorKind::AddrInUse, text));
    if !fs::symlink_metadata(path)?.file_type().is_socket() {
        return in_use("there is a file of that name, and it is not a socket");
    }
    let is_stream = kind == SocketType::STREAM;
    match rx::connect(socket(kind)?, addr) {
        // The listener is gone and has left its name.
        Err(Errno::CONNREFUSED) => fs::remove_file(path),
        // A full queue is somebody's too.
        Ok(()) | Err(Errno::AGAIN | Errno::INPROGRESS) => in_use(if is_stream {
            "another program listens on that socket"
        } else {
            "another program has that socket"
        }),
        Err(Errno::PROTOTYPE) => in_use(if is_stream {
            "another program has a datagram socket there"
        } else {
            "another program listens for streams there"
        }),
        Err(error) => Err(error.into()),
    }
}

pub(crate) fn socket(kind: SocketType) -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    rx::socket_with(AddressFamily::UNIX, kind, flags, None)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};

    use super::*;
    use crate::net::{Peer, accept};

    /// A path in a directory of its own, removed with it.
    struct Scratch(std::path::PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let dir = std::env::temp_dir().join(format!("adit-sys-{}-{name}", std::process::id()));
            fs::create_dir_all(&dir).unwrap();
            Self(dir)
        }

        fn socket(&self) -> std::path::PathBuf {
            self.0.join("s")
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.0).unwrap();
        }
    }

    #[test]
    fn accepts_and_names_the_peer() {
        let scratch = Scratch::new("accepts");
        let listener = listen_unix(&scratch.socket(), &UnixOptions { permissions: Some(0o640) });
        let listener = listener.unwrap();
        let mode = fs::metadata(scratch.socket()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o640);
        assert_eq!(accept(&listener).unwrap_err(), Errno::AGAIN);
        let mut client = UnixStream::connect(scratch.socket()).unwrap();
        client.write_all(b"hello").unwrap();
        let (fd, peer) = accept(&listener).unwrap();
        assert_eq!((peer, peer.address()), (Peer::Unix, None));
        assert_eq!(peer.to_string(), "unix socket");
        let mut bytes = [0; 5];
        UnixStream::from(fd).read_exact(&mut bytes).unwrap();
        assert_eq!(&bytes, b"hello");
    }

    #[test]
    fn replaces_what_a_dead_process_left() {
        let scratch = Scratch::new("stale");
        drop(UnixListener::bind(scratch.socket()).unwrap());
        assert!(scratch.socket().exists());
        let listener = listen_unix(&scratch.socket(), &UnixOptions::default()).unwrap();
        UnixStream::connect(scratch.socket()).unwrap();
        assert_eq!(accept(&listener).unwrap().1, Peer::Unix);
    }

    #[test]
    fn leaves_what_is_in_use_or_no_socket() {
        let scratch = Scratch::new("taken");
        let path = scratch.socket();
        let refusal = |path: &Path| {
            let error = listen_unix(path, &UnixOptions::default()).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
            assert!(path.exists());
            error.to_string()
        };

        let live = listen_unix(&path, &UnixOptions::default()).unwrap();
        assert_eq!(refusal(&path), "another program listens on that socket");
        drop(live);

        fs::remove_file(&path).unwrap();
        let datagrams = UnixDatagram::bind(&path).unwrap();
        assert_eq!(refusal(&path), "another program has a datagram socket there");
        drop(datagrams);

        fs::remove_file(&path).unwrap();
        fs::write(&path, "precious").unwrap();
        assert_eq!(refusal(&path), "there is a file of that name, and it is not a socket");
        assert_eq!(fs::read(&path).unwrap(), b"precious");
    }

    #[test]
    fn tells_why_a_path_does_not_do() {
        let long = "x".repeat(200);
        let error = listen_unix(Path::new(&long), &UnixOptions::default()).unwrap_err();
        assert_eq!(error.to_string(), "the path of a socket has 107 bytes at most");
        let missing = Path::new("/nonexistent-directory/s");
        let error = listen_unix(missing, &UnixOptions::default()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
