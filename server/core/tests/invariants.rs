//! A node of a pair under random terms, renewals, graces and lost connections: what must hold whatever happens.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use monolock_core::{
    Action, ClaimId, ClaimState, CloseCause, ForceRelease, Grace, LockEvent, LockTable, Now, OpenGate,
    Ownership,
};
use monolock_protocol::{BootInstant, ErrorCode, Lease, LockName, Token, WallTime};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Step {
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
    Open {
        authority: u64,
        tokens: u64,
        every: Option<u64>,
        listed: Vec<(usize, u64)>,
    },
    Renew {
        authority: u64,
        tokens: u64,
    },
    Shut,
    Elapse {
        millis: u64,
        wall: u64,
    },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..LOCKS.len(), 1..200u32).prop_map(|(lock, lease)| Step::Acquire { lock, lease }),
        4 => (0..30usize).prop_map(|claim| Step::Heartbeat { claim }),
        3 => (0..30usize, 0..3usize).prop_map(|(claim, cause)| Step::Close { claim, cause }),
        1 => (0..LOCKS.len()).prop_map(|lock| Step::ForceRelease { lock }),
        2 => (
            0..300u64,
            0..6u64,
            prop::option::of(0..100u64),
            prop::collection::vec((0..LOCKS.len(), 0..150u64), 0..3)
        )
            .prop_map(|(authority, tokens, every, listed)| Step::Open { authority, tokens, every, listed }),
        2 => (0..300u64, 0..6u64).prop_map(|(authority, tokens)| Step::Renew { authority, tokens }),
        1 => Just(Step::Shut),
        5 => (0..60u64, 0..4_000u64).prop_map(|(millis, wall)| Step::Elapse { millis, wall }),
    ]
}

/// Everything that was promised so far, and a standby that follows.
struct Watch {
    term: u64,
    last_token: Option<Token>,
    first: Token,
    ceiling: Token,
    authority: BootInstant,
    /// Per lock, until when it may not be granted.
    grace: BTreeMap<LockName, BootInstant>,
    every_lock: Option<BootInstant>,
    holders: BTreeMap<LockName, (ClaimId, Token)>,
    states: BTreeMap<ClaimId, ClaimState>,
    ended: BTreeSet<ClaimId>,
    followed: BTreeMap<LockName, (Lease, Token)>,
    broken: BTreeMap<LockName, BootInstant>,
}

impl Watch {
    fn new() -> Self {
        Self {
            term: 0,
            last_token: None,
            first: Token::ZERO,
            ceiling: Token::ZERO,
            authority: BootInstant::ZERO,
            grace: BTreeMap::new(),
            every_lock: None,
            holders: BTreeMap::new(),
            states: BTreeMap::new(),
            ended: BTreeSet::new(),
            followed: BTreeMap::new(),
            broken: BTreeMap::new(),
        }
    }

    fn check(&mut self, action: Action, now: BootInstant) -> Result<(), TestCaseError> {
        match action {
            Action::Send { claim, state } => self.check_send(claim, state, now),
            Action::End { claim, .. } => {
                prop_assert!(self.ended.insert(claim), "ended once");
                Ok(())
            }
            Action::Ownership { claim, lock, change } => self.check_ownership(claim, &lock, change, now),
            Action::Follow(event) => {
                self.follow(event, now);
                Ok(())
            }
            Action::Reserve { .. } => Ok(()),
        }
    }

    fn check_send(
        &mut self,
        claim: ClaimId,
        state: ClaimState,
        now: BootInstant,
    ) -> Result<(), TestCaseError> {
        prop_assert!(now < self.authority, "nothing is said on lapsed authority");
        prop_assert!(!self.ended.contains(&claim), "nothing is said after the end");
        match (self.states.insert(claim, state), state) {
            (Some(ClaimState::Acquired(before)), ClaimState::Acquired(token)) => {
                prop_assert_eq!(before, token)
            }
            (Some(ClaimState::Acquired(_)), ClaimState::Waiting) => {
                prop_assert!(false, "acquired, then waiting")
            }
            (None | Some(ClaimState::Waiting), _) => {}
        }
        Ok(())
    }

