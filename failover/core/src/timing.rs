//! The durations of the pair, all derived from one authority period.

use std::time::Duration;

/// The shortest authority period that is accepted.
pub const MIN_TTL: Duration = Duration::from_millis(300);

/// The longest authority period that is accepted.
pub const MAX_TTL: Duration = Duration::from_secs(3_600);

/// How far a boot clock may be from true time, in percent: what the timers are checked against.
const CLOCK_RATE_PERCENT: u32 = 5;

/// The authority period `ttl` and what follows from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Timing {
    ttl: Duration,
}

/// Why a duration is no authority period.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TimingError {
    /// Shorter than [`MIN_TTL`].
    #[error("the authority period is {ttl:?}: give it at least 300ms")]
    TooShort {
        /// The duration given.
        ttl: Duration,
    },
    /// Longer than [`MAX_TTL`].
    #[error(
        "the authority period is {ttl:?}: give it at most one hour, for a silent active is taken over no sooner"
    )]
    TooLong {
        /// The duration given.
        ttl: Duration,
    },
}

impl Timing {
    /// Checks and takes the authority period.
    ///
    /// # Errors
    ///
    /// [`TimingError::TooShort`] and [`TimingError::TooLong`].
    ///
    /// # Panics
    ///
    /// When an active node on the slowest clock would fence itself later than a standby on the fastest takes over:
    /// a mistake in this file.
    pub fn new(ttl: Duration) -> Result<Self, TimingError> {
        if ttl < MIN_TTL {
            return Err(TimingError::TooShort { ttl });
        }
        if ttl > MAX_TTL {
            return Err(TimingError::TooLong { ttl });
        }
        let timing = Self { ttl };
        assert!(
            !timing.self_fencing_margin().is_zero(),
            "self-fencing must come before a takeover"
        );
        Ok(timing)
    }

    /// The authority period.
    #[must_use]
    pub const fn ttl(self) -> Duration {
        self.ttl
    }

    /// How long a renewal gives authority, from its sending.
    #[must_use]
    pub fn authority(self) -> Duration {
        self.ttl * 4 / 5
    }

    /// How often the active renews.
    #[must_use]
    pub fn renewal_interval(self) -> Duration {
        self.ttl / 3
    }

    /// How often the standby reads the record.
    #[must_use]
    pub fn reading_interval(self) -> Duration {
        self.ttl / 6
    }

    /// Readings farther apart than this did not watch the time between them.
    #[must_use]
    pub fn longest_reading_gap(self) -> Duration {
        self.ttl / 3
    }

    /// How far the floor is kept ahead of the tokens, in whole seconds.
    #[must_use]
    pub fn floor_ahead_seconds(self) -> u64 {
        let two = self.ttl * 2;
        two.as_secs() + u64::from(two.subsec_nanos() > 0) + 1
    }

    /// How far ahead the state file is written, in whole seconds, so that not every renewal costs an fsync.
    #[must_use]
    pub fn state_block_seconds(self) -> u64 {
        self.floor_ahead_seconds().max(10)
    }

    /// What is left between the latest end of an active's authority and the earliest takeover by silence, in true
    /// time, when its clock is as slow and the standby's as fast as allowed. Zero would be unsafe.
    #[must_use]
    pub fn self_fencing_margin(self) -> Duration {
        let latest_end = self.authority() * (100 + CLOCK_RATE_PERCENT) / 100;
        let earliest_takeover = self.ttl * (100 - CLOCK_RATE_PERCENT) / 100;
        earliest_takeover.saturating_sub(latest_end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_accepted_period_fences_itself_before_a_takeover() {
        assert_eq!(
            Timing::new(Duration::from_millis(299)),
            Err(TimingError::TooShort {
                ttl: Duration::from_millis(299)
            })
        );
        for millis in [300, 1_000, 3_000, 60_000] {
            let timing = Timing::new(Duration::from_millis(millis)).expect("long enough");
            assert_eq!(
                timing.self_fencing_margin(),
                Duration::from_millis(millis) * 11 / 100
            );
        }
    }

    #[test]
    fn the_floor_runs_two_periods_and_a_second_ahead() {
        let ahead = |millis| {
            Timing::new(Duration::from_millis(millis))
                .expect("long enough")
                .floor_ahead_seconds()
        };
        assert_eq!(
            (ahead(300), ahead(1_000), ahead(1_200), ahead(3_000)),
            (2, 3, 4, 7)
        );
    }
}
