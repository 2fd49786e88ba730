//! The rules of one configuration, and what they say.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::LazyLock;

use crate::address::{number, reached};
use crate::compiled::{Rule, Targets};
use crate::host::Name;
use crate::protected;
use crate::request::{Accepted, Command, Commands, Destination, Methods, Request};
use crate::rule::{Access, Place, RuleError, RuleLimits, RuleSpec, Stage};

/// Most rules of a policy: every pair is compared when it is made.
pub const RULES_MAX: usize = 10_000;

/// Names a rule of one [`Policy`], for counters: from 0 to [`Policy::rule_count`] - 1, client rules
/// first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RuleId(u16);

impl RuleId {
    /// An index into a table of [`Policy::rule_count`] entries.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Why a verdict is what it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// The rule of this number says so.
    Rule(RuleId),
    /// No rule matches.
    Default,
    /// A rule lets it pass, but for the destination, which it does not name.
    Protected(RuleId),
}

/// What the rules say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use]
pub struct Verdict {
    /// Go on, or refuse.
    pub access: Access,
    /// Why.
    pub cause: Cause,
}

impl Verdict {
    /// True for [`Access::Pass`].
    pub fn is_pass(self) -> bool {
        self.access == Access::Pass
    }

    /// The rule that decided.
    pub const fn rule(self) -> Option<RuleId> {
        match self.cause {
            Cause::Rule(id) => Some(id),
            Cause::Default | Cause::Protected(_) => None,
        }
    }
}

/// What is known about a name before it is looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use]
pub enum NameVerdict {
    /// No address it could have would be let through: refuse without asking the DNS.
    Refused(Verdict),
    /// Look it up, then judge each of its addresses.
    Resolve,
}

/// Whether what comes back needs rules of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Replies {
    /// Replies to what was let through are let through, unless a rule for them says otherwise.
    #[default]
    Implied,
    /// As in Dante: `bindreply` and `udpreply` need rules that let them through.
    Judged,
}

/// What is said about a rule, for logs and metrics.
#[derive(Clone, Copy, Debug)]
pub struct RuleView<'a> {
    /// When it is asked.
    pub stage: Stage,
    /// What it says.
    pub access: Access,
    /// Its name.
    pub name: Option<&'a str>,
    /// Where it is written.
    pub place: &'a Place,
    /// What its sessions may use.
    pub limits: &'a RuleLimits,
}

/// A mistake in a rule and where the rule is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// Which of the rules, counted from 0.
    pub index: usize,
    /// Where.
    pub place: Place,
    /// What.
    pub error: RuleError,
}

/// The rules of one configuration. Immutable; share it in an `Arc`.
#[derive(Debug)]
pub struct Policy {
    client: Box<[Rule]>,
    socks: Box<[Rule]>,
    replies: Replies,
    /// Users that rules name, sorted; a user's number is the index.
    users: Box<[Box<[u8]>]>,
    has_users: bool,
}

impl Policy {
    /// Compiles `rules` in their order. `offered` are the methods that clients can choose from.
    ///
    /// # Errors
    /// Every rule that cannot do what its author wants.
    pub fn new(
        rules: Vec<RuleSpec>,
        offered: Methods,
        replies: Replies,
    ) -> Result<Self, Vec<Mistake>> {
        if let Some(rule) = rules.get(RULES_MAX) {
            let (place, error) = (rule.place.clone(), RuleError::TooMany);
            return Err(vec![Mistake { index: RULES_MAX, place, error }]);
        }
        let mut users: Vec<Box<[u8]>> =
            rules.iter().filter_map(|rule| rule.users.as_deref()).flatten().cloned().collect();
        users.sort_unstable();
        users.dedup();
        let number = |user: &[u8]| {
            let at = users.binary_search_by(|known| (**known).cmp(user)).unwrap_or(users.len());
            u32::try_from(at).unwrap_or(u32::MAX)
        };
        let served = served(&rules, replies);
        let (mut client, mut socks, mut mistakes) = (Vec::new(), Vec::new(), Vec::new());
        for (index, spec) in rules.into_iter().enumerate() {
            let place = spec.place.clone();
            let list = if spec.stage == Stage::Client { &mut client } else { &mut socks };
            match add(list, spec, (offered, served), &number) {
                Ok(()) => {}
                Err(error) => mistakes.push(Mistake { index, place, error }),
            }
        }
        if !mistakes.is_empty() {
            return Err(mistakes);
        }
        let (client, socks) = (client.into_boxed_slice(), socks.into_boxed_slice());
        // Made here, so that the first judgement finds it.
        LazyLock::force(&protected::ALL);
        Ok(Self { client, socks, replies, has_users: !users.is_empty(), users: users.into() })
    }

