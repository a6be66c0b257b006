//! Performing what the watchdog decides.

use std::sync::Arc;
use std::time::Duration;

use monolock_clock::boot_now;
use monolock_failover_core::{
    self as core, Action, JournalEntry, OpId, PromiseRequest, Record, ShutReason, SwapOutcome, Term,
};
use monolock_protocol::{BootInstant, ErrorCode, Token};
use monolock_server::{Grace, OpenGate};

use super::driver::{Driver, Input};
use super::table::table_report;
use crate::config::TakeoverGrace;
use crate::dns::ServiceState;
use crate::hooks::{Hook, HookEvent, HookOutcome, Occasion};
use crate::journal::Step;
use crate::metrics::WitnessOperation;
use crate::peer::message::{
    self, BeginHandoverResponse, FenceRequest, HandoverRequest, PromiseResponse, Role,
};
use crate::peer::{PeerClient, PeerServer, PortProbe, probe_ports};
use crate::witness;

impl Driver {
    /// Performs everything that is due, in order.
    pub(super) fn perform_all(&mut self) {
        while let Some(action) = self.watchdog.poll_action() {
            self.perform(action);
        }
    }

    fn perform(&mut self, action: Action) {
        match action {
            Action::ReadWitness { op } => self.read_witness(op),
            Action::SwapWitness { op, expected, new } => self.swap_witness(op, expected, new),
            Action::AskPromise { op, request } => self.ask_promise(op, request),
            Action::AnswerPromise { reply, answer } => {
                if let Some(reply) = self.promise_replies.remove(&reply) {
                    let _ = reply.send(Ok(PromiseResponse::new(answer, self.incarnation)));
                }
            }
            Action::Persist { op, state } => {
                // The watchdog asks for one at a time, and the keeper takes it at once.
                if self.persist.try_send((op, state)).is_err() {
                    self.watchdog.handle_persisted(op, false, boot_now());
                }
            }
            Action::ProbeTable { op } => self.probe_table(op),
            Action::ProbePorts { op } => self.probe_ports(op),
            Action::OpenGate(open) => self.open_gate(open),
            Action::RenewAuthority { term, until, ceiling } => {
                self.table.renew_authority(term.0, until, ceiling);
            }
            Action::ShutGate { why } => self.shut_gate(why),
            Action::FenceFirst { op, term } => self.fence_first(op, term),
            Action::Fence { term } => self.fence(term),
            Action::PublishName { term } => self.publish_own(term),
            Action::TellHandover { record } => self.tell_handover(record),
            Action::Journal(entry) => self.journal(&entry),
        }
    }

    // ---- witness

    fn read_witness(&self, op: OpId) {
        let (witness, limit) = (self.witness(), self.witness_time());
        let metrics = Arc::clone(&self.metrics);
        self.spawn(async move {
            let sent = boot_now();
            let problem = match tokio::time::timeout(limit, witness.read()).await {
                Ok(Ok(record)) => {
                    let took = boot_now().saturating_duration_since(sent);
                    metrics.note_witness_answer(WitnessOperation::Read, took, false);
                    let record = Some(record);
                    return Input::Reading { op, record };
                }
                Ok(Err(error)) => error.to_string(),
                Err(_elapsed) => "no answer in time".to_owned(),
            };
            tracing::warn!(problem, "the witness could not be read");
            metrics.note_witness_failure(WitnessOperation::Read, problem);
            Input::Reading { op, record: None }
        });
    }

