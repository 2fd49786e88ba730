//! Argon2id (RFC 9106) in the PHC string form
//! `$argon2id$v=19$m=19456,t=2,p=1$SALT$HASH`, salt and hash in base64 without padding.

use std::fmt;

use argon2::{Algorithm, Argon2, Block, Params, Version};
use data_encoding::BASE64_NOPAD;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

/// Memory of a hash that we write, in KiB: OWASP's first choice, and Alighieri's.
const MEMORY_KIB: u32 = 19 * 1024;
const PASSES: u32 = 2;
const LANES: u32 = 1;
/// Most memory of a hash that is read, in KiB: 1 GiB. What asks for more is a mistake or an attack on
/// this host.
const MEMORY_KIB_MAX: u32 = 1 << 20;
/// Most passes of a hash that is read.
const PASSES_MAX: u32 = 64;
/// Most lanes of a hash that is read; they are computed one after the other.
const LANES_MAX: u32 = 16;
/// Bytes of a salt that we write.
pub const SALT_LEN: usize = 16;
const SALT_LEN_MAX: usize = 64;
const SALT_LEN_MIN: usize = 8;
const HASH_LEN: usize = 32;
const HASH_LEN_MAX: usize = 64;

/// What a hash costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cost {
    memory_kib: u32,
    passes: u32,
    lanes: u32,
    version: Version,
}

const COST: Cost =
    Cost { memory_kib: MEMORY_KIB, passes: PASSES, lanes: LANES, version: Version::V0x13 };

/// A password's hash with its salt and cost.
#[derive(Clone, PartialEq, Eq)]
pub struct PasswordHash {
    cost: Cost,
    salt: Box<[u8]>,
    hash: Box<[u8]>,
}

/// Why a text is no [`PasswordHash`]. Whoever wrote the file should let the program write the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HashError {
    /// Not `$argon2id$…`, or without a hash at its end.
    NotArgon2id,
    /// A cost that is malformed, too low for the algorithm, or more than this program pays.
    Cost,
    /// Salt or hash are not base64, or of a length that is not allowed.
    Encoding,
}

impl fmt::Display for HashError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotArgon2id => "not a hash of Argon2id; write the user anew with \"adit user add\"",
            Self::Cost => {
                "the cost of the hash is malformed or beyond 1 GiB, 64 passes or 16 lanes; write the \
                 user anew with \"adit user add\""
            }
            Self::Encoding => {
                "salt or hash are damaged; write the user anew with \"adit user add\""
            }
        })
    }
}

impl std::error::Error for HashError {}

/// Memory that hashes are computed in, kept between them: as large as the costliest so far.
#[derive(Default)]
pub struct Memory(Vec<Block>);

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Memory({} KiB)", self.0.len())
    }
}

impl Memory {
    fn blocks(&mut self, params: &Params) -> &mut [Block] {
        let count = params.block_count();
        if self.0.len() < count {
            self.0.resize(count, Block::default());
        }
        &mut self.0[..count]
    }
}

impl PasswordHash {
    /// Hashes a password. Takes some 20 ms and as many MiB of memory.
    pub fn create(password: &[u8], salt: [u8; SALT_LEN], memory: &mut Memory) -> Self {
        let mut hash = [0; HASH_LEN];
        COST.compute(password, &salt, &mut hash, memory)
            .expect("our own cost and lengths are within the algorithm's limits");
        Self { cost: COST, salt: salt.into(), hash: hash.into() }
    }

