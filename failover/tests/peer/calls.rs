//! Calls that are made as they should be, and peers that are not there.

use std::net::TcpListener;
use std::time::Duration;

use monolock_clock::boot_now;
use monolock_failover::core::{NodeId, Term};
use monolock_failover::peer::message::{
    AcknowledgeRequest, BeginHandoverRequest, FenceRequest, HandoverRequest,
};
use monolock_failover::peer::{CallFailure, PeerCall, PeerClient, PeerServer, Sender};
use monolock_protocol::Token;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::node::{GENEROUS, Node, client, promise_request, record, secret, status};

#[tokio::test]
async fn every_call_is_answered_with_and_without_a_secret() {
    for secret in [None, secret()] {
        let node = Node::start(secret.clone()).await;
        let client = node.client(secret);
        let before = boot_now();
        let answer = client.status().await.unwrap();
        assert_eq!(answer.value, status());
        assert!(before <= answer.sent && answer.sent <= answer.received && answer.received <= boot_now());
        assert_eq!(
            client.promise(&promise_request()).await.unwrap().value.refused,
            None
        );
        let fence = client.fence(&FenceRequest { term: Term(9) }).await.unwrap().value;
        assert_eq!(
            (fence.shut, fence.term, fence.last_token),
            (true, Term(9), Token::new(77))
        );
        let handover = HandoverRequest { record: record() };
        assert!(client.handover(&handover).await.unwrap().value.accepted);
        let acknowledged = client
            .acknowledge(&AcknowledgeRequest { stream: 4, mark: 5 })
            .await;
        assert!(acknowledged.unwrap().value.current);
        let declined = client.begin_handover(&BeginHandoverRequest {}).await;
        assert_eq!(
            declined.unwrap_err(),
            CallFailure::Declined("ask me later".into())
        );
        let all = [
            "status",
            "promise",
            "fence",
            "handover",
            "acknowledge",
            "begin handover",
        ];
        assert_eq!(node.heard(), all);
    }
}

#[tokio::test]
async fn calls_may_overlap_and_follow_one_another_on_kept_connections() {
    let node = Node::start(secret()).await;
    let client = node.client(secret());
    for _ in 0..20 {
        let fence = FenceRequest { term: Term(9) };
        let promise = promise_request();
        let (status, promise, fence) =
            tokio::join!(client.status(), client.promise(&promise), client.fence(&fence));
        assert!(status.is_ok() && promise.is_ok() && fence.is_ok());
    }
    assert_eq!(node.heard().len(), 60);
}

#[tokio::test]
async fn an_operator_may_ask_for_status_and_handover_only() {
    for secret in [None, secret()] {
        let node = Node::start(secret.clone()).await;
        let operator = PeerClient::new(node.address.into(), Sender::Operator, NodeId::B, secret)
            .with_time_limit(GENEROUS);
        assert!(operator.status().await.is_ok());
        let begun = operator.begin_handover(&BeginHandoverRequest {}).await;
        assert!(begun.unwrap().value.done);
        let promise = operator.promise(&promise_request()).await.unwrap_err();
        assert!(matches!(promise, CallFailure::Declined(_)), "{promise}");
        let fence = operator.fence(&FenceRequest { term: Term(9) }).await.unwrap_err();
        assert!(matches!(fence, CallFailure::Declined(_)), "{fence}");
        let follow = operator.follow().await.unwrap_err();
        assert!(matches!(follow, CallFailure::Declined(_)), "{follow}");
        assert_eq!(node.heard(), ["status", "begin handover"]);
    }
}

#[tokio::test]
async fn a_restarted_peer_is_asked_again_on_a_new_connection() {
    let node = Node::start(secret()).await;
    let address = node.address;
    let client = node.client(secret());
    client.status().await.unwrap();
    node.stop().await;
    assert_eq!(client.status().await.unwrap_err(), CallFailure::Refused);
    let _again = Node::start_at(address, secret(), Vec::new()).await;
    assert_eq!(client.status().await.unwrap().value, status());
}

#[tokio::test]
async fn a_connection_that_the_peer_closed_meanwhile_costs_no_call() {
    let node = Node::start(secret()).await;
    let address = node.address;
    let client = node.client(secret());
    client.status().await.unwrap();
    node.stop().await;
    let _again = Node::start_at(address, secret(), Vec::new()).await;
    assert_eq!(client.status().await.unwrap().value, status());
}

#[tokio::test]
async fn a_closed_port_refuses_and_a_silent_peer_times_out() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let impatient = client(address, secret()).with_time_limit(Duration::from_millis(200));
    assert_eq!(impatient.status().await.unwrap_err(), CallFailure::TimedOut);
    drop(listener);
    let patient = client(address, secret());
    assert_eq!(patient.status().await.unwrap_err(), CallFailure::Refused);
}

#[tokio::test]
async fn a_host_that_does_not_resolve_is_a_failure_and_no_refusal() {
    let address = "no-such-node.invalid:7073".parse().unwrap();
    let client = PeerClient::new(address, Sender::Node(NodeId::A), NodeId::B, None).with_time_limit(GENEROUS);
    let failure = client.status().await.unwrap_err();
    assert!(
        matches!(&failure, CallFailure::Failed(reason) if reason.contains("no-such-node.invalid")),
        "{failure}"
    );
}

#[tokio::test]
async fn a_node_that_cannot_answer_says_so() {
    let server = PeerServer::bind("127.0.0.1:0".parse().unwrap(), NodeId::B, secret())
        .await
        .unwrap();
    let address = server.local_addr();
    let (calls_in, mut calls) = mpsc::channel::<PeerCall>(16);
    tokio::spawn(server.serve(calls_in, CancellationToken::new()));
    tokio::spawn(async move { while calls.recv().await.is_some() {} });
    let failure = client(address, secret()).status().await.unwrap_err();
    assert!(
        matches!(&failure, CallFailure::Declined(reason) if reason.contains("not able")),
        "{failure}"
    );
}
