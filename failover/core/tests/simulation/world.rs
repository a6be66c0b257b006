//! The world of the two watchdogs: hosts, clocks, disks, the network and the witness, one event after another.

mod checks;
mod faults;
mod network;
mod perform;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::time::Duration;

use monolock_failover_core::rules::Rule;
use monolock_failover_core::{
    HandoverMode, Incarnation, NoWitness, NodeId, NodeState, OpId, PeerStatus, PromiseAnswer, PromiseRequest,
    Record, ReplyId, SwapOutcome, TableReport, Term, Timing, Unproven, Watchdog,
};
use monolock_protocol::{BootInstant, Token};
use monolock_simulation::Rng;

use crate::monitor::Monitor;
use crate::weather::{self, Beyond, Link, Weather};

/// One authority period, in microseconds.
pub(crate) const TTL_US: u64 = 1_000_000;
const FAULTS_START_US: u64 = 2 * TTL_US;
const FAULTS_END_US: u64 = 30 * TTL_US;
/// From here on nobody loses or takes a term any more.
const SETTLED_US: u64 = FAULTS_END_US + 10 * TTL_US;
const END_US: u64 = SETTLED_US + 4 * TTL_US;
/// What an active without a witness has in reserve.
const RESERVE: Duration = Duration::from_secs(60);
/// A node that does more than this in one period is running hot.
const MOST_EVENTS_IN_A_PERIOD: u64 = 300;

pub(crate) fn timing() -> Timing {
    Timing::new(Duration::from_micros(TTL_US)).expect("long enough")
}

/// How much has happened.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) takeovers: u64,
    pub(crate) proofs: u64,
    pub(crate) handovers: u64,
    pub(crate) grants: u64,
    pub(crate) consents: u64,
    pub(crate) fenced: u64,
    pub(crate) unproven: u64,
    lapses: u64,
    went_back: u64,
}

impl Tally {
    pub(crate) fn add(&mut self, other: &Self) {
        self.takeovers += other.takeovers;
        self.proofs += other.proofs;
        self.handovers += other.handovers;
        self.grants += other.grants;
        self.consents += other.consents;
        self.fenced += other.fenced;
        self.unproven += other.unproven;
        self.lapses += other.lapses;
        self.went_back += other.went_back;
    }
}

struct Gate {
    term: Term,
    until: BootInstant,
    ceiling: Token,
    last: Token,
}

struct Process {
    watchdog: Watchdog,
    monitor: Monitor,
    incarnation: Incarnation,
    gate: Option<Gate>,
    stream_from: Option<Incarnation>,
    has_snapshot: bool,
    /// The life whose snapshot it had last.
    followed: Option<Incarnation>,
    replies: BTreeMap<ReplyId, (Incarnation, OpId)>,
    /// A candidate asked while the gate was open.
    asked_to_give_way: bool,
    next_reply: u64,
    wakes_at: Option<u64>,
}

struct Host {
    rate_ppm: u64,
    offset_us: u64,
    disk: NodeState,
    process: Option<Process>,
    frozen_until: u64,
    table_stuck: Option<(u64, u64)>,
    /// Nothing leaves for the peer until then.
    peer_cut_until: u64,
    /// The witness does not hear this node until then.
    witness_cut_until: u64,
    /// This node does not hear the witness until then.
    witness_mute_until: u64,
    events: (u64, u64),
}

impl Host {
    fn boot(&self, now: u64) -> BootInstant {
        let local = self.offset_us + (u128::from(now) * u128::from(self.rate_ppm) / 1_000_000) as u64;
        BootInstant::from_nanos(local * 1_000)
    }

    fn true_time(&self, at: BootInstant) -> u64 {
        let local = (at.as_nanos() / 1_000).saturating_sub(self.offset_us);
        (u128::from(local) * 1_000_000 / u128::from(self.rate_ppm)) as u64 + 2
    }
}

