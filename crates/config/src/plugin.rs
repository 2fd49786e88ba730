//! Plugins (SIP003): the programs that carry a server's traffic in another guise.
//!
//! A plugin belongs to a server: to the one at the top, to an entry of `servers`, or to a link. What
//! is written beside its name (options, arguments, mode) belongs to that name: an entry that names
//! another plugin than the top level takes none of it over. An empty name means "no plugin", also
//! where the level below has one.

use std::fmt;

use crate::config::Mode;
use crate::diagnostic::{At, Origin};
use crate::raw::RawServer;
use crate::secret::Password;
use crate::validate::Check;
use crate::value::Complaint;

/// A plugin of a server (SIP003), as it is to be started.
#[derive(Clone, PartialEq, Eq)]
pub struct Plugin {
    /// Name of the program, looked for in `PATH`, or a path with a `/`. Not empty.
    pub program: Box<str>,
    /// What it gets as `SS_PLUGIN_OPTIONS`; may hold secrets.
    pub options: Option<Password>,
    /// Arguments of its command line, which everybody on the system can read.
    pub args: Vec<Box<str>>,
    /// What it carries; the rest goes between client and server directly.
    pub mode: Mode,
}

/// A plugin as given.
#[derive(Clone, Default)]
pub(crate) struct RawPlugin {
    /// Its name; empty for none.
    pub(crate) program: Option<At<Box<str>>>,
    pub(crate) options: Option<At<Password>>,
    pub(crate) args: Option<At<Vec<Box<str>>>>,
    pub(crate) mode: Option<At<Mode>>,
}

impl Plugin {
    /// Its name without directories, for messages.
    pub fn name(&self) -> &str {
        file_name(&self.program)
    }
}

// Neither options nor arguments, which may hold a password.
impl fmt::Debug for Plugin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Plugin({} {})", self.program, self.mode.as_str())
    }
}

impl fmt::Debug for RawPlugin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RawPlugin({:?})", self.program.as_ref().map(|program| &program.value))
    }
}

impl RawPlugin {
    /// Lays this one over `base`.
    pub(crate) fn over(self, base: Self) -> Self {
        let another = match (&self.program, &base.program) {
            (Some(own), Some(other)) => own.value != other.value,
            _ => false,
        };
        if another {
            return self;
        }
        Self {
            program: self.program.or(base.program),
            options: self.options.or(base.options),
            args: self.args.or(base.args),
            mode: self.mode.or(base.mode),
        }
    }

    /// The plugin that is asked for, if one is.
    pub(crate) fn wanted(&self) -> Option<&At<Box<str>>> {
        self.program.as_ref().filter(|program| !program.value.is_empty())
    }
}

/// Reads the name of a plugin; empty means none.
pub(crate) fn program(text: &str) -> Result<Box<str>, Complaint> {
    if file_name(text).starts_with("obfsproxy") {
        return Err("obfsproxy is started in a way of its own, which is not supported; write a \
                    SIP003 plugin such as obfs-local and obfs-server"
            .into());
    }
    if text.contains('\0') || text.ends_with('/') {
        return Err("write the name of a program, such as obfs-local".into());
    }
    if !text.contains('/') && text.contains([' ', ';']) {
        return Err("write the plugin's name alone; what it is to do goes into \"plugin_opts\" \
                    (--plugin-opts)"
            .into());
    }
    Ok(text.into())
}

/// Reads the options of a plugin.
pub(crate) fn options(text: &str) -> Result<Password, Complaint> {
    if text.contains('\0') {
        return Err("a NUL character is not possible here; remove it".into());
    }
    Ok(Password::new(text))
}

fn file_name(program: &str) -> &str {
    program.rsplit('/').next().unwrap_or(program)
}

impl Check<'_> {
    /// The plugin of a server that relays `mode`.
    pub(crate) fn plugin(&mut self, entry: &RawServer, mode: Mode) -> Option<Plugin> {
        let raw = &entry.plugin;
        let Some(At { value: program, origin }) = raw.wanted() else {
            let options = raw.options.as_ref().map(|at| at.origin);
            let args = raw.args.as_ref().map(|at| at.origin);
            for origin in [options, args, raw.mode.as_ref().map(|at| at.origin)] {
                let Some(origin) = origin else { continue };
                self.findings.warn_once(origin, "has no effect without \"plugin\"; remove it");
            }
            return None;
        };
        let carries = raw.mode.as_ref().map_or(Mode::TcpOnly, |mode| mode.value);
        if carries.and(mode).is_none() {
            let text = format!(
                "has nothing to do: \"plugin_mode\" is {} and {} is relayed; it is not started",
                carries.as_str(),
                mode.as_str()
            );
            self.findings.warn_once(*origin, text);
            return None;
        }
        let options = raw.options.as_ref().map(|options| options.value.clone());
        Some(Plugin {
            program: program.clone(),
            options: options.filter(|options| !options.as_str().is_empty()),
            args: raw.args.as_ref().map(|args| args.value.clone()).unwrap_or_default(),
            mode: carries,
        })
    }

    /// Warns that options of outgoing sockets are not the plugin's.
    pub(crate) fn plugin_goes_its_own_way(&mut self, entry: &RawServer) {
        let outbound = &entry.outbound;
        let has_any =
            outbound.fwmark.is_some() || outbound.interface.is_some() || !outbound.bind.is_empty();
        if let Some(At { origin, .. }) = entry.plugin.wanted().filter(|_| has_any) {
            let text = "the plugin connects by itself: source address, interface and firewall \
                        mark have no effect on what it carries";
            self.findings.warn_once(*origin, text);
        }
    }

    /// Warns that limits of one client do not see the clients behind a plugin.
    pub(crate) fn plugin_hides_clients(&mut self, entry: &RawServer, limited: [Option<u32>; 2]) {
        let Some(At { origin, .. }) = entry.plugin.wanted() else { return };
        let carries = entry.plugin.mode.as_ref().map_or(Mode::TcpOnly, |mode| mode.value);
        let names = ["max_connections_per_client", "max_sessions_per_client"];
        let seen = [carries.tcp(), carries.udp()];
        for ((name, limit), hidden) in names.into_iter().zip(limited).zip(seen) {
            if hidden && limit.is_some_and(|limit| limit > 0) {
                let text = format!(
                    "all clients behind a plugin come from one address; \"{name}\" does not \
                     count what it carries"
                );
                self.findings.warn_once(*origin, text);
            }
        }
    }

    /// Where a link could not say what is written about a plugin.
    pub(crate) fn plugin_beyond_links(&self, entry: &RawServer) -> Option<(Origin, &'static str)> {
        let RawPlugin { args, mode, .. } = &entry.plugin;
        let program = entry.plugin.wanted()?;
        if !self.invoked.program.is_client() {
            let text = "a link names the client's plugin, which a server's file does not tell; \
                        make the link from a client's file";
            return Some((program.origin, text));
        }
        if let Some(args) = args.as_ref().filter(|args| !args.value.is_empty()) {
            return Some((args.origin, "a link has no place for arguments of a plugin"));
        }
        let mode = mode.as_ref().filter(|mode| mode.value != Mode::TcpOnly)?;
        Some((mode.origin, "a plugin of a link carries TCP only"))
    }
}

#[cfg(test)]
mod tests;
