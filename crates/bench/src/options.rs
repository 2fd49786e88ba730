//! The command line of `adit bench`.
//!
//! An option that means nothing to the chosen command is refused, so that nothing is asked for in
//! vain. `--smoke` only changes defaults; options that are given win over it.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use lexopt::{Arg, Parser, ValueExt};

use crate::error::Error;
use crate::generator::Direction;
use crate::peers::Program;
use crate::udp::Scenario;

/// The help text.
pub(crate) const USAGE: &str = "\
Usage: adit bench COMMAND [OPTIONS]

Commands:
  throughput   bytes per second through SOCKS5 client, local, server, target
  handshakes   connections set up per second, one small echo each
  idle         resident memory per resting connection
  udp          datagrams echoed per second, loss, round-trip time, CPU time
  alloc        heap calls per connection, datagram and UDP session, counted with
               a preloaded library

Which programs:
  --against            also every other installed Shadowsocks program, taking turns
  --programs LIST      exactly these: adit, shadowsocks-libev, shadowsocks-rust,
                       shadowsocks-rust-single, sing-box, direct (no proxy)
  --peers-dir DIR      look here for other programs first (may be repeated)
  --sing-box PATH      the sing-box program
  --adit-dir DIR       our ss-server, ss-local and ss-tunnel (default: beside this
                       program, then target/release)
  --workers N          worker threads of our programs

What to measure:
  --method LIST        ciphers (default aes-256-gcm; alloc: three)
  --rounds N           repetitions (default 5; alloc 1)
  --seconds S          throughput, handshakes, udp: length of one measurement
                       (default 3)
  --streams LIST       throughput: parallel streams (default 1,8)
  --direction D        throughput: up, down or both (default both)
  --scenarios LIST     udp: some of echo (a window of datagrams in flight), blast (as
                       fast as they can be sent), serial (one by one; none of ours
                       may be lost) (default all)
  --concurrency N      handshakes: connections in flight (default 32);
                       udp: datagrams in flight of echo (default 64);
                       alloc: both (default 4)
  --connections N      idle: resting connections (default 1000);
                       alloc: counted connections (default 200)
  --datagrams N        udp: datagrams of serial (default 2000);
                       alloc: counted datagrams (default 2000)
  --sessions N         alloc: counted UDP sessions (default 200)
  --require-zero       alloc: fail unless our programs made no heap call
  --smoke              one short round: does everything still run?

Output:
  --json FILE          raw figures and summary
  --csv FILE           raw figures, one line each
";

/// What to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    /// Bulk transfer.
    Throughput,
    /// Connection set-up.
    Handshakes,
    /// Memory of resting connections.
    Idle,
    /// Datagrams there and back.
    Udp,
    /// Heap calls per connection, datagram and session.
    Alloc,
}

impl Command {
    /// Its word on the command line.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Throughput => "throughput",
            Self::Handshakes => "handshakes",
            Self::Idle => "idle",
            Self::Udp => "udp",
            Self::Alloc => "alloc",
        }
    }

    fn from_name(name: &str) -> Option<Self> {
        [Self::Throughput, Self::Handshakes, Self::Idle, Self::Udp, Self::Alloc]
            .into_iter()
            .find(|command| command.name() == name)
    }

    /// Whether `option` (without dashes) means something to the command.
    const fn takes(self, option: &str) -> bool {
        match option.as_bytes() {
            b"streams" | b"direction" => matches!(self, Self::Throughput),
            b"seconds" => matches!(self, Self::Throughput | Self::Handshakes | Self::Udp),
            b"scenarios" => matches!(self, Self::Udp),
            b"concurrency" => matches!(self, Self::Handshakes | Self::Udp | Self::Alloc),
            b"connections" => matches!(self, Self::Idle | Self::Alloc),
            b"datagrams" => matches!(self, Self::Udp | Self::Alloc),
            b"sessions" | b"require-zero" => matches!(self, Self::Alloc),
            _ => true,
        }
    }
}

/// Which programs take part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Field {
    /// Ours alone.
    Own,
    /// Ours and every peer that is installed.
    Against,
    /// These, all of which must be there.
    Named(Vec<Program>),
}

