//! The server's side of datagrams.

use std::net::SocketAddr;
use std::ops::Range;

use adit_crypto::{AeadKey, BlockKey, Rng, TAG_LEN};
use adit_wire::{Target, TargetBuf};

use super::sip022::{self, BodyHead, Direction, HEADER_LEN, Ids, NONCE_LEN, Seal};
use super::{
    PacketKeys, PacketReject, PacketWindow, SessionExhausted, SessionId, read_address, sip004,
};
use crate::seal::session_key;
use crate::{Accepted, Env, ServerKey};

/// What a packet claims before it is opened.
#[derive(Clone, Copy)]
pub struct PacketHead {
    /// The session it names, which the caller looks up; none for SIP004 and none, where the
    /// source address has to tell.
    pub session: Option<SessionId>,
    packet_id: u64,
}

impl PacketHead {
    fn ids(&self) -> Option<Ids> {
        self.session.map(|session| Ids::new(session.id, self.packet_id))
    }
}

/// A request packet that passed every check.
#[derive(Debug)]
pub struct OpenedPacket {
    /// Where the payload goes.
    pub target: TargetBuf,
    /// The payload, in the packet; may be empty.
    pub payload: Range<usize>,
    /// The salt, in the packet, for the caller's store of used ones; empty for other methods than
    /// SIP004.
    pub salt: Range<usize>,
}

impl ServerKey {
    /// Reads which session a packet names; the packet stays as it is.
    ///
    /// # Errors
    /// Too short for this method. Nothing is authenticated here.
    pub fn peek(&self, packet: &[u8]) -> Result<PacketHead, PacketReject> {
        let (ids, identity) = match self.packet_keys() {
            PacketKeys::PerPacket => {
                sip004::check_len(self.method(), packet.len())?;
                return Ok(PacketHead { session: None, packet_id: 0 });
            }
            PacketKeys::Blocks(blocks) => peek_aes(&blocks[0], packet, body_at(self))?,
            PacketKeys::Body(key) => {
                let least = NONCE_LEN + HEADER_LEN + sip022::REQUEST_HEAD_LEN + TAG_LEN;
                let ids =
                    if packet.len() < least { None } else { sip022::peek_chacha(packet, key) };
                (ids.ok_or(PacketReject::TooShort)?, [0; 16])
            }
        };
        let session = SessionId { id: ids.session(), identity };
        Ok(PacketHead { session: Some(session), packet_id: ids.packet() })
    }
}

/// Where the body of an AES packet starts.
fn body_at(key: &ServerKey) -> usize {
    if key.users().is_empty() { HEADER_LEN } else { HEADER_LEN + 16 }
}

fn peek_aes(
    key: &BlockKey,
    packet: &[u8],
    body_at: usize,
) -> Result<(Ids, [u8; 16]), PacketReject> {
    if packet.len() < body_at + sip022::REQUEST_HEAD_LEN + TAG_LEN {
        return Err(PacketReject::TooShort);
    }
    let (&header, rest) = packet.split_first_chunk().ok_or(PacketReject::TooShort)?;
    let mut header = header;
    key.decrypt_block(&mut header);
    let ids = Ids::from_bytes(header);
    let mut identity = [0; 16];
    if body_at > HEADER_LEN {
        identity = *rest.first_chunk().ok_or(PacketReject::TooShort)?;
        key.decrypt_block(&mut identity);
        ids.mask(&mut identity);
    }
    Ok((ids, identity))
}

/// What a server keeps of one client session.
///
/// A session of SIP004 or none has no state of its own; the caller keeps one for each source
/// address all the same, and need not tell the methods apart.
pub struct ServerSession(pub(crate) Option<State>);

/// What is left of a 2022 session that was given up.
///
/// Without it a client that is heard again would be answered by a server session that it does not
/// know, and a client refuses the third of those within a minute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remains {
    /// The highest packet id that was accepted.
    pub(crate) highest: Option<u64>,
    /// The server's own session id and next packet id.
    own: Option<([u8; 8], u64)>,
}

/// The state of a 2022 session.
pub(crate) struct State {
    id: SessionId,
    user: Option<u16>,
    window: PacketWindow,
    /// AES only; ChaCha packets go under the configured key.
    opener: Option<AeadKey>,
    /// As `opener`; made when the first reply goes out.
    sealer: Option<AeadKey>,
    pub(crate) own_id: [u8; 8],
    pub(crate) next_packet_id: u64,
}