    fn check_ownership(
        &mut self,
        claim: ClaimId,
        lock: &LockName,
        change: Ownership,
        now: BootInstant,
    ) -> Result<(), TestCaseError> {
        match change {
            Ownership::Granted { token, .. } => {
                prop_assert!(now < self.authority, "no grant on lapsed authority");
                prop_assert!(self.last_token.is_none_or(|last| token > last), "tokens rise");
                prop_assert!(
                    token >= self.first && token < self.ceiling,
                    "within the reservation"
                );
                let until = self.grace.get(lock).copied().or(self.every_lock);
                prop_assert!(until.is_none_or(|until| until <= now), "{} under grace", lock);
                self.last_token = Some(token);
                prop_assert!(
                    self.holders.insert(lock.clone(), (claim, token)).is_none(),
                    "one holder"
                );
            }
            Ownership::Released { token, .. } => {
                prop_assert_eq!(self.holders.remove(lock), Some((claim, token)));
            }
            Ownership::ForceRelease { token } => {
                prop_assert_eq!(self.holders.get(lock), Some(&(claim, token)));
            }
            Ownership::KickWaiter => prop_assert!(false, "nobody was kicked"),
        }
        Ok(())
    }

    fn follow(&mut self, event: LockEvent, now: BootInstant) {
        match event {
            LockEvent::Held { lock, lease, token } => drop(self.followed.insert(lock, (lease, token))),
            LockEvent::Freed { lock } => drop(self.followed.remove(&lock)),
            LockEvent::Broke { lock, left } => {
                self.followed.remove(&lock);
                let until = self.broken.entry(lock).or_insert(now + left);
                *until = (now + left).max(*until);
            }
        }
    }

    /// The follower's state is what a snapshot would have told it.
    fn check_followed(&mut self, table: &LockTable, now: Now) -> Result<(), TestCaseError> {
        let snapshot = table.snapshot(now);
        let held: BTreeMap<_, _> = snapshot
            .held
            .iter()
            .map(|held| (held.lock.clone(), (held.lease, held.token)))
            .collect();
        prop_assert_eq!(&held, &self.followed);
        prop_assert_eq!(
            held.keys().collect::<Vec<_>>(),
            self.holders.keys().collect::<Vec<_>>()
        );
        self.broken.retain(|_, until| *until > now.boot);
        let graces: BTreeMap<_, _> = snapshot.graces.into_iter().collect();
        for (lock, until) in &self.broken {
            let left = until.saturating_duration_since(now.boot);
            prop_assert!(
                graces.get(lock).is_some_and(|known| *known >= left),
                "{} in {:?}",
                lock,
                graces
            );
        }
        Ok(())
    }

