//! One token at a time.
//!
//! Passing the check is not the effect: a request that passed can be slow, and a newer one must not act before the
//! older one is over. So requests of one resource run together only if their tokens are equal. A newer token that waits
//! keeps equals of the running one out, so that a stale holder cannot keep its successor waiting by asking on and on.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use monolock_protocol::Token;
use tokio::sync::Notify;

use crate::{Resource, Stamp};

/// Who is running and who waits, for each resource that has either.
#[derive(Debug, Default)]
pub(crate) struct Turnstile {
    lanes: Mutex<HashMap<Resource, Lane>>,
}

/// One resource. It is dropped when nobody runs or waits.
#[derive(Debug, Default)]
struct Lane {
    current: Token,
    running: usize,
    waiting: BTreeMap<Token, usize>,
    changed: Arc<Notify>,
}

/// The right to run, until it is dropped.
#[derive(Debug)]
pub(crate) struct Pass {
    turnstile: Arc<Turnstile>,
    stamp: Stamp,
}

/// A place in the wait, given up when it is dropped.
struct Place<'t> {
    turnstile: &'t Turnstile,
    stamp: &'t Stamp,
}

impl Turnstile {
    /// Waits until no request with another token runs, and no larger token waits.
    pub(crate) async fn enter(self: &Arc<Self>, stamp: &Stamp) -> Pass {
        let place = Place::take(self, stamp);
        let changed = self.lane(stamp, |lane| lane.changed.clone());
        loop {
            // Before the look, so that what changes right after it is not missed.
            let wake = changed.notified();
            if self.lane(stamp, |lane| lane.try_start(stamp.token())) {
                break;
            }
            wake.await;
        }
        let pass = Pass {
            turnstile: self.clone(),
            stamp: stamp.clone(),
        };
        drop(place);
        pass
    }

    fn lane<T>(&self, stamp: &Stamp, look: impl FnOnce(&mut Lane) -> T) -> T {
        look(self.lanes().entry(stamp.resource().clone()).or_default())
    }

    /// Changes a lane, wakes who waits there, and drops the lane when it is empty.
    fn leave(&self, stamp: &Stamp, change: impl FnOnce(&mut Lane)) {
        let mut lanes = self.lanes();
        let Some(lane) = lanes.get_mut(stamp.resource()) else {
            return;
        };
        change(lane);
        lane.changed.notify_waiters();
        if lane.running == 0 && lane.waiting.is_empty() {
            lanes.remove(stamp.resource());
        }
    }

    /// No step leaves a lane half changed, so a panic elsewhere does not spoil it.
    fn lanes(&self) -> MutexGuard<'_, HashMap<Resource, Lane>> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lane {
    fn try_start(&mut self, token: Token) -> bool {
        let is_next = self
            .waiting
            .last_key_value()
            .is_none_or(|(largest, _)| token >= *largest);
        let fits = self.running == 0 || self.current == token;
        if is_next && fits {
            self.current = token;
            self.running += 1;
        }
        is_next && fits
    }
}

impl<'t> Place<'t> {
    fn take(turnstile: &'t Turnstile, stamp: &'t Stamp) -> Self {
        turnstile.lane(stamp, |lane| *lane.waiting.entry(stamp.token()).or_default() += 1);
        Self { turnstile, stamp }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.turnstile.leave(self.stamp, |lane| {
            if let Some(waiting) = lane.waiting.get_mut(&self.stamp.token()) {
                *waiting -= 1;
                if *waiting == 0 {
                    lane.waiting.remove(&self.stamp.token());
                }
            }
        });
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        self.turnstile.leave(&self.stamp, |lane| lane.running -= 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::Future;
    use std::pin::{Pin, pin};
    use std::task::{Context, Poll, Waker};

    fn stamp(token: u64) -> Stamp {
        Resource::guarded_by("door")
            .expect("a name")
            .stamp(Token::new(token))
    }

    fn poll<T>(future: Pin<&mut impl Future<Output = T>>) -> Option<T> {
        match future.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(value) => Some(value),
            Poll::Pending => None,
        }
    }

    #[test]
    fn equal_tokens_run_together_and_others_one_after_the_other() {
        let turnstile = Arc::new(Turnstile::default());
        let (old, new) = (stamp(1), stamp(2));
        let first = poll(pin!(turnstile.enter(&old))).expect("nobody is there");
        let second = poll(pin!(turnstile.enter(&old))).expect("an equal token");
        let mut newer = pin!(turnstile.enter(&new));
        assert!(poll(newer.as_mut()).is_none());
        drop(first);
        assert!(poll(newer.as_mut()).is_none(), "the second one still runs");
        drop(second);
        assert!(poll(newer.as_mut()).is_some());
    }

    #[test]
    fn a_newer_token_that_waits_keeps_equals_of_the_old_one_out() {
        let turnstile = Arc::new(Turnstile::default());
        let (old, new) = (stamp(1), stamp(2));
        let running = poll(pin!(turnstile.enter(&old))).expect("nobody is there");
        let mut newer = Box::pin(turnstile.enter(&new));
        assert!(poll(newer.as_mut()).is_none());
        let mut another = pin!(turnstile.enter(&old));
        assert!(poll(another.as_mut()).is_none());
        // The newer one goes away: the door is the old one's again.
        drop(newer);
        assert!(poll(another.as_mut()).is_some());
        drop(running);
    }

    #[test]
    fn an_older_token_waits_as_well() {
        let turnstile = Arc::new(Turnstile::default());
        let (old, new) = (stamp(1), stamp(2));
        let running = poll(pin!(turnstile.enter(&new))).expect("nobody is there");
        let mut older = pin!(turnstile.enter(&old));
        assert!(poll(older.as_mut()).is_none());
        drop(running);
        assert!(poll(older.as_mut()).is_some());
    }

    #[test]
    fn nothing_is_kept_of_an_idle_resource() {
        let turnstile = Arc::new(Turnstile::default());
        drop(poll(pin!(turnstile.enter(&stamp(1)))));
        assert!(turnstile.lanes().is_empty());
        let running = poll(pin!(turnstile.enter(&stamp(1))));
        let newer = stamp(2);
        let mut waiting = Box::pin(turnstile.enter(&newer));
        assert!(poll(waiting.as_mut()).is_none());
        drop(waiting);
        drop(running);
        assert!(turnstile.lanes().is_empty());
    }
}
