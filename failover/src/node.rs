//! One running node: the watchdog, and the hands and ears around it.
//!
//! Everything that decides is in [`monolock_failover_core`]. Here, one task owns the watchdog: it feeds it what happens,
//! with the time it happened, and performs what comes out, in order. Whatever takes time (the witness, the peer, the
//! disk, the lock table) runs in tasks of its own and comes back as an input, so that nothing can keep the watchdog
//! from seeing that its authority has lapsed. The gate of the lock server checks that deadline by itself, too.
//!
//! All of it runs on threads of its own: the sessions of a lock table that is stuck can block every other one.

use std::sync::Arc;

use monolock_clock::boot_now;
use monolock_failover_core::{Config, Incarnation, NodeState, Watchdog};
use monolock_server::{ExtraRoutes, Server, ServerHandle, StartError, StartGate};
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::admin::{self, PairView};
use crate::clock::NodeClock;
use crate::config::{FollowMode, NodeConfig};
use crate::dns::{DnsListenError, NameKeeper, NameProgress, ServiceState};
use crate::journal::{Journal, JournalError};
use crate::metrics::PairMetrics;
use crate::peer::{ListenError, PeerCall, PeerClient, PeerServer, Sender};
use crate::state_file::{StateFile, StateFileError};
use crate::witness::{self, Witness, WitnessError};

mod confirm;
mod driver;
mod feed;
mod own_runtime;
mod peer_watch;
mod perform;
mod reasons;
mod table;

use driver::Driver;
use own_runtime::OwnRuntime;
use table::Table;

