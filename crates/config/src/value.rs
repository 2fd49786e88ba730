//! Readers of single values, shared by options and configuration keys.
//!
//! A reader takes text (numbers in files may be in quotes) and answers with the value or with a
//! [`Complaint`], which says what to write and never repeats what was written.

use std::borrow::Cow;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::num::NonZeroU16;
use std::time::Duration;

use adit_shadowsocks::{KeyError, MethodError};

use crate::config::{Interception, Mode, Protocol, ReplayPolicy};
use crate::endpoint::{EndpointError, Host};
use crate::link::LinkError;
use crate::raw::{Bind, ManagerHost};

/// Name servers taken at most; more than a resolver would ever try.
pub(crate) const NAMESERVERS_MAX: usize = 16;
/// Longest interface name (`IFNAMSIZ` without its NUL).
const INTERFACE_LEN_MAX: usize = 15;
/// Longest path of a Unix socket (`sun_path` without its NUL).
const UNIX_PATH_LEN_MAX: usize = 107;
/// Largest keep-alive idle time (`MAX_TCP_KEEPIDLE` of Linux), seconds.
const KEEP_ALIVE_MAX_S: i64 = 32767;
/// Buffers below this are ignored by the C programs: less than one record fits.
pub(crate) const SOCKET_BUFFER_MIN: u32 = 16383;

/// What is wrong with a value and what to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Complaint(Cow<'static, str>);

impl fmt::Display for Complaint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<&'static str> for Complaint {
    fn from(text: &'static str) -> Self {
        Self(text.into())
    }
}

impl From<String> for Complaint {
    fn from(text: String) -> Self {
        Self(text.into())
    }
}

impl From<EndpointError> for Complaint {
    fn from(error: EndpointError) -> Self {
        error.to_string().into()
    }
}

impl From<MethodError> for Complaint {
    fn from(error: MethodError) -> Self {
        error.to_string().into()
    }
}

impl From<KeyError> for Complaint {
    fn from(error: KeyError) -> Self {
        error.to_string().into()
    }
}

impl From<LinkError> for Complaint {
    fn from(error: LinkError) -> Self {
        error.to_string().into()
    }
}

/// Where names are resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Nameservers {
    /// As `/etc/resolv.conf` says.
    System,
    /// These, in order.
    Listed(Vec<SocketAddr>),
}

pub(crate) fn mode(text: &str) -> Result<Mode, Complaint> {
    [Mode::TcpOnly, Mode::TcpAndUdp, Mode::UdpOnly]
        .into_iter()
        .find(|mode| mode.as_str() == text)
        .ok_or_else(|| "unknown mode; write tcp_only, tcp_and_udp or udp_only".into())
}

pub(crate) fn protocol(text: &str) -> Result<Protocol, Complaint> {
    match text {
        "socks" => Ok(Protocol::Socks),
        "http" => Ok(Protocol::Http),
        "tunnel" => Ok(Protocol::Tunnel),
        "redir" => Ok(Protocol::Redir),
        "dns" | "tun" | "fake-dns" => {
            Err("this protocol is not in this version; write socks, http, tunnel or redir".into())
        }
        _ => Err("unknown protocol; write socks, http, tunnel or redir".into()),
    }
}

/// How the firewall redirects connections. The other kinds of shadowsocks-rust are those of other
/// systems.
pub(crate) fn tcp_redir(text: &str) -> Result<Interception, Complaint> {
    match text {
        "redirect" => Ok(Interception::Redirect),
        "tproxy" => Ok(Interception::Tproxy),
        "pf" | "ipfw" => Err("this kind is of another system; write redirect or tproxy".into()),
        _ => Err("write redirect or tproxy".into()),
    }
}

/// How the firewall redirects datagrams, of which REDIRECT leaves no destination to be found.
pub(crate) fn udp_redir(text: &str) -> Result<Interception, Complaint> {
    match text {
        "tproxy" => Ok(Interception::Tproxy),
        "redirect" => Err("REDIRECT loses where a datagram was going; write tproxy".into()),
        "pf" | "ipfw" => Err("this kind is of another system; write tproxy".into()),
        _ => Err("write tproxy".into()),
    }
}

