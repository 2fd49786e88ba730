//! Who listens at a port: the plugin that was told to, or a program that was faster.
//!
//! The kernel lists sockets with their numbers (proc(5), `/proc/net/tcp`), and the descriptors of a
//! process name the same numbers. Nothing is connected to, so that a plugin sees no connection that
//! is none.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;

use adit_engine::guard::Transport;

/// States of sockets (include/net/tcp_states.h): a TCP socket that listens, and a UDP socket that
/// is bound and not connected.
const TCP_LISTEN: &str = "0A";
const UDP_BOUND: &str = "07";

/// Who has a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holder {
    /// Nobody.
    Nobody,
    /// A process of the group.
    Group,
    /// Somebody else.
    Another,
    /// The descriptors of the group cannot be looked at, so it may be anybody.
    Unknown,
}

/// Who listens at `port`. `at` narrows it to one address, and to wildcards, which take its traffic.
///
/// # Errors
/// The kernel does not tell.
pub(crate) fn holder(
    transport: Transport,
    port: u16,
    at: Option<IpAddr>,
    group: u32,
) -> io::Result<Holder> {
    let (files, state) = match transport {
        Transport::Stream => (["tcp", "tcp6"], TCP_LISTEN),
        Transport::Datagram => (["udp", "udp6"], UDP_BOUND),
    };
    let mut sockets = Vec::new();
    for file in files {
        match std::fs::read_to_string(Path::new("/proc/self/net").join(file)) {
            Ok(table) => sockets.extend(table.lines().filter_map(|line| socket(line, state))),
            // A kernel without IPv6.
            Err(e) if file.ends_with('6') && e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(e),
        }
    }
    sockets.retain(|(local, _)| {
        let ip = local.ip().to_canonical();
        local.port() == port && at.is_none_or(|at| at == ip || ip.is_unspecified())
    });
    if sockets.is_empty() {
        return Ok(Holder::Nobody);
    }
    let numbers: Vec<_> = sockets.iter().map(|(_, number)| format!("socket:[{number}]")).collect();
    has_any(group, &numbers)
}

/// The address and the number of a socket in this state.
fn socket(line: &str, state: &str) -> Option<(SocketAddr, u64)> {
    let mut fields = line.split_ascii_whitespace();
    let local = fields.nth(1)?;
    let found = fields.nth(1)?;
    let number = fields.nth(5)?;
    if found != state {
        return None;
    }
    let (ip, port) = local.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    // Words as they lie in memory.
    let word =
        |at: usize| Some(u32::from_str_radix(ip.get(8 * at..8 * at + 8)?, 16).ok()?.to_ne_bytes());
    let ip = match ip.len() {
        8 => IpAddr::V4(Ipv4Addr::from(word(0)?)),
        _ => {
            let words = [word(0)?, word(1)?, word(2)?, word(3)?];
            let mut bytes = [0; 16];
            bytes.copy_from_slice(words.as_flattened());
            IpAddr::V6(Ipv6Addr::from(bytes))
        }
    };
    Some((SocketAddr::new(ip, port), number.parse().ok()?))
}

/// Whether a process of the group has one of the sockets open.
fn has_any(group: u32, sockets: &[String]) -> io::Result<Holder> {
    let mut hidden = true;
    for entry in std::fs::read_dir("/proc")? {
        // A process may end at any moment, and is then none of the group's.
        let Ok(entry) = entry else { continue };
        let name = entry.file_name();
        let is_process = name.to_str().is_some_and(|n| n.bytes().all(|b| b.is_ascii_digit()));
        if !is_process || group_of(&entry.path()) != Some(group) {
            continue;
        }
        let Ok(descriptors) = std::fs::read_dir(entry.path().join("fd")) else { continue };
        hidden = false;
        let links = descriptors.filter_map(|fd| std::fs::read_link(fd.ok()?.path()).ok());
        for link in links {
            if link.to_str().is_some_and(|link| sockets.iter().any(|socket| socket == link)) {
                return Ok(Holder::Group);
            }
        }
    }
    Ok(if hidden { Holder::Unknown } else { Holder::Another })
}

/// The process group of a process, by its directory.
fn group_of(process: &Path) -> Option<u32> {
    let stat = std::fs::read_to_string(process.join("stat")).ok()?;
    // The name may hold blanks and brackets; state, parent and group follow its last one.
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(2)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, UdpSocket};

    use super::*;

    #[test]
    fn reads_addresses_and_states() {
        let line = "   1: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  \
                    0        0 12345 1 0000000000000000 100 0 0 10 0";
        let expected = Some(("127.0.0.1:8080".parse().expect("an address"), 12345));
        if cfg!(target_endian = "little") {
            assert_eq!(socket(line, TCP_LISTEN), expected);
        }
        assert_eq!(socket(line, UDP_BOUND), None);
        let line = "   0: 00000000000000000000000001000000:01BB 0:0 0A 0:0 00:0 0 0 0 7 1";
        if cfg!(target_endian = "little") {
            assert_eq!(socket(line, TCP_LISTEN), Some(("[::1]:443".parse().expect("one"), 7)));
        }
        for junk in
            ["", "sl local_address rem_address st", "1: zz:1 0 0A 0 0 0 0 0 9", "1: 0:0 0 0A"]
        {
            assert_eq!(socket(junk, TCP_LISTEN), None, "{junk}");
        }
    }

    #[test]
    fn tells_our_own_sockets_from_others() {
        let own = group_of(Path::new("/proc/self")).expect("we are in a group");
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        let port = listener.local_addr().expect("it is bound").port();
        let localhost = Some(IpAddr::from(Ipv4Addr::LOCALHOST));
        let ask = |at, group| holder(Transport::Stream, port, at, group).expect("proc is there");
        assert_eq!(ask(localhost, own), Holder::Group);
        assert_eq!(ask(None, own), Holder::Group);
        assert_eq!(ask(Some(IpAddr::from([127, 0, 0, 2])), own), Holder::Nobody);
        // Nobody is in a group of this number: pids end at 4,194,304.
        assert_eq!(ask(localhost, u32::MAX), Holder::Unknown);
        drop(listener);
        assert_eq!(ask(localhost, own), Holder::Nobody);

        let socket = UdpSocket::bind(("0.0.0.0", 0)).expect("a free port");
        let port = socket.local_addr().expect("it is bound").port();
        let found = holder(Transport::Datagram, port, localhost, own).expect("proc is there");
        assert_eq!(found, Holder::Group, "a wildcard takes what is for the address");
    }
}
