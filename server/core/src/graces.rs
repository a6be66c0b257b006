//! Locks with a point in time attached, ordered both ways.

use std::collections::{BTreeMap, BTreeSet};

use monolock_protocol::{BootInstant, LockName};

#[derive(Debug, Default)]
pub(crate) struct Graces {
    until: BTreeMap<LockName, BootInstant>,
    ends: BTreeSet<(BootInstant, LockName)>,
}

impl Graces {
    /// Begins a grace; one that runs longer already is kept.
    pub(crate) fn start(&mut self, lock: LockName, until: BootInstant) {
        if let Some(running) = self.until.get(&lock).copied() {
            if running >= until {
                return;
            }
            self.ends.remove(&(running, lock.clone()));
        }
        self.ends.insert((until, lock.clone()));
        self.until.insert(lock, until);
    }

    /// Ends a grace early; whether there was one.
    pub(crate) fn end(&mut self, lock: &LockName) -> bool {
        let Some(until) = self.until.remove(lock) else {
            return false;
        };
        self.ends.remove(&(until, lock.clone()))
    }

    pub(crate) fn is_running(&self, lock: &LockName) -> bool {
        self.until.contains_key(lock)
    }

    /// Takes the grace that ran out first, if one has.
    pub(crate) fn pop_due(&mut self, now: BootInstant) -> Option<LockName> {
        if self.first_end()? > now {
            return None;
        }
        let (_, lock) = self.ends.pop_first()?;
        self.until.remove(&lock);
        Some(lock)
    }

    pub(crate) fn first_end(&self) -> Option<BootInstant> {
        self.ends.first().map(|(until, _)| *until)
    }

    pub(crate) fn last_end(&self) -> Option<BootInstant> {
        self.ends.last().map(|(until, _)| *until)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&LockName, BootInstant)> {
        self.until.iter().map(|(lock, until)| (lock, *until))
    }
}
