//! Shadowsocks streams made by hand: first flights to send to a server, answers to give a client.

use std::net::SocketAddr;
use std::time::{SystemTime, UNIX_EPOCH};

use adit_crypto::Rng;
use adit_shadowsocks::{
    ClientKey, Env, Method, PADDED_LEN_MAX, RECORD_TAIL, SALT_LEN_MAX, Sealer, ServerKey,
};
use adit_wire::{Host, TARGET_LEN_MAX, Target};

use crate::password;

/// Keys of both ends for the password that [`password`] gives.
pub struct Keys {
    /// The method.
    pub method: Method,
    client: ClientKey,
}

impl Keys {
    /// Keys for a method.
    ///
    /// # Panics
    /// When there is no such method.
    pub fn new(method: &str) -> Self {
        let parsed = Method::from_name(method).expect("a method");
        let client = ClientKey::parse(parsed, password(method)).expect("a good password");
        Self { method: parsed, client }
    }
}

/// The first flight of a request to an address, as a client of ours sends it.
///
/// # Panics
/// When there are no random numbers.
pub fn request(keys: &Keys, to: SocketAddr, payload: &[u8]) -> Vec<u8> {
    let mut target = [0; TARGET_LEN_MAX];
    let len = Target { host: Host::Ip(to.ip()), port: to.port() }.encode(&mut target);
    let head = Sealer::request_head_len(&keys.client, len);
    let mut buf = vec![0; head + payload.len() + PADDED_LEN_MAX.max(RECORD_TAIL)];
    buf[head..head + payload.len()].copy_from_slice(payload);
    let mut rng = Rng::new().expect("random numbers");
    let mut env = Env { unix_s: unix_s(), rng: &mut rng };
    let (_, _, len) =
        Sealer::request(&keys.client, &target[..len], &mut env, &mut buf, payload.len());
    buf.truncate(len);
    buf
}

/// A server that answers as it likes.
pub struct Forger {
    key: ServerKey,
    method: Method,
}

impl Forger {
    /// A server that knows the key.
    ///
    /// # Panics
    /// When there is no such method.
    pub fn new(method: &str) -> Self {
        let parsed = Method::from_name(method).expect("a method");
        let key = ServerKey::parse(parsed, password(method), std::iter::empty());
        Self { key: key.expect("a good password"), method: parsed }
    }

    /// Length of a request's salt.
    pub const fn salt_len(&self) -> usize {
        self.method.salt_len()
    }

    /// The first record of a response to the request with this salt.
    ///
    /// # Panics
    /// When there are no random numbers.
    pub fn response(&self, request_salt: &[u8], payload: &[u8]) -> Vec<u8> {
        let mut salt = [0; SALT_LEN_MAX];
        salt[..request_salt.len()].copy_from_slice(request_salt);
        let head = Sealer::response_head_len(self.method);
        let mut buf = vec![0; head + payload.len() + RECORD_TAIL];
        buf[head..head + payload.len()].copy_from_slice(payload);
        let mut rng = Rng::new().expect("random numbers");
        let mut env = Env { unix_s: unix_s(), rng: &mut rng };
        let session = adit_shadowsocks::Accepted::session(&self.key, None);
        let (_, len) =
            Sealer::response(self.method, session, &salt, &mut env, &mut buf, payload.len());
        buf.truncate(len);
        buf
    }
}

fn unix_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs())
}
