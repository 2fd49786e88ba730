//! Why a datagram is dropped. A datagram never gets an answer when it is: whoever sent it learns
//! nothing.

use std::fmt;

use adit_wire::AddressError;

/// Why a datagram is dropped; in each case nothing of the session has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PacketReject {
    /// Shorter than any packet of the method. A probe, or another protocol.
    TooShort,
    /// The identity header names no user of this port, or no next hop of this relay.
    UnknownUser,
    /// The AEAD tag does not match: wrong key, wrong method, or a probe.
    NotAuthentic,
    /// A packet of the other direction (the type byte it has): a reflected one.
    WrongType(u8),
    /// The peer's clock is too far off, or the packet was held back.
    ClockSkew {
        /// The peer's time minus ours, saturated.
        difference_s: i64,
    },
    /// The packet id was accepted before, or is too far behind: a replay or a late packet.
    Replayed,
    /// The padding is longer than the packet.
    BadPadding,
    /// The target of a request or the source of a reply is malformed.
    BadAddress(AddressError),
    /// The packet belongs to another session.
    ForeignSession,
    /// A reply of a third server session while both known ones may still be in use.
    TooManySessions,
}

impl PacketReject {
    /// A stable word for metrics and logs.
    pub const fn as_label(self) -> &'static str {
        match self {
            Self::TooShort => "too_short",
            Self::UnknownUser => "unknown_user",
            Self::NotAuthentic => "authentication",
            Self::WrongType(_) => "packet_type",
            Self::ClockSkew { .. } => "clock",
            Self::Replayed => "replay",
            Self::BadPadding => "padding",
            Self::BadAddress(_) => "address",
            Self::ForeignSession => "foreign_session",
            Self::TooManySessions => "server_sessions",
        }
    }
}

impl fmt::Display for PacketReject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooShort => f.write_str("too short for a packet of this method"),
            Self::UnknownUser => f.write_str("unknown user key"),
            Self::NotAuthentic => {
                f.write_str("authentication failed (wrong password or method, or a probe)")
            }
            Self::WrongType(t) => write!(f, "unexpected packet type {t}"),
            Self::ClockSkew { difference_s } => write!(
                f,
                "the peer's clock is off by {difference_s:+} s (30 s allowed; run NTP on both ends)"
            ),
            Self::Replayed => f.write_str("replayed or late packet"),
            Self::BadPadding => f.write_str("the padding does not fit"),
            Self::BadAddress(e) => e.fmt(f),
            Self::ForeignSession => f.write_str("the packet is for another session"),
            Self::TooManySessions => f.write_str("a third server session within a minute"),
        }
    }
}

impl std::error::Error for PacketReject {}

impl From<adit_crypto::OpenError> for PacketReject {
    fn from(_: adit_crypto::OpenError) -> Self {
        Self::NotAuthentic
    }
}

/// A session has used up its packet ids; the caller starts another one. At a million packets a
/// second that takes 580,000 years, but a wrapped id would repeat a nonce.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionExhausted;

impl SessionExhausted {
    /// A stable word for metrics and logs.
    pub const fn as_label(self) -> &'static str {
        "session_exhausted"
    }
}

impl fmt::Display for SessionExhausted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the session has used up its packet ids")
    }
}

impl std::error::Error for SessionExhausted {}
