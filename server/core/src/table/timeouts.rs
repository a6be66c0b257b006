//! What happens by itself when time passes.

use monolock_protocol::{ErrorCode, LockName, Token};

use super::LockTable;
use super::ending::Ending;
use crate::Now;
use crate::action::Action;
use crate::rules::Rule;

impl LockTable {
    /// Brings the table up to this moment.
    pub(super) fn advance(&mut self, now: Now) {
        if self.gate.has_lapsed(now.boot) && self.rules.hold(Rule::GateDeadlineIsChecked) {
            self.shut(ErrorCode::NotActive, ErrorCode::NotActive, now);
        }
        self.end_graces(now);
        while let Some((deadline, claim)) = self.deadlines.first()
            && deadline <= now.boot
        {
            self.end_claim(claim, Ending::Expired, now);
        }
        if self.waits_for_start && self.tokens.not_before() <= now.boot {
            self.waits_for_start = false;
            self.retry_stalled(now);
        }
        if self.gate.check().is_ok()
            && let Some(epoch) = self.tokens.poll_reserve(now)
        {
            self.push(Action::Reserve { epoch });
        }
    }

    fn end_graces(&mut self, now: Now) {
        while self.broken.pop_due(now.boot).is_some() {}
        while let Some(lock) = self.inherited.pop_due(now.boot) {
            self.promote(&lock, now);
        }
        if self.every_lock_until.is_some_and(|until| until <= now.boot) {
            self.every_lock_until = None;
            self.exempt.clear();
            self.retry_stalled(now);
        }
    }

    pub(super) fn raise_ceiling(&mut self, ceiling: Token, now: Now) {
        self.tokens.raise_ceiling(ceiling);
        if self.waits_for_ceiling {
            self.waits_for_ceiling = false;
            self.retry_stalled(now);
        }
    }

    pub(super) fn is_under_grace(&self, lock: &LockName) -> bool {
        self.inherited.is_running(lock) || self.is_under_every_locks_grace(lock)
    }

    pub(super) fn is_under_every_locks_grace(&self, lock: &LockName) -> bool {
        self.every_lock_until.is_some() && !self.exempt.contains(lock)
    }

    pub(super) fn forget_exemptions_without_need(&mut self) {
        if self.every_lock_until.is_none() {
            self.exempt.clear();
        }
    }
}
