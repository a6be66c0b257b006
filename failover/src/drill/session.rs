//! One claim on one lock, on the wire: the smallest client there is.

use std::io;
use std::net::SocketAddr;

use monolock_clock::boot_now;
use monolock_protocol::frame::{Decoded, HEARTBEAT_FRAME, ServerFrame, decode_server_frame, encode_acquire};
use monolock_protocol::{BootInstant, Lease, LockName};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// A connection that has made its claim. Dropping it is the release.
#[derive(Debug)]
pub(super) struct Session {
    stream: TcpStream,
    received: Vec<u8>,
    /// When the claim was sent, at the latest.
    pub(super) asked: BootInstant,
}

impl Session {
    /// Connects and claims. Sets no bound on time.
    pub(super) async fn open(server: SocketAddr, lock: &LockName, lease: Lease) -> io::Result<Self> {
        let mut stream = TcpStream::connect(server).await?;
        stream.set_nodelay(true)?;
        let mut claim = Vec::new();
        encode_acquire(lock, lease, &mut claim);
        let asked = boot_now();
        stream.write_all(&claim).await?;
        Ok(Self {
            stream,
            received: Vec::new(),
            asked,
        })
    }

    /// Sends a heartbeat.
    pub(super) async fn beat(&mut self) -> io::Result<()> {
        self.stream.write_all(&HEARTBEAT_FRAME).await
    }

    /// The next frame; the end of the stream is an error. Cancel safe.
    pub(super) async fn receive(&mut self) -> io::Result<ServerFrame> {
        loop {
            match decode_server_frame(&self.received) {
                Ok(Decoded::Frame { frame, consumed }) => {
                    self.received.drain(..consumed);
                    return Ok(frame);
                }
                Ok(Decoded::Incomplete) => {}
                Err(error) => return Err(io::Error::new(io::ErrorKind::InvalidData, error)),
            }
            if self.stream.read_buf(&mut self.received).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }
}
