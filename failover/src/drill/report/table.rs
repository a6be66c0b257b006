//! The report for people.

use std::fmt;
use std::time::Duration;

use super::{DrillReport, ScenarioReport, Verdict, in_ms};

pub(super) fn write(report: &DrillReport, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let ran = report
        .scenarios
        .iter()
        .filter(|scenario| scenario.verdict != Verdict::NotRun);
    writeln!(
        f,
        "{:<15}{:>5}{:>11}{:>9}{:>9}{:>13}{:>8}{:>7}{:>13}  {:<17}result",
        "scenario", "runs", "gap p50", "p99", "max", "held p50", "double", "early", "regressions", "argument"
    )?;
    writeln!(f, "{}", "-".repeat(115))?;
    for scenario in ran {
        write_row(scenario, f)?;
    }
    writeln!(f)?;
    write_legend(report, f)?;
    for scenario in &report.scenarios {
        write_notes(scenario, f)?;
    }
    let verdict = match report.verdict() {
        Verdict::Passed => "every promise held",
        Verdict::Failed => "A PROMISE WAS BROKEN",
        Verdict::NotRun => "nothing was run",
    };
    write!(f, "\n{verdict}")
}

fn write_row(scenario: &ScenarioReport, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let gap = |of: fn(&super::Quantiles) -> Duration| cell(scenario.gap.as_ref().map(of));
    let result = if scenario.verdict == Verdict::Passed {
        "ok"
    } else {
        "FAILED"
    };
    writeln!(
        f,
        "{:<15}{:>5}{:>11}{:>9}{:>9}{:>13}{:>8}{:>7}{:>13}  {:<17}{result}",
        scenario.scenario,
        scenario.runs.len(),
        gap(|gap| gap.p50),
        gap(|gap| gap.p99),
        gap(|gap| gap.max),
        cell(scenario.held.map(|held| held.p50)),
        scenario.double_grants,
        scenario.early_grants,
        scenario.token_regressions,
        scenario.arguments(),
    )
}

fn cell(duration: Option<Duration>) -> String {
    duration.map_or_else(|| "-".into(), |duration| format!("{:.1}", in_ms(duration)))
}

fn write_legend(report: &DrillReport, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    writeln!(
        f,
        "gap: milliseconds without a grant of a free lock; held: until the lock that was held was granted again;\n\
         double: holders or nodes that stood where one may; early: grants within the lease of the last holder"
    )?;
    write!(f, "leases of {:?}", report.lease)?;
    if let Some(ttl) = report.ttl {
        write!(f, ", an authority period of {ttl:?}")?;
    }
    if let Some(witness) = report.witness {
        write!(f, ", a witness of kind {witness}")?;
    }
    writeln!(f)
}

fn write_notes(scenario: &ScenarioReport, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let name = scenario.scenario;
    if let Some(reason) = &scenario.not_run {
        writeln!(f, "{name}: not run: {reason}")?;
    }
    for (run, number) in scenario.runs.iter().zip(1..) {
        if let Some(problem) = &run.problem {
            writeln!(f, "{name}, run {number}: {problem}")?;
        }
        for violation in &run.violations {
            writeln!(f, "{name}, run {number}: {violation}")?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::tests::report;

    #[test]
    fn the_table_is_aligned_and_says_what_failed() {
        let text = report().to_string();
        let expected = "\
scenario        runs    gap p50      p99      max     held p50  double  early  regressions  argument         result
-------------------------------------------------------------------------------------------------------------------
kill               2       31.0     31.0     31.0       2010.0       0      0            0  crash            ok
freeze             1     1100.0   1100.0   1100.0            -       1      0            1                   FAILED

gap: milliseconds without a grant of a free lock; held: until the lock that was held was granted again;
double: holders or nodes that stood where one may; early: grants within the lease of the last holder
leases of 2s, an authority period of 1s, a witness of kind file
freeze, run 1: double grant: the holders of tokens 5 and 6 both believed for 700 ms to hold the lock
freeze, run 1: token regression: node b granted token 6 after token 7
clock-step: not run: libfaketime is not installed

A PROMISE WAS BROKEN";
        assert_eq!(text, expected);
    }
}
