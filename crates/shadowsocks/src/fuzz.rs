//! Bodies of the fuzz targets, and the reader that the tests share.
//!
//! Each body builds a stream from the input, honest or forged with the right key, and reads it
//! whole and again in pieces; it panics when the two differ or plaintext appears that nobody
//! sealed. The keys are known, so that the parsers behind the authentication are reached.

use std::sync::Mutex;

use adit_crypto::Secret;
use adit_wire::TargetBuf;

use crate::seal::{Cipher, TYPE_REQUEST, TYPE_RESPONSE, identity_key};
use crate::server::{Accepted, ServerHandshake};
use crate::{
    ClientHandshake, ClientKey, Method, Opener, Reject, ReplaySet, SALT_LEN_MAX, ServerKey,
};

pub(crate) mod packet;

pub use packet::{packet_client, packet_relay, packet_server};

/// The clock of every stream here.
const NOW: u64 = 1_700_000_000;
/// Keys of 16 and 32 bytes, as configured.
const PASSWORDS: [(&str, &str); 2] = [
    ("ERYbICUqLzQ5PkNITVJXXA==", "UVZbYGVqb3R5foOIjZKXnA=="),
    (
        "ERYbICUqLzQ5PkNITVJXXGFma3B1en+EiY6TmJ2ip6w=",
        "UVZbYGVqb3R5foOIjZKXnKGmq7C1ur/Eyc7T2N3i5+w=",
    ),
];

/// Reads one direction of a stream as an engine does: what was not consumed is shown again with
/// the following segment behind it.
pub(crate) struct Reader<'a> {
    stage: Stage<'a>,
    unix_s: u64,
    replay: Option<&'a Mutex<ReplaySet>>,
    /// Bytes that came and were not consumed.
    pub(crate) kept: Vec<u8>,
    /// Plaintext so far.
    pub(crate) plain: Vec<u8>,
    /// What a request told: target, user, salt.
    pub(crate) request: Option<(TargetBuf, Option<u16>, [u8; SALT_LEN_MAX])>,
}

#[allow(clippy::large_enum_variant, reason = "tests and fuzzing only")]
enum Stage<'a> {
    Server(ServerHandshake, &'a ServerKey),
    Client(ClientHandshake, &'a ClientKey),
    Records(Opener),
}

impl<'a> Reader<'a> {
    fn new(stage: Stage<'a>, unix_s: u64, replay: Option<&'a Mutex<ReplaySet>>) -> Self {
        Self { stage, unix_s, replay, kept: Vec::new(), plain: Vec::new(), request: None }
    }

    /// Reads a request.
    pub(crate) fn server(
        key: &'a ServerKey,
        unix_s: u64,
        replay: Option<&'a Mutex<ReplaySet>>,
    ) -> Self {
        Self::new(Stage::Server(ServerHandshake::new(), key), unix_s, replay)
    }

    /// Reads the response to the request with this salt.
    pub(crate) fn client(
        key: &'a ClientKey,
        request_salt: [u8; SALT_LEN_MAX],
        unix_s: u64,
        replay: Option<&'a Mutex<ReplaySet>>,
    ) -> Self {
        Self::new(Stage::Client(ClientHandshake::new(request_salt), key), unix_s, replay)
    }

    fn records(opener: Opener) -> Self {
        Self::new(Stage::Records(opener), NOW, None)
    }

    /// Whether the handshake is over.
    pub(crate) const fn is_open(&self) -> bool {
        matches!(self.stage, Stage::Records(_))
    }

    /// Whether an end here is a clean one.
    pub(crate) const fn at_end(&self) -> bool {
        self.kept.is_empty()
            && match &self.stage {
                Stage::Server(..) => false,
                Stage::Client(handshake, _) => handshake.is_untouched(),
                Stage::Records(opener) => opener.at_boundary(),
            }
    }

    /// Takes one segment.
    pub(crate) fn feed(&mut self, segment: &[u8]) -> Result<(), Reject> {
        self.kept.extend_from_slice(segment);
        let buf = self.kept.as_mut_slice();
        let mut at = 0;
        loop {
            let before = at;
            let payload = match &mut self.stage {
                Stage::Server(handshake, key) => {
                    match handshake.advance(key, self.unix_s, self.replay, buf, &mut at)? {
                        None => None,
                        Some(Accepted { opener, target, payload, request_salt, user }) => {
                            self.request = Some((target, user, request_salt));
                            self.stage = Stage::Records(opener);
                            Some(payload)
                        }
                    }
                }
                Stage::Client(handshake, key) => {
                    match handshake.advance(key, self.unix_s, self.replay, buf, &mut at)? {
                        None => None,
                        Some(response) => {
                            self.stage = Stage::Records(response.opener);
                            Some(response.payload)
                        }
                    }
                }
                Stage::Records(opener) => {
                    let payload = opener.open(buf, &mut at)?;
                    assert!(payload.as_ref().is_none_or(|p| !p.is_empty()), "an empty payload");
                    payload
                }
            };
            assert!((before..=buf.len()).contains(&at), "consumed more than there was");
            let Some(payload) = payload else { break };
            assert!(payload.start >= before && payload.end <= at, "a payload outside of its bytes");
            self.plain.extend_from_slice(&buf[payload]);
        }
        self.kept.drain(..at);
        Ok(())
    }

    /// Takes all segments, up to the first refusal.
    pub(crate) fn feed_all<'s>(
        &mut self,
        segments: impl IntoIterator<Item = &'s [u8]>,
    ) -> Result<(), Reject> {
        segments.into_iter().try_for_each(|segment| self.feed(segment))
    }
}

