//! The keys of settings: names, aliases, and what a reload does with them.
//!
//! `docs/socks.md` has a line for each; a test compares the two.

/// What a reload does with a changed value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reload {
    /// New connections meet the new value.
    Live,
    /// The old value stays until the program starts again.
    Restart,
}

/// What a setting is about, in the words of the metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The process.
    Process,
    /// Connections that begin later.
    NewConnections,
    /// The next time that the file is read.
    NextReload,
}

/// One key.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// The canonical name.
    pub name: &'static str,
    /// Other spellings.
    pub aliases: &'static [&'static str],
    /// What a reload does.
    pub reload: Reload,
    /// What it is about.
    pub scope: Scope,
    /// A remark for the metadata.
    pub note: &'static str,
}

const fn live(name: &'static str, aliases: &'static [&'static str]) -> Key {
    Key { name, aliases, reload: Reload::Live, scope: Scope::NewConnections, note: "" }
}

const fn restart(name: &'static str, aliases: &'static [&'static str]) -> Key {
    Key { name, aliases, reload: Reload::Restart, scope: Scope::Process, note: "" }
}

const fn noted(key: Key, note: &'static str) -> Key {
    Key { note, ..key }
}

const REFUSED_TLS: &str = "not served; use a TLS terminator in front, with proxyprotocol";

/// Every key, in the order of the documentation.
pub const KEYS: &[Key] = &[
    Key { scope: Scope::NextReload, note: "read again at every reload", ..live("include", &[]) },
    noted(live("internal", &[]), "listeners are compared; connections go on"),
    live("protocols", &[]),
    noted(restart("egress", &[]), "only \"direct\""),
    live("external", &[]),
    live("external.rotation", &["externalrotation"]),
    live("proxyprotocol", &["proxy.protocol"]),
    live("socksmethod", &[]),
    noted(live("clientmethod", &[]), "only \"none\", which changes nothing"),
    noted(live("userlist", &[]), "the file is read again at every reload"),
    live("auth.command", &["authcommand"]),
    noted(live("auth.cachettl", &["authcachettl", "auth.cache.ttl"]), "the cache is emptied"),
    live("group", &[]),
    live("connecttimeout", &["connect.timeout"]),
    live("handshaketimeout", &["handshake.timeout"]),
    live("iotimeout", &["io.timeout"]),
    live("writestalltimeout", &["writestall.timeout"]),
    live("tcp.keepalive", &["tcpkeepalive"]),
    live("bind.timeout", &["bindtimeout"]),
    live("bind.portrange", &["bindportrange"]),
    live("udptimeout", &["udp.timeout"]),
    live("udp.portrange", &["udpportrange"]),
    live("udp.strictreply", &["udpstrictreply"]),
    live("udp.rebind", &["udprebind"]),
    live("udp.advertise", &["udpadvertise"]),
    restart("shutdown.draintimeout", &["shutdowndraintimeout"]),
    noted(live("reload.endsessions", &["reloadendsessions"]), "counts at the reload that reads it"),
    restart("maxconnections", &["max.connections"]),
    restart("user", &["user.unprivileged"]),
    restart("logoutput", &[]),
    restart("logfile", &["log.file"]),
    restart("logformat", &["log.format"]),
    restart("logrotate.size", &["logrotatesize", "log.rotate.size"]),
    restart("logrotate.age", &["logrotateage", "log.rotate.age"]),
    restart("logrotate.keep", &["logrotatekeep", "log.rotate.keep"]),
    live("dns.prefer", &["dnsprefer"]),
    live("dns.tryall", &["dnstryall", "dns.try_all"]),
    live("dns.deny", &["dnsdeny"]),
    live("dns.cachettl", &["dnscachettl", "dns.cache.ttl"]),
    live("dns.timeout", &["dnstimeout"]),
    noted(live("geoip.database", &["geoip_database"]), "the file is read again at every reload"),
    restart("metrics.listen", &["metricslisten"]),
    restart("metrics.allowpublic", &["metricsallowpublic"]),
    noted(restart("tls.certfile", &["tlscertfile", "tls.cert"]), REFUSED_TLS),
    noted(restart("tls.keyfile", &["tlskeyfile", "tls.key"]), REFUSED_TLS),
    noted(restart("tls.acme.domains", &["tlsacmedomains", "tls.acme.domain"]), REFUSED_TLS),
    noted(restart("tls.acme.email", &["tlsacmeemail"]), REFUSED_TLS),
    noted(restart("tls.acme.cache", &["tlsacmecache", "tls.acme.cachedir"]), REFUSED_TLS),
    noted(restart("tls.acme.staging", &["tlsacmestaging"]), REFUSED_TLS),
    live("ratelimit.connectionrate", &["ratelimit.connection.rate", "ratelimit.connections"]),
    live("ratelimit.authfailurerate", &["ratelimit.auth.failure.rate", "ratelimit.authfailures"]),
    live(
        "ratelimit.concurrentconnections",
        &["ratelimit.concurrent.connections", "ratelimit.concurrent"],
    ),
    live("ratelimit.byterate", &["ratelimit.byte.rate", "ratelimit.bytes"]),
    live("ratelimit.user.connectionrate", &[]),
    live("ratelimit.user.authfailurerate", &[]),
    live("ratelimit.user.concurrentconnections", &[]),
    live("ratelimit.user.byterate", &[]),
    live("ratelimit.listener.connectionrate", &[]),
    live("ratelimit.listener.concurrentconnections", &[]),
    live("ratelimit.listener.byterate", &[]),
    restart("ratelimit.entries", &[]),
    live("quota.user.day", &[]),
    live("quota.user.month", &[]),
    live("quota.client.day", &[]),
    live("quota.client.month", &[]),
    live("quota.listener.day", &[]),
    live("quota.listener.month", &[]),
    restart("quota.file", &[]),
    noted(live("client", &[]), "rules"),
    noted(live("socks", &[]), "rules"),
];

/// The canonical name of a keyword in lower case.
pub(crate) fn canonical(keyword: &str) -> Option<&'static str> {
    KEYS.iter()
        .find(|key| key.name == keyword || key.aliases.contains(&keyword))
        .map(|key| key.name)
}

/// Every spelling.
pub(crate) fn spellings() -> impl Iterator<Item = &'static str> {
    KEYS.iter().flat_map(|key| std::iter::once(key.name).chain(key.aliases.iter().copied()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_spelling_means_two_things() {
        let mut all: Vec<&str> = spellings().collect();
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
        assert_eq!(canonical("log.rotate.keep"), Some("logrotate.keep"));
        assert_eq!(canonical("clientmethod"), Some("clientmethod"));
        assert_eq!(canonical("nothing"), None);
    }

    #[test]
    fn the_documentation_has_every_key() {
        let docs = include_str!("../../../docs/socks.md");
        for key in KEYS.iter().filter(|key| key.name != "client" && key.name != "socks") {
            assert!(docs.contains(&format!("| `{}`", key.name)), "docs/socks.md: {}", key.name);
            for alias in key.aliases {
                assert!(docs.contains(&format!("`{alias}`")), "docs/socks.md: {alias}");
            }
        }
    }
}
