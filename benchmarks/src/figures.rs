//! Medians, quantiles, spreads.

use std::time::Duration;

/// The median of some figures, and how far they lie apart.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The median.
    pub median: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
}

impl Spread {
    /// The spread of figures.
    ///
    /// # Panics
    ///
    /// When there are none.
    #[must_use]
    pub fn of(figures: impl IntoIterator<Item = f64>) -> Self {
        let mut figures: Vec<f64> = figures.into_iter().collect();
        figures.sort_by(f64::total_cmp);
        let (Some(min), Some(max)) = (figures.first(), figures.last()) else {
            panic!("a row without figures");
        };
        Self {
            median: figures[figures.len() / 2],
            min: *min,
            max: *max,
        }
    }

    /// The spread of the rounds' own ratios, so that what disturbed a whole round cancels out.
    ///
    /// # Panics
    ///
    /// When there are no rounds.
    #[must_use]
    pub fn of_ratios(ours: &[f64], theirs: &[f64]) -> Self {
        Self::of(ours.iter().zip(theirs).map(|(ours, theirs)| ours / theirs))
    }
}

/// Two quantiles of many durations, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quantiles {
    /// Half are shorter.
    pub p50: f64,
    /// One in a hundred is longer.
    pub p99: f64,
}

impl Quantiles {
    /// The quantiles of some durations.
    ///
    /// # Panics
    ///
    /// When there are none.
    #[must_use]
    pub fn of(mut durations: Vec<Duration>) -> Self {
        assert!(!durations.is_empty(), "quantiles of nothing");
        durations.sort_unstable();
        let at = |share: usize| durations[(durations.len() - 1) * share / 100].as_secs_f64() * 1e6;
        Self {
            p50: at(50),
            p99: at(99),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_taken_round_by_round() {
        let ratio = Spread::of_ratios(&[10.0, 30.0, 8.0], &[10.0, 60.0, 4.0]);
        let expected = Spread {
            median: 1.0,
            min: 0.5,
            max: 2.0,
        };
        assert_eq!(ratio, expected);
    }

    #[test]
    fn quantiles_are_nearest_ranks() {
        let durations = (0..=100).rev().map(Duration::from_micros).collect();
        let quantiles = Quantiles::of(durations);
        assert!((quantiles.p50 - 50.0).abs() < 1e-9);
        assert!((quantiles.p99 - 99.0).abs() < 1e-9);
    }
}
