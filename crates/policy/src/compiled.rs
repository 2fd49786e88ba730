//! One rule, compiled: conditions that are compared without heap memory, and whether one rule
//! leaves anything to another.

use crate::address::AddressSet;
use crate::host::HostPattern;
use crate::ports::Ports;
use crate::protected::{self, RANGES, Range};
use crate::request::{Commands, Methods, ProxyProtocols};
use crate::rule::{Access, EachKey, Hosts, Place, RuleError, RuleLimits, RuleSpec, Stage};
use crate::week::WeekTimes;

/// Commands whose destination somebody is sent to, and which is therefore protected.
const GUARDED: Commands = Commands::REQUESTS;

/// Where a rule leads.
#[derive(Debug)]
pub(crate) struct Targets {
    /// Everything, names and [`Anyone`](crate::Destination::Anyone) included.
    pub(crate) is_any: bool,
    /// All of one family: enough for [`Anyone`](crate::Destination::Anyone).
    pub(crate) holds_family: bool,
    pub(crate) addrs: AddressSet,
    pub(crate) names: Box<[HostPattern]>,
    /// Protected addresses that the rule names.
    pub(crate) named: AddressSet,
    /// One of the names means loopback.
    pub(crate) names_loopback: bool,
}

/// One rule.
#[derive(Debug)]
pub(crate) struct Rule {
    pub(crate) access: Access,
    pub(crate) from: Option<AddressSet>,
    pub(crate) from_ports: Option<Ports>,
    pub(crate) to: Targets,
    pub(crate) to_ports: Option<Ports>,
    pub(crate) commands: Commands,
    pub(crate) proxy_protocols: ProxyProtocols,
    pub(crate) methods: Methods,
    /// Numbers of users, sorted.
    pub(crate) users: Option<Box<[u32]>>,
    pub(crate) times: Option<WeekTimes>,
    pub(crate) about: About,
    is_pending: bool,
    stage: Stage,
}

/// What is said about a rule, away from the conditions.
#[derive(Debug)]
pub(crate) struct About {
    pub(crate) name: Option<Box<str>>,
    pub(crate) place: Place,
    pub(crate) limits: RuleLimits,
}

impl Rule {
    /// Compiles `spec`; `user` gives the number of a name.
    pub(crate) fn new(
        spec: RuleSpec,
        offered: Methods,
        user: &dyn Fn(&[u8]) -> u32,
    ) -> Result<Self, RuleError> {
        check_stage(&spec)?;
        let commands = spec.commands.unwrap_or(Commands::ALL);
        let proxy_protocols = spec.proxy_protocols.unwrap_or(ProxyProtocols::ALL);
        let methods = spec.methods.unwrap_or(Methods::ALL);
        check_conditions(&spec, offered)?;
        let users = spec.users.map(|names| {
            let mut numbers: Vec<u32> = names.iter().map(|name| user(name)).collect();
            numbers.sort_unstable();
            numbers.dedup();
            numbers.into_boxed_slice()
        });
        let is_pending = [&spec.from, &spec.to].into_iter().flatten().any(|hosts| hosts.is_pending);
        Ok(Self {
            access: spec.access,
            from: spec.from.map(|hosts| addresses(&hosts)).filter(|set| !set.is_all()),
            from_ports: Some(spec.from_ports).filter(|ports| !ports.is_all()),
            to: Targets::new(spec.to),
            to_ports: Some(spec.to_ports).filter(|ports| !ports.is_all()),
            commands,
            proxy_protocols,
            methods,
            users,
            times: spec.times,
            about: About { name: spec.name, place: spec.place, limits: spec.limits },
            is_pending,
            stage: spec.stage,
        })
    }