/// Whether a local address is the path of a Unix socket.
pub(crate) fn is_unix(text: &str) -> bool {
    text.starts_with("unix:") || text.contains('/')
}

/// What a local listener is bound to: a host, or a Unix socket by its path.
pub(crate) fn bind(text: &str) -> Result<Bind, Complaint> {
    if !is_unix(text) {
        return Ok(Bind::Host(Host::parse(text)?));
    }
    let path = text.strip_prefix("unix:").unwrap_or(text);
    let possible = path.starts_with('/') && !path.ends_with('/') && !path.contains('\0');
    if !possible || path.len() > UNIX_PATH_LEN_MAX {
        return Err(
            "write the whole path of the Unix socket, such as /run/ss-local.sock (at most \
                    107 bytes)"
                .into(),
        );
    }
    Ok(Bind::Unix(path.into()))
}

/// Where a manager is: a path with a slash in it or behind `unix:`, or a host, which may have a port.
pub(crate) fn manager_host(text: &str) -> Result<ManagerHost, Complaint> {
    if !is_unix(text) {
        let (host, port) = crate::endpoint::split(text)?;
        return Ok(ManagerHost::Host(host, port));
    }
    let path = text.strip_prefix("unix:").unwrap_or(text);
    let path = std::path::absolute(path).ok().filter(|_| !path.ends_with('/'));
    match path {
        Some(path) if path.as_os_str().len() <= UNIX_PATH_LEN_MAX && !text.contains('\0') => {
            Ok(ManagerHost::Unix(path))
        }
        _ => Err("write the path of a Unix socket, such as /run/ss-manager/manager.sock (at most \
                  107 bytes)"
            .into()),
    }
}

pub(crate) fn replay_policy(text: &str) -> Result<ReplayPolicy, Complaint> {
    match text {
        "default" => Ok(ReplayPolicy::Default),
        "ignore" => Ok(ReplayPolicy::Ignore),
        "detect" => {
            Err("a replay is never let through with a log line; write reject or ignore".into())
        }
        "reject" => Ok(ReplayPolicy::Reject),
        _ => Err("unknown policy; write default, ignore or reject".into()),
    }
}

/// A whole number in decimal.
pub(crate) fn whole(text: &str) -> Option<i64> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten()
}

pub(crate) fn port(number: Option<i64>) -> Result<u16, Complaint> {
    number
        .and_then(|n| u16::try_from(n).ok())
        .filter(|&port| port != 0)
        .ok_or_else(|| "the port must be a number from 1 to 65535".into())
}

/// A whole number from 1 to 2147483647.
pub(crate) fn positive(number: Option<i64>) -> Result<u32, Complaint> {
    number
        .filter(|n| (1..=i64::from(i32::MAX)).contains(n))
        .and_then(|n| u32::try_from(n).ok())
        .ok_or_else(|| "write a positive integer of at most 2147483647".into())
}

/// A whole number from 0 to 2147483647.
pub(crate) fn not_negative(number: Option<i64>) -> Result<u32, Complaint> {
    number
        .filter(|n| (0..=i64::from(i32::MAX)).contains(n))
        .and_then(|n| u32::try_from(n).ok())
        .ok_or_else(|| "write an integer from 0 to 2147483647".into())
}

pub(crate) fn keep_alive(number: Option<i64>) -> Result<Duration, Complaint> {
    number
        .filter(|n| (1..=KEEP_ALIVE_MAX_S).contains(n))
        .and_then(|n| u64::try_from(n).ok())
        .map(Duration::from_secs)
        .ok_or_else(|| "write a number of seconds from 1 to 32767".into())
}

pub(crate) fn workers(number: Option<i64>) -> Result<NonZeroU16, Complaint> {
    number
        .filter(|&n| n <= 1024)
        .and_then(|n| NonZeroU16::new(u16::try_from(n).ok()?))
        .ok_or_else(|| "write a number of threads from 1 to 1024".into())
}

pub(crate) fn fwmark(number: Option<i64>) -> Result<u32, Complaint> {
    number
        .and_then(|n| u32::try_from(n).ok())
        .ok_or_else(|| "write a number from 0 to 4294967295".into())
}

