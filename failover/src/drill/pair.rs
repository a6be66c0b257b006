//! A pair of its own: two real nodes on loopback, with real settings, as processes.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use monolock_failover_core::NodeId;
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};

use super::ports::free_port;
use crate::config::LinkConfig;
use crate::hex;
use crate::journal::JournalLine;
use crate::operator::{self, HandoverError, PairStatus};
use crate::peer::PeerSecret;

/// The name that the clients of a pair know.
pub const SERVICE_NAME: &str = "locks.demo.internal";

/// The pair. Dropping it kills both nodes and waits until they are gone.
#[derive(Debug)]
pub struct Pair {
    program: PathBuf,
    folder: PathBuf,
    addresses: Addresses,
    secret: String,
    a: NodeProcess,
    b: NodeProcess,
}

/// What goes wrong with a pair of one's own.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PairError {
    /// The system did not do something.
    #[error("cannot {what}: {source}")]
    System {
        /// What.
        what: String,
        /// Why not.
        source: io::Error,
    },
    /// No port is left on the two loopback addresses.
    #[error("no port is free on both 127.0.0.1 and 127.0.0.2")]
    NoPort,
    /// The node does not run.
    #[error("node {0} does not run")]
    NotRunning(NodeId),
    /// It did not stop when asked to.
    #[error("node {0} has not stopped within a minute")]
    NotStopped(NodeId),
    /// It stopped with another exit code than 0.
    #[error("node {node} ended with {status}")]
    Ended {
        /// The node.
        node: NodeId,
        /// How it ended.
        status: ExitStatus,
    },
    /// Not one active and one standby that could take its place.
    #[error("the pair has not become healthy within a minute:\n{0}")]
    NotHealthy(Box<PairStatus>),
    /// The active did not hand over.
    #[error(transparent)]
    Handover(#[from] HandoverError),
    /// A line of a journal is no such line.
    #[error("the journal of node {node} cannot be read: {source}")]
    Journal {
        /// The node.
        node: NodeId,
        /// Why not.
        source: serde_json::Error,
    },
}

impl PairError {
    pub(super) fn system(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::System { what, source }
    }
}

#[derive(Debug, Default)]
struct NodeProcess {
    settings: BTreeMap<&'static str, OsString>,
    child: Option<Child>,
}

/// Both nodes use the same ports on loopback addresses of their own, so that one name and one port reach either.
#[derive(Clone, Copy, Debug)]
struct Addresses {
    lock_port: u16,
    peer_port: u16,
    dns_port: u16,
}

pub(super) const fn ip(node: NodeId) -> IpAddr {
    IpAddr::V4(match node {
        NodeId::A => Ipv4Addr::new(127, 0, 0, 1),
        NodeId::B => Ipv4Addr::new(127, 0, 0, 2),
    })
}

impl Pair {
    /// Starts both nodes of `program` with their files in `folder`; the witness is a file there, too, unless another is
    /// given as in `MONOLOCK_WITNESS`.
    ///
    /// # Errors
    ///
    /// When a node cannot be started.
    pub fn start(
        program: &Path,
        folder: &Path,
        ttl: Duration,
        witness: Option<&str>,
    ) -> Result<Self, PairError> {
        let mut pair = Self::prepare(program, folder, ttl)?;
        for node in [NodeId::A, NodeId::B] {
            if let Some(witness) = witness {
                pair.set(node, "MONOLOCK_WITNESS", witness);
            }
            pair.start_node(node)?;
        }
        Ok(pair)
    }

    /// Settings for two nodes that do not run yet, with a file in `folder` as the witness.
    ///
    /// # Errors
    ///
    /// When there are no free ports, or no randomness for the secret of the two.
    pub fn prepare(program: &Path, folder: &Path, ttl: Duration) -> Result<Self, PairError> {
        let mut pair = Self {
            program: program.to_owned(),
            folder: folder.to_owned(),
            addresses: Addresses {
                lock_port: free_port()?,
                peer_port: free_port()?,
                dns_port: free_port()?,
            },
            secret: draw_secret()?,
            a: NodeProcess::default(),
            b: NodeProcess::default(),
        };
        for node in [NodeId::A, NodeId::B] {
            pair.set_defaults(node, ttl);
        }
        Ok(pair)
    }

