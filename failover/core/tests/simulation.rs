//! Two watchdogs, a witness and a bad network, simulated from a seed in one thread.
//!
//! Clocks run at their own rates within 5 %, messages are lost, delayed beyond every time-out and reordered, processes
//! crash, restart and freeze, disks fail to write. Checked at every step: no two nodes hold authority; every token of a
//! later term is larger than every token of an earlier one; and after the last fault somebody serves again.
//!
//! `MONOLOCK_SEED=n` replays one seed; `MONOLOCK_SEEDS=n` runs the first n.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::time::Duration;

use monolock_failover_core::{
    Action, Config, HandoverMode, Incarnation, NodeId, NodeState, PeerStatus, PromiseAnswer, PromiseRequest,
    Record, ReplyId, RoleName, SwapOutcome, TableReport, Timing, Watchdog,
};
use monolock_failover_core::{OpId, Term};
use monolock_protocol::{BootInstant, Token};

const TTL_US: u64 = 1_000_000;
const FAULTS_END_US: u64 = 60 * TTL_US;
const END_US: u64 = FAULTS_END_US + 20 * TTL_US;

#[test]
fn no_two_authorities_no_token_out_of_order_and_service_comes_back() {
    let seeds: Vec<u64> = match (env("MONOLOCK_SEED"), env("MONOLOCK_SEEDS")) {
        (Some(seed), _) => vec![seed],
        (None, count) => (0..count.unwrap_or(300)).collect(),
    };
    let mut total = Tally::default();
    for seed in seeds {
        let mut world = World::new(seed, false);
        if let Err(failure) = world.run() {
            let story = story_of(seed);
            let story = story[story.len().saturating_sub(120)..].join("\n");
            panic!("{story}\nseed {seed}: {failure}\nreplay with MONOLOCK_SEED={seed}");
        }
        total.add(&world.tally);
    }
    println!("{total:?}");
    assert!(
        total.takeovers > 0 && total.grants > 0 && total.handovers > 0,
        "the simulation did nothing: {total:?}"
    );
}

#[test]
fn a_seed_determines_the_story() {
    assert!(story_of(7).len() > 500, "seed 7 tells something");
    assert_eq!(story_of(7), story_of(7));
}

fn story_of(seed: u64) -> Vec<String> {
    let mut world = World::new(seed, true);
    let _ = world.run();
    world.story
}

fn env(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    takeovers: u64,
    crash_proofs: u64,
    handovers: u64,
    grants: u64,
    lapses: u64,
}

impl Tally {
    fn add(&mut self, other: &Self) {
        self.takeovers += other.takeovers;
        self.crash_proofs += other.crash_proofs;
        self.handovers += other.handovers;
        self.grants += other.grants;
        self.lapses += other.lapses;
    }
}

struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn percent(&mut self, chance: u64) -> bool {
        self.below(100) < chance
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
    incarnation: Incarnation,
    gate: Option<Gate>,
    stream_from: Option<Incarnation>,
    replies: BTreeMap<ReplyId, (Incarnation, OpId)>,
    next_reply: u64,
    wakes_at: Option<u64>,
}

struct Host {
    rate_ppm: u64,
    offset_us: u64,
    disk: NodeState,
    process: Option<Process>,
    frozen_until: u64,
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
    Wake,
    ReadAtWitness(Incarnation, OpId),
    SwapAtWitness(Incarnation, OpId, Option<Record>, Record),
    Reading(OpId, Option<Option<Record>>),
    Swapped(OpId, SwapOutcome),
    Persisted(OpId, NodeState, bool),
    TableReport(OpId),
    Promise(OpId, Incarnation, PromiseRequest),
    PromiseAnswered(OpId, Option<PromiseAnswer>),
    ProbeArrives(OpId),
    Probed(OpId, bool),
    AskStatus,
    StatusAt(BootInstant, Incarnation),
    Status(PeerStatus, BootInstant),
    StreamTick,
    StreamEnded,
    FenceArrives(Term),
    HandoverTold(Record),
    Grant,
    Handover,
    Crash,
    Restart,
    Freeze,
}

/// How bad a seed's network is.
#[derive(Clone, Copy)]
struct Weather {
    late_percent: u64,
    latest_us: u64,
    lost_percent: u64,
    longest_calm_us: u64,
}