/// Requests, read by a server.
///
/// The first bytes choose the method, whether the port has users, whether the stream is forged
/// with the right key and where it is cut; the rest is the stream.
pub fn server(data: &[u8]) {
    let Some((&[selector, seed, flags, at], rest)) = data.split_first_chunk() else { return };
    let method = method(selector);
    let (client_key, server_key) = keys(method, flags & 1 != 0);
    let mut stream = rest.to_vec();
    if flags & 2 != 0 {
        let salt = [seed; SALT_LEN_MAX];
        let salt = &salt[..method.salt_len()];
        stream = salt.to_vec();
        let mut first = None;
        for (identity, hidden) in client_key.identity_headers() {
            let mut header = *hidden;
            identity_key(identity, salt).encrypt_block(&mut header);
            stream.extend_from_slice(&header);
        }
        if method.is_2022() {
            let (fixed, _) = rest.split_at(rest.len().min(1));
            first = Some(fixed_header(TYPE_REQUEST, fixed.first().copied(), &[]));
        }
        forge(method, client_key.session(), salt, first, rest, &mut stream);
        flip(flags, at, seed, &mut stream);
    }
    let first_len = if method.is_2022() { method.salt_len() + 16 + 11 + 16 } else { 0 };
    let replay = Mutex::new(ReplaySet::by_age(16, 60));
    let mut whole = Reader::server(&server_key, NOW, Some(&replay));
    let whole_end = whole.feed(&stream);
    let other = Mutex::new(ReplaySet::by_age(16, 60));
    let mut pieces = Reader::server(&server_key, NOW, Some(&other));
    let pieces_end = pieces.feed_all(split(seed, first_len, &stream));
    compare(&whole, whole_end, &pieces, pieces_end);
    assert_eq!(whole.request.is_some(), whole.is_open());
    let mut again = Reader::server(&server_key, NOW, Some(&replay));
    let again_end = again.feed(&stream);
    if method == Method::None {
        compare(&whole, whole_end, &again, again_end);
    } else if whole.is_open() {
        assert_eq!(again_end, Err(Reject::Replay), "replayed");
        assert!(again.plain.is_empty() && again.request.is_none());
    }
}

