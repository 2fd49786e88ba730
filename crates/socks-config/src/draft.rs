//! Settings while they are read, and the step that checks them together.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use adit_policy::limits::{Allowance, MeterLimits};
use adit_policy::{AddressSet, Method, Place, Prefix, ProxyProtocols, Replies, Stage};

use crate::Language;
use crate::config::{
    Advertised, Auth, Config, Dns, External, Facility, Limits, ListenAt, Listener, Log, LogFormat,
    Prefer, Rotation, Timeouts, Udp,
};
use crate::finding::Findings;
use crate::rule::Rule;

/// A value and where it was set.
pub(crate) type At<T> = Option<(T, Place)>;

/// Where log lines go, as written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sink {
    Stdout,
    Stderr,
    File,
    Syslog(Facility),
}

/// A group in a rule, which may be defined further down.
#[derive(Debug)]
pub(crate) struct GroupUse {
    pub(crate) rule: usize,
    pub(crate) group: String,
    pub(crate) place: Place,
}

/// Settings as read so far; what is not set is `None` or empty.
#[derive(Debug, Default)]
pub(crate) struct Draft {
    pub(crate) listeners: Vec<(Listener, Place)>,
    pub(crate) externals: Vec<(External, Place)>,
    pub(crate) rotation: At<Rotation>,
    pub(crate) protocols: Option<ProxyProtocols>,
    pub(crate) proxy_peers: Option<Vec<Prefix>>,
    pub(crate) methods: At<Vec<Method>>,
    pub(crate) userlist: Option<String>,
    pub(crate) auth_command: Vec<String>,
    pub(crate) auth_cache: Option<u32>,
    pub(crate) groups: BTreeMap<String, Vec<String>>,
    pub(crate) group_uses: Vec<GroupUse>,
    pub(crate) connect_timeout: Option<u32>,
    pub(crate) handshake_timeout: Option<u32>,
    pub(crate) io_timeout: Option<u32>,
    pub(crate) write_stall: Option<u32>,
    pub(crate) keepalive: Option<u32>,
    pub(crate) bind_timeout: Option<u32>,
    pub(crate) bind_ports: Option<(u16, u16)>,
    pub(crate) udp_timeout: Option<u32>,
    pub(crate) udp_ports: Option<(u16, u16)>,
    pub(crate) udp_strict: Option<bool>,
    pub(crate) udp_rebind: Option<bool>,
    pub(crate) udp_advertise: Option<Advertised>,
    pub(crate) drain: Option<u32>,
    pub(crate) end_sessions: Option<bool>,
    pub(crate) connections_max: Option<u32>,
    pub(crate) run_as: Option<String>,
    pub(crate) sinks: At<Vec<Sink>>,
    pub(crate) log_file: Option<String>,
    pub(crate) log_format: Option<LogFormat>,
    pub(crate) rotate_size: Option<u64>,
    pub(crate) rotate_age: Option<u32>,
    pub(crate) rotate_keep: Option<u32>,
    pub(crate) debug: bool,
    pub(crate) dns_prefer: Option<Prefer>,
    pub(crate) dns_try_all: Option<bool>,
    pub(crate) dns_deny: Option<AddressSet>,
    pub(crate) dns_cache: Option<u32>,
    pub(crate) dns_timeout: Option<u32>,
    pub(crate) geoip_database: Option<String>,
    pub(crate) metrics: At<std::net::SocketAddr>,
    pub(crate) metrics_public: bool,
    pub(crate) client: MeterLimits,
    pub(crate) user: MeterLimits,
    pub(crate) listener: MeterLimits,
    pub(crate) client_quota: Allowance,
    pub(crate) user_quota: Allowance,
    pub(crate) listener_quota: Allowance,
    pub(crate) quota_file: Option<String>,
    pub(crate) limit_entries: Option<u32>,
    pub(crate) replies: Replies,
    pub(crate) rules: Vec<Rule>,
}

const fn after(seconds: u32) -> Duration {
    Duration::from_secs(seconds as u64)
}

/// 0 is off.
fn unless_zero(seconds: u32) -> Option<Duration> {
    (seconds != 0).then(|| after(seconds))
}

