//! What writers did and what they were told, and the check that no accepted write came after a larger token.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use monolock_adapters::{FenceError, Token};

/// One finished operation. Ticks order events of one run: `finished < started` means "before" in real time.
#[derive(Clone, Copy, Debug)]
struct Event {
    token: Token,
    started: u64,
    finished: u64,
    outcome: Outcome,
}

#[derive(Clone, Copy, Debug)]
enum Outcome {
    Accepted,
    Stale {
        highest: Token,
    },
    /// Nothing written, or nobody knows.
    Other,
}

/// Collects events from concurrent writers.
#[derive(Default)]
pub struct History {
    may_fail: bool,
    tick: AtomicU64,
    sent: Mutex<BTreeSet<Token>>,
    events: Mutex<Vec<Event>>,
}

/// An operation that has begun.
pub struct Started(u64);

impl History {
    /// For a store that is killed in between.
    pub fn of_a_store_that_may_fail() -> Self {
        Self {
            may_fail: true,
            ..Self::default()
        }
    }

    pub fn start(&self, token: Token) -> Started {
        self.sent.lock().expect("no writer panicked").insert(token);
        Started(self.tick.fetch_add(1, Ordering::SeqCst))
    }

    /// Records an outcome. Panics on one that no conforming store may give under pure contention.
    pub fn finish<T>(&self, started: Started, token: Token, result: &Result<T, FenceError>) {
        let outcome = match result {
            Ok(_) => Outcome::Accepted,
            Err(FenceError::Stale { highest, stamp }) => {
                assert_eq!(stamp.token(), token, "the refusal names the token that was sent");
                Outcome::Stale { highest: *highest }
            }
            Err(FenceError::Conflict { .. } | FenceError::Unknown { .. }) => Outcome::Other,
            Err(FenceError::Backend(_)) if self.may_fail => Outcome::Other,
            Err(other) => panic!("a writer was told: {other:?}"),
        };
        let finished = self.tick.fetch_add(1, Ordering::SeqCst);
        let event = Event {
            token,
            started: started.0,
            finished,
            outcome,
        };
        self.events.lock().expect("no writer panicked").push(event);
    }

    /// Checks the whole history and returns how many operations were accepted, refused as stale, and neither.
    pub fn check(&self) -> (usize, usize, usize) {
        let mut events = self.events.lock().expect("no writer panicked").clone();
        let sent = self.sent.lock().expect("no writer panicked").clone();
        let (mut accepted, mut stale, mut other) = (0, 0, 0);
        events.sort_by_key(|event| event.started);
        for event in &events {
            match event.outcome {
                Outcome::Accepted => {
                    accepted += 1;
                    let newer = events.iter().find(|earlier| {
                        matches!(earlier.outcome, Outcome::Accepted)
                            && earlier.finished < event.started
                            && earlier.token > event.token
                    });
                    assert!(newer.is_none(), "{event:?} was accepted after {newer:?}");
                }
                Outcome::Stale { highest } => {
                    stale += 1;
                    assert!(highest > event.token, "{event:?} was refused without reason");
                    assert!(
                        sent.contains(&highest),
                        "{event:?} was refused for a token nobody sent"
                    );
                }
                Outcome::Other => other += 1,
            }
        }
        (accepted, stale, other)
    }

    /// How many operations were accepted so far.
    pub fn accepted(&self) -> usize {
        let events = self.events.lock().expect("no writer panicked");
        events
            .iter()
            .filter(|event| matches!(event.outcome, Outcome::Accepted))
            .count()
    }

    /// The largest token of an accepted operation.
    pub fn highest_accepted(&self) -> Option<Token> {
        let events = self.events.lock().expect("no writer panicked");
        events
            .iter()
            .filter(|event| matches!(event.outcome, Outcome::Accepted))
            .map(|event| event.token)
            .max()
    }
}
