//! Every system call Adit makes, behind safe functions over owned and borrowed descriptors.
//!
//! Most calls go through `rustix`. What it lacks (some socket options, signals, fork, the password
//! database) is called through `libc` in the module `ffi`, the only one here with `unsafe`. Nothing
//! in this crate allocates on a path that runs per connection, and nothing here knows a protocol.

pub mod child;
pub mod control;
pub mod datagram;
mod ffi;
pub mod helper;
pub mod net;
pub mod poll;
pub mod private;
pub mod process;
pub mod routing;
pub mod signal;

pub use rustix::io::Errno;
