//! One line of a list, told apart by its form.

use std::net::IpAddr;

use crate::domains::Cover;
use crate::geo::Country;
use crate::mistake::MistakeKind;
use crate::{name, ranges};

/// Longest domain in text form (RFC 1035 §2.3.4: 255 bytes on the wire).
const DOMAIN_LEN_MAX: usize = 253;
const LABEL_LEN_MAX: usize = 63;

/// A rule as written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule<'a> {
    /// All addresses from one to another, as numbers.
    Addrs(u128, u128),
    /// A domain; still to be lower-cased.
    Domain(Cover, &'a str),
    /// All addresses of a country.
    Country(Country),
    /// Anything else.
    Expression(&'a str),
}

impl<'a> Rule<'a> {
    /// Reads a line without its comment and the blanks around it.
    pub(crate) fn parse(text: &'a str) -> Result<Self, MistakeKind> {
        if let Some(addrs) = addrs(text) {
            return addrs;
        }
        if let Some((word, rest)) = text.split_once(':') {
            if word.eq_ignore_ascii_case("geoip") {
                return Country::new(rest).map(Self::Country).ok_or(MistakeKind::BadCountry);
            }
            if word.eq_ignore_ascii_case("full") {
                return domain(Cover::Host, rest);
            }
            if word.eq_ignore_ascii_case("suffix") {
                return domain(Cover::Tree, rest);
            }
            // No host has a colon, so this cannot be an expression either: `geosite:cn`.
            if !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_alphabetic()) {
                return Err(MistakeKind::UnknownForm);
            }
        }
        if let Some(rest) = text.strip_prefix("||") {
            return domain(Cover::Tree, rest);
        }
        if text.starts_with("@@") {
            return Err(MistakeKind::UnknownForm);
        }
        // `|=` is seen beside `|`, and can only mean the same.
        if let Some(rest) = text.strip_prefix("|=").or_else(|| text.strip_prefix('|')) {
            return domain(Cover::Host, rest);
        }
        if text.starts_with('*') {
            return Err(MistakeKind::Wildcard);
        }
        Ok(Self::Expression(text))
    }
}

/// Reads an address or a prefix; none if the text is nothing like one.
fn addrs(text: &str) -> Option<Result<Rule<'static>, MistakeKind>> {
    let (text, len) = match text.split_once('/') {
        Some((text, len)) => (text, Some(len)),
        None => (text, None),
    };
    let Some(addr) = name::addr(text).filter(|_| !text.contains('%')) else {
        let digits = |byte: u8| byte.is_ascii_digit() || byte == b'.';
        let hex = |byte: u8| byte.is_ascii_hexdigit() || matches!(byte, b':' | b'.');
        let looks_like_v4 =
            text.bytes().all(digits) && text.starts_with(|c: char| c.is_ascii_digit());
        let looks_like_v6 = text.contains(':') && text.bytes().all(hex);
        let has_zone = name::addr(text).is_some();
        return (looks_like_v4 || looks_like_v6 || has_zone)
            .then_some(Err(MistakeKind::BadAddress));
    };
    let bits = if addr.is_ipv4() { 32 } else { 128 };
    let len = match len {
        None => bits,
        // `parse` alone would take a sign.
        Some(len) if !len.is_empty() && len.bytes().all(|byte| byte.is_ascii_digit()) => {
            match len.parse::<u32>() {
                Ok(len) if len <= bits => len,
                _ => return Some(Err(MistakeKind::BadPrefixLength)),
            }
        }
        Some(_) => return Some(Err(MistakeKind::BadPrefixLength)),
    };
    let host_mask = 1u128.checked_shl(bits - len).map_or(u128::MAX, |size| size - 1);
    let number = ranges::number(addr);
    Some(Ok(Rule::Addrs(number & !host_mask, number | host_mask)))
}

fn domain(cover: Cover, text: &str) -> Result<Rule<'_>, MistakeKind> {
    let text = text.strip_suffix('.').unwrap_or(text);
    // `||.example.com` is a common way to write `||example.com`.
    let text = match cover {
        Cover::Tree => text.strip_prefix('.').unwrap_or(text),
        Cover::Host | Cover::Below => text,
    };
    if let Some(addr) = name::addr(text) {
        let number = ranges::number(addr);
        return Ok(Rule::Addrs(number, number));
    }
    if is_domain(text) { Ok(Rule::Domain(cover, text)) } else { Err(MistakeKind::BadDomain) }
}

/// True for dot-separated labels that a resolver would send. Such a name is no address.
pub(crate) fn is_domain(text: &str) -> bool {
    let is_label = |label: &str| {
        (1..=LABEL_LEN_MAX).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
    };
    text.len() <= DOMAIN_LEN_MAX && text.split('.').all(is_label) && text.parse::<IpAddr>().is_err()
}
