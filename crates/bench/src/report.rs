//! What was measured, as tables, JSON and CSV; the only module that prints.
//!
//! Tables show, per case and figure, each program's median, its spread, and its ratio to the best
//! peer (the best program other than ours and `direct`). Files hold every single figure. Results go
//! to standard output, everything else to standard error.

use std::fmt::{Display, Write as _};
use std::io::{self, ErrorKind, Write as _};
use std::path::Path;

use serde_json::{Map, Value, json};

use crate::error::{Context, Error};
use crate::options::Options;
use crate::peers::{Installed, Program};
use crate::stats::Spread;

mod table;

/// Which values of a figure are good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Better {
    /// Large ones.
    Higher,
    /// Small ones.
    Lower,
    /// It is not a matter of comparison.
    Neither,
}

/// A kind of figure.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Metric {
    key: &'static str,
    unit: &'static str,
    better: Better,
    decimals: usize,
}

impl Metric {
    /// A figure called `key` in files and tables.
    pub(crate) const fn new(
        key: &'static str,
        unit: &'static str,
        better: Better,
        decimals: usize,
    ) -> Self {
        Self { key, unit, better, decimals }
    }
}

/// One program's figures in one round of one case.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    /// What was measured, in words.
    pub(crate) case: String,
    /// Whose figures they are.
    pub(crate) program: Program,
    /// Round, from 0.
    pub(crate) round: usize,
    /// The figures.
    pub(crate) values: Vec<(&'static Metric, f64)>,
}

impl Sample {
    /// The figure of that kind; NaN, which equals nothing, when there is none.
    pub(crate) fn value(&self, metric: &'static Metric) -> f64 {
        self.values.iter().find(|(kind, _)| *kind == metric).map_or(f64::NAN, |&(_, value)| value)
    }
}

/// Collects what a run finds out.
pub(crate) struct Report {
    command: &'static str,
    programs: Vec<Installed>,
    missing: Vec<String>,
    remarks: Vec<String>,
    failures: Vec<String>,
    samples: Vec<Sample>,
}

/// One line of a table.
struct Row {
    metric: &'static Metric,
    program: Program,
    spread: Spread,
    to_best_peer: Option<f64>,
}

impl Report {
    /// An empty report of a command.
    pub(crate) const fn new(command: &'static str) -> Self {
        Self {
            command,
            programs: Vec::new(),
            missing: Vec::new(),
            remarks: Vec::new(),
            failures: Vec::new(),
            samples: Vec::new(),
        }
    }

    /// Tells who takes part.
    pub(crate) fn programs(&mut self, programs: &[Installed]) {
        self.programs = programs.to_vec();
    }

    /// Notes a peer that is not there, and says so at once.
    pub(crate) fn missing(&mut self, why: String) {
        note(&format!("not measured: {why}"));
        self.missing.push(why);
    }

    /// Adds something the reader should know; the same words are kept once.
    pub(crate) fn remark(&mut self, words: String) {
        if !self.remarks.contains(&words) {
            self.remarks.push(words);
        }
    }

    /// Notes something that makes the run fail, and says so at once.
    pub(crate) fn failure(&mut self, words: String) {
        note(&format!("failed: {words}"));
        self.failures.push(words);
    }

    /// Adds figures.
    pub(crate) fn add(&mut self, sample: Sample) {
        self.samples.push(sample);
    }

    /// All figures so far.
    pub(crate) fn samples(&self) -> &[Sample] {
        &self.samples
    }

    /// Fails if anything has failed.
    pub(crate) fn verdict(&self) -> Result<(), Error> {
        match self.failures.len() {
            0 => Ok(()),
            1 => Err(Error::Run("one failure, see above".to_owned())),
            count => Err(Error::Run(format!("{count} failures, see above"))),
        }
    }

