//! `ss://` links: one server in one line (SIP002 and the older form).
//!
//! Every form met in the wild is read: userinfo in either base64 alphabet with or without padding
//! (also `%3D`), percent-encoded userinfo, several keys joined by `:`, IPv6 hosts, and the old
//! form that is base64 as a whole and splits at the last `@`. One form is written: base64url
//! without padding, or percent-encoding for the 2022 methods, as SIP002 asks.
//!
//! A link is not checked against the methods that Adit has, and errors quote none of it.

mod escape;
mod list;

use std::fmt;
use std::net::IpAddr;

use data_encoding::{BASE64_NOPAD, BASE64URL_NOPAD};

use crate::endpoint::{self, Endpoint, Host};
use crate::json::quote;
use crate::secret::Password;

pub(crate) use list::{Entry, SSCONF, entries};

/// Longest link read, in bytes; a QR code holds less than half of it.
pub const LINK_LEN_MAX: usize = 8192;

/// The port of a link that names none, as in the Rust programs.
const PORT_DEFAULT: u16 = 8388;

/// A plugin named by a link.
#[derive(Clone, PartialEq, Eq)]
pub struct LinkPlugin {
    /// Program name.
    pub name: String,
    /// Its options, verbatim; may hold secrets.
    pub options: Option<String>,
}

/// One server of a link.
#[derive(Clone, PartialEq, Eq)]
pub struct Link {
    /// Cipher name, not checked.
    pub method: String,
    /// Password, or keys joined by `:`.
    pub password: Password,
    /// The server.
    pub endpoint: Endpoint,
    /// Plugin, if any.
    pub plugin: Option<LinkPlugin>,
    /// What people call this server.
    pub tag: Option<String>,
}

/// Why a text is not a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LinkError {
    /// Longer than [`LINK_LEN_MAX`].
    TooLong,
    /// Does not start with `ss://`.
    Scheme,
    /// A link of another protocol, which this scheme belongs to.
    Foreign(&'static str),
    /// The address of a subscription.
    Subscription,
    /// A `%` without two hexadecimal digits, or bytes that are not UTF-8.
    Percent,
    /// The part that must be base64 is not.
    Base64,
    /// No `:` between method and password.
    NoPassword,
    /// No `@` before the server.
    NoServer,
    /// The method name is empty or has characters that no name has.
    Method,
    /// The server is not `host:port`.
    Server,
    /// An IPv6 address has no brackets, so that its end may be a port.
    Bare,
    /// The plugin has no name.
    Plugin,
}

impl fmt::Display for LinkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Self::Foreign(scheme) = self {
            return write!(
                f,
                "{scheme}:// links are of another protocol; ask for a Shadowsocks link, ss://"
            );
        }
        f.write_str(match self {
            Self::TooLong => "the link is longer than 8192 bytes",
            Self::Scheme | Self::Foreign(_) => "a link starts with ss://",
            Self::Subscription => {
                "this is the address of a subscription, no link; write it with \
                 --online-config-url, or as \"online_config\": {\"config_url\"} in a file"
            }
            Self::Percent => "the link has a malformed percent escape; a plain % is written %25",
            Self::Base64 => "the part after ss:// is neither base64 nor method:password",
            Self::NoPassword => "the link has no ':' between method and password",
            Self::NoServer => "the link has no '@' before the server",
            Self::Method => "the link has no valid method name",
            Self::Server => {
                "invalid server endpoint in the link; write host:port after the '@', and in the \
                 password %23 for #, %2F for / and %3F for ?"
            }
            Self::Bare => "an IPv6 address in a link stands in brackets: write [2001:db8::1]:8388",
            Self::Plugin => "the plugin in the link has no name",
        })
    }
}

impl std::error::Error for LinkError {}

