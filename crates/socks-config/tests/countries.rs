//! `geoip:` in rules, with a database made here.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
#![cfg(feature = "geoip")]

use std::io;
use std::path::{Path, PathBuf};

use adit_acl::GeoDatabase;
use adit_policy::{Command, Destination, Method, ProxyProtocol, Request, WeekTime};
use adit_socks_config::{Environment, Files, Language, load};

#[derive(Debug)]
struct One<'a>(&'a str);

impl Files for One<'_> {
    fn read(&self, _path: &Path) -> io::Result<Vec<u8>> {
        Ok(self.0.as_bytes().to_vec())
    }

    fn canonical(&self, path: &Path) -> io::Result<PathBuf> {
        Ok(path.to_path_buf())
    }

    fn list(&self, _directory: &Path) -> io::Result<Vec<String>> {
        Ok(Vec::new())
    }
}

/// 0.0.0.0/1 is NL and 128.0.0.0/1 is DE: one node, two records of 24 bits, two records of data.
fn database() -> GeoDatabase {
    let record = |code: &[u8; 2]| {
        let mut data = b"\xe1\x47country\xe1\x48iso_code\x42".to_vec();
        data.extend_from_slice(code);
        data
    };
    let (first, second) = (record(b"NL"), record(b"DE"));
    let offset = u8::try_from(first.len()).unwrap();
    // A record above the number of nodes is an offset into the data, plus that number and 16.
    let mut file = vec![0, 0, 1 + 16, 0, 0, 1 + 16 + offset];
    file.extend_from_slice(&[0; 16]);
    file.extend_from_slice(&first);
    file.extend_from_slice(&second);
    file.extend_from_slice(&adit_acl::fuzz::metadata(1, 24, 4));
    GeoDatabase::from_bytes(file).unwrap()
}

const BASE: &str = "internal: 127.0.0.1:1080\ngeoip.database: /x.mmdb\n";

#[test]
fn rules_name_countries() {
    let text = format!(
        "{BASE}socks block {{ to: geoip:de }}\nsocks pass {{ to: geoip:NL from: geoip:DE }}"
    );
    let config = load(Path::new("a"), Language::Adit, &One(&text)).unwrap().config;
    let database = database();
    let environment = Environment { interface: &|_| None, countries: Some(&database) };
    let policy = config.policy(&environment).unwrap().policy;
    let passes = |from: &str, to: &str| {
        let request = Request {
            from: from.parse().unwrap(),
            user: None,
            method: Method::None,
            command: Command::Connect,
            proxy_protocol: ProxyProtocol::Socks5,
            port: 443,
            time: WeekTime::of_local_seconds(0),
        };
        policy.judge(&request, Destination::Addr(to.parse().unwrap(), None)).is_pass()
    };
    assert!(passes("192.0.2.1:1", "9.9.9.9"));
    assert!(!passes("9.9.9.9:1", "9.9.9.9"), "from another country");
    assert!(!passes("192.0.2.1:1", "192.0.2.2"), "to another country");
    assert!(!passes("192.0.2.1:1", "127.0.0.1"), "a country names nothing that is protected");
    assert!(!passes("192.0.2.1:1", "2001:db8::1"), "of no country");
}

#[test]
fn a_country_without_addresses_is_an_error() {
    let text = format!("{BASE}socks pass {{ to: geoip:FR }}");
    let config = load(Path::new("a"), Language::Adit, &One(&text)).unwrap().config;
    let database = database();
    let environment = Environment { interface: &|_| None, countries: Some(&database) };
    let found = config.policy(&environment).unwrap_err();
    assert!(found[0].to_string().contains("geoip:FR"), "{found:?}");
}
