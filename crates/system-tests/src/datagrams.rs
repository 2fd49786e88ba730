//! Datagrams: targets that answer, and the application's end of a SOCKS5 association.

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::stream::{patient, read_exactly};
use crate::{PATIENCE, eventually};

/// The largest datagram there is, and some.
pub(crate) const DATAGRAM_MAX: usize = 1 << 16;
/// How often a thread of the harness looks whether it is to end.
pub(crate) const LOOK: Duration = Duration::from_millis(20);

/// What a target has received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Who sent it.
    pub source: SocketAddr,
    /// The bytes.
    pub payload: Vec<u8>,
}

/// A target that keeps what it receives, and sends it back to where it came from.
pub struct DatagramTarget {
    socket: Arc<UdpSocket>,
    address: SocketAddr,
    arrivals: Arc<Mutex<Vec<Arrival>>>,
    stopping: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl DatagramTarget {
    /// Starts one on a free loopback port.
    ///
    /// # Panics
    /// When there is none.
    pub fn echo() -> Self {
        Self::echo_on(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))
    }

    /// Starts one on an address.
    ///
    /// # Panics
    /// When it is taken.
    pub fn echo_on(address: SocketAddr) -> Self {
        let socket = Arc::new(UdpSocket::bind(address).expect("bind a target"));
        let address = socket.local_addr().expect("a socket has an address");
        socket.set_read_timeout(Some(LOOK)).expect("set a time limit");
        let arrivals = Arc::new(Mutex::new(Vec::new()));
        let stopping = Arc::new(AtomicBool::new(false));
        let thread = {
            let (socket, arrivals) = (Arc::clone(&socket), Arc::clone(&arrivals));
            let stopping = Arc::clone(&stopping);
            std::thread::spawn(move || {
                let mut buf = vec![0; DATAGRAM_MAX];
                while !stopping.load(Ordering::Relaxed) {
                    let Ok((len, source)) = socket.recv_from(&mut buf) else { continue };
                    let arrival = Arrival { source, payload: buf[..len].to_vec() };
                    arrivals.lock().unwrap_or_else(PoisonError::into_inner).push(arrival);
                    // Whoever sent it may have gone.
                    let _ = socket.send_to(&buf[..len], source);
                }
            })
        };
        Self { socket, address, arrivals, stopping, thread: Some(thread) }
    }

    /// Where it is.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its port.
    pub const fn port(&self) -> u16 {
        self.address.port()
    }