/// A mark on a command line: decimal, or hexadecimal after `0x` as in `ip rule`.
pub(crate) fn fwmark_text(text: &str) -> Result<u32, Complaint> {
    let hex = text.strip_prefix("0x").filter(|h| h.bytes().all(|b| b.is_ascii_hexdigit()));
    fwmark(hex.map_or_else(|| whole(text), |hex| i64::from_str_radix(hex, 16).ok()))
}

pub(crate) fn interface(text: &str) -> Result<Box<str>, Complaint> {
    let length = (1..=INTERFACE_LEN_MAX).contains(&text.len());
    if !length || text.contains(|c: char| c == '/' || c.is_whitespace() || c.is_control()) {
        return Err("write the name of an interface, such as eth0 (at most 15 bytes)".into());
    }
    Ok(text.into())
}

pub(crate) fn user(text: &str) -> Result<Box<str>, Complaint> {
    if text.is_empty() || text.len() > 256 || text.contains(|c: char| c.is_control() || c == ':') {
        return Err("write the name of a user of this system".into());
    }
    Ok(text.into())
}

pub(crate) fn ip(text: &str) -> Result<IpAddr, Complaint> {
    let bare = text.strip_prefix('[').and_then(|t| t.strip_suffix(']')).unwrap_or(text);
    let ip = bare.parse::<IpAddr>().map_err(|_| EndpointError::NotAddress)?;
    Ok(adit_wire::unmapped(ip))
}

/// A comma list of `ip` or `ip:port`.
pub(crate) fn nameservers(text: &str) -> Result<Vec<SocketAddr>, Complaint> {
    let servers: Vec<_> =
        text.split(',').map(|t| nameserver(t.trim())).collect::<Result<_, _>>()?;
    if servers.len() > NAMESERVERS_MAX {
        return Err("more than 16 name servers; write fewer".into());
    }
    Ok(servers)
}

fn nameserver(text: &str) -> Result<SocketAddr, Complaint> {
    let (host, port) = crate::endpoint::split(text)
        .map_err(|_| "write IP addresses of name servers, such as 9.9.9.9 or [2620:fe::fe]:53")?;
    let ip = host.ip().ok_or("write IP addresses of name servers; names are not possible")?;
    Ok(SocketAddr::new(ip, port.unwrap_or(53)))
}

/// The `dns` setting of the Rust programs, as far as it is plain DNS over UDP.
pub(crate) fn dns(text: &str) -> Result<Nameservers, Complaint> {
    let known = |v4: [[u8; 4]; 2], v6: [[u16; 8]; 2]| {
        let v4 = v4.into_iter().map(|ip| IpAddr::from(Ipv4Addr::from(ip)));
        let v6 = v6.into_iter().map(|ip| IpAddr::from(Ipv6Addr::from(ip)));
        Nameservers::Listed(v4.chain(v6).map(|ip| SocketAddr::new(ip, 53)).collect())
    };
    Ok(match text {
        "system" => Nameservers::System,
        "google" => known(
            [[8, 8, 8, 8], [8, 8, 4, 4]],
            [
                [0x2001, 0x4860, 0x4860, 0, 0, 0, 0, 0x8888],
                [0x2001, 0x4860, 0x4860, 0, 0, 0, 0, 0x8844],
            ],
        ),
        "cloudflare" => known(
            [[1, 1, 1, 1], [1, 0, 0, 1]],
            [
                [0x2606, 0x4700, 0x4700, 0, 0, 0, 0, 0x1111],
                [0x2606, 0x4700, 0x4700, 0, 0, 0, 0, 0x1001],
            ],
        ),
        "quad9" => known(
            [[9, 9, 9, 9], [149, 112, 112, 112]],
            [[0x2620, 0xfe, 0, 0, 0, 0, 0, 0xfe], [0x2620, 0xfe, 0, 0, 0, 0, 0, 9]],
        ),
        _ if text.ends_with("_tls") || text.ends_with("_https") => {
            return Err("encrypted DNS is not in this version; write \"system\", \"google\", \
                        \"cloudflare\", \"quad9\" or IP addresses"
                .into());
        }
        _ if text.starts_with("tcp://") || text.starts_with("unix://") => {
            return Err(
                "DNS over TCP or a Unix socket is not in this version; write the plain IP \
                        address of the name server"
                    .into(),
            );
        }
        // `udp://` stands in front of the whole list, as in the Rust programs, or of each item.
        _ => Nameservers::Listed(nameservers(&text.replace("udp://", ""))?),
    })
}

