//! Who holds a lock, who waits, and who is promoted.
//!
//! Every verb first brings the table up to the moment it is called at: a gate whose authority has lapsed shuts, leases
//! and graces that ran out end. So what a verb sees is alive, however late the caller's timer is, and nothing is granted or
//! acknowledged on expired authority.
//!
//! Queues are doubly linked through the slab of claims, deadlines are one ordered index: each step costs O(log n),
//! and a dead waiter ahead of a live one costs the live one no more than that.

mod ending;
mod promotion;
mod queue;
mod show;
mod timeouts;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use monolock_protocol::{BootInstant, ErrorCode, Lease, LockName, Token};

use crate::Now;
use crate::action::{Action, ClaimState, CloseCause, Ownership};
use crate::claims::{Claim, ClaimId, Claims, Standing};
use crate::deadlines::Deadlines;
use crate::gate::{Gate, NotServing, OpenGate};
use crate::graces::Graces;
use crate::rules::{Rule, Rules};
use crate::token_source::TokenSource;
use ending::Ending;

/// The lock table. See the [crate documentation](crate) for how to step it.
#[derive(Debug)]
pub struct LockTable {
    rules: Rules,
    gate: Gate,
    /// The largest term ever opened; `None` on a server without a pair, which has nobody to follow it.
    last_term: Option<u64>,
    /// The last term was shut on purpose while its authority lasted: it may be opened again.
    reopenable: bool,
    tokens: TokenSource,
    /// How much of a reservation its terms keep for counting; see [`TokenSource::counting_the_last`].
    counted_seconds: u64,
    claims: Claims,
    deadlines: Deadlines,
    locks: BTreeMap<LockName, Lock>,
    held: usize,
    /// Locks that may not be granted yet, from the term before.
    inherited: Graces,
    every_lock_until: Option<BootInstant>,
    /// Locks that the grace of every lock does not cover.
    exempt: BTreeSet<LockName>,
    /// Locks whose last holders may still believe in them: for the standby, they block nothing here.
    broken: Graces,
    /// Locks with a queue that wait for something other than their own grace, in order of arrival.
    stalled: BTreeMap<u64, LockName>,
    next_stall: u64,
    /// Some lock is stalled because the token source may not start yet.
    waits_for_start: bool,
    /// Some lock is stalled because no token is left below the ceiling.
    waits_for_ceiling: bool,
    actions: VecDeque<Action>,
}

#[derive(Debug, Default)]
struct Lock {
    holder: Option<ClaimId>,
    head: Option<ClaimId>,
    tail: Option<ClaimId>,
    stalled: Option<u64>,
}

/// What an operator's release did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForceRelease {
    /// The holder was ended with [`ErrorCode::ClosedByAdministrator`].
    Released(ClaimId),
    /// Nobody held the lock, but a grace kept it from being granted; that is over.
    GraceEnded,
    /// Nobody held the lock and nothing kept it.
    NotHeld,
}

impl LockTable {
    /// The table of a server without a pair.
    #[must_use]
    pub fn always_open(tokens: TokenSource) -> Self {
        Self::new(Gate::AlwaysOpen, None, tokens)
    }

    /// The table of a node of a pair: it serves nobody until [`LockTable::open_gate`].
    #[must_use]
    pub fn with_gate_shut(now: Now) -> Self {
        let refusal = ErrorCode::NotActive;
        Self::new(
            Gate::Shut { refusal },
            Some(0),
            TokenSource::unconfirmed(Token::ZERO, Token::ZERO, now),
        )
    }

    fn new(gate: Gate, last_term: Option<u64>, tokens: TokenSource) -> Self {
        Self {
            rules: Rules::default(),
            gate,
            last_term,
            reopenable: false,
            tokens,
            counted_seconds: 0,
            claims: Claims::default(),
            deadlines: Deadlines::default(),
            locks: BTreeMap::new(),
            held: 0,
            inherited: Graces::default(),
            every_lock_until: None,
            exempt: BTreeSet::new(),
            broken: Graces::default(),
            stalled: BTreeMap::new(),
            next_stall: 0,
            waits_for_start: false,
            waits_for_ceiling: false,
            actions: VecDeque::new(),
        }
    }

