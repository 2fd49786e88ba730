//! Child processes that must not outlive this one: each leads a process group of its own.
//!
//! A child begins with an empty signal mask, no input, one pipe for what it says, and no other
//! descriptor of ours (all are close-on-exec).
//!
//! When we are killed, a [`Keeper`] kills the groups of all children: a small process that does
//! nothing but wait for our end. The kernel's own means (PR_SET_PDEATHSIG) is used too, for there is a
//! moment before the keeper knows of a child; alone it would not do, since it reaches neither what a
//! child has started nor a program with file capabilities. It acts when the *thread* that started the
//! child ends: start children from the thread that lives as long as the process.

use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Arc;

use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, geteuid, getpid, kill_process_group, waitid,
};

use crate::ffi;

/// How a child is started.
pub struct Start<'a> {
    /// The program's file.
    pub path: &'a Path,
    /// What it is called, as its first argument.
    pub name: &'a str,
    /// Its other arguments.
    pub args: &'a [Box<str>],
    /// Variables that it finds in its environment beside ours.
    pub set: &'a [(&'static str, &'a str)],
    /// Variables of ours that it does not find.
    pub unset: &'a [&'static str],
    /// The user it runs as; `None` for ours.
    pub user: Option<&'a str>,
    /// What it may do that its user may not.
    pub rights: Rights,
}

/// Rights of a child beyond those of its user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rights {
    /// None.
    Plain,
    /// To listen at ports below 1024, where we may change users.
    LowPorts,
}

/// How a group of processes is ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It is asked to (SIGTERM).
    Ask,
    /// It is killed.
    Kill,
}

/// Kills the groups of our children when we are killed.
pub struct Keeper {
    process: i32,
    line: Arc<OwnedFd>,
}

impl Keeper {
    /// Starts one, which runs as `user`, or as we do. Nothing but system calls happens in it, so that
    /// it may be started while other threads run.
    ///
    /// # Errors
    /// The user does not exist, or out of processes or descriptors.
    pub fn start(user: Option<&str>) -> io::Result<Self> {
        let identity = match user {
            None => None,
            Some(name) => ffi::child::identity(name, false)?,
        };
        let (process, line) = ffi::keeper::fork_keeper(identity.as_ref())?;
        Ok(Self { process, line: Arc::new(line) })
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        // It has ended already if it does not listen.
        let _ = order(&self.line, 0);
        ffi::keeper::wait_for(self.process);
    }
}

/// Tells a keeper of a group, or with its negative that there is none any more.
fn order(line: &OwnedFd, group: i32) -> io::Result<()> {
    use rustix::net::{SendFlags, send};
    send(line, &group.to_ne_bytes(), SendFlags::NOSIGNAL)?;
    Ok(())
}

/// A child process; killed with its group, and reaped, when dropped.
pub struct Child {
    process: std::process::Child,
    group: Pid,
    keeper: Arc<OwnedFd>,
    reaped: bool,
}

impl Child {
    /// Starts a child; returns it with the pipe, non-blocking, of its output and errors.
    ///
    /// # Errors
    /// The program cannot be run, the user does not exist or may not be become, the keeper has
    /// ended, or out of descriptors or processes.
    pub fn start(start: &Start<'_>, keeper: &Keeper) -> io::Result<(Self, OwnedFd)> {
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC)?;
        rustix::io::ioctl_fionbio(&reader, true)?;
        let mut command = Command::new(start.path);
        command
            .arg0(OsStr::new(start.name))
            .args(start.args.iter().map(|arg| OsStr::new(&**arg)))
            .stdin(Stdio::null())
            .stdout(writer.try_clone()?)
            .stderr(writer)
            .process_group(0);
        for name in start.unset {
            command.env_remove(name);
        }
        command.envs(start.set.iter().copied());
        let identity = match start.user {
            None => None,
            Some(name) => ffi::child::identity(name, start.rights == Rights::LowPorts)?,
        };
        let parent = getpid().as_raw_nonzero().get();
        ffi::child::prepare(&mut command, identity, parent);
        let process = command.spawn()?;
        let group = i32::try_from(process.id()).ok().and_then(Pid::from_raw);
        let group = group.ok_or_else(|| io::Error::other("the kernel gave no process id"))?;
        let keeper = Arc::clone(&keeper.line);
        let child = Self { process, group, keeper, reaped: false };
        order(&child.keeper, group.as_raw_nonzero().get())?;
        Ok((child, reader))
    }

    /// Its process id, which is that of its group.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Whether it has ended, or was never ours to wait for. It is not reaped yet, so that the
    /// number of its group stays its own.
    pub fn has_ended(&self) -> bool {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        // The only failure that can be is that there is no such child.
        self.reaped || !matches!(waitid(WaitId::Pid(self.group), options), Ok(None))
    }

    /// Whether it has ended with status 0. As [`Child::has_ended`], it is not reaped yet.
    pub fn has_succeeded(&self) -> bool {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let found = if self.reaped { Ok(None) } else { waitid(WaitId::Pid(self.group), options) };
        matches!(found, Ok(Some(status)) if status.exit_status() == Some(0))
    }

    /// Ends every process of its group.
    pub fn end_group(&self, end: End) {
        if self.reaped {
            return;
        }
        let signal = match end {
            End::Ask => Signal::TERM,
            End::Kill => Signal::KILL,
        };
        // It may have ended already, with all of its group.
        let _ = kill_process_group(self.group, signal);
    }

    /// Kills what is left of its group and reaps it; returns how it ended.
    ///
    /// # Errors
    /// It was never ours to wait for.
    pub fn reap(&mut self) -> io::Result<ExitStatus> {
        self.end_group(End::Kill);
        // Before it is reaped, when its number is nobody else's yet. Without a keeper there is
        // nobody to tell.
        let _ = order(&self.keeper, -self.group.as_raw_nonzero().get());
        self.reaped = true;
        self.process.wait()
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if !self.reaped {
            // Reported by nobody: whoever wants to know how it ended has reaped it.
            let _ = self.reap();
        }
    }
}

