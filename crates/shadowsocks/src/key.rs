//! Keys as configured: a password for SIP004, pre-shared keys for the 2022 edition.

use std::fmt;
use std::sync::Arc;

use adit_crypto::{Secret, blake3_identity, evp_bytes_to_key_md5};
use data_encoding::{BASE64_NOPAD, BASE64URL_NOPAD};
use zeroize::Zeroize;

use crate::Method;
use crate::packet::PacketKeys;

/// Most identity headers a client may send; each costs 16 bytes in every request.
pub const IDENTITY_HEADERS_MAX: usize = 8;

/// Most users of one port: a flow keeps its user in 16 bits.
const USERS_MAX: usize = 1 << 16;

/// Why a password or key is refused. Never holds any of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyError {
    /// The password is empty.
    Empty,
    /// A 2022 key, or a raw key, that is not base64.
    NotBase64,
    /// A key of the wrong length.
    Length {
        /// Bytes the method takes.
        expected: usize,
        /// Bytes given.
        actual: usize,
    },
    /// Several keys joined by `:` for a method without identity headers.
    NoIdentity,
    /// Several keys joined by `:` where one is wanted: on a server, or of one user.
    OneKey,
    /// More than [`IDENTITY_HEADERS_MAX`] identity keys.
    TooManyIdentities,
    /// More than 65,536 users on one port.
    TooManyUsers,
    /// Two users with the same key cannot be told apart.
    DuplicateUser,
    /// A raw key for a 2022 method, which takes it as the password.
    RawKeyFor2022,
    /// A printable salt for a method that does not have one.
    PrintableSalt,
    /// More than 65,536 next hops of a relay.
    TooManyHops,
    /// Two next hops of a relay with the same key cannot be told apart.
    DuplicateHop,
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("the password is empty"),
            Self::NotBase64 => f.write_str(
                "the key is not base64; make one with `adit key METHOD`",
            ),
            Self::Length { expected, actual } => write!(
                f,
                "the key has {actual} bytes and the method takes exactly {expected}; make one with `adit key METHOD`"
            ),
            Self::NoIdentity => f.write_str(
                "keys joined by ':' (users) need 2022-blake3-aes-128-gcm or 2022-blake3-aes-256-gcm",
            ),
            Self::OneKey => f.write_str(
                "this takes one key, without ':'; a client alone joins the port's key and its user's",
            ),
            Self::TooManyIdentities => {
                write!(f, "more than {IDENTITY_HEADERS_MAX} identity keys joined by ':'")
            }
            Self::TooManyUsers => write!(f, "more than {USERS_MAX} users on one port"),
            Self::DuplicateUser => f.write_str("two users have the same key"),
            Self::RawKeyFor2022 => {
                f.write_str("a 2022 method takes its key as \"password\", not as \"key\"")
            }
            Self::PrintableSalt => f.write_str(
                "a printable salt needs the method chacha20-ietf-poly1305 or aes-256-gcm",
            ),
            Self::TooManyHops => f.write_str("more than 65536 next hops"),
            Self::DuplicateHop => f.write_str("two next hops have the same key"),
        }
    }
}

impl std::error::Error for KeyError {}

/// What a client needs to reach one server.
#[derive(Clone)]
pub struct ClientKey {
    method: Method,
    /// Keys of the relays in front, outermost first; empty without identity headers.
    identities: Vec<Secret>,
    user: Secret,
    /// `BLAKE3(next key)[0..16]` for each identity header.
    headers: Vec<[u8; 16]>,
    printable_salt: bool,
    /// Follows from the keys above.
    packet: Arc<PacketKeys>,
}

impl PartialEq for ClientKey {
    fn eq(&self, other: &Self) -> bool {
        self.method == other.method
            && self.identities == other.identities
            && self.user == other.user
            && self.printable_salt == other.printable_salt
    }
}

