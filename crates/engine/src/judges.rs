//! Access control lists of one worker: memory for each, made when a listener comes that goes by it.
//!
//! There are as many lists as a configuration names, so they are looked for one by one. A list lives
//! for as long as a role goes by it, of a listener or of a flow that began with it; its memory is let
//! go after that, when the next listener comes.

use std::sync::{Arc, Weak};

use adit_acl::{Acl, Admission, Decision, Judge, Memory, Route};
use adit_wire::Host;

/// Memory for the lists of one worker.
#[derive(Default)]
pub(crate) struct Judges(Vec<(Weak<Acl>, Memory)>);

impl Judges {
    /// Makes ready for a list. Allocates.
    pub(crate) fn prepare(&mut self, acl: Option<&Arc<Acl>>) {
        self.0.retain(|(acl, _)| acl.strong_count() > 0);
        if let Some(acl) = acl
            && !self.0.iter().any(|(known, _)| is(known, acl))
        {
            self.0.push((Arc::downgrade(acl), acl.memory()));
        }
    }

    fn of<'a>(&'a mut self, acl: &'a Arc<Acl>) -> Judge<'a> {
        let found = self.0.iter_mut().find(|(known, _)| is(known, acl));
        let (_, memory) = found.expect("its listener came with it");
        acl.judge(memory)
    }

    /// Where a client sends what is meant for `host`.
    pub(crate) fn route(&mut self, acl: &Arc<Acl>, host: Host<'_>) -> Decision<Route> {
        self.of(acl).route(host)
    }

    /// Whether a server connects to `host`.
    pub(crate) fn admit(&mut self, acl: &Arc<Acl>, host: Host<'_>) -> Decision<Admission> {
        self.of(acl).admit(host)
    }
}

/// No other list gets the address of one that is let go while a `Weak` of it is here.
fn is(known: &Weak<Acl>, acl: &Arc<Acl>) -> bool {
    std::ptr::eq(known.as_ptr(), Arc::as_ptr(acl))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_worker_keeps_a_list_that_nobody_goes_by() {
        let list = |text: &str| Arc::new(Acl::parse(text.as_bytes(), None).expect("a list"));
        let mut workers = [Judges::default(), Judges::default()];
        let mut current = list("[bypass_all]\n[proxy_list]\n||a0.example\n");
        for i in 1..=5 {
            for judges in &mut workers {
                judges.prepare(Some(&current));
                judges.prepare(Some(&current));
                assert_eq!(judges.0.len(), 1, "one memory for one list");
                let name = format!("a{}.example", i - 1);
                let host = Host::Name(&name);
                assert_eq!(judges.route(&current, host), Decision::Known(Route::Proxied));
            }
            let gone = Arc::downgrade(&current);
            current = list(&format!("[bypass_all]\n[proxy_list]\n||a{i}.example\n"));
            assert_eq!(gone.strong_count(), 0, "its rules are freed with its last role");
        }
    }
}
