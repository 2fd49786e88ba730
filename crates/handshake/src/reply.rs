//! Answers to clients, in the words of their protocol.
//!
//! The engine says how a dial ended ([`Failure`]) and this module picks the SOCKS code or the HTTP
//! status. HTTP failures are complete responses with a line of text that says what is wrong, so
//! that a browser shows it.

use core::fmt::{self, Write as _};
use core::net::SocketAddr;

use adit_wire::{Target, TargetBuf, unmapped};

use crate::{socks4, socks5};

/// Most bytes of answer that one call writes; every `out` must be at least this long.
///
/// HTTP failure responses are the longest, at about 200 bytes.
pub const REPLY_LEN_MAX: usize = 512;

/// The protocol a request came in by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// SOCKS4 or SOCKS4a.
    Socks4,
    /// SOCKS5.
    Socks5,
    /// HTTP CONNECT.
    HttpConnect,
    /// A plain HTTP request to pass on.
    HttpForward,
    /// The same with the method HEAD, whose answers have no body (RFC 9110 §9.3.2).
    HttpForwardHead,
}

/// Why a request could not be served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Anything the other kinds do not name; also a lack of local resources.
    General,
    /// A rule forbids the target.
    NotAllowed,
    /// No route to the target's network.
    NetworkUnreachable,
    /// No way to the target's host.
    HostUnreachable,
    /// The target's name has no address.
    NameNotFound,
    /// The target refused the connection.
    ConnectionRefused,
    /// The target did not answer in time.
    TimedOut,
    /// The command is not served.
    CommandUnsupported,
    /// The target's address family is not usable on this host.
    AddressFamily,
}

impl Protocol {
    /// A stable word for metrics and logs.
    pub const fn as_label(self) -> &'static str {
        match self {
            Self::Socks4 => "socks4",
            Self::Socks5 => "socks5",
            Self::HttpConnect => "http_connect",
            Self::HttpForward | Self::HttpForwardHead => "http_forward",
        }
    }

    /// Writes the answer to a request that is served, and returns its length.
    ///
    /// `bound` is the local address of the connection to the target, or of the UDP relay. A
    /// forwarded HTTP request is answered by its origin: nothing is written.
    ///
    /// # Panics
    /// When `out` is shorter than [`REPLY_LEN_MAX`].
    pub fn success(self, bound: SocketAddr, out: &mut [u8]) -> usize {
        assert!(out.len() >= REPLY_LEN_MAX, "out holds at least REPLY_LEN_MAX bytes");
        let mut out = Out::new(out);
        match self {
            Self::Socks4 => out.socks4(socks4::GRANTED, Some(bound)),
            Self::Socks5 => out.socks5(socks5::REP_SUCCEEDED, bound),
            Self::HttpConnect => out.push(b"HTTP/1.1 200 Connection established\r\n\r\n"),
            Self::HttpForward | Self::HttpForwardHead => {}
        }
        out.len()
    }

    /// Writes the answer to a request that failed, and returns its length; close after sending it.
    ///
    /// # Panics
    /// When `out` is shorter than [`REPLY_LEN_MAX`].
    pub fn failure(self, kind: Failure, out: &mut [u8]) -> usize {
        assert!(out.len() >= REPLY_LEN_MAX, "out holds at least REPLY_LEN_MAX bytes");
        let mut out = Out::new(out);
        match self {
            Self::Socks4 => out.socks4(socks4::REJECTED, None),
            Self::Socks5 => out.socks5(kind.socks5_rep(), socks5::UNBOUND),
            Self::HttpConnect | Self::HttpForward => {
                let (status, text) = kind.http();
                out.http(status, text);
            }
            Self::HttpForwardHead => {
                let (status, text) = kind.http();
                out.http_head(status, text);
            }
        }
        out.len()
    }
}

