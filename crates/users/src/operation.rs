//! The operations of `adit user`, and what they print with `--json`.

use std::fmt;
use std::path::Path;

use zeroize::Zeroizing;

use crate::file::{self, LockedFile};
use crate::hash::{Memory, PasswordHash, SALT_LEN};
use crate::list::{
    Action, CREDENTIAL_LEN_MAX, CredentialError, ListError, Userlist, check_name, check_password,
    with_user, without_user,
};

/// What went wrong, in the words of the JSON form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the words say what they mean, and are Alighieri's")]
pub enum Code {
    InvalidArguments,
    InvalidUsername,
    InvalidPassword,
    PasswordStdinReadFailed,
    PasswordInputTooLarge,
    ConfigLoadFailed,
    UserlistNotConfigured,
    UserlistNotActive,
    ExternalAuthBackend,
    RelativeUserlistNotSupported,
    UserlistReadFailed,
    UserlistParseFailed,
    UserlistUpdateFailed,
    UserNotFound,
    CredentialsRejected,
    SerializationFailed,
    InternalError,
}

impl Code {
    /// The word in JSON.
    pub const fn as_label(self) -> &'static str {
        match self {
            Self::InvalidArguments => "invalid_arguments",
            Self::InvalidUsername => "invalid_username",
            Self::InvalidPassword => "invalid_password",
            Self::PasswordStdinReadFailed => "password_stdin_read_failed",
            Self::PasswordInputTooLarge => "password_input_too_large",
            Self::ConfigLoadFailed => "config_load_failed",
            Self::UserlistNotConfigured => "userlist_not_configured",
            Self::UserlistNotActive => "userlist_not_active",
            Self::ExternalAuthBackend => "external_auth_backend",
            Self::RelativeUserlistNotSupported => "relative_userlist_not_supported",
            Self::UserlistReadFailed => "userlist_read_failed",
            Self::UserlistParseFailed => "userlist_parse_failed",
            Self::UserlistUpdateFailed => "userlist_update_failed",
            Self::UserNotFound => "user_not_found",
            Self::CredentialsRejected => "credentials_rejected",
            Self::SerializationFailed => "serialization_failed",
            Self::InternalError => "internal_error",
        }
    }
}

/// An operation that failed. No message has a password in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What, for programs.
    pub code: Code,
    /// What, and what to do, for people.
    pub message: String,
}

impl Failure {
    /// With a message.
    pub fn new(code: Code, message: impl fmt::Display) -> Self {
        Self { code, message: message.to_string() }
    }

    fn of_file(code: Code, path: &Path, error: impl fmt::Display) -> Self {
        Self::new(code, format_args!("{}: {error}", path.display()))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

impl From<CredentialError> for Failure {
    fn from(error: CredentialError) -> Self {
        let code = match error {
            CredentialError::Name => Code::InvalidUsername,
            CredentialError::Password => Code::InvalidPassword,
        };
        Self::new(code, error)
    }
}

/// What an operation did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// `add`.
    Added(Action),
    /// `delete`; false if there was nobody to delete and nobody minds.
    Deleted(bool),
    /// `list`, sorted.
    Listed(Vec<String>),
    /// `verify`; a wrong password is a [`Failure`].
    Verified,
}

/// Sets the password of a user, who is made if need be. `salt` is random.
///
/// # Errors
/// A name or password that cannot be used; a file that cannot be read, understood or written.
pub fn add(
    path: &Path,
    name: &str,
    password: &[u8],
    salt: [u8; SALT_LEN],
) -> Result<Outcome, Failure> {
    check_name(name)?;
    check_password(password)?;
    let hash = PasswordHash::create(password, salt, &mut Memory::default());
    let (file, bytes) = lock(path)?;
    let parse = |error: ListError| Failure::of_file(Code::UserlistParseFailed, path, error);
    let (text, action) = with_user(&bytes, name, &hash).map_err(parse)?;
    write(&file, path, text.as_bytes())?;
    Ok(Outcome::Added(action))
}

/// What to do about a user who is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// It is a failure.
    Fail,
    /// It is what was wanted (`--if-present`).
    Accept,
}

/// Removes a user.
///
/// # Errors
/// As [`add`], and a user who is not there, unless that is accepted.
pub fn delete(path: &Path, name: &str, missing: Missing) -> Result<Outcome, Failure> {
    check_name(name)?;
    let (file, bytes) = lock(path)?;
    let parse = |error: ListError| Failure::of_file(Code::UserlistParseFailed, path, error);
    let (text, found) = without_user(&bytes, name).map_err(parse)?;
    match (found, missing) {
        (true, _) => write(&file, path, text.as_bytes())?,
        (false, Missing::Accept) => {}
        (false, Missing::Fail) => {
            return Err(Failure::new(Code::UserNotFound, format_args!("no user \"{name}\"")));
        }
    }
    Ok(Outcome::Deleted(found))
}

/// Names all users.
///
/// # Errors
/// A file that cannot be read or understood.
pub fn list(path: &Path) -> Result<Outcome, Failure> {
    let names = load(path, [0; SALT_LEN])?;
    let names = names.names().map(|name| String::from_utf8_lossy(name).into_owned()).collect();
    Ok(Outcome::Listed(names))
}

