//! Access control lists of one worker: a judge for each, made when a listener comes that goes by it.
//!
//! There are as many lists as a configuration names, so they are looked for one by one. A judge
//! stays while any role, or any flow of an earlier one, still goes by its list.

use std::sync::Arc;

use adit_acl::{Acl, Admission, Decision, Judge, Route};
use adit_wire::Host;

/// The judges of one worker.
#[derive(Default)]
pub(crate) struct Judges(Vec<Judge>);

impl Judges {
    /// Makes ready for a list, and lets go of those that nobody goes by any more. Allocates.
    pub(crate) fn prepare(&mut self, acl: Option<&Arc<Acl>>) {
        self.0.retain(|judge| Arc::strong_count(judge.acl()) > 1);
        if let Some(acl) = acl
            && self.of(acl).is_none()
        {
            self.0.push(Judge::new(Arc::clone(acl)));
        }
    }

    fn of(&mut self, acl: &Arc<Acl>) -> Option<&mut Judge> {
        self.0.iter_mut().find(|judge| Arc::ptr_eq(judge.acl(), acl))
    }

    /// Where a client sends what is meant for `host`.
    pub(crate) fn route(&mut self, acl: &Arc<Acl>, host: Host<'_>) -> Decision<Route> {
        self.of(acl).expect("its listener came with it").route(host)
    }

    /// Whether a server connects to `host`.
    pub(crate) fn admit(&mut self, acl: &Arc<Acl>, host: Host<'_>) -> Decision<Admission> {
        self.of(acl).expect("its listener came with it").admit(host)
    }
}