    /// Prints the tables and the remarks.
    pub(crate) fn print(&self) -> Result<(), Error> {
        let mut text = String::new();
        let mut line = |words: std::fmt::Arguments<'_>| {
            let _infallible = writeln!(text, "{words}");
        };
        for installed in &self.programs {
            line(format_args!("{}: {}", installed.program.name(), installed.version));
        }
        for why in &self.missing {
            line(format_args!("not measured: {why}"));
        }
        for case in self.cases() {
            line(format_args!("\n{} – {case}", self.command));
            line(format_args!("{}", table::render(&self.cells(case)).trim_end_matches('\n')));
        }
        if !self.remarks.is_empty() || !self.failures.is_empty() {
            line(format_args!(""));
        }
        for words in &self.remarks {
            line(format_args!("note: {words}"));
        }
        for words in &self.failures {
            line(format_args!("failed: {words}"));
        }
        print(&text)
    }

    /// Writes everything as JSON.
    pub(crate) fn write_json(&self, path: &Path, options: &Options) -> Result<(), Error> {
        let text = format!("{:#}\n", self.json(options));
        std::fs::write(path, text).context(|| format!("cannot write {}", path.display()))
    }

    /// Writes every figure as one line of CSV.
    pub(crate) fn write_csv(&self, path: &Path) -> Result<(), Error> {
        std::fs::write(path, self.csv()).context(|| format!("cannot write {}", path.display()))
    }

    /// The cases in the order in which they were first measured.
    fn cases(&self) -> Vec<&str> {
        let mut cases: Vec<&str> = Vec::new();
        for sample in &self.samples {
            if !cases.contains(&sample.case.as_str()) {
                cases.push(&sample.case);
            }
        }
        cases
    }

    /// The table of a case, grouped by figure.
    fn rows(&self, case: &str) -> Vec<Row> {
        let samples = || self.samples.iter().filter(|sample| sample.case == case);
        let mut metrics: Vec<&'static Metric> = Vec::new();
        for (metric, _) in samples().flat_map(|sample| &sample.values) {
            if !metrics.contains(metric) {
                metrics.push(metric);
            }
        }
        let mut rows = Vec::new();
        for metric in metrics {
            let spreads: Vec<(Program, Spread)> = self
                .programs
                .iter()
                .filter_map(|installed| {
                    let program = installed.program;
                    let values: Vec<f64> = samples()
                        .filter(|sample| sample.program == program)
                        .map(|sample| sample.value(metric))
                        .filter(|value| !value.is_nan())
                        .collect();
                    Some((program, Spread::of(&values)?))
                })
                .collect();
            let best = best_peer(metric.better, &spreads);
            rows.extend(spreads.into_iter().map(|(program, spread)| Row {
                metric,
                program,
                spread,
                to_best_peer: best.map(|best| spread.median / best),
            }));
        }
        rows
    }

    fn cells(&self, case: &str) -> Vec<[String; 6]> {
        let heading = ["figure", "unit", "program", "median", "min – max", "÷ best peer"];
        let mut cells = vec![heading.map(str::to_owned)];
        for row in self.rows(case) {
            let number = |value| table::number(value, row.metric.decimals);
            cells.push([
                row.metric.key.to_owned(),
                row.metric.unit.to_owned(),
                row.program.name().to_owned(),
                number(row.spread.median),
                format!("{} – {}", number(row.spread.min), number(row.spread.max)),
                row.to_best_peer.map_or_else(String::new, |ratio| format!("{ratio:.2}")),
            ]);
        }
        cells
    }

    /// Results are kept and passed on, so they hold names of programs and no paths of a machine.
    fn json(&self, options: &Options) -> Value {
        let programs: Vec<Value> = self
            .programs
            .iter()
            .map(|installed| {
                json!({
                    "name": installed.program.name(),
                    "version": installed.version,
                    "server": file_name(&installed.server),
                    "local": file_name(&installed.local),
                })
            })
            .collect();
        let samples: Vec<Value> = self
            .samples
            .iter()
            .map(|sample| {
                let values = sample.values.iter();
                let values: Map<String, Value> =
                    values.map(|&(metric, value)| (metric.key.to_owned(), json!(value))).collect();
                json!({
                    "case": sample.case,
                    "program": sample.program.name(),
                    "round": sample.round,
                    "values": values,
                })
            })
            .collect();
        json!({
            "command": self.command,
            "machine": machine(),
            "options": {
                "methods": options.methods,
                "rounds": options.rounds,
                "seconds": options.duration.as_secs_f64(),
                "concurrency": options.concurrency,
                "connections": options.connections,
                "datagrams": options.datagrams,
                "sessions": options.sessions,
                "workers": options.workers,
                "smoke": options.smoke,
            },
            "programs": programs,
            "missing": self.missing,
            "remarks": self.remarks,
            "failures": self.failures,
            "samples": samples,
            "summary": self.summary(),
        })
    }

    fn summary(&self) -> Vec<Value> {
        let mut summary = Vec::new();
        for case in self.cases() {
            for row in self.rows(case) {
                summary.push(json!({
                    "case": case,
                    "figure": row.metric.key,
                    "unit": row.metric.unit,
                    "program": row.program.name(),
                    "median": row.spread.median,
                    "min": row.spread.min,
                    "max": row.spread.max,
                    "to_best_peer": row.to_best_peer,
                }));
            }
        }
        summary
    }

    fn csv(&self) -> String {
        let mut text = String::from("command,case,program,round,figure,unit,value\n");
        for sample in &self.samples {
            for (metric, value) in &sample.values {
                text.push_str(&format!(
                    "{},\"{}\",{},{},{},{},{value}\n",
                    self.command,
                    sample.case.replace('"', "\"\""),
                    sample.program.name(),
                    sample.round,
                    metric.key,
                    metric.unit,
                ));
            }
        }
        text
    }
}

