//! A takeover, live in a terminal: a pair behind one name, two workers, a stale write refused.
//!
//! Exit code 0 only if every claim held. Needs the programs `monolock-failover` and `demo_worker` beside itself.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::Parser;
use monolock_clock::boot_now;
use monolock_examples::ledger::Database;
use monolock_examples::takeover::{self, Options};

/// Shows a takeover live, and checks what it claims.
#[derive(Debug, Parser)]
struct Settings {
    /// The guarded resource, sqlite:PATH or postgres://...; a SQLite file of the demo's own when missing
    #[arg(long)]
    database: Option<Database>,
    /// The witness, as in MONOLOCK_WITNESS; a file of the demo's own when missing
    #[arg(long)]
    witness: Option<String>,
    /// The authority period of the pair, in milliseconds
    #[arg(long, default_value_t = 1_000)]
    ttl_ms: u64,
    /// The lease of the workers, in milliseconds
    #[arg(long, default_value_t = 2_000)]
    lease_ms: u64,
}

#[tokio::main]
async fn main() -> ExitCode {
    let settings = Settings::parse();
    tokio::select! {
        played = play(settings) => match played {
            Ok(true) => ExitCode::SUCCESS,
            Ok(false) => {
                eprintln!("\nA claim did not hold.");
                ExitCode::FAILURE
            }
            Err(error) => {
                eprintln!("\npair_demo: {error:#}");
                ExitCode::FAILURE
            }
        },
        _ = tokio::signal::ctrl_c() => {
            eprintln!("\nStopped; every process of the demo is ended.");
            ExitCode::from(130)
        }
    }
}

async fn play(settings: Settings) -> Result<bool> {
    let programs = std::env::current_exe().context("where is this program?")?;
    let beside = |name: &str| programs.with_file_name(name);
    let options = Options {
        failover: beside("monolock-failover"),
        worker: beside("demo_worker"),
        database: settings.database,
        witness: settings.witness,
        ttl: Duration::from_millis(settings.ttl_ms),
        lease: Duration::from_millis(settings.lease_ms),
    };
    let started = boot_now();
    let mut say = |line: &str| {
        let elapsed = boot_now().saturating_duration_since(started).as_secs_f64();
        if line.is_empty() {
            println!();
        } else {
            println!("{elapsed:7.3}  {line}");
        }
    };
    let report = takeover::run(&options, &mut say).await?;
    println!("\n{report}");
    Ok(report.holds())
}
