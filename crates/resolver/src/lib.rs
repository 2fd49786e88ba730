//! Stub DNS state: messages, cache, hosts and resolv.conf, without sockets or clocks.
//!
//! The engine owns sockets and time. It asks [`Resolver::lookup_local`] first, and when that
//! has no answer it starts a [`Lookup`], sends what [`Lookup::transmit`] writes (one fresh
//! connected UDP socket per [`Transmit::attempt`], one TCP connection when asked for one), feeds
//! back messages, failures and timeouts until [`Lookup::outcome`] is there, and gives that to
//! [`Resolver::remember`].
//!
//! Contract: `Instant`s and random numbers are arguments; nothing here reads a clock, opens a
//! socket or starts a thread. Constructing or parsing a [`Settings`], [`Hosts`] or [`Cache`]
//! allocates; nothing after that does (`tests/no_alloc.rs` counts). Every list, loop and wait
//! has a constant bound. Bytes from the network never panic: they are used, or ignored and
//! counted.
//!
//! Deliberately absent: DNSSEC validation, DNS over TLS or HTTPS, other record types than A and
//! AAAA, international names (callers convert them to `xn--` form first), and the environment
//! variables `LOCALDOMAIN` and `RES_OPTIONS`.
//!
//! Messages are read and written by hand rather than with the `domain` crate: one question with
//! EDNS0 and one walk over an answer take about 300 lines without allocation, while `domain` 0.12
//! brings a procedural macro, `syn` and a calendar library into the data plane. It serves the
//! tests as an independent codec instead.

#![forbid(unsafe_code)]

mod addresses;
mod cache;
#[doc(hidden)]
pub mod fuzz;
mod hosts;
mod lookup;
mod message;
mod name;
mod outcome;
#[cfg(test)]
mod reply_builder;
mod resolver;
mod settings;

pub use addresses::{ADDRESSES_MAX, AddrList, Order};
pub use cache::{
    Cache, CacheStats, FAILURE_TTL_S, NEGATIVE_TTL_MAX_S, POSITIVE_TTL_MAX_S, POSITIVE_TTL_MIN_S,
};
pub use hosts::{HOSTS_BYTES_MAX, Hosts};
pub use lookup::{
    LOOKUP_TIMEOUT, Lookup, PARTIAL_TTL_MAX_S, RESOLUTION_DELAY, TRANSMIT_LEN_MAX, Transmit,
    Transport,
};
pub use message::{Ignored, MESSAGE_LEN_MAX, UDP_PAYLOAD_MAX};
pub use name::{NAME_LEN_MAX, Name, NameError};
pub use outcome::{Failure, Outcome};
pub use resolver::{Answer, Resolver, Source};
pub use settings::{
    NAMESERVERS_MAX, NameserverError, SEARCH_MAX, Settings, Warning, WarningKind, parse_nameservers,
};
