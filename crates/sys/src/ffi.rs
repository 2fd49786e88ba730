//! The calls that `rustix` lacks. One unsafe operation a block, each with what it relies on.

#![allow(unsafe_code, reason = "the one module of this crate that talks to libc")]

pub(crate) mod child;
pub(crate) mod keeper;
pub(crate) mod message;

use std::ffi::{CStr, CString, c_int, c_void};
use std::io;
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Sets an integer socket option.
pub(crate) fn set_int(
    fd: BorrowedFd<'_>,
    level: c_int,
    name: c_int,
    value: c_int,
) -> io::Result<()> {
    set_bytes(fd, level, name, &value.to_ne_bytes())
}

/// Sets a socket option whose value is a run of bytes.
pub(crate) fn set_bytes(
    fd: BorrowedFd<'_>,
    level: c_int,
    name: c_int,
    value: &[u8],
) -> io::Result<()> {
    let len = libc::socklen_t::try_from(value.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    // SAFETY: the descriptor is open for the borrow, and the pointer covers `len` readable bytes.
    let rc = unsafe {
        libc::setsockopt(fd.as_raw_fd(), level, name, value.as_ptr().cast::<c_void>(), len)
    };
    check(rc).map(drop)
}

/// Reads a socket option into `out`; returns its length, which is at most that of `out`.
pub(crate) fn read_option(
    fd: BorrowedFd<'_>,
    level: c_int,
    name: c_int,
    out: &mut [u8],
) -> Result<usize, rustix::io::Errno> {
    let mut len = libc::socklen_t::try_from(out.len()).unwrap_or(libc::socklen_t::MAX);
    let value = out.as_mut_ptr().cast::<c_void>();
    // SAFETY: the descriptor is open for the borrow, the pointer covers `len` writable bytes, and
    // the kernel writes no more than that.
    let rc = unsafe { libc::getsockopt(fd.as_raw_fd(), level, name, value, &raw mut len) };
    if rc < 0 {
        let code = io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO);
        return Err(rustix::io::Errno::from_raw_os_error(code));
    }
    Ok((len as usize).min(out.len()))
}

/// Blocks `signals` in this thread (and those it starts) and returns a descriptor that reads them.
pub(crate) fn signal_descriptor(signals: &[c_int]) -> io::Result<OwnedFd> {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the pointer is to memory of the right type.
    unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    // SAFETY: sigemptyset has just initialised it.
    let mut set = unsafe { set.assume_init() };
    for &signal in signals {
        // SAFETY: the set is initialised.
        check(unsafe { libc::sigaddset(&raw mut set, signal) })?;
    }
    // SAFETY: the set is initialised, and a null old set asks for nothing back.
    let rc =
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) };
    if rc != 0 {
        return Err(io::Error::from_raw_os_error(rc));
    }
    // SAFETY: the set is initialised; -1 asks for a new descriptor.
    let fd = check(unsafe {
        libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK)
    })?;
    // SAFETY: the call just made this descriptor and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Has the kernel keep children that have ended until they are waited for, also where whoever
/// started us ignores SIGCHLD, which is inherited.
pub(crate) fn keep_ended_children() {
    // SAFETY: the default disposition calls no code of ours, and a valid signal cannot fail.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
}

/// Size of one record that a signal descriptor yields.
pub(crate) const SIGNAL_RECORD_LEN: usize = size_of::<libc::signalfd_siginfo>();

/// What `fork` returned.
pub(crate) enum Forked {
    /// In the process that called.
    Parent,
    /// In the new process.
    Child,
}

/// Forks the process.
///
/// Callers must not have started a thread yet: the child would inherit locks that no thread in
/// it will ever release.
pub(crate) fn fork() -> io::Result<Forked> {
    // SAFETY: the process has one thread (the caller's contract), so the child may go on freely.
    match check(unsafe { libc::fork() })? {
        0 => Ok(Forked::Child),
        _ => Ok(Forked::Parent),
    }
}

/// Ends the process without running exit handlers; for the parent of a daemon.
pub(crate) fn exit_now(code: c_int) -> ! {
    // SAFETY: _exit takes any code and does not return.
    unsafe { libc::_exit(code) }
}

/// A user's ids, home groups left to [`become_user`].
pub(crate) struct User {
    pub(crate) name: CString,
    pub(crate) uid: libc::uid_t,
    pub(crate) gid: libc::gid_t,
}

