//! What a lookup ends in.

use std::fmt;

use crate::addresses::AddrList;
use crate::name::NameError;

/// Why a lookup gave neither addresses nor a definite "no".
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Failure {
    /// The name cannot be asked for. The client's fault; never cached.
    Name(NameError),
    /// No nameserver answered in time.
    Timeout,
    /// The last nameserver could not be reached (refused, no route, connection lost).
    Unreachable,
    /// The nameserver reported a failure of its own or beyond it (SERVFAIL and kin).
    ServerFailure,
    /// The nameserver refuses to serve us.
    Refused,
    /// The nameserver's answer leads nowhere: a chain of aliases without end, or a referral.
    BadAnswer,
}

impl Failure {
    /// A stable word for metrics and logs.
    pub const fn as_label(self) -> &'static str {
        match self {
            Self::Name(error) => error.as_label(),
            Self::Timeout => "dns_timeout",
            Self::Unreachable => "dns_unreachable",
            Self::ServerFailure => "dns_server_failure",
            Self::Refused => "dns_refused",
            Self::BadAnswer => "dns_bad_answer",
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(error) => error.fmt(f),
            Self::Timeout => f.write_str("no nameserver answered in time"),
            Self::Unreachable => f.write_str("nameserver cannot be reached"),
            Self::ServerFailure => f.write_str("nameserver reported a failure"),
            Self::Refused => f.write_str("nameserver refused the query"),
            Self::BadAnswer => f.write_str("nameserver gave an answer that leads nowhere"),
        }
    }
}

impl std::error::Error for Failure {}

/// The end of a lookup.
#[allow(
    clippy::large_enum_variant,
    reason = "addresses are held inline: nothing here may allocate"
)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// At least one address, families interleaved with IPv6 first.
    Found {
        /// The addresses; never empty.
        addrs: AddrList,
        /// Seconds the answer may be kept.
        ttl_s: u32,
    },
    /// The name does not exist.
    NoSuchName {
        /// Seconds the answer may be kept; 0 when the server did not say.
        ttl_s: u32,
    },
    /// The name exists and has no address.
    NoAddress {
        /// Seconds the answer may be kept; 0 when the server did not say.
        ttl_s: u32,
    },
    /// Nothing definite is known.
    Failed(Failure),
}
