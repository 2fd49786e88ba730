//! Traffic of a day and of a month, for each subject, and the file that keeps it over restarts.
//!
//! The caller knows the calendar and writes the file; here are the counts and the form. The form is
//! text with a check at its end, so that a file that was cut off is told apart from an old one:
//!
//! ```text
//! adit-quota 1
//! 000102030405060708090a0b0c0d0e0f 20788 1048576 682 52428800
//! end 1 9f86d081884c7d65
//! ```
//!
//! A line is a key in hexadecimal, the day and its bytes, the month and its bytes. The last line has
//! the number of lines and a checksum (FNV-1a, 64 bits) of all bytes before it. The checksum finds
//! accidents, not forgery: whoever can write the file can write a right one.

use std::fmt::{self, Write};

use super::table::{Subject, Table};

const HEAD: &str = "adit-quota 1";
/// Bytes of a file: a line has at most 97.
const FILE_LEN_MAX: usize = 128 << 20;

/// Bytes that a subject may move; `None` is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Allowance {
    /// On one day.
    pub day_bytes: Option<u64>,
    /// In one month.
    pub month_bytes: Option<u64>,
}

/// Which quota is used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Spent {
    /// That of the day.
    Day,
    /// That of the month.
    Month,
}

impl Spent {
    /// A stable word for metrics and logs.
    pub const fn as_label(self) -> &'static str {
        match self {
            Self::Day => "quota_day",
            Self::Month => "quota_month",
        }
    }
}

/// A day and its month, both counted from January 1970, in local time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Calendar {
    /// Days since 1970-01-01.
    pub day: u32,
    /// Months since January 1970.
    pub month: u32,
}

impl Calendar {
    /// The day of `local_seconds` since 1970-01-01 00:00, both in local time; what is before that
    /// counts as that.
    pub fn of_local_seconds(local_seconds: i64) -> Self {
        let day = u32::try_from(local_seconds.max(0) / 86_400).unwrap_or(u32::MAX);
        // Civil date from a day number, with years that begin in March so that a leap day is last:
        // 146,097 days are 400 years, of which 36,524 are 100, of which 1461 are 4.
        let from_march_0000 = u64::from(day) + 719_468;
        let (era, of_era) = (from_march_0000 / 146_097, from_march_0000 % 146_097);
        let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
        let of_year = of_era - (365 * year + year / 4 - year / 100);
        let month_from_march = (5 * of_year + 2) / 153;
        let months = (era * 400 + year) * 12 + month_from_march + 2;
        Self { day, month: u32::try_from(months - 1970 * 12).unwrap_or(u32::MAX) }
    }
}

/// What one subject has moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    calendar: Calendar,
    day_bytes: u64,
    month_bytes: u64,
}

impl Usage {
    /// Bytes on the day of `today`, which begins anew if it is another day.
    pub const fn day_bytes(&self, today: Calendar) -> u64 {
        if self.calendar.day == today.day { self.day_bytes } else { 0 }
    }

    /// Bytes in the month of `today`.
    pub const fn month_bytes(&self, today: Calendar) -> u64 {
        if self.calendar.month == today.month { self.month_bytes } else { 0 }
    }

    /// Counts `bytes`.
    pub const fn charge(&mut self, bytes: u64, today: Calendar) {
        self.day_bytes = self.day_bytes(today).saturating_add(bytes);
        self.month_bytes = self.month_bytes(today).saturating_add(bytes);
        self.calendar = today;
    }

    /// Which allowance is used up; that of the month if both are.
    pub fn spent(&self, allowance: Allowance, today: Calendar) -> Option<Spent> {
        if allowance.month_bytes.is_some_and(|most| self.month_bytes(today) >= most) {
            Some(Spent::Month)
        } else if allowance.day_bytes.is_some_and(|most| self.day_bytes(today) >= most) {
            Some(Spent::Day)
        } else {
            None
        }
    }
}

/// Why bytes are no quota file. Tell the operator; to begin anew, move the file away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum QuotaFileError {
    /// It begins otherwise.
    NotAQuotaFile,
    /// It ends early, or was changed.
    Damaged,
    /// It has more subjects than the book has room for.
    TooLong,
}

impl fmt::Display for QuotaFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotAQuotaFile => "not a quota file of this version",
            Self::Damaged => "the quota file is damaged or cut off; move it away to begin anew",
            Self::TooLong => "the quota file has more entries than there is room for",
        })
    }
}

impl std::error::Error for QuotaFileError {}

/// Usage of many subjects, in memory of fixed size.
///
/// A subject is a 128-bit number that means the same after a restart: a hash of what kind it is and
/// of the name of a user or rule, or the address of a client or listener, keyed with a secret that is
/// kept beside the file.
#[derive(Debug)]
pub struct QuotaBook {
    table: Table<Usage>,
    capacity: usize,
}