impl ClientKey {
    /// Reads the `password` of a configuration: a pass phrase for SIP004, base64 keys joined by
    /// `:` (`iPSK0:…:uPSK`) for 2022.
    ///
    /// # Errors
    /// Says what is wrong without repeating any of the secret.
    pub fn parse(method: Method, password: &str) -> Result<Self, KeyError> {
        if !method.is_2022() {
            return Ok(Self::single(method, master_key(method, password)?));
        }
        if password.is_empty() {
            return Err(KeyError::Empty);
        }
        let mut keys =
            password.split(':').map(|k| decode_psk(method, k)).collect::<Result<Vec<_>, _>>()?;
        if keys.len() > 1 && !method.supports_identity() {
            return Err(KeyError::NoIdentity);
        }
        if keys.len() > IDENTITY_HEADERS_MAX + 1 {
            return Err(KeyError::TooManyIdentities);
        }
        let headers = keys.iter().skip(1).map(|k| blake3_identity(k.as_bytes())).collect();
        let user = keys.pop().ok_or(KeyError::Empty)?;
        Ok(Self::new(method, keys, user, headers))
    }

    /// Reads a raw SIP004 master key in base64 (libev's `key`), longer input cut to length.
    ///
    /// # Errors
    /// As [`ClientKey::parse`].
    pub fn from_raw(method: Method, key: &str) -> Result<Self, KeyError> {
        Ok(Self::single(method, raw_key(method, key)?))
    }

    fn single(method: Method, user: Secret) -> Self {
        Self::new(method, Vec::new(), user, Vec::new())
    }

    fn new(method: Method, identities: Vec<Secret>, user: Secret, headers: Vec<[u8; 16]>) -> Self {
        let packet = PacketKeys::new(method, identities.iter().chain([&user]));
        Self { method, identities, user, headers, printable_salt: false, packet: Arc::new(packet) }
    }

    /// Begins the salt of each TCP request with 6 to 12 printable ASCII characters (the option
    /// `printable_salt` of shadowsocks-c). Everything else stays random, and datagrams are as
    /// they are without.
    ///
    /// # Errors
    /// [`KeyError::PrintableSalt`] for all methods but `chacha20-ietf-poly1305` and `aes-256-gcm`.
    pub fn with_printable_salt(self) -> Result<Self, KeyError> {
        match self.method {
            Method::ChaCha20IetfPoly1305 | Method::Aes256Gcm => {
                Ok(Self { printable_salt: true, ..self })
            }
            _ => Err(KeyError::PrintableSalt),
        }
    }

    /// What the identity headers hide, outermost first.
    pub(crate) fn identities(&self) -> &[[u8; 16]] {
        &self.headers
    }

    pub(crate) const fn has_printable_salt(&self) -> bool {
        self.printable_salt
    }

    pub(crate) fn packet_keys(&self) -> &PacketKeys {
        &self.packet
    }

    /// The method.
    pub const fn method(&self) -> Method {
        self.method
    }

    pub(crate) fn session(&self) -> &Secret {
        &self.user
    }

    /// Each identity header's key and the 16 bytes it hides, outermost first.
    pub(crate) fn identity_headers(&self) -> impl ExactSizeIterator<Item = (&Secret, &[u8; 16])> {
        self.identities.iter().zip(&self.headers)
    }
}

/// One user on a shared port (SIP023).
#[derive(Clone, PartialEq)]
pub struct UserKey {
    name: Box<str>,
    header: [u8; 16],
    key: Secret,
}

impl UserKey {
    /// The configured name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// `BLAKE3(key)[0..16]`, what identity headers name this user by.
    pub const fn identity(&self) -> &[u8; 16] {
        &self.header
    }

    pub(crate) fn session(&self) -> &Secret {
        &self.key
    }
}

/// What a server needs to serve one port.
#[derive(Clone)]
pub struct ServerKey {
    method: Method,
    key: Secret,
    /// Sorted by `header`; empty when the port has one user.
    users: Vec<UserKey>,
    /// Follows from the keys above.
    packet: Arc<PacketKeys>,
}

impl PartialEq for ServerKey {
    fn eq(&self, other: &Self) -> bool {
        self.method == other.method && self.key == other.key && self.users == other.users
    }
}

