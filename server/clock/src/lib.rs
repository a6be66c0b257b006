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

#[cfg(target_os = "linux")]
mod kernel;
#[cfg(feature = "tokio")]
mod timer;

use std::time::{Duration, SystemTime};

use monolock_protocol::{BootInstant, WallTime};
use rustix::time::{ClockId, Timespec, clock_gettime};

#[cfg(target_os = "linux")]
pub use kernel::{KernelClock, kernel_clock};
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
///
/// By the standard library, which asks the C library: there a test can set it for one process.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "this is what the others are to call")]
pub fn wall_now() -> WallTime {
    let since_epoch = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or(Duration::ZERO);
    WallTime::from_unix_nanos(u64::try_from(since_epoch.as_nanos()).unwrap_or(u64::MAX))
}

/// Reads both clocks as close together as a few attempts allow: a pause between two readings looks like a clock that
/// was set.
#[must_use]
pub fn both_now() -> (WallTime, BootInstant) {
    let mut best = read_between();
    for _ in 1..ATTEMPTS {
        if best.apart <= CLOSE_ENOUGH {
            break;
        }
        let again = read_between();
        if again.apart < best.apart {
            best = again;
        }
    }
    (best.wall, best.boot)
}

struct ReadBetween {
    wall: WallTime,
    boot: BootInstant,
    /// The time between the two readings of the boot clock, in the middle of which the wall clock was read.
    apart: Duration,
}

fn read_between() -> ReadBetween {
    let before = boot_now();
    let wall = wall_now();
    let apart = boot_now().saturating_duration_since(before);
    let boot = before + apart / 2;
    ReadBetween { wall, boot, apart }
}

const ATTEMPTS: u32 = 8;
const CLOSE_ENOUGH: Duration = Duration::from_micros(50);

fn nanos(reading: Timespec) -> u64 {
    let seconds = u64::try_from(reading.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(reading.tv_nsec).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(nanos)
}
