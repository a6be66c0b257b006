//! Commands of the operator's: a power switch as a fence, a virtual IP or a cloud's DNS as the name.
//!
//! A hook runs in a process group of its own, is told by its environment what has happened, and is killed with all of
//! its group when it takes too long. Nothing waits for it that matters: a fence confirms, it does not permit.
//!
//! | variable | value |
//! | --- | --- |
//! | `MONOLOCK_EVENT` | `fence`, `active` or `standby` |
//! | `MONOLOCK_NODE` | the node that runs the command: `a` or `b` |
//! | `MONOLOCK_TERM` | the term: that ended for `fence` and `standby`, that began for `active` |
//! | `MONOLOCK_TOKEN_FLOOR` | every token of a later term is at least this |
//!
//! ```
//! # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
//! # runtime.block_on(async {
//! use std::time::Duration;
//! use monolock_failover::core::{NodeId, Term};
//! use monolock_failover::hooks::{Hook, HookEvent, HookOutcome, Occasion};
//! use monolock_protocol::Token;
//!
//! let hook = Hook::new("test $MONOLOCK_EVENT$MONOLOCK_TERM = fence7", Duration::from_secs(10));
//! let event = HookEvent { occasion: Occasion::Fence, node: NodeId::A, term: Term(7), token_floor: Token::ZERO };
//! assert_eq!(hook.run(&event).await, HookOutcome::Succeeded);
//! # });
//! # Ok::<(), std::io::Error>(())
//! ```

use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use monolock_failover_core::{NodeId, Term};
use monolock_protocol::Token;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;

/// A command, and how long it may take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hook {
    command: String,
    time_limit: Duration,
}

/// What the command is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HookEvent {
    /// Why it runs.
    pub occasion: Occasion,
    /// The node that runs it.
    pub node: NodeId,
    /// The term that ended or began.
    pub term: Term,
    /// Every token of a later term is at least this.
    pub token_floor: Token,
}

/// Why a command runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Occasion {
    /// The old active must be stopped from outside.
    Fence,
    /// This node has become active.
    Active,
    /// This node is active no longer.
    Standby,
}

impl Occasion {
    /// A word for the environment, the log and the journal.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Fence => "fence",
            Self::Active => "active",
            Self::Standby => "standby",
        }
    }
}

/// How a command ended. For a fence, only [`HookOutcome::Succeeded`] proves anything.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HookOutcome {
    /// It exited with code 0.
    #[error("succeeded")]
    Succeeded,
    /// It exited with another code, or by a signal.
    #[error("failed: {0}")]
    Failed(ExitStatus),
    /// It took too long, and was killed with all of its process group.
    #[error("took longer than {0:?} and was killed: raise MONOLOCK_HOOK_TIMEOUT, or see what it waits for")]
    TimedOut(Duration),
    /// It could not be started or waited for.
    #[error("could not be run: {0}")]
    NotRun(String),
}

impl Hook {
    /// A command for `sh -c`.
    #[must_use]
    pub fn new(command: impl Into<String>, time_limit: Duration) -> Self {
        Self {
            command: command.into(),
            time_limit,
        }
    }

    /// Runs the command and logs what it prints and how it ends. When the future is dropped, the command is killed.
    pub async fn run(&self, event: &HookEvent) -> HookOutcome {
        let occasion = event.occasion.as_str();
        let outcome = match self.start(event) {
            Ok(running) => running.wait(self.time_limit).await,
            Err(error) => HookOutcome::NotRun(error.to_string()),
        };
        match &outcome {
            HookOutcome::Succeeded => tracing::info!(occasion, term = event.term.0, "a hook succeeded"),
            HookOutcome::Failed(_) | HookOutcome::TimedOut(_) | HookOutcome::NotRun(_) => {
                tracing::warn!(
                    occasion,
                    term = event.term.0,
                    command = self.command,
                    "a hook {outcome}"
                );
            }
        }
        outcome
    }

