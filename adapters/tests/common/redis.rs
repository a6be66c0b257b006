//! A Redis server of the test's own. Needs the Debian package `redis-server`.

use std::process::Command;

use redis::Client;
use redis::aio::MultiplexedConnection;
use tempfile::TempDir;

use super::server::{Server, eventually, free_port};

/// An empty server that keeps what it is given; it ends with this value.
pub struct RedisServer {
    server: Option<Server>,
    port: u16,
    dir: TempDir,
}

impl RedisServer {
    pub async fn start() -> Self {
        let dir = tempfile::Builder::new()
            .prefix("redis")
            .tempdir()
            .expect("a temporary folder");
        let mut redis = Self {
            server: None,
            port: 0,
            dir,
        };
        for _ in 0..10 {
            if redis.run_on(free_port()).await.is_ok() {
                return redis;
            }
        }
        let log = std::fs::read_to_string(redis.dir.path().join("log")).unwrap_or_default();
        panic!("Redis found no port:\n{log}");
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub async fn connection(&self) -> MultiplexedConnection {
        connect(self.port).await.expect("a server")
    }

    /// Kills the server as a power cut would, and starts it again on the same port.
    pub async fn crash_and_restart(&mut self) {
        self.stop();
        self.run_on(self.port).await.expect("the port is still ours");
    }

    pub fn stop(&mut self) {
        self.server.take().expect("it runs").kill();
    }

    async fn run_on(&mut self, port: u16) -> Result<(), ()> {
        let mut command = Command::new("redis-server");
        command
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", ""])
            .args(["--appendonly", "yes", "--appendfsync", "always", "--dir"])
            .arg(self.dir.path());
        let mut server = Server::spawn(&mut command, &self.dir.path().join("log"));
        let mut ended = false;
        eventually("Redis starts", async || {
            ended = server.has_ended();
            ended || (server.listens_on(port) && is_ready(port).await)
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

pub async fn connect(port: u16) -> redis::RedisResult<MultiplexedConnection> {
    Client::open(("127.0.0.1", port))?
        .get_multiplexed_async_connection()
        .await
}

/// It answers, and not with "loading".
async fn is_ready(port: u16) -> bool {
    let Ok(mut connection) = connect(port).await else {
        return false;
    };
    redis::cmd("PING").exec_async(&mut connection).await.is_ok()
}
