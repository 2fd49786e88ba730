//! Firewall rules for a redirector: what is given to it, and what is left alone.
//!
//! [`Rules::new`] works them out from the redirector's own configuration, so that port, servers and
//! mark are written in one place; [`Rules::script`] writes them down for `nft -f`. Nothing is
//! changed here.
//!
//! What is left alone, by the rules of `leave_out` in the script:
//! * what the redirector sends itself: it carries a mark, whatever its servers' names resolve to;
//! * answers of services of this host, which would otherwise be taken for new connections by TPROXY;
//! * this host's own addresses, private and reserved ranges, and ranges that the user names;
//! * the servers' addresses, also for other programs and hosts, and for plugins, which carry no mark.
//!   A server's name is looked up when the rules are made.
//!
//! By TPROXY, packets of this host itself take a detour: a chain of the output hook marks them, the
//! routing rule of [`DELIVERY`] sends them to `lo`, and there they meet the chain that gives them to
//! the redirector.

mod range;
mod script;

use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::ops::RangeInclusive;

use adit_config::{Config, Host, Interception, LocalKind, LocalListener, Role};
use adit_sys::datagram::Family;
use adit_sys::routing::LocalDelivery;

pub use range::IpRange;

/// Name of the table that holds the rules, in the family `inet`.
pub const TABLE: &str = "adit_redir";

/// What becomes of packets that TPROXY rules have marked.
pub const DELIVERY: LocalDelivery = LocalDelivery { mark: 0xAD18, table: 0xAD18, priority: 1088 };

/// Both families, in the order of the rules.
pub const FAMILIES: [Family; 2] = [Family::V4, Family::V6];

/// What the user wants of the rules besides the redirector's configuration.
#[derive(Clone, Debug)]
pub struct Scope {
    /// Whether this host's own traffic is redirected.
    pub own: bool,
    /// Interfaces by which other hosts' traffic comes that is redirected.
    pub interfaces: Vec<String>,
    /// Further ranges that are left alone.
    pub bypass: Vec<IpRange>,
    /// Users, by name or number, whose traffic is left alone.
    pub skip_users: Vec<String>,
    /// Ports of connections that are redirected; empty for all.
    pub tcp_ports: Vec<RangeInclusive<u16>>,
    /// Ports of datagrams that are redirected; empty for all.
    pub udp_ports: Vec<RangeInclusive<u16>>,
}

impl Default for Scope {
    /// All that this host sends.
    fn default() -> Self {
        Self {
            own: true,
            interfaces: Vec::new(),
            bypass: Vec::new(),
            skip_users: Vec::new(),
            tcp_ports: Vec::new(),
            udp_ports: Vec::new(),
        }
    }
}

/// Rules, worked out.
#[derive(Clone, Debug)]
pub struct Rules {
    scope: Scope,
    ways: Vec<Way>,
    /// Marks of what the redirector sends; sorted.
    marks: Vec<u32>,
    /// Sorted.
    servers: Vec<IpAddr>,
    /// What the user should know, a sentence each.
    pub remarks: Vec<String>,
}

/// How one kind of traffic comes to the redirector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Way {
    family: Family,
    transport: Transport,
    by: Interception,
    /// The listener's address; `None` when it listens on every address of the family.
    ip: Option<IpAddr>,
    port: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Transport {
    Tcp,
    Udp,
}

/// Finds the addresses of a name.
pub type Resolve<'a> = &'a mut dyn FnMut(&str) -> io::Result<Vec<IpAddr>>;

impl Rules {
    /// Works out the rules for a redirector.
    ///
    /// # Errors
    /// What cannot be done, and what to write instead.
    pub fn new(config: &Config, scope: Scope, resolve: Resolve<'_>) -> Result<Self, String> {
        let Role::Client { locals, servers, direct, .. } = &config.role else {
            return Err("a server takes no redirected traffic; name ss-redir's file".to_owned());
        };
        let mut remarks = Vec::new();
        let ways = ways(locals, config.sockets.ipv6_only, resolve)?;
        check(&ways, &scope)?;
        remark_on_families(&ways, &mut remarks);
        let outbound = servers.iter().map(|server| &server.outbound).chain([direct]);
        let mut marks: Vec<u32> = outbound.filter_map(|options| options.fwmark).collect();
        marks.sort_unstable();
        marks.dedup();
        if marks.contains(&DELIVERY.mark) {
            let mark = DELIVERY.mark;
            return Err(format!(
                "the mark {mark:#x} is that of redirected packets; write another as fwmark"
            ));
        }
        if config.online.is_some() {
            let remark = "the subscription is fetched without a mark, and so through ss-redir; \
                          leave its provider alone with --bypass if it is to be fetched directly";
            remarks.push(remark.to_owned());
        }
        let mut addresses = Vec::new();
        for server in servers {
            match &server.endpoint.host {
                Host::Ip(ip) => addresses.push(ip.to_canonical()),
                Host::Name(name) => match resolve(name) {
                    Ok(found) => addresses.extend(found.iter().map(IpAddr::to_canonical)),
                    Err(e) if server.plugin.is_some() => {
                        return Err(format!(
                            "the server {name} cannot be looked up ({e}), and its plugin's \
                             connections carry no mark; write its address"
                        ));
                    }
                    Err(e) => remarks.push(format!(
                        "the server {name} cannot be looked up ({e}): only what ss-redir sends \
                         to it is left out, by its mark"
                    )),
                },
            }
        }
        addresses.sort_unstable();
        addresses.dedup();
        Ok(Self { scope, ways, marks, servers: addresses, remarks })
    }

