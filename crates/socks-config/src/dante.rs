//! Dante's `sockd.conf`, read into the same model, with a verdict on every line.
//!
//! What is understood: listeners and outgoing addresses, methods, both kinds of rules in the present
//! and the old spelling, log targets, timeouts, limits of sessions. What is safe to leave out gets a
//! note; everything else is refused with what to do about it. `clientmethod` never touches the
//! methods of SOCKS: in Dante the two are about different moments, and whoever mixes them up turns
//! `socksmethod: username`, `clientmethod: none` into an open proxy.
//!
//! Differences of the two servers that a reader of the notes should know are in `docs/socks.md`.

mod lex;
mod rules;
mod settings;

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use adit_policy::{Place, Replies};

use crate::draft::Draft;
use crate::files::{Files, SourceList};
use crate::finding::{Finding, Findings, place};
use crate::{Language, Loaded, value};

/// What is made of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// It does here what it does there, unless the note says otherwise.
    Understood,
    /// It is left out, and nobody misses it; the note says why.
    Ignored,
    /// It is not served; the note says what to do.
    Refused,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Understood => "understood",
            Self::Ignored => "safely ignored",
            Self::Refused => "not supported",
        })
    }
}

/// The verdict on one line, or on a part of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// Counted from 1.
    pub line: u32,
    /// The verdict.
    pub verdict: Verdict,
    /// The keyword that it is about.
    pub keyword: String,
    /// What to know or to do; may be empty for what is understood.
    pub remark: String,
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}: {}", self.line, self.keyword, self.verdict)?;
        if !self.remark.is_empty() {
            write!(f, ": {}", self.remark)?;
        }
        Ok(())
    }
}

/// A file of Dante, read.
#[derive(Clone, Debug)]
pub struct Import {
    /// Verdicts in the order of lines.
    pub notes: Vec<Note>,
    /// The configuration, or everything that is in its way.
    pub result: Result<Loaded, Vec<Finding>>,
}

/// Reads a file of Dante and says what becomes of each line.
pub fn import(path: &Path, files: &dyn Files) -> Import {
    let mut findings = Findings::default();
    let mut draft = Draft::default();
    let (notes, sources) = read_file(path, files, &mut draft, &mut findings);
    let config = draft.finish(Language::Dante, &mut findings);
    let (errors, warnings) = findings.into_parts();
    let result = config.map(|config| Loaded { config, sources, warnings }).ok_or(errors);
    Import { notes, result }
}

pub(crate) fn load(
    path: &Path,
    files: &dyn Files,
    draft: &mut Draft,
    findings: &mut Findings,
) -> SourceList {
    read_file(path, files, draft, findings).1
}

fn read_file(
    path: &Path,
    files: &dyn Files,
    draft: &mut Draft,
    findings: &mut Findings,
) -> (Vec<Note>, SourceList) {
    let name = path.display().to_string();
    let read = files.canonical(path).and_then(|canonical| Ok((files.read(path)?, canonical)));
    let (bytes, canonical) = match read {
        Ok(read) => read,
        Err(error) => {
            findings.error(None, format_args!("{name}: {error}"));
            return (Vec::new(), SourceList::default());
        }
    };
    let sources = SourceList {
        declared: vec![name.clone()],
        canonical: vec![canonical.display().to_string()],
        ..SourceList::default()
    };
    let Ok(text) = String::from_utf8(bytes) else {
        findings.error(None, format_args!("{name}: not UTF-8 text; save it as UTF-8"));
        return (Vec::new(), sources);
    };
    let mut reader = Reader::new(&name, draft, findings);
    reader.read(&text);
    let mut notes = reader.notes;
    notes.sort_by_key(|note| note.line);
    (notes, sources)
}

/// A file while it is read.
struct Reader<'a> {
    file: Arc<str>,
    draft: &'a mut Draft,
    findings: &'a mut Findings,
    notes: Vec<Note>,
    /// What `internal.protocol` said last.
    internal_families: crate::config::Families,
    has_method: bool,
}

impl<'a> Reader<'a> {
    fn new(name: &str, draft: &'a mut Draft, findings: &'a mut Findings) -> Self {
        draft.replies = Replies::Judged;
        // Dante's defaults, where they differ.
        draft.handshake_timeout = Some(30);
        draft.udp_timeout = Some(0);
        Self {
            file: Arc::from(name),
            draft,
            findings,
            notes: Vec::new(),
            internal_families: crate::config::Families::BOTH,
            has_method: false,
        }
    }

    fn read(&mut self, text: &str) {
        for item in lex::items(text) {
            match item {
                lex::Item::Setting { keyword, values, line } => {
                    self.setting(&keyword, &values, line)
                }
                lex::Item::Block { head, body, line } => self.block(&head, &body, line),
                lex::Item::Broken { line, message } => {
                    let at = self.place(line);
                    self.findings.error(Some(&at), message);
                }
            }
        }
        if !self.has_method {
            self.findings.error(
                None,
                "no \"socksmethod\", so no client could log in; write socksmethod: username, or \
                 socksmethod: none for everybody whom the rules let in",
            );
        }
    }

    fn place(&self, line: u32) -> Place {
        place(&self.file, line)
    }

    fn note(&mut self, line: u32, verdict: Verdict, keyword: &str, remark: impl Into<String>) {
        let remark = remark.into();
        if verdict == Verdict::Refused {
            let at = self.place(line);
            self.findings.error(Some(&at), format_args!("{keyword}: {remark}"));
        }
        let keyword = value::shown(keyword);
        self.notes.push(Note { line, verdict, keyword, remark });
    }

    /// Notes a result: understood with a remark, or refused.
    fn noted(&mut self, line: u32, keyword: &str, result: Result<&str, String>) {
        match result {
            Ok(remark) => self.note(line, Verdict::Understood, keyword, remark),
            Err(message) => self.note(line, Verdict::Refused, keyword, message),
        }
    }
}
