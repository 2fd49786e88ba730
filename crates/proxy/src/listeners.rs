//! Opening, keeping and closing listeners, so that a reload is a difference and not a restart.

use std::collections::HashSet;
use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use adit_config::{Endpoint, Host};
use adit_engine::guard::{OwnListeners, Transport};
use adit_engine::role::Role;
use adit_engine::worker::{Command, Handle, LISTENERS_MAX, ListenerId};
use adit_observe::log;
use adit_sys::datagram::{self, DatagramOptions};
use adit_sys::net::{self, PortSharing, StreamOptions, UnixOptions};

use crate::roles::is_wildcard;

/// Where to listen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Bind {
    /// At a port; a name means all its addresses.
    Internet(Endpoint),
    /// At a path.
    Unix(PathBuf),
}

/// A listener that the configuration asks for.
pub(crate) struct Wanted {
    pub(crate) bind: Bind,
    pub(crate) transport: Transport,
    pub(crate) role: Arc<Role>,
    /// For the start-up line.
    pub(crate) about: String,
}

/// One address of a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    Internet(SocketAddr, Transport),
    Unix(PathBuf),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Internet(addr, Transport::Stream) => addr.fmt(f),
            Self::Internet(addr, Transport::Datagram) => write!(f, "{addr} (UDP)"),
            Self::Unix(path) => path.display().fmt(f),
        }
    }
}

/// A listener that is open.
struct Open {
    id: ListenerId,
    place: Place,
}

/// Why a listener can't be opened.
#[derive(Debug)]
pub(crate) struct ListenError {
    what: String,
    error: io::Error,
}

impl fmt::Display for ListenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot listen on {}: {}", self.what, self.error)?;
        match self.error.kind() {
            io::ErrorKind::AddrInUse => {
                f.write_str("; stop the program that uses the port, or take another port")
            }
            io::ErrorKind::PermissionDenied => {
                f.write_str("; ports below 1024 need root or CAP_NET_BIND_SERVICE")
            }
            io::ErrorKind::AddrNotAvailable => f.write_str("; no interface has this address"),
            _ => Ok(()),
        }
    }
}

/// How listeners are opened.
pub(crate) struct ListenOptions {
    pub(crate) stream: StreamOptions,
    pub(crate) datagram: DatagramOptions,
    pub(crate) v6_only: bool,
    /// Other programs may listen on the same port.
    pub(crate) reuse_port: bool,
}

/// The listeners of the process.
#[derive(Default)]
pub(crate) struct Listeners {
    open: Vec<Open>,
    /// Closed with their connections, but workers may have them open still.
    closing: Vec<Place>,
    next_id: u32,
}

/// Which of the listeners a change is about; the others stay as they are.
#[derive(Clone, Copy)]
pub(crate) enum Scope {
    /// All.
    All,
    /// Those at a port.
    Port(u16),
}

/// What happens to listeners that are open at a place that is wanted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// They stay and get another role.
    Kept,
    /// They close with their connections, and others are opened in their place.
    Replaced,
}

/// What a reload changes, opened but not in force.
pub(crate) struct Change {
    /// New ones, with one socket a worker.
    added: Vec<(Place, Vec<OwnedFd>, Arc<Role>)>,
    kept: Vec<(ListenerId, Arc<Role>)>,
    removed: Vec<ListenerId>,
    /// What happens to the connections of those removed.
    standing: Standing,
    /// Start-up lines, one an address.
    pub(crate) lines: Vec<String>,
}

impl Listeners {
    /// Opens what is wanted and not open yet. Nothing is in force until [`Listeners::apply`]; an
    /// error leaves everything as it was.
    pub(crate) fn prepare(
        &self,
        wanted: &[Wanted],
        options: &ListenOptions,
        workers: usize,
    ) -> Result<Change, ListenError> {
        self.prepare_within(Scope::All, Standing::Kept, wanted, options, workers)
    }

