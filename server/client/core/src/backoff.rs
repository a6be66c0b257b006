//! How long to wait between attempts. Pure: the random number is an argument.

use std::time::Duration;

const FIRST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(5);

/// Even "at once" is spread over this: when a server goes, all its clients come at the same moment.
const AT_ONCE_SPREAD: Duration = Duration::from_millis(50);

/// The clients of a server that went come back within this share of their leases, but not later than the limit.
const AFTER_LOSS_SHARE: u32 = 4;
const AFTER_LOSS_LIMIT: Duration = Duration::from_millis(500);

/// Exponential backoff with jitter: 100 ms, doubling to 5 s, each time between half of it and all of it.
#[derive(Clone, Debug)]
pub struct Backoff {
    ceiling: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self::new()
    }
}

impl Backoff {
    /// The wait after a first failure comes next.
    #[must_use]
    pub fn new() -> Self {
        Self { ceiling: FIRST }
    }

    /// The next wait; `random` is in `0.0..1.0`.
    pub fn next(&mut self, random: f64) -> Duration {
        let wait = self.ceiling.mul_f64(0.5 + random / 2.0);
        self.ceiling = (self.ceiling * 2).min(LONGEST);
        wait
    }

    /// The wait of a client that may come back at once; `random` is in `0.0..1.0`.
    #[must_use]
    pub fn at_once(random: f64) -> Duration {
        AT_ONCE_SPREAD.mul_f64(random)
    }

    /// The wait of a client that asks again for what it has just lost, counted from the loss; `random` is in `0.0..1.0`.
    ///
    /// It costs next to nothing: after a crash or a takeover the lock is held back for the lease of its old holder anyway.
    #[must_use]
    pub fn after_loss(lease: Duration, random: f64) -> Duration {
        (lease / AFTER_LOSS_SHARE).min(AFTER_LOSS_LIMIT).mul_f64(random)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_from_100_ms_to_5_s() {
        let mut backoff = Backoff::new();
        let ceilings: Vec<_> = (0..8).map(|_| backoff.next(1.0).as_millis()).collect();
        assert_eq!(ceilings, [100, 200, 400, 800, 1_600, 3_200, 5_000, 5_000]);
        assert_eq!(backoff.next(0.0), Duration::from_millis(2_500));
        assert_eq!(Backoff::at_once(0.5), Duration::from_millis(25));
    }

    #[test]
    fn after_a_loss_clients_are_spread_over_a_part_of_the_lease() {
        let wait =
            |lease_ms, random| Backoff::after_loss(Duration::from_millis(lease_ms), random).as_millis();
        assert_eq!((wait(400, 0.0), wait(400, 0.5), wait(400, 1.0)), (0, 50, 100));
        assert_eq!((wait(60_000, 0.1), wait(60_000, 1.0)), (50, 500));
    }
}
