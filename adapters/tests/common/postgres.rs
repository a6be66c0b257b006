//! A PostgreSQL server of the test's own. Needs the Debian package `postgresql`.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use super::server::{Server, eventually, free_port, run};
#[cfg(feature = "postgres")]
use super::sql::SqlServer;

/// A server with an empty database `postgres`, user `postgres`, no password; it ends with this value.
pub struct Postgres {
    server: Option<Server>,
    port: u16,
    bin: PathBuf,
    dir: TempDir,
}

impl Postgres {
    /// Creates a cluster and starts it.
    pub async fn start() -> Self {
        let bin = newest_bin();
        let dir = tempfile::Builder::new()
            .prefix("pg")
            .tempdir()
            .expect("a temporary folder");
        if is_root() {
            std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o755)).expect("our folder");
            std::fs::create_dir(dir.path().join("run")).expect("our folder");
            run(Command::new("chown").arg("-R").arg("postgres:").arg(dir.path()));
        } else {
            std::fs::create_dir(dir.path().join("run")).expect("our folder");
        }
        run(as_postgres(&bin.join("initdb"))
            .arg("-D")
            .arg(dir.path().join("data"))
            .args([
                "-U",
                "postgres",
                "-A",
                "trust",
                "--no-sync",
                "--no-locale",
                "-E",
                "UTF8",
            ])
            .current_dir(dir.path()));
        let mut postgres = Self {
            server: None,
            port: 0,
            bin,
            dir,
        };
        postgres.run_on_some_port().await;
        postgres
    }

    /// Where to connect.
    pub fn url(&self) -> String {
        self.url_at(self.port)
    }

    /// The same database through another port, a proxy's for example.
    pub fn url_at(&self, port: u16) -> String {
        format!("postgres://postgres@127.0.0.1:{port}/postgres?sslmode=disable")
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Kills the server as a power cut would, and starts it again on the same port.
    pub async fn crash_and_restart(&mut self) {
        let mut server = self.server.take().expect("it runs");
        server.kill();
        drop(server);
        self.run_on(self.port).await.expect("the port is still ours");
    }

    async fn run_on_some_port(&mut self) {
        for _ in 0..10 {
            if self.run_on(free_port()).await.is_ok() {
                return;
            }
        }
        panic!("PostgreSQL found no port:\n{}", self.log());
    }

    /// The postmaster is the one process to end: its children end themselves when it is gone.
    async fn run_on(&mut self, port: u16) -> Result<(), ()> {
        let mut command = as_postgres(&self.bin.join("postgres"));
        command
            .arg("-D")
            .arg(self.dir.path().join("data"))
            .arg("-k")
            .arg(self.dir.path().join("run"))
            .args([
                "-p",
                &port.to_string(),
                "-c",
                "listen_addresses=127.0.0.1",
                "-c",
                "max_connections=100",
            ])
            .current_dir(self.dir.path());
        let mut server = Server::spawn(&mut command, &self.dir.path().join("log"));
        let mut ended = false;
        eventually("PostgreSQL starts", async || {
            ended = server.has_ended();
            ended || (server.listens_on(port) && self.is_ready(port))
        })
        .await;
        if ended {
            return Err(());
        }
        self.port = port;
        self.server = Some(server);
        Ok(())
    }

    fn is_ready(&self, port: u16) -> bool {
        // By its socket, which is in our folder: whatever else listens on that port is not taken for ours.
        Command::new(self.bin.join("pg_isready"))
            .args(["-q", "-p", &port.to_string(), "-h"])
            .arg(self.dir.path().join("run"))
            .status()
            .is_ok_and(|status| status.success())
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }
}

/// PostgreSQL refuses to run as root.
fn as_postgres(program: &Path) -> Command {
    if !is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command
        .args(["--reuid=postgres", "--regid=postgres", "--init-groups"])
        .arg(program);
    command
}

fn newest_bin() -> PathBuf {
    let versions =
        std::fs::read_dir("/usr/lib/postgresql").expect("this test needs the Debian package postgresql");
    let newest = versions
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok())
        .max()
        .expect("this test needs the Debian package postgresql");
    PathBuf::from(format!("/usr/lib/postgresql/{newest}/bin"))
}

fn is_root() -> bool {
    let id = run(Command::new("id").arg("-u"));
    id.stdout.trim_ascii() == b"0"
}

#[cfg(feature = "postgres")]
impl SqlServer for Postgres {
    type DB = sqlx::Postgres;
    const BEGIN: &str = "BEGIN";

    async fn start() -> Self {
        Self::start().await
    }

    fn port(&self) -> u16 {
        self.port
    }

    async fn crash_and_restart(&mut self) {
        self.crash_and_restart().await;
    }

    async fn pool_at(&self, port: u16) -> sqlx::PgPool {
        sqlx::pool::PoolOptions::new()
            .max_connections(20)
            .connect(&self.url_at(port))
            .await
            .expect("a server")
    }

    async fn impatient_pool(&self) -> sqlx::PgPool {
        let options: sqlx::postgres::PgConnectOptions = self.url().parse().expect("our address");
        sqlx::PgPool::connect_with(options.options([("lock_timeout", "1ms")]))
            .await
            .expect("a server")
    }

    async fn waiting(pool: &sqlx::PgPool) -> i64 {
        let select = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
        sqlx::query_scalar(select)
            .fetch_one(pool)
            .await
            .expect("readable")
    }

    fn client(&self, script: &str) -> std::process::Output {
        Command::new("psql")
            .args(["-v", "ON_ERROR_STOP=1", "-q", "-X", "-c", script])
            .arg(self.url())
            .output()
            .expect("psql comes with PostgreSQL")
    }
}
