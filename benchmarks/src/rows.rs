//! The rows of the table.

mod claim_cycle;
mod handover;
mod heartbeat;
mod peers;
mod processor;
mod queue;
mod resident;
mod sessions;
mod system_calls;

use anyhow::Result;
use tokio::runtime::Runtime;

use crate::plan::Plan;
use crate::table::Row;

/// What rows are measured with.
#[derive(Debug)]
pub struct Bench {
    /// How long.
    pub plan: Plan,
    /// Where clients of rates run; latencies are measured by blocking clients.
    pub runtime: Runtime,
}

/// Measures rows that share their set-up.
pub type Measure = fn(&Bench) -> Result<Vec<Row>>;

/// Every group of rows, by the name that selects it.
pub const ALL: [(&str, Measure); 9] = [
    ("claim-cycle", claim_cycle::measure),
    ("heartbeat", heartbeat::measure),
    ("handover", handover::measure),
    ("contended", peers::contended),
    ("uncontended", peers::uncontended),
    ("memory", resident::measure),
    ("processor", processor::measure),
    ("queue", queue::measure),
    ("system-calls", system_calls::measure),
];
