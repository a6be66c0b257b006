//! The pair as a state machine: what is under way, and what may happen next.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use monolock_failover_core::rules::Rule;
use monolock_failover_core::{
    Action, Config, HandoverMode, Incarnation, JournalEntry, NodeId, NodeState, OpId, PeerStatus,
    PromiseAnswer, PromiseRequest, Record, ReplyId, RoleName, SwapOutcome, TableReport, Term, Timing,
    Watchdog,
};
use monolock_protocol::{BootInstant, Token};
use stateright::{Model, Property};

const TICK_MS: u64 = 200;
const TICKS_IN_A_PERIOD: u8 = 6;
/// When a question that nobody answered is given up.
const TIMEOUT_TICKS: u8 = 3;
/// Here `a` has been active for a while, and `b` has watched it.
const START: u8 = 9;
/// The second that the first term starts from.
const EPOCH: u64 = 1_000;
/// So fast that every renewal asks for a higher floor than is on disk.
const SECONDS_IN_A_TICK: u64 = 8;

/// What may go wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A link is cut, until it is mended.
    Cut,
    /// What goes between a node and the witness is delayed, for as long as may be.
    SlowWitness,
    /// What goes between the nodes is delayed.
    SlowPeer,
    /// A write of the state file is delayed.
    SlowDisk,
    /// A process ends, and may start again with what its disk holds.
    Crash,
    /// A process does nothing for a while.
    Freeze,
    /// A follow stream ends although its source lives.
    Break,
    /// A living node's ports refuse.
    Lie,
    /// A node is asked to hand over, or to release and end.
    Handover,
}

/// Which faults there are, how many, and for how many ticks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Course {
    pub(crate) name: &'static str,
    kinds: &'static [Fault],
    pub(crate) faults: u8,
    ticks: u8,
    /// Whether the kinds are a script: each happens once, in this order.
    scripted: bool,
    /// After the faults everything is mended, and goes on for so long.
    calm: u8,
}

impl Course {
    pub(crate) const fn new(name: &'static str, kinds: &'static [Fault], faults: u8, ticks: u8) -> Self {
        Self {
            name,
            kinds,
            faults,
            ticks,
            scripted: false,
            calm: 0,
        }
    }

    /// These faults in this order, wherever and whenever they strike.
    pub(crate) const fn script(kinds: &'static [Fault]) -> Self {
        Self {
            scripted: true,
            ..Self::new("script", kinds, kinds.len() as u8, 14)
        }
    }

    /// The same, after which somebody must serve again.
    pub(crate) const fn then_calm(self) -> Self {
        Self { calm: 20, ..self }
    }

    fn has(&self, kind: Fault) -> bool {
        self.kinds.contains(&kind)
    }
}

/// The model: a course, and the rule that is switched off, if any.
pub(crate) struct Pair {
    course: Course,
    without: Vec<Rule>,
    start: State,
}

/// What happens next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The oldest message arrives.
    Arrive,
    /// The oldest message is delayed.
    Delay(String),
    /// A delayed message arrives.
    ArriveLate(usize),
    /// A sixth of a period passes, and whoever lives does what is due.
    Tick,
    Cut(Link),
    Mend(Link),
    Crash(NodeId),
    Restart(NodeId),
    Freeze(NodeId),
    Thaw(NodeId),
    Break(NodeId),
    Lie,
    HandOver(NodeId),
    Release(NodeId),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Link {
    AToWitness,
    BToWitness,
    Peers,
}

const LINKS: [Link; 3] = [Link::AToWitness, Link::BToWitness, Link::Peers];
const NODES: [NodeId; 2] = [NodeId::A, NodeId::B];

/// One moment.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State {
    tick: u8,
    hosts: [Host; 2],
    register: Option<Record>,
    fresh: VecDeque<Message>,
    late: Vec<Message>,
    /// What is delivered at a tick when nothing came before.
    timeouts: Vec<(u8, Message)>,
    cut: [bool; 3],
    faults_left: u8,
    next_life: u64,
    reigns: BTreeMap<Term, Reign>,
    broken: Option<Broken>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Reign {
    life: Incarnation,
    /// No token below is granted in this term.
    low: Token,
    /// No token from here on is granted in this term.
    high: Token,
}

