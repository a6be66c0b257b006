//! An S3 server of the test's own: MiniStack, a Python package that `integration-tests/setup` installs below cargo's
//! target folder.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use aws_sdk_s3::Client;
use aws_sdk_s3::config::timeout::TimeoutConfig;
use aws_sdk_s3::config::{BehaviorVersion, Credentials, Region};
use aws_smithy_http_client::Builder;
use aws_smithy_http_client::tls::{Provider, rustls_provider::CryptoMode};
use tempfile::TempDir;

use super::server::{Server, eventually, free_port};

/// The bucket that is there from the start.
pub const BUCKET: &str = "bucket";

/// A server with one empty bucket; it ends with this value.
pub struct MiniStack {
    server: Option<Server>,
    port: u16,
    dir: TempDir,
}

impl MiniStack {
    pub async fn start() -> Self {
        let dir = tempfile::Builder::new()
            .prefix("s3")
            .tempdir()
            .expect("a temporary folder");
        let mut ministack = Self {
            server: None,
            port: 0,
            dir,
        };
        for _ in 0..10 {
            if ministack.run_on(free_port()).await.is_ok() {
                ministack
                    .client()
                    .create_bucket()
                    .bucket(BUCKET)
                    .send()
                    .await
                    .expect("a bucket");
                return ministack;
            }
        }
        let log = std::fs::read_to_string(ministack.dir.path().join("log")).unwrap_or_default();
        panic!("MiniStack found no port:\n{log}");
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// A client of this server.
    pub fn client(&self) -> Client {
        client_at(self.port)
    }

    /// Kills the server as a power cut would, and starts it again on the same port.
    pub async fn crash_and_restart(&mut self) {
        let mut server = self.server.take().expect("it runs");
        server.kill();
        drop(server);
        self.run_on(self.port).await.expect("the port is still ours");
    }

    async fn run_on(&mut self, port: u16) -> Result<(), ()> {
        let mut command = Command::new(program("ministack"));
        command
            .env("BIND_HOST", "127.0.0.1")
            .env("GATEWAY_PORT", port.to_string())
            .env("SERVICES", "s3")
            .env("S3_PERSIST", "1")
            .env("S3_DATA_DIR", self.dir.path().join("data"))
            .env("TMPDIR", self.dir.path())
            .env("HOME", self.dir.path())
            .current_dir(self.dir.path());
        let mut server = Server::spawn(&mut command, &self.dir.path().join("log"));
        let client = client_at(port);
        let mut ended = false;
        eventually("MiniStack starts", async || {
            ended = server.has_ended();
            ended || (server.listens_on(port) && client.list_buckets().send().await.is_ok())
        })
        .await;
        if ended {
            return Err(());
        }
        self.port = port;
        self.server = Some(server);
        Ok(())
    }
}

/// A client of whatever speaks S3 on this port.
pub fn client_at(port: u16) -> Client {
    let http = Builder::new()
        .tls_provider(Provider::Rustls(CryptoMode::Ring))
        .build_https();
    let timeouts = TimeoutConfig::builder()
        .operation_attempt_timeout(Duration::from_secs(30))
        .build();
    let config = aws_sdk_s3::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .http_client(http)
        .timeout_config(timeouts)
        .endpoint_url(format!("http://127.0.0.1:{port}"))
        .force_path_style(true)
        .region(Region::new("us-east-1"))
        .credentials_provider(Credentials::new("test", "test", None, None, "test"))
        .build();
    Client::from_conf(config)
}

/// A program of the Python packages that `integration-tests/setup` installs.
fn program(name: &str) -> PathBuf {
    let tools = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .parent()
        .expect("tmp is within the target folder");
    let program = tools.join("test-tools/python/bin").join(name);
    assert!(
        program.exists(),
        "{} is needed for this test: run integration-tests/setup",
        program.display()
    );
    program
}
