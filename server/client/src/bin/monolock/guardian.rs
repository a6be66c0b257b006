//! What still ends the command when `monolock run` itself cannot: a second process that waits for the first to die or
//! to fall silent.
//!
//! The two are joined by a pipe. Each line names the process group and the point on the boot clock at which to kill it
//! unless another line comes before. The end of the pipe means that the parent is dead, and its connection and so its
//! lock with it; a parent that has ended in order kills its guardian first.

use std::io;
use std::process::Stdio;
use std::time::Duration;

use monolock_client::{BootInstant, Grant};
use monolock_clock::{boot_now, sleep_until};
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, Command};
use tokio::task::JoinHandle;

use crate::args::GUARD_COMMAND;
use crate::supervise::{Signals, kill_at};
use crate::{Failure, exit};

/// The parent's side.
pub(crate) struct Guardian {
    process: Child,
    pipe: Option<ChildStdin>,
    reports: Option<JoinHandle<()>>,
}

impl Guardian {
    /// Starts the second process. It is in a group of its own: what kills the command's group does not kill it.
    pub(crate) fn start() -> io::Result<Self> {
        let mut process = Command::new(std::env::current_exe()?)
            .arg(GUARD_COMMAND)
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()?;
        let pipe = process.stdin.take();
        Ok(Self {
            process,
            pipe,
            reports: None,
        })
    }

    /// Reports how long the lock is safe, several times in each lease, until the claim is over.
    pub(crate) fn watch(&mut self, group: Pid, grant: Grant, lease: Duration) {
        let Some(mut pipe) = self.pipe.take() else { return };
        self.reports = Some(tokio::spawn(async move {
            loop {
                // Once the claim is over, what was reported last stands: it is when the parent will have killed the group.
                let line = match grant.token() {
                    Ok(_) => report(group, kill_at(&grant, lease)),
                    Err(_) => return std::future::pending().await,
                };
                if pipe.write_all(line.as_bytes()).await.is_err() {
                    return;
                }
                sleep_until(boot_now() + lease / REPORTS_PER_LEASE).await;
            }
        }));
    }

    /// The command has ended and there is nothing to guard any more.
    pub(crate) async fn dismiss(mut self) {
        let _ = self.process.kill().await;
        if let Some(reports) = self.reports.take() {
            reports.abort();
        }
    }
}

fn report(group: Pid, kill_at: BootInstant) -> String {
    format!("{} {}\n", group.as_raw_nonzero(), kill_at.as_nanos())
}

fn parse_report(line: &str) -> Option<(Pid, BootInstant)> {
    let (group, kill_at) = line.split_once(' ')?;
    let group = Pid::from_raw(group.parse().ok()?)?;
    Some((group, BootInstant::from_nanos(kill_at.parse().ok()?)))
}

/// The second process: kills the group it was told of when the parent's pipe ends or its last report is overdue.
pub(crate) async fn guard() -> Result<u8, Failure> {
    // A signal for all of the session is for the command, not for its guard.
    let _ignored = Signals::new();
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    let mut latest: Option<(Pid, BootInstant)> = None;
    loop {
        let overdue = latest.map_or(BootInstant::MAX, |(_, kill_at)| kill_at);
        let line = tokio::select! {
            line = lines.next_line() => line,
            () = sleep_until(overdue) => break,
        };
        match line {
            Ok(Some(line)) => latest = parse_report(&line).or(latest),
            Ok(None) | Err(_) => break,
        }
    }
    if let Some((group, _)) = latest {
        let _ = kill_process_group(group, Signal::KILL);
    }
    // Standard input may still be read on a thread of the runtime, which would hold up an orderly end.
    std::process::exit(exit::LOST.into())
}

const REPORTS_PER_LEASE: u32 = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_survives_the_pipe() {
        let group = Pid::from_raw(4_711).expect("positive");
        let line = report(group, BootInstant::from_nanos(5));
        assert_eq!(
            parse_report(line.trim_end()),
            Some((group, BootInstant::from_nanos(5)))
        );
        assert_eq!(parse_report("4711"), None);
        assert_eq!(parse_report("0 5"), None);
    }
}
