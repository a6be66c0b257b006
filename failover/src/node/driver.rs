//! The one task that owns the watchdog.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use monolock_clock::{BootTimer, boot_now, wall_now};
use monolock_failover_core::clock::{ClockReading, Verdict};
use monolock_failover_core::{
    HandoverMode, Incarnation, NodeState, OpId, PromiseAnswer, Record, ReplyId, RoleName, ShutReason, Status,
    SwapOutcome, TableReport, Watchdog,
};
use monolock_protocol::{BootInstant, Token, WallTime};
use monolock_server::{Now, ServerHandle};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::feed::Feeds;
use super::peer_watch;
use super::table::Table;
use crate::clock::{Judgement, NodeClock};
use crate::config::{FollowMode, NodeConfig};
use crate::dns::{NameProgress, ServiceState};
use crate::journal::Journal;
use crate::metrics::PairMetrics;
use crate::peer::message::{
    AcknowledgeResponse, BeginHandoverResponse, ExtendReserveResponse, FenceResponse, FollowEvent,
    HandoverResponse, NameReport, NodeStatus, PromiseResponse, Role,
};
use crate::peer::{Declined, PeerCall, PeerClient, Reply, Sender};
use crate::state_file::StateFile;
use crate::witness::Witness;

/// What happened, as far as it comes from the node's own tasks.
#[derive(Debug)]
pub(super) enum Input {
    /// The witness was read, or could not be.
    Reading {
        op: OpId,
        record: Option<Option<Record>>,
    },
    /// A swap ended.
    Swapped { op: OpId, outcome: SwapOutcome },
    /// The state file was written, or could not be.
    Persisted { op: OpId, written: bool },
    /// The peer answered a request for a promise, or did not.
    PromiseAnswered { op: OpId, answer: Option<PromiseAnswer> },
    /// The lock table answered.
    TableReported { op: OpId, report: TableReport },
    /// The gate is shut, and this was the last token granted.
    GateShut { why: ShutReason, last_token: Token },
    /// The silent peer was stopped, or could not be.
    Fenced { op: OpId, stopped: bool },
    /// The peer's ports were tried.
    Probed { op: OpId, both_refused: bool },
    /// The peer answered a status request sent at `sent`.
    PeerStatus {
        status: Box<NodeStatus>,
        sent: BootInstant,
    },
    /// A line of the peer's follow stream.
    Followed(FollowEvent),
    /// The follow stream ended.
    FollowEnded,
    /// An operator asks for a handover, and the peer was just asked how it stands.
    HandoverAsked { reply: Reply<BeginHandoverResponse> },
    /// The node is to stop, and the peer was just asked how it stands.
    StopAsked,
    /// The standby has had its time to hear the end of the stream.
    FlushOver { mark: u64 },
    /// It is time to look at the wall clock.
    ClockDue,
    /// A handover that was asked for has ended, as far as this node can see.
    HandoverSettled(BeginHandoverResponse),
}

/// What a driver is made of.
pub(super) struct Parts {
    pub(super) config: Arc<NodeConfig>,
    pub(super) incarnation: Incarnation,
    pub(super) watchdog: Watchdog,
    pub(super) server: ServerHandle,
    pub(super) table: Table,
    pub(super) peer: Arc<PeerClient>,
    pub(super) clock: Arc<NodeClock>,
    pub(super) witness: Option<Arc<dyn Witness>>,
    pub(super) state_file: StateFile,
    pub(super) journal: Journal,
    pub(super) inputs: mpsc::Sender<Input>,
    pub(super) name: watch::Sender<ServiceState>,
    pub(super) name_progress: watch::Receiver<NameProgress>,
    pub(super) metrics: Arc<PairMetrics>,
}

