//! The clients: workers that claim a lock, write to the resource that it guards, and let it go, again and again.

use std::io;

use monolock_client_core::backoff::Backoff;
use monolock_client_core::session::{Action, Lost, Session};
use monolock_failover_core::{Incarnation, NodeId};
use monolock_protocol::{BootInstant, ErrorCode, Lease, Token};

use super::server::{SHORTEST_WAIT_US, ServerEnd};
use super::services::Write;
use super::{Conn, Event, Owner, Segment, World};
use crate::clock::Clock;
use crate::laws::{Checked, Law};
use crate::mutation::{Mutation, Slip};
use crate::network::{Host, Link, Pipe};
use crate::plan::{FAULTS_END_US, TTL_US};

const WORKERS: usize = 2;
const DIAL_TIMEOUT_US: u64 = TTL_US;
/// The time to live of the service name.
const NAME_TTL_US: u64 = TTL_US;

/// A machine with a program that has several workers.
pub(super) struct Client {
    pub(super) clock: Clock,
    pub(super) frozen_until: u64,
    pub(super) runs: bool,
    pub(super) life: u64,
    pub(super) workers: Vec<Worker>,
    /// What its resolver has, and until when.
    resolved: Option<(NodeId, u64)>,
}

/// One claim after another on one lock.
pub(super) struct Worker {
    pub(super) lock: usize,
    /// Knows the service name, not both addresses.
    by_name: bool,
    /// Timers of an earlier attempt are void.
    attempt: u64,
    standing: Standing,
    /// Addresses not yet tried in this round.
    untried: Vec<NodeId>,
    backoff: Backoff,
    last_good: Option<NodeId>,
    pub(super) last_granted: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Idle,
    Dialing(NodeId),
    Asked(u64),
    Queued(u64),
    Holding(u64),
}

/// The client's end of a connection.
pub(super) struct ClientEnd {
    pub(super) session: Session,
    wakes: Option<u64>,
}

/// A connection on its way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Dial {
    client: usize,
    client_life: u64,
    worker: usize,
    attempt: u64,
    node: NodeId,
}

#[derive(Debug)]
pub(super) enum ClientEvent {
    Start(usize, u64),
    Connected(Dial, u64),
    DialFailed(Dial),
    SessionWakes(u64, u64),
    ConnBroke(u64),
    Work(usize, u64),
    Release(u64),
    WorkHasStopped(u64),
    SendWrite(Write),
    SendPut(Write),
}

impl Client {
    pub(super) fn new(clock: Clock) -> Self {
        Self {
            clock,
            frozen_until: 0,
            runs: false,
            life: 0,
            workers: Vec::new(),
            resolved: None,
        }
    }
}

impl World {
    pub(super) fn start_client(&mut self, index: usize) {
        if self.clients[index].runs {
            return;
        }
        let locks = self.locks.len();
        let (seed, fresh) = (self.plan.seed as usize, self.clients[index].workers.is_empty());
        let client = &mut self.clients[index];
        client.runs = true;
        client.life += 1;
        client.resolved = None;
        if fresh {
            client.workers = (0..WORKERS)
                .map(|worker| Worker {
                    lock: (index * WORKERS + worker) % locks,
                    by_name: (seed + index + worker).is_multiple_of(2),
                    attempt: 0,
                    standing: Standing::Idle,
                    untried: Vec::new(),
                    backoff: Backoff::new(),
                    last_good: None,
                    last_granted: 0,
                })
                .collect();
        }
        for worker in 0..WORKERS {
            let at = self.now + self.workload.below(TTL_US / 2);
            self.start_again(index, worker, at);
        }
    }

