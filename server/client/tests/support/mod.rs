//! A peer that speaks exactly the bytes a test tells it to, for faults that no real server shows on demand.

#![allow(dead_code, reason = "each test binary uses its own part")]

pub(crate) mod server;
pub(crate) mod terminal;

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread::JoinHandle;
use std::time::Duration;

use monolock_protocol::frame::{ClientFrame, Decoded, ServerFrame, SessionPhase, decode_client_frame};
use monolock_protocol::{ErrorCode, Lease, LockName, Token};

/// Nothing in these tests takes this long unless it hangs.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Listens on a free port and gives each connection in turn to its script.
pub(crate) struct Peer {
    pub(crate) address: SocketAddr,
    script: Option<JoinHandle<()>>,
}

impl Peer {
    /// Runs `script` on a thread of its own with the listening peer.
    pub(crate) fn start(script: impl FnOnce(&Listener) + Send + 'static) -> Self {
        Self::start_at("127.0.0.1:0", script)
    }

    /// As [`Peer::start`], at an address of the test's choice.
    pub(crate) fn start_at(address: &str, script: impl FnOnce(&Listener) + Send + 'static) -> Self {
        let listener = Listener(TcpListener::bind(address).expect("a free address"));
        let address = listener.0.local_addr().expect("bound");
        let script = std::thread::spawn(move || script(&listener));
        Self {
            address,
            script: Some(script),
        }
    }

    pub(crate) fn servers(&self) -> String {
        self.address.to_string()
    }

    /// Waits for the script's end; its failed assertions fail the test.
    pub(crate) fn finish(mut self) {
        let script = self.script.take().expect("finished once");
        if let Err(panic) = script.join() {
            std::panic::resume_unwind(panic);
        }
    }
}

pub(crate) struct Listener(TcpListener);

impl Listener {
    pub(crate) fn accept(&self) -> Conn {
        let (stream, _) = self.0.accept().expect("accept");
        stream.set_read_timeout(Some(PATIENCE)).expect("a valid time-out");
        Conn {
            stream,
            received: Vec::new(),
            phase: SessionPhase::AwaitingAcquire,
        }
    }
}

pub(crate) struct Conn {
    stream: TcpStream,
    received: Vec<u8>,
    phase: SessionPhase,
}

impl Conn {
    pub(crate) fn expect_acquire(&mut self) -> (LockName, Lease) {
        match self.next() {
            Some(ClientFrame::Acquire { name, lease }) => {
                self.phase = SessionPhase::Claimed;
                (name, lease)
            }
            other => panic!("expected ACQUIRE, got {other:?}"),
        }
    }

    pub(crate) fn expect_heartbeat(&mut self) {
        assert_eq!(self.next(), Some(ClientFrame::Heartbeat));
    }

    /// The client closes, whatever heartbeats it still sends.
    pub(crate) fn expect_close(&mut self) {
        while let Some(frame) = self.next() {
            assert_eq!(frame, ClientFrame::Heartbeat);
        }
    }

    /// Whether the client has closed by now, whatever heartbeats it has sent.
    pub(crate) fn is_closed(&mut self) -> bool {
        let mut bytes = [0; 512];
        self.stream.set_nonblocking(true).expect("a socket");
        loop {
            match self.stream.read(&mut bytes) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
                Err(_) => return true,
            }
        }
    }

    pub(crate) fn send(&mut self, frame: &ServerFrame) {
        self.send_bytes(&frame.to_bytes());
    }

    pub(crate) fn send_bytes(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("the client reads");
    }

    pub(crate) fn grant(&mut self, token: u64) {
        self.send(&ServerFrame::Acquired(Token::new(token)));
    }

    /// Grants, and waits until the client has noticed: it then beats as a holder.
    pub(crate) fn grant_and_await_beat(&mut self, token: u64) {
        self.grant(token);
        self.expect_heartbeat();
    }

    pub(crate) fn fail(mut self, code: ErrorCode) {
        self.send(&ServerFrame::error(code));
        self.stream.shutdown(std::net::Shutdown::Write).ok();
        self.expect_close();
    }

    /// Answers every heartbeat until the client closes.
    pub(crate) fn keep_alive(mut self, answer: &ServerFrame) {
        while let Some(frame) = self.next() {
            assert_eq!(frame, ClientFrame::Heartbeat);
            // The client may close while this is on its way.
            if self.stream.write_all(&answer.to_bytes()).is_err() {
                return;
            }
        }
    }

    fn next(&mut self) -> Option<ClientFrame> {
        loop {
            match decode_client_frame(&self.received, self.phase).expect("a valid frame") {
                Decoded::Frame { frame, consumed } => {
                    self.received.drain(..consumed);
                    return Some(frame);
                }
                Decoded::Incomplete => {
                    let mut bytes = [0; 512];
                    match self.stream.read(&mut bytes) {
                        Ok(0) => return None,
                        Ok(read) => self.received.extend_from_slice(&bytes[..read]),
                        Err(error) if error.kind() == ErrorKind::ConnectionReset => return None,
                        Err(error) => panic!("the client sent nothing: {error}"),
                    }
                }
            }
        }
    }
}

/// A port on which nothing listens.
pub(crate) fn closed_port() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("bound")
}

/// Polls a condition until it holds.
pub(crate) fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = monolock_clock::boot_now() + PATIENCE;
    while !condition() {
        assert!(monolock_clock::boot_now() < deadline, "{what} did not happen");
        std::thread::sleep(Duration::from_millis(5));
    }
}
