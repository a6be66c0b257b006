//! What fencing costs: each fenced write beside the plain one, one after the other on one connection, in one run.
//!
//! ```text
//! cargo bench -p monolock-adapters --all-features
//! ```
//!
//! It starts the servers that the tests start, and needs what they need.

#![allow(missing_docs, reason = "a program")]

#[path = "../tests/common/mod.rs"]
mod common;

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::routing::post;
use common::mariadb::MariaDb;
use common::ministack::{BUCKET, MiniStack};
use common::postgres::Postgres;
use common::redis::RedisServer;
use http::Request;
use http_body_util::BodyExt;
use hyper::client::conn::http1::SendRequest;
use hyper_util::rt::TokioIo;
use monolock_adapters::max_seen::{MaxSeen, Memory, Redis};
use monolock_adapters::s3::Objects;
use monolock_adapters::tower::{CarryToken, FenceLayer, Guarding};
use monolock_adapters::{Resource, Stamp, Token, mysql, postgres, sqlite};
use monolock_clock::boot_now;
use sqlx::pool::PoolOptions;
use tokio::net::{TcpListener, TcpStream};

const ROUNDS: usize = 400;

#[tokio::main]
async fn main() {
    println!("| write | plain, median | fenced, median | ratio | what the fence adds |");
    println!("| --- | --- | --- | --- | --- |");
    sqlite_rows().await;
    postgres_rows().await;
    mariadb_rows().await;
    s3_objects().await;
    http_requests().await;
}

/// A plain update in a transaction of its own, and the same row updated behind the fence.
macro_rules! rows {
    ($name:literal, $module:ident, $pool:expr, $adds:literal) => {{
        let pool = $pool;
        sqlx::raw_sql("CREATE TABLE t (id BIGINT PRIMARY KEY, value BIGINT, fencing_token BIGINT)")
            .execute(&pool)
            .await
            .expect("a table");
        sqlx::raw_sql("INSERT INTO t (id, value) VALUES (1, 0), (2, 0)")
            .execute(&pool)
            .await
            .expect("rows");
        let fence = $module::Fence::new();
        fence.install(&pool).await.expect("installed");
        let name = $module::TableName::new("t").expect("a name");
        let table = $module::GuardedTable::new(name, &["id"]).expect("names");
        let plain = async || {
            let mut tx = pool.begin().await.expect("a transaction");
            sqlx::query("UPDATE t SET value = value + 1 WHERE id = 1")
                .execute(&mut *tx)
                .await
                .expect("updated");
            tx.commit().await.expect("committed");
        };
        let changes = [$module::Change::Update(
            $module::Row::new().set("id", 2_i64).set("value", 1_i64),
        )];
        let fenced = async || {
            fence
                .write(&pool, &stamp(), &table, &changes)
                .await
                .expect("accepted")
        };
        compare($name, $adds, plain, fenced).await;
    }};
}

async fn sqlite_rows() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let pool = PoolOptions::new()
        .max_connections(1)
        .connect_with(sqlite::options(dir.path().join("t.db")));
    rows!(
        "SQLite row",
        sqlite,
        pool.await.expect("a file"),
        "1 statement, to BEGIN, UPDATE and COMMIT"
    );
}

async fn postgres_rows() {
    let server = Postgres::start().await;
    let url = server.url();
    let pool = PoolOptions::<sqlx::Postgres>::new()
        .max_connections(1)
        .connect(&url);
    rows!(
        "PostgreSQL row",
        postgres,
        pool.await.expect("a server"),
        "2 round trips, to the same 3"
    );
}

async fn mariadb_rows() {
    let server = MariaDb::start().await;
    let url = server.url();
    let pool = PoolOptions::<sqlx::MySql>::new().max_connections(1).connect(&url);
    rows!(
        "MariaDB row",
        mysql,
        pool.await.expect("a server"),
        "2 round trips, to the same 3"
    );
}

async fn s3_objects() {
    let server = MiniStack::start().await;
    let (client, objects) = (server.client(), Objects::new(server.client(), BUCKET));
    let payload = vec![7; 4096];
    let plain = async || {
        let put = client
            .put_object()
            .bucket(BUCKET)
            .key("plain")
            .body(payload.clone().into());
        put.send().await.expect("put");
    };
    let fenced = async || {
        objects
            .put(&stamp(), "fenced", payload.clone())
            .await
            .expect("accepted")
    };
    compare(
        "S3 object of 4 KiB (MiniStack)",
        "1 ranged GET, to 1 PUT",
        plain,
        fenced,
    )
    .await;
}

async fn http_requests() {
    let plain = serve(service()).await;
    layered("memory", "nothing to the request", plain, Memory::new()).await;
    let server = RedisServer::start().await;
    let redis = Redis::new(server.connection().await);
    layered(
        "Redis, every write synced",
        "1 round trip from service to store",
        plain,
        redis,
    )
    .await;
}

async fn layered<S: MaxSeen>(store: &str, adds: &str, plain: SocketAddr, seen: S) {
    let layer = FenceLayer::new(seen, |_: &Request<Body>| Guarding::resource("lock"));
    let fenced = serve(service().layer(layer)).await;
    let (mut plain, mut fenced) = (connect(plain).await, connect(fenced).await);
    let name = format!("HTTP request, tower layer on {store}");
    compare(
        &name,
        adds,
        async || send(&mut plain).await,
        async || send(&mut fenced).await,
    )
    .await;
}

fn service() -> Router {
    Router::new().route("/", post(async || "done"))
}

async fn serve(app: Router) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .await
        .expect("some port is free");
    let address = listener.local_addr().expect("bound");
    tokio::spawn(async move { axum::serve(listener, app).await });
    address
}

async fn connect(address: SocketAddr) -> SendRequest<String> {
    let stream = TcpStream::connect(address).await.expect("a server");
    let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .expect("http");
    tokio::spawn(connection);
    sender
}

async fn send(sender: &mut SendRequest<String>) {
    sender.ready().await.expect("a connection");
    let request = Request::post("/")
        .header("host", "bench")
        .carry(&stamp())
        .expect("a stamp is always carried")
        .body(String::new())
        .expect("a request");
    let answer = sender.send_request(request).await.expect("an answer");
    assert!(answer.status().is_success());
    answer.into_body().collect().await.expect("a body");
}

/// Runs both in turn, so that whatever disturbs the machine disturbs both.
async fn compare(name: &str, adds: &str, mut plain: impl AsyncFnMut(), mut fenced: impl AsyncFnMut()) {
    let (mut plains, mut fenceds) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        plains.push(timed(&mut plain).await);
        fenceds.push(timed(&mut fenced).await);
    }
    let (plain, fenced) = (median(plains), median(fenceds));
    let ratio = fenced.as_secs_f64() / plain.as_secs_f64();
    println!(
        "| {name} | {} us | {} us | {ratio:.2} | {adds} |",
        plain.as_micros(),
        fenced.as_micros()
    );
}

async fn timed(work: &mut impl AsyncFnMut()) -> Duration {
    let start = boot_now();
    work().await;
    boot_now().saturating_duration_since(start)
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

fn stamp() -> Stamp {
    Resource::guarded_by("lock")
        .expect("a name")
        .stamp(Token::new(42))
}
