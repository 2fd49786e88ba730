//! Published examples, forms met in the wild, and round trips.

use std::path::Path;

use proptest::prelude::*;
use serde_json::Value;

use super::*;
use crate::check::check_bytes;
use crate::config::Role;

#[test]
fn reads_the_published_vectors() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/vectors/shadowsocks.json");
    let vectors: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let uris = vectors["uri"].as_array().unwrap();
    assert!(uris.len() >= 7);
    for vector in uris {
        let uri = vector["uri"].as_str().unwrap();
        let link = Link::parse(uri).unwrap_or_else(|e| panic!("{uri}: {e}"));
        assert_eq!(link.method, vector["method"].as_str().unwrap(), "{uri}");
        assert_eq!(link.password.as_str(), vector["password"].as_str().unwrap(), "{uri}");
        assert_eq!(link.endpoint.host.to_string(), vector["host"].as_str().unwrap(), "{uri}");
        assert_eq!(u64::from(link.endpoint.port), vector["port"].as_u64().unwrap(), "{uri}");
        assert_eq!(link.tag.as_deref(), vector["tag"].as_str(), "{uri}");
        let plugin = link.plugin.as_ref();
        assert_eq!(plugin.map(|p| p.name.as_str()), vector["plugin"].as_str(), "{uri}");
        let options = plugin.and_then(|p| p.options.as_deref());
        assert_eq!(options, vector["plugin_opts"].as_str(), "{uri}");
        assert_eq!(Link::parse(&link.encode()).unwrap(), link, "{uri}");
    }
}

/// Links as they are found in the wild, and what is said about those that are none of ours.
fn wild() -> Value {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/vectors/links.json");
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

#[test]
fn reads_links_from_the_wild() {
    let wild = wild();
    let links = wild["links"].as_array().unwrap();
    assert!(links.len() >= 40);
    for vector in links {
        let (text, note) = (vector["link"].as_str().unwrap(), &vector["note"]);
        let link = Link::parse(text).unwrap_or_else(|e| panic!("{note}: {text}: {e}"));
        assert_eq!(link.method, vector["method"].as_str().unwrap(), "{note}");
        assert_eq!(link.password.as_str(), vector["password"].as_str().unwrap(), "{note}");
        assert_eq!(link.endpoint.host.to_string(), vector["host"].as_str().unwrap(), "{note}");
        assert_eq!(u64::from(link.endpoint.port), vector["port"].as_u64().unwrap(), "{note}");
        assert_eq!(link.tag.as_deref(), vector["tag"].as_str(), "{note}");
        let plugin = link.plugin.as_ref();
        assert_eq!(plugin.map(|p| p.name.as_str()), vector["plugin"].as_str(), "{note}");
        let options = plugin.and_then(|p| p.options.as_deref());
        assert_eq!(options, vector["plugin_opts"].as_str(), "{note}");
        assert_eq!(Link::parse(&link.encode()).unwrap(), link, "{note}");
    }
}

#[test]
fn says_what_to_write_instead_of_other_links() {
    let wild = wild();
    let refused = wild["refused"].as_array().unwrap();
    assert!(refused.len() >= 20);
    for vector in refused {
        let (text, says) = (vector["link"].as_str().unwrap(), vector["says"].as_str().unwrap());
        let error = Link::parse(text).expect_err(text).to_string();
        assert!(error.contains(says), "{text}: {error}");
        assert!(!error.contains("hunter2"), "{text}: {error}");
    }
}

#[test]
fn reads_lists_of_links() {
    let plain = "# servers\r\n\r\nss://aes-256-gcm:x@a.example:1#A\r\n vmess://abc\nss://aes-256-gcm:x@b.example:2\n";
    let packed = data_encoding::BASE64.encode(plain.as_bytes());
    let wrapped: Vec<&str> =
        packed.as_bytes().chunks(20).map(|chunk| std::str::from_utf8(chunk).unwrap()).collect();
    let url = BASE64URL_NOPAD.encode(plain.as_bytes());
    for text in [plain, &packed, &wrapped.join("\r\n"), &url, &format!("{packed}\n")] {
        let entries = entries(text).unwrap_or_else(|| panic!("{text}"));
        assert_eq!(entries.iter().map(|entry| entry.line).collect::<Vec<_>>(), [3, 4, 5], "{text}");
        assert_eq!(entries[0].link.as_ref().unwrap().tag.as_deref(), Some("A"));
        assert_eq!(entries[1].link.as_ref().unwrap_err(), &LinkError::Foreign("vmess"));
        assert_eq!(entries[2].link.as_ref().unwrap().endpoint.to_string(), "b.example:2");
    }
    for text in ["", "\n", "hello", "aGVsbG8=", "://", "{\"a\": 1}", "<html>", "\u{fffd}"] {
        assert!(entries(text).is_none(), "{text}");
    }
}

#[test]
fn the_configuration_of_a_link_has_nothing_to_warn_about() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/vectors/shadowsocks.json");
    let vectors: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let mut tagged = 0;
    for vector in vectors["uri"].as_array().unwrap() {
        let uri = vector["uri"].as_str().unwrap();
        let link = Link::parse(uri).unwrap();
        if link.plugin.is_some() {
            continue;
        }
        let json = link.to_json();
        let report = check_bytes(Path::new("c.json"), json.as_bytes(), None, &|_| None);
        let report = report.unwrap_or_else(|e| panic!("{uri}: {e:?}"));
        assert_eq!(report.warnings, [], "{json}");
        let Role::Client { servers, .. } = report.config.role else { panic!("{json}") };
        assert_eq!(servers[0].endpoint, link.endpoint);
        assert_eq!(servers[0].name.as_deref(), link.tag.as_deref());
        tagged += usize::from(link.tag.is_some());
    }
    assert!(tagged > 0);
}

