//! A command in a process group of its own that lives no longer than the lock.

use std::ffi::OsString;
use std::io::{self, ErrorKind};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::task::Poll;
use std::time::Duration;

use monolock_client::{BootInstant, Grant, Guard, Lost};
use monolock_clock::{boot_now, sleep_until};
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, kill_process, kill_process_group, test_kill_process_group, waitid,
};
use tokio::process::{Child, Command};
use tokio::signal::unix::{Signal as SignalStream, SignalKind, signal};

use crate::args::OnLost;
use crate::guardian::Guardian;
use crate::terminal::Terminal;
use crate::{Failure, exit};

/// What to run, and how it ends.
pub(crate) struct Orders {
    pub(crate) command: Vec<OsString>,
    pub(crate) lease: Duration,
    pub(crate) on_lost: OnLost,
    pub(crate) kill_after: Duration,
}

/// Runs the command to its end and passes its exit code on, unless the lock is lost before.
pub(crate) async fn supervise(orders: Orders, guard: Guard, mut signals: Signals) -> Result<u8, Failure> {
    let grant = guard.grant();
    let mut guardian = Guardian::start().map_err(|error| {
        Failure::new(
            exit::FAILURE,
            format!("cannot start the guard of the process group: {error}"),
        )
    })?;
    let token = guard.token().map_err(|lost| Failure::new(exit::LOST, lost))?;
    let changes = signal(SignalKind::child()).map_err(|error| Failure::new(exit::FAILURE, error))?;
    let child = spawn(&orders.command, guard.lock().as_str(), &token.to_string())?;
    let mut running = Running::new(child, changes)?;
    if orders.on_lost == OnLost::Kill {
        guardian.watch(running.group.0, grant.clone(), orders.lease);
    }
    let lost = grant.lost();
    tokio::pin!(lost);
    let may_go_on = || orders.on_lost == OnLost::Notify || grant.token().is_ok();
    let group = running.group;
    let status = loop {
        tokio::select! {
            biased;
            cause = &mut lost => return end_after_loss(cause, &orders, &grant, running, guardian).await,
            signal = signals.next() => group.signal(signal),
            status = running.end(&may_go_on) => break status,
        }
    };
    // The last actions of a command whose lock is gone do not count.
    if let Err(cause) = grant.token() {
        return end_after_loss(cause, &orders, &grant, running, guardian).await;
    }
    guardian.dismiss().await;
    guard.release();
    status
        .map(exit_code)
        .map_err(|error| Failure::new(exit::FAILURE, error))
}

fn spawn(command: &[OsString], lock: &str, token: &str) -> Result<Child, Failure> {
    let (program, arguments) = command.split_first().expect("clap requires a command");
    let mut builder = Command::new(program);
    builder
        .args(arguments)
        .env("MONOLOCK_LOCK", lock)
        .env("MONOLOCK_TOKEN", token)
        .process_group(0);
    builder.spawn().map_err(|error| {
        let code = match error.kind() {
            ErrorKind::NotFound => exit::COMMAND_NOT_FOUND,
            _ => exit::CANNOT_EXECUTE,
        };
        Failure::new(code, format!("cannot run {}: {error}", program.display()))
    })
}

async fn end_after_loss(
    cause: Lost,
    orders: &Orders,
    grant: &Grant,
    mut running: Running,
    guardian: Guardian,
) -> Result<u8, Failure> {
    match orders.on_lost {
        OnLost::Kill => {
            eprintln!("monolock: {cause}; ending the command");
            let extra = orders.kill_after_for(&cause);
            let deadline = kill_at(grant, orders.lease).max(boot_now() + extra);
            if extra.is_zero() {
                running.end_by(deadline).await;
                guardian.dismiss().await;
            } else {
                // The guardian knows only the time that is safe.
                guardian.dismiss().await;
                running.end_by(deadline).await;
            }
        }
        OnLost::Notify => {
            eprintln!("monolock: {cause}; telling the command");
            running.group.signal_leader(Signal::USR1);
            let _ = running.end(&|| true).await;
            guardian.dismiss().await;
        }
    }
    Err(Failure::new(exit::LOST, format!("lost the lock: {cause}")))
}

/// When SIGKILL must come at the latest: before the lease can end on the server, with time to take effect.
pub(crate) fn kill_at(grant: &Grant, lease: Duration) -> BootInstant {
    grant.safe_until() - lease / KILL_MARGIN_SHARE
}

impl Orders {
    /// Silence leaves the rest of the lease; otherwise the lock may be held again already, and only the user may say that
    /// this does not matter.
    fn kill_after_for(&self, cause: &Lost) -> Duration {
        match cause {
            Lost::HeartbeatTimeout { .. } | Lost::Suspended { .. } => Duration::ZERO,
            _ => self.kill_after,
        }
    }
}

/// The process group of the command, named by its leader.
#[derive(Clone, Copy)]
struct Group(Pid);