    /// True if everything that `later` matches is matched by this rule, but for commands that are not
    /// served by any rule (`block` without a command is about all of them), and for names of protected
    /// addresses: `block` for a host below a `pass` for everything is in the wrong place, although
    /// the host may have such an address, which the `pass` leaves alone.
    pub(crate) fn covers(&self, later: &Self, served: Commands) -> bool {
        let commands = match later.commands.and(served) {
            // It is about what never passes.
            none if none.is_empty() => later.commands,
            some => some,
        };
        !self.is_pending
            && !later.is_pending
            && covers(self.from.as_ref(), later.from.as_ref(), AddressSet::is_subset)
            && covers(self.from_ports.as_ref(), later.from_ports.as_ref(), Ports::is_subset)
            && covers(self.to_ports.as_ref(), later.to_ports.as_ref(), Ports::is_subset)
            && covers(self.times.as_ref(), later.times.as_ref(), WeekTimes::is_subset)
            && covers(self.users.as_deref(), later.users.as_deref(), |theirs, ours| {
                theirs.iter().all(|user| ours.binary_search(user).is_ok())
            })
            && commands.is_subset(self.commands)
            && later.proxy_protocols.is_subset(self.proxy_protocols)
            && later.methods.is_subset(self.methods)
            && self.covers_targets(later, commands)
    }

    fn covers_targets(&self, later: &Self, commands: Commands) -> bool {
        // The accepting address of a client rule is never protected.
        let is_request = self.stage == Stage::Socks;
        let plain = is_request && commands.is_subset(GUARDED)
            || self.to.is_any
            || !later.to.is_any
                && later.to.addrs.is_subset(&self.to.addrs)
                && self.covers_names(later);
        let guarded = !is_request
            || commands.and(GUARDED).is_empty()
            || self.to.is_any && self.access == Access::Block
            || (self.to.is_any || !later.to.is_any && self.covers_names(later))
                && later.guarded_addrs().is_subset(&self.guarded_addrs());
        plain && guarded
    }

    fn covers_names(&self, later: &Self) -> bool {
        later.to.names.iter().all(|name| self.to.names.iter().any(|ours| ours.covers(name)))
    }

    /// Addresses that guarded commands match.
    fn guarded_addrs(&self) -> AddressSet {
        let addrs = if self.to.is_any { AddressSet::all() } else { self.to.addrs.clone() };
        match self.access {
            Access::Block => addrs,
            Access::Pass => {
                let mut builder = crate::address::SetBuilder::default();
                builder.add_set(&addrs.minus(&protected::ALL));
                builder.add_set(&self.to.named);
                builder.finish()
            }
        }
    }
}

/// True if the condition `ours` lets through whatever `theirs` does; `None` lets everything through.
fn covers<T: ?Sized>(ours: Option<&T>, theirs: Option<&T>, subset: fn(&T, &T) -> bool) -> bool {
    match (ours, theirs) {
        (None, _) => true,
        (Some(_), None) => false,
        (Some(ours), Some(theirs)) => subset(theirs, ours),
    }
}

fn check_stage(spec: &RuleSpec) -> Result<(), RuleError> {
    let has_names = |hosts: &Option<Hosts>| hosts.as_ref().is_some_and(|to| !to.names.is_empty());
    if has_names(&spec.from) {
        return Err(RuleError::NameOfClient("from"));
    }
    if spec.stage == Stage::Socks {
        return Ok(());
    }
    for (key, is_set) in [
        ("method", spec.methods.is_some()),
        ("command", spec.commands.is_some()),
        ("proxyprotocol", spec.proxy_protocols.is_some()),
        ("user", spec.users.is_some()),
    ] {
        if is_set {
            return Err(RuleError::UnknownAtStage(key));
        }
    }
    if has_names(&spec.to) {
        return Err(RuleError::NameOfClient("to"));
    }
    if spec.limits.bandwidth.is_some() {
        return Err(RuleError::LimitAtStage("bandwidth"));
    }
    if spec.limits.each.is_some_and(|each| each.key == EachKey::User) {
        return Err(RuleError::LimitAtStage("session.state.key"));
    }
    Ok(())
}

