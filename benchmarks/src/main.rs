//! Measures monolock and prints one table.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use clap::Parser;
use monolock_benchmarks::plan::Plan;
use monolock_benchmarks::rows::{ALL, Bench};
use monolock_benchmarks::{table, usage};

/// Measures monolock against the limit of the machine and against Redis, PostgreSQL and etcd, and prints a table in
/// Markdown. The servers are those built beside this program.
#[derive(Debug, Parser)]
struct Args {
    /// How long each contender of a row is measured, in seconds
    #[arg(long, env = "BENCH_SECONDS", default_value_t = 7.0)]
    seconds: f64,
    /// Which groups of rows to measure, all of them unless named
    rows: Vec<String>,
}

fn main() -> Result<()> {
    let Args { seconds, rows } = Args::parse();
    let known: BTreeSet<_> = ALL.iter().map(|(name, _)| *name).collect();
    for row in &rows {
        ensure!(known.contains(row.as_str()), "{row}: one of {known:?}");
    }
    let bench = Bench {
        plan: Plan::new(seconds),
        runtime: tokio::runtime::Runtime::new()?,
    };
    println!("{}\n{}", usage::machine(), table::HEAD);
    for (name, measure) in ALL {
        if rows.is_empty() || rows.iter().any(|row| row == name) {
            eprintln!("measuring: {name}");
            for row in measure(&bench)? {
                println!("{row}");
            }
        }
    }
    Ok(())
}
