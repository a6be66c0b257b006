//! What goes wrong.

use monolock_failover_core::NodeId;

use super::client::ClientEvent;
use super::peer::Then;
use super::{Event, NodeEvent, Owner, Segment, World};
use crate::laws::Checked;
use crate::network::Host;
use crate::plan::{Ending, Fault, TTL_US, Which};

impl World {
    pub(super) fn strike(&mut self, fault: Fault) -> Checked {
        self.timeline.tell(self.now, "---", || fault.to_string());
        match fault {
            Fault::End {
                node,
                how,
                down,
                loses_disk,
            } => {
                let node = self.which(node);
                self.end_node(node, how, down, loses_disk);
            }
            Fault::Handover => self.ask_peer_before(self.which(Which::Active), Then::HandOver),
            Fault::Freeze { node, length } => {
                let node = self.which(node);
                self.freeze(Host::Node(node), length);
            }
            Fault::CutFromPeer {
                node,
                length,
                both_ways,
            } => {
                let node = self.which(node);
                self.cut(Host::Node(node), Host::Node(node.peer()), length);
                if both_ways {
                    self.cut(Host::Node(node.peer()), Host::Node(node), length);
                }
            }
            Fault::CutFromWitness { node, length } => {
                self.cut(Host::Node(self.which(node)), Host::Witness, length);
            }
            Fault::DeafToWitness { node, length } => {
                self.cut(Host::Witness, Host::Node(self.which(node)), length);
            }
            Fault::WitnessDown { length } => self.witness_back_at = self.now + length,
            Fault::WallClockSteps { node, by } => {
                let node = self.which(node);
                self.host(node).clock.step_wall(by);
            }
            Fault::SessionsReset { node } => self.reset_sessions(self.which(node)),
            Fault::FreezeClient { client, length } => self.freeze(Host::Client(client), length),
            Fault::CrashClient { client, silently } => self.crash_client(client, silently),
            Fault::CutClient {
                client,
                node,
                length,
                sends,
                hears,
            } => {
                let (client, node) = (Host::Client(client), Host::Node(self.which(node)));
                if sends {
                    self.cut(client, node, length);
                }
                if hears {
                    self.cut(node, client, length);
                }
            }
            Fault::Burst { length } => self.spend(self.now + length)?,
            Fault::NamesStale { length } => self.names.stale_until = self.now + length,
        }
        Ok(())
    }

    fn which(&self, which: Which) -> NodeId {
        let active = [NodeId::A, NodeId::B]
            .into_iter()
            .find(|node| self.authority(*node).is_some())
            .unwrap_or(NodeId::A);
        match which {
            Which::Active => active,
            Which::Standby => active.peer(),
            Which::Named(node) => node,
        }
    }

    /// Many short claims by others.
    pub(super) fn spend(&mut self, until: u64) -> Checked {
        let node = self.which(Which::Active);
        let Some(term) = self.authority(node) else {
            return Ok(());
        };
        if self.nodes[&node].frozen_until <= self.now {
            let count = self.workload.pick(&[1 << 12, 1 << 18, 1 << 20, 1 << 21]);
            let last = self.table_step(node, |table, now| table.spend_tokens(count, now))?;
            if let Some(last) = last {
                self.records.grants(term, last)?;
            }
        }
        if self.now < until {
            self.push(self.now + TTL_US / 10, Owner::World, Event::Spends(until));
        }
        Ok(())
    }

    // ---- suspension

    pub(super) fn freeze(&mut self, host: Host, length: u64) {
        let until = self.now + length;
        self.tell(host, || format!("is suspended for {length} us"));
        let now = self.now;
        let (frozen_until, clock) = self.suspendable(host);
        *frozen_until = until.max(*frozen_until);
        clock.suspend(now);
        self.push(until, Owner::World, Event::Thaw(host));
    }

    pub(super) fn thaw(&mut self, host: Host) {
        let now = self.now;
        let (frozen_until, clock) = self.suspendable(host);
        if *frozen_until <= now {
            clock.resume(now);
        }
    }

    fn suspendable(&mut self, host: Host) -> (&mut u64, &mut crate::clock::Clock) {
        match host {
            Host::Node(node) => {
                let host = self.host(node);
                (&mut host.frozen_until, &mut host.clock)
            }
            Host::Client(client) => {
                let client = &mut self.clients[client];
                (&mut client.frozen_until, &mut client.clock)
            }
            Host::Witness | Host::Names | Host::Resource => unreachable!("they are not suspended"),
        }
    }

    pub(super) fn may_freeze(&mut self, node: NodeId) {
        let chance = self.plan.weather.freezes_after_sending_per_mille;
        if self.is_faulty() && self.machines.below(1_000) < chance {
            let length = self.machines.below(2 * TTL_US);
            self.freeze(Host::Node(node), length);
        }
    }

    // ---- ends

    fn end_node(&mut self, node: NodeId, how: Ending, down: u64, loses_disk: bool) {
        if self.life(node).is_none() {
            return;
        }
        self.tally.restarts += 1;
        let back = self.now + down;
        match how {
            Ending::Terminate => {
                self.process(node).away_for = down;
                self.ask_peer_before(node, Then::Stop);
                // Whoever stops a process kills it when that takes too long.
                self.push_node(self.now + 3 * TTL_US, node, NodeEvent::Killed);
                return;
            }
            Ending::Crash => self.end_process(node),
            Ending::PowerLoss => self.lose_power(node),
        }
        if loses_disk {
            self.host(node).disk = Default::default();
            self.records.forgot = true;
        }
        self.push(back, Owner::World, Event::Starts(Host::Node(node)));
    }

    /// The kernel sends what the process has written, and closes its connections.
    pub(super) fn end_process(&mut self, node: NodeId) {
        let Some(life) = self.life(node) else { return };
        self.tell(Host::Node(node), || "is gone".to_owned());
        self.end_feed(node);
        let open: Vec<_> = self.conns_of(node);
        for id in open {
            let conn = self.conns.get_mut(&id).expect("listed");
            if conn.node_life == life && conn.server_end.take().is_some_and(|end| !end.has_finished()) {
                self.send_down(id, Segment::Fin);
            }
        }
        self.gone(node);
    }

    fn lose_power(&mut self, node: NodeId) {
        self.host(node).powered = false;
        for id in self.conns_of(node) {
            let conn = self.conns.get_mut(&id).expect("listed");
            conn.down = crate::network::Pipe::new();
        }
        self.feeds.retain(|_, feed| feed.from != node);
        self.gone(node);
    }

    fn gone(&mut self, node: NodeId) {
        let now = self.now;
        let host = self.host(node);
        host.process = None;
        host.frozen_until = 0;
        host.clock.resume(now);
        self.records.all_leave(node);
    }

    fn conns_of(&self, node: NodeId) -> Vec<u64> {
        let of_node = self.conns.iter().filter(|(_, conn)| conn.node == node);
        of_node.map(|(id, _)| *id).collect()
    }

    /// A middlebox forgets its connections: each side learns of it in its own time.
    fn reset_sessions(&mut self, node: NodeId) {
        for id in self.conns_of(node) {
            let conn = &self.conns[&id];
            let (life, client, client_life) = (conn.node_life, conn.client, conn.client_life);
            let server_learns = self.now + self.network.below(TTL_US);
            let client_learns = self.now + self.network.below(TTL_US);
            let broke = Event::Node(NodeEvent::SessionBroke(id));
            self.push(server_learns, Owner::Node(node, life), broke);
            let broke = Event::Client(ClientEvent::ConnBroke(id));
            self.push(client_learns, Owner::Client(client, client_life), broke);
        }
    }
}