fn check_conditions(spec: &RuleSpec, offered: Methods) -> Result<(), RuleError> {
    let nobody = |hosts: &Option<Hosts>| {
        hosts.as_ref().is_some_and(|hosts| {
            !hosts.is_pending && hosts.names.is_empty() && addresses(hosts).is_empty()
        })
    };
    for (key, is_empty) in [
        ("from", nobody(&spec.from)),
        ("to", nobody(&spec.to)),
        ("from port", spec.from_ports.is_empty()),
        ("to port", spec.to_ports.is_empty()),
        ("command", spec.commands.is_some_and(Commands::is_empty)),
        ("proxyprotocol", spec.proxy_protocols.is_some_and(ProxyProtocols::is_empty)),
        ("method", spec.methods.is_some_and(Methods::is_empty)),
        ("user", spec.users.as_ref().is_some_and(Vec::is_empty)),
        ("time", spec.times.as_ref().is_some_and(WeekTimes::is_empty)),
    ] {
        if is_empty {
            return Err(RuleError::Empty(key));
        }
    }
    check_combinations(spec, offered)
}

fn check_combinations(spec: &RuleSpec, offered: Methods) -> Result<(), RuleError> {
    use crate::request::{Method, ProxyProtocol};
    let commands = spec.commands.unwrap_or(Commands::ALL);
    let protocols = spec.proxy_protocols.unwrap_or(ProxyProtocols::ALL);
    let methods = spec.methods.unwrap_or(Methods::ALL);
    if !protocols.contains(ProxyProtocol::Socks5) {
        let possible = if protocols.contains(ProxyProtocol::Socks4) {
            Commands::TCP
        } else {
            Commands::NONE.with(crate::request::Command::Connect)
        };
        if commands.and(possible).is_empty() {
            return Err(RuleError::Contradiction("command", "proxyprotocol"));
        }
    }
    if spec.stage == Stage::Client {
        return Ok(());
    }
    if spec.users.is_some() && !methods.contains(Method::Username) {
        return Err(RuleError::Contradiction("method", "user"));
    }
    let needed = if spec.users.is_some() { Methods::of(&[Method::Username]) } else { methods };
    if needed.and(offered).is_empty() {
        return Err(RuleError::NotOffered);
    }
    Ok(())
}

fn addresses(hosts: &Hosts) -> AddressSet {
    let mut builder = crate::address::SetBuilder::default();
    hosts.prefixes.iter().for_each(|&prefix| builder.add_prefix(prefix));
    hosts.countries.iter().for_each(|country| builder.add_set(country));
    builder.finish()
}

impl Targets {
    fn new(hosts: Option<Hosts>) -> Self {
        let hosts = hosts.unwrap_or_else(|| Hosts {
            prefixes: vec![crate::address::Prefix::V4, crate::address::Prefix::V6],
            ..Hosts::default()
        });
        let addrs = addresses(&hosts);
        let is_any = addrs.is_all();
        Self {
            is_any,
            holds_family: addrs.holds_family(),
            named: named(&hosts),
            names_loopback: hosts.names.iter().any(HostPattern::names_loopback),
            names: if is_any { Box::default() } else { hosts.names.into() },
            addrs: if is_any { AddressSet::default() } else { addrs },
        }
    }
}

/// Protected addresses that `hosts` names: a prefix names a protected range that holds it.
/// Other protected ranges in the prefix need a name of their own: `169.254.0.0/16` does not name
/// `169.254.169.254`.
fn named(hosts: &Hosts) -> AddressSet {
    let mut builder = crate::address::SetBuilder::default();
    for prefix in &hosts.prefixes {
        let (first, last) = prefix.bounds();
        let (holding, others): (Vec<&Range>, Vec<&Range>) =
            RANGES.iter().partition(|range| range.first <= first && last <= range.last);
        if holding.is_empty() {
            continue;
        }
        let mut closed = crate::address::SetBuilder::default();
        others.iter().for_each(|range| closed.add_range(range.first, range.last));
        let named = AddressSet::of_prefixes([*prefix]).minus(&closed.finish());
        builder.add_set(&named);
    }
    builder.finish()
}
