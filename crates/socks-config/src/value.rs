//! The kinds of values, as Alighieri defines them. Every reader takes the tokens of a line, and
//! says in its error what to write.

use std::net::{IpAddr, SocketAddr};

use adit_policy::limits::{ByteRate, Rate};

/// What a reader returns: the value, or a message.
pub(crate) type Read<T> = Result<T, String>;

/// The only token.
pub(crate) fn one<'a>(tokens: &[&'a str]) -> Read<&'a str> {
    match tokens {
        [token] => Ok(token),
        [] => Err("the value is missing".into()),
        [_, extra, ..] => Err(format!("one value is taken, and \"{}\" follows it", shown(extra))),
    }
}

/// A token in a message: what it begins with, without control characters.
pub(crate) fn shown(token: &str) -> String {
    let mut text: String = token.chars().take(60).flat_map(char::escape_debug).collect();
    if token.chars().nth(60).is_some() {
        text.push_str("...");
    }
    text
}

/// A decimal number without sign, unit or separator, from `least` to `most`.
pub(crate) fn integer(tokens: &[&str], least: u64, most: u64) -> Read<u64> {
    let token = one(tokens)?;
    let digits = !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_digit());
    token
        .parse()
        .ok()
        .filter(|number| digits && (least..=most).contains(number))
        .ok_or_else(|| format!("write a number from {least} to {most} without a unit"))
}

/// Seconds, as [`integer`].
pub(crate) fn seconds(tokens: &[&str], least: u32, most: u32) -> Read<u32> {
    let number = integer(tokens, least.into(), most.into())?;
    u32::try_from(number).map_err(|_| "write fewer seconds".into())
}

/// Seconds, or a word that means off; 0 is off as well.
pub(crate) fn ttl(tokens: &[&str]) -> Read<u32> {
    match one(tokens)?.to_ascii_lowercase().as_str() {
        "off" | "none" | "disabled" => Ok(0),
        _ => seconds(tokens, 0, u32::MAX).map_err(|_| "write a number of seconds, or off".into()),
    }
}

pub(crate) fn boolean(tokens: &[&str]) -> Read<bool> {
    match one(tokens)?.to_ascii_lowercase().as_str() {
        "true" | "yes" | "on" | "1" => Ok(true),
        "false" | "no" | "off" | "0" => Ok(false),
        _ => Err("write true or false".into()),
    }
}

/// All tokens, joined by single blanks.
pub(crate) fn path(tokens: &[&str]) -> Read<String> {
    if tokens.is_empty() {
        return Err("the path is missing".into());
    }
    let text = tokens.join(" ");
    if text.chars().any(char::is_control) {
        return Err("a path has no control characters".into());
    }
    Ok(text)
}

/// Bytes with an optional unit; blanks and `=` between do not matter.
pub(crate) fn size(tokens: &[&str]) -> Read<u64> {
    parse_size(&joined(tokens))
}

/// A size that is not 0.
pub(crate) fn positive_size(tokens: &[&str]) -> Read<u64> {
    size(tokens)?.checked_sub(1).map(|rest| rest + 1).ok_or_else(|| "write more than 0".into())
}

fn joined(tokens: &[&str]) -> String {
    tokens.concat().replace('=', "")
}

const SIZE_HELP: &str = "write bytes as a whole number, or with a unit: 512k, 10m, 1gib";

fn parse_size(text: &str) -> Read<u64> {
    let lower = text.to_ascii_lowercase();
    let digits_end = lower.find(|c: char| !c.is_ascii_digit() && c != '_').unwrap_or(lower.len());
    let (digits, unit) = lower.split_at(digits_end);
    let factor = match unit {
        "" | "b" => 1,
        "k" | "kib" => 1 << 10,
        "kb" => 1000,
        "m" | "mib" => 1 << 20,
        "mb" => 1_000_000,
        "g" | "gib" => 1 << 30,
        "gb" => 1_000_000_000,
        _ => return Err(SIZE_HELP.into()),
    };
    let number = parse_count(digits).ok_or(SIZE_HELP)?;
    number.checked_mul(factor).ok_or_else(|| "that is more than any file has".into())
}

/// Digits with `_` between them.
fn parse_count(text: &str) -> Option<u64> {
    let digits = text.replace('_', "");
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|_| is_number)
}