impl Link {
    /// Reads a link.
    ///
    /// # Errors
    /// What is wrong with it, without any of its text.
    pub fn parse(text: &str) -> Result<Self, LinkError> {
        if text.len() > LINK_LEN_MAX {
            return Err(LinkError::TooLong);
        }
        let text = text.trim();
        let body = match text.split_at_checked(5) {
            Some((scheme, body)) if scheme.eq_ignore_ascii_case("ss://") => body,
            _ => return Err(list::foreign(text)),
        };
        let (body, tag) = match body.split_once('#') {
            Some((body, tag)) => (body, Some(escape::decode(tag)?)),
            None => (body, None),
        };
        let tag = tag.filter(|tag| !tag.is_empty());
        // An '@' in the query says nothing about the form.
        let authority = body.split('?').next().unwrap_or(body);
        if authority.contains('@') { Self::modern(body, tag) } else { Self::legacy(body, tag) }
    }

    /// Writes the SIP002 form.
    pub fn encode(&self) -> String {
        let mut out = String::from("ss://");
        if self.method.starts_with("2022-") {
            out.push_str(&escape::encode(&self.method));
            out.push(':');
            out.push_str(&escape::encode(self.password.as_str()));
        } else {
            let user = format!("{}:{}", self.method, self.password.as_str());
            out.push_str(&BASE64URL_NOPAD.encode(user.as_bytes()));
        }
        out.push('@');
        match &self.endpoint.host {
            Host::Ip(_) => out.push_str(&self.endpoint.to_string()),
            Host::Name(name) => {
                out.push_str(&escape::encode(name));
                out.push_str(&format!(":{}", self.endpoint.port));
            }
        }
        if let Some(plugin) = &self.plugin {
            out.push_str("/?plugin=");
            out.push_str(&escape::encode(&plugin.joined()));
        }
        if let Some(tag) = &self.tag {
            out.push('#');
            out.push_str(&escape::encode(tag));
        }
        out
    }

    /// Writes the configuration of a client for this server, as JSON.
    pub fn to_json(&self) -> String {
        let mut members = vec![
            ("server", quote(&self.endpoint.host.to_string())),
            ("server_port", self.endpoint.port.to_string()),
            ("method", quote(&self.method)),
            ("password", quote(self.password.as_str())),
        ];
        if let Some(plugin) = &self.plugin {
            members.push(("plugin", quote(&plugin.name)));
            if let Some(options) = &plugin.options {
                members.push(("plugin_opts", quote(options)));
            }
        }
        if let Some(tag) = &self.tag {
            members.push(("remarks", quote(tag)));
        }
        members.push(("local_address", quote("127.0.0.1")));
        members.push(("local_port", "1080".to_owned()));
        let lines: Vec<String> =
            members.iter().map(|(key, value)| format!("    \"{key}\": {value}")).collect();
        format!("{{\n{}\n}}\n", lines.join(",\n"))
    }

    fn modern(body: &str, tag: Option<String>) -> Result<Self, LinkError> {
        let (body, query) = body.split_once('?').map_or((body, ""), |(body, query)| (body, query));
        // The last `@`: a hand-written link may hold a plain one in the password.
        let (user, server) = body.rsplit_once('@').ok_or(LinkError::NoServer)?;
        let (method, password) = user_info(user)?;
        let server = server.strip_suffix('/').unwrap_or(server);
        Self::checked(method, password, &escape::decode(server)?, plugin(query)?, tag)
    }

    fn legacy(body: &str, tag: Option<String>) -> Result<Self, LinkError> {
        let (body, query) = body.split_once('?').map_or((body, ""), |(body, query)| (body, query));
        let body = escape::decode(body)?;
        // "/" is a base64 digit, so the whole is tried before the slash that ends an authority.
        let text = base64(&body).or_else(|| base64(body.strip_suffix('/')?));
        let text = text.ok_or(LinkError::Base64)?;
        // `echo … | base64` encodes the line's end as well.
        let text = text.trim_end_matches(['\r', '\n']);
        let (user, server) = text.rsplit_once('@').ok_or(LinkError::NoServer)?;
        let (method, password) = user.split_once(':').ok_or(LinkError::NoPassword)?;
        Self::checked(method.to_owned(), password.to_owned(), server, plugin(query)?, tag)
    }

