//! The next fencing token: `max(last + 1, epoch << 20)`, below a ceiling.
//!
//! Model: tokens only ever rise; a restarted or another process starts above everything this one can have granted.
//!
//! Dangers, and the method against each:
//!
//! - The wall clock steps back: `last + 1` does not look at it.
//! - The wall clock leaps forward: one bad step would push the sequence ahead for good. So the epoch is the smaller of
//!   the wall clock and an anchor that advances with the boot clock, until somebody who can judge the clock
//!   [adopts](TokenSource::adopt) it.
//! - The process is restarted: without a reservation it starts in the *next* second, and waits for it on the boot
//!   clock; a second restart within that second then starts in the one after. With a reservation it starts at the old
//!   ceiling, below which everything else was.
//! - The reservation cannot be extended: the source stops following the clock and grants `last + 1` up to the ceiling.

use std::time::Duration;

use monolock_protocol::{BootInstant, Token, WallTime};

use crate::Now;
use crate::rules::{Rule, Rules};

/// See the [module documentation](self).
#[derive(Clone, Debug)]
pub struct TokenSource {
    last: Token,
    /// Exclusive.
    ceiling: Token,
    not_before: BootInstant,
    anchor: Now,
    /// Up to which epoch a reservation was asked for.
    asked_epoch: u64,
    ask_at: BootInstant,
    /// So many seconds below the ceiling are for counting only.
    counted_seconds: u64,
    rules: Rules,
}

impl TokenSource {
    /// The source of a server that remembers nothing: it starts with the next second, when that has come.
    #[must_use]
    pub fn after_restart(now: Now) -> Self {
        let first = Token::first_of_epoch(now.wall.unix_seconds() + 1);
        Self {
            not_before: now.boot + now.wall.until_next_second(),
            ..Self::reserved(first, Token::MAX, now)
        }
    }

    /// The source of a server that knows a number below which everything was granted: it starts at `first`, at
    /// once, and stays below `ceiling`. The wall clock of `now` is believed.
    #[must_use]
    pub fn reserved(first: Token, ceiling: Token, now: Now) -> Self {
        Self {
            last: Token::new(first.get().saturating_sub(1)),
            ceiling,
            not_before: BootInstant::ZERO,
            anchor: now,
            asked_epoch: ceiling.epoch_seconds(),
            ask_at: now.boot,
            counted_seconds: 0,
            rules: Rules::default(),
        }
    }

    /// The same source, staying below `ceiling`.
    #[must_use]
    pub fn below(self, ceiling: Token) -> Self {
        Self {
            ceiling,
            asked_epoch: ceiling.epoch_seconds(),
            ..self
        }
    }

    /// The same as [`reserved`](Self::reserved), but until it is adopted the wall clock is believed no further than the epoch of `first`.
    #[must_use]
    pub fn unconfirmed(first: Token, ceiling: Token, now: Now) -> Self {
        let wall = WallTime::from_unix_seconds(first.epoch_seconds());
        Self::reserved(first, ceiling, Now { wall, ..now })
    }

    /// The same source, which follows the clock only until so many seconds are left below the ceiling: they are kept for
    /// grants to be counted in, 2^20 in each.
    #[must_use]
    pub fn counting_the_last(self, counted_seconds: u64) -> Self {
        Self {
            counted_seconds,
            ..self
        }
    }

    pub(crate) fn with_rules(self, rules: Rules) -> Self {
        Self { rules, ..self }
    }

    /// The token of a grant made now, or why there is none yet.
    ///
    /// # Errors
    ///
    /// [`NoToken`]; nothing was used up.
    pub fn grant(&mut self, now: Now) -> Result<Token, NoToken> {
        if now.boot < self.not_before {
            return Err(NoToken::NotBefore(self.not_before));
        }
        let next = self.last.next();
        let of_epoch = Token::first_of_epoch(self.epoch(now));
        let token = if self.follows_to(of_epoch) {
            next.max(of_epoch)
        } else {
            next
        };
        if token >= self.ceiling && self.rules.hold(Rule::TokensStayBelowCeiling) {
            return Err(NoToken::AtCeiling);
        }
        self.last = token;
        Ok(token)
    }

    /// As if so many grants were made now; the last of them.
    #[cfg(feature = "model")]
    pub(crate) fn grant_many(&mut self, count: u64, now: Now) -> Result<Token, NoToken> {
        let first = self.grant(now)?;
        let last = Token::new(first.get() + count);
        let highest = Token::new(self.ceiling.get() - 1);
        self.last = if self.rules.hold(Rule::TokensStayBelowCeiling) {
            last.min(highest)
        } else {
            last
        };
        Ok(self.last)
    }

    fn follows_to(&self, of_epoch: Token) -> bool {
        let counted = of_epoch.epoch_seconds().saturating_add(self.counted_seconds);
        Token::first_of_epoch(counted) < self.ceiling
    }

