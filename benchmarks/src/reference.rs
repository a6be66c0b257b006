//! The bare programs, as processes: what the machine can do when nothing is decided.

use std::net::SocketAddr;
use std::process::Command;

use anyhow::{Context, Result};
use clap::ValueEnum;
use monolock_integration_tests::process::Process;
use monolock_integration_tests::server::listening_address;

/// What a bare program does with each connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Bare {
    /// Reads once, answers nine bytes, and reads until the client closes.
    NineBytes,
    /// Sends back what it reads.
    Echo,
    /// Joins each two connections: sends to one what it reads from the other.
    Relay,
}

/// A running bare program.
#[derive(Debug)]
pub struct Reference {
    /// Its process.
    pub process: Process,
    /// Where it listens.
    pub address: SocketAddr,
}

impl Reference {
    /// Starts the program that was built beside this one.
    ///
    /// # Errors
    ///
    /// When this program does not know its own path.
    ///
    /// # Panics
    ///
    /// When the program is missing or does not listen.
    pub fn start(bare: Bare) -> Result<Self> {
        let own = std::env::current_exe().context("this program's own path")?;
        let value = bare
            .to_possible_value()
            .context("every bare program has a name")?;
        let mut command = Command::new(own.with_file_name("monolock-reference"));
        command.arg(value.get_name());
        let process = Process::spawn("monolock-reference", command);
        let address = listening_address(&process.wait_for_line("listening address="));
        Ok(Self { process, address })
    }
}
