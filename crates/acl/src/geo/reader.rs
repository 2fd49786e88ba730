//! Reads the MaxMind DB format, as far as countries need it.
//!
//! Source: "MaxMind DB File Format Specification" 2.0. A file is
//! `tree | 16 zero bytes | data | marker | metadata`. A tree node is two records; a record below
//! the number of nodes is another node, that number means nothing, a larger one is a data offset.

use std::collections::HashMap;
use std::net::IpAddr;

use super::{Country, GeoError};
use crate::ranges;

const MARKER: &[u8] = b"\xab\xcd\xefMaxMind.com";
/// The specification's limit for the metadata with its marker.
const METADATA_LEN_MAX: usize = 128 * 1024;
/// Zero bytes between tree and data.
const SEPARATOR_LEN: usize = 16;
/// Values in values; databases have about five.
const DEPTH_MAX: u8 = 16;
/// Values that are skipped or read for one record; databases have some hundreds at most.
const STEPS_MAX: u32 = 10_000;
/// Bits of the addresses of an IPv6 tree, and where the IPv4 tree starts in it.
const TREE_BITS: u32 = 128;
const V4_TREE_AT: u32 = 96;

/// A database of countries, in memory as it is on disk.
pub struct GeoDatabase {
    bytes: Vec<u8>,
    layout: Layout,
}

/// What the metadata says, checked against the length of the file.
#[derive(Clone, Copy, Debug)]
struct Layout {
    node_count: u32,
    /// Bytes of a node: 6, 7 or 8.
    node_len: usize,
    is_v6: bool,
    /// The root of the IPv4 addresses.
    v4_root: u32,
    data_start: usize,
    data_end: usize,
}

/// Where one side of a node leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Branch {
    Node(u32),
    Nothing,
    /// An offset in the data section.
    Data(usize),
}

impl GeoDatabase {
    /// Reads the metadata of a file's contents and keeps them.
    ///
    /// # Errors
    /// The bytes are no such file, or one that is cut off.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Self, GeoError> {
        let layout = Layout::read(&bytes)?;
        let mut database = Self { bytes, layout };
        database.layout.v4_root = database.find_v4_root()?;
        Ok(database)
    }

    /// The country of `addr`, if the database knows one. Does not allocate.
    ///
    /// # Errors
    /// [`GeoError::Damaged`]; treat the address as one of no country.
    pub fn country(&self, addr: IpAddr) -> Result<Option<Country>, GeoError> {
        let number = ranges::number(addr.to_canonical());
        let (mut node, bits) = match addr.to_canonical() {
            IpAddr::V4(_) => (self.layout.v4_root, 32),
            IpAddr::V6(_) if self.layout.is_v6 => (0, TREE_BITS),
            IpAddr::V6(_) => return Ok(None),
        };
        if node >= self.layout.node_count {
            return self.country_of(self.layout.branch(node));
        }
        for bit in (0..bits).rev() {
            match self.branch(node, number >> bit & 1 == 1)? {
                Branch::Node(next) => node = next,
                end => return self.country_of(end),
            }
        }
        Err(GeoError::Damaged)
    }

    /// Calls `found` with every range of addresses that has a country: first and last address as
    /// numbers, IPv4 in its IPv4-mapped form (`::ffff:0:0/96`).
    ///
    /// IPv4 is visited once, where its tree is; its aliases in the IPv6 tree (mapped, 6to4,
    /// Teredo) are left out.
    ///
    /// # Errors
    /// [`GeoError::Damaged`]; what was found until then may be wrong.
    pub fn walk(&self, found: &mut dyn FnMut(Country, u128, u128)) -> Result<(), GeoError> {
        let mut walk = Walk {
            database: self,
            countries: HashMap::new(),
            // Each node has one parent, but for aliases, which are not followed.
            steps_left: u64::from(self.layout.node_count) * 2 + 2,
            visited: None,
            found,
        };
        let v4_root = self.layout.v4_root;
        walk.descend(v4_root, ranges::number(IpAddr::from([0; 4])), 32)?;
        if self.layout.is_v6 {
            walk.visited = Some(v4_root).filter(|&root| root < self.layout.node_count);
            walk.descend(0, 0, TREE_BITS)?;
        }
        Ok(())
    }

    /// Follows 96 zero bits. The tree may end on the way: a record above all IPv4 addresses.
    fn find_v4_root(&self) -> Result<u32, GeoError> {
        let mut node = 0;
        if self.layout.is_v6 {
            for _ in 0..V4_TREE_AT {
                if node >= self.layout.node_count {
                    break;
                }
                node = self.record(node, false)?;
            }
        }
        Ok(node)
    }

    fn branch(&self, node: u32, is_right: bool) -> Result<Branch, GeoError> {
        Ok(self.layout.branch(self.record(node, is_right)?))
    }

    /// One of the two numbers of a node.
    fn record(&self, node: u32, is_right: bool) -> Result<u32, GeoError> {
        let start = node as usize * self.layout.node_len;
        let node = self.bytes.get(start..start + self.layout.node_len).ok_or(GeoError::Damaged)?;
        let number = match *node {
            [a, b, c, _, _, _] if !is_right => [0, a, b, c],
            [_, _, _, a, b, c] => [0, a, b, c],
            // The middle byte holds the four high bits of both.
            [a, b, c, high, _, _, _] if !is_right => [high >> 4, a, b, c],
            [_, _, _, high, a, b, c] => [high & 0xf, a, b, c],
            [a, b, c, d, _, _, _, _] if !is_right => [a, b, c, d],
            [_, _, _, _, a, b, c, d] => [a, b, c, d],
            _ => return Err(GeoError::Damaged),
        };
        Ok(u32::from_be_bytes(number))
    }

    fn country_of(&self, branch: Branch) -> Result<Option<Country>, GeoError> {
        match branch {
            Branch::Data(offset) => self.data().country(offset),
            Branch::Nothing | Branch::Node(_) => Ok(None),
        }
    }

    fn data(&self) -> Section<'_> {
        let bytes = self.bytes.get(self.layout.data_start..self.layout.data_end);
        Section::new(bytes.unwrap_or_default())
    }
}