pub(super) struct Driver {
    pub(super) config: Arc<NodeConfig>,
    pub(super) incarnation: Incarnation,
    pub(super) watchdog: Watchdog,
    pub(super) server: ServerHandle,
    pub(super) table: Table,
    pub(super) peer: Arc<PeerClient>,
    pub(super) clock: Arc<NodeClock>,
    pub(super) witness: Option<Arc<dyn Witness>>,
    pub(super) inputs: mpsc::Sender<Input>,
    pub(super) persist: mpsc::Sender<(OpId, NodeState)>,
    pub(super) name: watch::Sender<ServiceState>,
    name_progress: watch::Receiver<NameProgress>,
    pub(super) metrics: Arc<PairMetrics>,
    pub(super) journal: Arc<Journal>,
    pub(super) feeds: Feeds,
    pub(super) tasks: TaskTracker,
    pub(super) stopped: CancellationToken,
    pub(super) promise_replies: HashMap<ReplyId, Reply<PromiseResponse>>,
    next_reply: u64,
    pub(super) handover_replies: Vec<Reply<BeginHandoverResponse>>,
    stopping: bool,
    /// The peer's gate was open when the stream that is followed began.
    follows_open_gate: bool,
    /// The mark that a handover waits for, and the last token of the term that is handed over.
    pub(super) flushing: Option<(u64, Token)>,
    /// How many gates are being shut.
    pub(super) shutting: usize,
    /// Fences that are answered when they are.
    fence_replies: Vec<Reply<FenceResponse>>,
}

impl Driver {
    pub(super) fn new(parts: Parts) -> Self {
        let Parts {
            config,
            incarnation,
            watchdog,
            server,
            table,
            peer,
            clock,
            witness,
            state_file,
            journal,
            inputs,
            name,
            name_progress,
            metrics,
        } = parts;
        let tasks = TaskTracker::new();
        let (persist, states) = mpsc::channel(1);
        tasks.spawn(keep_state_file(state_file, states, inputs.clone()));
        Self {
            feeds: Feeds::new(
                table.clone(),
                incarnation,
                config.timing.reading_interval(),
                config.follow == FollowMode::Sync,
            ),
            config,
            incarnation,
            watchdog,
            server,
            table,
            peer,
            clock,
            witness,
            inputs,
            persist,
            name,
            name_progress,
            metrics,
            journal: Arc::new(journal),
            tasks,
            stopped: CancellationToken::new(),
            promise_replies: HashMap::new(),
            next_reply: 0,
            handover_replies: Vec::new(),
            stopping: false,
            follows_open_gate: false,
            flushing: None,
            shutting: 0,
            fence_replies: Vec::new(),
        }
    }

    /// Runs until `stop` is cancelled and the term, if there is one, is given away.
    pub(super) async fn run(
        mut self,
        mut inputs: mpsc::Receiver<Input>,
        mut calls: mpsc::Receiver<PeerCall>,
        stop: CancellationToken,
    ) {
        self.watch_peer();
        self.watch_clock();
        let mut timer = BootTimer::new();
        self.look_at_clock();
        self.perform_all();
        let mut asked_to_stop = false;
        while !(self.stopping && self.has_given_up_its_term()) {
            let due = self.watchdog.poll_timeout();
            tokio::select! {
                biased;
                () = timer.sleep_until(due) => {
                    self.look_at_clock_to_begin_at();
                    self.watchdog.handle_timeout(boot_now());
                }
                () = stop.cancelled(), if !asked_to_stop => {
                    asked_to_stop = true;
                    tracing::info!("stopping");
                    self.server.set_ready(false);
                    self.ask_peer_before(Input::StopAsked);
                }
                Some(input) = inputs.recv() => self.handle_input(input),
                Some(call) = calls.recv() => self.handle_call(call),
            }
            self.perform_all();
            self.metrics.show_status(&self.status());
            self.metrics
                .show_grants_confirmed(self.table.grants_confirmed_lately());
        }
        self.server.set_ready(false);
        self.farewell().await;
    }

    fn watch_peer(&self) {
        let status_every = self.config.timing.renewal_interval();
        let retry_after = self.config.timing.reading_interval();
        let silence_ends_stream = self.config.timing.ttl() * 2;
        let (peer, inputs) = (Arc::clone(&self.peer), self.inputs.clone());
        let watching = peer_watch::poll_status(Arc::clone(&peer), inputs.clone(), status_every);
        let following = peer_watch::follow(peer, inputs, retry_after, silence_ends_stream);
        for task in [
            self.tasks
                .spawn(self.stopped.clone().run_until_cancelled_owned(watching)),
            self.tasks
                .spawn(self.stopped.clone().run_until_cancelled_owned(following)),
        ] {
            drop(task);
        }
    }

