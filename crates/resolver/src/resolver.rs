//! Everything one worker needs to answer names: settings, hosts, cache.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::time::Instant;

use crate::cache::{Cache, POSITIVE_TTL_MAX_S};
use crate::hosts::Hosts;
use crate::lookup::Lookup;
use crate::name::Name;
use crate::outcome::{Failure, Outcome};
use crate::settings::Settings;

/// Where a local answer came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The name was an IP literal.
    Literal,
    /// The hosts table, or the built-in meaning of `localhost`.
    Hosts,
    /// The cache.
    Cache,
    /// The name cannot be asked for at all.
    Check,
}

/// An answer that needed no query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The answer.
    pub outcome: Outcome,
    /// Where it came from.
    pub source: Source,
}

/// The resolver state of one worker.
#[derive(Debug)]
pub struct Resolver {
    settings: Arc<Settings>,
    hosts: Arc<Hosts>,
    cache: Cache,
}

impl Resolver {
    /// Makes a resolver; `cache` brings all the memory it will ever use.
    pub const fn new(settings: Arc<Settings>, hosts: Arc<Hosts>, cache: Cache) -> Self {
        Self { settings, hosts, cache }
    }

    /// Answers from IP literals, the hosts table, `localhost` and the cache, in this order.
    ///
    /// `None` means that a [`Lookup`] is needed. A name that cannot be asked for is an answer
    /// too: [`Failure::Name`].
    pub fn lookup_local(&mut self, now: Instant, name: &str) -> Option<Answer> {
        if let Some(addr) = literal(name) {
            let outcome = Outcome::Found {
                addrs: std::iter::once(addr).collect(),
                ttl_s: POSITIVE_TTL_MAX_S,
            };
            return Some(Answer { outcome, source: Source::Literal });
        }
        let name = match Name::parse(name) {
            Ok(name) => name,
            Err(error) => {
                let outcome = Outcome::Failed(Failure::Name(error));
                return Some(Answer { outcome, source: Source::Check });
            }
        };
        if let Some(addrs) = self.hosts.lookup_name(&name) {
            let outcome = Outcome::Found { addrs, ttl_s: POSITIVE_TTL_MAX_S };
            return Some(Answer { outcome, source: Source::Hosts });
        }
        let outcome = self.cache.lookup(now, &name)?;
        Some(Answer { outcome, source: Source::Cache })
    }

    /// Starts a query for a name that [`Resolver::lookup_local`] does not know. The engine keeps
    /// the settings (see [`Resolver::settings`]) beside it for as long as it runs.
    pub fn start(&self, now: Instant, name: &str, random: &mut dyn FnMut() -> u64) -> Lookup {
        Lookup::start(&self.settings, name, now, random)
    }

    /// Caches the outcome of a lookup for `name` as far as it may be kept.
    pub fn remember(&mut self, now: Instant, name: &str, outcome: &Outcome) {
        // A name that cannot be parsed has no outcome worth keeping: its check is repeated.
        if let Ok(name) = Name::parse(name) {
            self.cache.insert(now, &name, outcome);
        }
    }

    /// Takes new settings and forgets negative answers, which the old ones may explain.
    pub fn replace_settings(&mut self, settings: Arc<Settings>) {
        self.settings = settings;
        self.cache.clear_negative();
    }

    /// Takes a new hosts table and forgets negative answers.
    pub fn replace_hosts(&mut self, hosts: Arc<Hosts>) {
        self.hosts = hosts;
        self.cache.clear_negative();
    }

    /// The settings in force, to be cloned beside each started lookup.
    pub const fn settings(&self) -> &Arc<Settings> {
        &self.settings
    }

    /// The hosts table in force.
    pub const fn hosts(&self) -> &Arc<Hosts> {
        &self.hosts
    }

    /// The cache, for its counters.
    pub const fn cache(&self) -> &Cache {
        &self.cache
    }
}

/// The address that `name` spells, also in brackets. The short and octal IPv4 forms of
/// `inet_aton` are not addresses here: programs disagree about what they mean.
fn literal(name: &str) -> Option<IpAddr> {
    let addr = match name.strip_prefix('[').and_then(|t| t.strip_suffix(']')) {
        Some(inner) => IpAddr::V6(inner.parse::<Ipv6Addr>().ok()?),
        None => name.parse().ok()?,
    };
    Some(addr.to_canonical())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::name::NameError;

    fn resolver() -> Resolver {
        let hosts = Hosts::parse(b"10.0.0.7 printer Printer.Lan\n");
        Resolver::new(Arc::new(Settings::default()), Arc::new(hosts), Cache::new(8))
    }

    fn found(text: &str, ttl_s: u32) -> Outcome {
        Outcome::Found { addrs: text.split(' ').map(|t| t.parse().unwrap()).collect(), ttl_s }
    }

    #[test]
    fn answers_literals_hosts_localhost_and_bad_names() {
        let mut resolver = resolver();
        let now = Instant::now();
        for (name, outcome, source) in [
            ("192.0.2.1", found("192.0.2.1", 3600), Source::Literal),
            ("[2001:db8::1]", found("2001:db8::1", 3600), Source::Literal),
            ("::ffff:192.0.2.1", found("192.0.2.1", 3600), Source::Literal),
            ("PRINTER.", found("10.0.0.7", 3600), Source::Hosts),
            ("printer.lan", found("10.0.0.7", 3600), Source::Hosts),
            ("x.localhost", found("127.0.0.1 ::1", 3600), Source::Hosts),
            ("a b", Outcome::Failed(Failure::Name(NameError::Character)), Source::Check),
            ("", Outcome::Failed(Failure::Name(NameError::Empty)), Source::Check),
        ] {
            assert_eq!(
                resolver.lookup_local(now, name),
                Some(Answer { outcome, source }),
                "{name}"
            );
        }
        assert_eq!(resolver.lookup_local(now, "example.com"), None);
        assert_eq!(resolver.lookup_local(now, "127.1"), None);
    }

    #[test]
    fn remembers_and_keeps_the_final_dot_apart() {
        let mut resolver = resolver();
        let now = Instant::now();
        resolver.remember(now, "Host", &found("192.0.2.1", 60));
        let answer = resolver.lookup_local(now + Duration::from_secs(59), "hOST").unwrap();
        assert_eq!(answer, Answer { outcome: found("192.0.2.1", 1), source: Source::Cache });
        assert_eq!(resolver.lookup_local(now, "host."), None);
        assert_eq!(resolver.lookup_local(now + Duration::from_secs(60), "host"), None);
    }

    #[test]
    fn new_settings_and_hosts_forget_negative_answers_only() {
        let mut resolver = resolver();
        let now = Instant::now();
        for swap in 0..2 {
            resolver.remember(now, "yes", &found("192.0.2.1", 60));
            resolver.remember(now, "no", &Outcome::NoSuchName { ttl_s: 60 });
            resolver.remember(now, "down", &Outcome::Failed(Failure::Timeout));
            assert!(resolver.lookup_local(now, "no").is_some());
            if swap == 0 {
                resolver.replace_settings(Arc::new(Settings::default()));
            } else {
                resolver.replace_hosts(Arc::new(Hosts::parse(b"")));
            }
            assert!(resolver.lookup_local(now, "yes").is_some());
            assert_eq!(resolver.lookup_local(now, "no"), None);
            assert_eq!(resolver.lookup_local(now, "down"), None);
        }
    }
}
