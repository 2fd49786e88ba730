//! Passwords as typed, kept out of every message and wiped when dropped.

use std::fmt;

use adit_shadowsocks::{ClientKey, KeyError, Method, ServerKey};
use zeroize::Zeroizing;

/// A password. Shows nothing of itself, not even its length.
#[derive(Clone, PartialEq, Eq)]
pub struct Password(Zeroizing<String>);

impl Password {
    /// Takes over a text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(Zeroizing::new(text.into()))
    }

    /// The text itself, for key derivation and links.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password(hidden)")
    }
}

/// What a key is made from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Secret {
    /// A pass phrase, or the base64 keys of a 2022 method.
    Password(Password),
    /// A raw master key in base64, which bypasses the derivation.
    Key(Password),
}

impl Secret {
    pub(crate) fn client_key(&self, method: Method) -> Result<ClientKey, KeyError> {
        match self {
            Self::Password(text) => ClientKey::parse(method, text.as_str()),
            Self::Key(text) => ClientKey::from_raw(method, text.as_str()),
        }
    }

    pub(crate) fn server_key(
        &self,
        method: Method,
        users: &[(&str, &str)],
    ) -> Result<ServerKey, KeyError> {
        match self {
            Self::Password(text) => ServerKey::parse(method, text.as_str(), users.iter().copied()),
            Self::Key(_) if !users.is_empty() => Err(KeyError::NoIdentity),
            Self::Key(text) => ServerKey::from_raw(method, text.as_str()),
        }
    }
}
