//! What the rules say about names: one worker's view of an [`Acl`].

use adit_wire::Host;

use crate::acl::{Acl, Admission, Decision, LISTS, List, Route};
use crate::expressions::Searchers;
use crate::name::{NAME_LEN_MAX, Spelled, spell};

/// Memory in which one worker searches with the expressions of one [`Acl`].
///
/// It does not keep the rules alive, so that a worker may hold on to it for as long as anybody goes
/// by them.
#[derive(Debug)]
pub struct Memory([Searchers; LISTS]);

/// Judges names by the rules of an [`Acl`], in the memory of one worker.
#[derive(Debug)]
pub struct Judge<'a> {
    acl: &'a Acl,
    // Not `&`: two threads in one memory would have to make more of it, or wait.
    memory: &'a mut Memory,
}

impl Acl {
    /// Memory to judge names in. Making it takes some microseconds for each expression and
    /// allocates; judging does neither.
    pub fn memory(&self) -> Memory {
        Memory(std::array::from_fn(|list| self.lists[list].expressions.searchers()))
    }

    /// A judge of names, in `memory` that these rules made.
    pub const fn judge<'a>(&'a self, memory: &'a mut Memory) -> Judge<'a> {
        Judge { acl: self, memory }
    }
}

impl Judge<'_> {
    /// Where a client sends what is meant for `host`.
    pub fn route(&mut self, host: Host<'_>) -> Decision<Route> {
        match host {
            Host::Ip(addr) => Decision::Known(self.acl.route_addr(addr)),
            Host::Name(name) => self.route_name(name),
        }
    }

    /// Where a client sends what is meant for `name`. After [`Decision::NeedsAddresses`] ask
    /// [`Acl::route_addrs`].
    pub fn route_name(&mut self, name: &str) -> Decision<Route> {
        let mut buffer = [0; NAME_LEN_MAX];
        let winner = match spell(name, &mut buffer) {
            Spelled::Addr(addr) => return Decision::Known(self.acl.route_addr(addr)),
            Spelled::Name(name) => self.first_match(name, [List::Proxy, List::Bypass]),
            Spelled::Other => None,
        };
        let deciding = match self.acl.route {
            Route::Proxied => List::Bypass,
            Route::Direct => List::Proxy,
        };
        match winner {
            Some(List::Proxy) => Decision::Known(Route::Proxied),
            Some(_) => Decision::Known(Route::Direct),
            None if self.acl.list(deciding).addrs.is_empty() => Decision::Known(self.acl.route),
            None => Decision::NeedsAddresses,
        }
    }

    /// Whether a server connects, or sends datagrams, to `host`.
    pub fn admit(&mut self, host: Host<'_>) -> Decision<Admission> {
        match host {
            Host::Ip(addr) => Decision::Known(self.acl.admit_addr(addr)),
            Host::Name(name) => self.admit_name(name),
        }
    }

    /// Whether a server connects, or sends datagrams, to `name`. After
    /// [`Decision::NeedsAddresses`] ask [`Acl::admitted`] which addresses may be used.
    ///
    /// A rule that names a host is final: addresses are not judged after it. Whoever admits a
    /// domain by name trusts whoever runs it to keep it away from private addresses.
    pub fn admit_name(&mut self, name: &str) -> Decision<Admission> {
        let mut buffer = [0; NAME_LEN_MAX];
        let winner = match spell(name, &mut buffer) {
            Spelled::Addr(addr) => return Decision::Known(self.acl.admit_addr(addr)),
            Spelled::Name(name) => self.first_match(name, [List::Block, List::Allow]),
            Spelled::Other => None,
        };
        let deciding = match self.acl.outbound {
            Admission::Admitted => List::Block,
            Admission::Refused => List::Allow,
        };
        match winner {
            Some(List::Allow) => Decision::Known(Admission::Admitted),
            Some(_) => Decision::Known(Admission::Refused),
            None if self.acl.list(deciding).addrs.is_empty() => Decision::Known(self.acl.outbound),
            None => Decision::NeedsAddresses,
        }
    }

    /// The list that decides about `name`: by the most specific domain rule, else by expressions.
    /// The first of `lists` wins between equals.
    fn first_match(&self, name: &str, lists: [List; 2]) -> Option<List> {
        let found = self.acl.domains.find(name, &lists);
        lists.into_iter().find(|&list| found.has(list)).or_else(|| {
            lists.into_iter().find(|&list| {
                let expressions = &self.acl.lists[list as usize].expressions;
                expressions.is_match(&self.memory.0[list as usize], name)
            })
        })
    }
}
