//! Files of a configuration, and `include` in them.
//!
//! A file is cut at its includes, so that what is included stands where the directive was. Every
//! piece keeps its file's name and its place in it.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use adit_policy::Place;

use crate::finding::{Findings, place};
use crate::lex;
use crate::value::{self, Read, shown};

/// Bytes of a file; the largest public configurations have some hundred lines.
pub const FILE_LEN_MAX: u64 = 4 << 20;
/// Files of one configuration, each counted as often as it is included.
const FILES_MAX: usize = 1000;
/// Files in files.
const DEPTH_MAX: usize = 16;

/// Where files come from: the disk, or a test.
pub trait Files: fmt::Debug {
    /// The contents of a regular file of at most [`FILE_LEN_MAX`] bytes.
    ///
    /// # Errors
    /// Those of reading it.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;

    /// The one name of a file that exists.
    ///
    /// # Errors
    /// Those of finding it.
    fn canonical(&self, path: &Path) -> io::Result<PathBuf>;

    /// Names of the regular files in a directory.
    ///
    /// # Errors
    /// Those of reading it.
    fn list(&self, directory: &Path) -> io::Result<Vec<String>>;
}

/// The files of the disk.
#[derive(Clone, Copy, Debug)]
pub struct Disk;

impl Files for Disk {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        use std::io::Read;
        let file = std::fs::File::open(path)?;
        if !file.metadata()?.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
        }
        let mut bytes = Vec::new();
        file.take(FILE_LEN_MAX + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > FILE_LEN_MAX {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "longer than 4 MiB"));
        }
        Ok(bytes)
    }

    fn canonical(&self, path: &Path) -> io::Result<PathBuf> {
        std::fs::canonicalize(path)
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(directory)? {
            let entry = entry?;
            let is_file = std::fs::metadata(entry.path()).is_ok_and(|metadata| metadata.is_file());
            if let (true, Ok(name)) = (is_file, entry.file_name().into_string()) {
                names.push(name);
            }
        }
        Ok(names)
    }
}

/// A piece of a file without includes.
#[derive(Debug)]
pub(crate) struct Source {
    /// The file, as messages call it.
    pub(crate) name: Arc<str>,
    /// Lines of the file before this piece.
    pub(crate) first_line: u32,
    pub(crate) text: String,
}

/// Every file and pattern of a configuration, for programs that watch them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceList {
    /// Files as they were reached, each once.
    pub declared: Vec<String>,
    /// The same, by their canonical names.
    pub canonical: Vec<String>,
    /// Patterns of includes with `*` or `?`, below the directory of their file as it was reached.
    pub declared_patterns: Vec<String>,
    /// The same, below the canonical directory.
    pub canonical_patterns: Vec<String>,
}

/// Reads a file with all that it includes.
pub(crate) fn load(
    path: &Path,
    files: &dyn Files,
    findings: &mut Findings,
) -> (Vec<Source>, SourceList) {
    let mut loader = Loader {
        files,
        findings,
        sources: Vec::new(),
        list: SourceList::default(),
        stack: Vec::new(),
        count: 0,
    };
    let name = path.display().to_string();
    if let Err(message) = loader.file(path, &name) {
        loader.findings.error(None, format_args!("{name}: {message}"));
    }
    (loader.sources, loader.list)
}

struct Loader<'a> {
    files: &'a dyn Files,
    findings: &'a mut Findings,
    sources: Vec<Source>,
    list: SourceList,
    /// Canonical names of the files that are being read.
    stack: Vec<PathBuf>,
    count: usize,
}

