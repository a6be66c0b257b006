//! The two clocks, as values.
//!
//! [`BootInstant`] measures elapsed time: it never steps and keeps counting while the machine is suspended, so a
//! closed lid cannot stretch a lease. [`WallTime`] is data: it names a second for people and for tokens, and it may
//! step in either direction. Mixing them does not compile.

use std::fmt;
use std::ops::{Add, Sub};
use std::time::Duration;

/// A point on the boot clock of one machine: nanoseconds since it started, suspension included.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BootInstant(u64);

impl BootInstant {
    /// The start of the clock.
    pub const ZERO: Self = Self(0);
    /// Later than every reading.
    pub const MAX: Self = Self(u64::MAX);

    /// The point so many nanoseconds after the start of the clock.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// The point so many milliseconds after the start of the clock.
    #[must_use]
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis.saturating_mul(1_000_000))
    }

    /// Nanoseconds since the start of the clock.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The time from `earlier` to here; zero when `earlier` is later.
    #[must_use]
    pub const fn saturating_duration_since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for BootInstant {
    type Output = Self;

    /// Saturates at [`BootInstant::MAX`].
    fn add(self, duration: Duration) -> Self {
        Self(
            self.0
                .saturating_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)),
        )
    }
}

impl Sub<Duration> for BootInstant {
    type Output = Self;

    /// Saturates at [`BootInstant::ZERO`].
    fn sub(self, duration: Duration) -> Self {
        Self(
            self.0
                .saturating_sub(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)),
        )
    }
}

impl fmt::Debug for BootInstant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "boot+{:?}", Duration::from_nanos(self.0))
    }
}

/// A reading of the wall clock: nanoseconds since the unix epoch. A clock set before 1970 reads as 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WallTime(u64);

impl WallTime {
    /// The wall time so many nanoseconds after the unix epoch.
    #[must_use]
    pub const fn from_unix_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// The wall time at the start of a unix second.
    #[must_use]
    pub const fn from_unix_seconds(seconds: u64) -> Self {
        Self(seconds.saturating_mul(1_000_000_000))
    }

    /// Nanoseconds since the unix epoch.
    #[must_use]
    pub const fn unix_nanos(self) -> u64 {
        self.0
    }

    /// Whole seconds since the unix epoch: what goes into a token.
    #[must_use]
    pub const fn unix_seconds(self) -> u64 {
        self.0 / 1_000_000_000
    }

    /// The time that is left until the next unix second starts: more than zero, at most one second.
    #[must_use]
    pub const fn until_next_second(self) -> Duration {
        Duration::from_nanos(1_000_000_000 - self.0 % 1_000_000_000)
    }

    /// This wall time moved by a duration; saturates.
    #[must_use]
    pub fn saturating_add(self, duration: Duration) -> Self {
        Self(
            self.0
                .saturating_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)),
        )
    }

    /// This wall time moved back by a duration; saturates at the unix epoch.
    #[must_use]
    pub fn saturating_sub(self, duration: Duration) -> Self {
        Self(
            self.0
                .saturating_sub(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates_at_both_ends() {
        assert_eq!(BootInstant::MAX + Duration::MAX, BootInstant::MAX);
        assert_eq!(
            BootInstant::from_millis(1) - Duration::from_secs(1),
            BootInstant::ZERO
        );
        assert_eq!(
            BootInstant::ZERO.saturating_duration_since(BootInstant::MAX),
            Duration::ZERO
        );
    }

    #[test]
    fn the_next_second_is_never_now() {
        assert_eq!(
            WallTime::from_unix_seconds(7).until_next_second(),
            Duration::from_secs(1)
        );
        assert_eq!(
            WallTime::from_unix_nanos(7_999_999_999).until_next_second(),
            Duration::from_nanos(1)
        );
    }
}
