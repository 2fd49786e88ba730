//! The meaning of a complete request head: RFC 9112 §2 to §6, read for a proxy.
//!
//! Contract: the bytes went through [`Scan`](super::Scan), so every line ends with CRLF and there
//! is no other control character than a tab. Nothing here has `Debug`: header values are secrets.

use adit_wire::{Host, Target};

use super::HttpFault;
use super::body::Body;

/// Most names in Connection fields; real requests name one or two. It bounds the work per field.
const OPTIONS_MAX: usize = 32;
const PORT_HTTP: u16 = 80;

/// A request head.
pub(super) struct Head<'a> {
    /// The request line.
    pub(super) line: RequestLine<'a>,
    /// Where the request goes.
    pub(super) target: Target<'a>,
    /// How the request's body is framed.
    pub(super) body: Body,
    /// Names listed in Connection fields.
    pub(super) options: Options<'a>,
    /// The lines after the request line.
    fields: &'a [u8],
}

/// The first line of a request.
#[derive(Clone, Copy)]
pub(super) struct RequestLine<'a> {
    /// The method, with its case.
    pub(super) method: &'a [u8],
    /// The request target.
    pub(super) form: Form<'a>,
    /// `HTTP/1.0` or `HTTP/1.1`.
    pub(super) version: &'a [u8],
}

/// The forms of a request target (RFC 9112 §3.2).
#[derive(Clone, Copy)]
pub(super) enum Form<'a> {
    /// Authority-form, of CONNECT alone.
    Connect(Target<'a>),
    /// Absolute-form without `http://`.
    Absolute {
        /// Host and port as the client wrote them.
        authority: &'a [u8],
        /// The same, parsed.
        target: Target<'a>,
        /// What follows the authority: empty, or starts with `/` or `?`.
        path: &'a [u8],
    },
    /// Origin-form, or the asterisk-form of OPTIONS; goes to the Host.
    Origin(&'a [u8]),
}

/// Names listed in Connection fields.
pub(super) struct Options<'a> {
    names: [&'a [u8]; OPTIONS_MAX],
    len: usize,
}

/// A header line.
pub(super) struct Field<'a> {
    /// The line without its CRLF.
    pub(super) line: &'a [u8],
    /// The name, as written.
    pub(super) name: &'a [u8],
    /// The value without the blanks around it.
    value: &'a [u8],
}

/// What header fields say about the body, before the rules that combine them.
#[derive(Default)]
struct Framing {
    length: Option<u64>,
    chunked: bool,
}

impl<'a> Head<'a> {
    /// Reads a head that [`Scan`](super::Scan) found to be complete.
    pub(super) fn parse(head: &'a [u8]) -> Result<Self, HttpFault> {
        let end = head.iter().position(|&b| b == b'\r').ok_or(HttpFault::RequestLine)?;
        let (line, rest) = head.split_at(end);
        let fields = rest.get(2..).unwrap_or_default();
        let line = RequestLine::parse(line)?;

        let mut host = None;
        let mut framing = Framing::default();
        let mut options = Options { names: [&[]; OPTIONS_MAX], len: 0 };
        for field in lines(fields) {
            let field = Field::parse(field)?;
            if field.is(b"host") {
                if host.replace(field.value).is_some() {
                    return Err(HttpFault::HostRepeated);
                }
            } else if field.is(b"content-length") {
                framing.content_length(field.value)?;
            } else if field.is(b"transfer-encoding") {
                framing.transfer_encoding(field.value, line.version)?;
            } else if field.is(b"connection") {
                options.add(field.value)?;
            }
        }
        let target = match line.form {
            Form::Connect(target) | Form::Absolute { target, .. } => target,
            Form::Origin(_) => authority(host.ok_or(HttpFault::HostMissing)?, DefaultPort::Http)?,
        };
        let body = framing.body(line.form)?;
        Ok(Self { line, target, body, options, fields })
    }

    /// The header lines in order.
    pub(super) fn fields(&self) -> impl Iterator<Item = Result<Field<'a>, HttpFault>> {
        lines(self.fields).map(Field::parse)
    }
}

/// Splits what follows a request line into its lines, up to the empty one.
fn lines(fields: &[u8]) -> impl Iterator<Item = &[u8]> {
    fields
        .split(|&b| b == b'\n')
        .map(|line| line.strip_suffix(b"\r").unwrap_or(line))
        .take_while(|line| !line.is_empty())
}

impl<'a> RequestLine<'a> {
    /// Reads a request line without its line end.
    pub(super) fn parse(line: &'a [u8]) -> Result<Self, HttpFault> {
        let mut parts = line.split(|&b| b == b' ');
        let (Some(method), Some(target), Some(version), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(HttpFault::RequestLine);
        };
        if !is_token(method) || target.contains(&b'\t') {
            return Err(HttpFault::RequestLine);
        }
        match version {
            b"HTTP/1.0" | b"HTTP/1.1" => {}
            [b'H', b'T', b'T', b'P', b'/', b'0'..=b'9', b'.', b'0'..=b'9'] => {
                return Err(HttpFault::Version);
            }
            _ => return Err(HttpFault::RequestLine),
        }
        Ok(Self { method, form: Form::parse(method, target)?, version })
    }
}

