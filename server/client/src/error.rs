//! Why a claim was not granted, and whether trying again can help.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use monolock_protocol::lease::LeaseError;
use monolock_protocol::name::LockNameError;
use monolock_protocol::{ErrorClass, ErrorCode};

use crate::address::EndpointError;
use crate::connect::ConnectError;
use crate::resolve::ResolveError;
use crate::session::{Lost, Reason};
use crate::tls::TlsError;

/// Why a client cannot be built from its settings.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The list of servers holds an entry that names none.
    #[error(transparent)]
    Server(#[from] EndpointError),
    /// A certificate or key cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
}

/// Why a claim was not granted. Nothing is held and nothing waits in a queue when it is returned.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AcquireError {
    /// No valid lock name.
    #[error(transparent)]
    InvalidLock(#[from] LockNameError),
    /// No valid lease.
    #[error(transparent)]
    InvalidLease(#[from] LeaseError),
    /// No server could be asked, or none is active.
    #[error("no server took the claim: {}", Failures(.0))]
    Unavailable(Vec<ServerFailure>),
    /// The server refused the claim for good: the same claim will be refused again.
    #[error("the server at {server} refused the claim: {code}{}", Reason(.code, .reason))]
    Refused {
        /// The server's address.
        server: SocketAddr,
        /// Why; its class is [`ErrorClass::ClientError`].
        code: ErrorCode,
        /// For people; may be empty.
        reason: String,
    },
    /// The session ended while the claim waited in the queue; its place is gone.
    #[error("lost the place in the queue at {server}: {cause}")]
    QueueLost {
        /// The server's address.
        server: SocketAddr,
        /// Why the session ended.
        cause: Lost,
    },
    /// Another client holds the lock, and this claim was not to wait.
    #[error("the lock is held by another client")]
    WouldQueue,
    /// The lock was not granted within the wait limit; `last` tells what the attempts met, if any failed.
    #[error("the lock was not granted within {limit:?}{}", Last(.last))]
    WaitLimit {
        /// The limit.
        limit: Duration,
        /// The failure of the last attempt, if one failed.
        last: Option<Box<AcquireError>>,
    },
    /// The program asked to stop.
    #[error("stopped before the lock was granted")]
    Stopped,
    /// The thread that keeps claims alive could not be started, or died.
    #[error("the background thread of the client cannot run: {0}")]
    Background(#[source] io::Error),
}

/// What happened at one server that did not take the claim.
#[derive(Debug, thiserror::Error)]
#[error("{server}{}: {cause}", At(.address))]
pub struct ServerFailure {
    /// The server as configured.
    pub server: String,
    /// The address tried, once the name was resolved.
    pub address: Option<SocketAddr>,
    /// What happened.
    #[source]
    pub cause: FailureCause,
}

/// See [`ServerFailure`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FailureCause {
    /// The name has no address.
    #[error(transparent)]
    Resolve(#[from] ResolveError),
    /// There was no connection.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The session ended before it was answered, or the server is not the one to ask now.
    #[error(transparent)]
    Session(#[from] Lost),
}

/// When to try again after an [`AcquireError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// The server goes away on purpose; its successor is there or will be.
    AtOnce,
    /// After a wait that grows from attempt to attempt.
    Backoff,
}

impl AcquireError {
    /// When to try again; `None` if the same claim would fail in the same way, or was not to be continued.
    #[must_use]
    pub fn retry(&self) -> Option<Retry> {
        match self {
            Self::InvalidLock(_)
            | Self::InvalidLease(_)
            | Self::Refused { .. }
            | Self::WouldQueue
            | Self::WaitLimit { .. }
            | Self::Stopped
            | Self::Background(_) => None,
            Self::QueueLost {
                cause: Lost::Server { code, .. },
                ..
            } if *code == ErrorCode::ShuttingDown => Some(Retry::AtOnce),
            Self::QueueLost {
                cause: Lost::Server { code, .. },
                ..
            } if code.class() == ErrorClass::ClientError => None,
            Self::Unavailable(_) | Self::QueueLost { .. } => Some(Retry::Backoff),
        }
    }
}

/// Why [`run`](crate::Client::run) did not return the work's result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError<E> {
    /// The lock was not granted; the work never ran.
    #[error(transparent)]
    Acquire(#[from] AcquireError),
    /// The work failed; it held the lock to its end.
    #[error("{0}")]
    Work(E),
    /// The lock was lost while the work ran. The work was stopped, or has returned by itself; its last actions may have
    /// run without the lock, so its result does not count.
    #[error("the lock was lost while the work ran: {cause}")]
    Lost {
        /// Why the claim is over.
        cause: Lost,
        /// The error that the work returned, if it did return one.
        work: Option<E>,
    },
}

struct Failures<'a>(&'a [ServerFailure]);

impl fmt::Display for Failures<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, failure) in self.0.iter().enumerate() {
            let separator = if index == 0 { "" } else { "; " };
            write!(f, "{separator}{failure}")?;
        }
        Ok(())
    }
}

struct At<'a>(&'a Option<SocketAddr>);

impl fmt::Display for At<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |address| write!(f, " ({address})"))
    }
}

struct Last<'a>(&'a Option<Box<AcquireError>>);

impl fmt::Display for Last<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.as_ref().map_or(Ok(()), |last| write!(f, "; last: {last}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue_lost(code: ErrorCode) -> AcquireError {
        AcquireError::QueueLost {
            server: SocketAddr::from(([127, 0, 0, 1], 7070)),
            cause: Lost::Server {
                code,
                reason: code.text().to_owned(),
            },
        }
    }

    #[test]
    fn the_class_of_a_code_decides_about_the_retry() {
        assert_eq!(queue_lost(ErrorCode::ShuttingDown).retry(), Some(Retry::AtOnce));
        assert_eq!(
            queue_lost(ErrorCode::ClosedByAdministrator).retry(),
            Some(Retry::Backoff)
        );
        assert_eq!(queue_lost(ErrorCode::Unknown(0x0f)).retry(), Some(Retry::Backoff));
        assert_eq!(queue_lost(ErrorCode::Unknown(0x7f)).retry(), None);
        assert_eq!(
            AcquireError::Unavailable(Vec::new()).retry(),
            Some(Retry::Backoff)
        );
        assert_eq!(AcquireError::WouldQueue.retry(), None);
    }

    #[test]
    fn a_failure_names_the_server_the_address_and_the_cause() {
        let failure = ServerFailure {
            server: "locks.internal:7070".to_owned(),
            address: Some(SocketAddr::from(([10, 0, 0, 1], 7070))),
            cause: ConnectError::Timeout(Duration::from_secs(2)).into(),
        };
        assert_eq!(
            AcquireError::Unavailable(vec![failure]).to_string(),
            "no server took the claim: locks.internal:7070 (10.0.0.1:7070): not connected within 2s"
        );
    }
}