    /// Raises the ceiling; a lower one than before changes nothing.
    pub fn raise_ceiling(&mut self, ceiling: Token) {
        self.ceiling = self.ceiling.max(ceiling);
        self.asked_epoch = self.asked_epoch.max(ceiling.epoch_seconds());
    }

    /// Believes the wall clock from this reading on: somebody compared it with others. A step after the reading is not
    /// believed.
    pub fn adopt(&mut self, judged: Now) {
        self.anchor = judged;
    }

    /// Up to which epoch tokens should be made durable now. Asked once for each extension.
    pub fn poll_reserve(&mut self, now: Now) -> Option<u64> {
        if self.ceiling == Token::MAX {
            return None;
        }
        let (by_clock, by_count) = (self.epoch(now), self.last.epoch_seconds());
        let needed = (by_clock + RESERVE_WHEN_LEFT).max(by_count + COUNTED_WHEN_LEFT);
        let is_enough = needed <= self.asked_epoch;
        if !is_enough {
            self.asked_epoch = (by_clock + RESERVE_AHEAD).max(by_count + 2 * COUNTED_WHEN_LEFT);
        }
        let left = self.asked_epoch.saturating_sub(by_clock + RESERVE_WHEN_LEFT);
        self.ask_at = now.boot + Duration::from_secs(left + 1);
        (!is_enough).then_some(self.asked_epoch)
    }

    /// When [`poll_reserve`](Self::poll_reserve) should be asked again.
    #[must_use]
    pub fn reserve_timeout(&self) -> Option<BootInstant> {
        (self.ceiling != Token::MAX).then_some(self.ask_at)
    }

    /// The largest token granted, or the one before the first.
    #[must_use]
    pub fn last(&self) -> Token {
        self.last
    }

    /// Before this nothing is granted.
    #[must_use]
    pub fn not_before(&self) -> BootInstant {
        self.not_before
    }

    /// The unix second that a grant made now follows.
    #[must_use]
    pub fn epoch(&self, now: Now) -> u64 {
        if !self.rules.hold(Rule::WallClockIsDoubted) {
            return now.wall.unix_seconds();
        }
        let elapsed = now.boot.saturating_duration_since(self.anchor.boot);
        let believed = self.anchor.wall.saturating_add(elapsed).saturating_add(TOLERANCE);
        now.wall.min(believed).unix_seconds()
    }
}

/// Why there is no token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoToken {
    /// A predecessor may have granted in this second: wait until then.
    NotBefore(BootInstant),
    /// Everything below the ceiling is used up: wait for the reservation.
    AtCeiling,
}

/// How many seconds are reserved ahead.
pub const RESERVE_AHEAD: u64 = 60;

/// The next reservation is asked for when fewer seconds than this are left.
const RESERVE_WHEN_LEFT: u64 = 30;

/// The same for a source ahead of its clock, which only counts: fewer, because a second is a million grants, and
/// because each restart of such a source uses the rest up.
const COUNTED_WHEN_LEFT: u64 = 2;

