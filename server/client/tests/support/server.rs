//! A real `monolock-server` as a process.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc;

use rustix::process::{Pid, Signal, kill_process};

use super::PATIENCE;

/// Killed when dropped.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    admin: Option<SocketAddr>,
    child: Child,
}

impl Server {
    pub(crate) fn start() -> Self {
        Self::start_with("127.0.0.1:0", &[])
    }

    /// A server with an admin API.
    pub(crate) fn start_with_admin() -> Self {
        Self::start_with("127.0.0.1:0", &[("MONOLOCK_ADMIN_LISTEN_ADDRESS", "127.0.0.1:0")])
    }

    pub(crate) fn admin(&self) -> String {
        self.admin.expect("started with an admin API").to_string()
    }

    /// Starts a server at an address and waits until it listens.
    pub(crate) fn start_with(address: &str, settings: &[(&str, &str)]) -> Self {
        let mut command = without_settings(Command::new(server_binary()));
        command
            .env("MONOLOCK_LISTEN_ADDRESS", address)
            .envs(settings.iter().copied());
        let mut child = command
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        let stderr = child.stderr.take().expect("piped");
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                // The test may have ended.
                let _ = sender.send(line);
            }
        });
        let next_address = |marker: &str| loop {
            let line = lines
                .recv_timeout(PATIENCE)
                .unwrap_or_else(|_| panic!("no line with {marker:?}"));
            if let Some((_, address)) = line.split_once(marker) {
                break address
                    .split(' ')
                    .next()
                    .and_then(|text| text.parse().ok())
                    .expect("an address");
            }
        };
        let address = next_address("listening address=");
        let has_admin = settings
            .iter()
            .any(|(name, _)| *name == "MONOLOCK_ADMIN_LISTEN_ADDRESS");
        let admin = has_admin.then(|| next_address("listening for HTTP address="));
        Self {
            address,
            admin,
            child,
        }
    }

    pub(crate) fn servers(&self) -> String {
        self.address.to_string()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(pid(&self.child), signal).expect("it runs");
    }

    /// Kills the process and waits for its end.
    pub(crate) fn kill(mut self) -> SocketAddr {
        self.end();
        self.address
    }

    fn end(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}

pub(crate) fn pid(child: &Child) -> Pid {
    Pid::from_raw(i32::try_from(child.id()).expect("ids are small")).expect("ids are positive")
}

/// A command that does not see the settings of the surrounding shell.
pub(crate) fn without_settings(mut command: Command) -> Command {
    for (variable, _) in std::env::vars_os() {
        if variable.as_encoded_bytes().starts_with(b"MONOLOCK_") {
            command.env_remove(variable);
        }
    }
    command
}

/// The server named by `MONOLOCK_SERVER_BIN`, or else built once from this workspace.
fn server_binary() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| std::env::var_os("MONOLOCK_SERVER_BIN").map_or_else(build_server, PathBuf::from))
}

fn build_server() -> PathBuf {
    let test = std::env::current_exe().expect("a test knows its own path");
    let profile = test
        .parent()
        .and_then(Path::parent)
        .expect("tests are in target/debug/deps");
    let target = profile.parent().expect("profiles are in the target folder");
    let built = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--package", "monolock-server", "--target-dir"])
        .arg(target)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .status()
        .expect("cargo runs");
    assert!(built.success(), "the server cannot be built");
    target.join("debug/monolock-server")
}
