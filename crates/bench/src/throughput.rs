//! `throughput`: bytes per second through client → local → server → target, and what they cost.
//!
//! Per turn: a check pass that compares every byte, then for each direction and number of streams a
//! timed pass. The clock starts after a warm-up of a fifth of the time (at most a second), with all
//! streams running, and both counters and both programs' CPU times are read at its two ends.

use std::thread;
use std::time::{Duration, Instant};

use crate::comparison::{Comparison, Turn};
use crate::error::Error;
use crate::generator::Direction;
use crate::generator::stream::{self, StreamTarget, Streams};
use crate::pair::Purpose;
use crate::report::{Better, Metric};

static RATE: Metric = Metric::new("rate", "Mbit/s", Better::Higher, 0);
static CPU_SERVER: Metric = Metric::new("server_cpu", "CPU s/GiB", Better::Lower, 3);
static CPU_LOCAL: Metric = Metric::new("local_cpu", "CPU s/GiB", Better::Lower, 3);
static CPU_BOTH: Metric = Metric::new("both_cpu", "CPU s/GiB", Better::Lower, 3);

/// Bytes each way in the check pass, and in a smoke run.
const CHECK_LEN: u64 = 16 << 20;
const CHECK_LEN_SMOKE: u64 = 1 << 20;

/// Runs the command.
pub(crate) fn run(comparison: &mut Comparison) -> Result<(), Error> {
    let target = StreamTarget::start()?;
    comparison.take_turns(Purpose::default(), |turn| measure(turn, &target));
    Ok(())
}

fn measure(turn: &mut Turn<'_>, target: &StreamTarget) -> Result<(), Error> {
    let len = if turn.options.smoke { CHECK_LEN_SMOKE } else { CHECK_LEN };
    stream::check(turn.pair.entry, target, len)?;
    let options = turn.options;
    for &direction in &options.directions {
        for &streams in &options.streams {
            let values = timed_pass(turn, target, direction, streams)?;
            let plural = if streams == 1 { "" } else { "s" };
            let word = direction.word();
            let case = format!("{}, {word}, {streams} stream{plural}", turn.method);
            turn.record(case, values);
        }
    }
    Ok(())
}

fn timed_pass(
    turn: &Turn<'_>,
    target: &StreamTarget,
    direction: Direction,
    count: usize,
) -> Result<Vec<(&'static Metric, f64)>, Error> {
    let duration = turn.options.duration;
    let streams = Streams::start(turn.pair.entry, target, direction, count)?;
    thread::sleep((duration / 5).min(Duration::from_secs(1)));
    let cpu_before = turn.pair.cpu()?;
    let (begun, bytes_before) = (Instant::now(), streams.delivered());
    thread::sleep(duration);
    let (elapsed, bytes_after) = (begun.elapsed(), streams.delivered());
    let cpu_after = turn.pair.cpu()?;
    streams.finish()?;

    let bytes = (bytes_after - bytes_before) as f64;
    if bytes == 0.0 {
        return Err(Error::Run("no byte arrived".to_owned()));
    }
    let mut values = vec![(&RATE, bytes * 8.0 / 1e6 / elapsed.as_secs_f64())];
    if let (Some(before), Some(after)) = (cpu_before, cpu_after) {
        let gib = bytes / f64::from(1 << 30);
        let server = (after.server - before.server) / gib;
        let local = (after.local - before.local) / gib;
        values.push((&CPU_SERVER, server));
        values.push((&CPU_LOCAL, local));
        values.push((&CPU_BOTH, server + local));
    }
    Ok(values)
}
