//! What a drill comes to: for people, as JSON and as Markdown.

use std::fmt;
use std::time::Duration;

use monolock_failover_core::{NodeId, Term};
use monolock_protocol::BootInstant;
use serde::{Serialize, Serializer};

use super::{Scenario, Violation};
use crate::journal::JournalLine;

mod markdown;
mod table;

/// A drill that was carried out.
#[derive(Clone, Debug, Serialize)]
pub struct DrillReport {
    /// What was broken: a pair of the drill's own, or a handover of the real one.
    pub pair: &'static str,
    /// The kind of its witness; unknown of the real pair.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub witness: Option<&'static str>,
    /// Its authority period, in milliseconds; unknown of the real pair.
    #[serde(
        rename = "ttl_ms",
        skip_serializing_if = "Option::is_none",
        serialize_with = "optional_ms"
    )]
    pub ttl: Option<Duration>,
    /// The lease of the test clients, in milliseconds.
    #[serde(rename = "lease_ms", serialize_with = "ms")]
    pub lease: Duration,
    /// One for each scenario, in the order in which they were run.
    pub scenarios: Vec<ScenarioReport>,
}

/// All runs of one scenario.
#[derive(Clone, Debug, Serialize)]
pub struct ScenarioReport {
    /// Which.
    pub scenario: Scenario,
    /// How it ended.
    pub verdict: Verdict,
    /// Why it was not run; only then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_run: Option<String>,
    /// Without a grant of a free lock: from the last answer of the old term to the first grant of the new one.
    #[serde(rename = "gap_ms", skip_serializing_if = "Option::is_none")]
    pub gap: Option<Quantiles>,
    /// From the last answer of the old term to the next grant of the lock that was held.
    #[serde(rename = "held_ms", skip_serializing_if = "Option::is_none")]
    pub held: Option<Quantiles>,
    /// How often two clients believed at once to hold one lock, or two nodes served at once.
    pub double_grants: usize,
    /// How often a lock was granted again before the lease of its last holder had run out.
    pub early_grants: usize,
    /// How often a later grant carried no larger token.
    pub token_regressions: usize,
    /// Each run by itself.
    pub runs: Vec<Run>,
}

/// How a scenario ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Every promise held.
    Passed,
    /// A promise was broken, or service did not come back.
    Failed,
    /// It cannot be run here.
    NotRun,
}

/// One run of a scenario.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Run {
    /// From the last answer of the old term to the first grant of a free lock in the new one, in milliseconds.
    #[serde(
        rename = "gap_ms",
        skip_serializing_if = "Option::is_none",
        serialize_with = "optional_ms"
    )]
    pub gap: Option<Duration>,
    /// From the same moment to the next grant of the lock that was held, in milliseconds.
    #[serde(
        rename = "held_ms",
        skip_serializing_if = "Option::is_none",
        serialize_with = "optional_ms"
    )]
    pub held: Option<Duration>,
    /// What carried the takeover, as in the journal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub argument: Option<String>,
    /// Every promise that was broken.
    pub violations: Vec<Violation>,
    /// What should have happened and did not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// What both nodes wrote into their journals.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub timeline: Vec<TimelineStep>,
}

/// A step of a journal, counted from the fault.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TimelineStep {
    /// Since the fault, in milliseconds.
    #[serde(rename = "after_ms", serialize_with = "ms")]
    pub after: Duration,
    /// The node that took it.
    pub node: NodeId,
    /// Its name.
    pub step: String,
    /// The term it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub term: Option<Term>,
    /// The argument that carried it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub argument: Option<String>,
    /// How long the step itself took, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub took_ms: Option<u64>,
}

/// Durations, summed up; by nearest rank, so each is one that was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Quantiles {
    /// The median.
    #[serde(serialize_with = "ms")]
    pub p50: Duration,
    /// The 99th percentile; below a hundred runs the same as the largest.
    #[serde(serialize_with = "ms")]
    pub p99: Duration,
    /// The largest.
    #[serde(serialize_with = "ms")]
    pub max: Duration,
}

impl DrillReport {
    /// How it ended as a whole: one failure fails it, and nothing at all is not passed either.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        let any = |verdict| self.scenarios.iter().any(|scenario| scenario.verdict == verdict);
        if any(Verdict::Failed) {
            Verdict::Failed
        } else if any(Verdict::Passed) {
            Verdict::Passed
        } else {
            Verdict::NotRun
        }
    }

    /// Whether anything was not run.
    #[must_use]
    pub fn has_gaps(&self) -> bool {
        self.scenarios
            .iter()
            .any(|scenario| scenario.verdict == Verdict::NotRun)
    }

    /// Tables for a document, with the timeline of a typical run of each scenario.
    #[must_use]
    pub fn to_markdown(&self) -> String {
        markdown::render(self)
    }
}

