//! `adit redir rules`: the firewall rules of `ss-redir`, printed, applied and removed.
//!
//! Applying is two things: one transaction of `nft`, and a routing rule and route a family for what
//! comes by TPROXY, which we give to the kernel ourselves. Routes come first, so that no packet is
//! marked that has nowhere to go; when the transaction is refused, what was made for it goes again.

use std::ffi::OsString;
use std::io::{self, ErrorKind, Write};
use std::net::{IpAddr, ToSocketAddrs};
use std::ops::RangeInclusive;
use std::process::{Command, ExitCode, Stdio};

use adit_config::{Config, Invocation, Invoked};
use adit_proxy::rules::{DELIVERY, FAMILIES, IpRange, Rules, Scope};
use adit_sys::datagram::Family;
use adit_sys::routing::{Ensured, may_administer};

use crate::Failure::{self, Failed, Usage};
use crate::{Outcome, output, print, secrets};

const HELP: &str = "\
Usage: adit redir rules print [OPTIONS] [OPTIONS OF ss-redir]
       adit redir rules apply [OPTIONS] [OPTIONS OF ss-redir]
       adit redir rules remove

Writes the nftables rules that give traffic to ss-redir. Port, servers, mark, TCP or UDP, and REDIRECT
or TPROXY are what ss-redir is told: give the same options (-c FILE, say). print shows what apply
does, as a script for nft -f; apply puts it in place of what an earlier run left; remove takes
everything away again.

  --interface NAME     redirect what other hosts send by way of this one and comes in there too;
                       may be repeated
  --no-own             leave this host's own traffic alone; needs --interface
  --bypass RANGE       leave an address or range alone, besides private and reserved ones;
                       may be repeated
  --skip-uid USER      leave a user's traffic alone, by name or number; may be repeated
  --tcp-ports LIST     redirect connections to these ports only, as in 80,443,8000-8999
  --udp-ports LIST     the same for datagrams
  --program NAME       read options as another program does that has a redirector: ss-local, sslocal

Left alone in any case: what ss-redir sends, by its mark; this host's addresses; private and reserved
ranges; the servers' addresses (names are looked up now); answers of services here. apply and remove
need root or CAP_NET_ADMIN, and nft. The table is inet adit_redir; TPROXY also has the routing rule
1088 and the routing table 44312, for the mark 0xad18.
";

/// Where `nft` is when it is not in PATH, which for users often lacks the directories of root.
const NFT: [&str; 3] = ["nft", "/usr/sbin/nft", "/sbin/nft"];
/// Bytes of an interface's name at most (IFNAMSIZ less the end).
const INTERFACE_LEN_MAX: usize = 15;

pub(crate) fn run(args: Vec<OsString>) -> Outcome {
    let mut words = args.into_iter();
    let next = |words: &mut std::vec::IntoIter<OsString>| {
        words.next().map(|word| word.to_string_lossy().into_owned()).unwrap_or_default()
    };
    let is_help = |word: &str| matches!(word, "--help" | "-h");
    let group = next(&mut words);
    if is_help(&group) {
        return print(HELP);
    }
    if group != "rules" {
        return Err(Usage("write adit redir rules print, apply or remove".to_owned()));
    }
    let action = next(&mut words);
    let rest: Vec<OsString> = words.collect();
    match action.as_str() {
        word if is_help(word) => print(HELP),
        "print" | "apply" => {
            let given = Given::read(rest)?;
            if given.help {
                return print(HELP);
            }
            let rules = given.rules()?;
            if action == "print" { print(&rules.script()) } else { apply(&rules) }
        }
        "remove" if rest.is_empty() => remove(),
        "remove" => {
            Err(Usage("remove takes no options: it takes away whatever is there".to_owned()))
        }
        _ => Err(Usage("write adit redir rules print, apply or remove".to_owned())),
    }
}

/// A command line, taken apart.
struct Given {
    help: bool,
    program: String,
    scope: Scope,
    /// What is ss-redir's.
    rest: Vec<OsString>,
}