impl QuotaBook {
    /// A book for at most `capacity` subjects; `seed` is random and secret.
    pub fn new(capacity: usize, seed: [u64; 2]) -> Self {
        Self { table: Table::new(capacity, seed), capacity }
    }

    /// Which allowance `key` has used up.
    pub fn spent(&self, key: u128, allowance: Allowance, today: Calendar) -> Option<Spent> {
        self.table.peek(Subject::User(key))?.spent(allowance, today)
    }

    /// Counts `bytes`. False if there is no room for another subject, and nothing was counted;
    /// those who have moved nothing this month make room.
    #[must_use]
    pub fn charge(&mut self, key: u128, bytes: u64, today: Calendar) -> bool {
        let is_idle = |usage: &mut Usage| usage.month_bytes(today) == 0;
        match self.table.entry(Subject::User(key), Usage::default, is_idle) {
            Some(usage) => {
                usage.charge(bytes, today);
                true
            }
            None => false,
        }
    }

    /// What `key` has moved.
    pub fn usage(&self, key: u128) -> Usage {
        self.table.peek(Subject::User(key)).copied().unwrap_or_default()
    }

    /// The file's contents; months other than that of `today` are left out.
    pub fn encode(&self, today: Calendar) -> String {
        let mut text = format!("{HEAD}\n");
        let mut lines = 0;
        for (subject, usage) in self.table.iter() {
            let Subject::User(key) = subject else { continue };
            if usage.calendar.month != today.month {
                continue;
            }
            lines += 1;
            let Calendar { day, month } = usage.calendar;
            let (day_bytes, month_bytes) = (usage.day_bytes, usage.month_bytes);
            let _infallible = writeln!(text, "{key:032x} {day} {day_bytes} {month} {month_bytes}");
        }
        let check = checksum(text.as_bytes());
        let _infallible = writeln!(text, "end {lines} {check:016x}");
        text
    }

    /// Takes over what a file says, in a book that is empty. `today` is the present day: days in
    /// the future, which a wrong clock leaves behind, count as this one.
    ///
    /// # Errors
    /// What is wrong with it; the book may hold a part then, and should not be used.
    pub fn decode(&mut self, bytes: &[u8], today: Calendar) -> Result<(), QuotaFileError> {
        let text = std::str::from_utf8(bytes).map_err(|_| QuotaFileError::NotAQuotaFile)?;
        let body = text
            .strip_prefix(HEAD)
            .and_then(|rest| rest.strip_prefix('\n'))
            .filter(|_| bytes.len() <= FILE_LEN_MAX)
            .ok_or(QuotaFileError::NotAQuotaFile)?;
        let body = body.strip_suffix('\n').ok_or(QuotaFileError::Damaged)?;
        let (lines, end) = body.rsplit_once('\n').unwrap_or(("", body));
        let (count, check) = end
            .strip_prefix("end ")
            .and_then(|rest| rest.split_once(' '))
            .ok_or(QuotaFileError::Damaged)?;
        let checked = bytes.get(..bytes.len() - end.len() - 1).unwrap_or_default();
        if check != format!("{:016x}", checksum(checked)) {
            return Err(QuotaFileError::Damaged);
        }
        if count.parse() != Ok(lines.lines().count()) {
            return Err(QuotaFileError::Damaged);
        }
        lines.lines().try_for_each(|line| self.decode_line(line, today))
    }

    fn decode_line(&mut self, line: &str, today: Calendar) -> Result<(), QuotaFileError> {
        let (key, mut usage) = read_line(line).ok_or(QuotaFileError::Damaged)?;
        usage.calendar.day = usage.calendar.day.min(today.day);
        usage.calendar.month = usage.calendar.month.min(today.month);
        if self.table.len() >= self.capacity {
            return Err(QuotaFileError::TooLong);
        }
        let entry = self.table.entry(Subject::User(key), || usage, |_| false);
        *entry.ok_or(QuotaFileError::TooLong)? = usage;
        Ok(())
    }
}

fn read_line(line: &str) -> Option<(u128, Usage)> {
    let mut words = line.split(' ');
    let digits = words.next().filter(|digits| digits.len() == 32)?;
    let key = u128::from_str_radix(digits, 16).ok()?;
    let day = words.next()?.parse().ok()?;
    let day_bytes = words.next()?.parse().ok()?;
    let month = words.next()?.parse().ok()?;
    let month_bytes = words.next()?.parse().ok()?;
    let usage = Usage { calendar: Calendar { day, month }, day_bytes, month_bytes };
    words.next().is_none().then_some((key, usage))
}

