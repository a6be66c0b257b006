//! The clock check: how far this node's wall clock is off, and whether it may be believed.
//!
//! **Model.** Several time servers, each asked by itself, say how far this clock is off, within an error that covers the
//! round trip and the server's own distance from its source. Fewer than half of those that are configured lie.
//!
//! **Dangers.** A clock far ahead would push the token sequence into the future for good. One lying server; two that
//! disagree; answers from before the clock was set; answers so old that the clock has drifted since.
//!
//! **Method.** The truth lies where the intervals of a majority of the *configured* servers overlap ([`marzullo`]): a
//! server that does not answer agrees with nobody. What a server said is kept relative to the boot clock, which does
//! not step: so the offset always is that of the wall clock as it reads now, and its error grows with age. When the
//! two clocks move against each other by more than clock discipline does, one of them was set, and nobody knows which:
//! everything measured before is void.
//!
//! The verdict decides one thing: whether the wall clock may be adopted into the epoch of tokens. No promise of order
//! rests on it.

use std::time::Duration;

use monolock_protocol::BootInstant;

pub mod marzullo;
mod offset;
mod verdict;

pub use offset::{ClockOffset, ClockReading};
pub use verdict::{Suspicion, Uncertainty, Verdict};

use marzullo::{Interval, intersect};

/// What the clock is measured against, and how strictly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockLimits {
    /// How many time servers are configured; none: there is no check.
    pub servers: usize,
    /// How far the clock may be off and still be believed.
    pub max_offset: Duration,
    /// How old an answer may be and still count.
    pub max_age: Duration,
}

/// One answer of a time server or of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockSample {
    /// How far the wall clock was off when it was read.
    pub offset: ClockOffset,
    /// How wrong that may be, either way: half of each round trip, and the dispersion.
    pub error: Duration,
    /// The reading that it is about.
    pub reading: ClockReading,
}

/// What is known of one other clock, as of now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measured {
    /// How far this node's wall clock is off.
    pub offset: ClockOffset,
    /// How wrong that may be, drift since then included.
    pub error: Duration,
    /// How long ago it was measured.
    pub age: Duration,
}

/// The clock check of one node; see the [module](self).
#[derive(Clone, Debug)]
pub struct ClockCheck {
    limits: ClockLimits,
    servers: Vec<Option<Anchored>>,
    peer: Option<Anchored>,
    last: Option<ClockReading>,
    last_step: Option<Step>,
    steps: u64,
}

/// Another clock, relative to the boot clock.
#[derive(Clone, Copy, Debug)]
struct Anchored {
    /// What it is ahead of the boot clock, in nanoseconds.
    over_boot: i128,
    error: Duration,
    at: BootInstant,
}

#[derive(Clone, Copy, Debug)]
struct Step {
    by: ClockOffset,
    seen_at: BootInstant,
}

impl ClockCheck {
    /// A check that has measured nothing.
    #[must_use]
    pub fn new(limits: ClockLimits) -> Self {
        Self {
            limits,
            servers: vec![None; limits.servers],
            peer: None,
            last: None,
            last_step: None,
            steps: 0,
        }
    }

    /// Both clocks were read. To be called often: a step is seen between two readings. Whether there was one.
    pub fn handle_reading(&mut self, reading: ClockReading) -> Option<ClockOffset> {
        let Some(last) = self.last.filter(|last| last.boot <= reading.boot) else {
            self.last.get_or_insert(reading);
            return None;
        };
        self.last = Some(reading);
        let by = ClockOffset::clamped(reading.wall_over_boot() - last.wall_over_boot());
        let elapsed = reading.boot.saturating_duration_since(last.boot);
        if by.size() <= STEP_TOLERANCE + elapsed / FASTEST_SLEW {
            return None;
        }
        self.servers.fill(None);
        self.peer = None;
        self.steps += 1;
        let seen_at = reading.boot;
        self.last_step = Some(Step { by, seen_at });
        Some(by)
    }

    /// A time server answered; `server` counts from 0. An answer about a reading from before a step is ignored.
    ///
    /// # Panics
    ///
    /// When there is no such server.
    pub fn handle_sample(&mut self, server: usize, sample: ClockSample) {
        if let Some(anchored) = self.anchor(sample) {
            self.servers[server] = Some(anchored);
        }
    }

