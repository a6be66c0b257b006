//! Which time most of several sources agree on: the intersection of intervals, after Marzullo.
//!
//! Each source says that the truth lies in its interval. As long as a majority of them is right, the truth lies where
//! that many intervals overlap; a source that lies can neither move that place nor, alone, make one.

/// A closed interval of offsets, in nanoseconds; never empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Interval {
    low: i64,
    high: i64,
}

impl Interval {
    /// Everything at most `radius` away from `centre`; stops at the ends of the range.
    #[must_use]
    pub const fn around(centre: i64, radius: u64) -> Self {
        Self {
            low: centre.saturating_sub_unsigned(radius),
            high: centre.saturating_add_unsigned(radius),
        }
    }

    /// The middle, rounded towards zero.
    #[must_use]
    pub const fn centre(self) -> i64 {
        self.low.midpoint(self.high)
    }

    /// How far the ends are from the middle, rounded up.
    #[must_use]
    pub const fn radius(self) -> u64 {
        self.low.abs_diff(self.high).div_ceil(2)
    }

    /// Whether the two have a point in common.
    #[must_use]
    pub const fn overlaps(self, other: Self) -> bool {
        self.low <= other.high && other.low <= self.high
    }
}

/// The smallest interval with every point that at least `needed` of the intervals cover; `None` when no point is
/// covered so often.
#[must_use]
pub fn intersect(intervals: &[Interval], needed: usize) -> Option<Interval> {
    // Where one interval ends and another begins, both cover the point: beginnings come first.
    let begins = intervals.iter().map(|interval| (interval.low, Edge::Begin));
    let ends = intervals.iter().map(|interval| (interval.high, Edge::End));
    let mut edges: Vec<_> = begins.chain(ends).collect();
    edges.sort_unstable();
    let mut covering = 0;
    let mut found: Option<Interval> = None;
    for (at, edge) in edges {
        match edge {
            Edge::Begin => {
                covering += 1;
                if covering >= needed {
                    found.get_or_insert(Interval { low: at, high: at });
                }
            }
            Edge::End => {
                if covering >= needed
                    && let Some(found) = &mut found
                {
                    found.high = at;
                }
                covering -= 1;
            }
        }
    }
    found
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Edge {
    Begin,
    End,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const fn interval(low: i64, high: i64) -> Interval {
        Interval { low, high }
    }

    #[test]
    fn the_example_of_the_literature() {
        let sources = [interval(8, 12), interval(11, 13), interval(14, 15)];
        assert_eq!(intersect(&sources, 2), Some(interval(11, 12)));
        assert_eq!(intersect(&sources, 3), None);
    }

    #[test]
    fn intervals_that_touch_agree_in_one_point() {
        let sources = [interval(-5, 0), interval(0, 5)];
        assert_eq!(intersect(&sources, 2), Some(interval(0, 0)));
    }

    #[test]
    fn the_ends_of_the_range_are_no_edge_case() {
        let widest = Interval::around(0, u64::MAX);
        assert_eq!(widest, interval(i64::MIN, i64::MAX));
        assert_eq!(intersect(&[widest, widest], 2), Some(widest));
        assert_eq!((widest.centre(), widest.radius()), (0, 1 << 63));
    }

    /// Every point where an interval begins or ends, and whether enough of them cover it.
    fn naive(intervals: &[Interval], needed: usize) -> Option<Interval> {
        let points = intervals
            .iter()
            .flat_map(|interval| [interval.low, interval.high]);
        let covered = |point: &i64| {
            let covering = intervals
                .iter()
                .filter(|one| one.low <= *point && *point <= one.high);
            covering.count() >= needed
        };
        let agreed: Vec<_> = points.filter(covered).collect();
        Some(interval(*agreed.iter().min()?, *agreed.iter().max()?))
    }

    fn some_interval() -> impl Strategy<Value = Interval> {
        (-50i64..50, 0u64..30).prop_map(|(centre, radius)| Interval::around(centre, radius))
    }

    proptest! {
        #[test]
        fn it_finds_what_a_search_of_all_points_finds(
            intervals in prop::collection::vec(some_interval(), 1..8),
            needed in 1usize..6,
        ) {
            prop_assert_eq!(intersect(&intervals, needed), naive(&intervals, needed));
        }

        #[test]
        fn the_truth_is_found_as_long_as_a_majority_tells_it(
            truth in -1_000i64..1_000,
            honest in prop::collection::vec((-100i64..100, 0u64..50), 2..6),
            liars in prop::collection::vec((-100_000i64..100_000, 0u64..100_000), 0..5),
        ) {
            prop_assume!(liars.len() < honest.len());
            let told = honest.iter().map(|(by, slack)| Interval::around(truth + by, by.unsigned_abs() + slack));
            let lied = liars.iter().map(|(centre, radius)| Interval::around(*centre, *radius));
            let all: Vec<_> = told.chain(lied).collect();
            let agreed = intersect(&all, all.len() / 2 + 1).expect("a majority agrees on the truth");
            prop_assert!(agreed.overlaps(Interval::around(truth, 0)));
        }

        #[test]
        fn liars_far_away_move_nothing(
            honest in prop::collection::vec((-100i64..100, 100u64..200), 2..6),
            liars in prop::collection::vec((prop::bool::ANY, 0u64..50), 1..5),
        ) {
            prop_assume!(liars.len() < honest.len());
            const HOUR: i64 = 3_600_000_000_000;
            let needed = (honest.len() + liars.len()) / 2 + 1;
            let told: Vec<_> = honest.iter().map(|(by, radius)| Interval::around(*by, *radius)).collect();
            let lied = liars.iter().map(|(ahead, radius)| {
                Interval::around(if *ahead { HOUR } else { -HOUR }, *radius)
            });
            let all: Vec<_> = told.iter().copied().chain(lied).collect();
            prop_assert_eq!(intersect(&all, needed), intersect(&told, needed));
        }
    }
}
