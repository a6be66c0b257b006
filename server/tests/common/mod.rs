//! A real server process and a client that speaks raw bytes.

#![allow(dead_code, unreachable_pub, reason = "each test file uses its own part")]

use std::collections::HashMap;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use monolock_protocol::frame::{Decoded, ServerFrame, decode_server_frame, encode_acquire};
use monolock_protocol::{ErrorCode, Lease, LockName, Token};
use rustix::process::{Pid, Signal, kill_process};

/// How long anything may take before a test gives up.
pub const PATIENCE: Duration = Duration::from_secs(30);

pub const HEARTBEAT: [u8; 1] = [0x02];

/// A `monolock-server` process on free ports; killed when dropped.
pub struct ServerProcess {
    child: Child,
    stderr: Arc<Mutex<Vec<String>>>,
    pub lock_addr: SocketAddr,
    pub ops_addr: SocketAddr,
    pub admin_addr: SocketAddr,
}

/// The command with a clean environment and free ports on loopback.
pub fn command(settings: &[(&str, &str)]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_monolock-server"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("MONOLOCK_")) {
        command.env_remove(name);
    }
    for setting in [
        "MONOLOCK_LISTEN_ADDRESS",
        "MONOLOCK_OPS_LISTEN_ADDRESS",
        "MONOLOCK_ADMIN_LISTEN_ADDRESS",
    ] {
        command.env(setting, "127.0.0.1:0");
    }
    command.envs(settings.iter().copied());
    command
}

/// The same command under limits that a shell sets.
pub fn with_limits(limits: &str, settings: &[(&str, &str)]) -> Command {
    let inner = command(settings);
    let mut limited = Command::new("sh");
    limited
        .args(["-c", &format!("{limits} && exec \"$0\"")])
        .arg(inner.get_program());
    for (name, value) in inner.get_envs() {
        match value {
            Some(value) => limited.env(name, value),
            None => limited.env_remove(name),
        };
    }
    limited
}

impl ServerProcess {
    pub fn start(settings: &[(&str, &str)]) -> Self {
        Self::spawn(command(settings))
    }

    /// A server that is past the second of its start, in which claims only queue: for tests with short leases.
    pub fn start_granting(settings: &[(&str, &str)]) -> Self {
        let server = Self::start(settings);
        server.hold("first second", 60_000);
        server.wait_for_metric("monolock_connections_active", 0.0);
        server
    }

    pub fn spawn(mut command: Command) -> Self {
        let mut child = command
            .stderr(Stdio::piped())
            .spawn()
            .expect("the server binary starts");
        let stderr = Arc::new(Mutex::new(Vec::new()));
        let pipe = BufReader::new(child.stderr.take().expect("piped"));
        let lines = Arc::clone(&stderr);
        thread::spawn(move || {
            for line in pipe.lines().map_while(Result::ok) {
                lines.lock().expect("no test panics here").push(line);
            }
        });
        let nowhere = SocketAddr::from(([0, 0, 0, 0], 0));
        let mut server = Self {
            child,
            stderr,
            lock_addr: nowhere,
            ops_addr: nowhere,
            admin_addr: nowhere,
        };
        server.lock_addr = server.address_in("listening ", "");
        server.ops_addr = server.address_in("listening for HTTP", "ops");
        server.admin_addr = server.address_in("listening for HTTP", "admin");
        server
    }

    fn address_in(&mut self, message: &str, what: &str) -> SocketAddr {
        let line = self.wait_for_log(|line| line.contains(message) && line.contains(what));
        let address = line
            .split("address=")
            .nth(1)
            .and_then(|rest| rest.split_whitespace().next());
        address
            .and_then(|address| address.parse().ok())
            .unwrap_or_else(|| panic!("no address in {line:?}"))
    }

    /// The first line of stderr that matches.
    pub fn wait_for_log(&mut self, matches: impl Fn(&str) -> bool) -> String {
        let mut found = None;
        let ended = wait_until(|| {
            found = self.log().into_iter().find(|line| matches(line));
            found.is_some() || self.child.try_wait().expect("own child").is_some()
        });
        found.unwrap_or_else(|| panic!("no such line (ended: {ended}) in {:#?}", self.log()))
    }