    /// The peer told its wall clock; the error is half the round trip.
    pub fn handle_peer(&mut self, sample: ClockSample) {
        if let Some(anchored) = self.anchor(sample) {
            self.peer = Some(anchored);
        }
    }

    fn anchor(&self, sample: ClockSample) -> Option<Anchored> {
        let is_void = self
            .last_step
            .is_some_and(|step| sample.reading.boot < step.seen_at);
        (!is_void).then(|| Anchored {
            over_boot: sample.reading.wall_over_boot() + i128::from(sample.offset.as_nanos()),
            error: sample.error,
            at: sample.reading.boot,
        })
    }

    /// What to think of the wall clock as it reads now.
    #[must_use]
    pub fn verdict(&self, now: ClockReading) -> Verdict {
        let (configured, needed) = (self.limits.servers, self.limits.servers / 2 + 1);
        if configured == 0 {
            return Verdict::Unknown(Uncertainty::NotConfigured);
        }
        let intervals: Vec<_> = self.fresh(now).map(Measured::interval).collect();
        let answered = intervals.len();
        if answered < needed {
            return self.without_a_majority(answered, needed, now);
        }
        let Some(agreed) = intersect(&intervals, needed) else {
            let servers = Suspicion::Disagreement { answered, configured };
            return Verdict::Suspect(servers);
        };
        let offset = ClockOffset::from_nanos(agreed.centre());
        let error = Duration::from_nanos(agreed.radius());
        if offset.size() > self.limits.max_offset {
            Verdict::Suspect(Suspicion::Off { offset, error })
        } else if offset.size() + error > self.limits.max_offset {
            Verdict::Unknown(Uncertainty::TooCoarse { offset, error })
        } else {
            Verdict::Synced { offset, error }
        }
    }

    fn without_a_majority(&self, answered: usize, needed: usize, now: ClockReading) -> Verdict {
        let compared_since = self.servers.iter().flatten().count() >= needed;
        if let Some(Step { by, .. }) = self.last_step
            && !compared_since
        {
            return Verdict::Suspect(Suspicion::Stepped { by });
        }
        let far_from_peer = self
            .peer(now)
            .filter(|peer| peer.offset.size() > self.limits.max_offset + peer.error);
        match far_from_peer {
            Some(Measured { offset, error, .. }) => Verdict::Suspect(Suspicion::OffPeer { offset, error }),
            None => Verdict::Unknown(Uncertainty::TooFewAnswers { answered, needed }),
        }
    }

    fn fresh(&self, now: ClockReading) -> impl Iterator<Item = Measured> {
        (0..self.limits.servers).filter_map(move |server| self.server(server, now))
    }

    /// What a time server said, unless it is too old; `server` counts from 0.
    #[must_use]
    pub fn server(&self, server: usize, now: ClockReading) -> Option<Measured> {
        let anchored = self.servers.get(server).copied().flatten()?;
        self.measured(anchored, now)
    }

    /// What the peer said, unless it is too old.
    #[must_use]
    pub fn peer(&self, now: ClockReading) -> Option<Measured> {
        self.measured(self.peer?, now)
    }

    fn measured(&self, anchored: Anchored, now: ClockReading) -> Option<Measured> {
        let age = now.boot.saturating_duration_since(anchored.at);
        (age <= self.limits.max_age).then(|| Measured {
            offset: ClockOffset::clamped(anchored.over_boot - now.wall_over_boot()),
            error: anchored.error.saturating_add(age / DRIFT),
            age,
        })
    }

    /// How often one of the clocks was set since the start.
    #[must_use]
    pub const fn steps(&self) -> u64 {
        self.steps
    }
}

impl Measured {
    fn interval(self) -> Interval {
        let error = u64::try_from(self.error.as_nanos()).unwrap_or(u64::MAX);
        Interval::around(self.offset.as_nanos(), error)
    }
}

/// How far the two clocks may move against each other between two readings without one of them having been set.
const STEP_TOLERANCE: Duration = Duration::from_millis(100);
/// Clock discipline that corrects gradually is slower than one part in so many.
const FASTEST_SLEW: u32 = 10;
/// The boot clock runs true to one part in so many: 500 ppm, which is the most that the kernel corrects a frequency by.
const DRIFT: u32 = 2_000;

#[cfg(test)]
mod tests;
