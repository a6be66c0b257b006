//! A real BIND with the zone `example.com`, on a port of its own.

use std::io::Write as _;
use std::process::{Command, Stdio};

use monolock_failover::dns::{DnsPrimary, TsigKey};
use monolock_integration_tests::port::free_port;
use monolock_integration_tests::process::Process;
use tempfile::TempDir;

/// A key that may change the zone.
pub(crate) const KEY: &str = "hmac-sha256:pair-key:cGFpciBzZWNyZXQgcGFpciBzZWNyZXQ=";
/// A key that the server knows, and that may change nothing.
pub(crate) const POWERLESS_KEY: &str = "hmac-sha256:reader-key:cmVhZGVyIHNlY3JldA==";

/// The server; it ends with this value.
pub(crate) struct Bind {
    process: Option<Process>,
    port: u16,
    folder: TempDir,
}

impl Bind {
    pub(crate) fn start() -> Self {
        let folder = tempfile::Builder::new().prefix("bind").tempdir().unwrap();
        let port = free_port();
        let path = folder.path().display();
        let configuration = format!(
            r#"options {{
                directory "{path}"; pid-file "{path}/pid"; session-keyfile "{path}/session.key";
                listen-on port {port} {{ 127.0.0.1; }}; listen-on-v6 {{ none; }};
                recursion no; dnssec-validation no; allow-transfer {{ none; }};
            }};
            controls {{ }};
            key "pair-key" {{ algorithm hmac-sha256; secret "cGFpciBzZWNyZXQgcGFpciBzZWNyZXQ="; }};
            key "reader-key" {{ algorithm hmac-sha256; secret "cmVhZGVyIHNlY3JldA=="; }};
            zone "example.com" {{ type primary; file "{path}/zone"; allow-update {{ key pair-key; }}; }};
            "#
        );
        std::fs::write(folder.path().join("named.conf"), configuration).unwrap();
        let zone = "$TTL 60\n@ SOA ns hostmaster 1 60 60 60 60\n@ NS ns\nns A 127.0.0.1\n";
        std::fs::write(folder.path().join("zone"), zone).unwrap();
        let mut bind = Self {
            process: None,
            port,
            folder,
        };
        bind.run();
        bind
    }

    fn run(&mut self) {
        let mut command = Command::new("named");
        command
            .arg("-g")
            .arg("-c")
            .arg(self.folder.path().join("named.conf"));
        let process = Process::spawn("named", command);
        process.wait_for_line("all zones loaded");
        self.process = Some(process);
    }

    /// Kills the server without notice and starts it anew.
    pub(crate) fn kill_and_restart(&mut self) {
        self.stop();
        self.run();
    }

    pub(crate) fn stop(&mut self) {
        if let Some(process) = self.process.take() {
            process.kill();
        }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn primary(&self, key: &str) -> DnsPrimary {
        primary_at(self.port, "example.com", key)
    }

    /// Changes the zone by hand.
    pub(crate) fn update(&self, lines: &str) {
        let mut child = Command::new("nsupdate")
            .args(["-y", KEY])
            .stdin(Stdio::piped())
            .spawn()
            .expect("nsupdate is installed (Debian: bind9-dnsutils)");
        let script = format!(
            "server 127.0.0.1 {}\nzone example.com\n{lines}\nsend\n",
            self.port
        );
        child.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
        assert!(child.wait().unwrap().success(), "{lines}");
    }

    /// What `dig +short` prints.
    pub(crate) fn dig(&self, name: &str, kind: &str) -> String {
        let output = Command::new("dig")
            .args(["+short", "@127.0.0.1", "-p", &self.port.to_string(), name, kind])
            .output()
            .expect("dig is installed (Debian: bind9-dnsutils)");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }
}

pub(crate) fn primary_at(port: u16, zone: &str, key: &str) -> DnsPrimary {
    let server = format!("127.0.0.1:{port}").parse().unwrap();
    DnsPrimary::new(server, zone, TsigKey::parse(key).unwrap())
        .unwrap()
        .with_time_limit(std::time::Duration::from_secs(30))
}
