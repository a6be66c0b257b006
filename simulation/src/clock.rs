//! The clocks of one machine.

use monolock_core::Now;
use monolock_protocol::{BootInstant, WallTime};

/// The unix second in which every simulation begins.
pub(crate) const FIRST_SECOND: u64 = 1_800_000_000;

/// A boot clock that runs at its own rate, and a wall clock that follows it and steps. True time is in microseconds.
#[derive(Clone, Debug)]
pub(crate) struct Clock {
    /// Millionths of true time.
    rate: u64,
    booted_at: u64,
    /// What the boot clock showed then.
    offset_us: u64,
    wall_offset_us: i64,
    /// A clock that stands still while its machine is suspended: a mistake.
    stops_when_suspended: bool,
    suspended_us: u64,
    suspended_since: Option<u64>,
}

impl Clock {
    pub(crate) fn new(rate: u64, offset_us: u64, wall_offset_us: i64, stops_when_suspended: bool) -> Self {
        Self {
            rate,
            booted_at: 0,
            offset_us,
            wall_offset_us,
            stops_when_suspended,
            suspended_us: 0,
            suspended_since: None,
        }
    }

    pub(crate) fn boot(&self, now: u64) -> BootInstant {
        let running = now - self.booted_at - self.lost(now);
        let local = u128::from(running) * u128::from(self.rate) / 1_000;
        BootInstant::from_nanos(self.offset_us * 1_000 + local as u64)
    }

    pub(crate) fn read(&self, now: u64) -> Now {
        let wall = (FIRST_SECOND * 1_000_000 + now).saturating_add_signed(self.wall_offset_us);
        Now {
            wall: WallTime::from_unix_nanos(wall * 1_000),
            boot: self.boot(now),
        }
    }

    /// When the boot clock will show `at`, rounded up.
    pub(crate) fn true_time(&self, at: BootInstant, now: u64) -> u64 {
        let local = at.as_nanos().saturating_sub(self.offset_us * 1_000);
        let running = (u128::from(local) * 1_000).div_ceil(u128::from(self.rate));
        let running = u64::try_from(running).unwrap_or(u64::MAX / 4).min(u64::MAX / 4);
        self.booted_at + self.lost(now) + running
    }

    pub(crate) fn step_wall(&mut self, by_us: i64) {
        self.wall_offset_us += by_us;
    }

    /// The machine starts anew.
    pub(crate) fn reboot(&mut self, now: u64) {
        self.booted_at = now;
        self.offset_us = 5_000_000;
        self.suspended_us = 0;
        self.suspended_since = None;
    }

    pub(crate) fn suspend(&mut self, now: u64) {
        self.suspended_since.get_or_insert(now);
    }

    pub(crate) fn resume(&mut self, now: u64) {
        if let Some(since) = self.suspended_since.take() {
            self.suspended_us += now - since;
        }
    }

    fn lost(&self, now: u64) -> u64 {
        if !self.stops_when_suspended {
            return 0;
        }
        self.suspended_us + self.suspended_since.map_or(0, |since| now - since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn true_time_is_when_the_clock_shows_it() {
        for rate in [950_000, 1_000_000, 1_050_000] {
            let clock = Clock::new(rate, 77, 0, false);
            for at in [0, 1, 999, 12_345_678] {
                let shown = clock.boot(at);
                assert!(clock.true_time(shown, at) <= at);
                assert!(clock.boot(clock.true_time(shown, at)) >= shown, "rounded up");
            }
        }
    }

    #[test]
    fn only_a_clock_that_stops_when_suspended_loses_time() {
        let mut clock = Clock::new(1_000_000, 0, 0, true);
        clock.suspend(100);
        assert_eq!(clock.boot(500), BootInstant::from_nanos(100_000));
        clock.resume(600);
        assert_eq!(clock.boot(700), BootInstant::from_nanos(200_000));
        let mut clock = Clock::new(1_000_000, 0, 0, false);
        clock.suspend(100);
        clock.resume(600);
        assert_eq!(clock.boot(700), BootInstant::from_nanos(700_000));
    }
}
