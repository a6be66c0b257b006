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
    tick: AtomicU64,
    events: Mutex<Vec<Event>>,
}

/// An operation that has begun.
pub struct Started(u64);

impl History {
    pub fn start(&self) -> Started {
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
        let sent: BTreeSet<Token> = events.iter().map(|event| event.token).collect();
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

/// Tokens in the order in which the store itself applied their writes must never step back.
pub fn assert_never_back(applied: &[u64]) {
    for pair in applied.windows(2) {
        assert!(
            pair[0] <= pair[1],
            "the store applied token {} after token {}",
            pair[1],
            pair[0]
        );
    }
}