/// FNV-1a with its usual constants.
fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn day(day: u32) -> Calendar {
        Calendar::of_local_seconds(i64::from(day) * 86_400)
    }

    #[test]
    fn knows_months() {
        for (seconds, day, month) in [
            (0, 0, 0),
            (-5, 0, 0),
            (31 * 86_400 - 1, 30, 0),
            (31 * 86_400, 31, 1),
            // 2000-02-29, 2000-03-01, 2024-02-29, 2026-12-01, 2100-02-28 and the day after.
            (951_782_400, 11_016, 361),
            (951_868_800, 11_017, 362),
            (1_709_164_800, 19_782, 649),
            (1_796_083_200, 20_788, 683),
            (4_107_456_000, 47_540, 1561),
            (4_107_542_400, 47_541, 1562),
        ] {
            assert_eq!(Calendar::of_local_seconds(seconds), Calendar { day, month }, "{seconds}");
        }
        // Every month has a length that a month can have.
        let mut starts = vec![];
        for number in 0..60_000 {
            if starts.last().is_none_or(|&(_, month)| month != day(number).month) {
                starts.push((number, day(number).month));
            }
        }
        for pair in starts.windows(2) {
            assert_eq!(pair[0].1 + 1, pair[1].1);
            assert!((28..=31).contains(&(pair[1].0 - pair[0].0)), "{pair:?}");
        }
    }

    #[test]
    fn quotas_end_and_begin_again() {
        let allowance = Allowance { day_bytes: Some(100), month_bytes: Some(150) };
        let mut book = QuotaBook::new(4, [1, 2]);
        let (first, second, next_month) = (day(20_788), day(20_789), day(20_819));
        assert_eq!(book.spent(7, allowance, first), None);
        assert!(book.charge(7, 99, first));
        assert_eq!(book.spent(7, allowance, first), None);
        assert!(book.charge(7, 1, first));
        assert_eq!(book.spent(7, allowance, first), Some(Spent::Day));
        assert_eq!(book.spent(7, allowance, second), None);
        assert!(book.charge(7, 50, second));
        assert_eq!(book.spent(7, allowance, second), Some(Spent::Month));
        assert_eq!(book.spent(7, allowance, next_month), None);
        assert_eq!(book.usage(7).month_bytes(second), 150);
        assert_eq!(book.spent(7, Allowance::default(), second), None);
        assert!(book.charge(7, u64::MAX, second), "saturates");
    }

    #[test]
    fn a_full_book_says_so() {
        let mut book = QuotaBook::new(1, [1, 2]);
        assert!(book.charge(1, 5, day(100)));
        assert!(!book.charge(2, 5, day(100)));
        assert!(book.charge(2, 5, day(200)), "the first has moved nothing for months");
    }

    #[test]
    fn files_come_back_as_they_were() {
        let today = day(20_788);
        let mut book = QuotaBook::new(100, [1, 2]);
        for user in 0..50u128 {
            assert!(book.charge(user << 100 | user, 1000 + user as u64, today));
        }
        assert!(book.charge(99, 1, day(20_000)));
        let text = book.encode(today);
        let mut read = QuotaBook::new(100, [3, 4]);
        assert_eq!(read.decode(text.as_bytes(), today), Ok(()));
        for user in 0..50u128 {
            let key = user << 100 | user;
            assert_eq!(read.usage(key), book.usage(key));
        }
        assert_eq!(read.usage(99), Usage::default(), "an old month is left out");
        let empty = QuotaBook::new(1, [0, 0]).encode(today);
        assert_eq!(QuotaBook::new(1, [0, 0]).decode(empty.as_bytes(), today), Ok(()));
    }

    #[test]
    fn a_clock_that_was_wrong_does_not_lock_anybody_out() {
        let (future, today) = (day(40_000), day(20_788));
        let mut book = QuotaBook::new(4, [1, 2]);
        assert!(book.charge(7, 1000, future));
        let mut read = QuotaBook::new(4, [1, 2]);
        read.decode(book.encode(future).as_bytes(), today).unwrap();
        assert_eq!(read.usage(7).day_bytes(today), 1000);
        assert_eq!(read.usage(7).day_bytes(day(20_789)), 0);
    }

    #[test]
    fn damage_is_found() {
        let today = day(20_788);
        let mut book = QuotaBook::new(10, [1, 2]);
        assert!(book.charge(1, 10, today) && book.charge(2, 20, today));
        let text = book.encode(today);
        for cut in 0..text.len() {
            let read = QuotaBook::new(10, [0, 0]).decode(&text.as_bytes()[..cut], today);
            assert!(read.is_err(), "cut at {cut}");
        }
        for at in 0..text.len() {
            let mut bytes = text.clone().into_bytes();
            bytes[at] ^= 1;
            assert!(QuotaBook::new(10, [0, 0]).decode(&bytes, today).is_err(), "changed at {at}");
        }
        let read = QuotaBook::new(1, [0, 0]).decode(text.as_bytes(), today);
        assert_eq!(read, Err(QuotaFileError::TooLong));
    }
}
