//! The configuration of `adit socks`: Alighieri's language with extensions, and Dante's, read into
//! one [`Config`]. `docs/socks.md` is both languages for people who write such files.
//!
//! [`load`] reads a file with everything it includes and reports all findings at once, each with its
//! file and line. Nothing is read and dropped: what is not served is refused with what to write
//! instead. [`Config::policy`] compiles the rules with what only the running system knows, the
//! addresses of interfaces and of countries; it is called again when one of those changes.
//!
//! The crate opens the files of the configuration and nothing else: not the list of users, not the
//! database of countries, no socket.

#![forbid(unsafe_code)]

mod block;
mod config;
mod dante;
mod draft;
mod files;
mod finding;
#[doc(hidden)]
pub mod fuzz;
mod json;
mod keys;
mod lex;
mod read;
mod report;
mod rule;
mod selector;
mod value;

use std::path::Path;

pub use config::{
    Advertised, Auth, Config, Dns, External, Facility, Families, Limits, ListenAt, Listener, Log,
    LogFormat, Prefer, Rotation, Timeouts, Udp,
};
pub use dante::{Import, Note, Verdict, import};
pub use files::{Disk, FILE_LEN_MAX, Files, SourceList};
pub use finding::Finding;
pub use keys::{KEYS, Key, Reload, Scope};
pub use report::{check_json, metadata_json};
pub use rule::{Compiled, Environment, Rule};

use draft::Draft;
use finding::Findings;

/// The language of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Language {
    /// Alighieri's, with extensions.
    Adit,
    /// That of Dante's `sockd.conf`.
    Dante,
}

impl Language {
    /// What a file's name says: `sockd.conf` and `danted.conf` are Dante's.
    pub fn of_path(path: &Path) -> Self {
        match path.file_name().and_then(|name| name.to_str()) {
            Some("sockd.conf" | "danted.conf") => Self::Dante,
            _ => Self::Adit,
        }
    }
}

/// A configuration and where it came from.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// What the files say.
    pub config: Config,
    /// The files.
    pub sources: SourceList,
    /// What deserves attention, one line each.
    pub warnings: Vec<String>,
}

/// Reads and checks a configuration.
///
/// Rules are not compiled: [`Config::policy`] does that, and has findings of its own.
///
/// # Errors
/// Everything that is wrong, up to a hundred findings.
pub fn load(path: &Path, language: Language, files: &dyn Files) -> Result<Loaded, Vec<Finding>> {
    let mut findings = Findings::default();
    let mut draft = Draft::default();
    let sources = match language {
        Language::Adit => {
            let (sources, list) = files::load(path, files, &mut findings);
            read::read(&sources, &mut draft, &mut findings);
            list
        }
        Language::Dante => dante::load(path, files, &mut draft, &mut findings),
    };
    let config = draft.finish(language, &mut findings);
    let (errors, warnings) = findings.into_parts();
    match config {
        Some(config) => Ok(Loaded { config, sources, warnings }),
        None => Err(errors),
    }
}
