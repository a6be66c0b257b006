//! PostgreSQL on a host of its own.

use crate::hosts::network::run_with_input;
use crate::hosts::{Host, Network};
use crate::postgres::READY;
use crate::postgres::local::Data;
use crate::process::Process;

const PORT: u16 = 5432;

/// The server; it ends with this value.
#[derive(Debug)]
pub struct Database {
    host: Host,
    process: Option<Process>,
    data: Data,
}

impl Database {
    /// Starts it on the host `name`, empty.
    ///
    /// # Panics
    ///
    /// When it is not installed or does not start.
    #[must_use]
    pub fn start(network: &Network, name: &str) -> Self {
        let mut database = Self {
            host: network.host(name).clone(),
            process: None,
            data: Data::initialise(),
        };
        database.restart();
        database
    }

    /// Starts it again with its data as it was.
    ///
    /// # Panics
    ///
    /// When it does not start.
    pub fn restart(&mut self) {
        let command = self.data.server(&self.host.address().to_string(), PORT);
        let process = Process::spawn(self.host.name(), self.host.wrap(&command));
        process.wait_for_line(READY);
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

    /// Where it is, for a client on any host.
    #[must_use]
    pub fn url(&self) -> String {
        format!("postgres://postgres@{}:{PORT}/postgres", self.host.address())
    }

    /// The rows that a query gives: one line each, the columns separated by `|`.
    ///
    /// # Panics
    ///
    /// When the server does not answer it.
    #[must_use]
    pub fn query(&self, query: &str) -> String {
        let mut command = self.host.command("psql");
        command.args(["--no-psqlrc", "--quiet", "--tuples-only", "--no-align"]);
        command.arg(self.url());
        run_with_input(command, query)
    }
}
