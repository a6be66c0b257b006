//! What must hold at every step.

use monolock_failover_core::{NodeId, OpenGate, Term, Unproven};
use monolock_protocol::Token;

use super::{Checked, MOST_EVENTS_IN_A_PERIOD, TTL_US, World};
use crate::weather::Beyond;

impl World {
    /// That there is one active rests on clocks and on refusals.
    pub(super) fn may_have_two_actives(&self) -> bool {
        match self.no_witness {
            None => matches!(self.weather.beyond, Beyond::ClocksRunWild | Beyond::RefusalsLie),
            Some(setting) => {
                setting.unproven == Unproven::Takeover || self.weather.beyond == Beyond::RefusalsLie
            }
        }
    }

    pub(super) fn hold_to(&self, word: Checked) -> Checked {
        if self.holds_to_words { word } else { Ok(()) }
    }

    /// A node that did not follow the life that reigned last holds every lock back.
    pub(super) fn check_grace(&self, node: NodeId, open: &OpenGate) -> Checked {
        // Without a witness, only the disks remember for how long, and an active may die before its lock table has told.
        let no_lease_known = self.hosts.values().all(|host| host.disk.longest_lease_ms == 0);
        let forgot = self.no_witness.is_some() && (self.forgot || no_lease_known);
        if self.may_have_two_actives() || forgot {
            return Ok(());
        }
        let followed = self.hosts[&node]
            .process
            .as_ref()
            .and_then(|process| process.followed);
        match self.reigned_last {
            Some(life) if open.grace.every_lock_until.is_none() && followed != Some(life) => {
                Err(format!("holds no lock back, though it never followed {life}"))
            }
            Some(_) | None => Ok(()),
        }
    }

    pub(super) fn check_authority(&mut self, node: NodeId) -> Checked {
        if self.may_have_two_actives() {
            return Ok(());
        }
        if self.has_authority(node) && self.has_authority(node.peer()) {
            return Err("both nodes hold authority".to_owned());
        }
        Ok(())
    }

    /// A term has one life.
    pub(super) fn check_reign(&mut self, node: NodeId, term: Term) -> Checked {
        let life = self.incarnation(node).expect("running");
        let first = *self.reigned.entry(term).or_insert(life);
        if first != life && !self.forgot {
            return Err(format!("term {term} belonged to another life"));
        }
        Ok(())
    }

    /// A stuck table keeps no authority: what is renewed now was sent before it got stuck.
    pub(super) fn check_table(&mut self, node: NodeId, renewed: bool) -> Checked {
        let host = &self.hosts[&node];
        if let Some((since, until)) = host.table_stuck
            && until > self.now
            && renewed
            && self.weather.beyond != Beyond::ClocksRunWild
            && self.now - since > TTL_US * 11 / 10
        {
            return Err("renewed its authority while its lock table is stuck".to_owned());
        }
        Ok(())
    }

    pub(super) fn counts_events(&mut self, node: NodeId) -> Checked {
        let period = self.now / TTL_US;
        let events = &mut self.host(node).events;
        if events.0 != period {
            *events = (period, 0);
        }
        events.1 += 1;
        if events.1 > MOST_EVENTS_IN_A_PERIOD {
            return Err("runs hot".to_owned());
        }
        Ok(())
    }

    pub(super) fn has_authority(&self, node: NodeId) -> bool {
        let host = &self.hosts[&node];
        let gate = host.process.as_ref().and_then(|process| process.gate.as_ref());
        gate.is_some_and(|gate| host.boot(self.now) < gate.until)
    }

    pub(super) fn active_nodes(&self) -> Vec<NodeId> {
        let mut nodes = vec![NodeId::A, NodeId::B];
        nodes.retain(|node| self.has_authority(*node));
        nodes
    }

    pub(super) fn grant(&mut self, node: NodeId) -> Checked {
        if !self.has_authority(node) {
            return Ok(());
        }
        let burst = self.rng.pick(&[1, 1, 1, 1 << 18, 1 << 20]);
        let gate = self.process(node).gate.as_mut().expect("has authority");
        if gate.last.next() >= gate.ceiling {
            return Ok(());
        }
        let first = gate.last.next();
        let token = Token::new((gate.last.get() + burst).min(gate.ceiling.get() - 1));
        gate.last = token;
        let term = gate.term;
        self.tally.grants += 1;
        let range = self.granted.entry(term).or_insert((first, token));
        *range = (range.0.min(first), range.1.max(token));
        self.check_order(term, first, token)
    }

    pub(super) fn check_order(&self, term: Term, first: Token, last: Token) -> Checked {
        match self.weather.beyond {
            _ if self.forgot && self.no_witness.is_some() => return Ok(()),
            Beyond::WitnessGoesBack if self.forgot => return Ok(()),
            Beyond::DiskIsLost if self.forgot => {
                let earlier = self.witnessed.range(..term).map(|(_, floor)| *floor).max();
                return match earlier {
                    Some(floor) if first < floor => Err(format!(
                        "token {first} of term {term} below a witnessed floor {floor}"
                    )),
                    Some(_) | None => Ok(()),
                };
            }
            _ => {}
        }
        for (other, (low, high)) in &self.granted {
            if (*other < term && *high >= first) || (*other > term && *low <= last) {
                return Err(format!(
                    "token {first}..={last} of term {term} against {low}..={high} of term {other}"
                ));
            }
        }
        Ok(())
    }
}
