//! Subscriptions: servers that a provider hands out by HTTPS, and how its answers are read.
//!
//! An answer is a SIP008 document, one server as an object (a dynamic key), a list of links, or
//! the base64 of such a list. A provider decides about servers and about nothing else: of its
//! entries a few keys are read, none of which names a file, a program that the user has not allowed,
//! an option of sockets or a variable of the environment. What is missing in an entry does not come
//! from the user's own passwords. A server that cannot be used is left out with a warning; an answer
//! without a server that can be used changes nothing.
//!
//! Addresses of subscriptions are secrets: whoever has one has the servers. None is in a message.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::config::{Config, RemoteServer};
use crate::diagnostic::{Diagnostic, Findings};
use crate::endpoint::Host;
use crate::file;
use crate::link::{self, LinkError, SSCONF};
use crate::program::Invoked;
use crate::raw::{Raw, RawServer};
use crate::secret::Password;
use crate::setting::server_of_link;
use crate::validate::{subscribed_server, validate};
use crate::value::Complaint;

/// Time between two fetches when none is configured, as in the Rust programs.
pub(crate) const UPDATE_INTERVAL_DEFAULT: Duration = Duration::from_secs(3600);
/// Longest address of a subscription, bytes: less than a pipe holds.
const URL_LEN_MAX: usize = 4096;
/// Servers of one answer taken at most.
pub(crate) const SERVERS_MAX: usize = 1024;
/// Servers and links that are reported one by one when they cannot be used.
const WARNINGS_MAX: usize = 10;

/// A subscription.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Online {
    /// Its address, `https://` or `http://` to this machine; a secret.
    pub url: Password,
    /// Time until it is fetched again.
    pub update_interval: Duration,
    /// Where the last good answer is kept.
    pub cache_file: Option<PathBuf>,
    pub(crate) allowed_plugins: Vec<Box<str>>,
}

/// A configuration with the servers of an answer in it.
#[derive(Debug)]
pub struct Subscribed {
    /// The configuration: its own servers, then those of the answer.
    pub config: Config,
    /// What the answer says of itself, for people.
    pub about: About,
    /// What was left out, a line each.
    pub warnings: Vec<String>,
}

/// What an answer says of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct About {
    /// Servers that are used.
    pub servers: usize,
    /// Servers and links that were left out.
    pub left_out: usize,
    /// Version of the format, where it has one.
    pub version: Option<i64>,
    /// Bytes that the account has used.
    pub bytes_used: Option<u64>,
    /// Bytes that it has left.
    pub bytes_remaining: Option<u64>,
}

impl Config {
    /// This configuration with the servers that a provider answered with, in place of those of an
    /// earlier answer. The file is not read again.
    ///
    /// # Errors
    /// Why the answer cannot be used, in words that hold nothing of it.
    pub fn subscribed(&self, answer: &[u8]) -> Result<Subscribed, String> {
        let (Some(online), Some(raw)) = (&self.online, &self.merged) else {
            return Err("there is no subscription in the configuration".to_owned());
        };
        let mut read = read(answer, raw, self.invoked, &online.allowed_plugins)?;
        read.about.servers = read.servers.len();
        if read.servers.is_empty() {
            let reason = read.warnings.first().map_or("it has none", String::as_str);
            return Err(format!("no server in it can be used: {reason}"));
        }
        let mut findings = self.sources.findings();
        let config = {
            // Only a manager looks into the environment here, and it has no subscription.
            let (raw, sources) = ((**raw).clone(), self.sources.clone());
            validate(raw, sources, &|_| None, read.servers, &mut findings)
        };
        let Some(config) = config else {
            let errors = findings.errors();
            return Err(errors.first().map(Diagnostic::to_string).unwrap_or_default());
        };
        Ok(Subscribed { config, about: read.about, warnings: read.warnings })
    }
}

/// Whether this is the address of a dynamic key.
pub(crate) fn is_dynamic_key(text: &str) -> bool {
    let text = text.trim_start();
    text.get(..SSCONF.len()).is_some_and(|scheme| scheme.eq_ignore_ascii_case(SSCONF))
}

