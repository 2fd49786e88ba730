//! Signals as a readable descriptor, so that one thread handles them in order.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::ffi;

/// A signal the programs act on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// SIGTERM or SIGINT: drain and end.
    Stop,
    /// SIGHUP: read the configuration again.
    Reload,
    /// SIGUSR1: write the counters to the log.
    Report,
    /// SIGCHLD: one or more children have ended.
    Child,
}

/// The descriptor that signals arrive on.
pub struct Signals(OwnedFd);

impl Signals {
    /// Takes over SIGTERM, SIGINT, SIGHUP, SIGUSR1 and SIGCHLD. Call before any thread starts, so that no
    /// thread is ended by one of them.
    ///
    /// # Errors
    /// Out of descriptors.
    pub fn take_over() -> io::Result<Self> {
        ffi::keep_ended_children();
        let signals = [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGUSR1, libc::SIGCHLD];
        Ok(Self(ffi::signal_descriptor(&signals)?))
    }

    /// The next signal that has arrived, if any.
    pub fn next(&self) -> Option<Signal> {
        let mut record = [0; ffi::SIGNAL_RECORD_LEN];
        while rustix::io::read(&self.0, &mut record).is_ok_and(|n| n == record.len()) {
            // The number is the record's first field (signalfd(2)).
            let number = i32::from_ne_bytes([record[0], record[1], record[2], record[3]]);
            match number {
                libc::SIGTERM | libc::SIGINT => return Some(Signal::Stop),
                libc::SIGHUP => return Some(Signal::Reload),
                libc::SIGUSR1 => return Some(Signal::Report),
                libc::SIGCHLD => return Some(Signal::Child),
                _ => {}
            }
        }
        None
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
