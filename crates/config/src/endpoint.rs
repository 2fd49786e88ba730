//! `host:port` as people write it: names, IPv4, IPv6 with and without brackets.
//!
//! The rules are those of the C programs. A text with two or more colons and no brackets is a
//! bare IPv6 address, never an address with a port: `2001:db8::1:8388` cannot be told apart, so
//! a port after IPv6 needs brackets. Brackets hold IPv6 and nothing else.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use adit_wire::Target;

/// A host: an address or a name still to be resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Host {
    /// An address.
    Ip(IpAddr),
    /// A name of 1 to 255 bytes that is not an address.
    Name(Box<str>),
}

/// A host and a port of 1 to 65535.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Host.
    pub host: Host,
    /// Port.
    pub port: u16,
}

/// Why a text is not a host, an endpoint or a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EndpointError {
    /// Not `host`, `host:port`, `IPv6` or `[IPv6]:port`.
    Malformed,
    /// A port that is not a number from 1 to 65535.
    Port,
    /// A path where a host was expected.
    UnixSocket,
    /// A host alone where a port is needed.
    NoPort,
    /// A name where only an address will do.
    NotAddress,
}

impl fmt::Display for EndpointError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Malformed => "write host, host:port, an IPv6 address or [IPv6]:port",
            Self::Port => "the port must be a number from 1 to 65535",
            Self::UnixSocket => {
                "a Unix socket is not possible here; write an IP address such as 127.0.0.1"
            }
            Self::NoPort => "write host:port; the port is missing",
            Self::NotAddress => "write an IP address; a name is not possible here",
        })
    }
}

impl std::error::Error for EndpointError {}

impl Host {
    /// Reads a host without a port; IPv6 may be in brackets.
    ///
    /// # Errors
    /// [`EndpointError::Malformed`] or [`EndpointError::UnixSocket`].
    pub fn parse(text: &str) -> Result<Self, EndpointError> {
        if text.starts_with(['/', '@']) {
            return Err(EndpointError::UnixSocket);
        }
        let parsed = adit_wire::Host::parse(text.as_bytes());
        match parsed.map_err(|_| EndpointError::Malformed)? {
            adit_wire::Host::Ip(ip) => Ok(Self::Ip(ip)),
            adit_wire::Host::Name(name) if name.contains(|c| "[]:/@?#%\\\"'".contains(c)) => {
                Err(EndpointError::Malformed)
            }
            adit_wire::Host::Name(name) => Ok(Self::Name(name.into())),
        }
    }

    /// The address, unless it is a name.
    pub const fn ip(&self) -> Option<IpAddr> {
        match self {
            Self::Ip(ip) => Some(*ip),
            Self::Name(_) => None,
        }
    }

    /// Joins a port.
    pub const fn with_port(self, port: u16) -> Endpoint {
        Endpoint { host: self, port }
    }
}

impl Endpoint {
    /// Reads a host with a port.
    ///
    /// # Errors
    /// Anything but `name:port`, `IPv4:port` and `[IPv6]:port`.
    pub fn parse(text: &str) -> Result<Self, EndpointError> {
        let (host, port) = split(text)?;
        Ok(host.with_port(port.ok_or(EndpointError::NoPort)?))
    }

    /// The address and port, unless the host is a name.
    pub fn socket_addr(&self) -> Option<SocketAddr> {
        Some(SocketAddr::new(self.host.ip()?, self.port))
    }

    /// The form that goes on the wire.
    pub fn target(&self) -> Target<'_> {
        let host = match &self.host {
            Host::Ip(ip) => adit_wire::Host::Ip(adit_wire::unmapped(*ip)),
            Host::Name(name) => adit_wire::Host::Name(name),
        };
        Target { host, port: self.port }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(ip) => ip.fmt(f),
            Self::Name(name) => f.write_str(name),
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.target().fmt(f)
    }
}

/// Reads a host with an optional port.
///
/// # Errors
/// As [`Endpoint::parse`], but a missing port is fine.
pub(crate) fn split(text: &str) -> Result<(Host, Option<u16>), EndpointError> {
    if let Some(rest) = text.strip_prefix('[') {
        let (inner, rest) = rest.split_once(']').ok_or(EndpointError::Malformed)?;
        let ip: Ipv6Addr = inner.parse().map_err(|_| EndpointError::Malformed)?;
        let host = Host::Ip(adit_wire::unmapped(ip.into()));
        return match rest.strip_prefix(':') {
            Some(text) => Ok((host, Some(port(text)?))),
            None if rest.is_empty() => Ok((host, None)),
            None => Err(EndpointError::Malformed),
        };
    }
    match text.split_once(':') {
        None => Ok((Host::parse(text)?, None)),
        Some((host, rest)) if !rest.contains(':') => Ok((Host::parse(host)?, Some(port(rest)?))),
        Some(_) => Ok((Host::parse(text)?, None)),
    }
}

/// Reads a port of 1 to 65535.
///
/// # Errors
/// [`EndpointError::Port`].
pub(crate) fn port(text: &str) -> Result<u16, EndpointError> {
    if !text.bytes().all(|b| b.is_ascii_digit()) {
        return Err(EndpointError::Port);
    }
    match text.parse() {
        Ok(0) | Err(_) => Err(EndpointError::Port),
        Ok(port) => Ok(port),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_every_written_form() {
        for (text, host, port) in [
            ("example.com", "example.com", None),
            ("example.com:8388", "example.com", Some(8388)),
            ("192.0.2.1", "192.0.2.1", None),
            ("192.0.2.1:1", "192.0.2.1", Some(1)),
            ("::", "::", None),
            ("[::]", "::", None),
            ("[::1]:65535", "::1", Some(65535)),
            ("2001:db8::1:8388", "2001:db8::1:8388", None),
            ("[::ffff:192.0.2.1]:80", "192.0.2.1", Some(80)),
        ] {
            let (found, found_port) = split(text).unwrap();
            assert_eq!((found.to_string().as_str(), found_port), (host, port), "{text}");
        }
    }

    #[test]
    fn rejects_what_the_c_programs_reject() {
        for text in [
            "",
            ":",
            "[::1",
            "[::1]:",
            "[::1]junk",
            "host:65536",
            "host:",
            ":8388",
            "host:0",
            "host:bad",
            "[host]:80",
            "host:+1",
            "a b",
            "a\tb:1",
            "::1::",
            "[]",
            "[]:1",
            "1:2:x",
            "/run/socket",
            "user@host:1",
            "host/path",
            "host:-1",
            "host: 1",
        ] {
            assert!(split(text).is_err(), "{text}");
        }
    }

    #[test]
    fn shows_ipv6_with_brackets() {
        let endpoint = Endpoint::parse("[2001:db8::1]:443").unwrap();
        assert_eq!(endpoint.to_string(), "[2001:db8::1]:443");
        assert_eq!(Endpoint::parse("host"), Err(EndpointError::NoPort));
    }
}
