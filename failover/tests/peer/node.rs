//! A node that answers every call with something recognisable and remembers what it heard.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use monolock_failover::core::{Incarnation, NodeId, Record, Term};
use monolock_failover::peer::message::{
    AcknowledgeResponse, BeginHandoverResponse, ExtendReserveResponse, FenceResponse, FollowEvent,
    HandoverResponse, NodeStatus, PromiseRequest, PromiseResponse, Refusal, Role,
};
use monolock_failover::peer::{
    Declined, LinkCredentials, PeerCall, PeerClient, PeerSecret, PeerServer, Sender,
};
use monolock_protocol::Token;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Bounds what must not hang; long enough for a busy machine.
pub(crate) const GENEROUS: Duration = Duration::from_secs(30);

/// Node `b` of a pair, listening on a loopback port.
pub(crate) struct Node {
    pub(crate) address: SocketAddr,
    heard: Arc<Mutex<Vec<&'static str>>>,
    stop: CancellationToken,
    serving: JoinHandle<()>,
}

impl Node {
    pub(crate) async fn start(secret: Option<PeerSecret>) -> Self {
        Self::start_at("127.0.0.1:0".parse().unwrap(), secret, Vec::new()).await
    }

    pub(crate) async fn start_with_feed(secret: Option<PeerSecret>, feed: Vec<FollowEvent>) -> Self {
        Self::start_at("127.0.0.1:0".parse().unwrap(), secret, feed).await
    }

    pub(crate) async fn start_at(
        address: SocketAddr,
        credentials: impl Into<LinkCredentials>,
        feed: Vec<FollowEvent>,
    ) -> Self {
        let server = PeerServer::bind(address, NodeId::B, credentials).await.unwrap();
        let address = server.local_addr();
        let (calls_in, calls) = mpsc::channel(16);
        let stop = CancellationToken::new();
        let serving = tokio::spawn(server.serve(calls_in, stop.clone()));
        let heard = Arc::default();
        tokio::spawn(answer(calls, Arc::clone(&heard), feed));
        Self {
            address,
            heard,
            stop,
            serving,
        }
    }

    /// The calls that reached the node, in order.
    pub(crate) fn heard(&self) -> Vec<&'static str> {
        self.heard.lock().unwrap().clone()
    }

    /// A client of this node in the name of node `a`.
    pub(crate) fn client(&self, secret: Option<PeerSecret>) -> PeerClient {
        client(self.address, secret)
    }

    pub(crate) async fn stop(self) {
        self.stop.cancel();
        self.serving.await.unwrap();
    }
}

pub(crate) fn client(address: SocketAddr, secret: Option<PeerSecret>) -> PeerClient {
    PeerClient::new(address.into(), Sender::Node(NodeId::A), NodeId::B, secret).with_time_limit(GENEROUS)
}

pub(crate) fn secret() -> Option<PeerSecret> {
    Some(PeerSecret::new("correct horse battery staple").unwrap())
}

pub(crate) fn other_secret() -> Option<PeerSecret> {
    Some(PeerSecret::new("correct horse battery stapler").unwrap())
}

pub(crate) fn status() -> NodeStatus {
    NodeStatus {
        node: NodeId::B,
        incarnation: Incarnation(u64::MAX),
        role: Role::Standby,
        term: Term(7),
        floor: Token::MAX,
        last_token: Token::ZERO,
        longest_lease_ms: 30_000,
        table_answers: true,
        grants_left: None,
        grants_confirmed: None,
        ready_for_handover: true,
        boot_nanos: 1,
        wall_nanos: 2,
        authority_left_ms: None,
        reason: Some("the peer is alive".into()),
        clock: None,
        witness: None,
        name: None,
        timeline: Vec::new(),
        version: "0.1.0".into(),
    }
}

pub(crate) fn promise_request() -> PromiseRequest {
    PromiseRequest {
        term: Term(7),
        incarnation: Incarnation(3),
        floor: Token::new(1 << 40),
        max_lease_ms: 30_000,
        candidacy: None,
        ttl_ms: 3_000,
    }
}

pub(crate) fn record() -> Record {
    Record {
        format: Record::FORMAT,
        term: Term(8),
        holder: Some(NodeId::B),
        incarnation: Incarnation(5),
        beat: 0,
        floor: Token::new(1 << 40),
        max_lease_ms: 1,
    }
}

async fn answer(
    mut calls: mpsc::Receiver<PeerCall>,
    heard: Arc<Mutex<Vec<&'static str>>>,
    feed: Vec<FollowEvent>,
) {
    let hear = |what| heard.lock().unwrap().push(what);
    while let Some(call) = calls.recv().await {
        match call {
            PeerCall::Status { reply, .. } => {
                hear("status");
                let _ = reply.send(Ok(status()));
            }
            PeerCall::Follow { reply } => {
                hear("follow");
                let (events_in, events) = mpsc::channel(16);
                let _ = reply.send(Ok(events));
                let feed = feed.clone();
                tokio::spawn(async move {
                    for event in feed {
                        let _ = events_in.send(event).await;
                    }
                });
            }
            PeerCall::Acknowledge { request, reply } => {
                hear("acknowledge");
                let current = (request.stream, request.mark) == (4, 5);
                let _ = reply.send(Ok(AcknowledgeResponse { current }));
            }
            PeerCall::Promise { request, reply } => {
                hear("promise");
                let response = PromiseResponse {
                    refused: (request != promise_request()).then_some(Refusal::TermEnded),
                    term: request.term,
                    floor: request.floor,
                    longest_lease_ms: request.max_lease_ms,
                    incarnation: Incarnation(9),
                };
                let _ = reply.send(Ok(response));
            }
            PeerCall::ExtendReserve { reply } => {
                hear("extend reserve");
                let _ = reply.send(Ok(ExtendReserveResponse {
                    extended: true,
                    grants_left: Some(1),
                }));
            }
            PeerCall::Fence { request, reply } => {
                hear("fence");
                let response = FenceResponse {
                    shut: true,
                    term: request.term,
                    incarnation: Incarnation(9),
                    last_token: Token::new(77),
                };
                let _ = reply.send(Ok(response));
            }
            PeerCall::Handover { request, reply } => {
                hear("handover");
                let response = HandoverResponse {
                    accepted: request.record == record(),
                    incarnation: Incarnation(9),
                    reason: None,
                };
                let _ = reply.send(Ok(response));
            }
            PeerCall::BeginHandover { from, reply, .. } => {
                hear("begin handover");
                let answer = match from {
                    Sender::Operator => Ok(BeginHandoverResponse {
                        done: true,
                        term: Term(8),
                        reason: None,
                    }),
                    Sender::Node(_) => Err(Declined("ask me later".into())),
                };
                let _ = reply.send(answer);
            }
        }
    }
}
