//! What the lock table wants done, in the order in which it must be done.

use std::time::Duration;

use monolock_protocol::{ErrorCode, Lease, LockName, Token};

use crate::ClaimId;

/// One thing for the caller to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Send the session of this claim its state: the answer to its frame, or the push of a promotion.
    Send {
        /// Whose session.
        claim: ClaimId,
        /// What to say.
        state: ClaimState,
    },
    /// The claim is gone from the table: send the error, if there is one, and close its session.
    End {
        /// Whose session.
        claim: ClaimId,
        /// `None` when the lease ran out: expiry has no error code, the session is closed without a frame.
        error: Option<ErrorCode>,
    },
    /// Ownership of a lock changed: for the audit log and the metrics. The [`Ownership::Released`] of a lock comes
    /// before the [`Ownership::Granted`] of its next holder, and the `Granted` before its [`Action::Send`].
    Ownership {
        /// Whose claim; its session may already have an [`Action::End`].
        claim: ClaimId,
        /// Which lock.
        lock: LockName,
        /// What happened.
        change: Ownership,
    },
    /// A change that the standby of a pair must hear of. Never made by a table without a term.
    Follow(LockEvent),
    /// Make durable that every token below the first one of this epoch may be granted, then call
    /// [`LockTable::handle_reserved`](crate::LockTable::handle_reserved). Asked for well ahead: no grant waits for it
    /// while there is room below the ceiling.
    Reserve {
        /// In unix seconds.
        epoch: u64,
    },
}

/// Where a claim stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimState {
    /// In the queue.
    Waiting,
    /// Holding the lock, with the token of its one grant.
    Acquired(Token),
}

/// A change of ownership, or an operator's act that leads to one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ownership {
    /// The claim became the holder.
    Granted {
        /// The token of this grant.
        token: Token,
        /// From the `ACQUIRE` to the grant.
        waited: Duration,
    },
    /// The claim stopped being the holder.
    Released {
        /// The token it held under.
        token: Token,
        /// From the grant to the release.
        held: Duration,
        /// How it ended.
        reason: ReleaseReason,
    },
    /// An operator took the lock from its holder; the `Released` follows.
    ForceRelease {
        /// The token it was held under.
        token: Token,
    },
    /// An operator removed a waiter.
    KickWaiter,
}

/// How an ownership ended, as audit log and metrics name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReleaseReason {
    /// The connection was closed or broke, the session was refused, or the server stopped serving.
    Graceful,
    /// The lease ran out.
    Expired,
    /// A write to the session stalled.
    IoTimeout,
    /// An operator released the lock.
    Force,
}

impl ReleaseReason {
    /// Every reason.
    pub const ALL: [Self; 4] = [Self::Graceful, Self::Expired, Self::IoTimeout, Self::Force];

    /// The name in the audit log and in the label of the metric.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Graceful => "graceful",
            Self::Expired => "expired",
            Self::IoTimeout => "io_timeout",
            Self::Force => "force",
        }
    }
}

/// Why the caller closes a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseCause {
    /// The client itself closed its side of the connection: it knows that it holds nothing any more.
    Closed,
    /// The connection broke, or the session ends with an error of the protocol. The client may not know yet.
    Broken,
    /// A read or a write stalled for longer than the I/O timeout. The client may not know yet.
    IoTimeout,
}

impl CloseCause {
    pub(crate) const fn reason(self) -> ReleaseReason {
        match self {
            Self::Closed | Self::Broken => ReleaseReason::Graceful,
            Self::IoTimeout => ReleaseReason::IoTimeout,
        }
    }
}

/// What the standby of a pair must hear of, to know after a takeover which locks it may grant at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LockEvent {
    /// The lock has a holder.
    Held {
        /// Which lock.
        lock: LockName,
        /// The holder's lease.
        lease: Lease,
        /// The token of the grant.
        token: Token,
    },
    /// The holder is gone and knows it: its own close was seen, or its lease ran out. Ends what [`LockEvent::Held`]
    /// began, not a grace that an earlier [`LockEvent::Broke`] began.
    Freed {
        /// Which lock.
        lock: LockName,
    },
    /// The holder's session ended in a way that it may not know of. It may believe that it holds the lock until its
    /// lease has run out. The next [`LockEvent::Held`] does not shorten that: keep the longer of both.
    Broke {
        /// Which lock.
        lock: LockName,
        /// What was left of the lease.
        left: Duration,
    },
}
