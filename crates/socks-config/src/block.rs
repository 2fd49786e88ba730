//! Rule blocks of Alighieri's language, with our selectors.

use adit_policy::{Access, Commands, EachKey, EachLimits, RuleSpec, Share, Stage};

use crate::draft::{Draft, GroupUse};
use crate::finding::Findings;
use crate::lex::{Block, Token};
use crate::rule::Rule;
use crate::selector::{self, Dialect};
use crate::value::{self, Read, shown};

/// Selectors of Alighieri: their colon may be left out.
const PLAIN: [&str; 7] = ["from", "to", "protocol", "command", "method", "bandwidth", "log"];
/// Ours: without a colon they are values, as they are to Alighieri.
const OURS: [&str; 13] = [
    "user",
    "group",
    "time",
    "proxyprotocol",
    "socksmethod",
    "bandwidth.key",
    "session.max",
    "session.throttle",
    "session.state.key",
    "session.state.max",
    "session.state.throttle",
    "quota.day",
    "quota.month",
];

/// A selector with its values.
pub(crate) struct Selector<'a> {
    pub(crate) key: String,
    pub(crate) values: Vec<&'a str>,
    pub(crate) line: u32,
}

/// Splits the body of a rule at its keys.
fn selectors<'a>(body: &[Token<'a>]) -> Read<Vec<Selector<'a>>> {
    let mut found: Vec<Selector<'a>> = Vec::new();
    for token in body {
        let key = token.text.trim_end_matches(':').to_ascii_lowercase();
        let has_colon = token.text.ends_with(':');
        let is_key = PLAIN.contains(&key.as_str()) || has_colon && OURS.contains(&key.as_str());
        if is_key {
            found.push(Selector { key, values: Vec::new(), line: token.line });
        } else if has_colon && key != "port" {
            let known = PLAIN.into_iter().chain(OURS);
            let hint = value::nearest(&key, known)
                .map_or(String::new(), |known| format!("; did you mean \"{known}\"?"));
            return Err(format!(
                "line {}: \"{}\" is no selector of a rule{hint}",
                token.line,
                shown(&key)
            ));
        } else if let Some(last) = found.last_mut() {
            last.values.push(token.text);
        } else {
            return Err(format!(
                "line {}: \"{}\" stands before any selector; write from:, to:, command: or another",
                token.line,
                shown(token.text)
            ));
        }
    }
    Ok(found)
}

/// Parts of a rule that are only joined when all of it has been read.
#[derive(Default)]
struct Parts {
    commands: Option<Commands>,
    transports: Option<Commands>,
    each_key: Option<EachKey>,
    each: Option<EachLimits>,
    groups: Vec<String>,
    share: Option<Share>,
}

/// Reads a rule into the draft.
pub(crate) fn read(block: &Block<'_>, draft: &mut Draft, findings: &mut Findings) {
    let mut spec = RuleSpec::new(block.stage, block.access, block.place.clone());
    spec.name = block.name.map(Into::into);
    let mut rule = Rule { spec, from: None, to: None };
    let mut parts = Parts::default();
    let read = selectors(&block.body).and_then(|selectors| {
        selectors.iter().try_for_each(|selector| {
            apply(&mut rule, &mut parts, &selector.key, &selector.values)
                .map_err(|message| format!("line {}: {}: {message}", selector.line, selector.key))
        })?;
        finish(&mut rule, &parts)
    });
    if let Err(message) = read {
        findings.error(Some(&block.place), message);
        return;
    }
    let number = draft.rules.len();
    for group in parts.groups {
        draft.group_uses.push(GroupUse { rule: number, group, place: block.place.clone() });
    }
    draft.rules.push(rule);
}

fn apply(rule: &mut Rule, parts: &mut Parts, key: &str, values: &[&str]) -> Read<()> {
    let spec = &mut rule.spec;
    match key {
        "from" => {
            let (hosts, ports) = selector::hosts_and_ports(values, Dialect::Adit)?;
            (rule.from, spec.from_ports) = (Some(hosts), ports);
        }
        "to" => {
            let (hosts, ports) = selector::hosts_and_ports(values, Dialect::Adit)?;
            (rule.to, spec.to_ports) = (Some(hosts), ports);
        }
        "protocol" => parts.transports = Some(selector::transports(values)?),
        "command" => parts.commands = Some(selector::commands(values)?),
        "method" | "socksmethod" => spec.methods = Some(selector::method_set(values)?),
        "proxyprotocol" => spec.proxy_protocols = Some(selector::proxy_protocols(values)?),
        "user" => spec.users = Some(users(values)?),
        "group" => {
            if values.is_empty() {
                return Err("write one or more groups".into());
            }
            parts.groups = values.iter().map(|&group| group.to_owned()).collect();
        }
        "time" => spec.times = Some(selector::times(values)?),
        "bandwidth" => spec.limits.bandwidth = Some(value::byte_rate(values)?),
        "bandwidth.key" => parts.share = Some(share(values)?),
        // Every session has its closing line, so there is nothing to choose.
        "log" => {}
        "quota.day" => spec.limits.quota.day_bytes = Some(value::positive_size(values)?),
        "quota.month" => spec.limits.quota.month_bytes = Some(value::positive_size(values)?),
        _ => return session(rule, parts, key, values),
    }
    Ok(())
}