#[derive(Clone, Debug)]
enum Event {
    Wake(u64),
    ReadAtWitness(Incarnation, OpId),
    SwapAtWitness(Incarnation, OpId, Option<Record>, Record),
    Reading(OpId, Option<Option<Record>>),
    Swapped(OpId, Option<Record>, Record, SwapOutcome),
    Persisted(OpId, NodeState, bool),
    TableReport(OpId),
    Promise(OpId, Incarnation, PromiseRequest),
    PromiseAnswered(OpId, Option<PromiseAnswer>),
    ProbeArrives(OpId),
    Probed(OpId, bool),
    AskStatus,
    StatusAt(BootInstant, Incarnation),
    /// The peer, in this life, asks to be told that nothing of this term goes on.
    StopAt(OpId, Term, Incarnation),
    Stopped(OpId, bool),
    /// The fence command has its turn.
    StopByCommand(OpId),
    GateIsShut,
    Status(PeerStatus, BootInstant),
    StreamTick,
    StreamEnded,
    FenceArrives(Term),
    HandoverTold(Record),
    Grant,
    Handover,
    Crash,
    Restart,
    Freeze(u64),
    TableSticks,
    CutPeer(u64),
    CutWitness(u64),
    MuteWitness(u64),
    WitnessGoesBack,
    Fault,
}

/// One run of one seed.
pub(crate) struct World {
    rng: Rng,
    weather: Weather,
    no_witness: Option<NoWitness>,
    without: Vec<Rule>,
    now: u64,
    hosts: BTreeMap<NodeId, Host>,
    register: Option<Record>,
    /// What the register held before, each with the time it was replaced.
    backups: VecDeque<(u64, Option<Record>)>,
    queue: BinaryHeap<Reverse<(u64, u64, NodeId)>>,
    events: BTreeMap<u64, (Option<Incarnation>, Event)>,
    next_event: u64,
    next_incarnation: u64,
    /// The lowest and the highest token of each term.
    granted: BTreeMap<Term, (Token, Token)>,
    /// The highest floor of each term that the witness has acknowledged.
    witnessed: BTreeMap<Term, Token>,
    reigned: BTreeMap<Term, Incarnation>,
    reigned_last: Option<Incarnation>,
    forgot: bool,
    /// What happened, in numbers.
    pub(crate) tally: Tally,
    /// Whether [`Monitor`] is listened to.
    pub(crate) holds_to_words: bool,
    /// Whether the story is written.
    pub(crate) tells_story: bool,
    /// What happened, in lines.
    pub(crate) story: Vec<String>,
}

type Checked = Result<(), String>;

impl World {
    pub(crate) fn new(seed: u64) -> Self {
        let mut rng = Rng::of_seed(seed);
        let weather = Weather::draw(&mut rng);
        let no_witness = match seed % 6 {
            2 => Some(Unproven::Wait),
            5 => Some(Unproven::Takeover),
            _ => None,
        };
        Self::with(rng, weather, no_witness, &[])
    }

    /// A world of watchdogs without one rule, in weather that makes it missed.
    pub(crate) fn without(rule: Rule, seed: u64) -> Self {
        let mut rng = Rng::of_seed(seed);
        let weather = Weather::against(rule, &mut rng);
        Self::with(rng, weather, weather::pair_without(rule, seed), &[rule])
    }