impl ServerKey {
    /// Reads the `password` of a configuration and its `users` as name and password.
    ///
    /// # Errors
    /// Says what is wrong without repeating any of the secret.
    pub fn parse<'a>(
        method: Method,
        password: &str,
        users: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self, KeyError> {
        let key = if method.is_2022() {
            if password.is_empty() {
                return Err(KeyError::Empty);
            }
            if password.contains(':') {
                // A relay in the middle of a chain peels one header; an end point has one key.
                return Err(KeyError::OneKey);
            }
            decode_psk(method, password)?
        } else {
            master_key(method, password)?
        };
        let mut table = Vec::new();
        for (name, password) in users {
            if !method.supports_identity() {
                return Err(KeyError::NoIdentity);
            }
            if password.contains(':') {
                return Err(KeyError::OneKey);
            }
            let key = decode_psk(method, password)?;
            let header = blake3_identity(key.as_bytes());
            table.push(UserKey { name: name.into(), header, key });
        }
        if table.len() > USERS_MAX {
            return Err(KeyError::TooManyUsers);
        }
        table.sort_by_key(|u| u.header);
        if table.windows(2).any(|pair| pair[0].header == pair[1].header) {
            return Err(KeyError::DuplicateUser);
        }
        Ok(Self::new(method, key, table))
    }

    fn new(method: Method, key: Secret, users: Vec<UserKey>) -> Self {
        let keys = [&key].into_iter().chain(users.iter().map(UserKey::session));
        let packet = Arc::new(PacketKeys::new(method, keys));
        Self { method, key, users, packet }
    }

    /// Reads a raw SIP004 master key in base64 (libev's `key`), longer input cut to length.
    ///
    /// # Errors
    /// As [`ServerKey::parse`].
    pub fn from_raw(method: Method, key: &str) -> Result<Self, KeyError> {
        Ok(Self::new(method, raw_key(method, key)?, Vec::new()))
    }

    /// The method.
    pub const fn method(&self) -> Method {
        self.method
    }

    /// The users, in no particular order; empty when the port has one user.
    pub fn users(&self) -> &[UserKey] {
        &self.users
    }

    /// Index among [`ServerKey::users`] of the user with this [`UserKey::identity`]; finds a
    /// user of one table in another, after a reload.
    pub fn user_by_identity(&self, identity: &[u8; 16]) -> Option<u16> {
        self.user_by_header(identity).and_then(|index| u16::try_from(index).ok())
    }

    pub(crate) fn identity(&self) -> &Secret {
        &self.key
    }

    pub(crate) fn packet_keys(&self) -> &PacketKeys {
        &self.packet
    }

    pub(crate) fn user_by_header(&self, header: &[u8; 16]) -> Option<usize> {
        // The header is a hash of a secret, so its ordering tells a prober nothing.
        self.users.binary_search_by(|u| u.header.cmp(header)).ok()
    }

    pub(crate) fn user(&self, index: usize) -> Option<&UserKey> {
        self.users.get(index)
    }
}

fn master_key(method: Method, password: &str) -> Result<Secret, KeyError> {
    let mut key = [0; adit_crypto::KEY_LEN_MAX];
    let key = &mut key[..method.key_len()];
    if method != Method::None {
        if password.is_empty() {
            return Err(KeyError::Empty);
        }
        evp_bytes_to_key_md5(password.as_bytes(), key);
    }
    let secret = Secret::new(key);
    key.zeroize();
    Ok(secret)
}

fn raw_key(method: Method, text: &str) -> Result<Secret, KeyError> {
    if method.is_2022() {
        return Err(KeyError::RawKeyFor2022);
    }
    let mut bytes = decode_base64(text)?;
    let expected = method.key_len();
    let key = bytes
        .get(..expected)
        .map(Secret::new)
        .ok_or(KeyError::Length { expected, actual: bytes.len() });
    bytes.as_mut_slice().zeroize();
    key
}

pub(crate) fn decode_psk(method: Method, text: &str) -> Result<Secret, KeyError> {
    let mut bytes = decode_base64(text)?;
    let expected = method.key_len();
    let key = if bytes.len() == expected {
        Ok(Secret::new(&bytes))
    } else {
        Err(KeyError::Length { expected, actual: bytes.len() })
    };
    bytes.as_mut_slice().zeroize();
    key
}

/// Both alphabets, padded or not: users paste keys from every kind of program.
fn decode_base64(text: &str) -> Result<Vec<u8>, KeyError> {
    let text = text.trim_end_matches('=').as_bytes();
    BASE64_NOPAD
        .decode(text)
        .or_else(|_| BASE64URL_NOPAD.decode(text))
        .map_err(|_| KeyError::NotBase64)
}
