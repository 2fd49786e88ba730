//! Opening, keeping and closing listeners, so that a reload is a difference and not a restart.

use std::collections::HashSet;
use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use adit_config::{Endpoint, Host};
use adit_engine::guard::{OwnListeners, Transport};
use adit_engine::role::Role;
use adit_engine::worker::{Command, Handle, LISTENERS_MAX, ListenerId};
use adit_observe::log;
use adit_sys::datagram::{self, DatagramOptions};
use adit_sys::net::{self, PortSharing, StreamOptions, Takes, UnixOptions};

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
    pub(crate) takes: Takes,
    pub(crate) role: Arc<Role>,
    /// The port of the configuration that it serves, which is not its own behind a plugin.
    pub(crate) serves: Option<u16>,
    /// For the start-up line.
    pub(crate) about: String,
}

/// One address of a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    Internet(SocketAddr, Transport, Takes),
    Unix(PathBuf),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Internet(addr, Transport::Stream, _) => addr.fmt(f),
            Self::Internet(addr, Transport::Datagram, _) => write!(f, "{addr} (UDP)"),
            Self::Unix(path) => path.display().fmt(f),
        }
    }
}

/// A listener that is open.
struct Open {
    id: ListenerId,
    place: Place,
    /// Whether IPv4 is left to another listener.
    v6_only: bool,
    /// Which file the place is, if it is one.
    file: Option<FileId>,
    /// The port that it serves.
    serves: Option<u16>,
}

/// Device and number of a file.
type FileId = (u64, u64);

/// Why a listener can't be opened.
#[derive(Debug)]
pub(crate) struct ListenError {
    what: String,
    takes: Takes,
    error: io::Error,
}

