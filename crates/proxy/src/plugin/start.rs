//! Starting plugins and waiting until they listen.
//!
//! A plugin of a client binds a port on loopback that we choose for it, and between our choice and
//! its bind any program may take the port. So it is not enough that somebody listens there: it has to
//! be the plugin. Where it is not, the plugin gets another port, a few times.
//!
//! A plugin of a server has no such gap: we listen on loopback before it starts.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use adit_engine::guard::{OwnListeners, Transport};
use adit_observe::log;
use adit_sys::child::Keeper;
use adit_sys::net;
use adit_sys::poll::Poll;

use super::job::{Job, Side};
use super::owner::{Holder, holder};
use super::running::{Running, pause, stop};

/// How long plugins have to be ready.
const READY_LIMIT: Duration = Duration::from_secs(10);
/// Ports that a plugin is given one after the other, because others were faster.
const PORTS_MAX: u32 = 5;
/// Ports looked at for one that is free for both transports.
const PAIRS_MAX: u32 = 64;

/// Why plugins have not been started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StartError {
    /// The program was told to end meanwhile.
    Stopped,
    /// One is not ready; this is why.
    Failed(String),
}

/// What starting needs besides the plugins.
pub(crate) struct Surroundings<'a> {
    /// Watches what they say.
    pub(crate) poll: &'a Poll,
    /// Ends them when we are killed; there is one where there is a plugin.
    pub(crate) keeper: Option<&'a Keeper>,
    /// Whom they run as.
    pub(crate) user: Option<&'a str>,
    /// Is told where they take traffic.
    pub(crate) own: &'a Arc<OwnListeners>,
    /// Whether the program has been told to end.
    pub(crate) stopped: &'a dyn Fn() -> bool,
}

/// A plugin on its way.
struct Starting {
    running: Running,
    ports_tried: u32,
    is_ready: bool,
}

/// How far a plugin is.
enum Progress {
    Waiting,
    Ready,
    /// Another program has its port.
    PortTaken,
    Ended,
}

/// Starts plugins side by side and waits until all of them listen; an error ends all of them.
/// Those of a server come with the address they are to connect to.
pub(crate) fn start_all(
    jobs: Vec<(Job, Option<SocketAddr>)>,
    with: &Surroundings<'_>,
) -> Result<Vec<Running>, StartError> {
    let mut starting = Vec::with_capacity(jobs.len());
    let outcome = try_start_all(jobs, with, &mut starting);
    let plugins = starting.into_iter().map(|one: Starting| one.running).collect();
    match outcome {
        Ok(()) => Ok(plugins),
        Err(error) => {
            stop(plugins, with.poll);
            Err(error)
        }
    }
}

fn try_start_all(
    jobs: Vec<(Job, Option<SocketAddr>)>,
    with: &Surroundings<'_>,
    starting: &mut Vec<Starting>,
) -> Result<(), StartError> {
    for (job, local) in jobs {
        let running = start_one(job, local, with)?;
        starting.push(Starting { running, ports_tried: 1, is_ready: false });
    }
    let by = Instant::now() + READY_LIMIT;
    loop {
        for at in 0..starting.len() {
            starting[at].running.forward_output();
            if !starting[at].is_ready {
                advance(starting, at, with)?;
            }
        }
        let Some(late) = starting.iter().find(|one| !one.is_ready) else { return Ok(()) };
        if (with.stopped)() {
            return Err(StartError::Stopped);
        }
        if Instant::now() >= by {
            return Err(StartError::Failed(format!(
                "{} does not listen at {} after {} s; look at what it says above, and at \
                 \"plugin_opts\"",
                late.running.job,
                awaited(&late.running),
                READY_LIMIT.as_secs()
            )));
        }
        pause(with.poll);
    }
}

/// Looks at one plugin and does what is due.
fn advance(
    starting: &mut Vec<Starting>,
    at: usize,
    with: &Surroundings<'_>,
) -> Result<(), StartError> {
    match progress(&starting[at].running) {
        Progress::Waiting => Ok(()),
        Progress::Ready => {
            let Running { job, local, .. } = &starting[at].running;
            log::info!("{job}: {}", job.ways(*local));
            starting[at].is_ready = true;
            Ok(())
        }
        Progress::PortTaken if starting[at].ports_tried < PORTS_MAX => {
            let Starting { running, ports_tried, .. } = starting.remove(at);
            let (job, port) = (running.job.clone(), running.local.port());
            log::warn!("{job}: another program has taken port {port} first; trying another port");
            stop(vec![running], with.poll);
            let running = start_one(job, None, with)?;
            starting
                .insert(at, Starting { running, ports_tried: ports_tried + 1, is_ready: false });
            Ok(())
        }
        Progress::PortTaken => Err(StartError::Failed(format!(
            "{}: another program took each of {PORTS_MAX} free ports first",
            starting[at].running.job
        ))),
        Progress::Ended => {
            let running = starting.remove(at).running;
            let job = running.job.clone();
            let hint =
                if running.has_succeeded() { " (a plugin stays in the foreground)" } else { "" };
            let end = running.bury();
            Err(StartError::Failed(format!("{job} has ended before it was ready{hint}: {end}")))
        }
    }
}

