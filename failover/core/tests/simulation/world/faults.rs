//! What goes wrong, and how a node comes back.

use std::collections::BTreeMap;

use monolock_failover_core::{Config, Incarnation, NodeId, NodeState, OpId, Watchdog};

use super::{Checked, Event, FAULTS_END_US, FAULTS_START_US, Process, TTL_US, World, timing};
use crate::monitor::Monitor;
use crate::weather::{Beyond, Link, Trouble};

impl World {
    pub(crate) fn faulty(&self) -> bool {
        (FAULTS_START_US..FAULTS_END_US).contains(&self.now)
    }

    pub(super) fn fault(&mut self) {
        let calm = self.rng.below(self.weather.longest_calm_us);
        let at = self.now + TTL_US / 10 + calm;
        if at >= FAULTS_END_US {
            return;
        }
        self.push(at, NodeId::A, None, Event::Fault);
        let active = self.active_nodes().first().copied();
        let any = self.rng.pick(&[NodeId::A, NodeId::B]);
        let node = active.filter(|_| self.rng.percent(60)).unwrap_or(any);
        let life = self.incarnation(node);
        let until = self.now + self.rng.below(4 * TTL_US);
        if let Some(trouble) = self.weather.mostly
            && self.rng.percent(60)
        {
            return self.trouble(trouble, node);
        }
        match self.rng.below(14) {
            0..=1 => self.push(self.now, node, None, Event::Crash),
            2..=3 => {
                let length = self.rng.below(3 * TTL_US);
                self.push(self.now, node, None, Event::Freeze(length));
            }
            4 => {
                self.push(self.now, node, None, Event::CutPeer(until));
                self.push(self.now, node.peer(), None, Event::CutPeer(until));
            }
            5 => self.push(self.now, node, None, Event::CutPeer(until)),
            6 => self.push(self.now, node, None, Event::CutWitness(until)),
            7 => self.push(self.now, node, None, Event::MuteWitness(until)),
            8 => self.push(self.now, node, None, Event::TableSticks),
            9..=10 => self.push(self.now, node, life, Event::Handover),
            11 => self.trouble(Trouble::CrashUnseen, node),
            _ => self.trouble(Trouble::Siege, node),
        }
    }

    pub(super) fn trouble(&mut self, trouble: Trouble, node: NodeId) {
        match trouble {
            Trouble::Siege => self.siege(node),
            Trouble::CrashUnseen => self.crash_unseen(node),
            Trouble::Forgetting => self.forget(node),
            Trouble::WitnessGoesBack => {
                let until = self.now + self.rng.between(TTL_US, 4 * TTL_US);
                for side in [node, node.peer()] {
                    self.push(self.now, side, None, Event::CutPeer(until));
                }
                let at = self.now + self.rng.below(2 * TTL_US);
                self.push(at, node, None, Event::WitnessGoesBack);
            }
        }
    }

    pub(super) fn siege(&mut self, node: NodeId) {
        let mut first = self.now;
        let mut second = self.now + self.rng.below(2 * TTL_US);
        let until = second + self.rng.between(TTL_US, 3 * TTL_US);
        if self.rng.percent(50) {
            (first, second) = (second, first);
        }
        let witness = self
            .rng
            .pick(&[Event::CutWitness as fn(u64) -> Event, Event::MuteWitness]);
        self.push(first, node, None, witness(until));
        self.push(second, node, None, Event::CutPeer(until));
        if self.rng.percent(50) {
            self.push(second, node.peer(), None, Event::CutPeer(until));
        }
    }

    pub(super) fn crash_unseen(&mut self, node: NodeId) {
        let until = self.now + self.rng.between(TTL_US, 4 * TTL_US);
        let blind = self.now + self.rng.below(TTL_US / 10);
        self.push(self.now, node, None, Event::Crash);
        self.push(blind, node.peer(), None, Event::CutWitness(until));
    }

    pub(super) fn forget(&mut self, node: NodeId) {
        let until = self.now + 8 * TTL_US;
        let dies = self.now + self.rng.between(TTL_US / 4, 3 * TTL_US);
        self.push(self.now, node, None, Event::CutWitness(until));
        for side in [node, node.peer()] {
            self.push(self.now, side, None, Event::CutPeer(dies));
        }
        self.push(dies - 1, node.peer(), None, Event::CutWitness(until));
        self.push(dies, node.peer(), None, Event::Crash);
    }

    pub(super) fn may_freeze(&mut self, node: NodeId) {
        if self.faulty() && self.rng.below(1_000) < self.weather.freezes_after_sending_per_mille {
            let length = self.rng.below(2 * TTL_US);
            self.freeze(node, length);
        }
    }

    pub(super) fn freeze(&mut self, node: NodeId, length: u64) {
        let until = self.now + length;
        self.tell(node, || format!("frozen until {until}"));
        self.host(node).frozen_until = until;
    }

    pub(super) fn crash(&mut self, node: NodeId) {
        let Some(life) = self.incarnation(node) else {
            return;
        };
        self.tell(node, || "crashes".to_owned());
        let loses_disk = self.weather.beyond == Beyond::DiskIsLost && self.rng.percent(50);
        let host = self.host(node);
        host.process = None;
        host.frozen_until = 0;
        host.table_stuck = None;
        if loses_disk {
            host.disk = NodeState::default();
            self.forgot = true;
            self.tell(node, || "loses its disk".to_owned());
        }
        let down = self.rng.pick(&[TTL_US / 50, TTL_US / 4, 4 * TTL_US]);
        let down = 1 + self.rng.below(down);
        self.push(self.now + down, node, None, Event::Restart);
        let peer = node.peer();
        let streams = self.hosts[&peer]
            .process
            .as_ref()
            .is_some_and(|process| process.stream_from == Some(life));
        if streams && self.reaches_peer(node) {
            let delay = self.delay(Link::Peer);
            let peer_life = self.incarnation(peer);
            self.push(self.now + delay, peer, peer_life, Event::StreamEnded);
        }
    }

    /// Now and then it can switch the peer off, and says so.
    pub(super) fn fence_command(&mut self, node: NodeId, op: OpId) -> Checked {
        let stops = self.rng.percent(30);
        if stops {
            self.crash(node.peer());
        }
        self.feed(node, Event::Stopped(op, stops))
    }

    pub(super) fn restart(&mut self, node: NodeId) {
        if self.hosts[&node].process.is_some() {
            return;
        }
        self.next_incarnation += 1;
        let incarnation = Incarnation(self.next_incarnation);
        self.tell(node, || format!("starts as {}", incarnation.0));
        let boot = self.hosts[&node].boot(self.now);
        let config = Config {
            node,
            incarnation,
            timing: timing(),
            fast_takeover: true,
            no_witness: self.no_witness,
        };
        let disk = self.hosts[&node].disk;
        let mut watchdog = Watchdog::without_rules(config, &self.without, disk, boot);
        watchdog.handle_clock(Some(1_000_000), boot);
        let first_wake = self.now + 1;
        self.host(node).process = Some(Process {
            watchdog,
            monitor: Monitor::new(incarnation, boot),
            incarnation,
            gate: None,
            stream_from: None,
            has_snapshot: false,
            followed: None,
            replies: BTreeMap::new(),
            next_reply: 0,
            asked_to_give_way: false,
            wakes_at: Some(first_wake),
        });
        for event in [Event::Wake(first_wake), Event::AskStatus, Event::StreamTick] {
            self.push(first_wake, node, Some(incarnation), event);
        }
    }
}
