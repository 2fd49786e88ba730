//! A UDP echo target: a thread a socket, batches, no allocation.
//!
//! Contract: answers every datagram that reaches its sockets to where it came from; a datagram is
//! lost here only if a socket's buffer is full, which [`UdpEchoTarget::drops`] tells. It uses one
//! system call to wait, one to receive and one to send, for up to 32 datagrams.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use adit_sys::datagram::{Inbox, Outbox};

use super::batch;
use crate::error::{Context, Error};
use crate::process::udp_drops;

/// How often a thread without work looks whether it should end.
const NAP: Duration = Duration::from_millis(50);
/// How often a port may turn out to be taken on the second loopback address.
const PORT_ATTEMPTS: usize = 20;

/// A running target; stopped when dropped.
pub(crate) struct UdpEchoTarget {
    addr: SocketAddr,
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    /// Echoes that could not be sent.
    unsent: AtomicU64,
}

impl UdpEchoTarget {
    /// Takes one port of 127.0.0.1, and of ::1 where there is one, so that `localhost` is right
    /// whichever address it becomes.
    pub(crate) fn on_localhost() -> Result<Self, Error> {
        let context = || "cannot take datagrams on localhost".to_owned();
        for _ in 0..PORT_ATTEMPTS {
            let first = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).context(context)?;
            let addr = first.local_addr().context(context)?;
            let sockets = match UdpSocket::bind((Ipv6Addr::LOCALHOST, addr.port())) {
                Ok(second) => vec![first, second],
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => continue,
                // No IPv6 on this machine.
                Err(_) => vec![first],
            };
            let mut target =
                Self { addr, shared: Arc::new(Shared::default()), threads: Vec::new() };
            for socket in sockets {
                target.threads.push(spawn(socket, &target.shared).context(context)?);
            }
            return Ok(target);
        }
        Err(Error::Run("no port is free on both localhosts".to_owned()))
    }

    /// Its IPv4 address.
    pub(crate) const fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Datagrams that its sockets have dropped so far, and echoes that could not be sent.
    pub(crate) fn drops(&self) -> Result<u64, Error> {
        let unsent = self.shared.unsent.load(Ordering::Relaxed);
        Ok(udp_drops(self.addr.port())?.unwrap_or(0) + unsent)
    }
}

impl Drop for UdpEchoTarget {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                crate::report::note("the UDP echo target panicked");
            }
        }
    }
}

fn spawn(socket: UdpSocket, shared: &Arc<Shared>) -> io::Result<JoinHandle<()>> {
    batch::prepare(&socket)?;
    let shared = Arc::clone(shared);
    std::thread::Builder::new().name("udp-echo".to_owned()).spawn(move || {
        let (mut inbox, mut outbox) = (batch::inbox(), batch::outbox());
        while !shared.stop.load(Ordering::Acquire) {
            match serve(&socket, &mut inbox, &mut outbox) {
                Ok(unsent) => shared.unsent.fetch_add(unsent, Ordering::Relaxed),
                Err(error) => {
                    crate::report::note(&format!("the UDP echo target failed: {error}"));
                    return;
                }
            };
        }
    })
}

/// Echoes what has come; how many echoes could not be sent.
fn serve(socket: &UdpSocket, inbox: &mut Inbox, outbox: &mut Outbox) -> io::Result<u64> {
    batch::wait(socket, NAP)?;
    inbox.receive(socket)?;
    for index in 0..inbox.len() {
        let message = inbox.message(index);
        let place = inbox.place(index, message.range());
        let pushed = outbox.push_received(place, &message.reply(0));
        pushed.map_err(|_full| io::Error::other("an outbox holds less than an inbox"))?;
    }
    let flushed = outbox.flush(inbox, |_| Some(socket.as_fd()));
    Ok(flushed.dropped + flushed.too_long + flushed.failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_each_source_with_its_own_words() {
        let target = UdpEchoTarget::on_localhost().unwrap();
        let clients: Vec<UdpSocket> = (0..100)
            .map(|_| {
                let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
                socket.connect(target.addr()).unwrap();
                socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
                socket
            })
            .collect();
        for (number, client) in clients.iter().enumerate() {
            client.send(&number.to_be_bytes()).unwrap();
        }
        for (number, client) in clients.iter().enumerate() {
            let mut echo = [0; 100];
            let len = client.recv(&mut echo).unwrap();
            assert_eq!(echo[..len], number.to_be_bytes());
        }
        assert_eq!(target.drops().unwrap(), 0);
    }
}
