//! What runs between `fork` and `exec`.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Runs `step` in the child just before it becomes the program.
///
/// `step` may make system calls and nothing else, unless the process has one thread: another one may
/// hold the lock of the allocator, say, which nobody in the child would ever release.
pub(crate) fn before_exec(
    command: &mut Command,
    step: impl FnMut() -> io::Result<()> + Send + Sync + 'static,
) {
    // SAFETY: `step` does only what is allowed in a forked child (the caller's contract).
    unsafe { command.pre_exec(step) };
}
