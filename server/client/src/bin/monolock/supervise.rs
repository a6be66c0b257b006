//! A command in a process group of its own that lives no longer than the lock.

use std::ffi::OsString;
use std::io::{self, ErrorKind, IsTerminal};
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Stdio};
use std::task::Poll;
use std::time::Duration;

use monolock_client::{BootInstant, Grant, Guard, Lost};
use monolock_clock::{boot_now, sleep_until};
use rustix::process::{Pid, Signal, kill_process, kill_process_group, test_kill_process_group};
use tokio::process::{Child, Command};
use tokio::signal::unix::{Signal as SignalStream, SignalKind, signal};

use crate::args::OnLost;
use crate::guardian::Guardian;
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
    let mut child = spawn(&orders.command, guard.lock().as_str(), &token.to_string())?;
    let group = Group::of(&child)?;
    if orders.on_lost == OnLost::Kill {
        guardian.watch(group.0, grant.clone(), orders.lease);
    }
    let lost = grant.lost();
    tokio::pin!(lost);
    let status = loop {
        tokio::select! {
            biased;
            cause = &mut lost => return end_after_loss(cause, &orders, &grant, child, group, guardian).await,
            signal = signals.next() => group.signal(signal),
            status = group.end_of(&mut child) => break status,
        }
    };
    // The last actions of a command whose lock is gone do not count.
    if let Err(cause) = grant.token() {
        return end_after_loss(cause, &orders, &grant, child, group, guardian).await;
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
    if io::stdin().is_terminal() {
        // A background group that reads from its terminal is stopped by it.
        builder.stdin(Stdio::null());
    }
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
    mut child: Child,
    group: Group,
    guardian: Guardian,
) -> Result<u8, Failure> {
    match orders.on_lost {
        OnLost::Kill => {
            eprintln!("monolock: {cause}; ending the command");
            let extra = orders.kill_after_for(&cause);
            let deadline = kill_at(grant, orders.lease).max(boot_now() + extra);
            if extra.is_zero() {
                group.end(&mut child, deadline).await;
                guardian.dismiss().await;
            } else {
                // The guardian knows only the time that is safe.
                guardian.dismiss().await;
                group.end(&mut child, deadline).await;
            }
        }
        OnLost::Notify => {
            eprintln!("monolock: {cause}; telling the command");
            group.signal_leader(Signal::USR1);
            let _ = group.end_of(&mut child).await;
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

    /// Waits until the command has ended, and whatever it left behind in its group: that may still write.
    async fn end_of(self, child: &mut Child) -> io::Result<ExitStatus> {
        let status = child.wait().await;
        while test_kill_process_group(self.0).is_ok() {
            sleep_until(boot_now() + GROUP_POLL).await;
        }
        status
    }

    /// SIGTERM now, SIGKILL at `deadline` to whoever is left, be it a grandchild.
    async fn end(self, child: &mut Child, deadline: BootInstant) {
        self.signal(Signal::TERM);
        // A stopped process does not even take SIGTERM.
        self.signal(Signal::CONT);
        tokio::select! {
            biased;
            () = sleep_until(deadline) => {}
            _ = self.end_of(child) => return,
        }
        self.signal(Signal::KILL);
        let _ = child.wait().await;
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
