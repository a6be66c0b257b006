//! The world: machines, processes, connections, and one event after another.

mod checks;
mod client;
mod faults;
mod node;
mod peer;
mod server;
mod services;
mod time;
mod transport;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use monolock_core::{ClaimId, LockTable};
use monolock_failover_core::clock::ClockCheck;
use monolock_failover_core::{
    Incarnation, NodeId, NodeState, OpId, Record, ReplyId, SwapOutcome, Term, Timing, Watchdog,
};
use monolock_protocol::{BootInstant, Lease, LockName, Token, WallTime};

use crate::clock::Clock;
use crate::laws::{Breach, Checked, Law, Records};
use crate::mutation::{Mutation, Slip};
use crate::network::{Host, Pipe};
use crate::plan::{END_US, Fault, Plan, SETTLED_US, TTL_US};
use crate::random::Rng;
use crate::resource::Resource;
use crate::tally::Tally;
use crate::timeline::Timeline;
use client::{Client, ClientEnd, ClientEvent, Dial};
use peer::{Answer, Call, Feed, Follower, Then};
use server::ServerEnd;
use services::{Names, Write};

pub(crate) fn timing() -> Timing {
    Timing::new(Duration::from_micros(TTL_US)).expect("long enough")
}

/// Whose event it is: one of a process dies with the process, and waits while its machine is suspended.
#[derive(Clone, Copy, Debug)]
enum Owner {
    World,
    Node(NodeId, Incarnation),
    Client(usize, u64),
}

/// One direction of one connection.
#[derive(Clone, Copy, Debug)]
enum PipeId {
    /// From the client.
    Up(u64),
    /// To the client.
    Down(u64),
    /// A follow stream.
    Feed(u64),
}

#[derive(Debug)]
enum Event {
    Strike(Fault),
    Thaw(Host),
    Starts(Host),
    Spends(u64),
    Deliver(PipeId),
    /// A request arrives at the witness; without an expectation it is a reading.
    AskedWitness(NodeId, Incarnation, OpId, Option<(Option<Record>, Record)>),
    Probed(NodeId, Incarnation, OpId),
    Connects(Dial),
    NamePublished(Term, NodeId),
    Written(Write),
    Node(NodeEvent),
    Client(ClientEvent),
}

#[derive(Debug)]
enum NodeEvent {
    WatchdogWakes(u64),
    TableWakes(u64),
    Reading(OpId, Option<Option<Record>>),
    Swapped(OpId, SwapOutcome),
    Persisted(OpId, NodeState, bool),
    TableReports(OpId),
    ProbeAnswered(OpId, bool),
    Called(Incarnation, Call),
    Answered(Answer),
    PromiseGivenUp(OpId),
    AskStatus,
    AskTime,
    TimeTold(usize, BootInstant, WallTime),
    ThenAnyway(Then),
    Follow,
    Beat,
    FlushOver(u64),
    CallAgain(Call),
    Synced(NodeState),
    Publish,
    SessionBroke(u64),
    Exit,
    Killed,
}

/// A machine of a node, and what runs on it.
struct NodeHost {
    clock: Clock,
    disk: NodeState,
    frozen_until: u64,
    powered: bool,
    process: Option<Process>,
    wakes_in_period: (u64, u64),
}

/// One life of a node.
struct Process {
    life: Incarnation,
    watchdog: Watchdog,
    table: LockTable,
    clock_check: ClockCheck,
    /// What the watchdog has told the gate.
    gate: Option<(Term, BootInstant)>,
    sessions: BTreeMap<ClaimId, u64>,
    replies: BTreeMap<ReplyId, (Incarnation, OpId)>,
    next_reply: u64,
    feed: Option<u64>,
    follower: Follower,
    flushing: Option<u64>,
    /// The term whose gate was last shut for a handover.
    handing_over: Term,
    next_mark: u64,
    then: Option<Then>,
    stopping: bool,
    /// How long it stays away after it has stopped.
    away_for: u64,
    name: Option<(Term, NodeId)>,
    publishing: bool,
    watchdog_wakes: Option<u64>,
    table_wakes: Option<u64>,
}

/// A connection between a client and a node.
struct Conn {
    client: usize,
    client_life: u64,
    worker: usize,
    node: NodeId,
    node_life: Incarnation,
    lock: usize,
    up: Pipe<Segment>,
    down: Pipe<Segment>,
    client_end: Option<ClientEnd>,
    server_end: Option<ServerEnd>,
    lease: Option<Lease>,
    granted: Option<(Term, Token)>,
    /// Its client has lost it to silence, and was told that nobody else holds the lock before then.
    safe_until: Option<BootInstant>,
    /// Its holder is not promised anything any more.
    excused: bool,
}

