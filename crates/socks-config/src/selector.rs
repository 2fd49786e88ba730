//! Selectors of rules that both languages share: hosts, ports, times, words.

use adit_acl::Country;
use adit_policy::{
    Command, Commands, HostPattern, Method, Methods, PortOperator, Ports, Prefix, ProxyProtocol,
    ProxyProtocols, WeekTimes, Weekday,
};

use crate::rule::HostNames;
use crate::value::{self, Read, any_port_range, is_interface, shown};

/// Which spellings a language has for hosts and ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// Ours: interfaces are written `interface:eth0`.
    Adit,
    /// Dante's: `0/0` means everything, a name without a dot is an interface.
    Dante,
}

/// Services by name that Dante's files use; `/etc/services` is not read.
const SERVICES: [(&str, u16); 22] = [
    ("domain", 53),
    ("ftp", 21),
    ("ftp-data", 20),
    ("ftps", 990),
    ("git", 9418),
    ("http", 80),
    ("https", 443),
    ("imap", 143),
    ("imap2", 143),
    ("imaps", 993),
    ("ldap", 389),
    ("ldaps", 636),
    ("nntp", 119),
    ("ntp", 123),
    ("pop3", 110),
    ("pop3s", 995),
    ("smtp", 25),
    ("socks", 1080),
    ("ssh", 22),
    ("submission", 587),
    ("telnet", 23),
    ("www", 80),
];

/// Hosts, and behind them an optional port condition.
pub(crate) fn hosts_and_ports(tokens: &[&str], dialect: Dialect) -> Read<(HostNames, Ports)> {
    let is_port = |token: &&str| {
        let lower = token.to_ascii_lowercase();
        lower == "port" || lower.starts_with("port=") || lower == "port:"
    };
    let split = tokens.iter().position(is_port).unwrap_or(tokens.len());
    let (hosts, ports) = tokens.split_at(split);
    if hosts.is_empty() {
        return Err("an address is missing; write 0.0.0.0/0 for all of IPv4, ::/0 for IPv6".into());
    }
    let mut found = HostNames::default();
    hosts.iter().try_for_each(|host| add_host(host, dialect, &mut found))?;
    let ports = if ports.is_empty() { Ports::all() } else { ports_of(ports)? };
    Ok((found, ports))
}

fn add_host(text: &str, dialect: Dialect, found: &mut HostNames) -> Read<()> {
    if let Some(code) = text.strip_prefix("geoip:") {
        let country = Country::new(code).ok_or_else(|| {
            format!("\"{}\" is no country; write its two letters, such as geoip:NL", shown(text))
        })?;
        found.countries.push(country);
        return Ok(());
    }
    if let Some(name) = text.strip_prefix("interface:") {
        if !is_interface(name) {
            return Err(format!("\"{}\" is no interface; write interface:eth0", shown(text)));
        }
        found.interfaces.push(name.to_owned());
        return Ok(());
    }
    if text == "0/0" {
        if dialect == Dialect::Dante {
            found.prefixes.extend([Prefix::V4, Prefix::V6]);
            return Ok(());
        }
        return Err(
            "0/0 is no prefix; write 0.0.0.0/0 for all of IPv4, ::/0 for IPv6, or both".into()
        );
    }
    if text.contains('/') || text.contains(':') || text.parse::<std::net::IpAddr>().is_ok() {
        let prefix = Prefix::parse(text).map_err(|e| format!("\"{}\": {e}", shown(text)))?;
        found.prefixes.push(prefix);
        return Ok(());
    }
    let is_name = dialect == Dialect::Adit || text.contains('.') || text == "localhost";
    if !is_name && is_interface(text) {
        found.interfaces.push(text.to_owned());
        return Ok(());
    }
    let pattern = HostPattern::parse(text).map_err(|e| format!("\"{}\": {e}", shown(text)))?;
    found.names.push(pattern);
    Ok(())
}

/// A condition on ports: `port = 80-90`, `port 80`, `port gt 1023`, glued or not.
pub(crate) fn ports_of(tokens: &[&str]) -> Read<Ports> {
    const HELP: &str = "write port = 443, port 1024-65535, or port ge 1024";
    let text = tokens.join(" ");
    let lower = text.to_ascii_lowercase();
    let rest = lower.strip_prefix("port").ok_or(HELP)?.trim_start_matches(':').trim();
    let sign_end = rest
        .find(|c: char| !"=!<>".contains(c))
        .filter(|&end| end > 0)
        .or_else(|| rest.find(' ').filter(|_| rest.starts_with(|c: char| c.is_ascii_alphabetic())));
    let (operator, value) = match sign_end {
        Some(end) => {
            let (word, value) = rest.split_at(end);
            match PortOperator::parse(word) {
                Some(operator) => (operator, value),
                None => return Err(format!("\"{}\" compares no ports; {HELP}", shown(word))),
            }
        }
        None => (PortOperator::Equal, rest),
    };
    let value = value.replace(' ', "");
    if value.is_empty() {
        return Err(HELP.into());
    }
    if let Some(&(_, port)) = SERVICES.iter().find(|(name, _)| *name == value) {
        return Ok(Ports::compare(operator, port));
    }
    if value.starts_with(|c: char| c.is_ascii_alphabetic()) {
        return Err(format!(
            "\"{}\" is no service that is known here; write its number",
            shown(&value)
        ));
    }
    let (first, last) = any_port_range(&value)?;
    match operator {
        PortOperator::Equal => Ok(Ports::range(first, last)),
        _ if first == last => Ok(Ports::compare(operator, first)),
        _ => Err(format!("a range is not compared; {HELP}")),
    }
}

