//! `adit check`: what a configuration file says and what is wrong with it.

use std::ffi::OsString;
use std::fmt::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use adit_config::{Mode, Plugin, Program, Report, Role, UsageError, check_file};

use crate::Failure::{self, Usage};
use crate::{Outcome, output, print};

const HELP: &str = "\
Usage: adit check [--program ss-local|ss-server|ss-tunnel|ss-redir|ss-manager] FILE

Reads a Shadowsocks configuration and says what it would do, or what is wrong with it, each
with file, line, column and key. The program is guessed from the keys when not given.
Exit status: 0 when the file can be used, 2 when not.
";

pub(crate) fn run(args: Vec<OsString>) -> Outcome {
    let mut parser = lexopt::Parser::from_args(args);
    let mut file: Option<PathBuf> = None;
    let mut program = None;
    while let Some(arg) = parser.next()? {
        match arg {
            lexopt::Arg::Long("help") | lexopt::Arg::Short('h') => return print(HELP),
            lexopt::Arg::Long("program") => program = Some(program_named(parser.value()?)?),
            lexopt::Arg::Value(path) if file.is_none() => file = Some(path.into()),
            other => return Err(other.unexpected().into()),
        }
    }
    let file = file.ok_or_else(|| Usage("missing the file to check".to_owned()))?;
    match check_file(&file, program, &|name| std::env::var(name).ok()) {
        Ok(report) => print(&(said(&report) + &format!("{}: ok\n", file.display()))),
        Err(found) => {
            found.iter().for_each(|d| output::complain(&format!("{d}\n")));
            Ok(ExitCode::from(UsageError::EXIT_CODE))
        }
    }
}

/// What a file says, a line each.
fn said(report: &Report) -> String {
    let mut text = String::new();
    let mut line = |words: std::fmt::Arguments<'_>| {
        let _infallible = writeln!(text, "{words}");
    };
    report.warnings.iter().for_each(|w| line(format_args!("warning: {w}")));
    if let Some(manager) = &report.config.manager {
        line(format_args!("takes requests at {}", manager.address));
    }
    if let Some(manager) = &report.config.report_to {
        line(format_args!("reports traffic to {manager}"));
    }
    match &report.config.role {
        Role::Client { locals, unix_locals, servers, .. } => {
            for local in locals {
                let mode = local.mode.as_str();
                line(format_args!("listens on {} ({:?}, {mode})", local.bind, local.kind));
            }
            for local in unix_locals {
                let path = local.path.display();
                line(format_args!("listens on {path} ({:?}, tcp_only)", local.kind));
            }
            if let Some(online) = &report.config.online {
                let interval = online.update_interval.as_secs();
                line(format_args!("more servers from a subscription, fetched every {interval} s"));
            }
            for server in servers {
                let plugin = plugin(server.plugin.as_ref(), server.mode);
                line(format_args!("server {} ({}{plugin})", server.endpoint, server.key.method()));
            }
        }
        Role::Server { listeners } => {
            for listener in listeners {
                let users = match listener.key.users().len() {
                    0 => String::new(),
                    1 => ", 1 user".to_owned(),
                    count => format!(", {count} users"),
                };
                let relay = match &listener.relay {
                    None => String::new(),
                    Some(relay) => format!(", relay to {}", relay.destinations.len()),
                };
                let plugin = plugin(listener.plugin.as_ref(), listener.mode);
                line(format_args!(
                    "serves {} ({}{users}{relay}, {}{plugin})",
                    listener.bind,
                    listener.key.method(),
                    listener.mode.as_str()
                ));
            }
        }
    }
    text
}

/// What goes through a plugin, of what may be relayed.
fn plugin(plugin: Option<&Plugin>, mode: Mode) -> String {
    let Some((plugin, carries)) = plugin.and_then(|p| Some((p, p.mode.and(mode)?))) else {
        return String::new();
    };
    let way = match carries {
        Mode::TcpAndUdp => "TCP and UDP",
        Mode::TcpOnly if mode.udp() => "TCP, not UDP,",
        Mode::TcpOnly => "TCP",
        Mode::UdpOnly if mode.tcp() => "UDP, not TCP,",
        Mode::UdpOnly => "UDP",
    };
    format!(", {way} through plugin {}", plugin.name())
}

fn program_named(name: OsString) -> Result<Program, Failure> {
    let invoked = adit_config::Invoked::by_name(&name.to_string_lossy());
    invoked.map(|i| i.program).ok_or_else(|| {
        Usage("--program takes ss-local, ss-server, ss-tunnel, ss-redir or ss-manager".to_owned())
    })
}
