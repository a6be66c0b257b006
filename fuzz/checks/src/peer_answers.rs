//! The peer link's client under any answers: with a secret, it believes nothing that its holder did not say.

use std::sync::{Mutex, OnceLock, PoisonError};

use monolock_failover::core::{Incarnation, NodeId, Term};
use monolock_failover::peer::message::{BeginHandoverRequest, FenceRequest, PromiseRequest};
use monolock_failover::peer::{CallFailure, FollowNext, PeerAddress, PeerClient, PeerSecret, Sender};
use monolock_protocol::Token;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};

use crate::loopback::{runtime, split};

pub(crate) fn check(bytes: &[u8]) {
    let (how, rest) = split(bytes);
    let answer = if how & 1 == 0 {
        rest.to_vec()
    } else {
        composed(rest)
    };
    *ANSWER.lock().unwrap_or_else(PoisonError::into_inner) = answer;
    let secret =
        (how & 2 != 0).then(|| PeerSecret::new("a secret that nobody guesses").expect("long enough"));
    let is_guarded = secret.is_some();
    let client = PeerClient::new(liar().clone(), Sender::Node(NodeId::A), NodeId::B, secret);
    let believed = runtime().block_on(ask(&client, how >> 2));
    assert!(
        !(is_guarded && believed),
        "an answer that nobody has signed was believed"
    );
}

/// Makes the call of this number; whether anything was believed.
async fn ask(client: &PeerClient, call: u8) -> bool {
    match call % 5 {
        0 => believed(client.status().await),
        1 => believed(client.promise(&promise()).await),
        2 => believed(client.fence(&FenceRequest { term: Term(3) }).await),
        3 => believed(client.begin_handover(&BeginHandoverRequest {}).await),
        _ => follow(client).await,
    }
}

fn believed<T>(outcome: Result<T, CallFailure>) -> bool {
    match outcome {
        Ok(_) | Err(CallFailure::Declined(_)) => true,
        Err(
            CallFailure::Refused
            | CallFailure::TimedOut
            | CallFailure::Unauthenticated(_)
            | CallFailure::Failed(_),
        ) => false,
    }
}

/// Reads the stream to its end, which must come, and stay.
async fn follow(client: &PeerClient) -> bool {
    let mut stream = match client.follow().await {
        Ok(stream) => stream,
        failure => return believed(failure),
    };
    let mut heard = false;
    while let FollowNext::Event(event) = stream.next().await {
        heard = true;
        let _ = event.lock_change();
    }
    assert!(matches!(stream.next().await, FollowNext::Ended(_)));
    heard
}

fn promise() -> PromiseRequest {
    PromiseRequest {
        term: Term(3),
        incarnation: Incarnation(5),
        floor: Token::new(7),
        max_lease_ms: 1_000,
        candidacy: None,
        ttl_ms: 3_000,
    }
}

/// An answer with a valid head: its status and body are the input's.
fn composed(input: &[u8]) -> Vec<u8> {
    let (status, body) = split(input);
    let status = [200, 401, 409, 503][usize::from(status) % 4];
    let code = "0".repeat(64);
    let head = format!(
        "HTTP/1.1 {status} x\r\ncontent-length: {}\r\nmonolock-code: {code}\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

/// What the liar says next.
static ANSWER: Mutex<Vec<u8>> = Mutex::new(Vec::new());

/// A peer that hands out challenges as a node does, and answers everything else with [`ANSWER`].
fn liar() -> &'static PeerAddress {
    static LIAR: OnceLock<PeerAddress> = OnceLock::new();
    LIAR.get_or_init(|| {
        let listener = runtime()
            .block_on(TcpListener::bind("127.0.0.1:0"))
            .expect("a free port");
        let address = listener.local_addr().expect("bound");
        runtime().spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(lie(stream));
            }
        });
        address.to_string().parse().expect("an address")
    })
}

async fn lie(stream: TcpStream) -> Option<()> {
    let mut stream = BufReader::new(stream);
    while read_head(&mut stream).await?.contains("/v1/challenge") {
        let challenge = "0".repeat(32);
        let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: 32\r\n\r\n{challenge}");
        stream.write_all(answer.as_bytes()).await.ok()?;
    }
    let answer = ANSWER.lock().unwrap_or_else(PoisonError::into_inner).clone();
    stream.write_all(&answer).await.ok()?;
    stream.shutdown().await.ok()?;
    // The client ends the connection: no reset overtakes what was said.
    stream.read_to_end(&mut Vec::new()).await.ok()?;
    Some(())
}

/// The head of a request; its body stays unread.
async fn read_head(stream: &mut BufReader<TcpStream>) -> Option<String> {
    let mut head = String::new();
    loop {
        let read = stream.read_line(&mut head).await.ok()?;
        match read {
            0 => return None,
            _ if head.ends_with("\r\n\r\n") => return Some(head),
            _ => {}
        }
    }
}
