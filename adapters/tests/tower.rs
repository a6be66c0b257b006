//! The tower layer before an axum service, over real connections. Needs the Debian package `redis-server`.

#![cfg(all(feature = "tower", feature = "redis"))]

mod common;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Extension, State};
use axum::routing::{get, post};
use axum::{Json, Router};
use common::redis::RedisServer;
use common::suite::assert_stale;
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use monolock_adapters::max_seen::{MaxSeen, Memory, Redis};
use monolock_adapters::tower::{CarryToken, FenceLayer, GrpcRefusals, Guarding, check_answer};
use monolock_adapters::{Resource, Retry, Stamp, Token};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Mutex, Notify};

#[tokio::test]
async fn each_request_gets_the_answer_of_the_table() {
    let service = Arc::new(Recorder::default());
    let address = serve(router(Memory::new(), service.clone())).await;
    let post = |token: &str| request("POST", "/printer", Some(token));

    assert_eq!(
        send(address, request("GET", "/printer", None)).await.status(),
        StatusCode::OK
    );
    assert_eq!(send(address, post("42")).await.status(), StatusCode::OK);
    assert_eq!(
        send(address, post("42")).await.status(),
        StatusCode::OK,
        "an equal token"
    );
    assert_eq!(send(address, post("43")).await.status(), StatusCode::OK);

    let stale = send(address, post("42")).await;
    assert_eq!(stale.status(), StatusCode::CONFLICT);
    assert_eq!(stale.headers()["fencing-token-highest"], "43");
    let printer = Resource::guarded_by("device/printer").expect("a name");
    assert_stale(check_answer(&stale, &printer.stamp(Token::new(42))), 42, 43);
    assert_eq!(
        body(stale).await,
        "{\"error\":\"the fencing token is stale: 43 was seen; the lock is lost\",\"highest\":43}\n"
    );
    let missing = send(address, request("POST", "/printer", None)).await;
    assert_eq!(missing.status(), StatusCode::PRECONDITION_REQUIRED);
    for bad in ["", "x", "-1", "18446744073709551616"] {
        assert_eq!(
            send(address, post(bad)).await.status(),
            StatusCode::BAD_REQUEST,
            "{bad:?}"
        );
    }
    assert_eq!(
        send(address, request("POST", "/other", Some("1"))).await.status(),
        StatusCode::OK,
        "another resource"
    );
    assert_eq!(
        *service.tokens.lock().await,
        [42, 42, 43, 1],
        "only these reached the service"
    );
}

#[tokio::test]
async fn a_newer_request_waits_until_the_older_one_is_over() {
    let service = Arc::new(Recorder::default());
    let address = serve(router(Memory::new(), service.clone())).await;
    let older = tokio::spawn(send(address, request("POST", "/slow", Some("1"))));
    service.reached.notified().await;
    let newer = tokio::spawn(send(address, request("POST", "/slow", Some("2"))));
    // It cannot get in however long it is given; when the first one is let go it does.
    tokio::select! {
        () = service.reached.notified() => panic!("two tokens at once"),
        () = tokio::time::sleep(Duration::from_millis(300)) => {}
    }
    service.release.notify_one();
    assert_eq!(older.await.expect("no panic").status(), StatusCode::OK);
    service.reached.notified().await;
    service.release.notify_one();
    assert_eq!(newer.await.expect("no panic").status(), StatusCode::OK);
    assert_eq!(*service.tokens.lock().await, [1, 2]);
}

#[tokio::test]
async fn nothing_passes_while_the_store_is_down() {
    let mut server = RedisServer::start().await;
    let retry = Retry::new(2, Duration::from_millis(1), Duration::from_millis(1));
    let store = Redis::new(server.connection().await).with_retry(retry);
    let service = Arc::new(Recorder::default());
    let address = serve(router(store, service.clone())).await;
    assert_eq!(
        send(address, request("POST", "/printer", Some("42")))
            .await
            .status(),
        StatusCode::OK
    );
    server.stop();
    let refused = send(address, request("POST", "/printer", Some("43"))).await;
    assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(
        send(address, request("GET", "/printer", None)).await.status(),
        StatusCode::OK,
        "readers need no store"
    );
    assert_eq!(*service.tokens.lock().await, [42]);
}

#[tokio::test]
async fn grpc_is_refused_in_its_own_words() {
    let layer = FenceLayer::with_refusals(Memory::new(), guarding, GrpcRefusals);
    let app = Router::new()
        .route("/{device}", post(async || "done"))
        .layer(layer);
    let address = serve(app).await;
    send(address, request("POST", "/printer", Some("43"))).await;
    for (token, code) in [(Some("42"), "9"), (None, "3"), (Some("x"), "3")] {
        let refused = send(address, request("POST", "/printer", token)).await;
        assert_eq!(
            (refused.status(), &refused.headers()["grpc-status"]),
            (StatusCode::OK, &code.parse().expect("ascii"))
        );
    }
}

/// Notes the token of each request that reaches it; on `/slow` it waits to be released.
#[derive(Default)]
struct Recorder {
    tokens: Mutex<Vec<u64>>,
    reached: Notify,
    release: Notify,
}

fn router<S: MaxSeen>(store: S, service: Arc<Recorder>) -> Router {
    Router::new()
        .route("/slow", post(slow))
        .route("/{device}", get(async || "ready").post(record))
        .with_state(service)
        .layer(FenceLayer::new(store, guarding))
}

fn guarding(request: &Request<Body>) -> Guarding {
    if request.method() == http::Method::GET {
        return Guarding::Nothing;
    }
    Guarding::resource(&format!("device{}", request.uri().path()))
}

async fn record(State(service): State<Arc<Recorder>>, Extension(stamp): Extension<Stamp>) -> Json<u64> {
    service.tokens.lock().await.push(stamp.token().get());
    Json(stamp.token().get())
}

async fn slow(State(service): State<Arc<Recorder>>, Extension(stamp): Extension<Stamp>) {
    service.tokens.lock().await.push(stamp.token().get());
    service.reached.notify_one();
    service.release.notified().await;
}

async fn serve(app: Router) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .await
        .expect("some port is free");
    let address = listener.local_addr().expect("bound");
    tokio::spawn(async move { axum::serve(listener, app).await });
    address
}

fn request(method: &str, path: &str, token: Option<&str>) -> Request<String> {
    let mut request = Request::builder().method(method).uri(path).header("host", "test");
    if let Some(token) = token {
        request = request.header("fencing-token", token);
    }
    request.body(String::new()).expect("a request")
}

async fn send(address: SocketAddr, request: Request<String>) -> Response<Incoming> {
    let stream = TcpStream::connect(address).await.expect("a server");
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .expect("http");
    tokio::spawn(connection);
    sender.send_request(request).await.expect("an answer")
}

async fn body(response: Response<Incoming>) -> String {
    let bytes = response.into_body().collect().await.expect("a body").to_bytes();
    String::from_utf8(bytes.to_vec()).expect("text")
}

#[tokio::test]
async fn a_stamp_is_carried_by_a_request() {
    let address = serve(router(Memory::new(), Arc::default())).await;
    let stamp = Resource::guarded_by("device/printer")
        .expect("a name")
        .stamp(Token::new(7));
    let carried = request("POST", "/printer", None)
        .carry(&stamp)
        .expect("a stamp is always carried");
    assert_eq!(send(address, carried).await.status(), StatusCode::OK);
}
