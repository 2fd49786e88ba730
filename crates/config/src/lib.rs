//! Command lines, configuration files and links of the Shadowsocks programs, validated into one
//! [`Config`].
//!
//! Reading happens in two stages. Options (`flags`), JSON files (`file`) and the environment
//! become settings as given, each with its origin; then one step checks them together and builds
//! a [`Config`] that is legal as a whole. Both key sets, both value styles and both option
//! dialects of the known programs are read; the name a program is started under picks the dialect.
//!
//! Rules that hold everywhere:
//! * Nothing is read and dropped. What this version does not have is refused with what to write
//!   instead; what has no effect, or is not known, gets a warning.
//! * Every finding names its place: file, line, column and key, or the option.
//! * No finding, and no `Debug` output, holds a password or the value of any option.
//!
//! The crate opens the configuration file, and the state file of a manager, and nothing else.

#![forbid(unsafe_code)]

mod acl;
mod check;
mod config;
mod diagnostic;
mod endpoint;
mod file;
mod flags;
mod help;
mod json;
mod link;
pub mod manager;
mod names;
mod online;
mod patient;
mod plugin;
mod program;
mod raw;
mod secret;
mod setting;
mod source;
mod suggest;
mod validate;
mod value;

#[doc(hidden)]
pub mod fuzz;

pub use acl::{AccessList, country_database};
pub use check::{Report, check_file, links_of_file};
pub use config::{
    AddressOrder, Balancer, Config, Destination, IDLE_TIMEOUT_MIN, Interception,
    KEEP_ALIVE_DEFAULT, LocalKind, LocalListener, LogLevel, Mode, OutboundOptions, Protection,
    REDIR_MARK, Relay, RemoteServer, ReplayPolicy, Role, ServerListener, SocketOptions,
    TIMEOUT_DEFAULT, UDP_SESSIONS_DEFAULT, UDP_TIMEOUT_DEFAULT, UDP_TIMEOUT_MIN, UdpOptions,
    UnixLocal,
};
pub use diagnostic::Diagnostic;
pub use endpoint::{Endpoint, EndpointError, Host};
pub use help::{help, man, version};
pub use link::{LINK_LEN_MAX, Link, LinkError, LinkPlugin};
pub use online::{About, Online, Subscribed, redirected, subscription_url};
pub use plugin::Plugin;
pub use program::{Dialect, Invoked, PROGRAMS, Program};
pub use secret::Password;
pub use source::{Invocation, UsageError};
