//! The metrics of a node, beside those of the lock server inside it.
//!
//! What can only be one of several (the role, the verdict on the clock, the reason to wait) is one series for each, of
//! which one is 1. What is unknown is `NaN`.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use monolock_clock::boot_now;
use monolock_failover_core::clock::Verdict;
use monolock_failover_core::{RoleName, Status, TakeoverBasis, Waiting};
use monolock_protocol::BootInstant;
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{
    Gauge, GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, Opts,
    Registry,
};
use serde::{Deserialize, Serialize};

use crate::clock::ClockReport;

/// The metrics of one node.
#[derive(Debug)]
pub struct PairMetrics {
    role: GaugeVec,
    term: IntGauge,
    floor: Gauge,
    authority_left: AuthorityLeft,
    waiting: GaugeVec,
    takeovers: IntCounterVec,
    takeover_seconds: Histogram,
    witness_seconds: HistogramVec,
    witness_errors: IntCounterVec,
    slow_swaps: IntCounter,
    grants_confirmed: Gauge,
    name_pending: IntGauge,
    clock_verdict: GaugeVec,
    clock_offset: Gauge,
    clock_error: Gauge,
    peer_clock_offset: Gauge,
    clock_steps: IntGauge,
    witness: Mutex<WitnessSeen>,
}

/// What is done at the witness.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WitnessOperation {
    /// A reading.
    Read,
    /// A compare-and-swap.
    Swap,
}

#[derive(Debug, Default)]
struct WitnessSeen {
    answered_at: Option<BootInstant>,
    last_swap: Option<Duration>,
    problem: Option<String>,
}

/// How the witness has answered this node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WitnessReport {
    /// What it is: `file`, `postgres`, `s3`, `dns`.
    pub kind: String,
    /// How long ago it answered last, in milliseconds; absent when it never did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answered_ms_ago: Option<u64>,
    /// How long the last answered swap took, in microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_swap_us: Option<u64>,
    /// Why it did not answer the last time, if it did not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

impl PairMetrics {
    /// Adds them to a registry.
    ///
    /// # Panics
    ///
    /// When the registry has metrics of these names already.
    #[must_use]
    pub fn register(registry: &Registry) -> Self {
        let add = Registering(registry);
        let metrics = Self {
            role: add.states("monolock_role", "What this node is doing: 1 for its role.", "role"),
            term: add.whole("monolock_term", "The term held, or the largest term seen."),
            floor: add.gauge("monolock_token_floor", "The highest reserved token known to this node."),
            authority_left: add.registered(AuthorityLeft::new()),
            waiting: add.states(
                "monolock_takeover_waiting",
                "Why this node takes over nothing now: 1 for the reason.",
                "reason",
            ),
            takeovers: add.registered(
                IntCounterVec::new(
                    Opts::new(
                        "monolock_takeovers_total",
                        "Terms that this node has begun, by the argument that carried them.",
                    ),
                    &["reason"],
                )
                .expect(VALID),
            ),
            takeover_seconds: add.registered(
                Histogram::with_opts(buckets(
                    "monolock_takeover_seconds",
                    "From the first step of a takeover or handover in this node's journal to its open gate.",
                ))
                .expect(VALID),
            ),
            witness_seconds: add.registered(
                HistogramVec::new(
                    buckets("monolock_witness_seconds", "How long the witness took to answer."),
                    &["operation"],
                )
                .expect(VALID),
            ),
            witness_errors: add.registered(
                IntCounterVec::new(
                    Opts::new("monolock_witness_errors_total", "Operations that the witness did not answer."),
                    &["operation"],
                )
                .expect(VALID),
            ),
            slow_swaps: add.registered(
                IntCounter::new(
                    "monolock_witness_slow_swaps_total",
                    "Swaps that took more than a sixth of the authority period.",
                )
                .expect(VALID),
            ),
            grants_confirmed: add.gauge(
                "monolock_grants_confirmed",
                "1 while grants wait until the peer has heard of them, 0 while it does not confirm any.",
            ),
            name_pending: add.whole(
                "monolock_name_pending",
                "1 while the service's name should stand for this node and not every server says so.",
            ),
            clock_verdict: add.states(
                "monolock_clock_verdict",
                "What the clock check thinks of the wall clock: 1 for the verdict.",
                "verdict",
            ),
            clock_offset: add.gauge(
                "monolock_clock_offset_seconds",
                "What must be added to the wall clock by a majority of the time servers: above 0 when it is behind.",
            ),
            clock_error: add.gauge(
                "monolock_clock_offset_error_seconds",
                "How wrong monolock_clock_offset_seconds may be.",
            ),
            peer_clock_offset: add.gauge(
                "monolock_peer_clock_offset_seconds",
                "What must be added to the wall clock to get the peer's.",
            ),
            clock_steps: add.whole("monolock_clock_steps", "How often the wall clock was set since the start."),
            witness: Mutex::default(),
        };
        metrics.show_every_series();
        metrics
    }

