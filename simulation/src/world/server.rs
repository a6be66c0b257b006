//! A node's lock server: its sessions and its lock table.

use monolock_core::{Action, ClaimId, ClaimState, CloseCause, LockTable, Now, Ownership};
use monolock_failover_core::NodeId;
use monolock_protocol::frame::{ClientFrame, Decoded, ServerFrame, SessionPhase, decode_client_frame};

use super::{NodeEvent, Segment, World};
use crate::laws::{Checked, Law};
use crate::network::Host;

/// The server's end of a connection.
#[derive(Debug, Default)]
pub(super) struct ServerEnd {
    received: Vec<u8>,
    claim: Option<ClaimId>,
    /// The last frame has been sent.
    finished: bool,
}

impl ServerEnd {
    /// Whether the last frame has been sent.
    pub(super) fn has_finished(&self) -> bool {
        self.finished
    }
}

impl World {
    /// Steps a node's lock table and does what it wants.
    pub(super) fn table_step<R>(
        &mut self,
        node: NodeId,
        step: impl FnOnce(&mut LockTable, Now) -> R,
    ) -> Result<R, (Law, String)> {
        let now = self.nodes[&node].clock.read(self.now);
        let result = step(&mut self.process(node).table, now);
        self.carry_out(node)?;
        Ok(result)
    }

    fn carry_out(&mut self, node: NodeId) -> Checked {
        while let Some(action) = self.process(node).table.poll_action() {
            match action {
                Action::Send { claim, state } => {
                    let session = self.process(node).sessions.get(&claim).copied();
                    if let (Some(id), ClaimState::Acquired(_)) = (session, state) {
                        self.check_serves(node, "acknowledges a grant")?;
                        self.note(id);
                    }
                    let frame = match state {
                        ClaimState::Waiting => ServerFrame::Waiting,
                        ClaimState::Acquired(token) => ServerFrame::Acquired(token),
                    };
                    if let Some(id) = session {
                        self.send_down(id, Segment::Bytes(frame.to_bytes()));
                    }
                }
                Action::End { claim, error } => {
                    if let Some(id) = self.process(node).sessions.remove(&claim) {
                        self.leaves_queue(node, id);
                        self.finish_session(id, error.map(ServerFrame::error));
                    }
                }
                Action::Ownership { claim, change, .. } => {
                    if let Ownership::Granted { token, .. } = change {
                        let session = self.process(node).sessions.get(&claim).copied();
                        self.granted(node, session, token)?;
                    }
                }
                Action::Follow(event) => self.feed_change(node, event),
                // In a pair the renewals of authority raise the ceiling.
                Action::Reserve { .. } => {}
            }
        }
        self.plan_table_wake(node);
        Ok(())
    }

    fn finish_session(&mut self, id: u64, last: Option<ServerFrame>) {
        if let Some(end) = self.conns.get_mut(&id).and_then(|conn| conn.server_end.as_mut()) {
            end.finished = true;
        }
        if let Some(frame) = last {
            self.send_down(id, Segment::Bytes(frame.to_bytes()));
        }
        self.send_down(id, Segment::Fin);
    }

    fn leaves_queue(&mut self, node: NodeId, id: u64) {
        if let Some(conn) = self.conns.get(&id) {
            self.records.leaves(node, conn.lock, id);
        }
    }

    pub(super) fn arrives_at_server(&mut self, id: u64, segment: Segment) -> Checked {
        let conn = &self.conns[&id];
        let (node, life) = (conn.node, conn.node_life);
        if self.life(node) != Some(life) {
            // The kernel knows no such connection.
            if conn.client_end.is_some() {
                self.send_down(id, Segment::Reset);
            }
            self.conns.get_mut(&id).expect("it exists").server_end = None;
            return Ok(());
        }
        if conn.server_end.is_none() {
            return Ok(());
        }
        match segment {
            Segment::Bytes(bytes) => self.server_receives(id, node, &bytes),
            Segment::Fin => {
                let finished = self.server_end(id).is_none_or(|end| end.finished);
                self.close_session(id, node, CloseCause::Closed)?;
                if !finished {
                    self.send_down(id, Segment::Fin);
                }
                Ok(())
            }
            Segment::Reset => self.close_session(id, node, CloseCause::Broken),
        }
    }

    pub(super) fn server_end(&mut self, id: u64) -> Option<&mut ServerEnd> {
        self.conns.get_mut(&id)?.server_end.as_mut()
    }

