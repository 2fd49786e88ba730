//! Times of the week, in local time as the caller knows it.

/// Minutes of a day.
const DAY: u16 = 24 * 60;
/// Minutes of a week.
const WEEK: u16 = 7 * DAY;

/// A day of the week.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Weekday {
    /// Monday.
    Monday = 0,
    /// Tuesday.
    Tuesday,
    /// Wednesday.
    Wednesday,
    /// Thursday.
    Thursday,
    /// Friday.
    Friday,
    /// Saturday.
    Saturday,
    /// Sunday.
    Sunday,
}

impl Weekday {
    /// All days, Monday first.
    pub const ALL: [Self; 7] = [
        Self::Monday,
        Self::Tuesday,
        Self::Wednesday,
        Self::Thursday,
        Self::Friday,
        Self::Saturday,
        Self::Sunday,
    ];

    /// Reads an English name or its first three letters, in either case.
    pub fn parse(text: &str) -> Option<Self> {
        const NAMES: [&str; 7] =
            ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"];
        let lower = text.to_ascii_lowercase();
        let is = |name: &&str| lower == **name || name.get(..3) == Some(&lower);
        NAMES.iter().position(is).and_then(|day| Self::ALL.get(day).copied())
    }
}

/// A minute of the week.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WeekTime(u16);

impl WeekTime {
    /// A minute of a day; `None` from hour 24 or minute 60 on.
    pub fn new(day: Weekday, hour: u8, minute: u8) -> Option<Self> {
        (hour < 24 && minute < 60)
            .then(|| Self(day as u16 * DAY + u16::from(hour) * 60 + u16::from(minute)))
    }

    /// The minute of the week at `local_seconds` since 1970-01-01 00:00, a Thursday, both in local
    /// time.
    pub fn of_local_seconds(local_seconds: i64) -> Self {
        let minutes = local_seconds.div_euclid(60) + 3 * i64::from(DAY);
        Self(u16::try_from(minutes.rem_euclid(i64::from(WEEK))).unwrap_or_default())
    }
}

/// Times of the week that a rule names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WeekTimes(Box<[(u16, u16)]>);

impl WeekTimes {
    /// Hours `from` (inclusive) to `until` (exclusive), in minutes of a day, on the given days. An
    /// end that is not after the start is on the next day: `22:00-06:00` on a Friday ends on
    /// Saturday. Equal ends are a whole day.
    ///
    /// `None` if a minute is above 1440, or `from` is 1440.
    pub fn new(days: &[Weekday], from: u16, until: u16) -> Option<Self> {
        if from >= DAY || until > DAY {
            return None;
        }
        let len = if until > from { until - from } else { until + DAY - from };
        let mut ranges = Vec::new();
        for &day in days {
            let start = day as u16 * DAY + from;
            let end = start + len - 1;
            if end < WEEK {
                ranges.push((start, end));
            } else {
                ranges.push((start, WEEK - 1));
                ranges.push((0, end - WEEK));
            }
        }
        Some(Self::of_ranges(ranges))
    }

    /// The times of either.
    #[must_use]
    pub fn or(&self, other: &Self) -> Self {
        Self::of_ranges(self.0.iter().chain(&other.0).copied().collect())
    }

    fn of_ranges(mut ranges: Vec<(u16, u16)>) -> Self {
        ranges.sort_unstable();
        ranges.dedup_by(|next, kept| {
            let joins = next.0 <= kept.1 + 1;
            if joins {
                kept.1 = kept.1.max(next.1);
            }
            joins
        });
        Self(ranges.into())
    }

    /// True if `time` is one of them.
    pub fn contains(&self, time: WeekTime) -> bool {
        self.0.iter().any(|&(first, last)| first <= time.0 && time.0 <= last)
    }

    /// True if there is none.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// True if `other` has all of them.
    pub fn is_subset(&self, other: &Self) -> bool {
        self.0.iter().all(|&(first, last)| other.0.iter().any(|&(a, b)| a <= first && last <= b))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(day: Weekday, hour: u8, minute: u8) -> WeekTime {
        WeekTime::new(day, hour, minute).unwrap()
    }

    #[test]
    fn knows_days() {
        assert_eq!(Weekday::parse("Mon"), Some(Weekday::Monday));
        assert_eq!(Weekday::parse("sunday"), Some(Weekday::Sunday));
        for text in ["", "mo", "mond", "m", "8"] {
            assert_eq!(Weekday::parse(text), None, "{text}");
        }
        // 2026-12-01 00:00 was a Tuesday; 1969-12-31 23:59 a Wednesday.
        assert_eq!(WeekTime::of_local_seconds(1_796_083_200), at(Weekday::Tuesday, 0, 0));
        assert_eq!(WeekTime::of_local_seconds(-1), at(Weekday::Wednesday, 23, 59));
        assert_eq!(WeekTime::of_local_seconds(0), at(Weekday::Thursday, 0, 0));
    }

    #[test]
    fn hours_begin_on_their_days() {
        let office = WeekTimes::new(&[Weekday::Monday], 8 * 60, 18 * 60).unwrap();
        for (hour, minute, is) in [(7, 59, false), (8, 0, true), (17, 59, true), (18, 0, false)] {
            assert_eq!(office.contains(at(Weekday::Monday, hour, minute)), is, "{hour}:{minute}");
            assert!(!office.contains(at(Weekday::Tuesday, hour, minute)));
        }
        let night = WeekTimes::new(&[Weekday::Sunday], 22 * 60, 6 * 60).unwrap();
        assert!(night.contains(at(Weekday::Sunday, 23, 0)));
        assert!(night.contains(at(Weekday::Monday, 5, 59)), "over the end of the week");
        assert!(!night.contains(at(Weekday::Sunday, 5, 0)));
        let day = WeekTimes::new(&[Weekday::Friday], 0, 0).unwrap();
        assert!(
            day.contains(at(Weekday::Friday, 23, 59)) && !day.contains(at(Weekday::Saturday, 0, 0))
        );
        assert_eq!(WeekTimes::new(&[Weekday::Friday], 0, 1440), Some(day.clone()));
        assert!(day.is_subset(&day.or(&night)) && !day.or(&night).is_subset(&day));
        assert_eq!(WeekTimes::new(&[Weekday::Friday], 1440, 0), None);
        assert!(WeekTimes::new(&[], 0, 0).unwrap().is_empty());
    }
}
