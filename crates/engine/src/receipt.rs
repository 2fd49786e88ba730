//! How a worker tells that it has done what it was told.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use adit_sys::poll::Waker;

/// Receipts that are out; made on the thread that gives orders.
pub struct Receipts {
    open: Arc<AtomicUsize>,
    waker: Arc<Waker>,
}

/// Goes to a worker behind other orders. Dropping it, which a worker that ends does too, says that
/// they have been carried out.
pub struct Receipt {
    open: Arc<AtomicUsize>,
    waker: Arc<Waker>,
}

impl Receipts {
    /// None are out. `waker` is woken whenever one comes back.
    pub fn new(waker: Arc<Waker>) -> Self {
        Self { open: Arc::default(), waker }
    }

    /// One more.
    pub fn issue(&self) -> Receipt {
        self.open.fetch_add(1, Ordering::Relaxed);
        Receipt { open: Arc::clone(&self.open), waker: Arc::clone(&self.waker) }
    }

    /// Whether all have come back.
    pub fn are_in(&self) -> bool {
        self.open.load(Ordering::Acquire) == 0
    }
}

impl Drop for Receipt {
    fn drop(&mut self) {
        self.open.fetch_sub(1, Ordering::Release);
        self.waker.wake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use adit_sys::poll::{Events, Interest, Poll};

    #[test]
    fn the_last_one_back_wakes_and_tells() {
        let waker = Arc::new(Waker::new().unwrap());
        let poll = Poll::new().unwrap();
        poll.add(&*waker, 7, Interest::Level).unwrap();
        let receipts = Receipts::new(waker);
        assert!(receipts.are_in());
        let (first, second) = (receipts.issue(), receipts.issue());
        drop(first);
        assert!(!receipts.are_in());
        std::thread::spawn(move || drop(second));
        let mut events = Events::new();
        while !receipts.are_in() {
            poll.wait(&mut events, None).unwrap();
        }
    }
}
