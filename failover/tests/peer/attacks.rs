//! What somebody on the network can try.

use std::collections::VecDeque;

use monolock_failover::core::{NodeId, Term};
use monolock_failover::peer::message::FenceRequest;
use monolock_failover::peer::{CallFailure, MAX_BODY, PeerClient, Sender};
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};

use crate::node::{GENEROUS, Node, client, other_secret, promise_request, secret};
use crate::wire::{read_message, record, send_raw, status_line};

fn assert_unauthenticated<T: std::fmt::Debug>(outcome: Result<T, CallFailure>) {
    assert!(
        matches!(outcome, Err(CallFailure::Unauthenticated(_))),
        "{outcome:?}"
    );
}

#[tokio::test]
async fn without_the_same_secret_on_both_sides_nothing_is_heard_or_believed() {
    let fence = FenceRequest { term: Term(9) };
    for (at_node, at_client) in [(secret(), None), (secret(), other_secret())] {
        let node = Node::start(at_node).await;
        let client = node.client(at_client);
        assert_unauthenticated(client.status().await);
        assert_unauthenticated(client.promise(&promise_request()).await);
        assert_unauthenticated(client.fence(&fence).await);
        assert_unauthenticated(client.follow().await);
        assert_eq!(node.heard(), [""; 0]);
    }
    // A node without a secret believes anybody on its machine; a client with one still does not believe its answers.
    let node = Node::start(None).await;
    assert_unauthenticated(node.client(secret()).status().await);
    assert_unauthenticated(node.client(secret()).follow().await);
}

#[tokio::test]
async fn a_recorded_request_cannot_be_sent_again() {
    let node = Node::start(secret()).await;
    let (proxy, recording) = record(node.address, |answer| answer).await;
    let client = client(proxy, secret());
    client.fence(&FenceRequest { term: Term(9) }).await.unwrap();
    client.promise(&promise_request()).await.unwrap();
    assert_eq!(node.heard(), ["fence", "promise"]);
    let requests: Vec<_> = {
        let recording = recording.lock().unwrap();
        recording
            .exchanges
            .iter()
            .map(|(request, _)| request.clone())
            .collect()
    };
    let [challenge, fence, promise] = requests.as_slice() else {
        panic!(
            "one connection with three requests, not {:?}",
            requests.iter().map(|it| status_line(it)).collect::<Vec<_>>()
        );
    };
    // On a connection of its own, with the place in it that it had, and on another place.
    for replayed in [fence, promise] {
        assert!(status_line(&send_raw(node.address, replayed).await).contains("401"));
        let mut stream = TcpStream::connect(node.address).await.unwrap();
        for (message, expected) in [(challenge, "200"), (replayed, "401")] {
            stream.write_all(message).await.unwrap();
            let answer = tokio::time::timeout(GENEROUS, read_message(&mut stream)).await;
            assert!(status_line(&answer.unwrap().unwrap()).contains(expected));
        }
    }
    assert_eq!(node.heard(), ["fence", "promise"]);
}

#[tokio::test]
async fn a_request_cannot_be_sent_twice_on_its_own_connection() {
    let node = Node::start(secret()).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxy = listener.local_addr().unwrap();
    let attack = tokio::spawn(async move {
        let (mut client, _) = listener.accept().await.unwrap();
        let mut server = TcpStream::connect(node.address).await.unwrap();
        for _ in 0..2 {
            let request = read_message(&mut client).await.unwrap();
            server.write_all(&request).await.unwrap();
            let answer = read_message(&mut server).await.unwrap();
            client.write_all(&answer).await.unwrap();
            if status_line(&request).contains("fence") {
                server.write_all(&request).await.unwrap();
                let answer = read_message(&mut server).await.unwrap();
                assert!(status_line(&answer).contains("401"), "{}", status_line(&answer));
            }
        }
        node.heard()
    });
    let client = client(proxy, secret());
    client.fence(&FenceRequest { term: Term(9) }).await.unwrap();
    let heard = tokio::time::timeout(GENEROUS, attack).await.unwrap().unwrap();
    assert_eq!(heard, ["fence"]);
}

