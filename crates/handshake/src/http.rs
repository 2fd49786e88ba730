//! HTTP proxy requests: CONNECT, and plain `http://` requests to pass on.
//!
//! A head is read strictly where leniency lets two parsers disagree about where a request ends
//! (request smuggling): lines end with CRLF, there is no folding and no space before a colon, and a
//! request has one framing. It is lenient where it is harmless: CONNECT and absolute-form need no
//! Host, and unknown methods and header fields pass.
//!
//! - [`Scan`] finds the end of a head and judges its bytes, once per byte over any split.
//! - [`head`] gives a complete head its meaning.
//! - [`rewrite`] words the head for the origin, and [`body`] counts what belongs to it.
//!
//! What it does not do: `Via` is not added, since a client's privacy outweighs loop detection here,
//! `Max-Forwards` passes unchanged, and one connection serves one request.

pub(crate) mod body;
mod head;
pub(crate) mod rewrite;

use core::fmt;

use crate::reply::{Out, Protocol};
use crate::{Command, Forward, Reason, Refusal, Turn};

use self::head::{Form, Head, RequestLine};

/// Longest request head, its empty line included; a longer one is answered with 431.
///
/// 8 KiB is what common origin servers take for one line, and above what browsers send.
pub const HEAD_LEN_MAX: usize = 8192;

/// What is wrong with an HTTP request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HttpFault {
    /// The head is longer than [`HEAD_LEN_MAX`]. Client's fault.
    HeadTooLong,
    /// A control character, or a line end that is not CRLF. Client's fault.
    Control,
    /// The request line is malformed. Client's fault.
    RequestLine,
    /// Not HTTP/1.0 or HTTP/1.1. Client's fault.
    Version,
    /// A header line is malformed or folded. Client's fault.
    Field,
    /// Host or port of the target is malformed; CONNECT also needs a port. Client's fault.
    Authority,
    /// The target carries credentials (RFC 9110 §4.2.4). Client's fault.
    UserInfo,
    /// A scheme other than `http`. Client's fault.
    Scheme,
    /// No Host to say where a request goes. Client's fault.
    HostMissing,
    /// More than one Host. Client's fault.
    HostRepeated,
    /// Content-Length is repeated, no number, or together with Transfer-Encoding. Client's fault.
    Framing,
    /// A transfer coding other than chunked. Client's fault.
    TransferCoding,
    /// A CONNECT request that announces a body. Client's fault.
    ConnectBody,
    /// Connection names more fields than a request has use for. Client's fault.
    ConnectionOptions,
    /// The bytes are not exactly one head of a request to pass on. Fault of the caller of
    /// [`rewrite_head`](crate::rewrite_head); no client gets to see it.
    NotForwardable,
}

impl HttpFault {
    /// A stable word for metrics and logs.
    pub const fn as_label(self) -> &'static str {
        match self {
            Self::HeadTooLong => "http_head_too_long",
            Self::Control => "http_control",
            Self::RequestLine => "http_request_line",
            Self::Version => "http_version",
            Self::Field => "http_field",
            Self::Authority => "http_authority",
            Self::UserInfo => "http_user_info",
            Self::Scheme => "http_scheme",
            Self::HostMissing => "http_host_missing",
            Self::HostRepeated => "http_host_repeated",
            Self::Framing => "http_framing",
            Self::TransferCoding => "http_transfer_coding",
            Self::ConnectBody => "http_connect_body",
            Self::ConnectionOptions => "http_connection_options",
            Self::NotForwardable => "http_not_forwardable",
        }
    }

    const fn status(self) -> &'static str {
        match self {
            Self::HeadTooLong => "431 Request Header Fields Too Large",
            Self::Version => "505 HTTP Version Not Supported",
            Self::Scheme | Self::TransferCoding => "501 Not Implemented",
            Self::Control
            | Self::RequestLine
            | Self::Field
            | Self::Authority
            | Self::UserInfo
            | Self::HostMissing
            | Self::HostRepeated
            | Self::Framing
            | Self::ConnectBody
            | Self::ConnectionOptions
            | Self::NotForwardable => "400 Bad Request",
        }
    }

    const fn text(self) -> &'static str {
        match self {
            Self::HeadTooLong => "The request head is too long.",
            Self::Control => "The request head has a control character or a line end without CRLF.",
            Self::RequestLine => "The request line is malformed.",
            Self::Version => "Only HTTP/1.0 and HTTP/1.1 are served.",
            Self::Field => "A header field is malformed.",
            Self::Authority => "The host or port of the request is missing or malformed.",
            Self::UserInfo => "The request target must not carry a user name or password.",
            Self::Scheme => "Only http:// targets are forwarded; use CONNECT for all others.",
            Self::HostMissing => "The request names no host.",
            Self::HostRepeated => "The request has more than one Host field.",
            Self::Framing => "The length of the request body is ambiguous.",
            Self::TransferCoding => "Only the chunked transfer coding is served.",
            Self::ConnectBody => "A CONNECT request must not have a body.",
            Self::ConnectionOptions => "The Connection field names too many options.",
            Self::NotForwardable => "The bytes are not one head of a request to forward.",
        }
    }
}

