//! The owner of the lock table: one mutex, within which the order of grants is decided.
//!
//! Each connection's own task steps the table and carries its decisions out before it lets go: mail goes into the
//! sessions' mailboxes, ownership changes into metrics, audit and the follow stream. So all of them agree on one
//! order, and no hand-over to another task lies on the path of a grant.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use monolock_core::{
    Action, ClaimId, ClaimState, CloseCause, Confirmation, LockEvent, LockTable, NotServing, Now, OpenGate,
    Ownership, Report, Snapshot,
};
use monolock_protocol::frame::{ProtocolViolation, ServerFrame};
use monolock_protocol::{BootInstant, ErrorCode, Lease, LockName};
use tokio::sync::{Notify, broadcast, watch};

use crate::audit::{AuditEvent, AuditLog};
use crate::clock::now;
use crate::metrics::Metrics;
use crate::session::Session;

pub(crate) struct Owner {
    inner: Mutex<Inner>,
    metrics: Arc<Metrics>,
    audit: Option<AuditLog>,
    followers: broadcast::Sender<LockEvent>,
    /// Up to which epoch the table wants tokens reserved.
    reserve: watch::Sender<u64>,
    earlier_deadline: Notify,
}

struct Inner {
    table: LockTable,
    sessions: HashMap<ClaimId, Arc<Session>>,
    /// How many grants followers were told of.
    grants: u64,
    /// Where a follower has to confirm them.
    confirmation: Option<Confirmation>,
    /// What the timer sleeps until.
    armed: Option<BootInstant>,
}

impl Owner {
    pub(crate) fn new(
        table: LockTable,
        metrics: Arc<Metrics>,
        audit: Option<AuditLog>,
        follow_capacity: usize,
    ) -> Self {
        Self {
            inner: Mutex::new(Inner {
                table,
                sessions: HashMap::new(),
                grants: 0,
                confirmation: None,
                armed: None,
            }),
            metrics,
            audit,
            reserve: watch::Sender::new(0),
            followers: broadcast::Sender::new(follow_capacity),
            earlier_deadline: Notify::new(),
        }
    }

    /// A session asks for a lock; the answer is in its mailbox.
    pub(crate) fn acquire(
        &self,
        session: &Arc<Session>,
        lock: LockName,
        lease: Lease,
    ) -> Result<ClaimId, NotServing> {
        let mut inner = self.lock();
        let now = now();
        let claim = inner.table.handle_acquire(lock, lease, now);
        if let Ok(claim) = claim {
            inner.sessions.insert(claim, Arc::clone(session));
        }
        self.carry_out(&mut inner, now);
        claim
    }

    /// A session sent heartbeats, and then perhaps something that ends it; the answers are in its mailbox.
    pub(crate) fn received(&self, claim: ClaimId, heartbeats: usize, violation: Option<ProtocolViolation>) {
        let mut inner = self.lock();
        let now = now();
        for _ in 0..heartbeats {
            inner.table.handle_heartbeat(claim, now);
        }
        self.metrics.heartbeats.inc_by(heartbeats as u64);
        self.carry_out(&mut inner, now);
        if let Some(violation) = violation {
            self.end_with(&mut inner, claim, violation, now);
        }
    }

    fn end_with(&self, inner: &mut Inner, claim: ClaimId, violation: ProtocolViolation, now: Now) {
        inner.table.handle_close(claim, CloseCause::Broken, now);
        self.carry_out(inner, now);
        if let Some(session) = inner.sessions.remove(&claim) {
            self.metrics.error_sent(violation.code());
            session.end_with(&violation.into());
        }
    }

    /// A session's task is done with its connection; whether another session was granted a lock for that.
    pub(crate) fn close(&self, claim: ClaimId, cause: CloseCause) -> bool {
        let mut inner = self.lock();
        let now = now();
        inner.table.handle_close(claim, cause, now);
        let granted = self.carry_out(&mut inner, now);
        inner.sessions.remove(&claim);
        granted
    }