    pub(super) fn crash_client(&mut self, index: usize, silently: bool) {
        if !self.clients[index].runs {
            return;
        }
        self.tally.restarts += 1;
        let now = self.now;
        let life = self.clients[index].life;
        let client = &mut self.clients[index];
        client.runs = false;
        client.frozen_until = 0;
        client.clock.resume(now);
        if silently {
            client.clock.reboot(now);
        }
        let mine = self
            .conns
            .iter()
            .filter(|(_, conn)| conn.client == index && conn.client_life == life);
        let mine: Vec<_> = mine.map(|(id, _)| *id).collect();
        for id in mine {
            let conn = self.conns.get_mut(&id).expect("listed");
            let was_open = conn.client_end.take().is_some();
            conn.safe_until = None;
            if silently {
                conn.up = Pipe::new();
            } else if was_open {
                let last = if id % 2 == 0 { Segment::Fin } else { Segment::Reset };
                self.send_up(id, last);
            }
        }
        let back = self.now + self.machines.between(TTL_US / 5, 3 * TTL_US);
        self.push(back, Owner::World, Event::Starts(Host::Client(index)));
    }

    pub(super) fn client_event(&mut self, client: usize, event: ClientEvent) -> Checked {
        match event {
            ClientEvent::Start(worker, attempt) => {
                if self.worker(client, worker).attempt == attempt {
                    self.start_round(client, worker);
                }
                Ok(())
            }
            ClientEvent::Connected(dial, id) => self.connected(dial, id),
            ClientEvent::DialFailed(dial) => {
                if self.is_dialing(dial) {
                    self.try_next(client, dial.worker);
                }
                Ok(())
            }
            ClientEvent::SessionWakes(id, planned) => {
                let end = self.client_end(id);
                let due = end.and_then(|end| end.wakes.take_if(|at| *at == planned));
                match due {
                    Some(_) => self.session_step(id, Session::handle_timeout),
                    None => Ok(()),
                }
            }
            ClientEvent::ConnBroke(id) => self.session_step(id, |session, now| {
                session.handle_closed(Some(io::ErrorKind::ConnectionReset), now);
            }),
            ClientEvent::Work(worker, id) => self.work(client, worker, id),
            ClientEvent::Release(id) => self.release(id),
            ClientEvent::WorkHasStopped(id) => {
                self.send_up(id, Segment::Fin);
                Ok(())
            }
            ClientEvent::SendWrite(write) => {
                self.write(write);
                Ok(())
            }
            ClientEvent::SendPut(write) => {
                self.send_write(write);
                Ok(())
            }
        }
    }

    // ---- finding a server

    fn worker(&mut self, client: usize, worker: usize) -> &mut Worker {
        &mut self.clients[client].workers[worker]
    }

    fn start_again(&mut self, client: usize, index: usize, at: u64) {
        let worker = self.worker(client, index);
        worker.standing = Standing::Idle;
        worker.attempt += 1;
        let attempt = worker.attempt;
        self.push_client(at, client, ClientEvent::Start(index, attempt));
    }

    fn start_round(&mut self, client: usize, index: usize) {
        let mut addresses = if self.worker(client, index).by_name {
            self.resolve(client).into_iter().collect()
        } else {
            vec![NodeId::A, NodeId::B]
        };
        let last_good = self.worker(client, index).last_good;
        addresses.sort_by_key(|address| Some(*address) != last_good);
        addresses.reverse();
        self.worker(client, index).untried = addresses;
        self.try_next(client, index);
    }

    /// Resolvers cache for the time to live; some do not ask again for longer.
    fn resolve(&mut self, client: usize) -> Option<NodeId> {
        let stale = self.names.stale_until > self.now;
        match self.clients[client].resolved {
            Some((address, until)) if stale || self.now < until => Some(address),
            _ => {
                let address = self.names.address()?;
                self.clients[client].resolved = Some((address, self.now + NAME_TTL_US));
                Some(address)
            }
        }
    }