    /// A dashboard must not have to tell zero from missing.
    fn show_every_series(&self) {
        for basis in TakeoverBasis::ALL {
            self.takeovers.with_label_values(&[basis.as_str()]);
        }
        for operation in [WitnessOperation::Read, WitnessOperation::Swap] {
            self.witness_seconds.with_label_values(&[operation.as_str()]);
            self.witness_errors.with_label_values(&[operation.as_str()]);
        }
        let roles = RoleName::ALL.map(RoleName::as_str);
        set_state(&self.role, &roles, Some(RoleName::Standby.as_str()));
        set_state(&self.waiting, &Waiting::WORDS, None);
        set_state(&self.clock_verdict, &Verdict::WORDS, None);
        for unknown in [
            &self.clock_offset,
            &self.clock_error,
            &self.peer_clock_offset,
            &self.grants_confirmed,
        ] {
            unknown.set(f64::NAN);
        }
    }

    /// How the node stands now.
    pub(crate) fn show_status(&self, status: &Status) {
        let roles = RoleName::ALL.map(RoleName::as_str);
        set_state(&self.role, &roles, Some(status.role.as_str()));
        let waiting = status.waiting.as_ref().map(Waiting::as_str);
        set_state(&self.waiting, &Waiting::WORDS, waiting);
        self.term.set(i64::try_from(status.term.0).unwrap_or(i64::MAX));
        self.floor.set(as_float(status.floor.get()));
        self.authority_left.set(status.authority_until);
    }

    /// Whether grants wait for the peer; `None` where it does not confirm any.
    pub(crate) fn show_grants_confirmed(&self, confirmed: Option<bool>) {
        self.grants_confirmed
            .set(confirmed.map_or(f64::NAN, |confirmed| f64::from(u8::from(confirmed))));
    }

    /// What is known of the clock now.
    pub(crate) fn show_clock(&self, verdict: &Verdict, report: &ClockReport) {
        set_state(&self.clock_verdict, &Verdict::WORDS, Some(verdict.as_str()));
        let agreed = verdict.agreed();
        self.clock_offset
            .set(agreed.map_or(f64::NAN, |(offset, _)| offset.as_secs_f64()));
        self.clock_error
            .set(agreed.map_or(f64::NAN, |(_, error)| error.as_secs_f64()));
        let peer = report.peer.map_or(f64::NAN, |peer| signed_micros(peer.offset_us));
        self.peer_clock_offset.set(peer);
        self.clock_steps
            .set(i64::try_from(report.steps).unwrap_or(i64::MAX));
    }

    /// A term has begun here, so long after its timeline.
    pub(crate) fn note_takeover(&self, basis: TakeoverBasis, took: Duration) {
        self.takeovers.with_label_values(&[basis.as_str()]).inc();
        self.takeover_seconds.observe(took.as_secs_f64());
    }

    /// The name should stand for this node, and does not everywhere.
    pub(crate) fn show_name_pending(&self, pending: bool) {
        self.name_pending.set(i64::from(pending));
    }

