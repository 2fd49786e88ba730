//! The process that ends what we have started when we are killed. It runs no code of ours but the
//! loop below, without memory to ask for or locks to take, since other threads may have had some
//! when it was forked.

use std::ffi::c_int;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use super::child::{Identity, become_identity};
use super::{check, exit_now};

/// Groups that it remembers at once.
pub(crate) const GROUPS_MAX: usize = 2048;

/// An order to it: a group to remember, or the negative of one to forget; 0 ends it.
pub(crate) const ORDER_LEN: usize = size_of::<i32>();

/// Forks it; returns its process and our end of the line to it.
pub(crate) fn fork_keeper(identity: Option<&Identity>) -> io::Result<(i32, OwnedFd)> {
    let mut ends = [0; 2];
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
    // SAFETY: the pointer is to two live numbers.
    check(unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, ends.as_mut_ptr()) })?;
    // SAFETY: the call just made this descriptor and nothing else owns it.
    let ours = unsafe { OwnedFd::from_raw_fd(ends[0]) };
    // SAFETY: as above.
    let its = unsafe { OwnedFd::from_raw_fd(ends[1]) };
    let groups = [0; GROUPS_MAX];
    // SAFETY: the child only makes system calls and ends without running anybody's code.
    match check(unsafe { libc::fork() })? {
        0 => keep(its.as_fd(), identity, groups),
        process => Ok((process, ours)),
    }
}

/// Waits for a child of ours that is about to end.
pub(crate) fn wait_for(process: i32) {
    let mut status = 0;
    // SAFETY: the pointer is to a live number. A failure says that there is no such child.
    while unsafe { libc::waitpid(process, &raw mut status, 0) } < 0
        && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
    {}
}

fn keep(line: BorrowedFd<'_>, identity: Option<&Identity>, mut groups: [i32; GROUPS_MAX]) -> ! {
    prepare(line, identity);
    loop {
        let mut order = [0; ORDER_LEN];
        // SAFETY: the pointer and the length are those of a live array; 0 is the line, as prepared.
        let len = unsafe { libc::read(LINE, order.as_mut_ptr().cast(), ORDER_LEN) };
        let order = if len == ORDER_LEN as isize { i32::from_ne_bytes(order) } else { 0 };
        // The line ends when we do, however that happens.
        if order == 0 {
            break;
        }
        let old = if order > 0 { 0 } else { -order };
        if let Some(slot) = groups.iter_mut().find(|group| **group == old) {
            *slot = order.max(0);
        }
    }
    for group in groups.into_iter().filter(|group| *group > 0) {
        // SAFETY: plain numbers. The group's leader has not been reaped, or we would have said so,
        // so that the number is still its own.
        unsafe { libc::kill(-group, libc::SIGKILL) };
    }
    exit_now(0)
}

/// Where the keeper has its end of the line.
const LINE: c_int = 0;

/// Keeps the line and nothing else of ours: an open copy of a socket would keep its peer waiting
/// for the end.
fn prepare(line: BorrowedFd<'_>, identity: Option<&Identity>) {
    // A terminal's signals go to a session's processes.
    // SAFETY: takes nothing.
    unsafe { libc::setsid() };
    // SAFETY: both are open.
    if unsafe { libc::dup2(line.as_raw_fd(), LINE) } < 0 {
        exit_now(1);
    }
    close_all_but_line();
    if let Some(identity) = identity
        && become_identity(identity).is_err()
    {
        exit_now(1);
    }
    // SAFETY: the name is terminated.
    unsafe { libc::prctl(libc::PR_SET_NAME, c"plugin-keeper".as_ptr(), 0, 0, 0) };
}

fn close_all_but_line() {
    // SAFETY: plain numbers; nothing in this process uses them any more.
    let rc = unsafe { libc::syscall(libc::SYS_close_range, 1_u32, u32::MAX, 0_u32) };
    if rc == 0 {
        return;
    }
    // A kernel before 5.9.
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the pointer is to a live structure.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    for fd in 1..c_int::try_from(limit.rlim_cur).unwrap_or(c_int::MAX) {
        // SAFETY: as above.
        unsafe { libc::close(fd) };
    }
}
