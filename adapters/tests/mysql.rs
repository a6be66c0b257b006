//! MySQL and MariaDB: the tests of every SQL server, and their own, against a real MariaDB. Needs the Debian package
//! `mariadb-server`.

#![cfg(feature = "mysql")]

mod common;

use common::mariadb::MariaDb;
use common::rows::stamp;
use common::sql::{self, create};
use common::suite::{Store, Writer, assert_missing, assert_stale};
use monolock_adapters::mysql::{Change, Fence, GuardedTable, Row, TableName};
use monolock_adapters::{Resource, Token};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn conforms() {
    sql::conforms::<MariaDb>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_paused_anywhere_is_never_accepted_late() {
    sql::a_writer_paused_anywhere_is_never_accepted_late::<MariaDb>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_behind_the_fence_keeps_the_next_one_waiting() {
    sql::a_writer_behind_the_fence_keeps_the_next_one_waiting::<MariaDb>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_fence_table_knows_what_became_of_a_transaction() {
    sql::the_fence_table_knows_what_became_of_a_transaction::<MariaDb>().await;
}

#[tokio::test]
async fn tokens_survive_a_crash_of_the_server() {
    sql::tokens_survive_a_crash_of_the_server::<MariaDb>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_answer_to_the_commit_is_looked_up() {
    sql::a_lost_answer_to_the_commit_is_looked_up::<MariaDb>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn order_holds_through_a_crash_in_the_middle() {
    sql::order_holds_through_a_crash_in_the_middle::<MariaDb>().await;
}

#[tokio::test]
async fn plain_sql_with_an_older_token_is_refused_by_the_database() {
    sql::plain_sql_with_an_older_token_is_refused_by_the_database::<MariaDb>(
        &[
            "UPDATE guarded SET value = 2, fencing_token = 41",
            "UPDATE guarded SET value = 2, fencing_token = NULL",
            "REPLACE INTO guarded (id, value, fencing_token) VALUES (1, 2, 41)",
            "INSERT INTO guarded (id, value, fencing_token) VALUES (1, 2, 41) \
             ON DUPLICATE KEY UPDATE fencing_token = VALUES(fencing_token)",
            "UPDATE fencing_tokens SET token = 41",
        ],
        &[
            "UPDATE guarded SET value = 3",
            "UPDATE guarded SET value = 4, fencing_token = 42",
            "REPLACE INTO guarded (id, value, fencing_token) VALUES (1, 5, 43)",
        ],
    )
    .await;
}

#[tokio::test]
async fn printed_ddl_is_a_script_that_the_client_runs_twice() {
    let in_schema = |table| TableName::in_schema("sh`op", table).expect("names");
    sql::printed_ddl_is_a_script_that_the_client_runs_twice::<MariaDb>(
        "CREATE DATABASE IF NOT EXISTS `sh``op`;
         CREATE TABLE IF NOT EXISTS `sh``op`.`or'ders` (`k k` VARCHAR(100) PRIMARY KEY, fencing_token BIGINT);",
        Fence::in_table(in_schema("select")),
        GuardedTable::new(in_schema("or'ders"), &["k k"]).expect("names"),
        Row::new().set("k k", "'; DROP DATABASE test; --"),
    )
    .await;
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