struct World {
    rng: Rng,
    weather: Weather,
    now: u64,
    hosts: BTreeMap<NodeId, Host>,
    register: Option<Record>,
    queue: BinaryHeap<Reverse<(u64, u64, NodeId)>>,
    events: BTreeMap<u64, (Option<Incarnation>, Event)>,
    next_event: u64,
    next_incarnation: u64,
    partitioned_until: u64,
    witness_down_until: BTreeMap<NodeId, u64>,
    largest: BTreeMap<Term, (Token, Token)>,
    tally: Tally,
    tells_story: bool,
    story: Vec<String>,
}

type Checked = Result<(), String>;

impl World {
    fn new(seed: u64, tells_story: bool) -> Self {
        let mut rng = Rng(seed.wrapping_mul(0xd134_2543_de82_ef95));
        let mut host = || Host {
            rate_ppm: 950_000 + rng.below(100_001),
            offset_us: rng.below(1_000_000_000),
            disk: NodeState::default(),
            process: None,
            frozen_until: 0,
        };
        let hosts = BTreeMap::from([(NodeId::A, host()), (NodeId::B, host())]);
        let mut pick = |choices: [u64; 4]| choices[rng.below(4) as usize];
        let weather = Weather {
            late_percent: pick([2, 5, 20, 40]),
            latest_us: pick([TTL_US / 2, TTL_US, TTL_US, 4 * TTL_US]),
            lost_percent: pick([0, 2, 5, 20]),
            longest_calm_us: pick([TTL_US, 2 * TTL_US, 4 * TTL_US, 8 * TTL_US]),
        };
        let mut world = Self {
            rng,
            weather,
            now: 0,
            hosts,
            register: None,
            queue: BinaryHeap::new(),
            events: BTreeMap::new(),
            next_event: 0,
            next_incarnation: 0,
            partitioned_until: 0,
            witness_down_until: BTreeMap::new(),
            largest: BTreeMap::new(),
            tally: Tally::default(),
            tells_story,
            story: Vec::new(),
        };
        for node in [NodeId::A, NodeId::B] {
            world.push(0, node, None, Event::Restart);
            world.push(TTL_US, node, None, Event::Grant);
            world.schedule_fault(node);
        }
        world
    }

    fn run(&mut self) -> Checked {
        while let Some(Reverse((at, seq, node))) = self.queue.pop() {
            let (life, event) = self.events.remove(&seq).expect("queued once");
            if at > END_US {
                break;
            }
            self.now = at;
            let frozen_until = self.hosts[&node].frozen_until;
            let runs_in_process = life.is_some();
            if runs_in_process && frozen_until > at {
                self.push(frozen_until, node, life, event);
                continue;
            }
            self.handle(node, life, event)?;
        }
        let active = self.active_nodes();
        if active.len() == 1 {
            Ok(())
        } else {
            Err(format!("{active:?} active after the faults ended"))
        }
    }

