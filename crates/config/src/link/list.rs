//! Lists of links: what providers hand out, and how a scheme says that a link is none of ours.
//!
//! A list is links one a line, or the base64 of that (either alphabet, padded or not, with or
//! without line breaks). A line that cannot be used does not spoil the others.

use zeroize::Zeroizing;

use super::{Link, LinkError, base64};

/// Links of one list taken at most.
const LINKS_MAX: usize = 1024;
/// Begins the address of a dynamic key, as Outline hands them out: `https://` under another name.
pub(crate) const SSCONF: &str = "ssconf://";

/// Schemes of other protocols that are found among links.
const FOREIGN: [&str; 16] = [
    "ssr",
    "vmess",
    "vless",
    "trojan",
    "hysteria",
    "hysteria2",
    "hy2",
    "tuic",
    "snell",
    "socks",
    "socks5",
    "wireguard",
    "wg",
    "naive+https",
    "juicity",
    "anytls",
];

/// What one line of a list came to.
#[derive(Debug)]
pub(crate) struct Entry {
    /// The line it stands in, from 1.
    pub(crate) line: usize,
    /// The server, or why there is none.
    pub(crate) link: Result<Link, LinkError>,
}

/// The lines of a list; `None` when the text is none.
pub(crate) fn entries(text: &str) -> Option<Vec<Entry>> {
    let text = plain(text)?;
    let lines = text.lines().map(str::trim).enumerate();
    let lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    let entry = |(at, line)| Entry { line: at + 1, link: Link::parse(line) };
    Some(lines.take(LINKS_MAX).map(entry).collect())
}

/// Why a text that does not begin with `ss://` is no link.
pub(super) fn foreign(text: &str) -> LinkError {
    let Some((scheme, _)) = text.split_once("://") else { return LinkError::Scheme };
    if ["http", "https", "ssconf"].iter().any(|known| scheme.eq_ignore_ascii_case(known)) {
        return LinkError::Subscription;
    }
    match FOREIGN.iter().find(|known| scheme.eq_ignore_ascii_case(known)) {
        Some(scheme) => LinkError::Foreign(scheme),
        None => LinkError::Scheme,
    }
}

/// The text with the links in it.
fn plain(text: &str) -> Option<Zeroizing<String>> {
    let has_links = |text: &str| {
        let mut lines = text.lines().map(str::trim);
        lines.any(|line| line.split_once("://").is_some_and(|(scheme, _)| is_scheme(scheme)))
    };
    if has_links(text) {
        return Some(Zeroizing::new(text.to_owned()));
    }
    let packed: Zeroizing<String> =
        Zeroizing::new(text.chars().filter(|c| !c.is_ascii_whitespace()).collect());
    let text = Zeroizing::new(base64(&packed)?);
    has_links(&text).then_some(text)
}

/// Whether this may stand in front of `://` (RFC 3986 §3.1).
fn is_scheme(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b))
}
