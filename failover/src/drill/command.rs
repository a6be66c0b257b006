//! The drill as a command: what it asks, prints and returns.

use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;

use tokio::signal::unix::{SignalKind, signal};

use super::{DrillArgs, DrillReport, LivePair, Verdict, hand_over_live, rehearse};
use crate::config::NodeArgs;

/// A promise was broken, or service did not come back.
const BROKEN: u8 = 4;
/// As a shell has it for a program that Ctrl-C ended.
const INTERRUPTED: u8 = 130;

/// Runs the command, with the settings of the node for a drill of the real pair.
///
/// # Errors
///
/// Whatever keeps the drill from being carried out.
pub async fn run(args: &DrillArgs, node: &NodeArgs) -> Result<ExitCode, Box<dyn std::error::Error>> {
    let (mut interrupt, mut terminate, mut hangup) = (
        signal(SignalKind::interrupt())?,
        signal(SignalKind::terminate())?,
        signal(SignalKind::hangup())?,
    );
    // What is interrupted is dropped, and with it every process, connection and file of the drill.
    let report = tokio::select! {
        report = drill(args, node) => report?,
        _ = interrupt.recv() => return Ok(ExitCode::from(INTERRUPTED)),
        _ = terminate.recv() => return Ok(ExitCode::from(INTERRUPTED)),
        _ = hangup.recv() => return Ok(ExitCode::from(INTERRUPTED)),
    };
    let Some(report) = report else {
        return Ok(ExitCode::FAILURE);
    };
    print(&report, args)?;
    Ok(exit_code(&report, args))
}

/// `None` when the operator did not want it.
async fn drill(args: &DrillArgs, node: &NodeArgs) -> Result<Option<DrillReport>, Box<dyn std::error::Error>> {
    if args.live {
        return drill_live(args, node).await;
    }
    let program = std::env::current_exe()?;
    let mut tell = |line: &str| eprintln!("{line}");
    if let Some(folder) = &args.keep {
        std::fs::create_dir(folder)
            .map_err(|error| format!("--keep {}: {error}: name a new folder", folder.display()))?;
        let folder = std::path::absolute(folder)?;
        return Ok(Some(rehearse(args, &program, &folder, &mut tell).await?));
    }
    let folder = tempfile::Builder::new().prefix("monolock-drill-").tempdir()?;
    Ok(Some(rehearse(args, &program, folder.path(), &mut tell).await?))
}

async fn drill_live(
    args: &DrillArgs,
    node: &NodeArgs,
) -> Result<Option<DrillReport>, Box<dyn std::error::Error>> {
    let (which, link) = node.check_link()?;
    let (own_locks, peer_locks) = node.check_locks()?;
    if node.server.clone().check()?.tls.is_some() {
        return Err("MONOLOCK_TLS_CERT: the drill's test clients speak no TLS: use `handover`, and measure with your own".into());
    }
    let pair = LivePair {
        node: which,
        link,
        own_locks,
        peer_locks,
    };
    let (active, status) = pair.active().await?;
    eprintln!("{status}");
    let back = if args.back { ", and then back" } else { "" };
    let question = format!(
        "Node {active} hands over to node {}{back}: its sessions are closed and come back there.",
        active.peer()
    );
    if !args.yes && !confirm(question).await? {
        return Ok(None);
    }
    Ok(Some(hand_over_live(args, &pair).await?))
}

/// Asks on a terminal; elsewhere nobody can answer.
async fn confirm(question: String) -> Result<bool, Box<dyn std::error::Error>> {
    if !std::io::stdin().is_terminal() {
        return Err(format!("{question} Say so with --yes").into());
    }
    let answer = tokio::task::spawn_blocking(move || {
        eprint!("{question} Continue? [y/N] ");
        std::io::stderr().flush()?;
        let mut answer = String::new();
        std::io::stdin().read_line(&mut answer)?;
        Ok::<_, std::io::Error>(answer)
    });
    Ok(matches!(answer.await??.trim(), "y" | "Y" | "yes"))
}

fn print(report: &DrillReport, args: &DrillArgs) -> Result<(), Box<dyn std::error::Error>> {
    if args.json {
        println!("{}", serde_json::to_string_pretty(report)?);
    } else if args.markdown {
        print!("{}", report.to_markdown());
    } else {
        println!("{report}");
    }
    Ok(())
}

fn exit_code(report: &DrillReport, args: &DrillArgs) -> ExitCode {
    match report.verdict() {
        Verdict::Failed => ExitCode::from(BROKEN),
        Verdict::Passed if report.has_gaps() && !args.scenario.is_empty() => ExitCode::FAILURE,
        Verdict::Passed => ExitCode::SUCCESS,
        Verdict::NotRun => ExitCode::FAILURE,
    }
}
