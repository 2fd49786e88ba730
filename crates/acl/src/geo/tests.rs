//! Databases made here, read by our reader and by `maxminddb`.

use std::net::IpAddr;

use maxminddb::{PathElement, Reader};
use proptest::prelude::{Just, ProptestConfig, any, prop_assert_eq, prop_oneof, proptest};

use super::{Country, GeoDatabase, GeoError};
use crate::fuzz;
use crate::ranges;

/// A value of a record.
#[derive(Clone, Debug)]
enum Datum {
    Text(&'static str),
    Number(u32),
    Short(u8),
    Long(u8),
    Map(Vec<(&'static str, Self)>),
    Array(Vec<Self>),
    Bool(bool),
    Double(f64),
    /// A pointer to an offset in the data section.
    Pointer(u32),
}

/// Where a side of a node leads.
#[derive(Clone, Copy, Debug)]
enum Side {
    Nothing,
    Node(usize),
    Record(usize),
}

/// A database that is being made.
struct Writer {
    nodes: Vec<[Side; 2]>,
    data: Vec<u8>,
    is_v6: bool,
}

impl Writer {
    fn new(is_v6: bool) -> Self {
        Self { nodes: vec![[Side::Nothing; 2]], data: Vec::new(), is_v6 }
    }

    fn record(&mut self, datum: &Datum) -> usize {
        let offset = self.data.len();
        write(datum, &mut self.data);
        offset
    }

    fn insert(&mut self, prefix: &str, record: usize) {
        let (bits, len) = self.prefix(prefix);
        self.set(bits, len, Side::Record(record));
    }

    /// The node at which IPv4 starts, made if need be.
    fn alias(&mut self, prefix: &str) {
        let mut node = 0;
        for _ in 0..96 {
            match self.nodes[node][0] {
                Side::Node(next) => node = next,
                _ => panic!("insert IPv4 first"),
            }
        }
        let (bits, len) = self.prefix(prefix);
        self.set(bits, len, Side::Node(node));
    }

    fn prefix(&self, prefix: &str) -> (u128, u32) {
        let (addr, len) = prefix.split_once('/').unwrap();
        let len: u32 = len.parse().unwrap();
        match addr.parse().unwrap() {
            IpAddr::V4(addr) if self.is_v6 => (u128::from(addr.to_bits()), len + 96),
            IpAddr::V4(addr) => (u128::from(addr.to_bits()) << 96, len),
            IpAddr::V6(addr) => (addr.to_bits(), len),
        }
    }

    fn set(&mut self, bits: u128, len: u32, side: Side) {
        let mut node = 0;
        for depth in 0..len {
            let right = usize::from(bits >> (127 - depth) & 1 == 1);
            if depth + 1 == len {
                self.nodes[node][right] = side;
                return;
            }
            node = match self.nodes[node][right] {
                Side::Node(next) => next,
                // What was said about a larger prefix holds for both halves of it.
                other => {
                    self.nodes.push([other; 2]);
                    let next = self.nodes.len() - 1;
                    self.nodes[node][right] = Side::Node(next);
                    next
                }
            };
        }
    }

    fn finish(&self, record_bits: u16) -> Vec<u8> {
        let count = self.nodes.len() as u32;
        let number = |side: Side| match side {
            Side::Nothing => count,
            Side::Node(node) => node as u32,
            Side::Record(offset) => count + 16 + offset as u32,
        };
        let mut file = Vec::new();
        for node in &self.nodes {
            let [left, right] = node.map(number).map(u32::to_be_bytes);
            match record_bits {
                24 => {
                    file.extend_from_slice(&left[1..]);
                    file.extend_from_slice(&right[1..]);
                }
                28 => {
                    file.extend_from_slice(&left[1..]);
                    file.push(left[0] << 4 | right[0]);
                    file.extend_from_slice(&right[1..]);
                }
                _ => {
                    file.extend_from_slice(&left);
                    file.extend_from_slice(&right);
                }
            }
        }
        file.extend_from_slice(&[0; 16]);
        file.extend_from_slice(&self.data);
        file.extend_from_slice(&metadata(count, record_bits, if self.is_v6 { 6 } else { 4 }));
        file
    }
}

/// What `maxminddb` wants to see, and something to skip in front of it.
fn metadata(node_count: u32, record_bits: u16, ip_version: u16) -> Vec<u8> {
    let mut bytes = b"\xab\xcd\xefMaxMind.com".to_vec();
    let number = |number| Datum::Number(number);
    write(
        &Datum::Map(vec![
            ("description", Datum::Map(vec![("en", Datum::Text("made by a test"))])),
            ("languages", Datum::Array(vec![Datum::Text("en")])),
            ("database_type", Datum::Text("Test")),
            ("build_epoch", Datum::Long(1)),
            ("binary_format_minor_version", Datum::Short(0)),
            ("binary_format_major_version", Datum::Short(2)),
            ("node_count", number(node_count)),
            ("record_size", Datum::Short(record_bits as u8)),
            ("ip_version", Datum::Short(ip_version as u8)),
        ]),
        &mut bytes,
    );
    bytes
}

fn write(datum: &Datum, into: &mut Vec<u8>) {
    let mut head = |kind: u8, size: usize| {
        let low = if size < 29 { size as u8 } else { 29 };
        assert!(size < 285);
        into.push(if kind > 7 { low } else { kind << 5 | low });
        into.extend((kind > 7).then(|| kind - 7));
        into.extend((size >= 29).then(|| (size - 29) as u8));
    };
    match datum {
        Datum::Text(text) => {
            head(2, text.len());
            into.extend_from_slice(text.as_bytes());
        }
        Datum::Number(number) => {
            let bytes = number.to_be_bytes();
            let bytes = &bytes[number.leading_zeros() as usize / 8..];
            head(6, bytes.len());
            into.extend_from_slice(bytes);
        }
        Datum::Short(number) | Datum::Long(number) => {
            head(if matches!(datum, Datum::Short(_)) { 5 } else { 9 }, 1);
            into.push(*number);
        }
        Datum::Map(pairs) => {
            head(7, pairs.len());
            for (key, value) in pairs {
                write(&Datum::Text(key), into);
                write(value, into);
            }
        }
        Datum::Array(values) => {
            head(11, values.len());
            values.iter().for_each(|value| write(value, into));
        }
        Datum::Bool(value) => head(14, usize::from(*value)),
        Datum::Double(value) => {
            head(3, 8);
            into.extend_from_slice(&value.to_be_bytes());
        }
        &Datum::Pointer(to) if to < 2048 => {
            into.extend_from_slice(&[0x20 | (to >> 8) as u8, to as u8])
        }
        &Datum::Pointer(to) => {
            let [_, a, b, c] = (to - 2048).to_be_bytes();
            into.extend_from_slice(&[0x28 | a, b, c]);
        }
    }
}

/// A record like MaxMind's, with things to skip in front.
fn country(code: &'static str) -> Datum {
    let name = vec![("en", Datum::Text("some name of more than twenty-nine bytes"))];
    Datum::Map(vec![
        ("continent", Datum::Map(vec![("code", Datum::Text("EU")), ("names", Datum::Map(name))])),
        ("location", Datum::Array(vec![Datum::Double(1.5), Datum::Bool(true), Datum::Number(7)])),
        (
            "country",
            Datum::Map(vec![
                ("geoname_id", Datum::Number(70_000)),
                ("iso_code", Datum::Text(code)),
            ]),
        ),
    ])
}

fn code(code: &str) -> Option<Country> {
    Country::new(code)
}

fn addr(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn example(record_bits: u16) -> Vec<u8> {
    let mut writer = Writer::new(true);
    let [cn, de] = ["CN", "DE"].map(|code| writer.record(&country(code)));
    writer.insert("1.0.0.0/8", cn);
    writer.insert("1.2.0.0/16", de);
    writer.insert("223.255.255.255/32", cn);
    writer.insert("2001:db8::/32", de);
    writer.insert("2400::/12", cn);
    writer.alias("::ffff:0:0/96");
    writer.alias("2002::/16");
    writer.finish(record_bits)
}

#[test]
fn finds_the_country_of_an_address_with_every_record_size() {
    for record_bits in [24, 28, 32] {
        let database = GeoDatabase::from_bytes(example(record_bits)).unwrap();
        for (text, expected) in [
            ("1.0.0.1", code("CN")),
            ("1.2.3.4", code("DE")),
            ("::ffff:1.2.3.4", code("DE")),
            ("1.3.0.0", code("CN")),
            ("2.0.0.0", None),
            ("223.255.255.255", code("CN")),
            ("223.255.255.254", None),
            ("2001:db8::1", code("DE")),
            ("2001:db9::1", None),
            ("240f:ffff::", code("CN")),
        ] {
            assert_eq!(database.country(addr(text)), Ok(expected), "{text} {record_bits}");
        }
    }
}

#[test]
fn walks_every_range_once_and_no_alias() {
    let database = GeoDatabase::from_bytes(example(28)).unwrap();
    let mut found = Vec::new();
    database.walk(&mut |country, first, last| found.push((country, first, last))).unwrap();
    let size: u128 = found.iter().map(|&(_, first, last)| last - first + 1).sum();
    assert_eq!(size, (1 << 24) + 1 + (1u128 << 96) + (1u128 << 116));
    let holds = |text: &str| {
        let number = ranges::number(addr(text));
        found.iter().any(|&(_, first, last)| (first..=last).contains(&number))
    };
    assert!(holds("1.2.3.4") && holds("2001:db8::9"));
    assert!(!holds("2002:102:304::1") && !holds("::1.2.3.4"));
}

#[test]
fn reads_the_records_of_several_makers() {
    let nested = |code| Datum::Map(vec![("iso_code", Datum::Text(code))]);
    let mut writer = Writer::new(false);
    // Pointers of both short sizes: the shared record is far from the others.
    let shared = writer.record(&nested("FR"));
    let near = writer.record(&Datum::Map(vec![("country", Datum::Pointer(shared as u32))]));
    for _ in 0..80 {
        writer.record(&Datum::Text("some text that makes the data section longer"));
    }
    let far = writer.record(&nested("IT"));
    assert!(far > 2048);
    let records = [
        (near, code("FR")),
        (writer.record(&Datum::Map(vec![("country", Datum::Pointer(far as u32))])), code("IT")),
        (writer.record(&Datum::Text("cn")), code("CN")),
        (writer.record(&Datum::Text("private")), None),
        (writer.record(&Datum::Map(vec![("country_code", Datum::Text("US"))])), code("US")),
        (writer.record(&Datum::Map(vec![("country", Datum::Text("US"))])), code("US")),
        (
            writer.record(&Datum::Map(vec![
                ("registered_country", nested("JP")),
                ("country", nested("KR")),
            ])),
            code("KR"),
        ),
        (writer.record(&Datum::Map(vec![("registered_country", nested("JP"))])), code("JP")),
        (writer.record(&Datum::Map(vec![("city", Datum::Text("Berlin"))])), None),
        (writer.record(&Datum::Number(7)), None),
    ];
    for (i, &(record, _)) in (1..).zip(&records) {
        writer.insert(&format!("10.{i}.0.0/16"), record);
    }
    let database = GeoDatabase::from_bytes(writer.finish(24)).unwrap();
    for (i, &(_, expected)) in (1..).zip(&records) {
        assert_eq!(database.country(addr(&format!("10.{i}.2.3"))), Ok(expected), "record {i}");
    }
    assert_eq!(database.country(addr("2001:db8::1")), Ok(None), "no IPv6 in this file");
}

#[test]
fn refuses_what_is_no_database() {
    let good = example(24);
    let refuse = |bytes: &[u8]| GeoDatabase::from_bytes(bytes.to_vec()).map(|_| ()).unwrap_err();
    assert_eq!(refuse(b""), GeoError::NotADatabase);
    assert_eq!(refuse(b"<!doctype html>"), GeoError::NotADatabase);
    assert_eq!(refuse(&good[..good.len() / 2]), GeoError::NotADatabase, "cut off");
    assert_eq!(refuse(&metadata(1000, 24, 4)), GeoError::Damaged, "no tree");
    assert_eq!(refuse(&metadata(u32::MAX, 32, 6)), GeoError::Damaged);
    assert_eq!(refuse(&metadata(0, 24, 4)), GeoError::Damaged);
    assert_eq!(refuse(&metadata(1, 20, 4)), GeoError::NotADatabase);
    assert_eq!(refuse(&metadata(1, 24, 5)), GeoError::NotADatabase);
}

#[test]
fn refuses_a_tree_that_goes_in_circles() {
    for is_v6 in [false, true] {
        let mut writer = Writer::new(is_v6);
        writer.nodes[0] = [Side::Node(1), Side::Node(1)];
        writer.nodes.push([Side::Node(0), Side::Node(0)]);
        writer.nodes.push([Side::Node(1), Side::Node(2)]);
        let database = GeoDatabase::from_bytes(writer.finish(24)).unwrap();
        assert_eq!(database.country(addr("1.2.3.4")), Err(GeoError::Damaged));
        assert_eq!(database.walk(&mut |_, _, _| {}), Err(GeoError::Damaged));
    }
}

#[test]
fn refuses_records_that_are_damaged() {
    let damaged: [&[u8]; 8] = [
        b"\x3f\xff\xff\xff\xff",          // A pointer out of the section.
        b"\x20\x00",                      // A pointer to itself.
        b"\x5d",                          // A length that is cut off.
        b"\x44ab",                        // Text that is cut off.
        b"\xe1\xc1\x07\x42CN",            // A key that is a number.
        b"\xff\xff\xff\xff",              // A map of millions.
        b"\x00\xff",                      // An unknown type.
        b"\xe1\x41a\x1f\x04\xff\xff\xff", // A list of millions to skip.
    ];
    for (case, bytes) in damaged.iter().enumerate() {
        let mut writer = Writer::new(false);
        writer.data.extend_from_slice(bytes);
        writer.insert("10.0.0.0/8", 0);
        let mut file = writer.finish(24);
        // The metadata follows; a record must not run into it.
        let database = GeoDatabase::from_bytes(std::mem::take(&mut file)).unwrap();
        assert_eq!(database.country(addr("10.0.0.1")), Err(GeoError::Damaged), "case {case}");
        assert_eq!(database.walk(&mut |_, _, _| {}), Err(GeoError::Damaged), "case {case}");
    }
}

#[test]
fn metadata_of_the_fuzz_target_is_good() {
    let mut file = vec![0, 0, 1, 0, 0, 18];
    file.extend_from_slice(&[0; 16]);
    file.extend_from_slice(b"  \x42CN");
    file.extend_from_slice(&fuzz::metadata(1, 24, 4));
    let database = GeoDatabase::from_bytes(file).unwrap();
    assert_eq!(database.country(addr("127.0.0.1")), Ok(None));
    assert_eq!(database.country(addr("128.0.0.1")), Err(GeoError::Damaged), "19 - 1 - 16 is 1");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Random prefixes and addresses: the same answers as an independent reader, and as the walk.
    #[test]
    fn agrees_with_maxminddb(
        prefixes in proptest::collection::vec((any::<u32>(), 1u32..=32, 0usize..4), 1..20),
        v6 in proptest::collection::vec((any::<u64>(), 1u32..=64, 0usize..4), 0..10),
        others in proptest::collection::vec(any::<u32>(), 20),
        record_bits in prop_oneof![Just(24u16), Just(28), Just(32)],
        is_v6 in any::<bool>(),
    ) {
        let mut writer = Writer::new(is_v6);
        let records = ["CN", "DE", "US", "RU"].map(|code| writer.record(&country(code)));
        let mut addrs: Vec<IpAddr> = others.iter().map(|&bits| IpAddr::from(bits.to_be_bytes())).collect();
        for &(bits, len, record) in &prefixes {
            let addr = IpAddr::from(bits.to_be_bytes());
            writer.insert(&format!("{addr}/{len}"), records[record]);
            addrs.extend([addr, IpAddr::from((bits ^ 1).to_be_bytes())]);
        }
        for &(bits, len, record) in v6.iter().filter(|_| is_v6) {
            // Below 2000::/3, away from the IPv4 tree.
            let addr = IpAddr::from((u128::from(bits >> 3 | 1 << 61) << 64).to_be_bytes());
            writer.insert(&format!("{addr}/{}", len.max(3)), records[record]);
            addrs.push(addr);
        }
        let file = writer.finish(record_bits);
        let theirs = Reader::from_source(file.clone()).unwrap();
        let ours = GeoDatabase::from_bytes(file).unwrap();
        let mut ranges = Vec::new();
        ours.walk(&mut |country, first, last| ranges.push((country, first, last))).unwrap();
        for addr in addrs {
            let path = [PathElement::Key("country"), PathElement::Key("iso_code")];
            let expected: Option<&str> = theirs.lookup(addr).unwrap().decode_path(&path).unwrap();
            let expected = expected.map(|text| Country::new(text).unwrap());
            prop_assert_eq!(ours.country(addr), Ok(expected), "{}", addr);
            let number = ranges::number(addr);
            let walked = ranges.iter().find(|(_, first, last)| (*first..=*last).contains(&number));
            prop_assert_eq!(walked.map(|&(country, _, _)| country), expected, "{}", addr);
        }
    }

    /// Any byte changed: an answer or an error, in bounded time.
    #[test]
    fn survives_changed_bytes(at in any::<u16>(), byte in any::<u8>()) {
        let mut file = example(24);
        let at = usize::from(at) % file.len();
        file[at] = byte;
        fuzz::acl_geo(&file);
    }

    #[test]
    fn survives_junk(data in proptest::collection::vec(any::<u8>(), 0..400)) {
        fuzz::acl_geo(&data);
    }
}
