//! Starting and stopping a server.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use monolock_core::{LockTable, TokenSource};
use monolock_protocol::BootInstant;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::acl_file::AclFile;
use crate::audit::{self, AuditLog};
use crate::clock::now;
use crate::config::{Config, SettingError};
use crate::handle::ServerHandle;
use crate::metrics::Metrics;
use crate::owner::Owner;
use crate::tls::Tls;
use crate::token_file::{self, TokenFile};
use crate::{admin, listener, ops};

/// Whether a server serves from the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartGate {
    /// A server without a pair.
    Open,
    /// A node of a pair: it answers `ERROR 03` until its gate is opened for a term.
    Shut,
}

/// Why a server did not start. Nothing is left behind.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A setting has a value that cannot be used.
    #[error(transparent)]
    Setting(#[from] SettingError),
    /// An address could not be bound.
    #[error("{setting}: cannot listen on {address}: {source}")]
    Bind {
        /// The setting with the address.
        setting: &'static str,
        /// The address.
        address: String,
        /// What the system said.
        source: io::Error,
    },
}

/// Routes that an embedding program adds.
#[derive(Clone, Debug, Default)]
pub struct ExtraRoutes {
    /// Beside `/metrics`, `/healthz` and `/readyz`.
    pub ops: Router,
    /// Beside the admin API, behind the same checks.
    pub admin: Router,
}

/// A running server. Dropping it stops it without ceremony; see [`Server::shutdown`].
pub struct Server {
    shared: Arc<Shared>,
    accepting: JoinHandle<()>,
    timer: JoinHandle<()>,
    reserving: Option<JoinHandle<()>>,
    http: Vec<JoinHandle<()>>,
    http_stopping: CancellationToken,
}

/// What every task of one server shares.
pub(crate) struct Shared {
    pub(crate) owner: Owner,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) config: Config,
    pub(crate) io_timeout: Duration,
    pub(crate) tls: Option<Tls>,
    pub(crate) acl: Option<AclFile>,
    pub(crate) started: BootInstant,
    pub(crate) addresses: Addresses,
    pub(crate) stopping: CancellationToken,
    pub(crate) connections: TaskTracker,
    pub(crate) ready: AtomicBool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Addresses {
    pub(crate) lock: SocketAddr,
    pub(crate) ops: Option<SocketAddr>,
    pub(crate) admin: Option<SocketAddr>,
}

impl Shared {
    pub(crate) fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Relaxed) && self.owner.report().serving
    }

    pub(crate) fn reload(&self) {
        let reloads = [
            ("certificates", self.tls.as_ref().map(Tls::reload)),
            ("access rules", self.acl.as_ref().map(AclFile::reload)),
            ("audit log", self.owner.audit().map(AuditLog::reopen)),
        ];
        for (what, reloaded) in reloads {
            match reloaded {
                None => {}
                Some(Ok(())) => tracing::info!(what, "reloaded"),
                Some(Err(error)) => tracing::error!(what, %error, "not reloaded: the old state stays"),
            }
        }
    }
}

impl Server {
    /// Binds, loads and starts. Must be called within a tokio runtime with I/O and time enabled.
    ///
    /// # Errors
    ///
    /// [`StartError`]: names the setting; nothing is left running.
    pub async fn start(config: Config, gate: StartGate) -> Result<Self, StartError> {
        Self::start_with_routes(config, gate, |_| ExtraRoutes::default()).await
    }

