//! The client's side of a stream's beginning: reading the response up to its first payload.

use std::ops::Range;
use std::sync::Mutex;

use crate::seal::{Cipher, REQUEST_FIXED_LEN, TYPE_RESPONSE};
use crate::server::{check_clock, remember};
use crate::{ClientKey, Method, Opener, Reject, ReplaySet, SALT_LEN_MAX};
use adit_crypto::TAG_LEN;

/// Reads the first bytes of a response.
pub struct ClientHandshake {
    request_salt: [u8; SALT_LEN_MAX],
    stage: Stage,
}

#[allow(
    clippy::large_enum_variant,
    reason = "the handshake shares its memory with the opener that follows it, which is as large"
)]
enum Stage {
    Salt,
    /// SIP004: the salt counts as seen only once a payload under it has authenticated.
    FirstRecord {
        opener: Opener,
        salt: [u8; SALT_LEN_MAX],
    },
    Done,
}

/// A response whose beginning has been checked.
pub struct Response {
    /// Opens the rest of the stream.
    pub opener: Opener,
    /// The first payload, in the buffer that was passed in; may be empty for 2022.
    pub payload: Range<usize>,
}

impl ClientHandshake {
    /// Waits for the response to the request that went out with `request_salt`.
    pub const fn new(request_salt: [u8; SALT_LEN_MAX]) -> Self {
        Self { request_salt, stage: Stage::Salt }
    }

    /// Whether nothing has been consumed: an end here is a clean one (a target that closed
    /// without a byte sends no response).
    pub const fn is_untouched(&self) -> bool {
        matches!(self.stage, Stage::Salt)
    }

    /// Reads on from `buf[*at..]`, as [`Opener::open`] does; `None` asks for more bytes.
    ///
    /// # Errors
    /// The response is not from the server this request went to; the caller resets both sides.
    pub fn advance(
        &mut self,
        key: &ClientKey,
        unix_s: u64,
        replay: Option<&Mutex<ReplaySet>>,
        buf: &mut [u8],
        at: &mut usize,
    ) -> Result<Option<Response>, Reject> {
        let method = key.method();
        if matches!(self.stage, Stage::Salt) {
            if method.is_2022() {
                return self.advance_2022(key, unix_s, buf, at);
            }
            let Some(bytes) = buf.get(*at..*at + method.salt_len()) else { return Ok(None) };
            let mut salt = [0; SALT_LEN_MAX];
            salt[..bytes.len()].copy_from_slice(bytes);
            // SIP004 keys both directions alike: our own request sent back would authenticate.
            if !bytes.is_empty() && salt == self.request_salt {
                return Err(Reject::Replay);
            }
            let opener = Opener::new(Cipher::new(method, key.session(), bytes));
            *at += method.salt_len();
            self.stage = Stage::FirstRecord { opener, salt };
        }
        let Stage::FirstRecord { opener, salt } = &mut self.stage else { return Ok(None) };
        let Some(payload) = opener.open(buf, at)? else { return Ok(None) };
        if method != Method::None {
            remember(replay, &salt[..method.salt_len()], unix_s)?;
        }
        let Stage::FirstRecord { opener, .. } = std::mem::replace(&mut self.stage, Stage::Done)
        else {
            unreachable!("matched above")
        };
        Ok(Some(Response { opener, payload }))
    }

    fn advance_2022(
        &mut self,
        key: &ClientKey,
        unix_s: u64,
        buf: &mut [u8],
        at: &mut usize,
    ) -> Result<Option<Response>, Reject> {
        let method = key.method();
        let salt_len = method.salt_len();
        let fixed_len = REQUEST_FIXED_LEN + salt_len + TAG_LEN;
        let Some(bytes) = buf.get_mut(*at..*at + salt_len + fixed_len) else { return Ok(None) };
        let (salt, fixed) = bytes.split_at_mut(salt_len);
        let mut cipher = Cipher::new(method, key.session(), salt);
        cipher.open(fixed)?;
        if fixed[0] != TYPE_RESPONSE {
            return Err(Reject::StreamType(fixed[0]));
        }
        check_clock(&fixed[1..9], unix_s)?;
        if fixed[9..9 + salt_len] != self.request_salt[..salt_len] {
            return Err(Reject::ForeignRequestSalt);
        }
        let len = u16::from_be_bytes([fixed[9 + salt_len], fixed[10 + salt_len]]);
        *at += salt_len + fixed_len;
        self.stage = Stage::Done;
        Ok(Some(Response { opener: Opener::with_length(cipher, len), payload: *at..*at }))
    }
}
