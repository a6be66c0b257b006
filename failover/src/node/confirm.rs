//! Grants that wait until the standby has heard of them (`MONOLOCK_FOLLOW=sync`): marks in the stream, and their
//! acknowledgements.
//!
//! One mark at a time is on its way. What is granted meanwhile goes before the next, so that a busy pair confirms many
//! grants at once.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

/// The marks of all streams of this node. Cloning is cheap.
#[derive(Clone)]
pub(super) struct Marks {
    sent: Arc<Mutex<Sent>>,
    acknowledged: watch::Sender<u64>,
}

#[derive(Default)]
struct Sent {
    last: u64,
    /// How many grants went before each mark that is not acknowledged.
    grants: BTreeMap<u64, u64>,
}

impl Default for Marks {
    fn default() -> Self {
        Self {
            sent: Arc::default(),
            acknowledged: watch::Sender::new(0),
        }
    }
}

impl Marks {
    /// A mark of its own.
    pub(super) fn next(&self) -> u64 {
        let mut sent = self.sent();
        sent.last += 1;
        sent.last
    }

    /// A mark behind so many grants.
    fn behind(&self, grants: u64) -> u64 {
        let mark = self.next();
        self.sent().grants.insert(mark, grants);
        mark
    }

    /// Everything before this mark was heard; how many grants, where it was a mark behind grants.
    pub(super) fn acknowledged(&self, mark: u64) -> Option<u64> {
        let grants = {
            let mut sent = self.sent();
            let later = sent.grants.split_off(&(mark + 1));
            std::mem::replace(&mut sent.grants, later).remove(&mark)
        };
        self.acknowledged.send_if_modified(|last| {
            let is_later = mark > *last;
            *last = mark.max(*last);
            is_later
        });
        grants
    }

    /// No mark that was sent so far confirms anything any more.
    pub(super) fn forget(&self) {
        self.sent().grants.clear();
    }

    /// Each change is one assignment or one call: a panic elsewhere leaves it whole.
    fn sent(&self) -> MutexGuard<'_, Sent> {
        self.sent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What one stream has asked to confirm.
pub(super) struct Confirming {
    marks: Marks,
    acknowledged: watch::Receiver<u64>,
    on_its_way: Option<u64>,
    asked: Option<u64>,
}

impl Confirming {
    pub(super) fn new(marks: Marks) -> Self {
        Self {
            acknowledged: marks.acknowledged.subscribe(),
            marks,
            on_its_way: None,
            asked: None,
        }
    }

    /// Whether no mark is on its way.
    pub(super) fn may_ask(&self) -> bool {
        let last = *self.acknowledged.borrow();
        self.on_its_way.is_none_or(|mark| mark <= last)
    }

    /// The mark to send behind so many grants, unless it was asked for them before.
    pub(super) fn ask(&mut self, grants: u64) -> Option<u64> {
        if self.asked.replace(grants) == Some(grants) {
            return None;
        }
        let mark = self.marks.behind(grants);
        self.on_its_way = Some(mark);
        Some(mark)
    }

    /// An acknowledgement may have been lost.
    pub(super) fn ask_again(&mut self) {
        if !self.may_ask() {
            self.on_its_way = None;
            self.asked = None;
        }
    }

    /// Waits for the next acknowledgement of any stream.
    pub(super) async fn acknowledged(&mut self) {
        if self.acknowledged.changed().await.is_err() {
            // The node is stopping.
            std::future::pending().await
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_mark_is_on_its_way_and_the_next_stands_for_all_since() {
        let marks = Marks::default();
        let mut confirming = Confirming::new(marks.clone());
        assert!(confirming.may_ask());
        let first = confirming.ask(3).expect("asked for the first time");
        assert!(!confirming.may_ask());
        assert_eq!(marks.acknowledged(first), Some(3));
        assert!(confirming.may_ask());
        assert_eq!(confirming.ask(3), None, "nothing was granted since");
        let second = confirming.ask(9).expect("more grants");
        confirming.ask_again();
        let third = confirming.ask(9).expect("the acknowledgement may be lost");
        assert_eq!(marks.acknowledged(third), Some(9));
        assert_eq!(marks.acknowledged(second), None, "an older one adds nothing");
    }

    #[test]
    fn marks_of_an_earlier_term_confirm_nothing() {
        let marks = Marks::default();
        let mark = Confirming::new(marks.clone()).ask(3).expect("asked");
        marks.forget();
        assert_eq!(marks.acknowledged(mark), None);
    }
}
