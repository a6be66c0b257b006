//! The watchdog: one node's side of the decision who is active.
//!
//! **Model.** Two nodes and a witness, a register with compare-and-swap. Messages are lost, delayed and reordered;
//! processes crash, restart and freeze; boot clocks run within 5 % of true time and count every pause.
//!
//! **Dangers.** Two nodes that believe to be active at once; a token of a later term below one of an earlier term; a
//! lock granted again while its holder rightly believes to hold it; a pair in which nobody dares to serve.
//!
//! **Method.** Two of three voices (the node, its peer, the witness) make an active. It renews by a swap of the record
//! *or* a promise of its peer, and its authority ends `0.8 * ttl` after the *sending* of the last success. A standby
//! waits for `ttl` counted from *receipt*, or for a proof that the active is dead, and then needs the swap. Each rule
//! below closes a counterexample:
//!
//! - a lapsed deadline ends the term for good, and is checked before anything else is looked at;
//! - from sending a takeover swap until its outcome is known, nothing is promised to a lower term;
//! - a success is counted from its sending, never used when older than the authority, and only by the life that sent it;
//! - no promise to a term that was released or whose active is proven dead, nor below the largest term seen;
//! - a proof belongs to one life, needs a reading of the record sent after it, and is void as soon as that life
//!   answers or the record moves;
//! - what a promise or a gate relies on is on disk before it is given;
//! - after its start a node watches for one `ttl`: it may have promised something before it died.
//!
//! The watchdog does nothing itself. Every input is a `handle_*` call with the time it happened; what to do comes out
//! of [`Watchdog::poll_action`], in order; [`Watchdog::poll_timeout`] says when to call
//! [`Watchdog::handle_timeout`].

use std::collections::VecDeque;
use std::time::Duration;

use monolock_protocol::{BootInstant, Token};

use crate::action::{
    Action, JournalEntry, OpId, PeerStatus, PromiseAnswer, PromiseRefusal, PromiseRequest, ReplyId,
    ShutReason, SwapOutcome, TableReport, Waiting,
};
use crate::active::{Active, HandingOver, Opening, Reign};
use crate::follow::{FollowedLocks, LockChange};
use crate::observation::Observation;
use crate::record::{Incarnation, NodeId, NodeState, Record, Term};
use crate::rules::{Rule, Rules};
use crate::standby::{Probe, Promise, Proof, Stream, TakingOver};
use crate::timing::Timing;
use crate::unwitnessed::{Alone, Candidacy, NoWitness};

/// What a node knows about itself from the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    /// Which of the two it is.
    pub node: NodeId,
    /// This life of it: drawn at random.
    pub incarnation: Incarnation,
    /// The authority period.
    pub timing: Timing,
    /// Whether a refused connection counts as proof of death. Only when the peer's addresses are its own kernel's, not
    /// those of a service, a balancer or a virtual address.
    pub fast_takeover: bool,
    /// How the pair decides without a witness; `None`: it has one.
    pub no_witness: Option<NoWitness>,
}