    /// The same table without one of its rules: unsafe, to show what it is for.
    #[cfg(feature = "model")]
    #[doc(hidden)]
    #[must_use]
    pub fn without_rule(mut self, rule: Rule) -> Self {
        self.rules = Rules::without(rule);
        self.claims.rules = self.rules;
        self.tokens = self.tokens.with_rules(self.rules);
        self
    }

    /// As if so many locks were granted and released now. The last token, if there was one.
    #[cfg(feature = "model")]
    #[doc(hidden)]
    pub fn spend_tokens(&mut self, count: u64, now: Now) -> Option<Token> {
        self.advance(now);
        self.gate.check().ok()?;
        self.tokens.grant_many(count, now).ok()
    }

    /// A session asks for a lock. The answer is the [`Action::Send`] of the new claim.
    ///
    /// # Errors
    ///
    /// [`NotServing`]: there is no claim; answer with its code.
    pub fn handle_acquire(&mut self, lock: LockName, lease: Lease, now: Now) -> Result<ClaimId, NotServing> {
        self.advance(now);
        self.gate.check()?;
        let claim = self.claims.insert(Claim {
            lock: lock.clone(),
            lease,
            asked_at: now.boot,
            last_seen: now.boot,
            standing: Standing::Waiting {
                ahead: None,
                behind: None,
            },
        });
        self.deadlines.start(claim, lease, now.boot + lease.as_duration());
        self.enqueue(&lock, claim);
        self.promote(&lock, now);
        if let Standing::Waiting { .. } = self.live(claim).standing {
            let state = ClaimState::Waiting;
            self.push(Action::Send { claim, state });
        }
        Ok(claim)
    }

    /// A session gave a sign of life. Answered by an [`Action::Send`], unless the claim is gone.
    pub fn handle_heartbeat(&mut self, claim: ClaimId, now: Now) {
        self.advance(now);
        let Some(found) = self.claims.get_mut(claim) else {
            return;
        };
        let old = found.deadline();
        if self.rules.hold(Rule::HeartbeatRenewsLease) {
            found.last_seen = now.boot;
        }
        let new = found.deadline();
        let state = match found.standing {
            Standing::Waiting { .. } => ClaimState::Waiting,
            Standing::Holding { token, .. } => ClaimState::Acquired(token),
        };
        self.deadlines.renew(claim, old, new);
        self.push(Action::Send { claim, state });
    }

    /// The caller ended a session. A claim that is already gone is ignored.
    pub fn handle_close(&mut self, claim: ClaimId, cause: CloseCause, now: Now) {
        self.advance(now);
        self.end_claim(claim, Ending::ByCaller(cause), now);
    }

    /// An operator takes a lock from its holder, or ends the grace that keeps it.
    pub fn handle_force_release(&mut self, lock: &LockName, now: Now) -> ForceRelease {
        self.advance(now);
        if let Some(holder) = self.locks.get(lock).and_then(|lock| lock.holder) {
            let token = self.token_of(holder);
            let change = Ownership::ForceRelease { token };
            self.push_ownership(holder, lock.clone(), change);
            self.end_claim(holder, Ending::ByAdministrator, now);
            return ForceRelease::Released(holder);
        }
        let had_grace = self.is_under_grace(lock);
        self.inherited.end(lock);
        if self.every_lock_until.is_some() {
            self.exempt.insert(lock.clone());
        }
        if !had_grace {
            return ForceRelease::NotHeld;
        }
        self.promote(lock, now);
        ForceRelease::GraceEnded
    }

    /// An operator removes a waiter; `false` when the claim is gone or holds its lock.
    pub fn handle_kick(&mut self, waiter: ClaimId, now: Now) -> bool {
        self.advance(now);
        let Some(claim) = self.claims.get(waiter) else {
            return false;
        };
        let Standing::Waiting { .. } = claim.standing else {
            return false;
        };
        let lock = claim.lock.clone();
        self.push_ownership(waiter, lock, Ownership::KickWaiter);
        self.end_claim(waiter, Ending::ByAdministrator, now);
        true
    }

    /// The server stops for good: every session is ended, every later `ACQUIRE` refused, with
    /// [`ErrorCode::ShuttingDown`].
    pub fn handle_shutdown(&mut self, now: Now) {
        self.advance(now);
        let code = ErrorCode::ShuttingDown;
        self.shut(code, code, now);
    }

