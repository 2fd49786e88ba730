//! What is said about a configuration: where, what is wrong, what to write instead.

use std::fmt;
use std::sync::Arc;

use adit_policy::Place;

/// Most errors that are reported of one configuration.
const FINDINGS_MAX: usize = 100;

/// One finding. As an error it prints as `configuration error: FILE:line N: message`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Where; `None` for the configuration as a whole.
    pub place: Option<Place>,
    /// What is wrong and what to write instead, or what deserves attention.
    pub message: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("configuration error: ")?;
        if let Some(place) = &self.place {
            write!(f, "{place}: ")?;
        }
        f.write_str(&self.message)
    }
}

impl std::error::Error for Finding {}

/// Findings while they are collected.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    errors: Vec<Finding>,
    warnings: Vec<String>,
}

impl Findings {
    pub(crate) fn error(&mut self, place: Option<&Place>, message: impl fmt::Display) {
        if self.errors.len() < FINDINGS_MAX {
            self.errors.push(Finding { place: place.cloned(), message: message.to_string() });
        }
    }

    pub(crate) fn warn(&mut self, message: impl Into<String>) {
        self.warnings.push(message.into());
    }

    /// Unpacks a result; an error is recorded.
    pub(crate) fn take<T>(&mut self, place: &Place, result: Result<T, String>) -> Option<T> {
        result.map_err(|message| self.error(Some(place), message)).ok()
    }

    pub(crate) const fn is_usable(&self) -> bool {
        self.errors.is_empty()
    }

    pub(crate) fn into_parts(self) -> (Vec<Finding>, Vec<String>) {
        (self.errors, self.warnings)
    }
}

/// A place in a file, or in a text that is in none.
pub(crate) fn place(file: &Arc<str>, line: u32) -> Place {
    Place { file: Arc::clone(file), line }
}
