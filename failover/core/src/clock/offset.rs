//! Readings of both clocks, and how far a wall clock is off.

use std::fmt;
use std::time::Duration;

use monolock_protocol::{BootInstant, WallTime};

/// One reading of this machine's clocks, as close together as they could be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ClockReading {
    /// The wall clock.
    pub wall: WallTime,
    /// The boot clock.
    pub boot: BootInstant,
}

impl ClockReading {
    /// What the wall clock is ahead of the boot clock, in nanoseconds: changes only when one of them is set.
    pub(super) fn wall_over_boot(self) -> i128 {
        i128::from(self.wall.unix_nanos()) - i128::from(self.boot.as_nanos())
    }
}

/// What must be added to a wall clock to get the time of another: more than zero when the clock is behind. In
/// nanoseconds; what is beyond 292 years counts as 292 years.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClockOffset(i64);

impl ClockOffset {
    /// An offset of so many nanoseconds.
    #[must_use]
    pub const fn from_nanos(nanos: i64) -> Self {
        Self(nanos)
    }

    /// The offset of a clock that shows `own` while the other shows `other`.
    #[must_use]
    pub fn between(own: WallTime, other: WallTime) -> Self {
        Self::clamped(i128::from(other.unix_nanos()) - i128::from(own.unix_nanos()))
    }

    pub(super) fn clamped(nanos: i128) -> Self {
        Self(i64::try_from(nanos).unwrap_or(if nanos < 0 { i64::MIN } else { i64::MAX }))
    }

    /// In nanoseconds.
    #[must_use]
    pub const fn as_nanos(self) -> i64 {
        self.0
    }

    /// In seconds, for metrics.
    #[must_use]
    #[expect(
        clippy::cast_precision_loss,
        reason = "a metric need not be exact to the nanosecond"
    )]
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// Its size, whatever its direction.
    #[must_use]
    pub const fn size(self) -> Duration {
        Duration::from_nanos(self.0.unsigned_abs())
    }
}

/// As people say it: `12.5 ms behind`, `3600.000 s ahead`.
impl fmt::Display for ClockOffset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let side = if self.0 < 0 { "ahead" } else { "behind" };
        write!(f, "{} {side}", Legible(self.size()))
    }
}

/// A duration for people: in milliseconds below a second, in seconds above.
pub(super) struct Legible(pub(super) Duration);

impl fmt::Display for Legible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs_f64();
        if seconds < 1.0 {
            write!(f, "{:.1} ms", seconds * 1e3)
        } else {
            write!(f, "{seconds:.3} s")
        }
    }
}
