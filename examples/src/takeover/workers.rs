//! The two workers as processes, and what they have told.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result};
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, ChildStdout, Command};
use tokio::sync::watch;

use super::LOCK;
use crate::ledger::Database;
use crate::worker::{Event, Line};

/// Dropping them kills them, frozen or not.
pub(super) struct Workers {
    program: PathBuf,
    database: Database,
    lease: Duration,
    children: BTreeMap<&'static str, Child>,
    told: watch::Sender<Vec<Line>>,
}

impl Workers {
    pub(super) fn new(program: PathBuf, database: Database, lease: Duration) -> Self {
        Self {
            program,
            database,
            lease,
            children: BTreeMap::new(),
            told: watch::Sender::default(),
        }
    }

    pub(super) fn start(&mut self, name: &'static str, server: &str, dns: &[SocketAddr]) -> Result<()> {
        let dns: Vec<_> = dns.iter().map(ToString::to_string).collect();
        let mut command = Command::new(&self.program);
        command
            .args([
                "--name",
                name,
                "--server",
                server,
                "--dns",
                &dns.join(","),
                "--lock",
                LOCK,
            ])
            .args(["--lease-ms", &self.lease.as_millis().to_string()])
            .args(["--database", &self.database.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true);
        let mut child = command
            .spawn()
            .with_context(|| format!("cannot start {}", self.program.display()))?;
        let output = child.stdout.take().context("its output is piped")?;
        tokio::spawn(listen(output, self.told.clone()));
        self.children.insert(name, child);
        Ok(())
    }

    /// How many lines there are: where a later [`wait`](Self::wait) starts.
    pub(super) fn count(&self) -> usize {
        self.told.borrow().len()
    }

    /// All lines of a kind, in the order in which they were told.
    pub(super) fn events(&self, wanted: impl Fn(&Event) -> bool) -> Vec<Line> {
        let mut lines: Vec<_> = self
            .told
            .borrow()
            .iter()
            .filter(|line| wanted(&line.event))
            .cloned()
            .collect();
        lines.sort_by_key(|line| line.boot_nanos);
        lines
    }

    /// The first line of a kind behind the first `seen`.
    pub(super) async fn wait(
        &self,
        what: &str,
        seen: usize,
        wanted: impl Fn(&Event) -> bool,
    ) -> Result<Line> {
        let mut told = self.told.subscribe();
        let found = |lines: &[Line]| lines.iter().skip(seen).find(|line| wanted(&line.event)).cloned();
        let waiting = async {
            loop {
                if let Some(line) = found(&told.borrow_and_update()) {
                    return anyhow::Ok(line);
                }
                told.changed().await.context("the workers are gone")?;
            }
        };
        let told = tokio::time::timeout(PATIENCE, waiting).await;
        told.with_context(|| format!("waited a minute for {what}"))?
    }

    pub(super) fn freeze(&self, name: &str) -> Result<()> {
        self.signal(name, Signal::STOP)
    }

    pub(super) fn thaw(&self, name: &str) -> Result<()> {
        self.signal(name, Signal::CONT)
    }

    fn signal(&self, name: &str, signal: Signal) -> Result<()> {
        let id = self
            .children
            .get(name)
            .and_then(Child::id)
            .with_context(|| format!("{name} does not run"))?;
        let pid = i32::try_from(id)
            .ok()
            .and_then(Pid::from_raw)
            .context("a process has a positive number")?;
        kill_process(pid, signal).with_context(|| format!("cannot signal {name}"))
    }

    pub(super) async fn stop(&mut self) {
        for child in self.children.values_mut() {
            // One that has ended by itself is stopped, too.
            let _ = child.kill().await;
        }
    }
}

async fn listen(output: ChildStdout, told: watch::Sender<Vec<Line>>) {
    let mut lines = BufReader::new(output).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        if let Ok(line) = serde_json::from_str(&line) {
            told.send_modify(|told| told.push(line));
        }
    }
}

const PATIENCE: Duration = Duration::from_secs(60);