    /// Reads the PHC form.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Self, HashError> {
        let rest = text.strip_prefix("$argon2id$").ok_or(HashError::NotArgon2id)?;
        let mut fields: Vec<&str> = rest.split('$').collect();
        // Without a version it is 0x10 (the PHC form's older days).
        let version = match fields.first().and_then(|field| field.strip_prefix("v=")) {
            Some("19") => Version::V0x13,
            Some("16") | None => Version::V0x10,
            Some(_) => return Err(HashError::Cost),
        };
        if fields.first().is_some_and(|field| field.starts_with("v=")) {
            fields.remove(0);
        }
        let [cost, salt, hash] = fields[..] else { return Err(HashError::NotArgon2id) };
        let cost = Cost::parse(cost, version).ok_or(HashError::Cost)?;
        let decode = |text: &str, least: usize, most: usize| {
            let bytes = BASE64_NOPAD.decode(text.as_bytes()).map_err(|_| HashError::Encoding)?;
            let fits = (least..=most).contains(&bytes.len());
            if fits { Ok(bytes.into_boxed_slice()) } else { Err(HashError::Encoding) }
        };
        Ok(Self {
            cost,
            salt: decode(salt, SALT_LEN_MIN, SALT_LEN_MAX)?,
            hash: decode(hash, 16, HASH_LEN_MAX)?,
        })
    }

    /// True if it is the hash of `password`. Takes as long whatever the answer is.
    pub fn verify(&self, password: &[u8], memory: &mut Memory) -> bool {
        let mut hash = Zeroizing::new([0; HASH_LEN_MAX]);
        let hash = &mut hash[..self.hash.len()];
        let computed = self.cost.compute(password, &self.salt, hash, memory);
        // The limits of the algorithm were checked when the hash was read.
        computed.is_ok() && bool::from(hash.ct_eq(&self.hash))
    }
}

impl Cost {
    /// Reads `m=19456,t=2,p=1`, in any order.
    fn parse(text: &str, version: Version) -> Option<Self> {
        let (mut memory_kib, mut passes, mut lanes) = (None, None, None);
        for field in text.split(',') {
            let (name, value) = field.split_once('=')?;
            let is_number = value.bytes().all(|byte| byte.is_ascii_digit());
            let slot = match name {
                "m" => &mut memory_kib,
                "t" => &mut passes,
                "p" => &mut lanes,
                _ => return None,
            };
            if slot.replace(value.parse().ok().filter(|_| is_number)?).is_some() {
                return None;
            }
        }
        let cost = Self { memory_kib: memory_kib?, passes: passes?, lanes: lanes?, version };
        let is_payable = cost.memory_kib <= MEMORY_KIB_MAX
            && cost.passes <= PASSES_MAX
            && cost.lanes <= LANES_MAX
            && cost.params(HASH_LEN).is_some();
        is_payable.then_some(cost)
    }

    fn params(self, hash_len: usize) -> Option<Params> {
        Params::new(self.memory_kib, self.passes, self.lanes, Some(hash_len)).ok()
    }

    fn compute(
        self,
        password: &[u8],
        salt: &[u8],
        hash: &mut [u8],
        memory: &mut Memory,
    ) -> Result<(), argon2::Error> {
        let params = self.params(hash.len()).ok_or(argon2::Error::OutputTooShort)?;
        let blocks = memory.blocks(&params);
        Argon2::new(Algorithm::Argon2id, self.version, params)
            .hash_password_into_with_memory(password, salt, hash, blocks)
    }
}

impl fmt::Display for PasswordHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Cost { memory_kib, passes, lanes, version } = self.cost;
        let version = u32::from(version);
        let [salt, hash] = [&self.salt, &self.hash].map(|bytes| BASE64_NOPAD.encode(bytes));
        write!(f, "$argon2id$v={version}$m={memory_kib},t={passes},p={lanes}${salt}${hash}")
    }
}

