//! Bulk streams: blocking threads with 128 KiB buffers at both ends.
//!
//! A client says in a 16-byte header what it wants of the target: sink (count and forget), source
//! (send until closed) or check (verify a position-dependent pattern, then send another one). The
//! timed passes use sink and source, whose cost is one read or write per buffer; the check pass
//! compares every byte of both directions.
//!
//! Bytes count where they arrive. Ending a pass shuts the sockets down; an error before that is a
//! failure of the measured path and is reported.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::pattern::Pattern;
use super::{Destination, Direction, Entry, socks};
use crate::error::{Context, Error};

const BUFFER_LEN: usize = 128 * 1024;
const HEADER_LEN: usize = 16;
/// Seeds of the two directions of a check.
const SEED_UP: u64 = 0x7570;
const SEED_DOWN: u64 = 0x646f_776e;
/// The target's word that all it received was right.
const VERDICT_GOOD: u8 = b'+';

/// What a client asks of the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Service {
    Sink,
    Source,
    Check(u64),
}

impl Service {
    fn header(self) -> [u8; HEADER_LEN] {
        let (word, len) = match self {
            Self::Sink => (b'U', 0),
            Self::Source => (b'D', 0),
            Self::Check(len) => (b'C', len),
        };
        let mut header = [0; HEADER_LEN];
        header[0] = word;
        header[8..].copy_from_slice(&len.to_be_bytes());
        header
    }

    fn parse(header: [u8; HEADER_LEN]) -> io::Result<Self> {
        let [word, _, _, _, _, _, _, _, len @ ..] = header;
        match word {
            b'U' => Ok(Self::Sink),
            b'D' => Ok(Self::Source),
            b'C' => Ok(Self::Check(u64::from_be_bytes(len))),
            _ => Err(io::Error::other("unknown header")),
        }
    }
}

/// A running target; stopped when dropped.
pub(crate) struct StreamTarget {
    addr: SocketAddr,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    /// Bytes that sinks have taken.
    received: AtomicU64,
    /// Every connection, to be shut down at the end.
    sockets: Mutex<Vec<TcpStream>>,
}

impl StreamTarget {
    /// Listens on a free port of 127.0.0.1.
    pub(crate) fn start() -> Result<Self, Error> {
        let context = || "cannot start the stream target".to_owned();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context(context)?;
        let addr = listener.local_addr().context(context)?;
        let shared = Arc::new(Shared::default());
        let for_thread = Arc::clone(&shared);
        let thread = thread::Builder::new()
            .name("stream-target".to_owned())
            .spawn(move || accept_all(&listener, &for_thread))
            .context(context)?;
        Ok(Self { addr, shared, thread: Some(thread) })
    }

    fn destination(&self) -> Destination {
        Destination::Ip(self.addr)
    }
}

impl Drop for StreamTarget {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        self.shared.shut_down_all();
        // Wakes the thread from accept. If that fails the thread is left behind, asleep.
        if TcpStream::connect_timeout(&self.addr, Duration::from_secs(1)).is_err() {
            crate::report::note("cannot stop the stream target");
        } else if self.thread.take().is_some_and(|t| t.join().is_err()) {
            crate::report::note("the stream target panicked");
        }
    }
}

impl Shared {
    fn shut_down_all(&self) {
        let mut sockets = self.sockets.lock().unwrap_or_else(PoisonError::into_inner);
        for socket in sockets.drain(..) {
            // Fails when the other side has gone already.
            let _ = socket.shutdown(Shutdown::Both);
        }
    }

    /// Remembers a socket, unless the end has come.
    fn keep(&self, stream: &TcpStream) -> io::Result<()> {
        let clone = stream.try_clone()?;
        let mut sockets = self.sockets.lock().unwrap_or_else(PoisonError::into_inner);
        if self.stop.load(Ordering::Acquire) {
            return Err(io::Error::other("stopped"));
        }
        sockets.push(clone);
        Ok(())
    }
}

