//! The file that keeps ports: whole or not at all, and for its owner alone.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use adit_config::manager::{NewPort, read_state, state_text};
use adit_observe::log;
use adit_sys::private;

/// A state file and how writing it went.
pub(crate) struct StateFile {
    path: PathBuf,
    /// A directory that is made if it is not there.
    workdir: Option<PathBuf>,
    /// Why it could not be written the last time.
    failure: Option<String>,
}

impl StateFile {
    pub(crate) const fn new(path: PathBuf, workdir: Option<PathBuf>) -> Self {
        Self { path, workdir, failure: None }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The ports in it; none where there is no file.
    ///
    /// # Errors
    /// It cannot be read, or is damaged: whatever was in it must not be overwritten unseen.
    pub(crate) fn read(&self) -> Result<Vec<NewPort>, Vec<String>> {
        read_state(&self.path).map_err(|found| found.iter().map(ToString::to_string).collect())
    }

    /// Writes these ports; false, and a line for the log, when that does not work.
    #[must_use]
    pub(crate) fn write<'p>(&mut self, ports: impl IntoIterator<Item = &'p NewPort>) -> bool {
        let text = state_text(ports);
        let path = self.path.display();
        match replace(&self.path, self.workdir.as_deref(), text.as_bytes()) {
            Ok(()) => {
                if self.failure.take().is_some() {
                    log::info!("ports are kept in {path} again");
                }
                true
            }
            Err(e) => {
                let why = e.to_string();
                if self.failure.as_ref() != Some(&why) {
                    log::error!(
                        "cannot keep ports in {path}: {why}; they are served all the same, and \
                         writing is tried again"
                    );
                }
                self.failure = Some(why);
                false
            }
        }
    }
}

/// Puts a file in the place of another, in a directory that is made if it is not there.
fn replace(path: &Path, workdir: Option<&Path>, bytes: &[u8]) -> io::Result<()> {
    if let Some(dir) = workdir {
        match DirBuilder::new().mode(0o700).create(dir) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e),
            _ => {}
        }
    }
    private::replace(path, bytes)
}