/// The user whose rights this process has.
pub fn effective_user() -> u32 {
    geteuid().as_raw()
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::process::ExitStatusExt;

    use rustix::event::{PollFd, PollFlags, poll};

    use super::*;

    fn shell(script: &str, set: &[(&'static str, &str)]) -> (Child, OwnedFd, Keeper) {
        let keeper = Keeper::start(None).expect("start a keeper");
        let (child, pipe) = start_shell(script, set, &keeper);
        (child, pipe, keeper)
    }

    fn start_shell(
        script: &str,
        set: &[(&'static str, &str)],
        keeper: &Keeper,
    ) -> (Child, OwnedFd) {
        let start = Start {
            path: Path::new("/bin/sh"),
            name: "plugin",
            args: &["-c".into(), script.into()],
            set,
            unset: &["ADIT_TEST_UNSET"],
            user: None,
            rights: Rights::Plain,
        };
        Child::start(&start, keeper).expect("there is a shell")
    }

    fn said(pipe: OwnedFd) -> String {
        rustix::io::ioctl_fionbio(&pipe, false).expect("set a flag");
        let mut text = String::new();
        std::fs::File::from(pipe).read_to_string(&mut text).expect("read what it said");
        text
    }

    #[test]
    fn a_child_has_its_own_group_and_nothing_of_ours() {
        let (mut child, pipe, _keeper) = shell(
            "echo $PAIR; cut -d' ' -f1,5 /proc/$$/stat; ls -x /proc/$$/fd; \
             exec grep SigBlk /proc/self/status",
            &[("PAIR", "a;b=c")],
        );
        let id = child.id();
        let text = said(pipe);
        let mut lines = text.lines();
        assert_eq!(lines.next(), Some("a;b=c"));
        assert_eq!(lines.next(), Some(&*format!("{id} {id}")));
        let open: Vec<_> = lines.next().unwrap_or_default().split_whitespace().collect();
        assert_eq!(open, ["0", "1", "2"]);
        assert_eq!(lines.next(), Some("SigBlk:\t0000000000000000"));
        wait_end(&child);
        assert!(child.has_succeeded());
        assert!(child.reap().is_ok_and(|status| status.success()));
    }

    #[test]
    fn a_blocked_signal_of_ours_reaches_a_child() {
        let _signals = crate::signal::Signals::take_over().expect("take signals over");
        let (mut child, pipe, _keeper) = shell("echo up; exec sleep 600", &[]);
        wait_readable(&pipe);
        child.end_group(End::Ask);
        assert_eq!(said(pipe), "up\n", "the pipe closes with the last of the group");
        wait_end(&child);
        // To kill what has ended changes nothing.
        assert_eq!(child.reap().map(|s| s.signal()).ok(), Some(Some(15)));
    }

    #[test]
    fn what_a_child_has_started_ends_with_it() {
        let (child, pipe, _keeper) = shell("trap '' TERM; sleep 600 & echo up; wait", &[]);
        wait_readable(&pipe);
        drop(child);
        assert_eq!(said(pipe), "up\n", "the pipe closes with the last of the group");
    }

    #[test]
    fn a_keeper_kills_the_groups_that_are_left() {
        let (child, pipe, keeper) = shell("trap '' TERM; sleep 600 & echo up; wait", &[]);
        let (reaped, other) = {
            let (mut child, pipe) = start_shell("exit 3", &[], &keeper);
            wait_end(&child);
            assert!(!child.has_succeeded());
            (child.reap().ok().and_then(|status| status.code()), pipe)
        };
        assert_eq!((reaped, &*said(other)), (Some(3), ""));
        wait_readable(&pipe);
        // As when we end: the child that was reaped is none of its business any more.
        drop(keeper);
        assert_eq!(said(pipe), "up\n", "the pipe closes with the last of the group");
        drop(child);
    }

    #[test]
    fn what_cannot_be_run_is_an_error() {
        let start = Start {
            path: Path::new("/nonexistent/plugin"),
            name: "plugin",
            args: &[],
            set: &[],
            unset: &[],
            user: None,
            rights: Rights::Plain,
        };
        let keeper = Keeper::start(None).expect("start a keeper");
        let found = Child::start(&start, &keeper).map(drop).map_err(|e| e.kind());
        assert_eq!(found, Err(io::ErrorKind::NotFound));
        let nobody = Start { user: Some("no-such-user"), path: Path::new("/bin/true"), ..start };
        assert_eq!(
            Child::start(&nobody, &keeper).map(drop).map_err(|e| e.kind()),
            Err(io::ErrorKind::NotFound)
        );
    }

    /// A process closes its descriptors a moment before it has ended.
    fn wait_end(child: &Child) {
        while !child.has_ended() {
            std::thread::yield_now();
        }
    }

    fn wait_readable(pipe: &OwnedFd) {
        poll(&mut [PollFd::new(pipe, PollFlags::IN)], None).expect("wait for a pipe");
    }
}