    fn checked(
        method: String,
        password: String,
        server: &str,
        plugin: Option<LinkPlugin>,
        tag: Option<String>,
    ) -> Result<Self, LinkError> {
        let named = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
        if method.is_empty() || !method.bytes().all(named) {
            return Err(LinkError::Method);
        }
        let (host, port) = endpoint::split(server).map_err(|_| LinkError::Server)?;
        // Without brackets the last group may be the port or none.
        if matches!(host, Host::Ip(IpAddr::V6(_))) && !server.starts_with('[') {
            return Err(LinkError::Bare);
        }
        // No name ends in a number; with a plain '#' in the password, the rest of it ends up here.
        if port.is_none() && matches!(&host, Host::Name(name) if ends_in_number(name)) {
            return Err(LinkError::Server);
        }
        let endpoint = host.with_port(port.unwrap_or(PORT_DEFAULT));
        Ok(Self { method, password: Password::new(password), endpoint, plugin, tag })
    }
}

impl LinkPlugin {
    /// Name and options as one text, the form of a link's query.
    fn joined(&self) -> String {
        let mut text = String::new();
        for c in self.name.chars() {
            if matches!(c, '\\' | ':' | ';' | '=') {
                text.push('\\');
            }
            text.push(c);
        }
        if let Some(options) = &self.options {
            text.push(';');
            text.push_str(options);
        }
        text
    }
}

// Neither the password nor the plugin's options, which may hold one.
impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Link({} {})", self.method, self.endpoint)
    }
}

impl fmt::Debug for LinkPlugin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LinkPlugin({})", self.name)
    }
}

/// Whether the last label of a name is a number, as it is in addresses only.
fn ends_in_number(name: &str) -> bool {
    let label = name.rsplit('.').next().unwrap_or(name);
    !label.is_empty() && label.bytes().all(|b| b.is_ascii_digit())
}

/// Splits userinfo, in base64 or percent-encoded, into method and password.
fn user_info(user: &str) -> Result<(String, String), LinkError> {
    // A plain ':' is in no base64 alphabet, so it settles which form this is. It must be looked
    // for before decoding escapes: the password may hold "%3A".
    if let Some((method, password)) = user.split_once(':') {
        return Ok((escape::decode(method)?, escape::decode(password)?));
    }
    let user = escape::decode(user)?;
    if let Some(text) = base64(&user) {
        let (method, password) = text.split_once(':').ok_or(LinkError::NoPassword)?;
        return Ok((method.to_owned(), password.to_owned()));
    }
    // Programs that escape the separating ':' too.
    let (method, password) = user.split_once(':').ok_or(LinkError::Base64)?;
    Ok((method.to_owned(), password.to_owned()))
}

/// UTF-8 text from base64 in either alphabet, padded or not.
fn base64(text: &str) -> Option<String> {
    let text = text.trim_end_matches('=').as_bytes();
    let bytes = BASE64URL_NOPAD.decode(text).or_else(|_| BASE64_NOPAD.decode(text)).ok()?;
    String::from_utf8(bytes).ok()
}

/// The plugin of a query; other keys are ignored, as SIP002 says.
fn plugin(query: &str) -> Result<Option<LinkPlugin>, LinkError> {
    for pair in query.split('&') {
        let Some(value) = pair.strip_prefix("plugin=") else { continue };
        let value = escape::decode(value)?;
        if value.is_empty() {
            return Ok(None);
        }
        let (name, options) = split_plugin(&value);
        if name.is_empty() {
            return Err(LinkError::Plugin);
        }
        return Ok(Some(LinkPlugin { name, options: options.map(str::to_owned) }));
    }
    Ok(None)
}

/// Splits at the first `;` that is not escaped, and unescapes the name.
fn split_plugin(value: &str) -> (String, Option<&str>) {
    let mut name = String::new();
    let mut chars = value.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => name.extend(chars.next().map(|(_, c)| c)),
            ';' => return (name, Some(&value[at + 1..])),
            _ => name.push(c),
        }
    }
    (name, None)
}

#[cfg(test)]
mod tests;
