//! SQLite: the conformance suite, several processes' worth of pools on one file, and the enforcing trigger.

#![cfg(feature = "sqlite")]

mod common;

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use common::pauses::{self, Pause};
use common::rows::{Rows, row, stamp};
use common::server::{Server, eventually};
use common::suite::{self, Store, Writer, assert_order_kept, assert_stale};
use monolock_adapters::sqlite::{self, Change, Fence, GuardedTable, Row, TableName};
use monolock_adapters::{FenceError, Resource, Token};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn conforms() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    suite::run(create(&dir.path().join("suite.db")).await, 130, common::seed()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_paused_anywhere_is_never_accepted_late() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let file = dir.path().join("pauses.db");
    let rows = create(&file).await;
    let options = sqlite::options(&file).busy_timeout(Duration::ZERO);
    let impatient = sqlx::SqlitePool::connect_with(options).await.expect("a file");
    let impatient = Rows::attach_impatient(impatient);
    let behind = pauses::of_writers(Pause::Polls, &rows, &impatient, 1).await;
    assert!(behind > 0, "nobody was paused behind the fence");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_behind_the_fence_keeps_the_next_one_waiting() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let rows = create(&dir.path().join("wait.db")).await;
    let (old, new) = (stamp(1), stamp(2));
    let mut tx = rows
        .pool
        .begin_with("BEGIN IMMEDIATE")
        .await
        .expect("a transaction");
    let mut fenced = rows.fence.admit(&mut tx, &old).await.expect("the first token");
    rows.table
        .upsert(&mut fenced, &row(1))
        .await
        .expect("behind the fence");

    let other = reopen(&dir.path().join("wait.db")).await;
    let next = tokio::spawn(async move { other.put(&new, 2).await });
    assert!(!next.is_finished());
    tx.commit().await.expect("admitted before the newer token was");
    next.await.expect("no panic").expect("a newer token");
    assert_eq!(rows.get().await, Some(2));
    assert_stale(rows.put(&old, 1).await, 1, 2);
}

/// Four processes write, one of them is killed in the middle.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_processes_share_a_file() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let file = dir.path().join("shared.db");
    let rows = create(&file).await;
    let mut processes: Vec<_> = (0..4)
        .map(|n| {
            let mut command = Command::new(std::env::current_exe().expect("this program"));
            command
                .args(["--ignored", "--exact", "one_of_several_processes"])
                .env(SHARED_FILE, &file);
            Server::spawn(
                command.env(SHARED_NUMBER, n.to_string()),
                &dir.path().join(format!("log{n}")),
            )
        })
        .collect();
    let number = async |select: &'static str| -> i64 {
        let number = sqlx::query_scalar(select).fetch_one(&rows.pool).await;
        number.expect("readable")
    };
    let applied = async || number("SELECT count(*) FROM applied").await;
    eventually("writes are accepted", async || applied().await > 40).await;
    processes.pop().expect("four").kill();
    let before = applied().await;
    eventually("the others go on", async || applied().await > before + 40).await;
    drop(processes);
    assert_order_kept(&rows).await;
    let writers = number("SELECT count(DISTINCT token % 4) FROM applied").await;
    assert!(writers > 1, "only one of the processes wrote");
    let highest = number("SELECT max(token) FROM applied").await;
    let highest = u64::try_from(highest).expect("a token");
    assert_stale(rows.put(&stamp(highest - 1), 0).await, highest - 1, highest);
}

/// Writes until it is ended.
#[tokio::test]
#[ignore = "a process of `several_processes_share_a_file`, which runs it"]
async fn one_of_several_processes() {
    let (Ok(file), Ok(number)) = (std::env::var(SHARED_FILE), std::env::var(SHARED_NUMBER)) else {
        return;
    };
    let number: u64 = number.parse().expect("a number");
    let rows = reopen(Path::new(&file)).await;
    let mut round = 1;
    loop {
        match rows.put(&stamp(4 * round + number), 1).await {
            Ok(()) => round += 1,
            // Catch up with the others.
            Err(FenceError::Stale { highest, .. }) => round = highest.get() / 4 + 1,
            Err(FenceError::Conflict { .. }) => {}
            Err(other) => panic!("{other:?}"),
        }
    }
}

const SHARED_FILE: &str = "MONOLOCK_TEST_SHARED_FILE";
const SHARED_NUMBER: &str = "MONOLOCK_TEST_SHARED_NUMBER";

#[tokio::test]
async fn work_that_fails_leaves_nothing_not_even_the_token() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let rows = create(&dir.path().join("fail.db")).await;
    let changes = [Change::Upsert(row(1)), Change::Insert(row(2))];
    let result = rows
        .fence
        .write(&rows.pool, &stamp(9), &rows.table, &changes)
        .await;
    suite::assert_exists(result);
    assert_eq!(rows.get().await, None);
    assert_eq!(
        rows.fence
            .highest(&rows.pool, stamp(9).resource())
            .await
            .expect("readable"),
        None
    );
}

