//! What an operator asks of a pair, over real peer links.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use monolock_failover::config::LinkConfig;
use monolock_failover::core::{Incarnation, NodeId, Term};
use monolock_failover::operator::{HandoverError, PairStatus, hand_over};
use monolock_failover::peer::message::{BeginHandoverResponse, NodeStatus, Role};
use monolock_failover::peer::{PeerCall, PeerSecret, PeerServer};
use monolock_protocol::Token;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

fn secret() -> PeerSecret {
    PeerSecret::new("correct horse battery staple").unwrap()
}

/// Serves one node of this role; when asked to hand over it says that it has.
async fn start(node: NodeId, role: Role) -> std::net::SocketAddr {
    let server = PeerServer::bind("127.0.0.1:0".parse().unwrap(), node, Some(secret()))
        .await
        .unwrap();
    let address = server.local_addr();
    let (calls_in, mut calls) = mpsc::channel(16);
    tokio::spawn(server.serve(calls_in, CancellationToken::new()));
    tokio::spawn(async move {
        while let Some(call) = calls.recv().await {
            match call {
                PeerCall::Status { reply, .. } => {
                    let _ = reply.send(Ok(status(node, role)));
                }
                PeerCall::BeginHandover { reply, .. } => {
                    let response = BeginHandoverResponse {
                        done: role == Role::Active,
                        term: Term(8),
                        reason: None,
                    };
                    let _ = reply.send(Ok(response));
                }
                other => panic!("an operator may not ask {other:?}"),
            }
        }
    });
    address
}

fn status(node: NodeId, role: Role) -> NodeStatus {
    NodeStatus {
        node,
        incarnation: Incarnation(1),
        role,
        term: Term(7),
        floor: Token::new(100),
        last_token: Token::new(99),
        longest_lease_ms: 0,
        table_answers: true,
        grants_left: None,
        grants_confirmed: None,
        ready_for_handover: role == Role::Standby,
        boot_nanos: 0,
        wall_nanos: 0,
        authority_left_ms: (role == Role::Active).then_some(800),
        reason: None,
        clock: None,
        witness: None,
        name: None,
        timeline: Vec::new(),
        version: String::new(),
    }
}

async fn pair(a: Role, b: Role) -> LinkConfig {
    LinkConfig {
        listen: start(NodeId::A, a).await,
        peer: start(NodeId::B, b).await.into(),
        credentials: Some(secret()).into(),
    }
}

#[tokio::test]
async fn a_healthy_pair_is_shown_from_either_node_and_hands_over() {
    for (a, b) in [(Role::Active, Role::Standby), (Role::Standby, Role::Active)] {
        let link = pair(a, b).await;
        let status = PairStatus::ask(NodeId::A, &link).await;
        let active = if a == Role::Active { NodeId::A } else { NodeId::B };
        assert_eq!(status.active(), Some(active));
        assert!(status.is_healthy());
        let text = status.to_string();
        assert!(
            text.contains("active, term 7, floor 100, last token 99, authority for 800 ms"),
            "{text}"
        );
        assert!(text.contains("standby, term 7, floor 100, ready"), "{text}");
        assert!(hand_over(NodeId::A, &link).await.unwrap().done);
    }
}

#[tokio::test]
async fn a_pair_without_one_active_node_is_told_so() {
    for (a, b) in [(Role::Standby, Role::Standby), (Role::Active, Role::Active)] {
        let link = pair(a, b).await;
        assert!(!PairStatus::ask(NodeId::A, &link).await.is_healthy());
        let error = hand_over(NodeId::A, &link).await.unwrap_err();
        assert!(matches!(error, HandoverError::NoActive(_)), "{error}");
    }
}

#[tokio::test]
async fn a_node_that_does_not_answer_is_part_of_the_picture() {
    let gone = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let link = LinkConfig {
        listen: start(NodeId::A, Role::Active).await,
        peer: gone.into(),
        credentials: Some(secret()).into(),
    };
    let status = PairStatus::ask(NodeId::A, &link).await;
    assert_eq!(status.active(), Some(NodeId::A));
    assert!(!status.is_healthy());
    assert!(status.to_string().contains("nothing listens"), "{status}");
    let json = serde_json::to_value(&status).unwrap();
    assert_eq!(json["nodes"][0]["status"]["role"], "active");
    assert!(json["nodes"][1]["error"].is_string());
}
