//! How long to measure, and in which order.

use std::time::Duration;

use anyhow::Result;

/// How often the contenders of a row take turns.
const ROUNDS: u32 = 7;

/// How long each contender of a row is measured.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    seconds: f64,
}

impl Plan {
    /// Measures each contender for so many seconds in all.
    #[must_use]
    pub fn new(seconds: f64) -> Self {
        Self { seconds }
    }

    /// One turn of one contender.
    #[must_use]
    pub fn turn(self) -> Duration {
        Duration::from_secs_f64(self.seconds / f64::from(ROUNDS))
    }

    /// A number of sessions or waiters: the full one from one second up, less in a shorter run.
    #[must_use]
    pub fn scaled(self, full: usize) -> usize {
        let share = self.seconds.min(1.0);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "a small positive number, and roughly is enough"
        )]
        let scaled = (full as f64 * share) as usize;
        scaled.max(16)
    }
}

/// Measures the contenders in turn, every other round in the opposite order, after one round that does not count.
/// The figures of each contender stand at its place.
///
/// # Errors
///
/// The first error of a measurement.
pub fn in_turn<C, T>(contenders: &[C], mut measure: impl FnMut(&C) -> Result<T>) -> Result<Vec<Vec<T>>> {
    let mut figures: Vec<Vec<T>> = contenders.iter().map(|_| Vec::new()).collect();
    for contender in contenders {
        measure(contender)?;
    }
    for round in 0..ROUNDS {
        for turn in 0..contenders.len() {
            let place = if round % 2 == 0 {
                turn
            } else {
                contenders.len() - 1 - turn
            };
            figures[place].push(measure(&contenders[place])?);
        }
    }
    Ok(figures)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contenders_take_turns_and_figures_stay_at_their_place() {
        let mut order = String::new();
        let figures = in_turn(&['a', 'b'], |name| {
            order.push(*name);
            Ok(order.len())
        });
        assert_eq!(order, "ababbaabbaabbaab");
        let figures = figures.expect("no measurement fails");
        assert_eq!(figures[0], [3, 6, 7, 10, 11, 14, 15]);
        assert_eq!(figures[1], [4, 5, 8, 9, 12, 13, 16]);
    }
}
