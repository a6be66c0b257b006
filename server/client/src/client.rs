//! The client and its claims.

use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use monolock_clock::boot_now;
use monolock_protocol::{Lease, LockName};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::acquire::{Request, Settings, pursue};
use crate::address::Endpoint;
use crate::background::{Background, background};
use crate::driver::Progress;
use crate::error::{AcquireError, ConfigError, RunError};
use crate::grant::{Grant, Guard};
use crate::tls::Tls;

/// A client of one lock service: a server, or the pair behind a name. Cheap to clone; holds no connection of its own.
///
/// Its futures run under any executor: connections and timers live on a thread of the client's own.
#[derive(Clone, Debug)]
pub struct Client {
    settings: Arc<Settings>,
}

impl Client {
    /// A client of `servers`: one `host:port`, or several separated by commas.
    ///
    /// # Errors
    ///
    /// [`ConfigError::Server`] for an entry that names no server. Nothing is looked up or connected to yet.
    pub fn new(servers: &str) -> Result<Self, ConfigError> {
        Self::builder(servers).build()
    }

    /// Settings beyond the list of servers.
    pub fn builder(servers: &str) -> ClientBuilder {
        ClientBuilder {
            servers: servers.to_owned(),
            dns_servers: Vec::new(),
            connect_timeout: CONNECT_TIMEOUT,
            tls: None,
        }
    }

    /// Waits until `lock` is granted, runs `work` for exactly as long as the server confirms the grant, and releases the
    /// lock when the work has returned. One attempt; see [`Claim::run`].
    ///
    /// # Errors
    ///
    /// [`RunError::Acquire`] if the work never ran, [`RunError::Work`] if it failed, [`RunError::Lost`] if the lock was
    /// lost before it returned.
    pub async fn run<T, E, W, F>(&self, lock: &str, lease: Duration, work: W) -> Result<T, RunError<E>>
    where
        W: FnOnce(Grant) -> F,
        F: Future<Output = Result<T, E>>,
    {
        self.claim(lock, lease).run(work).await
    }

    /// As [`run`](Self::run), but keeps trying to acquire the lock; see [`Claim::run_with_retry`].
    ///
    /// # Errors
    ///
    /// As [`run`](Self::run); [`RunError::Acquire`] only for what another attempt cannot mend.
    pub async fn run_with_retry<T, E, W, F>(
        &self,
        lock: &str,
        lease: Duration,
        work: W,
    ) -> Result<T, RunError<E>>
    where
        W: FnOnce(Grant) -> F,
        F: Future<Output = Result<T, E>>,
    {
        self.claim(lock, lease).run_with_retry(work).await
    }

    /// Waits until `lock` is granted. One attempt; see [`Claim::acquire`].
    ///
    /// # Errors
    ///
    /// Why the lock was not granted.
    pub async fn acquire(&self, lock: &str, lease: Duration) -> Result<Guard, AcquireError> {
        self.claim(lock, lease).acquire().await
    }