// One for each client that sends datagrams; they must not grow unnoticed.
#[cfg(feature = "aws-lc")]
const _: () = assert!(size_of::<ServerSession>() <= 1664);

impl ServerSession {
    /// Opens the first packet of a session, and with it the session.
    ///
    /// `remains` is what [`ServerSession::remains`] told of an earlier session of this id that the
    /// caller gave up less than a minute ago: its packets stay refused, and it goes on towards the
    /// client as if it had never ended.
    ///
    /// # Errors
    /// The packet is to be dropped; its content is lost.
    pub fn open_first(
        key: &ServerKey,
        head: &PacketHead,
        packet: &mut [u8],
        remains: Option<Remains>,
        env: &mut Env<'_>,
    ) -> Result<(Self, OpenedPacket), PacketReject> {
        let Some(id) = head.session else {
            return Ok((Self(None), open_sip004(key, packet)?));
        };
        let user = if key.users().is_empty() {
            None
        } else {
            Some(key.user_by_identity(&id.identity).ok_or(PacketReject::UnknownUser)?)
        };
        let opener = match key.packet_keys() {
            PacketKeys::Blocks(_) => {
                session_key(key.method(), Accepted::session(key, user), &id.id)
            }
            PacketKeys::PerPacket | PacketKeys::Body(_) => None,
        };
        let highest = remains.and_then(|remains| remains.highest);
        let own = remains.and_then(|remains| remains.own);
        let (own_id, next_packet_id) =
            own.unwrap_or_else(|| (sip022::draw_session_id(env.rng, id.id), 0));
        let mut state = State {
            id,
            user,
            window: highest.map_or_else(PacketWindow::new, PacketWindow::resume_after),
            opener,
            sealer: None,
            own_id,
            next_packet_id,
        };
        let opened = state.open(key, head, packet, env.unix_s)?;
        Ok((Self(Some(state)), opened))
    }

    /// Opens a packet of this session: authentication, type, time, padding, address, and the
    /// window at last.
    ///
    /// # Errors
    /// The packet is to be dropped; its content is lost and nothing of the session has changed.
    pub fn open(
        &mut self,
        key: &ServerKey,
        head: &PacketHead,
        packet: &mut [u8],
        unix_s: u64,
    ) -> Result<OpenedPacket, PacketReject> {
        match &mut self.0 {
            Some(state) => state.open(key, head, packet, unix_s),
            None => open_sip004(key, packet),
        }
    }

    /// Seals a reply around the payload, which came from `source`; returns where the packet lies.
    ///
    /// # Errors
    /// The packet ids are used up; the caller gives the session up.
    ///
    /// # Panics
    /// When the caller kept too few bytes free around the payload.
    pub fn seal(
        &mut self,
        key: &ServerKey,
        buf: &mut [u8],
        payload: Range<usize>,
        source: SocketAddr,
        env: &mut Env<'_>,
    ) -> Result<Range<usize>, SessionExhausted> {
        // ATYP, an IPv6 address and a port at most.
        let mut address = [0; 1 + 16 + 2];
        let len = Target::from(source).encode(&mut address);
        let address = &address[..len];
        match &mut self.0 {
            Some(state) => state.seal(key, buf, payload, address, env),
            None => Ok(sip004::seal(key.method(), key.identity(), address, buf, payload, env.rng)),
        }
    }

    /// Moves the session to the keys of a reload; says whether its user is still there. When not,
    /// the caller gives the session up.
    pub fn move_to(&mut self, from: &ServerKey, to: &ServerKey) -> bool {
        if from.method() != to.method() || from.users().is_empty() != to.users().is_empty() {
            return false;
        }
        match &mut self.0 {
            Some(state) if state.user.is_some() => {
                state.user = to.user_by_identity(&state.id.identity);
                state.user.is_some()
            }
            _ => from.identity() == to.identity(),
        }
    }

    /// What the caller's table finds it by; none for SIP004 and none.
    pub fn id(&self) -> Option<SessionId> {
        self.0.as_ref().map(|state| state.id)
    }