    fn with(mut rng: Rng, weather: Weather, unproven: Option<Unproven>, without: &[Rule]) -> Self {
        let [rate_a, rate_b] = weather.clock_rates(&mut rng);
        let mut host = |rate_ppm| Host {
            rate_ppm,
            offset_us: rng.below(1_000_000_000),
            disk: NodeState::default(),
            process: None,
            frozen_until: 0,
            table_stuck: None,
            peer_cut_until: 0,
            witness_cut_until: 0,
            witness_mute_until: 0,
            events: (0, 0),
        };
        let hosts = BTreeMap::from([(NodeId::A, host(rate_a)), (NodeId::B, host(rate_b))]);
        let old_release = Record {
            format: Record::FORMAT,
            term: Term(1),
            holder: None,
            incarnation: Incarnation(0),
            beat: 0,
            floor: Token::ZERO,
            max_lease_ms: 0,
        };
        let mut world = Self {
            rng,
            weather,
            no_witness: unproven.map(|unproven| NoWitness {
                unproven,
                reserve: RESERVE,
            }),
            without: without.to_vec(),
            now: 0,
            hosts,
            register: None,
            backups: VecDeque::from([(0, Some(old_release))]),
            queue: BinaryHeap::new(),
            events: BTreeMap::new(),
            next_event: 0,
            next_incarnation: 0,
            granted: BTreeMap::new(),
            witnessed: BTreeMap::new(),
            reigned: BTreeMap::new(),
            reigned_last: None,
            forgot: false,
            tally: Tally::default(),
            holds_to_words: true,
            tells_story: false,
            story: Vec::new(),
        };
        for node in [NodeId::A, NodeId::B] {
            world.push(0, node, None, Event::Restart);
            world.push(TTL_US, node, None, Event::Grant);
        }
        world.push(FAULTS_START_US, NodeId::A, None, Event::Fault);
        world
    }

    pub(crate) fn run(&mut self) -> Checked {
        let weather = self.weather;
        let no_witness = self.no_witness;
        self.tell(NodeId::A, || format!("{no_witness:?} {weather:?}"));
        let mut settled = None;
        while let Some(Reverse((at, seq, node))) = self.queue.pop() {
            let (life, event) = self.events.remove(&seq).expect("queued once");
            if at > END_US {
                break;
            }
            self.now = at;
            if at > SETTLED_US && settled.is_none() {
                settled = Some(self.tally.takeovers);
            }
            let frozen_until = self.hosts[&node].frozen_until;
            if life.is_some() && frozen_until > at {
                self.push(frozen_until, node, life, event);
                continue;
            }
            self.handle(node, life, event)
                .map_err(|failure| format!("{node} at {at} us: {failure}"))?;
        }
        if self.weather.beyond == Beyond::ClocksRunWild {
            return Ok(());
        }
        let active = self.active_nodes();
        if active.len() != 1 {
            return Err(format!("{active:?} active long after the last fault"));
        }
        if settled != Some(self.tally.takeovers) {
            return Err("the active changed long after the last fault".to_owned());
        }
        Ok(())
    }

    fn handle(&mut self, node: NodeId, life: Option<Incarnation>, event: Event) -> Checked {
        if life.is_some() && life != self.incarnation(node) {
            return Ok(());
        }
        match event {
            Event::Fault => self.fault(),
            Event::Crash => self.crash(node),
            Event::Restart => self.restart(node),
            Event::Freeze(length) => self.freeze(node, length),
            Event::TableSticks => {
                let until = self.now + self.rng.between(TTL_US, 4 * TTL_US);
                self.tell(node, || format!("the table is stuck until {until}"));
                let now = self.now;
                self.host(node).table_stuck = Some((now, until));
            }
            Event::CutPeer(until) => {
                self.tell(node, || format!("cannot reach its peer until {until}"));
                self.host(node).peer_cut_until = until;
            }
            Event::CutWitness(until) => {
                self.tell(node, || format!("cannot reach the witness until {until}"));
                self.host(node).witness_cut_until = until;
            }
            Event::MuteWitness(until) => {
                self.tell(node, || format!("does not hear the witness until {until}"));
                self.host(node).witness_mute_until = until;
            }
            Event::WitnessGoesBack => self.witness_goes_back(),
            Event::Grant => {
                let next = self.now + 1 + self.rng.below(TTL_US / 10);
                self.push(next, node, None, Event::Grant);
                if self.hosts[&node].frozen_until <= self.now {
                    return self.grant(node);
                }
            }
            Event::ReadAtWitness(sender, op) => {
                let record = self.register.clone();
                self.answer_from_witness(node, sender, Event::Reading(op, Some(record)));
            }
            Event::SwapAtWitness(sender, op, expected, new) => {
                let outcome = self.swap(expected.as_ref(), new.clone());
                self.answer_from_witness(node, sender, Event::Swapped(op, expected, new, outcome));
            }
            Event::ProbeArrives(op) => {
                let lies =
                    self.weather.beyond == Beyond::RefusalsLie && self.faulty() && self.rng.percent(50);
                let reaches = self.reaches_peer(node);
                let refused = lies || reaches && self.hosts[&node.peer()].process.is_none();
                let delay = self.delay(Link::Peer);
                self.push(self.now + delay, node, life, Event::Probed(op, refused));
            }
            Event::StatusAt(sent_at, asker) => self.answer_status(node, sent_at, asker),
            Event::StopByCommand(op) => self.fence_command(node, op)?,
            event => return self.feed(node, event),
        }
        Ok(())
    }

