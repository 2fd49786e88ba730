//! Host patterns of rules, and hosts as clients write them.

use std::fmt;
use std::net::IpAddr;

use crate::address::reached;

/// Longest name that is compared (SOCKS5 has one byte for the length).
const NAME_LEN_MAX: usize = 255;

/// A name of a rule: one host, or a domain with everything below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPattern {
    /// Lower case, no dot at either end.
    name: Box<str>,
    tree: bool,
}

/// A text that is no [`HostPattern`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostError;

impl fmt::Display for HostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "not a host name; write www.example.com for this host, .example.com for the domain \
             and everything below it, and international names in their xn-- form",
        )
    }
}

impl std::error::Error for HostError {}

impl HostPattern {
    /// Reads `host.name` or `.domain.name`; case and one final dot do not matter.
    ///
    /// # Errors
    /// A label is not 1 to 63 of `a-z 0-9 -`, starts or ends with `-`, the name is longer than 253
    /// bytes, or it is an IPv4 address or a number, which no client's name can be.
    pub fn parse(text: &str) -> Result<Self, HostError> {
        let (tree, name) = match text.strip_prefix('.') {
            Some(name) => (true, name),
            None => (false, text),
        };
        let name = name.strip_suffix('.').unwrap_or(name);
        let is_label = |label: &str| {
            (1..=63).contains(&label.len())
                && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
                && !label.starts_with('-')
                && !label.ends_with('-')
        };
        let is_number =
            |label: &str| label.bytes().all(|byte| byte.is_ascii_digit()) && !label.is_empty();
        let ends_in_number = name.rsplit('.').next().is_some_and(is_number);
        if name.len() > 253 || !name.split('.').all(is_label) || ends_in_number {
            return Err(HostError);
        }
        Ok(Self { name: name.to_ascii_lowercase().into(), tree })
    }

    /// True if it stands for `name`, which is in lower case without a final dot.
    pub(crate) fn matches(&self, name: &str) -> bool {
        if self.tree {
            name.strip_suffix(&*self.name)
                .is_some_and(|front| front.is_empty() || front.ends_with('.'))
        } else {
            *self.name == *name
        }
    }

    /// True if it stands for every name that `other` stands for.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        if self.tree { self.matches(&other.name) } else { self == other }
    }

    /// True for `localhost` and what is below it (RFC 6761 §6.3): names that mean loopback.
    pub(crate) fn names_loopback(&self) -> bool {
        *self.name == *"localhost" || self.name.ends_with(".localhost")
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", if self.tree { "." } else { "" }, self.name)
    }
}

/// A name that a client asked for, made comparable without heap memory.
#[derive(Clone, Copy)]
pub struct Name {
    bytes: [u8; NAME_LEN_MAX],
    len: u8,
}

/// What a requested host turns out to be.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::large_enum_variant, reason = "there is no heap, and it lives for one request")]
pub enum Asked {
    /// An address, however it was written; the one that it reaches.
    Addr(IpAddr),
    /// A name that has to be looked up.
    Name(Name),
}

impl Asked {
    /// Reads a host as a client sent it. An address in the clothes of a name (`127.0.0.1`,
    /// `[::1]`, with a final dot or a zone) is the address it reaches.
    ///
    /// `None` for a text that is longer than 255 bytes or empty, which no client can send.
    pub fn read(host: &str) -> Option<Self> {
        let bare = host.trim_end_matches('.');
        if bare.is_empty() {
            return None;
        }
        if let Some(addr) = literal(bare) {
            return Some(Self::Addr(reached(addr)));
        }
        let mut bytes = [0; NAME_LEN_MAX];
        let lower = bytes.get_mut(..bare.len())?;
        lower.copy_from_slice(bare.as_bytes());
        lower.make_ascii_lowercase();
        Some(Self::Name(Name { bytes, len: u8::try_from(bare.len()).ok()? }))
    }
}

impl Name {
    /// The name in lower case, without dots at its end.
    pub fn as_str(&self) -> &str {
        let bytes = self.bytes.get(..self.len.into()).unwrap_or_default();
        // Lower-casing ASCII keeps UTF-8 valid.
        std::str::from_utf8(bytes).unwrap_or_default()
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_str().fmt(f)
    }
}

fn literal(text: &str) -> Option<IpAddr> {
    let bracketed = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
    let bare = bracketed.unwrap_or(text);
    if bare.contains(':') {
        let bare = bare.split_once('%').map_or(bare, |(addr, _zone)| addr);
        return bare.parse().ok().filter(IpAddr::is_ipv6);
    }
    // No name ends in a digit that is no address, see the URL standard; brackets are for IPv6.
    text.ends_with(|c: char| c.is_ascii_digit()).then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(text: &str) -> HostPattern {
        HostPattern::parse(text).unwrap()
    }

    #[test]
    fn reads_patterns() {
        for (text, shown) in
            [("Example.COM.", "example.com"), (".Example.com", ".example.com"), ("a-1", "a-1")]
        {
            assert_eq!(pattern(text).to_string(), shown);
        }
        let long = format!("{}.com", "a".repeat(64));
        for text in [
            "",
            ".",
            "..a",
            "a..b",
            "-a",
            "a-",
            "a_b",
            "ä",
            "*.a",
            "127.0.0.1",
            "7",
            "a.7",
            "::1",
            &long,
        ] {
            assert_eq!(HostPattern::parse(text), Err(HostError), "{text}");
        }
    }

    #[test]
    fn matches_hosts_and_domains() {
        for (rule, name, is) in [
            ("example.com", "example.com", true),
            ("example.com", "www.example.com", false),
            (".example.com", "example.com", true),
            (".example.com", "www.example.com", true),
            (".example.com", "notexample.com", false),
            (".com", "com", true),
        ] {
            assert_eq!(pattern(rule).matches(name), is, "{rule} {name}");
        }
        assert!(pattern(".a.com").covers(&pattern(".b.a.com")));
        assert!(pattern(".a.com").covers(&pattern("a.com")));
        assert!(!pattern("a.com").covers(&pattern(".a.com")));
    }

    #[test]
    fn tells_names_from_addresses() {
        for (text, addr) in [
            ("127.0.0.1", Some("127.0.0.1")),
            ("127.0.0.1.", Some("127.0.0.1")),
            ("0.0.0.0", Some("127.0.0.1")),
            ("[::1]", Some("::1")),
            ("::ffff:10.0.0.1", Some("10.0.0.1")),
            ("fe80::1%eth0", Some("fe80::1")),
            ("[127.0.0.1]", None),
            ("Example.com.", None),
            ("127.1", None),
        ] {
            let found = match Asked::read(text).unwrap() {
                Asked::Addr(addr) => Some(addr),
                Asked::Name(_) => None,
            };
            assert_eq!(found, addr.map(|addr| addr.parse().unwrap()), "{text}");
        }
        let Some(Asked::Name(name)) = Asked::read("WWW.Example.com.") else { panic!() };
        assert_eq!(name.as_str(), "www.example.com");
        assert!(Asked::read("").is_none() && Asked::read("...").is_none());
        assert!(Asked::read(&"a".repeat(256)).is_none() && Asked::read(&"a".repeat(255)).is_some());
    }
}
