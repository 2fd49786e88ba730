//! What is said about a setting: where it came from, what is wrong, what to write instead.
//!
//! A [`Diagnostic`] prints as one line, `file:line:column: key "name": message`, or
//! `option --name: message`. Messages never repeat the value of a setting: any of them may turn
//! out to be a password in the wrong place.

use std::fmt;
use std::path::Path;

use crate::flags;
use crate::source::PASSWORD_VARIABLE;

/// A place in a text, counted from 1 in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Position {
    /// Line.
    pub(crate) line: u32,
    /// Character in the line.
    pub(crate) column: u32,
}

impl Position {
    /// The first character.
    pub(crate) const START: Self = Self { line: 1, column: 1 };

    /// The place right after `c`.
    pub(crate) const fn past(self, c: char) -> Self {
        if c == '\n' {
            Self { line: self.line + 1, column: 1 }
        } else {
            Self { line: self.line, column: self.column + 1 }
        }
    }

    /// The place right after `text`.
    pub(crate) fn after(self, text: &str) -> Self {
        text.chars().fold(self, Self::past)
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// Where a setting came from. It is copied with every setting, so what a place in a file is comes
/// from [`Findings`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The command line as a whole.
    CommandLine,
    /// One option, by the number of its spelling.
    Flag(u16),
    /// The environment variable that holds a password.
    Environment,
    /// The file as a whole.
    File,
    /// A place in the file, by its number in [`Findings`].
    Place(u32),
}

/// A place in a file.
#[derive(Debug)]
struct Place {
    position: Position,
    /// The key with its parents, such as `servers[0].password`.
    key: Option<String>,
}

/// One finding: where, what, and what to write instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// The line that it prints as.
    line: String,
    is_command_line: bool,
}

impl Diagnostic {
    /// A finding about the command line.
    pub(crate) fn of_arguments(origin: Origin, message: impl Into<String>) -> Self {
        Findings::default().diagnostic(&(origin, message.into()))
    }

    /// True for a finding about anything typed on the command line.
    pub const fn is_command_line(&self) -> bool {
        self.is_command_line
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.line)
    }
}

/// A value and where it came from.
#[derive(Clone, Debug)]
pub(crate) struct At<T> {
    pub(crate) value: T,
    pub(crate) origin: Origin,
}

impl<T> At<T> {
    pub(crate) const fn new(value: T, origin: Origin) -> Self {
        Self { value, origin }
    }
}

/// Findings collected while reading one configuration, and the places in its file.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    path: Option<Box<Path>>,
    places: Vec<Place>,
    errors: Vec<(Origin, String)>,
    warnings: Vec<(Origin, String)>,
}

impl Findings {
    /// About a file.
    pub(crate) fn of_file(path: &Path) -> Self {
        Self { path: Some(path.into()), ..Self::default() }
    }

    /// Names a place in the file.
    pub(crate) fn place(&mut self, position: Position, key: Option<String>) -> Origin {
        // A document is far too short for more places than that.
        let number = u32::try_from(self.places.len()).unwrap_or(u32::MAX);
        self.places.push(Place { position, key });
        Origin::Place(number)
    }

    pub(crate) fn error(&mut self, origin: Origin, message: impl Into<String>) {
        self.errors.push((origin, message.into()));
    }

    pub(crate) fn warn(&mut self, origin: Origin, message: impl Into<String>) {
        self.warnings.push((origin, message.into()));
    }

    /// As [`Findings::warn`], once however often it is found: entries inherit from the top level.
    pub(crate) fn warn_once(&mut self, origin: Origin, message: impl Into<String>) {
        let warning = (origin, message.into());
        if !self.warnings.contains(&warning) {
            self.warnings.push(warning);
        }
    }

    /// Unpacks a result; an error is recorded at `origin`.
    pub(crate) fn take<T, E: fmt::Display>(
        &mut self,
        origin: Origin,
        result: Result<T, E>,
    ) -> Option<T> {
        result.map_err(|e| self.error(origin, e.to_string())).ok()
    }

    /// Whether nothing is wrong.
    pub(crate) fn is_usable(&self) -> bool {
        self.errors.is_empty()
    }

    /// The key at a place of the file, with its parents.
    pub(crate) fn key(&self, origin: Origin) -> Option<&str> {
        self.at(origin)?.key.as_deref()
    }

    fn at(&self, origin: Origin) -> Option<&Place> {
        let Origin::Place(number) = origin else { return None };
        self.places.get(usize::try_from(number).ok()?)
    }

    /// The keys of the file that were found wrong, with their parents.
    pub(crate) fn wrong_keys(&self) -> impl Iterator<Item = &str> {
        self.errors.iter().filter_map(|(origin, _)| self.key(*origin))
    }

    /// Everything that is wrong.
    pub(crate) fn errors(&self) -> Vec<Diagnostic> {
        self.errors.iter().map(|found| self.diagnostic(found)).collect()
    }

    /// Everything that deserves attention.
    pub(crate) fn warnings(&self) -> Vec<Diagnostic> {
        self.warnings.iter().map(|found| self.diagnostic(found)).collect()
    }

    fn diagnostic(&self, (origin, message): &(Origin, String)) -> Diagnostic {
        let mut line = String::new();
        let mut say = |words: fmt::Arguments<'_>| {
            let _infallible = fmt::Write::write_fmt(&mut line, words);
        };
        match *origin {
            Origin::CommandLine => {}
            Origin::Flag(number) => say(format_args!("option {}: ", flags::spelling(number))),
            Origin::Environment => {
                say(format_args!("environment variable {PASSWORD_VARIABLE}: "));
            }
            Origin::File | Origin::Place(_) => {
                let path = self.path.as_deref().unwrap_or_else(|| Path::new(""));
                say(format_args!("{}:", path.display()));
                if let Some(place) = self.at(*origin) {
                    say(format_args!("{}:", place.position));
                }
                say(format_args!(" "));
                if let Some(key) = self.key(*origin) {
                    say(format_args!("key \"{}\": ", key.escape_debug()));
                }
            }
        }
        line.push_str(message);
        let is_command_line = matches!(origin, Origin::CommandLine | Origin::Flag(_));
        Diagnostic { line, is_command_line }
    }
}
