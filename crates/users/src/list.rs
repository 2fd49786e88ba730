//! The file of users, in Alighieri's form.
//!
//! | line | meaning |
//! |---|---|
//! | `# alighieri:user:argon2:<hex of the name>:<PHC>` | a user whose password is hashed |
//! | another `#…`, or nothing | left alone |
//! | `name:password` | a user with a password in clear |
//!
//! The hashed form is a comment to programs that read `name:password` alone. Of several lines for a
//! user the last one counts.

use std::collections::BTreeMap;
use std::fmt;

use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use crate::hash::{HashError, Memory, PasswordHash, SALT_LEN};

const HASHED: &str = "# alighieri:user:argon2:";
/// Most bytes of a name and of a password (RFC 1929).
pub const CREDENTIAL_LEN_MAX: usize = 255;

/// Why a name or a password cannot be used. Whoever typed it should type another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CredentialError {
    /// A name that is empty, longer than 255 bytes, has `:` or a control character, or blanks at an
    /// end.
    Name,
    /// A password that is empty or longer than 255 bytes.
    Password,
}

impl fmt::Display for CredentialError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Name => {
                "a user's name has 1 to 255 bytes, no colon, no line end, and no blank at an end"
            }
            Self::Password => "a password has 1 to 255 bytes",
        })
    }
}

impl std::error::Error for CredentialError {}

/// Checks the name of a user.
///
/// # Errors
/// [`CredentialError::Name`].
pub fn check_name(name: &str) -> Result<(), CredentialError> {
    let is_fine = (1..=CREDENTIAL_LEN_MAX).contains(&name.len())
        && !name.contains([':', '\r', '\n', '\0'])
        && name.trim() == name;
    if is_fine { Ok(()) } else { Err(CredentialError::Name) }
}

/// Checks a password that is to be set.
///
/// # Errors
/// [`CredentialError::Password`].
pub fn check_password(password: &[u8]) -> Result<(), CredentialError> {
    let fits = (1..=CREDENTIAL_LEN_MAX).contains(&password.len());
    if fits { Ok(()) } else { Err(CredentialError::Password) }
}

/// What is wrong with a line. No message has anything of the line in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListError {
    /// Counted from 1.
    pub line: u32,
    /// What.
    pub kind: ListErrorKind,
}

/// What is wrong with a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ListErrorKind {
    /// Neither a user nor a comment.
    NoColon,
    /// The name cannot be one.
    Name,
    /// The password is empty or too long.
    Password,
    /// The name in a hashed line is not in hexadecimal.
    Hex,
    /// The hash in a hashed line cannot be used.
    Hash(HashError),
    /// The file is not UTF-8.
    NotUtf8,
}

impl fmt::Display for ListError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: ", self.line)?;
        match self.kind {
            ListErrorKind::NoColon => f.write_str("neither name:password nor a comment"),
            ListErrorKind::Name => CredentialError::Name.fmt(f),
            ListErrorKind::Password => CredentialError::Password.fmt(f),
            ListErrorKind::Hex => f.write_str(
                "the name of a hashed user is written in hexadecimal; write the user anew with \
                 \"adit user add\"",
            ),
            ListErrorKind::Hash(error) => error.fmt(f),
            ListErrorKind::NotUtf8 => f.write_str("not UTF-8 text; save the file as UTF-8"),
        }
    }
}

impl std::error::Error for ListError {}

enum Stored {
    Hashed(PasswordHash),
    Plain(Zeroizing<Vec<u8>>),
}

/// One user's line.
struct Line<'a> {
    name: Zeroizing<String>,
    secret: Secret<'a>,
}

enum Secret<'a> {
    Hash(&'a str),
    Plain(&'a str),
}

/// Users and what their passwords are compared with. Shows none of it.
pub struct Userlist {
    users: BTreeMap<Box<[u8]>, Stored>,
    /// Hashed for users who do not exist, so that nobody can tell by the time.
    decoy: PasswordHash,
    duplicates: Vec<u32>,
}

impl fmt::Debug for Userlist {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Userlist").field("users", &self.users.len()).finish_non_exhaustive()
    }
}

impl Userlist {
    /// Reads a file's contents. `salt` is random.
    ///
    /// # Errors
    /// The first line that is wrong.
    pub fn parse(bytes: &[u8], salt: [u8; SALT_LEN]) -> Result<Self, ListError> {
        let text = text(bytes)?;
        let mut users = BTreeMap::new();
        let mut duplicates = Vec::new();
        for (number, line) in lines(text) {
            let Some(line) = read(line).map_err(|kind| ListError { line: number, kind })? else {
                continue;
            };
            let stored = match line.secret {
                Secret::Hash(text) => {
                    let hash = PasswordHash::parse(text).map_err(ListErrorKind::Hash);
                    Stored::Hashed(hash.map_err(|kind| ListError { line: number, kind })?)
                }
                Secret::Plain(password) => Stored::Plain(Zeroizing::new(password.into())),
            };
            if users.insert(line.name.as_bytes().into(), stored).is_some() {
                duplicates.push(number);
            }
        }
        let decoy = PasswordHash::create(b"", salt, &mut Memory::default());
        Ok(Self { users, decoy, duplicates })
    }

