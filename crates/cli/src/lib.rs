//! The programs. Each binary is a call into this crate: `ss-local`, `ss-server`, `ss-tunnel`,
//! `ss-redir` and `ss-manager` read their options in the dialect of the name they are started under, `adit` has subcommands.

#![forbid(unsafe_code)]

mod check;
mod fetch;
mod key;
mod output;
mod qr;
mod redir;
mod secrets;
mod shadowsocks;
mod socks;
mod up;
mod url;

use std::ffi::OsString;
use std::io;
use std::process::ExitCode;

use adit_config::UsageError;

pub use shadowsocks::run_shadowsocks;

const HELP: &str = "\
Adit: private networking in one program.

Usage: adit COMMAND [OPTIONS]

  up                 start a Shadowsocks server and a local proxy on this machine
  key [METHOD]       print a fresh key for a method
  url encode FILE    print ss:// links for the servers of a configuration file
  url decode LINK    print the configuration that a link stands for
  url qr LINK|FILE   draw the QR code of a link
  check FILE         check a configuration file and say what is wrong with it
  fetch              read a subscription's address from standard input, print its answer
  redir rules ...    print, apply or remove the firewall rules of ss-redir
  socks ...          check the configuration of the SOCKS server, or import one of Dante
  bench ...          measure; see adit bench --help
  ss-local ...       run a program by name (also ss-server, ss-tunnel, ss-redir, ss-manager,
                     sslocal, ssserver, ssmanager)
  man PROGRAM        print the manual page of a program
  help, version

adit COMMAND --help says more about each.
";

/// What a subcommand came to: an exit status, or a failure to tell about.
type Outcome = Result<ExitCode, Failure>;

/// Why a subcommand ended early.
enum Failure {
    /// A wrong command line or configuration.
    Usage(String),
    /// It was asked for rightly and did not work.
    Failed(String),
    /// Standard output cannot be written.
    Output(io::Error),
    /// A wrong configuration of a program, in its own words.
    Config(UsageError),
}

impl Failure {
    /// Says what happened, as `program`; returns the exit status.
    fn tell(self, program: &str) -> ExitCode {
        match self {
            Self::Usage(text) => {
                let hint = format!("Try '{program} --help' for more information.");
                output::complain(&format!("{program}: {text}\n{hint}\n"));
                ExitCode::from(UsageError::EXIT_CODE)
            }
            Self::Failed(text) => {
                output::complain(&format!("{program}: {text}\n"));
                ExitCode::FAILURE
            }
            Self::Config(error) => {
                output::complain(&error.to_string());
                ExitCode::from(UsageError::EXIT_CODE)
            }
            Self::Output(e) => {
                output::complain(&format!("{program}: cannot write to standard output: {e}\n"));
                ExitCode::FAILURE
            }
        }
    }
}

impl From<lexopt::Error> for Failure {
    fn from(error: lexopt::Error) -> Self {
        Self::Usage(match error {
            // A value may be a password, so it is not repeated.
            lexopt::Error::UnexpectedArgument(_) => "unexpected argument".to_owned(),
            lexopt::Error::UnexpectedValue { option, .. } => {
                format!("option {option} takes no value")
            }
            lexopt::Error::ParsingFailed { .. } => "an option has an invalid value".to_owned(),
            lexopt::Error::NonUnicodeValue(_) => "an argument is not valid UTF-8".to_owned(),
            other => other.to_string(),
        })
    }
}

/// The program `adit`.
pub fn run_adit() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    let Some(command) = args.next() else {
        output::complain(HELP);
        return ExitCode::from(UsageError::EXIT_CODE);
    };
    let rest: Vec<OsString> = args.collect();
    let command = command.to_string_lossy().into_owned();
    let outcome = match command.as_str() {
        "up" => up::run(rest),
        "key" => key::run(rest),
        "url" => url::run(rest),
        "check" => check::run(rest),
        "fetch" => fetch::run(rest),
        "redir" => redir::run(rest),
        "socks" => socks::run(rest),
        "bench" => Ok(bench(rest)),
        "man" => man(&rest),
        "help" | "--help" | "-h" => print(HELP),
        "version" | "--version" | "-V" => print(concat!("adit ", env!("CARGO_PKG_VERSION"), "\n")),
        name if adit_config::Invoked::by_name(name).is_some() => {
            return shadowsocks::run_named(name, rest);
        }
        _ => Err(Failure::Usage("unknown command".to_owned())),
    };
    outcome.unwrap_or_else(|failure| failure.tell("adit"))
}

/// Prints text, which is all that was asked for.
fn print(text: &str) -> Outcome {
    output::print(text)?;
    Ok(ExitCode::SUCCESS)
}

fn bench(args: Vec<OsString>) -> ExitCode {
    let args = args.into_iter().map(|a| a.to_string_lossy().into_owned()).collect();
    adit_bench::run(args)
}

fn man(args: &[OsString]) -> Outcome {
    let name = args.first().map(|a| a.to_string_lossy().into_owned());
    let invoked = name.and_then(|name| adit_config::Invoked::by_name(&name));
    let Some(invoked) = invoked else {
        return Err(Failure::Usage(
            "write adit man ss-local, ss-server, ss-tunnel, ss-redir or ss-manager".to_owned(),
        ));
    };
    print(&adit_config::man(invoked))
}
