//! The lock server as a program.

use std::process::ExitCode;

use clap::Parser;
use monolock_server::config::{explain_usage, with_double_dashes};
use monolock_server::{Server, ServerArgs, StartGate, logging};
use sd_notify::NotifyState;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// A lock server that hands out fencing tokens. No argument is needed to start. A flag wins over its environment
/// variable, that over the default; an empty value counts as unset.
#[derive(Debug, Parser)]
#[command(name = "monolock-server", version)]
struct Args {
    #[command(flatten)]
    server: ServerArgs,
    /// Check the settings and the files they name, then exit
    #[arg(long)]
    check: bool,
}

fn main() -> ExitCode {
    match run() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("monolock-server: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<ExitCode, Box<dyn std::error::Error>> {
    let args = match Args::try_parse_from(with_double_dashes(std::env::args_os())) {
        Ok(args) => args,
        Err(error) => return Ok(explain_usage("monolock-server", &error)),
    };
    let config = args.server.check()?;
    if args.check {
        monolock_server::check_files(&config)?;
        println!("the settings are valid");
        return Ok(ExitCode::SUCCESS);
    }
    logging::init(config.log);
    raise_descriptor_limit();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut signals = Signals::new()?;
        let server = Server::start(config, StartGate::Open).await?;
        notify(NotifyState::Ready);
        signals.reload_until_stop(&server).await;
        notify(NotifyState::Stopping);
        server.shutdown().await;
        Ok(ExitCode::SUCCESS)
    })
}

/// Tells the service manager, where there is one.
fn notify(state: NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(&[state]) {
        tracing::warn!(%error, "the service manager could not be told");
    }
}

/// One connection is one descriptor, so take all that the system allows.
fn raise_descriptor_limit() {
    if let Err(error) = rlimit::increase_nofile_limit(u64::MAX) {
        tracing::warn!(%error, "the descriptor limit stays as it is");
    }
}

struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    fn new() -> std::io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    async fn reload_until_stop(&mut self, server: &Server) {
        loop {
            tokio::select! {
                _ = self.terminate.recv() => return,
                _ = self.interrupt.recv() => return,
                _ = self.hangup.recv() => server.handle().reload(),
            }
        }
    }
}
