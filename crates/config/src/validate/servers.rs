//! Servers: where a client connects to, where a server listens, and with which keys.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use adit_acl::Side;
use adit_shadowsocks::{ClientKey, KeyError, Method, RelayKey, ServerKey};

use super::{Check, Required};
use crate::config::{
    Destination, LocalListener, Mode, OutboundOptions, Relay, RemoteServer, ServerListener,
    TIMEOUT_DEFAULT, UnixLocal,
};
use crate::diagnostic::{At, Origin};
use crate::endpoint::{Endpoint, Host};
use crate::program::{Dialect, Program};
use crate::raw::{Bind, Raw, RawOutbound, RawServer, RawUser};
use crate::secret::{Password, Secret};

/// Something is wrong, and `findings` says what.
struct Refused;

/// The method of the C programs when none is configured.
const METHOD_DEFAULT: Method = Method::ChaCha20IetfPoly1305;

impl Check<'_> {
    /// The servers of a client.
    pub(super) fn remote_servers(&mut self, raw: &Raw) -> Vec<RemoteServer> {
        let mut servers = Vec::new();
        for entry in self.entries(raw) {
            let Some((method, secret)) = self.secret(&entry) else { continue };
            let Some(mut key) = self.client_key(method, secret.as_ref()) else { continue };
            if raw.printable_salt == Some(true) {
                let origin = entry.method.as_ref().map_or(self.origin, |method| method.origin);
                let Some(printable) = self.findings.take(origin, key.with_printable_salt()) else {
                    continue;
                };
                key = printable;
            }
            let outbound = outbound(&entry.outbound);
            let timeout = timeout(&entry);
            // The mode at the top is that of the server at the top. Others may be used for
            // everything: the listener decides.
            let mode = mode(&entry, raw.mode.as_ref().filter(|_| entry.origin.is_none()))
                .unwrap_or(Mode::TcpAndUdp);
            let plugin = self.plugin(&entry, mode);
            self.plugin_goes_its_own_way(&entry);
            for host in &entry.hosts {
                let Some(endpoint) = self.endpoint(&entry, host) else { continue };
                servers.push(RemoteServer {
                    endpoint,
                    key: key.clone(),
                    name: entry.name.clone(),
                    id: entry.id.clone(),
                    mode,
                    tcp_weight: entry.tcp_weight.unwrap_or(1.0),
                    udp_weight: entry.udp_weight.unwrap_or(1.0),
                    timeout,
                    outbound: outbound.clone(),
                    plugin: plugin.clone(),
                });
            }
        }
        servers
    }

    /// Makes sure that weights leave a server for what is relayed.
    pub(super) fn usable(
        &mut self,
        locals: &[LocalListener],
        unix_locals: &[UnixLocal],
        servers: &[RemoteServer],
    ) {
        let tcp = !unix_locals.is_empty() || locals.iter().any(|local| local.mode.tcp());
        let udp = locals.iter().any(|local| local.mode.udp());
        let weights = |mode: fn(Mode) -> bool, weight: fn(&RemoteServer) -> f32| {
            servers.iter().filter(|s| mode(s.mode)).map(weight).reduce(f32::max)
        };
        let origin = self.origin;
        if tcp && weights(Mode::tcp, |server| server.tcp_weight) == Some(0.0) {
            self.findings.error(origin, "every server has \"tcp_weight\" 0; give one more");
        }
        if udp && weights(Mode::udp, |server| server.udp_weight) == Some(0.0) {
            self.findings.error(origin, "every server has \"udp_weight\" 0; give one more");
        }
    }

    /// The listeners of a server.
    pub(super) fn listeners(&mut self, raw: &Raw) -> Vec<ServerListener> {
        let by_entry = self.listeners_by_entry(raw);
        by_entry.into_iter().flat_map(|(_, listeners)| listeners).collect()
    }

    /// The listeners of a server, with the settings that they are made from.
    pub(super) fn listeners_by_entry(
        &mut self,
        raw: &Raw,
    ) -> Vec<(RawServer, Vec<ServerListener>)> {
        let source = self.local_source(raw);
        let mut seen = Vec::new();
        let mut all = Vec::new();
        for entry in self.entries(raw) {
            let mut listeners = Vec::new();
            let Some((method, secret)) = self.secret(&entry) else { continue };
            let Some(key) = self.server_key(method, secret.as_ref(), &entry.users) else {
                continue;
            };
            let Ok(relay) = self.relay(&entry, method, secret.as_ref()) else { continue };
            let mode = mode(&entry, raw.mode.as_ref()).unwrap_or(Mode::TcpOnly);
            let mut outbound = outbound(&entry.outbound);
            match source {
                Some(IpAddr::V4(ip)) => outbound.bind_v4 = outbound.bind_v4.or(Some(ip)),
                Some(IpAddr::V6(ip)) => outbound.bind_v6 = outbound.bind_v6.or(Some(ip)),
                None => {}
            }
            let timeout = timeout(&entry);
            let plugin = self.plugin(&entry, mode);
            let limits = [raw.connections_per_client, raw.sessions_per_client];
            self.plugin_hides_clients(&entry, limits);
            let acl = self.acls.get(entry.acl.as_ref(), Side::Server, self.findings);
            if let (Some(at), true) = (&entry.acl, relay.is_some()) {
                let text = "a relay passes everything on to its destinations; write the list there";
                self.findings.error(at.origin, text);
            }
            for host in &entry.hosts {
                let Some(bind) = self.endpoint(&entry, host) else { continue };
                self.unique(&mut seen, bind.to_string(), Some(host.origin));
                listeners.push(ServerListener {
                    bind,
                    key: key.clone(),
                    relay: relay.clone(),
                    mode,
                    name: entry.name.clone(),
                    id: entry.id.clone(),
                    timeout,
                    outbound: outbound.clone(),
                    plugin: plugin.clone(),
                    acl: acl.clone(),
                });
            }
            all.push((entry, listeners));
        }
        self.relays_connect_to_servers(raw, &all);
        all
    }

    /// What is about targets says nothing where there are only relays, which connect to none.
    fn relays_connect_to_servers(&mut self, raw: &Raw, all: &[(RawServer, Vec<ServerListener>)]) {
        let mut listeners = all.iter().flat_map(|(_, listeners)| listeners);
        let [(entry, _), ..] = all else { return };
        let Some(host) = entry.hosts.first() else { return };
        if listeners.any(|listener| listener.relay.is_none()) {
            return;
        }
        let given = [
            ("block_private", raw.block_private == Some(true)),
            ("dscp", !raw.sockets.dscp.is_empty()),
        ];
        for (name, _) in given.into_iter().filter(|(_, is_given)| *is_given) {
            let text = format!("\"{name}\" has no effect on a relay; write it on its destinations");
            self.findings.warn(host.origin, text);
        }
    }

    /// What a relay needs; `Err` when something is wrong with it.
    fn relay(
        &mut self,
        entry: &RawServer,
        method: Method,
        secret: Option<&At<Secret>>,
    ) -> Result<Option<Relay>, Refused> {
        let Some(first) = entry.destinations.first() else { return Ok(None) };
        let place = first.origin.unwrap_or(self.origin);
        let wrong = if !method.supports_identity() {
            Some("a relay needs 2022-blake3-aes-128-gcm or 2022-blake3-aes-256-gcm")
        } else if !entry.users.is_empty() {
            Some("a relay has no users; write \"users\" or \"destinations\", not both")
        } else {
            None
        };
        if let Some(text) = wrong {
            self.findings.error(place, text);
            return Err(Refused);
        }
        // A raw key is none of a 2022 method, which `server_key` has said.
        let Some(At { value: Secret::Password(own), .. }) = secret else { return Err(Refused) };
        let (mut passwords, mut destinations) = (Vec::new(), Vec::new());
        for hop in &entry.destinations {
            let (endpoint, password) = self.destination(hop, method)?;
            let name = hop.name.clone().unwrap_or_else(|| endpoint.to_string().into());
            passwords.push(password);
            destinations.push(Destination { name, endpoint });
        }
        let key =
            RelayKey::parse(method, own.as_str(), passwords.into_iter().map(Password::as_str));
        let key = self.findings.take(place, key).ok_or(Refused)?;
        Ok(Some(Relay { key, destinations }))
    }

    /// The address and the key of a next hop.
    fn destination<'e>(
        &mut self,
        hop: &'e RawServer,
        method: Method,
    ) -> Result<(Endpoint, &'e Password), Refused> {
        let origin = hop.origin;
        let Some(host) = hop.hosts.first() else {
            self.missing(origin, Required::Server);
            return Err(Refused);
        };
        let endpoint = self.endpoint(hop, host).ok_or(Refused)?;
        let Some(At { value: Secret::Password(password), origin: at }) = &hop.secret else {
            self.missing(origin, Required::Password);
            return Err(Refused);
        };
        // Alone, its error is its own.
        let key = ServerKey::parse(method, password.as_str(), []);
        self.findings.take(*at, key).ok_or(Refused)?;
        Ok((endpoint, password))
    }

    /// The server at the top and those of the list, which inherit from it.
    pub(super) fn entries(&mut self, raw: &Raw) -> Vec<RawServer> {
        let mut entries = Vec::new();
        let mut top = raw.server.clone();
        // The C server listens everywhere when no host is given.
        let everywhere = match (self.invoked.program, self.invoked.dialect) {
            (Program::Manager, _) => true,
            (Program::Server, Dialect::Libev) => raw.servers.is_empty(),
            _ => false,
        };
        if everywhere && top.hosts.is_empty() {
            let host = Host::Ip(Ipv4Addr::UNSPECIFIED.into());
            top.hosts.push(At::new((host, None), self.origin));
        }
        let is_manager = self.invoked.program == Program::Manager;
        if is_manager && raw.port_passwords.is_empty() && !Self::has_top_port(&top) {
            // What is at the top is what ports have that do not say otherwise.
            top.hosts.clear();
        }
        if !raw.port_passwords.is_empty() && !top.hosts.is_empty() {
            self.one_by_port(raw, &top, &mut entries);
        } else if !top.hosts.is_empty() {
            entries.push(top);
        }
        for entry in &raw.servers {
            if entry.hosts.is_empty() {
                self.missing(entry.origin, Required::Server);
            }
            entries.push(inherit(entry.clone(), &raw.server));
        }
        let stranded = !raw.port_passwords.is_empty() && raw.server.hosts.is_empty() && !everywhere;
        // The servers may all come from a subscription, the ports from requests.
        let others = raw.online.url.is_some() || is_manager;
        if (entries.is_empty() && !others) || stranded {
            self.missing(None, Required::Server);
        }
        entries
    }

    /// One entry for each port of the server at the top that has a password of its own.
    fn one_by_port(&mut self, raw: &Raw, top: &RawServer, entries: &mut Vec<RawServer>) {
        let together = "ports are those of \"port_password\"; write one or the other";
        if let Some(port) = &top.port {
            self.findings.error(port.origin, together);
        }
        for host in top.hosts.iter().filter(|host| host.value.1.is_some()) {
            self.findings.error(host.origin, together);
        }
        if let Some(first) = top.users.first() {
            self.findings
                .error(first.origin, "users share one port; they have no \"port_password\"");
        } else if let Some(origin) = top.destinations.first().and_then(|hop| hop.origin) {
            self.findings.error(origin, "a relay has one port; it has no \"port_password\"");
        }
        if let Some(At { origin, .. }) = &top.secret
            && !matches!(origin, Origin::Environment)
        {
            self.findings.warn(*origin, "has no effect beside \"port_password\"; remove it");
        }
        for (port, secret) in &raw.port_passwords {
            let (port, secret) = (Some(port.clone()), Some(secret.clone()));
            entries.push(RawServer { port, secret, ..top.clone() });
        }
    }

    pub(super) fn endpoint(
        &mut self,
        entry: &RawServer,
        host: &At<(Host, Option<u16>)>,
    ) -> Option<Endpoint> {
        let (name, own) = host.value.clone();
        let port = own.or_else(|| entry.port.as_ref().map(|port| port.value));
        if port.is_none() && !self.is_wrong(entry.origin, Required::ServerPort) {
            let (flag, key) = self.spelling(Required::ServerPort);
            let message = format!(
                "each server needs a port; missing required argument {flag}, or key \"{key}\" in \
                 the configuration file"
            );
            self.findings.error(host.origin, message);
        }
        Some(name.with_port(port?))
    }

    /// The method and what its key is made from; the latter may only be missing for `none`.
    pub(super) fn secret(&mut self, entry: &RawServer) -> Option<(Method, Option<At<Secret>>)> {
        let method = match (&entry.method, self.invoked.dialect) {
            (Some(method), _) => method.value,
            (None, _) if self.is_wrong(entry.origin, Required::Method) => return None,
            (None, Dialect::Libev) => METHOD_DEFAULT,
            (None, Dialect::Rust) if self.invoked.program == Program::Manager => METHOD_DEFAULT,
            (None, Dialect::Rust) => {
                self.missing(entry.origin, Required::Method);
                return None;
            }
        };
        if method == Method::None {
            let origin = entry.method.as_ref().map_or(self.origin, |method| method.origin);
            let text = "method \"none\" DOES NOT ENCRYPT AND LETS EVERYONE IN; use it only inside \
                        another tunnel";
            self.findings.warn(origin, text);
        } else if entry.secret.is_none() {
            self.missing(entry.origin, Required::Password);
            return None;
        }
        Some((method, entry.secret.clone()))
    }

    fn client_key(&mut self, method: Method, secret: Option<&At<Secret>>) -> Option<ClientKey> {
        let (key, origin) = match secret {
            Some(secret) => (secret.value.client_key(method), secret.origin),
            None => (ClientKey::parse(method, ""), self.origin),
        };
        self.findings.take(origin, key)
    }

    fn server_key(
        &mut self,
        method: Method,
        secret: Option<&At<Secret>>,
        users: &[RawUser],
    ) -> Option<ServerKey> {
        let Some(secret) = secret else {
            return self.findings.take(self.origin, ServerKey::parse(method, "", []));
        };
        let (mut names, mut passwords) = (BTreeSet::new(), BTreeSet::new());
        let mut pairs = Vec::with_capacity(users.len());
        for user in users {
            let RawUser { name, password, origin } = user;
            if !names.insert(&**name) {
                self.findings.error(*origin, "two users have this name; rename one");
            }
            let pair = (&**name, password.value.as_str());
            // Alone with a key that is known to be good, a user's error is the user's.
            let alone = ServerKey::parse(method, pair.1, []).map(drop);
            let shared = if method.supports_identity() { alone } else { Err(KeyError::NoIdentity) };
            self.findings.take(password.origin, shared)?;
            if !passwords.insert(pair.1) {
                self.findings.error(password.origin, KeyError::DuplicateUser.to_string());
                return None;
            }
            pairs.push(pair);
        }
        self.findings.take(secret.origin, secret.value.server_key(method, &pairs))
    }

    /// What `local_address` means on a server: a source address, as in the C server, unless it is
    /// the loopback address that templates meant for clients carry and no target answers to.
    fn local_source(&mut self, raw: &Raw) -> Option<IpAddr> {
        let &At { ref value, origin } = raw.local.address.as_ref()?;
        let instead = "write \"outbound_bind_addr\" if you mean the source address";
        let ip = match value {
            Bind::Host(host) => host.ip(),
            Bind::Unix(_) => None,
        };
        match ip {
            _ if self.invoked.dialect == Dialect::Rust => {
                self.findings.warn(origin, format!("has no effect in this program; {instead}"));
                None
            }
            Some(ip) if ip.is_loopback() => {
                let text = format!("a loopback address has no effect on a server; {instead}");
                self.findings.warn(origin, text);
                None
            }
            Some(ip) => Some(ip).filter(|ip| !ip.is_unspecified()),
            None => {
                self.findings.error(origin, "write an IP address; a name is not possible here");
                None
            }
        }
    }
}