    fn try_next(&mut self, client: usize, index: usize) {
        let client_life = self.clients[client].life;
        let worker = self.worker(client, index);
        worker.attempt += 1;
        let attempt = worker.attempt;
        let Some(node) = worker.untried.pop() else {
            return self.back_off(client, index);
        };
        worker.standing = Standing::Dialing(node);
        let dial = Dial {
            client,
            client_life,
            worker: index,
            attempt,
            node,
        };
        self.push_client(self.now + DIAL_TIMEOUT_US, client, ClientEvent::DialFailed(dial));
        if self.reaches(Host::Client(client), Host::Node(node), Link::Client) {
            let at = self.now + self.delay(Link::Client);
            self.push(at, Owner::World, Event::Connects(dial));
        }
    }

    fn back_off(&mut self, client: usize, worker: usize) {
        let random = self.workload.fraction();
        let wait = self.worker(client, worker).backoff.next(random);
        let at = self.now + wait.as_micros() as u64;
        self.start_again(client, worker, at);
    }

    /// The machine that the connection goes to accepts it, refuses it, or is silent.
    pub(super) fn connects(&mut self, dial: Dial) {
        let (here, there) = (Host::Node(dial.node), Host::Client(dial.client));
        if !self.nodes[&dial.node].powered || !self.reaches(here, there, Link::Client) {
            return;
        }
        let at = self.now + self.delay(Link::Client);
        let owner = Owner::Client(dial.client, dial.client_life);
        let event = match self.life(dial.node) {
            None => ClientEvent::DialFailed(dial),
            Some(life) => ClientEvent::Connected(dial, self.accept(dial, life)),
        };
        self.push(at, owner, Event::Client(event));
    }

    fn accept(&mut self, dial: Dial, node_life: Incarnation) -> u64 {
        let id = self.next_id();
        self.tally.connections += 1;
        let lock = self.worker(dial.client, dial.worker).lock;
        let conn = Conn {
            client: dial.client,
            client_life: dial.client_life,
            worker: dial.worker,
            node: dial.node,
            node_life,
            lock,
            up: Pipe::new(),
            down: Pipe::new(),
            client_end: None,
            server_end: Some(ServerEnd::default()),
            lease: None,
            granted: None,
            safe_until: None,
            excused: false,
        };
        self.conns.insert(id, conn);
        id
    }

    fn is_dialing(&mut self, dial: Dial) -> bool {
        let worker = self.worker(dial.client, dial.worker);
        worker.attempt == dial.attempt && worker.standing == Standing::Dialing(dial.node)
    }

    fn connected(&mut self, dial: Dial, id: u64) -> Checked {
        if !self.is_dialing(dial) {
            self.send_up(id, Segment::Reset);
            return Ok(());
        }
        let lease = self.draw_lease();
        let now = self.clients[dial.client].clock.boot(self.now);
        let worker = self.worker(dial.client, dial.worker);
        worker.standing = Standing::Asked(id);
        let lock = self.locks[self.clients[dial.client].workers[dial.worker].lock].clone();
        let session = Session::new(&lock, lease, now);
        let session = match self.mutation {
            Some(Mutation::Client(rule)) => session.without_rule(rule),
            _ => session,
        };
        let Some(conn) = self.conns.get_mut(&id) else {
            self.try_next(dial.client, dial.worker);
            return Ok(());
        };
        conn.lease = Some(lease);
        conn.client_end = Some(ClientEnd { session, wakes: None });
        self.session_acts(id)
    }

    fn draw_lease(&mut self) -> Lease {
        let usual = self.workload.pick(&[400, 800, 800, 1_500, 2_000]);
        let long = self.is_faulty() && self.workload.percent(self.plan.weather.long_leases_percent);
        let millis = if long { 5_000 } else { usual };
        Lease::from_millis(millis).expect("positive")
    }

    // ---- a session

    fn client_end(&mut self, id: u64) -> Option<&mut ClientEnd> {
        self.conns.get_mut(&id)?.client_end.as_mut()
    }

