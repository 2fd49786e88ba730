//! `udp`: datagrams echoed through client → local → server → target and back, and what they cost.
//!
//! Three scenarios with one association. `serial` sends one datagram at a time and loses none:
//! there is no full buffer to blame, so a loss is a failure of ours and a remark on a peer. `echo`
//! keeps a window in flight. `blast` sends as fast as it can, at most 2,048 numbers ahead of the
//! newest echo, so that datagrams are lost in the queues of the programs; what counts there is how
//! many still come back. In all three the bytes and the source of every echo are checked (see
//! [`datagrams`]). The timed ones begin with a warm-up of a fifth of the time.

use std::time::Duration;

use crate::comparison::{Comparison, Turn};
use crate::error::{Context, Error};
use crate::generator::Destination;
use crate::generator::association::Association;
use crate::generator::datagrams::{self, Outcome, Pace, Plan};
use crate::generator::setups::Limit;
use crate::generator::udp_echo::UdpEchoTarget;
use crate::pair::{Cpu, Purpose};
use crate::peers::Program;
use crate::process::udp_drops;
use crate::report::{Better, Metric};

static RATE: Metric = Metric::new("rate", "echoes/s", Better::Higher, 0);
static OFFERED: Metric = Metric::new("offered", "datagrams/s", Better::Neither, 0);
static LOSS: Metric = Metric::new("loss", "%", Better::Lower, 3);
static P50: Metric = Metric::new("p50", "µs", Better::Lower, 0);
static P99: Metric = Metric::new("p99", "µs", Better::Lower, 0);
static CPU_SERVER: Metric = Metric::new("server_cpu", "CPU s/M echoes", Better::Lower, 2);
static CPU_LOCAL: Metric = Metric::new("local_cpu", "CPU s/M echoes", Better::Lower, 2);
static CPU_BOTH: Metric = Metric::new("both_cpu", "CPU s/M echoes", Better::Lower, 2);

/// Payload of the timed scenarios.
const PAYLOAD_LEN: usize = 512;
/// Payload of `serial`: nearly as much as fits on the way with everything around it.
const PAYLOAD_LEN_SERIAL: usize = 1200;
/// How far `blast` may run ahead.
const AHEAD: usize = 2048;
/// A datagram of a timed scenario that takes longer is lost.
const PATIENCE: Duration = Duration::from_millis(200);
/// One of `serial`: longer than any pause of a busy machine.
const PATIENCE_SERIAL: Duration = Duration::from_secs(1);
/// Losses that end `serial`.
const LOST_MAX_SERIAL: u64 = 20;

/// What the reader must know when the loss is not, or not only, the programs'.
const OWN_LOSS: &str = "datagrams were lost in the generator's own queues";

/// A way to send datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scenario {
    /// One by one.
    Serial,
    /// With a window.
    Echo,
    /// As fast as possible.
    Blast,
}

impl Scenario {
    /// All of them, in the order in which they disturb each other least.
    pub(crate) const ALL: [Self; 3] = [Self::Serial, Self::Echo, Self::Blast];

    /// The scenario of that name.
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        match name {
            "serial" => Some(Self::Serial),
            "echo" => Some(Self::Echo),
            "blast" => Some(Self::Blast),
            _ => None,
        }
    }
}

/// Runs the command.
pub(crate) fn run(comparison: &mut Comparison) -> Result<(), Error> {
    let target = UdpEchoTarget::on_localhost()?;
    let purpose = Purpose { udp: true, ..Purpose::default() };
    comparison.take_turns(purpose, |turn| measure(turn, &target));
    Ok(())
}

