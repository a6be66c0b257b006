//! From a request to a grant: addresses in turn, attempts in turn, within the limits the caller set.
//!
//! All of it runs on the background thread. Dropping the future at any point closes whatever connection it has: no
//! waiter and no grant is left behind.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use monolock_client_core::backoff::Backoff;
use monolock_clock::boot_now;
use monolock_protocol::{BootInstant, ErrorClass, ErrorCode, Lease, LockName};
use tokio_util::sync::CancellationToken;

use crate::address::Endpoint;
use crate::background::Background;
use crate::connect::{ConnectError, connect};
use crate::driver::{Driver, Progress};
use crate::error::{AcquireError, FailureCause, Retry, ServerFailure};
use crate::live::{LastLoss, Live};
use crate::resolve::{ResolveError, resolve};
use crate::session::{Lost, Session};
use crate::sync::lock;
use crate::tls::Tls;

/// The settings of a client.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) servers: Vec<Endpoint>,
    pub(crate) dns_servers: Vec<SocketAddr>,
    pub(crate) connect_timeout: Duration,
    pub(crate) tls: Option<Tls>,
    /// Where the last grant or queue place was had: asked first the next time.
    pub(crate) last_good: Mutex<Option<(Endpoint, SocketAddr)>>,
    pub(crate) last_loss: Arc<LastLoss>,
}

/// What one claim asks for.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) lock: LockName,
    pub(crate) lease: Lease,
    pub(crate) may_queue: bool,
    pub(crate) may_retry: bool,
    pub(crate) wait_limit: Option<Duration>,
    pub(crate) stop: CancellationToken,
}

/// Pursues the claim until it is granted or given up. The driver returned has to be driven on.
pub(crate) async fn pursue(
    background: &Background,
    settings: &Settings,
    request: &Request,
) -> Result<Driver, AcquireError> {
    let limit = request
        .wait_limit
        .map_or(BootInstant::MAX, |limit| boot_now() + limit);
    let last_failure = Mutex::new(None);
    tokio::select! {
        biased;
        () = request.stop.cancelled() => Err(AcquireError::Stopped),
        () = background.timers.sleep_until(limit) => Err(AcquireError::WaitLimit {
            limit: request.wait_limit.unwrap_or_default(),
            last: lock(&last_failure).take(),
        }),
        result = attempts(background, settings, request, &last_failure) => result,
    }
}

async fn attempts(
    background: &Background,
    settings: &Settings,
    request: &Request,
    last_failure: &Mutex<Option<Box<AcquireError>>>,
) -> Result<Driver, AcquireError> {
    if request.may_retry {
        let moment = after_last_loss(settings, request);
        background.timers.sleep_until(moment).await;
    }
    let mut backoff = Backoff::new();
    loop {
        let error = match attempt(background, settings, request).await {
            Ok(driver) => return Ok(driver),
            Err(error) => error,
        };
        let Some(retry) = error.retry().filter(|_| request.may_retry) else {
            return Err(error);
        };
        if matches!(error, AcquireError::QueueLost { .. }) {
            backoff = Backoff::new();
        }
        let wait = match retry {
            Retry::AtOnce => Backoff::at_once(fastrand::f64()),
            Retry::Backoff => backoff.next(fastrand::f64()),
        };
        tracing::warn!(lock = %request.lock, %error, ?wait, "the lock could not be acquired; trying again");
        *lock(last_failure) = Some(Box::new(error));
        background.timers.sleep_until(boot_now() + wait).await;
    }
}

/// When to ask first: whatever took the last claim of this client has taken those of others at the same moment, and they
/// all come back. Long after a loss it is now.
fn after_last_loss(settings: &Settings, request: &Request) -> BootInstant {
    let Some(lost_at) = settings.last_loss.get() else {
        return BootInstant::ZERO;
    };
    let wait = Backoff::after_loss(request.lease.as_duration(), fastrand::f64());
    let wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
    tracing::debug!(name: "after_loss", lock = %request.lock, wait_ms, "asking so long after the last loss, or now");
    lost_at + wait
}

