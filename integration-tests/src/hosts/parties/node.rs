//! The two nodes of a pair, each on its host.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use monolock_clock::boot_now;
use monolock_protocol::BootInstant;
use serde::Deserialize;
use tempfile::TempDir;

use crate::binaries;
use crate::history::Authority;
use crate::hosts::{Host, Network, journal};
use crate::process::{Exit, Process};
use crate::wait::wait_for;

/// Where a node serves locks while it is active.
pub const LOCK_PORT: u16 = 7070;
const PEER_PORT: u16 = 7073;
/// Nodes wait for the disk before they open their gates, and the disk of a machine that compiles may take seconds. Nothing
/// here takes the power away.
const IN_MEMORY: &str = "/dev/shm";
const SECRET: &str = "only for tests on this machine";

/// A node, running or not.
#[derive(Debug)]
pub struct Node {
    host: Host,
    peer: Host,
    folder: TempDir,
    settings: Vec<(String, String)>,
    process: Option<Process>,
    killed: Vec<BootInstant>,
}

/// Both nodes, and a host from which an operator looks at them.
#[derive(Debug)]
pub struct Pair {
    /// The nodes `a` and `b`.
    pub nodes: [Node; 2],
    operator: Host,
}

/// How the pair stands, as `monolock-failover status --json` says.
#[derive(Clone, Debug, Deserialize)]
pub struct Status {
    nodes: Vec<Report>,
}

#[derive(Clone, Debug, Deserialize)]
struct Report {
    node: String,
    status: Option<NodeStatus>,
}

#[derive(Clone, Debug, Deserialize)]
struct NodeStatus {
    role: String,
    term: u64,
    ready_for_handover: bool,
}

impl Node {
    fn new(network: &Network, name: &str, peer: &str, settings: &[(&str, &str)]) -> Self {
        let settings = settings
            .iter()
            .map(|(variable, value)| ((*variable).to_owned(), (*value).to_owned()));
        Self {
            host: network.host(name).clone(),
            peer: network.host(peer).clone(),
            folder: TempDir::with_prefix_in("monolock-node-", IN_MEMORY)
                .expect("a temporary folder can be made"),
            settings: settings.collect(),
            process: None,
            killed: Vec::new(),
        }
    }

    /// Its name, which is its host's too.
    #[must_use]
    pub fn name(&self) -> &str {
        self.host.name()
    }

    /// Where it serves locks while it is active.
    #[must_use]
    pub fn lock_address(&self) -> SocketAddr {
        (self.host.address(), LOCK_PORT).into()
    }

    /// Starts it, with whatever its last life left on the disk.
    ///
    /// # Panics
    ///
    /// When it does not start to watch.
    pub fn start(&mut self) {
        self.start_with(|_| {});
    }

    /// Starts it with a wall clock that is off by so many seconds, and that can be stepped.
    ///
    /// # Panics
    ///
    /// When it does not start to watch, or libfaketime is not installed.
    pub fn start_with_clock(&mut self, offset_seconds: i64) {
        let clock = self.clock_file();
        self.step_clock(offset_seconds);
        self.start_with(|command| {
            command
                .env("LD_PRELOAD", libfaketime())
                .env("FAKETIME_TIMESTAMP_FILE", &clock)
                .env("FAKETIME_NO_CACHE", "1")
                .env("DONT_FAKE_MONOTONIC", "1");
        });
    }

    /// Steps the wall clock of a node that was started with one of its own.
    ///
    /// # Panics
    ///
    /// When it cannot be written down.
    pub fn step_clock(&self, offset_seconds: i64) {
        // A reader sees the old offset or the new one, never half of it.
        let new = self.folder.path().join("clock.new");
        std::fs::write(&new, format!("{offset_seconds:+}\n")).expect("the folder is ours");
        std::fs::rename(&new, self.clock_file()).expect("the folder is ours");
    }

    /// Removes its state file, as when its machine is replaced by a new one.
    ///
    /// # Panics
    ///
    /// When there is none.
    pub fn forget(&self) {
        std::fs::remove_file(self.state_file()).expect("a node that ran has a state file");
    }

    fn state_file(&self) -> PathBuf {
        self.folder.path().join("state")
    }

    fn clock_file(&self) -> PathBuf {
        self.folder.path().join("clock")
    }

    fn start_with(&mut self, adjust: impl FnOnce(&mut Command)) {
        let mut command = binaries::command("monolock-failover");
        let (own, peer) = (self.host.address(), self.peer.address());
        command
            .env("MONOLOCK_NODE", self.name())
            .env("MONOLOCK_LISTEN_ADDRESS", self.lock_address().to_string())
            .env("MONOLOCK_PEER_LISTEN_ADDRESS", format!("{own}:{PEER_PORT}"))
            .env("MONOLOCK_PEER_ADDRESS", format!("{peer}:{PEER_PORT}"))
            .env("MONOLOCK_PEER_SECRET", SECRET)
            .env("MONOLOCK_STATE_FILE", self.state_file())
            .env("MONOLOCK_JOURNAL", self.journal_file());
        command.envs(self.settings.iter().map(|(variable, value)| (variable, value)));
        adjust(&mut command);
        let process = Process::spawn(&format!("node {}", self.name()), self.host.wrap(&command));
        process.wait_for_line("watching as standby");
        self.process = Some(process);
    }

