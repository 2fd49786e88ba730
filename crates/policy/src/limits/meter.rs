//! Counts for each client, user, rule or listener: sessions begun, sessions at once, failed
//! logins, bytes.

use super::bucket::{Bucket, Grant};
use super::table::{Subject, Table};
use super::{ByteRate, Rate};

/// What every subject of a [`Meter`] may use. `None` is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MeterLimits {
    /// New sessions, in fixed windows that begin with the first.
    pub sessions_rate: Option<Rate>,
    /// Sessions at once.
    pub sessions_max: Option<u32>,
    /// Failed logins, in fixed windows; while it is reached nothing begins.
    pub failures_rate: Option<Rate>,
    /// Bytes, both directions together.
    pub bandwidth: Option<ByteRate>,
}

/// Why nothing may begin. Tell the client that it is not allowed, and write the label to the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Refusal {
    /// [`MeterLimits::failures_rate`].
    Failures,
    /// [`MeterLimits::sessions_max`].
    Sessions,
    /// [`MeterLimits::sessions_rate`].
    Rate,
    /// All entries are in use by others.
    TableFull,
}

impl Refusal {
    /// A stable word for metrics and logs.
    pub const fn as_label(self) -> &'static str {
        match self {
            Self::Failures => "auth_failure_limit",
            Self::Sessions => "concurrency_limit",
            Self::Rate => "connection_rate_limit",
            Self::TableFull => "limit_table_full",
        }
    }
}

/// Events of a fixed window.
#[derive(Clone, Copy, Debug, Default)]
struct Window {
    start_ms: u64,
    count: u32,
}

impl Window {
    fn count(&self, rate: Rate, now_ms: u64) -> u32 {
        let len_ms = u64::from(rate.seconds()) * 1000;
        if now_ms.saturating_sub(self.start_ms) >= len_ms { 0 } else { self.count }
    }

    fn add(&mut self, rate: Rate, now_ms: u64) {
        let count = self.count(rate, now_ms);
        if count == 0 {
            self.start_ms = now_ms;
        }
        self.count = count.saturating_add(1);
    }
}

/// What one subject uses.
#[derive(Clone, Copy, Debug)]
struct Account {
    active: u32,
    begun: Window,
    failed: Window,
    bucket: Option<Bucket>,
}

impl Account {
    /// True if it says no more than a new one.
    fn is_idle(&mut self, limits: &MeterLimits, now_ms: u64) -> bool {
        self.active == 0
            && limits.sessions_rate.is_none_or(|rate| self.begun.count(rate, now_ms) == 0)
            && limits.failures_rate.is_none_or(|rate| self.failed.count(rate, now_ms) == 0)
            && self.bucket.as_mut().is_none_or(|bucket| bucket.is_full(now_ms))
    }
}

/// Counts of many subjects under the same limits, in memory of fixed size.
///
/// A full table lets an entry go only if that loses nothing; if there is none, a session that would
/// need one is refused. A failed login without an entry is not counted: whoever fills the table with
/// addresses has as many addresses to guess from.
#[derive(Debug)]
pub struct Meter {
    limits: MeterLimits,
    table: Table<Account>,
}

impl Meter {
    /// A meter for at most `capacity` subjects at once; `seed` is random and secret.
    pub fn new(limits: MeterLimits, capacity: usize, seed: [u64; 2]) -> Self {
        Self { limits, table: Table::new(capacity, seed) }
    }

    /// The limits that hold.
    pub const fn limits(&self) -> MeterLimits {
        self.limits
    }

    /// Changes the limits; what was counted stays.
    pub const fn retune(&mut self, limits: MeterLimits) {
        self.limits = limits;
    }

    /// How many subjects are counted.
    pub const fn len(&self) -> usize {
        self.table.len()
    }

    /// True if none is.
    pub const fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// Sessions of a subject that have begun and not ended.
    pub fn active(&self, subject: Subject) -> u32 {
        self.table.peek(subject).map_or(0, |account| account.active)
    }

    /// Counts a session that begins, if it may. Call [`Meter::end`] once for each that did.
    ///
    /// # Errors
    /// Which limit is reached; nothing was counted.
    pub fn begin(&mut self, subject: Subject, now_ms: u64) -> Result<(), Refusal> {
        let limits = self.limits;
        let account = self.account(subject, now_ms).ok_or(Refusal::TableFull)?;
        if limits
            .failures_rate
            .is_some_and(|rate| account.failed.count(rate, now_ms) >= rate.count())
        {
            return Err(Refusal::Failures);
        }
        if limits.sessions_max.is_some_and(|most| account.active >= most) {
            return Err(Refusal::Sessions);
        }
        if let Some(rate) = limits.sessions_rate {
            if account.begun.count(rate, now_ms) >= rate.count() {
                return Err(Refusal::Rate);
            }
            account.begun.add(rate, now_ms);
        }
        account.active += 1;
        Ok(())
    }

    /// Counts a session that ends.
    pub fn end(&mut self, subject: Subject) {
        if let Some(account) = self.table.find_mut(subject) {
            account.active = account.active.saturating_sub(1);
        }
    }

    /// Counts a login that failed.
    pub fn fail(&mut self, subject: Subject, now_ms: u64) {
        if let Some(rate) = self.limits.failures_rate
            && let Some(account) = self.account(subject, now_ms)
        {
            account.failed.add(rate, now_ms);
        }
    }

    /// Bytes of a stream that may pass now, or when to ask again. Everything without a limit.
    pub fn grant(&mut self, subject: Subject, want: u64, now_ms: u64) -> Grant {
        match self.bucket(subject, now_ms) {
            Some(bucket) => bucket.grant(want, now_ms),
            None => Grant::Now(want.max(1)),
        }
    }

