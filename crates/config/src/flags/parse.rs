//! Reads a command line with the help of the table.
//!
//! Long options may be cut short as long as they stay unique, and a short option's value may be
//! glued to it, as with `getopt_long`. Nothing of what was given is repeated in an error except
//! the name of an option, because any argument may be a misplaced password.

use std::ffi::OsString;
use std::path::PathBuf;

use lexopt::Arg;

use super::{Action, Flag, origin, table};
use crate::diagnostic::{Diagnostic, Origin};
use crate::program::{Dialect, Invoked};
use crate::raw::Raw;
use crate::setting::Given;
use crate::suggest::nearest;

/// What a command line says.
#[derive(Debug)]
pub(crate) enum Parsed {
    /// Show the help.
    Help,
    /// Show the version.
    Version,
    /// Run.
    Run(Box<Arguments>),
}

/// The settings of a command line.
#[derive(Debug, Default)]
pub(crate) struct Arguments {
    pub(crate) raw: Raw,
    pub(crate) config: Option<PathBuf>,
    /// No argument at all.
    pub(crate) is_empty: bool,
    /// A password or a link with one was given.
    pub(crate) has_secrets: bool,
    pub(crate) warnings: Vec<(Origin, &'static str)>,
}

/// Reads the arguments after the program name.
///
/// # Errors
/// The first thing that is wrong.
pub(crate) fn parse(
    invoked: Invoked,
    args: impl IntoIterator<Item = OsString>,
) -> Result<Parsed, Diagnostic> {
    let mut parser = lexopt::Parser::from_args(args);
    // `getopt` hands "-k=x" on as "=x"; the other dialect's parser drops the sign.
    parser.set_short_equals(invoked.dialect == Dialect::Rust);
    let mut read = Box::new(Arguments { is_empty: true, ..Arguments::default() });
    loop {
        let (flag, name) = match parser.next() {
            Ok(None) => break,
            Ok(Some(arg)) => find(invoked, &arg)?,
            Err(error) => return Err(misuse(&error)),
        };
        read.is_empty = false;
        let value = match flag.value {
            None => None,
            Some(what) => Some(parser.value().map_err(|_| {
                Diagnostic::of_arguments(origin(name), format!("needs a value, {what}"))
            })?),
        };
        match flag.action {
            Action::Help => return Ok(Parsed::Help),
            Action::Version => return Ok(Parsed::Version),
            action => apply(action, name, value, &mut read)?,
        }
    }
    Ok(Parsed::Run(read))
}

fn apply(
    action: Action,
    name: &'static str,
    value: Option<OsString>,
    read: &mut Arguments,
) -> Result<(), Diagnostic> {
    let origin = origin(name);
    let complain = |message: String| Diagnostic::of_arguments(origin, message);
    let path = |value: Option<OsString>| {
        let value = value.unwrap_or_default();
        if value.is_empty() {
            return Err(complain("write the path of a file".to_owned()));
        }
        Ok(PathBuf::from(value))
    };
    match action {
        Action::Config => read.config = Some(path(value)?),
        Action::Path(set) => set(&mut read.raw, path(value)?),
        Action::Warn(message) => read.warnings.push((origin, message)),
        Action::Refuse(message) => {
            if value.is_none_or(|value| !value.is_empty()) {
                return Err(complain(message.to_owned()));
            }
        }
        Action::Set(setting) | Action::Secret(setting) => {
            let value = value.unwrap_or_default();
            let text = value.to_str().ok_or_else(|| complain("is not UTF-8 text".to_owned()))?;
            read.has_secrets |= matches!(action, Action::Secret(_));
            setting
                .set(&mut read.raw, Given { value: text, origin })
                .map_err(|e| complain(e.to_string()))?;
        }
        Action::Help | Action::Version => {}
    }
    Ok(())
}

/// The option that was meant, and how it is spelt.
fn find(invoked: Invoked, arg: &Arg<'_>) -> Result<(&'static Flag, &'static str), Diagnostic> {
    let flags = || table(invoked.program, invoked.dialect);
    let usage = |message: String| Diagnostic::of_arguments(Origin::CommandLine, message);
    match *arg {
        Arg::Short(letter) => flags()
            .find(|flag| flag.short == Some(letter))
            .and_then(|flag| Some((flag, flag.spellings().next()?)))
            .ok_or_else(|| usage(format!("unknown option -{}", letter.escape_debug()))),
        Arg::Long(given) => {
            let mut found: Option<(&'static Flag, &'static str)> = None;
            let mut ambiguous = false;
            for (flag, name) in flags().flat_map(|flag| flag.long().map(move |name| (flag, name))) {
                let Some(rest) = name.strip_prefix("--").and_then(|n| n.strip_prefix(given)) else {
                    continue;
                };
                if rest.is_empty() {
                    return Ok((flag, name));
                }
                // Cut short: unique as long as all that begin so are the same option.
                ambiguous |= found.is_some_and(|(other, _)| !std::ptr::eq(other, flag));
                found = found.or(Some((flag, name)));
            }
            match found {
                Some(found) if !ambiguous => Ok(found),
                Some(_) => Err(usage(format!(
                    "option --{} is ambiguous; write more of it",
                    given.escape_debug()
                ))),
                None => Err(usage(unknown(invoked, given))),
            }
        }
        // Not shown: a password with a blank in it and no quotes ends up here.
        Arg::Value(_) => Err(usage("unexpected argument that belongs to no option".to_owned())),
    }
}

fn unknown(invoked: Invoked, given: &str) -> String {
    let mut text = String::from("unknown option ");
    if given.len() <= 64 {
        text.push_str(&format!("--{}", given.escape_debug()));
    }
    let shown = table(invoked.program, invoked.dialect).filter(|flag| !flag.help.is_empty());
    if let Some(close) = nearest(&format!("--{given}"), &mut shown.flat_map(Flag::long)) {
        text.push_str(&format!("; did you mean {close}?"));
    }
    text
}

/// Puts an error of the lexer into words without the argument it happened in.
fn misuse(error: &lexopt::Error) -> Diagnostic {
    let message = match error {
        lexopt::Error::UnexpectedValue { option, .. } => {
            return Diagnostic::of_arguments(
                Origin::CommandLine,
                format!("option {} takes no value", option.escape_debug()),
            );
        }
        _ => "malformed command line",
    };
    Diagnostic::of_arguments(Origin::CommandLine, message)
}