    /// As [`Server::start`], with routes of the embedding program.
    ///
    /// # Errors
    ///
    /// As [`Server::start`].
    pub async fn start_with_routes(
        config: Config,
        gate: StartGate,
        routes: impl FnOnce(ServerHandle) -> ExtraRoutes,
    ) -> Result<Self, StartError> {
        let metrics = Arc::new(Metrics::new());
        let tls = config.tls.as_ref().map(Tls::load).transpose()?;
        let acl = config.acl_file.as_deref().map(AclFile::load).transpose()?;
        let listeners = Listeners::bind(&config)?;
        let dropped = &metrics.audit_dropped;
        let audit = config
            .audit_log
            .as_ref()
            .map(|target| AuditLog::open(target, dropped.clone()))
            .transpose()?;
        let (table, token_file, follow_capacity) = match gate {
            StartGate::Open => {
                let (tokens, file) = first_tokens(&config)?;
                (LockTable::always_open(tokens), file, 1)
            }
            StartGate::Shut if config.token_file.is_some() => {
                let problem = "a node of a pair reserves its tokens by its state file and its authority: leave it empty";
                return Err(SettingError::new("MONOLOCK_TOKEN_FILE", problem).into());
            }
            StartGate::Shut => (LockTable::with_gate_shut(now()), None, FOLLOW_CAPACITY),
        };
        let shared = Arc::new(Shared {
            owner: Owner::new(table, Arc::clone(&metrics), audit, follow_capacity),
            metrics,
            io_timeout: config.io_timeout,
            tls,
            acl,
            started: monolock_clock::boot_now(),
            addresses: listeners.addresses()?,
            stopping: CancellationToken::new(),
            connections: TaskTracker::new(),
            ready: AtomicBool::new(true),
            config,
        });
        let reserving = token_file.map(|file| {
            let asked = shared.owner.reservations();
            tokio::spawn(token_file::keep_reserving(file, asked, Arc::clone(&shared)))
        });
        let routes = routes(ServerHandle {
            shared: Arc::clone(&shared),
        });
        Ok(Self::run(shared, listeners, routes, reserving))
    }

    fn run(
        shared: Arc<Shared>,
        listeners: Listeners,
        routes: ExtraRoutes,
        reserving: Option<JoinHandle<()>>,
    ) -> Self {
        let http_stopping = CancellationToken::new();
        let mut http = Vec::new();
        if let Some(listener) = listeners.ops {
            let router = ops::router(Arc::clone(&shared)).merge(routes.ops);
            http.push(serve_http(listener, router, http_stopping.clone()));
        }
        if let Some(listener) = listeners.admin {
            let router = admin::router(Arc::clone(&shared), routes.admin);
            http.push(serve_http(listener, router, http_stopping.clone()));
        }
        let accepting = tokio::spawn(listener::accept_loop(listeners.lock, Arc::clone(&shared)));
        let timer = tokio::spawn({
            let shared = Arc::clone(&shared);
            async move { tokio::join!(shared.owner.run_timer(), stay_the_next_timer(shared.io_timeout)).0 }
        });
        let Addresses { lock, ops, admin } = shared.addresses;
        tracing::info!(address = %lock, "listening");
        for (what, address) in [("ops", ops), ("admin", admin)] {
            if let Some(address) = address {
                tracing::info!(%address, what, "listening for HTTP");
            }
        }
        if let Some(address) = admin
            && !address.ip().is_loopback()
        {
            tracing::warn!(%address, "whoever reaches the admin address may release any lock");
        }
        Self {
            shared,
            accepting,
            timer,
            reserving,
            http,
            http_stopping,
        }
    }

    /// A handle for the embedding program.
    #[must_use]
    pub fn handle(&self) -> ServerHandle {
        ServerHandle {
            shared: Arc::clone(&self.shared),
        }
    }

    /// Stops: `/readyz` says so at once, every session gets `ERROR 01` and a bounded time to read it, ended
    /// ownerships are recorded, and the operational endpoints close last.
    pub async fn shutdown(mut self) {
        tracing::info!("shutting down");
        self.shared.stopping.cancel();
        self.shared.owner.step(LockTable::handle_shutdown);
        self.shared.connections.close();
        let limit = self.shared.io_timeout.min(LONGEST_GOODBYE);
        if tokio::time::timeout(limit, self.shared.connections.wait())
            .await
            .is_err()
        {
            let left = self.shared.connections.len();
            tracing::warn!(left, "closing connections that did not take their goodbye");
        }
        self.flush_audit(limit).await;
        self.http_stopping.cancel();
        for server in std::mem::take(&mut self.http) {
            // A scrape that never ends must not keep the process alive.
            drop(tokio::time::timeout(LAST_SCRAPE, server).await);
        }
    }

