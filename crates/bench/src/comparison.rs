//! A comparison run: finds the programs, lets them take turns, collects what was measured.
//!
//! Order: for each cipher, for each round, every program once (A B A B …), each with a pair of
//! processes of its own. A program that fails is reported and the others go on; the run then ends
//! with a failure.

use std::collections::BTreeSet;

use crate::error::Error;
use crate::options::{Command, Field, Options};
use crate::pair::{Pair, Purpose, Setting};
use crate::peers::{Installed, Places, Program};
use crate::process::Launcher;
use crate::report::{self, Metric, Report, Sample};

/// A run under way.
pub(crate) struct Comparison {
    options: Options,
    launcher: Launcher,
    programs: Vec<Installed>,
    report: Report,
}

/// One program's turn.
pub(crate) struct Turn<'a> {
    /// The running pair.
    pub(crate) pair: &'a mut Pair,
    /// The command line.
    pub(crate) options: &'a Options,
    /// Cipher of this turn.
    pub(crate) method: &'a str,
    /// Whose turn it is.
    pub(crate) program: Program,
    round: usize,
    samples: Vec<Sample>,
    notes: Vec<String>,
}

impl Comparison {
    /// Finds the programs that take part.
    ///
    /// # Errors
    /// When a program that must be there is not: ours, or one that was named.
    pub(crate) fn new(options: Options, launcher: Launcher) -> Result<Self, Error> {
        let places = Places::new(
            options.adit_dir.clone(),
            options.peers_dirs.clone(),
            options.sing_box.clone(),
        );
        let processes_only = matches!(options.command, Command::Idle | Command::Alloc);
        let (required, optional): (Vec<Program>, &[Program]) = match &options.field {
            Field::Own => (vec![Program::Adit], &[]),
            Field::Against => (vec![Program::Adit], &Program::PEERS),
            Field::Named(programs) => (programs.clone(), &[]),
        };
        if processes_only && required.contains(&Program::Direct) {
            let text = "direct has no processes whose memory or calls could be measured";
            return Err(Error::Usage(text.to_owned()));
        }
        let mut report = Report::new(options.command.name());
        let mut programs = Vec::new();
        for program in required {
            programs.push(places.find(program).map_err(Error::Run)?);
        }
        for &program in optional {
            match places.find(program) {
                Ok(installed) => programs.push(installed),
                Err(why) => report.missing(why),
            }
        }
        report.programs(&programs);
        Ok(Self { options, launcher, programs, report })
    }

    /// The command line.
    pub(crate) const fn options(&self) -> &Options {
        &self.options
    }

    /// Whether a program takes part.
    pub(crate) fn has(&self, program: Program) -> bool {
        self.programs.iter().any(|installed| installed.program == program)
    }

    /// What has been measured.
    pub(crate) const fn report(&mut self) -> &mut Report {
        &mut self.report
    }

    /// Gives every program its turns, each with a pair for `purpose`.
    pub(crate) fn take_turns(
        &mut self,
        purpose: Purpose<'_>,
        measure: impl Fn(&mut Turn<'_>) -> Result<(), Error>,
    ) {
        let mut notes = BTreeSet::new();
        for method in &self.options.methods {
            for round in 0..self.options.rounds {
                for installed in &self.programs {
                    if purpose.is_ours() && installed.program != Program::Adit {
                        continue;
                    }
                    let name = installed.program.name();
                    if !installed.program.supports(method) {
                        notes.insert(format!("{name} does not speak {method}"));
                        continue;
                    }
                    let rounds = self.options.rounds;
                    report::progress(&format!("{method}, round {}/{rounds}: {name}", round + 1));
                    let order = Order {
                        launcher: &self.launcher,
                        options: &self.options,
                        installed,
                        purpose,
                        method,
                        round,
                    };
                    match order.carry_out(&measure) {
                        Ok((samples, said)) => {
                            samples.into_iter().for_each(|s| self.report.add(s));
                            notes.extend(said);
                        }
                        Err(error) => self.report.failure(format!("{name}, {method}: {error}")),
                    }
                }
            }
        }
        notes.into_iter().for_each(|note| self.report.remark(note));
    }

    /// Prints the tables, writes the files, and fails if any turn had failed.
    pub(crate) fn finish(self) -> Result<(), Error> {
        let printed = self.report.print();
        if let Some(path) = &self.options.json {
            self.report.write_json(path, &self.options)?;
        }
        if let Some(path) = &self.options.csv {
            self.report.write_csv(path)?;
        }
        // Files that were asked for are written all the same.
        printed?;
        self.report.verdict()
    }
}

/// Everything that makes one turn.
struct Order<'a> {
    launcher: &'a Launcher,
    options: &'a Options,
    installed: &'a Installed,
    purpose: Purpose<'a>,
    method: &'a str,
    round: usize,
}

impl Order<'_> {
    /// Starts a pair, measures it, and makes sure that both programs have survived.
    fn carry_out(
        &self,
        measure: &impl Fn(&mut Turn<'_>) -> Result<(), Error>,
    ) -> Result<(Vec<Sample>, Vec<String>), Error> {
        let setting =
            Setting { method: self.method, workers: self.options.workers, purpose: self.purpose };
        let mut pair = Pair::start(self.launcher, self.installed, setting)?;
        let mut turn = Turn {
            pair: &mut pair,
            options: self.options,
            method: self.method,
            program: self.installed.program,
            round: self.round,
            samples: Vec::new(),
            notes: Vec::new(),
        };
        let measured = measure(&mut turn);
        let (samples, notes) = (turn.samples, turn.notes);
        // A program that ended explains a failure better than the connection error does.
        pair.check_alive()?;
        measured.map(|()| (samples, notes))
    }
}

impl Turn<'_> {
    /// Keeps the figures of one case.
    pub(crate) fn record(&mut self, case: String, values: Vec<(&'static Metric, f64)>) {
        self.samples.push(Sample { case, program: self.program, round: self.round, values });
    }

    /// Adds a remark to the report; the same words are shown once.
    pub(crate) fn remark(&mut self, words: &str) {
        self.notes.push(format!("{}: {words}", self.program.name()));
    }
}
