//! The rules as a script for `nft -f`, which is one transaction: all of it holds, or nothing.

use std::fmt::{self, Display, Write};
use std::net::IpAddr;
use std::ops::RangeInclusive;

use adit_config::Interception;
use adit_sys::datagram::Family;
use adit_sys::routing::LocalDelivery;

use super::range::RESERVED;
use super::{DELIVERY, FAMILIES, Rules, TABLE, Transport, Way};

/// What takes every rule away; it works whether there are any or not.
pub(super) fn removal() -> String {
    format!("table inet {TABLE}\ndelete table inet {TABLE}\n")
}

impl Rules {
    /// The script that puts the rules in place of those that were there before.
    pub fn script(&self) -> String {
        let mut out = String::new();
        // Writing to a string cannot fail.
        let _infallible = self.write(&mut out);
        out
    }

    /// The script that takes all rules away.
    pub fn removal() -> String {
        removal()
    }

    fn write(&self, out: &mut String) -> fmt::Result {
        writeln!(out, "#!/usr/sbin/nft -f\n# Rules for ss-redir, written by adit redir rules.")?;
        for remark in &self.remarks {
            writeln!(out, "# Note: {remark}.")?;
        }
        self.write_routes(out)?;
        writeln!(out, "\n# In one transaction: what an earlier run left goes, this comes.")?;
        write!(out, "{}", removal())?;
        writeln!(out, "\ntable inet {TABLE} {{")?;
        self.write_sets(out)?;
        self.write_leave_out(out)?;
        self.write_redirect(out)?;
        self.write_tproxy(out)?;
        writeln!(out, "}}")
    }

    /// What `nft` cannot do, and `adit redir rules apply` does besides.
    fn write_routes(&self, out: &mut String) -> fmt::Result {
        let mut families =
            FAMILIES.into_iter().filter(|family| self.needs_delivery(*family)).peekable();
        if families.peek().is_some() {
            writeln!(out, "# Packets that TPROXY takes are delivered to this host by")?;
        }
        let LocalDelivery { mark, table, priority } = DELIVERY;
        for family in families {
            let ip = match family {
                Family::V4 => "ip -4",
                Family::V6 => "ip -6",
            };
            writeln!(out, "#   {ip} rule add pref {priority} fwmark {mark:#x} lookup {table}")?;
            let route = format!("local default dev lo table {table} proto static");
            writeln!(out, "#   {ip} route replace {route}")?;
        }
        Ok(())
    }

    fn write_sets(&self, out: &mut String) -> fmt::Result {
        writeln!(out, "\t# Private and reserved addresses, and what --bypass named.")?;
        for family in FAMILIES {
            let is_v4 = family == Family::V4;
            let reserved = RESERVED.iter().filter(|range| range.contains(':') != is_v4);
            let named = self.scope.bypass.iter().filter(|range| range.is_ipv4() == is_v4);
            let elements = reserved.map(ToString::to_string).chain(named.map(ToString::to_string));
            writeln!(out, "\tset bypass{} {{", number(family))?;
            writeln!(out, "\t\ttype {}; flags interval; auto-merge;", kind(family))?;
            write_elements(out, elements)?;
        }
        for family in FAMILIES {
            let servers: Vec<&IpAddr> = self.servers_of(family).collect();
            if !servers.is_empty() {
                writeln!(out, "\tset servers{} {{", number(family))?;
                writeln!(out, "\t\ttype {};", kind(family))?;
                write_elements(out, servers)?;
            }
        }
        Ok(())
    }

    fn servers_of(&self, family: Family) -> impl Iterator<Item = &IpAddr> {
        self.servers.iter().filter(move |ip| Family::of(**ip) == family)
    }

    fn write_leave_out(&self, out: &mut String) -> fmt::Result {
        writeln!(out, "\n\t# What is accepted here goes its own way; the rest comes back.")?;
        writeln!(out, "\tchain leave_out {{")?;
        if !self.marks.is_empty() {
            let marks = list(self.marks.iter().map(|mark| format!("{mark:#x}")));
            writeln!(out, "\t\tmeta mark {marks} accept comment \"ss-redir's own\"")?;
        }
        writeln!(out, "\t\tct direction reply accept comment \"answers of services here\"")?;
        writeln!(out, "\t\tfib daddr type {{ local, anycast, broadcast, multicast }} accept")?;
        for family in FAMILIES {
            writeln!(out, "\t\t{} daddr @bypass{} accept", header(family), number(family))?;
        }
        for family in FAMILIES {
            if self.servers_of(family).next().is_some() {
                writeln!(out, "\t\t{} daddr @servers{} accept", header(family), number(family))?;
            }
        }
        writeln!(out, "\t}}")
    }

