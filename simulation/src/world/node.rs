//! A node's process: what the watchdog is told, and doing what it wants.

use std::collections::BTreeMap;

use monolock_core::{Grace, LockTable, OpenGate};
use monolock_failover_core::{
    self as core, Action, Config, HandoverMode, Incarnation, JournalEntry, NodeId, OpId, RoleName,
    ShutReason, TableReport, TakeoverBasis, Term, Watchdog,
};
use monolock_protocol::{ErrorCode, Lease};

use super::peer::{Call, Follower, Then};
use super::server::SHORTEST_WAIT_US;
use super::{Event, NodeEvent, Owner, Process, World, timing};
use crate::laws::{Checked, Law};
use crate::mutation::{Mutation, Slip};
use crate::network::{Host, Link};
use crate::plan::TTL_US;

/// A node whose watchdog wakes more often in one period is running hot.
const MOST_WAKES_IN_A_PERIOD: u64 = 200;

/// How often a call that matters is repeated.
const CALL_TRIES: u32 = 3;

impl World {
    pub(super) fn start_node(&mut self, node: NodeId) -> Checked {
        if self.nodes[&node].process.is_some() {
            return Ok(());
        }
        if !self.nodes[&node].powered {
            let now = self.now;
            let host = self.host(node);
            host.powered = true;
            host.clock.reboot(now);
        }
        self.next_incarnation += 1;
        let life = Incarnation(self.next_incarnation);
        let config = Config {
            node,
            incarnation: life,
            timing: timing(),
            fast_takeover: true,
            no_witness: None,
        };
        let now = self.nodes[&node].clock.read(self.now);
        let disk = self.nodes[&node].disk;
        let without = match self.mutation {
            Some(Mutation::Watchdog(rule)) => vec![rule],
            _ => Vec::new(),
        };
        let watchdog = Watchdog::without_rules(config, &without, disk, now.boot);
        let table = LockTable::with_gate_shut(now);
        let table = match self.mutation {
            Some(Mutation::Table(rule)) => table.without_rule(rule),
            _ => table,
        };
        let clock_check = self.new_clock_check();
        self.host(node).process = Some(Process {
            life,
            watchdog,
            table,
            clock_check,
            gate: None,
            sessions: BTreeMap::new(),
            replies: BTreeMap::new(),
            next_reply: 0,
            feed: None,
            follower: Follower::default(),
            flushing: None,
            handing_over: Term::default(),
            next_mark: 0,
            then: None,
            stopping: false,
            away_for: 0,
            name: None,
            publishing: false,
            watchdog_wakes: None,
            table_wakes: None,
        });
        self.tell(Host::Node(node), || format!("starts, life {}", life.0));
        for event in [
            NodeEvent::AskStatus,
            NodeEvent::AskTime,
            NodeEvent::Follow,
            NodeEvent::Beat,
        ] {
            self.push_node(self.now + 1, node, event);
        }
        self.judge_clock(node)?;
        self.perform(node)
    }

    pub(super) fn node_event(&mut self, node: NodeId, event: NodeEvent) -> Checked {
        let now = self.boot(node);
        match event {
            NodeEvent::WatchdogWakes(planned) => {
                self.counts_wakes(node)?;
                let process = self.process(node);
                if process.watchdog_wakes.take_if(|at| *at == planned).is_some() {
                    process.watchdog.handle_timeout(now);
                }
            }
            NodeEvent::TableWakes(planned) => return self.table_wakes(node, planned),
            NodeEvent::Reading(op, record) => self.process(node).watchdog.handle_reading(op, record, now),
            NodeEvent::Swapped(op, outcome) => self.process(node).watchdog.handle_swap(op, outcome, now),
            NodeEvent::Persisted(op, state, written) => {
                if written && !self.slips(Slip::StateFileIsNotSynced) {
                    self.host(node).disk = self.nodes[&node].disk.max(state);
                }
                self.process(node).watchdog.handle_persisted(op, written, now);
            }
            NodeEvent::Synced(state) => self.host(node).disk = self.nodes[&node].disk.max(state),
            NodeEvent::TableReports(op) => self.table_reports(node, op)?,
            NodeEvent::ProbeAnswered(op, refused) => {
                self.process(node).watchdog.handle_probe(op, refused, now);
            }
            NodeEvent::Called(from, call) => return self.called(node, from, call),
            NodeEvent::CallAgain(call) => self.call_again(node, call),
            NodeEvent::Answered(answer) => return self.answered(node, answer),
            NodeEvent::PromiseGivenUp(op) => {
                self.process(node).watchdog.handle_promise_answer(op, None, now);
            }
            NodeEvent::AskStatus => {
                self.push_node(self.now + TTL_US / 3, node, NodeEvent::AskStatus);
                self.ask_status(node);
            }
            NodeEvent::AskTime => self.ask_time(node),
            NodeEvent::TimeTold(server, asked, shows) => self.time_told(node, server, asked, shows)?,
            NodeEvent::ThenAnyway(then) => {
                if self.process(node).then == Some(then) {
                    self.do_then(node)?;
                }
            }
            NodeEvent::Follow => self.follow(node)?,
            NodeEvent::Beat => self.beat(node),
            NodeEvent::FlushOver(mark) => self.flush_over(node, mark),
            NodeEvent::Publish => self.publish_again(node),
            NodeEvent::SessionBroke(id) => self.session_broke(id, node)?,
            NodeEvent::Exit => return self.exit(node),
            NodeEvent::Killed => {
                self.end_and_return(node);
                return Ok(());
            }
        }
        self.perform(node)
    }

