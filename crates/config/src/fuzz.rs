//! Bodies of the fuzz targets: whatever the input, no panic, and no secret in what is said.

use std::ffi::OsString;
use std::path::Path;

use crate::check::check_bytes;
use crate::config::Config;
use crate::flags;
use crate::json;
use crate::link::Link;
use crate::manager::{Answer, Reply, Request, read_back, state_text};
use crate::online::{redirected, subscription_url};
use crate::program::{Dialect, PROGRAMS, Program};
use crate::source::Invocation;

/// A configuration file, read as each program reads it.
pub fn config_file(bytes: &[u8]) {
    let _any = json::parse(bytes);
    let programs =
        [Program::Local, Program::Server, Program::Tunnel, Program::Redir, Program::Manager];
    for program in std::iter::once(None).chain(programs.map(Some)) {
        match check_bytes(Path::new("fuzz.json"), bytes, program, &|_| None) {
            Ok(report) => drop(format!("{:?}", report.config)),
            Err(errors) => assert!(!errors.is_empty(), "a refused file has an error"),
        }
    }
}

/// A link; what was read once reads the same after writing it.
pub fn link(text: &str) {
    if let Ok(link) = Link::parse(text) {
        // Longer than a link may be: escapes take three bytes for one.
        let encoded = link.encode();
        if encoded.len() <= crate::link::LINK_LEN_MAX {
            assert_eq!(Link::parse(&encoded), Ok(link), "{encoded}");
        }
    }
}

/// The answer of a provider; and, where it is text, the address of one.
pub fn subscription(bytes: &[u8]) {
    let file = br#"{"local_port": 1, "online_config": {"config_url": "https://h/"}}"#;
    let report = check_bytes(Path::new("fuzz.json"), file, Some(Program::Local), &|_| None);
    let config = report.expect("it is a good file").config;
    match config.subscribed(bytes) {
        Ok(read) => {
            assert!(read.about.servers > 0, "an answer that counts has a server");
            drop(format!("{:?}{:?}", read.config, read.warnings));
        }
        Err(error) => assert!(!error.is_empty(), "a refused answer has a reason"),
    }
    if let Ok(text) = std::str::from_utf8(bytes)
        && let Ok(url) = subscription_url(text)
    {
        assert_eq!(subscription_url(url.as_str()).as_ref(), Ok(&url));
        if let Ok(next) = redirected(&url, text) {
            assert_eq!(subscription_url(next.as_str()).as_ref(), Ok(&next));
        }
    }
}

/// Arguments, separated by NUL. Files are not opened.
pub fn arguments(text: &str) {
    let args: Vec<OsString> = text.split('\0').map(OsString::from).collect();
    for invoked in PROGRAMS {
        if let Err(error) = flags::parse(invoked, args.iter().cloned()) {
            drop(error.to_string());
        }
    }
}

/// A datagram to a manager; what can be read is served or refused, kept, and read again the same.
pub fn manager_request(bytes: &[u8]) {
    let new = match Request::parse(bytes) {
        Ok(Request::Add(new)) => new,
        Ok(_) => return,
        Err(bad) => {
            drop(bad.to_string());
            for dialect in [Dialect::Libev, Dialect::Rust] {
                drop(Answer::Bad(bad.clone()).reply(dialect));
            }
            return;
        }
    };
    let kept = state_text([&*new]);
    let again = read_back(kept.as_bytes()).expect("what was written can be read");
    assert_eq!(state_text(&again).as_bytes(), kept.as_bytes());
    let arguments = ["--manager-address", "/m"].map(OsString::from);
    let config = Config::from_args("ss-manager", arguments, &|_| None);
    let Ok(Invocation::Run(config)) = config else { panic!("a manager needs no more") };
    if let Ok(port) = config.managed_port(&new) {
        for dialect in [Dialect::Libev, Dialect::Rust] {
            assert_eq!(Reply::list(dialect, [&port]).len(), 1);
        }
    }
}
