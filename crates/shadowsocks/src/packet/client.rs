//! The client's side of datagrams.

use std::ops::Range;

use adit_crypto::{AeadKey, Rng, TAG_LEN};
use adit_wire::TargetBuf;

use super::sip022::{self, BodyHead, Direction, HEADER_LEN, Ids, NONCE_LEN, Seal};
use super::{PacketKeys, PacketReject, PacketWindow, SessionExhausted, read_address, sip004};
use crate::seal::session_key;
use crate::{ClientKey, Env};

/// A server session that was heard within this time is still in use (SIP022).
const SERVER_SESSION_S: u64 = 60;

/// A reply packet that passed every check.
#[derive(Debug)]
pub struct OpenedReply {
    /// Where the payload came from, as the server says.
    pub source: TargetBuf,
    /// The bytes of `source` in the packet, which end where the payload starts. (An IPv6 address
    /// that came as text stays text here.)
    pub address: Range<usize>,
    /// The payload, in the packet; may be empty.
    pub payload: Range<usize>,
    /// The salt, in the packet, for the caller's store of used ones; empty for other methods than
    /// SIP004.
    pub salt: Range<usize>,
}

/// What a client keeps for one of its local sources of datagrams.
///
/// A session of SIP004 or none has no state of its own. One of 2022 belongs to its key: when a
/// reload changes the key, the caller starts another session.
pub struct ClientSession(pub(crate) Option<State>);

/// The state of a 2022 session.
pub(crate) struct State {
    id: [u8; 8],
    pub(crate) next_packet_id: u64,
    /// AES only; ChaCha packets go under the configured key.
    sealer: Option<AeadKey>,
    /// Of `current`; AES only.
    opener: Option<AeadKey>,
    /// The newest server session.
    current: Option<ServerSide>,
    /// The one before. Its few late packets pay for a key each.
    old: Option<ServerSide>,
}

#[cfg(feature = "aws-lc")]
const _: () = assert!(size_of::<ClientSession>() <= 1920);

/// One session of the server: a restarted one has a new id and counts its packets anew.
struct ServerSide {
    id: [u8; 8],
    window: PacketWindow,
    heard_unix_s: u64,
}

impl ClientSession {
    /// Starts a session; nothing goes out yet.
    pub fn new(key: &ClientKey, rng: &mut Rng) -> Self {
        if !key.method().is_2022() {
            return Self(None);
        }
        Self::with_id(key, sip022::draw_session_id(rng, [0; 8]))
    }

    /// Starts a 2022 session whose id is given.
    pub(crate) fn with_id(key: &ClientKey, id: [u8; 8]) -> Self {
        Self(Some(State::new(key, id)))
    }

    /// Seals a packet to `target` around the payload; returns where the packet lies.
    ///
    /// # Errors
    /// The packet ids are used up; the caller starts another session.
    ///
    /// # Panics
    /// When the caller kept too few bytes free around the payload.
    pub fn seal(
        &mut self,
        key: &ClientKey,
        buf: &mut [u8],
        payload: Range<usize>,
        target: &TargetBuf,
        env: &mut Env<'_>,
    ) -> Result<Range<usize>, SessionExhausted> {
        let address = target.as_bytes();
        let Some(state) = &mut self.0 else {
            return Ok(sip004::seal(key.method(), key.session(), address, buf, payload, env.rng));
        };
        let (ids, seal) = state.next_seal(key, env.rng)?;
        let mut head =
            BodyHead { direction: Direction::Request, unix_s: env.unix_s, padding_len: 0, address };
        if payload.is_empty() {
            head.pad(seal.outer_len(), payload.start, env.rng);
        }
        Ok(seal.seal(ids, &head, buf, &payload))
    }

    /// Opens a reply: authentication, type, time, session, padding, address, and the window at
    /// last.
    ///
    /// # Errors
    /// The packet is to be dropped; its content is lost and nothing of the session has changed.
    pub fn open(
        &mut self,
        key: &ClientKey,
        packet: &mut [u8],
        unix_s: u64,
    ) -> Result<OpenedReply, PacketReject> {
        let Some(state) = &mut self.0 else {
            let sip004::Opened { salt, plain } = sip004::open(key.method(), key.session(), packet)?;
            return reply(packet, plain, salt);
        };
        match key.packet_keys() {
            PacketKeys::Blocks(_) => state.open_aes(key, packet, unix_s),
            PacketKeys::Body(body_key) => state.open_chacha(body_key, packet, unix_s),
            PacketKeys::PerPacket => Err(PacketReject::ForeignSession),
        }
    }

    /// The id that this session goes by on the wire; none for SIP004 and none.
    pub fn id(&self) -> Option<[u8; 8]> {
        self.0.as_ref().map(|state| state.id)
    }
}

/// Which server session a packet is of.
enum Sender {
    Current,
    Old,
    New,
}

impl State {
    fn new(key: &ClientKey, id: [u8; 8]) -> Self {
        let sealer = match key.packet_keys() {
            PacketKeys::Blocks(_) => session_key(key.method(), key.session(), &id),
            PacketKeys::PerPacket | PacketKeys::Body(_) => None,
        };
        Self { id, next_packet_id: 0, sealer, opener: None, current: None, old: None }
    }

