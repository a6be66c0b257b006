//! What fencing costs: each fenced write beside the plain one, one after the other on one connection, in one run. Prints one
//! table in Markdown: the requests each takes, counted on the wire (with those by which sqlx's pool checks a connection), and
//! the medians of their times.
//!
//! ```text
//! cargo bench -p monolock-adapters --all-features --bench overhead
//! ```
//!
//! It starts the servers that the tests start, and needs what they need (`integration-tests/setup`).

#![allow(missing_docs, reason = "a program")]

#[path = "../tests/common/mod.rs"]
mod common;

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::routing::post;
use common::mariadb::MariaDb;
use common::ministack::{BUCKET, MiniStack, client_at};
use common::objects::stamp;
use common::postgres::Postgres;
use common::proxy::Proxy;
use common::redis::{RedisServer, connect as connect_redis};
use common::rows::{Database, Rows};
use common::sql::SqlServer;
use http::Request;
use http_body_util::BodyExt;
use hyper::client::conn::http1::SendRequest;
use hyper_util::rt::TokioIo;
use monolock_adapters::max_seen::{MaxSeen, Memory, Redis};
use monolock_adapters::s3::Objects;
use monolock_adapters::sql::Change;
use monolock_adapters::sqlite;
use monolock_adapters::tower::{CarryToken, FenceLayer, Guarding};
use monolock_clock::boot_now;
use sqlx::Pool;
use sqlx::pool::PoolOptions;
use tokio::net::{TcpListener, TcpStream};

const ROUNDS: usize = 400;

#[tokio::main]
async fn main() {
    println!("| write | requests, plain | requests, fenced | median, plain | median, fenced | ratio |");
    println!("| --- | --- | --- | --- | --- | --- |");
    sqlite_rows().await;
    server_rows::<Postgres>("PostgreSQL row").await;
    server_rows::<MariaDb>("MariaDB row").await;
    s3_objects().await;
    http_requests().await;
}

/// A plain write and the fenced one.
trait Writes {
    async fn plain(&mut self);
    async fn fenced(&mut self);
}

/// An update in a transaction of its own, and another row updated behind the fence.
struct RowWrites<DB: Database>(Rows<DB>);

impl<DB: Database> RowWrites<DB> {
    async fn create(pool: Pool<DB>) -> Self {
        let rows = Rows::create(pool).await;
        for id in [PLAIN_ROW, FENCED_ROW] {
            let changes = [Change::Insert(DB::row(id, 0))];
            rows.fence
                .write(&rows.pool, &stamp(42), &rows.table, &changes)
                .await
                .expect("nobody else is there");
        }
        Self(rows)
    }
}

const PLAIN_ROW: i64 = 1;
const FENCED_ROW: i64 = 2;

impl<DB: Database> Writes for RowWrites<DB> {
    async fn plain(&mut self) {
        let update = format!("UPDATE guarded SET value = value + 1 WHERE id = {PLAIN_ROW}");
        let mut tx = self.0.pool.begin().await.expect("a transaction");
        let updated = DB::execute(&mut tx, update, Default::default()).await;
        assert_eq!(updated.expect("updated"), 1);
        tx.commit().await.expect("committed");
    }

    async fn fenced(&mut self) {
        let Rows {
            pool, fence, table, ..
        } = &self.0;
        let changes = [Change::Update(DB::row(FENCED_ROW, 1))];
        fence
            .write(pool, &stamp(42), table, &changes)
            .await
            .expect("accepted");
    }
}

async fn sqlite_rows() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let options = sqlite::options(dir.path().join("rows.db"));
    let pool = PoolOptions::<sqlx::Sqlite>::new()
        .max_connections(1)
        .connect_with(options)
        .await;
    let mut rows = RowWrites::create(pool.expect("a file")).await;
    compare("SQLite row", None, &mut rows).await;
}

async fn server_rows<S: SqlServer>(name: &str) {
    let server = S::start().await;
    let proxy = Proxy::start(server.port()).await;
    let mut rows = RowWrites::create(server.pool_at(server.port()).await).await;
    let mut counted = RowWrites(Rows::attach(server.pool_at(proxy.port()).await));
    let requests = count(&[&proxy], &mut counted).await;
    compare(name, Some(requests), &mut rows).await;
}

struct ObjectWrites {
    client: aws_sdk_s3::Client,
    objects: Objects,
    payload: Vec<u8>,
}

impl ObjectWrites {
    fn through(port: u16) -> Self {
        let client = client_at(port);
        Self {
            objects: Objects::new(client.clone(), BUCKET),
            client,
            payload: vec![7; 4096],
        }
    }
}

impl Writes for ObjectWrites {
    async fn plain(&mut self) {
        let put = self.client.put_object().bucket(BUCKET).key("plain");
        put.body(self.payload.clone().into()).send().await.expect("put");
    }

