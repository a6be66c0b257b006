//! Grants of a real client, held at a real server: a live one writes with its token, and one that is over lets nothing leave
//! the process. Needs MiniStack, which `integration-tests/setup` installs.

#![cfg(all(
    feature = "client",
    feature = "sqlite",
    feature = "postgres",
    feature = "s3",
    feature = "tower"
))]

mod common;

use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use common::ministack::{BUCKET, MiniStack, client_at};
use common::proxy::{Fault, Gate, Proxy};
use common::rows::{Rows, row};
use common::suite::Store;
use monolock_adapters::s3::Objects;
use monolock_adapters::sql::{Change, Fence, GuardedTable, TableName};
use monolock_adapters::tower::CarryToken;
use monolock_adapters::{FenceError, Grant, sqlite};
use monolock_client::{Client, Guard};
use monolock_server::{Config, Server, StartGate};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_live_grant_writes_with_its_token() {
    let server = LockServer::start().await;
    let first = server.acquire().await;
    let dir = tempfile::tempdir().expect("a temporary folder");
    let pool = sqlite::open(dir.path().join("rows.db")).await.expect("a file");
    let rows = Rows::create(pool).await;
    let write = async |grant: &dyn Grant, value| {
        let changes = [Change::Upsert(row(value))];
        rows.fence.write(&rows.pool, grant, &rows.table, &changes).await
    };
    write(&first, 1).await.expect("the first holder");
    let old = first.stamp().expect("it is held");
    assert_eq!(old.resource().as_str(), LOCK);
    let headers = http::HeaderMap::new().carry(&first).expect("it is held");
    assert_eq!(headers["fencing-token"], old.token().to_string());

    drop(first);
    let second = server.acquire().await;
    write(&second.grant(), 2).await.expect("the second holder");
    assert!(write(&old, 1).await.is_err_and(|error| error.is_stale()));
    assert_eq!(rows.get().await, Some(2));
}

/// Stores that must not even be connected to: the listener sees who tries.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_that_is_over_sends_nothing() {
    let store = TcpListener::bind("127.0.0.1:0").expect("some port is free");
    store.set_nonblocking(true).expect("our socket");
    let port = store.local_addr().expect("bound").port();
    let url = format!("postgres://postgres@127.0.0.1:{port}/postgres?sslmode=disable");
    let pool = sqlx::PgPool::connect_lazy(&url).expect("an address");
    let fence: Fence<sqlx::Postgres> = Fence::new();
    let table = GuardedTable::new(TableName::new("guarded").expect("a name"), &["id"]).expect("names");
    let objects = Objects::new(client_at(port), BUCKET);

    for grant in [released().await, cut_off().await] {
        let changes = [Change::Upsert(row(1))];
        assert_lost(fence.write(&pool, &grant, &table, &changes).await);
        assert_lost(fence.claim(&pool, &grant).await);
        assert_lost(fence.begin(&pool, &grant).await);
        assert_lost(objects.put(&grant, "k", "x").await);
        assert_lost(objects.create(&grant, "k", "x").await);
        assert_lost(objects.update(&grant, "k", "x").await);
        assert_lost(objects.delete(&grant, "k").await);
        assert_lost(objects.claim(&grant, "k").await);
        assert_lost(objects.draft(&grant, "k"));
        assert_lost(http::Request::put("/").carry(&grant));
        assert_lost(http::Request::new(()).carry(&grant));
        assert_lost(http::HeaderMap::new().carry(&grant));
        assert_lost(grant.stamp());
    }
    let nobody = store.accept().expect_err("nobody has connected");
    assert_eq!(nobody.kind(), std::io::ErrorKind::WouldBlock);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_of_the_callers_own_is_not_admitted_by_a_grant_that_is_over() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let pool = sqlite::open(dir.path().join("rows.db")).await.expect("a file");
    let rows = Rows::create(pool).await;
    let grant = released().await;
    let mut tx = rows.pool.begin().await.expect("a transaction");
    assert_lost(rows.fence.admit(&mut tx, &grant).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_lost_between_the_read_and_the_write_of_an_object_stops_the_write() {
    let server = MiniStack::start().await;
    let proxy = Proxy::start(server.port()).await;
    let slow = Objects::new(client_at(proxy.port()), BUCKET);
    let locks = LockServer::start().await;
    let guard = locks.acquire().await;
    let grant = guard.grant();

    let gate = Arc::new(Gate::default());
    proxy.once("GET /", Fault::Hold(gate.clone()));
    let writer = tokio::spawn(async move { slow.put(&grant, "k", "late").await });
    gate.reached().await;
    guard.release();
    gate.open();
    assert_lost(writer.await.expect("no panic"));
    let found = Objects::new(server.client(), BUCKET).highest("k").await;
    assert_eq!(found.expect("readable"), None);
}

const LOCK: &str = "orders";
const LEASE: Duration = Duration::from_secs(30);

/// A lock server within this process.
struct LockServer {
    server: Server,
    client: Client,
}

impl LockServer {
    async fn start() -> Self {
        let config = Config {
            listen: "127.0.0.1:0".to_owned(),
            ..Config::default()
        };
        let server = Server::start(config, StartGate::Open).await.expect("a server");
        let client = Client::new(&server.handle().lock_addr().to_string()).expect("an address");
        Self { server, client }
    }

    async fn acquire(&self) -> Guard {
        self.client.acquire(LOCK, LEASE).await.expect("the lock is free")
    }
}

/// A grant whose guard was dropped.
async fn released() -> monolock_client::Grant {
    let server = LockServer::start().await;
    server.acquire().await.grant()
}

/// A grant whose server has gone.
async fn cut_off() -> monolock_client::Grant {
    let server = LockServer::start().await;
    let guard = server.acquire().await;
    server.server.shutdown().await;
    guard.lost().await;
    guard.grant()
}

#[track_caller]
fn assert_lost<T>(result: Result<T, FenceError>) {
    match result {
        Err(error @ FenceError::LockLost { .. }) => assert!(error.is_lock_lost() && !error.is_stale()),
        Err(other) => panic!("not as a lost lock, but: {other}"),
        Ok(_) => panic!("a grant that is over was taken for a live one"),
    }
}