    fn counts_wakes(&mut self, node: NodeId) -> Checked {
        let period = self.now / TTL_US;
        let wakes = &mut self.host(node).wakes_in_period;
        if wakes.0 != period {
            *wakes = (period, 0);
        }
        wakes.1 += 1;
        if wakes.1 > MOST_WAKES_IN_A_PERIOD {
            return Err((Law::Calm, format!("the watchdog of {node} runs hot")));
        }
        Ok(())
    }

    fn table_reports(&mut self, node: NodeId, op: OpId) -> Checked {
        self.table_step(node, LockTable::handle_timeout)?;
        let now = self.nodes[&node].clock.read(self.now);
        let process = self.process(node);
        let report = process.table.report(now);
        let report = TableReport {
            last_token: report.last_token,
            epoch: report.epoch,
            longest_lease_ms: report.longest_lease.map_or(0, Lease::as_millis),
        };
        process.watchdog.handle_table_report(op, report, now.boot);
        Ok(())
    }

    /// Before a handover: the last answer may be from before the peer was ready.
    pub(super) fn ask_peer_before(&mut self, node: NodeId, then: Then) {
        if self.life(node).is_none() || self.process(node).then == Some(Then::Stop) {
            return;
        }
        self.process(node).then = Some(then);
        self.ask_status(node);
        self.push_node(self.now + TTL_US / 2, node, NodeEvent::ThenAnyway(then));
    }

    pub(super) fn do_then(&mut self, node: NodeId) -> Checked {
        let now = self.boot(node);
        let Some(then) = self.process(node).then.take() else {
            return Ok(());
        };
        let mode = match then {
            Then::HandOver => HandoverMode::ToPeer,
            Then::Stop => {
                self.process(node).stopping = true;
                HandoverMode::OrRelease
            }
        };
        // Not being active is no obstacle to stopping, and an operator is told why there is no handover.
        if let Err(refused) = self.process(node).watchdog.handle_handover_request(mode, now) {
            self.tell(Host::Node(node), || format!("hands nothing over: {refused}"));
        }
        self.perform(node)
    }

    fn exits_if_done(&mut self, node: NodeId) {
        let now = self.boot(node);
        let process = self.process(node);
        let role = process.watchdog.status(now).role;
        let gave_up = matches!(role, RoleName::Standby | RoleName::TakingOver) && process.flushing.is_none();
        if process.stopping && gave_up {
            process.stopping = false;
            self.push_node(self.now + 1_000, node, NodeEvent::Exit);
        }
    }

    fn exit(&mut self, node: NodeId) -> Checked {
        self.table_step(node, LockTable::handle_shutdown)?;
        self.tell(Host::Node(node), || "exits".to_owned());
        self.end_and_return(node);
        Ok(())
    }

    fn end_and_return(&mut self, node: NodeId) {
        let back = self.now + self.process(node).away_for;
        self.end_process(node);
        self.push(back, Owner::World, Event::Starts(Host::Node(node)));
    }

    // ---- what the watchdog wants

    pub(super) fn perform(&mut self, node: NodeId) -> Checked {
        while let Some(action) = self.process(node).watchdog.poll_action() {
            self.perform_one(node, action)?;
        }
        self.plan_watchdog_wake(node);
        self.exits_if_done(node);
        Ok(())
    }

