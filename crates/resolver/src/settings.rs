//! Resolver settings: what resolv.conf says, within bounds, or an override.
//!
//! A file never stops start-up. Unknown keywords and options are skipped without a word, as libc
//! does, since distributions add their own (`options edns0 trust-ad foo:bar`); a line that is
//! understood but unusable is skipped and leaves a [`Warning`]. Known: `nameserver`, `domain`,
//! `search` (the last of these two wins), and the options `ndots`, `timeout`, `attempts`,
//! `rotate`, `use-vc` and `no-aaaa`. EDNS0 is always used, with a fallback, so `edns0` adds
//! nothing.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::time::Duration;

use crate::name::Name;

/// Nameservers that are used; libc stops at 3, container platforms write more.
pub const NAMESERVERS_MAX: usize = 8;
/// Search domains that are used; libc before 2.26 stopped at 6.
pub const SEARCH_MAX: usize = 16;
/// Warnings that are kept; the first ones tell what is wrong.
const WARNINGS_MAX: usize = 32;

// Bounds and defaults of glibc (resolv.h: RES_MAXNDOTS, RES_MAXRETRANS, RES_MAXRETRY).
const NDOTS_MAX: u8 = 15;
const TIMEOUT_S_MAX: u8 = 30;
const ATTEMPTS_MAX: u8 = 5;
const NDOTS_DEFAULT: u8 = 1;
const TIMEOUT_S_DEFAULT: u8 = 5;
const ATTEMPTS_DEFAULT: u8 = 2;
const DNS_PORT: u16 = 53;

/// Something in resolv.conf that was understood and cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Warning {
    /// Line number, from 1.
    pub line: u32,
    /// What is wrong.
    pub kind: WarningKind,
}

/// What is wrong with a line of resolv.conf; the line, or the rest of it, is skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WarningKind {
    /// A nameserver that is not an address.
    Nameserver(NameserverError),
    /// More than [`NAMESERVERS_MAX`] nameservers.
    TooManyNameservers,
    /// A search domain that is not a name.
    SearchDomain,
    /// More than [`SEARCH_MAX`] search domains.
    TooManySearchDomains,
    /// The value of a known option is not a number; the default stays.
    OptionValue,
}

/// Why text is not a nameserver address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NameserverError {
    /// Not an IP address, with or without a port.
    Address,
    /// Port 0.
    Port,
    /// The interface after `%` is not known here.
    Interface,
    /// No address, or more than [`NAMESERVERS_MAX`].
    Count,
}

impl NameserverError {
    /// A stable word for metrics and logs.
    pub const fn as_label(self) -> &'static str {
        match self {
            Self::Address => "nameserver_address",
            Self::Port => "nameserver_port",
            Self::Interface => "nameserver_interface",
            Self::Count => "nameserver_count",
        }
    }
}

impl fmt::Display for NameserverError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address => f.write_str("nameserver is not an IP address"),
            Self::Port => f.write_str("nameserver port is not between 1 and 65535"),
            Self::Interface => f.write_str("nameserver names an interface that is not known"),
            Self::Count => write!(f, "nameservers must be 1 to {NAMESERVERS_MAX}"),
        }
    }
}

impl std::error::Error for NameserverError {}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: ", self.line)?;
        match self.kind {
            WarningKind::Nameserver(error) => error.fmt(f),
            WarningKind::TooManyNameservers => {
                write!(f, "only the first {NAMESERVERS_MAX} nameservers are used")
            }
            WarningKind::SearchDomain => f.write_str("search domain is not a name"),
            WarningKind::TooManySearchDomains => {
                write!(f, "only the first {SEARCH_MAX} search domains are used")
            }
            WarningKind::OptionValue => f.write_str("option value is not a number"),
        }
    }
}

/// State of an option that is a word without a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Switch {
    On,
    Off,
}

/// Resolver settings; immutable, shared behind an `Arc`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// 1 to [`NAMESERVERS_MAX`].
    nameservers: Vec<SocketAddr>,
    search: Vec<Name>,
    ndots: u8,
    timeout_s: u8,
    attempts: u8,
    rotate: Switch,
    tcp_only: Switch,
    aaaa: Switch,
    warnings: Vec<Warning>,
}

