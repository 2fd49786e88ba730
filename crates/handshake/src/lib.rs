//! Proxy-side handshakes of SOCKS4, SOCKS4a, SOCKS5 and HTTP, told apart on one port, without
//! sockets or clocks.
//!
//! [`Handshake::advance`] looks at the unread bytes of a client and says how many of them it used,
//! what to answer, and whether there is a request. It is pure: the same bytes give the same
//! consumed count, the same answer and the same request however they were split. Once a
//! request is there the engine dials and lets [`Protocol::success`] or [`Protocol::failure`] word
//! the answer. Everything after the consumed bytes is payload.
//!
//! The first byte chooses the protocol: `04`, `05`, or an ASCII letter for HTTP. Any other byte is
//! refused without an answer. A protocol that [`Policy`] leaves out is refused in its own words
//! (`00 5B`, `05 FF`, an HTTP 400), so that whoever points a browser at a SOCKS port reads why.
//!
//! Invariants:
//! - The crate is `no_std` and does not link `alloc`: no heap memory, by construction.
//! - A message is consumed whole or not at all, so a caller that can hold [`INPUT_LEN_MAX`] unread
//!   bytes never gets stuck.
//! - One call writes at most [`REPLY_LEN_MAX`] bytes of answer.
//! - Malformed input is refused at its first wrong byte, never with a panic.
//!
//! BIND is refused (REP 07), and so is UDP ASSOCIATE where [`Policy::udp`] is off. The datagrams of
//! an association have a header of their own, see [`parse_udp_header`]. The only SOCKS5 method is
//! `00`. Time limits are the caller's. Facts: RFC 1928, RFC 9110, RFC 9112, and the SOCKS4 and SOCKS4a memos.

#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

#[doc(hidden)]
pub mod fuzz;
mod http;
mod reply;
mod socks4;
mod socks5;
mod udp;

use core::fmt;

use adit_wire::TargetBuf;

pub use crate::http::body::{Body, BodyError, Chunked};
pub use crate::http::rewrite::{REWRITE_GROWTH_MAX, rewrite_head};
pub use crate::http::{HEAD_LEN_MAX, HttpFault};
use crate::reply::Out;
pub use crate::reply::{Failure, Protocol, REPLY_LEN_MAX};
pub use crate::udp::{
    UDP_HEADER_LEN_MAX, UDP_HEADER_PREFIX, UdpReject, encode_udp_header, parse_udp_header,
};

/// Most unread bytes a caller has to hold before [`Handshake::advance`] makes up its mind.
///
/// An HTTP head is the longest message; SOCKS messages end below 600 bytes.
pub const INPUT_LEN_MAX: usize = HEAD_LEN_MAX;

/// Which protocols a listener serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// SOCKS4 and SOCKS4a.
    pub socks4: bool,
    /// SOCKS5.
    pub socks5: bool,
    /// HTTP CONNECT and forwarding of plain HTTP requests.
    pub http: bool,
    /// The SOCKS5 command UDP ASSOCIATE.
    pub udp: bool,
}

/// What [`Handshake::advance`] made of the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "there is no heap, and a step lives for one match")]
pub enum Step {
    /// The handshake goes on when the client has sent more.
    More {
        /// Bytes at the start of the input that were used up.
        consumed: usize,
        /// Bytes at the start of `out` to send to the client.
        reply: usize,
    },
    /// The client has asked for something; the machine is finished.
    Request(Request),
    /// The client cannot be served: send the answer, then close. The machine is finished.
    ///
    /// Unread bytes make a kernel close with a reset, which can overtake the answer: shut the
    /// write side down and read the rest for a moment first.
    Refuse {
        /// Bytes at the start of the input up to and including the one that decided.
        consumed: usize,
        /// Bytes at the start of `out` to send to the client; 0 when there is nothing to say.
        reply: usize,
        /// What was wrong, for counters and logs.
        reason: Reason,
    },
}

/// A complete request of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Bytes at the start of the input that were used up; payload follows them.
    pub consumed: usize,
    /// Bytes at the start of `out` to send before anything else.
    pub reply: usize,
    /// What the client wants.
    pub command: Command,
    /// Where it wants it. For [`Command::UdpAssociate`] the address the client will send from,
    /// often `0.0.0.0:0`.
    pub target: TargetBuf,
    /// The protocol that words the answer.
    pub protocol: Protocol,
}

/// What a client wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// A byte stream to the target.
    Connect,
    /// One plain HTTP request, passed on to the target.
    Forward(Forward),
    /// A SOCKS5 UDP relay.
    UdpAssociate,
}

/// How to pass a plain HTTP request on.
///
/// Give [`rewrite_head`] the head, send what it wrote, then as many of the bytes that follow as
/// [`Body::take`] grants. The origin is told to close, so its answer is everything up to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forward {
    /// The head is the last `head_len` of the consumed bytes.
    pub head_len: usize,
    /// How far the request reaches behind its head.
    pub body: Body,
}

/// Why a client was refused; always the client's fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// The first byte starts no protocol known here.
    UnknownProtocol,
    /// The listener does not serve the protocol.
    ProtocolDisabled,
    /// A SOCKS5 client offers no method that is acceptable.
    NoMethod,
    /// A SOCKS5 request has another version than its greeting.
    Version,
    /// A SOCKS command that is not served, BIND included.
    Command(u8),
    /// UDP ASSOCIATE on a listener that does not relay UDP.
    UdpDisabled,
    /// A SOCKS5 address type other than 1, 3 and 4.
    AddressType(u8),
    /// A SOCKS host name that is empty, longer than 255 bytes, or no name.
    Name,
    /// A SOCKS4 user id longer than 255 bytes.
    UserId,
    /// A malformed or unsupported HTTP request.
    Http(HttpFault),
}

