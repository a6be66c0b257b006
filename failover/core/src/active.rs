//! The active's half: opening the gate, renewing, handing over.

use std::time::Duration;

use monolock_protocol::{BootInstant, Token};

use crate::action::{
    Action, JournalEntry, OpId, OpenGate, PromiseAnswer, PromiseRequest, ShutReason, TableReport,
    TakeoverBasis,
};
use crate::follow::Grace;
use crate::record::{Incarnation, NodeId, NodeState, Record, Term};
use crate::rules::Rule;
use crate::standby::{Attempt, remember_attempt};
use crate::timing::Timing;
use crate::unwitnessed::Unproven;
use crate::watchdog::{HandoverMode, HandoverRefused, Role, Watchdog};

/// A term that this node has won, with what it knows of the register.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Reign {
    pub(crate) term: Term,
    /// What the next swap expects.
    pub(crate) expected: Option<Record>,
    /// Swaps from `expected` whose outcome is not known.
    pub(crate) attempts: Vec<Attempt>,
    pub(crate) authority_until: BootInstant,
}

impl Reign {
    fn renewed(&mut self, sent_at: BootInstant, timing: Timing) {
        self.authority_until = self.authority_until.max(sent_at + timing.authority());
    }
}

/// The swap is won; the gate opens once the state file says so.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Opening {
    pub(crate) reign: Reign,
    pub(crate) basis: TakeoverBasis,
    pub(crate) first_token: Token,
    pub(crate) floor: Token,
    pub(crate) grace: Grace,
    pub(crate) swap_sent_at: BootInstant,
}

/// The gate is open.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Active {
    pub(crate) reign: Reign,
    /// The highest floor that the witness or the peer has acknowledged.
    acknowledged_floor: Token,
    /// What the gate was last told.
    gate: (BootInstant, Token),
    /// The largest token granted, as last told by the lock table.
    last_token: Token,
    next_renewal: BootInstant,
    /// Unanswered: the owner of the lock table may be stuck, so nothing is renewed.
    table_probe: Option<OpId>,
    promise: Option<PendingPromise>,
    /// A renewal is due at the witness.
    renewal_due: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct PendingPromise {
    op: OpId,
    sent_at: BootInstant,
    floor: Token,
}

impl Active {
    pub(crate) fn timeout(&self) -> BootInstant {
        let renewal = if self.table_probe.is_none() {
            self.next_renewal
        } else {
            BootInstant::MAX
        };
        self.reign.authority_until.min(renewal)
    }

    /// The outcome of a renewal at the witness is not known.
    pub(crate) fn is_in_doubt(&self) -> bool {
        !self.reign.attempts.is_empty()
    }

    pub(crate) fn forget_promise(&mut self, op: OpId) {
        self.promise.take_if(|promise| promise.op == op);
    }
}

/// The gate is shut; the term is on its way to the peer, or to nobody.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct HandingOver {
    pub(crate) reign: Reign,
    to: Option<(NodeId, Incarnation)>,
    acknowledged_floor: Token,
    /// The last token granted, once the gate is shut.
    last_token: Option<Token>,
    /// The swap that hands over, once it was sent.
    handover: Option<Record>,
}

impl HandingOver {
    pub(crate) fn handle_gate_shut(&mut self, last_token: Token) {
        self.last_token = Some(last_token);
    }

    pub(crate) fn is_swapping(&self) -> bool {
        self.last_token.is_some()
    }
}