    fn set_defaults(&mut self, node: NodeId, ttl: Duration) {
        let peer = node.peer();
        let dns = SocketAddr::new(ip(node), self.addresses.dns_port);
        let witness = format!("file:{}", self.folder.join("witness").display());
        let settings: [(_, OsString); 11] = [
            ("MONOLOCK_NODE", node.to_string().into()),
            (
                "MONOLOCK_LISTEN_ADDRESS",
                self.lock_address(node).to_string().into(),
            ),
            (
                "MONOLOCK_PEER_LISTEN_ADDRESS",
                self.link_address(node).to_string().into(),
            ),
            (
                "MONOLOCK_PEER_ADDRESS",
                self.link_address(peer).to_string().into(),
            ),
            (
                "MONOLOCK_PEER_LOCK_ADDRESS",
                self.lock_address(peer).to_string().into(),
            ),
            ("MONOLOCK_PEER_SECRET", self.secret.clone().into()),
            ("MONOLOCK_WITNESS", witness.into()),
            ("MONOLOCK_STATE_FILE", self.file(node, "state").into()),
            ("MONOLOCK_AUTHORITY_TTL", format!("{}ms", ttl.as_millis()).into()),
            ("MONOLOCK_SERVICE_NAME", SERVICE_NAME.into()),
            ("MONOLOCK_DNS_LISTEN_ADDRESS", dns.to_string().into()),
        ];
        for (variable, value) in settings {
            self.set(node, variable, value);
        }
        let journal = self.file(node, "journal");
        self.set(node, "MONOLOCK_JOURNAL", journal);
    }

    /// Sets an environment variable of a node, from its next start on.
    pub fn set(&mut self, node: NodeId, variable: &'static str, value: impl Into<OsString>) {
        self.process(node).settings.insert(variable, value.into());
    }

    /// The environment variables of a node.
    pub fn settings(&self, node: NodeId) -> impl Iterator<Item = (&str, &OsStr)> {
        let process = match node {
            NodeId::A => &self.a,
            NodeId::B => &self.b,
        };
        let settings = process.settings.iter();
        settings.map(|(variable, value)| (*variable, value.as_os_str()))
    }

    /// Starts one node; its log is appended to `NODE.log`.
    ///
    /// # Errors
    ///
    /// When it cannot be started.
    pub fn start_node(&mut self, node: NodeId) -> Result<(), PairError> {
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(self.file(node, "log"))
            .map_err(PairError::system("write a node's log"))?;
        let child = self.command(node).stderr(log).spawn();
        let child = child.map_err(PairError::system(format!("start {}", self.program.display())))?;
        self.process(node).child = Some(child);
        Ok(())
    }

    /// Only the pair's own settings; a group of its own, so that Ctrl-C in a terminal is left to the program that started it.
    fn command(&mut self, node: NodeId) -> Command {
        let mut command = Command::new(&self.program);
        for (variable, _) in std::env::vars_os() {
            if variable.as_encoded_bytes().starts_with(b"MONOLOCK_") {
                command.env_remove(variable);
            }
        }
        command
            .envs(&self.process(node).settings)
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .kill_on_drop(true);
        command
    }

    /// A file of a node's: its `state`, `journal` or `log`.
    #[must_use]
    pub fn file(&self, node: NodeId, what: &str) -> PathBuf {
        self.folder.join(format!("{node}.{what}"))
    }

    fn process(&mut self, node: NodeId) -> &mut NodeProcess {
        match node {
            NodeId::A => &mut self.a,
            NodeId::B => &mut self.b,
        }
    }

    fn take_child(&mut self, node: NodeId) -> Result<Child, PairError> {
        self.process(node).child.take().ok_or(PairError::NotRunning(node))
    }

    /// Ends a node the hard way.
    ///
    /// # Errors
    ///
    /// When it does not run.
    pub async fn kill(&mut self, node: NodeId) -> Result<(), PairError> {
        let mut child = self.take_child(node)?;
        child
            .kill()
            .await
            .map_err(PairError::system(format!("kill node {node}")))
    }

    /// Stops a node in its tracks, without its knowing.
    ///
    /// # Errors
    ///
    /// When it does not run.
    pub fn freeze(&mut self, node: NodeId) -> Result<(), PairError> {
        self.signal(node, Signal::STOP)
    }

    /// Lets a frozen node run on.
    ///
    /// # Errors
    ///
    /// When it does not run.
    pub fn thaw(&mut self, node: NodeId) -> Result<(), PairError> {
        self.signal(node, Signal::CONT)
    }

    /// Asks a node to stop, and waits until it has.
    ///
    /// # Errors
    ///
    /// When it does not run, or does not stop within a minute with exit code 0.
    pub async fn terminate(&mut self, node: NodeId) -> Result<(), PairError> {
        self.signal(node, Signal::TERM)?;
        let mut child = self.take_child(node)?;
        let ended = tokio::time::timeout(PATIENCE, child.wait()).await;
        let status = ended
            .map_err(|_| PairError::NotStopped(node))?
            .map_err(PairError::system(format!("wait for node {node}")))?;
        if status.success() {
            Ok(())
        } else {
            Err(PairError::Ended { node, status })
        }
    }