    fn handle(&mut self, node: NodeId, life: Option<Incarnation>, event: Event) -> Checked {
        if life.is_some() && life != self.incarnation(node) {
            return Ok(());
        }
        match event {
            Event::Crash => self.crash(node),
            Event::Restart => self.restart(node),
            Event::Freeze => {
                let frozen_until = self.now + self.rng.below(3 * TTL_US);
                self.hosts.get_mut(&node).expect("a host").frozen_until = frozen_until;
                self.tell(node, || format!("frozen until {frozen_until}"));
                self.schedule_fault(node);
            }
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
                let outcome = if self.register == expected {
                    self.register = Some(new);
                    SwapOutcome::Won
                } else {
                    SwapOutcome::Lost {
                        current: self.register.clone(),
                    }
                };
                self.answer_from_witness(node, sender, Event::Swapped(op, outcome));
            }
            Event::ProbeArrives(op) => {
                let refused =
                    self.now >= self.partitioned_until && self.hosts[&node.peer()].process.is_none();
                let delay = self.delay();
                self.push(self.now + delay, node, life, Event::Probed(op, refused));
            }
            Event::StatusAt(sent_at, asker) => self.answer_status(node, sent_at, asker),
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
                let host = self.hosts.get_mut(&node).expect("a host");
                if written {
                    host.disk = host.disk.max(state);
                }
                self.watchdog(node).handle_persisted(op, written, now);
            }
            Event::TableReport(op) => {
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
                process.next_reply += 1;
                let reply = ReplyId(process.next_reply);
                process.replies.insert(reply, (asker, op));
                process.watchdog.handle_promise_request(reply, request, now);
            }
            Event::StreamEnded => {
                if self.process(node).stream_from.take().is_some() {
                    self.watchdog(node).handle_stream_ended(now);
                }
            }
            Event::Handover => {
                let mode = if self.rng.percent(50) {
                    HandoverMode::ToPeer
                } else {
                    HandoverMode::OrRelease
                };
                if mode == HandoverMode::OrRelease {
                    // The process ends after it, whatever came of it.
                    let ends = self.now + self.rng.below(TTL_US);
                    self.push(ends, node, None, Event::Crash);
                } else {
                    self.schedule_fault(node);
                }
                let _ = self.watchdog(node).handle_handover_request(mode, now);
            }
            Event::Wake => {
                self.process(node).wakes_at = None;
                self.watchdog(node).handle_timeout(now);
            }
            Event::Reading(op, record) => self.watchdog(node).handle_reading(op, record, now),
            Event::Swapped(op, outcome) => self.watchdog(node).handle_swap(op, outcome, now),
            Event::PromiseAnswered(op, answer) => self.watchdog(node).handle_promise_answer(op, answer, now),
            Event::Probed(op, refused) => self.watchdog(node).handle_probe(op, refused, now),
            Event::Status(status, sent_at) => self.watchdog(node).handle_peer_status(status, sent_at, now),
            Event::FenceArrives(term) => self.watchdog(node).handle_fence(term, now),
            Event::HandoverTold(record) => self.watchdog(node).handle_handover_told(&record, now),
            Event::ReadAtWitness(..)
            | Event::SwapAtWitness(..)
            | Event::ProbeArrives(_)
            | Event::StatusAt(..)
            | Event::Grant
            | Event::Crash
            | Event::Restart
            | Event::Freeze => unreachable!("handled by the world"),
        }
        self.perform(node)
    }

    fn perform(&mut self, node: NodeId) -> Checked {
        let life = self.incarnation(node);
        while let Some(action) = self.watchdog(node).poll_action() {
            self.tell(node, || format!("{action:?}"));
            match action {
                Action::ReadWitness { op } => {
                    let request = Event::ReadAtWitness(life.expect("running"), op);
                    self.ask_witness(node, request, Event::Reading(op, None));
                }
                Action::SwapWitness { op, expected, new } => {
                    let unknown = Event::Swapped(op, SwapOutcome::Unknown);
                    let request = Event::SwapAtWitness(life.expect("running"), op, expected, new);
                    self.ask_witness(node, request, unknown);
                }
                Action::AskPromise { op, request } => {
                    let asker = life.expect("running");
                    self.send_to_peer(node, Event::Promise(op, asker, request));
                    self.push(
                        self.now + TTL_US / 2,
                        node,
                        life,
                        Event::PromiseAnswered(op, None),
                    );
                }
                Action::AnswerPromise { reply, answer } => {
                    let (asker, op) = self.process(node).replies.remove(&reply).expect("answered once");
                    let delay = self.delay();
                    if !self.lost() && self.now >= self.partitioned_until {
                        let event = Event::PromiseAnswered(op, Some(answer));
                        self.push(self.now + delay, node.peer(), Some(asker), event);
                    }
                }
                Action::Persist { op, state } => {
                    let fails = self.faulty() && self.rng.percent(2);
                    let delay = 1 + self.rng.below(20_000);
                    self.push(self.now + delay, node, life, Event::Persisted(op, state, !fails));
                }
                Action::ProbeTable { op } => self.push(self.now + 1, node, life, Event::TableReport(op)),
                Action::ProbePorts { op } => {
                    let delay = self.delay();
                    self.push(self.now + delay, node, life, Event::ProbeArrives(op));
                }
                Action::OpenGate(open) => {
                    self.tally.takeovers += 1;
                    let last = Token::new(open.first_token.get().saturating_sub(1));
                    self.process(node).gate = Some(Gate {
                        term: open.term,
                        until: open.authority_until,
                        ceiling: open.ceiling,
                        last,
                    });
                    self.check_authority(node)?;
                }
                Action::RenewAuthority { term, until, ceiling } => {
                    if let Some(gate) = &mut self.process(node).gate {
                        assert_eq!(gate.term, term);
                        (gate.until, gate.ceiling) = (until, ceiling);
                    }
                    self.check_authority(node)?;
                }
                Action::ShutGate { .. } => {
                    let now = self.hosts[&node].boot(self.now);
                    let process = self.process(node);
                    if let Some(gate) = process.gate.take() {
                        process.watchdog.handle_gate_shut(gate.last, now);
                    }
                }
                Action::Fence { term } => self.send_to_peer(node, Event::FenceArrives(term)),
                Action::TellHandover { record } => {
                    self.tally.handovers += 1;
                    self.send_to_peer(node, Event::HandoverTold(record));
                }
                Action::PublishName { .. } => {}
                Action::Journal(entry) => self.count(&entry),
            }
        }
        if let Some(at) = self.watchdog(node).poll_timeout() {
            let at = self.hosts[&node].true_time(at).max(self.now + 1);
            if self.process(node).wakes_at.is_none_or(|pending| at < pending) {
                self.process(node).wakes_at = Some(at);
                self.push(at, node, life, Event::Wake);
            }
        }
        Ok(())
    }

    fn count(&mut self, entry: &monolock_failover_core::JournalEntry) {
        use monolock_failover_core::{JournalEntry, TakeoverBasis};
        match entry {
            JournalEntry::AuthorityLapsed { .. } => self.tally.lapses += 1,
            JournalEntry::BecameActive {
                basis: TakeoverBasis::Crash,
                ..
            } => self.tally.crash_proofs += 1,
            _ => {}
        }
    }

    // ---- invariants

    fn check_authority(&mut self, node: NodeId) -> Checked {
        if self.has_authority(node) && self.has_authority(node.peer()) {
            return Err(format!("both hold authority at {}", self.now));
        }
        Ok(())
    }

    fn has_authority(&self, node: NodeId) -> bool {
        let host = &self.hosts[&node];
        let gate = host.process.as_ref().and_then(|process| process.gate.as_ref());
        gate.is_some_and(|gate| host.boot(self.now) < gate.until)
    }

    fn active_nodes(&self) -> Vec<NodeId> {
        [NodeId::A, NodeId::B]
            .into_iter()
            .filter(|node| self.has_authority(*node))
            .collect()
    }

    fn grant(&mut self, node: NodeId) -> Checked {
        if !self.has_authority(node) {
            return Ok(());
        }
        let gate = self.process(node).gate.as_mut().expect("has authority");
        let token = gate.last.next();
        if token >= gate.ceiling {
            return Ok(());
        }
        gate.last = token;
        let term = gate.term;
        self.tally.grants += 1;
        let (low, high) = self.largest.entry(term).or_insert((token, token));
        (*low, *high) = ((*low).min(token), (*high).max(token));
        for (other, (low, high)) in &self.largest {
            if (*other < term && *high >= token) || (*other > term && *low <= token) {
                return Err(format!(
                    "token {token} of term {term} against {low}..={high} of term {other}"
                ));
            }
        }
        Ok(())
    }

    // ---- faults

    fn faulty(&self) -> bool {
        self.now < FAULTS_END_US
    }

    fn schedule_fault(&mut self, node: NodeId) {
        let at = self.now + TTL_US / 2 + self.rng.below(self.weather.longest_calm_us);
        if at >= FAULTS_END_US {
            return;
        }
        match self.rng.below(12) {
            0..=2 => self.push(at, node, None, Event::Crash),
            3..=5 => self.push(at, node, None, Event::Freeze),
            6 => {
                self.partitioned_until = at + self.rng.below(4 * TTL_US);
                self.schedule_fault(node);
            }
            7..=9 => {
                let until = at + self.rng.below(4 * TTL_US);
                self.witness_down_until.insert(node, until);
                self.schedule_fault(node);
            }
            _ => match self.incarnation(node) {
                Some(life) => self.push(at, node, Some(life), Event::Handover),
                None => self.push(at, node, None, Event::Freeze),
            },
        }
    }

    fn crash(&mut self, node: NodeId) {
        let life = self.incarnation(node);
        self.tell(node, || "crashes".to_owned());
        let host = self.hosts.get_mut(&node).expect("a host");
        host.process = None;
        host.frozen_until = 0;
        let down = if self.rng.percent(50) {
            self.rng.below(TTL_US / 4)
        } else {
            self.rng.below(4 * TTL_US)
        };
        self.push(self.now + down, node, None, Event::Restart);
        let peer = node.peer();
        if self.now >= self.partitioned_until
            && self.hosts[&peer]
                .process
                .as_ref()
                .is_some_and(|process| process.stream_from == life)
        {
            let delay = self.delay();
            let peer_life = self.incarnation(peer);
            self.push(self.now + delay, peer, peer_life, Event::StreamEnded);
        }
        self.schedule_fault(node);
    }

    fn restart(&mut self, node: NodeId) {
        if self.hosts[&node].process.is_some() {
            return;
        }
        self.next_incarnation += 1;
        let incarnation = Incarnation(self.next_incarnation);
        self.tell(node, || format!("starts as {}", incarnation.0));
        let host = self.hosts.get_mut(&node).expect("a host");
        let boot = BootInstant::from_nanos(
            (host.offset_us + (u128::from(self.now) * u128::from(host.rate_ppm) / 1_000_000) as u64) * 1_000,
        );
        let timing = Timing::new(Duration::from_micros(TTL_US)).expect("long enough");
        let config = Config {
            node,
            incarnation,
            timing,
            fast_takeover: true,
        };
        let mut watchdog = Watchdog::new(config, host.disk, boot);
        watchdog.handle_clock(Some(1_000_000), boot);
        host.process = Some(Process {
            watchdog,
            incarnation,
            gate: None,
            stream_from: None,
            replies: BTreeMap::new(),
            next_reply: 0,
            wakes_at: None,
        });
        for event in [Event::Wake, Event::AskStatus, Event::StreamTick] {
            self.push(self.now + 1, node, Some(incarnation), event);
        }
    }

    fn stream_tick(&mut self, node: NodeId, now: BootInstant) {
        let peer = &self.hosts[&node.peer()];
        let reachable = self.now >= self.partitioned_until && peer.frozen_until <= self.now;
        let peer_life = peer.process.as_ref().map(|process| process.incarnation);
        let process = self.process(node);
        match (process.stream_from, peer_life) {
            (Some(from), Some(life)) if reachable && from == life => process.watchdog.handle_stream_beat(now),
            (None, Some(life)) if reachable => {
                process.stream_from = Some(life);
                process.watchdog.handle_stream_started(life, now);
                process.watchdog.handle_snapshot_end(None, now);
            }
            // The kernel of a host without that process resets the connection.
            (Some(from), life) if reachable && life != Some(from) => {
                process.stream_from = None;
                process.watchdog.handle_stream_ended(now);
            }
            _ => {}
        }
    }

    // ---- the network

    fn lost(&mut self) -> bool {
        self.faulty() && self.rng.percent(self.weather.lost_percent)
    }

    /// Mostly quick; while there are faults, now and then far beyond every time-out.
    fn delay(&mut self) -> u64 {
        if self.faulty() && self.rng.percent(self.weather.late_percent) {
            self.rng.below(self.weather.latest_us)
        } else {
            100 + self.rng.below(10_000)
        }
    }

    fn ask_witness(&mut self, node: NodeId, request: Event, unknown: Event) {
        let life = self.incarnation(node);
        self.push(self.now + TTL_US / 2, node, life, unknown);
        let down = self.faulty()
            && self
                .witness_down_until
                .get(&node)
                .is_some_and(|until| *until > self.now);
        if down || self.lost() {
            return;
        }
        // A request that is under way arrives even if its sender has died: it is addressed to no process.
        let delay = self.delay();
        self.push(self.now + delay, node, None, request);
    }

    fn answer_from_witness(&mut self, node: NodeId, sender: Incarnation, answer: Event) {
        if !self.lost() {
            let delay = self.delay();
            self.push(self.now + delay, node, Some(sender), answer);
        }
    }

    fn send_to_peer(&mut self, node: NodeId, event: Event) {
        if self.lost() || self.now < self.partitioned_until {
            return;
        }
        let peer = node.peer();
        let Some(life) = self.incarnation(peer) else {
            return;
        };
        let delay = self.delay();
        self.push(self.now + delay, peer, Some(life), event);
    }

    fn answer_status(&mut self, node: NodeId, sent_at: BootInstant, asker: Incarnation) {
        let now = self.hosts[&node].boot(self.now);
        let Some(process) = self.hosts[&node].process.as_ref() else {
            return;
        };
        let status = process.watchdog.status(now);
        let status = PeerStatus {
            incarnation: process.incarnation,
            active: status.role == RoleName::Active,
            ready: status.ready,
            highest_term: process.watchdog.known_state().highest_term,
            floor: status.floor,
        };
        if !self.lost() && self.now >= self.partitioned_until {
            let delay = self.delay();
            self.push(
                self.now + delay,
                node.peer(),
                Some(asker),
                Event::Status(status, sent_at),
            );
        }
    }

    // ---- plumbing

    fn push(&mut self, at: u64, node: NodeId, life: Option<Incarnation>, event: Event) {
        let seq = self.next_event;
        self.next_event += 1;
        self.events.insert(seq, (life, event));
        self.queue.push(Reverse((at, seq, node)));
    }

    fn incarnation(&self, node: NodeId) -> Option<Incarnation> {
        self.hosts[&node]
            .process
            .as_ref()
            .map(|process| process.incarnation)
    }

    fn process(&mut self, node: NodeId) -> &mut Process {
        self.hosts
            .get_mut(&node)
            .and_then(|host| host.process.as_mut())
            .expect("a running process")
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