impl std::fmt::Debug for GeoDatabase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GeoDatabase").field("layout", &self.layout).finish_non_exhaustive()
    }
}

impl Layout {
    fn read(bytes: &[u8]) -> Result<Self, GeoError> {
        let tail_start = bytes.len().saturating_sub(METADATA_LEN_MAX);
        let tail = bytes.get(tail_start..).unwrap_or_default();
        let marker = tail
            .windows(MARKER.len())
            .rposition(|window| window == MARKER)
            .ok_or(GeoError::NotADatabase)?;
        let metadata = Section::new(&tail[marker + MARKER.len()..]);
        let number = |key: &str| -> Result<u32, GeoError> {
            match metadata.clone().member(0, key)? {
                Some(Value::Number(number)) => Ok(number),
                _ => Err(GeoError::NotADatabase),
            }
        };
        if number("binary_format_major_version")? != 2 {
            return Err(GeoError::NotADatabase);
        }
        let node_count = number("node_count")?;
        let node_len = match number("record_size")? {
            24 => 6,
            28 => 7,
            32 => 8,
            _ => return Err(GeoError::NotADatabase),
        };
        let is_v6 = match number("ip_version")? {
            4 => false,
            6 => true,
            _ => return Err(GeoError::NotADatabase),
        };
        let data_start = (node_count as usize)
            .checked_mul(node_len)
            .and_then(|len| len.checked_add(SEPARATOR_LEN))
            .ok_or(GeoError::Damaged)?;
        let data_end = tail_start + marker;
        if data_start > data_end || node_count == 0 {
            return Err(GeoError::Damaged);
        }
        Ok(Self { node_count, node_len, is_v6, v4_root: 0, data_start, data_end })
    }

    /// Where a record leads.
    fn branch(&self, record: u32) -> Branch {
        match record.checked_sub(self.node_count) {
            None => Branch::Node(record),
            Some(0) => Branch::Nothing,
            // Data offsets are counted from the separator.
            Some(offset) => match (offset as usize).checked_sub(SEPARATOR_LEN) {
                Some(offset) => Branch::Data(offset),
                None => Branch::Nothing,
            },
        }
    }
}

