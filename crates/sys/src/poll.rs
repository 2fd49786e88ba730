//! Readiness: one epoll instance and an eventfd to wake it from another thread.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};

/// Events fetched by one wait.
pub const EVENTS_MAX: usize = 256;

/// What a registration waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    /// Readable, writable and hang-up, once per change (edge-triggered).
    Stream,
    /// As [`Interest::Stream`] without writable: a connected socket is that to begin with, and
    /// being told so costs a wake-up. See [`Poll::watch_room`].
    Arrivals,
    /// Readable for as long as there is something to read (level-triggered).
    Level,
    /// As [`Interest::Level`] and writable; for short-lived sockets off the hot path.
    LevelBoth,
}

/// One thing that became ready.
#[derive(Clone, Copy, Debug)]
pub struct Ready {
    /// The token it was registered with.
    pub token: u64,
    /// There may be bytes, or an end, to read.
    pub readable: bool,
    /// There may be room to write, or a connect has ended.
    pub writable: bool,
    /// The peer has shut its writing side or the socket has failed: read until the end shows.
    pub hang_up: bool,
    /// The socket has failed, or both its sides are shut.
    pub failed: bool,
}

/// The events of one wait; made on the thread that waits.
pub struct Events {
    events: Box<[epoll::Event; EVENTS_MAX]>,
    len: usize,
}

impl Default for Events {
    fn default() -> Self {
        Self::new()
    }
}

impl Events {
    /// Room for [`EVENTS_MAX`] events.
    pub fn new() -> Self {
        let none =
            epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) };
        Self { events: Box::new([none; EVENTS_MAX]), len: 0 }
    }

    /// Whether the last wait brought nothing.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The events, in the order the kernel gave them.
    pub fn iter(&self) -> impl Iterator<Item = Ready> {
        use epoll::EventFlags as F;
        self.events[..self.len].iter().map(|event| {
            let flags = event.flags;
            let failed = flags.intersects(F::ERR | F::HUP);
            Ready {
                token: event.data.u64(),
                readable: failed || flags.intersects(F::IN | F::RDHUP),
                writable: failed || flags.contains(F::OUT),
                hang_up: failed || flags.contains(F::RDHUP),
                failed,
            }
        })
    }
}

/// What [`Interest::Stream`] asks for.
const STREAM: epoll::EventFlags = epoll::EventFlags::IN
    .union(epoll::EventFlags::OUT)
    .union(epoll::EventFlags::RDHUP)
    .union(epoll::EventFlags::ET);

/// An epoll instance.
pub struct Poll(OwnedFd);

impl Poll {
    /// Makes an epoll instance.
    ///
    /// # Errors
    /// Out of descriptors or memory.
    pub fn new() -> io::Result<Self> {
        Ok(Self(epoll::create(epoll::CreateFlags::CLOEXEC)?))
    }

    /// Registers a descriptor; closing it removes the registration.
    ///
    /// # Errors
    /// Out of watches or memory.
    pub fn add(&self, fd: impl AsFd, token: u64, interest: Interest) -> io::Result<()> {
        use epoll::EventFlags as F;
        let flags = match interest {
            Interest::Stream => STREAM,
            Interest::Arrivals => F::IN | F::RDHUP | F::ET,
            Interest::Level => F::IN,
            Interest::LevelBoth => F::IN | F::OUT,
        };
        Ok(epoll::add(&self.0, fd, epoll::EventData::new_u64(token), flags)?)
    }

    /// Makes an [`Interest::Arrivals`] registration an [`Interest::Stream`] one. What is ready at
    /// this moment is told once more, so room that came since the last write is not missed.
    ///
    /// # Errors
    /// The descriptor is not registered.
    pub fn watch_room(&self, fd: impl AsFd, token: u64) -> io::Result<()> {
        Ok(epoll::modify(&self.0, fd, epoll::EventData::new_u64(token), STREAM)?)
    }

    /// Changes a registration between readable only and nothing: pauses and resumes a listener.
    ///
    /// # Errors
    /// The descriptor is not registered.
    pub fn set_listening(&self, fd: impl AsFd, token: u64, on: bool) -> io::Result<()> {
        let flags = if on { epoll::EventFlags::IN } else { epoll::EventFlags::empty() };
        Ok(epoll::modify(&self.0, fd, epoll::EventData::new_u64(token), flags)?)
    }

    /// Waits until something is ready or `timeout` has passed (rounded up to a millisecond);
    /// `None` waits for ever. An interrupted wait brings no events.
    ///
    /// # Errors
    /// Only for a broken epoll descriptor.
    pub fn wait(&self, events: &mut Events, timeout: Option<Duration>) -> io::Result<()> {
        let timeout = timeout.map(round_up_to_ms);
        events.len = match epoll::wait(&self.0, &mut events.events[..], timeout.as_ref()) {
            Ok(n) => n,
            Err(rustix::io::Errno::INTR) => 0,
            Err(e) => return Err(e.into()),
        };
        Ok(())
    }
}

/// An epoll instance is readable while one of its registrations is ready, so they nest.
impl AsFd for Poll {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn round_up_to_ms(timeout: Duration) -> Timespec {
    let ms = timeout.as_nanos().div_ceil(1_000_000);
    let ms = i64::try_from(ms).unwrap_or(i64::MAX / 2);
    Timespec { tv_sec: ms / 1000, tv_nsec: (ms % 1000) * 1_000_000 }
}

/// Wakes a [`Poll`] from another thread.
pub struct Waker(OwnedFd);

impl Waker {
    /// Makes a waker; register it with [`Interest::Level`].
    ///
    /// # Errors
    /// Out of descriptors.
    pub fn new() -> io::Result<Self> {
        Ok(Self(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    /// Makes the poll that watches this waker return.
    pub fn wake(&self) {
        // The only failure is a counter at its limit, and then the poll is awake already.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    /// Takes the wake-up back, so that the next wait sleeps.
    pub fn clear(&self) {
        let mut count = [0; 8];
        // Nothing to take back is fine.
        let _ = rustix::io::read(&self.0, &mut count);
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
