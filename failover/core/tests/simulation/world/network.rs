//! The witness, the link between the nodes, and how messages fare.

use monolock_failover_core::{Incarnation, NodeId, PeerStatus, Record, RoleName, SwapOutcome};
use monolock_protocol::BootInstant;

use super::{Event, TTL_US, World};
use crate::weather::{Beyond, Link, usual_delay};

impl World {
    pub(super) fn stream_tick(&mut self, node: NodeId, now: BootInstant) {
        let peer = &self.hosts[&node.peer()];
        let reachable =
            self.reaches_peer(node) && self.reaches_peer(node.peer()) && peer.frozen_until <= self.now;
        let peer_life = peer.process.as_ref().map(|process| process.incarnation);
        let is_open = peer
            .process
            .as_ref()
            .is_some_and(|process| process.gate.is_some());
        let process = self.process(node);
        match (process.stream_from, peer_life) {
            (Some(from), Some(life)) if reachable && from == life => {
                process.watchdog.handle_stream_beat(now);
                if is_open && !process.has_snapshot {
                    process.has_snapshot = true;
                    process.followed = Some(life);
                    process.watchdog.handle_snapshot_end(None, now);
                }
            }
            (None, Some(life)) if reachable => {
                process.stream_from = Some(life);
                process.has_snapshot = false;
                process.monitor.hears_from(life);
                process.watchdog.handle_stream_started(life, now);
            }
            // The kernel of a host without that process resets the connection.
            (Some(from), life) if reachable && life != Some(from) => {
                process.stream_from = None;
                process.watchdog.handle_stream_ended(now);
            }
            _ => {}
        }
    }

    pub(super) fn swap(&mut self, expected: Option<&Record>, new: Record) -> SwapOutcome {
        if self.register.as_ref() != expected {
            return SwapOutcome::Lost {
                current: self.register.clone(),
            };
        }
        let floor = self.witnessed.entry(new.term).or_default();
        *floor = (*floor).max(new.floor);
        let old = self.register.replace(new);
        if self.weather.beyond == Beyond::WitnessGoesBack {
            self.backups.push_back((self.now, old));
        }
        SwapOutcome::Won
    }

    /// To a value that was replaced long enough ago that no node still takes it for the present one.
    pub(super) fn witness_goes_back(&mut self) {
        let long_ago = self.now.saturating_sub(TTL_US * 12 / 10);
        let seen_lately = |record: &Option<Record>| {
            let mut lately = self.backups.iter().filter(|(replaced, _)| *replaced >= long_ago);
            self.register == *record || lately.any(|(_, seen)| seen == record)
        };
        let backups = self.backups.iter().map(|(_, record)| record);
        let mut old: Vec<_> = backups.filter(|record| !seen_lately(record)).cloned().collect();
        let released =
            |record: &Option<Record>| record.as_ref().is_some_and(|record| record.holder.is_none());
        if old.iter().any(released) && self.rng.percent(50) {
            old.retain(released);
        }
        if old.is_empty() {
            return;
        }
        let record = old[self.rng.below(old.len() as u64) as usize].clone();
        self.tell(NodeId::A, || format!("the witness goes back to {record:?}"));
        let present = std::mem::replace(&mut self.register, record);
        self.backups.push_back((self.now, present));
        self.forgot = true;
    }

    pub(super) fn ask_witness(&mut self, node: NodeId, request: Event, unknown: Event) {
        let life = self.incarnation(node);
        self.push(self.now + TTL_US / 2, node, life, unknown);
        if self.hosts[&node].witness_cut_until > self.now || self.lost(Link::Witness) {
            return;
        }
        // A request that is under way arrives even if its sender has died: it is addressed to no process.
        let delay = self.delay(Link::Witness);
        self.push(self.now + delay, node, None, request);
    }

    pub(super) fn answer_from_witness(&mut self, node: NodeId, sender: Incarnation, answer: Event) {
        if !self.lost(Link::Witness) && self.hosts[&node].witness_mute_until <= self.now {
            let delay = self.delay(Link::Witness);
            self.push(self.now + delay, node, Some(sender), answer);
        }
    }

    // ---- the network

    pub(super) fn reaches_peer(&self, node: NodeId) -> bool {
        self.hosts[&node].peer_cut_until <= self.now
    }

    pub(super) fn lost(&mut self, link: Link) -> bool {
        self.faulty() && self.weather.loses(link, &mut self.rng)
    }

    pub(super) fn delay(&mut self, link: Link) -> u64 {
        if self.faulty() {
            self.weather.delay(link, &mut self.rng)
        } else {
            usual_delay(&mut self.rng)
        }
    }

    pub(super) fn disk_delay(&mut self) -> u64 {
        let (slow_percent, slowest) = match self.weather.beyond {
            Beyond::ClocksRunWild => (40, 3 * TTL_US),
            _ => (5, TTL_US),
        };
        let slow = self.faulty() && self.rng.percent(slow_percent);
        1 + self.rng.below(if slow { slowest } else { 20_000 })
    }

    pub(super) fn send_to_peer(&mut self, node: NodeId, event: Event) {
        if self.lost(Link::Peer) || !self.reaches_peer(node) {
            return;
        }
        let peer = node.peer();
        let Some(life) = self.incarnation(peer) else {
            return;
        };
        let delay = self.delay(Link::Peer);
        self.push(self.now + delay, peer, Some(life), event);
    }

    pub(super) fn answer_status(&mut self, node: NodeId, sent_at: BootInstant, asker: Incarnation) {
        let now = self.hosts[&node].boot(self.now);
        let Some(process) = self.hosts[&node].process.as_ref() else {
            return;
        };
        let status = process.watchdog.status(now);
        let status = PeerStatus {
            incarnation: process.incarnation,
            active: status.role == RoleName::Active,
            table_answers: status.table_answers,
            ready: status.ready,
            highest_term: process.watchdog.known_state().highest_term,
            floor: status.floor,
            longest_lease_ms: process.watchdog.known_state().longest_lease_ms,
        };
        if !self.lost(Link::Peer) && self.reaches_peer(node) {
            let outlives = self.faulty() && self.rng.percent(self.weather.outliving_percent);
            let more = if outlives { self.rng.below(3 * TTL_US) } else { 0 };
            let delay = self.delay(Link::Peer) + more;
            let answer = Event::Status(status, sent_at);
            self.push(self.now + delay, node.peer(), Some(asker), answer);
        }
    }
}
