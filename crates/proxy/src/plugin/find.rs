//! Where a plugin's program is.
//!
//! A name with a `/` is a path. Any other is looked for in `PATH` and, as in shadowsocks-libev, in
//! the current directory; there it comes last, so that it cannot stand in for an installed program,
//! and only where nobody but root and our own user may write to the directory and the file.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Permission bits that let someone run a file, and that let others than its owner write.
const MAY_RUN: u32 = 0o111;
const OTHERS_MAY_WRITE: u32 = 0o022;

/// Why there is no program to start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FindError {
    /// Nowhere.
    NotFound,
    /// In the current directory, where others may put programs.
    Unsafe,
}

impl fmt::Display for FindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotFound => {
                "there is no such program in PATH or in the current directory; install it, or \
                 write its whole path"
            }
            Self::Unsafe => {
                "the one in the current directory is not started, because others may write to it \
                 or to the directory; write its whole path"
            }
        })
    }
}

/// The file to start for `program`. `user` is ours, by number.
pub(crate) fn find(
    program: &str,
    path: Option<&OsStr>,
    current: Option<&Path>,
    user: u32,
) -> Result<PathBuf, FindError> {
    if program.contains('/') {
        return Ok(PathBuf::from(program));
    }
    // A relative or empty entry is the current directory in disguise.
    let installed = std::env::split_paths(path.unwrap_or_default())
        .filter(|directory| directory.is_absolute())
        .map(|directory| directory.join(program))
        .find(|file| may_run(file));
    if let Some(file) = installed {
        return Ok(file);
    }
    let directory = current.ok_or(FindError::NotFound)?;
    let file = directory.join(program);
    if !may_run(&file) {
        return Err(FindError::NotFound);
    }
    if is_ours(directory, user) && is_ours(&file, user) { Ok(file) } else { Err(FindError::Unsafe) }
}

fn may_run(file: &Path) -> bool {
    std::fs::metadata(file).is_ok_and(|about| about.is_file() && about.mode() & MAY_RUN != 0)
}

/// Whether nobody but root and we may change what is there.
fn is_ours(path: &Path, user: u32) -> bool {
    std::fs::metadata(path).is_ok_and(|about| {
        (about.uid() == 0 || about.uid() == user) && about.mode() & OTHERS_MAY_WRITE == 0
    })
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn finds_installed_programs_first_and_trusts_no_open_directory() {
        let root = std::env::temp_dir().join(format!("adit-find-{}", std::process::id()));
        let (bin, here) = (root.join("bin"), root.join("here"));
        for directory in [&bin, &here] {
            fs::create_dir_all(directory).expect("make a directory");
            set_mode(directory, 0o755);
        }
        for (file, mode) in [
            (bin.join("installed"), 0o755),
            (bin.join("data"), 0o644),
            (here.join("installed"), 0o755),
            (here.join("local"), 0o755),
            (here.join("open"), 0o757),
        ] {
            fs::write(&file, "").expect("write a file");
            set_mode(&file, mode);
        }
        let user = adit_sys::child::effective_user();
        let path = std::env::join_paths([Path::new(""), Path::new("here"), &bin]).expect("a list");
        let find = |program: &str| find(program, Some(&path), Some(&here), user);
        assert_eq!(find("installed"), Ok(bin.join("installed")));
        assert_eq!(find("local"), Ok(here.join("local")));
        assert_eq!(find("./local"), Ok(PathBuf::from("./local")), "a path is taken as it is");
        assert_eq!(find("data"), Err(FindError::NotFound));
        assert_eq!(find("missing"), Err(FindError::NotFound));
        assert_eq!(find("open"), Err(FindError::Unsafe));
        set_mode(&here, 0o777);
        assert_eq!(find("local"), Err(FindError::Unsafe));
        fs::remove_dir_all(&root).expect("remove a directory");
    }

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, Permissions::from_mode(mode)).expect("set permissions");
    }
}
