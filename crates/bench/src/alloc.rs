//! `alloc`: heap calls per connection, datagram and UDP session, C code included, at both ends.
//!
//! Both programs run with the malloc counter library preloaded. Per cipher, and per way of naming
//! the target (by address, by `localhost`): as many warm-up connections as will be counted, quiet,
//! the counted connections, quiet. Then the same length of time without any connection shows what
//! the program does on its own (`background`). The same goes for datagrams of one UDP association,
//! and for associations that echo one datagram each, both by SOCKS5 and through a local end with one
//! fixed target (ss-tunnel). With our programs alone the same is done twice more: through a
//! redirector, in a network of its own (ss-redir; needs root), and with access control lists at
//! both ends. Nothing is subtracted: with `--require-zero` ours must not have made a
//! single call while anything came and went.
//!
//! A program that is linked statically or brings its own allocator is not seen by the library: the
//! first is said to be uncountable, the second counts what still reaches `malloc`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use crate::comparison::{Comparison, Turn};
use crate::configuration::{Inbound, Interception};
use crate::counter::{self, Counts};
use crate::error::{Context, Error};
use crate::generator::association::Association;
use crate::generator::datagrams::{self, Pace};
use crate::generator::echo::EchoTarget;
use crate::generator::setups::{self, Limit, Plan};
use crate::generator::udp_echo::UdpEchoTarget;
use crate::generator::{Destination, Entry};
use crate::intercept::{FRONT, Network};
use crate::pair::{Ends, Purpose};
use crate::peers::Program;
use crate::report::{Better, Metric, Sample};
use crate::scratch::Scratch;

/// The figures that count one kind of thing.
struct Figures {
    thing: &'static str,
    server: Metric,
    local: Metric,
    server_bytes: Metric,
    local_bytes: Metric,
    server_frees: Metric,
    local_frees: Metric,
}

impl Figures {
    const fn new(thing: &'static str, [calls, bytes, frees]: [&'static str; 3]) -> Self {
        Self {
            thing,
            server: Metric::new("server_calls", calls, Better::Lower, 2),
            local: Metric::new("local_calls", calls, Better::Lower, 2),
            server_bytes: Metric::new("server_bytes", bytes, Better::Lower, 0),
            local_bytes: Metric::new("local_bytes", bytes, Better::Lower, 0),
            server_frees: Metric::new("server_frees", frees, Better::Neither, 2),
            local_frees: Metric::new("local_frees", frees, Better::Neither, 2),
        }
    }
}

static CONNECTIONS: Figures =
    Figures::new("connection", ["calls/conn", "bytes/conn", "frees/conn"]);
static DATAGRAMS: Figures =
    Figures::new("datagram", ["calls/datagram", "bytes/datagram", "frees/datagram"]);
static SESSIONS: Figures =
    Figures::new("session", ["calls/session", "bytes/session", "frees/session"]);
static SERVER_IDLE: Metric = Metric::new("server_background", "calls", Better::Neither, 0);
static LOCAL_IDLE: Metric = Metric::new("local_background", "calls", Better::Neither, 0);

/// Access control lists for both ends, with rules of every kind: by the first everything goes
/// through the server, by the second the targets are reached by the local end itself.
const LISTS: [(&str, &str, &str); 2] = [
    (
        "proxied.acl",
        "lists, ",
        "[proxy_all]
[bypass_list]
10.0.0.0/8
fd00::/8
||intranet.example
|printer.example
^(.+\\.)?cdn[0-9]{1,3}\\.(east|west)\\.example$
[outbound_block_list]
192.0.2.0/24
2001:db8::/32
||blocked.example
(^|\\.)ads?[0-9]*\\.[a-z]+\\.example$
",
    ),
    (
        "direct.acl",
        "lists, direct, ",
        "[proxy_all]
[bypass_list]
127.0.0.0/8
::1
||example.net
^local(host|net)$
",
    ),
];