/// Responses, read by a client; the input as for [`server`].
pub fn client(data: &[u8]) {
    let Some((&[selector, seed, flags, at], rest)) = data.split_first_chunk() else { return };
    let method = method(selector);
    let (key, _) = keys(method, flags & 1 != 0);
    let request_salt = [0x5a; SALT_LEN_MAX];
    let mut stream = rest.to_vec();
    if flags & 2 != 0 {
        let salt = [seed; SALT_LEN_MAX];
        let salt = &salt[..method.salt_len()];
        stream = salt.to_vec();
        let echoed = if flags & 32 == 0 { request_salt } else { [seed; SALT_LEN_MAX] };
        let first = method.is_2022().then(|| {
            fixed_header(TYPE_RESPONSE, rest.first().copied(), &echoed[..method.salt_len()])
        });
        forge(method, key.session(), salt, first, rest, &mut stream);
        flip(flags, at, seed, &mut stream);
    }
    let mut whole = Reader::client(&key, request_salt, NOW, None);
    let whole_end = whole.feed(&stream);
    let mut pieces = Reader::client(&key, request_salt, NOW, None);
    let pieces_end = pieces.feed_all(split(seed, 0, &stream));
    compare(&whole, whole_end, &pieces, pieces_end);
}

/// Records of an honest sender, one bit of them flipped or not, read by an opener.
pub fn opener(data: &[u8]) {
    let Some((&[selector, seed, flags, at], mut rest)) = data.split_first_chunk() else { return };
    let method = method(selector);
    let (key, _) = keys(method, false);
    let mut sealer = Cipher::new(method, key.session(), &[seed; SALT_LEN_MAX]);
    let mut stream = Vec::new();
    let mut sent = Vec::new();
    let mut empty = 0;
    let mut empty_max = 0;
    while let Some((&len, tail)) = rest.split_first() {
        let (payload, tail) = tail.split_at(tail.len().min(usize::from(len)));
        rest = tail;
        empty = if payload.is_empty() { empty + 1 } else { 0 };
        empty_max = empty_max.max(empty);
        sent.extend_from_slice(payload);
        record(&mut sealer, payload, &mut stream);
    }
    let flipped = flip(flags, at, seed, &mut stream) && method != Method::None;
    let reader = || Reader::records(Opener::new(Cipher::new(method, key.session(), &[seed; 32])));
    let mut whole = reader();
    let whole_end = whole.feed(&stream);
    let mut pieces = reader();
    let pieces_end = pieces.feed_all(split(seed, 0, &stream));
    compare(&whole, whole_end, &pieces, pieces_end);
    if method == Method::None {
        assert_eq!(whole.plain, stream);
        return;
    }
    assert!(sent.starts_with(&whole.plain), "plaintext that nobody sealed");
    match whole_end {
        Ok(()) => assert!(!flipped && sent == whole.plain && whole.at_end()),
        Err(Reject::EmptyRecords) => assert!(empty_max > 64),
        Err(error) => assert!(flipped && error == Reject::Authentication, "{error}"),
    }
}

fn method(selector: u8) -> Method {
    Method::ALL[usize::from(selector) % Method::ALL.len()]
}

/// The keys of both ends; with users where the method has them.
pub(crate) fn keys(method: Method, users: bool) -> (ClientKey, ServerKey) {
    let (password, user) = PASSWORDS[usize::from(method.key_len() == 32)];
    let users = users && method.supports_identity();
    let of_client = if users { format!("{password}:{user}") } else { password.to_owned() };
    let of_server = users.then_some(("user", user));
    let client = ClientKey::parse(method, &of_client).expect("the keys above fit");
    (client, ServerKey::parse(method, password, of_server).expect("the keys above fit"))
}

/// A 2022 fixed header up to its length; `skew` is a distance of the clock.
fn fixed_header(stream_type: u8, skew: Option<u8>, request_salt: &[u8]) -> Vec<u8> {
    let skew = skew.unwrap_or(0).cast_signed();
    let unix_s = NOW.saturating_add_signed(skew.into());
    let stream_type = if skew == 77 { stream_type ^ 1 } else { stream_type };
    [&[stream_type][..], &unix_s.to_be_bytes(), request_salt].concat()
}