/// Looks a user up by name.
pub(crate) fn find_user(name: &str) -> io::Result<Option<User>> {
    let name = CString::new(name).map_err(|_| io::ErrorKind::InvalidInput)?;
    let mut record = MaybeUninit::<libc::passwd>::uninit();
    let mut text = vec![0; 16 * 1024];
    let mut found = std::ptr::null_mut();
    // SAFETY: all pointers are to live memory of the right type, and the text length is its own.
    let rc = unsafe {
        libc::getpwnam_r(
            name.as_ptr(),
            record.as_mut_ptr(),
            text.as_mut_ptr(),
            text.len(),
            &raw mut found,
        )
    };
    if rc != 0 {
        return Err(io::Error::from_raw_os_error(rc));
    }
    if found.is_null() {
        return Ok(None);
    }
    // SAFETY: a non-null result says that the record was filled in.
    let record = unsafe { record.assume_init() };
    Ok(Some(User { name, uid: record.pw_uid, gid: record.pw_gid }))
}

/// Becomes `user` for good: supplementary groups, group, user, in every thread.
pub(crate) fn become_user(user: &User) -> io::Result<()> {
    // SAFETY: the name is a terminated string.
    check(unsafe { libc::initgroups(user.name.as_ptr(), user.gid) })?;
    // SAFETY: takes a plain id.
    check(unsafe { libc::setgid(user.gid) })?;
    // SAFETY: takes a plain id.
    check(unsafe { libc::setuid(user.uid) })?;
    // Dropped for good only if there is no way back.
    // SAFETY: takes a plain id.
    if user.uid != 0 && unsafe { libc::setuid(0) } == 0 {
        return Err(io::Error::other("privileges could be regained after dropping them"));
    }
    Ok(())
}

/// Overwrites the bytes of the arguments for which `is_secret` says so, where `ps` reads them.
///
/// The second value passed to `is_secret` is the argument before it. Returns how many were
/// overwritten.
pub(crate) fn hide_arguments(
    mut secret_from: impl FnMut(&CStr, Option<&CStr>) -> Option<usize>,
) -> io::Result<usize> {
    let (start, end) = argument_bounds()?;
    let mut hidden = 0;
    let mut at = start;
    let mut before: Option<CString> = None;
    while at < end {
        // SAFETY: the kernel laid the arguments out as terminated strings between these bounds,
        // and nothing else in the process writes there.
        let argument = unsafe { CStr::from_ptr(at as *const _) }.to_owned();
        let len = argument.as_bytes().len();
        if let Some(from) = secret_from(&argument, before.as_deref()) {
            let from = from.min(len);
            // SAFETY: the range lies inside this argument, which is writable process memory that
            // no Rust reference covers (std copies arguments before handing them out).
            unsafe { std::ptr::write_bytes((at + from) as *mut u8, b'*', len - from) };
            hidden += 1;
        }
        before = Some(argument);
        at += len + 1;
    }
    Ok(hidden)
}

/// Tells the kernel that this process does not need the pages of a mapping for now. They stay in
/// the page cache and come back when they are touched.
///
/// `range` must be a mapping of a file that this process has not written to (code).
pub(crate) fn release_pages(range: std::ops::Range<usize>) -> io::Result<()> {
    let len = range.end - range.start;
    // SAFETY: the range is a private, read-only file mapping (the caller's contract), so its pages
    // hold what the file holds, and that is what a later access finds again.
    check(unsafe { libc::madvise(range.start as *mut c_void, len, libc::MADV_DONTNEED) }).map(drop)
}

/// Asks the kernel not to back `memory` with huge pages, which would take all of it at the first
/// touch. Advice only: a kernel without huge pages does not know it.
pub(crate) fn keep_small_pages(memory: &mut [u8]) {
    let range = memory.as_mut_ptr_range();
    // The address must be that of a page; the ends belong to a page with other things on it.
    let start = range.start.map_addr(|a| a.next_multiple_of(PAGE));
    let len = (range.end.addr() & !(PAGE - 1)).saturating_sub(start.addr());
    if len > 0 {
        // SAFETY: the pages are part of a live exclusive borrow, and the advice leaves what they
        // hold as it is.
        unsafe { libc::madvise(start.cast::<c_void>(), len, libc::MADV_NOHUGEPAGE) };
    }
}

/// A multiple of every page size that Linux uses on machines this runs on.
const PAGE: usize = 64 << 10;

/// Where the kernel says this process keeps its arguments (fields 48 and 49 of `stat`).
fn argument_bounds() -> io::Result<(usize, usize)> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    // The program's name may hold blanks and brackets, so count from behind its closing one.
    let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let mut fields = fields.split_ascii_whitespace().skip(45);
    let mut next = || fields.next().and_then(|f| f.parse::<usize>().ok());
    match (next(), next()) {
        (Some(start), Some(end)) if start != 0 && start < end => Ok((start, end)),
        _ => Err(io::Error::other("the kernel does not tell where the arguments are")),
    }
}

fn check(rc: c_int) -> io::Result<c_int> {
    if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(rc) }
}
