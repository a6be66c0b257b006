//! Lock and unlock, against Redis, PostgreSQL and etcd.
//!
//! Ours makes a connection for each claim, because the connection is the lease; theirs keep theirs. Limit: see the claim
//! cycle.

use anyhow::Result;

use super::Bench;
use crate::peers::System;
use crate::plan::in_turn;
use crate::table::{Aim, Row, Unit};

pub(super) fn contended(bench: &Bench) -> Result<Vec<Row>> {
    let systems = System::start_each();
    let locks = vec!["contended".to_owned(); 64];
    let rows = compare(bench, &systems, "one lock, 64 want it", &locks)?;
    Ok(rows
        .into_iter()
        .map(|row| row.aiming(Aim::AtLeast(1.0)))
        .collect())
}

pub(super) fn uncontended(bench: &Bench) -> Result<Vec<Row>> {
    let systems = System::start_each();
    let mut rows = Vec::new();
    for at_once in [1, 16] {
        let locks: Vec<_> = (0..at_once)
            .map(|number| format!("uncontended/{number}"))
            .collect();
        let what = format!("lock and unlock without contention, {at_once} at once");
        rows.extend(compare(bench, &systems, &what, &locks)?);
    }
    Ok(rows)
}

fn compare(bench: &Bench, systems: &[System], what: &str, locks: &[String]) -> Result<Vec<Row>> {
    let figures = in_turn(systems, |system| {
        bench.runtime.block_on(system.rate(locks, bench.plan.turn()))
    })?;
    let theirs = systems.iter().zip(&figures).skip(1);
    Ok(theirs
        .map(|(system, theirs)| Row::compared(what, Unit::PerSecond, &figures[0], system.name(), theirs))
        .collect())
}