/// What must not happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Broken {
    TwoActives,
    TokensOutOfOrder,
    TwoLivesInATerm,
    RunsHot,
    RevivedTerm,
    PromisedDuringTakeover,
    PromisedBelowLargest,
    TookOverTooEarly,
    TookUpAgain,
    NobodyServes,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Host {
    disk: NodeState,
    process: Option<Process>,
    frozen: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Process {
    watchdog: Watchdog,
    life: Incarnation,
    started: u8,
    gate: Option<(Term, BootInstant)>,
    stream_from: Option<Incarnation>,
    takeover: Option<Term>,
    opened: Term,
    reopens: bool,
    retires: bool,
    /// The term that the peer asked last to be promised.
    asked: Term,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Message {
    Read(Address, OpId),
    Swap(Address, OpId, Option<Record>, Record),
    To(Address, Input),
}

/// One life of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Address {
    node: NodeId,
    life: Incarnation,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Input {
    Reading(OpId, Option<Option<Record>>),
    Swapped(OpId, SwapOutcome),
    Persisted(OpId, NodeState),
    Promise(Address, OpId, PromiseRequest),
    Promised(OpId, Option<PromiseAnswer>),
    Probed(OpId, bool),
    StreamEnded,
    StatusAsked(Address, BootInstant),
    Status(PeerStatus, BootInstant),
    Fence(Term),
    HandoverTold(Record),
}

impl Pair {
    pub(crate) fn new(course: Course, without: Option<Rule>) -> Self {
        let mut pair = Self {
            course,
            without: without.into_iter().collect(),
            start: State::nothing(course.faults),
        };
        let mut state = pair.start.clone();
        for node in NODES {
            pair.restart(&mut state, node);
        }
        while state.tick < START {
            pair.settle(&mut state);
            pair.tick(&mut state);
        }
        pair.settle(&mut state);
        assert!(
            state.has_authority(NodeId::A),
            "the first to look is the first to take"
        );
        pair.start = state;
        pair
    }

    /// Whatever is under way arrives.
    fn settle(&self, state: &mut State) {
        while let Some(message) = state.fresh.pop_front() {
            self.deliver(state, message);
        }
    }

    /// Whether something can be done about the oldest message.
    fn has_choice(&self, state: &State) -> bool {
        let Some(message) = state.fresh.front() else {
            return true;
        };
        self.may_delay(state, message) || self.may_lie(state, message)
    }

    fn may(&self, state: &State, kind: Fault) -> bool {
        let used = usize::from(self.course.faults - state.faults_left);
        let is_its_turn = !self.course.scripted || self.course.kinds.get(used) == Some(&kind);
        is_its_turn
            && state.faults_left > 0
            && self.course.has(kind)
            && state.tick < START + self.course.ticks
    }

    fn may_delay(&self, state: &State, message: &Message) -> bool {
        message.delayed_by().is_some_and(|kind| self.may(state, kind))
    }

    fn may_lie(&self, state: &State, message: &Message) -> bool {
        self.may(state, Fault::Lie) && matches!(message, Message::To(_, Input::Probed(_, false)))
    }
}

impl Model for Pair {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        vec![self.start.clone()]
    }

    fn actions(&self, state: &State, steps: &mut Vec<Step>) {
        if state.broken.is_some() {
            return;
        }
        let may = |kind| self.may(state, kind);
        if let Some(message) = state.fresh.front() {
            steps.push(Step::Arrive);
            if self.may_delay(state, message) {
                steps.push(Step::Delay(message.name()));
            }
            if self.may_lie(state, message) {
                steps.push(Step::Lie);
            }
            return;
        }
        steps.push(Step::Tick);
        if state.tick >= START + self.course.ticks {
            return;
        }
        steps.extend((0..state.late.len()).map(Step::ArriveLate));
        for link in LINKS {
            if state.cut[link as usize] {
                steps.push(Step::Mend(link));
            } else if may(Fault::Cut) {
                steps.push(Step::Cut(link));
            }
        }
        for node in NODES {
            let host = state.host(node);
            if host.process.is_none() {
                steps.push(Step::Restart(node));
                continue;
            }
            if host.frozen {
                steps.push(Step::Thaw(node));
            } else if may(Fault::Freeze) {
                steps.push(Step::Freeze(node));
            }
            if may(Fault::Crash) {
                steps.push(Step::Crash(node));
            }
            if may(Fault::Break) && state.streams(node).is_some() {
                steps.push(Step::Break(node));
            }
            if may(Fault::Handover) && !host.frozen && state.has_authority(node) {
                steps.push(Step::HandOver(node));
                steps.push(Step::Release(node));
            }
        }
    }

    fn next_state(&self, last: &State, step: Step) -> Option<State> {
        let mut state = last.clone();
        match step {
            Step::Arrive => {}
            Step::Tick | Step::ArriveLate(_) | Step::Mend(_) | Step::Restart(_) | Step::Thaw(_) => {}
            Step::Delay(_)
            | Step::Cut(_)
            | Step::Crash(_)
            | Step::Freeze(_)
            | Step::Break(_)
            | Step::Lie
            | Step::HandOver(_)
            | Step::Release(_) => state.faults_left -= 1,
        }
        match step {
            Step::Arrive => {
                let message = state.fresh.pop_front()?;
                self.deliver(&mut state, message);
            }
            Step::Delay(_) => {
                let message = state.fresh.pop_front()?;
                state.late.push(message);
            }
            Step::ArriveLate(which) => {
                let message = state.late.remove(which);
                if state.is_frozen(&message) {
                    return None;
                }
                self.deliver(&mut state, message);
            }
            Step::Tick => self.tick(&mut state),
            Step::Cut(link) => state.cut[link as usize] = true,
            Step::Mend(link) => state.cut[link as usize] = false,
            Step::Crash(node) => self.crash(&mut state, node),
            Step::Restart(node) => self.restart(&mut state, node),
            Step::Freeze(node) => state.host_mut(node).frozen = true,
            Step::Thaw(node) => state.host_mut(node).frozen = false,
            Step::Break(node) => {
                let input = Input::StreamEnded;
                let to = state.address(node)?;
                self.feed(&mut state, to, input);
            }
            Step::Lie => {
                if let Some(Message::To(_, Input::Probed(_, refused))) = state.fresh.front_mut() {
                    *refused = true;
                }
            }
            Step::HandOver(node) => self.hand_over(&mut state, node, HandoverMode::ToPeer),
            Step::Release(node) => self.hand_over(&mut state, node, HandoverMode::OrRelease),
        }
        while !self.has_choice(&state) && state.broken.is_none() {
            let message = state.fresh.pop_front()?;
            self.deliver(&mut state, message);
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        fn not(broken: Broken, state: &State) -> bool {
            state.broken != Some(broken)
        }
        vec![
            Property::always("at most one node has authority", |_, state| {
                not(Broken::TwoActives, state)
            }),
            Property::always("tokens of later terms are larger", |_, state| {
                not(Broken::TokensOutOfOrder, state)
            }),
            Property::always("a term has one life", |_, state| {
                not(Broken::TwoLivesInATerm, state)
            }),
            Property::always("time passes", |_, state| not(Broken::RunsHot, state)),
            Property::always("a lapsed term is over", |_, state| {
                not(Broken::RevivedTerm, state)
            }),
            Property::always("no promise during a takeover", |_, state| {
                not(Broken::PromisedDuringTakeover, state)
            }),
            Property::always("no promise below the largest term", |_, state| {
                not(Broken::PromisedBelowLargest, state)
            }),
            Property::always("a node watches after its start", |_, state| {
                not(Broken::TookOverTooEarly, state)
            }),
            Property::always("a term is not taken up again", |_, state| {
                not(Broken::TookUpAgain, state)
            }),
            Property::always("somebody serves in the end", |_, state| {
                not(Broken::NobodyServes, state)
            }),
            Property::sometimes("a takeover", |_, state: &State| state.reigns.len() > 1),
        ]
    }

    fn within_boundary(&self, state: &State) -> bool {
        state.tick <= START + self.course.ticks + self.course.calm
    }
}

// ---- what happens

impl Pair {
    fn tick(&self, state: &mut State) {
        state.tick += 1;
        let (due, later) = std::mem::take(&mut state.timeouts)
            .into_iter()
            .partition(|(at, _)| *at <= state.tick);
        state.timeouts = later;
        for (at, message) in due {
            if state.is_frozen(&message) {
                state.timeouts.push((at, message));
            } else {
                self.deliver(state, message);
            }
        }
        if self.course.calm > 0 && state.tick == START + self.course.ticks {
            self.mend(state);
        }
        for node in NODES {
            self.run(state, node);
            self.connect(state, node);
        }
        let settled = self.course.calm > 0 && state.tick == START + self.course.ticks + self.course.calm;
        let nobody = NODES.into_iter().all(|node| !state.has_authority(node));
        state.break_if(settled && nobody, Broken::NobodyServes);
    }

    fn mend(&self, state: &mut State) {
        state.cut = [false; 3];
        state.late.clear();
        for node in NODES {
            state.host_mut(node).frozen = false;
            if state
                .host(node)
                .process
                .as_ref()
                .is_some_and(|process| process.retires)
            {
                self.crash(state, node);
            }
            if state.host(node).process.is_none() {
                self.restart(state, node);
            }
        }
    }

    /// What is due at a node.
    fn run(&self, state: &mut State, node: NodeId) {
        let now = state.now();
        for _ in 0..8 {
            if state.host(node).frozen {
                return;
            }
            let Some(process) = &mut state.host_mut(node).process else {
                return;
            };
            if process.watchdog.poll_timeout().is_none_or(|at| at > now) {
                return;
            }
            process.watchdog.handle_timeout(now);
            self.perform(state, node);
        }
        state.broken = Some(Broken::RunsHot);
    }

    /// The follow stream starts where it can, and the peer is asked how it is.
    fn connect(&self, state: &mut State, node: NodeId) {
        let (Some(own), Some(peer)) = (state.address(node), state.address(node.peer())) else {
            return;
        };
        let frozen = NODES.into_iter().any(|node| state.host(node).frozen);
        if frozen || state.cut[Link::Peers as usize] || state.streams(node) == Some(peer.life) {
            return;
        }
        let now = state.now();
        let process = state.process(node);
        process.stream_from = Some(peer.life);
        process.watchdog.handle_stream_started(peer.life, now);
        self.perform(state, node);
        state
            .fresh
            .push_back(Message::To(peer, Input::StatusAsked(own, now)));
    }

    fn crash(&self, state: &mut State, node: NodeId) {
        let Some(dead) = state.address(node) else { return };
        let host = state.host_mut(node);
        host.process = None;
        host.frozen = false;
        let to_dead = |message: &Message| matches!(message, Message::To(to, _) if *to == dead);
        state.late.retain(|message| !to_dead(message));
        state.timeouts.retain(|(_, message)| !to_dead(message));
        if state.streams(node.peer()) == Some(dead.life) && !state.cut[Link::Peers as usize] {
            let peer = state.address(node.peer()).expect("it streams");
            state.fresh.push_back(Message::To(peer, Input::StreamEnded));
        }
    }

    fn restart(&self, state: &mut State, node: NodeId) {
        state.next_life += 1;
        let life = Incarnation(state.next_life);
        let config = Config {
            node,
            incarnation: life,
            timing: Timing::new(Duration::from_millis(TICK_MS * u64::from(TICKS_IN_A_PERIOD)))
                .expect("long enough"),
            fast_takeover: true,
            no_witness: None,
        };
        let now = state.now();
        let host = state.host_mut(node);
        let mut watchdog = Watchdog::without_rules(config, &self.without, host.disk, now);
        watchdog.handle_clock(Some(EPOCH), now);
        host.process = Some(Process {
            watchdog,
            life,
            started: 0,
            gate: None,
            stream_from: None,
            takeover: None,
            opened: Term::default(),
            reopens: false,
            retires: false,
            asked: Term::default(),
        });
        state.process(node).started = state.tick;
        self.perform(state, node);
    }

    fn hand_over(&self, state: &mut State, node: NodeId, mode: HandoverMode) {
        let peer = state.address(node.peer());
        let now = state.now();
        let status = peer.map(|peer| state.status(peer));
        let connected = !state.cut[Link::Peers as usize];
        let process = state.process(node);
        if let Some(status) = status.filter(|_| connected && mode == HandoverMode::ToPeer) {
            process.watchdog.handle_peer_status(status, now, now);
        }
        process.retires |= mode == HandoverMode::OrRelease;
        let _ = process.watchdog.handle_handover_request(mode, now);
        self.perform(state, node);
    }

    fn deliver(&self, state: &mut State, message: Message) {
        if state.is_frozen(&message) {
            state.late.push(message);
            return;
        }
        match message {
            Message::Read(from, op) => {
                let record = state.register.clone();
                state.answer_from_witness(from, Input::Reading(op, Some(record)));
            }
            Message::Swap(from, op, expected, new) => {
                let outcome = if state.register == expected {
                    state.register = Some(new);
                    SwapOutcome::Won
                } else {
                    SwapOutcome::Lost {
                        current: state.register.clone(),
                    }
                };
                state.answer_from_witness(from, Input::Swapped(op, outcome));
            }
            Message::To(to, input) => self.feed(state, to, input),
        }
    }

    fn feed(&self, state: &mut State, to: Address, input: Input) {
        if state.address(to.node) != Some(to) {
            return;
        }
        let now = state.now();
        state.forget_timeout(to, &input);
        let watchdog = &mut state.process(to.node).watchdog;
        match input {
            Input::Reading(op, record) => watchdog.handle_reading(op, record, now),
            Input::Swapped(op, outcome) => watchdog.handle_swap(op, outcome, now),
            Input::Persisted(op, written) => {
                watchdog.handle_persisted(op, true, now);
                let disk = &mut state.host_mut(to.node).disk;
                *disk = disk.max(written);
            }
            Input::Promise(asker, op, request) => {
                let reply = ReplyId(asker.life.0 * 10_000 + op.0);
                watchdog.handle_promise_request(reply, request, now);
                state.process(to.node).asked = request.term;
            }
            Input::Promised(op, answer) => watchdog.handle_promise_answer(op, answer, now),
            Input::Probed(op, refused) => watchdog.handle_probe(op, refused, now),
            Input::StreamEnded => {
                watchdog.handle_stream_ended(now);
                state.process(to.node).stream_from = None;
            }
            Input::StatusAsked(asker, sent_at) => {
                let status = state.status(to);
                state.send_to_peer(asker, Input::Status(status, sent_at));
            }
            Input::Status(status, sent_at) => watchdog.handle_peer_status(status, sent_at, now),
            Input::Fence(term) => watchdog.handle_fence(term, now),
            Input::HandoverTold(record) => watchdog.handle_handover_told(&record, now),
        }
        self.perform(state, to.node);
    }

    /// Refusals that lie are beyond what this promise rests on.
    fn check_authority(&self, state: &mut State) {
        let both = NODES.into_iter().all(|node| state.has_authority(node));
        state.break_if(both && !self.course.has(Fault::Lie), Broken::TwoActives);
    }

    /// Does what a watchdog wants.
    fn perform(&self, state: &mut State, node: NodeId) {
        let own = state.address(node).expect("running");
        let now = state.now();
        while let Some(action) = state.process(node).watchdog.poll_action() {
            match action {
                Action::ReadWitness { op } => {
                    state.ask_witness(own, Message::Read(own, op), Input::Reading(op, None));
                }
                Action::SwapWitness { op, expected, new } => {
                    let unknown = Input::Swapped(op, SwapOutcome::Unknown);
                    state.ask_witness(own, Message::Swap(own, op, expected, new), unknown);
                }
                Action::AskPromise { op, request } => {
                    state.times_out(own, Input::Promised(op, None));
                    if let Some(peer) = state.address(node.peer()) {
                        state.send_to_peer(peer, Input::Promise(own, op, request));
                    }
                }
                Action::AnswerPromise { reply, answer } => {
                    if answer.refused.is_none() {
                        let process = state.process(node);
                        let (asked, takeover) = (process.asked, process.takeover);
                        let highest = process.watchdog.known_state().highest_term;
                        state.break_if(highest > asked, Broken::PromisedBelowLargest);
                        state.break_if(takeover > Some(asked), Broken::PromisedDuringTakeover);
                    }
                    let asker = Address {
                        node: node.peer(),
                        life: Incarnation(reply.0 / 10_000),
                    };
                    state.send_to_peer(asker, Input::Promised(OpId(reply.0 % 10_000), Some(answer)));
                }
                Action::Persist { op, state: written } => {
                    state
                        .fresh
                        .push_back(Message::To(own, Input::Persisted(op, written)));
                }
                Action::ProbeTable { op } => {
                    let epoch = EPOCH + SECONDS_IN_A_TICK * u64::from(state.tick);
                    let report = TableReport {
                        last_token: Token::first_of_epoch(epoch),
                        epoch,
                        longest_lease_ms: 0,
                    };
                    state.process(node).watchdog.handle_table_report(op, report, now);
                }
                Action::ProbePorts { op } => {
                    let refused =
                        !state.cut[Link::Peers as usize] && state.host(node.peer()).process.is_none();
                    state
                        .fresh
                        .push_back(Message::To(own, Input::Probed(op, refused)));
                }
                Action::OpenGate(open) => {
                    let process = state.process(node);
                    process.gate = Some((open.term, open.authority_until));
                    let again = process.opened >= open.term && !process.reopens;
                    (process.opened, process.reopens) = (open.term, false);
                    state.break_if(again, Broken::TookUpAgain);
                    state.reigns_in(own, open.term, open.first_token, open.ceiling);
                    self.check_authority(state);
                }
                Action::RenewAuthority { term, until, ceiling } => {
                    let gate = state.process(node).gate.replace((term, until));
                    let lapsed = gate.is_some_and(|(_, before)| before <= now && until > now);
                    state.break_if(lapsed, Broken::RevivedTerm);
                    state.reigns_in(own, term, Token::MAX, ceiling);
                    self.check_authority(state);
                }
                Action::ShutGate { .. } => {
                    let process = state.process(node);
                    if process.gate.take().is_some() {
                        process.watchdog.handle_gate_shut(Token::ZERO, now);
                    }
                }
                Action::Fence { term } => {
                    if let Some(peer) = state.address(node.peer()) {
                        state.send_to_peer(peer, Input::Fence(term));
                    }
                }
                Action::TellHandover { record } => {
                    if let Some(peer) = state.address(node.peer()) {
                        state.send_to_peer(peer, Input::HandoverTold(record));
                    }
                }
                Action::PublishName { .. } => {}
                Action::FenceFirst { .. } => unreachable!("this pair has a witness"),
                Action::Journal(entry) => state.note(node, &entry),
            }
        }
    }
}

impl Message {
    /// Delaying the rest changes nothing that a cut link would not.
    fn delayed_by(&self) -> Option<Fault> {
        match self {
            Self::Swap(..) => Some(Fault::SlowWitness),
            Self::To(_, Input::Reading(..) | Input::Swapped(..)) => Some(Fault::SlowWitness),
            Self::To(_, Input::Promise(..) | Input::Promised(..) | Input::Status(..)) => {
                Some(Fault::SlowPeer)
            }
            Self::To(_, Input::Persisted(..)) => Some(Fault::SlowDisk),
            Self::Read(..)
            | Self::To(
                _,
                Input::Probed(..)
                | Input::StreamEnded
                | Input::StatusAsked(..)
                | Input::Fence(_)
                | Input::HandoverTold(_),
            ) => None,
        }
    }

    fn name(&self) -> String {
        match self {
            Self::Read(from, _) => format!("reading of {}", from.node),
            Self::Swap(from, _, _, new) => format!("swap of {} to term {}", from.node, new.term),
            Self::To(to, input) => {
                let input = format!("{input:?}");
                let what = input.split('(').next().unwrap_or_default();
                format!("{what} to {}", to.node)
            }
        }
    }
}

impl State {
    fn nothing(faults: u8) -> Self {
        let host = Host {
            disk: NodeState::default(),
            process: None,
            frozen: false,
        };
        Self {
            tick: 0,
            hosts: [host.clone(), host],
            register: None,
            fresh: VecDeque::new(),
            late: Vec::new(),
            timeouts: Vec::new(),
            cut: [false; 3],
            faults_left: faults,
            next_life: 0,
            reigns: BTreeMap::new(),
            broken: None,
        }
    }

    fn now(&self) -> BootInstant {
        BootInstant::from_millis(10_000 + TICK_MS * u64::from(self.tick))
    }

    fn host(&self, node: NodeId) -> &Host {
        &self.hosts[node as usize]
    }

    fn host_mut(&mut self, node: NodeId) -> &mut Host {
        &mut self.hosts[node as usize]
    }

    fn process(&mut self, node: NodeId) -> &mut Process {
        self.host_mut(node).process.as_mut().expect("running")
    }

    fn address(&self, node: NodeId) -> Option<Address> {
        let process = self.host(node).process.as_ref()?;
        Some(Address {
            node,
            life: process.life,
        })
    }

    fn streams(&self, node: NodeId) -> Option<Incarnation> {
        self.host(node).process.as_ref()?.stream_from
    }

    fn is_frozen(&self, message: &Message) -> bool {
        matches!(message, Message::To(to, _) if self.address(to.node) == Some(*to) && self.host(to.node).frozen)
    }

    fn status(&self, of: Address) -> PeerStatus {
        let process = self.host(of.node).process.as_ref().expect("running");
        let status = process.watchdog.status(self.now());
        PeerStatus {
            incarnation: of.life,
            active: status.role == RoleName::Active,
            table_answers: status.table_answers,
            ready: status.ready,
            highest_term: process.watchdog.known_state().highest_term,
            floor: status.floor,
            longest_lease_ms: 0,
        }
    }

    fn link_of(node: NodeId) -> Link {
        match node {
            NodeId::A => Link::AToWitness,
            NodeId::B => Link::BToWitness,
        }
    }

    fn ask_witness(&mut self, own: Address, question: Message, nothing: Input) {
        self.times_out(own, nothing);
        if !self.cut[Self::link_of(own.node) as usize] {
            self.fresh.push_back(question);
        }
    }

    fn answer_from_witness(&mut self, to: Address, answer: Input) {
        if !self.cut[Self::link_of(to.node) as usize] {
            self.fresh.push_back(Message::To(to, answer));
        }
    }

    fn send_to_peer(&mut self, to: Address, input: Input) {
        if !self.cut[Link::Peers as usize] {
            self.fresh.push_back(Message::To(to, input));
        }
    }

    fn times_out(&mut self, own: Address, nothing: Input) {
        self.timeouts
            .push((self.tick + TIMEOUT_TICKS, Message::To(own, nothing)));
    }

    /// The answer has come: nothing times out.
    fn forget_timeout(&mut self, to: Address, answer: &Input) {
        self.timeouts.retain(|(_, message)| match (message, answer) {
            (Message::To(own, Input::Reading(op, _)), Input::Reading(done, _))
            | (Message::To(own, Input::Swapped(op, _)), Input::Swapped(done, _))
            | (Message::To(own, Input::Promised(op, _)), Input::Promised(done, _)) => {
                *own != to || op != done
            }
            _ => true,
        });
    }

    fn note(&mut self, node: NodeId, entry: &JournalEntry) {
        let tick = self.tick;
        let process = self.process(node);
        match entry {
            JournalEntry::TakeoverStarted { term, basis } => {
                process.takeover = Some(*term);
                let handed = *basis == monolock_failover_core::TakeoverBasis::Handover;
                let early = !handed && tick < process.started + TICKS_IN_A_PERIOD;
                self.break_if(early, Broken::TookOverTooEarly);
            }
            JournalEntry::HandoverFailed { .. } => process.reopens = true,
            JournalEntry::TakeoverLost { .. }
            | JournalEntry::BecameActive { .. }
            | JournalEntry::SteppedDown { .. }
            | JournalEntry::AuthorityLapsed { .. } => process.takeover = None,
            JournalEntry::Suspected { .. }
            | JournalEntry::DeathProven { .. }
            | JournalEntry::ProofVoid { .. }
            | JournalEntry::HandoverStarted { .. }
            | JournalEntry::HandoverDone { .. }
            | JournalEntry::WitnessWentBack { .. }
            | JournalEntry::StateNotDurable
            | JournalEntry::FloorExtendedAlone { .. } => {}
        }
    }

    // ---- what must not happen

    fn has_authority(&self, node: NodeId) -> bool {
        let process = self.host(node).process.as_ref();
        let gate = process.and_then(|process| process.gate);
        gate.is_some_and(|(_, until)| self.now() < until)
    }

    fn break_if(&mut self, condition: bool, broken: Broken) {
        if condition && self.broken.is_none() {
            self.broken = Some(broken);
        }
    }

    fn reigns_in(&mut self, own: Address, term: Term, low: Token, high: Token) {
        let reign = self.reigns.entry(term).or_insert(Reign {
            life: own.life,
            low,
            high,
        });
        reign.low = reign.low.min(low);
        reign.high = reign.high.max(high);
        let two_lives = reign.life != own.life;
        let mut in_order = true;
        let mut highest = Token::ZERO;
        for reign in self.reigns.values() {
            in_order &= reign.low >= highest;
            highest = highest.max(reign.high);
        }
        self.break_if(two_lives, Broken::TwoLivesInATerm);
        self.break_if(!in_order, Broken::TokensOutOfOrder);
    }
}

/// A counterexample without what goes without saying.
pub(crate) fn retold(steps: &[Step]) -> String {
    let mut told = Vec::new();
    let mut tick = 0;
    for step in steps {
        match step {
            Step::Arrive => {}
            Step::Tick => tick += 1,
            other => told.push(format!("{tick}: {other:?}")),
        }
    }
    told.push(format!("{tick}: broken"));
    told.join(", ")
}
