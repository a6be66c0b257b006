//! The metrics, under the names of the contract, in a registry of this one server.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use monolock_core::{Ownership, ReleaseReason, Report};
use monolock_protocol::ErrorCode;
use prometheus::core::{Collector, Desc};
use prometheus::proto::{Metric, MetricFamily, MetricType, Summary as SummaryValue};
use prometheus::{
    Encoder, Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGauge, Opts, Registry, TextEncoder,
};
use serde::Serialize;

#[derive(Debug)]
pub(crate) struct Metrics {
    pub(crate) registry: Registry,
    pub(crate) connections_active: IntGauge,
    pub(crate) connections_accepted: IntCounter,
    pub(crate) accept_errors: IntCounter,
    pub(crate) tls_handshake_errors: IntCounter,
    pub(crate) heartbeats: IntCounter,
    pub(crate) acl_denials: IntCounter,
    pub(crate) audit_dropped: IntCounter,
    locks_held: IntGauge,
    waiters: IntGauge,
    acquires: IntCounter,
    /// Looked up once: the library's lookup by label hashes and allocates.
    releases: [(ReleaseReason, IntCounter); ReleaseReason::ALL.len()],
    protocol_errors: IntCounterVec,
    wait: Timing,
    hold: Timing,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let registry = Registry::new();
        let releases = counters(
            &registry,
            "monolock_releases_total",
            "Ended ownerships.",
            "reason",
        );
        let metrics = Self {
            connections_active: gauge(&registry, "monolock_connections_active", "Open sessions."),
            connections_accepted: counter(
                &registry,
                "monolock_connections_accepted_total",
                "Accepted connections.",
            ),
            accept_errors: counter(
                &registry,
                "monolock_accept_errors_total",
                "Failed accepts, descriptor exhaustion included.",
            ),
            tls_handshake_errors: counter(
                &registry,
                "monolock_tls_handshake_errors_total",
                "Failed TLS handshakes.",
            ),
            heartbeats: counter(
                &registry,
                "monolock_heartbeats_total",
                "Handled HEARTBEAT messages.",
            ),
            acl_denials: counter(
                &registry,
                "monolock_acl_denials_total",
                "ACQUIREs refused by the access rules.",
            ),
            audit_dropped: counter(
                &registry,
                "monolock_audit_dropped_total",
                "Audit records lost because the log could not be written.",
            ),
            locks_held: gauge(&registry, "monolock_locks_held", "Locks that have a holder now."),
            waiters: gauge(&registry, "monolock_waiters", "Claims waiting in all queues."),
            acquires: counter(
                &registry,
                "monolock_acquires_total",
                "Granted ownerships: issued fencing tokens.",
            ),
            releases: ReleaseReason::ALL
                .map(|reason| (reason, releases.with_label_values(&[reason.as_str()]))),
            protocol_errors: counters(
                &registry,
                "monolock_protocol_errors_total",
                "Sent ERROR messages by wire code.",
                "code",
            ),
            wait: Timing::new(&registry, "wait", "Time from ACQUIRE to ACQUIRED."),
            hold: Timing::new(&registry, "hold", "How long ownerships lasted."),
            registry,
        };
        metrics.show_every_series();
        let process = prometheus::process_collector::ProcessCollector::for_self();
        metrics.registry.register(Box::new(process)).expect(VALID);
        metrics
    }

    pub(crate) fn ownership(&self, change: Ownership) {
        match change {
            Ownership::Granted { waited, .. } => {
                self.acquires.inc();
                self.wait.observe(waited);
            }
            Ownership::Released { held, reason, .. } => {
                self.releases(reason).inc();
                self.hold.observe(held);
            }
            Ownership::ForceRelease { .. } | Ownership::KickWaiter => {}
        }
    }

    pub(crate) fn error_sent(&self, code: ErrorCode) {
        self.protocol_errors
            .with_label_values(&[&error_label(code)])
            .inc();
    }

    /// The exposition in the Prometheus text format, with the table's figures of this moment.
    pub(crate) fn render(&self, report: &Report) -> String {
        self.locks_held
            .set(i64::try_from(report.held).unwrap_or(i64::MAX));
        self.waiters
            .set(i64::try_from(report.waiting).unwrap_or(i64::MAX));
        let mut text = Vec::new();
        TextEncoder::new()
            .encode(&self.registry.gather(), &mut text)
            .expect("a vector takes all bytes, and every family has a name and a metric");
        String::from_utf8(text).expect("the encoder writes text")
    }

    /// The few that the operator's page draws, as numbers.
    pub(crate) fn figures(&self, report: &Report) -> Figures {
        let released = |reason: ReleaseReason| (reason.as_str(), self.releases(reason).get());
        let sent = |code| {
            self.protocol_errors
                .with_label_values(&[&error_label(code)])
                .get()
        };
        Figures {
            connections_active: self.connections_active.get(),
            locks_held: report.held,
            waiters: report.waiting,
            acquires_total: self.acquires.get(),
            heartbeats_total: self.heartbeats.get(),
            protocol_errors_total: SENT_CODES.into_iter().map(sent).sum(),
            releases_total: ReleaseReason::ALL.into_iter().map(released).collect(),
        }
    }

    fn releases(&self, reason: ReleaseReason) -> &IntCounter {
        let found = self.releases.iter().find(|(of, _)| *of == reason);
        &found.expect("every reason has its counter").1
    }

    /// A dashboard must not have to tell zero from missing.
    fn show_every_series(&self) {
        for code in SENT_CODES {
            self.protocol_errors.with_label_values(&[&error_label(code)]);
        }
    }
}