    pub(super) fn close_session(&mut self, id: u64, node: NodeId, cause: CloseCause) -> Checked {
        let Some(end) = self.conns.get_mut(&id).and_then(|conn| conn.server_end.take()) else {
            return Ok(());
        };
        let Some(claim) = end.claim else { return Ok(()) };
        self.records.closing = Some(id);
        self.table_step(node, |table, now| table.handle_close(claim, cause, now))?;
        self.records.closing = None;
        self.leaves_queue(node, id);
        if self.process(node).sessions.get(&claim) == Some(&id) {
            self.process(node).sessions.remove(&claim);
        }
        Ok(())
    }

    fn server_receives(&mut self, id: u64, node: NodeId, bytes: &[u8]) -> Checked {
        let end = self.server_end(id).expect("it is open");
        end.received.extend_from_slice(bytes);
        while let Some(end) = self.server_end(id) {
            let phase = match end.claim {
                None => SessionPhase::AwaitingAcquire,
                Some(_) => SessionPhase::Claimed,
            };
            let claim = end.claim;
            match decode_client_frame(&end.received, phase) {
                Ok(Decoded::Incomplete) => break,
                Ok(Decoded::Frame { frame, consumed }) => {
                    end.received.drain(..consumed);
                    match (frame, claim) {
                        (ClientFrame::Acquire { name, lease }, _) => {
                            self.server_claims(id, node, name, lease)?;
                        }
                        (ClientFrame::Heartbeat, Some(claim)) => {
                            self.table_step(node, |table, now| table.handle_heartbeat(claim, now))?;
                        }
                        (ClientFrame::Heartbeat, None) => unreachable!("the decoder refuses it"),
                    }
                }
                // After an answer that refused the claim a heartbeat may still follow.
                Err(_) if end.finished => break,
                Err(violation) => {
                    return Err((
                        Law::Protocol,
                        format!("a client breaks the protocol: {violation}"),
                    ));
                }
            }
        }
        Ok(())
    }

    fn server_claims(
        &mut self,
        id: u64,
        node: NodeId,
        name: monolock_protocol::LockName,
        lease: monolock_protocol::Lease,
    ) -> Checked {
        let lock = self.conns[&id].lock;
        let now = self.nodes[&node].clock.read(self.now);
        // What ends before the claim is made makes room for it.
        self.table_step(node, |table, now| table.handle_timeout(now))?;
        match self.process(node).table.handle_acquire(name, lease, now) {
            Ok(claim) => {
                self.process(node).sessions.insert(claim, id);
                self.server_end(id).expect("it is open").claim = Some(claim);
                self.records.asks(node, lock, id);
                self.tell(Host::Node(node), || {
                    format!("queues session {id} for lock {lock}")
                });
            }
            Err(refused) => self.finish_session(id, Some(ServerFrame::error(refused.code))),
        }
        self.carry_out(node)
    }

    pub(super) fn plan_table_wake(&mut self, node: NodeId) {
        let Some(at) = self.process(node).table.poll_timeout() else {
            return;
        };
        let at = self.nodes[&node].clock.true_time(at, self.now);
        let at = at.max(self.now + SHORTEST_WAIT_US);
        let process = self.process(node);
        if process.table_wakes.is_none_or(|planned| at < planned) {
            process.table_wakes = Some(at);
            self.push_node(at, node, NodeEvent::TableWakes(at));
        }
    }

    pub(super) fn table_wakes(&mut self, node: NodeId, planned: u64) -> Checked {
        let due = self.process(node).table_wakes.take_if(|at| *at == planned);
        if due.is_some() {
            self.table_step(node, |table, now| table.handle_timeout(now))?;
        }
        Ok(())
    }

    pub(super) fn session_broke(&mut self, id: u64, node: NodeId) -> Checked {
        let Some(conn) = self.conns.get_mut(&id) else {
            return Ok(());
        };
        if conn.server_end.is_none() {
            return Ok(());
        }
        if conn.granted.is_some() && (conn.client_end.is_some() || conn.safe_until.is_some()) {
            conn.excused = true;
            self.tally.sessions_reset += 1;
            self.tell(Host::Node(node), || {
                format!("session {id} was reset under its holder")
            });
        }
        self.close_session(id, node, CloseCause::Broken)
    }
}

/// No timer is finer.
pub(super) const SHORTEST_WAIT_US: u64 = 200;
