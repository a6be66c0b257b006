//! The witness, the name service and the resources.

use monolock_failover_core::{Incarnation, NodeId, OpId, Record, SwapOutcome, Term};
use monolock_protocol::Token;

use super::{Event, NodeEvent, Owner, World};
use crate::laws::Checked;
use crate::network::{Host, Link};
use crate::plan::TTL_US;
use crate::resource::{ETag, Verdict};

/// What the service name says.
#[derive(Debug, Default)]
pub(super) struct Names {
    record: Option<(Term, NodeId)>,
    /// Resolvers do not ask again before this.
    pub(super) stale_until: u64,
}

impl Names {
    /// An update of an older term changes nothing.
    pub(super) fn publish(&mut self, term: Term, node: NodeId) {
        if self.record.is_none_or(|(published, _)| published <= term) {
            self.record = Some((term, node));
        }
    }

    pub(super) fn address(&self) -> Option<NodeId> {
        self.record.map(|(_, node)| node)
    }
}

/// A write on its way to a resource.
#[derive(Clone, Copy, Debug)]
pub(super) struct Write {
    pub(super) client: usize,
    pub(super) resource: usize,
    pub(super) token: Token,
    /// What the writer has read of an object before.
    pub(super) expected: Option<ETag>,
    pub(super) body: u64,
}

impl World {
    // ---- the witness

    pub(super) fn ask_witness(&mut self, node: NodeId, op: OpId, swap: Option<(Option<Record>, Record)>) {
        let unknown = match swap {
            None => NodeEvent::Reading(op, None),
            Some(_) => NodeEvent::Swapped(op, SwapOutcome::Unknown),
        };
        self.push_node(self.now + TTL_US / 2, node, unknown);
        let Some(life) = self.life(node) else { return };
        if self.reaches(Host::Node(node), Host::Witness, Link::Witness) {
            let at = self.now + self.delay(Link::Witness);
            self.push(at, Owner::World, Event::AskedWitness(node, life, op, swap));
        }
    }

    /// A request that is under way arrives even if its sender has died meanwhile.
    pub(super) fn ask_register(
        &mut self,
        node: NodeId,
        life: Incarnation,
        op: OpId,
        swap: Option<(Option<Record>, Record)>,
    ) {
        if !self.is_up(Host::Witness) {
            return;
        }
        let answer = match swap {
            None => NodeEvent::Reading(op, Some(self.register.clone())),
            Some((expected, new)) => NodeEvent::Swapped(op, self.swap(expected.as_ref(), new)),
        };
        if self.reaches(Host::Witness, Host::Node(node), Link::Witness) {
            let at = self.now + self.delay(Link::Witness);
            self.push(at, Owner::Node(node, life), Event::Node(answer));
        }
    }

    fn swap(&mut self, expected: Option<&Record>, new: Record) -> SwapOutcome {
        if self.register.as_ref() != expected {
            let current = self.register.clone();
            return SwapOutcome::Lost { current };
        }
        self.records.witnessed(new.term, new.floor);
        self.note(new.beat);
        self.register = Some(new);
        SwapOutcome::Won
    }

    // ---- the resources

    pub(super) fn send_write(&mut self, write: Write) {
        let host = Host::Client(write.client);
        if self.reaches(host, Host::Resource, Link::Client) {
            let at = self.now + self.delay(Link::Client);
            self.push(at, Owner::World, Event::Written(write));
        }
    }

    pub(super) fn written(&mut self, write: Write) -> Checked {
        let resource = &mut self.resources[write.resource];
        let verdict = match write.expected {
            None => resource.write(write.token),
            Some(expected) => resource.write_if(expected, write.token, write.body),
        };
        match verdict {
            Verdict::Accepted => {
                self.tally.writes_accepted += 1;
                self.note(write.token.get());
                self.records.accepts(write.resource, write.token)
            }
            Verdict::Stale => {
                self.stale(write);
                Ok(())
            }
            Verdict::Conflict => Ok(()),
        }
    }

    pub(super) fn stale(&mut self, write: Write) {
        self.tally.stale_writes_refused += 1;
        self.tell(Host::Client(write.client), || {
            format!("is refused a stale write with token {}", write.token)
        });
    }
}
