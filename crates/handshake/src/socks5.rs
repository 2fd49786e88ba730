//! SOCKS5 greeting (`05 | n | n methods`) and request (`05 | CMD | RSV | ATYP | address | port`).
//!
//! Method `00` is the one chosen. RSV is not looked at, since clients are known to fill it. A
//! request is refused at its first wrong byte and always with a full ten-byte reply, because
//! clients read ten bytes before they look at REP.

use core::net::{Ipv4Addr, SocketAddr};

use adit_wire::{AddressError, Target, TargetBuf};

use crate::reply::{Out, Protocol};
use crate::{Command, Reason, Refusal, State, Turn};

/// First byte of every message.
pub(crate) const VERSION: u8 = 5;
/// Answer to a greeting that offers nothing acceptable.
pub(crate) const NO_METHOD: [u8; 2] = [VERSION, 0xff];
/// The bound address of a reply that has none.
pub(crate) const UNBOUND: SocketAddr =
    SocketAddr::new(core::net::IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

pub(crate) const REP_SUCCEEDED: u8 = 0;
pub(crate) const REP_GENERAL: u8 = 1;
pub(crate) const REP_NOT_ALLOWED: u8 = 2;
pub(crate) const REP_NETWORK: u8 = 3;
pub(crate) const REP_HOST: u8 = 4;
pub(crate) const REP_REFUSED: u8 = 5;
pub(crate) const REP_COMMAND: u8 = 7;
pub(crate) const REP_ADDRESS_TYPE: u8 = 8;

const METHOD_NONE: u8 = 0;
const COMMAND_CONNECT: u8 = 1;
const COMMAND_UDP_ASSOCIATE: u8 = 3;
/// VER, CMD and RSV, before the address.
const REQUEST_PREFIX_LEN: usize = 3;

/// Reads a greeting and answers it; the version byte is known to be right.
pub(crate) fn greeting(input: &[u8], out: &mut Out<'_>) -> Result<Option<Turn>, Refusal> {
    let Some(&count) = input.get(1) else {
        return Ok(None);
    };
    let consumed = 2 + usize::from(count);
    let Some(methods) = input.get(2..consumed) else {
        return Ok(None);
    };
    if methods.contains(&METHOD_NONE) {
        out.push(&[VERSION, METHOD_NONE]);
        Ok(Some(Turn::Next(consumed, State::Socks5Request)))
    } else {
        out.push(&NO_METHOD);
        Err(Refusal { consumed, reason: Reason::NoMethod })
    }
}

/// Reads a request, and answers it when it cannot be served; UDP ASSOCIATE only if `udp`.
pub(crate) fn request(udp: bool, input: &[u8], out: &mut Out<'_>) -> Result<Option<Turn>, Refusal> {
    parse(udp, input).map_err(|(rep, refusal)| {
        out.socks5(rep, UNBOUND);
        refusal
    })
}

fn parse(udp: bool, input: &[u8]) -> Result<Option<Turn>, (u8, Refusal)> {
    let refuse = |rep, consumed, reason| Err((rep, Refusal { consumed, reason }));
    let Some(&version) = input.first() else {
        return Ok(None);
    };
    if version != VERSION {
        return refuse(REP_GENERAL, 1, Reason::Version);
    }
    let command = match input.get(1) {
        None => return Ok(None),
        Some(&COMMAND_CONNECT) => Command::Connect,
        Some(&COMMAND_UDP_ASSOCIATE) if udp => Command::UdpAssociate,
        Some(&COMMAND_UDP_ASSOCIATE) => return refuse(REP_COMMAND, 2, Reason::UdpDisabled),
        Some(&other) => return refuse(REP_COMMAND, 2, Reason::Command(other)),
    };
    let address = input.get(REQUEST_PREFIX_LEN..).unwrap_or_default();
    match Target::parse(address) {
        Ok((target, len)) => {
            let consumed = REQUEST_PREFIX_LEN + len;
            let target = TargetBuf::from(target);
            Ok(Some(Turn::Request(consumed, command, target, Protocol::Socks5)))
        }
        Err(AddressError::Incomplete) => Ok(None),
        Err(AddressError::AddressType(atyp)) => {
            refuse(REP_ADDRESS_TYPE, REQUEST_PREFIX_LEN + 1, Reason::AddressType(atyp))
        }
        // A name that cannot exist is answered like one that does not.
        Err(_) => {
            let name_len = address.get(1).copied().map_or(0, usize::from);
            let consumed = match name_len {
                0 => REQUEST_PREFIX_LEN + 2,
                n => REQUEST_PREFIX_LEN + 2 + n + 2,
            };
            refuse(REP_HOST, consumed, Reason::Name)
        }
    }
}

#[cfg(test)]
mod tests;
