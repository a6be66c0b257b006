//! The claims, in a slab with generations: an identifier that outlives its claim names nothing.

use monolock_protocol::{BootInstant, Lease, LockName, Token};

use crate::rules::{Rule, Rules};

/// Names one claim for as long as it lives, and nothing afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClaimId {
    index: u32,
    generation: u32,
}

impl ClaimId {
    /// The place in the slab: small numbers, reused. For tables kept beside this one; compare the whole identifier
    /// before trusting what stands there.
    #[must_use]
    pub const fn index(self) -> usize {
        self.index as usize
    }

    /// The first claim in a place of the slab.
    #[cfg(test)]
    pub(crate) const fn first_at(index: u32) -> Self {
        Self { index, generation: 0 }
    }
}

#[derive(Debug)]
pub(crate) struct Claim {
    pub(crate) lock: LockName,
    pub(crate) lease: Lease,
    pub(crate) asked_at: BootInstant,
    pub(crate) last_seen: BootInstant,
    pub(crate) standing: Standing,
}

/// The place of a claim: a link of its lock's queue, or the holder.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Standing {
    Waiting {
        ahead: Option<ClaimId>,
        behind: Option<ClaimId>,
    },
    Holding {
        token: Token,
        since: BootInstant,
    },
}

impl Claim {
    pub(crate) fn deadline(&self) -> BootInstant {
        self.last_seen + self.lease.as_duration()
    }
}

#[derive(Debug, Default)]
pub(crate) struct Claims {
    entries: Vec<Entry>,
    first_free: Option<u32>,
    live: usize,
    pub(crate) rules: Rules,
}

#[derive(Debug)]
struct Entry {
    generation: u32,
    place: Place,
}

#[derive(Debug)]
enum Place {
    Free { next_free: Option<u32> },
    Live(Claim),
}

impl Claims {
    pub(crate) fn len(&self) -> usize {
        self.live
    }

    pub(crate) fn insert(&mut self, claim: Claim) -> ClaimId {
        self.live += 1;
        let Some(index) = self.first_free else {
            let index = u32::try_from(self.entries.len()).expect("fewer than 2^32 sessions fit one machine");
            self.entries.push(Entry {
                generation: 0,
                place: Place::Live(claim),
            });
            return ClaimId { index, generation: 0 };
        };
        let entry = &mut self.entries[index as usize];
        let Place::Free { next_free } = entry.place else {
            unreachable!("the free list holds free entries only");
        };
        self.first_free = next_free;
        entry.place = Place::Live(claim);
        ClaimId {
            index,
            generation: entry.generation,
        }
    }

    pub(crate) fn get(&self, id: ClaimId) -> Option<&Claim> {
        let dies = self.rules.hold(Rule::ClaimIdDiesWithClaim);
        let entry = self.entries.get(id.index())?;
        match &entry.place {
            Place::Live(claim) if entry.generation == id.generation || !dies => Some(claim),
            Place::Live(_) | Place::Free { .. } => None,
        }
    }

    pub(crate) fn get_mut(&mut self, id: ClaimId) -> Option<&mut Claim> {
        let dies = self.rules.hold(Rule::ClaimIdDiesWithClaim);
        let entry = self.entries.get_mut(id.index())?;
        match &mut entry.place {
            Place::Live(claim) if entry.generation == id.generation || !dies => Some(claim),
            Place::Live(_) | Place::Free { .. } => None,
        }
    }

    pub(crate) fn remove(&mut self, id: ClaimId) -> Option<Claim> {
        self.get(id)?;
        let entry = &mut self.entries[id.index()];
        entry.generation = entry.generation.wrapping_add(1);
        let freed = Place::Free {
            next_free: self.first_free,
        };
        self.first_free = Some(id.index);
        self.live -= 1;
        match std::mem::replace(&mut entry.place, freed) {
            Place::Live(claim) => Some(claim),
            Place::Free { .. } => unreachable!("it was live a moment ago"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(name: &str) -> Claim {
        Claim {
            lock: LockName::new(name).expect("valid"),
            lease: Lease::MIN,
            asked_at: BootInstant::ZERO,
            last_seen: BootInstant::ZERO,
            standing: Standing::Waiting {
                ahead: None,
                behind: None,
            },
        }
    }

    #[test]
    fn an_identifier_dies_with_its_claim_though_its_place_is_reused() {
        let mut claims = Claims::default();
        let first = claims.insert(claim("a"));
        let other = claims.insert(claim("b"));
        assert_eq!(
            claims.remove(first).map(|claim| claim.lock.to_string()),
            Some("a".to_owned())
        );
        assert!(claims.remove(first).is_none());
        let second = claims.insert(claim("c"));
        assert_eq!(second.index(), first.index());
        assert!(claims.get(first).is_none() && claims.get_mut(first).is_none());
        assert_eq!(claims.get(second).map(|claim| claim.lock.as_str()), Some("c"));
        assert_eq!(claims.get(other).map(|claim| claim.lock.as_str()), Some("b"));
        assert_eq!(claims.len(), 2);
    }
}
