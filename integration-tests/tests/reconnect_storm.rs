//! Two thousand holders lose their server at once, and come back to its successor through the name, but not all at once.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use monolock_clock::boot_now;
use monolock_examples::pair::Pair;
use monolock_integration_tests::{TempDir, binaries};
use monolock_protocol::{BootInstant, Token};
use tokio::sync::Barrier;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;

const CLAIMS: usize = 2_000;
const TTL: Duration = Duration::from_secs(3);
const LEASE: Duration = Duration::from_secs(8);
/// Far more than the grace of the lease, the longest backoff and a busy machine need.
const PATIENCE: Duration = Duration::from_secs(180);
/// The windows in which the clients that come back are counted.
const WINDOW: Duration = Duration::from_millis(100);

#[tokio::test(flavor = "multi_thread")]
async fn two_thousand_holders_come_back_after_a_crash_spread_out_and_each_with_a_larger_token() {
    let log = Log::default();
    // Nobody else's events: the resolver alone would log more than the storm lasts.
    let client_only = Targets::new().with_target("monolock_client", Level::DEBUG);
    tracing_subscriber::registry()
        .with(log.clone().with_filter(client_only))
        .init();
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
    let granted = Windows::of(
        came_back
            .iter()
            .map(|(at, ..)| at.saturating_duration_since(killed)),
    );
    println!("granted again, after the crash:\n{granted:?}");
    println!("connected, after the crash:\n{:?}", log.connects_since(killed));
    let waits = log.waits();
    println!("waits that the clients chose:\n{waits:?}");
    // Not the connections themselves: a busy machine spreads those, whatever the clients wanted.
    assert!(waits.total() >= CLAIMS, "everybody chooses one");
    assert!(
        waits.busiest() < waits.total() * 3 / 10,
        "a fifth of them is expected in each of five windows"
    );
}

/// What the client library logs about coming back.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Logged>>);

#[derive(Default)]
struct Logged {
    connects: Vec<BootInstant>,
    waits: Vec<Duration>,
}

impl Log {
    fn connects_since(&self, start: BootInstant) -> Windows {
        let logged = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let since = logged.connects.iter().filter(|at| **at >= start);
        Windows::of(since.map(|at| at.saturating_duration_since(start)))
    }

    fn waits(&self) -> Windows {
        let logged = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Windows::of(logged.waits.iter().copied())
    }
}

impl<S: Subscriber> Layer<S> for Log {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut logged = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match event.metadata().name() {
            "connected" => logged.connects.push(boot_now()),
            "after_loss" => {
                let mut wait = Wait(None);
                event.record(&mut wait);
                logged.waits.push(wait.0.expect("the event says how long"));
            }
            _ => {}
        }
    }
}

/// Reads the field `wait_ms`.
struct Wait(Option<Duration>);

impl Visit for Wait {
    fn record_u64(&mut self, field: &Field, value: u64) {
        if field.name() == "wait_ms" {
            self.0 = Some(Duration::from_millis(value));
        }
    }

    fn record_debug(&mut self, _: &Field, _: &dyn Debug) {}
}

/// How many there were in each [`WINDOW`].
struct Windows(BTreeMap<u128, usize>);

impl Windows {
    fn of(times: impl Iterator<Item = Duration>) -> Self {
        let mut windows = BTreeMap::new();
        for time in times {
            *windows.entry(time.as_millis() / WINDOW.as_millis()).or_default() += 1;
        }
        Self(windows)
    }

    fn total(&self) -> usize {
        self.0.values().sum()
    }

    fn busiest(&self) -> usize {
        self.0.values().copied().max().unwrap_or(0)
    }
}

impl Debug for Windows {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (window, count) in &self.0 {
            writeln!(f, "{:>8.1} s {count:>6}", *window as f64 * WINDOW.as_secs_f64())?;
        }
        Ok(())
    }
}
