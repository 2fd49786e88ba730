//! SOCKS4 and SOCKS4a requests: `04 | CMD | port | IPv4 | user id | 00`, and for SOCKS4a (an
//! address `0.0.0.x` with x not 0) `name | 00`.
//!
//! The user id proves nothing and is skipped. It and the name are at most 255 bytes; the memos set
//! no limit. Refusals are `00 5B` and six zero bytes.

use core::net::Ipv4Addr;

use adit_wire::{Host, Target, TargetBuf};

use crate::reply::{Out, Protocol};
use crate::{Command, Reason, Refusal, Turn};

/// First byte of every request.
pub(crate) const VERSION: u8 = 4;
/// Reply code of a request that is served.
pub(crate) const GRANTED: u8 = 0x5a;
/// Reply code of a request that is rejected or failed.
pub(crate) const REJECTED: u8 = 0x5b;

const COMMAND_CONNECT: u8 = 1;
/// VN, CD, port and address, before the user id.
const HEADER_LEN: usize = 8;
const TEXT_LEN_MAX: usize = 255;

/// Reads a request; the version byte is known to be right.
pub(crate) fn request(input: &[u8], out: &mut Out<'_>) -> Result<Option<Turn>, Refusal> {
    parse(input).inspect_err(|_| out.socks4(REJECTED, None))
}

fn parse(input: &[u8]) -> Result<Option<Turn>, Refusal> {
    let Some(&command) = input.get(1) else {
        return Ok(None);
    };
    if command != COMMAND_CONNECT {
        return Err(Refusal { consumed: 2, reason: Reason::Command(command) });
    }
    let Some(&[_, _, p1, p0, a, b, c, d]) = input.first_chunk() else {
        return Ok(None);
    };
    let port = u16::from_be_bytes([p1, p0]);
    let mut consumed = HEADER_LEN;

    let Some(user) = text(input, consumed, Reason::UserId)? else {
        return Ok(None);
    };
    consumed += user.len() + 1;

    let host = if let ([0, 0, 0], 1..) = ([a, b, c], d) {
        let Some(name) = text(input, consumed, Reason::Name)? else {
            return Ok(None);
        };
        consumed += name.len() + 1;
        Host::parse(name).map_err(|_| Refusal { consumed, reason: Reason::Name })?
    } else {
        Host::Ip(Ipv4Addr::new(a, b, c, d).into())
    };
    let target = TargetBuf::from(Target { host, port });
    Ok(Some(Turn::Request(consumed, Command::Connect, target, Protocol::Socks4)))
}

/// Reads the NUL-ended text at `offset`; `too_long` is the reason when the limit passes before the
/// NUL comes.
fn text(input: &[u8], offset: usize, too_long: Reason) -> Result<Option<&[u8]>, Refusal> {
    let rest = input.get(offset..).unwrap_or_default();
    let window = rest.get(..=TEXT_LEN_MAX).unwrap_or(rest);
    match window.iter().position(|&b| b == 0) {
        Some(end) => Ok(window.get(..end)),
        None if window.len() > TEXT_LEN_MAX => {
            Err(Refusal { consumed: offset + window.len(), reason: too_long })
        }
        None => Ok(None),
    }
}

#[cfg(test)]
mod tests;
