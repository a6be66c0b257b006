//! Workers that hold a lock or queue for it, and come back whenever they lose it.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use monolock_client::Client;
use monolock_protocol::Token;
use tokio::sync::watch;
use tokio::task::JoinSet;

const LEASE: Duration = Duration::from_secs(10);
/// One lock for so many sessions: one of them holds it, the others queue.
const SESSIONS_PER_LOCK: usize = 2;
/// Far more than leases, graces and backoffs add up to on a busy machine.
const PATIENCE: Duration = Duration::from_secs(180);

/// The workers; they end when this is dropped.
pub(crate) struct Clients {
    shared: Arc<Shared>,
    held: watch::Receiver<usize>,
    _workers: JoinSet<()>,
}

struct Shared {
    locks: Vec<Lock>,
    held: watch::Sender<usize>,
    grants: AtomicU64,
    shrunk: AtomicBool,
}

#[derive(Default)]
struct Lock {
    last: Mutex<Token>,
    holders: AtomicUsize,
}

impl Clients {
    pub(crate) fn start(client: &Client, sessions: usize) -> Self {
        let (held_in, held) = watch::channel(0);
        let locks = sessions.div_ceil(SESSIONS_PER_LOCK);
        let shared = Arc::new(Shared {
            locks: std::iter::repeat_with(Lock::default).take(locks).collect(),
            held: held_in,
            grants: AtomicU64::new(0),
            shrunk: AtomicBool::new(false),
        });
        let mut workers = JoinSet::new();
        for session in 0..sessions {
            workers.spawn(work(client.clone(), Arc::clone(&shared), session % locks));
        }
        Self {
            shared,
            held,
            _workers: workers,
        }
    }

    /// Waits until every lock is held.
    pub(crate) async fn settle(&self) {
        let mut held = self.held.clone();
        let all = self.shared.locks.len();
        let settled = tokio::time::timeout(PATIENCE, held.wait_for(|held| *held == all)).await;
        assert!(
            settled.is_ok(),
            "only {} of {all} locks are held again",
            *self.held.borrow()
        );
    }

    pub(crate) fn grants(&self) -> u64 {
        self.shared.grants.load(Ordering::Relaxed)
    }

    pub(crate) fn assert_tokens_grew(&self) {
        assert!(
            !self.shared.shrunk.load(Ordering::Relaxed),
            "a lock was granted with a smaller token"
        );
    }
}

async fn work(client: Client, shared: Arc<Shared>, number: usize) {
    let lock = &shared.locks[number];
    loop {
        let claim = client.claim(&format!("soak/{number}"), LEASE);
        let guard = claim
            .acquire_with_retry()
            .await
            .expect("what can pass is tried again");
        // One that is lost already was granted all the same, and is not held.
        let Ok(token) = guard.token() else { continue };
        shared.grants.fetch_add(1, Ordering::Relaxed);
        {
            let mut last = lock.last.lock().unwrap_or_else(PoisonError::into_inner);
            if token <= *last {
                println!("soak/{number}: {token} after {last}");
                shared.shrunk.store(true, Ordering::Relaxed);
            }
            *last = token;
        }
        shared.count(lock, true);
        guard.lost().await;
        shared.count(lock, false);
    }
}

impl Shared {
    /// A lock counts as held however many believe to hold it: after a crash two may, for a moment.
    fn count(&self, lock: &Lock, is_held: bool) {
        self.held.send_modify(|held| {
            if is_held {
                *held += usize::from(lock.holders.fetch_add(1, Ordering::Relaxed) == 0);
            } else {
                *held -= usize::from(lock.holders.fetch_sub(1, Ordering::Relaxed) == 1);
            }
        });
    }
}