    /// As [`Listeners::prepare`], about some of the listeners.
    pub(crate) fn prepare_within(
        &self,
        scope: Scope,
        standing: Standing,
        wanted: &[Wanted],
        options: &ListenOptions,
        workers: usize,
    ) -> Result<Change, ListenError> {
        let mut change = Change {
            added: Vec::new(),
            kept: Vec::new(),
            removed: Vec::new(),
            standing,
            lines: Vec::new(),
        };
        let mut seen: Vec<Place> = Vec::new();
        let mut skipped = None;
        let places = places(wanted)?;
        let others = self.open.iter().filter(|open| !scope.includes(&open.place)).count();
        check_count(others + places.len())?;
        let in_scope = || self.open.iter().filter(|open| scope.includes(&open.place));
        for (place, wanted) in places {
            if seen.contains(&place) {
                let error = io::Error::new(io::ErrorKind::AddrInUse, "named twice");
                return Err(ListenError { what: place.to_string(), error });
            }
            seen.push(place.clone());
            let known = in_scope().find(|open| open.place == place);
            if let Some(open) = known.filter(|_| standing == Standing::Kept) {
                change.kept.push((open.id, Arc::clone(&wanted.role)));
            } else {
                match self.open_all(&place, options, workers, &seen) {
                    Ok(fds) => change.added.push((place.clone(), fds, Arc::clone(&wanted.role))),
                    // A host without IPv6 still serves the IPv4 half of a pair.
                    Err(e) if is_v6(&place) && is_without_family(&e.error) => {
                        log::warn!("{e}; skipped, this host has no IPv6");
                        skipped = Some(e);
                        continue;
                    }
                    Err(e) => return Err(e),
                }
            }
            change.lines.push(format!("listening on {place}: {}", wanted.about));
        }
        if let (true, Some(error)) = (change.lines.is_empty(), skipped) {
            return Err(error);
        }
        let kept: HashSet<ListenerId> = change.kept.iter().map(|(id, _)| *id).collect();
        change.removed = in_scope().map(|open| open.id).filter(|id| !kept.contains(id)).collect();
        Ok(change)
    }

    /// The change that closes a port with its connections.
    pub(crate) fn without(&self, port: u16) -> Change {
        let scope = Scope::Port(port);
        let gone = self.open.iter().filter(|open| scope.includes(&open.place));
        Change {
            added: Vec::new(),
            kept: Vec::new(),
            removed: gone.map(|open| open.id).collect(),
            standing: Standing::Replaced,
            lines: Vec::new(),
        }
    }

    /// Puts a change in force on every worker; `own` is told where we listen now.
    pub(crate) fn apply(&mut self, change: Change, workers: &[Handle], own: &OwnListeners) {
        let ends = change.standing == Standing::Replaced;
        for id in change.removed {
            if let Some(at) = self.open.iter().position(|o| o.id == id) {
                let place = self.open.swap_remove(at).place;
                forget(&place);
                if let Place::Internet(addr, transport) = &place {
                    own.remove(*transport, *addr);
                }
                self.closing.extend(ends.then_some(place));
            }
            let order = if ends { Command::Close } else { Command::Unlisten };
            workers.iter().for_each(|w| w.send(order(id)));
        }
        for (id, role) in change.kept {
            workers.iter().for_each(|w| w.send(Command::Assign(id, Arc::clone(&role))));
        }
        for (place, fds, role) in change.added {
            let id = ListenerId(self.next_id);
            self.next_id += 1;
            let transport = place.transport();
            if let Place::Internet(addr, transport) = &place {
                own.add(*transport, *addr);
            }
            self.open.push(Open { id, place });
            for (worker, fd) in workers.iter().zip(fds) {
                let role = Arc::clone(&role);
                worker.send(match transport {
                    Transport::Stream => Command::Listen(id, fd, role),
                    Transport::Datagram => Command::ListenDatagrams(id, fd, role),
                });
            }
        }
    }

    /// Workers have closed what they were told to close.
    pub(crate) fn closed(&mut self) {
        self.closing.clear();
    }

    /// Takes away what listeners leave in the file system.
    pub(crate) fn clean_up(&self) {
        self.open.iter().for_each(|open| forget(&open.place));
    }

