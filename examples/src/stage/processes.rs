//! The process that is frozen.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, getpid, kill_process, set_parent_process_death_signal, waitid,
};
use tokio::process::{Child, Command};

/// Stops the calling process, as a debugger, a closed lid or a hypervisor could at any moment. It does not outlive the one
/// that started it.
pub(super) fn freeze_this_one() -> Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    kill_process(getpid(), Signal::STOP).context("this process cannot stop itself")
}

/// This program once more, as the holder that is paused. Dropping it kills it.
pub(super) struct Ann {
    child: Child,
    pid: Pid,
}

impl Ann {
    pub(super) fn start(locks: &str, resource: &str) -> Result<Self> {
        let child = Command::new(std::env::current_exe()?)
            .args([locks, resource])
            .kill_on_drop(true)
            .spawn()
            .context("this program cannot start itself")?;
        let pid = child.id().and_then(|id| Pid::from_raw(id.try_into().ok()?));
        let pid = pid.context("the process has just been started")?;
        Ok(Self { child, pid })
    }

    pub(super) async fn wait_until_frozen(&mut self) -> Result<()> {
        let stopped = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        loop {
            if let Some(status) = self.child.try_wait()? {
                bail!("ann has ended before its pause: {status}");
            }
            if waitid(WaitId::Pid(self.pid), stopped)?.is_some() {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    pub(super) fn thaw(&self) -> Result<()> {
        kill_process(self.pid, Signal::CONT).context("ann cannot be woken up")
    }

    pub(super) async fn finish(mut self) -> Result<()> {
        match self.child.wait().await? {
            status if status.success() => Ok(()),
            status => bail!("ann has failed: {status}"),
        }
    }
}
