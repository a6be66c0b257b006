//! How claims end.

use monolock_protocol::{ErrorCode, LockName};

use super::{Lock, LockTable};
use crate::Now;
use crate::action::{Action, CloseCause, LockEvent, Ownership, ReleaseReason};
use crate::claims::{Claim, ClaimId, Standing};
use crate::graces::Graces;
use crate::rules::Rule;

/// Why one claim ends.
#[derive(Clone, Copy, Debug)]
pub(super) enum Ending {
    /// The caller has ended the session already.
    ByCaller(CloseCause),
    /// Its lease ran out.
    Expired,
    /// An operator wants it gone.
    ByAdministrator,
}

impl Ending {
    fn reason(self) -> ReleaseReason {
        match self {
            Self::ByCaller(cause) => cause.reason(),
            Self::Expired => ReleaseReason::Expired,
            Self::ByAdministrator => ReleaseReason::Force,
        }
    }

    /// Whether the client cannot believe in its lock any more.
    fn is_known_to_client(self) -> bool {
        match self {
            Self::ByCaller(CloseCause::Closed) | Self::Expired => true,
            Self::ByCaller(CloseCause::Broken | CloseCause::IoTimeout) | Self::ByAdministrator => false,
        }
    }

    /// What the caller must do to the session.
    fn action(self, claim: ClaimId) -> Option<Action> {
        match self {
            Self::ByCaller(_) => None,
            Self::Expired => Some(Action::End { claim, error: None }),
            Self::ByAdministrator => Some(Action::End {
                claim,
                error: Some(ErrorCode::ClosedByAdministrator),
            }),
        }
    }
}

impl LockTable {
    /// Takes a claim out of the table and promotes the next; one that is gone already is ignored.
    pub(super) fn end_claim(&mut self, id: ClaimId, ending: Ending, now: Now) {
        let Some(claim) = self.claims.get(id) else {
            return;
        };
        let lock = claim.lock.clone();
        match claim.standing {
            Standing::Waiting { .. } => self.remove_waiter(id),
            Standing::Holding { .. } => {
                self.remove_holder(id, ending.reason(), ending.is_known_to_client(), now);
                self.queue(&lock).holder = None;
            }
        }
        self.actions.extend(ending.action(id));
        self.promote(&lock, now);
    }

    pub(super) fn remove_waiter(&mut self, id: ClaimId) {
        self.unlink(id);
        self.remove_claim(id);
    }

    /// Ends every session without promoting anybody.
    pub(super) fn shut(&mut self, code: ErrorCode, refusal: ErrorCode, now: Now) {
        for (_, lock) in std::mem::take(&mut self.locks) {
            self.shut_lock(&lock, code, now);
        }
        self.gate = super::Gate::Shut { refusal };
        self.stalled.clear();
        self.waits_for_start = false;
        self.waits_for_ceiling = false;
        self.inherited = Graces::default();
        self.every_lock_until = None;
        self.exempt.clear();
    }

    pub(super) fn forget(&mut self, name: &LockName) {
        self.unstall(name);
        self.locks.remove(name);
    }

    fn shut_lock(&mut self, lock: &Lock, code: ErrorCode, now: Now) {
        let error = Some(code);
        if let Some(holder) = lock.holder {
            self.remove_holder(holder, ReleaseReason::Graceful, false, now);
            self.push(Action::End { claim: holder, error });
        }
        let mut next = lock.head;
        while let Some(waiter) = next {
            next = self.behind(waiter);
            self.remove_claim(waiter);
            self.push(Action::End { claim: waiter, error });
        }
    }

    fn remove_holder(&mut self, id: ClaimId, reason: ReleaseReason, is_known_to_client: bool, now: Now) {
        let claim = self.remove_claim(id);
        let Standing::Holding { token, since } = claim.standing else {
            unreachable!("only holders are removed as such");
        };
        self.held -= 1;
        let held = now.boot.saturating_duration_since(since);
        self.push_ownership(
            id,
            claim.lock.clone(),
            Ownership::Released { token, held, reason },
        );
        if is_known_to_client || !self.rules.hold(Rule::BrokenHolderKeepsGrace) {
            self.follow(LockEvent::Freed { lock: claim.lock });
        } else {
            self.begin_grace_of_broken(claim, now);
        }
    }

    fn begin_grace_of_broken(&mut self, claim: Claim, now: Now) {
        if self.last_term.is_none() {
            return;
        }
        let deadline = claim.deadline();
        self.broken.start(claim.lock.clone(), deadline);
        self.follow(LockEvent::Broke {
            lock: claim.lock,
            left: deadline.saturating_duration_since(now.boot),
        });
    }

    fn remove_claim(&mut self, id: ClaimId) -> Claim {
        let claim = self.claims.remove(id).expect("only live claims are removed");
        self.deadlines.stop(id, claim.lease, claim.deadline());
        claim
    }
}
