//! Target addresses in the SOCKS5 form, the one address format that every codec here shares.
//!
//! The wire form (RFC 1928 §5, Shadowsocks address header) is `ATYP | body | port`, big-endian:
//! `01` and 4 bytes, `03` and a length byte with a name, `04` and 16 bytes. Parsing never panics
//! and never allocates; a name that is an IP literal becomes that address, and an IPv4-mapped
//! IPv6 address becomes the IPv4 address it reaches, so that policy sees one form.

#![forbid(unsafe_code)]

#[doc(hidden)]
pub mod fuzz;

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// ATYP of an IPv4 address.
pub const ATYP_IPV4: u8 = 1;
/// ATYP of a domain name.
pub const ATYP_DOMAIN: u8 = 3;
/// ATYP of an IPv6 address.
pub const ATYP_IPV6: u8 = 4;
/// Longest encoded target: ATYP, length byte, 255 bytes of name, port.
pub const TARGET_LEN_MAX: usize = 1 + 1 + 255 + 2;

/// Why bytes are not a target address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AddressError {
    /// More bytes are needed; not a fault of the peer on a stream.
    Incomplete,
    /// ATYP is not 1, 3 or 4 (the removed one-time-auth flag 0x10 included). Peer's fault.
    AddressType(u8),
    /// A name of length zero. Peer's fault.
    EmptyName,
    /// A name that is not UTF-8 or has NUL, control characters or spaces. Peer's fault.
    NameBytes,
}

impl AddressError {
    /// A stable word for metrics and logs.
    pub const fn as_label(self) -> &'static str {
        match self {
            Self::Incomplete => "address_incomplete",
            Self::AddressType(_) => "address_type",
            Self::EmptyName => "address_empty_name",
            Self::NameBytes => "address_name_bytes",
        }
    }
}

impl fmt::Display for AddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Incomplete => f.write_str("address is cut short"),
            Self::AddressType(t) => write!(f, "unknown address type {t:#04x}"),
            Self::EmptyName => f.write_str("address has an empty name"),
            Self::NameBytes => f.write_str("address name has bytes that no name has"),
        }
    }
}

impl std::error::Error for AddressError {}

/// The host part of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Host<'a> {
    /// An address; never IPv4-mapped IPv6 when it came out of [`Target::parse`].
    Ip(IpAddr),
    /// A name of 1 to 255 bytes that is not an IP literal.
    Name(&'a str),
}

/// Where a flow wants to go: a borrowed view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target<'a> {
    /// Host part.
    pub host: Host<'a>,
    /// Port in host order; 0 is legal on the wire and fails at connect.
    pub port: u16,
}

impl<'a> Target<'a> {
    /// Parses a target at the start of `bytes`; returns it and the number of bytes it took.
    ///
    /// # Errors
    /// [`AddressError::Incomplete`] when more bytes may complete it, else what is wrong with it.
    pub fn parse(bytes: &'a [u8]) -> Result<(Self, usize), AddressError> {
        let (&atyp, rest) = bytes.split_first().ok_or(AddressError::Incomplete)?;
        match atyp {
            ATYP_IPV4 => {
                let (octets, rest) =
                    rest.split_first_chunk::<4>().ok_or(AddressError::Incomplete)?;
                let port = port(rest)?;
                Ok((Self { host: Host::Ip(Ipv4Addr::from(*octets).into()), port }, 7))
            }
            ATYP_IPV6 => {
                let (octets, rest) =
                    rest.split_first_chunk::<16>().ok_or(AddressError::Incomplete)?;
                let port = port(rest)?;
                let ip = Ipv6Addr::from(*octets);
                Ok((Self { host: Host::Ip(unmapped(ip.into())), port }, 19))
            }
            ATYP_DOMAIN => {
                let (&len, rest) = rest.split_first().ok_or(AddressError::Incomplete)?;
                if len == 0 {
                    return Err(AddressError::EmptyName);
                }
                let (name, rest) =
                    rest.split_at_checked(len.into()).ok_or(AddressError::Incomplete)?;
                let port = port(rest)?;
                Ok((Self { host: Host::parse(name)?, port }, 4 + usize::from(len)))
            }
            other => Err(AddressError::AddressType(other)),
        }
    }