/// A DSCP class (RFC 2474, 2597, 3246): `EF`, `CS0`–`CS7`, `AF11`–`AF43` or the number.
pub(crate) fn dscp(text: &str) -> Result<u8, Complaint> {
    let upper = text.to_ascii_uppercase();
    let found = match upper.as_bytes() {
        b"EF" => Some(0x2e),
        [b'C', b'S', class @ b'0'..=b'7'] => Some((class - b'0') << 3),
        [b'A', b'F', class @ b'1'..=b'4', drop @ b'1'..=b'3'] => {
            Some(((class - b'0') << 3) | ((drop - b'0') << 1))
        }
        [b'0', b'X', digits @ ..] if digits.iter().all(u8::is_ascii_hexdigit) => {
            u8::from_str_radix(&upper[2..], 16).ok()
        }
        _ => whole(text).and_then(|n| u8::try_from(n).ok()),
    };
    found.filter(|&value| value < 64).ok_or_else(|| {
        "write a DSCP class: \"EF\", \"CS0\" to \"CS7\", \"AF11\" to \"AF43\" or \"0x00\" to \
         \"0x3F\""
            .into()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_dscp_classes() {
        for (text, value) in
            [("EF", 46), ("ef", 46), ("CS0", 0), ("CS7", 56), ("AF11", 10), ("AF43", 38)]
        {
            assert_eq!(dscp(text), Ok(value), "{text}");
        }
        assert_eq!(dscp("0x2E"), Ok(46));
        assert_eq!(dscp("46"), Ok(46));
        for text in ["", "CS8", "AF44", "AF50", "0x40", "0x", "64", "-1", "E", "0xgg", "EFEF"] {
            assert!(dscp(text).is_err(), "{text}");
        }
    }

    #[test]
    fn reads_name_servers() {
        let Ok(Nameservers::Listed(list)) = dns("udp://9.9.9.9:5353,[::1]:53,1.1.1.1") else {
            panic!("a list");
        };
        let list: Vec<_> = list.iter().map(ToString::to_string).collect();
        assert_eq!(list, ["9.9.9.9:5353", "[::1]:53", "1.1.1.1:53"]);
        assert_eq!(dns("system"), Ok(Nameservers::System));
        for text in ["google", "cloudflare", "quad9"] {
            assert!(matches!(dns(text), Ok(Nameservers::Listed(l)) if l.len() == 4), "{text}");
        }
        for text in [
            "",
            "cloudflare_tls",
            "google_https",
            "tcp://1.1.1.1",
            "unix:///x",
            "dns.example",
            "1.1.1.1,",
            "1.1.1.1:0",
            "1.1.1.1:99999",
        ] {
            assert!(dns(text).is_err(), "{text}");
        }
    }

    #[test]
    fn bounds_numbers() {
        assert!(positive(Some(1)).is_ok() && positive(Some(2_147_483_647)).is_ok());
        for number in [None, Some(0), Some(-1), Some(2_147_483_648)] {
            assert!(positive(number).unwrap_err().to_string().contains("positive integer"));
        }
        for number in [None, Some(0), Some(-1), Some(65536)] {
            assert!(port(number).unwrap_err().to_string().contains("1 to 65535"));
        }
        assert!(workers(Some(0)).is_err() && workers(Some(1025)).is_err());
        assert!(keep_alive(Some(0)).is_err() && keep_alive(Some(32768)).is_err());
        assert_eq!(fwmark_text("0xff"), Ok(255));
        assert_eq!(fwmark_text("255"), Ok(255));
        assert!(fwmark_text("0x").is_err() && fwmark_text("4294967296").is_err());
    }
}
