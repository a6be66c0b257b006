//! From the holder's close to the next waiter's grant; against a relay of one byte between two sockets.
//!
//! Limit: as a relay: one wake-up of the server, one of the waiter. A close costs the kernel more than a byte.

use std::cell::RefCell;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::Result;
use monolock_clock::boot_now;
use monolock_integration_tests::server::LockServer;

use super::Bench;
use super::heartbeat::{latency_rows, repeat};
use crate::claims::Session;
use crate::plan::in_turn;
use crate::reference::{Bare, Reference};
use crate::table::Row;

enum Contender {
    Queue(RefCell<Queue>),
    Relay([TcpStream; 2]),
}

pub(super) fn measure(bench: &Bench) -> Result<Vec<Row>> {
    let (server, bare) = (LockServer::start(&[]), Reference::start(Bare::Relay)?);
    let contenders = [
        Contender::Queue(RefCell::new(Queue::new(server.address, "handover")?)),
        Contender::Relay(relay(bare.address)?),
    ];
    let figures = in_turn(&contenders, |contender| match contender {
        Contender::Queue(queue) => repeat(bench.plan.turn(), || queue.borrow_mut().hand_over()),
        Contender::Relay(ends) => repeat(bench.plan.turn(), || carry(ends)),
    })?;
    Ok(latency_rows(
        "handover: close to next grant",
        &figures,
        "relay",
        1.3,
    ))
}

fn relay(address: SocketAddr) -> Result<[TcpStream; 2]> {
    let ends = [TcpStream::connect(address)?, TcpStream::connect(address)?];
    for end in &ends {
        end.set_nodelay(true)?;
    }
    Ok(ends)
}

fn carry([from, to]: &[TcpStream; 2]) -> Result<Duration> {
    let (mut from, mut to) = (from, to);
    let sent = boot_now();
    from.write_all(&[0])?;
    to.read_exact(&mut [0])?;
    Ok(boot_now().saturating_duration_since(sent))
}

/// A lock with its holder and somebody who waits.
pub(super) struct Queue {
    server: SocketAddr,
    lock: String,
    holder: Option<Session>,
}

impl Queue {
    pub(super) fn new(server: SocketAddr, lock: &str) -> Result<Self> {
        let mut holder = Session::ask(server, lock)?;
        holder.wait_granted()?;
        Ok(Self {
            server,
            lock: lock.to_owned(),
            holder: Some(holder),
        })
    }

    fn hand_over(&mut self) -> Result<Duration> {
        let mut waiter = Session::ask(self.server, &self.lock)?;
        waiter.wait_queued()?;
        let closed = boot_now();
        drop(self.holder.take());
        waiter.wait_granted()?;
        let took = boot_now().saturating_duration_since(closed);
        self.holder = Some(waiter);
        Ok(took)
    }
}
