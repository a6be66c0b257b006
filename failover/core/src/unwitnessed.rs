//! The standby's half in a pair without a witness.
//!
//! **Model.** There is no register: two nodes decide alone. An active without its peer goes on serving; what ends its
//! term is a larger term of the authenticated peer, a fence, or a handover. A term begins with the peer's consent, by
//! its handover, or alone, when the peer is proven dead or (by the operator's choice) merely silent.
//!
//! **Dangers.** Two terms that grant the same tokens, because neither node knew of the other's; two actives where the
//! operator chose to wait instead.
//!
//! **Method.**
//!
//! - The terms of `a` are odd, those of `b` even. So no two nodes ever hold one term, and the highest term that a node
//!   knows says whose floor it heard last. Whoever names a term names the floor with it.
//! - *Alone* a node takes over only from a term of its peer: it knows then the floor below which that term stays, and the
//!   peer, which knows of no later term than its own, cannot take over alone at the same time.
//! - A candidate writes its term and its floor down before it asks for consent, and asks again with the same ones: after
//!   a lost answer the peer may know that term already. Whoever consents gives up a candidacy of its own.
//! - Consent is refused while the own gate is open, or not known to be shut, and when the candidate's first token is
//!   below a floor known here.

use std::time::Duration;

use monolock_protocol::{BootInstant, Token};

use crate::action::{
    Action, JournalEntry, OpId, PromiseAnswer, PromiseRefusal, PromiseRequest, TakeoverBasis, Waiting,
};
use crate::active::{Opening, Reign};
use crate::record::{Incarnation, NodeId, NodeState, Record, Term};
use crate::rules::Rule;
use crate::watchdog::{Role, Watchdog};

/// How a pair decides that has no witness.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NoWitness {
    /// What to do about a silent peer that is not proven dead.
    pub unproven: Unproven,
    /// How far ahead tokens are reserved, for an active that is alone: 2^20 grants for each second.
    pub reserve: Duration,
}

/// What a node does about a silent peer that cannot be proven dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unproven {
    /// It waits. There is one active, and it may extend its floor alone.
    Wait,
    /// It takes over. Two may be active; tokens stay in order, for an active that is alone never extends its floor.
    Takeover,
}

/// What a node without a witness remembers beside the rest.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Alone {
    /// When the peer last said that it is active, or since when it is listened for.
    heard_at: BootInstant,
    fencing: Fencing,
    /// The peer has handed its term over, with this record.
    handed: Option<Record>,
    /// The candidacy of the peer that this node has agreed to last.
    consented: Option<(Term, Token)>,
    /// The last candidacy of this life that has not begun to reign.
    stood_for: Option<Candidacy>,
    /// A reign has ended, and its gate is not known to be shut.
    gate_may_be_open: bool,
}

/// A term that this node wants to hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Candidacy {
    pub(crate) term: Term,
    first_token: Token,
    floor: Token,
    began: BootInstant,
    /// It followed a term of the peer, which therefore took none over alone.
    after_peer: bool,
    /// The peer is asked for its consent; not before the candidacy is on disk.
    asked: Option<OpId>,
}

/// Stopping the silent holder of a term, before anybody takes over from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Fencing {
    Idle,
    Asked { op: OpId, term: Term },
    Stopped { term: Term },
    Failed { term: Term, again_at: BootInstant },
}

impl Candidacy {
    pub(crate) fn is_not_asked(&self) -> bool {
        self.asked.is_none()
    }
}

impl Alone {
    pub(crate) fn since(now: BootInstant) -> Self {
        Self {
            heard_at: now,
            fencing: Fencing::Idle,
            handed: None,
            consented: None,
            stood_for: None,
            gate_may_be_open: false,
        }
    }

    /// The peer is heard, or listened for anew.
    pub(crate) fn listens_since(&mut self, now: BootInstant) {
        self.heard_at = now;
        self.fencing = Fencing::Idle;
    }

    /// The reign of this node has ended: its gate is being shut.
    pub(crate) fn reign_ended(&mut self) {
        self.gate_may_be_open = true;
    }

    pub(crate) fn reign_began(&mut self) {
        self.stood_for = None;
        self.handed = None;
    }

    pub(crate) fn gate_is_shut(&mut self) {
        self.gate_may_be_open = false;
    }
}

