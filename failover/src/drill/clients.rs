//! The test clients: some that want one lock and hold it by the rules, and for each node one that asks for a free lock
//! over and over.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use monolock_clock::{boot_now, sleep_until};
use monolock_failover_core::NodeId;
use monolock_protocol::frame::ServerFrame;
use monolock_protocol::{BootInstant, ErrorClass, HeartbeatSchedule, Lease, LockName, Token};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::history::{Answer, AnswerKind, History, Violation};
use super::report::Run;
use super::session::Session;

/// What the clients are told.
#[derive(Clone, Debug)]
pub(super) struct ClientPlan {
    /// Node `a`, then node `b`.
    pub(super) servers: [SocketAddr; 2],
    /// What all lock names begin with.
    pub(super) prefix: String,
    pub(super) lease: Lease,
    /// Between two attempts at a free lock: how finely a gap is measured.
    pub(super) pause: Duration,
    /// For each client that wants the held lock, the nodes that it asks in turn.
    pub(super) holders: Vec<Vec<NodeId>>,
}

/// Running clients. Dropping them ends them, and with their connections their claims.
#[derive(Debug)]
pub(super) struct Clients {
    seen: watch::Sender<History>,
    lease: Lease,
    _tasks: JoinSet<()>,
}

impl Clients {
    /// Needs a runtime with I/O and time.
    pub(super) fn start(plan: &ClientPlan) -> Self {
        let seen = watch::Sender::new(History::default());
        let mut tasks = JoinSet::new();
        for node in [NodeId::A, NodeId::B] {
            tasks.spawn(ask_for_free_locks(node, plan.clone(), seen.clone()));
        }
        for nodes in &plan.holders {
            tasks.spawn(hold(nodes.clone(), plan.clone(), seen.clone()));
        }
        Self {
            seen,
            lease: plan.lease,
            _tasks: tasks,
        }
    }

    /// Forgets what was seen, except what must be remembered.
    pub(super) fn turn(&self) {
        self.seen.send_modify(History::turn);
    }

    /// Waits until something has been seen; `None` when `within` passes without it.
    pub(super) async fn wait<T>(&self, within: Duration, look: impl Fn(&History) -> Option<T>) -> Option<T> {
        let mut seen = self.seen.subscribe();
        let waiting = async {
            loop {
                if let Some(found) = look(&seen.borrow_and_update()) {
                    return Some(found);
                }
                seen.changed().await.ok()?;
            }
        };
        tokio::time::timeout(within, waiting).await.ok().flatten()
    }

    /// Waits until this node grants free locks, and the held lock is held.
    pub(super) async fn are_served_by(&self, node: NodeId, within: Duration) -> bool {
        let served = self.wait(within, |history| {
            let free = history.first(|answer| answer.is_free_lock_of(node));
            (free.is_some() && history.is_held()).then_some(())
        });
        served.await.is_some()
    }

    /// Waits for the first grants of the next term, of a free lock and of the held one; `is_next` tells its answers.
    pub(super) async fn measure(&self, within: Duration, is_next: impl Fn(&Answer) -> bool) -> Run {
        let first_of = |kind| {
            let is_next = &is_next;
            move |history: &History| history.first(|answer| answer.kind == kind && is_next(answer))
        };
        let Some(free) = self.wait(within, first_of(AnswerKind::FreeLock)).await else {
            return Run::with_problem(format!("nobody granted a free lock within {within:?}"));
        };
        let held = self.wait(within, first_of(AnswerKind::HeldLock)).await;
        let history = self.seen.borrow();
        let last = history.last(|answer| !is_next(answer));
        let since = |answer: &Answer| {
            answer
                .received
                .saturating_duration_since(last.unwrap_or(answer.received))
        };
        let early = held.and_then(|held| self.early_grant(&held, history.last_sign_of_a_holder(&is_next)?));
        let missing = || format!("the held lock was not granted again within {within:?}");
        Run {
            gap: Some(since(&free)),
            held: held.as_ref().map(since),
            violations: early.into_iter().collect(),
            problem: held.is_none().then(missing),
            ..Run::default()
        }
    }

    /// Whether the held lock was granted again while its last holder might still have believed.
    fn early_grant(&self, granted: &Answer, last_sign: BootInstant) -> Option<Violation> {
        let early = (last_sign + self.lease.as_duration()).saturating_duration_since(granted.received);
        (!early.is_zero()).then(|| Violation::EarlyGrant {
            token: granted.token,
            early_ms: u64::try_from(early.as_millis()).unwrap_or(u64::MAX),
        })
    }

    /// Every promise that was broken since the last [`turn`](Self::turn).
    pub(super) fn violations(&self) -> Vec<Violation> {
        self.seen.borrow().violations(boot_now())
    }
}

const fn server_of(servers: &[SocketAddr; 2], node: NodeId) -> SocketAddr {
    match node {
        NodeId::A => servers[0],
        NodeId::B => servers[1],
    }
}

/// Each attempt takes a lock of another name, which nobody can have held before a takeover.
async fn ask_for_free_locks(node: NodeId, plan: ClientPlan, seen: watch::Sender<History>) {
    let server = server_of(&plan.servers, node);
    for attempt in 0_u64.. {
        let lock = lock_name(&format!("{}/free/{node}/{attempt}", plan.prefix));
        let asking = free_lock(server, &lock, plan.lease);
        // As every client it gives up before its claim can have lapsed.
        let asked = tokio::time::timeout(plan.lease.as_duration() * 4 / 5, asking).await;
        if let Ok(Ok((asked, token))) = asked {
            let answer = Answer {
                node,
                kind: AnswerKind::FreeLock,
                token,
                asked,
                received: boot_now(),
            };
            seen.send_modify(|history| history.answered(answer));
        }
        tokio::time::sleep(plan.pause).await;
    }
}