/// Seals pieces of `rest` with the right key: whole records, and now and then anything at all.
/// `first` is the beginning of a 2022 fixed header, which the first piece's length follows.
fn forge(
    method: Method,
    session: &Secret,
    salt: &[u8],
    mut first: Option<Vec<u8>>,
    rest: &[u8],
    stream: &mut Vec<u8>,
) {
    let mut cipher = Cipher::new(method, session, salt);
    let mut rest = rest.get(1..).unwrap_or_default();
    while let Some((&[kind, len], tail)) = rest.split_first_chunk() {
        let (piece, tail) = tail.split_at(tail.len().min(usize::from(len)));
        rest = tail;
        if let Some(mut fixed) = first.take() {
            fixed.extend_from_slice(&(piece.len() as u16).to_be_bytes());
            chunk(&mut cipher, &fixed, stream);
            chunk(&mut cipher, piece, stream);
        } else if kind < 16 {
            chunk(&mut cipher, piece, stream);
        } else {
            record(&mut cipher, piece, stream);
        }
    }
}

/// One AEAD call.
pub(crate) fn chunk(cipher: &mut Cipher, plain: &[u8], stream: &mut Vec<u8>) {
    let start = stream.len();
    stream.extend_from_slice(plain);
    if cipher.method != Method::None {
        stream.resize(start + plain.len() + adit_crypto::TAG_LEN, 0);
        cipher.seal(&mut stream[start..]);
    }
}

/// One record.
pub(crate) fn record(cipher: &mut Cipher, payload: &[u8], stream: &mut Vec<u8>) {
    if cipher.method != Method::None {
        chunk(cipher, &(payload.len() as u16).to_be_bytes(), stream);
    }
    chunk(cipher, payload, stream);
}

/// Flips one bit when the flags ask for it; says whether it did.
fn flip(flags: u8, at: u8, seed: u8, stream: &mut [u8]) -> bool {
    if flags & 4 == 0 || stream.is_empty() {
        return false;
    }
    let at = (usize::from(at) << 8 | usize::from(seed)) % stream.len();
    stream[at] ^= 1 << (flags >> 3 & 3);
    true
}

/// Cuts `stream` into pieces, some empty, the first of `first_len` bytes or more.
pub(crate) fn split(
    seed: u8,
    first_len: usize,
    stream: &[u8],
) -> impl Iterator<Item = &[u8]> + use<'_> {
    let mut mix = u32::from(seed) | 0x5bd1_e900;
    let mut rest = stream;
    let mut min_len = first_len;
    std::iter::from_fn(move || {
        if rest.is_empty() && min_len == usize::MAX {
            return None;
        }
        mix = mix.wrapping_mul(0x0019_660d).wrapping_add(0x3c6e_f35f);
        let len = match mix >> 29 {
            0..3 => 1,
            3..6 => (mix >> 20) as usize & 63,
            _ => (mix >> 16) as usize & 2047,
        };
        let len = if min_len == usize::MAX { len } else { len.max(min_len) };
        // Marks that the first piece is out.
        min_len = usize::MAX;
        let (piece, tail) = rest.split_at(len.min(rest.len()));
        rest = tail;
        Some(piece)
    })
}

/// Two readings of one stream tell the same.
fn compare(
    one: &Reader<'_>,
    one_end: Result<(), Reject>,
    other: &Reader<'_>,
    other_end: Result<(), Reject>,
) {
    assert_eq!(one_end, other_end, "the outcome depends on the split");
    assert_eq!(one.plain, other.plain, "the plaintext depends on the split");
    assert_eq!(one.request, other.request, "the request depends on the split");
    if one_end.is_ok() {
        assert_eq!(one.kept, other.kept, "the consumption depends on the split");
    }
}
