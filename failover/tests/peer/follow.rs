//! The follow stream.

use std::time::Duration;

use monolock_failover::core::{Incarnation, Term};
use monolock_failover::peer::message::FollowEvent;
use monolock_failover::peer::{FollowEnd, FollowNext};
use monolock_protocol::{Lease, LockName, Token};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};

use crate::node::{GENEROUS, Node, client, secret};
use crate::wire::read_message;

fn feed(locks: u64) -> Vec<FollowEvent> {
    let lock = |number| LockName::new(&format!("lock \"{number}\"\n")).unwrap();
    let mut feed = vec![FollowEvent::Snapshot {
        stream: 4,
        incarnation: Incarnation(9),
        term: Term(7),
        active: true,
    }];
    feed.extend((0..locks).map(|number| FollowEvent::Held {
        lock: lock(number),
        lease: Lease::from_millis(30_000).unwrap(),
        token: Token::new(number),
    }));
    feed.push(FollowEvent::SnapshotEnd {
        locks,
        every_lock_free_after_ms: Some(7),
    });
    feed.push(FollowEvent::Freed { lock: lock(0) });
    feed.push(FollowEvent::Broke {
        lock: lock(1),
        free_after_ms: 1_500,
    });
    feed.push(FollowEvent::Mark { mark: 5 });
    feed.push(FollowEvent::Beat {
        term: Term(7),
        boot_nanos: 1,
        wall_nanos: 2,
        last_token: Token::new(3),
        longest_lease_ms: 4,
    });
    feed
}

#[tokio::test]
async fn events_come_in_order_and_then_a_definite_end() {
    for secret in [None, secret()] {
        let node = Node::start_with_feed(secret.clone(), feed(5_000)).await;
        let mut stream = node.client(secret).follow().await.unwrap();
        for expected in feed(5_000) {
            assert_eq!(stream.next().await, FollowNext::Event(expected));
        }
        for _ in 0..2 {
            assert_eq!(stream.next().await, FollowNext::Ended(FollowEnd::Closed));
        }
    }
}

#[tokio::test]
async fn waiting_for_an_event_can_be_given_up_without_losing_one() {
    let node = Node::start_with_feed(secret(), feed(200)).await;
    let mut stream = node.client(secret()).follow().await.unwrap();
    for expected in feed(200) {
        let next = loop {
            if let Ok(next) = tokio::time::timeout(Duration::from_nanos(1), stream.next()).await {
                break next;
            }
        };
        assert_eq!(next, FollowNext::Event(expected));
    }
}

#[tokio::test]
async fn a_stop_of_the_node_ends_the_stream() {
    let node = Node::start_with_feed(secret(), feed(1)).await;
    let mut stream = node.client(secret()).follow().await.unwrap();
    node.stop().await;
    let ended = async { while matches!(stream.next().await, FollowNext::Event(_)) {} };
    tokio::time::timeout(GENEROUS, ended).await.unwrap();
}

/// Passes the lines of a follow stream on, as `edit` leaves them, and returns what the client made of it: how many
/// events it took, and the end.
async fn follow_edited(edit: fn(&mut Vec<String>)) -> (usize, FollowEnd) {
    let node = Node::start_with_feed(secret(), feed(3)).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxy = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut follower, _) = listener.accept().await.unwrap();
        let mut server = TcpStream::connect(node.address).await.unwrap();
        let challenge = read_message(&mut follower).await.unwrap();
        server.write_all(&challenge).await.unwrap();
        let answer = read_message(&mut server).await.unwrap();
        follower.write_all(&answer).await.unwrap();
        let request = read_message(&mut follower).await.unwrap();
        server.write_all(&request).await.unwrap();
        let head = read_message(&mut server).await.unwrap();
        follower.write_all(&head).await.unwrap();
        let mut lines = read_chunks(server).await;
        edit(&mut lines);
        for line in lines {
            let chunk = format!("{:x}\r\n{line}\r\n", line.len());
            let _ = follower.write_all(chunk.as_bytes()).await;
        }
        let _ = follower.write_all(b"0\r\n\r\n").await;
    });
    let mut stream = client(proxy, secret()).follow().await.unwrap();
    let mut events = 0;
    loop {
        match tokio::time::timeout(GENEROUS, stream.next()).await.unwrap() {
            FollowNext::Event(_) => events += 1,
            FollowNext::Ended(end) => return (events, end),
        }
    }
}

async fn read_chunks(server: TcpStream) -> Vec<String> {
    let mut server = BufReader::new(server);
    let mut lines = Vec::new();
    loop {
        let mut length = String::new();
        server.read_line(&mut length).await.unwrap();
        let length = usize::from_str_radix(length.trim(), 16).unwrap();
        let mut chunk = vec![0; length + 2];
        server.read_exact(&mut chunk).await.unwrap();
        if length == 0 {
            return lines;
        }
        chunk.truncate(length);
        lines.push(String::from_utf8(chunk).unwrap());
    }
}

#[tokio::test]
async fn lines_that_are_changed_taken_out_or_repeated_end_the_stream() {
    let whole = feed(3).len();
    assert_eq!(follow_edited(|_| {}).await, (whole, FollowEnd::Closed));
    let forged = FollowEnd::Unauthenticated;
    let changed = follow_edited(|lines| lines[2] = lines[2].replace("\"token\":1", "\"token\":2"));
    assert_eq!(changed.await, (2, forged.clone()));
    let taken_out = follow_edited(|lines| drop(lines.remove(1)));
    assert_eq!(taken_out.await, (1, forged.clone()));
    let repeated = follow_edited(|lines| lines.insert(2, lines[1].clone()));
    assert_eq!(repeated.await, (2, forged.clone()));
    let bare = follow_edited(|lines| lines[0] = lines[0].split_once(' ').unwrap().1.to_owned());
    assert_eq!(bare.await, (0, forged));
}

#[tokio::test]
async fn a_line_without_end_is_bounded() {
    let (events, end) = follow_edited(|lines| lines[1] = "x".repeat(70_000)).await;
    assert_eq!(events, 1);
    assert!(matches!(end, FollowEnd::Broken(_)), "{end}");
}
