//! What the decision rules rely on.

use std::future::Future;
use std::sync::Arc;

use monolock_failover::core::{Incarnation, NodeId, Record, Term};
use monolock_failover::witness::{SwapOutcome, Witness};
use monolock_protocol::Token;

/// One store under test: how a node opens it, and what an operator can do to it from outside.
pub(crate) trait Store: Send + Sync {
    /// A node's own view of the store, with connections of its own.
    fn open(&self) -> impl Future<Output = Box<dyn Witness>> + Send;
    /// Removes the record behind the nodes' backs.
    fn delete(&self) -> impl Future<Output = ()> + Send;
    /// A copy of what is stored, as a backup would take it.
    fn back_up(&self) -> impl Future<Output = Vec<u8>> + Send;
    /// Puts a backup in the record's place.
    fn restore(&self, backup: &[u8]) -> impl Future<Output = ()> + Send;
}

pub(crate) fn record(beat: u64, incarnation: u64) -> Record {
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

pub(crate) async fn won(witness: &dyn Witness, expected: Option<&Record>, new: &Record) {
    let outcome = witness.swap(expected, new).await;
    assert!(matches!(outcome, SwapOutcome::Won), "{outcome:?}");
}

pub(crate) async fn lost(
    witness: &dyn Witness,
    expected: Option<&Record>,
    new: &Record,
    current: Option<&Record>,
) {
    match witness.swap(expected, new).await {
        SwapOutcome::Lost { current: found } => assert_eq!(found.as_ref(), current),
        other => panic!("expected a lost swap, got {other:?}"),
    }
}

/// Every rule, in one go, so that no store is tested by half of them.
pub(crate) async fn conforms(store: &impl Store) {
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