fn accept_all(listener: &TcpListener, shared: &Arc<Shared>) {
    let mut threads = Vec::new();
    loop {
        let accepted = listener.accept();
        if shared.stop.load(Ordering::Acquire) {
            break;
        }
        match accepted {
            Ok((stream, _)) => {
                let shared = Arc::clone(shared);
                threads.push(thread::spawn(move || {
                    // An error here is the client's end of the pass, or shows at the client.
                    let _ = shared.keep(&stream).and_then(|()| serve(stream, &shared));
                }));
            }
            Err(error) => {
                crate::report::note(&format!("the stream target cannot accept: {error}"));
                break;
            }
        }
    }
    for thread in threads {
        if thread.join().is_err() {
            crate::report::note("a thread of the stream target panicked");
        }
    }
}

fn serve(mut stream: TcpStream, shared: &Shared) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut header = [0; HEADER_LEN];
    stream.read_exact(&mut header)?;
    let mut buffer = vec![0xa5; BUFFER_LEN];
    match Service::parse(header)? {
        Service::Sink => drain(&mut stream, &mut buffer, &shared.received),
        Service::Source => loop {
            stream.write_all(&buffer)?;
        },
        Service::Check(len) => {
            let good = receive_pattern(&mut stream, &mut buffer, SEED_UP, len)?;
            stream.write_all(&[if good { VERDICT_GOOD } else { b'-' }])?;
            send_pattern(&mut stream, &mut buffer, SEED_DOWN, len)?;
            // The client closes first, so that the last bytes are not lost to a reset.
            stream.read(&mut buffer).map(drop)
        }
    }
}

fn drain(stream: &mut TcpStream, buffer: &mut [u8], count: &AtomicU64) -> io::Result<()> {
    loop {
        match stream.read(buffer)? {
            0 => return Ok(()),
            len => count.fetch_add(len as u64, Ordering::Relaxed),
        };
    }
}

fn send_pattern(stream: &mut TcpStream, buffer: &mut [u8], seed: u64, len: u64) -> io::Result<()> {
    let mut pattern = Pattern::new(seed);
    let mut left = len;
    while left > 0 {
        let take = left.min(buffer.len() as u64) as usize;
        pattern.fill(&mut buffer[..take]);
        stream.write_all(&buffer[..take])?;
        left -= take as u64;
    }
    Ok(())
}

/// Reads exactly `len` bytes; whether all were right.
fn receive_pattern(
    stream: &mut TcpStream,
    buffer: &mut [u8],
    seed: u64,
    len: u64,
) -> io::Result<bool> {
    let mut pattern = Pattern::new(seed);
    let mut left = len;
    let mut good = true;
    while left > 0 {
        let most = left.min(buffer.len() as u64) as usize;
        let read = stream.read(&mut buffer[..most])?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        good &= pattern.check(&buffer[..read]);
        left -= read as u64;
    }
    Ok(good)
}

/// Sends `len` bytes each way and compares every one.
pub(crate) fn check(entry: Entry, target: &StreamTarget, len: u64) -> Result<(), Error> {
    let context = || "the check pass failed".to_owned();
    let mut stream = socks::open(entry, &target.destination()).context(context)?;
    let mut buffer = vec![0; BUFFER_LEN];
    let mut exchange = || -> io::Result<[bool; 2]> {
        stream.write_all(&Service::Check(len).header())?;
        send_pattern(&mut stream, &mut buffer, SEED_UP, len)?;
        let mut verdict = [0];
        stream.read_exact(&mut verdict)?;
        let down = receive_pattern(&mut stream, &mut buffer, SEED_DOWN, len)?;
        Ok([verdict == [VERDICT_GOOD], down])
    };
    match exchange().context(context)? {
        [true, true] => Ok(()),
        [up, down] => Err(Error::Run(format!(
            "payload was damaged on the way (up good: {up}, down good: {down})"
        ))),
    }
}

/// Streams under way; they run until [`Streams::finish`].
pub(crate) struct Streams<'a> {
    target: &'a StreamTarget,
    direction: Direction,
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<io::Result<()>>>,
}