/// The state machine of one node; see the [module](self).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Watchdog {
    pub(crate) config: Config,
    pub(crate) rules: Rules,
    pub(crate) started: BootInstant,
    pub(crate) role: Role,
    /// The largest values this life has seen, in memory.
    pub(crate) known: NodeState,
    /// What is on disk for certain.
    pub(crate) durable: NodeState,
    persisting: Option<(OpId, NodeState)>,
    /// After a failed write: not before then.
    next_persist: BootInstant,
    promises_awaiting_disk: Vec<(ReplyId, PromiseRequest)>,
    /// The highest term this life has held: a record that names it is no handover.
    pub(crate) highest_own_term: Term,
    pub(crate) observation: Observation,
    pub(crate) witness_op: Option<WitnessOp>,
    pub(crate) next_reading: BootInstant,
    /// After a takeover that failed: not before then.
    pub(crate) next_attempt: BootInstant,
    /// The highest floor ever read from the witness.
    pub(crate) witness_floor: Token,
    pub(crate) promise: Option<Promise>,
    pub(crate) proof: Option<Proof>,
    pub(crate) stream: Stream,
    pub(crate) probe: Probe,
    pub(crate) followed: FollowedLocks,
    /// What the life of the peer before told: it may have held the term when it died.
    pub(crate) followed_before: FollowedLocks,
    pub(crate) peer: Option<(PeerStatus, BootInstant)>,
    /// The last term of the peer that the record named, and the life that held it.
    pub(crate) peer_reigned: Option<(Term, Incarnation)>,
    pub(crate) alone: Alone,
    pub(crate) trusted_epoch: Option<u64>,
    /// The process is about to end: it takes over nothing any more, what it has just released least of all.
    pub(crate) retired: bool,
    /// The time of the latest input: what is due until then has been handled.
    pub(crate) handled_until: BootInstant,
    next_op: u64,
    pub(crate) beat: u64,
    actions: VecDeque<Action>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Role {
    Standby,
    TakingOver(TakingOver),
    /// Without a witness: the peer is asked for its consent.
    Asking(Candidacy),
    Opening(Opening),
    Active(Active),
    HandingOver(HandingOver),
}

/// The one operation at the witness that is under way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct WitnessOp {
    op: OpId,
    pub(crate) sent_at: BootInstant,
    /// What a swap expects and writes; `None` for a reading.
    swap: Option<(Option<Record>, Record)>,
}

/// A node's role as others see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RoleName {
    /// The gate is shut; it watches.
    Standby,
    /// The gate is shut; a takeover swap is sent or won, or the peer's consent asked for.
    TakingOver,
    /// The gate is open.
    Active,
    /// The gate is shut; the term is being handed over.
    HandingOver,
}

impl RoleName {
    /// Every role, for dashboards.
    pub const ALL: [Self; 4] = [Self::Standby, Self::TakingOver, Self::Active, Self::HandingOver];

    /// A word for logs, metrics and the status.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Standby => "standby",
            Self::TakingOver => "taking_over",
            Self::Active => "active",
            Self::HandingOver => "handing_over",
        }
    }
}

/// A snapshot for people and dashboards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Status {
    /// The role.
    pub role: RoleName,
    /// The term held, or the highest term seen.
    pub term: Term,
    /// The highest floor known.
    pub floor: Token,
    /// When authority ends unless renewed, when there is any.
    pub authority_until: Option<BootInstant>,
    /// Why no takeover is under way.
    pub waiting: Option<Waiting>,
    /// Whether a term could be handed to this node.
    pub ready: bool,
    /// Whether the lock table has answered lately; always so unless active.
    pub table_answers: bool,
    /// How many tokens are left below the ceiling of an active without a witness.
    pub grants_left: Option<u64>,
    /// The record as last read: `None` when it was never read or there is none.
    pub record_term: Option<Term>,
}

impl Watchdog {
    /// A node that starts with what its state file held.
    #[must_use]
    pub fn new(config: Config, state: NodeState, now: BootInstant) -> Self {
        Self::with_rules(config, Rules::default(), state, now)
    }

    /// Like [`new`](Self::new), without some of the rules: unsafe, to show what they are for.
    #[cfg(feature = "model")]
    #[doc(hidden)]
    #[must_use]
    pub fn without_rules(config: Config, rules: &[Rule], state: NodeState, now: BootInstant) -> Self {
        Self::with_rules(config, Rules::without(rules), state, now)
    }

    fn with_rules(config: Config, rules: Rules, state: NodeState, now: BootInstant) -> Self {
        let mut watchdog = Self {
            config,
            rules,
            started: now,
            role: Role::Standby,
            known: state,
            durable: state,
            persisting: None,
            next_persist: now,
            promises_awaiting_disk: Vec::new(),
            highest_own_term: Term::default(),
            observation: Observation::none(),
            witness_op: None,
            next_reading: now,
            next_attempt: now,
            witness_floor: Token::ZERO,
            promise: None,
            proof: None,
            stream: Stream::None,
            probe: Probe::default(),
            followed: FollowedLocks::default(),
            followed_before: FollowedLocks::default(),
            peer: None,
            peer_reigned: None,
            alone: Alone::since(now),
            trusted_epoch: None,
            retired: false,
            handled_until: now,
            next_op: 0,
            beat: 0,
            actions: VecDeque::new(),
        };
        watchdog.drive(now);
        watchdog
    }

