//! Settings of `sockd.conf`.

use std::net::IpAddr;

use adit_policy::Method;

use crate::config::{External, Families, ListenAt, Listener, Prefer, Rotation};
use crate::draft::{Sink, external_of};
use crate::selector;
use crate::value::{self, Read, is_interface, shown};

use super::{Reader, Verdict};

/// Port of a listener that names none.
const PORT: u16 = 1080;

impl Reader<'_> {
    pub(super) fn setting(&mut self, keyword: &str, values: &[&str], line: u32) {
        let result = match keyword {
            "internal" => self.internal(values, line),
            "external" => self.external(values, line),
            "internal.protocol" => families(values).map(|found| {
                self.internal_families = found;
                "interfaces named below listen on these families"
            }),
            "external.protocol" => self.external_protocol(values),
            "external.rotation" => self.rotation(values, line),
            "socksmethod" | "method" => self.methods(values, line),
            "clientmethod" => client_method(values),
            "userlist" => value::path(values).map(|path| {
                self.draft.userlist = Some(path);
                "an addition of ours: where users and their passwords are"
            }),
            "auth.command" if !values.is_empty() => {
                self.draft.auth_command = values.iter().map(|&word| word.to_owned()).collect();
                Ok("an addition of ours: the program that judges passwords")
            }
            "user.unprivileged" | "user.notprivileged" => value::one(values).map(|user| {
                self.draft.run_as = Some(user.to_owned());
                ""
            }),
            "logoutput" => self.log_output(values, line),
            "debug" => value::integer(values, 0, 9).map(|level| {
                self.draft.debug = level > 0;
                ""
            }),
            _ => return self.limits_and_others(keyword, values, line),
        };
        self.noted(line, keyword, result);
    }

    fn limits_and_others(&mut self, keyword: &str, values: &[&str], line: u32) {
        let seconds = |least| value::seconds(values, least, u32::MAX);
        let result = match keyword {
            "timeout.connect" => seconds(1).map(|it| self.draft.connect_timeout = Some(it)),
            "timeout.negotiate" => seconds(1).map(|it| self.draft.handshake_timeout = Some(it)),
            "timeout.io" => seconds(0).map(|it| {
                self.draft.io_timeout = Some(it);
                self.draft.udp_timeout = Some(it);
            }),
            "timeout.io.tcp" => seconds(0).map(|it| self.draft.io_timeout = Some(it)),
            "timeout.io.udp" => seconds(0).map(|it| self.draft.udp_timeout = Some(it)),
            "udp.portrange" => value::port_range(values).map(|it| self.draft.udp_ports = Some(it)),
            _ => {
                let (verdict, remark) = judgement(keyword);
                self.note(line, verdict, keyword, remark);
                return;
            }
        };
        self.noted(line, keyword, result.map(|()| ""));
    }

    fn internal(&mut self, values: &[&str], line: u32) -> Read<&'static str> {
        let (host, port) = host_and_port(values)?;
        let at = match host.parse::<IpAddr>() {
            Ok(addr) => ListenAt::Addr((addr, port).into()),
            Err(_) if is_interface(host) => ListenAt::Interface {
                name: host.to_owned(),
                port,
                families: self.internal_families,
            },
            Err(_) => {
                return Err(format!(
                    "\"{}\" is neither an address nor an interface; write eth0, or 192.0.2.1 port = 1080",
                    shown(host)
                ));
            }
        };
        let at_place = self.place(line);
        let listener = Listener { at, name: None, advertise: None, protocols: None };
        self.draft.listeners.push((listener, at_place));
        Ok("")
    }

    fn external(&mut self, values: &[&str], line: u32) -> Read<&'static str> {
        let host = value::one(values)?;
        let external = match host.parse::<IpAddr>() {
            Ok(addr) => external_of(addr),
            Err(_) if is_interface(host) => External::Interface(host.to_owned()),
            Err(_) => {
                return Err(format!(
                    "\"{}\" is neither an address nor an interface; write 192.0.2.1 or eth0",
                    shown(host)
                ));
            }
        };
        let at = self.place(line);
        self.draft.externals.push((external, at));
        Ok("")
    }

    fn external_protocol(&mut self, values: &[&str]) -> Read<&'static str> {
        let found = families(values)?;
        self.draft.dns_prefer = match found {
            Families { v4: true, v6: false } => Some(Prefer::Ipv4Only),
            Families { v4: false, v6: true } => Some(Prefer::Ipv6Only),
            _ => None,
        };
        Ok("addresses of other families are not used")
    }

    fn rotation(&mut self, values: &[&str], line: u32) -> Read<&'static str> {
        let word = value::one(values)?;
        if word.eq_ignore_ascii_case("route") {
            return Err(
                "the system chooses by its routes where nothing is bound; write external: \
                        0.0.0.0 alone, or external.rotation: same-same"
                    .into(),
            );
        }
        let known = [("none", Rotation::None), ("same-same", Rotation::SameSame)];
        let found = value::word(word, &known)?;
        let at = self.place(line);
        self.draft.rotation = Some((found, at));
        Ok("")
    }

    fn methods(&mut self, values: &[&str], line: u32) -> Read<&'static str> {
        // Whatever is wrong with it, there was one.
        self.has_method = true;
        let found = selector::methods(values)?;
        let has_users = found.contains(&Method::Username);
        let at = self.place(line);
        self.draft.methods = Some((found, at));
        Ok(if has_users {
            "users come from userlist: FILE (adit user add), not from the system's passwords"
        } else {
            ""
        })
    }

    fn log_output(&mut self, values: &[&str], line: u32) -> Read<&'static str> {
        let mut sinks = Vec::new();
        for word in values {
            let sink = match word.to_ascii_lowercase().as_str() {
                "stdout" => Sink::Stdout,
                "stderr" => Sink::Stderr,
                _ => match crate::read::syslog(word) {
                    Some(facility) => Sink::Syslog(facility?),
                    None if word.starts_with('/') => {
                        if self.draft.log_file.as_deref().is_some_and(|known| known != *word) {
                            return Err(
                                "one file is written; name one, and stdout or syslog beside it"
                                    .into(),
                            );
                        }
                        self.draft.log_file = Some(value::path(&[word])?);
                        Sink::File
                    }
                    None => {
                        return Err(format!(
                            "\"{}\" is no place for log lines; write stdout, stderr, syslog or the \
                             path of a file",
                            shown(word)
                        ));
                    }
                },
            };
            if !sinks.contains(&sink) {
                sinks.push(sink);
            }
        }
        if sinks.is_empty() {
            return Err("write stdout, stderr, syslog or the path of a file".into());
        }
        let at = self.place(line);
        self.draft.sinks = Some((sinks, at));
        Ok("one line when a session ends, whatever the rules' log: says")
    }
}