    fn perform_one(&mut self, node: NodeId, action: Action) -> Checked {
        match action {
            Action::ReadWitness { op } => self.ask_witness(node, op, None),
            Action::SwapWitness { op, expected, new } => {
                self.ask_witness(node, op, Some((expected, new)));
                self.may_freeze(node);
            }
            Action::AskPromise { op, request } => {
                self.call(node, Call::Promise(op, request));
                self.push_node(self.now + TTL_US / 2, node, NodeEvent::PromiseGivenUp(op));
                self.may_freeze(node);
            }
            Action::AnswerPromise { reply, answer } => {
                self.answer_promise(node, reply, answer);
                self.may_freeze(node);
            }
            Action::Persist { op, state } => self.persist(node, op, state),
            Action::ProbeTable { op } => self.push_node(self.now + 50, node, NodeEvent::TableReports(op)),
            Action::ProbePorts { op } => {
                let at = self.now + self.delay(Link::Peer);
                let life = self.life(node).expect("it acts");
                self.push(at, Owner::World, Event::Probed(node, life, op));
            }
            Action::OpenGate(open) => self.open_gate(node, open)?,
            Action::RenewAuthority { term, until, ceiling } => {
                self.table_step(node, |table, now| {
                    table.renew_authority(term.0, until, ceiling, now)
                })?;
                if let Some((open, deadline)) = &mut self.process(node).gate
                    && *open == term
                {
                    *deadline = until.max(*deadline);
                }
                self.check_authority()?;
            }
            Action::ShutGate { why } => self.shut_gate(node, why)?,
            Action::FenceFirst { .. } => unreachable!("this pair has a witness"),
            Action::Fence { term } => self.call_again(node, Call::Fence(term, CALL_TRIES)),
            Action::PublishName { term } => self.publish(node, term, node),
            Action::TellHandover { record } => {
                self.publish(node, record.term, node.peer());
                self.call_again(node, Call::Handover(record, CALL_TRIES));
            }
            Action::Journal(entry) => self.journal(node, &entry),
        }
        Ok(())
    }

    fn call_again(&mut self, node: NodeId, call: Call) {
        self.call(node, call.clone());
        let again = match call {
            Call::Fence(term, tries @ 2..) => Call::Fence(term, tries - 1),
            Call::Handover(record, tries @ 2..) => Call::Handover(record, tries - 1),
            _ => return,
        };
        self.push_node(self.now + TTL_US / 6, node, NodeEvent::CallAgain(again));
    }

    fn persist(&mut self, node: NodeId, op: OpId, state: core::NodeState) {
        let slow = self.is_faulty() && self.machines.percent(5);
        let delay = 1 + self.machines.below(if slow { TTL_US } else { 20_000 });
        let written = !(self.is_faulty() && self.machines.percent(2));
        if self.slips(Slip::StateFileIsNotSynced) {
            let synced = self.now + 2 * TTL_US + delay;
            self.push_node(synced, node, NodeEvent::Synced(state));
        }
        self.push_node(self.now + delay, node, NodeEvent::Persisted(op, state, written));
    }

    pub(super) fn answer_probe(&mut self, node: NodeId, life: Incarnation, op: OpId) {
        let peer = &self.nodes[&node.peer()];
        let refuses = peer.powered && peer.process.is_none();
        let reached = self.reaches(Host::Node(node), Host::Node(node.peer()), Link::Peer);
        let at = self.now + self.delay(Link::Peer);
        let event = Event::Node(NodeEvent::ProbeAnswered(op, refuses && reached));
        self.push(at, Owner::Node(node, life), event);
    }

    fn open_gate(&mut self, node: NodeId, open: core::OpenGate) -> Checked {
        self.tally.reigns += 1;
        let life = self.life(node).expect("it acts");
        self.records.reigns(open.term, life)?;
        self.excuse_unheard(node, &open);
        self.last_reign = self.last_reign.max(Some(open.term));
        let (term, until) = (open.term, open.authority_until);
        let gate = OpenGate {
            term: term.0,
            first_token: open.first_token,
            ceiling: open.ceiling,
            authority_until: until,
            grace: Grace {
                every_lock_until: open.grace.every_lock_until,
                locks: open.grace.locks,
            },
        };
        self.tell(Host::Node(node), || {
            format!(
                "opens its gate in term {term}, first token {}, {}",
                open.first_token,
                grace_text(&gate.grace)
            )
        });
        let opened = self.table_step(node, |table, now| table.open_gate(gate, now))?;
        if opened {
            self.process(node).gate = Some((term, until));
        }
        self.end_feed(node);
        self.check_authority()
    }

    fn shut_gate(&mut self, node: NodeId, why: ShutReason) -> Checked {
        let code = match why {
            ShutReason::NotActive => ErrorCode::NotActive,
            ShutReason::Handover => ErrorCode::ShuttingDown,
        };
        self.table_step(node, |table, now| table.shut_gate(code, now))?;
        let gate = self.process(node).gate.take();
        match why {
            ShutReason::NotActive => self.process(node).flushing = None,
            ShutReason::Handover => {
                if let Some((term, _)) = gate {
                    self.process(node).handing_over = term;
                }
                self.flush_followers(node);
            }
        }
        Ok(())
    }