/// A checked command line.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    /// What to measure.
    pub(crate) command: Command,
    /// Which programs take part.
    pub(crate) field: Field,
    /// Directories with other programs.
    pub(crate) peers_dirs: Vec<PathBuf>,
    /// The sing-box program.
    pub(crate) sing_box: Option<PathBuf>,
    /// Directory with our programs.
    pub(crate) adit_dir: Option<PathBuf>,
    /// Worker threads of our programs.
    pub(crate) workers: Option<usize>,
    /// Ciphers.
    pub(crate) methods: Vec<String>,
    /// Repetitions.
    pub(crate) rounds: usize,
    /// Length of one timed measurement.
    pub(crate) duration: Duration,
    /// Parallel streams, one case each.
    pub(crate) streams: Vec<usize>,
    /// Directions, one case each.
    pub(crate) directions: Vec<Direction>,
    /// Ways to send datagrams, one case each.
    pub(crate) scenarios: Vec<Scenario>,
    /// Connections or datagrams in flight.
    pub(crate) concurrency: usize,
    /// Resting or counted connections.
    pub(crate) connections: usize,
    /// Datagrams sent one by one, or counted.
    pub(crate) datagrams: usize,
    /// Counted UDP sessions.
    pub(crate) sessions: usize,
    /// Fail unless our programs made no heap call.
    pub(crate) require_zero: bool,
    /// One short round.
    pub(crate) smoke: bool,
    /// Where raw figures go as JSON.
    pub(crate) json: Option<PathBuf>,
    /// Where raw figures go as CSV.
    pub(crate) csv: Option<PathBuf>,
}

/// What the command line asks for.
pub(crate) enum Parsed {
    /// The help text.
    Help,
    /// A measurement.
    Run(Box<Options>),
}

impl Options {
    /// Reads the words after `bench`.
    pub(crate) fn parse(args: Vec<String>) -> Result<Parsed, Error> {
        let mut words = args.iter();
        let command = match words.next().map(String::as_str) {
            None | Some("-h" | "--help" | "help") => return Ok(Parsed::Help),
            Some(word) => Command::from_name(word)
                .ok_or_else(|| Error::Usage(format!("unknown command {word:?}; see --help")))?,
        };
        let smoke = args.iter().any(|word| word == "--smoke");
        let mut options = Self::defaults(command, smoke);
        let mut parser = Parser::from_args(args.into_iter().skip(1));
        while let Some(arg) = parser.next().map_err(usage)? {
            let name = match arg {
                Arg::Short('h') | Arg::Long("help") => return Ok(Parsed::Help),
                Arg::Long(name) => name.to_owned(),
                Arg::Short(_) | Arg::Value(_) => return Err(usage(arg.unexpected())),
            };
            if !command.takes(&name) {
                return Err(Error::Usage(format!("--{name} means nothing to {}", command.name())));
            }
            options.apply(&name, &mut parser)?;
        }
        options.check_field()?;
        Ok(Parsed::Run(Box::new(options)))
    }

    fn defaults(command: Command, smoke: bool) -> Self {
        let alloc = command == Command::Alloc;
        let methods: &[&str] = if alloc {
            &["aes-256-gcm", "chacha20-ietf-poly1305", "2022-blake3-aes-256-gcm"]
        } else {
            &["aes-256-gcm"]
        };
        Self {
            command,
            field: Field::Own,
            peers_dirs: Vec::new(),
            sing_box: None,
            adit_dir: None,
            workers: None,
            methods: methods.iter().map(|&method| method.to_owned()).collect(),
            rounds: if smoke || alloc { 1 } else { 5 },
            duration: Duration::from_millis(if smoke { 300 } else { 3000 }),
            streams: if smoke { vec![1, 2] } else { vec![1, 8] },
            directions: vec![Direction::Up, Direction::Down],
            scenarios: Scenario::ALL.to_vec(),
            concurrency: match command {
                Command::Alloc => 4,
                Command::Udp => 64,
                Command::Throughput | Command::Handshakes | Command::Idle => 32,
            },
            connections: match (alloc, smoke) {
                (true, false) => 200,
                (false, false) => 1000,
                (_, true) => 50,
            },
            datagrams: if smoke { 200 } else { 2000 },
            sessions: if smoke { 50 } else { 200 },
            require_zero: false,
            smoke,
            json: None,
            csv: None,
        }
    }

