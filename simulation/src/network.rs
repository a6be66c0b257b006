//! How messages fare: machines, one-way cuts, and connections that keep their order.

use std::collections::VecDeque;
use std::fmt;

use monolock_failover_core::NodeId;

/// A machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Host {
    Node(NodeId),
    Client(usize),
    Witness,
    Names,
    Resource,
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node(node) => write!(f, "node {node}"),
            Self::Client(client) => write!(f, "client {client}"),
            Self::Witness => f.write_str("witness"),
            Self::Names => f.write_str("names"),
            Self::Resource => f.write_str("resource"),
        }
    }
}

/// What a message is part of: each has weather of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Link {
    /// Between the two nodes.
    Peer,
    /// Between a node and the witness.
    Witness,
    /// Between a client and anything else.
    Client,
}

/// One direction of a connection: what goes in comes out in this order, however long it takes.
#[derive(Clone, Debug)]
pub(crate) struct Pipe<T> {
    items: VecDeque<(u64, T)>,
    last_ready: u64,
    /// A delivery is planned.
    planned: bool,
    tries: u32,
}

impl<T> Pipe<T> {
    pub(crate) fn new() -> Self {
        Self {
            items: VecDeque::new(),
            last_ready: 0,
            planned: false,
            tries: 0,
        }
    }

    /// Puts something in that could arrive at `ready`. Returns when to try to deliver, unless that is planned already.
    pub(crate) fn push(&mut self, item: T, ready: u64) -> Option<u64> {
        self.last_ready = self.last_ready.max(ready);
        self.items.push_back((self.last_ready, item));
        let idle = !std::mem::replace(&mut self.planned, true);
        idle.then_some(self.last_ready)
    }

    /// The next thing arrives, if it could by now.
    pub(crate) fn pop(&mut self, now: u64) -> Option<T> {
        self.tries = 0;
        self.planned = false;
        let (ready, _) = self.items.front()?;
        if *ready > now {
            return None;
        }
        self.items.pop_front().map(|(_, item)| item)
    }

    /// When to deliver what is still in here.
    pub(crate) fn plan(&mut self) -> Option<u64> {
        if self.planned {
            return None;
        }
        let (ready, _) = self.items.front()?;
        self.planned = true;
        Some(*ready)
    }

    /// The network lost it: how long until it is sent again. `None`: it was tried too often, the connection is broken.
    pub(crate) fn resend_after(&mut self) -> Option<u64> {
        self.tries += 1;
        (self.tries <= MOST_TRIES).then(|| FIRST_RESEND_US << self.tries.min(5))
    }
}

const FIRST_RESEND_US: u64 = 50_000;

/// Some fifteen seconds altogether.
const MOST_TRIES: u32 = 13;