async fn free_lock(server: SocketAddr, lock: &LockName, lease: Lease) -> io::Result<(BootInstant, Token)> {
    let mut session = Session::open(server, lock, lease).await?;
    loop {
        match session.receive().await? {
            ServerFrame::Acquired(token) => return Ok((session.asked, token)),
            ServerFrame::Waiting => {}
            ServerFrame::Error { .. } => return Err(io::ErrorKind::ConnectionAborted.into()),
        }
    }
}

/// Claims the held lock at one node after the other, and holds it as long as it is confirmed.
async fn hold(nodes: Vec<NodeId>, plan: ClientPlan, seen: watch::Sender<History>) {
    let lock = lock_name(&format!("{}/held", plan.prefix));
    for node in nodes.into_iter().cycle() {
        let opening = Session::open(server_of(&plan.servers, node), &lock, plan.lease);
        if let Ok(Ok(session)) = tokio::time::timeout(plan.lease.as_duration(), opening).await {
            Holder::new(node, session, plan.lease, &seen).run().await;
        }
        tokio::time::sleep(AFTER_A_LOSS).await;
    }
}

/// A claim on the held lock, by the rules that hold for every client.
struct Holder<'a> {
    node: NodeId,
    session: Session,
    schedule: HeartbeatSchedule,
    sent: BootInstant,
    waits: bool,
    holds: Option<Token>,
    seen: &'a watch::Sender<History>,
}

/// The claim is over.
struct Over;

impl<'a> Holder<'a> {
    fn new(node: NodeId, session: Session, lease: Lease, seen: &'a watch::Sender<History>) -> Self {
        let sent = session.asked;
        Self {
            node,
            session,
            schedule: HeartbeatSchedule::new(lease, sent),
            sent,
            waits: false,
            holds: None,
            seen,
        }
    }

    async fn run(mut self) {
        while let Ok(()) = self.step().await {}
        if let Some(token) = self.holds {
            // A client that was kept from running looks at the clock before it trusts its lock.
            let until = boot_now().min(self.schedule.give_up_at());
            self.seen
                .send_modify(|history| history.believes_no_longer(token, until));
        }
    }

    async fn step(&mut self) -> Result<(), Over> {
        let next_beat = self.schedule.next_send().unwrap_or(BootInstant::MAX);
        tokio::select! {
            frame = self.session.receive() => match frame {
                Ok(frame) => self.received(&frame, boot_now()),
                Err(_) => Err(Over),
            },
            () = sleep_until(self.schedule.give_up_at()) => Err(Over),
            () = sleep_until(next_beat) => self.beat().await,
        }
    }

    async fn beat(&mut self) -> Result<(), Over> {
        self.sent = boot_now();
        self.schedule.handle_sent(self.sent);
        self.session.beat().await.map_err(|_| Over)
    }

    fn received(&mut self, frame: &ServerFrame, now: BootInstant) -> Result<(), Over> {
        if now >= self.schedule.give_up_at() {
            return Err(Over);
        }
        match frame {
            ServerFrame::Waiting if self.holds.is_none() => {
                self.waits = true;
                self.schedule.handle_answer(now);
                Ok(())
            }
            ServerFrame::Acquired(token) => self.acquired(*token, now),
            ServerFrame::Waiting => self.breach("a holder was told that it waits".into()),
            ServerFrame::Error { code, .. } => match code.class() {
                ErrorClass::ClientError => self.breach(format!("a sound claim got error {code:?}")),
                ErrorClass::ServerCondition => Err(Over),
            },
        }
    }

    fn acquired(&mut self, token: Token, now: BootInstant) -> Result<(), Over> {
        match self.holds {
            None => {
                // The one behind WAITING is pushed, and answers nothing.
                if !std::mem::take(&mut self.waits) {
                    self.schedule.handle_answer(now);
                }
                self.holds = Some(token);
                self.answered(AnswerKind::HeldLock, token, self.session.asked, now);
                self.seen.send_modify(|history| history.believes(token, now));
                Ok(())
            }
            Some(held) if held != token => {
                self.breach(format!("a holder of token {held} was told token {token}"))
            }
            Some(_) => {
                if self.schedule.handle_answer(now) {
                    self.answered(AnswerKind::Heartbeat, token, self.sent, now);
                }
                Ok(())
            }
        }
    }

    fn answered(&self, kind: AnswerKind, token: Token, asked: BootInstant, received: BootInstant) {
        let answer = Answer {
            node: self.node,
            kind,
            token,
            asked,
            received,
        };
        self.seen.send_modify(|history| history.answered(answer));
    }

    fn breach(&self, problem: String) -> Result<(), Over> {
        let problem = format!("node {}: {problem}", self.node);
        self.seen.send_modify(|history| history.problem(problem));
        Err(Over)
    }
}

fn lock_name(name: &str) -> LockName {
    LockName::new(name).expect("the drill's lock names are short and not empty")
}

/// Before a client that lost its claim, or was refused, asks the other node.
const AFTER_A_LOSS: Duration = Duration::from_millis(10);
