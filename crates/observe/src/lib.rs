//! What the programs tell about themselves: log lines and per-worker counters.
//!
//! Neither allocates: a line is put together in a fixed buffer and leaves with one `write`, and
//! a worker's counter is a plain integer that it alone writes and anyone may read.

#![forbid(unsafe_code)]

mod counters;
mod logger;

pub use counters::{Counter, FlowCounters, PortCounters, SharedCounter, UserCounters};
pub use log;
pub use logger::{LineBuffer, Throttle, init_log};
