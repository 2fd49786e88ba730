//! `adit socks`: so far what concerns the configuration of the SOCKS server, without the server.

use std::ffi::OsString;
use std::fmt::{Display, Write};
use std::path::Path;
use std::process::ExitCode;

use adit_config::country_database;
use adit_socks_config::{
    Compiled, Disk, Environment, Finding, Language, Loaded, Verdict, check_json, import, load,
    metadata_json,
};

use crate::Failure::Usage;
use crate::{Outcome, output, print};

const HELP: &str = "\
Usage: adit socks --check [--json] FILE
       adit socks import-dante FILE
       adit socks config metadata --json

  --check              check a configuration, in our language or, by the name sockd.conf or
                       danted.conf, in Dante's
  import-dante         say of each line of Dante's configuration whether it is understood,
                       can be left out, or is not served and what to do about it
  config metadata      list the settings and what a reload does with each

The server is not in this version. docs/socks.md is its configuration.
Exit status: 0 when the file can be used, 1 when not, 2 for a wrong command line.
";

pub(crate) fn run(args: Vec<OsString>) -> Outcome {
    let mut parser = lexopt::Parser::from_args(args);
    let (mut check, mut json) = (false, false);
    let mut words: Vec<OsString> = Vec::new();
    while let Some(arg) = parser.next()? {
        match arg {
            lexopt::Arg::Long("help") | lexopt::Arg::Short('h') => return print(HELP),
            lexopt::Arg::Long("check") => check = true,
            lexopt::Arg::Long("json") => json = true,
            lexopt::Arg::Value(word) if words.len() < 2 => words.push(word),
            other => return Err(other.unexpected().into()),
        }
    }
    match (check, json, &words[..]) {
        (true, _, [file]) => check_file(Path::new(file), json),
        (true, _, _) => Err(Usage("--check takes one file".to_owned())),
        (false, false, [word, file]) if word == "import-dante" => import_dante(Path::new(file)),
        (false, true, [word, what]) if word == "config" && what == "metadata" => {
            print(&(metadata_json() + "\n"))
        }
        _ => Err(Usage(
            "write --check FILE, import-dante FILE or config metadata --json; the server itself is \
             not in this version"
                .to_owned(),
        )),
    }
}

fn check_file(file: &Path, json: bool) -> Outcome {
    let checked = load(file, Language::of_path(file), &Disk).and_then(|mut loaded| {
        let compiled = compile(&loaded)?;
        loaded.warnings.extend(compiled.warnings);
        Ok(loaded)
    });
    if json {
        output::print(&(check_json(&file.display().to_string(), &checked) + "\n"))?;
        return Ok(status(checked.is_ok()));
    }
    match checked {
        Ok(loaded) => {
            let text = lines(loaded.warnings.iter().map(|w| format!("warning: {w}")));
            print(&format!("{text}{}: ok\n", file.display()))
        }
        Err(findings) => {
            output::complain(&lines(&findings));
            Ok(status(false))
        }
    }
}

fn import_dante(file: &Path) -> Outcome {
    let imported = import(file, &Disk);
    output::print(&lines(&imported.notes))?;
    let refused = imported.notes.iter().filter(|note| note.verdict == Verdict::Refused).count();
    let outcome = imported.result.and_then(|loaded| {
        let compiled = compile(&loaded)?;
        Ok([loaded.warnings, compiled.warnings].concat())
    });
    match outcome {
        Ok(warnings) => {
            let text = lines(warnings.iter().map(|w| format!("warning: {w}")));
            print(&format!("{text}{}: ok\n", file.display()))
        }
        // What the verdicts have said already need not be said again.
        Err(_) if refused > 0 => {
            output::complain(&format!(
                "{}: cannot be used as it is: {refused} not supported\n",
                file.display()
            ));
            Ok(status(false))
        }
        Err(findings) => {
            output::complain(&lines(&findings));
            Ok(status(false))
        }
    }
}

/// Compiles the rules, as far as that goes without knowing the interfaces of the server.
fn compile(loaded: &Loaded) -> Result<Compiled, Vec<Finding>> {
    let database = loaded.config.geoip_database.as_ref();
    let opened = database.filter(|_| loaded.config.names_countries()).map(|path| {
        country_database(Path::new(path)).map_err(|message| {
            vec![Finding { place: None, message: format!("geoip.database: {message}") }]
        })
    });
    let countries = opened.transpose()?;
    let interface = &|_: &str| None;
    loaded.config.policy(&Environment { interface, countries: countries.as_ref() })
}

fn status(is_ok: bool) -> ExitCode {
    if is_ok { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn lines(items: impl IntoIterator<Item = impl Display>) -> String {
    let mut text = String::new();
    for item in items {
        let _infallible = writeln!(text, "{item}");
    }
    text
}
