//! What can become of a fenced operation other than being accepted.

use monolock_protocol::Token;

use crate::{Resource, ResourceError, Stamp};

/// Any other error, kept as the cause.
pub type BoxError = Box<dyn std::error::Error + Send + Sync + 'static>;

/// Why a fenced operation was not (or not provably) accepted. `Ok` is the remaining outcome: accepted.
///
/// | outcome | did anything change? | what the caller does |
/// | --- | --- | --- |
/// | `Ok` | yes | goes on |
/// | [`Stale`](Self::Stale), [`RefusedByTrigger`](Self::RefusedByTrigger) | no | stops: the lock is lost |
/// | [`LockLost`](Self::LockLost) | no: nothing was sent | stops: the lock is lost |
/// | [`Missing`](Self::Missing), [`Exists`](Self::Exists) | no | decides: the lock is still held |
/// | [`Conflict`](Self::Conflict) | no | may try again: others kept getting in between |
/// | [`Unknown`](Self::Unknown) | **perhaps** | reads the resource before it goes on |
/// | the rest | no | reports |
///
/// "No" for the statements of a transaction means: once it is rolled back, which the caller owes after any error.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FenceError {
    /// A larger token has been accepted for this resource.
    #[error("{stamp} is stale: token {highest} was accepted; the lock is lost, stop the work")]
    Stale {
        /// What was refused.
        stamp: Stamp,
        /// The highest token accepted so far.
        highest: Token,
    },
    /// The enforcing trigger stopped a statement that this crate did not build.
    #[error("the database refused an older fencing token: {message}; the lock is lost, stop the work")]
    RefusedByTrigger {
        /// What the database said.
        message: String,
    },
    /// The grant is over: its client says so, and nothing was sent.
    #[error("the grant of `{lock}` is over: {source}; nothing was written, stop the work")]
    LockLost {
        /// The lock.
        lock: String,
        /// What the lock's client says.
        source: BoxError,
    },
    /// The token is not stale, but what should be written is not there.
    #[error("{what} guarded by `{resource}` does not exist")]
    Missing {
        /// The resource.
        resource: Resource,
        /// The row or object.
        what: String,
    },
    /// The token is not stale, but what should be created is there already.
    #[error("{what} guarded by `{resource}` exists already")]
    Exists {
        /// The resource.
        resource: Resource,
        /// The row or object.
        what: String,
    },
    /// Concurrent writers kept getting in between. Nothing was written.
    #[error("other writers got in between in each of {attempts} attempt(s); nothing was written, try again")]
    Conflict {
        /// How often it was tried.
        attempts: u32,
        /// The store's own words for the last attempt.
        #[source]
        source: BoxError,
    },
    /// The answer was lost: the write may have landed, now or a little later.
    #[error("the answer for {stamp} was lost: the write may have landed; read the resource before going on")]
    Unknown {
        /// What was being written.
        stamp: Stamp,
        /// How the answer was lost.
        #[source]
        source: BoxError,
    },
    /// The token does not fit the store.
    #[error(
        "token {token} does not fit a signed 64-bit column: tokens above 2^63-1 cannot be compared there"
    )]
    TokenTooLarge {
        /// The token.
        token: Token,
    },
    /// The caller's own mistake, found before anything was sent.
    #[error("{problem}")]
    Misuse {
        /// What is wrong, and with what.
        problem: String,
    },
    /// An error of the caller's own, out of a closure that ran under the fence.
    #[error("{0}")]
    Caller(#[source] BoxError),
    /// The store failed. Nothing was written.
    #[error("the store failed, nothing was written: {0}")]
    Backend(#[source] BoxError),
}

impl FenceError {
    /// Carries an error of the caller's own out of a closure that runs under the fence.
    pub fn caller(error: impl Into<BoxError>) -> Self {
        Self::Caller(error.into())
    }

    /// True when the lock is lost and the work must stop, whoever found out: the resource or the lock's client.
    #[must_use]
    pub fn is_lock_lost(&self) -> bool {
        self.is_stale() || matches!(self, Self::LockLost { .. })
    }

    /// True when the resource refused: it has seen a larger token.
    #[must_use]
    pub fn is_stale(&self) -> bool {
        matches!(self, Self::Stale { .. } | Self::RefusedByTrigger { .. })
    }

    /// True when the write may have landed although it was not confirmed.
    #[must_use]
    pub fn may_have_landed(&self) -> bool {
        matches!(self, Self::Unknown { .. })
    }

    /// True when nothing was written because other writers got in between.
    #[must_use]
    pub fn is_conflict(&self) -> bool {
        matches!(self, Self::Conflict { .. })
    }
}

impl From<ResourceError> for FenceError {
    fn from(error: ResourceError) -> Self {
        Self::Misuse {
            problem: error.to_string(),
        }
    }
}