#[test]
fn reads_every_form_of_the_same_server() {
    // All are aes-256-gcm, "a>b?c" or "1234@22###", at example.com:8388.
    for (text, password) in [
        ("ss://YWVzLTI1Ni1nY206YT5iP2M@example.com:8388", "a>b?c"),
        ("ss://YWVzLTI1Ni1nY206YT5iP2M=@example.com:8388/", "a>b?c"),
        ("ss://YWVzLTI1Ni1nY206YT5iP2M%3D@example.com:8388", "a>b?c"),
        ("ss://YWVzLTI1Ni1nY206YT5iP2M%3d@example.com:8388?", "a>b?c"),
        ("ss://aes-256-gcm:a%3Eb%3Fc@example.com:8388", "a>b?c"),
        ("ss://aes-256-gcm%3Aa%3Eb%3Fc@example.com:8388", "a>b?c"),
        ("SS://aes-256-gcm:a>b%3fc@example.com", "a>b?c"),
        ("ss://aes-256-gcm:1234@22%23%23%23@example.com:8388", "1234@22###"),
        ("ss://YWVzLTI1Ni1nY206MTIzNEAyMiMjI0BleGFtcGxlLmNvbTo4Mzg4", "1234@22###"),
        ("ss://YWVzLTI1Ni1nY206MTIzNEAyMiMjI0BleGFtcGxlLmNvbTo4Mzg4/", "1234@22###"),
        (" ss://YWVzLTI1Ni1nY206MTIzNEAyMiMjI0BleGFtcGxlLmNvbTo4Mzg4\n", "1234@22###"),
        ("ss://aes-256-gcm:a%3Eb%3Fc@example.com:8388/?group=x&y#", "a>b?c"),
        ("ss://aes-256-gcm:a%3Eb%3Fc@example.com:8388/?plugin=", "a>b?c"),
    ] {
        let link = Link::parse(text).unwrap_or_else(|e| panic!("{text}: {e}"));
        assert_eq!(link.method, "aes-256-gcm", "{text}");
        assert_eq!(link.password.as_str(), password, "{text}");
        assert_eq!(link.endpoint.to_string(), "example.com:8388", "{text}");
        assert!(link.plugin.is_none() && link.tag.is_none(), "{text}");
    }
}

#[test]
fn keeps_several_keys() {
    let text = "ss://2022-blake3-aes-128-gcm:AAAA%2B%3D%3D:BBBB%3D%3D@[::1]:1#%E2%98%83";
    let link = Link::parse(text).unwrap();
    assert_eq!(link.password.as_str(), "AAAA+==:BBBB==");
    assert_eq!(link.tag.as_deref(), Some("☃"));
    assert_eq!(
        link.encode(),
        "ss://2022-blake3-aes-128-gcm:AAAA%2B%3D%3D%3ABBBB%3D%3D@[::1]:1#%E2%98%83"
    );
}