impl Draft {
    /// Checks everything together. `None` if anything is wrong; `findings` says what.
    pub(crate) fn finish(mut self, language: Language, findings: &mut Findings) -> Option<Config> {
        if self.listeners.is_empty() {
            findings.error(None, "no \"internal\"; write internal: 127.0.0.1:1080");
        }
        self.check_externals(findings);
        self.check_auth(findings);
        self.check_listeners(findings);
        self.check_quota(findings);
        self.join_groups(findings);
        let log = self.log(findings);
        if let Some((addr, place)) = &self.metrics
            && !addr.ip().to_canonical().is_loopback()
            && !self.metrics_public
        {
            findings.error(
                Some(place),
                "metrics.listen is not a loopback address; write 127.0.0.1, or metrics.allowpublic: true",
            );
        }
        if self
            .rules
            .iter()
            .any(|rule| rule.from.iter().chain(&rule.to).any(|hosts| !hosts.countries.is_empty()))
            && self.geoip_database.is_none()
        {
            findings.error(None, "geoip: in a rule needs geoip.database: FILE.mmdb");
        }
        self.warn(findings);
        findings.is_usable().then(|| self.build(language, log))
    }

    fn check_externals(&self, findings: &mut Findings) {
        let rotation = self.rotation.as_ref().map_or(Rotation::None, |(rotation, _)| *rotation);
        for (external, place) in &self.externals {
            match external {
                External::Any if self.externals.len() > 1 => findings.error(
                    Some(place),
                    "an unspecified external address leaves the choice to the system; leave it out, \
                     or the others",
                ),
                External::Prefix(_) if !matches!(rotation, Rotation::Random | Rotation::User) => {
                    findings.error(
                        Some(place),
                        "a prefix as external needs external.rotation: random or user",
                    );
                }
                _ => {}
            }
        }
        if let Some((rotation, place)) = &self.rotation
            && matches!(rotation, Rotation::RoundRobin | Rotation::Random | Rotation::User)
            && self.externals.is_empty()
        {
            findings
                .error(Some(place), "external.rotation needs external: addresses to choose from");
        }
    }

    fn check_auth(&self, findings: &mut Findings) {
        let Some((methods, place)) = &self.methods else { return };
        if methods.contains(&Method::Username)
            && self.userlist.is_none()
            && self.auth_command.is_empty()
        {
            findings.error(
                Some(place),
                "the method username needs userlist: FILE or auth.command: PROGRAM",
            );
        }
    }

    fn check_listeners(&self, findings: &mut Findings) {
        let mut names: Vec<&str> = Vec::new();
        for (number, (listener, place)) in self.listeners.iter().enumerate() {
            let earlier = &self.listeners[..number];
            let is_fixed = !matches!(listener.at, ListenAt::Addr(addr) if addr.port() == 0);
            if is_fixed && earlier.iter().any(|(earlier, _)| earlier.at == listener.at) {
                findings.error(Some(place), "the same internal address again; leave one out");
            }
            if let Some(name) = &listener.name {
                if names.contains(&name.as_str()) {
                    findings.error(Some(place), "two internal have the same name; write another");
                }
                names.push(name);
            }
        }
    }

    fn check_quota(&self, findings: &mut Findings) {
        let quotas = [self.client_quota, self.user_quota, self.listener_quota];
        let of_rules = self.rules.iter().map(|rule| rule.spec.limits.quota);
        let is_used = quotas.into_iter().chain(of_rules).any(|quota| quota != Allowance::default());
        if is_used && self.quota_file.is_none() {
            findings.error(None, "quotas are kept in a file; write quota.file: PATH");
        }
        for rule in &self.rules {
            let has_quota = rule.spec.limits.quota != Allowance::default();
            if has_quota && rule.spec.name.is_none() {
                findings.error(
                    Some(&rule.spec.place),
                    "a quota is kept under the name of its rule; write socks pass NAME { ... }",
                );
            }
        }
    }

    fn join_groups(&mut self, findings: &mut Findings) {
        for used in std::mem::take(&mut self.group_uses) {
            let Some(members) = self.groups.get(&used.group) else {
                findings.error(
                    Some(&used.place),
                    format_args!(
                        "no group \"{0}\"; write group: {0} USER... somewhere",
                        crate::value::shown(&used.group)
                    ),
                );
                continue;
            };
            if let Some(rule) = self.rules.get_mut(used.rule) {
                let users = rule.spec.users.get_or_insert_default();
                users.extend(members.iter().map(|member| member.as_bytes().into()));
            }
        }
    }

