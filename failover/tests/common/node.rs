//! A whole node as a program, by a clock of its own.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use monolock_failover::clock::VerdictWord;
use monolock_failover::core::NodeId;
use monolock_failover::operator::PairStatus;
use monolock_failover::peer::message::{NodeStatus, Role};
use monolock_integration_tests::port::free_port;
use monolock_integration_tests::process::Process;
use monolock_integration_tests::raw_client::{RawClient, Received};
use monolock_integration_tests::wait::wait_for;
use monolock_protocol::Token;
use monolock_protocol::frame::ServerFrame;
use tempfile::TempDir;

use crate::chrony::Chrony;
use crate::fake_time::FakeTime;

/// Where both nodes of a pair are, and what they share.
pub(crate) struct Plan {
    folder: TempDir,
    lock_ports: [u16; 2],
    peer_ports: [u16; 2],
    time_servers: String,
}

/// A running node.
pub(crate) struct Node {
    pub(crate) time: FakeTime,
    pub(crate) lock_address: SocketAddr,
    process: Process,
    settings: Vec<(&'static str, String)>,
    id: NodeId,
}

impl Plan {
    pub(crate) fn new(time_servers: &[Chrony]) -> Self {
        let addresses: Vec<_> = time_servers.iter().map(Chrony::address).collect();
        Self {
            folder: tempfile::Builder::new().prefix("clock").tempdir().unwrap(),
            lock_ports: [free_port(), free_port()],
            peer_ports: [free_port(), free_port()],
            time_servers: addresses.join(","),
        }
    }

    /// Starts a node whose clock is ahead by so much.
    pub(crate) fn start(&self, id: NodeId, ahead_seconds: i64, more: &[(&'static str, &str)]) -> Node {
        let (own, peer) = match id {
            NodeId::A => (0, 1),
            NodeId::B => (1, 0),
        };
        let folder = self.folder.path().join(id.to_string());
        std::fs::create_dir_all(&folder).unwrap();
        let file = |folder: &Path, name: &str| folder.join(name).display().to_string();
        let local = |port: u16| format!("127.0.0.1:{port}");
        let mut settings = vec![
            ("MONOLOCK_NODE", id.to_string()),
            ("MONOLOCK_LISTEN_ADDRESS", local(self.lock_ports[own])),
            ("MONOLOCK_PEER_LISTEN_ADDRESS", local(self.peer_ports[own])),
            ("MONOLOCK_PEER_ADDRESS", local(self.peer_ports[peer])),
            ("MONOLOCK_PEER_LOCK_ADDRESS", local(self.lock_ports[peer])),
            (
                "MONOLOCK_WITNESS",
                format!("file:{}", file(self.folder.path(), "witness")),
            ),
            ("MONOLOCK_STATE_FILE", file(&folder, "state")),
            ("MONOLOCK_AUTHORITY_TTL", "3s".to_owned()),
            ("MONOLOCK_NTP_SERVERS", self.time_servers.clone()),
            ("MONOLOCK_NTP_POLL_INTERVAL", "1s".to_owned()),
        ];
        settings.extend(more.iter().map(|(name, value)| (*name, (*value).to_owned())));
        let time = FakeTime::new(&folder);
        time.set(ahead_seconds);
        let mut command = program(&settings);
        time.give_to(&mut command);
        Node {
            process: Process::spawn(&format!("node {id}"), command),
            lock_address: local(self.lock_ports[own]).parse().unwrap(),
            time,
            settings,
            id,
        }
    }
}

impl Node {
    /// How the node stands, as the command line says it; `None` while it does not answer.
    pub(crate) fn status(&self) -> Option<NodeStatus> {
        let mut command = program(&self.settings);
        let output = command.args(["status", "--json"]).output().unwrap();
        let pair: PairStatus = serde_json::from_slice(&output.stdout).unwrap();
        pair.nodes
            .into_iter()
            .find(|report| report.node == self.id)?
            .status
    }

    pub(crate) fn wait_until(&self, what: &str, is_so: impl Fn(&NodeStatus) -> bool) -> NodeStatus {
        wait_for(what, || self.status().filter(&is_so))
    }

    pub(crate) fn wait_for_verdict(&self, verdict: VerdictWord) -> NodeStatus {
        self.wait_until(
            &format!("node {} to call its clock {verdict:?}", self.id),
            |status| {
                status
                    .clock
                    .as_ref()
                    .is_some_and(|clock| clock.verdict == verdict)
            },
        )
    }

    pub(crate) fn wait_for_role(&self, role: Role) -> NodeStatus {
        self.wait_until(&format!("node {} to be {role:?}", self.id), |status| {
            status.role == role
        })
    }

    /// The token of a grant by this node, as soon as it serves; the lock is free again after it.
    pub(crate) fn grant(&self, lock: &str) -> Token {
        wait_for(&format!("a grant of {lock} by node {}", self.id), || {
            let mut client = RawClient::acquire(self.lock_address, lock, 5_000);
            loop {
                match client.receive() {
                    Received::Frame(ServerFrame::Acquired(token)) => return Some(token),
                    Received::Frame(ServerFrame::Waiting) => {}
                    Received::Frame(ServerFrame::Error { .. }) | Received::End | Received::Broken(_) => {
                        return None;
                    }
                }
            }
        })
    }

    pub(crate) fn kill(self) {
        self.process.kill();
    }
}

fn program(settings: &[(&'static str, String)]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_monolock-failover"));
    command.envs(settings.iter().map(|(name, value)| (name, value)));
    command
}