impl Watchdog {
    /// Opens the gate, or waits for the state file that it relies on.
    pub(crate) fn open_if_durable(&mut self, now: BootInstant) {
        let Role::Opening(opening) = &self.role else {
            return;
        };
        let relied_on = NodeState {
            highest_term: opening.reign.term,
            floor: opening.floor,
            longest_lease_ms: self.known.longest_lease_ms,
        };
        if !self.durable.covers(relied_on) && self.rules.hold(Rule::GateIsDurable) {
            return self.persist_known();
        }
        let Opening {
            reign,
            basis,
            first_token,
            floor,
            grace,
            swap_sent_at,
        } = opening.clone();
        let (term, authority_until) = (reign.term, reign.authority_until);
        self.role = Role::Active(Active {
            reign,
            acknowledged_floor: floor,
            gate: (authority_until, floor),
            last_token: first_token,
            next_renewal: now,
            table_probe: None,
            promise: None,
            renewal_due: false,
        });
        self.alone.reign_began();
        self.act(Action::OpenGate(OpenGate {
            term,
            first_token,
            ceiling: floor,
            authority_until,
            grace,
        }));
        let swap_to_open = now.saturating_duration_since(swap_sent_at);
        self.journal(JournalEntry::BecameActive {
            term,
            basis,
            first_token,
            swap_to_open,
        });
        if term > Term(1) {
            self.act(Action::Fence {
                term: Term(term.0 - 1),
            });
        }
        self.act(Action::PublishName { term });
    }

    /// The state file cannot be written: nothing may rely on it, so the term is given up.
    pub(crate) fn give_up_opening(&mut self, now: BootInstant) {
        if let Role::Opening(opening) = &self.role {
            let term = opening.reign.term;
            self.journal(JournalEntry::TakeoverLost { term });
            self.become_standby(now);
        }
    }

    pub(crate) fn drive_active(&mut self, now: BootInstant) {
        self.probe_table_if_due(now);
        let Role::Active(active) = &self.role else { return };
        if self.witness_op.is_some() || self.config.no_witness.is_some() {
            return;
        }
        if active.is_in_doubt() {
            if now >= self.next_reading {
                self.read_witness(now);
            }
        } else if active.renewal_due {
            self.renew_at_witness(now);
        }
    }

    fn probe_table_if_due(&mut self, now: BootInstant) {
        let Role::Active(active) = &self.role else { return };
        if now < active.next_renewal || active.table_probe.is_some() {
            return;
        }
        let op = self.next_op();
        let Role::Active(active) = &mut self.role else {
            return;
        };
        active.renewal_due |= !self.rules.hold(Rule::RenewalNeedsTheTable);
        active.table_probe = Some(op);
        active.next_renewal = now + self.config.timing.renewal_interval();
        self.act(Action::ProbeTable { op });
    }

    /// The lock table is alive: only now is a renewal worth sending.
    pub(crate) fn active_table_report(&mut self, op: OpId, report: TableReport, now: BootInstant) {
        let timing = self.config.timing;
        let promise_op = self.next_op();
        let ahead = timing.floor_ahead_seconds() + self.reserve_seconds();
        let Role::Active(active) = &mut self.role else {
            return;
        };
        if active.table_probe.take_if(|pending| *pending == op).is_none() {
            return;
        }
        let epoch = report.epoch.max(report.last_token.epoch_seconds());
        let floor = self
            .known
            .floor
            .max(Token::first_of_epoch(epoch.saturating_add(ahead)));
        self.known.floor = floor;
        active.last_token = report.last_token;
        let soon = Token::first_of_epoch(epoch.saturating_add(timing.floor_ahead_seconds()));
        let runs_out = active.acknowledged_floor < soon;
        self.known.longest_lease_ms = self.known.longest_lease_ms.max(report.longest_lease_ms);
        active.renewal_due = true;
        let unanswered = active
            .promise
            .is_some_and(|promise| promise.sent_at + timing.authority() > now);
        if !unanswered {
            active.promise = Some(PendingPromise {
                op: promise_op,
                sent_at: now,
                floor,
            });
            let request = PromiseRequest {
                term: active.reign.term,
                incarnation: self.config.incarnation,
                floor,
                max_lease_ms: self.known.longest_lease_ms,
                candidacy: None,
            };
            self.act(Action::AskPromise {
                op: promise_op,
                request,
            });
        }
        if self.durable.floor < floor {
            self.persist_known();
        }
        let waits_for_proof = self
            .config
            .no_witness
            .is_some_and(|setting| setting.unproven == Unproven::Wait);
        if waits_for_proof && runs_out {
            self.extend_alone();
        }
    }