impl fmt::Display for HttpFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl core::error::Error for HttpFault {}

/// Reads a request, and answers it when it cannot be served.
pub(crate) fn request(
    scan: &mut Scan,
    input: &[u8],
    out: &mut Out<'_>,
) -> Result<Option<Turn>, Refusal> {
    parse(scan, input).map_err(|(consumed, fault)| {
        out.http(fault.status(), fault.text());
        Refusal { consumed, reason: Reason::Http(fault) }
    })
}

fn parse(scan: &mut Scan, input: &[u8]) -> Result<Option<Turn>, (usize, HttpFault)> {
    let Some(head_len) = scan.advance(input)? else {
        return Ok(None);
    };
    let bytes = input.get(..head_len).unwrap_or_default();
    let head = Head::parse(bytes).map_err(|fault| (head_len, fault))?;
    let (command, protocol) = match head.line.form {
        Form::Connect(_) => (Command::Connect, Protocol::HttpConnect),
        Form::Absolute { .. } | Form::Origin(_) => {
            let forward = Command::Forward(Forward { head_len, body: head.body });
            match head.line.method {
                b"HEAD" => (forward, Protocol::HttpForwardHead),
                _ => (forward, Protocol::HttpForward),
            }
        }
    };
    Ok(Some(Turn::Request(head_len, command, head.target.into(), protocol)))
}

/// How far a head has been looked at.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Scan {
    /// Bytes looked at; at most [`HEAD_LEN_MAX`].
    len: u16,
    /// Bytes of the line that `len` is in, without its line end.
    line_len: u16,
    /// The byte before `len` is a CR.
    after_cr: bool,
    /// The request line is complete and well-formed.
    line_seen: bool,
}

impl Scan {
    /// Looks at the bytes of `input` it has not seen; gives the head's length once it is complete.
    ///
    /// The request line is judged as soon as it ends, so that a client of another text protocol
    /// gets its answer without waiting. An error carries the length up to the offending byte.
    fn advance(&mut self, input: &[u8]) -> Result<Option<usize>, (usize, HttpFault)> {
        for (at, &byte) in input.iter().enumerate().take(HEAD_LEN_MAX).skip(self.len.into()) {
            self.len += 1;
            if self.after_cr {
                if byte != b'\n' {
                    return Err((at + 1, HttpFault::Control));
                }
                if !self.line_seen {
                    let line = input.get(..at - 1).unwrap_or_default();
                    RequestLine::parse(line).map_err(|fault| (at + 1, fault))?;
                    self.line_seen = true;
                } else if self.line_len == 0 {
                    return Ok(Some(at + 1));
                }
                self.line_len = 0;
                self.after_cr = false;
            } else if byte == b'\r' {
                self.after_cr = true;
            } else if byte.is_ascii_control() && byte != b'\t' {
                return Err((at + 1, HttpFault::Control));
            } else {
                self.line_len += 1;
            }
        }
        if usize::from(self.len) == HEAD_LEN_MAX {
            return Err((HEAD_LEN_MAX, HttpFault::HeadTooLong));
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests;
