//! The node's way to the lock table of its server.
//!
//! A table that is stuck must not hold up whoever asks it: the watchdog has to see that its authority lapses, and to
//! answer its peer. So a thread of its own carries every step out, in the order asked for, and answers later or never.

use monolock_failover_core::TableReport;
use monolock_protocol::{BootInstant, ErrorCode, Lease, Token};
use monolock_server::{FollowReceiver, Now, OpenGate, Report, ServerHandle, Snapshot};
use tokio::sync::{mpsc, oneshot, watch};

/// The lock table, asked from afar. Cloning is cheap.
#[derive(Clone)]
pub(super) struct Table {
    /// Unbounded, for the watchdog cannot wait. It is short all the same: a renewal follows an answer of the table, and
    /// a gate is opened or shut once a term.
    steps: mpsc::UnboundedSender<Step>,
    last: watch::Receiver<Report>,
    /// Whether grants wait for the standby; `None` where it does not confirm any.
    confirmed: watch::Receiver<Option<bool>>,
}

type Step = Box<dyn FnOnce(&ServerHandle) -> Option<Report> + Send>;

impl Table {
    /// Starts the thread; it ends with the last clone.
    pub(super) fn of(server: ServerHandle) -> std::io::Result<Self> {
        let (steps, mut queue) = mpsc::unbounded_channel::<Step>();
        let (answered, last) = watch::channel(server.report());
        let (confirming, confirmed) = watch::channel(server.awaits_confirmation());
        std::thread::Builder::new()
            .name("lock table".into())
            .spawn(move || {
                while let Some(step) = queue.blocking_recv() {
                    if let Some(report) = step(&server) {
                        answered.send_replace(report);
                    }
                    confirming.send_replace(server.awaits_confirmation());
                }
            })?;
        Ok(Self {
            steps,
            last,
            confirmed,
        })
    }

    /// The last answer, however long ago it was.
    pub(super) fn last_report(&self) -> Report {
        *self.last.borrow()
    }

    /// Whether grants waited for the standby after the last step; `None` where it does not confirm any.
    pub(super) fn grants_confirmed_lately(&self) -> Option<bool> {
        *self.confirmed.borrow()
    }

    /// Asks for a report; the answer shows that the table is not stuck.
    pub(super) async fn report(&self) -> Option<Report> {
        self.ask(|server| {
            let report = server.report();
            (report, Some(report))
        })
        .await
    }

    pub(super) fn open_gate(&self, open: OpenGate) {
        self.step(move |server| {
            let term = open.term;
            if !server.open_gate(open) {
                tracing::warn!(
                    term,
                    "the gate did not open: the authority lapsed before it could"
                );
            }
            Some(server.report())
        });
    }

    pub(super) fn renew_authority(&self, term: u64, until: BootInstant, ceiling: Token) {
        self.step(move |server| {
            server.renew_authority(term, until, ceiling);
            None
        });
    }

    pub(super) fn adopt_wall_clock(&self, judged: Now) {
        self.step(move |server| {
            server.adopt_wall_clock(judged);
            None
        });
    }

    /// Shuts the gate; what comes back when it is shut is the last token granted.
    pub(super) fn shut_gate(&self, code: ErrorCode) -> impl Future<Output = Option<Token>> + Send + use<> {
        self.ask(move |server| {
            server.shut_gate(code);
            let report = server.report();
            (report.last_token, Some(report))
        })
    }

    /// The standby has heard of so many grants.
    pub(super) fn grants_confirmed(&self, grants: u64) {
        self.step(move |server| {
            server.grants_confirmed(grants);
            None
        });
    }

    pub(super) fn follow(&self) -> impl Future<Output = Option<(Snapshot, FollowReceiver)>> + Send + use<> {
        self.ask(|server| (server.follow(), None))
    }

    fn step(&self, step: impl FnOnce(&ServerHandle) -> Option<Report> + Send + 'static) {
        // The thread ends only when nobody is left who could ask.
        let _ = self.steps.send(Box::new(step));
    }

    /// `None` when nobody answers any more.
    fn ask<T, F>(&self, ask: F) -> impl Future<Output = Option<T>> + Send + use<T, F>
    where
        T: Send + 'static,
        F: FnOnce(&ServerHandle) -> (T, Option<Report>) + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        self.step(move |server| {
            let (said, report) = ask(server);
            // Whoever asked may have stopped waiting.
            let _ = reply.send(said);
            report
        });
        async move { answer.await.ok() }
    }
}

/// What the watchdog wants to know of a report.
pub(super) fn table_report(report: &Report) -> TableReport {
    TableReport {
        last_token: report.last_token,
        epoch: report.epoch,
        longest_lease_ms: report.longest_lease.map_or(0, Lease::as_millis),
    }
}
