//! The operations on real files.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use adit_users::operation::{
    About, Code, Failure, Missing, Outcome, add, delete, list, load, password_of_input, to_json,
    verify,
};
use adit_users::{Action, SALT_LEN};

const SALT: [u8; SALT_LEN] = [5; SALT_LEN];

/// A directory of its own, removed at the end.
struct Directory(PathBuf);

impl Directory {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("adit-users-{}-{number}", std::process::id()));
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn users(&self) -> PathBuf {
        self.0.join("users")
    }

    fn names(&self) -> Vec<String> {
        let names = fs::read_dir(&self.0).unwrap();
        let mut names: Vec<String> =
            names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn code(result: Result<Outcome, Failure>) -> Code {
    result.unwrap_err().code
}

#[test]
fn a_user_comes_and_goes() {
    let directory = Directory::new();
    let path = directory.users();
    assert_eq!(code(list(&path)), Code::UserlistReadFailed);
    assert_eq!(add(&path, "ann", b"one", SALT), Ok(Outcome::Added(Action::Created)));
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(add(&path, "bob", b"two", SALT), Ok(Outcome::Added(Action::Created)));
    assert_eq!(add(&path, "ann", b"three", SALT), Ok(Outcome::Added(Action::Updated)));
    assert_eq!(list(&path), Ok(Outcome::Listed(vec!["ann".into(), "bob".into()])));
    assert_eq!(verify(&path, "ann", b"three", SALT), Ok(Outcome::Verified));
    assert_eq!(code(verify(&path, "ann", b"one", SALT)), Code::CredentialsRejected);
    assert_eq!(code(verify(&path, "eve", b"one", SALT)), Code::CredentialsRejected);
    assert_eq!(delete(&path, "ann", Missing::Fail), Ok(Outcome::Deleted(true)));
    assert_eq!(code(delete(&path, "ann", Missing::Fail)), Code::UserNotFound);
    assert_eq!(delete(&path, "ann", Missing::Accept), Ok(Outcome::Deleted(false)));
    assert_eq!(load(&path, SALT).unwrap().len(), 1);
    assert_eq!(directory.names(), ["users", "users.bak", "users.lock"]);
    let backup = fs::read_to_string(directory.0.join("users.bak")).unwrap();
    assert!(backup.contains("616e6e"), "what was before the last change: {backup}");
    assert!(!fs::read_to_string(&path).unwrap().contains("three"));
}

#[test]
fn rights_stay_as_they_were() {
    let directory = Directory::new();
    let path = directory.users();
    fs::write(&path, "# mine\nbob:two\n").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    add(&path, "ann", b"one", SALT).unwrap();
    for name in ["users", "users.bak"] {
        let mode = fs::metadata(directory.0.join(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o640, "{name}");
    }
    assert!(fs::read_to_string(&path).unwrap().starts_with("# mine\nbob:two\n# alighieri:user:"));
}

#[test]
fn what_cannot_be_done_changes_nothing() {
    let directory = Directory::new();
    let path = directory.users();
    fs::write(&path, "nonsense\n").unwrap();
    assert_eq!(code(add(&path, "ann", b"one", SALT)), Code::UserlistParseFailed);
    assert_eq!(code(add(&path, "a:b", b"one", SALT)), Code::InvalidUsername);
    assert_eq!(code(add(&path, "ann", b"", SALT)), Code::InvalidPassword);
    assert_eq!(fs::read_to_string(&path).unwrap(), "nonsense\n");
    assert_eq!(
        code(add(Path::new("/nowhere/users"), "ann", b"one", SALT)),
        Code::UserlistUpdateFailed
    );
}

#[test]
fn links_are_refused() {
    for name in ["users", "users.lock", "users.bak"] {
        let directory = Directory::new();
        let target = directory.0.join("target");
        fs::write(&target, "bob:two\n").unwrap();
        if name != "users" {
            fs::write(directory.users(), "bob:two\n").unwrap();
        }
        symlink(&target, directory.0.join(name)).unwrap();
        let failure = add(&directory.users(), "ann", b"one", SALT).unwrap_err();
        assert_eq!(failure.code, Code::UserlistUpdateFailed, "{name}");
        assert!(failure.message.contains("symbolic link"), "{failure}");
        assert_eq!(fs::read_to_string(&target).unwrap(), "bob:two\n", "{name}");
    }
}

#[test]
fn a_link_where_the_new_file_is_made_is_not_followed() {
    let directory = Directory::new();
    let target = directory.0.join("target");
    fs::write(&target, "keep\n").unwrap();
    symlink(&target, directory.0.join("users.new")).unwrap();
    add(&directory.users(), "ann", b"one", SALT).unwrap();
    assert_eq!(fs::read_to_string(&target).unwrap(), "keep\n");
    assert_eq!(load(&directory.users(), SALT).unwrap().len(), 1);
}

#[test]
fn many_writers_lose_nothing() {
    let directory = Directory::new();
    let path = directory.users();
    std::thread::scope(|scope| {
        for writer in 0..8 {
            let path = &path;
            scope.spawn(move || {
                for i in 0..3 {
                    add(path, &format!("user{writer}-{i}"), b"x", SALT).unwrap();
                }
            });
        }
    });
    assert_eq!(load(&path, SALT).unwrap().len(), 24);
}

#[test]
fn passwords_on_standard_input() {
    for (input, expected) in [
        (&b"secret"[..], Ok(&b"secret"[..])),
        (b"secret\n", Ok(b"secret")),
        (b"secret\r\n", Ok(b"secret")),
        (b" a b ", Ok(b" a b ")),
        (b"secret\n\n", Err(Code::InvalidPassword)),
        (b"se\rcret", Err(Code::InvalidPassword)),
        (b"secret\r", Err(Code::InvalidPassword)),
        (b"\xff", Err(Code::InvalidPassword)),
        (b"", Err(Code::InvalidPassword)),
        (b"\n", Err(Code::InvalidPassword)),
        (&[b'x'; 256], Err(Code::PasswordInputTooLarge)),
        (&[b'x'; 255], Ok(&[b'x'; 255])),
    ] {
        assert_eq!(password_of_input(input).map_err(|failure| failure.code), expected);
    }
}

#[test]
fn json_has_the_known_form() {
    let about =
        About { operation: "user.add", user: Some("a\"b"), userlist: "/u", config: Some("/c") };
    let json = |about: &About<'_>, result| -> serde_json::Value {
        let line = to_json(about, &result);
        assert!(!line.contains('\n'));
        serde_json::from_str(&line).unwrap()
    };
    let value = json(&about, Ok(Outcome::Added(Action::Created)));
    assert_eq!((&value["schema_version"], &value["ok"]), (&1.into(), &true.into()));
    let result = &value["result"];
    assert_eq!((&result["username"], &result["config"]), (&"a\"b".into(), &"/c".into()));
    assert_eq!((&result["action"], &result["changed"]), (&"created".into(), &true.into()));
    let about = About { operation: "user.list", user: None, config: None, ..about };
    let value = json(&about, Ok(Outcome::Listed(vec!["x".into(), "y".into()])));
    assert_eq!((&value["result"]["count"], &value["result"]["users"][1]), (&2.into(), &"y".into()));
    assert!(value["result"].get("config").is_none());
    let value = json(&about, Ok(Outcome::Deleted(false)));
    assert_eq!(value["result"]["deleted"], false);
    let value = json(&about, Ok(Outcome::Verified));
    assert_eq!(value["result"]["verified"], true);
    let value = json(&about, Err(Failure::new(Code::UserNotFound, "no\nsuch")));
    assert_eq!((&value["ok"], &value["error"]["code"]), (&false.into(), &"user_not_found".into()));
    assert_eq!(value["error"]["message"], "no\nsuch");
}
