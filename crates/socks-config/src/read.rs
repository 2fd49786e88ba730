//! Settings of Alighieri's language, with ours.

use adit_policy::{AddressSet, Place, Prefix, SetBuilder};

use crate::block;
use crate::config::{
    Advertised, External, Facility, Families, ListenAt, Listener, LogFormat, Prefer, Rotation,
};
use crate::draft::{Draft, Sink, external_of};
use crate::files::Source;
use crate::finding::Findings;
use crate::keys;
use crate::lex::{self, Item};
use crate::selector;
use crate::value::{self, Read, is_interface, shown};

/// Reads sources that includes have been put in their places in.
pub(crate) fn read(sources: &[Source], draft: &mut Draft, findings: &mut Findings) {
    for source in sources {
        for item in lex::items(&source.text, &source.name, findings) {
            match item {
                Item::Block(block) => {
                    let at =
                        Place { line: block.place.line + source.first_line, ..block.place.clone() };
                    let mut block = block;
                    block.place = at;
                    block.body.iter_mut().for_each(|token| token.line += source.first_line);
                    block::read(&block, draft, findings);
                }
                Item::Setting { keyword, values, place } => {
                    let place = Place { line: place.line + source.first_line, ..place };
                    setting(&keyword, &values, &place, draft, findings);
                }
            }
        }
    }
}

fn setting(
    keyword: &str,
    values: &[&str],
    place: &Place,
    draft: &mut Draft,
    findings: &mut Findings,
) {
    let Some(key) = keys::canonical(keyword).filter(|key| *key != "client" && *key != "socks")
    else {
        findings.error(Some(place), unknown(keyword));
        return;
    };
    let result = listening(key, values, place, draft)
        .or_else(|| authentication(key, values, place, draft))
        .or_else(|| times_and_ports(key, values, draft))
        .or_else(|| names_and_logs(key, values, place, draft))
        .or_else(|| limits(key, values, draft))
        .unwrap_or_else(|| Err(refused(key).into()));
    findings.take(place, result.map_err(|message| format!("{key}: {message}")));
}

fn unknown(keyword: &str) -> String {
    if keyword == "client" || keyword == "socks" {
        return format!("a rule starts with \"{keyword} pass {{\" or \"{keyword} block {{\"");
    }
    if keyword == "pass" || keyword == "block" {
        return format!("a rule starts with \"socks {keyword} {{\" or \"client {keyword} {{\"");
    }
    let near = value::nearest(keyword, keys::spellings());
    let glued = keyword.split_once(':').and_then(|(key, _)| keys::canonical(key));
    let hint = match (glued, near) {
        (Some(key), _) => format!("; write a blank behind \"{key}:\""),
        (None, Some(near)) => format!("; did you mean \"{near}\"?"),
        (None, None) => String::new(),
    };
    format!("unknown keyword '{}'{hint}", shown(keyword))
}

/// What to do instead of a setting that is not served.
fn refused(key: &str) -> &'static str {
    match key {
        "include" => "cannot be inside a rule",
        _ if key.starts_with("tls.") => {
            "TLS is not served; put a TLS terminator (stunnel, haproxy) in front, let it send the \
             PROXY header, and write proxyprotocol: ITS-ADDRESS"
        }
        _ => "is not served",
    }
}

type Handled = Option<Read<()>>;

/// Stores what was read.
fn set<T>(slot: &mut Option<T>, value: Read<T>) -> Read<()> {
    *slot = Some(value?);
    Ok(())
}

fn listening(key: &str, values: &[&str], place: &Place, draft: &mut Draft) -> Handled {
    Some(match key {
        "internal" => {
            listener(values).map(|listener| draft.listeners.push((listener, place.clone())))
        }
        "protocols" => set(&mut draft.protocols, selector::proxy_protocols(values)),
        "egress" => match value::one(values) {
            Ok(word) if word.eq_ignore_ascii_case("direct") => Ok(()),
            Ok(_) => Err("only direct is served; leave the line out".into()),
            Err(message) => Err(message),
        },
        "external" => externals(values).map(|found| {
            draft.externals.extend(found.into_iter().map(|external| (external, place.clone())));
        }),
        "external.rotation" => rotation(values).map(|found| {
            draft.rotation = Some((found, place.clone()));
        }),
        "proxyprotocol" => set(&mut draft.proxy_peers, prefixes(values)),
        _ => return None,
    })
}

