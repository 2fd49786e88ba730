//! Links for the servers of a configuration, for other devices.

use crate::acl::AccessLists;
use crate::diagnostic::{Findings, Origin};
use crate::endpoint::Host;
use crate::link::{Link, LinkPlugin};
use crate::program::Invoked;
use crate::raw::Raw;
use crate::secret::{Password, Secret};

use super::Check;

/// One link for each server, and for each user of a shared port. `host` replaces every host; it
/// is needed where a server listens on every address.
pub(crate) fn links(
    raw: &Raw,
    invoked: Invoked,
    host: Option<&Host>,
    findings: &mut Findings,
) -> Vec<Link> {
    let mut check = Check { invoked, origin: Origin::File, findings, acls: AccessLists::default() };
    let mut links = Vec::new();
    for entry in check.entries(raw) {
        let Some((method, secret)) = check.secret(&entry) else { continue };
        if let Some(origin) = entry.destinations.first().and_then(|hop| hop.origin) {
            let text = "a link through a relay ends in the last server's key, which is not here";
            check.findings.error(origin, text);
            continue;
        }
        if let Some((origin, text)) = check.plugin_beyond_links(&entry) {
            check.findings.error(origin, text);
            continue;
        }
        let plugin = entry.plugin.wanted().map(|program| LinkPlugin {
            name: program.value.to_string(),
            options: entry.plugin.options.as_ref().map(|at| at.value.as_str().to_owned()),
        });
        let password = match secret.as_ref().map(|s| (&s.value, s.origin)) {
            None => Password::new(""),
            Some((Secret::Password(password), _)) => password.clone(),
            Some((Secret::Key(_), origin)) => {
                check.findings.error(origin, "a link holds a password; a raw key has no link form");
                continue;
            }
        };
        for bind in &entry.hosts {
            let Some(mut endpoint) = check.endpoint(&entry, bind) else { continue };
            if let Some(host) = host {
                endpoint.host = host.clone();
            } else if endpoint.host.ip().is_some_and(|ip| ip.is_unspecified()) {
                let text = "listens on every address; say with --host how others reach it";
                check.findings.error(bind.origin, text);
                continue;
            }
            let mut link = Link {
                method: method.name().to_owned(),
                password: password.clone(),
                endpoint,
                plugin: plugin.clone(),
                tag: entry.name.as_deref().map(ToOwned::to_owned),
            };
            if entry.users.is_empty() {
                links.push(link);
                continue;
            }
            for user in &entry.users {
                let joined = format!("{}:{}", password.as_str(), user.password.value.as_str());
                link.password = Password::new(joined);
                link.tag = Some(user.name.to_string());
                links.push(link.clone());
            }
        }
    }
    links
}
