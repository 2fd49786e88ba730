//! Median, spread and nearest-rank percentiles.

/// Median and extremes of the repetitions of one figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spread {
    /// Middle value; the mean of the two middle ones for an even count.
    pub(crate) median: f64,
    /// Smallest value.
    pub(crate) min: f64,
    /// Largest value.
    pub(crate) max: f64,
}

impl Spread {
    /// Summarises `values`; `None` when there are none.
    pub(crate) fn of(values: &[f64]) -> Option<Self> {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let upper = sorted.len() / 2;
        let median = if sorted.len().is_multiple_of(2) {
            f64::midpoint(sorted[upper - 1], sorted[upper])
        } else {
            sorted[upper]
        };
        Some(Self { median, min, max })
    }
}

/// Nearest-rank percentile (index `ceil(n·p/100) − 1`) of sorted values; 0 when there are none.
pub(crate) fn percentile(sorted: &[u32], percent: usize) -> u32 {
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or(0)
}

/// Counts whole numbers up to a largest one, which stands for all that are larger.
#[derive(Clone, Debug)]
pub(crate) struct Histogram {
    counts: Vec<u32>,
    total: u64,
}

impl Histogram {
    /// For numbers from 0 to `largest`.
    pub(crate) fn new(largest: usize) -> Self {
        Self { counts: vec![0; largest + 1], total: 0 }
    }

    /// Counts one number.
    pub(crate) fn add(&mut self, number: usize) {
        let largest = self.counts.len() - 1;
        self.counts[number.min(largest)] += 1;
        self.total += 1;
    }

    /// Nearest-rank percentile; 0 when nothing was counted.
    pub(crate) fn percentile(&self, percent: u64) -> usize {
        let rank = (self.total * percent).div_ceil(100).max(1);
        let mut sum = 0;
        let found = self.counts.iter().position(|&count| {
            sum += u64::from(count);
            sum >= rank
        });
        found.unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_the_middle_of_an_odd_count() {
        let spread = Spread::of(&[5.0, 1.0, 3.0]).unwrap();
        assert_eq!((spread.median, spread.min, spread.max), (3.0, 1.0, 5.0));
    }

    #[test]
    fn averages_the_middle_of_an_even_count() {
        assert_eq!(Spread::of(&[4.0, 1.0, 2.0, 9.0]).unwrap().median, 3.0);
    }

    #[test]
    fn has_no_spread_of_nothing() {
        assert_eq!(Spread::of(&[]), None);
    }

    #[test]
    fn uses_nearest_rank() {
        let sorted: Vec<u32> = (1..=200).collect();
        assert_eq!(percentile(&sorted, 50), 100);
        assert_eq!(percentile(&sorted, 99), 198);
        assert_eq!(percentile(&[7], 99), 7);
        assert_eq!(percentile(&[], 50), 0);
    }
    #[test]
    fn counts_as_it_would_sort() {
        let mut histogram = Histogram::new(150);
        assert_eq!(histogram.percentile(50), 0);
        for number in 1..=200 {
            histogram.add(number);
        }
        let found = [1, 50, 75, 99].map(|percent| histogram.percentile(percent));
        assert_eq!(found, [2, 100, 150, 150]);
    }
}
