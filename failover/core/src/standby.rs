//! The standby's half: watching, proofs of death, the takeover swap.

use std::time::Duration;

use monolock_protocol::{BootInstant, Token};

use crate::action::{Action, JournalEntry, OpId, PeerStatus, TakeoverBasis, Waiting};
use crate::active::{Opening, Reign};
use crate::follow::Grace;
use crate::record::{Incarnation, NodeState, Record, Term};
use crate::rules::Rule;
use crate::watchdog::{Role, Watchdog};

/// "I will not take over from this term until then."
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Promise {
    pub(crate) term: Term,
    pub(crate) until: BootInstant,
}

/// An argument that one life of the peer is over.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Proof {
    pub(crate) incarnation: Incarnation,
    basis: TakeoverBasis,
    /// A reading sent before this may show a record that the dead has still moved.
    at: BootInstant,
    /// The record that the proof permits to swap: the first one read after it.
    bound_to: Option<Record>,
}

impl Proof {
    pub(crate) fn basis(&self) -> TakeoverBasis {
        self.basis
    }
}

/// The follow stream from the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Stream {
    None,
    Running(Incarnation),
    Ended(Incarnation),
}

/// Knocking on the ports of a peer whose stream ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Probe {
    pending: Option<(OpId, Incarnation)>,
    next: Option<BootInstant>,
}

/// A takeover swap was sent, and its outcome may be unknown.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct TakingOver {
    pub(crate) term: Term,
    basis: TakeoverBasis,
    /// What every attempt expects the register to hold.
    expected: Option<Record>,
    attempts: Vec<Attempt>,
    first_token: Token,
    /// Until when the old active was seen to renew: a stream that was silent before that has missed grants.
    active_lived_until: BootInstant,
}

impl TakingOver {
    /// Forgets a swap that will never land; whether none is left.
    pub(crate) fn forget_attempt(&mut self, new: &Record) -> bool {
        self.attempts.retain(|attempt| attempt.new != *new);
        self.attempts.is_empty()
    }
}

/// One swap that may still land.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Attempt {
    pub(crate) new: Record,
    pub(crate) sent_at: BootInstant,
}

/// As many attempts are remembered; a success of an older one would be too old to count.
const MAX_ATTEMPTS: usize = 16;

pub(crate) fn remember_attempt(attempts: &mut Vec<Attempt>, attempt: Attempt) {
    if attempts.len() == MAX_ATTEMPTS {
        attempts.remove(0);
    }
    attempts.push(attempt);
}

impl Watchdog {
    /// The argument for a takeover now, or what stands against it.
    pub(crate) fn takeover_basis(&self, now: BootInstant) -> Result<TakeoverBasis, Waiting> {
        match &self.role {
            Role::Standby => match self.config.no_witness {
                None => self.basis_from_record(now),
                Some(setting) => self.basis_without_witness(setting, now),
            },
            Role::TakingOver(_) | Role::Asking(_) => Err(Waiting::SwapPending),
            Role::Opening(_) | Role::Active(_) | Role::HandingOver(_) => Err(Waiting::IsActive),
        }
    }

    fn basis_from_record(&self, now: BootInstant) -> Result<TakeoverBasis, Waiting> {
        if self.retired {
            return Err(Waiting::Retired);
        }
        let timing = self.config.timing;
        let unread = Waiting::WitnessUnread {
            age: self.observation.age(now),
        };
        let record = self.observation.record().ok_or(unread)?;
        if !self.observation.is_fresh(now, timing) && self.rules.hold(Rule::ReadingIsRecent) {
            return Err(unread);
        }
        if record.is_some_and(|record| self.is_handed_to_us(record)) {
            return Ok(TakeoverBasis::Handover);
        }
        let observed_at = self.started + timing.ttl();
        if now < observed_at && self.rules.hold(Rule::WatchAfterStart) {
            return Err(Waiting::ObservingAfterStart { until: observed_at });
        }
        if self.known.floor == Token::ZERO && self.trusted_epoch.is_none() {
            return Err(Waiting::NoTrustedClock);
        }
        let record_term = record.map_or(Term::default(), |record| record.term);
        // A record below the remembered term or floor comes from a backup: whatever end it tells of is long past.
        let record_floor = record.map_or(Token::ZERO, |record| record.floor);
        let is_current = record_term >= self.known.highest_term && record_floor >= self.witness_floor
            || !self.rules.hold(Rule::OldRecordEndsNothing);
        if let Some(proof) = &self.proof
            && is_current
            && proof
                .bound_to
                .as_ref()
                .is_some_and(|bound_to| Some(bound_to) == record)
        {
            return Ok(proof.basis);
        }
        if let Some(promise) = &self.promise
            && promise.term >= record_term
            && now < promise.until
            && self.rules.hold(Rule::PromiseIsKept)
        {
            return Err(Waiting::PromiseRuns { until: promise.until });
        }
        if is_current && record.is_some_and(|record| record.holder.is_none()) {
            return Ok(TakeoverBasis::Released);
        }
        let until = self.observation.unchanged_since().unwrap_or(now) + timing.ttl();
        if now < until {
            Err(Waiting::RecordMoved { until })
        } else {
            Ok(TakeoverBasis::Silence)
        }
    }

