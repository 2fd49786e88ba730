//! Files that hold secrets: for their owner alone, and whole or not at all.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Puts a file with these bytes in the place of what is at `path`, readable by its owner only
/// (mode 0600). Whoever opens the path finds the old file or the new one, after a loss of power too.
///
/// # Errors
/// The path names no file in a directory where we may make one, or the disk is full. What was there
/// is there still, and nothing else is left behind.
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".new-{}", std::process::id()));
    let fresh = path.with_file_name(name);
    let write = || {
        // An earlier process with our number may have died over it.
        match fs::remove_file(&fresh) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&fresh)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&fresh, path)?;
        // The name is on the disk when its directory is.
        let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty());
        File::open(dir.unwrap_or_else(|| Path::new(".")))?.sync_all()
    };
    write().inspect_err(|_| {
        // What is left of a failed attempt holds secrets that nothing uses.
        let _ = fs::remove_file(&fresh);
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_file_is_its_owners_and_whole_and_nothing_is_left_beside_it() {
        let dir = std::env::temp_dir().join(format!("adit-private-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let path = dir.join("file");
        let leftover = dir.join(format!("file.new-{}", std::process::id()));
        fs::write(&path, "for everybody").unwrap();
        fs::write(&leftover, "of a process that died").unwrap();
        for bytes in [&b"first"[..], b"", b"second"] {
            replace(&path, bytes).unwrap();
            assert_eq!(fs::read(&path).unwrap(), bytes);
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        }
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 1);
        // A directory cannot be replaced, and stays.
        let taken = dir.join("taken");
        fs::create_dir(&taken).unwrap();
        replace(&taken, b"x").unwrap_err();
        assert!(taken.is_dir());
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 2);
        replace(&dir.join("none/file"), b"x").unwrap_err();
        fs::remove_dir_all(&dir).unwrap();
    }
}
