//! `handshakes`: how many connections per second can be set up, each moving one small echo.
//!
//! See [`setups`] for what one set-up is. A warm-up of a fifth of the time comes first. Failures
//! are a figure of their own; a turn without any success fails.

use crate::comparison::{Comparison, Turn};
use crate::error::Error;
use crate::generator::Destination;
use crate::generator::echo::EchoTarget;
use crate::generator::setups::{self, Limit, Plan};
use crate::pair::Purpose;
use crate::report::{Better, Metric};
use crate::stats::percentile;

static RATE: Metric = Metric::new("rate", "set-ups/s", Better::Higher, 0);
static P50: Metric = Metric::new("p50", "ms", Better::Lower, 2);
static P99: Metric = Metric::new("p99", "ms", Better::Lower, 2);
static CPU_SERVER: Metric = Metric::new("server_cpu", "CPU ms/conn", Better::Lower, 4);
static CPU_LOCAL: Metric = Metric::new("local_cpu", "CPU ms/conn", Better::Lower, 4);
static CPU_BOTH: Metric = Metric::new("both_cpu", "CPU ms/conn", Better::Lower, 4);
static FAILED: Metric = Metric::new("failed", "set-ups", Better::Neither, 0);

/// Addresses of the echo target.
const TARGETS: u8 = 16;

/// Runs the command.
pub(crate) fn run(comparison: &mut Comparison) -> Result<(), Error> {
    let target = EchoTarget::on_many_addresses(TARGETS)?;
    remark_on_port_reuse(comparison);
    comparison.take_turns(Purpose::default(), |turn| measure(turn, &target));
    Ok(())
}

/// Between client and local end, and between the two programs, there is one pair of addresses, so
/// its ports must be usable again soon.
fn remark_on_port_reuse(comparison: &mut Comparison) {
    let path = "/proc/sys/net/ipv4/tcp_tw_reuse";
    let words = match std::fs::read_to_string(path) {
        Ok(text) if text.trim() != "0" => return,
        Ok(_) => "net.ipv4.tcp_tw_reuse is 0: long runs wear out the ports of loopback".to_owned(),
        Err(error) => format!("cannot tell whether ports are used again: {path}: {error}"),
    };
    comparison.report().remark(words);
}

fn measure(turn: &mut Turn<'_>, target: &EchoTarget) -> Result<(), Error> {
    let duration = turn.options.duration;
    let mut plan = Plan {
        entry: turn.pair.entry,
        destinations: target.addrs().map(Destination::Ip).collect(),
        concurrency: turn.options.concurrency,
        limit: Limit::Time(duration / 5),
    };
    setups::run(&plan)?;
    plan.limit = Limit::Time(duration);
    let cpu_before = turn.pair.cpu()?;
    let outcome = setups::run(&plan)?;
    let cpu_after = turn.pair.cpu()?;

    let completed = outcome.completed();
    if outcome.failed() > 0 {
        turn.remark(&format!("failed set-ups: {}", outcome.failures_in_words()));
    }
    if completed == 0 {
        let why = outcome.failures_in_words();
        return Err(Error::Run(format!("no connection was set up: {why}")));
    }
    let millis = |percent| f64::from(percentile(&outcome.latencies_us, percent)) / 1000.0;
    let mut values = vec![
        (&RATE, completed as f64 / outcome.elapsed.as_secs_f64()),
        (&P50, millis(50)),
        (&P99, millis(99)),
        (&FAILED, outcome.failed() as f64),
    ];
    if let (Some(before), Some(after)) = (cpu_before, cpu_after) {
        let per_connection = |seconds: f64| seconds * 1000.0 / completed as f64;
        let server = per_connection(after.server - before.server);
        let local = per_connection(after.local - before.local);
        values.push((&CPU_SERVER, server));
        values.push((&CPU_LOCAL, local));
        values.push((&CPU_BOTH, server + local));
    }
    let workers = turn.options.concurrency;
    turn.record(format!("{}, {workers} in flight", turn.method), values);
    Ok(())
}