    /// The process of a node that runs.
    #[must_use]
    pub fn process_id(&self, node: NodeId) -> Option<u32> {
        match node {
            NodeId::A => self.a.child.as_ref()?.id(),
            NodeId::B => self.b.child.as_ref()?.id(),
        }
    }

    fn signal(&mut self, node: NodeId, signal: Signal) -> Result<(), PairError> {
        let id = self.process(node).child.as_ref().and_then(Child::id);
        let pid = id.and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        let pid = pid.ok_or(PairError::NotRunning(node))?;
        kill_process(pid, signal).map_err(|error| PairError::System {
            what: format!("signal node {node}"),
            source: error.into(),
        })
    }

    /// The service's name and port, as a client is told.
    #[must_use]
    pub fn server(&self) -> String {
        format!("{SERVICE_NAME}:{}", self.addresses.lock_port)
    }

    /// The two DNS servers that answer for the name.
    #[must_use]
    pub fn dns_servers(&self) -> Vec<SocketAddr> {
        [NodeId::A, NodeId::B]
            .map(|node| SocketAddr::new(ip(node), self.addresses.dns_port))
            .into()
    }

    /// Where one node serves locks while it is active.
    #[must_use]
    pub fn lock_address(&self, node: NodeId) -> SocketAddr {
        SocketAddr::new(ip(node), self.addresses.lock_port)
    }

    /// Where one node answers its peer.
    #[must_use]
    pub fn link_address(&self, node: NodeId) -> SocketAddr {
        SocketAddr::new(ip(node), self.addresses.peer_port)
    }

    fn link(&self) -> LinkConfig {
        LinkConfig {
            listen: self.link_address(NodeId::A),
            peer: self.link_address(NodeId::B).into(),
            credentials: Some(PeerSecret::new(&self.secret).expect("it is longer than 16 bytes")).into(),
        }
    }

    /// How both nodes stand.
    pub async fn status(&self) -> PairStatus {
        PairStatus::ask(NodeId::A, &self.link()).await
    }

    /// Waits until one node serves and the other could take its place.
    ///
    /// # Errors
    ///
    /// When that does not come true within a minute.
    pub async fn wait_until_healthy(&self) -> Result<(NodeId, PairStatus), PairError> {
        let waiting = async {
            loop {
                let status = self.status().await;
                if let (true, Some(active)) = (status.is_healthy(), status.active()) {
                    return (active, status);
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        match tokio::time::timeout(PATIENCE, waiting).await {
            Ok(healthy) => Ok(healthy),
            Err(_) => Err(PairError::NotHealthy(Box::new(self.status().await))),
        }
    }

    /// Hands over on purpose.
    ///
    /// # Errors
    ///
    /// When the active has not handed over.
    pub async fn hand_over(&self) -> Result<(), PairError> {
        operator::hand_over(NodeId::A, &self.link()).await?;
        Ok(())
    }

    /// Extends the reserve of an active without a witness; returns how many grants it had left.
    ///
    /// # Errors
    ///
    /// [`PairError::Handover`] when no active has done it.
    pub async fn extend_reserve(&self) -> Result<u64, PairError> {
        Ok(operator::extend_reserve(NodeId::A, &self.link()).await?)
    }

    /// The steps that a node has written down; the last line may still be in the writing, and is left out then.
    ///
    /// # Errors
    ///
    /// When its journal cannot be read.
    pub fn journal(&self, node: NodeId) -> Result<Vec<JournalLine>, PairError> {
        let path = self.file(node, "journal");
        let text =
            std::fs::read_to_string(&path).map_err(PairError::system(format!("read {}", path.display())))?;
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        let parse = |line| serde_json::from_str(line);
        whole
            .lines()
            .map(parse)
            .collect::<Result<_, _>>()
            .map_err(|source| PairError::Journal { node, source })
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        let mut children: Vec<_> = [self.a.child.take(), self.b.child.take()]
            .into_iter()
            .flatten()
            .collect();
        for child in &mut children {
            // One that has ended by itself is gone, too.
            let _ = child.start_kill();
        }
        // Their folder is removed next: until they are gone, they may still write there. A killed process needs some
        // milliseconds; one that hangs in the kernel is not waited for for ever.
        for _ in 0..1_000 {
            children.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
            if children.is_empty() {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

fn draw_secret() -> Result<String, PairError> {
    use ring::rand::{SecureRandom as _, SystemRandom};
    let mut bytes = [0; 16];
    SystemRandom::new()
        .fill(&mut bytes)
        .map_err(|_| PairError::System {
            what: "draw a secret".into(),
            source: io::Error::other("the system has no random number"),
        })?;
    Ok(hex::encode(&bytes))
}

/// How long to wait for what must happen.
const PATIENCE: Duration = Duration::from_secs(60);