    /// One listening socket a worker.
    fn open_all(
        &self,
        place: &Place,
        options: &ListenOptions,
        workers: usize,
        earlier: &[Place],
    ) -> Result<Vec<OwnedFd>, ListenError> {
        let error = |error| ListenError { what: place.to_string(), error };
        let (addr, transport) = match place {
            Place::Internet(addr, transport) => (*addr, *transport),
            // Workers take turns at one socket: a path has no more.
            Place::Unix(path) => {
                let fd = net::listen_unix(path, &UnixOptions::default()).map_err(error)?;
                let copies = (0..workers).map(|_| fd.try_clone().map_err(error));
                return copies.collect();
            }
        };
        // `::` takes IPv4 as well, unless another listener is there for it.
        let has_v4_twin = earlier.iter().any(|other| match other {
            Place::Internet(a, t) => {
                a.is_ipv4() && is_wildcard(a.ip()) && a.port() == addr.port() && *t == transport
            }
            Place::Unix(_) => false,
        });
        let v6_only = options.v6_only || !is_wildcard(addr.ip()) || has_v4_twin;
        let listen = |sharing| match transport {
            Transport::Stream => net::listen(addr, sharing, v6_only, &options.stream),
            Transport::Datagram => datagram::bind(addr, sharing, v6_only, &options.datagram),
        };
        let ours = self.open.iter().map(|open| &open.place).chain(&self.closing);
        let beside_own = ours.into_iter().any(|ours| overlap(ours, place));
        if !options.reuse_port && !beside_own {
            // With a shared port the kernel would let a second program of the same user in
            // silently, so the port is tried alone first. Where a listener of ours is still open,
            // a reload that widens its address say, that tells nothing.
            drop(listen(PortSharing::Exclusive).map_err(error)?);
        }
        (0..workers).map(|_| listen(PortSharing::Shared).map_err(error)).collect()
    }
}

/// Whether all that changes want together is no more than a worker can have.
pub(crate) fn within_limit(changes: &[Change]) -> Result<(), ListenError> {
    check_count(changes.iter().map(|change| change.added.len() + change.kept.len()).sum())
}

fn check_count(listeners: usize) -> Result<(), ListenError> {
    if listeners <= LISTENERS_MAX {
        return Ok(());
    }
    let error = format!("{LISTENERS_MAX} listeners at most; TCP and UDP are two");
    let what = format!("{listeners} addresses");
    Err(ListenError { what, error: io::Error::other(error) })
}

impl Scope {
    fn includes(self, place: &Place) -> bool {
        match (self, place) {
            (Self::All, _) => true,
            (Self::Port(port), Place::Internet(addr, _)) => addr.port() == port,
            (Self::Port(_), Place::Unix(_)) => false,
        }
    }
}

impl Place {
    const fn transport(&self) -> Transport {
        match self {
            Self::Internet(_, transport) => *transport,
            Self::Unix(_) => Transport::Stream,
        }
    }
}

/// A path that nobody listens at any more is removed; a port needs nothing.
fn forget(place: &Place) {
    if let Place::Unix(path) = place
        && let Err(e) = std::fs::remove_file(path)
    {
        log::debug!("{}: {e}", path.display());
    }
}

fn places(wanted: &[Wanted]) -> Result<Vec<(Place, &Wanted)>, ListenError> {
    let mut all = Vec::new();
    for wanted in wanted {
        match &wanted.bind {
            Bind::Unix(path) => all.push((Place::Unix(Path::to_path_buf(path)), wanted)),
            Bind::Internet(endpoint) => {
                let addrs = addresses(endpoint)?.into_iter();
                all.extend(addrs.map(|a| (Place::Internet(a, wanted.transport), wanted)));
            }
        }
    }
    Ok(all)
}

/// Every address that a port to listen on stands for.
fn addresses(endpoint: &Endpoint) -> Result<Vec<SocketAddr>, ListenError> {
    let Endpoint { host, port } = endpoint;
    match host {
        Host::Ip(ip) => Ok(vec![SocketAddr::new(*ip, *port)]),
        Host::Name(name) => {
            let error = |error| ListenError { what: endpoint.to_string(), error };
            let found = (&**name, *port).to_socket_addrs().map_err(error)?;
            let mut addrs: Vec<_> = found.collect();
            addrs.sort_unstable();
            addrs.dedup();
            Ok(addrs)
        }
    }
}

const fn is_v6(place: &Place) -> bool {
    matches!(place, Place::Internet(SocketAddr::V6(_), _))
}

/// Whether two listeners take some of the same traffic.
fn overlap(a: &Place, b: &Place) -> bool {
    match (a, b) {
        (Place::Internet(a, ta), Place::Internet(b, tb)) => {
            ta == tb
                && a.port() == b.port()
                && (a.ip() == b.ip() || is_wildcard(a.ip()) || is_wildcard(b.ip()))
        }
        _ => a == b,
    }
}

fn is_without_family(error: &io::Error) -> bool {
    // EAFNOSUPPORT has no kind of its own; a disabled IPv6 gives EADDRNOTAVAIL.
    error.kind() == io::ErrorKind::AddrNotAvailable
        || error.raw_os_error() == Some(adit_sys::Errno::AFNOSUPPORT.raw_os_error())
}
