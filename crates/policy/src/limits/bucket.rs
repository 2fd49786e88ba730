//! A token bucket: bytes at a rate, with a burst of one period.

use super::ByteRate;

/// What a [`Bucket`] gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grant {
    /// So many bytes now, at least 1.
    Now(u64),
    /// Nothing before this time, in the unit of `now_ms`.
    At(u64),
}

/// Bytes at a rate. TCP is shaped by it ([`Bucket::grant`]), UDP policed ([`Bucket::admit`]).
///
/// In any time of `t` seconds it gives at most `burst + rate * t` bytes, and over a long time with
/// enough demand exactly `rate`: fractions of bytes are kept as time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bucket {
    rate: ByteRate,
    level: u64,
    /// Tokens that are less than a byte, in `bytes * ms / (1000 * seconds)`.
    fraction: u64,
    filled_ms: u64,
}

/// Bytes that are worth a system call: a grant waits until there are so many, unless less is wanted
/// or the whole burst is less.
const GRANT_MIN: u64 = 4096;

impl Bucket {
    /// A full bucket.
    pub const fn new(rate: ByteRate, now_ms: u64) -> Self {
        Self { rate, level: rate.bytes, fraction: 0, filled_ms: now_ms }
    }

    /// The rate that it was made with.
    pub const fn rate(&self) -> ByteRate {
        self.rate
    }

    /// Changes the rate; what is in the bucket stays, as far as it fits.
    pub fn retune(&mut self, rate: ByteRate, now_ms: u64) {
        if rate != self.rate {
            self.fill(now_ms);
            self.rate = rate;
            self.level = self.level.min(rate.bytes);
            self.fraction = 0;
        }
    }

    /// Bytes that may pass now, without taking any.
    pub fn level(&mut self, now_ms: u64) -> u64 {
        self.fill(now_ms);
        self.level
    }

    /// Takes up to `want` bytes (at least 1 is wanted), or says when to come back.
    pub fn grant(&mut self, want: u64, now_ms: u64) -> Grant {
        self.fill(now_ms);
        let want = want.max(1);
        let least = want.min(GRANT_MIN).min(self.rate.bytes);
        if self.level >= least {
            let given = want.min(self.level);
            self.level -= given;
            return Grant::Now(given);
        }
        let missing = u128::from(least - self.level) * self.unit() - u128::from(self.fraction);
        let wait_ms = missing.div_ceil(u128::from(self.rate.bytes));
        Grant::At(now_ms.saturating_add(u64::try_from(wait_ms).unwrap_or(u64::MAX)))
    }

    /// Gives back bytes that were granted and did not pass.
    pub fn give_back(&mut self, bytes: u64) {
        self.level = self.level.saturating_add(bytes).min(self.rate.bytes);
    }

    /// Takes all of `len` bytes if they are there: true if the datagram may pass.
    pub fn admit(&mut self, len: u64, now_ms: u64) -> bool {
        self.fill(now_ms);
        let passes = len <= self.level;
        if passes {
            self.level -= len;
        }
        passes
    }

    /// True if nothing was taken for so long that it is full: it says no more than a new one.
    pub fn is_full(&mut self, now_ms: u64) -> bool {
        self.level(now_ms) == self.rate.bytes
    }

    /// Milliseconds of one byte, times the bytes of a period.
    fn unit(&self) -> u128 {
        1000 * u128::from(self.rate.seconds)
    }

    fn fill(&mut self, now_ms: u64) {
        let elapsed = now_ms.saturating_sub(self.filled_ms);
        if elapsed == 0 {
            return;
        }
        self.filled_ms = now_ms;
        let unit = self.unit();
        let credit = u128::from(elapsed) * u128::from(self.rate.bytes) + u128::from(self.fraction);
        let bytes = credit / unit;
        if bytes >= u128::from(self.rate.bytes - self.level) {
            self.level = self.rate.bytes;
            self.fraction = 0;
        } else {
            // Less than the capacity, and the remainder less than `unit`, which is below 2^43.
            self.level += u64::try_from(bytes).unwrap_or_default();
            self.fraction = u64::try_from(credit % unit).unwrap_or_default();
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bucket(bytes: u64, seconds: u32) -> Bucket {
        Bucket::new(ByteRate::new(bytes, seconds).unwrap(), 1000)
    }

    #[test]
    fn gives_the_burst_and_then_the_rate() {
        let mut bucket = bucket(10_000, 1);
        assert_eq!(bucket.grant(64_000, 1000), Grant::Now(10_000));
        // 4096 bytes take 409.6 ms.
        assert_eq!(bucket.grant(64_000, 1000), Grant::At(1410));
        assert_eq!(bucket.grant(64_000, 1409), Grant::At(1410));
        assert_eq!(bucket.grant(64_000, 1410), Grant::Now(4100));
        assert_eq!(bucket.grant(5, 1410), Grant::At(1411));
        assert_eq!(bucket.grant(5, 1411), Grant::Now(5));
        bucket.give_back(5);
        assert_eq!(
            bucket.grant(64_000, 1_000_000),
            Grant::Now(10_000),
            "never more than the burst"
        );
    }

    #[test]
    fn polices_whole_datagrams() {
        let mut bucket = bucket(3000, 2);
        assert!(bucket.admit(1500, 1000) && bucket.admit(1500, 1000) && !bucket.admit(1, 1000));
        assert!(!bucket.admit(1500, 1999) && bucket.admit(1500, 2000));
        assert!(!bucket.admit(3001, u64::MAX), "larger than the burst: never");
    }

    #[test]
    fn a_clock_that_steps_back_gives_nothing() {
        let mut bucket = bucket(1000, 1);
        assert_eq!(bucket.grant(1000, 1000), Grant::Now(1000));
        assert_eq!(bucket.level(0), 0);
        assert_eq!(bucket.level(1500), 500);
    }

    #[test]
    fn a_slow_rate_is_kept_exactly() {
        // One byte in ten seconds, asked every millisecond.
        let mut bucket = bucket(1, 10);
        assert!(bucket.admit(1, 1000));
        let given = (1001..=101_000).filter(|&now| bucket.admit(1, now)).count();
        assert_eq!(given, 10);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]

        /// Never above burst and rate in any window from the start, and a promise is kept: at the
        /// time that was named something is given.
        #[test]
        fn keeps_the_rate(
            bytes in 1u64..100_000, seconds in 1u32..100,
            steps in prop::collection::vec((0u64..5000, 1u64..100_000), 1..60),
        ) {
            let mut bucket = bucket(bytes, seconds);
            let (mut now, mut given) = (1000, 0u128);
            for (wait, want) in steps {
                now += wait;
                match bucket.grant(want, now) {
                    Grant::Now(got) => {
                        prop_assert!(got >= 1 && got <= want);
                        given += u128::from(got);
                    }
                    Grant::At(at) => {
                        prop_assert!(at > now);
                        let mut early = bucket;
                        prop_assert!(matches!(early.grant(want, at - 1), Grant::At(_)));
                        let mut then = bucket;
                        prop_assert!(matches!(then.grant(want, at), Grant::Now(_)));
                    }
                }
                let budget = u128::from(bytes)
                    + u128::from(now - 1000) * u128::from(bytes) / (1000 * u128::from(seconds));
                prop_assert!(given <= budget, "{given} of {budget}");
            }
        }
    }
}
