//! Access control lists that a configuration names: read once, shared by all that go by them.

use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use adit_acl::{Acl, FILE_LEN_MAX, GeoDatabase, Side};

use crate::diagnostic::{At, Findings, Origin};
use crate::patient::PatientFile;

/// Largest country database that is read, bytes; those with cities have 60 MiB.
const DATABASE_LEN_MAX: usize = 256 << 20;
/// Mistakes of one list that are reported one by one.
const MISTAKES_SHOWN: usize = 20;

/// An access control list, with where it was read from.
#[derive(Clone)]
pub struct AccessList {
    /// Its file.
    pub path: Arc<Path>,
    /// Its rules.
    pub rules: Arc<Acl>,
}

impl PartialEq for AccessList {
    /// The same reading of the same file.
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.rules, &other.rules)
    }
}

impl Eq for AccessList {}

impl fmt::Debug for AccessList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AccessList({}, {:?})", self.path.display(), self.rules.counts())
    }
}

/// The lists of one configuration as they are read.
#[derive(Default)]
pub(crate) struct AccessLists {
    /// File of the country database, where one is named.
    database: Option<At<PathBuf>>,
    /// Its content, or that it cannot be read, which was said then.
    opened: Option<Option<GeoDatabase>>,
    /// What was read; `None` for a file with mistakes, which were said then.
    read: Vec<(PathBuf, Option<AccessList>)>,
}

impl AccessLists {
    pub(crate) fn new(database: Option<At<PathBuf>>) -> Self {
        Self { database, ..Self::default() }
    }

    /// With a list that was read before.
    pub(crate) fn knowing(list: Option<&AccessList>) -> Self {
        let read = list.map(|list| (list.path.to_path_buf(), Some(list.clone())));
        Self { read: read.into_iter().collect(), ..Self::default() }
    }

    /// The list of a file, if one is named and has no mistake.
    pub(crate) fn get(
        &mut self,
        file: Option<&At<PathBuf>>,
        side: Side,
        findings: &mut Findings,
    ) -> Option<AccessList> {
        let At { value: path, origin } = file?;
        if let Some((_, known)) = self.read.iter().find(|(known, _)| known == path) {
            return known.clone();
        }
        let list = self.read(path, side, *origin, findings);
        self.read.push((path.clone(), list.clone()));
        list
    }

    /// The database is named and no list was read that could use it.
    pub(crate) fn is_idle(&self) -> Option<Origin> {
        self.database.as_ref().filter(|_| self.read.is_empty()).map(|at| at.origin)
    }

    fn read(
        &mut self,
        path: &Path,
        side: Side,
        origin: Origin,
        findings: &mut Findings,
    ) -> Option<AccessList> {
        let text = match read_file(path, FILE_LEN_MAX) {
            Ok(text) => text,
            Err(e) => {
                findings.error(origin, format!("cannot read {}: {e}", path.display()));
                return None;
            }
        };
        let database = self.database(findings);
        if database.is_none() && self.opened.is_some() {
            // Every country of the list would be reported too, with advice that is followed already.
            return None;
        }
        let parsed = Acl::parse(&text, self.opened.as_ref().and_then(Option::as_ref));
        let acl = match parsed {
            Ok(acl) => acl,
            Err(mistakes) => {
                for mistake in mistakes.iter().take(MISTAKES_SHOWN) {
                    findings.error(origin, format!("{}: {mistake}", path.display()));
                }
                if let Some(more) = mistakes.len().checked_sub(MISTAKES_SHOWN).filter(|n| *n > 0) {
                    findings.error(origin, format!("{}: {more} more mistakes", path.display()));
                }
                return None;
            }
        };
        if let Some(remark) = acl.remark(side) {
            findings.warn(origin, format!("{}: {remark}", path.display()));
        }
        Some(AccessList { path: path.into(), rules: Arc::new(acl) })
    }

    /// The country database, opened when the first list is read.
    fn database(&mut self, findings: &mut Findings) -> Option<&GeoDatabase> {
        let Self { database, opened, .. } = self;
        let At { value: path, origin } = database.as_ref()?;
        let open = || country_database(path).map_err(|text| findings.error(*origin, text)).ok();
        opened.get_or_insert_with(open).as_ref()
    }
}

/// Opens a database of countries, a MaxMind DB file.
///
/// # Errors
/// It cannot be read, or is no such file; the text names it.
pub fn country_database(path: &Path) -> Result<GeoDatabase, String> {
    let bytes = read_file(path, DATABASE_LEN_MAX);
    let bytes = bytes.map_err(|e| format!("cannot read {}: {e}", path.display()))?;
    GeoDatabase::from_bytes(bytes).map_err(|e| format!("{}: {e}", path.display()))
}

/// Reads a whole file of at most `limit` bytes.
fn read_file(path: &Path, limit: usize) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    PatientFile::open(path)?.take(limit as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > limit {
        let text = format!("it is longer than {limit} bytes");
        return Err(std::io::Error::new(std::io::ErrorKind::InvalidData, text));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_that_cannot_be_read_is_the_one_mistake() {
        let dir = std::env::temp_dir();
        let name = |end: &str| dir.join(format!("adit-list-{}.{end}", std::process::id()));
        let (list, database) = (name("acl"), name("mmdb"));
        std::fs::write(&list, "[bypass_list]\ngeoip:CN\ngeoip:DE\n").unwrap();
        let origin = Origin::File;
        let at = |value: &Path| At { value: value.to_path_buf(), origin };
        for content in [None, Some("no database")] {
            if let Some(content) = content {
                std::fs::write(&database, content).unwrap();
            }
            let mut lists = AccessLists::new(Some(at(&database)));
            let mut findings = Findings::of_file(Path::new("c.json"));
            assert!(lists.get(Some(&at(&list)), Side::Client, &mut findings).is_none());
            let errors: Vec<String> = findings.errors().iter().map(ToString::to_string).collect();
            assert_eq!(errors.len(), 1, "{errors:?}");
            assert!(errors[0].contains(".mmdb"), "{errors:?}");
        }
        std::fs::remove_file(list).unwrap();
        std::fs::remove_file(database).unwrap();
    }
}
