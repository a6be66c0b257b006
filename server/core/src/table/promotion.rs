//! Who gets a lock that has no holder.

use monolock_protocol::{LockName, Token};

use super::LockTable;
use crate::Now;
use crate::action::{Action, ClaimState, LockEvent, Ownership};
use crate::claims::{ClaimId, Standing};
use crate::rules::Rule;
use crate::token_source::NoToken;

impl LockTable {
    /// Grants a lock without holder to the first live claim of its queue, if it may be granted now.
    pub(super) fn promote(&mut self, name: &LockName, now: Now) {
        loop {
            let Some(lock) = self.locks.get(name) else {
                return;
            };
            if lock.holder.is_some() {
                return;
            }
            let next = if self.rules.hold(Rule::FirstInFirstOut) {
                lock.head
            } else {
                lock.tail
            };
            let Some(head) = next else {
                self.forget(name);
                return;
            };
            if self.live(head).deadline() <= now.boot {
                self.push(Action::End {
                    claim: head,
                    error: None,
                });
                self.remove_waiter(head);
                continue;
            }
            if self.inherited.is_running(name) && self.rules.hold(Rule::GraceIsKept) {
                return;
            }
            match self.next_token(name, now) {
                Some(token) => self.grant(name, head, token, now),
                None => self.stall(name),
            }
            return;
        }
    }

    fn next_token(&mut self, name: &LockName, now: Now) -> Option<Token> {
        if self.is_under_every_locks_grace(name) && self.rules.hold(Rule::GraceIsKept) {
            return None;
        }
        match self.tokens.grant(now) {
            Ok(token) => Some(token),
            Err(NoToken::NotBefore(_)) => {
                self.waits_for_start = true;
                None
            }
            Err(NoToken::AtCeiling) => {
                self.waits_for_ceiling = true;
                None
            }
        }
    }

    fn grant(&mut self, name: &LockName, head: ClaimId, token: Token, now: Now) {
        self.unlink(head);
        self.unstall(name);
        let lock = self
            .locks
            .get_mut(name)
            .expect("the lock of a queued claim exists");
        lock.holder = Some(head);
        self.held += 1;
        let claim = self.claims.get_mut(head).expect("a queued claim is live");
        claim.standing = Standing::Holding {
            token,
            since: now.boot,
        };
        let (lease, waited) = (claim.lease, now.boot.saturating_duration_since(claim.asked_at));
        self.push_ownership(head, name.clone(), Ownership::Granted { token, waited });
        self.follow(LockEvent::Held {
            lock: name.clone(),
            lease,
            token,
        });
        self.push(Action::Send {
            claim: head,
            state: ClaimState::Acquired(token),
        });
    }

    fn stall(&mut self, name: &LockName) {
        let lock = self.locks.get_mut(name).expect("only a lock with a queue stalls");
        if lock.stalled.is_none() {
            lock.stalled = Some(self.next_stall);
            self.stalled.insert(self.next_stall, name.clone());
            self.next_stall += 1;
        }
    }

    pub(super) fn unstall(&mut self, name: &LockName) {
        if let Some(place) = self.locks.get_mut(name).and_then(|lock| lock.stalled.take()) {
            self.stalled.remove(&place);
        }
    }

    /// What kept locks from being granted is over: tries each once, in the order of their arrival.
    pub(super) fn retry_stalled(&mut self, now: Now) {
        let mut next = 0;
        while let Some((place, name)) = self.stalled.range(next..).next() {
            let (place, name) = (*place, name.clone());
            self.promote(&name, now);
            if self.waits_for_ceiling {
                return;
            }
            next = place + 1;
        }
    }
}
