//! Changing the file of users: under a lock, with a copy of what was, and either wholly or not at
//! all.
//!
//! The lock is an advisory one on `FILE.lock`, which stays; the system lets go of it when a program
//! dies. The new contents go into a file of their own beside the old one, reach the disk, and take its
//! name. A symbolic link in the place of any of these files is refused: in a directory that others
//! may write to it could lead anywhere.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use zeroize::Zeroizing;

/// Bytes of a file of users that is read: some hundred thousand users.
const FILE_LEN_MAX: u64 = 64 << 20;
/// Who may read a file that we make: its owner.
const MODE: u32 = 0o600;

/// A file of users that nobody else changes until this is dropped.
#[derive(Debug)]
pub struct LockedFile {
    path: PathBuf,
    /// Held for its lock.
    _lock: File,
}

impl LockedFile {
    /// Waits for the lock of the file at `path`, which need not exist yet.
    ///
    /// # Errors
    /// Those of opening the lock, and a symbolic link in the place of either file.
    pub fn open(path: &Path) -> io::Result<Self> {
        refuse_link(path)?;
        let lock_path = beside(path, ".lock");
        refuse_link(&lock_path)?;
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(MODE)
            .open(&lock_path)?;
        lock.lock()?;
        Ok(Self { path: path.to_path_buf(), _lock: lock })
    }

    /// The contents; nothing if there is no file.
    ///
    /// # Errors
    /// Those of reading it.
    pub fn read(&self) -> io::Result<Zeroizing<Vec<u8>>> {
        match read(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Zeroizing::default()),
            result => result,
        }
    }

    /// Replaces the contents. What was there is in `FILE.bak` afterwards.
    ///
    /// # Errors
    /// Those of writing. Until the last step, which is one rename, the file is as it was.
    pub fn write(&self, contents: &[u8]) -> io::Result<()> {
        refuse_link(&self.path)?;
        let old = match fs::metadata(&self.path) {
            Ok(metadata) => Some(metadata),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        if old.is_some() {
            let backup = beside(&self.path, ".bak");
            refuse_link(&backup)?;
            self.place(&backup, &read(&self.path)?, old.as_ref())?;
        }
        self.place(&self.path, contents, old.as_ref())?;
        let directory = self.path.parent().filter(|path| !path.as_os_str().is_empty());
        File::open(directory.unwrap_or_else(|| Path::new(".")))?.sync_all()
    }

    /// Puts a file into its place by renaming, with the owner and the rights of `like`.
    fn place(&self, path: &Path, contents: &[u8], like: Option<&fs::Metadata>) -> io::Result<()> {
        let temporary = beside(&self.path, ".new");
        // A writer that was killed leaves one; nobody else has the lock.
        match fs::remove_file(&temporary) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let written =
            write_new(&temporary, contents, like).and_then(|()| fs::rename(&temporary, path));
        if written.is_err() {
            // The first error is the one to tell; the next writer removes what is left.
            let _ = fs::remove_file(&temporary);
        }
        written
    }
}

fn write_new(path: &Path, contents: &[u8], like: Option<&fs::Metadata>) -> io::Result<()> {
    let mut file = OpenOptions::new().create_new(true).write(true).mode(MODE).open(path)?;
    if let Some(like) = like {
        let made = file.metadata()?;
        if (made.uid(), made.gid()) != (like.uid(), like.gid()) {
            fchown(&file, Some(like.uid()), Some(like.gid()))?;
        }
        file.set_permissions(fs::Permissions::from_mode(like.mode() & 0o777))?;
    }
    file.write_all(contents)?;
    file.sync_all()
}

/// The contents of a regular file of users.
///
/// # Errors
/// Those of reading it, and a file that is too long or not a regular one.
pub(crate) fn read(path: &Path) -> io::Result<Zeroizing<Vec<u8>>> {
    let file = File::open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    if metadata.len() > FILE_LEN_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "longer than 64 MiB"));
    }
    // With room for all of it, so that growing leaves no copy behind.
    let capacity = usize::try_from(metadata.len()).unwrap_or_default() + 1;
    let mut bytes = Zeroizing::new(Vec::with_capacity(capacity));
    file.take(FILE_LEN_MAX).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn refuse_link(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.file_type().is_symlink() => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("{} is a symbolic link; name the file itself", path.display()),
        )),
        Ok(metadata) if !metadata.is_file() => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("{} is not a regular file", path.display()),
        )),
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}
