//! Help and manual pages, written from the table of options.

use std::fmt::Write;

use crate::flags::{Flag, table};
use crate::program::{Dialect, Invoked, Program};

/// Column at which descriptions start.
const DESCRIPTION_COLUMN: usize = 38;

/// The text of `--help`.
pub fn help(invoked: Invoked) -> String {
    let mut out =
        format!("Usage: {} [OPTION]...\n\n{}.\n\nOptions:\n", invoked.name, purpose(invoked));
    for flag in shown(invoked) {
        let mut line = format!("  {}", spelling(flag));
        if line.len() + 2 > DESCRIPTION_COLUMN {
            let _infallible = writeln!(out, "{line}");
            line.clear();
        }
        let _infallible = writeln!(out, "{line:DESCRIPTION_COLUMN$}{}", flag.help);
    }
    out.push_str("\nOptions win over the configuration file. ");
    out.push_str(search(invoked));
    out.push('\n');
    out.push_str(advice(invoked));
    out
}

/// The line of `--version`.
pub fn version(invoked: Invoked) -> String {
    format!("{} (adit) {}", invoked.name, env!("CARGO_PKG_VERSION"))
}

/// The manual page, section 1 (client) or 8 (server), in the `man` macros of roff.
pub fn man(invoked: Invoked) -> String {
    let section = if invoked.program.is_client() { 1 } else { 8 };
    let name = invoked.name;
    let mut out = format!(
        ".TH {} {section} \"\" \"Adit {}\"\n.SH NAME\n{} \\- {}\n.SH SYNOPSIS\n.B {}\n\
         .RI [ option ]...\n.SH OPTIONS\n",
        roff(&name.to_uppercase()),
        roff(env!("CARGO_PKG_VERSION")),
        roff(name),
        roff(purpose(invoked)),
        roff(name),
    );
    for flag in shown(invoked) {
        let _infallible = writeln!(out, ".TP\n{}\n{}.", tag(flag), roff(flag.help));
    }
    let _infallible = writeln!(
        out,
        ".SH FILES\nOptions win over the configuration file. {}\n\
         .SH ENVIRONMENT\n.TP\nSS_SERVER_PASSWORD\nThe password, when none is given elsewhere.\n\
         .SH EXIT STATUS\n0 when all went well, 1 when the program failed, 2 when it was used or \
         configured wrongly.",
        roff(search(invoked)),
    );
    if !advice(invoked).is_empty() {
        let _infallible = write!(out, ".SH NOTES\n{}", roff(advice(invoked)));
    }
    out
}

fn shown(invoked: Invoked) -> impl Iterator<Item = &'static Flag> {
    table(invoked.program, invoked.dialect).filter(|flag| !flag.help.is_empty())
}

/// `-s, --server VALUE`, with blanks where there is no short form.
fn spelling(flag: &Flag) -> String {
    let mut text = match flag.short {
        Some(short) => format!("-{short}"),
        None => String::from("   "),
    };
    for (index, long) in flag.long().enumerate() {
        text.push_str(if flag.short.is_none() && index == 0 { " " } else { ", " });
        text.push_str(long);
    }
    if let Some(value) = flag.value {
        text.push(' ');
        text.push_str(value);
    }
    text
}

/// The same for a manual page: without blanks, options bold and the value in italics.
fn tag(flag: &Flag) -> String {
    let short = flag.short.map(|short| format!("-{short}"));
    let names = short.into_iter().chain(flag.long().map(ToOwned::to_owned));
    let bold: Vec<String> = names.map(|name| format!("\\fB{}\\fR", roff(&name))).collect();
    let value = flag.value.map(|value| format!(" \\fI{}\\fR", roff(value)));
    bold.join(", ") + &value.unwrap_or_default()
}

const fn purpose(invoked: Invoked) -> &'static str {
    match invoked.program {
        Program::Local => "Shadowsocks client with SOCKS and HTTP listeners",
        Program::Server => "Shadowsocks server",
        Program::Tunnel => "Shadowsocks client that forwards a port to one target",
        Program::Redir => "Shadowsocks client for what firewall rules redirect",
        Program::Manager => "Shadowsocks server whose ports are added and removed by request",
    }
}

const fn search(invoked: Invoked) -> &'static str {
    match (invoked.dialect, invoked.program) {
        (Dialect::Libev, _) => {
            "Without options, shadowsocks-libev/config.json is read from ~/.config or /etc."
        }
        (Dialect::Rust, Program::Server) => {
            "Without -c and -s, server.json or config.json is read from the current directory, \
             ~/.config/shadowsocks-rust or /etc/shadowsocks-rust."
        }
        (Dialect::Rust, Program::Manager) => {
            "Without -c and --manager-addr, manager.json or config.json is read from the current \
             directory, ~/.config/shadowsocks-rust or /etc/shadowsocks-rust."
        }
        (Dialect::Rust, Program::Local | Program::Tunnel | Program::Redir) => {
            "Without -c and -s, local.json or config.json is read from the current directory, \
             ~/.config/shadowsocks-rust or /etc/shadowsocks-rust."
        }
    }
}

/// What else is needed to use the program.
const fn advice(invoked: Invoked) -> &'static str {
    match invoked.program {
        Program::Redir => {
            "Firewall rules for it: adit redir rules print, apply or remove. Its own connections \
             carry\nthe mark 0xad17 unless --fwmark says otherwise.\n"
        }
        _ => "",
    }
}

/// Escapes what roff would read as a command.
fn roff(text: &str) -> String {
    text.replace('\\', "\\e").replace('-', "\\-").replace('\'', "\\(aq").replace('~', "\\(ti")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::PROGRAMS;

    #[test]
    fn help_shows_each_option_once_and_fits() {
        for invoked in PROGRAMS {
            let text = help(invoked);
            assert!(text.contains("Usage:") && text.contains("--help"), "{invoked:?}");
            assert!(text.contains("-k, --password PASSWORD"), "{invoked:?}");
            for line in text.lines().filter(|line| line.starts_with("  ")) {
                assert!(line.len() <= 120, "{line}");
            }
            assert!(!text.contains("--auth"), "refused options are not offered");
        }
    }

    #[test]
    fn version_is_one_line() {
        let invoked = Invoked::by_name("ss-local").unwrap();
        assert_eq!(version(invoked), format!("ss-local (adit) {}", env!("CARGO_PKG_VERSION")));
    }

    #[test]
    fn manual_pages_escape_dashes() {
        for invoked in PROGRAMS {
            let page = man(invoked);
            assert!(page.starts_with(".TH SS") && page.contains("\\-\\-password"), "{page}");
            for line in page.lines().filter(|line| !line.starts_with('.')) {
                // A plain dash is a hyphen, which can't be copied into a command line.
                assert!(!line.replace("\\-", "").contains('-'), "{line}");
                assert!(!line.starts_with(' '), "blanks in front break the line: {line}");
            }
        }
        let page = man(Invoked::by_name("ss-local").unwrap());
        for tag in
            ["\\fB\\-p\\fR, \\fB\\-\\-server\\-port\\fR \\fIPORT\\fR", "\\fB\\-\\-reuse\\-port\\fR"]
        {
            assert!(page.contains(&format!(".TP\n{tag}\n")), "{tag}");
        }
    }
}