    fn watch_clock(&self) {
        let (clock, inputs) = (Arc::clone(&self.clock), self.inputs.clone());
        let looking = async move {
            let mut ticks = tokio::time::interval(CLOCK_INTERVAL);
            ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            loop {
                ticks.tick().await;
                if inputs.send(Input::ClockDue).await.is_err() {
                    return;
                }
            }
        };
        let both = async move { tokio::join!(clock.keep_asking(), looking) };
        self.tasks
            .spawn(self.stopped.clone().run_until_cancelled_owned(both));
    }

    /// Tells the watchdog and the lock table what the wall clock may be believed for: the very reading that was judged.
    pub(super) fn look_at_clock(&mut self) -> Verdict {
        let Judgement { reading, verdict } = self.clock.judge();
        let ClockReading { wall, boot } = reading;
        let trusted = self.clock.allows_first_start(&verdict);
        self.watchdog
            .handle_clock(trusted.then(|| wall.unix_seconds()), boot_now());
        if verdict.allows_adoption() && self.status().role == RoleName::Active {
            self.table.adopt_wall_clock(Now { wall, boot });
        }
        verdict
    }

    /// Whatever happens to a node that knows no floor may begin the first term, at the wall clock as it is then.
    fn look_at_clock_to_begin_at(&mut self) {
        if self.watchdog.known_state().floor == Token::ZERO {
            self.look_at_clock();
        }
    }

    fn begin_stop(&mut self) {
        self.stopping = true;
        // Not being active is no obstacle to stopping.
        let _not_active = self
            .watchdog
            .handle_handover_request(HandoverMode::OrRelease, boot_now());
    }

    fn has_given_up_its_term(&self) -> bool {
        match self.status().role {
            RoleName::Standby | RoleName::TakingOver => self.flushing.is_none() && self.shutting == 0,
            RoleName::Active | RoleName::HandingOver => false,
        }
    }

    /// Lets what was just said get out: the handover to the peer, answers to whoever asked.
    async fn farewell(self) {
        let Self {
            tasks,
            stopped,
            persist,
            journal,
            ..
        } = self;
        drop(persist);
        stopped.cancel();
        tasks.close();
        let _ = tokio::time::timeout(FAREWELL_TIME, tasks.wait()).await;
        if let Some(journal) = Arc::into_inner(journal) {
            let _ = tokio::task::spawn_blocking(|| journal.close()).await;
        }
    }

    fn handle_input(&mut self, input: Input) {
        self.look_at_clock_to_begin_at();
        let now = boot_now();
        match input {
            Input::Reading { op, record } => self.watchdog.handle_reading(op, record, now),
            Input::Swapped { op, outcome } => self.watchdog.handle_swap(op, outcome, now),
            Input::Persisted { op, written } => self.watchdog.handle_persisted(op, written, now),
            Input::PromiseAnswered { op, answer } => self.watchdog.handle_promise_answer(op, answer, now),
            Input::TableReported { op, report } => self.watchdog.handle_table_report(op, report, now),
            Input::GateShut { why, last_token } => self.gate_shut(why, last_token),
            Input::Fenced { op, stopped } => self.watchdog.handle_fenced(op, stopped, now),
            Input::Probed { op, both_refused } => self.watchdog.handle_probe(op, both_refused, now),
            Input::PeerStatus { status, sent } => self.handle_peer_status(&status, sent, now),
            Input::Followed(event) => self.handle_followed(&event, now),
            Input::FollowEnded => self.watchdog.handle_stream_ended(now),
            Input::HandoverAsked { reply } => self.begin_handover(reply, now),
            Input::StopAsked => self.begin_stop(),
            Input::FlushOver { mark } => self.flushed(mark),
            Input::ClockDue => {
                let verdict = self.look_at_clock();
                self.metrics.show_clock(&verdict, &self.clock.report());
                self.metrics
                    .show_name_pending(self.name_progress.borrow().pending);
            }
            Input::HandoverSettled(response) => {
                for reply in self.handover_replies.drain(..) {
                    let _ = reply.send(Ok(response.clone()));
                }
            }
        }
    }