    /// Connections by REDIRECT, or by DNAT where the redirector listens on one address.
    fn write_redirect(&self, out: &mut String) -> fmt::Result {
        if self.ways(Interception::Redirect).next().is_none() {
            return Ok(());
        }
        let rules = |out: &mut String| -> fmt::Result {
            writeln!(out, "\t\tjump leave_out")?;
            // Where nothing tracked connections before, open ones look like new ones here.
            writeln!(out, "\t\ttcp flags & (fin | syn | rst | ack) != syn accept")?;
            for way in self.ways(Interception::Redirect) {
                let to = match way.ip {
                    None => format!("redirect to :{}", way.port),
                    Some(ip) => format!("dnat {} to {}", header(way.family), at(ip, way.port)),
                };
                writeln!(out, "\t\t{} {to}", self.matches(way))?;
            }
            writeln!(out, "\t}}")
        };
        if self.scope.own {
            writeln!(out, "\n\tchain redirect_own {{")?;
            writeln!(out, "\t\ttype nat hook output priority -100; policy accept;")?;
            self.write_users(out)?;
            rules(out)?;
        }
        if !self.scope.interfaces.is_empty() {
            writeln!(out, "\n\tchain redirect_forwarded {{")?;
            writeln!(out, "\t\ttype nat hook prerouting priority dstnat; policy accept;")?;
            writeln!(out, "\t\tiifname != {} accept", self.interfaces())?;
            rules(out)?;
        }
        Ok(())
    }

    fn write_tproxy(&self, out: &mut String) -> fmt::Result {
        if self.ways(Interception::Tproxy).next().is_none() {
            return Ok(());
        }
        let mark = DELIVERY.mark;
        let to = |way: &Way| {
            let any = match way.family {
                Family::V4 => IpAddr::V4(std::net::Ipv4Addr::LOCALHOST),
                Family::V6 => IpAddr::V6(std::net::Ipv6Addr::LOCALHOST),
            };
            format!("tproxy {} to {}", header(way.family), at(way.ip.unwrap_or(any), way.port))
        };
        if self.scope.own {
            writeln!(out, "\n\t# Marked packets of this host are routed to lo.")?;
            writeln!(out, "\tchain mark_own {{")?;
            writeln!(out, "\t\ttype route hook output priority mangle; policy accept;")?;
            self.write_users(out)?;
            writeln!(out, "\t\tjump leave_out")?;
            for way in self.ways(Interception::Tproxy) {
                writeln!(out, "\t\t{} meta mark set {mark:#x}", self.matches(way))?;
            }
            writeln!(out, "\t}}")?;
        }
        writeln!(out, "\n\tchain divert {{")?;
        writeln!(out, "\t\ttype filter hook prerouting priority mangle; policy accept;")?;
        if self.scope.own {
            for way in self.ways(Interception::Tproxy) {
                let what = protocol(way);
                writeln!(out, "\t\tiifname \"lo\" meta mark {mark:#x} {what} {} accept", to(way))?;
            }
        }
        if !self.scope.interfaces.is_empty() {
            writeln!(out, "\t\tiifname != {} accept", self.interfaces())?;
            writeln!(out, "\t\tjump leave_out")?;
            for way in self.ways(Interception::Tproxy) {
                let what = self.matches(way);
                writeln!(out, "\t\t{what} meta mark set {mark:#x} {} accept", to(way))?;
            }
        }
        writeln!(out, "\t}}")
    }

    fn write_users(&self, out: &mut String) -> fmt::Result {
        if self.scope.skip_users.is_empty() {
            return Ok(());
        }
        let users = self.scope.skip_users.iter().map(|user| {
            let is_number = user.bytes().all(|b| b.is_ascii_digit());
            if is_number { user.clone() } else { format!("\"{user}\"") }
        });
        writeln!(out, "\t\tmeta skuid {} accept", list(users))
    }

    fn interfaces(&self) -> String {
        list(self.scope.interfaces.iter().map(|name| format!("\"{name}\"")))
    }

    /// The traffic of a way.
    fn matches(&self, way: &Way) -> String {
        let ports = match way.transport {
            Transport::Tcp => &self.scope.tcp_ports,
            Transport::Udp => &self.scope.udp_ports,
        };
        let what = protocol(way);
        if ports.is_empty() {
            return what;
        }
        format!("{what} th dport {}", list(ports.iter().map(ports_of)))
    }
}

fn ports_of(ports: &RangeInclusive<u16>) -> String {
    if ports.start() == ports.end() {
        ports.start().to_string()
    } else {
        format!("{}-{}", ports.start(), ports.end())
    }
}

fn protocol(way: &Way) -> String {
    let transport = match way.transport {
        Transport::Tcp => "tcp",
        Transport::Udp => "udp",
    };
    format!("meta nfproto ipv{} meta l4proto {transport}", number(way.family))
}

fn at(ip: IpAddr, port: u16) -> String {
    std::net::SocketAddr::new(ip, port).to_string()
}

const fn number(family: Family) -> u8 {
    match family {
        Family::V4 => 4,
        Family::V6 => 6,
    }
}

/// What the family is called in rules.
const fn header(family: Family) -> &'static str {
    match family {
        Family::V4 => "ip",
        Family::V6 => "ip6",
    }
}

const fn kind(family: Family) -> &'static str {
    match family {
        Family::V4 => "ipv4_addr",
        Family::V6 => "ipv6_addr",
    }
}

fn list(elements: impl Iterator<Item = String>) -> String {
    format!("{{ {} }}", elements.collect::<Vec<_>>().join(", "))
}

/// The elements of a set, a line each, and its end.
fn write_elements(
    out: &mut String,
    elements: impl IntoIterator<Item = impl Display>,
) -> fmt::Result {
    writeln!(out, "\t\telements = {{")?;
    for element in elements {
        writeln!(out, "\t\t\t{element},")?;
    }
    writeln!(out, "\t\t}}\n\t}}")
}
