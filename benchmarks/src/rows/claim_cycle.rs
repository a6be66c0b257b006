//! Connect, acquire, granted, close; against a server that answers nine bytes to the same client.
//!
//! Limit: the kernel's work for a loopback connection, which both sides pay, client and server on the same processors.

use anyhow::Result;
use monolock_clock::boot_now;
use monolock_integration_tests::server::LockServer;

use super::Bench;
use crate::claims::Claimant;
use crate::plan::in_turn;
use crate::reference::{Bare, Reference};
use crate::table::{Aim, Row, Unit};
use crate::usage::processor_time;
use crate::worker::rate;

const AT_ONCE: [usize; 3] = [1, 16, 64];

pub(super) fn measure(bench: &Bench) -> Result<Vec<Row>> {
    let (server, bare) = (LockServer::start(&[]), Reference::start(Bare::NineBytes)?);
    let contenders = [
        (server.address, server.process.pid()),
        (bare.address, bare.process.pid()),
    ];
    let mut rows = Vec::new();
    for at_once in AT_ONCE {
        let figures = in_turn(&contenders, |(address, pid)| {
            let claimants = (0..at_once).map(|number| Claimant::new(*address, &format!("cycle/{number}")));
            let (before, start) = (processor_time(*pid)?, boot_now());
            let rate = bench
                .runtime
                .block_on(rate(claimants.collect(), bench.plan.turn()))?;
            let cycles = rate * boot_now().saturating_duration_since(start).as_secs_f64();
            let used = processor_time(*pid)?.saturating_sub(before).as_secs_f64();
            Ok((rate, used * 1e6 / cycles))
        })?;
        let [ours, theirs] = [0, 1].map(|place: usize| figures[place].iter().copied().unzip());
        rows.extend(compared(at_once, ours, theirs));
    }
    Ok(rows)
}

type Figures = (Vec<f64>, Vec<f64>);

fn compared(at_once: usize, ours: Figures, theirs: Figures) -> [Row; 2] {
    let row = |what: &str, unit, ours: &[f64], theirs: &[f64]| {
        Row::compared(
            format!("{what}, {at_once} at once"),
            unit,
            ours,
            "nine bytes",
            theirs,
        )
    };
    let used = "the server's processor time for a claim";
    [
        row("claim cycle", Unit::PerSecond, &ours.0, &theirs.0).aiming(Aim::AtLeast(0.9)),
        row(used, Unit::Micros, &ours.1, &theirs.1),
    ]
}
