//! What the table shows of itself.

use std::time::Duration;

use monolock_protocol::{BootInstant, Lease, LockName, Token};

use crate::ClaimId;

/// One lock with a holder or a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockView {
    /// Its name.
    pub lock: LockName,
    /// Who holds it; nobody while a grace runs or no token may be granted yet.
    pub holder: Option<HolderView>,
    /// The queue, head first.
    pub waiters: Vec<WaiterView>,
}

/// The holder of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HolderView {
    /// Its claim.
    pub claim: ClaimId,
    /// Its lease.
    pub lease: Lease,
    /// The token of its grant.
    pub token: Token,
    /// When it was granted.
    pub since: BootInstant,
}

/// One waiter of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaiterView {
    /// Its claim.
    pub claim: ClaimId,
    /// Its lease.
    pub lease: Lease,
    /// When it asked.
    pub queued_at: BootInstant,
}

/// The figures a failover node needs of its table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// The term of the open gate; `None` while shut, and on a server without a pair.
    pub term: Option<u64>,
    /// Whether an `ACQUIRE` would be served.
    pub serving: bool,
    /// The largest token granted; below the first of the term when there was no grant yet.
    pub last_token: Token,
    /// The unix second that the next grant would follow: the wall clock as far as it is believed.
    pub epoch: u64,
    /// How long a client somewhere may believe in its lock after this server has gone: the longest lease of a live
    /// claim, or a longer running grace.
    pub longest_lease: Option<Lease>,
    /// Live claims.
    pub claims: usize,
    /// Locks with a holder.
    pub held: usize,
    /// Claims in queues.
    pub waiting: usize,
    /// Locks with a holder or a queue.
    pub locks: usize,
}

/// Everything the standby must know, before it hears of changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Each lock with a holder.
    pub held: Vec<Held>,
    /// Locks with a grace that still runs, and what is left of it. A lock may also be in `held`.
    pub graces: Vec<(LockName, Duration)>,
    /// What is left of the grace of all locks that are in neither list.
    pub every_lock: Option<Duration>,
}

/// A lock with a holder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// Which lock.
    pub lock: LockName,
    /// The holder's lease.
    pub lease: Lease,
    /// The token of the grant.
    pub token: Token,
}
