//! A running PostgreSQL with an empty database that trusts every client.
//!
//! It runs in a container where a Docker engine answers, from an image made of the programs installed on this
//! machine; else those programs run directly. `MONOLOCK_TEST_POSTGRES=docker` or `=local` decides instead.
//! Where neither can be had the test fails and says what to install.

mod container;
pub(crate) mod local;

use std::env;
use std::process::{Command, Stdio};

use container::Container;
use local::LocalServer;

/// A PostgreSQL server of a test's own; it ends with this value.
#[derive(Debug)]
pub struct Postgres {
    url: String,
    _server: Server,
}

#[derive(Debug)]
enum Server {
    Container { _container: Container },
    Local { _server: LocalServer },
}

impl Postgres {
    /// Starts a server and waits until it takes connections.
    ///
    /// # Panics
    ///
    /// When PostgreSQL is not installed, or does not start.
    #[must_use]
    pub fn start() -> Self {
        match env::var("MONOLOCK_TEST_POSTGRES").as_deref() {
            Ok("docker") => Self::in_container(),
            Ok("local") => Self::local(),
            Ok(other) if !other.is_empty() => {
                panic!("MONOLOCK_TEST_POSTGRES={other}: either docker or local")
            }
            _ if docker_answers() => Self::in_container(),
            _ => Self::local(),
        }
    }

    /// Starts a server in a container.
    ///
    /// # Panics
    ///
    /// When no Docker engine answers, PostgreSQL is not installed, or the container does not start.
    #[must_use]
    pub fn in_container() -> Self {
        let container = Container::start();
        Self {
            url: url(container.host(), container.port()),
            _server: Server::Container {
                _container: container,
            },
        }
    }

    /// Starts the programs that are installed on this machine.
    ///
    /// # Panics
    ///
    /// When PostgreSQL is not installed, or does not start.
    #[must_use]
    pub fn local() -> Self {
        let server = LocalServer::start();
        Self {
            url: url("127.0.0.1", server.port()),
            _server: Server::Local { _server: server },
        }
    }

    /// Where its database is, as `postgres://user@host:port/database`.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }
}

/// Whether a Docker engine answers.
#[must_use]
pub fn docker_answers() -> bool {
    Command::new("docker")
        .arg("version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

fn url(host: &str, port: u16) -> String {
    format!("postgres://postgres@{host}:{port}/postgres")
}

/// What both kinds of server print when they take connections.
pub(crate) const READY: &str = "database system is ready to accept connections";
