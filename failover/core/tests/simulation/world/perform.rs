//! Doing what a watchdog wants.

use monolock_failover_core::{Action, JournalEntry, NodeId, ShutReason, SwapOutcome, TakeoverBasis, Term};
use monolock_protocol::Token;

use super::{Checked, Event, Gate, TTL_US, World};
use crate::weather::{Beyond, Link};

impl World {
    /// Performs what the watchdog wants; `asked` is the term that the peer has just asked to be promised.
    pub(super) fn perform(&mut self, node: NodeId, asked: Option<Term>) -> Checked {
        let life = self.incarnation(node);
        while let Some(action) = self.watchdog(node).poll_action() {
            self.tell(node, || format!("{action:?}"));
            let now = self.hosts[&node].boot(self.now);
            match action {
                Action::ReadWitness { op } => {
                    self.process(node).monitor.asks_witness(op, now);
                    let request = Event::ReadAtWitness(life.expect("running"), op);
                    self.ask_witness(node, request, Event::Reading(op, None));
                }
                Action::SwapWitness { op, expected, new } => {
                    let monitor = &mut self.process(node).monitor;
                    let word = monitor.swaps(expected.as_ref(), now);
                    monitor.asks_witness(op, now);
                    self.hold_to(word)?;
                    // A request that finds no way to the witness fails at once, as often as it is just not answered.
                    if self.hosts[&node].witness_cut_until > self.now && self.now.is_multiple_of(2) {
                        let failed = Event::Swapped(op, expected, new, SwapOutcome::Failed);
                        self.push(self.now + 1, node, life, failed);
                        continue;
                    }
                    let unknown = Event::Swapped(op, expected.clone(), new.clone(), SwapOutcome::Unknown);
                    let request = Event::SwapAtWitness(life.expect("running"), op, expected, new);
                    self.ask_witness(node, request, unknown);
                    self.may_freeze(node);
                }
                Action::AskPromise { op, request } => {
                    let asker = life.expect("running");
                    self.send_to_peer(node, Event::Promise(op, asker, request));
                    let gives_up = self.now + self.weather.peer_timeout_us;
                    self.push(gives_up, node, life, Event::PromiseAnswered(op, None));
                    self.may_freeze(node);
                }
                Action::AnswerPromise { reply, answer } => {
                    let process = self.process(node);
                    let (asker, op) = process.replies.remove(&reply).expect("answered once");
                    if answer.refused.is_none() && asked.is_some() && process.asked_to_give_way {
                        self.hold_to(Err("an active gave way to a candidate".to_owned()))?;
                    }
                    let process = self.process(node);
                    if let (None, Some(term)) = (answer.refused, asked) {
                        let highest = process.watchdog.known_state().highest_term;
                        let word = process.monitor.promises(term, highest);
                        self.hold_to(word)?;
                    }
                    let delay = self.delay(Link::Peer);
                    if !self.lost(Link::Peer) && self.reaches_peer(node) {
                        let event = Event::PromiseAnswered(op, Some(answer));
                        self.push(self.now + delay, node.peer(), Some(asker), event);
                    }
                    self.may_freeze(node);
                }
                Action::Persist { op, state } => {
                    let fails = self.faulty() && self.rng.percent(2);
                    let delay = self.disk_delay();
                    self.push(self.now + delay, node, life, Event::Persisted(op, state, !fails));
                }
                Action::ProbeTable { op } => self.push(self.now + 1, node, life, Event::TableReport(op)),
                Action::ProbePorts { op } => {
                    let delay = self.delay(Link::Peer);
                    self.push(self.now + delay, node, life, Event::ProbeArrives(op));
                }
                Action::OpenGate(open) => {
                    self.tally.takeovers += 1;
                    let last = Token::new(open.first_token.get().saturating_sub(1));
                    let process = self.process(node);
                    process.gate = Some(Gate {
                        term: open.term,
                        until: open.authority_until,
                        ceiling: open.ceiling,
                        last,
                    });
                    let word = process.monitor.opens(open.term);
                    self.hold_to(word)?;
                    self.check_reign(node, open.term)?;
                    self.check_grace(node, &open)?;
                    self.reigned_last = life;
                    self.check_authority(node)?;
                }
                Action::RenewAuthority { term, until, ceiling } => {
                    if let Some(gate) = &mut self.process(node).gate {
                        assert_eq!(gate.term, term);
                        let renewed = until > gate.until;
                        let revived = renewed && gate.until <= now;
                        (gate.until, gate.ceiling) = (until, ceiling);
                        if revived {
                            self.hold_to(Err(format!("revived term {term} after it had lapsed")))?;
                        }
                        self.check_table(node, renewed)?;
                    }
                    self.check_authority(node)?;
                }
                Action::ShutGate { why } if self.no_witness.is_some() && why == ShutReason::NotActive => {
                    let stuck = self.hosts[&node].table_stuck;
                    let shut_at = stuck.map_or(self.now + 1, |(_, until)| until.max(self.now + 1));
                    self.push(shut_at, node, life, Event::GateIsShut);
                }
                Action::ShutGate { .. } => {
                    let process = self.process(node);
                    if let Some(gate) = process.gate.take() {
                        process.watchdog.handle_gate_shut(gate.last, now);
                    }
                }
                Action::FenceFirst { op, term } => {
                    self.send_to_peer(node, Event::StopAt(op, term, life.expect("running")));
                    self.push(self.now + TTL_US / 2, node, life, Event::StopByCommand(op));
                }
                Action::Fence { term } => {
                    if self.weather.beyond != Beyond::ClocksRunWild {
                        self.send_to_peer(node, Event::FenceArrives(term));
                    }
                }
                Action::TellHandover { record } => {
                    self.tally.handovers += 1;
                    self.send_to_peer(node, Event::HandoverTold(record));
                }
                Action::PublishName { .. } => {}
                Action::Journal(entry) => {
                    self.process(node).monitor.writes(&entry, now);
                    self.count(&entry);
                }
            }
        }
        self.plan_wake(node);
        Ok(())
    }

    pub(super) fn plan_wake(&mut self, node: NodeId) {
        let Some(at) = self.watchdog(node).poll_timeout() else {
            return;
        };
        let at = self.hosts[&node].true_time(at).max(self.now + 1);
        let life = self.incarnation(node);
        let process = self.process(node);
        if process.wakes_at.is_none_or(|pending| at < pending) {
            process.wakes_at = Some(at);
            self.push(at, node, life, Event::Wake(at));
        }
    }

    pub(super) fn count(&mut self, entry: &JournalEntry) {
        match entry {
            JournalEntry::AuthorityLapsed { .. } => self.tally.lapses += 1,
            JournalEntry::WitnessWentBack { .. } => self.tally.went_back += 1,
            // From here on the order rests on clocks, and the grants of this world run ahead of any.
            JournalEntry::FloorExtendedAlone { .. } => self.forgot = true,
            JournalEntry::BecameActive {
                basis: TakeoverBasis::Unproven,
                ..
            } => self.tally.unproven += 1,
            JournalEntry::BecameActive {
                basis: TakeoverBasis::Consent,
                ..
            } => self.tally.consents += 1,
            JournalEntry::BecameActive {
                basis: TakeoverBasis::Fenced,
                ..
            } => self.tally.fenced += 1,
            JournalEntry::BecameActive {
                basis: TakeoverBasis::Crash | TakeoverBasis::NewIncarnation,
                ..
            } => self.tally.proofs += 1,
            _ => {}
        }
    }
}