fn start_one(
    job: Job,
    local: Option<SocketAddr>,
    with: &Surroundings<'_>,
) -> Result<Running, StartError> {
    let local = match local {
        Some(local) => local,
        None => free_port(&job)
            .map_err(|e| StartError::Failed(format!("{job}: no port is free on loopback: {e}")))?,
    };
    Running::start(job, local, with).map_err(StartError::Failed)
}

/// How far a plugin is, from what the kernel tells.
fn progress(running: &Running) -> Progress {
    let Running { job, local, .. } = running;
    let (port, at) = match job.side {
        Side::Client => (local.port(), Some(local.ip())),
        // A name may be any address, and there is no other program at the port: it would not be
        // the plugin's address then, and the plugin says so itself.
        Side::Server => (job.remote.port, None),
    };
    // Looked at first: what has ended listens no more, and what listens may end at any time.
    let ended = running.has_ended();
    let mut is_ready = true;
    for transport in [Transport::Stream, Transport::Datagram] {
        if !job.carries(transport) {
            continue;
        }
        let found = holder(transport, port, at, running.group()).unwrap_or_else(|_| {
            // Without a process table to look at, an answer is all there is.
            if answers(transport, job, *local) { Holder::Unknown } else { Holder::Nobody }
        });
        match found {
            Holder::Group => {}
            // A plugin with rights of its own cannot be looked into. The port was free before it
            // started, and it lives.
            Holder::Unknown => is_ready &= !ended,
            Holder::Another if job.side == Side::Client && !running.has_succeeded() => {
                return Progress::PortTaken;
            }
            Holder::Nobody | Holder::Another => is_ready = false,
        }
    }
    match (ended, is_ready) {
        // Gone to the background, where it cannot be watched: what has the port now is its own.
        (true, _) if running.has_succeeded() => Progress::Ended,
        (true, _) if job.side == Side::Client && !is_free(job, *local) => Progress::PortTaken,
        (true, _) => Progress::Ended,
        (false, true) => Progress::Ready,
        (false, false) => Progress::Waiting,
    }
}

/// Where a plugin is to listen, for messages.
fn awaited(running: &Running) -> String {
    match running.job.side {
        Side::Client => running.local.to_string(),
        Side::Server => running.job.remote.to_string(),
    }
}

/// Whether somebody takes connections, or has the port, where the plugin is to listen.
fn answers(transport: Transport, job: &Job, local: SocketAddr) -> bool {
    let listens_at = match (job.side, job.remote.socket_addr()) {
        (Side::Client, _) => local,
        (Side::Server, Some(addr)) if !addr.ip().is_unspecified() => addr,
        (Side::Server, _) => SocketAddr::new(Ipv4Addr::LOCALHOST.into(), job.remote.port),
    };
    match transport {
        Transport::Stream => TcpStream::connect_timeout(&listens_at, READY_LIMIT / 10).is_ok(),
        Transport::Datagram => UdpSocket::bind(listens_at).is_err(),
    }
}

/// Whether the plugin could bind its port.
fn is_free(job: &Job, local: SocketAddr) -> bool {
    let tcp = !job.carries(Transport::Stream) || TcpListener::bind(local).is_ok();
    tcp && (!job.carries(Transport::Datagram) || UdpSocket::bind(local).is_ok())
}

/// A port on loopback that nobody has at this moment, for what the plugin carries.
fn free_port(job: &Job) -> io::Result<SocketAddr> {
    on_loopback(|ip| {
        pair(|| {
            let any = SocketAddr::new(ip, 0);
            if !job.carries(Transport::Stream) {
                return Ok(Some(UdpSocket::bind(any)?.local_addr()?));
            }
            // Held until the other transport has been looked at.
            let listener = TcpListener::bind(any)?;
            let addr = listener.local_addr()?;
            let udp_is_free = !job.carries(Transport::Datagram) || UdpSocket::bind(addr).is_ok();
            Ok(udp_is_free.then_some(addr))
        })
    })
}

/// A port on loopback for our own listeners behind the plugin, held until they are open.
pub(crate) struct Held {
    pub(crate) addr: SocketAddr,
    _port: std::os::fd::OwnedFd,
}

/// Takes a port on loopback for what the plugin carries.
pub(crate) fn hold_port(job: &Job) -> io::Result<Held> {
    on_loopback(|ip| {
        pair(|| {
            let (port, addr) = net::hold_port(ip)?;
            let udp_is_free = !job.carries(Transport::Datagram) || UdpSocket::bind(addr).is_ok();
            Ok(udp_is_free.then_some(Held { addr, _port: port }))
        })
    })
}

/// Tries 127.0.0.1, and `::1` on a host without IPv4.
fn on_loopback<T>(mut take: impl FnMut(IpAddr) -> io::Result<T>) -> io::Result<T> {
    take(Ipv4Addr::LOCALHOST.into()).or_else(|e| take(Ipv6Addr::LOCALHOST.into()).map_err(|_| e))
}

/// Tries ports until one will do.
fn pair<T>(mut take: impl FnMut() -> io::Result<Option<T>>) -> io::Result<T> {
    for _ in 0..PAIRS_MAX {
        if let Some(found) = take()? {
            return Ok(found);
        }
    }
    Err(io::ErrorKind::AddrInUse.into())
}