/// Fills what an entry leaves open from the top level. Users and next
/// hops belong to the key they share, so they come along only with it.
fn inherit(entry: RawServer, top: &RawServer) -> RawServer {
    let (mut users, mut destinations) = (entry.users.clone(), entry.destinations.clone());
    if entry.secret.is_none() && users.is_empty() && destinations.is_empty() {
        users.clone_from(&top.users);
        destinations.clone_from(&top.destinations);
    }
    let origin: Option<Origin> = entry.origin;
    let hosts = entry.hosts.clone();
    let (name, id) = (entry.name.clone(), entry.id.clone());
    // Nothing at the top level has a weight or a mode.
    RawServer { users, destinations, origin, hosts, name, id, ..entry.over(top.clone()) }
}

/// The mode of an entry, or else the one at the top where that is meant for it.
fn mode(entry: &RawServer, top: Option<&At<Mode>>) -> Option<Mode> {
    entry.mode.as_ref().or(top).map(|mode| mode.value)
}

pub(super) fn outbound(raw: &RawOutbound) -> OutboundOptions {
    let mut options = OutboundOptions {
        fwmark: raw.fwmark,
        interface: raw.interface.clone(),
        ..OutboundOptions::default()
    };
    for bind in raw.bind.iter().filter(|bind| !bind.value.is_unspecified()) {
        match bind.value {
            IpAddr::V4(ip) => options.bind_v4 = Some(ip),
            IpAddr::V6(ip) => options.bind_v6 = Some(ip),
        }
    }
    options
}

fn timeout(entry: &RawServer) -> Duration {
    entry.timeout.unwrap_or(TIMEOUT_DEFAULT)
}