impl<'a> Streams<'a> {
    /// Opens `count` connections, then starts moving bytes on all of them.
    pub(crate) fn start(
        entry: Entry,
        target: &'a StreamTarget,
        direction: Direction,
        count: usize,
    ) -> Result<Self, Error> {
        let context = || "cannot open the streams".to_owned();
        let mut streams =
            Self { target, direction, shared: Arc::new(Shared::default()), threads: Vec::new() };
        let opened = (0..count)
            .map(|_| socks::open(entry, &target.destination()))
            .collect::<io::Result<Vec<_>>>();
        for stream in opened.context(context)? {
            streams.shared.keep(&stream).context(context)?;
            let shared = Arc::clone(&streams.shared);
            let run = move || client(stream, direction, &shared);
            let thread = thread::Builder::new().name("stream".to_owned()).spawn(run);
            streams.threads.push(thread.context(context)?);
        }
        Ok(streams)
    }

    /// Bytes that have arrived so far.
    pub(crate) fn delivered(&self) -> u64 {
        let shared = match self.direction {
            Direction::Up => &self.target.shared,
            Direction::Down => &self.shared,
        };
        shared.received.load(Ordering::Relaxed)
    }

    /// Ends all streams; fails if one had failed before.
    pub(crate) fn finish(mut self) -> Result<(), Error> {
        self.end().context(|| "a stream failed".to_owned())
    }

    fn end(&mut self) -> io::Result<()> {
        self.shared.stop.store(true, Ordering::Release);
        self.shared.shut_down_all();
        let mut outcome = Ok(());
        for thread in self.threads.drain(..) {
            let ended = thread.join();
            let ended = ended.unwrap_or_else(|_| Err(io::Error::other("a thread panicked")));
            outcome = outcome.and(ended);
        }
        outcome
    }
}

impl Drop for Streams<'_> {
    fn drop(&mut self) {
        // After `finish` there is nothing left to end; without it another error is on its way.
        let _ = self.end();
    }
}

fn client(mut stream: TcpStream, direction: Direction, shared: &Shared) -> io::Result<()> {
    let mut buffer = vec![0x5a; BUFFER_LEN];
    let mut work = || -> io::Result<()> {
        match direction {
            Direction::Up => {
                stream.write_all(&Service::Sink.header())?;
                loop {
                    stream.write_all(&buffer)?;
                }
            }
            Direction::Down => {
                stream.write_all(&Service::Source.header())?;
                drain(&mut stream, &mut buffer, &shared.received)
            }
        }
    };
    let outcome = work();
    if shared.stop.load(Ordering::Acquire) {
        return Ok(());
    }
    outcome.and_then(|()| Err(io::Error::other("closed by the other side")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_every_byte_both_ways() {
        let target = StreamTarget::start().unwrap();
        check(Entry::Direct, &target, 1_000_003).unwrap();
    }

    #[test]
    fn moves_bytes_in_each_direction() {
        let target = StreamTarget::start().unwrap();
        for direction in [Direction::Up, Direction::Down] {
            let streams = Streams::start(Entry::Direct, &target, direction, 3).unwrap();
            let before = streams.delivered();
            while streams.delivered() < before + (1 << 20) {
                thread::yield_now();
            }
            streams.finish().unwrap();
        }
    }

    #[test]
    fn reports_a_stream_that_ended_early() {
        let target = StreamTarget::start().unwrap();
        let streams = Streams::start(Entry::Direct, &target, Direction::Down, 2).unwrap();
        while streams.delivered() == 0 {
            thread::yield_now();
        }
        drop(StreamTarget { addr: target.addr, shared: Arc::clone(&target.shared), thread: None });
        while !streams.threads.iter().all(JoinHandle::is_finished) {
            thread::yield_now();
        }
        assert!(streams.finish().is_err());
    }

    #[test]
    fn headers_round_trip() {
        for service in [Service::Sink, Service::Source, Service::Check(77)] {
            assert_eq!(Service::parse(service.header()).unwrap(), service);
        }
        assert!(Service::parse([0; HEADER_LEN]).is_err());
    }
}