    /// Takes `lock` if nobody holds it; `None` if somebody does.
    ///
    /// # Errors
    ///
    /// Why it is not known whether somebody holds it, or why the claim was refused.
    pub async fn try_lock(&self, lock: &str, lease: Duration) -> Result<Option<Guard>, AcquireError> {
        match self.claim(lock, lease).without_waiting().acquire().await {
            Ok(guard) => Ok(Some(guard)),
            Err(AcquireError::WouldQueue) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Prepares a claim with further wishes: a limit to the wait, a signal to stop, a grace for the work.
    ///
    /// The lease is how long the lock may sit behind a dead holder before it moves on; the work may take as long as it
    /// likes. Name and lease are checked when the claim is made.
    pub fn claim(&self, lock: &str, lease: Duration) -> Claim {
        Claim {
            settings: Arc::clone(&self.settings),
            lock: lock.to_owned(),
            lease,
            may_queue: true,
            wait_limit: None,
            stop: CancellationToken::new(),
            lost_grace: Duration::ZERO,
        }
    }
}

/// Settings of a [`Client`].
#[derive(Clone, Debug)]
#[must_use]
pub struct ClientBuilder {
    servers: String,
    dns_servers: Vec<SocketAddr>,
    connect_timeout: Duration,
    tls: Option<Tls>,
}

impl ClientBuilder {
    /// Looks names up at these DNS servers instead of the system's. The hosts file still comes first.
    pub fn dns_servers(mut self, servers: Vec<SocketAddr>) -> Self {
        self.dns_servers = servers;
        self
    }

    /// Gives each address this long for TCP and TLS before the next one is tried; 2 s by default.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// Speaks TLS.
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// The client. Reads the certificates once, so that a mistake shows at once.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] says which setting is wrong.
    pub fn build(self) -> Result<Client, ConfigError> {
        let servers = Endpoint::parse_list(&self.servers)?;
        if let Some(tls) = &self.tls {
            tls.load()?;
        }
        Ok(Client {
            settings: Arc::new(Settings {
                servers,
                dns_servers: self.dns_servers,
                connect_timeout: self.connect_timeout,
                tls: self.tls,
                last_good: Mutex::new(None),
                last_loss: Arc::default(),
            }),
        })
    }
}

/// A claim to be made; see [`Client::claim`].
#[derive(Clone, Debug)]
#[must_use = "a claim is made by acquire or run"]
pub struct Claim {
    settings: Arc<Settings>,
    lock: String,
    lease: Duration,
    may_queue: bool,
    wait_limit: Option<Duration>,
    stop: CancellationToken,
    lost_grace: Duration,
}

impl Claim {
    /// Gives up with [`AcquireError::WouldQueue`] if another client holds the lock.
    pub fn without_waiting(mut self) -> Self {
        self.may_queue = false;
        self
    }

    /// Gives up with [`AcquireError::WaitLimit`] if the lock is not granted within `limit`, counted from the call, over
    /// all attempts.
    pub fn wait_limit(mut self, limit: Duration) -> Self {
        self.wait_limit = Some(limit);
        self
    }

    /// Stops gracefully once `stop` is cancelled: a claim that still waits gives up with [`AcquireError::Stopped`]; work
    /// that runs learns of it by [`Grant::cancelled`] and keeps the lock until it has returned.
    pub fn stop_on(mut self, stop: CancellationToken) -> Self {
        self.stop = stop;
        self
    }

    /// Lets work whose lock is lost go on for at most `grace` before it is dropped, to clean up. It never gets more than
    /// is safe: after silence the rest of the lease on the server, nothing once the server has ended the session. By
    /// default the work is dropped at once.
    pub fn lost_grace(mut self, grace: Duration) -> Self {
        self.lost_grace = grace;
        self
    }

    /// Waits until the lock is granted. One attempt: every address of every server is asked once.
    ///
    /// Dropping the future leaves neither a waiter nor a grant behind.
    ///
    /// # Errors
    ///
    /// Why the lock was not granted.
    pub async fn acquire(self) -> Result<Guard, AcquireError> {
        self.pursue(false).await
    }

    /// As [`acquire`](Self::acquire), but tries again after a failure that can pass: with exponential backoff from 100 ms
    /// to 5 s with jitter, at once when the server was shutting down. Each attempt is a new place at the end of the queue.
    ///
    /// A client that has just lost a claim first waits up to a quarter of the lease, at most 500 ms: those who lost their
    /// server with it do not all come back at the same moment.
    ///
    /// # Errors
    ///
    /// What another attempt cannot mend, the wait limit, or the wish to stop.
    pub async fn acquire_with_retry(self) -> Result<Guard, AcquireError> {
        self.pursue(true).await
    }

    /// Acquires the lock as [`acquire`](Self::acquire) does and runs `work` while it is held.
    ///
    /// Once the lock is lost the work is dropped, at its next await point: blocking work must ask
    /// [`Grant::token`] before each write. Dropping the returned future drops the work first and then releases the lock.
    ///
    /// # Errors
    ///
    /// [`RunError::Acquire`] if the work never ran, [`RunError::Work`] if it failed, [`RunError::Lost`] if the lock was
    /// lost before it returned.
    pub async fn run<T, E, W, F>(self, work: W) -> Result<T, RunError<E>>
    where
        W: FnOnce(Grant) -> F,
        F: Future<Output = Result<T, E>>,
    {
        let grace = self.lost_grace;
        hold(self.acquire().await?, grace, work).await
    }

    /// Acquires the lock as [`acquire_with_retry`](Self::acquire_with_retry) does and runs `work` while it is held. Only
    /// the acquisition is tried again: the work runs at most once.
    ///
    /// # Errors
    ///
    /// As [`run`](Self::run).
    pub async fn run_with_retry<T, E, W, F>(self, work: W) -> Result<T, RunError<E>>
    where
        W: FnOnce(Grant) -> F,
        F: Future<Output = Result<T, E>>,
    {
        let grace = self.lost_grace;
        hold(self.acquire_with_retry().await?, grace, work).await
    }

    async fn pursue(self, may_retry: bool) -> Result<Guard, AcquireError> {
        let request = Request {
            lock: LockName::new(&self.lock)?,
            lease: Lease::from_duration(self.lease)?,
            may_queue: self.may_queue,
            may_retry,
            wait_limit: self.wait_limit,
            stop: self.stop,
        };
        let background = background().map_err(AcquireError::Background)?;
        let (sender, receiver) = oneshot::channel();
        let pursuit = pursue_and_drive(Arc::clone(&background), self.settings, request, sender);
        let pursuit = AbortOnDropHandle::new(background.runtime.spawn(pursuit));
        let result = receiver.await.unwrap_or_else(|_| {
            let died = io::Error::other("the task that pursued the claim has died");
            Err(AcquireError::Background(died))
        });
        if result.is_ok() {
            pursuit.detach();
        }
        result
    }
}

/// The whole life of a claim on the background thread. A guard that nobody receives any more releases its lock when the
/// channel drops it.
async fn pursue_and_drive(
    background: Arc<Background>,
    settings: Arc<Settings>,
    request: Request,
    sender: oneshot::Sender<Result<Guard, AcquireError>>,
) {
    let mut driver = match pursue(&background, &settings, &request).await {
        Ok(driver) => driver,
        Err(error) => {
            let _ = sender.send(Err(error));
            return;
        }
    };
    let guard = Guard::new(Grant {
        live: Arc::clone(&driver.live),
        stop: request.stop,
    });
    let _ = sender.send(Ok(guard));
    while !matches!(driver.next().await, Progress::Ended(_)) {}
}

/// Runs the work under the guard. The guard is declared before the work, so it is dropped after it.
async fn hold<T, E, W, F>(guard: Guard, grace: Duration, work: W) -> Result<T, RunError<E>>
where
    W: FnOnce(Grant) -> F,
    F: Future<Output = Result<T, E>>,
{
    let grant = guard.grant();
    let mut work = pin!(work(grant.clone()));
    // The loss is looked at first in every poll: work that was frozen does not take one more step.
    let cause = tokio::select! {
        biased;
        cause = grant.lost() => cause,
        result = &mut work => match grant.token() {
            Ok(_) => return result.map_err(RunError::Work),
            Err(cause) => return Err(RunError::Lost { cause, work: result.err() }),
        },
    };
    let work = within_grace(&grant, grace, work).await.and_then(Result::err);
    Err(RunError::Lost { cause, work })
}

async fn within_grace<O>(grant: &Grant, grace: Duration, work: impl Future<Output = O>) -> Option<O> {
    let deadline = grant.safe_until().min(boot_now() + grace);
    if deadline <= boot_now() {
        return None;
    }
    let timers = background().ok()?.timers.clone();
    tokio::select! {
        biased;
        () = timers.sleep_until(deadline) => None,
        output = work => Some(output),
    }
}

const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
