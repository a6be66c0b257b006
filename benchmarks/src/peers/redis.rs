//! Redis: `SET key owner NX PX`, and the script that deletes the key only for its owner.

use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};
use monolock_integration_tests::TempDir;
use monolock_integration_tests::port::free_port;
use monolock_integration_tests::process::Process;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::worker::Worker;

/// A running Redis that writes nothing to disk.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    _process: Process,
    _folder: TempDir,
}

impl Server {
    pub(super) fn start() -> Self {
        let folder = TempDir::with_prefix("monolock-redis-").expect("a temporary folder can be made");
        let port = free_port();
        let mut command = Command::new("redis-server");
        command.args([
            "--bind",
            "127.0.0.1",
            "--save",
            "",
            "--appendonly",
            "no",
            "--port",
        ]);
        command.arg(port.to_string()).arg("--dir").arg(folder.path());
        let process = Process::spawn("redis-server", command);
        process.wait_for_line("Ready to accept connections");
        Self {
            address: (Ipv4Addr::LOCALHOST, port).into(),
            _process: process,
            _folder: folder,
        }
    }

    pub(super) async fn connect(&self, lock: &str) -> Result<Client> {
        let stream = TcpStream::connect(self.address).await?;
        stream.set_nodelay(true)?;
        let owner = format!("{:016x}", fastrand::u64(..));
        let mut client = Client {
            stream,
            lock: request(&["SET", lock, &owner, "NX", "PX", "30000"]),
            unlock: Vec::new(),
        };
        let script = client
            .ask(&request(&["SCRIPT", "LOAD", COMPARE_AND_DELETE]))
            .await?;
        let digest = script.lines().nth(1).unwrap_or_default();
        client.unlock = request(&["EVALSHA", digest, "1", lock, &owner]);
        Ok(client)
    }
}

/// A connection, with the requests that take one lock and give it back.
#[derive(Debug)]
pub(super) struct Client {
    stream: TcpStream,
    lock: Vec<u8>,
    unlock: Vec<u8>,
}

impl Worker for Client {
    async fn cycle(&mut self) -> Result<()> {
        while exchange(&mut self.stream, &self.lock).await? != "+OK\r\n" {
            tokio::time::sleep(Duration::from_millis(fastrand::u64(RETRY_MILLIS))).await;
        }
        let deleted = exchange(&mut self.stream, &self.unlock).await?;
        ensure!(deleted == ":1\r\n", "the key was not the owner's: {deleted:?}");
        Ok(())
    }
}

impl Client {
    async fn ask(&mut self, request: &[u8]) -> Result<String> {
        exchange(&mut self.stream, request).await
    }
}

/// One request, and its answer, which is short enough to come in one piece.
async fn exchange(stream: &mut TcpStream, request: &[u8]) -> Result<String> {
    stream.write_all(request).await?;
    let mut space = [0; 128];
    let len = stream.read(&mut space).await?;
    let answer = String::from_utf8_lossy(&space[..len]).into_owned();
    ensure!(
        answer.ends_with("\r\n") && !answer.starts_with('-'),
        "Redis says {answer:?}"
    );
    Ok(answer)
}

fn request(words: &[&str]) -> Vec<u8> {
    let words = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len()));
    let words: Vec<String> = words.collect();
    format!("*{}\r\n{}", words.len(), words.concat()).into_bytes()
}

const COMPARE_AND_DELETE: &str =
    "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end";

/// How long a client waits before it tries again.
const RETRY_MILLIS: std::ops::RangeInclusive<u64> = 1..=5;
