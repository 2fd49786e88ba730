//! Finding the programs.

use std::path::{Path, PathBuf};

/// Path of one of our programs: `ss-local`, `ss-server`, `ss-tunnel` or `adit`.
///
/// Cargo builds the programs of a package before it runs the package's tests, and tells the tests
/// where they are, so that none of an earlier build is tested by mistake.
///
/// # Panics
/// When the program is not there, or the test was not started by Cargo.
pub fn program(name: &str) -> PathBuf {
    let path = match std::env::var_os("ADIT_BIN_DIR") {
        Some(dir) => Path::new(&dir).join(name),
        None => std::env::var_os(format!("CARGO_BIN_EXE_{name}"))
            .expect(
                "run the tests with cargo test, or name a directory of programs in ADIT_BIN_DIR",
            )
            .into(),
    };
    assert!(path.is_file(), "{} does not exist", path.display());
    path
}
