//! What goes over one UDP association, and both ends of it.
//!
//! The client sends a burst of datagrams, and the target answers each with other bytes. Every byte is compared at both ends, and so is the source of every answer. A datagram
//! that was lost is sent again a few times. Nothing else is forgiven: neither a byte that is wrong,
//! nor a datagram that comes twice though it was sent once.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::ops::Range;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use crate::datagram_target::{Arrival, DatagramTarget};
use crate::failure::Failure;
use crate::readiness::first_readable;
use crate::socks5::{self, Address};
use crate::target::Host;
use crate::traffic::Stream;

/// Datagrams of one size.
const COUNT: usize = 8;
/// Bytes on the way at once, if that is more than one datagram: what a socket's buffer takes.
const ON_THE_WAY_MAX: usize = 40_000;
/// How often a datagram is sent until it counts as not relayed.
const TRIES: u32 = 4;
/// How long the answers to one try may take.
const TRY_TIMEOUT: Duration = Duration::from_secs(3);
/// More than any datagram has.
const BUFFER_LEN: usize = 1 << 16;

/// The client's end.
pub(crate) struct Association {
    /// Connected to the program, so that datagrams of others do not arrive.
    socket: UdpSocket,
    wrapping: Wrapping,
    /// What was sent more than once, in either direction, and so may still come.
    repeated: Vec<Vec<u8>>,
    buffer: Vec<u8>,
}

/// How datagrams name their target and their source.
pub(crate) enum Wrapping {
    /// By the header of SOCKS5.
    Socks5 {
        /// The association lives as long as this connection.
        _control: TcpStream,
        /// What answers from a target that was asked for by name say.
        named: Named,
    },
    /// Not at all: they are the payload for the one target of a tunnel.
    Tunnel,
}

/// How a server names the source of an answer, when the client has asked for a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Named {
    /// By the address that it is from.
    Address,
    /// By the name.
    Name,
}

/// Bytes of a datagram and of its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lens {
    /// From the client.
    pub(crate) upload: usize,
    /// From the target.
    pub(crate) download: usize,
}

/// Datagrams on the way and what has become of them.
struct Burst {
    uploads: Vec<Vec<u8>>,
    downloads: Vec<Vec<u8>>,
    /// Where each arrived, and which socket of the target that is.
    arrived: Vec<Option<SocketAddr>>,
    answered: Vec<bool>,
    tries: u32,
    /// By the socket's number, where the target sees the client.
    seen_at: Vec<Option<SocketAddr>>,
}

