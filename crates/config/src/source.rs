//! Where a configuration comes from: options, a file, the environment; and reading it again.

use std::ffi::OsString;
use std::fmt;
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};

use zeroize::Zeroizing;

use crate::config::Config;
use crate::diagnostic::{At, Diagnostic, Findings, Origin};
use crate::file::{self, Lookup};
use crate::flags::{self, Arguments, Parsed};
use crate::help::{help, version};
use crate::json::SIZE_MAX;
use crate::patient::PatientFile;
use crate::program::{Dialect, Invoked, Program};
use crate::raw::Raw;
use crate::secret::{Password, Secret};
use crate::validate::validate;

/// The password when none is given anywhere, as in the Rust programs.
pub(crate) const PASSWORD_VARIABLE: &str = "SS_SERVER_PASSWORD";

/// What a command line asks for.
#[derive(Debug)]
pub enum Invocation {
    /// Run with this configuration.
    Run(Box<Config>),
    /// Print this text and succeed.
    Help(String),
    /// Print this line and succeed.
    Version(String),
}

/// Why a program cannot start. Its text is for standard error and holds no value of any option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsageError {
    /// Name of the program.
    pub program: String,
    /// All findings, in the order they were made.
    pub diagnostics: Vec<Diagnostic>,
}

impl UsageError {
    /// Exit status of a program that is used or configured wrongly.
    pub const EXIT_CODE: u8 = 2;
}

impl fmt::Display for UsageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for diagnostic in &self.diagnostics {
            writeln!(f, "{}: {diagnostic}", self.program)?;
        }
        if self.diagnostics.iter().any(|d| d.is_command_line()) {
            writeln!(f, "Try '{} --help' for more information.", self.program)?;
        }
        Ok(())
    }
}

impl std::error::Error for UsageError {}

/// What it takes to read a configuration again.
#[derive(Clone, Debug)]
pub(crate) struct Sources {
    pub(crate) invoked: Invoked,
    /// The file, absolute: it is the same one wherever the process is when it reads it again.
    pub(crate) file: Option<PathBuf>,
    /// Whether a secret stands on the command line.
    pub(crate) has_secrets: bool,
    arguments: Raw,
    argument_warnings: Vec<(Origin, &'static str)>,
}

impl Sources {
    /// Where something that is not there is missing.
    pub(crate) const fn origin(&self) -> Origin {
        if self.file.is_some() { Origin::File } else { Origin::CommandLine }
    }

    /// A file alone, as one of the C programs would read it.
    pub(crate) fn file_only(invoked: Invoked, path: PathBuf) -> Self {
        Self {
            invoked,
            file: Some(path),
            has_secrets: false,
            arguments: Raw::default(),
            argument_warnings: Vec::new(),
        }
    }

    /// What is to hold the findings about these sources.
    pub(crate) fn findings(&self) -> Findings {
        self.file.as_deref().map(Findings::of_file).unwrap_or_default()
    }

    /// Reads and checks everything.
    pub(crate) fn load(self, env: Lookup<'_>) -> Result<Config, Vec<Diagnostic>> {
        let bytes = match &self.file {
            Some(path) => Some(read(path)?),
            None => None,
        };
        let mut findings = self.findings();
        self.assemble(bytes.as_ref().map(|bytes| bytes.as_slice()), env, &mut findings)
            .ok_or_else(|| findings.errors())
    }

