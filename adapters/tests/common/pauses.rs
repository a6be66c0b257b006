//! Writers that are paused wherever an operation can be.
//!
//! An operation runs up to a point and is then left alone, as if its process were frozen there. A newer holder claims.
//! Then the operation goes on to its end. With one step more each time, every point comes up, until the operation ends
//! before its pause. Steps are counted in two ways: in polls of the operation, which finds every await that does wait;
//! and, for stores behind a network, in requests on their way to the server, which finds every one whatever the scheduler does.
//!
//! Once a claim is answered, nothing that an older token does may change what a reader finds.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;

use monolock_adapters::max_seen::MaxSeen;
use monolock_adapters::{FenceError, Resource, Stamp, Token};

use super::proxy::{Gate, Proxy};
use super::suite::{self, Store, assert_order_kept, assert_stale};

/// Far more than any operation has.
const MOST_STEPS: usize = 1_000;

/// How an operation is paused.
#[derive(Clone, Copy)]
pub enum Pause<'p> {
    /// After so many polls.
    Polls,
    /// At one of its requests, which this proxy holds back.
    Requests(&'p Proxy),
}

impl Pause<'_> {
    /// Runs an operation up to its pause; or to its end, if that comes first.
    async fn start<F: Future>(self, operation: Pin<&mut F>, steps: usize) -> Progress<F::Output> {
        match self {
            Self::Polls => match advance(operation, steps).await {
                Some(output) => Progress::Ended(output),
                None => Progress::Paused(None),
            },
            Self::Requests(proxy) => {
                let gate = proxy.hold_after(steps);
                tokio::select! {
                    output = operation => {
                        proxy.clear();
                        Progress::Ended(output)
                    }
                    () = gate.reached() => Progress::Paused(Some(gate)),
                }
            }
        }
    }
}

enum Progress<T> {
    Ended(T),
    Paused(Option<Arc<Gate>>),
}

/// Lets an operation go on to its end.
async fn resume<F: Future>(operation: Pin<&mut F>, held: Option<Arc<Gate>>) -> F::Output {
    if let Some(gate) = held {
        gate.open();
    }
    operation.await
}

#[derive(Clone, Copy, Debug)]
enum Operation {
    Put,
    Create,
    Update,
    Delete,
    Claim,
}

/// What became of one pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Round {
    /// The operation ended before the pause.
    Ended,
    /// The newer holder claimed while the operation was paused.
    Overtaken,
    /// The paused operation had passed the fence, and the newer holder had to wait for it.
    Behind,
}

impl Operation {
    const ALL: [Self; 5] = [Self::Put, Self::Create, Self::Update, Self::Delete, Self::Claim];

    async fn run<S: Store>(self, store: &S, stamp: &Stamp, value: i64) -> suite::Result {
        match self {
            Self::Put => store.put(stamp, value).await,
            Self::Create => store.create(stamp, value).await,
            Self::Update => store.update(stamp, value).await,
            Self::Delete => store.delete(stamp).await,
            Self::Claim => store.claim(stamp).await,
        }
    }

    /// What a reader finds if it was accepted, where that differs from before.
    fn effect(self, value: i64) -> Option<Option<i64>> {
        match self {
            Self::Put | Self::Create | Self::Update => Some(Some(value)),
            Self::Delete => Some(None),
            Self::Claim => None,
        }
    }
}

/// Every operation of a store. The newer holder comes by a way that does not wait for the older one. Returns how often
/// it found an older one that had passed the fence. Uses tokens from this one on.
pub async fn of_writers<S: Store>(pause: Pause<'_>, store: &S, impatient: &S, from: u64) -> usize {
    let (mut token, mut behind) = (from, 0);
    for operation in Operation::ALL {
        let rounds = at_each_step(async |steps| {
            token += 3;
            round(pause, store, impatient, operation, token, steps).await
        })
        .await;
        behind += report(&format!("{operation:?}"), &rounds);
    }
    assert_order_kept(store).await;
    behind
}

/// The one operation of a store of the largest token seen.
pub async fn of_admissions<S: MaxSeen>(pause: Pause<'_>, store: &S, impatient: &S) -> usize {
    let seen = store.highest(stamp(0).resource()).await.expect("readable");
    let mut token = seen.map_or(0, Token::get);
    let rounds = at_each_step(async |steps| {
        token += 2;
        admission(pause, store, impatient, token, steps).await
    })
    .await;
    report("admit", &rounds)
}

