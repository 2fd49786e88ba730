//! Ports of the configuration and of requests, as listeners.

use std::path::Path;

use adit_shadowsocks::Method;

use super::{ManagedPort, ManagerAddress, ManagerOptions, NewPort, PortExtras};
use crate::acl::AccessLists;
use crate::config::{Config, Role, ServerListener};
use crate::diagnostic::{At, Findings, Origin};
use crate::plugin::{self, RawPlugin};
use crate::raw::{Raw, RawServer, RawUser};
use crate::secret::{Password, Secret};
use crate::validate::listeners_of;
use crate::value::Complaint;

/// Where everything stands that a request says: nothing is in front of its findings.
const HERE: Origin = Origin::CommandLine;

impl Config {
    /// A configuration whose only listeners are those of `port`.
    pub fn for_port(&self, port: &ManagedPort) -> Self {
        let mut config = self.without_listeners();
        config.role = Role::Server { listeners: port.listeners.clone() };
        let sockets = &mut config.sockets;
        sockets.fast_open = port.fast_open.unwrap_or(sockets.fast_open);
        sockets.no_delay = port.no_delay.unwrap_or(sockets.no_delay);
        config
    }

    /// This configuration of a server or manager without its listeners, which may be many.
    #[must_use]
    pub fn without_listeners(&self) -> Self {
        let manager = self.manager.as_ref().map(|manager| ManagerOptions {
            acl: manager.acl.clone(),
            address: manager.address.clone(),
            state_file: manager.state_file.clone(),
            workdir: manager.workdir.clone(),
            outbound: manager.outbound.clone(),
            ports: Vec::new(),
            template: manager.template.clone(),
        });
        Self {
            invoked: self.invoked,
            role: Role::Server { listeners: Vec::new() },
            sockets: self.sockets.clone(),
            timeout: self.timeout,
            address_order: self.address_order,
            nameservers: self.nameservers.clone(),
            dns_cache_size: self.dns_cache_size,
            user: self.user.clone(),
            nofile: self.nofile,
            pid_file: self.pid_file.clone(),
            daemonize: self.daemonize,
            workers: self.workers,
            log_level: self.log_level,
            log_time: self.log_time,
            replay_policy: self.replay_policy,
            udp: self.udp,
            protection: self.protection,
            balancer: self.balancer,
            // Neither is a server's.
            online: None,
            merged: None,
            secrets_on_argv: self.secrets_on_argv,
            manager,
            report_to: self.report_to.clone(),
            warnings: Vec::new(),
            sources: self.sources.clone(),
        }
    }

    /// The listeners of a port that a request asks for, with what this configuration says of all.
    ///
    /// # Errors
    /// Why it can't be served, in one line without any of its values.
    ///
    /// # Panics
    /// When this is not the configuration of a manager.
    pub fn managed_port(&self, new: &NewPort) -> Result<ManagedPort, String> {
        let manager = self.manager.as_ref().expect("requests come to a manager");
        let extras = &new.extras;
        let of_all = manager.acl.as_ref().map(|acl| &*acl.path);
        if extras.acl.as_deref().is_some_and(|path| Some(Path::new(path)) != of_all) {
            let text = "all ports have the manager's access control list; write --acl when you \
                        start it, or \"acl\" into its file";
            return Err(format!("key \"acl\": {text}"));
        }
        let plugin = plugin(manager, extras)?;
        let wants_plugin = plugin.wanted().is_some();
        let raw = over_template(&manager.template, new, plugin);
        let mut findings = Findings::default();
        let found = listeners_of(
            &raw,
            self.invoked,
            AccessLists::knowing(manager.acl.as_ref()),
            &mut findings,
        );
        if let Some(error) = findings.errors().first() {
            return Err(error.to_string());
        }
        let (entry, listeners) = found.into_iter().next().ok_or("nothing to listen on")?;
        if wants_plugin && listeners.iter().any(|listener| listener.plugin.is_none()) {
            let text = "it has nothing to do: what goes through it is not relayed; write another \
                        \"plugin_mode\" or \"mode\"";
            return Err(format!("key \"plugin\": {text}"));
        }
        let port = ManagedPort::of(new.port, &entry, listeners).ok_or("nothing to listen on")?;
        Ok(ManagedPort { fast_open: new.fast_open, no_delay: new.no_delay, ..port })
    }
}

