//! The stores of the largest token seen, one suite for all. Needs the Debian packages `postgresql` and `redis-server`.

#![cfg(all(feature = "sqlite", feature = "postgres", feature = "redis"))]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use common::history::History;
use common::postgres::Postgres;
use common::proxy::{Fault, Proxy};
use common::redis::{RedisServer, connect};
use common::suite::assert_stale;
use monolock_adapters::max_seen::{Database, MaxSeen, Memory, Redis, RedisSettingsError};
use monolock_adapters::{FenceError, Resource, Retry, Stamp, Token, postgres, sqlite};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn memory_conforms() {
    conforms(Memory::new(), 500).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn sqlite_conforms_and_survives() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let open = async || {
        let pool = sqlite::open(dir.path().join("seen.db")).await.expect("a file");
        let fence = sqlite::Fence::new();
        fence.install(&pool).await.expect("installed");
        Database::new(pool, fence)
    };
    let highest = conforms(open().await, 60).await;
    remembers(&open().await, highest).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn postgres_conforms_and_survives() {
    let mut server = Postgres::start().await;
    let open = async |url: String| {
        let pool = sqlx::PgPool::connect(&url).await.expect("a server");
        let fence = postgres::Fence::new();
        fence.install(&pool).await.expect("installed");
        Database::new(pool, fence)
    };
    let highest = conforms(open(server.url()).await, 60).await;
    server.crash_and_restart().await;
    remembers(&open(server.url()).await, highest).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn redis_conforms_and_survives() {
    let mut server = RedisServer::start().await;
    let store = Redis::new(server.connection().await);
    store
        .check_settings()
        .await
        .expect("set to keep what it is given");
    let highest = conforms(store, 200).await;
    server.crash_and_restart().await;
    let store = Redis::new(server.connection().await);
    remembers(&store, highest).await;

    // Beyond what a script's floating-point numbers tell apart.
    let large = |token| {
        Resource::guarded_by("large")
            .expect("a name")
            .stamp(Token::new(token))
    };
    store.admit(&large(u64::MAX - 1)).await.expect("the first token");
    assert_stale(
        store.admit(&large(u64::MAX - 2)).await,
        u64::MAX - 2,
        u64::MAX - 1,
    );
    store.admit(&large(u64::MAX)).await.expect("a newer token");
}

#[tokio::test]
async fn redis_keeps_records_for_ever_and_says_what_could_lose_them() {
    let server = RedisServer::start().await;
    let mut connection = server.connection().await;
    let store = Redis::new(connection.clone()).with_prefix("p:");
    store.admit(&stamp(5)).await.expect("the first token");
    let ttl: i64 = redis::cmd("TTL")
        .arg("p:lock")
        .query_async(&mut connection)
        .await
        .expect("an answer");
    assert_eq!(ttl, -1, "no expiry");

    for (setting, value) in [("appendfsync", "everysec"), ("maxmemory-policy", "allkeys-lru")] {
        let set = redis::cmd("CONFIG")
            .arg("SET")
            .arg(setting)
            .arg(value)
            .exec_async(&mut connection)
            .await;
        set.expect("a setting");
        let refused = store.check_settings().await.expect_err(setting);
        match setting {
            "appendfsync" => assert!(matches!(refused, RedisSettingsError::Forgets { .. }), "{refused}"),
            _ => assert!(matches!(refused, RedisSettingsError::Evicts { .. }), "{refused}"),
        }
    }
}

#[tokio::test]
async fn redis_does_not_guess_at_what_it_did_not_write() {
    let server = RedisServer::start().await;
    let mut connection = server.connection().await;
    let store = Redis::new(connection.clone());
    redis::cmd("SET")
        .arg("fencing-token:lock")
        .arg("7")
        .exec_async(&mut connection)
        .await
        .expect("set");
    assert!(matches!(
        store.admit(&stamp(9)).await,
        Err(FenceError::Backend(_))
    ));
    assert!(matches!(
        store.highest(stamp(9).resource()).await,
        Err(FenceError::Backend(_))
    ));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_that_does_not_answer_is_unknown_and_asking_again_is_safe() {
    let mut server = RedisServer::start().await;
    let proxy = Proxy::start(server.port()).await;
    let retry = Retry::new(2, Duration::from_millis(1), Duration::from_millis(1));
    let store = Redis::new(connect(proxy.port()).await.expect("a proxy")).with_retry(retry);
    store.admit(&stamp(1)).await.expect("the first token");
    proxy.once("evalsha", Fault::LoseAnswer);
    let lost = store.admit(&stamp(2)).await;
    assert!(matches!(lost, Err(FenceError::Unknown { .. })), "{lost:?}");

    let store = Redis::new(server.connection().await).with_retry(retry);
    assert_eq!(
        store.highest(stamp(2).resource()).await.expect("readable"),
        Some(Token::new(2)),
        "it had landed"
    );
    store.admit(&stamp(2)).await.expect("an equal token");
    server.stop();
    let down = store.admit(&stamp(3)).await;
    assert!(
        matches!(down, Err(FenceError::Unknown { .. } | FenceError::Backend(_))),
        "{down:?}"
    );
}

/// The suite; returns the highest token it used.
async fn conforms<S: MaxSeen>(store: S, rounds: u64) -> Token {
    let (one, other) = (
        stamp(10),
        Resource::guarded_by("other lock")
            .expect("a name")
            .stamp(Token::new(1)),
    );
    assert_eq!(store.highest(one.resource()).await.expect("readable"), None);
    store.admit(&one).await.expect("the first token");
    store.admit(&one).await.expect("an equal token");
    store.admit(&stamp(20)).await.expect("a newer token");
    assert_stale(store.admit(&one).await, 10, 20);
    store.admit(&other).await.expect("another resource");
    assert_eq!(
        store.highest(one.resource()).await.expect("readable"),
        Some(Token::new(20))
    );
    race(Arc::new(store), 21, rounds).await
}

async fn race<S: MaxSeen>(store: Arc<S>, base: u64, rounds: u64) -> Token {
    let seed = common::seed();
    let (tokens, history) = (Arc::new(AtomicU64::new(base)), Arc::new(History::default()));
    let mut writers = tokio::task::JoinSet::new();
    for writer in 0..16 {
        let (store, tokens, history) = (store.clone(), tokens.clone(), history.clone());
        let mut random = fastrand::Rng::with_seed(seed ^ writer);
        writers.spawn(async move {
            for _ in 0..rounds {
                let stamp = stamp(tokens.fetch_add(1, Ordering::SeqCst));
                for _ in 0..random.u8(1..4) {
                    for _ in 0..random.u8(0..4) {
                        tokio::task::yield_now().await;
                    }
                    let started = history.start(stamp.token());
                    history.finish(started, stamp.token(), &store.admit(&stamp).await);
                }
            }
        });
    }
    writers.join_all().await;
    let (accepted, stale, other) = history.check();
    eprintln!("race: {accepted} accepted, {stale} stale, {other} neither");
    assert!(accepted > 0 && stale > 0 && other == 0);
    let highest = history.highest_accepted().expect("some were accepted");
    assert_eq!(
        store.highest(stamp(0).resource()).await.expect("readable"),
        Some(highest)
    );
    highest
}

/// After a restart the highest token is still known.
async fn remembers<S: MaxSeen>(store: &S, highest: Token) {
    let older = highest.get() - 1;
    assert_stale(store.admit(&stamp(older)).await, older, highest.get());
    store.admit(&stamp(highest.get())).await.expect("an equal token");
}

fn stamp(token: u64) -> Stamp {
    Resource::guarded_by("lock")
        .expect("a name")
        .stamp(Token::new(token))
}