impl<'a> Form<'a> {
    fn parse(method: &[u8], target: &'a [u8]) -> Result<Self, HttpFault> {
        if method == b"CONNECT" {
            return authority(target, DefaultPort::None).map(Self::Connect);
        }
        // A fragment never belongs in a request, and would change where an authority ends.
        if target.contains(&b'#') {
            return Err(HttpFault::RequestLine);
        }
        if target.starts_with(b"/") || (target == b"*" && method == b"OPTIONS") {
            return Ok(Self::Origin(target));
        }
        let scheme_len = target
            .iter()
            .position(
                |b| !matches!(b, b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'+' | b'-' | b'.'),
            )
            .ok_or(HttpFault::RequestLine)?;
        let (scheme, rest) = target.split_at(scheme_len);
        let rest = rest.strip_prefix(b"://").ok_or(HttpFault::RequestLine)?;
        if !scheme.eq_ignore_ascii_case(b"http") {
            return Err(HttpFault::Scheme);
        }
        let end = rest.iter().position(|b| matches!(b, b'/' | b'?')).unwrap_or(rest.len());
        let (host, path) = rest.split_at(end);
        let target = authority(host, DefaultPort::Http)?;
        Ok(Self::Absolute { authority: host, target, path })
    }
}

impl<'a> Field<'a> {
    fn parse(line: &'a [u8]) -> Result<Self, HttpFault> {
        let colon = line.iter().position(|&b| b == b':').ok_or(HttpFault::Field)?;
        let (name, value) = line.split_at(colon);
        // Refuses folded lines and blanks before the colon too: neither is part of a token.
        if !is_token(name) {
            return Err(HttpFault::Field);
        }
        let value = value.get(1..).unwrap_or_default().trim_ascii();
        Ok(Self { line, name, value })
    }

    /// Whether the name is `name`, given in lower case.
    pub(super) const fn is(&self, name: &[u8]) -> bool {
        self.name.eq_ignore_ascii_case(name)
    }
}

impl<'a> Options<'a> {
    fn add(&mut self, value: &'a [u8]) -> Result<(), HttpFault> {
        for name in value.split(|&b| b == b',').map(<[u8]>::trim_ascii) {
            if !name.is_empty() {
                *self.names.get_mut(self.len).ok_or(HttpFault::ConnectionOptions)? = name;
                self.len += 1;
            }
        }
        Ok(())
    }

    /// Whether a Connection field names `name`.
    pub(super) fn contain(&self, name: &[u8]) -> bool {
        self.names.iter().take(self.len).any(|option| option.eq_ignore_ascii_case(name))
    }
}

impl Framing {
    fn content_length(&mut self, value: &[u8]) -> Result<(), HttpFault> {
        // A list such as `5, 5` is as ambiguous as two fields.
        let length = decimal(value).ok_or(HttpFault::Framing)?;
        match self.length.replace(length) {
            None => Ok(()),
            Some(_) => Err(HttpFault::Framing),
        }
    }

    fn transfer_encoding(&mut self, value: &[u8], version: &[u8]) -> Result<(), HttpFault> {
        // HTTP/1.0 has no transfer codings: such framing is faulty (RFC 9112 §6.1).
        if self.chunked || version == b"HTTP/1.0" {
            return Err(HttpFault::Framing);
        }
        if !value.eq_ignore_ascii_case(b"chunked") {
            return Err(HttpFault::TransferCoding);
        }
        self.chunked = true;
        Ok(())
    }

    fn body(&self, form: Form<'_>) -> Result<Body, HttpFault> {
        match (form, self.chunked, self.length) {
            (_, true, Some(_)) => Err(HttpFault::Framing),
            // Some clients put `Content-Length: 0` on CONNECT.
            (Form::Connect(_), false, None | Some(0)) => Ok(Body::None),
            (Form::Connect(_), ..) => Err(HttpFault::ConnectBody),
            (_, true, None) => Ok(Body::chunked()),
            (_, false, Some(length)) => Ok(Body::Length(length)),
            (_, false, None) => Ok(Body::None),
        }
    }
}

/// What an authority without a port means.
#[derive(Clone, Copy)]
enum DefaultPort {
    /// It is malformed.
    None,
    /// Port 80; an empty port (`host:`) means the same.
    Http,
}

/// Reads `host`, `host:port` or `[v6]:port`.
fn authority(bytes: &[u8], default: DefaultPort) -> Result<Target<'_>, HttpFault> {
    if bytes.contains(&b'@') {
        return Err(HttpFault::UserInfo);
    }
    let host_len = if bytes.starts_with(b"[") {
        bytes.iter().position(|&b| b == b']').ok_or(HttpFault::Authority)? + 1
    } else {
        bytes.iter().position(|&b| b == b':').unwrap_or(bytes.len())
    };
    let (host, port) = bytes.split_at(host_len);
    let port = match (port, default) {
        ([] | [b':'], DefaultPort::Http) => PORT_HTTP,
        ([b':', digits @ ..], _) => decimal(digits)
            .and_then(|port| u16::try_from(port).ok())
            .filter(|&port| port != 0)
            .ok_or(HttpFault::Authority)?,
        _ => return Err(HttpFault::Authority),
    };
    if !host.starts_with(b"[") && !host.iter().all(|&b| is_name_byte(b)) {
        return Err(HttpFault::Authority);
    }
    let host = Host::parse(host).map_err(|_| HttpFault::Authority)?;
    Ok(Target { host, port })
}

/// The unreserved characters of RFC 3986, the only ones that host names are made of.
const fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

/// Digits alone, without sign or overflow.
fn decimal(bytes: &[u8]) -> Option<u64> {
    if bytes.is_empty() {
        return None;
    }
    bytes.iter().try_fold(0_u64, |value, &byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        value.checked_mul(10)?.checked_add(digit)
    })
}

/// Whether `bytes` are a token (RFC 9110 §5.6.2).
pub(super) fn is_token(bytes: &[u8]) -> bool {
    !bytes.is_empty()
        && bytes.iter().all(|&b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b))
}