    async fn fenced(&mut self) {
        self.objects
            .put(&stamp(42), "fenced", self.payload.clone())
            .await
            .expect("accepted");
    }
}

async fn s3_objects() {
    let server = MiniStack::start().await;
    let proxy = Proxy::start(server.port()).await;
    let requests = count(&[&proxy], &mut ObjectWrites::through(proxy.port())).await;
    let name = "S3 object of 4 KiB (MiniStack)";
    compare(name, Some(requests), &mut ObjectWrites::through(server.port())).await;
}

/// One service without a fence, and the same behind one.
struct RequestWrites {
    plain: SendRequest<String>,
    fenced: SendRequest<String>,
}

impl Writes for RequestWrites {
    async fn plain(&mut self) {
        send(&mut self.plain).await;
    }

    async fn fenced(&mut self) {
        send(&mut self.fenced).await;
    }
}

async fn http_requests() {
    layered("memory", None, Memory::new(), Memory::new()).await;
    let server = RedisServer::start().await;
    let proxy = Proxy::start(server.port()).await;
    let counted = Redis::new(connect_redis(proxy.port()).await.expect("a proxy"));
    let store = Redis::new(server.connection().await);
    layered("Redis, every write synced", Some(&proxy), counted, store).await;
}

/// Requests are counted on the way to the service and from there to its store, with a store of its own for that.
async fn layered<S: MaxSeen>(name: &str, to_store: Option<&Proxy>, counted: S, store: S) {
    let (plain, fenced) = (serve(service()).await, serve(behind(counted)).await);
    let (to_plain, to_fenced) = (
        Proxy::start(plain.port()).await,
        Proxy::start(fenced.port()).await,
    );
    let mut writes = RequestWrites {
        plain: connect(to_plain.port()).await,
        fenced: connect(to_fenced.port()).await,
    };
    let proxies: Vec<_> = [&to_plain, &to_fenced].into_iter().chain(to_store).collect();
    let requests = count(&proxies, &mut writes).await;

    let mut writes = RequestWrites {
        plain: connect(plain.port()).await,
        fenced: connect(serve(behind(store)).await.port()).await,
    };
    let name = format!("HTTP request, tower layer on {name}");
    compare(&name, Some(requests), &mut writes).await;
}

fn service() -> Router {
    Router::new().route("/", post(async || "done"))
}

fn behind<S: MaxSeen>(store: S) -> Router {
    let layer = FenceLayer::new(store, |_: &Request<Body>| Guarding::resource("lock"));
    service().layer(layer)
}

async fn serve(app: Router) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .await
        .expect("some port is free");
    let address = listener.local_addr().expect("bound");
    tokio::spawn(async move { axum::serve(listener, app).await });
    address
}

async fn connect(port: u16) -> SendRequest<String> {
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))
        .await
        .expect("a server");
    let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .expect("http");
    tokio::spawn(connection);
    sender
}

async fn send(sender: &mut SendRequest<String>) {
    sender.ready().await.expect("a connection");
    let request = Request::post("/").header("host", "bench").carry(&stamp(42));
    let request = request
        .expect("a stamp is always carried")
        .body(String::new())
        .expect("a request");
    let answer = sender.send_request(request).await.expect("an answer");
    assert!(answer.status().is_success());
    answer.into_body().collect().await.expect("a body");
}

/// The round trips of one plain write and of one fenced write, once connections and statements are prepared.
async fn count(proxies: &[&Proxy], writes: &mut impl Writes) -> (usize, usize) {
    let total = || proxies.iter().map(|proxy| proxy.round_trips()).sum::<usize>();
    for _ in 0..3 {
        writes.plain().await;
        writes.fenced().await;
    }
    let start = total();
    writes.plain().await;
    let plain = total() - start;
    writes.fenced().await;
    (plain, total() - start - plain)
}

/// Runs both in turn, so that whatever disturbs the machine disturbs both.
async fn compare(name: &str, requests: Option<(usize, usize)>, writes: &mut impl Writes) {
    let (mut plains, mut fenceds) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let start = boot_now();
        writes.plain().await;
        let between = boot_now();
        writes.fenced().await;
        plains.push(between.saturating_duration_since(start));
        fenceds.push(boot_now().saturating_duration_since(between));
    }
    let (plain, fenced) = (median(plains), median(fenceds));
    let requests = match requests {
        Some((plain, fenced)) => format!("{plain} | {fenced}"),
        None => "none | none".to_owned(),
    };
    println!(
        "| {name} | {requests} | {} us | {} us | {:.2} |",
        plain.as_micros(),
        fenced.as_micros(),
        fenced.as_secs_f64() / plain.as_secs_f64()
    );
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}
