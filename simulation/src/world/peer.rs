//! What the nodes tell each other: calls, and the follow stream.

use std::collections::BTreeSet;
use std::time::Duration;

use monolock_core::{LockEvent, LockTable, Snapshot};
use monolock_failover_core::{
    Incarnation, LockChange, NodeId, OpId, PeerStatus, PromiseAnswer, PromiseRequest, Record, ReplyId,
    RoleName, Term,
};
use monolock_protocol::{BootInstant, Token};

use super::{Event, NodeEvent, Owner, PipeId, World};
use crate::laws::Checked;
use crate::network::{Host, Link, Pipe};
use crate::plan::TTL_US;

/// A call to the peer.
#[derive(Clone, Debug)]
pub(super) enum Call {
    Promise(OpId, PromiseRequest),
    Status(BootInstant),
    Fence(Term, u32),
    Handover(Record, u32),
    Follow,
    Acknowledge(u64),
}

/// The answer to a call.
#[derive(Clone, Debug)]
pub(super) enum Answer {
    Promise(OpId, PromiseAnswer),
    Status {
        status: PeerStatus,
        term: Term,
        asked: BootInstant,
    },
}

/// What waits until the peer has said how it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Then {
    HandOver,
    Stop,
}

/// A follow stream.
pub(super) struct Feed {
    pub(super) from: NodeId,
    to_life: Incarnation,
    pub(super) pipe: Pipe<Line>,
}

/// A line of a follow stream.
#[derive(Clone, Debug)]
pub(super) enum Line {
    Start { life: Incarnation, active: bool },
    Change(LockChange, Option<Token>),
    SnapshotEnd(Option<Duration>),
    Beat,
    Mark(u64),
    End,
}

/// The listening side of a follow stream.
#[derive(Debug, Default)]
pub(super) struct Follower {
    stream: Option<u64>,
    heard_at: u64,
    follows_open_gate: bool,
    /// The grants that it was told of.
    pub(super) heard: BTreeSet<Token>,
}

impl World {
    /// Sends a call over a connection to the process that runs there now.
    pub(super) fn call(&mut self, node: NodeId, call: Call) {
        let peer = node.peer();
        let (Some(from), Some(to)) = (self.life(node), self.life(peer)) else {
            return;
        };
        if self.reaches(Host::Node(node), Host::Node(peer), Link::Peer) {
            let at = self.now + self.delay(Link::Peer);
            let event = Event::Node(NodeEvent::Called(from, call));
            self.push(at, Owner::Node(peer, to), event);
        }
    }

    fn answer(&mut self, node: NodeId, to: Incarnation, answer: Answer) {
        let peer = node.peer();
        if self.reaches(Host::Node(node), Host::Node(peer), Link::Peer) {
            let at = self.now + self.delay(Link::Peer);
            let event = Event::Node(NodeEvent::Answered(answer));
            self.push(at, Owner::Node(peer, to), event);
        }
    }

    pub(super) fn called(&mut self, node: NodeId, from: Incarnation, call: Call) -> Checked {
        let now = self.boot(node);
        match call {
            Call::Promise(op, request) => {
                let process = self.process(node);
                process.next_reply += 1;
                let reply = ReplyId(process.next_reply);
                process.replies.insert(reply, (from, op));
                process.watchdog.handle_promise_request(reply, request, now);
            }
            Call::Status(asked) => self.answer_status(node, from, asked),
            Call::Fence(term, _) => self.process(node).watchdog.handle_fence(term, now),
            Call::Handover(record, _) => self.process(node).watchdog.handle_handover_told(&record, now),
            Call::Follow => self.open_feed(node, from)?,
            Call::Acknowledge(mark) => {
                if self.process(node).flushing == Some(mark) {
                    let term = self.process(node).handing_over;
                    self.flushed.insert(term);
                }
                self.flush_over(node, mark);
            }
        }
        self.perform(node)
    }

    pub(super) fn answer_promise(&mut self, node: NodeId, reply: ReplyId, answer: PromiseAnswer) {
        if let Some((to, op)) = self.process(node).replies.remove(&reply) {
            self.answer(node, to, Answer::Promise(op, answer));
        }
    }

