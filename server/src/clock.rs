//! Both clocks at once, and wall time for people.

use chrono::{DateTime, SecondsFormat};
use monolock_core::Now;
use monolock_protocol::WallTime;

/// Reads the wall clock, then the boot clock: see [`Now`].
pub(crate) fn now() -> Now {
    let wall = monolock_clock::wall_now();
    let boot = monolock_clock::boot_now();
    Now { wall, boot }
}

/// A wall time in UTC as RFC 3339 writes it, to the millisecond.
pub(crate) fn rfc3339(time: WallTime) -> String {
    let nanos = i64::try_from(time.unix_nanos()).unwrap_or(i64::MAX);
    DateTime::from_timestamp_nanos(nanos).to_rfc3339_opts(SecondsFormat::Millis, true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_in_utc() {
        let time = WallTime::from_unix_nanos(1_786_190_400_007_000_000);
        assert_eq!(rfc3339(time), "2026-08-08T12:00:00.007Z");
    }
}