    /// Whether packets of a family are delivered here by their mark.
    pub fn needs_delivery(&self, family: Family) -> bool {
        self.ways.iter().any(|way| way.family == family && way.by == Interception::Tproxy)
    }

    fn ways(&self, by: Interception) -> impl Iterator<Item = &Way> {
        self.ways.iter().filter(move |way| way.by == by)
    }
}

/// How each kind of traffic comes to the first listener that takes it.
fn ways(
    locals: &[LocalListener],
    ipv6_only: bool,
    resolve: Resolve<'_>,
) -> Result<Vec<Way>, String> {
    let mut ways: Vec<Way> = Vec::new();
    let mut is_there = false;
    for local in locals {
        let LocalKind::Redir { tcp } = local.kind else { continue };
        is_there = true;
        let bind = &local.bind;
        let tcp = local.mode.tcp().then_some((Transport::Tcp, tcp, bind));
        let udp = (Transport::Udp, Interception::Tproxy, &local.udp_bind);
        let udp = local.mode.udp().then_some(udp);
        for (transport, by, bind) in tcp.into_iter().chain(udp) {
            let ips = match &bind.host {
                Host::Ip(ip) => vec![*ip],
                Host::Name(name) => resolve(name).map_err(|e| {
                    format!("the local address {name} cannot be looked up ({e}); write an IP")
                })?,
            };
            for (ip, family) in ips.iter().flat_map(|ip| FAMILIES.map(|family| (*ip, family))) {
                let is_new = !ways.iter().any(|w| w.family == family && w.transport == transport);
                if is_new && takes(ip, family, ipv6_only) {
                    let ip = Some(ip.to_canonical()).filter(|ip| !ip.is_unspecified());
                    ways.push(Way { family, transport, by, ip, port: bind.port });
                }
            }
        }
    }
    if is_there {
        ways.sort_by_key(|way| (way.family == Family::V6, way.transport == Transport::Udp));
        Ok(ways)
    } else {
        Err("it has no redirector: write \"redir\" as the protocol of a listener".to_owned())
    }
}

/// Whether a listener at an address gets packets of a family.
fn takes(ip: IpAddr, family: Family, ipv6_only: bool) -> bool {
    let any = ip == IpAddr::V6(Ipv6Addr::UNSPECIFIED);
    family == Family::of(ip.to_canonical()) || any && family == Family::V4 && !ipv6_only
}

/// Refuses what rules cannot do.
fn check(ways: &[Way], scope: &Scope) -> Result<(), String> {
    if !scope.own && scope.interfaces.is_empty() {
        return Err("--no-own leaves nothing to redirect; name an --interface".to_owned());
    }
    let ports = [
        (Transport::Tcp, &scope.tcp_ports, "--tcp-ports", "connections"),
        (Transport::Udp, &scope.udp_ports, "--udp-ports", "datagrams"),
    ];
    for (transport, ports, option, what) in ports {
        if !ports.is_empty() && !ways.iter().any(|way| way.transport == transport) {
            return Err(format!("{option} has no effect: no {what} are relayed; see \"mode\""));
        }
    }
    // REDIRECT gives a forwarded connection an address of the interface it came by, and one of
    // loopback cannot come from outside.
    let unreachable = ways
        .iter()
        .find_map(|way| way.ip.filter(|ip| way.by == Interception::Redirect && ip.is_loopback()));
    match unreachable {
        Some(ip) if !scope.interfaces.is_empty() => Err(format!(
            "other hosts' connections do not reach {ip} by REDIRECT; have ss-redir listen on \
             0.0.0.0 or ::, or take connections by TPROXY"
        )),
        _ => Ok(()),
    }
}

/// Says what is not redirected because the redirector does not listen for it.
fn remark_on_families(ways: &[Way], remarks: &mut Vec<String>) {
    for (transport, what) in [(Transport::Tcp, "connections"), (Transport::Udp, "datagrams")] {
        let mut of_transport = ways.iter().filter(|way| way.transport == transport);
        let (Some(only), None) = (of_transport.next(), of_transport.next()) else { continue };
        let (missing, hint) = match only.family {
            Family::V4 => ("IPv6", "listens on IPv4 only; let it listen on ::"),
            Family::V6 => ("IPv4", "listens on IPv6 only; let it listen on :: for both"),
        };
        remarks.push(format!("{missing} {what} are left alone: ss-redir {hint}"));
    }
}

#[cfg(test)]
mod tests;