    /// Tokens below the first one of the reserved epoch are durable.
    pub fn handle_reserved(&mut self, ceiling: Token, now: Now) {
        self.advance(now);
        self.raise_ceiling(ceiling, now);
    }

    /// Time has passed: see [`LockTable::poll_timeout`].
    pub fn handle_timeout(&mut self, now: Now) {
        self.advance(now);
    }

    /// When [`LockTable::handle_timeout`] must be called next.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<BootInstant> {
        let reserve = self
            .gate
            .check()
            .ok()
            .and_then(|()| self.tokens.reserve_timeout());
        [
            self.deadlines.first().map(|(deadline, _)| deadline),
            self.inherited.first_end(),
            self.broken.first_end(),
            self.every_lock_until,
            self.gate.authority_until(),
            self.waits_for_start.then(|| self.tokens.not_before()),
            reserve,
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// The next thing to do.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// Begins a term of a pair. Ignored, and `false`, when no larger term than before, or when its authority has already
    /// lapsed, after a shutdown, and on a server without a pair. The term before may be opened again only if it was
    /// ended by [`LockTable::shut_gate`]: a handover that failed.
    ///
    /// Graces of this node's own earlier terms are not added by themselves: they are in [`LockTable::snapshot`].
    pub fn open_gate(&mut self, open: OpenGate, now: Now) -> bool {
        self.advance(now);
        let Some(last_term) = self.last_term else {
            return false;
        };
        let began_before = open.term < last_term || (open.term == last_term && !self.reopenable);
        if began_before || now.boot >= open.authority_until || self.gate.is_shut_down() {
            return false;
        }
        self.shut(ErrorCode::NotActive, ErrorCode::NotActive, now);
        let after_last = self.tokens.last().next();
        let first = if self.rules.hold(Rule::TokensStartAtFloor) {
            open.first_token.max(after_last)
        } else {
            after_last
        };
        self.tokens = TokenSource::unconfirmed(first, open.ceiling, now)
            .counting_the_last(self.counted_seconds)
            .with_rules(self.rules);
        self.last_term = Some(open.term);
        self.reopenable = false;
        self.gate = Gate::Open {
            term: open.term,
            authority_until: open.authority_until,
        };
        self.every_lock_until = open.grace.every_lock_until.filter(|until| *until > now.boot);
        for (lock, until) in open.grace.locks {
            self.exempt.insert(lock.clone());
            if until > now.boot {
                self.inherited.start(lock, until);
            }
        }
        self.forget_exemptions_without_need();
        true
    }

    /// Moves the end of authority and raises the ceiling, neither ever back. Ignored, and `false`, when this is not the
    /// open term, also when its authority has lapsed.
    pub fn renew_authority(&mut self, term: u64, until: BootInstant, ceiling: Token, now: Now) -> bool {
        self.advance(now);
        match &mut self.gate {
            Gate::Open {
                term: open,
                authority_until,
            } if *open == term => *authority_until = until.max(*authority_until),
            Gate::Open { .. } | Gate::AlwaysOpen | Gate::Shut { .. } => return false,
        }
        self.raise_ceiling(ceiling, now);
        true
    }

    /// Ends the term: every session is ended with this code, and every later `ACQUIRE` is refused with
    /// [`ErrorCode::NotActive`]. Changes nothing on a server without a pair, or when shut already.
    pub fn shut_gate(&mut self, code: ErrorCode, now: Now) {
        self.advance(now);
        if let Gate::Open { .. } = self.gate {
            self.reopenable = true;
            self.shut(code, ErrorCode::NotActive, now);
        }
    }

    /// Keeps so many seconds below the ceiling of every term that begins from now on for grants to be counted in; see
    /// [`TokenSource::counting_the_last`].
    pub fn keep_for_counting(&mut self, seconds: u64) {
        self.counted_seconds = seconds;
    }

    /// Lets the tokens follow the wall clock from a reading that somebody has judged; see [`TokenSource::adopt`].
    pub fn adopt_wall_clock(&mut self, judged: Now, now: Now) {
        self.tokens.adopt(judged);
        self.advance(now);
    }
}
