//! Grants that their holders are told of only when a follower has heard of them.
//!
//! A follower that takes over holds back the locks it has heard of. So a grant that it has not heard of must not be known
//! to its holder either. Grants are numbered as they are made; the follower confirms by number, many at once.
//!
//! A follower that confirms nothing for the limit is gone: holders are told at once from then on, until it confirms
//! again. The limit must be so long that a follower which has heard nothing for it no longer counts what it heard before
//! as all there is.

use std::collections::VecDeque;
use std::time::Duration;

use monolock_protocol::BootInstant;

use crate::ClaimId;

/// What waits to be confirmed; see the [module](self).
///
/// ```
/// use std::time::Duration;
/// use monolock_core::Confirmation;
///
/// let confirmation = Confirmation::new(Duration::from_secs(6));
/// assert!(!confirmation.is_awaited(), "nobody has confirmed anything yet");
/// ```
#[derive(Debug)]
pub struct Confirmation {
    limit: Duration,
    awaited: bool,
    waiting: VecDeque<Waiting>,
}

#[derive(Debug)]
struct Waiting {
    grant: u64,
    claim: ClaimId,
    since: BootInstant,
}

impl Confirmation {
    /// Waits for nobody until somebody has confirmed something.
    #[must_use]
    pub const fn new(limit: Duration) -> Self {
        Self {
            limit,
            awaited: false,
            waiting: VecDeque::new(),
        }
    }

    /// Whether holders are told only what was confirmed.
    #[must_use]
    pub const fn is_awaited(&self) -> bool {
        self.awaited
    }

    /// The grant of this number was made; whether its holder must not be told yet.
    pub fn handle_grant(&mut self, grant: u64, claim: ClaimId, now: BootInstant) -> bool {
        if self.awaited {
            let since = now;
            self.waiting.push_back(Waiting { grant, claim, since });
        }
        self.awaited
    }

    /// The follower has heard of every grant up to this number; whose holders may be told.
    pub fn handle_confirmed(&mut self, grant: u64) -> Vec<ClaimId> {
        self.awaited = true;
        let confirmed = self.waiting.partition_point(|waiting| waiting.grant <= grant);
        self.waiting
            .drain(..confirmed)
            .map(|waiting| waiting.claim)
            .collect()
    }

    /// When the follower has kept a holder waiting for the limit: who may be told without it.
    pub fn handle_timeout(&mut self, now: BootInstant) -> Vec<ClaimId> {
        let oldest = self.waiting.front();
        match oldest.is_some_and(|oldest| oldest.since + self.limit <= now) {
            true => self.wait_no_longer(),
            false => Vec::new(),
        }
    }

    /// Nobody is waited for until somebody confirms again: who may be told now.
    pub fn wait_no_longer(&mut self) -> Vec<ClaimId> {
        self.awaited = false;
        self.waiting.drain(..).map(|waiting| waiting.claim).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(6);

    fn three_claims() -> [ClaimId; 3] {
        [0, 1, 2].map(ClaimId::first_at)
    }

    fn at(millis: u64) -> BootInstant {
        BootInstant::from_millis(millis)
    }

    #[test]
    fn holders_are_told_what_was_confirmed_in_order() {
        let [a, b, c] = three_claims();
        let mut confirmation = Confirmation::new(LIMIT);
        assert!(!confirmation.handle_grant(1, a, at(0)), "nobody follows");
        assert!(confirmation.handle_confirmed(1).is_empty());
        for (grant, claim) in [(2, a), (3, b), (4, c)] {
            assert!(confirmation.handle_grant(grant, claim, at(1)));
        }
        assert_eq!(confirmation.handle_confirmed(3), [a, b]);
        assert!(confirmation.handle_confirmed(3).is_empty());
        assert_eq!(confirmation.handle_confirmed(9), [c]);
    }

    #[test]
    fn a_follower_that_is_gone_is_waited_for_once() {
        let [a, b, c] = three_claims();
        let mut confirmation = Confirmation::new(LIMIT);
        confirmation.handle_confirmed(0);
        assert!(confirmation.handle_grant(1, a, at(0)));
        assert!(confirmation.handle_grant(2, b, at(5_000)));
        assert!(confirmation.handle_timeout(at(5_999)).is_empty());
        assert_eq!(confirmation.handle_timeout(at(6_000)), [a, b]);
        assert!(!confirmation.is_awaited());
        assert!(!confirmation.handle_grant(3, c, at(6_000)));
        assert!(confirmation.handle_confirmed(3).is_empty());
        assert!(confirmation.handle_grant(4, c, at(6_001)));
    }
}
