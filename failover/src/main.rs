//! A node of a pair as a program.

use std::process::ExitCode;

use clap::Parser as _;
use monolock_failover::config::{Cli, Command};
use monolock_failover::drill;
use monolock_failover::node::Node;
use monolock_failover::operator::{PairStatus, extend_reserve, hand_over};
use monolock_server::config::explain_usage;
use monolock_server::logging;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

fn main() -> ExitCode {
    match run() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("monolock-failover: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<ExitCode, Box<dyn std::error::Error>> {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return Ok(explain_usage("monolock-failover", &error)),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    match cli.command.unwrap_or(Command::Run { check: false }) {
        Command::Run { check: true } => {
            let config = cli.node.check()?;
            monolock_server::check_files(&config.server)?;
            println!("the settings are valid");
            Ok(ExitCode::SUCCESS)
        }
        Command::Run { check: false } => {
            let config = cli.node.check()?;
            logging::init(config.server.log);
            if let Err(error) = rlimit::increase_nofile_limit(u64::MAX) {
                tracing::warn!(%error, "the descriptor limit stays as it is");
            }
            runtime.block_on(serve(config))
        }
        Command::Status { json } => {
            let (node, link) = cli.node.check_link()?;
            let pair = runtime.block_on(PairStatus::ask(node, &link));
            if json {
                println!("{}", serde_json::to_string_pretty(&pair)?);
            } else {
                println!("{pair}");
            }
            Ok(if pair.is_healthy() {
                ExitCode::SUCCESS
            } else {
                ExitCode::from(UNHEALTHY)
            })
        }
        Command::ExtendReserve => {
            let (node, link) = cli.node.check_link()?;
            let left = runtime.block_on(extend_reserve(node, &link))?;
            println!("the reserve is extended: {left} grants were left");
            Ok(ExitCode::SUCCESS)
        }
        Command::Handover { json } => {
            let (node, link) = cli.node.check_link()?;
            let done = runtime.block_on(hand_over(node, &link))?;
            if json {
                println!("{}", serde_json::to_string_pretty(&done)?);
            } else {
                println!("handed over: term {} has begun", done.term);
            }
            Ok(ExitCode::SUCCESS)
        }
        Command::Drill(args) => runtime.block_on(drill::command::run(&args, &cli.node)),
    }
}

async fn serve(
    config: monolock_failover::config::NodeConfig,
) -> Result<ExitCode, Box<dyn std::error::Error>> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let mut hangup = signal(SignalKind::hangup())?;
    let link = config.link.credentials.clone();
    let node = Node::start(config).await?;
    let server = node.server().handle();
    let stop = CancellationToken::new();
    let running = tokio::spawn(node.run(stop.clone()));
    loop {
        tokio::select! {
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
            _ = hangup.recv() => {
                server.reload();
                link.reload();
            }
        }
    }
    stop.cancel();
    running.await?;
    Ok(ExitCode::SUCCESS)
}

/// Exit code of `status` when the pair could not lose a node now.
const UNHEALTHY: u8 = 3;
