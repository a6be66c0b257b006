//! What an embedding program does with a running server.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use monolock_core::{LockEvent, Now, OpenGate, Report, Snapshot};
use monolock_protocol::{BootInstant, ErrorCode, Token};
use tokio::sync::broadcast;

use crate::server::Shared;

/// A running server, seen from outside. Cloning is cheap.
#[derive(Clone)]
pub struct ServerHandle {
    pub(crate) shared: Arc<Shared>,
}

impl ServerHandle {
    /// Where locks are served; with the port that was given when port 0 was asked for.
    #[must_use]
    pub fn lock_addr(&self) -> SocketAddr {
        self.shared.addresses.lock
    }

    /// Where the operational endpoints are, when they are on.
    #[must_use]
    pub fn ops_addr(&self) -> Option<SocketAddr> {
        self.shared.addresses.ops
    }

    /// Where the admin endpoints are, when they are on.
    #[must_use]
    pub fn admin_addr(&self) -> Option<SocketAddr> {
        self.shared.addresses.admin
    }

    /// Begins a term: see [`LockTable::open_gate`](monolock_core::LockTable::open_gate). `false` when it was refused.
    pub fn open_gate(&self, open: OpenGate) -> bool {
        self.shared.owner.open_gate(open)
    }

    /// Moves the end of authority and raises the ceiling; `false` when this is not the open term, also when its
    /// authority has lapsed.
    pub fn renew_authority(&self, term: u64, until: BootInstant, ceiling: Token) -> bool {
        self.shared
            .owner
            .step(|table, now| table.renew_authority(term, until, ceiling, now))
    }

    /// Ends the term: every session is told this code, every later `ACQUIRE` is answered with
    /// [`ErrorCode::NotActive`].
    pub fn shut_gate(&self, code: ErrorCode) {
        self.shared.owner.step(|table, now| table.shut_gate(code, now));
    }

    /// Lets the tokens follow the wall clock from this reading on, because somebody compared it with other clocks. A step
    /// after the reading is not followed.
    pub fn adopt_wall_clock(&self, judged: Now) {
        self.shared
            .owner
            .step(|table, now| table.adopt_wall_clock(judged, now));
    }

    /// Keeps so many seconds below the ceiling of every later term for grants to be counted in; see
    /// [`LockTable::keep_for_counting`](monolock_core::LockTable::keep_for_counting).
    pub fn keep_for_counting(&self, seconds: u64) {
        self.shared
            .owner
            .step(|table, _| table.keep_for_counting(seconds));
    }

    /// Keeps the lock table to itself while `work` runs: to see what becomes of a server whose table is stuck.
    #[doc(hidden)]
    pub fn occupy_table(&self, work: impl FnOnce()) {
        self.shared.owner.step(|_, _| work());
    }

    /// The table's figures at this moment. It is answered by the owner of the table: an answer shows that it is not
    /// stuck.
    #[must_use]
    pub fn report(&self) -> Report {
        self.shared.owner.report()
    }

    /// What the table holds, and every change after it, without a gap between them.
    #[must_use]
    pub fn follow(&self) -> (Snapshot, FollowReceiver) {
        let (snapshot, events, grants) = self.shared.owner.follow();
        (snapshot, FollowReceiver { events, grants })
    }

    /// From now on, holders are told of their grants only when a follower has confirmed them with
    /// [`ServerHandle::grants_confirmed`]. One that confirms nothing for the limit, as measured whenever a
    /// [`report`](ServerHandle::report) is asked for, is not waited for until it confirms again; nor is anybody when
    /// a gate has just opened. See [`Confirmation`](monolock_core::Confirmation).
    pub fn confirm_grants(&self, limit: Duration) {
        self.shared.owner.confirm_grants(limit);
    }

    /// A follower has heard of so many grants, as [`FollowReceiver::grants`] counts them.
    pub fn grants_confirmed(&self, grants: u64) {
        self.shared.owner.grants_confirmed(grants);
    }

    /// Whether grants wait to be confirmed; `None` where nobody has to.
    #[must_use]
    pub fn awaits_confirmation(&self) -> Option<bool> {
        self.shared.owner.awaits_confirmation()
    }

    /// Reads certificates, key, client CA and access rules again and opens the audit log anew. What fails keeps its
    /// old state and is logged; open sessions are untouched.
    pub fn reload(&self) {
        self.shared.reload();
    }

    /// Whether `/readyz` may say so. It also needs an open gate and no shutdown.
    pub fn set_ready(&self, ready: bool) {
        self.shared.ready.store(ready, Ordering::Relaxed);
    }

    /// The registry behind `/metrics`, to add to.
    #[must_use]
    pub fn metrics_registry(&self) -> &prometheus::Registry {
        &self.shared.metrics.registry
    }
}

/// Changes of the lock table, in order.
#[derive(Debug)]
pub struct FollowReceiver {
    events: broadcast::Receiver<LockEvent>,
    grants: u64,
}

/// Why there is no next event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FollowEnded {
    /// The receiver was too slow: follow anew and start from the new snapshot.
    #[error("{missed} events were missed: take a new snapshot")]
    Lagged {
        /// How many.
        missed: u64,
    },
    /// The server is gone.
    #[error("the server has stopped")]
    Stopped,
}

impl FollowReceiver {
    /// How many grants the server had made in its life up to the last change that was taken, the snapshot's included.
    #[must_use]
    pub const fn grants(&self) -> u64 {
        self.grants
    }

    fn taken(&mut self, event: LockEvent) -> LockEvent {
        if let LockEvent::Held { .. } = event {
            self.grants += 1;
        }
        event
    }

    /// The next change. Cancel safe.
    ///
    /// # Errors
    ///
    /// [`FollowEnded`]; after [`FollowEnded::Lagged`] the events that follow do not continue the snapshot.
    pub async fn next(&mut self) -> Result<LockEvent, FollowEnded> {
        let event = self.events.recv().await.map_err(|error| match error {
            broadcast::error::RecvError::Lagged(missed) => FollowEnded::Lagged { missed },
            broadcast::error::RecvError::Closed => FollowEnded::Stopped,
        })?;
        Ok(self.taken(event))
    }

    /// The next change, when there is one already.
    ///
    /// # Errors
    ///
    /// As [`FollowReceiver::next`].
    pub fn try_next(&mut self) -> Result<Option<LockEvent>, FollowEnded> {
        match self.events.try_recv() {
            Ok(event) => Ok(Some(self.taken(event))),
            Err(broadcast::error::TryRecvError::Empty) => Ok(None),
            Err(broadcast::error::TryRecvError::Lagged(missed)) => Err(FollowEnded::Lagged { missed }),
            Err(broadcast::error::TryRecvError::Closed) => Err(FollowEnded::Stopped),
        }
    }
}
