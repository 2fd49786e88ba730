//! Runs one Shadowsocks program from its configuration to its end: listeners, workers, signals,
//! reload, drain.
//!
//! The calling thread is the control plane: it opens sockets, starts workers and then waits for
//! signals and for changes of the resolver's files. Workers get what changes as messages and
//! never see a configuration file.

#![forbid(unsafe_code)]

mod health;
mod listeners;
mod manager;
mod names;
mod opening;
mod plugin;
mod redir;
mod reporter;
mod roles;
pub mod rules;
mod subscription;
mod supervisor;

pub use supervisor::{EXIT_CONFIG, EXIT_FAILURE, EXIT_OK, run};