    fn answer_status(&mut self, node: NodeId, to: Incarnation, asked: BootInstant) {
        let now = self.boot(node);
        let process = self.process(node);
        let status = process.watchdog.status(now);
        let highest_term = process.watchdog.known_state().highest_term;
        let answer = Answer::Status {
            status: PeerStatus {
                incarnation: process.life,
                active: status.role == RoleName::Active,
                table_answers: status.table_answers,
                ready: status.ready,
                highest_term: highest_term.max(status.term),
                floor: status.floor,
                longest_lease_ms: 0,
            },
            term: status.term,
            asked,
        };
        self.answer(node, to, answer);
    }

    pub(super) fn answered(&mut self, node: NodeId, answer: Answer) -> Checked {
        let now = self.boot(node);
        match answer {
            Answer::Promise(op, answer) => {
                self.process(node)
                    .watchdog
                    .handle_promise_answer(op, Some(answer), now);
            }
            Answer::Status { status, term, asked } => {
                self.judge_clock(node)?;
                self.process(node).watchdog.handle_peer_status(status, asked, now);
                if status.active {
                    self.publish(node, term, node.peer());
                }
                self.do_then(node)?;
            }
        }
        self.perform(node)
    }

    pub(super) fn ask_status(&mut self, node: NodeId) {
        let asked = self.boot(node);
        self.call(node, Call::Status(asked));
    }

    // ---- the feeding side

    /// One feed, as long as there is one peer.
    fn open_feed(&mut self, node: NodeId, to_life: Incarnation) -> Checked {
        self.table_step(node, LockTable::handle_timeout)?;
        let now = self.nodes[&node].clock.read(self.now);
        let boot = self.boot(node);
        let id = self.next_id();
        let process = self.process(node);
        process.feed = Some(id);
        let active = process.watchdog.status(boot).role == RoleName::Active;
        let start = Line::Start {
            life: process.life,
            active,
        };
        let snapshot = process.table.snapshot(now);
        self.feeds.insert(
            id,
            Feed {
                from: node,
                to_life,
                pipe: Pipe::new(),
            },
        );
        self.feed_line(id, start);
        for line in snapshot_lines(snapshot) {
            self.feed_line(id, line);
        }
        Ok(())
    }

    fn feed_line(&mut self, id: u64, line: Line) {
        let ready = self.now + self.delay(Link::Peer);
        let Some(feed) = self.feeds.get_mut(&id) else {
            return;
        };
        if let Some(at) = feed.pipe.push(line, ready) {
            self.push(at, Owner::World, Event::Deliver(PipeId::Feed(id)));
        }
    }

    pub(super) fn feed_change(&mut self, node: NodeId, event: LockEvent) {
        if let Some(id) = self.process(node).feed {
            self.feed_line(id, change_line(event));
        }
    }

    pub(super) fn beat(&mut self, node: NodeId) {
        self.push_node(self.now + TTL_US / 6, node, NodeEvent::Beat);
        if let Some(id) = self.process(node).feed {
            self.feed_line(id, Line::Beat);
        }
    }

    /// What was told no longer holds as a whole: the follower comes back for a new snapshot.
    pub(super) fn end_feed(&mut self, node: NodeId) {
        if let Some(id) = self.process(node).feed.take() {
            self.feed_line(id, Line::End);
        }
    }

    /// The gate is shut for a handover: waits until the standby has heard all, or a bounded time.
    pub(super) fn flush_followers(&mut self, node: NodeId) {
        let process = self.process(node);
        process.next_mark += 1;
        let mark = process.next_mark;
        process.flushing = Some(mark);
        match process.feed {
            Some(id) => {
                self.feed_line(id, Line::Mark(mark));
                self.push_node(self.now + TTL_US / 6, node, NodeEvent::FlushOver(mark));
            }
            None => self.flush_over(node, mark),
        }
    }

