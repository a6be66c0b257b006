//! One conformance suite for every witness: what the decision rules rely on, against the real store.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use monolock_failover::core::{Incarnation, NodeId, Record, Term};
use monolock_failover::witness::{FileWitness, SwapOutcome, Witness, WitnessError};
use monolock_protocol::Token;

/// One store under test: how a node opens it, and what an operator can do to it from outside.
trait Store: Send + Sync {
    /// A node's own view of the store, with connections of its own.
    fn open(&self) -> impl Future<Output = Box<dyn Witness>> + Send;
    /// Removes the record behind the nodes' backs.
    fn delete(&self) -> impl Future<Output = ()> + Send;
    /// A copy of what is stored, as a backup would take it.
    fn back_up(&self) -> impl Future<Output = Vec<u8>> + Send;
    /// Puts a backup in the record's place.
    fn restore(&self, backup: &[u8]) -> impl Future<Output = ()> + Send;
}

fn record(beat: u64, incarnation: u64) -> Record {
    Record {
        format: Record::FORMAT,
        term: Term(3),
        holder: Some(NodeId::B),
        incarnation: Incarnation(incarnation),
        beat,
        floor: Token::new(1_700_000_000 << 20),
        max_lease_ms: 30_000,
    }
}

async fn won(witness: &dyn Witness, expected: Option<&Record>, new: &Record) {
    let outcome = witness.swap(expected, new).await;
    assert!(matches!(outcome, SwapOutcome::Won), "{outcome:?}");
}

async fn lost(witness: &dyn Witness, expected: Option<&Record>, new: &Record, current: Option<&Record>) {
    match witness.swap(expected, new).await {
        SwapOutcome::Lost { current: found } => assert_eq!(found.as_ref(), current),
        other => panic!("expected a lost swap, got {other:?}"),
    }
}

/// Every rule, in one go, so that no store is tested by half of them.
async fn conforms(store: &impl Store) {
    absent_is_a_value(store).await;
    every_field_is_compared_and_kept(store).await;
    a_deleted_record_is_absent(store).await;
    a_restored_record_is_what_it_was(store).await;
    one_winner_each_round(store).await;
}

async fn absent_is_a_value(store: &impl Store) {
    let (first, second) = (store.open().await, store.open().await);
    assert_eq!(first.read().await.unwrap(), None);
    lost(&*first, Some(&record(1, 1)), &record(2, 1), None).await;
    assert_eq!(first.read().await.unwrap(), None);
    won(&*first, None, &record(1, 1)).await;
    lost(&*second, None, &record(1, 2), Some(&record(1, 1))).await;
    assert_eq!(second.read().await.unwrap(), Some(record(1, 1)));
}

async fn every_field_is_compared_and_kept(store: &impl Store) {
    let witness = store.open().await;
    let mut current = witness.read().await.unwrap().expect("left by the rule before");
    let changes: [fn(&mut Record); 6] = [
        |record| record.term = Term(u64::MAX),
        |record| record.holder = None,
        |record| record.incarnation = Incarnation(u64::MAX),
        |record| record.beat = u64::MAX,
        |record| record.floor = Token::MAX,
        |record| record.max_lease_ms = u32::MAX,
    ];
    for change in changes {
        let mut next = current.clone();
        change(&mut next);
        lost(&*witness, Some(&next), &record(0, 0), Some(&current)).await;
        won(&*witness, Some(&current), &next).await;
        assert_eq!(witness.read().await.unwrap().as_ref(), Some(&next));
        current = next;
    }
}

async fn a_deleted_record_is_absent(store: &impl Store) {
    let witness = store.open().await;
    let before = witness.read().await.unwrap().expect("left by the rule before");
    store.delete().await;
    assert_eq!(witness.read().await.unwrap(), None);
    lost(&*witness, Some(&before), &record(9, 9), None).await;
    won(&*witness, None, &record(10, 1)).await;
}

async fn a_restored_record_is_what_it_was(store: &impl Store) {
    let witness = store.open().await;
    let backup = store.back_up().await;
    won(&*witness, Some(&record(10, 1)), &record(11, 1)).await;
    store.restore(&backup).await;
    assert_eq!(witness.read().await.unwrap(), Some(record(10, 1)));
    lost(
        &*witness,
        Some(&record(11, 1)),
        &record(12, 1),
        Some(&record(10, 1)),
    )
    .await;
    won(&*witness, Some(&record(10, 1)), &record(12, 1)).await;
}

