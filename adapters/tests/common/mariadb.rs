//! A MariaDB server of the test's own. Needs the Debian package `mariadb-server`.

use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use tempfile::TempDir;

use super::server::{Server, eventually, free_port, run};
#[cfg(feature = "mysql")]
use super::sql::SqlServer;

/// A server with an empty database `test`, user `test`, no password; it ends with this value.
pub struct MariaDb {
    server: Option<Server>,
    port: u16,
    dir: TempDir,
}

impl MariaDb {
    /// Creates a data folder and starts a server on it.
    pub async fn start() -> Self {
        let dir = tempfile::Builder::new()
            .prefix("my")
            .tempdir()
            .expect("a temporary folder");
        std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o777)).expect("our folder");
        let init = "CREATE DATABASE IF NOT EXISTS test;\nCREATE USER IF NOT EXISTS test@'%';\nGRANT ALL ON *.* TO test@'%';\n";
        std::fs::write(dir.path().join("init.sql"), init).expect("our folder");
        run(Command::new("mariadb-install-db")
            // A server that starts removes the temporary tables of all others in a shared folder.
            .env("TMPDIR", dir.path())
            .args([
                "--no-defaults",
                "--auth-root-authentication-method=normal",
                "--skip-test-db",
                "--user=mysql",
            ])
            .arg(format!("--datadir={}", dir.path().join("data").display())));
        let mut mariadb = Self {
            server: None,
            port: 0,
            dir,
        };
        for _ in 0..10 {
            if mariadb.run_on(free_port()).await.is_ok() {
                return mariadb;
            }
        }
        panic!("MariaDB found no port:\n{}", mariadb.log());
    }

    /// Where to connect.
    pub fn url(&self) -> String {
        self.url_at(self.port)
    }

    /// The same database through another port, a proxy's for example.
    pub fn url_at(&self, port: u16) -> String {
        format!("mysql://test@127.0.0.1:{port}/test?ssl-mode=disabled")
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

    async fn run_on(&mut self, port: u16) -> Result<(), ()> {
        let path = |name: &str| self.dir.path().join(name).display().to_string();
        let mut command = Command::new("mariadbd");
        command
            .env("TMPDIR", self.dir.path())
            .args([
                "--no-defaults",
                "--user=mysql",
                "--bind-address=127.0.0.1",
                "--skip-name-resolve",
            ])
            .arg(format!("--port={port}"))
            .arg(format!("--datadir={}", path("data")))
            .arg(format!("--socket={}", path("socket")))
            .arg(format!("--pid-file={}", path("pid")))
            .arg(format!("--init-file={}", path("init.sql")));
        let mut server = Server::spawn(&mut command, &self.dir.path().join("log"));
        let mut ended = false;
        eventually("MariaDB starts", async || {
            ended = server.has_ended();
            ended || (server.listens_on(port) && self.is_ready())
        })
        .await;
        if ended {
            return Err(());
        }
        self.port = port;
        self.server = Some(server);
        Ok(())
    }

    fn is_ready(&self) -> bool {
        Command::new("mariadb-admin")
            .args(["--no-defaults", "--user=test", "--silent", "ping"])
            .arg(format!("--socket={}", self.dir.path().join("socket").display()))
            .output()
            .is_ok_and(|output| output.status.success())
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }
}

#[cfg(feature = "mysql")]
impl SqlServer for MariaDb {
    type DB = sqlx::MySql;
    const BEGIN: &str = "START TRANSACTION";

    async fn start() -> Self {
        Self::start().await
    }

    fn port(&self) -> u16 {
        self.port
    }

    async fn crash_and_restart(&mut self) {
        self.crash_and_restart().await;
    }

    async fn pool_at(&self, port: u16) -> sqlx::MySqlPool {
        sqlx::pool::PoolOptions::new()
            .max_connections(20)
            .connect(&self.url_at(port))
            .await
            .expect("a server")
    }

    async fn impatient_pool(&self) -> sqlx::MySqlPool {
        sqlx::pool::PoolOptions::<sqlx::MySql>::new()
            .after_connect(|conn, _| {
                Box::pin(async move {
                    sqlx::raw_sql("SET innodb_lock_wait_timeout = 0")
                        .execute(conn)
                        .await?;
                    Ok(())
                })
            })
            .connect(&self.url())
            .await
            .expect("a server")
    }

    /// (The table of transactions is a copy that frequent readers keep from being renewed.)
    async fn waiting(pool: &sqlx::MySqlPool) -> i64 {
        let select = "SELECT CAST(variable_value AS SIGNED) FROM information_schema.global_status \
                      WHERE variable_name = 'INNODB_ROW_LOCK_CURRENT_WAITS'";
        sqlx::query_scalar(select)
            .fetch_one(pool)
            .await
            .expect("readable")
    }

    fn client(&self, script: &str) -> std::process::Output {
        Command::new("mariadb")
            .args(["--no-defaults", "--user=test", "--database=test", "-e", script])
            .arg(format!("--socket={}", self.dir.path().join("socket").display()))
            .output()
            .expect("the client comes with MariaDB")
    }
}