#[tokio::test]
async fn the_trigger_stops_every_other_program() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let rows = create(&dir.path().join("trigger.db")).await;
    rows.table
        .install_trigger(&rows.pool)
        .await
        .expect("a second time");
    rows.put(&stamp(42), 1).await.expect("the first token");
    for refused in [
        "UPDATE guarded SET value = 2, fencing_token = 41",
        "UPDATE guarded SET value = 2, fencing_token = NULL",
        "UPDATE guarded SET value = 2, fencing_token = 'x'",
        "REPLACE INTO guarded (id, value, fencing_token) VALUES (1, 2, 41)",
        "INSERT INTO guarded (id, value, fencing_token) VALUES (1, 2, 41) ON CONFLICT DO UPDATE SET value = 2",
        "UPDATE fencing_tokens SET token = 41",
    ] {
        let error = sqlx::query(refused).execute(&rows.pool).await.expect_err(refused);
        let error = FenceError::from(error);
        assert!(
            matches!(error, FenceError::RefusedByTrigger { .. }) && error.is_stale(),
            "{refused}: {error:?}"
        );
    }
    assert_eq!(rows.get().await, Some(1));
    for accepted in [
        "UPDATE guarded SET value = 3",
        "UPDATE guarded SET value = 4, fencing_token = 42",
        "REPLACE INTO guarded (id, value, fencing_token) VALUES (1, 5, 43)",
    ] {
        sqlx::query(accepted).execute(&rows.pool).await.expect(accepted);
    }
}

#[tokio::test]
async fn a_row_newer_than_the_fence_is_stale_all_the_same() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let rows = create(&dir.path().join("row.db")).await;
    sqlx::query("INSERT INTO guarded (id, value, fencing_token) VALUES (1, 1, 50)")
        .execute(&rows.pool)
        .await
        .expect("a row");
    assert_stale(rows.update(&stamp(49), 2).await, 49, 50);
    assert_stale(rows.put(&stamp(49), 2).await, 49, 50);
    assert_stale(rows.create(&stamp(49), 2).await, 49, 50);
    assert_stale(rows.delete(&stamp(49)).await, 49, 50);
    rows.update(&stamp(50), 2).await.expect("an equal token");
}

#[tokio::test]
async fn misuse_is_told_before_anything_is_sent() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let rows = create(&dir.path().join("misuse.db")).await;
    for row in [
        Row::new().set("value", 1_i64),
        Row::new().set("id", 1_i64).set("fencing_token", 99_i64),
        Row::new().set("id", 1_i64).set("", 1_i64),
    ] {
        let result = rows
            .fence
            .write(&rows.pool, &stamp(1), &rows.table, &[Change::Upsert(row.clone())])
            .await;
        assert!(
            matches!(result, Err(FenceError::Misuse { .. })),
            "{row:?}: {result:?}"
        );
    }
    let too_large = Resource::guarded_by("x")
        .expect("a name")
        .stamp(Token::new(1 << 63));
    let result = rows.claim(&too_large).await;
    assert!(
        matches!(result, Err(FenceError::TokenTooLarge { .. })),
        "{result:?}"
    );
    let misspelt = GuardedTable::new(TableName::new("guarded").expect("a name"), &["idd"]).expect("a name");
    let row = Row::new().set("idd", 1_i64);
    let result = rows
        .fence
        .write(&rows.pool, &stamp(1), &misspelt, &[Change::Delete(row)])
        .await;
    assert!(matches!(result, Err(FenceError::Backend(_))), "{result:?}");
}

#[tokio::test]
async fn names_are_only_names() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let pool = sqlite::open(dir.path().join("names.db")).await.expect("a file");
    let odd = r#"o"dd; DROP TABLE guarded; --"#;
    sqlx::raw_sql(r#"CREATE TABLE "o""dd; DROP TABLE guarded; --" ("k""1" TEXT PRIMARY KEY, "select" TEXT, "to""ken" INTEGER)"#)
        .execute(&pool)
        .await
        .expect("a table");
    let table = GuardedTable::new(TableName::new(odd).expect("a name"), &["k\"1"])
        .and_then(|table| table.with_token_column("to\"ken"))
        .expect("names");
    let fence = Fence::in_table(TableName::in_schema("main", "fence's \"own\"").expect("a name"));
    fence.install(&pool).await.expect("installed");
    fence.install(&pool).await.expect("installed again");
    table.install_trigger(&pool).await.expect("installed");
    let row = Row::new().set("k\"1", "a'; --").set("select", "x");
    let stamp = Resource::guarded_by("'; DROP TABLE guarded; --")
        .expect("a name")
        .stamp(Token::new(5));
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

async fn create(file: &Path) -> Rows<sqlx::Sqlite> {
    Rows::create(sqlite::open(file).await.expect("a file")).await
}

async fn reopen(file: &Path) -> Rows<sqlx::Sqlite> {
    Rows::attach(sqlite::open(file).await.expect("a file"))
}