    pub(super) fn flush_over(&mut self, node: NodeId, mark: u64) {
        let now = self.nodes[&node].clock.read(self.now);
        let process = self.process(node);
        if process.flushing.take_if(|waiting| *waiting == mark).is_some() {
            let last_token = process.table.report(now).last_token;
            process.watchdog.handle_gate_shut(last_token, now.boot);
        }
    }

    // ---- the following side

    /// Follows anew unless a stream runs; one that was silent for too long is given up.
    pub(super) fn follow(&mut self, node: NodeId) -> Checked {
        self.push_node(self.now + TTL_US / 6, node, NodeEvent::Follow);
        let silent_since = self.process(node).follower.heard_at;
        if self.process(node).follower.stream.is_some() && self.now < silent_since + 2 * TTL_US {
            return Ok(());
        }
        self.stream_ended(node)?;
        self.call(node, Call::Follow);
        Ok(())
    }

    fn stream_ended(&mut self, node: NodeId) -> Checked {
        let now = self.boot(node);
        let process = self.process(node);
        if process.follower.stream.take().is_some() {
            process.watchdog.handle_stream_ended(now);
            self.perform(node)?;
        }
        Ok(())
    }

    pub(super) fn hears_line(&mut self, id: u64, line: Line) -> Checked {
        let feed = &self.feeds[&id];
        let (node, to_life) = (feed.from.peer(), feed.to_life);
        if matches!(line, Line::End) || self.life(node) != Some(to_life) {
            self.feeds.remove(&id);
        }
        if self.life(node) != Some(to_life) {
            return Ok(());
        }
        let (now, true_now) = (self.boot(node), self.now);
        let process = self.process(node);
        let follower = &mut process.follower;
        if let Line::Start { life, active } = line {
            follower.stream = Some(id);
            follower.follows_open_gate = active;
            follower.heard_at = true_now;
            process.watchdog.handle_stream_started(life, now);
            return self.perform(node);
        }
        // A stream that was given up is not read any more.
        if follower.stream != Some(id) {
            self.feeds.remove(&id);
            return Ok(());
        }
        follower.heard_at = true_now;
        match line {
            Line::Start { .. } => unreachable!("handled above"),
            Line::Change(change, token) => {
                follower.heard.extend(token);
                process.watchdog.handle_lock_change(change, now);
            }
            Line::SnapshotEnd(_) if !follower.follows_open_gate => {}
            Line::SnapshotEnd(every_lock) => process.watchdog.handle_snapshot_end(every_lock, now),
            Line::Beat => process.watchdog.handle_stream_beat(now),
            Line::Mark(mark) => self.call(node, Call::Acknowledge(mark)),
            Line::End => {
                self.stream_ended(node)?;
                self.call(node, Call::Follow);
            }
        }
        self.perform(node)
    }
}

/// Graces first: a holder listed behind one does not end it.
fn snapshot_lines(snapshot: Snapshot) -> Vec<Line> {
    let graces = snapshot.graces.into_iter().map(|(lock, left)| {
        let free_after = in_whole_millis(left);
        Line::Change(LockChange::Broke { lock, free_after }, None)
    });
    let held = snapshot.held.into_iter().map(|held| {
        let (lock, lease) = (held.lock, held.lease);
        Line::Change(LockChange::Held { lock, lease }, Some(held.token))
    });
    let end = Line::SnapshotEnd(snapshot.every_lock.map(in_whole_millis));
    graces.chain(held).chain([end]).collect()
}

fn change_line(event: LockEvent) -> Line {
    match event {
        LockEvent::Held { lock, lease, token } => Line::Change(LockChange::Held { lock, lease }, Some(token)),
        LockEvent::Freed { lock } => Line::Change(LockChange::Freed { lock }, None),
        LockEvent::Broke { lock, left } => {
            let free_after = in_whole_millis(left);
            Line::Change(LockChange::Broke { lock, free_after }, None)
        }
    }
}

/// As the peer link rounds them: up, a grace must not end early.
fn in_whole_millis(duration: Duration) -> Duration {
    let millis = duration.as_nanos().div_ceil(1_000_000);
    Duration::from_millis(u64::try_from(millis).unwrap_or(u64::MAX))
}