    fn session_step(&mut self, id: u64, step: impl FnOnce(&mut Session, BootInstant)) -> Checked {
        let Some(conn) = self.conns.get_mut(&id) else {
            return Ok(());
        };
        let now = self.clients[conn.client].clock.boot(self.now);
        let Some(end) = &mut conn.client_end else {
            return Ok(());
        };
        step(&mut end.session, now);
        self.session_acts(id)
    }

    fn session_acts(&mut self, id: u64) -> Checked {
        let (client, worker) = (self.conns[&id].client, self.conns[&id].worker);
        while let Some(action) = self.client_end(id).and_then(|end| end.session.poll_action()) {
            match action {
                Action::Send(bytes) => self.send_up(id, Segment::Bytes(bytes)),
                Action::Queued => {
                    let node = self.conns[&id].node;
                    let worker = self.worker(client, worker);
                    worker.standing = Standing::Queued(id);
                    worker.last_good = Some(node);
                }
                Action::Granted(token) => self.begins(client, worker, id, token)?,
                Action::Ended(lost) => self.ends_session(client, worker, id, lost)?,
            }
        }
        self.plan_session_wake(id);
        Ok(())
    }

    fn plan_session_wake(&mut self, id: u64) {
        let now = self.now;
        let Some(conn) = self.conns.get_mut(&id) else {
            return;
        };
        let client = conn.client;
        let Some(end) = &mut conn.client_end else { return };
        let Some(at) = end.session.poll_timeout() else {
            return;
        };
        let at = self.clients[client]
            .clock
            .true_time(at, now)
            .max(now + SHORTEST_WAIT_US);
        if end.wakes.is_none_or(|planned| at < planned) {
            end.wakes = Some(at);
            self.push_client(at, client, ClientEvent::SessionWakes(id, at));
        }
    }

    fn begins(&mut self, client: usize, index: usize, id: u64, token: Token) -> Checked {
        let (node, granted) = (self.conns[&id].node, self.conns[&id].granted);
        if granted.map(|(_, token)| token) != Some(token) {
            return Err((
                Law::Protocol,
                format!("session {id} holds under {token}, and was granted {granted:?}"),
            ));
        }
        self.tell(Host::Client(client), || {
            format!("holds by session {id}, token {token}")
        });
        let now = self.now;
        let worker = self.worker(client, index);
        worker.standing = Standing::Holding(id);
        worker.last_good = Some(node);
        worker.last_granted = now;
        worker.backoff = Backoff::new();
        let longest = if now < FAULTS_END_US { 1_500_000 } else { 300_000 };
        let held = 30_000 + self.workload.below(longest);
        self.push_client(now + held, client, ClientEvent::Release(id));
        self.push_client(now + 1, client, ClientEvent::Work(index, id));
        Ok(())
    }

    fn ends_session(&mut self, client: usize, index: usize, id: u64, lost: Lost) -> Checked {
        if let Lost::ProtocolViolation(violation) = lost {
            return Err((Law::Protocol, format!("session {id}: {violation}")));
        }
        let standing = self.worker(client, index).standing;
        let by_silence = matches!(lost, Lost::HeartbeatTimeout { .. } | Lost::Suspended { .. });
        if by_silence && standing == Standing::Holding(id) {
            self.stops_work(client, id);
        } else {
            self.conns.get_mut(&id).expect("it acts").client_end = None;
            if !matches!(lost, Lost::Closed(Some(_))) {
                self.send_up(id, Segment::Fin);
            }
        }
        match standing {
            Standing::Holding(of) if of == id => {
                if lost == Lost::Released {
                    self.tally.releases += 1;
                } else {
                    self.tally.losses += 1;
                    self.tell(Host::Client(client), || format!("loses session {id}: {lost}"));
                }
                let pause = self.workload.below(TTL_US / 5);
                self.start_again(client, index, self.now + pause);
            }
            Standing::Asked(of) if of == id => self.try_next(client, index),
            Standing::Queued(of) if of == id => self.lost_its_place(client, index, &lost),
            Standing::Idle
            | Standing::Dialing(_)
            | Standing::Asked(_)
            | Standing::Queued(_)
            | Standing::Holding(_) => {}
        }
        Ok(())
    }

