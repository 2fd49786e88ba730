//! Load generator and comparison runs against other programs: `adit bench …`.
//!
//! Each command starts a pair of Shadowsocks programs on loopback, drives it from this process, and
//! prints a table of medians; `--against` does the same with every other Shadowsocks program that
//! is installed, taking turns within one run (A B A B …), because a figure of another day or of a
//! busier machine compares with nothing.
//!
//! | command | path | figures |
//! |---|---|---|
//! | `throughput` | client → local → server → sink or source | Mbit/s, CPU seconds per GiB |
//! | `handshakes` | connect, SOCKS5, one echo, close, again | set-ups per second, p50, p99, CPU |
//! | `idle` | connections that moved 10 bytes each way, then rest | resident KiB per connection |
//! | `udp` | client → local → server → UDP echo and back | echoes per second, loss, p50, p99, CPU |
//! | `alloc` | connections, datagrams and UDP sessions, heap calls of both ends counted; also redirected and with access control lists | calls per each |
//!
//! Contract: everything listens on loopback, on ports that were free; whatever was started is
//! killed and reaped before [`run`] returns, and dies with this process if that is killed. Nothing
//! here judges wall-clock figures. What turns a figure into a failure: `alloc --require-zero`, and a
//! datagram that ours lost although there was only that one on its way (`udp`, serial).

#![forbid(unsafe_code)]

mod alloc;
mod comparison;
mod configuration;
mod counter;
mod error;
mod generator;
mod handshakes;
mod idle;
mod intercept;
mod options;
mod pair;
mod peers;
mod process;
mod report;
mod scratch;
mod stats;
mod throughput;
mod udp;

use std::process::ExitCode;

use crate::comparison::Comparison;
use crate::error::Error;
use crate::options::{Command, Options, Parsed};
use crate::process::Launcher;

/// Runs one measurement command; `args` are the words after `adit bench`.
///
/// The exit code is 0 on success, 1 when a measurement failed or a requirement was not met, and 2
/// for wrong arguments. Call it from the main thread: the programs it starts are tied to the
/// thread that started them.
pub fn run(args: Vec<String>) -> ExitCode {
    if args.first().is_some_and(|word| word == process::EXEC_CHILD) {
        let failure = process::exec_child(&args[1..]);
        report::complain(&failure);
        return ExitCode::from(127);
    }
    let launcher = Launcher::from_command_line(&args);
    match measure(args, launcher) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            report::complain(&error);
            ExitCode::from(error.exit_code())
        }
    }
}

fn measure(args: Vec<String>, launcher: Launcher) -> Result<(), Error> {
    let options = match Options::parse(args)? {
        Parsed::Help => {
            return report::print(options::USAGE);
        }
        Parsed::Run(options) => *options,
    };
    process::raise_open_files_limit();
    let mut comparison = Comparison::new(options, launcher)?;
    match comparison.options().command {
        Command::Throughput => throughput::run(&mut comparison)?,
        Command::Handshakes => handshakes::run(&mut comparison)?,
        Command::Idle => idle::run(&mut comparison)?,
        Command::Udp => udp::run(&mut comparison)?,
        Command::Alloc => alloc::run(&mut comparison)?,
    }
    comparison.finish()
}
