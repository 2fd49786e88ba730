//! Passwords on the command line, hidden from `ps` as soon as they have been read.

use std::ffi::CStr;

/// Short options without a value, which may stand before `k` in one argument.
const FLAGS: &[u8] = b"uUv6hATd";

/// Overwrites the values of password options in this process's arguments.
///
/// Returns whether it worked; some systems do not tell where the arguments are.
pub(crate) fn hide() -> bool {
    adit_sys::process::hide_arguments(|argument, before| {
        secret_from(argument.to_bytes(), before.map(CStr::to_bytes))
    })
    .is_ok()
}

/// The offset from which an argument is secret, given the one before it.
fn secret_from(argument: &[u8], before: Option<&[u8]>) -> Option<usize> {
    const LONG: [&[u8]; 5] =
        [b"--password", b"--key", b"--server-url", b"--online-config-url", b"--plugin-opts"];
    // Options may be cut short. That of another one hides a value for nothing.
    let is_long = |name: &[u8]| name.len() > 2 && LONG.iter().any(|long| long.starts_with(name));
    if let Some(before) = before {
        let is_short = short_password(before).is_some_and(|from| from == before.len());
        if is_short || is_long(before) {
            return Some(0);
        }
    }
    argument
        .iter()
        .position(|b| *b == b'=')
        .filter(|at| is_long(&argument[..*at]))
        .map(|at| at + 1)
        .or_else(|| short_password(argument).filter(|&from| from < argument.len()))
        .or_else(|| argument.starts_with(b"ss://").then_some(5))
        .or_else(|| argument.starts_with(b"ssconf://").then_some(9))
}

/// Where the value starts if this is `-k`, alone or behind flags, glued to its value or not.
fn short_password(argument: &[u8]) -> Option<usize> {
    let letters = argument.strip_prefix(b"-").filter(|rest| !rest.starts_with(b"-"))?;
    let at = letters.iter().position(|b| !FLAGS.contains(b))?;
    (letters[at] == b'k').then_some(at + 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_value_in_every_form() {
        let cases: [(&str, Option<&str>, Option<usize>); 18] = [
            ("secret", Some("-k"), Some(0)),
            ("secret", Some("--password"), Some(0)),
            ("secret", Some("-vk"), Some(0)),
            ("-ksecret", None, Some(2)),
            ("-vksecret", None, Some(3)),
            ("--password=secret", None, Some(11)),
            ("--key=secret", None, Some(6)),
            ("secret", Some("--plugin-opts"), Some(0)),
            ("--plugin-opts=secret", None, Some(14)),
            ("ss://secret", Some("decode"), Some(5)),
            ("https://secret", Some("--online-config-url"), Some(0)),
            ("https://secret", Some("--online-config-u"), Some(0)),
            ("--online-config-ur=secret", None, Some(19)),
            ("ssconf://secret", None, Some(9)),
            ("--", Some("--"), None),
            ("-k", None, None),
            ("8388", Some("-p"), None),
            ("--keep", None, None),
        ];
        for (argument, before, expected) in cases {
            let got = secret_from(argument.as_bytes(), before.map(str::as_bytes));
            assert_eq!(got, expected, "{argument} after {before:?}");
        }
    }
}
