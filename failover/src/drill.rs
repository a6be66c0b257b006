//! A rehearsal of failures: `monolock-failover drill`.
//!
//! The drill starts a pair of real nodes of its own on loopback, or takes the operator's real one for a handover, keeps test
//! clients on it that speak the wire protocol by the rules, breaks something, and reports what the *clients* saw. Nothing
//! that a node says about itself decides: the gap is between two answers that arrived, and whether a promise was broken
//! follows from the order in which tokens were asked for and received (see [`Violation`]).
//!
//! | module | what it does |
//! | --- | --- |
//! | [`pair`] | the two nodes as processes |
//! | `network`, `clocks`, `register` | what can be broken around them without root |
//! | `session`, `clients` | the test clients |
//! | `history` | what they saw, and which promise it breaks; pure |
//! | `stage` | one scenario, played once |
//! | `live` | a handover of the real pair |
//! | [`command`] | what the operator is asked and told |
//! | `report` | figures and verdicts, as a table, JSON or Markdown |

use std::path::Path;

use monolock_protocol::Lease;

use crate::operator::HandoverError;

mod args;
mod clients;
mod clocks;
pub mod command;
mod history;
mod live;
mod network;
pub mod pair;
mod ports;
mod proxy;
mod register;
mod report;
mod scenario;
mod session;
mod stage;

pub use args::DrillArgs;
pub use history::Violation;
pub use live::{LivePair, hand_over_live};
pub use report::{DrillReport, Quantiles, Run, ScenarioReport, TimelineStep, Verdict};
pub use scenario::Scenario;

use pair::PairError;
use register::Register;
use stage::{Stage, StagePlan, Unplayed};

/// Why a drill was not carried out.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DrillError {
    /// A flag has a value that cannot be used.
    #[error("{flag}: {problem}")]
    Flag {
        /// Which.
        flag: &'static str,
        /// What is wrong with it.
        problem: String,
    },
    /// The drill's own pair.
    #[error(transparent)]
    Pair(#[from] PairError),
    /// The real pair is in no state to hand over.
    #[error("the pair could not hand over now:\n{0}")]
    NotHealthy(String),
    /// The real pair did not hand over.
    #[error(transparent)]
    Handover(#[from] HandoverError),
    /// The test clients get no lock from the real pair.
    #[error("the test clients get no lock from the active node: {0}")]
    NotServed(String),
}

/// Rehearses every scenario that was asked for, on pairs of `program` with their files in `folder`; `tell` hears of each run
/// that is over.
///
/// # Errors
///
/// [`DrillError`], when the drill itself could not be carried out. A broken promise is in the report.
pub async fn rehearse(
    args: &DrillArgs,
    program: &Path,
    folder: &Path,
    tell: &mut (dyn FnMut(&str) + Send),
) -> Result<DrillReport, DrillError> {
    let lease = lease(args)?;
    let register = Register::beside(args.witness.as_deref(), folder).map_err(|problem| DrillError::Flag {
        flag: "--witness",
        problem,
    })?;
    let plan = StagePlan {
        program: program.to_owned(),
        ttl: args.ttl,
        lease,
        witness: args.witness.clone(),
        grace: args.grace.clone(),
    };
    let wanted = if args.scenario.is_empty() {
        Scenario::ALL.to_vec()
    } else {
        args.scenario.clone()
    };
    let mut scenarios = Vec::new();
    for (scenario, number) in wanted.into_iter().zip(1..) {
        let folder = folder.join(format!("{number}-{scenario}"));
        scenarios.push(play(scenario, args.runs, &plan, &folder, tell).await?);
    }
    Ok(DrillReport {
        pair: "own",
        witness: Some(register.kind()),
        ttl: Some(args.ttl),
        lease: lease.as_duration(),
        scenarios,
    })
}

/// Stops at the first run that failed: its nodes may be in any state.
async fn play(
    scenario: Scenario,
    times: u32,
    plan: &StagePlan,
    folder: &Path,
    tell: &mut (dyn FnMut(&str) + Send),
) -> Result<ScenarioReport, DrillError> {
    std::fs::create_dir(folder).map_err(PairError::system("make a folder for the nodes' files"))?;
    let mut stage = match Stage::set(scenario, plan, folder).await {
        Ok(stage) => stage,
        Err(Unplayed::NotHere(reason)) => {
            tell(&format!("{scenario}: not run: {reason}"));
            return Ok(ScenarioReport::not_run(scenario, reason));
        }
        Err(Unplayed::Failed(error)) => return Err(error.into()),
    };
    let mut runs = Vec::new();
    for number in 1..=times {
        let run = stage.play().await?;
        let gap = run.gap.unwrap_or_default();
        let result = if run.passed() { "ok" } else { "FAILED" };
        tell(&format!(
            "{scenario}: run {number} of {times}: gap {gap:.1?}, {result}"
        ));
        let goes_on = run.passed();
        runs.push(run);
        if !goes_on {
            break;
        }
    }
    Ok(ScenarioReport::new(scenario, runs))
}

fn lease(args: &DrillArgs) -> Result<Lease, DrillError> {
    Lease::from_duration(args.lease).map_err(|error| DrillError::Flag {
        flag: "--lease",
        problem: error.to_string(),
    })
}