/// The address of a subscription as it is fetched.
pub(crate) fn url(text: &str) -> Result<Password, Complaint> {
    let text = text.trim();
    if text.len() > URL_LEN_MAX {
        return Err("the address is longer than 4096 bytes".into());
    }
    // A fragment is a name, and for nobody but the user.
    let text = text.split('#').next().unwrap_or_default();
    if text.bytes().any(|b| b <= b' ' || b == 0x7f || b >= 0x80) {
        return Err("the address has blanks or characters that must be written %XX".into());
    }
    let Some((scheme, rest)) = text.split_once("://") else {
        return Err("write an address that begins with https:// or ssconf://".into());
    };
    let authority = rest.split(['/', '?']).next().unwrap_or_default();
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    if host.is_empty() {
        return Err("the address has no host; write https://HOST/PATH".into());
    }
    match scheme.to_ascii_lowercase().as_str() {
        "https" | "ssconf" => Ok(Password::new(format!("https://{rest}"))),
        "http" if is_loopback(host) => Ok(Password::new(format!("http://{rest}"))),
        "http" => Err("anybody on the way could change the servers; write https:// (http:// is \
                       possible to 127.0.0.1, [::1] and localhost only)"
            .into()),
        "ss" => Err("this is a link; write it with --server-url".into()),
        _ => Err("write an address that begins with https:// or ssconf://".into()),
    }
}

/// The address that an answer sends its reader on to, if that may be followed; `from` is where the
/// answer came from.
///
/// # Errors
/// What is wrong with it, without any of it.
pub fn redirected(from: &Password, to: &str) -> Result<Password, String> {
    let (scheme, rest) = from.as_str().split_once("://").unwrap_or_default();
    let path_at = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(path_at);
    let path = path.split('?').next().unwrap_or_default();
    let is_absolute = to.split_once("://").is_some_and(|(scheme, _)| {
        !scheme.is_empty() && scheme.bytes().all(|b| b.is_ascii_alphanumeric())
    });
    let joined = if is_absolute {
        to.to_owned()
    } else if to.starts_with("//") {
        format!("{scheme}:{to}")
    } else if to.starts_with('/') {
        format!("{scheme}://{authority}{to}")
    } else {
        let dir = path.rsplit_once('/').map_or("", |(dir, _)| dir);
        format!("{scheme}://{authority}{dir}/{to}")
    };
    let joined = url(&joined).map_err(|_| "the answer leads to an address that is not https")?;
    if scheme == "https" && !joined.as_str().starts_with("https://") {
        return Err("the answer leads from https to http".to_owned());
    }
    Ok(joined)
}

/// Reads the address of a subscription.
///
/// # Errors
/// What to write instead, without any of it.
pub fn subscription_url(text: &str) -> Result<Password, String> {
    url(text).map_err(|complaint| complaint.to_string())
}

/// Whether a host, with a port or without, is this machine for certain.
fn is_loopback(host: &str) -> bool {
    match crate::endpoint::split(host) {
        Ok((Host::Ip(ip), _)) => ip.is_loopback(),
        Ok((Host::Name(name), _)) => name.eq_ignore_ascii_case("localhost"),
        Err(_) => false,
    }
}

/// An answer, read.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    pub(crate) servers: Vec<RemoteServer>,
    pub(crate) about: About,
    pub(crate) warnings: Vec<String>,
}

