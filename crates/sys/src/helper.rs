//! A program that runs beside this one: fed once, read without blocking, ended with it.
//!
//! It is in a process group of its own, so that a terminal's signals do not reach it, and the kernel
//! kills it when the thread that started it ends. Only its own id is waited for: other children of
//! the process are other people's.

use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStderr, ChildStdout, Command, ExitStatus, Stdio};

use rustix::process::{
    Pid, Signal, getpid, getppid, kill_process_group, set_parent_process_death_signal,
};

use crate::ffi;

/// What was read of a helper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// So many bytes.
    Bytes(usize),
    /// Nothing at present.
    Nothing,
    /// It has closed its end, or ended.
    End,
}

/// A helper; killed and reaped when dropped.
pub struct Helper {
    child: Child,
    /// `None` once its end has been read: what is at its end stays readable for those who watch it.
    output: Option<ChildStdout>,
    errors: ChildStderr,
}

impl Helper {
    /// Starts `program` and gives it `input`, which has to fit into a pipe (64 KiB).
    ///
    /// With `user` it runs as that user; the calling process must have one thread then. Of the
    /// environment it gets the variables in `passed` and no others, which may be secrets.
    ///
    /// # Errors
    /// There is no such program or user, or no process or descriptor to be had.
    pub fn start(
        program: &Path,
        args: &[&str],
        input: &[u8],
        user: Option<&str>,
        passed: &[&str],
    ) -> io::Result<Self> {
        let user = match user {
            Some(name) => Some(
                ffi::find_user(name)?
                    .ok_or_else(|| io::Error::new(ErrorKind::InvalidInput, "no such user"))?,
            ),
            None => None,
        };
        let mut command = Command::new(program);
        command.args(args).process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.env_clear();
        command.envs(passed.iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
        let parent = getpid();
        ffi::child::before_exec(&mut command, move || {
            if let Some(user) = &user {
                ffi::become_user(user)?;
            }
            // After the change of user, which takes it back.
            set_parent_process_death_signal(Some(Signal::KILL))?;
            // The parent may have ended before that.
            if getppid() == Some(parent) { Ok(()) } else { Err(ErrorKind::BrokenPipe.into()) }
        });
        let mut child = command.spawn()?;
        let (stdin, output, errors) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (Some(mut stdin), Some(output), Some(errors)) = (stdin, output, errors) else {
            return Err(ErrorKind::BrokenPipe.into());
        };
        let nonblocking = rustix::io::ioctl_fionbio(&output, true)
            .and_then(|()| rustix::io::ioctl_fionbio(&errors, true));
        let helper = Self { child, output: Some(output), errors };
        nonblocking?;
        // Does not block, since the pipe is empty. A helper that has ended at once says why itself.
        match stdin.write_all(input) {
            Err(e) if e.kind() != ErrorKind::BrokenPipe => Err(e),
            _ => Ok(helper),
        }
    }

    /// Its standard output, to be watched; closed, and so no longer watched, when its end is read.
    pub fn output(&self) -> Option<BorrowedFd<'_>> {
        self.output.as_ref().map(AsFd::as_fd)
    }

    /// Reads what it wrote to its standard output.
    ///
    /// # Errors
    /// The pipe is broken.
    pub fn read_output(&mut self, buf: &mut [u8]) -> io::Result<Heard> {
        let Some(output) = &mut self.output else { return Ok(Heard::End) };
        let heard = heard(output.read(buf))?;
        if heard == Heard::End {
            self.output = None;
        }
        Ok(heard)
    }

    /// Reads what it wrote to its standard error.
    ///
    /// # Errors
    /// The pipe is broken.
    pub fn read_errors(&mut self, buf: &mut [u8]) -> io::Result<Heard> {
        heard(self.errors.read(buf))
    }

    /// How it has ended, if it has.
    ///
    /// # Errors
    /// The kernel does not tell.
    pub fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        // With a status taken the id may be somebody else's.
        if matches!(self.child.try_wait(), Ok(None)) {
            let group = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
            if let Some(group) = group {
                // It may be ending this moment.
                let _ = kill_process_group(group, Signal::KILL);
            }
            let _ = self.child.wait();
        }
    }
}

fn heard(read: io::Result<usize>) -> io::Result<Heard> {
    match read {
        Ok(0) => Ok(Heard::End),
        Ok(n) => Ok(Heard::Bytes(n)),
        Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
            Ok(Heard::Nothing)
        }
        Err(e) => Err(e),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
mod tests {
    use super::*;

    fn run(helper: &mut Helper) -> (Vec<u8>, ExitStatus) {
        let (mut all, mut buf) = (Vec::new(), [0; 64]);
        loop {
            match helper.read_output(&mut buf).unwrap() {
                Heard::Bytes(n) => all.extend_from_slice(&buf[..n]),
                Heard::Nothing => std::thread::yield_now(),
                Heard::End => break,
            }
        }
        loop {
            if let Some(status) = helper.try_wait().unwrap() {
                return (all, status);
            }
            std::thread::yield_now();
        }
    }

    #[test]
    fn feeds_reads_and_reaps() {
        let args = ["-c", "cat; echo no >&2; exit 3"];
        let mut helper = Helper::start(Path::new("/bin/sh"), &args, b"hello", None, &[]).unwrap();
        let (output, status) = run(&mut helper);
        assert_eq!((output.as_slice(), status.code()), (&b"hello"[..], Some(3)));
        let mut buf = [0; 16];
        assert_eq!(helper.read_errors(&mut buf).unwrap(), Heard::Bytes(3));
        assert_eq!(helper.read_errors(&mut buf).unwrap(), Heard::End);
    }

    #[test]
    fn is_a_group_of_its_own_and_ends_with_its_value() {
        let args = ["-c", "sleep 1000 & echo $$ $(ps -o pgid= -p $$); wait"];
        let mut helper = Helper::start(Path::new("/bin/sh"), &args, b"", None, &[]).unwrap();
        let mut said = String::new();
        while !said.ends_with('\n') {
            let mut buf = [0; 64];
            if let Heard::Bytes(n) = helper.read_output(&mut buf).unwrap() {
                said.push_str(std::str::from_utf8(&buf[..n]).unwrap());
            }
        }
        let numbers: Vec<i32> = said.split_whitespace().map(|n| n.parse().unwrap()).collect();
        assert_eq!(numbers[0], numbers[1], "it leads its group");
        drop(helper);
        let group = Pid::from_raw(numbers[0]).unwrap();
        // The grandchild is reaped by somebody else, a moment later.
        while rustix::process::test_kill_process_group(group).is_ok() {
            std::thread::yield_now();
        }
    }

    #[test]
    fn hides_variables_and_says_what_is_missing() {
        // Cargo sets both.
        let args = ["-c", "echo ${CARGO_MANIFEST_DIR:-none} ${CARGO_PKG_NAME:-none}"];
        let passed = ["CARGO_PKG_NAME", "NO_SUCH_VARIABLE"];
        let mut helper = Helper::start(Path::new("/bin/sh"), &args, b"", None, &passed).unwrap();
        assert_eq!(run(&mut helper).0, b"none adit-sys\n");
        assert!(helper.output().is_none());
        let missing = Helper::start(Path::new("/nonexistent/adit"), &[], b"", None, &[]);
        assert_eq!(missing.err().map(|e| e.kind()), Some(ErrorKind::NotFound));
        let user = Helper::start(Path::new("/bin/true"), &[], b"", Some("no-such-user"), &[]);
        assert_eq!(user.err().map(|e| e.kind()), Some(ErrorKind::InvalidInput));
    }
}
