//! PostgreSQL: the tests of every SQL server, and its own, against a real one. Needs the Debian package `postgresql`.

#![cfg(feature = "postgres")]

mod common;

use common::postgres::Postgres;
use common::rows::{row, stamp};
use common::sql::{self, create};
use common::suite::{Store, Writer, assert_exists, assert_missing, assert_stale};
use monolock_adapters::postgres::{Change, Fence, GuardedTable, Row, TableName};
use monolock_adapters::{FenceError, Retry, Token};
use sqlx::PgPool;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn conforms() {
    sql::conforms::<Postgres>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_paused_anywhere_is_never_accepted_late() {
    sql::a_writer_paused_anywhere_is_never_accepted_late::<Postgres>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_behind_the_fence_keeps_the_next_one_waiting() {
    sql::a_writer_behind_the_fence_keeps_the_next_one_waiting::<Postgres>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_fence_table_knows_what_became_of_a_transaction() {
    sql::the_fence_table_knows_what_became_of_a_transaction::<Postgres>().await;
}

#[tokio::test]
async fn tokens_survive_a_crash_of_the_server() {
    sql::tokens_survive_a_crash_of_the_server::<Postgres>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_answer_to_the_commit_is_looked_up() {
    sql::a_lost_answer_to_the_commit_is_looked_up::<Postgres>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn order_holds_through_a_crash_in_the_middle() {
    sql::order_holds_through_a_crash_in_the_middle::<Postgres>().await;
}

#[tokio::test]
async fn plain_sql_with_an_older_token_is_refused_by_the_database() {
    sql::plain_sql_with_an_older_token_is_refused_by_the_database::<Postgres>(
        &[
            "UPDATE guarded SET value = 2, fencing_token = 41",
            "UPDATE guarded SET value = 2, fencing_token = NULL",
            "INSERT INTO guarded (id, value, fencing_token) VALUES (1, 2, 41) \
             ON CONFLICT (id) DO UPDATE SET value = 2, fencing_token = excluded.fencing_token",
            "UPDATE fencing_tokens SET token = 41",
        ],
        &[
            "UPDATE guarded SET value = 3",
            "UPDATE guarded SET value = 4, fencing_token = 42",
            "UPDATE guarded SET value = 5, fencing_token = 43",
        ],
    )
    .await;
}

#[tokio::test]
async fn printed_ddl_is_a_script_that_psql_runs_twice() {
    let in_schema = |table| TableName::in_schema("sh\"op", table).expect("names");
    sql::printed_ddl_is_a_script_that_the_client_runs_twice::<Postgres>(
        "CREATE SCHEMA IF NOT EXISTS \"sh\"\"op\";
         CREATE TABLE IF NOT EXISTS \"sh\"\"op\".\"or'ders\" (\"k k\" TEXT PRIMARY KEY, fencing_token BIGINT);",
        Fence::in_table(in_schema("select")),
        GuardedTable::new(in_schema("or'ders"), &["k k"]).expect("names"),
        Row::new().set("k k", "'; DROP SCHEMA public; --"),
    )
    .await;
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

async fn count(pool: &PgPool) -> i64 {
    sqlx::query_scalar("SELECT count(*) FROM guarded")
        .fetch_one(pool)
        .await
        .expect("readable")
}