    /// Closing the connection would release the lock: that waits for as long as the work may take to stop.
    fn stops_work(&mut self, client: usize, id: u64) {
        let conn = self.conns.get_mut(&id).expect("it acts");
        let Some(end) = conn.client_end.take() else { return };
        let until = end.session.safe_until();
        conn.safe_until = Some(until);
        let at = if self.slips(Slip::ClosesBeforeWorkHasStopped) {
            self.now
        } else {
            self.clients[client]
                .clock
                .true_time(until, self.now)
                .max(self.now)
        };
        self.push_client(at, client, ClientEvent::WorkHasStopped(id));
    }

    fn lost_its_place(&mut self, client: usize, index: usize, lost: &Lost) {
        self.worker(client, index).backoff = Backoff::new();
        match lost {
            Lost::Server {
                code: ErrorCode::NotActive,
                ..
            } => self.try_next(client, index),
            Lost::Server {
                code: ErrorCode::ShuttingDown,
                ..
            } => {
                let wait = Backoff::at_once(self.workload.fraction());
                let at = self.now + wait.as_micros() as u64;
                self.start_again(client, index, at);
            }
            _ => self.back_off(client, index),
        }
    }

    pub(super) fn arrives_at_client(&mut self, id: u64, segment: Segment) -> Checked {
        let conn = &self.conns[&id];
        if conn.client_end.is_none() {
            // A machine that has started anew knows no such connection.
            if conn.client_life != self.clients[conn.client].life && conn.server_end.is_some() {
                self.send_up(id, Segment::Reset);
            }
            return Ok(());
        }
        match segment {
            Segment::Bytes(bytes) => {
                self.session_step(id, |session, now| session.handle_received(&bytes, now))
            }
            Segment::Fin => self.session_step(id, |session, now| session.handle_closed(None, now)),
            Segment::Reset => self.session_step(id, |session, now| {
                session.handle_closed(Some(io::ErrorKind::ConnectionReset), now);
            }),
        }
    }

    // ---- the work

    /// Asks for its token and writes with it; between the two it may be suspended.
    fn work(&mut self, client: usize, index: usize, id: u64) -> Checked {
        let resource = self.worker(client, index).lock;
        if self.worker(client, index).standing != Standing::Holding(id) {
            return Ok(());
        }
        let now = self.clients[client].clock.boot(self.now);
        let Some(Ok(Some(token))) = self.client_end(id).map(|end| end.session.grant(now)) else {
            return self.session_acts(id);
        };
        let late = self.is_faulty() && self.workload.percent(self.plan.weather.late_writes_percent);
        let pause = self.workload.below(if late { 4 * TTL_US } else { 5_000 });
        let write = Write {
            client,
            resource,
            token,
            expected: None,
            body: 1,
        };
        self.push_client(self.now + pause, client, ClientEvent::SendWrite(write));
        let next = self.now + self.workload.between(20_000, 300_000);
        self.push_client(next, client, ClientEvent::Work(index, id));
        Ok(())
    }

    /// An object is read first, and written under the condition that it is still what was read.
    fn write(&mut self, write: Write) {
        match self.resources[write.resource].read() {
            None => self.send_write(write),
            Some((seen, _)) if write.token < seen => self.stale(write),
            Some((_, etag)) => {
                let late = self.is_faulty() && self.workload.percent(self.plan.weather.late_writes_percent);
                let pause = self.workload.below(if late { 2 * TTL_US } else { 5_000 });
                let put = Write {
                    expected: Some(etag),
                    ..write
                };
                self.push_client(self.now + pause, write.client, ClientEvent::SendPut(put));
            }
        }
    }

    fn release(&mut self, id: u64) -> Checked {
        self.session_step(id, Session::release)
    }
}
