//! System calls of the server for each claim, counted by `strace`; against the server that answers nine bytes.
//!
//! Limit: accept, register, wait, read, write, wait, read the end, close. Under `strace` everything is slower, so that a
//! server waits for each event by itself: counts are those of single claims, not of a busy server.

use std::net::SocketAddr;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use monolock_integration_tests::process::{Process, Signal};
use monolock_integration_tests::server::LockServer;

use super::Bench;
use crate::claims::Session;
use crate::reference::{Bare, Reference};
use crate::table::{Row, Unit};

const CLAIMS: usize = 1_000;

pub(super) fn measure(bench: &Bench) -> Result<Vec<Row>> {
    let claims = bench.plan.scaled(CLAIMS);
    let (server, bare) = (LockServer::start(&[]), Reference::start(Bare::NineBytes)?);
    let ours = traced(server.process.pid(), server.address, claims)?;
    let theirs = traced(bare.process.pid(), bare.address, claims)?;
    eprintln!("system calls for each claim: {ours:?}");
    eprintln!("and of the bare server:      {theirs:?}");
    let what = "system calls of the server for each claim";
    Ok(vec![Row::compared(
        what,
        Unit::Count,
        &[total(&ours)],
        "nine bytes",
        &[total(&theirs)],
    )])
}

fn total(calls: &[(String, f64)]) -> f64 {
    calls.iter().map(|(_, calls)| calls).sum()
}

/// How often each system call is made for one claim.
fn traced(pid: u32, server: SocketAddr, claims: usize) -> Result<Vec<(String, f64)>> {
    cycle(server)?;
    let mut command = Command::new("strace");
    command.args(["-f", "-c", "-S", "calls", "-p", &pid.to_string()]);
    let strace = Process::spawn("strace", command);
    strace.wait_for_line("attached");
    for _ in 0..claims {
        cycle(server)?;
    }
    strace.signal(Signal::INT);
    let lines = strace.all_lines();
    let counted = lines.iter().filter_map(|line| counted(line, claims));
    let calls: Vec<_> = counted.filter(|(name, _)| name != "total").collect();
    ensure!(!calls.is_empty(), "strace counted nothing: {lines:?}");
    Ok(calls)
}

fn cycle(server: SocketAddr) -> Result<()> {
    let mut session = Session::ask(server, "traced")?;
    session.wait_granted().context("a grant")?;
    Ok(())
}

/// A line such as `25.10 0.002 2 1000 12 epoll_wait`; the number of errors may be missing.
fn counted(line: &str, claims: usize) -> Option<(String, f64)> {
    let words: Vec<_> = line.split_whitespace().collect();
    let (name, calls) = (words.last()?, words.get(3)?.parse::<f64>().ok()?);
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    Some(((*name).to_owned(), calls / claims as f64))
}
