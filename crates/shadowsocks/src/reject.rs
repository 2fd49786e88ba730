//! Why a stream is refused, and how to behave towards the peer then.

use std::fmt;

use adit_wire::AddressError;

use crate::Method;

/// Why the bytes of a peer are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reject {
    /// An AEAD tag does not match: wrong key, wrong method, or a probe.
    Authentication,
    /// The identity header names no user of this port.
    UnknownUser,
    /// The salt was seen before: a replay.
    Replay,
    /// The replay store of this minute is full; new streams are refused until it turns over.
    ReplayFull,
    /// The peer's clock is off by this many seconds (its time minus ours, saturated).
    Clock(i64),
    /// The stream type byte is not the one this side expects.
    StreamType(u8),
    /// The response belongs to another request.
    ForeignRequestSalt,
    /// A 2022 request whose first segment lacks the fixed header; holds the bytes it had.
    ShortFirstSegment {
        /// Bytes the first segment must have.
        expected: usize,
        /// Bytes it had.
        actual: usize,
    },
    /// A 2022 request with neither payload nor padding.
    NoPadding,
    /// A header that is longer or shorter than its own lengths say.
    HeaderLength,
    /// A record length with reserved bits set.
    RecordLength(u16),
    /// Too many empty records in a row.
    EmptyRecords,
    /// The target address is malformed.
    Address(AddressError),
}

/// What the engine does with the connection of a rejected peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reaction {
    /// Read and discard until the peer closes or the handshake deadline passes: SIP004 has no
    /// way to answer that does not tell how many bytes were looked at.
    Drain,
    /// Reset at once, whatever was read (SIP022 strategy a): the same for every failure.
    Reset,
}

impl Reject {
    /// The reaction that tells a prober nothing, for this method.
    pub const fn reaction(self, method: Method) -> Reaction {
        if method.is_2022() { Reaction::Reset } else { Reaction::Drain }
    }

    /// A stable word for metrics and logs.
    pub const fn as_label(self) -> &'static str {
        match self {
            Self::Authentication => "authentication",
            Self::UnknownUser => "unknown_user",
            Self::Replay => "replay",
            Self::ReplayFull => "replay_full",
            Self::Clock(_) => "clock",
            Self::StreamType(_) => "stream_type",
            Self::ForeignRequestSalt => "foreign_request_salt",
            Self::ShortFirstSegment { .. } => "short_first_segment",
            Self::NoPadding => "no_padding",
            Self::HeaderLength => "header_length",
            Self::RecordLength(_) => "record_length",
            Self::EmptyRecords => "empty_records",
            Self::Address(_) => "address",
        }
    }
}

impl fmt::Display for Reject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Authentication => {
                f.write_str("authentication failed (wrong password or method, or a probe)")
            }
            Self::UnknownUser => f.write_str("unknown user key"),
            Self::Replay => f.write_str("replayed salt"),
            Self::ReplayFull => f.write_str("replay store is full"),
            Self::Clock(diff) => {
                write!(
                    f,
                    "the peer's clock is off by {diff:+} s (30 s allowed; run NTP on both ends)"
                )
            }
            Self::StreamType(t) => write!(f, "unexpected stream type {t}"),
            Self::ForeignRequestSalt => f.write_str("the response is for another request"),
            Self::ShortFirstSegment { expected, actual } => write!(
                f,
                "the first segment has {actual} bytes of {expected} (a probe, or a plugin or path that splits it)"
            ),
            Self::NoPadding => f.write_str("neither payload nor padding"),
            Self::HeaderLength => f.write_str("header lengths do not fit"),
            Self::RecordLength(len) => write!(f, "record length {len:#06x} out of range"),
            Self::EmptyRecords => f.write_str("too many empty records"),
            Self::Address(e) => e.fmt(f),
        }
    }
}

impl std::error::Error for Reject {}

impl From<adit_crypto::OpenError> for Reject {
    fn from(_: adit_crypto::OpenError) -> Self {
        Self::Authentication
    }
}
