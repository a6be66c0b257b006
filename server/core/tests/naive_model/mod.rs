//! A naive model of the lock table: one flat list of claims, every answer found by scanning.

use std::time::Duration;

use monolock_core::{
    Action, ClaimId, ClaimState, CloseCause, ForceRelease, LockTable, Now, Ownership, ReleaseReason,
    TokenSource,
};
use monolock_protocol::{BootInstant, ErrorCode, Lease, LockName, Token, WallTime};

/// One input of the table. Numbers that choose a claim, a lock or a cause are taken modulo what there is.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Acquire {
        lock: usize,
        lease: u32,
    },
    Heartbeat {
        claim: usize,
    },
    Close {
        claim: usize,
        cause: usize,
    },
    ForceRelease {
        lock: usize,
    },
    Kick {
        claim: usize,
    },
    Elapse {
        millis: u64,
        wall_step: i64,
        timer: bool,
    },
}

/// Takes the table and the model through the same steps, and compares every action and every view after each.
///
/// Wall time steps to and fro, but stays so small that tokens only count: their value is the model's too.
pub(crate) fn agree(steps: impl IntoIterator<Item = Step>) {
    let (mut millis, mut wall) = (0u64, 500i64);
    let mut table = LockTable::always_open(TokenSource::reserved(Token::new(1), Token::MAX, reading(0, 0)));
    let mut model = Model::default();
    let mut ids: Vec<ClaimId> = Vec::new();
    for step in steps {
        let now = reading(millis, wall);
        let chosen = |claim: usize| (!ids.is_empty()).then(|| ids[claim % ids.len()]);
        model.expire(millis);
        match step {
            Step::Acquire { lock, lease } => {
                let (lock, lease) = (name(lock), Lease::from_millis(lease).expect("positive"));
                let id = table
                    .handle_acquire(lock.clone(), lease, now)
                    .expect("always open");
                ids.push(id);
                model.claims.push(ModelClaim {
                    id,
                    lock: lock.clone(),
                    lease: lease.as_millis().into(),
                    asked: millis,
                    seen: millis,
                    holds: None,
                });
                model.promote(&lock, millis);
                if model
                    .claims
                    .iter()
                    .any(|claim| claim.id == id && claim.holds.is_none())
                {
                    model.expected.push(Action::Send {
                        claim: id,
                        state: ClaimState::Waiting,
                    });
                }
            }
            Step::Heartbeat { claim } => {
                if let Some(id) = chosen(claim) {
                    table.handle_heartbeat(id, now);
                    model.heartbeat(id, millis);
                }
            }
            Step::Close { claim, cause } => {
                if let Some(id) = chosen(claim) {
                    let (cause, reason) = CAUSES[cause % CAUSES.len()];
                    table.handle_close(id, cause, now);
                    model.end(id, reason, None, millis);
                }
            }
            Step::ForceRelease { lock } => {
                let lock = name(lock);
                let outcome = table.handle_force_release(&lock, now);
                let holder = model.claims.iter().find_map(|claim| {
                    let (token, _) = claim.holds?;
                    (claim.lock == lock).then_some((claim.id, token))
                });
                match holder {
                    None => assert_eq!(outcome, ForceRelease::NotHeld),
                    Some((id, token)) => {
                        assert_eq!(outcome, ForceRelease::Released(id));
                        let change = Ownership::ForceRelease { token };
                        model.expected.push(Action::Ownership {
                            claim: id,
                            lock,
                            change,
                        });
                        model.end(id, ReleaseReason::Force, BY_ADMINISTRATOR, millis);
                    }
                }
            }
            Step::Kick { claim } => {
                if let Some(id) = chosen(claim) {
                    let waiter = model
                        .claims
                        .iter()
                        .find(|claim| claim.id == id && claim.holds.is_none());
                    let lock = waiter.map(|claim| claim.lock.clone());
                    assert_eq!(table.handle_kick(id, now), lock.is_some());
                    if let Some(lock) = lock {
                        model.expected.push(Action::Ownership {
                            claim: id,
                            lock,
                            change: Ownership::KickWaiter,
                        });
                        model.end(id, ReleaseReason::Force, BY_ADMINISTRATOR, millis);
                    }
                }
            }
            Step::Elapse {
                millis: elapsed,
                wall_step,
                timer,
            } => {
                // What `expire` above found is due also for a timer that comes late.
                table.handle_timeout(now);
                millis += elapsed;
                wall = (wall + wall_step).clamp(0, 999);
                if timer {
                    table.handle_timeout(reading(millis, wall));
                    model.expire(millis);
                }
            }
        }
        let actions: Vec<_> = std::iter::from_fn(|| table.poll_action()).collect();
        assert_eq!(&actions, &model.expected);
        model.expected.clear();
        check_views(&table, &model, reading(millis, wall));
    }
}

struct ModelClaim {
    id: ClaimId,
    lock: LockName,
    lease: u64,
    asked: u64,
    seen: u64,
    holds: Option<(Token, u64)>,
}

