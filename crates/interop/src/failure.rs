//! The one error of the harness: words for the person who reads a failed test.

use std::fmt;
use std::io;

/// Why a test failed, in words that name the programs and show what they said.
pub struct Failure(String);

impl Failure {
    /// A failure in these words.
    pub(crate) fn new(words: impl Into<String>) -> Self {
        Self(words.into())
    }

    /// Turns an I/O error into a failure to do `what`.
    pub(crate) fn io(what: impl fmt::Display) -> impl FnOnce(io::Error) -> Self {
        move |error| Self(format!("cannot {what}: {error}"))
    }

    /// The same failure with more lines below.
    pub(crate) fn followed_by(self, lines: &str) -> Self {
        Self(format!("{}\n{lines}", self.0))
    }

    /// The same failure, said to have happened to `whom`.
    pub(crate) fn of(self, whom: impl fmt::Display) -> Self {
        Self(format!("{whom}: {}", self.0))
    }
}

/// As a test's result is shown: the lines as they are.
impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Failure {}