impl fmt::Display for ListenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot listen on {}: {}", self.what, self.error)?;
        match self.error.kind() {
            io::ErrorKind::AddrInUse => {
                f.write_str("; stop the program that uses the port, or take another port")
            }
            io::ErrorKind::PermissionDenied if self.takes == Takes::Any => {
                f.write_str("; TPROXY needs root or CAP_NET_ADMIN")
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
    /// TCP ports that this process holds already, for listeners of its own.
    pub(crate) held: Vec<SocketAddr>,
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
    /// Those that serve a port.
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

/// A listener that is opened but not in force.
struct Added {
    place: Place,
    v6_only: bool,
    serves: Option<u16>,
    /// One socket a worker.
    fds: Vec<OwnedFd>,
    role: Arc<Role>,
}

/// What a reload changes, opened but not in force.
pub(crate) struct Change {
    /// New ones.
    added: Vec<Added>,
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
        let others = self.open.iter().filter(|open| !scope.includes(open)).count();
        check_count(others + places.len())?;
        let in_scope = || self.open.iter().filter(|open| scope.includes(open));
        let wanted_places: Vec<_> = places.iter().map(|(place, _)| place.clone()).collect();
        for (place, wanted) in places {
            if seen.iter().any(|other| other.is_where(&place)) {
                let error = io::Error::new(io::ErrorKind::AddrInUse, "named twice");
                return Err(ListenError::of(place.to_string(), error));
            }
            seen.push(place.clone());
            let v6_only = is_v6_only(&place, &wanted_places, options);
            let same = |open: &&Open| open.place == place && open.v6_only == v6_only;
            let known = in_scope().find(same);
            if let Some(open) = known.filter(|_| standing == Standing::Kept) {
                change.kept.push((open.id, Arc::clone(&wanted.role)));
            } else {
                match self.open_all(&place, options, workers, v6_only) {
                    Ok(fds) => change.added.push(Added {
                        place: place.clone(),
                        v6_only,
                        serves: wanted.serves,
                        fds,
                        role: Arc::clone(&wanted.role),
                    }),
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
        let gone = self.open.iter().filter(|open| scope.includes(open));
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
                let open = self.open.swap_remove(at);
                forget(&open);
                if let Place::Internet(addr, transport, _) = &open.place {
                    own.remove(*transport, *addr);
                }
                self.closing.extend(ends.then_some(open.place));
            }
            let order = if ends { Command::Close } else { Command::Unlisten };
            workers.iter().for_each(|w| w.send(order(id)));
        }
        for (id, role) in change.kept {
            workers.iter().for_each(|w| w.send(Command::Assign(id, Arc::clone(&role))));
        }
        for Added { place, v6_only, serves, fds, role } in change.added {
            let id = ListenerId(self.next_id);
            self.next_id += 1;
            let transport = place.transport();
            if let Place::Internet(addr, transport, _) = &place {
                own.add(*transport, *addr);
            }
            let file = file_id(&place);
            self.open.push(Open { id, place, v6_only, file, serves });
            for (worker, fd) in workers.iter().zip(fds) {
                let role = Arc::clone(&role);
                worker.send(match transport {
                    Transport::Stream => Command::Listen(id, fd, role),
                    Transport::Datagram => Command::ListenDatagrams(id, fd, role),
                });
            }
        }
    }

    /// Whether a listener takes what comes to this address, or may still.
    pub(crate) fn takes(&self, addr: SocketAddr, transport: Transport) -> bool {
        let place = Place::Internet(addr, transport, Takes::Own);
        self.ours().any(|ours| overlap(ours, &place))
    }

    /// Workers have closed what they were told to close.
    pub(crate) fn closed(&mut self) {
        self.closing.clear();
    }

    /// Every place where a worker has a socket.
    fn ours(&self) -> impl Iterator<Item = &Place> {
        self.open.iter().map(|open| &open.place).chain(&self.closing)
    }

    /// Takes away what listeners leave in the file system.
    pub(crate) fn clean_up(&self) {
        self.open.iter().for_each(forget);
    }

    /// One listening socket a worker.
    fn open_all(
        &self,
        place: &Place,
        options: &ListenOptions,
        workers: usize,
        v6_only: bool,
    ) -> Result<Vec<OwnedFd>, ListenError> {
        let takes = place.takes();
        let error = |error| ListenError { what: place.to_string(), takes, error };
        let (addr, transport) = match place {
            Place::Internet(addr, transport, _) => (*addr, *transport),
            // Workers take turns at one socket: a path has no more.
            Place::Unix(path) => {
                let fd = net::listen_unix(path, &UnixOptions::default()).map_err(error)?;
                let copies = (0..workers).map(|_| fd.try_clone().map_err(error));
                return copies.collect();
            }
        };
        let listen = |sharing| match (transport, takes) {
            (Transport::Stream, _) => {
                net::listen_as(takes, addr, sharing, v6_only, &options.stream)
            }
            (Transport::Datagram, Takes::Own) => {
                datagram::bind(addr, sharing, v6_only, &options.datagram)
            }
            (Transport::Datagram, Takes::Any) => {
                datagram::bind_transparent(addr, sharing, v6_only, &options.datagram)
            }
        };
        let beside_own = self.ours().any(|ours| overlap(ours, place))
            || transport == Transport::Stream && options.held.contains(&addr);
        if !options.reuse_port && !beside_own {
            // With a shared port the kernel would let a second program of the same user in
            // silently, so the port is tried alone first. Where a listener of ours is still open,
            // a reload that widens its address say, that tells nothing.
            drop(listen(PortSharing::Exclusive).map_err(error)?);
        }
        (0..workers).map(|_| listen(PortSharing::Shared).map_err(error)).collect()
    }
}

impl ListenError {
    const fn of(what: String, error: io::Error) -> Self {
        Self { what, takes: Takes::Own, error }
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
    Err(ListenError::of(what, io::Error::other(error)))
}

impl Scope {
    fn includes(self, open: &Open) -> bool {
        self.has(open.serves)
    }

    /// Whether what serves a port is meant.
    pub(crate) fn has(self, serves: Option<u16>) -> bool {
        match self {
            Self::All => true,
            Self::Port(port) => serves == Some(port),
        }
    }
}

impl Place {
    const fn transport(&self) -> Transport {
        match self {
            Self::Internet(_, transport, _) => *transport,
            Self::Unix(_) => Transport::Stream,
        }
    }

    const fn takes(&self) -> Takes {
        match self {
            Self::Internet(_, _, takes) => *takes,
            Self::Unix(_) => Takes::Own,
        }
    }

    /// Whether both are at the same address. What they take there is an option of the socket that
    /// does not change later, so a change of that is another place.
    fn is_where(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Internet(a, ta, _), Self::Internet(b, tb, _)) => a == b && ta == tb,
            _ => self == other,
        }
    }
}

/// The file that a listener has made.
fn file_id(place: &Place) -> Option<FileId> {
    match place {
        Place::Internet(..) => None,
        Place::Unix(path) => {
            std::fs::symlink_metadata(path).ok().map(|about| (about.dev(), about.ino()))
        }
    }
}

/// A path that nobody listens at any more is removed, unless another program has made it its own
/// since; a port needs nothing.
fn forget(open: &Open) {
    if let Place::Unix(path) = &open.place
        && file_id(&open.place) == open.file
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
                let place = |a| Place::Internet(a, wanted.transport, wanted.takes);
                all.extend(addrs.map(|a| (place(a), wanted)));
            }
        }
    }
    Ok(all)
}

/// Every address that a port to listen on stands for.
pub(crate) fn addresses(endpoint: &Endpoint) -> Result<Vec<SocketAddr>, ListenError> {
    let Endpoint { host, port } = endpoint;
    match host {
        Host::Ip(ip) => Ok(vec![SocketAddr::new(*ip, *port)]),
        Host::Name(name) => {
            let error = |error| ListenError::of(endpoint.to_string(), error);
            let found = (&**name, *port).to_socket_addrs().map_err(error)?;
            let mut addrs: Vec<_> = found.collect();
            addrs.sort_unstable();
            addrs.dedup();
            Ok(addrs)
        }
    }
}

/// Whether a listener leaves IPv4 alone: `::` takes that as well, unless another listener is wanted
/// for it, before it or after.
fn is_v6_only(place: &Place, all: &[Place], options: &ListenOptions) -> bool {
    let Place::Internet(addr, transport, _) = place else { return false };
    let has_v4_twin = all.iter().any(|other| match other {
        Place::Internet(a, t, _) => {
            a.is_ipv4() && is_wildcard(a.ip()) && a.port() == addr.port() && t == transport
        }
        Place::Unix(_) => false,
    });
    options.v6_only || !is_wildcard(addr.ip()) || has_v4_twin
}

const fn is_v6(place: &Place) -> bool {
    matches!(place, Place::Internet(SocketAddr::V6(_), ..))
}

/// Whether two listeners take some of the same traffic.
fn overlap(a: &Place, b: &Place) -> bool {
    match (a, b) {
        (Place::Internet(a, ta, _), Place::Internet(b, tb, _)) => {
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