    pub fn log(&self) -> Vec<String> {
        self.stderr.lock().expect("no test panics here").clone()
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn take_stdout(&mut self) -> ChildStdout {
        self.child.stdout.take().expect("stdout was piped")
    }

    pub fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id())
            .ok()
            .and_then(Pid::from_raw)
            .expect("a process id");
        kill_process(pid, signal).expect("the process is there");
    }

    /// Ends it at once, as kill -9 does.
    pub fn kill(&mut self) {
        self.child.kill().expect("own child");
        self.child.wait().expect("own child");
    }

    pub fn wait(&mut self) -> ExitStatus {
        let mut status = None;
        let ended = wait_until(|| {
            status = self.child.try_wait().expect("own child");
            status.is_some()
        });
        assert!(ended, "still running; its log: {:#?}", self.log());
        status.expect("ended")
    }

    pub fn connect(&self) -> RawClient {
        RawClient::connect(self.lock_addr)
    }

    /// A new session that asked for a lock.
    pub fn acquire(&self, lock: &str, lease_ms: u32) -> RawClient {
        let mut client = self.connect();
        client.send(&acquire_frame(lock, lease_ms));
        client
    }

    /// A new session that holds a lock, and its token.
    pub fn hold(&self, lock: &str, lease_ms: u32) -> (RawClient, Token) {
        let mut client = self.acquire(lock, lease_ms);
        let token = client.acquired();
        (client, token)
    }

    /// A new session in the queue of a lock.
    pub fn queue(&self, lock: &str, lease_ms: u32) -> RawClient {
        let mut client = self.acquire(lock, lease_ms);
        assert_eq!(client.frame(), Some(ServerFrame::Waiting));
        client
    }

    pub fn metrics(&self) -> HashMap<String, f64> {
        metrics(self.ops_addr)
    }

    pub fn metric(&self, series: &str) -> f64 {
        *self
            .metrics()
            .get(series)
            .unwrap_or_else(|| panic!("no series {series}"))
    }

    pub fn wait_for_metric(&self, series: &str, value: f64) {
        let reached = wait_until(|| self.metric(series) == value);
        assert!(reached, "{series} is {}, not {value}", self.metric(series));
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if thread::panicking() {
            eprintln!("log of the server:\n{}", self.log().join("\n"));
        }
    }
}

/// Waits for a condition, within [`PATIENCE`].
pub fn wait_until(mut condition: impl FnMut() -> bool) -> bool {
    let end = monolock_clock::boot_now() + PATIENCE;
    loop {
        if condition() {
            return true;
        }
        if monolock_clock::boot_now() >= end {
            return false;
        }
        thread::sleep(Duration::from_millis(5));
    }
}

pub fn acquire_frame(lock: &str, lease_ms: u32) -> Vec<u8> {
    let mut frame = Vec::new();
    let name = LockName::new(lock).expect("valid");
    encode_acquire(&name, Lease::from_millis(lease_ms).expect("positive"), &mut frame);
    frame
}

/// What a connection is to a raw client.
pub trait Connection: Read + Write + Send {}
impl<C: Read + Write + Send> Connection for C {}

/// A client that sends the bytes it is told and reads frames.
pub struct RawClient {
    /// What runs on top of the socket, if anything does.
    layer: Option<Box<dyn Connection>>,
    pub socket: TcpStream,
    received: Vec<u8>,
}

impl RawClient {
    pub fn connect(address: SocketAddr) -> Self {
        let socket = TcpStream::connect_timeout(&address, PATIENCE).expect("the server accepts");
        socket.set_nodelay(true).expect("a socket");
        Self::new(socket, None)
    }

    /// Over something on top of a socket, such as TLS.
    pub fn over(socket: TcpStream, layer: impl Connection + 'static) -> Self {
        Self::new(socket, Some(Box::new(layer)))
    }

    fn new(socket: TcpStream, layer: Option<Box<dyn Connection>>) -> Self {
        socket.set_read_timeout(Some(PATIENCE)).expect("a socket");
        socket.set_write_timeout(Some(PATIENCE)).expect("a socket");
        Self {
            layer,
            socket,
            received: Vec::new(),
        }
    }

    fn connection(&mut self) -> &mut dyn Connection {
        match &mut self.layer {
            Some(layer) => layer,
            None => &mut self.socket,
        }
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.connection().write_all(bytes).expect("the server takes it");
        self.connection().flush().expect("the server takes it");
    }

