//! Bodies of fuzz targets; they live here so that `fuzz/` needs nothing private.

use std::io;
use std::path::{Path, PathBuf};

use adit_policy::Prefix;

use crate::{Environment, Files, Language, load};

/// One file, of any name; includes find the same one again.
#[derive(Debug)]
struct One<'a>(&'a [u8]);

impl Files for One<'_> {
    fn read(&self, _path: &Path) -> io::Result<Vec<u8>> {
        Ok(self.0.to_vec())
    }

    fn canonical(&self, path: &Path) -> io::Result<PathBuf> {
        Ok(path.to_path_buf())
    }

    fn list(&self, _directory: &Path) -> io::Result<Vec<String>> {
        Ok(vec!["a.conf".into(), "b.conf".into()])
    }
}

fn interface(name: &str) -> Option<Vec<Prefix>> {
    let prefix = Prefix::parse("192.0.2.1/24").ok()?;
    (name == "eth0").then(|| vec![prefix])
}

/// Reads `data` as a configuration in `language`, and compiles its rules. True if both worked.
pub fn configuration(data: &[u8], language: Language) -> bool {
    let Ok(loaded) = load(Path::new("a.conf"), language, &One(data)) else { return false };
    assert!(!loaded.config.listeners.is_empty());
    let environment = Environment { interface: &interface, countries: None };
    match loaded.config.policy(&environment) {
        Ok(_) => true,
        Err(findings) => {
            assert!(!findings.is_empty());
            false
        }
    }
}