/// How far the wall clock may run ahead of the anchor and still be believed: what clock discipline does in small steps.
const TOLERANCE: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(wall_ms: u64, boot_ms: u64) -> Now {
        Now {
            wall: WallTime::from_unix_nanos(wall_ms * 1_000_000),
            boot: BootInstant::from_millis(boot_ms),
        }
    }

    fn token(epoch: u64, counter: u64) -> Token {
        Token::new(Token::first_of_epoch(epoch).get() + counter)
    }

    #[test]
    fn a_restart_waits_for_the_next_second_and_starts_there() {
        let mut source = TokenSource::after_restart(at(100_300, 10));
        let start = BootInstant::from_millis(10 + 700);
        assert_eq!(source.grant(at(100_999, 709)), Err(NoToken::NotBefore(start)));
        assert_eq!(source.grant(at(101_000, 710)), Ok(token(101, 0)));
        assert_eq!(source.grant(at(101_000, 710)), Ok(token(101, 1)));
        assert_eq!(source.grant(at(102_000, 1_710)), Ok(token(102, 0)));
    }

    #[test]
    fn a_restart_within_the_predecessors_second_exceeds_it() {
        let mut first = TokenSource::after_restart(at(100_000, 0));
        let last = first.grant(at(101_400, 1_400)).expect("granted");
        let mut second = TokenSource::after_restart(at(101_450, 1_450));
        assert!(second.grant(at(101_450, 1_450)).is_err());
        assert!(second.grant(at(102_000, 2_000)).expect("granted") > last);
        let mut third = TokenSource::after_restart(at(102_001, 2_001));
        assert_eq!(third.grant(at(103_001, 3_001)), Ok(token(103, 0)));
    }

    #[test]
    fn a_wall_clock_that_steps_back_moves_nothing_back() {
        let mut source = TokenSource::reserved(token(100, 0), Token::MAX, at(100_000, 0));
        assert_eq!(source.grant(at(105_000, 5_000)), Ok(token(105, 0)));
        assert_eq!(source.grant(at(1_000, 5_001)), Ok(token(105, 1)));
    }

    #[test]
    fn a_leap_forward_is_followed_only_when_adopted() {
        let mut source = TokenSource::reserved(token(100, 0), Token::MAX, at(100_000, 0));
        assert_eq!(source.grant(at(900_000, 1_000)), Ok(token(101, 0)));
        assert_eq!(
            source.grant(at(900_000, 1_600)),
            Ok(token(102, 0)),
            "the tolerance"
        );
        source.adopt(at(900_000, 2_000));
        assert_eq!(source.grant(at(901_000, 3_000)), Ok(token(901, 0)));
        let judged = at(902_000, 4_000);
        source.adopt(judged);
        assert_eq!(
            source.grant(at(9_000_000, 5_000)),
            Ok(token(903, 0)),
            "a leap after the reading that was judged"
        );
    }

    #[test]
    fn the_counter_carries_into_the_seconds() {
        let mut source = TokenSource::reserved(token(100, (1 << 20) - 1), Token::MAX, at(100_000, 0));
        assert_eq!(source.grant(at(100_000, 0)), Ok(token(100, (1 << 20) - 1)));
        assert_eq!(source.grant(at(100_000, 0)), Ok(token(101, 0)));
        assert_eq!(source.grant(at(101_000, 1_000)), Ok(token(101, 1)));
    }

    #[test]
    fn near_the_ceiling_it_counts_on_and_at_the_ceiling_it_stops() {
        let mut source = TokenSource::reserved(token(100, 0), token(100, 2), at(100_000, 0));
        assert_eq!(source.grant(at(200_000, 100_000)), Ok(token(100, 0)));
        assert_eq!(source.grant(at(200_000, 100_000)), Ok(token(100, 1)));
        assert_eq!(source.grant(at(200_000, 100_000)), Err(NoToken::AtCeiling));
        source.raise_ceiling(token(50, 0));
        assert_eq!(source.grant(at(200_000, 100_000)), Err(NoToken::AtCeiling));
        source.raise_ceiling(token(300, 0));
        assert_eq!(source.grant(at(200_000, 100_000)), Ok(token(200, 0)));
    }

    #[test]
    fn what_is_kept_for_counting_is_not_used_up_by_the_clock() {
        let mut source =
            TokenSource::reserved(token(100, 0), token(200, 0), at(100_000, 0)).counting_the_last(90);
        assert_eq!(source.grant(at(109_000, 9_000)), Ok(token(109, 0)));
        assert_eq!(source.grant(at(110_000, 10_000)), Ok(token(109, 1)));
        assert_eq!(source.grant(at(500_000, 400_000)), Ok(token(109, 2)));
        source.raise_ceiling(token(600, 0));
        assert_eq!(source.grant(at(501_000, 401_000)), Ok(token(501, 0)));
    }

    #[test]
    fn the_last_number_is_never_given_twice() {
        let mut source = TokenSource::reserved(Token::new(u64::MAX - 1), Token::MAX, at(0, 0));
        assert_eq!(source.grant(at(0, 0)), Ok(Token::new(u64::MAX - 1)));
        assert_eq!(source.grant(at(0, 0)), Err(NoToken::AtCeiling));
    }

    #[test]
    fn a_reservation_is_asked_for_once_and_well_ahead() {
        let mut source = TokenSource::reserved(token(100, 0), token(160, 0), at(100_000, 0));
        assert_eq!(source.poll_reserve(at(100_000, 0)), None);
        assert_eq!(source.reserve_timeout(), Some(BootInstant::from_millis(31_000)));
        assert_eq!(
            source.poll_reserve(at(131_000, 31_000)),
            Some(131 + RESERVE_AHEAD)
        );
        assert_eq!(source.poll_reserve(at(131_000, 31_000)), None);
        assert_eq!(source.reserve_timeout(), Some(BootInstant::from_millis(62_000)));
        let without_ceiling = TokenSource::reserved(token(100, 0), Token::MAX, at(100_000, 0));
        assert_eq!(without_ceiling.reserve_timeout(), None);
    }

    #[test]
    fn an_unconfirmed_clock_is_not_believed_beyond_the_first_token() {
        let mut source = TokenSource::unconfirmed(token(100, 5), token(1_000, 0), at(900_000, 7_000));
        assert_eq!(source.grant(at(900_000, 7_000)), Ok(token(100, 5)));
        assert_eq!(source.grant(at(903_000, 10_000)), Ok(token(103, 0)));
    }

    proptest! {
        #[test]
        fn tokens_strictly_rise_whatever_the_clocks_do(
            steps in prop::collection::vec((0u64..2_000_000, 0u64..5_000, any::<bool>()), 1..200),
        ) {
            let mut boot = 0;
            let mut source = TokenSource::after_restart(at(1_000_000, 0));
            let mut last = Token::ZERO;
            for (wall, elapsed, adopt) in steps {
                boot += elapsed;
                let now = at(wall, boot);
                if adopt {
                    source.adopt(now);
                }
                if let Ok(token) = source.grant(now) {
                    prop_assert!(token > last);
                    last = token;
                }
            }
        }
    }
}
