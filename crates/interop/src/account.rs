//! What the ends of a session agree on: a method and its secrets.
//!
//! Secrets are derived from labels, so that a failed test can be run by hand with the same ones.

use data_encoding::BASE64;

/// A method with the secrets of a server, its users and one client.
#[derive(Clone, Debug)]
pub(crate) struct Account {
    /// Method name.
    pub(crate) method: &'static str,
    /// The server's own password.
    pub(crate) server_password: String,
    /// Names and passwords of the server's users; empty for a server with one key.
    pub(crate) users: Vec<(String, String)>,
    /// What the client is given.
    pub(crate) client_password: String,
    /// What both ends wrap TCP in.
    pub(crate) guise: Option<Guise>,
}

/// A kind of traffic that simple-obfs imitates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guise {
    /// Requests and answers of the web.
    Http,
    /// The web with encryption.
    Tls,
}

impl Guise {
    /// What it is called in the options of simple-obfs.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Tls => "tls",
        }
    }
}

impl Account {
    /// One key for everybody.
    pub(crate) fn shared(method: &'static str) -> Self {
        Self::shared_as(method, "server")
    }

    /// One key for everybody, made from a label of its own.
    pub(crate) fn shared_as(method: &'static str, label: &str) -> Self {
        let password = password(method, label);
        let client_password = password.clone();
        Self { method, server_password: password, users: Vec::new(), client_password, guise: None }
    }

    /// One key for everybody, and plugins that wrap TCP in a guise.
    pub(crate) fn in_guise(method: &'static str, guise: Guise) -> Self {
        Self { guise: Some(guise), ..Self::shared(method) }
    }

    /// A server with three users, the client being the one with this number.
    ///
    /// # Panics
    /// When there is no such user.
    pub(crate) fn of_user(method: &'static str, number: usize) -> Self {
        let users = ["alice", "bob", "carol"].map(|name| (name.to_owned(), password(method, name)));
        let server_password = password(method, "server");
        let client_password = format!("{server_password}:{}", users[number].1);
        Self { method, server_password, users: users.into(), client_password, guise: None }
    }

    /// A server with three users and a client that knows the server's key but is none of them.
    pub(crate) fn of_stranger(method: &'static str) -> Self {
        let mut account = Self::of_user(method, 0);
        let stranger = password(method, "mallory");
        account.client_password = format!("{}:{stranger}", account.server_password);
        account
    }

    /// The same account for a client whose way leads through relays with these keys.
    pub(crate) fn behind<'a>(&self, relay_keys: impl IntoIterator<Item = &'a str>) -> Self {
        let mut keys: Vec<_> = relay_keys.into_iter().collect();
        keys.push(&self.client_password);
        Self { client_password: keys.join(":"), ..self.clone() }
    }
}

/// The key of the relay with this number on the way.
pub(crate) fn relay_key(method: &str, number: usize) -> String {
    password(method, &format!("relay {number}"))
}

/// A password that `method` accepts: the 2022 methods want base64 of exactly one key.
fn password(method: &str, label: &str) -> String {
    let len = match method {
        "2022-blake3-aes-128-gcm" => 16,
        _ if method.starts_with("2022-") => 32,
        _ => return format!("a password of {label}"),
    };
    let key = blake3::derive_key("adit interoperability tests 2026 key", label.as_bytes());
    BASE64.encode(&key[..len])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_the_length_of_their_method() {
        assert_eq!(Account::shared("2022-blake3-aes-128-gcm").server_password.len(), 24);
        assert_eq!(Account::shared("2022-blake3-aes-256-gcm").server_password.len(), 44);
        assert!(!Account::shared("aes-128-gcm").server_password.is_empty());
    }

    #[test]
    fn a_client_of_many_names_the_server_first() {
        let account = Account::of_user("2022-blake3-aes-128-gcm", 1);
        let wanted = format!("{}:{}", account.server_password, account.users[1].1);
        assert_eq!(account.client_password, wanted);
        let stranger = Account::of_stranger("2022-blake3-aes-128-gcm");
        let (_, key) = stranger.client_password.split_once(':').unwrap();
        assert!(stranger.users.iter().all(|(_, known)| known != key));
        let behind = account.behind(["first", "second"]);
        assert_eq!(behind.client_password, format!("first:second:{wanted}"));
    }
}