    fn is_handed_to_us(&self, record: &Record) -> bool {
        let is_ours = record.is_held_by(self.config.node, self.config.incarnation)
            || record.holder == Some(self.config.node) && !self.rules.hold(Rule::HandoverIsForOneLife);
        let is_new = record.term > self.highest_own_term || !self.rules.hold(Rule::OwnTermIsNotTakenUpAgain);
        is_ours && is_new && record.term >= self.known.highest_term
    }

    /// Whether a term could be handed to this node: it watches, sees the record, and has lived long enough.
    pub(crate) fn is_ready(&self, now: BootInstant) -> bool {
        let sees_the_pair = match self.config.no_witness {
            None => self.observation.is_fresh(now, self.config.timing),
            Some(_) => now < self.silent_at(),
        };
        matches!(self.role, Role::Standby)
            && !self.retired
            && now >= self.started + self.config.timing.ttl()
            && sees_the_pair
    }

    pub(crate) fn standby_timeout(&self) -> Option<BootInstant> {
        let ttl = self.config.timing.ttl();
        let could_take_over_at = [
            Some(self.started + ttl),
            self.promise.as_ref().map(|promise| promise.until),
            self.observation.unchanged_since().map(|since| since + ttl),
            Some(self.next_attempt),
            self.config.no_witness.map(|_| self.silent_at()),
        ];
        let due = could_take_over_at
            .into_iter()
            .flatten()
            .filter(|at| *at > self.handled_until);
        let reading = self.witness_op.is_none().then_some(self.next_reading);
        let probing = self.probe.next.filter(|_| self.may_probe());
        due.chain(reading).chain(probing).min()
    }

    pub(crate) fn drive_standby(&mut self, now: BootInstant) {
        self.probe_if_due(now);
        if self.witness_op.is_some() {
            return;
        }
        match self.takeover_basis(now) {
            Ok(basis) if now >= self.next_attempt => self.start_takeover(basis, now),
            Ok(_) | Err(_) if now >= self.next_reading => self.read_witness(now),
            Ok(_) | Err(_) => {}
        }
    }

    fn start_takeover(&mut self, basis: TakeoverBasis, now: BootInstant) {
        let expected = self.observation.record().flatten().cloned();
        let term = match (&expected, basis) {
            (Some(record), TakeoverBasis::Handover) => record.term,
            _ => self.known.highest_term.next(),
        };
        let first_token = self.first_token();
        self.journal(JournalEntry::TakeoverStarted { term, basis });
        self.role = Role::TakingOver(TakingOver {
            term,
            basis,
            expected,
            attempts: Vec::new(),
            first_token,
            active_lived_until: self.active_lived_until(now),
        });
        self.attempt_takeover(now);
    }

    /// At or above every floor known; only a pair that knows none starts from the wall clock, in a second that no
    /// single server can have granted in.
    pub(crate) fn first_token(&self) -> Token {
        match self.trusted_epoch {
            Some(epoch) if self.known.floor == Token::ZERO => Token::first_of_epoch(epoch.saturating_add(1)),
            _ if !self.rules.hold(Rule::EveryFloorCounts) => self
                .observation
                .record()
                .flatten()
                .map_or(Token::ZERO, |record| record.floor),
            _ => self.known.floor,
        }
    }

    fn attempt_takeover(&mut self, now: BootInstant) {
        let beat = self.next_beat();
        let Role::TakingOver(taking_over) = &mut self.role else {
            return;
        };
        let ahead = self.config.timing.floor_ahead_seconds();
        let new = Record {
            format: Record::FORMAT,
            term: taking_over.term,
            holder: Some(self.config.node),
            incarnation: self.config.incarnation,
            beat,
            floor: Token::first_of_epoch(taking_over.first_token.epoch_seconds() + 1 + ahead),
            max_lease_ms: self.known.longest_lease_ms,
        };
        remember_attempt(
            &mut taking_over.attempts,
            Attempt {
                new: new.clone(),
                sent_at: now,
            },
        );
        let expected = taking_over.expected.clone();
        self.swap_witness(expected, new, now);
    }

