//! The health of servers across reloads, and the plan of probes.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use adit_config::{Config, Endpoint, RemoteServer};
use adit_engine::health::Health;
use adit_engine::probe::{ProbePlan, ProbeTarget};

use crate::roles;
use crate::subscription::servers;

/// What is known of each server, by its identity. One that moved to another address begins anew.
#[derive(Default)]
pub(crate) struct Healths(RefCell<HashMap<String, (Endpoint, Arc<Health>)>>);

impl Healths {
    /// The health of a server, which every role shares.
    pub(crate) fn of(&self, server: &RemoteServer) -> Arc<Health> {
        let mut known = self.0.borrow_mut();
        let fresh = || (server.endpoint.clone(), Arc::new(Health::new(&called(server))));
        let (endpoint, health) = known.entry(server.identity()).or_insert_with(fresh);
        if *endpoint != server.endpoint || health.name() != called(server) {
            (*endpoint, *health) = fresh();
        }
        Arc::clone(health)
    }

    /// Forgets servers that no configuration has any more.
    pub(crate) fn retain(&self, configs: &[Config]) {
        let named: Vec<String> =
            configs.iter().flat_map(servers).map(RemoteServer::identity).collect();
        self.0.borrow_mut().retain(|identity, _| named.contains(identity));
    }

    /// Gives one line a server, in the order of the configuration, where there is a choice.
    pub(crate) fn report(&self, configs: &[Config], mut each: impl FnMut(&str)) {
        let now = Instant::now();
        for server in configs.iter().filter(|c| servers(c).len() > 1).flat_map(servers) {
            each(&format!("server {}", self.of(server).report(now)));
        }
    }

    /// What is probed: every server that is used for TCP without a plugin, where there is a choice among several.
    pub(crate) fn plan(&self, configs: &[Config]) -> Option<Arc<ProbePlan>> {
        let mut targets: Vec<ProbeTarget> = Vec::new();
        for config in configs {
            let all = servers(config);
            // A plugin's server may answer nobody but its plugin.
            let plain = |s: &&RemoteServer| {
                s.mode.tcp() && !s.plugin.as_ref().is_some_and(|plugin| plugin.mode.tcp())
            };
            for server in all.iter().filter(|_| all.len() > 1).filter(plain) {
                let health = self.of(server);
                if targets.iter().any(|known| Arc::ptr_eq(&known.health, &health)) {
                    continue;
                }
                targets.push(ProbeTarget {
                    host: roles::upstream_host(&server.endpoint.host),
                    port: server.endpoint.port,
                    order: roles::order(config),
                    outbound: roles::outbound(&server.outbound),
                    health,
                });
            }
        }
        let balancer = configs.first()?.balancer;
        (!targets.is_empty()).then(|| {
            Arc::new(ProbePlan {
                targets,
                interval: balancer.check_interval,
                best_interval: balancer.check_best_interval,
                limit: balancer.max_server_rtt,
            })
        })
    }
}

/// What a server is called in logs: its address, and what people call it.
fn called(server: &RemoteServer) -> String {
    match &server.name {
        // A name comes from a provider, and ends up on a terminal.
        Some(name) => format!("{} ({})", server.endpoint, name.escape_debug()),
        None => server.endpoint.to_string(),
    }
}