    /// Any other step.
    pub(crate) fn step<R>(&self, step: impl FnOnce(&mut LockTable, Now) -> R) -> R {
        let mut inner = self.lock();
        let now = now();
        let result = step(&mut inner.table, now);
        self.carry_out(&mut inner, now);
        result
    }

    /// Removes the waiter with this address from the queue of a lock; whether there was one.
    pub(crate) fn kick(&self, lock: &LockName, remote_addr: &str) -> bool {
        let mut inner = self.lock();
        let now = now();
        let queue = inner
            .table
            .lock(lock)
            .map(|lock| lock.waiters)
            .unwrap_or_default();
        let has_address = |claim: &ClaimId| {
            let session = inner.sessions.get(claim);
            session.is_some_and(|session| session.remote_addr.to_string() == remote_addr)
        };
        let found = queue.into_iter().map(|waiter| waiter.claim).find(has_address);
        let kicked = found.is_some_and(|claim| inner.table.handle_kick(claim, now));
        self.carry_out(&mut inner, now);
        kicked
    }

    /// An `ACQUIRE` was refused by the access rules.
    pub(crate) fn record_denial(&self, session: &Arc<Session>, lock: LockName) {
        let Session {
            identity,
            remote_addr,
            ..
        } = &**session;
        tracing::info!(%lock, %identity, %remote_addr, "not authorized for lock");
        self.metrics.acl_denials.inc();
        if let Some(audit) = &self.audit {
            audit.record(now().wall, AuditEvent::Denied, lock, Arc::clone(session));
        }
    }

    /// What the table asks to reserve.
    pub(crate) fn reservations(&self) -> watch::Receiver<u64> {
        self.reserve.subscribe()
    }

    pub(crate) fn audit(&self) -> Option<&AuditLog> {
        self.audit.as_ref()
    }

    /// Looks at the table and at the session of each claim.
    pub(crate) fn view<R>(
        &self,
        view: impl FnOnce(&LockTable, &dyn Fn(ClaimId) -> Option<Arc<Session>>, Now) -> R,
    ) -> R {
        let inner = self.lock();
        view(&inner.table, &|claim| inner.sessions.get(&claim).cloned(), now())
    }

    pub(crate) fn report(&self) -> Report {
        let mut inner = self.lock();
        let now = now();
        inner.table.handle_timeout(now);
        self.carry_out(&mut inner, now);
        inner.wait_for_confirmation(|confirmation| confirmation.handle_timeout(now.boot));
        inner.table.report(now)
    }

    /// The table's state, every change after it, and how many grants went before.
    pub(crate) fn follow(&self) -> (Snapshot, broadcast::Receiver<LockEvent>, u64) {
        let mut inner = self.lock();
        let now = now();
        inner.table.handle_timeout(now);
        self.carry_out(&mut inner, now);
        (
            inner.table.snapshot(now),
            self.followers.subscribe(),
            inner.grants,
        )
    }

    /// From now on a follower has to confirm grants, within the limit.
    pub(crate) fn confirm_grants(&self, limit: Duration) {
        self.lock().confirmation = Some(Confirmation::new(limit));
    }

    /// A follower has heard of so many grants.
    pub(crate) fn grants_confirmed(&self, grants: u64) {
        self.lock()
            .wait_for_confirmation(|confirmation| confirmation.handle_confirmed(grants));
    }

    /// Whether grants wait for a follower; `None` where none has to confirm them.
    pub(crate) fn awaits_confirmation(&self) -> Option<bool> {
        self.lock().confirmation.as_ref().map(Confirmation::is_awaited)
    }

    /// Begins a term, of which nobody has heard yet.
    pub(crate) fn open_gate(&self, open: OpenGate) -> bool {
        self.lock().wait_for_confirmation(Confirmation::wait_no_longer);
        self.step(|table, now| table.open_gate(open, now))
    }

    /// Drives everything that happens by itself when time passes. Never returns.
    pub(crate) async fn run_timer(&self) {
        let mut timer = monolock_clock::BootTimer::new();
        loop {
            let deadline = self.arm();
            tokio::select! {
                () = timer.sleep_until(deadline) => self.step(LockTable::handle_timeout),
                () = self.earlier_deadline.notified() => {}
            }
        }
    }

