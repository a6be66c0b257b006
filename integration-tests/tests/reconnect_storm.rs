//! Two thousand holders lose their server at once, and come back to its successor through the name.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use monolock_clock::boot_now;
use monolock_examples::pair::Pair;
use monolock_integration_tests::{TempDir, binaries};
use monolock_protocol::Token;
use tokio::sync::Barrier;

const CLAIMS: usize = 2_000;
const TTL: Duration = Duration::from_secs(3);
const LEASE: Duration = Duration::from_secs(8);
/// Far more than the grace of the lease, the longest backoff and a busy machine need.
const PATIENCE: Duration = Duration::from_secs(180);

#[tokio::test(flavor = "multi_thread")]
async fn two_thousand_holders_come_back_after_a_crash_each_with_a_larger_token() {
    let folder = TempDir::with_prefix("monolock-storm-").expect("a temporary folder can be made");
    let program = binaries::path("monolock-failover");
    let mut pair = Pair::start(&program, folder.path(), TTL, None).expect("the pair starts");
    let (active, _) = pair.wait_until_healthy().await.expect("healthy");
    let client = monolock_examples::pair::client(&pair).expect("a client");
    let all_hold = Arc::new(Barrier::new(CLAIMS + 1));
    let came_back = Arc::new(Mutex::new(Vec::new()));
    let holders: Vec<_> = (0..CLAIMS)
        .map(|number| {
            let (client, all_hold, came_back) =
                (client.clone(), Arc::clone(&all_hold), Arc::clone(&came_back));
            tokio::spawn(async move {
                let lock = format!("storm/{number}");
                let guard = client
                    .claim(&lock, LEASE)
                    .acquire_with_retry()
                    .await
                    .expect("granted");
                let before = guard.token().expect("held");
                let lost = guard.lost();
                all_hold.wait().await;
                lost.await;
                drop(guard);
                let guard = client
                    .claim(&lock, LEASE)
                    .acquire_with_retry()
                    .await
                    .expect("granted again");
                let after = guard.token().expect("held again");
                let mut came_back = came_back.lock().unwrap_or_else(PoisonError::into_inner);
                came_back.push((boot_now(), before, after));
            })
        })
        .collect();
    tokio::time::timeout(PATIENCE, all_hold.wait())
        .await
        .expect("every claim is granted");
    let killed = boot_now();
    pair.kill(active).await.expect("killed");
    for holder in holders {
        tokio::time::timeout(PATIENCE, holder)
            .await
            .expect("it comes back in time")
            .expect("it comes back");
    }

    let came_back = came_back.lock().unwrap_or_else(PoisonError::into_inner);
    let largest_before = came_back
        .iter()
        .map(|(_, before, _)| *before)
        .max()
        .unwrap_or(Token::ZERO);
    assert_eq!(came_back.len(), CLAIMS);
    for (_, before, after) in came_back.iter() {
        assert!(
            after > before && *after > largest_before,
            "{after} after {before} and {largest_before}"
        );
    }
    let mut seconds: Vec<_> = came_back
        .iter()
        .map(|(at, ..)| at.saturating_duration_since(killed).as_secs_f64())
        .collect();
    seconds.sort_by(f64::total_cmp);
    println!(
        "back after the crash: first {:.1} s, median {:.1} s, last {:.1} s",
        seconds[0],
        seconds[CLAIMS / 2],
        seconds[CLAIMS - 1]
    );
}