    /// Number of bytes [`Target::encode`] writes.
    pub const fn encoded_len(&self) -> usize {
        match self.host {
            Host::Ip(IpAddr::V4(_)) => 7,
            Host::Ip(IpAddr::V6(_)) => 19,
            Host::Name(name) => 4 + name.len(),
        }
    }

    /// Writes the wire form to the start of `out` and returns its length.
    ///
    /// # Panics
    /// When `out` is shorter than [`Target::encoded_len`], or a name is longer than 255 bytes.
    pub fn encode(&self, out: &mut [u8]) -> usize {
        let len = self.encoded_len();
        let (body, port) = out[..len].split_at_mut(len - 2);
        port.copy_from_slice(&self.port.to_be_bytes());
        match self.host {
            Host::Ip(IpAddr::V4(ip)) => {
                body[0] = ATYP_IPV4;
                body[1..].copy_from_slice(&ip.octets());
            }
            Host::Ip(IpAddr::V6(ip)) => {
                body[0] = ATYP_IPV6;
                body[1..].copy_from_slice(&ip.octets());
            }
            Host::Name(name) => {
                body[0] = ATYP_DOMAIN;
                body[1] = u8::try_from(name.len()).expect("a name has at most 255 bytes");
                body[2..].copy_from_slice(name.as_bytes());
            }
        }
        len
    }
}

impl fmt::Display for Target<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host {
            Host::Ip(ip) => SocketAddr::new(ip, self.port).fmt(f),
            Host::Name(name) => write!(f, "{name}:{}", self.port),
        }
    }
}

impl From<SocketAddr> for Target<'_> {
    fn from(addr: SocketAddr) -> Self {
        Self { host: Host::Ip(unmapped(addr.ip())), port: addr.port() }
    }
}

impl<'a> Host<'a> {
    /// Reads a host given as text: an IP literal (also in brackets) or a name.
    ///
    /// # Errors
    /// [`AddressError::EmptyName`] or [`AddressError::NameBytes`].
    pub fn parse(name: &'a [u8]) -> Result<Self, AddressError> {
        if name.is_empty() {
            return Err(AddressError::EmptyName);
        }
        if name.len() > 255 {
            return Err(AddressError::NameBytes);
        }
        let text = std::str::from_utf8(name).map_err(|_| AddressError::NameBytes)?;
        if let Ok(ip) = text.parse::<IpAddr>() {
            return Ok(Self::Ip(unmapped(ip)));
        }
        if let Some(inner) = text.strip_prefix('[').and_then(|t| t.strip_suffix(']')) {
            let ip = inner.parse::<Ipv6Addr>().map_err(|_| AddressError::NameBytes)?;
            return Ok(Self::Ip(unmapped(ip.into())));
        }
        if text.chars().any(|c| c.is_control() || c.is_whitespace()) {
            return Err(AddressError::NameBytes);
        }
        Ok(Self::Name(text))
    }
}

/// An owned target in its wire form, without heap memory.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct TargetBuf {
    len: u16,
    bytes: [u8; TARGET_LEN_MAX],
}

impl TargetBuf {
    /// The wire form.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len.into()]
    }

    /// The parsed view.
    pub fn target(&self) -> Target<'_> {
        Target::parse(self.as_bytes()).expect("a TargetBuf only holds encoded targets").0
    }
}

impl From<Target<'_>> for TargetBuf {
    fn from(target: Target<'_>) -> Self {
        let mut bytes = [0; TARGET_LEN_MAX];
        let len = target.encode(&mut bytes);
        Self { len: u16::try_from(len).expect("TARGET_LEN_MAX fits u16"), bytes }
    }
}

impl fmt::Debug for TargetBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.target().fmt(f)
    }
}

/// The address an IPv4-mapped IPv6 address reaches; any other address unchanged.
pub const fn unmapped(ip: IpAddr) -> IpAddr {
    ip.to_canonical()
}

fn port(rest: &[u8]) -> Result<u16, AddressError> {
    let bytes = rest.first_chunk::<2>().ok_or(AddressError::Incomplete)?;
    Ok(u16::from_be_bytes(*bytes))
}

#[cfg(test)]
mod tests;
