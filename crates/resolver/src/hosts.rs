//! The hosts table: names with fixed addresses, compact and sorted.
//!
//! Three arrays (names, addresses, records) are built once; a lookup is a binary search. Block
//! lists of several hundred thousand lines fit: a record is 12 bytes beside its name and its
//! addresses. A bad line, or a bad name on a good line, is skipped and counted.
//!
//! `localhost` and every name below it answer with loopback addresses whatever the file says
//! (RFC 6761 §6.3): those the file gives when all of them are loopback, else 127.0.0.1 and ::1.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::addresses::AddrList;
use crate::name::Name;

/// Bytes of a hosts file that are read; the rest is left out and told by [`Hosts::is_cut`].
pub const HOSTS_BYTES_MAX: usize = 32 << 20;

/// A parsed hosts file; immutable, shared behind an `Arc`.
#[derive(Clone, Default)]
pub struct Hosts {
    /// Lower-cased names one after the other.
    names: Box<[u8]>,
    addrs: Box<[IpAddr]>,
    /// Sorted by name, each name once.
    records: Box<[Record]>,
    bad_lines: u32,
    is_cut: bool,
}

#[derive(Clone, Copy)]
struct Record {
    name_at: u32,
    addrs_at: u32,
    name_len: u8,
    addrs_len: u8,
}

/// One name on one line, while the table is built.
struct Mention {
    name_at: u32,
    name_len: u8,
    addr: IpAddr,
}

impl Hosts {
    /// Reads a hosts file: `address name...`, `#` starts a comment.
    pub fn parse(bytes: &[u8]) -> Self {
        let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
        let (bytes, is_cut) = match bytes.get(..HOSTS_BYTES_MAX) {
            Some(head) if bytes.len() > HOSTS_BYTES_MAX => {
                let end = head.iter().rposition(|&b| b == b'\n').unwrap_or(0);
                (&head[..end], true)
            }
            _ => (bytes, false),
        };
        let mut names = Vec::new();
        let mut mentions = Vec::new();
        let mut bad_lines = 0;
        for line in bytes.split(|&b| b == b'\n') {
            if !read_line(line, &mut names, &mut mentions) {
                bad_lines += 1;
            }
        }
        Self { bad_lines, is_cut, ..Self::build(&names, mentions) }
    }

    /// The addresses of `name`; case and a final dot do not matter.
    pub fn lookup(&self, name: &str) -> Option<AddrList> {
        self.lookup_name(&Name::parse(name).ok()?)
    }

    pub(crate) fn lookup_name(&self, name: &Name) -> Option<AddrList> {
        let host = name.host();
        let listed = self.listed(host);
        let localhost = b"localhost";
        let is_localhost = host
            .strip_suffix(localhost)
            .is_some_and(|above| above.is_empty() || above.ends_with(b"."));
        if !is_localhost {
            return listed;
        }
        let loopback = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];
        Some(
            listed
                .filter(|list| list.iter().all(|addr| addr.is_loopback()))
                .unwrap_or_else(|| loopback.into_iter().collect()),
        )
    }

    /// Number of different names.
    pub const fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether the file gave no name.
    pub const fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Lines that were skipped, whole or in part.
    pub const fn bad_lines(&self) -> u32 {
        self.bad_lines
    }

    /// Whether the file was longer than [`HOSTS_BYTES_MAX`].
    pub const fn is_cut(&self) -> bool {
        self.is_cut
    }

    fn listed(&self, host: &[u8]) -> Option<AddrList> {
        let found = self.records.binary_search_by(|record| self.name(record).cmp(host)).ok()?;
        let record = self.records[found];
        let start = record.addrs_at as usize;
        let addrs = &self.addrs[start..start + usize::from(record.addrs_len)];
        Some(addrs.iter().copied().collect())
    }

    fn name(&self, record: &Record) -> &[u8] {
        let start = record.name_at as usize;
        &self.names[start..start + usize::from(record.name_len)]
    }

    fn build(names: &[u8], mut mentions: Vec<Mention>) -> Self {
        let name_of = |mention: &Mention| {
            let start = mention.name_at as usize;
            &names[start..start + usize::from(mention.name_len)]
        };
        // Stable: addresses of one name stay in file order.
        mentions.sort_by(|a, b| name_of(a).cmp(name_of(b)));
        let mut kept = Vec::new();
        let mut addrs = Vec::new();
        let mut records = Vec::new();
        for same in mentions.chunk_by(|a, b| name_of(a) == name_of(b)) {
            let list: AddrList = same.iter().map(|mention| mention.addr).collect();
            records.push(Record {
                name_at: offset(kept.len()),
                addrs_at: offset(addrs.len()),
                name_len: same[0].name_len,
                addrs_len: u8::try_from(list.len()).expect("an AddrList holds 16"),
            });
            kept.extend_from_slice(name_of(&same[0]));
            addrs.extend(list.iter());
        }
        Self { names: kept.into(), addrs: addrs.into(), records: records.into(), ..Self::default() }
    }
}

impl fmt::Debug for Hosts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hosts")
            .field("len", &self.len())
            .field("bad_lines", &self.bad_lines)
            .field("is_cut", &self.is_cut)
            .finish_non_exhaustive()
    }
}

/// Adds what a line says; `false` when some of it could not be used.
fn read_line(line: &[u8], names: &mut Vec<u8>, mentions: &mut Vec<Mention>) -> bool {
    let line = line.split(|&b| b == b'#').next().unwrap_or_default();
    let mut words = line.split(|b| b.is_ascii_whitespace()).filter(|word| !word.is_empty());
    let Some(first) = words.next() else {
        return true;
    };
    // An address with an interface (`fe80::1%lo0`) does not parse: a list has no place for it.
    let addr = std::str::from_utf8(first).ok().and_then(|text| text.parse::<IpAddr>().ok());
    let Some(addr) = addr else {
        return false;
    };
    let mut is_good = true;
    let mut has_name = false;
    for word in words {
        has_name = true;
        let Ok(name) = Name::parse_bytes(word) else {
            is_good = false;
            continue;
        };
        let host = name.host();
        mentions.push(Mention {
            name_at: offset(names.len()),
            name_len: u8::try_from(host.len()).expect("a name has at most 253 bytes"),
            addr,
        });
        names.extend_from_slice(host);
    }
    is_good && has_name
}

fn offset(len: usize) -> u32 {
    u32::try_from(len).expect("names and addresses are fewer than the bytes of the file")
}

#[cfg(test)]
mod tests;