/// Payload of a datagram.
const PAYLOAD_LEN: usize = 512;
/// No datagram takes that long.
const PATIENCE: Duration = Duration::from_secs(5);

/// Counters that have not moved for this long are quiet.
const QUIET: Duration = Duration::from_millis(250);
/// Longest wait for quiet.
const QUIET_TIMEOUT: Duration = Duration::from_secs(5);

/// Runs the command.
pub(crate) fn run(comparison: &mut Comparison) -> Result<(), Error> {
    let library = library()?;
    let target = EchoTarget::on_localhost()?;
    let addr = target
        .addrs()
        .next()
        .ok_or_else(|| Error::Run("the echo target has no IPv4 address".to_owned()))?;
    let udp_target = UdpEchoTarget::on_localhost()?;
    let purpose = Purpose { counter: Some(&library), udp: true, ..Purpose::default() };
    comparison.take_turns(purpose, |turn| count_all(turn, "", (addr, udp_target.addr())));
    for (words, destination) in namings(udp_target.addr()) {
        let inbound = Inbound::Tunnel(destination);
        comparison.take_turns(Purpose { inbound, ..purpose }, |turn| {
            if is_countable(turn)? {
                count_datagrams(turn, &format!("UDP tunnel, {words}"), destination)?;
                count_sessions(turn, &format!("UDP tunnel, new sessions, {words}"), destination)?;
            }
            Ok(())
        });
    }
    let scratch = Scratch::new()?;
    for (name, prefix, list) in LISTS {
        let acl = Some(scratch.write(name, list)?);
        let purpose = Purpose { acl: acl.as_deref(), ..purpose };
        let targets = (addr, udp_target.addr());
        comparison.take_turns(purpose, |turn| count_all(turn, prefix, targets));
    }
    // The main thread moves to another network, where these targets are not.
    drop((target, udp_target));
    if let Err(error) = redirected(comparison, purpose) {
        let words = format!("redirected connections and datagrams: {error}");
        if comparison.options().require_zero {
            comparison.report().failure(words);
        } else {
            comparison.report().missing(words);
        }
    }
    if comparison.options().require_zero {
        require_zero(comparison);
    }
    Ok(())
}

/// Counts connections, datagrams and sessions by SOCKS5, to a TCP and a UDP target.
fn count_all(
    turn: &mut Turn<'_>,
    prefix: &str,
    (tcp, udp): (SocketAddr, SocketAddr),
) -> Result<(), Error> {
    if !is_countable(turn)? {
        return Ok(());
    }
    for (words, destination) in namings(tcp) {
        count_connections(turn, &format!("{prefix}{words}"), destination)?;
    }
    for (words, destination) in namings(udp) {
        count_datagrams(turn, &format!("{prefix}UDP, {words}"), destination)?;
    }
    let destination = Destination::Ip(udp);
    count_sessions(turn, &format!("{prefix}UDP, new sessions, IP target"), destination)
}

/// Counts what firewall rules give to a redirector.
fn redirected(comparison: &mut Comparison, purpose: Purpose<'_>) -> Result<(), Error> {
    if !comparison.has(Program::Adit) {
        return Ok(());
    }
    let network = Network::enter()?;
    let targets = (EchoTarget::on_localhost()?, UdpEchoTarget::on_localhost()?);
    let port = |mut addrs: Vec<SocketAddr>| addrs.pop().map_or(0, |addr| addr.port());
    let ports = (port(targets.0.addrs().collect()), targets.1.addr().port());
    for (words, by) in [("REDIRECT", Interception::Redirect), ("TPROXY", Interception::Tproxy)] {
        let inbound = Inbound::Redirected(by);
        comparison.take_turns(Purpose { inbound, ..purpose }, |turn| {
            network.redirect(by, turn.pair.local_port, ports)?;
            if is_countable(turn)? {
                let [tcp, udp] =
                    [ports.0, ports.1].map(|port| Destination::Ip((FRONT, port).into()));
                count_connections(turn, &format!("by {words}"), tcp)?;
                count_datagrams(turn, &format!("UDP, redirector by {words}"), udp)?;
                let sessions = format!("UDP, new sessions, redirector by {words}");
                count_sessions(turn, &sessions, udp)?;
            }
            Ok(())
        });
    }
    Ok(())
}

