//! Random bytes from the system, bought in blocks: one system call serves many salts.
//!
//! One generator per worker, passed to whoever needs it; there is no global one. Bytes are wiped
//! from the buffer as they are handed out, so that the buffer never tells past output. It does hold
//! future output: a process that forks must make a new generator in the child.

use std::fmt;

use zeroize::Zeroize;

use crate::prepare_thread;

/// One system call fetches this much: 16 salts of 32 bytes.
const BUFFER_LEN: usize = 512;

/// The system refused to give random bytes. Local resource: the program cannot start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RngError(getrandom::Error);

impl RngError {
    /// A stable word for metrics and logs.
    pub const fn as_label(self) -> &'static str {
        "random_source"
    }
}

impl fmt::Display for RngError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the system gives no random bytes: {}", self.0)
    }
}

impl std::error::Error for RngError {}

/// A buffered generator over the system's random source.
pub struct Rng {
    buffer: [u8; BUFFER_LEN],
    /// Bytes of `buffer` that were handed out and wiped; the rest is fresh.
    used: usize,
}

impl Rng {
    /// Makes a generator and fills its buffer; also prepares the thread for the backend.
    ///
    /// # Errors
    /// [`RngError`] when the system has no random source.
    pub fn new() -> Result<Self, RngError> {
        prepare_thread();
        let mut rng = Self { buffer: [0; BUFFER_LEN], used: 0 };
        getrandom::fill(&mut rng.buffer).map_err(RngError)?;
        Ok(rng)
    }

    /// Fills `out` with random bytes.
    ///
    /// # Panics
    /// When the system source fails after it served [`Rng::new`], which no supported system does.
    /// To go on would mean predictable salts.
    pub fn fill(&mut self, out: &mut [u8]) {
        if out.len() >= BUFFER_LEN {
            system_fill(out);
            return;
        }
        let mut rest = out;
        while !rest.is_empty() {
            if self.used == BUFFER_LEN {
                system_fill(&mut self.buffer);
                self.used = 0;
            }
            let fresh = &mut self.buffer[self.used..];
            let len = fresh.len().min(rest.len());
            let (head, tail) = rest.split_at_mut(len);
            head.copy_from_slice(&fresh[..len]);
            fresh[..len].zeroize();
            self.used += len;
            rest = tail;
        }
    }

    /// A random number.
    ///
    /// # Panics
    /// As [`Rng::fill`].
    pub fn u64(&mut self) -> u64 {
        let mut bytes = [0; 8];
        self.fill(&mut bytes);
        u64::from_le_bytes(bytes)
    }

    /// A random number below `n`, each as likely as the others.
    ///
    /// # Panics
    /// When `n` is zero, and as [`Rng::fill`].
    pub fn below(&mut self, n: u32) -> u32 {
        assert!(n > 0, "nothing is below zero");
        // Lemire's method: the high half of a 64-bit product is the result; the low half says
        // whether the draw is among the 2^32 mod n that would favour some results.
        let biased = n.wrapping_neg() % n;
        loop {
            let mut bytes = [0; 4];
            self.fill(&mut bytes);
            let product = u64::from(u32::from_le_bytes(bytes)) * u64::from(n);
            if product as u32 >= biased {
                return (product >> 32) as u32;
            }
        }
    }
}

impl Drop for Rng {
    fn drop(&mut self) {
        self.buffer.zeroize();
    }
}

fn system_fill(out: &mut [u8]) {
    if let Err(error) = getrandom::fill(out) {
        panic!("the system's random source failed while running: {error}");
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn fills_every_length_with_bytes_that_do_not_repeat() {
        let mut rng = Rng::new().unwrap();
        let mut seen = BTreeSet::new();
        for len in (8..80).chain(BUFFER_LEN - 2..BUFFER_LEN + 3).chain([5000]) {
            let mut out = vec![0; len];
            rng.fill(&mut out);
            assert!(seen.insert(out[..8].to_vec()));
            assert!(seen.insert(out[len - 8..].to_vec()) || len < 16);
        }
        rng.fill(&mut []);
    }

    #[test]
    fn wipes_what_it_handed_out_and_keeps_the_rest() {
        let mut rng = Rng::new().unwrap();
        let fresh = rng.buffer;
        let mut out = [0; 100];
        rng.fill(&mut out);
        assert_eq!(out, fresh[..100]);
        assert_eq!(rng.buffer[..100], [0; 100]);
        assert_eq!(rng.buffer[100..], fresh[100..]);
    }

    #[test]
    fn refills_in_the_middle_of_a_request() {
        let mut rng = Rng::new().unwrap();
        rng.fill(&mut [0; BUFFER_LEN - 4]);
        let last = rng.buffer[BUFFER_LEN - 4..].to_vec();
        let mut out = [0; 32];
        rng.fill(&mut out);
        assert_eq!(out[..4], last);
        assert_eq!(rng.used, 28);
        assert_ne!(out[4..], [0; 28]);
    }

    #[test]
    fn below_stays_below_and_reaches_every_value() {
        let mut rng = Rng::new().unwrap();
        for n in [1, 2, 3, 5, 6, 7, 255, 256, 900] {
            let mut counts = vec![0_u32; n as usize];
            for _ in 0..n * 60 {
                counts[rng.below(n) as usize] += 1;
            }
            // A mean of 60: a count of 0 or of 180 has a chance below e^-59.
            assert!(counts.iter().all(|&c| c < 180 && c > 0), "{n}: {counts:?}");
        }
        for n in [(1 << 31) - 1, 1 << 31, (1 << 31) + 1, u32::MAX] {
            assert!((0..1000).all(|_| rng.below(n) < n));
        }
    }

    #[test]
    #[should_panic(expected = "nothing is below zero")]
    fn below_zero_is_caller_misuse() {
        Rng::new().unwrap().below(0);
    }

    #[test]
    fn numbers_do_not_repeat() {
        let mut rng = Rng::new().unwrap();
        let seen: BTreeSet<_> = (0..1000).map(|_| rng.u64()).collect();
        assert_eq!(seen.len(), 1000);
    }
}
