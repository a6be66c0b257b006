//! The lock server's own clients: the wire protocol without the rules of a client library, so that what is measured is
//! the server.

use std::io::{self, Read, Write};
use std::net::{self, SocketAddr};

use anyhow::{Result, bail};
use monolock_protocol::frame::{Decoded, ServerFrame, decode_server_frame, encode_acquire};
use monolock_protocol::{Lease, LockName};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::worker::Worker;

/// A cycle of it connects, asks for a lock, waits for the grant and closes.
#[derive(Clone, Debug)]
pub struct Claimant {
    server: SocketAddr,
    acquire: Vec<u8>,
}

impl Claimant {
    /// A claimant of this lock.
    ///
    /// # Panics
    ///
    /// When the name is none.
    #[must_use]
    pub fn new(server: SocketAddr, lock: &str) -> Self {
        Self {
            server,
            acquire: acquire_frame(lock),
        }
    }
}

impl Worker for Claimant {
    async fn cycle(&mut self) -> Result<()> {
        let mut stream = TcpStream::connect(self.server).await?;
        stream.write_all(&self.acquire).await?;
        let (mut space, mut len) = ([0; SPACE], 0);
        loop {
            match stream.read(&mut space[len..]).await? {
                0 => bail!("the server closed the connection"),
                more => len += more,
            }
            if is_granted(&space[..len])? {
                return Ok(());
            }
        }
    }
}

/// Whether the last frame of an answer is the grant.
fn is_granted(mut received: &[u8]) -> Result<bool> {
    while let Decoded::Frame { frame, consumed } = decode_server_frame(received)? {
        match frame {
            ServerFrame::Acquired(_) => return Ok(true),
            ServerFrame::Waiting => received = &received[consumed..],
            ServerFrame::Error { code, reason } => bail!("refused with {code}: {reason}"),
        }
    }
    Ok(false)
}

/// A blocking session that holds a lock, or waits for it: for latencies, where a runtime in the client would be measured
/// along.
#[derive(Debug)]
pub struct Session<S = net::TcpStream> {
    /// The connection.
    pub stream: S,
}

impl Session {
    /// Connects and asks for a lock.
    ///
    /// # Errors
    ///
    /// Those of the connection.
    ///
    /// # Panics
    ///
    /// When the name is none.
    pub fn ask(server: SocketAddr, lock: &str) -> io::Result<Self> {
        let stream = net::TcpStream::connect(server)?;
        stream.set_nodelay(true)?;
        Self::ask_over(stream, lock)
    }
}

impl<S: Read + Write> Session<S> {
    /// Asks for a lock over a connection.
    ///
    /// # Errors
    ///
    /// Those of the connection.
    ///
    /// # Panics
    ///
    /// When the name is none.
    pub fn ask_over(mut stream: S, lock: &str) -> io::Result<Self> {
        stream.write_all(&acquire_frame(lock))?;
        stream.flush()?;
        Ok(Self { stream })
    }

    /// Waits for `ACQUIRED`.
    ///
    /// # Errors
    ///
    /// Those of the connection.
    pub fn wait_granted(&mut self) -> io::Result<()> {
        self.stream.read_exact(&mut [0; GRANT_LEN])
    }

    /// Waits for `WAITING`.
    ///
    /// # Errors
    ///
    /// Those of the connection.
    pub fn wait_queued(&mut self) -> io::Result<()> {
        self.stream.read_exact(&mut [0])
    }
}

fn acquire_frame(lock: &str) -> Vec<u8> {
    let name = LockName::new(lock).expect("the benchmark's names are valid");
    let mut frame = Vec::new();
    encode_acquire(&name, LEASE, &mut frame);
    frame
}

/// Longer than any row takes: nothing expires.
const LEASE: Lease = match Lease::from_millis(3_600_000) {
    Ok(lease) => lease,
    Err(_) => panic!("an hour is a lease"),
};

/// The length of an `ACQUIRED` frame.
pub const GRANT_LEN: usize = 9;

const SPACE: usize = 64;
