//! Options: one declarative table per dialect drives parsing, help and manual pages.
//!
//! An entry says how an option is spelt, which programs have it, and what it does; there is no
//! other place that knows an option. An option that Adit does not have yet stays in the table as
//! [`Action::Refuse`], so that a script gets an answer instead of a silent difference.

mod libev;
mod parse;
mod rust;

use std::path::PathBuf;

use crate::diagnostic::Origin;
use crate::names::Names;
use crate::program::{Dialect, Program};
use crate::raw::Raw;
use crate::setting::Setting;

pub(crate) use parse::{Arguments, Parsed, parse};

/// One option.
pub(crate) struct Flag {
    /// One-letter form.
    pub(crate) short: Option<char>,
    /// Long forms, joined by `|`; the short one again where there is none.
    long: &'static str,
    /// What the value is called in the help; `None` takes no value.
    pub(crate) value: Option<&'static str>,
    /// Programs that have it, a bit each.
    programs: u8,
    /// What it does.
    pub(crate) action: Action,
    /// One line for the help; empty hides the option.
    pub(crate) help: &'static str,
}

/// What an option does.
#[derive(Clone, Copy)]
pub(crate) enum Action {
    /// Shows the help and ends.
    Help,
    /// Shows the version and ends.
    Version,
    /// Names the configuration file.
    Config,
    /// Sets a path.
    Path(fn(&mut Raw, PathBuf)),
    /// Sets something else.
    Set(Setting),
    /// As `Set`; the value is a secret.
    Secret(Setting),
    /// Not there and not needed: one warning.
    Warn(&'static str),
    /// Not there; the text says what to do instead. An empty value means "none" and is fine.
    Refuse(&'static str),
}

const LOCAL: u8 = 1 << Program::Local as u8;
const SERVER: u8 = 1 << Program::Server as u8;
const TUNNEL: u8 = 1 << Program::Tunnel as u8;
const REDIR: u8 = 1 << Program::Redir as u8;
const MANAGER: u8 = 1 << Program::Manager as u8;
const CLIENT: u8 = LOCAL | TUNNEL | REDIR;
const ALL: u8 = CLIENT | SERVER | MANAGER;

impl Flag {
    const fn new(
        short: Option<char>,
        long: &'static str,
        value: Option<&'static str>,
        programs: u8,
        action: Action,
        help: &'static str,
    ) -> Self {
        Self { short, long, value, programs, action, help }
    }

    /// The long forms.
    pub(crate) fn long(&self) -> impl Iterator<Item = &'static str> {
        self.spellings().filter(|name| name.starts_with("--"))
    }

    /// The spellings used in messages; the first one when the short form was given.
    const fn spellings(&self) -> Names {
        Names::of(self.long)
    }
}

/// How an option is spelt, by the number of the spelling.
pub(crate) fn spelling(number: u16) -> &'static str {
    spellings().nth(number.into()).unwrap_or_default()
}

/// An option that was given with this spelling.
fn origin(name: &str) -> Origin {
    let number = spellings().position(|known| known == name);
    // There are some hundred, and every name comes from a table.
    number.and_then(|number| u16::try_from(number).ok()).map_or(Origin::CommandLine, Origin::Flag)
}

fn spellings() -> impl Iterator<Item = &'static str> {
    libev::TABLE.iter().chain(rust::TABLE).flat_map(Flag::spellings)
}

/// The options of a program, in the order of its help.
pub(crate) fn table(program: Program, dialect: Dialect) -> impl Iterator<Item = &'static Flag> {
    let table = match dialect {
        Dialect::Libev => libev::TABLE,
        Dialect::Rust => rust::TABLE,
    };
    table.iter().filter(move |flag| flag.programs & 1 << program as u8 != 0)
}

#[cfg(test)]
mod tests;