impl Reason {
    /// A stable word for metrics and logs.
    pub const fn as_label(self) -> &'static str {
        match self {
            Self::UnknownProtocol => "unknown_protocol",
            Self::ProtocolDisabled => "protocol_disabled",
            Self::NoMethod => "socks_no_method",
            Self::Version => "socks_version",
            Self::Command(_) => "socks_command",
            Self::UdpDisabled => "socks_udp_disabled",
            Self::AddressType(_) => "socks_address_type",
            Self::Name => "socks_name",
            Self::UserId => "socks_user_id",
            Self::Http(fault) => fault.as_label(),
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownProtocol => f.write_str("first byte is neither SOCKS nor HTTP"),
            Self::ProtocolDisabled => f.write_str("protocol is not served on this port"),
            Self::NoMethod => f.write_str("client offers no acceptable method"),
            Self::Version => f.write_str("request version differs from the greeting"),
            Self::Command(command) => write!(f, "command {command:#04x} is not served"),
            Self::UdpDisabled => f.write_str(
                "UDP ASSOCIATE refused: UDP is off (\"mode\": \"tcp_and_udp\" turns it on)",
            ),
            Self::AddressType(atyp) => write!(f, "unknown address type {atyp:#04x}"),
            Self::Name => f.write_str("host name is empty, too long or malformed"),
            Self::UserId => f.write_str("user id is longer than 255 bytes"),
            Self::Http(fault) => fault.fmt(f),
        }
    }
}

/// The state of one client's handshake.
#[derive(Clone, Copy, Debug)]
pub struct Handshake {
    policy: Policy,
    state: State,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// Up to the end of a SOCKS4 request, a SOCKS5 greeting, or the first byte of HTTP.
    Start,
    /// The SOCKS5 method is chosen.
    Socks5Request,
    /// Inside an HTTP head.
    Http(http::Scan),
    /// A request or a refusal was given.
    Finished,
}

/// A refusal on its way out; its answer is already in the output.
struct Refusal {
    consumed: usize,
    reason: Reason,
}

/// What one message was, with the bytes it took.
#[expect(clippy::large_enum_variant, reason = "there is no heap, and a turn lives for one match")]
enum Turn {
    /// A message that leads to another one.
    Next(usize, State),
    /// The client's request.
    Request(usize, Command, TargetBuf, Protocol),
}

impl Handshake {
    /// Creates the state for a client that has sent nothing yet.
    pub const fn new(policy: Policy) -> Self {
        Self { policy, state: State::Start }
    }

    /// Goes as far as `input` allows; `input` is every byte not yet consumed.
    ///
    /// Bytes are consumed in order, and those that are not must be at the start of the next
    /// call's `input`.
    ///
    /// # Panics
    /// When `out` is shorter than [`REPLY_LEN_MAX`], or after a [`Step::Request`] or
    /// [`Step::Refuse`].
    pub fn advance(&mut self, input: &[u8], out: &mut [u8]) -> Step {
        assert!(out.len() >= REPLY_LEN_MAX, "out holds at least REPLY_LEN_MAX bytes");
        let mut out = Out::new(out);
        let mut consumed = 0;
        loop {
            let rest = input.get(consumed..).unwrap_or_default();
            match self.turn(rest, &mut out) {
                Ok(None) => {
                    return Step::More { consumed, reply: out.len() };
                }
                Ok(Some(Turn::Next(len, state))) => {
                    consumed += len;
                    self.state = state;
                }
                Ok(Some(Turn::Request(len, command, target, protocol))) => {
                    self.state = State::Finished;
                    consumed += len;
                    let reply = out.len();
                    return Step::Request(Request { consumed, reply, command, target, protocol });
                }
                Err(Refusal { consumed: len, reason }) => {
                    self.state = State::Finished;
                    return Step::Refuse { consumed: consumed + len, reply: out.len(), reason };
                }
            }
        }
    }

    /// Reads one message at the start of `input`, or `None` while it is incomplete.
    fn turn(&mut self, input: &[u8], out: &mut Out<'_>) -> Result<Option<Turn>, Refusal> {
        match &mut self.state {
            State::Start => self.start(input, out),
            State::Socks5Request => socks5::request(self.policy.udp, input, out),
            State::Http(scan) => http::request(scan, input, out),
            State::Finished => panic!("a finished handshake is not advanced"),
        }
    }

    fn start(&self, input: &[u8], out: &mut Out<'_>) -> Result<Option<Turn>, Refusal> {
        let Some(&first) = input.first() else {
            return Ok(None);
        };
        let disabled = Err(Refusal { consumed: 1, reason: Reason::ProtocolDisabled });
        match first {
            socks4::VERSION if self.policy.socks4 => socks4::request(input, out),
            socks4::VERSION => {
                out.socks4(socks4::REJECTED, None);
                disabled
            }
            socks5::VERSION if self.policy.socks5 => socks5::greeting(input, out),
            socks5::VERSION => {
                out.push(&socks5::NO_METHOD);
                disabled
            }
            b'A'..=b'Z' | b'a'..=b'z' if self.policy.http => {
                Ok(Some(Turn::Next(0, State::Http(http::Scan::default()))))
            }
            b'A'..=b'Z' | b'a'..=b'z' => {
                out.http("400 Bad Request", "HTTP is not served on this port.");
                disabled
            }
            _ => Err(Refusal { consumed: 1, reason: Reason::UnknownProtocol }),
        }
    }
}

#[cfg(test)]
mod tests;
