//! Server processes that a test starts from local binaries and ends by their own id.

use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

/// A running server; dropping it kills it.
pub struct Server {
    name: String,
    child: Child,
}

impl Server {
    /// Starts a program. Its output goes to this file.
    pub fn spawn(command: &mut Command, log: &Path) -> Self {
        let name = format!("{:?}", command.get_program());
        let out = std::fs::File::create(log).expect("a log file");
        let err = out.try_clone().expect("a second handle");
        let child = command
            .stdin(Stdio::null())
            .stdout(out)
            .stderr(err)
            .spawn()
            .unwrap_or_else(|error| panic!("{name} is needed for this test and does not start: {error}"));
        Self { name, child }
    }

    /// True once the process has ended by itself.
    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("a child of ours").is_some()
    }

    /// Ends it as a power cut would.
    pub fn kill(&mut self) {
        self.child.kill().expect("a child of ours");
        self.child.wait().expect("a child of ours");
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Err(error) = self.child.kill().and_then(|()| self.child.wait()) {
            eprintln!("{} is left over: {error}", self.name);
        }
    }
}

/// Runs a program to its end and demands success.
pub fn run(command: &mut Command) -> Output {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{:?} is needed for this test: {error}", command.get_program()));
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    output
}

/// A port that was free a moment ago. Whoever uses it must be ready to lose it and ask again.
pub fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("some port is free");
    listener.local_addr().expect("bound").port()
}

/// Waits until the condition holds, up to 30 seconds.
pub async fn eventually(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    for _ in 0..600 {
        if condition().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{what}: not within 30 s");
}