/// The best median of any peer; `None` when there is none, or nothing can be divided by it.
fn best_peer(better: Better, spreads: &[(Program, Spread)]) -> Option<f64> {
    let medians =
        spreads.iter().filter(|(program, _)| program.is_peer()).map(|(_, spread)| spread.median);
    let best = match better {
        Better::Higher => medians.max_by(f64::total_cmp),
        Better::Lower => medians.min_by(f64::total_cmp),
        Better::Neither => None,
    };
    best.filter(|&best| best > 0.0)
}

/// What the figures depend on most.
fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn machine() -> Value {
    let line = |path: &str, key: &str| {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        text.lines()
            .find_map(|line| line.strip_prefix(key))
            .map(|rest| rest.trim_start_matches([' ', '\t', ':']).to_owned())
    };
    json!({
        "kernel": line("/proc/sys/kernel/osrelease", ""),
        "cpu": line("/proc/cpuinfo", "model name"),
        "cpus": std::thread::available_parallelism().ok().map(usize::from),
        "load_1_min": line("/proc/loadavg", "")
            .and_then(|text| text.split(' ').next()?.parse::<f64>().ok()),
    })
}

/// Writes text to standard output. A reader that has gone (`| head`) is no failure; `println!` would
/// panic.
pub(crate) fn print(text: &str) -> Result<(), Error> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written.context(|| "cannot write to standard output".to_owned()),
    }
}

/// Tells what is being done.
pub(crate) fn progress(words: &str) {
    say(format_args!("{words}"));
}

/// Tells something the user should know while the run goes on.
pub(crate) fn note(words: &str) {
    say(format_args!("note: {words}"));
}

/// Tells why the command failed.
pub(crate) fn complain(error: &dyn Display) {
    say(format_args!("adit bench: {error}"));
}

fn say(words: std::fmt::Arguments<'_>) {
    // An error that can't be written has nowhere to say so.
    let _ = writeln!(io::stderr().lock(), "{words}");
}

#[cfg(test)]
mod tests;