async fn one_winner_each_round(store: &impl Store) {
    let mut swappers = Vec::new();
    for _ in 0..SWAPPERS {
        swappers.push(Arc::<dyn Witness>::from(store.open().await));
    }
    let mut current = swappers[0].read().await.unwrap();
    for round in 0..ROUNDS {
        let attempts = swappers.iter().zip(0..).map(|(witness, incarnation)| {
            let (witness, expected) = (Arc::clone(witness), current.clone());
            tokio::spawn(async move {
                let new = record(1_000 + round, incarnation);
                match witness.swap(expected.as_ref(), &new).await {
                    SwapOutcome::Won => Some(new),
                    SwapOutcome::Lost { current } => {
                        assert_ne!(current, expected, "lost to the record it expected");
                        None
                    }
                    other => panic!("round {round}: {other:?}"),
                }
            })
        });
        let attempts: Vec<_> = attempts.collect();
        let mut winners = Vec::new();
        for attempt in attempts {
            winners.extend(attempt.await.expect("no swapper panics"));
        }
        assert_eq!(winners.len(), 1, "round {round}: {winners:?}");
        current = winners.pop();
        for witness in &swappers[..2] {
            assert_eq!(witness.read().await.unwrap(), current, "round {round}");
        }
    }
}

const SWAPPERS: usize = 16;
const ROUNDS: u64 = 50;

struct FileStore(tempfile::TempDir);

impl FileStore {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> std::path::PathBuf {
        self.0.path().join("witness")
    }
}

impl Store for FileStore {
    async fn open(&self) -> Box<dyn Witness> {
        Box::new(
            FileWitness::open(self.path())
                .unwrap()
                .with_lock_wait(Duration::from_secs(30)),
        )
    }

    async fn delete(&self) {
        std::fs::remove_file(self.path()).unwrap();
    }

    async fn back_up(&self) -> Vec<u8> {
        std::fs::read(self.path()).unwrap()
    }

    async fn restore(&self, backup: &[u8]) {
        std::fs::write(self.path(), backup).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn file_conforms() {
    conforms(&FileStore::new()).await;
}

#[tokio::test]
async fn a_file_that_is_no_record_is_named_and_left_alone() {
    let store = FileStore::new();
    let witness = store.open().await;
    won(&*witness, None, &record(1, 1)).await;
    let good = store.back_up().await;
    let other_version = String::from_utf8(good.clone())
        .unwrap()
        .replace("\"version\":1", "\"version\":2");
    for damage in [b"".as_slice(), &good[..20], other_version.as_bytes(), b"[]"] {
        store.restore(damage).await;
        let error = witness.read().await.unwrap_err();
        assert!(matches!(error, WitnessError::NotARecord { .. }), "{error}");
        assert!(
            error.to_string().contains(store.path().to_str().unwrap()),
            "{error}"
        );
        for expected in [None, Some(&record(1, 1))] {
            let outcome = witness.swap(expected, &record(2, 1)).await;
            assert!(
                matches!(outcome, SwapOutcome::Failed(WitnessError::NotARecord { .. })),
                "{outcome:?}"
            );
        }
        assert!(matches!(
            FileWitness::open(store.path()),
            Err(WitnessError::NotARecord { .. })
        ));
        assert_eq!(store.back_up().await, damage);
    }
}

#[tokio::test]
async fn a_file_that_cannot_be_read_or_written_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("missing/witness");
    let error = FileWitness::open(&missing).unwrap_err();
    assert!(matches!(error, WitnessError::Refused { .. }));
    assert!(error.to_string().contains("missing/witness"), "{error}");

    let in_its_place = folder.path().join("folder");
    std::fs::create_dir(&in_its_place).unwrap();
    let error = FileWitness::open(&in_its_place).unwrap_err();
    assert!(error.to_string().contains("cannot be read"), "{error}");

    let inner = folder.path().join("inner");
    std::fs::create_dir(&inner).unwrap();
    let witness = FileWitness::open(inner.join("witness")).unwrap();
    won(&witness, None, &record(1, 1)).await;
    std::fs::create_dir(inner.join("witness.tmp")).unwrap();
    let outcome = witness.swap(Some(&record(1, 1)), &record(2, 1)).await;
    assert!(
        matches!(outcome, SwapOutcome::Failed(WitnessError::Refused { .. })),
        "{outcome:?}"
    );
    assert_eq!(witness.read().await.unwrap(), Some(record(1, 1)));
}

#[tokio::test]
async fn a_lock_that_somebody_keeps_is_waited_for_within_bounds() {
    let store = FileStore::new();
    let witness = FileWitness::open(store.path())
        .unwrap()
        .with_lock_wait(Duration::from_millis(50));
    let holder = std::fs::File::open(store.0.path().join("witness.lock")).unwrap();
    holder.lock().unwrap();
    let outcome = witness.swap(None, &record(1, 1)).await;
    assert!(
        matches!(outcome, SwapOutcome::Failed(WitnessError::Unreachable { .. })),
        "{outcome:?}"
    );
    assert!(witness.read().await.is_err());
    drop(holder);
    won(&witness, None, &record(1, 1)).await;
}