#[tokio::test]
async fn a_request_that_was_changed_on_the_way_is_refused() {
    let node = Node::start(secret()).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxy = listener.local_addr().unwrap();
    let target = node.address;
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let mut server = TcpStream::connect(target).await.unwrap();
            while let Some(request) = read_message(&mut client).await {
                let changed = String::from_utf8(request)
                    .unwrap()
                    .replace("\"term\":9", "\"term\":8");
                server.write_all(changed.as_bytes()).await.unwrap();
                let Some(answer) = read_message(&mut server).await else {
                    break;
                };
                client.write_all(&answer).await.unwrap();
            }
        }
    });
    let client = client(proxy, secret());
    assert_unauthenticated(client.fence(&FenceRequest { term: Term(9) }).await);
    client.fence(&FenceRequest { term: Term(7) }).await.unwrap();
    assert_eq!(node.heard(), ["fence"]);
}

#[tokio::test]
async fn an_answer_that_was_changed_on_the_way_is_not_believed() {
    let node = Node::start(secret()).await;
    let swap = |from: &'static str, to: &'static str| {
        move |answer: Vec<u8>| {
            let answer = String::from_utf8(answer).unwrap();
            answer.replace(from, to).into_bytes()
        }
    };
    let (proxy, _) = record(node.address, swap("\"term\":7", "\"term\":8")).await;
    assert_unauthenticated(client(proxy, secret()).promise(&promise_request()).await);
    let (proxy, _) = record(node.address, swap("409 Conflict", "200 OK")).await;
    assert_unauthenticated(client(proxy, secret()).begin_handover(&Default::default()).await);
}

#[tokio::test]
async fn an_old_answer_does_not_answer_a_new_request() {
    let node = Node::start(secret()).await;
    let (proxy, recording) = record(node.address, |answer| answer).await;
    client(proxy, secret()).promise(&promise_request()).await.unwrap();
    let mut old: VecDeque<_> = {
        let recording = recording.lock().unwrap();
        recording
            .exchanges
            .iter()
            .map(|(_, answer)| answer.clone())
            .collect()
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let impostor = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        while read_message(&mut stream).await.is_some() {
            stream.write_all(&old.pop_front().unwrap()).await.unwrap();
        }
    });
    assert_unauthenticated(client(impostor, secret()).promise(&promise_request()).await);
}

#[tokio::test]
async fn a_nodes_own_requests_are_refused_when_they_come_back() {
    for secret in [None, secret()] {
        let node = Node::start(secret.clone()).await;
        let itself = PeerClient::new(
            node.address.into(),
            Sender::Node(NodeId::B),
            NodeId::B,
            secret.clone(),
        )
        .with_time_limit(GENEROUS);
        assert_unauthenticated(itself.promise(&promise_request()).await);
        if secret.is_some() {
            let misdirected =
                PeerClient::new(node.address.into(), Sender::Node(NodeId::A), NodeId::A, secret)
                    .with_time_limit(GENEROUS);
            assert_unauthenticated(misdirected.promise(&promise_request()).await);
        }
        assert_eq!(node.heard(), [""; 0]);
    }
}

#[tokio::test]
async fn a_body_beyond_the_bound_is_not_read_to_its_end() {
    let node = Node::start(secret()).await;
    let length = MAX_BODY + 1;
    let head = format!("POST /v1/fence HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n\r\n");
    let request = [head.as_bytes(), &vec![b' '; length]].concat();
    assert!(status_line(&send_raw(node.address, &request).await).contains("413"));
    let chunk = [b"ffff\r\n".as_slice(), &[b' '; 0xffff], b"\r\n"].concat();
    let chunked = b"POST /v1/fence HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n".as_slice();
    let request = [chunked, &chunk, &chunk].concat();
    assert!(status_line(&send_raw(node.address, &request).await).contains("413"));
    let nowhere = b"POST /v1/elsewhere HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n";
    assert!(status_line(&send_raw(node.address, nowhere).await).contains("404"));
    let garbage = send_raw(node.address, b"\x01\x01\x00\x00\x07\xd0\x00\x03abc\r\n\r\n").await;
    assert!(status_line(&garbage).contains("400"), "{}", status_line(&garbage));
    assert_eq!(node.heard(), [""; 0]);
}

#[tokio::test]
async fn idle_strangers_are_closed_and_a_known_peer_stays() {
    let node = Node::start(secret()).await;
    let known = node.client(secret());
    known.status().await.unwrap();
    let mut strangers = Vec::new();
    for _ in 0..100 {
        strangers.push(TcpStream::connect(node.address).await.unwrap());
    }
    known.status().await.unwrap();
    let newcomer = node.client(secret());
    let admitted = async { while newcomer.status().await.is_err() {} };
    tokio::time::timeout(GENEROUS, admitted).await.unwrap();
    for stranger in &mut strangers {
        let closed = tokio::time::timeout(GENEROUS, read_message(stranger)).await;
        assert_eq!(closed.unwrap(), None);
    }
}