    /// True if `password` is that of `name`. A hash is computed whatever the answer is, also for a user
    /// who does not exist or whose password is in clear; call it on a thread of its own.
    pub fn verify(&self, name: &[u8], password: &[u8], memory: &mut Memory) -> bool {
        match self.users.get(name) {
            Some(Stored::Hashed(hash)) => hash.verify(password, memory),
            Some(Stored::Plain(plain)) => {
                self.decoy.verify(password, memory);
                bool::from(plain.as_slice().ct_eq(password))
            }
            None => {
                self.decoy.verify(password, memory);
                false
            }
        }
    }

    /// True if there is such a user.
    pub fn contains(&self, name: &[u8]) -> bool {
        self.users.contains_key(name)
    }

    /// Names of all users, sorted.
    pub fn names(&self) -> impl Iterator<Item = &[u8]> {
        self.users.keys().map(|name| &**name)
    }

    /// How many users there are.
    pub fn len(&self) -> usize {
        self.users.len()
    }

    /// True if there is none.
    pub fn is_empty(&self) -> bool {
        self.users.is_empty()
    }

    /// Lines that replaced an earlier one for the same user, to warn about.
    pub fn duplicates(&self) -> &[u32] {
        &self.duplicates
    }
}

fn text(bytes: &[u8]) -> Result<&str, ListError> {
    std::str::from_utf8(bytes).map_err(|error| {
        let valid = bytes.get(..error.valid_up_to()).unwrap_or_default();
        let line = valid.iter().filter(|&&byte| byte == b'\n').count() + 1;
        ListError { line: u32::try_from(line).unwrap_or(u32::MAX), kind: ListErrorKind::NotUtf8 }
    })
}

fn lines(text: &str) -> impl Iterator<Item = (u32, &str)> {
    (1..).zip(text.strip_prefix('\u{feff}').unwrap_or(text).lines())
}

fn read(line: &str) -> Result<Option<Line<'_>>, ListErrorKind> {
    let line = line.trim();
    if let Some(rest) = line.strip_prefix(HASHED) {
        let (hex, hash) = rest.split_once(':').ok_or(ListErrorKind::Hex)?;
        let name = HEXLOWER_PERMISSIVE.decode(hex.as_bytes()).map_err(|_| ListErrorKind::Hex)?;
        let name = String::from_utf8(name).map_err(|_| ListErrorKind::Hex)?;
        check_name(&name).map_err(|_| ListErrorKind::Name)?;
        return Ok(Some(Line { name: Zeroizing::new(name), secret: Secret::Hash(hash) }));
    }
    if line.is_empty() || line.starts_with('#') {
        return Ok(None);
    }
    let (name, password) = line.split_once(':').ok_or(ListErrorKind::NoColon)?;
    let name = name.trim();
    check_name(name).map_err(|_| ListErrorKind::Name)?;
    check_password(password.as_bytes()).map_err(|_| ListErrorKind::Password)?;
    Ok(Some(Line { name: Zeroizing::new(name.to_owned()), secret: Secret::Plain(password) }))
}

/// What became of a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// There was none of that name.
    Created,
    /// There was one.
    Updated,
}

/// A file's contents with a user set to a hash: in the place of the user's first line, or at the end.
/// Other lines stay as they are.
///
/// # Errors
/// The first line that is wrong.
pub fn with_user(
    bytes: &[u8],
    name: &str,
    hash: &PasswordHash,
) -> Result<(Zeroizing<String>, Action), ListError> {
    let line = format!("{HASHED}{}:{hash}", HEXLOWER.encode(name.as_bytes()));
    let (mut text, found) = edited(bytes, name, Some(&line))?;
    if found {
        return Ok((text, Action::Updated));
    }
    text.push_str(&line);
    text.push('\n');
    Ok((text, Action::Created))
}

/// A file's contents without a user, and whether there was one.
///
/// # Errors
/// The first line that is wrong.
pub fn without_user(bytes: &[u8], name: &str) -> Result<(Zeroizing<String>, bool), ListError> {
    edited(bytes, name, None)
}

