//! A wire between a client and a server, for datagrams, that the test has in its hands: it sees
//! every packet, can send any of them again, and can change the client's address as a NAT does.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::datagrams::{DATAGRAM_MAX, LOOK};

/// A packet of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The port on the wire's side to which the server sent it.
    pub port: u16,
    /// The bytes.
    pub packet: Vec<u8>,
}

struct Shared {
    front: UdpSocket,
    back: Mutex<Arc<UdpSocket>>,
    client: Mutex<Option<SocketAddr>>,
    ups: Mutex<Vec<Vec<u8>>>,
    downs: Mutex<Vec<Reply>>,
    server: SocketAddr,
    stopping: AtomicBool,
}

/// The wire; cut when dropped.
pub struct Wire {
    shared: Arc<Shared>,
    port: u16,
}

impl Wire {
    /// Lays a wire to a server, for one client.
    ///
    /// # Panics
    /// When there is no port for it.
    pub fn to(server: SocketAddr) -> Self {
        let front = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("bind a wire");
        front.set_read_timeout(Some(LOOK)).expect("set a time limit");
        let port = front.local_addr().expect("a socket has an address").port();
        let shared = Arc::new(Shared {
            front,
            back: Mutex::new(Arc::new(back())),
            client: Mutex::default(),
            ups: Mutex::default(),
            downs: Mutex::default(),
            server,
            stopping: AtomicBool::new(false),
        });
        listen_to_server(&shared);
        let up = Arc::clone(&shared);
        std::thread::spawn(move || {
            let mut buf = vec![0; DATAGRAM_MAX];
            while !up.stopping.load(Ordering::Relaxed) {
                let Ok((len, client)) = up.front.recv_from(&mut buf) else { continue };
                *lock(&up.client) = Some(client);
                lock(&up.ups).push(buf[..len].to_vec());
                let back = Arc::clone(&*lock(&up.back));
                // A server that is being restarted refuses.
                let _ = back.send_to(&buf[..len], up.server);
            }
        });
        Self { shared, port }
    }

    /// The port that stands for the server.
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// The port that the server takes for the client's.
    ///
    /// # Panics
    /// Never: a bound socket has an address.
    pub fn client_port(&self) -> u16 {
        lock(&self.shared.back).local_addr().expect("a socket has an address").port()
    }

    /// Every packet of the client so far.
    pub fn ups(&self) -> Vec<Vec<u8>> {
        lock(&self.shared.ups).clone()
    }

    /// Every packet of the server so far.
    pub fn downs(&self) -> Vec<Reply> {
        lock(&self.shared.downs).clone()
    }

    /// Sends a packet to the server, from the client's address.
    ///
    /// # Panics
    /// When it cannot be sent.
    pub fn send_up(&self, packet: &[u8]) {
        let back = Arc::clone(&*lock(&self.shared.back));
        back.send_to(packet, self.shared.server).expect("send a packet");
    }

    /// Sends a packet to the client, from the server's address.
    ///
    /// # Panics
    /// When there is no client yet.
    pub fn send_down(&self, packet: &[u8]) {
        let client = lock(&self.shared.client).expect("the client has sent something");
        self.shared.front.send_to(packet, client).expect("send a packet");
    }

    /// From here on the client has another address; what the server sends to the old one still
    /// arrives.
    pub fn rebind(&self) {
        *lock(&self.shared.back) = Arc::new(back());
        listen_to_server(&self.shared);
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::Relaxed);
    }
}

fn back() -> UdpSocket {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("bind a wire");
    socket.set_read_timeout(Some(Duration::from_millis(20))).expect("set a time limit");
    socket
}

fn listen_to_server(shared: &Arc<Shared>) {
    let shared = Arc::clone(shared);
    let back = Arc::clone(&*lock(&shared.back));
    let port = back.local_addr().expect("a socket has an address").port();
    std::thread::spawn(move || {
        let mut buf = vec![0; DATAGRAM_MAX];
        while !shared.stopping.load(Ordering::Relaxed) {
            // Fails for a moment when the server refuses, and when there is nothing.
            let Ok((len, _)) = back.recv_from(&mut buf) else { continue };
            lock(&shared.downs).push(Reply { port, packet: buf[..len].to_vec() });
            if let Some(client) = *lock(&shared.client) {
                let _ = shared.front.send_to(&buf[..len], client);
            }
        }
    });
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
