//! The queue of a lock: doubly linked through its claims.

use monolock_protocol::{LockName, Token};

use super::{Lock, LockTable};
use crate::claims::{Claim, ClaimId, Standing};

impl LockTable {
    pub(super) fn enqueue(&mut self, name: &LockName, id: ClaimId) {
        let lock = self.locks.entry(name.clone()).or_default();
        let last = lock.tail.replace(id);
        match last {
            None => lock.head = Some(id),
            Some(last) => *self.links(last).1 = Some(id),
        }
        *self.links(id).0 = last;
    }

    pub(super) fn unlink(&mut self, id: ClaimId) {
        let (ahead, behind) = self.links(id);
        let (ahead, behind) = (ahead.take(), behind.take());
        let name = self.live(id).lock.clone();
        match ahead {
            Some(ahead) => *self.links(ahead).1 = behind,
            None => self.queue(&name).head = behind,
        }
        match behind {
            Some(behind) => *self.links(behind).0 = ahead,
            None => self.queue(&name).tail = ahead,
        }
    }

    pub(super) fn queue(&mut self, name: &LockName) -> &mut Lock {
        self.locks
            .get_mut(name)
            .expect("the lock of a queued claim exists")
    }

    fn links(&mut self, id: ClaimId) -> (&mut Option<ClaimId>, &mut Option<ClaimId>) {
        let claim = self.claims.get_mut(id).expect("queues link live claims");
        match &mut claim.standing {
            Standing::Waiting { ahead, behind } => (ahead, behind),
            Standing::Holding { .. } => unreachable!("queues link waiters"),
        }
    }

    pub(super) fn behind(&self, id: ClaimId) -> Option<ClaimId> {
        match self.live(id).standing {
            Standing::Waiting { behind, .. } => behind,
            Standing::Holding { .. } => None,
        }
    }

    pub(super) fn live(&self, id: ClaimId) -> &Claim {
        self.claims.get(id).expect("queues link live claims")
    }

    pub(super) fn token_of(&self, holder: ClaimId) -> Token {
        match self.live(holder).standing {
            Standing::Holding { token, .. } => token,
            Standing::Waiting { .. } => unreachable!("a holder holds"),
        }
    }
}