pub(crate) fn rate(tokens: &[&str]) -> Read<Rate> {
    let text = tokens.concat();
    let parts = text.split_once('/');
    let numbers = parts.and_then(|(count, seconds)| {
        let count = u32::try_from(parse_count(count)?).ok()?;
        Rate::new(count, u32::try_from(parse_count(seconds)?).ok()?)
    });
    numbers.ok_or_else(|| "write COUNT/SECONDS, both more than 0, such as 20/60".into())
}

pub(crate) fn byte_rate(tokens: &[&str]) -> Read<ByteRate> {
    const HELP: &str = "write SIZE/SECONDS, both more than 0, such as 1m/1";
    let text = joined(tokens);
    let (size, seconds) = text.split_once('/').ok_or(HELP)?;
    let seconds = parse_count(seconds).and_then(|seconds| u32::try_from(seconds).ok());
    seconds
        .and_then(|seconds| ByteRate::new(parse_size(size).ok()?, seconds))
        .ok_or_else(|| HELP.into())
}

/// A port from 1, or two with `-` between them.
pub(crate) fn port_range(tokens: &[&str]) -> Read<(u16, u16)> {
    let (first, last) = any_port_range(&tokens.concat())?;
    if first == 0 { Err("a port here is from 1 to 65535".into()) } else { Ok((first, last)) }
}

/// As [`port_range`], with port 0.
pub(crate) fn any_port_range(text: &str) -> Read<(u16, u16)> {
    let number =
        |text: &str| text.parse().ok().filter(|_| text.bytes().all(|b| b.is_ascii_digit()));
    let range = match text.split_once('-') {
        Some((first, last)) => number(first).zip(number(last)),
        None => number(text).map(|port| (port, port)),
    };
    let (first, last) =
        range.ok_or_else(|| format!("\"{}\" is no port; write 443 or 1024-65535", shown(text)))?;
    if first > last {
        return Err(format!("the range {first}-{last} ends before it starts"));
    }
    Ok((first, last))
}

/// `IP port = N`, or `IP:PORT` in one token.
pub(crate) fn endpoint(tokens: &[&str]) -> Read<SocketAddr> {
    const HELP: &str = "write 127.0.0.1:1080, [::1]:1080, or 127.0.0.1 port = 1080";
    match tokens {
        [one] => one.parse().map_err(|_| HELP.into()),
        [addr, keyword, "=", port] if keyword.eq_ignore_ascii_case("port") => {
            let addr: IpAddr = addr.parse().map_err(|_| HELP)?;
            let port = u16::try_from(integer(&[port], 0, 65535)?).map_err(|_| HELP)?;
            Ok(SocketAddr::new(addr, port))
        }
        _ => Err(HELP.into()),
    }
}

/// One or more words out of `known`, without duplicates, in their order.
pub(crate) fn words<T: Copy + PartialEq>(tokens: &[&str], known: &[(&str, T)]) -> Read<Vec<T>> {
    let mut found = Vec::new();
    for token in tokens {
        let value = word(token, known)?;
        if !found.contains(&value) {
            found.push(value);
        }
    }
    if found.is_empty() {
        Err(format!("write one or more of {}", listed(known)))
    } else {
        Ok(found)
    }
}

/// One word out of `known`.
pub(crate) fn word<T: Copy>(token: &str, known: &[(&str, T)]) -> Read<T> {
    known
        .iter()
        .find(|(name, _)| token.eq_ignore_ascii_case(name))
        .map(|&(_, value)| value)
        .ok_or_else(|| format!("\"{}\" is not known here; write {}", shown(token), listed(known)))
}

fn listed<T>(known: &[(&str, T)]) -> String {
    let names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
    names.join(", ")
}

/// True for a text that can be the name of a network interface (Linux: `IFNAMSIZ` is 16).
pub(crate) fn is_interface(text: &str) -> bool {
    (1..=15).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_graphic() && !b"/:%#{}[]\"".contains(&byte))
        && text != "."
        && text != ".."
}

/// The known name that a mistyped one was probably meant to be.
pub(crate) fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    if name.len() > 64 {
        return None;
    }
    known
        .map(|candidate| (distance(name.as_bytes(), candidate.as_bytes()), candidate))
        .filter(|&(edits, _)| edits <= 1 + name.len() / 5)
        .min_by_key(|&(edits, _)| edits)
        .map(|(_, candidate)| candidate)
}