impl Association {
    /// An association with the program that takes datagrams at `relay`.
    pub(crate) fn new(relay: SocketAddr, wrapping: Wrapping) -> Result<Self, Failure> {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0));
        let socket = socket.and_then(|socket| socket.connect(relay).map(|()| socket));
        let socket = socket.map_err(Failure::io(format!("open a socket towards {relay}")))?;
        Ok(Self { socket, wrapping, repeated: Vec::new(), buffer: vec![0; BUFFER_LEN] })
    }

    /// Exchanges datagrams of these lengths with a target, as many at once as buffers take.
    ///
    /// # Errors
    /// When one is lost again and again, wrong, or of a wrong source.
    pub(crate) fn exchange(&mut self, target: &DatagramTarget, lens: Lens) -> Result<(), Failure> {
        let longest = lens.upload.max(lens.download).max(1);
        let at_once = (ON_THE_WAY_MAX / longest).clamp(1, COUNT);
        let mut first = 0;
        while first < COUNT {
            let last = COUNT.min(first + at_once);
            self.burst(target, &mut Burst::new(target, lens, first..last))?;
            first = last;
        }
        Ok(())
    }

    /// Lets somebody of whom the client has not asked anything send datagrams to where a target
    /// sees it.
    ///
    /// # Errors
    /// When the client does not get them, with their source.
    pub(crate) fn hear_neighbour(&mut self, target: &DatagramTarget) -> Result<(), Failure> {
        let mut burst = Burst::new(target, Lens { upload: 100, download: 100 }, 0..1);
        self.burst(target, &mut burst)?;
        let word = payload("neighbour", 100, 0);
        let seen = burst.seen_at.iter().enumerate().find_map(|(n, at)| at.map(|at| (n, at)));
        let Some((number, client)) = seen else {
            return Err(Failure::new("the target has not seen the client"));
        };
        for _ in 0..TRIES {
            let neighbour = target.send_as_neighbour(number, client, &word)?;
            let deadline = Instant::now() + TRY_TIMEOUT;
            while first_readable([self.socket.as_fd()], deadline)?.is_some() {
                let (source, payload) = self.receive()?;
                if payload != word {
                    self.pass_over(&payload, &[&word])?;
                    continue;
                }
                return self.check_source(source, target.host(), neighbour);
            }
        }
        Err(Failure::new("nothing comes from a neighbour of the target"))
    }

    /// Sends datagrams that nobody is to receive.
    ///
    /// # Errors
    /// When they cannot be sent.
    pub(crate) fn send_in_vain(&mut self, target: &DatagramTarget) -> Result<(), Failure> {
        let lens = Lens { upload: 100, download: 100 };
        self.send_missing(target, &mut Burst::new(target, lens, 0..COUNT))
    }

    /// Makes sure that neither end has received anything of what was sent in vain.
    ///
    /// # Errors
    /// When one has.
    pub(crate) fn heard_nothing(&self, target: &DatagramTarget) -> Result<(), Failure> {
        let sockets = std::iter::once(self.socket.as_fd()).chain(target.sockets());
        match first_readable(sockets, Instant::now())? {
            None => Ok(()),
            Some(0) => Err(Failure::new("a datagram came back")),
            Some(_) => Err(Failure::new("a datagram reached its target")),
        }
    }

    fn burst(&mut self, target: &DatagramTarget, burst: &mut Burst) -> Result<(), Failure> {
        while burst.tries < TRIES {
            self.send_missing(target, burst)?;
            let deadline = Instant::now() + TRY_TIMEOUT;
            while burst.answered.contains(&false) {
                let sockets = std::iter::once(self.socket.as_fd()).chain(target.sockets());
                match first_readable(sockets, deadline)? {
                    None => break,
                    Some(0) => self.receive_answer(target, burst)?,
                    Some(number) => self.answer(target, number - 1, burst)?,
                }
            }
            if !burst.answered.contains(&false) {
                return Ok(());
            }
        }
        let of = burst.uploads.len();
        let arrived = burst.arrived.iter().flatten().count();
        let answered = burst.answered.iter().filter(|answered| **answered).count();
        Err(Failure::new(format!(
            "of {of} datagrams {arrived} arrived and {answered} answers came back after {TRIES} \
             tries"
        )))
    }

    fn send_missing(&mut self, target: &DatagramTarget, burst: &mut Burst) -> Result<(), Failure> {
        burst.tries += 1;
        for (number, upload) in burst.uploads.iter().enumerate() {
            if burst.answered[number] {
                continue;
            }
            if burst.tries > 1 {
                self.repeated.extend([upload.clone(), burst.downloads[number].clone()]);
            }
            let wrapped = match self.wrapping {
                Wrapping::Socks5 { .. } => socks5::datagram(target.host(), target.port(), upload),
                Wrapping::Tunnel => upload.clone(),
            };
            let sent = self.socket.send(&wrapped);
            sent.map_err(Failure::io(format!("send {} bytes", wrapped.len())))?;
        }
        Ok(())
    }

    /// Receives one datagram at the target, and answers it.
    fn answer(
        &mut self,
        target: &DatagramTarget,
        socket: usize,
        burst: &mut Burst,
    ) -> Result<(), Failure> {
        let Arrival { to, from, len } = target.receive(socket, &mut self.buffer)?;
        let got = &self.buffer[..len];
        let mut equal = (0..burst.uploads.len()).filter(|&number| burst.uploads[number] == got);
        let first = equal.clone().find(|&number| burst.arrived[number].is_none());
        let Some(number) = first.or_else(|| equal.next().filter(|_| burst.tries > 1)) else {
            let got = got.to_vec();
            let wanted: Vec<&[u8]> = burst.uploads.iter().map(Vec::as_slice).collect();
            return self.pass_over(&got, &wanted).map_err(|failure| failure.of("target"));
        };
        burst.arrived[number] = Some(to);
        match burst.seen_at[socket] {
            Some(before) if before != from => {
                return Err(Failure::new(format!("target: from {before}, then from {from}")));
            }
            _ => burst.seen_at[socket] = Some(from),
        }
        target.send(socket, from, &burst.downloads[number])
    }

    /// Receives one datagram at the client.
    fn receive_answer(
        &mut self,
        target: &DatagramTarget,
        burst: &mut Burst,
    ) -> Result<(), Failure> {
        let (source, got) = self.receive()?;
        let mut missing = (0..burst.downloads.len()).filter(|&number| !burst.answered[number]);
        let Some(number) = missing.find(|&number| burst.downloads[number] == got) else {
            let wanted: Vec<&[u8]> = burst.downloads.iter().map(Vec::as_slice).collect();
            return self.pass_over(&got, &wanted).map_err(|failure| failure.of("client"));
        };
        let Some(arrived) = burst.arrived[number] else {
            return Err(Failure::new("client: an answer to what has not arrived"));
        };
        burst.answered[number] = true;
        self.check_source(source, target.host(), arrived)
    }

    fn check_source(
        &self,
        source: Option<Address>,
        host: Host,
        arrived: SocketAddr,
    ) -> Result<(), Failure> {
        let wanted = match (&self.wrapping, host) {
            (Wrapping::Socks5 { named: Named::Name, .. }, Host::Name) => {
                Address::Name("localhost".to_owned(), arrived.port())
            }
            _ => Address::Ip(arrived),
        };
        match source {
            Some(source) if source != wanted => Err(wrong(&source, wanted)),
            _ => Ok(()),
        }
    }

    /// Receives a datagram: its source, if it names one, and its payload.
    fn receive(&mut self) -> Result<(Option<Address>, Vec<u8>), Failure> {
        let received = self.socket.recv(&mut self.buffer);
        let len = received.map_err(Failure::io("receive as the client"))?;
        let datagram = &self.buffer[..len];
        match self.wrapping {
            Wrapping::Tunnel => Ok((None, datagram.to_vec())),
            Wrapping::Socks5 { .. } => {
                let (source, payload) = socks5::parse(datagram)?;
                Ok((Some(source), payload.to_vec()))
            }
        }
    }

    /// Fails unless the datagram is one that was sent more than once.
    fn pass_over(&self, got: &[u8], wanted: &[&[u8]]) -> Result<(), Failure> {
        if self.repeated.iter().any(|repeated| repeated == got) {
            return Ok(());
        }
        let same = |wanted: &&[u8]| got.iter().zip(*wanted).take_while(|(a, b)| a == b).count();
        let nearest = wanted.iter().max_by_key(|wanted| same(wanted));
        Err(Failure::new(match nearest {
            Some(wanted) if *wanted == got => format!("{} bytes came twice", got.len()),
            Some(wanted) => format!(
                "{} bytes instead of {}, wrong at offset {}",
                got.len(),
                wanted.len(),
                same(wanted)
            ),
            None => format!("{} unexpected bytes", got.len()),
        }))
    }
}

impl Burst {
    fn new(target: &DatagramTarget, lens: Lens, numbers: Range<usize>) -> Self {
        let count = numbers.len();
        let payloads =
            |seed, len| numbers.clone().map(|number| payload(seed, len, number)).collect();
        Self {
            uploads: payloads("upload", lens.upload),
            downloads: payloads("download", lens.download),
            arrived: vec![None; count],
            answered: vec![false; count],
            tries: 0,
            seen_at: vec![None; target.sockets().count()],
        }
    }
}

/// Bytes that differ between directions and numbers, in the first one already.
fn payload(seed: &str, len: usize, number: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(len);
    // Writing to a vector does not fail.
    let _ = Stream::new(&format!("{seed} {number}")).send(&mut bytes, len as u64);
    if let Some(first) = bytes.first_mut() {
        *first = number as u8 | if seed == "upload" { 0 } else { 0x80 };
    }
    bytes
}

fn wrong(source: &Address, wanted: impl fmt::Display) -> Failure {
    Failure::new(format!("client: an answer from {source} instead of {wanted}"))
}

#[cfg(test)]
mod tests;
