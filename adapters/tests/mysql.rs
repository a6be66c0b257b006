//! MySQL and MariaDB: the conformance suite against a real MariaDB. Needs the Debian package `mariadb-server`.

#![cfg(feature = "mysql")]

mod common;

use std::sync::Arc;

use common::mariadb::MariaDb;
use common::proxy::{Fault, Gate, Proxy};
use common::server::eventually;
use common::suite::{self, Store, assert_missing, assert_stale};
use monolock_adapters::mysql::{Change, Fence, GuardedTable, Landed, Row, TableName};
use monolock_adapters::{FenceError, Resource, Token};
use sqlx::MySqlPool;
use sqlx::mysql::MySqlPoolOptions;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn conforms() {
    let server = MariaDb::start().await;
    suite::run(create(&server).await, 100, common::seed()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_behind_the_fence_keeps_the_next_one_waiting() {
    let server = MariaDb::start().await;
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
    let server = MariaDb::start().await;
    let rows = create(&server).await;
    rows.put(&stamp(10), 1).await.expect("the first token");
    let levels = [
        "READ UNCOMMITTED",
        "READ COMMITTED",
        "REPEATABLE READ",
        "SERIALIZABLE",
    ];
    for (n, level) in levels.into_iter().enumerate() {
        let newer = 20 + 10 * n as u64;
        let mut conn = rows.pool.acquire().await.expect("a connection");
        let set = format!("SET SESSION TRANSACTION ISOLATION LEVEL {level}");
        sqlx::raw_sql(sqlx::AssertSqlSafe(set))
            .execute(&mut *conn)
            .await
            .expect(level);
        let mut tx = sqlx::Connection::begin(&mut *conn).await.expect("a transaction");
        // The snapshot is taken, then a newer holder writes.
        sqlx::query("SELECT count(*) FROM applied")
            .execute(&mut *tx)
            .await
            .expect("readable");
        rows.claim(&stamp(newer)).await.expect("a newer token");
        assert_stale(
            rows.fence.admit(&mut tx, &stamp(newer - 1)).await.map(drop),
            newer - 1,
            newer,
        );
    }
}

#[tokio::test]
async fn a_value_that_does_not_change_is_no_missing_row() {
    let server = MariaDb::start().await;
    let rows = create(&server).await;
    rows.create(&stamp(5), 1).await.expect("the first token");
    for _ in 0..2 {
        rows.update(&stamp(5), 1)
            .await
            .expect("the same value and token: matched, not changed");
        rows.put(&stamp(5), 1)
            .await
            .expect("the same value and token: matched, not changed");
    }
    let other = Change::Update(Row::new().set("id", 2_i64).set("value", 1_i64));
    assert_missing(
        rows.fence
            .write(&rows.pool, &stamp(5), &rows.table, &[other])
            .await,
    );
}

#[tokio::test]
async fn lock_names_that_a_collation_would_mix_up_stay_apart() {
    let server = MariaDb::start().await;
    let rows = create(&server).await;
    for (n, lock) in ["a", "A", "a ", "ä"].into_iter().enumerate() {
        let resource = Resource::guarded_by(lock).expect("a name");
        let token = Token::new(9 - n as u64);
        rows.claim(&resource.stamp(token))
            .await
            .expect("a resource of its own");
        assert_eq!(
            rows.fence.highest(&rows.pool, &resource).await.expect("readable"),
            Some(token)
        );
    }
}

#[tokio::test]
async fn plain_sql_with_an_older_token_is_refused_by_the_database() {
    let server = MariaDb::start().await;
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
        "REPLACE INTO guarded (id, value, fencing_token) VALUES (1, 2, 41)",
        "INSERT INTO guarded (id, value, fencing_token) VALUES (1, 2, 41) \
         ON DUPLICATE KEY UPDATE fencing_token = VALUES(fencing_token)",
        "UPDATE fencing_tokens SET token = 41",
    ] {
        let output = server.client(refused);
        assert!(!output.status.success(), "{refused}");
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            message.contains("fencing token is older than the one stored"),
            "{refused}: {message}"
        );

        let error = FenceError::from(
            sqlx::raw_sql(refused)
                .execute(&rows.pool)
                .await
                .expect_err(refused),
        );
        assert!(
            matches!(error, FenceError::RefusedByTrigger { .. }),
            "{refused}: {error:?}"
        );
    }
    assert_eq!(rows.get().await, Some(1));
    for accepted in [
        "UPDATE guarded SET value = 3",
        "UPDATE guarded SET value = 4, fencing_token = 42",
        "REPLACE INTO guarded (id, value, fencing_token) VALUES (1, 5, 43)",
    ] {
        let output = server.client(accepted);
        assert!(
            output.status.success(),
            "{accepted}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
}

#[tokio::test]
async fn printed_ddl_is_a_script_that_the_client_runs_twice() {
    let server = MariaDb::start().await;
    let table =
        GuardedTable::new(TableName::in_schema("sh`op", "or'ders").expect("names"), &["k k"]).expect("names");
    let fence = Fence::in_table(TableName::in_schema("sh`op", "select").expect("names"));
    let script = format!(
        "CREATE DATABASE IF NOT EXISTS `sh``op`;
         CREATE TABLE IF NOT EXISTS `sh``op`.`or'ders` (`k k` VARCHAR(100) PRIMARY KEY, fencing_token BIGINT);\n{}{}",
        fence.ddl(),
        table.trigger_ddl()
    );
    for _ in 0..2 {
        let output = server.client(&script);
        assert!(
            output.status.success(),
            "{script}\n{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    let pool = MySqlPool::connect(&server.url()).await.expect("a server");
    let stamp = Resource::guarded_by("'; DROP DATABASE test; --")
        .expect("a name")
        .stamp(Token::new(5));
    let row = Row::new().set("k k", "'; DROP DATABASE test; --");
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
async fn the_fence_table_knows_what_became_of_a_transaction() {
    let server = MariaDb::start().await;
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
    tx.commit().await.expect("committed");
    assert_eq!(landed(&committed).await, Landed::Yes);
    rows.claim(&stamp(6)).await.expect("a newer token");
    assert_eq!(landed(&committed).await, Landed::Unknown);
}

#[tokio::test]
async fn tokens_survive_a_crash_of_the_server() {
    let mut server = MariaDb::start().await;
    let rows = create(&server).await;
    rows.put(&stamp(42), 1).await.expect("the first token");
    rows.claim(&stamp(43)).await.expect("a newer token");
    server.crash_and_restart().await;
    let rows = Rows::attach(pool(&server).await);
    assert_stale(rows.put(&stamp(42), 2).await, 42, 43);
    assert_eq!(rows.get().await, Some(1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_answer_to_the_commit_is_looked_up() {
    let server = MariaDb::start().await;
    let rows = create(&server).await;
    let proxy = Proxy::start(server.port()).await;
    let slow = Rows::attach(
        MySqlPool::connect(&server.url_at(proxy.port()))
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
    proxy.once("START TRANSACTION", Fault::Hold(gate.clone()));
    let commit = tokio::spawn(tx.commit());
    gate.reached().await;
    rows.put(&stamp(4), 4).await.expect("a newer token");
    gate.open();
    let unknown = commit.await.expect("no panic");
    assert!(matches!(unknown, Err(FenceError::Unknown { .. })), "{unknown:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn order_holds_through_a_crash_in_the_middle() {
    let mut server = MariaDb::start().await;
    let rows = Arc::new(create(&server).await);
    suite::race_through_a_restart(rows, server.crash_and_restart(), common::seed()).await;
}

common::rows::rows_of!(mysql, MySqlPool, "INSERT INTO applied (token) VALUES (?)");

async fn pool(server: &MariaDb) -> MySqlPool {
    MySqlPoolOptions::new()
        .max_connections(20)
        .connect(&server.url())
        .await
        .expect("a server")
}

async fn create(server: &MariaDb) -> Rows {
    let pool = pool(server).await;
    sqlx::raw_sql(
        "CREATE TABLE guarded (id BIGINT PRIMARY KEY, value BIGINT, fencing_token BIGINT);
         CREATE TABLE applied (n BIGINT AUTO_INCREMENT PRIMARY KEY, token BIGINT NOT NULL)",
    )
    .execute(&pool)
    .await
    .expect("tables");
    Rows::install(pool).await
}

/// How many statements wait for a row. (The table of transactions is a copy that frequent readers keep from being renewed.)
async fn waiting(pool: &MySqlPool) -> i64 {
    let select = "SELECT CAST(variable_value AS SIGNED) FROM information_schema.global_status \
                  WHERE variable_name = 'INNODB_ROW_LOCK_CURRENT_WAITS'";
    sqlx::query_scalar(select)
        .fetch_one(pool)
        .await
        .expect("readable")
}