impl ManagedPort {
    /// A port with what an entry of settings says; `None` without listeners.
    pub(crate) fn of(port: u16, entry: &RawServer, listeners: Vec<ServerListener>) -> Option<Self> {
        Some(Self {
            port,
            method: listeners.first()?.key.method(),
            listeners,
            fast_open: None,
            no_delay: None,
            secret: entry.secret.as_ref().map(|secret| secret.value.clone()),
            users: entry
                .users
                .iter()
                .map(|user| (user.name.clone(), user.password.value.clone()))
                .collect(),
        })
    }

    /// Its method.
    pub const fn method(&self) -> Method {
        self.method
    }
}

/// The settings of a manager without its ports.
pub(crate) fn template(raw: &Raw) -> Raw {
    let hosts = raw.server.hosts.iter().map(|At { value: (host, _), origin }| {
        // A port of its own is that of one listener.
        At::new((host.clone(), None), *origin)
    });
    let server = RawServer {
        hosts: hosts.collect(),
        port: None,
        secret: None,
        users: Vec::new(),
        destinations: Vec::new(),
        name: None,
        id: None,
        ..raw.server.clone()
    };
    Raw { server, port_passwords: Vec::new(), servers: Vec::new(), ..raw.clone() }
}

/// The plugin of a port, where it has one. A program is started on behalf of whoever may start it
/// anyway, as the user whose socket this is, or else it is one that the manager's own user has named:
/// everybody on the host can send to a UDP port.
fn plugin(manager: &ManagerOptions, extras: &PortExtras) -> Result<RawPlugin, String> {
    let key = |name: &'static str| move |e: Complaint| format!("key \"{name}\": {e}");
    let of_all = &manager.template.server.plugin;
    let program = extras.plugin.as_deref().map(plugin::program).transpose();
    let options = extras.plugin_opts.as_ref().map(|text| plugin::options(text.as_str()));
    let given = RawPlugin {
        program: program.map_err(key("plugin"))?.map(|program| At::new(program, HERE)),
        options: options
            .transpose()
            .map_err(key("plugin_opts"))?
            .map(|options| At::new(options, HERE)),
        args: None,
        mode: extras.plugin_mode.map(|mode| At::new(mode, HERE)),
    };
    let is_of_all = |program: &str| of_all.wanted().is_some_and(|own| *own.value == *program);
    if let (ManagerAddress::Internet(_), Some(program)) = (&manager.address, &given.program)
        && !is_of_all(&program.value)
    {
        let text = "requests at a UDP port may name no program but the manager's own; write \
                    \"plugin\" into its file, or take requests at a Unix socket";
        return Err(format!("key \"plugin\": {text}"));
    }
    let without = [("plugin_opts", given.options.is_some()), ("plugin_mode", given.mode.is_some())];
    let plugin = given.over(of_all.clone());
    match without.into_iter().find(|(_, is_given)| *is_given && plugin.wanted().is_none()) {
        Some((name, _)) => {
            Err(format!("key \"{name}\": has no effect without \"plugin\"; write that too"))
        }
        None => Ok(plugin),
    }
}

fn over_template(template: &Raw, new: &NewPort, plugin: RawPlugin) -> Raw {
    let user = |(name, password): &(Box<str>, Password)| RawUser {
        name: name.clone(),
        password: At::new(password.clone(), HERE),
        origin: HERE,
    };
    let mut raw = template.clone();
    raw.server.port = Some(At::new(new.port, HERE));
    raw.server.secret = Some(At::new(Secret::Password(new.password.clone()), HERE));
    raw.server.plugin = plugin;
    raw.server.users = new.users.iter().map(user).collect();
    raw.server.method = new.method.map(|method| At::new(method, HERE)).or(raw.server.method);
    raw.mode = new.mode.map(|mode| At::new(mode, HERE)).or(raw.mode);
    raw
}