    /// Ends it without notice.
    ///
    /// # Panics
    ///
    /// When it does not run.
    pub fn kill(&mut self) {
        self.killed.push(boot_now());
        self.running().kill();
        self.process = None;
    }

    /// Asks it to stop, and waits until it has.
    ///
    /// # Panics
    ///
    /// When it does not run, or does not end by itself with exit code 0.
    pub fn terminate(&mut self) {
        assert_eq!(self.running().terminate(), Exit::Code(0), "node {}", self.name());
        self.process = None;
    }

    /// Stops it in its tracks, without its knowing.
    ///
    /// # Panics
    ///
    /// When it does not run.
    pub fn freeze(&self) {
        self.running().freeze();
    }

    /// Lets it run on.
    ///
    /// # Panics
    ///
    /// When it does not run.
    pub fn thaw(&self) {
        self.running().thaw();
    }

    /// When it had authority.
    ///
    /// # Panics
    ///
    /// When its journal is not complete.
    #[must_use]
    pub fn authorities(&self) -> Vec<Authority> {
        journal::authorities(self.name(), &self.journal(), &self.killed)
    }

    /// Its journal, as text.
    ///
    /// # Panics
    ///
    /// When there is none.
    #[must_use]
    pub fn journal(&self) -> String {
        let text = std::fs::read_to_string(self.journal_file()).expect("a node writes a journal");
        // The last line may be half written.
        text.rsplit_once('\n')
            .map_or_else(String::new, |(whole, _)| whole.to_owned())
    }

    fn journal_file(&self) -> PathBuf {
        self.folder.path().join("journal")
    }

    /// Whether it runs, frozen or not.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.process.is_some()
    }

    fn running(&self) -> &Process {
        self.process
            .as_ref()
            .unwrap_or_else(|| panic!("node {} does not run", self.name()))
    }
}

impl Pair {
    /// The nodes `a` and `b`, on hosts of these names, not started yet; both get `settings`, as environment variables.
    /// `operator` is the host from which they are looked at.
    #[must_use]
    pub fn new(network: &Network, operator: &str, settings: &[(&str, &str)]) -> Self {
        Self {
            nodes: [
                Node::new(network, "a", "b", settings),
                Node::new(network, "b", "a", settings),
            ],
            operator: network.host(operator).clone(),
        }
    }

    /// A node by its name.
    ///
    /// # Panics
    ///
    /// When it is neither `a` nor `b`.
    pub fn node(&mut self, name: &str) -> &mut Node {
        self.nodes
            .iter_mut()
            .find(|node| node.name() == name)
            .unwrap_or_else(|| panic!("{name} is no node"))
    }

    /// Starts both.
    ///
    /// # Panics
    ///
    /// When one does not start.
    pub fn start(&mut self) {
        for node in &mut self.nodes {
            node.start();
        }
    }

    /// How the pair stands, as an operator sees it.
    ///
    /// # Panics
    ///
    /// When the program does not say so.
    #[must_use]
    pub fn status(&self) -> Status {
        let command = self.operator_command(&["status", "--json"]);
        let output = self.operator.wrap(&command).output().expect("ip starts");
        serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)))
    }

    /// Hands over on purpose.
    ///
    /// # Panics
    ///
    /// When the pair has not.
    pub fn hand_over(&self) {
        let command = self.operator_command(&["handover"]);
        let output = self.operator.wrap(&command).output().expect("ip starts");
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }

    /// Waits until one node serves and the other could take its place, and says which serves in which term.
    ///
    /// # Panics
    ///
    /// When that does not come true.
    #[must_use]
    pub fn wait_until_healthy(&self) -> (String, u64) {
        wait_for("a healthy pair", || self.status().healthy())
    }

    fn operator_command(&self, arguments: &[&str]) -> Command {
        let [a, b] = &self.nodes;
        let mut command = binaries::command("monolock-failover");
        command
            .args(arguments)
            .env("MONOLOCK_NODE", "a")
            .env(
                "MONOLOCK_PEER_LISTEN_ADDRESS",
                format!("{}:{PEER_PORT}", a.host.address()),
            )
            .env(
                "MONOLOCK_PEER_ADDRESS",
                format!("{}:{PEER_PORT}", b.host.address()),
            )
            .env("MONOLOCK_PEER_SECRET", SECRET);
        command
    }
}

impl Status {
    /// The one node that serves, and its term.
    #[must_use]
    pub fn active(&self) -> Option<(String, u64)> {
        let mut active = self.nodes.iter().filter_map(|report| {
            let status = report.status.as_ref()?;
            (status.role == "active").then(|| (report.node.clone(), status.term))
        });
        let first = active.next()?;
        active.next().is_none().then_some(first)
    }

    /// The same, when the other node could take its place.
    #[must_use]
    pub fn healthy(&self) -> Option<(String, u64)> {
        let stands_by = |report: &Report| {
            let status = report.status.as_ref();
            status.is_some_and(|status| status.role == "standby" && status.ready_for_handover)
        };
        self.nodes.iter().any(stands_by).then(|| self.active()).flatten()
    }
}

/// Debian keeps it in a folder of the machine's architecture.
fn libfaketime() -> PathBuf {
    let libraries = std::fs::read_dir("/usr/lib").expect("every system has libraries");
    libraries
        .filter_map(|folder| Some(folder.ok()?.path().join("faketime/libfaketime.so.1")))
        .find(|library| Path::exists(library))
        .expect("libfaketime is not installed: run integration-tests/setup")
}
