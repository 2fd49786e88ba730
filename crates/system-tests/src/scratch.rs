//! A private directory of one test, removed when dropped.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A directory of mode 0700 under the system's temporary directory.
pub struct Scratch(PathBuf);

impl Scratch {
    /// Makes a fresh directory.
    ///
    /// # Panics
    /// When that is not possible.
    #[expect(clippy::new_without_default, reason = "it makes a directory, which is no default")]
    pub fn new() -> Self {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("adit-system-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        // Left behind by a killed run that had the same process id.
        let _ = std::fs::remove_dir_all(&path);
        DirBuilder::new().mode(0o700).create(&path).expect("make a directory");
        Self(path)
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Path of a file in the directory.
    pub fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Writes a file, in place of what it held.
    ///
    /// # Panics
    /// When that fails.
    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.file(name);
        std::fs::write(&path, text).expect("write a file");
        path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A directory that stays behind harms no test.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