/// Commands, with the other names that they have.
pub(crate) fn commands(tokens: &[&str]) -> Read<Commands> {
    let known = [
        ("connect", Command::Connect),
        ("bind", Command::Bind),
        ("bindreply", Command::BindReply),
        ("udpassociate", Command::UdpAssociate),
        ("udp", Command::UdpAssociate),
        ("udpreply", Command::UdpReply),
    ];
    value::words(tokens, &known).map(|found| Commands::of(&found))
}

/// The commands of `tcp`, `udp` or both.
pub(crate) fn transports(tokens: &[&str]) -> Read<Commands> {
    let known = [("tcp", true), ("udp", false)];
    let found = value::words(tokens, &known)?;
    Ok(match found[..] {
        [true] => Commands::TCP,
        [false] => Commands::UDP,
        _ => Commands::ALL,
    })
}

/// Protocols of clients.
pub(crate) fn proxy_protocols(tokens: &[&str]) -> Read<ProxyProtocols> {
    let known = [
        ("socks4", ProxyProtocol::Socks4),
        ("socks_v4", ProxyProtocol::Socks4),
        ("socks5", ProxyProtocol::Socks5),
        ("socks_v5", ProxyProtocol::Socks5),
        ("http", ProxyProtocol::Http),
    ];
    value::words(tokens, &known).map(|found| ProxyProtocols::of(&found))
}

/// Methods in their order.
pub(crate) fn methods(tokens: &[&str]) -> Read<Vec<Method>> {
    for token in tokens {
        let lower = token.to_ascii_lowercase();
        if lower == "pam" || lower.starts_with("pam.") {
            return Err("PAM is not served; write username, with userlist: FILE or auth.command: \
                        PROGRAM"
                .into());
        }
        if ["gssapi", "rfc931", "bsdauth", "ldapauth"].contains(&lower.as_str()) {
            return Err(format!(
                "{lower} is not served; write none or username (auth.command: PROGRAM can ask \
                 another service)"
            ));
        }
    }
    value::words(tokens, &[("none", Method::None), ("username", Method::Username)])
}

/// As [`methods`], for a rule.
pub(crate) fn method_set(tokens: &[&str]) -> Read<Methods> {
    methods(tokens).map(|found| Methods::of(&found))
}

const TIME_HELP: &str = "write days, hours or both: mon-fri 08:00-18:00 sat,sun";

/// Times of the week: days and hours in turn. Hours belong to the days before them, and to every
/// day if there are none; days without hours are whole.
pub(crate) fn times(tokens: &[&str]) -> Read<WeekTimes> {
    let mut found: Option<WeekTimes> = None;
    let mut days: Vec<Weekday> = Vec::new();
    let mut add = |days: &[Weekday], from, until| {
        let days = if days.is_empty() { &Weekday::ALL[..] } else { days };
        let times = WeekTimes::new(days, from, until).ok_or(TIME_HELP)?;
        found = Some(match &found {
            Some(found) => found.or(&times),
            None => times,
        });
        Ok::<_, String>(())
    };
    for part in tokens.iter().flat_map(|token| token.split(',')).filter(|part| !part.is_empty()) {
        if part.starts_with(|c: char| c.is_ascii_digit()) {
            let (from, until) = part.split_once('-').ok_or(TIME_HELP)?;
            add(&days, minute(from)?, minute(until)?)?;
            days.clear();
        } else {
            days.extend(days_of(part)?);
        }
    }
    if !days.is_empty() {
        add(&days, 0, 0)?;
    }
    found.ok_or_else(|| TIME_HELP.into())
}

fn days_of(text: &str) -> Read<Vec<Weekday>> {
    let day = |text: &str| {
        Weekday::parse(text).ok_or_else(|| format!("\"{}\" is no day; {TIME_HELP}", shown(text)))
    };
    let Some((first, last)) = text.split_once('-') else { return Ok(vec![day(text)?]) };
    let (first, last) = (day(first)?, day(last)?);
    let around = Weekday::ALL.iter().cycle().skip(first as usize);
    let mut days: Vec<Weekday> = around.copied().take_while(|day| *day != last).take(7).collect();
    days.push(last);
    Ok(days)
}

