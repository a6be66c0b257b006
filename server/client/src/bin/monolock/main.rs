//! The command line `monolock`; `monolock --help` describes it.

mod admin;
mod args;
mod guardian;
mod pages;
mod run;
mod supervise;
mod terminal;
mod watch;

use std::process::ExitCode;

use args::{Cli, Command};
use clap::Parser;

/// What a script may branch on; see `--help`.
pub(crate) mod exit {
    pub(crate) const FAILURE: u8 = 1;
    pub(crate) const NOT_FOUND: u8 = 3;
    pub(crate) const UNAVAILABLE: u8 = 69;
    pub(crate) const NOT_GRANTED: u8 = 75;
    pub(crate) const REFUSED: u8 = 77;
    pub(crate) const CONFIG: u8 = 78;
    pub(crate) const LOST: u8 = 111;
    pub(crate) const CANNOT_EXECUTE: u8 = 126;
    pub(crate) const COMMAND_NOT_FOUND: u8 = 127;
    pub(crate) const SIGNAL_BASE: u8 = 128;
}

/// A failure with the code to exit with.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: u8,
    pub(crate) message: String,
}

impl Failure {
    pub(crate) fn new(code: u8, message: impl ToString) -> Self {
        Self {
            code,
            message: message.to_string(),
        }
    }
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_max_level(tracing::Level::WARN)
        .with_target(false)
        .without_time()
        .init();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let result = match runtime {
        Ok(runtime) => runtime.block_on(execute(cli.command)),
        Err(error) => Err(Failure::new(exit::FAILURE, error)),
    };
    match result {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            eprintln!("monolock: {}", failure.message);
            ExitCode::from(failure.code)
        }
    }
}

async fn execute(command: Command) -> Result<u8, Failure> {
    match command {
        Command::Run(args) => run::run(args).await,
        Command::Status(args) => admin::status(args).await,
        Command::Watch(args) => watch::watch(args).await,
        Command::Release(args) => admin::release(args).await,
        Command::Kick(args) => admin::kick(args).await,
        Command::Completions { shell } => pages::print_completions(shell),
        Command::Man { out_dir } => pages::print_manual(out_dir.as_deref()),
        Command::Guard => guardian::guard().await,
    }
}
