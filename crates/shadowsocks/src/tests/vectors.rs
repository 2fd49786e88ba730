//! Known answers, written from the texts of SIP004, SIP022 and SIP023 by another program.

use adit_crypto::{BlockKey, Secret, TAG_LEN, hkdf_sha1};
use adit_wire::Target;
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::*;
use crate::fuzz::Reader;
use crate::seal::{CONTEXT_IDENTITY, CONTEXT_SESSION};
use crate::{Reaction, Reject};

const FILE: &str =
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/vectors/shadowsocks.json"));

pub(super) fn file() -> Value {
    serde_json::from_str(FILE).unwrap()
}

pub(super) fn cases(name: &str, count: usize) -> Vec<Value> {
    let Value::Array(cases) = file()[name].take() else { panic!("no vectors named {name}") };
    assert_eq!(cases.len(), count, "{name}");
    cases
}

pub(super) fn text<'a>(case: &'a Value, field: &str) -> &'a str {
    case[field].as_str().unwrap_or_else(|| panic!("no text {field} in {case}"))
}

pub(super) fn hex(text: &str) -> Vec<u8> {
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap())
        .collect()
}

pub(super) fn bytes(case: &Value, field: &str) -> Vec<u8> {
    hex(text(case, field))
}

fn list<'a>(case: &'a Value, field: &str, inner: &str) -> Vec<Vec<u8>> {
    let items: &'a [Value] = case[field].as_array().map_or(&[], Vec::as_slice);
    items.iter().map(|item| bytes(item, inner)).collect()
}

pub(super) fn method(case: &Value) -> Method {
    Method::from_name(text(case, "method")).unwrap()
}

fn salt(case: &Value) -> [u8; SALT_LEN_MAX] {
    let mut salt = [0; SALT_LEN_MAX];
    let given = bytes(case, "salt");
    salt[..given.len()].copy_from_slice(&given);
    salt
}

/// The request salt of the response vectors: 00 01 02 …
fn request_salt(method: Method) -> [u8; SALT_LEN_MAX] {
    let mut salt = [0; SALT_LEN_MAX];
    for (i, byte) in salt[..method.salt_len()].iter_mut().enumerate() {
        *byte = i as u8;
    }
    salt
}

#[track_caller]
fn assert_wire(case: &Value, wire: &[u8]) {
    let name = format!("{} {}", text(case, "method"), text(case, "name"));
    if case["wire"].is_string() {
        assert_eq!(wire, bytes(case, "wire"), "{name}");
    }
    assert_eq!(wire.len() as u64, case["wire_len"].as_u64().unwrap(), "{name}");
    let digest: [u8; 32] = Sha256::digest(wire).into();
    assert_eq!(digest.as_slice(), bytes(case, "wire_sha256"), "{name}");
}

/// Payloads of the vectors that only give a hash.
fn hashed_payloads(name: &str) -> Option<Vec<Vec<u8>>> {
    let address = b"\x01\xc0\x00\x02\x01\x01\xbb".to_vec();
    Some(match name {
        "max chunk" => vec![address, pattern(0x3FFF), b"\x2a".to_vec()],
        "nonce carry" => std::iter::once(address).chain((0..200).map(|i| vec![i])).collect(),
        _ => return None,
    })
}

