//! Listeners of a client.

use std::net::{Ipv4Addr, SocketAddr};

use super::{Check, Required};
use adit_acl::Side;

use crate::acl::AccessList;
use crate::config::{LocalKind, LocalListener, Mode, Protocol, RemoteServer, UnixLocal};
use crate::diagnostic::{At, Origin};
use crate::endpoint::{Endpoint, Host};
use crate::program::Program;
use crate::raw::{Bind, Raw, RawLocal};

impl Check<'_> {
    /// The listener at the top and those of the list, on addresses and on Unix sockets.
    pub(super) fn locals(
        &mut self,
        raw: &Raw,
        servers: &[RemoteServer],
    ) -> (Vec<LocalListener>, Vec<UnixLocal>) {
        let mut seen = Vec::new();
        let (mut locals, mut unix_locals) = (Vec::new(), Vec::new());
        let top = &raw.local;
        // An address alone is a default for the list; without a list its port is missing.
        let single = (top.is_listener() || raw.locals.is_empty()).then_some(top);
        for local in single.into_iter().chain(&raw.locals) {
            let host = match local.address.as_ref().or(top.address.as_ref()) {
                None => Host::Ip(Ipv4Addr::LOCALHOST.into()),
                Some(At { value: Bind::Host(host), .. }) => host.clone(),
                Some(At { value: Bind::Unix(path), origin }) => {
                    if let Some(port) = &local.port {
                        self.findings.warn(port.origin, "has no effect beside a Unix socket");
                    }
                    let Some(kind) = self.kind(local, raw) else { continue };
                    if let LocalKind::Redir { .. } = kind {
                        let text = "nothing is redirected to a Unix socket; write an IP address";
                        self.findings.error(*origin, text);
                        continue;
                    }
                    self.tcp_alone(local, raw, *origin, servers);
                    self.unique(&mut seen, path.display().to_string(), Some(*origin));
                    let acl = self.client_acl(local, raw);
                    unix_locals.push(UnixLocal { path: path.clone(), kind, acl });
                    continue;
                }
            };
            let Some(port) = &local.port else {
                self.missing(local.origin, Required::LocalPort);
                continue;
            };
            let Some(kind) = self.kind(local, raw) else { continue };
            let Some(mode) = self.local_mode(local, raw, &kind, port.origin, servers) else {
                continue;
            };
            let udp_bind = Endpoint {
                host: local.udp_address.as_ref().map_or(&host, |at| &at.value).clone(),
                port: local.udp_port.as_ref().unwrap_or(port).value,
            };
            let udp_associate = local.udp_associate.as_ref().map(|at| {
                let (ip, port) = at.value;
                SocketAddr::new(ip, port.unwrap_or(udp_bind.port))
            });
            let bind = host.with_port(port.value);
            if mode.tcp() {
                self.unique(&mut seen, bind.to_string(), Some(port.origin));
            } else if let Some(setting) = &local.tcp_redir {
                let text = "has no effect where no TCP is relayed; see \"mode\"";
                self.findings.warn(setting.origin, text);
            }
            if mode.udp() {
                self.unique(&mut seen, format!("UDP {udp_bind}"), Some(port.origin));
            } else {
                self.no_datagrams(local);
            }
            let acl = self.client_acl(local, raw);
            locals.push(LocalListener { bind, udp_bind, udp_associate, mode, kind, acl });
        }
        self.unused_redir(raw, &locals);
        (locals, unix_locals)
    }

    /// The access control list of a listener: its own, or the one at the top.
    fn client_acl(&mut self, local: &RawLocal, raw: &Raw) -> Option<AccessList> {
        let file = local.acl.as_ref().or(raw.server.acl.as_ref());
        self.acls.get(file, Side::Client, self.findings)
    }

    /// What a listener relays: what it is configured for, as far as servers may be used for it.
    fn local_mode(
        &mut self,
        local: &RawLocal,
        raw: &Raw,
        kind: &LocalKind,
        place: Origin,
        servers: &[RemoteServer],
    ) -> Option<Mode> {
        let own = local.mode.as_ref();
        let wanted = own.or(raw.mode.as_ref());
        let origin = wanted.map_or(place, |mode| mode.origin);
        let mode = wanted.map_or(Mode::TcpOnly, |mode| mode.value);
        let has_udp = *kind != LocalKind::Http;
        if own.is_some() && mode == Mode::TcpAndUdp && !has_udp {
            self.findings.warn(origin, "an HTTP proxy relays TCP only");
        }
        // Without a server there is another error.
        let none = servers.is_empty();
        let tcp = mode.tcp() && (none || servers.iter().any(|server| server.mode.tcp()));
        let udp = mode.udp() && has_udp && (none || servers.iter().any(|s| s.mode.udp()));
        let found = Mode::of(tcp, udp);
        if found.is_none() {
            let text = if mode.udp() && !has_udp {
                "an HTTP proxy relays TCP only; write \"tcp_only\""
            } else {
                "no server may be used for what is relayed here; compare \"mode\" in \"servers\""
            };
            self.findings.error(origin, text);
        } else if tcp != mode.tcp() || udp != mode.udp() && has_udp {
            let text = "no server may be used for one half of it; compare \"mode\" in \"servers\"";
            self.findings.warn(origin, text);
        }
        found
    }

    /// Makes sure that a Unix socket, which has no datagrams here, is not asked for them.
    fn tcp_alone(&mut self, local: &RawLocal, raw: &Raw, at: Origin, servers: &[RemoteServer]) {
        // The mode at the top is that of the listener at the top, and a default for the others.
        let at_top = local.origin.is_none();
        let top = raw.mode.as_ref().filter(|top| at_top || top.value == Mode::UdpOnly);
        if let Some(mode) = local.mode.as_ref().or(top).filter(|mode| mode.value.udp()) {
            let text = "a Unix socket relays TCP only; write \"tcp_only\", or an IP address";
            self.findings.error(mode.origin, text);
        } else if !servers.is_empty() && !servers.iter().any(|server| server.mode.tcp()) {
            self.findings.error(at, "a Unix socket relays TCP, and no server may be used for it");
        }
        self.no_datagrams(local);
    }

    /// Says that addresses for datagrams are of no use.
    fn no_datagrams(&mut self, local: &RawLocal) {
        let address = local.udp_address.as_ref().map(|at| at.origin);
        let port = local.udp_port.as_ref().map(|at| at.origin);
        let associate = local.udp_associate.as_ref().map(|at| at.origin);
        let redir = local.udp_redir.as_ref().map(|at| at.origin);
        for origin in [address, port, associate, redir].into_iter().flatten() {
            self.findings.warn(origin, "has no effect where no UDP is relayed; see \"mode\"");
        }
    }

    fn kind(&mut self, local: &RawLocal, raw: &Raw) -> Option<LocalKind> {
        let tunnel_program = self.invoked.program == Program::Tunnel;
        let protocol = self.protocol(local)?;
        if protocol != Protocol::Redir {
            self.no_redirector(local);
        }
        // In ss-tunnel one destination serves every listener that names none.
        let target =
            self.target(local).or_else(|| self.target(&raw.local).filter(|_| tunnel_program));
        match (protocol, target) {
            (Protocol::Tunnel, Some(target)) => Some(LocalKind::Tunnel { target: target.value }),
            (Protocol::Tunnel, None) => {
                self.missing(local.origin, Required::Target);
                None
            }
            (Protocol::Socks | Protocol::Http | Protocol::Redir, Some(target)) => {
                let text = "is for tunnels only; write \"tunnel\" as the protocol or remove it";
                self.findings.error(target.origin, text);
                None
            }
            (Protocol::Socks, None) => Some(LocalKind::Socks),
            (Protocol::Http, None) => Some(LocalKind::Http),
            (Protocol::Redir, None) => Some(Self::redirector(local, raw)),
        }
    }

    /// The target in one piece or in two.
    fn target(&mut self, local: &RawLocal) -> Option<At<Endpoint>> {
        if let Some(target) = &local.target {
            let address = local.forward_address.as_ref().map(|at| at.origin);
            for origin in address.into_iter().chain(local.forward_port.as_ref().map(|at| at.origin))
            {
                let text = "has no effect beside \"tunnel_address\"; remove one of them";
                self.findings.warn_once(origin, text);
            }
            return Some(target.clone());
        }
        match (&local.forward_address, &local.forward_port) {
            (Some(host), Some(port)) => {
                let endpoint = host.value.clone().with_port(port.value);
                Some(At::new(endpoint, host.origin))
            }
            (Some(half), None) => {
                self.findings.error(half.origin, "\"forward_port\" is missing beside it");
                None
            }
            (None, Some(half)) => {
                self.findings.error(half.origin, "\"forward_address\" is missing beside it");
                None
            }
            (None, None) => None,
        }
    }
}