    pub fn try_send(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.connection().write_all(bytes)
    }

    /// The next frame; `None` when the server closed the connection cleanly.
    pub fn frame(&mut self) -> Option<ServerFrame> {
        loop {
            match decode_server_frame(&self.received).expect("the server speaks the protocol") {
                Decoded::Frame { frame, consumed } => {
                    self.received.drain(..consumed);
                    return Some(frame);
                }
                Decoded::Incomplete => {}
            }
            let mut bytes = [0; 1024];
            match self.connection().read(&mut bytes) {
                Ok(0) => {
                    assert!(
                        self.received.is_empty(),
                        "cut off within a frame: {:02x?}",
                        self.received
                    );
                    return None;
                }
                Ok(count) => self.received.extend_from_slice(&bytes[..count]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => panic!("no frame: {error}"),
            }
        }
    }

    pub fn acquired(&mut self) -> Token {
        loop {
            match self.frame() {
                Some(ServerFrame::Acquired(token)) => return token,
                Some(ServerFrame::Waiting) => {}
                other => panic!("expected ACQUIRED, got {other:?}"),
            }
        }
    }

    pub fn heartbeat(&mut self) -> ServerFrame {
        self.send(&HEARTBEAT);
        self.frame().expect("an answer")
    }

    /// The next frame is this error, and the connection is then closed cleanly.
    pub fn expect_error(&mut self, code: ErrorCode) -> String {
        let reason = match self.frame() {
            Some(ServerFrame::Error { code: found, reason }) => {
                assert_eq!(found, code, "{reason}");
                reason
            }
            other => panic!("expected ERROR {code}, got {other:?}"),
        };
        assert_eq!(self.frame(), None, "an ERROR is the last frame");
        reason
    }

    /// The server closed the connection without a word; a reset says so too.
    pub fn expect_closed(&mut self) {
        let mut bytes = [0; 64];
        match self.connection().read(&mut bytes) {
            Ok(0) => {}
            Ok(count) => panic!("expected nothing, got {:02x?}", &bytes[..count]),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
            Err(error) => panic!("not closed: {error}"),
        }
    }

    pub fn half_close(&self) {
        self.socket.shutdown(Shutdown::Write).expect("connected");
    }

    /// Closes with a reset instead of a clean end.
    pub fn reset(self) {
        let socket = socket2::SockRef::from(&self.socket);
        socket.set_linger(Some(Duration::ZERO)).expect("a socket");
    }
}

/// One HTTP exchange: status and body.
pub fn http(address: SocketAddr, method: &str, path: &str, headers: &[(&str, &str)]) -> (u16, String) {
    try_http(address, method, path, headers).expect("an HTTP answer")
}

pub fn try_http(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
) -> std::io::Result<(u16, String)> {
    let answer = exchange(address, method, path, headers)?;
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
    let body = answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned());
    match (status, body) {
        (Some(status), Some(body)) => Ok((status, body)),
        _ => Err(std::io::Error::new(ErrorKind::InvalidData, answer)),
    }
}

/// The whole answer, head and body.
pub fn exchange(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
) -> std::io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut request = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\n");
    if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
        request.push_str(&format!("Host: {address}\r\n"));
    }
    for (name, value) in headers {
        request.push_str(&format!("{name}: {value}\r\n"));
    }
    stream.write_all(format!("{request}Content-Length: 0\r\n\r\n").as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

pub fn json(address: SocketAddr, path: &str) -> serde_json::Value {
    let (status, body) = http(address, "GET", path, &[]);
    assert_eq!(status, 200, "{body}");
    serde_json::from_str(&body).expect("JSON")
}

pub fn metrics(ops_addr: SocketAddr) -> HashMap<String, f64> {
    let (status, text) = http(ops_addr, "GET", "/metrics", &[]);
    assert_eq!(status, 200);
    text.lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.rsplit_once(' '))
        .map(|(series, value)| (series.to_owned(), value.parse().expect("a number")))
        .collect()
}

/// The lines of an audit log so far.
pub fn audit_lines(path: &Path) -> Vec<serde_json::Value> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines()
        .map(|line| serde_json::from_str(line).expect("a JSON line"))
        .collect()
}
