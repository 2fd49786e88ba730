//! A name server of the test, on loopback, UDP and TCP on one port.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::stream::patient;

/// What a client asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// The name, in small letters.
    pub name: String,
    /// For IPv6 addresses.
    pub is_aaaa: bool,
    /// Over TCP.
    pub is_tcp: bool,
}

/// What it is told.
#[derive(Clone, Debug)]
pub enum Answer {
    /// These addresses, as far as they are of the family asked for.
    Addresses(Vec<IpAddr>),
    /// No such name.
    NoSuchName,
    /// Ask over TCP.
    Truncated,
    /// Nothing.
    Silence,
    /// This, once the time has passed.
    After(Duration, Vec<IpAddr>),
}

type Policy = dyn Fn(&Question) -> Answer + Send + Sync;

/// The server; it ends when dropped.
pub struct Dns {
    address: SocketAddr,
    stopping: Arc<AtomicBool>,
    questions: Arc<Mutex<Vec<Question>>>,
}

impl Dns {
    /// Starts a server that answers by `policy`.
    ///
    /// # Panics
    /// When there is no port for it.
    pub fn serve(policy: impl Fn(&Question) -> Answer + Send + Sync + 'static) -> Self {
        Self::serve_at(Ipv4Addr::LOCALHOST.into(), policy)
    }

    /// As [`Dns::serve`], on an address of this host.
    ///
    /// # Panics
    /// When there is no port for it.
    pub fn serve_at(
        ip: IpAddr,
        policy: impl Fn(&Question) -> Answer + Send + Sync + 'static,
    ) -> Self {
        let (datagrams, streams) = bind(ip);
        let this = Self {
            address: datagrams.local_addr().expect("a socket has an address"),
            stopping: Arc::new(AtomicBool::new(false)),
            questions: Arc::default(),
        };
        let policy: Arc<Policy> = Arc::new(policy);
        this.serve_datagrams(datagrams, Arc::clone(&policy));
        this.serve_streams(streams, policy);
        this
    }

    /// `HOST:PORT`, for `-d`.
    pub fn address(&self) -> String {
        self.address.to_string()
    }

    /// Everything asked so far.
    pub fn questions(&self) -> Vec<Question> {
        self.questions.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn serve_datagrams(&self, socket: UdpSocket, policy: Arc<Policy>) {
        socket.set_read_timeout(Some(Duration::from_millis(50))).expect("set a time limit");
        let (stopping, questions) = (Arc::clone(&self.stopping), Arc::clone(&self.questions));
        std::thread::spawn(move || {
            let mut query = [0; 2048];
            while !stopping.load(Ordering::Relaxed) {
                let Ok((len, peer)) = socket.recv_from(&mut query) else { continue };
                let query = query[..len].to_vec();
                let Some(question) = parse(&query, false) else { continue };
                questions.lock().unwrap_or_else(PoisonError::into_inner).push(question.clone());
                match policy(&question) {
                    Answer::Silence => {}
                    Answer::After(time, addrs) => {
                        let socket = socket.try_clone().expect("share a socket");
                        std::thread::spawn(move || {
                            std::thread::sleep(time);
                            let reply = reply(&query, &question, &Answer::Addresses(addrs));
                            // The resolver may have gone.
                            let _ = socket.send_to(&reply, peer);
                        });
                    }
                    answer => {
                        let _ = socket.send_to(&reply(&query, &question, &answer), peer);
                    }
                }
            }
        });
    }

    fn serve_streams(&self, listener: TcpListener, policy: Arc<Policy>) {
        let (stopping, questions) = (Arc::clone(&self.stopping), Arc::clone(&self.questions));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if stopping.load(Ordering::Relaxed) {
                    return;
                }
                let Ok(stream) = stream else { continue };
                let mut stream = patient(stream);
                let (policy, questions) = (Arc::clone(&policy), Arc::clone(&questions));
                std::thread::spawn(move || {
                    let mut len = [0; 2];
                    while stream.read_exact(&mut len).is_ok() {
                        let mut query = vec![0; usize::from(u16::from_be_bytes(len))];
                        if stream.read_exact(&mut query).is_err() {
                            return;
                        }
                        let Some(question) = parse(&query, true) else { return };
                        let mut all = questions.lock().unwrap_or_else(PoisonError::into_inner);
                        all.push(question.clone());
                        drop(all);
                        let reply = reply(&query, &question, &policy(&question));
                        let len = u16::try_from(reply.len()).expect("a short reply");
                        if stream.write_all(&[&len.to_be_bytes()[..], &reply].concat()).is_err() {
                            return;
                        }
                    }
                });
            }
        });
    }
}

impl Drop for Dns {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::Relaxed);
        // Wakes the acceptor.
        let _ = std::net::TcpStream::connect(self.address);
    }
}

/// One port for both transports.
fn bind(ip: IpAddr) -> (UdpSocket, TcpListener) {
    for _ in 0..100 {
        let listener = TcpListener::bind((ip, 0)).expect("listen");
        let address = listener.local_addr().expect("a listener has an address");
        if let Ok(socket) = UdpSocket::bind(address) {
            return (socket, listener);
        }
    }
    panic!("no port is free for both UDP and TCP");
}

fn parse(query: &[u8], is_tcp: bool) -> Option<Question> {
    let mut rest = query.get(12..)?;
    let mut labels = Vec::new();
    loop {
        let (&len, behind) = rest.split_first()?;
        let (label, behind) = behind.split_at_checked(len.into())?;
        rest = behind;
        if len == 0 {
            break;
        }
        labels.push(String::from_utf8_lossy(label).to_ascii_lowercase());
    }
    let kind = u16::from_be_bytes(*rest.first_chunk()?);
    Some(Question { name: labels.join("."), is_aaaa: kind == 28, is_tcp })
}

fn reply(query: &[u8], question: &Question, answer: &Answer) -> Vec<u8> {
    let question_end = 12 + question.name.len() + 2 + 4;
    let (flags, addrs): (u16, &[IpAddr]) = match answer {
        Answer::Addresses(addrs) | Answer::After(_, addrs) => (0x8180, addrs),
        Answer::NoSuchName => (0x8183, &[]),
        Answer::Truncated => (0x8380, &[]),
        Answer::Silence => (0x8182, &[]),
    };
    let addrs: Vec<_> = addrs.iter().filter(|a| a.is_ipv6() == question.is_aaaa).collect();
    let mut out = query[..2].to_vec();
    out.extend_from_slice(&flags.to_be_bytes());
    let count = u16::try_from(addrs.len()).expect("few addresses");
    for section in [1, count, 0, 0] {
        out.extend_from_slice(&section.to_be_bytes());
    }
    out.extend_from_slice(&query[12..question_end]);
    for addr in addrs {
        // Name by pointer, type, class IN, TTL 60.
        out.extend_from_slice(&[
            0xC0,
            12,
            0,
            if addr.is_ipv6() { 28 } else { 1 },
            0,
            1,
            0,
            0,
            0,
            60,
        ]);
        match addr {
            IpAddr::V4(ip) => out.extend_from_slice(&[&[0, 4][..], &ip.octets()].concat()),
            IpAddr::V6(ip) => out.extend_from_slice(&[&[0, 16][..], &ip.octets()].concat()),
        }
    }
    out
}
