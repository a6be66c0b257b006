//! Every deadline of the process in one ordered index, with a single timer on the boot clock.
//!
//! One `timerfd` for all claims instead of one each; it also fires right after the machine wakes from suspension,
//! where a runtime's own timers would have stood still. A [`Sleep`] works under any executor: it only needs a waker.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::Mutex;
use std::task::{Context, Poll, Waker};

use monolock_clock::{BootTimer, boot_now};
use monolock_protocol::BootInstant;
use tokio::sync::Notify;

use crate::sync::lock;

/// Cheap to clone; all clones share one index.
#[derive(Clone, Debug, Default)]
pub(crate) struct Timers(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    index: Mutex<Index>,
    /// The first deadline of the index moved.
    first_changed: Notify,
}

#[derive(Debug, Default)]
struct Index {
    next_id: u64,
    sleepers: BTreeMap<Key, Waker>,
}

type Key = (BootInstant, u64);

impl Timers {
    /// Wakes sleepers for ever. Exactly one task does this; it needs a tokio runtime with I/O and time.
    pub(crate) async fn drive(&self) {
        let mut timer = BootTimer::new();
        loop {
            let first = lock(&self.0.index).first();
            tokio::select! {
                () = timer.sleep_until(first) => self.wake_due(),
                () = self.0.first_changed.notified() => {}
            }
        }
    }

    /// Resolves once the boot clock has reached `deadline`.
    pub(crate) fn sleep_until(&self, deadline: BootInstant) -> Sleep {
        Sleep {
            timers: self.clone(),
            deadline,
            id: None,
        }
    }

    fn wake_due(&self) {
        let due = lock(&self.0.index).take_due(boot_now());
        due.into_iter().for_each(Waker::wake);
    }
}

impl Index {
    fn first(&self) -> Option<BootInstant> {
        self.sleepers
            .first_key_value()
            .map(|((deadline, _), _)| *deadline)
    }

    fn take_due(&mut self, now: BootInstant) -> Vec<Waker> {
        let later = self.sleepers.split_off(&(now, u64::MAX));
        std::mem::replace(&mut self.sleepers, later)
            .into_values()
            .collect()
    }
}

/// See [`Timers::sleep_until`].
#[derive(Debug)]
pub(crate) struct Sleep {
    timers: Timers,
    deadline: BootInstant,
    id: Option<u64>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if boot_now() >= self.deadline {
            return Poll::Ready(());
        }
        let deadline = self.deadline;
        let shared = Arc::clone(&self.timers.0);
        let mut index = lock(&shared.index);
        let id = *self.id.get_or_insert_with(|| {
            index.next_id += 1;
            index.next_id
        });
        index.sleepers.insert((deadline, id), cx.waker().clone());
        let is_first = index.first() == Some(deadline);
        drop(index);
        if is_first {
            shared.first_changed.notify_one();
        }
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            lock(&self.timers.0.index).sleepers.remove(&(self.deadline, id));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[tokio::test]
    async fn sleepers_wake_in_the_order_of_their_deadlines_and_leave_nothing() {
        let timers = Timers::default();
        let driver = tokio::spawn({
            let timers = timers.clone();
            async move { timers.drive().await }
        });
        let start = boot_now();
        let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
        for millis in [60_u64, 20, 40] {
            let sleep = timers.sleep_until(start + Duration::from_millis(millis));
            let sender = sender.clone();
            tokio::spawn(async move {
                sleep.await;
                assert!(boot_now() >= start + Duration::from_millis(millis));
                sender.send(millis)
            });
        }
        let mut woken = [0; 3];
        for slot in &mut woken {
            *slot = receiver.recv().await.expect("three sleepers");
        }
        assert_eq!(woken, [20, 40, 60]);
        assert!(lock(&timers.0.index).sleepers.is_empty());
        driver.abort();
    }

    #[tokio::test]
    async fn a_dropped_sleeper_is_forgotten() {
        let timers = Timers::default();
        let mut sleep = Box::pin(timers.sleep_until(BootInstant::MAX));
        assert!(futures_util::poll!(&mut sleep).is_pending());
        assert_eq!(lock(&timers.0.index).sleepers.len(), 1);
        drop(sleep);
        assert!(lock(&timers.0.index).sleepers.is_empty());
    }
}