#[derive(Clone, Debug)]
enum Segment {
    Bytes(Vec<u8>),
    Fin,
    Reset,
}

/// One run of one plan.
pub(crate) struct World {
    plan: Plan,
    mutation: Option<Mutation>,
    now: u64,
    queue: BTreeMap<(u64, u64), (Owner, Event)>,
    next_event: u64,
    next_incarnation: u64,
    next_id: u64,
    network: Rng,
    machines: Rng,
    workload: Rng,
    nodes: BTreeMap<NodeId, NodeHost>,
    clients: Vec<Client>,
    conns: BTreeMap<u64, Conn>,
    feeds: BTreeMap<u64, Feed>,
    locks: Vec<LockName>,
    resources: Vec<Resource>,
    cuts: BTreeMap<(Host, Host), u64>,
    register: Option<Record>,
    witness_back_at: u64,
    names: Names,
    records: Records,
    last_reign: Option<Term>,
    /// Terms of which the standby has heard the end.
    flushed: BTreeSet<Term>,
    pub(crate) tally: Tally,
    pub(crate) timeline: Timeline,
    /// A digest of all that happened.
    pub(crate) digest: u64,
}

impl World {
    pub(crate) fn new(plan: &Plan, mutation: Option<Mutation>) -> Self {
        let seed = plan.seed;
        let mut machines = Rng::stream(seed, 1);
        let mut clock = |mutated: Slip| {
            let any = machines.between(950_000, 1_050_001);
            let rate = machines.pick(&[950_000, 1_050_000, 1_000_000, any]);
            let wall_offset = machines.below(400_000) as i64 - 200_000;
            let offset = machines.below(1_000_000_000);
            Clock::new(
                rate,
                offset,
                wall_offset,
                mutation == Some(Mutation::Slip(mutated)),
            )
        };
        let host = |clock| NodeHost {
            clock,
            disk: NodeState::default(),
            frozen_until: 0,
            powered: true,
            process: None,
            wakes_in_period: (0, 0),
        };
        let nodes = [NodeId::A, NodeId::B].map(|node| (node, host(clock(Slip::NodeClockStopsWhenSuspended))));
        let mut nodes = BTreeMap::from(nodes);
        if plan.weather.first_clock_is_off {
            // The pair then begins with the other node: nobody starts a token sequence from such a clock.
            let host = nodes.get_mut(&NodeId::A).expect("both nodes have a machine");
            host.clock.step_wall(86_400_000_000);
        }
        let clients = (0..plan.weather.clients)
            .map(|_| Client::new(clock(Slip::ClientClockStopsWhenSuspended)))
            .collect();
        let locks =
            (0..plan.weather.locks).map(|lock| LockName::new(&format!("lock-{lock}")).expect("valid"));
        let etag_of_bytes_only = mutation == Some(Mutation::Slip(Slip::EtagOfBytesOnly));
        let resources = (0..plan.weather.locks).map(|lock| match (seed + lock as u64) % 2 {
            0 => Resource::MaxSeen { highest: Token::ZERO },
            _ => Resource::Object {
                token: Token::ZERO,
                body: 0,
                etag_of_bytes_only,
            },
        });
        let mut world = Self {
            plan: plan.clone(),
            mutation,
            now: 0,
            queue: BTreeMap::new(),
            next_event: 0,
            next_incarnation: 0,
            next_id: 0,
            network: Rng::stream(seed, 2),
            workload: Rng::stream(seed, 3),
            nodes,
            clients,
            conns: BTreeMap::new(),
            feeds: BTreeMap::new(),
            locks: locks.collect(),
            resources: resources.collect(),
            cuts: BTreeMap::new(),
            register: None,
            witness_back_at: 0,
            names: Names::default(),
            records: Records::default(),
            last_reign: None,
            flushed: BTreeSet::new(),
            tally: Tally::default(),
            timeline: Timeline::default(),
            digest: 0xcbf2_9ce4_8422_2325,
            machines,
        };
        for node in [NodeId::A, NodeId::B] {
            world.push(0, Owner::World, Event::Starts(Host::Node(node)));
        }
        for client in 0..plan.weather.clients {
            world.push(TTL_US, Owner::World, Event::Starts(Host::Client(client)));
        }
        for strike in &plan.strikes {
            world.push(strike.at, Owner::World, Event::Strike(strike.fault));
        }
        world
    }

