//! BIND as the primary server of a zone that the pair may update.

use std::process::Command;

use tempfile::TempDir;

use crate::hosts::network::run_with_input;
use crate::hosts::{Host, Network};
use crate::process::Process;

/// The zone.
pub const ZONE: &str = "example.com";
/// The name in it that clients know.
pub const SERVICE: &str = "locks.example.com";
/// The key that may change the zone.
pub const KEY: &str = "hmac-sha256:pair-key:cGFpciBzZWNyZXQgcGFpciBzZWNyZXQ=";

/// The name server on a host of its own.
#[derive(Debug)]
pub struct Bind {
    host: Host,
    folder: TempDir,
    process: Option<Process>,
}

impl Bind {
    /// Starts it on the host `name`.
    ///
    /// # Panics
    ///
    /// When it is not installed or does not start.
    #[must_use]
    pub fn start(network: &Network, name: &str) -> Self {
        let host = network.host(name).clone();
        let folder = TempDir::with_prefix("monolock-bind-").expect("a temporary folder can be made");
        let (path, address) = (folder.path().display(), host.address());
        let configuration = format!(
            r#"options {{
                directory "{path}"; pid-file "{path}/pid"; session-keyfile "{path}/session.key";
                listen-on {{ {address}; }}; listen-on-v6 {{ none; }};
                recursion no; dnssec-validation no; allow-transfer {{ none; }};
            }};
            controls {{ }};
            key "pair-key" {{ algorithm hmac-sha256; secret "cGFpciBzZWNyZXQgcGFpciBzZWNyZXQ="; }};
            zone "{ZONE}" {{ type primary; file "{path}/zone"; allow-update {{ key pair-key; }}; }};
            "#
        );
        let zone = format!("$TTL 60\n@ SOA ns hostmaster 1 60 60 60 1\n@ NS ns\nns A {address}\n");
        std::fs::write(folder.path().join("named.conf"), configuration).expect("the folder is ours");
        std::fs::write(folder.path().join("zone"), zone).expect("the folder is ours");
        let mut bind = Self {
            host,
            folder,
            process: None,
        };
        bind.restart();
        bind
    }

    /// Starts it again with its zone as it was.
    ///
    /// # Panics
    ///
    /// When it does not start.
    pub fn restart(&mut self) {
        let mut command = self.host.command("named");
        command
            .arg("-g")
            .arg("-c")
            .arg(self.folder.path().join("named.conf"));
        let process = Process::spawn("named", command);
        process.wait_for_line("all zones loaded");
        self.process = Some(process);
    }

    /// Kills it without notice.
    ///
    /// # Panics
    ///
    /// When it does not end.
    pub fn kill(&mut self) {
        if let Some(process) = self.process.take() {
            process.kill();
        }
    }

    /// What `dig +short` prints for a name of the zone; empty when there is nothing.
    #[must_use]
    pub fn dig(&self, name: &str, kind: &str) -> String {
        let server = format!("@{}", self.host.address());
        let mut command = self.host.command("dig");
        command.args(["+short", "+tries=1", "+time=2", &server, name, kind]);
        printed(command).trim().to_owned()
    }

    /// Changes the zone as an operator would, with lines of `nsupdate`.
    ///
    /// # Panics
    ///
    /// When the server refuses the change.
    pub fn update(&self, lines: &str) {
        let mut command = self.host.command("nsupdate");
        command.args(["-y", KEY]);
        let script = format!("server {}\nzone {ZONE}\n{lines}\nsend\n", self.host.address());
        run_with_input(command, &script);
    }
}

/// What a program printed, whatever became of it.
fn printed(mut command: Command) -> String {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?} does not start: {error}"));
    String::from_utf8_lossy(&output.stdout).into_owned()
}
