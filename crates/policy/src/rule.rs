//! Rules as they are written, before [`Policy::new`](crate::Policy::new) compiles them.

use std::fmt;
use std::sync::Arc;

use crate::address::{AddressSet, Prefix};
use crate::host::HostPattern;
use crate::limits::{Allowance, ByteRate, Rate};
use crate::ports::Ports;
use crate::request::{Commands, Methods, ProxyProtocols};
use crate::week::WeekTimes;

/// When a rule is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    /// As soon as a connection is accepted.
    Client,
    /// When a client has asked for something.
    Socks,
}

impl Stage {
    /// The word that rules, metrics and logs use.
    pub const fn as_label(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Socks => "socks",
        }
    }
}

/// What a rule says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// Go on.
    Pass,
    /// Refuse.
    Block,
}

impl Access {
    /// The word that rules, metrics and logs use.
    pub const fn as_label(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Block => "block",
        }
    }
}

/// Where a rule is written.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// The file; empty for a text that is in none.
    pub file: Arc<str>,
    /// Counted from 1.
    pub line: u32,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.file.is_empty() {
            write!(f, "{}:", self.file)?;
        }
        write!(f, "line {}", self.line)
    }
}

/// The addresses of a `from` or `to`: one of these has to match.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hosts {
    /// Addresses; what an interface name stands for goes here as well.
    pub prefixes: Vec<Prefix>,
    /// Names; in `to` of the socks stage only.
    pub names: Vec<HostPattern>,
    /// Addresses of countries. They never name a protected destination.
    pub countries: Vec<Arc<AddressSet>>,
    /// An interface of the rule does not exist now: the rule may come to match later.
    pub is_pending: bool,
}

/// What a session of a rule may use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleLimits {
    /// Bytes of a session and second, both directions together.
    pub bandwidth: Option<ByteRate>,
    /// What shares one [`RuleLimits::bandwidth`].
    pub bandwidth_key: Share,
    /// Sessions of the rule at once.
    pub sessions_max: Option<u32>,
    /// New sessions of the rule.
    pub sessions_rate: Option<Rate>,
    /// The same for each client or user.
    pub each: Option<EachLimits>,
    /// Traffic of all sessions of the rule.
    pub quota: Allowance,
}

/// Limits for each client, or each user, of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EachLimits {
    /// What is counted apart.
    pub key: EachKey,
    /// Sessions at once.
    pub sessions_max: Option<u32>,
    /// New sessions.
    pub sessions_rate: Option<Rate>,
}

/// What [`EachLimits`] counts apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum EachKey {
    /// A client's address, IPv6 by /64.
    #[default]
    Client,
    /// An authenticated user.
    User,
}

/// What shares a bandwidth.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Share {
    /// Nothing: each session has its own.
    #[default]
    Session,
    /// All sessions of a client's address.
    Client,
    /// All sessions of a user.
    User,
    /// All sessions of the rule.
    Rule,
}

/// A rule as it is written.
#[derive(Clone, Debug)]
pub struct RuleSpec {
    /// When it is asked.
    pub stage: Stage,
    /// What it says.
    pub access: Access,
    /// A name for logs and metrics.
    pub name: Option<Box<str>>,
    /// Where it is written.
    pub place: Place,
    /// Addresses that it is asked by; any if `None`.
    pub from: Option<Hosts>,
    /// Ports that it is asked from.
    pub from_ports: Ports,
    /// Where it leads: at the client stage the accepting address; any if `None`.
    pub to: Option<Hosts>,
    /// Ports that it leads to.
    pub to_ports: Ports,
    /// Commands; at the client stage there is none yet. All that are meant have to be in it.
    pub commands: Option<Commands>,
    /// Protocols of clients, if it names any.
    pub proxy_protocols: Option<ProxyProtocols>,
    /// Methods, if it names any.
    pub methods: Option<Methods>,
    /// Users, if it names any; with those of its groups.
    pub users: Option<Vec<Box<[u8]>>>,
    /// Times, if it names any.
    pub times: Option<WeekTimes>,
    /// What a session may use.
    pub limits: RuleLimits,
}

impl RuleSpec {
    /// A rule that matches everything.
    pub fn new(stage: Stage, access: Access, place: Place) -> Self {
        Self {
            stage,
            access,
            name: None,
            place,
            from: None,
            from_ports: Ports::all(),
            to: None,
            to_ports: Ports::all(),
            commands: None,
            proxy_protocols: None,
            methods: None,
            users: None,
            times: None,
            limits: RuleLimits::default(),
        }
    }
}

/// What is wrong with a rule. Its author made the mistake; the rules are not used.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RuleError {
    /// A condition on something that is not known yet when clients are accepted.
    UnknownAtStage(&'static str),
    /// A host name where only addresses are known.
    NameOfClient(&'static str),
    /// A limit that this stage has no use for.
    LimitAtStage(&'static str),
    /// A condition that nothing fulfils.
    Empty(&'static str),
    /// Two conditions that exclude each other.
    Contradiction(&'static str, &'static str),
    /// A method that no client is offered.
    NotOffered,
    /// Everything it matches is decided by an earlier rule.
    Shadowed(Place),
    /// More rules than a policy holds.
    TooMany,
}

impl RuleError {
    /// A stable word for metrics and logs.
    pub const fn as_label(&self) -> &'static str {
        match self {
            Self::UnknownAtStage(_) => "rule_unknown_at_stage",
            Self::NameOfClient(_) => "rule_name_of_client",
            Self::LimitAtStage(_) => "rule_limit_at_stage",
            Self::Empty(_) => "rule_empty",
            Self::Contradiction(..) => "rule_contradiction",
            Self::NotOffered => "rule_method_not_offered",
            Self::Shadowed(_) => "rule_shadowed",
            Self::TooMany => "rule_too_many",
        }
    }
}

impl fmt::Display for RuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownAtStage(key) => write!(
                f,
                "\"{key}\" is not known yet when a client is accepted; write it in a socks rule"
            ),
            Self::NameOfClient(key) => write!(
                f,
                "\"{key}\" is compared with an address that has no name here; write an address or a \
                 prefix"
            ),
            Self::LimitAtStage(key) => {
                write!(
                    f,
                    "\"{key}\" has no effect when a client is accepted; write it in a socks rule"
                )
            }
            Self::Empty(key) => {
                write!(
                    f,
                    "the rule can never match: nothing fulfils \"{key}\"; write it otherwise, or \
                           leave the rule out"
                )
            }
            Self::Contradiction(a, b) => write!(
                f,
                "the rule can never match: \"{a}\" and \"{b}\" exclude each other; leave one out"
            ),
            Self::NotOffered => f.write_str(
                "the rule can never match: no client is offered its method; add it to \
                 \"socksmethod\", or leave the rule out",
            ),
            Self::Shadowed(place) => write!(
                f,
                "the rule can never match: the rule at {place} decides everything before; write it \
                 above that one, or leave it out"
            ),
            Self::TooMany => f.write_str("more than 10000 rules; write fewer"),
        }
    }
}

impl std::error::Error for RuleError {}
