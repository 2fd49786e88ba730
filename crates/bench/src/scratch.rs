//! A private directory for configuration files and logs, removed when dropped.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::rand::{GetRandomFlags, getrandom};

use crate::error::{Context, Error};

/// A directory of mode 0700 under the system's temporary directory.
pub(crate) struct Scratch {
    path: PathBuf,
}

impl Scratch {
    /// Makes a fresh directory.
    pub(crate) fn new() -> Result<Self, Error> {
        let suffix: String = random_bytes(8)?.iter().map(|b| format!("{b:02x}")).collect();
        let path = std::env::temp_dir().join(format!("adit-bench-{suffix}"));
        let made = DirBuilder::new().mode(0o700).create(&path);
        made.context(|| format!("cannot make {}", path.display()))?;
        Ok(Self { path })
    }

    /// Path of a file in the directory.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Writes a new file of mode 0600.
    pub(crate) fn write(&self, name: &str, text: &str) -> Result<PathBuf, Error> {
        let path = self.file(name);
        let written = create_private(&path).and_then(|mut file| file.write_all(text.as_bytes()));
        written.context(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.path) {
            crate::report::note(&format!("cannot remove {}: {error}", self.path.display()));
        }
    }
}

/// Creates a file that did not exist, readable by its owner alone.
pub(crate) fn create_private(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

/// Random bytes from the kernel.
pub(crate) fn random_bytes(len: usize) -> Result<Vec<u8>, Error> {
    let mut bytes = vec![0; len];
    let filled = getrandom(&mut bytes, GetRandomFlags::empty()).map_err(io::Error::from);
    if filled.context(|| "cannot get random bytes".to_owned())? != len {
        return Err(Error::Run("the kernel gave too few random bytes".to_owned()));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn is_private_and_goes_away() {
        let scratch = Scratch::new().unwrap();
        let file = scratch.write("a.json", "{}").unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&file), 0o600);
        assert_eq!(mode(file.parent().unwrap()), 0o700);
        drop(scratch);
        assert!(!file.exists());
    }

    #[test]
    fn does_not_overwrite() {
        let scratch = Scratch::new().unwrap();
        scratch.write("a", "1").unwrap();
        assert!(scratch.write("a", "2").is_err());
    }
}