#[test]
fn sip004_streams_are_sealed_byte_for_byte_and_read_back() {
    for case in cases("sip004_tcp", 30) {
        let method = method(&case);
        let password = text(&case, "password");
        let client_key = ClientKey::parse(method, password).unwrap();
        let server_key = ServerKey::parse(method, password, []).unwrap();
        assert_eq!(client_key.session().as_bytes(), bytes(&case, "key"));
        let first = FirstRecord { salt: salt(&case), unix_s: NOW, padding_len: 0 };
        let payloads = hashed_payloads(text(&case, "name"))
            .unwrap_or_else(|| list(&case, "chunks", "payload"));
        let is_request = !text(&case, "name").starts_with("response");
        let (mut sealer, mut wire) = if is_request {
            let used = Target::parse(&payloads[0]).unwrap().1;
            let (target, payload) = payloads[0].split_at(used);
            request_with(&client_key, target, &first, payload)
        } else {
            let mut buf = laid_out(Sealer::response_head_len(method), &payloads[0]);
            let session = Accepted::session(&server_key, None);
            let (sealer, len) =
                Sealer::response_with(method, session, &[], &first, &mut buf, payloads[0].len());
            buf.truncate(len);
            (sealer, buf)
        };
        for payload in &payloads[1..] {
            wire.extend(record(&mut sealer, payload));
        }
        assert_wire(&case, &wire);

        let mut reader = if is_request {
            Reader::server(&server_key, NOW, None)
        } else {
            Reader::client(&client_key, [0; SALT_LEN_MAX], NOW, None)
        };
        reader.feed(&wire).unwrap();
        assert!(reader.at_end());
        let mut expected = payloads.concat();
        if let Some((target, user, salt)) = &reader.request {
            expected.drain(..target.as_bytes().len());
            assert_eq!((payloads.concat().starts_with(target.as_bytes()), *user), (true, None));
            assert_eq!(*salt, first.salt);
        }
        assert_eq!(reader.request.is_some(), is_request);
        assert_eq!(reader.plain, expected);
    }
}

#[test]
fn sip004_faults_are_refused_or_waited_for() {
    for case in cases("sip004_tcp_negative", 6) {
        let method = method(&case);
        let key = ServerKey::parse(method, text(&case, "password"), []).unwrap();
        let replay = std::sync::Mutex::new(crate::ReplaySet::by_count(10));
        let mut reader = Reader::server(&key, NOW, Some(&replay));
        let end = reader.feed(&bytes(&case, "wire"));
        let name = text(&case, "name");
        let expected = match name {
            "length tag wrong" | "payload tag wrong" => Err(Reject::Authentication),
            "length 0x4001 (reserved bits set)" => Err(Reject::RecordLength(0x4001)),
            // Empty records mean nothing and are skipped, even before the address.
            "zero length first chunk" | "truncated after salt" | "truncated mid payload" => Ok(()),
            other => panic!("a vector without an expectation: {other}"),
        };
        assert_eq!(end, expected, "{name}");
        assert!(reader.plain.is_empty() && reader.request.is_none() || end.is_ok(), "{name}");
        if let Err(error) = end {
            assert_eq!(error.reaction(method), Reaction::Drain);
        }
        let accepted = reader.request.is_some();
        assert_eq!(replay.into_inner().unwrap().len(), usize::from(accepted), "{name}: salt");
    }
}

#[test]
fn sip022_streams_are_sealed_byte_for_byte_and_read_back() {
    for case in cases("sip022_tcp", 26) {
        match text(&case, "name") {
            name if name.starts_with("response") => check_response(&case),
            _ => check_request(&case),
        }
    }
}

fn check_request(case: &Value) {
    let method = method(case);
    let key = ClientKey::parse(method, text(case, "password_field")).unwrap();
    let name = text(case, "name");
    let (variable, later) = if name == "big chunk" {
        (b"\x01\xc0\x00\x02\x01\x01\xbb\x00\x00\x78".to_vec(), vec![pattern(0xFFFF)])
    } else {
        let calls = list(case, "aead_calls", "plaintext");
        (calls[1].clone(), calls[3.min(calls.len())..].to_vec())
    };
    let (target, behind) = variable.split_at(Target::parse(&variable).unwrap().1);
    let padding_len = usize::from(u16::from_be_bytes([behind[0], behind[1]]));
    let payload = &behind[2 + padding_len..];
    let first = FirstRecord { salt: salt(case), unix_s: case_time(case), padding_len };
    let (mut sealer, mut wire) = request_with(&key, target, &first, payload);
    let flight_len = wire.len();
    for payload in &later {
        wire.extend(record(&mut sealer, payload));
    }
    if padding_len == 0 {
        assert_wire(case, &wire);
    } else {
        // The vector pads with aa, we with 00; the tag behind the padding differs with it.
        let start = flight_len - TAG_LEN - padding_len;
        wire[start..start + padding_len].iter_mut().for_each(|b| *b ^= 0xaa);
        let mut expected = bytes(case, "wire");
        assert_eq!(wire[..flight_len - TAG_LEN], expected[..flight_len - TAG_LEN], "{name}");
        assert_eq!(wire[flight_len..], expected[flight_len..], "{name}");
        wire.clear();
        wire.append(&mut expected);
    }
    read_request(case, &wire, target, &[payload, &later.concat()].concat());
}