    /// Takes the next thing to do.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// When [`handle_timeout`](Self::handle_timeout) is due; `None` when only an outcome can change anything.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<BootInstant> {
        match &self.role {
            Role::Standby => self.standby_timeout(),
            Role::Asking(candidacy) => {
                let retry = self.persisting.is_none() && candidacy.is_not_asked();
                retry.then_some(self.next_persist)
            }
            Role::TakingOver(_) => self.witness_op.is_none().then_some(self.next_reading),
            Role::Opening(opening) => {
                let retry = self.persisting.is_none().then_some(self.next_persist);
                Some(
                    opening
                        .reign
                        .authority_until
                        .min(retry.unwrap_or(BootInstant::MAX)),
                )
            }
            Role::Active(active) => {
                let resolve = self.witness_op.is_none() && active.is_in_doubt();
                Some(if resolve {
                    active.timeout().min(self.next_reading)
                } else {
                    active.timeout()
                })
            }
            Role::HandingOver(handing_over) => {
                let retry = self.witness_op.is_none() && handing_over.is_swapping();
                let deadline = handing_over.reign.authority_until;
                Some(if retry {
                    deadline.min(self.next_reading)
                } else {
                    deadline
                })
            }
        }
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: BootInstant) {
        self.begin(now);
        self.end_if_lapsed(now);
        self.drive(now);
    }

    /// What the wall clock may be trusted for: the unix second, when the clock check or the operator vouches for it.
    pub fn handle_clock(&mut self, trusted_epoch: Option<u64>, now: BootInstant) {
        self.begin(now);
        self.trusted_epoch = trusted_epoch;
        self.drive(now);
    }

    /// A reading arrived: `None` when it failed, `Some(None)` when there is no record.
    pub fn handle_reading(&mut self, op: OpId, record: Option<Option<Record>>, now: BootInstant) {
        self.begin(now);
        let of_any = !self.rules.hold(Rule::OutcomeIsOfItsOperation);
        let Some(done) = self
            .witness_op
            .take_if(|pending| (pending.op == op || of_any) && pending.swap.is_none())
        else {
            return;
        };
        // One that was wanted while this was under way stays due.
        if self.next_reading <= done.sent_at {
            self.next_reading = done.sent_at + self.config.timing.reading_interval();
        }
        if let Some(record) = record {
            self.handle_register(record, done.sent_at, now);
        }
        self.drive(now);
    }

    /// The outcome of a swap.
    pub fn handle_swap(&mut self, op: OpId, outcome: SwapOutcome, now: BootInstant) {
        self.begin(now);
        let of_any = !self.rules.hold(Rule::OutcomeIsOfItsOperation);
        let Some(done) = self
            .witness_op
            .take_if(|pending| (pending.op == op || of_any) && pending.swap.is_some())
        else {
            return;
        };
        let Some((expected, new)) = done.swap else { return };
        match outcome {
            SwapOutcome::Won => self.handle_register(Some(new), done.sent_at, now),
            SwapOutcome::Lost { current } if current != expected => {
                self.handle_register(current, done.sent_at, now);
            }
            // A swap cannot lose against what it expected: nothing is known.
            SwapOutcome::Lost { .. } | SwapOutcome::Unknown => self.swap_in_doubt(now),
            SwapOutcome::Failed => self.swap_failed(&new, now),
        }
        self.drive(now);
    }

    /// The state file was written, or could not be.
    pub fn handle_persisted(&mut self, op: OpId, written: bool, now: BootInstant) {
        self.begin(now);
        let Some((_, state)) = self.persisting.take_if(|(pending, _)| *pending == op) else {
            return;
        };
        if written {
            self.durable = self.durable.max(state);
        } else {
            self.next_persist = now + self.config.timing.reading_interval();
            self.journal(JournalEntry::StateNotDurable);
        }
        for (reply, request) in std::mem::take(&mut self.promises_awaiting_disk) {
            if written {
                self.answer_promise_request(reply, request, now);
            } else {
                self.answer_promise(reply, Some(PromiseRefusal::NotDurable));
            }
        }
        match &self.role {
            Role::Opening(_) if !written => self.give_up_opening(now),
            Role::Active(_) => self.update_gate(),
            Role::Standby
            | Role::TakingOver(_)
            | Role::Asking(_)
            | Role::Opening(_)
            | Role::HandingOver(_) => {}
        }
        self.drive(now);
    }

    /// The authenticated peer asks for a promise; the answer is [`Action::AnswerPromise`].
    pub fn handle_promise_request(&mut self, reply: ReplyId, request: PromiseRequest, now: BootInstant) {
        self.begin(now);
        self.answer_promise_request(reply, request, now);
        self.drive(now);
    }

    /// The peer answered a request for a promise, or `None`: it did not.
    pub fn handle_promise_answer(&mut self, op: OpId, answer: Option<PromiseAnswer>, now: BootInstant) {
        self.begin(now);
        if let Some(answer) = answer {
            self.known = self.known.max(NodeState {
                highest_term: answer.highest_term,
                floor: answer.floor,
                longest_lease_ms: answer.longest_lease_ms,
            });
        }
        if matches!(self.role, Role::Asking(_)) {
            self.consent_answered(op, answer, now);
        } else if let Some(answer) = answer {
            self.active_promise_answer(op, answer, now);
        } else if let Role::Active(active) = &mut self.role {
            active.forget_promise(op);
        }
        self.drive(now);
    }

    /// The owner of the lock table answered a [`Action::ProbeTable`].
    pub fn handle_table_report(&mut self, op: OpId, report: TableReport, now: BootInstant) {
        self.begin(now);
        self.active_table_report(op, report, now);
        self.drive(now);
    }

    /// The peer answered a status request that was sent at `sent_at`.
    pub fn handle_peer_status(&mut self, status: PeerStatus, sent_at: BootInstant, now: BootInstant) {
        self.begin(now);
        self.peer = Some((status, now));
        self.known = self.known.max(NodeState {
            highest_term: status.highest_term,
            floor: status.floor,
            longest_lease_ms: status.longest_lease_ms,
        });
        self.handle_peer_alive(status.incarnation);
        if let Some(term) = self.held_term()
            && status.highest_term > term
        {
            self.step_down(status.highest_term, now);
        }
        self.note_new_incarnation(status, sent_at, now);
        if status.active && status.table_answers {
            self.hear_active_peer(status.highest_term, status.incarnation, now);
        }
        self.drive(now);
    }

    /// The peer says that it has won a later term than `ended`: an active of `ended` or an earlier term steps down.
    pub fn handle_fence(&mut self, ended: Term, now: BootInstant) {
        self.begin(now);
        if let Some(term) = self.held_term()
            && term <= ended
        {
            // Without a witness a term is believed only with its floor, which a fence does not tell.
            let larger = match self.config.no_witness {
                None => ended.next(),
                Some(_) => term,
            };
            self.step_down(larger, now);
        }
        if self.config.no_witness.is_some() {
            self.end_candidacies(ended);
        }
        self.drive(now);
    }

    /// The peer says that it handed its term over with this record: it is worth a reading at once.
    pub fn handle_handover_told(&mut self, record: &Record, now: BootInstant) {
        self.begin(now);
        if record.is_held_by(self.config.node, self.config.incarnation) {
            self.next_reading = now;
            if self.config.no_witness.is_some() {
                self.hear_handover(record);
            }
        }
        self.drive(now);
    }

    /// The follow stream of this life of the peer begins; its snapshot follows as changes.
    pub fn handle_stream_started(&mut self, incarnation: Incarnation, now: BootInstant) {
        self.begin(now);
        self.stream = Stream::Running(incarnation);
        let followed = std::mem::replace(&mut self.followed, FollowedLocks::of(incarnation));
        if !followed.are_of(incarnation) {
            self.followed_before = followed;
        }
        self.handle_peer_alive(incarnation);
        self.drive(now);
    }

    /// A line of the follow stream, of its snapshot too.
    pub fn handle_lock_change(&mut self, change: LockChange, now: BootInstant) {
        self.begin(now);
        if let LockChange::Held { lease, .. } = &change {
            self.known.longest_lease_ms = self.known.longest_lease_ms.max(lease.as_millis());
        }
        self.followed.handle_change(change, now);
        self.drive(now);
    }

    /// The snapshot of the follow stream is whole; `every_lock` is what is left of a grace of all other locks.
    ///
    /// A peer whose gate is shut may know nothing of the locks of the last reign: it ends its snapshot only while its
    /// gate is open.
    pub fn handle_snapshot_end(&mut self, every_lock: Option<Duration>, now: BootInstant) {
        self.begin(now);
        self.followed.handle_snapshot_end(every_lock, now);
        self.drive(now);
    }

    /// A sign of life on the follow stream.
    pub fn handle_stream_beat(&mut self, now: BootInstant) {
        self.begin(now);
        self.followed.handle_beat(now);
        self.drive(now);
    }

    /// The follow stream ended.
    pub fn handle_stream_ended(&mut self, now: BootInstant) {
        self.begin(now);
        self.stream_ended(now);
        self.drive(now);
    }

    /// Whether both ports of the peer refused a connection.
    pub fn handle_probe(&mut self, op: OpId, both_refused: bool, now: BootInstant) {
        self.begin(now);
        self.probe_answered(op, both_refused, now);
        self.drive(now);
    }

    /// Whether the peer was stopped, as [`Action::FenceFirst`] asked: by its own word, or by the fence command.
    pub fn handle_fenced(&mut self, op: OpId, stopped: bool, now: BootInstant) {
        self.begin(now);
        self.fence_answered(op, stopped, now);
        self.drive(now);
    }

    /// The gate that the end of a reign was to shut is shut, and its sessions are ended.
    pub fn handle_stopped(&mut self, now: BootInstant) {
        self.begin(now);
        self.alone.gate_is_shut();
        self.drive(now);
    }

    /// An operator vouches that the peer does not take over: an active without a witness may grant up to the floor that
    /// it knows, without anybody's acknowledgement. Returns whether it is one.
    pub fn handle_extend_reserve(&mut self, now: BootInstant) -> bool {
        self.begin(now);
        let extended = self.config.no_witness.is_some() && self.extend_alone();
        self.drive(now);
        extended
    }

    /// An operator, or the end of the process, asks to hand the term over. Starts with
    /// [`Action::ShutGate`]; whether it succeeded is seen in the role.
    ///
    /// # Errors
    ///
    /// [`HandoverRefused`]; nothing was changed.
    pub fn handle_handover_request(
        &mut self,
        mode: HandoverMode,
        now: BootInstant,
    ) -> Result<(), HandoverRefused> {
        self.begin(now);
        let started = self.start_handover(mode, now);
        self.drive(now);
        started
    }

    /// The gate is shut and its last events are on the stream; `last_token` is the last one granted.
    pub fn handle_gate_shut(&mut self, last_token: Token, now: BootInstant) {
        self.begin(now);
        if let Role::HandingOver(handing_over) = &mut self.role {
            handing_over.handle_gate_shut(last_token);
        }
        self.drive(now);
    }

    /// The status now.
    #[must_use]
    pub fn status(&self, now: BootInstant) -> Status {
        let basis = self.takeover_basis(now);
        Status {
            role: match self.role {
                Role::Standby => RoleName::Standby,
                Role::TakingOver(_) | Role::Asking(_) | Role::Opening(_) => RoleName::TakingOver,
                Role::Active(_) => RoleName::Active,
                Role::HandingOver(_) => RoleName::HandingOver,
            },
            term: self.held_term().unwrap_or(self.known.highest_term),
            floor: self.known.floor,
            authority_until: self
                .reign()
                .map(|reign| reign.authority_until)
                .filter(|until| *until < BootInstant::MAX),
            waiting: basis.err(),
            ready: self.is_ready(now),
            table_answers: self.table_answers(now),
            grants_left: self.grants_left(),
            record_term: self.observation.record().flatten().map(|record| record.term),
        }
    }

    /// What this node would write into its state file now.
    #[must_use]
    pub fn known_state(&self) -> NodeState {
        self.known
    }

    /// The latest moment that an input came with: when the actions that follow from it were decided.
    #[must_use]
    pub fn handled_until(&self) -> BootInstant {
        self.handled_until
    }

    /// First of all, on every input: what has lapsed is over before anything is believed.
    fn begin(&mut self, now: BootInstant) {
        let slept = now.saturating_duration_since(self.handled_until);
        if slept > self.config.timing.longest_reading_gap() && self.rules.hold(Rule::GapStartsTheWaitAgain) {
            self.alone.listens_since(now);
        }
        self.handled_until = self.handled_until.max(now);
        if self.rules.hold(Rule::LapsedTermIsOver) {
            self.end_if_lapsed(now);
        }
    }

    fn end_if_lapsed(&mut self, now: BootInstant) {
        if let Some(reign) = self.reign()
            && reign.authority_until <= now
        {
            let (term, at) = (reign.term, reign.authority_until);
            self.journal(JournalEntry::AuthorityLapsed { term, at });
            self.end_reign(now);
        }
    }

    /// Last of all, on every input: starts what is due.
    fn drive(&mut self, now: BootInstant) {
        if !self.durable.covers(NodeState {
            floor: self.durable.floor,
            ..self.known
        }) {
            self.persist_known();
        }
        match &self.role {
            Role::Standby if self.config.no_witness.is_some() => self.drive_without_witness(now),
            Role::Standby => self.drive_standby(now),
            Role::TakingOver(_) => self.drive_takeover(now),
            Role::Asking(_) => self.ask_if_durable(now),
            Role::Opening(_) => {
                self.open_if_durable(now);
                self.drive_active(now);
            }
            Role::Active(_) => self.drive_active(now),
            Role::HandingOver(_) => self.drive_handover(now),
        }
    }

    /// What the register holds, from a reading or a swap that was sent at `sent_at`.
    fn handle_register(&mut self, record: Option<Record>, sent_at: BootInstant, now: BootInstant) {
        if self
            .observation
            .note(record.clone(), sent_at, now, self.config.timing, self.rules)
        {
            self.check_went_back(record.as_ref());
        }
        let known = self.known;
        if let Some(record) = &record {
            self.learn(record);
        }
        if self.has_taken(record.as_ref()) {
            self.proof = None;
        }
        self.check_proof(record.as_ref());
        match &self.role {
            Role::Standby | Role::Asking(_) => {}
            Role::TakingOver(_) => self.takeover_register(record.as_ref(), known, now),
            Role::Opening(_) | Role::Active(_) | Role::HandingOver(_) => self.reign_register(record, now),
        }
    }

    /// A reading will tell; not at once, or a broken witness would be asked without a pause.
    fn swap_in_doubt(&mut self, now: BootInstant) {
        self.next_reading = now + self.config.timing.reading_interval();
    }

    /// This attempt will never land. Whoever has no other one under way is in no doubt, and no reading is needed.
    fn swap_failed(&mut self, new: &Record, now: BootInstant) {
        self.next_attempt = now + self.config.timing.reading_interval();
        match &mut self.role {
            Role::TakingOver(taking_over) => {
                if taking_over.forget_attempt(new) {
                    let term = taking_over.term;
                    self.journal(JournalEntry::TakeoverLost { term });
                    self.role = Role::Standby;
                } else {
                    self.swap_in_doubt(now);
                }
            }
            Role::Active(_) | Role::HandingOver(_) => self.reign_swap_failed(new, now),
            Role::Standby | Role::Asking(_) | Role::Opening(_) => {}
        }
    }

    fn learn(&mut self, record: &Record) {
        self.known = self.known.max(NodeState {
            highest_term: record.term,
            floor: record.floor,
            longest_lease_ms: record.max_lease_ms,
        });
        self.witness_floor = self.witness_floor.max(record.floor);
        self.beat = self.beat.max(record.beat);
        if record.holder == Some(self.config.node.peer()) {
            self.peer_reigned = Some((record.term, record.incarnation));
        }
    }

    fn check_went_back(&mut self, record: Option<&Record>) {
        let found = record.map(|record| record.term);
        let floor = record.map_or(Token::ZERO, |record| record.floor);
        let remembers = self.known.highest_term > Term::default();
        if remembers && (found < Some(self.known.highest_term) || floor < self.witness_floor) {
            self.journal(JournalEntry::WitnessWentBack {
                found,
                known: self.known.highest_term,
            });
        }
    }

    fn answer_promise_request(&mut self, reply: ReplyId, request: PromiseRequest, now: BootInstant) {
        if let Some(refusal) = self.refuse_promise(&request) {
            if self.config.no_witness.is_none() {
                self.known.highest_term = self.known.highest_term.max(request.term);
            }
            return self.answer_promise(reply, Some(refusal));
        }
        self.agree(&request, now);
        if let Some(term) = self.held_term() {
            debug_assert!(request.term > term, "refused otherwise");
            self.step_down(request.term, now);
        }
        let asked = NodeState {
            highest_term: request.term,
            floor: request.floor,
            longest_lease_ms: request.max_lease_ms,
        };
        self.known = self.known.max(asked);
        if !self.durable.covers(asked) && self.rules.hold(Rule::PromiseIsDurable) {
            let disk_rests = self.persisting.is_none() && now < self.next_persist;
            if disk_rests || self.promises_awaiting_disk.len() == MAX_AWAITING_DISK {
                return self.answer_promise(reply, Some(PromiseRefusal::NotDurable));
            }
            self.promises_awaiting_disk.push((reply, request));
            return self.persist_known();
        }
        self.promise = Some(Promise {
            term: request.term,
            until: now + self.config.timing.ttl(),
        });
        self.answer_promise(reply, None);
    }

    /// Why this request gets no promise; a proof that it contradicts is void from now on.
    fn refuse_promise(&mut self, request: &PromiseRequest) -> Option<PromiseRefusal> {
        let contradicts_proof = self
            .proof
            .as_ref()
            .is_some_and(|proof| proof.incarnation == request.incarnation);
        self.handle_peer_alive(request.incarnation);
        let pending = match &self.role {
            Role::TakingOver(taking_over) => Some(taking_over.term),
            Role::Asking(candidacy) => Some(candidacy.term),
            Role::Standby | Role::Opening(_) | Role::Active(_) | Role::HandingOver(_) => None,
        };
        let below_largest = request.term < self.known.highest_term;
        if below_largest && self.rules.hold(Rule::NoPromiseBelowLargestTerm)
            || self.held_term() >= Some(request.term)
        {
            Some(PromiseRefusal::LargerTerm)
        } else if pending > Some(request.term) && self.rules.hold(Rule::NoPromiseDuringTakeover) {
            Some(PromiseRefusal::SwapPending)
        } else if contradicts_proof && self.rules.hold(Rule::NoPromiseToTheDead) {
            Some(PromiseRefusal::TermEnded)
        } else {
            self.refuse_consent(request)
        }
    }

    fn answer_promise(&mut self, reply: ReplyId, refused: Option<PromiseRefusal>) {
        let answer = PromiseAnswer {
            refused,
            highest_term: self.known.highest_term,
            floor: self.known.floor,
            longest_lease_ms: self.known.longest_lease_ms,
        };
        self.act(Action::AnswerPromise { reply, answer });
    }

    /// Asks for a state file that covers all that is known, with some floor to spare.
    pub(crate) fn persist_known(&mut self) {
        if self.persisting.is_some() || self.handled_until < self.next_persist {
            return;
        }
        let floor = if self.known.floor > self.durable.floor {
            let ahead = self.config.timing.state_block_seconds() << monolock_protocol::token::COUNTER_BITS;
            Token::new(self.known.floor.get().saturating_add(ahead))
        } else {
            self.durable.floor
        };
        let state = NodeState { floor, ..self.known };
        let op = self.next_op();
        self.persisting = Some((op, state));
        self.act(Action::Persist { op, state });
    }

    pub(crate) fn read_witness(&mut self, now: BootInstant) {
        let op = self.next_op();
        self.witness_op = Some(WitnessOp {
            op,
            sent_at: now,
            swap: None,
        });
        self.act(Action::ReadWitness { op });
    }

    pub(crate) fn swap_witness(&mut self, expected: Option<Record>, new: Record, now: BootInstant) {
        let op = self.next_op();
        self.witness_op = Some(WitnessOp {
            op,
            sent_at: now,
            swap: Some((expected.clone(), new.clone())),
        });
        self.act(Action::SwapWitness { op, expected, new });
    }

    pub(crate) fn next_beat(&mut self) -> u64 {
        self.beat = self.beat.saturating_add(1);
        self.beat
    }

    pub(crate) fn next_op(&mut self) -> OpId {
        self.next_op += 1;
        OpId(self.next_op)
    }

    pub(crate) fn act(&mut self, action: Action) {
        self.actions.push_back(action);
    }

    pub(crate) fn journal(&mut self, entry: JournalEntry) {
        self.act(Action::Journal(entry));
    }

    pub(crate) fn reign(&self) -> Option<&Reign> {
        match &self.role {
            Role::Standby | Role::TakingOver(_) | Role::Asking(_) => None,
            Role::Opening(opening) => Some(&opening.reign),
            Role::Active(active) => Some(&active.reign),
            Role::HandingOver(handing_over) => Some(&handing_over.reign),
        }
    }

    pub(crate) fn held_term(&self) -> Option<Term> {
        self.reign().map(|reign| reign.term)
    }

    pub(crate) fn step_down(&mut self, larger: Term, now: BootInstant) {
        let Some(term) = self.held_term() else { return };
        self.known.highest_term = self.known.highest_term.max(larger);
        self.journal(JournalEntry::SteppedDown { term, larger });
        self.end_reign(now);
    }

    /// The term is over for this node: the gate is shut, and watching starts again.
    pub(crate) fn end_reign(&mut self, now: BootInstant) {
        self.act(Action::ShutGate {
            why: ShutReason::NotActive,
        });
        if self.config.no_witness.is_some() {
            self.alone.reign_ended();
        }
        self.become_standby(now);
    }

    pub(crate) fn become_standby(&mut self, now: BootInstant) {
        self.role = Role::Standby;
        self.observation.restart(now);
        self.alone.listens_since(now);
        if self.config.no_witness.is_some() {
            // Whoever ended the reign has the first turn.
            self.next_attempt = now + self.config.timing.ttl();
        }
        self.next_reading = now;
        self.proof = None;
        self.followed = FollowedLocks::default();
        self.followed_before = FollowedLocks::default();
    }
}

/// More promises than one peer can ask for at a time.
const MAX_AWAITING_DISK: usize = 16;

/// What a handover is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HandoverMode {
    /// Only to a peer that is ready.
    ToPeer,
    /// The process ends: without a ready peer, release the term to nobody, and take over nothing any more.
    OrRelease,
}

/// Why a handover does not start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HandoverRefused {
    /// This node holds no term.
    #[error("this node is not the active one: ask its peer")]
    NotActive,
    /// The peer did not say lately that it could take over.
    #[error(
        "the peer is not ready to take over: it is unreachable, still observing after its start, or active itself"
    )]
    PeerNotReady,
}
