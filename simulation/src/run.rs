//! One run of a plan.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::laws::{Breach, Law};
use crate::mutation::Mutation;
use crate::plan::Plan;
use crate::tally::Tally;
use crate::world::World;

/// What came of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The first law that was broken, if any was.
    pub breach: Option<Breach>,
    /// What happened until then.
    pub tally: Tally,
    /// A digest of everything that happened: the same plan gives the same.
    pub digest: u64,
}

/// Plays a plan with the cores as they are, or with a deliberate bug.
#[must_use]
pub fn run(plan: &Plan, mutation: Option<Mutation>) -> Outcome {
    let mut world = World::new(plan, mutation);
    let breach = play(&mut world);
    Outcome {
        breach,
        tally: world.tally,
        digest: world.digest,
    }
}

/// Plays a plan and tells what happens, line by line.
#[must_use]
pub fn story(plan: &Plan, mutation: Option<Mutation>) -> Vec<String> {
    let mut world = World::new(plan, mutation);
    world.timeline.is_written = true;
    let breach = play(&mut world);
    let mut lines = std::mem::take(&mut world.timeline).into_lines();
    lines.extend(breach.map(|breach| breach.to_string()));
    lines
}

/// A core that refuses to go on has noticed a bug itself.
fn play(world: &mut World) -> Option<Breach> {
    match catch_unwind(AssertUnwindSafe(|| world.run())) {
        Ok(Ok(())) => None,
        Ok(Err(breach)) => Some(breach),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string));
            Some(Breach {
                law: Law::Assertion,
                at: world.now(),
                what: text.unwrap_or_default(),
            })
        }
    }
}