    fn log(&self, findings: &mut Findings) -> Log {
        let sinks = self.sinks.as_ref().map_or(&[Sink::Stdout][..], |(sinks, _)| sinks);
        if let Some((_, place)) = &self.sinks
            && sinks.contains(&Sink::File)
            && self.log_file.is_none()
        {
            findings.error(Some(place), "logoutput: file needs logfile: PATH");
        }
        Log {
            stdout: sinks.contains(&Sink::Stdout),
            stderr: sinks.contains(&Sink::Stderr),
            syslog: sinks.iter().find_map(|sink| match sink {
                Sink::Syslog(facility) => Some(*facility),
                Sink::Stdout | Sink::Stderr | Sink::File => None,
            }),
            file: self.log_file.clone(),
            format: self.log_format.unwrap_or_default(),
            rotate_size: self.rotate_size.unwrap_or(10 << 20),
            rotate_age: self.rotate_age.and_then(unless_zero),
            rotate_keep: self.rotate_keep.unwrap_or(5),
            debug: self.debug,
        }
    }

    fn warn(&self, findings: &mut Findings) {
        for (stage, what) in [(Stage::Client, "every connection"), (Stage::Socks, "every request")]
        {
            if !self.rules.iter().any(|rule| rule.spec.stage == stage) {
                let word = stage.as_label();
                findings.warn(format!("there is no {word} rule: {what} is refused"));
            }
        }
        let offers_none =
            self.methods.as_ref().is_none_or(|(methods, _)| methods.contains(&Method::None));
        let is_open = |listener: &Listener| match &listener.at {
            ListenAt::Addr(addr) => !addr.ip().to_canonical().is_loopback(),
            ListenAt::Interface { name, .. } => name != "lo",
        };
        if offers_none && self.listeners.iter().any(|(listener, _)| is_open(listener)) {
            findings.warn(
                "the method none is offered on an address that is not loopback: whoever gets past \
                 the client rules needs no password",
            );
        }
    }

    fn build(self, language: Language, log: Log) -> Config {
        let externals: Vec<External> = self.externals.into_iter().map(|(it, _)| it).collect();
        Config {
            language,
            listeners: self.listeners.into_iter().map(|(listener, _)| listener).collect(),
            externals: if externals.is_empty() { vec![External::Any] } else { externals },
            rotation: self.rotation.map_or(Rotation::None, |(rotation, _)| rotation),
            protocols: self.protocols.unwrap_or(ProxyProtocols::ALL),
            proxy_peers: self.proxy_peers.map(AddressSet::of_prefixes),
            auth: Auth {
                methods: self.methods.map_or_else(|| vec![Method::None], |(methods, _)| methods),
                userlist: self.userlist,
                command: self.auth_command,
                cache: unless_zero(self.auth_cache.unwrap_or(300)),
            },
            timeouts: Timeouts {
                connect: after(self.connect_timeout.unwrap_or(30)),
                handshake: after(self.handshake_timeout.unwrap_or(10)),
                io: self.io_timeout.and_then(unless_zero),
                write_stall: unless_zero(self.write_stall.unwrap_or(300)),
                keepalive: unless_zero(self.keepalive.unwrap_or(60)),
                udp: unless_zero(self.udp_timeout.unwrap_or(60)),
                bind: after(self.bind_timeout.unwrap_or(120)),
                drain: after(self.drain.unwrap_or(10)),
            },
            udp: Udp {
                ports: self.udp_ports,
                strict_reply: self.udp_strict.unwrap_or(true),
                rebind: self.udp_rebind.unwrap_or(false),
                advertise: self.udp_advertise,
            },
            bind_ports: self.bind_ports,
            dns: Dns {
                prefer: self.dns_prefer.unwrap_or_default(),
                try_all: self.dns_try_all.unwrap_or(false),
                deny: self.dns_deny.unwrap_or_default(),
                cache: self.dns_cache.and_then(unless_zero),
                timeout: after(self.dns_timeout.unwrap_or(5)),
            },
            connections_max: self.connections_max.unwrap_or(1024),
            run_as: self.run_as,
            end_sessions: self.end_sessions.unwrap_or(false),
            log,
            metrics: self.metrics.map(|(addr, _)| addr),
            geoip_database: self.geoip_database,
            limits: Limits {
                client: self.client,
                user: self.user,
                listener: self.listener,
                client_quota: self.client_quota,
                user_quota: self.user_quota,
                listener_quota: self.listener_quota,
            },
            limit_entries: self.limit_entries.unwrap_or(65_536),
            quota_file: self.quota_file,
            replies: self.replies,
            rules: self.rules,
        }
    }
}

/// What an external address in a file means.
pub(crate) fn external_of(addr: IpAddr) -> External {
    let addr = addr.to_canonical();
    if addr.is_unspecified() { External::Any } else { External::Addr(addr) }
}
