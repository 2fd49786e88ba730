//! Access control lists in the language of shadowsocks-libev and shadowsocks-rust: who may
//! connect, which targets go through the server, which a server refuses. `docs/acl.md` is the
//! language for people who write such files.
//!
//! [`Acl::parse`] reads a file once and reports all of its [`Mistake`]s. The [`Acl`] never changes
//! after that: an `Arc` of it goes to every worker. Addresses are judged by the [`Acl`] itself, names
//! by a [`Judge`] in [`Memory`] of the worker, since an expression needs some to work in. A reload is
//! a new `Acl`, and new memory.
//!
//! ```
//! use adit_acl::{Acl, Decision, Route};
//!
//! let acl = Acl::parse(b"[bypass_all]\n[proxy_list]\n||example.com\n192.0.2.0/24\n", None).unwrap();
//! let mut memory = acl.memory();
//! let mut judge = acl.judge(&mut memory);
//! assert_eq!(judge.route_name("www.Example.com."), Decision::Known(Route::Proxied));
//! // An address rule may matter: look the name up, then ask again with what was found.
//! assert_eq!(judge.route_name("example.org"), Decision::NeedsAddresses);
//! assert_eq!(acl.route_addrs(&["192.0.2.7".parse().unwrap()]), Route::Proxied);
//! ```
//!
//! # Order of rules
//!
//! The two programs differ where both lists name a host: libev goes direct, rust goes through the
//! proxy. Here, for a name:
//!
//! 1. A name that is an address in other clothes (`[::1]`, `192.0.2.1.`) is judged as that address.
//! 2. Domain rules of both lists: the most specific wins, `|a.b.c` before `||a.b.c` before `||b.c`.
//!    So an exception may stand in either list. Between equals `[proxy_list]` wins, and on a server
//!    `[outbound_block_list]`. Expressions that say the same as a domain rule count as one.
//! 3. Expressions, first those of `[proxy_list]` (`[outbound_block_list]`), then those of the other.
//! 4. If the list that opposes the mode has address rules: [`Decision::NeedsAddresses`]. The name
//!    is looked up, and the addresses decide.
//! 5. The mode.
//!
//! For an address both programs agree: `[bypass_list]` (`[black_list]`, `[outbound_block_list]`)
//! first, then the other list, then the mode.
//!
//! # Cost
//!
//! Per address one binary search in disjoint ranges for each of at most two lists. Per name one
//! hash probe for each of its labels, one for each of its bytes if there are expressions, and one
//! search for each expression whose rarest three characters are in the name. No look-up allocates,
//! not even the first in new memory (`tests/no_alloc.rs` counts), and none waits for a lock.
//!
//! Expressions run in `regex-lite`: linear time, and 70 KB of program where `regex-automata` takes
//! 210 KB with the smallest of its engines and 280 KB with all of them. The same goes for country
//! databases: `maxminddb` takes 100 KB, so [`GeoDatabase`] reads the format itself. Its countries
//! become address ranges at load time, after which the file's bytes can go: `geoip:CN` is half
//! a megabyte then instead of a database of nine, and costs nothing extra to look up.
//!
//! # Left out
//!
//! Unicode in rules: names are compared in their `xn--` form, and the mapping to it (IDNA) needs
//! tables larger than this crate. Ports, and lists per user: the language has no form for them.

#![forbid(unsafe_code)]

mod acl;
mod domains;
mod expressions;
#[doc(hidden)]
pub mod fuzz;
mod geo;
mod judge;
mod mistake;
mod name;
mod parse;
mod pattern;
mod ranges;
mod rule;

pub use acl::{Acl, Admission, Counts, Decision, Remark, Route, Side};
pub use geo::{Country, GeoDatabase, GeoError};
pub use judge::{Judge, Memory};
pub use mistake::{GEO_SETTING, MISTAKES_MAX, Mistake, MistakeKind};
pub use parse::{EXPRESSIONS_MAX, FILE_LEN_MAX, LINE_LEN_MAX};
