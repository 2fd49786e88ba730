//! Names as rules see them: lower case, no final dot, and addresses told apart.

use std::net::{IpAddr, Ipv6Addr};

/// Longest name that is compared (SOCKS5 has one byte for the length).
pub(crate) const NAME_LEN_MAX: usize = 255;

/// What a requested host is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spelled<'a> {
    /// An address in text form.
    Addr(IpAddr),
    /// A name of printable ASCII without blanks or capitals.
    Name(&'a str),
    /// Something that no rule can name: not ASCII, a control character, empty, or too long.
    Other,
}

/// Reads `name`, using `buffer` for its lower-case form.
pub(crate) fn spell<'a>(name: &str, buffer: &'a mut [u8; NAME_LEN_MAX]) -> Spelled<'a> {
    let name = name.trim_end_matches('.');
    let Some(lower) = buffer.get_mut(..name.len()).filter(|_| !name.is_empty()) else {
        return Spelled::Other;
    };
    lower.copy_from_slice(name.as_bytes());
    lower.make_ascii_lowercase();
    if !lower.iter().all(u8::is_ascii_graphic) {
        return Spelled::Other;
    }
    let Ok(lower) = std::str::from_utf8(lower) else {
        return Spelled::Other;
    };
    match addr(lower) {
        Some(addr) => Spelled::Addr(addr),
        None => Spelled::Name(lower),
    }
}

/// Reads an address, also in brackets and with a zone (which no rule can name).
pub(crate) fn addr(text: &str) -> Option<IpAddr> {
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    if bare.contains(':') {
        let bare = bare.split_once('%').map_or(bare, |(addr, _)| addr);
        return bare.parse::<Ipv6Addr>().ok().map(IpAddr::V6);
    }
    // Nearly all names end in a letter, and no IPv4 address does.
    if bare.len() == text.len() && text.ends_with(|c: char| c.is_ascii_digit()) {
        return text.parse().ok();
    }
    None
}