fn authentication(key: &str, values: &[&str], place: &Place, draft: &mut Draft) -> Handled {
    Some(match key {
        "socksmethod" => selector::methods(values).map(|found| {
            draft.methods = Some((found, place.clone()));
        }),
        // Alighieri takes it for socksmethod, so that a line copied from Dante opens the proxy.
        "clientmethod" => match value::one(values) {
            Ok(word) if word.eq_ignore_ascii_case("none") => Ok(()),
            _ => Err(
                "nothing is asked of clients before their request; write socksmethod: for what \
                      they have to prove"
                    .into(),
            ),
        },
        "userlist" => set(&mut draft.userlist, value::path(values)),
        "auth.command" if values.is_empty() => Err("write a program and its arguments".into()),
        "auth.command" => {
            draft.auth_command = values.iter().map(|&word| word.to_owned()).collect();
            Ok(())
        }
        "auth.cachettl" => set(&mut draft.auth_cache, value::ttl(values)),
        "group" => group(values, draft),
        "user" => set(&mut draft.run_as, value::one(values).map(str::to_owned)),
        _ => return None,
    })
}

fn times_and_ports(key: &str, values: &[&str], draft: &mut Draft) -> Handled {
    const MOST: u32 = u32::MAX;
    Some(match key {
        "connecttimeout" => set(&mut draft.connect_timeout, value::seconds(values, 1, MOST)),
        "handshaketimeout" => set(&mut draft.handshake_timeout, value::seconds(values, 1, MOST)),
        "iotimeout" => set(&mut draft.io_timeout, value::seconds(values, 0, MOST)),
        "writestalltimeout" => set(&mut draft.write_stall, value::seconds(values, 0, MOST)),
        "tcp.keepalive" => set(&mut draft.keepalive, value::seconds(values, 0, 32_767)),
        "bind.timeout" => set(&mut draft.bind_timeout, value::seconds(values, 1, 3600)),
        "bind.portrange" => set(&mut draft.bind_ports, value::port_range(values)),
        "udptimeout" => set(&mut draft.udp_timeout, value::seconds(values, 0, MOST)),
        "udp.portrange" => set(&mut draft.udp_ports, value::port_range(values)),
        "udp.strictreply" => set(&mut draft.udp_strict, value::boolean(values)),
        "udp.rebind" => set(&mut draft.udp_rebind, value::boolean(values)),
        "udp.advertise" => set(&mut draft.udp_advertise, value::one(values).and_then(advertised)),
        "shutdown.draintimeout" => set(&mut draft.drain, value::seconds(values, 0, 3600)),
        "reload.endsessions" => set(&mut draft.end_sessions, value::boolean(values)),
        // Alighieri takes more; there are never more descriptors than that.
        "maxconnections" => set(&mut draft.connections_max, value::seconds(values, 1, 1 << 30)),
        _ => return None,
    })
}

fn names_and_logs(key: &str, values: &[&str], place: &Place, draft: &mut Draft) -> Handled {
    Some(match key {
        "logoutput" => sinks(values).map(|found| draft.sinks = Some((found, place.clone()))),
        "logfile" => set(&mut draft.log_file, value::path(values)),
        "logformat" => {
            let known = [("text", LogFormat::Text), ("json", LogFormat::Json)];
            set(&mut draft.log_format, value::one(values).and_then(|it| value::word(it, &known)))
        }
        "logrotate.size" => set(&mut draft.rotate_size, value::positive_size(values)),
        "logrotate.age" => set(&mut draft.rotate_age, value::ttl(values)),
        "logrotate.keep" => set(&mut draft.rotate_keep, value::seconds(values, 0, 10_000)),
        "dns.prefer" => set(&mut draft.dns_prefer, prefer(values)),
        "dns.tryall" => set(&mut draft.dns_try_all, value::boolean(values)),
        "dns.deny" => set(&mut draft.dns_deny, denied(values)),
        "dns.cachettl" => set(&mut draft.dns_cache, value::ttl(values)),
        "dns.timeout" => set(&mut draft.dns_timeout, value::seconds(values, 1, 3600)),
        "geoip.database" => set(&mut draft.geoip_database, value::path(values)),
        "metrics.listen" => value::endpoint(values).map(|addr| {
            draft.metrics = Some((addr, place.clone()));
        }),
        "metrics.allowpublic" => value::boolean(values).map(|is| draft.metrics_public = is),
        _ => return None,
    })
}