    /// The ids and keys of the next packet.
    pub(crate) fn next_seal<'a>(
        &'a mut self,
        key: &'a ClientKey,
        rng: &mut Rng,
    ) -> Result<(Ids, Seal<'a>), SessionExhausted> {
        let ids = Ids::new(self.id, sip022::take_packet_id(&mut self.next_packet_id)?);
        let seal = match (key.packet_keys(), &self.sealer) {
            (PacketKeys::Body(body_key), _) => {
                let mut nonce = [0; NONCE_LEN];
                rng.fill(&mut nonce);
                Seal::ChaCha { nonce, body_key }
            }
            (PacketKeys::Blocks(blocks), Some(body_key)) => Seal::Aes {
                header_key: &blocks[0],
                identity_keys: blocks,
                identities: key.identities(),
                body_key,
            },
            (PacketKeys::PerPacket, _) | (_, None) => {
                unreachable!("the key of another method")
            }
        };
        Ok((ids, seal))
    }

    fn open_aes(
        &mut self,
        key: &ClientKey,
        packet: &mut [u8],
        unix_s: u64,
    ) -> Result<OpenedReply, PacketReject> {
        let PacketKeys::Blocks(blocks) = key.packet_keys() else {
            return Err(PacketReject::ForeignSession);
        };
        if packet.len() < HEADER_LEN + sip022::RESPONSE_HEAD_LEN + TAG_LEN {
            return Err(PacketReject::TooShort);
        }
        let mut header = *packet.first_chunk().ok_or(PacketReject::TooShort)?;
        blocks.last().expect("a key has itself").decrypt_block(&mut header);
        let ids = Ids::from_bytes(header);
        let sender = self.sender(ids, unix_s)?;
        let fresh = match (&sender, &self.opener) {
            (Sender::Current, Some(_)) => None,
            _ => session_key(key.method(), key.session(), &ids.session()),
        };
        let opener = fresh.as_ref().or(self.opener.as_ref());
        let opener = opener.ok_or(PacketReject::ForeignSession)?;
        let plain = sip022::open_aes(packet, HEADER_LEN, &ids, opener)?;
        let opened = self.finish(packet, plain, &sender, ids, unix_s)?;
        if matches!(sender, Sender::New) {
            self.opener = fresh;
        }
        Ok(opened)
    }

    fn open_chacha(
        &mut self,
        body_key: &AeadKey,
        packet: &mut [u8],
        unix_s: u64,
    ) -> Result<OpenedReply, PacketReject> {
        if packet.len() < NONCE_LEN + HEADER_LEN + sip022::RESPONSE_HEAD_LEN + TAG_LEN {
            return Err(PacketReject::TooShort);
        }
        let (ids, plain) = sip022::open_chacha(packet, body_key)?;
        let sender = self.sender(ids, unix_s)?;
        self.finish(packet, plain, &sender, ids, unix_s)
    }

    /// Which server session the ids name, if their packet can be taken at all.
    fn sender(&self, ids: Ids, unix_s: u64) -> Result<Sender, PacketReject> {
        for (side, sender) in [(&self.current, Sender::Current), (&self.old, Sender::Old)] {
            if let Some(side) = side
                && side.id == ids.session()
            {
                let is_new = side.window.check(ids.packet());
                return if is_new { Ok(sender) } else { Err(PacketReject::Replayed) };
            }
        }
        match &self.old {
            // A clock that was set back must not keep the place taken.
            Some(old) if old.heard_unix_s.abs_diff(unix_s) < SERVER_SESSION_S => {
                Err(PacketReject::TooManySessions)
            }
            _ => Ok(Sender::New),
        }
    }

    /// The checks and changes after authentication.
    fn finish(
        &mut self,
        packet: &mut [u8],
        plain: Range<usize>,
        sender: &Sender,
        ids: Ids,
        unix_s: u64,
    ) -> Result<OpenedReply, PacketReject> {
        let direction = Direction::Response { client_session: self.id };
        let plain = sip022::read_body(packet, plain, direction, unix_s)?;
        let opened = reply(packet, plain, 0..0)?;
        let mut new = None;
        let side = match sender {
            Sender::Current => self.current.as_mut(),
            Sender::Old => self.old.as_mut(),
            Sender::New => Some(new.insert(ServerSide {
                id: ids.session(),
                window: PacketWindow::new(),
                heard_unix_s: unix_s,
            })),
        };
        let side = side.ok_or(PacketReject::ForeignSession)?;
        if !side.window.accept(ids.packet()) {
            return Err(PacketReject::Replayed);
        }
        side.heard_unix_s = unix_s;
        if new.is_some() {
            self.old = std::mem::replace(&mut self.current, new);
        }
        Ok(opened)
    }
}

/// Splits address and payload. Some servers send an IPv4-mapped address where IPv4 is meant; it
/// is put right in the packet as well, so that both forms of the source agree.
fn reply(
    packet: &mut [u8],
    plain: Range<usize>,
    salt: Range<usize>,
) -> Result<OpenedReply, PacketReject> {
    let (source, mut address, payload) = read_address(packet, plain)?;
    let canonical = source.as_bytes();
    if canonical.len() < address.len() {
        address.start = address.end - canonical.len();
        packet[address.clone()].copy_from_slice(canonical);
    }
    Ok(OpenedReply { source, address, payload, salt })
}