    /// Raises the ceiling to the floor known, without anybody's acknowledgement; whether there is a gate to raise it for.
    pub(crate) fn extend_alone(&mut self) -> bool {
        let floor = self.known.floor;
        let Role::Active(active) = &mut self.role else {
            return false;
        };
        active.acknowledged_floor = floor;
        let term = active.reign.term;
        self.journal(JournalEntry::FloorExtendedAlone { term, floor });
        self.update_gate();
        true
    }

    /// Whether the lock table answers, unless it was asked only a while ago.
    pub(crate) fn table_answers(&self, now: BootInstant) -> bool {
        let Role::Active(active) = &self.role else {
            return true;
        };
        active.table_probe.is_none() || now < active.next_renewal + self.config.timing.ttl()
    }

    pub(crate) fn grants_left(&self) -> Option<u64> {
        let Role::Active(active) = &self.role else {
            return None;
        };
        let ceiling = self.config.no_witness.map(|_| active.gate.1)?;
        Some(
            ceiling
                .get()
                .saturating_sub(active.last_token.get().saturating_add(1)),
        )
    }

    pub(crate) fn active_promise_answer(&mut self, op: OpId, answer: PromiseAnswer, now: BootInstant) {
        let timing = self.config.timing;
        let from_sending = self.rules.hold(Rule::PromiseCountsFromSending);
        let of_any = !self.rules.hold(Rule::OutcomeIsOfItsOperation);
        let Role::Active(active) = &mut self.role else {
            return;
        };
        let Some(promise) = active.promise.take_if(|promise| promise.op == op || of_any) else {
            return;
        };
        if answer.highest_term > active.reign.term {
            return self.step_down(answer.highest_term, now);
        }
        if answer.refused.is_none() {
            let from = if from_sending { promise.sent_at } else { now };
            active.reign.renewed(from, timing);
            active.acknowledged_floor = active.acknowledged_floor.max(promise.floor);
            self.update_gate();
        }
    }

    /// Tells the gate what has become of its deadline and its ceiling. A floor that this node's own disk does not know
    /// yet is no ceiling.
    pub(crate) fn update_gate(&mut self) {
        let acknowledged = self.rules.hold(Rule::CeilingIsAcknowledged);
        let Role::Active(active) = &mut self.role else {
            return;
        };
        let floor = if acknowledged {
            active.acknowledged_floor.min(self.durable.floor)
        } else {
            self.known.floor
        };
        let ceiling = floor.max(active.gate.1);
        let (term, until) = (active.reign.term, active.reign.authority_until);
        if active.gate != (until, ceiling) {
            active.gate = (until, ceiling);
            self.act(Action::RenewAuthority { term, until, ceiling });
        }
    }

    fn renew_at_witness(&mut self, now: BootInstant) {
        let Some(term) = self.held_term() else { return };
        let holder = (Some(self.config.node), self.config.incarnation);
        if let Role::Active(active) = &mut self.role {
            active.renewal_due = false;
        }
        self.swap_reign(term, holder, now);
    }

    /// Swaps from what the register is expected to hold, and remembers the attempt.
    fn swap_reign(
        &mut self,
        term: Term,
        (holder, incarnation): (Option<NodeId>, Incarnation),
        now: BootInstant,
    ) -> Option<Record> {
        let new = Record {
            format: Record::FORMAT,
            term,
            holder,
            incarnation,
            beat: self.next_beat(),
            floor: self.known.floor,
            max_lease_ms: self.known.longest_lease_ms,
        };
        let reign = match &mut self.role {
            Role::Active(active) => &mut active.reign,
            Role::HandingOver(handing_over) => &mut handing_over.reign,
            Role::Standby | Role::TakingOver(_) | Role::Asking(_) | Role::Opening(_) => return None,
        };
        remember_attempt(
            &mut reign.attempts,
            Attempt {
                new: new.clone(),
                sent_at: now,
            },
        );
        let expected = reign.expected.clone();
        self.swap_witness(expected, new.clone(), now);
        Some(new)
    }