impl fmt::Display for DrillReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        table::write(self, f)
    }
}

impl ScenarioReport {
    /// Sums up what was run.
    #[must_use]
    pub fn new(scenario: Scenario, runs: Vec<Run>) -> Self {
        let verdict = if !runs.is_empty() && runs.iter().all(Run::passed) {
            Verdict::Passed
        } else {
            Verdict::Failed
        };
        let count = |wanted: fn(&Violation) -> bool| {
            let all = runs.iter().flat_map(|run| &run.violations);
            all.filter(|violation| wanted(violation)).count()
        };
        Self {
            scenario,
            verdict,
            not_run: None,
            gap: Quantiles::of(runs.iter().filter_map(|run| run.gap)),
            held: Quantiles::of(runs.iter().filter_map(|run| run.held)),
            double_grants: count(Violation::is_double_grant),
            early_grants: count(Violation::is_early_grant),
            token_regressions: count(Violation::is_token_regression),
            runs,
        }
    }

    /// A scenario that cannot be run here.
    #[must_use]
    pub fn not_run(scenario: Scenario, reason: String) -> Self {
        Self {
            verdict: Verdict::NotRun,
            not_run: Some(reason),
            ..Self::new(scenario, Vec::new())
        }
    }

    /// The run whose gap is the median.
    #[must_use]
    pub fn typical_run(&self) -> Option<&Run> {
        let median = self.gap?.p50;
        self.runs.iter().find(|run| run.gap == Some(median))
    }

    /// What carried the takeovers: each argument once, in order.
    fn arguments(&self) -> String {
        let mut arguments: Vec<_> = self
            .runs
            .iter()
            .filter_map(|run| run.argument.as_deref())
            .collect();
        arguments.sort_unstable();
        arguments.dedup();
        arguments.join(", ")
    }
}

impl Run {
    pub(super) fn with_problem(problem: String) -> Self {
        Self {
            problem: Some(problem),
            ..Self::default()
        }
    }

    /// Whether every promise held, and service came back.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.violations.is_empty() && self.problem.is_none()
    }
}

impl Violation {
    /// Whether two clients, or two nodes, stood where one may.
    fn is_double_grant(&self) -> bool {
        matches!(self, Self::DoubleGrant { .. } | Self::TwoActive { .. })
    }

    fn is_early_grant(&self) -> bool {
        matches!(self, Self::EarlyGrant { .. })
    }

    fn is_token_regression(&self) -> bool {
        matches!(self, Self::TokenRegression { .. })
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DoubleGrant {
                first,
                second,
                overlap_ms,
            } => write!(
                f,
                "double grant: the holders of tokens {first} and {second} both believed for {overlap_ms} ms to hold the lock"
            ),
            Self::EarlyGrant { token, early_ms } => write!(
                f,
                "early grant: the held lock was granted with token {token} {early_ms} ms before the lease of its last \
                 holder had run out"
            ),
            Self::TokenRegression { node, earlier, later } => {
                write!(
                    f,
                    "token regression: node {node} granted token {later} after token {earlier}"
                )
            }
            Self::TwoActive {
                node,
                confirmed,
                granted,
            } => write!(
                f,
                "two actives: node {node} confirmed token {confirmed} after the other node had granted token {granted}"
            ),
            Self::Protocol { problem } => f.write_str(problem),
        }
    }
}

impl TimelineStep {
    /// A line of a journal, unless it is from before the fault. On the boot clock, which both nodes share with the drill.
    pub(super) fn since(fault: BootInstant, line: JournalLine) -> Option<Self> {
        let decided = BootInstant::from_nanos(line.boot_nanos);
        (decided >= fault).then(|| Self {
            after: decided.saturating_duration_since(fault),
            node: line.node,
            step: line.step,
            term: line.term,
            argument: line.basis,
            took_ms: line.took_ms,
        })
    }
}

impl Quantiles {
    /// `None` of nothing.
    #[must_use]
    pub fn of(durations: impl IntoIterator<Item = Duration>) -> Option<Self> {
        let mut sorted: Vec<_> = durations.into_iter().collect();
        sorted.sort_unstable();
        let max = *sorted.last()?;
        let nearest_rank = |percent: usize| sorted[(sorted.len() * percent).div_ceil(100) - 1];
        Some(Self {
            p50: nearest_rank(50),
            p99: nearest_rank(99),
            max,
        })
    }
}

