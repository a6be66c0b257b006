//! What every SQL server must do: the tests of PostgreSQL and of MariaDB that differ in nothing but the server.

use std::process::Output;
use std::sync::Arc;

use monolock_adapters::sql::{Change, Fence, GuardedTable, Landed, Row};
use monolock_adapters::{FenceError, Resource, Token};
use sqlx::Pool;

use super::pauses::{self, Pause};
use super::proxy::{Fault, Gate, Proxy};
use super::rows::{Database, Rows, row, stamp};
use super::server::eventually;
use super::suite::{self, Store, Writer, assert_stale};

/// A database server of the test's own.
#[allow(async_fn_in_trait, reason = "the futures stay in the test that made them")]
pub trait SqlServer: Sized {
    type DB: Database;
    /// The statement that begins a transaction.
    const BEGIN: &str;

    async fn start() -> Self;
    fn port(&self) -> u16;
    /// Kills the server as a power cut would, and starts it again on the same port.
    async fn crash_and_restart(&mut self);
    /// Connections through this port, the server's own or a proxy's.
    async fn pool_at(&self, port: u16) -> Pool<Self::DB>;
    /// Connections whose statements do not wait for a row that is locked.
    async fn impatient_pool(&self) -> Pool<Self::DB>;
    /// How many statements wait for a row.
    async fn waiting(pool: &Pool<Self::DB>) -> i64;
    /// Runs SQL in a program that knows nothing of this crate.
    fn client(&self, script: &str) -> Output;
}

pub async fn pool<S: SqlServer>(server: &S) -> Pool<S::DB> {
    server.pool_at(server.port()).await
}

pub async fn create<S: SqlServer>(server: &S) -> Rows<S::DB> {
    Rows::create(pool(server).await).await
}

pub async fn conforms<S: SqlServer>() {
    let server = S::start().await;
    suite::run(create(&server).await, 130, super::seed()).await;
}

pub async fn a_writer_paused_anywhere_is_never_accepted_late<S: SqlServer>() {
    let server = S::start().await;
    let rows = create(&server).await;
    let impatient = Rows::attach_impatient(server.impatient_pool().await);
    pauses::of_writers(Pause::Polls, &rows, &impatient, 1).await;

    let proxy = Proxy::start(server.port()).await;
    let remote = Rows::attach(server.pool_at(proxy.port()).await);
    let behind = pauses::of_writers(Pause::Requests(&proxy), &remote, &impatient, 10_000).await;
    assert!(behind > 0, "nobody was paused behind the fence");
}

pub async fn a_writer_behind_the_fence_keeps_the_next_one_waiting<S: SqlServer>() {
    let server = S::start().await;
    let rows = create(&server).await;
    let mut tx = begin(&rows, 1).await;
    rows.table
        .upsert(&mut tx, &row(1))
        .await
        .expect("behind the fence");

    let other = Rows::attach(rows.pool.clone());
    let next = tokio::spawn(async move { other.put(&stamp(2), 2).await });
    eventually("the newer writer waits for the row", async || {
        S::waiting(&rows.pool).await == 1
    })
    .await;
    tx.commit().await.expect("admitted before the newer token was");
    next.await.expect("no panic").expect("a newer token");
    assert_eq!(rows.get().await, Some(2));
    assert_stale(rows.put(&stamp(1), 1).await, 1, 2);
}