impl Watchdog {
    /// The argument for a takeover without a witness, or what stands against it.
    pub(crate) fn basis_without_witness(
        &self,
        setting: NoWitness,
        now: BootInstant,
    ) -> Result<TakeoverBasis, Waiting> {
        let ttl = self.config.timing.ttl();
        if self.retired {
            return Err(Waiting::Retired);
        }
        if self.alone.gate_may_be_open {
            return Err(Waiting::GateMayBeOpen);
        }
        if self.handed_over().is_some() {
            return Ok(TakeoverBasis::Handover);
        }
        let observed_at = self.started + ttl;
        if now < observed_at && self.rules.hold(Rule::WatchAfterStart) {
            return Err(Waiting::ObservingAfterStart { until: observed_at });
        }
        if self.trusted_epoch.is_none() && self.known.floor == Token::ZERO {
            return Err(Waiting::NoTrustedClock);
        }
        if let Some(basis) = self.proof_of_the_holders_death() {
            return self.with_the_clock(setting, basis);
        }
        if let Some(promise) = &self.promise
            && now < promise.until
        {
            return Err(Waiting::PromiseRuns { until: promise.until });
        }
        if self.peer_stands_by(now) {
            return Ok(TakeoverBasis::Consent);
        }
        let silent_at = self.alone.heard_at + ttl;
        if now < silent_at {
            return Err(Waiting::PeerHeard { until: silent_at });
        }
        let holder = self.known.highest_term;
        match self.alone.fencing {
            Fencing::Stopped { term } | Fencing::Failed { term, .. }
                if term == holder && !self.may_take_over_alone() =>
            {
                Err(Waiting::MayHaveBeenFollowed)
            }
            Fencing::Stopped { term } if term == holder => {
                self.with_the_clock(setting, TakeoverBasis::Fenced)
            }
            Fencing::Failed { term, .. } if term == holder => match setting.unproven {
                Unproven::Wait => Err(Waiting::NotProven),
                Unproven::Takeover => Ok(TakeoverBasis::Unproven),
            },
            Fencing::Idle | Fencing::Asked { .. } | Fencing::Stopped { .. } | Fencing::Failed { .. } => {
                Err(Waiting::Fencing)
            }
        }
    }

    /// An active that waits for nobody extends its floor alone, so a proof is not enough: the clock must count, too.
    fn with_the_clock(&self, setting: NoWitness, basis: TakeoverBasis) -> Result<TakeoverBasis, Waiting> {
        match (setting.unproven, self.trusted_epoch) {
            (Unproven::Wait, None) => Err(Waiting::NoTrustedClock),
            (Unproven::Wait, Some(_)) | (Unproven::Takeover, _) => Ok(basis),
        }
    }

    fn handed_over(&self) -> Option<&Record> {
        let handed = self.alone.handed.as_ref();
        handed.filter(|record| record.term > self.known.highest_term)
    }

    fn proof_of_the_holders_death(&self) -> Option<TakeoverBasis> {
        let (term, incarnation) = self.peer_reigned?;
        let proof = self.proof.as_ref()?;
        (term == self.known.highest_term && proof.incarnation == incarnation).then(|| proof.basis())
    }

    fn peer_stands_by(&self, now: BootInstant) -> bool {
        let lately = self.config.timing.ttl();
        self.peer
            .is_some_and(|(status, heard)| !status.active && now.saturating_duration_since(heard) <= lately)
    }

    /// Whether the floor of everything that the peer can have granted is known.
    fn may_take_over_alone(&self) -> bool {
        self.follows_the_peer()
            || self
                .same_candidacy()
                .is_some_and(|candidacy| candidacy.after_peer)
            || !self.rules.hold(Rule::AloneOnlyFromThePeersTerm)
    }

    fn follows_the_peer(&self) -> bool {
        let highest = self.known.highest_term;
        highest > Term::default() && highest.is_of(self.config.node.peer())
    }

    fn same_candidacy(&self) -> Option<Candidacy> {
        let same = |it: &Candidacy| it.term == self.known.highest_term && it.floor == self.known.floor;
        self.alone.stood_for.filter(same)
    }

    // ---- what is due

    pub(crate) fn drive_without_witness(&mut self, now: BootInstant) {
        self.probe_if_due(now);
        if now >= self.next_reading {
            // Nothing is read. Waking up often shows a time that was slept through.
            self.next_reading = now + self.config.timing.reading_interval();
        }
        match self.takeover_basis(now) {
            Ok(basis) if now >= self.next_attempt => self.stand_for_a_term(basis, now),
            Ok(_) => {}
            Err(Waiting::Fencing | Waiting::NotProven | Waiting::MayHaveBeenFollowed) => {
                self.fence_if_due(now);
            }
            Err(_) => {}
        }
    }

    pub(crate) fn silent_at(&self) -> BootInstant {
        self.alone.heard_at + self.config.timing.ttl()
    }