    fn start(&self, event: &HookEvent) -> std::io::Result<Running> {
        let mut child = Command::new("sh")
            .arg("-c")
            .arg(&self.command)
            .env("MONOLOCK_EVENT", event.occasion.as_str())
            .env("MONOLOCK_NODE", event.node.to_string())
            .env("MONOLOCK_TERM", event.term.to_string())
            .env("MONOLOCK_TOKEN_FLOOR", event.token_floor.to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()?;
        let group = child
            .id()
            .and_then(|id| i32::try_from(id).ok())
            .and_then(Pid::from_raw);
        let output = [
            child.stdout.take().map(|pipe| tokio::spawn(log_lines(pipe))),
            child.stderr.take().map(|pipe| tokio::spawn(log_lines(pipe))),
        ];
        Ok(Running {
            child,
            output,
            group: group.map(Group),
        })
    }
}

/// A command that has been started.
struct Running {
    child: Child,
    output: [Option<JoinHandle<()>>; 2],
    group: Option<Group>,
}

impl Running {
    async fn wait(mut self, time_limit: Duration) -> HookOutcome {
        let Ok(exited) = tokio::time::timeout(time_limit, self.child.wait()).await else {
            drop(self.group.take());
            let _ = self.child.wait().await;
            return HookOutcome::TimedOut(time_limit);
        };
        // What it leaves running on purpose may go on; its last lines are waited for, but not for ever.
        if let Some(group) = self.group.take() {
            group.release();
        }
        for reader in self.output.iter_mut().flatten() {
            if tokio::time::timeout(LAST_LINES, &mut *reader).await.is_err() {
                reader.abort();
            }
        }
        match exited {
            Ok(status) if status.success() => HookOutcome::Succeeded,
            Ok(status) => HookOutcome::Failed(status),
            Err(error) => HookOutcome::NotRun(error.to_string()),
        }
    }
}

/// The process group of a command whose first process has not been waited for, so that its number is still its own.
/// Killed when dropped.
struct Group(Pid);

impl Group {
    fn release(self) {
        std::mem::forget(self);
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Err(error) = kill_process_group(self.0, Signal::KILL) {
            tracing::debug!(%error, "the process group of a hook was gone already");
        }
    }
}

/// Logs what a command prints, up to a bound; reads on beyond it, so that the command does not block.
async fn log_lines(mut pipe: impl AsyncRead + Unpin) {
    let mut kept = Vec::new();
    let mut chunk = [0; 1024];
    while let Ok(read @ 1..) = pipe.read(&mut chunk).await {
        let room = MOST_OUTPUT - kept.len();
        kept.extend_from_slice(&chunk[..read.min(room)]);
        while let Some(end) = kept.iter().position(|byte| *byte == b'\n') {
            log_line(&kept[..end]);
            kept.drain(..=end);
        }
    }
    log_line(&kept);
}

fn log_line(line: &[u8]) {
    if !line.is_empty() {
        tracing::info!(line = %String::from_utf8_lossy(line), "a hook prints");
    }
}

/// The longest line that is logged whole, in bytes.
const MOST_OUTPUT: usize = 4096;
/// How long the last lines of a command that has ended are waited for: something it started may keep the pipe open.
const LAST_LINES: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use super::*;

    const GENEROUS: Duration = Duration::from_secs(30);

    fn event() -> HookEvent {
        HookEvent {
            occasion: Occasion::Active,
            node: NodeId::B,
            term: Term(7),
            token_floor: Token::new(99),
        }
    }

    #[tokio::test]
    async fn a_command_is_told_what_happened() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("told");
        let command = format!(
            "echo $MONOLOCK_EVENT $MONOLOCK_NODE $MONOLOCK_TERM $MONOLOCK_TOKEN_FLOOR > {}",
            file.display()
        );
        assert_eq!(
            Hook::new(command, GENEROUS).run(&event()).await,
            HookOutcome::Succeeded
        );
        assert_eq!(std::fs::read_to_string(file).unwrap(), "active b 7 99\n");
    }

    #[tokio::test]
    async fn a_failure_is_told_from_success() {
        let failed = Hook::new("exit 3", GENEROUS).run(&event()).await;
        assert!(
            matches!(failed, HookOutcome::Failed(status) if status.code() == Some(3)),
            "{failed}"
        );
        let killed = Hook::new("kill -9 $$", GENEROUS).run(&event()).await;
        assert!(
            matches!(killed, HookOutcome::Failed(status) if status.code().is_none()),
            "{killed}"
        );
        let unknown = Hook::new("no-such-command-anywhere", GENEROUS)
            .run(&event())
            .await;
        assert!(matches!(unknown, HookOutcome::Failed(_)), "{unknown}");
    }

    #[tokio::test]
    async fn a_command_that_hangs_is_killed_with_its_children() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("child");
        let command = format!("sleep 600 & echo $! > {}; wait", file.display());
        let hook = Hook::new(command, Duration::from_millis(300));
        assert!(matches!(hook.run(&event()).await, HookOutcome::TimedOut(_)));
        wait_until_gone(&file).await;
    }

    #[tokio::test]
    async fn a_command_nobody_waits_for_is_killed() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("child");
        let command = format!("sleep 600 & echo $! > {}; wait", file.display());
        let hook = Hook::new(command, GENEROUS);
        let running = tokio::spawn(async move { hook.run(&event()).await });
        let written = async {
            while !std::fs::read_to_string(&file).is_ok_and(|text| text.ends_with('\n')) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(GENEROUS, written).await.unwrap();
        running.abort();
        wait_until_gone(&file).await;
    }

    #[tokio::test]
    async fn a_loud_command_does_not_block_and_one_that_leaves_something_behind_is_not_waited_for() {
        let loud = Hook::new(
            "yes | head -c 3000000; yes x | tr -d '\\n' | head -c 300000",
            GENEROUS,
        );
        assert_eq!(loud.run(&event()).await, HookOutcome::Succeeded);
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("child");
        let leaving = Hook::new(format!("sleep 600 & echo $! > {}", file.display()), GENEROUS);
        assert_eq!(leaving.run(&event()).await, HookOutcome::Succeeded);
        let left = process_in(&file);
        rustix::process::test_kill_process(left).expect("still running");
        rustix::process::kill_process(left, Signal::KILL).unwrap();
    }

    fn process_in(file: &std::path::Path) -> Pid {
        let text = std::fs::read_to_string(file).unwrap();
        Pid::from_raw(text.trim().parse().unwrap()).unwrap()
    }

    /// A killed grandchild may stay as a zombie where nothing collects orphans: that is gone too.
    async fn wait_until_gone(file: &std::path::Path) {
        let process = process_in(file);
        let gone = async {
            loop {
                let stat = std::fs::read_to_string(format!("/proc/{}/stat", process.as_raw_pid()));
                match stat {
                    Ok(stat) if !stat.contains(") Z") => tokio::time::sleep(Duration::from_millis(5)).await,
                    Ok(_) | Err(_) => return,
                }
            }
        };
        tokio::time::timeout(GENEROUS, gone).await.unwrap();
    }
}
