//! Rules and limits of a SOCKS server: who may connect, what they may ask for, and how much of it.
//!
//! [`Policy::new`] compiles the rules of a configuration once and reports every rule that cannot do
//! what its author wants. A [`Policy`] never changes after that: an `Arc` of it goes to every
//! worker, and a reload is a new one. [`limits`] holds the state machines that count.
//!
//! ```
//! use std::sync::Arc;
//! use adit_policy::{
//!     Access, Accepted, Methods, Place, Policy, Replies, RuleSpec, Stage, WeekTime,
//! };
//!
//! let place = Place { file: Arc::from("adit.conf"), line: 7 };
//! let rule = RuleSpec::new(Stage::Client, Access::Pass, place);
//! let policy = Policy::new(vec![rule], Methods::ALL, Replies::Implied).unwrap();
//! let verdict = policy.admit(&Accepted {
//!     client: "192.0.2.1:50000".parse().unwrap(),
//!     local: "192.0.2.7:1080".parse().unwrap(),
//!     time: WeekTime::of_local_seconds(0),
//! });
//! assert!(verdict.is_pass());
//! ```
//!
//! # How rules are asked
//!
//! There are two lists. [`Policy::admit`] asks the client rules when a connection is accepted;
//! nothing but addresses and the time is known then, so a client rule with another condition is an
//! error. [`Policy::judge`] asks the socks rules about a request. In either the first rule that
//! matches decides, and without one the answer is no.
//!
//! A `to` may have names and addresses; one of them has to match. A name is compared with what the
//! client asked for, an address with what it would reach. For a name [`Policy::judge_name`] comes
//! first: it refuses without asking the DNS if no address could be let through. Then every address
//! that was found is judged with the name at hand, and those that pass may be dialled. So a rule
//! for `.example.com` never matches a client that asks for an address, and a rule for
//! `192.0.2.0/24` matches whatever name leads there.
//!
//! # Protected destinations
//!
//! A rule lets nobody through to this host's loopback, link-local addresses or the metadata
//! services of clouds ([`protection`]) unless it names them: one of its prefixes equals the protected
//! range or lies in it. `to: 0.0.0.0/0` and `geoip:` do not name any, nor does a host name, whatever
//! it resolves to, but for `localhost` and loopback. For such a destination the rule is passed over,
//! so that a later one may name it. Rules that block need no such care. Answers (`bindreply`,
//! `udpreply`) go to clients, which may well be local: there nothing is protected.
//!
//! # Cost
//!
//! A judgement looks at the rules in order. A rule costs a few comparisons of bits, then a look at
//! one or two ranges for `from` and for `to`; sets of more than four ranges (countries) take a
//! binary search. Whether the address is protected, and the user's number, are found once. Nothing
//! allocates (`tests/no_alloc.rs`), nothing locks.
//!
//! # Left out
//!
//! Reading configuration files (`socks-config`), looking names up, clocks: the time comes in.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

pub mod address;
mod compiled;
#[doc(hidden)]
pub mod fuzz;
mod host;
pub mod limits;
mod policy;
mod ports;
mod protected;
mod request;
mod rule;
mod week;

pub use address::{AddressSet, Prefix, PrefixError, SetBuilder, reached};
pub use host::{Asked, HostError, HostPattern, Name};
pub use limits::{ByteRate, Rate};
pub use policy::{
    Cause, Mistake, NameVerdict, Policy, RULES_MAX, Replies, RuleId, RuleView, Verdict, is_anyone,
};
pub use ports::{PortOperator, Ports};
pub use protected::{Protection, protection};
pub use request::{
    Accepted, Command, Commands, Destination, Method, Methods, ProxyProtocol, ProxyProtocols,
    Request,
};
pub use rule::{
    Access, EachKey, EachLimits, Hosts, Place, RuleError, RuleLimits, RuleSpec, Share, Stage,
};
pub use week::{WeekTime, WeekTimes, Weekday};
