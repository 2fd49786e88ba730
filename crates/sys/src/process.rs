//! Process life: limits, privileges, daemons, arguments that hold secrets.

use std::ffi::CStr;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::ffi::{self, Forked};

/// The soft limit on open descriptors.
pub fn descriptor_limit() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Sets the limit on open descriptors; the hard limit is raised too when that is allowed.
///
/// # Errors
/// The hard limit is lower and may not be raised.
pub fn set_descriptor_limit(count: u64) -> io::Result<()> {
    let hard = getrlimit(Resource::Nofile).maximum;
    let maximum = hard.map(|h| h.max(count));
    Ok(setrlimit(Resource::Nofile, Rlimit { current: Some(count), maximum })?)
}

/// Raises the soft limit to the hard limit; returns the limit in force.
pub fn raise_descriptor_limit() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    // Refusal leaves the limit as it is, and that is what gets returned.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    descriptor_limit()
}

/// Becomes another user for good.
///
/// # Errors
/// No such user, or no right to become it.
pub fn become_user(name: &str) -> io::Result<()> {
    let user = ffi::find_user(name)?
        .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "no such user"))?;
    ffi::become_user(&user)
}

/// As [`become_user`], keeping the rights that transparent sockets and firewall marks need
/// (CAP_NET_ADMIN, CAP_NET_RAW) as far as this process has them, and no others. Threads started
/// later have them too.
///
/// # Errors
/// As for [`become_user`], or the kernel does not let rights be kept.
pub fn become_user_keeping_network(name: &str) -> io::Result<()> {
    use rustix::thread::{
        CapabilitySet, CapabilitySets, capabilities, set_capabilities, set_keep_capabilities,
    };
    let kept = CapabilitySet::NET_ADMIN | CapabilitySet::NET_RAW;
    set_keep_capabilities(true)?;
    become_user(name)?;
    let kept = capabilities(None)?.permitted & kept;
    let inheritable = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: kept, permitted: kept, inheritable })?;
    set_keep_capabilities(false)?;
    Ok(())
}

/// Keeps the parent of a daemon waiting until the child says how its start went.
pub struct Daemon {
    ready: OwnedFd,
}

impl Daemon {
    /// Forks into the background: the child goes on in its own session with this value; the
    /// parent waits for [`Daemon::ready`] and exits with its code, or 1 if the child dies first.
    /// The working directory stays, because a reload reads relative paths again.
    ///
    /// # Errors
    /// Out of processes or descriptors.
    pub fn start() -> io::Result<Self> {
        let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        match ffi::fork()? {
            Forked::Parent => {
                drop(writer);
                let mut code = [1];
                // No byte means that the child ended without a word: failure.
                let read = rustix::io::read(&reader, &mut code);
                ffi::exit_now(if read.is_ok_and(|n| n == 1) { code[0].into() } else { 1 })
            }
            Forked::Child => {
                drop(reader);
                rustix::process::setsid()?;
                Ok(Self { ready: writer })
            }
        }
    }

    /// Tells the parent that the start worked and detaches from its input and output.
    ///
    /// # Errors
    /// `/dev/null` can't be opened.
    pub fn ready(self) -> io::Result<()> {
        use rustix::stdio;
        let null = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null")?;
        stdio::dup2_stdin(&null)?;
        stdio::dup2_stdout(&null)?;
        stdio::dup2_stderr(&null)?;
        rustix::io::write(&self.ready, &[0])?;
        Ok(())
    }
}

/// Lets go of the pages of shared libraries' code that only the start needed: most of libc.
///
/// They stay in the page cache, and what runs again is mapped again, a few dozen pages. The
/// program's own code stays: its first connections would only bring it back.
///
/// # Errors
/// The kernel does not tell what is mapped.
pub fn release_start_code() -> io::Result<()> {
    let own = std::env::current_exe()?;
    let maps = std::fs::read_to_string("/proc/self/maps")?;
    for range in maps.lines().filter_map(|line| library_code(line, &own)) {
        ffi::release_pages(range)?;
    }
    Ok(())
}

/// The address range of a line of `maps` that is code of a file other than `own`.
fn library_code(line: &str, own: &Path) -> Option<std::ops::Range<usize>> {
    let mut fields = line.split_ascii_whitespace();
    let (range, mode) = (fields.next()?, fields.next()?);
    let file = fields.nth(3)?;
    // Private, executable and never written to; writable pages hold relocated data.
    if mode != "r-xp" || !file.starts_with('/') || Path::new(file) == own {
        return None;
    }
    let (start, end) = range.split_once('-')?;
    Some(usize::from_str_radix(start, 16).ok()?..usize::from_str_radix(end, 16).ok()?)
}

/// Overwrites secrets among this process's own arguments, where `ps` would show them.
///
/// `secret_from` gets each argument and the one before it, and returns the offset from which it
/// is secret. Returns how many were overwritten.
///
/// # Errors
/// The kernel does not tell where the arguments are.
pub fn hide_arguments(
    secret_from: impl FnMut(&CStr, Option<&CStr>) -> Option<usize>,
) -> io::Result<usize> {
    ffi::hide_arguments(secret_from)
}