/// Checks a password. `salt` is random.
///
/// # Errors
/// A user who is not there or has another password, which are one failure; a file that cannot be
/// read or understood.
pub fn verify(
    path: &Path,
    name: &str,
    password: &[u8],
    salt: [u8; SALT_LEN],
) -> Result<Outcome, Failure> {
    check_name(name)?;
    let users = load(path, salt)?;
    if users.verify(name.as_bytes(), password, &mut Memory::default()) {
        Ok(Outcome::Verified)
    } else {
        Err(Failure::new(Code::CredentialsRejected, "no such user, or another password"))
    }
}

/// Reads a file of users.
///
/// # Errors
/// A file that cannot be read or understood.
pub fn load(path: &Path, salt: [u8; SALT_LEN]) -> Result<Userlist, Failure> {
    let bytes =
        file::read(path).map_err(|e| Failure::of_file(Code::UserlistReadFailed, path, e))?;
    Userlist::parse(&bytes, salt).map_err(|e| Failure::of_file(Code::UserlistParseFailed, path, e))
}

fn lock(path: &Path) -> Result<(LockedFile, Zeroizing<Vec<u8>>), Failure> {
    let failed = |code| move |error| Failure::of_file(code, path, error);
    let file = LockedFile::open(path).map_err(failed(Code::UserlistUpdateFailed))?;
    let bytes = file.read().map_err(failed(Code::UserlistReadFailed))?;
    Ok((file, bytes))
}

fn write(file: &LockedFile, path: &Path, contents: &[u8]) -> Result<(), Failure> {
    file.write(contents).map_err(|e| Failure::of_file(Code::UserlistUpdateFailed, path, e))
}

/// The password in what came by standard input: one record of UTF-8, without one line end.
///
/// # Errors
/// [`Code::PasswordInputTooLarge`], or [`Code::InvalidPassword`] for another line end inside, text
/// that is not UTF-8, or nothing.
pub fn password_of_input(input: &[u8]) -> Result<&[u8], Failure> {
    let record = input.strip_suffix(b"\n").unwrap_or(input);
    let record = if record.len() < input.len() {
        record.strip_suffix(b"\r").unwrap_or(record)
    } else {
        record
    };
    if record.len() > CREDENTIAL_LEN_MAX {
        return Err(Failure::new(Code::PasswordInputTooLarge, CredentialError::Password));
    }
    if record.contains(&b'\n') || record.contains(&b'\r') || std::str::from_utf8(record).is_err() {
        return Err(Failure::new(
            Code::InvalidPassword,
            "a password on standard input is one line of UTF-8",
        ));
    }
    check_password(record)?;
    Ok(record)
}

/// What an operation was about, for [`to_json`].
#[derive(Clone, Copy, Debug)]
pub struct About<'a> {
    /// `user.add`, `user.delete`, `user.list` or `user.verify`.
    pub operation: &'a str,
    /// The user, but for `list`.
    pub user: Option<&'a str>,
    /// The file of users.
    pub userlist: &'a str,
    /// The configuration that named it.
    pub config: Option<&'a str>,
}

/// The one line that `--json` prints.
pub fn to_json(about: &About<'_>, result: &Result<Outcome, Failure>) -> String {
    let operation = quote(about.operation);
    match result {
        Ok(outcome) => format!(
            "{{\"schema_version\":1,\"ok\":true,\"operation\":{operation},\"result\":{}}}",
            result_json(about, outcome)
        ),
        Err(failure) => format!(
            "{{\"schema_version\":1,\"ok\":false,\"operation\":{operation},\"error\":{{\"code\":{},\
             \"message\":{}}}}}",
            quote(failure.code.as_label()),
            quote(&failure.message)
        ),
    }
}

fn result_json(about: &About<'_>, outcome: &Outcome) -> String {
    let mut members = Vec::new();
    let mut add = |name: &str, value: String| members.push(format!("\"{name}\":{value}"));
    if let Some(user) = about.user {
        add("username", quote(user));
    }
    add("userlist", quote(about.userlist));
    if let Some(config) = about.config {
        add("config", quote(config));
    }
    match outcome {
        Outcome::Added(action) => {
            let word = if *action == Action::Created { "created" } else { "updated" };
            add("action", quote(word));
            add("changed", "true".into());
        }
        Outcome::Deleted(found) => {
            add("deleted", found.to_string());
            add("changed", found.to_string());
        }
        Outcome::Listed(names) => {
            let quoted: Vec<String> = names.iter().map(|name| quote(name)).collect();
            add("count", names.len().to_string());
            add("users", format!("[{}]", quoted.join(",")));
        }
        Outcome::Verified => add("verified", "true".into()),
    }
    format!("{{{}}}", members.join(","))
}

/// A text as a JSON string.
fn quote(text: &str) -> String {
    let escape = |c: char| match c {
        '"' => "\\\"".to_owned(),
        '\\' => "\\\\".to_owned(),
        c if c.is_control() => format!("\\u{:04x}", u32::from(c)),
        c => c.to_string(),
    };
    format!("\"{}\"", text.chars().map(escape).collect::<String>())
}