    fn swap_witness(&self, op: OpId, expected: Option<Record>, new: Record) {
        let (witness, limit) = (self.witness(), self.witness_time());
        let (metrics, slow) = (Arc::clone(&self.metrics), self.config.timing.reading_interval());
        self.spawn(async move {
            let sent = boot_now();
            let swapped = tokio::time::timeout(limit, witness.swap(expected.as_ref(), &new)).await;
            let took = boot_now().saturating_duration_since(sent);
            if took > slow {
                tracing::warn!(
                    ?took,
                    "the witness is slow: above a sixth of the authority period"
                );
            }
            let outcome = match swapped {
                Ok(witness::SwapOutcome::Won) => Ok(SwapOutcome::Won),
                Ok(witness::SwapOutcome::Lost { current }) => Ok(SwapOutcome::Lost { current }),
                Ok(witness::SwapOutcome::Failed(error)) => Err((SwapOutcome::Failed, error.to_string())),
                Ok(witness::SwapOutcome::Unknown(error)) => Err((SwapOutcome::Unknown, error.to_string())),
                Err(_elapsed) => Err((SwapOutcome::Unknown, "no answer in time".to_owned())),
            };
            let outcome = match outcome {
                Ok(outcome) => {
                    metrics.note_witness_answer(WitnessOperation::Swap, took, took > slow);
                    outcome
                }
                Err((outcome, problem)) => {
                    tracing::warn!(problem, ?outcome, "a swap at the witness came to nothing known");
                    metrics.note_witness_failure(WitnessOperation::Swap, problem);
                    outcome
                }
            };
            Input::Swapped { op, outcome }
        });
    }

    fn witness(&self) -> Arc<dyn witness::Witness> {
        let witness = self.witness.as_ref();
        Arc::clone(witness.expect("a watchdog without a witness asks none"))
    }

    fn witness_time(&self) -> Duration {
        self.config.timing.ttl() / 2
    }

    // ---- peer

    fn ask_promise(&self, op: OpId, request: PromiseRequest) {
        let peer = Arc::clone(&self.peer);
        let request = message::PromiseRequest::new(request, self.config.timing.ttl());
        self.spawn(async move {
            let answer = peer
                .promise(&request)
                .await
                .ok()
                .map(|answer| (&answer.value).into());
            Input::PromiseAnswered { op, answer }
        });
    }

    fn probe_ports(&self, op: OpId) {
        let (lock, link) = (self.config.peer_lock.clone(), self.config.link.peer.clone());
        let limit = self.config.timing.reading_interval();
        self.spawn(async move {
            let probe = probe_ports(&lock, &link, limit).await;
            Input::Probed {
                op,
                both_refused: probe == PortProbe::BothRefused,
            }
        });
    }

    /// Without a witness: by the peer's own word, else by the command, which can switch it off.
    fn fence_first(&self, op: OpId, term: Term) {
        let peer = Arc::clone(&self.peer);
        let command = self.fence_command(term);
        self.spawn(async move {
            let by_word = peer.fence(&FenceRequest { term }).await;
            let stopped = by_word.is_ok_and(|answer| answer.value.shut)
                || match command {
                    Some((hook, event)) => hook.run(&event).await == HookOutcome::Succeeded,
                    None => false,
                };
            Input::Fenced { op, stopped }
        });
    }

    fn fence_command(&self, term: Term) -> Option<(Hook, HookEvent)> {
        let command = self.config.hooks.fence_command.as_ref()?;
        Some((self.hook(command), self.hook_event(Occasion::Fence, term)))
    }

    /// The won swap is the authority; a fence only makes sure, and never holds the gate. The command, which may switch a
    /// machine off, is for a peer that does not say by itself that its gate is shut.
    fn fence(&self, term: Term) {
        let (peer, retry) = (Arc::clone(&self.peer), self.config.timing.reading_interval());
        let (command, journal) = (self.fence_command(term), Arc::clone(&self.journal));
        self.tasks
            .spawn(self.stopped.clone().run_until_cancelled_owned(async move {
                let sent = boot_now();
                let step = if fence_by_its_own_word(&peer, term, retry).await {
                    "fenced_by_peer_call"
                } else if let Some((hook, event)) = command
                    && hook.run(&event).await == HookOutcome::Succeeded
                {
                    "fenced_by_command"
                } else {
                    return;
                };
                let took = boot_now().saturating_duration_since(sent);
                journal.record(Step::new(step).in_term(term).that_took(took));
            }));
    }