    /// While the outcome of an attempt is unknown: find out, and try again only from the same record.
    pub(crate) fn drive_takeover(&mut self, now: BootInstant) {
        if self.witness_op.is_none() && now >= self.next_reading {
            self.read_witness(now);
        }
    }

    /// Whether the register holds what this node's takeover swap put there.
    pub(crate) fn has_taken(&self, record: Option<&Record>) -> bool {
        let Role::TakingOver(taking_over) = &self.role else {
            return false;
        };
        let mut attempts = taking_over.attempts.iter();
        attempts.any(|attempt| Some(&attempt.new) == record)
    }

    /// What the register holds decides an attempt, unless it still holds what every attempt expects. `known` is what
    /// was known before this record.
    pub(crate) fn takeover_register(&mut self, record: Option<&Record>, known: NodeState, now: BootInstant) {
        let Role::TakingOver(taking_over) = &self.role else {
            return;
        };
        if record == taking_over.expected.as_ref() {
            if self.basis_from_record(now).is_ok() {
                self.attempt_takeover(now);
            }
            return;
        }
        let won = taking_over
            .attempts
            .iter()
            .find(|attempt| Some(&attempt.new) == record)
            .cloned();
        let (term, basis) = (taking_over.term, taking_over.basis);
        // A floor heard of while the swap was under way counts like one that was known before.
        let first_token = if self.rules.hold(Rule::EveryFloorCounts) {
            taking_over.first_token.max(known.floor)
        } else {
            taking_over.first_token
        };
        let grace = self.takeover_grace(taking_over, now);
        let Some(won) = won else {
            self.journal(JournalEntry::TakeoverLost { term });
            self.role = Role::Standby;
            return;
        };
        self.highest_own_term = self.highest_own_term.max(term);
        if term < known.highest_term {
            self.journal(JournalEntry::TakeoverLost { term });
            return self.become_standby(now);
        }
        let from = if self.rules.hold(Rule::TakeoverCountsFromSending) {
            won.sent_at
        } else {
            now
        };
        let authority_until = from + self.config.timing.authority();
        if authority_until <= now {
            let at = authority_until;
            self.journal(JournalEntry::AuthorityLapsed { term, at });
            return self.become_standby(now);
        }
        let floor = won.new.floor;
        let reign = Reign {
            term,
            expected: Some(won.new),
            attempts: Vec::new(),
            authority_until,
        };
        let swap_sent_at = won.sent_at;
        self.role = Role::Opening(Opening {
            reign,
            basis,
            first_token,
            floor,
            grace,
            swap_sent_at,
        });
        self.open_if_durable(now);
    }

    // ---- proofs of death

    /// This life of the peer has just spoken: it is not dead.
    pub(crate) fn handle_peer_alive(&mut self, incarnation: Incarnation) {
        if self
            .proof
            .as_ref()
            .is_some_and(|proof| proof.incarnation == incarnation)
            && self.rules.hold(Rule::AnswerVoidsProof)
        {
            self.void_proof();
        }
    }

    fn void_proof(&mut self) {
        if let Some(proof) = self.proof.take() {
            let term = proof
                .bound_to
                .map_or(self.known.highest_term, |record| record.term);
            self.journal(JournalEntry::ProofVoid { term });
        }
    }

    /// Binds a proof to the first record read after it; a record that moves later makes it void.
    pub(crate) fn check_proof(&mut self, record: Option<&Record>) {
        let Some(proof) = &mut self.proof else { return };
        if !self.observation.was_read_since(proof.at) && self.rules.hold(Rule::ProofNeedsReadingAfter) {
            return;
        }
        let names_the_dead = record.is_some_and(|record| {
            record.holder == Some(self.config.node.peer()) && record.incarnation == proof.incarnation
        });
        if proof.bound_to.is_none() && names_the_dead || !self.rules.hold(Rule::ProofBelongsToOneRecord) {
            proof.bound_to = record.cloned();
        } else if proof.bound_to.as_ref() != record {
            self.void_proof();
        }
    }

    fn prove(&mut self, incarnation: Incarnation, basis: TakeoverBasis, now: BootInstant) {
        if self
            .proof
            .as_ref()
            .is_some_and(|proof| proof.incarnation == incarnation)
        {
            return;
        }
        self.journal(JournalEntry::DeathProven {
            term: self.known.highest_term,
            basis,
        });
        self.proof = Some(Proof {
            incarnation,
            basis,
            at: now,
            bound_to: None,
        });
        self.next_reading = now;
    }

