//! Targets: servers of the test that our programs connect to.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;

use crate::stream::patient;

/// A listener that serves each connection on a thread of its own.
pub struct Target {
    address: SocketAddr,
    stopping: Arc<AtomicBool>,
    count: Arc<AtomicUsize>,
    acceptor: Option<JoinHandle<()>>,
}

impl Target {
    /// Serves connections on a free loopback port.
    ///
    /// # Panics
    /// When there is none.
    pub fn serve(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> Self {
        Self::serve_on(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), serve)
    }

    /// Serves connections on an address.
    ///
    /// # Panics
    /// When it is taken.
    pub fn serve_on(
        address: SocketAddr,
        serve: impl Fn(TcpStream) + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind(address).expect("listen as a target");
        let address = listener.local_addr().expect("a listener has an address");
        let stopping = Arc::new(AtomicBool::new(false));
        let count = Arc::new(AtomicUsize::new(0));
        let (stop, counter, serve) = (Arc::clone(&stopping), Arc::clone(&count), Arc::new(serve));
        let acceptor = std::thread::spawn(move || {
            for stream in listener.incoming() {
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                let Ok(stream) = stream else { continue };
                counter.fetch_add(1, Ordering::Relaxed);
                let serve = Arc::clone(&serve);
                std::thread::spawn(move || serve(patient(stream)));
            }
        });
        Self { address, stopping, count, acceptor: Some(acceptor) }
    }

    /// Sends everything back until the client ends.
    pub fn echo() -> Self {
        Self::serve(|stream| {
            // A connection that breaks is the business of the test at its other end.
            let _ = std::io::copy(&mut &stream, &mut &stream);
        })
    }

    /// Where it listens.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its port.
    pub const fn port(&self) -> u16 {
        self.address.port()
    }

    /// Connections taken so far.
    pub fn connections(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::Relaxed);
        // Wakes the acceptor.
        let _ = TcpStream::connect(self.address);
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
    }
}
