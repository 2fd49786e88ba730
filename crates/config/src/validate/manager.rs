//! What makes a manager: its address, where it keeps ports, and the ports of its file.

use std::path::PathBuf;

use adit_acl::Side;

use super::servers::outbound;
use super::{Check, Required};
use crate::acl::AccessLists;
use crate::config::ServerListener;
use crate::diagnostic::{At, Findings, Origin};
use crate::endpoint::{Endpoint, Host};
use crate::file::Lookup;
use crate::manager::{ManagedPort, ManagerAddress, ManagerOptions, template};
use crate::program::{Dialect, Invoked};
use crate::raw::{ManagerHost, Raw, RawServer};

/// The socket of the C manager, in the user's directory.
const DEFAULT_SOCKET: &str = ".ss-manager.socks";
/// The file in a working directory that keeps ports.
const STATE_FILE: &str = "ports.json";

/// The listeners of settings, with the entries that they come from.
pub(crate) fn listeners_of(
    raw: &Raw,
    invoked: Invoked,
    acls: AccessLists,
    findings: &mut Findings,
) -> Vec<(RawServer, Vec<ServerListener>)> {
    Check { invoked, origin: Origin::CommandLine, findings, acls }.listeners_by_entry(raw)
}

impl Check<'_> {
    /// What the manager runs on, where nothing is wrong.
    pub(super) fn manager(&mut self, raw: &Raw, env: Lookup<'_>) -> Option<ManagerOptions> {
        self.idle(raw);
        let ports = self.managed_ports(raw);
        let given = raw.manager.address.is_some() || raw.manager.port.is_some();
        let address = if given { self.manager_address(raw) } else { self.default_address(env) }?;
        if let (ManagerAddress::Internet(endpoint), Some(at)) = (&address, &raw.manager.address)
            && !is_loopback(&endpoint.host)
        {
            let text = "WHOEVER REACHES THIS ADDRESS ADDS AND REMOVES PORTS AND READS EVERY PASSWORD; \
                        use 127.0.0.1 or the path of a Unix socket";
            self.findings.warn(at.origin, text);
        }
        let workdir = raw.manager.workdir.clone();
        let kept_in = |dir: &PathBuf| dir.join(STATE_FILE);
        let acl = self.acls.get(raw.server.acl.as_ref(), Side::Server, self.findings);
        Some(ManagerOptions {
            address,
            acl,
            state_file: raw.manager.state_file.clone().or_else(|| workdir.as_ref().map(kept_in)),
            workdir,
            outbound: outbound(&raw.server.outbound),
            ports,
            template: template(raw),
        })
    }

    /// The address of a manager, if one is given.
    pub(super) fn manager_address(&mut self, raw: &Raw) -> Option<ManagerAddress> {
        let port = raw.manager.port.as_ref();
        let Some(At { value, origin }) = &raw.manager.address else {
            if let Some(port) = port.filter(|_| !self.is_wrong(None, Required::ManagerAddress)) {
                self.findings.error(port.origin, "has no address; write \"manager_address\" too");
            }
            return None;
        };
        match (value, port) {
            (ManagerHost::Unix(path), None) => Some(ManagerAddress::Unix(path.clone())),
            (ManagerHost::Unix(_), Some(port)) => {
                self.findings.error(port.origin, "a Unix socket has no port; remove it");
                None
            }
            (ManagerHost::Host(_, Some(own)), Some(port)) if *own != port.value => {
                self.findings.error(port.origin, "the address has another port; write one of them");
                None
            }
            (ManagerHost::Host(host, own), port) => {
                let Some(port) = own.or(port.map(|port| port.value)) else {
                    let text = "needs a port; write HOST:PORT, or the path of a Unix socket with a \
                                slash in it";
                    self.findings.error(*origin, text);
                    return None;
                };
                Some(ManagerAddress::Internet(Endpoint { host: host.clone(), port }))
            }
        }
    }

    fn default_address(&mut self, env: Lookup<'_>) -> Option<ManagerAddress> {
        let home = env("HOME").filter(|home| home.starts_with('/'));
        match home.filter(|_| self.invoked.dialect == Dialect::Libev) {
            Some(home) => Some(ManagerAddress::Unix(PathBuf::from(home).join(DEFAULT_SOCKET))),
            None => {
                self.missing(None, Required::ManagerAddress);
                None
            }
        }
    }

    /// The ports of the file, each with all its listeners.
    fn managed_ports(&mut self, raw: &Raw) -> Vec<ManagedPort> {
        let mut ports: Vec<ManagedPort> = Vec::new();
        for (entry, listeners) in self.listeners_by_entry(raw) {
            for listener in listeners {
                let number = listener.bind.port;
                match ports.iter_mut().find(|port| port.port == number) {
                    Some(port) => port.listeners.push(listener),
                    None => ports.extend(ManagedPort::of(number, &entry, vec![listener])),
                }
            }
        }
        ports
    }

    /// Whether the settings at the top are a port of their own, besides what all ports have.
    pub(super) fn has_top_port(top: &RawServer) -> bool {
        top.port.is_some() || top.hosts.iter().any(|host| host.value.1.is_some())
    }

    /// Tells of secrets at the top that are those of no port.
    fn idle(&mut self, raw: &Raw) {
        let top = &raw.server;
        if Self::has_top_port(top) || !raw.port_passwords.is_empty() {
            return;
        }
        let secret = top.secret.as_ref().map(|secret| secret.origin);
        let user = top.users.first().map(|user| user.origin);
        let hop = top.destinations.first().and_then(|hop| hop.origin);
        for origin in [secret, user, hop].into_iter().flatten() {
            if origin != Origin::Environment {
                let text = "has no effect: each port of a manager has a password of its own";
                self.findings.warn(origin, text);
            }
        }
    }
}

fn is_loopback(host: &Host) -> bool {
    match host {
        Host::Ip(ip) => ip.is_loopback(),
        Host::Name(name) => &**name == "localhost",
    }
}