    /// Checks everything, given the bytes of the file.
    pub(crate) fn assemble(
        self,
        bytes: Option<&[u8]>,
        env: Lookup<'_>,
        findings: &mut Findings,
    ) -> Option<Config> {
        for &(origin, message) in &self.argument_warnings {
            findings.warn(origin, message);
        }
        let base = match (&self.file, bytes) {
            (Some(_), Some(bytes)) => file::read(bytes, self.invoked.program, env, findings)?,
            _ => Raw::default(),
        };
        let mut raw = self.arguments.clone().over(base);
        if raw.server.secret.is_none() {
            raw.server.secret = env(PASSWORD_VARIABLE).map(|text| {
                let origin = Origin::Environment;
                At::new(Secret::Password(Password::new(text)), origin)
            });
        }
        let absolute = |path: PathBuf| std::path::absolute(&path).unwrap_or(path);
        raw.pid_file = raw.pid_file.map(absolute);
        raw.manager.workdir = raw.manager.workdir.map(absolute);
        raw.manager.state_file = raw.manager.state_file.map(absolute);
        validate(raw, self, env, Vec::new(), findings)
    }
}

impl Config {
    /// Reads a command line and the file it names or implies. `args` starts after the program's
    /// name; `env` looks up environment variables.
    ///
    /// # Errors
    /// Everything that is wrong; the exit status is [`UsageError::EXIT_CODE`].
    pub fn from_args(
        program_name: &str,
        args: impl IntoIterator<Item = OsString>,
        env: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Invocation, UsageError> {
        let fail = |program: &str, diagnostics| UsageError { program: program.into(), diagnostics };
        let Some(invoked) = Invoked::by_name(program_name) else {
            let text = "unknown program name; see adit --help";
            let diagnostic = Diagnostic::of_arguments(Origin::CommandLine, text);
            return Err(fail("adit", vec![diagnostic]));
        };
        let parsed = flags::parse(invoked, args).map_err(|e| fail(invoked.name, vec![e]))?;
        let arguments = match parsed {
            Parsed::Help => return Ok(Invocation::Help(help(invoked))),
            Parsed::Version => return Ok(Invocation::Version(version(invoked))),
            Parsed::Run(arguments) => *arguments,
        };
        let sources = sources(invoked, arguments, env);
        let config = sources.load(env).map_err(|errors| fail(invoked.name, errors))?;
        Ok(Invocation::Run(Box::new(config)))
    }

    /// Reads the same sources again; the options stay as they were, the file may have changed.
    ///
    /// # Errors
    /// Everything that is wrong; the running configuration should stay in force then.
    pub fn reload(&self, env: &dyn Fn(&str) -> Option<String>) -> Result<Self, Vec<Diagnostic>> {
        self.sources.clone().load(env)
    }
}

fn sources(invoked: Invoked, arguments: Arguments, env: Lookup<'_>) -> Sources {
    // The C programs look for a file when there are no arguments, the Rust ones when the
    // arguments name no server.
    let searched = match invoked.dialect {
        Dialect::Libev => arguments.is_empty,
        Dialect::Rust if invoked.program == Program::Manager => {
            arguments.raw.manager.address.is_none()
        }
        Dialect::Rust => {
            let raw = &arguments.raw;
            raw.server.hosts.is_empty() && raw.servers.is_empty() && raw.online.url.is_none()
        }
    };
    let found = || {
        let paths = if searched { search_path(invoked, env) } else { Vec::new() };
        paths.into_iter().find(|path| path.is_file())
    };
    let file = arguments.config.or_else(found);
    Sources {
        invoked,
        file: file.map(|path| std::path::absolute(&path).unwrap_or(path)),
        has_secrets: arguments.has_secrets,
        arguments: arguments.raw,
        argument_warnings: arguments.warnings,
    }
}

/// Files that are looked for when none is named, in order.
pub(crate) fn search_path(invoked: Invoked, env: Lookup<'_>) -> Vec<PathBuf> {
    let set = |name: &str| env(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let home = || set("HOME").map(|home| home.join(".config"));
    let user = set("XDG_CONFIG_HOME").or_else(home);
    match invoked.dialect {
        Dialect::Libev => user
            .into_iter()
            .chain([PathBuf::from("/etc")])
            .map(|dir| dir.join("shadowsocks-libev/config.json"))
            .collect(),
        Dialect::Rust => {
            let own = match invoked.program {
                Program::Server => "server.json",
                Program::Manager => "manager.json",
                Program::Local | Program::Tunnel | Program::Redir => "local.json",
            };
            let system = env("XDG_CONFIG_DIRS").filter(|dirs| !dirs.is_empty());
            let system = system.unwrap_or_else(|| "/etc/xdg".to_owned());
            let system = std::env::split_paths(&system).chain([PathBuf::from("/etc")]);
            let dirs = user.into_iter().chain(system).map(|dir| dir.join("shadowsocks-rust"));
            [PathBuf::new()]
                .into_iter()
                .chain(dirs)
                .flat_map(|dir| [dir.join(own), dir.join("config.json")])
                .collect()
        }
    }
}

/// Reads a file, at most one byte more than a document may have.
///
/// All of the memory is taken at once: a vector that grows leaves unwiped copies behind. A file
/// whose length is not known, such as a pipe, may have any that is allowed.
pub(crate) fn read(path: &Path) -> Result<Zeroizing<Vec<u8>>, Vec<Diagnostic>> {
    read_up_to(path, SIZE_MAX)
}

/// As [`read`], for a document of at most `size_max` bytes.
pub(crate) fn read_up_to(
    path: &Path,
    size_max: usize,
) -> Result<Zeroizing<Vec<u8>>, Vec<Diagnostic>> {
    let read = || -> io::Result<Zeroizing<Vec<u8>>> {
        let mut file = PatientFile::open(path)?;
        let len = file.len()?.and_then(|len| usize::try_from(len).ok());
        // One byte more shows the end without growing.
        let room = len.unwrap_or(SIZE_MAX).min(size_max) + 1;
        fill(&mut file, Zeroizing::new(vec![0; room]), size_max)
    };
    read().map_err(|e| {
        let mut findings = Findings::of_file(path);
        findings.error(Origin::File, format!("cannot be read: {e}"));
        findings.errors()
    })
}

/// Reads until the end or until `bytes` is full, and moves to a larger one only for a file that
/// has grown meanwhile.
fn fill(
    file: &mut impl Read,
    mut bytes: Zeroizing<Vec<u8>>,
    size_max: usize,
) -> io::Result<Zeroizing<Vec<u8>>> {
    let mut filled = 0;
    loop {
        if filled == bytes.len() {
            if filled > size_max {
                return Ok(bytes);
            }
            let mut larger = Zeroizing::new(vec![0; (2 * filled).clamp(1, size_max + 1)]);
            larger[..filled].copy_from_slice(&bytes);
            bytes = larger;
        }
        match file.read(&mut bytes[filled..]) {
            Ok(0) => {
                bytes.truncate(filled);
                return Ok(bytes);
            }
            Ok(n) => filled += n,
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
