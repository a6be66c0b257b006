//! The conformance suite: what every store must do. A test file makes a [`Store`] and calls [`run`].

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use monolock_adapters::max_seen::MaxSeen;
use monolock_adapters::{FenceError, Resource, Stamp, Token};

use super::history::History;
use super::server::eventually;

/// What every operation of a store comes to.
pub type Result<T = (), E = FenceError> = std::result::Result<T, E>;

/// One place in the store, guarded by one lock, as writers see it.
pub trait Writer: Send + Sync + 'static {
    fn put(&self, stamp: &Stamp, value: i64) -> impl Future<Output = Result> + Send;
    fn claim(&self, stamp: &Stamp) -> impl Future<Output = Result> + Send;
    /// A token and the smaller one that the store itself applied right after it, if it keeps their order.
    fn step_back(&self) -> impl Future<Output = Option<(i64, i64)>> + Send;
}

/// What else can be done with a row or an object.
pub trait Store: Writer {
    fn create(&self, stamp: &Stamp, value: i64) -> impl Future<Output = Result> + Send;
    fn update(&self, stamp: &Stamp, value: i64) -> impl Future<Output = Result> + Send;
    fn delete(&self, stamp: &Stamp) -> impl Future<Output = Result> + Send;
    /// What a reader finds.
    fn get(&self) -> impl Future<Output = Option<i64>> + Send;
}

/// A store of the largest token seen: all it knows of a write is the token.
pub struct Seen<S>(pub S);

impl<S: MaxSeen> Writer for Seen<S> {
    async fn put(&self, stamp: &Stamp, _value: i64) -> Result {
        self.0.admit(stamp).await
    }

    async fn claim(&self, stamp: &Stamp) -> Result {
        self.0.admit(stamp).await
    }

    async fn step_back(&self) -> Option<(i64, i64)> {
        None
    }
}

const WRITERS: usize = 16;

/// Runs everything against a fresh store. The race gives every writer so many rounds, each with a new token; with
/// `MONOLOCK_TEST_ROUNDS=N` it has N times as many.
pub async fn run<S: Store>(store: S, rounds: usize, seed: u64) {
    let store = Arc::new(store);
    let resource = Resource::guarded_by("suite").expect("a valid name");
    let base = stories(&*store, &resource).await;
    race(&store, &resource, base, rounds, seed).await;
    fresh_after_all(&*store, &resource).await;
}

/// One writer at a time, told in order; returns a token above all that were used.
async fn stories<S: Store>(store: &S, resource: &Resource) -> u64 {
    let at = |token| resource.stamp(Token::new(token));

    // Missing is not stale, and existing is not stale.
    assert_missing(store.update(&at(10), 1).await);
    assert_missing(store.delete(&at(10)).await);
    assert_eq!(store.get().await, None);
    store.create(&at(10), 2).await.expect("nothing is there");
    assert_exists(store.create(&at(10), 3).await);
    assert_eq!(store.get().await, Some(2));

    // The same token passes again and again; the same value too.
    for value in [4, 4, 5] {
        store
            .update(&at(10), value)
            .await
            .expect("the holder writes many times");
    }
    store
        .put(&at(10), 5)
        .await
        .expect("an equal token and an equal value");

    // A newer holder writes; whatever the paused one still sends is refused.
    store.put(&at(20), 6).await.expect("a newer token");
    assert_stale(store.update(&at(19), 7).await, 19, 20);
    assert_stale(store.put(&at(10), 7).await, 10, 20);
    assert_stale(store.create(&at(10), 7).await, 10, 20);
    assert_stale(store.delete(&at(10)).await, 10, 20);
    assert_stale(store.claim(&at(10)).await, 10, 20);
    assert_eq!(store.get().await, Some(6));

    // A claim fences before the first write.
    store.claim(&at(30)).await.expect("a newer token");
    store.claim(&at(30)).await.expect("an equal token");
    assert_eq!(
        store.get().await,
        Some(6),
        "a claim changes nothing a reader sees"
    );
    assert_stale(store.update(&at(20), 8).await, 20, 30);
    store.update(&at(30), 9).await.expect("the claimant");

    // Deleting does not forget.
    store.delete(&at(40)).await.expect("a newer token");
    assert_eq!(store.get().await, None);
    assert_stale(store.create(&at(30), 10).await, 30, 40);
    assert_stale(store.update(&at(30), 10).await, 30, 40);
    assert_stale(store.put(&at(30), 10).await, 30, 40);
    assert_stale(store.delete(&at(30)).await, 30, 40);
    assert_missing(store.delete(&at(40)).await);
    assert_missing(store.update(&at(40), 10).await);
    store
        .create(&at(40), 11)
        .await
        .expect("the holder may create it again");
    store.delete(&at(41)).await.expect("a newer token");
    store
        .put(&at(41), 12)
        .await
        .expect("the holder may create it again");
    assert_eq!(store.get().await, Some(12));
    42
}

