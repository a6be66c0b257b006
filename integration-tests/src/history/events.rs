//! The lines that clients write while they work: one JSON object each, in the order in which things happened to a client.

use std::collections::HashMap;
use std::net::SocketAddr;

use monolock_protocol::{BootInstant, Token};
use serde::{Deserialize, Serialize};

use super::{Grant, History, Write, WriteId, WriteOutcome};

/// One line of one client. Moments are nanoseconds on the boot clock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    /// Who.
    pub client: String,
    /// What.
    #[serde(flatten)]
    pub event: Event,
}

/// What happens to a client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// It has been granted a lock.
    Granted {
        /// Which.
        lock: String,
        /// The token.
        token: Token,
        /// The server that granted.
        server: SocketAddr,
        /// Before it asked.
        asked: u64,
        /// After it was told.
        granted: u64,
    },
    /// It is about to write.
    Sending {
        /// The number of the write.
        number: u64,
        /// The lock, and so the resource.
        lock: String,
        /// The token that the write will carry.
        token: Token,
        /// Whether it has made sure since then that it holds the lock; a careless client writes without.
        sure: bool,
        /// When it began.
        at: u64,
    },
    /// It was answered.
    Answered {
        /// The number of the write.
        number: u64,
        /// What it was told.
        outcome: Told,
        /// After it was told.
        at: u64,
    },
    /// It holds the lock no longer.
    Ended {
        /// Which.
        lock: String,
        /// The token of the grant.
        token: Token,
        /// Why; absent when it released the lock.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cause: Option<String>,
        /// When it noticed.
        at: u64,
    },
    /// It was not granted the lock.
    NotGranted {
        /// Which.
        lock: String,
        /// Why.
        cause: String,
        /// When it knew.
        at: u64,
    },
}

/// What a client was told of its write.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum Told {
    /// It is accepted.
    Accepted,
    /// It is stale.
    Refused {
        /// The highest token that the resource had accepted.
        highest: Token,
    },
    /// It changed nothing.
    Failed {
        /// Why.
        cause: String,
    },
    /// It may be accepted.
    Unknown {
        /// Why.
        cause: String,
    },
}

impl From<&Told> for WriteOutcome {
    fn from(told: &Told) -> Self {
        match told {
            Told::Accepted => Self::Accepted,
            Told::Refused { highest } => Self::Refused { highest: *highest },
            Told::Failed { .. } => Self::Failed,
            Told::Unknown { .. } => Self::Unknown,
        }
    }
}

impl History {
    /// Adds what clients wrote down. The lines of each client must be in their order; `node` names the node at an address.
    ///
    /// # Panics
    ///
    /// When a line speaks of a grant or write that no earlier one of its client began: the file is not complete.
    pub fn add_lines(&mut self, lines: impl IntoIterator<Item = Line>, node: impl Fn(SocketAddr) -> String) {
        let mut grants: HashMap<(String, Token), usize> = HashMap::new();
        let mut writes: HashMap<WriteId, usize> = HashMap::new();
        for Line { client, event } in lines {
            match event {
                Event::Granted {
                    lock,
                    token,
                    server,
                    asked,
                    granted,
                } => {
                    grants.insert((client.clone(), token), self.grants.len());
                    self.grants.push(Grant {
                        client,
                        lock,
                        token,
                        node: node(server),
                        asked: BootInstant::from_nanos(asked),
                        granted: BootInstant::from_nanos(granted),
                        held_until: BootInstant::from_nanos(granted),
                    });
                }
                Event::Sending {
                    number,
                    lock,
                    token,
                    sure,
                    at,
                } => {
                    let at = BootInstant::from_nanos(at);
                    let grant = grants
                        .get(&(client.clone(), token))
                        .expect("a client writes with a token that it was granted before");
                    if sure {
                        self.grants[*grant].held_until = self.grants[*grant].held_until.max(at);
                    }
                    let id = WriteId { client, number };
                    writes.insert(id.clone(), self.writes.len());
                    self.writes.push(Write {
                        id,
                        resource: lock,
                        token,
                        sent: at,
                        answered: BootInstant::MAX,
                        outcome: WriteOutcome::Unknown,
                    });
                }
                Event::Answered { number, outcome, at } => {
                    let write = writes
                        .get(&WriteId { client, number })
                        .expect("a write is sent before it is answered");
                    let write = &mut self.writes[*write];
                    write.answered = BootInstant::from_nanos(at);
                    write.outcome = (&outcome).into();
                }
                Event::Ended { .. } | Event::NotGranted { .. } => {}
            }
        }
    }
}