    fn arm(&self) -> Option<BootInstant> {
        let mut inner = self.lock();
        inner.armed = inner.table.poll_timeout();
        inner.armed
    }

    /// Whether a session was sent its state.
    fn carry_out(&self, inner: &mut Inner, now: Now) -> bool {
        let mut sent = false;
        while let Some(action) = inner.table.poll_action() {
            match action {
                Action::Send { claim, state } => {
                    sent = true;
                    if let Some(session) = inner.sessions.get(&claim) {
                        session.send(&frame(state));
                    }
                }
                Action::End { claim, error } => self.end(inner.sessions.remove(&claim), error),
                Action::Ownership { claim, lock, change } => {
                    if let Ownership::Granted { .. } = change {
                        inner.hold_back(claim, now);
                    }
                    self.record(inner.sessions.get(&claim), lock, change, now);
                }
                Action::Follow(event) => {
                    if let LockEvent::Held { .. } = event {
                        inner.grants += 1;
                    }
                    // Nobody following is no error.
                    drop(self.followers.send(event));
                }
                // In a pair the renewals of authority raise the ceiling, and nobody listens here.
                Action::Reserve { epoch } => drop(self.reserve.send_replace(epoch)),
            }
        }
        let earlier = match (inner.table.poll_timeout(), inner.armed) {
            (Some(next), Some(armed)) => next < armed,
            (Some(_), None) => true,
            (None, _) => false,
        };
        if earlier {
            inner.armed = inner.table.poll_timeout();
            self.earlier_deadline.notify_one();
        }
        sent
    }

    fn end(&self, session: Option<Arc<Session>>, error: Option<ErrorCode>) {
        let Some(session) = session else {
            return;
        };
        match error {
            Some(code) => {
                self.metrics.error_sent(code);
                session.end_with(&ServerFrame::error(code));
            }
            None => session.end_silently(),
        }
    }

    fn record(&self, session: Option<&Arc<Session>>, lock: LockName, change: Ownership, now: Now) {
        self.metrics.ownership(change);
        let session = session.expect("a claim keeps its session until its end was carried out");
        tracing::debug!(%lock, remote_addr = %session.remote_addr, ?change, "ownership");
        if let Some(audit) = &self.audit {
            audit.record(now.wall, AuditEvent::Ownership(change), lock, Arc::clone(session));
        }
    }

    /// A panic inside a step is a bug in the lock table; what it left behind cannot be trusted to grant again.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        match self.inner.lock() {
            Ok(inner) => inner,
            Err(poisoned) => {
                drop(PoisonError::into_inner(poisoned));
                tracing::error!("the lock table broke an invariant: stopping at once");
                std::process::abort();
            }
        }
    }
}

impl Inner {
    /// The claim was granted its lock, and followers are told next: whether its session is before them.
    fn hold_back(&mut self, claim: ClaimId, now: Now) {
        let grant = self.grants + 1;
        if let Some(confirmation) = &mut self.confirmation
            && confirmation.handle_grant(grant, claim, now.boot)
            && let Some(session) = self.sessions.get(&claim)
        {
            session.hold_back();
        }
    }

    /// Carries out what is decided about grants that wait to be confirmed.
    fn wait_for_confirmation(&mut self, decide: impl FnOnce(&mut Confirmation) -> Vec<ClaimId>) {
        let Some(confirmation) = &mut self.confirmation else {
            return;
        };
        let was_awaited = confirmation.is_awaited();
        for claim in decide(confirmation) {
            if let Some(session) = self.sessions.get(&claim) {
                session.release();
            }
        }
        match (was_awaited, confirmation.is_awaited()) {
            (false, true) => tracing::info!("grants are confirmed by the standby from now on"),
            (true, false) => {
                tracing::warn!("grants are no longer confirmed by the standby: it may not hear of them")
            }
            (false, false) | (true, true) => {}
        }
    }
}

fn frame(state: ClaimState) -> ServerFrame {
    match state {
        ClaimState::Waiting => ServerFrame::Waiting,
        ClaimState::Acquired(token) => ServerFrame::Acquired(token),
    }
}