    fn open(&mut self, open: &OpenGate) {
        self.term = open.term;
        self.first = open.first_token;
        self.ceiling = open.ceiling;
        self.authority = open.authority_until;
        self.grace = open.grace.locks.clone();
        self.every_lock = open.grace.every_lock_until;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    #[test]
    fn no_promise_of_a_pair_is_broken(steps in prop::collection::vec(step(), 1..150)) {
        let (mut millis, mut wall) = (1_000u64, 1_000u64);
        let mut table = LockTable::with_gate_shut(reading(millis, wall));
        let mut watch = Watch::new();
        let mut claims: Vec<ClaimId> = Vec::new();
        for step in steps {
            let now = reading(millis, wall);
            let soon = |millis: u64| now.boot + Duration::from_millis(millis);
            let chosen = |claim: usize| (!claims.is_empty()).then(|| claims[claim % claims.len()]);
            match step {
                Step::Acquire { lock, lease } => {
                    let lease = Lease::from_millis(lease).expect("positive");
                    match table.handle_acquire(name(lock), lease, now) {
                        Ok(claim) => claims.push(claim),
                        Err(refused) => {
                            prop_assert_eq!(refused.code, ErrorCode::NotActive);
                            prop_assert!(now.boot >= watch.authority);
                        }
                    }
                }
                Step::Heartbeat { claim } => if let Some(claim) = chosen(claim) {
                    table.handle_heartbeat(claim, now);
                },
                Step::Close { claim, cause } => if let Some(claim) = chosen(claim) {
                    table.handle_close(claim, CAUSES[cause], now);
                },
                Step::ForceRelease { lock } => {
                    table.handle_timeout(now);
                    drain(&mut table, &mut watch, now)?;
                    let before = watch.holders.contains_key(&name(lock));
                    let outcome = table.handle_force_release(&name(lock), now);
                    prop_assert_eq!(before, matches!(outcome, ForceRelease::Released(_)));
                    if outcome == ForceRelease::GraceEnded {
                        watch.grace.insert(name(lock), BootInstant::ZERO);
                    }
                }
                Step::Open { authority, tokens, every, listed } => {
                    let open = OpenGate {
                        term: watch.term + 1,
                        first_token: watch.last_token.map_or(Token::new(1), Token::next),
                        ceiling: Token::new(watch.last_token.map_or(1, Token::get) + tokens),
                        authority_until: soon(authority),
                        grace: Grace {
                            every_lock_until: every.map(soon),
                            locks: listed.into_iter().map(|(lock, until)| (name(lock), soon(until))).collect(),
                        },
                    };
                    // What ends with the old term is said before anything of the new one.
                    table.shut_gate(ErrorCode::NotActive, now);
                    drain(&mut table, &mut watch, now)?;
                    prop_assert_eq!(table.open_gate(open.clone(), now), authority > 0);
                    if authority > 0 {
                        watch.open(&open);
                    } else {
                        watch.authority = BootInstant::ZERO;
                    }
                }
                Step::Renew { authority, tokens } => {
                    let ceiling = Token::new(watch.last_token.map_or(1, Token::get) + tokens);
                    let open = now.boot < watch.authority;
                    let (old_authority, old_ceiling) = (watch.authority, watch.ceiling);
                    watch.authority = old_authority.max(soon(authority));
                    watch.ceiling = old_ceiling.max(ceiling);
                    prop_assert_eq!(table.renew_authority(watch.term, soon(authority), ceiling, now), open);
                    if !open {
                        (watch.authority, watch.ceiling) = (old_authority, old_ceiling);
                    }
                }
                Step::Shut => {
                    table.handle_timeout(now);
                    drain(&mut table, &mut watch, now)?;
                    table.shut_gate(ErrorCode::ShuttingDown, now);
                    watch.authority = watch.authority.min(now.boot);
                }
                Step::Elapse { millis: elapsed, wall: new_wall } => {
                    table.handle_timeout(now);
                    drain(&mut table, &mut watch, now)?;
                    let next = table.poll_timeout();
                    prop_assert!(next.is_none_or(|next| next > now.boot), "no timer is due twice");
                    millis += elapsed;
                    wall = new_wall;
                }
            }
            drain(&mut table, &mut watch, now)?;
            watch.check_followed(&table, now)?;
            prop_assert_eq!(table.report(now).serving, now.boot < watch.authority);
        }
    }
}

fn drain(table: &mut LockTable, watch: &mut Watch, now: Now) -> Result<(), TestCaseError> {
    while let Some(action) = table.poll_action() {
        watch.check(action, now.boot)?;
    }
    Ok(())
}

fn name(index: usize) -> LockName {
    LockName::new(LOCKS[index]).expect("valid")
}

fn reading(millis: u64, wall_seconds: u64) -> Now {
    Now {
        wall: WallTime::from_unix_seconds(wall_seconds),
        boot: BootInstant::from_millis(millis),
    }
}

const LOCKS: [&str; 4] = ["a", "b", "c", "d"];
const CAUSES: [CloseCause; 3] = [CloseCause::Closed, CloseCause::Broken, CloseCause::IoTimeout];