/// Runs rounds with one step more each time, until the operation ends before its pause.
async fn at_each_step(mut round: impl AsyncFnMut(usize) -> Round) -> Vec<Round> {
    let mut rounds = Vec::new();
    for steps in 0..MOST_STEPS {
        match round(steps).await {
            Round::Ended => return rounds,
            paused => rounds.push(paused),
        }
    }
    panic!("no end after {MOST_STEPS} steps");
}

fn report(operation: &str, rounds: &[Round]) -> usize {
    let behind = rounds.iter().filter(|round| **round == Round::Behind).count();
    let points = rounds.len();
    eprintln!("{operation}: paused at {points} points, at {behind} of them behind the fence");
    assert!(rounds.contains(&Round::Overtaken), "{operation}: {rounds:?}");
    behind
}

async fn round<S: Store>(
    pause: Pause<'_>,
    store: &S,
    impatient: &S,
    operation: Operation,
    token: u64,
    steps: usize,
) -> Round {
    let [before, old, new] = [0, 1, 2].map(|later| stamp(token + later));
    let value = i64::try_from(token).expect("small tokens");
    store.put(&before, -value).await.expect("a newer token");
    if let Operation::Create = operation {
        store.delete(&before).await.expect("an equal token");
    }

    let mut writer = pin!(operation.run(store, &old, value));
    let held = match pause.start(writer.as_mut(), steps).await {
        Progress::Ended(result) => {
            result.expect("nobody came in between");
            return Round::Ended;
        }
        Progress::Paused(held) => held,
    };
    let round = match impatient.claim(&new).await {
        Ok(()) => {
            let found = store.get().await;
            let result = resume(writer, held).await;
            assert_eq!(
                store.get().await,
                found,
                "{operation:?} after {steps} steps changed what a newer token had claimed: {result:?}"
            );
            assert_honest(&result, operation.effect(value).map(|effect| effect == found));
            Round::Overtaken
        }
        Err(FenceError::Conflict { .. }) => {
            resume(writer, held).await.expect("it had passed the fence");
            store.claim(&new).await.expect("a newer token");
            Round::Behind
        }
        Err(other) => panic!("the newer holder was told: {other:?}"),
    };
    assert_stale(operation.run(store, &old, value).await, token + 1, token + 2);
    round
}

/// Accepted must mean that it had landed before the claim, and stale that it had not.
fn assert_honest(result: &suite::Result, landed: Option<bool>) {
    match (result, landed) {
        (Ok(()), Some(false)) => panic!("a write was accepted that no reader ever found"),
        (Err(FenceError::Stale { .. }), Some(true)) => panic!("a write that had landed was called stale"),
        (
            Ok(()) | Err(FenceError::Stale { .. } | FenceError::Conflict { .. } | FenceError::Unknown { .. }),
            _,
        ) => {}
        (Err(other), _) => panic!("the older holder was told: {other:?}"),
    }
}

async fn admission<S: MaxSeen>(
    pause: Pause<'_>,
    store: &S,
    impatient: &S,
    token: u64,
    steps: usize,
) -> Round {
    let (old, new) = (stamp(token), stamp(token + 1));
    let mut asking = pin!(store.admit(&old));
    let held = match pause.start(asking.as_mut(), steps).await {
        Progress::Ended(result) => {
            result.expect("nobody came in between");
            return Round::Ended;
        }
        Progress::Paused(held) => held,
    };
    let round = match impatient.admit(&new).await {
        Ok(()) => {
            match resume(asking, held).await {
                Ok(()) => assert!(steps > 0, "it passed before it had asked"),
                stale => assert_stale(stale, token, token + 1),
            }
            Round::Overtaken
        }
        Err(FenceError::Conflict { .. }) => {
            resume(asking, held).await.expect("it had passed the fence");
            store.admit(&new).await.expect("a newer token");
            Round::Behind
        }
        Err(other) => panic!("the newer holder was told: {other:?}"),
    };
    assert_stale(store.admit(&old).await, token, token + 1);
    let highest = store.highest(old.resource()).await.expect("readable");
    assert_eq!(highest, Some(new.token()));
    round
}

/// Polls a future up to so many times, each time when it asks for it; none if it is not ready then.
async fn advance<F: Future>(mut future: Pin<&mut F>, polls: usize) -> Option<F::Output> {
    let mut left = polls;
    poll_fn(|cx| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        match future.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

fn stamp(token: u64) -> Stamp {
    let resource = Resource::guarded_by("pauses").expect("a name");
    resource.stamp(Token::new(token))
}
