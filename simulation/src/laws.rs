//! What must hold, whatever happens.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;

use monolock_failover_core::{Incarnation, NodeId, Term};
use monolock_protocol::Token;

/// What is promised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Law {
    /// No two nodes hold authority at the same moment.
    OneAuthority,
    /// Nothing is granted or acknowledged by a node whose authority has lapsed, and a term has one life.
    ServesWithAuthority,
    /// Every token of a later term is larger than every token of an earlier one; within a term they rise.
    TokenOrder,
    /// A clock that is wrong does not drag the tokens into the future.
    TokensArePlausible,
    /// No resource accepts a token below one that it has accepted.
    NoStaleWrite,
    /// A lock goes to whoever has waited longest.
    FirstInFirstOut,
    /// A lock is not granted while a correct holder believes in it.
    Exclusion,
    /// Neither side breaks the wire protocol, and a client holds under the token that was granted.
    Protocol,
    /// After the last fault one node serves, nobody takes over any more, and every waiter is served.
    Liveness,
    /// A node does not run hot.
    Calm,
    /// A core's own assertion failed.
    Assertion,
}

impl Law {
    /// A name for tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::OneAuthority => "one authority",
            Self::ServesWithAuthority => "serves with authority",
            Self::TokenOrder => "token order",
            Self::TokensArePlausible => "tokens are plausible",
            Self::NoStaleWrite => "no stale write",
            Self::FirstInFirstOut => "first in, first out",
            Self::Exclusion => "exclusion",
            Self::Protocol => "protocol",
            Self::Liveness => "liveness",
            Self::Calm => "calm",
            Self::Assertion => "assertion of a core",
        }
    }
}

/// A law was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Breach {
    /// Which.
    pub law: Law,
    /// When, in microseconds of true time.
    pub at: u64,
    /// How.
    pub what: String,
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, micros) = (self.at / 1_000_000, self.at % 1_000_000);
        write!(
            f,
            "{} is broken at {seconds}.{micros:06} s: {}",
            self.law.name(),
            self.what
        )
    }
}

/// A result of a step: [`Err`] ends the run.
pub(crate) type Checked = Result<(), (Law, String)>;

/// What has been granted and accepted so far.
#[derive(Debug, Default)]
pub(crate) struct Records {
    /// The lowest and the highest token of each term.
    granted: BTreeMap<Term, (Token, Token)>,
    reigned: BTreeMap<Term, Incarnation>,
    /// The highest floor of each term that the witness has acknowledged.
    witnessed: BTreeMap<Term, Token>,
    /// A disk was lost: what only that disk knew is forgotten.
    pub(crate) forgot: bool,
    accepted: BTreeMap<usize, Token>,
    queues: BTreeMap<(NodeId, usize), VecDeque<u64>>,
    /// A session that is being closed: it may be promoted first, or passed over.
    pub(crate) closing: Option<u64>,
}

impl Records {
    /// A term has one life.
    pub(crate) fn reigns(&mut self, term: Term, life: Incarnation) -> Checked {
        let first = *self.reigned.entry(term).or_insert(life);
        if first != life && !self.forgot {
            return Err((
                Law::ServesWithAuthority,
                format!("term {term} belonged to another life"),
            ));
        }
        Ok(())
    }

    pub(crate) fn witnessed(&mut self, term: Term, floor: Token) {
        let highest = self.witnessed.entry(term).or_default();
        *highest = (*highest).max(floor);
    }

    /// A token is granted in a term.
    pub(crate) fn grants(&mut self, term: Term, token: Token) -> Checked {
        let (low, high) = *self.granted.entry(term).or_insert((token, Token::ZERO));
        let broken = |what| Err((Law::TokenOrder, what));
        if token <= high {
            return broken(format!("term {term} grants {token} after {high}"));
        }
        self.granted.insert(term, (low.min(token), token));
        if self.forgot {
            // What the witness has acknowledged is known all the same.
            let floor = self.witnessed.range(..term).map(|(_, floor)| *floor).max();
            return match floor {
                Some(floor) if token < floor => broken(format!(
                    "term {term} grants {token}, below the witnessed floor {floor}"
                )),
                Some(_) | None => Ok(()),
            };
        }
        for (other, (low, high)) in &self.granted {
            if (*other < term && *high >= token) || (*other > term && *low <= token) {
                return broken(format!(
                    "term {term} grants {token}, term {other} has granted {low} to {high}"
                ));
            }
        }
        Ok(())
    }

    /// A resource accepts a write.
    pub(crate) fn accepts(&mut self, resource: usize, token: Token) -> Checked {
        let highest = self.accepted.entry(resource).or_default();
        if token < *highest {
            return Err((
                Law::NoStaleWrite,
                format!("resource {resource} accepts token {token} after {highest}"),
            ));
        }
        *highest = token;
        Ok(())
    }

    pub(crate) fn asks(&mut self, node: NodeId, lock: usize, session: u64) {
        self.queues.entry((node, lock)).or_default().push_back(session);
    }

    pub(crate) fn leaves(&mut self, node: NodeId, lock: usize, session: u64) {
        if let Some(queue) = self.queues.get_mut(&(node, lock)) {
            queue.retain(|waiting| *waiting != session);
        }
    }

    /// All sessions of a process are gone.
    pub(crate) fn all_leave(&mut self, node: NodeId) {
        self.queues.retain(|(of, _), _| *of != node);
    }

    /// A session is promoted.
    pub(crate) fn is_promoted(&mut self, node: NodeId, lock: usize, session: u64) -> Checked {
        let queue = self.queues.entry((node, lock)).or_default();
        let closing = self.closing.filter(|closing| *closing != session);
        queue.retain(|waiting| Some(*waiting) != closing);
        match queue.front() {
            Some(first) if *first == session => {
                queue.pop_front();
                Ok(())
            }
            first => Err((
                Law::FirstInFirstOut,
                format!("session {session} is promoted before {first:?}"),
            )),
        }
    }
}
