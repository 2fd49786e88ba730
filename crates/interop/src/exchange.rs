//! What goes over one connection, and both ends of it.
//!
//! Each end sends and receives at once, in a thread per direction, bytes that the other end knows.
//! The target keeps the last part of its stream back until it has seen the end of the client's, so
//! that a relay which takes one end of stream for two is found out.

use std::net::{Shutdown, TcpStream};
use std::panic::resume_unwind;
use std::sync::mpsc;
use std::thread::{self, ScopedJoinHandle};
use std::time::Duration;

use crate::failure::Failure;
use crate::target::Target;
use crate::traffic::{Stream, receive_end};

/// Longest that one read or write may take.
pub(crate) const STEP_TIMEOUT: Duration = Duration::from_secs(30);
const UPLOAD: &str = "upload";
const DOWNLOAD: &str = "download";

/// Who may send before having received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FirstWord {
    /// Both send at once.
    Either,
    /// The client waits for the target, so its first record carries no data.
    Target,
}

/// How the connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The client ends its stream, and the target sees that before it sends its rest.
    HalfClose,
    /// The client ends its stream when it has everything; for programs that close both
    /// directions then.
    CloseBoth,
}

/// The bytes of one connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Exchange {
    /// Bytes from the client to the target.
    pub(crate) upload: u64,
    /// Bytes from the target to the client at the same time; at least one if the target is to
    /// have the first word.
    pub(crate) download: u64,
    /// Bytes from the target after the client's last.
    pub(crate) rest: u64,
    /// Who begins.
    pub(crate) first: FirstWord,
    /// How it ends.
    pub(crate) ending: Ending,
}

impl Exchange {
    /// Runs both ends over a fresh client connection that leads to `target`.
    ///
    /// # Errors
    /// When a byte is wrong, missing or too much, or a step takes too long.
    pub(crate) fn run(&self, client: &TcpStream, target: &Target) -> Result<(), Failure> {
        thread::scope(|scope| {
            let target = scope.spawn(|| self.target_end(&target.accept()?));
            let client = self.client_end(client).map_err(|failure| failure.of("client"));
            let target = join(target).map_err(|failure| failure.of("target"));
            both(client, target)
        })
    }

    fn client_end(&self, stream: &TcpStream) -> Result<(), Failure> {
        limit(stream)?;
        let (spoken, heard) = mpsc::sync_channel(1);
        thread::scope(|scope| {
            let sender = scope.spawn(move || {
                // An error: the receiving side has failed and says why.
                if self.first == FirstWord::Target && heard.recv().is_err() {
                    return Ok(());
                }
                Stream::new(UPLOAD).send(&mut &*stream, self.upload)?;
                match self.ending {
                    Ending::HalfClose => end(stream),
                    Ending::CloseBoth => Ok(()),
                }
            });
            let received = self.receive_download(stream, spoken);
            let sent = finish(stream, &received, sender);
            both(received, sent)?;
            if self.ending == Ending::CloseBoth {
                end(stream)?;
            }
            receive_end(&mut &*stream)
        })
    }

    fn receive_download(
        &self,
        mut stream: &TcpStream,
        spoken: mpsc::SyncSender<()>,
    ) -> Result<(), Failure> {
        let mut download = Stream::new(DOWNLOAD);
        let first = self.download.min(1);
        download.receive(&mut stream, first)?;
        // Nobody listens unless the target has the first word.
        let _ = spoken.send(());
        download.receive(&mut stream, self.download + self.rest - first)
    }

    fn target_end(&self, stream: &TcpStream) -> Result<(), Failure> {
        limit(stream)?;
        thread::scope(|scope| {
            let receiver = scope.spawn(|| {
                Stream::new(UPLOAD).receive(&mut &*stream, self.upload)?;
                match self.ending {
                    Ending::HalfClose => receive_end(&mut &*stream),
                    Ending::CloseBoth => Ok(()),
                }
            });
            let mut download = Stream::new(DOWNLOAD);
            let sent = download.send(&mut &*stream, self.download);
            let received = finish(stream, &sent, receiver);
            both(sent, received)?;
            download.send(&mut &*stream, self.rest)?;
            match self.ending {
                Ending::HalfClose => end(stream),
                Ending::CloseBoth => receive_end(&mut &*stream),
            }
        })
    }
}

/// Waits for the thread of one direction; a failure of the other one stops it.
fn finish(
    stream: &TcpStream,
    other: &Result<(), Failure>,
    thread: ScopedJoinHandle<'_, Result<(), Failure>>,
) -> Result<(), Failure> {
    if other.is_err() {
        // Fails only when the connection is gone, which stops the thread as well.
        let _ = stream.shutdown(Shutdown::Both);
    }
    join(thread)
}

fn join<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| resume_unwind(panic))
}

fn both(first: Result<(), Failure>, second: Result<(), Failure>) -> Result<(), Failure> {
    match (first, second) {
        (Err(first), Err(second)) => Err(first.followed_by(&second.to_string())),
        (first, second) => first.and(second),
    }
}

fn end(stream: &TcpStream) -> Result<(), Failure> {
    stream.shutdown(Shutdown::Write).map_err(Failure::io("end a stream"))
}

/// Bounds every later read and write.
pub(crate) fn limit(stream: &TcpStream) -> Result<(), Failure> {
    stream
        .set_nodelay(true)
        .and_then(|()| stream.set_read_timeout(Some(STEP_TIMEOUT)))
        .and_then(|()| stream.set_write_timeout(Some(STEP_TIMEOUT)))
        .map_err(Failure::io("set options of a connection"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::Host;

    const PLAIN: Exchange = Exchange {
        upload: 300_000,
        download: 200_000,
        rest: 100_000,
        first: FirstWord::Either,
        ending: Ending::HalfClose,
    };

    /// Both ends without a relay in between.
    fn pair() -> (TcpStream, Target) {
        let target = Target::listen(Host::Ipv4).unwrap();
        (TcpStream::connect(("127.0.0.1", target.port())).unwrap(), target)
    }

    fn run(exchange: &Exchange) {
        let (client, target) = pair();
        exchange.run(&client, &target).unwrap();
    }

    #[test]
    fn every_kind_works_without_a_relay() {
        for first in [FirstWord::Either, FirstWord::Target] {
            for ending in [Ending::HalfClose, Ending::CloseBoth] {
                run(&Exchange { first, ending, ..PLAIN });
                run(&Exchange { first, ending, upload: 1, download: 1, rest: 1 });
            }
        }
    }

    #[test]
    fn an_early_end_fails_both_ends() {
        let (stream, target) = pair();
        stream.shutdown(Shutdown::Write).unwrap();
        let words = PLAIN.run(&stream, &target).unwrap_err().to_string();
        assert!(words.starts_with("client: "), "{words}");
        assert!(words.contains("\ntarget: "), "{words}");
    }
}
