//! The server's side of a stream's beginning: reading a request up to its target.

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use adit_crypto::{Secret, TAG_LEN};
use adit_wire::{AddressError, TARGET_LEN_MAX, Target, TargetBuf};

use crate::seal::{Cipher, REQUEST_FIXED_LEN, TYPE_REQUEST, identity_key};
use crate::{
    CLOCK_SKEW_MAX_S, Method, Opener, Reject, ReplaySet, SALT_LEN_MAX, ServerKey, Verdict,
};

/// Reads the first bytes of a request.
pub struct ServerHandshake {
    salt: [u8; SALT_LEN_MAX],
    user: Option<u16>,
    stage: Stage,
}

#[allow(
    clippy::large_enum_variant,
    reason = "the handshake shares its memory with the relay state that follows it, which is larger"
)]
enum Stage {
    Salt,
    /// SIP004 and none: the address may span records, so its bytes are gathered here.
    Address {
        opener: Opener,
        authenticated: bool,
        address: [u8; TARGET_LEN_MAX],
        len: usize,
    },
    /// 2022: the fixed header told the variable header's length.
    Variable {
        opener: Opener,
        len: u16,
    },
    Done,
}

/// A request that has been authenticated and read up to its first payload.
pub struct Accepted {
    /// Opens the rest of the stream.
    pub opener: Opener,
    /// Where the client wants to go.
    pub target: TargetBuf,
    /// The first payload, in the buffer that was passed in; may be empty.
    pub payload: Range<usize>,
    /// The request's salt, which a 2022 response repeats.
    pub request_salt: [u8; SALT_LEN_MAX],
    /// Index of the user among [`ServerKey::users`] on a port with several.
    pub user: Option<u16>,
}

impl Accepted {
    /// The key that the response is sealed with.
    pub fn session(key: &ServerKey, user: Option<u16>) -> &Secret {
        match user.and_then(|u| key.user(usize::from(u))) {
            Some(user) => user.session(),
            None => key.identity(),
        }
    }
}

impl Default for ServerHandshake {
    fn default() -> Self {
        Self::new()
    }
}

impl ServerHandshake {
    /// Waits for a request.
    pub const fn new() -> Self {
        Self { salt: [0; SALT_LEN_MAX], user: None, stage: Stage::Salt }
    }

    /// Reads on from `buf[*at..]`, as [`Opener::open`] does; `None` asks for more bytes.
    ///
    /// The first call must be made with exactly what the first `read` returned: a 2022 request
    /// has to bring its fixed header in one segment (SIP022).
    ///
    /// # Errors
    /// The peer misbehaved; [`Reject::reaction`] says what to do.
    pub fn advance(
        &mut self,
        key: &ServerKey,
        unix_s: u64,
        replay: Option<&Mutex<ReplaySet>>,
        buf: &mut [u8],
        at: &mut usize,
    ) -> Result<Option<Accepted>, Reject> {
        if matches!(self.stage, Stage::Salt) {
            if key.method().is_2022() {
                self.read_fixed(key, unix_s, replay, buf, at)?;
            } else if !self.read_salt(key, buf, at) {
                return Ok(None);
            }
        }
        match self.stage {
            Stage::Variable { .. } => self.read_variable(buf, at),
            _ => self.read_address(key.method(), unix_s, replay, buf, at),
        }
    }

    fn read_salt(&mut self, key: &ServerKey, buf: &[u8], at: &mut usize) -> bool {
        let method = key.method();
        let Some(salt) = buf.get(*at..*at + method.salt_len()) else { return false };
        self.salt[..salt.len()].copy_from_slice(salt);
        *at += salt.len();
        self.stage = Stage::Address {
            opener: Opener::new(Cipher::new(method, key.identity(), salt)),
            authenticated: false,
            address: [0; TARGET_LEN_MAX],
            len: 0,
        };
        true
    }

    fn read_address(
        &mut self,
        method: Method,
        unix_s: u64,
        replay: Option<&Mutex<ReplaySet>>,
        buf: &mut [u8],
        at: &mut usize,
    ) -> Result<Option<Accepted>, Reject> {
        let Stage::Address { opener, authenticated, address, len } = &mut self.stage else {
            return Ok(None);
        };
        while let Some(payload) = opener.open(buf, at)? {
            if !*authenticated {
                if method != Method::None {
                    remember(replay, &self.salt[..method.salt_len()], unix_s)?;
                }
                *authenticated = true;
            }
            let had = *len;
            let take = payload.len().min(TARGET_LEN_MAX - had);
            address[had..had + take].copy_from_slice(&buf[payload.start..payload.start + take]);
            match Target::parse(&address[..had + take]) {
                Ok((target, used)) => {
                    let target = target.into();
                    let payload = payload.start + used - had..payload.end;
                    return Ok(Some(self.accept(target, payload)));
                }
                Err(AddressError::Incomplete) => {
                    *len = had + take;
                }
                Err(e) => return Err(Reject::Address(e)),
            }
        }
        Ok(None)
    }