#[test]
fn unescapes_the_name_of_a_plugin() {
    let text = "ss://aes-128-gcm:x@h:1/?a=b&plugin=my%5C%3Bplug%3Bk%3Dv%5C%3B1&c";
    let plugin = Link::parse(text).unwrap().plugin.unwrap();
    assert_eq!((plugin.name.as_str(), plugin.options.as_deref()), ("my;plug", Some("k=v\\;1")));
}

#[test]
fn rejects_what_is_no_link_without_quoting_it() {
    for (text, error) in [
        ("", LinkError::Scheme),
        ("hunter2", LinkError::Scheme),
        ("http://hunter2@h:1", LinkError::Subscription),
        ("ss://", LinkError::NoServer),
        ("ss://hunter2!", LinkError::Base64),
        ("ss://hunter2!@h:1", LinkError::Base64),
        ("ss://YWVz@h:1", LinkError::NoPassword),
        ("ss://YWVzLTI1Ni1nY206aHVudGVyMg", LinkError::NoServer),
        ("ss://aes:hunter2%2@h:1", LinkError::Percent),
        ("ss://aes:hunter2%zz@h:1", LinkError::Percent),
        ("ss://aes:hunter2%ff@h:1", LinkError::Percent),
        ("ss://aes:hunter2@h:99999", LinkError::Server),
        ("ss://aes:hunter2@:1", LinkError::Server),
        ("ss://aes:hunter2@[::1:1", LinkError::Server),
        ("ss://aes:hunter2@2001:db8::1:8388", LinkError::Bare),
        ("ss://aes:hunter2@::1", LinkError::Bare),
        // The old form of the same: aes:hunter2@::1:1
        ("ss://YWVzOmh1bnRlcjJAOjoxOjE", LinkError::Bare),
        ("ss://:hunter2@h:1", LinkError::Method),
        ("ss://a b:hunter2@h:1", LinkError::Method),
        ("ss://aes:hunter2@h:1?plugin=%3Bx", LinkError::Plugin),
    ] {
        let found = Link::parse(text).expect_err(text);
        assert_eq!(found, error, "{text}");
        assert!(!found.to_string().contains("hunter2"), "{text}");
    }
    let long = format!("ss://{}", "a".repeat(LINK_LEN_MAX));
    assert_eq!(Link::parse(&long), Err(LinkError::TooLong));
}

#[test]
fn debug_output_hides_secrets() {
    let link = Link::parse("ss://aes:hunter2@h:1/?plugin=p%3Bkey%3Dhunter2").unwrap();
    assert!(!format!("{link:?}{:?}", link.plugin).contains("hunter2"));
}

proptest! {
    #[test]
    fn junk_never_panics(text in any::<String>()) {
        crate::fuzz::link(&text);
        crate::fuzz::link(&format!("ss://{text}"));
        let _ = entries(&text);
    }

    #[test]
    fn near_links_never_panic(text in "ss://[a-zA-Z0-9%:@\\[\\]/?#&=;\\\\._~+-]{0,50}") {
        crate::fuzz::link(&text);
    }

    #[test]
    fn reads_back_what_it_wrote(
        new in any::<bool>(),
        password in "\\PC{1,40}",
        host in "[a-z]{1,8}(\\.[a-z]{2,5})?|2001:db8::[1-9]|10\\.0\\.0\\.[1-9]",
        port in 1..=u16::MAX,
        tag in prop::option::of("\\PC{1,10}"),
        plugin in prop::option::of(("[a-z:;=\\\\]{1,8}", prop::option::of("\\PC{0,10}"))),
    ) {
        let method = if new { "2022-blake3-aes-128-gcm" } else { "aes-128-gcm" };
        let link = Link {
            method: method.into(),
            password: Password::new(password),
            endpoint: Host::parse(&host).unwrap().with_port(port),
            plugin: plugin.map(|(name, options)| LinkPlugin { name, options }),
            tag,
        };
        let text = link.encode();
        prop_assert!(text.is_ascii() && !text.contains(' '));
        prop_assert_eq!(Link::parse(&text).unwrap(), link);
    }
}
