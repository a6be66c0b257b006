//! The report as tables for a document.

use std::fmt::Write as _;

use super::{DrillReport, Quantiles, ScenarioReport, in_ms};

pub(super) fn render(report: &DrillReport) -> String {
    let mut text = String::new();
    let conditions = conditions(report);
    let held = "held lock p50 / p99 / max (ms)";
    push(
        &mut text,
        format_args!(
            "| scenario | {} | runs | gap p50 / p99 / max (ms) | {held} | double grants | early grants | token regressions |",
            conditions.0
        ),
    );
    push(
        &mut text,
        format_args!("| --- | --- | --- | --- | --- | --- | --- | --- |"),
    );
    for scenario in &report.scenarios {
        push(
            &mut text,
            format_args!(
                "| {} | {} | {} | {} | {} | {} | {} | {} |",
                scenario.scenario,
                conditions.1,
                scenario.runs.len(),
                cell(scenario.gap),
                cell(scenario.held),
                scenario.double_grants,
                scenario.early_grants,
                scenario.token_regressions
            ),
        );
    }
    for scenario in &report.scenarios {
        push_timeline(&mut text, scenario, &conditions.1);
    }
    text
}

/// What the figures hold for: the names, and their values.
fn conditions(report: &DrillReport) -> (&'static str, String) {
    match report.ttl {
        Some(ttl) => (
            "ttl, lease, witness",
            format!(
                "{ttl:?}, {:?}, {}",
                report.lease,
                report.witness.unwrap_or("unknown")
            ),
        ),
        None => ("lease", format!("{:?}", report.lease)),
    }
}

fn push_timeline(text: &mut String, scenario: &ScenarioReport, conditions: &str) {
    let Some(run) = scenario.typical_run().filter(|run| !run.timeline.is_empty()) else {
        return;
    };
    let gap = run.gap.map(in_ms).unwrap_or_default();
    push(
        text,
        format_args!(
            "\nTimeline of a typical run of `{}` ({conditions}; gap {gap:.1} ms):\n",
            scenario.scenario
        ),
    );
    push(
        text,
        format_args!("| ms after the fault | node | step | argument | took (ms) |"),
    );
    push(text, format_args!("| --- | --- | --- | --- | --- |"));
    for step in &run.timeline {
        let took = step.took_ms.map(|took| took.to_string()).unwrap_or_default();
        push(
            text,
            format_args!(
                "| {:.1} | {} | `{}` | {} | {took} |",
                in_ms(step.after),
                step.node,
                step.step,
                step.argument.as_deref().unwrap_or_default()
            ),
        );
    }
}

fn push(text: &mut String, line: std::fmt::Arguments<'_>) {
    writeln!(text, "{line}").expect("a string takes everything");
}

fn cell(quantiles: Option<Quantiles>) -> String {
    quantiles.map_or_else(
        || "-".into(),
        |Quantiles { p50, p99, max }| format!("{:.1} / {:.1} / {:.1}", in_ms(p50), in_ms(p99), in_ms(max)),
    )
}

#[cfg(test)]
mod tests {
    use super::super::tests::report;

    #[test]
    fn figures_come_with_the_timeline_of_a_typical_run() {
        let text = report().to_markdown();
        let expected = "\
| scenario | ttl, lease, witness | runs | gap p50 / p99 / max (ms) | held lock p50 / p99 / max (ms) | double grants | early grants | token regressions |
| --- | --- | --- | --- | --- | --- | --- | --- |
| kill | 1s, 2s, file | 2 | 31.0 / 31.0 / 31.0 | 2010.0 / 2010.0 / 2010.0 | 0 | 0 | 0 |
| freeze | 1s, 2s, file | 1 | 1100.0 / 1100.0 / 1100.0 | - | 1 | 0 | 1 |
| clock-step | 1s, 2s, file | 0 | - | - | 0 | 0 | 0 |

Timeline of a typical run of `kill` (1s, 2s, file; gap 31.0 ms):

| ms after the fault | node | step | argument | took (ms) |
| --- | --- | --- | --- | --- |
| 3.0 | b | `death_proven` | crash | 4 |
| 15.0 | b | `became_active` | crash | 4 |
";
        assert_eq!(text, expected);
    }
}
