//! The command line of the drill.

use std::path::PathBuf;
use std::time::Duration;

use super::Scenario;

/// What `drill` is asked to do; its exit codes are in its help.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
pub struct DrillArgs {
    /// What to rehearse; may be given several times [default: everything that can be run here]
    #[arg(long, value_name = "NAME", num_args = 1.., conflicts_with = "live")]
    pub scenario: Vec<Scenario>,
    /// How often each is repeated
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u32).range(1..=10_000), conflicts_with = "live")]
    pub runs: u32,
    /// The authority period of the pair: how long silence lasts before a takeover
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = humantime::parse_duration, conflicts_with = "live")]
    pub ttl: Duration,
    /// The lease of the test clients
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = humantime::parse_duration)]
    pub lease: Duration,
    /// A witness as in MONOLOCK_WITNESS, to rehearse with your own technology: the register beside it whose name ends in
    /// -drill [default: a file]
    #[arg(long, value_name = "WITNESS", conflicts_with = "live")]
    pub witness: Option<String>,
    /// How long a lock that may be held is kept back after a takeover, as MONOLOCK_TAKEOVER_GRACE; below the lease, the drill
    /// shows what that waives
    #[arg(
        long,
        value_name = "lease|none|DURATION",
        default_value = "lease",
        conflicts_with = "live"
    )]
    pub grace: String,
    /// Keep the files of the nodes, such as their logs, in this folder, which must not exist
    #[arg(long, value_name = "FOLDER", conflicts_with = "live")]
    pub keep: Option<PathBuf>,
    /// Ask the real pair to hand over, and measure that: its sessions are closed and come back
    #[arg(long)]
    pub live: bool,
    /// Hand back afterwards
    #[arg(long, requires = "live")]
    pub back: bool,
    /// Do not ask before a handover of the real pair
    #[arg(long, requires = "live")]
    pub yes: bool,
    /// Report as JSON
    #[arg(long, conflicts_with = "markdown")]
    pub json: bool,
    /// Report as Markdown tables, with the timeline of a typical run of each scenario
    #[arg(long)]
    pub markdown: bool,
}
