//! Why a measurement could not be made.
//!
//! A program-edge type: it carries words for a person at a terminal, and the exit code.

use std::fmt;
use std::io;

/// Why a command ended without its figures.
#[derive(Debug)]
pub(crate) enum Error {
    /// The arguments make no sense. The user's to fix.
    Usage(String),
    /// The operating system refused something.
    Io {
        /// What was being done.
        what: String,
        /// What the system said.
        source: io::Error,
    },
    /// A measured program misbehaved, or a requirement was not met.
    Run(String),
}

impl Error {
    /// Exit code of the program: 2 for usage, otherwise 1.
    pub(crate) const fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) => 2,
            Self::Io { .. } | Self::Run(_) => 1,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(text) | Self::Run(text) => f.write_str(text),
            Self::Io { what, source } => write!(f, "{what}: {source}"),
        }
    }
}

impl std::error::Error for Error {}

/// Says what was being done when the system refused.
pub(crate) trait Context<T> {
    /// Wraps an I/O error with `what`.
    fn context(self, what: impl FnOnce() -> String) -> Result<T, Error>;
}

impl<T> Context<T> for io::Result<T> {
    fn context(self, what: impl FnOnce() -> String) -> Result<T, Error> {
        self.map_err(|source| Error::Io { what: what(), source })
    }
}