impl Loader<'_> {
    fn file(&mut self, path: &Path, declared: &str) -> Read<()> {
        let canonical = self.files.canonical(path).map_err(|error| error.to_string())?;
        if self.stack.contains(&canonical) {
            return Err("include cycle: this file is being read already".into());
        }
        self.count += 1;
        if self.stack.len() >= DEPTH_MAX || self.count > FILES_MAX {
            return Err("too many files in files: 16 deep and 1000 in all are read".into());
        }
        let bytes = self.files.read(&canonical).map_err(|error| error.to_string())?;
        let text = String::from_utf8(bytes).map_err(|_| "not UTF-8 text; save it as UTF-8")?;
        let shown_canonical = canonical.display().to_string();
        if !self.list.canonical.contains(&shown_canonical) {
            self.list.declared.push(declared.to_owned());
            self.list.canonical.push(shown_canonical);
        }
        self.stack.push(canonical);
        self.pieces(&text, &Arc::from(declared));
        self.stack.pop();
        Ok(())
    }

    fn pieces(&mut self, text: &str, name: &Arc<str>) {
        let mut piece = String::new();
        let mut first_line = 0;
        let mut in_block = Braces::default();
        for ((number, line), whole) in lex::lines(text).zip(text.split('\n')) {
            let values = if in_block.is_open() { None } else { include(line) };
            in_block.see(line);
            let Some(values) = values else {
                piece.push_str(whole);
                piece.push('\n');
                continue;
            };
            let text = std::mem::take(&mut piece);
            self.sources.push(Source { name: Arc::clone(name), first_line, text });
            first_line = number;
            let at = place(name, number);
            if let Err(message) = self.include(&values, &at) {
                self.findings.error(Some(&at), format_args!("include: {message}"));
            }
        }
        self.sources.push(Source { name: Arc::clone(name), first_line, text: piece });
    }

    fn include(&mut self, values: &[&str], at: &Place) -> Read<()> {
        let written = value::path(values)?;
        let canonical_dir = self.stack.last().and_then(|file| file.parent()).map(Path::to_path_buf);
        let canonical_path = canonical_dir.unwrap_or_default().join(&written);
        let declared_dir = Path::new(&*at.file).parent().unwrap_or_else(|| Path::new(""));
        let declared_path = declared_dir.join(&written);
        let is_pattern = |text: &str| text.contains(['*', '?']);
        let last =
            declared_path.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
        let above = Path::new(&written).parent().map(|parent| parent.display().to_string());
        if above.as_deref().is_some_and(is_pattern) {
            return Err("* and ? go into the last part of a path only".into());
        }
        if !is_pattern(&last) {
            let declared = declared_path.display().to_string();
            return self
                .file(&canonical_path, &declared)
                .map_err(|message| format!("{}: {message}", shown(&declared)));
        }
        let push = |list: &mut Vec<String>, path: &Path| {
            let text = path.display().to_string();
            if !list.contains(&text) {
                list.push(text);
            }
        };
        push(&mut self.list.declared_patterns, &declared_path);
        push(&mut self.list.canonical_patterns, &canonical_path);
        let directory = canonical_path.parent().unwrap_or_else(|| Path::new("")).to_path_buf();
        let mut names = self.files.list(&directory).map_err(|error| error.to_string())?;
        names.retain(|name| matches(&last, name));
        names.sort_unstable();
        if names.is_empty() {
            return Err(format!("no file matches {}", shown(&declared_path.display().to_string())));
        }
        for name in names {
            let declared = declared_path.with_file_name(&name).display().to_string();
            self.file(&directory.join(&name), &declared)
                .map_err(|message| format!("{}: {message}", shown(&declared)))?;
        }
        Ok(())
    }
}

/// The values of an include line.
fn include(line: &str) -> Option<Vec<&str>> {
    let mut words = line.split_whitespace();
    let keyword = words.next()?.trim_end_matches(':');
    keyword.eq_ignore_ascii_case("include").then(|| words.collect())
}

/// Whether a line is inside a rule. A rule has no braces inside, and starts with its keyword.
#[derive(Default)]
struct Braces {
    /// The rule's head was seen; true once its brace was.
    rule: Option<bool>,
}

impl Braces {
    const fn is_open(&self) -> bool {
        self.rule.is_some()
    }

    fn see(&mut self, line: &str) {
        let first = line.split_whitespace().next().unwrap_or_default();
        let starts = |word: &str| first.eq_ignore_ascii_case(word);
        let second = line.split_whitespace().nth(1).unwrap_or_default();
        let verdict = second.split('{').next().unwrap_or_default();
        let is_verdict =
            verdict.eq_ignore_ascii_case("pass") || verdict.eq_ignore_ascii_case("block");
        if self.rule.is_none() && (starts("client") || starts("socks")) && is_verdict {
            self.rule = Some(false);
        }
        for brace in line.chars() {
            match brace {
                '{' if self.rule.is_some() => self.rule = Some(true),
                '}' => self.rule = None,
                _ => {}
            }
        }
    }
}

/// Whether a pattern with `*` and `?` matches a name.
fn matches(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) =
        (pattern.chars().collect(), name.chars().collect());
    // As with a shell, a star does not match a file that starts with a dot.
    if name.first() == Some(&'.') && pattern.first() != Some(&'.') {
        return false;
    }
    let (mut p, mut n, mut star) = (0, 0, None);
    while n < name.len() {
        match pattern.get(p) {
            Some('*') => {
                star = Some((p, n));
                p += 1;
            }
            Some(&c) if c == '?' || c == name[n] => {
                p += 1;
                n += 1;
            }
            _ => match star {
                Some((at, taken)) => {
                    star = Some((at, taken + 1));
                    p = at + 1;
                    n = taken + 1;
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|&c| c == '*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_names() {
        for (pattern, name, is) in [
            ("*.conf", "a.conf", true),
            ("*.conf", ".conf", false),
            ("*.conf", "a.conf.bak", false),
            ("?-*.c", "1-abc.c", true),
            ("a*b*c", "aXbYbZc", true),
            ("a*b*c", "aXbYbZ", false),
            ("*", "x", true),
            ("?", "", false),
        ] {
            assert_eq!(matches(pattern, name), is, "{pattern} {name}");
        }
    }
}
