//! A private directory for configuration files and logs, removed when dropped.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::failure::Failure;

/// Distinguishes the directories of one test program.
static NEXT: AtomicU32 = AtomicU32::new(0);

/// A directory of mode 0700 under the system's temporary directory.
pub(crate) struct Scratch {
    path: PathBuf,
}

impl Scratch {
    /// Makes a fresh directory; leftovers of a killed run with the same process id are passed over.
    pub(crate) fn new() -> Result<Self, Failure> {
        loop {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let name = format!("adit-interop-{}-{number}", std::process::id());
            let path = std::env::temp_dir().join(name);
            match DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return Ok(Self { path }),
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(Failure::io(format!("make {}", path.display()))(error)),
            }
        }
    }

    /// Path of a file in the directory.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Writes a new file of mode 0600.
    pub(crate) fn write(&self, name: &str, text: &str) -> Result<PathBuf, Failure> {
        let path = self.file(name);
        let written = create_private(&path)?.write_all(text.as_bytes());
        written.map_err(Failure::io(format!("write {}", path.display())))?;
        Ok(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A directory that stays behind harms no test.
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

/// Creates a file that did not exist, readable by its owner alone.
pub(crate) fn create_private(path: &Path) -> Result<File, Failure> {
    let made = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path);
    made.map_err(Failure::io(format!("create {}", path.display())))
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
        assert!(scratch.write("a.json", "{}").is_err());
        drop(scratch);
        assert!(!file.exists());
    }
}