    /// Whether a connection is served at all: the first client rule that matches, else no.
    pub fn admit(&self, accepted: &Accepted) -> Verdict {
        let from = number(accepted.client.ip().to_canonical());
        let to = accepted.local.ip().to_canonical();
        for (index, rule) in self.client.iter().enumerate() {
            let matches = rule.from.as_ref().is_none_or(|set| set.contains_number(from))
                && rule.from_ports.as_ref().is_none_or(|set| set.contains(accepted.client.port()))
                && rule.to_ports.as_ref().is_none_or(|set| set.contains(accepted.local.port()))
                && (rule.to.is_any || rule.to.addrs.contains(to))
                && rule.times.as_ref().is_none_or(|times| times.contains(accepted.time));
            if matches {
                return decided(rule, index);
            }
        }
        Verdict { access: Access::Block, cause: Cause::Default }
    }

    /// Whether `request` may go to `destination`: the first socks rule that matches, else no.
    ///
    /// The address is judged as the one that it [reaches](reached); dial that one. Where the client
    /// asked for a name, [`Policy::judge_name`] comes first, and then each address is judged
    /// with the name.
    pub fn judge(&self, request: &Request<'_>, destination: Destination<'_>) -> Verdict {
        let asked = Asker::new(self, request);
        let place = Whereto::new(destination, request.command);
        let mut protected_by = None;
        for (index, rule) in self.socks.iter().enumerate() {
            if !asked.fulfils(rule) || !place.is_in(&rule.to) {
                continue;
            }
            if rule.access == Access::Pass && place.is_protected && !place.is_named(&rule.to) {
                protected_by = protected_by.or(Some(index));
                continue;
            }
            return decided(rule, self.client.len() + index);
        }
        let cause = match protected_by {
            Some(index) => Cause::Protected(id(self.client.len() + index)),
            None => Cause::Default,
        };
        let is_reply = !Commands::REQUESTS.contains(request.command);
        let access =
            if is_reply && self.replies == Replies::Implied { Access::Pass } else { Access::Block };
        Verdict { access, cause }
    }

    /// What can be said about a name before it is looked up.
    ///
    /// A rule for addresses may or may not match, so the name is refused here only if no rule that
    /// lets through comes before the first rule that is sure to block.
    pub fn judge_name(&self, request: &Request<'_>, name: &Name) -> NameVerdict {
        let asked = Asker::new(self, request);
        let mut may_be_blocked_before = false;
        for (index, rule) in self.socks.iter().enumerate() {
            if !asked.fulfils(rule) {
                continue;
            }
            let is_sure = rule.to.is_any || matches_name(&rule.to, name);
            if !is_sure && rule.to.addrs.is_empty() {
                continue;
            }
            match rule.access {
                Access::Pass => return NameVerdict::Resolve,
                Access::Block if is_sure && !may_be_blocked_before => {
                    return NameVerdict::Refused(decided(rule, self.client.len() + index));
                }
                // Which of several rules blocks is not known without the addresses.
                Access::Block if is_sure => break,
                Access::Block => may_be_blocked_before = true,
            }
        }
        NameVerdict::Refused(Verdict { access: Access::Block, cause: Cause::Default })
    }

    /// Whether any destination would be let through, whatever its address, name or port: decides
    /// about UDP ASSOCIATE, whose datagrams are judged one by one.
    pub fn could_pass(&self, request: &Request<'_>) -> bool {
        let asked = Asker { port: None, ..Asker::new(self, request) };
        for rule in &self.socks {
            if !asked.fulfils(rule) {
                continue;
            }
            match rule.access {
                Access::Pass => return true,
                Access::Block if rule.to.is_any && rule.to_ports.is_none() => return false,
                Access::Block => {}
            }
        }
        false
    }

    /// True if a rule lets a command through that is off otherwise, such as BIND.
    pub fn serves(&self, command: Command) -> bool {
        self.socks.iter().any(|rule| rule.access == Access::Pass && rule.commands.contains(command))
    }

    /// How many rules there are.
    pub fn rule_count(&self) -> usize {
        self.client.len() + self.socks.len()
    }

    /// The rules of a stage, and their numbers.
    pub fn rules(&self, stage: Stage) -> impl Iterator<Item = (RuleId, RuleView<'_>)> {
        let (rules, first) = match stage {
            Stage::Client => (&self.client, 0),
            Stage::Socks => (&self.socks, self.client.len()),
        };
        rules.iter().enumerate().map(move |(index, rule)| (id(first + index), view(stage, rule)))
    }

    /// What is said about a rule of this policy.
    pub fn rule(&self, id: RuleId) -> Option<RuleView<'_>> {
        if let Some(rule) = self.client.get(id.index()) {
            return Some(view(Stage::Client, rule));
        }
        self.socks.get(id.index() - self.client.len()).map(|rule| view(Stage::Socks, rule))
    }
}

fn view(stage: Stage, rule: &Rule) -> RuleView<'_> {
    let about = &rule.about;
    let name = about.name.as_deref();
    RuleView { stage, access: rule.access, name, place: &about.place, limits: &about.limits }
}