    /// Gives back bytes that were granted and did not pass.
    pub fn give_back(&mut self, subject: Subject, bytes: u64) {
        if let Some(account) = self.table.find_mut(subject)
            && let Some(bucket) = &mut account.bucket
        {
            bucket.give_back(bytes);
        }
    }

    /// Whether a datagram may pass now.
    pub fn admit(&mut self, subject: Subject, len: u64, now_ms: u64) -> bool {
        self.bucket(subject, now_ms).is_none_or(|bucket| bucket.admit(len, now_ms))
    }

    /// The bucket of a subject; `None` without a limit, or if there is no room to count, which a
    /// session that has begun always has.
    fn bucket(&mut self, subject: Subject, now_ms: u64) -> Option<&mut Bucket> {
        let rate = self.limits.bandwidth?;
        let account = self.account(subject, now_ms)?;
        let bucket = account.bucket.get_or_insert_with(|| Bucket::new(rate, now_ms));
        bucket.retune(rate, now_ms);
        Some(bucket)
    }

    fn account(&mut self, subject: Subject, now_ms: u64) -> Option<&mut Account> {
        let limits = self.limits;
        let new = || Account {
            active: 0,
            begun: Window::default(),
            failed: Window::default(),
            bucket: None,
        };
        self.table.entry(subject, new, |account| account.is_idle(&limits, now_ms))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Subject = Subject::Client(1);
    const B: Subject = Subject::Client(2);

    fn meter(limits: MeterLimits, capacity: usize) -> Meter {
        Meter::new(limits, capacity, [3, 5])
    }

    #[test]
    fn counts_sessions_at_once() {
        let limits = MeterLimits { sessions_max: Some(2), ..MeterLimits::default() };
        let mut meter = meter(limits, 8);
        assert_eq!(meter.begin(A, 0), Ok(()));
        assert_eq!(meter.begin(A, 0), Ok(()));
        assert_eq!(meter.begin(A, 0), Err(Refusal::Sessions));
        assert_eq!(meter.begin(B, 0), Ok(()));
        meter.end(A);
        assert_eq!((meter.active(A), meter.active(B)), (1, 1));
        assert_eq!(meter.begin(A, 0), Ok(()));
        meter.end(Subject::User(9));
    }

    #[test]
    fn counts_sessions_in_windows() {
        let limits = MeterLimits { sessions_rate: Rate::new(2, 10), ..MeterLimits::default() };
        let mut meter = meter(limits, 8);
        for (now, expected) in [
            (5000, Ok(())),
            (9000, Ok(())),
            (14_999, Err(Refusal::Rate)),
            (15_000, Ok(())),
            (15_001, Ok(())),
            (24_999, Err(Refusal::Rate)),
        ] {
            assert_eq!(meter.begin(A, now), expected, "{now}");
        }
        meter.retune(MeterLimits::default());
        assert_eq!(meter.begin(A, 24_999), Ok(()));
    }

    #[test]
    fn too_many_failures_close_the_door_for_a_window() {
        let limits = MeterLimits { failures_rate: Rate::new(3, 60), ..MeterLimits::default() };
        let mut meter = meter(limits, 8);
        for _ in 0..3 {
            assert_eq!(meter.begin(A, 0), Ok(()));
            meter.fail(A, 0);
        }
        assert_eq!(meter.begin(A, 59_999), Err(Refusal::Failures));
        assert_eq!(meter.begin(B, 59_999), Ok(()));
        assert_eq!(meter.begin(A, 60_000), Ok(()));
    }

    #[test]
    fn sessions_of_a_subject_share_its_bandwidth() {
        let limits = MeterLimits { bandwidth: ByteRate::new(8000, 1), ..MeterLimits::default() };
        let mut meter = meter(limits, 8);
        assert_eq!(meter.grant(A, 5000, 0), Grant::Now(5000));
        assert_eq!(meter.grant(A, 5000, 0), Grant::At(137));
        meter.give_back(A, 1000);
        assert_eq!(meter.grant(A, 4000, 0), Grant::Now(4000));
        assert!(!meter.admit(A, 1500, 0) && meter.admit(A, 1500, 188) && meter.admit(B, 1500, 0));
        meter.retune(MeterLimits { bandwidth: ByteRate::new(80_000, 1), ..limits });
        assert_eq!(meter.grant(A, 5000, 251), Grant::At(296), "the old rate until now");
        assert_eq!(meter.grant(A, 5000, 296), Grant::Now(4108));
        meter.retune(MeterLimits::default());
        assert_eq!(meter.grant(A, 5000, 251), Grant::Now(5000));
    }

    #[test]
    fn a_full_table_forgets_nothing_that_counts() {
        let limits = MeterLimits {
            sessions_max: Some(1),
            sessions_rate: Rate::new(1, 10),
            ..MeterLimits::default()
        };
        let mut meter = meter(limits, 2);
        assert_eq!(meter.begin(A, 0), Ok(()));
        assert_eq!(meter.begin(B, 0), Ok(()));
        let c = Subject::Client(3);
        assert_eq!(meter.begin(c, 20_000), Err(Refusal::TableFull), "both have a session");
        meter.end(A);
        assert_eq!(meter.begin(c, 9_999), Err(Refusal::TableFull), "the window is open");
        assert_eq!(meter.begin(c, 10_000), Ok(()));
        assert_eq!((meter.len(), meter.active(A), meter.active(B)), (2, 0, 1));
    }
}