    async fn flush_audit(&self, limit: Duration) {
        let Some(audit) = self.shared.owner.audit().cloned() else {
            return;
        };
        let flushed = tokio::task::spawn_blocking(move || audit.flush(limit)).await;
        if !flushed.unwrap_or(false) {
            tracing::error!("the audit log could not be written to its end");
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.stopping.cancel();
        self.http_stopping.cancel();
        // Nothing more is granted in the name of a server that is gone, and its sessions end.
        self.shared.owner.step(LockTable::handle_shutdown);
        self.accepting.abort();
        self.timer.abort();
        if let Some(reserving) = &self.reserving {
            reserving.abort();
        }
    }
}

/// Setting the runtime's next timer wakes the thread that waits for it. The timeouts of all connections are equally long,
/// so one timer that is always nearer spares each claim that wake-up. Never returns.
async fn stay_the_next_timer(io_timeout: Duration) {
    loop {
        tokio::time::sleep((io_timeout / 2).max(TIMER_RESOLUTION)).await;
    }
}

/// Loads every file that the settings name, as a start would, without serving anything.
///
/// # Errors
///
/// [`SettingError`] names the first setting whose file cannot be used.
pub fn check_files(config: &Config) -> Result<(), SettingError> {
    config.tls.as_ref().map(Tls::load).transpose()?;
    config.acl_file.as_deref().map(AclFile::load).transpose()?;
    config.audit_log.as_ref().map(audit::check).transpose()?;
    config.token_file.as_deref().map(token_file::check).transpose()?;
    Ok(())
}

fn first_tokens(config: &Config) -> Result<(TokenSource, Option<TokenFile>), SettingError> {
    match config.token_file.as_deref() {
        None => Ok((TokenSource::after_restart(now()), None)),
        Some(path) => {
            let (file, tokens) = TokenFile::open(path, now())?;
            Ok((tokens, Some(file)))
        }
    }
}

struct Listeners {
    lock: TcpListener,
    ops: Option<TcpListener>,
    admin: Option<TcpListener>,
}

impl Listeners {
    fn bind(config: &Config) -> Result<Self, StartError> {
        let optional = |setting, address: &Option<String>| {
            address
                .as_deref()
                .map(|address| bind(setting, address))
                .transpose()
        };
        Ok(Self {
            lock: bind("MONOLOCK_LISTEN_ADDRESS", &config.listen)?,
            ops: optional("MONOLOCK_OPS_LISTEN_ADDRESS", &config.ops_listen)?,
            admin: optional("MONOLOCK_ADMIN_LISTEN_ADDRESS", &config.admin_listen)?,
        })
    }

    fn addresses(&self) -> Result<Addresses, StartError> {
        let local = |setting, listener: &TcpListener| {
            listener.local_addr().map_err(|source| StartError::Bind {
                setting,
                address: String::new(),
                source,
            })
        };
        let optional = |setting, listener: &Option<TcpListener>| {
            listener
                .as_ref()
                .map(|listener| local(setting, listener))
                .transpose()
        };
        Ok(Addresses {
            lock: local("MONOLOCK_LISTEN_ADDRESS", &self.lock)?,
            ops: optional("MONOLOCK_OPS_LISTEN_ADDRESS", &self.ops)?,
            admin: optional("MONOLOCK_ADMIN_LISTEN_ADDRESS", &self.admin)?,
        })
    }
}

fn bind(setting: &'static str, address: &str) -> Result<TcpListener, StartError> {
    listener::bind(address).map_err(|source| StartError::Bind {
        setting,
        address: address.to_owned(),
        source,
    })
}

fn serve_http(listener: TcpListener, router: Router, stopping: CancellationToken) -> JoinHandle<()> {
    tokio::spawn(async move {
        let served = axum::serve(listener, router).with_graceful_shutdown(stopping.cancelled_owned());
        if let Err(error) = served.await {
            tracing::error!(%error, "an HTTP listener failed");
        }
    })
}

/// How far a standby may fall behind before it has to start from a new snapshot, in events.
const FOLLOW_CAPACITY: usize = 16_384;

/// How long sessions may take to read their goodbye, however long the I/O timeout is.
const LONGEST_GOODBYE: Duration = Duration::from_secs(5);

const LAST_SCRAPE: Duration = Duration::from_secs(1);

/// Of the runtime.
const TIMER_RESOLUTION: Duration = Duration::from_millis(1);