/// Asks each address of each server once, until one of them has taken the claim.
async fn attempt(
    background: &Background,
    settings: &Settings,
    request: &Request,
) -> Result<Driver, AcquireError> {
    let last_good = lock(&settings.last_good).clone();
    let mut failures = Vec::new();
    for endpoint in in_order(&settings.servers, |endpoint| {
        last_good.as_ref().is_some_and(|(good, _)| good == endpoint)
    }) {
        let failure = |address, cause| ServerFailure {
            server: endpoint.to_string(),
            address,
            cause,
        };
        let addresses = match resolve_in_time(background, settings, endpoint).await {
            Ok(addresses) => addresses,
            Err(error) => {
                failures.push(failure(None, error.into()));
                continue;
            }
        };
        for address in in_order(&addresses, |address| {
            last_good.as_ref().is_some_and(|(_, good)| good == address)
        }) {
            match claim_at(background, settings, request, endpoint, *address).await {
                Ok(driver) => return Ok(driver),
                Err(Refusal::AskNext(cause)) => failures.push(failure(Some(*address), cause)),
                Err(Refusal::Final(error)) => return Err(error),
            }
        }
    }
    Err(AcquireError::Unavailable(failures))
}

/// The preferred ones first; otherwise the order stays.
fn in_order<T>(items: &[T], preferred: impl Fn(&T) -> bool) -> impl Iterator<Item = &T> {
    let (first, rest): (Vec<_>, Vec<_>) = items.iter().partition(|item| preferred(item));
    first.into_iter().chain(rest)
}

async fn resolve_in_time(
    background: &Background,
    settings: &Settings,
    endpoint: &Endpoint,
) -> Result<Vec<SocketAddr>, ResolveError> {
    tokio::select! {
        () = background.timers.sleep_until(boot_now() + RESOLVE_TIMEOUT) => {
            Err(ResolveError::Timeout(RESOLVE_TIMEOUT))
        }
        addresses = resolve(endpoint, &settings.dns_servers) => addresses,
    }
}

enum Refusal {
    AskNext(FailureCause),
    Final(AcquireError),
}

async fn claim_at(
    background: &Background,
    settings: &Settings,
    request: &Request,
    endpoint: &Endpoint,
    address: SocketAddr,
) -> Result<Driver, Refusal> {
    let connected = tokio::select! {
        () = background.timers.sleep_until(boot_now() + settings.connect_timeout) => {
            Err(ConnectError::Timeout(settings.connect_timeout))
        }
        connected = connect(background, endpoint, address, request.lease, settings.tls.as_ref()) => connected,
    };
    let (socket, stream) = connected.map_err(|error| Refusal::AskNext(error.into()))?;
    tracing::debug!(name: "connected", lock = %request.lock, server = %address, "connected");
    let session = Session::new(&request.lock, request.lease, boot_now());
    let live = Arc::new(Live::new(
        request.lock.clone(),
        address,
        session,
        socket,
        Arc::clone(&settings.last_loss),
    ));
    let mut driver = Driver::new(live, stream, background.timers.clone());
    let mut first = driver.next().await;
    if !matches!(first, Progress::Ended(_)) {
        *lock(&settings.last_good) = Some((endpoint.clone(), address));
    }
    if matches!(first, Progress::Queued) {
        if !request.may_queue {
            return Err(Refusal::Final(AcquireError::WouldQueue));
        }
        first = match driver.next().await {
            Progress::Ended(cause) => return Err(after_queueing(address, cause)),
            granted => granted,
        };
    }
    match first {
        Progress::Ended(cause) => Err(before_an_answer(address, cause)),
        Progress::Granted(token) => {
            tracing::debug!(lock = %request.lock, %token, server = %address, "granted");
            Ok(driver)
        }
        Progress::Queued => unreachable!("a session is queued only once"),
    }
}

/// Whatever is wrong with this server, another address may have a better one; but a claim that is wrong itself is wrong
/// everywhere.
fn before_an_answer(server: SocketAddr, cause: Lost) -> Refusal {
    match cause {
        Lost::Server { code, reason } if code.class() == ErrorClass::ClientError => {
            Refusal::Final(AcquireError::Refused { server, code, reason })
        }
        cause => Refusal::AskNext(cause.into()),
    }
}

/// The place in the queue is gone. A server that stopped being the active one tells to ask the next.
fn after_queueing(server: SocketAddr, cause: Lost) -> Refusal {
    match cause {
        Lost::Server {
            code: ErrorCode::NotActive,
            ..
        } => Refusal::AskNext(cause.into()),
        cause => Refusal::Final(AcquireError::QueueLost { server, cause }),
    }
}

/// Bounds the search for one name, whatever the resolver's own time-outs add up to.
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(5);
