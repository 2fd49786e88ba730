//! Reports of a server to its manager: what has passed each of its ports since it started.
//!
//! One datagram a port, because the C manager takes the last port of a datagram only. Reports are
//! totals, so one that is lost is made up for by the next. Nothing waits for a manager that does
//! not read: what it does not take now is tried again in a moment, and given up for a newer one.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use adit_config::manager::{ManagerAddress, report};
use adit_engine::guard::Transport;
use adit_observe::{PortCounters, log};
use adit_sys::control::{ControlAddress, ControlSocket};

use crate::manager::destination;
use crate::roles::Stores;

/// How often traffic is reported, as often as the C server does.
const INTERVAL: Duration = Duration::from_secs(5);
/// How long to leave a manager alone that has no room for more.
const PAUSE: Duration = Duration::from_millis(20);
/// How often the last reports are tried.
const LAST_ATTEMPTS: u32 = 10;

/// The reports of a process.
pub(crate) struct Reporter {
    socket: ControlSocket,
    to: ControlAddress,
    next: Instant,
    /// Ports of this round that have not been reported.
    left: VecDeque<(u16, Arc<PortCounters>)>,
    /// The manager did not take a report the last time.
    fails: bool,
}

impl Reporter {
    /// Makes ready to report to a manager, which need not be there.
    ///
    /// # Errors
    /// Its name has no address, or there is no socket to be had.
    pub(crate) fn new(address: &ManagerAddress, stores: &Stores) -> io::Result<Self> {
        let to = destination(address)?;
        let socket = ControlSocket::towards(&to)?;
        // Whoever reaches a manager controls it, and clients are not to reach it by way of us.
        if let ControlAddress::Internet(addr) = to {
            stores.own().add(Transport::Datagram, addr);
        }
        let next = Instant::now() + INTERVAL;
        Ok(Self { socket, to, next, left: VecDeque::new(), fails: false })
    }

    /// Reports no more: the manager is another one now.
    pub(crate) fn leave(self, stores: &Stores) {
        if let ControlAddress::Internet(addr) = self.to {
            stores.own().remove(Transport::Datagram, addr);
        }
    }

    /// When [`Reporter::step`] has something to do.
    pub(crate) fn due(&self, now: Instant) -> Instant {
        if self.left.is_empty() { self.next } else { self.next.min(now + PAUSE) }
    }

    /// Sends what is due.
    pub(crate) fn step(&mut self, now: Instant, stores: &Stores) {
        if now >= self.next {
            self.next = now + INTERVAL;
            self.left = stores.port_traffic().into();
        }
        self.send();
    }

    /// Sends everything once more, before the end.
    pub(crate) fn finish(mut self, stores: &Stores) {
        self.left = stores.port_traffic().into();
        for _ in 0..LAST_ATTEMPTS {
            self.send();
            if self.left.is_empty() {
                return;
            }
            thread::sleep(PAUSE);
        }
    }

    fn send(&mut self) {
        while let Some((port, counters)) = self.left.front() {
            let text = report(*port, counters.total());
            match self.socket.send(text.as_bytes(), &self.to) {
                Ok(()) => {
                    if std::mem::take(&mut self.fails) {
                        log::info!("manager {}: takes reports again", self.to);
                    }
                    self.left.pop_front();
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return,
                Err(e) => {
                    if !std::mem::replace(&mut self.fails, true) {
                        log::warn!("manager {}: takes no reports: {e}; going on", self.to);
                    }
                    self.left.clear();
                }
            }
        }
    }
}
