//! Where this process listens, for the check of every target.
//!
//! Listeners come and go while workers check, and a role outlives them, so the list is one for all
//! roles and changes in place. A target's port decides almost every check by one load of a bit;
//! only a target at a port of ours takes the lock of the list, which is held for a few comparisons.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock};

use super::Transport;

/// Bits in one element of the table of ports.
const BITS: usize = 64;
/// Elements of the table: one bit a port.
const WORDS: usize = (1 << 16) / BITS;

/// The addresses at which this process takes connections and datagrams.
#[derive(Debug, Default)]
pub struct OwnListeners {
    streams: Addresses,
    datagrams: Addresses,
}

#[derive(Debug)]
struct Addresses {
    /// Whether the list has an address with this port.
    ports: Box<[AtomicU64]>,
    list: RwLock<Vec<SocketAddr>>,
}

impl OwnListeners {
    /// Adds an address. One that is there twice has to be removed twice.
    pub fn add(&self, transport: Transport, addr: SocketAddr) {
        let addresses = self.of(transport);
        addresses.change(|list| list.push(addr));
        addresses.mark(addr.port());
    }

    /// Removes an address that was added.
    pub fn remove(&self, transport: Transport, addr: SocketAddr) {
        let addresses = self.of(transport);
        addresses.change(|list| {
            if let Some(at) = list.iter().position(|other| *other == addr) {
                list.swap_remove(at);
            }
        });
        addresses.mark(addr.port());
    }

    /// Whether `is_it` holds for the IP address of one of the listeners at `port`.
    pub(super) fn any(
        &self,
        transport: Transport,
        port: u16,
        is_it: impl Fn(IpAddr) -> bool,
    ) -> bool {
        let addresses = self.of(transport);
        if !addresses.has(port) {
            return false;
        }
        // A thread that panicked left a list that is whole, and ends the process anyway.
        let list = addresses.list.read().unwrap_or_else(PoisonError::into_inner);
        list.iter().any(|listener| listener.port() == port && is_it(listener.ip()))
    }

    const fn of(&self, transport: Transport) -> &Addresses {
        match transport {
            Transport::Stream => &self.streams,
            Transport::Datagram => &self.datagrams,
        }
    }
}

impl Addresses {
    fn has(&self, port: u16) -> bool {
        let port = usize::from(port);
        self.ports[port / BITS].load(Ordering::Relaxed) & (1 << (port % BITS)) != 0
    }

    fn change(&self, change: impl FnOnce(&mut Vec<SocketAddr>)) {
        change(&mut self.list.write().unwrap_or_else(PoisonError::into_inner));
    }

    /// Puts the bit of a port right; one thread changes the list.
    fn mark(&self, port: u16) {
        let list = self.list.read().unwrap_or_else(PoisonError::into_inner);
        let (word, bit) = (usize::from(port) / BITS, 1 << (usize::from(port) % BITS));
        if list.iter().any(|listener| listener.port() == port) {
            self.ports[word].fetch_or(bit, Ordering::Relaxed);
        } else {
            self.ports[word].fetch_and(!bit, Ordering::Relaxed);
        }
    }
}

impl Default for Addresses {
    fn default() -> Self {
        let ports = (0..WORDS).map(|_| AtomicU64::new(0)).collect();
        Self { ports, list: RwLock::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_known_for_as_long_as_one_of_its_addresses_is_there() {
        let own = OwnListeners::default();
        let at = |text: &str| text.parse::<SocketAddr>().unwrap();
        let has = |transport, port| own.any(transport, port, |_| true);
        for port in [1, 63, 64, 65535] {
            let (a, b) = (at(&format!("192.0.2.1:{port}")), at(&format!("[2001:db8::1]:{port}")));
            own.add(Transport::Stream, a);
            own.add(Transport::Stream, b);
            assert!(has(Transport::Stream, port) && !has(Transport::Datagram, port));
            assert!(own.any(Transport::Stream, port, |ip| ip.is_ipv6()));
            own.remove(Transport::Stream, a);
            assert!(own.any(Transport::Stream, port, |ip| ip.is_ipv6()));
            assert!(!own.any(Transport::Stream, port, |ip| ip.is_ipv4()));
            own.remove(Transport::Stream, b);
            assert!(!has(Transport::Stream, port));
            // Not there: nothing happens.
            own.remove(Transport::Stream, b);
        }
        assert!(!has(Transport::Stream, 2), "a neighbour was never there");
    }
}