fn minute(text: &str) -> Read<u16> {
    let (hour, minute) = text.split_once(':').unwrap_or((text, "0"));
    let number = |text: &str, most: u16| {
        let is_number = (1..=2).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
        text.parse().ok().filter(|&number: &u16| is_number && number <= most)
    };
    let time = number(hour, 24).zip(number(minute, 59)).map(|(hour, minute)| hour * 60 + minute);
    time.filter(|&time| time <= 24 * 60)
        .ok_or_else(|| format!("\"{}\" is no time; {TIME_HELP}", shown(text)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use adit_policy::WeekTime;

    fn tokens(text: &str) -> Vec<&str> {
        text.split_whitespace().collect()
    }

    #[test]
    fn ports_in_every_spelling() {
        for (text, inside, outside) in [
            ("port = 443", &[443][..], &[442, 444][..]),
            ("port=443", &[443], &[442]),
            ("port 443", &[443], &[442]),
            ("port eq 443", &[443], &[442]),
            ("port: 443", &[443], &[442]),
            ("port 10-20", &[10, 20], &[9, 21]),
            ("port = 10 - 20", &[10, 20], &[9, 21]),
            ("port gt 1023", &[1024, 65535], &[1023]),
            ("port >= 1024", &[1024], &[1023]),
            ("port>=1024", &[1024], &[1023]),
            ("port ne 25", &[24, 26], &[25]),
            ("port != 25", &[24, 26], &[25]),
            ("port lt 5", &[0, 4], &[5]),
            ("port le 5", &[5], &[6]),
            ("port = https", &[443], &[80]),
            ("port HTTP", &[80], &[443]),
            ("PORT ge ssh", &[22, 23], &[21]),
        ] {
            let ports = ports_of(&tokens(text)).unwrap();
            assert!(inside.iter().all(|&port| ports.contains(port)), "{text}");
            assert!(!outside.iter().any(|&port| ports.contains(port)), "{text}");
        }
        for text in [
            "port",
            "port =",
            "port gt 1-2",
            "port x 1",
            "port weather",
            "port = 5-4",
            "port 70000",
            "port 1 2 3x",
        ] {
            assert!(ports_of(&tokens(text)).is_err(), "{text}");
        }
    }

    #[test]
    fn hosts_of_both_languages() {
        let read =
            |text: &str, dialect| hosts_and_ports(&tokens(text), dialect).map(|(hosts, _)| hosts);
        let ours = read(
            "10.0.0.0/8 ::1 geoip:nl interface:eth0.5 .example.com a.example port 1",
            Dialect::Adit,
        )
        .unwrap();
        assert_eq!((ours.prefixes.len(), ours.names.len()), (2, 2));
        assert_eq!((ours.countries.len(), &*ours.interfaces), (1, &["eth0.5".to_owned()][..]));
        assert_eq!(read("eth0", Dialect::Dante).unwrap().interfaces, ["eth0"]);
        assert_eq!(read("localhost", Dialect::Dante).unwrap().names.len(), 1);
        assert_eq!(read("eth0", Dialect::Adit).unwrap().names.len(), 1, "a host of one label");
        assert_eq!(read("0/0", Dialect::Dante).unwrap().prefixes.len(), 2);
        for text in [
            "",
            "port 5",
            "0/0",
            "geoip:xyz",
            "interface:",
            "10.0.0.0/33",
            "a_b",
            "10.0.0.256",
            "1.2.3.4:80",
        ] {
            assert!(read(text, Dialect::Adit).is_err(), "{text}");
        }
    }

    #[test]
    fn times_of_the_week() {
        let at = |day, hour| WeekTime::new(day, hour, 0).unwrap();
        let office = times(&tokens("mon-fri 08:00-18:00 sat,sun 10-12")).unwrap();
        for (day, hour, is) in [
            (Weekday::Monday, 8, true),
            (Weekday::Friday, 17, true),
            (Weekday::Friday, 18, false),
            (Weekday::Sunday, 11, true),
            (Weekday::Sunday, 12, false),
        ] {
            assert_eq!(office.contains(at(day, hour)), is, "{day:?} {hour}");
        }
        assert!(times(&["fri-mon"]).unwrap().contains(at(Weekday::Sunday, 0)));
        assert!(!times(&["fri-mon"]).unwrap().contains(at(Weekday::Tuesday, 0)));
        assert!(times(&["22:00-24:00"]).unwrap().contains(at(Weekday::Tuesday, 23)));
        assert_eq!(times(&["mon-sun"]), times(&["00:00-24:00"]));
        for text in ["", "8", "25-26", "08:60-09:00", "noon", "mon-", "08:00", "24:30-01:00", ","] {
            assert!(times(&tokens(text)).is_err(), "{text}");
        }
    }
}
