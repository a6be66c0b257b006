//! The stores of the largest token seen, one suite for all. Needs the Debian packages `postgresql`, `mariadb-server` and
//! `redis-server`.

#![cfg(all(
    feature = "sqlite",
    feature = "postgres",
    feature = "mysql",
    feature = "redis"
))]

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::mariadb::MariaDb;
use common::pauses::{self, Pause};
use common::postgres::Postgres;
use common::proxy::{Fault, Proxy};
use common::redis::{RedisServer, connect};
use common::rows::{Database as TestDatabase, stamp};
use common::sql::{SqlServer, pool};
use common::suite::{self, Seen, assert_stale};
use monolock_adapters::max_seen::{Database, MaxSeen, Memory, Redis, RedisSettingsError};
use monolock_adapters::sql::Fence;
use monolock_adapters::{FenceError, Resource, Retry, Stamp, Token, sqlite};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn memory_conforms() {
    conforms(Memory::new(), 500).await;
    let memory = Memory::new();
    pauses::of_admissions(Pause::Polls, &memory, &memory).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn sqlite_conforms_and_survives() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let file = dir.path().join("seen.db");
    let open = async || in_table(sqlite::open(&file).await.expect("a file"), Fence::new()).await;
    let highest = conforms(open().await, 60).await;
    remembers(&open().await, highest).await;

    // Patient until it is connected: the connections before it may still be closing.
    let impatient = sqlx::sqlite::SqlitePoolOptions::new().after_connect(|connection, _| {
        Box::pin(async move {
            let at_once = sqlx::query("PRAGMA busy_timeout = 0");
            at_once.execute(connection).await.map(drop)
        })
    });
    let pool = impatient
        .connect_with(sqlite::options(&file))
        .await
        .expect("a file");
    let impatient = in_table(pool, Fence::new().with_retry(Retry::NEVER)).await;
    pauses::of_admissions(Pause::Polls, &open().await, &impatient).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn postgres_conforms_and_survives() {
    server_conforms_and_survives::<Postgres>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn mariadb_conforms_and_survives() {
    server_conforms_and_survives::<MariaDb>().await;
}

async fn server_conforms_and_survives<S: SqlServer>() {
    let mut server = S::start().await;
    let highest = conforms(in_table(pool(&server).await, Fence::new()).await, 60).await;
    let impatient = Fence::new().with_retry(Retry::NEVER);
    let impatient = in_table(server.impatient_pool().await, impatient).await;
    let store = in_table(pool(&server).await, Fence::new()).await;
    pauses::of_admissions(Pause::Polls, &store, &impatient).await;

    let proxy = Proxy::start(server.port()).await;
    let slow = in_table(server.pool_at(proxy.port()).await, Fence::new()).await;
    let behind = pauses::of_admissions(Pause::Requests(&proxy), &slow, &impatient).await;
    assert!(behind > 0, "nobody was paused behind the fence");

    proxy.once("COMMIT", Fault::LoseAnswer);
    let newer = stamp(highest.get() + 1);
    slow.admit(&newer).await.expect("it landed, which is looked up");
    assert!(proxy.is_spent());

    server.crash_and_restart().await;
    let store = in_table(pool(&server).await, Fence::new()).await;
    remembers(&store, newer.token()).await;
    suite::race_through_a_restart(Arc::new(Seen(store)), server.crash_and_restart(), common::seed()).await;
}

async fn in_table<DB: TestDatabase>(pool: sqlx::Pool<DB>, fence: Fence<DB>) -> Database<DB> {
    fence.install(&pool).await.expect("installed");
    Database::new(pool, fence)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn redis_conforms_and_survives() {
    let mut server = RedisServer::start().await;
    let store = Redis::new(server.connection().await);
    store
        .check_settings()
        .await
        .expect("set to keep what it is given");
    let highest = conforms(store.clone(), 200).await;
    pauses::of_admissions(Pause::Polls, &store, &store).await;
    let proxy = Proxy::start(server.port()).await;
    let remote = Redis::new(connect(proxy.port()).await.expect("a proxy"));
    pauses::of_admissions(Pause::Requests(&proxy), &remote, &store).await;

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

    let store = Arc::new(Seen(Reconnecting(server.port())));
    suite::race_through_a_restart(store, server.crash_and_restart(), common::seed()).await;
}

/// Redis on a new connection for each question, so that it comes back by itself.
struct Reconnecting(u16);

impl Reconnecting {
    async fn store(&self) -> Result<Redis<redis::aio::MultiplexedConnection>, FenceError> {
        let connection = connect(self.0).await;
        Ok(Redis::new(
            connection.map_err(|error| FenceError::Backend(error.into()))?,
        ))
    }
}

impl MaxSeen for Reconnecting {
    async fn admit(&self, stamp: &Stamp) -> Result<(), FenceError> {
        self.store().await?.admit(stamp).await
    }

    async fn highest(&self, resource: &Resource) -> Result<Option<Token>, FenceError> {
        self.store().await?.highest(resource).await
    }
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
async fn conforms<S: MaxSeen>(store: S, rounds: usize) -> Token {
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
    let store = Arc::new(Seen(store));
    let highest = suite::race(&store, one.resource(), 21, rounds, common::seed()).await;
    assert_eq!(
        store.0.highest(one.resource()).await.expect("readable"),
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