/// Named as the metrics are, without the common prefix.
#[derive(Debug, Serialize)]
pub(crate) struct Figures {
    connections_active: i64,
    locks_held: usize,
    waiters: usize,
    acquires_total: u64,
    heartbeats_total: u64,
    protocol_errors_total: u64,
    releases_total: BTreeMap<&'static str, u64>,
}

fn error_label(code: ErrorCode) -> String {
    format!("0x{:02x}", code.as_u8())
}

fn gauge(registry: &Registry, name: &str, help: &str) -> IntGauge {
    registered(registry, IntGauge::new(name, help).expect(VALID))
}

fn counter(registry: &Registry, name: &str, help: &str) -> IntCounter {
    registered(registry, IntCounter::new(name, help).expect(VALID))
}

fn counters(registry: &Registry, name: &str, help: &str, label: &str) -> IntCounterVec {
    registered(
        registry,
        IntCounterVec::new(Opts::new(name, help), &[label]).expect(VALID),
    )
}

fn registered<M: Collector + Clone + 'static>(registry: &Registry, metric: M) -> M {
    registry.register(Box::new(metric.clone())).expect(VALID);
    metric
}

/// A duration as the contract's summary, and as a histogram of another name for its distribution.
#[derive(Debug)]
struct Timing {
    summary: Summary,
    histogram: Histogram,
}

impl Timing {
    fn new(registry: &Registry, what: &str, help: &str) -> Self {
        let summary = Summary::new(&format!("monolock_{what}_seconds"), help);
        let options = HistogramOpts::new(format!("monolock_{what}_duration_seconds"), help);
        let histogram = Histogram::with_opts(options.buckets(BUCKETS.to_vec())).expect(VALID);
        Self {
            summary: registered(registry, summary),
            histogram: registered(registry, histogram),
        }
    }

    fn observe(&self, duration: Duration) {
        self.summary.observe(duration);
        self.histogram.observe(duration.as_secs_f64());
    }
}

/// `_sum` and `_count` without quantiles, which the metrics library has no type for.
#[derive(Clone, Debug)]
struct Summary {
    description: Desc,
    total: std::sync::Arc<Mutex<(Duration, u64)>>,
}

impl Summary {
    fn new(name: &str, help: &str) -> Self {
        Self {
            description: Desc::new(name.to_owned(), help.to_owned(), Vec::new(), Default::default())
                .expect(VALID),
            total: Default::default(),
        }
    }

    fn observe(&self, duration: Duration) {
        let mut total = self
            .total
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        *total = (total.0 + duration, total.1 + 1);
    }
}

impl Collector for Summary {
    fn desc(&self) -> Vec<&Desc> {
        vec![&self.description]
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let (sum, count) = *self
            .total
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let mut value = SummaryValue::default();
        value.set_sample_sum(sum.as_secs_f64());
        value.set_sample_count(count);
        let mut metric = Metric::default();
        metric.set_summary(value);
        let mut family = MetricFamily::default();
        family.set_name(self.description.fq_name.clone());
        family.set_help(self.description.help.clone());
        family.set_field_type(MetricType::SUMMARY);
        family.set_metric(vec![metric]);
        vec![family]
    }
}

const VALID: &str = "the names are constants, valid and different";

/// In seconds: a handover takes less than a millisecond, a job takes hours.
const BUCKETS: [f64; 14] = [
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0, 300.0, 3_600.0, 36_000.0,
];

/// Every code this server can send.
const SENT_CODES: [ErrorCode; 12] = [
    ErrorCode::ShuttingDown,
    ErrorCode::ClosedByAdministrator,
    ErrorCode::NotActive,
    ErrorCode::UnsupportedVersion,
    ErrorCode::FirstMessageMustBeAcquire,
    ErrorCode::DuplicateAcquire,
    ErrorCode::UnknownMessageType,
    ErrorCode::EmptyName,
    ErrorCode::NameTooLong,
    ErrorCode::NameNotUtf8,
    ErrorCode::LeaseNotPositive,
    ErrorCode::NotAuthorized,
];