impl Given {
    /// Takes our options out; the others are ss-redir's, whose parser knows them.
    fn read(args: Vec<OsString>) -> Result<Self, Failure> {
        let mut given = Self {
            help: false,
            program: "ss-redir".to_owned(),
            scope: Scope::default(),
            rest: Vec::new(),
        };
        let mut args = args.into_iter();
        while let Some(arg) = args.next() {
            let Some(text) = arg.to_str() else {
                given.rest.push(arg);
                continue;
            };
            let (name, glued) = match text.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (text, None),
            };
            match name {
                "--help" | "-h" => given.help = true,
                "--no-own" if glued.is_none() => given.scope.own = false,
                "--no-own" => return Err(Usage("--no-own takes no value".to_owned())),
                "--interface" | "--bypass" | "--skip-uid" | "--tcp-ports" | "--udp-ports"
                | "--program" => {
                    let value = || args.next().and_then(|value| value.into_string().ok());
                    let value = glued.or_else(value);
                    let value = value.ok_or_else(|| Usage(format!("{name} needs a value")))?;
                    given.set(name, value)?;
                }
                _ => given.rest.push(arg),
            }
        }
        Ok(given)
    }

    fn set(&mut self, name: &str, value: String) -> Result<(), Failure> {
        let wrong = |how: &str| Usage(format!("{name}: {how}"));
        match name {
            "--interface" => {
                let is_name = (1..=INTERFACE_LEN_MAX).contains(&value.len())
                    && value.bytes().all(|b| b.is_ascii_alphanumeric() || b".-_:@".contains(&b));
                if !is_name {
                    return Err(wrong("write the name of an interface, such as br-lan"));
                }
                self.scope.interfaces.push(value);
            }
            "--bypass" => {
                let range = value.parse::<IpRange>().map_err(wrong)?;
                self.scope.bypass.push(range);
            }
            "--skip-uid" => {
                let is_name = !value.is_empty()
                    && !value.starts_with('-')
                    && value.bytes().all(|b| b.is_ascii_alphanumeric() || b".-_".contains(&b));
                if !is_name {
                    return Err(wrong("write a user's name or number"));
                }
                self.scope.skip_users.push(value);
            }
            "--program" => {
                if Invoked::by_name(&value).is_none_or(|found| found.name != value) {
                    return Err(wrong("takes ss-redir, ss-local or sslocal"));
                }
                self.program = value;
            }
            _ => {
                let ports = ports(&value).ok_or_else(|| {
                    wrong("write ports and ranges of ports, such as 80,443,8000-8999")
                })?;
                if name == "--tcp-ports" {
                    self.scope.tcp_ports = ports;
                } else {
                    self.scope.udp_ports = ports;
                }
            }
        }
        Ok(())
    }

    /// Reads the redirector's configuration and works out the rules.
    fn rules(self) -> Result<Rules, Failure> {
        let env = |name: &str| std::env::var(name).ok();
        let config = match Config::from_args(&self.program, self.rest, &env) {
            Ok(Invocation::Run(config)) => config,
            Ok(Invocation::Help(_) | Invocation::Version(_)) => {
                return Err(Usage("only options that configure ss-redir can be given".to_owned()));
            }
            Err(error) => return Err(Failure::Config(error)),
        };
        if config.secrets_on_argv && !secrets::hide() {
            output::complain(
                "adit redir: the password stays visible in ps; put it in a file (-c)\n",
            );
        }
        let rules = Rules::new(&config, self.scope, &mut look_up).map_err(Usage)?;
        for remark in &rules.remarks {
            output::complain(&format!("adit redir: {remark}\n"));
        }
        Ok(rules)
    }
}

/// `80,443,8000-8999`.
fn ports(text: &str) -> Option<Vec<RangeInclusive<u16>>> {
    let port = |text: &str| {
        let is_number = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        text.parse::<u16>().ok().filter(|port| is_number && *port > 0)
    };
    let range = |text: &str| {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let range = port(first)?..=port(last)?;
        (!range.is_empty()).then_some(range)
    };
    text.split(',').map(range).collect()
}

fn look_up(name: &str) -> io::Result<Vec<IpAddr>> {
    let found: Vec<IpAddr> = (name, 0).to_socket_addrs()?.map(|addr| addr.ip()).collect();
    if found.is_empty() {
        Err(io::Error::new(ErrorKind::NotFound, "no address"))
    } else {
        Ok(found)
    }
}

fn apply(rules: &Rules) -> Outcome {
    check_rights()?;
    let mut made = Vec::new();
    for family in FAMILIES.into_iter().filter(|family| rules.needs_delivery(*family)) {
        match DELIVERY.ensure(family) {
            Ok(Ensured::Made) => made.push(family),
            Ok(Ensured::Found) => {}
            Err(e) => {
                made.push(family);
                take_back(&made)?;
                let family = if family == Family::V4 { "IPv4" } else { "IPv6" };
                return Err(Failed(format!("the kernel takes no routing rule for {family}: {e}")));
            }
        }
    }
    if let Err(failure) = nft(&rules.script()) {
        take_back(&made)?;
        return Err(failure);
    }
    let unneeded: Vec<Family> =
        FAMILIES.into_iter().filter(|family| !rules.needs_delivery(*family)).collect();
    take_back(&unneeded)?;
    Ok(ExitCode::SUCCESS)
}

