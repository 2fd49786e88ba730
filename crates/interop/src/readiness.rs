//! Waiting until one of several sockets has something to read.

use std::os::fd::BorrowedFd;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::failure::Failure;

/// The first of `sockets` that has something to read, an error included; nothing when `deadline`
/// passes. Looks once when it has passed already.
pub(crate) fn first_readable<'a>(
    sockets: impl IntoIterator<Item = BorrowedFd<'a>>,
    deadline: Instant,
) -> Result<Option<usize>, Failure> {
    let mut fds: Vec<PollFd<'_>> =
        sockets.into_iter().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        match poll(&mut fds, Some(&left)) {
            Ok(0) => return Ok(None),
            Ok(_) => return Ok(fds.iter().position(|fd| !fd.revents().is_empty())),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(Failure::io("wait for sockets")(errno.into())),
        }
    }
}