    /// Hands an event to the watchdog of a running process and performs what comes out.
    fn feed(&mut self, node: NodeId, event: Event) -> Checked {
        let now = self.hosts[&node].boot(self.now);
        let Some(life) = self.incarnation(node) else {
            return Ok(());
        };
        self.counts_events(node)?;
        self.process(node).monitor.tell();
        match event {
            Event::AskStatus => {
                self.push(self.now + TTL_US / 3, node, Some(life), Event::AskStatus);
                self.send_to_peer(node, Event::StatusAt(now, life));
                return Ok(());
            }
            Event::StreamTick => {
                self.push(self.now + TTL_US / 6, node, Some(life), Event::StreamTick);
                self.stream_tick(node, now);
            }
            Event::Persisted(op, state, written) => {
                if written {
                    let host = self.host(node);
                    host.disk = host.disk.max(state);
                }
                self.watchdog(node).handle_persisted(op, written, now);
            }
            Event::TableReport(op) => {
                if let Some((_, until)) = self.hosts[&node].table_stuck {
                    if until > self.now {
                        self.push(until, node, Some(life), Event::TableReport(op));
                        return Ok(());
                    }
                    self.host(node).table_stuck = None;
                }
                let process = self.process(node);
                let last = process.gate.as_ref().map_or(Token::ZERO, |gate| gate.last);
                let report = TableReport {
                    last_token: last,
                    epoch: last.epoch_seconds(),
                    longest_lease_ms: 500,
                };
                process.watchdog.handle_table_report(op, report, now);
            }
            Event::Promise(op, asker, request) => {
                let process = self.process(node);
                process.monitor.hears_from(asker);
                let consents = request.candidacy.is_some() && process.gate.is_some();
                process.asked_to_give_way = consents;
                process.next_reply += 1;
                let reply = ReplyId(process.next_reply);
                process.replies.insert(reply, (asker, op));
                process.watchdog.handle_promise_request(reply, request, now);
                self.perform(node, Some(request.term))?;
                return Ok(());
            }
            Event::StreamEnded => {
                if self.process(node).stream_from.take().is_some() {
                    self.watchdog(node).handle_stream_ended(now);
                }
            }
            Event::Handover => {
                let mode = self.rng.pick(&[HandoverMode::ToPeer, HandoverMode::OrRelease]);
                if mode == HandoverMode::OrRelease {
                    // The process ends after it, whatever came of it.
                    let ends = self.now + self.rng.below(TTL_US);
                    self.push(ends, node, Some(life), Event::Crash);
                }
                let _ = self.watchdog(node).handle_handover_request(mode, now);
            }
            Event::Wake(planned) => {
                if self.process(node).wakes_at.take_if(|at| *at == planned).is_none() {
                    return Ok(());
                }
                self.watchdog(node).handle_timeout(now);
            }
            Event::Reading(op, record) => {
                let process = self.process(node);
                match &record {
                    Some(record) => process.monitor.sees_register(op, record, now),
                    None => process.monitor.sees_nothing(op),
                }
                process.watchdog.handle_reading(op, record, now);
            }
            Event::Swapped(op, expected, new, outcome) => {
                self.swapped(node, op, (expected, new), outcome, now)
            }
            Event::PromiseAnswered(op, answer) => self.watchdog(node).handle_promise_answer(op, answer, now),
            Event::Probed(op, refused) => self.watchdog(node).handle_probe(op, refused, now),
            Event::Status(status, sent_at) => {
                let process = self.process(node);
                process.monitor.hears_from(status.incarnation);
                process.watchdog.handle_peer_status(status, sent_at, now);
            }
            Event::StopAt(op, term, asker) => {
                self.watchdog(node).handle_fence(term, now);
                self.perform(node, None)?;
                let stopped = self.process(node).gate.is_none();
                if self.reaches_peer(node) && !self.lost(Link::Peer) {
                    let delay = self.delay(Link::Peer);
                    self.push(
                        self.now + delay,
                        node.peer(),
                        Some(asker),
                        Event::Stopped(op, stopped),
                    );
                }
                return Ok(());
            }
            Event::Stopped(op, stopped) => self.watchdog(node).handle_fenced(op, stopped, now),
            Event::GateIsShut => {
                let process = self.process(node);
                process.gate = None;
                process.watchdog.handle_stopped(now);
            }
            Event::FenceArrives(term) => self.watchdog(node).handle_fence(term, now),
            Event::HandoverTold(record) => self.watchdog(node).handle_handover_told(&record, now),
            Event::ReadAtWitness(..)
            | Event::SwapAtWitness(..)
            | Event::ProbeArrives(_)
            | Event::StatusAt(..)
            | Event::StopByCommand(_)
            | Event::Grant
            | Event::Crash
            | Event::Restart
            | Event::Freeze(_)
            | Event::TableSticks
            | Event::CutPeer(_)
            | Event::CutWitness(_)
            | Event::MuteWitness(_)
            | Event::WitnessGoesBack
            | Event::Fault => unreachable!("handled by the world"),
        }
        self.perform(node, None)
    }