    /// Plays the plan to its end, or to the first breach.
    pub(crate) fn run(&mut self) -> Result<(), Breach> {
        let mut settled = None;
        while let Some(((at, seq), (owner, event))) = self.queue.pop_first() {
            if at > END_US {
                break;
            }
            self.now = at;
            if at > SETTLED_US && settled.is_none() {
                settled = Some(self.tally.reigns);
            }
            if let Some(until) = self.suspended_until(owner) {
                self.push(until, owner, event);
                continue;
            }
            if self.is_alive(owner) {
                self.tally.events += 1;
                self.note(at ^ seq.rotate_left(32));
                self.handle(owner, event).map_err(|breach| self.breach(breach))?;
            }
        }
        self.now = END_US;
        self.check_liveness(settled).map_err(|breach| self.breach(breach))
    }

    pub(crate) fn now(&self) -> u64 {
        self.now
    }

    fn breach(&self, (law, what): (Law, String)) -> Breach {
        Breach {
            law,
            at: self.now,
            what,
        }
    }

    fn handle(&mut self, owner: Owner, event: Event) -> Checked {
        match (event, owner) {
            (Event::Strike(fault), _) => self.strike(fault),
            (Event::Thaw(host), _) => {
                self.thaw(host);
                Ok(())
            }
            (Event::Starts(Host::Node(node)), _) => self.start_node(node),
            (Event::Starts(Host::Client(client)), _) => {
                self.start_client(client);
                Ok(())
            }
            (Event::Spends(until), _) => self.spend(until),
            (Event::Deliver(pipe), _) => self.deliver(pipe),
            (Event::AskedWitness(node, life, op, swap), _) => {
                self.ask_register(node, life, op, swap);
                Ok(())
            }
            (Event::Probed(node, life, op), _) => {
                self.answer_probe(node, life, op);
                Ok(())
            }
            (Event::Connects(dial), _) => {
                self.connects(dial);
                Ok(())
            }
            (Event::NamePublished(term, node), _) => {
                self.names.publish(term, node);
                Ok(())
            }
            (Event::Written(write), _) => self.written(write),
            (Event::Node(event), Owner::Node(node, _)) => self.node_event(node, event),
            (Event::Client(event), Owner::Client(client, _)) => self.client_event(client, event),
            (event, owner) => unreachable!("{event:?} belongs to nobody like {owner:?}"),
        }
    }

    // ---- plumbing

    fn push(&mut self, at: u64, owner: Owner, event: Event) {
        self.next_event += 1;
        self.queue.insert((at, self.next_event), (owner, event));
    }

    /// Plans something for the process that runs on this node now.
    fn push_node(&mut self, at: u64, node: NodeId, event: NodeEvent) {
        if let Some(life) = self.life(node) {
            self.push(at, Owner::Node(node, life), Event::Node(event));
        }
    }

    fn push_client(&mut self, at: u64, client: usize, event: ClientEvent) {
        let life = self.clients[client].life;
        self.push(at, Owner::Client(client, life), Event::Client(event));
    }

    fn is_alive(&self, owner: Owner) -> bool {
        match owner {
            Owner::World => true,
            Owner::Node(node, life) => self.life(node) == Some(life),
            Owner::Client(client, life) => self.clients[client].runs && self.clients[client].life == life,
        }
    }

    fn suspended_until(&self, owner: Owner) -> Option<u64> {
        let until = match owner {
            Owner::World => 0,
            Owner::Node(node, _) => self.nodes[&node].frozen_until,
            Owner::Client(client, _) => self.clients[client].frozen_until,
        };
        (until > self.now && self.is_alive(owner)).then_some(until)
    }

    fn next_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    fn life(&self, node: NodeId) -> Option<Incarnation> {
        self.nodes[&node].process.as_ref().map(|process| process.life)
    }

    fn host(&mut self, node: NodeId) -> &mut NodeHost {
        self.nodes.get_mut(&node).expect("both nodes have a machine")
    }

    fn process(&mut self, node: NodeId) -> &mut Process {
        self.host(node).process.as_mut().expect("a running process")
    }

    fn boot(&self, node: NodeId) -> BootInstant {
        self.nodes[&node].clock.boot(self.now)
    }

    fn note(&mut self, what: u64) {
        self.digest = (self.digest ^ what).wrapping_mul(0x0000_0100_0000_01b3);
    }

    fn slips(&self, slip: Slip) -> bool {
        self.mutation == Some(Mutation::Slip(slip))
    }

    fn tell(&mut self, who: Host, what: impl FnOnce() -> String) {
        self.timeline.tell(self.now, who, what);
    }
}

impl std::fmt::Debug for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("World")
            .field("now", &self.now)
            .finish_non_exhaustive()
    }
}