    /// A peer that answers in a new life, to a question asked after the record named the old one, has lost the old one:
    /// only one process of a node runs at a time.
    pub(crate) fn note_new_incarnation(
        &mut self,
        status: PeerStatus,
        sent_at: BootInstant,
        now: BootInstant,
    ) {
        if !matches!(self.role, Role::Standby) || status.active {
            return;
        }
        let Some(record) = self.observation.record().flatten() else {
            return;
        };
        let (term, held_by) = (record.term, record.incarnation);
        let asked_after = self
            .observation
            .holder_since(term, held_by)
            .is_some_and(|since| since <= sent_at || !self.rules.hold(Rule::NewLifeIsAskedAfter));
        if record.holder == Some(self.config.node.peer()) && held_by != status.incarnation && asked_after {
            self.prove(held_by, TakeoverBasis::NewIncarnation, now);
        }
    }

    pub(crate) fn stream_ended(&mut self, now: BootInstant) {
        let Stream::Running(incarnation) = self.stream else {
            return;
        };
        self.stream = Stream::Ended(incarnation);
        self.probe.next = Some(now);
        if self.may_probe() {
            self.journal(JournalEntry::Suspected {
                term: self.known.highest_term,
            });
        }
    }

    fn may_probe(&self) -> bool {
        self.config.fast_takeover
            && matches!(self.role, Role::Standby)
            && matches!(self.stream, Stream::Ended(_))
            && self.proof.is_none()
            && self.probe.pending.is_none()
    }

    pub(crate) fn probe_if_due(&mut self, now: BootInstant) {
        let Stream::Ended(incarnation) = self.stream else {
            return;
        };
        if !self.may_probe() || self.probe.next.is_none_or(|next| next > now) {
            return;
        }
        let op = self.next_op();
        self.probe = Probe {
            pending: Some((op, incarnation)),
            next: None,
        };
        self.act(Action::ProbePorts { op });
    }

    pub(crate) fn probe_answered(&mut self, op: OpId, both_refused: bool, now: BootInstant) {
        let Some((_, incarnation)) = self.probe.pending.take_if(|(pending, _)| *pending == op) else {
            return;
        };
        self.probe.next = Some(now + self.config.timing.reading_interval());
        // A stream that runs again came from a life that answers.
        if both_refused && self.stream == Stream::Ended(incarnation) && matches!(self.role, Role::Standby) {
            self.prove(incarnation, TakeoverBasis::Crash, now);
        }
    }

    // ---- grace

    /// With a live stream, the locks it named; without one, every lock for the longest lease.
    fn takeover_grace(&self, taking_over: &TakingOver, now: BootInstant) -> Grace {
        self.grace_after(self.ended_life(taking_over), taking_over.active_lived_until, now)
    }

    /// The grace after this life of the peer, which was last seen to live at `lived_until`.
    pub(crate) fn grace_after(
        &self,
        life: Option<Incarnation>,
        lived_until: BootInstant,
        now: BootInstant,
    ) -> Grace {
        let tolerance = self.config.timing.renewal_interval();
        let live = life
            .and_then(|life| {
                [&self.followed, &self.followed_before]
                    .into_iter()
                    .find(|followed| followed.are_of(life))
            })
            .filter(|followed| followed.is_live(lived_until, tolerance));
        match live {
            Some(followed) => followed.grace(now),
            None => {
                let longest = Duration::from_millis(u64::from(self.known.longest_lease_ms));
                Grace {
                    every_lock_until: (!longest.is_zero()).then(|| now + longest),
                    ..Grace::default()
                }
            }
        }
    }

    /// The life of the peer whose term ends. Its successor may be running and streaming already.
    fn ended_life(&self, taking_over: &TakingOver) -> Option<Incarnation> {
        let record = taking_over.expected.as_ref()?;
        match (record.holder, taking_over.basis) {
            (Some(node), TakeoverBasis::Handover) if node == self.config.node => self
                .peer_reigned
                .filter(|(term, _)| term.next() == record.term)
                .map(|(_, incarnation)| incarnation),
            (Some(node), _) if node == self.config.node => None,
            (Some(_) | None, _) => Some(record.incarnation),
        }
    }

    fn active_lived_until(&self, now: BootInstant) -> BootInstant {
        let ttl = self.config.timing.ttl();
        let promised = self.promise.as_ref().map(|promise| promise.until - ttl);
        self.observation.unchanged_since().max(promised).unwrap_or(now)
    }
}