/// As milliseconds with one decimal: more is below what the clients resolve.
fn in_ms(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 10_000.0).round() / 10.0
}

fn ms<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(in_ms(*duration))
}

fn optional_ms<S: Serializer>(duration: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    match duration {
        Some(duration) => ms(duration, serializer),
        None => serializer.serialize_none(),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use monolock_protocol::Token;

    use super::*;

    fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn step(after_ms: u64, step: &str) -> TimelineStep {
        TimelineStep {
            after: millis(after_ms),
            node: NodeId::B,
            step: step.into(),
            term: Some(Term(2)),
            argument: Some("crash".into()),
            took_ms: Some(4),
        }
    }

    pub(in super::super) fn report() -> DrillReport {
        let good = Run {
            gap: Some(millis(31)),
            held: Some(millis(2_010)),
            argument: Some("crash".into()),
            timeline: vec![step(3, "death_proven"), step(15, "became_active")],
            ..Run::default()
        };
        let bad = Run {
            gap: Some(millis(1_100)),
            violations: vec![
                Violation::DoubleGrant {
                    first: Token::new(5),
                    second: Token::new(6),
                    overlap_ms: 700,
                },
                Violation::TokenRegression {
                    node: NodeId::B,
                    earlier: Token::new(7),
                    later: Token::new(6),
                },
            ],
            ..Run::default()
        };
        DrillReport {
            pair: "own",
            witness: Some("file"),
            ttl: Some(millis(1_000)),
            lease: millis(2_000),
            scenarios: vec![
                ScenarioReport::new(Scenario::Kill, vec![good.clone(), good]),
                ScenarioReport::new(Scenario::Freeze, vec![bad]),
                ScenarioReport::not_run(Scenario::ClockStep, "libfaketime is not installed".into()),
            ],
        }
    }

    #[test]
    fn quantiles_are_measured_values() {
        let hundred = Quantiles::of((1..=100).map(millis)).unwrap();
        assert_eq!(
            (hundred.p50, hundred.p99, hundred.max),
            (millis(50), millis(99), millis(100))
        );
        let one = Quantiles::of([millis(7)]).unwrap();
        assert_eq!((one.p50, one.p99, one.max), (millis(7), millis(7), millis(7)));
        assert_eq!(Quantiles::of([]), None);
    }

    #[test]
    fn a_broken_promise_fails_the_scenario_and_is_counted() {
        let [kill, freeze, clock_step] = report().scenarios.try_into().unwrap();
        assert_eq!((kill.verdict, kill.double_grants), (Verdict::Passed, 0));
        assert_eq!(freeze.verdict, Verdict::Failed);
        assert_eq!((freeze.double_grants, freeze.token_regressions), (1, 1));
        assert_eq!(clock_step.verdict, Verdict::NotRun);
        let problem = Run::with_problem("nothing came back".into());
        let failed = ScenarioReport::new(Scenario::Kill, vec![Run::default(), problem]);
        assert_eq!(failed.verdict, Verdict::Failed);
        assert_eq!(
            ScenarioReport::new(Scenario::Kill, Vec::new()).verdict,
            Verdict::Failed
        );
    }

    #[test]
    fn the_json_names_what_was_measured() {
        let json = serde_json::to_value(report()).unwrap();
        assert_eq!(json["scenarios"][0]["gap_ms"]["p99"], 31.0);
        assert_eq!(json["scenarios"][1]["verdict"], "failed");
        let violation = &json["scenarios"][1]["runs"][0]["violations"][0];
        assert_eq!(violation["broken"], "double_grant");
        assert_eq!(json["scenarios"][2]["not_run"], "libfaketime is not installed");
        assert_eq!(json["ttl_ms"], 1_000.0);
    }

    #[test]
    fn a_step_before_the_fault_is_left_out() {
        let line = JournalLine {
            time: "2026-01-02T03:04:05.678Z".into(),
            node: NodeId::B,
            timeline: 1,
            at_ms: 0,
            boot_nanos: 678_000_000,
            step: "suspected".into(),
            term: None,
            basis: None,
            took_ms: None,
            detail: None,
            lost: 0,
        };
        let after = |fault| {
            let step = TimelineStep::since(BootInstant::from_millis(fault), line.clone());
            step.map(|step| step.after)
        };
        assert_eq!(after(600), Some(millis(78)));
        assert_eq!((after(678), after(679)), (Some(Duration::ZERO), None));
    }
}
