//! The resolver's files, read at start and again when they change.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use adit_observe::log;
use adit_resolver::{Hosts, Settings};

const RESOLV_CONF: &str = "/etc/resolv.conf";
const HOSTS: &str = "/etc/hosts";

/// What identifies a version of a file: its time and length. `None` when it can't be read.
type Stamp = Option<(SystemTime, u64)>;

/// The files as last read.
pub(crate) struct NameFiles {
    nameservers: Option<Vec<SocketAddr>>,
    stamps: [Stamp; 2],
    pub(crate) settings: Arc<Settings>,
    pub(crate) hosts: Arc<Hosts>,
}

impl NameFiles {
    /// Reads both files; one that is missing counts as empty, as libc does.
    pub(crate) fn read(nameservers: Option<&[SocketAddr]>) -> Self {
        let stamps = [stamp(RESOLV_CONF), stamp(HOSTS)];
        let mut settings = Settings::from_resolv_conf(&read(RESOLV_CONF));
        for warning in settings.warnings() {
            log::warn!("{RESOLV_CONF}:{}: {:?}", warning.line, warning.kind);
        }
        if let Some(servers) = nameservers {
            settings = settings.with_nameservers(servers);
        }
        let hosts = Hosts::parse(&read(HOSTS));
        Self {
            nameservers: nameservers.map(<[_]>::to_vec),
            stamps,
            settings: Arc::new(settings),
            hosts: Arc::new(hosts),
        }
    }

    /// Reads the files again if one has changed; says whether it did.
    pub(crate) fn refresh(&mut self) -> bool {
        if self.stamps == [stamp(RESOLV_CONF), stamp(HOSTS)] {
            return false;
        }
        *self = Self::read(self.nameservers.as_deref());
        true
    }
}

/// Follows symbolic links: resolv.conf often is one.
fn stamp(path: &str) -> Stamp {
    let about = std::fs::metadata(Path::new(path)).ok()?;
    Some((about.modified().ok()?, about.len()))
}

fn read(path: &str) -> Vec<u8> {
    match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(e) => {
            log::warn!("{path}: {e}; going on without it");
            Vec::new()
        }
    }
}
