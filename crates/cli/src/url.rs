//! `adit url`: links to configurations and back.

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use adit_config::{Host, Link, links_of_file};

use crate::Failure::{self, Usage};
use crate::{Outcome, output, print, qr};

const HELP: &str = "\
Usage: adit url encode [--host HOST] FILE
       adit url decode LINK
       adit url qr [--host HOST] LINK|FILE

encode  prints a SIP002 link for each server of a configuration file (of a server or a
        client); --host is the name other devices reach the server by, needed where the
        file listens on every address
decode  prints the configuration of a link as JSON
qr      draws the QR code of a link, or of each link of a file

LINK may be - to read it from standard input, which keeps it out of ps and the shell's history.
";

pub(crate) fn run(args: Vec<OsString>) -> Outcome {
    let mut parser = lexopt::Parser::from_args(args);
    let mut words: Vec<String> = Vec::new();
    let mut host = None;
    while let Some(arg) = parser.next()? {
        match arg {
            lexopt::Arg::Long("help") | lexopt::Arg::Short('h') => return print(HELP),
            lexopt::Arg::Long("host") => {
                let text = parser.value()?.to_string_lossy().into_owned();
                let parsed = Host::parse(&text)
                    .map_err(|_| Usage("--host takes a name or an address".to_owned()))?;
                host = Some(parsed);
            }
            lexopt::Arg::Value(word) => words.push(word.to_string_lossy().into_owned()),
            other => return Err(other.unexpected().into()),
        }
    }
    crate::secrets::hide();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["encode", file] => {
            for link in file_links(file, host.as_ref())? {
                output::print(&(link.encode() + "\n"))?;
            }
        }
        ["decode", link] => output::print(&parse(link)?.to_json())?,
        ["qr", what] => {
            let links = if what.starts_with("ss://") || *what == "-" {
                vec![parse(what)?]
            } else {
                file_links(what, host.as_ref())?
            };
            for link in links {
                output::print(&(qr::draw(&link.encode()).map_err(Usage)? + "\n\n"))?;
            }
        }
        _ => return Err(Usage("write adit url encode FILE, decode LINK or qr LINK".to_owned())),
    }
    Ok(ExitCode::SUCCESS)
}

fn parse(link: &str) -> Result<Link, Failure> {
    let mut from_input = String::new();
    let text = if link == "-" {
        std::io::stdin()
            .read_line(&mut from_input)
            .map_err(|e| Usage(format!("standard input: {e}")))?;
        from_input.trim()
    } else {
        link
    };
    Link::parse(text).map_err(|e| Usage(e.to_string()))
}

fn file_links(file: &str, host: Option<&Host>) -> Result<Vec<Link>, Failure> {
    let found = links_of_file(Path::new(file), host, &|name| std::env::var(name).ok());
    found.map_err(|found| {
        let lines: Vec<String> = found.iter().map(ToString::to_string).collect();
        Usage(lines.join("\nadit: "))
    })
}