fn client_method(values: &[&str]) -> Read<&'static str> {
    match value::one(values) {
        Ok(word) if word.eq_ignore_ascii_case("none") => {
            Ok("nothing is asked of clients before their rules; socksmethod is another matter")
        }
        _ => {
            Err("nothing but none is served before a client's request; write clientmethod: none, \
                  and what clients have to prove into socksmethod"
                .into())
        }
    }
}

fn families(values: &[&str]) -> Read<Families> {
    let found = value::words(values, &[("ipv4", true), ("ipv6", false)])?;
    Ok(Families { v4: found.contains(&true), v6: found.contains(&false) })
}

/// A host and a port in any spelling: `port = 1080`, `port=1080`, `port 1080`, or none.
fn host_and_port<'a>(values: &[&'a str]) -> Read<(&'a str, u16)> {
    let [host, rest @ ..] = values else { return Err("the address is missing".into()) };
    if rest.is_empty() {
        return Ok((host, PORT));
    }
    let text = rest.join(" ").to_ascii_lowercase();
    let number = text
        .strip_prefix("port")
        .map(|rest| rest.trim_start_matches([':', ' ']))
        .map(|rest| rest.strip_prefix("eq ").unwrap_or(rest))
        .map(|rest| rest.trim_start_matches(['=', ' ']));
    let number = number
        .ok_or_else(|| format!("\"{}\" follows the address; write port = 1080", shown(&text)))?;
    if number == "socks" {
        return Ok((host, PORT));
    }
    let port = value::integer(&[number], 0, 65535)?;
    Ok((host, u16::try_from(port).unwrap_or(PORT)))
}

/// Settings that are not read: whether that matters, and what to do.
fn judgement(keyword: &str) -> (Verdict, String) {
    let ignored = |remark: &str| (Verdict::Ignored, remark.to_owned());
    let refused = |remark: &str| (Verdict::Refused, remark.to_owned());
    match keyword {
        "user.privileged" => {
            ignored("no part of the program needs root; what it needs comes from systemd")
        }
        "user.libwrap" => ignored("there is no libwrap"),
        "errorlog" => ignored("errors go where logoutput says, with their level"),
        "udp.connectdst" => ignored("answers have to come from the port that was asked either way"),
        "timeout.tcp_fin_wait" => {
            ignored("connections that are closed on one side end by themselves")
        }
        _ if keyword.starts_with("child.") => ignored("there are no child processes"),
        _ if keyword.starts_with("internal.log.") || keyword.starts_with("external.log.") => {
            ignored("errors of connections are in the closing line of their session")
        }
        "srchost" => refused("names of clients are not looked up; write addresses into the rules"),
        "compatibility" | "extension" => refused("not served; leave the line out"),
        "libwrap.hosts_access" => refused("there is no libwrap; write client block rules"),
        "auth.command" => refused("write a program and its arguments"),
        _ if keyword.starts_with("cpu.") => {
            refused("write CPUSchedulingPolicy= and CPUAffinity= into the systemd unit")
        }
        _ if keyword.starts_with("internal.") || keyword.starts_with("external.") => {
            refused("socket options are not set from here; leave the line out")
        }
        _ if keyword.starts_with("gssapi.") || keyword.starts_with("ldap.") => {
            refused("not served; use socksmethod: username, with userlist: or auth.command:")
        }
        _ if keyword.starts_with("session.") || keyword == "bandwidth" => {
            refused("a limit belongs into a rule")
        }
        "username" | "password" => {
            refused("Dante does not know this either; users are in userlist: FILE")
        }
        _ => {
            let known = [
                "internal",
                "external",
                "external.rotation",
                "internal.protocol",
                "external.protocol",
                "socksmethod",
                "clientmethod",
                "userlist",
                "user.privileged",
                "user.unprivileged",
                "logoutput",
                "errorlog",
                "debug",
                "timeout.connect",
                "timeout.negotiate",
                "timeout.io",
                "udp.portrange",
            ];
            match value::nearest(keyword, known.into_iter()) {
                Some(near) => {
                    (Verdict::Refused, format!("no such keyword; did you mean \"{near}\"?"))
                }
                None => refused("no such keyword; leave the line out"),
            }
        }
    }
}