    /// What the register holds while this node holds a term.
    pub(crate) fn reign_register(&mut self, record: Option<Record>, now: BootInstant) {
        let Some(term) = self.held_term() else { return };
        if let Role::HandingOver(handing_over) = &self.role
            && handing_over.handover.is_some()
            && handing_over.handover == record
        {
            return self.finish_handover(now);
        }
        match &record {
            Some(found) if found.term > term => self.step_down(found.term, now),
            Some(found) if found.term == term => {
                if found.is_held_by(self.config.node, self.config.incarnation) {
                    self.own_register(record, now);
                } else {
                    self.step_down(term.next(), now);
                }
            }
            // The witness went back behind this term. A handover may have landed before that, and counts.
            Some(_) | None if self.has_sent_handover() => self.end_reign(now),
            // It is written over with the largest term and floor.
            Some(_) | None => self.rebase(record, now),
        }
    }

    fn own_register(&mut self, record: Option<Record>, now: BootInstant) {
        let timing = self.config.timing;
        let from_sending = self.rules.hold(Rule::RenewalCountsFromSending);
        let (reign, acknowledged_floor, table_answered) = match &mut self.role {
            Role::Active(active) => (
                &mut active.reign,
                &mut active.acknowledged_floor,
                active.renewal_due,
            ),
            Role::HandingOver(handing_over) => (
                &mut handing_over.reign,
                &mut handing_over.acknowledged_floor,
                handing_over.last_token.is_some(),
            ),
            Role::Standby | Role::TakingOver(_) | Role::Asking(_) | Role::Opening(_) => return,
        };
        if record == reign.expected {
            // Nothing has landed yet. One more swap from the same record decides: if it wins, no earlier one can.
            if !reign.attempts.is_empty() && table_answered {
                self.renew_at_witness(now);
            }
            return;
        }
        let landed = reign
            .attempts
            .iter()
            .find(|attempt| Some(&attempt.new) == record.as_ref());
        if let Some((sent_at, floor)) = landed.map(|attempt| (attempt.sent_at, attempt.new.floor)) {
            reign.renewed(if from_sending { sent_at } else { now }, timing);
            *acknowledged_floor = (*acknowledged_floor).max(floor);
        }
        self.rebase(record, now);
        self.update_gate();
    }

    /// The register holds something else now: no earlier attempt can land any more.
    fn rebase(&mut self, record: Option<Record>, now: BootInstant) {
        let reign = match &mut self.role {
            Role::Active(active) => &mut active.reign,
            Role::HandingOver(handing_over) => &mut handing_over.reign,
            Role::Standby | Role::TakingOver(_) | Role::Asking(_) | Role::Opening(_) => return,
        };
        reign.expected = record;
        reign.attempts.clear();
        if self.has_sent_handover() {
            self.reopen(now);
        }
    }

    /// A renewal that failed is due again when the lock table has answered; a handover that failed is over.
    pub(crate) fn reign_swap_failed(&mut self, new: &Record, now: BootInstant) {
        let reign = match &mut self.role {
            Role::Active(active) => &mut active.reign,
            Role::HandingOver(handing_over) => &mut handing_over.reign,
            Role::Standby | Role::TakingOver(_) | Role::Asking(_) | Role::Opening(_) => return,
        };
        reign.attempts.retain(|attempt| attempt.new != *new);
        if reign.attempts.is_empty() && self.has_sent_handover() {
            self.reopen(now);
        }
    }

    fn has_sent_handover(&self) -> bool {
        matches!(&self.role, Role::HandingOver(handing_over) if handing_over.handover.is_some())
    }

    // ---- handover