/// Writers with interleaved tokens, each pausing wherever the scheduler lets it. Returns the highest token accepted.
pub async fn race<W: Writer>(
    store: &Arc<W>,
    resource: &Resource,
    base: u64,
    rounds: usize,
    seed: u64,
) -> Token {
    let rounds = rounds * multiplier();
    let tokens = Arc::new(AtomicU64::new(base));
    let history = Arc::new(History::default());
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let (store, tokens, history) = (store.clone(), tokens.clone(), history.clone());
            let (resource, random) = (resource.clone(), fastrand::Rng::with_seed(seed ^ writer as u64));
            tokio::spawn(writer_of(store, tokens, history, resource, random, rounds))
        })
        .collect();
    for writer in writers {
        writer.await.expect("no writer panics");
    }
    let (accepted, stale, other) = history.check();
    eprintln!("race: {accepted} accepted, {stale} stale, {other} neither");
    assert!(accepted > 0 && stale > 0, "the race raced nothing");
    assert!(other * 4 < accepted + stale, "too many ended without an answer");
    assert_order_kept(&**store).await;
    let highest = history.highest_accepted().expect("some were accepted");
    let refused = store.put(&resource.stamp(Token::new(highest.get() - 1)), 0).await;
    assert_stale(refused, highest.get() - 1, highest.get());
    highest
}

fn multiplier() -> usize {
    std::env::var("MONOLOCK_TEST_ROUNDS").map_or(1, |times| times.parse().expect("a number"))
}

async fn writer_of<W: Writer>(
    store: Arc<W>,
    tokens: Arc<AtomicU64>,
    history: Arc<History>,
    resource: Resource,
    mut random: fastrand::Rng,
    rounds: usize,
) {
    for _ in 0..rounds {
        let stamp = resource.stamp(Token::new(tokens.fetch_add(1, Ordering::SeqCst)));
        if random.u8(0..4) == 0 {
            let started = history.start(stamp.token());
            history.finish(started, stamp.token(), &store.claim(&stamp).await);
        }
        for _ in 0..random.u8(1..4) {
            for _ in 0..random.u8(0..4) {
                tokio::task::yield_now().await;
            }
            let started = history.start(stamp.token());
            let value = i64::try_from(stamp.token().get()).expect("small tokens");
            let result = store.put(&stamp, value).await;
            history.finish(started, stamp.token(), &result);
            if result.is_err_and(|error| error.is_stale()) {
                break;
            }
        }
    }
}

/// Writers that go on while the store is killed and started again: nothing accepted is lost, and order holds.
pub async fn race_through_a_restart<W: Writer>(store: Arc<W>, restart: impl Future<Output = ()>, seed: u64) {
    let resource = Resource::guarded_by("suite").expect("a valid name");
    let tokens = Arc::new(AtomicU64::new(1));
    let history = Arc::new(History::of_a_store_that_may_fail());
    let mut writers = tokio::task::JoinSet::new();
    for writer in 0..WRITERS {
        let (store, tokens, history) = (store.clone(), tokens.clone(), history.clone());
        let (resource, random) = (resource.clone(), fastrand::Rng::with_seed(seed ^ writer as u64));
        // Ended from outside.
        writers.spawn(writer_of(store, tokens, history, resource, random, usize::MAX));
    }
    let accepted = async |at_least: usize| {
        eventually("writes are accepted", async || history.accepted() > at_least).await
    };
    accepted(30).await;
    restart.await;
    accepted(history.accepted() + 30).await;
    writers.shutdown().await;
    let (accepted, stale, other) = history.check();
    eprintln!("race through a restart: {accepted} accepted, {stale} stale, {other} neither");
    assert_order_kept(&*store).await;
    let highest = history.highest_accepted().expect("some were accepted");
    let refused = store.put(&resource.stamp(Token::new(highest.get() - 1)), 0).await;
    assert!(
        matches!(refused, Err(FenceError::Stale { highest: kept, .. }) if kept >= highest),
        "{refused:?}"
    );
}

/// In the store's own order tokens never step back.
pub async fn assert_order_kept<W: Writer>(store: &W) {
    if let Some((earlier, later)) = store.step_back().await {
        panic!("the store applied token {later} after token {earlier}");
    }
}

/// After the storm a new holder simply works.
async fn fresh_after_all<S: Store>(store: &S, resource: &Resource) {
    let stamp = resource.stamp(Token::new(1 << 52));
    store.put(&stamp, 77).await.expect("a newer token");
    assert_eq!(store.get().await, Some(77));
}

#[track_caller]
pub fn assert_stale<T: std::fmt::Debug>(result: Result<T, FenceError>, sent: u64, expected: u64) {
    match result {
        Err(FenceError::Stale { stamp, highest }) => {
            assert_eq!((stamp.token().get(), highest.get()), (sent, expected));
        }
        other => panic!("token {sent} after token {expected}: {other:?}"),
    }
}

#[track_caller]
pub fn assert_missing<T: std::fmt::Debug>(result: Result<T>) {
    assert!(matches!(result, Err(FenceError::Missing { .. })), "{result:?}");
}

#[track_caller]
pub fn assert_exists<T: std::fmt::Debug>(result: Result<T>) {
    assert!(matches!(result, Err(FenceError::Exists { .. })), "{result:?}");
}
