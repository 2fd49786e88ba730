//! Rules of `sockd.conf`.

use adit_policy::limits::ByteRate;
use adit_policy::{Access, Commands, EachKey, EachLimits, RuleSpec, Share, Stage};

use crate::block;
use crate::lex::Token;
use crate::rule::Rule;
use crate::selector::{self, Dialect};
use crate::value::{self, Read};

use super::lex::{Condition, conditions};
use super::{Reader, Verdict};

/// Keys that may be glued to their values.
const KEYS: [&str; 17] = [
    "from",
    "to",
    "log",
    "command",
    "protocol",
    "method",
    "socksmethod",
    "clientmethod",
    "proxyprotocol",
    "user",
    "group",
    "bandwidth",
    "session.max",
    "session.throttle",
    "session.state.key",
    "session.state.max",
    "session.state.throttle",
];

/// What a condition comes to.
enum Taken {
    Understood(&'static str),
    Ignored(&'static str),
}

const OK: Read<Taken> = Ok(Taken::Understood(""));

/// Conditions that are joined at the end of a rule.
#[derive(Default)]
struct Parts {
    commands: Option<Commands>,
    transports: Option<Commands>,
    each: Option<EachLimits>,
    each_key: Option<EachKey>,
}

impl Reader<'_> {
    pub(super) fn block(&mut self, head: &[String], body: &[Token<'_>], line: u32) {
        let words: Vec<&str> = head.iter().map(String::as_str).collect();
        let (stage, access) = match words[..] {
            ["client", "pass"] => (Stage::Client, Access::Pass),
            ["client", "block"] => (Stage::Client, Access::Block),
            ["socks", "pass"] | ["pass"] => (Stage::Socks, Access::Pass),
            ["socks", "block"] | ["block"] => (Stage::Socks, Access::Block),
            ["route"] => {
                return self.refuse_block(
                    line,
                    "route",
                    "there is no forwarding through other proxies yet; leave the block out",
                );
            }
            ["monitor"] => {
                return self.refuse_block(
                    line,
                    "monitor",
                    "watch the metrics instead (metrics.listen)",
                );
            }
            ["hostid", _] => {
                return self.refuse_block(
                    line,
                    "hostid",
                    "clients are told apart by address; write a client rule",
                );
            }
            _ => {
                return self.refuse_block(
                    line,
                    &head.join(" "),
                    "no such block; write client pass, client block, socks pass or socks block",
                );
            }
        };
        let remark = if words.len() == 1 { "an old spelling of a socks rule" } else { "" };
        self.note(line, Verdict::Understood, &head.join(" "), remark);
        let spec = RuleSpec::new(stage, access, self.place(line));
        let mut rule = Rule { spec, from: None, to: None };
        let mut parts = Parts::default();
        for condition in conditions(body, &KEYS) {
            self.condition(&mut rule, &mut parts, &condition);
        }
        match finish(&mut rule, parts) {
            Ok(()) => self.draft.rules.push(rule),
            Err(message) => {
                let at = self.place(line);
                self.findings.error(Some(&at), message);
            }
        }
    }

    fn refuse_block(&mut self, line: u32, keyword: &str, remark: &str) {
        self.note(line, Verdict::Refused, keyword, remark);
    }

    fn condition(&mut self, rule: &mut Rule, parts: &mut Parts, condition: &Condition<'_>) {
        let Condition { key, values, line } = condition;
        let taken = match rule.spec.stage {
            Stage::Client => client_condition(key, values),
            Stage::Socks => socks_condition(rule, parts, key, values),
        };
        let taken = match taken {
            Some(taken) => taken,
            None => self.shared_condition(rule, parts, key, values),
        };
        match taken {
            Ok(Taken::Understood(remark)) => self.note(*line, Verdict::Understood, key, remark),
            Ok(Taken::Ignored(remark)) => self.note(*line, Verdict::Ignored, key, remark),
            Err(message) => self.note(*line, Verdict::Refused, key, message),
        }
    }

    /// Conditions of both stages.
    fn shared_condition(
        &mut self,
        rule: &mut Rule,
        parts: &mut Parts,
        key: &str,
        values: &[&str],
    ) -> Read<Taken> {
        match key {
            "from" => {
                let (hosts, ports) = selector::hosts_and_ports(values, Dialect::Dante)?;
                (rule.from, rule.spec.from_ports) = (Some(hosts), ports);
                OK
            }
            "to" => {
                let (hosts, ports) = selector::hosts_and_ports(values, Dialect::Dante)?;
                let has_names = !hosts.names.is_empty();
                (rule.to, rule.spec.to_ports) = (Some(hosts), ports);
                Ok(Taken::Understood(if has_names {
                    "compared with the name that the client asks for, not with its addresses"
                } else {
                    ""
                }))
            }
            "log" => Ok(Taken::Ignored("every session has one closing line with all of it")),
            "udp.portrange" => {
                let range = value::port_range(values)?;
                if self.draft.udp_ports.is_some_and(|known| known != range) {
                    return Err(
                        "the whole server has one range; write the same one everywhere".into()
                    );
                }
                self.draft.udp_ports = Some(range);
                Ok(Taken::Understood("for the whole server"))
            }
            "session.inheritable" => {
                Ok(Taken::Ignored("a rule of the socks stage counts for itself"))
            }
            _ => session(rule, parts, key, values).unwrap_or_else(|| Err(refusal(key))),
        }
    }
}

fn client_condition(key: &str, values: &[&str]) -> Option<Read<Taken>> {
    let is_none = |values: &[&str]| matches!(values, [word] if word.eq_ignore_ascii_case("none"));
    let moved = |what: &str| {
        Some(Err(format!("{what} when a client is accepted; write it in a socks rule")))
    };
    match key {
        "clientmethod" | "method" if is_none(values) => {
            Some(Ok(Taken::Understood("nothing is asked of a client here")))
        }
        "clientmethod" | "method" | "socksmethod" => moved("no method is known yet"),
        "command" => moved("no command is known yet"),
        "user" | "group" => moved("no user is known yet"),
        "proxyprotocol" => moved("no protocol is known yet"),
        "bandwidth" => moved("there is no session yet"),
        "protocol" => Some(match selector::transports(values) {
            Ok(found) if found.and(Commands::TCP).is_empty() => {
                Err("clients come by TCP, so the rule would never match; leave it out".into())
            }
            Ok(_) => Ok(Taken::Understood("clients come by TCP")),
            Err(message) => Err(message),
        }),
        "session.state.key"
            if values.first().is_some_and(|word| word.eq_ignore_ascii_case("user")) =>
        {
            moved("no user is known yet")
        }
        _ => None,
    }
}

fn socks_condition(
    rule: &mut Rule,
    parts: &mut Parts,
    key: &str,
    values: &[&str],
) -> Option<Read<Taken>> {
    let spec = &mut rule.spec;
    let done = |result: Read<()>| Some(result.map(|()| Taken::Understood("")));
    match key {
        "command" => done(selector::commands(values).map(|found| parts.commands = Some(found))),
        "protocol" => {
            done(selector::transports(values).map(|found| parts.transports = Some(found)))
        }
        "method" | "socksmethod" => {
            done(selector::method_set(values).map(|found| spec.methods = Some(found)))
        }
        "clientmethod" => Some(match values {
            [word] if word.eq_ignore_ascii_case("none") => Ok(Taken::Understood(
                "nothing is asked of a client before; methods of the request are another matter",
            )),
            _ => Err("write socksmethod: in a socks rule".into()),
        }),
        "proxyprotocol" => {
            done(selector::proxy_protocols(values).map(|found| spec.proxy_protocols = Some(found)))
        }
        "user" => done(block::users(values).map(|found| spec.users = Some(found))),
        "bandwidth" => Some(bandwidth(values).map(|rate| {
            spec.limits.bandwidth = Some(rate);
            spec.limits.bandwidth_key = Share::Rule;
            Taken::Understood("bytes a second, shared by all sessions of the rule")
        })),
        _ => None,
    }
}

fn bandwidth(values: &[&str]) -> Read<ByteRate> {
    let bytes = value::integer(values, 1, u64::MAX)?;
    ByteRate::new(bytes, 1).ok_or_else(|| "write bytes a second".into())
}

fn session(rule: &mut Rule, parts: &mut Parts, key: &str, values: &[&str]) -> Option<Read<Taken>> {
    let limits = &mut rule.spec.limits;
    let none = EachLimits { key: EachKey::Client, sessions_max: None, sessions_rate: None };
    let count = || {
        value::seconds(values, 1, u32::MAX)
            .map_err(|_| "write a number of sessions, at least 1".to_owned())
    };
    let read = match key {
        "session.max" => count().map(|most| limits.sessions_max = Some(most)),
        "session.throttle" => value::rate(values).map(|rate| limits.sessions_rate = Some(rate)),
        "session.state.max" => {
            count().map(|most| parts.each.get_or_insert(none).sessions_max = Some(most))
        }
        "session.state.throttle" => value::rate(values)
            .map(|rate| parts.each.get_or_insert(none).sessions_rate = Some(rate)),
        "session.state.key" => value::one(values)
            .and_then(|word| {
                value::word(word, &[("from", EachKey::Client), ("user", EachKey::User)])
            })
            .map(|key| parts.each_key = Some(key)),
        _ => return None,
    };
    Some(read.map(|()| Taken::Understood("")))
}

/// What to do about a condition that is not served.
fn refusal(key: &str) -> String {
    match key {
        "group" => "groups of the system are not asked; write user: with the names".into(),
        "redirect" => "targets are not rewritten; leave it out".into(),
        "hostid" | "hostindex" => "clients are told apart by address; write from:".into(),
        "libwrap" => "there is no libwrap; write a client block rule".into(),
        _ if key.starts_with("timeout.") => {
            "limits of time are for the whole server; write it outside of rules".into()
        }
        _ if key.starts_with("pam.")
            || key.starts_with("bsdauth.")
            || key.starts_with("gssapi.")
            || key.starts_with("ldap.") =>
        {
            "not served; use socksmethod: username, with userlist: or auth.command:".into()
        }
        _ => match value::nearest(key, KEYS.into_iter()) {
            Some(near) => format!("no such condition; did you mean \"{near}:\"?"),
            None => "no such condition; leave it out".into(),
        },
    }
}

fn finish(rule: &mut Rule, parts: Parts) -> Read<()> {
    let spec = &mut rule.spec;
    if spec.stage == Stage::Socks {
        let commands = parts.commands.unwrap_or(Commands::ALL);
        let commands = commands.and(parts.transports.unwrap_or(Commands::ALL));
        if commands.is_empty() {
            return Err("command: and protocol: exclude each other; leave one out".into());
        }
        spec.commands = Some(commands);
    }
    match (parts.each, parts.each_key) {
        (Some(each), key) => {
            spec.limits.each = Some(EachLimits { key: key.unwrap_or_default(), ..each });
        }
        (None, Some(_)) => {
            return Err(
                "session.state.key needs session.state.max or session.state.throttle".into()
            );
        }
        (None, None) => {}
    }
    if spec.access == Access::Block && spec.limits != adit_policy::RuleLimits::default() {
        return Err("a rule that blocks has no session to limit; leave the limits out".into());
    }
    Ok(())
}