    fn apply(&mut self, name: &str, parser: &mut Parser) -> Result<(), Error> {
        match name {
            "smoke" => {} // Seen before the defaults were chosen.
            "require-zero" => self.require_zero = true,
            "against" => self.choose(Field::Against)?,
            "programs" => {
                let programs = list(name, parser, |word| Program::from_name(word).ok_or(()))
                    .map_err(|_| {
                        Error::Usage(format!("--programs takes some of {}", Program::names()))
                    })?;
                self.choose(Field::Named(programs))?;
            }
            "peers-dir" => self.peers_dirs.push(path(parser)?),
            "sing-box" => self.sing_box = Some(path(parser)?),
            "adit-dir" => self.adit_dir = Some(path(parser)?),
            "json" => self.json = Some(path(parser)?),
            "csv" => self.csv = Some(path(parser)?),
            "method" => self.methods = list(name, parser, |word| Ok::<_, ()>(word.to_owned()))?,
            "streams" => self.streams = list(name, parser, count)?,
            "direction" => {
                let word = value(parser)?;
                self.directions = Direction::from_word(&word).ok_or_else(|| {
                    Error::Usage(format!("--direction takes up, down or both, not {word:?}"))
                })?;
            }
            "scenarios" => {
                self.scenarios = list(name, parser, |word| Scenario::from_name(word).ok_or(()))
                    .map_err(|_| {
                        Error::Usage("--scenarios takes some of echo, blast, serial".to_owned())
                    })?;
            }
            "workers" => self.workers = Some(number(name, parser)?),
            "rounds" => self.rounds = number(name, parser)?,
            "concurrency" => self.concurrency = number(name, parser)?,
            "connections" => self.connections = number(name, parser)?,
            "datagrams" => self.datagrams = number(name, parser)?,
            "sessions" => self.sessions = number(name, parser)?,
            "seconds" => self.duration = seconds(&value(parser)?)?,
            _ => return Err(Error::Usage(format!("unknown option --{name}; see --help"))),
        }
        Ok(())
    }

    /// Refuses options about programs that do not take part.
    fn check_field(&self) -> Result<(), Error> {
        let (ours, others) = match &self.field {
            Field::Own => (true, false),
            Field::Against => (true, true),
            Field::Named(programs) => (
                programs.contains(&Program::Adit),
                programs.iter().any(|program| program.is_peer()),
            ),
        };
        if !ours && (self.workers.is_some() || self.adit_dir.is_some() || self.require_zero) {
            let text = "--workers, --adit-dir and --require-zero are about our programs, which do \
                        not take part";
            return Err(Error::Usage(text.to_owned()));
        }
        if !others && (self.sing_box.is_some() || !self.peers_dirs.is_empty()) {
            let text = "--peers-dir and --sing-box are about other programs: add --against";
            return Err(Error::Usage(text.to_owned()));
        }
        Ok(())
    }

    fn choose(&mut self, field: Field) -> Result<(), Error> {
        if self.field != Field::Own {
            let text = "--against and --programs exclude each other and come once";
            return Err(Error::Usage(text.to_owned()));
        }
        self.field = field;
        Ok(())
    }
}

fn usage(error: lexopt::Error) -> Error {
    Error::Usage(error.to_string())
}

fn path(parser: &mut Parser) -> Result<PathBuf, Error> {
    parser.value().map(PathBuf::from).map_err(usage)
}

fn value(parser: &mut Parser) -> Result<String, Error> {
    parser.value().and_then(|v| v.string()).map_err(usage)
}

/// A comma-separated list with at least one item and no empty one.
fn list<T, E>(
    name: &str,
    parser: &mut Parser,
    item: impl Fn(&str) -> Result<T, E>,
) -> Result<Vec<T>, Error> {
    let text = value(parser)?;
    text.split(',')
        .map(|word| match word.is_empty() {
            false => item(word).ok(),
            true => None,
        })
        .collect::<Option<Vec<T>>>()
        .ok_or_else(|| Error::Usage(format!("--{name} cannot be {text:?}")))
}

/// A whole number from 1 to 100 000, which is more than any of these options can use.
fn count(word: &str) -> Result<usize, ()> {
    match usize::from_str(word) {
        Ok(number @ 1..=100_000) => Ok(number),
        Ok(_) | Err(_) => Err(()),
    }
}

fn number(name: &str, parser: &mut Parser) -> Result<usize, Error> {
    let text = value(parser)?;
    count(&text).map_err(|()| {
        Error::Usage(format!("--{name} takes a number from 1 to 100000, not {text:?}"))
    })
}

fn seconds(text: &str) -> Result<Duration, Error> {
    match f64::from_str(text) {
        Ok(seconds) if (0.1..=3600.0).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        Ok(_) | Err(_) => Err(Error::Usage(format!("--seconds takes 0.1 to 3600, not {text:?}"))),
    }
}

#[cfg(test)]
mod tests;
