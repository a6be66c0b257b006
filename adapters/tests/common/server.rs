//! Server processes that a test starts from local binaries and ends by their own id.

use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
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

    /// True when this very process, and not somebody else's, listens on the port.
    pub fn listens_on(&self, port: u16) -> bool {
        let Ok(files) = std::fs::read_dir(format!("/proc/{}/fd", self.id())) else {
            return false;
        };
        let sockets: Vec<_> = files
            .filter_map(|file| std::fs::read_link(file.ok()?.path()).ok())
            .collect();
        let table = std::fs::read_to_string("/proc/net/tcp").expect("Linux");
        let mut inodes = table.lines().filter_map(|line| {
            let fields: Vec<_> = line.split_whitespace().collect();
            let (local, state, inode) = (fields.get(1)?, fields.get(3)?, fields.get(9)?);
            (local.ends_with(&format!(":{port:04X}")) && *state == LISTENING)
                .then(|| format!("socket:[{inode}]"))
        });
        inodes.any(|inode| sockets.contains(&PathBuf::from(inode)))
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

/// A port that was free a moment ago, below those that the system hands out by itself. Whoever uses it must be ready to
/// lose it and ask again.
pub fn free_port() -> u16 {
    let is_free = |port: &u16| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok();
    std::iter::repeat_with(|| fastrand::u16(10_000..32_000))
        .find(is_free)
        .expect("some port is free")
}

/// The state of a listening socket in the kernel's table.
const LISTENING: &str = "0A";

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
