//! A heartbeat and its acknowledgement, one session; against the echo of one byte.
//!
//! Limit: two wake-ups, and a read and a write on each side.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::Result;
use monolock_clock::boot_now;
use monolock_integration_tests::server::LockServer;
use monolock_protocol::frame::HEARTBEAT_FRAME;

use super::Bench;
use crate::claims::{GRANT_LEN, Session};
use crate::figures::Quantiles;
use crate::plan::in_turn;
use crate::reference::{Bare, Reference};
use crate::table::{Aim, Row, Unit};

pub(super) fn measure(bench: &Bench) -> Result<Vec<Row>> {
    let (server, bare) = (LockServer::start(&[]), Reference::start(Bare::Echo)?);
    let mut session = Session::ask(server.address, "heartbeat")?;
    session.wait_granted()?;
    let echo = TcpStream::connect(bare.address)?;
    echo.set_nodelay(true)?;
    let contenders = [(session.stream, GRANT_LEN), (echo, HEARTBEAT_FRAME.len())];
    let figures = in_turn(&contenders, |(stream, answer)| {
        round_trips(stream, *answer, bench.plan.turn())
    })?;
    Ok(latency_rows(
        "acknowledgement of a heartbeat",
        &figures,
        "echo",
        1.15,
    ))
}

fn round_trips(mut stream: &TcpStream, answer: usize, turn: Duration) -> Result<Quantiles> {
    let mut answer = vec![0; answer];
    repeat(turn, || {
        let sent = boot_now();
        stream.write_all(&HEARTBEAT_FRAME)?;
        stream.read_exact(&mut answer)?;
        Ok(boot_now().saturating_duration_since(sent))
    })
}

/// The quantiles of what can be measured within a turn.
pub(super) fn repeat(turn: Duration, mut measure: impl FnMut() -> Result<Duration>) -> Result<Quantiles> {
    let deadline = boot_now() + turn;
    let mut durations = vec![measure()?];
    while boot_now() < deadline {
        durations.push(measure()?);
    }
    Ok(Quantiles::of(durations))
}

/// Two rows: the median, and the slowest in a hundred.
pub(super) fn latency_rows(what: &str, figures: &[Vec<Quantiles>], reference: &str, most: f64) -> Vec<Row> {
    let row = |name: &str, pick: fn(&Quantiles) -> f64| {
        let [ours, theirs] = [0, 1].map(|place: usize| figures[place].iter().map(pick).collect::<Vec<_>>());
        let row = Row::compared(format!("{what}, {name}"), Unit::Micros, &ours, reference, &theirs);
        row.aiming(Aim::AtMost(most))
    };
    vec![row("p50", |of| of.p50), row("p99", |of| of.p99)]
}