    fn tell_handover(&mut self, record: Record) {
        let (peer, retry) = (Arc::clone(&self.peer), self.config.timing.reading_interval());
        let inputs = self.inputs.clone();
        let term = record.term;
        self.publish_peer(term);
        self.tasks.spawn(async move {
            let request = HandoverRequest { record };
            for _ in 0..HANDOVER_TRIES {
                if peer.handover(&request).await.is_ok() {
                    break;
                }
                tokio::time::sleep(retry).await;
            }
            let settled = wait_until_active(&peer, term, retry).await;
            // Without a watchdog nobody waits for the answer.
            let _ = inputs.send(Input::HandoverSettled(settled)).await;
        });
    }

    // ---- lock table

    fn probe_table(&self, op: OpId) {
        let table = self.table.clone();
        self.spawn_some(async move {
            let report = table_report(&table.report().await?);
            Some(Input::TableReported { op, report })
        });
    }

    fn open_gate(&mut self, open: core::OpenGate) {
        let grace = limited_grace(open.grace, self.config.grace, boot_now());
        self.table.open_gate(OpenGate {
            term: open.term.0,
            first_token: open.first_token,
            ceiling: open.ceiling,
            authority_until: open.authority_until,
            grace,
        });
        self.look_at_clock();
        // Followers learn of the new term, and of the graces it runs, from a new snapshot.
        self.feeds.end_all();
        self.server.set_ready(true);
    }

    fn shut_gate(&mut self, why: ShutReason) {
        match why {
            ShutReason::NotActive => {
                self.flushing = None;
                self.settle_handover_failed("authority was lost");
            }
            ShutReason::Handover => {}
        }
        let code = match why {
            ShutReason::NotActive => ErrorCode::NotActive,
            ShutReason::Handover => ErrorCode::ShuttingDown,
        };
        self.shutting += 1;
        let shut = self.table.shut_gate(code);
        self.spawn_some(async move {
            let last_token = shut.await?;
            Some(Input::GateShut { why, last_token })
        });
    }

    /// Waits until the standby has heard the last events of the term, or a bounded time.
    pub(super) fn flush_followers(&mut self, last_token: Token) {
        let Some(mark) = self.feeds.mark() else {
            return self.watchdog.handle_gate_shut(last_token, boot_now());
        };
        self.flushing = Some((mark, last_token));
        let limit = self.config.timing.reading_interval();
        self.spawn(async move {
            tokio::time::sleep(limit).await;
            Input::FlushOver { mark }
        });
    }

    // ---- name

    fn publish_own(&self, term: Term) {
        if let Some(dns) = &self.config.dns {
            self.publish(ServiceState {
                addresses: dns.advertise.clone(),
                term,
            });
        }
        self.run_hook(self.config.hooks.on_active.as_ref(), Occasion::Active, term);
    }

    fn run_hook(&self, command: Option<&String>, occasion: Occasion, term: Term) {
        if let Some(command) = command {
            let (hook, event) = (self.hook(command), self.hook_event(occasion, term));
            self.tasks.spawn(async move { hook.run(&event).await });
        }
    }

    fn hook(&self, command: &str) -> Hook {
        Hook::new(command, self.config.hooks.time_limit)
    }

    fn hook_event(&self, occasion: Occasion, term: Term) -> HookEvent {
        HookEvent {
            occasion,
            node: self.config.node,
            term,
            token_floor: self.status().floor,
        }
    }

    /// Names the peer, when its address is known and it has said so of a term that is not older.
    pub(super) fn publish_peer(&self, term: Term) {
        if let Some(dns) = &self.config.dns
            && !dns.peer_advertise.is_empty()
        {
            self.publish(ServiceState {
                addresses: dns.peer_advertise.clone(),
                term,
            });
        }
    }

    fn publish(&self, state: ServiceState) {
        let changed = self.name.send_if_modified(|published| {
            let newer = state.term >= published.term && *published != state;
            if newer {
                published.clone_from(&state);
            }
            newer
        });
        if changed {
            let step = Step::new("name_published").in_term(state.term);
            self.journal
                .record(step.with_detail(format!("{:?}", state.addresses)));
        }
    }

    // ---- journal

