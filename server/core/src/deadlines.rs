//! The leases of all claims: one ordered index of deadlines, and how many claims have which lease.

use std::collections::{BTreeMap, BTreeSet};

use monolock_protocol::{BootInstant, Lease};

use crate::ClaimId;

#[derive(Debug, Default)]
pub(crate) struct Deadlines {
    ordered: BTreeSet<(BootInstant, ClaimId)>,
    leases: BTreeMap<Lease, usize>,
}

impl Deadlines {
    pub(crate) fn start(&mut self, claim: ClaimId, lease: Lease, deadline: BootInstant) {
        self.ordered.insert((deadline, claim));
        *self.leases.entry(lease).or_default() += 1;
    }

    pub(crate) fn renew(&mut self, claim: ClaimId, old: BootInstant, new: BootInstant) {
        let known = self.ordered.remove(&(old, claim));
        assert!(known, "each live claim has exactly one deadline");
        self.ordered.insert((new, claim));
    }

    pub(crate) fn stop(&mut self, claim: ClaimId, lease: Lease, deadline: BootInstant) {
        let known = self.ordered.remove(&(deadline, claim));
        assert!(known, "each live claim has exactly one deadline");
        if let Some(count) = self.leases.get_mut(&lease) {
            *count -= 1;
            if *count == 0 {
                self.leases.remove(&lease);
            }
        }
    }

    /// The claim that runs out first.
    pub(crate) fn first(&self) -> Option<(BootInstant, ClaimId)> {
        self.ordered.first().copied()
    }

    pub(crate) fn longest_lease(&self) -> Option<Lease> {
        self.leases.last_key_value().map(|(lease, _)| *lease)
    }
}
