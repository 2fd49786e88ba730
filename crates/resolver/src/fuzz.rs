//! Bodies of the fuzz targets; `fuzz/` calls them with one line each.
//!
//! No panic, no endless loop, outcomes within their bounds. `now` comes from the target, since
//! this crate reads no clock.

use std::time::{Duration, Instant};

use crate::lookup::{LOOKUP_TIMEOUT, Lookup, TRANSMIT_LEN_MAX, Transport};
use crate::outcome::Outcome;
use crate::{Hosts, Settings};

/// Feeds `data` to a lookup as a series of messages. The first byte of each piece chooses whether
/// the piece is a whole message, a body after a good header and question, or a timeout.
pub fn lookup(now: Instant, data: &[u8]) {
    let settings = Settings::from_resolv_conf(
        b"nameserver 192.0.2.1\nnameserver 192.0.2.2\nsearch a.example\noptions timeout:1\n",
    );
    let mut seed = 0u64;
    let mut random = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        seed >> 16
    };
    let mut lookup = Lookup::start(&settings, "Host.Example", now, &mut random);
    let mut query = [0; TRANSMIT_LEN_MAX];
    let mut message = Vec::new();
    let mut clock = now;
    let mut rest = data;
    while let Some((&[kind, len_high, len_low], tail)) = rest.split_first_chunk::<3>() {
        let len = usize::from(u16::from_be_bytes([len_high, len_low])).min(tail.len());
        let (piece, tail) = tail.split_at(len);
        rest = tail;
        let mut asked = None;
        // The last query is the one that gets answered; both kinds come up over a series.
        for _ in 0..1 + kind / 128 {
            asked = lookup.transmit(&mut query, &mut random).or(asked);
        }
        let Some(asked) = asked else {
            clock += Duration::from_millis(u64::from(kind) * 10);
            lookup.handle_timeout(&settings, clock);
            continue;
        };
        match kind % 4 {
            0 => lookup.handle_unreachable(&settings, clock, asked.attempt),
            1 => {
                let _ =
                    lookup.handle_message(&settings, clock, asked.server, asked.transport, piece);
            }
            _ => {
                let start = if asked.transport == Transport::Tcp { 2 } else { 0 };
                message.clear();
                message.extend_from_slice(&query[start..asked.len]);
                // Keep id and question, take flags and counts from the data, cut the EDNS0 record.
                for (byte, new) in message[2..12].iter_mut().zip(piece) {
                    *byte = *new;
                }
                message[2] |= 0x80;
                if kind % 4 == 2 {
                    message[4..6].copy_from_slice(&[0, 1]);
                }
                if message.ends_with(&[0, 0, 0, 0, 0, 0]) {
                    message.truncate(message.len() - 11);
                }
                message.extend_from_slice(piece.get(10..).unwrap_or_default());
                let _ = lookup.handle_message(
                    &settings,
                    clock,
                    asked.server,
                    asked.transport,
                    &message,
                );
            }
        }
    }
    let mut steps = 0;
    while let Some(deadline) = lookup.next_deadline() {
        while lookup.transmit(&mut query, &mut random).is_some() {}
        clock = clock.max(deadline);
        lookup.handle_timeout(&settings, clock);
        steps += 1;
        assert!(steps < 1000, "a lookup ends after a bounded number of timeouts");
    }
    assert!(clock < now + LOOKUP_TIMEOUT + Duration::from_secs(data.len() as u64 * 3 + 1));
    match lookup.outcome() {
        Some(Outcome::Found { addrs, .. }) => assert!(!addrs.is_empty()),
        Some(_) => {}
        None => panic!("a lookup without a deadline has an outcome"),
    }
}

/// Parses `data` as a resolv.conf.
pub fn resolv_conf(data: &[u8]) {
    let settings =
        Settings::from_resolv_conf_scoped(data, &mut |name| u32::try_from(name.len()).ok());
    assert!(!settings.nameservers().is_empty());
    assert!(settings.nameservers().iter().all(|server| server.port() != 0));
}

/// Parses `data` as a hosts file and looks up every word of it.
pub fn hosts(data: &[u8]) {
    let hosts = Hosts::parse(data);
    for word in data.split(u8::is_ascii_whitespace) {
        if let Some(addrs) = std::str::from_utf8(word).ok().and_then(|name| hosts.lookup(name)) {
            assert!(!addrs.is_empty());
        }
    }
}