/// Users of a selector.
pub(crate) fn users(values: &[&str]) -> Read<Vec<Box<[u8]>>> {
    if values.is_empty() {
        return Err("write one or more users".into());
    }
    Ok(values.iter().map(|user| user.as_bytes().into()).collect())
}

/// The limits that are written as in Dante.
fn session(rule: &mut Rule, parts: &mut Parts, key: &str, values: &[&str]) -> Read<()> {
    let limits = &mut rule.spec.limits;
    let none = EachLimits { key: EachKey::Client, sessions_max: None, sessions_rate: None };
    match key {
        "session.max" => limits.sessions_max = Some(count(values)?),
        "session.throttle" => limits.sessions_rate = Some(value::rate(values)?),
        "session.state.max" => {
            parts.each.get_or_insert(none).sessions_max = Some(count(values)?);
        }
        "session.state.throttle" => {
            parts.each.get_or_insert(none).sessions_rate = Some(value::rate(values)?);
        }
        "session.state.key" => {
            let known =
                [("from", EachKey::Client), ("client", EachKey::Client), ("user", EachKey::User)];
            parts.each_key = Some(value::word(value::one(values)?, &known)?);
        }
        _ => return Err("no selector of a rule".into()),
    }
    Ok(())
}

fn count(values: &[&str]) -> Read<u32> {
    value::seconds(values, 1, u32::MAX).map_err(|_| "write a number of sessions, at least 1".into())
}

fn share(values: &[&str]) -> Read<Share> {
    let known = [
        ("session", Share::Session),
        ("client", Share::Client),
        ("user", Share::User),
        ("rule", Share::Rule),
    ];
    value::word(value::one(values)?, &known)
}

fn finish(rule: &mut Rule, parts: &Parts) -> Read<()> {
    let spec = &mut rule.spec;
    if spec.stage == Stage::Socks {
        let usual = match spec.access {
            // BIND lets strangers in: off, unless a rule says its name.
            Access::Pass => {
                Commands::of(&[adit_policy::Command::Connect, adit_policy::Command::UdpAssociate])
            }
            Access::Block => Commands::REQUESTS,
        };
        let commands = parts.commands.unwrap_or(usual);
        let commands = commands.and(parts.transports.unwrap_or(Commands::ALL));
        if commands.is_empty() {
            return Err("command: and protocol: exclude each other; leave one out".into());
        }
        spec.commands = Some(commands);
    } else {
        spec.commands = parts.commands;
        if parts.transports.is_some_and(|found| found.and(Commands::TCP).is_empty()) {
            return Err(
                "protocol: udp never matches a client, who comes by TCP; leave it out".into()
            );
        }
    }
    if !parts.groups.is_empty() {
        spec.users.get_or_insert_default();
    }
    finish_limits(rule, parts)
}

fn finish_limits(rule: &mut Rule, parts: &Parts) -> Read<()> {
    let limits = &mut rule.spec.limits;
    match (parts.each, parts.each_key) {
        (Some(each), key) => {
            limits.each = Some(EachLimits { key: key.unwrap_or_default(), ..each });
        }
        (None, Some(_)) => {
            return Err(
                "session.state.key needs session.state.max or session.state.throttle".into()
            );
        }
        (None, None) => {}
    }
    match (parts.share, limits.bandwidth) {
        (Some(_), None) => return Err("bandwidth.key needs bandwidth".into()),
        (share, _) => limits.bandwidth_key = share.unwrap_or_default(),
    }
    let limits_something = *limits != adit_policy::RuleLimits::default();
    if limits_something && rule.spec.access == Access::Block {
        return Err("a rule that blocks has no session to limit; leave the limits out".into());
    }
    Ok(())
}
