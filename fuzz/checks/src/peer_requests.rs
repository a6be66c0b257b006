//! The peer link's server under any bytes: with a secret, nothing reaches the node that its holder did not send.

use std::net::SocketAddr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use monolock_failover::core::NodeId;
use monolock_failover::peer::{Declined, PeerCall, PeerSecret, PeerServer};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::loopback::{runtime, split};

pub(crate) fn check(bytes: &[u8]) {
    let servers = servers();
    let (how, rest) = split(bytes);
    let address = if how & 1 == 0 {
        servers.open
    } else {
        servers.guarded
    };
    let is_whole = how & 2 != 0;
    let request = if is_whole { composed(rest) } else { rest.to_vec() };
    let answer = runtime().block_on(exchange(address, &request, is_whole));
    assert!(
        answer.is_empty() || answer.starts_with(b"HTTP/1."),
        "{:?}",
        String::from_utf8_lossy(&answer)
    );
    assert_eq!(
        GUARDED_CALLS.load(Ordering::SeqCst),
        0,
        "a request that nobody has signed was heard"
    );
}

/// A request with a valid head: its path, sender and body are the input's.
fn composed(input: &[u8]) -> Vec<u8> {
    let (path, input) = split(input);
    let (from, body) = split(input);
    let (method, path) = ROUTES[usize::from(path) % ROUTES.len()];
    let from = ["b", "operator", "a", "c"][usize::from(from) % 4];
    let code = "0".repeat(64);
    let nonce = "0".repeat(32);
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: {}\r\n\
         monolock-from: {from}\r\nmonolock-to: a\r\nmonolock-nonce: {nonce}\r\nmonolock-code: {code}\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

/// Sends everything, then reads to the end. A request that may lack its end is followed by the end of the connection.
async fn exchange(address: SocketAddr, request: &[u8], is_whole: bool) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).await.expect("it listens");
    let mut answer = Vec::new();
    // A server that has refused may have closed already.
    let _ = stream.write_all(request).await;
    if !is_whole {
        let _ = stream.shutdown().await;
    }
    let _ = stream.read_to_end(&mut answer).await;
    answer
}

struct Servers {
    open: SocketAddr,
    guarded: SocketAddr,
}

static GUARDED_CALLS: AtomicUsize = AtomicUsize::new(0);

fn servers() -> &'static Servers {
    static SERVERS: OnceLock<Servers> = OnceLock::new();
    SERVERS.get_or_init(|| {
        let secret = PeerSecret::new("a secret that nobody guesses").expect("long enough");
        Servers {
            open: start(None, |_| {}),
            guarded: start(Some(secret), |_| {
                GUARDED_CALLS.fetch_add(1, Ordering::SeqCst);
            }),
        }
    })
}

fn start(secret: Option<PeerSecret>, heard: fn(&PeerCall)) -> SocketAddr {
    let local = SocketAddr::from(([127, 0, 0, 1], 0));
    let server = runtime()
        .block_on(PeerServer::bind(local, NodeId::A, secret))
        .expect("a free port");
    let address = server.local_addr();
    let (sender, mut calls) = mpsc::channel(16);
    runtime().spawn(server.serve(sender, CancellationToken::new()));
    runtime().spawn(async move {
        while let Some(call) = calls.recv().await {
            heard(&call);
            decline(call);
        }
    });
    address
}

fn decline(call: PeerCall) {
    let declined = || Declined("this is a check".to_owned());
    // Whether anybody still listens is the connection's business.
    match call {
        PeerCall::Status { reply, .. } => drop(reply.send(Err(declined()))),
        PeerCall::Follow { reply } => drop(reply.send(Err(declined()))),
        PeerCall::Acknowledge { reply, .. } => drop(reply.send(Err(declined()))),
        PeerCall::Promise { reply, .. } => drop(reply.send(Err(declined()))),
        PeerCall::Fence { reply, .. } => drop(reply.send(Err(declined()))),
        PeerCall::Handover { reply, .. } => drop(reply.send(Err(declined()))),
        PeerCall::ExtendReserve { reply } => drop(reply.send(Err(declined()))),
        PeerCall::BeginHandover { reply, .. } => drop(reply.send(Err(declined()))),
    }
}

const ROUTES: [(&str, &str); 9] = [
    ("GET", "/v1/challenge"),
    ("GET", "/v1/node"),
    ("GET", "/v1/follow"),
    ("POST", "/v1/acknowledge"),
    ("POST", "/v1/promise"),
    ("POST", "/v1/fence"),
    ("POST", "/v1/handover"),
    ("POST", "/v1/extend-reserve"),
    ("POST", "/v1/begin-handover"),
];