    fn plan_watchdog_wake(&mut self, node: NodeId) {
        let Some(at) = self.process(node).watchdog.poll_timeout() else {
            return;
        };
        let at = self.nodes[&node].clock.true_time(at, self.now);
        let at = at.max(self.now + SHORTEST_WAIT_US);
        let process = self.process(node);
        if process.watchdog_wakes.is_none_or(|planned| at < planned) {
            process.watchdog_wakes = Some(at);
            self.push_node(at, node, NodeEvent::WatchdogWakes(at));
        }
    }

    // ---- the name

    /// An older term, or what is published already, changes nothing.
    pub(super) fn publish(&mut self, node: NodeId, term: Term, target: NodeId) {
        let process = self.process(node);
        if process.name.is_some_and(|(known, _)| known > term) || process.name == Some((term, target)) {
            return;
        }
        process.name = Some((term, target));
        if !std::mem::replace(&mut process.publishing, true) {
            self.push_node(self.now + 1, node, NodeEvent::Publish);
        }
    }

    /// Until the name servers have it.
    fn publish_again(&mut self, node: NodeId) {
        let Some((term, target)) = self.process(node).name else {
            return;
        };
        if self.reaches(Host::Node(node), Host::Names, Link::Witness) {
            self.process(node).publishing = false;
            let at = self.now + self.delay(Link::Witness);
            self.push(at, Owner::World, Event::NamePublished(term, target));
        } else {
            self.push_node(self.now + TTL_US / 3, node, NodeEvent::Publish);
        }
    }

    // ---- the journal

    fn journal(&mut self, node: NodeId, entry: &JournalEntry) {
        match entry {
            JournalEntry::AuthorityLapsed { .. } => self.tally.lapses += 1,
            JournalEntry::HandoverDone { .. } => self.tally.handovers += 1,
            JournalEntry::BecameActive { basis, .. } => match basis {
                TakeoverBasis::Crash | TakeoverBasis::NewIncarnation => self.tally.takeovers_by_proof += 1,
                TakeoverBasis::Silence => self.tally.takeovers_by_silence += 1,
                TakeoverBasis::Released
                | TakeoverBasis::Handover
                | TakeoverBasis::Consent
                | TakeoverBasis::Fenced
                | TakeoverBasis::Unproven => {}
            },
            _ => {}
        }
        self.tell(Host::Node(node), || journal_text(entry));
    }
}

fn grace_text(grace: &Grace) -> String {
    let every = grace.every_lock_until.map_or("no lock".to_owned(), |until| {
        format!("every lock until {until:?}")
    });
    let locks: Vec<_> = grace
        .locks
        .iter()
        .map(|(lock, until)| format!("{} until {until:?}", lock.as_str()))
        .collect();
    format!("holds back {every}, [{}]", locks.join(", "))
}

fn journal_text(entry: &JournalEntry) -> String {
    match entry {
        JournalEntry::Suspected { term } => format!("suspects its peer, term {term}"),
        JournalEntry::DeathProven { term, basis } => {
            format!(
                "has proof that the active of term {term} is dead: {}",
                basis.as_str()
            )
        }
        JournalEntry::ProofVoid { term } => format!("has lost its proof against term {term}"),
        JournalEntry::TakeoverStarted { term, basis } => {
            format!("swaps to take over in term {term}: {}", basis.as_str())
        }
        JournalEntry::TakeoverLost { term } => format!("has not won term {term}"),
        JournalEntry::BecameActive { term, basis, .. } => {
            format!("is active in term {term}: {}", basis.as_str())
        }
        JournalEntry::AuthorityLapsed { term, .. } => format!("has lost its authority, term {term}"),
        JournalEntry::SteppedDown { term, larger } => {
            format!("steps down from term {term}: there is {larger}")
        }
        JournalEntry::HandoverStarted { term, to } => match to {
            Some(to) => format!("shuts its gate to hand term {term} to {to}"),
            None => format!("shuts its gate to release term {term}"),
        },
        JournalEntry::HandoverDone { term } => format!("has handed over to term {term}"),
        JournalEntry::HandoverFailed { term } => format!("could not hand over, goes on in term {term}"),
        JournalEntry::WitnessWentBack { found, known } => {
            format!("finds term {found:?} at the witness, and knew {known}")
        }
        JournalEntry::StateNotDurable => "could not write its state file".to_owned(),
        JournalEntry::FloorExtendedAlone { term, floor } => {
            format!("extends the floor of term {term} alone to {floor}")
        }
    }
}
