use super::*;
use crate::MethodError;

#[test]
fn every_name_finds_its_method() {
    for method in METHODS {
        assert_eq!(Method::from_name(method.name()), Ok(method));
        assert_eq!(method.to_string(), method.name());
        assert_eq!(method.salt_len(), method.key_len());
        assert_eq!(method.aead().is_none(), method == Method::None);
        assert_eq!(method.is_2022(), method.name().starts_with("2022-"));
    }
    assert_eq!(Method::from_name("plain"), Ok(Method::None));
}

#[test]
fn names_are_exact() {
    for name in ["", "AES-256-GCM", " aes-256-gcm", "aes-256-gcm ", "aes_256_gcm", "2022", "aead"] {
        assert_eq!(Method::from_name(name), Err(MethodError::Unknown), "{name:?}");
    }
}

#[test]
fn removed_stream_ciphers_name_what_to_write_instead() {
    let aes = Method::Aes256Gcm;
    let chacha = Method::ChaCha20IetfPoly1305;
    for (name, replacement) in [
        ("rc4-md5", aes),
        ("rc4", aes),
        ("table", aes),
        ("aes-256-cfb", aes),
        ("aes-128-ctr", aes),
        ("aes-256-cfb8", aes),
        ("bf-cfb", aes),
        ("camellia-192-cfb", aes),
        ("AES-256-CFB", aes),
        ("chacha20", chacha),
        ("chacha20-ietf", chacha),
        ("salsa20", chacha),
        ("xchacha20", chacha),
    ] {
        let error = MethodError::Removed { replacement };
        assert_eq!(Method::from_name(name), Err(error), "{name}");
        assert!(error.to_string().contains(replacement.name()));
    }
    for name in ["aes-128-ccm", "aes-256-gcm-siv", "sm4-gcm"] {
        assert_eq!(Method::from_name(name), Err(MethodError::Unsupported { replacement: aes }));
    }
}

#[test]
fn an_unknown_name_lists_every_method() {
    let text = MethodError::Unknown.to_string();
    assert!(METHODS.iter().all(|m| text.contains(m.name())), "{text}");
}
