//! Running one of the Shadowsocks programs.

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use adit_config::{Config, Invocation, Invoked, UsageError};

use crate::{output, print, secrets};

/// Runs the program this process was started as; `name` is used when that is no known name (a
/// renamed binary).
pub fn run_shadowsocks(name: &str) -> ExitCode {
    let mut args = std::env::args_os();
    let started_as = args.next().unwrap_or_default();
    let file_name = Path::new(&started_as).file_name().map(|n| n.to_string_lossy().into_owned());
    let name = file_name.filter(|n| Invoked::by_name(n).is_some()).unwrap_or_else(|| name.into());
    run_named(&name, args.collect())
}

/// Runs a program by name with the arguments that follow it.
pub(crate) fn run_named(name: &str, args: Vec<OsString>) -> ExitCode {
    match Config::from_args(name, args, &|name| std::env::var(name).ok()) {
        Ok(Invocation::Help(text)) => print(&text).unwrap_or_else(|failure| failure.tell(name)),
        Ok(Invocation::Version(line)) => {
            print(&format!("{line}\n")).unwrap_or_else(|failure| failure.tell(name))
        }
        Ok(Invocation::Run(config)) => {
            if config.secrets_on_argv && !secrets::hide() {
                output::complain(&format!(
                    "{name}: the password stays visible in ps; put it in a file (-c)\n"
                ));
            }
            ExitCode::from(adit_proxy::run(vec![*config]))
        }
        Err(error) => {
            output::complain(&error.to_string());
            ExitCode::from(UsageError::EXIT_CODE)
        }
    }
}
