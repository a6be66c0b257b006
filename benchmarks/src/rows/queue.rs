//! Many waiters on one lock: what one more costs, and what a promotion costs; against a short queue.
//!
//! Limit: the index of deadlines is a tree, so a step costs O(log n), and a large one does not fit the caches.

use std::net::SocketAddr;

use anyhow::Result;
use monolock_clock::{boot_now, wall_now};
use monolock_core::{ClaimId, CloseCause, LockTable, Now, TokenSource};
use monolock_integration_tests::server::LockServer;
use monolock_protocol::{BootInstant, Lease, LockName, Token};

use super::{Bench, sessions};
use crate::claims::Session;
use crate::plan::in_turn;
use crate::table::{Aim, Row, Unit};

const SHORT: usize = 100;
const LONG: usize = 100_000;

/// How many steps at the end of the queue are measured together.
const STEPS: usize = 100;

pub(super) fn measure(bench: &Bench) -> Result<Vec<Row>> {
    let long = bench.plan.scaled(LONG).max(SHORT);
    let mut rows = compare("in the core", Unit::Nanos, long, |depth| Ok(in_core(depth)))?;
    let server = LockServer::start(&[]);
    let long = sessions::possible(bench, 1)?.max(SHORT);
    rows.extend(compare("over sockets", Unit::Micros, long, |depth| {
        over_sockets(server.address, depth)
    })?);
    Ok(rows)
}

/// What one step of each kind took, in seconds.
struct Steps {
    enqueue: f64,
    promote: f64,
}

impl Steps {
    fn between(start: BootInstant, enqueued: BootInstant, promoted: BootInstant) -> Self {
        #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
        let each = |from, to: BootInstant| to.saturating_duration_since(from).as_secs_f64() / STEPS as f64;
        Self {
            enqueue: each(start, enqueued),
            promote: each(enqueued, promoted),
        }
    }
}

fn compare(
    whose: &str,
    unit: Unit,
    long: usize,
    measure: impl Fn(usize) -> Result<Steps>,
) -> Result<Vec<Row>> {
    let figures = in_turn(&[long, SHORT], |depth| measure(*depth))?;
    let scale = if unit == Unit::Nanos { 1e9 } else { 1e6 };
    let row = |what: &str, pick: fn(&Steps) -> f64| {
        let [ours, theirs] = [0, 1].map(|place: usize| {
            let steps = figures[place].iter();
            steps.map(|steps| pick(steps) * scale).collect::<Vec<_>>()
        });
        let what = format!("{what} behind {long} waiters, {whose}");
        Row::compared(what, unit, &ours, format!("{SHORT} waiters"), &theirs).aiming(Aim::AtMost(2.0))
    };
    Ok(vec![
        row("enqueue", |steps| steps.enqueue),
        row("promote", |steps| steps.promote),
    ])
}

fn in_core(depth: usize) -> Steps {
    let tokens = TokenSource::reserved(Token::new(1), Token::MAX, now());
    let mut table = LockTable::always_open(tokens);
    let lock = LockName::new("queue").expect("a valid name");
    let lease = Lease::from_millis(3_600_000).expect("positive");
    let enqueue = |table: &mut LockTable| -> ClaimId {
        let claim = table
            .handle_acquire(lock.clone(), lease, now())
            .expect("it is open");
        while table.poll_action().is_some() {}
        claim
    };
    let mut queue: Vec<_> = (0..=depth).map(|_| enqueue(&mut table)).collect();
    let start = boot_now();
    queue.extend((0..STEPS).map(|_| enqueue(&mut table)));
    let enqueued = boot_now();
    for claim in queue.into_iter().take(STEPS) {
        table.handle_close(claim, CloseCause::Closed, now());
        while table.poll_action().is_some() {}
    }
    Steps::between(start, enqueued, boot_now())
}

fn now() -> Now {
    Now {
        wall: wall_now(),
        boot: boot_now(),
    }
}

fn over_sockets(server: SocketAddr, depth: usize) -> Result<Steps> {
    let enqueue = |count: usize| -> Result<Vec<Session>> {
        let wait = |_| {
            let mut waiter = Session::ask(server, "queue")?;
            waiter.wait_queued()?;
            Ok(waiter)
        };
        (0..count).map(wait).collect()
    };
    let mut holder = Session::ask(server, "queue")?;
    holder.wait_granted()?;
    let mut queue = vec![holder];
    queue.extend(enqueue(depth)?);
    let start = boot_now();
    queue.extend(enqueue(STEPS)?);
    let enqueued = boot_now();
    let mut queue = queue.into_iter();
    let mut holder = queue.next();
    for mut next in queue.by_ref().take(STEPS) {
        drop(holder.take());
        next.wait_granted()?;
        holder = Some(next);
    }
    Ok(Steps::between(start, enqueued, boot_now()))
}