/// Statements that go back must fail in the server's own client, and in ours as what they are; the others pass.
pub async fn plain_sql_with_an_older_token_is_refused_by_the_database<S: SqlServer>(
    refused: &[&'static str],
    accepted: &[&str],
) {
    let server = S::start().await;
    let rows = create(&server).await;
    rows.fence.install(&rows.pool).await.expect("a second time");
    rows.table
        .install_trigger(&rows.pool)
        .await
        .expect("a second time");
    rows.put(&stamp(42), 1).await.expect("the first token");
    for statement in refused {
        let output = server.client(statement);
        assert!(!output.status.success(), "{statement}");
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            message.contains("fencing token is older than the one stored"),
            "{statement}: {message}"
        );

        let mut conn = rows.pool.acquire().await.expect("a connection");
        let result =
            <S::DB as monolock_adapters::sql::Backend>::script(&mut conn, (*statement).to_owned()).await;
        let error = FenceError::from(result.expect_err(statement));
        assert!(
            matches!(error, FenceError::RefusedByTrigger { .. }) && error.is_stale(),
            "{statement}: {error:?}"
        );
    }
    assert_eq!(rows.get().await, Some(1));
    for statement in accepted {
        let output = server.client(statement);
        assert!(
            output.status.success(),
            "{statement}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
}

/// The preparation makes a schema and the table; then the printed statements follow, twice. Names and values hold what
/// would do harm if it were taken for SQL.
pub async fn printed_ddl_is_a_script_that_the_client_runs_twice<S: SqlServer>(
    preparation: &str,
    fence: Fence<S::DB>,
    table: GuardedTable<S::DB>,
    row: Row<S::DB>,
) {
    let server = S::start().await;
    let script = format!("{preparation}\n{}{}", fence.ddl(), table.trigger_ddl());
    for _ in 0..2 {
        let output = server.client(&script);
        assert!(
            output.status.success(),
            "{script}\n{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    let pool = pool(&server).await;
    let stamp = Resource::guarded_by("'; DROP DATABASE test; DROP SCHEMA public; --")
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

pub async fn the_fence_table_knows_what_became_of_a_transaction<S: SqlServer>() {
    let server = S::start().await;
    let rows = create(&server).await;
    let landed = async |admission: &_| rows.fence.landed(&rows.pool, admission).await.expect("an answer");

    let tx = begin(&rows, 5).await;
    let rolled_back = tx.admission().clone();
    tx.rollback().await.expect("rolled back");
    assert_eq!(landed(&rolled_back).await, Landed::No);

    let tx = begin(&rows, 5).await;
    let committed = tx.admission().clone();
    let in_flight = tokio::spawn({
        let (fence, pool, admission) = (rows.fence.clone(), rows.pool.clone(), committed.clone());
        async move { fence.landed(&pool, &admission).await }
    });
    eventually("the question waits for the transaction", async || {
        S::waiting(&rows.pool).await == 1
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

pub async fn tokens_survive_a_crash_of_the_server<S: SqlServer>() {
    let mut server = S::start().await;
    let rows = create(&server).await;
    rows.put(&stamp(42), 1).await.expect("the first token");
    rows.claim(&stamp(43)).await.expect("a newer token");
    server.crash_and_restart().await;
    let rows = Rows::attach(pool(&server).await);
    assert_stale(rows.put(&stamp(42), 2).await, 42, 43);
    assert_eq!(rows.get().await, Some(1));
}

pub async fn order_holds_through_a_crash_in_the_middle<S: SqlServer>() {
    let mut server = S::start().await;
    let rows = Arc::new(create(&server).await);
    suite::race_through_a_restart(rows, server.crash_and_restart(), super::seed()).await;
}

pub async fn a_lost_answer_to_the_commit_is_looked_up<S: SqlServer>() {
    let server = S::start().await;
    let rows = create(&server).await;
    let proxy = Proxy::start(server.port()).await;
    let slow = Rows::attach(server.pool_at(proxy.port()).await);

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
    let mut tx = begin(&slow, 3).await;
    slow.table
        .upsert(&mut tx, &row(3))
        .await
        .expect("behind the fence");
    proxy.once("COMMIT", Fault::LoseAnswer);
    proxy.once(S::BEGIN, Fault::Hold(gate.clone()));
    let commit = tokio::spawn(tx.commit());
    gate.reached().await;
    rows.put(&stamp(4), 4).await.expect("a newer token");
    gate.open();
    let unknown = commit.await.expect("no panic");
    assert!(matches!(unknown, Err(FenceError::Unknown { .. })), "{unknown:?}");
}

async fn begin<DB: Database>(rows: &Rows<DB>, token: u64) -> monolock_adapters::sql::FencedTransaction<DB> {
    rows.fence
        .begin(&rows.pool, &stamp(token))
        .await
        .expect("no newer token was here")
}