fn limits(key: &str, values: &[&str], draft: &mut Draft) -> Handled {
    if let Some(rest) = key.strip_prefix("ratelimit.") {
        let (who, what) = match rest.split_once('.') {
            Some(("user", what)) => (&mut draft.user, what),
            Some(("listener", what)) => (&mut draft.listener, what),
            _ if rest == "entries" => {
                return Some(set(&mut draft.limit_entries, value::seconds(values, 64, 1 << 24)));
            }
            _ => (&mut draft.client, rest),
        };
        return Some(match what {
            "connectionrate" => set(&mut who.sessions_rate, value::rate(values)),
            "authfailurerate" => set(&mut who.failures_rate, value::rate(values)),
            "concurrentconnections" => {
                set(&mut who.sessions_max, value::seconds(values, 1, u32::MAX))
            }
            "byterate" => set(&mut who.bandwidth, value::byte_rate(values)),
            _ => return None,
        });
    }
    let (who, what) = key.strip_prefix("quota.")?.split_once('.').unwrap_or(("file", ""));
    let quota = match who {
        "user" => &mut draft.user_quota,
        "client" => &mut draft.client_quota,
        "listener" => &mut draft.listener_quota,
        _ => return Some(set(&mut draft.quota_file, value::path(values))),
    };
    let slot = if what == "day" { &mut quota.day_bytes } else { &mut quota.month_bytes };
    Some(set(slot, value::positive_size(values)))
}

/// An endpoint or an interface with a port, then `key=value` pairs.
fn listener(values: &[&str]) -> Read<Listener> {
    let is_option = |word: &&str| {
        word.split_once('=')
            .is_some_and(|(key, _)| !key.is_empty() && !key.eq_ignore_ascii_case("port"))
    };
    let end = values.iter().position(is_option).unwrap_or(values.len());
    let (place, options) = values.split_at(end);
    let mut listener =
        Listener { at: listen_at(place)?, name: None, advertise: None, protocols: None };
    for option in options {
        let (key, value) = option.split_once('=').unwrap_or((option, ""));
        match key.to_ascii_lowercase().as_str() {
            _ if value.is_empty() => return Err(format!("{}= has no value", shown(key))),
            "name" => listener.name = Some(value.to_owned()),
            "advertise" => listener.advertise = Some(advertised(value)?),
            "protocols" => {
                let words: Vec<&str> = value.split(',').collect();
                listener.protocols = Some(selector::proxy_protocols(&words)?);
            }
            _ => {
                return Err(format!(
                    "\"{}\" is no option of a listener; write name=, advertise= or protocols=",
                    shown(key)
                ));
            }
        }
    }
    Ok(listener)
}

fn listen_at(words: &[&str]) -> Read<ListenAt> {
    let error = match value::endpoint(words) {
        Ok(addr) => return Ok(ListenAt::Addr(addr)),
        Err(error) => error,
    };
    let (name, port) = match words {
        [one] => one.rsplit_once(':').ok_or_else(|| error.clone())?,
        [name, keyword, "=", port] if keyword.eq_ignore_ascii_case("port") => (*name, *port),
        _ => return Err(format!("{error}; an interface goes as well: eth0:1080")),
    };
    let looks_like_address = name.parse::<std::net::IpAddr>().is_ok()
        || name.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    if looks_like_address || !is_interface(name) {
        return Err(error);
    }
    let port = value::integer(&[port], 1, 65535)?;
    let port = u16::try_from(port).map_err(|_| error)?;
    Ok(ListenAt::Interface { name: name.to_owned(), port, families: Families::BOTH })
}

fn advertised(text: &str) -> Read<Advertised> {
    if let Ok(addr) = text.parse::<std::net::IpAddr>() {
        if addr.is_unspecified() {
            return Err(
                "clients cannot reach an unspecified address; write the one they see".into()
            );
        }
        return Ok(Advertised::Addr(addr.to_canonical()));
    }
    let bare = text.strip_prefix('.').is_none().then_some(text);
    match bare.map(adit_policy::HostPattern::parse) {
        Some(Ok(name)) => Ok(Advertised::Name(name.to_string())),
        _ => Err(format!("\"{}\" is neither an address nor a host name", shown(text))),
    }
}

fn externals(values: &[&str]) -> Read<Vec<External>> {
    if values.is_empty() {
        return Err("write an address, a prefix or an interface".into());
    }
    values
        .iter()
        .map(|word| {
            if word.contains('/') {
                let prefix =
                    Prefix::parse(word).map_err(|e| format!("\"{}\": {e}", shown(word)))?;
                return Ok(External::Prefix(prefix));
            }
            match word.parse::<std::net::IpAddr>() {
                Ok(addr) => Ok(external_of(addr)),
                Err(_)
                    if is_interface(word)
                        && !word.bytes().all(|b| b.is_ascii_digit() || b == b'.') =>
                {
                    Ok(External::Interface((*word).to_owned()))
                }
                Err(_) => Err(format!(
                    "\"{}\" is neither an address nor an interface; write 192.0.2.1, 2001:db8::/64 \
                     or eth0",
                    shown(word)
                )),
            }
        })
        .collect()
}

fn rotation(values: &[&str]) -> Read<Rotation> {
    let known = [
        ("none", Rotation::None),
        ("same-same", Rotation::SameSame),
        ("roundrobin", Rotation::RoundRobin),
        ("round-robin", Rotation::RoundRobin),
        ("random", Rotation::Random),
        ("user", Rotation::User),
    ];
    value::word(value::one(values)?, &known)
}

