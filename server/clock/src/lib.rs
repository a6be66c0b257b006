//! The one reader of the system's clocks.
//!
//! Everything else in monolock takes time as a value: [`BootInstant`] for elapsed time, [`WallTime`] for data.
//! `clippy.toml` forbids every other reader, so that nothing measures a lease on a clock that stops while the
//! machine sleeps.
//!
//! ```
//! let before = monolock_clock::boot_now();
//! assert!(monolock_clock::boot_now() >= before);
//! assert!(monolock_clock::wall_now().unix_seconds() > 1_700_000_000);
//! ```

#[cfg(feature = "tokio")]
mod timer;

use monolock_protocol::{BootInstant, WallTime};
use rustix::time::{ClockId, Timespec, clock_gettime};

#[cfg(feature = "tokio")]
pub use timer::{BootTimer, sleep_until};

/// The clock that elapsed time is measured on: it does not step and counts suspension.
#[cfg(target_os = "linux")]
const BOOT_CLOCK: ClockId = ClockId::Boottime;
/// Outside Linux the monotonic clock is the nearest there is; on macOS it counts sleep.
#[cfg(not(target_os = "linux"))]
const BOOT_CLOCK: ClockId = ClockId::Monotonic;

/// Reads the boot clock.
#[must_use]
pub fn boot_now() -> BootInstant {
    BootInstant::from_nanos(nanos(clock_gettime(BOOT_CLOCK)))
}

/// Reads the wall clock. One that is set before 1970 reads as 1970.
#[must_use]
pub fn wall_now() -> WallTime {
    WallTime::from_unix_nanos(nanos(clock_gettime(ClockId::Realtime)))
}

fn nanos(reading: Timespec) -> u64 {
    let seconds = u64::try_from(reading.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(reading.tv_nsec).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(nanos)
}