/// Insertions, deletions and replacements from one to the other.
fn distance(a: &[u8], b: &[u8]) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(text: &str) -> Vec<&str> {
        text.split_whitespace().collect()
    }

    #[test]
    fn sizes() {
        for (text, bytes) in [
            ("0", 0),
            ("10", 10),
            ("1_000", 1000),
            ("10b", 10),
            ("2k", 2048),
            ("2KiB", 2048),
            ("2kb", 2000),
            ("3 M", 3 << 20),
            ("3mb", 3_000_000),
            ("= 1 g", 1 << 30),
            ("1GB", 1_000_000_000),
        ] {
            assert_eq!(size(&tokens(text)), Ok(bytes), "{text}");
        }
        for text in ["", "k", "1.5m", "-1", "1t", "99999999999g", "_", "1 k b x"] {
            assert!(size(&tokens(text)).is_err(), "{text}");
        }
        assert!(positive_size(&["0k"]).is_err() && positive_size(&["1"]) == Ok(1));
    }

    #[test]
    fn rates() {
        assert_eq!(rate(&tokens("20 / 60")), Ok(Rate::new(20, 60).unwrap()));
        assert_eq!(rate(&["1_000/1"]), Ok(Rate::new(1000, 1).unwrap()));
        assert_eq!(byte_rate(&tokens("1 m / 2")), Ok(ByteRate::new(1 << 20, 2).unwrap()));
        for text in ["", "1", "0/1", "1/0", "/", "1/", "a/1", "1/1/1", "5000000000/1"] {
            assert!(rate(&tokens(text)).is_err(), "{text}");
            if text != "5000000000/1" {
                assert!(byte_rate(&tokens(text)).is_err(), "{text}");
            }
        }
    }

    #[test]
    fn endpoints() {
        for (text, addr) in [
            ("127.0.0.1:1080", "127.0.0.1:1080"),
            ("[::1]:0", "[::1]:0"),
            ("127.0.0.1 port = 1080", "127.0.0.1:1080"),
            ("::1 PORT = 1", "[::1]:1"),
        ] {
            assert_eq!(endpoint(&tokens(text)), Ok(addr.parse().unwrap()), "{text}");
        }
        for text in [
            "",
            "127.0.0.1",
            "127.0.0.1 port=1080",
            "127.0.0.1 port 1080",
            "127.0.0.1 port = 65536",
            "localhost:1080",
            "127.0.0.1 port = 1 2",
            "127.0.0.1:+80",
        ] {
            assert!(endpoint(&tokens(text)).is_err(), "{text}");
        }
    }

    #[test]
    fn ports_and_numbers() {
        assert_eq!(port_range(&tokens("10 - 20")), Ok((10, 20)));
        assert_eq!(port_range(&["7"]), Ok((7, 7)));
        for text in ["0", "0-5", "5-4", "a", "65536", "1-", "-1", "+1", ""] {
            assert!(port_range(&tokens(text)).is_err(), "{text}");
        }
        assert_eq!(seconds(&["5"], 1, 10), Ok(5));
        for text in ["0", "11", "1_0", "5s", "", "1 2", "+5"] {
            assert!(seconds(&tokens(text), 1, 10).is_err(), "{text}");
        }
        assert_eq!((ttl(&["OFF"]), ttl(&["0"]), ttl(&["9"])), (Ok(0), Ok(0), Ok(9)));
        assert!(ttl(&["never"]).is_err());
        assert_eq!((boolean(&["Yes"]), boolean(&["0"])), (Ok(true), Ok(false)));
        assert!(boolean(&["2"]).is_err());
        assert_eq!(path(&tokens("/a  b")), Ok("/a b".into()));
        assert!(path(&["a\u{7}"]).is_err() && path(&[]).is_err());
    }

    #[test]
    fn finds_typing_errors_and_nothing_else() {
        let known = || ["userlist", "internal", "udptimeout"].into_iter();
        assert_eq!(nearest("userlsit", known()), Some("userlist"));
        assert_eq!(nearest("intrnal", known()), Some("internal"));
        assert_eq!(nearest("weather", known()), None);
    }
}