    fn fence_if_due(&mut self, now: BootInstant) {
        let holder = self.known.highest_term;
        let is_due = match self.alone.fencing {
            Fencing::Idle => true,
            Fencing::Asked { term, .. } | Fencing::Stopped { term } => term != holder,
            Fencing::Failed { term, again_at } => term != holder || now >= again_at,
        };
        if !is_due {
            return;
        }
        if self.alone.fencing == Fencing::Idle {
            self.journal(JournalEntry::Suspected { term: holder });
        }
        let op = self.next_op();
        self.alone.fencing = Fencing::Asked { op, term: holder };
        self.act(Action::FenceFirst { op, term: holder });
    }

    pub(crate) fn fence_answered(&mut self, op: OpId, stopped: bool, now: BootInstant) {
        let Fencing::Asked { op: asked, term } = self.alone.fencing else {
            return;
        };
        if asked != op {
            return;
        }
        self.alone.fencing = if stopped {
            let basis = TakeoverBasis::Fenced;
            self.journal(JournalEntry::DeathProven { term, basis });
            Fencing::Stopped { term }
        } else {
            let again_at = now + self.config.timing.ttl();
            Fencing::Failed { term, again_at }
        };
    }

    fn stand_for_a_term(&mut self, basis: TakeoverBasis, now: BootInstant) {
        let candidacy = Candidacy {
            began: now,
            asked: None,
            ..self
                .same_candidacy()
                .unwrap_or_else(|| self.new_candidacy(basis, now))
        };
        let term = candidacy.term;
        self.known.highest_term = term;
        self.known.floor = self.known.floor.max(candidacy.floor);
        self.alone.stood_for = Some(candidacy);
        self.journal(JournalEntry::TakeoverStarted { term, basis });
        if basis == TakeoverBasis::Consent {
            self.role = Role::Asking(candidacy);
            self.ask_if_durable(now);
        } else {
            self.open_for(candidacy, basis, now);
        }
    }

    fn new_candidacy(&self, basis: TakeoverBasis, now: BootInstant) -> Candidacy {
        let handed = self.handed_over();
        let next = self.known.highest_term.next_of(self.config.node);
        let known = handed.map_or(Token::ZERO, |record| record.floor);
        let by_clock = self.floor_by_the_clock(basis);
        let first_token = self.first_token().max(known).max(by_clock);
        let ahead = 1 + self.config.timing.floor_ahead_seconds() + self.reserve_seconds();
        Candidacy {
            term: handed.map_or(next, |record| record.term),
            first_token,
            floor: Token::first_of_epoch(first_token.epoch_seconds().saturating_add(ahead)),
            after_peer: self.follows_the_peer(),
            began: now,
            asked: None,
        }
    }

    /// Above what a dead active can have reserved for itself alone, if its clock was right and this one is.
    fn floor_by_the_clock(&self, basis: TakeoverBasis) -> Token {
        match (self.config.no_witness, self.trusted_epoch, basis) {
            (
                Some(NoWitness {
                    unproven: Unproven::Wait,
                    ..
                }),
                Some(epoch),
                TakeoverBasis::Crash | TakeoverBasis::Fenced,
            ) => {
                let ahead = 1 + self.config.timing.floor_ahead_seconds() + self.reserve_seconds();
                Token::first_of_epoch(epoch.saturating_add(ahead))
            }
            _ => Token::ZERO,
        }
    }

    pub(crate) fn reserve_seconds(&self) -> u64 {
        self.config
            .no_witness
            .map_or(0, |setting| setting.reserve.as_secs())
    }

    /// Asks for consent, once a restart would not forget the candidacy.
    pub(crate) fn ask_if_durable(&mut self, now: BootInstant) {
        let Role::Asking(candidacy) = self.role else {
            return;
        };
        if candidacy.asked.is_some() {
            return;
        }
        let stands_for = NodeState {
            highest_term: candidacy.term,
            floor: candidacy.floor,
            longest_lease_ms: 0,
        };
        if !self.durable.covers(stands_for) && self.rules.hold(Rule::CandidacyIsDurable) {
            return self.persist_known();
        }
        let op = self.next_op();
        self.role = Role::Asking(Candidacy {
            asked: Some(op),
            began: now,
            ..candidacy
        });
        let request = PromiseRequest {
            term: candidacy.term,
            incarnation: self.config.incarnation,
            floor: candidacy.floor,
            max_lease_ms: self.known.longest_lease_ms,
            candidacy: Some(candidacy.first_token),
        };
        self.act(Action::AskPromise { op, request });
    }

