//! Two failover nodes on loopback, behind one name.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use monolock_client::Client;
use monolock_failover::config::LinkConfig;
use monolock_failover::core::NodeId;
use monolock_failover::journal::JournalLine;
use monolock_failover::operator::{self, PairStatus};
use monolock_failover::peer::PeerSecret;
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};

/// The name that clients know.
pub const SERVICE_NAME: &str = "locks.demo.internal";

const SECRET: &str = "only for this demo on loopback";
const PATIENCE: Duration = Duration::from_secs(60);

/// The pair. Dropping it kills both nodes.
#[derive(Debug)]
pub struct Pair {
    program: PathBuf,
    folder: PathBuf,
    ttl: Duration,
    witness: String,
    addresses: Addresses,
    a: Option<Child>,
    b: Option<Child>,
}

/// Both nodes use the same ports on loopback addresses of their own, so that one name and one port reach either.
#[derive(Clone, Copy, Debug)]
struct Addresses {
    lock_port: u16,
    peer_port: u16,
    dns_port: u16,
}

const fn ip(node: NodeId) -> IpAddr {
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
    pub fn start(program: &Path, folder: &Path, ttl: Duration, witness: Option<&str>) -> Result<Self> {
        let addresses = Addresses {
            lock_port: free_port()?,
            peer_port: free_port()?,
            dns_port: free_port()?,
        };
        let witness = witness.map_or_else(
            || format!("file:{}", folder.join("witness").display()),
            str::to_owned,
        );
        let (program, folder) = (program.to_owned(), folder.to_owned());
        let mut pair = Self {
            program,
            folder,
            ttl,
            witness,
            addresses,
            a: None,
            b: None,
        };
        pair.start_node(NodeId::A)?;
        pair.start_node(NodeId::B)?;
        Ok(pair)
    }

    /// Starts one node; its log is appended to `NODE.log`.
    ///
    /// # Errors
    ///
    /// When it cannot be started.
    pub fn start_node(&mut self, node: NodeId) -> Result<()> {
        let log = self.file(node, "log");
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(&log)
            .context("cannot write a node's log")?;
        let child = self.command(node).stderr(log).spawn();
        let child = child.with_context(|| format!("cannot start {}", self.program.display()))?;
        *self.child(node) = Some(child);
        Ok(())
    }

    fn command(&self, node: NodeId) -> Command {
        let Addresses {
            lock_port,
            peer_port,
            dns_port,
        } = self.addresses;
        let (own, peer) = (ip(node), ip(node.peer()));
        let mut command = Command::new(&self.program);
        command
            .env("MONOLOCK_NODE", node.to_string())
            .env("MONOLOCK_LISTEN_ADDRESS", format!("{own}:{lock_port}"))
            .env("MONOLOCK_PEER_LISTEN_ADDRESS", format!("{own}:{peer_port}"))
            .env("MONOLOCK_PEER_ADDRESS", format!("{peer}:{peer_port}"))
            .env("MONOLOCK_PEER_LOCK_ADDRESS", format!("{peer}:{lock_port}"))
            .env("MONOLOCK_PEER_SECRET", SECRET)
            .env("MONOLOCK_WITNESS", &self.witness)
            .env("MONOLOCK_STATE_FILE", self.file(node, "state"))
            .env("MONOLOCK_AUTHORITY_TTL", format!("{}ms", self.ttl.as_millis()))
            .env("MONOLOCK_SERVICE_NAME", SERVICE_NAME)
            .env("MONOLOCK_DNS_LISTEN_ADDRESS", format!("{own}:{dns_port}"))
            .env("MONOLOCK_JOURNAL", self.file(node, "journal"))
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

    fn child(&mut self, node: NodeId) -> &mut Option<Child> {
        match node {
            NodeId::A => &mut self.a,
            NodeId::B => &mut self.b,
        }
    }

    /// Ends a node the hard way.
    ///
    /// # Errors
    ///
    /// When it does not run.
    pub async fn kill(&mut self, node: NodeId) -> Result<()> {
        let Some(mut child) = self.child(node).take() else {
            bail!("node {node} does not run")
        };
        child
            .kill()
            .await
            .with_context(|| format!("cannot kill node {node}"))
    }

    /// Stops a node in its tracks, without its knowing.
    ///
    /// # Errors
    ///
    /// When it does not run.
    pub fn freeze(&mut self, node: NodeId) -> Result<()> {
        self.signal(node, Signal::STOP)
    }

    /// Lets a frozen node run on.
    ///
    /// # Errors
    ///
    /// When it does not run.
    pub fn thaw(&mut self, node: NodeId) -> Result<()> {
        self.signal(node, Signal::CONT)
    }

    /// Asks a node to stop, and waits until it has.
    ///
    /// # Errors
    ///
    /// When it does not run, or does not stop within a minute with exit code 0.
    pub async fn terminate(&mut self, node: NodeId) -> Result<()> {
        self.signal(node, Signal::TERM)?;
        let Some(mut child) = self.child(node).take() else {
            bail!("node {node} does not run")
        };
        let ended = tokio::time::timeout(PATIENCE, child.wait()).await;
        let status = ended.with_context(|| format!("node {node} has not stopped within a minute"))??;
        if status.success() {
            Ok(())
        } else {
            bail!("node {node} ended with {status}")
        }
    }

    fn signal(&mut self, node: NodeId, signal: Signal) -> Result<()> {
        let id = self.child(node).as_ref().and_then(Child::id);
        let pid = id.and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        let pid = pid.with_context(|| format!("node {node} does not run"))?;
        kill_process(pid, signal).with_context(|| format!("cannot signal node {node}"))
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

    /// A client that knows the name.
    ///
    /// # Errors
    ///
    /// When the name cannot be used.
    pub fn client(&self) -> Result<Client> {
        Ok(Client::builder(&self.server())
            .dns_servers(self.dns_servers())
            .build()?)
    }

    fn link(&self) -> Result<LinkConfig> {
        Ok(LinkConfig {
            listen: SocketAddr::new(ip(NodeId::A), self.addresses.peer_port),
            peer: format!("{}:{}", ip(NodeId::B), self.addresses.peer_port).parse()?,
            secret: Some(PeerSecret::new(SECRET)?),
        })
    }

    /// How both nodes stand.
    ///
    /// # Errors
    ///
    /// Only when the demo's own settings are wrong.
    pub async fn status(&self) -> Result<PairStatus> {
        Ok(PairStatus::ask(NodeId::A, &self.link()?).await)
    }

    /// Waits until one node serves and the other could take its place.
    ///
    /// # Errors
    ///
    /// When that does not come true within a minute.
    pub async fn wait_until_healthy(&self) -> Result<(NodeId, PairStatus)> {
        let waiting = async {
            loop {
                let status = self.status().await?;
                if let (true, Some(active)) = (status.is_healthy(), status.active()) {
                    return Ok((active, status));
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(PATIENCE, waiting)
            .await
            .context("the pair has not become healthy within a minute")?
    }

    /// Hands over on purpose.
    ///
    /// # Errors
    ///
    /// When the active has not handed over.
    pub async fn hand_over(&self) -> Result<()> {
        operator::hand_over(NodeId::A, &self.link()?).await?;
        Ok(())
    }

    /// The steps that a node has written down.
    ///
    /// # Errors
    ///
    /// When its journal cannot be read.
    pub fn journal(&self, node: NodeId) -> Result<Vec<JournalLine>> {
        let path = self.file(node, "journal");
        let text =
            std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        text.lines().map(|line| Ok(serde_json::from_str(line)?)).collect()
    }
}

/// A port that is free on both loopback addresses, for TCP and UDP.
fn free_port() -> Result<u16> {
    for _ in 0..100 {
        let first = TcpListener::bind((ip(NodeId::A), 0)).context("cannot listen on loopback")?;
        let port = first.local_addr()?.port();
        let both = TcpListener::bind((ip(NodeId::B), port)).is_ok();
        let udp = [NodeId::A, NodeId::B]
            .iter()
            .all(|node| UdpSocket::bind((ip(*node), port)).is_ok());
        if both && udp {
            return Ok(port);
        }
    }
    bail!("no port is free on both 127.0.0.1 and 127.0.0.2")
}
