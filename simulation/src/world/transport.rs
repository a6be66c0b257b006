//! How messages and connections fare between machines.

use super::client::ClientEvent;
use super::{Event, NodeEvent, Owner, PipeId, Segment, World};
use crate::laws::Checked;
use crate::network::{Host, Link};
use crate::plan::{FAULTS_END_US, FAULTS_START_US, TTL_US};

impl World {
    pub(super) fn is_faulty(&self) -> bool {
        (FAULTS_START_US..FAULTS_END_US).contains(&self.now)
    }

    pub(super) fn cut(&mut self, from: Host, to: Host, length: u64) {
        let until = self.cuts.entry((from, to)).or_default();
        *until = (*until).max(self.now + length);
    }

    /// Whether something sent now gets through.
    pub(super) fn reaches(&mut self, from: Host, to: Host, link: Link) -> bool {
        let is_cut = self.cuts.get(&(from, to)).is_some_and(|until| *until > self.now);
        let lost = self.plan.weather.lost_percent[link as usize];
        let is_lost = self.is_faulty() && self.network.percent(lost);
        !is_cut && !is_lost
    }

    /// How long a message is under way: mostly not long; now and then far beyond every time-out, or just before one.
    pub(super) fn delay(&mut self, link: Link) -> u64 {
        let usual = 100
            + self
                .network
                .below(if link == Link::Client { 3_000 } else { 8_000 });
        let late = self.plan.weather.late_percent[link as usize];
        if !self.is_faulty() || !self.network.percent(late) {
            return usual;
        }
        match self.network.below(5) {
            0 => self.network.between(TTL_US * 25 / 100, TTL_US / 2),
            1 => self.network.between(TTL_US * 70 / 100, TTL_US * 85 / 100),
            2 => self.network.between(TTL_US * 90 / 100, TTL_US * 115 / 100),
            _ => 100 + self.network.below(self.plan.weather.latest_us),
        }
    }

    pub(super) fn is_up(&self, host: Host) -> bool {
        match host {
            Host::Node(node) => self.nodes[&node].powered,
            Host::Client(client) => self.clients[client].runs,
            Host::Witness => self.witness_back_at <= self.now,
            Host::Names | Host::Resource => true,
        }
    }

    fn frozen_until(&self, host: Host) -> u64 {
        match host {
            Host::Node(node) => self.nodes[&node].frozen_until,
            Host::Client(client) => self.clients[client].frozen_until,
            Host::Witness | Host::Names | Host::Resource => 0,
        }
    }

    /// The next segment of a connection arrives, is sent again, or breaks the connection.
    pub(super) fn deliver(&mut self, pipe: PipeId) -> Checked {
        let Some((from, to, link)) = self.ends(pipe) else {
            return Ok(());
        };
        let frozen_until = self.frozen_until(to);
        if frozen_until > self.now {
            self.push(frozen_until, Owner::World, Event::Deliver(pipe));
            return Ok(());
        }
        if !self.is_up(to) || !self.reaches(from, to, link) {
            match self.resend_after(pipe) {
                Some(after) => self.push(self.now + after, Owner::World, Event::Deliver(pipe)),
                None => self.broke(pipe),
            }
            return Ok(());
        }
        let now = self.now;
        match pipe {
            PipeId::Up(id) => {
                let segment = self.conns.get_mut(&id).and_then(|conn| conn.up.pop(now));
                if let Some(segment) = segment {
                    self.arrives_at_server(id, segment)?;
                }
            }
            PipeId::Down(id) => {
                let segment = self.conns.get_mut(&id).and_then(|conn| conn.down.pop(now));
                if let Some(segment) = segment {
                    self.arrives_at_client(id, segment)?;
                }
            }
            PipeId::Feed(id) => {
                let line = self.feeds.get_mut(&id).and_then(|feed| feed.pipe.pop(now));
                if let Some(line) = line {
                    self.hears_line(id, line)?;
                }
            }
        }
        self.plan_delivery(pipe);
        Ok(())
    }

    fn ends(&self, pipe: PipeId) -> Option<(Host, Host, Link)> {
        match pipe {
            PipeId::Up(id) => {
                let conn = self.conns.get(&id)?;
                Some((Host::Client(conn.client), Host::Node(conn.node), Link::Client))
            }
            PipeId::Down(id) => {
                let conn = self.conns.get(&id)?;
                Some((Host::Node(conn.node), Host::Client(conn.client), Link::Client))
            }
            PipeId::Feed(id) => {
                let from = self.feeds.get(&id)?.from;
                Some((Host::Node(from), Host::Node(from.peer()), Link::Peer))
            }
        }
    }

    fn resend_after(&mut self, pipe: PipeId) -> Option<u64> {
        match pipe {
            PipeId::Up(id) => self.conns.get_mut(&id)?.up.resend_after(),
            PipeId::Down(id) => self.conns.get_mut(&id)?.down.resend_after(),
            PipeId::Feed(id) => self.feeds.get_mut(&id)?.pipe.resend_after(),
        }
    }

    fn plan_delivery(&mut self, pipe: PipeId) {
        let ready = match pipe {
            PipeId::Up(id) => self.conns.get_mut(&id).and_then(|conn| conn.up.plan()),
            PipeId::Down(id) => self.conns.get_mut(&id).and_then(|conn| conn.down.plan()),
            PipeId::Feed(id) => self.feeds.get_mut(&id).and_then(|feed| feed.pipe.plan()),
        };
        if let Some(at) = ready {
            self.push(at.max(self.now), Owner::World, Event::Deliver(pipe));
        }
        if let PipeId::Up(id) | PipeId::Down(id) = pipe
            && let Some(conn) = self.conns.get(&id)
            && conn.client_end.is_none()
            && conn.server_end.is_none()
            && conn.safe_until.is_none()
        {
            self.conns.remove(&id);
        }
    }

    /// Nothing gets through any more: the sender gives the connection up.
    fn broke(&mut self, pipe: PipeId) {
        match pipe {
            PipeId::Up(id) => {
                if let Some(conn) = self.conns.get(&id) {
                    let (client, life) = (conn.client, conn.client_life);
                    let event = Event::Client(ClientEvent::ConnBroke(id));
                    self.push(self.now, Owner::Client(client, life), event);
                }
            }
            PipeId::Down(id) => {
                if let Some(conn) = self.conns.get(&id) {
                    let (node, life) = (conn.node, conn.node_life);
                    let event = Event::Node(NodeEvent::SessionBroke(id));
                    self.push(self.now, Owner::Node(node, life), event);
                }
            }
            PipeId::Feed(id) => {
                self.feeds.remove(&id);
            }
        }
    }

    pub(super) fn send_up(&mut self, id: u64, segment: Segment) {
        let ready = self.now + self.delay(Link::Client);
        let Some(conn) = self.conns.get_mut(&id) else {
            return;
        };
        if let Some(at) = conn.up.push(segment, ready) {
            self.push(at, Owner::World, Event::Deliver(PipeId::Up(id)));
        }
    }

    pub(super) fn send_down(&mut self, id: u64, segment: Segment) {
        let ready = self.now + self.delay(Link::Client);
        let Some(conn) = self.conns.get_mut(&id) else {
            return;
        };
        if let Some(at) = conn.down.push(segment, ready) {
            self.push(at, Owner::World, Event::Deliver(PipeId::Down(id)));
        }
    }
}
