//! The client's lookup of a name under any answers of a name server.

use std::net::SocketAddr;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use hickory_proto::op::{Message, ResponseCode};
use tokio::net::UdpSocket;

use crate::address::Endpoint;
use crate::loopback::{runtime, split};
use crate::resolve::resolve;

pub(crate) fn check(bytes: &[u8]) {
    *ANSWER.lock().unwrap_or_else(PoisonError::into_inner) = bytes.to_vec();
    let endpoint: Endpoint = "locks.example:7071".parse().expect("a name and a port");
    let servers = [liar()];
    let found = runtime().block_on(async {
        tokio::time::timeout(PATIENCE, resolve(&endpoint, &servers))
            .await
            .expect("a lookup ends")
    });
    if let Ok(addresses) = found {
        assert!(!addresses.is_empty(), "found, but nothing");
        assert!(addresses.iter().all(|address| address.port() == 7071));
    }
}

static ANSWER: Mutex<Vec<u8>> = Mutex::new(Vec::new());

/// A name server that says [`ANSWER`] and then, should that not count as an answer, that it has failed.
fn liar() -> SocketAddr {
    static LIAR: OnceLock<SocketAddr> = OnceLock::new();
    *LIAR.get_or_init(|| {
        let socket = runtime()
            .block_on(UdpSocket::bind("127.0.0.1:0"))
            .expect("a free port");
        let address = socket.local_addr().expect("bound");
        runtime().spawn(lie(socket));
        address
    })
}

async fn lie(socket: UdpSocket) {
    let mut datagram = [0; 4_096];
    while let Ok((length, from)) = socket.recv_from(&mut datagram).await {
        let question = &datagram[..length];
        let answer = ANSWER.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let (how, rest) = split(&answer);
        let said = if how % 2 == 0 {
            addressed(question, rest)
        } else {
            composed(question, rest)
        };
        // The resolver may have closed its socket.
        let _ = socket.send_to(&said, from).await;
        let _ = socket.send_to(&failure(question), from).await;
    }
}

/// The input as it is, but for the number of the question.
fn addressed(question: &[u8], input: &[u8]) -> Vec<u8> {
    let mut said = input.to_vec();
    for (to, from) in said.iter_mut().zip(question.iter().take(2)) {
        *to = *from;
    }
    said
}

/// An answer to this very question: its flags, counts and records are the input's.
fn composed(question: &[u8], input: &[u8]) -> Vec<u8> {
    let Ok(asked) = Message::from_vec(question) else {
        return Vec::new();
    };
    let mut plain = Message::response(asked.metadata.id, asked.metadata.op_code);
    plain.metadata.recursion_desired = true;
    plain.metadata.recursion_available = true;
    plain.add_queries(asked.queries);
    let mut said = plain.to_vec().unwrap_or_default();
    let (counts, records) = split(input);
    if said.len() > 12 {
        said[7] = counts & 3;
        said[9] = counts >> 2 & 3;
        said[11] = counts >> 4 & 3;
    }
    said.extend(records);
    said
}

fn failure(question: &[u8]) -> Vec<u8> {
    let Ok(asked) = Message::from_vec(question) else {
        return Vec::new();
    };
    let mut failure = Message::error_msg(asked.metadata.id, asked.metadata.op_code, ResponseCode::ServFail);
    failure.add_queries(asked.queries);
    failure.to_vec().unwrap_or_default()
}

const PATIENCE: Duration = Duration::from_secs(30);