    /// Everything that has arrived so far.
    pub fn arrivals(&self) -> Vec<Arrival> {
        self.arrivals.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How many datagrams have arrived.
    pub fn count(&self) -> usize {
        self.arrivals.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Waits until so many have arrived.
    ///
    /// # Panics
    /// When they do not.
    pub fn wait_for(&self, count: usize) -> Vec<Arrival> {
        eventually(&format!("{count} datagrams arrive"), || (self.count() >= count).then_some(()));
        self.arrivals()
    }

    /// Sends something unasked for.
    ///
    /// # Panics
    /// When it cannot be sent.
    pub fn send(&self, payload: &[u8], to: SocketAddr) {
        self.socket.send_to(payload, to).expect("send a datagram");
    }
}

impl Drop for DatagramTarget {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// An application that sends and receives datagrams through a SOCKS5 proxy.
pub struct Association {
    /// The connection that asked for it; `None` when nobody asked.
    pub control: Option<TcpStream>,
    socket: UdpSocket,
    relay: SocketAddr,
}

impl Association {
    /// Asks a proxy for an association and uses what it answers.
    ///
    /// # Panics
    /// When it refuses.
    pub fn open(proxy: SocketAddr) -> Self {
        let (control, answer) = Self::ask(proxy);
        let relay = answer.unwrap_or_else(|reply| panic!("UDP ASSOCIATE: reply {reply}"));
        Self { control: Some(control), ..Self::without_control(relay) }
    }

    /// As [`Association::open`], at a loopback port.
    ///
    /// # Panics
    /// When it refuses.
    pub fn at(port: u16) -> Self {
        Self::open(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
    }

    /// Uses a proxy's datagram port without having asked.
    ///
    /// # Panics
    /// When there is no port for it.
    pub fn without_control(relay: SocketAddr) -> Self {
        let any: IpAddr = match relay {
            SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        };
        Self::from(any, relay)
    }

    /// As [`Association::without_control`], from an address of one's own.
    ///
    /// # Panics
    /// When there is no port for it.
    pub fn from(source: IpAddr, relay: SocketAddr) -> Self {
        let socket = UdpSocket::bind((source, 0)).expect("bind an application's socket");
        socket.set_read_timeout(Some(PATIENCE)).expect("set a time limit");
        Self { control: None, socket, relay }
    }

    /// Asks a proxy for an association: the address it tells, or its REP field.
    ///
    /// # Panics
    /// When it does not answer in SOCKS5.
    pub fn ask(proxy: SocketAddr) -> (TcpStream, Result<SocketAddr, u8>) {
        let mut stream = patient(TcpStream::connect(proxy).expect("connect to a proxy"));
        stream.write_all(&[5, 1, 0]).expect("greet a proxy");
        assert_eq!(read_exactly(&stream, 2), [5, 0]);
        stream.write_all(&[5, 3, 0, 1, 0, 0, 0, 0, 0, 0]).expect("ask a proxy");
        let head = read_exactly(&stream, 3);
        assert_eq!((head[0], head[2]), (5, 0), "a SOCKS5 reply");
        let bound = read_address(|len| read_exactly(&stream, len));
        (stream, if head[1] == 0 { Ok(bound) } else { Err(head[1]) })
    }

    /// The proxy's datagram address.
    pub const fn relay(&self) -> SocketAddr {
        self.relay
    }

    /// Sends a payload to a host, address or name.
    ///
    /// # Panics
    /// When it cannot be sent.
    pub fn send(&self, host: &str, port: u16, payload: &[u8]) {
        self.send_raw(&[&header(host, port), payload].concat());
    }

    /// Sends a payload to an address.
    ///
    /// # Panics
    /// When it cannot be sent.
    pub fn send_to(&self, target: SocketAddr, payload: &[u8]) {
        self.send(&target.ip().to_string(), target.port(), payload);
    }

    /// Sends these bytes as they are.
    ///
    /// # Panics
    /// When they cannot be sent.
    pub fn send_raw(&self, bytes: &[u8]) {
        self.socket.send_to(bytes, self.relay).expect("send a datagram");
    }

    /// Waits for a datagram: who sent it, according to the proxy, and what.
    ///
    /// # Panics
    /// When none comes, or one from elsewhere, or one without a header.
    pub fn receive(&self) -> (SocketAddr, Vec<u8>) {
        let mut buf = vec![0; DATAGRAM_MAX];
        let (len, from) = self.socket.recv_from(&mut buf).expect("a datagram from the proxy");
        assert_eq!(from, self.relay, "the reply's source is the address that was reached");
        parse(&buf[..len])
    }

    /// What has come by this moment, without waiting.
    ///
    /// # Panics
    /// When the socket cannot be made non-blocking.
    pub fn poke(&self) -> Option<(SocketAddr, Vec<u8>)> {
        let mut buf = vec![0; DATAGRAM_MAX];
        self.socket.set_nonblocking(true).expect("set an option");
        let found = self.socket.recv_from(&mut buf);
        self.socket.set_nonblocking(false).expect("set an option");
        found.ok().map(|(len, _)| parse(&buf[..len]))
    }

    /// Sends a payload to a target that echoes, and waits until it is back.
    ///
    /// # Panics
    /// When something else comes.
    pub fn round_trip(&self, target: SocketAddr, payload: &[u8]) {
        self.send_to(target, payload);
        let (source, back) = self.receive();
        assert_eq!(source, target);
        assert!(back == payload, "{} of {} bytes came back", back.len(), payload.len());
    }
}

/// The header of a datagram to a host.
pub fn header(host: &str, port: u16) -> Vec<u8> {
    let mut bytes = vec![0, 0, 0];
    match host.parse::<IpAddr>() {
        Ok(IpAddr::V4(ip)) => {
            bytes.push(1);
            bytes.extend_from_slice(&ip.octets());
        }
        Ok(IpAddr::V6(ip)) => {
            bytes.push(4);
            bytes.extend_from_slice(&ip.octets());
        }
        Err(_) => {
            bytes.extend_from_slice(&[3, u8::try_from(host.len()).expect("a short name")]);
            bytes.extend_from_slice(host.as_bytes());
        }
    }
    bytes.extend_from_slice(&port.to_be_bytes());
    bytes
}

fn parse(datagram: &[u8]) -> (SocketAddr, Vec<u8>) {
    let mut rest = datagram;
    let mut take = |len: usize| {
        let (head, behind) = rest.split_at_checked(len).expect("a whole header");
        rest = behind;
        head.to_vec()
    };
    assert_eq!(take(3), [0, 0, 0], "a datagram of an association");
    let source = read_address(&mut take);
    (source, rest.to_vec())
}

fn read_address(mut take: impl FnMut(usize) -> Vec<u8>) -> SocketAddr {
    let kind = take(1)[0];
    let ip: IpAddr = match kind {
        1 => <[u8; 4]>::try_from(take(4)).expect("four bytes").into(),
        4 => <[u8; 16]>::try_from(take(16)).expect("sixteen bytes").into(),
        other => panic!("address type {other}"),
    };
    let port = <[u8; 2]>::try_from(take(2)).expect("two bytes");
    SocketAddr::new(ip, u16::from_be_bytes(port))
}