impl Group {
    fn of(child: &Child) -> Result<Self, Failure> {
        let id = child
            .id()
            .and_then(|id| i32::try_from(id).ok())
            .and_then(Pid::from_raw);
        id.map(Self)
            .ok_or_else(|| Failure::new(exit::FAILURE, "the command has no process id"))
    }

    fn signal(self, signal: Signal) {
        let _ = kill_process_group(self.0, signal);
    }

    fn signal_leader(self, signal: Signal) {
        let _ = kill_process(self.0, signal);
    }

    /// Whether the leader has stopped since this was last asked, and not gone on.
    fn leader_has_stopped(self) -> bool {
        let options = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG;
        waitid(WaitId::Pid(self.0), options).is_ok_and(|change| change.is_some_and(|change| change.stopped()))
    }
}

/// The command while it runs, and the terminal it has been lent.
struct Running {
    child: Child,
    group: Group,
    terminal: Option<Terminal>,
    /// A child has ended, stopped or gone on.
    changes: SignalStream,
}

impl Running {
    /// Lends the terminal to the command. If it has asked for it before, it was stopped, and is continued.
    fn new(child: Child, changes: SignalStream) -> Result<Self, Failure> {
        let group = Group::of(&child)?;
        let mut running = Self {
            child,
            group,
            terminal: Terminal::of_this_process(),
            changes,
        };
        running.go_on();
        Ok(running)
    }

    /// Waits until the command has ended, and whatever it left behind in its group: that may still write. Stops together
    /// with a command that is stopped from its terminal, and lets it go on only if that is allowed then.
    async fn end(&mut self, may_go_on: &dyn Fn() -> bool) -> io::Result<ExitStatus> {
        let status = loop {
            tokio::select! {
                biased;
                status = self.child.wait() => break status,
                _ = self.changes.recv() => {}
            }
            if self.group.leader_has_stopped() {
                self.stop_too();
                if may_go_on() {
                    self.go_on();
                }
            }
        };
        while test_kill_process_group(self.group.0).is_ok() {
            sleep_until(boot_now() + GROUP_POLL).await;
        }
        status
    }

    /// Without heartbeats the lock is lost after a while: that is said, and the guardian sees to it. A command that was
    /// stopped for reaching for a terminal that it can have is not stopped at all.
    fn stop_too(&mut self) {
        let Some(terminal) = self.terminal.as_mut().filter(|terminal| !terminal.is_at_hand()) else {
            return;
        };
        eprintln!(
            "monolock: stopped together with the command; the lock is lost unless both go on within its lease"
        );
        terminal.stop_own_group();
    }

    fn go_on(&mut self) {
        if let Some(terminal) = &mut self.terminal {
            terminal.lend(self.group.0);
            self.group.signal(Signal::CONT);
        }
    }

    /// SIGTERM now, SIGKILL at `deadline` to whoever is left, be it a grandchild.
    async fn end_by(&mut self, deadline: BootInstant) {
        self.group.signal(Signal::TERM);
        // A stopped process does not even take SIGTERM.
        self.group.signal(Signal::CONT);
        let group = self.group;
        tokio::select! {
            biased;
            () = sleep_until(deadline) => {}
            _ = self.end(&|| false) => return,
        }
        group.signal(Signal::KILL);
        let _ = self.child.wait().await;
        if let Some(terminal) = &self.terminal {
            terminal.restore_modes();
        }
    }
}

fn exit_code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| {
        status
            .signal()
            .map(|signal| i32::from(exit::SIGNAL_BASE) + signal)
    });
    code.and_then(|code| u8::try_from(code).ok())
        .unwrap_or(exit::FAILURE)
}

/// The signals that are forwarded.
pub(crate) struct Signals(Vec<(Signal, SignalStream)>);

impl Signals {
    pub(crate) fn new() -> io::Result<Self> {
        let forwarded = [
            Signal::HUP,
            Signal::INT,
            Signal::QUIT,
            Signal::TERM,
            Signal::USR1,
            Signal::USR2,
            Signal::WINCH,
        ];
        let streams = forwarded.map(|kind| Ok((kind, signal(SignalKind::from_raw(kind.as_raw()))?)));
        streams.into_iter().collect::<io::Result<Vec<_>>>().map(Self)
    }

    async fn next(&mut self) -> Signal {
        let Self(streams) = self;
        std::future::poll_fn(|cx| {
            let arrived = streams
                .iter_mut()
                .position(|(_, stream)| stream.poll_recv(cx).is_ready());
            arrived.map_or(Poll::Pending, |index| Poll::Ready(streams[index].0))
        })
        .await
    }

    /// The number of the next signal that ends a program by default, as long as there is no command to give it to.
    pub(crate) async fn next_fatal(&mut self) -> u8 {
        loop {
            let signal = self.next().await;
            if signal != Signal::WINCH {
                return u8::try_from(signal.as_raw()).expect("signals have small numbers");
            }
        }
    }
}

/// SIGKILL comes this share of the lease before its end on the server.
const KILL_MARGIN_SHARE: u32 = 20;
const GROUP_POLL: Duration = Duration::from_millis(10);
