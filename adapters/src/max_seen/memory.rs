//! Within one process.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Mutex, MutexGuard, PoisonError};

use monolock_protocol::Token;

use super::MaxSeen;
use crate::{FenceError, Resource, Stamp};

/// The largest tokens seen by this process. A restart forgets them.
#[derive(Debug, Default)]
pub struct Memory {
    seen: Mutex<HashMap<Resource, Token>>,
}

impl Memory {
    /// A store that has seen nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// No step leaves the map half changed, so a panic elsewhere does not spoil it.
    fn seen(&self) -> MutexGuard<'_, HashMap<Resource, Token>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MaxSeen for Memory {
    async fn admit(&self, stamp: &Stamp) -> Result<(), FenceError> {
        match self.seen().entry(stamp.resource().clone()) {
            Entry::Occupied(seen) if *seen.get() > stamp.token() => Err(FenceError::Stale {
                stamp: stamp.clone(),
                highest: *seen.get(),
            }),
            Entry::Occupied(mut seen) => {
                seen.insert(stamp.token());
                Ok(())
            }
            Entry::Vacant(unseen) => {
                unseen.insert(stamp.token());
                Ok(())
            }
        }
    }

    async fn highest(&self, resource: &Resource) -> Result<Option<Token>, FenceError> {
        Ok(self.seen().get(resource).copied())
    }
}
