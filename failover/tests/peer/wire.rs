//! HTTP by hand, and a proxy that records or changes what passes.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::node::GENEROUS;

/// One HTTP message, as it was on the wire.
pub(crate) type Message = Vec<u8>;

/// Reads a head and a body of the length it names; `None` when the connection ended before one began.
pub(crate) async fn read_message(stream: &mut TcpStream) -> Option<Message> {
    let mut message = Vec::new();
    while !message.ends_with(b"\r\n\r\n") {
        let byte = stream.read_u8().await.ok()?;
        message.push(byte);
    }
    let head = String::from_utf8_lossy(&message).to_ascii_lowercase();
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length:")?.trim().parse::<usize>().ok());
    let start = message.len();
    message.resize(start + length.unwrap_or(0), 0);
    stream.read_exact(&mut message[start..]).await.ok()?;
    Some(message)
}

/// Sends bytes on a new connection and returns the answer.
pub(crate) async fn send_raw(address: SocketAddr, message: &[u8]) -> Message {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(message).await.unwrap();
    let answer = tokio::time::timeout(GENEROUS, read_message(&mut stream)).await;
    answer.expect("an answer in time").expect("an answer")
}

pub(crate) fn status_line(message: &[u8]) -> String {
    let end = message
        .iter()
        .position(|byte| *byte == b'\r')
        .unwrap_or(message.len());
    String::from_utf8_lossy(&message[..end]).into_owned()
}

/// What passed a proxy: requests and the answers to them.
#[derive(Default)]
pub(crate) struct Recording {
    pub(crate) exchanges: Vec<(Message, Message)>,
}

/// A proxy in front of `target` that records each exchange and lets `change` edit the answers.
pub(crate) async fn record(
    target: SocketAddr,
    change: impl Fn(Message) -> Message + Clone + Send + 'static,
) -> (SocketAddr, Arc<Mutex<Recording>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let recording = Arc::new(Mutex::new(Recording::default()));
    let shared = Arc::clone(&recording);
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let (shared, change) = (Arc::clone(&shared), change.clone());
            tokio::spawn(async move {
                let mut server = TcpStream::connect(target).await.unwrap();
                while let Some(request) = read_message(&mut client).await {
                    server.write_all(&request).await.unwrap();
                    let Some(answer) = read_message(&mut server).await else {
                        return;
                    };
                    let changed = change(answer.clone());
                    shared.lock().unwrap().exchanges.push((request, answer));
                    client.write_all(&changed).await.unwrap();
                }
            });
        }
    });
    (address, recording)
}
