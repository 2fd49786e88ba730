//! Interoperability tests: our programs talk to other Shadowsocks programs over loopback.
//!
//! Every test starts a server and a client as real processes with configuration files, and relays
//! between them if it is about those. It moves seeded bytes through them, as streams in both
//! directions at once or as datagrams, and compares every byte at both ends, and the source of every
//! datagram. The tests themselves are in `tests/`, one file per peer, and need the feature `peers`; they are never
//! skipped, so a peer that is not installed is a failure that says what to install.
//!
//! * Peers are looked for in the directories of `ADIT_PEERS_DIR` (separated by colons), then in
//!   `PATH`; ours in `ADIT_BIN_DIR`, by default `target/release` and then `target/debug` of the
//!   workspace. Nothing is built here: build our programs first.
//! * Tests run side by side: ports are reserved, files are in a directory per test, and processes
//!   are killed and reaped when their value is dropped, on a panic too.
//! * Nothing waits for a fixed time. Every wait has a deadline and is a failure when it passes; a
//!   datagram is sent again a few times before.
//! * What a peer cannot do is in [`Program`], with the version that it was seen with.

#![forbid(unsafe_code)]

mod account;
mod datagram_target;
mod datagrams;
mod documents;
mod exchange;
mod failure;
mod managers;
mod matrix;
mod ports;
mod process;
mod programs;
mod readiness;
mod scratch;
mod session;
mod socks5;
mod target;
mod traffic;

pub use account::Guise;
pub use failure::Failure;
pub use managers::{Over, answers_alike, reports};
pub use matrix::{
    disguises, hops, identities, relays, relays_datagrams, tunnels, tunnels_datagrams,
};
pub use programs::Program;

/// Makes the tests of one method with one peer: our client with its server, and the reverse.
#[macro_export]
macro_rules! both_ways {
    ($peer:expr; $($name:ident = $method:literal),+ $(,)?) => {$(
        mod $name {
            use super::*;

            #[test]
            fn our_client() -> Result<(), $crate::Failure> {
                $crate::relays($crate::Program::Adit, $peer, $method)
            }

            #[test]
            fn our_server() -> Result<(), $crate::Failure> {
                $crate::relays($peer, $crate::Program::Adit, $method)
            }

            #[test]
            fn our_client_with_datagrams() -> Result<(), $crate::Failure> {
                $crate::relays_datagrams($crate::Program::Adit, $peer, $method)
            }

            #[test]
            fn our_server_with_datagrams() -> Result<(), $crate::Failure> {
                $crate::relays_datagrams($peer, $crate::Program::Adit, $method)
            }
        }
    )+};
}
