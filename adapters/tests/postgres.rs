//! PostgreSQL: the conformance suite against a real server. Needs the Debian package `postgresql`.

#![cfg(feature = "postgres")]

mod common;

use std::sync::Arc;

use common::postgres::Postgres;
use common::proxy::{Fault, Gate, Proxy};
use common::server::eventually;
use common::suite::{self, Store, assert_exists, assert_missing, assert_stale};
use monolock_adapters::postgres::{Change, Fence, GuardedTable, Landed, Row, TableName};
use monolock_adapters::{FenceError, Resource, Retry, Token};
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn conforms() {
    let server = Postgres::start().await;
    suite::run(create(&server).await, 100, common::seed()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_behind_the_fence_keeps_the_next_one_waiting() {
    let server = Postgres::start().await;
    let rows = create(&server).await;
    let mut tx = rows
        .fence
        .begin(&rows.pool, &stamp(1))
        .await
        .expect("the first token");
    rows.table
        .upsert(&mut tx, &row(1))
        .await
        .expect("behind the fence");

    let other = Rows::attach(rows.pool.clone());
    let next = tokio::spawn(async move { other.put(&stamp(2), 2).await });
    eventually("the newer writer waits for the row", async || {
        waiting(&rows.pool).await == 1
    })
    .await;
    tx.commit().await.expect("admitted before the newer token was");
    next.await.expect("no panic").expect("a newer token");
    assert_eq!(rows.get().await, Some(2));
    assert_stale(rows.put(&stamp(1), 1).await, 1, 2);
}

#[tokio::test]
async fn stale_stays_stale_at_every_isolation_level() {
    let server = Postgres::start().await;
    let rows = create(&server).await;
    rows.put(&stamp(10), 1).await.expect("the first token");
    for (n, level) in ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"]
        .into_iter()
        .enumerate()
    {
        let newer = 20 + 10 * n as u64;
        let begin = || sqlx::AssertSqlSafe(format!("BEGIN ISOLATION LEVEL {level}"));

        // The snapshot is taken, then a newer holder writes.
        let mut tx = rows.pool.begin_with(begin()).await.expect("a transaction");
        sqlx::query("SELECT * FROM guarded")
            .execute(&mut *tx)
            .await
            .expect("readable");
        rows.put(&stamp(newer), 2).await.expect("a newer token");
        let refused = rows.fence.admit(&mut tx, &stamp(newer - 1)).await.map(drop);
        if level == "READ COMMITTED" {
            assert_stale(refused, newer - 1, newer);
        } else {
            assert!(
                matches!(refused, Err(FenceError::Conflict { .. })),
                "{level}: {refused:?}"
            );
        }
        drop(tx);

        // On a fresh snapshot it is stale everywhere.
        let mut tx = rows.pool.begin_with(begin()).await.expect("a transaction");
        assert_stale(
            rows.fence.admit(&mut tx, &stamp(newer - 1)).await.map(drop),
            newer - 1,
            newer,
        );
    }
}

#[tokio::test]
async fn plain_sql_with_an_older_token_is_refused_by_the_database() {
    let server = Postgres::start().await;
    let rows = create(&server).await;
    rows.fence
        .install(&rows.pool)
        .await
        .expect("installed a second time");
    rows.table
        .install_trigger(&rows.pool)
        .await
        .expect("installed a second time");
    rows.put(&stamp(42), 1).await.expect("the first token");
    for refused in [
        "UPDATE guarded SET value = 2, fencing_token = 41",
        "UPDATE guarded SET value = 2, fencing_token = NULL",
        "INSERT INTO guarded (id, value, fencing_token) VALUES (1, 2, 41) \
         ON CONFLICT (id) DO UPDATE SET value = 2, fencing_token = excluded.fencing_token",
        "UPDATE fencing_tokens SET token = 41",
    ] {
        let output = psql(&server, refused);
        assert!(!output.status.success(), "{refused}");
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            message.contains("fencing token is older than the one stored"),
            "{refused}: {message}"
        );

        let error = FenceError::from(sqlx::query(refused).execute(&rows.pool).await.expect_err(refused));
        assert!(
            matches!(error, FenceError::RefusedByTrigger { .. }),
            "{refused}: {error:?}"
        );
    }
    assert_eq!(rows.get().await, Some(1));
    for accepted in [
        "UPDATE guarded SET value = 3",
        "UPDATE guarded SET value = 4, fencing_token = 42",
        "UPDATE guarded SET value = 5, fencing_token = 43",
    ] {
        assert!(psql(&server, accepted).status.success(), "{accepted}");
    }
}

#[tokio::test]
async fn printed_ddl_is_a_script_that_psql_runs_twice() {
    let server = Postgres::start().await;
    let table = GuardedTable::new(
        TableName::in_schema("sh\"op", "or'ders").expect("names"),
        &["k k"],
    )
    .expect("names");
    let fence = Fence::in_table(TableName::in_schema("sh\"op", "select").expect("names"));
    let script = format!(
        "CREATE SCHEMA IF NOT EXISTS \"sh\"\"op\";
         CREATE TABLE IF NOT EXISTS \"sh\"\"op\".\"or'ders\" (\"k k\" TEXT PRIMARY KEY, fencing_token BIGINT);\n{}{}",
        fence.ddl(),
        table.trigger_ddl()
    );
    for _ in 0..2 {
        let output = psql(&server, &script);
        assert!(
            output.status.success(),
            "{script}\n{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    let pool = PgPool::connect(&server.url()).await.expect("a server");
    let stamp = Resource::guarded_by("'; DROP SCHEMA public; --")
        .expect("a name")
        .stamp(Token::new(5));
    let row = Row::new().set("k k", "'; DROP SCHEMA public; --");
    let changes =
        [Change::Insert, Change::Upsert, Change::Update, Change::Delete].map(|change| change(row.clone()));
    fence
        .write(&pool, &stamp, &table, &changes)
        .await
        .expect("accepted");
    assert_eq!(
        fence.highest(&pool, stamp.resource()).await.expect("readable"),
        Some(Token::new(5))
    );
}

#[tokio::test]
async fn a_batch_is_written_whole_or_not_at_all() {
    let server = Postgres::start().await;
    let rows = create(&server).await;
    let batch = |ids: [i64; 3]| ids.map(|id| Change::Upsert(Row::new().set("id", id).set("value", id)));
    rows.fence
        .write(&rows.pool, &stamp(5), &rows.table, &batch([1, 2, 3]))
        .await
        .expect("accepted");
    let mut changes = batch([4, 5, 6]).to_vec();
    changes.push(Change::Insert(Row::new().set("id", 1_i64)));
    assert_exists(
        rows.fence
            .write(&rows.pool, &stamp(6), &rows.table, &changes)
            .await,
    );
    changes.pop();
    changes.push(Change::Update(Row::new().set("id", 99_i64)));
    assert_missing(
        rows.fence
            .write(&rows.pool, &stamp(6), &rows.table, &changes)
            .await,
    );
    assert_eq!(count(&rows.pool).await, 3);
    assert_eq!(
        rows.fence
            .highest(&rows.pool, stamp(6).resource())
            .await
            .expect("readable"),
        Some(Token::new(5))
    );
}

#[tokio::test]
async fn a_swallowed_error_does_not_pass_for_a_commit() {
    let server = Postgres::start().await;
    let rows = create(&server).await;
    let mut tx = rows
        .fence
        .begin(&rows.pool, &stamp(5))
        .await
        .expect("the first token");
    rows.table
        .upsert(&mut tx, &row(1))
        .await
        .expect("behind the fence");
    sqlx::query("SELECT 1 / 0")
        .execute(tx.conn())
        .await
        .expect_err("ignored by a careless caller");
    let result = tx.commit().await;
    assert!(matches!(result, Err(FenceError::Backend(_))), "{result:?}");
    assert_eq!(rows.get().await, None);
}

#[tokio::test]
async fn the_fence_table_knows_what_became_of_a_transaction() {
    let server = Postgres::start().await;
    let rows = create(&server).await;
    let landed = async |admission: &_| rows.fence.landed(&rows.pool, admission).await.expect("an answer");

    let tx = rows
        .fence
        .begin(&rows.pool, &stamp(5))
        .await
        .expect("the first token");
    let rolled_back = tx.admission().clone();
    tx.rollback().await.expect("rolled back");
    assert_eq!(landed(&rolled_back).await, Landed::No);

    let tx = rows
        .fence
        .begin(&rows.pool, &stamp(5))
        .await
        .expect("the first token");
    let committed = tx.admission().clone();
    let in_flight = tokio::spawn({
        let (fence, pool, admission) = (rows.fence.clone(), rows.pool.clone(), committed.clone());
        async move { fence.landed(&pool, &admission).await }
    });
    eventually("the question waits for the transaction", async || {
        waiting(&rows.pool).await == 1
    })
    .await;
    tx.commit().await.expect("committed");
    assert_eq!(
        in_flight.await.expect("no panic").expect("an answer"),
        Landed::Yes
    );
    assert_eq!(landed(&committed).await, Landed::Yes);

    rows.claim(&stamp(6)).await.expect("a newer token");
    assert_eq!(landed(&committed).await, Landed::Unknown);
    assert_eq!(
        rows.fence
            .highest(&rows.pool, stamp(6).resource())
            .await
            .expect("readable"),
        Some(Token::new(6))
    );
}

#[tokio::test]
async fn tokens_survive_a_crash_of_the_server() {
    let mut server = Postgres::start().await;
    let rows = create(&server).await;
    rows.put(&stamp(42), 1).await.expect("the first token");
    rows.claim(&stamp(43)).await.expect("a newer token");
    server.crash_and_restart().await;
    let rows = Rows::attach(pool(&server).await);
    assert_stale(rows.put(&stamp(42), 2).await, 42, 43);
    assert_eq!(rows.get().await, Some(1));
}

#[tokio::test]
async fn a_deadlock_of_callers_is_a_conflict_and_bounded() {
    let server = Postgres::start().await;
    let rows = create(&server).await;
    let attempts = std::cell::Cell::new(0);
    let always = || async {
        attempts.set(attempts.get() + 1);
        let mut tx = rows.fence.begin(&rows.pool, &stamp(5)).await?;
        sqlx::query("DO $$ BEGIN RAISE EXCEPTION 'x' USING ERRCODE = '40P01'; END $$")
            .execute(tx.conn())
            .await?;
        tx.commit().await
    };
    let retry = Retry::new(
        3,
        std::time::Duration::from_millis(1),
        std::time::Duration::from_millis(2),
    );
    let result = retry.run(always).await;
    assert!(
        matches!(result, Err(FenceError::Conflict { attempts: 3, .. })),
        "{result:?}"
    );
    assert_eq!(attempts.get(), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_answer_to_the_commit_is_looked_up() {
    let server = Postgres::start().await;
    let rows = create(&server).await;
    let proxy = Proxy::start(server.port()).await;
    let slow = Rows::attach(
        PgPool::connect(&server.url_at(proxy.port()))
            .await
            .expect("a proxy"),
    );

    proxy.once("COMMIT", Fault::LoseAnswer);
    slow.put(&stamp(1), 1).await.expect("it landed");
    assert!(proxy.is_spent());
    assert_eq!(rows.get().await, Some(1));

    proxy.once("COMMIT", Fault::Cut);
    let never = slow.put(&stamp(2), 2).await;
    assert!(matches!(never, Err(FenceError::Backend(_))), "{never:?}");
    assert_eq!(rows.get().await, Some(1));

    // A newer holder writes before the look-up: whether the older write was there cannot be told any more.
    let gate = Arc::new(Gate::default());
    let mut tx = slow
        .fence
        .begin(&slow.pool, &stamp(3))
        .await
        .expect("a newer token");
    slow.table
        .upsert(&mut tx, &row(3))
        .await
        .expect("behind the fence");
    proxy.once("COMMIT", Fault::LoseAnswer);
    proxy.once("BEGIN", Fault::Hold(gate.clone()));
    let commit = tokio::spawn(tx.commit());
    gate.reached().await;
    rows.put(&stamp(4), 4).await.expect("a newer token");
    gate.open();
    let unknown = commit.await.expect("no panic");
    assert!(matches!(unknown, Err(FenceError::Unknown { .. })), "{unknown:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn order_holds_through_a_crash_in_the_middle() {
    let mut server = Postgres::start().await;
    let rows = Arc::new(create(&server).await);
    suite::race_through_a_restart(rows, server.crash_and_restart(), common::seed()).await;
}

common::rows::rows_of!(postgres, PgPool, "INSERT INTO applied (token) VALUES ($1)");

async fn pool(server: &Postgres) -> PgPool {
    PgPoolOptions::new()
        .max_connections(20)
        .connect(&server.url())
        .await
        .expect("a server")
}

async fn create(server: &Postgres) -> Rows {
    let pool = pool(server).await;
    sqlx::raw_sql(
        "CREATE TABLE guarded (id BIGINT PRIMARY KEY, value BIGINT, fencing_token BIGINT);
         CREATE TABLE applied (n BIGSERIAL PRIMARY KEY, token BIGINT NOT NULL)",
    )
    .execute(&pool)
    .await
    .expect("tables");
    Rows::install(pool).await
}

async fn count(pool: &PgPool) -> i64 {
    sqlx::query_scalar("SELECT count(*) FROM guarded")
        .fetch_one(pool)
        .await
        .expect("readable")
}

/// How many sessions wait for a lock.
async fn waiting(pool: &PgPool) -> i64 {
    let select = sqlx::query_scalar("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'");
    select.fetch_one(pool).await.expect("readable")
}

/// Runs SQL in a program that knows nothing of this crate.
fn psql(server: &Postgres, script: &str) -> std::process::Output {
    std::process::Command::new("psql")
        .args(["-v", "ON_ERROR_STOP=1", "-q", "-X", "-c", script])
        .arg(server.url())
        .output()
        .expect("psql comes with PostgreSQL")
}