fn measure(turn: &mut Turn<'_>, target: &UdpEchoTarget) -> Result<(), Error> {
    let association = Association::open(turn.pair.entry, Destination::Ip(target.addr()));
    let mut association = association.context(|| "there is no UDP association".to_owned())?;
    let drops_before = own_drops(&association, target)?;
    let options = turn.options;
    for &scenario in &options.scenarios {
        let case = match scenario {
            Scenario::Serial => "serial".to_owned(),
            Scenario::Echo => format!("echo, {} in flight", options.concurrency),
            Scenario::Blast => "blast".to_owned(),
        };
        let values = match scenario {
            Scenario::Serial => serial(turn, &mut association)?,
            Scenario::Echo => {
                timed(turn, &mut association, Pace::Window(options.concurrency), &case)?
            }
            Scenario::Blast => timed(turn, &mut association, Pace::Ahead(AHEAD), &case)?,
        };
        turn.record(format!("{}, {case}", turn.method), values);
    }
    if own_drops(&association, target)? > drops_before {
        turn.remark(OWN_LOSS);
    }
    Ok(())
}

/// Datagrams that the generator and its target have themselves dropped.
fn own_drops(association: &Association, target: &UdpEchoTarget) -> Result<u64, Error> {
    let own = association.socket.local_addr().context(|| "cannot ask a socket".to_owned())?;
    Ok(udp_drops(own.port())?.unwrap_or(0) + target.drops()?)
}

fn serial(
    turn: &mut Turn<'_>,
    association: &mut Association,
) -> Result<Vec<(&'static Metric, f64)>, Error> {
    let plan = Plan {
        pace: Pace::Window(1),
        limit: Limit::Count(turn.options.datagrams as u64),
        payload_len: PAYLOAD_LEN_SERIAL,
        patience: PATIENCE_SERIAL,
        lost_max: LOST_MAX_SERIAL,
    };
    let outcome = datagrams::run(association, plan)?;
    if outcome.lost() > 0 {
        let words = format!(
            "of {} datagrams sent one by one {} did not come back",
            outcome.sent,
            outcome.lost()
        );
        if outcome.echoes == 0 || turn.program == Program::Adit {
            return Err(Error::Run(words));
        }
        turn.remark(&words);
    }
    let mut values = vec![(&LOSS, loss(&outcome))];
    values.extend(latencies(&outcome));
    Ok(values)
}

fn timed(
    turn: &mut Turn<'_>,
    association: &mut Association,
    pace: Pace,
    case: &str,
) -> Result<Vec<(&'static Metric, f64)>, Error> {
    let duration = turn.options.duration;
    let mut plan = Plan {
        pace,
        limit: Limit::Time(duration / 5),
        payload_len: PAYLOAD_LEN,
        patience: PATIENCE,
        lost_max: u64::MAX,
    };
    datagrams::run(association, plan)?;
    plan.limit = Limit::Time(duration);
    let before = turn.pair.cpu()?;
    let outcome = datagrams::run(association, plan)?;
    let after = turn.pair.cpu()?;
    if outcome.echoes == 0 {
        return Err(Error::Run(format!("{case}: no datagram came back")));
    }
    if outcome.late {
        turn.remark("echoes came after they had been given up; they count as lost");
    }
    if outcome.dropped > 0 {
        turn.remark(OWN_LOSS);
    }
    let seconds = outcome.sending.as_secs_f64();
    let mut values = vec![(&RATE, outcome.echoes_while_sending as f64 / seconds)];
    if matches!(pace, Pace::Ahead(_)) {
        values.push((&OFFERED, outcome.sent as f64 / seconds));
    }
    values.push((&LOSS, loss(&outcome)));
    values.extend(latencies(&outcome));
    values.extend(cost(&outcome, before, after));
    Ok(values)
}

fn loss(outcome: &Outcome) -> f64 {
    100.0 * outcome.lost() as f64 / outcome.sent as f64
}

fn latencies(outcome: &Outcome) -> [(&'static Metric, f64); 2] {
    [(&P50, 50), (&P99, 99)]
        .map(|(metric, percent)| (metric, outcome.latencies.percentile(percent) as f64))
}

fn cost(outcome: &Outcome, before: Option<Cpu>, after: Option<Cpu>) -> Vec<(&'static Metric, f64)> {
    let Some((before, after)) = before.zip(after) else {
        return Vec::new();
    };
    let millions = outcome.echoes as f64 / 1e6;
    let server = (after.server - before.server) / millions;
    let local = (after.local - before.local) / millions;
    vec![(&CPU_SERVER, server), (&CPU_LOCAL, local), (&CPU_BOTH, server + local)]
}
