//! Counters that any thread reads: those of a worker, which it alone writes, and those of a user or
//! a port, which every worker writes.

use std::sync::atomic::{AtomicU64, Ordering};

/// A number that only goes up, or a level that goes both ways.
///
/// One thread writes, so a load and a store do for an increment: no locked instruction.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds `n`.
    pub fn add(&self, n: u64) {
        self.0.store(self.value().wrapping_add(n), Ordering::Relaxed);
    }

    /// Takes `n` away, for levels.
    pub fn sub(&self, n: u64) {
        self.0.store(self.value().wrapping_sub(n), Ordering::Relaxed);
    }

    /// Adds one.
    pub fn inc(&self) {
        self.add(1);
    }

    /// The value as last stored.
    pub fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A number that only goes up and that several threads add to.
#[derive(Debug, Default)]
pub struct SharedCounter(AtomicU64);

impl SharedCounter {
    /// Adds `n`.
    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    /// Adds one.
    pub fn inc(&self) {
        self.add(1);
    }

    /// The sum so far.
    pub fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What one user of a server has used, over all workers. Aligned so that two users never share a
/// cache line.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct UserCounters {
    /// Connections that reached the relay stage.
    pub connections: SharedCounter,
    /// Datagram sessions opened.
    pub sessions: SharedCounter,
    /// Plaintext bytes from the user to targets, of connections and datagrams.
    pub bytes_up: SharedCounter,
    /// Plaintext bytes from targets to the user, of connections and datagrams.
    pub bytes_down: SharedCounter,
    /// Datagrams from the user to targets.
    pub datagrams_up: SharedCounter,
    /// Datagrams from targets to the user.
    pub datagrams_down: SharedCounter,
}

/// What has passed a port of a server on its encrypted side, over all workers: the bytes of streams
/// and packets as they are on the wire, of those clients that proved to have a key. Aligned so that
/// two ports never share a cache line.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct PortCounters {
    /// Bytes from clients.
    pub bytes_in: SharedCounter,
    /// Bytes to clients.
    pub bytes_out: SharedCounter,
}

impl PortCounters {
    /// Bytes of both directions.
    pub fn total(&self) -> u64 {
        self.bytes_in.value().wrapping_add(self.bytes_out.value())
    }
}

/// Declares the counters once, so that their names and their sum can't drift apart.
macro_rules! flow_counters {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// Counters of one worker. Aligned so that two workers never share a cache line.
        #[derive(Debug, Default)]
        #[repr(align(128))]
        pub struct FlowCounters {
            $($(#[$doc])* pub $name: Counter,)*
        }

        impl FlowCounters {
            /// Calls `each` with every counter's name and its sum over `workers`.
            pub fn sum<'a>(
                workers: impl IntoIterator<Item = &'a Self> + Clone,
                mut each: impl FnMut(&'static str, u64),
            ) {
                $(each(
                    stringify!($name),
                    workers.clone().into_iter().map(|w| w.$name.value()).fold(0, u64::wrapping_add),
                );)*
            }
        }
    };
}

flow_counters! {
    /// Connections accepted.
    accepted,
    /// Connections open.
    open,
    /// Accepts put off for lack of descriptors or flow slots.
    accept_paused,
    /// Connections that reached the relay stage.
    relayed,
    /// Bytes from clients to targets: plaintext, or what a hop passes on.
    bytes_up,
    /// Bytes from targets to clients: plaintext, or what a hop passes on.
    bytes_down,
    /// Local requests refused or malformed.
    refused,
    /// Streams rejected by the Shadowsocks codec.
    rejected,
    /// Targets refused by the guard.
    blocked,
    /// Connections and sessions refused because their client address has too many.
    client_limit,
    /// Connections and datagrams of clients that the access control list refuses.
    clients_refused,
    /// Connects to servers or targets that failed.
    dial_failed,
    /// Names that did not resolve.
    resolve_failed,
    /// Name look-ups sent to a name server.
    lookups,
    /// Connections ended by the handshake deadline.
    handshake_timeout,
    /// Connections ended by the idle limit.
    idle_timeout,
    /// Connections ended by a reset or another socket failure.
    reset,
    /// Reads put off, or connections refused, because too many buffers were in use.
    buffers_exhausted,
    /// Connections ended because they held buffers that others needed.
    buffers_reclaimed,
    /// Datagram sessions opened.
    sessions,
    /// Datagram sessions open.
    sessions_open,
    /// Datagram sessions ended to make room for others.
    sessions_evicted,
    /// Datagram sessions ended by their idle limit.
    sessions_idle,
    /// Datagrams from clients to targets.
    datagrams_up,
    /// Datagrams from targets to clients.
    datagrams_down,
    /// Payload bytes of datagrams from clients to targets.
    datagram_bytes_up,
    /// Payload bytes of datagrams from targets to clients.
    datagram_bytes_down,
    /// Datagrams rejected as malformed or not authentic.
    datagrams_rejected,
    /// Datagrams that had been seen before.
    datagrams_replayed,
    /// Datagrams dropped for lack of room, or because a name did not resolve.
    datagrams_dropped,
    /// Datagrams too long to be sent.
    datagrams_too_long,
    /// Datagrams handed to the worker that has their session.
    datagrams_forwarded,
    /// Network errors reported for datagrams that were sent.
    icmp_errors,
    /// Sockets opened to answer redirected datagrams as another host.
    reply_sockets,
    /// Such sockets open.
    reply_sockets_open,
    /// Such sockets that could not be opened.
    reply_sockets_failed,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_counter_is_on_the_page() {
        let page = include_str!("../../../docs/shadowsocks.md");
        let workers: [&FlowCounters; 0] = [];
        FlowCounters::sum(workers, |name, _| {
            assert!(page.contains(&format!("`{name}`")), "{name}");
        });
    }

    #[test]
    fn workers_are_summed_by_name() {
        let workers = [FlowCounters::default(), FlowCounters::default()];
        for worker in &workers {
            worker.sessions_open.add(3);
            worker.sessions_open.sub(1);
            worker.blocked.inc();
        }
        let mut seen = Vec::new();
        FlowCounters::sum(&workers, |name, value| {
            if value > 0 {
                seen.push((name, value));
            }
        });
        assert_eq!(seen, [("blocked", 2), ("sessions_open", 4)]);
    }

    #[test]
    fn threads_add_to_one_user() {
        let user = UserCounters::default();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..10_000).for_each(|_| user.bytes_up.inc()));
            }
        });
        assert_eq!((user.bytes_up.value(), user.bytes_down.value()), (40_000, 0));
        assert!(align_of::<UserCounters>() >= 64);
    }

    #[test]
    fn a_port_counts_both_directions() {
        let port = PortCounters::default();
        port.bytes_in.add(3);
        port.bytes_out.add(4);
        assert_eq!(port.total(), 7);
        assert!(align_of::<PortCounters>() >= 64);
    }
}