fn remove() -> Outcome {
    check_rights()?;
    nft(&Rules::removal())?;
    take_back(&FAMILIES)?;
    Ok(ExitCode::SUCCESS)
}

/// Removes routing rules and routes.
fn take_back(families: &[Family]) -> Result<(), Failure> {
    for family in families {
        DELIVERY
            .remove(*family)
            .map_err(|e| Failed(format!("routing rules cannot be removed: {e}")))?;
    }
    Ok(())
}

fn check_rights() -> Result<(), Failure> {
    match may_administer() {
        Ok(true) => Ok(()),
        Ok(false) => {
            Err(Failed("firewall rules need root or CAP_NET_ADMIN; run it with sudo".to_owned()))
        }
        Err(e) => Err(Failed(format!("the kernel does not tell this process's rights: {e}"))),
    }
}

/// Has `nft` carry out a script, all of it or nothing.
fn nft(script: &str) -> Result<(), Failure> {
    let start = |name: &&str| {
        let started = Command::new(name)
            .args(["-f", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn();
        match started {
            Err(e) if e.kind() == ErrorKind::NotFound => None,
            other => Some(other),
        }
    };
    let missing = || {
        Failed("there is no nft; install the package nftables (apt, dnf, apk or opkg)".to_owned())
    };
    let mut child = NFT
        .iter()
        .find_map(start)
        .ok_or_else(missing)?
        .map_err(|e| Failed(format!("nft cannot be started: {e}")))?;
    // A script that nft does not read to its end shows in its status.
    let written = child.stdin.take().map(|mut pipe| pipe.write_all(script.as_bytes()));
    let done =
        child.wait_with_output().map_err(|e| Failed(format!("nft cannot be waited for: {e}")))?;
    if !done.status.success() {
        let said = String::from_utf8_lossy(&done.stderr);
        let said = said.trim();
        return Err(Failed(format!("nft refuses the rules ({}):\n{said}", done.status)));
    }
    match written {
        Some(Err(e)) => Err(Failed(format!("nft did not read all of the rules: {e}"))),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_lists_of_ports() {
        assert_eq!(ports("80,443,8000-8999"), Some(vec![80..=80, 443..=443, 8000..=8999]));
        for wrong in ["", "0", "80,", "9-8", "65536", "+80", "80-", "-80", "http", "1-2-3"] {
            assert_eq!(ports(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn takes_its_own_options_out() {
        let words = [
            "-c",
            "f.json",
            "--bypass",
            "9.9.9.0/24",
            "--interface=br-lan",
            "-u",
            "--no-own",
            "--skip-uid",
            "proxy",
            "--tcp-ports=443",
            "--udp-ports",
            "53,443",
            "--fwmark",
            "7",
        ];
        let given = Given::read(words.map(OsString::from).into()).ok().unwrap();
        assert_eq!(given.rest, ["-c", "f.json", "-u", "--fwmark", "7"]);
        let scope = given.scope;
        assert_eq!(scope.bypass[0].to_string(), "9.9.9.0/24");
        assert_eq!((scope.own, scope.interfaces), (false, vec!["br-lan".to_owned()]));
        assert_eq!(scope.skip_users, ["proxy"]);
        assert_eq!((scope.tcp_ports, scope.udp_ports), (vec![443..=443], vec![53..=53, 443..=443]));
    }

    #[test]
    fn refuses_what_would_be_a_rule_of_its_own() {
        for words in [
            &["--interface", "x\"; accept"][..],
            &["--interface="],
            &["--interface", "abcdefghijklmnop"],
            &["--skip-uid", "a b"],
            &["--skip-uid", "-x"],
            &["--bypass", "10.0.0.0/33"],
            &["--bypass", "example.net"],
            &["--program", "ss-thing"],
            &["--no-own=1"],
            &["--bypass"],
        ] {
            let words: Vec<OsString> = words.iter().map(OsString::from).collect();
            assert!(matches!(Given::read(words.clone()), Err(Usage(_))), "{words:?}");
        }
    }
}
