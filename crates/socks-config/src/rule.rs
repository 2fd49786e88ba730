//! Rules as configured: what names of interfaces, countries and groups stand for is filled in when
//! they are compiled, because it may change while the file does not.

use std::collections::BTreeMap;
use std::sync::Arc;

use adit_acl::{Country, GeoDatabase, GeoError};
use adit_policy::{
    AddressSet, HostPattern, Hosts, Mistake, Policy, Prefix, RuleError, RuleSpec, SetBuilder,
};

use crate::Language;
use crate::config::Config;
use crate::finding::Finding;

/// The hosts of a `from` or `to`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct HostNames {
    pub(crate) prefixes: Vec<Prefix>,
    pub(crate) names: Vec<HostPattern>,
    pub(crate) countries: Vec<Country>,
    pub(crate) interfaces: Vec<String>,
}

/// A rule as configured.
#[derive(Clone, Debug)]
pub struct Rule {
    /// Everything but [`RuleSpec::from`] and [`RuleSpec::to`].
    pub(crate) spec: RuleSpec,
    pub(crate) from: Option<HostNames>,
    pub(crate) to: Option<HostNames>,
}

/// Rules, compiled.
#[derive(Debug)]
pub struct Compiled {
    /// What they say.
    pub policy: Policy,
    /// What deserves attention, one line each.
    pub warnings: Vec<String>,
}

/// What the system knows and a file does not.
pub struct Environment<'a> {
    /// The networks of an interface (its addresses with the length of their prefixes); `None` if
    /// there is no such interface.
    pub interface: &'a dyn Fn(&str) -> Option<Vec<Prefix>>,
    /// Countries, if the file that [`Config::geoip_database`] names was read.
    pub countries: Option<&'a GeoDatabase>,
}

impl std::fmt::Debug for Environment<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Environment").field("countries", &self.countries).finish_non_exhaustive()
    }
}

impl Config {
    /// Interfaces that rules name, each once. When one of them changes the rules are compiled anew.
    pub fn rule_interfaces(&self) -> Vec<&str> {
        let mut names: Vec<&str> =
            self.hosts().flat_map(|hosts| &hosts.interfaces).map(String::as_str).collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// True if a rule names a country, so that [`Environment::countries`] is needed.
    pub fn names_countries(&self) -> bool {
        self.hosts().any(|hosts| !hosts.countries.is_empty())
    }

    /// Compiles the rules.
    ///
    /// # Errors
    /// Every rule that cannot do what its author wants. In a file of Dante a rule in the shadow of an
    /// earlier one is left out with a warning instead: there they are common, as a `block` for
    /// everything at the end of a list that passes everything.
    pub fn policy(&self, environment: &Environment<'_>) -> Result<Compiled, Vec<Finding>> {
        let countries = self.countries(environment.countries)?;
        let mut rules: Vec<RuleSpec> = self
            .rules
            .iter()
            .map(|rule| {
                let hosts = |hosts: &Option<HostNames>| {
                    hosts.as_ref().map(|hosts| hosts.fill(environment.interface, &countries))
                };
                RuleSpec { from: hosts(&rule.from), to: hosts(&rule.to), ..rule.spec.clone() }
            })
            .collect();
        let mut warnings = Vec::new();
        loop {
            let compiled = Policy::new(rules.clone(), self.auth.offered(), self.replies);
            let mistakes = match compiled {
                Ok(policy) => return Ok(Compiled { policy, warnings }),
                Err(mistakes) => mistakes,
            };
            let is_shadowed = |mistake: &Mistake| matches!(mistake.error, RuleError::Shadowed(_));
            let is_lenient = self.language == Language::Dante;
            if !is_lenient || !mistakes.iter().all(is_shadowed) {
                return Err(mistakes.into_iter().map(finding).collect());
            }
            // Each round leaves out at least one rule.
            for mistake in mistakes.iter().rev() {
                rules.remove(mistake.index);
            }
            warnings.extend(mistakes.into_iter().map(|it| format!("{}: {}", it.place, it.error)));
        }
    }

    fn hosts(&self) -> impl Iterator<Item = &HostNames> {
        self.rules.iter().flat_map(|rule| rule.from.iter().chain(&rule.to))
    }

    /// The addresses of each country that a rule names, from one walk through the database.
    fn countries(
        &self,
        database: Option<&GeoDatabase>,
    ) -> Result<BTreeMap<Country, Arc<AddressSet>>, Vec<Finding>> {
        let mut builders: BTreeMap<Country, SetBuilder> = self
            .hosts()
            .flat_map(|hosts| &hosts.countries)
            .map(|&country| (country, SetBuilder::default()))
            .collect();
        if builders.is_empty() {
            return Ok(BTreeMap::new());
        }
        let whole = |message: String| vec![Finding { place: None, message }];
        let database = database.ok_or_else(|| {
            whole("geoip: needs a database of countries; write geoip.database: FILE.mmdb".into())
        })?;
        let walked = database.walk(&mut |country, first, last| {
            if let Some(builder) = builders.get_mut(&country) {
                builder.add_range(first, last);
            }
        });
        walked.map_err(|error: GeoError| whole(format!("geoip.database: {error}")))?;
        let sets: BTreeMap<_, _> =
            builders.into_iter().map(|(country, set)| (country, Arc::new(set.finish()))).collect();
        match sets.iter().find(|(_, set)| set.is_empty()) {
            Some((country, _)) => Err(whole(format!(
                "geoip:{country}: the file that geoip.database names has no addresses of this \
                 country; write another code, or name a database of countries"
            ))),
            None => Ok(sets),
        }
    }
}

impl HostNames {
    fn fill(
        &self,
        interface: &dyn Fn(&str) -> Option<Vec<Prefix>>,
        countries: &BTreeMap<Country, Arc<AddressSet>>,
    ) -> Hosts {
        let mut hosts = Hosts {
            prefixes: self.prefixes.clone(),
            names: self.names.clone(),
            countries: self
                .countries
                .iter()
                .filter_map(|country| countries.get(country).cloned())
                .collect(),
            is_pending: false,
        };
        for name in &self.interfaces {
            match interface(name) {
                Some(prefixes) if !prefixes.is_empty() => hosts.prefixes.extend(prefixes),
                _ => hosts.is_pending = true,
            }
        }
        hosts
    }
}

fn finding(mistake: Mistake) -> Finding {
    Finding { place: Some(mistake.place), message: mistake.error.to_string() }
}
