//! Checking a file without running anything.

use std::path::Path;

use crate::config::Config;
use crate::diagnostic::{Diagnostic, Findings};
use crate::endpoint::Host;
use crate::file;
use crate::link::Link;
use crate::program::{Dialect, Invoked, Program};
use crate::source::{Sources, read};
use crate::validate::links;

/// What a file that can be used says.
#[derive(Debug)]
pub struct Report {
    /// The program it was checked for.
    pub program: Program,
    /// Things that deserve attention.
    pub warnings: Vec<Diagnostic>,
    /// What the program would run on.
    pub config: Config,
}

/// Checks the file at `path` for `program`, or for the program it looks like: a server when it
/// listens everywhere or has users, a client when it has local listeners.
///
/// # Errors
/// Everything that is wrong with it.
pub fn check_file(
    path: &Path,
    program: Option<Program>,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<Report, Vec<Diagnostic>> {
    let bytes = read(path)?;
    check_bytes(path, &bytes, program, env)
}

/// Links for the servers of the file at `path`, which is checked first: one a server, and one a
/// user of a shared port. `host` replaces every host; it is needed where a server listens on
/// every address.
///
/// # Errors
/// Everything that is wrong with the file, or why a server has no link.
pub fn links_of_file(
    path: &Path,
    host: Option<&Host>,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<Vec<Link>, Vec<Diagnostic>> {
    let bytes = read(path)?;
    let report = check_bytes(path, &bytes, None, env)?;
    let mut findings = Findings::of_file(path);
    let invoked = report.config.invoked;
    let raw = file::read(&bytes, invoked.program, env, &mut findings);
    let links = raw.map(|raw| links(&raw, invoked, host, &mut findings)).unwrap_or_default();
    if findings.is_usable() { Ok(links) } else { Err(findings.errors()) }
}

/// As [`check_file`], with the file already read.
///
/// # Errors
/// As [`check_file`].
pub(crate) fn check_bytes(
    path: &Path,
    bytes: &[u8],
    program: Option<Program>,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<Report, Vec<Diagnostic>> {
    let mut findings = Findings::of_file(path);
    let guess = || file::guess(bytes, &mut findings);
    let program = program.or_else(guess);
    let invoked = program.and_then(|program| Invoked::of(program, Dialect::Libev));
    let Some((program, invoked)) = program.zip(invoked) else { return Err(findings.errors()) };
    let sources = Sources::file_only(invoked, path.to_owned());
    match sources.assemble(Some(bytes), env, &mut findings) {
        Some(config) => Ok(Report { program, warnings: findings.warnings(), config }),
        None => Err(findings.errors()),
    }
}