    fn journal(&mut self, entry: &JournalEntry) {
        let step = Step::from(entry).that_happened_by(self.watchdog.handled_until());
        let since_it_began = self.journal.record(step);
        match entry {
            JournalEntry::BecameActive { basis, .. } => self.metrics.note_takeover(*basis, since_it_began),
            JournalEntry::HandoverFailed { .. } => {
                self.settle_handover_failed("the witness has not taken the handover: this node serves on");
            }
            JournalEntry::AuthorityLapsed { term, .. }
            | JournalEntry::SteppedDown { term, .. }
            | JournalEntry::HandoverStarted { term, .. } => {
                self.run_hook(self.config.hooks.on_standby.as_ref(), Occasion::Standby, *term);
            }
            JournalEntry::Suspected { .. }
            | JournalEntry::DeathProven { .. }
            | JournalEntry::ProofVoid { .. }
            | JournalEntry::TakeoverStarted { .. }
            | JournalEntry::TakeoverLost { .. }
            | JournalEntry::HandoverDone { .. }
            | JournalEntry::WitnessWentBack { .. }
            | JournalEntry::StateNotDurable
            | JournalEntry::FloorExtendedAlone { .. } => {}
        }
    }

    fn settle_handover_failed(&mut self, reason: &str) {
        let term = self.status().term;
        for reply in self.handover_replies.drain(..) {
            let _ = reply.send(Ok(BeginHandoverResponse {
                done: false,
                term,
                reason: Some(reason.to_owned()),
            }));
        }
    }

    /// Runs something that takes time; what it comes to is an input.
    fn spawn(&self, outcome: impl Future<Output = Input> + Send + 'static) {
        self.spawn_some(async move { Some(outcome.await) });
    }

    /// The same for something that may come to nothing.
    fn spawn_some(&self, outcome: impl Future<Output = Option<Input>> + Send + 'static) {
        let inputs = self.inputs.clone();
        self.tasks
            .spawn(self.stopped.clone().run_until_cancelled_owned(async move {
                if let Some(input) = outcome.await {
                    // Without a watchdog nobody waits for the outcome.
                    let _ = inputs.send(input).await;
                }
            }));
    }
}

async fn fence_by_its_own_word(peer: &PeerClient, term: Term, retry: Duration) -> bool {
    for _ in 0..FENCE_TRIES {
        match peer.fence(&FenceRequest { term }).await {
            Ok(answer) => return answer.value.shut,
            Err(error) => tracing::debug!(term = term.0, %error, "the old active does not answer a fence"),
        }
        tokio::time::sleep(retry).await;
    }
    false
}

async fn wait_until_active(peer: &PeerClient, term: Term, retry: Duration) -> BeginHandoverResponse {
    let waiting = async {
        loop {
            if let Ok(answer) = peer.status().await
                && answer.value.role == Role::Active
                && answer.value.term >= term
            {
                return answer.value.term;
            }
            tokio::time::sleep(retry.min(STATUS_PAUSE)).await;
        }
    };
    match tokio::time::timeout(PeerServer::HANDOVER_TIME / 2, waiting).await {
        Ok(term) => BeginHandoverResponse {
            done: true,
            term,
            reason: None,
        },
        Err(_elapsed) => BeginHandoverResponse {
            done: false,
            term,
            reason: Some("the term was handed over, and the peer has not said that it serves".to_owned()),
        },
    }
}

fn limited_grace(grace: core::Grace, setting: TakeoverGrace, now: BootInstant) -> Grace {
    let core::Grace {
        every_lock_until,
        locks,
    } = grace;
    match setting {
        TakeoverGrace::Lease => Grace {
            every_lock_until,
            locks,
        },
        TakeoverGrace::None => Grace::default(),
        TakeoverGrace::AtMost(limit) => {
            let latest = now + limit;
            let locks = locks.into_iter().map(|(lock, until)| (lock, until.min(latest)));
            Grace {
                every_lock_until: every_lock_until.map(|until| until.min(latest)),
                locks: locks.collect(),
            }
        }
    }
}

/// How often a fence is tried; it never holds the gate.
const FENCE_TRIES: u32 = 3;
/// How often the peer is told; it finds the record by reading, too.
const HANDOVER_TRIES: u32 = 3;
/// Between two looks whether the peer serves.
const STATUS_PAUSE: Duration = Duration::from_millis(20);
