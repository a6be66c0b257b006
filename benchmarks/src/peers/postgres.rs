//! PostgreSQL: advisory locks of a session, by statements prepared once.

use std::net::SocketAddr;

use anyhow::{Context, Result, bail};
use monolock_integration_tests::postgres::Postgres;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::worker::Worker;

/// A running PostgreSQL.
#[derive(Debug)]
pub struct Server(Postgres);

impl Server {
    pub(super) fn start() -> Self {
        Self(Postgres::local())
    }

    pub(super) async fn connect(&self, lock: &str) -> Result<Client> {
        let stream = TcpStream::connect(self.address()?).await?;
        stream.set_nodelay(true)?;
        let mut client = Client { stream };
        client.exchange(&startup()).await?;
        for (name, function) in [(LOCK, "pg_advisory_lock"), (UNLOCK, "pg_advisory_unlock")] {
            let statement = format!("{name}\0SELECT {function}(hashtext('{lock}'))\0\0\0");
            let prepare = [message(b'P', statement.as_bytes()), message(b'S', b"")].concat();
            client.exchange(&prepare).await?;
        }
        Ok(client)
    }

    fn address(&self) -> Result<SocketAddr> {
        let authority = self.0.url().split(['@', '/']).nth(3);
        Ok(authority.context("a URL with an address")?.parse()?)
    }
}

/// A connection with both statements prepared.
#[derive(Debug)]
pub(super) struct Client {
    stream: TcpStream,
}

impl Worker for Client {
    async fn cycle(&mut self) -> Result<()> {
        self.exchange(&execute(LOCK)).await?;
        self.exchange(&execute(UNLOCK)).await
    }
}

impl Client {
    /// Sends messages, and takes the answers up to "ready for query".
    async fn exchange(&mut self, messages: &[u8]) -> Result<()> {
        self.stream.write_all(messages).await?;
        let mut received = Vec::with_capacity(1024);
        loop {
            self.stream.read_buf(&mut received).await?;
            let mut rest = received.as_slice();
            while let [kind, l0, l1, l2, l3, ..] = *rest {
                let len = 1 + u32::from_be_bytes([l0, l1, l2, l3]) as usize;
                let Some(after) = rest.get(len..) else { break };
                match kind {
                    b'E' => bail!("PostgreSQL says {}", String::from_utf8_lossy(rest)),
                    b'Z' => return Ok(()),
                    _ => rest = after,
                }
            }
        }
    }
}

fn startup() -> Vec<u8> {
    let parameters = b"user\0postgres\0database\0postgres\0\0";
    [&length(4 + parameters.len())[..], &PROTOCOL, parameters].concat()
}

/// Binds a statement without parameters, executes it, and asks for the end of the exchange.
fn execute(statement: &str) -> Vec<u8> {
    let bind = format!("\0{statement}\0\0\0\0\0\0\0");
    [
        message(b'B', bind.as_bytes()),
        message(b'E', b"\0\0\0\0\0"),
        message(b'S', b""),
    ]
    .concat()
}

fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    [&[kind], &length(body.len())[..], body].concat()
}

/// A length counts itself.
fn length(body: usize) -> [u8; 4] {
    u32::try_from(4 + body).expect("messages are short").to_be_bytes()
}

const LOCK: &str = "lock";
const UNLOCK: &str = "unlock";

/// Version 3.0.
const PROTOCOL: [u8; 4] = [0, 3, 0, 0];
