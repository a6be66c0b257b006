//! What a program holds while it holds a lock.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use monolock_protocol::{BootInstant, LockName, Token};
use tokio_util::sync::CancellationToken;

use crate::live::Live;
use crate::session::Lost;

/// A grant of a lock, as the work sees it. Cheap to clone and to send to other tasks and threads; keeping one around
/// does not keep the lock.
#[derive(Clone)]
pub struct Grant {
    pub(crate) live: Arc<Live>,
    pub(crate) stop: CancellationToken,
}

impl Grant {
    /// The fencing token, for a write to the resource that the lock guards. Ask anew for each write: the answer is
    /// checked against the clock at the moment of the call, so a program that was frozen past its deadline gets an
    /// error even before its client has noticed.
    ///
    /// # Errors
    ///
    /// Why the claim is over. The work must stop.
    pub fn token(&self) -> Result<Token, Lost> {
        self.live.token()
    }

    /// Resolves once the claim is over, and says why. Any number of tasks may wait.
    pub fn lost(&self) -> impl Future<Output = Lost> + Send + 'static + use<> {
        let live = Arc::clone(&self.live);
        async move { live.lost().await }
    }

    /// Resolves when the work should come to its end: the claim is over, or the program asked to stop (see
    /// [`Claim::stop_on`](crate::Claim::stop_on)). After a mere request to stop the lock is still held, and stays so
    /// until the work has returned.
    pub fn cancelled(&self) -> impl Future<Output = ()> + Send + 'static + use<> {
        let (lost, stop) = (self.lost(), self.stop.clone());
        async move {
            tokio::select! {
                biased;
                _ = lost => {}
                () = stop.cancelled() => {}
            }
        }
    }

    /// Until when, on the boot clock, the server cannot have granted the lock to another client: nine tenths of the lease
    /// after the last confirmed sign of life while nothing but silence is known and the [`Guard`] is kept (dropping it releases the lock), [`BootInstant::ZERO`] once the server or the connection has ended the session.
    #[must_use]
    pub fn safe_until(&self) -> BootInstant {
        self.live.safe_until()
    }

    /// The lock that was granted.
    #[must_use]
    pub fn lock(&self) -> &LockName {
        &self.live.lock
    }

    /// The address of the server that granted it.
    #[must_use]
    pub fn server(&self) -> SocketAddr {
        self.live.server
    }
}

impl fmt::Debug for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Grant")
            .field("lock", &self.live.lock)
            .field("server", &self.live.server)
            .finish_non_exhaustive()
    }
}

/// Holds a lock until it is dropped. Dropping closes the connection there and then, on the caller's thread: the server
/// promotes the next waiter at once.
#[must_use = "dropping the guard releases the lock"]
#[derive(Debug)]
pub struct Guard {
    grant: Grant,
}

impl Guard {
    pub(crate) fn new(grant: Grant) -> Self {
        Self { grant }
    }

    /// The grant, to be given to other tasks. Its token is refused once this guard is gone.
    #[must_use]
    pub fn grant(&self) -> Grant {
        self.grant.clone()
    }

    /// See [`Grant::token`].
    ///
    /// # Errors
    ///
    /// Why the claim is over. The work must stop.
    pub fn token(&self) -> Result<Token, Lost> {
        self.grant.token()
    }

    /// See [`Grant::lost`].
    pub fn lost(&self) -> impl Future<Output = Lost> + Send + 'static + use<> {
        self.grant.lost()
    }

    /// The lock that is held.
    #[must_use]
    pub fn lock(&self) -> &LockName {
        self.grant.lock()
    }

    /// The address of the server that granted it.
    #[must_use]
    pub fn server(&self) -> SocketAddr {
        self.grant.server()
    }

    /// Releases the lock; the same as dropping the guard, but visible.
    pub fn release(self) {}
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.grant.live.release();
    }
}