    /// Index of the user among [`ServerKey::users`] on a port with several.
    pub fn user(&self) -> Option<u16> {
        self.0.as_ref().and_then(|state| state.user)
    }

    /// What the caller remembers for a minute when it gives the session up, see
    /// [`ServerSession::open_first`]; none for SIP004 and none.
    pub fn remains(&self) -> Option<Remains> {
        let state = self.0.as_ref()?;
        let own = (state.own_id, state.next_packet_id);
        Some(Remains {
            highest: state.window.highest(),
            // A session whose ids are used up begins anew.
            own: (state.next_packet_id < u64::MAX).then_some(own),
        })
    }
}

impl State {
    fn open(
        &mut self,
        key: &ServerKey,
        head: &PacketHead,
        packet: &mut [u8],
        unix_s: u64,
    ) -> Result<OpenedPacket, PacketReject> {
        let ids = head.ids().filter(|_| head.session == Some(self.id));
        let ids = ids.ok_or(PacketReject::ForeignSession)?;
        // Refuses replays before they cost an AEAD pass.
        if !self.window.check(ids.packet()) {
            return Err(PacketReject::Replayed);
        }
        let plain = match (key.packet_keys(), &self.opener) {
            (PacketKeys::Body(body_key), _) => {
                let (opened, plain) = sip022::open_chacha(packet, body_key)?;
                if opened != ids {
                    return Err(PacketReject::ForeignSession);
                }
                plain
            }
            (_, Some(opener)) => sip022::open_aes(packet, body_at(key), &ids, opener)?,
            // Of another method: the caller mixed up keys.
            (_, None) => return Err(PacketReject::ForeignSession),
        };
        let plain = sip022::read_body(packet, plain, Direction::Request, unix_s)?;
        let (target, _, payload) = read_address(packet, plain)?;
        if !self.window.accept(ids.packet()) {
            return Err(PacketReject::Replayed);
        }
        Ok(OpenedPacket { target, payload, salt: 0..0 })
    }

    fn seal(
        &mut self,
        key: &ServerKey,
        buf: &mut [u8],
        payload: Range<usize>,
        address: &[u8],
        env: &mut Env<'_>,
    ) -> Result<Range<usize>, SessionExhausted> {
        let client_session = self.id.id;
        let (ids, seal) = self.next_seal(key, env.rng)?;
        let mut head = BodyHead {
            direction: Direction::Response { client_session },
            unix_s: env.unix_s,
            padding_len: 0,
            address,
        };
        if payload.is_empty() {
            head.pad(seal.outer_len(), payload.start, env.rng);
        }
        Ok(seal.seal(ids, &head, buf, &payload))
    }

    /// The ids and keys of the next reply.
    pub(crate) fn next_seal<'a>(
        &'a mut self,
        key: &'a ServerKey,
        rng: &mut Rng,
    ) -> Result<(Ids, Seal<'a>), SessionExhausted> {
        let ids = Ids::new(self.own_id, sip022::take_packet_id(&mut self.next_packet_id)?);
        let seal = match key.packet_keys() {
            PacketKeys::Body(body_key) => {
                let mut nonce = [0; NONCE_LEN];
                rng.fill(&mut nonce);
                Seal::ChaCha { nonce, body_key }
            }
            PacketKeys::Blocks(blocks) => {
                if self.sealer.is_none() {
                    let psk = Accepted::session(key, self.user);
                    self.sealer = session_key(key.method(), psk, &self.own_id);
                }
                let own = self.user.map_or(0, |user| usize::from(user) + 1);
                Seal::Aes {
                    header_key: blocks.get(own).expect("sessions move to the keys of a reload"),
                    identity_keys: &[],
                    identities: &[],
                    body_key: self.sealer.as_ref().expect("made above"),
                }
            }
            PacketKeys::PerPacket => unreachable!("the key of another method"),
        };
        Ok((ids, seal))
    }
}

fn open_sip004(key: &ServerKey, packet: &mut [u8]) -> Result<OpenedPacket, PacketReject> {
    let sip004::Opened { salt, plain } = sip004::open(key.method(), key.identity(), packet)?;
    let (target, _, payload) = read_address(packet, plain)?;
    Ok(OpenedPacket { target, payload, salt })
}
