//! What a standby knows of the locks its active has granted, and how long it must hold them back after a takeover.
//!
//! A lock is free at once only if its client's own close was seen. Everything else keeps the lease of its last
//! holder: that holder may still believe, rightly by its own clock, that it holds the lock.

use std::collections::BTreeMap;
use std::time::Duration;

use monolock_protocol::{BootInstant, Lease, LockName};

use crate::record::Incarnation;

/// One line of the active's stream about a lock.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum LockChange {
    /// The lock was granted with this lease.
    Held {
        /// The lock.
        lock: LockName,
        /// The lease of its holder.
        lease: Lease,
    },
    /// The holder closed its connection itself, or its lease ran out: nobody can believe to hold the lock.
    Freed {
        /// The lock.
        lock: LockName,
    },
    /// The holder's session ended otherwise: it may believe to hold the lock for `free_after` from now.
    Broke {
        /// The lock.
        lock: LockName,
        /// How long the grace still runs.
        free_after: Duration,
    },
}

/// Which locks a new active must not grant yet.
#[derive(Clone, Debug, PartialEq, Eq, Default, Hash)]
pub struct Grace {
    /// Until when locks that are not listed are held back; `None`: they are free at once.
    pub every_lock_until: Option<BootInstant>,
    /// Until when each of these locks is held back.
    pub locks: BTreeMap<LockName, BootInstant>,
}

/// The standby's copy of who holds what, with the time of the last line heard.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct FollowedLocks {
    /// Whose locks they are.
    from: Option<Incarnation>,
    locks: BTreeMap<LockName, Followed>,
    /// A whole snapshot was received on the stream that is running or ended last.
    complete: bool,
    /// Until when the active itself holds back every lock that is not listed.
    every_lock_until: Option<BootInstant>,
    last_heard: Option<BootInstant>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Followed {
    lease: Option<Lease>,
    grace_until: Option<BootInstant>,
}

impl FollowedLocks {
    /// What a stream that starts now is going to tell.
    pub(crate) fn of(from: Incarnation) -> Self {
        Self {
            from: Some(from),
            ..Self::default()
        }
    }

    /// Whether these are the locks of this life of the peer.
    pub(crate) fn are_of(&self, incarnation: Incarnation) -> bool {
        self.from == Some(incarnation)
    }

    pub(crate) fn handle_change(&mut self, change: LockChange, now: BootInstant) {
        self.last_heard = Some(now);
        match change {
            LockChange::Held { lock, lease } => self.locks.entry(lock).or_default().lease = Some(lease),
            LockChange::Freed { lock } => {
                if let Some(followed) = self.locks.get_mut(&lock) {
                    followed.lease = None;
                    if followed.grace_until.is_none_or(|until| until <= now) {
                        self.locks.remove(&lock);
                    }
                }
            }
            LockChange::Broke { lock, free_after } => {
                let followed = self.locks.entry(lock).or_default();
                followed.lease = None;
                followed.grace_until = followed.grace_until.max(Some(now + free_after));
            }
        }
    }

    pub(crate) fn handle_snapshot_end(&mut self, every_lock: Option<Duration>, now: BootInstant) {
        self.complete = true;
        self.every_lock_until = every_lock.map(|left| now + left);
        self.last_heard = Some(now);
    }

    pub(crate) fn handle_beat(&mut self, now: BootInstant) {
        self.last_heard = Some(now);
    }

    /// Whether the stream was whole and was still heard at `since`, give or take `tolerance`.
    pub(crate) fn is_live(&self, since: BootInstant, tolerance: Duration) -> bool {
        self.complete && self.last_heard.is_some_and(|heard| heard + tolerance >= since)
    }

    /// The grace of a takeover at `now`, when the stream was live.
    pub(crate) fn grace(&self, now: BootInstant) -> Grace {
        let until = |followed: &Followed| {
            let lease_until = followed.lease.map(|lease| now + lease.as_duration());
            lease_until.max(followed.grace_until).filter(|until| *until > now)
        };
        let locks = self
            .locks
            .iter()
            .filter_map(|(lock, followed)| Some((lock.clone(), until(followed)?)));
        let every_lock_until = self.every_lock_until.filter(|until| *until > now);
        Grace {
            every_lock_until,
            locks: locks.collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lock(name: &str) -> LockName {
        LockName::new(name).expect("valid")
    }

    fn held(name: &str, lease_ms: u32) -> LockChange {
        LockChange::Held {
            lock: lock(name),
            lease: Lease::from_millis(lease_ms).expect("positive"),
        }
    }

    fn at(millis: u64) -> BootInstant {
        BootInstant::from_millis(millis)
    }

    #[test]
    fn only_a_close_by_the_client_frees_a_lock_at_once() {
        let mut followed = FollowedLocks::default();
        followed.handle_change(held("closed", 1_000), at(0));
        followed.handle_change(held("broken", 1_000), at(0));
        followed.handle_change(held("held", 500), at(0));
        followed.handle_snapshot_end(None, at(0));
        followed.handle_change(LockChange::Freed { lock: lock("closed") }, at(10));
        let free_after = Duration::from_millis(1_000);
        followed.handle_change(
            LockChange::Broke {
                lock: lock("broken"),
                free_after,
            },
            at(10),
        );

        let grace = followed.grace(at(100));
        let expected = [(lock("broken"), at(1_010)), (lock("held"), at(600))];
        assert_eq!(
            grace,
            Grace {
                every_lock_until: None,
                locks: expected.into()
            }
        );
    }

    #[test]
    fn a_grace_outlives_the_next_holder_that_closes() {
        let mut followed = FollowedLocks::default();
        let free_after = Duration::from_millis(1_000);
        followed.handle_change(
            LockChange::Broke {
                lock: lock("x"),
                free_after,
            },
            at(0),
        );
        followed.handle_change(held("x", 10), at(1));
        followed.handle_change(LockChange::Freed { lock: lock("x") }, at(2));
        assert_eq!(followed.grace(at(3)).locks, [(lock("x"), at(1_000))].into());
        assert_eq!(followed.grace(at(1_000)).locks, BTreeMap::new());
    }

    #[test]
    fn a_running_grace_of_every_lock_survives_the_next_takeover() {
        let mut followed = FollowedLocks::default();
        followed.handle_snapshot_end(Some(Duration::from_millis(500)), at(0));
        assert_eq!(followed.grace(at(100)).every_lock_until, Some(at(500)));
        assert_eq!(followed.grace(at(500)).every_lock_until, None);
    }

    #[test]
    fn a_stream_is_live_only_after_its_snapshot_and_while_it_is_heard() {
        let mut followed = FollowedLocks::default();
        followed.handle_beat(at(5));
        assert!(!followed.is_live(at(5), Duration::ZERO), "no snapshot yet");
        followed.handle_snapshot_end(None, at(6));
        assert!(followed.is_live(at(10), Duration::from_millis(4)));
        assert!(!followed.is_live(at(11), Duration::from_millis(4)));
        let followed = FollowedLocks::of(Incarnation(8));
        assert!(!followed.is_live(at(6), Duration::from_millis(4)));
    }
}