fn prefixes(values: &[&str]) -> Read<Vec<Prefix>> {
    if values.is_empty() {
        return Err("write addresses or prefixes".into());
    }
    let read = |word: &&str| Prefix::parse(word).map_err(|e| format!("\"{}\": {e}", shown(word)));
    values.iter().map(read).collect()
}

fn group(values: &[&str], draft: &mut Draft) -> Read<()> {
    let [name, members @ ..] = values else { return Err("write group: NAME USER...".into()) };
    if members.is_empty() {
        return Err(format!("the group {} has no members; write group: NAME USER...", shown(name)));
    }
    let members = members.iter().map(|&member| member.to_owned()).collect();
    match draft.groups.insert((*name).to_owned(), members) {
        None => Ok(()),
        Some(_) => Err(format!("the group {} again; write all members on one line", shown(name))),
    }
}

fn sinks(values: &[&str]) -> Read<Vec<Sink>> {
    let known = [("stdout", Sink::Stdout), ("stderr", Sink::Stderr), ("file", Sink::File)];
    let mut found = Vec::new();
    for word in values {
        let sink = match syslog(word) {
            Some(facility) => Sink::Syslog(facility?),
            None => value::word(word, &known).map_err(|_| {
                format!(
                    "\"{}\" is no place for log lines; write stdout, stderr, file \
                                      (with logfile: PATH), or syslog",
                    shown(word)
                )
            })?,
        };
        if !found.contains(&sink) {
            found.push(sink);
        }
    }
    if found.is_empty() { Err("write stdout, stderr, file or syslog".into()) } else { Ok(found) }
}

/// `syslog` or `syslog/FACILITY`.
pub(crate) fn syslog(word: &str) -> Option<Read<Facility>> {
    let lower = word.to_ascii_lowercase();
    let facility = match lower.split_once('/') {
        None if lower == "syslog" => "daemon",
        Some(("syslog", facility)) => facility,
        _ => return None,
    };
    let names = [
        "kern", "user", "mail", "daemon", "auth", "syslog", "lpr", "news", "uucp", "cron",
        "authpriv", "ftp",
    ];
    let local = facility.strip_prefix("local").and_then(|number| number.parse::<u8>().ok());
    let code = match local {
        Some(number) if number < 8 && facility.len() == 6 => Some(16 + number),
        _ => names.iter().position(|name| *name == facility).and_then(|at| u8::try_from(at).ok()),
    };
    Some(code.map(Facility).ok_or_else(|| {
        format!(
            "\"{}\" is no facility of syslog; write syslog/daemon or syslog/local0",
            shown(facility)
        )
    }))
}

fn prefer(values: &[&str]) -> Read<Prefer> {
    let known = [
        ("system", Prefer::System),
        ("default", Prefer::System),
        ("ipv4", Prefer::Ipv4),
        ("v4", Prefer::Ipv4),
        ("ipv6", Prefer::Ipv6),
        ("v6", Prefer::Ipv6),
        ("ipv4-only", Prefer::Ipv4Only),
        ("ipv6-only", Prefer::Ipv6Only),
    ];
    value::word(value::one(values)?, &known)
}

/// The sets of `dns.deny`.
fn denied(values: &[&str]) -> Read<AddressSet> {
    const PRIVATE: &[&str] = &["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7"];
    const LINK_LOCAL: &[&str] = &["169.254.0.0/16", "fe80::/10"];
    const DOCUMENTATION: &[&str] =
        &["192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24", "2001:db8::/32"];
    const RESERVED: &[&str] = &[
        "0.0.0.0/8",
        "100.64.0.0/10",
        "192.0.0.0/24",
        "192.88.99.0/24",
        "198.18.0.0/15",
        "240.0.0.0/4",
        "::",
        "::1",
        "2001:db8::/32",
        "2002::/16",
        "64:ff9b::/96",
        "2001::/23",
    ];
    let known = [
        ("private", PRIVATE),
        ("linklocal", LINK_LOCAL),
        ("link-local", LINK_LOCAL),
        ("link_local", LINK_LOCAL),
        ("loopback", &["127.0.0.0/8", "::1"]),
        ("multicast", &["224.0.0.0/4", "ff00::/8"]),
        ("unspecified", &["0.0.0.0", "::"]),
        ("documentation", DOCUMENTATION),
        ("doc", DOCUMENTATION),
        ("reserved", RESERVED),
    ];
    let mut builder = SetBuilder::default();
    for texts in value::words(values, &known)? {
        for text in texts {
            builder.add_prefix(Prefix::parse(text).map_err(|error| error.to_string())?);
        }
    }
    Ok(builder.finish())
}
