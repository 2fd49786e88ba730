//! Bodies of the fuzz targets: whatever the input, no panic, and no secret in what is said.

use std::ffi::OsString;
use std::path::Path;

use crate::check::check_bytes;
use crate::flags;
use crate::json;
use crate::link::Link;
use crate::program::{PROGRAMS, Program};

/// A configuration file, read as each program reads it.
pub fn config_file(bytes: &[u8]) {
    let _any = json::parse(bytes);
    let programs = [Program::Local, Program::Server, Program::Tunnel, Program::Manager];
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

/// Arguments, separated by NUL. Files are not opened.
pub fn arguments(text: &str) {
    let args: Vec<OsString> = text.split('\0').map(OsString::from).collect();
    for invoked in PROGRAMS {
        if let Err(error) = flags::parse(invoked, args.iter().cloned()) {
            drop(error.to_string());
        }
    }
}
