//! What the peer hears when it follows this node.

use std::time::Duration;

use monolock_clock::{boot_now, wall_now};
use monolock_failover_core::{Incarnation, Term};
use monolock_server::{FollowReceiver, LockEvent, Snapshot};
use tokio::sync::{broadcast, mpsc};
use tokio::time::{MissedTickBehavior, interval};

use super::confirm::{Confirming, Marks};
use super::table::Table;
use crate::peer::message::FollowEvent;
use crate::peer::{FollowFeed, Reply};

/// The feeds of all followers: one, as long as there is one peer.
pub(super) struct Feeds {
    table: Table,
    incarnation: Incarnation,
    beat_every: Duration,
    /// Marks to pass on; closed to end every feed.
    flushes: broadcast::Sender<u64>,
    marks: Marks,
    /// Every grant is followed by a mark.
    confirms_grants: bool,
    next_name: u64,
}

impl Feeds {
    pub(super) fn new(
        table: Table,
        incarnation: Incarnation,
        beat_every: Duration,
        confirms_grants: bool,
    ) -> Self {
        Self {
            table,
            incarnation,
            beat_every,
            flushes: broadcast::Sender::new(4),
            marks: Marks::default(),
            confirms_grants,
            next_name: 0,
        }
    }

    /// Starts a feed with a snapshot, when the lock table answers.
    pub(super) fn open(&mut self, term: Term, active: bool, reply: Reply<FollowFeed>) {
        self.next_name += 1;
        let start = FollowEvent::Snapshot {
            stream: self.next_name,
            incarnation: self.incarnation,
            term,
            active,
        };
        let (table, beat_every) = (self.table.clone(), self.beat_every);
        // From now on: what ends every feed ends this one, also before it has begun.
        let flushes = self.flushes.subscribe();
        let confirming = self.confirms_grants.then(|| Confirming::new(self.marks.clone()));
        let following = table.follow();
        tokio::spawn(async move {
            let Some((snapshot, changes)) = following.await else {
                return;
            };
            let (lines, feed) = mpsc::channel(LINES_AHEAD);
            // A follower that has gone meanwhile ends the feed at its first line.
            let _ = reply.send(Ok(feed));
            let feeding = Feeding {
                lines,
                changes,
                flushes,
                confirming,
                table,
                term,
                beat_every,
            };
            feeding.run(start, snapshot).await;
        });
    }

    /// Ends every feed: what was told no longer holds as a whole, and followers come back for a new snapshot.
    pub(super) fn end_all(&mut self) {
        self.flushes = broadcast::Sender::new(4);
        self.marks.forget();
    }

    /// Sends a mark behind everything that has happened until now. `None` when nobody follows.
    pub(super) fn mark(&mut self) -> Option<u64> {
        let mark = self.marks.next();
        self.flushes.send(mark).ok().map(|_followers| mark)
    }

    /// The follower has heard everything before this mark. How many grants that is, where it was a mark behind grants.
    pub(super) fn acknowledged(&self, mark: u64) -> Option<u64> {
        self.marks.acknowledged(mark)
    }
}

struct Feeding {
    lines: mpsc::Sender<FollowEvent>,
    changes: FollowReceiver,
    flushes: broadcast::Receiver<u64>,
    confirming: Option<Confirming>,
    table: Table,
    term: Term,
    beat_every: Duration,
}

/// The follower is gone, too slow, or must start anew.
struct FeedOver;

impl Feeding {
    async fn run(mut self, start: FollowEvent, snapshot: Snapshot) {
        // Ending is all there is to do about an end; the follower comes back for a new snapshot.
        let _over = self.feed(start, snapshot).await;
    }

    async fn feed(&mut self, start: FollowEvent, snapshot: Snapshot) -> Result<(), FeedOver> {
        self.send(start).await?;
        for line in snapshot_lines(snapshot) {
            self.send(line).await?;
        }
        let mut beats = interval(self.beat_every);
        beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            self.ask_to_confirm().await?;
            tokio::select! {
                change = self.changes.next() => {
                    let change = change.map_err(|_| FeedOver)?;
                    self.send(change_line(change)).await?;
                }
                () = acknowledged(&mut self.confirming) => {}
                mark = self.flushes.recv() => {
                    let mark = mark.map_err(|_| FeedOver)?;
                    self.catch_up().await?;
                    self.send(FollowEvent::Mark { mark }).await?;
                }
                _ = beats.tick() => {
                    if let Some(confirming) = &mut self.confirming {
                        confirming.ask_again();
                    }
                    let beat = self.beat();
                    self.send(beat).await?;
                }
                () = self.lines.closed() => return Err(FeedOver),
            }
        }
    }

    /// Puts a mark behind the grants since the last, when that one was acknowledged.
    async fn ask_to_confirm(&mut self) -> Result<(), FeedOver> {
        if !self.confirming.as_ref().is_some_and(Confirming::may_ask) {
            return Ok(());
        }
        self.catch_up().await?;
        let grants = self.changes.grants();
        match self
            .confirming
            .as_mut()
            .and_then(|confirming| confirming.ask(grants))
        {
            Some(mark) => self.send(FollowEvent::Mark { mark }).await,
            None => Ok(()),
        }
    }

    /// Everything that has happened goes before a mark.
    async fn catch_up(&mut self) -> Result<(), FeedOver> {
        while let Some(change) = self.changes.try_next().map_err(|_| FeedOver)? {
            self.send(change_line(change)).await?;
        }
        Ok(())
    }

    async fn send(&self, line: FollowEvent) -> Result<(), FeedOver> {
        self.lines.send(line).await.map_err(|_| FeedOver)
    }

    fn beat(&self) -> FollowEvent {
        let report = self.table.last_report();
        FollowEvent::Beat {
            term: report.term.map_or(self.term, Term),
            boot_nanos: boot_now().as_nanos(),
            wall_nanos: wall_now().unix_nanos(),
            last_token: report.last_token,
            longest_lease_ms: report
                .longest_lease
                .map_or(0, monolock_protocol::Lease::as_millis),
        }
    }
}

/// Never, where nothing is to be confirmed.
async fn acknowledged(confirming: &mut Option<Confirming>) {
    match confirming {
        Some(confirming) => confirming.acknowledged().await,
        None => std::future::pending().await,
    }
}

/// Graces first: a holder listed behind one does not end it, the other way round it would seem gone.
fn snapshot_lines(snapshot: Snapshot) -> Vec<FollowEvent> {
    let graces = snapshot.graces.into_iter();
    let graces = graces.map(|(lock, left)| FollowEvent::Broke {
        lock,
        free_after_ms: millis(left),
    });
    let held = snapshot.held.into_iter();
    let held = held.map(|held| FollowEvent::Held {
        lock: held.lock,
        lease: held.lease,
        token: held.token,
    });
    let mut lines: Vec<_> = graces.chain(held).collect();
    let locks = u64::try_from(lines.len()).unwrap_or(u64::MAX);
    lines.push(FollowEvent::SnapshotEnd {
        locks,
        every_lock_free_after_ms: snapshot.every_lock.map(millis),
    });
    lines
}

fn change_line(change: LockEvent) -> FollowEvent {
    match change {
        LockEvent::Held { lock, lease, token } => FollowEvent::Held { lock, lease, token },
        LockEvent::Freed { lock } => FollowEvent::Freed { lock },
        LockEvent::Broke { lock, left } => FollowEvent::Broke {
            lock,
            free_after_ms: millis(left),
        },
    }
}

/// Rounded up: a grace must not end early.
fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

/// Lines that may wait for the follower's connection.
const LINES_AHEAD: usize = 1024;
