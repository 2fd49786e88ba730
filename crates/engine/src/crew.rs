//! What the workers of a process pass to each other: datagrams of a session that another has.
//!
//! The kernel picks a worker by a datagram's source address. A 2022 client whose address changes
//! may land on a worker that does not have its session; that one sends the datagram, as it came,
//! to the one that has. It is the exception, and bounded: what does not fit is dropped, as a full
//! socket queue would.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use adit_sys::datagram::Route;
use adit_sys::poll::Waker;

use crate::worker::ListenerId;

/// Datagrams and bytes that wait for a worker at most.
const PARCELS_MAX: usize = 512;
const PARCEL_BYTES_MAX: usize = 1 << 20;

/// The workers of a process, as they know each other.
pub struct Crew {
    members: Box<[Member]>,
}

struct Member {
    waker: Arc<Waker>,
    parcels: Mutex<Parcels>,
}

/// A datagram on its way to another worker.
#[derive(Clone, Copy)]
pub(crate) struct Parcel {
    /// The listener it came in by.
    pub(crate) listener: ListenerId,
    /// The way back to its sender; the token in it is for the receiving worker to fill in.
    pub(crate) reply: Route,
    pub(crate) len: usize,
}

/// Datagrams that wait for a worker.
pub(crate) struct Parcels {
    parcels: Vec<Parcel>,
    bytes: Vec<u8>,
}

impl Parcels {
    /// Without any memory.
    pub(crate) const EMPTY: Self = Self { parcels: Vec::new(), bytes: Vec::new() };

    pub(crate) fn new() -> Self {
        Self {
            parcels: Vec::with_capacity(PARCELS_MAX),
            bytes: Vec::with_capacity(PARCEL_BYTES_MAX),
        }
    }

    /// The datagrams in the order in which they came.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Parcel, &[u8])> {
        let mut rest = self.bytes.as_slice();
        self.parcels.iter().map(move |parcel| {
            let (bytes, behind) = rest.split_at(parcel.len);
            rest = behind;
            (*parcel, bytes)
        })
    }

    fn push(&mut self, listener: ListenerId, reply: Route, bytes: &[u8]) -> bool {
        let fits =
            self.parcels.len() < PARCELS_MAX && self.bytes.len() + bytes.len() <= PARCEL_BYTES_MAX;
        if fits {
            self.parcels.push(Parcel { listener, reply, len: bytes.len() });
            self.bytes.extend_from_slice(bytes);
        }
        fits
    }

    fn clear(&mut self) {
        self.parcels.clear();
        self.bytes.clear();
    }
}

impl Crew {
    /// Makes ready for `workers` workers.
    ///
    /// # Errors
    /// Out of descriptors.
    pub fn new(workers: u16) -> io::Result<Arc<Self>> {
        let member =
            |_| Ok(Member { waker: Arc::new(Waker::new()?), parcels: Mutex::new(Parcels::new()) });
        let members = (0..workers).map(member).collect::<io::Result<_>>()?;
        Ok(Arc::new(Self { members }))
    }

    pub(crate) fn waker(&self, worker: u16) -> &Arc<Waker> {
        &self.members[usize::from(worker)].waker
    }

    /// Sends a datagram to the worker that has its session; false when there is no room.
    pub(crate) fn forward(
        &self,
        worker: u16,
        listener: ListenerId,
        reply: Route,
        bytes: &[u8],
    ) -> bool {
        let Some(member) = self.members.get(usize::from(worker)) else { return false };
        // A worker that panicked ends the process.
        let mut parcels = member.parcels.lock().unwrap_or_else(PoisonError::into_inner);
        let was_empty = parcels.parcels.is_empty();
        let fits = parcels.push(listener, reply, bytes);
        drop(parcels);
        if fits && was_empty {
            member.waker.wake();
        }
        fits
    }

    /// Takes what waits for a worker, in exchange for what it has worked off.
    pub(crate) fn take(&self, worker: u16, spare: &mut Parcels) {
        spare.clear();
        let member = &self.members[usize::from(worker)];
        let mut parcels = member.parcels.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::swap(&mut *parcels, spare);
    }
}