/// Both ways of naming a target on this machine.
fn namings(addr: SocketAddr) -> [(&'static str, Destination); 2] {
    [
        ("IP target", Destination::Ip(addr)),
        ("localhost by name", Destination::Localhost(addr.port())),
    ]
}

/// The preload library: beside this program, or in cargo's places beside it, or in
/// `target/release`.
fn library() -> Result<PathBuf, Error> {
    let exe = std::env::current_exe().ok();
    let own = exe.as_deref().and_then(|exe| exe.parent());
    let candidates = [
        own.map(|dir| dir.join(counter::LIBRARY)),
        own.and_then(|dir| Some(dir.parent()?.join(counter::LIBRARY))),
        Some(PathBuf::from("target/release").join(counter::LIBRARY)),
    ];
    let found = candidates.into_iter().flatten().find(|path| path.is_file());
    found.and_then(|path| std::path::absolute(path).ok()).ok_or_else(|| {
        Error::Run(format!(
            "{} is not beside this program; build it with `cargo build --release -p \
                 adit-malloc-counter`",
            counter::LIBRARY
        ))
    })
}

/// Whether the library runs in both programs; if not, the report says so.
fn is_countable(turn: &mut Turn<'_>) -> Result<bool, Error> {
    let countable = heap_counts(turn)?.is_some();
    if !countable {
        turn.remark(
            "its heap calls cannot be counted: the preloaded library does not run in it \
             (linked statically)",
        );
    }
    Ok(countable)
}

fn count_connections(
    turn: &mut Turn<'_>,
    words: &str,
    destination: Destination,
) -> Result<(), Error> {
    let number = turn.options.connections as u64;
    let plan = Plan {
        entry: turn.pair.entry,
        destinations: vec![destination],
        concurrency: turn.options.concurrency,
        limit: Limit::Count(number),
    };
    count(turn, words, &CONNECTIONS, number, || connect_all(&plan))
}

fn count_datagrams(
    turn: &mut Turn<'_>,
    words: &str,
    destination: Destination,
) -> Result<(), Error> {
    let number = turn.options.datagrams as u64;
    let window = turn.options.concurrency;
    let mut association = associate(turn.pair.entry, destination)?;
    count(turn, words, &DATAGRAMS, number, || echo_all(&mut association, number, window))
}

/// Counts sessions that echo a datagram each, all open at the same time.
fn count_sessions(turn: &mut Turn<'_>, words: &str, destination: Destination) -> Result<(), Error> {
    let number = turn.options.sessions;
    let entry = turn.pair.entry;
    count(turn, words, &SESSIONS, number as u64, || {
        let mut associations = Vec::with_capacity(number);
        for _ in 0..number {
            let mut association = associate(entry, destination)?;
            echo_all(&mut association, 1, 1)?;
            associations.push(association);
        }
        Ok(())
    })
}

/// Does `work`, which brings `number` things about, twice, and records what the second time took.
fn count(
    turn: &mut Turn<'_>,
    words: &str,
    figures: &'static Figures,
    number: u64,
    mut work: impl FnMut() -> Result<(), Error>,
) -> Result<(), Error> {
    work()?;
    let before = quiet(turn)?;
    let begun = Instant::now();
    work()?;
    let after = quiet(turn)?;
    thread::sleep(begun.elapsed());
    let rested = required_counts(turn)?;

    let each = |count: u64| count as f64 / number as f64;
    let server = after.server.since(before.server);
    let local = after.local.since(before.local);
    let values = vec![
        (&figures.server, each(server.calls)),
        (&figures.local, each(local.calls)),
        (&figures.server_bytes, each(server.bytes)),
        (&figures.local_bytes, each(local.bytes)),
        (&figures.server_frees, each(server.frees)),
        (&figures.local_frees, each(local.frees)),
        (&SERVER_IDLE, rested.server.since(after.server).calls as f64),
        (&LOCAL_IDLE, rested.local.since(after.local).calls as f64),
    ];
    turn.record(format!("{}, {words}", turn.method), values);
    Ok(())
}

fn associate(entry: Entry, destination: Destination) -> Result<Association, Error> {
    let opened = Association::open(entry, destination);
    opened.context(|| "there is no UDP association".to_owned())
}

/// Echoes `number` datagrams; every one must come back, or the count would mean nothing.
fn echo_all(association: &mut Association, number: u64, window: usize) -> Result<(), Error> {
    let plan = datagrams::Plan {
        pace: Pace::Window(window),
        limit: Limit::Count(number),
        payload_len: PAYLOAD_LEN,
        patience: PATIENCE,
        lost_max: 1,
    };
    let outcome = datagrams::run(association, plan)?;
    match outcome.lost() {
        0 => Ok(()),
        lost => Err(Error::Run(format!("of {} datagrams {lost} were lost", outcome.sent))),
    }
}

/// Makes the planned connections; every one must work, or the count would mean nothing.
fn connect_all(plan: &Plan) -> Result<(), Error> {
    let outcome = setups::run(plan)?;
    if outcome.failed() == 0 {
        return Ok(());
    }
    let why = outcome.failures_in_words();
    Err(Error::Run(format!("connections failed: {why}")))
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct BothCounts {
    server: Counts,
    local: Counts,
}

/// Waits until neither program's counters move; a program that never rests is read as it is.
fn quiet(turn: &mut Turn<'_>) -> Result<BothCounts, Error> {
    let begun = Instant::now();
    let mut since = begun;
    let mut last = required_counts(turn)?;
    while since.elapsed() < QUIET {
        if begun.elapsed() > QUIET_TIMEOUT {
            turn.remark("its heap calls do not come to rest");
            break;
        }
        thread::sleep(Duration::from_millis(10));
        let counts = required_counts(turn)?;
        if counts != last {
            last = counts;
            since = Instant::now();
        }
    }
    Ok(last)
}

fn required_counts(turn: &Turn<'_>) -> Result<BothCounts, Error> {
    heap_counts(turn)?.ok_or_else(|| Error::Run("a counter has vanished".to_owned()))
}

fn heap_counts(turn: &Turn<'_>) -> Result<Option<BothCounts>, Error> {
    let Some(Ends { server, local }) = turn.pair.ends() else {
        return Ok(None);
    };
    let file = turn.pair.counter_file();
    let server = counter::read(&file, server.id())?;
    let local = counter::read(&file, local.id())?;
    Ok(server.zip(local).map(|(server, local)| BothCounts { server, local }))
}

/// Makes every heap call of ours, and the lack of a count of ours, a failure of the run.
fn require_zero(comparison: &mut Comparison) {
    let report = comparison.report();
    for figures in [&CONNECTIONS, &DATAGRAMS, &SESSIONS] {
        let ours = report.samples().iter().filter(|sample| {
            sample.program == Program::Adit && !sample.value(&figures.server).is_nan()
        });
        let ours: Vec<Sample> = ours.cloned().collect();
        let thing = figures.thing;
        if ours.is_empty() {
            report.failure(format!("--require-zero: no {thing} of our programs was counted"));
        }
        for sample in ours {
            let (server, local) = (sample.value(&figures.server), sample.value(&figures.local));
            if server != 0.0 || local != 0.0 {
                report.failure(format!(
                    "--require-zero: {}: {server} calls per {thing} in the server, {local} in the \
                     local end",
                    sample.case
                ));
            }
        }
    }
}