fn edited(
    bytes: &[u8],
    name: &str,
    replacement: Option<&str>,
) -> Result<(Zeroizing<String>, bool), ListError> {
    let text = text(bytes)?;
    // With room for the rest, so that no copy of a password is left behind by growing.
    let mut out = Zeroizing::new(String::with_capacity(text.len() + 1024));
    let mut found = false;
    for (number, line) in lines(text) {
        let user = read(line).map_err(|kind| ListError { line: number, kind })?;
        if user.is_none_or(|user| *user.name != name) {
            out.push_str(line);
            out.push('\n');
        } else if !found {
            found = true;
            if let Some(replacement) = replacement {
                out.push_str(replacement);
                out.push('\n');
            }
        }
    }
    Ok((out, found))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SALT: [u8; SALT_LEN] = [3; SALT_LEN];
    /// The reference implementation's `password`, cheap to compute.
    const CHEAP: &str =
        "$argon2id$v=19$m=256,t=2,p=1$c29tZXNhbHQ$nf65EOgLrQMR/uIPnA4rEsF5h7TKyQwu9U1bMCHGi/4";

    fn list(text: &str) -> Userlist {
        Userlist::parse(text.as_bytes(), SALT).unwrap()
    }

    #[test]
    fn reads_both_forms() {
        let text = format!(
            "\u{feff}# users\r\n\r\nann:se:cret \r\n {HASHED}626F62:{CHEAP}\r\n#dan:x\nzoë:pass\n eve :x"
        );
        let list = list(&text);
        let mut memory = Memory::default();
        for (name, password, is) in [
            ("ann", "se:cret", true),
            ("ann", "se:cret ", false),
            ("ann", "se", false),
            ("bob", "password", true),
            ("bob", "passwore", false),
            ("dan", "x", false),
            ("zoë", "pass", true),
            ("eve", "x", true),
            ("nobody", "", false),
        ] {
            let right = list.verify(name.as_bytes(), password.as_bytes(), &mut memory);
            assert_eq!(right, is, "{name} {password}");
        }
        assert_eq!((list.len(), list.contains(b"bob"), list.contains(b"dan")), (4, true, false));
        assert!(!list.verify(b"\xff\xfe", b"x", &mut memory), "bytes that are no text");
    }

    #[test]
    fn nobody_can_tell_an_unknown_user_by_the_memory() {
        let list = list("ann:secret");
        for name in ["ann", "nobody"] {
            let mut memory = Memory::default();
            assert!(!list.verify(name.as_bytes(), b"wrong", &mut memory));
            assert_eq!(format!("{memory:?}"), "Memory(19456 KiB)", "{name}");
        }
    }

    #[test]
    fn the_last_line_of_a_user_counts() {
        let list = list(&format!("bob:old\n{HASHED}626f62:{CHEAP}\n"));
        let mut memory = Memory::default();
        assert!(list.verify(b"bob", b"password", &mut memory));
        assert!(!list.verify(b"bob", b"old", &mut memory));
        assert_eq!(list.duplicates(), [2]);
    }

    #[test]
    fn mistakes_name_the_line_and_nothing_of_it() {
        for (text, line) in [
            ("ann:x\nsecret", 2),
            ("\n:secret", 2),
            ("ann:", 1),
            ("# alighieri:user:argon2:zz:secret", 1),
            ("# alighieri:user:argon2:616:secret", 1),
            ("# alighieri:user:argon2:ff:secret", 1),
            ("# alighieri:user:argon2:616e6e:$argon2i$secret", 1),
            ("# alighieri:user:argon2:616e6e", 1),
        ] {
            let error = Userlist::parse(text.as_bytes(), SALT).unwrap_err();
            assert_eq!(error.line, line, "{text}");
            assert!(!error.to_string().contains("secret"), "{error}");
        }
        assert_eq!(Userlist::parse(b"a:b\n\xff", SALT).unwrap_err().line, 2);
        let long = format!("{}:x", "a".repeat(256));
        assert!(Userlist::parse(long.as_bytes(), SALT).is_err());
    }

    #[test]
    fn editing_leaves_the_rest_alone() {
        let hash = PasswordHash::parse(CHEAP).unwrap();
        let before = "# mine\nann:x\n\nbob:y\nann:z";
        let (after, action) = with_user(before.as_bytes(), "ann", &hash).unwrap();
        assert_eq!(*after, format!("# mine\n{HASHED}616e6e:{CHEAP}\n\nbob:y\n"));
        assert_eq!(action, Action::Updated);
        let (after, action) = with_user(before.as_bytes(), "eve", &hash).unwrap();
        assert_eq!(*after, format!("{before}\n{HASHED}657665:{CHEAP}\n"));
        assert_eq!(action, Action::Created);
        let (after, found) = without_user(before.as_bytes(), "ann").unwrap();
        assert_eq!((&**after, found), ("# mine\n\nbob:y\n", true));
        assert!(!without_user(before.as_bytes(), "eve").unwrap().1);
        assert!(with_user(b"nonsense", "ann", &hash).is_err());
    }

    #[test]
    fn names_and_passwords_have_limits() {
        for name in ["", " a", "a ", "a:b", "a\nb", "a\0", &"a".repeat(256)] {
            assert!(check_name(name).is_err(), "{name:?}");
        }
        assert!(check_name(&"a".repeat(255)).is_ok() && check_name("a b").is_ok());
        assert!(check_password(b"").is_err() && check_password(&[0; 256]).is_err());
        assert!(check_password(&[0; 255]).is_ok());
    }
}
