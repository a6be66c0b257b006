//! The client for programs without an async runtime: the same claims, the same background thread, calls that block.
//!
//! ```no_run
//! # use std::time::Duration;
//! # fn store(token: monolock_client::Token) -> Result<(), Box<dyn std::error::Error>> { Ok(()) }
//! let client = monolock_client::blocking::Client::new("locks.internal:7070")?;
//! client.run("nightly-import", Duration::from_secs(2), |grant| store(grant.token()?))?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A thread cannot be stopped from outside: after a loss the work runs on until it asks [`Grant::token`], which fails.
//! So ask for it before each write, as one should anyway.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::error::{AcquireError, ConfigError, RunError};
use crate::grant::{Grant, Guard};
use crate::session::Lost;

/// A client of one lock service whose calls block; see [`crate::Client`].
#[derive(Clone, Debug)]
pub struct Client(crate::Client);

impl Client {
    /// A client of `servers`: one `host:port`, or several separated by commas. [`crate::Client::builder`] has further
    /// settings; the client it builds can be turned [into](From) this one.
    ///
    /// # Errors
    ///
    /// [`ConfigError::Server`] for an entry that names no server.
    pub fn new(servers: &str) -> Result<Self, ConfigError> {
        crate::Client::new(servers).map(Self)
    }

    /// Waits until `lock` is granted, runs `work`, and releases the lock when it has returned. One attempt.
    ///
    /// # Errors
    ///
    /// [`RunError::Acquire`] if the work never ran, [`RunError::Work`] if it failed, [`RunError::Lost`] if the lock was
    /// lost before it returned.
    pub fn run<T, E>(
        &self,
        lock: &str,
        lease: Duration,
        work: impl FnOnce(&Grant) -> Result<T, E>,
    ) -> Result<T, RunError<E>> {
        self.claim(lock, lease).run(work)
    }

    /// As [`run`](Self::run), but keeps trying to acquire the lock. The work runs at most once.
    ///
    /// # Errors
    ///
    /// As [`run`](Self::run); [`RunError::Acquire`] only for what another attempt cannot mend.
    pub fn run_with_retry<T, E>(
        &self,
        lock: &str,
        lease: Duration,
        work: impl FnOnce(&Grant) -> Result<T, E>,
    ) -> Result<T, RunError<E>> {
        self.claim(lock, lease).run_with_retry(work)
    }

    /// Waits until `lock` is granted. One attempt.
    ///
    /// # Errors
    ///
    /// Why the lock was not granted.
    pub fn acquire(&self, lock: &str, lease: Duration) -> Result<Guard, AcquireError> {
        self.claim(lock, lease).acquire()
    }

    /// Takes `lock` if nobody holds it; `None` if somebody does.
    ///
    /// # Errors
    ///
    /// Why it is not known whether somebody holds it, or why the claim was refused.
    pub fn try_lock(&self, lock: &str, lease: Duration) -> Result<Option<Guard>, AcquireError> {
        pollster::block_on(self.0.try_lock(lock, lease))
    }

    /// Prepares a claim with further wishes; see [`crate::Client::claim`].
    pub fn claim(&self, lock: &str, lease: Duration) -> Claim {
        Claim(self.0.claim(lock, lease))
    }
}

impl From<crate::Client> for Client {
    fn from(client: crate::Client) -> Self {
        Self(client)
    }
}

/// A claim to be made; see [`crate::Claim`].
#[derive(Clone, Debug)]
#[must_use = "a claim is made by acquire or run"]
pub struct Claim(crate::Claim);

impl Claim {
    /// See [`crate::Claim::without_waiting`].
    pub fn without_waiting(self) -> Self {
        Self(self.0.without_waiting())
    }

    /// See [`crate::Claim::wait_limit`].
    pub fn wait_limit(self, limit: Duration) -> Self {
        Self(self.0.wait_limit(limit))
    }

    /// See [`crate::Claim::stop_on`].
    pub fn stop_on(self, stop: CancellationToken) -> Self {
        Self(self.0.stop_on(stop))
    }

    /// See [`crate::Claim::acquire`].
    ///
    /// # Errors
    ///
    /// Why the lock was not granted.
    pub fn acquire(self) -> Result<Guard, AcquireError> {
        pollster::block_on(self.0.acquire())
    }

    /// See [`crate::Claim::acquire_with_retry`].
    ///
    /// # Errors
    ///
    /// What another attempt cannot mend, the wait limit, or the wish to stop.
    pub fn acquire_with_retry(self) -> Result<Guard, AcquireError> {
        pollster::block_on(self.0.acquire_with_retry())
    }

    /// Acquires the lock and runs `work` while it is held.
    ///
    /// # Errors
    ///
    /// See [`Client::run`].
    pub fn run<T, E>(self, work: impl FnOnce(&Grant) -> Result<T, E>) -> Result<T, RunError<E>> {
        hold(self.acquire()?, work)
    }

    /// As [`run`](Self::run), but keeps trying to acquire the lock.
    ///
    /// # Errors
    ///
    /// See [`Client::run_with_retry`].
    pub fn run_with_retry<T, E>(self, work: impl FnOnce(&Grant) -> Result<T, E>) -> Result<T, RunError<E>> {
        hold(self.acquire_with_retry()?, work)
    }
}

/// Blocks until the claim is over, and says why.
pub fn wait_lost(grant: &Grant) -> Lost {
    pollster::block_on(grant.lost())
}

fn hold<T, E>(guard: Guard, work: impl FnOnce(&Grant) -> Result<T, E>) -> Result<T, RunError<E>> {
    let result = work(&guard.grant());
    match guard.token() {
        Ok(_) => result.map_err(RunError::Work),
        Err(cause) => Err(RunError::Lost {
            cause,
            work: result.err(),
        }),
    }
}