    /// The witness answered.
    pub(crate) fn note_witness_answer(&self, operation: WitnessOperation, took: Duration, is_slow: bool) {
        self.witness_seconds
            .with_label_values(&[operation.as_str()])
            .observe(took.as_secs_f64());
        let mut seen = self.witness.lock().unwrap_or_else(PoisonError::into_inner);
        seen.answered_at = Some(boot_now());
        seen.problem = None;
        if operation == WitnessOperation::Swap {
            seen.last_swap = Some(took);
            self.slow_swaps.inc_by(u64::from(is_slow));
        }
    }

    /// The witness did not answer.
    pub(crate) fn note_witness_failure(&self, operation: WitnessOperation, problem: String) {
        self.witness_errors.with_label_values(&[operation.as_str()]).inc();
        let mut seen = self.witness.lock().unwrap_or_else(PoisonError::into_inner);
        seen.problem = Some(problem);
    }

    /// How the witness, of this kind, has answered.
    pub(crate) fn witness_report(&self, kind: &str) -> WitnessReport {
        let seen = self.witness.lock().unwrap_or_else(PoisonError::into_inner);
        let ago = |at: BootInstant| boot_now().saturating_duration_since(at).as_millis();
        WitnessReport {
            kind: kind.to_owned(),
            answered_ms_ago: seen
                .answered_at
                .map(|at| u64::try_from(ago(at)).unwrap_or(u64::MAX)),
            last_swap_us: seen
                .last_swap
                .map(|took| u64::try_from(took.as_micros()).unwrap_or(u64::MAX)),
            problem: seen.problem.clone(),
        }
    }
}

impl fmt::Display for WitnessReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "witness {}: ", self.kind)?;
        match self.answered_ms_ago {
            Some(ago) => write!(f, "answered {ago} ms ago")?,
            None => f.write_str("has not answered")?,
        }
        if let Some(took) = self.last_swap_us {
            write!(f, ", its last swap took {}.{:03} ms", took / 1_000, took % 1_000)?;
        }
        match &self.problem {
            Some(problem) => write!(f, "; then: {problem}"),
            None => Ok(()),
        }
    }
}

impl WitnessOperation {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Swap => "swap",
        }
    }
}

/// Counts down by itself: computed when it is asked for.
#[derive(Clone, Debug)]
struct AuthorityLeft {
    gauge: Gauge,
    /// On the boot clock, in nanoseconds; 0 when there is none.
    until: Arc<AtomicU64>,
}

impl AuthorityLeft {
    fn new() -> Self {
        let help = "How long the authority of this node lasts without another renewal; 0 without any.";
        Self {
            gauge: Gauge::new("monolock_authority_left_seconds", help).expect(VALID),
            until: Arc::default(),
        }
    }

    fn set(&self, until: Option<BootInstant>) {
        let until = until.map_or(0, BootInstant::as_nanos);
        self.until.store(until, Ordering::Relaxed);
    }
}

impl Collector for AuthorityLeft {
    fn desc(&self) -> Vec<&Desc> {
        self.gauge.desc()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let until = BootInstant::from_nanos(self.until.load(Ordering::Relaxed));
        let left = until.saturating_duration_since(boot_now());
        self.gauge.set(left.as_secs_f64());
        self.gauge.collect()
    }
}

struct Registering<'a>(&'a Registry);

impl Registering<'_> {
    fn gauge(&self, name: &str, help: &str) -> Gauge {
        self.registered(Gauge::new(name, help).expect(VALID))
    }

    fn whole(&self, name: &str, help: &str) -> IntGauge {
        self.registered(IntGauge::new(name, help).expect(VALID))
    }

    fn states(&self, name: &str, help: &str, label: &str) -> GaugeVec {
        self.registered(GaugeVec::new(Opts::new(name, help), &[label]).expect(VALID))
    }

    fn registered<M: Collector + Clone + 'static>(&self, metric: M) -> M {
        self.0.register(Box::new(metric.clone())).expect(VALID);
        metric
    }
}