/// Commands that pass somewhere; a rule that blocks another one changes nothing.
fn served(rules: &[RuleSpec], replies: Replies) -> Commands {
    let passes =
        rules.iter().filter(|rule| rule.access == Access::Pass && rule.stage == Stage::Socks);
    let implied = match replies {
        Replies::Implied => Commands::of(&[Command::BindReply, Command::UdpReply]),
        Replies::Judged => Commands::NONE,
    };
    passes.map(|rule| rule.commands.unwrap_or(Commands::ALL)).fold(implied, Commands::or)
}

fn add(
    list: &mut Vec<Rule>,
    spec: RuleSpec,
    (offered, served): (Methods, Commands),
    user: &dyn Fn(&[u8]) -> u32,
) -> Result<(), RuleError> {
    let rule = Rule::new(spec, offered, user)?;
    if let Some(earlier) = list.iter().find(|earlier| earlier.covers(&rule, served)) {
        return Err(RuleError::Shadowed(earlier.about.place.clone()));
    }
    list.push(rule);
    Ok(())
}

fn decided(rule: &Rule, index: usize) -> Verdict {
    Verdict { access: rule.access, cause: Cause::Rule(id(index)) }
}

fn id(index: usize) -> RuleId {
    // RULES_MAX keeps it far below.
    RuleId(u16::try_from(index).unwrap_or(u16::MAX))
}

fn matches_name(to: &Targets, name: &Name) -> bool {
    to.names.iter().any(|pattern| pattern.matches(name.as_str()))
}

/// A request, as far as all rules look at it.
struct Asker<'a> {
    request: &'a Request<'a>,
    from: u128,
    user: Option<u32>,
    /// `None` for any port.
    port: Option<u16>,
}

impl<'a> Asker<'a> {
    fn new(policy: &Policy, request: &'a Request<'a>) -> Self {
        let known = |user: &[u8]| policy.users.binary_search_by(|known| (**known).cmp(user)).ok();
        let user = request.user.filter(|_| policy.has_users).and_then(known);
        Self {
            request,
            from: number(request.from.ip().to_canonical()),
            user: user.and_then(|index| u32::try_from(index).ok()),
            port: Some(request.port),
        }
    }

    /// Everything but the destination's host.
    fn fulfils(&self, rule: &Rule) -> bool {
        let request = self.request;
        rule.commands.contains(request.command)
            && rule.proxy_protocols.contains(request.proxy_protocol)
            && rule.methods.contains(request.method)
            && rule
                .to_ports
                .as_ref()
                .is_none_or(|ports| self.port.is_none_or(|port| ports.contains(port)))
            && rule.from.as_ref().is_none_or(|set| set.contains_number(self.from))
            && rule.from_ports.as_ref().is_none_or(|ports| ports.contains(request.from.port()))
            && rule.users.as_ref().is_none_or(|users| {
                self.user.is_some_and(|user| users.binary_search(&user).is_ok())
            })
            && rule.times.as_ref().is_none_or(|times| times.contains(request.time))
    }
}

/// A destination, as far as all rules look at it.
struct Whereto<'a> {
    /// `None` for [`Destination::Anyone`].
    number: Option<u128>,
    name: Option<&'a Name>,
    is_protected: bool,
    is_loopback: bool,
}

impl<'a> Whereto<'a> {
    fn new(destination: Destination<'a>, command: Command) -> Self {
        match destination {
            Destination::Anyone => {
                Self { number: None, name: None, is_protected: false, is_loopback: false }
            }
            Destination::Addr(addr, name) => {
                let is_request = Commands::REQUESTS.contains(command);
                let addr = if is_request { reached(addr) } else { addr.to_canonical() };
                Self {
                    number: Some(number(addr)),
                    name,
                    is_protected: is_request && protected::ALL.contains(addr),
                    is_loopback: protected::is_loopback(addr),
                }
            }
        }
    }

    fn is_in(&self, to: &Targets) -> bool {
        to.is_any
            || match self.number {
                None => to.holds_family,
                Some(number) => to.addrs.contains_number(number),
            }
            || self.name.is_some_and(|name| matches_name(to, name))
    }

    fn is_named(&self, to: &Targets) -> bool {
        self.number.is_some_and(|number| to.named.contains_number(number))
            || self.is_loopback
                && to.names_loopback
                && self.name.is_some_and(|name| {
                    to.names
                        .iter()
                        .any(|pattern| pattern.names_loopback() && pattern.matches(name.as_str()))
                })
    }
}

/// The address that means "whoever comes" in BIND and "I do not know yet" in UDP ASSOCIATE.
pub fn is_anyone(addr: IpAddr) -> bool {
    matches!(addr.to_canonical(), IpAddr::V4(Ipv4Addr::UNSPECIFIED))
        || matches!(addr, IpAddr::V6(addr) if addr.is_unspecified())
}
