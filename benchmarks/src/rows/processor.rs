//! Processor time of the server for many sessions that send heartbeats; against an echo server under the same load.
//!
//! Limit: a read and a write for each heartbeat, and the wake-ups between.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use anyhow::Result;
use monolock_clock::boot_now;
use monolock_integration_tests::server::LockServer;
use monolock_protocol::frame::HEARTBEAT_FRAME;

use super::{Bench, sessions};
use crate::plan::in_turn;
use crate::reference::{Bare, Reference};
use crate::table::{Aim, Row, Unit};
use crate::usage::processor_time;

const INTERVAL: Duration = Duration::from_millis(2_500);

/// How finely the heartbeats of all sessions are spread over the interval.
const TICK: Duration = Duration::from_millis(1);

pub(super) fn measure(bench: &Bench) -> Result<Vec<Row>> {
    let count = sessions::possible(bench, 2)?;
    let (server, bare) = (LockServer::start(&[]), Reference::start(Bare::Echo)?);
    let held = sessions::plain(server.address, count)?;
    let held = held.into_iter().map(|session| Ok(session.stream));
    let echoed = (0..count).map(|_| TcpStream::connect(bare.address));
    let contenders = [
        (server.process.pid(), prepared(held)?),
        (bare.process.pid(), prepared(echoed)?),
    ];
    let figures = in_turn(&contenders, |(pid, streams)| {
        let before = processor_time(*pid)?;
        let elapsed = beat(streams, bench.plan.turn())?;
        let used = processor_time(*pid)? - before;
        Ok(100.0 * used.as_secs_f64() / elapsed.as_secs_f64())
    })?;
    let what = format!("processor time of {count} sessions, a heartbeat each 2.5 s");
    let row = Row::compared(what, Unit::Processor, &figures[0], "echo", &figures[1]);
    Ok(vec![row.aiming(Aim::AtMost(1.2))])
}

fn prepared(streams: impl Iterator<Item = io::Result<TcpStream>>) -> Result<Vec<TcpStream>> {
    let streams = streams.collect::<io::Result<Vec<_>>>()?;
    for stream in &streams {
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
    }
    Ok(streams)
}

/// Sends heartbeats at the pace of all sessions for one turn, and takes the answers of the turns before.
fn beat(streams: &[TcpStream], turn: Duration) -> Result<Duration> {
    let start = boot_now();
    let each = INTERVAL / u32::try_from(streams.len())?;
    let mut sent = 0_u32;
    loop {
        let elapsed = boot_now().saturating_duration_since(start);
        while each * sent < elapsed {
            let mut stream = &streams[sent as usize % streams.len()];
            take_answers(stream)?;
            stream.write_all(&HEARTBEAT_FRAME)?;
            sent += 1;
        }
        if elapsed >= turn {
            return Ok(elapsed);
        }
        thread::sleep(TICK);
    }
}

fn take_answers(mut stream: &TcpStream) -> io::Result<()> {
    match stream.read(&mut [0; 64]) {
        Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
        Err(error) => Err(error),
    }
}