/// Reads a request as the end point behind the relays that its identity headers name.
fn read_request(case: &Value, wire: &[u8], target: &[u8], plain: &[u8]) {
    let method = method(case);
    let fields: Vec<&str> = text(case, "password_field").split(':').collect();
    let (user, identities) = fields.split_last().unwrap();
    let mut wire = wire.to_vec();
    for (i, header) in list(case, "identity_headers", "header").iter().enumerate() {
        let at = method.salt_len() + 16 * i;
        assert_eq!(&wire[at..at + 16], header);
    }
    if identities.len() == 2 {
        // The relay in front takes its header off.
        wire.drain(method.salt_len()..method.salt_len() + 16);
        assert_eq!(wire, bytes(case, "after_first_relay"));
    }
    let key = match identities.last() {
        None => ServerKey::parse(method, user, []).unwrap(),
        Some(identity) => {
            let other = ["MDEyMzQ1Njc4OTAxMjM0NQ", "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE"];
            let other = other[usize::from(method.key_len() == 32)];
            ServerKey::parse(method, identity, [("other", other), ("vector", *user)]).unwrap()
        }
    };
    let mut reader = Reader::server(&key, case_time(case), None);
    reader.feed(&wire).unwrap();
    let (asked, found, salt) = reader.request.as_ref().unwrap();
    assert_eq!(asked.as_bytes(), target);
    assert_eq!(salt[..method.salt_len()], bytes(case, "salt"));
    let name = found.map(|u| key.users()[usize::from(u)].name());
    assert_eq!(name, (!identities.is_empty()).then_some("vector"));
    assert_eq!(reader.plain, plain);
    assert!(reader.at_end());
    let expected = bytes(case, "psk_hex");
    assert_eq!(Accepted::session(&key, *found).as_bytes(), expected);
}

fn check_response(case: &Value) {
    let method = method(case);
    let key = ClientKey::parse(method, text(case, "password_field")).unwrap();
    let calls = list(case, "aead_calls", "plaintext");
    let payloads: Vec<&[u8]> = calls[1..].iter().step_by(2).map(Vec::as_slice).collect();
    let echoed = request_salt(method);
    let first = FirstRecord { salt: salt(case), unix_s: case_time(case), padding_len: 0 };
    let mut wire = laid_out(Sealer::response_head_len(method), payloads[0]);
    let psk = Secret::new(&bytes(case, "psk_hex"));
    let (mut sealer, len) =
        Sealer::response_with(method, &psk, &echoed, &first, &mut wire, payloads[0].len());
    wire.truncate(len);
    for payload in &payloads[1..] {
        wire.extend(record(&mut sealer, payload));
    }
    assert_wire(case, &wire);
    let mut reader = Reader::client(&key, echoed, case_time(case), None);
    reader.feed(&wire).unwrap();
    assert_eq!(reader.plain, payloads.concat());
    assert!(reader.at_end());
}

fn case_time(case: &Value) -> u64 {
    case["timestamp"].as_u64().unwrap()
}

