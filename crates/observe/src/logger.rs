//! A sink for the `log` facade: one line to standard error per record, without heap memory.

use std::fmt::{self, Write as _};
use std::io::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use log::{LevelFilter, Log, Metadata, Record};

/// Longest line; what is longer is cut.
const LINE_LEN_MAX: usize = 1024;

/// Text put together in place.
pub struct LineBuffer<const N: usize> {
    bytes: [u8; N],
    len: usize,
}

impl<const N: usize> Default for LineBuffer<N> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const N: usize> LineBuffer<N> {
    /// An empty buffer.
    pub const fn new() -> Self {
        Self { bytes: [0; N], len: 0 }
    }

    /// What was written so far.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl<const N: usize> fmt::Write for LineBuffer<N> {
    /// Takes what fits and drops the rest.
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let take = text.len().min(N - self.len);
        self.bytes[self.len..self.len + take].copy_from_slice(&text.as_bytes()[..take]);
        self.len += take;
        Ok(())
    }
}

/// The one sink; its lines carry the time or not.
struct StderrLog {
    with_time: AtomicBool,
}

static LOG: StderrLog = StderrLog { with_time: AtomicBool::new(true) };

impl Log for StderrLog {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.level() <= log::max_level()
    }

    fn log(&self, record: &Record<'_>) {
        if !self.enabled(record.metadata()) {
            return;
        }
        let mut line = LineBuffer::<LINE_LEN_MAX>::new();
        // Writing to a LineBuffer never fails; it cuts.
        if self.with_time.load(Ordering::Relaxed) {
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            let _ = write_utc(&mut line, now);
        }
        let _ = write!(line, "{:<5} {}", record.level(), record.args());
        // Peer-chosen text must not forge lines or colour a terminal.
        let len = line.len.min(LINE_LEN_MAX - 1);
        for byte in &mut line.bytes[..len] {
            if *byte < 0x20 || *byte == 0x7F {
                *byte = b'?';
            }
        }
        line.bytes[len] = b'\n';
        // A log that can't be written has nowhere to say so.
        let _ = std::io::stderr().lock().write_all(&line.bytes[..=len]);
    }

    fn flush(&self) {}
}

/// Sends log records of `level` and above to standard error, with the time in front or without. A
/// second call changes both.
pub fn init_log(level: LevelFilter, with_time: bool) {
    LOG.with_time.store(with_time, Ordering::Relaxed);
    log::set_max_level(level);
    // An error: it is set already, by an earlier call.
    let _ = log::set_logger(&LOG);
}

/// `YYYY-MM-DDTHH:MM:SSZ ` from time since the Unix epoch (days to civil date by counting
/// 400-year eras from March 1st, year 0).
fn write_utc(out: &mut impl fmt::Write, since_epoch: Duration) -> fmt::Result {
    let seconds = since_epoch.as_secs();
    let (days, second) = (seconds / 86_400 + 719_468, seconds % 86_400);
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    write!(out, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z ")
}

/// Limits lines that a peer can cause: a bucket of `burst` lines that refills at one a second.
#[derive(Debug)]
pub struct Throttle {
    tokens: u32,
    burst: u32,
    refilled: Option<Instant>,
    suppressed: u64,
}

impl Throttle {
    /// A full bucket.
    pub const fn new(burst: u32) -> Self {
        Self { tokens: burst, burst, refilled: None, suppressed: 0 }
    }

    /// Whether a line may go out, and how many were held back since the last one.
    pub fn allow(&mut self, now: Instant) -> Option<u64> {
        let refilled = *self.refilled.get_or_insert(now);
        let seconds = now.saturating_duration_since(refilled).as_secs();
        if seconds > 0 {
            let gained = u32::try_from(seconds).unwrap_or(u32::MAX);
            self.tokens = self.tokens.saturating_add(gained).min(self.burst);
            self.refilled = Some(refilled + Duration::from_secs(seconds));
        }
        if self.tokens == 0 {
            self.suppressed += 1;
            return None;
        }
        self.tokens -= 1;
        Some(std::mem::take(&mut self.suppressed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_civil() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z "),
            (951_782_400, "2000-02-29T00:00:00Z "),
            (1_700_000_000, "2023-11-14T22:13:20Z "),
            (4_107_542_399, "2100-02-28T23:59:59Z "),
            (4_107_542_400, "2100-03-01T00:00:00Z "),
        ] {
            let mut line = LineBuffer::<32>::new();
            write_utc(&mut line, Duration::from_secs(seconds)).unwrap();
            assert_eq!(std::str::from_utf8(line.as_bytes()).unwrap(), text);
        }
    }

    #[test]
    fn a_long_line_is_cut() {
        let mut line = LineBuffer::<4>::new();
        write!(line, "abcdef").unwrap();
        assert_eq!(line.as_bytes(), b"abcd");
    }

    #[test]
    fn a_second_call_changes_level_and_time() {
        for (level, with_time) in [(LevelFilter::Off, true), (LevelFilter::Error, false)] {
            init_log(level, with_time);
            assert_eq!(log::max_level(), level);
            assert_eq!(LOG.with_time.load(Ordering::Relaxed), with_time);
        }
    }

    #[test]
    fn throttle_counts_what_it_holds_back() {
        let start = Instant::now();
        let mut throttle = Throttle::new(2);
        assert_eq!(throttle.allow(start), Some(0));
        assert_eq!(throttle.allow(start), Some(0));
        assert_eq!(throttle.allow(start), None);
        assert_eq!(throttle.allow(start), None);
        assert_eq!(throttle.allow(start + Duration::from_secs(1)), Some(2));
        assert_eq!(throttle.allow(start + Duration::from_secs(1)), None);
        assert_eq!(throttle.allow(start + Duration::from_secs(60)), Some(1));
    }
}
