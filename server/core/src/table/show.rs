//! What the table says of itself: views, figures, actions.

use std::collections::BTreeMap;

use monolock_protocol::{BootInstant, Lease, LockName};

use super::{Lock, LockTable};
use crate::Now;
use crate::action::{Action, LockEvent, Ownership};
use crate::claims::{ClaimId, Standing};
use crate::gate::Gate;
use crate::rules::Rule;
use crate::view::{Held, HolderView, LockView, Report, Snapshot, WaiterView};

impl LockTable {
    /// The figures a failover node needs.
    #[must_use]
    pub fn report(&self, now: Now) -> Report {
        let latest_grace = self
            .broken
            .last_end()
            .max(self.inherited.last_end())
            .max(self.every_lock_until);
        let grace_left = latest_grace.map(|end| end.saturating_duration_since(now.boot).as_nanos());
        let grace_left = grace_left
            .map(|nanos| u32::try_from(nanos.div_ceil(1_000_000)).unwrap_or(u32::MAX))
            .and_then(|millis| Lease::from_millis(millis).ok());
        Report {
            term: match self.gate {
                Gate::Open { term, .. } => Some(term),
                Gate::AlwaysOpen | Gate::Shut { .. } => None,
            },
            serving: self.gate.check().is_ok() && !self.gate.has_lapsed(now.boot),
            last_token: self.tokens.last(),
            epoch: self.tokens.epoch(now),
            longest_lease: self.deadlines.longest_lease().max(grace_left),
            claims: self.claims.len(),
            held: self.held,
            waiting: self.claims.len() - self.held,
            locks: self.locks.len(),
        }
    }

    /// Everything the standby must know before it hears of changes.
    #[must_use]
    pub fn snapshot(&self, now: Now) -> Snapshot {
        let left = |until: BootInstant| until.saturating_duration_since(now.boot);
        let mut graces: BTreeMap<LockName, BootInstant> = BTreeMap::new();
        let running = self.inherited.iter().chain(self.broken.iter());
        for (lock, until) in running.filter(|_| self.rules.hold(Rule::SnapshotHasGraces)) {
            let longest = graces.entry(lock.clone()).or_insert(until);
            *longest = until.max(*longest);
        }
        Snapshot {
            held: self.held_locks().collect(),
            graces: graces
                .into_iter()
                .map(|(lock, until)| (lock, left(until)))
                .collect(),
            every_lock: self.every_lock_until.map(left),
        }
    }

    /// Every lock with a holder or a queue, by name.
    pub fn locks(&self) -> impl Iterator<Item = LockView> + '_ {
        self.locks.iter().map(|(name, lock)| self.view(name, lock))
    }

    /// One lock; `None` when it has neither holder nor queue.
    #[must_use]
    pub fn lock(&self, name: &LockName) -> Option<LockView> {
        self.locks.get(name).map(|lock| self.view(name, lock))
    }

    pub(super) fn push(&mut self, action: Action) {
        self.actions.push_back(action);
    }

    pub(super) fn push_ownership(&mut self, claim: ClaimId, lock: LockName, change: Ownership) {
        self.push(Action::Ownership { claim, lock, change });
    }

    pub(super) fn follow(&mut self, event: LockEvent) {
        if self.last_term.is_some() {
            self.push(Action::Follow(event));
        }
    }

    fn held_locks(&self) -> impl Iterator<Item = Held> + '_ {
        self.locks.iter().filter_map(|(name, lock)| {
            let holder = lock.holder?;
            Some(Held {
                lock: name.clone(),
                lease: self.live(holder).lease,
                token: self.token_of(holder),
            })
        })
    }

    fn view(&self, name: &LockName, lock: &Lock) -> LockView {
        let holder = lock.holder.map(|claim| {
            let held = self.live(claim);
            let Standing::Holding { token, since } = held.standing else {
                unreachable!("a holder holds");
            };
            HolderView {
                claim,
                lease: held.lease,
                token,
                since,
            }
        });
        let queue = std::iter::successors(lock.head, |claim| self.behind(*claim));
        let waiters = queue.map(|claim| WaiterView {
            claim,
            lease: self.live(claim).lease,
            queued_at: self.live(claim).asked_at,
        });
        LockView {
            lock: name.clone(),
            holder,
            waiters: waiters.collect(),
        }
    }
}
