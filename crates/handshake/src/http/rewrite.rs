//! Words a proxied request head for its origin (RFC 9110 §7.6.1, RFC 9112 §3.2).
//!
//! Changed are the target (origin-form), Host (equal to the authority of an absolute-form target,
//! whatever the client wrote), and the fields that end at a proxy. All else passes byte for byte:
//! method, version, framing, `Expect`, and the order of fields. Credentials for the proxy are
//! dropped here and go nowhere else.

use super::head::{Form, Head};
use super::{HttpFault, Scan};
use crate::reply::Out;

/// How many bytes longer than the head it is given [`rewrite_head`] may write.
///
/// `Connection: close` takes 19 bytes, and replacing `http://a` by `/` and `Host: a` takes at most
/// 2 more.
pub const REWRITE_GROWTH_MAX: usize = 32;

/// Fields between a client and its proxy, dropped whether or not Connection names them.
///
/// `Close` is no field, but its name is taken: it is what the `Connection: close` added here names.
const HOP_BY_HOP: [&[u8]; 8] = [
    b"connection",
    b"proxy-connection",
    b"keep-alive",
    b"proxy-authenticate",
    b"proxy-authorization",
    b"te",
    b"upgrade",
    b"close",
];

/// Fields that pass even if Connection names them: without them the origin would see another
/// request than this proxy.
const END_TO_END: [&[u8]; 3] = [b"host", b"content-length", b"transfer-encoding"];

/// Writes the head that the origin gets for the client's `head`, and returns its length.
///
/// `head` is exactly the head of a [`Forward`](crate::Forward) request, its empty line included.
///
/// # Errors
/// [`HttpFault::NotForwardable`] when `head` is not one whole head of a request to pass on, else
/// what is wrong with it. A head that came with a [`Forward`](crate::Forward) never fails.
///
/// # Panics
/// When `out` is shorter than `head` plus [`REWRITE_GROWTH_MAX`].
pub fn rewrite_head(head: &[u8], out: &mut [u8]) -> Result<usize, HttpFault> {
    assert!(out.len() >= head.len() + REWRITE_GROWTH_MAX, "out holds the head and its growth");
    match Scan::default().advance(head) {
        Ok(Some(len)) if len == head.len() => {}
        Ok(_) => return Err(HttpFault::NotForwardable),
        Err((_, fault)) => return Err(fault),
    }
    let head = Head::parse(head)?;
    let mut out = Out::new(out);
    out.push(head.line.method);
    out.push(b" ");
    let host = match head.line.form {
        Form::Connect(_) => return Err(HttpFault::NotForwardable),
        Form::Origin(path) => {
            out.push(path);
            None
        }
        Form::Absolute { authority, path, .. } => {
            match path {
                [] if head.line.method == b"OPTIONS" => out.push(b"*"),
                [b'/', ..] => {}
                _ => out.push(b"/"),
            }
            out.push(path);
            Some(authority)
        }
    };
    out.push(b" ");
    out.push(head.line.version);
    out.push(b"\r\n");
    if let Some(host) = host {
        out.push(b"Host: ");
        out.push(host);
        out.push(b"\r\n");
    }
    for field in head.fields() {
        let field = field?;
        let end_to_end = END_TO_END.iter().any(|name| field.is(name));
        let hop_by_hop = HOP_BY_HOP.iter().any(|name| field.is(name));
        let dropped = hop_by_hop || (!end_to_end && head.options.contain(field.name));
        if dropped || (host.is_some() && field.is(b"host")) {
            continue;
        }
        out.push(field.line);
        out.push(b"\r\n");
    }
    out.push(b"Connection: close\r\n\r\n");
    Ok(out.len())
}

#[cfg(test)]
mod tests;
