//! Bodies of fuzz targets; they live here so that `fuzz/` needs nothing private.

use crate::hash::PasswordHash;
use crate::list::{with_user, without_user};

/// A hash that is cheap to write and never computed.
const HASH: &str =
    "$argon2id$v=19$m=256,t=2,p=1$c29tZXNhbHQ$nf65EOgLrQMR/uIPnA4rEsF5h7TKyQwu9U1bMCHGi/4";

/// Edits `data` as a file of users: a user who was added is there, and is gone when deleted.
pub fn userlist(data: &[u8]) {
    let hash = PasswordHash::parse(HASH).expect("a hash");
    let Ok((text, _)) = with_user(data, "fuzz", &hash) else { return };
    let (rest, found) = without_user(text.as_bytes(), "fuzz").expect("what was written is read");
    assert!(found);
    assert!(!without_user(rest.as_bytes(), "fuzz").expect("what was written is read").1);
}

/// Reads `data` as a hash; what is read is written the same way again.
pub fn password_hash(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(hash) = PasswordHash::parse(text) {
        assert_eq!(PasswordHash::parse(&hash.to_string()).as_ref(), Ok(&hash));
    }
}