/// A visit to all leaves.
struct Walk<'a> {
    database: &'a GeoDatabase,
    /// Records are shared by many leaves.
    countries: HashMap<usize, Option<Country>>,
    steps_left: u64,
    /// The root of the IPv4 tree once that has been visited: `::/96` and its aliases lead there.
    visited: Option<u32>,
    found: &'a mut dyn FnMut(Country, u128, u128),
}

impl Walk<'_> {
    /// Visits what is below `record`, the addresses from `first` with `bits` more bits.
    fn descend(&mut self, record: u32, first: u128, bits: u32) -> Result<(), GeoError> {
        self.steps_left = self.steps_left.checked_sub(1).ok_or(GeoError::Damaged)?;
        match self.database.layout.branch(record) {
            Branch::Nothing => Ok(()),
            Branch::Data(offset) => {
                let country = match self.countries.get(&offset) {
                    Some(&country) => country,
                    None => {
                        let country = self.database.data().country(offset)?;
                        self.countries.insert(offset, country);
                        country
                    }
                };
                if let Some(country) = country {
                    let last = 1u128.checked_shl(bits).map_or(u128::MAX, |size| first | (size - 1));
                    (self.found)(country, first, last);
                }
                Ok(())
            }
            Branch::Node(node) => {
                let bits = bits.checked_sub(1).ok_or(GeoError::Damaged)?;
                for is_right in [false, true] {
                    let next = self.database.record(node, is_right)?;
                    let first = first | u128::from(is_right) << bits;
                    if self.visited != Some(next) {
                        self.descend(next, first, bits)?;
                    }
                }
                Ok(())
            }
        }
    }
}

/// A value, as far as countries need it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Value<'a> {
    Text(&'a [u8]),
    Number(u32),
    /// So many pairs follow at the offset.
    Map(u32, usize),
    /// So many values follow at the offset.
    Array(u32, usize),
    /// Numbers of other sizes, booleans, bytes.
    Other,
}

/// A data section that is being read.
#[derive(Clone, Debug)]
struct Section<'a> {
    bytes: &'a [u8],
    steps_left: u32,
}

impl<'a> Section<'a> {
    const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, steps_left: STEPS_MAX }
    }

    /// The country of the record at `offset`.
    ///
    /// MaxMind and DB-IP have `country.iso_code`, IPinfo `country_code` or `country`, and the
    /// databases of sing-box are the bare code.
    fn country(mut self, offset: usize) -> Result<Option<Country>, GeoError> {
        let (record, _) = self.value(offset)?;
        let code = |value: Value<'_>| match value {
            Value::Text(text) => std::str::from_utf8(text).ok().and_then(Country::new),
            _ => None,
        };
        let Value::Map(..) = record else {
            return Ok(code(record));
        };
        for key in ["country", "country_code", "registered_country"] {
            let found = match self.member(offset, key)? {
                Some(map @ Value::Map(..)) => self.find(map, "iso_code")?,
                found => found,
            };
            if let Some(country) = found.and_then(code) {
                return Ok(Some(country));
            }
        }
        Ok(None)
    }

    /// The value of `key` in the map at `offset`.
    fn member(&mut self, offset: usize, key: &str) -> Result<Option<Value<'a>>, GeoError> {
        let (map, _) = self.value(offset)?;
        self.find(map, key)
    }

    fn find(&mut self, map: Value<'a>, key: &str) -> Result<Option<Value<'a>>, GeoError> {
        let Value::Map(pairs, mut at) = map else {
            return Ok(None);
        };
        for _ in 0..pairs {
            let (name, value_at) = self.value(at)?;
            let Value::Text(name) = name else {
                return Err(GeoError::Damaged);
            };
            if name == key.as_bytes() {
                return Ok(Some(self.value(value_at)?.0));
            }
            at = self.skip(value_at, 0)?;
        }
        Ok(None)
    }

    /// The value at `at`, pointers followed, and where the next one starts; for maps and arrays
    /// that is where their contents start unless they were pointed to.
    fn value(&mut self, at: usize) -> Result<(Value<'a>, usize), GeoError> {
        let control = Control::read(self.bytes, at)?;
        self.spend()?;
        let Control::Pointer { to, next } = control else {
            return self.plain(control);
        };
        // A pointer to a pointer is not allowed.
        match Control::read(self.bytes, to)? {
            Control::Pointer { .. } => Err(GeoError::Damaged),
            pointed => Ok((self.plain(pointed)?.0, next)),
        }
    }

    fn plain(&self, control: Control) -> Result<(Value<'a>, usize), GeoError> {
        let Control::Value { kind, size, start } = control else {
            return Err(GeoError::Damaged);
        };
        let len = match kind {
            MAP => return Ok((Value::Map(size, start), start)),
            ARRAY => return Ok((Value::Array(size, start), start)),
            // A boolean's size is its value.
            BOOLEAN => 0,
            _ => size as usize,
        };
        let end = start.checked_add(len).ok_or(GeoError::Damaged)?;
        let bytes = self.bytes.get(start..end).ok_or(GeoError::Damaged)?;
        let value = match kind {
            TEXT => Value::Text(bytes),
            // Big endian, leading zero bytes left out.
            UINT16 | UINT32 if bytes.len() <= 4 => {
                Value::Number(bytes.iter().fold(0, |number, &byte| number << 8 | u32::from(byte)))
            }
            DOUBLE | BYTES | INT32 | UINT64 | UINT128 | FLOAT | BOOLEAN => Value::Other,
            _ => return Err(GeoError::Damaged),
        };
        Ok((value, end))
    }

    /// Where the value after the one at `at` starts.
    fn skip(&mut self, at: usize, depth: u8) -> Result<usize, GeoError> {
        if depth > DEPTH_MAX {
            return Err(GeoError::Damaged);
        }
        let control = Control::read(self.bytes, at)?;
        self.spend()?;
        if let Control::Pointer { next, .. } = control {
            return Ok(next);
        }
        let (value, mut next) = self.plain(control)?;
        let values = match value {
            Value::Map(pairs, _) => u64::from(pairs) * 2,
            Value::Array(values, _) => u64::from(values),
            Value::Text(_) | Value::Number(_) | Value::Other => 0,
        };
        for _ in 0..values {
            next = self.skip(next, depth + 1)?;
        }
        Ok(next)
    }

    fn spend(&mut self) -> Result<(), GeoError> {
        self.steps_left = self.steps_left.checked_sub(1).ok_or(GeoError::Damaged)?;
        Ok(())
    }
}

