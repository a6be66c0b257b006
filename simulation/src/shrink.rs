//! From a plan that fails to a smaller one that fails in the same way.

use crate::laws::Law;
use crate::mutation::Mutation;
use crate::plan::{Plan, Weather};
use crate::run::run;

/// Takes faults away, then calms the weather, for as long as the same law is broken. Returns the plan unchanged if it
/// breaks none.
#[must_use]
pub fn shrink(plan: &Plan, mutation: Option<Mutation>) -> Plan {
    let Some(breach) = run(plan, mutation).breach else {
        return plan.clone();
    };
    let mut smallest = plan.clone();
    let fails = |plan: &Plan| breaks(plan, mutation, breach.law);
    calm(&mut smallest, &fails);
    drop_strikes(&mut smallest, &fails);
    calm(&mut smallest, &fails);
    smallest
}

fn breaks(plan: &Plan, mutation: Option<Mutation>, law: Law) -> bool {
    run(plan, mutation).breach.is_some_and(|breach| breach.law == law)
}

/// Ever smaller groups of faults, until none can be left out.
fn drop_strikes(plan: &mut Plan, fails: &impl Fn(&Plan) -> bool) {
    let mut group = plan.strikes.len().div_ceil(2).max(1);
    loop {
        let mut dropped = false;
        let mut start = 0;
        while start < plan.strikes.len() {
            let end = (start + group).min(plan.strikes.len());
            let mut smaller = plan.clone();
            smaller.strikes.drain(start..end);
            if fails(&smaller) {
                *plan = smaller;
                dropped = true;
            } else {
                start = end;
            }
        }
        if group == 1 && !dropped {
            return;
        }
        group = (group / 2).max(1);
    }
}

/// Each way in which the weather can be better.
fn calm(plan: &mut Plan, fails: &impl Fn(&Plan) -> bool) {
    let better: [fn(&mut Weather); 9] = [
        |weather| weather.lost_percent = [0; 3],
        |weather| weather.late_percent = [0; 3],
        |weather| weather.lost_percent[0] = 0,
        |weather| weather.lost_percent[1] = 0,
        |weather| weather.lost_percent[2] = 0,
        |weather| weather.late_percent[0] = 0,
        |weather| weather.late_percent[1] = 0,
        |weather| weather.late_percent[2] = 0,
        |weather| weather.freezes_after_sending_per_mille = 0,
    ];
    for improve in better {
        let mut calmer = plan.clone();
        improve(&mut calmer.weather);
        if calmer != *plan && fails(&calmer) {
            *plan = calmer;
        }
    }
}