// A hash is a secret too: it can be guessed against.
impl fmt::Debug for PasswordHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PasswordHash").field("cost", &self.cost).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_verify() {
        let mut memory = Memory::default();
        let hash = PasswordHash::create(b"benchpass", [7; SALT_LEN], &mut memory);
        let text = hash.to_string();
        assert!(
            text.starts_with("$argon2id$v=19$m=19456,t=2,p=1$BwcHBwcHBwcHBwcHBwcHBw$"),
            "{text}"
        );
        let read = PasswordHash::parse(&text).unwrap();
        assert_eq!(read, hash);
        assert!(read.verify(b"benchpass", &mut memory));
        for wrong in [&b"benchpas"[..], b"benchpass ", b"", b"Benchpass"] {
            assert!(!read.verify(wrong, &mut memory));
        }
        assert!(!format!("{hash:?}").contains("BwcH"));
    }

    /// Known answers of the reference implementation's tests (`test.c`, argon2id, version 0x13).
    #[test]
    fn known_answers() {
        let mut memory = Memory::default();
        for (text, password) in [
            (
                "$argon2id$v=19$m=256,t=2,p=1$c29tZXNhbHQ$nf65EOgLrQMR/uIPnA4rEsF5h7TKyQwu9U1bMCHGi/4",
                "password",
            ),
            (
                "$argon2id$v=19$m=256,t=2,p=2$c29tZXNhbHQ$bQk8UB/VmZZF4Oo79iDXuL5/0ttZwg2f/5U52iv1cDc",
                "password",
            ),
            (
                "$argon2id$v=19$m=65536,t=2,p=1$c29tZXNhbHQ$CTFhFdXPJO1aFaMaO6Mm5c8y7cJHAph8ArZWb2GRPPc",
                "password",
            ),
        ] {
            let hash = PasswordHash::parse(text).unwrap();
            assert!(hash.verify(password.as_bytes(), &mut memory), "{text}");
            assert!(!hash.verify(b"passwore", &mut memory), "{text}");
            assert_eq!(hash.to_string(), text);
        }
    }

    #[test]
    fn refuses_what_is_no_hash() {
        for text in [
            "",
            "$argon2i$v=19$m=256,t=2,p=1$c29tZXNhbHQ$nf65EOgLrQMR/uIPnA4rEsF5h7TKyQwu9U1bMCHGi/4",
            "$argon2id$v=19$m=256,t=2,p=1$c29tZXNhbHQ",
            "$argon2id$v=18$m=256,t=2,p=1$c29tZXNhbHQ$nf65EOgLrQMR/uIPnA4rEsF5h7TKyQwu9U1bMCHGi/4",
            "$argon2id$v=19$m=256,t=2$c29tZXNhbHQ$nf65EOgLrQMR/uIPnA4rEsF5h7TKyQwu9U1bMCHGi/4",
            "$argon2id$v=19$m=256,m=256,t=2,p=1$c29tZXNhbHQ$nf65EOgLrQMR/uIPnA4rEsF5h7TKyQwu9U1bMCHGi/4",
            "$argon2id$v=19$m=4294967295,t=2,p=1$c29tZXNhbHQ$nf65EOgLrQMR/uIPnA4rEsF5h7TKyQwu9U1bMCHGi/4",
            "$argon2id$v=19$m=256,t=0,p=1$c29tZXNhbHQ$nf65EOgLrQMR/uIPnA4rEsF5h7TKyQwu9U1bMCHGi/4",
            "$argon2id$v=19$m=256,t=1000,p=1$c29tZXNhbHQ$nf65EOgLrQMR/uIPnA4rEsF5h7TKyQwu9U1bMCHGi/4",
            "$argon2id$v=19$m=1,t=2,p=1$c29tZXNhbHQ$nf65EOgLrQMR/uIPnA4rEsF5h7TKyQwu9U1bMCHGi/4",
            "$argon2id$v=19$m=256,t=2,p=1$c29t$nf65EOgLrQMR/uIPnA4rEsF5h7TKyQwu9U1bMCHGi/4",
            "$argon2id$v=19$m=256,t=2,p=1$c29tZXNhbHQ$*",
            "$argon2id$v=19$m=256,t=2,p=1$c29tZXNhbHQ$AAAA",
        ] {
            assert!(PasswordHash::parse(text).is_err(), "{text}");
        }
    }
}
