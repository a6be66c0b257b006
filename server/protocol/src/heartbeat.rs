//! When a client sends its next heartbeat, and when it must give its claim up.

use std::time::Duration;

use crate::{BootInstant, Lease};

/// Heartbeats are not sent more often than this, unless a quarter of the lease is shorter still.
const MIN_INTERVAL: Duration = Duration::from_millis(100);

/// The heartbeat rules of one session, normative for every client:
///
/// - the next heartbeat leaves `clamp(lease/4 - 2*srtt, min_interval, lease/4)` after the last was *sent*;
/// - at most one is unanswered;
/// - the claim is given up `0.8 * lease` after the *sending* of the last frame that was answered.
///
/// `ACQUIRE` counts as the first frame sent. The first `ACQUIRED` after `WAITING` is the push: it answers nothing,
/// so it must not be handed to [`handle_answer`](Self::handle_answer).
///
/// ```
/// use std::time::Duration;
/// use monolock_protocol::{BootInstant, HeartbeatSchedule, Lease};
///
/// let sent = BootInstant::from_millis(1_000);
/// let mut schedule = HeartbeatSchedule::new(Lease::from_millis(2_000)?, sent);
/// assert_eq!(schedule.next_send(), None, "the ACQUIRE is still unanswered");
/// schedule.handle_answer(sent + Duration::from_millis(10));
/// assert_eq!(schedule.next_send(), Some(sent + Duration::from_millis(480)));
/// assert_eq!(schedule.give_up_at(), sent + Duration::from_millis(1_600));
/// # Ok::<(), monolock_protocol::lease::LeaseError>(())
/// ```
#[derive(Clone, Debug)]
pub struct HeartbeatSchedule {
    lease: Lease,
    last_sent: BootInstant,
    answered: bool,
    /// When the last answered frame was sent: what the server is known to have heard.
    confirmed_from: BootInstant,
    smoothed_round_trip: Option<Duration>,
}

impl HeartbeatSchedule {
    /// Starts with the `ACQUIRE` that was sent at `sent`.
    #[must_use]
    pub fn new(lease: Lease, sent: BootInstant) -> Self {
        Self {
            lease,
            last_sent: sent,
            answered: false,
            confirmed_from: sent,
            smoothed_round_trip: None,
        }
    }

    /// A heartbeat was sent.
    ///
    /// # Panics
    ///
    /// When the last one is still unanswered: two in flight could not be told apart.
    pub fn handle_sent(&mut self, now: BootInstant) {
        assert!(self.answered, "at most one heartbeat is in flight");
        self.last_sent = now;
        self.answered = false;
    }

    /// The frame in flight was answered. An answer that nothing was waiting for changes nothing and returns `false`:
    /// the server sent a frame too many.
    pub fn handle_answer(&mut self, now: BootInstant) -> bool {
        if self.answered {
            return false;
        }
        self.answered = true;
        self.confirmed_from = self.last_sent;
        let round_trip = now.saturating_duration_since(self.last_sent);
        self.smoothed_round_trip = Some(match self.smoothed_round_trip {
            None => round_trip,
            Some(smoothed) => (smoothed * 4 + round_trip) / 5,
        });
        true
    }

    /// When to send the next heartbeat; `None` while one is unanswered.
    #[must_use]
    pub fn next_send(&self) -> Option<BootInstant> {
        self.answered.then(|| self.last_sent + self.interval())
    }

    /// When the claim must be given up unless an answer arrives before.
    #[must_use]
    pub fn give_up_at(&self) -> BootInstant {
        self.confirmed_from + self.lease.as_duration() * 4 / 5
    }

    /// The smoothed round trip, once one was measured.
    #[must_use]
    pub fn smoothed_round_trip(&self) -> Option<Duration> {
        self.smoothed_round_trip
    }

    fn interval(&self) -> Duration {
        let base = self.lease.as_duration() / 4;
        let margin = self.smoothed_round_trip.unwrap_or_default() * 2;
        base.saturating_sub(margin).max(MIN_INTERVAL.min(base))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> BootInstant {
        BootInstant::from_millis(millis)
    }

    fn schedule(lease_ms: u32) -> HeartbeatSchedule {
        HeartbeatSchedule::new(Lease::from_millis(lease_ms).expect("positive"), at(0))
    }

    #[test]
    fn a_fast_link_beats_every_quarter_of_the_lease() {
        let mut schedule = schedule(2_000);
        assert!(schedule.handle_answer(at(0)));
        assert_eq!(schedule.next_send(), Some(at(500)));
    }

    #[test]
    fn a_slow_link_beats_sooner_but_not_below_the_minimum() {
        let mut schedule = schedule(2_000);
        schedule.handle_answer(at(150));
        assert_eq!(schedule.next_send(), Some(at(200)));
        schedule.handle_sent(at(200));
        schedule.handle_answer(at(200 + 1_000));
        assert_eq!(schedule.smoothed_round_trip(), Some(Duration::from_millis(320)));
        assert_eq!(
            schedule.next_send(),
            Some(at(300)),
            "the minimum of 100 ms after the sending"
        );
    }

    #[test]
    fn the_minimum_never_exceeds_a_quarter_of_the_lease() {
        let mut schedule = schedule(8);
        schedule.handle_answer(at(1));
        assert_eq!(schedule.next_send(), Some(at(2)));
    }

    #[test]
    fn the_claim_is_given_up_counted_from_the_sending_of_what_was_answered() {
        let mut schedule = schedule(1_000);
        assert_eq!(schedule.give_up_at(), at(800));
        schedule.handle_answer(at(300));
        assert_eq!(schedule.give_up_at(), at(800), "not counted from the answer");
        schedule.handle_sent(at(400));
        assert_eq!(schedule.give_up_at(), at(800), "sending alone confirms nothing");
        schedule.handle_answer(at(700));
        assert_eq!(schedule.give_up_at(), at(1_200));
    }

    #[test]
    fn an_unasked_answer_confirms_nothing() {
        let mut schedule = schedule(1_000);
        assert!(schedule.handle_answer(at(1)));
        assert!(!schedule.handle_answer(at(700)));
        assert_eq!(schedule.give_up_at(), at(800));
    }
}