#[test]
fn sip022_faults_are_refused_with_their_reason() {
    for case in cases("sip022_tcp_negative", 20) {
        let method = method(&case);
        let wire = bytes(&case, "wire");
        let name = text(&case, "name");
        let expected = match name {
            "timestamp 31 s in the past" => Err(Reject::Clock(-31)),
            "timestamp 31 s in the future" => Err(Reject::Clock(31)),
            "timestamp exactly 30 s in the past" => Ok(()),
            "timestamp 2^64-1" => Err(Reject::Clock(i64::MAX)),
            "type 1 sent to a server" => Err(Reject::StreamType(1)),
            "no payload and no padding" => Err(Reject::NoPadding),
            "padding length runs past the variable header"
            | "variable header of 3 bytes"
            | "variable header length 0" => Err(Reject::HeaderLength),
            "response with a foreign request salt (client side)" => Err(Reject::ForeignRequestSalt),
            other => panic!("a vector without an expectation: {other}"),
        };
        let password = text(&case, "password_field");
        let client_key = ClientKey::parse(method, password).unwrap();
        let server_key = ServerKey::parse(method, password, []).unwrap();
        let mut reader = if name.starts_with("response") {
            Reader::client(&client_key, request_salt(method), case_time(&case), None)
        } else {
            Reader::server(&server_key, case_time(&case), None)
        };
        assert_eq!(reader.feed(&wire), expected, "{name}");
        assert_eq!(reader.is_open(), expected.is_ok());
        assert_eq!(reader.plain.is_empty(), expected.is_err());
        if let Err(error) = expected {
            assert_eq!(error.reaction(method), Reaction::Reset);
        }
        if name.starts_with("response") {
            let zero = [0; SALT_LEN_MAX];
            let mut reader = Reader::client(&client_key, zero, case_time(&case), None);
            assert_eq!(reader.feed(&wire), Ok(()), "the request it answers");
        }
    }
}

#[test]
fn sizes_and_contexts_match_the_vectors() {
    let file = file();
    let params = file["sip004_params"].as_object().unwrap();
    assert_eq!(params.len(), ciphers_sip004().count());
    for (name, sizes) in params {
        let method = Method::from_name(name).unwrap();
        assert_eq!(sizes["key"], method.key_len());
        assert_eq!(sizes["salt"], method.salt_len());
        assert_eq!(sizes["nonce"], method.aead().unwrap().nonce_len());
        assert_eq!(sizes["tag"], TAG_LEN);
    }
    assert_eq!(file["sip022_contexts"]["session"], CONTEXT_SESSION);
    assert_eq!(file["sip022_contexts"]["identity"], CONTEXT_IDENTITY);
    assert_eq!(file["sip022_fixed_time"], NOW);
    for case in cases("hkdf_sha1", 5) {
        let method = method(&case);
        let mut subkey = vec![0; method.key_len()];
        hkdf_sha1(&bytes(&case, "key"), &bytes(&case, "salt"), b"ss-subkey", &mut subkey);
        assert_eq!(subkey, bytes(&case, "subkey"));
    }
}

#[test]
fn identity_subkeys_match_the_vectors() {
    let mut seen = 0;
    for case in cases("sip022_tcp", 26) {
        let salt = bytes(&case, "salt");
        for header in case["identity_headers"].as_array().into_iter().flatten() {
            let psk = Secret::new(&bytes(header, "ipsk"));
            let mut block: [u8; 16] = bytes(header, "next_psk_hash16").try_into().unwrap();
            BlockKey::new(&bytes(header, "identity_subkey")).encrypt_block(&mut block);
            assert_eq!(block.as_slice(), bytes(header, "header"));
            crate::seal::identity_key(&psk, &salt).decrypt_block(&mut block);
            assert_eq!(block.as_slice(), bytes(header, "next_psk_hash16"));
            seen += 1;
        }
    }
    assert_eq!(seen, 6);
}

#[test]
fn passwords_lead_to_the_keys_of_the_vectors() {
    for case in cases("evp_bytes_to_key_md5", 21) {
        let key_len = case["key_len"].as_u64().unwrap();
        let password = text(&case, "password");
        let expected = bytes(&case, "key");
        for method in ciphers_sip004().filter(|m| m.key_len() as u64 == key_len) {
            let raw = data_encoding::BASE64.encode(&expected);
            let (client, server) =
                (ClientKey::from_raw(method, &raw), ServerKey::from_raw(method, &raw));
            if password.is_empty() {
                assert!(ClientKey::parse(method, password).err() == Some(crate::KeyError::Empty));
                assert!(
                    ServerKey::parse(method, password, []).err() == Some(crate::KeyError::Empty)
                );
                continue;
            }
            assert!(ClientKey::parse(method, password) == client);
            assert!(ServerKey::parse(method, password, []) == server);
            assert_eq!(client.unwrap().session().as_bytes(), expected);
        }
    }
}