    pub(crate) fn consent_answered(&mut self, op: OpId, answer: Option<PromiseAnswer>, now: BootInstant) {
        let Role::Asking(candidacy) = self.role else {
            return;
        };
        if candidacy.asked != Some(op) {
            return;
        }
        if answer.is_some_and(|answer| answer.refused.is_none()) {
            return self.open_for(candidacy, TakeoverBasis::Consent, now);
        }
        self.next_attempt = now + self.config.timing.reading_interval();
        self.give_up_candidacy();
    }

    pub(crate) fn give_up_candidacy(&mut self) {
        if let Role::Asking(Candidacy { term, .. }) = self.role {
            self.journal(JournalEntry::TakeoverLost { term });
            self.role = Role::Standby;
        }
    }

    fn open_for(&mut self, candidacy: Candidacy, basis: TakeoverBasis, now: BootInstant) {
        // After a reign of its own, what it followed before says nothing.
        let life = self
            .peer_reigned
            .filter(|(term, _)| *term > self.highest_own_term)
            .map(|(_, incarnation)| incarnation);
        let lived_until = self.alone.heard_at;
        let grace = self.grace_after(life, lived_until, now);
        self.highest_own_term = self.highest_own_term.max(candidacy.term);
        self.role = Role::Opening(Opening {
            reign: Reign {
                term: candidacy.term,
                expected: None,
                attempts: Vec::new(),
                authority_until: BootInstant::MAX,
            },
            basis,
            first_token: candidacy.first_token,
            floor: candidacy.floor,
            grace,
            swap_sent_at: candidacy.began,
        });
        self.open_if_durable(now);
    }

    // ---- what the peer says

    /// The peer was heard as the active of this term.
    pub(crate) fn hear_active_peer(&mut self, term: Term, incarnation: Incarnation, now: BootInstant) {
        if self.config.no_witness.is_some() && term >= self.known.highest_term {
            self.alone.listens_since(now);
            self.peer_reigned = Some((term, incarnation));
        }
    }

    pub(crate) fn hear_handover(&mut self, record: &Record) {
        if matches!(self.role, Role::Standby) && record.term.is_of(self.config.node) {
            self.alone.handed = Some(record.clone());
        }
    }

    /// The peer is told that nothing of this term or an earlier one goes on here.
    pub(crate) fn end_candidacies(&mut self, ended: Term) {
        if self
            .alone
            .handed
            .as_ref()
            .is_some_and(|record| record.term <= ended)
        {
            self.alone.handed = None;
        }
        if self
            .alone
            .stood_for
            .is_some_and(|candidacy| candidacy.term <= ended)
        {
            self.alone.stood_for = None;
        }
        if matches!(self.role, Role::Asking(candidacy) if candidacy.term <= ended) {
            self.give_up_candidacy();
        }
    }

    /// Why the peer's candidacy gets no consent.
    pub(crate) fn refuse_consent(&self, request: &PromiseRequest) -> Option<PromiseRefusal> {
        let first_token = request.candidacy?;
        let agreed_before = self.alone.consented == Some((request.term, first_token));
        if self.held_term().is_some() && self.rules.hold(Rule::ActiveGivesNoConsent) {
            Some(PromiseRefusal::Active)
        } else if self.alone.gate_may_be_open && self.rules.hold(Rule::GateIsShutBeforeConsent) {
            Some(PromiseRefusal::GateMayBeOpen)
        } else if first_token < self.known.floor
            && !agreed_before
            && self.rules.hold(Rule::ConsentKnowsTheFloor)
        {
            Some(PromiseRefusal::FloorBehind)
        } else {
            None
        }
    }

    /// Nothing refuses the peer's request: it is active, or agreed to.
    pub(crate) fn agree(&mut self, request: &PromiseRequest, now: BootInstant) {
        match request.candidacy {
            Some(first_token) => {
                self.alone.consented = Some((request.term, first_token));
                self.alone.fencing = Fencing::Idle;
                // The promise that is about to be given may have to wait for the disk.
                self.next_attempt = now + self.config.timing.ttl();
            }
            None => self.hear_active_peer(request.term, request.incarnation, now),
        }
        if self.rules.hold(Rule::ConsentEndsCandidacy) {
            self.end_candidacies(request.term);
        }
    }
}

impl Term {
    /// Whether a term without a witness belongs to this node.
    #[must_use]
    pub const fn is_of(self, node: NodeId) -> bool {
        self.0 % 2 == Self::parity(node)
    }

    /// The next term without a witness that belongs to this node.
    #[must_use]
    pub const fn next_of(self, node: NodeId) -> Self {
        let next = self.next();
        if next.is_of(node) { next } else { next.next() }
    }

    const fn parity(node: NodeId) -> u64 {
        match node {
            NodeId::A => 1,
            NodeId::B => 0,
        }
    }
}
