//! Harness of the system tests: our programs as real processes on loopback, used well and badly.
//!
//! The tests are in `crates/cli/tests`, by subject, because Cargo builds a package's programs for
//! the tests of that package alone. They need no root, no network and no other program (but for those
//! with networks of their own, which are `#[ignore]`d for it), and may run side by side: ports are reserved, files are in a directory per test, processes are killed and
//! reaped when their value is dropped.
//!
//! * `ADIT_BIN_DIR` names a directory of programs to test instead of those that were just built.
//! * Every wait has a deadline, [`PATIENCE`], which is long: a test fails by what happened, not by
//!   how fast it happened.
//! * The harness panics when it cannot do its work; a panic is how a test fails.

#![forbid(unsafe_code)]

mod asker;
mod datagrams;
mod dns;
mod flights;
mod network;
mod pair;
mod plugin;
mod ports;
mod process;
mod programs;
mod provider;
mod scratch;
mod socks;
mod stream;
mod target;
mod traffic;
mod wire;

pub use asker::Asker;
pub use datagrams::{Arrival, Association, DatagramTarget, header};
pub use dns::{Answer, Dns, Question};
pub use flights::{Forger, Keys, request};
pub use network::{Inside, Namespace};
pub use pair::{Pair, config, password};
pub use plugin::{Started, TestPlugin, is_running, serve_as_plugin, wait_gone};
pub use ports::reserve;
pub use process::{Exit, Process, raise_descriptor_limit};
pub use programs::program;
pub use provider::{Channel, Provider, SECRET, Served};
pub use scratch::Scratch;
pub use socks::{http_status, socks5, socks5_over, socks5_reply};
pub use stream::{Ending, connect, connect_narrow, ending, poke, read_exactly, reset};
pub use target::Target;
pub use traffic::{Expected, bytes_at, send_pattern};
pub use wire::{Reply, Wire};

/// How long anything may take on a busy machine before a test fails.
pub const PATIENCE: std::time::Duration = std::time::Duration::from_secs(30);

/// Waits until `check` gives a value.
///
/// # Panics
/// When it has not for [`PATIENCE`].
pub fn eventually<T>(what: &str, mut check: impl FnMut() -> Option<T>) -> T {
    let deadline = std::time::Instant::now() + PATIENCE;
    loop {
        if let Some(value) = check() {
            return value;
        }
        assert!(std::time::Instant::now() < deadline, "did not happen: {what}");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}