/// Claims in the order in which they asked.
#[derive(Default)]
struct Model {
    claims: Vec<ModelClaim>,
    last: Option<Token>,
    expected: Vec<Action>,
}

impl Model {
    fn expire(&mut self, now: u64) {
        loop {
            let due = self.claims.iter().filter(|claim| claim.seen + claim.lease <= now);
            let Some(first) = due
                .min_by_key(|claim| (claim.seen + claim.lease, claim.id))
                .map(|claim| claim.id)
            else {
                return;
            };
            self.end(first, ReleaseReason::Expired, Some(None), now);
        }
    }

    fn end(&mut self, id: ClaimId, reason: ReleaseReason, end: Option<Option<ErrorCode>>, now: u64) {
        let Some(at) = self.claims.iter().position(|claim| claim.id == id) else {
            return;
        };
        let claim = self.claims.remove(at);
        if let Some((token, since)) = claim.holds {
            let held = Duration::from_millis(now - since);
            let change = Ownership::Released { token, held, reason };
            let lock = claim.lock.clone();
            self.expected.push(Action::Ownership {
                claim: id,
                lock,
                change,
            });
        }
        if let Some(error) = end {
            self.expected.push(Action::End { claim: id, error });
        }
        self.promote(&claim.lock, now);
    }

    fn promote(&mut self, lock: &LockName, now: u64) {
        if self
            .claims
            .iter()
            .any(|claim| claim.lock == *lock && claim.holds.is_some())
        {
            return;
        }
        while let Some(at) = self.claims.iter().position(|claim| claim.lock == *lock) {
            if self.claims[at].seen + self.claims[at].lease <= now {
                let dead = self.claims.remove(at);
                self.expected.push(Action::End {
                    claim: dead.id,
                    error: None,
                });
                continue;
            }
            let token = self.last.map_or(Token::new(1), Token::next);
            self.last = Some(token);
            let claim = &mut self.claims[at];
            claim.holds = Some((token, now));
            let waited = Duration::from_millis(now - claim.asked);
            let (id, lock) = (claim.id, lock.clone());
            let change = Ownership::Granted { token, waited };
            self.expected.push(Action::Ownership {
                claim: id,
                lock,
                change,
            });
            self.expected.push(Action::Send {
                claim: id,
                state: ClaimState::Acquired(token),
            });
            return;
        }
    }

    fn heartbeat(&mut self, id: ClaimId, now: u64) {
        if let Some(claim) = self.claims.iter_mut().find(|claim| claim.id == id) {
            claim.seen = now;
            let state = claim
                .holds
                .map_or(ClaimState::Waiting, |(token, _)| ClaimState::Acquired(token));
            self.expected.push(Action::Send { claim: id, state });
        }
    }
}

fn check_views(table: &LockTable, model: &Model, now: Now) {
    let report = table.report(now);
    let held = model.claims.iter().filter(|claim| claim.holds.is_some()).count();
    assert_eq!(report.claims, model.claims.len());
    assert_eq!(report.held, held);
    assert_eq!(report.waiting, model.claims.len() - held);
    let longest = model.claims.iter().map(|claim| claim.lease).max();
    assert_eq!(
        report.longest_lease.map(|lease| u64::from(lease.as_millis())),
        longest
    );
    let deadline = model.claims.iter().map(|claim| claim.seen + claim.lease).min();
    assert_eq!(table.poll_timeout(), deadline.map(BootInstant::from_millis));
    for view in table.locks() {
        let claims = || model.claims.iter().filter(|claim| claim.lock == view.lock);
        let holder = claims().find_map(|claim| claim.holds.map(|(token, _)| (claim.id, token)));
        assert_eq!(view.holder.map(|holder| (holder.claim, holder.token)), holder);
        let queue: Vec<_> = claims()
            .filter(|claim| claim.holds.is_none())
            .map(|claim| claim.id)
            .collect();
        assert_eq!(
            view.waiters.iter().map(|waiter| waiter.claim).collect::<Vec<_>>(),
            queue
        );
    }
    let mut names: Vec<_> = model.claims.iter().map(|claim| claim.lock.clone()).collect();
    names.sort();
    names.dedup();
    assert_eq!(table.locks().map(|view| view.lock).collect::<Vec<_>>(), names);
}

fn name(index: usize) -> LockName {
    LockName::new(LOCKS[index % LOCKS.len()]).expect("valid")
}

fn reading(millis: u64, wall_millis: i64) -> Now {
    Now {
        wall: WallTime::from_unix_nanos(wall_millis.unsigned_abs() * 1_000_000),
        boot: BootInstant::from_millis(millis),
    }
}

const LOCKS: [&str; 3] = ["a", "b", "c"];
const CAUSES: [(CloseCause, ReleaseReason); 3] = [
    (CloseCause::Closed, ReleaseReason::Graceful),
    (CloseCause::Broken, ReleaseReason::Graceful),
    (CloseCause::IoTimeout, ReleaseReason::IoTimeout),
];
const BY_ADMINISTRATOR: Option<Option<ErrorCode>> = Some(Some(ErrorCode::ClosedByAdministrator));