    pub(crate) fn start_handover(
        &mut self,
        mode: HandoverMode,
        now: BootInstant,
    ) -> Result<(), HandoverRefused> {
        self.retired |= mode == HandoverMode::OrRelease;
        let Role::Active(active) = &self.role else {
            return Err(HandoverRefused::NotActive);
        };
        let fresh = self.config.timing.ttl();
        let ready = self.peer.filter(|(status, heard)| {
            status.ready && !status.active && now.saturating_duration_since(*heard) <= fresh
        });
        let to = ready.map(|(status, _)| (self.config.node.peer(), status.incarnation));
        if to.is_none() && mode == HandoverMode::ToPeer {
            return Err(HandoverRefused::PeerNotReady);
        }
        let (reign, acknowledged_floor) = (active.reign.clone(), active.acknowledged_floor);
        let term = reign.term;
        self.role = Role::HandingOver(HandingOver {
            reign,
            to,
            acknowledged_floor,
            last_token: None,
            handover: None,
        });
        self.next_reading = now;
        self.journal(JournalEntry::HandoverStarted {
            term,
            to: to.map(|(node, _)| node),
        });
        self.act(Action::ShutGate {
            why: ShutReason::Handover,
        });
        Ok(())
    }

    pub(crate) fn drive_handover(&mut self, now: BootInstant) {
        let Role::HandingOver(handing_over) = &self.role else {
            return;
        };
        if self.witness_op.is_some() || handing_over.last_token.is_none() {
            return;
        }
        if !handing_over.reign.attempts.is_empty() {
            if now >= self.next_reading {
                self.read_witness(now);
            }
            return;
        }
        if self.config.no_witness.is_some() {
            return self.hand_over_by_word(now);
        }
        let term = handing_over.reign.term.next();
        let holder = match handing_over.to {
            Some((node, incarnation)) => (Some(node), incarnation),
            None => (None, self.config.incarnation),
        };
        let sent = self.swap_reign(term, holder, now);
        if let Role::HandingOver(handing_over) = &mut self.role {
            handing_over.handover = sent;
        }
    }

    /// Without a witness the peer is only told. Whether it has heard does not matter here: this node is standby now, and
    /// begins no term without its peer's consent.
    fn hand_over_by_word(&mut self, now: BootInstant) {
        let Role::HandingOver(handing_over) = &self.role else {
            return;
        };
        let to = handing_over.to;
        let (holder, incarnation) = to.map_or((None, self.config.incarnation), |(node, incarnation)| {
            (Some(node), incarnation)
        });
        let record = Record {
            format: Record::FORMAT,
            term: handing_over.reign.term.next_of(self.config.node.peer()),
            holder,
            incarnation,
            beat: self.next_beat(),
            floor: self.known.floor,
            max_lease_ms: self.known.longest_lease_ms,
        };
        self.journal(JournalEntry::HandoverDone { term: record.term });
        self.become_standby(now);
        if to.is_some() {
            self.act(Action::TellHandover { record });
        }
    }

    fn finish_handover(&mut self, now: BootInstant) {
        let Role::HandingOver(handing_over) = &self.role else {
            return;
        };
        let (to, handover) = (handing_over.to, handing_over.handover.clone());
        let Some(record) = handover else { return };
        self.journal(JournalEntry::HandoverDone { term: record.term });
        self.become_standby(now);
        if to.is_some() {
            self.act(Action::TellHandover { record });
        }
    }

    /// The handover has failed for certain while authority lasts: serve on. Sessions were told to leave, so every lock
    /// keeps its grace.
    fn reopen(&mut self, now: BootInstant) {
        let Role::HandingOver(handing_over) = &self.role else {
            return;
        };
        let HandingOver {
            reign,
            acknowledged_floor,
            last_token,
            ..
        } = handing_over.clone();
        let (term, authority_until) = (reign.term, reign.authority_until);
        let ceiling = acknowledged_floor.min(self.durable.floor);
        let longest = Duration::from_millis(u64::from(self.known.longest_lease_ms));
        let grace = Grace {
            every_lock_until: Some(now + longest),
            ..Grace::default()
        };
        let first_token = last_token.unwrap_or(Token::ZERO).next();
        self.role = Role::Active(Active {
            reign,
            acknowledged_floor,
            gate: (authority_until, ceiling),
            last_token: first_token,
            next_renewal: now,
            table_probe: None,
            promise: None,
            renewal_due: false,
        });
        self.journal(JournalEntry::HandoverFailed { term });
        self.act(Action::OpenGate(OpenGate {
            term,
            first_token,
            ceiling,
            authority_until,
            grace,
        }));
    }
}