    fn handle_peer_status(&mut self, status: &NodeStatus, sent: BootInstant, now: BootInstant) {
        let shows = WallTime::from_unix_nanos(status.wall_nanos);
        self.clock.note_peer(shows, sent, now);
        self.watchdog.handle_peer_status(status.into(), sent, now);
        if status.role == Role::Active {
            self.publish_peer(status.term);
        }
    }

    fn handle_followed(&mut self, event: &FollowEvent, now: BootInstant) {
        if let Some(change) = event.lock_change() {
            return self.watchdog.handle_lock_change(change, now);
        }
        match event {
            FollowEvent::Snapshot {
                incarnation, active, ..
            } => {
                self.follows_open_gate = *active;
                self.watchdog.handle_stream_started(*incarnation, now);
            }
            // What a node holds while its gate is shut says nothing about what it will have granted when it dies: it
            // ends this stream when the gate opens, and the next begins with what counts.
            FollowEvent::SnapshotEnd { .. } if !self.follows_open_gate => {}
            FollowEvent::SnapshotEnd {
                every_lock_free_after_ms,
                ..
            } => {
                self.watchdog
                    .handle_snapshot_end(every_lock_free_after_ms.map(Duration::from_millis), now);
            }
            FollowEvent::Beat { .. } => self.watchdog.handle_stream_beat(now),
            FollowEvent::Mark { .. }
            | FollowEvent::Held { .. }
            | FollowEvent::Freed { .. }
            | FollowEvent::Broke { .. }
            | FollowEvent::Unknown => {}
        }
    }

    fn handle_call(&mut self, call: PeerCall) {
        self.look_at_clock_to_begin_at();
        let now = boot_now();
        match call {
            PeerCall::Status { from, reply } => {
                let mut status = self.node_status();
                if from == Sender::Operator {
                    status.timeline = self.journal.last_timeline();
                }
                let _ = reply.send(Ok(status));
            }
            PeerCall::Follow { reply } => {
                let status = self.status();
                self.feeds
                    .open(status.term, status.role == RoleName::Active, reply);
            }
            PeerCall::Acknowledge { request, reply } => {
                let is_flush = self.flushing.is_some_and(|(mark, _)| mark == request.mark);
                self.flushed(request.mark);
                let grants = self.feeds.acknowledged(request.mark);
                if let Some(grants) = grants {
                    self.table.grants_confirmed(grants);
                }
                let current = is_flush || grants.is_some();
                let _ = reply.send(Ok(AcknowledgeResponse { current }));
            }
            PeerCall::Promise { request, reply } => {
                self.next_reply += 1;
                let id = ReplyId(self.next_reply);
                self.promise_replies.insert(id, reply);
                self.watchdog.handle_promise_request(id, (&request).into(), now);
            }
            PeerCall::Fence { request, reply } => {
                self.watchdog.handle_fence(request.term, now);
                self.perform_all();
                self.fence_replies.push(reply);
                self.answer_fences();
            }
            PeerCall::Handover { request, reply } => {
                let ours = request.record.is_held_by(self.config.node, self.incarnation);
                self.watchdog.handle_handover_told(&request.record, now);
                let reason = (!ours).then(|| "the record names another life of this node".to_owned());
                let _ = reply.send(Ok(HandoverResponse {
                    accepted: ours,
                    incarnation: self.incarnation,
                    reason,
                }));
            }
            PeerCall::ExtendReserve { reply } => {
                let extended = self.watchdog.handle_extend_reserve(now);
                let _ = reply.send(Ok(ExtendReserveResponse {
                    extended,
                    grants_left: self.status().grants_left,
                }));
            }
            PeerCall::BeginHandover { reply, .. } => self.ask_peer_before(Input::HandoverAsked { reply }),
        }
    }

    /// Before a handover: the last answer may be from before the peer was ready.
    fn ask_peer_before(&self, then: Input) {
        let (peer, inputs) = (Arc::clone(&self.peer), self.inputs.clone());
        self.tasks
            .spawn(self.stopped.clone().run_until_cancelled_owned(async move {
                if let Ok(answer) = peer.status().await {
                    let status = Box::new(answer.value);
                    let sent = answer.sent;
                    let _ = inputs.send(Input::PeerStatus { status, sent }).await;
                }
                // Without a watchdog, a reply is dropped, which answers that this node is not able to.
                let _ = inputs.send(then).await;
            }));
    }