/// Types, as in the specification.
const POINTER: u8 = 1;
const TEXT: u8 = 2;
const DOUBLE: u8 = 3;
const BYTES: u8 = 4;
const UINT16: u8 = 5;
const UINT32: u8 = 6;
const MAP: u8 = 7;
const INT32: u8 = 8;
const UINT64: u8 = 9;
const UINT128: u8 = 10;
const ARRAY: u8 = 11;
const BOOLEAN: u8 = 14;
const FLOAT: u8 = 15;

/// What precedes a value.
#[derive(Clone, Copy, Debug)]
enum Control {
    Pointer { to: usize, next: usize },
    Value { kind: u8, size: u32, start: usize },
}

impl Control {
    fn read(bytes: &[u8], at: usize) -> Result<Self, GeoError> {
        let byte_at = |at: usize| bytes.get(at).copied().ok_or(GeoError::Damaged);
        let control = byte_at(at)?;
        let low = control & 0x1f;
        let mut start = at + 1;
        // Big endian bytes from `start`, which moves past them.
        let mut number = |len: u8| -> Result<u32, GeoError> {
            let mut number = 0;
            for _ in 0..len {
                number = number << 8 | u32::from(byte_at(start)?);
                start += 1;
            }
            Ok(number)
        };
        let kind = match control >> 5 {
            POINTER => {
                let extra = low >> 3;
                let high = u32::from(low & 7);
                let to = match extra {
                    0 => (high << 8) + number(1)?,
                    1 => (high << 16) + number(2)? + 2048,
                    2 => (high << 24) + number(3)? + 526_336,
                    _ => number(4)?,
                };
                return Ok(Self::Pointer { to: to as usize, next: start });
            }
            // Types above 7 are in the next byte, less 7.
            0 => 7u8
                .checked_add(u8::try_from(number(1)?).unwrap_or(u8::MAX))
                .ok_or(GeoError::Damaged)?,
            kind => kind,
        };
        let size = match low {
            29 => 29 + number(1)?,
            30 => 285 + number(2)?,
            31 => 65_821 + number(3)?,
            size => u32::from(size),
        };
        Ok(Self::Value { kind, size, start })
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
