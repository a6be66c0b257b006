//! What must hold at every step, as far as it needs the whole world.

use monolock_failover_core::{NodeId, OpenGate, Term};
use monolock_protocol::Token;

use super::World;
use crate::clock::FIRST_SECOND;
use crate::laws::{Checked, Law};
use crate::network::Host;
use crate::plan::SETTLED_US;

/// What takeovers, reservations and honest clocks may add to the seconds of a token.
const MOST_SECONDS_AHEAD: u64 = 3_000;

impl World {
    /// Authority as the node's own watchdog has it.
    pub(super) fn authority(&self, node: NodeId) -> Option<Term> {
        let (term, until) = self.nodes[&node].process.as_ref()?.gate?;
        (self.boot(node) < until).then_some(term)
    }

    pub(super) fn check_authority(&self) -> Checked {
        match (self.authority(NodeId::A), self.authority(NodeId::B)) {
            (Some(a), Some(b)) => Err((
                Law::OneAuthority,
                format!("node a holds term {a}, node b term {b}"),
            )),
            _ => Ok(()),
        }
    }

    pub(super) fn check_serves(&self, node: NodeId, what: &str) -> Checked {
        if self.authority(node).is_none() {
            return Err((
                Law::ServesWithAuthority,
                format!("node {node} {what} without authority"),
            ));
        }
        Ok(())
    }

    /// A node's lock table has granted a lock to a session.
    pub(super) fn granted(&mut self, node: NodeId, session: Option<u64>, token: Token) -> Checked {
        self.tally.grants += 1;
        self.note(token.get());
        self.check_authority()?;
        self.check_serves(node, "grants a lock")?;
        let term = self.authority(node).expect("checked just now");
        self.records.grants(term, token)?;
        if token.epoch_seconds() > FIRST_SECOND + MOST_SECONDS_AHEAD {
            return Err((
                Law::TokensArePlausible,
                format!("node {node} grants {token}, second {}", token.epoch_seconds()),
            ));
        }
        let Some(id) = session else { return Ok(()) };
        let lock = self.conns[&id].lock;
        self.tell(Host::Node(node), || {
            format!("grants lock {lock} to session {id} with token {token}, term {term}")
        });
        self.records.is_promoted(node, lock, id)?;
        self.check_exclusion(id, lock, token)?;
        self.conns.get_mut(&id).expect("it is granted").granted = Some((term, token));
        Ok(())
    }

    /// Nobody else believes in it.
    fn check_exclusion(&self, granted: u64, lock: usize, token: Token) -> Checked {
        for (id, conn) in &self.conns {
            if *id == granted || conn.lock != lock || conn.excused {
                continue;
            }
            let now = self.clients[conn.client].clock.boot(self.now);
            if conn.safe_until.is_some_and(|until| now < until) {
                return Err((
                    Law::Exclusion,
                    format!(
                        "lock {lock} is granted to session {granted} with token {token} while client {} was told that it is safe after session {id}",
                        conn.client
                    ),
                ));
            }
            let believes = conn
                .client_end
                .as_ref()
                .and_then(|end| end.session.clone().grant(now).ok()?);
            if let Some(old) = believes {
                return Err((
                    Law::Exclusion,
                    format!(
                        "lock {lock} is granted to session {granted} with token {token}, and session {id} of client {} still believes in token {old}",
                        conn.client
                    ),
                ));
            }
        }
        Ok(())
    }

    /// What an asynchronous stream may miss: grants that the new active has not heard of, unless a grace of every lock
    /// covers them, or the old active has flushed its stream.
    pub(super) fn excuse_unheard(&mut self, node: NodeId, open: &OpenGate) {
        let Some(last) = self.last_reign.filter(|last| *last < open.term) else {
            return;
        };
        if self.flushed.contains(&last) {
            return;
        }
        let now = self.boot(node);
        let heard = &self.nodes[&node]
            .process
            .as_ref()
            .expect("it opens")
            .follower
            .heard;
        let mut excused = Vec::new();
        for (id, conn) in &self.conns {
            let (Some((term, token)), Some(lease)) = (conn.granted, conn.lease) else {
                continue;
            };
            if conn.client_end.is_none() && conn.safe_until.is_none() {
                continue;
            }
            let lock = &self.locks[conn.lock];
            let held_back = open
                .grace
                .locks
                .get(lock)
                .copied()
                .or(open.grace.every_lock_until);
            let covered = held_back.is_some_and(|until| until >= now + lease.as_duration());
            if term == last && !conn.excused && !covered && !heard.contains(&token) {
                excused.push((*id, token));
            }
        }
        for (id, token) in excused {
            self.tally.grants_unheard_of += 1;
            self.tell(Host::Node(node), || {
                format!("has not heard of session {id} with token {token}")
            });
            self.conns.get_mut(&id).expect("listed").excused = true;
        }
    }

    /// After the last fault, and some time to recover.
    pub(super) fn check_liveness(&self, reigns_when_settled: Option<u64>) -> Checked {
        let broken = |what| Err((Law::Liveness, what));
        let active: Vec<_> = [NodeId::A, NodeId::B]
            .into_iter()
            .filter(|node| self.authority(*node).is_some())
            .collect();
        if active.len() != 1 {
            return broken(format!("{active:?} active long after the last fault"));
        }
        if reigns_when_settled != Some(self.tally.reigns) {
            return broken("the active changed long after the last fault".to_owned());
        }
        for (index, client) in self.clients.iter().enumerate() {
            for worker in &client.workers {
                if worker.last_granted < SETTLED_US {
                    return broken(format!(
                        "client {index} was last granted lock {} at {} us",
                        worker.lock, worker.last_granted
                    ));
                }
            }
        }
        Ok(())
    }
}