    fn begin_handover(&mut self, reply: Reply<BeginHandoverResponse>, now: BootInstant) {
        match self.watchdog.handle_handover_request(HandoverMode::ToPeer, now) {
            Ok(()) => self.handover_replies.push(reply),
            Err(refused) => {
                let _ = reply.send(Err(Declined(refused.to_string())));
            }
        }
    }

    fn fence_response(&self) -> FenceResponse {
        let status = self.status();
        FenceResponse {
            shut: status.role != RoleName::Active,
            term: status.term,
            incarnation: self.incarnation,
            last_token: self.table.last_report().last_token,
        }
    }

    /// A gate that may still be open is no answer to a fence.
    fn answer_fences(&mut self) {
        if self.shutting == 0 {
            let response = self.fence_response();
            for reply in self.fence_replies.drain(..) {
                let _ = reply.send(Ok(response.clone()));
            }
        }
    }

    fn gate_shut(&mut self, why: ShutReason, last_token: Token) {
        self.shutting -= 1;
        match why {
            ShutReason::NotActive => self.watchdog.handle_stopped(boot_now()),
            ShutReason::Handover => self.flush_followers(last_token),
        }
        self.answer_fences();
    }

    /// The last events of the term are on the stream, and heard or given up on.
    pub(super) fn flushed(&mut self, mark: u64) {
        if let Some((_, last_token)) = self.flushing.take_if(|(waiting, _)| *waiting == mark) {
            self.watchdog.handle_gate_shut(last_token, boot_now());
        }
    }

    pub(super) fn status(&self) -> Status {
        self.watchdog.status(boot_now())
    }

    fn name_report(&self) -> NameReport {
        let published = self.name.borrow().clone();
        let NameProgress { pending, problem } = self.name_progress.borrow().clone();
        NameReport {
            addresses: published.addresses,
            term: published.term,
            pending,
            problem,
        }
    }

    fn node_status(&self) -> NodeStatus {
        let (now, status) = (boot_now(), self.status());
        let report = self.table.last_report();
        let known = self.watchdog.known_state();
        let authority_left = status
            .authority_until
            .map(|until| until.saturating_duration_since(now));
        NodeStatus {
            node: self.config.node,
            incarnation: self.incarnation,
            role: status.role.into(),
            term: known.highest_term.max(status.term),
            floor: status.floor,
            last_token: if report.term.is_some() {
                report.last_token
            } else {
                Token::ZERO
            },
            longest_lease_ms: known.longest_lease_ms,
            ready_for_handover: status.ready,
            table_answers: status.table_answers,
            grants_left: status.grants_left,
            grants_confirmed: self.table.grants_confirmed_lately(),
            boot_nanos: now.as_nanos(),
            wall_nanos: wall_now().unix_nanos(),
            authority_left_ms: authority_left.map(|left| u64::try_from(left.as_millis()).unwrap_or(u64::MAX)),
            reason: super::reasons::of(&status, &self.clock, now),
            clock: Some(self.clock.report()),
            witness: Some(self.metrics.witness_report(self.config.witness.kind())),
            name: self.config.dns.is_some().then(|| self.name_report()),
            timeline: Vec::new(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }
}

/// Writes states in the order asked for; what is written is durable before it is reported.
async fn keep_state_file(
    mut state_file: StateFile,
    mut states: mpsc::Receiver<(OpId, NodeState)>,
    inputs: mpsc::Sender<Input>,
) {
    while let Some((op, state)) = states.recv().await {
        let written = state_file.store(&state).await;
        if let Err(error) = &written {
            tracing::error!(%error, "nothing can rely on this node until its state file is writable again");
        }
        if inputs
            .send(Input::Persisted {
                op,
                written: written.is_ok(),
            })
            .await
            .is_err()
        {
            return;
        }
    }
}

/// How often the wall clock is looked at, apart from when it matters.
const CLOCK_INTERVAL: Duration = Duration::from_secs(1);
/// How long the last messages may take at the end.
const FAREWELL_TIME: Duration = Duration::from_secs(2);