fn set_state(states: &GaugeVec, words: &[&str], current: Option<&str>) {
    for word in words {
        let value = if current == Some(*word) { 1.0 } else { 0.0 };
        states.with_label_values(&[word]).set(value);
    }
}

fn buckets(name: &str, help: &str) -> HistogramOpts {
    HistogramOpts::new(name, help).buckets(BUCKETS.to_vec())
}

#[expect(
    clippy::cast_precision_loss,
    reason = "tokens stay below 2^53 until the year 2242"
)]
const fn as_float(token: u64) -> f64 {
    token as f64
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a metric need not be exact to the microsecond"
)]
fn signed_micros(micros: i64) -> f64 {
    micros as f64 / 1e6
}

const VALID: &str = "the names are constants, valid, and no one else's";

/// In seconds: a witness answers in milliseconds, a takeover by silence takes an authority period.
const BUCKETS: [f64; 13] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
];

#[cfg(test)]
mod tests {
    use monolock_failover_core::Term;
    use monolock_protocol::Token;
    use prometheus::TextEncoder;

    use super::*;

    fn rendered(registry: &Registry) -> String {
        TextEncoder::new().encode_to_string(&registry.gather()).unwrap()
    }

    #[test]
    fn one_role_and_one_reason_are_set_and_every_series_is_there_from_the_start() {
        let registry = Registry::new();
        let metrics = PairMetrics::register(&registry);
        let text = rendered(&registry);
        for line in [
            "monolock_role{role=\"standby\"} 1",
            "monolock_role{role=\"active\"} 0",
            "monolock_takeovers_total{reason=\"crash\"} 0",
            "monolock_takeover_waiting{reason=\"no_trusted_clock\"} 0",
            "monolock_clock_offset_seconds NaN",
            "monolock_witness_errors_total{operation=\"swap\"} 0",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in {text}");
        }
        metrics.show_status(&Status {
            role: RoleName::Active,
            term: Term(7),
            floor: Token::new(1 << 52),
            authority_until: Some(boot_now() + Duration::from_secs(3_600)),
            waiting: Some(Waiting::IsActive),
            table_answers: true,
            grants_left: None,
            ready: false,
            record_term: None,
        });
        metrics.note_takeover(TakeoverBasis::Crash, Duration::from_millis(20));
        let text = rendered(&registry);
        for line in [
            "monolock_role{role=\"standby\"} 0",
            "monolock_role{role=\"active\"} 1",
            "monolock_term 7",
            "monolock_token_floor 4503599627370496",
            "monolock_takeover_waiting{reason=\"is_active\"} 1",
            "monolock_takeovers_total{reason=\"crash\"} 1",
            "monolock_takeover_seconds_bucket{le=\"0.01\"} 0",
            "monolock_takeover_seconds_bucket{le=\"0.025\"} 1",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in {text}");
        }
        let left = text
            .lines()
            .find_map(|line| line.strip_prefix("monolock_authority_left_seconds "));
        let left: f64 = left.unwrap().parse().unwrap();
        assert!((3_000.0..3_600.0).contains(&left), "{left}");
    }

    #[test]
    fn the_witness_is_reported_with_its_last_problem_until_it_answers_again() {
        let metrics = PairMetrics::register(&Registry::new());
        metrics.note_witness_answer(WitnessOperation::Swap, Duration::from_millis(3), true);
        metrics.note_witness_failure(WitnessOperation::Read, "away".to_owned());
        let report = metrics.witness_report("file");
        assert_eq!(
            (report.last_swap_us, report.problem.as_deref()),
            (Some(3_000), Some("away"))
        );
        assert!(report.answered_ms_ago.is_some());
        metrics.note_witness_answer(WitnessOperation::Read, Duration::ZERO, false);
        assert_eq!(metrics.witness_report("file").problem, None);
        assert_eq!(metrics.slow_swaps.get(), 1);
    }
}
