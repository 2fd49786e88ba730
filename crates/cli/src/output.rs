//! The one way out for what the programs say themselves.
//!
//! `println!` panics when the reader of a pipe has gone, and a panic ends the process with an abort.
//! A reader that has seen enough (`adit man ss-server | head`) is no failure, so that is taken for
//! success; any other error of standard output is one. Log lines have a sink of their own.

use std::io::{self, ErrorKind, Write};

use crate::Failure;

/// Writes text to standard output, whole and at once.
///
/// # Errors
/// Standard output takes no more, and not because its reader has gone.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() != ErrorKind::BrokenPipe => Err(Failure::Output(e)),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Writes text to standard error.
pub(crate) fn complain(text: &str) {
    // An error that can't be written has nowhere to say so.
    let _ = io::stderr().lock().write_all(text.as_bytes());
}