/// Reads an answer. Options that belong to all servers come from `raw`.
pub(crate) fn read(
    bytes: &[u8],
    raw: &Raw,
    invoked: Invoked,
    allowed_plugins: &[Box<str>],
) -> Result<Answer, String> {
    let text = std::str::from_utf8(bytes).map_err(|_| "it is not text".to_owned())?;
    let text = text.trim_start_matches('\u{feff}').trim();
    match text.chars().next() {
        None => return Err("it is empty".to_owned()),
        Some('<') => return Err("it is a web page; check the address".to_owned()),
        Some(_) => {}
    }
    let mut answer = Answer::default();
    let base = base(raw);
    if text.starts_with(['{', '[']) {
        let document = file::read_subscription(text.as_bytes(), invoked.program)?;
        answer.about = document.about;
        for (entry, findings) in document.entries {
            answer.take_server(entry, findings, &base, invoked, allowed_plugins);
        }
        return Ok(answer);
    }
    let lines = link::entries(text).ok_or_else(|| {
        "it is neither a SIP008 document nor a list of ss:// links; check the address".to_owned()
    })?;
    for line in lines {
        answer.take_link(line, &base, invoked, allowed_plugins);
    }
    Ok(answer)
}

/// What servers of a provider have in common with the user's own: how they are reached, and never
/// who the user is.
fn base(raw: &Raw) -> Raw {
    let server = RawServer {
        timeout: raw.server.timeout,
        outbound: raw.server.outbound.clone(),
        ..RawServer::default()
    };
    Raw { server, printable_salt: raw.printable_salt, ..Raw::default() }
}

impl Answer {
    fn take_server(
        &mut self,
        entry: file::SubscribedEntry,
        mut findings: Findings,
        base: &Raw,
        invoked: Invoked,
        allowed_plugins: &[Box<str>],
    ) {
        if let Some(plugin) = &entry.plugin
            && !allowed_plugins.iter().any(|allowed| **allowed == **plugin)
        {
            return self.leave_out(&format!("{}: {NOT_ALLOWED}", entry.place));
        }
        // The default of the user's program is no provider's choice.
        if entry.server.method.is_none() && findings.is_usable() {
            return self.leave_out(&format!("{}: has no \"method\"", entry.place));
        }
        let servers = subscribed_server(entry.server, base, invoked, &mut findings);
        if findings.is_usable() && !servers.is_empty() {
            self.servers.extend(servers);
            return;
        }
        let error = findings.errors().into_iter().next();
        self.leave_out(&error.map_or_else(|| entry.place.clone(), |error| error.to_string()));
    }

    fn take_link(
        &mut self,
        line: link::Entry,
        base: &Raw,
        invoked: Invoked,
        allowed_plugins: &[Box<str>],
    ) {
        let place = format!("{PLACE}:{}", line.line);
        let link = match line.link {
            Ok(link) => link,
            Err(error) => return self.leave_out_link(&place, error),
        };
        if let Some(plugin) = &link.plugin
            && !allowed_plugins.iter().any(|allowed| **allowed == *plugin.name)
        {
            return self.leave_out(&format!("{place}: {NOT_ALLOWED}"));
        }
        let mut findings = Findings::of_file(Path::new(&place));
        let origin = crate::diagnostic::Origin::File;
        let server = match server_of_link(link, origin) {
            Ok(server) => server,
            Err(complaint) => return self.leave_out(&format!("{place}: {complaint}")),
        };
        let servers = subscribed_server(server, base, invoked, &mut findings);
        match findings.errors().into_iter().next() {
            None => self.servers.extend(servers),
            Some(error) => self.leave_out(&error.to_string()),
        }
    }

    /// Mixed lists are common: links of other protocols are counted and not told one by one.
    fn leave_out_link(&mut self, place: &str, error: LinkError) {
        if matches!(error, LinkError::Foreign(_)) && self.about.left_out > 0 {
            self.about.left_out += 1;
        } else {
            self.leave_out(&format!("{place}: {error}"));
        }
    }

    fn leave_out(&mut self, line: &str) {
        self.about.left_out += 1;
        if self.warnings.len() < WARNINGS_MAX {
            self.warnings.push(format!("{line}; the server is left out"));
        }
    }
}

/// What stands for the file in messages about an answer.
pub(crate) const PLACE: &str = "subscription";
const NOT_ALLOWED: &str = "the plugin of this server is not allowed; add its name to \
                           \"allowed_plugins\" if you trust the provider to run it";

#[cfg(test)]
mod tests;