impl Default for Settings {
    /// What libc does without a resolv.conf: ask 127.0.0.1.
    fn default() -> Self {
        Self {
            nameservers: vec![SocketAddr::from((Ipv4Addr::LOCALHOST, DNS_PORT))],
            search: Vec::new(),
            ndots: NDOTS_DEFAULT,
            timeout_s: TIMEOUT_S_DEFAULT,
            attempts: ATTEMPTS_DEFAULT,
            rotate: Switch::Off,
            tcp_only: Switch::Off,
            aaaa: Switch::On,
            warnings: Vec::new(),
        }
    }
}

impl Settings {
    /// Reads resolv.conf; numbers after `%` are interface indices, interface names are skipped
    /// with a warning.
    pub fn from_resolv_conf(bytes: &[u8]) -> Self {
        Self::from_resolv_conf_scoped(bytes, &mut |_| None)
    }

    /// Reads resolv.conf, asking `interface_index` for the index of each interface name.
    pub fn from_resolv_conf_scoped(
        bytes: &[u8],
        interface_index: &mut dyn FnMut(&str) -> Option<u32>,
    ) -> Self {
        let mut settings = Self { nameservers: Vec::new(), ..Self::default() };
        let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
        for (line, number) in bytes.split(|&b| b == b'\n').zip(1..) {
            settings.read_line(line, number, interface_index);
        }
        if settings.nameservers.is_empty() {
            settings.nameservers = Self::default().nameservers;
        }
        settings
    }

    /// The same settings asking other nameservers; an empty list changes nothing, and what is
    /// over [`NAMESERVERS_MAX`] is left out ([`parse_nameservers`] refuses both).
    #[must_use]
    pub fn with_nameservers(mut self, nameservers: &[SocketAddr]) -> Self {
        if !nameservers.is_empty() {
            self.nameservers.clear();
            let used = nameservers.iter().take(NAMESERVERS_MAX);
            self.nameservers.extend(used.map(|&server| reachable(server)));
        }
        self
    }

    /// Nameservers in order; never empty.
    pub fn nameservers(&self) -> &[SocketAddr] {
        &self.nameservers
    }

    /// Search domains in order.
    pub fn search(&self) -> &[Name] {
        &self.search
    }

    /// A name with at least this many dots is tried as it is first.
    pub const fn ndots(&self) -> u8 {
        self.ndots
    }

    /// Longest wait for one attempt.
    pub const fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout_s as u64)
    }

    /// Rounds over all nameservers.
    pub const fn attempts(&self) -> u8 {
        self.attempts
    }

    /// Whether each lookup starts at a random nameserver.
    pub const fn rotate(&self) -> bool {
        matches!(self.rotate, Switch::On)
    }

    /// Whether queries go over TCP from the start (`use-vc`).
    pub const fn tcp_only(&self) -> bool {
        matches!(self.tcp_only, Switch::On)
    }

    /// Whether IPv6 addresses are asked for (off with `no-aaaa`).
    pub const fn aaaa(&self) -> bool {
        matches!(self.aaaa, Switch::On)
    }

    /// What could not be used, in file order; at most 32 are kept.
    pub fn warnings(&self) -> &[Warning] {
        &self.warnings
    }

    fn read_line(
        &mut self,
        line: &[u8],
        number: u32,
        interface_index: &mut dyn FnMut(&str) -> Option<u32>,
    ) {
        // A comment also ends a line in the middle: no value has either sign at its start.
        let mut words = line
            .split(|byte| byte.is_ascii_whitespace())
            .filter(|word| !word.is_empty())
            .take_while(|word| !matches!(word[0], b'#' | b';'));
        match words.next() {
            Some(b"nameserver") => {
                let word = words.next().unwrap_or_default();
                self.add_nameserver(word, number, interface_index);
            }
            Some(b"domain") => self.replace_search(words.take(1), number),
            Some(b"search") => self.replace_search(words, number),
            Some(b"options") => words.for_each(|word| self.set_option(word, number)),
            _ => {}
        }
    }

    fn add_nameserver(
        &mut self,
        word: &[u8],
        line: u32,
        interface_index: &mut dyn FnMut(&str) -> Option<u32>,
    ) {
        let text = std::str::from_utf8(word).unwrap_or_default();
        match parse_nameserver(text, interface_index) {
            Err(error) => self.warn(line, WarningKind::Nameserver(error)),
            Ok(server) if self.nameservers.contains(&server) => {}
            Ok(_) if self.nameservers.len() == NAMESERVERS_MAX => {
                self.warn(line, WarningKind::TooManyNameservers);
            }
            Ok(server) => self.nameservers.push(server),
        }
    }

    fn replace_search<'a>(&mut self, words: impl Iterator<Item = &'a [u8]>, line: u32) {
        self.search.clear();
        for word in words {
            // The root, which systemd-resolved writes for "no search domain".
            if word == b"." {
                continue;
            }
            match Name::parse_bytes(word.strip_prefix(b".").unwrap_or(word)) {
                Err(_) => self.warn(line, WarningKind::SearchDomain),
                Ok(_) if self.search.len() == SEARCH_MAX => {
                    self.warn(line, WarningKind::TooManySearchDomains);
                    return;
                }
                Ok(name) => self.search.push(name),
            }
        }
    }

    fn set_option(&mut self, word: &[u8], line: u32) {
        let mut parts = word.splitn(2, |&byte| byte == b':');
        let key = parts.next().unwrap_or_default();
        let value = parts.next().unwrap_or_default();
        let (slot, min, max) = match key {
            b"ndots" => (&mut self.ndots, 0, NDOTS_MAX),
            b"timeout" => (&mut self.timeout_s, 1, TIMEOUT_S_MAX),
            b"attempts" => (&mut self.attempts, 1, ATTEMPTS_MAX),
            b"rotate" => return self.rotate = Switch::On,
            b"use-vc" => return self.tcp_only = Switch::On,
            b"no-aaaa" => return self.aaaa = Switch::Off,
            _ => return,
        };
        if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
            return self.warn(line, WarningKind::OptionValue);
        }
        let number = value.iter().fold(0u32, |sum, digit| {
            sum.saturating_mul(10).saturating_add(u32::from(digit - b'0'))
        });
        *slot = u8::try_from(number).unwrap_or(u8::MAX).clamp(min, max);
    }

    fn warn(&mut self, line: u32, kind: WarningKind) {
        if self.warnings.len() < WARNINGS_MAX {
            self.warnings.push(Warning { line, kind });
        }
    }
}