    fn swapped(
        &mut self,
        node: NodeId,
        op: OpId,
        (expected, new): (Option<Record>, Record),
        outcome: SwapOutcome,
        now: BootInstant,
    ) {
        let process = self.process(node);
        match &outcome {
            SwapOutcome::Won => process.monitor.sees_register(op, &Some(new), now),
            SwapOutcome::Lost { current } if *current != expected => {
                process.monitor.sees_register(op, current, now);
            }
            SwapOutcome::Lost { .. } | SwapOutcome::Failed | SwapOutcome::Unknown => {
                process.monitor.sees_nothing(op)
            }
        }
        process.watchdog.handle_swap(op, outcome, now);
    }

    // ---- plumbing

    fn push(&mut self, at: u64, node: NodeId, life: Option<Incarnation>, event: Event) {
        let seq = self.next_event;
        self.next_event += 1;
        self.events.insert(seq, (life, event));
        self.queue.push(Reverse((at, seq, node)));
    }

    fn incarnation(&self, node: NodeId) -> Option<Incarnation> {
        let process = self.hosts[&node].process.as_ref();
        process.map(|process| process.incarnation)
    }

    fn host(&mut self, node: NodeId) -> &mut Host {
        self.hosts.get_mut(&node).expect("a host")
    }

    fn process(&mut self, node: NodeId) -> &mut Process {
        self.host(node).process.as_mut().expect("a running process")
    }

    fn watchdog(&mut self, node: NodeId) -> &mut Watchdog {
        &mut self.process(node).watchdog
    }

    fn tell(&mut self, node: NodeId, what: impl FnOnce() -> String) {
        if self.tells_story {
            self.story.push(format!("{:>9} us {node}: {}", self.now, what()));
        }
    }
}
