//! The wire protocol, byte by byte, for tests that must send what no client would.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};

use monolock_protocol::frame::{Decoded, HEARTBEAT_FRAME, ServerFrame, decode_server_frame, encode_acquire};
use monolock_protocol::{ErrorCode, Lease, LockName, Token};

use crate::wait::PATIENCE;

/// A connection that speaks the wire protocol and has no rules of its own: it sends no heartbeat by itself.
#[derive(Debug)]
pub struct RawClient {
    stream: TcpStream,
    received: Vec<u8>,
}

/// What came from the server next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Received {
    /// A whole frame.
    Frame(ServerFrame),
    /// The end of the stream, between two frames.
    End,
    /// The connection was reset, or ended within a frame.
    Broken(io::ErrorKind),
}

impl RawClient {
    /// Connects; every read and write is bounded by [`PATIENCE`].
    ///
    /// # Panics
    ///
    /// When the server does not accept the connection.
    #[must_use]
    pub fn connect(server: SocketAddr) -> Self {
        let stream = TcpStream::connect_timeout(&server, PATIENCE)
            .unwrap_or_else(|error| panic!("{server} does not accept a connection: {error}"));
        stream
            .set_read_timeout(Some(PATIENCE))
            .expect("PATIENCE is not zero");
        stream
            .set_write_timeout(Some(PATIENCE))
            .expect("PATIENCE is not zero");
        stream.set_nodelay(true).expect("a TCP socket takes the option");
        Self {
            stream,
            received: Vec::new(),
        }
    }

    /// Connects and asks for a lock.
    ///
    /// # Panics
    ///
    /// When the name or the lease is not valid, or the server takes no bytes.
    #[must_use]
    pub fn acquire(server: SocketAddr, lock: &str, lease_ms: u32) -> Self {
        let name = LockName::new(lock).expect("a valid name");
        let lease = Lease::from_millis(lease_ms).expect("a positive lease");
        let mut frame = Vec::new();
        encode_acquire(&name, lease, &mut frame);
        let mut client = Self::connect(server);
        client.send(&frame);
        client
    }

    /// Sends bytes as they are.
    ///
    /// # Panics
    ///
    /// When the server takes none within [`PATIENCE`], or the connection is broken.
    pub fn send(&mut self, bytes: &[u8]) {
        self.stream
            .write_all(bytes)
            .unwrap_or_else(|error| panic!("sending {bytes:02x?}: {error}"));
    }

    /// Sends a heartbeat.
    ///
    /// # Panics
    ///
    /// As [`RawClient::send`].
    pub fn heartbeat(&mut self) {
        self.send(&HEARTBEAT_FRAME);
    }

    /// Sends no more, but reads on: the half-close of a client that is done.
    ///
    /// # Panics
    ///
    /// When the connection is broken.
    pub fn finish(&mut self) {
        self.stream
            .shutdown(Shutdown::Write)
            .expect("the connection is open");
    }

    /// Waits for the next frame or the end of the stream.
    ///
    /// # Panics
    ///
    /// When nothing comes within [`PATIENCE`], or what comes is no frame.
    pub fn receive(&mut self) -> Received {
        loop {
            match decode_server_frame(&self.received) {
                Ok(Decoded::Frame { frame, consumed }) => {
                    self.received.drain(..consumed);
                    return Received::Frame(frame);
                }
                Ok(Decoded::Incomplete) => {}
                Err(error) => panic!("{error}: {:02x?}", self.received),
            }
            let mut buffer = [0; 512];
            match self.stream.read(&mut buffer) {
                Ok(0) if self.received.is_empty() => return Received::End,
                Ok(0) => return Received::Broken(io::ErrorKind::UnexpectedEof),
                Ok(len) => self.received.extend(&buffer[..len]),
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                    panic!("the server sent nothing within {PATIENCE:?}")
                }
                Err(error) => return Received::Broken(error.kind()),
            }
        }
    }

    /// Waits for `ACQUIRED`, and returns its token.
    ///
    /// # Panics
    ///
    /// When anything else comes.
    pub fn expect_acquired(&mut self) -> Token {
        match self.receive() {
            Received::Frame(ServerFrame::Acquired(token)) => token,
            other => panic!("expected ACQUIRED, got {other:?}"),
        }
    }

    /// Waits for `WAITING`, if it comes before `ACQUIRED`, and then for `ACQUIRED`.
    ///
    /// # Panics
    ///
    /// When anything else comes.
    pub fn expect_acquired_in_the_end(&mut self) -> Token {
        loop {
            match self.receive() {
                Received::Frame(ServerFrame::Acquired(token)) => return token,
                Received::Frame(ServerFrame::Waiting) => {}
                other => panic!("expected WAITING or ACQUIRED, got {other:?}"),
            }
        }
    }

    /// Waits for `WAITING`.
    ///
    /// # Panics
    ///
    /// When anything else comes.
    pub fn expect_waiting(&mut self) {
        assert_eq!(self.receive(), Received::Frame(ServerFrame::Waiting));
    }

    /// Waits for `ERROR` with this code and then for the end of the stream, and returns the reason.
    ///
    /// # Panics
    ///
    /// When anything else comes.
    pub fn expect_error(&mut self, expected: ErrorCode) -> String {
        let reason = match self.receive() {
            Received::Frame(ServerFrame::Error { code, reason }) if code == expected => reason,
            other => panic!("expected ERROR {expected:?}, got {other:?}"),
        };
        self.expect_end();
        reason
    }

    /// Waits for the end of the stream.
    ///
    /// # Panics
    ///
    /// When a frame comes, or a reset.
    pub fn expect_end(&mut self) {
        assert_eq!(self.receive(), Received::End);
    }
}