impl Failure {
    /// A stable word for metrics and logs.
    pub const fn as_label(self) -> &'static str {
        match self {
            Self::General => "general",
            Self::NotAllowed => "not_allowed",
            Self::NetworkUnreachable => "network_unreachable",
            Self::HostUnreachable => "host_unreachable",
            Self::NameNotFound => "name_not_found",
            Self::ConnectionRefused => "connection_refused",
            Self::TimedOut => "timed_out",
            Self::CommandUnsupported => "command_unsupported",
            Self::AddressFamily => "address_family",
        }
    }

    const fn socks5_rep(self) -> u8 {
        match self {
            Self::General => socks5::REP_GENERAL,
            Self::NotAllowed => socks5::REP_NOT_ALLOWED,
            Self::NetworkUnreachable => socks5::REP_NETWORK,
            // REP 06 is for an expired TTL, not for a time-out.
            Self::HostUnreachable | Self::NameNotFound | Self::TimedOut => socks5::REP_HOST,
            Self::ConnectionRefused => socks5::REP_REFUSED,
            Self::CommandUnsupported => socks5::REP_COMMAND,
            Self::AddressFamily => socks5::REP_ADDRESS_TYPE,
        }
    }

    const fn http(self) -> (&'static str, &'static str) {
        match self {
            Self::General => ("502 Bad Gateway", "The proxy could not reach the destination."),
            Self::NotAllowed => ("403 Forbidden", "The proxy does not allow this destination."),
            Self::NetworkUnreachable => {
                ("502 Bad Gateway", "The network of the destination is unreachable.")
            }
            Self::HostUnreachable => ("502 Bad Gateway", "The destination is unreachable."),
            Self::NameNotFound => {
                ("502 Bad Gateway", "The name of the destination has no address.")
            }
            Self::ConnectionRefused => {
                ("502 Bad Gateway", "The destination refused the connection.")
            }
            Self::TimedOut => ("504 Gateway Timeout", "The destination did not answer in time."),
            Self::CommandUnsupported => {
                ("501 Not Implemented", "The proxy does not serve this request.")
            }
            Self::AddressFamily => {
                ("502 Bad Gateway", "The proxy cannot use the address family of the destination.")
            }
        }
    }
}

/// A writer over the caller's output buffer.
pub(crate) struct Out<'a> {
    buf: &'a mut [u8],
    len: usize,
}

impl<'a> Out<'a> {
    /// Starts at the beginning of `buf`.
    pub(crate) const fn new(buf: &'a mut [u8]) -> Self {
        Self { buf, len: 0 }
    }

    /// Bytes written.
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// Appends `bytes`; the callers check the room they promise before they start to write.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        let end = self.len + bytes.len();
        self.buf
            .get_mut(self.len..end)
            .expect("the length limits of this crate keep every write inside the buffer")
            .copy_from_slice(bytes);
        self.len = end;
    }

    /// Appends a SOCKS4 reply; an IPv6 address has no form there and is sent as zero.
    pub(crate) fn socks4(&mut self, code: u8, bound: Option<SocketAddr>) {
        let (port, ip) = match bound.map(|addr| (addr.port(), unmapped(addr.ip()))) {
            Some((port, core::net::IpAddr::V4(ip))) => (port, ip.octets()),
            Some((port, core::net::IpAddr::V6(_))) => (port, [0; 4]),
            None => (0, [0; 4]),
        };
        self.push(&[0, code]);
        self.push(&port.to_be_bytes());
        self.push(&ip);
    }

    /// Appends a SOCKS5 reply.
    pub(crate) fn socks5(&mut self, rep: u8, bound: SocketAddr) {
        self.push(&[socks5::VERSION, rep, 0]);
        self.push(TargetBuf::from(Target::from(bound)).as_bytes());
    }

    /// Appends a complete HTTP response that ends the connection.
    pub(crate) fn http(&mut self, status: &str, text: &str) {
        self.http_head(status, text);
        self.push(text.as_bytes());
        self.push(b"\n");
    }

    /// Appends the head of what [`Out::http`] writes.
    fn http_head(&mut self, status: &str, text: &str) {
        let len = text.len() + 1;
        write!(
            self,
            "HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {len}\r\n\
             Connection: close\r\n\r\n"
        )
        .expect("write_str always succeeds");
    }
}

impl fmt::Write for Out<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.push(text.as_bytes());
        Ok(())
    }
}

#[cfg(test)]
pub(crate) mod tests;