    fn read_fixed(
        &mut self,
        key: &ServerKey,
        unix_s: u64,
        replay: Option<&Mutex<ReplaySet>>,
        buf: &mut [u8],
        at: &mut usize,
    ) -> Result<(), Reject> {
        let method = key.method();
        let identity_len = if key.users().is_empty() { 0 } else { 16 };
        let expected = method.salt_len() + identity_len + REQUEST_FIXED_LEN + TAG_LEN;
        let actual = buf.len() - *at;
        let Some(bytes) = buf.get_mut(*at..*at + expected) else {
            return Err(Reject::ShortFirstSegment { expected, actual });
        };
        let (salt, rest) = bytes.split_at_mut(method.salt_len());
        let (identity, fixed) = rest.split_at_mut(identity_len);
        self.salt[..salt.len()].copy_from_slice(salt);
        let session = match identity.first_chunk_mut::<16>() {
            None => key.identity(),
            Some(header) => {
                identity_key(key.identity(), salt).decrypt_block(header);
                let index = key.user_by_header(header).ok_or(Reject::UnknownUser)?;
                self.user = u16::try_from(index).ok();
                Accepted::session(key, self.user)
            }
        };
        let mut cipher = Cipher::new(method, session, salt);
        cipher.open(fixed)?;
        if fixed[0] != TYPE_REQUEST {
            return Err(Reject::StreamType(fixed[0]));
        }
        check_clock(&fixed[1..9], unix_s)?;
        remember(replay, salt, unix_s)?;
        let len = u16::from_be_bytes([fixed[9], fixed[10]]);
        *at += expected;
        self.stage = Stage::Variable { opener: Opener::new(cipher), len };
        Ok(())
    }

    fn read_variable(
        &mut self,
        buf: &mut [u8],
        at: &mut usize,
    ) -> Result<Option<Accepted>, Reject> {
        let Stage::Variable { opener, len } = &mut self.stage else { return Ok(None) };
        let len = usize::from(*len);
        let Some(record) = buf.get_mut(*at..*at + len + TAG_LEN) else { return Ok(None) };
        opener.cipher.open(record)?;
        let header = &record[..len];
        let (target, used) = Target::parse(header).map_err(|e| match e {
            AddressError::Incomplete => Reject::HeaderLength,
            e => Reject::Address(e),
        })?;
        let (padding_len, rest) =
            header[used..].split_first_chunk::<2>().ok_or(Reject::HeaderLength)?;
        let padding_len = usize::from(u16::from_be_bytes(*padding_len));
        if rest.len() < padding_len {
            return Err(Reject::HeaderLength);
        }
        if rest.is_empty() {
            return Err(Reject::NoPadding);
        }
        let target = target.into();
        let payload = *at + used + 2 + padding_len..*at + len;
        *at += len + TAG_LEN;
        Ok(Some(self.accept(target, payload)))
    }

    fn accept(&mut self, target: TargetBuf, payload: Range<usize>) -> Accepted {
        let opener = match std::mem::replace(&mut self.stage, Stage::Done) {
            Stage::Address { opener, .. } | Stage::Variable { opener, .. } => opener,
            Stage::Salt | Stage::Done => unreachable!("accept follows a stage with an opener"),
        };
        Accepted { opener, target, payload, request_salt: self.salt, user: self.user }
    }
}

/// Remembers the salt of a stream that has authenticated.
pub(crate) fn remember(
    replay: Option<&Mutex<ReplaySet>>,
    salt: &[u8],
    unix_s: u64,
) -> Result<(), Reject> {
    let Some(replay) = replay else { return Ok(()) };
    // A worker that panicked left a set that is whole, and ends the process anyway.
    let mut set = replay.lock().unwrap_or_else(PoisonError::into_inner);
    match set.check_and_insert(salt, unix_s) {
        Verdict::Fresh => Ok(()),
        Verdict::Seen => Err(Reject::Replay),
        Verdict::Full => Err(Reject::ReplayFull),
    }
}

/// Checks a big-endian Unix time against ours.
pub(crate) fn check_clock(theirs: &[u8], unix_s: u64) -> Result<(), Reject> {
    clock_difference(theirs, unix_s).map_or(Ok(()), |diff| Err(Reject::Clock(diff)))
}

/// How far a big-endian Unix time is from ours, saturated, when that is too far.
pub(crate) fn clock_difference(theirs: &[u8], unix_s: u64) -> Option<i64> {
    let theirs = theirs.first_chunk::<8>().map_or(0, |b| u64::from_be_bytes(*b));
    if theirs.abs_diff(unix_s) <= CLOCK_SKEW_MAX_S {
        return None;
    }
    let diff = i128::from(theirs) - i128::from(unix_s);
    let saturated = if diff < 0 { i64::MIN } else { i64::MAX };
    Some(i64::try_from(diff).unwrap_or(saturated))
}
