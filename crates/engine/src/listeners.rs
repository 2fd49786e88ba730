//! The listeners of one worker, found by their key in an event and by their id in an order.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::guard::Transport;
use crate::role::Role;
use crate::slab::{Key, Slab};
use crate::worker::{LISTENERS_MAX, ListenerId};

/// A socket that clients reach us at.
pub(crate) struct Listener {
    pub(crate) id: ListenerId,
    pub(crate) fd: OwnedFd,
    pub(crate) role: Arc<Role>,
    pub(crate) transport: Transport,
}

/// All of them. Only orders from outside change it, so that it may allocate when it does.
pub(crate) struct Listeners {
    slab: Slab<Listener>,
    keys: HashMap<ListenerId, Key>,
}

impl Listeners {
    /// Reserves room, which is not touched.
    pub(crate) fn new() -> Self {
        Self { slab: Slab::with_capacity(LISTENERS_MAX), keys: HashMap::new() }
    }

    /// Puts a listener in; gives it back when there is no room.
    pub(crate) fn insert(&mut self, listener: Listener) -> Result<Key, Listener> {
        let id = listener.id;
        let key = self.slab.insert(listener)?;
        self.keys.insert(id, key);
        Ok(key)
    }

    /// Takes a listener out.
    pub(crate) fn remove(&mut self, key: Key) -> Option<Listener> {
        let listener = self.slab.remove(key)?;
        self.keys.remove(&listener.id);
        Some(listener)
    }

    pub(crate) fn get(&self, key: Key) -> Option<&Listener> {
        self.slab.get(key)
    }

    pub(crate) fn get_mut(&mut self, key: Key) -> Option<&mut Listener> {
        self.slab.get_mut(key)
    }

    /// The key of an id.
    pub(crate) fn find(&self, id: ListenerId) -> Option<Key> {
        self.keys.get(&id).copied()
    }

    /// The keys of all, for work off the hot path.
    pub(crate) fn keys(&self) -> impl Iterator<Item = Key> {
        self.slab.keys()
    }
}