/// Reads a comma-separated list of nameservers, as the flag `-d` and the key `nameserver` have
/// it: `ip`, `ip:port`, `[ip]:port`.
///
/// # Errors
/// What is wrong with the first bad one, or [`NameserverError::Count`].
pub fn parse_nameservers(text: &str) -> Result<Vec<SocketAddr>, NameserverError> {
    let mut servers = Vec::new();
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        servers.push(parse_nameserver(part, &mut |_| None)?);
    }
    if servers.is_empty() || servers.len() > NAMESERVERS_MAX {
        return Err(NameserverError::Count);
    }
    Ok(servers)
}

fn parse_nameserver(
    text: &str,
    interface_index: &mut dyn FnMut(&str) -> Option<u32>,
) -> Result<SocketAddr, NameserverError> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, tail) = rest.split_once(']').ok_or(NameserverError::Address)?;
            match tail.strip_prefix(':') {
                Some(port) => (host, parse_port(port)?),
                None if tail.is_empty() => (host, DNS_PORT),
                None => return Err(NameserverError::Address),
            }
        }
        None => match text.split_once(':') {
            Some((host, port)) if !port.contains(':') => (host, parse_port(port)?),
            _ => (text, DNS_PORT),
        },
    };
    let Some((host, zone)) = host.split_once('%') else {
        let ip: IpAddr = host.parse().map_err(|_| NameserverError::Address)?;
        return Ok(reachable(SocketAddr::new(ip, port)));
    };
    let ip: Ipv6Addr = host.parse().map_err(|_| NameserverError::Address)?;
    let index = match zone.parse() {
        Ok(index) => Some(index),
        Err(_) => interface_index(zone),
    };
    let scope = index.filter(|&index| index != 0).ok_or(NameserverError::Interface)?;
    Ok(SocketAddrV6::new(ip, port, 0, scope).into())
}

fn parse_port(text: &str) -> Result<u16, NameserverError> {
    match text.parse() {
        Ok(0) | Err(_) => Err(NameserverError::Port),
        Ok(port) => Ok(port),
    }
}

/// The address that a query to `server` really goes to: connecting to the unspecified address
/// reaches this host, whose answers then come from its loopback address.
fn reachable(server: SocketAddr) -> SocketAddr {
    match server.ip() {
        ip if !ip.is_unspecified() => server,
        IpAddr::V4(_) => SocketAddr::from((Ipv4Addr::LOCALHOST, server.port())),
        IpAddr::V6(_) => SocketAddr::from((Ipv6Addr::LOCALHOST, server.port())),
    }
}

#[cfg(test)]
mod tests;
