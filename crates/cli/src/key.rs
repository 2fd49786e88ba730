//! `adit key`: fresh keys.

use std::ffi::OsString;

use adit_crypto::Rng;
use adit_shadowsocks::Method;
use data_encoding::BASE64;

use crate::Failure::Usage;
use crate::{Outcome, print};

const HELP: &str = "\
Usage: adit key [METHOD]

Prints a fresh random key: for a 2022 method its pre-shared key, for another method a
password of the same strength. The default method is 2022-blake3-aes-256-gcm.
";

/// Length of the random bytes behind a password for methods that take any password.
const PASSWORD_BYTES: usize = 32;

pub(crate) fn run(args: Vec<OsString>) -> Outcome {
    let mut parser = lexopt::Parser::from_args(args);
    let mut method = Method::Blake3Aes256Gcm;
    while let Some(arg) = parser.next()? {
        match arg {
            lexopt::Arg::Long("help") | lexopt::Arg::Short('h') => return print(HELP),
            lexopt::Arg::Value(name) => {
                let name = name.to_string_lossy();
                method = Method::from_name(&name).map_err(|e| Usage(e.to_string()))?;
            }
            other => return Err(other.unexpected().into()),
        }
    }
    print(&(fresh(method).map_err(Usage)? + "\n"))
}

/// A fresh key or password for a method, as it goes into a configuration.
pub(crate) fn fresh(method: Method) -> Result<String, String> {
    let mut rng = Rng::new().map_err(|e| format!("no random numbers: {}", e.as_label()))?;
    let mut bytes = [0; PASSWORD_BYTES];
    let len = if method.is_2022() { method.key_len() } else { PASSWORD_BYTES };
    let bytes = &mut bytes[..len];
    rng.fill(bytes);
    Ok(BASE64.encode(bytes))
}