/// Why a node does not start. Nothing is left running.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NodeError {
    /// The lock server inside.
    #[error(transparent)]
    Server(#[from] StartError),
    /// The peer link.
    #[error(transparent)]
    PeerLink(#[from] ListenError),
    /// The embedded DNS server.
    #[error(transparent)]
    Dns(#[from] DnsListenError),
    /// The state file.
    #[error(transparent)]
    StateFile(#[from] StateFileError),
    /// The witness.
    #[error("MONOLOCK_WITNESS: {0}")]
    Witness(#[from] WitnessError),
    /// The journal.
    #[error("MONOLOCK_JOURNAL: {0}")]
    Journal(#[from] JournalError),
    /// The system gave no threads.
    #[error("the system gives no thread of its own to the node: {0}")]
    NoThread(#[source] std::io::Error),
    /// The system gave no randomness.
    #[error("the system has no random number to tell this life of the node from others")]
    NoRandomness,
}

/// A node with everything bound and its gate shut; it starts to watch in [`Node::run`].
pub struct Node {
    own: OwnRuntime,
    server: Server,
    watching: Watching,
}

/// Everything but the lock server, on threads of its own.
struct Watching {
    peer_server: PeerServer,
    dns: Option<NameKeeper>,
    driver: Driver,
    inputs: mpsc::Receiver<driver::Input>,
    calls_in: mpsc::Sender<PeerCall>,
    calls: mpsc::Receiver<PeerCall>,
    name: watch::Receiver<ServiceState>,
    name_progress: watch::Sender<NameProgress>,
}

/// What is open before anything runs.
struct Bound {
    config: NodeConfig,
    incarnation: Incarnation,
    state_file: StateFile,
    state: NodeState,
    journal: Journal,
    witness: Option<Arc<dyn Witness>>,
    peer_server: PeerServer,
    dns: Option<NameKeeper>,
}

impl Node {
    /// Opens the state file and the witness, and binds every listener.
    ///
    /// # Errors
    ///
    /// [`NodeError`] names what could not be had.
    pub async fn start(config: NodeConfig) -> Result<Self, NodeError> {
        let own = OwnRuntime::new().map_err(NodeError::NoThread)?;
        let bound = own.run(Bound::bind(config)).await?;
        let (calls_in, calls) = mpsc::channel(CALLS_AHEAD);
        let view = bound.view(calls_in.clone());
        let routes = |_| ExtraRoutes {
            admin: admin::routes(view),
            ..ExtraRoutes::default()
        };
        let server = Server::start_with_routes(bound.config.server.clone(), StartGate::Shut, routes).await?;
        let handle = server.handle();
        if bound.config.follow == FollowMode::Sync {
            handle.confirm_grants(bound.config.timing.ttl() * LONGEST_CONFIRMATION);
        }
        let watching = own
            .run(async move { Watching::over(bound, handle, calls_in, calls) })
            .await?;
        Ok(Self {
            own,
            server,
            watching,
        })
    }

    /// Watches, serves and answers until `stop` is cancelled; then hands over or releases its term, tells its sessions,
    /// and closes its listeners, the name and the peer link last.
    pub async fn run(self, stop: CancellationToken) {
        let Self {
            own,
            server,
            watching,
        } = self;
        let close = CancellationToken::new();
        let (gave_up_in, gave_up) = oneshot::channel();
        let watching = own.run(watching.run(stop, gave_up_in, close.clone()));
        let serving = async {
            // A watchdog that is gone without a word has nothing to give up either.
            let _ = gave_up.await;
            server.shutdown().await;
            close.cancel();
        };
        tokio::join!(watching, serving);
    }

    /// The lock server inside, for the program that embeds the node.
    #[must_use]
    pub fn server(&self) -> &Server {
        &self.server
    }
}

impl Bound {
    async fn bind(config: NodeConfig) -> Result<Self, NodeError> {
        let incarnation = draw_incarnation()?;
        let (state_file, state) = StateFile::open(&config.state_file)?;
        let journal = Journal::open(config.node, config.journal.as_deref())?;
        let witness = open_witness(&config).await?;
        let credentials = config.link.credentials.clone();
        let peer_server = PeerServer::bind(config.link.listen, config.node, credentials).await?;
        let dns = match &config.dns {
            Some(dns) => Some(NameKeeper::start(dns).await?),
            None => None,
        };
        Ok(Self {
            config,
            incarnation,
            state_file,
            state,
            journal,
            witness,
            peer_server,
            dns,
        })
    }

    fn peer_as(&self, from: Sender) -> PeerClient {
        let link = &self.config.link;
        PeerClient::new(
            link.peer.clone(),
            from,
            self.config.node.peer(),
            link.credentials.clone(),
        )
    }

    fn view(&self, calls: mpsc::Sender<PeerCall>) -> PairView {
        PairView {
            node: self.config.node,
            own_address: self.peer_server.local_addr().to_string(),
            calls,
            peer: self.peer_as(Sender::Operator).with_time_limit(admin::TIME_LIMIT),
        }
    }
}

impl Watching {
    fn over(
        bound: Bound,
        server: ServerHandle,
        calls_in: mpsc::Sender<PeerCall>,
        calls: mpsc::Receiver<PeerCall>,
    ) -> Result<Self, NodeError> {
        let peer = bound
            .peer_as(Sender::Node(bound.config.node))
            .with_time_limit(bound.config.timing.ttl() / 2);
        let Bound {
            config,
            incarnation,
            state_file,
            state,
            journal,
            witness,
            peer_server,
            dns,
        } = bound;
        let metrics = PairMetrics::register(server.metrics_registry());
        let watchdog_config = Config {
            node: config.node,
            incarnation,
            timing: config.timing,
            fast_takeover: config.fast_takeover,
            no_witness: config.no_witness(),
        };
        if let Some(setting) = config.no_witness() {
            server.keep_for_counting(setting.reserve.as_secs());
        }
        let table = Table::of(server.clone()).map_err(NodeError::NoThread)?;
        let watchdog = Watchdog::new(watchdog_config, state, boot_now());
        let clock = NodeClock::new(config.clock.clone());
        let (inputs_in, inputs) = mpsc::channel(INPUTS_AHEAD);
        let (name_in, name) = watch::channel(ServiceState::default());
        let (name_progress, name_seen) = watch::channel(NameProgress::default());
        for warning in config.warnings() {
            tracing::warn!("{warning}");
        }
        tracing::info!(
            node = %config.node, %incarnation, ttl = ?config.timing.ttl(),
            self_fencing_margin = ?config.timing.self_fencing_margin(), peer_link = %peer_server.local_addr(),
            dns = dns.as_ref().and_then(NameKeeper::local_addr).map(|address| address.to_string()), "watching as standby"
        );
        let driver = Driver::new(driver::Parts {
            config: Arc::new(config),
            incarnation,
            watchdog,
            server,
            table,
            peer: Arc::new(peer),
            clock: Arc::new(clock),
            witness,
            state_file,
            journal,
            inputs: inputs_in,
            name: name_in,
            name_progress: name_seen,
            metrics: Arc::new(metrics),
        });
        Ok(Self {
            peer_server,
            dns,
            driver,
            inputs,
            calls_in,
            calls,
            name,
            name_progress,
        })
    }

    /// Says when the term is given up, and closes the listeners when it is told to.
    async fn run(self, stop: CancellationToken, gave_up: oneshot::Sender<()>, close: CancellationToken) {
        let listeners = TaskTracker::new();
        listeners.spawn(self.peer_server.serve(self.calls_in, close.clone()));
        if let Some(dns) = self.dns {
            listeners.spawn(dns.serve(self.name, self.name_progress, close));
        }
        self.driver.run(self.inputs, self.calls, stop).await;
        // The server waits for it, unless it is gone.
        let _ = gave_up.send(());
        listeners.close();
        listeners.wait().await;
    }
}

async fn open_witness(config: &NodeConfig) -> Result<Option<Arc<dyn Witness>>, NodeError> {
    let Some(witness) = witness::open(&config.witness, config.timing.ttl() / 2)? else {
        return Ok(None);
    };
    match witness.read().await {
        Ok(_) => {}
        // A node that comes back while the witness is away is still a voice for its peer.
        Err(error @ WitnessError::Unreachable { .. }) => {
            tracing::warn!(%error, "starting without the witness")
        }
        Err(error @ (WitnessError::Refused { .. } | WitnessError::NotARecord { .. })) => {
            return Err(error.into());
        }
    }
    Ok(Some(witness))
}

fn draw_incarnation() -> Result<Incarnation, NodeError> {
    use ring::rand::{SecureRandom as _, SystemRandom};
    let mut bytes = [0; 8];
    SystemRandom::new()
        .fill(&mut bytes)
        .map_err(|_| NodeError::NoRandomness)?;
    Ok(Incarnation(u64::from_be_bytes(bytes)))
}

/// Outcomes and lines of the follow stream that may wait for the watchdog.
const INPUTS_AHEAD: usize = 1024;
/// Calls of the peer that may wait for the watchdog.
const CALLS_AHEAD: usize = 64;

/// How many authority periods a grant waits for the standby. An active that serves has renewed within the last of them, so
/// after two the standby has seen it live on without a line of the stream: its takeover holds every lock back.
const LONGEST_CONFIRMATION: u32 = 2;
